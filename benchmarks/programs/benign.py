"""Plants of `equal` and `rounding`: one formula on both sides."""

from __future__ import annotations

from random import Random

from programs.benign_models import recurrent, rounding, training
from programs.chains import chain
from programs.program import Plant, Program, body, data, pick, spell


def chains(rng: Random) -> Program:
    """One chain of operations in two frameworks, or twice in one with other spellings."""
    width = rng.choice([4, 9, 16, 33])
    one, other, arrays = chain(rng, rng.randint(1, 8), width)
    setup = data(rng, X=(rng.randint(1, 9), width), **arrays)
    return rounding("one chain, two spellings", setup, body(pick(rng), one), body(pick(rng), other))


def float64_reference(rng: Random) -> Program:
    """NumPy in float64, cast at the end, against float32."""
    width = rng.choice([5, 12, 24])
    one, other, arrays = chain(rng, rng.randint(1, 5), width)
    setup = data(rng, X=(rng.randint(2, 7), width), **arrays)
    right = body("numpy", one, 'K(X).astype("float64")').replace('{"y": h}', '{"y": h.astype("float32")}')
    return rounding("a float64 reference, cast at the end", setup, right, body(pick(rng, "torch", "paddle"), other), "dtype")


_SUMS = {
    "numpy": [
        "X.sum()",
        "np.add.accumulate(X)[-1]",
        "X[::-1].copy().sum()",
        "X.reshape(4, -1).sum(axis=0).sum()",
        "np.dot(X, np.ones_like(X))",
    ],
    "torch": [
        "torch.from_numpy(X).sum().numpy()",
        "torch.from_numpy(X).cumsum(0)[-1].numpy()",
        "torch.stack([c.sum() for c in torch.from_numpy(X).chunk(8)]).sum().numpy()",
    ],
    "paddle": ["paddle.to_tensor(X).sum().numpy()", "paddle.to_tensor(X).reshape([8, -1]).sum(axis=1).sum().numpy()"],
}


def sums(rng: Random) -> Program:
    """Orders of a long sum."""
    terms = 8 * rng.randint(50, 2000)
    setup = data(rng, X=((terms,), 1.0)) + "\nX = np.abs(X) + X / 2"
    a, b = rng.choice(_SUMS[pick(rng)]), rng.choice(_SUMS[pick(rng)])
    return rounding("orders of a sum", setup, f'return {{"total": {a}}}', f'return {{"total": {b}}}')


_PRODUCTS = [
    "OUT = $.matmul(K(X), K(W))", 'OUT = $.einsum("ij,jk->ik", K(X), K(W))', "OUT = K(X) @ K(W)",
    "OUT = (K(W).T @ K(X).T).T", "OUT = K(X)[:, :7] @ K(W)[:7] + K(X)[:, 7:] @ K(W)[7:]",
    "OUT = $.stack([K(X)[i] @ K(W) for i in range({n})])", "OUT = (K(X)[:, :, None] * K(W)[None]).sum(1)",
    "OUT = $.concatenate([K(X)[i:i + 1] @ K(W) for i in range({n})])",
]  # fmt: skip


def products(rng: Random) -> Program:
    """Forms of one product of matrices: whole, by rows, by blocks, transposed, by einsum."""
    rows, inner, columns = rng.randint(2, 12), rng.choice([16, 65, 200, 512]), rng.randint(2, 20)
    sides = []
    for _ in range(2):
        framework = pick(rng)
        line = rng.choice(_PRODUCTS).replace("{n}", str(rows)).replace("OUT", "h")
        line = line.replace("concatenate", "concatenate" if framework == "numpy" else "concat")
        sides.append(spell(framework, line + '\nreturn {"y": OUT(h)}'))
    return rounding("forms of a product", data(rng, X=(rows, inner), W=(inner, columns)), *sides)


def associated(rng: Random) -> Program:
    """(AB)C against A(BC)."""
    n, m = rng.choice([6, 20, 48]), rng.choice([5, 11])
    setup = data(rng, A=(m, n), B=(n, n), C=(n, m))
    a, b = (
        spell(pick(rng), 'h = (K(A) @ K(B)) @ K(C)\nreturn {"y": OUT(h)}'),
        spell(pick(rng), 'h = K(A) @ (K(B) @ K(C))\nreturn {"y": OUT(h)}'),
    )
    return rounding("association of products", setup, a, b)


