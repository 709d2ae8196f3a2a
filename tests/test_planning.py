"""Which route a table is advised, which are closed and why, and that fits without a structure take it."""

import importlib
import json
import warnings

import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim
from pyro_hoim.dependency_network import LearnedNetwork
from pyro_hoim.errors import CostWarning, DataWarning, InputError, IntractableError, MissingDataError
from pyro_hoim.generalized_root import RootFitResult
from pyro_hoim.log_linear import Auto, FitResult, LearnResult
from pyro_hoim.log_linear.fitting.duration import bound_seconds
from pyro_hoim.planning import TableSize, advise, routes_of, size_of_counts

front = importlib.import_module("pyro_hoim.front")
planning = importlib.import_module("pyro_hoim.planning")


def labels(num_columns, num_levels, num_rows=400, seed=0):
    codes = np.random.default_rng(seed).integers(0, num_levels, (num_rows, num_columns))
    return pd.DataFrame(codes).add_prefix("v").astype(str)


def baskets(num_columns=120, num_rows=1500, num_pairs=4):
    """Columns of 0 and 1, of which pairs of neighbours were planted."""
    rng = np.random.default_rng(1)
    bought = (rng.random((num_rows, num_columns)) < 0.25).astype(int)
    for first in range(0, 2 * num_pairs, 2):
        follows = np.where(bought[:, first] == 1, 0.6, 0.15)
        bought[:, first + 1] = rng.random(num_rows) < follows
    planted = {frozenset((f"x{first}", f"x{first + 1}")) for first in range(0, 2 * num_pairs, 2)}
    return pd.DataFrame(bought).add_prefix("x"), planted


def counts(num_rows=300):
    rng = np.random.default_rng(2)
    shared = rng.poisson(1.0, num_rows)
    own = rng.poisson([0.5, 1.0, 0.3, 2.0], (num_rows, 4))
    own[:, :2] += shared[:, None]
    return pd.DataFrame(own, columns=["sea", "sun", "sand", "rain"])


SIZES = {
    # name: (size, advised, words of the reasons of closed routes)
    "small": (TableSize({"a": 2, "b": 3, "c": 2}, 200), "pairs", {"roots": "labels, and not counts"}),
    "twelve of two": (TableSize({f"v{i}": 2 for i in range(12)}, 500), "pairs", {"structures": "thousand cells"}),
    "middling": (TableSize({f"v{i}": 2 for i in range(26)}, 900), "learn", {"structures": "a few thousand cells"}),
    "wide": (
        TableSize({f"v{i}": 2 for i in range(300)}, 2000),
        "network",
        {
            "pairs": "2.0e90 possible rows",
            "sampled": "180,000 entries .* hours",
            "bound": "44,850 pairs",
            "structures": "2.0e90",
        },
    ),
    "endless": (
        TableSize({f"v{i}": 2 for i in range(20_000)}, 10**7),
        None,
        {"pairs": "out of reach", "network": "more than an hour", "learn": "20,000 columns take about"},
    ),
    "counts": (TableSize({f"v{i}": 9 for i in range(40)}, 1000, counts=1e5), "roots", {"pairs": "out of reach"}),
    "weighted counts": (
        TableSize({f"v{i}": 9 for i in range(40)}, 1000, is_weighted=True, counts=1e5),
        "network",
        {"roots": "without weights"},
    ),
    "gaps": (
        TableSize({f"v{i}": 2 for i in range(60)}, 1000, has_missing=True),
        "network",
        dict.fromkeys(("pseudo-likelihood", "bound", "sampled", "learn", "structures"), "without missing cells"),
    ),
    "one column": (TableSize({"a": 3}, 50), "pairs", {"learn": "one column varies", "structures": "one column"}),
    "constant": (TableSize({"a": 1, "b": 1}, 50), None, {"pairs": "no column has two levels", "network": "no column"}),
    "no rows": (TableSize({"a": 2, "b": 2}, 0), None, {"pairs": "no rows", "roots": "no rows"}),
}


