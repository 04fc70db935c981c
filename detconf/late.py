"""Tests of whether a knob's moment has passed."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from detconf.lookup import Missing, NotLoaded, mapped, resolve


class Late:
    """A test of whether a knob's moment has passed; its text completes "read when ..."."""

    def passed(self) -> bool:
        raise NotImplementedError


@dataclass(frozen=True)
class Started(Late):
    """Read by the interpreter at its start: always passed."""

    def passed(self) -> bool:
        return True

    def __str__(self) -> str:
        return "the interpreter starts"


@dataclass(frozen=True)
class Imported(Late):
    """Read while a module is imported."""

    module: str

    def passed(self) -> bool:
        return self.module in sys.modules

    def __str__(self) -> str:
        return f"{self.module} is imported"


@dataclass(frozen=True)
class Mapped(Late):
    """Read when a shared library is loaded: any file mapped into this process whose name starts so.

    Where there is no /proc, an imported module that is known to bring the library counts.
    """

    libraries: tuple[str, ...]
    brought_by: tuple[str, ...] = ("torch", "paddle", "numpy")

    def passed(self) -> bool:
        try:
            return next(mapped(self.libraries), "") != ""
        except OSError:
            return any(name in sys.modules for name in self.brought_by)

    def __str__(self) -> str:
        return f"{' or '.join(self.libraries)} is loaded"


@dataclass(frozen=True)
class Says(Late):
    """A framework's own answer, such as `torch.cuda.is_initialized`; not passed while it cannot be asked."""

    path: str

    def passed(self) -> bool:
        try:
            return bool(resolve(self.path)())
        except (NotLoaded, Missing):
            return False

    def __str__(self) -> str:
        return f"{self.path.replace(':', '.')}() becomes true"


@dataclass(frozen=True)
class Unknowable(Late):
    """Read at a first use that leaves no trace; only the read-back after writing shows whether it was in time."""

    when: str

    def passed(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.when
