"""One process's report, read back: careful, since it may come from anywhere."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from detconf.reporting import SCHEMA

_LARGEST = 16 << 20
_MOST_RANKS = 1 << 20
PLACE = ("framework", "operation", "source")
"""What tells two non-deterministic operations apart."""


@dataclass(frozen=True)
class Report:
    """What one process reported.

    Attributes:
        rank: None where no launcher gave one.
        world_size: how many ranks its launcher started; None where none said.
        pid: its process.
        stepped: an optimizer made a step in it.
        written: "first step", "restore" or "exit".
        profile: name of the profile.
        facts: its process and machine.
        entries: rows of its attestation, as JSON has them.
        drift: rows of what drifted.
        admitted: operations of which a framework warned: framework, operation, source, count.
    """

    rank: int | None
    world_size: int | None
    pid: int
    stepped: bool
    written: str
    profile: str
    facts: dict[str, Any]
    entries: list[dict[str, Any]]
    drift: list[dict[str, Any]]
    admitted: list[dict[str, Any]]


def read(file: str) -> Report | None:
    """The report in `file`; None for JSON that claims to be something else.

    Raises:
        ValueError: not JSON, or not what a report holds.
    """
    if os.path.getsize(file) > _LARGEST:
        msg = f"larger than {_LARGEST >> 20} MiB"
        raise ValueError(msg)
    with open(file, encoding="utf-8") as text:
        data = _printable(json.load(text))
    schema = data.get("schema") if isinstance(data, dict) else None
    if not (isinstance(schema, str) and schema.startswith("detconf.report/")):
        return None
    if schema != SCHEMA:
        msg = f"schema {schema!r}; this version reads {SCHEMA!r}"
        raise ValueError(msg)
    attestation, drift = _field(data, "attestation", dict), _field(data, "drift", dict)
    return Report(
        rank=_number(data, "rank"),
        world_size=_number(data, "world_size"),
        pid=_field(data, "pid", int),
        stepped=_field(data, "stepped", bool),
        written=_field(data, "written", str),
        profile=_field(data, "profile", str),
        facts=_field(attestation, "facts", dict),
        entries=[_row(row) for row in _field(attestation, "entries", list)],
        drift=[_row(row) for row in _field(drift, "entries", list)],
        admitted=[_admitted(row) for row in _field(data, "nondeterministic", list)],
    )


def _field(data: Any, name: str, kind: type) -> Any:
    value = data.get(name) if isinstance(data, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        msg = f"{name!r} is not {'an' if kind is int else 'a'} {kind.__name__}"
        raise ValueError(msg)
    return value


def _number(data: dict[str, Any], name: str) -> int | None:
    if data.get(name) is None:
        return None
    value: int = _field(data, name, int)
    if not 0 <= value <= _MOST_RANKS:
        msg = f"{name!r} is {value}"
        raise ValueError(msg)
    return value


def _row(row: Any) -> dict[str, Any]:
    for name in ("knob", "framework", "outcome", "note"):
        _field(row, name, str)
    _field(row, "applies", bool)
    return {"wanted": None, "now": None, **row}


def _admitted(row: Any) -> dict[str, Any]:
    return {**{name: _field(row, name, str) for name in PLACE}, "count": _field(row, "count", int)}


def _printable(value: Any) -> Any:
    """`value` without what could steer a terminal."""
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return "".join(letter if letter.isprintable() else "?" for letter in value) if isinstance(value, str) else value
