"""The printed tables of paper 3, and what a fit of its counts gives exactly."""

import numpy as np
import pytest
import torch

from pyro_hoim.datasets import load_table
from pyro_hoim.errors import InputError
from pyro_hoim.log_linear import HierarchicalLogLinear, Stopping, SymmetricInteractionTensor, fit
from pyro_hoim.log_linear.constrained.losses import PseudoLikelihoodLoss
from pyro_hoim.structure import InteractionHypergraph

DATA = load_table("three_features")
PRINTED = [-3.6605, 1.4626, 0.7821, -0.4238, 1.1982, -0.8032]  # below table 1.2: q of X, Y, Z, XY, XZ, YZ
OPTIMUM = [-3.6612, 1.4631, 0.7823, -0.4238, 1.1981, -0.8035]
EMPIRICAL = [0.0983, 0.2105, 0.4172, 0.1849, 0.0011, 0.0612, 0.0060, 0.0208]  # table 1.3, Z fastest
FITTED = [0.0969, 0.2119, 0.4185, 0.1835, 0.0025, 0.0599, 0.0046, 0.0222]


@pytest.fixture(scope="module")
def tensor():
    pairs = InteractionHypergraph.from_order(DATA.domain, 2)
    result = fit(pairs, DATA, objective="pseudo-likelihood", stopping=Stopping(tolerance=1e-9))
    return SymmetricInteractionTensor.from_law(HierarchicalLogLinear(pairs, result.theta))


def test_table_1_2(tensor):
    np.testing.assert_allclose(tensor.entries, OPTIMUM, rtol=0, atol=1e-4)
    np.testing.assert_allclose(tensor.entries, PRINTED, rtol=0, atol=1e-3)
    assert not np.allclose(tensor.entries, PRINTED, rtol=0, atol=1e-4)  # the print stopped short of the optimum
    loss = PseudoLikelihoodLoss(DATA, 2)
    assert np.abs(loss.value_and_gradient(tensor.theta.numpy())[1]).max() < 1e-8
    printed = tensor.layout.multiplicity * np.array(PRINTED)
    assert np.abs(loss.value_and_gradient(printed)[1]).max() > 1e-6  # the control
    assert torch.equal(tensor.dense, tensor.dense.mT)


def test_table_1_3(tensor):
    np.testing.assert_allclose(DATA.table().flatten() / DATA.total_count, EMPIRICAL, rtol=0, atol=1e-12)
    probs = tensor.law().log_prob_table.exp().flatten()
    np.testing.assert_allclose(probs, FITTED, rtol=0, atol=1e-4)
    assert np.abs(probs.numpy() - EMPIRICAL).max() > 1e-3


def test_the_paper_s_node_conditional_of_order_2(tensor):
    """Section 1.2.2: twice the row of Q less its diagonal."""
    x = torch.tensor([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    q = tensor.dense
    for r in range(3):
        literal = [q[r, r] + 2 * sum(q[r, j] * row[j] for j in range(3) if j != r) for row in x]
        torch.testing.assert_close(tensor.node_logits(x)[:, r], torch.stack(literal), rtol=1e-12, atol=1e-12)


def test_tables_of_more_levels_have_no_tensor():
    titanic = load_table("titanic")
    graph = InteractionHypergraph.from_order(titanic.domain, 1)
    law = HierarchicalLogLinear(graph, torch.zeros(graph.num_parameters))
    with pytest.raises(InputError, match="law: expected binary variables, received 'Class' with 4 levels"):
        SymmetricInteractionTensor.from_law(law)
