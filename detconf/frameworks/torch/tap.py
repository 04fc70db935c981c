"""Looks inside a compiled graph: which operations give other bits than eager ones on equal inputs.

Two ways, for the two things that a compiler does. *Decompositions*: the graph as AOT autograd captures it, undecomposed,
runs operation by operation; each that has a decomposition is computed both ways on the same inputs. *Lowerings*: every
intermediate of the graph that inductor compiles is made an output of it too (the tap), and each operation is computed
eagerly on the tapped values. The tap can change what is fused: whether results are still those of the untapped graph is
checked and said.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Interpreter, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from detconf.frameworks.rungs import Settings, Survey
from detconf.frameworks.torch import lesions
from detconf.frameworks.torch.compilers import LOWERED, options_of
from detconf.frameworks.torch.folding import foldings
from detconf.frameworks.torch.inference import INFERENCE, freezing
from detconf.frameworks.torch.parting import LOW, agree, compare, maker, name_of, source_of
from detconf.lookup import first_line

if TYPE_CHECKING:
    from detconf.frameworks.torch.ladder import Torch

_SEEDED = re.compile(r"inductor_(rand|seed|lookup_seed)")
"""Inductor's own random operations: inductor_random, inductor_seeds and the like (torch/_inductor/inductor_prims.py)."""


def survey(subject: Torch, rung: str, settings: Settings) -> Survey:
    """Look inside `rung` on the first inputs. Never raises; what cannot be looked at is said in the result."""
    settings = dict(settings)
    deep = settings.pop("deep", True)
    found = Survey()
    looks = [_decompositions]
    looks += [foldings] if deep and rung in INFERENCE else []
    looks += [_lowerings] if deep and rung in LOWERED else []
    with warnings.catch_warnings(), torch.no_grad() if rung in INFERENCE else nullcontext():
        warnings.simplefilter("ignore")
        for look in looks:
            _look(look, subject, rung, settings, found)
    return found


Look = Callable[["Torch", str, Settings, Survey], None]


def _look(look: Look, subject: Torch, rung: str, settings: Settings, found: Survey) -> None:
    try:
        with lesions.isolated(), lesions.changed(settings) as options:
            look(subject, rung, options, found)
    except Exception as error:  # noqa: BLE001  # private parts of a compiler: say so and go on
        found.unexamined.append(f"the {look.__name__.strip('_')}: {first_line(error)}")


