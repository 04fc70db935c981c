"""The Python process itself: string hashing and the `random` module."""

from __future__ import annotations

from detconf.access import Env, Rng
from detconf.frameworks.base import Framework
from detconf.knob import Knob, Pattern, Span, Timing
from detconf.late import Started

_HERE = "detconf.frameworks.process.controls"

FRAMEWORK = Framework(
    name="process",
    seeds="detconf.frameworks.process.seeds:fixed",
    refused="detconf.frameworks.process.refused",
    knobs=(
        Knob(
            name="env.PYTHONHASHSEED",
            framework="process",
            access=Env("PYTHONHASHSEED", effective=f"{_HERE}:hash_seed"),
            accepts=Pattern(r"random|0|[1-9][0-9]{0,9}", "'random', or '0' to '4294967295'"),
            serves={"hash_seed": str},
            timing=Timing.INTERPRETER_START,
            late=Started(),
            summary="Seed of str and bytes hashing, which decides the order of sets of text.",
            docs="https://docs.python.org/3/using/cmdline.html#envvar-PYTHONHASHSEED",
            undo="the interpreter keeps the seed it started with",
            note="Sets of objects are ordered by address, which no variable fixes.",
        ),
        Knob(
            name="random.seed",
            framework="process",
            access=Rng(f"{_HERE}:GENERATOR"),
            accepts=Span(0, 4294967295),
            serves={"seed": int},
            summary="Python's global generator.",
            docs="https://docs.python.org/3/library/random.html#random.seed",
            watched=False,
        ),
    ),
)
