"""Recording PyTorch: what is seen, and that looking does not change it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, run_python
from torch.utils.checkpoint import checkpoint

import detconf
from detconf.arrays import Array
from detconf.frameworks.torch.tensors import to_array
from detconf.recording.event import NOTHING, Event, Flag
from detconf.recording.reading import Recording
from detconf.report.recording import as_text

sys.path.insert(0, str(ROOT / "benchmarks"))
import models

Run = Callable[..., list[Event]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Record what a function computes; its events."""
    before = torch.get_rng_state()

    def record(function: Callable[[], Any], **options: Any) -> list[Event]:
        path = tmp_path / "run.det"
        with detconf.record(path, **options):
            function()
        with Recording(path) as found:
            return list(found.events())

    yield record
    torch.set_rng_state(before)


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events]


def digest(tensor: torch.Tensor) -> bytes:
    return bytes.fromhex(to_array(tensor).digest)


# The observer guard: a recording does not change a bit


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("optimizer", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=["single", "foreach", "fused"])
@pytest.mark.parametrize("name", models.NAMES)
def test_results_are_the_same_with_and_without(run: Run, name: str, optimizer: dict[str, Any], threads: int) -> None:
    """Losses, parameters, gradients and buffers after three steps are bit-equal, recorded or not; so are two recordings."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:

        def train() -> dict[str, bytes]:
            step, model = models.training(name, small=True, lr=0.01, **optimizer)
            losses = [digest(step().detach()) for _ in range(3)]
            state = {key: digest(value) for key, value in model.state_dict().items()}
            state |= {f"{key}.grad": digest(value.grad) for key, value in model.named_parameters()}
            return state | {f"loss{index}": loss for index, loss in enumerate(losses)}

        found: list[dict[str, bytes]] = []
        bare = train()
        if train() != bare:
            pytest.skip("not stable here without a recording")
        first = run(lambda: found.append(train()))
        second = run(lambda: found.append(train()))
        state = run(lambda: found.append(train()), level="state")
    finally:
        torch.set_num_threads(before)
    assert found == [bare, bare, bare]
    assert first == second
    assert len(first) > 50
    assert first[-1].step == 2
    assert {event.step for event in state} == {0, 1, 2}


_A, _B, _S = (torch.randn(shape, generator=torch.Generator().manual_seed(7)) for shape in ((30, 20), (3, 17, 20), (20, 20)))
_C = torch.complex(_A, _A.roll(1, 0))
_ASKING: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "svdvals": (lambda: torch.linalg.svdvals(_A), "aten.linalg_svdvals"),
    "eigvalsh": (lambda: torch.linalg.eigvalsh(_S + _S.T), "aten.linalg_eigvalsh"),
    "cond": (lambda: torch.linalg.cond(_A), "aten.linalg_svdvals"),
    "nuclear": (lambda: torch.linalg.matrix_norm(_A, "nuc"), "aten.linalg_svdvals"),
    "spectral": (lambda: torch.linalg.matrix_norm(_A, 2), "aten.linalg_svdvals"),
    "norm": (lambda: torch.norm(_A, "nuc"), "aten.linalg_svdvals"),
    "rank": (lambda: torch.linalg.matrix_rank(_S + _S.T, hermitian=True), "aten.linalg_eigvalsh"),
    "matmul": (lambda: _B @ _S.view(1, 20, 20), "aten.matmul"),
    "linear": (lambda: torch.nn.functional.linear(_B, _S), ""),
    "complex pinv": (lambda: torch.linalg.pinv(_C), ""),
    "complex nuclear": (lambda: torch.linalg.matrix_norm(_C, "nuc"), "aten.linalg_svdvals"),
    "complex product": (lambda: (_C.mH * 2) @ _C.conj(), ""),
    "imaginary part": (lambda: torch.linalg.pinv(_C.conj().imag), ""),
    "svdvals out": (lambda: torch.linalg.svdvals(_A, out=torch.empty(20)), ""),
    "eigh": (lambda: torch.linalg.eigh(_S + _S.T)[0], ""),
}
"""Functions that ask whether a mode is active, and what the recording shows of them."""


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", _ASKING)
def test_functions_that_ask_for_a_mode_do_not_notice_the_recorder(run: Run, name: str, inference: bool) -> None:
    """What PyTorch computes otherwise under a dispatch mode has its plain bits under the recorder, and is one operation."""
    function, whole = _ASKING[name]
    found: list[bytes] = []
    with torch.inference_mode(inference):
        plain = digest(function())
        events = run(lambda: found.append(digest(function())))
        assert found == [plain]
        assert digest(function()) == plain
    if whole and not inference:  # there, composite functions are whole anyway
        (event,) = (event for event in events if event.name == whole)
        assert len(event.inputs) == (2 if name == "matmul" else 1)
        assert not {"aten._linalg_svd", "aten._linalg_eigh", "aten.bmm", "aten.mm"} & set(names(events))


def test_a_whole_operation_keeps_its_gradient(run: Run) -> None:
    """A product of a batch with one matrix, run with the mode off, is differentiated as it is without a recorder."""

    def gradient(at: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor) -> bytes:
        x = start.clone().requires_grad_()
        at(x).square().sum().backward()
        assert x.grad is not None
        return digest(x.grad)

    cases = [(lambda x: x @ _S.view(1, 20, 20), _B), (lambda x: _B @ x, _S.view(1, 20, 20)), (torch.linalg.svdvals, _A)]
    plain = [gradient(*case) for case in cases]
    found: list[bytes] = []
    events = names(run(lambda: found.extend(gradient(*case) for case in cases)))
    assert found == plain
    assert "aten.matmul" in events
    assert "aten._linalg_svd" in events  # a gradient needs the vectors, recorded or not


def test_a_recording_tells_of_gradients_that_it_may_change(run: Run, tmp_path: Path) -> None:
    """`prod` and `masked_fill` compute their gradients otherwise under any mode: their events say so, and so does the file."""
    mask = _A > 0

    def work() -> None:
        x, fill = _A.clone().requires_grad_(), torch.tensor(1.0, requires_grad=True)
        x.prod(1).sum().backward()
        x.masked_fill(mask, fill).sum().backward()
        x.masked_fill(mask, 2.0).sum().backward()
        _A.prod()
        with torch.no_grad():
            x.prod()

    flagged = [event.name for event in run(work) if event.flags & Flag.PROBED]
    assert flagged == ["aten.prod.dim_int", "aten.masked_fill.Tensor"]
    path = tmp_path / "run.det"
    with Recording(path) as found:
        assert found.summary()["probed"] == ["aten.masked_fill.Tensor", "aten.prod.dim_int"]
        assert "gradients of aten.masked_fill.Tensor, aten.prod.dim_int" in "".join(as_text(found, ops=False))
    assert any("aten.prod.dim_int" in note for note in detconf.compare(path, path).notes)
    run(_A.prod)
    with Recording(path) as found:
        assert found.summary()["probed"] == []


def test_two_recordings_differ_where_the_program_does(run: Run) -> None:
    """Another initial weight shows as another witness of the first operation that reads it."""

    def train(seed: int) -> None:
        step, model = models.training("mlp", small=True, seed=0)
        with torch.no_grad():
            next(model.parameters())[0, 0] += seed
        step()

    first, second = run(lambda: train(0)), run(lambda: train(1))
    assert names(first) == names(second)
    differing = [index for index, (a, b) in enumerate(zip(first, second, strict=True)) if a.outputs != b.outputs]
    assert first[differing[0]].name == "aten.add_.Tensor"
    culprits = [index for index in differing if first[index].inputs == second[index].inputs]
    assert culprits == differing[:1]  # equal inputs, another constant: the only one that introduces a difference


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compiled_code_stays_compiled(tmp_path: Path) -> None:
    """A compiled function gives its compiled bits under a recording, cold and warm, forward and backward; its kernels are marked."""
    code = f"""
