"""Plants of `rng` (other random numbers) and `mode` (training mode, or a value frozen at capture)."""

from __future__ import annotations

from random import Random

from programs.program import Plant, Program, data

_DRAWS: list[tuple[str, str, str, str]] = [
    # name, more setup, right, wrong; {s}: seed, {t}: another
    ("another seed", "", 'torch.manual_seed({s})\nreturn {"y": (torch.from_numpy(X) + torch.randn(6, 4)).numpy()}', 'torch.manual_seed({t})\nreturn {"y": (torch.from_numpy(X) + torch.randn(6, 4)).numpy()}'),
    ("another seed of initial weights", "", 'torch.manual_seed({s})\nnet = torch.nn.Linear(4, 3)\nreturn {"y": net(torch.from_numpy(X)).detach().numpy()}', 'torch.manual_seed({t})\nnet = torch.nn.Linear(4, 3)\nreturn {"y": net(torch.from_numpy(X)).detach().numpy()}'),
    ("another seed in paddle", "", 'paddle.seed({s})\nnet = paddle.nn.Linear(4, 3)\nreturn {"y": net(paddle.to_tensor(X)).numpy()}', 'paddle.seed({t})\nnet = paddle.nn.Linear(4, 3)\nreturn {"y": net(paddle.to_tensor(X)).numpy()}'),
    ("an extra draw before", "", 'torch.manual_seed({s})\nx = torch.from_numpy(X)\nreturn {"y": torch.nn.functional.dropout(x, 0.4).numpy()}', 'torch.manual_seed({s})\nx = torch.from_numpy(X)\ntorch.rand(3)\nreturn {"y": torch.nn.functional.dropout(x, 0.4).numpy()}'),
    ("a layer built before another", "", 'torch.manual_seed({s})\nhead = torch.nn.Linear(4, 2)\nreturn {"y": head(torch.from_numpy(X)).detach().numpy()}', 'torch.manual_seed({s})\nspare = torch.nn.Linear(5, 5)\nhead = torch.nn.Linear(4, 2)\nreturn {"y": head(torch.from_numpy(X)).detach().numpy()}'),
    ("an extra draw in NumPy", "", 'np.random.seed({s})\nreturn {"y": X + np.random.randn(6, 4).astype("float32")}', 'np.random.seed({s})\nnp.random.rand()\nreturn {"y": X + np.random.randn(6, 4).astype("float32")}'),
    ("the legacy generator against the new one", "", 'r = np.random.RandomState({s})\nreturn {"y": X * r.standard_normal(X.shape).astype("float32")}', 'r = np.random.default_rng({s})\nreturn {"y": X * r.standard_normal(X.shape).astype("float32")}'),
    ("NumPy's numbers against torch's, same seed", "", 'np.random.seed({s})\nnoise = np.random.rand(6, 4).astype("float32")\nreturn {"y": X + noise}', 'torch.manual_seed({s})\nreturn {"y": (torch.from_numpy(X) + torch.rand(6, 4)).numpy()}'),
    ("torch's numbers against paddle's, same seed", "", 'torch.manual_seed({s})\nreturn {"y": (torch.from_numpy(X) + torch.randn(6, 4)).numpy()}', 'paddle.seed({s})\nreturn {"y": (paddle.to_tensor(X) + paddle.randn([6, 4])).numpy()}'),
    ("another order of a shuffle", "", 'p = np.random.RandomState({s}).permutation(6)\nreturn {"y": X[p].cumsum(0)}', 'p = np.random.RandomState({t}).permutation(6)\nreturn {"y": X[p].cumsum(0)}'),
    ("shuffled by a list of Python", "", 'i = list(range(6))\nrandom.Random({s}).shuffle(i)\nreturn {"y": X[i].cumsum(0)}', 'i = list(range(6))\nrandom.Random({t}).shuffle(i)\nreturn {"y": X[i].cumsum(0)}'),
    ("a generator of its own or the global one", "", 'g = torch.Generator().manual_seed({s})\nreturn {"y": (torch.from_numpy(X) * torch.rand(6, 4, generator=g)).numpy()}', 'torch.manual_seed({t})\nreturn {"y": (torch.from_numpy(X) * torch.rand(6, 4)).numpy()}'),
    ("seeded in a loop or once", "", 'out = []\nfor _ in range(3):\n    torch.manual_seed({s})\n    out.append(torch.nn.functional.dropout(torch.from_numpy(X), 0.5))\nreturn {"y": torch.stack(out).numpy()}',
        'torch.manual_seed({s})\nout = [torch.nn.functional.dropout(torch.from_numpy(X), 0.5) for _ in range(3)]\nreturn {"y": torch.stack(out).numpy()}'),
    ("a permutation drawn after the weights or before", "", 'torch.manual_seed({s})\nw, p = torch.randn(4, 2), torch.randperm(6)\nreturn {"y": (torch.from_numpy(X)[p] @ w).numpy()}', 'torch.manual_seed({s})\np, w = torch.randperm(6), torch.randn(4, 2)\nreturn {"y": (torch.from_numpy(X)[p] @ w).numpy()}'),
    ("a validation pass that draws", "", 'torch.manual_seed({s})\nout = []\nfor _ in range(2):\n    out.append(torch.from_numpy(X)[torch.randperm(6)])\nreturn {"y": torch.stack(out).numpy()}',
        'torch.manual_seed({s})\nout = []\nfor _ in range(2):\n    out.append(torch.from_numpy(X)[torch.randperm(6)])\n    torch.randperm(3)\nreturn {"y": torch.stack(out).numpy()}'),
    ("another shuffle of a loader", "", 'd = torch.utils.data.TensorDataset(torch.from_numpy(X))\nl = torch.utils.data.DataLoader(d, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed({s}))\nreturn {"y": torch.cat([b for b, in l]).numpy()}',
        'd = torch.utils.data.TensorDataset(torch.from_numpy(X))\nl = torch.utils.data.DataLoader(d, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed({t}))\nreturn {"y": torch.cat([b for b, in l]).numpy()}'),
    ("noise drawn in float64 or float32", "", 'r = np.random.default_rng({s})\nreturn {"y": X + r.standard_normal((6, 4)).astype("float32")}', 'r = np.random.default_rng({s})\nreturn {"y": X + r.standard_normal((6, 4), dtype="float32")}'),
    ("a mask per sample drawn by rows or at once", "", 'r = np.random.RandomState({s})\nreturn {"y": X * (r.rand(6, 4) > 0.3)}', 'r = np.random.RandomState({s})\nreturn {"y": X * (r.rand(4, 6).T > 0.3)}'),
    ("a paddle dropout after another draw", "", 'paddle.seed({s})\nreturn {"y": paddle.nn.functional.dropout(paddle.to_tensor(X), 0.5).numpy()}', 'paddle.seed({s})\npaddle.rand([2])\nreturn {"y": paddle.nn.functional.dropout(paddle.to_tensor(X), 0.5).numpy()}'),
    ("loader workers", 'class Noisy(torch.utils.data.Dataset):\n    def __len__(self):\n        return 4\n\n    def __getitem__(self, i):\n        return torch.from_numpy(X)[i] + torch.randn(4)\n\n\ndef load(workers):\n    torch.manual_seed({s})\n    return {"y": torch.cat(list(torch.utils.data.DataLoader(Noisy(), batch_size=2, num_workers=workers))).numpy()}', "return load(0)", "return load(2)"),
]  # fmt: skip
_TRAINED = """
def train(seed, extra, steps={steps}):
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        if extra:
            torch.rand(1)
        opt.zero_grad()
        (net(torch.from_numpy(X)) ** 2).mean().backward()
        opt.step()
    return {{"w": net[0].weight.detach().numpy().copy()}}
"""


