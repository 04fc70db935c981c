"""One knob written, or put back. A failure is kept for its row and stops nothing."""

from __future__ import annotations

from typing import Any

from detconf.access import Access, Env
from detconf.judge import Live, holds, in_time
from detconf.lookup import Missing, first_line
from detconf.values import Reading, same


def write(live: Live) -> None:
    """Write one knob. A failure is kept for its row and never stops the others."""
    knob, wanted = live.knob, live.step.wanted
    if isinstance(knob.access, Env) and not live.late:
        in_time[knob.access.variable] = wanted
    if live.held and holds(live.step):
        return
    try:
        knob.access.write(wanted)
    except (Missing, AttributeError) as error:
        live.problem, live.before = str(error), Reading(problem=str(error), missing=True)
    except Exception as error:  # noqa: BLE001  # whatever a framework raises becomes the row's note
        live.problem = first_line(error)
        _undo_failed_write(live)


def _undo_failed_write(live: Live) -> None:
    # `torch.backends.cuda.preferred_linalg_library` raises and stores the value all the same (torch 2.13).
    if not live.before.problem and not same(live.knob.read().value, live.before.value):
        put_back(live)


def put_back(live: Live) -> str:
    """Put one knob back. Returns what went wrong, or empty."""
    access = live.knob.access
    try:
        if not _unchanged(access, live.saved):
            access.load(live.saved)
    except Exception as error:  # noqa: BLE001  # a failing restore goes on and is reported
        return first_line(error)
    return ""


def _unchanged(access: Access, saved: Any) -> bool:
    try:
        return access.unchanged(saved)
    except Exception:  # noqa: BLE001  # unreadable now: put it back
        return False
