"""Reversible jumps: densities, weights, laws that sweeps leave unchanged, known posteriors, states that resume."""

import math
from typing import NamedTuple

import numpy as np
import pyro
import pytest
import torch
from pyro.distributions import StudentT
from pyro.infer import MCMC
from scipy import stats

from pyro_hoim import Domain, Observations, load_table, run_mcmc
from pyro_hoim.inference import (
    BirthDeath,
    ChainSettings,
    StructureEvidence,
    StructurePrior,
    enumerate_structures,
    log_evidence,
    sample_structures,
)
from pyro_hoim.inference.structure import chains as jumps
from pyro_hoim.inference.structure.chains import JumpChain, Neighbourhood, TemperedChain, ThetaProposal, ThetaProposals
from pyro_hoim.log_linear import DiaconisYlvisaker, LogLinearStatistics, statistics_of
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.runs.checkpoint import RunFile, RunOptions
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_exact_law, assert_uniform_ranks, raises, total_variation_bound

CZECH = load_table("czech_autoworkers")
THREE = Observations.from_table(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), np.array([[[6, 2], [3, 4], [0, 2]], [[1, 5], [4, 1], [7, 3]]])
)
GRAPHS = StructurePrior(THREE.domain, space="decomposable", inclusion=0.4)


def student(hypergraph):
    """A prior that is neither normal nor conjugate."""
    zero = torch.zeros(hypergraph.num_parameters, dtype=torch.float64)
    return StudentT(5.0 + zero, zero, 1.0 + zero).to_event(1)


def z_limit(num):
    return float(stats.norm.isf(FALSE_ALARM_RATE / 2 / num))


# Densities


@pytest.mark.parametrize("prior", ["unit", "normal:0.5", "conjugate:2", student])
def test_the_joint_density_is_that_of_the_prior_and_the_rows(prior):
    space = "decomposable" if prior == "conjugate:2" else "hierarchical"
    evidence = StructureEvidence(THREE, StructurePrior(THREE.domain, space=space).space, prior)
    for mask in (0, 1, 5, 7):
        proposal = ThetaProposal(evidence, mask)
        hypergraph, law = evidence.space.hypergraph_of(mask), evidence.posterior(mask)[0]
        theta = proposal.draw(np.random.default_rng(1)).theta
        rows = LogLinearStatistics(hypergraph, torch.from_numpy(theta), THREE.total_count)
        wanted = law.log_prob(torch.from_numpy(theta)) + rows.log_prob(statistics_of(THREE, hypergraph))
        assert proposal.log_joint(theta) == pytest.approx(float(wanted), rel=1e-12)


def test_the_law_of_proposals_is_a_student_law_at_the_mode():
    evidence = StructureEvidence(THREE, GRAPHS.space, "unit")
    proposal, rng = ThetaProposal(evidence, 3), np.random.default_rng(2)
    precision = proposal.factor @ proposal.factor.T
    law = stats.multivariate_t(proposal.mode, np.linalg.inv(precision), df=8)
    points = [proposal.draw(rng) for _ in range(2_000)]
    for point in points[:20]:
        assert point.log_proposal == pytest.approx(float(law.logpdf(point.theta)), rel=1e-10)
        assert proposal.log_prob(point.theta) == pytest.approx(point.log_proposal, rel=1e-10)
    off = np.stack([point.theta for point in points]) - proposal.mode
    squares = ((off @ precision) * off).sum(1) / proposal.size
    assert stats.kstest(squares, stats.f(proposal.size, 8).cdf).pvalue > FALSE_ALARM_RATE
    assert stats.kstest(squares, stats.chi2(proposal.size, scale=1 / proposal.size).cdf).pvalue < FALSE_ALARM_RATE


@pytest.mark.parametrize(
    "prior",
    ["conjugate:2", pytest.param("unit", marks=pytest.mark.slow), pytest.param(student, marks=pytest.mark.slow)],
)
def test_weights_are_the_evidence_on_average(prior):
    evidence = StructureEvidence(THREE, GRAPHS.space, prior, method="exact" if prior == "conjugate:2" else "auto")
    rng = np.random.default_rng(3)
    for mask in (0, 3, 7):
        method = "auto" if prior == "conjugate:2" else "bridge"
        known = log_evidence(GRAPHS.space.hypergraph_of(mask), THREE, prior, method=method)
        proposal = ThetaProposal(evidence, mask)
        weights = np.exp([proposal.draw(rng).log_weight - known.value for _ in range(2_000)])
        error = math.hypot(weights.std() / math.sqrt(len(weights)), known.std_error or 0.0)
        assert abs(weights.mean() - 1) < z_limit(1) * error
        assert error < 0.1


