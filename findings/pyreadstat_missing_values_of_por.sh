#!/usr/bin/env bash
# pyreadstat 1.3.7: of portable SPSS files nobody can learn which codes are missing values.
#
# Seen in a file that PSPP 1.6.2 wrote, with 9 declared missing and labelled "no answer": read_por makes the cell NaN, leaves
# missing_ranges empty, and lists 9 among the value labels, as if it were a level that no row has. read_sav has
# user_missing=True for that, which read_por does not know.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyreadstat==1.3.7 numpy==2.4.6 pandas==3.1.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import base64

import pyreadstat

# VALUE LABELS sex 1 'male' 2 'female' 3 'other' 9 'no answer'. MISSING VALUES sex (9). The rows have 1, 2, 9, 1.
WRITTEN_BY_PSPP = (
    "QVNDSUkgU1BTUyBQT1JUIEZJTEUgICAgICAgICAgICAgICAgICAgIEFTQ0lJIFNQU1MgUE9SVCBGSUxFICAgICAgICAgICAgICAg"
    "ICAgICANCkFTQ0lJIFNQU1MgUE9SVCBGSUxFICAgICAgICAgICAgICAgICAgICBBU0NJSSBTUFNTIFBPUlQgRklMRSAgICAgICAg"
    "ICAgICAgICAgICAgDQpBU0NJSSBTUFNTIFBPUlQgRklMRSAgICAgICAgICAgICAgICAgICAgMDAwMDAwMDAwMDAwMDAwMDAwMDAw"
    "MDAwMDAwMDAwMDAwMDAwMDAwMA0KMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDEyMzQ1Njc4OUFCQ0RFRkdISUpLTE1OT1BRUlNU"
    "VVZXWFlaYWJjZGVmZ2hpamtsbW5vcHFyc3QNCnV2d3h5eiAuPCgrfCZbXSEkKik7Xi0vfCwlXz4/YDokQCc9IjAwMDAwMH4tMDAw"
    "MDEyMzQ1Njc4OTAwMC0oKTB7fVwwMDAwMDAwMDAwMDAwDQowMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw"
    "MDAwMDAwMDAwMDAwMDAwMFNQU1NQT1JUQTgvMjAyNjExMjg2LzIxMA0KNzExMUUvR05VIHBzcHAgMS42LjIzSi94ODZfNjQtcGMt"
    "bGludXgtZ251NDMvNUIvNzAvMy9TRVg1LzEvMC81LzEvMC84OS83MC82L0hFQUwNClRINS8xLzAvNS8xLzAvNzQvNC9UT1dOMS80"
    "LzAvMS80LzAvRDEvMy9TRVg0LzEvNC9tYWxlMi82L2ZlbWFsZTMvNS9vdGhlcjkvOS9ubyBhDQpuc3dlckQxLzYvSEVBTFRINC8x"
    "LzQvcG9vcjIvNC9mYWlyMy80L2dvb2Q0LzkvZXhjZWxsZW50RjEvMS80L1VsbSAyLzMvNC9Cb25uOS8yLw0KNC9VbG0gMS8xLzQv"
    "VWxtIFpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWloNCg=="
)
with open("survey.por", "wb") as file:
    file.write(base64.b64decode(WRITTEN_BY_PSPP))
frame, about = pyreadstat.read_por("survey.por")
try:
    pyreadstat.read_por("survey.por", user_missing=True)
    asked = "works"
except TypeError as error:
    asked = str(error)
print("pyreadstat", pyreadstat.__version__)
print("cells:", frame["SEX"].tolist(), "labels:", about.variable_value_labels["SEX"], "ranges:", about.missing_ranges)
print("user_missing=True:", asked)
assert frame["SEX"].isna().tolist() == [False, False, True, False]
assert about.variable_value_labels["SEX"][9] == "no answer" and about.missing_ranges == {}
assert "user_missing" in asked
print("as described")
PYTHON
