"""Chains over collections: transition matrices, draws against the listed law, tempering, states that resume."""

import numpy as np
import pytest

from pyro_hoim.datasets import load_table
from pyro_hoim.inference import enumerate_structures
from pyro_hoim.inference.structure.drawn.chains import Neighbourhood, TemperedChain, checked_temperatures
from pyro_hoim.inference.structure.prior import StructurePrior
from pyro_hoim.schema import Domain
from pyro_hoim.testing import assert_exact_law, assert_stationary, raises, total_variation_bound

PRIORS = {
    "hierarchical": {"d": 3, "inclusion": 0.3},
    "hierarchical of four": {"d": 4, "max_order": 3},
    "some heredity": {"d": 3, "heredity": 0.6},
    "graphical": {"d": 4, "space": "graphical", "inclusion": ("beta", 1.0, 2.0)},
    "decomposable": {"d": 4, "space": "decomposable"},
    "small cliques": {"d": 4, "space": "decomposable", "max_order": 2},
    "pairwise": {"d": 3, "space": "pairwise"},
    "one variable": {"d": 1},
    "two variables": {"d": 2},
}


def _prior(d, **options):
    return StructurePrior(Domain.from_cardinalities([2] * d), **options)


class _Case:
    """A prior with an evidence drawn at random for every member, and the law of the members."""

    def __init__(self, prior, spread=2.0):
        members = prior.space.members
        assert members is not None
        self.prior, self.masks = prior, prior.space.masks_of(members)
        values = np.random.default_rng(4).normal(scale=spread, size=len(self.masks))
        self.log_evidence = dict(zip(self.masks, values.tolist(), strict=True))
        self.position = {mask: k for k, mask in enumerate(self.masks)}

    def law(self, temperature=1.0):
        logs = np.array([self.log_evidence[m] / temperature + self.prior.log_weight(m) for m in self.masks])
        weights = np.exp(logs - logs.max())
        return weights / weights.sum()

    def chain(self, temperatures=(1.0,), seed=0, kind=TemperedChain):
        return kind(
            Neighbourhood(self.prior), self.log_evidence.__getitem__, temperatures, [0] * len(temperatures), seed
        )

    def matrix(self, temperature=1.0, kind=TemperedChain):
        chain = self.chain(kind=kind)
        matrix = np.zeros((len(self.masks), len(self.masks)))
        for mask in self.masks:
            for end, share in chain.transition(mask, temperature).items():
                matrix[self.position[mask], self.position[end]] += share
        return matrix


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_a_move_leaves_the_law_unchanged(name, temperature):
    case = _Case(_prior(**PRIORS[name]))
    assert_stationary(case.matrix(temperature), case.law(temperature))


# The same with evidence of rows

ROWS = load_table("czech_autoworkers")


def _listed(num_variables, prior, **options):
    """A case whose evidence is that of the first columns of the Czech table."""
    data = ROWS.project(ROWS.domain.names[:num_variables])
    case = _Case(StructurePrior(data.domain, **options))
    listed = enumerate_structures(data, prior, case.prior)
    case.log_evidence = dict(zip(case.masks, listed.log_evidence.tolist(), strict=True))
    np.testing.assert_allclose(case.law(), listed.probabilities, atol=1e-14)
    return case


@pytest.mark.parametrize(("prior", "space"), [("conjugate:1", "decomposable"), ("unit", "hierarchical")])
def test_moves_leave_the_listed_posterior_of_three_variables_unchanged(prior, space):
    case = _listed(3, prior, space=space, inclusion=0.3)
    assert_stationary(case.matrix(), case.law())
    with pytest.raises(AssertionError):
        assert_stationary(case.matrix(), _listed(3, prior, space=space, inclusion=0.301).law())


