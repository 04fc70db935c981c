"""The question of an audit as it stands: both sides, what they gave, what is known so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

from detconf.arrays import Array
from detconf.auditing.laboratory import NOISES, Amended, Laboratory, Observation, Side
from detconf.auditing.meaning import Split, agrees, close, numbers, part, split
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.frameworks import frameworks
from detconf.frameworks.base import Captured
from detconf.lookup import is_imported
from detconf.shadows.pool import Pool
from detconf.shadows.regions import ancestors, coarsest, contents
from detconf.shadows.study import NO_MORE, Known, Operation
from detconf.values import Cause

Results = Mapping[str, Array]
abroad: list[Any] = []
"""Stand for the experiments of frameworks in other processes (`conditions.Abroad`), while there are such sides."""


@dataclass(slots=True)
class Finding:
    """A cause, and how it was shown.

    Attributes:
        summary: one sentence.
        output: name of the result that it was shown on; empty for all.
        operation: where the sides part.
    """

    cause: Cause
    summary: str
    proof: Proof | None = None
    evidence: list[Evidence] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    output: str = ""
    operation: Operation | None = None


@dataclass
class Question:
    """See the module.

    Attributes:
        laboratory: runs the sides.
        a, b: reference and candidate.
        real_a, real_b: what they gave, uninstrumented, each from the same generator states.
        captured: what was seen of graph capture and restored states, per side.
        tried: what showed nothing.
        unexamined: what could not be looked at.
    """

    laboratory: Laboratory
    a: Side
    b: Side
    real_a: Results
    real_b: Results
    captured: tuple[Captured, Captured]
    tried: list[str] = field(default_factory=list)
    unexamined: list[str] = field(default_factory=list)

    @cached_property
    def differing(self) -> list[str]:
        """Results of both sides whose bytes differ."""
        return [name for name, array in self.real_a.items() if name in self.real_b and array != self.real_b[name]]

    @cached_property
    def exact_a(self) -> Observation | None:
        """The reference's exact run."""
        return self.laboratory.study(self.a) if self.a.function else None

    @cached_property
    def exact_b(self) -> Observation | None:
        """The candidate's exact run."""
        return self.laboratory.study(self.b) if self.b.function else None

    @cached_property
    def noisy_a(self) -> list[Observation]:
        """The reference's noise runs."""
        return self._noisy(self.a) if self.exact_a else []

    @cached_property
    def noisy_b(self) -> list[Observation]:
        """The candidate's noise runs."""
        return self._noisy(self.b) if self.exact_b else []

    def _noisy(self, side: Side) -> list[Observation]:
        return [found for seed in range(NOISES) if (found := self.laboratory.study(side, noise=seed)) is not None]

    @cached_property
    def splits(self) -> dict[str, Split]:
        """Differing results with numbers and one shape, taken apart."""
        found = {}
        ours, theirs = (self.exact_a, self.noisy_a), (self.exact_b, self.noisy_b)
        if self.a.function is None:  # arrays alone: could they be what the other side's program means?
            ours = theirs
        if self.b.function is None:
            theirs = ours
        for name in self.differing:
            a, b = _part(self.real_a[name], name, *ours, self._find_b), _part(self.real_b[name], name, *theirs, self._find_a)
            both = split(name, a, b)
            if both:
                found[name] = both
        return found

    # A pool sorts every value of a run: not before it is needed.
    def _find_a(self, shadow: Any) -> Any:
        return self._pool_a.find(shadow)

    def _find_b(self, shadow: Any) -> Any:
        return self._pool_b.find(shadow)

    @cached_property
    def _pool_a(self) -> Pool:
        return pool(self.exact_a)

    @cached_property
    def _pool_b(self) -> Pool:
        return pool(self.exact_b)

    def exchanged(self) -> Question:
        """The same with the sides in each other's place, what is known of them included."""
        a, b = self.captured
        other = Question(self.laboratory, self.b, self.a, self.real_b, self.real_a, (b, a), self.tried, self.unexamined)
        for ours, theirs in (("exact_a", "exact_b"), ("noisy_a", "noisy_b"), ("exact_b", "exact_a"), ("noisy_b", "noisy_a")):
            if ours in self.__dict__:
                other.__dict__[theirs] = self.__dict__[ours]
        return other

    def amended(self, amendments: Mapping[int, Callable[[Any], Any]]) -> Question:
        """The same with the candidate's shadows amended; what they are then is not known yet."""
        laboratory = Amended(self.laboratory.entry, self.laboratory.problems, self.laboratory, self.b, amendments)
        other = Question(laboratory, self.a, self.b, self.real_a, self.real_b, self.captured, self.tried, self.unexamined)
        other.__dict__.update({name: self.__dict__[name] for name in ("exact_a", "noisy_a") if name in self.__dict__})
        return other

    @property
    def complete(self) -> list[Split]:
        """Those of which both shadows are there."""
        return [each for each in self.splits.values() if each.complete]

    def same_results(self, a: Results, b: Results, names: Iterable[str] = ()) -> float | None:
        """Do two sets of results agree up to rounding? The share of elements that are equal bit for bit; None if not."""
        equal = total = 0
        for name in names or self.differing:
            if name not in a or name not in b:
                return None
            x, y = numbers(a[name]), numbers(b[name])
            if a[name] != b[name] and not self._within(name, x, y):
                return None
            total += 1 if x is None else x.size
            equal += int((x == y).sum()) if x is not None and y is not None and x.shape == y.shape else int(a[name] == b[name])
        return equal / total if total else None

    def _within(self, name: str, x: Any, y: Any) -> bool:
        if x is None or y is None or x.size != y.size:
            return False
        known = self.splits.get(name)
        return known is not None and known.complete and close(x, y.reshape(x.shape), known.noise)

    def same_shadows(self, a: Mapping[str, Known], b: Mapping[str, Known], names: Iterable[str] = ()) -> bool:
        """Do the shadows of results agree, to what is not told from rounding?"""
        for name in names or self.differing:
            if name not in a or name not in b:
                return False
            known = self.splits.get(name)
            noise = known.noise if known is not None and known.complete else None
            if not agrees(a[name].shadow, b[name].shadow, noise=noise):
                return False
        return True


