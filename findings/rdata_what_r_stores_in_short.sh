#!/usr/bin/env bash
# rdata 1.1.0: of what R stores in short, descending sequences lose their end, and missing texts become words.
#
# R writes the sequence 3:1 by its ends, and numbers turned into text as numbers until somebody looks at them. Seen in data
# frames that saveRDS of R 4.2.2 wrote: 3:1 is read as 3, 3, 3 (the last two numbers are left out, and the one that stays
# fills the column; 8:1 beside eight rows is a ValueError); as.character(c(0.1 + 0.2, 1e5, NA)) as '0.30000000000000004',
# '1e+05' and 'nan', where R has "0.3", "1e+05" and NA. Nothing warns. Ascending sequences are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check rdata==1.1.0 numpy==2.4.6 pandas==3.1.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import base64
from importlib.metadata import version

import rdata

SEQUENCE = (  # saveRDS(data.frame(rank = 3:1, g = c("a", "b", "c")), "frame.rds")
    "H4sIAAAAAAAAA4vgYmBgYGZgYWJiYGYFMhlYQ0PcdC2AYsJADhMQv4PSjAwsDJxAmi85P7cgMbkkPjOvpDi1EE2WJSmxOBUqxgsW"
    "h9D/QDpBVjlwMIABjN7/gQEGQGoEIM4Bm8WYCGMkwRjJQBuQrWPNS8xNLYbqY4K5oSgxLxumIx1dR3JOYjFMB0yQKyWxJFEvrQho"
    "GJpyzqL8cj2YJSCPMDUAif////8FORgAQ3wYmD4BAAA="
)
TEXTS = (  # the columns a and b: as.character(c(1L, NA, 3L)), as.character(c(0.1 + 0.2, 1e5, NA))
    "H4sIAAAAAAAAA4vgYmBgYGZgYWJiYGYFMhlYQ0PcdC2AYsJgCQaGd0DMBMSMDCwMnECaPyU1LbWoKDUlvrikKDMvHU2aJSmxOBUq"
    "xgsWZ2AQAOJ/SGIgYxkbGMCAGUkdA1Qd1ErG/xCa6T8e8/hAZthfNgYBE4cfWWBD6j+ASPZFVDH7aigYwMx2+KcCNQ7dbBbkcGDN"
    "S8xNLYYayAwVZEyEMZJgjGR0fck5icUwfTBBrpTEkkS9tCKgkWjKOYvyy/VgVoHcwwQK1/////8FuQkAt+Y6o94BAAA="
)


def read(text):
    with open("frame.rds", "wb") as file:
        file.write(base64.b64decode(text))
    return rdata.read_rds("frame.rds")


rank, texts = read(SEQUENCE)["rank"].tolist(), read(TEXTS)
print("rdata", version("rdata"))
print("rank:", rank, "where R has 3, 2, 1")
print("a:", texts["a"].tolist(), "b:", texts["b"].tolist(), "where R has 1, NA, 3 and 0.3, 1e+05, NA")
assert rank == [3, 3, 3]
assert texts["a"].tolist() == ["1", "nan", "3"]
assert texts["b"].tolist() == ["0.30000000000000004", "1e+05", "nan"]
print("as described")
PYTHON
