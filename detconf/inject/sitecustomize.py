"""Put DETCONF_PROFILE in force before an unmodified script runs, then run the user's own sitecustomize.

This folder stands first on the PYTHONPATH of a command started by detconf. `-S`, `-E` and `-I` switch it off; the
environment variables still hold then.
"""

import os
import sys


def _configure():
    # Only the first process of a command is seeded: a worker that drew what its parent draws would be a new fault.
    seeded = os.environ.setdefault("DETCONF_SEEDED", str(os.getpid()))
    try:
        from detconf.session import start

        start(seeded=seeded == str(os.getpid()))
    except Exception as error:  # noqa: BLE001  # whatever fails here, the user's program must still start
        sys.stderr.write(f"detconf: the profile could not be put in force: {error}\n")


def _hand_over():
    """Import the sitecustomize that this one stands in front of."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)  # importlib fails where a module takes itself away


if os.environ.get("DETCONF_PROFILE"):
    _configure()
_hand_over()
