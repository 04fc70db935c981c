"""A recording against a function: the function's run is recorded here, with values, and the two recordings are audited."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detconf.auditing.laboratory import Laboratory
from detconf.auditing.recordings.across import audit_recordings
from detconf.auditing.result import Audit
from detconf.auditing.sides import side
from detconf.errors import DetconfError, TargetError
from detconf.lookup import first_line
from detconf.recording.running import record
from detconf.targets import call, label
from detconf.values import Cause


def audit_against(recording: str, function: Any, arguments: Mapping[str, Any] | None, *, reversed_: bool) -> Audit | None:
    """Say why the results of a recording and of a function differ; None where the recorded values do not show it.

    Args:
        recording: its path.
        function: to be called, or "file.py:function".
        arguments: of the function, by name.
        reversed_: the function is the reference.

    Raises:
        TargetError: the function cannot be found, or raises.
        DetconfError: the recording cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
        path = os.path.join(folder, "function.det")
        _record(path, function, arguments)
        try:
            found = audit_recordings(*((path, recording) if reversed_ else (recording, path)))
        except TargetError:  # no results in common, or none: the other way says so better
            return None
    name = label(function)
    found = replace(found, reference=name) if reversed_ else replace(found, candidate=name)
    return None if found.cause is Cause.UNKNOWN else found


def _record(path: str, function: Any, arguments: Mapping[str, Any] | None) -> None:
    laboratory = Laboratory()
    laboratory.enter()
    try:
        with record(path, values=True, sources=True):
            own = side(function, "function", arguments)  # loaded in here: arrays that its file makes are followed
            assert own.function is not None  # noqa: S101  # it is no array
            call(own.function)
    except DetconfError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"{label(function)} raised {first_line(error)}"
        raise TargetError(msg) from error
    finally:
        laboratory.enter()
