"""Plants of `layout`: the right numbers in the wrong order."""

from __future__ import annotations

from random import Random

from programs.benign_models import CELLS
from programs.chains import chain
from programs.program import Plant, Program, body, data, pick

_KEEPING: list[tuple[str, str, str, str]] = [
    # name, array P (n: the width), right, wrong
    ("square weight transposed", "(n, n)", "h = h @ K(P)", "h = h @ K(P).T"),
    ("columns of a weight reversed", "(n, n)", "h = h @ K(P)", "h = h @ K(Q)|Q = P[:, ::-1].copy()"),
    ("rows of a weight rotated", "(n, n)", "h = h @ K(P)", "h = h @ K(Q)|Q = np.roll(P, 1, axis=0)"),
    ("halves of a weight exchanged", "(n, n)", "h = h @ K(P)", "h = h @ K(Q)|Q = np.concatenate([P[n // 2:], P[:n // 2]])"),
    ("gain in another order", "(n,)", "h = h * K(P)", "h = h * K(Q)|Q = P[::-1].copy()"),
    ("interleaved bias", "(n,)", "h = h + K(P)", "h = h + K(Q)|Q = P.reshape(2, -1).T.reshape(-1).copy()"),
    ("heads and their width exchanged", "(n, n)", "h = (h @ K(P)).reshape((-1, 2, n // 2))\nh = $.tanh(h / $.sqrt((h * h).sum(AX=-1, KEEP=True) + 1)).reshape((-1, n))",
        "h = (h @ K(Q)).reshape((-1, 2, n // 2))\nh = $.tanh(h / $.sqrt((h * h).sum(AX=-1, KEEP=True) + 1)).reshape((-1, n))|Q = P.reshape(n, n // 2, 2).swapaxes(1, 2).reshape(n, n).copy()"),
    ("gate and value halves exchanged", "(n, 2 * n)", "z = h @ K(P)\nh = z[:, :n] / (1 + $.exp(-z[:, n:]))", "z = h @ K(P)\nh = z[:, n:] / (1 + $.exp(-z[:, :n]))"),
    ("Fortran order of a loaded file", "(n, n)", "h = $.tanh(h @ K(P))", 'h = $.tanh(h @ K(Q))|Q = np.frombuffer(P.tobytes("F"), P.dtype).reshape(n, n).copy()'),
    ("rows sorted by name (0, 1, 10, 2)", "(n, n)", "h = h @ K(P)", "h = h @ K(Q)|Q = P[sorted(range(n), key=str)] if n > 10 else P[[1, 0, *range(2, n)]]"),
    ("real and imaginary interleaved or stacked", "(n, n)", "z = h @ K(P)\nh = $.sqrt(z[:, ::2] ** 2 + z[:, 1::2] ** 2)", "z = h @ K(P)\nh = $.sqrt(z[:, :n // 2] ** 2 + z[:, n // 2:] ** 2)"),
]  # fmt: skip


def weights(rng: Random) -> Program:
    """A permuted or transposed weight within a chain, in any framework."""
    name, shape, right, wrong = rng.choice(_KEEPING)
    n = rng.choice([4, 6, 12])
    keeps = "interleaved or stacked" not in name
    before, before2, arrays = chain(rng, rng.randint(0, 3), n)
    after, after2, more = chain(rng, rng.randint(0, 3), n, "L") if keeps else ([], [], {})
    wrong, _, other = wrong.partition("|")
    sizes = tuple(eval(shape, {"n": n})) if shape != "(n,)" else (n,)  # our own table
    setup = data(rng, X=(rng.choice([2, 5]), n), P=(sizes, n**-0.5), **arrays, **more) + f"\nn = {n}" + (f"\n{other}" if other else "")
    return Program(
        "layout",
        name,
        setup,
        body(fw := pick(rng), [*before, right, *after]),
        body(fw2 := rng.choice([fw, pick(rng)]), [*before2, wrong, *after2]),
        body(fw2, [*before2, right, *after2]),
    )