def drawn(rng: Random) -> Program:
    """Another seed, stream or order of draws."""
    name, more, right, wrong = rng.choice(_DRAWS)
    s, t = rng.sample(range(1000), 2)
    more, right, wrong = (text.replace("{s}", str(s)).replace("{t}", str(t)) for text in (more, right, wrong))
    also = ("layout",) if name.startswith("a mask per sample") else ()  # one stream, laid out otherwise
    return Program("rng", name, f"{data(rng, X=(6, 4))}\n{more}", right, wrong, right, also=also, wide=False)


def trained(rng: Random) -> Program:
    """A training with dropout: another seed, or a draw more per step."""
    s, t = rng.sample(range(1000), 2)
    setup = data(rng, X=(6, 4)) + _TRAINED.format(steps=rng.randint(1, 6))
    name, wrong = rng.choice(
        [("another seed of a training", f"return train({t}, False)"), ("one more draw per step", f"return train({s}, True)")]
    )
    return Program("rng", name, setup, f"return train({s}, False)", wrong, f"return train({s}, False)", wide=False)


RNG: list[Plant] = [drawn, drawn, drawn, trained]

_NETS = {
    "torch": 'def net():\n    torch.manual_seed({s})\n    return torch.nn.Sequential(torch.nn.Linear(4, 8), {layer}, torch.nn.{act}(), torch.nn.Linear(8, 2))\n\n\ndef score(model):\n    return {{"y": model(torch.from_numpy(X)).detach().numpy()}}\n',
    "paddle": 'def net():\n    paddle.seed({s})\n    return paddle.nn.Sequential(paddle.nn.Linear(4, 8), {layer}, paddle.nn.{act}(), paddle.nn.Linear(8, 2))\n\n\ndef score(model):\n    return {{"y": model(paddle.to_tensor(X)).numpy()}}\n',
}
_MODED = {
    "torch": [
        "torch.nn.Dropout({p})",
        "torch.nn.AlphaDropout({p})",
        "torch.nn.BatchNorm1d(8)",
        "torch.nn.RReLU()",
        "torch.nn.BatchNorm1d(8, momentum=0.3)",
    ],
    "paddle": ["paddle.nn.Dropout({p})", "paddle.nn.BatchNorm1D(8)", "paddle.nn.AlphaDropout({p})"],
}


