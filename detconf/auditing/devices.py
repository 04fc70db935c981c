"""What an audit here says nothing about: devices that this machine has not."""

from __future__ import annotations

from detconf import facts
from detconf.frameworks import frameworks
from detconf.lookup import is_imported
from detconf.values import Cause

_ACCELERATORS = frozenset({"cuda", "rocm"})
_OF_KERNELS = (Cause.EQUAL, Cause.ROUNDING, Cause.ILL_CONDITIONED, Cause.DTYPE)
"""Causes that other kernels may make others."""
_WORDS = (
    "GPU, DCU: none here, and their kernels may differ. Record on the device: detconf record --values --sources -o there.det -- CMD; "
    "audit the recording anywhere: detconf audit here.det there.det"
)


def unexamined(cause: Cause) -> list[str]:
    """Which kinds of device were not looked at, and how they can be; nothing where the cause lies in no kernel.

    Args:
        cause: of two sides that ran here.
    """
    drives = any(is_imported(each.module) for each in frameworks() if each.module and each.devices)
    if cause not in _OF_KERNELS or not drives or _ACCELERATORS & facts.gather().devices:
        return []
    return [_WORDS]
