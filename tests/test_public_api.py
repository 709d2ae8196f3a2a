"""What a user can import, what importing does not do, and that docstrings agree with signatures."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyro_hoim

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pyro_hoim"


def _modules():
    found = pkgutil.walk_packages([str(PACKAGE)], "pyro_hoim.")
    return sorted(info.name for info in found if not info.name.endswith("__main__"))


MODULES = _modules()


def _public_objects():
    """Classes and functions without an underscore, of modules without one."""
    found = {}
    for name in (name for name in MODULES if "._" not in name):
        for public, value in vars(importlib.import_module(name)).items():
            is_ours = getattr(value, "__module__", None) == name and not public.startswith("_")
            if is_ours and (inspect.isclass(value) or inspect.isfunction(value)):
                found[id(value)] = (f"{name}.{public}", value)
    return sorted(found.values(), key=lambda item: item[0])


def test_exported_names_are_those_of_the_stubs():
    stubs = sorted(PACKAGE.rglob("__init__.pyi"))
    assert len(stubs) > 3
    for stub in stubs:
        name = ".".join(stub.parent.relative_to(ROOT).parts)
        package, found = importlib.import_module(name), set[str]()
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            assert isinstance(node, ast.ImportFrom) and node.level == 1
            home = package if node.module is None else importlib.import_module(f"{name}.{node.module}")
            for alias in node.names:
                assert getattr(package, alias.name) is getattr(home, alias.name), alias.name
                found.add(alias.name)
        assert set(package.__all__) == found, name


def test_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="fitt"):
        _ = pyro_hoim.fitt


def test_modules_say_what_they_are_and_declare_names_that_exist():
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, name
        names = getattr(module, "__all__", [])
        if any(part.startswith("_") for part in name.split(".")[1:]):
            assert not names, f"{name} is private"
        assert [public for public in names if not hasattr(module, public)] == [], name
        assert len(set(names)) == len(names), name


@pytest.mark.fixed_seed  # moving the seeds of a process imports PyTorch
def test_importing_has_no_side_effects_and_is_lazy():
    program = f"""
import sys, random
import numpy, torch
def state():
    return (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), torch.initial_seed(),
            torch.get_rng_state().sum().item(), torch.distributions.Distribution._validate_args,
            random.getstate(), numpy.random.get_state()[1].tolist(), numpy.geterr())
import pyro_hoim
pyro_hoim.warm_up
assert not {{"pyro", "arviz", "matplotlib.pyplot", "numba"}} & set(sys.modules), "imported too early"
import pyro  # Pyro itself sets torch's validation flag
before = state()
import importlib
for name in {MODULES!r}:
    importlib.import_module(name)
assert "matplotlib.pyplot" not in sys.modules, "plotting is imported late"
assert "arviz" not in sys.modules, "ArviZ is imported late"
assert state() == before
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _documented_arguments(docstring):
    text = inspect.cleandoc(docstring)
    parts = re.split(r"^([A-Z]\w+):$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if "Args" not in sections:
        return None
    lines = re.findall(r"^    ((?:\\?\*)*\w+(?:, (?:\\?\*)*\w+)*)(?: \(.*?\))?:", sections["Args"], flags=re.MULTILINE)
    return [name.strip().lstrip("\\*") for line in lines for name in line.split(",")]


def _callables():
    rows = []
    for path, value in _public_objects():
        if inspect.isclass(value):
            rows.append((path, value, value.__doc__ or ""))
            for name, member in vars(value).items():
                function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
                if inspect.isfunction(function) and not name.startswith("_"):
                    rows.append((f"{path}.{name}", function, function.__doc__ or ""))
        else:
            rows.append((path, value, value.__doc__ or ""))
    return rows


def test_documented_arguments_are_those_of_the_signature():
    wrong = dict[str, set[str]]()
    for path, value, docstring in _callables():
        documented = _documented_arguments(docstring)
        if documented is not None:
            actual = {
                name
                for name in inspect.signature(value).parameters
                if name not in ("self", "cls") and not name.startswith("_")
            }
            wrong[path] = actual ^ set(documented)
    assert len(wrong) > 350  # the check is not about nothing
    assert {path: names for path, names in wrong.items() if names} == {}


def test_public_objects_are_documented():
    assert [path for path, value in _public_objects() if not inspect.getdoc(value)] == []


def test_version_is_the_same_everywhere():
    version = pyro_hoim.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
