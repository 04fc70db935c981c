"""Shadows of what Paddle computes in dynamic graphs: float64 twins of its tensors, made by the same operations.

Functions under `to_static` run eagerly while a study runs: a shadow is of the source. What a static program gives is a
leaf whose shadow is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import paddle

from detconf.frameworks.paddle.aliases import Aliases
from detconf.frameworks.paddle.backward import Backward
from detconf.frameworks.paddle.edges import Edges
from detconf.frameworks.paddle.entries import Entries
from detconf.frameworks.paddle.listening import listen
from detconf.frameworks.paddle.loading import Loading
from detconf.frameworks.paddle.mirror import Mirror
from detconf.frameworks.paddle.opaque import Opaque
from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.replays import Replays
from detconf.frameworks.paddle.steps import watch as watch_steps
from detconf.frameworks.paddle.twins import Twins
from detconf.shadows.number import Numbers
from detconf.shadows.study import Known, Study

_FOREIGN = (os.path.join(os.path.dirname(paddle.__file__), ""),)


class Shadows:
    """Paddle's engine.

    Args:
        study: where everything is noted.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.twins = Twins(study)
        self.mirror = Mirror(self.twins)
        self.backward = Backward(self.mirror, _FOREIGN)
        self.numbers = Numbers(study)
        self.entries = Entries(self.twins)
        self.references = References()
        self._ends: list[Callable[[], None]] = []
        self._put()

    def known(self, thing: Any) -> Known | None:
        """The shadow of a tensor, a leaf if it was not seen before, or of a float that came out of one."""
        if isinstance(thing, float):
            return self.numbers.known(thing)
        return self.twins.known(thing) if isinstance(thing, paddle.Tensor) else None

    def wrap(self, array: Any, known: Known) -> Any:  # noqa: ARG002  # NumPy's engine does that
        """The array itself."""
        return array

    def adopt(self, roots: Sequence[Any]) -> None:
        """Nothing: a tensor that exists already becomes a leaf when it is first read."""

    def end(self) -> None:
        """Put everything back."""
        for each in reversed(self._ends):
            each()
        self._ends.clear()
        self.references.back()
        self.numbers.active = False
        self.twins.forget()

    def _put(self) -> None:
        references, opaque = self.references, Opaque(self.twins)
        listening = listen(self.mirror, references, {**opaque.replacements(), **self.entries.replacements()})
        self.entries.put(references)
        Edges(self.twins, self.numbers).put(references)
        Aliases(self.mirror, self.backward).put(references)
        Replays(self.mirror.flows).put(references)
        Loading(self.twins).put(references)
        eager = paddle.base.core.eager
        references.put_attribute(eager, "run_backward", self.backward.running(eager.run_backward))
        references.put_attribute(eager, "run_partial_grad", self.backward.partial(eager.run_partial_grad))
        opaque.put(references)
        self._ends += [watch_steps(self._stepped), listening]

    def _stepped(self) -> None:
        self.study.step += 1


def start(study: Study) -> Shadows:
    """Follow every operation of Paddle from now on."""
    return Shadows(study)
