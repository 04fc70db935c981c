"""Shadows of what Paddle computes in dynamic graphs: float64 twins of its tensors, made by the same operations.

Functions under `to_static` run eagerly while a study runs: a shadow is of the source. What a static program gives is a
leaf whose shadow is lost.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import paddle

from detconf.frameworks.paddle.aliases import Aliases
from detconf.frameworks.paddle.backward import Backward
from detconf.frameworks.paddle.edges import Edges
from detconf.frameworks.paddle.entries import Entries
from detconf.frameworks.paddle.loading import Loading
from detconf.frameworks.paddle.mirror import Mirror
from detconf.frameworks.paddle.opaque import Opaque
from detconf.frameworks.paddle.operations import SLOTS
from detconf.frameworks.paddle.operations import describe as operation_of
from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.replays import Replays
from detconf.frameworks.paddle.steps import watch as watch_steps
from detconf.frameworks.paddle.trace import is_operation, named_as
from detconf.frameworks.paddle.twins import Twins
from detconf.shadows.number import Numbers
from detconf.shadows.study import Known, Study

_FOREIGN = (os.path.join(os.path.dirname(paddle.__file__), ""),)
_running: list[Shadows] = []
"""The engines of studies that have begun and not ended, the last one last."""


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
        _running.append(self)

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
        if self in _running:
            _running.remove(self)
        self.references.back()
        for each in reversed(self._ends):
            each()
        self._ends.clear()
        self.numbers.active = False
        self.twins.forget()

    def _put(self) -> None:
        references, tensor = self.references, paddle.Tensor
        slots = {slot: name for slot, name in SLOTS.items() if slot in vars(tensor)}
        replaced = {slot: _followed(name, vars(tensor)[slot]) for slot, name in slots.items()}
        operations = {id(each): (name, each) for name, each in vars(paddle._C_ops).items() if is_operation(each)}
        opaque = Opaque(self.twins)
        ours = {key: (each, _followed(name, each)) for key, (name, each) in operations.items()}
        references.put({**ours, **opaque.replacements(), **self.entries.replacements()})
        for slot, each in replaced.items():
            references.put_attribute(tensor, slot, each)
        self.entries.put(references)
        Edges(self.twins, self.numbers).put(references)
        Aliases(self.mirror, self.backward).put(references)
        Replays(self.mirror.flows).put(references)
        Loading(self.twins).put(references)
        eager = paddle.base.core.eager
        references.put_attribute(eager, "run_backward", self.backward.running(eager.run_backward))
        references.put_attribute(eager, "run_partial_grad", self.backward.partial(eager.run_partial_grad))
        opaque.put(references)
        self._ends.append(watch_steps(self._stepped))

    def _stepped(self) -> None:
        self.study.step += 1


@functools.cache
def _followed(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """One for all studies: more than a thousand new functions for each would cost more than many a program."""
    operation = operation_of(name)

    def followed(*args: Any, **kwargs: Any) -> Any:
        engine = _running[-1] if _running else None
        if engine is None or engine.twins.quiet or not paddle.in_dynamic_mode():
            return plain(*args, **kwargs)
        return engine.mirror.call(operation, plain, args, kwargs)

    return named_as(followed, plain)


def start(study: Study) -> Shadows:
    """Follow every operation of Paddle from now on."""
    return Shadows(study)
