#!/usr/bin/env bash
# rdata 1.1.0: a missing cell of a categorical column is written as no level, and read back as the last one.
#
# The code -1 of pandas becomes 0 in the file, where R writes NA. Seen: write_rds and read_rds turn None among x, y, z into
# z, without a warning; R 4.2.2 itself says "malformed factor" when it prints such a column. Factors that R wrote are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check rdata==1.1.0 numpy==2.4.6 pandas==3.1.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import pandas as pd
import rdata

frame = pd.DataFrame({"a": pd.Categorical(["x", None, "y"], ["x", "y", "z"])})
rdata.write_rds("frame.rds", frame)
again = rdata.read_rds("frame.rds")
codes = rdata.parser.parse_file("frame.rds").object.value[0].value.tolist()
print("rdata", version("rdata"), "pandas", pd.__version__)
print("written:", frame["a"].tolist(), "codes in the file:", codes, "read:", again["a"].tolist())
assert codes == [1, 0, 2] and again["a"].tolist() == ["x", "z", "y"]
print("as described")
PYTHON
