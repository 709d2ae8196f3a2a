"""Tables of coefficients, odds ratios and cells; existence of estimates; rows with missing cells."""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

from pyro_hoim import Domain, InteractionHypergraph, Observations, load_table
from pyro_hoim.errors import (
    ConvergenceWarning,
    InputError,
    InputTypeError,
    IntractableError,
    NonexistentEstimateWarning,
    UnknownNameError,
)
from pyro_hoim.log_linear import (
    L2,
    Enumeration,
    HierarchicalLogLinear,
    LogLinearEnergy,
    Stopping,
    cell_table,
    coefficient_table,
    fit,
    fit_incomplete,
    goodness_of_fit,
    log_partition,
    mle_existence,
    odds_ratio_table,
    parametrization,
    row_log_likelihood,
)
from pyro_hoim.log_linear.fitting import existence as existence_module, incomplete
from pyro_hoim.log_linear.fitting.design import cell_counts, design_matrix
from pyro_hoim.log_linear.fitting.existence import find_face
from pyro_hoim.testing import raises

QUIET = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")


@pytest.fixture
def two_by_two():
    domain = Domain.from_labels({"drug": ("old", "new"), "cured": ("no", "yes")})
    data = Observations.from_table(domain, [[30, 10], [20, 40]])
    return fit(InteractionHypergraph.saturated(domain), data)


def test_odds_ratio_of_a_two_by_two_table(two_by_two):
    frame = odds_ratio_table(two_by_two, "drug", "cured")
    assert (frame.loc[0, "drug"], frame.loc[0, "odds_ratio"]) == ("old -> new", pytest.approx(6.0, rel=1e-9))
    assert frame.loc[0, "std_error"] == pytest.approx((1 / 30 + 1 / 10 + 1 / 20 + 1 / 40) ** 0.5, rel=1e-9)
    assert np.log(frame.loc[0, "upper"]) - frame.loc[0, "log_odds_ratio"] == pytest.approx(
        1.959963984540054 * frame.loc[0, "std_error"]
    )
    swapped = odds_ratio_table(two_by_two, "drug", "cured", first_levels=("new", "old"))
    assert swapped.loc[0, "log_odds_ratio"] == pytest.approx(-np.log(6.0))


def test_odds_ratios_are_those_of_the_fitted_cells():
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(data.domain, 3), data)
    probs = result.probs.reshape(data.domain.cardinalities).numpy()
    frame = odds_ratio_table(result, "Hair", "Eye", first_levels=(1, 3), second_levels=("Blue", "Green"))
    b, g = (data.domain["Eye"].code(v) for v in ("Blue", "Green"))
    for sex, row in frame.iterrows():
        expected = np.log(probs[3, g, sex] * probs[1, b, sex] / (probs[3, b, sex] * probs[1, g, sex]))
        assert row["log_odds_ratio"] == pytest.approx(expected, abs=1e-8)
    assert frame["Sex"].tolist() == list(data.domain["Sex"].labels)
    one = odds_ratio_table(result, "Hair", "Eye", given={"Sex": "Female"})
    assert (set(one["Sex"]), len(one)) == ({"Female"}, 9)


def test_odds_ratios_of_smaller_models():
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    assert len(odds_ratio_table(result, "Hair", "Eye")) == 9
    with pytest.raises(UnknownNameError, match="did you mean 'Hair'"):
        odds_ratio_table(result, "hair", "Eye")
    for code, argument, options in (
        ("conflict", "given", {"given": {"Sex": "Male"}}),
        ("repeated-name", "levels of 'Hair'", {"first_levels": (1, 1)}),
        ("out-of-range", "level", {"level": 95}),
    ):
        with raises(code, argument):
            odds_ratio_table(result, "Hair", "Eye", **options)
    result = fit(InteractionHypergraph.from_order(data.domain, 1), data)
    frame = odds_ratio_table(result, "Hair", "Eye")
    assert (frame["log_odds_ratio"] == 0).all()
    assert (frame["std_error"] == 0).all()
    assert frame["p_value"].isna().all()


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
def test_standard_errors_transform_with_the_coding(coding):
    data = load_table("ucb_admissions")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    result = fit(hypergraph, data)
    frame = coefficient_table(result, coding=coding)
    matrix = parametrization(hypergraph).matrix("free", coding)
    covariance = matrix @ torch.linalg.inv(result.information) @ matrix.T
    np.testing.assert_allclose(frame["std_error"], covariance.diagonal().sqrt(), rtol=1e-9)
    assert len(frame) == parametrization(hypergraph).num(coding)
    if coding == "balanced":
        assert abs(frame.groupby("interaction")["estimate"].sum()).max() < 1e-10


