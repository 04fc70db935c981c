"""What a recording consists of: events. Data only; `detconf.digests` says what digests, witnesses and flags are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from detconf.digests import NOTHING, SIZE, Flag, digest, mix, prefix

__all__ = ["NOTHING", "SIZE", "Event", "Flag", "Layout", "Output", "digest", "mix", "prefix"]

Layout = tuple[str, tuple[int, ...]]
"""dtype as `Array` spells it, and shape."""


@dataclass(frozen=True, slots=True)
class Output:
    """What an operation wrote.

    Attributes:
        digest: of dtype, shape and bytes in logical order; `NOTHING` where it was not hashed.
        dtype: as `Array` spells it.
        shape: empty for a scalar.
    """

    digest: bytes
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded operation.

    Attributes:
        index: from 0, in the order of recording, over all threads.
        step: steps that had ended, from 0.
        name: as the framework spells it, such as "aten.mm"; for state and published values their path.
        thread: 0 for the first thread that recorded, then counted.
        inputs: a witness per array that is read, in the order of the arguments.
        outputs: what was written.
        random: digest of the generator's state before the operation; empty where it draws nothing.
        flags: see `Flag`.
        scope: path of the module that called, such as "encoder.layers.0"; empty unless asked for.
        source: line of the program, such as "train.py:12"; empty unless asked for.
    """

    index: int
    step: int
    name: str
    thread: int
    inputs: tuple[bytes, ...]
    outputs: tuple[Output, ...]
    random: bytes
    flags: Flag
    scope: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "step": self.step,
            "name": self.name,
            "thread": self.thread,
            "inputs": [witness.hex() for witness in self.inputs],
            "outputs": [{"digest": each.digest.hex(), "dtype": each.dtype, "shape": list(each.shape)} for each in self.outputs],
            "random": self.random.hex(),
            "flags": [flag.name for flag in Flag if flag & self.flags],
            "scope": self.scope,
            "source": self.source,
        }
