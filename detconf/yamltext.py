"""YAML text to plain values, refusing what a profile never needs.

A profile is untrusted input: no tags, no anchors, limits on size and depth, duplicate keys rejected. YAML 1.1 reads
`4096:8` as the integer 245768 and `off` as false; a plain scalar that would change its meaning so is an error that
asks for quotes.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from detconf.errors import ProfileError

SIZE_LIMIT = 64 * 1024
DEPTH_LIMIT = 12
Path = tuple[Any, ...]
Marks = dict[Path, tuple[int, int]]
"""Where each value stands: its path of keys -> (line, column), from 1."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(raw: bytes, source: str) -> tuple[Any, Marks]:
    """(plain Python values, path -> (line, column)) of one YAML document.

    Raises:
        ProfileError: not UTF-8, not YAML, several documents, a tag, an anchor, a duplicate key, too large, too deep,
            or a plain scalar that YAML would turn into something else than it looks like.
    """
    if len(raw) > SIZE_LIMIT:
        msg = f"{source}: larger than {SIZE_LIMIT} bytes; that is not a profile."
        raise ProfileError(msg)
    try:
        text = raw.decode("utf-8-sig")
        _guard(text, source)
        node = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        msg = f"{source}: not UTF-8 text (byte {error.start}); a profile is a YAML file."
        raise ProfileError(msg) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        msg = f"{place}: not YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}."
        raise ProfileError(msg) from error
    marks: Marks = {}
    return (_value(node, (), marks, source) if node is not None else None), marks


def _guard(text: str, source: str) -> None:
    """Refuse, before anything recursive runs, what a profile never needs."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        mark: Any = event.start_mark
        place = f"{source}:{mark.line + 1}:{mark.column + 1}"
        if getattr(event, "anchor", None):
            msg = f"{place}: anchors and aliases are not accepted; write the value out."
            raise ProfileError(msg)
        tag = getattr(event, "tag", None)
        if tag:
            msg = f"{place}: the tag {tag!r} is not accepted; remove it."
            raise ProfileError(msg)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_LIMIT:
            msg = f"{place}: nested deeper than {DEPTH_LIMIT} levels; that is not a profile."
            raise ProfileError(msg)


_SCALARS = {"str", "int", "bool", "null"}


def _value(node: Any, path: Path, marks: Marks, source: str) -> Any:
    place = f"{source}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
    marks[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, index), marks, source) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = _value(key_node, path, marks, source)
            if not isinstance(key, str):
                msg = f"{source}:{key_node.start_mark.line + 1}:{key_node.start_mark.column + 1}: a key must be text, received {key!r}."
                raise ProfileError(msg)
            if key in found:
                msg = f"{source}:{key_node.start_mark.line + 1}:{key_node.start_mark.column + 1}: the key {key!r} stands twice; keep one."
                raise ProfileError(msg)
            found[key] = _value(value_node, (*path, key), marks, source)
        marks[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
        return found
    return _scalar(node, place)


def _scalar(node: Any, place: str) -> Any:
    kind = node.tag.rpartition(":")[2]
    text: str = node.value
    if kind == "int" and re.fullmatch(r"-?(0|[1-9][0-9]{0,18})", text):
        return int(text)
    if kind == "bool" and text in ("true", "false"):
        return text == "true"
    if kind == "null" and text in ("null", "~", ""):
        return None
    if kind == "str":
        return text
    if kind in ("int", "float", "bool", "null", "timestamp", "merge", "value"):
        msg = f"{place}: {text!r} means something else to YAML ({kind}). Quote it if text is meant; write true, false, null and plain decimal integers otherwise."
        raise ProfileError(msg)
    msg = f"{place}: a value of kind {kind!r} is not accepted."
    raise ProfileError(msg)
