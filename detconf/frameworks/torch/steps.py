"""When an optimizer of torch has made a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detconf.lookup import loaded


def watch(callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback()` after each step of any optimizer. Returns what ends that."""

    def hook(*_: Any) -> None:
        callback()

    # A step inside a compiled function: Dynamo calls the hook and does not trace it. The decorator that says so would
    # import Dynamo (a second); this is the mark that it leaves.
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    ended: Callable[[], None] = loaded("torch.optim.optimizer").register_optimizer_step_post_hook(hook).remove
    return ended