import json, torch, detconf
from detconf.recording.event import Flag
from detconf.recording.reading import Recording
torch.set_num_threads(1)
torch.manual_seed(0)
x, w = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
def f(x, w):
    return torch.exp((x @ w) * 0.1).softmax(-1).sum(0) + torch.nn.functional.gelu(w)
def bits(function):
    w.grad = None
    y = function(x, w)
    y.sum().backward()
    return y.detach().clone(), w.grad.clone()
def same(a, b):
    return all(torch.equal(p.view(torch.int32), q.view(torch.int32)) for p, q in zip(a, b))
def recorded(function):
    with detconf.record({str(tmp_path / "a.det")!r}):
        found = bits(function)
    with Recording({str(tmp_path / "a.det")!r}) as file:
        return found, list(file.events())
eager = bits(f)
compiled = torch.compile(f)
plain = bits(compiled)
warm, events = recorded(compiled)
torch._dynamo.reset()
cold, cold_events = recorded(torch.compile(f))
marked = [[e.name for e in each if e.flags & Flag.COMPILED] for each in (events, cold_events)]
print(json.dumps([same(eager, plain), same(plain, warm), same(plain, cold), marked, all("softmax" not in e.name for e in events)]))
"""
    differs, warm, cold, marked, fused = run_python(code, TORCHINDUCTOR_COMPILE_THREADS="1")
    assert not differs  # or the test below would show nothing
    assert (warm, cold, fused) == (True, True, True)
    assert marked[0][0] == marked[1][0] == "aten.mm.out"
    assert marked[0] == marked[1]


def test_recording_imports_no_compiler() -> None:
    """Recording does not import Dynamo or inductor: it would take seconds, and change what is loaded."""
    code = (
        "import json, sys, torch, detconf\n"
        "with detconf.record('/dev/shm/detconf-%d.det' % __import__('os').getpid()) as made: torch.ones(2) + 1\n"
        "__import__('os').unlink(made.path)\n"
        "print(json.dumps([name for name in sys.modules if name.startswith(('torch._dynamo', 'torch._inductor'))]))"
    )
    assert run_python(code) == []


def test_the_users_own_modes_do_not_see_the_recorder(run: Run) -> None:
    """A mode that the user entered before sees its operations and none of ours, copies of transposed outputs included."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Mine(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def work() -> None:
        torch.ones(3, 4).t().clone(memory_format=torch.preserve_format).mul_(2)
        torch.rand(3)

    with Mine():
        work()
        plain = list(seen)
        seen.clear()
        run(work)
    assert seen == plain


