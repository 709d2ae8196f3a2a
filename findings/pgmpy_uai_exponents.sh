#!/usr/bin/env bash
# pgmpy 1.1.2: UAIReader reads no number with an exponent or without a digit before the point, which UAIWriter writes.
#
# The UAI format has numbers as programs write them. Seen: UAIWriter writes the weight 0.00001 as 1e-05, and UAIReader
# refuses that file of its own (ParseException); it also refuses .5, which others write.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pgmpy==1.1.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import logging

logging.disable(logging.CRITICAL)

import pgmpy
from pgmpy.factors.discrete import DiscreteFactor
from pgmpy.models import DiscreteMarkovNetwork
from pgmpy.readwrite import UAIReader, UAIWriter
from pyparsing import ParseException


def is_read(text):
    try:
        UAIReader(string=text).get_model()
    except ParseException:
        return False
    return True


model = DiscreteMarkovNetwork([("a", "b")])
model.add_factors(DiscreteFactor(["a", "b"], [2, 2], [0.00001, 2, 3, 4]))
UAIWriter(model).write("out.uai")
text = open("out.uai").read()
print("pgmpy", pgmpy.__version__)
print("written:", text.split("\n")[-1], "read again:", is_read(text))
print("with 0.00001:", is_read(text.replace("1e-05", "0.00001")), "with .5:", is_read(text.replace("1e-05", ".5")))
assert "1e-05 2.0 3.0 4.0" in text and not is_read(text) and not is_read(text.replace("1e-05", ".5"))
assert is_read(text.replace("1e-05", "0.00001"))
print("as described")
PYTHON
