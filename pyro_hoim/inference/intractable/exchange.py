"""The exchange algorithm as a Pyro kernel: exact posteriors of parameters without their normalising constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from typing_extensions import override

from ...errors import check_choice, check_whole, out_of_range, refused
from ._kernel import Evaluation, IntractableKernel, IntractableProgram, Values, where
from ._sites import IntractableSite, SiteData

# Proposals of unconstrained parameters: their shape, and how warm-up scales it.

ProposalName = Literal["pseudo-likelihood", "autoregressive", "adaptive"]

_BEST = 2.38
_TARGET = 0.234
_DECAY = 0.6
_GAIN = 2.0
_HALVES = (4, 3, 2, 1)
_LEAST_STEPS = 8
_FIRST_SCALE = 0.1
_WIDER = 1.1
_MOST_LOG_SCALE = 5.0


def definite(covariance: torch.Tensor) -> torch.Tensor:
    """A covariance with its smallest variances raised so that it has a Cholesky factor."""
    spread = covariance.diagonal().mean().clamp(min=1e-12)
    return covariance + 1e-6 * spread * torch.eye(len(covariance), dtype=torch.float64)


class RandomWalk:
    r"""Steps :math:`s\,(2.38 / \sqrt P)\,L\,\epsilon` with a scale s that warm-up tunes to an acceptance of 0.234.

    Args:
        covariance: :math:`L L^\top`, (P, P).
        warmup_steps: transitions of warm-up; where the covariance is learned from them (Haario, Saksman and Tamminen,
            2001) it is found anew at 1/16, 1/8, ... 1/2 of them, from the draws since the last time. None keeps it.
    """

    def __init__(self, covariance: torch.Tensor, warmup_steps: int | None = None) -> None:
        self._size = len(covariance)
        self._factor = torch.linalg.cholesky(covariance)
        self._learns = [] if warmup_steps is None else sorted({max(_LEAST_STEPS, warmup_steps >> k) for k in _HALVES})
        self._log_scale = math.log(_FIRST_SCALE) if self._learns else 0.0
        self._steps = self._since = 0
        self._kept: list[torch.Tensor] = []

    @property
    def scale(self) -> float:
        """The present scale s."""
        return math.exp(self._log_scale)

    @property
    def _width(self) -> float:
        """Standard deviation of a step in units of the shape."""
        return self.scale * _BEST / math.sqrt(self._size)

    def propose(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Proposals from vectors (C, P), and what their density adds to the log ratio, (C,)."""
        noise = torch.randn(vectors.shape, dtype=torch.float64) @ self._factor.mT
        return vectors + self._width * noise, torch.zeros(len(vectors), dtype=torch.float64)

    def adapt(self, acceptance: float, vectors: torch.Tensor) -> None:
        """Learn from one transition of warm-up: its mean acceptance and where the chains are, (C, P)."""
        self._steps, self._since = self._steps + 1, self._since + 1
        change = (acceptance - _TARGET) * _GAIN / self._since**_DECAY
        self._log_scale = min(self._log_scale + change, _MOST_LOG_SCALE)
        if not self._learns:
            return
        # The covariance of the draws since the last time becomes the shape, and the scale starts anew.
        self._kept.append(vectors)
        if self._steps >= self._learns[0]:
            draws = torch.cat(self._kept)
            if len(draws) > self._size:
                self._factor = torch.linalg.cholesky(definite(torch.cov(draws.mT).reshape(self._size, self._size)))
                self._log_scale, self._since = 0.0, 0
            self._kept.clear()
            self._learns.pop(0)


