"""Plants of `state` (a resume that forgets something) and `config` (a global setting)."""

from __future__ import annotations

from random import Random

from programs.program import Plant, Program, data

_TORCH = """
class Run:
    def __init__(self):
        torch.manual_seed({s})
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), {layer}, torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.opt = torch.optim.{opt}
        self.plan = torch.optim.lr_scheduler.StepLR(self.opt, {every}, gamma=0.3)
        self.ema = [p.detach().clone() for p in self.net.parameters()]
        self.scale = 1.0

    def steps(self, n):
        for _ in range(n):
            self.opt.zero_grad()
            ((self.net(torch.from_numpy(X)) - 1) ** 2).mean().mul(self.scale).backward()
            self.opt.step()
            self.plan.step()
            self.scale = self.scale * 1.5
            self.ema = [0.8 * e + 0.2 * p.detach() for e, p in zip(self.ema, self.net.parameters())]

    def results(self):
        with torch.no_grad():
            out = {{f"w{{k}}": p.detach().numpy().copy() for k, p in enumerate(self.net.parameters())}}
            out["ema"] = self.ema[0].numpy().copy()
            out["y"] = self.net.eval()(torch.from_numpy(X)).numpy()
            return out

    def saved(self):
        return {{"net": copy.deepcopy(self.net.state_dict()), "opt": copy.deepcopy(self.opt.state_dict()), "plan": self.plan.state_dict(),
                "ema": self.ema, "scale": self.scale, "rng": torch.get_rng_state()}}

    def load(self, saved, forget):
        weights = {{k: v for k, v in saved["net"].items() if "buffers" not in forget or "running" not in k}}
        self.net.load_state_dict(weights, strict=False)
        if "optimizer" not in forget:
            self.opt.load_state_dict(saved["opt"])
        if "scheduler" not in forget:
            self.plan.load_state_dict(saved["plan"])
        if "average" not in forget:
            self.ema = saved["ema"]
        if "scale" not in forget:
            self.scale = saved["scale"]
        if "random" not in forget:
            torch.set_rng_state(saved["rng"])


def straight():
    run = Run()
    run.steps({a} + {b})
    return run.results()


def resumed(forget):
    run = Run()
    run.steps({a})
    saved = run.saved()
    run = Run()
    run.load(saved, forget)
    run.steps({b})
    return run.results()
"""
_PADDLE = """
def fresh():
    paddle.seed({s})
    net = paddle.nn.Sequential(paddle.nn.Linear(4, 8), {layer}, paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
    plan = paddle.optimizer.lr.StepDecay(0.05, {every}, gamma=0.3)
    return net, paddle.optimizer.{opt}, plan


def steps(net, opt, plan, n):
    for _ in range(n):
        loss = ((net(paddle.to_tensor(X)) - 1) ** 2).mean()
        loss.backward()
        opt.step()
        opt.clear_grad()
        plan.step()


def results(net):
    out = {{f"w{{k}}": p.numpy().copy() for k, p in enumerate(net.parameters())}}
    net.eval()
    out["y"] = net(paddle.to_tensor(X)).numpy()
    return out


def straight():
    net, opt, plan = fresh()
    steps(net, opt, plan, {a} + {b})
    return results(net)


def resumed(forget):
    net, opt, plan = fresh()
    steps(net, opt, plan, {a})
    moments = [k for k in opt.state_dict() if k != "LR_Scheduler"]
    weights = {{k: v.numpy().copy() for k, v in net.state_dict().items()}}
    learned = {{k: (v.numpy().copy() if hasattr(v, "numpy") else copy.deepcopy(v)) for k, v in opt.state_dict().items()}}
    names = [p.name for p in net.parameters()]
    net, opt, plan = fresh()
    net.set_state_dict({{k: v for k, v in weights.items() if "buffers" not in forget or not k.endswith(("_mean", "_variance"))}})
    renamed = {{}}
    for k, v in learned.items():
        for old, new in zip(names, [p.name for p in net.parameters()]):
            if k.startswith(old + "_"):
                renamed[new + k[len(old):]] = paddle.to_tensor(v)
    if "optimizer" not in forget:
        opt.set_state_dict({{**renamed, "LR_Scheduler": plan.state_dict() if "scheduler" in forget else learned["LR_Scheduler"]}})
    elif "scheduler" not in forget:
        plan.set_state_dict(learned["LR_Scheduler"])
    steps(net, opt, plan, {b})
    return results(net)
"""


def torch_resumes(rng: Random) -> Program:
    """A resume in torch that forgets one thing."""
    forget = rng.choice(["optimizer", "scheduler", "buffers", "average", "scale", "random"])
    layer = {"buffers": "torch.nn.BatchNorm1d(8)", "random": "torch.nn.Dropout(0.4)"}.get(forget, "torch.nn.Identity()")
    forget = rng.choice([forget, "optimizer scheduler"]) if forget == "optimizer" else forget
    moments = [
        "Adam(self.net.parameters(), lr=0.03)",
        "SGD(self.net.parameters(), lr=0.05, momentum=0.9)",
        "RMSprop(self.net.parameters(), lr=0.01)",
    ]
    opt = rng.choice(moments) if "optimizer" in forget else "SGD(self.net.parameters(), lr=0.05)"
    a, b = rng.randint(2, 5), rng.randint(1, 4)
    setup = data(rng, X=(6, 4)) + "\n\n" + _TORCH.format(s=rng.randrange(999), layer=layer, opt=opt, every=rng.randint(1, 2), a=a, b=b)
    also = ("rng",) if forget == "random" else ()
    return Program(
        "state",
        f"a resume without {forget}",
        setup,
        "return straight()",
        f'return resumed("{forget}")',
        'return resumed("")',
        also=also,
        wide=False,
    )


