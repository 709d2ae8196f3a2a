#!/usr/bin/env bash
# pandas 3.1.1 with pyreadstat 1.3.7: read_spss() makes a numeric variable of the level "scale" a column of categories where
# one single value has a label.
#
# Seen for ages of which 999 is declared missing and labelled "not measured": read_spss() gives a category dtype whose
# categories are the numbers of the rows; a declared missing value becomes NaN there. If 999 is labelled and not declared
# missing, the categories mix numbers and the word. pyreadstat without labels, and convert_categoricals=False, give numbers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pandas==3.1.1 pyreadstat==1.3.7 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import pandas as pd
import pyreadstat

frame = pd.DataFrame({"age": [31.0, 47.0, 62.0, 999.0, 55.0]})
for name, missing in (("declared", {"age": [999]}), ("labelled", None)):
    pyreadstat.write_sav(
        frame,
        f"{name}.sav",
        variable_value_labels={"age": {999: "not measured"}},
        missing_ranges=missing,
        variable_measure={"age": "scale"},
    )
print("pandas", version("pandas"), "pyreadstat", version("pyreadstat"))
read = {name: pd.read_spss(f"{name}.sav")["age"] for name in ("declared", "labelled")}
for name, cells in read.items():
    print(name, cells.dtype.name, list(cells.cat.categories) if cells.dtype.name == "category" else "", cells.tolist())
assert read["declared"].dtype.name == "category" and read["declared"].isna().sum() == 1
assert read["labelled"].dtype.name == "category" and "not measured" in read["labelled"].cat.categories
assert {type(level) for level in read["labelled"].cat.categories} == {float, str}
plain = pd.read_spss("labelled.sav", convert_categoricals=False)["age"]
assert plain.tolist() == frame["age"].tolist()
print("as described")
PYTHON
