"""An audit for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from detconf.auditing.result import Audit, Evidence
from detconf.comparison import Divergence
from detconf.report.text import table


def audit(result: Audit, verbose: bool) -> str:
    """The cause first, then what it rests on."""
    return "\n".join(_lines(result, verbose))


def _lines(result: Audit, verbose: bool) -> Iterator[str]:
    yield f"{result.cause}: {result.summary}"
    yield from (f"  not examined  {each}" for each in result.unexamined)
    if result.where:
        yield f"  where         {_where(result.where)}"
    yield from (f"  evidence      {_evidence(each)}" for each in result.evidence)
    if result.proof:
        share = "" if result.proof.share is None else f" ({result.proof.share:.1%} of the elements bit for bit)"
        yield f"  proof         {result.proof.kind}: {result.proof.what}{share}"
    yield from (
        f"  fix           {'verified' if each.verified else 'suggested'}: {each.text}{each.cost and f' ({each.cost})'}"
        for each in result.fixes
    )
    for each in result.tolerance[: None if verbose else 6]:
        said = "" if each.measured is None else _share(each.measured)
        yield f"  tolerance     {each.name}: a correct program keeps rtol={each.rtol:.1e} atol={each.atol:.1e}{said}"
    if result.used:
        yield f"  tolerance     {result.used}"
    if result.rungs:
        yield table(("graph mode", "", ""), [(each.name, each.status, each.note) for each in result.rungs])
    if verbose or not result.proof:
        yield from (f"  tried         {each}" for each in result.tried)


def _evidence(each: Evidence) -> str:
    figure = f"{each.figure:.4g}" if isinstance(each.figure, float) else each.figure
    return each.statement if figure is None or str(each.figure) in each.statement else f"{each.statement}: {figure}"


def _where(found: Divergence) -> str:
    place = f"{found.name}{f' in {found.scope}' if found.scope else ''}{f', step {found.step}' if found.step else ''}"
    parts = [place, found.source]
    if found.differing is not None:
        parts.append(f"{found.differing:,} of {found.elements:,} elements differ, first at {list(found.index or ())}")
    if found.max_abs is not None:
        parts.append(f"largest difference {found.max_abs:.3g} ({found.max_ulp} ULP)")
    return "   ".join(filter(None, parts))


def _share(measured: float) -> str:
    return f"; the sides use {measured:.0%} of it" if measured < _MANY else f"; the sides are {measured:.2g} times as far apart"


_MANY = 10
