"""The shadow engine of NumPy: real results are untouched, shadows are what exact arithmetic gives, everything is put back."""

# ruff: noqa: NPY002  # the legacy generators are what programs use
from __future__ import annotations

import copy
import functools
import importlib.util
import math
import multiprocessing
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detconf.frameworks.numpy import shadow
from detconf.shadows.study import Known, Study

_LONG = np.longdouble
_WEIGHTS = np.random.RandomState(3).randn(8, 20).astype("float32")
_TABLE = {"rows": [np.random.RandomState(4).randn(6), np.arange(4)], "pair": (np.ones(3, "float32"), "text")}
_GENERATOR = np.random.default_rng(5)
_LEGACY = np.random.RandomState(6)


@contextmanager
def followed(study: Study | None = None, *roots: Any) -> Iterator[tuple[Study, Any]]:
    """A study with NumPy's engine."""
    study = study or Study()
    engine = shadow.start(study)
    study.engines.append(engine)
    try:
        engine.adopt(roots)
        yield study, engine
    finally:
        engine.end()


def run(function: Callable[[], Any], asked: Study | None = None) -> tuple[Any, dict[str, Known], Study]:
    """(real results, what is known of each, the study) of a function that returns a mapping."""
    np.random.seed(11)
    random.seed(11)
    with followed(asked, function) as (study, engine):
        result = function()
        known = {name: engine.known(each) for name, each in result.items()}
    return result, known, study


def bare(function: Callable[[], Any]) -> Any:
    np.random.seed(11)
    random.seed(11)
    return function()


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm() -> Any:
    x = np.linspace(-1, 1, 24, dtype="float32").reshape(2, 3, 4)
    w, u = _WEIGHTS[:4, :16] * np.float32(0.5), _WEIGHTS[4:, :16] * 0.5
    h, c = np.zeros((2, 4), "float32"), np.zeros((2, 4), "float32")
    hs = []
    for t in range(3):
        i, j, f, o = np.split(x[:, t] @ w + h @ u, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(j)
        h = sigmoid(o) * np.tanh(c)
        hs.append(h)
    return {"h": np.stack(hs, 1), "c": c}


def layer_norm() -> Any:
    x = _WEIGHTS * np.array([[3], [1], [0.3], [0.1], [0.03], [0.01], [1], [2]])
    x = x.astype("float32")
    mean = x.mean(-1, keepdims=True)
    return {"y": (x - mean) / np.sqrt(x.var(-1, keepdims=True) + 1e-5), "std": np.std(x), "z": (x - x.mean()) / np.std(x)}


def softmax() -> Any:
    e = np.exp(_WEIGHTS - _WEIGHTS.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    picked = p[np.arange(8), np.arange(8) % 20]
    return {"p": p, "loss": -np.log(picked).mean(), "picked": picked}


def convolution() -> Any:
    image = np.arange(49, dtype=np.float32).reshape(7, 7) / 7
    kernel = np.array([[0.1, 0.2, 0.3], [-0.4, 0.5, -0.6], [0.7, -0.8, 0.9]], dtype=np.float32)
    padded = np.pad(image, 1)
    out = np.empty((4, 4), np.float32)
    for i in range(4):
        for j in range(4):
            out[i, j] = (padded[2 * i : 2 * i + 3, 2 * j : 2 * j + 3] * kernel).sum()
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))[::2, ::2]
    strided = np.lib.stride_tricks.as_strided(padded, (4, 4, 3, 3), tuple(2 * s for s in padded.strides) + padded.strides)
    return {"loops": out, "einsum": np.einsum("ijkl,kl->ij", windows, kernel), "tensordot": np.tensordot(strided, kernel, 2)}


def adam() -> Any:
    w, m, v = _WEIGHTS[0].copy(), np.zeros(20, "float32"), np.zeros_like(_WEIGHTS[0])
    for step in range(1, 6):
        g = w * 2 + np.float32(0.1)
        m = 0.9 * m + 0.1 * g
        v *= 0.999
        v += 0.001 * g * g
        w -= 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return {"w": w, "m": m, "v": v}


def derivatives() -> Any:
    rng = np.random.RandomState(0)
    x, layers = rng.randn(5, 3), [rng.randn(3, 3) for _ in range(4)]
    d = np.tile(np.eye(3), (5, 1, 1))
    for w in layers:
        x = sigmoid(x @ w)
        d = (x * (1 - x))[:, :, None] * np.matmul(w.T, d)
    return {"x": x, "d": d, "norm": np.linalg.norm(d), "trace": np.einsum("bii->b", d)}


def moves() -> Any:
    x = np.array([[3.3, 1.1, 2.2], [0.1, 0.7, 0.4]], dtype="float32")
    y = x.T[::-1].copy()
    y[y > 2] = -1.5
    y.flat[1] = 0.25
    z = np.zeros((4, 3))
    np.add.at(z, [0, 0, 2], x[:, [0, 1, 1]].sum())
    z[1:3] += x[:2]
    np.copyto(z[3], x[0])
    view = z.reshape(2, 6)[:, ::2]
    view *= 3
    rows = np.array([row.sum() for row in z])
    order = np.argsort(x, axis=1)
    x.sort(axis=0)
    total = np.float32(0)
    for each in x.ravel():
        total += each
    return {
        "y": y,
        "z": z,
        "rows": rows,
        "sorted": np.take_along_axis(x, order, 1),
        "x": x,
        "total": total,
        "where": np.where(x > 0.5, x, -x),
        "clip": np.clip(x, 0.2, 2.0),
        "median": np.median(x),
        "quantile": np.quantile(x, 0.3, axis=1),
        "cat": np.concatenate([x, y.T[:, :3]]),
        "cumsum": x.cumsum(),
        "round": np.round(x * 1.7, 1),
        "floor": x // 0.3,
        "mod": x % 0.3,
        "minimum": np.minimum(x, 0.5, out=np.empty_like(x)),
        "fft": np.fft.rfft(x[0]),
    }