# What is seen


def test_digests_are_those_of_the_arrays(run: Run) -> None:
    """Every dtype, scalars, empty, transposed, sliced, negative-zero, NaN, conjugate: the digest of an output is that of its array."""
    made: list[torch.Tensor] = []

    def work() -> None:
        base = torch.arange(24.0).reshape(4, 6) - 3
        dtypes = [
            "float64",
            "float16",
            "bfloat16",
            "float8_e4m3fn",
            "float8_e5m2",
            "complex64",
            "complex128",
            "bool",
            "int8",
            "uint8",
            "int64",
            "uint16",
        ]
        made.extend(base.to(getattr(torch, each)) for each in dtypes)
        made.extend((base.sum(), base[:, :0] * 2, base.t().clone(memory_format=torch.preserve_format), base[::2, 1:4] + 0, -torch.zeros(2)))
        made.append(torch.zeros(2) / 0)
        made.append(torch.complex(base, base).conj() * 1)
        made.append(torch.empty_permuted((2, 3, 4), (2, 0, 1)).fill_(3.0))

    digests = [output.digest for event in run(work) for output in event.outputs]
    for tensor in made:
        assert digest(tensor) in digests, tensor


def test_forward_backward_and_double_backward(run: Run) -> None:
    """Operations of backward and of a backward of that are seen."""

    def work() -> None:
        x = torch.ones(3, requires_grad=True)
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        first.sum().backward()
        assert x.grad is not None

    events = names(run(work))
    assert events.count("aten.pow.Tensor_Scalar") >= 2
    assert len(events) > 8


