"""A call of an operation of Paddle, as it was before the operation ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from detconf.frameworks.paddle import kinds
from detconf.frameworks.paddle.contents import collect
from detconf.frameworks.paddle.operations import Operation
from detconf.frameworks.paddle.twins import Record, readable
from detconf.shadows.study import Known, Read


class Call:
    """One call of an operation, as it was before the real one ran.

    Attributes:
        name: of C++.
        plain: the function.
        args, kwargs: of the program.
        tensors: in them, each once.
        records: of those that have one, by id.
        reads: what is read, by id of the tensor; other objects that are followed, by their own.
        state: of the generator, of a random one.
        copies: real elements by id as they were: of a local run, and of integers that the operation may write.
        written: ids of the tensors that the operation wrote.
        empty: ids of tensors that were declared, but not filled.
        error: why it could not be followed.
    """

    def __init__(self, operation: Operation, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.operation, self.plain, self.args, self.kwargs = operation, plain, args, kwargs
        self.name = operation.name.removeprefix("paddle.")
        found: list[Any] = []
        collect((args, tuple(kwargs.values())), found)
        self.tensors = list({id(each): each for each in found}.values())
        self.records: dict[int, Record] = {}
        self.reads: dict[int, Read] = {}
        self.known: dict[int, Known] = {}
        self.state: Any = None
        self.copies: dict[int, Any] = {}
        self.written: frozenset[int] = frozenset()
        self.empty: set[int] = set()
        self.error = ""

    @property
    def copying(self) -> bool:
        """It computes nothing."""
        return self.name in kinds.COPIES

    def undeclared(self) -> list[Any]:
        """Tensors that it writes without saying so."""
        return [self.args[position] for position in kinds.UNDECLARED.get(self.name, ()) if position < len(self.args)]

    def argument(self, result: Any) -> Any:
        """The argument that an operation in place gave back: some give another object for it."""
        if any(result is each for each in self.tensors):
            return result
        return next((each for each in self.tensors if readable(each) and result._is_shared_buffer_with(each)), result)

    def options(self) -> dict[str | int, Any]:
        """Arguments that are no tensors, by name, or by position where names are not known."""
        by_place = {kinds.option_key(self.name, at): _spelt(each) for at, each in enumerate(self.args) if not _tensors(each)}
        return by_place | {name: _spelt(each) for name, each in self.kwargs.items() if not _tensors(each)}


def _tensors(value: Any) -> bool:
    found: list[Any] = []
    collect(value, found)
    return bool(found) or isinstance(value, np.ndarray)


def _spelt(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_spelt(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str, slice)) else str(value)
