"""How a control is read and written: attribute, pair of functions, environment variable, random generator."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from detconf.lookup import Missing, NotLoaded, assign, in_fork, loaded, resolve
from detconf.values import Value, same


class Access:
    """How a knob is read and written. Errors pass through: `Knob.read` and the session give them their meaning."""

    module: str = ""
    """The module that must be imported before the control can be touched; empty for none."""
    variable: str = ""
    """The environment variable that configures a process from outside; empty for none."""

    def read(self) -> Value:
        raise NotImplementedError

    def write(self, value: Value) -> None:
        raise NotImplementedError

    def holds(self, wanted: Value) -> bool:
        """Is `wanted` in force? A control whose own words differ from the profile's overrides this."""
        return same(self.read(), wanted)

    def save(self) -> Any:
        """Everything that `load` needs to bring the control back; may hold more than `read` shows."""
        return self.read()

    def load(self, saved: Any) -> None:
        self.write(saved)

    def unchanged(self, saved: Any) -> bool:
        """Would `load` change nothing? Then it is not called: writing a value out would end its inheritance."""
        return same(self.read(), saved)


@dataclass(frozen=True)
class Attr(Access):
    """An attribute that is read and assigned.

    Several framework modules accept a misspelt attribute in silence, and `torch.backends.cudnn.benchmark_limit`
    reads None on a build without cuDNN while storing whatever is assigned. So an attribute that is absent, or None
    where None is not a value, does not exist.
    """

    path: str

    @property
    def module(self) -> str:  # type: ignore[override]  # derived, so that the path stays the single source
        return self.path.partition(":")[0]

    def read(self) -> Value:
        value = resolve(self.path)
        if value is None:
            msg = f"{self.path.replace(':', '.')} is None in this build: there is nothing to set"
            raise Missing(msg)
        return value

    def write(self, value: Value) -> None:
        self.read()
        assign(self.path, value)


@dataclass(frozen=True)
class Call(Access):
    """A getter and a setter, each a path. `module` defaults to the getter's own."""

    getter: str
    setter: str
    needs: str = ""

    @property
    def module(self) -> str:  # type: ignore[override]  # derived, so that the path stays the single source
        return self.needs or self.getter.partition(":")[0]

    def read(self) -> Value:
        loaded(self.module)
        return resolve(self.getter)()

    def write(self, value: Value) -> None:
        loaded(self.module)
        resolve(self.setter)(value)


@dataclass(frozen=True)
class Env(Access):
    """An environment variable.

    Attributes:
        variable: its name.
        effective: path of a function that says what the library made of the variable, in the variable's own words;
            it returns None while the library cannot say. Without it, what the library saw is the value at process
            start, or one that detconf wrote in time.
        freezes: the imported module whose library reads the variable for good when `effective` is asked, so that
            only a writer may ask in this process (`get_cpu_capability` and `mkl_serv_cbwr_get` both do, measured on
            torch 2.13); empty where asking is harmless.
        default: what the library takes, in the variable's words, when the variable is not there; empty where that
            depends on the machine.
    """

    variable: str
    effective: str = ""
    freezes: str = ""
    default: str = ""

    def read(self) -> Value:
        return os.environ.get(self.variable)

    def write(self, value: Value) -> None:
        if value is None:
            os.environ.pop(self.variable, None)
        else:
            os.environ[self.variable] = value

    def ask(self) -> Value:
        """What the library made of the variable; None when it cannot be asked or does not say."""
        try:
            return resolve(self.effective)() if self.effective else None
        except (NotLoaded, Missing, AttributeError, OSError):
            return None

    def would_say(self, wanted: Value) -> Value:
        """What the library would answer if `wanted` were written now, found out without changing this process."""
        if not self.freezes:
            return self.ask()
        if self.freezes not in sys.modules:
            return None

        def answer() -> Value:
            self.write(wanted)
            return self.ask()

        return in_fork(answer)


class RandomState(Protocol):
    """A random generator of a framework: what `Rng` needs from the module it points to."""

    def seed(self, seed: int) -> None: ...
    def state(self) -> Any: ...
    def restore(self, state: Any) -> None: ...
    def fresh(self, seed: int) -> bool:
        """Is the generator where `seed` leaves it, with nothing drawn since?"""
        ...

    def digest(self) -> str:
        """A short text that is equal exactly when the state is."""
        ...


@dataclass(frozen=True)
class Rng(Access):
    """A global random generator: written as a seed, read as a digest of its state, restored as a whole."""

    generator: str
    module: str = ""

    def _get(self) -> RandomState:
        if self.module:
            loaded(self.module)
        generator: RandomState = resolve(self.generator)
        return generator

    def read(self) -> Value:
        return "state " + self._get().digest()

    def glance(self) -> object:
        """Something cheaper than `read`, where there is, that is no longer what it was once anything has been drawn."""
        generator = self._get()
        return getattr(generator, "glance", generator.digest)()

    def write(self, value: Value) -> None:
        self._get().seed(value)

    def holds(self, wanted: Value) -> bool:
        return self._get().fresh(wanted)

    def save(self) -> Any:
        return self._get().state()

    def load(self, saved: Any) -> None:
        self._get().restore(saved)

    def unchanged(self, saved: Any) -> bool:  # noqa: ARG002  # states are restored without being compared
        return False
