"""Static programs under an Executor: every value is fetched, gradients and optimizer included.

Paddle clones a program before it runs it, so that fetching more changes neither the program nor its results. Values
inside control flow cannot be fetched: an operation that holds a block is marked SKIPPED. Parameters and other persistent
values are read from the scope before the run, since fetching them gives what they are after it.

Not recorded: programs of the old intermediate representation, and plans of several jobs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import paddle

from detconf.arrays import Array, raw
from detconf.digests import NOTHING, Flag, mix
from detconf.frameworks.paddle.contents import generator_state
from detconf.frameworks.paddle.operations import MOVES, RANDOM
from detconf.frameworks.paddle.references import References
from detconf.lookup import loaded

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder

_PLUMBING = frozenset(("builtin.parameter", "pd_op.data", "builtin.combine", "builtin.split", "builtin.slice", "builtin.shadow_output"))
_STACK = "cf.stack_create"
_NONE = Array("none", (), b"")


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation of a program.

    Attributes:
        name: as the program spells it.
        reads: ids of its operands, and of what its blocks read from outside.
        makes: ids of its results.
        writes: (id, dtype) of the results that can be fetched.
        blocks: it holds control flow.
        held: name under which the scope holds its result; empty for none.
    """

    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    writes: tuple[tuple[str, str], ...]
    blocks: bool
    held: str


def watch(recorder: Recorder) -> Callable[[], None]:
    """Report the runs of programs. Returns what ends that."""
    references = References()
    try:
        executor = loaded("paddle.base.executor").Executor
        plain = vars(executor)["_run_pir_impl"]
    except Exception:  # noqa: BLE001  # private parts of another version: programs run unseen
        return references.back
    references.put_attribute(executor, "_run_pir_impl", _running(recorder, plain))
    return references.back


