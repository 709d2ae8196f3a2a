"""Imports between modules: no circles, nothing private across packages, families apart; each rule with a control.

Imports inside functions and under ``TYPE_CHECKING`` count, and a name of a lazy package counts as its module's.
"""

import ast
import importlib.util
import subprocess
import sys
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from pyro_hoim import fit, load_table

from support.sources import nodes, trees

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = ("log_linear", "generalized_root", "dependency_network")


class _Modules:
    """Modules by dotted name, and who imports what of whom."""

    def __init__(self, sources):
        self.trees = {}
        self.packages = set()
        self.exports = {}
        for path, source in sources.items():
            parts = path.rsplit(".", 1)[0].split("/")
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if path.endswith(".pyi"):
                nodes = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
                self.exports[name] = {alias.name: f"{name}.{node.module}" for node in nodes for alias in node.names}
            else:
                self.trees[name] = source if isinstance(source, ast.Module) else ast.parse(source)
                if parts[-1] == "__init__":
                    self.packages.add(name)

    def _home(self, base, name):
        """The module that defines a name which is imported from ``base``."""
        if f"{base}.{name}" in self.trees:
            return f"{base}.{name}"
        there = self.exports.get(base, {}).get(name)
        return base if there is None else self._home(there, name)

    @cached_property
    def imports(self):
        """Importing module, module of the name, name."""
        return list(self._imports())

    def _imports(self):
        for module, tree in self.trees.items():
            for node in nodes(tree):
                if isinstance(node, ast.ImportFrom):
                    depth = node.level - (module in self.packages)
                    above = module.split(".")[: -depth or None] if node.level else []
                    base = ".".join([*above, *([node.module] if node.module else [])])
                    for alias in node.names:
                        if base.split(".")[0] == "pyro_hoim":
                            yield module, self._home(base, alias.name), alias.name
                elif isinstance(node, ast.Import):
                    yield from ((module, alias.name, "") for alias in node.names if alias.name in self.trees)


@pytest.fixture(scope="module")
def library():
    stubs = (ROOT / "pyro_hoim").rglob("*.pyi")
    named = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in stubs}
    return _Modules(named | {f"pyro_hoim/{path}": tree for path, tree in trees().items()})


def _circle(modules):
    """Modules along a circle of imports; empty where there is none."""
    graph = {}
    for module, home, _ in modules.imports:
        if home != module:
            graph.setdefault(module, set()).add(home)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def _private_imports(modules):
    """Private modules and names that a module outside their package imports."""
    found = list[str]()
    for module, home, name in modules.imports:
        parts = home.split(".")
        private = [index for index, part in enumerate(parts) if part.startswith("_") and part != "_version"]
        owner = parts[: private[0]] if private else parts if home in modules.packages else parts[:-1]
        is_private = bool(private) or (name.startswith("_") and not name.startswith("__"))
        if is_private and module.split(".")[: len(owner)] != owner:
            found.append(f"{module}: {home}.{name}")
    return found


def _families_that_meet(modules):
    """Imports of one family by another."""
    found = list[str]()
    for module, home, name in modules.imports:
        ours, theirs = module.split(".")[1:2], home.split(".")[1:2]
        if ours != theirs and {*ours, *theirs} <= set(FAMILIES) and ours and theirs:
            found.append(f"{module}: {home}.{name}")
    return found


def test_no_circles_of_imports(library):
    assert len(library.trees) > 200 and len(library.imports) > 2000
    assert _circle(library) == []


def test_nothing_private_is_imported_across_packages(library):
    assert _private_imports(library) == []


def test_families_do_not_import_one_another(library):
    assert _families_that_meet(library) == []


BASE = {
    "pyro_hoim/__init__.py": "",
    "pyro_hoim/a/__init__.py": "",
    "pyro_hoim/a/one.py": "x = _y = 1\n",
    "pyro_hoim/a/_two.py": "z = 1\n",
    "pyro_hoim/b/__init__.py": "",
    "pyro_hoim/b/__init__.pyi": "from .main import f as f\n",
    "pyro_hoim/b/main.py": "from ..a.one import x\nfrom ..a import one\ndef f(): ...\n",
}


