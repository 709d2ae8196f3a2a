"""The typed-in tables against the public files, cell by cell."""

import csv

import pytest

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table, table_info, tables
from pyro_hoim.errors import UnknownNameError

NAMES = [info.name for info in tables()]
FILES = [name for name in NAMES if name != "three_features"]

# Totals and shapes as published.
PUBLISHED = {
    "czech_autoworkers": (1841, (2,) * 6),
    "rochdale": (665, (2,) * 8),
    "ucb_admissions": (4526, (2, 2, 6)),
    "titanic": (2201, (4, 2, 2, 2)),
    "hair_eye_color": (592, (4, 4, 2)),
    "three_features": (10_000, (2, 2, 2)),
}


def differences(data, path):
    """Cells of a file that differ from the table, with names, level order and completeness."""
    with path.open(newline="", encoding="utf-8") as stream:
        header, *rows = csv.reader(stream)
    found = [] if (*data.domain.names, "count") == tuple(header) else ["header"]
    for i, variable in enumerate(data.domain):
        if variable.labels != tuple(dict.fromkeys(row[i] for row in rows)):
            found.append(f"levels of {variable.name}")
    if len({tuple(row[:-1]) for row in rows}) != data.domain.num_states:
        found.append("cells")
    table = data.table()
    for *labels, count in rows:
        cell = tuple(v.code(label) for v, label in zip(data.domain, labels, strict=True))
        if table[cell].item() != int(count):
            found.append(str(labels))
    return found


@pytest.mark.parametrize("name", FILES)
def test_equals_the_file(name, shared_data):
    """As a control, the comparison sees one observation in the wrong cell, and two levels interchanged."""
    data = load_table(name)
    path = shared_data / "tables" / f"{name}.csv"
    assert differences(data, path) == []
    table = data.table()
    largest = table.argmax()
    table.view(-1)[largest] -= 1
    table.view(-1)[largest - 1] += 1
    assert len(differences(Observations.from_table(data.domain, table), path)) == 2
    assert differences(Observations.from_table(data.domain, data.table().flip(0)), path) != []


@pytest.mark.parametrize("name", FILES)
def test_from_csv_reads_the_same_law(name, shared_data):
    data = load_table(name)
    read = Observations.from_csv(shared_data / "tables" / f"{name}.csv", domain=data.domain)
    assert read.domain == data.domain and (read.table() == data.table()).all()


@pytest.mark.parametrize("name", NAMES)
def test_published_totals(name):
    total, shape = PUBLISHED[name]
    data = load_table(name)
    assert (data.total_count, data.domain.cardinalities, data.num_rows) == (total, shape, data.domain.num_states)
    assert not data.has_missing


def test_provenance():
    assert load_table("rochdale").unique().num_rows == 91
    assert list(PUBLISHED) == NAMES
    for info in tables():
        assert info.title and info.licence
        assert any(character.isdigit() for character in info.source)
    assert "interchanged" in table_info("czech_autoworkers").note
    family = load_table("czech_autoworkers").marginal_counts([("family",)])
    assert family.tolist() == [1581, 260]


def test_unknown_table():
    for call in (load_table, table_info):
        with pytest.raises(UnknownNameError, match="unknown table 'titanik'; did you mean 'titanic'"):
            call("titanik")