# What a sweep leaves unchanged


class CarelessChain(JumpChain):
    """A control: the densities of proposals are left out."""

    def jump(self, point, mask, log_ratio, temperature, uniform):
        other = self.proposals[mask].draw(self._generator)
        weight = self.neighbourhood.prior.log_weight
        gain = (other.log_joint - point.log_joint) / temperature + weight(mask) - weight(point.mask) + log_ratio
        return other if gain >= 0 or uniform < math.exp(gain) else point


class _Adrift(JumpChain):
    """A control: random-walk steps are accepted by the weights, as if they were proposals."""

    def drift(self, point, temperature, uniform):
        other = self.proposals[point.mask].near(point.theta, self._generator)
        gain = (other.log_weight - point.log_weight) / temperature
        return other if gain >= 0 or uniform < math.exp(gain) else point


LISTED = enumerate_structures(THREE, "conjugate:2", GRAPHS)
MASKS = GRAPHS.space.masks_of(LISTED.gamma.numpy())


def assert_unchanged(kind, num=600, *, is_whole=True):
    """Chains that start in the posterior are still there after three sweeps, or after eight random-walk steps.

    Members have their law; theta and the log joint density have not moved on average.
    """
    rng, proposals = np.random.default_rng(4), ThetaProposals(LISTED.evidence)
    states = LISTED.sample(num, seed=5)
    chain = kind(Neighbourhood(GRAPHS), proposals, (1.0,), [0], 6)
    members, moved = np.zeros(len(MASKS)), np.empty((num, GRAPHS.largest.num_parameters + 1))
    begins = zip(GRAPHS.space.masks_of((states.gamma == 1).numpy()), states.theta.numpy(), strict=True)
    for k, (mask, theta) in enumerate(begins):
        before = proposals[mask].at(theta[LISTED.evidence.columns([mask])[0]])
        chain.points = [before]
        for _ in range(3 if is_whole else 0):
            chain.sweep()
        for uniform in rng.random(0 if is_whole else 8):
            chain.points = [chain.drift(chain.points[0], 1.0, uniform)]
        members[MASKS.index(chain.mask)] += 1
        moved[k] = [*(chain.theta - theta), chain.points[0].log_joint - before.log_joint]
    assert_exact_law(members, LISTED.probabilities.numpy())
    z = moved.mean(0) / moved.std(0, ddof=1) * math.sqrt(num)
    assert np.abs(z).max() < z_limit(len(z)), z


@pytest.mark.parametrize("is_whole", [True, False], ids=["sweeps", "steps"])
def test_sweeps_leave_the_posterior_of_collections_and_theta_unchanged(is_whole):
    assert_unchanged(JumpChain, is_whole=is_whole)


@pytest.mark.parametrize(("kind", "is_whole"), [(CarelessChain, True), (_Adrift, False)], ids=["jumps", "steps"])
def test_control_sweeps_that_forget_a_density_change_it(kind, is_whole):
    with pytest.raises(AssertionError):
        assert_unchanged(kind, is_whole=is_whole)


# Known posteriors


