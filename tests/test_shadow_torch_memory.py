"""Shadows are shared instead of copied where nobody writes to them any more: what was noted once must stay as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from detconf.frameworks.torch import shadow  # noqa: E402  # after the skip
from detconf.shadows.study import Study  # noqa: E402


def _rows() -> Any:
    x = torch.arange(12.0).reshape(3, 4) / 7
    y = x * 2
    whole = y.t().contiguous()
    y[1] = 0.5
    y[:, 2] += 1.0
    return (y @ whole).relu_()


def _reading() -> Any:
    x = torch.linspace(0, 1, 6).reshape(2, 3)
    total = x.t() @ x
    x += 1.0  # what was read through the view above
    x.t()[0] = 3.0
    total = total + x.t() @ x
    return total.mul_(2)


def _numbers() -> Any:
    x = torch.ones(4) / 3
    first = x.numpy()
    x[0] = 0.25
    return x * torch.from_numpy(first.copy())


def _resized() -> Any:
    x = torch.rand(2, 3, dtype=torch.complex64)
    y = x.conj() * 2
    y.real[0] = 1.0
    return torch.view_as_real(y).cumsum_(0)


@pytest.mark.parametrize("program", [_rows, _reading, _numbers, _resized])
@pytest.mark.parametrize("options", [{}, {"noise": 1}, {"local": True}])
def test_what_was_noted_is_not_written_again(program: Callable[[], Any], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shadow and every view that was read has at the end the bytes that it had when it was noted."""
    noted: list[tuple[Any, bytes]] = []
    plain = Study.operation

    def operation(self: Study, name: str, reads: Any, writes: Any, **kwargs: Any) -> Any:
        made = plain(self, name, reads, writes, **kwargs)
        arrays = [each.shadow for each in reads] + [value.shadow for value, _ in made]
        noted.extend((each, each.tobytes()) for each in arrays if each is not None)
        return made

    monkeypatch.setattr(Study, "operation", operation)
    torch.manual_seed(0)
    study = Study(**options)
    engine = shadow.start(study)
    study.engines.append(engine)
    try:
        result = program()
        known = study.known(result)
    finally:
        engine.end()
    assert not study.losses
    assert len(noted) > 5
    assert all(array.tobytes() == before for array, before in noted)
    assert not any(array.flags.writeable for value in study.values if (array := value.shadow) is not None)
    if not options:
        assert known is not None
        assert np.allclose(known.shadow, result.numpy(), rtol=1e-6, atol=1e-6)
