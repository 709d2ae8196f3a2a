"""The kernel of generalized root models: its law, Pyro's contract, ArviZ, processes and bad input."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import MCMC

from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.generalized_root import ExponentialFamily, GeneralizedRootEnergy, RootStructure, TruncatedPoissonFamily
from pyro_hoim.inference import RootGibbs, run_mcmc
from pyro_hoim.interop import choose_backend, get_group, to_arviz
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import assert_close, assert_exact_law, required_draws

LEVELS = 3
STATES = np.array(list(itertools.product(range(LEVELS), repeat=3)), dtype=np.float64)


def model(seed: int = 0) -> GeneralizedRootEnergy:
    domain = Domain([Variable(name, kind="count") for name in "abc"])
    structure = RootStructure.complete(domain, 3)
    psi = 0.4 * torch.randn(structure.num_terms, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return GeneralizedRootEnergy(structure, psi, TruncatedPoissonFamily(LEVELS - 1))


def law() -> np.ndarray:
    return torch.softmax(-model().energy(torch.from_numpy(STATES)), 0).numpy()


def run(kernel: RootGibbs, num_draws: int = 30, **options: Any) -> MCMC:
    mcmc = MCMC(kernel, num_samples=num_draws, warmup_steps=5, disable_progbar=True, **options)
    mcmc.run()
    return mcmc


def counts_after(energy: GeneralizedRootEnergy, seed: int) -> np.ndarray:
    size = required_draws(len(STATES), 0.05)
    start = STATES[np.random.default_rng(seed).choice(len(STATES), size, p=law())]
    many = RootGibbs(energy).with_chains(size)
    pyro.set_rng_seed(seed)
    many.initial_params = {"x": torch.from_numpy(start)}
    many.setup(0)
    values = many.sample(many.initial_params)["x"].long().numpy()
    return np.bincount(np.ravel_multi_index(values.T, (LEVELS,) * 3), minlength=len(STATES))


def test_one_transition_keeps_the_law() -> None:
    assert_exact_law(counts_after(model(), 1), law())


def test_negative_control_one_transition_of_another_model() -> None:
    with pytest.raises(AssertionError):
        assert_exact_law(counts_after(model(seed=5), 1), law())


def test_pyro_runs_one_chain_and_arviz_reads_it() -> None:
    pyro.set_rng_seed(0)
    mcmc = run(RootGibbs(model(), num_sweeps=2, clamped={"b": 1}))
    draws = mcmc.get_samples()["x"]
    assert draws.shape == (30, 3) and draws.dtype == torch.float64
    assert bool((draws[:, 1] == 1).all())
    found = mcmc.diagnostics()
    assert_close(
        torch.tensor(found["sample_stats"]["chain 0"]["log_q"], dtype=torch.float64),
        -model().energy(draws),
        relative=1e-9,
    )
    assert get_group(to_arviz(mcmc), "posterior")["x"].shape == (1, 30, 3)
    pyro.set_rng_seed(0)
    assert torch.equal(run(RootGibbs(model(), num_sweeps=2, clamped={"b": 1})).get_samples()["x"], draws)


def test_many_chains_as_one_tensor_and_arviz_summarises_them() -> None:
    found = run_mcmc(RootGibbs(model()), 200, burn_in=10, num_chains=4, seed=2, progress=False)
    draws = found.samples["x"]
    assert draws.shape == (4, 200, 3)
    assert_close(found.sample_stats["log_q"], -model().energy(draws), relative=1e-9)
    table = choose_backend().stats.summary(to_arviz(found))
    assert len(table) == 3
    assert float(table["r_hat"].astype(float).max()) < 1.1


def test_reals() -> None:
    domain = Domain([Variable(name, kind="positive") for name in "ab"])
    structure = RootStructure.simplified(domain, [("a", "b")])
    energy = GeneralizedRootEnergy(
        structure, torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64), ExponentialFamily()
    )
    pyro.set_rng_seed(3)
    draws = run(RootGibbs(energy)).get_samples()["x"]
    assert bool((draws > 0).all()) and len(torch.unique(draws)) == 60


def test_a_kernel_is_pickled_without_its_chain() -> None:
    kernel = RootGibbs(model(), clamped={"a": 2})
    kernel.setup(0)
    copy = pickle.loads(pickle.dumps(kernel))
    with pytest.raises(InputError, match="no chain is set up"):
        copy.sample({"x": torch.zeros(3)})
    copy.setup(0)
    assert float(copy.sample(copy.initial_params)["x"][0]) == 2


def test_values_from_elsewhere_move_the_chain_but_not_what_is_given() -> None:
    kernel = RootGibbs(model(), clamped={"c": 1.0})
    kernel.initial_params = {"x": torch.zeros(3)}
    kernel.setup(0)
    assert kernel.initial_params["x"].tolist() == [0.0, 0.0, 1.0]
    assert float(kernel.sample({"x": torch.full((3,), 2.0)})["x"][2]) == 1.0
    with pytest.raises(InputError):
        kernel.sample({"x": torch.full((3,), 0.5)})
    kernel.cleanup()


def test_bad_input() -> None:
    with pytest.raises(InputTypeError, match="GeneralizedRootEnergy"):
        RootGibbs("model")  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="clamped"):
        RootGibbs(model(), clamped=["a"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="num_sweeps"):
        RootGibbs(model(), num_sweeps=0)
    with pytest.raises(InputError, match="takes no arguments"):
        RootGibbs(model()).setup(0, 1)
    with pytest.raises(InputError, match="'x' alone"):
        RootGibbs(model()).initial_params = {"y": torch.zeros(3)}
