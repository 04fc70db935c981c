"""Plants of `dtype` (one side stores or computes in another precision) and `overflow` (one side leaves the range of its dtype)."""

from __future__ import annotations

from random import Random

from programs.chains import chain
from programs.program import Plant, Program, body, data, pick

_ROUNDTRIPS = {
    "numpy": ['{x}.astype("float16").astype("float32")', '{x}.astype(ml_dtypes.bfloat16).astype("float32")', "cut({x})"],
    "torch": ["{x}.half().to(torch.float32)", "{x}.bfloat16().to(torch.float32)"],
    "paddle": ['{x}.astype("float16").astype("float32")', '{x}.astype("bfloat16").astype("float32")'],
}
_CUT = """

def cut(x, keep={keep}):
    u = np.ascontiguousarray(x, "float32").view(np.uint32)
    return (u & np.uint32((0xFFFFFFFF << (23 - keep)) & 0xFFFFFFFF)).view(np.float32)
"""


def casts(rng: Random) -> Program:
    """A cast in the middle of a chain, or of a weight, or of the inputs of a product."""
    width = rng.choice([8, 16, 40])
    before, before2, arrays = chain(rng, rng.randint(0, 3), width)
    after, after2, more = chain(rng, rng.randint(0, 3), width, "L")
    one, other = pick(rng), pick(rng)
    trip = rng.choice(_ROUNDTRIPS[other])
    where = rng.choice(["the values", "a weight", "both inputs of a product"])
    x = trip.replace("{x}", "h") if where != "a weight" else "h"
    w = trip.replace("{x}", "K(P)") if where != "the values" else "K(P)"
    setup = data(rng, X=(rng.randint(3, 8), width), P=((width, width), width**-0.5), **arrays, **more)
    setup += _CUT.format(keep=rng.choice([7, 10])) if "cut(" in trip else ""
    right, good, bad = (
        lines for lines in ([*before, "h = h @ K(P)", *after], [*before2, "h = h @ K(P)", *after2], [*before2, f"h = {x} @ {w}", *after2])
    )
    return Program("dtype", f"{where} through a coarser format", setup, body(one, right), body(other, bad), body(other, good), wide=True)


