"""Environment variables as other programs read them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence


def _sh(own: Mapping[str, str], absent: Sequence[str]) -> list[str]:
    return [*(f"export {key}={shlex.quote(value)}" for key, value in own.items()), *(f"unset {key}" for key in absent)]


def _github(own: Mapping[str, str], _absent: Sequence[str]) -> list[str]:
    return [f"{key}={value}" for key, value in own.items()]


def _dotenv(own: Mapping[str, str], _absent: Sequence[str]) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in own.items()]


def _powershell(own: Mapping[str, str], absent: Sequence[str]) -> list[str]:
    quoted = {key: value.replace("'", "''") for key, value in own.items()}
    return [*(f"$env:{key} = '{value}'" for key, value in quoted.items()), *(f"$env:{key} = $null" for key in absent)]


def _json(own: Mapping[str, str], _absent: Sequence[str]) -> list[str]:
    return [json.dumps(dict(own), indent=2)]


FORMATS: Mapping[str, Callable[[Mapping[str, str], Sequence[str]], list[str]]] = {
    "sh": _sh,
    "github": _github,
    "dotenv": _dotenv,
    "powershell": _powershell,
    "json": _json,
}
CAN_UNSET = ("sh", "powershell")
"""Formats that can also say that a variable must not be set."""
CAN_COMMENT = ("sh", "dotenv", "powershell")
"""Formats in which a line may be a comment."""


def apart(form: str, own: Mapping[str, str], absent: Sequence[str], untried: Collection[str]) -> list[str]:
    """The lines of the format `form`, those of `untried` variables last, under a comment where it has comments."""
    if form not in CAN_COMMENT or not untried:
        return FORMATS[form](own, absent)
    known = FORMATS[form]({key: value for key, value in own.items() if key not in untried}, [key for key in absent if key not in untried])
    rest = FORMATS[form]({key: value for key, value in own.items() if key in untried}, [key for key in absent if key in untried])
    return [*known, "# never tried here, taken from public documentation:", *rest] if rest else known
