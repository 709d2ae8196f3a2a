#!/usr/bin/env bash
# numba 0.68.1: a compiled function is compiled again for every bare number that another compiled function passes to it.
#
# Seen: called from Python with 0, 1 and True it has one signature, of int64 and bool. Called by a compiled function with
# the same constants it has a signature of Literal[int](0), one of Literal[int](1) and so on, each compiled with all that
# it calls in turn. Constants that the caller makes by a conversion, as np.int64(0), share one signature.
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


def entry(values, place, is_last):
    return values[-1] if is_last else values[place]


from_python, from_constants, from_typed = njit(entry), njit(entry), njit(entry)


@njit
def constants(values):
    return from_constants(values, 0, True) + from_constants(values, 1, False) + from_constants(values, 2, False)


@njit
def typed(values):
    no = np.bool_(False)
    first = from_typed(values, np.int64(0), np.bool_(True))
    return first + from_typed(values, np.int64(1), no) + from_typed(values, np.int64(2), no)


values = np.arange(3.0)
for place, is_last in ((0, True), (1, False), (2, False)):
    from_python(values, place, is_last)
assert constants(values) == typed(values) == 5.0
print("numba", numba.__version__)
for name, function in (("Python", from_python), ("constants", from_constants), ("typed numbers", from_typed)):
    print(f"called with {name}:", *(signature[1:] for signature in function.signatures), sep="\n    ")
assert [len(function.signatures) for function in (from_python, from_constants, from_typed)] == [1, 3, 1]
PYTHON
