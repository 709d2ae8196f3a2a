"""Mushroom, adult and breast cancer: sizes, orders and the published discretisation, against the raw files."""

import csv
import math
import time
from collections import Counter

import pytest
import torch

from pyro_hoim.data import Observations, read_table_file
from pyro_hoim.datasets import adult_domain, load_adult, load_breast_cancer, load_mushroom
from pyro_hoim.datasets.public import _discretise_adult
from pyro_hoim.testing import raises

pytestmark = pytest.mark.usefixtures("shared_data")

# The published intervals written out: (name, lower bounds of the whole numbers in each interval, end).
STARTS = {
    "age": [15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 80, 90, 100],
    "fnlwgt": [1, *range(50_001, 450_000, 50_000), 1_500_001],
    "capital-gain": [0, 1, 1001, 3001, 10001, 30001, 100001],
    "capital-loss": [0, 1001, 1501, 2001, 2501, 5001],
    "hours-per-week": [1, 11, 21, 31, 36, 41, 46, 51, 61, 81, 101],
}
ASIA = "India South Iran Philippines Cambodia Thailand Laos Taiwan China Japan Vietnam Hong"
EUROPE = "Germany Italy Poland Portugal France Yugoslavia Scotland Greece Ireland Hungary Holand-Netherlands"


def country_group(country):
    single = {"United-States": "usa", "Mexico": "mexico", "England": "uk", "Canada": "canada", "?": "?"}
    return single.get(country) or (
        "asia" if country in ASIA.split() else "europe" if country in EUROPE.split() else "latAm"
    )


def raw_rows(folder, name):
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_adult_number_of_states():
    domain = adult_domain()
    assert domain.cardinalities == (14, 9, 9, 16, 7, 15, 6, 5, 2, 6, 5, 10, 8, 2)
    assert f"{domain.num_states:.2e}" == "5.49e+11"
    wider = adult_domain(unused_levels=True)
    assert f"{wider.num_states:.1e}" == "6.5e+11"
    assert wider.num_states * 9 * 15 == domain.num_states * 10 * 16
    assert [v.name for v, w in zip(domain, wider, strict=True) if v != w] == ["workclass", "occupation"]
    assert "education-num" not in domain
    assert {v.name for v in domain if v.kind == "ordinal"} == {*STARTS, "education"}


def test_adult_education_has_the_order_of_its_numbers(shared_data):
    numbers = {row["education"]: int(row["education-num"]) for row in raw_rows(shared_data, "adult")}
    assert adult_domain()["education"].labels == tuple(sorted(numbers, key=lambda label: numbers[label]))


@pytest.mark.parametrize(("part", "file", "num_rows"), [("train", "adult", 32561), ("test", "adult_test", 16281)])
def test_adult_every_cell(part, file, num_rows, shared_data):
    data = load_adult(part)
    assert data.num_rows == num_rows and not data.has_missing
    rows = raw_rows(shared_data, file)
    for i, variable in enumerate(data.domain):
        raw = [row[variable.name] for row in rows]
        codes = data.codes[:, i].tolist()
        if variable.name in STARTS:
            starts = STARTS[variable.name]
            assert all(starts[c] <= int(v) < starts[c + 1] for c, v in zip(codes, raw, strict=True))
        elif variable.name == "native-country":
            assert [variable.labels[c] for c in codes] == [country_group(v) for v in raw]
        else:
            assert [variable.labels[c] for c in codes] == raw
        if part == "train":  # every level of the domain occurs
            assert set(codes) == set(range(variable.cardinality))


def test_adult_interval_labels():
    domain = adult_domain()
    assert (domain["age"].labels[0], domain["age"].labels[-4:]) == ("15-19", ("65-69", "70-79", "80-89", "90-99"))
    assert domain["fnlwgt"].labels[-2:] == ("350001-400000", "400001-1500000")
    assert domain["capital-gain"].labels[:2] == ("0", "1-1000")
    assert domain["hours-per-week"].labels[2:6] == ("21-30", "31-35", "36-40", "41-45")
    for name, starts in STARTS.items():
        assert domain[name].cardinality == len(starts) - 1


def test_adult_unused_levels_change_no_code():
    wide, narrow = load_adult(unused_levels=True), load_adult()
    assert torch.equal(wide.codes, narrow.codes)
    assert (wide.entropy(), wide.domain["workclass"].labels[-1]) == (narrow.entropy(), "(unused)")