@pytest.mark.parametrize("name", SIZES)
def test_every_table_has_its_route_and_closed_ones_their_reasons(name):
    size, advised, reasons = SIZES[name]
    routes = {route.name: route for route in routes_of(size)}
    route, why = advise(list(routes.values()))
    assert (None if route is None else route.name) == advised and why
    for closed, words in reasons.items():
        assert not routes[closed].is_open and routes[closed].words == "closed"
        assert pd.Series([routes[closed].reason]).str.contains(words).all(), routes[closed].reason
    for route in routes.values():
        assert route.reason and "\n" not in route.reason
        assert (route.seconds is None) == (route.memory_mb is None) and (route.seconds is None or route.seconds > 0)


def test_exact_fits_are_open_where_the_backend_takes_them():
    for levels, columns in ((2, 4), (2, 20), (3, 9), (5, 6), (4, 13), (2, 30), (2, 60)):
        size = TableSize({f"v{i}": levels for i in range(columns)}, 1000)
        graph = hoim.InteractionHypergraph.from_order(hoim.Domain.from_cardinalities(size.levels), 2)
        is_open = routes_of(size)[0].is_open
        assert Auto().plan(graph).feasible or not is_open
        assert is_open or levels**columns > 2**20


@pytest.mark.parametrize(("columns", "levels"), [(22, 5), (40, 2), (60, 2)])
def test_mini_buckets_of_all_pairs_have_as_many_cells_as_the_plan_says_within_a_factor_of_four(columns, levels):
    size = TableSize({f"v{i}": levels for i in range(columns)}, 1000)
    graph = hoim.InteractionHypergraph.from_order(hoim.Domain.from_cardinalities(size.levels), 2)
    route = next(route for route in routes_of(size) if route.name == "bound")
    cost = hoim.log_linear.MiniBuckets(orders=1).plan(graph)
    seconds = bound_seconds(cost.total_cells)
    assert seconds / 4 < route.seconds < 4 * seconds
    memory = hoim.log_linear.MiniBuckets().plan(graph).memory_bytes  # of three orders at once, as in a fit
    assert memory / 4 < route.memory_mb * 2**20 < 4 * memory


def test_memory_of_a_dense_fit_is_that_of_its_design_within_a_factor_of_four():
    size = TableSize({f"v{i}": 5 for i in range(6)}, 1000)
    held = routes_of(size)[0].memory_mb * 2**20
    assert held / 4 < 8 * 5**6 * 264 < 4 * held


@pytest.mark.parametrize(
    ("frame", "are_counts"),
    [
        (counts(), True),
        (counts().astype(str), True),
        (counts().assign(count=1), True),
        (counts().assign(word="a"), False),
        (counts().astype(float).replace(3, 2.5), False),
        (counts() - 1, False),
        (counts()[["sea", "sun"]], False),
        (counts().iloc[:0], False),
        (counts().clip(upper=1), False),
        (counts().clip(upper=2), False),  # genotypes
        (counts().clip(upper=4) + 1, False),  # answers from 1 to 5
        (counts().astype("category"), False),
        (counts().mask(counts() == 2), False),
    ],
)
def test_counts_are_told_from_codes_of_levels(frame, are_counts):
    assert (size_of_counts(frame) is not None) == are_counts


def test_work_on_counts_is_that_of_pairs_in_one_row():
    frame = pd.DataFrame({"a": [0, 1, 6, 0], "b": [2, 0, 1, 0], "c": [0, 0, 3, 1]})
    assert size_of_counts(frame).counts == 1 + 1 + 9 + 1


def test_a_fit_without_a_structure_takes_all_pairs_where_these_are_in_reach_and_says_nothing():
    frame = labels(4, 3)
    with warnings.catch_warnings(action="error"):
        results = [hoim.fit(frame), hoim.fit(data=frame), hoim.fit(hoim.Observations.from_pandas(frame))]
    expected = hoim.fit(frame, order=2)
    for result in results:
        assert isinstance(result, FitResult) and result.hypergraph == expected.hypergraph
        np.testing.assert_array_equal(result.theta, expected.theta)
    weighted = frame.assign(w=np.linspace(0.5, 1.5, len(frame)))
    np.testing.assert_array_equal(hoim.fit(weighted, weights="w").theta, hoim.fit(weighted, order=2, weights="w").theta)
    assert hoim.fit(frame[["v0"]]).num_parameters == 2


