"""One operation: what its shadow is computed from, and how. Everything here runs inside `TorchEngine.guarded`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from detconf.frameworks.torch.operations import collect, results, written
from detconf.frameworks.torch.shadow_draws import idle
from detconf.frameworks.torch.shadow_memory import Memory
from detconf.frameworks.torch.shadow_noise import noise_of
from detconf.frameworks.torch.shadow_plans import CASTS, Plan, Slot
from detconf.frameworks.torch.shadow_rules import DRAWS, PURE, real_results, rule
from detconf.frameworks.torch.shadow_tensors import floats, name_of, numbers_of, on_numbers, rounded, wide
from detconf.shadows.formats import UNIT, unit
from detconf.shadows.number import Numbers
from detconf.shadows.number import read as read_number
from detconf.shadows.study import Known, Read, Study

_NEVER = frozenset(("condition", "mask"))
_INPUT, _OUTPUT, _OWN = 0.6, 0.4, 0.3
"""Noise of inputs and outputs in units of roundoff, and what an operation may err by itself."""


@dataclass(slots=True)
class Call:
    """An operation that is running.

    Attributes:
        plan: of the operation.
        bound: its real arguments by name.
        reads: what it reads.
        targets: the tensors that it writes among its arguments.
        before: by id of a real argument: its shadow, or float64 of it in a local run; integers as they were.
        bits: of integers that it reads: the floats whose bits they are.
        state: of the generator, if it draws.
        random: it draws.
        made: the tensors that it wrote or made; of a sparse one the values.
        kept: which of the tensors that it wrote, and then of its results, those are.
    """

    plan: Plan
    bound: Mapping[str, Any]
    reads: list[Read]
    targets: list[Any]
    before: dict[int, Any]
    bits: Known | None
    state: Any = None
    random: bool = False
    made: list[Any] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)


class Calls:
    """Computes shadows for one study."""

    def __init__(self, study: Study, memory: Memory, numbers: Numbers) -> None:
        self.study, self.memory, self.numbers = study, memory, numbers
        self.noise = noise_of(study.noise)
        self._local_noise = noise_of(0)

    def begin(self, plan: Plan, bound: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Before the operation runs: note what it reads."""
        targets = written(plan.operation, args, kwargs)
        held = [(each, numbers_of(each)) for each in _read(plan, bound)]
        read = [(each, holder) for each, holder in held if holder is not None]
        reads = [self.memory.read(holder) for _, holder in read]
        for value in bound.values():
            reads += [read_number(known) for known in map(self._number, value if isinstance(value, (list, tuple)) else (value,)) if known]
        writing = bool(targets)
        bits = next(filter(None, (self.memory.bits(each) for each, holder in read if holder is each)), None)
        before = {id(each): self._before(each, holder, writing=writing) for each, holder in read}
        return Call(plan, bound, reads, targets, before, bits)

    def _number(self, value: Any) -> Known | None:
        return self.numbers.known(value, later=torch._C._current_autograd_node() is not None) if isinstance(value, float) else None

    def _before(self, tensor: Any, holder: Any, *, writing: bool) -> Any:
        if not floats(tensor.dtype):
            return tensor.clone() if writing else tensor
        if self.study.local:
            return tensor.to(wide(tensor.dtype), copy=writing)
        return self.memory.view(tensor) if holder is tensor else on_numbers(tensor, lambda _: self.memory.view(holder))

    def finish(self, call: Call, result: Any) -> None:
        """After it ran: the tensors whose content it made. Views of its arguments are none of them."""
        inputs: list[Any] = []
        for value in call.bound.values():
            collect(value, inputs)
        held = {holder.untyped_storage()._cdata for holder in map(numbers_of, inputs) if holder is not None}
        fresh = [numbers_of(each) for each in results(call.plan.operation, result)]
        new = [each is not None and each.untyped_storage()._cdata not in held for each in fresh]
        targets = [numbers_of(each) for each in call.targets]
        call.kept = [each is not None for each in targets] + new
        call.made = [each for each, kept in zip(targets + fresh, call.kept, strict=True) if kept]

    def compute(self, call: Call) -> tuple[list[Any], float | None]:
        """(shadow of each tensor that it made, None for integers; local error).

        Raises:
            Exception: whatever a computation in float64 can raise.
        """
        plan = call.plan
        if not any(floats(each.dtype) for each in call.made):
            unseen = next((each for each in _read(plan, call.bound) if id(each) not in call.before), None)
            if unseen is not None and call.made:
                msg = f"made of {name_of(unseen.dtype)}, which is not followed"
                raise NotImplementedError(msg)
            return [None] * len(call.made), None
        if call.random and not idle(self.study.altered()):
            return self._drawn(call), None
        noisy = self.noise is not None and not plan.moves
        shadows = self._same(call, self._inputs(call, noisy=noisy))
        if self.noise is not None and noisy:
            shadows = [
                each if each is None else self.noise(each, _OUTPUT * unit(name_of(real.dtype)))
                for each, real in zip(shadows, call.made, strict=True)
            ]
        if plan.name in CASTS:
            shadows = self._cast(call, shadows)
        return shadows, self._local(call, shadows) if self.study.local and not plan.moves else None

    def _drawn(self, call: Call) -> list[Any]:
        found = DRAWS.get(call.plan.name)
        if found:
            return _own(found(self._inputs(call, noisy=False), call.bound, call.made), call)
        if call.plan.name in PURE:
            return real_results(call.made)
        msg = "draws random numbers inside"
        raise NotImplementedError(msg)

    def _same(self, call: Call, inputs: Mapping[str, Any]) -> list[Any]:
        """The same operation on shadows."""
        plan, made = call.plan, call.made
        if plan.slots is None or not plan.native:
            msg = "what it does inside is not known"
            raise NotImplementedError(msg)
        special = rule(plan.name, made)
        if special:
            return _own(special(inputs, call.bound, made), call)
        args = [inputs[slot.name] for slot in plan.slots if not slot.keyword]
        kwargs = {slot.name: inputs[slot.name] for slot in plan.slots if slot.keyword}
        outcome = plan.operation.run(*args, **kwargs)
        ours = written(plan.operation, args, kwargs) + results(plan.operation, outcome)
        if len(ours) != len(call.kept):
            msg = "the shadow has another number of results"
            raise NotImplementedError(msg)
        kept = [numbers_of(each) for each, kept in zip(ours, call.kept, strict=True) if kept]
        # With other options, results for the backward pass may have another shape.
        loose = bool(self.study.altered())
        return [_checked(each, real, loose=loose and place > 0) for place, (each, real) in enumerate(zip(kept, made, strict=True))]

    def _inputs(self, call: Call, *, noisy: bool) -> dict[str, Any]:
        """The arguments of the shadow."""
        plan = call.plan
        altered = self.study.altered()
        # Where there are integers and Python numbers only, PyTorch would compute in its default dtype.
        narrow = not any(floats(each.dtype) for each in _read(plan, call.bound))
        inputs = {}
        for slot in plan.slots or ():
            value = altered.get(slot.name, call.bound[slot.name])
            if slot.name == "dtype" and value is None and narrow and call.made:
                inputs[slot.name] = wide(call.made[0].dtype)
            elif slot.real:
                inputs[slot.name] = value
            else:
                inputs[slot.name] = self._argument(call, slot, value, noisy=noisy, narrow=narrow)
        return inputs

    def _argument(self, call: Call, slot: Slot, value: Any, *, noisy: bool, narrow: bool) -> Any:
        kind = type(value)
        if kind in (list, tuple):
            return kind(self._argument(call, slot, each, noisy=noisy, narrow=narrow) for each in value)
        if isinstance(value, torch.Tensor):
            return self._tensor(call, slot, value, noisy=noisy, narrow=narrow)
        if isinstance(value, torch.dtype):
            return wide(value)
        known = self._number(value)
        if known and not self.study.local:
            value = float(known.shadow)
        return torch.scalar_tensor(value, dtype=torch.float64) if narrow and slot.tensor and isinstance(value, float) else value

    def _tensor(self, call: Call, slot: Slot, tensor: Any, *, noisy: bool, narrow: bool) -> Any:
        if slot.written and call.plan.operation.blind:
            return torch.empty(tensor.shape, dtype=wide(tensor.dtype), device=tensor.device)
        found = call.before.get(id(tensor))
        if found is None:
            msg = f"a tensor of layout {name_of(tensor.layout)} or on {tensor.device.type}"
            raise NotImplementedError(msg)
        if not floats(tensor.dtype):
            numeric = narrow and slot.name not in _NEVER and floats(call.made[0].dtype)
            return found.to(torch.float64) if numeric else found.clone() if slot.written else found
        if slot.multiplied and self.study.rounding:
            found = on_numbers(found, lambda each: rounded(each, self.study.rounding))
        if noisy and self.noise is not None:
            return self.noise(found, _INPUT * unit(name_of(tensor.dtype)))
        return found.clone() if slot.written else found

    def _cast(self, call: Call, shadows: list[Any]) -> list[Any]:
        """Results of a cast. One to float32 rounds like any operation; one to fewer bits is asked for, and no noise."""
        given: list[Any] = []
        collect(call.bound.get("src", call.bound.get("self")), given)
        found = []
        for source, real, shadow in zip(given, call.made, shadows, strict=True):
            scale = unit(name_of(real.dtype))
            if shadow is None or not floats(source.dtype) or unit(name_of(source.dtype)) >= scale:
                found.append(shadow)
            elif self.study.casts == "kept":
                found.append(rounded(shadow, name_of(real.dtype)))
            else:
                found.append(self.noise(shadow, _OUTPUT * scale) if self.noise is not None and scale <= UNIT["float32"] else shadow)
        return found

    def _local(self, call: Call, shadows: list[Any]) -> float | None:
        """The operation's own error in units of what noise of its inputs does; the largest of its results."""
        noise, self.noise = self.noise, self._local_noise
        try:
            moved = self._same(call, self._inputs(call, noisy=True))
        finally:
            self.noise = noise
        ratios = [_ratio(*each) for each in zip(call.made, shadows, moved, strict=True) if each[1] is not None and each[1].numel()]
        return max(ratios, default=None)