def _decompositions(subject: Torch, rung: str, settings: Settings, found: Survey) -> None:
    """Run the undecomposed graph, computing each decomposed operation both ways."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    with torch._inductor.config.patch(options_of("decomposed", settings)):
        table = select_decomp_table()

    def compiler(*, backward: bool) -> Callable[..., Any]:
        def compiled(graph: Any, _inputs: Any) -> Any:
            def run(*args: Any) -> Any:
                return _Both(graph, table, found, backward=backward).run(*args)

            return run

        return compiled

    def backend(graph: Any, inputs: Any) -> Any:
        from torch._functorch.aot_autograd import make_boxed_func

        def boxed(*, backward: bool) -> Any:
            return lambda module, example: make_boxed_func(compiler(backward=backward)(module, example))

        return aot_autograd(fw_compiler=boxed(backward=False), bw_compiler=boxed(backward=True), decompositions={})(graph, inputs)

    function, clean = subject.prepared()
    clean()
    subject.call(torch.compile(function, backend=backend))
    if rung not in ("decomposed", *LOWERED):  # nothing is decomposed there
        found.operations, found.examined = [], 0


class _Both(Interpreter):  # type: ignore[misc]  # torch ships no types that we follow
    """Runs a graph; where an operation has a decomposition, that too."""

    def __init__(self, graph: Any, table: Any, found: Survey, *, backward: bool) -> None:
        super().__init__(graph)
        self.table, self.found, self.backward = table, found, backward

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        state = torch.get_rng_state()
        result = super().run_node(n)
        after = torch.get_rng_state()
        _note(n, result, self.found, drew=not torch.equal(state, after))
        if n.target in self.table and not n.target._schema.is_mutable:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            torch.set_rng_state(state)
            try:
                with torch.no_grad(), _Decomposing(self.table) as mode:
                    other = mode.run(n.target, args, kwargs)
            except Exception as error:  # noqa: BLE001  # a decomposition that works on traced values only
                self.found.unexamined.append(f"the decomposition of {n.target}: {first_line(error)}")
            else:
                compare(n, (result, other), "decomposition", self.found, backward=self.backward, again=(args, kwargs))
            finally:
                torch.set_rng_state(after)
        return result


class _Decomposing(TorchDispatchMode):  # type: ignore[misc]  # as above
    """Runs decompositions in place of operations that have one, inside of decompositions too."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def run(self, target: Any, args: Any, kwargs: Any) -> Any:
        return target(*args, **kwargs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.table:
            with self:
                result = self.table[func](*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return func(*args, **(kwargs or {}))


def _note(node: Node, result: Any, found: Survey, *, drew: bool) -> None:
    """Random operations and narrow dtypes. Attention is tagged as random and draws only where it drops out."""
    if drew:
        found.random.setdefault(name_of(node), source_of(node))
    for each in tree_leaves(result):
        if isinstance(each, torch.Tensor) and each.dtype in LOW:
            found.low.add(str(each.dtype).removeprefix("torch."))
            if torch.Tag.pointwise in getattr(node.target, "tags", ()) or "_to_copy" in str(node.target):
                found.roundings.setdefault(name_of(node), source_of(node))


def _lowerings(subject: Torch, rung: str, settings: Settings, found: Survey) -> None:
    """Compile with every intermediate as an output, and compare each with the eager operation on the tapped values."""
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    tapped: list[tuple[Any, dict[str, Any], bool]] = []

    def inner(graph: Any, inputs: Any, **kwargs: Any) -> Any:
        plain = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))  # constants are shared: here they could only be copied as fakes
        extra, count = _tap(graph)
        compiled = compile_fx_inner(graph, inputs, **kwargs)
        _forget_strides(count)
        places = [node.name for node in plain.graph.nodes if node.op == "placeholder"]

        def run(args: Any) -> Any:
            entered = [each.detach().clone() if isinstance(each, torch.Tensor) else each for each in args]
            result = list(compiled(args))
            values = dict(zip(places, entered, strict=True)) | dict(zip(extra, result[-len(extra) :] if extra else [], strict=True))
            values = {name: each.detach().clone() if isinstance(each, torch.Tensor) else each for name, each in values.items()}
            tapped.append((plain, values, bool(kwargs.get("is_backward"))))
            return result[:count]

        run._boxed_call = True  # type: ignore[attr-defined]  # the arguments come as one list
        return run

    own: dict[str, Any] = {name: {} for name in ("decompositions",) if name in settings}
    options = options_of(rung, settings) | {"fx_graph_cache": False}

    def backend(graph: Any, inputs: Any) -> Any:
        return compile_fx(graph, inputs, inner_compile=inner, config_patches=options, **own)

    function, clean = subject.prepared()
    clean()
    with freezing(settings) if rung == "freezing" else nullcontext():
        results = subject.call(torch.compile(function, backend=backend))
    for graph, values, backward in tapped:
        _replay(graph, values, found, backward=backward)
    found.invasive = not agree(results, subject.once(rung, settings))


def _tap(graph: Any) -> tuple[list[str], int]:
    """Make every tensor of a graph an output too. (the names of the new outputs, how many there were)."""
    (end,) = (node for node in graph.graph.nodes if node.op == "output")
    outputs = list(end.args[0])
    extra = [
        node
        for node in graph.graph.nodes
        if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor) and not _writes(node)
    ]
    end.args = ((*outputs, *extra),)
    graph.recompile()
    return [node.name for node in extra], len(outputs)


def _forget_strides(count: int) -> None:
    """Keep the strides of the graph's own outputs only: AOT autograd counts from the end of that list."""
    context = torch._guards.TracingContext.try_get()
    strides = getattr(context, "output_strides", None)
    if strides:
        del strides[count:]


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema and schema.is_mutable)


def _replay(graph: Any, values: dict[str, Any], found: Survey, *, backward: bool) -> None:
    """Compute each operation eagerly on the tapped values, and compare."""
    known, opaque = dict(values), set[str]()
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            known[node.name] = getattr(graph, node.target, None)
        if node.op != "call_function" or _writes(node):
            continue
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) or _SEEDED.search(str(node.target)):
            if "seed" not in str(node.target):
                found.random.setdefault(name_of(node), source_of(node))
            opaque.add(node.name)
            continue
        if any(each.name in opaque and each.name not in known for each in node.all_input_nodes):
            opaque.add(node.name)  # made of a seed, which has no eager meaning
            continue
        try:
            args, kwargs = tree_map(lambda each: _value(known, each), (node.args, node.kwargs))
            with torch.no_grad():
                result = node.target(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  # an operation that exists inside inductor only
            found.unexamined.append(f"{name_of(node)}: {first_line(error)}")
            continue
        if node.name in values:
            made = maker(node)
            again = tree_map(lambda each: _value(known, each), (made.args, made.kwargs))
            compare(node, (result, values[node.name]), "lowering", found, backward=backward, again=again)
        else:
            known[node.name] = result


def _value(known: dict[str, Any], value: Any) -> Any:
    return known[value.name] if isinstance(value, Node) else value
