"""A folder of reports for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from detconf.inspection import Inspection
from detconf.report.text import table
from detconf.values import show


def inspection(result: Inspection, verbose: bool) -> str:
    """Who reported, what is not the same everywhere, what is not in force, what is not deterministic."""
    return "\n\n".join([_headline(result), *_parts(result, verbose)])


def _headline(result: Inspection) -> str:
    known = (
        f"{len(result.ranks)} of {result.world_size} ranks"
        if result.world_size
        else f"{len(result.subjects)} process{'es' * (len(result.subjects) > 1)}"
    )
    profiles = ", ".join(sorted({each.profile for each in result.subjects}))
    counts = (
        (len(result.missing), "never reported"),
        (len(result.damaged), "damaged"),
        (len(result.differs), "not the same everywhere"),
        (len(result.not_in_force), "not in force"),
        (len(result.drifted), "drifted"),
        (len(result.nondeterministic), "without a deterministic implementation"),
    )
    found = [f"{number} {words}" for number, words in counts if number]
    return f"{profiles}: {known} reported; " + ", ".join([*(["in force and the same everywhere"] if result.ok else []), *found])


def _parts(result: Inspection, verbose: bool) -> Iterator[str]:
    if result.missing:
        yield f"never reported: {_numbers('rank', result.missing)}"
    if result.damaged:
        yield "damaged:\n" + "\n".join(f"  {name}: {problem}" for name, problem in result.damaged.items())
    if result.differs:
        rows = [
            (row["name"] if place == 0 else "", show(value["value"]), _who(value))
            for row in result.differs
            for place, value in enumerate(row["values"])
        ]
        yield table(("differs", "value", "in"), rows)
    for title, found in (("not in force", result.not_in_force), ("drifted", result.drifted)):
        if found:
            yield table((title, "wanted", "now", "outcome", "in"), [_row(row) for row in found])
            yield "\n".join(dict.fromkeys(f"  {row['knob']}: {row['note'].partition('; restore:')[0]}" for row in found if row["note"]))
    if result.nondeterministic:
        calls = [(row["operation"], row["source"], f"{row['count']:,}", _who(row)) for row in result.nondeterministic]
        yield table(("no deterministic implementation", "source", "calls", "in"), calls)
    if any(result.unfinished.values()):
        yield f"reported the first step and not the end (running, or killed): {_who(result.unfinished)}"
    if result.foreign:
        yield f"not reports: {', '.join(result.foreign)}"
    if verbose:
        yield table(("process", "profile", "rows", "last report"), [_process(each) for each in result.reports])


def _process(each: Any) -> tuple[str, ...]:
    name = f"pid {each.pid}" if each.rank is None else f"rank {each.rank}, pid {each.pid}"
    return name, each.profile, str(len(each.entries)), each.written


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["knob"], show(row["wanted"]), show(row["now"]), row["outcome"], _who(row)


def _who(row: Mapping[str, Any]) -> str:
    return "; ".join(_numbers(word, row[key]) for word, key in (("rank", "ranks"), ("pid", "pids")) if row[key])


def _numbers(word: str, numbers: Any) -> str:
    """ "rank 3", or "ranks 0-6, 9"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return f"{word}{'' if len(numbers) == 1 else 's'} " + ", ".join("-".join(map(str, run)) for run in runs)