def test_a_wide_table_ends_in_a_network_with_the_planted_pairs_on_top():
    frame, planted = baskets()
    with pytest.warns(CostWarning, match=r"out of reach.*so this is hoim\.learn_network.*order=2.*hoim\.plan\(data\)"):
        result = hoim.fit(frame)
    assert isinstance(result, LearnedNetwork)
    top = result.interactions(len(planted))["term"]
    assert {frozenset(term.split(":")) for term in top} == planted


@pytest.mark.parametrize(("levels", "is_counted", "has_gaps"), [(2, True, False), (3, False, True), (3, True, True)])
def test_planted_pairs_of_wide_tables_are_on_top_with_counts_and_without_rows_with_gaps(levels, is_counted, has_gaps):
    rng = np.random.default_rng(levels)
    codes = rng.integers(0, levels, (2000, 100))
    for first in range(0, 20, 2):
        follows = rng.random(2000) < 0.4
        codes[follows, first + 1] = codes[follows, first]
    frame = pd.DataFrame(codes).add_prefix("x").astype(str)
    if has_gaps:
        frame = frame.mask(rng.random(frame.shape) < 0.001)
    if is_counted:
        frame["count"] = rng.integers(1, 4, 2000)
    with pytest.warns(CostWarning, match="so this is hoim.learn_network"):
        result = hoim.fit(frame, missing="drop" if has_gaps else None)
    planted = {frozenset((f"x{first}", f"x{first + 1}")) for first in range(0, 20, 2)}
    assert {frozenset(term.split(":")) for term in result.interactions(10)["term"]} == planted


def test_control_columns_that_were_not_planted_are_not_on_top():
    frame, planted = baskets()
    shuffled = frame.apply(np.random.default_rng(4).permutation)
    with pytest.warns(CostWarning):
        found = hoim.fit(shuffled).interactions()
    pairs = {frozenset(term.split(":")) for term in found["term"]}
    assert not planted & pairs


def test_a_table_of_counts_ends_in_a_root_model():
    with pytest.warns(CostWarning, match=r"hold counts.*so this is hoim\.fit_roots"):
        result = hoim.fit(counts())
    assert isinstance(result, RootFitResult) and result.interactions(1)["term"].tolist() == ["sea:sun"]


def test_between_both_a_structure_is_learned(monkeypatch):
    taken = []
    monkeypatch.setattr(front, "learn_log_linear", lambda rows, search: taken.append((rows.num_rows, search.max_order)))
    with pytest.warns(CostWarning, match=r"learning finds in about .* so this is hoim\.learn\("):
        hoim.fit(labels(26, 2, 900))
    assert taken == [(900, 2)]
    assert LearnResult  # what the call would return


def gapped(frame):
    """A frame without its first cells."""
    return frame.where(np.arange(frame.size).reshape(frame.shape) > 8)


@pytest.mark.parametrize(
    ("call", "way"),
    [
        (lambda frame: hoim.fit(".^2", frame), "hoim.learn_network(data, penalty='ebic') takes under a second"),
        (lambda frame: hoim.fit(frame, order=2), "hoim.learn_network(data, penalty='ebic') takes under a second"),
        (lambda frame: hoim.fit(frame, prior="unit"), "hoim.learn_network(data, penalty='ebic') takes under a second"),
        (lambda frame: hoim.fit(frame.iloc[:, :21], order=5), "hoim.fit(data, order=2) takes about"),
        (lambda frame: hoim.fit(frame, order=6), "hoim.learn_network(data, penalty='ebic') takes under a second"),
        (
            lambda frame: hoim.fit(gapped(frame), order=2, missing="marginalise", exclude=["v1"]),
            "hoim.learn_network(data, penalty='ebic', exclude=['v1'], missing='marginalise') takes under a second",
        ),
        (lambda frame: hoim.fit(".^2", hoim.Observations.from_pandas(frame)), "hoim.learn_network(data, penalty="),
    ],
)
def test_a_refusal_for_size_names_the_route_that_is_open(call, way):
    frame = labels(100, 2)
    with warnings.catch_warnings(), pytest.raises(IntractableError) as caught:  # noqa: PT012 (warnings of rows)
        warnings.simplefilter("ignore", DataWarning)
        call(frame)
    assert f"; {way}" in str(caught.value) and "shows all routes" in str(caught.value)


