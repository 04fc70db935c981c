"""What becomes of one call of NumPy: run on plain arrays, reported, and its results traced."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from detconf.digests import NOTHING, Flag
from detconf.frameworks.numpy import contents
from detconf.frameworks.numpy.contents import describe
from detconf.frameworks.numpy.traced import plain, traced
from detconf.frameworks.source import line

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder

_FOREIGN = (os.path.join(os.path.dirname(np.__file__), ""),)
_EMPTY = ("numpy.empty", "numpy.empty_like")
_IN_PLACE, _UNINITIALISED, _SKIPPED, _LEAF = map(int, (Flag.IN_PLACE, Flag.UNINITIALISED, Flag.SKIPPED, Flag.LEAF))
_NUMBERS = (int, float, complex, np.generic)
_WRITERS = frozenset(("copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis"))
"""Functions that write into their first argument."""


class Calls:
    """Reports calls.

    Args:
        recorder: takes them.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._local = threading.local()

    def ready(self) -> bool:
        """Recording, and not inside a call that is being reported."""
        return self.recorder.active and not getattr(self._local, "busy", False)

    def unseen(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run `function` and report nothing that it does."""
        self._local.busy = True
        try:
            return function(*args, **kwargs)
        finally:
            self._local.busy = False

    def function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A function of NumPy that takes arrays: "numpy.linalg.svd"."""
        name = getattr(function, "__name__", "")
        writes = name in _WRITERS or (name == "nan_to_num" and kwargs.get("copy") is False)
        return self.call(f"{function.__module__}.{name}", function, args, kwargs, targets=args[:1] if writes else ())

    def call(  # noqa: PLR0913  # a call and what is known of it
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        targets: Sequence[Any] = (),
        random: bytes = b"",
    ) -> Any:
        """Run `function` and report it.

        Args:
            name: of the operation.
            function: what runs it.
            args: its arguments.
            kwargs: its arguments; what is given as `out` is written.
            targets: arguments that are written besides.
            random: digest of the generator's state, where it draws.
        """
        recorder, back = self.recorder, dict[int, Any]()
        self._local.busy = True
        try:
            own_args = [plain(each, back) for each in args]
            own_kwargs = {key: plain(each, back) for key, each in kwargs.items()}
            read = _arrays([own_args, [each for key, each in own_kwargs.items() if key != "out"]])
            numbers = [each for each in (*own_args, *own_kwargs.values()) if isinstance(each, _NUMBERS)]
            witnesses = [describe(each)[0] for each in read] + [contents.number(each) for each in numbers]
            before = [contents.array(each) for each in read] if recorder.keeping else None
            scalars = _scalars(own_args) if recorder.keeping else ()
            result = function(*own_args, **own_kwargs)
            written = _arrays([kwargs.get("out"), targets])
            made = _made(result, read, written, drawn=bool(random))
            if written or made:
                flags = (_IN_PLACE if written else 0) or (0 if read or random else _LEAF)
                kept = None if before is None else (before, [contents.array(each) for each in (*written, *made)], scalars)
                self._report(name, () if flags == _LEAF else witnesses, [*written, *made], flags, random, kept)
        finally:
            self._local.busy = False
        return traced(result, back)

    def _report(  # noqa: PLR0913, PLR0917  # an event's parts
        self, name: str, witnesses: Sequence[bytes], outputs: list[Any], flags: int, random: bytes, values: Any
    ) -> None:
        described = [describe(each) for each in outputs]
        digests = [digest for digest, _ in described]
        if name in _EMPTY:
            flags, digests = _UNINITIALISED, [NOTHING] * len(outputs)
        elif NOTHING in digests:
            flags |= _SKIPPED
        self.recorder.operation(
            name,
            witnesses,
            digests,
            tuple([layout for _, layout in described]),
            random=random,
            flags=flags,
            source=line(_FOREIGN) if self.recorder.sources else "",
            values=values,
        )


def _scalars(args: Sequence[Any]) -> list[Any]:
    """By position: the arguments that are numbers; None for the others."""
    return [contents.array(each) if isinstance(each, _NUMBERS) else None for each in args]


def _arrays(value: Any) -> list[Any]:
    """The arrays in a nesting of lists and tuples, each once."""
    found: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, np.ndarray):
            found.setdefault(id(each), each)
        elif isinstance(each, (list, tuple)):
            waiting.extend(reversed(each))
    return list(found.values())


def _made(result: Any, read: Sequence[Any], written: Sequence[Any], *, drawn: bool) -> list[Any]:
    """What a call computed: new arrays and NumPy's scalars; what shares memory with an argument is a view."""
    found: list[Any] = []
    for each in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(each, np.ndarray):
            if not any(np.may_share_memory(each, other) for other in (*read, *written)):
                found.append(each)
        elif isinstance(each, np.generic) or (drawn and isinstance(each, _NUMBERS)):
            found.append(each)
    return found
