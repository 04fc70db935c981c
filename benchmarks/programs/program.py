"""A small program with a planted cause, as the text of a Python file; and how one text becomes NumPy, torch or paddle."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from textwrap import dedent, indent

FRAMEWORKS = ("numpy", "torch", "paddle")
_IMPORTS = {
    "np": "import numpy as np",
    "torch": "import torch",
    "paddle": "import paddle",
    "F": "import torch.nn.functional as F",
    "PF": "import paddle.nn.functional as PF",
    "math": "import math",
    "ml_dtypes": "import ml_dtypes",
    "copy": "import copy",
    "random": "import random",
}
_WORDS = {
    "numpy": {"$": "np", "AX": "axis", "KEEP": "keepdims"},
    "torch": {"$": "torch", "AX": "dim", "KEEP": "keepdim"},
    "paddle": {"$": "paddle", "AX": "axis", "KEEP": "keepdim"},
}


@dataclass(frozen=True, slots=True)
class Program:
    """See the module.

    Attributes:
        family: the planted cause.
        name: which plant of the family.
        setup: module level of the file: data and functions.
        right, wrong: bodies of the two sides.
        repaired: body of the wrong side without the planted cause; empty where there is nothing to repair.
        also: causes that are right too.
        unit: unit roundoff of the finer side.
        wide: does the same text with float64 for float32 mean the same? Not where random numbers are drawn.
        swapped: is the right side the candidate?
    """

    family: str
    name: str
    setup: str
    right: str
    wrong: str
    repaired: str = ""
    also: tuple[str, ...] = ()
    unit: float = 2.0**-24
    wide: bool = True
    swapped: bool = False

    @property
    def source(self) -> str:
        """The whole file."""
        sides = {"reference": self.right, "candidate": self.wrong}
        if self.swapped:
            sides = {"reference": self.wrong, "candidate": self.right}
        if self.repaired:
            sides["repaired"] = self.repaired
        functions = "\n\n".join(f"def {name}():\n{indent(dedent(body).strip(), '    ')}\n" for name, body in sides.items())
        text = f"{dedent(self.setup).strip()}\n\n\n{functions}"
        used = [line for name, line in _IMPORTS.items() if re.search(rf"(?<![\w.]){name}\.", text)]
        return f'"""{self.family}: {self.name}."""\n' + "\n".join(used) + f"\n\n{text}"


Plant = Callable[[Random], Program]


def pick(rng: Random, *frameworks: str) -> str:
    """A framework, of these or all."""
    return rng.choice(frameworks or FRAMEWORKS)


def data(rng: Random, **shapes: tuple[int, ...] | tuple[tuple[int, ...], float]) -> str:
    """Module-level arrays of normal float32 numbers: name=shape, or name=(shape, scale)."""
    lines = [f"R = np.random.RandomState({rng.randrange(10**6)})"]
    for name, given in shapes.items():
        shape, scale = given if isinstance(given[0], tuple) else (given, 1.0)
        sizes = ", ".join(str(size) for size in shape)  # type: ignore[union-attr]
        factor = "" if scale == 1.0 else f" * {scale:.4g}"
        lines.append(f'{name} = (R.randn({sizes}){factor}).astype("float32")')
    return "\n".join(lines)


def spell(framework: str, neutral: str) -> str:
    """Neutral code as this framework's: `$.` its module, `AX` and `KEEP` its keywords, `K(NAME)` a module-level array, `OUT(x)` a result."""
    for word, own in _WORDS[framework].items():
        neutral = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", own, neutral) if word != "$" else neutral.replace("$.", f"{own}.")
    wrap = {"numpy": r"\1", "torch": r"torch.from_numpy(\1)", "paddle": r"paddle.to_tensor(\1)"}[framework]
    neutral = re.sub(r"(?<!\w)K\(([\w.\[\]:, -]+)\)", wrap, neutral)
    return re.sub(r"(?<!\w)OUT\((\w+)\)", r"\1" if framework == "numpy" else r"\1.numpy()", neutral)


def body(framework: str, lines: Sequence[str], start: str = "K(X)") -> str:
    """A side that takes `h` from `start` through neutral lines to the result `y`."""
    text = "\n".join([f"h = {start}", *(dedent(line).strip("\n") for line in lines), 'return {"y": OUT(h)}'])
    return spell(framework, text)
