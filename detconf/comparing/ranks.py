"""The recordings of several processes: which belong together, and what passes between them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from detconf.comparing.verdicts import INTRODUCED, PROPAGATED, Judged
from detconf.recording.reading import Recording

COLLECTIVE = re.compile(
    r"^_?c10d\w*\.(?!barrier|monitored_barrier|wait|send|recv)|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|\bc_(broadcast|reduce|scatter|concat)",
    re.IGNORECASE,
)
"""Names of operations that take part of their inputs from other ranks."""
_RANK = re.compile(r"\.rank(\d+)(?=\.)")
_PROCESS = re.compile(r"\.pid(\d+)(?=\.)")

Key = tuple[int, int]
"""Rank, and which of its processes."""


def by_process(recordings: Sequence[Recording]) -> Mapping[Key, Recording]:
    """Recordings by rank; further processes of a rank are counted in the order of their numbers."""
    found: dict[Key, Recording] = {}
    numbers: dict[int, int] = {}
    for recording in sorted(recordings, key=_order):
        rank = rank_of(recording)
        found[rank, numbers.setdefault(rank, 0)] = recording
        numbers[rank] += 1
    return found


def rank_of(recording: Recording) -> int:
    """The rank that a recording says, else the one in its name, else 0."""
    told = recording.about.get("rank")
    named = _RANK.search(os.path.basename(recording.path))
    return told if isinstance(told, int) else int(named[1]) if named else 0


def _order(recording: Recording) -> tuple[int, int, str]:
    process = _PROCESS.search(os.path.basename(recording.path))
    return rank_of(recording), int(process[1]) if process else -1, recording.path


def is_collective(name: str) -> bool:
    """Does an operation of that name read what other ranks hold?"""
    return bool(COLLECTIVE.search(name))


def settle(judged: Sequence[Judged]) -> None:
    """A collective whose inputs differ on any rank introduced nothing on the others: it handed a difference on.

    The collectives of all ranks are told to belong together by their order; where ranks call other ones, or another
    number of them, by the step.
    """
    calls = [_collectives(each) for each in judged]
    if len({tuple(name for name, _ in own) for own in calls}) == 1:
        groups = list(zip(*([(each, event) for _, event in own] for each, own in zip(judged, calls, strict=True)), strict=True))
    else:
        steps = {int(each.a.step[event]) for each, own in zip(judged, calls, strict=True) for _, event in own}
        everything = [(each, event) for each, own in zip(judged, calls, strict=True) for _, event in own]
        groups = [tuple(pair for pair in everything if pair[0].a.step[pair[1]] == step) for step in sorted(steps)]
    for group in groups:
        if any(each.verdict[event] == PROPAGATED or not each.read_equal[event] for each, event in group):
            for each, event in group:
                if each.verdict[event] == INTRODUCED:
                    each.verdict[event] = PROPAGATED


def _collectives(judged: Judged) -> list[tuple[str, int]]:
    """(name, event of the first recording) of every collective that both have."""
    import numpy as np

    names = {number: site.name for number, site in judged.a.recording.sites() if is_collective(site.name)}
    events = np.flatnonzero(np.isin(judged.a.site, list(names)) & (judged.match >= 0))
    return [(names[int(judged.a.site[event])], event) for event in events.tolist()]
