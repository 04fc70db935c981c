"""Comparisons of a process that is recorded, as events: one that fails with its operands, to be audited anywhere.

The event bears the function's name and its place. Of a comparison that fails where that is not expected the inputs are the
operands, actual before desired, and its output is a text: JSON of `Noted`. One that holds has neither.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from detconf.arrays import Array
from detconf.auditing.assertions.comparisons import Comparison
from detconf.auditing.assertions.watching import Call, Watching
from detconf.digests import Flag
from detconf.recording.running import in_progress

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder

_UNSURE = 16
"""Most comparisons that are noted with operands though nothing says that they fail a test."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What is noted of a comparison that fails, beside its operands.

    Attributes:
        comparison: where, of what, how closely; the file's name without its folder.
        names: of the actual operand's arrays, and of the desired one's.
        inside: events of its own computing, which stand before it.
        certain: it raised; False for one that returned False.
    """

    comparison: Comparison
    names: tuple[tuple[str, ...], tuple[str, ...]]
    inside: int
    certain: bool

    def text(self) -> str:
        """JSON."""
        return json.dumps({"comparison": self.comparison.to_dict(), "names": self.names, "inside": self.inside, "certain": self.certain})

    @classmethod
    def of(cls, text: str) -> Noted:
        """What `text` gave.

        Raises:
            ValueError, TypeError, KeyError: it is none.
        """
        found = json.loads(text)
        actual, desired = (tuple(map(str, names)) for names in found["names"])
        return cls(Comparison(**found["comparison"]), (actual, desired), int(found["inside"]), bool(found["certain"]))


def start_from_environment() -> None:
    """Note the comparisons of this process, if it is recorded; called by detconf's sitecustomize."""
    run = in_progress()
    if run is not None:
        Noting(run.recorder).watch()


class Noting(Watching):
    """Tells a recorder of comparisons."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._unsure = 0

    def before(self, call: Call) -> int:
        """Where its own computing begins."""
        del call
        return self._recorder.index

    def compared(self, call: Call, before: Any) -> None:
        """A comparison was made."""
        if not self._recorder.active:
            return
        if call.counts and self._in_question(call):
            self._failed(call, int(before or 0))
        else:
            self._event(call, [], [])

    def _in_question(self, call: Call) -> bool:
        """Does it fail a test, or may it: of those that only may, a program makes any number."""
        if call.certain or call.comparison("").fails:
            return True
        self._unsure += 1
        return self._unsure <= _UNSURE

    def _failed(self, call: Call, began: int) -> None:
        from detconf.auditing.assertions.pairs import Pair  # needs NumPy, which a test of Python's numbers has not loaded

        pair = Pair.of(*call.operands(), call.name, None)
        sides = pair.arrays["actual"], pair.arrays["desired"]
        comparison = replace(call.comparison(pair.dtype), file=os.path.basename(call.file))
        inside = self._recorder.index - began  # reading the operands may have been recorded, too
        text = Noted(comparison, (tuple(sides[0]), tuple(sides[1])), inside, call.certain).text()
        self._event(call, [*sides[0].values(), *sides[1].values()], [Array("str", (), text.encode())])
        self._recorder.flush()  # what is asked of this recording, should the process be killed

    def _event(self, call: Call, inputs: list[Array], outputs: list[Array]) -> None:
        self._recorder.operation(
            f"{call.module}.{call.function}",
            [bytes.fromhex(each.digest) for each in inputs],
            [bytes.fromhex(each.digest) for each in outputs],
            tuple((each.dtype, each.shape) for each in outputs),
            flags=Flag.COMPARED,
            source=f"{os.path.basename(call.file)}:{call.line}",
            values=(inputs, outputs) if self._recorder.keeping else None,
        )
