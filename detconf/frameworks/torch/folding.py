"""Arithmetic with constants that a rung for evaluation mode folds into weights: what is folded, and whether that changes bits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from detconf.frameworks.rungs import Operation, Settings, Survey
from detconf.frameworks.source import short
from detconf.frameworks.torch.inference import Inference, folding
from detconf.frameworks.torch.parting import agree, source_of

if TYPE_CHECKING:
    from detconf.frameworks.torch.ladder import Torch

_FOLDING = "folding"
_OFF = {"folding": "off"}
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_OWNER = re.compile(r"([^.]+)\((\w+)\)")
Folded = dict[str, str]
"""Operation -> its place in the program."""


def foldings(subject: Torch, rung: str, settings: Settings, found: Survey) -> None:
    """Note what is folded, where the rung gives other bits without that."""
    folded: Folded = {}
    if rung == "freezing":
        with folding(lambda plain: _Noting(plain, folded)):
            results = subject.once(rung, settings)
    else:
        results = subject.once(rung, settings)
        folded = _of_script(subject, settings)
    without = subject.once(rung, {**settings, **_OFF})
    if not folded or agree(results, without):
        return
    others = ("eager", "inductor" if rung == "freezing" else "script")
    same = next((name for name in others if agree(without, subject.once(name, {}))), "")
    found.shown.append(f"without folding {rung} gives {f'the bits of {same}' if same else 'other bits'}, and with it others")
    found.operations += [Operation(name, _FOLDING, _FOLDING, source) for name, source in folded.items()]


class _Noting:
    """Inductor's folding pass, watched: the operations that go are those that are folded, and what they are folded into."""

    def __init__(self, plain: Any, folded: Folded) -> None:
        self._plain, self._folded = plain, folded

    def apply(self, graph: Any) -> Any:
        before = list(graph.nodes)
        result = self._plain.apply(graph)
        left = set(graph.nodes)
        for node in before:
            if node not in left and torch.Tag.pointwise in getattr(node.target, "tags", ()):
                name = str(node.meta.get("original_aten") or node.target).removesuffix(".default")
                self._folded.setdefault(name, source_of(node))
        return result


def _of_script(subject: Torch, settings: Settings) -> Folded:
    """Operations that TorchScript's graph has without folding alone."""
    plain, folded = (_frozen(subject, {**settings, **off}) for off in (_OFF, {}))
    left = Counter(map(_key, _nodes(folded)))
    gone: Folded = {}
    for node in _nodes(plain):
        left[_key(node)] -= 1
        if left[_key(node)] < 0:
            gone.setdefault(node.kind(), _place(node))
    return gone


def _frozen(subject: Torch, settings: Settings) -> Any:
    made = subject.captured("optimize_for_inference", {**settings, "inference": "off"})[0]
    assert isinstance(made, Inference)  # noqa: S101  # what that rung makes
    return made.graph


def _nodes(module: Any) -> Iterator[Any]:
    yield from (node for node in module.graph.nodes() if node.kind().startswith("aten::"))


def _key(node: Any) -> tuple[str, str, str]:
    return node.kind(), node.sourceRange(), node.getModuleHierarchy()


def _place(node: Any) -> str:
    """ "model.py:12", or where the line is PyTorch's own the module: "encoder.norm, BatchNorm1d"."""
    own = [(file, line) for file, line in _PLACE.findall(node.sourceRange()) if not file.startswith(torch.__path__[0])]
    if own:
        return f"{short(own[-1][0])}:{own[-1][1]}"
    owners = [each for each in _OWNER.findall(node.getModuleHierarchy()) if not each[0].isupper()]  # SELF, UNKNOWN_INSTANCE
    return f"{'.'.join(name for name, _ in owners)}, {owners[-1][1]}" if owners else ""
