"""What a session hands down to the processes that multiprocessing starts from this one.

A forked child has it all. A child that starts from nothing (spawn, forkserver) is sent its Process object, and in it a
copy of its parent's `_config`: an object put there puts the settings in force as soon as it is unpickled, before the
child's own function and arguments are. Loky and torch.multiprocessing stand on the same objects.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from detconf.access import Rng
from detconf.frameworks import catalogue
from detconf.lookup import is_imported
from detconf.plan import Plan, Step
from detconf.values import Value

_MODULE, _KEY = "multiprocessing.process", "detconf"
Rows = tuple[tuple[str, Value, str], ...]


class Inheritance:
    """A plan as it is sent to a child: resolved, so that the child needs no file, and without seeds.

    Attributes:
        takes: a function at the top level of a module, called in the child with the sender's process number and the rest.
        profile: name of the profile.
        rows: name, value and reason of each step.
    """

    def __init__(self, takes: Callable[..., Inheritance], profile: str, rows: Rows) -> None:
        self.takes, self.profile, self.rows = takes, profile, rows

    def __reduce__(self) -> tuple[Callable[..., Inheritance], tuple[Any, ...]]:
        return self.takes, (os.getpid(), self.profile, self.rows)

    @property
    def plan(self) -> Plan:
        """The steps again; a knob that the child's detconf does not know is left out."""
        known = catalogue()
        return Plan(self.profile, tuple(Step(known[name], wanted, because) for name, wanted, because in self.rows if name in known))


def unseeded(plan: Plan) -> Plan:
    """`plan` without seeds: a child that drew what its parent draws would be a new fault."""
    return Plan(plan.profile, tuple(step for step in plan.steps if not isinstance(step.knob.access, Rng)))


def merged(plans: Sequence[Plan]) -> Plan:
    """What several plans in force, the latest last, come to for a child."""
    steps = {step.knob.name: step for plan in plans for step in unseeded(plan).steps}
    ordered = sorted(steps.values(), key=lambda step: step.knob.timing)  # of one timing, in the order of the catalogue
    return Plan(plans[-1].profile, tuple(ordered))


def rows(plan: Plan) -> Rows:
    return tuple((step.knob.name, step.wanted, step.because) for step in plan.steps)


_bequest: Inheritance | None = None
_awaited = False


def bequeath(plans: Sequence[Plan], takes: Callable[..., Inheritance]) -> None:
    """Let children started from now on come up under `plans`; under nothing where there are none."""
    global _bequest, _awaited  # noqa: PLW0603  # of this process, as the process object is
    plan = merged(plans) if plans else None
    _bequest = Inheritance(takes, plan.profile, rows(plan)) if plan else None
    if is_imported(_MODULE):
        _put(sys.modules[_MODULE])
    elif not _awaited and _bequest:
        from wrapt import register_post_import_hook  # multiprocessing costs more to import than the hook

        _awaited = True
        register_post_import_hook(_put, _MODULE)


def _put(module: Any) -> None:
    config = module.current_process()._config  # noqa: SLF001  # the one thing that every start method hands to a child
    if _bequest:
        config[_KEY] = _bequest
    else:
        config.pop(_KEY, None)


def coming_up() -> bool:
    """Is this a child of multiprocessing that is still importing its parent's main module?"""
    module = sys.modules.get(_MODULE)
    return bool(module and getattr(module.current_process(), "_inheriting", False))
