"""Looks inside a graph of Paddle: every value of the program is fetched, and told apart by its bytes from what dynamic mode made.

Names of operations differ between the modes (`pow` and `elementwise_pow`), so the two are aligned by content: dynamic mode
writes the MD5 of every output of every operation (`FLAGS_tensor_md5_checksum_output_path`); an operation of the program
that reads nothing but what dynamic mode also made, and makes something that it did not, is where bits change.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle

from detconf.frameworks.paddle.forms import Given, leaves
from detconf.frameworks.paddle.operations import MOVES, OPTIMIZERS, RANDOM
from detconf.frameworks.paddle.programmed import Built
from detconf.frameworks.paddle.training import build, started
from detconf.frameworks.rungs import Operation, Settings, Survey
from detconf.frameworks.source import short
from detconf.lookup import first_line

if TYPE_CHECKING:
    from detconf.frameworks.paddle.ladder import Paddle

_LOG, _BINARY = "FLAGS_tensor_md5_checksum_output_path", "FLAGS_tensor_md5_checksum_use_binary_format"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_CONSTANT = frozenset(("full", "full_int_array", "assign_value", "assign_value_"))
_GIVEN = frozenset(("data", "parameter", "constant", "full_like"))
"""The last is the gradient that backward starts from, which dynamic mode makes without an operation."""
_PLUMBING = frozenset(("combine", "split", "slice", "shadow_output", "set_parameter", "fetch"))
_OWN = os.path.join(os.path.dirname(paddle.__file__), "")


def survey(program: Paddle, rung: str, settings: Settings) -> Survey:  # noqa: ARG001  # one look serves all settings
    """Look inside the program of a rung, on the first inputs. Never raises; what cannot be looked at is said in the result."""
    found = Survey()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _survey(program, rung, found)
    except Exception as error:  # noqa: BLE001  # private parts of another version: say so and go on
        found.unexamined.append(f"inside {rung}: {first_line(error)}")
    return found


def _survey(program: Paddle, rung: str, found: Survey) -> None:
    if program.whole and rung != "static":
        found.unexamined.append("the inside of a step that does everything itself: pass a layer and inputs for that")
        return
    program.entry.back()
    graph: Any = build(program)[0] if program.whole else _program(program, program.given[0])
    operations = (graph.main if program.whole else graph.main_program).global_block().ops
    for each in operations:
        _note(each, found)
    if rung == "prim":
        _decomposed(graph, found)
        return
    several = _several(operations)
    if several:
        found.unexamined.append(f"the operations of static: paddle.{several} makes several steps in one call; let the function make one")
        return
    values = _fetched_from(graph) if program.whole else _fetched(program, graph)
    _compare(operations, values, _dynamic(program), found)


def _dynamic(program: Paddle) -> set[str]:
    """MD5 of everything that dynamic mode makes in one call. It is the last thing to do: the log gives tensors other names."""
    handle, path = tempfile.mkstemp()
    os.close(handle)
    kept = paddle.get_flags([_LOG, _BINARY])
    program.entry.back()
    args, kwargs = program.given[0].fresh()
    known = {_md5(each.numpy()) for each in _tensors([*args, *kwargs.values()])}
    paddle.set_flags({_LOG: path, _BINARY: True})
    try:
        result = program.target(*args, **kwargs)
    finally:
        paddle.set_flags(kept)
    with open(path, encoding="utf-8") as file:
        rows = [line.rsplit(":", 1) for line in file.read().splitlines() if ":" in line]
    os.unlink(path)
    known |= {row[1] for row in rows} | {_md5(each.numpy()) for each in _tensors([result])}
    held = program.target.state_dict().values() if isinstance(program.target, paddle.nn.Layer) else ()
    return known | {_md5(each.numpy()) for each in held}


def _tensors(values: Sequence[Any]) -> Iterator[Any]:
    yield from (each for each in leaves(list(values)) if isinstance(each, paddle.Tensor))


def _md5(array: Any) -> str:
    return hashlib.md5(np.ascontiguousarray(array).tobytes(), usedforsecurity=False).hexdigest()


def _program(program: Paddle, given: Given) -> Any:
    """The program that `to_static` makes: `main_program`, `inputs`, `parameters`."""
    program.entry.back()
    args, kwargs = given.fresh()
    made = paddle.jit.to_static(program.target, full_graph=True)
    function = made.forward if isinstance(made, paddle.nn.Layer) else made
    concrete, _ = function.get_concrete_program(*args, **kwargs)
    return concrete


def _fetched(program: Paddle, graph: Any) -> dict[str, Any]:
    """id of a value -> its array: every value of the program that can be fetched."""
    block = graph.main_program.global_block()
    values = _values(graph.main_program)
    args, kwargs = program.given[0].fresh()
    tensors = list(_tensors([*args, *kwargs.values()]))
    names = [each.attrs()["name"] for each in block.ops if each.name() == "pd_op.data"]
    program.entry.back()
    scope = paddle.static.Scope()
    states = graph.parameters[0] if isinstance(graph.parameters, tuple) and len(graph.parameters) == 2 else graph.parameters
    held = {each.name: each.numpy() for each in states}
    fed = dict(zip([name for name in names if name not in held], [each.numpy() for each in tensors], strict=False))
    paddle.enable_static()
    try:
        with paddle.static.scope_guard(scope):
            for name, array in held.items():
                scope.var(name).get_tensor().set(array, paddle.CPUPlace())
            results = paddle.static.Executor(paddle.CPUPlace()).run(graph.main_program, feed=fed, fetch_list=values)
    finally:
        paddle.disable_static()
    return {value.id: result for value, result in zip(values, results, strict=True)}


def _fetched_from(built: Built) -> dict[str, Any]:
    """The same of a step that was built as a program."""
    values = _values(built.main)
    with started(built) as (executor, _):
        results = executor.run(built.main, fetch_list=values)
    return {value.id: result for value, result in zip(values, results, strict=True)}


def _values(program: Any) -> list[Any]:
    return [
        value for each in program.global_block().ops for value in each.results() if value.initialized() and value.is_dense_tensor_type()
    ]


def _base(operation: Any) -> str:
    return str(operation.name()).rpartition(".")[2]


def _note(operation: Any, found: Survey) -> None:
    """Random operations, constants and narrow dtypes."""
    base, source = _base(operation), _source(operation)
    if base in RANDOM:
        found.random.setdefault(f"paddle.{base}", source)
    if base.endswith("_"):
        found.writes.setdefault(f"paddle.{base}", source)
    for value in operation.operands_source():
        if value.initialized() and _base(value.get_defining_op()) in _CONSTANT:
            found.constants.setdefault(f"paddle.{base}", source)
    for value in operation.results():
        kind = str(value.dtype).rpartition(".")[2].lower() if value.initialized() and value.is_dense_tensor_type() else ""
        if kind in ("bfloat16", "float16"):
            found.low.add(kind)
            found.roundings.setdefault(f"paddle.{base}", source)


def _compare(operations: Sequence[Any], values: dict[str, Any], made: set[str], found: Survey) -> None:
    known: set[str] = set()
    for each in operations:
        base = _base(each)
        results = [value.id for value in each.results() if value.initialized()]
        reads = [value.id for value in each.operands_source() if value.initialized()]
        same = all(value in known for value in reads)
        if base in _CONSTANT | _GIVEN | _PLUMBING or (base in MOVES and same):
            known.update(results)
            continue
        fetched = [value for value in results if value in values]
        if not fetched or list(each.blocks()):
            known.update(results if same else [])
            continue
        found.examined += 1
        parted = [value for value in fetched if _md5(values[value]) not in made]
        if not parted:
            known.update(results)
        elif same:
            found.operations.append(Operation(f"paddle.{base}", "graph", _word(each, base), _source(each)))
        if parted and base.endswith("_"):
            known.difference_update(reads)  # some of them are written


def _several(operations: Sequence[Any]) -> str:
    """An optimizer that makes several steps in one program: of what it writes only the last can be fetched."""
    counted = Counter((_base(each), each.operands_source()[0].id) for each in operations if _base(each) in OPTIMIZERS)
    return next((name for (name, _), count in counted.items() if count > 1), "")


def _word(operation: Any, base: str) -> str:
    """In what it can differ: random draws, a constant of another dtype than what it is combined with, or the kernel."""
    if base in RANDOM:
        return "generator"
    result = operation.results()[0]
    operands = [value for value in operation.operands_source() if value.initialized()]
    for value in operands:
        maker = value.get_defining_op()
        if _base(maker) in _CONSTANT and value.dtype != result.dtype and "int_array" not in _base(maker):
            kind, other = (str(each.dtype).rpartition(".")[2].lower() for each in (value, result))
            return f"constant {maker.attrs().get('value', '')} held as {kind} beside {other}"
    return "constant through another kernel" if any(_base(value.get_defining_op()) in _CONSTANT for value in operands) else "another kernel"


def _decomposed(graph: Any, found: Survey) -> None:
    """The operations that primitive decomposition replaces, and by how many."""
    switch = paddle.base.core._set_prim_all_enabled
    before = [(_base(each), _source(each)) for each in graph.main_program.global_block().ops]
    outputs = [each for each in leaves(graph.outputs) if isinstance(each, paddle.pir.Value)]
    switch(True)
    try:
        with paddle.pir_utils.IrGuard():
            paddle.decomposition.decompose(graph.main_program, outputs)
        after = {_base(each) for each in graph.main_program.global_block().ops}
    finally:
        switch(False)
    for base, source in dict(before).items():
        if base not in after:
            found.operations.append(Operation(f"paddle.{base}", "replaced", "replaced by primitive operations", source))


def _source(operation: Any) -> str:
    """ "model.py:12", from the stack that Paddle keeps with an operation: the innermost frame that is not its own."""
    frames = _FRAME.findall("\n".join(getattr(operation, "callstack", None) or ()))
    own = [f"{short(file)}:{line}" for file, line in frames if not file.startswith((_OWN, "<")) and "detconf" not in file]
    return own[-1] if own else ""
