"""Configuration of the documentation; warnings are errors in `make docs`."""

from __future__ import annotations

import atexit
import gc
import importlib
import math
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from sphinx.util import logging
from sphinx.util.parallel import make_chunks

import pyro_hoim
from pyro_hoim.interop import choose_backend

choose_backend()  # here first: kernels of two tutorials would race for the stamp of ArviZ's first import of a day

HERE = Path(__file__).resolve().parent
_LOCAL_DATA = HERE.parents[1] / "shared" / "data"
if "PYRO_HOIM_DATA" not in os.environ and _LOCAL_DATA.is_dir():  # else tutorials download what they need
    os.environ["PYRO_HOIM_DATA"] = str(_LOCAL_DATA)
shutil.copytree(HERE.parent / "tutorials", HERE / "tutorials", dirs_exist_ok=True)

# What Sphinx and every tutorial import stays. Python would look through it again and again for garbage.
gc.freeze()
gc.set_threshold(100_000, *gc.get_threshold()[1:])
_IPYTHON = tempfile.TemporaryDirectory(prefix="pyro-hoim-ipython-")
atexit.register(_IPYTHON.cleanup)
_STARTUP = Path(_IPYTHON.name, "profile_default", "startup", "garbage.py")
_STARTUP.parent.mkdir(parents=True)
_STARTUP.write_text("__import__('gc').set_threshold(100_000)\n")
os.environ["IPYTHONDIR"] = _IPYTHON.name

project = "pyro_hoim"
author = "pyro_hoim developers"
copyright = "2026, pyro_hoim developers"
version = release = pyro_hoim.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "myst_nb",
]
exclude_patterns = ["_build", "conf.py", "jupyter_execute", "tutorials/studies"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

# The inventories need the network, and an unreachable one is a warning: they are read where asked for.
if os.environ.get("DOCS_INTERSPHINX") == "1":
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "pyro": ("https://docs.pyro.ai/en/stable", None),
    }

napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Shape", "Randomness"]
autosummary_generate = False  # tables alone: what they link to is on the same page
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_preserve_defaults = True

# Tutorials are percent-format scripts, executed at every build; an exception in one stops the build.
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "force"
if os.environ.get("PYRO_HOIM_TEST_DATA") == "hidden":  # a build without the public data shows the code alone
    _NEEDS_DATA = re.compile(r"\bload_(?:adult|breast_cancer|classic3|mushroom)\b")
    nb_execution_excludepatterns = [
        f"tutorials/{path.name}" for path in (HERE / "tutorials").glob("*.py") if _NEEDS_DATA.search(path.read_text())
    ]
nb_output_stderr = "remove"  # progress bars and notices of other libraries
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds of a cell; two pages share the cores
nb_merge_streams = True

html_theme = "furo"
html_title = "pyro_hoim"
# Formulas without a network: the files of the package, whose extension would keep pages from being read in parallel.
_MATHJAX = Path(str(importlib.import_module("sphinx-mathjax-offline").__file__)).parent
html_static_path = ["_static", str(_MATHJAX / "static")]
mathjax_path = "mathjax/tex-chtml.js"


def _escape_shapes(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Write the leading star of a shape such as (*batch, d) so that it does not open an emphasis."""
    star = re.compile(r"(?<=[(\[,])( ?)\*(?=[a-z_.]+[,) ])")
    for i, line in enumerate(lines):
        parts = line.split("``")
        lines[i] = "``".join(part if j % 2 else star.sub(r"\1\\*", part) for j, part in enumerate(parts))


def _split_attributes(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Describe attributes that share a line, "lower, upper: limits", one by one; napoleon takes them for one."""
    inside, found = False, list[str]()
    for line in lines:
        if line and not line.startswith(" "):
            inside = line == "Attributes:"
        shared = re.match(r"    (\w+(?:, \w+)+): (.*)", line) if inside else None
        if shared is None:
            found.append(line)
            continue
        *first, last = shared.group(1).split(", ")
        found += [f"    {part}: see ``{last}``." for part in first]
        found.append(f"    {last}: {shared.group(2)}")
    lines[:] = found


def _summarise_module(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Begin the page of a package with a table of what it offers."""
    names = list(getattr(obj, "__all__", ())) if what == "module" else []
    if names:
        lines += ["", ".. autosummary::", "   :nosignatures:", "", *(f"   {each}" for each in names), ""]


def _skip_others(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out fields of named tuples, which their class describes, and what scikit-learn writes about its routing."""
    is_routing = re.fullmatch(r"set_\w+_request|get_metadata_routing", name.rpartition(".")[2]) is not None
    return True if is_routing or type(obj).__name__ == "_tuplegetter" else None


def _deal_tutorials(app: Any, env: Any, docnames: list[str]) -> None:
    """Spread the executed pages, which take longest, so that processes end together whatever each page takes.

    A process that has read one run of consecutive pages takes another, so runs begun later hold fewer of these.
    """
    executed = [name for name in docnames if name.startswith("tutorials/")]
    others = [name for name in docnames if name not in executed]
    runs = [len(run) for run in make_chunks(docnames, app.parallel)]
    begun = [*range(app.parallel), *reversed(range(app.parallel, len(runs)))][: len(runs)]  # Sphinx takes the last next
    part = len(executed) / max(1, len(runs) * (len(runs) + 1) / 2)
    read: dict[int, list[str]] = {}
    for turn, k in enumerate(begun):
        hand = math.ceil(part * (len(runs) - turn))
        queue = executed[:hand] + others + executed[hand:]
        read[k] = queue[: runs[k]]
        executed, others = ([name for name in names if name not in read[k]] for names in (executed, others))
    docnames[:] = [name for k in sorted(read) for name in read[k]]


def _find_unseen_figures(app: Any, doctree: Any, docname: str) -> None:
    """Warn of a figure that a tutorial shows by its words alone."""
    if "<Figure size" in doctree.astext():
        hint = "begin its first cell with '# %matplotlib inline'"
        logging.getLogger(__name__).warning("a figure is shown as words; %s", hint, location=docname)


def setup(app: Any) -> None:
    """Connect the six hooks."""
    app.connect("env-before-read-docs", _deal_tutorials)
    app.connect("autodoc-process-docstring", _escape_shapes, priority=100)
    app.connect("autodoc-process-docstring", _split_attributes, priority=110)
    app.connect("autodoc-process-docstring", _summarise_module, priority=120)
    app.connect("autodoc-skip-member", _skip_others)
    app.connect("doctree-resolved", _find_unseen_figures)