def _running(recorder: Recorder, plain: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        program, scope, fetch_list = (given.arguments[name] for name in ("program", "scope", "fetch_list"))

        def go(fetched: Any) -> Any:
            given.arguments["fetch_list"] = fetched
            return plain(*given.args, **given.kwargs)

        whole = program if program is not None else paddle.pir.core.default_main_program()
        if not recorder.active or getattr(self, "plan", None) is not None or not isinstance(whole, paddle.pir.Program):
            return go(fetch_list)
        held = scope if scope is not None else paddle.static.global_scope()
        return _run(recorder, whole, held, self._check_fetch_list(fetch_list), go)

    return run


def _run(recorder: Recorder, program: Any, scope: Any, asked: list[Any], go: Callable[[Any], Any]) -> Any:
    operations = program.global_block().ops
    if any(each.name() in ("builtin.set_parameter", "pd_op.fetch") for each in operations):
        return _start_up(recorder, operations, scope, lambda: go(asked))
    steps, values = _steps(operations)
    rate = getattr(program, "lr_name", "")  # a scheduler sets it inside `go`: there, what is fetched is right
    held = [step for step in steps if step.held and step.held != rate and step.writes]
    before = {step.writes[0][0]: _in_scope(scope, step.held, step.writes[0][1]) for step in held}
    random = generator_state()
    kinds = {name: kind for step in steps for name, kind in step.writes}
    results = go([*asked, *values.values()])
    arrays = {name: _array(value, kinds[name]) for name, value in zip(values, results[len(asked) :], strict=True)}
    _record(recorder, steps, arrays, {name: array for name, array in before.items() if array is not None}, random)
    return results[: len(asked)]


def _steps(operations: Sequence[Any]) -> tuple[list[_Step], dict[str, Any]]:
    """(the operations, id -> value of everything that can be fetched)."""
    steps, values = [], {}
    for each in operations:
        fetched = [value for value in each.results() if value.initialized() and value.is_dense_tensor_type()]
        values.update({value.id: value for value in fetched})
        name, attributes = each.name(), each.attrs()
        held = {"builtin.parameter": "parameter_name", "pd_op.data": "name"}.get(name, "")
        steps.append(
            _Step(
                name,
                tuple(dict.fromkeys(_reads(each))),
                tuple([value.id for value in each.results()]),
                tuple([(value.id, str(value.dtype).rpartition(".")[2]) for value in fetched]),
                bool(list(each.blocks())),
                str(attributes.get(held, "")) if held and (name != "pd_op.data" or any(attributes.get("persistable", ()))) else "",
            )
        )
    return steps, values


def _reads(operation: Any) -> Iterator[str]:
    yield from (value.id for value in operation.operands_source() if value.initialized())
    made: set[str] = set()
    for block in operation.blocks():
        made.update(value.id for value in getattr(block, "args", list)())
        for each in block.ops:
            yield from (name for name in _reads(each) if name not in made)
            made.update(value.id for value in each.results())


class _Witnesses:
    """id of a value -> its digest, or for one that cannot be fetched a witness of what it was made of.

    The stacks that carry values from a block to its gradient are such values: what is pushed and popped has a witness in
    what the pushing operation read.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._known = {name: bytes.fromhex(array.digest) for name, array in arrays.items()}
        self._stacks: dict[str, str] = {}

    def __getitem__(self, name: str) -> bytes:
        return self._known.get(self._stacks.get(name, name), NOTHING)

    def made(self, step: _Step, reads: Sequence[bytes]) -> None:
        witness = mix(*reads)
        if step.name == _STACK:
            self._stacks.update(dict.fromkeys(step.makes, step.makes[0]))
        for name in step.makes:
            self._known.setdefault(name, witness)
        for name in step.reads if step.blocks else ():
            if name in self._stacks:
                self._known[self._stacks[name]] = witness


def _record(recorder: Recorder, steps: Sequence[_Step], arrays: Mapping[str, Array], before: Mapping[str, Array], random: bytes) -> None:
    lost = _overwritten(steps, arrays, before)
    found = {name: array for name, array in {**arrays, **before}.items() if name not in lost}
    witnesses = _Witnesses(found)
    for step in steps:
        reads = [witnesses[name] for name in step.reads]
        witnesses.made(step, reads)
        if step.name == "pd_op.data" and step.writes and step.writes[0][0] not in {*before, *lost}:
            recorder.leaf("paddle.data", arrays[step.writes[0][0]])
        base = step.name.rpartition(".")[2]
        if step.name in _PLUMBING or base in MOVES or not (step.writes or step.blocks):
            continue
        names = [name for name, _ in step.writes]
        flags = (Flag.IN_PLACE if base.endswith("_") else 0) | (Flag.SKIPPED if step.blocks or not lost.isdisjoint(names) else 0)
        written = [arrays[name] for name in names]
        after = [_NONE if name in lost else arrays[name].owned() for name in names]
        kept = ([found.get(name, _NONE).owned() for name in step.reads], after) if recorder.keeping else None
        recorder.operation(
            f"paddle.{base}",
            reads,
            [NOTHING if name in lost else bytes.fromhex(arrays[name].digest) for name in names],
            tuple([(array.dtype, array.shape) for array in written]),
            random=random if base in RANDOM else b"",
            flags=flags,
            values=kept,
        )


def _overwritten(steps: Sequence[_Step], arrays: Mapping[str, Array], before: Mapping[str, Array]) -> set[str]:
    """Values that an operation in place wrote over: they were fetched after that, with its result in their memory.

    Which operand that is, an operation does not say; the gradient that an optimizer reads is none. Bytes do.
    """
    found: set[str] = set()
    for step in steps:
        if step.name.endswith("_"):
            made = {arrays[name].digest for name, _ in step.writes}
            found.update(name for name in step.reads if name not in before and name in arrays and arrays[name].digest in made)
    return found


def _start_up(recorder: Recorder, operations: Sequence[Any], scope: Any, go: Callable[[], Any]) -> Any:
    """A program that fills parameters, or one whose fetches are fixed: what it leaves in the scope is one operation."""
    random = generator_state()
    result = go()
    written = list(_left(operations, scope))
    recorder.operation(
        "paddle.startup_program",
        (),
        [bytes.fromhex(array.digest) for array in written],
        tuple([(array.dtype, array.shape) for array in written]),
        random=random,
        flags=Flag.COMPILED,
        values=((), [array.owned() for array in written]) if recorder.keeping else None,
    )
    return result


def _left(operations: Sequence[Any], scope: Any) -> Iterator[Array]:
    for each in operations:
        name = {"builtin.set_parameter": "parameter_name", "builtin.shadow_output": "output_name"}.get(each.name())
        if name is not None:
            kind = str(each.operands_source()[0].dtype).rpartition(".")[2]
            found = _in_scope(scope, str(each.attrs()[name]), kind)
            if found is not None:
                yield found


def _in_scope(scope: Any, name: str, kind: str) -> Array | None:
    variable = scope.find_var(name)
    try:
        return None if variable is None else _array(variable.get_tensor(), kind).owned()
    except Exception:  # noqa: BLE001  # a sparse or empty variable
        return None


def _array(value: Any, kind: str) -> Array:
    """A fetched value: an array of NumPy, or a tensor of a scope. NumPy has no bfloat16: `kind` says it.

    A result that its operation leaves out, such as the mask of a dropout in evaluation mode, is fetched as None.
    """
    data = loaded("numpy").asarray(value)
    return _NONE if data.dtype.hasobject else Array(kind, data.shape, raw(data))
