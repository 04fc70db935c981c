"""A Python float that came out of a followed array, and what Python computes with it."""

from __future__ import annotations

import functools
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from detconf.shadows.study import Known, Read, Study

MATH = ("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan", "asin", "acos", "erf",
        "erfc", "pow", "fabs", "hypot", "degrees", "radians")  # fmt: skip
"""Functions of `math` that are followed while `patches` are in place."""
_REMEMBERED = 1 << 14
_FOLLOWED = "_detconf_followed"


class Number(float):
    """A float with a shadow. Its own value is what the program would have; arithmetic gives the same floats as without.

    Args:
        value: the real number.
        known: its shadow, 0-d, and the value that it is.
        numbers: of the study.
    """

    __slots__ = ("known", "numbers")
    known: Known
    numbers: Numbers

    def __new__(cls, value: float, known: Known, numbers: Numbers) -> Number:  # noqa: PYI034  # `Self` is younger than Python 3.10
        number = super().__new__(cls, value)
        number.known, number.numbers = known, numbers
        return number

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return float, (float(self),)

    def __reduce__(self) -> Any:
        return float, (float(self),)

    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, _memo: Any) -> Number:
        return self

    def __neg__(self) -> Any:
        return self.numbers.compute("neg", operator.neg, self)

    def __abs__(self) -> Any:
        return self.numbers.compute("abs", operator.abs, self)

    def __pos__(self) -> float:
        return self


def _forward(name: str, function: Callable[..., Any]) -> Callable[[Number, Any], Any]:
    def method(self: Number, other: Any) -> Any:
        # NumPy's scalars are floats too, and theirs is the result.
        return self.numbers.compute(name, function, self, other) if type(other) in (Number, float, int, bool) else NotImplemented

    return method


def _reflected(name: str, function: Callable[..., Any]) -> Callable[[Number, Any], Any]:
    def method(self: Number, other: Any) -> Any:
        return self.numbers.compute(name, function, other, self) if type(other) in (Number, float, int, bool) else NotImplemented

    return method


for _name in ("add", "sub", "mul", "truediv", "pow", "mod"):
    _function = getattr(operator, _name)
    setattr(Number, f"__{_name}__", _forward(_name, _function))
    setattr(Number, f"__r{_name}__", _reflected(_name, _function))


def _compared(name: str, function: Callable[..., Any]) -> Callable[[Number, Any], Any]:
    def method(self: Number, other: Any) -> Any:
        answer = function(float(self), float(other) if type(other) is Number else other)
        if self.numbers.active and type(other) in (Number, float, int):
            self.numbers.study.choose(f"python.{name}", (self, other), answer)
        return answer

    return method


for _name in ("lt", "le", "gt", "ge"):  # equality is asked by every dictionary
    setattr(Number, f"__{_name}__", _compared(_name, getattr(operator, _name)))


class Numbers:
    """The numbers of one study.

    A framework takes the float out of a number before its operation can be seen. So it is known again by its value: among
    those that the running call was given, and outside of any call (a backward pass) among those that some call was given.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.active = True
        self._calls = threading.local()
        self._passed: dict[float, Known] = {}
        self._escaped: dict[float, Known] = {}

    def number(self, value: float, known: Known) -> float:
        """`value`, followed."""
        if not self.active:
            return value
        if self._given:
            self._given[-1][value] = known
        return Number(value, known, self)

    def escape(self, value: float, known: Known, *, seen: bool = False) -> None:
        """A plain float left an array by a door where no number can be given out, such as `float(x)`; or it may (not `seen`)."""
        self.study.escaped += seen
        _remember(self._escaped, value, known)

    @contextmanager
    def passing(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
        """A call of the framework's with these arguments is running."""
        given: dict[float, Known | None] = {}
        for each in (*args, *kwargs.values()):
            for item in each if type(each) in (list, tuple) else (each,):
                known = item.known if type(item) is Number else self.study.known(item) if isinstance(item, np.floating) else None
                if type(item) is float:
                    given.setdefault(item, None)
                if known is not None:
                    given[float(item)] = known
                    _remember(self._passed, float(item), known)
        self._given.append(given)
        try:
            yield
        finally:
            self._given.pop()

    @property
    def _given(self) -> list[dict[float, Known | None]]:
        if not hasattr(self._calls, "given"):
            self._calls.given = []
        found: list[dict[float, Known | None]] = self._calls.given
        return found

    def literals(self) -> list[tuple[float, Known | None]]:
        """The floats that the running call was given, constants included, with their shadows."""
        return [each for given in self._given for each in given.items()]

    def known(self, thing: Any, *, later: bool = False) -> Known | None:
        """The shadow of a float; None for one that is no result.

        Args:
            thing: anything.
            later: the framework kept it from a call that is over, for a backward pass.
        """
        if isinstance(thing, Number):
            return thing.known
        if type(thing) is not float:
            return None
        for given in (self._passed,) if later else self._given or (self._passed,):
            if given.get(thing) is not None:
                return given[thing]
        # A float32 result has 24 bits: no constant of a program equals it by chance, unless both are as simple as 1.0.
        return None if thing.is_integer() else self._escaped.get(thing)

    def compute(self, name: str, function: Callable[..., Any], *operands: Any) -> Any:
        """What Python computes with floats of which one is a number at least."""
        real = function(*map(_plain, operands))
        if not self.active or type(real) is not float:
            return real
        from detconf.shadows.study import Known

        local = self.study.local
        lost = ""
        try:
            altered = self.study.altered()
            given = [altered.get(place, each) for place, each in enumerate(operands)]
            shadow = float(function(*[_plain(each) if local else _shadow(each) for each in given]))
        except (ArithmeticError, ValueError, TypeError):
            shadow, lost = real, f"python.{name} of the shadow has no result"
        reads = [read(each.known) for each in operands if isinstance(each, Number)]
        options: dict[str | int, Any] = {place: each for place, each in enumerate(operands) if not isinstance(each, Number)}
        written = [(np.float64(shadow), "float64", np.float64(real) if self.study.keep_real else None)]
        [(value, after)] = self.study.operation(f"python.{name}", reads, written, options=options, lost=lost)
        return self.number(real, Known(np.float64(after), value))

    def patches(self) -> Iterator[tuple[Any, str, Any]]:
        """(module, name, what to put there) so that functions of `math` follow numbers."""
        for name in MATH:
            if hasattr(math, name) and not hasattr(getattr(math, name), _FOLLOWED):  # another framework's engine may have been here
                yield math, name, self._followed(name, getattr(math, name))

    def _followed(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def function(*args: Any) -> Any:
            if any(type(each) is Number for each in args):
                return self.compute(name, plain, *args)
            return plain(*args)

        setattr(function, _FOLLOWED, True)
        return function


def _remember(table: dict[float, Known], value: float, known: Known) -> None:
    table.pop(value, None)
    if len(table) >= _REMEMBERED:
        table.pop(next(iter(table)))
    table[value] = known


def read(known: Known) -> Read:
    """A number as it is read: a value that is one, or an element of one."""
    from detconf.shadows.study import Read

    return Read(known.value) if not known.value.shape else Read(known.value, np.asarray(known.shadow))


def _plain(operand: Any) -> Any:
    return float(operand) if isinstance(operand, Number) else operand


def _shadow(operand: Any) -> Any:
    return float(operand.known.shadow) if isinstance(operand, Number) else operand
