"""Posteriors by chains and by junction trees against lists of all members; transition matrices, states that resume."""

import os
import signal
import warnings
from contextlib import suppress
from pathlib import Path

import forkserver
import numpy as np
import pyro
import pytest
import torch
from pyro.infer import MCMC

from pyro_hoim import ConvergenceWarning, Domain, Observations, load_table, run_mcmc
from pyro_hoim.datasets import load_mushroom
from pyro_hoim.inference import (
    BirthDeath,
    ChainSettings,
    StructurePrior,
    average_decomposable,
    enumerate_structures,
    log_evidence,
    sample_structures,
)
from pyro_hoim.inference.structure.chains import Neighbourhood, TemperedChain, _starts
from pyro_hoim.log_linear import unit_information_prior
from pyro_hoim.runs.checkpoint import RunOptions
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_exact_law, assert_stationary, raises, total_variation_bound

CZECH = load_table("czech_autoworkers")
FOUR = CZECH.project(CZECH.domain.names[1:5])
DECOMPOSABLE = StructurePrior(FOUR.domain, space="decomposable")
# Two columns that are copies of each other, and a third: modes with hardly anything between them
_CODES = np.random.default_rng(0).integers(0, 3, (2_000, 2))
_COLUMNS = np.stack([_CODES[:, 0], _CODES[:, 0], (_CODES[:, 0] + _CODES[:, 1]) % 3, _CODES[:, 1]], 1)
COPIES = Observations(Domain.from_cardinalities([3, 3, 3, 3]), torch.from_numpy(_COLUMNS))


def _rows(codes, domain):
    return Observations(domain, torch.from_numpy(codes))


def _z_limit(num):
    """Largest of some standard normal numbers that chance explains."""
    from scipy import stats

    return float(stats.norm.isf(FALSE_ALARM_RATE / 2 / num))


@pytest.mark.parametrize(
    ("prior", "structure_prior"),
    [
        ("conjugate:1", DECOMPOSABLE),
        ("conjugate:4", StructurePrior(FOUR.domain, space="decomposable", max_order=2, inclusion=0.2)),
        ("unit", StructurePrior(FOUR.domain, inclusion=("beta", 1.0, 3.0))),
        ("normal:0.5", StructurePrior(FOUR.domain, space="pairwise")),
    ],
    ids=["decomposable", "trees", "hierarchical", "pairs"],
)
def test_chains_find_the_listed_posterior(prior, structure_prior):
    listed = enumerate_structures(FOUR, prior, structure_prior)
    settings = ChainSettings(num_draws=2_000, burn_in=50)
    drawn = sample_structures(FOUR, prior, structure_prior, settings, seed=1)
    error = drawn.inclusion.mcse
    is_moving = error > 0
    z = (drawn.inclusion.mean - listed.inclusion.mean)[is_moving] / error[is_moving]
    assert drawn.status == "converged" and drawn.is_exact == listed.is_exact
    assert drawn.index is not None and drawn.index.shape == (4, 2_000)
    assert float(z.abs().max()) < _z_limit(len(z))
    # Rare interactions that no draw has are as rare as that.
    still = listed.inclusion.mean[~is_moving]
    assert bool((torch.minimum(still, 1 - still) < 0.003).all())
    wrong = enumerate_structures(FOUR.rows(torch.arange(8)), prior, structure_prior).inclusion.mean
    z = (drawn.inclusion.mean - wrong)[is_moving] / error[is_moving]
    assert float(z.abs().max()) > _z_limit(len(z))


def test_temperatures_find_what_single_moves_do_not_and_the_status_tells():
    prior = StructurePrior(COPIES.domain, space="decomposable")
    listed = enumerate_structures(COPIES, "conjugate:1", prior)
    hot = ChainSettings(3, 400, 100, temperatures=np.geomspace(1, 1000, 12))
    drawn = sample_structures(COPIES, "conjugate:1", prior, hot, seed=1)
    z = (drawn.inclusion.mean - listed.inclusion.mean).abs() / drawn.inclusion.mcse
    assert drawn.status == "converged" and float(z.nan_to_num().max()) < _z_limit(len(z))
    starts = tuple(prior.space.hypergraph_of(mask) for mask in (0, 2**6 - 1))
    with pytest.warns(ConvergenceWarning, match="R-hat inf"):
        cold = sample_structures(COPIES, "conjugate:1", prior, ChainSettings(2, 20, 0, starts=starts), seed=1)
    assert cold.status == "unconverged" and float(cold.inclusion.r_hat.max()) == float("inf")


