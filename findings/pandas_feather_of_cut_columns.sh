#!/usr/bin/env bash
# pandas 3.1.1 with pyarrow 26.0.1: a column of pd.cut is written to Feather, and then opened by nobody who wrote it.
#
# The categories of pd.cut are intervals, which to_feather writes as a dictionary of pairs. Seen: pandas.read_feather ends
# in a TypeError ("Expected int index, got type"), and in the process that wrote the file so does pyarrow, since pandas
# has told it of its type; a process without pandas opens the same file. A table that never leaves memory cannot be turned
# back either ("unhashable type: 'dict'"), and to_parquet refuses the frame.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import subprocess
import sys

import pandas as pd
import pyarrow as pa

frame = pd.DataFrame({"age": pd.cut(pd.Series([1, 5, 9]), [0, 3, 6, 12])})
frame.to_feather("cut.feather")


def outcome(function):
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"
    return "works"


found = {
    "pandas.read_feather": outcome(lambda: pd.read_feather("cut.feather")),
    "pyarrow.ipc.open_file": outcome(lambda: pa.ipc.open_file("cut.feather")),
    "pyarrow.Table.from_pandas(frame).to_pandas()": outcome(pa.Table.from_pandas(frame).to_pandas),
    "pandas.to_parquet": outcome(lambda: frame.to_parquet("cut.parquet")),
}
alone = "import pyarrow as pa; print(pa.ipc.open_file('cut.feather').read_all().schema.field('age').type)"
opened = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True).stdout.strip()
print("pandas", pd.__version__, "pyarrow", pa.__version__)
for name, words in found.items():
    print(f"{name}: {words}")
print("pyarrow without pandas:", opened)
assert [words.partition(":")[0] for words in found.values()] == [*["TypeError"] * 3, "ArrowNotImplementedError"]
assert opened.startswith("dictionary<values=struct<left: int64, right: int64>")
print("as described")
PYTHON
