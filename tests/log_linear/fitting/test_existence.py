"""Existence of the maximum-likelihood estimate: known cases, and a second linear program as the oracle."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.errors import NonexistentEstimateWarning
from pyro_hoim.log_linear import fit, goodness_of_fit, mle_existence, parametrization
from pyro_hoim.log_linear.fitting import existence as existence_module
from pyro_hoim.log_linear.fitting.design import cell_counts, design_matrix
from pyro_hoim.log_linear.fitting.existence import find_face
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

QUIET = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")


def positive_cells(hypergraph, counts, possible=slice(None)):
    """Possible cells that are positive in some table with the observed margins, one linear program per cell."""
    design = np.column_stack([np.ones(hypergraph.domain.num_states), design_matrix(hypergraph)])[possible]
    counts = counts[possible]
    margins = design.T @ counts
    found = np.zeros(len(counts), dtype=bool)
    for cell in range(len(counts)):
        objective = np.zeros(len(counts))
        objective[cell] = -1
        solution = linprog(objective, A_eq=design.T, b_eq=margins, bounds=(0, None), method="highs")
        found[cell] = -solution.fun > 1e-6
    return found


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


@pytest.mark.parametrize("num_rows", [170, 300])
def test_a_fitted_table_spares_the_program(monkeypatch, num_rows):
    """4,096 cells, most of which the linear program alone would have to decide."""
    domain = Domain.from_cardinalities([8] * 4)
    codes = torch.randint(8, (num_rows, 4), generator=torch.Generator().manual_seed(1))
    data, hypergraph = Observations.from_tensor(codes, domain), InteractionHypergraph.from_order(domain, 2)
    sizes, solve = [], existence_module._recession
    monkeypatch.setattr(existence_module, "_recession", lambda images: [sizes.append(len(images)), solve(images)][1])
    found = mle_existence(hypergraph, data)
    assert not sizes
    monkeypatch.setattr(existence_module, "_shown_positive", lambda *_: np.zeros(0, dtype=np.int64))
    alone = mle_existence(hypergraph, data)
    assert max(sizes) > 2000
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
    # Zeros at two opposite corners of the 2 x 2 x 2 table: all two-way margins are positive, no finite estimate.
    hypergraph, data = no_three_way((0, 0, 0), (1, 1, 1))
    existence = mle_existence(hypergraph, data)
    assert (existence.exists, existence.kind, existence.num_cells_zero, existence.num_parameters_lost) == (
        False, "facial", 2, 1,
    )  # fmt: skip
    assert [str(c) for c in existence.offending] == ["a=0, b=0, c=0", "a=1, b=1, c=1"]
    assert "forced to zero" in existence.describe()
    with pytest.warns(NonexistentEstimateWarning, match="a=0, b=0, c=0"):
        quality = goodness_of_fit(fit(hypergraph, data))
    assert (quality.df, quality.df_adjusted) == (1, 0)


def test_control_zeros_at_other_corners_leave_a_finite_estimate():
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
