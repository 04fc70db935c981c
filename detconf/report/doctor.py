"""A diagnosis for a terminal, and for pasting into a bug report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from detconf import __version__
from detconf.doctor import Diagnosis, Guarantee
from detconf.report.text import table
from detconf.values import show


def diagnosis(result: Diagnosis, verbose: bool) -> str:
    """What is here, and what can be guaranteed with it."""
    return "\n\n".join(_parts(result, verbose))


def _parts(result: Diagnosis, verbose: bool) -> Iterator[str]:
    yield _machine(result)
    yield table(("package", "version"), result.packages.items())
    if result.variables:
        yield table(("variable", "value"), result.variables.items())
    for name, found in result.frameworks.items():
        yield f"{name} {found['version']}, imported in a process of its own; its build drives {', '.join(found['devices'])}"
        if found["pools"]:
            yield table(("pool", "library", "version", "threads", "kernels"), map(_pool, found["pools"]))
        if found["answers"]:
            yield table(("read from", "the library answers"), [(key, show(value)) for key, value in found["answers"].items()])
    yield from (_guarantee(each, verbose) for each in result.guarantees)
    if result.findings:
        yield "findings:\n" + "\n".join(f"  {line}" for line in result.findings)


def _machine(result: Diagnosis) -> str:
    known = result.facts
    rows = {
        "detconf": __version__,
        "python": known["python"],
        "system": known["system"],
        "processor": f"{known['cpu']}, {known['cores']} cores usable",
        "instruction sets": ", ".join(result.features) or "unknown",
        "devices": ", ".join((*known["devices"], *result.gpus)),
    }
    return "\n".join(f"{key.ljust(18)}{value}" for key, value in rows.items())


def _pool(pool: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("user_api", "prefix", "version", "num_threads", "architecture")
    return tuple(str(pool.get(key, "-")) for key in keys)


def _guarantee(found: Guarantee, verbose: bool) -> str:
    lines = [f"{found.profile}: {found.summary}", f"  at any moment  {len(found.at_any_moment)} settings: apply() is enough"]
    if found.at_start:
        lines.append(f"  at the start   {len(found.at_start)} settings: detconf run {found.profile} -- CMD")
        lines.append(f"                 {', '.join(found.at_start)}")
    lines += [f"  cannot         {name}: {why}" for name, why in found.cannot.items()]
    if found.untried:
        lines.append(f"  never tried    {len(found.untried)} settings, on such a device by this project: {', '.join(found.untried)}")
    lines.append(f"  not here       {len(found.not_here)} settings{': ' + ', '.join(found.not_here) if verbose else ''}")
    return "\n".join(lines)
