"""A comparison for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from detconf.comparing.result import Comparison, Counts, Finding, Verdict
from detconf.report.text import table
from detconf.report.verification import divergence
from detconf.values import show

_SHOWN = 12


def comparison(result: Comparison, verbose: bool) -> str:
    """The facts that differ, the verdict, where the two first part, and how far that reaches."""
    return "\n".join(_lines(result, verbose))


def _lines(result: Comparison, verbose: bool) -> Iterator[str]:
    if result.environment:
        rows = [(row.fact, show(row.a), show(row.b), "yes" if row.can_change_bits else "no") for row in result.environment]
        shown = rows if verbose else rows[:_SHOWN]
        yield table(("differs between the two", result.a, result.b, "can change bits"), shown)
        yield from _more(len(rows) - len(shown))
        yield ""
    yield _headline(result)
    yield from (f"  note              {note}" for note in result.notes)
    if result.first:
        yield from _first(result.first)
    rest = [finding for finding in result.introduced if finding != result.first]
    yield from _list("introduced too" if result.kind == "recordings" else "differ too", rest, result.counts.introduced - 1, verbose)
    if result.affected and result.affected.steps:
        reach = result.affected
        yield f"  reach             {reach.steps} step{'s' * (reach.steps != 1)}, {reach.first_step} to {reach.last_step}"
        named = [f"{name} (step {step})" for name, step in reach.state[: None if verbose else 5]]
        if named:
            yield f"    state           {', '.join(named)}{_and_more(reach.state_total - len(named))}"
    yield from _list("missing", result.missing, result.counts.missing, verbose)
    yield from _list("extra", result.extra, result.counts.extra, verbose)


def _headline(result: Comparison) -> str:
    counts, what = result.counts, "events" if result.kind == "recordings" else "arrays"
    over = f" of {result.ranks} ranks" if result.ranks > 1 else ""
    if result.equal:
        return f"bitwise equal: {counts.compared:,} {what}{over}"
    return f"NOT equal: {', '.join(_parts(counts, result.kind))}; {counts.equal:,} of {counts.compared:,} {what}{over} are equal"


def _parts(counts: Counts, kind: str) -> Iterator[str]:
    words = (
        (counts.introduced, "introduced a difference" if kind == "recordings" else "differ"),
        (counts.propagated, "may have propagated it"),
        (counts.absorbed, "absorbed one"),
        (counts.missing, "missing"),
        (counts.extra, "extra"),
    )
    yield from (f"{number:,} {word}" for number, word in words if number)


def _first(found: Finding) -> Iterator[str]:
    yield from divergence(found.divergence)
    if found.hint:
        yield f"    known           {found.hint}"
    if found.divergence.scope:
        yield f"    in              {found.divergence.scope}"
    if found.events != (None, None):
        here, there = ("none" if event is None else str(event) for event in found.events)
        yield f"    event           {here}  against  {there}"
    if found.digests:
        yield f"    digests         {found.digests[0]}  against  {found.digests[1]}"
    if found.verdict is Verdict.INTRODUCED and found.events != (None, None) and found.divergence.differing is None:
        yield "    how much        not known: record both again with values around this event, such as --values FIRST:LAST"


def _list(head: str, findings: list[Finding] | tuple[Finding, ...], total: int, verbose: bool) -> Iterator[str]:
    if not findings:
        return
    shown = findings if verbose else findings[:_SHOWN]
    yield table((head, "step", "what", "hint"), map(_row, shown))
    yield from _more(max(total, len(findings)) - len(shown))


def _row(finding: Finding) -> tuple[str, str, str, str]:
    found = finding.divergence
    much = f"{found.differing:,} of {found.elements:,}" if found.differing is not None else str(found.kind)
    rank = f" rank {found.rank}" if found.rank else ""
    return found.name, "" if found.step is None else f"{found.step}{rank}", f"{found.dtype}{list(found.shape)} {much}", finding.hint


def _more(number: int) -> Iterator[str]:
    if number > 0:
        yield f"  and {number:,} more (-v and --json show more)"


def _and_more(number: int) -> str:
    return f" and {number:,} more" if number > 0 else ""
