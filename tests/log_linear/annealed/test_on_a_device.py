"""Annealed importance sampling on a device: log Z, eta and the verdict against enumeration."""

import numpy as np
import pytest
import torch
from other_device import AWAY, pretend

from pyro_hoim import AnnealedImportance, Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.testing import exact_log_partition, exact_statistics, exact_table, random_tables

GRAPH = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), [("a", "b"), ("b", "c"), ("a", "c")], closure=True
)
TABLES = random_tables(GRAPH, np.random.default_rng(3), batch_shape=(2,), balanced=False)
PLACES = ["away", pytest.param("cuda", marks=pytest.mark.cuda)]


def _estimate(device):
    """Log Z of both models, its error, eta and the verdict."""
    tables = torch.as_tensor(TABLES).to(device).requires_grad_()
    found = AnnealedImportance(num_chains=400, num_temperatures=20, seed=4).log_partition(
        LogLinearEnergy(GRAPH, tables)
    )
    assert found.value.device.type == found.std_error.device.type == torch.device(device).type
    (eta,) = torch.autograd.grad(found.value.sum(), tables)
    return found.value.detach().cpu().numpy(), found.std_error.cpu().numpy(), eta.cpu().numpy(), found.verdict


@pytest.mark.parametrize("where", PLACES)
def test_log_z_eta_and_verdict(where):
    if where == "away":
        with pretend():
            value, error, eta, verdict = _estimate(AWAY)
    else:
        value, error, eta, verdict = _estimate("cuda:0")
    assert verdict in ("verified", "consistent")
    assert (np.abs(value - exact_log_partition(GRAPH, TABLES)) < 5 * error).all() and (error < 0.1).all()
    assert (np.abs(value - exact_log_partition(GRAPH, 1.3 * TABLES)) > 5 * error).all()  # control
    wanted = exact_statistics(GRAPH, exact_table(GRAPH, TABLES))
    np.testing.assert_allclose(eta, wanted, atol=5 * 0.5 / np.sqrt(300))


@pytest.mark.parametrize("where", PLACES)
def test_mean_weight_is_the_ratio_of_constants(where):
    """From exact starts at beta 0 the mean weight of many short runs is Z over Z0, whatever the path."""

    def run(device):
        model = LogLinearEnergy(GRAPH, torch.as_tensor(TABLES).to(device))
        chains = GibbsChains(model, 6000, seed=2, engine="torch")
        return chains.anneal([0.0, 0.3, 0.6, 1.0]).cpu().numpy()

    if where == "away":
        with pretend():
            log_weights = run(AWAY)
    else:
        log_weights = run("cuda:0")
    weights = np.exp(log_weights - exact_log_partition(GRAPH, TABLES)[:, None] + np.log(12))
    error = weights.std(-1) / np.sqrt(6000)
    assert (np.abs(weights.mean(-1) - 1) < 5 * error).all()
    assert (np.abs(1.3 * weights.mean(-1) - 1) > 5 * error).all()  # control
