"""A profile by name or path, its parents merged in.

The built-in profiles are plain data (`builtin`), so that applying one loads neither pydantic nor yaml: together they
cost more than everything else that `apply` does. Whatever comes from a file or an override goes through `documents`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detconf.access import Env
from detconf.builtin import POLICIES, PROFILES
from detconf.errors import ProfileError
from detconf.frameworks import catalogue
from detconf.lines import Written, checked
from detconf.values import Value, plain, suggest

if TYPE_CHECKING:
    from detconf.documents import Local

CHAIN_LIMIT = 16
_SOURCES = ("detconf.yaml", "pyproject.toml")
# As a key, or part of one: "detconf" in a list of dependencies is no definition.
_DEFINES = re.compile(rb"""tool\s*\.\s*["']?detconf|detconf["']?\s*(\.|=(?!=))""")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a profile: its value and where it stands."""

    value: Value
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A validated profile, its parents merged in.

    Attributes:
        name: its name.
        summary: one sentence.
        parents: names it extends, nearest first.
        policies: policy (nested ones joined by a dot; `seed` among them) -> line.
        knobs: knob -> line.
    """

    name: str
    summary: str
    parents: tuple[str, ...]
    policies: Mapping[str, Line]
    knobs: Mapping[str, Line]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "detconf.profile/1",
            "name": self.name,
            "summary": self.summary,
            "parents": list(self.parents),
            "policies": _rows(self.policies),
            "knobs": _rows(self.knobs),
        }

    def with_seed(self, seed: int, source: str) -> Profile:
        """This profile with every generator seeded by `seed`.

        Raises:
            ProfileError: not an integer from 0 to 4294967295 (what NumPy's global generator takes).
        """
        if type(seed) is not int or not 0 <= seed <= 4294967295:
            msg = f"seed: {seed!r} is not accepted ({source}). Accepted: an integer from 0 to 4294967295."
            raise ProfileError(msg)
        return replace(self, policies={**self.policies, "seed": Line(seed, source)})

    def with_lines(self, lines: Mapping[str, Value], source: str) -> Profile:
        """This profile with exact values for knobs or policies (`{"tf32": False, "env.MKL_CBWR": "AUTO"}`).

        Raises:
            ProfileError: an unknown name, or a value that the knob or policy cannot take.
        """
        policies, knobs = dict(self.policies), dict(self.knobs)
        for name, value in lines.items():
            if name in POLICIES:
                from detconf import documents

                policies.update(_sourced(documents.policy(name, value, source), source))
            else:
                knobs[name] = Line(checked(name, value, source), source)
        return replace(self, policies=policies, knobs=knobs)


def _rows(lines: Mapping[str, Line]) -> dict[str, Any]:
    return {name: {"value": plain(line.value), "source": line.source} for name, line in lines.items()}


def _sourced(values: Mapping[str, Value], source: str) -> dict[str, Line]:
    return {name: Line(value, source) for name, value in values.items()}


def builtin_names() -> tuple[str, ...]:
    """Names of the built-in profiles."""
    return tuple(PROFILES)


def load(name: str, *, folder: Path | None = None) -> Profile:
    """The profile `name`: a path (it has a separator or ends in .yaml or .yml), a name defined in ./detconf.yaml or
    in [tool.detconf.profiles] of ./pyproject.toml, the same in another folder ("FOLDER/detconf.yaml:NAME"), or a
    built-in one.

    Raises:
        ProfileError: not found, not valid, or its parents form a cycle.
    """
    if not isinstance(name, (str, os.PathLike)) or not os.fspath(name):  # type: ignore[redundant-expr]  # callers are not all typed
        msg = f"a profile is a name or a path, not {name!r}. Built in: {', '.join(builtin_names())}."
        raise ProfileError(msg)
    return _load(os.fspath(name), folder or Path(), ())


def _load(name: str, folder: Path, chain: tuple[str, ...]) -> Profile:
    written, source, key, base = _find(name, folder)
    if key in chain or len(chain) >= CHAIN_LIMIT:
        msg = f"{source}: profiles extend each other in a circle: {' -> '.join([*map(_short, chain), _short(key)])}. Remove one `extends`."
        raise ProfileError(msg)
    parent = _load(written.extends, base, (*chain, key)) if written.extends is not None else None
    own = f"profile {written.name}"
    return Profile(
        name=written.name,
        summary=written.summary or (parent.summary if parent else ""),
        parents=(parent.name, *parent.parents) if parent else (),
        policies={**(parent.policies if parent else {}), **_sourced(written.policies, own)},
        knobs={**(parent.knobs if parent else {}), **_sourced(written.knobs, own)},
    )


def _short(key: str) -> str:
    return os.path.basename(key) if os.sep in key else key


def portable(name: str) -> str:
    """`name` as it can be found from any working folder."""
    if _is_path(name):
        return os.path.abspath(name)
    defined = (each.source.removesuffix(" [tool.detconf]") for each in _local(Path()) if name in each.body)
    return next((f"{os.path.abspath(file)}:{name}" for file in defined), name)


def _is_path(name: str) -> bool:
    return os.sep in name or name.endswith((".yaml", ".yml")) or bool(os.altsep and os.altsep in name)


def _find(name: str, folder: Path) -> tuple[Written, str, str, Path]:
    """(the profile, its source for messages, its identity, the folder its own `extends` is relative to)."""
    file, _, inner = name.rpartition(":")
    if os.path.basename(file) in _SOURCES:
        return _find(inner, folder / os.path.dirname(file))
    if _is_path(name):
        from detconf import documents

        path = folder / name
        written = documents.parse(documents.read(path), str(path))
        _refuse_builtin(written.name, str(path))
        return written, str(path), str(path.resolve()), path.parent
    defined = _local(folder)
    for each in defined:
        if name in each.body:
            _refuse_builtin(name, each.source)
            return each.written(name), each.source, f"{each.source}:{name}", folder
    if name in PROFILES:
        return Written(name, **PROFILES[name]), f"{name} (built in)", name, folder
    known = [*builtin_names(), *(key for each in defined for key in each.body)]
    msg = f"unknown profile {name!r}.{suggest(name, known)} A path needs a separator or the ending .yaml."
    raise ProfileError(msg)


def _refuse_builtin(name: str, source: str) -> None:
    if name in PROFILES:
        msg = (
            f"{source}: {name!r} is the name of a built-in profile and cannot be redefined. Choose another name and say `extends: {name}`."
        )
        raise ProfileError(msg)


def _local(folder: Path) -> list[Local]:
    """What the files of this folder define; none of the parsers is loaded where they define nothing."""
    if not os.path.isfile(folder / "detconf.yaml") and not _mentions(folder / "pyproject.toml"):
        return []
    from detconf import documents

    return list(documents.local(folder))


def _mentions(path: Path) -> bool:
    try:
        return bool(_DEFINES.search(path.read_bytes()))
    except OSError:
        return path.is_file()  # unreadable: the parser says so


def available(folder: Path | None = None) -> list[tuple[str, str, str]]:
    """(name, where it is defined, summary) of every profile that can be named here."""
    rows = [(name, "built in", load(name).summary) for name in builtin_names()]
    return rows + [(name, each.source, each.summary(name)) for each in _local(folder or Path()) for name in each.body]


def parse_assignments(text: str, source: str) -> dict[str, Value]:
    """`"knob=value;knob=value"` as name -> value. Values are YAML scalars: `true`, `4`, `"4"`; for a variable, text as it stands.

    Raises:
        ProfileError: an item without `=`, or a value that YAML cannot read.
    """
    from detconf.yamltext import read_yaml

    found: dict[str, Value] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name:
            msg = f"{source}: {item!r} is not an assignment. Write knob=value;knob=value."
            raise ProfileError(msg)
        knob = catalogue().get(name)
        bare = knob is not None and isinstance(knob.access, Env) and value[:1] not in ("'", '"') and value != "null"
        found[name] = value if bare else read_yaml(value.encode(), source)[0]
    return found
