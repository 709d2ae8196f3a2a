"""Observations: readers, statistics against brute force, and every error."""

import itertools
import math
import pickle
from collections import Counter
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, strategies as st

from pyro_hoim import Domain, Observations, Variable, load_table
from pyro_hoim.core.prediction import Imputation, extend_rows
from pyro_hoim.core.words import rows_text
from pyro_hoim.errors import InputError, IntractableError, MissingDataError
from pyro_hoim.testing import raises

from support.strategies import coded_rows, counted

DOMAIN = Domain([Variable("smoke", ("y", "n")), Variable("age", ("young", "old", "older"), "ordinal")])
RELATIVE = 1e-12


def observations(*, missing=False):
    """Up to twelve rows of up to four variables with whole counts."""
    cases = coded_rows(missing=missing, min_rows=1)
    return cases.map(lambda case: Observations.from_tensor(case[0], Domain.from_cardinalities(case[2]), case[1]))


def law(data):
    """Total count of each distinct row, by a dictionary."""
    return counted(data.codes, data.counts)


@given(observations())
def test_table_and_entropy_against_enumeration(data):
    counts = law(data)
    table = data.table()
    assert (table.dtype, table.shape) == (torch.float64, data.domain.cardinalities)
    for cell in itertools.product(*(range(n) for n in data.domain.cardinalities)):
        assert table[cell].item() == counts[cell]
    total = sum(counts.values())
    assert data.total_count == total
    if total == 0:
        with pytest.raises(InputError, match="positive total count"):
            data.entropy()
        return
    expected = -sum(c / total * math.log(c / total) for c in counts.values())
    assert data.entropy() == pytest.approx(expected, rel=RELATIVE, abs=1e-15)
    name = data.domain.names[0]
    margin = table.reshape(data.domain.cardinalities[0], -1).sum(1)
    assert data.entropy([name]) == pytest.approx(
        Observations.from_table(data.domain.project([name]), margin).entropy(), rel=RELATIVE, abs=1e-15
    )


@given(observations(), st.randoms(use_true_random=False))
def test_statistics_do_not_depend_on_the_order_or_grouping_of_rows(data, random):
    order = list(range(data.num_rows))
    random.shuffle(order)
    edges = [e for k in range(len(data.domain) + 1) for e in itertools.combinations(data.domain.names, k)]
    expected = data.marginal_counts(edges)
    expanded = Observations(data.domain, data.codes.repeat_interleave(data.counts.long(), 0))
    for other in (data.rows(torch.tensor(order)), data.unique(), expanded):
        assert torch.equal(other.marginal_counts(edges), expected)
    assert expected[0] == data.total_count
    # Control: a lost observation is seen.
    if data.total_count:
        assert not torch.equal(expanded.rows(torch.arange(1, expanded.num_rows)).marginal_counts(edges), expected)


def test_marginal_counts_axes_follow_the_edge():
    data = Observations.from_table(DOMAIN, [[1, 2, 3], [4, 5, 6]])
    assert data.marginal_counts([("smoke", "age")]).tolist() == [1, 2, 3, 4, 5, 6]
    assert data.marginal_counts([("age", "smoke")]).tolist() == [1, 4, 2, 5, 3, 6]
    assert data.marginal_counts([("smoke",), (), ("age",)]).tolist() == [6, 15, 21, 5, 7, 9]
    assert data.marginal_counts([]).tolist() == []


def test_missing_cells_are_counted_and_refused():
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 3})
    data = Observations(domain, torch.tensor([[0, -1, 2], [-1, -1, 1], [1, 0, 0]]))
    assert data.has_missing and data.num_missing_cells == 3
    with pytest.raises(MissingDataError, match=r"marginal_counts: 3 missing cells in 'a', 'b'; use drop_missing\(\)"):
        data.marginal_counts([("a",), ("b", "c")])
    with pytest.raises(MissingDataError, match="entropy: 3 missing cells"):
        data.entropy()
    with pytest.raises(MissingDataError, match="2 missing cells in 'b'"):
        data.marginal_counts([("b", "c")])
    assert data.marginal_counts([("c",)]).tolist() == [1, 1, 1]
    assert data.entropy(["c"]) == pytest.approx(math.log(3), rel=RELATIVE)
    complete = data.drop_missing()
    assert complete.codes.tolist() == [[1, 0, 0]] and not complete.has_missing


