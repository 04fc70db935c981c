"""Plants of `semantics`: the two sides compute different formulas."""

from __future__ import annotations

from random import Random

from programs.chains import ANY, LAST, chain
from programs.program import Plant, Program, body, data, pick

_MEAN, _VAR = "m = h.mean(AX=-1, KEEP=True)", "v = ((h - m) ** 2).mean(AX=-1, KEEP=True)"
_EXP = "e = $.exp(h - $.amax(h, AX=-1, KEEP=True))\n"
_KEEPING: list[tuple[str, str, str]] = [
    ("epsilon inside or outside the root", f"{_MEAN}\n{_VAR}\nh = (h - m) / $.sqrt(v + 1e-2)", f"{_MEAN}\n{_VAR}\nh = (h - m) / ($.sqrt(v) + 1e-2)"),
    ("epsilon", f"{_MEAN}\n{_VAR}\nh = (h - m) / $.sqrt(v + 1e-3)", f"{_MEAN}\n{_VAR}\nh = (h - m) / $.sqrt(v + 1e-5)"),
    ("n or n-1", f"{_MEAN}\nh = (h - m) / $.sqrt(((h - m) ** 2).sum(AX=-1, KEEP=True) / (h.shape[-1] - 1))", f"{_MEAN}\nh = (h - m) / $.sqrt(((h - m) ** 2).sum(AX=-1, KEEP=True) / h.shape[-1])"),
    ("leaky slope", "h = $.where(h > 0, h, 0.01 * h)", "h = $.where(h > 0, h, 0.2 * h)"),
    ("gelu by sigmoid or tanh", "h = 0.5 * h * (1 + $.tanh(0.7978845608 * (h + 0.044715 * h ** 3)))", "h = h / (1 + $.exp(-1.702 * h))"),
    ("hard or soft sigmoid", "h = 1 / (1 + $.exp(-h))", "h = $.clip(h / 6 + 0.5, 0, 1)"),
    ("hard swish or silu", "h = h / (1 + $.exp(-h))", "h = h * $.clip(h / 6 + 0.5, 0, 1)"),
    ("clamped or not", "h = $.clip(h, -0.5, 0.5)", "h = h * 1.0"),
    ("capped rectifier", "h = $.clip(h, 0, 1)", "h = $.where(h > 0, h, 0 * h)"),
    ("axis of softmax", f"{_EXP}h = e / e.sum(AX=-1, KEEP=True)", "e = $.exp(h - $.amax(h, AX=0, KEEP=True))\nh = e / e.sum(AX=0, KEEP=True)"),
    ("axis of normalisation", "h = h - h.mean(AX=-1, KEEP=True)", "h = h - h.mean(AX=0, KEEP=True)"),
    ("base of a logarithm", "h = $.log($.abs(h) + 1)", "h = $.log2($.abs(h) + 1)"),
    ("degrees or radians", "h = $.sin(h)", "h = $.sin(h * 3.14159265 / 180)"),
    ("temperature", f"h = h / 2.0\n{_EXP}h = e / e.sum(AX=-1, KEEP=True)", f"{_EXP}h = e / e.sum(AX=-1, KEEP=True)"),
    ("1-norm or 2-norm", "h = h / $.sqrt((h * h).sum(AX=-1, KEEP=True))", "h = h / $.abs(h).sum(AX=-1, KEEP=True)"),
    ("missing residual", "h = h + $.tanh(h)", "h = $.tanh(h)"),
    ("missing scale", "h = h / h.shape[-1] ** 0.5", "h = h * 1.0"),
    ("floor or truncation", "h = h - $.floor(h)", "h = h - $.trunc(h)"),
    ("centred or not before the norm", f"{_MEAN}\nh = (h - m) / $.sqrt(((h - m) ** 2).mean(AX=-1, KEEP=True) + 1e-3)", "h = h / $.sqrt((h * h).mean(AX=-1, KEEP=True) + 1e-3)"),
    ("activation before or after the norm", f"h = $.tanh(h)\n{_MEAN}\nh = h - m", f"{_MEAN}\nh = $.tanh(h - m)"),
    ("squared or absolute", "h = h * h", "h = $.abs(h)"),
    ("inclusive or exclusive cumulative sum", "h = $.cumsum(h, -1)", "h = $.cumsum(h, -1) - h"),
    ("square root forgotten", "h = h / $.sqrt((h * h).mean(AX=-1, KEEP=True) + 1)", "h = h / ((h * h).mean(AX=-1, KEEP=True) + 1)"),
    ("softplus or its threshold", "h = $.log(1 + $.exp(h))", "h = $.where(h > 1, h, $.log(1 + $.exp(h)))"),
    ("sign of a shift", "h = h - 0.25", "h = h + 0.25"),
    ("bias missing", "h = h + K(P)", "h = h + 0 * K(P)"),
    ("gain as (1 + g) or g", "h = h * (1 + K(P))", "h = h * K(P)"),
    ("momentum convention of an average", "h = 0.9 * h + 0.1 * K(P)", "h = 0.1 * h + 0.9 * K(P)"),
    ("weights normalised or not", "h = h * (K(P) / $.abs(K(P)).sum())", "h = h * K(P)"),
]  # fmt: skip
_ENDING: list[tuple[str, str, str]] = [
    ("mean or sum", "h = h.mean(AX=-1)", "h = h.sum(AX=-1)"),
    ("largest or mean", "h = $.amax(h, AX=-1)", "h = h.mean(AX=-1)"),
    ("off-by-one slice", "h = h[..., 1:]", "h = h[..., :-1]"),
    ("mean over too many", "h = h[..., :-1].mean(AX=-1)", "h = h[..., :-1].sum(AX=-1) / h.shape[-1]"),
    ("every second from 0 or from 1", "h = h[..., ::2][..., :2]", "h = h[..., 1::2][..., :2]"),
    ("mean loss by row or by element", "h = ((h - K(P)) ** 2).sum(AX=-1).mean()", "h = ((h - K(P)) ** 2).mean()"),
    ("huber threshold", "d = $.abs(h - K(P))\nh = $.where(d < 1, d * d / 2, d - 0.5)", "d = $.abs(h - K(P))\nh = $.where(d < 0.5, d * d / 2, 0.5 * (d - 0.25))"),
    ("label smoothing", f"{_EXP}h = -$.log(e / e.sum(AX=-1, KEEP=True))[..., 0]", f"{_EXP}l = -$.log(e / e.sum(AX=-1, KEEP=True))\nh = 0.9 * l[..., 0] + 0.1 * l.mean(AX=-1)"),
    ("last or mean of a sequence", "h = h[:, -1]", "h = h.mean(AX=1)"),
    ("discount", "h = (h * K(P)).sum(AX=-1)", "h = (h * K(P) ** 2).sum(AX=-1)"),
]  # fmt: skip


