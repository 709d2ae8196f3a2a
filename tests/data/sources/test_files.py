"""Files of rows: what a folder may hold, and one line for what it may not."""

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_hoim import Domain, Observations
from pyro_hoim.data import ChunkedRows, DaskRows, open_rows
from pyro_hoim.errors import DataWarning, InputError, IntractableError


def written(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_files_of_text_are_read_as_one_file_is(tmp_path, table):
    frame = table(300)
    whole = tmp_path / "whole.csv"
    frame.to_csv(whole, index=False)
    expected = Observations.from_csv(whole)
    (tmp_path / "parts").mkdir()
    for i in range(3):
        frame.iloc[100 * i : 100 * (i + 1)].to_csv(tmp_path / "parts" / f"{i}.csv", index=False)
    for path in (whole, tmp_path / "parts", sorted((tmp_path / "parts").iterdir())):
        rows = open_rows(path, chunk_rows=41)
        assert rows.domain == expected.domain
        assert torch.equal(rows.observations().codes, expected.codes)


def test_files_of_hidden_folders_are_no_rows(tmp_path):
    for name in ("a.csv", ".a.csv", "_temporary/a.csv", "deep/.b/a.csv", "deep/a.csv"):
        written(tmp_path, name, "a\nx\ny\n")
    assert open_rows(tmp_path).num_rows == 4


def test_lists_are_of_files_that_there_are(tmp_path):
    for path in (tmp_path / "none.parquet", tmp_path):
        with pytest.raises(InputError, match="no such file"):
            open_rows([path])


def test_counts_may_have_blanks_and_a_bad_one_is_shown(tmp_path):
    assert open_rows(written(tmp_path, "t.csv", "a,count\nx, 3 \ny,2\n")).total_count == 5
    with pytest.raises(InputError, match="received ''"):
        open_rows(written(tmp_path, "u.csv", "a,count\nx,3\ny,\n")).distinct()


@pytest.mark.parametrize("name", ["Freq", "weight"])
def test_columns_named_as_counts_or_weights_are_asked_about(tmp_path, name):
    path = written(tmp_path, "t.csv", f"a,{name}\nx,3\ny,2\nx,3\n")
    with pytest.raises(InputError, match=f"column '{name}' seems to hold"):
        open_rows(path)
    assert open_rows(path, columns=["a", name]).domain.names == ("a", name)
    assert (open_rows(path, count=None).domain.names, open_rows(path, count=name).total_count) == (("a", name), 8)


def test_columns_of_numbers_are_cut_alike_wherever_they_lie(tmp_path, client, write_parquet):
    import dask.dataframe as dd

    random = np.random.default_rng(5)
    values = np.where(random.random(400) < 0.1, np.nan, random.normal(0, 1, 400))
    frame = pd.DataFrame({"a": random.choice(["x", "y"], 400), "b": values})
    bins = {"b": "edges:-9,0,0.5,9"}
    held = open_rows(frame, bins=bins)
    assert held.domain["b"].labels == ("[-9, 0)", "[0, 0.5)", "[0.5, 9)") and held.domain["b"].kind == "ordinal"
    expected = held.observations()
    assert torch.equal(
        expected.codes[:, 1], torch.from_numpy(np.where(np.isnan(values), -1, (values >= 0) + 0 + (values >= 0.5)))
    )
    folder = write_parquet(tmp_path / "rows", frame)
    frame.to_csv(tmp_path / "t.csv", index=False)
    others = [
        open_rows(folder, bins=bins, chunk_rows=50),
        open_rows(tmp_path / "t.csv", bins=bins),
        open_rows(folder, bins=bins, domain=held.domain),
        open_rows(dd.from_pandas(frame, npartitions=3), bins=bins, cluster=client),
    ]
    for rows in others:
        assert rows.domain == held.domain
        assert torch.equal(rows.observations().codes, expected.codes)


@pytest.mark.filterwarnings("ignore:numbers were cut")
@pytest.mark.parametrize(
    "bins",
    ["auto", "quantile:3", {"b": "auto"}, {"*": "auto", "c": "edges:10,30"}, {"b": "width:1", "c": "quantile:2"}],
)
def test_rules_that_look_at_the_rows_give_pieces_the_cut_points_of_the_whole(tmp_path, client, write_parquet, bins):
    import dask.dataframe as dd

    random = np.random.default_rng(6)
    values = np.where(random.random(400) < 0.1, np.nan, random.normal(0, 1, 400).round(2))
    frame = pd.DataFrame({"a": random.choice(["x", "y"], 400), "b": values, "c": random.integers(0, 60, 400)})
    frame["count"] = random.integers(1, 5, 400)
    allow = ["c"] if bins == {"b": "auto"} else []
    held = open_rows(frame, bins=bins, allow=allow)
    assert held.domain["b"].kind == "ordinal" and held.domain["b"].cardinality > 1
    expected = held.observations()
    folder = write_parquet(tmp_path / "rows", frame)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for rows in (
        open_rows(folder, bins=bins, allow=allow, chunk_rows=50),
        open_rows(tmp_path / "t.csv", bins=bins, allow=allow, chunk_rows=70),
        open_rows(dd.from_pandas(frame, npartitions=3), bins=bins, allow=allow, cluster=client),
    ):
        assert rows.domain == held.domain
        found = rows.observations()
        assert torch.equal(found.codes, expected.codes) and torch.equal(found.counts, expected.counts)


def test_columns_that_cannot_be_cut_are_refused(tmp_path, frame):
    path = written(tmp_path, "t.csv", "a,b\nx,1\ny,2\n")
    for bins, message in (
        ({"a": "edges:1"}, "expected a number in column 'a', which is cut into levels, received 'x'"),
        ({"b": "width"}, "bins of 'b'"),
        ({"c": "edges:1"}, "unknown column 'c'"),
        ({"b": "edges:2,1"}, "edges in increasing order"),
    ):
        with pytest.raises(ValueError, match=message):
            open_rows(path, bins=bins)
    with pytest.raises(InputError, match="observations have levels"):
        open_rows(Observations.from_pandas(frame), bins={"number": "edges:1"})


def test_dictionaries_may_differ_between_files(tmp_path):
    one = pd.DataFrame({"a": pd.Categorical(["u", "v"], categories=["v", "u"])})
    other = pd.DataFrame({"a": pd.Categorical(["w", "u"], categories=["w", "u", "t"])})
    for i, part in enumerate((one, other)):
        part.to_parquet(tmp_path / f"{i}.parquet")
    rows = open_rows(tmp_path)
    assert rows.domain["a"].labels == ("v", "u", "w", "t")  # in the order in which they come
    assert [rows.domain["a"].labels[i] for batch in rows.batches() for i in batch.codes[0]] == ["u", "v", "w", "u"]


def test_numbers_and_text_of_one_label_are_one_level_in_files(tmp_path):
    for i, values in enumerate(([1, 2], ["1", "3"], [2.0, 2.5])):
        pd.DataFrame({"a": values}).to_parquet(tmp_path / f"{i}.parquet")
    assert open_rows(tmp_path).domain["a"].labels == ("1", "2", "2.5", "3")


def test_hidden_files_and_marks_of_other_programs_are_passed_over(tmp_path, table, write_parquet):
    folder = write_parquet(tmp_path / "rows", table(30)[["text"]])
    written(folder, "_SUCCESS", "")
    written(folder, ".part.crc", "x")
    assert open_rows(folder).num_rows == 30


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({}, "empty", "received none"),
        ({"a.csv": ""}, "empty", "an empty file"),
        ({"a.csv": "a,b\n"}, "empty", "at least one row"),
        ({"a.csv": "a\n1\n", "b.parquet": "x"}, "conflict", "a.csv and b.parquet"),
        ({"a.csv": "a\n1\n", "b.xlsx": "x"}, "damaged-file", "b.xlsx"),
        ({"a.csv": "a,b\n1,2\n", "b.csv": "a,c\n1,2\n"}, "conflict", "column 'b' is in"),
        ({"a.csv": "a,b\n1,2\n1\n"}, "wrong-shape", "line 3: expected 2 cells as in the header"),
        ({"a.csv": "a,a\n1,2\n"}, "repeated-name", "'a'"),
        ({"a.csv": "a,\n1,2\n"}, "missing-part", "a name for every column"),
        ({"a.csv": "a,b\n,\n"}, "empty", "missing cells only"),
        ({"a.parquet": "no parquet at all"}, "damaged-file", "a.parquet"),
    ],
)
def test_other_folders_are_refused_in_one_line(tmp_path, files, code, words, refused):
    for name, text in files.items():
        written(tmp_path, name, text)
    with refused(ValueError, code, words):
        open_rows(tmp_path)


