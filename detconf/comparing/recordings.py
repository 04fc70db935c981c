"""Two recordings, or the recordings of all processes in two folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain

from detconf.comparing.columns import Columns
from detconf.comparing.findings import MOST, MOST_ALONE, Finder, limited
from detconf.comparing.ranks import by_process, rank_of, settle
from detconf.comparing.result import Affected, Comparison, Counts, FactRow, Finding, Verdict, environment
from detconf.comparing.verdicts import judge
from detconf.comparison import Divergence, Kind
from detconf.errors import DetconfError
from detconf.facts import shareable
from detconf.recording.file import is_recording
from detconf.recording.reading import Recording


def recordings_in(folder: str) -> list[str]:
    """The recordings that lie in a folder itself.

    Raises:
        DetconfError: the folder cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            files = sorted(entry.path for entry in entries if entry.is_file())
        return [path for path in files if path.endswith(".det") or (os.path.getsize(path) and is_recording(path))]
    except OSError as error:
        msg = f"{folder} cannot be read: {error.strerror}. Accepted: a folder of recordings, or of files of arrays."
        raise DetconfError(msg) from error


@dataclass(slots=True)
class _Paired:
    """Recordings that belong together, and those that have no counterpart."""

    pairs: list[tuple[Recording, Recording]]
    missing: list[Recording]
    extra: list[Recording]


def compare_recordings(a: Sequence[str], b: Sequence[str], names: tuple[str, str]) -> Comparison:
    """Compare recordings.

    Args:
        a, b: paths of each side: one file, or one per process.
        names: what the sides are called.

    Raises:
        DetconfError: a file is damaged, the levels differ, or there is nothing to compare.
    """
    with ExitStack() as stack:
        ours, theirs = ([stack.enter_context(Recording(path)) for path in side] for side in (a, b))
        paired = _pair(ours, theirs)
        for pair in paired.pairs:
            _check_levels(*pair)
        return _compared(paired, names)


def _pair(ours: list[Recording], theirs: list[Recording]) -> _Paired:
    if len(ours) == len(theirs) == 1:
        return _Paired([(ours[0], theirs[0])], [], [])
    x, y = _by_name(ours), _by_name(theirs)
    if x.keys() != y.keys():
        x, y = ({str(key): each for key, each in by_process(side).items()} for side in (ours, theirs))
    return _Paired(
        [(x[key], y[key]) for key in x if key in y], [x[key] for key in x if key not in y], [y[key] for key in y if key not in x]
    )


def _by_name(recordings: list[Recording]) -> Mapping[str, Recording]:
    return {os.path.basename(each.path): each for each in recordings}


def _check_levels(a: Recording, b: Recording) -> None:
    ours, theirs = a.about.get("level"), b.about.get("level")
    if ours != theirs:
        msg = f"{a.path} was recorded at level {ours!r}, {b.path} at level {theirs!r}. Accepted: two recordings of one level; record one again."
        raise DetconfError(msg)


def _compared(paired: _Paired, names: tuple[str, str]) -> Comparison:
    judged = [judge(Columns(a), Columns(b)) for a, b in paired.pairs]
    several = len(judged) > 1 or bool(paired.missing or paired.extra)
    if not any(len(each.a) or len(each.b) for each in judged):
        msg = f"{names[0]} and {names[1]}: nothing to compare: no operation was recorded in both. Accepted: recordings of the same program."
        raise DetconfError(msg)
    if several:
        settle(judged)
    finders = [
        Finder(each, str(rank_of(pair[0])) if several else "", alone=len(judged) == 1)
        for each, pair in zip(judged, paired.pairs, strict=True)
    ]
    lost, added = (
        [_whole(each, verdict) for each in side] for side, verdict in ((paired.missing, Verdict.MISSING), (paired.extra, Verdict.EXTRA))
    )
    counts = sum((each.counts for each in judged), Counts(missing=len(lost), extra=len(added)))
    introduced = sorted(chain.from_iterable(finder.introduced() for finder in finders), key=_order)
    return Comparison(
        kind="recordings",
        a=shareable(names[0]),
        b=shareable(names[1]),
        equal=not (counts.introduced or counts.propagated or counts.missing or counts.extra),
        first=_first([*filter(None, (finder.first() for finder in finders)), *lost, *added]),
        introduced=tuple(introduced[:MOST]),
        missing=limited(chain(lost, *(finder.missing() for finder in finders))),
        extra=limited(chain(added, *(finder.extra() for finder in finders))),
        counts=counts,
        affected=_affected(finders),
        environment=_environment(paired.pairs, several=several),
        ranks=len(judged),
        notes=tuple(_notes(paired, counts)),
    )


def _order(finding: Finding) -> tuple[int, int]:
    """By step, then index."""
    event = finding.events[0] if finding.events[0] is not None else finding.events[1]
    return finding.divergence.step or 0, event or 0


def _first(found: list[Finding]) -> Finding | None:
    """The earliest, over ranks; one whose own inputs differ only where there is no other, a whole rank last."""
    whole = Verdict.MISSING, Verdict.EXTRA

    def key(finding: Finding) -> tuple[int, int, int]:
        kind = 2 if finding.verdict in whole and finding.events == (None, None) else int(finding.verdict is Verdict.PROPAGATED)
        return kind, *_order(finding)

    return min(found, key=key, default=None)


def _whole(recording: Recording, verdict: Verdict) -> Finding:
    kind = Kind.MISSING if verdict is Verdict.MISSING else Kind.EXTRA
    name = os.path.basename(recording.path)
    return Finding(
        divergence=Divergence(name=name, kind=kind, rank=str(rank_of(recording)), origin="recording"),
        verdict=verdict,
        hint="a whole recording",
    )


def _affected(finders: list[Finder]) -> Affected:
    steps = set().union(*(finder.steps() for finder in finders))
    state: dict[str, int] = {}
    total = 0
    for finder in finders:
        found, number = finder.state()
        total = max(total, number)
        for name, step in found:
            state[name] = min(step, state.get(name, step))
    rows = sorted(state.items(), key=lambda row: row[1])[:MOST_ALONE]
    return Affected(
        steps=len(steps),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        state=tuple(rows),
        state_total=max(total, len(state)),
    )


def _environment(pairs: list[tuple[Recording, Recording]], *, several: bool) -> tuple[FactRow, ...]:
    """Facts that differ, once where they are those of several ranks."""
    found: dict[tuple[object, ...], FactRow] = {}
    for a, b in pairs:
        for row in environment(a.about, b.about):
            found.setdefault((row.fact, str(row.a), str(row.b)), row)
    rows = list(found.values())
    return tuple(sorted(rows, key=lambda row: not row.can_change_bits)) if several or rows else ()


def _notes(paired: _Paired, counts: Counts) -> Iterator[str]:
    for pair in paired.pairs:
        for side, recording in zip("ab", pair, strict=True):
            if not recording.about.get("complete"):
                ended = recording.about.get("ended") or "killed, or still running"
                yield f"{side}: {os.path.basename(recording.path)} ended early ({ended}): what the program did then is not compared"
    for word, recordings in (("missing", paired.missing), ("extra", paired.extra)):
        for recording in recordings:
            yield f"rank {rank_of(recording)} is {word}: {os.path.basename(recording.path)} has no counterpart"
    probed = sorted({name for pair in paired.pairs for recording in pair for name in recording.probed()})
    if probed:
        yield f"the recorder may have changed bits of the gradients of {', '.join(probed)}: compare results of runs without it"
    if counts.uncompared:
        yield f"{counts.uncompared:,} outputs were not compared: not initialised, or without bytes that can be hashed"