def neutral(rng: Random) -> Program:
    """A step of a chain is another formula on one side; the frameworks are any."""
    keeps = rng.random() < 0.7
    name, right, wrong = rng.choice(_KEEPING if keeps else _ENDING)
    width = rng.choice([4, 7, 12])
    before, before2, arrays = chain(rng, rng.randint(0, 4), width)
    after, after2, more = chain(rng, rng.randint(0, 3), width, "L") if keeps else ([], [], {})
    setup = data(rng, X=((rng.randint(3, 6), width), rng.choice([0.3, 1.0])), P=(width,), **arrays, **more)
    one, other = pick(rng), pick(rng)
    right_side = body(one, [*before, right, *after])
    return Program("semantics", name, setup, right_side, body(other, [*before2, wrong, *after2]), body(other, [*before2, right, *after2]))


_LAYERS: list[tuple[str, str, str, str, str]] = [
    # name, shapes, the call with {o}, right options, wrong options
    ("average pooling counts its padding", "X=(1, 2, 7, 7)", "F.avg_pool2d(x, 3, 2, 1, {o})", "count_include_pad=True", "count_include_pad=False"),
    ("ceil_mode", "X=(1, 2, 6, 6)", "F.max_pool2d(x, 3, 2, ceil_mode={o})[:, :, :2, :2] * F.max_pool2d(x, 3, 2, ceil_mode={o}).mean()", "False", "True"),
    ("align_corners", "X=(1, 2, 5, 5)", 'F.interpolate(x, scale_factor=2, mode="bilinear", align_corners={o})', "False", "True"),
    ("nearest or bilinear", "X=(1, 2, 5, 5)", "F.interpolate(x, size=(8, 8), mode={o})", '"nearest"', '"bilinear"'),
    ("bicubic or bilinear", "X=(1, 2, 6, 6)", "F.interpolate(x, size=(9, 9), mode={o})", '"bicubic"', '"bilinear"'),
    ("padding mode", "X=(1, 2, 6, 6)", 'F.pad(x, (1, 2, 1, 2), mode="{o}").cumsum(-1)', "reflect", "replicate"),
    ("dilation", "X=(1, 2, 9, 9) W=(3, 2, 3, 3)", "F.conv2d(x, w, padding={o}, dilation={o})", "1", "2"),
    ("stride with cropping", "X=(1, 2, 9, 9) W=(3, 2, 3, 3)", "F.conv2d(x, w, stride={o})[..., :3, :3]", "1", "2"),
    ("convolution bias", "X=(1, 2, 6, 6) W=(3, 2, 3, 3) B=(3,)", "F.conv2d(x, w{o})", ", bias=b", ""),
    ("groups of a convolution", "X=(2, 4, 6) W=(4, 2, 3)", "F.group_norm(F.conv1d(x, w, groups=2), {o})", "2", "4"),
    ("gelu by tanh or erf", "X=(6, 9)", 'F.gelu(x * 2, approximate="{o}")', "none", "tanh"),
    ("leaky slope of a layer", "X=(6, 9)", "F.leaky_relu(x, {o})", "0.01", "0.2"),
    ("elu or celu", "X=(6, 9)", "F.{o}(x, 0.5)", "elu", "celu"),
    ("softplus threshold", "X=(6, 9)", "F.softplus(3 * x, 1, {o})", "20", "2"),
    ("layer norm epsilon", "X=(5, 12)", "F.layer_norm(x * 0.1, (12,), eps={o})", "1e-5", "1e-3"),
    ("instance norm or layer norm", "X=(3, 4, 10)", "F.group_norm(x, {o})", "4", "1"),
    ("batch statistics or given ones", "X=(6, 5) B=(5,)", "F.batch_norm(x, b.clone(), b * b + 1, training={o})", "True", "False"),
    ("causal mask missing", "X=(1, 2, 6, 4)", "F.scaled_dot_product_attention(x, x, x, is_causal={o})", "True", "False"),
    ("scale of attention", "X=(1, 2, 6, 4)", "F.scaled_dot_product_attention(x, x.flip(-1), x, scale={o})", "None", "1.0"),
    ("reduction of a loss", "X=(5, 6) B=(6,)", 'F.mse_loss(x, b.expand(5, 6), reduction="{o}")', "mean", "sum"),
    ("reduction of a divergence", "X=(5, 6) B=(6,)", 'F.kl_div(x.log_softmax(-1), b.softmax(-1).expand(5, 6), reduction="{o}")', "batchmean", "mean"),
    ("label smoothing of a layer", "X=(5, 6)", "F.cross_entropy(x, torch.arange(5), label_smoothing={o})", "0.0", "0.1"),
    ("class weights of a loss", "X=(5, 6) B=(6,)", "F.cross_entropy(x, torch.arange(5){o})", ", weight=b.abs()", ""),
    ("beta of smooth L1", "X=(5, 6) B=(6,)", "F.smooth_l1_loss(x, b.expand(5, 6), beta={o})", "1.0", "0.1"),
    ("correction of a deviation", "X=(5, 6)", "x.std(0, correction={o})", "1", "0"),
    ("axis of a softmax layer", "X=(5, 5)", "F.softmax(x, {o})", "-1", "0"),
    ("order of a norm", "X=(5, 8)", "F.normalize(x, p={o})", "2", "1"),
    ("lower or upper quantile", "X=(5, 8)", 'torch.quantile(x, 0.3, dim=1, interpolation="{o}")', "linear", "lower"),
    ("fmod or remainder", "X=(5, 8)", "torch.{o}(x, 0.7)", "remainder", "fmod"),
    ("grid of sampling", "X=(1, 2, 5, 5)", "F.grid_sample(x, F.affine_grid(torch.tensor([[[1., .2, 0.], [0., 1., .1]]]).to(x.dtype), (1, 2, 4, 4), align_corners=False), align_corners={o})", "False", "True"),
    ("power of local pooling", "X=(1, 2, 8)", "F.lp_pool1d(x.abs(), {o}, 2)", "2", "1"),
    ("rounded half to even or up", "X=(6, 7)", "torch.{o}", "round(x * 4) / 4", "floor(x * 4 + 0.1) / 4"),
    ("median or mean", "X=(5, 7)", "torch.{o}(x, 1)", "mean", "logsumexp"),
]  # fmt: skip
_PADDLE = (
    "average pooling",
    "ceil_mode",
    "align_corners",
    "nearest",
    "dilation",
    "stride",
    "convolution bias",
    "leaky slope",
    "order of a norm",
    "axis of a softmax",
)


