"""What cannot be followed: static programs, loaded graphs, predictors. What they give is a leaf whose shadow is lost."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from detconf.frameworks.paddle.contents import collect
from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.twins import Twins
from detconf.shadows.study import Known

LOST = "a static program was run"
_EXECUTOR, _API, _TRANSLATOR = "paddle.base.executor", "paddle.jit.api", "paddle.jit.dy2static.program_translator"


class Opaque:
    """Marks what comes out of programs.

    Args:
        twins: of the tensors.
    """

    def __init__(self, twins: Twins) -> None:
        self.twins, self.study = twins, twins.study

    def put(self, references: References) -> None:
        """Replace what runs programs, and have functions under `to_static` run eagerly."""
        executor, function = sys.modules[_EXECUTOR].Executor, sys.modules[_TRANSLATOR].StaticFunction
        references.put_attribute(executor, "run", self._running(vars(executor)["run"]))
        references.put_attribute(function, "__call__", self._eagerly(vars(function)["__call__"]))
        tensor = getattr(paddle.base.core, "PaddleInferTensor", None)
        if tensor is not None and "copy_to_cpu" in vars(tensor):
            references.put_attribute(tensor, "copy_to_cpu", self._running(vars(tensor)["copy_to_cpu"]))

    def replacements(self) -> dict[int, tuple[Any, Any]]:
        """Functions that modules hold, and what takes their place, as `References.put` wants them."""
        save = sys.modules[_API].save
        found = {id(save): (save, self._saving(save))}
        program = vars(paddle._C_ops).get("run_program")
        if program is not None:
            found[id(program)] = program, self._programs(program)
        return found

    def _eagerly(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self.twins.quiet or not paddle.in_dynamic_mode():
                return plain(function, *args, **kwargs)
            return function._call_dygraph_function(*args, **kwargs)

        return call

    def _saving(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`paddle.jit.save`, which builds a program."""

        @functools.wraps(plain)
        def save(*args: Any, **kwargs: Any) -> Any:
            with self.twins.silently():
                return plain(*args, **kwargs)

        return save

    def _programs(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def run_program(*args: Any) -> Any:
            result = plain(*args)
            if not self.twins.quiet:
                made: list[Any] = []
                collect(result, made)
                for each in made:
                    self.twins.do("a static program", functools.partial(self.twins.leaf, each, None, "a static program", LOST))
            return result

        return run_program

    def _running(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def run(*args: Any, **kwargs: Any) -> Any:
            result = plain(*args, **kwargs)
            if self.twins.quiet:
                return result
            if isinstance(result, np.ndarray):
                return self._marked(result)
            return [self._marked(each) for each in result] if isinstance(result, list) else result

        return run

    def _marked(self, array: Any) -> Any:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fc":
            return array
        wide: Any = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        value, shadow = self.study.leaf(wide, str(array.dtype), "a static program", real=array, lost=LOST)
        return self.study.wrap(array, Known(shadow, value))
