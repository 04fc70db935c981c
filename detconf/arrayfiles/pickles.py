"""A pickle read as data: a machine of our own that knows the opcodes of plain data and of arrays.

Python's own unpickler calls what a pickle names. This one has names as values, and a table of what may be done with
them; it imports nothing, sets no attribute, and keeps large strings where they lie.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from detconf.arrayfiles.nodes import Finish, Name, Node, Ordered, checked_key
from detconf.errors import DetconfError

_CONSTANTS = {
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "SHORT_BINSTRING", "BINSTRING",
}  # fmt: skip
_VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LARGE = 1 << 12
_MARK = object()


@dataclass(slots=True)
class Reader:
    """Bytes as `pickletools` reads them; a long string is given as a view of them, not copied."""

    data: memoryview
    at: int = 0

    def read(self, size: int) -> Any:
        part = self.data[self.at : self.at + size]
        self.at += len(part)
        return part if size > _LARGE else bytes(part)

    def readline(self) -> bytes:
        window = bytes(self.data[self.at : self.at + _LARGE])
        line = window[: window.find(b"\n") + 1]
        self.at += len(line)
        return line

    def tell(self) -> int:
        return self.at


def read_pickle(
    source: str, stream: Any, calls: Mapping[str, Callable[..., Any]], words: frozenset[str], stored: Callable[[Any], Any] | None = None
) -> Any:
    """What a pickle holds, with `finish` of every node in its place.

    Args:
        source: for messages.
        stream: a `Reader` or a binary file.
        calls: what a pickle may call, by "module.name".
        words: what else it may name.
        stored: what stands for a persistent id.

    Raises:
        DetconfError: the pickle names something else, uses another opcode, is damaged, or stands for too much.
    """
    machine = _Machine(source, calls, words, stored)
    try:
        result, _ = Finish(source).value(machine.run(stream), 0)
    except DetconfError:
        raise
    except Exception as error:
        msg = (
            f"{source} is damaged: its pickle cannot be read: {type(error).__name__}: {error}"[:400]
            + ". Use another copy, or save it again."
        )
        raise DetconfError(msg) from error
    return result


class _Machine:
    """The stack, the memo, and what each opcode does to them."""

    def __init__(
        self, source: str, calls: Mapping[str, Callable[..., Any]], words: frozenset[str], stored: Callable[[Any], Any] | None
    ) -> None:
        self.source, self.calls, self.words, self.stored = source, calls, words, stored
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, stream: BinaryIO) -> Any:
        for opcode, argument, _ in pickletools.genops(stream):
            name = opcode.name
            if name in _CONSTANTS:
                self.stack.append(_VALUES.get(name, argument))
            elif name == "STOP":
                break
            else:
                self._do(name, argument)
        (result,) = self.stack
        return result

    def _do(self, name: str, argument: Any) -> None:
        action = getattr(self, f"_{name.lower()}", None)
        if action is None:
            msg = f"uses the opcode {name}"
            raise self._refused(msg)
        action(argument)

    def _refused(self, what: str) -> DetconfError:
        return DetconfError(
            f"{self.source}: its pickle {what}, which is not read: nothing in a file is run. "
            "Accepted: dicts, lists, numbers, text, and arrays of NumPy, torch and paddle; save a state_dict, or safetensors."
        )

    def _popped(self) -> list[Any]:
        """What lies above the last mark."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError("a mark is missing")
        above = self.stack[place + 1 :]
        del self.stack[place:]
        return above

    def _proto(self, _: Any) -> None: ...

    _frame = _proto

    def _mark(self, _: Any) -> None:
        self.stack.append(_MARK)

    def _pop(self, _: Any) -> None:
        self.stack.pop()

    def _binput(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    _long_binput = _binput

    def _memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _binget(self, place: int) -> None:
        self.stack.append(self.memo[place])

    _long_binget = _binget

    def _empty_dict(self, _: Any) -> None:
        self.stack.append({})

    def _empty_list(self, _: Any) -> None:
        self.stack.append([])

    def _empty_tuple(self, _: Any) -> None:
        self.stack.append(())

    def _tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._popped()))

    def _tuple1(self, _: Any) -> None:
        self._tuple_of(1)

    def _tuple2(self, _: Any) -> None:
        self._tuple_of(2)

    def _tuple3(self, _: Any) -> None:
        self._tuple_of(3)

    def _tuple_of(self, size: int) -> None:
        if len(self.stack) < size:
            raise ValueError("the stack is empty")
        self.stack[-size:] = [tuple(self.stack[-size:])]

    def _append(self, _: Any) -> None:
        value = self.stack.pop()
        self._list().append(value)

    def _appends(self, _: Any) -> None:
        values = self._popped()
        self._list().extend(values)

    def _list(self) -> list[Any]:
        if type(self.stack[-1]) is not list:
            raise TypeError("something is appended to what is no list")
        found: list[Any] = self.stack[-1]
        return found

    def _setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def _setitems(self, _: Any) -> None:
        self._set(self._popped())

    def _set(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise TypeError("something is set in what is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][checked_key(key)] = value

    def _global(self, argument: str) -> None:
        self._name(*argument.split(" ", 1))

    def _stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self._name(module, name)

    def _name(self, module: Any, name: Any) -> None:
        text = f"{module}.{name}"
        if text not in self.calls and text not in self.words:
            msg = f"names {text[:80]!r}"
            raise self._refused(msg)
        self.stack.append(Name(text))

    def _reduce(self, _: Any) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        if not (isinstance(name, Name) and isinstance(arguments, tuple)):
            raise self._refused("calls what is no name")
        if name.text not in self.calls:
            msg = f"calls {name.text!r}"
            raise self._refused(msg)
        self.stack.append(self.calls[name.text](*arguments))

    def _build(self, _: Any) -> None:
        state, value = self.stack.pop(), self.stack[-1]
        if isinstance(value, Node):
            value.build(state)
        elif not isinstance(value, Ordered):
            msg = f"gives a state to a {type(value).__name__}"
            raise self._refused(msg)

    def _binpersid(self, _: Any) -> None:
        if self.stored is None:
            raise self._refused("refers to data outside")
        self.stack.append(self.stored(self.stack.pop()))
