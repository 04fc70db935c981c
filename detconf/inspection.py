"""The reports of many processes as one result: pure."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from detconf.errors import TargetError
from detconf.reports import PLACE, Report, read
from detconf.values import IN_FORCE, Outcome, Printable

_FINE = frozenset(map(str, IN_FORCE))
_SILENT = frozenset({str(Outcome.PENDING), str(Outcome.UNSUPPORTED)})


@dataclass(frozen=True)
class Inspection(Printable):
    """What a folder of reports says.

    Attributes:
        reports: the readable ones.
        damaged: file -> why it cannot be read.
        foreign: JSON files that are no reports.
    """

    reports: tuple[Report, ...]
    damaged: dict[str, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()

    @property
    def subjects(self) -> tuple[Report, ...]:
        """The processes that compute: of each rank those that made a step, where one did; without ranks, of all.

        Launchers, workers that load data and compilers run under the profile too, and settle their threads by themselves.
        """
        groups: dict[int | None, list[Report]] = defaultdict(list)
        for each in self.reports:
            groups[each.rank].append(each)
        kept = [group for rank, group in groups.items() if rank is not None] or list(groups.values())
        return tuple(each for group in kept for each in ([one for one in group if one.stepped] or group))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({each.rank for each in self.reports if each.rank is not None}))

    @property
    def world_size(self) -> int | None:
        return max((each.world_size for each in self.reports if each.world_size), default=None)

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that never reported."""
        return tuple(sorted(set(range(self.world_size or 0)) - set(self.ranks)))

    @property
    def unfinished(self) -> dict[str, list[int]]:
        """Who reported its first step and never its end: still running, or killed."""
        return _who(each for each in self.subjects if each.written == "first step")

    @property
    def differs(self) -> list[dict[str, Any]]:
        """Profiles, facts and knobs that are not the same for all ranks, or for all processes where none has one."""
        found: dict[tuple[str, str], dict[str, tuple[Any, list[Report]]]] = defaultdict(dict)
        for each in self.subjects:
            for kind, name, value in _said(each):
                found[kind, name].setdefault(json.dumps(value, sort_keys=True), (value, []))[1].append(each)
        return [
            {"kind": kind, "name": name, "values": [{"value": value, **_who(who)} for value, who in values.values()]}
            for (kind, name), values in found.items()
            if len(values) > 1
        ]

    @property
    def not_in_force(self) -> list[dict[str, Any]]:
        """Rows that apply and are not in force, with who says so."""
        return self._rows(lambda each: [row for row in each.entries if row["applies"] and row["outcome"] not in _FINE])

    @property
    def drifted(self) -> list[dict[str, Any]]:
        """Rows that were in force and no longer are, with who says so."""
        return self._rows(lambda each: each.drift)

    @property
    def nondeterministic(self) -> list[dict[str, Any]]:
        """Operations of which the frameworks warned, counted over all processes, the most frequent first."""
        found: dict[tuple[str, ...], list[tuple[int, Report]]] = defaultdict(list)
        for each in self.subjects:
            for row in each.admitted:
                found[tuple(row[name] for name in PLACE)].append((row["count"], each))
        rows = [
            {**dict(zip(PLACE, place, strict=True)), "count": sum(n for n, _ in seen), **_who(who for _, who in seen)}
            for place, seen in found.items()
        ]
        return sorted(rows, key=lambda row: -row["count"])

    @property
    def ok(self) -> bool:
        """Every rank reported, all say the same, and everything that applies is in force."""
        return not (self.missing or self.damaged or self.differs or self.not_in_force or self.drifted)

    def _rows(self, pick: Callable[[Report], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        found: dict[Hashable, tuple[dict[str, Any], list[Report]]] = {}
        for each in self.subjects:
            for row in pick(each):
                kept = {key: row[key] for key in ("knob", "framework", "wanted", "now", "outcome", "note")}
                found.setdefault(json.dumps(kept), (kept, []))[1].append(each)
        return [{**row, **_who(who)} for row, who in found.values()]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "detconf.inspection/1",
            "ok": self.ok,
            "reports": len(self.reports),
            "profiles": sorted({each.profile for each in self.subjects}),
            "ranks": list(self.ranks),
            "world_size": self.world_size,
            "missing_ranks": list(self.missing),
            "others": sorted(each.pid for each in self.reports if each not in self.subjects),
            "unfinished": self.unfinished,
            "differs": self.differs,
            "not_in_force": self.not_in_force,
            "drifted": self.drifted,
            "nondeterministic": self.nondeterministic,
            "damaged": [{"file": name, "problem": problem} for name, problem in self.damaged.items()],
            "foreign": list(self.foreign),
        }


def _who(reports: Iterable[Report]) -> dict[str, list[int]]:
    """Ranks, and the processes that have none."""
    ranks, pids = set(), set()
    for each in reports:
        if each.rank is None:
            pids.add(each.pid)
        else:
            ranks.add(each.rank)
    return {"ranks": sorted(ranks), "pids": sorted(pids)}


def _said(report: Report) -> Iterator[tuple[str, str, Any]]:
    """(kind, name, value) of everything that should be the same for all ranks."""
    yield "profile", "profile", report.profile
    for name, value in report.facts.items():
        if name != "versions":
            yield "fact", name, value
    versions = report.facts.get("versions")
    for name, value in versions.items() if isinstance(versions, dict) else ():
        yield "fact", f"version of {name}", value
    drifted = {row["knob"]: row["now"] for row in report.drift}
    for row in report.entries:
        value = drifted.get(row["knob"], row["now"])
        unread = isinstance(value, str) and value.startswith("(")
        if row["outcome"] not in _SILENT and not unread:
            yield "knob", row["knob"], value


def gather(path: str) -> Inspection:
    """The reports in the folder `path`, or the one in the file `path`.

    Raises:
        TargetError: there is no such path, or no readable report in it.
    """
    reports, damaged, foreign = [], {}, []
    for file in _files(path):
        name = os.path.basename(file)
        try:
            found = read(file)
        except (OSError, ValueError, RecursionError) as error:
            damaged[name] = str(getattr(error, "strerror", "") or error) or type(error).__name__
            continue
        if found is None:
            foreign.append(name)
        else:
            reports.append(found)
    if not reports:
        said = "".join(f"\n  {name}: {problem}" for name, problem in damaged.items())
        msg = f"{path}: no report here. Reports are written by `detconf run PROFILE --report {path} -- CMD`, or with DETCONF_REPORT={path}.{said}"
        raise TargetError(msg)
    order = sorted(reports, key=lambda each: (each.rank is None, each.rank or 0, each.pid))
    return Inspection(tuple(order), damaged, tuple(foreign))


def _files(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        msg = f"{path}: {error.strerror}. Accepted: a folder of reports, or one report."
        raise TargetError(msg) from error
    return [os.path.join(path, name) for name in names if name.endswith(".json") and not name.startswith(".")]
