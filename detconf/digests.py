"""Digests of what is written, witnesses of what is read, and the flags of recorded operations: words of every tracer.

A *digest* says what was written: `digest(dtype, shape, data)`, 16 bytes, equal to `Array.digest` of the same array.
A *witness* says what was read: 16 bytes that are equal in two runs only where what is read is equal. A digest of what is
read is one; a chain of what was written there, mixed with the geometry of the view, is a cheaper one. Unequal witnesses
prove nothing.
"""

from __future__ import annotations

import json
from enum import IntFlag
from functools import lru_cache
from typing import Any

from xxhash import xxh3_128, xxh3_128_digest

SIZE = 16
"""Bytes of a digest or witness."""
NOTHING = bytes(SIZE)
"""In place of the digest of an output that was not hashed; the event's flags say why."""


class Flag(IntFlag):
    """What is special about an event."""

    RANDOM = 1
    """Draws random numbers; `Event.random` is the digest of the generator's state before."""
    IN_PLACE = 2
    """Writes into its arguments: those are the first outputs, in the order of the signature."""
    UNINITIALISED = 4
    """Allocates without writing: the outputs are not hashed."""
    COMPILED = 8
    """Called by code that a compiler made; what that code computed by itself is not recorded."""
    SKIPPED = 16
    """An output has no bytes that can be hashed (meta, opaque)."""
    STATE = 32
    """No operation: one named array of the state at the end of a step."""
    LEAF = 64
    """No operation: data that entered from outside."""
    PUBLISHED = 128
    """No operation: a value named by `detconf.publish`."""
    PROBED = 256
    """Its gradient, if one is computed, is computed otherwise while it is recorded: the recorder may change those bits."""
    COMPARED = 512
    """No operation: a comparison that a test made (`auditing.assertions.noting`)."""


OBSERVED = int(Flag.STATE | Flag.PUBLISHED | Flag.COMPARED)
"""Events that compute nothing: what was seen of the program at some time."""
NO_OPERATION = OBSERVED | int(Flag.LEAF)
"""These, and data that entered."""


@lru_cache(maxsize=1 << 12)
def prefix(dtype: str, shape: tuple[int, ...]) -> bytes:
    """What a digest starts with, so that dtype and shape count: the same as in `Array.digest`."""
    return json.dumps([dtype, list(shape)]).encode()


def digest(dtype: str, shape: tuple[int, ...], data: Any) -> bytes:
    """xxh3-128 over dtype, shape and bytes: `bytes.fromhex(Array(dtype, shape, data).digest)`.

    Args:
        dtype: as `Array` spells it.
        shape: of the array.
        data: contiguous bytes in logical C order, any object with a buffer; it must own its memory while this runs.
    """
    state = xxh3_128(prefix(dtype, shape))
    state.update(data)
    return state.digest()


def mix(*parts: bytes) -> bytes:
    """16 bytes that depend on all `parts`, each of fixed length or the last."""
    return xxh3_128_digest(b"".join(parts))


ENTRY = "entry."
"""What the names of state start with that an optimizer found before its first step."""
BUFFER = "buffer."
"""What the names of a model's buffers start with."""