@pytest.mark.parametrize(
    "line",
    [
        "from ..b.main import f",
        "from ..b import f",
        "def g():\n    from ..b import f",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..b import main",
        "import pyro_hoim.b.main",
    ],
)
def test_control_circles_are_found(line):
    assert _circle(_Modules(BASE)) == []
    assert {"pyro_hoim.a.one", "pyro_hoim.b.main"} <= set(
        _circle(_Modules({**BASE, "pyro_hoim/a/one.py": f"x = 1\n{line}\n"}))
    )


@pytest.mark.parametrize("line", ["from ..a._two import z", "from ..a import _two", "from ..a.one import _y"])
def test_control_private_imports_are_found(line):
    assert _private_imports(_Modules({**BASE, "pyro_hoim/a/one.py": "from ._two import z\n"})) == []
    assert len(_private_imports(_Modules({**BASE, "pyro_hoim/b/main.py": line}))) == 1


def test_control_meeting_families_are_found():
    sources = {
        "pyro_hoim/log_linear/x.py": "from ..core import y\nfrom .z import w\n",
        "pyro_hoim/generalized_root/r.py": "def f():\n    from ..log_linear.x import g\n",
    }
    assert len(_families_that_meet(_Modules(sources))) == 1


# Modules that cost a command on a model as much as its work does, and that none of these needs.
COSTLY = (
    "joblib",
    "matplotlib",
    "numba",
    "pyro_hoim.boltzmann",
    "pyro_hoim.dependency_network",
    "pyro_hoim.generalized_root",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.sparse.csgraph",
    "scipy.stats",
    "sympy",
)
IMPORTING = """
import sys
import pandas as pd
import pyro_hoim as hoim
from pyro_hoim.cli import run
model, rows = sys.argv[1:]
for words in (
    ["score", model, rows], ["predict", model, rows, "--target", "Gender"], ["sample", model, "-n", "2"],
    ["log-z", model], ["mode", model], ["margins", model, "Gender"], ["interactions", model], ["tables"],
):
    assert run(words) == 0, words
print(*sys.modules, file=sys.stderr)
hoim.plan(pd.DataFrame({"a": [0, 1] * 50, "b": [0, 0, 1, 1] * 25, "c": list("xyxz") * 25}))
print(*sys.modules, file=sys.stderr)
hoim.fit(".^2", hoim.load_table("czech_autoworkers").to_pandas()).summary()
print(*sys.modules, file=sys.stderr)
run(["score", "--help"])
print(*sys.modules, file=sys.stderr)
"""
FAMILIES_BESIDE = {"pyro_hoim.boltzmann", "pyro_hoim.dependency_network", "pyro_hoim.generalized_root"}


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """What a process has imported after commands on a model, then a plan, a fit with its summary, and a help text."""
    folder = tmp_path_factory.mktemp("commands")
    model, rows = str(folder / "model.safetensors"), folder / "rows.csv"
    table = load_table("ucb_admissions")
    fit("Admit * Gender + Dept", table).save(model)
    rows.write_text("Admit,Gender,Dept\nAdmitted,Male,A\nRejected,Female,B\n", encoding="utf-8")
    command = [sys.executable, "-c", IMPORTING, model, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [set(line.split()) for line in done.stderr.splitlines()]


def test_commands_on_a_model_import_what_they_need(imported):
    assert all(importlib.util.find_spec(name) for name in COSTLY)
    assert not {*COSTLY} & imported[0]


def test_a_plan_imports_no_other_family(imported):
    assert not (FAMILIES_BESIDE | {"matplotlib.pyplot"}) & imported[1]


def test_a_summary_imports_its_own_family_alone(imported):
    assert not (FAMILIES_BESIDE | {"matplotlib", "scipy.stats", "arviz", "sklearn"}) & imported[2]
    assert "pyro_hoim.log_linear" in imported[2]


def test_a_list_of_the_tables_imports_no_arrays():
    """Nor frames, nor tensors: it takes a tenth of the time of their imports."""
    code = "import sys\nfrom pyro_hoim.cli import run\nrun(['tables'])\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "titanic" in done.stdout
    assert "click" in done.stderr.split()  # the control
    assert not {"numpy", "pandas", "torch"} & {*done.stderr.split()}


def test_control_options_of_all_families_import_them(imported):
    assert {"matplotlib", "pyro_hoim.generalized_root", "scipy.stats"} <= imported[3]
