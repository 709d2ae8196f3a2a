# One verb per task. `make demo` and `make test` each work as the only command on a fresh machine with Python 3.11:
# they make a virtual environment in .venv and install the versions of constraints.txt into it. With another Python,
# such as `make test PYTHON=python3.13`, it is .venv-3.13 with the newest releases, those of constraints-latest.txt.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
WORKERS ?= 2
SHIFT ?= 1
# A shim of pyenv may stand for an interpreter that is not the chosen one: then the installed one is taken.
INTERPRETER := $(shell for python in $(PYTHON) "$$(pyenv root 2>/dev/null)"/versions/*/bin/$(notdir $(PYTHON)); do \
	"$$python" -c 1 2>/dev/null && echo "$$python" && break; done)
VERSION := $(if $(INTERPRETER),$(shell $(INTERPRETER) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
VENV := .venv$(if $(filter 3.11,$(VERSION)),,-$(VERSION))
CONSTRAINTS := $(if $(filter 3.11,$(VERSION)),constraints.txt,constraints-latest.txt)
BIN := $(VENV)/bin
SOURCES := pyproject.toml $(CONSTRAINTS)
# Modules are compiled when they are first imported: most of the thousands that are installed never are.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint $(CONSTRAINTS)

KERNELS := $(shell grep -rlE 'numba|compute.jit' pyro_hoim --include='*.py')
# Where a newer library could change something: all doctests; frames, files, plots, pages, estimators, ArviZ, and laws under
# the modes of PyTorch; of commands, reports and results one file of each kind. What we compute or parse ourselves is of
# `make test`, as are what a browser makes of pages, whose figures others test, and what stands first on them.
tests_of = $(patsubst %,tests/$(1)/test_%.py,$(2))
MEETING := pyro_hoim $(addprefix tests/,compute core datasets estimators plots) \
	$(patsubst %,tests/test_%.py,atomic compilation device guard public_api) \
	$(call tests_of,cli,commands families forty_files options system) \
	$(call tests_of,data,bins columns doors encoding files_of_others frames row_options safe_cells table_file typed_files wide) \
	$(call tests_of,data/sources,as_whole files rows) \
	$(call tests_of,front,fit frames_everywhere) \
	$(call tests_of,report,folder labels_and_counts report words) \
	$(call tests_of,results,conformance summary) \
	$(call tests_of,interop,arviz chains loo markov) \
	$(call tests_of,runs,damaged_files model_files)
# Of those files, what is of our own modules and kernels alone.
OUR_OWN := every_kernel_that_python_calls or processes_report or every_cache_of_tensors or its_own_family_alone or \
	importing_has_no_side_effects or a_shift_moves_every_generator or equal_bits_whatever_the_size
# What could need public data; collecting all the others takes longer than these tests do.
HIDING = pyro_hoim/datasets $(shell grep -rlE 'shared_data|datasets|guard' tests --include='test_*.py')
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

export OMP_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE  # every worker and child process would compile the sources and the tests anew

.DEFAULT_GOAL := help
.PHONY: help interpreter packages environment demo test newest offline shifted peers slow lint format types layers docs tutorials benchmarks clean

help:  ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' $(MAKEFILE_LIST)

interpreter:  ## The Python that PYTHON stands for, and its version; nothing where it cannot be run
	@echo $(INTERPRETER) $(VERSION)

$(VENV)/python.stamp: $(SOURCES)
	@$(or $(INTERPRETER),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, $(PYTHON) is none: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(INTERPRETER) -m venv $(VENV)
	@touch $@

$(VENV)/core.stamp: $(VENV)/python.stamp
	$(INSTALL) --editable .
	@touch $@

$(VENV)/test.stamp: $(VENV)/python.stamp
	$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/core.stamp

$(VENV)/docs.stamp: $(VENV)/test.stamp  # one installation at a time
	$(INSTALL) --editable '.[docs]'
	@touch $@ $(VENV)/core.stamp

$(VENV)/kernels.stamp: $(VENV)/test.stamp $(KERNELS)
	$(BIN)/python -m pyro_hoim.compilation
	@touch $@

packages: $(VENV)/docs.stamp  ## Every package that tests, checks and the documentation need, installed

environment: $(VENV)/kernels.stamp  ## What tests need, installed and compiled

demo: $(VENV)/core.stamp  ## Fit the Czech autoworkers table and write the report
	$(BIN)/pyro-hoim fit

test: $(VENV)/kernels.stamp  ## Tests and doctests, without those marked slow
	$(PYTEST) --durations=15 -m "not slow"

newest: $(VENV)/kernels.stamp  ## Doctests, and the tests of what meets other libraries: for PYTHON=python3.13
	$(PYTEST) -m "not slow" -k "not ($(OUR_OWN))" $(MEETING)

offline: $(VENV)/kernels.stamp  ## The tests of public data and of its loaders, as where the data is absent
	PYRO_HOIM_TEST_DATA=hidden $(PYTEST) -m "not slow" -k "public_data or datasets or guard" $(HIDING)

shifted: $(VENV)/kernels.stamp  ## Tests with every seed moved (SHIFT=1, 2, ...)
	PYRO_HOIM_TEST_SEED_SHIFT=$(SHIFT) $(PYTEST) -m "not slow"

peers: $(VENV)/kernels.stamp  ## The conversions to and from pgmpy and mbi, which are installed for it
	$(INSTALL) --editable '.[peers]'
	$(PYTEST) tests/interop/test_markov.py

slow: $(VENV)/kernels.stamp  ## Every test, random hypothesis examples included
	HYPOTHESIS_PROFILE=nightly $(PYTEST)

lint: $(VENV)/test.stamp  ## Style, docstrings and annotations
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/test.stamp  ## Rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/test.stamp  ## Static types
	$(BIN)/pyright --pythonpath $(BIN)/python

layers: $(VENV)/test.stamp  ## Direction of imports
	$(BIN)/lint-imports

docs: $(VENV)/docs.stamp  ## Documentation, warnings are errors; the tutorials and README's example are executed
	$(BIN)/python -m pytest -q tests/test_pages.py -k test_the_program_draws  # the other pages are of `make test`
	$(BIN)/python -m sphinx -q -W --keep-going -j 2 -b html docs docs/_build/html
	@echo "documentation: docs/_build/html/index.html"

tutorials: $(VENV)/core.stamp  ## Run each tutorial as a script
	@set -e; for file in tutorials/*.py; do echo "$$file"; MPLBACKEND=Agg $(BIN)/python $$file; done

benchmarks: $(VENV)/test.stamp  ## Run the benchmark scripts; they append to docs/benchmarks.md
	@set -e; for file in tests/benchmarks/bench_*.py; do echo "$$file"; PYTHONPATH=tutorials $(BIN)/python $$file --append; done

clean:  ## Remove the environments and everything built
	rm -rf .venv .venv-* docs/_build docs/jupyter_execute dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