_PLAIN: list[tuple[str, str, str, str, str, float]] = [
    # name, shapes, more, right, wrong, unit
    ("autocast on one side", "X=(6, 24) W=(24, 9)", "", 'return {"y": (torch.from_numpy(X) @ torch.from_numpy(W)).numpy()}',
        'with torch.autocast("cpu", torch.bfloat16):\n    h = torch.from_numpy(X) @ torch.from_numpy(W)\nreturn {"y": h.float().numpy()}', 2.0**-24),
    ("a layer under autocast", "X=(6, 24) W=(9, 24)", "", 'return {"y": torch.softmax(F.linear(torch.from_numpy(X), torch.from_numpy(W)), -1).numpy()}',
        'with torch.autocast("cpu", torch.bfloat16):\n    h = torch.softmax(F.linear(torch.from_numpy(X), torch.from_numpy(W)), -1)\nreturn {"y": h.float().numpy()}', 2.0**-24),
    ("accumulated in half", "X=(4, 300)", "", 'return {"y": X.sum(axis=1)}', 'return {"y": X.sum(axis=1, dtype="float16").astype("float32")}', 2.0**-24),
    ("a half-precision loop", "X=(4, 60)", "", 'return {"y": X.sum(axis=1)}', 'h = torch.from_numpy(X).half()\ns = h[:, 0]\nfor k in range(1, 60):\n    s = s + h[:, k]\nreturn {"y": s.float().numpy()}', 2.0**-24),
    ("the whole program in float32 against float64", "X=(5, 12) W=(12, 12)", "", 'h = X.astype("float64")\nfor _ in range(3):\n    h = np.tanh(h @ W.astype("float64"))\nreturn {"y": h}',
        'h = X\nfor _ in range(3):\n    h = np.tanh(h @ W)\nreturn {"y": h}', 2.0**-53),
    ("default dtype of a list", "X=(4,)", "A = [0.1, 0.7, 1.3, 2.9]", 'a = np.array(A)\nreturn {"y": np.exp(a) * a.mean()}', 'a = torch.tensor(A)\nreturn {"y": (torch.exp(a) * a.mean()).numpy()}', 2.0**-53),
    ("default dtype of a list, in paddle", "X=(4,)", "A = [0.1, 0.7, 1.3, 2.9]", 'a = np.array(A)\nreturn {"y": np.log(a + 1).cumsum()}', 'a = paddle.to_tensor(A)\nreturn {"y": paddle.cumsum(paddle.log(a + 1)).numpy()}', 2.0**-53),
    ("a float32 table in a float64 model", "X=(6, 4)", "A = np.sin(np.arange(6)[:, None] / 7.0 + np.arange(4))", 'x = torch.from_numpy(X.astype("float64"))\nreturn {"y": (x * torch.from_numpy(A)).numpy()}',
        'x = torch.from_numpy(X.astype("float64"))\nreturn {"y": (x * torch.from_numpy(A.astype(np.single))).numpy()}', 2.0**-53),
    ("a checkpoint stored in half", "X=(5, 20) W=(20, 6)", 'def stored(w):\n    return {"w": torch.from_numpy(w).half()}', 'return {"y": torch.tanh(torch.from_numpy(X) @ torch.from_numpy(W)).numpy()}',
        'return {"y": torch.tanh(torch.from_numpy(X) @ stored(W)["w"].to(torch.float32)).numpy()}', 2.0**-24),
    ("a model in half", "X=(5, 16) W=(8, 16)", "", 'net = torch.nn.Linear(16, 8, bias=False)\nnet.weight.data = torch.from_numpy(W.copy())\nreturn {"y": net(torch.from_numpy(X)).detach().numpy()}',
        'net = torch.nn.Linear(16, 8, bias=False)\nnet.weight.data = torch.from_numpy(W.copy())\nreturn {"y": net.bfloat16()(torch.from_numpy(X).bfloat16()).detach().float().numpy()}', 2.0**-24),
    ("a layer of paddle fed in bfloat16", "X=(5, 16) W=(16, 8)", "", 'return {"y": X @ W}', 'x = paddle.to_tensor(X).astype("bfloat16").astype("float32")\nreturn {"y": paddle.matmul(x, paddle.to_tensor(W)).numpy()}', 2.0**-24),
    ("results stored as float16", "X=(5, 16)", "", 'return {"y": np.tanh(X)}', 'return {"y": np.tanh(X).astype("float16")}', 2.0**-24),
    ("statistics in half", "X=(6, 32)", "", 'm = X.mean(1, keepdims=True)\nreturn {"y": (X - m) / np.sqrt(((X - m) ** 2).mean(1, keepdims=True) + 1e-3)}',
        'h = X.astype("float16")\nm = h.mean(1, keepdims=True).astype("float32")\nv = ((h - m.astype("float16")) ** 2).mean(1, keepdims=True).astype("float32")\nreturn {"y": (X - m) / np.sqrt(v + 1e-3)}', 2.0**-24),
    ("labels and probabilities in half", "X=(6, 10)", "", 'return {"loss": -F.log_softmax(torch.from_numpy(X), -1)[:, 0].numpy()}',
        'p = F.softmax(torch.from_numpy(X), -1).half()\nreturn {"loss": -torch.log(p.to(torch.float32))[:, 0].numpy()}', 2.0**-24),
    ("inputs of a convolution cut", "X=(1, 3, 8, 8) W=(4, 3, 3, 3)", "", 'return {"y": F.conv2d(torch.from_numpy(X), torch.from_numpy(W)).numpy()}',
        'x, w = (torch.from_numpy(a).bfloat16().to(torch.float32) for a in (X, W))\nreturn {"y": F.conv2d(x, w).numpy()}', 2.0**-24),
    ("a batch product in bfloat16", "X=(3, 5, 16) W=(3, 16, 4)", "", 'return {"y": torch.bmm(torch.from_numpy(X), torch.from_numpy(W)).numpy()}',
        'return {"y": torch.bmm(torch.from_numpy(X).bfloat16(), torch.from_numpy(W).bfloat16()).float().numpy()}', 2.0**-24),
]  # fmt: skip


