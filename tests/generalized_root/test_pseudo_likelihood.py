"""The joint pseudo-likelihood against the energy's own, autograd and finite differences."""

import itertools
import math

import numpy as np
import pytest
import torch

from pyro_hoim.errors import InputError, IntractableError
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootPseudoLikelihood,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import raises

FAMILIES = {f.name: f for f in (PoissonFamily(), TruncatedPoissonFamily(4), ExponentialFamily(), GaussianFamily())}


def problem(family, order=3, num_rows=40, d=4, seed=0):
    rng = np.random.default_rng(seed)
    domain = Domain([Variable(name, kind=family.kind) for name in "abcdef"[:d]])
    structure = RootStructure.complete(domain, order)
    scale = np.where([len(names) == 1 and j == 1 for (j, _), names in structure.names], 0.0, 0.05)
    psi = scale * rng.normal(size=structure.num_terms)
    singles = np.array([key == (1, 1) for key, _ in structure.names])
    psi[singles] = -1.5 if family.kind != "count" else 0.3
    rows = rng.poisson(1.0, (num_rows, d)) if family.is_discrete else rng.normal(size=(num_rows, d))
    rows = np.minimum(rows, 4) if family.is_discrete else rows
    rows = np.abs(rows) if family.name == "exponential" else rows
    return structure, torch.from_numpy(rows).double(), psi


def reference(structure, rows, family, psi, weights=None):
    values = GeneralizedRootEnergy(structure, psi, family).log_pseudo_prob(rows)
    return (values if weights is None else weights * values).sum()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_value_and_derivatives_are_those_of_the_energy(name, order):
    family = FAMILIES[name]
    structure, rows, psi = problem(family, order)
    weights = torch.from_numpy(np.random.default_rng(1).integers(0, 4, len(rows))).double()
    found = RootPseudoLikelihood(structure, rows, family, weights)
    point = torch.from_numpy(psi).requires_grad_()
    value = reference(structure, rows, family, point, weights)
    (gradient,) = torch.autograd.grad(value, point)
    assert found.log_prob(psi) == pytest.approx(float(value.detach()), rel=1e-10)
    np.testing.assert_allclose(found.gradient(psi), gradient.numpy(), rtol=1e-8, atol=1e-8)
    together = found.value_and_gradient(psi)
    assert together[0] == found.log_prob(psi)
    np.testing.assert_array_equal(together[1], found.gradient(psi))

    def function(p):
        return reference(structure, rows, family, p, weights)

    hessian = torch.autograd.functional.hessian(function, torch.from_numpy(psi)).numpy()
    np.testing.assert_allclose(found.hessian(psi), hessian, rtol=1e-6, atol=1e-6)
    assert np.linalg.eigvalsh(found.hessian(psi)).max() < 1e-8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_autograd(dtype):
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    found = RootPseudoLikelihood(structure, rows, family)
    point = torch.from_numpy(psi).to(dtype).requires_grad_()
    value = found(point)
    assert (value.shape, value.dtype) == ((), dtype)
    (2 * value).backward()
    wanted = torch.from_numpy(2 * found.gradient(point.detach().double().numpy())).to(dtype)
    torch.testing.assert_close(point.grad, wanted, rtol=0, atol=0)


def test_second_derivatives_of_a_factor_are_those_of_the_hessian():
    family = FAMILIES["poisson"]
    structure, rows, psi = problem(family)
    likelihood = RootPseudoLikelihood(structure, rows, family)
    at = torch.from_numpy(psi)
    found = torch.autograd.functional.hessian(lambda psi: likelihood(psi) - psi @ psi, at)
    np.testing.assert_allclose(found, likelihood.hessian(psi) - 2 * np.eye(len(psi)), rtol=1e-12, atol=1e-10)


def test_row_scores_add_up_to_the_gradient_and_are_those_of_single_rows():
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    found = RootPseudoLikelihood(structure, rows, family)
    scores = found.row_scores(psi)
    np.testing.assert_allclose(found.weights @ scores, found.gradient(psi), rtol=1e-10, atol=1e-10)
    distinct = torch.unique(rows, dim=0)
    assert scores.shape == (len(distinct), structure.num_terms)
    for i in (0, len(distinct) - 1):
        alone = RootPseudoLikelihood(structure, distinct[i : i + 1], family)
        np.testing.assert_allclose(scores[i], alone.gradient(psi), rtol=1e-10, atol=1e-12)
    assert np.abs(scores[0] - scores[-1]).max() > 0.1  # control: rows differ