def test_information_of_a_backend_equals_the_dense_one():
    data = load_table("ucb_admissions")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    dense = fit(hypergraph, data, penalty=L2(2.0))
    backend = fit(
        hypergraph, data, penalty=L2(2.0), method="lbfgs", partition=Enumeration(), stopping=Stopping(tolerance=1e-8)
    )
    here = dataclasses.replace(dense, theta=backend.theta)
    np.testing.assert_allclose(backend.information, here.information, rtol=1e-10, atol=1e-9)
    # Between the two estimates: gradients below 1e-8 and 1e-9 per row move theta by at most delta, and the information
    # of a log-linear model changes by at most a factor exp(diameter * delta) along the way.
    curvature = float(torch.linalg.eigvalsh(dense.information)[0]) / data.total_count
    delta = 2 * (1e-8 + 1e-9) * hypergraph.num_parameters**0.5 / curvature
    diameter = 2 * sum(np.prod([1 - 1 / n for n in shape]) for shape in hypergraph.edge_shapes) ** 0.5
    scale = dense.information.diagonal().sqrt()
    gap = ((backend.information - dense.information).abs() / torch.outer(scale, scale)).max()
    assert float(gap) <= np.expm1(diameter * delta) < 1e-3
    plain = fit(hypergraph, data)
    assert float(plain.covariance.trace()) > float(dense.covariance.trace())


@QUIET
def test_infinite_coefficients_have_infinite_errors_or_none_where_what_is_identified_is_unknown():
    data = load_table("titanic")
    result = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    frame = coefficient_table(result)
    infinite = frame[np.isinf(frame["std_error"])]
    names = (infinite["interaction"] + " " + infinite["levels"]).tolist()
    assert names == ["Class Crew", "Class:Age Crew, Adult"]
    assert infinite["p_value"].isna().all()
    odds = odds_ratio_table(result, "Class", "Age", first_levels=("1st", "Crew"))
    assert np.isinf(odds.loc[0, "std_error"])
    assert (odds.loc[0, "lower"], odds.loc[0, "upper"]) == (0, np.inf)
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    dense = fit(hypergraph, data)
    margins = fit(hypergraph, data.marginal_counts(hypergraph.edges), partition=Enumeration())
    # Of margins alone the empty ones are known; on what they leave a small gradient proves that there are no more.
    known, all_of_it = coefficient_table(margins), np.isfinite(frame["std_error"])
    assert np.isfinite(known["std_error"]).equals(all_of_it)
    np.testing.assert_allclose(known.loc[all_of_it, "std_error"], frame.loc[all_of_it, "std_error"], rtol=1e-3)
    contrasts = parametrization(hypergraph).matrix("free", "corner")
    assert torch.equal(margins.is_identified(contrasts), dense.is_identified(contrasts))
    # Not decided, and infinite all the same: margins without zeros that force two cells to zero.
    counts = np.arange(3, 11).reshape(2, 2, 2).astype(float)
    counts[0, 0, 0] = counts[1, 1, 1] = 0
    facial = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}), counts)
    pairs = InteractionHypergraph.from_order(facial.domain, 2)
    for options in ({"partition": Enumeration()}, {"method": "lbfgs"}):
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            open_fit = fit(pairs, facial.marginal_counts(pairs.edges), **options)
        assert open_fit.existence.exists is None
        with pytest.raises(IntractableError, match="whether the estimate is finite was not decided"):
            coefficient_table(open_fit)


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
@QUIET
def test_infinite_coefficients_of_a_backend_are_those_of_the_dense_fit(coding):
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    data = Observations.from_table(domain, [[30, 0], [20, 40]])
    hypergraph = InteractionHypergraph.saturated(domain)
    dense = fit(hypergraph, data)
    fits = [
        fit(hypergraph, data, partition=Enumeration()),
        fit(hypergraph, data.marginal_counts(hypergraph.edges), method="lbfgs"),
        fit(hypergraph, data.marginal_counts(hypergraph.edges), partition=Enumeration()),
    ]
    expected = dense.standard_errors(coding)
    if coding == "corner":
        assert expected.tolist() == [pytest.approx((1 / 30 + 1 / 20) ** 0.5, rel=1e-9), float("inf"), float("inf")]
    for other in fits:
        assert other.status == "infinite"
        # The probability of the forced zero is that of the last gradient, below 1e-6.
        torch.testing.assert_close(other.standard_errors(coding), expected, rtol=1e-4, atol=0)


