"""One instrumented run: every operation with what it read and wrote, each value beside its shadow.

A *value* is one array at one moment: what an operation wrote, or a *leaf* that came from outside (a constant, an input,
something read from a file). Values and operations are numbered in the order in which they arise, so that two runs of
the same deterministic program number them alike; that is what amendments and alterations go by.

    exact run     shadows in float64 (long double for NumPy's float64), computed from shadows
    noise run     the same, each input of a computing operation times (1 + 0.6 u N) and each output times (1 + 0.4 u N),
                  N standard normal, u the unit roundoff of the *real* dtype: what rounding alone does to this program
    local run     shadows computed from the *real* inputs of each operation: its own error, not what it inherited
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

NO_MORE = "no more precision"
"""In the words of a loss: the shadow is followed, in float64 like the real value itself."""


@dataclass(slots=True, eq=False)
class Value:
    """One array at one moment.

    Attributes:
        index: its number.
        shape, dtype: of the real array, the dtype as `arrays.Array` spells it.
        shadow: a copy that nobody changes: float64 or long double, complex likewise; integers and booleans as they are.
            None where it was lost or not kept.
        real: a copy of the real array; None unless the study keeps them.
        maker: number of the operation that wrote it; -1 for a leaf.
        origin: of a leaf: where it came from, in words ("numpy.load", "torch.from_numpy").
        lost: why there is no faithful shadow; empty where there is.
    """

    index: int
    shape: tuple[int, ...]
    dtype: str
    shadow: Any = None
    real: Any = None
    maker: int = -1
    origin: str = ""
    lost: str = ""


@dataclass(slots=True, eq=False)
class Read:
    """What an operation read: a value, whole (`view` None) or through a view whose elements `view` holds in order."""

    value: Value
    view: Any = None

    @property
    def shadow(self) -> Any:
        """What was read, as it was read."""
        return self.value.shadow if self.view is None else self.view


@dataclass(slots=True, eq=False)
class Operation:
    """One operation.

    Attributes:
        index: its number.
        name: "aten.mm", "paddle.matmul", "numpy.add".
        reads: its inputs.
        writes: the values that it made, in-place ones included.
        random: it drew from a generator.
        state: of a random one, the generator's state before, opaque to all but its engine; None if not known.
        options: its other arguments by name, or by position where names are not known.
        source: "file.py:12", the line of user code; empty where it is not known.
        step: optimizer steps done before.
        local: of a local run: rms(real - float64 on the real inputs) / rms(what noise of u does to that); None if exact.
        decided: a discrete choice was taken from the real side (comparison, argmax, topk, relu mask).
        adds: what it adds up: "products" (a contraction: matrix products, convolutions), "terms" (a reduction: sums, means,
            norms), or nothing.
    """

    index: int
    name: str
    reads: list[Read]
    writes: list[Value]
    random: bool = False
    state: Any = None
    options: Mapping[str | int, Any] = field(default_factory=dict)
    source: str = ""
    step: int = 0
    local: float | None = None
    decided: bool = False
    adds: str = ""


@dataclass(slots=True)
class Known:
    """The shadow of an object that a program holds.

    Attributes:
        shadow: its elements, in the object's own logical order and shape.
        value: the value that it is, or is a view of.
    """

    shadow: Any
    value: Value


class Engine(Protocol):
    """What the `shadow` module of a framework gives for a study."""

    def known(self, thing: Any) -> Known | None:
        """The shadow of one of its own arrays, as it is now; None for anything else and where there is none."""
        ...

    def wrap(self, array: Any, known: Known) -> Any:
        """NumPy's engine: `array` so that what is computed with it is followed. Others: `array`."""
        ...

    def adopt(self, roots: Sequence[Any]) -> None:
        """Follow arrays that exist already: what the functions `roots` see by their globals, closures and defaults."""
        ...

    def end(self) -> None:
        """Put everything back."""
        ...


