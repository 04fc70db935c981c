"""What this machine and these builds are, and what profiles can guarantee here; fit for a bug report, nothing private."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from detconf import __version__, facts
from detconf.access import Env
from detconf.errors import TargetError
from detconf.examination import PROFILES
from detconf.frameworks import catalogue, frameworks
from detconf.supervise import supervise
from detconf.values import Outcome, Printable

_SECONDS = 180.0
_FEATURES = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip
_PACKAGES = ("ml-dtypes", "numpy", "pydantic", "pyyaml", "threadpoolctl", "tomli", "wrapt", "xxhash")
_DRIVERS = ("nvidia-", "triton", "pytorch-triton", "mkl", "intel-openmp", "rocm-")
_AT_ANY_MOMENT = {str(outcome) for outcome in (Outcome.SET, Outcome.ALREADY, Outcome.OPEN, Outcome.PENDING)}


@dataclass(frozen=True)
class Guarantee:
    """What a profile can do here.

    Attributes:
        profile: its name.
        summary: what it promises where everything is in force.
        at_any_moment: rows that `apply` can put in force in a process that runs already.
        at_start: rows that only a process started with its variables gets.
        cannot: row -> why it cannot be put in force here.
        not_here: rows that govern what is not here.
        untried: rows that apply here and that this project has never tried on such a device.
    """

    profile: str
    summary: str
    at_any_moment: tuple[str, ...]
    at_start: tuple[str, ...]
    cannot: Mapping[str, str]
    not_here: tuple[str, ...]
    untried: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "profile": self.profile,
            "summary": self.summary,
            "at_any_moment": list(self.at_any_moment),
            "at_start": list(self.at_start),
            "cannot": dict(self.cannot),
            "not_here": list(self.not_here),
            "untried": list(self.untried),
        }


@dataclass(frozen=True)
class Diagnosis(Printable):
    """The doctor's result.

    Attributes:
        facts: this machine and interpreter.
        features: instruction sets of the processor that change bits.
        gpus: models, as the driver names them.
        packages: distribution -> version.
        variables: variables of the catalogue that are set.
        frameworks: name -> what its examination found.
        guarantees: one per profile.
        findings: what is wrong.
    """

    facts: dict[str, Any]
    features: tuple[str, ...]
    gpus: tuple[str, ...]
    packages: dict[str, str]
    variables: dict[str, str]
    frameworks: dict[str, dict[str, Any]] = field(default_factory=dict)
    guarantees: tuple[Guarantee, ...] = ()
    findings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "detconf.diagnosis/1",
            "detconf": __version__,
            "facts": self.facts,
            "cpu_features": list(self.features),
            "gpus": list(self.gpus),
            "packages": self.packages,
            "variables": self.variables,
            "frameworks": {
                name: {key: value for key, value in found.items() if key != "profiles"} for name, found in self.frameworks.items()
            },
            "guarantees": [each.to_dict() for each in self.guarantees],
            "findings": list(self.findings),
        }


def diagnose(*, imports: bool = True, seconds: float = _SECONDS) -> Diagnosis:
    """Look at everything; frameworks are imported in child processes, so that a crash is a finding.

    Args:
        imports: examine the installed frameworks. Without: versions as their packages state them, no guarantees.
        seconds: for one framework.
    """
    found: dict[str, dict[str, Any]] = {}
    findings = []
    for each in frameworks():
        if imports and each.module and facts.installed(each.module):
            result, problem = _examined(each.name, seconds)
            found |= {each.name: result} if result else {}
            findings += [f"{each.module} cannot be examined: {problem}"] if problem else []
    return Diagnosis(
        facts=facts.gather().to_dict(),
        features=_features(),
        gpus=tuple(_gpus()),
        packages=_packages(),
        variables=_variables(),
        frameworks=found,
        guarantees=tuple(_guarantee(profile, found) for profile in PROFILES) if found else (),
        findings=(*findings, *_objections()),
    )


def _examined(name: str, seconds: float) -> tuple[dict[str, Any], str]:
    """(what a child process found, what went wrong)."""
    with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
        file = os.path.join(folder, "found.json")
        try:
            ending = supervise([sys.executable, "-m", "detconf.examination", name, file], os.environ, folder, seconds)
        except TargetError as error:
            return {}, facts.shareable(str(error))
        if ending.reason:
            return {}, facts.shareable(": ".join([ending.reason, *ending.lines[-1:]]))
        with open(file, encoding="utf-8") as text:
            result: dict[str, Any] = json.load(text)
    return result, ""


def _guarantee(profile: str, found: Mapping[str, dict[str, Any]]) -> Guarantee:
    from detconf.profile import load

    rows: dict[str, dict[str, Any]] = {}
    for result in found.values():
        for row in result["profiles"][profile]:
            rows[row["knob"]] = max(rows.get(row["knob"], row), row, key=_weight)
    knobs = catalogue()
    here = {name: row for name, row in rows.items() if row["applies"]}
    return Guarantee(
        profile=profile,
        summary=load(profile).summary,
        at_any_moment=tuple(name for name, row in here.items() if row["outcome"] in _AT_ANY_MOMENT),
        at_start=tuple(name for name, row in here.items() if row["outcome"] == Outcome.TOO_LATE.value),
        cannot={name: facts.shareable(row["note"]) for name, row in here.items() if _weight(row) > 1},
        not_here=tuple(name for name in rows if name not in here),
        untried=tuple(name for name in here if name in knobs and not facts.TRIED & set(knobs[name].governs.split("|"))),
    )


def _weight(row: Mapping[str, Any]) -> int:
    """How bad a row is: settable at any moment, at the start, never. A library may be there in one process only."""
    if not row["applies"]:
        return -1
    return 0 if row["outcome"] in _AT_ANY_MOMENT else 1 if row["outcome"] == Outcome.TOO_LATE.value else 2


def _features() -> tuple[str, ...]:
    """Of the instruction sets by which libraries choose their kernels, those that the processor has."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() in ("flags", "Features"):
                flags = set(value.split())
                return tuple(name for name in _FEATURES if name in flags)
    return ()


def _gpus() -> Iterator[str]:
    """Models only: serial numbers stand in the same files."""
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError):
            yield from (
                line.partition(":")[2].strip() for line in file.read_text(errors="replace").splitlines() if line.startswith("Model:")
            )


def _packages() -> dict[str, str]:
    """Installed distributions that the frameworks and detconf are made of."""
    owners = metadata.packages_distributions()
    names = {dist for each in frameworks() if each.module for dist in owners.get(each.module, ())}
    found = {str(dist.metadata["Name"] or ""): dist.version for dist in metadata.distributions()}
    wanted = (name for name in found if name in names or name.lower().replace("_", "-") in _PACKAGES or name.lower().startswith(_DRIVERS))
    return {name: found[name] for name in sorted(wanted, key=str.lower)}


def _variables() -> dict[str, str]:
    """Variables of the catalogue, and detconf's own, as they are set here."""
    names: Iterable[str] = {knob.access.variable for knob in catalogue().values() if isinstance(knob.access, Env)}
    ours = {name for name in os.environ if name.startswith("DETCONF_")}
    return {name: facts.shareable(os.environ[name]) for name in sorted({*names, *ours}) if name in os.environ}


def _objections() -> Iterator[str]:
    """Variables whose value cannot work."""
    for knob in catalogue().values():
        value = os.environ.get(knob.access.variable) if isinstance(knob.access, Env) else None
        if value is not None and knob.objection(value):
            yield facts.shareable(f"{knob.name}: {knob.objection(value)}")