@QUIET
def test_empty_margins_of_a_decomposable_model_are_all_there_is():
    # a - b - c with one empty cell of (a, b) and one empty level of c: the linear program is the oracle.
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 3})
    counts = np.arange(1.0, 19).reshape(2, 3, 3)
    counts[0, 1] = 0
    counts[:, :, 2] = 0
    data = Observations.from_table(domain, counts)
    hypergraph = InteractionHypergraph.from_formula(domain, "a*b + b*c")
    dense = fit(hypergraph, data)
    margins = fit(
        hypergraph, data.marginal_counts(hypergraph.edges), partition=Enumeration(), stopping=Stopping(tolerance=1e-7)
    )
    for coding in ("free", "corner", "balanced"):
        expected = dense.standard_errors(coding)
        torch.testing.assert_close(margins.standard_errors(coding), expected, rtol=1e-4, atol=0)
    expected = dense.standard_errors("corner")
    assert 0 < int(torch.isinf(expected).sum()) < len(expected)


def test_a_small_gradient_proves_that_an_undecided_estimate_is_finite():
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    exact = fit(hypergraph, data)
    open_fit = fit(
        hypergraph, data.marginal_counts(hypergraph.edges), partition=Enumeration(), stopping=Stopping(tolerance=1e-8)
    )
    assert (exact.existence.exists, open_fit.existence.exists) == (True, None)
    torch.testing.assert_close(open_fit.standard_errors("corner"), exact.standard_errors("corner"), rtol=1e-5, atol=0)


@pytest.mark.parametrize("missing", [False, True])
def test_rows_of_an_undecided_estimate_have_errors_too(missing):
    data = load_table("czech_autoworkers")
    if missing:
        codes = data.codes.clone()
        codes[::7, 2] = -1
        data = Observations.from_tensor(codes, data.domain, data.counts)
    pairs = InteractionHypergraph.from_order(data.domain, 2)
    exact = (fit_incomplete if missing else fit)(pairs, data, stopping=Stopping(tolerance=1e-8))
    undecided = existence_module.MLEExistence(None, "unknown")
    open_fit = dataclasses.replace(exact, existence=undecided, margins=None)
    torch.testing.assert_close(open_fit.standard_errors("corner"), exact.standard_errors("corner"), rtol=0, atol=0)
    moved = dataclasses.replace(
        open_fit, theta=exact.theta + 1.0
    )  # the control: away from the estimate nothing is proved
    with pytest.raises(IntractableError, match=r"was not decided|is singular"):
        moved.standard_errors("corner")


def test_balanced_errors_of_a_large_saturated_model_stay_small():
    domain = Domain.from_cardinalities([2] * 8)
    counts = torch.randint(1, 20, domain.cardinalities, generator=torch.Generator().manual_seed(0))
    result = fit(InteractionHypergraph.saturated(domain), Observations.from_table(domain, weights=counts.double()))
    # A binary balanced entry is a free parameter over sqrt(2)^|S|.
    errors, free = result.standard_errors("balanced"), result.standard_errors("free")
    for edge, where in result.hypergraph.term_slices.items():
        position = result.hypergraph.parameter_slices[edge].start
        expected = free[position] / 2 ** (len(edge) / 2)
        torch.testing.assert_close(errors[where], expected.expand(2 ** len(edge)), rtol=1e-10, atol=0)


def test_residuals_have_their_closed_form_and_saturated_cells_none(two_by_two):
    domain = Domain.from_cardinalities({"a": 2, "b": 3})
    counts = np.array([[12.0, 7.0, 9.0], [5.0, 16.0, 3.0]])
    frame = cell_table(fit(InteractionHypergraph.from_order(domain, 1), Observations.from_table(domain, counts)))
    total, rows, columns = counts.sum(), counts.sum(1), counts.sum(0)
    for (i, j), row in zip(itertools.product(range(2), range(3)), frame.itertuples(), strict=True):
        expected = rows[i] * columns[j] / total
        scale = np.sqrt(expected * (1 - rows[i] / total) * (1 - columns[j] / total))
        assert row.expected == pytest.approx(expected)
        assert row.residual == pytest.approx((counts[i, j] - expected) / np.sqrt(expected))
        assert row.adjusted_residual == pytest.approx((counts[i, j] - expected) / scale)
    assert frame.columns.tolist() == ["a", "b", "observed", "expected", "residual", "adjusted_residual"]
    frame = cell_table(two_by_two)
    np.testing.assert_allclose(frame["observed"], frame["expected"], rtol=1e-9)
    assert frame["adjusted_residual"].isna().all()


