"""A profile by name or path, validated, its parents merged in.

With `policy` and `yamltext` the only importers of pydantic and yaml.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from detconf.access import Env
from detconf.errors import ProfileError
from detconf.frameworks import catalogue
from detconf.policy import Document, GraphPolicy, Policy, policy_names
from detconf.values import Value, plain, suggest
from detconf.yamltext import SIZE_LIMIT, Marks, read_yaml

CHAIN_LIMIT = 16
SOURCES = ("detconf.yaml", "pyproject.toml")


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
            if name in policy_names():
                policies.update(_policies(_parse({"policy": _nest(name, value), "name": "override"}, {}, source), source))
            else:
                knobs[name] = Line(_checked_knob(name, value, source), source)
        return replace(self, policies=policies, knobs=knobs)


def _rows(lines: Mapping[str, Line]) -> dict[str, Any]:
    return {name: {"value": plain(line.value), "source": line.source} for name, line in lines.items()}


def _nest(name: str, value: Value) -> dict[str, Any]:
    head, _, tail = name.partition(".")
    return {head: {tail: value} if tail else value}


def builtin_folder() -> Any:
    """The folder of built-in profiles: inside the wheel, or beside the package in a checkout or editable install."""
    for folder in (files("detconf") / "profiles", Path(__file__).parents[1] / "profiles"):
        if folder.is_dir():
            return folder
    msg = "the built-in profiles are missing: this installation of detconf is incomplete. Reinstall it."
    raise ProfileError(msg)


@lru_cache(maxsize=1)
def builtin_names() -> tuple[str, ...]:
    """Names of the built-in profiles."""
    return tuple(sorted(entry.name[:-5] for entry in builtin_folder().iterdir() if entry.name.endswith(".yaml")))


def load(name: str, *, folder: Path | None = None) -> Profile:
    """The profile `name`: a path (it has a separator or ends in .yaml or .yml), a name defined in ./detconf.yaml or
    in [tool.detconf.profiles] of ./pyproject.toml, or a built-in one.

    Raises:
        ProfileError: not found, not valid, or its parents form a cycle.
    """
    if not isinstance(name, (str, os.PathLike)) or not os.fspath(name):  # type: ignore[redundant-expr]  # callers are not all typed
        msg = f"a profile is a name or a path, not {name!r}. Built in: {', '.join(builtin_names())}."
        raise ProfileError(msg)
    return _load(os.fspath(name), folder or Path(), ())


def _load(name: str, folder: Path, chain: tuple[str, ...]) -> Profile:
    document, source, key, base = _find(name, folder)
    if key in chain or len(chain) >= CHAIN_LIMIT:
        msg = f"{source}: profiles extend each other in a circle: {' -> '.join([*map(_short, chain), _short(key)])}. Remove one `extends`."
        raise ProfileError(msg)
    parent = _load(document.extends, base, (*chain, key)) if document.extends is not None else None
    own = f"profile {document.name}"
    return Profile(
        name=document.name,
        summary=document.summary or (parent.summary if parent else ""),
        parents=(parent.name, *parent.parents) if parent else (),
        policies={**(parent.policies if parent else {}), **_policies(document, own)},
        knobs={
            **(parent.knobs if parent else {}),
            **{knob: Line(value, own) for knob, value in document.knobs.items()},
        },
    )


def _short(key: str) -> str:
    return os.path.basename(key) if os.sep in key else key


def _policies(document: Document, source: str) -> dict[str, Line]:
    given = document.policy.model_dump(exclude_none=True)
    nested = given.pop("graph", {})
    flat = {**given, **{f"graph.{name}": value for name, value in nested.items()}}
    if document.seed is not None:
        flat["seed"] = document.seed
    return {name: Line(value, source) for name, value in flat.items()}


def _find(name: str, folder: Path) -> tuple[Document, str, str, Path]:
    """(the document, its source for messages, its identity, the folder its own `extends` is relative to)."""
    if os.sep in name or name.endswith((".yaml", ".yml")) or (os.altsep and os.altsep in name):
        path = folder / name
        document = parse(_read(path), str(path))
        _refuse_builtin(document.name, str(path))
        return document, str(path), str(path.resolve()), path.parent
    for source, body, marks in _local(folder):
        if name in body:
            _refuse_builtin(name, source)
            return (
                _parse({"name": name, **_mapping(body[name], source)}, marks, source, ("profiles", name)),
                source,
                f"{source}:{name}",
                folder,
            )
    if name in builtin_names():
        return parse((builtin_folder() / f"{name}.yaml").read_bytes(), f"{name} (built in)"), f"{name} (built in)", name, folder
    known = [*builtin_names(), *(key for _, body, _ in _local(folder) for key in body)]
    msg = f"unknown profile {name!r}.{suggest(name, known)} A path needs a separator or the ending .yaml."
    raise ProfileError(msg)


def _refuse_builtin(name: str, source: str) -> None:
    if name in builtin_names():
        msg = (
            f"{source}: {name!r} is the name of a built-in profile and cannot be redefined. Choose another name and say `extends: {name}`."
        )
        raise ProfileError(msg)


def _mapping(body: Any, source: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        msg = f"{source}: a profile is a mapping, not {type(body).__name__}."
        raise ProfileError(msg)
    return body


def _local(folder: Path) -> Iterator[tuple[str, dict[str, Any], Marks]]:
    """(source, name -> body, marks) of the profiles defined in this folder."""
    path = folder / SOURCES[0]
    if path.is_file():
        document, marks = read_yaml(_read(path), str(path))
        extra = set(_mapping(document, str(path))) - {"profiles"}
        if extra:
            msg = f"{path}: unknown key {min(map(str, extra))!r}. Accepted: profiles (name -> profile)."
            raise ProfileError(msg)
        yield str(path), _mapping(document.get("profiles") or {}, str(path)), marks
    path = folder / SOURCES[1]
    if path.is_file():
        yield f"{path} [tool.detconf]", _from_toml(path), {}


def _from_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("detconf", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"{path}: cannot be read: {error}"
        raise ProfileError(msg) from error
    if not isinstance(table, dict) or set(table) - {"profiles"}:
        msg = f"{path}: [tool.detconf] accepts only `profiles` (name -> profile)."
        raise ProfileError(msg)
    return _mapping(table.get("profiles", {}), str(path))


def available(folder: Path | None = None) -> list[tuple[str, str, str]]:
    """(name, where it is defined, summary) of every profile that can be named here."""
    rows = [(name, "built in", load(name).summary) for name in builtin_names()]
    for source, body, _ in _local(folder or Path()):
        rows += [(name, source, str(_mapping(entry, source).get("summary", ""))) for name, entry in body.items()]
    return rows


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as stream:
            raw = stream.read(SIZE_LIMIT + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"{path}: cannot be read: {reason}. A profile is a YAML file, or one of {', '.join(builtin_names())}."
        raise ProfileError(msg) from error
    if len(raw) > SIZE_LIMIT:
        msg = f"{path}: larger than {SIZE_LIMIT} bytes; that is not a profile."
        raise ProfileError(msg)
    return raw


def parse(raw: bytes, source: str) -> Document:
    """A profile from the bytes of a YAML file. `source` names it in errors.

    Raises:
        ProfileError: whatever is wrong with it; never anything else, on any bytes.
    """
    document, marks = read_yaml(raw, source)
    return _parse(_mapping(document, source), marks, source)


def _parse(body: dict[Any, Any], marks: Marks, source: str, prefix: tuple[Any, ...] = ()) -> Document:
    try:
        document = Document.model_validate(body)
    except ValidationError as error:
        problems = "\n".join(_explain(item, marks, source, prefix) for item in error.errors())
        raise ProfileError(problems) from None
    checked = {name: _checked_knob(name, value, _place(source, marks, (*prefix, "knobs", name))) for name, value in document.knobs.items()}
    return document.model_copy(update={"knobs": checked})


def _place(source: str, marks: Marks, path: tuple[Any, ...]) -> str:
    while path and path not in marks:
        path = path[:-1]
    line, column = marks.get(path, (0, 0))
    return f"{source}:{line}:{column}" if line else source


def _explain(item: Any, marks: Marks, source: str, prefix: tuple[Any, ...]) -> str:
    """One pydantic error as what, received, accepted, what to do."""
    path = (
        tuple(part for part in item["loc"] if (*prefix, *item["loc"][: item["loc"].index(part) + 1]) in marks or not marks) or item["loc"]
    )
    place = _place(source, marks, (*prefix, *path))
    name = ".".join(map(str, path))
    if item["type"] == "extra_forbidden":
        models: dict[Any, type[BaseModel]] = {("policy",): Policy, ("policy", "graph"): GraphPolicy}
        model = models.get(item["loc"][:-1], Document)
        return f"{place}: unknown key {item['loc'][-1]!r}.{suggest(str(item['loc'][-1]), model.model_fields)}"
    if item["type"] == "missing":
        return f"{place}: {item['loc'][-1]!r} is missing; a profile needs at least a name."
    hint = " Quote it if text is meant." if isinstance(item["input"], (bool, int, float)) else ""
    return f"{place}: {name}: {item['msg']}, received {item['input']!r}.{hint}"[:600]


def _checked_knob(name: Any, value: Any, place: str) -> Value:
    knob = catalogue().get(name)
    if knob is None:
        msg = f"{place}: unknown knob {name!r}.{suggest(str(name), [*catalogue(), *policy_names()])} `detconf knobs` lists them."
        raise ProfileError(msg)
    value = tuple(value) if isinstance(value, list) else value
    objection = knob.objection(value)
    if objection:
        hint = " Quote it: environment variables are text." if isinstance(knob.access, Env) and not isinstance(value, str) else ""
        msg = f"{place}: {name}: {objection}.{hint}"
        raise ProfileError(msg)
    return value


def parse_assignments(text: str, source: str) -> dict[str, Value]:
    """`"knob=value;knob=value"` as name -> value. Values are YAML scalars: `true`, `4`, `"4"`; for a variable, text as it stands.

    Raises:
        ProfileError: an item without `=`, or a value that YAML cannot read.
    """
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
