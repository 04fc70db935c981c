"""A verification for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from detconf.comparison import Divergence
from detconf.report.text import table
from detconf.values import Cause
from detconf.verification import Axis, Operation, Verification

_SHOWN = 12
_HOW = {"rerun": "in one process", "process": "in fresh processes", "ranks": "in two ranks"}


def verification(result: Verification, verbose: bool) -> str:
    """The verdict, what it rests on, and where the runs first part."""
    return "\n".join(_lines(result, verbose))


def _lines(result: Verification, verbose: bool) -> Iterator[str]:
    seen = result.observed
    under = f" under {result.profile}" if result.profile else ""
    compared = ", ".join(
        f"{number} {word}{'' if number == 1 else 's'}"
        for number, word in ((seen.arrays, "array"), (seen.steps, "step"), (seen.ranks, "rank"))
        if number > (word == "rank")
    )
    how = " and ".join(_HOW[axis.axis] for axis in result.axes if axis.axis in _HOW)
    if result.distinct > 1:
        yield f"NOT stable{under}: {result.distinct} distinct results in {result.runs} runs {how} ({compared}); cause: {result.cause}"
    else:
        varied = ", ".join(axis.axis for axis in result.axes if axis.invariant is False)
        verdict = f"NOT invariant over {varied}{under}; cause: {result.cause}; reruns agree" if varied else f"bitwise stable{under}"
        yield f"{verdict}: {result.runs} runs {how}, {compared}, {seen.bytes:,} bytes each"
        yield f"  digest {result.digests['runs'][0]}"
        if result.missed_at_95 is not None:
            yield f"  what differs in {result.missed_at_95:.0%} of reruns would have gone unnoticed with a chance of 5 %"
        if result.until is not None and (result.missed_at_95 or 0) > result.until:
            yield f"  fewer runs than were asked for: the most that were allowed ({result.runs}) do not show {result.until:.2%}"
    if len(result.axes) > 1:
        yield table(("axis", "invariant", "what was run", "restored by"), map(_axis, result.axes))
    if result.divergence:
        yield from divergence(result.divergence)
    yield from _operations(result)
    yield from _experiments(result, verbose)
    for failure in result.failures:
        yield f"  run {failure.run}: {failure.reason}"
        yield from (f"    {line}" for line in failure.lines)
    rows = sorted(result.digests["arrays"], key=lambda row: row["origin"] == "state")  # what the program names comes first
    if verbose or result.stable:
        shown = rows if verbose else rows[:_SHOWN]
        yield table(("array", "digest"), [(_label(row["name"], row["step"]), _digests(row["digests"])) for row in shown])
        if len(shown) < len(rows):
            yield f"  and {len(rows) - len(shown)} more (-v shows all)"


def _operations(result: Verification) -> Iterator[str]:
    """The one of the first axis that has one; the table names those of the others, whose notes follow."""
    if result.operation:
        yield from _operation(result.operation)
    for axis in result.axes:
        if axis.operation and axis.operation is not result.operation:
            yield from (f"  note              {axis.axis}: {note}" for note in axis.operation.notes)


def _operation(found: Operation) -> Iterator[str]:
    """The first operation by which recorded runs part, and what that does not show."""
    finding = found.finding
    if finding:
        yield from divergence(finding.divergence, "first operation")
        if finding.divergence.scope:
            yield f"    in              {finding.divergence.scope}"
        if finding.hint:
            yield f"    known           {finding.hint}"
        for each in (other.divergence for other in found.others):
            step = f", step {each.step}" if each.step else ""
            yield f"    introduced too  {' '.join(filter(None, (each.name, each.scope and f'in {each.scope}', each.source)))}{step}"
    yield from (f"  note              {note}" for note in found.notes)


def _axis(axis: Axis) -> tuple[str, ...]:
    verdict = {True: "yes", False: "NO", None: "not judged"}[axis.invariant]
    parts = [axis.note, f"first in {axis.divergence.name}" if axis.divergence else ""]
    if axis.operation and axis.operation.finding:
        found = axis.operation.finding.divergence
        step = f", step {found.step}" if found.step else ""
        parts.append(f"first operation {found.name}{found.source and f' at {found.source}'}{step}")
    return axis.axis, verdict, "; ".join(filter(None, parts)), axis.restored_by or ""


def _experiments(result: Verification, verbose: bool) -> Iterator[str]:
    for axis in result.axes:
        yield from (f"  evidence          {each}" for each in axis.evidence)
        if axis.restored_by and axis.axis in _HOW:
            yield f"  proof             removed: the runs agree with {axis.restored_by}"
    if result.cause is Cause.UNKNOWN or verbose:
        for tried in result.tried:
            agreed = "agreed" if tried.agreed else "did not agree"
            yield f"  tried             {' + '.join(tried.changes) or 'nothing'}: {agreed} in {tried.runs} runs{tried.note and f' ({tried.note})'}"


def _label(name: str, step: int | None) -> str:
    return name if step is None else f"{name} (step {step})"


def _digests(digests: list[str | None]) -> str:
    found = dict.fromkeys(digests)
    return next(iter(found)) or "-" if len(found) == 1 else f"{len(found)} different"


def divergence(found: Divergence, head: str = "first difference") -> Iterator[str]:
    """Where two results first part, and by how much."""
    place = "".join(
        (
            f", step {found.step}" if found.step is not None else "",
            f", rank {found.rank}" if found.rank else "",
            f"   {found.source}" if found.source else "",
        )
    )
    yield f"  {head:<16}  {found.name}{place}: {found.dtype}{list(found.shape)}, {found.kind}"
    if found.differing is not None:
        yield f"    differing       {found.differing:,} of {found.elements:,} elements, the first at {list(found.index or ())}"
    if found.values:
        yield f"    there           {found.values[0]}  against  {found.values[1]}"
    figures = (
        f"{found.max_ulp:,} ULP" if found.max_ulp is not None else "",
        f"absolute {found.max_abs:.3g}" if found.max_abs is not None else "",
        f"{found.scaled:.3g} roundings of a typical element" if found.scaled is not None else "",
    )
    if any(figures):
        yield f"    largest         {', '.join(filter(None, figures))}"
    if found.nonfinite:
        yield f"    not finite      {found.nonfinite:,} elements"