def paddle_resumes(rng: Random) -> Program:
    """The same in paddle."""
    forget = rng.choice(["optimizer", "scheduler", "buffers"])
    layer = "paddle.nn.BatchNorm1D(8)" if forget == "buffers" else "paddle.nn.ReLU()"
    opt = "Momentum(plan, 0.9, parameters=net.parameters())" if forget == "optimizer" else "SGD(plan, parameters=net.parameters())"
    setup = (
        data(rng, X=(6, 4))
        + "\n\n"
        + _PADDLE.format(s=rng.randrange(999), layer=layer, opt=opt, every=rng.randint(1, 2), a=rng.randint(2, 4), b=rng.randint(1, 3))
    )
    return Program(
        "state",
        f"a resume in paddle without {forget}",
        setup,
        "return straight()",
        f'return resumed("{forget}")',
        'return resumed("")',
        wide=False,
    )


_CARRIED: list[tuple[str, str, str, str]] = [
    ("the hidden state of a layer not carried", "def net():\n    torch.manual_seed({s})\n    return torch.nn.{kind}(4, 5, batch_first=True)",
        'n, x = net(), torch.from_numpy(X)[None]\nreturn {"h": n(x)[0].detach().numpy()}', 'n, x = net(), torch.from_numpy(X)[None]\nreturn {"h": torch.cat([n(x[:, :3])[0], n(x[:, 3:])[0]], 1).detach().numpy()}'),
    ("the hidden state of a paddle layer not carried", "def net():\n    paddle.seed({s})\n    return paddle.nn.{kind}(4, 5)",
        'n, x = net(), paddle.to_tensor(X[None])\nreturn {"h": n(x)[0].numpy()}', 'n, x = net(), paddle.to_tensor(X[None])\nreturn {"h": paddle.concat([n(x[:, :3])[0], n(x[:, 3:])[0]], 1).numpy()}'),
    ("a recurrence in NumPy restarted from zero", 'W = R.randn(4, 4).astype("float32")\n\n\ndef scan(x, h):\n    out = []\n    for row in x:\n        h = np.tanh(row + h @ W)\n        out.append(h)\n    return np.stack(out), h',
        'a, h = scan(X[:3], np.zeros(4, "float32"))\nb, _ = scan(X[3:], h)\nreturn {"h": np.concatenate([a, b])}', 'a, h = scan(X[:3], np.zeros(4, "float32"))\nb, _ = scan(X[3:], np.zeros(4, "float32"))\nreturn {"h": np.concatenate([a, b])}'),
]  # fmt: skip


def carried(rng: Random) -> Program:
    """State between two halves of a sequence that is not handed on."""
    name, more, right, wrong = rng.choice(_CARRIED)
    more = more.replace("{s}", str(rng.randrange(999))).replace("{kind}", rng.choice(["LSTM", "GRU"]))
    return Program("state", name, f"{data(rng, X=(6, 4))}\n\n\n{more}", right, wrong, right, also=("semantics",), wide=False)


STATE: list[Plant] = [torch_resumes, torch_resumes, torch_resumes, paddle_resumes, carried]

_SETTINGS: list[tuple[str, str, str, str, str, tuple[str, ...]]] = [
    ("subnormals flushed", "X *= np.float32(1e-30)", 'x = torch.from_numpy(X)\nreturn {"y": ((x * 1e-10) * 1e25).numpy()}',
        'x = torch.from_numpy(X)\ntorch.set_flush_denormal(True)\ntry:\n    return {"y": ((x * 1e-10) * 1e25).numpy()}\nfinally:\n    torch.set_flush_denormal(False)', "", ()),
    ("the default dtype left at float64", "def left(dtype):\n    before = torch.get_default_dtype()\n    torch.set_default_dtype(dtype)\n    return before", 'return {"y": torch.tensor([0.1, 0.2, 0.7]).exp().cumsum(0).numpy()}',
        'before = left(torch.float64)\ntry:\n    return {"y": torch.tensor([0.1, 0.2, 0.7]).exp().cumsum(0).numpy()}\nfinally:\n    left(before)', "", ("dtype",)),
    ("the default dtype of paddle left at float64", "", 'return {"y": paddle.exp(paddle.ones([3]) * 0.3 + paddle.full([3], 0.1)).numpy()}',
        'paddle.set_default_dtype("float64")\ntry:\n    return {"y": paddle.exp(paddle.ones([3]) * 0.3 + paddle.full([3], 0.1)).numpy()}\nfinally:\n    paddle.set_default_dtype("float32")', "", ("dtype",)),
    ("products allowed in bfloat16", "W = R.randn(64, 64).astype('float32')\nX = R.randn(64, 64).astype('float32')", 'return {"y": (torch.from_numpy(X) @ torch.from_numpy(W)).numpy()}',
        'before = torch.get_float32_matmul_precision()\ntorch.set_float32_matmul_precision("medium")\ntry:\n    return {"y": (torch.from_numpy(X) @ torch.from_numpy(W)).numpy()}\nfinally:\n    torch.set_float32_matmul_precision(before)', "", ("dtype",)),
]  # fmt: skip


def settings(rng: Random) -> Program:
    """A process-wide setting on one side only."""
    name, more, right, wrong, repaired, also = rng.choice(_SETTINGS)
    return Program("config", name, f"{data(rng, X=(rng.randint(3, 6), 4))}\n{more}", right, wrong, repaired or right, also=also, wide=False)


CONFIG: list[Plant] = [settings]