class Autoregression(RandomWalk):
    r"""Steps :math:`m + \sqrt{1 - b^2} (\theta - m) + b L \epsilon` with a width b that warm-up tunes.

    They leave a normal law about the mode m invariant, a little wider than the Laplace approximation, so that the ratio
    is that of the posterior to this law: nearly constant where there are many rows.
    """

    def __init__(self, mode: torch.Tensor, covariance: torch.Tensor) -> None:
        super().__init__(_WIDER**2 * covariance)
        self._mode = mode

    @property
    @override
    def _width(self) -> float:
        return min(super()._width, 1.0)

    @override
    def propose(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        away, width = vectors - self._mode, self._width
        noise = torch.randn(vectors.shape, dtype=torch.float64) @ self._factor.mT
        proposed = math.sqrt(1 - width**2) * away + width * noise
        return self._mode + proposed, self._depth(proposed) - self._depth(away)

    def _depth(self, away: torch.Tensor) -> torch.Tensor:
        """Minus the log density of the law that is left invariant, up to a constant, (C,)."""
        return torch.linalg.solve_triangular(self._factor, away.mT, upper=False).square().sum(0) / 2


# Auxiliary data of the exchange algorithm: log weights of a path from a proposal back to the present parameters.

Kind = Literal["auto", "perfect", "gibbs"]

_MOST_GIBBS_CELLS = 2**28


class AuxiliaryData:
    r"""Auxiliary data sets of one site, perfect or by Gibbs chains that start at the data.

    .. math:: \log w = \sum_{k=0}^{K} (\eta_{k+1} - \eta_k) \cdot t(y_k), \qquad
        \eta_k = \eta' + \tfrac{k}{K + 1} (\eta - \eta'), \quad y_0 \sim p(\cdot \mid \eta')

    where :math:`y_k` follows from :math:`y_{k-1}` by a reversible transition that leaves :math:`p(\cdot \mid \eta_k)`
    invariant: K bridges. Where draws are perfect that transition draws all rows anew. Its mean weight is
    :math:`Z(\eta)^N / Z(\eta')^N`.
    """

    def __init__(self, site: IntractableSite, kind: Kind, natural: torch.Tensor, num_bridges: int) -> None:
        can_draw = site.draws_perfectly(natural[:1, 0]) if natural.shape[1] else True
        if kind == "perfect" and not can_draw:
            problem = f"site {site.name!r} has no perfect draws"
            raise refused("auxiliary", problem, "use 'gibbs' or 'auto'", code="no-method")
        self.is_perfect = can_draw and kind != "gibbs"
        self._site, self._num_bridges = site, num_bridges
        self._chains: Any = None
        self._key: tuple[Any, ...] = ()

    def log_weights(
        self, start: torch.Tensor, end: torch.Tensor, data: SiteData, *, copies: int = 1, num_sweeps: int = 0
    ) -> torch.Tensor:
        """Log weights (copies, chains) between natural parameters (chains, G, num_terms)."""
        if not float(data.total.sum()):
            return torch.zeros(copies, len(start), dtype=torch.float64)
        if self.is_perfect:
            return self._perfect(start, end, data.total, copies)
        # Chains are kept while data and shape stay, and told new parameters.
        key = (id(data), start.shape, copies)
        if self._chains is None or key != self._key:
            width = self._site.law.domain
            cells = start.shape[0] * copies * float(data.total.max()) * len(width) * start.shape[1]
            if cells > _MOST_GIBBS_CELLS:
                problem = f"Gibbs chains for every row of every auxiliary data set hold {cells:.3g} values"
                raise refused("num_chains", problem, f"the limit is {_MOST_GIBBS_CELLS}; take fewer chains")
            seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64))
            self._chains, self._key = self._site.chains(self._site, start, data, copies, seed), key
            self._data = data  # keeps the identity in the key alive
        return self._chains.log_weights(start, end, num_sweeps, self._num_bridges)

    def _perfect(self, start: torch.Tensor, end: torch.Tensor, total: torch.Tensor, copies: int) -> torch.Tensor:
        # All laws of the path draw at once, each for every copy.
        steps = self._num_bridges + 1
        share = torch.arange(steps, dtype=torch.float64).reshape(-1, 1, 1, 1) / steps
        path = start + share * (end - start)
        shape = (copies, *path.shape)
        natural = path.expand(shape).reshape(-1, path.shape[-1])
        drawn = self._site.draw(natural, total.expand(shape[:-1]).reshape(-1)).reshape(shape)
        return (drawn.mean(1) * (end - start)).sum((-1, -2))


# Whether the Gibbs chains of auxiliary data made enough sweeps: what twice as many would change.

_MANY_ERRORS = 4.0