def test_adult_questions_are_levels():
    data = load_adult()
    counts = {n: data.marginal_counts([(n,)])[data.domain[n].code("?")].item() for n in ("workclass", "occupation")}
    assert counts == {"workclass": 1836, "occupation": 1843}
    countries = data.marginal_counts([("native-country",)]).tolist()
    named = dict(zip(data.domain["native-country"].labels, countries, strict=True))
    assert (named["?"], named["uk"], named["usa"]) == (583, 90, 29170)


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("age", "14", "out-of-range"),
        ("age", "100", "out-of-range"),
        ("fnlwgt", "0", "out-of-range"),
        ("fnlwgt", "1500001", "out-of-range"),
        ("native-country", "Atlantis", "unknown-name"),
        ("workclass", "Privat", "unknown-name"),
    ],
)
def test_adult_values_outside(column, value, code, shared_data, tmp_path):
    row = raw_rows(shared_data, "adult")[0]
    path = tmp_path / "adult.csv"
    path.write_text(",".join(row) + "\n" + ",".join({**row, column: value}.values()) + "\n", encoding="utf-8")
    with raises(code, f"{path} line 2, column {column!r}"):
        _discretise_adult(read_table_file(path), adult_domain())
    path.write_text(",".join(row) + "\n" + ",".join({**row, "capital-gain": "?"}.values()) + "\n", encoding="utf-8")
    with raises("out-of-range", f"{path}, column 'capital-gain'"):
        _discretise_adult(read_table_file(path), adult_domain())


def test_adult_interval_ends(shared_data, tmp_path):
    """Intervals are closed on the right: 50,000 belongs to the first, 50,001 to the second."""
    row = raw_rows(shared_data, "adult")[0]
    path = tmp_path / "adult.csv"
    values = ["1", "50000", "50001", "400000", "400001", "1500000"]
    lines = [",".join(row), *(",".join({**row, "fnlwgt": v}.values()) for v in values)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    codes = _discretise_adult(read_table_file(path), adult_domain())
    assert codes[:, 2].tolist() == [0, 0, 1, 7, 8, 8]


def test_adult_part():
    with raises("unknown-choice", "load_adult part"):
        load_adult("all")


def test_mushroom(shared_data):
    data = load_mushroom()
    published = (2, 6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 1, 4, 3, 5, 9, 6, 7)
    assert (data.domain.cardinalities, data.domain.num_states) == (published, 243_799_621_632_000)
    assert math.prod(published[:10]) == 829_440
    assert data.num_rows == data.unique().num_rows == 8124
    assert data.entropy() == pytest.approx(math.log(8124), rel=1e-12)
    assert data.marginal_counts([("class",)]).tolist() == [4208, 3916]
    assert data.marginal_counts([("stalk-root",)])[data.domain["stalk-root"].code("?")] == 2480 and not data.has_missing
    rows = raw_rows(shared_data, "mushroom")
    labels = [[v.labels[c] for v, c in zip(data.domain, row, strict=True)] for row in data.codes.tolist()]
    assert labels == [list(row.values()) for row in rows]
    assert [p.num_rows for p in data.split([0.35, 0.15, 0.5], 0)] == [2843, 1219, 4062]


def test_breast_cancer(shared_data):
    data = load_breast_cancer()
    assert (data.domain.cardinalities, data.domain.num_states) == ((2, 6, 3, 11, 7, 3, 3, 2, 6, 2), 598_752)
    assert (data.num_rows, data.unique().num_rows) == (286, 286 - 14)
    assert data.marginal_counts([("class",)]).tolist() == [201, 85]
    ordinal = [v for v in data.domain if v.kind == "ordinal"]
    assert [v.name for v in ordinal] == ["age", "tumor-size", "inv-nodes", "deg-malig"]
    for variable in ordinal:
        lower = [int(label.split("-")[0]) for label in variable.labels]
        assert lower == sorted(lower)
        assert list(variable.labels) != sorted(variable.labels) or variable.name in ("age", "deg-malig")
    rows = raw_rows(shared_data, "breast_cancer")
    expected = Counter(tuple(row.values()) for row in rows)
    found = Counter(tuple(v.labels[c] for v, c in zip(data.domain, row, strict=True)) for row in data.codes.tolist())
    assert found == expected


@pytest.mark.filterwarnings("ignore:levels like others", "ignore:numbers were cut")
def test_a_large_file_is_read_in_about_a_second(shared_data):
    start = time.process_time()
    data = Observations.from_csv(shared_data / "adult.csv", count=None, bins="auto")
    assert data.num_rows == 32561 and data.domain["age"].kind == "ordinal"
    assert time.process_time() - start < 3.0  # about 0.3 s; the bound allows for a slow machine
