"""The graph modes of PyTorch as a ladder: eager, dynamo, AOT, decompositions, inductor, export, trace, and more by name.

Each rung runs a fresh copy of the module, with the parameters and generator states that were there at the start, twice on
each of the inputs: a value that capture froze shows in the second call. Gradients are those of a sum of all outputs with
fixed weights: of the plain sum some are zero by construction (softmax, normalization), and their rounding would be all.

torch's compiled code is dropped before and after (`torch._dynamo.reset`); settings are options of each compilation, so
that no configuration of the process is touched but for the length of a capture.
"""

from __future__ import annotations

import copy
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

import torch

from detconf.errors import TargetError
from detconf.frameworks.entry import Back, Entry, held
from detconf.frameworks.rungs import Missing, Outcome, Refused, Settings, Status, Survey, Trial
from detconf.frameworks.source import short
from detconf.frameworks.torch import lesions
from detconf.frameworks.torch.compilers import COMPILED, graphs_seen, make
from detconf.frameworks.torch.given import Given, backs, given, tensors
from detconf.frameworks.torch.remedies import trials
from detconf.lookup import first_line

RUNGS = ("eager", "dynamo", "aot_eager", "decomposed", "inductor", "lite", "export", "trace")
BY_NAME = ("script", "freezing", "optimize_for_inference", "max-autotune")
FAMILIES = (
    ("dynamo", "aot_eager", "decomposed", "inductor", "lite"),
    ("export", "trace"),
    ("script",),
    ("freezing",),
    ("optimize_for_inference",),
    ("max-autotune",),
)
FOCUS = ("inductor", "decomposed", "lite", "trace", "export")
ISOLATED = False
FLAT = False
CALLS = 2
_PAIRS = 5
_OWN = os.path.join(os.path.dirname(torch.__file__), "")


def claims(value: Any) -> bool:
    """A module or a tensor."""
    return isinstance(value, (torch.nn.Module, torch.Tensor))


def subject(target: Any, inputs: Any) -> Torch:
    """A module or function with inputs, a function without arguments that makes a module, or a training step."""
    cases = given(inputs)
    if not isinstance(target, torch.nn.Module) and not cases:
        entry = Entry([back for each in held(target) for back in backs(each)])
        made = target()
        entry.back()
        if isinstance(made, torch.nn.Module):
            msg = "a function that makes a module needs inputs for it. Accepted: inputs=(tensor, …), or a function that makes them."
            raise TargetError(msg)
    elif not isinstance(target, torch.nn.Module) and callable(target) and not _takes_arguments(target):
        target = target()
    if isinstance(target, torch.nn.Module) and not cases:
        msg = "a module needs inputs. Accepted: inputs=(tensor, …), a dict, or a function that makes them."
        raise TargetError(msg)
    return Torch(target, cases)


def _takes_arguments(function: Any) -> bool:
    import inspect

    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return True


def remedies(rung: str, survey: Survey, outcome: Outcome) -> Sequence[Trial]:  # noqa: ARG001
    """What to try for a program that lives in another process, cheapest first."""
    return list(trials(rung, survey, whole=False))


