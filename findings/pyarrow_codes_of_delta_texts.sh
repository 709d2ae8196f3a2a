#!/usr/bin/env bash
# pyarrow 26.0.1: a Parquet file that it reads cannot be read where its texts are asked for as codes.
#
# Texts may be packed in Parquet as differences (DELTA_BYTE_ARRAY) or with differences of their lengths
# (DELTA_LENGTH_BYTE_ARRAY), as a writer chooses. Seen: pyarrow.parquet reads such a file, and with read_dictionary for that column raises an
# OSError ("Not yet implemented: DecodeArrow of DictAccumulator ..."); the same of dictionary_columns of its data sets.
# The footer names the encoding, so that one can know before. Plain texts are read either way.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import pyarrow as pa
from pyarrow import dataset, parquet

table = pa.table({"word": ["alpha", "alphabet", "alpine", "beta"] * 3})


def outcome(function):
    try:
        return f"{function().num_rows} rows"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


print("pyarrow", pa.__version__)
for encoding in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
    name = f"{encoding}.parquet"
    parquet.write_table(table, name, use_dictionary=False, column_encoding={"word": encoding})
    form = dataset.ParquetFileFormat(dictionary_columns=["word"])
    found = [
        outcome(lambda: parquet.read_table(name)),
        outcome(lambda: parquet.read_table(name, read_dictionary=["word"])),
        outcome(lambda: dataset.dataset(name, format=form).to_table()),
    ]
    print(encoding, found)
    named = parquet.read_metadata(name).row_group(0).column(0).encodings
    assert encoding in named and found[0] == "12 rows"
    if encoding == "PLAIN":
        assert found == ["12 rows"] * 3
    else:
        assert all(words.startswith("OSError: Not yet implemented") for words in found[1:])
print("as described")
PYTHON