_BF16 = [
    "X.to(B) @ W.to(B)", "(W.to(B).T @ X.to(B).T).T", "F.linear(X.to(B), W.to(B).T.contiguous())",
    "torch.stack([X[i].to(B) @ W.to(B) for i in range(X.shape[0])])", "X.to(B)[:, :9] @ W.to(B)[:9] + X.to(B)[:, 9:] @ W.to(B)[9:]",
]  # fmt: skip


def halves(rng: Random) -> Program:
    """bfloat16 on both sides."""
    setup = data(rng, X=(rng.randint(2, 6), 64), W=(64, 8)) + "\nX, W = torch.from_numpy(X), torch.from_numpy(W)\nB = torch.bfloat16"
    a, b = rng.sample(_BF16, 2)
    return Program(
        "rounding",
        "bfloat16 on both sides",
        setup,
        f'return {{"y": ({a}).float().numpy()}}',
        f'return {{"y": ({b}).float().numpy()}}',
        also=("equal",),
        unit=2.0**-9,
        wide=False,
    )


_FORMS: list[tuple[str, str, list[str]]] = [
    ("log of softmax", "X=(5, 13)", [
        'return {"y": F.log_softmax(torch.from_numpy(X), -1).numpy()}', 'return {"y": torch.log(torch.softmax(torch.from_numpy(X), -1)).numpy()}',
        'return {"y": PF.log_softmax(paddle.to_tensor(X), -1).numpy()}', 'return {"y": X - np.log(np.exp(X).sum(-1, keepdims=True))}',
        'h = torch.from_numpy(X)\nreturn {"y": (h - torch.logsumexp(h, -1, keepdim=True)).numpy()}',
        'm = X.max(-1, keepdims=True)\nreturn {"y": X - m - np.log(np.exp(X - m).sum(-1, keepdims=True))}']),
    ("attention", "Q=(2, 3, 7, 8) S=(2, 3, 7, 8) V=(2, 3, 7, 8)", [
        'q, k, v = map(torch.from_numpy, (Q, S, V))\nreturn {"y": F.scaled_dot_product_attention(q, k, v).numpy()}',
        'q, k, v = map(torch.from_numpy, (Q, S, V))\nreturn {"y": (torch.softmax(q @ k.transpose(-1, -2) / 8 ** 0.5, -1) @ v).numpy()}',
        's = Q @ S.swapaxes(-1, -2) / np.float32(8 ** 0.5)\ne = np.exp(s - s.max(-1, keepdims=True))\nreturn {"y": (e / e.sum(-1, keepdims=True)) @ V}',
        'q, k, v = map(paddle.to_tensor, (Q, S, V))\np = PF.softmax(paddle.matmul(q * 8 ** -0.5, k, transpose_y=True), -1)\nreturn {"y": (p @ v).numpy()}',
        'q, k, v = map(torch.from_numpy, (Q, S, V))\np = torch.einsum("bhqd,bhkd->bhqk", q, k).mul(8 ** -0.5).softmax(-1)\nreturn {"y": torch.einsum("bhqk,bhkd->bhqd", p, v).numpy()}']),
    ("convolution", "X=(2, 3, 9, 9) W=(4, 3, 3, 3) B=(4,)", [
        'x, w, b = map(torch.from_numpy, (X, W, B))\nreturn {"y": F.conv2d(x, w, b, padding=1).numpy()}',
        'x, w, b = map(torch.from_numpy, (X, W, B))\np = F.unfold(x, 3, padding=1)\nreturn {"y": (w.reshape(4, -1) @ p + b[:, None]).reshape(2, 4, 9, 9).numpy()}',
        'x, w, b = map(paddle.to_tensor, (X, W, B))\nreturn {"y": PF.conv2d(x, w, b, padding=1).numpy()}',
        'x, w, b = map(torch.from_numpy, (X, W, B))\nreturn {"y": torch.cat([F.conv2d(x[i:i + 1], w, b, padding=1) for i in range(2)]).numpy()}',
        'x, w, b = map(torch.from_numpy, (X, W, B))\nx = x.contiguous(memory_format=torch.channels_last)\nreturn {"y": F.conv2d(x, w, b, padding=1).contiguous().numpy()}',
        'p = np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))\nh = sum(np.einsum("nchw,oc->nohw", p[:, :, i:i + 9, j:j + 9], W[:, :, i, j]) for i in range(3) for j in range(3))\nreturn {"y": h + B[:, None, None]}']),
    ("layer normalisation", "X=(6, 24) G=(24,) B=(24,)", [
        'x, g, b = map(torch.from_numpy, (X, G, B))\nreturn {"y": F.layer_norm(x, (24,), g, b, 1e-5).numpy()}',
        'x, g, b = map(paddle.to_tensor, (X, G, B))\nreturn {"y": PF.layer_norm(x, [24], g, b, 1e-5).numpy()}',
        'm = X.mean(-1, keepdims=True)\nreturn {"y": (X - m) / np.sqrt(X.var(-1, keepdims=True) + 1e-5) * G + B}',
        'x = torch.from_numpy(X)\nv, m = torch.var_mean(x, -1, correction=0, keepdim=True)\nreturn {"y": ((x - m) * torch.rsqrt(v + 1e-5) * torch.from_numpy(G) + torch.from_numpy(B)).numpy()}']),
    ("batch normalisation in evaluation, as it is and folded", "X=(4, 5, 6) M=(5,) G=(5,) B=(5,)", [
        'x, m, g, b = map(torch.from_numpy, (X, M, G, B))\nreturn {"y": F.batch_norm(x, m, g * g + 1, g, b, eps=1e-5).numpy()}',
        's = G / np.sqrt(G * G + 1 + np.float32(1e-5))\nreturn {"y": X * s[:, None] + (B - M * s)[:, None]}',
        'x, m, g, b = map(paddle.to_tensor, (X, M, G, B))\nreturn {"y": PF.batch_norm(x, m, g * g + 1, g, b, epsilon=1e-5, data_format="NCL").numpy()}']),
    ("fused and single products", "X=(7, 40) W=(40, 11) B=(11,)", [
        'x, w, b = map(torch.from_numpy, (X, W, B))\nreturn {"y": torch.addmm(b, x, w, alpha=0.3).numpy()}',
        'x, w, b = map(torch.from_numpy, (X, W, B))\nreturn {"y": (b + 0.3 * (x @ w)).numpy()}',
        'return {"y": (X * np.float32(0.3)) @ W + B}',
        'x, w, b = map(paddle.to_tensor, (X, W, B))\nreturn {"y": paddle.addmm(b, x, w, alpha=0.3).numpy()}']),
    ("a polynomial, by powers and by Horner", "X=(60,)", [
        'return {"y": 0.3 * X ** 3 - 1.2 * X ** 2 + X + 4}', 'return {"y": ((0.3 * X - 1.2) * X + 1) * X + 4}',
        'x = torch.from_numpy(X)\nreturn {"y": torch.addcmul(torch.full_like(x, 4), torch.addcmul(torch.ones_like(x), 0.3 * x - 1.2, x), x).numpy()}',
        'x = paddle.to_tensor(X)\nreturn {"y": (4 + x - 1.2 * x * x + 0.3 * paddle.pow(x, 3)).numpy()}']),
    ("cumulative sums, by scan and by a triangular product", "X=(5, 50)", [
        'return {"y": np.cumsum(X, axis=1)}', 'return {"y": X @ np.triu(np.ones((50, 50), "float32"))}',
        'return {"y": torch.from_numpy(X).cumsum(1).numpy()}', 'return {"y": paddle.cumsum(paddle.to_tensor(X), axis=1).numpy()}']),
    ("thread counts", "X=(300, 400) W=(400, 60)", [
        f'before = torch.get_num_threads()\ntorch.set_num_threads({n})\ntry:\n    h = torch.from_numpy(X) @ torch.from_numpy(W)\n    return {{"y": h.numpy(), "sum": h.sum().numpy()}}\nfinally:\n    torch.set_num_threads(before)'
        for n in (1, 2)]),
    ("variance, two passes and one", "X=(4, 90)", [
        'return {"v": X.var(axis=1)}', 'return {"v": (X * X).mean(axis=1) - X.mean(axis=1) ** 2}', 'return {"v": torch.from_numpy(X).var(1, correction=0).numpy()}',
        'return {"v": paddle.var(paddle.to_tensor(X), axis=1, unbiased=False).numpy()}']),
    ("squared distances, direct and expanded", "X=(6, 12) W=(5, 12)", [
        'return {"d": ((X[:, None] - W[None]) ** 2).sum(-1)}', 'return {"d": (X * X).sum(1)[:, None] + (W * W).sum(1)[None] - 2 * X @ W.T}',
        'return {"d": (torch.cdist(torch.from_numpy(X), torch.from_numpy(W), compute_mode="donot_use_mm_for_euclid_dist") ** 2).numpy()}']),
    ("convolution by transforms and by sums", "X=(64,) W=(17,)", [
        'return {"y": np.convolve(X, W)}', 'return {"y": np.fft.irfft(np.fft.rfft(X, 96) * np.fft.rfft(W, 96), 96)[:80].astype("float32")}',
        'return {"y": F.conv1d(torch.from_numpy(X)[None, None], torch.from_numpy(W[::-1].copy())[None, None], padding=16)[0, 0].numpy()}']),
    ("gradient of a batch, whole and in micro-batches", "X=(12, 6) W=(6, 3)", [
        'w = torch.from_numpy(W).requires_grad_()\n(torch.tanh(torch.from_numpy(X) @ w) ** 2).mean().backward()\nreturn {"g": w.grad.numpy()}',
        'w = torch.from_numpy(W).requires_grad_()\nfor part in torch.from_numpy(X).chunk(4):\n    ((torch.tanh(part @ w) ** 2).mean() / 4).backward()\nreturn {"g": w.grad.numpy()}',
        'w = paddle.to_tensor(W, stop_gradient=False)\n(paddle.tanh(paddle.to_tensor(X) @ w) ** 2).mean().backward()\nreturn {"g": w.grad.numpy()}',
        't = np.tanh(X @ W)\nreturn {"g": X.T @ (2 * t * (1 - t * t)) / np.float32(36)}']),
]  # fmt: skip


