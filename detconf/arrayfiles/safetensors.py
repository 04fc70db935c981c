"""`.safetensors`: eight bytes of length, a JSON header, and the values in place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from detconf.arrayfiles.mapped import damaged
from detconf.arrayfiles.rebuilt import Loader, item_size
from detconf.arrays import Array
from detconf.errors import DetconfError

_LONGEST_HEADER = 100_000_000
"""As the format itself has it."""
_DTYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"{letter}{bits}": f"{word}{bits}" for letter, word in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
}


def is_safetensors(data: memoryview) -> bool:
    """Does a header of JSON stand where its length says?"""
    return len(data) > 9 and int.from_bytes(data[:8], "little") <= len(data) - 8 and bytes(data[8:9]) == b"{"


def safetensors(source: str, data: memoryview) -> Mapping[str, Loader]:
    """The arrays of a file.

    Raises:
        DetconfError: damaged, or of a type that has no bytes of its own.
    """
    end = 8 + int.from_bytes(data[:8], "little")
    if end - 8 > _LONGEST_HEADER:
        raise damaged(source, "its header is too long")
    try:
        header = json.loads(bytes(data[8:end]), object_pairs_hook=partial(_unique, source))
    except (ValueError, RecursionError) as error:
        raise damaged(source, f"its header: {error}") from error
    return {name: _loader(f"{source}:{name}", about, data[end:]) for name, about in header.items() if name != "__metadata__"}


def _unique(source: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise damaged(source, "a name stands twice in its header")
    return found


def _loader(source: str, about: Any, values: memoryview) -> Loader:
    try:
        name, shape, (start, stop) = about["dtype"], tuple(about["shape"]), about["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, start, stop)):
            raise damaged(source, "sizes are whole numbers from 0")
    except (TypeError, KeyError, ValueError) as error:
        raise damaged(source, f"its header: {error!r}") from error
    dtype = _DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        msg = f"{source} has dtype {name!r}. Accepted: {', '.join(sorted(_DTYPES))}."
        raise DetconfError(msg)
    size = math.prod(shape) * item_size(dtype)
    if not start <= stop <= len(values) or stop - start != size:
        raise damaged(source, f"{dtype}{list(shape)} needs {size:,} bytes, it has {start} to {stop} of {len(values):,}")
    return partial(Array, dtype, shape, values[start:stop])
