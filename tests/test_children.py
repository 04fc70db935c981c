"""Threads and child processes of a program that called apply(): they come up under it, and are never seeded again."""

from __future__ import annotations

import json
import multiprocessing.process
import pickle
import queue
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config as inductor
from conftest import clean_environment, run_python

import detconf
from detconf import session as sessions
from detconf.access import Env, Rng
from detconf.children import Inheritance
from detconf.frameworks import catalogue
from detconf.knob import Span

METHODS = ("fork", "spawn", "forkserver")

HEAD = """
import json, multiprocessing, os, random, sys, warnings

def state(_=None):
    import torch
    import torch._inductor.config as inductor
    return [
        torch.get_deterministic_debug_mode(),
        torch.backends.cuda.matmul.fp32_precision,
        inductor.fallback_random,
        torch.backends.cudnn.benchmark,
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    ]
"""
UNDER = [2, "ieee", True, True, ":4096:8"]  # strict, with the one override that the scripts make
BARE = [0, "none", False, False, None]


def run_script(folder: Path, code: str, *words: str, options: tuple[str, ...] = (), **extra: str) -> Any:
    """Run a file, whose functions a spawned child can import; the value of the last JSON line that it prints."""
    script = folder / "program.py"
    script.write_text(HEAD + textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, *options, str(script), *words],
        env=clean_environment(**extra), cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "could not be put in force" not in done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("method", METHODS)
def test_children_come_up_under_the_profile(tmp_path: Path, method: str) -> None:
    """A child of each start method has the parent's settings, override included, by the framework's own getters; one
    that is started after restore() has none of them."""
    code = f"""
        if __name__ == "__main__":
            import detconf
            context = multiprocessing.get_context({method!r})
            with detconf.apply("strict", overrides={{"torch.backends.cudnn.benchmark": True}}):
                with context.Pool(1) as pool:
                    found = pool.map(state, [0])
            if context.get_start_method() != "forkserver":
                with context.Pool(1) as pool:
                    found += pool.map(state, [0])
            print(json.dumps(found))
    """
    under, *bare = run_script(tmp_path, code)
    assert under == UNDER
    assert bare in ([BARE], [])  # a fork server keeps the environment that it was started with


def test_a_fork_server_that_was_there_before_does_not_matter(tmp_path: Path) -> None:
    """Children of a fork server that started before apply() get the variables too, although the server has not got them."""
    found = run_script(
        tmp_path,
        """
        if __name__ == "__main__":
            context = multiprocessing.get_context("forkserver")
            with context.Pool(1) as pool:
                pool.map(abs, [1])
            import detconf
            detconf.apply("strict", overrides={"torch.backends.cudnn.benchmark": True})
            with context.Pool(1) as pool:
                print(json.dumps(pool.map(state, [0])[0]))
        """,
    )
    assert found == UNDER


@pytest.mark.parametrize("method", METHODS)
def test_dataloader_workers(tmp_path: Path, method: str) -> None:
    """Workers of a DataLoader have the settings, and the seeds that torch gives them: the same in two runs."""
    code = f"""
        import detconf
        if __name__ == "__main__":
            detconf.apply("strict", overrides={{"torch.backends.cudnn.benchmark": True}})

        class Data:
            def __len__(self):
                return 2
            def __getitem__(self, index):
                return [state(), random.random()]

        if __name__ == "__main__":
            import torch
            loader = torch.utils.data.DataLoader(Data(), None, num_workers=2, multiprocessing_context={method!r})
            print(json.dumps(list(loader)))
    """
    first = run_script(tmp_path, code)
    assert [each[0] for each in first] == [UNDER, UNDER]
    assert first[0][1] != first[1][1]
    if method == "fork":
        assert run_script(tmp_path, code) == first


def test_workers_of_joblib(tmp_path: Path) -> None:
    """Loky, which joblib and scikit-learn start their workers with, hands the settings on as multiprocessing does."""
    pytest.importorskip("joblib")
    found = run_script(
        tmp_path,
        """
        if __name__ == "__main__":
            import detconf
            detconf.apply("strict", overrides={"torch.backends.cudnn.benchmark": True})
            from joblib import Parallel, delayed
            print(json.dumps(Parallel(2)(delayed(state)() for _ in range(2))))
        """,
    )
    assert found == [UNDER, UNDER]


