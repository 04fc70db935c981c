"""What can be varied between runs beside the run itself, one thing at a time. Data.

Each variant is a `Setting`, applied to a process of its own: most of them must be there before the interpreter starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from detconf.causes.changes import Change, Setting
from detconf.facts import Facts
from detconf.frameworks import catalogue
from detconf.values import Cause


@dataclass(frozen=True, slots=True)
class Variant:
    """One other way to run the target.

    Attributes:
        label: what it is, as a user would say it.
        setting: how to get it.
        pin: the setting that keeps the first way, as a fix would say it.
    """

    label: str
    setting: Setting
    pin: str


@dataclass(frozen=True, slots=True)
class Variable:
    """Something that a result may or may not depend on.

    Attributes:
        name: of the axis.
        words: what is varied.
        variants: the other ways that this machine offers.
    """

    name: str
    words: str
    variants: Callable[[Facts], tuple[Variant, ...]]


def _variant(label: str, pin: str, **change: object) -> Variant:
    return Variant(label, Setting((Change(words=label, cause=Cause.UNKNOWN, **change),)), pin)  # type: ignore[arg-type]  # passed through to Change


def _threads(facts: Facts) -> tuple[Variant, ...]:
    return tuple(
        _variant(
            f"{count} thread{'s' * (count > 1)} in every pool", "a fixed number of threads (policy threads)", policies={"threads": count}
        )
        for count in sorted({1, 2, facts.cores})
    )


def _hash_seeds(_facts: Facts) -> tuple[Variant, ...]:
    return tuple(
        _variant(f"PYTHONHASHSEED={seed}", "a fixed hash seed (policy hash_seed)", environment={"PYTHONHASHSEED": str(seed)})
        for seed in (1, 2, 3)
    )


def _levels(facts: Facts) -> tuple[Variant, ...]:
    words = "instruction sets up to x86-64-v3"
    return (
        (_variant(words, "a fixed dispatch level (policy cpu_dispatch)", policies={"cpu_dispatch": "x86-64-v3"}),)
        if "x86" in facts.devices
        else ()
    )


def _eager(_facts: Facts) -> tuple[Variant, ...]:
    return (_variant("torch.compile switched off", "the same mode on both sides", environment={"TORCH_COMPILE_DISABLE": "1"}),)


def _workers(_facts: Facts) -> tuple[Variant, ...]:
    knobs = [name for name in catalogue() if name.endswith(".DataLoader.num_workers")]
    pin = "a fixed number of workers; in the program: a generator seeded by the index of the sample"
    return tuple(
        _variant(f"{count} worker{'s' * (count != 1)} in every DataLoader", pin, policies=dict.fromkeys(knobs, count))
        for count in (0, 1, 2)
    )


VARIABLES = (
    Variable("threads", "the number of threads", _threads),
    Variable("hash-seed", "the seed of string hashing", _hash_seeds),
    Variable("isa", "the instruction sets that CPU kernels use", _levels),
    Variable("compile", "eager against compiled, where the program calls torch.compile", _eager),
    Variable("workers", "the number of worker processes that load data", _workers),
)