class Torch:
    """A program of PyTorch on its ladder.

    Args:
        target: a module, a function of the inputs, or without any a function that does everything.
        cases: its inputs.
    """

    apart = False
    advice: Mapping[str, str] = MappingProxyType(
        {"lite": 'torch.compile(…, mode="lite")', "inductor": "torch.compile(…) as it is: it agrees"}
    )
    stages: Mapping[str, str] = MappingProxyType(
        {
            "decomposed": "decomposition",
            **dict.fromkeys(("inductor", "lite", "max-autotune"), "lowering"),
            **dict.fromkeys(("freezing", "optimize_for_inference"), "folding"),
        }
    )

    def __init__(self, target: Any, cases: Sequence[Given]) -> None:
        self.target, self._given = target, list(cases) or [Given()]
        self.cases, self.whole = len(self._given), not cases
        self.module = target if isinstance(target, torch.nn.Module) else None
        self._copied = self.module is not None and _copyable(self.module)
        watched = [] if self._copied else [target, *held(target)]
        self.entry = Entry([back for each in watched for back in backs(each)])

    def run(self, rung: str, settings: Settings) -> Outcome:
        try:
            with lesions.isolated(), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                values = self._run(rung, settings)
                graphs, breaks = graphs_seen()
        except Missing as error:
            return Outcome(Status.MISSING, why=str(error))
        except Refused as error:
            return Outcome(Status.REFUSED, why=str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever the program or the compiler raises is the finding
            return Outcome(Status.RAISED, why=first_line(error))
        finally:
            self.entry.back()
        compiled = rung in COMPILED
        notes = [f"{breaks} graph break{'s' if breaks > 1 else ''}"] if compiled and breaks else []
        warned = _warned(said)
        status = Status.EAGER if compiled and not graphs else Status.RAN
        return Outcome(status, values, notes=(*notes, *warned), graphs=graphs if compiled else None, warned=warned[0] if warned else "")

    def _run(self, rung: str, settings: Settings) -> dict[str, Any]:
        settings = dict(settings)
        first, double, probe = settings.pop("capture", 0), settings.pop("double", False), settings.pop("probe", 1.0)
        with lesions.double() if double else nullcontext(), lesions.changed(settings) as options:
            captured = self._given[0].times(probe) if first < 0 else self._given[first]
            called, clean = self.captured(rung, options, captured, double=double)
            order = [max(first, 0), *(case for case in range(self.cases) if case != max(first, 0))]
            found = {}
            for case in order:
                clean()
                for call in range(CALLS):
                    for name, value in self.call(called, self._given[case].times(probe), double=double).items():
                        found[label(name, case, call)] = value
        return found

    def captured(
        self, rung: str, settings: Settings, given: Given | None = None, *, double: bool = False
    ) -> tuple[Callable[..., Any], Back]:
        """(what runs the program on this rung, what brings its state back to the start)."""
        function, clean = self.prepared(double=double)
        called = make(rung, function, None if self.whole else (given or self._given[0]).fresh(double=double), settings)
        own = called if hasattr(called, "named_buffers") else function

        def back() -> None:  # some keep parameters and buffers of their own; tracing runs the module once
            clean()
            self._bring_back(own)

        return called, back

    def prepared(self, *, double: bool = False) -> tuple[Any, Back]:
        """(a copy of the program to run, what brings its state back to the start)."""
        self.entry.back()
        function = copy.deepcopy(self.target) if self._copied else self.target
        if double and self.module is not None:
            function = function.double()
        return function, self.entry.back

    def _bring_back(self, function: Any) -> None:
        if self._copied:
            original = dict(tensors(self.module))
            with torch.no_grad():
                for name, tensor in tensors(function):
                    if name in original and original[name].shape == tensor.shape:
                        tensor.copy_(original[name])

    def once(self, rung: str, settings: Settings) -> dict[str, Any]:
        """Results of the first call of a rung, compiled anew."""
        torch._dynamo.reset()
        with lesions.changed(settings) as options:
            called, clean = self.captured(rung, options)
            clean()
            return self.call(called)

    def call(self, called: Any, given: Given | None = None, *, double: bool = False) -> dict[str, Any]:
        """Results of one call, gradients, and what it left in buffers."""
        args, kwargs = (given or self._given[0]).fresh(double=double)
        if self.whole:
            return {"": called()}
        result = called(*args, **kwargs)
        found = {"": _detached(result)}
        wanted = self._wanted(called, args, kwargs)
        outputs = [each for each in _leaves(result) if each.requires_grad and each.is_floating_point()]
        if wanted and outputs:
            gradients = torch.autograd.grad(outputs, list(wanted.values()), [_weights(each) for each in outputs], allow_unused=True)
            found["grad"] = {name: each for name, each in zip(wanted, gradients, strict=True) if each is not None}
        owner = getattr(called, "_orig_mod", called)
        buffers = dict(owner.named_buffers()) if self.module is not None and hasattr(owner, "named_buffers") else {}
        known = dict(self.module.named_buffers()) if self.module is not None else {}
        changed = {name: each.detach().clone() for name, each in buffers.items() if name in known and each.numel()}
        return {**found, **({"buffer": changed} if changed else {})}

    def _wanted(self, called: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What gradients are taken for: of a module in training mode its parameters, and inputs that require them."""
        inputs = {f"input[{index}]": each for index, each in enumerate(args)} | {f"input.{name}": each for name, each in kwargs.items()}
        found = {name: each for name, each in inputs.items() if isinstance(each, torch.Tensor) and each.requires_grad}
        if self.module is not None and self.module.training:
            owner = getattr(called, "_orig_mod", called)
            known = {name for name, _ in self.module.named_parameters()}
            found |= {name: each for name, each in owner.named_parameters() if each.requires_grad and name in known}
        return found

    def survey(self, rung: str, settings: Settings) -> Survey:
        from detconf.frameworks.torch.tap import survey

        return survey(self, rung, settings)

    def remedies(self, rung: str, survey: Survey, outcome: Outcome) -> list[Trial]:  # noqa: ARG002
        return list(trials(rung, survey, whole=self.whole))

    def cost(self, rung: str, settings: Settings, plain: str) -> float | None:
        try:
            with lesions.isolated(), warnings.catch_warnings(), lesions.changed(settings) as options:
                warnings.simplefilter("ignore")
                return self._cost(rung, options, plain)
        except Exception:  # noqa: BLE001  # a price that cannot be measured is none
            return None

    def _cost(self, rung: str, settings: Settings, plain: str) -> float:
        sides = [self.captured(rung, settings)[0], self.captured(plain, {})[0]]
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(_PAIRS + 2):
            for called, kept in zip(sides, times, strict=True):
                start = time.perf_counter()
                self.call(called)
                if turn > 1:  # the first two compile and warm up
                    kept.append(time.perf_counter() - start)
        return statistics.median(times[0]) / statistics.median(times[1])


def label(name: str, case: int, call: int) -> str:
    """The name of a result: of the first inputs and the first call it is bare."""
    parts = [f"inputs{case + 1}" if case else "", f"call{call + 1}" if call else "", name]
    return ".".join(filter(None, parts))


def _weights(output: torch.Tensor) -> torch.Tensor:
    """Weights of the sum that gradients are of: 0.5 to 1.5, none of them special."""
    steps = torch.arange(output.numel(), dtype=torch.float64).mul_(0.6180339887498949).frac_().add_(0.5)
    return steps.reshape(output.shape).to(output.dtype).to(output.device)


def _leaves(value: Any) -> Iterator[torch.Tensor]:
    from torch.utils._pytree import tree_leaves

    yield from (each for each in tree_leaves(value) if isinstance(each, torch.Tensor))


def _detached(value: Any) -> Any:
    from torch.utils._pytree import tree_map

    return tree_map(lambda each: each.detach().clone() if isinstance(each, torch.Tensor) else each, value)


def _copyable(module: torch.nn.Module) -> bool:
    try:
        copy.deepcopy(module)
    except Exception:  # noqa: BLE001  # a module that holds a file, a lock or a non-leaf tensor
        return False
    return True


def _warned(said: Sequence[Any]) -> list[str]:
    """Places of the program that the tracer says it froze."""
    return [
        f"{short(each.filename)}:{each.lineno}" for each in said if each.category.__name__ == "TracerWarning" and _OWN not in each.filename
    ]
