"""What is shipped: the wheel holds the profiles, the stub and the injected folder, and works on its own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, clean_environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=240,
    )
    return next(folder.glob("*.whl"))


def test_the_wheel_is_complete(wheel: Path) -> None:
    """Profiles, stub, marker, injected folder are inside; tests are not; torch and paddle are not required."""
    archive = zipfile.ZipFile(wheel)
    names = set(archive.namelist())
    expected = {f"detconf/profiles/{path.name}" for path in (ROOT / "profiles").glob("*.yaml")}
    expected |= {"detconf/__init__.pyi", "detconf/py.typed", "detconf/inject/sitecustomize.py"}
    assert expected <= names
    assert not any(name.startswith(("tests/", "examples/")) for name in names)
    metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not any("torch" in line or "paddle" in line for line in required)
    assert "Requires-Python: >=3.10" in metadata


def test_the_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Unpacked alone, it finds its profiles."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "import detconf; print(detconf.__file__); print(detconf.apply('ci', frameworks=[]).attestation.profile)"],
        env=clean_environment(PYTHONPATH=str(tmp_path)), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split() == [str(tmp_path / "detconf" / "__init__.py"), "ci"], done.stderr