_ATTENTION = """
def attend(x, order="qkv", split="stacked", heads={heads}):
    z = x @ torch.from_numpy(W)
    b, t, _ = z.shape
    if split == "stacked":
        parts = dict(zip(order, z.chunk(3, -1)))
    else:
        parts = dict(zip(order, z.reshape(b, t, heads, 3, -1).permute(3, 0, 1, 2, 4).reshape(3, b, t, -1)))
    q, k, v = (parts[n].reshape(b, t, heads, -1).transpose(1, 2) for n in "qkv")
    y = F.scaled_dot_product_attention(q, k, v)
    return {{"y": y.transpose(1, 2).reshape(b, t, -1).numpy()}}
"""


def attention(rng: Random) -> Program:
    """Order or interleaving of q, k and v in a packed weight."""
    heads, width = rng.choice([(2, 8), (1, 6), (3, 12)])
    setup = data(rng, X=(2, rng.randint(3, 7), width), W=((width, 3 * width), width**-0.5)) + _ATTENTION.format(heads=heads)
    call = "return attend(torch.from_numpy(X){})"
    options = [', order="kqv"', ', order="qvk"', ', order="vkq"'] + ([', split="interleaved"'] if heads > 1 else [])
    return Program("layout", "order of q, k, v", setup, call.format(""), call.format(rng.choice(options)), call.format(""))


def gates(rng: Random) -> Program:
    """Gates of a recurrent layer in another order."""
    kind = rng.choice(["LSTM", "GRU"])
    (count, cell), i, h = CELLS[kind], rng.randint(2, 6), rng.randint(2, 6)
    order = rng.choice([(0, 2, 1, 3), (0, 1, 3, 2), (1, 0, 2, 3), (3, 0, 1, 2)] if count == 4 else [(1, 0, 2), (2, 1, 0)])
    g = count * h
    setup = data(rng, X=(2, rng.randint(2, 6), i), W=((g, i), 0.6), U=((g, h), 0.6), B=(g,), C=(g,))
    setup += f"\n\ndef reordered(w, order):\n    return np.concatenate([np.split(w, {count})[k] for k in order])\n"
    lines = "\n".join(" " * 4 + line for line in cell.splitlines())
    hand = f'sig = lambda v: 1 / (1 + np.exp(-v))\nh = c = np.zeros((2, {h}), X.dtype)\nseen = []\nfor t in range(X.shape[1]):\n    x, r = X[:, t] @ W.T + B, h @ U.T + C\n{lines}\n    seen.append(h)\nreturn {{"h": np.stack(seen, 1)}}'
    layers = {
        "torch": f'net = torch.nn.{kind}({i}, {h}, batch_first=True)\nwith torch.no_grad():\n    for p, a in zip(net.parameters(), (W, U, B, C)):\n        p.copy_(torch.from_numpy(ORDER))\n    return {{"h": net(torch.from_numpy(X))[0].numpy()}}',
        "paddle": f'net = paddle.nn.{kind}({i}, {h})\nfor p, a in zip(net.parameters(), (W, U, B, C)):\n    p.set_value(ORDER)\nreturn {{"h": net(paddle.to_tensor(X))[0].numpy()}}',
    }
    layer = layers[pick(rng, "torch", "paddle")]
    right = rng.choice([hand, layers[pick(rng, "torch", "paddle")].replace("ORDER", "a")])
    return Program(
        "layout", f"order of {kind} gates", setup, right, layer.replace("ORDER", f"reordered(a, {order})"), layer.replace("ORDER", "a")
    )