def _read(plan: Plan, bound: Mapping[str, Any]) -> list[Any]:
    """The tensors that an operation reads; one may be what it writes as well."""
    found: list[Any] = []
    for slot in plan.slots or ():
        if not (slot.written and plan.operation.blind):
            collect(bound[slot.name], found)
    return found


def _own(shadows: list[Any], call: Call) -> list[Any]:
    """What a rule gave, in memory that nobody else writes: some rules give back what they were given."""
    taken = {each.untyped_storage()._cdata for each in (*call.before.values(), *call.made) if each.layout is torch.strided}
    return [each.clone() if each is not None and each.untyped_storage()._cdata in taken else each for each in shadows]


def _checked(shadow: Any, real: Any, *, loose: bool) -> Any:
    if not floats(real.dtype):
        return None
    if loose and shadow.shape != real.shape:
        return real.to(wide(real.dtype), copy=True)
    if shadow.shape != real.shape or shadow.dtype is not wide(real.dtype):
        msg = f"the shadow is {name_of(shadow.dtype)} of {tuple(shadow.shape)}"
        raise NotImplementedError(msg)
    return shadow


def _ratio(real: Any, shadow: Any, moved: Any) -> float:
    error = real.to(shadow.dtype) - shadow
    size, off, by = _rms(shadow), _rms(error), _rms(moved - shadow)
    if not math.isfinite(size + off + by):
        finite = torch.isfinite(shadow)
        if not bool(finite.any()):
            return 0.0
        if not bool(torch.isfinite(real[finite]).all()):
            return float("inf")
        size, off, by = _rms(shadow[finite]), _rms(error[finite]), _rms((moved - shadow)[finite])
    allowed = by**2 + (_OWN * UNIT.get(name_of(real.dtype), 0.0) * size) ** 2
    return float(off / (allowed**0.5 + 1e-300))


def _rms(tensor: Any) -> float:
    return float(torch.linalg.vector_norm(tensor)) / math.sqrt(tensor.numel() or 1)