def test_checkpoints_and_custom_functions(run: Run) -> None:
    """Recomputation of a checkpoint, and forward and backward of a user's autograd function, are seen."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.cosh()

        @staticmethod
        def backward(_ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad.sinh()

    def work() -> None:
        x = torch.ones(3, requires_grad=True)
        for reentrant in (False, True):
            checkpoint(lambda y: Double.apply(y.sin()), x, use_reentrant=reentrant).sum().backward()

    events = names(run(work))
    # Each is computed twice, but where a checkpoint stops as soon as it has what backward asks for.
    assert [events.count(f"aten.{name}") for name in ("sin", "cosh", "sinh")] == [3, 3, 2]


@pytest.mark.parametrize(
    ("optimizer", "name", "written"),
    [({"foreach": True}, "aten._foreach_addcdiv_.ScalarList", 2), ({"fused": True}, "aten._fused_adamw_", 8)],
)
def test_optimizers_that_return_nothing_are_hashed_by_what_they_write(run: Run, optimizer: dict[str, Any], name: str, written: int) -> None:
    """Of foreach and fused optimizers, the tensors that they change are the outputs."""
    parameters = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2, 2))]
    adam = torch.optim.AdamW(parameters, lr=0.1, **optimizer)

    def work() -> None:
        for each in parameters:
            each.grad = torch.ones_like(each)
        adam.step()

    found = next(event for event in run(work) if event.name.startswith(name.partition(".Scalar")[0]))
    digests = [output.digest for output in found.outputs]
    assert found.flags & Flag.IN_PLACE
    assert len(digests) >= written
    assert all(digest(each.detach()) in digests for each in parameters)


def test_steps_are_those_of_the_optimizer(run: Run) -> None:
    """An optimizer step ends a step: its own operations belong to it, what follows to the next."""
    parameter = torch.nn.Parameter(torch.ones(2))
    sgd = torch.optim.SGD([parameter], lr=0.1)

    def work() -> None:
        for _ in range(2):
            parameter.grad = torch.ones(2)
            sgd.step()
        torch.zeros(1)

    events = run(work)
    assert [(event.name, event.step) for event in events] == [
        ("aten.ones", 0), ("aten.add_.Tensor", 0), ("aten.ones", 1), ("aten.add_.Tensor", 1), ("aten.zeros", 2),
    ]  # fmt: skip


def test_in_place_and_out(run: Run) -> None:
    """What is written in place, through a view, or into `out=` is the output; what `out=` held before is no input."""

    def work() -> None:
        x = torch.zeros(2, 3)
        x[0].add_(1)
        torch.add(x, 1, out=torch.empty(2, 3))
        x.copy_(torch.ones(2, 3))

    events = {event.name: event for event in run(work)}
    assert events["aten.add_.Tensor"].outputs[0].digest == digest(torch.ones(3))
    out = events["aten.add.out"]
    assert len(out.inputs) == 1
    assert out.outputs[0].digest == digest(torch.tensor([[2.0, 2, 2], [1, 1, 1]]))
    assert len(events["aten.copy_"].inputs) == 1


@pytest.mark.parametrize(
    ("write", "name", "inputs"),
    [
        (lambda x, y: torch.mul(x, y, out=x), "aten.mul.out", 2),
        (lambda x, y: torch.mul(y, x, out=x), "aten.mul.out", 2),
        (lambda x, _: torch.mul(x, x, out=x), "aten.mul.out", 2),
        (lambda x, y: torch.addmm(y, x, x, out=x), "aten.addmm.out", 3),
        (lambda x, _: x.copy_(x), "aten.copy_", 1),
        (lambda x, y: torch.stack([x, y], out=torch.empty(2, 2, 2)), "aten.stack.out", 2),
        (lambda x, y: torch._foreach_copy_([x, y], [y, x]), "aten._foreach_copy_", 2),
    ],
)
def test_what_is_both_read_and_written_is_an_input(run: Run, write: Callable[..., Any], name: str, inputs: int) -> None:
    """`torch.mul(x, y, out=x)` reads x: another x is another input, and no difference that it introduces."""

    def event(start: float) -> Event:
        x, y = torch.full((2, 2), start), torch.ones(2, 2)
        return next(event for event in run(lambda: write(x, y)) if event.name == name)

    first, other = event(1.5), event(2.5)
    assert len(first.inputs) == inputs
    assert first.inputs != other.inputs


def test_running_statistics_are_written(run: Run) -> None:
    """Batch norm changes its running statistics although its schema does not say so; the next step reads the new ones."""
    norm = torch.nn.BatchNorm1d(3)

    def work() -> None:
        for _ in range(2):
            norm(torch.arange(6.0).reshape(2, 3))

    first, second = [event for event in run(work) if "batch_norm" in event.name]
    assert norm.running_mean is not None
    assert digest(norm.running_mean) in [output.digest for output in second.outputs]
    assert first.inputs != second.inputs


def witness(run: Run, make: Callable[[], torch.Tensor], *reads: Callable[[torch.Tensor], torch.Tensor]) -> list[bytes]:
    """The witnesses of views of one tensor, as `neg` reads them."""

    def work() -> None:
        tensor = make()
        for read in reads:
            read(tensor).neg()

    return [event.inputs[0] for event in run(work) if event.name == "aten.neg"]


def test_the_geometry_of_a_view_is_in_its_witness(run: Run) -> None:
    """Two views of one storage that read other elements, or in another order, have other witnesses; equal views equal ones."""
    views = (lambda t: t, lambda t: t.t(), lambda t: t[1:], lambda t: t[:2], lambda t: t.view(torch.int32).view(torch.float32))
    for make in (lambda: torch.arange(9.0).reshape(3, 3) + 1, lambda: torch.from_numpy((torch.arange(9.0) + 1).numpy()).reshape(3, 3)):
        found = witness(run, make, *views)
        assert len(set(found[:4])) == 4
        assert found[0] == found[4]
        assert witness(run, make, *views) == found


def test_a_write_through_a_transposed_view_counts(run: Run) -> None:
    """A square tensor that is written whole through its transpose does not pass for one that was written plainly."""

    def fill(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: torch.empty(2, 2).copy_(tensor)

    def fill_transposed(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        def make() -> torch.Tensor:
            made = torch.empty(2, 2)
            made.t().copy_(tensor)
            return made

        return make

    data = torch.tensor([[1.0, 2], [3, 4]])
    plain, transposed = witness(run, fill(data), lambda t: t), witness(run, fill_transposed(data), lambda t: t)
    assert plain != transposed


def test_partial_writes_change_the_witness(run: Run) -> None:
    """A chain goes on with each partial write, and names the place of the write."""

    def write(where: int, value: float) -> Callable[[], torch.Tensor]:
        def make() -> torch.Tensor:
            made = torch.zeros(4) + 1
            made[where].fill_(value)
            return made

        return make

    found = [witness(run, write(where, value), lambda t: t)[0] for where, value in ((0, 5.0), (1, 5.0), (0, 6.0), (0, 5.0))]
    assert len(set(found)) == 3
    assert found[0] == found[3]


def test_memory_that_is_used_again_is_not_mistaken(run: Run) -> None:
    """A new tensor at the address of a dead one, made where we do not see it, has a witness of its own."""
    import numpy as np

    def work() -> None:
        for value in range(200):
            torch.from_numpy(np.full(16, value, np.float32)).neg()
            torch.frombuffer(bytearray(16 * [value]), dtype=torch.uint8).bitwise_not()
            torch.tensor([float(value)]).exp()

    events = run(work)
    for name in ("aten.neg", "aten.bitwise_not", "aten.exp"):
        assert len({event.inputs for event in events if event.name == name}) == 200, name


def test_writes_that_pytorch_does_not_dispatch_are_noticed(run: Run) -> None:
    """Where the version counter says that something else wrote, the content is read anew."""

    def work() -> None:
        x = torch.zeros(3) + 1
        x.neg()
        with torch._C._DisableTorchDispatch():
            x.mul_(3)
        x.neg()

    first, second = [event for event in run(work) if event.name == "aten.neg"]
    assert first.inputs != second.inputs


def test_uninitialised_memory_is_marked_and_not_hashed(run: Run) -> None:
    """Allocations have no digest: what stands there by chance would be a false alarm."""

    def work() -> None:
        x = torch.empty(1000)
        torch.empty_like(x)
        x.new_empty(3)
        torch.empty_strided((2, 2), (1, 2))
        torch.ones(2).resize_(500)

    for event in run(work):
        uninitialised = event.name != "aten.ones"
        assert bool(event.flags & Flag.UNINITIALISED) == uninitialised, event
        assert (event.outputs[0].digest == NOTHING) == uninitialised


def test_random_operations_carry_the_generator(run: Run) -> None:
    """A draw has a digest of the state before it: of the default generator or of the one that was passed; others have none."""
    own = torch.Generator().manual_seed(5)

    def work(seed: int) -> None:
        torch.manual_seed(seed)
        torch.rand(2)
        torch.nn.functional.dropout(torch.ones(4), 0.5)
        torch.randperm(4, generator=own.manual_seed(5))
        torch.zeros(2)

    first, second = run(lambda: work(0)), run(lambda: work(1))
    drawn = [(a, b) for a, b in zip(first, second, strict=True) if a.flags & Flag.RANDOM]
    assert [a.name.partition(".")[2].partition(".")[0] for a, _ in drawn] == ["rand", "bernoulli_", "randperm"]
    assert [a.random == b.random for a, b in drawn] == [False, False, True]
    assert all(not event.random for event in first if not event.flags & Flag.RANDOM)


def test_threads_are_recorded(run: Run) -> None:
    """Operations of threads, of a pool and of a subclass with its own run() are seen, each with the number of its thread."""

    class Mine(threading.Thread):
        def run(self) -> None:
            torch.ones(2).cos()

    def work() -> None:
        torch.ones(2).sin()
        for thread in (threading.Thread(target=lambda: torch.ones(2).exp()), Mine()):
            thread.start()
            thread.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: torch.ones(2).tan()).result()

    plain = threading.Thread.start
    threads = {event.name: event.thread for event in run(work) if event.name != "aten.ones"}
    assert threads["aten.sin"] == 0
    assert set(threads) == {"aten.sin", "aten.exp", "aten.cos", "aten.tan"}
    assert 0 not in (threads["aten.exp"], threads["aten.cos"], threads["aten.tan"])
    assert threading.Thread.start is plain


def test_a_thread_that_outlives_the_recording_goes_on(run: Run) -> None:
    """When the recording ends, a thread with its mode computes on, unrecorded."""
    go, results = threading.Event(), []

    def target() -> None:
        go.wait(60)
        results.append((torch.ones(2) + 1).tolist())

    thread = threading.Thread(target=target)
    run(thread.start)
    go.set()
    thread.join(60)
    assert results == [[2.0, 2.0]]


def test_inference_mode(run: Run) -> None:
    """Inference tensors, which have no version counter, are recorded; equal runs give equal events."""
    linear = torch.nn.Linear(3, 3)

    def work() -> None:
        with torch.inference_mode():
            x = torch.ones(2, 3)
            for _ in range(2):
                x.add_(1)
                x = linear(x).relu()

    first = run(work)
    assert first == run(work)
    assert len({event.inputs for event in first if event.name == "aten.relu"}) == 2


@pytest.mark.filterwarnings("ignore")
def test_unusual_tensors_do_not_stop_a_program(run: Run) -> None:
    """Sparse, quantized, nested, meta, subclass and oneDNN tensors: computed as without us, hashed where there are bytes."""
    from torch.masked import masked_tensor
    from torch.testing import make_tensor

    def work() -> None:
        dense = make_tensor((4, 4), dtype=torch.float32, device="cpu", low=1, high=2)
        sparse = torch.eye(4).to_sparse()
        (sparse @ dense).sum()
        (sparse + sparse).coalesce()
        (dense.to_sparse_csr() @ dense).sum()
        quantized = torch.quantize_per_tensor(dense, 0.1, 0, torch.quint8)
        quantized.dequantize()
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2
        torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)], layout=torch.jagged) * 2
        torch.ones(3, device="meta") + 1
        masked_tensor(dense, dense > 1.5) + 1
        dense.to_mkldnn().relu().to_dense()
        torch.nn.Linear(2, 2, device="meta")

    work()  # what is made once in a process
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = run(work)
    torch.set_rng_state(state)
    assert first == run(work)
    skipped = [event for event in first if event.flags & Flag.SKIPPED]
    assert any(event.name == "aten.add.Tensor" for event in skipped)  # meta
    hashed = [event.name for event in first if event.outputs and event.outputs[0].digest != NOTHING]
    assert "aten._to_sparse" in hashed
    assert "aten.quantize_per_tensor" in hashed


def test_functional_transforms_and_higher_order_operators(run: Run) -> None:
    """vmap, func.grad, jit and an operator of higher order run under a recording."""
    from torch._higher_order_ops.wrap import wrap

    scripted = torch.jit.script(_scripted)

    def work() -> None:
        x = torch.arange(6.0).reshape(2, 3)
        torch.func.vmap(torch.sin)(x)
        torch.func.grad(lambda y: y.cos().sum())(x)
        scripted(x)
        wrap(lambda y: y.tan(), x)

    assert {"aten.sin", "aten.cos", "aten.exp"} <= set(names(run(work)))


def _scripted(x: torch.Tensor) -> torch.Tensor:
    return x.exp() + 1


def test_values_are_those_before_and_after(run: Run, tmp_path: Path) -> None:
    """With values, an in-place operation keeps what it read and what it wrote, as bytes nobody can change."""

    def work() -> None:
        x = torch.ones(2)
        x.add_(torch.full((2,), 2.0))
        x.zero_()

    events = run(work, values=True)
    place = names(events).index("aten.add_.Tensor")
    with Recording(tmp_path / "run.det") as found:
        kept = found.values(place)
    expected = {("input", 0): torch.ones(2), ("input", 1): torch.full((2,), 2.0), ("output", 0): torch.full((2,), 3.0)}
    assert kept == {key: Array("float32", (2,), bytes(to_array(value).data)) for key, value in expected.items()}
    events = run(work, values=range(place, place + 1))
    with Recording(tmp_path / "run.det") as found:
        assert [bool(found.values(event.index)) for event in events] == [event.index == place for event in events]


def test_sources_name_the_module_and_the_line(run: Run) -> None:
    """With sources, an operation has the module's path and the line of the program; one of backward those of its forward."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU()))
    line = work_line() + 4

    def work() -> None:
        model(torch.ones(1, 2)).sum().backward()

    events = {event.name: event for event in run(work, sources=True)}
    assert events["aten.addmm"].scope == "0"
    assert events["aten.relu"].scope == "1.0"
    assert events["aten.relu"].source.endswith(f"test_recording_torch.py:{line}")
    assert events["aten.threshold_backward"].scope == "1.0 ReluBackward0"
    assert events["aten.threshold_backward"].source == events["aten.relu"].source
    assert all(not event.source and not event.scope for event in run(work))