_ROTARY = """
def rotate(x, interleaved):
    n = x.shape[-1]
    angle = np.arange(x.shape[0], dtype="float32")[:, None] * (10.0 ** -np.arange(n // 2, dtype="float32"))
    c, s = np.cos(angle), np.sin(angle)
    a, b = (x[:, ::2], x[:, 1::2]) if interleaved else (x[:, :n // 2], x[:, n // 2:])
    u, v = a * c - b * s, a * s + b * c
    return np.stack([u, v], -1).reshape(x.shape) if interleaved else np.concatenate([u, v], -1)
"""
_IMAGES: list[tuple[str, str, str, str, str]] = [
    # name, shapes, more setup, right, wrong
    ("RGB or BGR", "X=(2, 3, 5, 5) W=(4, 3, 3, 3)", "", 'return {"y": F.conv2d(torch.from_numpy(X), torch.from_numpy(W)).numpy()}', 'return {"y": F.conv2d(torch.from_numpy(X[:, ::-1].copy()), torch.from_numpy(W)).numpy()}'),
    ("means of channels reversed", "X=(2, 3, 5, 5) W=(3,)", "", 'return {"y": (torch.from_numpy(X) - torch.from_numpy(W)[:, None, None]).tanh().numpy()}', 'return {"y": (torch.from_numpy(X) - torch.from_numpy(W).flip(0)[:, None, None]).tanh().numpy()}'),
    ("NHWC or NCHW before a dense layer", "X=(2, 3, 4, 4) W=(48, 5)", "", 'x = torch.from_numpy(X)\nreturn {"y": (x.flatten(1) @ torch.from_numpy(W)).numpy()}', 'x = torch.from_numpy(X)\nreturn {"y": (x.permute(0, 2, 3, 1).flatten(1) @ torch.from_numpy(W)).numpy()}'),
    ("flipped kernel", "X=(1, 2, 7, 7) W=(3, 2, 3, 3)", "", 'return {"y": F.conv2d(torch.from_numpy(X), torch.from_numpy(W)).numpy()}', 'return {"y": F.conv2d(torch.from_numpy(X), torch.from_numpy(W[:, :, ::-1, ::-1].copy())).numpy()}'),
    ("height and width of a kernel exchanged", "X=(1, 2, 7, 7) W=(3, 2, 3, 3)", "", 'return {"y": F.conv2d(torch.from_numpy(X), torch.from_numpy(W)).numpy()}', 'return {"y": PF.conv2d(paddle.to_tensor(X), paddle.to_tensor(W.swapaxes(2, 3).copy())).numpy()}'),
    ("input and output channels exchanged", "X=(1, 3, 6, 6) W=(3, 3, 3, 3)", "", 'return {"y": PF.conv2d(paddle.to_tensor(X), paddle.to_tensor(W)).numpy()}', 'return {"y": PF.conv2d(paddle.to_tensor(X), paddle.to_tensor(W.swapaxes(0, 1).copy())).numpy()}'),
    ("batch and time exchanged", "X=(4, 4, 3)", "", 'return {"y": np.cumsum(np.tanh(X), axis=1)}', 'x = torch.from_numpy(X).transpose(0, 1)\nreturn {"y": torch.cumsum(torch.tanh(x), 1).numpy()}'),
    ("transposed result", "X=(5, 5) W=(5, 5)", "", 'return {"y": X @ W}', 'return {"y": (torch.from_numpy(X) @ torch.from_numpy(W)).T.contiguous().numpy()}'),
    ("interleaved or half rotation", "X=(6, 8)", _ROTARY, 'return {"y": rotate(X, False)}', 'return {"y": rotate(X, True)}'),
    ("order of concatenated parts", "X=(4, 3) W=(4, 3) P=(6, 2)", "", 'return {"y": np.concatenate([X, W], 1) @ P}', 'return {"y": (torch.cat([torch.from_numpy(W), torch.from_numpy(X)], 1) @ torch.from_numpy(P)).numpy()}'),
    ("view instead of transpose", "X=(4, 6) W=(4, 3)", "", 'return {"y": X.T @ W}', 'return {"y": (torch.from_numpy(X).reshape(6, 4) @ torch.from_numpy(W)).numpy()}'),
    ("directions of a bidirectional layer exchanged", "X=(5, 6) P=(6, 4)", "", 'return {"y": np.tanh(X @ P) @ P.T}', 'q = np.roll(P, 2, axis=1)\nreturn {"y": np.tanh(X @ q) @ P.T}'),
    ("pixel shuffle by depth or by column", "X=(1, 8, 3, 3)", "", 'return {"y": F.pixel_shuffle(torch.from_numpy(X), 2).cumsum(-1).numpy()}', 'x = torch.from_numpy(X).reshape(1, 4, 2, 3, 3).transpose(1, 2).reshape(1, 8, 3, 3)\nreturn {"y": F.pixel_shuffle(x, 2).cumsum(-1).numpy()}'),
]  # fmt: skip


def images(rng: Random) -> Program:
    """Orders of axes and channels of data, kernels and results."""
    name, shapes, more, right, wrong = rng.choice(_IMAGES)
    arrays = {key: eval(shape) for key, shape in (each.split("=") for each in shapes.replace(", ", ",").split())}
    return Program("layout", name, data(rng, **arrays) + "\n" + more, right, wrong, right)


LAYOUT: list[Plant] = [weights, weights, attention, gates, images, images]
