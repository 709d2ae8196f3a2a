"""The pseudo-Gibbs kernel: its law, Pyro's contract, ArviZ, processes and bad input."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import MCMC
from scipy.stats import norm

from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    TableConditional,
    cyclic_laws,
    stationary_law,
)
from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.inference import PseudoGibbs, run_mcmc
from pyro_hoim.interop import diagnose_chains, get_group, to_arviz
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    count_states,
    enumerate_codes,
    required_draws,
)

DOMAIN = Domain.from_labels({"a": ["no", "yes"], "b": ["low", "mid", "high"], "c": ["off", "on"]})
STATES = enumerate_codes(DOMAIN.cardinalities)
WEIGHTS = {"a": 0.2, "b": 0.5, "c": 0.3}


def network(seed: int = 0) -> DependencyConditionals:
    rng = np.random.default_rng(seed)
    graph = DecisionGraph(DOMAIN, "b").split(0, "a").split(0, "c").merge(0, 2)
    return DependencyConditionals(
        [
            TableConditional(DOMAIN, "a", ["b", "c"], torch.from_numpy(rng.dirichlet([1.0] * 2, (3, 2)))),
            LeafConditional(graph, torch.from_numpy(rng.dirichlet([1.0] * 3, graph.num_leaves))),
            TableConditional(DOMAIN, "c", ["a"], torch.from_numpy(rng.dirichlet([1.0] * 2, 2))),
        ]
    )


def kernel_of(seed: int = 0, **options: Any) -> PseudoGibbs:
    """A kernel that needs no compiler; the engines have tests of their own."""
    return PseudoGibbs(network(seed), **{"engine": "torch", **options})


def run(kernel: PseudoGibbs, num_draws: int = 30, **options: Any) -> MCMC:
    mcmc = MCMC(kernel, num_samples=num_draws, warmup_steps=5, disable_progbar=True, **options)
    mcmc.run()
    return mcmc


def counts_after(kernel: PseudoGibbs, law: np.ndarray, seed: int) -> np.ndarray:
    """States after one transition of many chains from a law."""
    size = required_draws(len(STATES), 0.05)
    start = STATES[np.random.default_rng(seed).choice(len(STATES), size, p=law)]
    many = kernel.with_chains(size)
    pyro.set_rng_seed(seed)
    many.initial_params = {"x": torch.from_numpy(start)}
    many.setup(0)
    return count_states(many.decode(many.sample(many.initial_params))["x"], DOMAIN.cardinalities)


# The law


def test_one_transition_keeps_the_stationary_law_of_the_random_scan() -> None:
    law = stationary_law(network(), scan=WEIGHTS).probs.numpy().reshape(-1)
    counts = counts_after(kernel_of(scan=WEIGHTS, num_sweeps=2), law, 1)
    assert_exact_law(counts, law)
    other = stationary_law(network(), scan={"a": 0.8, "b": 0.1, "c": 0.1}).probs.numpy().reshape(-1)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, other)


def test_one_transition_keeps_the_law_after_the_last_variable_of_a_sequential_scan() -> None:
    laws = cyclic_laws(network(), ["b", "a", "c"])
    law = laws.after("c").numpy().reshape(-1)
    counts = counts_after(kernel_of(scan=["b", "a", "c"]), law, 2)
    assert_exact_law(counts, law)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, laws.after("b").numpy().reshape(-1))


def test_clamped_variables_stay_and_the_rest_follows_the_clamped_network() -> None:
    law = stationary_law(network(), clamped={"b": "high"}).probs.numpy().reshape(-1)
    whole = np.zeros(DOMAIN.cardinalities)
    whole[:, 2] = law.reshape(2, 2)
    counts = counts_after(kernel_of(clamped={"b": "high"}), whole.reshape(-1), 3)
    assert_exact_law(counts, whole.reshape(-1))
    joint = stationary_law(network()).probs.numpy()[:, 2]
    wrong = np.zeros(DOMAIN.cardinalities)
    wrong[:, 2] = joint / joint.sum()
    with pytest.raises(AssertionError):
        assert_exact_law(counts, wrong.reshape(-1))


def test_a_move_from_outside_is_the_start_of_the_next_transition() -> None:
    kernel = kernel_of(clamped={"a": "yes", "b": 2})
    kernel.setup(0)
    params = kernel.initial_params
    params["x"][...] = 0  # in place, clamped variables too
    assert kernel.sample(params)["x"][:2].tolist() == [1, 2]
    with pytest.raises(InputError, match="states: expected whole numbers from 0 to 1, received 7"):
        kernel.sample({"x": torch.tensor([0.0, 0.0, 7.0])})


# Pyro's contract


def test_in_pyro_mcmc_everything_works(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_of()
    pyro.set_rng_seed(1)
    mcmc = run(kernel)
    mcmc.summary()
    assert "x[0]" in capsys.readouterr().out
    diagnostics = mcmc.diagnostics()
    assert diagnostics["divergences"] == {"chain 0": []}
    assert diagnostics["x"]["r_hat"].shape == (3,)
    draws = mcmc.get_samples(group_by_chain=True)["x"]
    assert draws.shape == (1, 30, 3)
    assert draws.dtype == torch.float32
    codes = kernel.decode(mcmc.get_samples())["x"]
    assert codes.dtype == torch.long
    recorded = torch.tensor(diagnostics["sample_stats"]["chain 0"]["log_pseudo_prob"], dtype=torch.float64)
    assert_close(recorded, network().log_pseudo_prob(codes), relative=1e-12)
    assert json.loads(json.dumps(kernel.logging())) == {}
    pickle.loads(pickle.dumps(mcmc))


def test_arviz_takes_a_run_of_many_chains_with_its_diagnostics() -> None:
    drawn = run_mcmc(kernel_of(), 300, burn_in=20, num_chains=4, seed=2, progress=False)
    assert drawn.samples["x"].shape == (4, 300, 3)
    assert drawn.samples["x"].dtype == torch.long
    assert drawn.num_divergences == 0
    assert_close(drawn.sample_stats["log_pseudo_prob"], network().log_pseudo_prob(drawn.samples["x"]), relative=1e-12)
    for backend in ("arviz", "arviz_base"):
        data = to_arviz(drawn, backend=backend)
        assert get_group(data, "posterior")["x"].dtype == np.int64
        assert get_group(data, "sample_stats")["log_pseudo_prob"].shape == (4, 300)
    hypergraph = InteractionHypergraph.from_order(DOMAIN, 1)
    report = diagnose_chains(hypergraph, drawn.samples["x"], edges="all")
    assert report.max_r_hat is not None and report.max_r_hat < 1.05
    assert report.min_ess is not None and report.min_ess > 200
    law = stationary_law(network()).probs
    gaps, controls = [], []
    for i, variable in enumerate(DOMAIN):
        marginal = law.sum([j for j in range(3) if j != i])
        for label, probability in zip(variable.labels, marginal.tolist(), strict=True):
            row = report[f"{variable.name}[{label}]"]
            assert row.mcse_mean is not None
            gaps.append(abs(row.mean - probability) / row.mcse_mean)
            controls.append(abs(row.mean - 1 / variable.cardinality) / row.mcse_mean)
    assert max(gaps) < norm.isf(FALSE_ALARM_RATE / 2 / 7) < max(controls)  # the control: uniform levels


def test_the_global_seed_reproduces_and_setup_resets() -> None:
    kernel, drawn = kernel_of(), []
    for seed in (1, 1, 2):
        pyro.set_rng_seed(seed)
        drawn.append(run(kernel).get_samples()["x"])
        assert len(kernel.diagnostics()["sample_stats"]["log_pseudo_prob"]) == 30
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    pyro.set_rng_seed(1)
    assert torch.equal(run(pickle.loads(pickle.dumps(kernel))).get_samples()["x"], drawn[0])


def test_initial_values_are_taken_and_let_go() -> None:
    kernel = kernel_of(clamped={"a": 1})
    kernel.initial_params = {"x": torch.tensor([0, 2, 1])}
    kernel.setup(0)
    assert kernel.initial_params["x"].tolist() == [1, 2, 1]
    kernel.cleanup()
    kernel.initial_params = None
    kernel.setup(0)
    assert kernel.initial_params["x"][0] == 1


def test_a_law_with_conditionals_is_taken_too() -> None:
    kernel = PseudoGibbs(SimpleNamespace(conditionals=network()), engine="torch")  # type: ignore[arg-type]
    assert kernel.conditionals.domain == DOMAIN


# Bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_sweeps": 0}, InputError, "num_sweeps: expected a whole number from 1"),
        ({"num_sweeps": True}, InputError, "num_sweeps: expected a whole number from 1"),
        ({"num_chains": 0}, InputError, "num_chains: expected a whole number from 1"),
        ({"clamped": [1]}, InputTypeError, "clamped: expected a mapping"),
        ({"conditionals": 3}, InputTypeError, "conditionals: expected DependencyConditionals, received int"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PseudoGibbs(**{"conditionals": network(), **options})


@pytest.mark.parametrize(
    ("options", "start", "error", "message"),
    [
        ({"clamped": {"d": 1}}, None, UnknownNameError, "'d'"),
        ({"clamped": {"b": 3}}, None, InputError, "0 to 2"),
        ({"engine": "gpu"}, None, InputError, "engine: expected"),
        ({"scan": "cyclic"}, None, InputError, "scan: expected"),
        ({"scan": ["a"]}, None, InputError, "scan: expected every free variable"),
        ({"scan": {**WEIGHTS, "a": 0.0}}, None, InputError, "scan"),
        ({}, {"x": torch.zeros(4)}, InputError, "init: expected shape"),
        ({}, {"x": torch.tensor([0.0, 5.0, 0.0])}, InputError, "whole numbers from 0 to 2"),
    ],
)
def test_bad_values_at_setup(
    options: dict[str, Any], start: dict[str, torch.Tensor] | None, error: type[Exception], message: str
) -> None:
    kernel = kernel_of(**options)
    kernel.initial_params = start
    with pytest.raises(error, match=message):
        kernel.setup(0)


def test_misuse_is_told() -> None:
    kernel = kernel_of()
    with pytest.raises(InputError, match=r"call setup\(\) first"):
        kernel.sample({"x": torch.zeros(3)})
    with pytest.raises(InputError, match=r"call setup\(\) first"):
        _ = kernel.initial_params
    with pytest.raises(InputError, match="a dependency network takes no arguments"):
        kernel.setup(0, 1)
    with pytest.raises(InputTypeError, match="initial_params"):
        kernel.initial_params = [1]  # type: ignore[assignment]
    with pytest.raises(InputError, match=r"expected values of 'x' alone, received \['y'\]"):
        kernel.initial_params = {"y": torch.zeros(3)}
    with pytest.raises(InputError, match="samples: expected whole numbers"):
        kernel.decode({"x": torch.tensor([0.5])})
    copies = torch.eye(2)
    pair = Domain.from_cardinalities({"a": 2, "b": 2})
    split = DependencyConditionals(
        [TableConditional(pair, "a", ["b"], copies), TableConditional(pair, "b", ["a"], copies)]
    )
    with pytest.raises(InputError, match="cannot go between a=0, b=0; a=1, b=1"):
        PseudoGibbs(split).setup(0)