def drawn() -> Any:
    a = np.random.randn(4).astype("float32")
    rng = np.random.default_rng(7)
    b = rng.normal(size=(2, 3)) * a[0]
    np.random.shuffle(a)
    order = list(range(5))
    random.shuffle(order)
    return {
        "a": a,
        "b": b,
        "p": rng.permutation(a),
        "c": np.random.choice(a, 2),
        "i": np.array([np.random.randint(5), random.randint(0, 9), *order]),
        "u": np.array([random.random(), random.gauss(0, 1)]),
        "later": np.random.uniform(-1, 1, 2),
    }


PROGRAMS = [lstm, layer_norm, softmax, convolution, adam, derivatives, moves, drawn]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("study", [{}, {"noise": 3}, {"local": True}, {"rounding": "tf32"}, {"casts": "kept"}], ids=str)
def test_real_results_are_those_of_an_unwatched_run(program: Callable[[], Any], study: dict[str, Any]) -> None:
    """Bits, dtypes and shapes do not change, whatever kind of run it is; the generators are where they would be."""
    expected, after = bare(program), (np.random.get_state()[1].tobytes(), random.getstate())
    result, known, seen = run(program, Study(**study))
    assert dict.fromkeys(expected, True) == {name: same(expected[name], result[name]) for name in expected}
    assert after == (np.random.get_state()[1].tobytes(), random.getstate())
    assert all(known.values()), known
    assert [each for each in seen.losses if "float64" not in each] == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_shadows_are_more_exact_than_the_results(program: Callable[[], Any]) -> None:
    """Shadows lie within a few rounding errors of the real results, and are no copies of them."""
    result, known, _ = run(program)
    for name, each in result.items():
        real = np.asarray(each)
        got = known[name].shadow
        assert got.shape == real.shape
        assert known[name].value.dtype == str(real.dtype)
        if real.dtype.kind in "fc":
            assert np.abs(got - real.astype(got.dtype)).max() <= 1e-5 * (np.abs(got).max() + 1), name


def test_numbers_are_the_same_each_time() -> None:
    """Values and operations of one program are numbered alike."""
    first, second = run(moves)[2], run(moves)[2]

    def told(study: Study) -> Any:
        return [(each.name, [r.value.index for r in each.reads], [w.index for w in each.writes]) for each in study.operations]

    assert told(first) == told(second)
    assert len(first.values) == len(second.values)


def in_higher_precision(program: Callable[..., Any], dtype: Any) -> Any:
    return {name: np.asarray(each) for name, each in program(dtype).items()}


def chain(dtype: Any) -> Any:
    """All of it in one dtype; 0.1 is the Python number in each."""
    kind = np.dtype(dtype).type
    x = np.array([[0.1, 0.2, -0.3], [0.7, 1.1, 0.4]], dtype=dtype)
    h = np.tanh(x @ x.T) * kind(0.5) + 0.1
    h[0] -= h[1].mean()
    h = np.concatenate([h, h**2], axis=1).cumsum(axis=0)
    return {"h": h, "var": h.var(axis=0, ddof=1), "mean": h.mean(), "norm": np.sqrt((h * h).sum())}


@pytest.mark.parametrize(("low", "high", "bound"), [(np.float32, np.float64, 1e-14), (np.float64, _LONG, 1e-17)])
def test_shadows_are_the_program_in_higher_precision(low: Any, high: Any, bound: float) -> None:
    """A float32 program's shadows are its float64 results; a float64 program's are far below its rounding."""
    expected = in_higher_precision(chain, high)
    result, known, _ = run(lambda: chain(low))
    for name, each in expected.items():
        assert np.abs(known[name].shadow - each).max() <= bound, name
        assert np.asarray(result[name]).dtype == low
    assert np.abs(known["h"].shadow - np.asarray(result["h"])).max() > 0


_UNARY = {
    "exp": lambda x: np.exp(-np.abs(x)),
    "tanh": np.tanh,
    "add": lambda x: x + 0.3,
    "scale": lambda x: 1.7 * x,
    "mean": lambda x: x - x.mean(axis=0),
    "std": lambda x: x / (np.std(x) + 0.1),
    "sum": lambda x: x + x.sum(),
    "transpose": lambda x: x.T.copy().T,
    "flip": lambda x: x[::-1],
    "roll": lambda x: np.roll(x, 1, axis=1),
    "matmul": lambda x: x @ (x.T @ x) / 10,
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x)[:, : x.shape[1]],
    "where": lambda x: np.where(x > 0.05, x, 0.2 * x),
    "pick": lambda x: x[np.array([2, 0, 1])],
    "reshape": lambda x: x.T.reshape(3, 3),
    "maximum": lambda x: np.maximum(x, 0),
    "sqrt": lambda x: np.sqrt(x * x + 0.1),
    "clip": lambda x: x.clip(-1, 1),
    "first": lambda x: x * x[0, 0],
    "pad": lambda x: np.pad(x, 1)[1:4, 1:4],
    "cumsum": lambda x: np.cumsum(x, axis=1) / 3,
    "concatenate": lambda x: np.concatenate([x[1:], x[:1]]),
    "in place": lambda x: np.add(x, 1, out=x),
}


