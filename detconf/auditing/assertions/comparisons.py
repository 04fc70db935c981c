"""The comparisons that tests make, and what is read off a call of one: operands, tolerances, the place in the source.

`assert_allclose(actual, desired)` and the like take the candidate first, the reference second.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

ASSERTIONS: Mapping[str, tuple[str, ...]] = {
    "numpy.testing": ("assert_allclose", "assert_array_equal", "assert_array_almost_equal", "assert_almost_equal", "assert_equal"),
    "torch.testing": ("assert_close",),
}
"""Functions that raise AssertionError, by module."""
PREDICATES: Mapping[str, tuple[str, ...]] = {"numpy": ("allclose", "array_equal"), "torch": ("allclose", "equal")}
"""Functions that return False, by module."""
METHODS = ("assertAlmostEqual",)
"""Of unittest.TestCase."""
APPROXIMATE = ("ApproxNumpy", "ApproxMapping", "ApproxSequenceLike", "ApproxScalar")
"""Classes of pytest: `==` with what pytest.approx gives."""
_NAMES = (("actual", "x", "a", "a1", "first", "input"), ("desired", "expected", "y", "b", "a2", "second", "other"))
_CLOSE = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""Defaults of torch.testing.assert_close (torch/testing/_comparison.py, _DTYPE_PRECISIONS), by dtype; complex as their parts."""
_OURS = os.path.join(os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir)), "")
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Comparison:
    """One call of a comparison.

    Attributes:
        function: its name.
        file, line: of the call.
        actual, desired: the operands as the source spells them; empty where it cannot be read.
        rtol, atol: |actual - desired| <= atol + rtol |desired|; None where the function has none.
        fails: the statement in which it stands fails where the function returns False.
        message: the first lines of the error.
    """

    function: str
    file: str
    line: int
    actual: str = ""
    desired: str = ""
    rtol: float | None = None
    atol: float | None = None
    fails: bool = True
    message: str = ""

    @property
    def place(self) -> str:
        """ "test_x.py:12"."""
        return f"{os.path.basename(self.file)}:{self.line}"

    @property
    def text(self) -> str:
        """The call, in short."""
        given = {name: getattr(self, name) for name in ("rtol", "atol") if getattr(self, name) is not None}
        words = [self.actual or "...", self.desired or "...", *(f"{name}={value:g}" for name, value in given.items())]
        return f"{self.function}({', '.join(words)})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def operands(plain: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """(actual, desired, all arguments by name) of a call; built-in functions by position."""
    try:
        bound = inspect.signature(plain).bind(*args, **kwargs)
        bound.apply_defaults()
        named = dict(bound.arguments)
    except (TypeError, ValueError):
        named = dict(zip(("input", "other"), args, strict=False)) | dict(kwargs)
    actual, desired = (next((named[each] for each in names if each in named), None) for names in _NAMES)
    return actual, desired, named


def tolerance(function: str, named: Mapping[str, Any], dtype: str) -> tuple[float | None, float | None]:
    """(rtol, atol) of a call."""
    if function in ("assert_array_almost_equal", "assert_almost_equal"):
        exponent = -_integer(named.get("decimal"), 6)
        return 0.0, 1.5 * 10.0**exponent
    if function == "assertAlmostEqual":
        delta = named.get("delta")
        return 0.0, float(delta) if delta is not None else 0.5 * 10.0 ** -_integer(named.get("places"), 7)
    if function in ("assert_array_equal", "assert_equal", "array_equal", "equal"):
        return 0.0, 0.0
    if function == "assert_close" and named.get("rtol") is None:
        return _CLOSE.get(dtype.replace("complex128", "float64").replace("complex64", "float32"), (0.0, 0.0))
    if function == "approx":  # the larger of the two counts (pytest's ApproxScalar.tolerance)
        rel, least = named.get("rel"), named.get("abs")
        return _number(1e-6 if rel is None and least is None else rel or 0.0), _number(1e-12 if least is None else least)
    rtol, atol = named.get("rtol", 1e-5), named.get("atol", 1e-8)
    return _number(rtol), _number(atol)


def approx(actual: Any, expected: Any, rel: Any, abs: Any) -> None:  # noqa: A002  # pytest's names
    """What `actual == pytest.approx(expected, rel, abs)` compares."""


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):  # an array of tolerances
        return None


def _integer(value: Any, default: int) -> int:
    return default if value is None else int(value)


def here(depth: int) -> Any:
    """The frame of user code that called a comparison: the first one outside of detconf, `depth` frames up or more."""
    frame: Any = sys._getframe(depth)  # noqa: SLF001  # the one way to a caller's line
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame


def spelt(file: str, line: int, function: str) -> tuple[str, str, bool]:
    """(actual, desired, must the statement fail where the call returns False) as the source says."""
    for statement, call, _ in _calls(file):
        if call.lineno <= line <= (call.end_lineno or call.lineno) and _called(call) == function:
            texts = [ast.unparse(each) for each in call.args[:2] if not isinstance(each, ast.Starred)]
            texts += [ast.unparse(each.value) for each in call.keywords if each.arg in (*_NAMES[0], *_NAMES[1])]
            if function == "approx":
                texts = [_other_side(statement, call), *texts[:1]]
            actual, desired = (text if len(text) <= _LONGEST else "" for text in [*texts, "", ""][:2])
            return actual, desired, _fails(statement, call)
    return "", "", False


def expected(file: str, line: int, function: str) -> bool:
    """Is a failure of the call caught where it stands: in `with assertRaises(...)`, or in a `try` with handlers?"""
    found = [
        caught for _, call, caught in _calls(file) if call.lineno <= line <= (call.end_lineno or call.lineno) and _called(call) == function
    ]
    return bool(found) and all(found)


def _other_side(statement: ast.stmt, call: ast.Call) -> str:
    """What a statement compares a call with."""
    compared = (each for each in ast.walk(statement) if isinstance(each, ast.Compare) and call in (each.left, *each.comparators))
    found = next(compared, None)
    return "" if found is None else ast.unparse(found.comparators[0] if call is found.left else found.left)


@lru_cache(maxsize=64)
def _calls(file: str) -> tuple[tuple[ast.stmt, ast.Call, bool], ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(_of(tree))


def _of(tree: ast.AST) -> Iterator[tuple[ast.stmt, ast.Call, bool]]:
    """Every call with the innermost statement that it stands in; is an error in it caught there?"""
    waiting: list[tuple[ast.stmt | None, ast.AST, bool]] = [(None, tree, False)]
    while waiting:
        statement, node, caught = waiting.pop()
        statement = node if isinstance(node, ast.stmt) else statement
        if isinstance(node, ast.Call) and statement is not None:
            yield statement, node, caught
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            caught = False
        inside = set(map(id, node.body)) if _catches(node) else set()  # type: ignore[attr-defined]  # those have one
        waiting.extend((statement, child, caught or id(child) in inside) for child in ast.iter_child_nodes(node))


def _catches(node: ast.AST) -> bool:
    if isinstance(node, (ast.With, ast.AsyncWith)):
        calls = [each.context_expr for each in node.items if isinstance(each.context_expr, ast.Call)]
        return any(_called(each) in ("raises", "assertRaises", "assertRaisesRegex", "suppress") for each in calls)
    return isinstance(node, ast.Try) and bool(node.handlers)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _fails(statement: ast.stmt, call: ast.Call) -> bool:
    """`assert call`, `assert call and ...`, `self.assertTrue(call)`."""
    if isinstance(statement, ast.Assert):
        return _needs(statement.test, call)
    inner = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(inner, ast.Call) and _called(inner) in ("assertTrue", "assert_") and bool(inner.args) and _needs(inner.args[0], call)


def _needs(test: ast.expr, call: ast.Call) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_needs(each, call) for each in test.values)
    if isinstance(test, ast.Compare):  # with pytest.approx(...)
        return call in (test.left, *test.comparators) and all(isinstance(each, ast.Eq) for each in test.ops)
    return test is call
