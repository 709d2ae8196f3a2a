"""H, I and J of many sets of variables: against brute force, closed forms and published estimators."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyro_hoim.data import InformationTable, Observations, information
from pyro_hoim.schema import Domain
from pyro_hoim.testing import assert_close, raises

ABC = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})


def subsets(names, smallest=1):
    return [s for k in range(smallest, len(names) + 1) for s in itertools.combinations(names, k)]


def brute_entropy(probs, axes):
    """Entropy of a marginal law, cell by cell."""
    marginal = probs.sum(tuple(a for a in range(probs.ndim) if a not in axes)).ravel().tolist()
    return -math.fsum(p * math.log(p) for p in marginal if p > 0)


def brute_j(probs, axes):
    """Equation (3), term by term."""
    total = 0.0
    for k in range(1, len(axes) + 1):
        for part in itertools.combinations(axes, k):
            divergence = sum(math.log(probs.shape[a]) for a in part) - brute_entropy(probs, part)
            total += (-1) ** (len(axes) - k) * divergence
    return total


def random_data(seed, sizes, rows):
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities(dict(zip("abcdefgh", sizes, strict=False)))
    codes = np.stack([rng.integers(0, n, rows) for n in sizes], 1)
    codes[:, -1] = (codes.sum(1) + rng.integers(0, 2, rows)) % sizes[-1]
    return Observations.from_tensor(torch.from_numpy(codes), domain, rng.integers(1, 4, rows))


def xor():
    return Observations.from_tensor(torch.tensor([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]), ABC)


# Closed forms


def test_exclusive_or_of_figure_1():
    table = InformationTable(xor())
    log2 = math.log(2)
    sets = subsets(ABC.names)
    assert_close(table.entropy(sets), [log2] * 3 + [2 * log2] * 4)
    assert_close(table.mutual_information(sets), [log2] * 3 + [0.0] * 3 + [-log2])
    assert_close(table.interaction_information(sets), [0.0] * 6 + [log2])
    assert_close(table.divergence(sets), [0.0] * 6 + [log2])


def test_copies_share_all_their_information():
    data = Observations.from_tensor(torch.tensor([[0] * 6, [1] * 6]), Domain.from_cardinalities([2] * 6))
    table = InformationTable(data)
    for order in range(2, 7):
        edge = data.domain.names[:order]
        assert_close(table.mutual_information([edge]), [math.log(2)])
        assert_close(table.interaction_information([edge]), [(-1) ** order * math.log(2)])


def test_single_variables_have_the_divergence_from_the_uniform_law():
    data = Observations.from_table(Domain.from_cardinalities({"a": 4}), [5, 0, 2, 1])
    p = np.array([5, 2, 1]) / 8
    expected = float((p * np.log(p * 4)).sum())
    table = InformationTable(data)
    assert_close(table.interaction_information([("a",)]), [expected])
    assert_close(table.divergence([("a",)]), [expected])


@settings(max_examples=60)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 40), st.integers(0, 10**6))
def test_agrees_with_brute_force(sizes, rows, seed):
    data = random_data(seed, sizes, rows)
    probs = (data.table() / data.total_count).numpy()
    sets = subsets(data.domain.names)
    axes = [data.domain.indices(s) for s in sets]
    table = InformationTable(data)
    assert_close(table.entropy(sets), [brute_entropy(probs, a) for a in axes])
    assert_close(table.interaction_information(sets), [brute_j(probs, a) for a in axes])
    larger = [s for s in sets if len(s) > 1]
    if larger:
        signs = torch.tensor([(-1.0) ** len(s) for s in larger], dtype=torch.float64)
        assert_close(table.interaction_information(larger), signs * table.mutual_information(larger))


def test_sets_of_six_variables_of_many_levels_use_rows_not_cells():
    data = random_data(3, [50] * 8, 300)  # 50^6 = 1.6e10 cells
    table = InformationTable(data)
    for edge in (data.domain.names[:6], data.domain.names[2:]):
        _, counts = np.unique(
            np.repeat(data.codes[:, list(data.domain.indices(edge))].numpy(), data.counts.numpy().astype(int), axis=0),
            axis=0,
            return_counts=True,
        )
        p = counts / counts.sum()
        assert_close(table.entropy([edge]), [-(p * np.log(p)).sum()])
    expected = -math.fsum((-1.0) ** (6 - len(s)) * data.entropy(s) for s in subsets(data.domain.names[:6]))
    assert_close(table.interaction_information([data.domain.names[:6]]), [expected], absolute=1e-12)


def test_large_sets_of_many_variables_whose_keys_do_not_fit_an_integer():
    rng = np.random.default_rng(0)
    data = Observations.from_tensor(
        torch.from_numpy(rng.integers(0, 2, (20, 600))), Domain.from_cardinalities([2] * 600)
    )
    names = data.domain.names
    sets = [names[256:264], names[:8], names[-8:], names[248:256], tuple(names[i] for i in range(0, 512, 64))]
    table = InformationTable(data)
    assert_close(table.entropy(sets), [data.entropy(s) for s in sets])


def test_neither_order_of_sets_nor_of_queries_matters():
    data = random_data(5, [2, 3, 4, 2, 3], 60)
    sets = subsets(data.domain.names)
    expected = InformationTable(data).interaction_information(sets)
    order = np.random.default_rng(1).permutation(len(sets))
    table = InformationTable(data)
    for i in order:  # one by one, names reversed
        assert_close(table.interaction_information([sets[i][::-1]]), expected[i : i + 1])
    assert_close(table.interaction_information([sets[i] for i in order]), expected[order])
    assert_close(table.interaction_information([sets[3], sets[3]]), expected[[3, 3]])


def test_sets_looked_at_in_pieces_have_the_same_values(monkeypatch):
    codes = torch.from_numpy(np.random.default_rng(3).integers(0, 2, (200, 6)))
    rows = Observations(Domain.from_cardinalities([2] * 6), codes)
    sets = subsets(rows.domain.names)[::-1]
    whole = InformationTable(rows).interaction_information(sets)
    monkeypatch.setattr(information, "_SETS_PER_CALL", 4)
    assert torch.equal(InformationTable(rows).interaction_information(sets), whole)


def test_relabelling_and_reordering_change_nothing():
    data = random_data(7, [3, 3, 3, 2], 80)
    sets = subsets(data.domain.names)
    expected = InformationTable(data).interaction_information(sets)
    names = ["d", "b", "a", "c"]
    codes = data.codes[:, [3, 1, 0, 2]].clone()
    codes[:, 1] = torch.tensor([2, 0, 1])[codes[:, 1]]
    other = Observations(Domain.from_cardinalities({n: data.domain[n].cardinality for n in names}), codes, data.counts)
    assert_close(InformationTable(other).interaction_information(sets), expected)


def test_dense_laws_enter_as_weights():
    probs = np.random.default_rng(2).dirichlet(np.ones(24)).reshape(2, 3, 4)
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 4})
    table = InformationTable(Observations.from_table(domain, weights=probs))
    sets = subsets(domain.names)
    assert_close(table.interaction_information(sets), [brute_j(probs, domain.indices(s)) for s in sets])


def test_mobius_inversion_gives_the_divergence_back_and_a_wrong_sign_does_not():
    table = InformationTable(random_data(11, [2, 3, 2, 4], 50))
    sets = subsets(table.data.domain.names)
    whole = float(table.divergence([table.data.domain.names]))
    assert_close(table.interaction_information(sets).sum(), whole)
    wrong = table.mutual_information(sets).sum()  # I in place of J
    with pytest.raises(AssertionError):
        assert_close(wrong, whole)


# Corrections


def test_miller_madow_adds_half_the_free_cells_over_the_count():
    data = random_data(13, [3, 4, 2], 25)
    sets = subsets(data.domain.names)
    plain, corrected = InformationTable(data), InformationTable(data, correction="miller-madow")
    cells = torch.tensor([len(data.project(s).unique().counts) for s in sets], dtype=torch.float64)
    assert_close(corrected.entropy(sets), plain.entropy(sets) + (cells - 1) / (2 * data.total_count))


def test_the_correction_removes_most_of_the_bias_of_sparse_pairs():
    """Independent uniform pairs of 6 x 6 levels, 180 rows: J is 0; the plug-in is high by about 25 / 360."""
    rng = np.random.default_rng(19)
    domain = Domain.from_cardinalities([6] * 30)
    data = Observations.from_tensor(torch.from_numpy(rng.integers(0, 6, (180, 30))), domain)
    pairs = list(itertools.combinations(domain.names, 2))
    plain = InformationTable(data).interaction_information(pairs)
    corrected = InformationTable(data, correction="miller-madow").interaction_information(pairs)
    assert abs(float(plain.mean()) - 25 / 360) < 0.01 and abs(float(corrected.mean())) < 0.3 * float(plain.mean())


def test_the_correction_vanishes_with_many_counts():
    domain = Domain.from_cardinalities({"a": 2, "b": 3})
    data = Observations.from_table(domain, np.array([[300_000, 100_000, 200_000], [100_000, 250_000, 50_000]]))
    sets = subsets(domain.names)
    found = InformationTable(data, correction="miller-madow").interaction_information(sets)
    assert_close(found, InformationTable(data).interaction_information(sets), absolute=1e-5)


# Arguments


def made(codes, counts=None):
    return Observations(ABC, torch.tensor(codes).reshape(-1, 3), None if counts is None else torch.tensor(counts))


WEIGHTS = Observations.from_table(ABC, weights=np.full((2, 2, 2), 0.125))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: InformationTable(made([[0, 1, -1]])), "missing-cells"),
        (lambda: InformationTable(made([[0, 0, 0]]).rows(torch.zeros(1, dtype=torch.bool))), "empty"),
        (lambda: InformationTable(made([[0, 0, 0]], [0.0])), "empty"),
        (lambda: InformationTable(torch.zeros(2, 2)), "wrong-type"),
        (lambda: InformationTable(xor(), correction="jackknife"), "unknown-choice"),
        (lambda: InformationTable(WEIGHTS, correction="miller-madow"), "conflict"),
        (lambda: InformationTable(xor()).entropy([("a", "z")]), "unknown-name"),
        (lambda: InformationTable(xor()).entropy([("a", "a")]), "repeated-name"),
    ],
)
def test_wrong_arguments_are_refused(call, code):
    with raises(code):
        call()


def test_empty_set_and_no_sets():
    table = InformationTable(xor())
    assert (table.entropy([()]).tolist(), table.interaction_information([(), ("a", "b", "c")])[0]) == ([0.0], 0)
    assert table.entropy([]).shape == (0,)
    assert "entropies known" in repr(table)