def test_a_long_fit_by_pseudo_likelihood_warns_by_the_formula_of_the_plan(monkeypatch):
    monkeypatch.setattr(front, "_fitted", lambda *_: None)
    frame = labels(120, 3, 2000)
    seconds = hoim.plan(frame)["pseudo-likelihood"].seconds
    assert 10 < seconds < 100
    with pytest.warns(CostWarning, match=rf"very roughly {seconds:.0f} seconds \(28,800 parameters, 2,000 rows\)"):
        hoim.fit(frame, order=2, prior="unit", objective="pseudo-likelihood")
    with warnings.catch_warnings(action="error", category=CostWarning):
        hoim.fit(frame.iloc[:, :30], order=2, prior="unit", objective="pseudo-likelihood")


def test_a_long_fit_by_a_bound_warns_and_says_what_takes_less(monkeypatch):
    monkeypatch.setattr(front, "_fitted", lambda *_: None)
    words = r"takes very roughly .* \(mini-buckets of up to 65,536 cells\); partition=MiniBuckets\(max_cells=...\)"
    with pytest.warns(CostWarning, match=words):
        hoim.fit(labels(40, 2, 300), order=2, prior="unit", objective="bound")
    with warnings.catch_warnings(action="error", category=CostWarning):
        partition = hoim.log_linear.MiniBuckets(max_cells=2**8)
        hoim.fit(labels(40, 2, 300), order=2, prior="unit", objective="bound", partition=partition)


def test_a_fit_of_few_rows_and_many_parameters_warns_of_the_study_of_existence(monkeypatch):
    monkeypatch.setattr(front, "_fitted", lambda *_: None)
    with pytest.warns(CostWarning, match=r"takes very roughly . minutes"):
        hoim.fit(labels(12, 2, 300), order=4, prior="unit")
    with warnings.catch_warnings(action="error", category=CostWarning):
        hoim.fit(labels(12, 2, 3000), order=4, prior="unit")


