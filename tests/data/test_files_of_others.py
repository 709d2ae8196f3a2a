"""Files that other programs wrote: SPSS, SAS, Stata, R and ARFF with levels, their order, missing values and counts.

Oracles: what ``write.R`` and ``write.sps`` in the folder beside say of the rows, and haven, readstat, pandas, rdata and
liac-arff themselves where they read a column rightly.
"""

import builtins
import gzip
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyreadstat
import pytest

from pyro_hoim import HoimError, Observations
from pyro_hoim.data import read_table_file
from pyro_hoim.data.files import r_files, source_file, survey_files

FOLDER = Path(__file__).parent / "files_of_others"

TOWN = ["Ulm", None, "Köln", "Ulm", "Köln", "Ulm", "Ulm", "Köln"]
SEX = ["male", "female", "female", "male", None, "female", None, "male"]
CODES = ["1", "2", "2", "1", "9", "2", None, "1"]
VISITS = ["none", "1", None, "2", None, "none", "5", None]
HEALTH = ["poor", "good", "fair", "poor", None, "good", "poor", "fair"]
REGION = ["south", "north", "north", None, "south", "north", "south", "south"]
ANSWER = ["ja", "nein", None, "ja", "ja", "nein", None, "nein"]
NO, YES = "nominal", "ordinal"

# Cells, kind and levels of columns; levels without a row are those that a file declares.
PLAIN = {"town": (TOWN, NO, ("Köln", "Ulm")), "sex": (CODES, NO, ("1", "2", "9"))}
SEXES, SIZES, REGIONS = ("male", "female", "other"), ("poor", "fair", "good", "excellent"), ("south", "north", "east")
DECLARED = {"health": (HEALTH, NO, SIZES), "region": (REGION, NO, REGIONS)}
LABELLED = {
    "town": PLAIN["town"],
    "sex": (SEX, NO, SEXES),
    "visits": (VISITS, NO, ("none", "1", "2", "5")),
    **DECLARED,
}
SPSS = {
    **LABELLED,
    "health": (HEALTH, YES, SIZES),
    "answer": (ANSWER, NO, ("ja", "nein", "vielleicht")),
}
R = {
    **PLAIN,
    "health": (HEALTH, YES, SIZES),
    "region": DECLARED["region"],
    "ill": (["True", "False", None, "True", "True", "False", "True", "False"], NO, ("False", "True")),
}
SHORT = ["0.3", "100000", None, "0.333333333333333", "2", "123456.5", "1e-07", "-4"]
FILES = {
    "survey.sav": SPSS,
    "survey.zsav": SPSS,
    "survey.por": {
        "SEX": (["male", "female", None, "male"], NO, ("male", "female")),
        "HEALTH": (["poor", "good", "fair", "poor"], NO, SIZES[:3]),
        "TOWN": (["Ulm", "Bonn", "Ulm", "Ulm"], NO, ("Bonn", "Ulm")),
    },
    "survey.sas7bdat": {**PLAIN, "health": (HEALTH, NO, ("fair", "good", "poor"))},
    "survey.xpt": {**PLAIN, "health": (HEALTH, NO, ("fair", "good", "poor"))},
    "survey.dta": LABELLED,
    "factors.dta": DECLARED,
    "survey.rds": R,
    "survey_ascii.rds": R,
    "haven.rds": {**SPSS, "health": (HEALTH, NO, SIZES)},
    "one_frame.RData": {
        "day": (["2020-01-03", "2020-01-04", None, *["2020-01-03"] * 2, *["2020-01-04"] * 2, "2020-01-03"], NO, None),
        "hour": (
            [f"2020-01-03 {hour}:00:00+00:00" if hour else None for hour in (10, 11, 0, 10, 10, 10, 11, 11)],
            NO,
            None,
        ),
        "whole": (["3", None, "5", "3", "3", "5", "3", "5"], NO, ("3", "5")),
        "twelve": ([*["False", "True"] * 4], NO, ("False", "True")),
        "where": (TOWN, NO, ("Köln", "Ulm")),
    },
    "short.rds": {
        "down": ([*"87654321"], NO, (*"12345678",)),
        "up": ([*"12345678"], NO, (*"12345678",)),
        "texts": (SHORT, NO, None),
        "days": (["2020-01-03", None, "2020-01-04", *["2020-01-03"] * 3, "2020-01-04", "2020-01-03"], NO, None),
        "added": (REGION, NO, REGIONS),
    },
    "latin.rds": {"town": (["Köln", "Ulm"], NO, ("Köln", "Ulm"))},
    "survey.arff": {**PLAIN, **DECLARED},
}