@pytest.mark.parametrize("temperatures", [(1.0,), (1.0, 3.0, 20.0)], ids=["one", "three"])
def test_jumps_find_the_listed_posterior(temperatures):
    settings = ChainSettings(num_draws=250, burn_in=20, temperatures=temperatures)
    drawn = sample_structures(THREE, "conjugate:2", GRAPHS, settings, collapsed=False, seed=1)
    z = (drawn.inclusion.mean - LISTED.inclusion.mean)[:3] / drawn.inclusion.mcse[:3]
    assert drawn.status == "converged" and drawn.is_exact and float(z.abs().max()) < z_limit(3)
    assert drawn.theta is not None and drawn.index is not None and drawn.theta.shape == (4, 250, 11)
    is_present = GRAPHS.parameter_mask(drawn.gamma[drawn.index].double()) == 1
    assert torch.equal(drawn.theta != 0, is_present)
    cells, wanted = drawn.cell_probabilities(), LISTED.cell_probabilities()
    assert float(cells.sum()) == pytest.approx(1, abs=1e-12) and float((cells - wanted).abs().max()) < 0.01
    states = drawn.sample(50, seed=2)
    assert torch.equal(states.theta != 0, GRAPHS.parameter_mask(states.gamma) == 1)
    wrong = enumerate_structures(
        THREE, "conjugate:2", StructurePrior(THREE.domain, space="decomposable", inclusion=0.7)
    )
    z = (drawn.inclusion.mean - wrong.inclusion.mean)[:3] / drawn.inclusion.mcse[:3]
    assert float(z.abs().max()) > z_limit(3)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["unit", "normal:0.5", student])
def test_shares_of_collections_are_those_of_bridges(prior):
    """Every eighth state of a chain, nearly independent; probabilities of bridges are right to 0.01."""
    structure = StructurePrior(THREE.domain, inclusion=0.4)
    listed = enumerate_structures(THREE, prior, structure, method="bridge")
    moves, proposals = Neighbourhood(structure), ThetaProposals(listed.evidence)
    chain, num = JumpChain(moves, proposals, (1.0,), [0], 8), 4_000
    position = {mask: k for k, mask in enumerate(structure.space.masks_of(listed.gamma.numpy()))}
    counts = np.zeros(len(position))
    for _ in range(num):
        for _ in range(8):
            chain.sweep()
        counts[position[chain.mask]] += 1
    bound = total_variation_bound(len(counts), num) + 0.01
    assert 0.5 * np.abs(counts / num - listed.probabilities.numpy()).sum() < bound
    others = enumerate_structures(THREE, prior, StructurePrior(THREE.domain)).probabilities.numpy()
    assert 0.5 * np.abs(counts / num - others).sum() > bound


@pytest.mark.slow
def test_czech_inclusion_is_that_of_conting(czech, golden):
    says = golden["unit_information"]
    settings = ChainSettings(num_draws=3_000, burn_in=200)
    drawn = sample_structures(czech.table, says["prior"], None, settings, collapsed=False, seed=1)
    assert drawn.status == "converged" and drawn.is_exact
    for letters, share in says["inclusion"].items():
        assert abs(drawn.inclusion[czech.edge(letters)] - share) < says["tolerance"]
    low, high = says["best_probability"]
    best = drawn.models(1)[0]
    assert best.hypergraph == czech.model(says["best"])
    assert low - 0.02 < best.probability < high + 0.02


# Edge cases


def test_no_rows_one_variable_one_level_and_other_priors():
    settings = ChainSettings(2, 200, 10)
    none = Observations(Domain.from_cardinalities([2, 2]), torch.zeros(0, 2, dtype=torch.long))
    drawn = sample_structures(none, "unit", StructurePrior(none.domain, inclusion=0.3), settings, collapsed=False)
    assert drawn.theta is not None and abs(float(drawn.inclusion.mean[0]) - 0.3) < 0.15
    assert float(drawn.theta[..., 0].std()) == pytest.approx(math.sqrt(2), rel=0.2)  # the scale of the prior
    one = Observations(Domain.from_cardinalities([2]), torch.tensor([[0], [1], [1]]))
    drawn = sample_structures(one, "unit", settings=settings, collapsed=False)
    assert drawn.theta is not None and float(drawn.theta.std()) > 0
    flat = Observations(Domain.from_cardinalities([2, 1]), torch.tensor([[0, 0], [1, 0]]))
    drawn = sample_structures(flat, "unit", settings=settings, collapsed=False, seed=1)
    assert 0.3 < float(drawn.inclusion.mean[0]) < 0.7
    for prior in ("normal:0.001", "normal:1000", student):
        kernel = BirthDeath(THREE, prior, StructurePrior(THREE.domain, max_order=2), collapsed=False)
        run = run_mcmc(kernel, 5, burn_in=2, num_chains=2, seed=1, progress=False)
        assert bool(torch.isfinite(run.samples["theta"]).all()) and kernel.is_exact


