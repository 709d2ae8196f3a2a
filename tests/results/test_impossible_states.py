"""Impossible states through every method of a result, its file and the commands.

The laws that are right come from iterative proportional fitting on the possible cells in NumPy; from statsmodels' GLM
where interactions are restricted; from closed forms with missing cells; and for the 4 x 4 table of quasi-independence
from R (``loglin`` with a start that is zero on the diagonal: G2 = 14.24296 on 5 degrees of freedom).
"""

import copy
import itertools
import json
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch

import pyro_hoim as hoim
from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy, Observations
from pyro_hoim.cli import run
from pyro_hoim.core.family import family_of_model
from pyro_hoim.errors import InputError, ModelFileError
from pyro_hoim.estimators import InteractionClassifier, InteractionDensity, InteractionImputer
from pyro_hoim.families import add_info
from pyro_hoim.information import removal_values
from pyro_hoim.log_linear import ModelFile, load_model
from pyro_hoim.runs.container import LOG_LINEAR, write_container

from support.fitted_zeros import APART, KINDS, LEVELS, PAIRS, SOCIAL, case, cells, logs, mask_of, rows_of

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")


def given_others(law):
    """The law of the last variable given the others, NaN where these are impossible together."""
    with np.errstate(invalid="ignore"):
        return (law / law.sum(-1, keepdims=True)).reshape(-1, law.shape[-1])


def holds_score(model, rows, law):
    found, every = hoim.score(model, rows), hoim.score(model, cells(law))
    table = np.zeros(law.shape)
    np.add.at(table, tuple(rows.codes.T.numpy()), rows.counts.numpy())
    nll = -(table[table > 0] * np.log(law[table > 0])).sum() / table.sum()
    lost = int((law == 0).sum())
    right = math.isclose(found["nll"], nll, abs_tol=1e-6) and not found["impossible_rows"]
    return right and every["impossible_rows"] == lost and math.isinf(every["nll"]) == (lost > 0)


def holds_row_log_likelihood(model, rows, law):
    del rows
    found = hoim.core.operations.row_log_likelihood(model, cells(law))
    first = hoim.core.operations.row_log_likelihood(model, cells(law.sum(-1)).assign(**{"abcd"[law.ndim - 1]: None}))
    pairs = [(found, law.ravel()), (first, law.sum(-1).ravel())]
    return all(np.allclose(np.exp(a), b, atol=1e-7) and ((b > 0) | (a == -math.inf)).all() for a, b in pairs)


def tallied(frame, law):
    """Shares of the cells among rows."""
    table = np.zeros(law.shape)
    np.add.at(table, tuple(frame[name].astype(int).to_numpy() for name in "abcd"[: law.ndim]), 1)
    return table / len(frame)


def agree(found, law, number):
    return (found[law == 0] == 0).all() and (np.abs(found - law) < 5 * np.sqrt(law * (1 - law) / number) + 1e-9).all()


def holds_sample(model, rows, law):
    del rows
    by_chains = hoim.sample(model, 200, method="gibbs", seed=4)
    is_possible = (tallied(by_chains, law)[law == 0] == 0).all()
    return is_possible and agree(tallied(hoim.sample(model, 4000, seed=2), law), law, 4000)


def refuses(model, given):
    try:
        hoim.sample(model, 2, given=given)
    except InputError as error:
        return error.code == "impossible" and "probability zero" in str(error)
    return False


def holds_sample_given(model, rows, law):
    del rows
    right = all(
        refuses(model, dict(row)) for row, p in zip(cells(law).to_dict("records"), law.ravel(), strict=True) if not p
    )
    for level, mass in enumerate(law.sum(tuple(range(law.ndim - 1)))):
        given = {"abcd"[law.ndim - 1]: str(level)}
        if not mass:
            right &= refuses(model, given)
            continue
        wanted = np.zeros(law.shape)
        wanted[..., level] = law[..., level] / mass
        right &= agree(tallied(hoim.sample(model, 2000, given=given, seed=5), law), wanted, 2000)
    return right


def recorded():
    return warnings.catch_warnings(record=True, action="always")


