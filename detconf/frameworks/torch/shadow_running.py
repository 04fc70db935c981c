"""Running an operation: itself first, once and with its own arguments; then its shadow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from detconf.frameworks import adds
from detconf.frameworks.torch import whole
from detconf.frameworks.torch.operations import collect, results
from detconf.frameworks.torch.shadow_calls import Call, Calls
from detconf.frameworks.torch.shadow_draws import Draws, idle
from detconf.frameworks.torch.shadow_modes import Shadows
from detconf.frameworks.torch.shadow_plans import Plan, bind, inner_code, options, plan, tensors_for
from detconf.frameworks.torch.shadow_tensors import array, floats, followed, name_of, real_array, told, wide
from detconf.shadows.formats import UNIT
from detconf.shadows.study import Known

if TYPE_CHECKING:
    from detconf.frameworks.torch.shadow import TorchEngine


class Running:
    """What the dispatch mode calls."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine, self.study, self.memory = engine, engine.study, engine.memory
        self.calls = Calls(engine.study, engine.memory, engine.numbers)
        self.draws = Draws(engine.study)
        self._plans: dict[Any, Plan] = {}

    def run(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation, and its shadow; what either conjugates lazily inside itself is conjugated."""
        tensors: list[Any] = []
        collect(args, tensors)
        return whole.run(self._run, tensors, (function, args, kwargs), {})

    def _run(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        found = self._plans.get(function)
        if found is None:
            found = self._plans[function] = plan(function)
        if found.strict:
            args = tensors_for(found.strict, args)
        if self.engine.idle():
            return function(*args, **kwargs)
        if found.view:
            self._viewed(found, args)
            return function(*args, **kwargs)
        if not found.native:
            code = inner_code(function, args, kwargs)
            if code is not None:
                return self._inside(found, code, args, kwargs)
        call = self._begin(found, args, kwargs)
        result = found.operation.run(*args, **kwargs)
        self._finish(found, call, args, result)
        return result

    def _viewed(self, found: Plan, args: Sequence[Any]) -> None:
        """A tensor that is first seen when a view is taken of it: it is the leaf, not the view."""
        if found.name in ("lift_fresh", "detach") or not args or not isinstance(args[0], torch.Tensor):
            return

        def see() -> None:
            if followed(args[0]) and not self.memory.peek(args[0]):
                self.memory.cell(args[0])

        self.engine.guarded(found.operation.name, see)

    def _inside(self, found: Plan, code: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """An operation of somebody's, which is made of others: those are followed."""
        before = len(self.study.operations)
        # What is asked for here goes straight to the code; the other mode would make a new call of it.
        with torch._C.DisableTorchFunction(), Shadows(self.run):
            result = code(*args, **kwargs)

        def check() -> None:
            tensors: list[Any] = []
            collect(result, tensors)
            unknown = [each for each in tensors if followed(each) and not self.memory.peek(each)]
            if unknown or len(self.study.operations) == before:
                bound = bind(found.slots or (), args, kwargs)
                call = self.calls.begin(found, bound, args, kwargs)
                self.calls.finish(call, result)
                if call.made:
                    self._record(call)

        self.engine.guarded(found.operation.name, check)
        return result

    def _begin(self, found: Plan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call | None:
        made: list[Call] = []

        def begin() -> None:
            bound = bind(found.slots or (), args, kwargs)
            call = self.calls.begin(found, bound, args, kwargs)
            if found.operation.random and not idle(bound):
                call.random, call.state = True, self.draws.begin(bound.values(), bound.get("device"))
            made.append(call)

        self.engine.guarded(found.operation.name, begin)
        return made[0] if made else None

    def _finish(self, found: Plan, call: Call | None, args: Sequence[Any], result: Any) -> None:
        def finish() -> None:
            if call is None:
                self._forget(found, args, result)
            elif found.operation.empty:
                self._allocated(found, result)
            elif found.name == "_local_scalar_dense":
                self._scalar(args[0], result)
            elif found.name != "copy" or not self._copied(call):
                self.calls.finish(call, result)
                if call.made:
                    self._record(call)

        if not self.engine.guarded(found.operation.name, finish):
            self.engine.guarded(found.operation.name, lambda: self._forget(found, args, result))

    def _allocated(self, found: Plan, result: Any) -> None:
        for each in results(found.operation, result):
            if followed(each):
                self.memory.allocated(each)

    def _copied(self, call: Call) -> bool:
        target, source = call.bound.get("self"), call.bound.get("src")
        both = isinstance(target, torch.Tensor) and isinstance(source, torch.Tensor) and followed(target) and followed(source)
        return both and self.memory.copied(target, source)

    def _forget(self, found: Plan, args: Sequence[Any], result: Any) -> None:
        """Something went wrong in here: what was written is a leaf when it is seen next."""
        tensors: list[Any] = []
        collect(result, tensors)
        if found.operation.writes:
            collect(list(args), tensors)
        for each in tensors:
            if followed(each):
                self.memory.forget(each)

    def _scalar(self, tensor: Any, result: Any) -> None:
        """A number leaves, by whatever door."""
        if isinstance(result, float) and not getattr(self.engine.quiet, "item", False):
            known = self.memory.known(tensor)
            self.engine.numbers.escape(result, Known(known.shadow.reshape(()), known.value), seen=True)

    def _record(self, call: Call) -> None:
        """Compute the shadow, tell the study, and keep what it gives back."""
        made, lost, local = call.made, "", None
        try:
            shadows, local = self.calls.compute(call)
        except Exception as error:  # noqa: BLE001  # whatever cannot be done in float64
            lost = f"{call.plan.operation.name}: {told(error)}"
            shadows = [each.to(wide(each.dtype), copy=True) if floats(each.dtype) else None for each in made]
        arrays = [np.array(array(real)) if shadow is None else array(shadow) for real, shadow in zip(made, shadows, strict=True)]
        reals = [real_array(each) if self.study.keep_real else None for each in made]
        recorded = self.study.operation(
            call.plan.operation.name,
            call.reads,
            [(shadow, name_of(tensor.dtype), real) for shadow, tensor, real in zip(arrays, made, reals, strict=True)],
            random=call.random,
            state=call.state,
            options=options(call.plan.slots or (), call.bound),
            source=self.engine.places.here() if self.study.sources else "",
            local=local,
            decided=any(shadow is None for shadow in shadows) and any(each.value.dtype in UNIT for each in call.reads),
            adds=adds(call.plan.operation.name),
            lost=lost,
            frozen=True,
        )
        for tensor, shadow, given, (value, after) in zip(made, shadows, arrays, recorded, strict=True):
            self.memory.write(tensor, shadow if after is given else self.memory.widened(after, tensor), value)
            if call.bits is not None:
                self.memory.computed(tensor, call.bits)
