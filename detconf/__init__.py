"""detconf makes deep-learning runs repeatable and explains, with proof, why two runs differ.

    import detconf
    detconf.apply("strict")          # at the top of a script, before or after the frameworks are imported

Importing this package loads nothing else, not even `typing` (types for checkers stand in `__init__.pyi`), and
changes nothing. Exceptions and keys of `to_dict()` are API; the texts of messages are not.

PYTEST_DONT_REWRITE: under `detconf run` it is imported before pytest, which would warn of that.
"""

__version__ = "0.1.0"

_HOME = {
    "apply": "session",
    "inspect": "session",
    "Session": "session",
    "Attestation": "attestation",
    "Outcome": "values",
    "Cause": "values",
    "publish": "publishing",
    "step": "publishing",
    "record": "recording.running",
    "compare": "comparing.entry",
    "Comparison": "comparing.result",
    "audit": "auditing.entry",
    "Audit": "auditing.result",
    "verify": "rerun",
    "Verification": "rerun",
    "DetconfError": "errors",
    "ProfileError": "errors",
    "LateError": "errors",
    "TargetError": "errors",
    "DetconfWarning": "errors",
}
__all__ = ["__version__", *_HOME]  # noqa: PLE0604  # names are listed once, in _HOME


def __getattr__(name):  # noqa: ANN001, ANN202  # the stub beside this file carries the types
    if name not in _HOME:
        msg = f"module 'detconf' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    value = getattr(import_module("detconf." + _HOME[name]), name)
    globals()[name] = value
    return value


def __dir__():  # noqa: ANN202  # as above
    return __all__
