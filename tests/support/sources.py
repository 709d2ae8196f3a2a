"""Sources of the library, parsed once for the tests of a file."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "pyro_hoim"


def trees() -> dict[str, ast.Module]:
    """The parsed module of every file by its path in the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 200
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