def test_options_of_fits_of_given_interactions_ask_for_these():
    frame, _ = baskets(40)
    result = hoim.fit(frame, prior="unit", objective="pseudo-likelihood")
    assert isinstance(result, FitResult) and result.hypergraph.num_interactions == 40 * 39 // 2
    with pytest.raises(IntractableError):
        hoim.fit(frame, prior="unit")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: hoim.fit(labels(3, 1)), InputError, "no column has two levels"),
        (lambda: hoim.fit(labels(3, 2).iloc[:0]), InputError, "expected at least one row"),
        (lambda: hoim.fit(labels(3, 2).replace("1", "")), MissingDataError, "missing='drop'"),
        (lambda: hoim.fit(labels(3, 2).assign(Freq=range(400))), InputError, "count='Freq'"),
        (lambda: hoim.fit(labels(3, 2), weights="w"), InputError, "unknown column 'w'"),
        (lambda: hoim.fit(hoim.load_table("titanic"), count="n"), InputError, "can only be said of a data frame"),
        (lambda: hoim.fit(None), InputError, "data: expected a data frame"),
    ],
)
def test_what_cannot_be_fitted_ends_in_one_clear_error(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_the_plan_of_a_frame_says_columns_routes_and_advice():
    frame = labels(3, 3).assign(rank=pd.Categorical(["lo", "hi"] * 200, ["lo", "hi"], ordered=True), same="x")
    frame["who"] = [f"p{i}" for i in range(400)]
    frame.loc[:9, "v0"] = None
    table = hoim.plan(frame)
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds == {**dict.fromkeys(["v0", "v1", "v2", "rank"], "labels"), "same": "constant", "who": "id"}
    words = {column.name: column.words for column in table.columns}
    assert words["rank"] == "lo < hi" and words["v1"] == "0, 1, 2" and "unique per row" in words["who"]
    assert table.num_rows == 400 and table.columns[0].num_missing == 10 and table.advised.name == "pairs"
    text = str(table)
    assert text.splitlines()[0] == "400 rows, 6 columns"
    order = [
        text.index(part)
        for part in (
            "read as",
            "why it is closed",
            "\nAdvised: hoim.fit(data, order=2, missing='marginalise'), because ",
            "the plan takes missing='marginalise'.",
        )
    ]
    assert order == sorted(order)
    assert "10 missing cells: missing='drop' leaves" in text
    assert hoim.plan(frame, missing="drop").notes == ("Rows with one of the 10 missing cells are left out.",)
    aged = hoim.plan(frame.assign(age=np.arange(400) / 7))
    assert "A fit stops at 'age'" in aged.notes[0] and "bins='auto' cuts it at" in aged.notes[0]
    assert "hoim.learn(data, numbers='families')" in aged.notes[-1]
    assert not [note for note in hoim.plan(frame.assign(age=np.arange(400) / 7), bins="auto").notes if "age" in note]
    assert "Advised: hoim.fit(data, order=2, missing=" in table._repr_html_() and "<table>" in table._repr_html_()


def test_equal_columns_of_a_wide_plan_are_one_line_and_json_holds_all():
    frame, _ = baskets()
    table = hoim.plan(frame)
    assert len(str(table).splitlines()) < 20 and "and 117 more" in str(table)
    found = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert len(found["columns"]) == 120 and found["advised"] == "network" and not found["routes"][0]["is_open"]
    assert {route["name"] for route in found["routes"]} == {route.name for route in table.routes}
    assert table["network"] is table.advised
    with pytest.raises(InputError, match="unknown route 'pear'"):
        table["pear"]


def test_the_plan_of_counts_advises_a_root_model_and_observations_and_counted_cells_are_planned():
    assert hoim.plan(counts()).advised.name == "roots"
    titanic = hoim.load_table("titanic")
    assert hoim.plan(titanic).advised.name == "pairs"
    cells = titanic.to_pandas(count="Freq")
    *variables, times = hoim.plan(cells, count="Freq").columns
    assert [column.name for column in variables] == list(titanic.domain.names)
    assert (times.name, times.reason) == ("Freq", "holds the count of the rows")
    for table in (hoim.plan(titanic), hoim.plan(cells, count="Freq")):
        assert table.num_seen == 2201 and str(table).startswith(f"{table.num_rows} rows that count 2,201, ")
        assert "more than" not in table["pairs"].reason


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: hoim.plan(labels(2, 2).iloc[:0]), InputError, "expected at least one row"),
        (lambda: hoim.plan(3), TypeError, "data: expected a data frame, Observations or rows"),
        (lambda: hoim.plan(labels(2, 2), missing="ignore"), InputError, "missing: expected 'drop' or 'marginalise'"),
        (lambda: hoim.plan(labels(2, 2), weights="w"), InputError, "unknown column 'w'"),
        (lambda: hoim.plan(labels(2, 2), penalty=5), InputError, "unknown option 'penalty'"),
        (lambda: hoim.plan(hoim.load_table("titanic"), count="n"), InputError, "describe a data frame"),
    ],
)
def test_what_cannot_be_planned_ends_in_one_clear_error(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def mixed(num_rows=200):
    """Levels, numbers of many values, missing cells, weights, and an identifier."""
    rng = np.random.default_rng(5)
    frame = labels(3, 2, num_rows).assign(age=rng.normal(50, 12, num_rows), w=rng.uniform(0.5, 2, num_rows))
    return frame.assign(v0=frame["v0"].mask(rng.random(num_rows) < 0.05), key=[f"p{i}" for i in range(num_rows)])


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (mixed(), {"bins": "auto", "weights": "w", "missing": "drop"}),
        (mixed(), {"bins": {"age": "quantile:3"}, "exclude": ["w", "key"], "missing": "drop"}),
        (mixed(), {"allow": ["v1"], "exclude": ("w",), "missing_values": ["", "2"], "bins": "auto", "missing": "drop"}),
        (mixed().assign(n=2), {"count": "n", "exclude": ["w", "age", "v0"]}),
        (mixed().assign(count=[0, 1] * 100), {"count": None, "exclude": ["w", "age", "v0"]}),
        (hoim.Observations.from_pandas(mixed().drop(columns=["age", "w", "key"])), {"missing": "drop"}),
    ],
)
def test_calls_of_open_routes_repeat_what_was_said_of_the_columns_and_run_as_printed(frame, said):
    table = hoim.plan(frame, **said)
    assert not table.assumed
    assert [route.name for route in table.routes if route.is_open] == [
        "pairs",
        "pseudo-likelihood",
        "bound",
        "sampled",
        "learn",
        "structures",
        "network",
    ]
    with warnings.catch_warnings(record=True, action="always", category=DataWarning):
        expected = hoim.fit(frame, **said)
        results = {route.name: printed(route.call, frame) for route in table.routes if route.is_open}
    np.testing.assert_array_equal(results["pairs"].theta, expected.theta)
    assert isinstance(results.pop("structures"), hoim.inference.StructurePosterior)
    for result in results.values():
        columns = {name for term in result.interactions()["term"] for name in term.split(":")}
        assert columns <= set(expected.hypergraph.domain.names)
    assert results["sampled"].num_rows == expected.num_rows