def test_tables_refuse_what_they_cannot_use(two_by_two):
    data = load_table("czech_autoworkers")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    with raises("no-method", "result"):
        cell_table(fit(hypergraph, data, penalty=L2(1.0)))
    with raises("no-method", "covariance"):
        coefficient_table(fit(hypergraph, data, objective="pseudo-likelihood"), covariance="model")
    with pytest.raises(IntractableError, match="64 cells"):
        cell_table(fit(hypergraph, data, method="lbfgs", partition=Enumeration()))
    with raises("missing-part", "result"):
        cell_table(fit(hypergraph, data.marginal_counts(hypergraph.edges)))
    with raises("unknown-choice", "target"):
        coefficient_table(two_by_two, coding="dummy")


# Existence of the maximum-likelihood estimate


def positive_cells(hypergraph, counts, possible=slice(None)):
    """Possible cells that are positive in some table with the observed margins.

    Such tables times any number are a cone, one of which has at least one in each of these cells: it reaches the
    largest sum of a number for every cell that is at most one and at most what the cell holds.
    """
    design = np.column_stack([np.ones(hypergraph.domain.num_states), design_matrix(hypergraph)])[possible]
    counts = counts[possible]
    size, margins = len(counts), design.T @ counts
    balance = np.column_stack([design.T, 0 * design.T, -margins])
    below = np.column_stack([-np.eye(size), np.eye(size), np.zeros(size)])
    objective = np.r_[np.zeros(size), -np.ones(size), 0.0]
    bounds = [(0, None)] * size + [(0, 1)] * size + [(0, None)]
    solution = linprog(objective, below, np.zeros(size), balance, np.zeros(len(margins)), bounds=bounds, method="highs")
    found = solution.x[size:-1]
    assert np.minimum(found, 1 - found).max(initial=0) < 1e-6
    return found > 0.5


@st.composite
def sparse_tables(draw):
    cards = draw(st.lists(st.integers(2, 3), min_size=2, max_size=3))
    domain = Domain.from_cardinalities(cards)
    order = draw(st.integers(1, len(cards)))
    counts = draw(st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=domain.num_states, max_size=domain.num_states))
    counts = np.array(counts, dtype=float)
    if counts.sum() == 0:
        counts[0] = 1
    return InteractionHypergraph.from_order(domain, order), counts


@given(sparse_tables())
@QUIET
def test_facial_set_equals_brute_force(case):
    hypergraph, counts = case
    data = Observations.from_table(hypergraph.domain, counts.reshape(hypergraph.domain.cardinalities))
    existence = mle_existence(hypergraph, data)
    expected = positive_cells(hypergraph, counts)
    assert existence.exists is bool(expected.all())
    assert existence.num_cells_zero == int((~expected).sum())
    if existence.facial_set is not None:
        assert np.array_equal(existence.facial_set, expected)
    result = fit(hypergraph, data)
    assert result.status == ("converged" if existence.exists else "infinite")
    # The extended estimate has the observed margins: that is what characterises it.
    moments = design_matrix(hypergraph).T @ (result.probs.numpy() - counts / counts.sum())
    assert np.abs(moments).max(initial=0) < 1e-7
    assert np.array_equal(result.probs.numpy() > 0, expected)


@given(sparse_tables(), st.integers(0, 2**31))
@settings(max_examples=40)
@QUIET
def test_structural_zeros_equal_brute_force_on_possible_cells(case, seed):
    hypergraph, counts = case
    shape = hypergraph.domain.cardinalities
    impossible = (counts == 0) & (np.random.default_rng(seed).random(len(counts)) < 0.4)
    data = Observations.from_table(hypergraph.domain, counts.reshape(shape))
    expected = np.zeros(len(counts), dtype=bool)
    expected[~impossible] = positive_cells(hypergraph, counts, ~impossible)
    result = fit(hypergraph, data, structural_zeros=impossible.reshape(shape))
    assert result.existence.exists is bool(expected[~impossible].all())
    assert result.existence.num_cells_zero == int((~expected & ~impossible).sum())
    assert np.array_equal(result.probs.numpy() > 0, expected)
    moments = design_matrix(hypergraph).T @ (result.probs.numpy() - counts / counts.sum())
    assert np.abs(moments).max(initial=0) < 1e-7
    # On possible cells the finite parameters have the fitted law.
    states = torch.from_numpy(np.argwhere(~impossible.reshape(shape)))
    law = torch.exp(-result.model.energy(states) - result.log_partition).numpy()
    np.testing.assert_allclose(law, result.probs.numpy()[~impossible], atol=1e-11)


