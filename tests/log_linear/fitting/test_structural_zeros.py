"""Structural zeros beside what else a fit can be asked for: two ways to fit agree, and what does not go is refused."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize

import pyro_hoim as hoim
from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.data.frames import as_observations
from pyro_hoim.errors import ConvergenceWarning, InputError, IntractableError, NonexistentEstimateWarning
from pyro_hoim.inference import enumerate_structures, sample_structures
from pyro_hoim.log_linear import L1, L2, Auto, Conjugate, Enumeration, ImpossibleStates, Stopping, fit, mle_existence
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.log_linear.fitting.existence import cells_outside
from pyro_hoim.log_linear.restricted.terms import restricted_interactions
from pyro_hoim.runs.checkpoint import RunOptions

DOMAIN = Domain.from_labels({"a": ["x", "y", "z"], "b": ["x", "y", "z"], "c": ["p", "q"]})
ZEROS = [{"a": "x", "b": "x"}, {"a": "y", "b": "y"}, {"a": "z", "c": "q"}]
STATES = ImpossibleStates.of_combinations(DOMAIN, ZEROS)
POSSIBLE = cells_outside(STATES)
COUNTS = np.random.default_rng(4).integers(1, 30, 18) * POSSIBLE
ROWS = Observations.from_table(DOMAIN, COUNTS.reshape(3, 3, 2).astype(float))
PAIRS = InteractionHypergraph.from_order(DOMAIN, 2)
SINGLES = InteractionHypergraph.from_order(DOMAIN, 1)
BACKEND = {"partition": Auto(), "stopping": Stopping(tolerance=1e-9)}


def law_of(result):
    return Auto().log_marginal(result.model, DOMAIN.names).exp().flatten().numpy()


@pytest.mark.parametrize("penalty", [None, L2(3.0), L2(1.0, coding="corner"), L1(2.0)], ids=repr)
@pytest.mark.parametrize("graph", [SINGLES, PAIRS], ids=["singles", "pairs"])
def test_a_design_and_a_backend_fit_the_same_law(graph, penalty):
    dense, other = (
        fit(graph, ROWS, structural_zeros=zeros, penalty=penalty, **options)
        for zeros, options in ((~POSSIBLE.reshape(3, 3, 2), {}), (ZEROS, BACKEND))
    )
    assert dense.is_listed and not other.is_listed
    np.testing.assert_allclose(law_of(other), law_of(dense), atol=1e-6)
    assert other.log_likelihood == pytest.approx(dense.log_likelihood, abs=1e-5)
    assert (law_of(dense)[~POSSIBLE] == 0).all() and (law_of(other)[~POSSIBLE] == 0).all()
    assert (dense.num_cells_possible, other.num_cells_possible) == (POSSIBLE.sum(),) * 2
    # A penalty changes nothing about what possible cells identify, beside the constant.
    rank = np.linalg.matrix_rank(np.column_stack([np.ones(POSSIBLE.sum()), design_matrix(graph)[POSSIBLE]]))
    for result in (dense, other):
        quality = hoim.goodness_of_fit(result, p_value=None)
        assert quality.num_parameters_fitted == rank - 1
        assert quality.df == quality.df_adjusted == POSSIBLE.sum() - rank
    if penalty is None:
        errors = [result.standard_errors("corner") for result in (dense, other)]
        torch.testing.assert_close(errors[1], errors[0], rtol=1e-4, atol=0)


NUMBERS = pd.DataFrame({"k": [1, 2, 3] * 4, "x": [1.0, 2.0, 7.0, 7.0] * 3, "wet": [True] * 2 + [False] * 10})


@pytest.mark.parametrize("flag", [True, np.False_, "True"], ids=repr)
@pytest.mark.parametrize(
    ("name", "level", "expected"),
    [
        ("k", 1, [1]),  # whose code is 0
        ("k", 2.0, [2]),
        ("k", np.int8(3), [3]),
        ("k", [1, "3"], [1, 3]),
        ("k", {2, 3.0}, [2, 3]),
        ("k", np.array([1])[0], [1]),
        ("k", np.array([2, 3]), [2, 3]),
        ("k", range(1, 3), [1, 2]),
        ("k", torch.tensor([1, 2]), [1, 2]),
        ("k", torch.tensor(2), [2]),
        ("x", 1, [1]),
        ("x", pd.Series([2.0, 7.0]), [2, 7]),
    ],
)
def test_numbers_and_flags_are_labels_as_in_rows(name, level, expected, flag):
    rows = as_observations(NUMBERS)
    states = ImpossibleStates.of_combinations(rows.domain, [{name: level, "wet": flag}])
    assert int(states.excluded.sum()) == len(expected)
    by_pandas = NUMBERS[name].isin(expected) & (NUMBERS["wet"] == (str(flag) == "True"))
    assert sum(number for _, number in states.tally(rows)) == by_pandas.sum()


def test_cells_of_a_fit_through_a_backend_are_listed():
    """Those of margins with structural zeros, which have no design, are those of the rows."""
    listed = fit(PAIRS, ROWS, structural_zeros=ZEROS)
    for other in (
        fit(PAIRS, ROWS, structural_zeros=ZEROS, **BACKEND),
        fit(PAIRS, ROWS.marginal_counts(PAIRS.edges), structural_zeros=ZEROS, stopping=BACKEND["stopping"]),
    ):
        assert not other.is_listed
        np.testing.assert_allclose(other.probs, listed.probs, atol=1e-6)
    wide = Domain.from_cardinalities([2] * 18)
    rows = Observations.from_tensor(torch.randint(2, (200, 18), generator=torch.Generator().manual_seed(0)), wide)
    with pytest.raises(IntractableError, match=r"probs: the table has 262,?144 cells, .* up to 131,072"):
        _ = fit(InteractionHypergraph.from_order(wide, 1), rows, partition=Auto()).probs


def test_a_number_excludes_the_level_that_reads_so():
    zeros = [{"k": 3, "wet": True}]  # which no row holds, whereas rows hold k = 2
    result = hoim.fit(NUMBERS[["k", "wet"]], order=1, structural_zeros=zeros)
    told = result.row_log_likelihood(pd.DataFrame({"k": [1, 2, 3], "wet": True}))
    assert np.isneginf(told).tolist() == [False, False, True]
    with pytest.raises(InputError, match="structural_zeros, column 'k': unknown label '0'"):
        hoim.fit(NUMBERS, order=1, structural_zeros=[{"k": 0, "wet": True}])


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
def test_levels_without_rows_are_those_of_categories_and_masks_follow_the_columns():
    """The law of both ways to say it is the same, and no row of the level is the one that is impossible."""
    frame = pd.DataFrame({"late": list("xyxyxyzz"), "early": list("uuvvuuvv")})
    zeros = [{"early": "w", "late": "x"}]
    with pytest.raises(InputError, match=r"column 'early': unknown label 'w'; .* are known where categories name them"):
        hoim.fit("early + late", frame, structural_zeros=zeros)
    frame["early"] = pd.Categorical(frame["early"], ["u", "v", "w"])
    mask = np.zeros((3, 3), dtype=bool)
    mask[0, 2] = True  # of the columns in their order
    for declared in (zeros, mask):
        result = hoim.fit("early + late", frame, structural_zeros=declared)
        assert list(result.structural_zeros.combinations) == [{"late": "x", "early": "w"}]


def test_a_ridge_is_the_maximum_of_its_objective_on_possible_cells():
    design = design_matrix(PAIRS)[POSSIBLE]

    def objective(theta):
        logits = design @ theta
        return -(COUNTS[POSSIBLE] @ logits - COUNTS.sum() * np.log(np.exp(logits).sum())) + 1.5 * theta @ theta

    best = minimize(objective, np.zeros(design.shape[1]), method="BFGS", options={"gtol": 1e-6}).x
    found = fit(PAIRS, ROWS, structural_zeros=ZEROS, penalty=L2(3.0), **BACKEND)
    np.testing.assert_allclose(found.theta, best, atol=1e-4)


def test_weights_validation_rows_and_restricted_interactions():
    weighted = Observations.from_tensor(ROWS.codes, DOMAIN, weights=ROWS.counts * 0.37)
    laws = [law_of(fit(SINGLES, data, structural_zeros=ZEROS)) for data in (weighted, ROWS)]
    np.testing.assert_allclose(*laws, atol=1e-9)
    # Scores, through the design and through a backend.
    ordered = Domain.from_labels({name: list("123")[: DOMAIN[name].cardinality] for name in "abc"})
    rows = Observations(ordered, ROWS.codes, ROWS.counts)
    terms = restricted_interactions(ordered, "a + b + c + linear(a):linear(b)")
    zeros = ImpossibleStates(
        InteractionHypergraph(ordered, STATES.structure.edges, hierarchical=False), STATES.excluded
    )
    dense, other = (fit(terms, rows, structural_zeros=zeros, **options) for options in ({}, BACKEND))
    assert other.log_likelihood == pytest.approx(dense.log_likelihood, abs=1e-6)
    assert other.num_parameters_fitted == dense.num_parameters_fitted == 6
    # Early stopping on rows that are possible, and on one that is not.
    half = Observations(DOMAIN, ROWS.codes, (ROWS.counts / 2).floor())
    stopped = fit(PAIRS, ROWS, structural_zeros=ZEROS, validation=half, stopping=Stopping(patience=3), partition=Auto())
    assert (law_of(stopped)[~POSSIBLE] == 0).all() and np.isfinite(stopped.validation_kl)
    lost = Observations.from_tensor(torch.tensor([[0, 0, 0]]), DOMAIN)
    with pytest.raises(InputError, match=r"1 row of validation holds what is marked as impossible: \(a=x, b=x\)"):
        fit(PAIRS, ROWS, structural_zeros=ZEROS, validation=lost)


class Interrupting(Enumeration):
    """A backend that is interrupted at its fifth call."""

    calls = itertools.count()

    def log_partition(self, model):
        if next(self.calls) == 5:
            raise KeyboardInterrupt
        return super().log_partition(model)


def test_a_fit_is_not_continued_with_other_zeros(tmp_path):
    run = RunOptions(tmp_path / "fit.safetensors", True)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit(SINGLES, ROWS, structural_zeros=ZEROS, run=run, partition=Interrupting())
    with pytest.raises(InputError, match="belongs to a run with another support"):
        fit(SINGLES, ROWS, structural_zeros=ZEROS[:2], run=run, partition=Enumeration())
    again = fit(SINGLES, ROWS, structural_zeros=ZEROS, run=run, partition=Enumeration())
    whole = fit(SINGLES, ROWS, structural_zeros=ZEROS, partition=Enumeration())
    assert torch.equal(again.theta, whole.theta)


def test_existence_beside_structural_zeros_at_any_size():
    """A margin that is empty because all its cells are impossible says nothing; another one does."""
    table = COUNTS.reshape(3, 3, 2).astype(float)
    level = [*ZEROS, {"a": ["x", "y", "z"], "c": "q"}]  # nothing is left at c=q
    none = Observations.from_table(DOMAIN, np.where([True, False], table, 0))
    for data in (none, none.marginal_counts(PAIRS.edges)):
        assert mle_existence(PAIRS, data, structural_zeros=level).exists is not False
        found = mle_existence(PAIRS, data, structural_zeros=ZEROS)
        assert (found.exists, str(found.offending[0])) == (False, "c=q")
    with pytest.warns(NonexistentEstimateWarning, match="c=q"):
        result = fit(PAIRS, none, structural_zeros=ZEROS, **BACKEND)
    assert result.impossible.without(result.structural_zeros) is not None
    assert (law_of(result)[~POSSIBLE] == 0).all() and law_of(result).reshape(3, 3, 2)[..., 1].sum() == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"penalty": Conjugate(2.0)}, "Conjugate spreads rows over all cells"),
        ({"structural_zeros": np.ones((3, 3, 2), dtype=bool)}, "at least one possible cell"),
        ({"structural_zeros": [{"a": "x"}, {"a": ["y", "z"]}]}, "rows of data hold"),
    ],
)
def test_what_does_not_go_together_is_refused(options, expected):
    with pytest.raises(InputError, match=expected), warnings.catch_warnings(action="error"):
        fit(PAIRS, ROWS, **{"structural_zeros": ZEROS, **options})


def test_wald_tests_what_the_possible_cells_leave_of_an_interaction():
    """Of the saturated square without diagonal quasi-independence, by contrasts of the logs of the counts.

    James Grizzle, Frank Starmer and Gary Koch, Analysis of categorical data by linear models, 1969. Of two by two
    cells, one of which is impossible, nothing is left.
    """
    counts = np.random.default_rng(5).integers(20, 90, (4, 4)) * ~np.eye(4, dtype=bool)
    rows = Observations.from_table(Domain.from_cardinalities([4, 4]), counts.astype(float))
    result = fit(InteractionHypergraph.saturated(rows.domain), rows, structural_zeros=np.eye(4, dtype=bool))
    first, second = np.nonzero(counts)
    main = np.column_stack([np.eye(4)[first], np.eye(4)[second]])
    within = np.linalg.svd(main)[0][:, 7:]
    logs, errors = within.T @ np.log(counts[first, second]), within.T @ np.diag(1 / counts[first, second]) @ within
    statistic = logs @ np.linalg.solve(errors, logs)
    for covariance, share in (("robust", 1 - 1 / counts.sum()), ("model", 1)):  # robust errors have n - 1 for n units
        wald = hoim.log_linear.term_tests(result, method="wald", covariance=covariance).iloc[0]
        assert wald["df"] == 5 and wald["statistic"] == pytest.approx(share * statistic, rel=1e-6)
    ratio = hoim.log_linear.term_tests(result).iloc[0]
    assert ratio["df"] == 5 and ratio["statistic"] == pytest.approx(wald["statistic"], rel=0.2)
    small = Observations.from_table(Domain.from_cardinalities([2, 2]), [[385.0, 157.0], [283.0, 0.0]])
    result = fit(InteractionHypergraph.saturated(small.domain), small, structural_zeros=[{"x0": 1, "x1": 1}])
    for method in ("wald", "likelihood-ratio"):
        (row,) = hoim.log_linear.term_tests(result, method=method).to_dict("records")
        assert row["df"] == 0 and np.isnan(row["p_value"]) and not row["statistic"] < 0
        assert "likelihood" not in row["note"]
    assert not any("rough" in note for note in result.summary().attrs["notes"])


def square(first, second):
    """Order 1 of two columns with their margins, and a diagonal that is impossible."""
    domain = Domain.from_labels({name: [f"l{i}" for i in range(len(first))] for name in "fs"})
    counts = torch.tensor([*first, *second], dtype=torch.float64)
    zeros = [{"f": level, "s": level} for level in domain["f"].labels]
    return InteractionHypergraph.from_order(domain, 1), counts, {"structural_zeros": zeros}


def test_margins_are_fitted_if_and_only_if_a_table_has_them():
    """Of squares without diagonal one has where no level has more rows than are left.

    Lester Ford and Delbert Fulkerson, Flows in Networks, 1962, section II.1: the cuts of least capacity.
    """
    random = np.random.default_rng(7)
    outcomes = []
    for _ in range(60):
        first, second = (random.multinomial(100, random.dirichlet(np.full(4, 0.7))) for _ in range(2))
        graph, counts, options = square(first, second)
        has_table = bool((first + second <= 100).all())
        outcomes.append(has_table)
        with warnings.catch_warnings(action="ignore"):
            if has_table:
                assert fit(graph, counts, **options).log_likelihood <= 0
            else:
                for function in (fit, mle_existence):
                    with pytest.raises(InputError, match="no table in which the structural zeros are empty has these"):
                        function(graph, counts, **options)
    assert 10 < sum(outcomes) < 50


def test_margins_of_pairs_are_those_of_a_table():
    """Of three binary columns all cells are known but for one number, whose bounds the pairs give."""
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 2]), 2)
    random = np.random.default_rng(8)
    outcomes = []
    for _ in range(60):
        p = random.dirichlet(np.full(8, 0.5)).reshape(2, 2, 2)
        ab, ac = p.sum(2), p.sum(1)
        (b1, c1), low, high = (ab[:, 1].sum(), ac[:, 1].sum()), 0.0, 0.0
        low, high = max(0.0, b1 + c1 - 1), min(b1, c1)
        joint = random.uniform(low, high)
        bc = np.array([[1 - b1 - c1 + joint, c1 - joint], [b1 - joint, joint]])
        counts = 1000 * np.concatenate([ab.sum(1), ab.sum(0), ac.sum(0), ab.ravel(), ac.ravel(), bc.ravel()])
        # With t of the cell of first levels: cells of even distance from it are larger, the others smaller, as t grows.
        even = [
            0.0,
            ab[0, 0] + ac[0, 0] - ab[0].sum(),
            ab[0, 0] + bc[0, 0] - ab[:, 0].sum(),
            ac[0, 0] + bc[0, 0] - ac[:, 0].sum(),
        ]
        odd = [
            ab[0, 0],
            ac[0, 0],
            bc[0, 0],
            ab[0, 0] + ac[0, 0] + bc[0, 0] - ab[0].sum() - ab[:, 0].sum() - ac[:, 0].sum() + 1,
        ]
        has_table = max(even) <= min(odd)
        outcomes.append(has_table)
        if has_table:
            assert fit(graph, torch.from_numpy(counts)).log_likelihood <= 0
        else:
            with pytest.raises(InputError, match="data: no table has these margins"):
                fit(graph, torch.from_numpy(counts))
    assert 5 < sum(outcomes) < 55


def test_a_likelihood_above_one_shows_that_no_table_has_the_margins():
    """Of so many cells that the linear program is not solved."""
    counts = np.zeros(300)
    counts[0] = 1000
    graph, margins, options = square(counts, counts)
    with pytest.raises(InputError, match="no table in which the structural zeros are empty has these margins"):
        fit(graph, margins, **options)


@pytest.mark.parametrize(
    "function",
    [hoim.fit_roots, hoim.learn, hoim.learn_network, enumerate_structures, sample_structures],
    ids=lambda function: function.__name__,
)
def test_functions_without_structural_zeros_say_what_takes_them(function):
    """Any other name is an unknown option there, without that hint."""
    with pytest.raises(InputError, match=r"unknown option 'structural_zeros'; pyro_hoim\.fit takes them"):
        function(NUMBERS[["k"]], structural_zeros=[{"k": 1}])
    with pytest.raises(InputError, match=r"unknown option 'foo'; (known|did)"):
        function(NUMBERS[["k"]], foo=3)
