"""Three training steps that recorders are measured and checked on: a transformer, a CNN and a small MLP.

`training(name)` gives a function that makes one step and returns the loss. Small configurations are for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

NAMES = ("transformer", "cnn", "mlp")


class Transformer(nn.Module):
    """A decoder-like language model: embedding, encoder layers with a causal mask, and a head."""

    def __init__(self, words: int, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)
        self.register_buffer("mask", torch.triu(torch.full((length, length), float("-inf")), 1))

    def forward(self, tokens: Any) -> Any:
        return self.head(self.norm(self.layers(self.embedding(tokens) + self.position, mask=self.mask)))


def _transformer(small: bool) -> tuple[nn.Module, Any, Any]:
    words, layers, width, batch, length = (50, 2, 32, 2, 16) if small else (1000, 4, 256, 8, 128)
    model = Transformer(words, layers, width, 4, length)
    tokens = torch.randint(0, words, (batch, length + 1))
    return model, tokens[:, :-1], tokens[:, 1:]


def _cnn(small: bool) -> tuple[nn.Module, Any, Any]:
    width, batch, size = (8, 4, 8) if small else (32, 32, 32)
    blocks: list[nn.Module] = []
    for index in range(4):
        channels = 3 if index == 0 else width
        blocks += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return model, torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))


def _mlp(small: bool) -> tuple[nn.Module, Any, Any]:
    inside, batch = (32, 8) if small else (784, 64)
    hidden = 32 if small else 256
    model = nn.Sequential(nn.Linear(inside, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    return model, torch.randn(batch, inside), torch.randint(0, 10, (batch,))


_MAKERS = {"transformer": _transformer, "cnn": _cnn, "mlp": _mlp}


def training(name: str, *, small: bool = False, seed: int = 0, **optimizer: Any) -> tuple[Callable[[], Any], nn.Module]:
    """(a function that makes one AdamW step and returns the loss, the model).

    Args:
        name: of `NAMES`.
        small: a configuration for tests, of the same operations.
        seed: of weights and data.
        optimizer: arguments of AdamW, such as `fused=True`.
    """
    torch.manual_seed(seed)
    model, inputs, labels = _MAKERS[name](small)
    adam = torch.optim.AdamW(model.parameters(), **({"lr": 1e-6} | optimizer))

    def step() -> Any:
        adam.zero_grad()
        output = model(inputs)
        loss = functional.cross_entropy(output.flatten(0, -2), labels.flatten())
        loss.backward()
        adam.step()
        return loss

    return step, model
