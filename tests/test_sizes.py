"""Sizes that modules and functions keep to, with controls."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "pyro_hoim"
MAX_MODULE_LINES, MAX_BODY_LINES, MAX_KERNEL_LINES, MAX_PARAMETERS = 1000, 80, 120, 10


def _body_lines(function):
    """Lines of a body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def _too_long(source):
    """Whether a module is too long, and the names of its functions that are; kernels of Numba may be longer."""
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = []
    for function in functions:
        is_kernel = any(ast.unparse(decorator).startswith("njit") for decorator in function.decorator_list)
        if _body_lines(function) > (MAX_KERNEL_LINES if is_kernel else MAX_BODY_LINES):
            found.append(function.name)
    return source.count("\n") > MAX_MODULE_LINES, found


def _wide(source):
    """Public functions and constructors of a module with too many parameters, ``self`` not counted."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef) or (node.name.startswith("_") and node.name != "__init__"):
            continue
        if any(ast.unparse(decorator).startswith(("njit", "click.")) for decorator in node.decorator_list):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if len([argument for argument in arguments if argument.arg not in ("self", "cls")]) > MAX_PARAMETERS:
            found.append(node.name)
    return found


EMPTY_WORDS = {"found", "kept", "held", "own", "said", "told", "place"}


def _empty_names(source):
    """Functions of more than ten lines with locals or parameters whose names do not say what they hold."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and _body_lines(function) > 10:
            inner = {
                id(n)
                for f in ast.walk(function)
                if isinstance(f, ast.FunctionDef) and f is not function
                for n in ast.walk(f)
            }
            nodes = [node for node in ast.walk(function) if id(node) not in inner]
            names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            names |= {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}
            found += [function.name] if names & EMPTY_WORDS else []
    return found


def test_locals_of_long_functions_say_what_they_hold():
    for path in PACKAGE.rglob("*.py"):
        assert _empty_names(path.read_text(encoding="utf-8")) == [], path
    lines = "\n".join(f"    a{i} = {i}" for i in range(10))
    assert (
        _empty_names(f"def f():\n{lines}\n    found = 1\n") == ["f"] and _empty_names("def f(own): ...\n") == []
    )  # control


def test_public_functions_take_few_parameters():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not path.stem.endswith("kernels"):
            found |= {f"{name} {function}" for function in _wide(path.read_text(encoding="utf-8"))}
    assert found == set()


def test_control_wide_functions_are_found():
    names = ", ".join(f"a{i}" for i in range(10))
    assert _wide(f"class A:\n    def __init__(self, {names}): ...\ndef _f({names}, b): ...\n") == []
    assert _wide(f"class A:\n    def __init__(self, {names}, *, b=1): ...\ndef f({names}, b): ...\n") == [
        "f",
        "__init__",
    ]


def test_modules_and_functions_stay_short():
    modules = set()
    functions = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        is_long, found = _too_long(path.read_text(encoding="utf-8"))
        modules |= {name} if is_long else set()
        functions |= {f"{name} {function}" for function in found}
    assert modules == set()
    assert functions == set()


@pytest.mark.parametrize(
    ("decorator", "limit"), [("", MAX_BODY_LINES), ("@njit(nogil=True, cache=True)\n", MAX_KERNEL_LINES)]
)
def test_control_long_functions_are_found_whatever_their_docstring(decorator, limit):
    def source(lines):
        return f'{decorator}def f(a):\n    """One.\n\n    Two.\n    """\n' + "    a += 1\n" * lines

    assert _too_long(source(limit)) == (False, [])
    assert _too_long(source(limit + 1)) == (False, ["f"])
    nested = "class A:\n" + "".join(f"    {line}\n" for line in source(limit + 1).splitlines())
    assert _too_long(nested) == (False, ["f"])


def test_control_long_modules_are_found():
    assert _too_long("a = 1\n" * MAX_MODULE_LINES) == (False, [])
    assert _too_long("a = 1\n" * (MAX_MODULE_LINES + 1)) == (True, [])