@given(observations(missing=True))
def test_unique_keeps_missing_cells_apart(data):
    merged = data.unique()
    assert law(merged) == law(data)
    assert (merged.num_rows, merged.unique().codes.tolist()) == (len(law(data)), merged.codes.tolist())


@given(observations(missing=True))
def test_missing_as_level(data):
    filled = data.missing_as_level("?")
    assert not filled.has_missing
    for i, (old, new) in enumerate(zip(data.domain, filled.domain, strict=True)):
        column = data.codes[:, i]
        assert new.labels == ((*old.labels, "?") if (column < 0).any() else old.labels)
        assert torch.equal(filled.codes[:, i], torch.where(column < 0, old.cardinality, column))
    assert filled.missing_as_level("?").domain == filled.domain


def test_missing_as_level_joins_a_level_and_ends_an_order():
    data = Observations(DOMAIN, torch.tensor([[-1, -1]]))
    filled = data.missing_as_level("n")
    assert (filled.codes.tolist(), filled.domain["smoke"]) == ([[1, 3]], DOMAIN["smoke"])
    assert filled.domain["age"] == Variable("age", ("young", "old", "older", "n"), "nominal")


def test_project_and_rows():
    data = Observations(DOMAIN, torch.tensor([[0, 2], [1, 1]]), torch.tensor([2.0, 3.0]))
    assert (data.project(["age"]).codes.tolist(), data.project(["age", "smoke"]).domain) == ([[2], [1]], DOMAIN)
    assert data.project("age").domain.names == ("age",)
    assert data.rows(torch.tensor([False, True])).counts.tolist() == [3.0]


@given(observations(missing=True), st.integers(0, 5))
def test_split_parts_add_up(data, seed):
    parts = data.split([0.5, 0.2, 0.3], seed)
    assert sum((law(p) for p in parts), Counter()) == law(data)
    total = data.total_count
    assert parts[0].total_count == math.floor(0.5 * total + 0.5)
    assert all(p.domain == data.domain for p in parts)


def test_counts_in_a_list_keep_their_last_digit():
    codes = torch.tensor([[0, 2], [1, 1]])
    assert Observations(DOMAIN, codes, [2.0**24 + 1, 1]).counts.tolist() == [2**24 + 1, 1]
    assert Observations(DOMAIN, codes, [2**53 - 2, 1]).total_count == 2**53 - 1