def test_sweeps_stay_in_the_listed_posterior_of_four_variables():
    case = _listed(4, "conjugate:1", space="decomposable")
    counts = _thinned_counts(case, (1.0,))
    wrong = _listed(4, "conjugate:1", space="decomposable", inclusion=0.2).law()
    assert_exact_law(counts, case.law())
    shares, bound = counts / counts.sum(), total_variation_bound(len(counts), int(counts.sum()))
    assert 0.5 * np.abs(shares - case.law()).sum() < bound < 0.5 * np.abs(shares - wrong).sum()


class _Unaware(Neighbourhood):
    """A control: proposals taken for symmetric."""

    def proposals(self, mask):
        return {end: (share, 0.0) for end, (share, _) in super().proposals(mask).items()}


@pytest.mark.parametrize("name", ["hierarchical", "decomposable"])  # in the others all members have as many moves
def test_control_moves_without_the_ratio_of_proposals_change_the_law(name):
    case = _Case(_prior(**PRIORS[name]))

    def unaware(moves, *others):
        return TemperedChain(_Unaware(moves.prior), *others)

    with pytest.raises(AssertionError):
        assert_stationary(case.matrix(kind=unaware), case.law())


@pytest.mark.parametrize("name", ["hierarchical of four", "decomposable"])
def test_moves_are_drawn_from_the_transition_matrix(name):
    case = _Case(_prior(**PRIORS[name]))
    chain, rng = case.chain(), np.random.default_rng(1)
    largest = max(case.masks, key=lambda m: len(chain.neighbourhood.proposals(m)))
    counts = np.zeros(len(case.masks))
    for uniforms in rng.random((20_000, 4)).tolist():
        counts[case.position[chain.move(largest, 1.0, uniforms)]] += 1
    law = case.matrix()[case.position[largest]]
    assert_exact_law(counts, law)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.roll(law, 1))


def _thinned_counts(case, temperatures, kind=TemperedChain):
    """Last members of many short chains that start in the law: independent, and distributed by it."""
    rng, counts = np.random.default_rng(2), np.zeros(len(case.masks))
    laws = [case.law(t) for t in temperatures]
    for seed in range(6_000):
        chain = case.chain(temperatures, seed=seed, kind=kind)
        chain.masks = [case.masks[rng.choice(len(law), p=law)] for law in laws]
        chain.sweep()
        chain.sweep()
        counts[case.position[chain.mask]] += 1
    return counts


class _Careless(TemperedChain):
    """A control: neighbouring temperatures are exchanged without being asked."""

    def sweep(self):
        super().sweep()
        self.masks[0], self.masks[1] = self.masks[1], self.masks[0]


def test_tempered_sweeps_leave_the_law_unchanged_and_control_exchanging_always_does_not():
    case = _Case(_prior(3, inclusion=0.3), spread=3.0)
    assert_exact_law(_thinned_counts(case, (1.0, 4.0)), case.law())
    with pytest.raises(AssertionError):
        assert_exact_law(_thinned_counts(case, (1.0, 4.0), kind=_Careless), case.law())


def test_a_restored_chain_goes_on_as_the_first_one():
    case = _Case(_prior(4))
    chain = case.chain((1.0, 2.0, 4.0), seed=5)
    for _ in range(3):
        chain.sweep()
    other = case.chain((1.0, 2.0, 4.0), seed=6)
    other.restore(chain.state())
    for _ in range(3):
        chain.sweep()
        other.sweep()
    assert chain.state() == other.state() and 0 < chain.acceptance < 1
    assert len(chain.exchange_rates) == 2 and all(0 <= rate <= 1 for rate in chain.exchange_rates)


@pytest.mark.parametrize(
    ("temperatures", "code"),
    [
        ([], "wrong-type"),
        ("1", "wrong-type"),
        ([2.0], "out-of-range"),
        ([1.0, 1.0], "out-of-range"),
        ([1.0, -2], "out-of-range"),
    ],
)
def test_bad_temperatures(temperatures, code):
    with raises(code, "temperatures"):
        checked_temperatures(temperatures)


def test_temperatures_may_be_an_array():
    assert checked_temperatures(np.array([1.0, 2.5])) == (1.0, 2.5)