def plain(rng: Random) -> Program:
    """Known ways to compute in another precision."""
    name, shapes, more, right, wrong, unit = rng.choice(_PLAIN)
    arrays = {key: eval(shape) for key, shape in (each.split("=") for each in shapes.replace(", ", ",").replace("(4,)", "(4,)").split())}
    return Program("dtype", name, f"{data(rng, **arrays)}\n{more}", right, wrong, right, unit=unit)


_TRAINER = """
def train(dtype, steps={steps}):
    net = torch.nn.Sequential(torch.nn.Linear({i}, {h}), torch.nn.Tanh(), torch.nn.Linear({h}, 1)).to(torch.float32)
    with torch.no_grad():
        for p, a in zip(net.parameters(), (W, B, V, C)):
            p.copy_(torch.from_numpy(a))
    net = net.to(dtype)
    opt = torch.optim.{opt}
    for _ in range(steps):
        opt.zero_grad()
        ((net(torch.from_numpy(X).to(dtype)) - torch.from_numpy(Y).to(dtype)) ** 2).mean().backward()
        opt.step()
    return {{"w": net[0].weight.detach().to(torch.float32).numpy()}}
"""


def training(rng: Random) -> Program:
    """A training in bfloat16 on one side."""
    i, h, rows, steps = rng.randint(3, 8), rng.choice([4, 8]), rng.randint(4, 10), rng.randint(1, 5)
    opt = rng.choice(["SGD(net.parameters(), lr=0.05)", "SGD(net.parameters(), lr=0.05, momentum=0.9)"])
    setup = data(rng, X=(rows, i), Y=(rows, 1), W=((h, i), 0.5), B=(h,), V=((1, h), 0.5), C=(1,)) + _TRAINER.format(
        i=i, h=h, steps=steps, opt=opt
    )
    return Program(
        "dtype",
        "a training in bfloat16",
        setup,
        "return train(torch.float32)",
        "return train(torch.bfloat16)",
        "return train(torch.float32)",
    )


DTYPE: list[Plant] = [casts, casts, plain, plain, plain, training]

