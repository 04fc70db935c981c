"""Plants of `ill-conditioned`: one formula on both sides, of a problem that amplifies rounding."""

from __future__ import annotations

from random import Random

from programs.program import Plant, Program

_ILL: list[tuple[str, str, list[str]]] = [
    ("a nearly singular system", 'A = R.randn({n}, {n}).astype("float32")\nA[-1] = A[:-1].sum(0) + R.randn({n}).astype("float32") * 1e-4\nB = R.randn({n}).astype("float32")', [
        'return {"x": np.linalg.solve(A, B)}', 'return {"x": np.linalg.inv(A) @ B}', 'return {"x": torch.linalg.solve(torch.from_numpy(A), torch.from_numpy(B)).numpy()}',
        'return {"x": (torch.linalg.inv(torch.from_numpy(A)) @ torch.from_numpy(B)).numpy()}', 'return {"x": (paddle.inverse(paddle.to_tensor(A)) @ paddle.to_tensor(B)).numpy()}',
        'return {"x": paddle.linalg.solve(paddle.to_tensor(A), paddle.to_tensor(B)).numpy()}']),
    ("inverse of a Hilbert matrix", 'i = np.arange(1, 6)\nA = (1 / (i[:, None] + i[None] - 1) + R.rand(5, 5) * 1e-3).astype("float32")', [
        'return {"inverse": np.linalg.inv(A)}', 'return {"inverse": torch.linalg.inv(torch.from_numpy(A)).numpy()}', 'return {"inverse": paddle.inverse(paddle.to_tensor(A)).numpy()}',
        'return {"inverse": np.linalg.solve(A, np.eye(5, dtype="float32"))}']),
    ("variance of numbers far from zero", 'X = (R.randn({m}) + {big}).astype("float32")', [
        'return {"v": (X * X).mean() - X.mean() ** 2}', 'x = torch.from_numpy(X)\nreturn {"v": ((x * x).mean() - x.mean() ** 2).numpy()}',
        'x = paddle.to_tensor(X)\nreturn {"v": ((x * x).mean() - x.mean() ** 2).numpy()}', 'return {"v": np.dot(X, X) / np.float32({m}) - (X.sum() / np.float32({m})) ** 2}']),
    ("a chaotic recurrence", 'X = (R.rand(4) * 0.5 + 0.2).astype("float32")', [
        'x = X\nfor _ in range({k}):\n    x = 3.9 * x * (1 - x)\nreturn {"x": x}', 'x = X\nfor _ in range({k}):\n    x = 3.9 * (x - x * x)\nreturn {"x": x}',
        'x = torch.from_numpy(X)\nfor _ in range({k}):\n    x = 3.9 * x - 3.9 * x * x\nreturn {"x": x.numpy()}', 'x = paddle.to_tensor(X)\nfor _ in range({k}):\n    x = 3.9 * x * (1 - x)\nreturn {"x": x.numpy()}']),
    ("a difference of close means", 'X = (R.randn({m}) + {big}).astype("float32")\nW = (X * np.float32(1 + 1e-6) + R.randn({m}).astype("float32") * 1e-3).astype("float32")', [
        'return {"gap": X.mean() - W.mean()}', 'return {"gap": (torch.from_numpy(X).mean() - torch.from_numpy(W).mean()).numpy()}',
        'return {"gap": (paddle.to_tensor(X).mean() - paddle.to_tensor(W).mean()).numpy()}', 'return {"gap": X.reshape(-1, 4).sum(0).sum() / np.float32({m}) - W.reshape(-1, 4).sum(0).sum() / np.float32({m})}']),
    ("division by a tiny difference", 'X = (R.rand(12) + 1).astype("float32")\nW = (X + 2e-5 * (R.rand(12) + 1)).astype("float32")', [
        'return {"slope": 1 / (np.sqrt(W) - np.sqrt(X))}', 'return {"slope": (1 / (torch.sqrt(torch.from_numpy(W)) - torch.sqrt(torch.from_numpy(X)))).numpy()}',
        'return {"slope": (np.sqrt(W) + np.sqrt(X)) / (W - X)}', 'return {"slope": ((paddle.sqrt(paddle.to_tensor(W)) + paddle.sqrt(paddle.to_tensor(X))) / (paddle.to_tensor(W) - paddle.to_tensor(X))).numpy()}']),
    ("the smaller root of a quadratic", 'B = (R.rand(8) * 300 + 200).astype("float32")', [
        'return {"root": (-B + np.sqrt(B * B - 4)) / 2}', 'return {"root": -B / 2 + np.sqrt(B * B / 4 - 1)}', 'b = torch.from_numpy(B)\nreturn {"root": ((-b + (b ** 2 - 4).sqrt()) / 2).numpy()}',
        'b = torch.from_numpy(B)\nreturn {"root": (-b / 2 + torch.sqrt((b / 2 - 1) * (b / 2 + 1))).numpy()}']),
    ("an alternating series", 'X = (R.rand(3) * 3 + 10).astype("float32")', [
        't = s = np.ones_like(X)\nfor k in range(1, 60):\n    t = t * -X / k\n    s = s + t\nreturn {"s": s}', 't = s = torch.ones(3)\nfor k in range(1, 60):\n    t = t * (-torch.from_numpy(X) / k)\n    s = s + t\nreturn {"s": s.numpy()}',
        'p, t = [np.ones_like(X)], np.ones_like(X)\nfor k in range(1, 60):\n    t = t * -X / k\n    p.append(t)\nreturn {"s": np.stack(p[::-1]).sum(0)}']),
    ("a polynomial at its multiple root", 'X = (1 + (R.rand(10) - 0.5) * 0.05).astype("float32")', [
        'return {"y": X ** 5 - 5 * X ** 4 + 10 * X ** 3 - 10 * X ** 2 + 5 * X - 1}', 'return {"y": ((((X - 5) * X + 10) * X - 10) * X + 5) * X - 1}',
        'x = torch.from_numpy(X)\nreturn {"y": (x ** 5 - 5 * x ** 4 + 10 * x ** 3 - 10 * x ** 2 + 5 * x - 1).numpy()}']),
    ("a difference quotient", 'X = R.randn(9).astype("float32")\nH = np.full(9, {tiny}, "float32")', [
        'return {"d": (np.sin(X + H) - np.sin(X)) / H}', 'x, h = torch.from_numpy(X), torch.from_numpy(H)\nreturn {"d": ((torch.sin(x + h) - torch.sin(x)) / h).numpy()}',
        'x, h = paddle.to_tensor(X), paddle.to_tensor(H)\nreturn {"d": ((paddle.sin(x + h) - paddle.sin(x)) / h).numpy()}', 'return {"d": 2 * np.cos(X + H / 2) * np.sin(H / 2) / H + (np.sin(X + H) - np.sin(X)) * 0}']),
    ("a determinant near zero", 'A = R.randn(5, 5).astype("float32")\nA[2] = 2 * A[0] - A[3] + R.randn(5).astype("float32") * 3e-6', [
        'return {"det": np.linalg.det(A)}', 'return {"det": torch.linalg.det(torch.from_numpy(A)).numpy()}', 'return {"det": torch.linalg.det(torch.from_numpy(A).T.contiguous()).numpy()}',
        'return {"det": paddle.linalg.det(paddle.to_tensor(A)).numpy()}']),
    ("orbits of the Henon map", 'X = (R.rand(3, 2) * 0.2).astype("float32")', [
        'x, y = X[:, 0], X[:, 1]\nfor _ in range({k}):\n    x, y = 1 - 1.4 * x * x + y, 0.3 * x\nreturn {"x": x}', 'x, y = X[:, 0], X[:, 1]\nfor _ in range({k}):\n    x, y = y + 1 - 1.4 * x ** 2, 0.3 * x\nreturn {"x": x}',
        'x, y = torch.from_numpy(X).unbind(1)\nfor _ in range({k}):\n    x, y = 1 + (y - 1.4 * x * x), x * 0.3\nreturn {"x": x.numpy()}']),
]  # fmt: skip


def amplified(rng: Random) -> Program:
    """A problem that amplifies rounding, in two forms."""
    name, setup, sides = rng.choice(_ILL)
    fill = {
        "{n}": rng.randint(3, 9),
        "{m}": 4 * rng.randint(20, 200),
        "{big}": rng.choice([300, 1000, 2500]),
        "{k}": rng.randint(30, 40),
        "{tiny}": rng.choice([1e-5, 2e-5]),
    }
    a, b = rng.sample(sides, 2)
    for key, value in fill.items():
        setup, a, b = (text.replace(key, str(value)) for text in (setup, a, b))
    return Program("ill-conditioned", name, f"R = np.random.RandomState({rng.randrange(10**6)})\n{setup}", a, b)


ILL_CONDITIONED: list[Plant] = [amplified]
