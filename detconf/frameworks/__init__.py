"""The frameworks that detconf knows, and the catalogue of their knobs.

A framework is one folder and one line in `NAMES`. Its `knobs` module declares `FRAMEWORK`; everything else in the
package learns of frameworks only from here.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module

from detconf.frameworks.base import Framework
from detconf.knob import Knob

NAMES = ("process", "native", "numpy", "torch", "paddle")
"""In the order in which their knobs are written: environment first, frameworks after."""


@cache
def framework(name: str) -> Framework:
    """The framework called `name`, one of `NAMES`."""
    found: Framework = import_module(f"detconf.frameworks.{name}.knobs").FRAMEWORK
    return found


def frameworks() -> tuple[Framework, ...]:
    """All frameworks, in order."""
    return tuple(map(framework, NAMES))


@lru_cache(maxsize=1 << 12)
def adds(name: str) -> str:
    """What an operation adds up, by its name in a recording or a study: `base.PRODUCTS`, `base.TERMS`, or nothing.

    Overloads, the mark of in-place, and gradients count as the operation: "aten.addmm_", "aten.sum.dim_IntList", "paddle.matmul.grad".
    """
    while name:
        found = _sums().get(name) or _sums().get(name.rstrip("_"))
        if found:
            return found
        name = name.rpartition(".")[0]
    return ""


@cache
def _sums() -> dict[str, str]:
    modules = [import_module(each.sums) for each in frameworks() if each.sums]
    return {name: what for module in modules for name, what in module.SUMS.items()}


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Knob]:
    """All knobs by name, in the order of declaration. Callers must not change it."""
    return {knob.name: knob for each in frameworks() for knob in each.knobs}
