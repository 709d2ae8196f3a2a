#!/usr/bin/env bash
# pyAgrum 3.3.1: loadMRF reads tables of ascending scopes with the first variable fastest, and saveUAI writes parents so.
#
# In the UAI format the last variable of a scope changes fastest, whatever its number. Seen: of the scope "2 0 1" with the
# numbers 1 2 3 4, loadMRF takes 2 for x0 = 1, x1 = 0; of the scope "2 1 0" it takes 2 for x0 = 1, x1 = 0 as well, which
# is right there: the smallest number is always fastest. Its own files of Markov fields have descending scopes, so that
# they are right. saveUAI of a Bayesian network writes the scope "3 0 1 2" of c given a and b and its rows by the first
# parent fastest: a=0 b=0, a=1 b=0, a=0 b=1, ...
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyAgrum==3.3.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pyagrum as gum


def at_one_and_zero(scope):
    """Weight of x0 = 1, x1 = 0 in a file."""
    with open("m.uai", "w") as file:
        file.write(f"MARKOV\n2\n2 2\n1\n2 {scope}\n\n4\n1 2 3 4\n")
    field = gum.loadMRF("m.uai")
    return field.factor({0, 1})[{"0": 1, "1": 0}]


network = gum.BayesNet()
a, b, c = (network.add(gum.LabelizedVariable(name, name, size)) for name, size in (("a", 2), ("b", 3), ("c", 2)))
network.addArc(a, c)
network.addArc(b, c)
network.cpt("a").fillWith([0.5, 0.5])
network.cpt("b").fillWith([0.2, 0.3, 0.5])
for i in range(2):
    for j in range(3):
        p = (3 * i + j + 1) / 100  # 0.01, 0.02, 0.03, 0.04, ... with b fastest
        network.cpt("c")[{"a": i, "b": j}] = [p, 1 - p]
network.saveUAI("b.uai")
words = [line.split("#")[0].split() for line in open("b.uai") if line.split("#")[0].split()]
scope = next(line for line in words if line[0] == "3" and len(line) == 4)
rows = [line[0] for line in words if len(line) == 2 and float(line[0]) + float(line[1]) == 1 and float(line[0]) < 0.1]
print("pyAgrum", gum.__version__)
print("read: scope 0 1 gives", at_one_and_zero("0 1"), "scope 1 0 gives", at_one_and_zero("1 0"))
print("written: scope", *scope, "first of each row", *rows)
assert (at_one_and_zero("0 1"), at_one_and_zero("1 0")) == (2.0, 2.0)
assert scope == ["3", "0", "1", "2"] and rows == ["0.01", "0.04", "0.02", "0.05", "0.03", "0.06"]
print("as described")
PYTHON