@given(st.lists(st.sampled_from(sorted(_UNARY)), min_size=1, max_size=8), st.integers(0, 1000))
@settings(max_examples=60)
def test_chains_of_operations(names: list[str], seed: int) -> None:
    """The shadow of any chain is what the chain gives in float64, real results what it gives in float32."""
    start = np.random.RandomState(seed).randn(3, 3).astype("float32")

    def program(dtype: Any = None) -> Any:
        x = np.array(start) if dtype is None else start.astype(dtype)
        for name in names:
            x = _UNARY[name](x)
        return {"x": x}

    expected, exact = bare(program)["x"], bare(functools.partial(program, np.float64))["x"]
    result, known, _ = run(program)
    assert same(expected, result["x"])
    if np.isfinite(exact).all():
        np.testing.assert_allclose(known["x"].shadow, exact, rtol=1e-11, atol=1e-11 * (1 + np.abs(exact).max()))


_KEYS = st.sampled_from(
    [
        0,
        -1,
        slice(1, 3),
        slice(None, None, 2),
        slice(None, None, -1),
        ...,
        (slice(None), 1),
        (slice(None), slice(None, None, -2)),
        [2, 0],
        (0, 1),
    ]
)
_STEP = st.tuples(st.sampled_from(["view", "write", "add", "transpose", "reshape", "copy", "base"]), _KEYS)


def _write(x: Any, key: Any, value: float) -> Any:
    x[key] = value
    return x


def _add(x: Any, _key: Any, _value: float) -> Any:
    x *= 1.1
    return x


_ACTIONS: dict[str, Callable[[Any, Any, float], Any]] = {
    "view": lambda x, key, _: x[key],
    "write": _write,
    "add": _add,
    "transpose": lambda x, *_: x.T,
    "reshape": lambda x, *_: x.reshape(-1),
    "copy": lambda x, *_: x.copy(),
}


def _play(steps: list[tuple[str, Any]], dtype: Any, seen: Callable[[Any], None]) -> None:
    base = np.array(np.arange(16.0).reshape(4, 4) / 7, dtype=dtype)
    held = [base]
    for number, (action, key) in enumerate(steps):
        try:
            x = base if action == "base" else _ACTIONS[action](held[-1], key, (number + 1) / 10)
        except (IndexError, ValueError):
            continue
        if isinstance(x, np.ndarray):
            held.append(x)
    for each in held:
        seen(each)


@given(st.lists(_STEP, max_size=14), st.booleans())
@settings(max_examples=150)
def test_views_and_writes(steps: list[tuple[str, Any]], longer: bool) -> None:
    """Whatever is written through a view is in the shadow of its base, and the other way round."""
    kinds = ("float64", _LONG) if longer else ("float32", "float64")

    exact: list[Any] = []
    _play(steps, kinds[1], lambda each: exact.append(np.array(each)))
    with followed() as (_, engine):
        shadows: list[Any] = []
        _play(steps, kinds[0], lambda each: shadows.append(engine.known(each).shadow))
    assert len(exact) == len(shadows)
    for wanted, got in zip(exact, shadows, strict=True):
        start = 0 if not longer else np.finfo(np.float64).eps  # its elements come from a float64 array
        np.testing.assert_allclose(got, wanted, rtol=max(1e-14, start) if not longer else 4e-16, atol=0)


def test_noise_is_of_the_size_of_rounding() -> None:
    """What noise does to a float32 program is what its own rounding does, within a factor of a hundred."""

    def program() -> Any:
        x = _WEIGHTS @ _WEIGHTS.T
        return {"x": np.tanh(x).sum(axis=0)}

    result, exact, _ = run(program)
    off = np.abs(exact["x"].shadow - result["x"]).max()
    for seed in range(3):
        noisy = np.abs(run(program, Study(noise=seed))[1]["x"].shadow - exact["x"].shadow).max()
        assert off / 100 < noisy < off * 100
    again = run(program, Study(noise=0))[1]["x"].shadow
    assert same(again, run(program, Study(noise=0))[1]["x"].shadow)


def test_local_runs_measure_each_operation() -> None:
    """A product in float32 is within tens of its unit; copies have no error at all."""
    study = run(lambda: {"y": (_WEIGHTS @ _WEIGHTS.T)[[1, 0]]}, Study(local=True))[2]
    found = {each.name: each.local for each in study.operations}
    assert 0.05 < found["numpy.matmul"] < 100
    assert found["numpy.getitem"] is None


def test_rounded_contractions() -> None:
    """A study of TF32 rounds the inputs of products, in the shadow only."""
    plain, known, _ = run(lambda: {"y": _WEIGHTS @ _WEIGHTS.T})
    result, rounded, _ = run(lambda: {"y": _WEIGHTS @ _WEIGHTS.T}, Study(rounding="tf32"))
    assert same(plain["y"], result["y"])
    assert np.abs(rounded["y"].shadow - known["y"].shadow).max() > 1e-4


def test_casts() -> None:
    """A cast passes the shadow on; where casts are kept, it rounds it."""

    def program() -> Any:
        return {"y": (np.array([0.1, 0.3]) * 3).astype("float32") * 1.0}

    assert abs(run(program)[1]["y"].shadow[0] - _LONG(0.1) * 3) < 1e-16
    assert abs(run(program, Study(casts="kept"))[1]["y"].shadow[0] - np.float32(_LONG(0.1) * 3)) < 1e-16


