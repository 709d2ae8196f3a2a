"""Sizes that modules and functions keep to, with lists of those that do not yet, and controls."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "pyro_hoim"
MAX_MODULE_LINES, MAX_BODY_LINES, MAX_KERNEL_LINES = 500, 60, 120
LONG_MODULES = {
    "log_linear/laws/law.py",
    "log_linear/chains/_products_kernels.py",
}
"""Modules that are still too long; names may only be taken away."""
LONG_FUNCTIONS = {
    "cli/by_family/select.py _summary",
    "cli/commands/use.py score",
    "dependency_network/learn/_kernels.py grow",
    "report/plain.py plain_report",
    "report/sections.py _comparison",
}
"""Functions that are still too long; names may only be taken away."""


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def _too_long(source: str) -> tuple[bool, list[str]]:
    """Whether a module is too long, and the names of its functions that are; kernels of Numba may be longer."""
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    found: list[str] = []
    for function in functions:
        is_kernel = any(ast.unparse(decorator).startswith("njit") for decorator in function.decorator_list)
        if _body_lines(function) > (MAX_KERNEL_LINES if is_kernel else MAX_BODY_LINES):
            found.append(function.name)
    return source.count("\n") > MAX_MODULE_LINES, found


def test_modules_and_functions_stay_short() -> None:
    modules: set[str] = set()
    functions: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        is_long, found = _too_long(path.read_text(encoding="utf-8"))
        modules |= {name} if is_long else set()
        functions |= {f"{name} {function}" for function in found}
    assert modules == LONG_MODULES
    assert functions == LONG_FUNCTIONS


@pytest.mark.parametrize(("decorator", "limit"), [("", 60), ("@njit(nogil=True, cache=True)\n", 120)])
def test_control_long_functions_are_found_whatever_their_docstring(decorator: str, limit: int) -> None:
    def source(lines: int) -> str:
        return f'{decorator}def f(a):\n    """One.\n\n    Two.\n    """\n' + "    a += 1\n" * lines

    assert _too_long(source(limit)) == (False, [])
    assert _too_long(source(limit + 1)) == (False, ["f"])
    nested = "class A:\n" + "".join(f"    {line}\n" for line in source(limit + 1).splitlines())
    assert _too_long(nested) == (False, ["f"])


def test_control_long_modules_are_found() -> None:
    assert _too_long("a = 1\n" * 500) == (False, [])
    assert _too_long("a = 1\n" * 501) == (True, [])
