"""Profiles in files: YAML or TOML to validated plain data. With `policy` and `yamltext` the only importers of pydantic and yaml."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from detconf.builtin import PROFILES
from detconf.errors import ProfileError
from detconf.lines import Written, checked
from detconf.policy import Document, GraphPolicy, Policy
from detconf.values import Value, suggest
from detconf.yamltext import SIZE_LIMIT, Marks, read_yaml

SOURCES = ("detconf.yaml", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Local:
    """The profiles that one file of a folder defines.

    Attributes:
        source: the file, for messages.
        body: name -> profile, not yet validated.
        marks: where each value stands; empty for TOML.
    """

    source: str
    body: dict[str, Any]
    marks: Marks

    def written(self, name: str) -> Written:
        """The profile `name` of this file, validated."""
        return _parse({"name": name, **_mapping(self.body[name], self.source)}, self.marks, self.source, ("profiles", name))

    def summary(self, name: str) -> str:
        """Its sentence, without validating the rest."""
        return str(_mapping(self.body[name], self.source).get("summary", ""))


def local(folder: Path) -> Iterator[Local]:
    """What ./detconf.yaml and [tool.detconf.profiles] of ./pyproject.toml define.

    Raises:
        ProfileError: one of them cannot be read.
    """
    path = folder / SOURCES[0]
    if path.is_file():
        document, marks = read_yaml(read(path), str(path))
        extra = set(_mapping(document, str(path))) - {"profiles"}
        if extra:
            msg = f"{path}: unknown key {min(map(str, extra))!r}. Accepted: profiles (name -> profile)."
            raise ProfileError(msg)
        yield Local(str(path), _mapping(document.get("profiles") or {}, str(path)), marks)
    path = folder / SOURCES[1]
    if path.is_file():
        yield Local(f"{path} [tool.detconf]", _from_toml(path), {})


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


def read(path: Path) -> bytes:
    """The bytes of a profile's file.

    Raises:
        ProfileError: it cannot be read, or is too large for a profile.
    """
    try:
        with open(path, "rb") as stream:
            raw = stream.read(SIZE_LIMIT + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"{path}: cannot be read: {reason}. A profile is a YAML file, or one of {', '.join(PROFILES)}."
        raise ProfileError(msg) from error
    if len(raw) > SIZE_LIMIT:
        msg = f"{path}: larger than {SIZE_LIMIT} bytes; that is not a profile."
        raise ProfileError(msg)
    return raw


def parse(raw: bytes, source: str) -> Written:
    """A profile from the bytes of a YAML file. `source` names it in errors.

    Raises:
        ProfileError: whatever is wrong with it; never anything else, on any bytes.
    """
    document, marks = read_yaml(raw, source)
    return _parse(_mapping(document, source), marks, source)


def policy(name: str, value: Value, source: str) -> Mapping[str, Value]:
    """The policy `name` with `value`, validated.

    Raises:
        ProfileError: a value that the policy does not know.
    """
    head, _, tail = name.partition(".")
    return _parse({"name": "override", "policy": {head: {tail: value} if tail else value}}, {}, source).policies


def _mapping(body: Any, source: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        msg = f"{source}: a profile is a mapping, not {type(body).__name__}."
        raise ProfileError(msg)
    return body


def _parse(body: dict[Any, Any], marks: Marks, source: str, prefix: tuple[Any, ...] = ()) -> Written:
    try:
        document = Document.model_validate(body)
    except ValidationError as error:
        problems = "\n".join(_explain(item, marks, source, prefix) for item in error.errors())
        raise ProfileError(problems) from None
    knobs = {name: checked(name, value, _place(source, marks, (*prefix, "knobs", name))) for name, value in document.knobs.items()}
    return Written(document.name, document.summary, document.extends, _flat(document), knobs)


def _flat(document: Document) -> dict[str, Value]:
    given = document.policy.model_dump(exclude_none=True)
    nested = given.pop("graph", {})
    seed = {} if document.seed is None else {"seed": document.seed}
    return {**given, **{f"graph.{name}": value for name, value in nested.items()}, **seed}


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
