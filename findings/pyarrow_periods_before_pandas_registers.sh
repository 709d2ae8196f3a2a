#!/usr/bin/env bash
# pyarrow 26.0.1 with pandas 3.1.1: a column of periods in Parquet has another type before pandas made one in the process.
#
# pandas saves periods as an extension type of Arrow, which it makes known when it first needs it, not when it is
# imported. Seen: a process that imports pandas and reads the file by pyarrow gets int64 (609, 610: months since 1970);
# once any period was turned into Arrow there, the same call gets the extension type, and the labels 2020-10, 2020-11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -c 'import pandas as pd
pd.DataFrame({"month": pd.period_range("2020-10", periods=2, freq="M")}).to_parquet("periods.parquet")'
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

before = parquet.read_table("periods.parquet")["month"]
pa.array(pd.array(["2020"], dtype="period[Y]"))
after = parquet.read_table("periods.parquet")["month"]
print("pandas", pd.__version__, "pyarrow", pa.__version__)
print("before:", before.type, before.to_pylist())
print("after:", after.type, [str(period) for period in after.to_pandas()])
assert before.type == pa.int64() and before.to_pylist() == [609, 610]
assert after.type.extension_name == "pandas.period"
assert [str(period) for period in after.to_pandas()] == ["2020-10", "2020-11"]
print("as described")
PYTHON
