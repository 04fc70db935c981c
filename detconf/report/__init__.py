"""Any result -> terminal text or JSON. The only formatter: everything below returns data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from detconf.attestation import Attestation, Entry
from detconf.plan import Plan
from detconf.report.text import table
from detconf.values import Outcome, Reading, show


def as_json(result: Any) -> str:
    """`result.to_dict()` as JSON text; NaN and infinity never reach it."""
    return json.dumps(result.to_dict(), indent=2, allow_nan=False)


def text(result: Any, *, verbose: bool = False) -> str:
    """`result` for a terminal. `verbose` adds what does not apply here.

    Raises:
        TypeError: not a result of detconf.
    """
    for kind, formatter in _formatters():
        if isinstance(result, kind):
            return formatter(result, verbose)
    msg = f"{type(result).__name__} is not a result of detconf"
    raise TypeError(msg)


def _formatters() -> tuple[tuple[type, Callable[[Any, bool], str]], ...]:
    from detconf.auditing.result import Audit
    from detconf.comparing.result import Comparison
    from detconf.doctor import Diagnosis
    from detconf.inspection import Inspection
    from detconf.report.audit import audit
    from detconf.report.comparison import comparison
    from detconf.report.doctor import diagnosis
    from detconf.report.inspection import inspection
    from detconf.report.verification import verification
    from detconf.rerun import Verification  # loaded only where something is printed

    results = ((Verification, verification), (Audit, audit), (Comparison, comparison), (Inspection, inspection), (Diagnosis, diagnosis))
    return ((Attestation, _attestation), (Plan, _plan), *results)


def _attestation(result: Attestation, verbose: bool) -> str:
    bad = [entry for entry in result.entries if not entry.ok]
    rest = [entry for entry in result.entries if entry.ok and (entry.applies or verbose)]
    parts = [result.headline]
    if bad:
        parts.append(table(("not in force", "wanted", "now", "outcome"), map(_row, bad)))
        parts += filter(None, ["\n".join(_advice(bad))])
    waiting = Counter(entry.note.partition("restore: ")[0].rstrip("; ") for entry in rest if entry.outcome is Outcome.PENDING)
    shown = [entry for entry in rest if verbose or entry.outcome is not Outcome.PENDING]
    if shown:
        parts.append(table(("knob" if verbose else "in force", "wanted", "now", "outcome"), map(_row, shown)))
    if waiting and not verbose:
        parts.append("\n".join(f"  {number} {words}" for words, number in waiting.items()))
    return "\n\n".join(parts)


def _row(entry: Entry) -> tuple[str, ...]:
    return entry.knob, show(entry.wanted), _short(entry.now), str(entry.outcome) + ("" if entry.applies else " (not here)")


def _short(reading: Reading) -> str:
    return "-" if reading.problem else show(reading.value)


def _advice(bad: Sequence[Entry]) -> Iterator[str]:
    """What to do, once for all rows that need the same."""
    knobs: dict[str, list[str]] = {}
    for entry in bad:
        note = entry.note.partition("restore: ")[0].rstrip("; ")
        if note:
            knobs.setdefault(f"{note} ({entry.because})", []).append(entry.knob)
    yield from (f"  {', '.join(names)}: {words}" for words, names in knobs.items())
    waiting = sum(entry.outcome is Outcome.OPEN for entry in bad)
    if waiting:
        yield f"  {waiting} open: apply() would set them now"


def _plan(result: Plan, _verbose: bool) -> str:
    rows = ((step.knob.name, show(step.wanted), str(step.knob.timing), step.because) for step in result.steps)
    return f"{result.profile}: {len(result.steps)} settings\n\n" + table(("knob", "wanted", "works until", "because"), rows)