def test_faults_behind_the_first_pass_are_one_line_too(tmp_path, refused):
    path = written(tmp_path, "a.csv", "a\nx\nz\n")
    rows = open_rows(path, domain=Domain.from_labels({"a": ["x", "y"]}))
    with refused(ValueError, "unknown-name", "'z'"):
        rows.marginal_counts([("a",)])
    path.unlink()
    with refused(ValueError, "damaged-file"):
        rows.marginal_counts([("a",)])


def test_columns_that_name_rows_are_left_out(tmp_path, refused):
    pd.DataFrame({"a": [0, 1] * 50, "id": range(100)}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(DataWarning, match=r"left out: 'id' \(100 levels in 100 rows\)"):
        assert open_rows(tmp_path).domain.names == ("a",)
    with refused(ValueError, "invalid-value", "'id' (100 levels in 100 rows)"):
        open_rows(tmp_path, columns=["a", "id"])
    assert open_rows(tmp_path, allow=["id"]).domain.names == ("a", "id")  # control
    assert open_rows(tmp_path, columns=["a"]).domain.names == ("a",)
    with refused(ValueError, "unknown-name", "did you mean 'id'"):
        open_rows(tmp_path, columns=["idd"])


def test_columns_of_too_many_levels_are_refused(tmp_path, refused):
    values = np.random.default_rng(0).random(70_000)
    pd.DataFrame({"a": values}).to_parquet(tmp_path / "t.parquet")
    with refused(IntractableError, "over-budget", "column 'a'"):
        open_rows(tmp_path)


def test_a_known_domain_needs_no_pass_and_orders_the_columns(tmp_path, refused, table, write_parquet):
    frame = table(200)
    folder = write_parquet(tmp_path / "rows", frame)
    domain = Domain.from_labels({"truth": ["True", "False"], "text": ["é", "y", "x"]})
    rows = open_rows(folder, domain=domain)
    assert isinstance(rows, ChunkedRows)
    expected = Observations.from_pandas(frame[["truth", "text"]], domain=domain)
    assert torch.equal(rows.observations().codes, expected.codes)
    with refused(ValueError, "unknown-name", "lacks"):
        open_rows(folder, domain=Domain.from_labels({"other": ["1"]}))


def test_counts_in_files_are_whole(tmp_path, refused):
    path = written(tmp_path, "t.csv", "a,count\nx,3\ny,4\n")
    assert open_rows(path).marginal_counts([("a",)]).tolist() == [3, 4]
    assert open_rows(path, count=None).domain.names == ("a", "count")
    written(tmp_path, "t.csv", "a,count\nx,3\ny,4.5\n")
    with refused(ValueError, "out-of-range", "count=None"):
        open_rows(path).marginal_counts([("a",)])


def test_arrays_of_dask_are_rows_of_labels(client):
    import dask.array as da

    values = np.random.default_rng(1).integers(0, 3, (100, 4))
    rows = open_rows(da.from_array(values, chunks=(30, 2)), cluster=client)
    assert isinstance(rows, DaskRows) and rows.domain == Domain.from_cardinalities([3] * 4)
    assert np.array_equal(rows.observations().codes.numpy(), values)


@pytest.mark.parametrize(
    ("cluster", "code"), [("tcp://127.0.0.1:9", "invalid-value"), ("nowhere", "invalid-value"), (5, "wrong-type")]
)
def test_clusters_that_are_none_are_refused(tmp_path, cluster, code, refused):
    path = written(tmp_path, "t.csv", "a\nx\n")
    with refused((ValueError, TypeError), code):
        open_rows(path, cluster=cluster)


@pytest.mark.parametrize("data", [5, None, np.zeros((3, 2))])
def test_other_data_are_refused(data, refused):
    with refused(TypeError, "wrong-type"):
        open_rows(data)