def test_whole_weights_are_weights_not_numbers_of_rows():
    """The oracle is half of them: fractions are weights whatever they are called."""
    frame = pd.DataFrame({"a": list("xyxxy"), "b": [*"uvvu", None], "w": [3, 1, 40, 5, 7]})
    whole, half = (Observations.from_pandas(frame.assign(w=frame.w * by), weights="w") for by in (1, 0.5))
    table, codes = torch.tensor([[4.0, 0.0], [6.0, 2.0]]), torch.tensor([[0, 1], [1, 1]])
    domain = Domain.from_cardinalities([2, 2])
    for made in (
        whole,
        Observations.from_table(domain, weights=table),
        Observations.from_tensor(codes, domain, weights=[2, 3]),
        Observations.from_numpy(codes.numpy(), weights=[2, 3]),
    ):
        assert not made.has_whole_counts
    for change in (
        lambda rows: rows.unique(),
        lambda rows: rows.project(["a"]),
        lambda rows: rows.drop_missing(),
        lambda rows: rows.missing_as_level("none"),
        lambda rows: rows.rows(torch.tensor([0, 2])),
        lambda rows: rows.replaced(codes=rows.codes.flip(0)),
        lambda rows: extend_rows(rows, Domain([*rows.domain, Variable("c", ("0", "1"))])),
        lambda rows: Imputation(rows, rows.codes[None], torch.ones(5), "draws").observations(),
        lambda rows: Observations.concatenated([rows.replaced(counts=rows.counts.flip(0)), rows]),
        *(lambda rows, k=k: rows.split([0.4, 0.6], 3)[k] for k in range(2)),
    ):
        first, second = change(whole), change(half)
        assert torch.equal(first.codes, second.codes) and torch.equal(first.counts, second.counts * 2)
        assert rows_text(first).split(" with ")[0] == rows_text(second).split(" with ")[0]
        assert "weights that add up to" in rows_text(first)
    counted = Observations.from_pandas(frame, count="w")  # the control: numbers of rows are split one by one
    assert rows_text(counted) == "56 rows"
    assert sum(part.num_rows for part in counted.split([0.4, 0.6], 3)) > counted.num_rows
    wider = Domain([*counted.domain, Variable("c", ("0", "1"))])
    assert extend_rows(counted, wider).has_whole_counts and counted.replaced(domain=counted.domain).has_whole_counts
    assert not Observations.concatenated([counted, whole]).has_whole_counts


def test_split_leaves_global_random_state_alone():
    data = Observations.from_table(DOMAIN, torch.ones(2, 3))
    numpy_state, torch_state = np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    data.split([0.5, 0.5], 0)
    assert np.random.get_state()[1].tolist() == numpy_state  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


@given(observations(missing=True))
def test_pandas_round_trip(data):
    back = Observations.from_pandas(data.to_pandas(), count="count", allow=data.domain.names)
    assert back.domain == data.domain
    assert torch.equal(back.codes, data.codes) and torch.equal(back.counts, data.counts)


def test_to_pandas():
    data = Observations(DOMAIN, torch.tensor([[0, 2], [-1, 1]]), torch.tensor([2.0, 0.5]))
    frame = data.to_pandas()
    assert frame.columns.tolist() == ["smoke", "age", "count"] and frame["age"].cat.ordered
    assert not frame["smoke"].cat.ordered and frame["smoke"].isna().tolist() == [False, True]
    assert frame["count"].tolist() == [2.0, 0.5]
    assert data.to_pandas(count=None).columns.tolist() == ["smoke", "age"]
    assert Observations.from_pandas(frame, weights="count").domain == DOMAIN


def write(folder, text):
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8")
    return path


