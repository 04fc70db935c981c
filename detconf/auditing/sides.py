"""What was given to `audit`, as two sides and the laboratory that runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from detconf.arrayfiles.opened import open_arrays
from detconf.arrays import Array
from detconf.auditing.inputs import arrays_of, given
from detconf.auditing.laboratory import Laboratory, Side
from detconf.auditing.result import Audit
from detconf.errors import TargetError
from detconf.recording.file import is_recording
from detconf.results import flatten
from detconf.targets import label, load_function

_RECORDING = ".det"
_FORM = "Accepted: a function without arguments, 'file.py:function', a file of arrays, a recording with values, or a mapping of arrays."


@contextmanager
def arranged(
    reference: Any, candidate: Any, *, inputs: Any = None, python_a: str | None = None, python_b: str | None = None
) -> Iterator[tuple[Laboratory, Side, Side]]:
    """The laboratory, and both sides; inside the block they can be run.

    Args:
        reference, candidate: see `audit`.
        inputs: arguments of the functions: a mapping of arrays, or text as `inputs.parse` reads it.
        python_a, python_b: interpreters; where one is given, both sides run in processes of their own.

    Raises:
        TargetError: a side cannot be found.
        DetconfError: a file cannot be read.
    """
    arguments = arrays_of(inputs) if inputs is not None else None
    if python_a is None and python_b is None:
        yield Laboratory(), side(reference, "reference", arguments), side(candidate, "candidate", arguments)
        return
    from detconf.auditing.elsewhere.remote import laboratory  # only where there are other processes

    with laboratory(arguments) as remote:
        yield remote, _elsewhere(reference, "reference", python_a), _elsewhere(candidate, "candidate", python_b)


def audited_elsewhere(reference: Any, candidate: Any, inputs: Any, *, apart: bool) -> Audit | None:
    """The audit of a test command or its recording, of two recordings, or of one and a function; None for sides that a laboratory runs.

    Args:
        inputs: see `arranged`.
        apart: the sides run in processes of their own.

    Raises:
        TargetError: nothing is compared there.
        DetconfError: a recording cannot be read.
    """
    if isinstance(reference, (list, tuple)) and candidate is None and all(isinstance(word, str) for word in reference):
        from detconf.auditing.assertions.failing import audit_command  # which imports the entry, which imports this

        return audit_command(reference)
    recorded = _is_recording(reference), _is_recording(candidate)
    if candidate is None and (recorded[0] or (isinstance(reference, str) and reference.endswith(_RECORDING))):
        from detconf.auditing.recordings.failed import audit_failed  # loaded where there are recordings

        return audit_failed(os.fspath(reference))
    if all(recorded):
        from detconf.auditing.recordings.across import audit_recordings  # loaded where there are recordings

        return audit_recordings(os.fspath(reference), os.fspath(candidate))
    path, other = (reference, candidate) if recorded[0] else (candidate, reference)
    if any(recorded) and not apart and (callable(other) or (isinstance(other, str) and not os.path.isfile(other))):
        from detconf.auditing.recordings.rerecorded import audit_against  # which imports this

        return audit_against(os.fspath(path), other, arrays_of(inputs) if inputs is not None else None, reversed_=recorded[1])
    return None


def _is_recording(target: Any) -> bool:
    return (
        isinstance(target, (str, os.PathLike))
        and os.path.isfile(target)
        and os.path.getsize(target) > 0
        and is_recording(os.fspath(target))
    )


def side(target: Any, role: str, arguments: Mapping[str, Any] | None = None) -> Side:
    """A side that runs here.

    Raises:
        TargetError: it is none.
        DetconfError: a file of arrays cannot be read.
    """
    arrays = _arrays(target, role)
    if arrays is not None:
        return arrays
    function = load_function(target) if isinstance(target, str) else target
    if not callable(function):
        msg = f"{role}: {target!r} is no side of an audit. {_FORM}"
        raise TargetError(msg)
    return Side(label(target), given(function, arguments) if arguments else function)


def _arrays(target: Any, role: str) -> Side | None:
    """A side of arrays; None for any other."""
    if isinstance(target, (str, os.PathLike)) and os.path.isfile(target):
        return Side(os.fspath(target), None, _file(os.fspath(target)))
    if isinstance(target, Mapping) and target:
        return Side(role, None, {name: array.owned() for name, array in flatten(target).items()})
    return None


def _file(path: str) -> dict[str, Array]:
    """The arrays of a file; the results of a recording, each as it was last."""
    if not _is_recording(path):
        return {name: array.owned() for name, array in open_arrays(path).items()}
    from detconf.auditing.recordings.recorded import last, observed  # loaded where there are recordings

    return last(observed(path)).arrays


def _elsewhere(target: Any, role: str, python: str | None) -> Side:
    from detconf.auditing.elsewhere.remote import remote_side  # as above

    arrays = _arrays(target, role)
    if arrays is not None:
        return arrays
    if not isinstance(target, str) and not callable(target):
        msg = f"{role}: {target!r} is no side of an audit. {_FORM}"
        raise TargetError(msg)
    return remote_side(target, python)
