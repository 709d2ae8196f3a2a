"""Numba's decorator for the compiled kernels of this library, and one line of notice when one of them is compiled."""

from __future__ import annotations

import logging
from typing import Any, cast

from numba import njit
from numba.core import event

__all__ = ["njit"]  # kernels take it from here, so that the notice is registered

NOTICE = (
    "compiling numerical kernels, which takes some seconds each and happens once per machine "
    "(pyro_hoim.warm_up() compiles them all beforehand)"
)


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
