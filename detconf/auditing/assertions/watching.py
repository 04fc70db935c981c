"""Functions of tests that compare, watched: each outermost call is told, with its operands and whether it holds.

Ours stand in place of functions of `comparisons` and call them. Results, errors and what the functions look like stay.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from detconf.auditing.assertions.comparisons import (
    APPROXIMATE,
    ASSERTIONS,
    METHODS,
    PREDICATES,
    Comparison,
    approx,
    expected,
    here,
    operands,
    spelt,
    tolerance,
)
from detconf.lookup import first_line

_CASES, _APPROX = "unittest.case", ("_pytest.approx", "_pytest.python_api")
"""Modules; the last was that of pytest before 9."""
Given = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]
"""A function, and what it is given."""
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a comparison.

    Attributes:
        module, function: names.
        plain: the function; of a method, one that takes no `self`.
        args, kwargs: without `self`.
        file, line: of user code.
        failed: why it fails; empty where it holds.
        certain: it raises; False for one that returns False, of which its caller may make nothing.
    """

    module: str
    function: str
    plain: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    file: str
    line: int
    failed: str = ""
    certain: bool = True

    @property
    def counts(self) -> bool:
        """Does it fail, where that is not expected?"""
        return bool(self.failed) and not expected(self.file, self.line, self.function)

    @property
    def name(self) -> str:
        """What the source calls the candidate."""
        return spelt(self.file, self.line, self.function)[0] or "actual"

    def operands(self) -> tuple[Any, Any]:
        """(actual, desired)."""
        return operands(self.plain, self.args, self.kwargs)[:2]

    def comparison(self, dtype: str) -> Comparison:
        """What it is, with the tolerances that hold for a candidate of `dtype`."""
        ours, theirs, fails = spelt(self.file, self.line, self.function)
        rtol, atol = tolerance(self.function, operands(self.plain, self.args, self.kwargs)[2], dtype)
        return Comparison(self.function, self.file, self.line, ours, theirs, rtol, atol, fails, " ".join(self.failed.split())[:_LONGEST])


class Watching:
    """Watches the comparisons of this process."""

    def __init__(self) -> None:
        self._inside = threading.local()

    def before(self, call: Call) -> Any:
        """A comparison is about to be made. Returns what `compared` is to get."""
        raise NotImplementedError

    def compared(self, call: Call, before: Any) -> None:
        """A comparison was made."""
        raise NotImplementedError

    def watch(self) -> None:
        """Watch from now on, each module from its import on."""
        from wrapt import register_post_import_hook  # loaded where a process is watched

        for module in (*ASSERTIONS, *PREDICATES, _CASES, *_APPROX):
            register_post_import_hook(self.patch, module)

    def patch(self, module: Any) -> None:
        """Put ours in place of a module's comparisons."""
        name = module.__name__
        for owner, names, raises in (
            (module, ASSERTIONS.get(name, ()), True),
            (module, PREDICATES.get(name, ()), False),
            (getattr(module, "TestCase", None), METHODS if name == _CASES else (), True),
        ):
            for function in names:
                self._put(owner, function, name, function, _method if function in METHODS else _function, raises=raises)
        for kind in APPROXIMATE if name in _APPROX else ():
            self._put(getattr(module, kind, None), "__eq__", "pytest", "approx", _approximate, raises=False)

    def _put(  # noqa: PLR0913  # what is put where, and how it is told
        self, owner: Any, attribute: str, module: str, name: str, given: Callable[..., Given], *, raises: bool
    ) -> None:
        plain = getattr(owner, attribute, None)
        if callable(plain) and not hasattr(plain, "__detconf__"):
            setattr(owner, attribute, self._watched(module, name, plain, given, raises=raises))

    def _watched(
        self, module: str, name: str, plain: Callable[..., Any], given: Callable[..., Given], *, raises: bool
    ) -> Callable[..., Any]:
        @functools.wraps(plain)
        def watched(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # pytest shows none of this frame
            if getattr(self._inside, "on", False):
                return plain(*args, **kwargs)
            frame = here(1)
            self._inside.on = True  # reading operands may compare, too
            try:
                call = Call(module, name, *given(plain, args, kwargs), frame.f_code.co_filename, frame.f_lineno, certain=raises)
                before = _told(self.before, call)
                try:
                    result = plain(*args, **kwargs)
                except AssertionError as error:
                    _told(self.compared, replace(call, failed=str(error) or name), before)
                    raise
                _told(self.compared, replace(call, failed="" if raises or bool(result) else f"{name} is False"), before)
            finally:
                self._inside.on = False
            return result

        watched.__detconf__ = True  # type: ignore[attr-defined]  # ours, not to be wrapped again
        return watched


def _function(plain: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Given:
    return plain, args, kwargs


def _method(plain: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Given:
    """Without `self`."""
    return functools.partial(plain, None), args[1:], kwargs


def _approximate(_plain: Callable[..., Any], args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> Given:
    """`approx == actual`."""
    own, actual = args
    return approx, (actual, own.expected), {"rel": own.rel, "abs": own.abs}


def _told(tell: Callable[..., Any], *about: Any) -> Any:
    try:
        return tell(*about)
    except Exception as error:  # noqa: BLE001  # the program goes on
        sys.stderr.write(f"detconf: a comparison could not be taken: {first_line(error)}\n")
        return None
