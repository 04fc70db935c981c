"""Decisions that fall otherwise because what they read is rounded otherwise are no fault of a formula; what is behind them may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import detconf
from detconf.auditing.attempts.flipping import branches, flips, settled
from detconf.auditing.attempts.parting import Parting, part
from detconf.auditing.laboratory import Laboratory, Side
from detconf.auditing.question import Question
from detconf.frameworks.base import Captured

_R = np.random.default_rng(3)
W, X, V = (_R.normal(size=size).astype(np.float32) for size in ((48, 40), (400, 48), (40, 8)))
STEP = np.float32(0.0001)


def parted(reference: Callable[[], Any], candidate: Callable[[], Any]) -> Parting:
    """Where the two part."""
    laboratory, sides = Laboratory(), [Side("a", reference), Side("b", candidate)]
    real = [laboratory.plain(each) for each in sides]
    question = Question(laboratory, sides[0], sides[1], real[0], real[1], (Captured(), Captured()))
    assert question.exact_a is not None
    assert question.exact_b is not None
    (name,) = question.differing
    return part(question, question.exact_a, question.exact_b, name, 1e-9)


def in_order(x: Any, w: Any) -> Any:
    return x @ w


def in_halves(x: Any, w: Any) -> Any:
    return x[:, 24:] @ w[24:] + x[:, :24] @ w[:24]


def quantized(product: Callable[[Any, Any], Any], zero: float = 0.0) -> Callable[[], Any]:
    return lambda: (np.clip(np.round(product(X, W) / STEP), -1e6, 1e6) - zero) * STEP @ V


def test_rounding_to_whole_numbers_flips() -> None:
    """A product that is rounded to a grid: some elements fall on the other side, and all that follows with them."""
    found = detconf.audit(quantized(in_order), quantized(in_halves))
    assert found.cause == "ill-conditioned", found
    assert found.where is not None
    assert found.where.name == "numpy.round"
    assert found.proof is not None
    assert found.proof.kind == "removed"


def test_a_fault_behind_a_flip_is_not_hidden_by_it() -> None:
    """The same, and a wrong zero point after it: that is the cause."""
    found = detconf.audit(quantized(in_order), quantized(in_halves, zero=7.0))
    assert found.cause == "semantics", found


def test_casts_to_integers_flip() -> None:
    """Integers have no shadow to be repaired: what follows is the same operations."""

    def whole(product: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        return lambda: (product(torch.from_numpy(X), torch.from_numpy(W)) * 1e5).to(torch.int32).sum(0)

    found = detconf.audit(whole(in_order), whole(in_halves))
    assert found.cause == "ill-conditioned", found


def ties(compare: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Two equal columns, the second of them added up in another order; the choice is an array of truth values."""
    w = W.copy()
    w[:, 7] = w[:, 2]

    def run() -> Any:
        scores, again = X @ w, (X * w[:, 7]).sum(1)
        return {"chosen": compare(scores[:, 2], again), "value": scores[:, 2] + again}

    return run


def test_comparisons_of_equals_flip_across_frameworks() -> None:
    """Equal columns give equal bits in one product, and not where one of them is added up otherwise: by whatever name."""
    w = W.copy()
    w[:, 7] = w[:, 2]

    def one_product() -> Any:
        scores = torch.from_numpy(X) @ torch.from_numpy(w)
        return {"chosen": scores[:, 2] >= scores[:, 7], "value": scores[:, 2] + scores[:, 7]}

    found = detconf.audit(one_product, ties(lambda a, b: b <= a))
    assert found.cause == "ill-conditioned", found


def test_another_comparison_is_no_flip() -> None:
    """`>` for `>=` on whole numbers decides otherwise with the same bits on both sides: a formula."""
    x = _R.integers(-3, 4, size=(30, 6)).astype(np.float32)
    parting = parted(lambda: np.where(x * 2 >= 2, x, 0), lambda: np.where(x * 2 > 2, x, 0))
    assert [each.name for each in parting.theirs.sources] == ["numpy.greater"]
    assert flips(parting) == []
    assert settled(parting) == (None, parting)


def test_what_could_not_be_followed_is_not_called_another_formula() -> None:
    """Quantized tensors have no shadow: nothing is known of what is read from them."""

    def quantized_by_torch(product: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        def run() -> Any:
            return torch.quantize_per_tensor(product(torch.from_numpy(X), torch.from_numpy(W)), 0.0001, 0, torch.qint32).int_repr()

        return run

    found = detconf.audit(quantized_by_torch(in_order), quantized_by_torch(in_halves))
    assert found.cause == "unknown", found
    assert any("not followed" in each for each in found.unexamined), found.unexamined


def relaxed(
    product: Callable[[Any, Any], Any], numbers: Callable[[Any], Any] = lambda error: error, rounds: int = 400
) -> Callable[[], Any]:
    """A linear system by relaxation, until an iterate moves by less than a bound."""
    matrix = (W.T @ W + 48 * np.eye(40, dtype=np.float32)).astype(np.float32)
    wanted, diagonal = V[:, 0].copy(), 6 * np.diag(matrix)

    def run(bound: float = 0.0) -> Any:
        x = np.zeros(40, np.float32)
        for _ in range(rounds):
            new = x + (wanted - product(matrix, x)) / diagonal
            moved, x = np.abs(new - x).max(), new
            if numbers(moved) < bound:
                break
        return x

    return run


def at_a_border() -> float:
    """A bound at which the two orders of addition stop after different numbers of rounds."""
    for bound in np.geomspace(1e-6, 1e-4, 4000):
        a, b = (relaxed(each)(bound) for each in (np.matmul, by_rows))
        if 0.1 * bound < np.abs(a - b).max() < 2 * bound:
            return float(bound)
    raise AssertionError


def by_rows(matrix: Any, x: Any) -> Any:
    return (matrix * x).sum(1)


def test_a_loop_that_ends_one_round_later() -> None:
    """By a number that agrees in higher precision: rounding ends the loop. The same loop, told to go on once more, is another program."""
    bound = at_a_border()
    a, b = relaxed(np.matmul), relaxed(by_rows)
    found, _ = settled(parted(lambda: a(bound), lambda: b(bound)))
    assert found is not None
    assert found.cause == "ill-conditioned"
    assert found.operation is not None
    assert (found.operation.name, found.operation.source.split(":")[0]) == ("python.lt", "tests/test_audit_flipping.py")
    assert not branches(parted(relaxed(np.matmul, rounds=8), relaxed(np.matmul, rounds=9)))


def test_a_loop_that_asks_by_a_plain_float() -> None:
    """`float(x)` cannot be followed: rounding may decide there, and what is only repeated is not called another formula."""
    bound = at_a_border()
    a, b = relaxed(np.matmul, float), relaxed(by_rows, float)
    parting = parted(lambda: a(bound), lambda: b(bound))
    assert settled(parting)[0] is None
    assert branches(parting)


def test_a_loop_in_torch_asks_by_an_item() -> None:
    """`item()` gives a number that is followed."""
    rows = torch.from_numpy(X).square()

    def halved(added: Callable[[Any], Any]) -> Callable[[], Any]:
        def run() -> Any:
            x = added(rows) * 0.5
            while x.item() >= edge:
                x = x * 0.5
            return x

        return run

    sums = (lambda x: x.sum(), lambda x: x.flip(0).sum(0).sum())
    low, edge = sorted(0.5 * float(each(rows)) for each in sums)
    assert low < edge
    found, _ = settled(parted(*(halved(each) for each in sums)))
    assert found is not None
    assert found.cause == "ill-conditioned"
