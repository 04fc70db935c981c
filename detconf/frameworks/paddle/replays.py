"""Python that runs inside a backward pass (`PyLayer.backward`, hooks of tensors), followed without running it twice.

The real pass runs it, once. What it did there is kept, operation by operation, and done again on twins where the pass over
the graph of the twins comes to the same place.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer
from paddle.autograd.py_layer import PyLayerBackward

from detconf.frameworks.paddle.contents import collect
from detconf.frameworks.paddle.flows import Flows
from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.twins import Flow, Record, floating

_LINK = "_detconf_link"


class _Link:
    """Real runs of one function in a backward pass, until the twins' pass takes them: gradients, what was done, results."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: deque[tuple[list[Any], list[Callable[[], None]], list[Any]]] = deque()


class _Bridge(PyLayer):  # type: ignore[misc]  # Paddle has no stubs
    """Stands in the graph of the twins for a function of the program."""

    @staticmethod
    def forward(ctx: Any, replay: Callable[..., Any], outputs: Callable[[], Sequence[Any]], *_inputs: Any) -> Any:
        ctx.replay = replay
        return tuple(each.detach() for each in outputs())  # a list would be searched for inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.replay(gradients)


class Replays:
    """Follows functions with a backward pass of their own, and hooks.

    Args:
        flows: gradients inside the graph.
    """

    def __init__(self, flows: Flows) -> None:
        self.twins, self.flows = flows.twins, flows
        self._contexts: list[list[Any]] = []

    def put(self, references: References) -> None:
        """Replace what leads there."""
        inherited = vars(paddle.base.core.eager.PyLayer)["apply"]
        references.put_attribute(PyLayer, "apply", self._functions(inherited))
        references.put_attribute(PyLayerBackward, "backward", self._backward(vars(PyLayerBackward)["backward"]))
        references.put_attribute(PyLayerBackward, "__init__", self._made(PyLayerBackward.__init__))
        tensor = paddle.Tensor
        references.put_attribute(tensor, "_register_grad_hook", self._hooks(vars(tensor)["_register_grad_hook"]))
        references.put_attribute(tensor, "_remove_grad_hook", self._unhook(vars(tensor)["_remove_grad_hook"]))
        eager = paddle.base.core.eager
        for name in ("register_saved_tensors_hooks", "reset_saved_tensors_hooks"):
            references.put_attribute(eager, name, self.twins.saving(getattr(eager, name)))

    def _run(self, link: _Link, gradients: Sequence[Any], function: Callable[..., Any]) -> Any:
        """Run a function of the program in a backward pass, and keep what it does."""
        with self.twins.keeping() as done:
            result = function()
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        link.runs.append((list(gradients), done, results))
        return result

    def _again(self, link: _Link, twins: Sequence[Any], records: Sequence[Record], flow: Flow | None) -> list[Any]:
        """Do it with the twins of the gradients. Returns the twins of the results; None where there is none.

        Args:
            link: the real run.
            twins: of the gradients.
            records: of what they are gradients of.
            flow: the operation in whose place this stands, or after which it runs.
        """
        gradients, done, results = link.runs.popleft()
        with self.twins.quietly():
            real = [each for each in gradients if isinstance(each, paddle.Tensor) and floating(each)]
            for tensor, twin, record in zip(real, twins, records, strict=True):
                self.flows.entering(record, tensor, twin)
            for each in done:
                each()
            self.flows.leaving(flow, results)
            return [self._twin(each) for each in results]

    def _twin(self, tensor: Any) -> Any:
        record = self.twins.followed(tensor) if isinstance(tensor, paddle.Tensor) else None
        return None if record is None else record.twin

    # --- functions

    def _made(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def init(context: Any, *args: Any, **kwargs: Any) -> None:
            plain(context, *args, **kwargs)
            if self._contexts and not self.twins.quiet:
                self._contexts[-1].append(context)

        return init

    def _functions(self, inherited: Any) -> Any:
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            plain = inherited.__get__(None, cls)
            if self.twins.quiet or not paddle.in_dynamic_mode():
                return plain(*args, **kwargs)
            contexts: list[Any] = []
            self._contexts.append(contexts)
            try:
                result = plain(*args, **kwargs)
            finally:
                self._contexts.remove(contexts)
            self.twins.do(f"PyLayer {cls.__name__}", lambda: self._connect(cls.__name__, contexts[0], args, kwargs, result))
            return result

        paddle.jit.not_to_static(apply)  # the original is a function in C++, where a graph ends as well
        return classmethod(apply)

    def _connect(self, name: str, context: Any, args: Sequence[Any], kwargs: Any, result: Any) -> None:
        """The graph of the twins goes on through a function whose operations ran without one."""
        read: list[Any] = []
        made: list[Any] = []
        collect((args, tuple(kwargs.values())), read)
        collect(result, made)
        made = [each for each in made if floating(each) and self.twins.find(each) is not None]
        if not made or all(each.stop_gradient for each in made) or any(each is other for each in made for other in read):
            return
        link = _Link()
        setattr(context, _LINK, link)
        pairs = [
            (at, record.twin)
            for at, each in enumerate(read)
            if floating(each) and (record := self.twins.followed(each)) and record.twin is not None
        ]
        records: list[Record] = [self.twins.find(each) for each in made]  # type: ignore[misc]  # found above
        if any(each.twin is None for each in records):
            return

        def replay(gradients: Sequence[Any]) -> Any:
            results = self._again(link, gradients, records, records[0].flow)
            return tuple(results[at] if at < len(results) else None for at, _ in pairs)

        bridged = _Bridge.apply(replay, lambda: [each.twin for each in records], *[twin for _, twin in pairs])
        for record, twin in zip(records, bridged, strict=True):
            record.twin = twin
        sources = [(each, record) for each in read if (record := self.twins.find(each)) is not None]
        reads = [self.twins.read(each, record) for each, record in sources]
        self.flows.follow(f"paddle.PyLayer.{name}", reads, [each for _, each in sources], list(zip(made, records, strict=True)), "")

    def _backward(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def backward(context: Any, *gradients: Any) -> Any:
            link = getattr(context, _LINK, None)
            if link is None or self.twins.quiet:
                return plain(context, *gradients)
            return self._run(link, gradients, lambda: plain(context, *gradients))

        return backward

    # --- hooks

    def _hooks(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def register(tensor: Any, hook: Callable[[Any], Any]) -> Any:
            if self.twins.quiet:
                return plain(tensor, hook)
            link = _Link()

            def called(gradient: Any) -> Any:
                return hook(gradient) if self.twins.quiet else self._run(link, [gradient], lambda: hook(gradient))

            number = plain(tensor, called)

            def follow() -> None:
                record = self.twins.followed(tensor)
                if record is None or record.twin is None:
                    return

                def again(gradient: Any) -> Any:
                    return self._again(link, [gradient], [record], record.flow)[0] if link.runs else None

                record.hooks[number] = plain(record.twin, again)

            self.twins.do("a hook of a tensor", follow)
            return number

        return register

    def _unhook(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def remove(tensor: Any, number: Any) -> Any:
            record = None if self.twins.quiet else self.twins.find(tensor)
            if record is not None and number in record.hooks:
                self.twins.do("a hook of a tensor", lambda: plain(record.twin, record.hooks.pop(number)))
            return plain(tensor, number)

        return remove
