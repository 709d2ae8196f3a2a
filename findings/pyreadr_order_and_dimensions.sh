#!/usr/bin/env bash
# pyreadr 0.5.8: ordered factors of R lose their order, and tables the names of their dimensions.
#
# Seen in files that saveRDS of R 4.2.2 wrote: an ordered factor (poor < fair < good < excellent) is a categorical column
# with these levels and ordered=False; a table of xtabs(~ health + region) is a data frame whose index and columns have no
# names, so that nobody can say which is health. Nothing warns.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyreadr==0.5.8 numpy==2.4.6 pandas==3.1.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import base64
from importlib.metadata import version

import pyreadr

# data.frame(..., health = factor(..., ordered = TRUE), region = factor(...)), and xtabs(~ health + region) of it
FRAME = (
    "H4sIAAAAAAAAA3VSQU7DMBCcOE5KIhUh8QPu9MwNTly4UomrlThtJDdGTqC90bfwCD7AhzhyotjB6zYRsbTy7Hi9M5v4KQcQgzOG"
    "OLEQyfLx/vrGcpcusXFh4wwcmStcqo3dsoNdwN5RycPnh2oG5xP8VAlw7iRuv9CvOwz3wF8N+been73TuW09760CUT8TwBze+0PP"
    "W473vPeTKvkqVesH5Z7lz1obwpWoA15pXXqcyV0hlZJNN2qZFEq01JF5cqZNKY2ky2klis5KAD8j464T86Ypj/7CqUQH3zgmtVa/"
    "dGtKGm1CwqVovTdGt6L/9JGf6ONEO8IRYzxlIzaSpkxIstPb8NNbuSO1tRQq+EqNXNU6lNVKTZjMS9GJRWWs0Eg8M3q7IANz+mL2"
    "VX67iX4Bc2QxMtUCAAA="
)
TABLE = (
    "H4sIAAAAAAAAA22R3QrCMAyFu631DwXBxxDvfQKfQMHbuFUdZOtYK3jlo4txy8paLZSepN/JkvW8EEJkQqapyBRJoU7Hw25PuRUF"
    "S9op7USEK+H8nyV7Xor5t3BRVnSsGJfdt0JkRkgNlbaEbJhbd2x/Lxtj2kFfofT6ZkzBeq6fuUbUtWNzxhfKmoe7D0FtWh9IDdZF"
    "rSjuoyuRcnJy14DeNmn1rTQ1qXdszhFsbFZPBxc7BKRRRzaZA+K38LhU7wrB6dW01QMhYpMX/7MgufXvFg4RZcfD/AwkC3Aw7qpB"
    "KD38Abwht/44AgAA"
)
for name, text in (("frame.rds", FRAME), ("table.rds", TABLE)):
    with open(name, "wb") as file:
        file.write(base64.b64decode(text))
health = pyreadr.read_r("frame.rds")[None]["health"]
table = pyreadr.read_r("table.rds")[None]
print("pyreadr", version("pyreadr"))
print("levels:", health.cat.categories.tolist(), "ordered:", health.cat.ordered)
print("table:", table.index.tolist(), table.columns.tolist(), "names:", table.index.name, table.columns.name)
assert health.cat.categories.tolist() == ["poor", "fair", "good", "excellent"] and not health.cat.ordered
assert table.columns.tolist() == ["south", "north", "east"] and table.index.name is table.columns.name is None
print("as described")
PYTHON