@pytest.fixture
def file(tmp_path):
    """A copy of a file, unpacked where it is kept packed because it is mostly empty."""

    def copied(name, to=None):
        path = tmp_path / (to or name)
        if (FOLDER / name).exists():
            shutil.copy(FOLDER / name, path)
        else:
            path.write_bytes(gzip.decompress((FOLDER / f"{name}.gz").read_bytes()))
        return path

    return copied


def refuses(path, code, words="."):
    """Fail unless the file is refused by one line with a code and words."""
    with pytest.raises(HoimError, match=words) as error:
        read_table_file(path)
    assert (
        re.fullmatch(code, error.value.code) and str(error.value).startswith(str(path)) and "\n" not in str(error.value)
    )


def cells(rows, name):
    variable = rows.domain[name]
    codes = rows.codes[:, rows.domain.names.index(name)].tolist()
    return [None if code < 0 else variable.labels[code] for code in codes]


@pytest.mark.parametrize("name", FILES)
def test_levels_their_order_and_missing_values_are_those_of_the_file(name, file):
    rows = Observations.from_csv(file(name))
    assert rows.domain.names == tuple(FILES[name])
    for column, (values, kind, levels) in FILES[name].items():
        variable = rows.domain[column]
        assert (cells(rows, column), variable.kind) == (values, kind), column
        assert levels is None or variable.labels == levels, column


NOTES = {
    "survey.sav": (
        "value labels of 'sex', 'visits', 'region', 'answer' read as levels",
        "'health' read as ordered levels",
        "4 user-missing cells of 'sex', 'visits', 'answer' read as missing",
    ),
    "survey.por": (
        "value labels of 'SEX', 'HEALTH' read as levels",
        "levels that no row has left out, which a .por file does not tell from missing values",
    ),
    "survey.xpt": (),
    "survey.dta": ("value labels of 'sex', 'visits', 'health', 'region' read as levels",),
    "survey.rds": (),
    "latin.rds": ("names of rows left out",),
    "one_frame.RData": ("read 'frame_of_types'; 'note' left out",),
    "table.rds": ("read the 12 cells of a table, with their counts",),
    "survey.arff": (),
}


@pytest.mark.parametrize("name", NOTES)
def test_a_note_says_what_was_read(name, file):
    table = read_table_file(file(name))
    assert table.notes == NOTES[name] and len(table.note) == bool(NOTES[name])


def test_numbers_that_r_would_write_as_text_are_written_so(file):
    """The oracle is ``as.character`` of R 4.2: at most fifteen digits, and powers of ten where these are shorter."""
    assert read_table_file(file("short.rds")).column("texts") == tuple(
        {"100000": "1e+05", None: ""}.get(text, text) for text in SHORT
    )


def test_tables_of_r_are_rows_with_counts(file):
    """Oracle: the rows that xtabs counted in ``write.R``, which are those of ``survey.rds`` without a missing cell."""
    rows, table = Observations.from_csv(file("survey.rds")), Observations.from_csv(file("table.rds"))
    assert table.domain.names == ("health", "region") and table.num_rows == 12
    assert [variable.labels for variable in table.domain] == [SIZES, REGIONS]
    pairs = [*zip(cells(rows, "health"), cells(rows, "region"), strict=True)]
    expected = [pairs.count(pair) for pair in zip(cells(table, "health"), cells(table, "region"), strict=True)]
    assert table.counts.tolist() == expected and sum(expected) == 6


def test_names_of_files_are_not_needed_where_their_bytes_say_it(file):
    for name in ("survey.sav", "survey.zsav", "survey.xpt", "survey.dta", "survey.arff"):
        assert read_table_file(file(name, "data.txt")).columns == read_table_file(file(name)).columns