def test_a_table_beyond_sums_over_cells():
    domain = Domain.from_cardinalities([2] * 13)
    codes = torch.randint(0, 2, (60, 13), generator=torch.Generator().manual_seed(1))
    pairs = StructurePrior(domain, space="pairwise", expected_size=2.0)
    kernel = BirthDeath(Observations(domain, codes), "unit", pairs, collapsed=False)
    proposals = kernel._proposals
    assert proposals is not None
    proposal, rng = proposals[1 << 5], np.random.default_rng(1)
    assert not proposal.kernel.is_dense
    point = proposal.draw(rng)
    rows = LogLinearStatistics(pairs.space.hypergraph_of(1 << 5), torch.from_numpy(point.theta), 60)
    hypergraph, law = pairs.space.hypergraph_of(1 << 5), kernel.evidence.posterior(1 << 5)[0]
    wanted = law.log_prob(torch.from_numpy(point.theta)) + rows.log_prob(
        statistics_of(kernel.evidence.data, hypergraph)
    )
    assert point.log_joint == pytest.approx(float(wanted), rel=1e-10)


# Kernel and states


def test_the_kernel_gives_both_sites_in_both_loops_of_chains():
    kernel = BirthDeath(THREE, "unit", collapsed=False, temperatures=(1.0, 3.0))
    theta = torch.ones(2, 11, dtype=torch.float64)
    start = {"gamma": torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]), "theta": theta}
    run = run_mcmc(kernel, 30, burn_in=5, num_chains=2, seed=1, initial_params=start, progress=False)
    assert run.samples["theta"].shape == (2, 30, 11) and run.samples["theta"].dtype == torch.float64
    assert kernel.is_exact and run.chain_diagnostics[0]["is_exact"]
    is_present = kernel.structure_prior.parameter_mask(run.samples["gamma"].double()) == 1
    assert torch.equal(run.samples["theta"] != 0, is_present)
    assert run.sample_stats["log_joint"].shape == (2, 30) and "log_evidence" not in run.sample_stats
    kernel.initial_params = {name: value[1] for name, value in start.items()}
    kernel.setup(0)
    at_start = kernel.initial_params["theta"]
    assert torch.equal(at_start, kernel.structure_prior.parameter_mask(start["gamma"][1]).double())
    pyro.set_rng_seed(1)
    mcmc = MCMC(BirthDeath(THREE, "unit", collapsed=False), num_samples=10, warmup_steps=2, disable_progbar=True)
    mcmc.run()
    assert mcmc.get_samples()["theta"].shape == (10, 11)


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # of twenty draws
def test_an_interrupted_run_continues_with_the_same_draws(tmp_path, monkeypatch):
    settings, path = ChainSettings(2, 20, 5, temperatures=(1.0, 4.0)), tmp_path / "run.safetensors"

    def drawn(run, *, collapsed=False):
        return sample_structures(THREE, "unit", None, settings, collapsed=collapsed, seed=3, run=run)

    class StoppedError(Exception):
        """In the place of a signal."""

    def stopping(chain):
        if chain.num_sweeps == 12:
            raise StoppedError
        sweep(chain)

    sweep = JumpChain.sweep
    with monkeypatch.context() as patch:
        patch.setattr(RunFile, "SECONDS", 0.0)
        patch.setattr(JumpChain, "sweep", stopping)
        with pytest.raises(StoppedError):
            drawn(RunOptions(path))
    whole, resumed = drawn(None), drawn(RunOptions(path, resume=True))
    assert whole.theta is not None and resumed.theta is not None
    assert torch.equal(whole.theta, resumed.theta) and torch.equal(whole.gamma, resumed.gamma)
    with raises("other-run", "checkpoint"):
        drawn(RunOptions(path, resume=True), collapsed=True)


# Bad input


