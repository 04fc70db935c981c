"""Python's float arithmetic in float32, as an experiment: what a reference would give if it formed its scalars as kernels do.

Functions of one file are recompiled so that every float constant, and the result of every operation and call that is a
Python float or a scalar of float64, is rounded to float32. `beta ** t` with a whole t is a product of float32 instead, or
one rounding of the power. Nothing is written, modules are not loaded again; when the block ends, all is as it was.
"""

from __future__ import annotations

import ast
import gc
import linecache
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from detconf.lookup import is_imported, loaded

VARIANTS = ("products", "powers")
"""How `x ** n` with a whole n is formed: by n multiplications, or by one power."""
_NAME = "_detconf_single"
_POWER = "_detconf_power"
_LONGEST_POWER = 1 << 16
_SINGLE = struct.Struct("<f")


def single(value: Any) -> Any:
    """A Python float rounded to float32; a scalar of float64 as one of float32; anything else as it is."""
    if type(value) is float:
        return _rounded(value)
    if isinstance(value, float):  # a scalar of NumPy, which is a float too
        numpy = loaded("numpy") if is_imported("numpy") else None
        return numpy.float32(value) if numpy is not None and isinstance(value, numpy.float64) else _rounded(float(value))
    return value


def _rounded(value: float) -> float:
    try:
        found: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:  # beyond float32, where a kernel would not be given it
        return value
    return found


def product(base: Any, exponent: Any) -> Any:
    """`base ** exponent`, by multiplications in float32 where the base is a float and the exponent whole."""
    if type(base) is not float or type(exponent) is not int or not 0 <= exponent <= _LONGEST_POWER:
        return single(base**exponent)
    found, base = 1.0, _rounded(base)
    for _ in range(exponent):
        found = _rounded(found * base)
    return found


class _Rounding(ast.NodeTransformer):
    """Wraps what may be a float, on some lines.

    Args:
        lines: numbers; None for all.
    """

    def __init__(self, lines: Collection[int] | None) -> None:
        self.lines = lines
        self.touched: set[int] = set()

    def _wrapped(self, node: ast.expr) -> ast.expr:
        if self.lines is not None and node.lineno not in self.lines:
            return node
        self.touched.add(node.lineno)
        call = ast.Call(ast.Name(_NAME, ast.Load()), [node], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:  # the name that ast calls
        self.generic_visit(node)
        if isinstance(node.op, ast.Pow) and (self.lines is None or node.lineno in self.lines):
            self.touched.add(node.lineno)
            call = ast.Call(ast.Name(_POWER, ast.Load()), [node.left, node.right], [])
            return ast.fix_missing_locations(ast.copy_location(call, node))
        return self._wrapped(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:  # as above
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return node if name in ("super", "locals", "globals", "vars", "range", "print") else self._wrapped(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:  # as above
        return self._wrapped(node) if type(node.value) is float else node

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt] | ast.stmt:  # as above
        node.value = self.visit(node.value)
        if not isinstance(node.target, ast.Name):
            return node
        again = ast.Assign(
            [ast.Name(node.target.id, ast.Store())], self._wrapped(ast.copy_location(ast.Name(node.target.id, ast.Load()), node))
        )
        return [node, ast.fix_missing_locations(ast.copy_location(again, node))]

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:  # as above
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        return node  # defaults were computed when the function was made

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.MatchValue:  # as above
        return node


def transformed(file: str, lines: Collection[int] | None = None) -> tuple[dict[tuple[str, int], CodeType], set[int]]:
    """(the code of every function of a file, rounded, by name and first line; the lines on which something is).

    Args:
        file: of Python source.
        lines: where to round; None for everywhere.
    """
    source = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}, set()
    rounding = _Rounding(lines)
    changed = rounding.visit(tree)
    every: dict[tuple[str, int], list[CodeType]] = {}
    _collect(compile(changed, file, "exec", dont_inherit=True), every)
    # Of two functions of one name on one line, such as lambdas, it is not known which is which.
    found = {key: codes[0] for key, codes in every.items() if len(codes) == 1}
    reached = {line for code in found.values() for _, _, line in code.co_lines() if line is not None}
    return found, rounding.touched & (reached | set(_assigned(file).values()))


def _collect(code: CodeType, found: dict[tuple[str, int], list[CodeType]]) -> None:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found.setdefault((each.co_name, each.co_firstlineno), []).append(each)
            _collect(each, found)


@contextmanager
def rounding(file: str, variant: str = VARIANTS[0], lines: Collection[int] | None = None) -> Iterator[None]:
    """Inside the block the functions of a file that exist now compute with floats in float32."""
    codes, _ = transformed(file, lines)
    put: list[tuple[FunctionType, CodeType]] = []
    names: list[Any] = []
    for function in _functions(file):
        code = codes.get((function.__code__.co_name, function.__code__.co_firstlineno))
        if code is None or code.co_freevars != function.__code__.co_freevars:
            continue
        put.append((function, function.__code__))
        function.__code__ = code
        if _NAME not in function.__globals__:
            names.append(function.__globals__)
        function.__globals__.update({_NAME: single, _POWER: _power(variant)})
    constants = _module_constants(file, lines)
    try:
        yield
    finally:
        for function, code in put:
            function.__code__ = code
        for each in names:
            each.pop(_NAME, None)
            each.pop(_POWER, None)
        for module, name, value in constants:
            module[name] = value


def _power(variant: str) -> Any:
    return product if variant == "products" else lambda base, exponent: single(base**exponent)


def _functions(file: str) -> list[FunctionType]:
    return [each for each in gc.get_objects() if type(each) is FunctionType and each.__code__.co_filename == file]


def _module_constants(file: str, lines: Collection[int] | None) -> list[tuple[dict[str, Any], str, float]]:
    """Round the floats that a file's module assigns to names on these lines; what they were, to be put back."""
    wanted = {name for name, line in _assigned(file).items() if lines is None or line in lines}
    spaces: Mapping[int, dict[str, Any]] = {id(each.__globals__): each.__globals__ for each in _functions(file)}
    found = []
    for space in spaces.values():
        for name in wanted & set(space):
            if type(space[name]) is float:
                found.append((space, name, space[name]))
                space[name] = _rounded(space[name])
    return found


def _assigned(file: str) -> dict[str, int]:
    """Names that a module assigns, with their lines."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    return {
        each.id: each.lineno
        for statement in tree.body
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        for each in ast.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
