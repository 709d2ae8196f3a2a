"""Ten mixtures of columns, and the smallest tables, pass every check of a law, against sums and integrals."""

import functools

import numpy as np
import pytest

from pyro_hoim.generalized_root import GeneralizedRoot, GeneralizedRootEnergy, RootChains
from pyro_hoim.testing import DISTRIBUTION_CHECKS, DistributionCase, assert_exact_law

from support.mixed_roots import EDGES, TEN, brute_force, in_units, log_density, mixed_axes, mixed_energy

LAWS = pytest.mark.parametrize("name", [*TEN, *EDGES])


@functools.cache
def law_case(name):
    """The case of a mixture: two sets of parameters, and log densities by the definition."""
    energy = in_units(mixed_energy(name, batch=(2,)))
    axes = mixed_axes(energy)
    tables = []
    for psi in energy.psi:
        one = GeneralizedRootEnergy(energy.structure, psi, energy.families)
        columns, dims = [], len(axes)
        for number, axis in enumerate(axes):
            columns += [column.reshape([-1 if number == t else 1 for t in range(dims)]) for column in axis.values.T]
        sizes = [len(axis.values) for axis in axes]
        tables.append(np.broadcast_to(log_density(one, columns), sizes) - brute_force(one)[0])

    def make(psi, validate_args=None):
        return GeneralizedRoot(energy.structure, psi, energy.families, validate_args=validate_args)

    return DistributionCase(make, energy.psi, np.stack(tables), {"structure": energy.structure}, axes, "psi")


@pytest.mark.parametrize("check", DISTRIBUTION_CHECKS, ids=lambda check: check.__name__)
@LAWS
def test_laws_of_mixtures_pass_the_conformance_suite(name, check):
    check(law_case(name))


DRAWN_BY_CHAINS = [
    *("bounded-exponential", "category-poisson-gaussian", "poisson-exponential", "cubic-numbers", "every-kind")
]


@pytest.mark.parametrize("name", DRAWN_BY_CHAINS)
def test_gibbs_chains_visit_cells_as_often_as_integrals_say(name):
    case = law_case(name)
    energy = in_units(mixed_energy(name, batch=(2,)))
    one = GeneralizedRootEnergy(energy.structure, energy.psi[0], energy.families)
    chains = RootChains(one, 5000, seed=11)
    chains.sweep(12)
    counts = case.counts(chains.states)
    probs = [case.cell_probs(member) for member in (0, 1)]
    assert_exact_law(counts, probs[0] / probs[0].sum())
    with pytest.raises(AssertionError, match="chi-square"):  # the control: parameters of the other one
        assert_exact_law(counts, probs[1] / probs[1].sum())


def test_laws_drawn_by_chains_are_named():
    chained = {name for name in TEN if not law_case(name).make().sample_is_exact}
    assert chained == set(DRAWN_BY_CHAINS)
