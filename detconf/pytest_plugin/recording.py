"""The fixture `recording`: what the test computes must be what was recorded beside it. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from detconf.errors import DetconfError
from detconf.pytest_plugin.state import State, state_of

_CURRENT = pytest.StashKey["_Recorded"]()


@pytest.fixture
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], None]]:
    """`recording(name)`: every operation of the rest of the test must be the one recorded under `name`, bit for bit.

    `--detconf-update` records instead. Kept in `goldens/MODULE/TEST.NAME.det` beside the test.
    """
    chain = [node.name for node in request.node.listchain() if isinstance(node, (pytest.Class, pytest.Item))]
    folder = request.path.parent / "goldens" / request.path.stem
    made = tmp_path_factory.mktemp("recording") / "new.det"
    update = bool(request.config.getoption("detconf_update"))
    with ExitStack() as stack:
        current = _Recorded("::".join(chain), folder, made, stack, request.config, update=update)
        request.node.stash[_CURRENT] = current
        yield current
        current.over = True  # a test that did not end well is not compared


def finish(item: pytest.Item) -> None:
    """Compare what a test that has ended well recorded, and fail it where that differs."""
    current = item.stash.get(_CURRENT, None)
    problem = ""
    if current is not None:
        del item.stash[_CURRENT]
        try:
            problem = current.finish()
        except (DetconfError, OSError) as error:
            problem = f"recording {current.name!r}: {error}"
    if problem:  # outside the handler: pytest would show that chain
        pytest.fail(problem, pytrace=False)


class _Recorded:
    """The recording of one test.

    Attributes:
        name: given by the test; empty before.
        over: it can no longer begin.
    """

    def __init__(self, test: str, folder: Path, made: Path, stack: ExitStack, config: pytest.Config, *, update: bool) -> None:  # noqa: PLR0913  # made in one place
        self.test, self.folder, self.made, self.stack, self.update = test, folder, made, stack, update
        self.state: State = state_of(config)
        self.root = config.rootpath
        self.name, self.over, self._path = "", False, ""

    def __call__(self, name: str) -> None:
        __tracebackhide__ = True
        if not (name and isinstance(name, str)) or self.name or self.over:
            said = "no name" if not (name and isinstance(name, str)) else "the second" if self.name else "too late"
            msg = f"recording: {name!r} is {said}. Accepted: a text, once in a test."
            raise AssertionError(msg)
        from detconf.recording.running import record

        self.name = name
        self._path = self.stack.enter_context(record(self.made, sources=True)).path

    def finish(self) -> str:
        """End it; store it, or compare it: what is wrong, or empty."""
        self.over = True
        self.stack.close()
        if not self.name:
            return ""
        kept = self.folder / f"{_file_name(f'{self.test}.{self.name}')}.det"
        shown = os.path.relpath(kept, self.root)
        if not self.update:
            return self._compare(kept, shown)
        if not (kept.exists() and _compared(kept, self._path).equal):
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._path, kept)
            self.state.written.append(shown)
        return ""

    def _compare(self, kept: Path, shown: str) -> str:
        from detconf.report import testing

        if not kept.exists():
            return testing.absent(self.name, self.test, shown, "recording")
        found = _compared(kept, self._path)
        return "" if found.equal else testing.recording(self.name, self.test, shown, found)


def _compared(kept: Path, made: str) -> Any:
    from detconf.comparing.entry import compare

    return compare(kept, made)


def _file_name(text: str) -> str:
    """`text` as the name of a file; where characters are lost, a digest tells it from others."""
    plain = re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII)
    if plain == text:
        return plain
    from hashlib import blake2b

    return f"{plain}-{blake2b(text.encode(), digest_size=4).hexdigest()}"
