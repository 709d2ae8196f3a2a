"""Integers of NumPy are integers wherever an option is a whole number, also where a checkpoint keeps it."""

import warnings

import numpy as np
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError, is_whole
from pyro_hoim.log_linear import GibbsChains

DOMAIN = hoim.Domain.from_cardinalities([2, 3, 2])
ROWS = hoim.Observations.from_table(DOMAIN, torch.arange(1, 13).reshape(2, 3, 2))
PAIRS = hoim.InteractionHypergraph.from_order(DOMAIN, 2)
COUNTS = [[2, 1], [0, 0], [1, 3], [3, 2], [0, 1], [4, 2]]


def model():
    return hoim.LogLinearEnergy(PAIRS, torch.zeros(PAIRS.num_terms))


def search(n, folder):
    trainer = hoim.log_linear.ExactTrainer(ROWS, hoim.InteractionHypergraph.from_order(DOMAIN, 1))
    options = {"per_round": n, "max_order": n, "max_rounds": n, "patience": n}
    run = hoim.runs.RunOptions(folder / "search")
    return hoim.log_linear.select(ROWS, ROWS, trainer, hoim.log_linear.SelectionOptions(**options), run=run)


CALLS = {
    "order": lambda n, _: hoim.InteractionHypergraph.from_order(DOMAIN, n),
    "chains": lambda n, folder: hoim.sample_chains(
        GibbsChains(model(), n, seed=n), n, thin=n, burn_in=n, run=hoim.runs.RunOptions(folder / "run")
    ),
    "annealed": lambda n, _: hoim.AnnealedImportance(num_chains=n, num_temperatures=n).log_partition(model()),
    "fit": lambda n, _: hoim.fit(PAIRS, ROWS, stopping=hoim.log_linear.Stopping(max_iterations=n)),
    "select": search,
    "sampled training": lambda n, _: hoim.log_linear.SampledTraining(num_chains=8 * n, num_iterations=n),
    "network": lambda n, folder: hoim.learn_network(ROWS, max_leaves=n, run=hoim.runs.RunOptions(folder / "network")),
    "roots": lambda n, folder: hoim.fit_roots(
        COUNTS,
        order=n,
        settings=hoim.generalized_root.RootSettings(max_iterations=n),
        run=hoim.runs.RunOptions(folder / "roots"),
    ),
    "node family": lambda n, _: hoim.generalized_root.TruncatedPoissonFamily(n),
    "root annealed": lambda n, _: hoim.generalized_root.RootAnnealed(num_chains=n),
    "gibbs": lambda n, _: hoim.core.ClampedGibbs(burn_in=n),
    "total count": lambda n, _: hoim.LogLinearStatistics(PAIRS, torch.zeros(PAIRS.num_parameters), n),
    "seeds": lambda n, _: hoim.fit(PAIRS, ROWS).sample(n, seed=n),
    "annealed seed": lambda n, _: hoim.AnnealedImportance(n, n, seed=n).log_partition(model()),
    "posterior": lambda n, _: hoim.sample_posterior(
        PAIRS, ROWS, settings=hoim.inference.NUTSSettings(1, 4, n, max_tree_depth=n), seed=n, progress=False
    ),
    "sums of counts": lambda n, _: hoim.inference.prior_predictive(
        PAIRS, hoim.normal_prior(PAIRS, 1.0), total_count=n, num_draws=n, seed=n
    ),
    "columns": lambda n, _: hoim.data.open_rows(ROWS.to_pandas(), columns=n),
}

REALS = {
    "prior of structures": lambda n: hoim.inference.enumerate_structures(ROWS, prior=n),
    "prior of a posterior": lambda n: hoim.inference.posterior.prior_of(PAIRS, n),
    "heredity": lambda n: hoim.log_linear.CandidatePool(DOMAIN, heredity=n),
    "share": lambda n: hoim.generalized_root.RootSettings(refit_share=n),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_numpy_integers_are_integers(name, tmp_path):
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        CALLS[name](np.int64(2), tmp_path)
        for wrong in (np.float64(2.5), np.bool_(True), True):  # the control
            with pytest.raises((InputError, InputTypeError)):
                CALLS[name](wrong, tmp_path)


@pytest.mark.parametrize("name", list(REALS))
@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_numpy_numbers_are_numbers(name, kind):
    with warnings.catch_warnings(action="ignore"):
        REALS[name](kind(1))
        with pytest.raises((InputError, InputTypeError)):
            REALS[name](np.bool_(True))  # the control


def test_which_values_are_whole():
    assert all(map(is_whole, (0, -3, np.int8(2), np.uint64(7), 2**70)))
    assert not any(map(is_whole, (2.0, True, np.bool_(False), np.float64(2.0), "2", None, torch.tensor(2))))