def test_options_have_names_and_can_be_altered() -> None:
    """`ddof` given by place or in a method is found by its name; altering it changes the shadow only."""

    def program() -> Any:
        return {
            "a": np.var(_WEIGHTS, 0, None, None, 1),
            "b": _WEIGHTS.var(ddof=1),
            "c": np.std(_WEIGHTS),
            "d": np.sqrt(_WEIGHTS[0] ** 2 + 1e-5),
        }

    plain, known, study = run(program)
    by_name = {each.name: each for each in study.operations}
    assert [each.options["ddof"] for each in study.operations if each.name == "numpy.var"] == [1, 1]
    assert by_name["numpy.std"].options["ddof"] == 0
    assert by_name["numpy.add"].options == {1: 1e-5}
    changes = {by_name["numpy.std"].index: {"ddof": 1}, by_name["numpy.add"].index: {1: 3.0}, 0: {"ddof": 0}}
    result, altered, _ = run(program, Study(alterations=changes))
    assert all(same(plain[name], result[name]) for name in plain)
    wide = _WEIGHTS.astype("float64")
    np.testing.assert_allclose(altered["c"].shadow, np.std(wide, ddof=1), rtol=1e-14)
    np.testing.assert_allclose(altered["d"].shadow, np.sqrt(wide[0] ** 2 + 3), rtol=1e-14)
    np.testing.assert_allclose(altered["a"].shadow, np.var(wide, 0), rtol=1e-14)
    np.testing.assert_allclose(altered["b"].shadow, known["b"].shadow, rtol=0)


def test_amendments_change_shadows_only() -> None:
    """An amended leaf, result or assignment goes on amended; real results stay."""

    def program() -> Any:
        x = np.array([1.0, 2.0, 3.0], dtype="float32")
        y = x * 2
        y[1] = 5
        return {"z": y + 0, "x": x}

    plain, _, study = run(program)
    numbers = {each.name: each.writes[0].index for each in reversed(study.operations)}
    leaf = next(each.index for each in study.values if each.origin == "numpy.array")
    for number, wanted in ((leaf, [6, 5, 2]), (numbers["numpy.multiply"], [6, 5, 2]), (numbers["numpy.setitem"], [2, -5, 6])):
        change = (lambda s: -s) if number == numbers["numpy.setitem"] else (lambda s: s[::-1])
        result, known, _ = run(program, Study(amendments={number: change}))
        assert same(plain["z"], result["z"])
        assert wanted == known["z"].shadow.tolist()


def test_parts_are_put_together_into_one_value() -> None:
    """An array that was filled part by part is read as one value, made of all of them; one part is read as itself."""
    with followed() as (study, engine):
        x = np.zeros((3, 2), "float32")
        rows = [np.array([0.1, 0.2]) * number for number in range(3)]
        for number, row in enumerate(rows):
            x[number] = row
        y = x[1] + 1
        z = x * 2
        whole = study.operations[-1].reads[0]
        assert whole.view is None
        maker = study.operations[whole.value.maker]
        assert maker.name == "numpy.setitem"
        assert [each.value.shape for each in maker.reads] == [(2,)] * 3
        assert [len(each.reads) for each in study.operations if each.name in ("numpy.add", "numpy.multiply")][-2:] == [1, 1]
        assert engine.known(z).shadow[2, 1] == 2 * (0.2 * 2)
        assert engine.known(y).shadow[1] == 1.2
        count = len(study.operations)
        x.sum()
        assert len(study.operations) == count + 1


def test_arrays_kept_from_an_earlier_study_start_anew() -> None:
    """What a program cached in one run has no value of the next one."""
    kept = {}
    with followed():
        kept["x"] = np.array([0.1], dtype="float32") * 1
        kept["s"] = kept["x"].sum()
    with followed() as (study, engine):
        assert engine.known(kept["x"]) is None
        assert engine.known(kept["x"] + kept["s"]).shadow[0] == 2 * float(np.float32(0.1))
        assert all(study.values[each.value.index] is each.value for operation in study.operations for each in operation.reads)


def test_lists_of_scalars() -> None:
    """Functions that take lists find what lies in them."""
    with followed() as (_, engine):
        x = np.array([0.1, 0.2, 0.6], dtype="float32")
        for found in (np.mean([x.sum(), x[0].item(), x.max()]), np.stack([x, x]).mean(), np.sum([x * 2, x], axis=0)[1]):
            known = engine.known(found)
            assert abs(known.shadow - found) < 1e-7
            assert np.float32(known.shadow) != known.shadow
        assert engine.known(np.arange(6) / 255.0).shadow[1] == _LONG(1) / 255
        assert engine.known(np.mean(x > 0.15)).shadow == _LONG(2) / 3
        assert abs(engine.known(math.exp(x.sum())).shadow - math.exp(0.9)) < 1e-15


_erf = np.vectorize(math.erf)


def test_functions_of_the_program_run_once_per_element() -> None:
    """`numpy.vectorize` runs the function on followed numbers, as often as without a study; other callbacks are lost, and that is said."""
    calls = []

    def cube(value: float) -> float:
        calls.append(value)
        return value**3 + 0.1

    def program() -> Any:
        x = np.array([0.1, 0.2, 0.6], dtype="float32")
        return {
            "erf": _erf(x),
            "cube": np.vectorize(cube)(x),
            "iter": np.fromiter((math.exp(each) for each in x), dtype="float64"),
            "along": np.apply_along_axis(lambda row: row.sum(), 0, x),
        }

    expected = bare(program)
    count = len(calls)
    result, known, study = run(program)
    assert count == len(calls) / 2
    assert all(same(expected[name], result[name]) for name in expected)
    wide = [0.1, 0.2, 0.6]
    np.testing.assert_allclose(known["erf"].shadow, [math.erf(each) for each in wide], rtol=1e-15)
    np.testing.assert_allclose(known["cube"].shadow, [each**3 + 0.1 for each in wide], rtol=1e-15)
    np.testing.assert_allclose(known["iter"].shadow, [math.exp(each) for each in wide], rtol=1e-15)
    assert known["along"].value.lost == "numpy.apply_along_axis calls a function of the program"
    assert [known["along"].value.lost] == study.losses


