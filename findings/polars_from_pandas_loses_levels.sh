#!/usr/bin/env bash
# polars 2.1.0: ordered categories of pandas lose their order and the levels that no row has.
#
# Seen: pl.from_pandas makes a Categorical of an ordered column (low < mid < high, none of them high), not an Enum, which
# has both; back in pandas the levels are mid, low, in the order of the rows, without an order, and high is gone.
# An Enum of polars keeps levels and order on the way to pandas. Nothing warns.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W error - <<'PYTHON'
import pandas as pd
import polars as pl

levels = ["low", "mid", "high"]
frame = pd.DataFrame({"size": pd.Categorical(["mid", "low", "mid"], levels, ordered=True)})
taken = pl.from_pandas(frame)
back = taken.to_pandas()["size"].dtype
enum = pl.DataFrame({"size": pl.Series(["mid", "low"], dtype=pl.Enum(levels))}).to_pandas()["size"].dtype
print("polars", pl.__version__, "pandas", pd.__version__)
print("from_pandas:", taken.schema)
print("back in pandas:", back.categories.tolist(), "ordered:", back.ordered)
print("an Enum in pandas:", enum.categories.tolist(), "ordered:", enum.ordered)
assert taken.schema["size"] == pl.Categorical
assert back.categories.tolist() == ["mid", "low"] and not back.ordered
assert enum.categories.tolist() == levels and enum.ordered
print("as described")
PYTHON