def test_bad_input():
    hierarchical = StructurePrior(THREE.domain)
    with raises("conflict", "prior"):  # no constant beyond decomposable collections
        sample_structures(THREE, "conjugate:1", hierarchical, method="laplace", collapsed=False)
    with raises("conflict", "prior"):
        BirthDeath(THREE, lambda h: DiaconisYlvisaker.uniform(h, 1.0), hierarchical, collapsed=False)
    with raises("wrong-type", "collapsed"):
        sample_structures(THREE, collapsed=None)
    with raises("wrong-type", "collapsed"):
        BirthDeath(THREE, collapsed="no")
    kernel = BirthDeath(THREE, "unit", hierarchical, collapsed=False)
    gamma = torch.zeros(4)
    for bad in ({"theta": torch.zeros(11)}, {"gamma": gamma, "phi": gamma}):
        with raises("wrong-type", "initial_params"):
            kernel.initial_params = bad
    with raises("wrong-shape", "initial_params['theta']"):
        kernel.initial_params = {"gamma": gamma, "theta": torch.zeros(3)}
    with raises("not-finite", "initial_params['theta']"):
        kernel.initial_params = {"gamma": gamma, "theta": torch.full((11,), math.nan)}
    with raises("wrong-type", "initial_params"):
        BirthDeath(THREE, "unit", hierarchical).initial_params = {"gamma": gamma, "theta": torch.zeros(11)}


# Calibration on data simulated from the prior, with controls that must fail
#
# Collections, theta and rows are drawn from their joint law with NumPy, without the samplers of the library. Then two
# questions are asked of the kernels whose ``is_exact`` is true:
#
# - Geweke's, in its independent form: sweeps given the rows leave the joint law of collection, theta and rows as it is.
#   Paired differences of moments have mean zero (z tests), and collections have the law of the prior.
# - simulation-based calibration: the truth ranks uniformly among draws of the posterior. Indicators, size and
#   likelihood have ties, which are broken at random: the rank is then uniform, too. And inclusion is what it says: of
#   interactions with a probability in a bin, as many are present as their probabilities sum to; bins come from other
#   draws.
#
# References:
#     John Geweke, Getting it right: joint distribution tests of posterior simulators, JASA 99, 2004, section 2; Sean
#     Talts and others, Validating Bayesian inference algorithms with simulation-based calibration, 2018.


NUM_ROWS, NUM_SWEEPS, BURN_IN = 12, 8, 10
CELLS = np.stack(np.unravel_index(range(8), (2, 2, 2)), 1)
INCLUSION, FICTIVE = 0.3, 2.0


class Truth(NamedTuple):
    """A member, the log-probabilities of cells (8,), theta (7,), zero where absent, and rows in cells (8,)."""

    gamma: np.ndarray
    log_probs: np.ndarray
    theta: np.ndarray
    counts: np.ndarray


