"""Posteriors over structure in both generations of ArviZ: named interactions, theta, constants, stuck chains."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray

from pyro_hoim.data import Observations
from pyro_hoim.inference import (
    ChainSettings,
    StructurePosterior,
    StructurePrior,
    average_decomposable,
    enumerate_structures,
    sample_structures,
)
from pyro_hoim.inference.structure import posterior as posterior_module
from pyro_hoim.interop import choose_backend, get_group, summarise, to_arviz
from pyro_hoim.schema import Domain
from pyro_hoim.testing import assert_exact_law, raises

DOMAIN = Domain.from_labels({"smoke": ["n", "y"], "age": ["old", "mid", "new"], "sex": ["f", "m"]})
ROWS = Observations.from_table(DOMAIN, np.array([[[20, 9], [6, 4], [3, 3]], [[5, 6], [8, 4], [14, 9]]]))
PRIOR = StructurePrior(DOMAIN, inclusion=0.4)
NAMES = ["smoke:age", "smoke:sex", "age:sex", "smoke:age:sex"]


@pytest.fixture(scope="module")
def listed():
    return enumerate_structures(ROWS, "unit", PRIOR)


def test_chains_are_the_draws_with_theta_zero_where_absent(backend, tmp_path):
    drawn = sample_structures(ROWS, "unit", PRIOR, ChainSettings(3, 300, 20), seed=2)
    state = torch.get_rng_state()
    data = to_arviz(drawn, backend=backend)
    assert torch.equal(torch.get_rng_state(), state)
    found = get_group(data, "posterior")
    assert found["inclusion"].dims == ("chain", "draw", "interaction")
    assert list(found["interaction"].values) == NAMES and np.issubdtype(found["inclusion"].dtype, np.integer)
    gamma = drawn.gamma[drawn.index]
    assert np.array_equal(found["inclusion"].values, gamma.numpy())
    assert found["theta"].dims == ("chain", "draw", "interaction_level")
    assert np.array_equal(found["theta"].values != 0, PRIOR.parameter_mask(gamma.double()).numpy() != 0)
    assert str(found["theta"].sel(interaction_level="smoke:age[y,mid]")["theta_interaction"].values) == "smoke:age"
    stats, constants = get_group(data, "sample_stats"), get_group(data, "constant_data")
    assert np.array_equal(stats["log_evidence"].values, drawn.log_evidence[drawn.index].numpy())
    assert (stats["temperature"].values == 1).all()
    assert constants["prior_inclusion"].dims == ("interaction",)
    assert constants["prior_inclusion"].values.tolist() == pytest.approx(PRIOR.marginal_inclusion.tolist())
    assert json.loads(found.attrs["status"]) == drawn.status and not json.loads(found.attrs["independent_draws"])
    own = replace(drawn, theta=PRIOR.parameter_mask(gamma.double()))  # chains that draw theta themselves
    assert np.array_equal(get_group(to_arviz(own, backend=backend), "posterior")["theta"].values, own.theta.numpy())
    data.to_netcdf(str(tmp_path / "posterior.nc"))
    with xarray.open_dataset(tmp_path / "posterior.nc", group="posterior") as kept:
        assert np.array_equal(kept["inclusion"].values, found["inclusion"].values)
    with raises("out-of-range", "num_chains"):
        to_arviz(drawn, num_chains=2)


def test_lists_and_weights_are_shown_by_independent_draws(listed, backend):
    found = get_group(to_arviz(listed, backend=backend), "posterior")
    assert found["inclusion"].shape == (4, 1000, 4) and json.loads(found.attrs["independent_draws"])
    places = {mask: k for k, mask in enumerate(PRIOR.space.masks_of(listed.gamma.numpy()))}
    masks = PRIOR.space.masks_of(found["inclusion"].values.reshape(-1, 4) == 1)
    counts = np.bincount([places[mask] for mask in masks], minlength=len(places))
    assert_exact_law(counts, listed.probabilities.numpy())
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.full(len(places), 1 / len(places)))  # control
    trees = average_decomposable(ROWS, num_draws=500, seed=1)
    assert get_group(to_arviz(trees, num_chains=2, backend=backend), "posterior")["inclusion"].shape == (2, 1000, 4)


@pytest.mark.parametrize(("ends", "r_hat"), [((0, -1), np.inf), pytest.param((-1, -1), np.nan, id="control: alike")])
def test_stuck_indicators_have_an_infinite_r_hat(listed, backend, ends, r_hat):
    index = torch.tensor(ends)[:, None].expand(2, 50) % listed.num_structures
    stuck = StructurePosterior(
        listed.evidence, PRIOR, listed.gamma, listed.log_evidence, listed.probabilities, index=index
    )
    table = summarise(to_arviz(stuck, backend=backend), var_names=["inclusion", "theta"], kind="diagnostics")
    found = table["r_hat"][[f"inclusion[{name}]" for name in NAMES]].to_numpy(float)
    assert np.array_equal(found, [r_hat] * 4, equal_nan=True) and np.isfinite(table["r_hat"]["theta[smoke[y]]"])


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # of thirty draws
def test_odd_sizes(backend, listed, monkeypatch):
    monkeypatch.setattr(posterior_module, "_MAX_THETA", 1000)
    assert list(get_group(to_arviz(listed, backend=backend), "posterior").data_vars) == ["inclusion"]
    one = enumerate_structures(Observations.from_table(Domain.from_cardinalities([2]), np.array([5, 2])))
    assert get_group(to_arviz(one, backend=backend), "posterior")["inclusion"].shape == (4, 1000, 0)
    seven = Domain.from_cardinalities([2] * 7)
    rows = Observations.from_tensor(torch.zeros(0, 7, dtype=torch.long), seven)
    free = sample_structures(rows, "unit", StructurePrior(seven, max_order=3), ChainSettings(2, 30, 2), seed=1)
    data = to_arviz(free, backend=backend)  # the space is not listed, so that the prior is known up to a constant
    assert get_group(data, "constant_data") is None and get_group(data, "posterior")["inclusion"].shape == (2, 30, 56)
    assert choose_backend(data=data) == choose_backend(backend)
