from detconf.attestation import Attestation as Attestation
from detconf.auditing.entry import audit as audit
from detconf.auditing.result import Audit as Audit
from detconf.comparing.entry import compare as compare
from detconf.comparing.result import Comparison as Comparison
from detconf.errors import DetconfError as DetconfError
from detconf.errors import DetconfWarning as DetconfWarning
from detconf.errors import LateError as LateError
from detconf.errors import ProfileError as ProfileError
from detconf.errors import TargetError as TargetError
from detconf.publishing import publish as publish
from detconf.publishing import step as step
from detconf.recording.running import record as record
from detconf.rerun import Verification as Verification
from detconf.rerun import verify as verify
from detconf.session import Session as Session
from detconf.session import apply as apply
from detconf.session import inspect as inspect
from detconf.values import Cause as Cause
from detconf.values import Outcome as Outcome

__version__: str