def work_line() -> int:
    return sys._getframe(1).f_lineno - 1


def test_state_level_names_what_the_optimizer_holds(run: Run) -> None:
    """Each step has the loss, parameters, gradients, optimizer state and learning rate; the first also what it began with."""
    model = torch.nn.Linear(2, 1)
    adam = torch.optim.AdamW(model.parameters(), lr=0.1)

    def work() -> None:
        for _ in range(2):
            adam.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            adam.step()

    events = run(work, level="state")
    first, second = ([event.name for event in events if event.step == step] for step in (0, 1))
    assert first == ["loss", "entry.optimizer.0.0", "entry.optimizer.0.1", "entry.optimizer.0.lr", *second[1:]]
    assert second[:6] == ["loss", *(f"optimizer.0.0{part}" for part in ("", ".grad", ".step", ".exp_avg", ".exp_avg_sq"))]
    assert second[11:] == ["optimizer.0.lr"]
    assert all(event.flags == Flag.STATE for event in events)
    assert next(event for event in events if event.step == 1 and event.name == "optimizer.0.0").outputs[0].digest == digest(
        model.weight.detach()
    )


def test_state_level_has_the_buffers_that_a_training_writes(run: Run) -> None:
    """Running statistics are state; a constant buffer, one that is not saved, and modules that are gone are not reported.

    Their first values are written, too: the first step has all of them.
    """
    models: list[torch.nn.Sequential] = []

    def work() -> None:
        torch.nn.BatchNorm1d(3)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3), torch.nn.LazyBatchNorm1d())
        model.register_buffer("constant", torch.ones(2))
        model[0].register_buffer("scratch", torch.zeros(1), persistent=False)
        models.append(model)
        sgd = torch.optim.SGD(model[:2].parameters(), lr=0.1)
        for _ in range(2):
            model[0].scratch.add_(1)
            model[:2](torch.arange(6.0).reshape(2, 3)).sum().backward()
            sgd.step()

    events = run(work, level="state")
    for step in (0, 1):
        found = {event.name: event.outputs[0].digest for event in events if event.step == step and event.name.startswith("buffer.")}
        used = [f"buffer.BatchNorm1d.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")]
        assert list(found)[: None if step else 3] == used
        assert not any(word in name for name in found for word in ("constant", "scratch", "BatchNorm1d.0.running"))
    assert found["buffer.BatchNorm1d.1.running_mean"] == digest(models[0][1].running_mean)


