"""Importing does nothing and is light; layers hold; no module hides a public name."""

from __future__ import annotations

import ast
import json
import pkgutil
from pathlib import Path

import pytest
from conftest import ROOT, run_python

import detconf

HEAVY = ("torch", "paddle", "numpy", "pydantic", "yaml", "typing", "dataclasses")
# Lowest first; a module imports only from those before it. Names on one line do not see each other, but for `frameworks`.
LAYERS = (
    ("errors",), ("values",), ("lookup",), ("late",), ("access",), ("knob",), ("facts",), ("arrays", "digests"), ("shadows",), ("frameworks",), ("builtin",), ("lines",), ("policy", "yamltext"),
    ("documents",), ("profile",), ("plan",), ("request", "children"), ("attestation",), ("judge",), ("writing", "commandline"), ("restart",), ("seeding",), ("machine",), ("warned",), ("reporting",), ("session",), ("launch",), ("results",), ("publishing",), ("tally",), ("comparison",), ("recording",), ("stopping",), ("arrayfiles",), ("comparing",),
    ("supervise", "outputs", "targets"), ("reports",), ("inspection",), ("examination",), ("doctor",), ("samples",), ("goldens",), ("verification",), ("agreement",), ("causes",), ("axes",), ("observing", "evaluating", "reseeding"), ("execution",), ("pooled",), ("locating",), ("rowwise", "stepwise"), ("batch",), ("ranking", "resuming"), ("rerun",), ("auditing",), ("runner",), ("report",), ("commands",), ("cli",), ("__main__",), ("pytest_plugin",),
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def _imported_by(code: str) -> set[str]:
    return set(run_python(f"import sys, json; {code}; print(json.dumps(sorted(m.partition('.')[0] for m in sys.modules)))"))


def test_import_is_light() -> None:
    """`import detconf` loads no framework, no validator, not even typing."""
    assert not set(HEAVY) & _imported_by("import detconf")


def test_the_probe_can_fail() -> None:
    """The probe of the test above sees an import when there is one."""
    assert "numpy" in _imported_by("import detconf, numpy")


def test_apply_imports_no_framework() -> None:
    """`apply` before any framework is imported imports none."""
    assert not {"torch", "paddle", "numpy"} & _imported_by("import detconf; detconf.apply('strict')")


@pytest.mark.parametrize(("first", "other"), [("torch", "paddle"), ("numpy", "torch")])
def test_one_framework_does_not_bring_another(first: str, other: str) -> None:
    """Applying to one framework never imports another."""
    assert other not in _imported_by(f"import detconf, {first}; detconf.apply('strict', frameworks=[{first!r}])")


def test_public_names_survive_their_modules() -> None:
    """After every submodule is imported, every public name is still what it was, and callable where it should be."""
    code = """
import detconf, importlib, pkgutil, json
for found in pkgutil.walk_packages(detconf.__path__, "detconf."):
    if not found.name.startswith("detconf.inject") and found.name != "detconf.__main__":
        importlib.import_module(found.name)
names = [n for n in detconf.__all__ if n != "__version__"]
assert all(callable(getattr(detconf, n)) for n in names), names
detconf.publish("x", 1.0); detconf.step()
with detconf.apply("strict", frameworks=[]) as session:
    assert session.check().ok
assert detconf.inspect("strict").entries
assert detconf.verify(lambda: {"x": 1.0}).stable
print(json.dumps(names))
"""
    assert {"apply", "inspect", "verify", "publish", "step"} <= set(run_python(code))


def test_unknown_names_are_attribute_errors() -> None:
    """A misspelt public name is an AttributeError that says so, and `dir` lists the real ones."""
    with pytest.raises(AttributeError, match="aply"):
        detconf.aply  # noqa: B018  # the access is the test
    assert "apply" in dir(detconf)


def _module(path: Path) -> str:
    return path.relative_to(ROOT / "detconf").with_suffix("").parts[0]


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("detconf"):
            tail = (node.module or "").split(".")[1:]
            found |= {tail[0]} if tail else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("detconf.")}
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "detconf").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_layers(path: Path) -> None:
    """A module imports only from layers below its own."""
    own = _module(path)
    if own in ("__init__", "inject"):
        return
    above = {name for name in _imports(path) if name != own and name in RANK and RANK[name] >= RANK[own]}
    assert not above, f"{own} imports {above} from above"
    assert own in RANK, f"{own} has no place in LAYERS"


def test_nothing_outside_frameworks_names_one() -> None:
    """Modules outside `frameworks/` import no framework."""
    for path in (ROOT / "detconf").rglob("*.py"):
        if "frameworks" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert not {"torch", "paddle"} & {name.partition(".")[0] for name in names}, path


def test_every_module_is_found() -> None:
    """No module of the package is missing from the layers, nor a layer from the package."""
    modules = {found.name for found in pkgutil.iter_modules(detconf.__path__)} - {"inject"}
    assert modules == set(RANK), json.dumps(sorted(modules ^ set(RANK)))