@dataclass(slots=True, kw_only=True)
class Study:
    """See the module. An engine reports here; the laboratory says what kind of run it is.

    Attributes:
        noise: seed of a noise run; None for none.
        local: a local run.
        draws: "plain"; "frozen": every random operation starts from one and the same state of its generator, so that it
            draws the same numbers whenever it is called; "replay": it starts from the state that `states` gives for it.
        states: number of the random operation among the random ones -> state.
        amendments: number of a value -> what makes another shadow of its shadow (same shape). Only the shadow changes,
            never the real array. Both operations' results and leaves can be amended.
        alterations: number of an operation -> {option: other value}, for its shadow only.
        rounding: a format of `formats.ROUNDINGS`: the inputs of contractions (products, convolutions) are rounded to it,
            in the shadow only; empty for none.
        adding: makes another shadow of what an operation gave that adds up (`Operation.adds`), of the operation, which has no
            results yet, and that shadow; None for none.
        casts: casts between float types round the shadow too ("kept"), or pass it as it is ("free").
        keep_real: keep copies of the real arrays.
        sources: note source lines.
        values, operations: what happened.
        losses: what could not be followed, in words, with the value's number.
        engines: of the frameworks at hand; NumPy's first.
        step: optimizer steps done.
        drawn: random operations so far.
        escaped: plain floats that left an array by a door where they cannot be followed, `float(x)`: what the program decides by
            them is not seen.
    """

    noise: int | None = None
    local: bool = False
    draws: str = "plain"
    states: Mapping[int, Any] = field(default_factory=dict)
    amendments: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)
    alterations: Mapping[int, Mapping[str | int, Any]] = field(default_factory=dict)
    rounding: str = ""
    adding: Callable[[Operation, Any], Any] | None = None
    casts: str = "free"
    keep_real: bool = False
    sources: bool = True
    values: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)
    step: int = 0
    drawn: int = 0
    escaped: int = 0

    def leaf(  # noqa: PLR0913  # the parts of a value
        self, shadow: Any, dtype: str, origin: str, *, real: Any = None, lost: str = "", frozen: bool = False
    ) -> tuple[Value, Any]:
        """A value from outside. Returns it, and the shadow to go on with (amended where that was asked for).

        Args:
            shadow: NumPy array; the real elements in float64, or exactly the Python numbers that they were made of.
            dtype: of the real array.
            origin: in words.
            real: the real array.
            lost: why the shadow is no more than the real array, where more was expected.
            frozen: nobody will ever write to `shadow`: it is not copied.
        """
        return self._value(shadow, dtype, -1, origin, real, lost, frozen=frozen)

    def operation(  # noqa: PLR0913  # the parts of an operation
        self,
        name: str,
        reads: Sequence[Read],
        writes: Sequence[tuple[Any, str, Any]],
        *,
        random: bool = False,
        state: Any = None,
        options: Mapping[str | int, Any] | None = None,
        source: str = "",
        local: float | None = None,
        decided: bool = False,
        adds: str = "",
        lost: str = "",
        frozen: bool = False,
    ) -> list[tuple[Value, Any]]:
        """An operation ran. Returns per written array its value, and the shadow to go on with.

        Args:
            writes: per array (shadow, real dtype, real array or None). A shadow is a NumPy array; it is copied here.
            lost: why the shadows are no more than the real results, where that is so.
            frozen: nobody will ever write to the shadows: they are not copied.
        """
        index = len(self.operations)
        made = Operation(index, name, list(reads), [], random, state, options or {}, source, self.step, local, decided, adds)
        if self.adding is not None and adds and len(writes) == 1:
            writes = [(self.adding(made, writes[0][0]), *writes[0][1:])]
        values = [self._value(shadow, dtype, index, "", real, lost, frozen=frozen) for shadow, dtype, real in writes]
        made.writes = [value for value, _ in values]
        self.operations.append(made)
        return values

    def choose(self, name: str, operands: Sequence[Any], answer: Any, source: str = "") -> None:
        """The program compared two numbers, of which one is followed at least, and goes on by the answer."""
        reads = [(place, known) for place, each in enumerate(operands) if (known := self.known(each)) is not None]
        plain: dict[str | int, Any] = {place: each for place, each in enumerate(operands) if place not in dict(reads)}
        given = [Read(each.value) if not each.value.shape else Read(each.value, np.asarray(each.shadow)) for _, each in reads]
        self.operation(name, given, [(np.asarray(bool(answer)), "bool", None)], options=plain, source=source, decided=True)

    def altered(self) -> Mapping[str | int, Any]:
        """Other options for the shadow of the operation that comes next."""
        return self.alterations.get(len(self.operations), {})

    def drawing(self, fixed: Any) -> Any:
        """Before a random operation: the state that its generator shall be set to, or None to leave it.

        Args:
            fixed: a state of its kind that is always the same, for frozen draws.
        """
        count = self.drawn
        self.drawn += 1
        if self.draws == "frozen":
            return fixed
        return self.states.get(count) if self.draws == "replay" else None

    def known(self, thing: Any) -> Known | None:
        """The shadow of any framework's array or number; None where there is none."""
        return next(filter(None, (engine.known(thing) for engine in self.engines)), None)

    def wrap(self, array: Any, known: Known) -> Any:
        """A NumPy array that another framework gave out, to be followed from here on."""
        for engine in self.engines:
            array = engine.wrap(array, known)
        return array

    def lose(self, what: str) -> None:
        """Something could not be followed."""
        if what not in self.losses:
            self.losses.append(what)

    def _value(  # noqa: PLR0913, PLR0917
        self, shadow: Any, dtype: str, maker: int, origin: str, real: Any, lost: str, *, frozen: bool
    ) -> tuple[Value, Any]:
        index = len(self.values)
        amend = self.amendments.get(index)
        if amend is not None:
            shadow = amend(np.array(shadow))
        # From the real array where there is no shadow at all.
        shape = tuple(np.shape(real if shadow is None else shadow))
        kept = None if shadow is None else shadow.view() if frozen and amend is None else np.array(shadow)
        if kept is not None:
            kept.flags.writeable = False
        value = Value(index, shape, dtype, kept, np.array(real) if self.keep_real and real is not None else None, maker, origin, lost)
        self.values.append(value)
        if lost:
            self.lose(lost)
        return value, shadow