@dataclass(frozen=True, eq=False)
class SweepCheck:
    r"""What auxiliary data sets say of proposals after some sweeps and after twice as many.

    Chains that start at the data and stop too early give auxiliary data that are too close to the data, so that the log
    ratio is too high on average. A :attr:`change` within its noise is no proof: chains that mix very slowly change
    nothing by twice the sweeps.

    Attributes:
        num_sweeps: sweeps.
        log_ratios: what auxiliary data add to the log ratios of proposals, (proposals,), nats.
        doubled: the same, from other data after twice the sweeps.
    """

    num_sweeps: int
    log_ratios: torch.Tensor
    doubled: torch.Tensor

    @property
    def change(self) -> float:
        """Mean fall of the log ratio by twice the sweeps, nats."""
        return float((self.log_ratios - self.doubled).mean())

    @property
    def std_error(self) -> float:
        """Standard error of :attr:`change`."""
        difference = self.log_ratios - self.doubled
        return float(difference.std()) / math.sqrt(len(difference))

    @property
    def is_changed(self) -> bool:
        """Whether the change is beyond four standard errors: the sweeps were too few."""
        return abs(self.change) > _MANY_ERRORS * self.std_error

    def __repr__(self) -> str:
        verdict = "too few" if self.is_changed else "no change seen"
        change = f"{self.change:.3g} +- {self.std_error:.2g} nats"
        return f"SweepCheck({self.num_sweeps} sweeps against {2 * self.num_sweeps}: {change}, {verdict})"


class _Chain(NamedTuple):
    """What a run of the kernel is made of."""

    program: IntractableProgram
    auxiliary: dict[str, AuxiliaryData]
    walk: RandomWalk


