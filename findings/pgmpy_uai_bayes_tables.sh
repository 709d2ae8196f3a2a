#!/usr/bin/env bash
# pgmpy 1.1.2: UAIReader reads tables of BAYES files with the child slowest, and parents in an order that depends on the hash seed.
#
# In the UAI format the child is the last variable of its scope, and the last variable changes fastest, so that two
# levels of a child of a parent of two levels are "0.128 0.872 0.920 0.080": two rows that sum to one. Seen: the CPD has
# P(0 | 0) = 0.128 and P(1 | 0) = 0.920, whose columns sum to 1.048 and 0.952. Of two parents the order is that of a set:
# some values of PYTHONHASHSEED give var_0, var_1, others var_1, var_0, for the same numbers. UAIWriter writes the scope
# with the child first ("3 2 0 1" for c given a and b).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pgmpy==1.1.2 numpy==2.4.6
cd "$folder"
cat > read.py <<'PYTHON'
import logging
import sys

logging.disable(logging.CRITICAL)

from pgmpy.factors.discrete import TabularCPD
from pgmpy.models import DiscreteBayesianNetwork
from pgmpy.readwrite import UAIReader, UAIWriter

if sys.argv[1] == "order":
    text = "BAYES\n3\n2 3 2\n3\n1 0\n1 1\n3 0 1 2\n\n2\n0.5 0.5\n\n3\n0.2 0.3 0.5\n\n12\n" + "0.5 " * 12 + "\n"
    print(*UAIReader(string=text).get_model().get_cpds("var_2").variables[1:])
else:
    text = "BAYES\n2\n2 2\n2\n1 0\n2 0 1\n\n2\n0.436 0.564\n\n4\n0.128 0.872\n0.920 0.080\n"
    values = UAIReader(string=text).get_model().get_cpds("var_1").get_values()
    model = DiscreteBayesianNetwork([("a", "c"), ("b", "c")])
    half = [[0.5] * 6] * 2
    model.add_cpds(TabularCPD("a", 2, [[0.2], [0.8]]), TabularCPD("b", 3, [[0.1], [0.3], [0.6]]))
    model.add_cpds(TabularCPD("c", 2, half, evidence=["a", "b"], evidence_card=[2, 3]))
    UAIWriter(model).write("out.uai")
    scope = open("out.uai").read().split("\n")[6]
    print("P(var_1 | var_0):", values.tolist(), "sums by parent:", values.sum(0).round(3).tolist(), "scope written:", scope)
    assert values.tolist() == [[0.128, 0.872], [0.920, 0.080]] and scope == "3 2 0 1"
PYTHON
"$folder/venv/bin/python" -m pip list 2>/dev/null | grep '^pgmpy '
"$folder/venv/bin/python" -W ignore read.py values
for seed in 0 1 2 3 4 5 6 7; do PYTHONHASHSEED=$seed "$folder/venv/bin/python" -W ignore read.py order; done | sort | uniq -c | tee orders
[ "$(wc -l < orders)" -eq 2 ]
echo "as described"