@st.composite
def facial_tables(draw):
    """Counts on part of an exposed face of a model of pairs: zeros are forced, mostly without an empty margin."""
    cards = draw(st.sampled_from([(2, 2, 2), (2, 2, 3), (2, 2, 2, 2)]))
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities(cards), 2)
    weights = draw(st.lists(st.integers(-1, 1), min_size=hypergraph.num_terms, max_size=hypergraph.num_terms))
    cells = torch.from_numpy(np.argwhere(np.ones(cards)))
    heights = (parametrization(hypergraph).statistics(cells) @ torch.tensor(weights, dtype=torch.float64)).numpy()
    face = np.flatnonzero(heights > heights.max() - 0.5)
    counts = np.zeros(hypergraph.domain.num_states)
    counts[face] = draw(st.lists(st.sampled_from([0, 1, 1, 3]), min_size=len(face), max_size=len(face)))
    counts[face[0]] += 1
    return hypergraph, counts


@given(facial_tables())
@settings(max_examples=60)
def test_exposed_faces_are_found(case):
    hypergraph, counts = case
    data = Observations.from_table(hypergraph.domain, counts.reshape(hypergraph.domain.cardinalities))
    expected = positive_cells(hypergraph, counts)
    existence = mle_existence(hypergraph, data)
    assert existence.exists is bool(expected.all())
    if not expected.all():
        assert np.array_equal(existence.facial_set, expected)


def sparse_rows(num_variables, order, num_rows, seed):
    domain = Domain.from_cardinalities([2] * num_variables)
    generator = torch.Generator().manual_seed(seed)
    rates = torch.linspace(0.03, 0.5, num_variables)
    codes = (torch.rand(num_rows, num_variables, generator=generator) < rates).long()
    return InteractionHypergraph.from_order(domain, order), Observations.from_tensor(codes, domain)


@pytest.mark.parametrize("case", [(12, 3, 800, 0), (12, 3, 800, 1), (11, 3, 1000, 1), (13, 3, 1000, 0)])
def test_facial_sets_of_sparse_tables_are_certified_from_both_sides(case):
    # Farkas: a direction that is 0 on the face and negative elsewhere proves that the other cells are zero, and a
    # positive table on the face with the observed margins proves that no further cell is.
    hypergraph, data = sparse_rows(*case)
    counts, design = cell_counts(data), design_matrix(hypergraph)
    existence, face = find_face(hypergraph, design, counts, None, data)
    assert (existence.exists, existence.num_cells_zero) == (False, int((~face.cells).sum()))
    assert counts[~face.cells].sum() == 0
    drop = design @ face.recession
    drop -= drop[face.cells].mean()
    assert np.abs(drop[face.cells]).max() < 1e-6
    assert drop[~face.cells].max() < -1 + 1e-6
    if case[0] < 13:
        with pytest.warns(NonexistentEstimateWarning):
            result = fit(hypergraph, data)
        probs = result.probs.numpy()
        assert result.status == "infinite"
        assert np.array_equal(probs > 0, face.cells)
        assert np.abs(design.T @ (probs - counts / counts.sum())).max() < 1e-8


@pytest.mark.parametrize("num_rows", [100, 170])
def test_a_fitted_table_spares_the_program(monkeypatch, num_rows):
    """1,296 cells, most of which the linear program alone would have to decide."""
    domain = Domain.from_cardinalities([6] * 4)
    codes = torch.randint(6, (num_rows, 4), generator=torch.Generator().manual_seed(1))
    data, hypergraph = Observations.from_tensor(codes, domain), InteractionHypergraph.from_order(domain, 2)
    sizes, solve = [], existence_module._recession
    monkeypatch.setattr(existence_module, "_recession", lambda images: [sizes.append(len(images)), solve(images)][1])
    found = mle_existence(hypergraph, data)
    assert not sizes
    monkeypatch.setattr(existence_module, "_shown_positive", lambda *_: np.zeros(0, dtype=np.int64))
    alone = mle_existence(hypergraph, data)
    assert max(sizes) > 600
    assert (found.exists, found.num_cells_zero) == (alone.exists, alone.num_cells_zero)
    assert found.exists is False