def test_numbers_in_universal_functions() -> None:
    """Python's numbers and scalars that are followed stay so in universal functions, on either side of operators."""
    with followed() as (_, engine):
        x = np.array([0.1, 0.2, 0.4], dtype="float32")
        number, scalar, wide = x.sum().item(), x.sum(), np.float64(2)
        for found, exact in (
            (np.sqrt(number), np.sqrt(0.7)),
            (np.exp(-number), np.exp(-0.7)),
            *([(wide * number, 1.4)] if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else []),  # older ones never ask
            (wide * scalar, 1.4),
            (np.int64(3) - scalar, 2.3),
            (2**scalar, 2**0.7),
            ((x * number)[1], 0.14),
            ((scalar * x)[1], 0.14),
            ((x**scalar)[0], 0.1**0.7),
            (math.sqrt(scalar), math.sqrt(0.7)),
            (float(scalar) * x[2], 0.28),
            (np.float64(scalar) + x[2], 1.1),
        ):
            assert abs(engine.known(found).shadow - exact) < 1e-14
        assert type(np.float64(2) * x.sum().item()) is not float
        x *= scalar
        assert abs(engine.known(x).shadow[2] - 0.28) < 1e-15


def test_arrays_made_from_numbers() -> None:
    """Python's numbers are held exactly, followed ones with their shadows; what has no such argument is a leaf."""
    with followed() as (study, engine):
        x = np.array([0.1, 0.2, 0.4], dtype="float32")
        for found, exact in (
            (np.full(2, 0.1, "float32")[0], 0.1),
            (np.full((2,), x.sum())[1], 0.7),
            (np.full_like(x, 0.3)[1], 0.3),
            (np.linspace(0, x.sum(), 8)[1], 0.1),
            (np.linspace(0.1, 0.3, 3, dtype="float32")[1], 0.2),
            (np.arange(0.1, 0.5, 0.1, dtype="float32")[2], 0.3),
            (np.asarray(0.1, dtype="float32"), 0.1),
            (np.eye(2, dtype="float32")[0, 0], 1.0),
        ):
            assert abs(engine.known(found).shadow - exact) < 1e-15
        assert engine.known(np.linspace(0.1, 0.7, 4)).shadow[1] == _LONG(0.1) + (_LONG(0.7) - _LONG(0.1)) / 3
        assert {"numpy.full", "numpy.linspace", "numpy.arange", "numpy.full_like"} <= {each.origin for each in study.values}
        y = np.zeros(3, "float32")
        y.fill(0.1)
        assert engine.known(y).shadow[0] == 0.1
        y[:] = [0.2, x[0], x.sum()]
        assert np.abs(engine.known(y).shadow - [0.2, 0.1, 0.7]).max() < 1e-15


def test_flat() -> None:
    """`x.flat` reads, writes and iterates as NumPy's, with shadows."""
    with followed() as (study, engine):
        x = np.array([[0.1, 0.2], [0.3, 0.4]], dtype="float32")
        assert [engine.known(each).shadow for each in x.flat] == [0.1, 0.2, 0.3, 0.4]
        assert engine.known(next(x.flat)).shadow == 0.1
        assert engine.known(np.array(x.T.flat)).shadow.tolist() == [0.1, 0.3, 0.2, 0.4]
        x.T.flat[1:3] = [0.6, 0.7]
        x.flat[3] *= 2
        assert np.abs(engine.known(x).shadow - [[0.1, 0.7], [0.6, 0.8]]).max() < 1e-15
        x.flat = 0.9
        assert engine.known(x.flat[2]).shadow == 0.9
        assert len(x.flat) == 4
        assert study.losses == []


def test_positional_out() -> None:
    """`out` given by place is written as by name."""

    def program() -> Any:
        out, other = np.empty(3, "float32"), np.zeros(3, "float32")
        np.dot(_WEIGHTS[:3, :3], _WEIGHTS[0, :3], out)
        _WEIGHTS[0, :3].cumsum(0, None, other)
        masked = np.zeros(3)
        np.divide(other, out, out=masked, where=out > 0)
        return {"out": out, "other": other, "masked": masked}

    expected = bare(program)
    result, known, study = run(program)
    assert all(same(expected[name], result[name]) for name in expected)
    wide = _WEIGHTS.astype("float64")
    np.testing.assert_allclose(known["out"].shadow, wide[:3, :3] @ wide[0, :3], rtol=1e-13)
    np.testing.assert_allclose(known["other"].shadow, wide[0, :3].cumsum(), rtol=1e-13)
    assert study.losses == []


def test_large_products_in_long_double() -> None:
    """They are made of exact float64 products, and as good as NumPy's own."""
    from detconf.frameworks.numpy import exact

    rng = np.random.RandomState(1)
    a, b = (rng.randn(2, 9, 300) * np.exp(rng.randn(9, 300))).astype(_LONG) / 3, rng.randn(300, 4).astype(_LONG) / 7
    off = np.abs(exact.product(a, b) - a @ b)
    assert (off <= 2e-18 * (np.abs(a) @ np.abs(b)) * 8).all()
    a[0, 0, 0] = np.inf
    assert np.isinf(exact.product(a, b)[0, 0]).all()