def forms(rng: Random) -> Program:
    """Known forms of one formula, fused and by hand."""
    name, shapes, sides = rng.choice(_FORMS)
    arrays = {key: eval(shape) for key, shape in _shapes(shapes)}  # our own table
    a, b = rng.sample(sides, 2)
    return rounding(name, data(rng, **arrays), a, b)


def _shapes(text: str) -> list[tuple[str, str]]:
    return [tuple(each.split("=")) for each in text.replace(", ", ",").split()]  # type: ignore[misc]


ROUNDING: list[Plant] = [
    chains,
    chains,
    chains,
    float64_reference,
    sums,
    products,
    products,
    associated,
    halves,
    forms,
    forms,
    forms,
    training,
    training,
    recurrent,
]


def _same(rng: Random) -> Program:
    width = rng.choice([3, 8, 17])
    one, _, arrays = chain(rng, rng.randint(1, 8), width)
    setup = data(rng, X=(rng.randint(1, 6), width), **arrays)
    side = body(pick(rng), one)
    return Program("equal", "one chain twice", setup, side, side)


_EQUAL: list[tuple[str, str]] = [
    ('torch.manual_seed({s})\nnet = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout({p}), torch.nn.Linear(8, 2))\nreturn {"y": net(torch.from_numpy(X)).detach().numpy()}', ""),
    ('paddle.seed({s})\nnet = paddle.nn.Linear(4, 3)\nreturn {"y": paddle.nn.functional.dropout(net(paddle.to_tensor(X)), {p}).numpy()}', ""),
    ('r = np.random.default_rng({s})\nreturn {"y": X[r.permutation(len(X))] + r.standard_normal(X.shape).astype("float32")}', ""),
    ('return {"y": X.reshape(-1)}', 'return {"y": torch.from_numpy(X).flatten().clone().numpy()}'),
    ('return {"y": np.maximum(X, 0)}', 'return {"y": paddle.nn.functional.relu(paddle.to_tensor(X)).numpy()}'),
    ('return {"y": X.T.copy() * 2}', 'x = torch.from_numpy(X)\nreturn {"y": (x + x).T.contiguous().numpy()}'),
    ('return {"i": np.argsort(X[:, 0], kind="stable"), "v": np.sort(X[:, 0])}', 'v, i = torch.sort(torch.from_numpy(X[:, 0].copy()), stable=True)\nreturn {"i": i.numpy(), "v": v.numpy()}'),
]  # fmt: skip


def _controls(rng: Random) -> Program:
    a, b = rng.choice(_EQUAL)
    for key, value in (("{s}", rng.randrange(99)), ("{p}", rng.choice([0.2, 0.5]))):
        a, b = a.replace(key, str(value)), b.replace(key, str(value))
    return Program("equal", "the same bits by another way", data(rng, X=(rng.randint(2, 8), 4)), a, b or a, wide=False)


EQUAL: list[Plant] = [_same, _controls]