def printed(call, frame):
    """What a call gives as it is printed."""
    return eval(call, {"hoim": hoim, "data": frame})


def test_what_a_plan_takes_where_nothing_was_said_stands_in_its_calls():
    frame = mixed(400).assign(town=[f"t{i % 110}" for i in range(400)]).rename(columns={"w": "weight"})
    table = hoim.plan(frame)
    assert table.assumed == {"bins": "auto", "exclude": ["town"], "weights": "weight", "missing": "marginalise"}
    assert "Nothing was said of this yet, and the plan takes bins='auto' and weights='weight' and exclude=" in str(
        table
    )
    with pytest.warns(DataWarning, match="'key'"):
        result = printed(table.advised.call, frame)
    assert result.hypergraph.domain.names == ("v0", "v1", "v2", "age")
    assert "exclude=['town'] leaves it out" in " ".join(table.notes)
    # The control: without them the call stops.
    with pytest.raises(InputError):
        hoim.fit(frame, order=2)


def test_calls_of_a_table_of_counts_leave_out_what_a_fit_leaves_out():
    frame = counts().assign(key=range(300), times=[1, 2] * 150)
    for said, seen in (({"exclude": ["key"], "count": "times"}, 450), ({"exclude": ["key", "times"]}, 300)):
        table = hoim.plan(frame, **said)
        assert table.advised.name == "roots"
        with pytest.warns(CostWarning) as caught:
            fitted = hoim.fit(frame, **said)
        assert f"so this is {table.advised.call}; " in str(caught[0].message)
        again = printed(table.advised.call, frame)
        assert again.num_rows == fitted.num_rows == seen
        assert again.domain.names == fitted.domain.names == ("sea", "sun", "sand", "rain")


def test_counts_with_weights_are_planned_as_the_labels_that_they_are_fitted_as():
    table = hoim.plan(counts().assign(w=0.5), weights="w")
    assert {column.kind for column in table.columns} == {"labels", "weights"}
    assert table["roots"].reason == "needs rows without weights" and table.advised.name == "pairs"