def layer(rng: Random) -> Program:
    """One option of a layer, within a torch program or (some) from torch to paddle."""
    name, shapes, call, right, wrong = rng.choice(_LAYERS)
    arrays = {key: eval(shape) for key, shape in (each.split("=") for each in shapes.replace(", ", ",").split())}
    before, after = rng.choice(list(ANY.values()))[0], rng.choice([*ANY.values(), ["h = h * 1.5"]])[0]
    names = [key for key in arrays if key != "X"]

    def side(option: str, framework: str) -> str:
        text = call.replace("{o}", option)
        loads = "\n".join(f"{key.lower()} = K({key})" for key in names)
        if framework == "paddle":
            text = (
                text.replace("F.", "PF.")
                .replace("count_include_pad=True", "exclusive=False")
                .replace("count_include_pad=False", "exclusive=True")
            )
        return body(framework, [before, loads, "x = h", f"h = {text}", after])

    cross = name.startswith(_PADDLE) and rng.random() < 0.6
    other = "paddle" if cross else "torch"
    return Program("semantics", name, data(rng, **arrays), side(right, "torch"), side(wrong, other), side(right, other))


_TRAINER = """
def train(opt_of, steps={steps}, clip=None, scale=1.0, parts=1, reduce="mean", first=False, ema=None):
    net = torch.nn.Sequential(torch.nn.Linear({i}, {h}), torch.nn.Tanh(), torch.nn.Linear({h}, 1))
    with torch.no_grad():
        for p, a in zip(net.parameters(), (W, B, V, C)):
            p.copy_(torch.from_numpy(a))
    opt = opt_of(net.parameters())
    average = [p.detach().clone() for p in net.parameters()]
    for _ in range(steps):
        opt.zero_grad()
        for x, y in zip(torch.from_numpy(X).chunk(parts), torch.from_numpy(Y).chunk(parts)):
            loss = getattr((net(x) - y) ** 2, reduce)() * scale
            loss.backward()
        if clip == "norm":
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        if clip == "value":
            torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)
        opt.step()
        if ema is not None:
            average = [ema * a + (1 - ema) * p.detach() for a, p in zip(average, net.parameters())]
    kept = average if ema is not None else [p.detach() for p in net.parameters()]
    return {{"w": kept[0].numpy(), "v": kept[2].numpy()}}
"""
_TRAININGS: list[tuple[str, str, str]] = [
    ("decay of weights, decoupled or not", "lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1)", "lambda p: torch.optim.Adam(p, lr=0.02, weight_decay=0.1)"),
    ("nesterov", "lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True)", "lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)"),
    ("dampening", "lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.9)", "lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)"),
    ("epsilon of an optimizer", "lambda p: torch.optim.Adam(p, lr=0.02, eps=1e-8)", "lambda p: torch.optim.Adam(p, lr=0.02, eps=1e-3)"),
    ("beta2", "lambda p: torch.optim.Adam(p, lr=0.02)", "lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.9, 0.95))"),
    ("learning rate", "lambda p: torch.optim.SGD(p, lr=0.1)", "lambda p: torch.optim.SGD(p, lr=0.09)"),
    ("decay where none was", "lambda p: torch.optim.SGD(p, lr=0.1)", "lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.05)"),
    ("clip by norm or by value", "lambda p: torch.optim.SGD(p, lr=0.1), clip='norm'", "lambda p: torch.optim.SGD(p, lr=0.1), clip='value'"),
    ("accumulated gradients not scaled", "lambda p: torch.optim.SGD(p, lr=0.1), parts=2, scale=0.5", "lambda p: torch.optim.SGD(p, lr=0.1), parts=2"),
    ("loss summed or averaged", "lambda p: torch.optim.SGD(p, lr=0.05)", "lambda p: torch.optim.SGD(p, lr=0.05), reduce='sum'"),
    ("one step too few", "lambda p: torch.optim.Adam(p, lr=0.02), steps={s}", "lambda p: torch.optim.Adam(p, lr=0.02), steps={s} + 1"),
    ("order of an average's decay", "lambda p: torch.optim.SGD(p, lr=0.1), ema=0.9", "lambda p: torch.optim.SGD(p, lr=0.1), ema=0.1"),
    ("alpha of RMSprop", "lambda p: torch.optim.RMSprop(p, lr=0.01)", "lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9)"),
    ("centred RMSprop", "lambda p: torch.optim.RMSprop(p, lr=0.01)", "lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True)"),
    ("NAdam or Adam", "lambda p: torch.optim.NAdam(p, lr=0.02)", "lambda p: torch.optim.Adam(p, lr=0.02)"),
]  # fmt: skip