def modes(rng: Random) -> Program:
    """Training mode on one side, evaluation on the other."""
    framework = rng.choice(["torch", "paddle"])
    layer = rng.choice(_MODED[framework]).replace("{p}", str(rng.choice([0.2, 0.5])))
    text = _NETS[framework].format(s=rng.randrange(999), layer=layer, act=rng.choice(["ReLU", "Tanh"]))
    evaluated, training = "model = net()\nmodel.eval()\nreturn score(model)", "model = net()\nmodel.train()\nreturn score(model)"
    if rng.random() < 0.3:
        training = "model = net()\nmodel.eval()\nmodel[1].train()\nreturn score(model)"
    return Program("mode", f"{layer} in training mode", f"{data(rng, X=(8, 4))}\n\n\n{text}", evaluated, training, evaluated, wide=False)


_FROZEN: list[tuple[str, str, str, str, str]] = [
    # name, more setup, right, wrong, repaired
    ("a branch frozen by a trace", "def f(x):\n    return x * 3 if x.sum() > 0 else x - 1", 'return {"a": f(torch.ones(3)).numpy(), "b": f(-torch.ones(3) * {k}).numpy()}',
        'g = torch.jit.trace(f, torch.ones(3))\nreturn {"a": g(torch.ones(3)).numpy(), "b": g(-torch.ones(3) * {k}).numpy()}', ""),
    ("a loop count frozen by a trace", "def f(x):\n    h = x\n    for k in range(int(x[0])):\n        h = h + k * x\n    return h", 'return {"a": f(torch.tensor([2.0, {k}])).numpy(), "b": f(torch.tensor([4.0, {k}])).numpy()}',
        'g = torch.jit.trace(f, torch.tensor([2.0, {k}]))\nreturn {"a": g(torch.tensor([2.0, {k}])).numpy(), "b": g(torch.tensor([4.0, {k}])).numpy()}', ""),
    ("a size frozen by a trace", "def f(x):\n    return x.sum(0) / float(len(x))", 'return {"y": f(torch.from_numpy(X)).numpy()}', 'g = torch.jit.trace(f, torch.from_numpy(X[:3]))\nreturn {"y": g(torch.from_numpy(X)).numpy()}', ""),
    ("a value read while to_static builds the graph", 'GAIN = [1.0]\n\n\ndef f(x):\n    return x * GAIN[0]\n\n\ndef twice(g):\n    out = []\n    for gain in (1.0, {k}):\n        GAIN[0] = gain\n        out.append(g(paddle.to_tensor(X)).numpy())\n    return {"first": out[0], "second": out[1]}',
        "return twice(f)", "return twice(paddle.jit.to_static(f, full_graph=True))", ""),
    ("a counter frozen by a trace", 'STEP = [0]\n\n\ndef f(x):\n    STEP[0] += 1\n    return x / STEP[0]\n\n\ndef run(g):\n    return {"y": torch.stack([g(torch.from_numpy(X)) for _ in range(3)]).numpy()}', "STEP[0] = 0\nreturn run(f)", "STEP[0] = 0\nreturn run(torch.jit.trace(f, torch.from_numpy(X), check_trace=False))", ""),
    ("code that depends on grad mode", "def f(x):\n    return x * 2 if torch.is_grad_enabled() else x.clamp(-1, 1)", 'with torch.no_grad():\n    return {"y": f(torch.from_numpy(X)).numpy()}', 'return {"y": f(torch.from_numpy(X)).numpy()}', 'with torch.no_grad():\n    return {"y": f(torch.from_numpy(X)).numpy()}'),
    ("a flag read once", "class Net:\n    training = True\n\n    def __init__(self):\n        self.scale = 0.5 if self.training else 1.0\n\n    def __call__(self, x):\n        return torch.tanh(x) * self.scale",
        'Net.training = False\ntry:\n    return {"y": Net()(torch.from_numpy(X)).numpy()}\nfinally:\n    Net.training = True', 'net = Net()\nnet.training = False\nreturn {"y": net(torch.from_numpy(X)).numpy()}', 'Net.training = False\ntry:\n    return {"y": Net()(torch.from_numpy(X)).numpy()}\nfinally:\n    Net.training = True'),
    ("training frozen by a trace", "def net():\n    torch.manual_seed({s})\n    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2))",
        'm = net().eval()\nreturn {"y": m(torch.from_numpy(X)).detach().numpy()}', 'm = torch.jit.trace(net().train(), torch.from_numpy(X), check_trace=False)\nm.eval()\nreturn {"y": m(torch.from_numpy(X)).detach().numpy()}', 'm = torch.jit.trace(net().eval(), torch.from_numpy(X))\nreturn {"y": m(torch.from_numpy(X)).detach().numpy()}'),
    ("a noise constant frozen by a trace", 'def f(x):\n    return x + float(np.random.rand())\n\n\ndef run(g):\n    return {"y": torch.stack([g(torch.from_numpy(X)) for _ in range(3)]).numpy()}', "np.random.seed({s})\nreturn run(f)", "np.random.seed({s})\nreturn run(torch.jit.trace(f, torch.from_numpy(X), check_trace=False))", ""),
]  # fmt: skip


def frozen(rng: Random) -> Program:
    """Something that was decided at capture, or depends on a flag that was read once."""
    name, *texts = rng.choice(_FROZEN)
    fill = {"{k}": f"{rng.uniform(1.5, 4):.2f}", "{s}": str(rng.randrange(999))}
    for key, value in fill.items():
        texts = [text.replace(key, value) for text in texts]
    more, right, wrong, repaired = texts
    also = ("semantics",) if "grad mode" in name or "flag" in name else ()
    return Program("mode", name, f"{data(rng, X=(6, 4))}\n\n\n{more}", right, wrong, repaired or right, also=also, wide=False)


MODE: list[Plant] = [modes, modes, frozen]