@given(data=observations(missing=True))
def test_csv_equals_pandas(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    frame = data.to_pandas()
    frame.to_csv(path, index=False)
    read = Observations.from_csv(path, domain=data.domain)
    assert torch.equal(read.codes, data.codes) and torch.equal(read.counts, data.counts)
    seen = frame.drop(columns="count").notna().any()
    if seen.all():  # levels found in the file: those that occur, in the same order
        strings = frame.astype(dict.fromkeys(data.domain.names, object))
        found, same = Observations.from_csv(path), Observations.from_pandas(strings, count="count")
        assert found.domain == same.domain
        assert torch.equal(found.codes, same.codes)


@pytest.mark.filterwarnings("ignore:levels like others")
def test_csv_rows_cells_and_weights(tmp_path):
    rows = Observations.from_csv(write(tmp_path, "a,b\nx,1\ny,\nx,?\n"))
    assert (rows.counts.tolist(), rows.domain["b"].labels) == ([1, 1, 1], ("1", "?"))
    assert rows.codes.tolist() == [[0, 0], [1, -1], [0, 1]]
    assert Observations.from_csv(tmp_path / "t.csv", missing_values=("", "?")).num_missing_cells == 2
    path = write(tmp_path, "count,a,w\n3,x,0.5\n0,y,2\n")
    cells = Observations.from_csv(path, columns=["a"])
    assert (cells.counts.tolist(), cells.domain["a"].labels) == ([3, 0], ("x", "y"))
    assert Observations.from_csv(path, columns=1).domain.names == ("a",)
    weighted = Observations.from_csv(path, count=None, weights="w", columns=["a"])
    assert weighted.counts.tolist() == [0.5, 2]
    assert Observations.from_csv(path, weights="count", columns=["a"]).counts.tolist() == [3, 0]
    assert Observations.from_csv(path, count=None).domain.names == ("count", "a", "w")
    path = write(tmp_path, "a,count\nx,1\ny,2.5\n")
    assert Observations.from_csv(path, weights="count").counts.tolist() == [1, 2.5]


def test_constant_columns_are_variables_of_one_state(tmp_path):
    data = Observations.from_csv(write(tmp_path, "a,b\nx,1\nx,2\n"))
    assert (data.domain.cardinalities, data.entropy()) == ((1, 2), pytest.approx(math.log(2), rel=RELATIVE))


def test_csv_with_a_domain(tmp_path):
    path = write(tmp_path, "extra,age,smoke\n1,old,n\n2,,y\n3,older,y\n")
    data = Observations.from_csv(path, domain=DOMAIN)
    assert (data.domain, data.codes.tolist()) == (DOMAIN, [[1, 1], [0, -1], [0, 2]])
    assert Observations.from_csv(path, domain=DOMAIN, columns=["age"]).domain.names == ("age",)


def test_pandas_index_does_not_matter():
    frame = pd.DataFrame({"a": ["x", "y", "x"], "n": [1, 2, 3]}, index=[5, 5, 0])
    data = Observations.from_pandas(frame, count="n")
    assert (data.codes.tolist(), data.counts.tolist()) == ([[0], [1], [0]], [1, 2, 3])


def test_numpy():
    data = Observations.from_numpy(np.array([["b", "1"], ["a", "10"], ["", "9"]]), counts=[1, 2, 3])
    assert data.domain == Domain.from_labels({"x0": ("a", "b"), "x1": ("1", "9", "10")})
    assert (data.codes.tolist(), data.counts.tolist()) == ([[1, 0], [0, 2], [-1, 1]], [1, 2, 3])
    known = Observations.from_numpy([["old", "y"]], names=["age", "smoke"], domain=DOMAIN, weights=[0.5])
    assert (known.codes.tolist(), known.counts.tolist()) == ([[0, 1]], [0.5])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_tensor_is_copied_and_checked(dtype):
    codes = torch.tensor([[0, 2], [1, -1]], dtype=dtype)
    data = Observations.from_tensor(codes, DOMAIN)
    codes[0, 0] = 1
    assert (data.codes.dtype, data.codes.tolist(), data.counts.dtype) == (torch.long, [[0, 2], [1, -1]], torch.float64)
    assert Observations.from_tensor(np.array([[1, 0]]), DOMAIN, weights=[1.5]).total_count == 1.5


@pytest.mark.parametrize(
    ("levels", "dtype"), [(127, torch.int8), (128, torch.int16), (2**15 - 1, torch.int16), (2**15, torch.int32)]
)
def test_rows_are_held_in_the_narrowest_type(levels, dtype):
    domain = Domain.from_cardinalities({"a": 2, "b": levels})
    wide = torch.tensor([[1, levels - 1], [0, -1], [1, levels - 1], [-1, 0], [0, levels - 2]])
    rows = Observations(domain, wide)
    distinct = torch.unique(wide, dim=0)
    frame = pd.DataFrame({"a": [1, 0], "b": pd.Categorical.from_codes([levels - 1, -1], range(levels))})
    parts = [rows, rows.unique(), rows.rows(torch.tensor([0, 1])), *rows.split([0.5, 0.5], seed=0), rows.drop_missing()]
    parts += [Observations.concatenated([rows, rows]), Observations.from_pandas(frame, domain=domain)]
    assert {part.narrow.dtype for part in parts} == {dtype}
    assert rows.project(["a"]).narrow.dtype == torch.int8
    # To users codes are long, with which PyTorch indexes, and the same tensor every time.
    assert rows.codes is rows.codes and torch.equal(rows.codes, wide) and torch.equal(rows.unique().codes, distinct)
    assert {part.codes.dtype for part in parts} == {torch.long}
    assert torch.equal(parts[2].codes, wide[:2]) and torch.equal(parts[-1].codes, wide[:2])
    assert b"".join(rows.code_bytes()) == wide.numpy().tobytes()
    assert rows.missing_by_column == (1, 1)
    with pytest.raises(InputError, match=f"a code from 0 to {levels - 1}"):
        Observations(domain, torch.tensor([[0, levels]]))


def test_codes_that_are_made_in_inference_mode_serve_training():
    rows = Observations(DOMAIN, torch.tensor([[0, 1], [1, 2]]))
    with torch.inference_mode():
        assert rows.codes.tolist() == [[0, 1], [1, 2]]
    assert not rows.codes.is_inference()


def test_from_table():
    table = torch.arange(6.0).reshape(2, 3)
    data = Observations.from_table(DOMAIN, table)
    assert torch.equal(data.table(), table.double())
    assert (data.num_rows, data.counts.tolist()) == (6, [0, 1, 2, 3, 4, 5])
    assert torch.equal(Observations.from_table(DOMAIN, weights=table / 4).table(), table.double() / 4)
    assert Observations.from_table(Domain(), np.array(3)).total_count == 3


def test_frozen_pickled_and_shown():
    data = Observations(DOMAIN, torch.tensor([[0, -1], [1, 1]]))
    with pytest.raises(AttributeError):
        data.counts = None
    copy = pickle.loads(pickle.dumps(data))
    assert copy.domain == data.domain
    assert torch.equal(copy.codes, data.codes)
    assert repr(data) == "Observations(2 variables, 2 rows, total 2, 1 missing cells)"


def test_no_rows_are_allowed_in_code():
    empty = Observations(DOMAIN, torch.zeros((0, 2), dtype=torch.long))
    assert (empty.total_count, empty.table().sum()) == (0, 0)
    assert [p.num_rows for p in empty.split([0.5, 0.5], 0)] == [0, 0]
    assert empty.to_pandas().shape == (0, 3)


def test_pandas_round_trip_keeps_the_counts():
    data = load_table("czech_autoworkers")
    again = Observations.from_pandas(data.to_pandas())
    assert again.domain == data.domain and again.total_count == data.total_count == 1841
    rows = Observations.from_pandas(data.to_pandas(), count=None, allow=["count"])  # control: then it is a variable
    assert rows.total_count == 64 and "count" in rows.domain


# -------------------------------------------------------------------------------------------------------- errors

ONE = torch.zeros((1, 2), dtype=torch.long)
TABLE = Observations.from_table(DOMAIN, [[1, 2, 3], [4, 5, 6]])
HUGE = Observations(Domain.from_cardinalities([100] * 12), torch.zeros((1, 12), dtype=torch.long))
COUNTED = Observations(Domain.from_cardinalities({"count": 2}), torch.tensor([[0]]))
REAL = Domain([Variable("n", kind="count")])
FRAME = pd.DataFrame({"a": ["x", "y"], "n": [1.0, math.nan]})
TWICE = pd.DataFrame([[1, 2]], columns=["a", "a"])


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda: TABLE.marginal_counts([("smoke", "aeg")]), "unknown-name", None),
        (lambda: TABLE.marginal_counts([("age", "age")]), "repeated-name", None),
        (lambda: TABLE.table(max_cells=5), "over-budget", "marginal_counts"),
        (HUGE.table, "over-budget", "marginal_counts"),
        (lambda: TABLE.missing_as_level(""), "empty", "missing_as_level label"),
        (lambda: TABLE.project(["ag"]), "unknown-name", None),
        *(
            (partial(TABLE.split, fractions, 0), "out-of-range", "split fractions")
            for fractions in ([], [0.5], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], [0.5, 0.4999])
        ),
        *((partial(TABLE.split, [1.0], seed), "wrong-type", "split seed") for seed in (1.0, "0", None, True)),
        (lambda: TABLE.split([1.0], -1), "out-of-range", "split seed"),
        (COUNTED.to_pandas, "repeated-name", "to_pandas count"),
        (lambda: Observations.from_pandas(FRAME, count="n"), "out-of-range", "row 1 (counted from 0), column 'n'"),
        (lambda: Observations.from_pandas(TWICE), "repeated-name", "from_pandas columns"),
        (lambda: Observations.from_pandas(FRAME.iloc[:0]), "empty", "the frame"),
        (lambda: Observations.from_pandas([1]), "wrong-type", "from_pandas frame"),
        (lambda: Observations.from_numpy([1, 2, 3]), "wrong-shape", "from_numpy values"),
        (lambda: Observations.from_numpy([[1, 2]], names=["a"]), "wrong-shape", "from_numpy names"),
        (lambda: Observations.from_numpy([[1, 2]], names=["a", "a"]), "repeated-name", "from_numpy names"),
        (
            lambda: Observations.from_numpy([[7, 0]], domain=Domain.from_cardinalities([2, 2])),
            "unknown-name",
            "row 0 (counted from 0), column 'x0'",
        ),
        (
            lambda: Observations.from_numpy([[1], [1]], counts=[1, 0.5]),
            "out-of-range",
            "row 1 (counted from 0), counts",
        ),
        *(
            (
                partial(Observations.from_tensor, torch.tensor([codes]), DOMAIN),
                "out-of-range",
                f"Observations codes: row 0 (counted from 0), variable '{name}'",
            )
            for codes, name in (([0, 3], "age"), ([-2, 0], "smoke"))
        ),
        (lambda: Observations.from_tensor(torch.zeros(1, 2), DOMAIN), "wrong-type", "Observations codes"),
        (lambda: Observations.from_tensor(ONE[0], DOMAIN), "wrong-shape", "Observations codes"),
        (lambda: Observations.from_tensor(ONE[:, :1], DOMAIN), "wrong-shape", "Observations codes"),
        (lambda: Observations.from_tensor(ONE, DOMAIN, [1.0, 1.0]), "wrong-shape", "counts"),
        (lambda: Observations.from_tensor(ONE, DOMAIN, [1], weights=[1]), "conflict", "counts, weights"),
        (lambda: Observations.from_table(DOMAIN, torch.ones(3, 2)), "wrong-shape", "from_table counts"),
        (lambda: Observations.from_table(DOMAIN), "conflict", "from_table"),
        *(
            (partial(Observations, DOMAIN, ONE, None, True, torch.tensor(bad)), "out-of-range", "Observations squares")
            for bad in ([-1.0], [math.nan], [1.0, 1.0])
        ),
        (lambda: Observations(REAL, ONE[:, :1]), "other-domain", "Observations domain"),
        (lambda: Observations([2], ONE[:, :1]), "wrong-type", "Observations domain"),
    ],
)
def test_bad_input_is_refused(call, code, argument):
    with raises(code, argument):
        call()


