"""Sides that cannot be followed, such as static programs: recorded with values, and judged by the recordings."""

from __future__ import annotations

import os
import tempfile

from detconf.auditing.laboratory import Side
from detconf.auditing.question import Finding, Question
from detconf.auditing.recordings.across import audit_recordings
from detconf.recording.running import record
from detconf.targets import call
from detconf.values import Cause


def recorded_instead(question: Question) -> Finding | None:
    """Record both sides, where results could not be followed: what do their operations show, computed again one by one?"""
    known = {each.name for each in question.complete}
    sides = (question.a, question.b)
    if known >= set(question.differing) or any(side.function is None or hasattr(side.function, "elsewhere") for side in sides):
        return None
    with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
        paths = [os.path.join(folder, name) for name in ("reference.det", "candidate.det")]
        for path, side in zip(paths, sides, strict=True):
            _record(question, path, side)
        found = audit_recordings(paths[0], paths[1])
    question.unexamined.extend(found.unexamined)
    if found.cause in (Cause.UNKNOWN, Cause.EQUAL) or found.proof is None:
        question.tried.append(f"both sides recorded, and computed again: {found.summary}")
        return None
    return Finding(found.cause, found.summary, found.proof, list(found.evidence), list(found.fixes))


def _record(question: Question, path: str, side: Side) -> None:
    assert side.function is not None  # noqa: S101  # asked before
    question.laboratory.enter()
    with record(path, values=True, sources=True):
        call(side.function)
