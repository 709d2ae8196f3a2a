"""Long runs of pseudo-Gibbs chains: estimates against exact laws, and ArviZ."""

import pytest
import torch
from network_oracles import pair, random_network
from scipy.stats import t as student

from pyro_hoim.dependency_network import PseudoGibbsChains, stationary_law
from pyro_hoim.errors import ConvergenceWarning
from pyro_hoim.interop import diagnose_chains
from pyro_hoim.runs import sample_chains
from pyro_hoim.schema import Domain
from pyro_hoim.testing import FALSE_ALARM_RATE

DOMAIN = Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["0", "1"]})
ENGINE = "torch"  # needs no compiler; the engines have tests of their own


def network(seed=0):
    """Every variable reads the two others; no joint law."""
    return random_network(DOMAIN, seed)


def sticky(probability):
    """Two variables that agree with a probability."""
    probs = torch.tensor([[probability, 1 - probability], [1 - probability, probability]], dtype=torch.float64)
    return pair(probs, probs)


def limit(num_batches, num_cells):
    """Standard errors, from that many batches of records, that one of the cells exceeds at the rate of the library."""
    return float(student.isf(FALSE_ALARM_RATE / 2 / num_cells, num_batches - 1))


def test_marginals_are_those_of_the_stationary_law():
    exact = stationary_law(network()).probs
    run = sample_chains(PseudoGibbsChains(network(), 64, edges=[("c", "a")], seed=1, engine=ENGINE), 600, burn_in=40)
    assert run.is_mixed
    for names, axes in (("b", (0, 2)), (("a", "c"), (1,))):
        probs, errors = run.probs(names)
        wanted = exact.sum(axes)
        assert probs.shape == wanted.shape
        assert float(((probs - wanted).abs() / errors).max()) < limit(24, 4)
        assert float(errors.max()) < 0.01
    uniform = torch.full((3,), 1 / 3, dtype=torch.float64)
    probs, errors = run.probs("b")
    assert float(((probs - uniform).abs() / errors).max()) > limit(24, 4)  # control


def test_clamped_runs_estimate_the_law_of_the_clamped_network():
    exact = stationary_law(network(), clamped={"b": "z"}).probs
    run = sample_chains(PseudoGibbsChains(network(), 64, clamped={"b": "z"}, seed=2, engine=ENGINE), 400, burn_in=40)
    probs, errors = run.probs("c")
    assert float(((probs - exact.sum(0)).abs() / errors).max()) < limit(20, 2)
    whole = stationary_law(network()).probs[:, 2]
    assert float(((probs - whole.sum(0) / whole.sum()).abs() / errors).max()) > limit(20, 2)  # not its conditional
    assert run.probs("b")[0].tolist() == [0.0, 0.0, 1.0]


def test_arviz_diagnoses_a_run():
    chains = PseudoGibbsChains(network(), 4, edges=[("a", "c")], seed=3, engine=ENGINE)
    run = sample_chains(chains, 300, burn_in=30, record=("statistics", "draws"))
    report = diagnose_chains(run.chains, run, edges=[("a", "c")])
    assert list(report.index[:4]) == ["a:c[no,0]", "a:c[no,1]", "a:c[yes,0]", "a:c[yes,1]"]
    assert report["r_hat"].max() < 1.05
    assert report[["ess_bulk", "ess_tail"]].min().min() > 200
    assert report.loc["b[x]", "mean"] == pytest.approx(float(run.probs("b")[0][0]), abs=1e-12)


def test_chains_that_do_not_mix_are_found_out():
    init = torch.zeros(64, 2, dtype=torch.long)
    init[:16] = 1
    with pytest.warns(ConvergenceWarning, match="have not mixed; make longer runs, or smooth the conditionals"):
        run = sample_chains(PseudoGibbsChains(sticky(1 - 1e-7), 64, init=init, engine=ENGINE), 100)
    assert run.is_mixed is False
    control = PseudoGibbsChains(sticky(0.6), 64, init=init, engine=ENGINE)
    assert sample_chains(control, 100).is_mixed is True


def test_variables_that_are_all_clamped_are_counted():
    held = sample_chains(PseudoGibbsChains(network(), 3, clamped={"a": 0, "b": 1, "c": 1}, engine=ENGINE), 10)
    assert held.eta.tolist() == [1, 0, 0, 1, 0, 0, 1]