def names_rows(told, lost, what):
    """Whether there is one warning, of which rows nothing is known, where there are such rows."""
    places = [str(place) for place in np.flatnonzero(lost)]
    named = f"row{'s' * (len(places) > 1)} {', '.join(places[:5])}{', ...' * (len(places) > 5)}"
    texts = [str(warning.message) for warning in told if warning.category is hoim.errors.DataWarning]
    right = [text.startswith(f"{what}: {len(places)} row") and text.endswith(f"together: {named}") for text in texts]
    return len(told) == len(texts) == (len(places) > 0) and all(right)


def holds_predict(model, rows, law):
    del rows
    target, wanted = "abcd"[law.ndim - 1], given_others(law)
    lost = np.isnan(wanted).any(1)
    with recorded() as told:
        found = hoim.predict(model, cells(law.sum(-1)), target)
    probs = found.filter(like="p(").to_numpy()
    counted = [note for note in found.attrs["notes"] if note.startswith(f"not predicted: {lost.sum()} row")]
    right = np.allclose(probs, wanted, atol=1e-6, equal_nan=True) and (probs[wanted == 0] == 0).all()
    right = right and names_rows(told, lost, "not predicted")
    return right and (found["is_exact"].to_numpy() == ~lost).all() and len(counted) == lost.any()


def holds_impute(model, rows, law):
    del rows
    target, wanted, right = "abcd"[law.ndim - 1], given_others(law), True
    lost = np.isnan(wanted).any(1)
    for options in ({}, {"method": "gibbs"}, {"most_probable": True}):
        number = 1 if options else 300
        with recorded() as told:
            found = hoim.impute(model, cells(law.sum(-1)).assign(**{target: None}), number, seed=3, **options)
        levels = pd.to_numeric(found[target]).to_numpy().reshape(number, -1)
        right &= (np.isnan(levels).all(0) == lost).all() and (np.isnan(levels).any(0) == lost).all()
        counted = [note for note in found.attrs["notes"] if note.startswith(f"not filled: {lost.sum()} row")]
        right &= len(counted) == lost.any() and names_rows(told, lost, "not filled")
        for row in np.flatnonzero(~lost):
            right &= bool((wanted[row][levels[:, row].astype(int)] > 0).all())
    return right


def holds_compare(model, rows, law):
    other = hoim.fit(InteractionHypergraph.saturated(rows.domain), rows, penalty=hoim.log_linear.L2(1.0))
    found = hoim.compare({"model": model, "other": other}, data=cells(law)).loc["model"]
    train = hoim.compare({"model": model, "other": other}, data=rows)
    lost = int((law == 0).sum())
    mean = logs(law).mean()
    right = found["mean_log_likelihood"] == mean or math.isclose(found["mean_log_likelihood"], mean, abs_tol=1e-6)
    return right and found.get("impossible_rows", 0) == lost and "impossible_rows" not in train


METHODS = {name.removeprefix("holds_"): check for name, check in list(globals().items()) if name.startswith("holds_")}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param, *case(request.param)


def failing(model, rows, law):
    return [name for name, check in METHODS.items() if not check(model, rows, law)]


def test_results_files_energies_and_copies_obey_in_every_method(kind, tmp_path):
    _, rows, law, result = kind
    assert failing(result, rows, law) == []
    result.save(tmp_path / "model.safetensors")
    assert failing(hoim.load(tmp_path / "model.safetensors"), rows, law) == []
    others = (result.model, pickle.loads(pickle.dumps(copy.deepcopy(result))))
    assert all(holds(model, rows, law) for holds in (holds_score, holds_predict, holds_impute) for model in others)


def test_control_a_model_that_forgets_fails(kind):
    _, rows, law, result = kind
    found = set(failing(LogLinearEnergy(result.hypergraph, result.tables), rows, law))
    if not (law == 0).any():
        assert found == set()
    elif result.possible is None:  # so improbable under finite tables that draws do not show it
        assert found >= {"score", "row_log_likelihood", "sample_given", "compare"}
    else:
        assert found == set(METHODS)


def test_the_table_of_r_is_fitted_and_scored_as_by_r():
    rows, _, result = case("structural zeros on the diagonal")
    found = hoim.goodness_of_fit(result)
    assert found.deviance == pytest.approx(14.24296, abs=5e-6) and found.df_adjusted == 5
    assert hoim.score(result, rows)["kl"] == pytest.approx(14.24296 / 2 / SOCIAL.sum(), abs=1e-7)
    each = result.row_log_likelihood(rows).to_numpy()[SOCIAL.ravel() > 0]
    assert each @ SOCIAL[SOCIAL > 0] == pytest.approx(result.log_likelihood, abs=1e-6)


