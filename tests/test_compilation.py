"""Kernels compiled beforehand: all that Python calls are reached, and a compilation is announced in one line."""

import ast
import functools
import gc
import importlib
import logging
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
from numba import njit
from numba.core import event
from numba.core.registry import CPUDispatcher

import pyro_hoim
from pyro_hoim import InputError, compilation
from pyro_hoim.compute import jit as _jit
from pyro_hoim.dependency_network.learn import _row_kernels as _merge_kernels

from support.sources import nodes, trees

PACKAGE = Path(pyro_hoim.__file__).parent
_EXACT = "pyro_hoim.log_linear.exact._kernels."
WHEN_USED = {_EXACT + "accumulate", _EXACT + "silence"}  # steps that threads share: of few long sums, and of zeros


@functools.cache
def called_from_python():
    """Compiled functions that modules which are not compiled import, or that plain functions beside them name."""
    found = {}
    for path, tree in trees().items():
        *folders, stem = path.removesuffix(".py").split("/")
        package = ["pyro_hoim", *folders]
        if stem.endswith("kernels"):
            module = importlib.import_module(".".join([*package, stem]))
            for node in tree.body:
                if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
                    found |= kernels_of(module.__name__, names)
        elif "kernels" in (PACKAGE / path).read_text(encoding="utf-8"):
            attributes = {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute)}
            for node in nodes(tree):
                if isinstance(node, ast.ImportFrom) and node.level:
                    for name in [alias.name for alias in node.names]:
                        parts = [*package[: len(package) - node.level + 1], *filter(None, [node.module, name])]
                        if name.endswith("kernels"):  # a module, whose functions are attributes
                            found |= kernels_of(".".join(parts), attributes)
                        elif parts[-2].endswith("kernels"):
                            found |= kernels_of(".".join(parts[:-1]), {name})
    return found


def kernels_of(module, names):
    """Those of the names that are compiled functions of a module."""
    values = {name: getattr(importlib.import_module(module), name, None) for name in sorted(names)}
    return {f"{module}.{name}": value for name, value in values.items() if isinstance(value, CPUDispatcher)}


def test_every_kernel_that_python_calls_is_compiled_and_a_second_time_none():
    functions = called_from_python()
    assert len(functions) > 25
    compilation.warm_up(1)
    assert {name for name, function in functions.items() if not function.signatures} <= WHEN_USED < functions.keys()
    assert compilation.warm_up(1).kernels == ()


def test_whatever_python_calls_has_an_entry():
    inner = [name for name, function in called_from_python().items() if function.targetoptions["no_cpython_wrapper"]]
    assert inner == []
    assert _jit.write.targetoptions["no_cpython_wrapper"]  # the control


def fresh(name):
    """A kernel of the library without its cache."""
    return njit(getattr(_merge_kernels, name).py_func)


def test_the_compilation_of_a_kernel_is_recorded(monkeypatch):
    def compile_some():
        fresh("merge_wins")(1.0, 1.0, 1.0, 1.0, 1.0)
        njit(lambda x: x + 1)(1)  # of another program
        nowhere = types.FunctionType((lambda x: x + 2).__code__, {"__name__": None})  # as generated code may be
        assert nowhere.__module__ is None
        assert njit(nowhere)(1) == 3

    monkeypatch.setattr(compilation, "_PARTS", {"some": compile_some})
    assert compilation._compile(["some"]) == ["pyro_hoim.dependency_network.learn._row_kernels.merge_wins"]


def test_one_line_tells_of_compilation_and_only_of_ours(caplog):
    notice = _jit.CompilationNotice()
    with caplog.at_level(logging.WARNING, "pyro_hoim"), event.install_listener("numba:compile", notice):
        njit(lambda x: x + 1)(1)
        assert not notice.is_given
        for _ in range(2):
            fresh("merge_wins")(1.0, 1.0, 1.0, 1.0, 1.0)
    assert notice.is_given
    # The listener that the library itself has installed speaks at most once, too.
    assert 1 <= [record.getMessage() for record in caplog.records].count(_jit.NOTICE) <= 2


@pytest.mark.parametrize("is_on", [True, False])
def test_garbage_is_searched_for_after_parts_that_compile_and_in_the_end_as_before(monkeypatch, is_on):
    during, collected = [], []

    def part():
        during.append(gc.isenabled())
        if len(during) == 3:
            raise ValueError
        if len(during) == 1:
            njit(lambda x: x)(1)

    monkeypatch.setattr(compilation, "_PARTS", dict.fromkeys(["one", "two", "three"], part))
    monkeypatch.setattr(gc, "collect", lambda: collected.append(len(during)))
    before = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(ValueError):
            compilation._compile(["one", "two", "three"])
        assert gc.isenabled() == is_on
    finally:
        (gc.enable if before else gc.disable)()
    assert during == [False] * 3 and collected == [1]


def test_processes_report_what_they_compiled(monkeypatch):
    monkeypatch.setattr(compilation, "_PARTS", dict.fromkeys(["sources", "fibres"], lambda: None))
    found = compilation.warm_up(2)
    assert found.num_processes == 2
    assert str(found).startswith("every kernel was compiled already" if not found.kernels else "compiled")


def test_a_process_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(compilation, "_PARTS", dict.fromkeys(["no such part", "nor this"], lambda: None))
    monkeypatch.setattr(sys, "executable", shutil.which("false"))  # ends with status 1 as an interpreter would
    with pytest.raises(RuntimeError, match=r"compiling no such part ended with exit status 1"):
        compilation.warm_up(2)


@pytest.mark.parametrize("jobs", [0, -1, True, 1.0, "2"])
def test_wrong_jobs(jobs):
    with pytest.raises(InputError, match="jobs: expected a whole number from 1 or None, received"):
        compilation.warm_up(jobs)


def test_numbas_own_compiler_serves_where_its_version_is_not_known(tmp_path):
    program = (
        "import numba, numpy as np\n"
        "numba.__version__ = '9.1.0'\n"
        "from pyro_hoim.compute import jit\n"
        "assert {jit.ALONE['pipeline_class'], jit.LINKED['pipeline_class']} == {numba.core.compiler.Compiler}\n"
        "from pyro_hoim.log_linear.goodness.fibre import listed_tables\n"
        "margins = [np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])]\n"
        "print(len(listed_tables(np.array([3, 1, 1, 3]), np.ones(4, dtype=bool), margins)[0]))\n"
    )
    paths = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=paths)
    assert int(done.stdout) == 5  # the first cell says all, from 0 to 4
    assert _jit.LINKED["pipeline_class"] is not _jit.ALONE["pipeline_class"]  # control: this version is known