def test_weights_are_repetitions():
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    counts = torch.arange(len(rows)) % 3
    repeated = RootPseudoLikelihood(structure, rows.repeat_interleave(counts, 0), family)
    weighted = RootPseudoLikelihood(structure, rows, family, counts.double())
    assert weighted.weights.sum() == repeated.weights.sum() == float(counts.sum())
    assert weighted.log_prob(psi) == pytest.approx(repeated.log_prob(psi), rel=1e-12)
    assert len(weighted.weights) == len(torch.unique(rows, dim=0))


def test_many_terms_are_split_into_pieces(monkeypatch):
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    whole = RootPseudoLikelihood(structure, rows, family).gradient(psi)
    monkeypatch.setattr("pyro_hoim.generalized_root.pseudo_likelihood._CHUNK_CELLS", 50)
    np.testing.assert_allclose(RootPseudoLikelihood(structure, rows, family).gradient(psi), whole, rtol=1e-12)


def test_small_cases():
    family = PoissonFamily()
    domain = Domain([Variable("a", kind="count")])
    one = RootPseudoLikelihood(RootStructure.independent(domain), torch.tensor([[2.0]]), family)
    assert one.log_prob(np.zeros(1)) == pytest.approx(-1 - math.log(2), abs=1e-12)
    assert one.hessian(np.zeros(1)).tolist() == [[pytest.approx(-1.0)]]
    empty = RootPseudoLikelihood(RootStructure.independent(domain), torch.zeros(0, 1), family)
    assert empty.log_prob(np.zeros(1)) == 0.0
    assert empty.gradient(np.zeros(1)).tolist() == [0.0]
    assert empty.row_scores(np.zeros(1)).shape == (0, 1)
    assert empty.hessian(np.zeros(1)).tolist() == [[0.0]]
    no_terms = RootPseudoLikelihood(RootStructure(domain, {}), torch.tensor([[2.0]]), family)
    assert no_terms.log_prob(np.zeros(0)) == pytest.approx(-1 - math.log(2), abs=1e-12)
    assert no_terms.gradient(np.zeros(0)).shape == (0,)


def test_where_there_is_no_law():
    family = ExponentialFamily()
    domain = Domain([Variable(name, kind="positive") for name in "ab"])
    structure = RootStructure.simplified(domain, list(itertools.combinations("ab", 2)))
    found = RootPseudoLikelihood(structure, torch.tensor([[1.0, 2.0]]), family)
    psi = np.array([0.5, -1.0, 0.0])
    assert found.log_prob(psi) == -math.inf
    assert found.value_and_gradient(psi)[0] == -math.inf
    for method in (found.gradient, found.hessian, found.row_scores):
        with pytest.raises(InputError, match="conditional of 'a' given the rest of distinct row 0"):
            method(psi)


def test_too_much_memory_is_refused_with_the_numbers():
    domain = Domain([Variable(f"v{i}", kind="count") for i in range(40)])
    structure = RootStructure.simplified(domain, list(itertools.combinations(domain.names, 2)))
    rows = torch.arange(200_000.0)[:, None].expand(-1, 40)
    with pytest.raises(IntractableError, match=r"200000 distinct rows and 820 terms need .* bytes .*the limit is"):
        RootPseudoLikelihood(structure, rows, PoissonFamily())


def test_wrong_arguments():
    family = PoissonFamily()
    structure, rows, psi = problem(family)
    for code, argument, *arguments in (
        ("wrong-type", "structure", "ab", rows, family),
        ("wrong-type", "rows", structure, rows.numpy(), family),
        ("wrong-type", "family", structure, rows, "poisson"),
        ("wrong-shape", "rows", structure, rows[:, :3], family),
        ("wrong-shape", "rows", structure, rows[0], family),
        ("out-of-range", "rows", structure, rows - 5, family),
        ("wrong-type", "weights", structure, rows, family, [1.0] * len(rows)),
        ("wrong-shape", "weights", structure, rows, family, torch.ones(3)),
        ("out-of-range", "weights", structure, rows, family, -torch.ones(len(rows))),
    ):
        with raises(code, argument):
            RootPseudoLikelihood(*arguments)
    found = RootPseudoLikelihood(structure, rows, family)
    with raises("wrong-type", "psi"):
        found(torch.ones(len(psi), dtype=torch.long))
    with raises("wrong-shape", "psi"):
        found.log_prob(psi[:-1])
