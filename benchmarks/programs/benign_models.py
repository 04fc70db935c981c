"""Plants of `rounding` with state: short trainings and recurrent layers."""

from __future__ import annotations

from random import Random

from programs.program import Program, data


def rounding(name: str, setup: str, right: str, wrong: str, *also: str) -> Program:
    return Program("rounding", name, setup, right, wrong, also=("equal", *also))


_TRAINING = """
def by_torch(steps, **how):
    net = torch.nn.Sequential(torch.nn.Linear({i}, {h}), torch.nn.{act}(), torch.nn.Linear({h}, 1))
    with torch.no_grad():
        for p, a in zip(net.parameters(), (W.T, B, V.T, C)):
            p.copy_(torch.from_numpy(a.copy()))
    opt = torch.optim.{opt}(net.parameters(), lr={lr}{extra}, **how)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = ((net(torch.from_numpy(X)) - torch.from_numpy(Y)) ** 2).mean()
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return {{"losses": torch.stack(losses).numpy(), "w": net[0].weight.detach().numpy().T.copy()}}

def by_paddle(steps):
    net = paddle.nn.Sequential(paddle.nn.Linear({i}, {h}), paddle.nn.{act}(), paddle.nn.Linear({h}, 1))
    for p, a in zip(net.parameters(), (W, B, V, C)):
        p.set_value(a)
    opt = paddle.optimizer.{popt}({lr}{pextra}, parameters=net.parameters())
    losses = []
    for _ in range(steps):
        loss = ((net(paddle.to_tensor(X)) - paddle.to_tensor(Y)) ** 2).mean()
        loss.backward()
        opt.step()
        opt.clear_grad()
        losses.append(loss.detach())
    return {{"losses": paddle.stack(losses).numpy(), "w": net[0].weight.numpy()}}
"""
_OPTIMIZERS = [("SGD", "", "SGD", ""), ("SGD", ", momentum=0.9", "Momentum", ", 0.9"), ("Adam", "", "Adam", ""), ("AdamW", ", weight_decay=0.05", "AdamW", ", weight_decay=0.05"), ("Adagrad", ", eps=1e-6", "Adagrad", "")]  # fmt: skip


def training(rng: Random) -> Program:
    """A short training: loops of the optimizer, or another framework with copied weights."""
    i, h, rows = rng.randint(2, 8), rng.choice([4, 9, 16]), rng.randint(4, 20)
    opt, extra, popt, pextra = rng.choice(_OPTIMIZERS)
    lr, act, steps = rng.choice([0.003, 0.01]), rng.choice(["Tanh", "Sigmoid", "Softplus"]), rng.randint(1, 10)
    setup = data(rng, X=(rows, i), Y=(rows, 1), W=((i, h), i**-0.5), B=(h,), V=((h, 1), h**-0.5), C=(1,))
    setup += "\n" + _TRAINING.format(i=i, h=h, opt=opt, extra=extra, popt=popt, pextra=pextra, lr=lr, act=act)
    sides = [f"return by_torch({steps}, foreach=True)", f"return by_torch({steps}, foreach=False)", f"return by_paddle({steps})"]
    a, b = rng.sample(sides, 2)
    return rounding(f"{steps} steps of {opt}", setup, a, b)


_RECURRENT = """
def by_torch():
    net = torch.nn.{kind}({i}, {h}, batch_first=True)
    with torch.no_grad():
        for p, a in zip(net.parameters(), (W, U, B, C)):
            p.copy_(torch.from_numpy(a))
        return {{"h": net(torch.from_numpy(X))[0].numpy()}}

def by_paddle():
    net = paddle.nn.{pkind}({i}, {h})
    for p, a in zip(net.parameters(), (W, U, B, C)):
        p.set_value(a)
    return {{"h": net(paddle.to_tensor(X))[0].numpy()}}

def by_hand():
    sig = lambda v: 1 / (1 + np.exp(-v))
    h = c = np.zeros((X.shape[0], {h}), "float32")
    seen = []
    for t in range(X.shape[1]):
        x, r = X[:, t] @ W.T + B, h @ U.T + C
{cell}
        seen.append(h)
    return {{"h": np.stack(seen, 1)}}
"""
CELLS = {
    "LSTM": (4, "i, f, g, o = np.split(x + r, 4, axis=1)\nc = sig(f) * c + sig(i) * np.tanh(g)\nh = sig(o) * np.tanh(c)"),
    "GRU": (3, "a, b = np.split(x, 3, axis=1), np.split(r, 3, axis=1)\nz = sig(a[1] + b[1])\nh = (1 - z) * np.tanh(a[2] + sig(a[0] + b[0]) * b[2]) + z * h"),
    "RNN": (1, "h = np.tanh(x + r)"),
}  # fmt: skip


def recurrent(rng: Random) -> Program:
    """A recurrent layer: torch's, paddle's, by hand."""
    i, h, kind = rng.randint(2, 6), rng.randint(2, 7), rng.choice(list(CELLS))
    gates, cell = CELLS[kind]
    g = gates * h
    setup = data(rng, X=(rng.randint(1, 4), rng.randint(2, 7), i), W=((g, i), 0.5), U=((g, h), 0.5), B=(g,), C=(g,))
    lines = "\n".join(" " * 8 + line for line in cell.splitlines())
    setup += "\n" + _RECURRENT.format(i=i, h=h, kind=kind, pkind="SimpleRNN" if kind == "RNN" else kind, cell=lines)
    a, b = rng.sample(["return by_torch()", "return by_paddle()", "return by_hand()"], 2)
    return rounding(f"{kind}, layers and by hand", setup, a, b)
