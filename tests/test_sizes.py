"""Sizes that modules and functions keep to, with controls."""

import ast

import pytest

from support import sources

MAX_MODULE_LINES, MAX_BODY_LINES, MAX_KERNEL_LINES, MAX_PARAMETERS = 1000, 80, 120, 10


def _body_lines(function):
    """Lines of a body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def _too_long(tree):
    """Whether a module is too long, and the names of its functions that are; kernels of Numba may be longer."""
    functions = [node for node in sources.nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = []
    for function in functions:
        is_kernel = any(ast.unparse(decorator).startswith("njit") for decorator in function.decorator_list)
        if _body_lines(function) > (MAX_KERNEL_LINES if is_kernel else MAX_BODY_LINES):
            long.append(function.name)
    return (tree.body[-1].end_lineno if tree.body else 0) > MAX_MODULE_LINES, long


def _wide(tree):
    """Public functions and constructors of a module with too many parameters, ``self`` not counted."""
    found = []
    for node in sources.nodes(tree):
        if not isinstance(node, ast.FunctionDef) or (node.name.startswith("_") and node.name != "__init__"):
            continue
        if any(ast.unparse(decorator).startswith(("njit", "click.")) for decorator in node.decorator_list):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if len([argument for argument in arguments if argument.arg not in ("self", "cls")]) > MAX_PARAMETERS:
            found.append(node.name)
    return found


@pytest.fixture(scope="module")
def trees():
    return sources.trees()


EMPTY_WORDS = {"found", "kept", "held", "own", "said", "told", "place"}


def _empty_names(tree):
    """Functions of more than ten lines with locals or parameters whose names do not say what they hold."""
    functions, left = [], [(tree, set())]  # nodes to look through, with the names of their function
    while left:
        node, names = left.pop()
        if isinstance(node, ast.FunctionDef):
            names = {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
            functions.append((node, names))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        left += [(child, names) for child in ast.iter_child_nodes(node)]
    return [function.name for function, names in functions if names & EMPTY_WORDS and _body_lines(function) > 10]


def test_locals_of_long_functions_say_what_they_hold(trees):
    assert {name: found for name, tree in trees.items() if (found := _empty_names(tree))} == {}
    lines = "\n".join(f"    a{i} = {i}" for i in range(10))
    assert _empty_names(ast.parse(f"def f():\n{lines}\n    found = 1\n")) == ["f"]  # control
    assert _empty_names(ast.parse("def f(own): ...\n")) == []


def test_public_functions_take_few_parameters(trees):
    # scikit-learn reads the parameters of an estimator off its constructor, so that none of them can be grouped.
    free = ("kernels.py", "estimators/joint.py")
    modules = {name: tree for name, tree in trees.items() if not name.endswith(free)}
    assert {name: found for name, tree in modules.items() if (found := _wide(tree))} == {}


def test_control_wide_functions_are_found():
    names = ", ".join(f"a{i}" for i in range(10))
    narrow = f"class A:\n    def __init__(self, {names}): ...\ndef _f({names}, b): ...\n"
    wide = f"class A:\n    def __init__(self, {names}, *, b=1): ...\ndef f({names}, b): ...\n"
    assert [_wide(ast.parse(source)) for source in (narrow, wide)] == [[], ["f", "__init__"]]


def test_modules_and_functions_stay_short(trees):
    assert {name: found for name, tree in trees.items() if (found := _too_long(tree)) != (False, [])} == {}


@pytest.mark.parametrize(
    ("decorator", "limit"), [("", MAX_BODY_LINES), ("@njit(nogil=True, cache=True)\n", MAX_KERNEL_LINES)]
)
def test_control_long_functions_are_found_whatever_their_docstring(decorator, limit):
    head = f'{decorator}def f(a):\n    """One.\n\n    Two.\n    """\n'
    short, long = (head + "    a += 1\n" * lines for lines in (limit, limit + 1))
    nested = "class A:\n" + "".join(f"    {line}\n" for line in long.splitlines())
    found = [_too_long(ast.parse(source)) for source in (short, long, nested)]
    assert found == [(False, []), (False, ["f"]), (False, ["f"])]


def test_control_long_modules_are_found():
    lengths = (MAX_MODULE_LINES, MAX_MODULE_LINES + 1)
    assert [_too_long(ast.parse("a = 1\n" * lines)) for lines in lengths] == [(False, []), (True, [])]