def test_pythons_own_generators() -> None:
    """`random.Random` as well: an instance that was made before too."""
    own = random.Random(3)

    def program() -> Any:
        other = random.Random(4)
        return {"a": np.array([own.random(), own.gauss(0, 1), other.uniform(1, 2)]), "b": np.array(other.sample(range(10), 3))}

    state = own.getstate()
    expected = bare(program)
    after = own.getstate()
    own.setstate(state)
    result, known, study = run(program)
    assert all(same(expected[name], result[name]) for name in expected)
    assert after == own.getstate()
    assert type(own) is random.Random
    assert [each.name for each in study.operations if each.random] == ["random.random", "random.gauss", "random.uniform", "random.sample"]
    assert known["a"] is not None


def test_threads() -> None:
    """Numbers stay in step when several threads compute."""
    with followed() as (study, _):

        def work() -> None:
            for number in range(30):
                y = np.ones(10) * number
                y[2] = 3
                y.sum()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert [each.index for each in study.values] == list(range(len(study.values)))
        assert sum(each.name == "numpy.sum" for each in study.operations) == 4 * 30


def test_shared_memory_has_one_shadow() -> None:
    """What another framework says of memory that NumPy's arrays share is theirs too."""
    with followed() as (study, engine):
        x = np.array([0.1, 0.2], dtype="float32")
        plain = np.frombuffer(memoryview(x), "float32").view(np.ndarray)
        bytes_ = np.ndarray.view(np.ndarray.view(x, np.ndarray), np.ndarray)
        bytes_[...] = [5, 6]
        value, after = study.leaf(np.array([5.5, 6.5]), "float32", "elsewhere")
        engine.wrap(bytes_, Known(after, value))
        assert engine.known(x).shadow.tolist() == [5.5, 6.5]
        assert study.losses == []
        assert plain.tolist() == [5, 6]


def test_scalars_stay_what_they_are() -> None:
    """Full reductions give NumPy's scalars, with shadows that arithmetic carries on; Python's floats too."""
    with followed() as (_, engine):
        x = np.array([0.1, 0.2, 0.4], dtype="float32")
        total = x.sum()
        assert isinstance(total, np.float32)
        assert not isinstance(total, np.ndarray)
        kept, total = total, total + 1
        total *= 2
        assert abs(engine.known(kept).shadow - 0.7) < 1e-15
        assert abs(engine.known(total).shadow - 3.4) < 1e-15
        assert abs(engine.known(2.0 / np.sqrt(kept)).shadow - 2 / np.sqrt(0.7)) < 1e-14
        assert isinstance(x.astype("float64").mean(), float)
        number = kept.item() * 3
        assert type(kept.item() + 0.0) is not np.float32
        assert abs(engine.known(number).shadow - 2.1) < 1e-14
        assert abs(engine.known(np.array([number, kept])).shadow[0] - 2.1) < 1e-14
        assert {kept: 1}[kept] == 1
        assert abs(engine.known(round(kept / 7, 2)).shadow - 0.1) < 1e-15
        assert f"{kept:.3f}" == "0.700"
        assert pickle.loads(pickle.dumps(kept)) == kept
        assert type(pickle.loads(pickle.dumps(kept))) is np.float32
        assert same(np.float64(3) * kept, np.float64(3) * np.float32(kept))
        assert engine.known(x[1]).shadow == 0.2


def test_arrays_look_plain() -> None:
    """They print, copy and pickle as plain arrays."""
    with followed() as (_, engine):
        x = np.array([1.5, 2.5])
        assert isinstance(x, np.ndarray)
        assert repr(x) == "array([1.5, 2.5])"
        back = pickle.loads(pickle.dumps(x))
        assert type(back) is np.ndarray
        assert engine.known(copy.deepcopy(x)).shadow.tolist() == [1.5, 2.5]
        assert engine.known(copy.copy(x)) is not None
        assert engine.known(back) is None
        assert type(np.array(["a"])) is np.ndarray
        assert np.array([object()]).dtype == object


def test_bits_read_as_floats_are_lost() -> None:
    """What is made of integers' bits is a leaf, and it is said."""

    def program() -> Any:
        u = _WEIGHTS[0].view(np.uint32)
        u = u + 0x0FFF + ((u >> 13) & 1)
        return {"y": (u & np.uint32(0xFFFFE000)).view(np.float32) * 2}

    expected = bare(program)
    result, known, study = run(program)
    assert same(expected["y"], result["y"])
    assert known["y"].shadow.tolist() == result["y"].tolist()
    assert [each.origin for each in study.values if each.origin.startswith("view")] == ["view of float32", "view of integers"]
    assert any("bits read as float32" in each for each in study.losses)


def test_writes_by_others_are_noticed() -> None:
    """What C code writes becomes the shadow, and it is said."""
    with followed() as (study, engine):
        x = np.array([0.1, 0.2], dtype="float32")
        memoryview(x)[0] = 7.0
        assert engine.known(x).shadow.tolist() == [7.0, 0.2]
        assert any("not followed" in each for each in study.losses)


