"""Sources of the library, parsed once for all tests."""

import ast
import gc
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "pyro_hoim"


@contextmanager
def uncollected() -> Generator[None]:
    """Look for no garbage among many new objects, which takes three quarters of the time of parsing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@cache
def trees() -> dict[str, ast.Module]:
    """The parsed module of every file by its path in the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 200
    with uncollected():
        return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    """All nodes of a module, which a second look through its parts would take half a second for."""
    return list(ast.walk(tree))
