"""Numba's decorator for the compiled kernels of this library, and one line of notice when one of them is compiled."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, cast

import numba
from numba.core import event
from numba.core.compiler import Compiler

__all__ = ["njit", "write"]  # kernels take them from here, so that the notice is registered

NOTICE = (
    "compiling numerical kernels, which takes some seconds each and happens once per machine "
    "(pyro_hoim.warm_up() compiles them all beforehand)"
)


_KNOWN = ("0.68",)  # versions of Numba with which all tests have passed by these compilers


def _compilers() -> tuple[Any, Any]:
    """The compilers of functions that Python calls, and of those that compiled ones alone call.

    Numba's own where another version of it may work otherwise inside: that takes longer, with the same results.
    """
    if numba.__version__.rpartition(".")[0] not in _KNOWN:
        return Compiler, Compiler
    from ._linking import KernelCompiler, LinkingCompiler

    return KernelCompiler, LinkingCompiler


_OWN, _LINKING = _compilers()

ALONE: Any = {
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
    "pipeline_class": _OWN,
}
"""Options of functions that compiled ones alone call, and that are optimised before they are linked into these."""

LINKED: Any = {**ALONE, "pipeline_class": _LINKING}
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