def test_linear_algebra() -> None:
    """Solutions of float64 systems have long double shadows; singular values are float64, which is said."""
    wide = _WEIGHTS[:, :8].astype("float64")
    square = np.stack([wide, wide.T @ wide + np.eye(8)])

    def program() -> Any:
        values, vectors = np.linalg.eigh(square[1])
        return {
            "inv": np.linalg.inv(square),
            "solve": np.linalg.solve(square[0], square[1, 0]),
            "columns": np.linalg.solve(square, square),
            "det": np.linalg.det(square),
            "log": np.linalg.slogdet(square)[1],
            "cholesky": np.linalg.cholesky(square[1]),
            "values": values,
            "vectors": vectors,
            "only": np.linalg.eigvalsh(square[1]),
            "narrow": np.linalg.inv(_WEIGHTS[:, :8]),
        }

    expected = bare(program)
    result, known, study = run(program)
    assert all(same(expected[name], result[name]) for name in expected)
    assert study.losses == []
    long = square.astype(_LONG)
    eye, shadows = np.eye(8, dtype=_LONG), {name: each.shadow for name, each in known.items()}
    assert np.abs(long @ shadows["inv"] - eye).max() < 1e-17
    assert np.abs(long[0] @ shadows["solve"] - long[1, 0]).max() < 1e-17
    assert np.abs(shadows["columns"] - eye).max() < 1e-17
    assert np.abs(shadows["log"] - np.log(np.abs(shadows["det"]))).max() < 1e-17
    assert np.abs(shadows["cholesky"] @ shadows["cholesky"].T - long[1]).max() < 1e-16
    assert np.abs(shadows["vectors"] * shadows["values"] @ shadows["vectors"].T - long[1]).max() < 1e-16
    assert np.abs(shadows["only"] - shadows["values"]).max() < 1e-17
    for name, each in result.items():
        assert np.abs(each - shadows[name]).max() < (1e-3 if name == "narrow" else 1e-9 * np.abs(each).max())
    lost = run(lambda: {"a": np.linalg.svd(square[0])[1]})[1]
    assert lost["a"].value.lost == "numpy.linalg has no more precision than float64"


def test_wrapped_arrays() -> None:
    """What another framework gives out carries the shadow and the value that it had there."""
    with followed() as (study, engine):
        value, shadow_ = study.leaf(np.array([0.1, 0.2]), "float32", "elsewhere")
        plain = np.array([0.1, 0.2], dtype="float32").view(np.ndarray)
        x = study.wrap(plain, Known(shadow_, value))
        y = x * 2
        assert study.operations[-1].reads[0].value is value
        assert study.operations[-1].reads[0].view is None
        assert engine.known(y).shadow.tolist() == [0.2, 0.4]
        x[0] = 3
        assert plain[0] == 3
        assert engine.wrap("text", Known(shadow_, value)) == "text"


def closing() -> Any:
    inner = np.array([1.0, 2.0])
    holder = type("Holder", (), {"__module__": __name__})()
    holder.weight = np.array([3.0, 4.0])

    def function(scale: Any = np.array([0.5, 0.5])) -> Any:  # noqa: B008  # a default to be found
        return {
            "y": inner * scale + holder.weight + _TABLE["rows"][0][:2] * _TABLE["pair"][0][:2],
            "g": _GENERATOR.random(2),
            "l": _LEGACY.rand(2),
        }

    return function, inner, holder


def test_adoption_follows_what_is_there_and_gives_it_back() -> None:
    """Globals, closures, defaults, containers and objects hold followed arrays while the study runs, and then what they held."""
    function, inner, holder = closing()
    weight, default, rows, pair, table = holder.weight, function.__defaults__[0], _TABLE["rows"][0], _TABLE["pair"], _TABLE
    states = [_GENERATOR.bit_generator.state, _LEGACY.get_state(legacy=False)]
    expected = function()
    _GENERATOR.bit_generator.state = states[0]
    _LEGACY.set_state(states[1])
    with followed(None, functools.partial(function)) as (study, engine):
        assert holder.weight is not weight
        result = function()
        known = {name: engine.known(each) for name, each in result.items()}
    assert all(same(expected[name], result[name]) for name in expected)
    assert all(known.values())
    assert holder.weight is weight
    assert function.__defaults__[0] is default
    assert function.__closure__ is not None
    assert any(each.cell_contents is inner for each in function.__closure__)
    assert _TABLE is table
    assert _TABLE["rows"][0] is rows
    assert _TABLE["pair"] is pair
    origins = {each.origin for each in study.values}
    assert {"closure inner", "attribute weight"} <= origins
    assert {"numpy.random.random", "numpy.random.rand"} <= {each.name for each in study.operations}
    assert all(each.random for each in study.operations if "random" in each.name)
    assert same(_LEGACY.rand(1), np.random.RandomState(6).rand(3)[2:])


_MODULE = """
import functools
from random import random as chance
import numpy as np
from numpy import array, mean
from numpy.random import default_rng, randn

table = array([1.0, 2.0])
view = table[1:]
record = {"deep": [{"deeper": array([5.0])}]}

class Model:
    scale = array([3.0])
    def __init__(self):
        self.weight = array([4.0])
        self.twice = self.weight
    def __call__(self):
        self.weight += 1
        return {
            "a": array([0.5]) * self.scale + self.twice, "mean": mean([self.weight, self.weight]), "v": view * 2,
            "r": randn(2), "g": default_rng(1).random(2), "c": array([chance()]), "d": record["deep"][0]["deeper"] + table[:1],
            "x": np.random.Generator(np.random.PCG64(3)).normal(size=2),
        }

def decorate(function):
    @functools.wraps(function)
    def wrapper():
        return function()
    return wrapper

@decorate
def entry():
    return model()

model = Model()
"""


