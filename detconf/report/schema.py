"""A JSON Schema of profiles, derived from the models and the catalogue, for editors."""

from __future__ import annotations

from typing import Any

from detconf.access import Env
from detconf.frameworks import catalogue
from detconf.knob import Knob, Pattern, Span
from detconf.policy import Document
from detconf.values import plain


def schema() -> dict[str, Any]:
    """A JSON Schema of a profile, knobs included, for editors."""
    document = Document.model_json_schema()
    document["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    document["properties"]["knobs"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {knob.name: _knob_schema(knob) for knob in catalogue().values()},
    }
    return document


def _knob_schema(knob: Knob) -> dict[str, Any]:
    if knob.accepts is bool:
        kind: dict[str, Any] = {"type": "boolean"}
    elif isinstance(knob.accepts, Pattern):
        kind = {"type": "string", "pattern": f"^(?:{knob.accepts.regex})$"}
    elif isinstance(knob.accepts, Span):
        bounds = {"minimum": knob.accepts.low, "maximum": knob.accepts.high}
        kind = {"type": "integer", **{key: bound for key, bound in bounds.items() if bound is not None}}
        kind = {"anyOf": [kind, {"const": knob.accepts.word}]} if knob.accepts.word else kind
    else:
        kind = {"enum": [plain(value) for value in knob.accepts]}
    if isinstance(knob.access, Env):
        kind = {"anyOf": [kind, {"type": "null"}]}
    return {**kind, "description": f"{knob.summary} Accepted: {knob.accepted}."}
