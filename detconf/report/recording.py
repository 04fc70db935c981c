"""A recording for a terminal, or as JSON, line by line: a million operations are not gathered first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from detconf.recording.event import Event, Flag
from detconf.recording.reading import Recording


def as_json_lines(recording: Recording, *, ops: bool) -> Iterator[str]:
    """The lines of one JSON object: the summary, and with `ops` a list "operations"."""
    head = json.dumps(recording.summary(), indent=2)
    if not ops:
        yield head
        return
    yield head.removesuffix("\n}") + ',\n  "operations": ['
    before = ""
    for event in recording.events():
        yield f"{before}    {json.dumps(event.to_dict())}"
        before = "    ,\n"
    yield "  ]\n}"


def as_text(recording: Recording, *, ops: bool) -> Iterator[str]:
    """What was recorded, where, and with `ops` every operation."""
    about = recording.summary()
    name = recording.path.rpartition("/")[2]
    yield f"{name}: {about['events']} events in {about['steps']} steps, {_ending(about)}"
    facts = about["facts"] or {}
    versions = ", ".join(f"{each} {version}" for each, version in (facts.get("versions") or {}).items())
    yield f"  {facts.get('cpu', '')}, {facts.get('system', '')}, Python {facts.get('python', '')}{', ' if versions else ''}{versions}"
    yield f"  {(about.get('attestation') or {}).get('headline') or 'no profile in force'}"
    if about["kept"]:
        yield f"  arrays are kept of {about['kept']} events"
    if about["failed"]:
        more = f", {len(about['failed']) - 1} more behind it" if about["failed"][1:] else ""
        yield f"  a comparison fails at {about['failed'][0]}{more}; with values, detconf audit {name} says why"
    if about["probed"]:
        yield f"  note: the recorder may have changed bits of the gradients of {', '.join(about['probed'])}"
    if ops:
        yield ""
        yield from map(_operation, recording.events())


def _ending(about: dict[str, Any]) -> str:
    if about["complete"]:
        return "complete"
    if about["ended"]:
        return f"not complete: ended by {about['ended']}"
    return "not complete: its process was killed, or is still running"


def _operation(event: Event) -> str:
    outputs = ", ".join(f"{each.dtype}{list(each.shape)} {each.digest.hex()[:8]}" for each in event.outputs)
    flags = " ".join(str(flag.name).lower() for flag in Flag if flag & event.flags)
    place = " ".join(filter(None, (event.scope, event.source)))
    parts = (f"{event.index:>8} step {event.step}", event.name, f"-> {outputs}" if outputs else "", flags, place)
    return "  ".join(filter(None, parts))