class Case:
    """Three binary variables, with the law of members written out, and the joint law of the others drawn from.

    Args:
        kind: "conjugate" for forests with fictive rows and theta integrated out, "unit" for jumps over all hierarchical
            collections with normal priors.
        inclusion: probability of an interaction, as the kernel is told.
    """

    def __init__(self, kind, inclusion=INCLUSION):
        options = {"space": "decomposable", "max_order": 2} if kind == "conjugate" else {}
        self.prior = StructurePrior(Domain.from_cardinalities([2, 2, 2]), inclusion=inclusion, **options)
        self.kind, self.collapsed = kind, kind == "conjugate"
        members = self.prior.space.members
        assert members is not None and len(members) == (7 if self.collapsed else 9)
        self.members = members
        sizes = members[:, : self.prior.space.num_free].sum(1)
        weights = INCLUSION**sizes * (1 - INCLUSION) ** (self.prior.space.num_free - sizes)
        self.law = weights / weights.sum()
        self.design = design_matrix(self.prior.largest)

    def draw(self, rng):
        gamma = self.members[rng.choice(len(self.law), p=self.law)]
        theta = np.zeros(self.design.shape[1])
        if self.collapsed:
            log_probs = self._forest(gamma, rng)
        else:
            is_present = np.concatenate([np.ones(3, dtype=bool), gamma])
            scales = np.sqrt([2.0, 2, 2, 4, 4, 4, 8])  # the level counts of each set, a row's worth of information
            theta = rng.standard_normal(7) * scales * is_present
            log_probs = self.design @ theta
            log_probs = log_probs - np.log(np.exp(log_probs).sum())
        return Truth(gamma, log_probs, theta, rng.multinomial(NUM_ROWS, np.exp(log_probs)))

    def _forest(self, gamma, rng):
        """Cells of a forest, conditional tables one after the other, each of independent Dirichlet laws.

        A variable with its one neighbour among those left has FICTIVE / 4 rows in every cell of its table.
        """
        left, pairs = [0, 1, 2], [p for p, on in zip([(0, 1), (0, 2), (1, 2)], gamma, strict=True) if on]
        log_probs = np.zeros(8)
        while left:
            near = {v: [w for w in left if (min(v, w), max(v, w)) in pairs] for v in left}
            leaf = next(v for v in left if len(near[v]) <= 1)
            shape = (2,) * len(near[leaf])
            table = rng.dirichlet(np.full(2, FICTIVE / 2 ** (len(shape) + 1)), size=shape)
            with np.errstate(divide="ignore"):  # a Dirichlet law of few rows rounds to zero at times
                log_probs += np.log(table[(*CELLS[:, near[leaf]].T, CELLS[:, leaf])])
            left.remove(leaf)
        return log_probs

    def kernel(self, counts):
        data = Observations.from_table(self.prior.space.domain, counts.reshape(2, 2, 2))
        text = f"conjugate:{FICTIVE}" if self.collapsed else "unit"
        return BirthDeath(data, text, self.prior, collapsed=self.collapsed)

    def moments(self, truth, params, kernel):
        """Functions of collection, theta and rows."""
        gamma, size = params["gamma"].numpy(), float(params["gamma"].sum())
        share = truth.counts @ self.design / NUM_ROWS
        if self.collapsed:
            likelihood = kernel.evidence(self.prior.space.masks_of((gamma == 1)[None])[0])
            return np.concatenate([gamma, gamma * np.abs(share[3:]), [size**2, likelihood, size * likelihood]])
        theta, pairs = params["theta"].numpy(), params["theta"].numpy()[3:6]
        likelihood = self.log_likelihood(theta, truth.counts)
        columns = [gamma, theta, theta**2, theta * share, pairs**2 * gamma[3], np.abs(pairs) * size]
        return np.concatenate([*columns, [size**2, likelihood, size * likelihood]])

    def quantities(self, gamma, theta, counts, kernel):
        """What is ranked; the likelihood of a collection is its evidence where theta is integrated out."""
        if self.collapsed or theta is None:
            likelihood = kernel.evidence(self.prior.space.masks_of((gamma == 1)[None])[0])
            return np.array([*gamma, gamma.sum(), likelihood])
        return np.array([*gamma, gamma.sum(), *theta.numpy(), self.log_likelihood(theta.numpy(), counts)])

    def log_likelihood(self, theta, counts):
        logits = self.design @ theta
        return float(counts @ logits - NUM_ROWS * np.log(np.exp(logits).sum()))


def started(case, truth, seed):
    """The kernel set up at the truth."""
    kernel = case.kernel(truth.counts)
    at = {"gamma": torch.from_numpy(truth.gamma.astype(np.float32))}
    kernel.initial_params = at if case.collapsed else {**at, "theta": torch.from_numpy(truth.theta)}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kernel.setup(0)
    return kernel, kernel.initial_params


# Geweke's test


def assert_joint_law(case, replications, seed):
    rng, differences, counts = np.random.default_rng(seed), [], np.zeros(len(case.members))
    position = {tuple(member): k for k, member in enumerate(case.members.tolist())}
    for k in range(replications):
        truth = case.draw(rng)
        kernel, before = started(case, truth, seed + k)
        after = before
        for _ in range(NUM_SWEEPS):
            after = kernel.sample(after)
        differences.append(case.moments(truth, after, kernel) - case.moments(truth, before, kernel))
        counts[position[tuple((after["gamma"] == 1).tolist())]] += 1
    moved = np.stack(differences)
    assert (moved != 0).any(1).mean() > 0.5  # the kernel does something
    z = moved.mean(0) / moved.std(0, ddof=1) * math.sqrt(replications)
    assert np.abs(z).max() < z_limit(len(z)), f"largest z score {np.abs(z).max():.1f} at {np.abs(z).argmax()}"
    assert_exact_law(counts, case.law)


class _Unaware(Neighbourhood):
    """A control: proposals taken for symmetric."""

    def propose(self, mask, uniforms):
        return super().propose(mask, uniforms)[0], 0.0


class _Symmetric(TemperedChain):
    def __init__(self, moves, *others):
        super().__init__(_Unaware(moves.prior), *others)


