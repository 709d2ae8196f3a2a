#!/usr/bin/env bash
# numba 0.68.1: an overload, as Numba's own functions of arrays are, is compiled again for every set of options of callers.
#
# Seen: two callers with equal options share the code of an overload. A third one that differs by nogil alone, and a
# fourth one without a wrapper for C, each ask for an implementation of their own and compile it, though these options
# change nothing in it: they are not among those that it takes over from its caller. What it calls in turn is shared.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check numba==0.68.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import numba
import numpy as np
from numba import njit
from numba.core import event
from numba.extending import overload

asked = []


def spread(values):
    return values.max() - values.min()


@overload(spread)
def _spread(values):
    asked.append(values)
    return lambda values: values.max() - values.min()


def caller(values):
    return spread(values)


values, num_asked, num_compiled = np.arange(3.0), [], []
for options in ({}, {}, {"nogil": True}, {"no_cfunc_wrapper": True}):
    with event.install_recorder("numba:compile") as recorder:
        assert njit(**options)(caller)(values) == 2.0
    num_asked.append(len(asked))
    num_compiled.append(sum(e.is_start for _, e in recorder.buffer))
print("numba", numba.__version__)
print("options of the caller: none, none, nogil, no_cfunc_wrapper")
print("implementations asked for so far:", num_asked)
print("functions compiled:", num_compiled)
assert num_asked == [1, 1, 2, 3]
assert num_compiled[1:] == [1, 2, 2]  # the first one compiles what the overload calls, too
PYTHON