@pytest.mark.parametrize(("closed", "name"), [(["pairs"], "learn"), (["pairs", "learn"], "network"), ([], "pairs")])
def test_rows_that_are_read_piece_by_piece_are_planned_and_routed(closed, name, tmp_path, monkeypatch):
    for route in closed:
        monkeypatch.setitem(planning._COSTS, route, lambda _: (None, None, "exact sums are out of reach"))
    frame = labels(4, 2).assign(v1=lambda f: f["v0"].where(f.index % 5 > 0, f["v1"]))
    frame.iloc[:8] = None
    for i, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_csv(tmp_path / f"{i}.csv", index=False)
    rows = hoim.data.open_rows(tmp_path)
    table = hoim.plan(rows)
    assert table.num_rows == 400 and [column.num_missing for column in table.columns] == [8] * 4
    with pytest.raises(MissingDataError, match=r"'v0' \(8\).*missing='drop'"):
        hoim.fit(rows)
    table = hoim.plan(rows, missing="drop")
    assert table.advised.name == name
    with warnings.catch_warnings(record=True, action="always", category=CostWarning) as caught:
        results = [hoim.fit(rows, missing="drop"), printed(table.advised.call, rows)]
    routed = [str(w.message) for w in caught if "so this is" in str(w.message)]
    assert len(routed) == bool(closed) and all(f"so this is {table.advised.call}; " in line for line in routed)
    first, second = [result.interactions(1) for result in results]
    pd.testing.assert_frame_equal(first, second)
    assert set(first["term"][0].split(":")) == {"v0", "v1"}


def test_columns_that_every_reading_leaves_out_make_no_labels_of_counts():
    # Counts beside what every reading leaves out: names of rows, also as numbers, and free text
    frame = counts()
    texts = [f"a note of {i} words for row {i}" for i in range(len(frame))]
    frame = frame.assign(id=range(len(frame)), note=texts, doc=[f"doc_{i:03d}" for i in range(len(frame))])
    assert size_of_counts(frame).levels == size_of_counts(counts()).levels
    assert set(size_of_counts(frame).left_out) == {"id", "note", "doc"}
    assert size_of_counts(frame.assign(group=["a", "b"] * 150)) is None
    table = hoim.plan(frame)
    assert table.advised.name == "roots"
    assert {c.name: c.kind for c in table.columns if c.reason} == {"id": "id", "note": "text", "doc": "id"}
    expected = hoim.fit_roots(counts(), order=2, l1=0.1, refit="all")
    # The call as printed, the fit without a structure, and both ways to leave columns out.
    called = eval(table.advised.call, {"hoim": hoim, "data": frame})
    with pytest.warns(DataWarning, match="columns were left out: 'id' .*'note' holds free text.*'doc'"):
        by_rule = hoim.fit_roots(frame, order=2, l1=0.1, refit="all")
    with pytest.warns(CostWarning, match="so this is hoim.fit_roots"), pytest.warns(DataWarning, match="left out"):
        routed = hoim.fit(frame)
    without = hoim.fit_roots(frame, order=2, l1=0.1, refit="all", exclude=["id", "note", "doc"])
    for result in (called, by_rule, routed, without):
        assert result.structure.domain == expected.structure.domain
        pd.testing.assert_frame_equal(result.interactions(), expected.interactions())
    repeated = hoim.plan(frame.assign(times=2), count="times")
    assert eval(repeated.advised.call, {"hoim": hoim, "data": frame.assign(times=2)}).num_rows == 2 * len(frame)


def test_words_among_numbers_are_refused_with_a_way_out():
    frame = counts().assign(group=["a", "b"] * 150)
    with pytest.raises(InputError, match=r"family: .*'sea' holds 7 different whole numbers from 0 to 6"):
        hoim.fit_roots(frame, order=2)
    with pytest.raises(InputError, match="column 'group': expected a number, received 'a'; leave column 'group' out"):
        hoim.fit_roots(frame, "poisson", order=2)
    assert "group" in hoim.fit_roots(frame, order=1, family={"*": "count"}).structure.domain.names
    assert "group" not in hoim.fit_roots(frame, order=1, exclude=["group"]).structure.domain.names
    with pytest.raises(InputError, match="exclude"):
        hoim.fit_roots(counts().to_numpy(), order=1, exclude=["group"])