def test_an_unsolved_program_leaves_existence_open(monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.fitting.existence._recession", lambda images: None)
    existence = mle_existence(*no_three_way((0, 0, 0), (1, 1, 1)))
    assert (existence.exists, existence.kind) == (None, "unknown")
    assert "was not decided" in existence.describe()
    # With one zero more a and b have an empty margin, which needs no program.
    existence = mle_existence(*no_three_way((0, 0, 0), (1, 1, 1), (0, 0, 1)))
    assert (existence.exists, existence.kind) == (False, "zero margin")


def no_three_way(*zeros):
    counts = np.arange(3, 11).reshape(2, 2, 2).astype(float)
    counts[tuple(zip(*zeros, strict=True))] = 0
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    return InteractionHypergraph.from_order(domain, 2), Observations.from_table(domain, counts)


def test_positive_margins_do_not_suffice():
    """Shelby Haberman, The Analysis of Frequency Data, 1974, page 375; Fienberg and Rinaldo, 2012, section 4."""
    hypergraph, data = no_three_way((0, 0, 0), (1, 1, 1))
    existence = mle_existence(hypergraph, data)
    assert (existence.exists, existence.kind, existence.num_cells_zero, existence.num_parameters_lost) == (
        False, "facial", 2, 1,
    )  # fmt: skip
    assert [str(c) for c in existence.offending] == ["a=0, b=0, c=0", "a=1, b=1, c=1"]
    assert "forced to zero" in existence.describe()
    with pytest.warns(NonexistentEstimateWarning, match="a=0, b=0, c=0"):
        result = fit(hypergraph, data)
    quality = goodness_of_fit(result)
    assert (quality.df, quality.df_adjusted) == (1, 0)
    assert np.array_equal(cell_table(result)["expected"] == 0, data.table().flatten() == 0)
    hypergraph, data = no_three_way((0, 0, 0), (0, 1, 1))
    existence = mle_existence(hypergraph, data)
    assert (existence.exists, existence.kind, existence.num_cells_zero) == (True, "interior", 0)
    assert fit(hypergraph, data).status == "converged"


def test_rochdale_names_the_empty_margins():
    data = load_table("rochdale")
    existence = mle_existence(InteractionHypergraph.from_order(data.domain, 3), data)
    assert existence.kind == "zero margin"
    assert "combinations of levels are never observed: (" in existence.describe()
    margins = [c for c in existence.offending if len(c.edge) <= 3]
    assert 0 < len(margins) < existence.num_offending  # the linear program finds more
    for combination in margins:
        indices = [data.domain.index(n) for n in combination.edge]
        codes = [data.domain[n].code(v) for n, v in zip(combination.edge, combination.levels, strict=True)]
        matches = (data.codes[:, indices] == torch.tensor(codes)).all(1)
        assert float(data.counts[matches].sum()) == 0


def test_minimal_combinations_only():
    domain = Domain.from_cardinalities({"a": 3, "b": 2})
    data = Observations.from_table(domain, [[1, 2], [0, 0], [3, 0]])
    existence = mle_existence(InteractionHypergraph.saturated(domain), data)
    assert [str(c) for c in existence.offending] == ["a=1", "a=2, b=1"]
    assert existence.num_cells_zero == 3


def test_statistics_alone_show_empty_margins_only():
    data = load_table("titanic")
    hypergraph = InteractionHypergraph.from_order(data.domain, 2)
    existence = mle_existence(hypergraph, data.marginal_counts(hypergraph.edges))
    assert (existence.exists, existence.kind, existence.num_cells_zero) == (False, "zero margin", None)
    main = InteractionHypergraph.from_order(data.domain, 1)
    assert mle_existence(main, data.marginal_counts(main.edges)).exists is True  # decomposable
    czech = load_table("czech_autoworkers")
    pairs = InteractionHypergraph.from_order(czech.domain, 2)
    assert mle_existence(pairs, czech.marginal_counts(pairs.edges)).exists is None


def test_bad_input_is_refused():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    hypergraph = InteractionHypergraph.saturated(domain)
    data = Observations(domain, torch.tensor([[0, 1], [1, -1]]))
    with raises("missing-cells", "data"):
        fit(hypergraph, data)
    with raises("other-domain", "data"):
        mle_existence(InteractionHypergraph.saturated(Domain.from_cardinalities({"x": 2})), data)
    with raises("wrong-shape", "structural_zeros"):
        fit(hypergraph, data.drop_missing(), structural_zeros=np.zeros((2, 3), dtype=bool))


# Rows with missing cells


DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
RELATIVE = 1e-10


def random_model(seed, formula="a*b + b*c"):
    """A model with standard normal free parameters."""
    graph = InteractionHypergraph.from_formula(DOMAIN, formula)
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(graph.num_parameters, generator=generator, dtype=torch.float64)
    return LogLinearEnergy.from_theta(graph, theta)


def probabilities(model):
    """Joint table of a small model by enumeration."""
    states = torch.tensor(list(itertools.product(*(range(n) for n in DOMAIN.cardinalities))))
    return torch.softmax(-model.energy(states), 0).reshape(DOMAIN.cardinalities)


ALL_ROWS = torch.tensor(list(itertools.product(range(-1, 2), range(-1, 3), range(-1, 2))))


def expected_rows(table):
    """Log marginal of the known cells of every row of ALL_ROWS."""
    values = []
    for row in ALL_ROWS.tolist():
        part = table
        for axis in reversed(range(3)):
            part = part.sum(axis) if row[axis] < 0 else part.select(axis, row[axis])
        values.append(part.log())
    return torch.stack(values)


@pytest.mark.parametrize("limit", [2**22, 3])
def test_every_pattern_of_missing_cells(limit, monkeypatch):
    """With the limit at 3 the rows that miss more go through the conditioned model instead."""
    monkeypatch.setattr(incomplete, "_MAX_COMPLETIONS", limit)
    model = random_model(0)
    values = row_log_likelihood(model, Observations.from_tensor(ALL_ROWS, DOMAIN))
    assert torch.allclose(values, expected_rows(probabilities(model)), rtol=RELATIVE, atol=1e-12)


@pytest.mark.parametrize("limit", [2**22, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_of_models_and_gradients(limit, dtype, monkeypatch):
    monkeypatch.setattr(incomplete, "_MAX_COMPLETIONS", limit)
    models = [random_model(seed) for seed in range(6)]
    tables = torch.stack([m.tables for m in models]).reshape(2, 3, -1).to(dtype).requires_grad_()
    data = Observations.from_tensor(ALL_ROWS, DOMAIN)
    values = row_log_likelihood(LogLinearEnergy(models[0].hypergraph, tables), data)
    assert values.shape == (len(ALL_ROWS), 2, 3) and values.dtype == dtype
    singles = [m.tables.clone().requires_grad_() for m in models]
    expected = [expected_rows(probabilities(LogLinearEnergy(models[0].hypergraph, t))) for t in singles]
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    assert torch.allclose(values.double(), torch.stack(expected, -1).reshape(-1, 2, 3), atol=tolerance, rtol=0)
    (found,) = torch.autograd.grad(values.sum(), tables)
    gradients = torch.autograd.grad(torch.stack(expected).sum(), singles)
    assert torch.allclose(found.double(), torch.stack(gradients).reshape(2, 3, -1), atol=1e3 * tolerance, rtol=0)
    empty = LogLinearEnergy(models[0].hypergraph, tables[:0])
    assert row_log_likelihood(empty, data).shape == (len(ALL_ROWS), 0, 3)


def test_the_marginal_law_and_an_observed_hole():
    """Without missing cells it is log_prob; a hole in an observed value names what sums over it."""
    law = HierarchicalLogLinear.from_tables(random_model(0).hypergraph, random_model(0).tables, validate_args=True)
    rows = ALL_ROWS[(ALL_ROWS >= 0).all(1)]
    assert torch.allclose(
        row_log_likelihood(law.energy_model, Observations.from_tensor(rows, DOMAIN)), law.log_prob(rows)
    )
    with pytest.raises(InputError, match=r"received -1 at index \(0, 0\).*row_log_likelihood\(law.energy_model"):
        law.log_prob(ALL_ROWS)
    with pytest.raises(InputError, match=r"outside the support$"):
        law.log_prob(ALL_ROWS - 1)


def test_control_a_dropped_interaction_is_seen():
    model = random_model(0)
    other = LogLinearEnergy(model.hypergraph, model.tables.clone())
    other.tables[model.hypergraph.term_slices["a", "b"]] = 0
    values = row_log_likelihood(other, Observations.from_tensor(ALL_ROWS, DOMAIN))
    assert (values - expected_rows(probabilities(model))).abs().max() > 1e-3


def mixed_data(model, total):
    """Exact expected counts of every row of ALL_ROWS when each cell goes missing with probability 0.3."""
    gone = (ALL_ROWS < 0).sum(1).double()
    weights = expected_rows(probabilities(model)).exp() * 0.3**gone * 0.7 ** (3 - gone) * total
    return Observations.from_tensor(ALL_ROWS, DOMAIN, weights=weights)


def test_em_finds_the_law_behind_cells_missing_at_random_and_filling_in_a_level_does_not():
    truth = random_model(3)
    result = fit_incomplete(truth.hypergraph, mixed_data(truth, 1000.0), tolerance=1e-13, max_iterations=2000)
    fitted = LogLinearEnergy(result.hypergraph, result.tables)
    assert torch.allclose(probabilities(fitted), probabilities(truth), atol=1e-5)
    data = mixed_data(truth, 1000.0)
    filled = data.codes.clone()
    filled[filled < 0] = 0
    wrong = fit(truth.hypergraph, Observations.from_tensor(filled, DOMAIN, weights=data.counts))
    assert (probabilities(LogLinearEnergy(wrong.hypergraph, wrong.tables)) - probabilities(truth)).abs().max() > 0.02


def test_em_likelihood_is_that_of_the_observed_cells_and_is_stationary():
    truth = random_model(5)
    data = mixed_data(random_model(6, "a*b*c"), 200.0)
    result = fit_incomplete(truth.hypergraph, data, tolerance=1e-13, max_iterations=2000)
    theta = result.theta.clone().requires_grad_()
    model = LogLinearEnergy.from_theta(truth.hypergraph, theta)
    value = (data.counts * row_log_likelihood(LogLinearEnergy(model.hypergraph, model.tables.detach()), data)).sum()
    assert float(value) == pytest.approx(result.log_likelihood, rel=1e-8)
    for step in torch.eye(len(theta), dtype=torch.float64) * 1e-3:
        moved = LogLinearEnergy.from_theta(truth.hypergraph, theta.detach() + step)
        assert float((data.counts * row_log_likelihood(moved, data)).sum()) <= float(value) + 1e-7


def test_complete_rows_need_no_em():
    data = Observations.from_table(DOMAIN, torch.arange(1, 13).reshape(2, 3, 2).numpy())
    graph = InteractionHypergraph.from_order(DOMAIN, 2)
    assert torch.equal(fit_incomplete(graph, data).theta, fit(graph, data).theta)


def test_refusals_and_status(monkeypatch):
    model = random_model(0)
    data = mixed_data(model, 100.0)
    with pytest.raises(InputError, match="domain"):
        row_log_likelihood(model, Observations.from_tensor(torch.zeros(1, 2).long(), Domain.from_cardinalities([2, 2])))
    law = HierarchicalLogLinear.from_tables(model.hypergraph, model.tables)
    for call in (lambda: row_log_likelihood(law, data), lambda: log_partition(law, "corner")):  # type: ignore[arg-type]
        with pytest.raises(InputTypeError, match=r"a LogLinearEnergy, received .*; pass its \.energy_model"):
            call()
    with pytest.warns(ConvergenceWarning, match="EM stopped after 1 steps"):
        assert fit_incomplete(model.hypergraph, data, max_iterations=1).status == "max_iterations"
    monkeypatch.setattr(incomplete, "_MAX_COMPLETIONS", 10)
    with pytest.raises(IntractableError, match="completed rows"):
        fit_incomplete(model.hypergraph, data)


def test_standard_errors_grow_with_what_is_missing():
    """b is known for 40 of 100 rows: the error of its log odds is that of 40 rows, not of 100."""
    graph = InteractionHypergraph.from_order(DOMAIN.project(["a", "c"]), 1)
    codes = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [0, -1], [1, -1]])
    data = Observations.from_tensor(codes, graph.domain, counts=torch.tensor([10, 10, 10, 10, 30, 30]))
    errors = fit_incomplete(graph, data).standard_errors("corner")
    assert errors.tolist() == pytest.approx([(1 / 50 + 1 / 50) ** 0.5, (1 / 20 + 1 / 20) ** 0.5], rel=1e-6)


@pytest.mark.parametrize("is_empty", [True, False])
def test_em_reaches_the_limit_of_an_infinite_estimate(is_empty):
    """Against the fit that is told of the zero; the control has rows with the combination."""
    domain = Domain.from_cardinalities({"x": 3, "y": 2, "z": 2})
    random = np.random.default_rng(3)
    codes = np.stack([random.integers(0, k, 300) for k in domain.cardinalities], 1)
    if is_empty:
        codes[codes[:, 0] == 1, 1] = 0
    codes[random.choice(300, 30, replace=False), 1] = -1
    rows = Observations.from_tensor(torch.from_numpy(codes), domain)
    graph = InteractionHypergraph(domain, [("x", "y"), ("z",)], closure=True)
    if not is_empty:
        result = fit_incomplete(graph, rows)
        assert result.status == "converged"
        assert result.impossible is None
        return
    with pytest.warns(NonexistentEstimateWarning, match="x=1, y=1"):
        result = fit_incomplete(graph, rows)
    assert result.status == "infinite"
    told = fit_incomplete(graph, rows, structural_zeros=[{"x": 1, "y": 1}])
    np.testing.assert_allclose(result.probs, told.probs, atol=1e-6)
    assert float(result.probs.reshape(3, 2, 2)[1, 1].sum()) == 0
    assert result.log_likelihood == pytest.approx(told.log_likelihood, abs=1e-6)