def test_missing_numbers_of_a_frame_are_missing_cells():
    assert Observations.from_pandas(FRAME, count=None).codes.tolist() == [[0, 0], [1, -1]]


@pytest.mark.parametrize("count", [math.nan, math.inf, -1.0, 0.5])
def test_bad_counts_are_refused(count, tmp_path):
    for call in (
        lambda: Observations.from_tensor(ONE, DOMAIN, [count]),
        lambda: Observations.from_table(DOMAIN, torch.full((2, 3), count)),
    ):
        with raises("out-of-range", "row 0 (counted from 0), counts"):
            call()
    if count == 0.5:
        assert Observations(DOMAIN, ONE, torch.tensor([count])).total_count == 0.5
    else:
        with raises("out-of-range", "row 0 (counted from 0), Observations counts"):
            Observations(DOMAIN, ONE, torch.tensor([count]))


COUNTS_CSV = "smoke,age,count\ny,old,3\n"


@pytest.mark.parametrize(
    ("text", "options", "code", "argument"),
    [
        *(
            (f"a,count\nx,1\ny,{count}\n", {}, "out-of-range", "PATH line 3, column 'count'")
            for count in ("nan", "inf", "-3", "2.5", "", "many")
        ),
        (COUNTS_CSV, {"weights": "age"}, "conflict", "count, weights"),
        (COUNTS_CSV, {"columns": ["smok"]}, "unknown-name", "columns of PATH"),
        (COUNTS_CSV, {"columns": ["smoke", "smoke"]}, "repeated-name", "columns"),
        (COUNTS_CSV, {"columns": 3}, "out-of-range", "columns"),
        (COUNTS_CSV, {"count": "cuont"}, "unknown-name", "count of PATH"),
        (COUNTS_CSV, {"count": None, "weights": "w"}, "unknown-name", "weights of PATH"),
        (COUNTS_CSV, {"missing_values": "?"}, "wrong-type", "missing_values"),
        ("count\n3\n", {}, "empty", "PATH"),
        ("a,b\n,1\n,2\n", {"columns": ["a"]}, "empty", "column 'a'"),
        ("age,smoke\nold,n\noldd,y\n", {"domain": DOMAIN}, "unknown-name", "PATH line 3, column 'age'"),
        ("age,smokes\nold,n\n", {"domain": DOMAIN}, "unknown-name", "PATH"),
    ],
)
def test_bad_files_are_refused(text, options, code, argument, tmp_path):
    path = write(tmp_path, text)
    with raises(code, argument.replace("PATH", str(path))):
        Observations.from_csv(path, **options)


