"""What one process asks another to run, as a file: options of a study, conditions, inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from detconf.auditing.elsewhere.packing import Pack, Unpacked, pack_value, unpack_value

SCHEMA = "detconf.request/1"
CHANGES = frozenset(("amendments", "alterations", "states"))
"""Options of a study that change single things, by their numbers."""


@dataclass(slots=True, kw_only=True)
class Request:
    """One request.

    Attributes:
        kind: "plain", "study", "remedies" or "verify".
        put_back: first put the generators back.
        options: of `Study`; an amendment is an array here.
        conditions: (kind, argument) of each.
        entry: states of generators to enter with, by the name of their knob; None for the process's own.
        seed: of generators whose state no entry gives; None to leave them.
    """

    kind: str = "plain"
    put_back: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    conditions: list[tuple[str, str]] = field(default_factory=list)
    entry: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None

    def write(self, path: str) -> None:
        """Write it into a file."""
        pack = Pack()
        document = {
            "schema": SCHEMA,
            "kind": self.kind,
            "put_back": self.put_back,
            "options": pack_value(pack, self.options),
            "conditions": self.conditions,
            "entry": pack_value(pack, self.entry),
            "seed": self.seed,
        }
        pack.write(path, document)

    @classmethod
    def read(cls, path: str) -> Request:
        """Read one.

        Raises:
            DetconfError: damaged.
        """
        file = Unpacked(path)
        found: Request = file.guarded(lambda: cls._read(file))
        return found

    @classmethod
    def _read(cls, file: Unpacked) -> Request:
        found = file.document
        if found["schema"] != SCHEMA:
            msg = f"its schema is not {SCHEMA}"
            raise file.damaged(msg)
        return cls(
            kind=str(found["kind"]),
            put_back=bool(found["put_back"]),
            options=_callable(unpack_value(file, found["options"])),
            conditions=[(str(kind), str(argument)) for kind, argument in found["conditions"]],
            entry=unpack_value(file, found["entry"]),
            seed=found["seed"],
        )


def _callable(options: dict[str, Any]) -> dict[str, Any]:
    """Options with amendments as `Study` takes them."""
    amendments = options.get("amendments")
    return options | {"amendments": {index: _put(array) for index, array in amendments.items()}} if amendments else options


def _put(array: Any) -> Callable[[Any], Any]:
    return lambda _: array


def evaluated(options: Mapping[str, Any], values: Callable[[int], Any]) -> dict[str, Any]:
    """Options with arrays in place of amendments.

    Args:
        options: of `Study`.
        values: the shadow that a value has without amendments, by its number; None where there is none.
    """
    found = dict(options)
    amendments = {}
    for index, amend in dict(options.get("amendments") or {}).items():
        shadow = values(index)
        if shadow is not None:
            with suppress(Exception):  # a change that does not suit the array is none
                amendments[index] = amend(shadow)
    if "amendments" in found:
        found["amendments"] = amendments
    return found
