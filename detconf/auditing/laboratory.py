"""Runs the sides of an audit: plainly, and under studies; always from the same generator states."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

from detconf.access import Rng
from detconf.arrays import Array
from detconf.errors import TargetError
from detconf.frameworks import catalogue, frameworks
from detconf.lookup import first_line, is_imported
from detconf.publishing import handing
from detconf.results import leaves
from detconf.shadows.study import Known, Study
from detconf.targets import call

NOISES = 3
"""Seeds of noise: a single output may vary by ten times between two."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two.

    Attributes:
        label: in words.
        function: without arguments; None where there are arrays only.
        arrays: name -> array, where there is no function.
    """

    label: str
    function: Callable[[], Any] | None = None
    arrays: Mapping[str, Array] | None = None


@dataclass(slots=True)
class Observation:
    """What one instrumented run gave.

    Attributes:
        arrays: name -> the real array, as this run made it.
        known: name -> its shadow; no entry where there is none.
        study: what was computed.
    """

    arrays: dict[str, Array]
    known: dict[str, Known]
    study: Study


@dataclass(slots=True)
class Laboratory:
    """Runs sides.

    Attributes:
        entry: what every generator holds when a side is entered.
        problems: why a side could not be studied, by label.
    """

    entry: dict[str, Any] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def plain(self, side: Side, *, put_back: bool = True, inside: AbstractContextManager[Any] | None = None) -> dict[str, Array]:
        """The side's results, uninstrumented.

        Args:
            put_back: first put every generator back to where it was when this laboratory first ran anything.
            inside: run in this context.

        Raises:
            TargetError: the side raises, or gives something that cannot be compared.
        """
        if side.function is None:
            return dict(side.arrays or {})
        found: dict[str, Array] = {}
        self.enter(put_back=put_back)
        with inside or nullcontext(), _quiet():
            _run(side, partial(_keep, found))
        return found

    def study(self, side: Side, **options: Any) -> Observation | None:
        """The side under a study with `options`; None where the instrumented run fails, which is noted."""
        if side.function is None:
            return None
        study = Study(**options)
        arrays: dict[str, Array] = {}
        known: dict[str, Known] = {}

        def take(name: str, value: Any) -> None:
            for path, shadow in _keep(arrays, name, value, study.known).items():
                if shadow is not None:
                    known[path] = Known(_copy(shadow.shadow), shadow.value)

        self.enter()
        try:
            with _followed(study, side.function), _quiet():
                _run(side, take)
        except Exception as error:  # noqa: BLE001  # ours, of an engine, or the program's under it: the audit goes on without this run
            if not options:  # a repair may well break the program: then it was none
                self.problems[side.label] = f"it could not be followed: {first_line(error)}"
            return None
        return Observation(arrays, known, study)

    def enter(self, *, put_back: bool = True) -> None:
        """Save the generators that are new here; put the others back."""
        for name, knob in catalogue().items():
            if not isinstance(knob.access, Rng) or (knob.access.module and not is_imported(knob.access.module)):
                continue
            if name not in self.entry:
                self.entry[name] = knob.access.save()
            elif put_back:
                knob.access.load(self.entry[name])


@dataclass(slots=True)
class Amended(Laboratory):
    """A laboratory in which the shadows of one side are always amended.

    Attributes:
        inner: what runs the sides.
        side: which one.
        amendments: of its values, besides those that an experiment asks for.
    """

    inner: Laboratory = field(default_factory=Laboratory)
    side: Side = field(default_factory=lambda: Side(""))
    amendments: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)

    def plain(self, side: Side, *, put_back: bool = True, inside: AbstractContextManager[Any] | None = None) -> dict[str, Array]:
        return self.inner.plain(side, put_back=put_back, inside=inside)

    def study(self, side: Side, **options: Any) -> Observation | None:
        if side is self.side:
            options["amendments"] = {**self.amendments, **options.get("amendments", {})}
        return self.inner.study(side, **options)

    def enter(self, *, put_back: bool = True) -> None:
        self.inner.enter(put_back=put_back)


@contextmanager
def _followed(study: Study, function: Any) -> Iterator[None]:
    """All engines running. NumPy's comes first: the others hand their arrays to it."""
    with ExitStack() as stack:
        for framework in frameworks():
            if framework.shadow and is_imported(framework.module):
                engine = import_module(framework.shadow).start(study)
                study.engines.append(engine)
                stack.callback(engine.end)
        for engine in study.engines:
            engine.adopt((function,))
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings were shown by the first run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _run(side: Side, take: Callable[[str, Any], Any]) -> None:
    assert side.function is not None  # noqa: S101  # for the type checker
    try:
        with handing(take):
            call(side.function)
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"{side.label} raised {first_line(error)}"
        raise TargetError(msg) from error


def _keep(found: dict[str, Array], name: str, value: Any, look: Callable[[Any], Any] = lambda _: None) -> dict[str, Any]:
    """Add the arrays of a result, counting on where a name comes again. Returns what `look` says of their objects."""
    seen = {}
    for path, (array, about) in leaves(value, name, look).items():
        free = next(each for each in _names(path) if each not in found)
        found[free] = array.owned()
        seen[free] = about
    return seen


def _names(path: str) -> Iterator[str]:
    yield path
    for number in count(2):
        yield f"{path}#{number}"


def _copy(array: Any) -> Any:
    import numpy as np  # loaded with the engines

    return np.array(array)