_OVERFLOWS: list[tuple[str, str, str, str]] = [
    # name, setup, right, wrong (neutral code)
    ("softmax without its maximum", "X[0] += {big}", "e = $.exp(h - $.amax(h, AX=-1, KEEP=True))\nh = e / e.sum(AX=-1, KEEP=True)", "e = $.exp(h)\nh = e / e.sum(AX=-1, KEEP=True)"),
    ("logsumexp without its maximum", "X[0] += {big}", "m = $.amax(h, AX=-1, KEEP=True)\nh = m + $.log($.exp(h - m).sum(AX=-1, KEEP=True))", "h = $.log($.exp(h).sum(AX=-1, KEEP=True))"),
    ("softplus of a large number", "X[0] += {big}", "h = $.where(h > 30, h, $.log1p($.exp($.clip(h, -100, 30))))", "h = $.log1p($.exp(h))"),
    ("norm of large numbers", "X[0] *= np.float32(1e20)", "m = $.amax($.abs(h), AX=-1, KEEP=True)\nh = $.sqrt(((h / m) ** 2).sum(AX=-1, KEEP=True))", "m = $.amax($.abs(h), AX=-1, KEEP=True)\nh = $.sqrt((h * h).sum(AX=-1, KEEP=True)) / m"),
    ("norm of tiny numbers", "X[0] *= np.float32(1e-30)", "m = $.amax($.abs(h), AX=-1, KEEP=True)\nh = (h / m) / $.sqrt(((h / m) ** 2).sum(AX=-1, KEEP=True))", "h = h / $.sqrt((h * h).sum(AX=-1, KEEP=True))"),
    ("tanh by exponentials", "X[0] += {big}", "h = $.tanh(h)", "h = ($.exp(h) - $.exp(-h)) / ($.exp(h) + $.exp(-h))"),
    ("silu derivative", "X[0] -= {big}", "e = $.exp(-$.abs(h))\nh = e / (1 + e) ** 2", "e = $.exp(-h)\nh = e / (1 + e) ** 2"),
    ("logarithm of an underflowed probability", "X[0, 0] -= {big}", "m = $.amax(h, AX=-1, KEEP=True)\nh = h - m - $.log($.exp(h - m).sum(AX=-1, KEEP=True))", "e = $.exp(h - $.amax(h, AX=-1, KEEP=True))\nh = $.log(e / e.sum(AX=-1, KEEP=True))"),
    ("product of many instead of a sum of logarithms", "X[:, 0] = np.float32(1e30)\nX[:, 1] = np.float32(1e20)\nX[:, 2] = np.float32(1e-30)", "h = $.log($.abs(h)).sum(AX=-1)", "h = $.log($.abs($.cumsum($.log($.abs(h)), -1)[..., 2] * 0 + $.abs(h[..., 0] * h[..., 1] * h[..., 2]))) + $.log($.abs(h[..., 3:])).sum(AX=-1)"),
    ("reciprocal of a square that vanished", "X[0, 0] = np.float32(1e-25)", "h = 1e-30 / $.abs(h) / $.abs(h) * 1e-25", "h = 1e-30 / (h * h) * 1e-25"),
    ("cubic ratio of large numbers", "X[0] *= np.float32(1e15)", "h = h", "h = h * h * h / (h * h)"),
]  # fmt: skip


def ranges(rng: Random) -> Program:
    """A float32 intermediate out of range, in any framework."""
    name, more, right, wrong = rng.choice(_OVERFLOWS)
    setup = data(rng, X=(rng.randint(2, 5), rng.choice([4, 9]))) + "\n" + more.replace("{big}", str(rng.choice([110, 300, 600])))
    return Program("overflow", name, setup, body(pick(rng), [right]), body(other := pick(rng), [wrong]), body(other, [right]))


_HALVES: list[tuple[str, str, str]] = [
    ("float16 squares", 'h = torch.from_numpy(X) * 300\nreturn {"y": (h * h).mean(-1).numpy()}', 'h = (torch.from_numpy(X) * 300).half()\nreturn {"y": (h * h).mean(-1).to(torch.float32).numpy()}'),
    ("float16 sum in NumPy", 'return {"y": np.abs(X * 20000).sum(axis=1)}', 'return {"y": np.abs(X * 20000).astype("float16").sum(axis=1).astype("float32")}'),
    ("a float16 logit", 'return {"y": torch.exp(torch.from_numpy(X) + 12).numpy()}', 'return {"y": torch.exp(torch.from_numpy(X).half() + 12).to(torch.float32).numpy()}'),
    ("epsilon that vanishes in float16", 'h = torch.from_numpy(X) * 0\nreturn {"y": (h / (h.abs().sum(-1, keepdim=True) + 1e-8) + 1).numpy()}', 'h = torch.from_numpy(X).half() * 0\nreturn {"y": (h / (h.abs().sum(-1, keepdim=True) + 1e-8) + 1).to(torch.float32).numpy()}'),
]  # fmt: skip


def halves(rng: Random) -> Program:
    """Out of the range of float16; `dtype` fits as well, for a wider one removes it."""
    name, right, wrong = rng.choice(_HALVES)
    return Program("overflow", name, data(rng, X=(3, 12)) + "\nX[0, 0] = 3", right, wrong, right, also=("dtype",), wide=False)


OVERFLOW: list[Plant] = [ranges, ranges, ranges, halves]