def test_the_main_module_run_again_in_a_child_does_not_seed(tmp_path: Path) -> None:
    """apply() at the top of a script runs again in a spawned child: settings yes, seed no, so that workers draw their own."""
    found = run_script(
        tmp_path,
        """
        import detconf
        session = detconf.apply("strict", seed=5)

        def draw(_):
            steps = [step.knob.name for step in session.plan.steps]
            return [random.random(), "random.seed" in steps, session.attestation.ok]

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                print(json.dumps([draw(0), *pool.map(draw, [0, 1], chunksize=1)]))
        """,
    )
    own, *others = found
    assert own[1:] == [True, True]
    assert [each[1:] for each in others] == [[False, True]] * 2
    assert own[0] not in [each[0] for each in others]


def test_a_forked_child_does_not_seed_what_its_parent_had_not(tmp_path: Path) -> None:
    """NumPy imported only in forked children: configured there, not seeded, so that they do not draw alike."""
    found = run_script(
        tmp_path,
        """
        import detconf
        session = detconf.apply("strict", seed=5)

        def draw(_):
            import numpy
            return [float(numpy.random.rand()), "numpy.random.seed" in {entry.knob for entry in session.attestation.entries}]

        if __name__ == "__main__":
            context = multiprocessing.get_context("fork")
            drawn = []
            for _ in range(2):
                with context.Pool(1) as pool:
                    drawn += pool.map(draw, [0])
            import numpy
            print(json.dumps([*drawn, draw(0), numpy.random.RandomState(5).rand()]))
        """,
    )
    first, second, own, seeded = found
    assert own == [seeded, True]
    assert first[0] != second[0]
    assert seeded not in (first[0], second[0])
    assert not first[1]


def test_a_child_needs_no_file(tmp_path: Path) -> None:
    """The profile travels resolved: its file may be gone, and the working folder another, when the child starts."""
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: strict\nknobs: {torch.backends.cudnn.benchmark: true}\n")
    found = run_script(
        tmp_path,
        """
        def tell(_):
            from detconf.session import _stack
            return [_stack[-1].attestation.profile, state()]

        if __name__ == "__main__":
            import detconf
            detconf.apply("mine.yaml", frameworks=["torch"])
            os.remove("mine.yaml")
            os.mkdir("other")
            os.chdir("other")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(json.dumps(pool.map(tell, [0])[0]))
        """,
    )
    assert found == ["mine", UNDER]


def test_nested_sessions_and_frameworks_reach_the_child(tmp_path: Path) -> None:
    """A child gets what several sessions come to together, and nothing for a framework that was left out."""
    found = run_script(
        tmp_path,
        """
        def tell(_):
            from detconf.session import _stack
            return [len(_stack), sorted({step.knob.framework for step in _stack[0].plan.steps}), state()]

        if __name__ == "__main__":
            import detconf
            detconf.apply("strict", frameworks=["torch"])
            with detconf.apply("warn", frameworks=["torch"], overrides={"torch.backends.cudnn.benchmark": True}):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    inner = pool.map(tell, [0])[0]
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(json.dumps([inner, pool.map(tell, [0])[0]]))
        """,
    )
    assert found[0] == [1, ["native", "torch"], [1, *UNDER[1:]]]
    assert found[1] == [1, ["native", "torch"], [*UNDER[:3], False, UNDER[4]]]


def test_a_configured_child_is_not_configured_twice(tmp_path: Path) -> None:
    """Under DETCONF_PROFILE and the sitecustomize folder, what the parent hands down is there already: one session."""
    from detconf.launch import child_environment

    variables = child_environment("strict", {})
    found = run_script(
        tmp_path,
        """
        def tell(_):
            from detconf.session import _stack
            return len(_stack)

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(json.dumps([tell(0), *pool.map(tell, [0])]))
        """,
        **variables,
    )
    assert found == [1, 1]


@pytest.mark.usefixtures("unchanged")
def test_what_is_handed_down_ends_with_the_session() -> None:
    """Nothing of ours stays in multiprocessing's process object, and copying it in one process changes nothing."""
    config = multiprocessing.process.current_process()._config  # type: ignore[attr-defined]
    with detconf.apply("strict"):
        assert isinstance(config["detconf"], Inheritance)
        copied = pickle.loads(pickle.dumps(config["detconf"]))
        assert copied.rows == config["detconf"].rows
        assert not any(isinstance(step.knob.access, Rng) for step in copied.plan.steps)
        assert len(sessions._stack) == 1
    assert "detconf" not in config