def test_torch_imported_inside_the_block_is_recorded(tmp_path: Path) -> None:
    """A framework that is imported later is traced from its import on."""
    code = f"""
import json, sys, detconf
from detconf.recording.reading import Recording
with detconf.record({str(tmp_path / "a.det")!r}):
    assert "torch" not in sys.modules
    import torch
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    torch.optim.SGD([parameter], lr=0.1).step()
with Recording({str(tmp_path / "a.det")!r}) as found:
    print(json.dumps([[event.name for event in found.events()], found.summary()["steps"], found.summary()["facts"]["versions"]["torch"]]))
"""
    found, steps, version = run_python(code)
    assert found[:2] == ["aten.ones", "aten.ones"]
    assert (steps, version) == (1, str(torch.__version__))


def test_nothing_is_left_behind(run: Run) -> None:
    """After a recording no mode, hook or wrapper remains, also when the block raised."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as stack

    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    before = (len(stack()), len(hooks), threading.Thread.start, len(torch.nn.modules.module._global_forward_hooks))

    def fail() -> None:
        torch.ones(2)
        msg = "mine"
        raise ZeroDivisionError(msg)

    for options in ({"sources": True}, {"level": "state"}):
        with pytest.raises(ZeroDivisionError, match="mine"):
            run(fail, **options)
    run(lambda: torch.ones(2), sources=True)
    assert (len(stack()), len(hooks), threading.Thread.start, len(torch.nn.modules.module._global_forward_hooks)) == before


@pytest.mark.slow
def test_a_long_loop_does_not_grow(tmp_path: Path) -> None:
    """The memory of a recorded training loop, with shapes and threads that change, stays where it is."""
    code = f"""
import json, resource, threading, torch, detconf
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
adam = torch.optim.AdamW(model.parameters())
def loop(turns):
    for turn in range(turns):
        adam.zero_grad()
        model(torch.rand(1 + turn % 97, 16)).sum().backward()
        adam.step()
        if turn % 50 == 0:
            thread = threading.Thread(target=lambda: torch.ones(turn + 1).sum()); thread.start(); thread.join()
torch.set_num_threads(1)
loop(300)
with detconf.record({str(tmp_path / "a.det")!r}):
    loop(700)
    before = rss()
    loop(2500)
    after = rss()
print(json.dumps((after - before) / 2**20))
"""
    assert run_python(code, MALLOC_ARENA_MAX="1") < 12