def test_trees_find_the_listed_posterior():
    for structure_prior in (
        None,
        StructurePrior(FOUR.domain, space="decomposable", max_order=3),
        StructurePrior(FOUR.domain, space="decomposable", inclusion=("beta", 1.0, 4.0)),
    ):
        listed = enumerate_structures(FOUR, "conjugate:1", DECOMPOSABLE if structure_prior is None else structure_prior)
        drawn = average_decomposable(FOUR, "conjugate:1", structure_prior, num_draws=20_000, seed=3)
        error = drawn.inclusion.mcse
        is_moving = error > 0
        z = (drawn.inclusion.mean - listed.inclusion.mean)[is_moving] / error[is_moving]
        assert float(z.abs().max()) < _z_limit(len(z)) and drawn.is_exact
        other = enumerate_structures(FOUR, "conjugate:64", listed.structure_prior).inclusion.mean
        z = (drawn.inclusion.mean - other)[is_moving] / error[is_moving]
        assert float(z.abs().max()) > _z_limit(len(z))


def test_selected_starts_are_maxima_from_far_apart():
    listed = enumerate_structures(COPIES, "conjugate:1", StructurePrior(COPIES.domain, space="decomposable"))
    space, log_probs = listed.structure_prior.space, listed.log_evidence  # of equal prior probabilities
    position = {mask: k for k, mask in enumerate(space.masks_of(listed.gamma.numpy()))}
    moves = Neighbourhood(listed.structure_prior)

    def starts(word, num_chains):
        settings = ChainSettings(num_chains, starts=word)
        return _starts(moves, listed.evidence, settings, [np.random.default_rng(k) for k in range(num_chains)])

    def is_maximum(mask):
        around = [position[other] for others in moves.moves(mask) for other in others]
        return bool((log_probs[around] <= log_probs[position[mask]]).all())

    climbed = starts("select", 12)
    assert all(map(is_maximum, climbed)) and len(set(climbed)) > 1
    assert int(log_probs.argmax()) in {position[mask] for mask in climbed}
    assert not all(map(is_maximum, starts("spread", 3)))  # a control
    one = _rows(np.array([[0], [1]]), Domain.from_cardinalities([2]))
    assert sample_structures(one, settings=ChainSettings(2, 5, 0, starts="select")).num_structures == 1


@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # of few draws
def test_chains_that_start_where_the_evidence_is_large(collapsed):
    settings = ChainSettings(2, 4, 0, starts="select")
    drawn = sample_structures(FOUR, "unit", None, settings, collapsed=collapsed, seed=1)
    best = enumerate_structures(FOUR, "unit").models(1)[0]
    assert float(drawn.log_evidence.max()) > best.log_evidence - 5


def test_edge_cases_of_rows_and_variables():
    none = _rows(np.zeros((0, 3), dtype=np.int64), Domain.from_cardinalities([2, 2, 2]))
    prior = StructurePrior(none.domain, space="decomposable", inclusion=0.3)
    drawn = average_decomposable(none, structure_prior=prior, num_draws=20_000, seed=1)
    assert float((drawn.inclusion.mean - prior.marginal_inclusion).abs().max()) < 0.03
    walked = sample_structures(none, "conjugate:1", prior, ChainSettings(num_draws=2_000), seed=1)
    assert float((walked.inclusion.mean - prior.marginal_inclusion).abs().max()) < 0.03
    one = _rows(np.array([[0], [1]]), Domain.from_cardinalities([2]))
    assert average_decomposable(one, seed=1).num_structures == 1
    assert sample_structures(one, settings=ChainSettings(2, 5, 0)).status == "converged"
    flat = _rows(np.array([[0, 0], [1, 0]]), Domain.from_cardinalities([2, 1]))
    assert average_decomposable(flat, num_draws=2_000, seed=1).inclusion.mean.tolist() == pytest.approx([0.5], abs=0.06)