@pytest.mark.usefixtures("unchanged")
def test_a_child_that_cannot_be_configured_starts_all_the_same(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a child's detconf does not know is left out; a failure is said on stderr and stops nothing."""
    known = Inheritance(sessions.inherit, "mine", (("torch.nope", True, ""), ("torch.backends.cudnn.benchmark", False, "")))
    assert [step.knob.name for step in known.plan.steps] == ["torch.backends.cudnn.benchmark"]
    monkeypatch.setattr(sessions.Session, "_begin", lambda _: 1 / 0)
    sessions.inherit(-1, "mine", known.rows)
    assert "mine could not be put in force in this child process: ZeroDivisionError" in capsys.readouterr().err


def test_forking_while_a_session_is_at_work_does_not_hang() -> None:
    """A child that is forked while another thread holds detconf's lock can use detconf."""
    found = run_python(
        """
import detconf, json, os, threading
from detconf import session
detconf.apply("strict")
held, go = threading.Event(), threading.Event()
def hold():
    with session._lock:
        held.set()
        go.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(0 if detconf.apply("warn").check().ok else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go.set()
thread.join()
print(json.dumps(code))
"""
    )
    assert found == 0


# ---- threads ----


@pytest.fixture
def old_thread() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """A thread that is there before any session: calls a function and hands back what it returns."""
    asked: queue.Queue[Any] = queue.Queue()
    answers: queue.Queue[Any] = queue.Queue()

    def work() -> None:
        torch.get_num_threads()  # torch gives a thread its number when it first asks
        for function in iter(asked.get, None):
            answers.put(function())

    dynamic = catalogue()["torch.mkl.dynamic"].access
    saved = dynamic.save()
    thread = threading.Thread(target=work, name="old")
    thread.start()

    def call(function: Callable[[], Any]) -> Any:
        asked.put(function)
        return answers.get(timeout=60)

    yield call
    asked.put(None)
    thread.join(60)
    dynamic.load(saved)  # once torch.set_num_threads was called, torch turns it off in every thread that starts


def in_new_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(60)


def graph_settings() -> list[Any]:
    portable = inductor.save_config_portable(readonly_values=True)  # what the keys of inductor's cache are made from
    return [inductor.fallback_random, portable["fallback_random"], torch._dynamo.config.suppress_errors, inductor.deterministic]


@pytest.mark.usefixtures("unchanged")
def test_every_thread_has_the_graph_settings(old_thread: Callable[[Callable[[], Any]], Any]) -> None:
    """Settings of inductor and dynamo, which torch keeps per thread since 2.12, hold in threads from before and after
    apply(), in pools, and end everywhere with restore()."""
    before = old_thread(graph_settings)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(graph_settings).result(60) == before
        with detconf.apply("strict") as session:
            assert [old_thread(graph_settings), in_new_thread(graph_settings), pool.submit(graph_settings).result(60)] == [
                [True, True, False, True]
            ] * 3
            for ask in (old_thread, in_new_thread):
                assert ask(session.check).ok
        assert [old_thread(graph_settings), in_new_thread(graph_settings), pool.submit(graph_settings).result(60)] == [before] * 3
    assert graph_settings() == before


def test_a_part_imported_in_a_thread_is_configured_for_all() -> None:
    """Inductor imported first in a worker thread: the main thread, and the next worker, have its settings too."""
    code = """
import json, threading, torch, detconf
session = detconf.apply("strict")
def importer():
    import torch._inductor.config
thread = threading.Thread(target=importer)
thread.start(); thread.join()
seen = [torch._inductor.config.fallback_random, session.check().ok]
thread = threading.Thread(target=lambda: seen.append(torch._inductor.config.fallback_random))
thread.start(); thread.join()
session.restore()
print(json.dumps([*seen, torch._inductor.config.fallback_random]))
"""
    assert run_python(code) == [True, True, True, False]


@pytest.mark.usefixtures("unchanged", "old_thread")
def test_a_value_of_ones_own_is_set_and_put_back() -> None:
    """A key that the program had set in this thread is set for all, and comes back as it was: set here, unset elsewhere."""
    inductor.fallback_random = True
    try:
        assert not in_new_thread(lambda: inductor.fallback_random)
        with detconf.apply("strict"):
            assert in_new_thread(lambda: inductor.fallback_random)
        assert (inductor.fallback_random, in_new_thread(lambda: inductor.fallback_random)) == (True, False)
        with detconf.apply("strict", overrides={"torch._inductor.config.fallback_random": False}) as session:
            assert not inductor.fallback_random
            with inductor.patch(fallback_random=True):
                assert [entry.knob for entry in session.check().entries] == ["torch._inductor.config.fallback_random"]
        assert inductor.fallback_random
    finally:
        inductor.fallback_random = False


@pytest.mark.filterwarnings("ignore::detconf.errors.DetconfWarning")  # `ci` is late in this process by nature
@pytest.mark.usefixtures("unchanged")
def test_check_reports_what_a_thread_keeps_for_itself(old_thread: Callable[[Callable[[], Any]], Any]) -> None:
    """torch's thread count is each thread's own: check() called in one from before apply() reports it, with what to do."""
    with detconf.apply("ci") as session:
        old_thread(lambda: torch.set_num_threads(2))
        assert session.check().ok
        found = old_thread(session.check)
        assert [entry.knob for entry in found.entries] == ["torch.set_num_threads"]
        assert "set it here too" in found.entries[0].note


@pytest.mark.usefixtures("unchanged", "old_thread")
def test_restoring_in_another_thread_says_what_stays() -> None:
    """restore() called elsewhere puts back what it can reach and names what the thread that called apply() keeps."""
    prefix, count = "torch._inductor.config.", torch.get_num_threads()
    options = [name.removeprefix(prefix) for name in catalogue() if name.startswith(prefix)]
    before = {each: getattr(inductor, each) for each in options if hasattr(inductor, each)}
    inductor.fallback_random = False  # a value of this thread's own
    with pytest.warns(detconf.DetconfWarning, match="is not fully in force"):
        session = detconf.apply("strict", overrides={"torch.set_num_threads": count + 1, "env.PYTHONHASHSEED": "77"})
    with pytest.warns(detconf.DetconfWarning, match="'MainThread', which called apply"):
        report = in_new_thread(session.restore)
    named, kept = {entry.knob for entry in report.entries}, {"torch.set_num_threads", "torch._inductor.config.fallback_random"}
    assert kept <= named
    # Others of inductor's too, where they were written in this thread before: by mode="max-autotune", or for a while by an audit.
    assert all(name.startswith(prefix) for name in named - kept), named
    assert "put back only there" in {entry.knob: entry.note for entry in report.entries}["torch._inductor.config.fallback_random"]
    torch.set_num_threads(count)
    for name in named & {prefix + each for each in before}:
        setattr(inductor, name.removeprefix(prefix), before[name.removeprefix(prefix)])


@pytest.mark.usefixtures("unchanged")
def test_scope_says_what_a_thread_keeps_for_itself(old_thread: Callable[[Callable[[], Any]], Any]) -> None:
    """Over the whole catalogue: a knob is marked `scope="thread"` exactly if a thread from before does not see a write."""
    found = {name: _seen_elsewhere(name, old_thread) for name in catalogue()}
    own = {name for name, seen in found.items() if seen is False}
    assert own == {name for name, knob in catalogue().items() if knob.scope == "thread" and found[name] is not None}
    assert sum(seen is True for seen in found.values()) > 40


def _seen_elsewhere(name: str, elsewhere: Callable[[Callable[[], Any]], Any]) -> bool | None:
    """Does another thread see what is written here? None where nothing could be written."""
    knob = catalogue()[name]
    before = knob.read()
    if isinstance(knob.access, (Env, Rng)) or before.problem:
        return None
    values = [True, False] if knob.accepts is bool else knob.accepts if isinstance(knob.accepts, tuple) else [1, 2, 3]
    values = values if knob.accepts is bool or isinstance(knob.accepts, (tuple, Span)) else []
    saved = {each.name: each.access.save() for each in catalogue().values() if each.name in (name, *knob.touches)}
    try:
        for value in values:
            try:
                knob.access.write(value)
            except Exception:  # noqa: BLE001  # not for this build; the next one
                continue
            here = str(knob.read())
            if here != str(before):
                return bool(elsewhere(lambda: str(knob.read())) == here)
    finally:
        for each, value in saved.items():  # in the order of the catalogue
            catalogue()[each].access.load(value)
    return None
