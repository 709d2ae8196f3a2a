"""Numba's decorator for the compiled kernels of this library, and one line of notice when one of them is compiled."""

from __future__ import annotations

import logging
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, cast

import numba
from numba.core import event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from typing_extensions import override

__all__ = ["njit", "write"]  # kernels take them from here, so that the notice is registered

NOTICE = (
    "compiling numerical kernels, which takes some seconds each and happens once per machine "
    "(pyro_hoim.warm_up() compiles them all beforehand)"
)


class _LinkedCode(JITCodeLibrary):
    """Code that is linked into that of its callers, and is optimised and made machine code there alone."""

    @property
    @override
    def codegen(self) -> Any:
        """Who would set the address of an environment, of which code that is not loaded has none."""
        return SimpleNamespace(set_env=lambda name, env: None)  # noqa: ARG005

    @override
    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    def _optimize_final_module(self) -> None:
        """Nothing to do."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _Flags(Flags):
    """Flags that are equal where what is passed on to callees is.

    Numba compiles its own functions anew for every set of flags of a caller, and compares these often.
    """

    @override
    def __eq__(self, other: object) -> bool:
        passed_on = attrgetter("nrt", "error_model", "fastmath", "forceinline")
        return isinstance(other, Flags) and passed_on(self) == passed_on(other)

    __hash__ = Flags.__hash__


class _Compiler(Compiler):
    """Numba's compiler of functions that Python calls."""

    @override
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.flags = _Flags(self.state.flags)


class _LinkingCompiler(_Compiler):
    """The compiler of functions that compiled ones alone call."""

    @override
    def define_pipelines(self) -> Any:
        state = self.state
        if state.library is None:
            state.library = _LinkedCode(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


ALONE: Any = {
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
    "pipeline_class": _Compiler,
}
"""Options of functions that compiled ones alone call, and that are optimised before they are linked into these."""

LINKED: Any = {**ALONE, "pipeline_class": _LinkingCompiler}
"""The same of functions that are optimised with their callers alone, which takes less time."""


def njit(function: Any = None, **options: Any) -> Any:
    """Numba's ``njit`` for the kernels of this library, without the code that nothing calls.

    Functions with ``cache=True`` are those that Python calls. Others are called by compiled ones alone, and Python must
    not call them.
    """
    if function is None:
        return partial(njit, **options)
    settings: Any = {**ALONE, "no_cpython_wrapper": False} if options.get("cache") else LINKED
    return cast(Any, numba.njit)(**{**settings, **options})(function)


@njit
def write(target: Any, source: Any) -> None:
    """The entries of a source (n,) over the first n of a target (at least n,).

    A slice that is set to an array tests their shapes, and to compile its message takes longer than most kernels do.
    """
    for j in range(len(source)):
        target[j] = source[j]


def kernel_of(event: event.Event) -> str | None:
    """Module and name of the kernel that an event of Numba's compiler is about; None if not of this library.

    Other programs may compile what has no Python function, or one of no module.
    """
    function = getattr(cast(dict[str, Any], event.data).get("dispatcher"), "py_func", None)
    module = getattr(function, "__module__", None) or ""
    return f"{module}.{function.__name__}" if function is not None and module.startswith("pyro_hoim.") else None


class CompilationNotice(event.Listener):
    """Logs :data:`NOTICE` at the first kernel of this library that is compiled and not read from the cache."""

    def __init__(self) -> None:
        self.is_given = False

    def on_start(self, event: event.Event) -> None:
        """Give the notice once."""
        if not self.is_given and kernel_of(event) is not None:
            self.is_given = True
            logging.getLogger("pyro_hoim").warning(NOTICE)

    def on_end(self, event: event.Event) -> None:
        """Nothing to do."""


event.register("numba:compile", CompilationNotice())
