"""The axis `ranks`: a script run by a framework's launcher, in two ranks, twice.

Ranks of one run may differ from each other, and two ranks from one: what is judged is that a rerun gives every rank the
same again. The script chooses its backend (gloo, on machines without an accelerator).
"""

from __future__ import annotations

from importlib.util import find_spec

from detconf.commandline import invocation, is_python
from detconf.frameworks import frameworks
from detconf.targets import Target
from detconf.verification import Axis, Evidence

NAME = "ranks"
RANKS = 2


def launched(target: Target, ranks: int = RANKS) -> list[str] | str:
    """The command that runs a script in so many ranks; or in words why there is none."""
    if not isinstance(target, list) or not is_python(target[0]):
        return "not judged: it takes a command whose first word is a Python"
    script = list(invocation(target).program)
    if not script:
        return "not judged: it takes a script, and -c, -m or nothing is no script"
    launcher = next((each.launcher for each in frameworks() if each.launcher and find_spec(each.module)), None)
    if launcher is None:
        return "not judged: no framework with a launcher of ranks is installed"
    options = target[: len(target) - len(script)]
    return [*(options[:-1] if options[-1] == "--" else options), *launcher, str(ranks), *script]


def judged(evidence: Evidence) -> Axis:
    """The axis, from the runs of what `launched` gave."""
    ranks = len({place.rank for place in evidence.places if place.rank})
    failed = next((failure.reason for failure in evidence.failures), "")
    note = f"{ranks} ranks, reruns of each compared"
    if evidence.reference is None:
        return Axis(NAME, None, None, note=f"not judged: every run under the launcher failed ({failed})")
    if ranks < RANKS:
        return Axis(NAME, None, None, note=f"not judged: {ranks or 'no'} rank{'s' * (ranks != 1)} gave anything to compare")
    found = evidence.divergence
    where = f"; first in rank {found.rank}" if found else f"; {failed}" if failed else ""
    return Axis(NAME, evidence.distinct == 1, found, note=note + where)
