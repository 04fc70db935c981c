"""What this process and machine are: the facts that a plan is made against and that a result carries.

Facts come from an allow-list: versions, processor, devices. No host name, user name, path or secret, so that a
result can be mailed.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

DEVICES = frozenset({"cpu", "x86", "cuda", "rocm"})
"""Kinds of device that a machine has or has not. Other words in a knob's `governs` (cinn) are parts of a build, of
which only the imported framework can tell."""

TRIED = frozenset({"cpu", "x86"})
"""Kinds of device on which rows of the catalogue have been tried; the others were taken from public documentation."""

RANKS = ("RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""Variables by which launchers tell a process its rank; the first that is set counts."""
WORLDS = ("WORLD_SIZE", "PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
"""Variables by which they tell it the number of ranks."""


@dataclass(frozen=True, slots=True)
class Facts:
    """This process and machine.

    Attributes:
        python: version of the interpreter.
        system: kernel name and machine architecture, such as "Linux x86_64".
        cpu: the processor's own name.
        vendor: "GenuineIntel", "AuthenticAMD", or empty where unknown.
        cores: processors that this process may run on.
        devices: what is here of cpu, x86, cuda, rocm. A driver counts, a toolkit does not.
        versions: version of each imported framework and numeric library.
    """

    python: str
    system: str
    cpu: str
    vendor: str
    cores: int
    devices: frozenset[str]
    versions: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "python": self.python,
            "system": self.system,
            "cpu": self.cpu,
            "cores": self.cores,
            "devices": sorted(self.devices),
            "versions": dict(self.versions),
        }


def gather() -> Facts:
    """The facts as they are now. Imports nothing and starts nothing."""
    name, vendor = _processor()
    machine = platform.machine()
    return Facts(
        python=platform.python_version(),
        system=f"{platform.system()} {machine}",
        cpu=name or machine,
        vendor=vendor,
        cores=_cores(),
        devices=_devices(machine),
        versions={name: version for name in ("numpy", "torch", "paddle") if (version := _version(name))},
    )


def _version(name: str) -> str:
    module = sys.modules.get(name)
    return str(getattr(module, "__version__", "")) if module else ""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _devices(machine: str) -> frozenset[str]:
    found = {"cpu"}
    if machine.lower() in ("x86_64", "amd64", "i686"):
        found.add("x86")
    if any(map(os.path.exists, ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"))):
        found.add("cuda")
    if os.path.exists("/dev/kfd"):
        found.add("rocm")
    return frozenset(found)


@lru_cache(maxsize=1)
def _processor() -> tuple[str, str]:
    name = vendor = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                name = name or (value.strip() if key.strip() == "model name" else "")
                vendor = vendor or (value.strip() if key.strip() == "vendor_id" else "")
                if name and vendor:
                    break
    except OSError:
        name = platform.processor()
    return name, vendor


def rank() -> int | None:
    """This process's rank, as its launcher told it."""
    return _number(RANKS)


def world_size() -> int | None:
    """How many ranks there are, as the launcher told it."""
    return _number(WORLDS)


def _number(variables: Sequence[str]) -> int | None:
    value = next((os.environ[name] for name in variables if os.environ.get(name)), "")
    return int(value) if value.isdecimal() else None


@lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """What the processor can do, in the words of /proc/cpuinfo; empty where there is none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            found = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return frozenset()
    return frozenset(found.partition(":")[2].split())


def installed(module: str) -> bool:
    """Could the top-level `module` be imported? Looks without importing it."""
    if module in sys.modules:
        return sys.modules[module] is not None
    return _findable(module, tuple(sys.path))


@lru_cache(maxsize=32)
def _findable(module: str, path: tuple[str, ...]) -> bool:  # noqa: ARG001  # another path may hold another answer
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


@lru_cache(maxsize=1)
def start_environ() -> Mapping[str, str]:
    """The environment that this process was started with, whatever has been assigned since.

    Linux keeps it in /proc/self/environ. Elsewhere it is what `os.environ` holds when detconf first asks, which is
    the best that can be had there.
    """
    try:
        with open("/proc/self/environ", "rb") as raw:
            pairs = (item.partition(b"=") for item in raw.read().split(b"\0") if item)
            return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}
    except OSError:
        return dict(os.environ)


def here() -> str:
    """The working directory; empty where it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


_PATH = re.compile(r"(?<![\w.:/~-])(?:/|[A-Za-z]:\\)(?:[^\s/\\'\",;:()]+[/\\])+([^\s/\\'\",;:()]*)")


def shareable(text: str) -> str:
    """`text` with paths cut to their last part, or to what follows the working directory: fit to be mailed."""
    if os.sep not in text:
        return text
    for folder in sorted({here(), os.path.expanduser("~"), sys.prefix, sys.base_prefix}, key=len, reverse=True):
        if len(folder) > 1:
            text = re.sub(rf"{re.escape(folder)}(?:({re.escape(os.sep)})|(?![\w.-]))", lambda found: "" if found[1] else "~", text)
    return _PATH.sub(r"\1", text)
