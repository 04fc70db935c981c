"""The graph modes of PaddlePaddle as a ladder: dynamic, to_static (AST, SOT), static Program, primitives, CINN.

Rungs can end the process (SIGSEGV is real), so each runs in one of its own, and may change flags there. From the entry
state each runs twice on each of the inputs: a value that capture froze shows in the second call. All of that is repeated,
more often where the program draws random numbers: the executor may order those anew each time. Gradients are those of a
sum of all outputs with fixed weights: of the plain sum some are zero by construction (softmax, normalization).
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import paddle

from detconf.errors import TargetError
from detconf.frameworks.entry import Entry, held
from detconf.frameworks.paddle import lesions
from detconf.frameworks.paddle.contents import generator_state
from detconf.frameworks.paddle.forms import FORMS, Form, Given, backs, given, leaves
from detconf.frameworks.paddle.operations import OPTIMIZERS
from detconf.frameworks.paddle.tensors import to_array
from detconf.frameworks.rungs import Missing, Outcome, Refused, Settings, Status, Survey, Trial
from detconf.lookup import first_line

RUNGS = ("dynamic", "ast", "sot", "static", "prim", "cinn")
BY_NAME = ()
FAMILIES = (("ast", "static"), ("sot",), ("prim",), ("cinn",))
FOCUS = ("ast", "static", "sot", "prim", "cinn")
ISOLATED = True
FLAT = True
CALLS = 2
_REPEATS, _MANY = 2, 12
_PAIRS = 5
_ARITHMETIC = ("add", "subtract", "multiply")
_EXACT: Mapping[str, Sequence[str]] = {
    "constants as paddle.full([], c, x.dtype) in +, - and *": _ARITHMETIC,
    "x / paddle.full([], c, x.dtype) in place of x / c": ("divide",),
    "x ** paddle.full([], c, x.dtype) in place of x ** c": ("power",),
    "constants as paddle.full([], c, x.dtype) in +, -, *, / and **": (*_ARITHMETIC, "divide", "power"),
}
_NUMBERS = (
    "beta1, beta2 and epsilon of the optimizer as paddle.full([1], c, dtype of its parameters), in static mode "
    "(the accumulators of the powers of other betas than 0.9 and 0.999 must then be set: Paddle starts them from these)"
)
_ASSIGN = "a view is copied with paddle.assign before it is written (tried in dynamic mode, for every view: it then gives the graph's bits)"


def claims(value: Any) -> bool:
    """A layer, or a tensor of either mode."""
    return isinstance(value, (paddle.nn.Layer, paddle.Tensor, paddle.pir.Value))


def subject(target: Any, inputs: Any) -> Paddle:
    """A layer or function of the inputs, a function without arguments that makes one, or without inputs a training step.

    Raises:
        TargetError: a layer without inputs.
    """
    cases = given(inputs)
    factory = None
    if not isinstance(target, paddle.nn.Layer) and not _takes_arguments(target):
        entry = Entry([back for each in held(target) for back in backs(each)])
        made = target()
        entry.back()
        if isinstance(made, paddle.nn.Layer):
            target, factory = made, target
        elif cases:
            msg = "a function without arguments, beside inputs, must make the layer or function that takes them: it returned something else"
            raise TargetError(msg)
    if isinstance(target, paddle.nn.Layer) and not cases:
        msg = "a layer needs inputs. Accepted: inputs=(tensor, …), a dict, or a function at the top level of a file that makes them."
        raise TargetError(msg)
    return Paddle(target, cases, factory)


def _takes_arguments(function: Any) -> bool:
    import inspect

    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return True


class Paddle:
    """A program of PaddlePaddle on its ladder.

    Args:
        target: a layer, a function of the inputs, or without any a function that does everything.
        cases: its inputs.
        factory: what makes the layer; None where there is none.
    """

    apart = False
    advice: Mapping[str, str] = MappingProxyType(
        {
            "sot": "paddle.jit.to_static(…, full_graph=False)",
            "ast": "paddle.jit.to_static(…, full_graph=True)",
        }
    )
    stages: Mapping[str, str] = MappingProxyType({"ast": "graph", "static": "graph", "prim": "replaced"})

    def __init__(self, target: Any, cases: Sequence[Given], factory: Callable[[], Any] | None) -> None:
        self.target, self.given, self.factory = target, list(cases) or [Given()], factory
        self.cases, self.whole = len(self.given), not cases
        self.entry = Entry([back for each in (target, *held(target)) for back in backs(each)])

    def run(self, rung: str, settings: Settings) -> Outcome:
        try:
            with warnings.catch_warnings(), ExitStack() as stack:
                warnings.simplefilter("ignore")
                return self._run(rung, dict(settings), stack)
        except Missing as error:
            return Outcome(Status.MISSING, why=str(error))
        except Refused as error:
            return Outcome(Status.REFUSED, why=str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever the program or the compiler raises is the finding
            return Outcome(Status.RAISED, why=first_line(error))

    def _run(self, rung: str, settings: dict[str, Any], stack: ExitStack) -> Outcome:
        first, double, probe = settings.pop("capture", 0), settings.pop("double", False), settings.pop("probe", 1.0)
        amp = stack.enter_context(lesions.amp(off=settings.pop("amp", "") == "off"))
        graphs = stack.enter_context(lesions.graphs())
        lesions.apply(settings, stack)
        if double:
            stack.enter_context(lesions.double())
        captured = self.given[0].times(probe) if first < 0 else self.given[max(first, 0)]
        self.entry.back()
        form = FORMS[rung](self, captured, double=double)
        order = [max(first, 0), *(case for case in range(self.cases) if case != max(first, 0))]
        values, moved = self._once(form, order, probe)
        seen = {_digest(values)}
        for _ in range((_MANY if moved else _REPEATS) - 1):
            seen.add(_digest(self._once(form, order, probe)[0]))
        count = len(graphs)  # before anything is run again below
        compiled = rung in ("ast", "sot", "prim", "cinn")
        eager = rung == "dynamic" or (compiled and not count)
        told = self._in_force(form, order, probe, seen) if amp and eager else ""
        notes = [f"paddle.amp.auto_cast is asked for ({amp[0]}){told}"] if amp else []
        status = Status.EAGER if compiled and not count else Status.RAN
        each = count // ((_MANY if moved else _REPEATS) * CALLS * self.cases)
        return Outcome(status, values, notes=tuple(notes), graphs=each if compiled else None, distinct=len(seen))

    def _in_force(self, form: Form, order: Sequence[int], probe: float, seen: set[Any]) -> str:
        """Does `auto_cast` change anything here? Not to be asked of a graph, which has captured it."""
        with lesions.amp(off=True):
            same = _digest(self._once(form, order, probe)[0]) in seen
        return " and is not in force: without it all bits are the same" if same else " and is in force"

    def _once(self, form: Form, order: Sequence[int], probe: float) -> tuple[dict[str, Any], bool]:
        """(results of every case and call, whether a generator moved)."""
        found, moved = {}, False
        for case in order:
            self.entry.back()
            form.back()
            before = generator_state()
            for call in range(CALLS):
                for name, value in form.call(self.given[case].times(probe)).items():
                    found[label(name, case, call)] = value
            moved = moved or before != generator_state()
        return found, moved

    def survey(self, rung: str, settings: Settings) -> Survey:
        from detconf.frameworks.paddle.fetched import survey

        return survey(self, rung, settings)

    def remedies(self, rung: str, survey: Survey, outcome: Outcome) -> Sequence[Trial]:
        return remedies(rung, survey, outcome)

    def cost(self, rung: str, settings: Settings, plain: str) -> float | None:
        if self.whole and "static" in (rung, plain):
            return None  # a call builds the program, and nobody does that at each step
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self._time(rung, dict(settings)) / self._time(plain, {})
        except Exception:  # noqa: BLE001  # a price that cannot be measured is none
            return None

    def _time(self, rung: str, settings: dict[str, Any]) -> float:
        """Seconds of a call; the sides are timed one after the other, because flags hold for the process."""
        with ExitStack() as stack:
            lesions.apply(settings, stack)
            form = FORMS[rung](self, self.given[0], double=False)
            times = []
            for turn in range(_PAIRS + 2):
                start = time.perf_counter()
                form.call(self.given[0])
                if turn > 1:
                    times.append(time.perf_counter() - start)
            return statistics.median(times)


def remedies(rung: str, survey: Survey, outcome: Outcome) -> list[Trial]:
    """What to try, cheapest first."""
    found = []
    if survey.random and rung != "dynamic":
        found.append(Trial("FLAGS_new_executor_sequential_run=True, set before the graph is first run", {"sequential": True}, "rng"))
    if any("auto_cast" in note for note in outcome.notes):
        found.append(Trial("the program without paddle.amp.auto_cast", {"amp": "off"}, "config"))
    if rung == "prim":
        found.append(Trial("FLAGS_prim_all off: no primitive decomposition", {}, rung="ast"))
        return found
    if any(name.removeprefix("paddle.") in OPTIMIZERS for name in survey.constants):
        every = [lesions.OPTIMIZER, *_ARITHMETIC, "divide", "power"]
        found.append(Trial(_NUMBERS, {"exact": [lesions.OPTIMIZER]}, "scalar"))
        found.append(Trial(f"{_NUMBERS}, and {list(_EXACT)[-1]}", {"exact": every}, "scalar", against="both"))
    if survey.constants or survey.unexamined:
        for words, groups in _EXACT.items():
            found.append(Trial(words, {"exact": list(groups)}, "scalar", against="both"))
    found.append(Trial(_ASSIGN, {"views": "copied"}, "semantics", rung="dynamic", against="rung"))
    return found


def _digest(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(to_array(each).digest if isinstance(each, paddle.Tensor) else str(each) for each in leaves(values))


def label(name: str, case: int, call: int) -> str:
    """The name of a result: of the first inputs and the first call it is bare."""
    parts = [f"inputs{case + 1}" if case else "", f"call{call + 1}" if call else "", name]
    return ".".join(filter(None, parts))
