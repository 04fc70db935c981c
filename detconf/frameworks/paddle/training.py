"""The rung `static` for a step that does everything itself: built as a program, and run by an Executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle

from detconf.frameworks.entry import held
from detconf.frameworks.paddle.forms import Form, leaves
from detconf.frameworks.paddle.programmed import Built, Later, building
from detconf.frameworks.paddle.static import static_mode
from detconf.frameworks.rungs import Missing, Refused
from detconf.lookup import first_line

if TYPE_CHECKING:
    from detconf.frameworks.paddle.ladder import Paddle


def training(program: Paddle) -> Form:
    """Each call builds the program anew, as each call of the step runs its Python anew.

    What it holds (parameters, buffers, an optimizer's state) goes into the scope before a run and is read back after it.
    """

    def call(_: Any) -> dict[str, Any]:
        built, result = build(program)
        fetched = {id(each): each for each in leaves(result) if isinstance(each, (paddle.pir.Value, Later))}
        values = [each.value if isinstance(each, Later) else each for each in fetched.values()]
        with started(built) as (executor, scope):
            found = executor.run(built.main, fetch_list=values)
            after = {name: np.array(scope.find_var(name).get_tensor()) for name, _ in _states(built)}
        for name, tensor in _states(built):
            if not np.array_equal(after[name], tensor.numpy(), equal_nan=after[name].dtype.kind in "fc"):
                tensor.set_value(after[name])
        made = {name: _made(each, array) for (name, each), array in zip(fetched.items(), found, strict=True)}
        return {"": _filled(result, made)}

    return Form(call, lambda: None)


def build(program: Paddle) -> tuple[Built, Any]:
    """(the program of a step, what the step returned).

    Raises:
        Refused: it cannot be built as one.
        Missing: this build of Paddle lacks what that takes.
    """
    built = Built()
    try:
        with building(built):
            result = program.target()
    except (Refused, Missing):
        raise
    except Exception as error:
        msg = f"the step cannot be built as a program: {first_line(error)}"
        raise Refused(msg) from error
    known = {id(tensor) for _, tensor in _states(built)} | {id(each) for each in _held(program.target)}
    if any(isinstance(each, paddle.Tensor) and id(each) not in known for each in leaves(result)):
        msg = "the step returns a tensor that is none of the program's"
        raise Refused(msg)
    if not len(built.main.global_block().ops):
        msg = "the step runs no operation of Paddle"
        raise Refused(msg)
    return built, result


def _held(function: Any) -> Iterator[Any]:
    for each in held(function):
        yield from each.state_dict().values() if isinstance(each, paddle.nn.Layer) else [each]


def _states(built: Built) -> Iterator[tuple[str, Any]]:
    """(name of a variable of the program, the dynamic tensor that it stands for)."""
    yield from ((value.name, tensor) for tensor, value in built.tensors.values())
    for optimizer, mine in built.optimizers.values():
        for kind, table in mine._accumulators.items():
            for name, value in table.items():
                tensor = optimizer._accumulators.get(kind, {}).get(name)
                if isinstance(tensor, paddle.Tensor):
                    yield value.name, tensor


@contextmanager
def started(built: Built) -> Iterator[tuple[Any, Any]]:
    """(an executor, its scope): the program's variables hold what the dynamic tensors do."""
    arrays = {name: tensor.numpy() for name, tensor in _states(built)}
    executor, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.Scope()
    with static_mode(), paddle.static.scope_guard(scope):
        executor.run(built.start)
        for name, array in arrays.items():
            scope.find_var(name).get_tensor().set(array, paddle.CPUPlace())
        yield executor, scope


def _made(asked: Any, array: Any) -> Any:
    method = asked.method if isinstance(asked, Later) else ""
    return getattr(array, method)() if method else array


def _filled(value: Any, made: Mapping[int, Any]) -> Any:
    """The structure of a result with what was fetched in the place of what stood for it."""
    if isinstance(value, Mapping):
        return {name: _filled(each, made) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(each, made) for each in value]
    return made.get(id(value), value)
