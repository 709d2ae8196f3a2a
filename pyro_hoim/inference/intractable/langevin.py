"""Unadjusted Langevin dynamics as a Pyro kernel, where the gradient of log Z is an estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from typing_extensions import override

from ...errors import check_choice, check_positive, check_whole, is_real, out_of_range, refused
from ._kernel import Evaluation, IntractableKernel, IntractableProgram, Values, where
from ._sites import IntractableSite, Particles, SiteData

Gradient = Literal["auto", "backend", "persistent"]
Preconditioner = Literal["pseudo-likelihood", "none"]

_MOST_GIBBS_CELLS = 2**28


class _Chain(NamedTuple):
    """What a run of the kernel is made of."""

    program: IntractableProgram
    means: dict[str, Particles | None]
    factor: torch.Tensor


class Langevin(IntractableKernel):
    r"""Steps along estimated gradients of the log posterior with noise, and no acceptance: near the posterior, cheaply.

    .. math:: \theta_{t+1} = \theta_t + \tfrac{\epsilon_t}{2} \Sigma\, \hat g(\theta_t)
        + \sqrt{\epsilon_t}\, \Sigma^{1/2} \xi_t, \qquad
        \hat g = \nabla \log \pi(\theta) + J^\top \bigl(t(x) - N\, \hat E_\theta\, t\bigr)

    with standard normal :math:`\xi`, t the statistics of the data, J the derivative of the natural parameters and
    :math:`\Sigma` the inverse curvature at the mode, so that 1 is a large step. The mean :math:`\hat E_\theta\, t`, the
    gradient of log Z, comes from the backend of the observed law, exact or annealed, or from Gibbs chains that are kept
    from step to step and follow theta. Programs are those of :class:`~pyro_hoim.inference.Exchange`; log Z may be
    random or unknown, since none is ever compared.

    There is no rejection, so :attr:`is_exact` is always False. Where the posterior is normal with the variance
    :math:`\Sigma`, stationary variances are too large by the factor

    .. math:: \frac{1 + \frac{\epsilon}{4} \frac{N}{M}}{1 - \frac{\epsilon}{4}}

    for N rows and a mean over M independent states: the bias falls with the step, and the draws remember each other for
    about :math:`2 / \epsilon` steps. Choose M no smaller than N, and halve the step to see what changes. Chains that
    mix slowly make M effectively smaller, and lag behind theta. Moves to where there is no density are not made and
    count as divergences.

    Args:
        program: the Pyro program.
        sites: latent sites to move; all when None. Others keep the values that they are given.
        gradient: "backend": means by the backend of the law, such as ``AnnealedImportance``, at every step;
            "persistent": by kept Gibbs chains; "auto": by the backend where log Z is within its reach, else by chains.
        num_particles: kept Gibbs chains for each vector of parameters.
        num_sweeps: their sweeps at every step, over which means are taken.
        step_size: :math:`\epsilon`, positive.
        decay: :math:`\gamma` from 0 to 1 of steps that fall after warm-up of W transitions as
            :math:`\epsilon_t = \epsilon (1 + (t - W) / W)^{-\gamma}`; 0 is a constant step. Weigh draws by
            ``sample_stats["step_size"]`` then.
        preconditioner: "pseudo-likelihood": :math:`\Sigma` is the inverse curvature of the posterior at its mode, where
            log Z is cheap that of the exact one, else that of the pseudo-likelihood; "none": the identity, so that
            steps are in squared units of the unconstrained coordinates.
        num_chains: None for one chain without a dimension of its own, which is what ``pyro.infer.MCMC`` expects; a
            number puts a dimension of so many chains in front of every value.

    Shape:
        values (\*shape of the unconstrained site), or (num_chains, \*shape).

    Raises:
        InputError: numbers out of range; at :meth:`setup`, what :class:`~pyro_hoim.inference.Exchange` refuses, or
            "backend" where log Z is beyond its reach.
        InputTypeError: no program.

    Warns:
        ConvergenceWarning: weights of an annealed backend are degenerate.

    Randomness:
        PyTorch's global generator, so ``pyro.set_rng_seed`` makes a run reproducible.

    References:
        Max Welling and Yee Whye Teh, Bayesian learning via stochastic gradient Langevin dynamics, ICML 2011, equation
        4, for estimated gradients and falling steps. Iain Murray and Zoubin Ghahramani, Bayesian learning in undirected
        graphical models: approximate MCMC algorithms, UAI 2004, for brief sampling in the gradient.

    Example:
        >>> from functools import partial
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> from pyro_hoim.inference import log_linear_model, run_mcmc
        >>> from pyro_hoim.log_linear import normal_prior
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> counts = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
        >>> program = partial(log_linear_model, hypergraph, normal_prior(hypergraph, dtype=torch.float64), counts, 40)
        >>> run = run_mcmc(Langevin(program), 20, burn_in=20, num_chains=64, seed=1, progress=False)
        >>> run.samples["theta"].shape, bool(run.sample_stats["is_exact"].any())
        (torch.Size([64, 20, 2]), False)
    """

    _recorded: ClassVar[tuple[str, ...]] = ("step_size", "is_diverging")

    def __init__(
        self,
        program: Callable[..., Any],
        *,
        sites: Sequence[str] | None = None,
        gradient: Gradient = "auto",
        num_particles: int = 256,
        num_sweeps: int = 1,
        step_size: float = 0.1,
        decay: float = 0.0,
        preconditioner: Preconditioner = "pseudo-likelihood",
        num_chains: int | None = None,
    ) -> None:
        check_choice(gradient, ("auto", "backend", "persistent"), "gradient")
        check_choice(preconditioner, ("pseudo-likelihood", "none"), "preconditioner")
        check_positive(step_size, "step_size")
        if not is_real(decay) or not 0 <= decay <= 1:
            raise out_of_range("decay", "a number from 0 to 1", decay)
        self.num_particles = check_whole(num_particles, "num_particles")
        self.num_sweeps = check_whole(num_sweeps, "num_sweeps")
        self.step_size, self.decay = float(step_size), float(decay)
        self._gradient: Gradient = gradient
        self._preconditioner: Preconditioner = preconditioner
        super().__init__(program, sites, num_chains)

    # The protocol of Pyro's kernels

    @override
    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        finds_mode = self._preconditioner == "pseudo-likelihood"
        program, points, normal = self._begin(warmup_steps, args, kwargs, finds_mode=finds_mode)
        identity = torch.eye(program.size, dtype=torch.float64)
        factor = identity if normal is None else torch.linalg.cholesky(normal[1])
        # Sites whose log Z the backend differentiates need no chains.
        present = program.evaluate(points)
        means = {
            name: self._means_of(site, present.naturals[name], present.data[name])
            for name, site in program.sites.items()
        }
        self._chain = _Chain(program, means, factor)
        self._present = program.attached(points)
        self._settle(program, points, is_exact=False)

    def _means_of(self, site: IntractableSite, natural: torch.Tensor, data: SiteData) -> Particles | None:
        """Kept Gibbs chains for the means of a site; None where its backend gives them."""
        if not natural.shape[1]:
            return None
        if self._gradient != "persistent" and site.backend_means(natural[:1, 0]) is not None:
            return None
        if self._gradient == "backend":
            problem = "its log Z is beyond the reach of its backend"
            hint = "use gradient='persistent', or give the law partition=AnnealedImportance()"
            raise refused(f"site {site.name!r}", problem, hint, code="over-budget")
        cells = natural.shape[0] * natural.shape[1] * self.num_particles * len(site.law.domain)
        if cells > _MOST_GIBBS_CELLS:
            problem = f"Gibbs chains for every vector of parameters hold {cells:.3g} values"
            raise refused("num_particles", problem, f"the limit is {_MOST_GIBBS_CELLS}; take fewer chains")
        seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64))
        return site.particles(site, natural, data, self.num_particles, seed)

    @override
    def sample(self, params: Mapping[str, torch.Tensor]) -> Values:
        """One step from the given values, which need not be those of the last one."""
        chain: _Chain = self._set_up()
        program = chain.program
        # Values that were changed from outside are evaluated anew.
        points = self._taken(params)
        if self._present is None or any(not torch.equal(points[n], v) for n, v in self._present[0].items()):
            self._present = program.attached(points)
        leaves, present = self._present
        points = {name: value.detach() for name, value in leaves.items()}
        # Half a step along the gradient, and noise of its variance, both in the shape of the posterior.
        step, vectors = self._step(), program.flat(points)
        slope = program.flat(self._slopes(chain, leaves, present))
        noise = torch.randn(vectors.shape, dtype=torch.float64)
        move = (step / 2 * slope @ chain.factor + math.sqrt(step) * noise) @ chain.factor.mT
        there, evaluated = program.attached(program.unflat(vectors + move, points))
        # A chain that would leave the support stays where it is.
        is_valid = program.is_valid(evaluated)
        if not bool(is_valid.all()):
            there, evaluated = program.attached({n: where(is_valid, value, points[n]) for n, value in there.items()})
        self._present = (there, evaluated)
        self._num_transitions += 1
        if self._num_transitions > self._warmup_steps:
            self._record["step_size"].append(torch.full((len(is_valid),), step, dtype=torch.float64))
            self._record["is_diverging"].append((~is_valid).double())
        return {name: self._emitted(value.detach()) for name, value in there.items()}

    def _step(self) -> float:
        """Size of the next step."""
        after = max(0, self._num_transitions - self._warmup_steps)
        return self.step_size * (1 + after / max(1, self._warmup_steps)) ** -self.decay

    def _slopes(self, chain: _Chain, leaves: Values, present: Evaluation) -> Values:
        """Estimated gradients of the log posterior by site, at the points that are attached."""
        total = present.log_density.sum()
        # The gradient of log Z is the mean of the statistics: that of the data less an estimate of it.
        for name, natural in present.naturals.items():
            data, at, particles = present.data[name], natural.detach(), chain.means[name]
            if particles is None:
                means = chain.program.sites[name].backend_means(at.flatten(0, 1))
                assert means is not None
                means = means.reshape(at.shape)
            else:
                means = particles.means(at, self.num_sweeps)
            total = total + (natural * (data.statistics - data.total.unsqueeze(-1) * means)).sum()
        moved = chain.program.moved
        slopes = torch.autograd.grad(total, [leaves[name] for name in moved], materialize_grads=True)
        return dict(zip(moved, slopes, strict=True))

    @override
    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """The present step, for the progress bar."""
        return {"step": f"{self._step():.3g}"}
