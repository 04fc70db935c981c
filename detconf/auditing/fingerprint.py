"""The arithmetic of one product of matrices, told from the residual on sampled elements. Pure.

For each format the product of the rounded factors is formed in float64, and what is left of the observed error is measured
in units of float32 accumulation, u sqrt(sum a^2 b^2). Measured: 0.4 to 12 for the arithmetic that was used (80 where the
hardware truncates while it adds), thousands for every other; enough down to one element of sixteen terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.shadows.formats import ROUNDINGS, UNIT, round_to
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Known, Operation, Study

_ROWS, _COLUMNS = 8, 64
"""Sampled, evenly spread: a few thousand terms for each of 512 elements cost milliseconds."""
_FITS, _BETTER = 100.0, 8.0
"""Residual of the right format at most; float32 must leave so many times more."""
_SAME = 1.5
"""TF32 and float16 have equally many bits: only very small factors tell them apart, and else the first is named."""
_EQUAL = 1e-9
_NAMED = ("mm", "mat", "linear", "conv", "dot", "einsum", "inner", "mv", "rnn", "lstm", "gru", "attention", "linalg", "fft")
"""In the names of operations that multiply and add; a few others are called so as well, and lose nothing by it."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two matrices, and nothing else that is rounded.

    Attributes:
        left, right: its exact factors, float64, (rows, terms) and (terms, columns).
        unit: unit roundoff of the real result.
    """

    left: Any
    right: Any
    unit: float

    def tried(self, error: Any) -> dict[str, tuple[float, float]]:
        """Per format of `ROUNDINGS`: (what it does not explain of the error, root mean square in the units of the module; the
        mean distance that it would make), over the sampled elements.

        Args:
            error: real result minus exact result, of `left @ right`'s shape.
        """
        rows, columns = _spread(self.left.shape[0], _ROWS), _spread(self.right.shape[1], _COLUMNS)
        a, b = self.left[rows], self.right[:, columns]
        observed = error.reshape(self.left.shape[0], -1)[np.ix_(rows, columns)]
        exact = a @ b
        size = np.maximum(self.unit * np.sqrt(np.square(a) @ np.square(b)), 1e-300)
        found = {}
        with np.errstate(all="ignore"):
            for form in ROUNDINGS:
                effect = round_to(a, form) @ round_to(b, form) - exact
                found[form] = float(np.sqrt(np.mean(np.square((observed - effect) / size)))), float(np.mean(np.abs(effect)))
        return found


def named(tried: Mapping[str, tuple[float, float]]) -> str:
    """The format to which the factors were rounded, by what `Product.tried` gave; empty where none explains the error."""
    left = {form: residual for form, (residual, _) in tried.items()}
    least = min(left.values())
    if not least <= _FITS or least * _BETTER >= left["float32"]:
        return ""
    return next(form for form, each in left.items() if each <= _SAME * least)


def last_product(study: Study, known: Known) -> Product | None:
    """The product that `known` comes straight out of, if it is the only one before it; None where that is not so."""
    value = known.value
    if value.maker < 0 or value.shadow is None or known.shadow.shape != value.shape or value.dtype != "float32":
        return None
    operation = study.operations[value.maker]
    found = next(_products(operation, np.asarray(known.shadow)), None)
    if found is None:
        return None
    _, before = ancestors(study, [each.value for each in operation.reads])
    return None if any(_contracts(study.operations[each]) for each in before) else Product(*found, UNIT[value.dtype])


def _products(operation: Operation, result: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of what was read, transposed or not, whose product, with something else that was read added, is the result."""
    reads = [np.asarray(each.shadow, np.float64) for each in operation.reads if _real(each.shadow)]
    if result.ndim < 2 or not result.size or len(reads) != len(operation.reads):
        return
    flat = result.reshape(-1, result.shape[-1])
    for i, j in itertools.permutations(range(len(reads)), 2):
        added = [each for place, each in enumerate(reads) if place not in (i, j)]
        for left, right in itertools.product(_matrices(reads[i]), _matrices(reads[j])):
            fits = left.shape[1] == right.shape[0] and (left.shape[0], right.shape[1]) == flat.shape
            if fits and _is_product(left, right, added, flat):
                yield left, right


def _matrices(array: Any) -> Iterator[Any]:
    if array.ndim >= 2 and array.size:
        yield array.reshape(-1, array.shape[-1])
    if array.ndim == 2 and array.size:
        yield array.T


def _is_product(left: Any, right: Any, added: list[Any], result: Any) -> bool:
    rows, columns = _spread(left.shape[0], _ROWS), _spread(right.shape[1], _COLUMNS)
    place = np.ix_(rows, columns)
    exact = left[rows] @ right[:, columns]
    for each in added:
        if each.shape[-1:] not in ((1,), (result.shape[1],)) or (each.ndim > 1 and each.size != result.size):
            return False
        exact = exact + np.broadcast_to(each.reshape(-1, each.shape[-1]), result.shape)[place]
    scale = np.abs(left[rows]) @ np.abs(right[:, columns])
    with np.errstate(all="ignore"):
        return bool(np.all(np.abs(exact - result[place]) <= _EQUAL * scale))


def _contracts(operation: Operation) -> bool:
    """May it be a product? By its name, or because it makes of two arrays something of another size."""
    if any(word in operation.name for word in _NAMED):
        return True
    sizes = [int(np.prod(each.shape, dtype=np.int64)) for each in operation.writes]
    read = [np.size(each.shadow) for each in operation.reads if each.shadow is not None and np.size(each.shadow) > 1]
    return len(read) > 1 and any(part not in (1, max(sizes, default=0)) for part in read)


def _real(shadow: Any) -> bool:
    return shadow is not None and np.asarray(shadow).dtype.kind == "f"


def _spread(count: int, wanted: int) -> Any:
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).astype(np.int64))
