"""Operations that every framework has, to stand before and after a planted one: each in one or more spellings of one formula."""

from __future__ import annotations

from random import Random

ANY = {
    "tanh": ["h = $.tanh(h)"],
    "sigmoid": ["h = 1 / (1 + $.exp(-h))", "e = $.exp(-h)\nh = 1 / (e + 1)"],
    "silu": ["h = h / (1 + $.exp(-h))", "h = h * (1 / (1 + $.exp(-h)))"],
    "scale": ["h = h * 0.7 + 0.1", "h = 0.1 + 0.7 * h"],
    "root": ["h = $.sqrt(h * h + 1)", "h = (h ** 2 + 1) ** 0.5"],
    "log": ["h = $.log(1 + $.abs(h))", "h = $.log1p($.abs(h))"],
    "sine": ["h = $.sin(h) + h", "h = h + $.sin(h)"],
    "cubic": ["h = h - h * h * h / 30", "h = h - h ** 3 / 30"],
}
LAST = {
    "softmax": [
        "e = $.exp(h - $.amax(h, AX=-1, KEEP=True))\nh = e / e.sum(AX=-1, KEEP=True)",
        "e = $.exp(h - $.amax(h, AX=-1, KEEP=True))\nh = e * (1 / e.sum(AX=-1, KEEP=True))",
    ],
    "layer_norm": [
        "m = h.mean(AX=-1, KEEP=True)\nv = ((h - m) ** 2).mean(AX=-1, KEEP=True)\nh = (h - m) / $.sqrt(v + 1e-3)",
        "d = h - h.mean(AX=-1, KEEP=True)\nh = d * (1 / $.sqrt((d * d).mean(AX=-1, KEEP=True) + 1e-3))",
    ],
    "rms_norm": ["h = h / $.sqrt((h * h).mean(AX=-1, KEEP=True) + 1e-3)"],
    "average": ["h = h - 0.5 * h.mean(AX=-1, KEEP=True)", "h = h - h.mean(AX=-1, KEEP=True) / 2"],
}
DENSE = {
    "linear": ["h = h @ K({w}) + K({b})", "h = $.matmul(h, K({w})) + K({b})", "h = K({b}) + h @ K({w})"],
    "residual": ["h = h + $.tanh(h @ K({w}) + K({b}))", "h = $.tanh($.matmul(h, K({w})) + K({b})) + h"],
}


def chain(
    rng: Random, length: int, width: int | None = None, prefix: str = ""
) -> tuple[list[str], list[str], dict[str, tuple[tuple[int, ...], float]]]:
    """A chain of `length` operations, spelt twice, and the arrays that it needs; dense layers only where `width` is known."""
    table = {**ANY, **LAST, **(DENSE if width else {})}
    one: list[str] = []
    other: list[str] = []
    arrays: dict[str, tuple[tuple[int, ...], float]] = {}
    for index in range(length):
        name = rng.choice([*table, *(("linear", "residual") if width else ())])
        own = {}
        if name in DENSE and width:
            own = {"w": f"{prefix}W{index}", "b": f"{prefix}B{index}"}
            arrays |= {own["w"]: ((width, width), width**-0.5), own["b"]: ((width,), 0.3)}
        spellings = [each.replace("{w}", own.get("w", "")).replace("{b}", own.get("b", "")) for each in table[name]]
        one.append(rng.choice(spellings))
        other.append(rng.choice(spellings))
    return one, other, arrays
