"""The side of an audit, in the process that runs it: answers requests with files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from detconf.access import Rng
from detconf.auditing.elsewhere import kept
from detconf.auditing.elsewhere.conditions import Sight, enter, recompiled
from detconf.auditing.elsewhere.packing import Pack, pack_value
from detconf.auditing.elsewhere.requests import Request
from detconf.auditing.inputs import given, load_packed
from detconf.auditing.laboratory import Laboratory, Observation, Side
from detconf.errors import DetconfError, TargetError
from detconf.frameworks import catalogue, frameworks
from detconf.lookup import first_line, is_imported
from detconf.shadows.study import Study
from detconf.targets import load_function


class Server:
    """Runs one function.

    Args:
        target: "file.py:function".
        inputs: path of a file of its arguments; empty for none.
    """

    def __init__(self, target: str, inputs: str = "") -> None:
        function = load_function(target)
        self.side = Side(target, given(function, load_packed(inputs)) if inputs else function)
        self.laboratory = Laboratory()

    def answer(self, request: str, answer: str) -> dict[str, Any]:
        """Do what a request asks for, and write what came of it.

        Returns:
            `error` in words, or `done`: what was seen.
        """
        sight = Sight()
        try:
            asked = Request.read(request)
            self._entry(asked.entry)
            if asked.kind == "remedies":
                return {"done": {"remedies": list(_remedies())}}
            if asked.kind == "verify":
                return {"done": self._verified()}
            with conditions(asked.conditions, sight), recompiled(asked.conditions):
                observation = self._run(asked)
            if observation is None:
                return {"error": self.laboratory.problems.get(self.side.label, "it could not be studied")}
            kept.write(answer, observation, {"entry": None})
            return {"done": sight.to_dict() | {"entry": self._states(f"{answer}.entry")}}
        except (TargetError, DetconfError) as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001  # the process goes on, and the other side hears of it
            return {"error": f"detconf failed there: {first_line(error)}"}

    def _run(self, asked: Request) -> Observation | None:
        if asked.kind == "study":
            return self.laboratory.study(self.side, **asked.options)
        return Observation(self.laboratory.plain(self.side, put_back=asked.put_back), {}, Study())

    def _entry(self, states: Mapping[str, Any]) -> None:
        """Enter with these states from now on."""
        for name, state in states.items():
            if name in catalogue():
                self.laboratory.entry[name] = state

    def _states(self, path: str) -> str:
        """The states that the side is entered with, as far as they can be handed over, in a file."""
        pack = Pack()
        states = {name: pack_value(pack, state) for name, state in self.laboratory.entry.items() if _general(name)}
        pack.write(path, states)
        return path

    def _verified(self) -> dict[str, Any]:
        from detconf.rerun import verify  # only where a side is unstable

        assert self.side.function is not None  # noqa: S101  # one was given
        found = verify(self.side.function, runs=5)
        return {
            "distinct": found.distinct,
            "cause": str(found.cause),
            "remedies": [str(each.restored_by) for each in found.axes if each.restored_by],
        }


def _general(name: str) -> bool:
    """Is that a generator that every interpreter has?"""
    access = catalogue()[name].access
    return isinstance(access, Rng) and access.module in ("", "numpy", "numpy.random")


def _remedies() -> Iterator[tuple[str, str]]:
    from detconf.auditing.question import experiments  # only where asked

    for module in experiments():
        yield from ((each.words, str(each.cause)) for each in module.remedies())


@contextmanager
def conditions(wanted: list[tuple[str, str]], sight: Sight) -> Iterator[None]:
    """Inside the block the imported frameworks are under these conditions."""
    with ExitStack() as stack:
        for framework in frameworks():
            if framework.module and is_imported(framework.module):
                enter(framework, wanted, sight, stack)
        yield
