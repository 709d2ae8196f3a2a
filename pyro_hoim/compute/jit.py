"""Numba's decorator for the compiled kernels of this library, and one line of notice when one of them is compiled."""

from __future__ import annotations

import logging
from typing import Any, cast

import numba
from numba.core import event

__all__ = ["njit", "write"]  # kernels take them from here, so that the notice is registered

NOTICE = (
    "compiling numerical kernels, which takes some seconds each and happens once per machine "
    "(pyro_hoim.warm_up() compiles them all beforehand)"
)


def njit(function: Any = None, **options: Any) -> Any:
    """Numba's ``njit``, without the code that nothing calls: pointers for C, and entries from Python.

    Options with ``cache=True`` and a public name are of a function that Python calls; others are of functions that are
    called by compiled ones alone, and Python must not call them.
    """
    if function is not None:
        return numba.njit(function)

    def compiled(function: Any) -> Any:
        is_inner = not options.get("cache") or function.__name__.startswith("_")
        options_of_all: dict[str, Any] = {"no_cfunc_wrapper": True, "no_cpython_wrapper": is_inner, **options}
        return numba.njit(**options_of_all)(function)

    return compiled


@njit(nogil=True)
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
