"""The axis `batch`: does a row of a batch have the bits that it has alone, or in a smaller batch?

For functions that take an argument `rows`, a slice, and give results for those rows. Each part runs in processes of its
own, and is compared with the leading rows of the plain run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from detconf.arrays import Array, Place
from detconf.causes.changes import Change, Setting
from detconf.comparison import Divergence, differences
from detconf.locating import Arm
from detconf.rowwise import locate
from detconf.targets import ROWS, Target, takes_rows
from detconf.values import Cause
from detconf.verification import Axis

NAME = "batch"
Results = Mapping[Place, Array]
Again = Callable[[Setting], Arm]
"""Run the target twice under a setting."""


def judge(target: Target, base: Arm, again: Again) -> Axis:
    """Run the first row alone, then half of the batch, and compare each with the leading rows of the whole."""
    reason = _refusal(target)
    if reason:
        return Axis(NAME, None, None, note=f"not judged: {reason}")
    whole = base.evidence.reference or {}
    alone = _part(again, 1)
    size = _size(whole, alone.results)
    if alone.failed or size < 2:
        note = f"with {alone.label}: {alone.failed}" if alone.failed else "not judged: no result has the rows as its first dimension"
        return Axis(NAME, False if alone.failed else None, None, note=note)
    parts = [alone] + ([_part(again, size // 2)] if size > 3 else [])
    for part in parts:
        divergence = part.divergence(whole, size)
        if divergence or part.failed:
            operation = locate(base, part.arm, size, part.count) if divergence else None
            return Axis(NAME, False, divergence, note=f"with {part.label}{part.failed and ': ' + part.failed}", operation=operation)
    left_out = len(whole) - len(alone.following(whole, size))
    note = ", ".join(part.label for part in parts) + (f"; {left_out} results do not follow rows and were not compared" if left_out else "")
    return Axis(NAME, True, None, note=note)


@dataclass(frozen=True, slots=True)
class _Part:
    """What the first `count` rows gave."""

    count: int
    label: str
    arm: Arm
    failed: str

    @property
    def results(self) -> Results:
        return self.arm.evidence.reference or {}

    def following(self, whole: Results, size: int) -> list[Place]:
        """The results whose first dimension is the rows."""
        return [place for place, array in self.results.items() if place in whole and _follows(whole[place], array, size, self.count)]

    def divergence(self, whole: Results, size: int) -> Divergence | None:
        places = self.following(whole, size)
        leading = {place: _leading(whole[place], self.count) for place in places}
        return next(differences(leading, {place: self.results[place] for place in places}), None)


def _part(again: Again, count: int) -> _Part:
    label = "one row alone" if count == 1 else f"the first {count} rows"
    arm = again(Setting((Change(words=label, cause=Cause.UNKNOWN, environment={ROWS: str(count)}),)))
    failed = next((failure.reason for failure in arm.evidence.failures), "")
    if not failed and arm.evidence.distinct > 1:
        failed = "its own runs differ"
    return _Part(count, label, arm, failed)


def _size(whole: Results, alone: Results) -> int:
    """Rows of the batch, by the first result that has one row where one was asked for; 0 where none has."""
    found = (whole[place].shape[0] for place, array in alone.items() if place in whole and array.shape[:1] == (1,) and whole[place].shape)
    return next((size for size in found if size > 1), 0)


def _follows(whole: Array, part: Array, size: int, count: int) -> bool:
    return whole.shape[:1] == (size,) and part.shape[:1] == (count,) and whole.shape[1:] == part.shape[1:]


def _leading(array: Array, count: int) -> Array:
    return Array(array.dtype, (count, *array.shape[1:]), array.data[: array.nbytes // array.shape[0] * count])


def _refusal(target: Target) -> str:
    """Why a target cannot be asked for some of its rows, or empty."""
    if isinstance(target, list):
        return "a command has no rows; pass a function that takes an argument `rows`, a slice"
    able = _says_rows(target) if isinstance(target, str) else takes_rows(target)
    return "" if able else "the function takes no argument `rows`, a slice of the batch that its results follow"


def _says_rows(target: str) -> bool:
    """The same by the text of the file: loading it here could import a framework."""
    file, _, name = target.rpartition(":")
    with open(file, "rb") as source:
        tree = ast.parse(source.read())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return bool(found) and _has_rows(found[-1].args)


def _has_rows(arguments: ast.arguments) -> bool:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [
        *zip(positional, [*defaults, *arguments.defaults], strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return any(
        each.arg == "rows" and (default is None or (isinstance(default, ast.Call) and ast.unparse(default.func) == "slice"))
        for each, default in pairs
    )
