"""Controls of the Python process that are no knobs, each with the reason."""

from __future__ import annotations

from detconf.frameworks.base import Refused

REFUSED = (
    Refused(
        ("python -R", "python -X dev", "PYTHONMALLOC"),
        "addresses, and with them the order of sets of objects, differ from run to run whatever these say; PYTHONHASHSEED fixes sets of text",
    ),
    Refused(("sys.setswitchinterval",), "when Python's threads take turns; no setting makes that repeatable"),
    Refused(("locale", "TZ"), "not numeric; a program that parses text by them should say so itself"),
)