def test_a_seed_gives_the_same_draws_and_leaves_the_global_generators():
    settings = ChainSettings(2, 30, 5)
    before = torch.get_rng_state()
    first, second, third = (sample_structures(FOUR, "unit", None, settings, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.gamma[first.index], second.gamma[second.index])
    assert not torch.equal(first.gamma[first.index], third.gamma[third.index])
    assert torch.equal(torch.get_rng_state(), before)


_PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from pyro_hoim.runs.checkpoint import RunFile
from test_drawn import RunOptions, long_run
RunFile.SECONDS = 0.01
long_run(RunOptions({path!r}))
"""


def long_run(run):
    settings = ChainSettings(2, 600, 20, temperatures=(1.0, 2.0))
    return sample_structures(FOUR, "unit", None, settings, seed=4, run=run)


def test_a_killed_run_continues_with_the_same_draws(tmp_path):
    path = tmp_path / "run.safetensors"
    program = _PROGRAM.format(folder=str(Path(__file__).parent), path=str(path))
    process = forkserver.start(program, tmp_path / "output")
    forkserver.wait_for(path.exists, process)
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, (tmp_path / "output").read_text()
    whole, resumed = long_run(None), long_run(RunOptions(path, resume=True))
    assert torch.equal(whole.index, resumed.index) and torch.equal(whole.gamma, resumed.gamma)
    settings = ChainSettings(2, 600, 20, temperatures=(1.0, 2.0))
    for data, prior in ((FOUR, "normal:1"), (FOUR.rows(torch.arange(60)), "unit")):
        with raises("other-run", "checkpoint"):
            sample_structures(data, prior, None, settings, seed=4, run=RunOptions(path, resume=True))


def test_a_run_over_another_domain_is_not_continued(tmp_path):
    codes = np.random.default_rng(0).integers(0, 2, (40, 3))
    settings, path = ChainSettings(2, 20, 2), tmp_path / "run.safetensors"
    sample_structures(_rows(codes, Domain.from_cardinalities([2] * 3)), settings=settings, run=RunOptions(path))
    wider = _rows(codes, Domain.from_cardinalities([3] * 3))
    with raises("other-run", "checkpoint"):
        sample_structures(wider, settings=settings, run=RunOptions(path, resume=True))


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # of four draws
def test_the_seed_is_that_of_bridges_too():
    two = FOUR.project(FOUR.domain.names[:2])  # two collections, as every bridge takes a second
    pairs, settings = StructurePrior(two.domain, space="pairwise"), ChainSettings(2, 4, 0, starts="empty")
    found = [sample_structures(two, "unit", pairs, settings, method="bridge", seed=seed) for seed in (1, 2)]
    assert found[0].evidence(0) != found[1].evidence(0)


def test_the_kernel_runs_in_both_loops_of_chains():
    kernel = BirthDeath(FOUR, "conjugate:1", DECOMPOSABLE, temperatures=(1.0, 3.0))
    start = torch.ones(2, 11)
    run = run_mcmc(kernel, 200, burn_in=10, num_chains=2, seed=1, initial_params={"gamma": start}, progress=False)
    listed = enumerate_structures(FOUR, "conjugate:1", DECOMPOSABLE)
    assert run.samples["gamma"].shape == (2, 200, 11) and kernel.is_exact
    assert float((run.samples["gamma"].double().mean((0, 1)) - listed.inclusion.mean).abs().max()) < 0.15
    assert run.sample_stats["log_evidence"].shape == (2, 200)
    assert len(run.chain_diagnostics[0]["exchange rates"]) == 1
    pyro.set_rng_seed(1)
    mcmc = MCMC(kernel, num_samples=20, warmup_steps=5, disable_progbar=True)
    mcmc.run()
    assert mcmc.get_samples()["gamma"].shape == (20, 11) and "acceptance rate" in mcmc.diagnostics()


WRONG = [
    ("wrong-type", "settings", lambda: sample_structures(FOUR, settings={})),
    ("wrong-type", "structure_prior", lambda: sample_structures(FOUR, "unit", "pairs")),
    ("out-of-range", "num_chains", lambda: ChainSettings(num_chains=1)),
    ("out-of-range", "num_draws", lambda: ChainSettings(num_draws=3)),
    *(
        (code, "temperatures", lambda t=temperatures: ChainSettings(temperatures=t))
        for code, *choices in (("wrong-type", [], "1"), ("out-of-range", [2.0], [1.0, 1.0], [1.0, -2]))
        for temperatures in choices
    ),
    ("unknown-choice", "starts", lambda: ChainSettings(starts="middle")),
    ("wrong-type", "starts", lambda: ChainSettings(starts=[DECOMPOSABLE.largest])),
    ("conflict", "prior", lambda: sample_structures(FOUR, "none")),
    ("conflict", "prior", lambda: sample_structures(FOUR, unit_information_prior, run=RunOptions("run"))),
    ("conflict", "structure_prior", lambda: average_decomposable(FOUR, structure_prior=StructurePrior(FOUR.domain))),
    ("conflict", "method", lambda: average_decomposable(FOUR, "unit")),
    ("other-domain", "data", lambda: average_decomposable(CZECH, structure_prior=DECOMPOSABLE)),
    ("out-of-range", "num_draws", lambda: average_decomposable(FOUR, num_draws=0)),
    ("wrong-type", "seed", lambda: average_decomposable(FOUR, seed=1.5)),
    ("wrong-type", "seed", lambda: enumerate_structures(FOUR, seed="a")),
    ("out-of-range", "seed", lambda: log_evidence(DECOMPOSABLE.largest, FOUR, method="bridge", seed=-1)),
    ("wrong-type", "data", lambda: BirthDeath("table")),
]


@pytest.mark.parametrize(("code", "argument", "call"), WRONG)
def test_bad_input(code, argument, call):
    with raises(code, argument):
        call()


def test_bad_starts_and_sizes():
    kernel = BirthDeath(FOUR, "unit", StructurePrior(FOUR.domain, max_order=3))
    with raises("impossible", "initial_params['gamma']"):
        kernel.initial_params = {"gamma": torch.tensor([0.0] * 6 + [1.0] * 4)}
    with raises("wrong-type", "initial_params"):
        kernel.initial_params = {"theta": torch.zeros(10)}
    with raises("missing-part", "BirthDeath"):
        kernel.sample(kernel.initial_params)
    starts = [StructurePrior(FOUR.domain).space.hypergraph_of(2**11 - 1)] * 2
    with raises("out-of-range", "hypergraph"):
        sample_structures(FOUR, "unit", StructurePrior(FOUR.domain, max_order=2), ChainSettings(2, starts=starts))
    many = _rows(np.zeros((2, 13), dtype=np.int64), Domain.from_cardinalities([2] * 13))
    with raises("over-budget", "data"):
        average_decomposable(many)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_data")
def test_ten_columns_of_mushroom_need_temperatures():
    data = load_mushroom()
    data = data.project(data.domain.names[:10])
    exact = average_decomposable(data, seed=1)
    prior = StructurePrior(data.domain, space="decomposable")
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        cold = sample_structures(data, "conjugate:1", prior, ChainSettings(3, 100, 400), seed=2)
    hot = ChainSettings(3, 100, 150, temperatures=tuple(np.geomspace(1, 2000, 24)))
    warm = sample_structures(data, "conjugate:1", prior, hot, seed=2)
    assert cold.status == "unconverged" and warm.status == "converged"
    assert float((warm.inclusion.mean - exact.inclusion.mean).abs().max()) < 0.05


# Chains over collections


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


def _listed(num_variables, prior, **options):
    """A case whose evidence is that of the first columns of the Czech table."""
    data = CZECH.project(CZECH.domain.names[:num_variables])
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