REFUSED = {
    "ftable.rds": ("damaged-file", "an object of class 'ftable'; save as.table"),
    "ftable.txt": ("damaged-file", r"an ftable of R; write.csv\(as.data.frame\(as.table\(x\)\)"),
    "twice.rds": ("repeated-name", "'a' is repeated"),
    "vectors.RData": ("damaged-file", "an object of class 'Date'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_is_named_with_the_remedy(name, file):
    code, words = REFUSED[name]
    refuses(file(name), code, words)


BINARY = ["survey.zsav", "survey.por", "survey.sas7bdat", "survey.xpt", "survey.dta", "survey.rds"]


@pytest.mark.parametrize("name", [*BINARY, "one_frame.RData", "table.rds"])
def test_damaged_files_are_one_line(name, file):
    """Cut at four places: an error of ours, or, where only the last rows are cut, a table."""
    path = file(name)
    raw = path.read_bytes()
    for part in (3, 40, 70, 97):
        path.write_bytes(raw[: max(40, len(raw) * part // 100)])
        try:
            read_table_file(path)
        except HoimError:
            refuses(path, ".*")


@pytest.mark.parametrize("trial", ["import os; os.abort()", "import time; time.sleep(60)"])
def test_a_dictionary_of_spss_that_ends_its_reader_or_takes_too_long_is_refused(trial, file, monkeypatch):
    """The file is sound: what reads it in a process of its own is made to end as it does for some damaged ones."""
    path = file("survey.sav")
    monkeypatch.setattr(survey_files, "_PATIENCE", 5.0)
    monkeypatch.setattr(survey_files, "_TRIAL", trial)
    refuses(path, "damaged-file")


def test_files_with_a_password_are_named(file):
    path = file("survey.sav")
    path.write_bytes(b"\x1c\0\0\0\0\0\0\0ENCRYPTEDSAV\x15\0\0\0" + bytes(400))
    refuses(path, "damaged-file", "password; open it in SPSS")


@pytest.mark.parametrize(
    ("name", "package", "module"),
    [
        ("survey.sav", "pyreadstat", "pyreadstat"),
        ("survey.xpt", "pyreadstat", "pyreadstat"),
        ("survey.rds", "rdata", "rdata"),
        ("survey.arff", "liac-arff", "arff"),
    ],
)
def test_what_to_install_is_one_line(name, package, module, file, monkeypatch):
    plain = builtins.__import__

    def without(wanted, *rest, **more):
        if wanted.partition(".")[0] == module:
            raise ImportError(wanted)
        return plain(wanted, *rest, **more)

    path = file(name)
    monkeypatch.setattr(builtins, "__import__", without)
    refuses(path, "no-method", rf"needs {package}; pip install 'pyro-hoim\[files\]'")


@pytest.mark.parametrize(
    "name", ["survey.sav", "survey.por", "survey.sas7bdat", "survey.xpt", "survey.arff", "table.rds"]
)
def test_sizes_are_judged(name, file, monkeypatch):
    """Beside a control of a limit that is not reached."""
    path = file(name)
    monkeypatch.setattr(source_file, "MOST_CELLS", 60)
    read_table_file(path)
    monkeypatch.setattr(source_file, "MOST_CELLS", 10)
    monkeypatch.setattr(survey_files, "MOST_CELLS", 10)
    refuses(path, "over-budget")


def test_files_of_r_are_judged_by_their_unpacked_size_and_sequences_by_their_length(file, monkeypatch):
    path = file("survey_ascii.rds")
    monkeypatch.setattr(r_files, "_MOST_BYTES", len(path.read_bytes()) - 1)
    refuses(path, "over-budget")
    monkeypatch.undo()
    path = file("short.rds")
    raw = gzip.decompress(path.read_bytes())
    length = np.array([8, 8, -1], dtype=">f8").tobytes()  # of 8:1: eight numbers from eight, down by one
    assert raw.count(length) == 1
    path.write_bytes(raw.replace(length, np.array([1e9, 8, -1], dtype=">f8").tobytes()))
    refuses(path, "over-budget")


# SPSS

SCALES = {
    "codes without labels": ([1, 2, 5, 1], {}, "ordinal", YES, ("1", "2", "5")),
    "a label of two codes": ([1, 2, 3, 1], {1: "yes", 2: "yes", 3: "no"}, "nominal", NO, ("yes (1)", "yes (2)", "no")),
    "ordered, one code without a label": ([3, 1, 2, 1], {1: "low", 3: "high"}, "ordinal", YES, ("low", "2", "high")),
    "a scale with labels": ([3, 1, 2, 1], {1: "low", 2: "mid", 3: "high"}, "scale", NO, ("low", "mid", "high")),
}


@pytest.mark.parametrize("name", SCALES)
def test_measure_levels_of_spss_are_orders(name, tmp_path):
    codes, labels, measure, kind, levels = SCALES[name]
    frame, path = pd.DataFrame({"a": codes}), tmp_path / "t.sav"
    pyreadstat.write_sav(frame, path, variable_value_labels={"a": labels}, variable_measure={"a": measure})
    variable = Observations.from_csv(path).domain["a"]
    assert (variable.kind, variable.labels) == (kind, levels)


@pytest.mark.parametrize("number", [12, 13])
def test_many_codes_without_a_label_are_numbers(number, tmp_path):
    """As years of age of which one is called 'under 1'; a control with fewer of them has levels."""
    frame, path = pd.DataFrame({"age": range(number + 1)}), tmp_path / "t.sav"
    pyreadstat.write_sav(frame, path, variable_value_labels={"age": {0: "under 1"}})
    table = read_table_file(path)
    assert table.column("age")[0] == ("0" if number == 13 else "under 1")
    assert ("age" in table.categories) is (number == 12)
    assert any("read as numbers" in note for note in table.notes) is (number == 13)


def test_ranges_of_missing_values_have_open_ends_and_texts(tmp_path):
    frame, path = pd.DataFrame({"a": [-1.0, 3, 99, 98, 1e9], "b": ["x", "m", "f", "", "m"]}), tmp_path / "t.sav"
    ranges = {"a": [{"lo": float("-inf"), "hi": -1.0}, 99.0], "b": ["x"]}
    pyreadstat.write_sav(frame, path, missing_ranges=ranges)
    assert read_table_file(path).columns == (("", "3", "", "98", "1000000000"), ("", "m", "f", "", "m"))


# ARFF

HEAD = "% a comment\n@RELATION w\n@attribute o {sunny, overcast, rainy}\n"
ARFF = {
    "commas and quotes in quotes": (
        "@relation w\n@attribute 'a b' {'New York', \"it's\", 'with, comma'}\n@data\n\"it's\"\n?\n'with, comma'\n",
        {"a b": (["it's", None, "with, comma"], ("New York", "it's", "with, comma"))},
    ),
    "sparse rows": (
        "@relation w\n@attribute a {x,y}\n@attribute b real\n@attribute c {p,q}\n@data\n{0 y, 2 q}\n{1 3}\n{}\n{0 ?}\n",
        {
            "a": (["y", "x", "x", None], ("x", "y")),
            "b": (["0", "3", "0", "0"], ("0", "3")),
            "c": (["q", "p", "p", "p"], ("p", "q")),
        },
    ),
    "tabs, comments and the word in capitals": (
        f"{HEAD}@ATTRIBUTE\tt\tREAL\n@DATA\nsunny\t,1.5\n% comment\n\nrainy, ?\n",
        {"o": (["sunny", "rainy"], ("sunny", "overcast", "rainy")), "t": (["1.5", None], ("1.5",))},
    ),
    "dates are texts, and whole numbers may have decimals": (
        "@relation w\n@attribute d date 'yyyy-MM-dd'\n@attribute i integer\n@data\n'2020-01-03',3.5\n?,4\n",
        {"d": (["2020-01-03", None], ("2020-01-03",)), "i": (["3.5", "4"], ("3.5", "4"))},
    ),
    "letters beyond ASCII, and levels that are numbers": (
        "@relation w\n@attribute a {Köln,10,2}\n@data\nKöln\n2\n",
        {"a": (["Köln", "2"], ("Köln", "10", "2"))},
    ),
}


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
@pytest.mark.parametrize("name", ARFF)
def test_arff_is_read_as_its_format_says(name, encoding, tmp_path):
    """Oracle: the specification of Weka; an attribute that a sparse row leaves out has its first level, or zero."""
    text, columns = ARFF[name]
    (tmp_path / "t.arff").write_text(text, encoding=encoding)
    rows = Observations.from_csv(tmp_path / "t.arff")
    for column, (values, levels) in columns.items():
        assert (cells(rows, column), rows.domain[column].labels, rows.domain[column].kind) == (values, levels, NO)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("@relation w\n@attribute a {x,y}\n@data\nz\n", "Data value z not found in nominal declaration, at line 4"),
        ("@relation w\n@attribute a {x,y}\n@data\nx,y\n", "in line 4: x,y"),
        ("@relation w\n@attribute a {x,y}\n@data\nx, {2}\n", "weights of rows in braces"),
        ("@relation w\n@attribute a relational\n@attribute b {x}\n@end a\n@data\n'x'\n", "at line 2"),
        ("@relation w\n@attribute a {x,y}\n@attribute a {x,y}\n@data\nx,y\n", "already in use"),
        ("@relation w\n@attribute a {x,y\n@data\nx\n", "damaged .arff file"),
    ],
)
def test_arff_that_is_not_read_is_one_line(text, words, tmp_path):
    (tmp_path / "t.arff").write_text(text)
    refuses(tmp_path / "t.arff", "damaged-file", words)


def test_frames_of_pandas_in_stata_keep_labels_of_codes_alone(tmp_path):
    """The oracle are the codes; labels of .a to .z are no levels."""
    stream = io.BytesIO()
    frame = pd.DataFrame({"a": [1, 2, 7]})
    frame.to_stata(stream, write_index=False, value_labels={"a": {1: "no", 2: "yes", 2147483623: "refused"}})
    (tmp_path / "t.dta").write_bytes(stream.getvalue())
    assert Observations.from_csv(tmp_path / "t.dta").domain["a"].labels == ("no", "yes", "7")
