"""The exchange algorithm as a Pyro kernel: exact posteriors of parameters without their normalising constants."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from typing_extensions import override

from ...errors import check_choice, check_names, check_whole, refused, unexpected, wrong_type
from ._auxiliary import AuxiliaryData, Kind
from ._program import Evaluation, IntractableProgram, Values
from ._proposals import Autoregression, Coordinates, ProposalName, RandomWalk, laplace, learned_walk
from .sweep_check import SweepCheck, compare_sweeps

__all__ = ["Exchange"]

_SPREAD = 2.0
"""Chains start from draws of this multiple of the Laplace approximation's standard deviations."""


class _Chain(NamedTuple):
    """What a run of the kernel is made of."""

    program: IntractableProgram
    coordinates: Coordinates
    auxiliary: dict[str, AuxiliaryData]
    walk: RandomWalk


class Exchange(MCMCKernel):
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
        if not callable(program):
            raise wrong_type("program", "a Pyro program", program)
        if isinstance(sites, str):
            raise wrong_type("sites", "a sequence of names", received=f"the string {sites!r}")
        if hasattr(auxiliary, "log_partition"):
            problem = "an unbiased estimate of Z gives no unbiased Z^-N, so pseudo-marginal moves with it are not exact"
            raise refused("auxiliary", problem, "use 'gibbs' or 'auto'", code="no-method")
        check_choice(auxiliary, ("auto", "perfect", "gibbs"), "auxiliary")
        check_choice(proposal, ("pseudo-likelihood", "autoregressive", "adaptive"), "proposal")
        self.model = program
        self.num_bridges = check_whole(num_bridges, "num_bridges", 0)
        self.num_sweeps = check_whole(num_sweeps, "num_sweeps")
        self.num_chains = None if num_chains is None else check_whole(num_chains, "num_chains")
        self._names = None if sites is None else tuple(sites)
        self._auxiliary: Kind = auxiliary
        self._proposal: ProposalName = proposal
        self._given: Values | None = None
        self.transforms: Any = None  # None makes Pyro's MCMC set the kernel up where chains ran in other processes
        self._clear()

    def _clear(self) -> None:
        self._chain: _Chain | None = None
        self._present: tuple[Values, Evaluation] | None = None
        self._initial: Values = {}
        self._is_exact: bool | None = None
        self._evaluation: str = ""
        self._warmup_steps = self._num_transitions = 0
        self._record: dict[str, list[torch.Tensor]] = {"acceptance_rate": [], "is_accepted": []}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the chain, which belongs to one process; a copy is set up again."""
        bare: Any = object.__new__(type(self))
        vars(bare).update(vars(self))
        bare._clear()
        return {**vars(bare), "transforms": None}

    def with_chains(self, num_chains: int) -> Self:
        """A copy whose values have a leading dimension of ``num_chains`` chains."""
        result = copy.copy(self)
        result.num_chains = check_whole(num_chains, "num_chains")
        result._given = None
        result._clear()
        return result

    # What is known of a chain

    @property
    def is_exact(self) -> bool:
        """Whether the chain that is set up leaves the posterior invariant: all its auxiliary data are perfect draws."""
        if self._is_exact is None:
            raise refused(type(self).__name__, "no chain is set up", "call setup() first", code="missing-part")
        return self._is_exact

    @property
    def evaluation(self) -> str:
        """How the program is evaluated: "together", or "one by one" with the reason; empty before :meth:`setup`."""
        return self._evaluation

    @property
    def scale(self) -> float:
        """Scale of the proposal, of which 1 is the best for an exact ratio and a normal posterior."""
        return self._set_up().walk.scale

    def _set_up(self) -> _Chain:
        if self._chain is None:
            raise refused(type(self).__name__, "no chain is set up", "call setup() first", code="missing-part")
        return self._chain

    @property
    def initial_params(self) -> Values:  # type: ignore[override]
        """Where the chain starts, unconstrained: the values set, or draws around the mode or within two of zero."""
        return {name: self._emitted(value) for name, value in self._initial.items()} or dict(self._given or {})

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor] | None) -> None:
        if params is not None and not (
            isinstance(params, Mapping) and all(isinstance(value, torch.Tensor) for value in params.values())
        ):
            raise wrong_type("initial_params", "a dict of tensors", params)
        self._given = None if params is None else dict(params)

    def _emitted(self, value: torch.Tensor) -> torch.Tensor:
        r"""Values (C, \*shape) as they are handed out."""
        return (value[0] if self.num_chains is None else value).clone()

    def _taken(self, params: Mapping[str, torch.Tensor]) -> Values:
        """Values as they come in with a dimension of chains."""
        return {name: value.unsqueeze(0) if self.num_chains is None else value for name, value in params.items()}

    # The protocol of Pyro's kernels

    @override
    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        self._clear()
        self._warmup_steps = warmup_steps
        program = IntractableProgram(self.model, args, kwargs, self._names)
        coordinates = Coordinates(program)
        num_chains = self.num_chains or 1
        points = program.valid_points(num_chains) if self._given is None else self._checked(program, num_chains)
        if self._proposal == "adaptive":
            walk = learned_walk(coordinates.size, warmup_steps)
        else:
            mode, covariance = laplace(program, coordinates, points)
            is_walk = self._proposal == "pseudo-likelihood"
            walk = RandomWalk(covariance) if is_walk else Autoregression(mode, covariance)
            if self._given is None:
                points = self._around(program, coordinates, points, mode, covariance)
        found = program.evaluate(points)
        auxiliary = {
            name: AuxiliaryData(site, self._auxiliary, found.naturals[name], self.num_bridges)
            for name, site in program.sites.items()
        }
        self._chain = _Chain(program, coordinates, auxiliary, walk)
        self._present = (points, found)
        self._initial = points
        self.transforms = program.transforms
        self._is_exact = self._judge([one.is_perfect for one in auxiliary.values()])
        self._evaluation = "together" if program.reason is None else f"one by one, because {program.reason}"

    def _judge(self, is_perfect: Sequence[bool]) -> bool:
        """Whether the kernel is exact, given which sites have perfect auxiliary data."""
        return all(is_perfect)

    def _checked(self, program: IntractableProgram, num_chains: int) -> Values:
        """The initial values that were set, where they are possible."""
        given = self._taken(self._given or {})
        check_names(given, program.latent, "initial_params", "latent site")
        if missing := [name for name in program.latent if name not in given]:
            raise refused("initial_params", f"site {missing[0]!r} is missing", code="missing-part")
        for name, value in given.items():
            expected = (num_chains, *program.shapes[name])
            if tuple(value.shape) != expected:
                shown = expected if self.num_chains is not None else expected[1:]
                found = tuple(value.shape) if self.num_chains is not None else tuple(value.shape[1:])
                raise unexpected(
                    f"initial_params[{name!r}]", f"shape {shown}", received=f"shape {found}", code="wrong-shape"
                )
        points = {name: given[name].detach().to(program.dtypes[name]) for name in program.latent}
        if not bool(program.is_valid(program.evaluate(points)).all()):
            raise unexpected("initial_params", "values of positive density", code="impossible")
        return points

    def _around(
        self,
        program: IntractableProgram,
        coordinates: Coordinates,
        points: Values,
        mode: torch.Tensor,
        covariance: torch.Tensor,
    ) -> Values:
        """Points spread around the mode, and those given where one of them is impossible."""
        noise = torch.randn(self.num_chains or 1, len(mode), dtype=torch.float64)
        near = coordinates.points(mode + _SPREAD * noise @ torch.linalg.cholesky(covariance).mT, points)
        is_valid = program.is_valid(program.evaluate(near))
        return {name: _where(is_valid, value, points[name]) for name, value in near.items()}

    @override
    def sample(self, params: Mapping[str, torch.Tensor]) -> Values:
        """One transition from the given values, which need not be those of the last one."""
        chain = self._set_up()
        program, coordinates = chain.program, chain.coordinates
        points = self._taken(params)
        if self._present is None or any(not torch.equal(points[n], v) for n, v in self._present[0].items()):
            self._present = (points, program.evaluate(points))
        points, present = self._present
        num_chains = len(present.log_density)
        vectors, correction = chain.walk.propose(coordinates.flat(points))
        proposed = coordinates.points(vectors, points)
        found = program.evaluate(proposed)
        is_valid = program.is_valid(found)
        naturals = {name: _where(is_valid, value, present.naturals[name]) for name, value in found.naturals.items()}
        log_ratio = found.log_density - present.log_density + correction
        log_ratio = log_ratio + self._log_exchange(chain, present, naturals)
        log_ratio = torch.where(is_valid, log_ratio, -math.inf)
        acceptance = log_ratio.clamp(max=0).exp()
        is_accepted = torch.rand(num_chains, dtype=torch.float64) < acceptance
        points = {name: _where(is_accepted, value, points[name]) for name, value in proposed.items()}
        kept = {name: _where(is_accepted, value, present.naturals[name]) for name, value in naturals.items()}
        log_density = torch.where(is_accepted, found.log_density, present.log_density)
        self._present = (points, Evaluation(log_density, kept, found.data))
        self._note(chain, acceptance, is_accepted, points)
        return {name: self._emitted(value) for name, value in points.items()}

    def _log_exchange(self, chain: _Chain, present: Evaluation, naturals: Values) -> torch.Tensor:
        """What the intractable sites add to the log ratio, (C,): data at the proposal against auxiliary data."""
        total = torch.zeros(len(present.log_density), dtype=torch.float64)
        for name, auxiliary in chain.auxiliary.items():
            start, end, data = naturals[name], present.naturals[name], present.data[name]
            total = total + ((start - end) * data.statistics).sum((-1, -2))
            total = total + auxiliary.log_weights(start, end, data, num_sweeps=self.num_sweeps)[0]
        return total

    def _note(self, chain: _Chain, acceptance: torch.Tensor, is_accepted: torch.Tensor, points: Values) -> None:
        """Tune the proposal in warm-up, and keep the statistics of draws after it."""
        self._num_transitions += 1
        if self._num_transitions <= self._warmup_steps:
            chain.walk.adapt(float(acceptance.mean()), chain.coordinates.flat(points))
            return
        self._record["acceptance_rate"].append(acceptance)
        self._record["is_accepted"].append(is_accepted.double())

    def clear_cache(self) -> None:
        """Forget what is known of the present values: the program has changed."""
        self._present = None
        if self._chain is not None:
            self._chain.program.forget()

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
        options = self._auxiliary, self.num_bridges, self.num_sweeps
        call = tuple(model_args), dict(model_kwargs or {}), self._names
        return compare_sweeps(self.model, call, options, samples, check_whole(num_proposals, "num_proposals", 2))

    @override
    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Mean acceptance of the last transition after warm-up, for the progress bar."""
        kept = self._record["acceptance_rate"]
        return {"acc. prob": f"{float(kept[-1].mean()):.3f}"} if kept else {}

    @override
    def diagnostics(self) -> dict[str, Any]:
        """No divergences, the acceptance, ``is_exact``, and under ``"sample_stats"`` statistics of every draw.

        With a dimension of chains these are lists of draws of lists of chains.
        """
        record = self._stacked()
        return self._report({n: v[:, 0] if self.num_chains is None else v for n, v in record.items()})

    def chain_diagnostics(self) -> list[dict[str, Any]]:
        """Diagnostics of every chain by itself."""
        record = self._stacked()
        return [
            self._report({name: value[:, i] for name, value in record.items()}) for i in range(self.num_chains or 1)
        ]

    def _stacked(self) -> Values:
        """Statistics (draws, chains)."""
        empty = torch.zeros(0, self.num_chains or 1)
        return {name: torch.stack(values) if values else empty for name, values in self._record.items()}

    def _report(self, record: Values) -> dict[str, Any]:
        exact = torch.full_like(record["acceptance_rate"], float(bool(self._is_exact)))
        statistics = {name: value.tolist() for name, value in {**record, "is_exact": exact}.items()}
        rate = float(record["is_accepted"].mean()) if record["is_accepted"].numel() else math.nan
        return {
            "divergences": [],
            "acceptance rate": rate,
            "is_exact": bool(self._is_exact),
            "evaluation": self._evaluation,
            "sample_stats": statistics,
        }

    @override
    def cleanup(self) -> None:
        """Let go of the chain and of initial values; the diagnostics stay until the next :meth:`setup`."""
        self._chain = self._present = self._given = None


def _where(condition: torch.Tensor, value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """By chain one or the other value (C, ...)."""
    return torch.where(condition.reshape(-1, *(1,) * (value.dim() - 1)), value, other)