def test_many_columns_with_missing_cells_are_counted_and_tests_of_a_fit_to_them_say_what_to_pass():
    frame = labels(9, 2)
    with pytest.raises(MissingDataError, match=r"'v5' \(1\) and 3 more; pass missing='drop'"):
        hoim.fit(pd.concat([frame, pd.DataFrame([[None] * 9], columns=frame.columns)], ignore_index=True))
    frame = labels(2, 2)
    frame.iloc[0, 0] = None
    with pytest.raises(MissingDataError, match="fit with missing='drop'"):
        hoim.fit(frame, order=2, missing="marginalise").complete_data()


MARRIED = pd.DataFrame(
    [
        (sex, age, state)
        for sex in "fm"
        for age in ("child", "adult", "old")
        for state in ("single", "married", "widowed")
    ],
    columns=["sex", "age", "state"],
)
NEVER = [{"age": "child", "state": ["married", "widowed"]}]


def possible(frame):
    return frame[~((frame["age"] == "child") & (frame["state"] != "single"))]


@pytest.mark.parametrize(
    "zeros",
    [
        None,
        NEVER,
        NEVER[0],
        [*NEVER, {"sex": "m", "age": "old", "state": "widowed"}],
        [{"age": "child", "state": "married"}],
        np.isin(np.arange(18).reshape(2, 3, 3), (3, 4, 12)),
    ],
)
@pytest.mark.parametrize("width", [0, 8])
def test_parameters_and_cells_are_counted_beside_structural_zeros_as_by_the_fit(zeros, width):
    """Of a small table, and of a wider one."""
    frame = MARRIED.loc[MARRIED.index.repeat(3)].reset_index(drop=True)
    wide = np.random.default_rng(2).integers(0, 2, (len(frame), width)).astype(str)
    frame = frame.join(pd.DataFrame(wide).add_prefix("w"))
    frame = frame.astype(dict.fromkeys(MARRIED, "category"))
    if isinstance(zeros, np.ndarray):
        zeros = np.broadcast_to(zeros[(...,) + (None,) * width], (2, 3, 3) + (2,) * width)
        order = [sorted(MARRIED[name].unique()) for name in MARRIED]
        codes = [tuple(levels.index(v) for levels, v in zip(order, row, strict=True)) for row in MARRIED.to_numpy()]
        frame = frame[~np.repeat([zeros[code].all() for code in codes], 3)]
    elif zeros is not None:
        frame = possible(frame)
        frame = frame[~((frame["sex"] == "m") & (frame["age"] == "old") & (frame["state"] == "widowed"))]
    table = hoim.plan(frame, structural_zeros=zeros)
    with warnings.catch_warnings(action="ignore"):
        fitted = hoim.fit(frame, order=2, structural_zeros=zeros, prior="normal:1")
    words = table["pairs"].reason
    assert words.startswith(f"{fitted.num_parameters_possible} parameters")
    assert fitted.num_parameters_possible <= fitted.num_parameters - (zeros is not None)
    cells = f"{fitted.num_cells_possible} of {fitted.hypergraph.domain.num_states} rows possible"
    assert (cells in words) is (zeros is not None)
    taking = {route.name for route in table.routes if route.reason != "takes no structural zeros"}
    assert (taking == {"pairs", "pseudo-likelihood"}) is (zeros is not None)
    assert ("structural_zeros=" in table["pairs"].call) is (zeros is not None)


@pytest.mark.parametrize(
    ("zeros", "error", "words"),
    [
        ([{"age": "kid"}], hoim.errors.UnknownNameError, "structural_zeros, column 'age': unknown label 'kid'"),
        ([{"ages": "old"}], hoim.errors.UnknownNameError, "structural_zeros: unknown variable 'ages'"),
        (3, hoim.errors.InputTypeError, "structural_zeros: expected a mask"),
        (np.ones((2, 3, 3), dtype=bool), InputError, "structural_zeros: expected at least one possible cell"),
    ],
)
def test_bad_structural_zeros_are_refused_by_a_plan_as_by_a_fit(zeros, error, words):
    for call in (hoim.plan, lambda *given, **more: hoim.fit(*given, order=2, **more)):
        with pytest.raises(error, match=words):
            call(MARRIED, structural_zeros=zeros)
