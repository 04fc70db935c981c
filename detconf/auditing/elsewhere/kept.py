"""A study file: what one run gave under a study, written by the process that ran it and read by the one that judges.

Only NumPy is needed for either. Files may come from elsewhere: nothing in them is run, and every number is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detconf.arrays import Array
from detconf.auditing.elsewhere.packing import Pack, Unpacked, pack_value, unpack_value
from detconf.auditing.laboratory import Observation
from detconf.shadows.study import Known, Operation, Read, Study, Value

SCHEMA = "detconf.study/1"


def write(path: str, observation: Observation, about: Mapping[str, Any] | None = None) -> None:
    """Write an observation.

    Args:
        path: of the file; one that is there is replaced.
        about: JSON, to go with it.
    """
    pack = Pack()
    document = {"schema": SCHEMA, "about": dict(about or {}), "observation": packed(pack, observation)}
    pack.write(path, document)


def read(path: str) -> Observation:
    """Read an observation.

    Raises:
        DetconfError: no such file, damaged, or of a newer detconf.
    """
    file = Unpacked(path)
    return unpacked(file, file.guarded(lambda: document(file)["observation"]))


def document(file: Unpacked) -> dict[str, Any]:
    """What a file of this schema says."""
    found = file.document
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        msg = f"its schema is not {SCHEMA}"
        raise file.damaged(msg)
    return found


def packed(pack: Pack, observation: Observation) -> dict[str, Any]:
    """An observation as JSON, its arrays in `pack`."""
    study = observation.study
    return {
        "arrays": packed_arrays(pack, observation.arrays),
        "known": {name: [pack.array(each.shadow), each.value.index] for name, each in observation.known.items()},
        "values": [_value(pack, each) for each in study.values],
        "operations": [_operation(pack, each) for each in study.operations],
        "losses": list(study.losses),
        "step": study.step,
        "drawn": study.drawn,
    }


def packed_arrays(pack: Pack, arrays: Mapping[str, Array]) -> dict[str, int]:
    """Results by name -> their numbers in `pack`."""
    return {name: pack.data(each.dtype, each.shape, each.data) for name, each in arrays.items()}


def unpacked_arrays(file: Unpacked, found: Any) -> dict[str, Array]:
    """What `packed_arrays` packed."""
    rows = file.guarded(lambda: {str(name): file.data(number) for name, number in found.items()})
    return {name: Array(dtype, shape, bytes(data)) for name, (dtype, shape, data) in rows.items()}


def _value(pack: Pack, value: Value) -> list[Any]:
    return [list(value.shape), value.dtype, pack.array(value.shadow), pack.array(value.real), value.maker, value.origin, value.lost]


def _operation(pack: Pack, each: Operation) -> list[Any]:
    reads = [[read.value.index, pack.array(read.view)] for read in each.reads]
    options = [[key, pack_value(pack, value)] for key, value in each.options.items()]
    local = None if each.local is None else float(each.local).hex()
    writes = [value.index for value in each.writes]
    rest = [options, each.source, each.step, local, each.decided, each.adds]
    return [each.name, reads, writes, each.random, pack_value(pack, each.state), *rest]


def unpacked(file: Unpacked, found: Any) -> Observation:
    """What `packed` packed."""
    observation: Observation = file.guarded(lambda: _observation(file, found))
    return observation


def _observation(file: Unpacked, found: Any) -> Observation:
    study = Study()
    for row in found["values"]:
        study.values.append(_read_value(file, len(study.values), row))
    for row in found["operations"]:
        study.operations.append(_read_operation(file, study, len(study.operations), row))
    count = len(study.operations)
    if any(value.maker >= count for value in study.values):
        msg = "a value was made by an operation that is not there"
        raise file.damaged(msg)
    study.losses.extend(map(str, found["losses"]))
    study.step, study.drawn = int(found["step"]), int(found["drawn"])
    known = {str(name): Known(file.array(shadow), _at(file, study, value)) for name, (shadow, value) in found["known"].items()}
    return Observation(unpacked_arrays(file, found["arrays"]), known, study)


def _read_value(file: Unpacked, index: int, row: Any) -> Value:
    shape, dtype, shadow, real, maker, origin, lost = row
    if type(maker) is not int or maker < -1:
        msg = f"value {index} has no maker"
        raise file.damaged(msg)
    return Value(index, tuple(map(int, shape)), str(dtype), file.array(shadow), file.array(real), maker, str(origin), str(lost))


def _read_operation(file: Unpacked, study: Study, index: int, row: Any) -> Operation:
    name, reads, writes, random, state, options, source, step, local, decided, adds = row
    found_reads = [Read(_at(file, study, value), file.array(view)) for value, view in reads]
    made = [_at(file, study, value) for value in writes]
    found_options = {key: unpack_value(file, value) for key, value in options if isinstance(key, (str, int))}
    found_local = None if local is None else float.fromhex(local)
    return Operation(
        index,
        str(name),
        found_reads,
        made,
        bool(random),
        unpack_value(file, state),
        found_options,
        str(source),
        int(step),
        found_local,
        bool(decided),
        str(adds),
    )


def _at(file: Unpacked, study: Study, index: Any) -> Value:
    if type(index) is not int or not 0 <= index < len(study.values):
        msg = f"there is no value {index!r}"
        raise file.damaged(msg)
    return study.values[index]