@contextmanager
def everywhere(what: str) -> Iterator[None]:
    """The context `what` of every imported framework's experiments on capture."""
    with ExitStack() as stack:
        for module in experiments():
            stack.enter_context(getattr(module, what)())
        yield


def experiments() -> list[Any]:
    """The modules with experiments on graph capture of the frameworks that are imported."""
    return [*(import_module(each.uncaptured) for each in frameworks() if each.uncaptured and is_imported(each.module)), *abroad]


@contextmanager
def watching(seen: Captured) -> Iterator[None]:
    """Note what is captured and restored."""
    with ExitStack() as stack:
        for module in experiments():
            stack.enter_context(module.watch(seen))
        yield


def pool(observation: Observation | None, tolerance: float = 1e-9) -> Pool:
    """The contents of a run, to be searched."""
    rows = contents(observation.study, observation.known.values()) if observation else ()
    return Pool(((value, array) for value, array in rows), tolerance)


def _part(array: Array, name: str, exact: Observation | None, noisy: list[Observation], other: Callable[[Any], Any]) -> Any:
    known = exact.known.get(name) if exact else None
    if exact is None or known is None or _is_lost(known):
        return part(array, None, [], 0.0)
    if not computed(exact, known) and not other(known.value.shadow):  # from outside, and nobody here knows how it was made
        return part(array, None, [], 0.0)
    shadows = [each.known[name].shadow if name in each.known else None for each in noisy]
    return part(array, known.shadow, shadows, coarsest(exact.study, known.value))


def _is_lost(known: Known) -> bool:
    """A value that could be followed, but in no more than its own precision, still shows what noise does to it."""
    return bool(known.value.lost) and NO_MORE not in known.value.lost


def computed(observation: Observation, known: Known) -> bool:
    """Was it computed here, rather than taken from outside as it is?"""
    return bool(ancestors(observation.study, [known.value])[1])


def put(shadow: Any) -> Callable[[Any], Any]:
    """An amendment: this shadow in place of any."""
    return lambda _: shadow


Attempt = Callable[[Question], Finding | None]
