#!/usr/bin/env bash
# scipy 1.17.1: loadarff makes missing nominal cells a value that is not declared, and drops the weights of rows.
#
# Weka's format has ? for a missing cell, and may have a weight in braces behind a row. Seen: a missing nominal cell is b'?',
# though no level of that name is declared (of numbers it is nan), so that a column of {x,y} counts three values; rows with
# the weights 2 and 0.5 are read without them and without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check scipy==1.17.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W error - <<'PYTHON'
import io

import scipy
from scipy.io import arff


def read(rows):
    head = "@relation r\n@attribute a {x,y}\n@attribute b numeric\n@data\n"
    values, about = arff.loadarff(io.StringIO(head + rows))
    return values.tolist(), about["a"]


missing, declared = read("?,?\nx,1\n")
weighted, _ = read("x,1,{2}\ny,2,{0.5}\n")
print("scipy", scipy.__version__)
print("missing:", missing, "declared:", declared)
print("weighted:", weighted)
assert missing[0][0] == b"?" and missing[0][1] != missing[0][1] and declared == ("nominal", ("x", "y"))
assert weighted == [(b"x", 1.0), (b"y", 2.0)]
print("as described")
PYTHON