def test_messages_name_the_place_and_the_closest_names(tmp_path):
    with pytest.raises(InputError, match=r"t\.csv line 2, column 'count': .*'2\.5'; pass the column as weights="):
        Observations.from_csv(write(tmp_path, "a,count\nx,2.5\n"))
    with pytest.raises(InputError, match=r"line 2, column 'age': unknown label 'oldd'; did you mean 'old'"):
        Observations.from_csv(write(tmp_path, "age,smoke\noldd,n\n"), domain=DOMAIN)
    with pytest.raises(IntractableError, match=r"about 1\.00e\+24 cells are needed, more than max_cells"):
        HUGE.table()
    assert HUGE.entropy() == 0.0


def test_fractions_that_add_up_to_whole_numbers_stay_single_observations():
    merged = Observations(DOMAIN, torch.zeros(8, 2).long(), torch.full((8,), 0.5)).unique()
    (part, none) = merged.split([1.0, 0.0], 0)
    assert merged.counts.tolist() == [4.0] and merged.effective_count == 8.0 and not merged.has_whole_counts
    assert part.effective_count == 8.0 and none.num_rows == 0
    counted = Observations(DOMAIN, torch.zeros(8, 2).long(), torch.full((8,), 2.0)).unique()  # control
    assert counted.effective_count == 16.0 and counted.has_whole_counts


def test_no_rows_merge_to_no_rows_of_the_same_types():
    none = Observations(DOMAIN, torch.zeros(0, 2).long())
    for merged in (none.unique(), Observations(DOMAIN, torch.zeros(3, 2).long(), torch.zeros(3)).unique()):
        assert merged.codes.shape == (0, 2) and merged.codes.dtype == torch.long
        assert merged.counts.dtype == none.counts.dtype == torch.float64 and merged.total_count == 0