class Exchange(IntractableKernel):
    r"""Metropolis moves of theta whose acceptance needs no normalising constant: auxiliary data are exchanged.

    .. math:: \log r = \log \frac{\pi(\theta')}{\pi(\theta)}
        + \log \frac{f(x \mid \theta')}{f(x \mid \theta)} + \log \frac{f(w \mid \theta)}{f(w \mid \theta')},
        \qquad w \sim p(\cdot \mid \theta')

    with f the unnormalised probability of the data x and of an auxiliary data set w of as many rows; the constants
    cancel. The program observes at least one :class:`~pyro_hoim.log_linear.HierarchicalLogLinear`,
    :class:`~pyro_hoim.log_linear.LogLinearStatistics` or :class:`~pyro_hoim.generalized_root.GeneralizedRoot` whose
    parameters depend on latent continuous sites: several, in plates, beside other observed sites, whose
    log-probabilities enter as they are. Rows that share their parameters are summed into statistics first.

    Where w is a perfect draw (small tables, exact backends: ``sample_is_exact``) the posterior is left invariant
    exactly. Else w are states of Gibbs chains, one for every row, that start at the data and make ``num_sweeps`` at
    every proposal; then :attr:`is_exact` is False, and :meth:`check_sweeps` tells what twice the sweeps would change.

    It runs in ``pyro.infer.MCMC`` and in :func:`~pyro_hoim.inference.run_mcmc`, where all chains are one tensor and
    move together: take some hundred short ones. They share the scale of the proposal, which is tuned in warm-up and
    then frozen. It is also a kernel for the continuous sites of :class:`~pyro_hoim.inference.MixedGibbs`.

    Args:
        program: the Pyro program.
        sites: latent sites to move; all when None. Others keep the values that they are given.
        auxiliary: "perfect" or "gibbs" draws of w; "auto" takes perfect ones where there are any.
        num_bridges: steps K of a path from theta' back to theta on which w moves too (Murray's bridging): each halves,
            thirds, ... the variance of log r at the cost of one more draw, or one more sweep.
        num_sweeps: sweeps of Gibbs chains to an auxiliary data set.
        proposal: "pseudo-likelihood": a random walk with the curvature of the posterior at its mode, where log Z is
            cheap that of the exact one, else that of the pseudo-likelihood; "autoregressive": steps drawn towards that
            mode, twice as good where the posterior is nearly normal; "adaptive": a random walk that learns the
            covariance of the draws in warm-up. All are scaled to an acceptance of 0.234 in warm-up.
        num_chains: None for one chain without a dimension of its own, which is what ``pyro.infer.MCMC`` expects; a
            number puts a dimension of so many chains in front of every value.

    Shape:
        values (\*shape of the unconstrained site), or (num_chains, \*shape).

    Raises:
        InputError: numbers out of range, a backend of estimates as ``auxiliary``; at :meth:`setup`, a program without
            such a site, a dependency network, latent discrete sites, scaled sites, "perfect" where draws are not, or
            data outside the support.
        InputTypeError: no program.

    Randomness:
        PyTorch's global generator, so ``pyro.set_rng_seed`` makes a run reproducible.

    References:
        Iain Murray, Zoubin Ghahramani and David MacKay, MCMC for doubly-intractable distributions, UAI 2006. Faming
        Liang, A double Metropolis-Hastings sampler for spatial models, Journal of Statistical Computation and
        Simulation 80, 2010, for chains that start at the data. Gareth Roberts and Jeffrey Rosenthal, Optimal scaling
        for various Metropolis-Hastings algorithms, Statistical Science 16, 2001, for the acceptance.

    Example:
        >>> from functools import partial
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> from pyro_hoim.inference import log_linear_model, run_mcmc
        >>> from pyro_hoim.log_linear import normal_prior
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> counts = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
        >>> program = partial(log_linear_model, hypergraph, normal_prior(hypergraph, dtype=torch.float64), counts, 40)
        >>> run = run_mcmc(Exchange(program), 20, burn_in=20, num_chains=64, seed=1, progress=False)
        >>> run.samples["theta"].shape, bool(run.sample_stats["is_exact"].all())
        (torch.Size([64, 20, 2]), True)
    """

    _recorded: ClassVar[tuple[str, ...]] = ("acceptance_rate", "is_accepted")
    _copies = 1

    def __init__(
        self,
        program: Callable[..., Any],
        *,
        sites: Sequence[str] | None = None,
        auxiliary: Kind = "auto",
        num_bridges: int = 0,
        num_sweeps: int = 200,
        proposal: ProposalName = "pseudo-likelihood",
        num_chains: int | None = None,
    ) -> None:
        if hasattr(auxiliary, "log_partition"):
            problem = "an unbiased estimate of Z gives no unbiased Z^-N, so pseudo-marginal moves with it are not exact"
            raise refused("auxiliary", problem, "use 'gibbs' or 'auto'", code="no-method")
        check_choice(auxiliary, ("auto", "perfect", "gibbs"), "auxiliary")
        check_choice(proposal, ("pseudo-likelihood", "autoregressive", "adaptive"), "proposal")
        self.num_bridges = check_whole(num_bridges, "num_bridges", 0)
        self.num_sweeps = check_whole(num_sweeps, "num_sweeps")
        self._auxiliary: Kind = auxiliary
        self._proposal: ProposalName = proposal
        super().__init__(program, sites, num_chains)

    # What is known of a chain

    @property
    def scale(self) -> float:
        """Scale of the proposal, of which 1 is the best for an exact ratio and a normal posterior."""
        return self._set_up().walk.scale

    # The protocol of Pyro's kernels

    @override
    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        finds_mode = self._proposal != "adaptive"
        program, points, normal = self._begin(warmup_steps, args, kwargs, finds_mode=finds_mode)
        # Steps with the curvature at the mode, or of equal size in every direction, from which warm-up learns.
        if normal is None:
            walk = RandomWalk(torch.eye(program.size, dtype=torch.float64), warmup_steps)
        else:
            walk = RandomWalk(normal[1]) if self._proposal == "pseudo-likelihood" else Autoregression(*normal)
        # Every intractable site has auxiliary data of its own.
        present = program.evaluate(points)
        auxiliary = {
            name: AuxiliaryData(site, self._auxiliary, present.naturals[name], self.num_bridges)
            for name, site in program.sites.items()
        }
        self._chain = _Chain(program, auxiliary, walk)
        self._present = (points, present)
        is_exact = self._copies == 1 and all(one.is_perfect for one in auxiliary.values())
        self._settle(program, points, is_exact=is_exact)

    @override
    def sample(self, params: Mapping[str, torch.Tensor]) -> Values:
        """One transition from the given values, which need not be those of the last one."""
        chain = self._set_up()
        program = chain.program
        # Values that were changed from outside, as by MixedGibbs, are evaluated anew.
        points = self._taken(params)
        if self._present is None or any(not torch.equal(points[n], v) for n, v in self._present[0].items()):
            self._present = (points, program.evaluate(points))
        points, present = self._present
        num_chains = len(present.log_density)
        # A proposal; where it has no density or no law the present parameters stand in its place.
        vectors, correction = chain.walk.propose(program.flat(points))
        proposed = program.unflat(vectors, points)
        evaluated = program.evaluate(proposed)
        is_valid = program.is_valid(evaluated)
        naturals = {name: where(is_valid, value, present.naturals[name]) for name, value in evaluated.naturals.items()}
        # Metropolis and Hastings, with auxiliary data in the place of the constants.
        log_ratio = evaluated.log_density - present.log_density + correction
        log_ratio = log_ratio + self._log_exchange(chain, present, naturals)
        log_ratio = torch.where(is_valid, log_ratio, -math.inf)
        acceptance = log_ratio.clamp(max=0).exp()
        is_accepted = torch.rand(num_chains, dtype=torch.float64) < acceptance
        # What was accepted is known already, and not evaluated again.
        points = {name: where(is_accepted, value, points[name]) for name, value in proposed.items()}
        accepted = {name: where(is_accepted, value, present.naturals[name]) for name, value in naturals.items()}
        log_density = torch.where(is_accepted, evaluated.log_density, present.log_density)
        self._present = (points, Evaluation(log_density, accepted, evaluated.data))
        self._note(chain, acceptance, is_accepted, points)
        return {name: self._emitted(value) for name, value in points.items()}

    def _log_exchange(self, chain: _Chain, present: Evaluation, naturals: Values) -> torch.Tensor:
        """What the intractable sites add to the log ratio, (C,): data at the proposal against auxiliary data."""
        ratios = torch.zeros(self._copies, len(present.log_density), dtype=torch.float64)
        data_part = torch.zeros(len(present.log_density), dtype=torch.float64)
        for name, auxiliary in chain.auxiliary.items():
            start, end, data = naturals[name], present.naturals[name], present.data[name]
            data_part = data_part + ((start - end) * data.statistics).sum((-1, -2))
            ratios = ratios + auxiliary.log_weights(start, end, data, copies=self._copies, num_sweeps=self.num_sweeps)
        return data_part + ratios.logsumexp(0) - math.log(self._copies)

    def _note(self, chain: _Chain, acceptance: torch.Tensor, is_accepted: torch.Tensor, points: Values) -> None:
        """Tune the proposal in warm-up, and keep the statistics of draws after it."""
        self._num_transitions += 1
        if self._num_transitions <= self._warmup_steps:
            chain.walk.adapt(float(acceptance.mean()), chain.program.flat(points))
            return
        self._record["acceptance_rate"].append(acceptance)
        self._record["is_accepted"].append(is_accepted.double())

    def check_sweeps(
        self,
        samples: Mapping[str, torch.Tensor],
        *,
        num_proposals: int = 200,
        model_args: Sequence[Any] = (),
        model_kwargs: Mapping[str, Any] | None = None,
    ) -> SweepCheck:
        r"""What twice the sweeps would change in the log ratios of proposals from draws of a run.

        Args:
            samples: draws of the program's latent sites, constrained, as ``get_samples()`` of a run gives them.
            num_proposals: proposals, each with one auxiliary data set after either number of sweeps.
            model_args: arguments of the program.
            model_kwargs: likewise.

        Shape:
            samples (draws, \*shape of the site).

        Raises:
            InputError: a site is missing, or fewer draws than twice the parameters.
        """
        check_whole(num_proposals, "num_proposals", 2)
        program = IntractableProgram(self.model, model_args, model_kwargs or {}, self._names)
        if missing := [name for name in program.latent if name not in samples]:
            raise refused("samples", f"site {missing[0]!r} is missing", code="missing-part")
        points = {name: program.transforms[name](samples[name].to(program.dtypes[name])) for name in program.latent}
        vectors, size = program.flat(points), program.size
        if len(vectors) < 2 * size:
            raise out_of_range("samples", f"at least {2 * size} draws", received=len(vectors))
        # Proposals of the size that suits a random walk, from draws to places around them.
        factor = torch.linalg.cholesky(definite(torch.cov(vectors.mT).reshape(size, size)))
        chosen = torch.randint(len(vectors), (num_proposals,))
        present = {name: value[chosen] for name, value in points.items()}
        noise = torch.randn(num_proposals, size, dtype=torch.float64) @ factor.mT
        proposed = program.unflat(vectors[chosen] + _BEST / math.sqrt(size) * noise, present)
        here, there = program.evaluate(present), program.evaluate(proposed)
        is_valid = program.is_valid(there)
        # The same proposals are weighted with the number of sweeps and with twice as many.
        log_weights: list[torch.Tensor] = []
        for sweeps in (self.num_sweeps, 2 * self.num_sweeps):
            total = torch.zeros(int(is_valid.sum()), dtype=torch.float64)
            for name, site in program.sites.items():
                start, end = there.naturals[name][is_valid], here.naturals[name][is_valid]
                auxiliary = AuxiliaryData(site, self._auxiliary, here.naturals[name], self.num_bridges)
                total = total + auxiliary.log_weights(start, end, here.data[name], num_sweeps=sweeps)[0]
            log_weights.append(total)
        return SweepCheck(self.num_sweeps, *log_weights)

    @override
    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Mean acceptance of the last transition after warm-up, for the progress bar."""
        rates = self._record["acceptance_rate"]
        return {"acc. prob": f"{float(rates[-1].mean()):.3f}"} if rates else {}


# The exchange algorithm with ratios averaged over several auxiliary data sets: more acceptance, no exactness.


class NoisyExchange(Exchange):
    r"""Metropolis moves with the ratio of constants replaced by an average over M auxiliary data sets.

    .. math:: \log r = \log \frac{\pi(\theta')\, f(x \mid \theta')}{\pi(\theta)\, f(x \mid \theta)}
        + \log \frac1M \sum_{m=1}^M \frac{f(w_m \mid \theta)}{f(w_m \mid \theta')},
        \qquad w_m \sim p(\cdot \mid \theta')

    With M = 1 this is :class:`Exchange`, which is exact; for M above 1 it is not, since the average is not what the
    reversed move would see, and :attr:`is_exact` is False. Its acceptance rises to that of the exact ratio, and its
    stationary law approaches the posterior, with an error of O(1 / M). Bridges raise the acceptance of the exact kernel
    at the same cost.

    Args:
        program: the Pyro program.
        num_auxiliary: auxiliary data sets M.
        sites: as of :class:`Exchange`, and so are the others.
        auxiliary: how auxiliary data are drawn.
        num_bridges: steps of the path of each data set.
        num_sweeps: sweeps of Gibbs chains.
        proposal: the proposal.
        num_chains: the dimension of chains.

    References:
        Pierre Alquier, Nial Friel, Richard Everitt and Aidan Boland, Noisy Monte Carlo: convergence of Markov
        chains with approximate transition kernels, Statistics and Computing 26, 2016, algorithm 2.

    Example:
        >>> from functools import partial
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> from pyro_hoim.inference import log_linear_model, run_mcmc
        >>> from pyro_hoim.log_linear import normal_prior
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> counts = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
        >>> program = partial(log_linear_model, hypergraph, normal_prior(hypergraph, dtype=torch.float64), counts, 40)
        >>> run = run_mcmc(NoisyExchange(program, 3), 5, burn_in=5, num_chains=8, seed=1, progress=False)
        >>> run.samples["theta"].shape, bool(run.sample_stats["is_exact"].any())
        (torch.Size([8, 5, 2]), False)
    """

    def __init__(
        self,
        program: Callable[..., Any],
        num_auxiliary: int = 10,
        *,
        sites: Sequence[str] | None = None,
        auxiliary: Kind = "auto",
        num_bridges: int = 0,
        num_sweeps: int = 200,
        proposal: ProposalName = "pseudo-likelihood",
        num_chains: int | None = None,
    ) -> None:
        super().__init__(
            program,
            sites=sites,
            auxiliary=auxiliary,
            num_bridges=num_bridges,
            num_sweeps=num_sweeps,
            proposal=proposal,
            num_chains=num_chains,
        )
        self._copies = self.num_auxiliary = check_whole(num_auxiliary, "num_auxiliary")