VARIANTS = {
    "beyond the linear program": ("structural zeros on the diagonal", {}),
    "several beyond the linear program": ("several at once", {}),
    "a backend": ("an empty cell of a pair", {"partition": hoim.log_linear.Auto(), "method": "lbfgs"}),
    "a backend, forced": ("forced without an empty margin", {"partition": hoim.log_linear.Auto()}),
    "pseudo-likelihood": ("an empty cell of a triple", {"objective": "pseudo-likelihood"}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_other_ways_to_fit_know_the_same_states(name, monkeypatch):
    kind, options = VARIANTS[name]
    if name.endswith("linear program"):
        monkeypatch.setattr("pyro_hoim.log_linear.fitting.existence.MAX_FACIAL_CELLS", 1)
    _, structural, formula = KINDS[kind]
    rows, law, _ = case(kind)
    graph = InteractionHypergraph.from_formula(rows.domain, formula)
    result = hoim.fit(graph, rows, structural_zeros=structural, **options)
    found = np.exp(hoim.core.operations.row_log_likelihood(result, cells(law)))
    assert np.allclose(found, law.ravel(), atol=1e-5) and ((found == 0) == (law.ravel() == 0)).all()


def test_restricted_interactions_obey():
    """Uniform association without the diagonal, against a Poisson regression on the other cells."""
    rows, structural = rows_of(SOCIAL), np.eye(4, dtype=bool)
    result = hoim.fit("a + b + linear(a):linear(b)", rows, structural_zeros=structural)
    a, b = np.indices(SOCIAL.shape).reshape(2, -1)
    columns = [np.ones(16), *(a == k for k in range(1, 4)), *(b == k for k in range(1, 4)), a * b]
    kept = ~structural.ravel()
    fitted = sm.GLM(SOCIAL.ravel()[kept], np.column_stack(columns)[kept].astype(float), sm.families.Poisson()).fit()
    law = np.zeros(16)
    law[kept] = fitted.fittedvalues / SOCIAL.sum()
    assert failing(result, rows, law.reshape(4, 4)) == []


def test_missing_cells_are_summed_over_possible_cells():
    """Saturated, with rows that know a alone: p(a, b) is the share of a among all rows times p(b | a) of the others."""
    known, counts = np.array([20, 5, 9]), np.array([[0, 6, 4], [7, 0, 3], [2, 8, 0]])
    complete = rows_of(counts)
    codes = torch.cat([complete.codes, torch.tensor([[0, -1], [1, -1], [2, -1]])])
    rows = Observations(complete.domain, codes, torch.cat([complete.counts, torch.from_numpy(known).double()]))
    graph = InteractionHypergraph.saturated(rows.domain)
    result = hoim.log_linear.fit_incomplete(graph, rows, structural_zeros=np.eye(3, dtype=bool))
    law = (counts.sum(1) + known)[:, None] * counts / counts.sum(1, keepdims=True)
    law = law / law.sum()
    assert set(failing(result, complete, law)) <= {"score"}  # whose oracle is that of complete rows
    nll = -(counts[counts > 0] @ np.log(law[counts > 0]) + known @ np.log(law.sum(1))) / (counts.sum() + known.sum())
    assert hoim.score(result, rows)["nll"] == pytest.approx(nll, abs=1e-6)
    codes[-1] = 2  # the only row with a completion that is impossible
    with pytest.raises(InputError, match="marked as impossible"):
        hoim.log_linear.fit_incomplete(
            graph, Observations(rows.domain, codes, rows.counts), structural_zeros=np.eye(3, dtype=bool)
        )


def test_rows_without_a_possible_completion_are_named():
    codes = torch.tensor([[1, 0, 0], [0, -1, 1], [1, 1, -1]])
    rows = Observations.from_tensor(codes, Domain.from_cardinalities(dict.fromkeys("abc", 2)))
    zeros = [{"a": 0, "b": [0, 1]}]
    words = "every completion of 1 distinct row is marked as impossible, the first with a=0, c=1"
    with pytest.raises(InputError, match=f"structural_zeros: {words}"):
        hoim.log_linear.fit_incomplete(InteractionHypergraph.from_order(rows.domain, 2), rows, structural_zeros=zeros)


def told(graph, possible):
    """By term whether each coefficient against the first levels, and whether the whole balanced table, is estimable.

    It is where cells with positive probability have another rank without it: Shayle Searle, Linear Models, 1971.
    """
    states = np.argwhere(possible)
    shapes = dict(zip(graph.edges, graph.edge_shapes, strict=True))
    members = {edge: graph.domain.indices(edge) for edge in graph.edges}
    constant = np.ones((len(states), 1))

    def rank(columns):
        return np.linalg.matrix_rank(np.hstack([constant, *columns]))

    def centred(edge):
        """Products of contrasts that sum to zero over the levels."""
        product = constant
        for i, n in zip(members[edge], shapes[edge], strict=True):
            effects = np.vstack([np.eye(n - 1), -np.ones(n - 1)])[states[:, i]]
            product = (product[:, :, None] * effects[:, None]).reshape(len(states), -1)
        return product

    corner, balanced = {}, {edge: centred(edge) for edge in graph.edges}
    for edge in graph.edges:
        for levels in itertools.product(*(range(1, n) for n in shapes[edge])):
            corner[edge, levels] = (states[:, members[edge]] == levels).all(1)[:, None]
    by_level, whole = {}, {}
    for key in corner:
        is_told = rank(corner.values()) > rank([other for name, other in corner.items() if name != key])
        by_level.setdefault(":".join(key[0]), []).append(is_told)
    for edge, block in balanced.items():
        others = [other for name, other in balanced.items() if name != edge]
        whole[":".join(edge)] = rank(balanced.values()) == rank(others) + block.shape[1]
    return by_level, whole


@pytest.mark.parametrize("penalty", [None, hoim.log_linear.L2(2.0), hoim.log_linear.L1(0.5)], ids=repr)
def test_what_no_row_bears_on_is_infinite_or_not_identified(kind, penalty, tmp_path):
    """A penalty changes nothing about what is impossible, but makes what no row happens to hold finite."""
    name, rows, law, result = kind
    structural = KINDS[name][1]
    if penalty is not None:
        law = np.ones(law.shape) if structural is None else ~mask_of(law.shape, structural)
        options = {"structural_zeros": structural, "penalty": penalty, "partition": result.partition}
        result = hoim.fit(result.hypergraph, rows, **options)
    by_level, whole = told(result.hypergraph, law > 0)
    result.save(tmp_path / "model.safetensors")
    for model in (result, hoim.load(tmp_path / "model.safetensors")):
        for table, column in ((model.summary(), "estimate"), (model.odds_ratios(), "odds_ratio")):
            for term, part in table.groupby("term"):
                numbers = part[column].to_numpy()
                is_told = np.isfinite(numbers) & ((numbers > 0) | (column == "estimate"))
                assert sorted(is_told) == sorted(by_level[term]), (model, term)
        marked = model.interactions().set_index("term")
        assert {term: not lost for term, lost in marked["is_infinite"].items()} == whole
        assert np.isinf(marked.loc[marked["is_infinite"], ["value", "coefficient"]].to_numpy()).all()
        # A penalty leaves nothing but what is declared, and without declarations nothing is.
        assert not (marked["is_infinite"] & ~marked["is_declared"]).any() or penalty is None
        assert not marked["is_declared"].any() or structural is not None


def test_a_prior_makes_up_no_odds_ratio_or_strength_of_what_is_impossible(tmp_path, capsys):
    """There is none where one cell of the four is impossible: no other cells tell the ratio of theirs."""
    frame = pd.DataFrame([("f", "no", 385), ("f", "yes", 157), ("m", "no", 283)], columns=["sex", "preg", "count"])
    for prior in ("none", "normal:0.1", "unit"):
        result = hoim.fit("sex*preg", frame, structural_zeros=[{"sex": "m", "preg": "yes"}], prior=prior)
        assert result.odds_ratios()["odds_ratio"].isna().all() and np.isnan(result.summary()["estimate"].iloc[0])
        assert dict(zip(*result.interactions()[["term", "coefficient"]].to_numpy().T, strict=True)) == {
            "sex:preg": -math.inf, "sex": -math.inf, "preg": -math.inf,
        }  # fmt: skip
    # Nor a standard error of them, which only a prior could tell.
    frame.to_csv(tmp_path / "rows.csv", index=False)
    zeros = ("--structural-zeros", "sex=m,preg=yes", "--prior", "normal:1", "--out", str(tmp_path / "out"))
    assert run(["fit", str(tmp_path / "rows.csv"), "--edges", "sex*preg", "--count", "count", *zeros]) == 0
    shown = ("interactions", str(tmp_path / "out" / "model.safetensors"))
    capsys.readouterr()
    assert run([*shown]) == 0 and "what is declared impossible are infinite or not ident" in capsys.readouterr().out
    assert run([*shown, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["interactions"]
    assert len(rows) == 3 and {row["std_error"] for row in rows} == {None}


def test_information_of_interactions_is_not_defined_beside_structural_zeros(kind):
    result = kind[-1]
    if result.impossible is not None:
        with pytest.raises(InputError, match="expected a model without impossible states"):
            removal_values(result.model, exact=False)
    if result.structural_zeros is None:
        assert "refined_information" in result.interactions(information=True)
    else:
        with pytest.raises(hoim.errors.IntractableError, match="not defined for models with structural zeros"):
            result.interactions(information=True)


def test_large_tables_obey_by_their_empty_margins():
    """A Markov chain of 30 columns that never steps from a level to the one before, against its closed form."""
    random = np.random.default_rng(0)
    states = np.cumsum(np.column_stack([random.integers(0, 3, 600), random.integers(0, 2, (600, 29))]), axis=1) % 3
    domain = Domain.from_cardinalities({f"v{i}": 3 for i in range(30)})
    graph = InteractionHypergraph(domain, [(f"v{i}", f"v{i + 1}") for i in range(29)], closure=True)
    rows = Observations.from_tensor(torch.from_numpy(states), domain)
    result = hoim.fit(graph, rows)

    def part(*columns):
        _, counts = np.unique(states[:, columns], axis=0, return_counts=True)
        return float(counts @ np.log(counts / 600))

    best = sum(part(i, i + 1) for i in range(29)) - sum(part(i) for i in range(1, 29))
    assert hoim.score(result, rows)["nll"] == pytest.approx(-best / 600, abs=1e-6)
    for method in ("exact", "gibbs"):
        drawn = result.sample(300, method=method, seed=1).to_numpy().astype(int)
        assert ((np.diff(drawn, axis=1) % 3) < 2).all()
    frame = pd.DataFrame(np.full((3, 30), None), columns=domain.names)
    frame.loc[0, ["v0", "v2"]] = frame.loc[1, ["v0", "v1"]] = ["0", "2"]  # by two steps possible, by one not
    lost = np.array([False, True, False])
    for method in ("exact", "gibbs"):
        with recorded() as told:
            found = result.predict(frame, "v5", method=method)
        assert names_rows(told, lost, "not predicted")
        assert found["p(0)"].isna().tolist() == [False, True, False]
        with recorded() as told:
            filled = result.impute(frame, method=method, seed=2)
        assert names_rows(told, lost, "not filled")
        assert filled.isna().any(axis=1).tolist() == [False, True, False]
        assert ((np.diff(filled.drop(index=1).to_numpy().astype(int), axis=1) % 3) < 2).all()
    assert result.predict(frame, "v1")["p(2)"].tolist()[:2] == [0.0, 0.0]
    assert np.isneginf(result.row_log_likelihood(frame)).tolist() == [False, True, False]


def test_estimators_obey():
    frame = pd.DataFrame({"a": list("xxxxyy"), "b": list("ppqqpp"), "c": list("uvuvuv")})
    bad = pd.DataFrame({"a": ["y", "x"], "b": ["q", "q"], "c": ["u", None]})
    density = InteractionDensity(prior="none", edges="a*b + c", random_state=0).fit(frame)
    assert density.score_samples(bad[["a", "b", "c"]]).tolist() == [-math.inf, pytest.approx(math.log(1 / 3))]
    assert not ((found := density.sample(500))["a"] + found["b"]).eq("yq").any()
    imputer = InteractionImputer(prior="none", edges="a*b + c", random_state=0).fit(frame)
    bad.loc[0, "c"] = None
    with pytest.warns(hoim.errors.DataWarning, match="not filled: 1 row whose known cells have probability zero"):
        assert imputer.transform(bad)["c"].isna().tolist() == [True, False]
    classifier = InteractionClassifier(prior="none", edges="a*b + y*a").fit(frame[["a", "b"]], frame["c"])
    with pytest.raises(InputError, match=r'row 0: its cells have probability zero .* prior="unit"'):
        classifier.predict_proba(bad[["a", "b"]])
    # The control: a prior makes every cell possible.
    prior = InteractionClassifier(prior="unit", edges="a*b + y*a").fit(frame[["a", "b"]], frame["c"])
    assert np.isfinite(prior.predict_proba(bad[["a", "b"]])).all()


def test_estimators_take_structural_zeros():
    frame = pd.DataFrame({"a": list("xxxxyy"), "b": list("ppqqpp"), "c": list("uvuvuv")})
    options = {"structural_zeros": [{"a": "y", "b": "q"}]}
    for prior in ("none", "unit"):
        density = InteractionDensity(prior=prior, edges="a + b + c", options=options, random_state=0).fit(frame)
        bad = pd.DataFrame({"a": ["y", "x"], "b": ["q", "q"], "c": ["u", "u"]})
        assert np.isneginf(density.score_samples(bad)).tolist() == [True, False]
        assert not ((drawn := density.sample(500))["a"] + drawn["b"]).eq("yq").any()
    classifier = InteractionClassifier(edges="a + b + y*a", options=options).fit(frame[["a", "b"]], frame["c"])
    # No prior makes possible what was declared.
    with pytest.raises(InputError, match="row 0: its cells have probability zero") as told:
        classifier.predict_proba(bad[["a", "b"]])
    imputer = InteractionImputer(edges="a + b + c", options=options, random_state=0).fit(frame)
    with pytest.warns(hoim.errors.DataWarning, match="not filled: 1 row") as warned:
        assert imputer.transform(bad.assign(c=None))["c"].isna().tolist() == [True, False]
    assert not any("prior" in words for words in (str(told.value), str(warned[0].message)))
    with pytest.raises(InputError, match="2 rows of data hold what is marked as impossible"):
        InteractionDensity(options={"structural_zeros": [{"a": "y", "c": "u"}, {"a": "y", "c": "v"}]}).fit(frame)


def test_odds_ratios_say_why_they_are_infinite(tmp_path):
    """Of four odds ratios against the first cell one has the cell that is declared, one another cell without rows."""
    rows = rows_of(np.array([[9, 8, 7], [6, 0, 5], [4, 3, 0]]))
    declared = (
        "1 odds ratio does not exist, because it compares combinations that are declared impossible: a=2 vs 0, b=2 vs 0"
    )
    absent = "1 odds ratio is 0 or infinite, for the rows lack combinations; a prior makes it finite"
    result = hoim.fit("a*b", rows, structural_zeros=[{"a": 2, "b": 2}])
    result.save(tmp_path / "m.safetensors")
    for model in (result, hoim.load(tmp_path / "m.safetensors")):
        table = model.odds_ratios()
        assert {declared, absent} <= set(table.attrs["notes"]) and "not computed" not in str(table)
        ends = table.set_index("levels").loc[["a=2 vs 0, b=2 vs 0", "a=1 vs 0, b=1 vs 0"]]
        assert ends["odds_ratio"].isna().tolist() == ends["upper"].isna().tolist() == [True, False]
        assert ends["odds_ratio"].iloc[1] == 0
        other = model.odds_ratios(level=0.9).attrs["notes"]  # a file has limits of its own level alone
        assert (model is result) == (not any("1 finite limit was not computed" in note for note in other))
    finite = hoim.fit("a*b", rows, structural_zeros=[{"a": 2, "b": 2}], prior="unit").odds_ratios()
    assert declared in finite.attrs["notes"] and "the rows lack" not in str(finite)
    assert not any("impossible" in note for note in hoim.fit("a*b", rows).odds_ratios().attrs["notes"])


def test_other_reference_levels_leave_odds_ratios_of_a_square():
    """Of quasi-independence those of two pairs of different levels: cross-products of the counts."""
    result = hoim.fit("a*b", rows_of(SOCIAL), structural_zeros=np.eye(4, dtype=bool))
    table = result.odds_ratios()
    assert table["odds_ratio"].isna().all() and any("reference=" in note for note in table.attrs["notes"])
    table = result.odds_ratios(reference={"a": "0", "b": "1"}).set_index("levels")["odds_ratio"].dropna()
    assert table.to_dict() == pytest.approx(
        {
            f"a={i} vs 0, b={j} vs 1": SOCIAL[i, j] * SOCIAL[0, 1] / (SOCIAL[i, 1] * SOCIAL[0, j])
            for i, j in ((2, 3), (3, 2))
        }
    )


def test_results_say_what_is_declared(tmp_path):
    """The number of possible rows is that of the mask."""
    result = hoim.fit("a*b + c", rows_of(np.where(APART, 0, PAIRS)), structural_zeros=LEVELS)
    words = f"a=2, b=0 or a=0, c=1; {int((~APART).sum())} of 18 rows are possible"
    result.save(tmp_path / "m.safetensors")
    loaded = hoim.load(tmp_path / "m.safetensors")
    for model in (result, loaded):
        assert repr(model).endswith(f"\n  declared impossible: {words}")
        assert f"declared impossible: {words}" in model.summary().attrs["notes"]
        assert list(model.structural_zeros.combinations) == [{"a": "2", "b": "0"}, {"a": "0", "c": "1"}]
        page = model.report(tmp_path / type(model).__name__).read_text()
        assert words in page
    assert torch.equal(loaded.impossible.excluded, result.impossible.excluded)
    free = hoim.fit("a*b + c", rows_of(PAIRS))
    assert "declared" not in repr(free) + str(free.summary().attrs["notes"])


def test_possible_rows_are_counted_in_wide_tables():
    """Closed form: of 200 binary columns, three quarters of the rows for each of five pairs."""
    domain = Domain.from_cardinalities({f"v{i}": 2 for i in range(200)})
    pairs = [{f"v{2 * i}": 1, f"v{2 * i + 1}": [1]} for i in range(5)]
    states = hoim.log_linear.ImpossibleStates.of_combinations(domain, pairs)
    assert states.num_possible == pytest.approx(2**200 * 3**5 / 4**5, rel=1e-12)
    assert states.words().endswith("v4=1, v5=1 or 2 other combinations; 3.8e59 of 1.6e60 rows are possible")


def answer(capsys, *words):
    capsys.readouterr()
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_commands_obey(kind, tmp_path, monkeypatch, capsys):
    _, rows, law, result = kind
    monkeypatch.chdir(tmp_path)
    result.save("m.safetensors")
    names, lost = "abcd"[: law.ndim], int((law == 0).sum())
    cells(law).to_csv("cells.csv", index=False)
    seen = rows.rows(rows.counts > 0)
    seen.to_pandas(count="count" if rows.has_whole_counts else None).to_csv("train.csv", index=False)
    found, every = (
        answer(capsys, "score", "m.safetensors", "train.csv"),
        answer(capsys, "score", "m.safetensors", "cells.csv"),
    )
    table = seen if rows.has_whole_counts else Observations.from_tensor(seen.codes, rows.domain)
    assert found["nll"] == pytest.approx(hoim.score(result, table)["nll"], abs=1e-9)
    assert (every["impossible_rows"], every["nll"] is None) == (lost, lost > 0)
    assert run(["sample", "m.safetensors", "-n", "500", "--out", "drawn.csv"]) == 0
    assert (tallied(pd.read_csv("drawn.csv"), law)[law == 0] == 0).all()
    answer(capsys, "predict", "m.safetensors", "cells.csv", "--target", names[-1], "--out", "predicted.csv")
    wanted = np.repeat(given_others(law), law.shape[-1], axis=0)
    probs = pd.read_csv("predicted.csv").filter(like="p(").to_numpy()
    assert np.allclose(probs, wanted, atol=1e-6, equal_nan=True)
    if lost:
        cell = cells(law)[law.ravel() == 0].iloc[0]
        assert (
            run(["sample", "m.safetensors", "-n", "2", *(w for n in names for w in ("--given", f"{n}={cell[n]}"))]) == 2
        )
        assert "has probability zero in the model" in capsys.readouterr().err


def test_files_keep_the_states_and_earlier_ones_are_read(tmp_path):
    _, law, result = case("several at once")
    result.save(tmp_path / "m.safetensors")
    held, first = load_model(tmp_path / "m.safetensors"), result.impossible
    assert held.impossible.structure == first.structure and torch.equal(held.impossible.excluded, first.excluded)
    old = ModelFile(
        held.hypergraph,
        held.theta,
        held.coding,
        {"infinite_combinations": [{"edge": ["a", "c"], "levels": ["3", "1"]}], "num_infinite_combinations": 2},
    )
    hoim.log_linear.save_model(tmp_path / "old.safetensors", old)
    found = hoim.score(hoim.load(tmp_path / "old.safetensors"), cells(law))
    assert found["impossible_rows"] == 3 and "names only 1 of 2 combinations" in found["notes"][0]
    with pytest.raises(InputError, match="impossible"):
        ModelFile(held.hypergraph, held.theta, impossible=case("weights")[2].impossible)


@pytest.mark.parametrize(
    ("edges", "mask"),
    [
        ([["a", "b"]], torch.ones(4, dtype=torch.uint8)),  # another size
        ([["a", "b"]], torch.full((16,), 2, dtype=torch.uint8)),
        ([["a", "b"]], torch.ones(16)),
        ([["b", "a"]], torch.ones(16, dtype=torch.uint8)),
        ([["a", "q"]], torch.ones(16, dtype=torch.uint8)),
        ("a:b", torch.ones(16, dtype=torch.uint8)),
        ([["a", "b"]], None),
    ],
)
def test_files_with_other_states_are_refused(edges, mask, tmp_path):
    file = case("structural zeros on the diagonal")[2]
    contents = {**file.hypergraph.to_json(), "coding": file.coding, "info": {"impossible": edges}}
    tensors = {"theta": file.theta} | ({} if mask is None else {"impossible": mask})
    write_container(tmp_path / "m.safetensors", LOG_LINEAR, contents, tensors)
    with pytest.raises(ModelFileError):
        load_model(tmp_path / "m.safetensors")


def test_files_are_tested_as_their_fits_are_and_never_across_other_zeros(tmp_path):
    """The oracle is the test of the fits themselves, which keep their rows."""
    rows = rows_of(np.where(APART, 0, PAIRS))
    fits = {
        name: hoim.fit(formula, rows, structural_zeros=declared)
        for name, formula, declared in (
            ("few", "a + b + c", LEVELS),
            ("many", "a*c + b", LEVELS),
            ("other", "a*c*b", None),
        )
    }
    files = dict[str, object]()
    for name, result in fits.items():
        path = tmp_path / f"{name}.safetensors"
        result.save(path)
        add_info(path, {"split": {"fractions": [1, 0, 0], "seed": 0, "rows": 1, "digest": ""}})
        files[name] = hoim.load(path)
    tables = [hoim.compare(models) for models in (fits, files)]
    for table in tables:
        assert table.loc["many", "against"] == "few" and pd.isna(table.loc["other", "against"])
        assert any("other is not tested" in note and "structural zeros" in note for note in table.attrs["notes"])
    first, second = (table.loc["many", ["statistic", "test_df", "p_value"]].astype(float) for table in tables)
    # Of the two parameters of a*c one is of a=0, which is impossible with c=1.
    assert np.allclose(first, second, rtol=1e-6) and first["test_df"] == 1


@pytest.mark.parametrize("zeros", [None, [{"Class": "Crew", "Age": "Child"}]])
@pytest.mark.parametrize("others", [(), ("2nd",), ("1st", "2nd", "3rd")])
def test_the_page_of_a_loaded_model_names_what_no_row_has(zeros, others, tmp_path, monkeypatch):
    """As that of the fit does; children of some classes are left out, too. A finite fit says nothing."""
    monkeypatch.setattr("pyro_hoim.study.model.is_testable", lambda *_: False)  # how well it fits is not asked
    frame = hoim.load_table("titanic").to_pandas(count="Freq")
    left_out = frame["Class"].isin(others) & (frame["Age"] == "Child")
    frame = frame.assign(Freq=frame["Freq"].where(~left_out, 0)) if len(others) < 3 else frame
    result = hoim.fit(".^2" if len(others) < 3 else "Class*Sex + Age*Sex", frame, count="Freq", structural_zeros=zeros)
    result.save(tmp_path / "m.safetensors")

    def said(model):
        return [line for line in family_of_model(model).caveats(model) if line.startswith("No row")]

    assert said(hoim.load(tmp_path / "m.safetensors")) == said(result)
    assert bool(said(result)) is (len(others) == 1 or (not others and zeros is None))