class _Unweighted(TemperedChain):
    """A control: the prior over collections is left out."""

    def move(self, mask, temperature, uniforms):
        other, log_ratio = self.neighbourhood.propose(mask, uniforms)
        gain = (self.log_evidence(other) - self.log_evidence(mask)) / temperature + log_ratio
        return other if gain >= 0 or uniforms[3] < math.exp(gain) else mask


SIZES = {"conjugate": 500, "unit": 400}


@pytest.mark.parametrize("kind", SIZES)
def test_sweeps_leave_the_joint_law_unchanged(kind):
    assert_joint_law(Case(kind), SIZES[kind], 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_more_sweeps_leave_the_joint_law_unchanged(kind):
    assert_joint_law(Case(kind), 20_000 if kind == "conjugate" else 8_000, 2)


@pytest.mark.parametrize(
    ("kind", "times", "wrong"),
    [
        ("conjugate", 1, _Unweighted),
        pytest.param("conjugate", 20, _Symmetric, marks=pytest.mark.slow),
        ("unit", 1, CarelessChain),
    ],
    ids=["prior", "moves", "theta"],
)
def test_control_sweeps_that_forget_a_density_change_the_joint_law(kind, times, wrong, monkeypatch):
    monkeypatch.setattr(jumps, "TemperedChain" if kind == "conjugate" else "JumpChain", wrong)
    with pytest.raises(AssertionError, match=r"largest z score|draws:"):
        assert_joint_law(Case(kind), times * SIZES[kind], 3)


# Ranks


class Size(NamedTuple):
    """How much is simulated: data sets, draws of each, sweeps from one draw to the next, bins of ranks."""

    replications: int
    num_draws: int
    thinning: int
    num_bins: int


SHORT, LONG = Size(100, 9, 3, 5), Size(1_000, 19, 5, 20)


def drawn(case, kernel, counts, size, seed):
    """Quantities of draws of a new chain, (num_draws, quantities)."""
    kernel.initial_params = {"gamma": torch.zeros(case.prior.event_shape)}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kernel.setup(0)
    params, found = kernel.initial_params, []
    for step in range(BURN_IN + size.num_draws * size.thinning):
        params = kernel.sample(params)
        if step >= BURN_IN and (step - BURN_IN) % size.thinning == size.thinning - 1:
            found.append(case.quantities(params["gamma"].numpy(), params.get("theta"), counts, kernel))
    return np.stack(found)


def assert_calibrated(case, size, seed):
    """Ranks are uniform with ties broken at random, and inclusion is right in each of four bins."""
    rng, ranks, off = np.random.default_rng(seed), [], []
    num_free = case.prior.space.num_free
    for k in range(size.replications):
        truth = case.draw(rng)
        kernel = case.kernel(truth.counts)
        first, second = (drawn(case, kernel, truth.counts, size, 2 * k + chain) for chain in (0, 1))
        true = case.quantities(truth.gamma, torch.from_numpy(truth.theta), truth.counts, kernel)
        ties = (np.abs(first - true) < 1e-9).sum(0)
        ranks.append((first < true - 1e-9).sum(0) + rng.integers(0, ties + 1))
        bins = np.minimum(4 * second[:, :num_free].mean(0), 3).astype(int)
        off.append([((true - first.mean(0))[:num_free] * (bins == b)).sum() for b in range(4)])
    names = ["x".join(edge) for edge in case.prior.space.candidates] + ["size"]
    names += [] if case.collapsed else [f"theta {k}" for k in range(7)]
    assert_uniform_ranks(
        np.stack(ranks),
        size.num_draws,
        num_bins=size.num_bins,
        alpha=FALSE_ALARM_RATE / 2,
        names=[*names, "likelihood"],
    )
    z = np.mean(off, 0) / np.std(off, 0, ddof=1) * math.sqrt(size.replications)
    assert np.abs(z).max() < z_limit(2 * 4), z


@pytest.mark.parametrize("size", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
@pytest.mark.parametrize("kind", SIZES)
def test_truths_rank_uniformly_and_inclusion_is_what_it_says(kind, size):
    assert_calibrated(Case(kind), size, 1)


@pytest.mark.parametrize("kind", SIZES)
def test_control_of_another_prior_over_collections(kind):
    with pytest.raises(AssertionError, match=r"size.*not uniform"):
        assert_calibrated(Case(kind, inclusion=0.6), SHORT, 2)
