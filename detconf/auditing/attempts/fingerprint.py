"""The arithmetic of one product of matrices, told from the residual on sampled elements. Pure.

For each format the product of the rounded factors is formed in float64, and what is left of the observed error is measured
in units of float32 accumulation, u sqrt(sum a^2 b^2). Measured: 0.4 to 12 for the arithmetic that was used (80 where the
hardware truncates while it adds), thousands for every other; enough down to one element of sixteen terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.frameworks.base import PRODUCTS
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
        rows, columns = spread(self.left.shape[0], _ROWS), spread(self.right.shape[1], _COLUMNS)
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
    reads = [each.shadow for each in operation.reads]
    found = factors(reads, np.asarray(known.shadow))
    if found is None:
        return None
    _, before = ancestors(study, [each.value for each in operation.reads])
    left, right = found.of(reads)
    return None if any(_contracts(study.operations[each]) for each in before) else Product(left, right, UNIT[value.dtype])


@dataclass(frozen=True, slots=True)
class Factors:
    """Which of the arrays that were read are multiplied, as what matrices, and which are added to the product.

    Attributes:
        left, right: (number of the array, number of its matrix in `_matrices`).
        added: numbers of arrays.
        shape: (rows, columns) of the result.
    """

    left: tuple[int, int]
    right: tuple[int, int]
    added: tuple[int, ...]
    shape: tuple[int, int]

    def of(self, arrays: Sequence[Any]) -> tuple[Any, Any]:
        """The factors, (rows, terms) and (terms, columns), float64."""
        left, right = (_matrices(np.asarray(arrays[place], np.float64))[which] for place, which in (self.left, self.right))
        return left, right


def factors(arrays: Sequence[Any], result: Any, near: float = _EQUAL) -> Factors | None:
    """Those whose product, with everything else that was read added, is the result; None where there are none.

    Args:
        arrays: what was read.
        result: of any shape.
        near: relative to the sums of absolute products: how far the result may be off.
    """
    reads = [np.asarray(each, np.float64) for each in arrays if _real(each)]
    if not result.size or len(reads) != len(arrays):
        return None
    for i, j in itertools.permutations(range(len(reads)), 2):
        others = tuple(place for place in range(len(reads)) if place not in {i, j})
        for (p, left), (q, right) in itertools.product(enumerate(_matrices(reads[i])), enumerate(_matrices(reads[j]))):
            flat = _flat(result, left.shape[0], right.shape[1])
            if left.shape[1] == right.shape[0] and flat is not None and _is_product(left, right, [reads[at] for at in others], flat, near):
                return Factors((i, p), (j, q), others, (left.shape[0], right.shape[1]))
    return None


def _flat(result: Any, rows: int, columns: int) -> Any:
    """A result as a matrix, if it has that many rows and columns."""
    shape = (1, result.size) if result.ndim < 2 else (result.size // result.shape[-1], result.shape[-1])
    fits = (rows, columns) == shape or (result.ndim == 1 and (rows, columns) == shape[::-1])
    return result.reshape(rows, columns) if fits else None


def _matrices(array: Any) -> list[Any]:
    """An array as matrices: itself, and transposed."""
    if not array.size or array.ndim == 0:
        return []
    if array.ndim == 1:
        return [array[None, :], array[:, None]]
    return [array.reshape(-1, array.shape[-1]), *([array.T] if array.ndim == 2 else [])]


def _is_product(left: Any, right: Any, added: list[Any], result: Any, near: float) -> bool:
    rows, columns = spread(left.shape[0], _ROWS), spread(right.shape[1], _COLUMNS)
    place = np.ix_(rows, columns)
    exact = left[rows] @ right[:, columns]
    for each in added:
        if each.shape[-1:] not in ((1,), (result.shape[1],)) or (each.ndim > 1 and each.size != result.size):
            return False
        exact = exact + np.broadcast_to(each.reshape(-1, each.shape[-1]), result.shape)[place]
    scale = np.abs(left[rows]) @ np.abs(right[:, columns])
    with np.errstate(all="ignore"):
        return bool(np.all(np.abs(exact - result[place]) <= near * scale))


def _contracts(operation: Operation) -> bool:
    """May it be a product? It is known as one, or it makes of two arrays something of another size."""
    if operation.adds == PRODUCTS:
        return True
    sizes = [int(np.prod(each.shape, dtype=np.int64)) for each in operation.writes]
    read = [np.size(each.shadow) for each in operation.reads if each.shadow is not None and np.size(each.shadow) > 1]
    return len(read) > 1 and any(part not in (1, max(sizes, default=0)) for part in read)


def _real(shadow: Any) -> bool:
    return shadow is not None and np.asarray(shadow).dtype.kind == "f"


def spread(count: int, wanted: int) -> Any:
    """At most so many of `count` places, evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).astype(np.int64))
