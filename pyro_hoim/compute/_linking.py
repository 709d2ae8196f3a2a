"""Compilers of Numba that spend less time on kernels that call each other; they rest on how Numba works inside."""

from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from typing_extensions import override


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


class KernelCompiler(Compiler):
    """Numba's compiler of functions that Python calls."""

    @override
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.flags = _Flags(self.state.flags)


class LinkingCompiler(KernelCompiler):
    """The compiler of functions that compiled ones alone call."""

    @override
    def define_pipelines(self) -> Any:
        state = self.state
        if state.library is None:
            state.library = _LinkedCode(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()
