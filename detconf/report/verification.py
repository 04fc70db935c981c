"""A verification for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from detconf.comparison import Divergence
from detconf.report.text import table
from detconf.verification import Verification

_SHOWN = 12


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
    how = " and ".join({"rerun": "in one process", "process": "in fresh processes"}.get(axis.axis, axis.axis) for axis in result.axes)
    if result.stable:
        yield f"bitwise stable{under}: {result.runs} runs {how}, {compared}, {seen.bytes:,} bytes each"
        yield f"  digest {result.digests['runs'][0]}"
        if result.missed_at_95 is not None:
            yield f"  what differs in {result.missed_at_95:.0%} of reruns would have gone unnoticed with a chance of 5 %"
    else:
        yield f"NOT stable{under}: {result.distinct} distinct results in {result.runs} runs {how} ({compared}); cause: {result.cause}"
    if result.divergence:
        yield from _divergence(result.divergence)
    for failure in result.failures:
        yield f"  run {failure.run}: {failure.reason}"
        yield from (f"    {line}" for line in failure.lines)
    rows = result.digests["arrays"]
    if verbose or result.stable:
        shown = rows if verbose else rows[:_SHOWN]
        yield table(("array", "digest"), [(_label(row["name"], row["step"]), _digests(row["digests"])) for row in shown])
        if len(shown) < len(rows):
            yield f"  and {len(rows) - len(shown)} more (-v shows all)"


def _label(name: str, step: int | None) -> str:
    return name if step is None else f"{name} (step {step})"


def _digests(digests: list[str | None]) -> str:
    found = dict.fromkeys(digests)
    return next(iter(found)) or "-" if len(found) == 1 else f"{len(found)} different"


def _divergence(found: Divergence) -> Iterator[str]:
    place = "".join(
        (
            f", step {found.step}" if found.step is not None else "",
            f", rank {found.rank}" if found.rank else "",
            f"   {found.source}" if found.source else "",
        )
    )
    yield f"  first difference  {found.name}{place}: {found.dtype}{list(found.shape)}, {found.kind}"
    if found.differing is not None:
        yield f"    differing       {found.differing:,} of {found.elements:,} elements, the first at {list(found.index or ())}"
    if found.values:
        yield f"    there           {found.values[0]}  against  {found.values[1]}"
    if found.max_ulp is not None:
        yield f"    largest         {found.max_ulp:,} ULP, absolute {found.max_abs:.3g}, {found.scaled or 0:.3g} roundings of a typical element"
    elif found.max_abs is not None:
        yield f"    largest         absolute {found.max_abs:.3g}"
    if found.nonfinite:
        yield f"    not finite      {found.nonfinite:,} elements"