@pytest.mark.parametrize("root", ["entry", "partial", "method"])
def test_adoption_of_a_module(tmp_path: Any, root: str) -> None:
    """Names that were imported, views of one array, class attributes and what objects share are found, and given back."""
    (tmp_path / "programs.py").write_text(_MODULE)

    def load() -> Any:
        spec = importlib.util.spec_from_file_location("programs", tmp_path / "programs.py")
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["programs"] = module
        assert spec.loader is not None
        spec.loader.exec_module(module)
        function = {"entry": module.entry, "partial": functools.partial(module.entry), "method": module.model.__call__}[root]
        return module, function

    expected = bare(load()[1])
    module, function = load()
    before = dict(vars(module)), dict(vars(module.model)), module.Model.scale, module.record["deep"][0]["deeper"]
    result, known, study = run(function)
    assert [name for name in expected if not same(expected[name], result[name])] == []
    assert all(known.values())
    assert all(after is before[0][name] for name, after in vars(module).items())
    assert all(after is before[1][name] for name, after in vars(module.model).items())
    assert module.Model.scale is before[2]
    assert module.record["deep"][0]["deeper"] is before[3]
    assert module.model.weight.tolist() == [5.0]
    assert known["a"].shadow.tolist() == [6.5]
    names = [each.name for each in study.operations if each.random]
    assert names == ["numpy.random.randn", "numpy.random.random", "random.random", "numpy.random.normal"]
    del sys.modules["programs"]


def test_an_operation_that_cannot_be_followed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in our own computation reaches nobody: the shadow is the real result, and says so."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setattr("detconf.frameworks.numpy.rules.compute", broken)
    result, known, study = run(lambda: {"y": _WEIGHTS[0] * 2})
    assert known["y"].shadow.tolist() == result["y"].tolist()
    assert known["y"].value.lost == "numpy.multiply has no shadow here: RuntimeError: no"
    assert [known["y"].value.lost] == study.losses


def _worker(queue: Any) -> None:
    queue.put([np.random.rand(2).tolist(), np.random.rand(2).tolist(), random.random(), random.random()])


def test_draws_are_frozen_in_forked_workers() -> None:
    """A worker inherits what the study does with draws."""
    context = multiprocessing.get_context("fork")
    with followed(Study(draws="frozen")):
        queue = context.Queue()
        process = context.Process(target=_worker, args=(queue,))
        process.start()
        first, second, third, fourth = queue.get(timeout=60)
        process.join(60)
    assert first == second
    assert third == fourth


def test_draws_can_be_frozen_and_replayed() -> None:
    """Frozen, each draw starts alike; replayed, it starts where the other run's did."""

    def program() -> Any:
        rng = np.random.default_rng(np.random.randint(1 << 30))
        return {
            "a": np.random.rand(2),
            "b": np.random.rand(2),
            "c": rng.random(2),
            "d": rng.random(2),
            "e": np.array([random.random(), random.random()]),
        }

    frozen, _, _ = run(program, Study(draws="frozen"))
    assert same(frozen["a"], frozen["b"])
    assert same(frozen["c"], frozen["d"])
    assert frozen["e"][0] == frozen["e"][1]
    first, _, study = run(program)
    states = {number: each.state for number, each in enumerate(each for each in study.operations if each.random)}

    def later() -> Any:
        np.random.rand(7)
        random.seed(99)
        return program()

    with followed(Study(draws="replay", states={number + 1: state for number, state in states.items()})):
        second = later()
    assert dict.fromkeys(first, True) == {name: same(first[name], second[name]) for name in first}


def test_everything_is_put_back() -> None:
    """No attribute of numpy, random or math is another one afterwards; arrays that are still held go on as plain ones."""
    owners = (np, np.random, np.fft, np.lib.stride_tricks, random, math)
    before = [dict(vars(each)) for each in owners]
    with followed() as (study, _):
        x = np.array([1.0, 2.0])
        assert np.array is not before[0]["array"]
    assert before == [dict(vars(each)) for each in owners]
    count = len(study.operations)
    assert (x + 1).tolist() == [2.0, 3.0]
    assert float(x.sum()) == 3.0
    assert type(x * 2) is np.ndarray
    assert len(study.operations) == count


def test_errors_of_the_program_are_its_own() -> None:
    """An exception that NumPy raises comes through, and the study goes on."""
    with followed() as (_, engine):
        x = np.array([1.0, 2.0])
        with pytest.raises(ValueError, match="broadcast"):
            x + np.array([1.0, 2.0, 3.0])
        with pytest.raises(IndexError):
            x[5]
        with pytest.raises(ValueError, match="broadcast"):
            x[:] = [1, 2, 3]
        assert engine.known(x * 2).shadow.tolist() == [2.0, 4.0]


def test_shadows_of_single_precision_are_doubles_throughout() -> None:
    """Long doubles are for float64: products of them take a hundred times as long, and single precision has no use for them."""
    x = np.random.default_rng(3).standard_normal((7, 40)).astype(np.float32)

    def program() -> Any:
        return {"product": np.exp(x) @ x.T, "mixed": (x + np.float64(0.1)).sum()}

    _, known, study = run(program)
    wide = x.astype(np.float64)
    assert np.array_equal(known["product"].shadow, np.exp(wide) @ wide.T)
    assert {str(value.shadow.dtype) for value in study.values if value.dtype == "float32"} == {"float64"}
    assert known["mixed"].shadow.dtype == np.longdouble or np.finfo(np.longdouble).nmant == 52