def training(rng: Random) -> Program:
    """A short training with another optimizer or loop."""
    name, right, wrong = rng.choice(_TRAININGS)
    i, h, rows, steps = rng.randint(2, 6), rng.choice([3, 8]), 2 * rng.randint(3, 8), rng.randint(2, 8)
    setup = data(rng, X=(rows, i), Y=(rows, 1), W=((h, i), i**-0.5), B=(h,), V=((1, h), h**-0.5), C=(1,))
    right, wrong = right.replace("{s}", str(steps)), wrong.replace("{s}", str(steps))
    return Program(
        "semantics",
        name,
        f"{setup}\n{_TRAINER.format(i=i, h=h, steps=steps)}",
        f"return train({right})",
        f"return train({wrong})",
        f"return train({right})",
    )


_BY_HAND = """
def adam(correct=True, decoupled=True, square="g * g", steps={steps}):
    w, m, v = W.copy(), np.zeros_like(W), np.zeros_like(W)
    for t in range(1, steps + 1):
        r = X @ w - Y
        g = 2 * X.T @ r / np.float32(r.size)
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        mh, vh = (m / (1 - 0.9 ** t), v / (1 - 0.99 ** t)) if correct else (m, v)
        w = w - 0.05 * mh / (np.sqrt(vh) + 1e-6)
    return {{"w": w}}

def by_layers():
    w = torch.from_numpy(W.copy()).requires_grad_()
    opt = torch.optim.Adam([w], lr=0.05, betas=(0.9, 0.99), eps=1e-6)
    for _ in range({steps}):
        opt.zero_grad()
        ((torch.from_numpy(X) @ w - torch.from_numpy(Y)) ** 2).mean().backward()
        opt.step()
    return {{"w": w.detach().numpy().copy()}}
"""


def by_hand(rng: Random) -> Program:
    """Adam without bias correction, by hand, against the layer or itself."""
    setup = data(rng, X=(rng.randint(4, 12), 5), Y=(1, 2), W=(5, 2)) + "\n" + _BY_HAND.format(steps=rng.randint(1, 6))
    setup = setup.replace("Y = (R.randn(1, 2)).astype", "Y = (R.randn(len(X), 2)).astype")
    right = rng.choice(["return adam()", "return by_layers()"])
    return Program("semantics", "bias correction missing", setup, right, "return adam(correct=False)", "return adam()")


SEMANTICS: list[Plant] = [neutral, neutral, neutral, layer, layer, training, by_hand]
assert not set(ANY) & set(LAST)  # one table is made of both
