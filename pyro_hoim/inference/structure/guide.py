"""A guide over which interactions exist and their parameters, for stochastic variational inference."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pyro
import torch
from pyro.distributions import Delta, MultivariateNormal, TorchDistribution
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoGuide
from pyro.nn import PyroParam
from torch.distributions import biject_to, constraints

from ...checks import broadcast_shapes, checked_sample_shape
from ...errors import check_choice, check_type, check_whole, conflict, out_of_reach, refused, wrong_type
from .prior import StructurePrior, StructureSpace, StructureSupport, bits_of

# Laws that a guide of structures is made of: indicators one after the other, and parameters given indicators.


class Heredity:
    """Which candidates are free to be present, given those before them; tensors of one space, made once."""

    def __init__(self, space: StructureSpace) -> None:
        num = space.num_free
        facets = np.zeros((num, num))
        for j in range(num):
            facets[j, bits_of(space.facets[j])] = 1
        self.space = space
        self.facets = torch.from_numpy(facets)
        self.needed = torch.tensor(space.needed[:num], dtype=torch.float64)

    def is_free(self, indicators: torch.Tensor) -> torch.Tensor:
        """Candidates whose facets suffice, (..., num_free), from indicators of the same shape."""
        return indicators.to(self.facets) @ self.facets.T >= self.needed


class SequentialStructure(TorchDistribution):
    r"""Indicators drawn one after the other in the order of the candidates, so that facets come before what they bear.

    .. math:: q(\gamma) = \prod_j q(\gamma_j \mid \gamma_{<j}), \qquad
        \operatorname{logit} q(\gamma_j = 1 \mid \gamma_{<j}) = b_j + \sum_{i < j} W_{ji} \gamma_i

    where the facets of candidate j are present as heredity asks, and :math:`\gamma_j = 0` where not: every draw is a
    member of the space. Without W the indicators are independent but for heredity.

    With bias b (num_free,) and of W (num_free, num_free) the part below the diagonal, nats. ``fixed`` is what
    :meth:`sample` answers, (*batch_shape, num_free), for sums over listed members.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}  # type: ignore[override]
    has_rsample = False

    def __init__(
        self,
        heredity: Heredity,
        bias: torch.Tensor,
        weights: torch.Tensor | None = None,
        batch_shape: Sequence[int] = (),
        fixed: torch.Tensor | None = None,
    ) -> None:
        self.heredity, self.bias, self.fixed = heredity, bias, fixed
        self.weights = None if weights is None else weights.tril(-1)
        super().__init__(torch.Size(batch_shape), bias.shape[-1:], validate_args=False)

    @property
    def support(self) -> StructureSupport:  # type: ignore[override]
        """The members of the space."""
        return StructureSupport(self.heredity.space)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> SequentialStructure:
        """The law with another batch shape."""
        return SequentialStructure(self.heredity, self.bias, self.weights, batch_shape, self.fixed)

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Indicators (*sample, *batch, num_free), float64."""
        if self.fixed is not None:
            return self.fixed
        with torch.no_grad():
            shape = checked_sample_shape(sample_shape, self.batch_shape.numel() * len(self.bias)) + self.batch_shape
            drawn = self.bias.new_zeros((*shape, len(self.bias)))
            for j in range(len(self.bias)):
                logit = self.bias[j].expand(shape)
                if self.weights is not None:
                    logit = logit + drawn @ self.weights[j]
                is_free = drawn @ self.heredity.facets[j] >= self.heredity.needed[j]
                drawn[..., j] = torch.bernoulli(torch.sigmoid(logit)) * is_free
            return drawn

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-probability, nats; minus infinity outside the space."""
        value = value.to(self.bias.dtype)
        logits = self.bias if self.weights is None else self.bias + value @ self.weights.T
        terms = torch.nn.functional.logsigmoid(torch.where(value == 1, logits, -logits))
        # A candidate whose facets are missing is absent with certainty.
        is_free = self.heredity.is_free(value)
        forbidden = ((value == 1) & ~is_free).any(-1)
        total = torch.where(is_free, terms, 0.0).sum(-1)
        shape = broadcast_shapes(total.shape, self.batch_shape)
        return total.masked_fill(forbidden, -math.inf).expand(shape)


def present_normal(
    mean: torch.Tensor,
    factor: torch.Tensor,
    absent_mean: torch.Tensor,
    absent_scale: torch.Tensor,
    is_present: torch.Tensor,
) -> torch.distributions.MultivariateNormal:
    r"""The normal law of coordinates given that some are absent: those present follow the law given zeros elsewhere.

    .. math:: \theta_p \mid \theta_a = 0 \sim \mathcal N\big(\mu_p + \Lambda_{pp}^{-1} \Lambda_{pa} \mu_a,
        \Lambda_{pp}^{-1}\big), \qquad \Lambda = L L^\top

    which is the posterior of every collection at once where the log-likelihood of the largest one is quadratic. Absent
    coordinates are independent normals of their own, which become the prior.

    Shape:
        mean, absent_mean, absent_scale (P,); factor L (P, P), lower triangular; is_present (*batch, P), 0 or 1; event
        shape (P,), batch (*batch).
    """
    # Absent coordinates are cut out of the precision, with a diagonal of their own in their place.
    precision = factor @ factor.mT
    outer = is_present.unsqueeze(-1) * is_present.unsqueeze(-2)
    precision_alone = torch.where(is_present == 1, torch.zeros_like(absent_scale), absent_scale.square().reciprocal())
    masked = precision * outer + torch.diag_embed(precision_alone)
    pull = (precision @ (mean * (1 - is_present)).unsqueeze(-1)).squeeze(-1) * is_present
    # A factor of the precision with its coordinates in reverse order is, turned back, the inverse of the covariance's.
    inverse = torch.linalg.cholesky(masked.flip(-2, -1)).flip(-2, -1).mT
    covariance_root = torch.linalg.solve_triangular(inverse, torch.eye(len(mean), dtype=mean.dtype), upper=False)
    shift = (covariance_root @ (covariance_root.mT @ pull.unsqueeze(-1))).squeeze(-1)
    loc = torch.where(is_present == 1, mean + shift, absent_mean)
    return torch.distributions.MultivariateNormal(loc, scale_tril=covariance_root, validate_args=False)


Dependence = Literal["autoregressive", "mean-field"]
Gradient = Literal["auto", "enumerate", "score"]

_MAX_ENUMERATED = 2**10
_WORTH = 4
"""Members per draw up to which "auto" takes the sum, which has no noise; beyond, more steps with draws do better."""
_MODE_STEPS, _NUM_STARTS = 100, 15
_LEAST_PRECISION, _START_SCALE = 1e-2, 0.1


class AutoStructure(AutoGuide):
    r"""A guide for programs with a :class:`~pyro_hoim.inference.StructurePrior` site and the parameters of its edges.

    .. math:: q(\gamma, \theta) = q(\gamma) \, \mathcal N\big(\theta_\gamma \mid \mu, \Lambda, \gamma\big)

    Indicators are drawn one after the other, facets before what they bear, so that every draw keeps heredity. With
    ``dependence="autoregressive"`` each may depend on all before it; with ``"mean-field"`` on none, which cannot follow
    interactions that stand for one another. Parameters are normal given the indicators: one normal law of the largest
    collection, given that the parameters of absent interactions are zero, which is the posterior of all collections at
    once where log-likelihoods are quadratic. Absent interactions have normals of their own, which become the prior.
    Other continuous sites are part of the same normal law, in unconstrained space. The law starts at the mode and
    curvature of theta in the program with all interactions present.

    Use it with its own loss, ``SVI(program, guide, optimiser, guide.elbo())``; Pyro's ``Trace_ELBO`` works and has
    gradients of far higher variance.

    Args:
        model: the program; one run draws one structure.
        dependence: of indicators on those before them.
        theta_site: name of the site of parameters, (largest.num_parameters,) over the real line. The program multiplies
            it by :meth:`~pyro_hoim.inference.StructurePrior.parameter_mask`.

    Shape:
        draws of the structure site (candidates,), float64; of others as the program has them.

    Raises:
        InputError: on first use: a program without structure site or with several, with other discrete sites, or
            without the site ``theta_site`` of the right shape; a graphical or decomposable space, whose members
            heredity alone does not tell.

    Randomness:
        PyTorch's global generator.

    References:
        Andriy Mnih and Karol Gregor, Neural variational inference and learning in belief networks, ICML 2014, for
        autoregressive binary laws; Wouter Kool, Herke van Hoof and Max Welling, Buy 4 REINFORCE samples, get a baseline
        for free, 2019, for the gradient.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.inference import structure_model
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[9, 1], [1, 9]])
        >>> program = structure_model(rows)
        >>> guide = AutoStructure(program)
        >>> {name: value.shape for name, value in guide().items()}
        {'gamma': torch.Size([1]), 'theta': torch.Size([3])}
        >>> guide.inclusion().tolist()  # before a fit, as likely as not
        [0.5]
    """

    bias: Any  # PyroParam on the way in, a tensor on the way out
    weights: Any
    mean: Any
    factor: Any
    absent_mean: Any
    absent_scale: Any

    def __init__(
        self, model: Callable[..., Any], *, dependence: Dependence = "autoregressive", theta_site: str = "theta"
    ) -> None:
        if not callable(model):
            raise wrong_type("model", "a Pyro program", model)
        check_choice(dependence, ("autoregressive", "mean-field"), "dependence")
        super().__init__(model)
        self.dependence: Dependence = dependence
        self.theta_site = theta_site
        self._fixed: torch.Tensor | None = None

    @property
    def structure_prior(self) -> StructurePrior:
        """The prior of the structure site; known after the first use."""
        return self._structure

    def elbo(self, num_particles: int = 32, *, gradient: Gradient = "auto") -> StructureELBO:
        """The loss for SVI."""
        return StructureELBO(num_particles, gradient=gradient)

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        prototype: Any = self.prototype_trace
        nodes: dict[str, Any] = {
            name: node
            for name, node in prototype.nodes.items()
            if node["type"] == "sample" and not node["is_observed"] and name not in ("_INPUT", "_RETURN")
        }
        # One structure, outside of plates, whose members heredity alone tells.
        sites = [name for name, node in nodes.items() if isinstance(node["fn"], StructurePrior)]
        if len(sites) != 1:
            problem = f"expected one site with a StructurePrior, found {len(sites)}"
            raise refused("model", problem, code="missing-part" if not sites else "conflict")
        (self._site,) = sites
        node = nodes.pop(self._site)
        self._structure: StructurePrior = node["fn"]
        if node["value"].dim() > 1:
            problem = f"the site {self._site!r} stands in a plate or has a batch shape, and one run draws one structure"
            raise refused("model", problem, "take it out of the plate", code="wrong-shape")
        if self._structure.space.is_graphical:
            problem = f"the space {self._structure.space.name!r} is not told by heredity alone"
            raise refused("model", problem, "use space='hierarchical' or 'pairwise'", code="no-method")
        # All other sites are continuous, the parameters of interactions among them.
        for name, node in nodes.items():
            if node["fn"].support.is_discrete:
                raise refused("model", f"the site {name!r} is discrete", "sum it out", code="no-method")
        size = self._structure.largest.num_parameters
        if self.theta_site not in nodes or tuple(nodes[self.theta_site]["value"].shape) != (size,):
            problem = f"it has no site {self.theta_site!r} of shape ({size},)"
            raise refused("model", problem, "name the site by theta_site=...", code="missing-part")
        # The law of the guide, which begins at the mode of the program with all interactions.
        self._heredity = Heredity(self._structure.space)
        self._sites = {self.theta_site: nodes.pop(self.theta_site), **nodes}
        self._transforms = {name: biject_to(node["fn"].support) for name, node in self._sites.items()}
        mean, precision = self._start(args, kwargs)
        num = self._structure.space.num_free
        self.bias = PyroParam(torch.zeros(num, dtype=torch.float64))
        if self.dependence == "autoregressive":
            self.weights = PyroParam(torch.zeros(num, num, dtype=torch.float64))
        self.mean = PyroParam(mean)
        self.factor = PyroParam(torch.linalg.cholesky(precision), constraints.lower_cholesky)
        prior = self._sites[self.theta_site]["fn"]
        # Laws such as Cauchy's have no moments, others do not tell them; the fit finds what is best.
        try:
            centre, spread = (moment.detach().double().clone() for moment in (prior.mean, prior.stddev))
        except NotImplementedError:
            centre, spread = torch.zeros_like(mean[:size]), torch.ones_like(mean[:size])
        is_proper = torch.isfinite(centre) & torch.isfinite(spread)
        self.absent_mean = PyroParam(centre.where(is_proper, torch.zeros_like(centre)))
        self.absent_scale = PyroParam(spread.where(is_proper, torch.ones_like(spread)), constraints.positive)

    def _unpacked(self, latent: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Values of the continuous sites from unconstrained coordinates (*batch, P), and the log Jacobians."""
        values: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        at = 0
        for name, node in self._sites.items():
            transform, shape = self._transforms[name], node["value"].shape
            inner = transform.inv(node["value"]).shape
            size = inner.numel()
            # Dimensions of plates inside the program are ones in the batch.
            batch = latent.shape[: max(latent.dim() - 1 - (len(shape) - node["fn"].event_dim), 0)]
            free = latent[..., at : at + size].reshape((*batch, *inner))
            value = transform(free)
            jacobian = transform.inv.log_abs_det_jacobian(value, free)
            extra = jacobian.dim() - (value.dim() - node["fn"].event_dim)
            values[name] = value, jacobian.flatten(-extra).sum(-1) if extra > 0 else jacobian
            at += size
        return values

    def _log_density(
        self, theta: torch.Tensor, rest: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Log joint density of the program with all interactions present, as a function of their parameters."""
        values = self._unpacked(torch.cat([theta, rest]))
        ones = torch.ones(len(self._structure.space.candidates), dtype=torch.float64)
        given = {self._site: ones, **{name: value for name, (value, _) in values.items()}}
        with pyro.poutine.block():
            trace = pyro.poutine.trace(pyro.poutine.condition(self.model, data=given)).get_trace(*args, **kwargs)
        return cast(torch.Tensor, trace.log_prob_sum())

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and precision to begin with, in unconstrained space.

        Other sites begin at the medians of their priors, since joint modes of hierarchical programs need not exist.
        """
        # Medians of some draws, in unconstrained space.
        pieces: list[torch.Tensor] = []
        for name, node in self._sites.items():
            if name != self.theta_site:
                with torch.random.fork_rng():
                    median = node["fn"].sample(torch.Size([_NUM_STARTS])).median(0).values
                pieces.append(self._transforms[name].inv(median).double().flatten())
        rest = torch.cat([torch.zeros(0, dtype=torch.float64), *pieces])
        # The mode of theta given them, with all interactions present, and its curvature.
        theta = torch.zeros(self._structure.largest.num_parameters, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([theta], max_iter=_MODE_STEPS, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimiser.zero_grad()
            loss = -self._log_density(theta, rest, args, kwargs)
            loss.backward()
            return loss

        optimiser.step(closure)  # pyright: ignore[reportArgumentType]
        mode = theta.detach()
        curvature = cast(
            torch.Tensor, torch.autograd.functional.hessian(lambda x: -self._log_density(x, rest, args, kwargs), mode)
        )
        values, vectors = torch.linalg.eigh((curvature + curvature.mT) / 2)
        # Flat and rising directions get a weak precision, which the fit corrects.
        precision = vectors @ torch.diag(values.clamp(min=_LEAST_PRECISION)) @ vectors.mT
        others = torch.eye(len(rest), dtype=torch.float64) / _START_SCALE**2
        return torch.cat([mode, rest]), torch.block_diag(precision, others)

    @contextmanager
    def fixed(self, indicators: torch.Tensor) -> Generator[None]:
        """Let the structure site answer with given members, (*batch, candidates)."""
        self._fixed = indicators
        try:
            yield
        finally:
            self._fixed = None

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        """Draw all sites of the program."""
        if self.prototype_trace is None:
            self._setup_prototype(*args, **kwargs)
        # Indicators first: they say which parameters follow the normal law.
        weights = self.weights if self.dependence == "autoregressive" else None
        law = SequentialStructure(self._heredity, self.bias, weights, fixed=self._fixed)
        gamma = pyro.sample(self._site, law)
        is_present = self._structure.parameter_mask(gamma)
        mean, absent_mean, absent_scale = self.mean, self.absent_mean, self.absent_scale
        # Sites besides theta are always present.
        others = len(mean) - is_present.shape[-1]
        if others:
            is_present = torch.cat([is_present, is_present.new_ones(*is_present.shape[:-1], others)], -1)
            absent_mean = torch.cat([absent_mean, absent_mean.new_zeros(others)])
            absent_scale = torch.cat([absent_scale, absent_scale.new_ones(others)])
        normal = present_normal(mean, self.factor, absent_mean, absent_scale, is_present)
        law_of_rest = MultivariateNormal(normal.loc, scale_tril=normal.scale_tril, validate_args=False)
        latent = pyro.sample("_AutoStructure_latent", law_of_rest, infer={"is_auxiliary": True})
        # Values of the sites, each in the plates in which the program has it.
        drawn = {self._site: gamma}
        plates = self._create_plates(*args, **kwargs)
        for name, (value, jacobian) in self._unpacked(latent).items():
            event_dim = self._sites[name]["fn"].event_dim
            with ExitStack() as stack:
                for frame in self._sites[name]["cond_indep_stack"]:
                    stack.enter_context(plates[frame.name])
                drawn[name] = pyro.sample(name, Delta(value, log_density=cast(Any, jacobian), event_dim=event_dim))
        return drawn

    def indicator_law(self) -> SequentialStructure:
        """The fitted law of the indicators."""
        weights = self.weights.detach() if self.dependence == "autoregressive" else None
        return SequentialStructure(self._heredity, self.bias.detach(), weights)

    def inclusion(self, num_draws: int = 10_000) -> torch.Tensor:
        """Probability under the guide that each candidate is present, (candidates,); exact where the space is listed.

        Args:
            num_draws: draws that are averaged otherwise.
        """
        law = self.indicator_law()
        if self._structure.is_listed:
            members = self._structure.enumerate_support().double()
            return law.log_prob(members).exp() @ members
        return law.sample(torch.Size([check_whole(num_draws, "num_draws")])).mean(0)


class StructureELBO(Trace_ELBO):
    r"""The negative evidence lower bound of :class:`AutoStructure`, with gradients of low variance.

    .. math:: \mathcal L = \mathbb E_{q(\gamma)} \mathbb E_{q(\theta \mid \gamma)}
        \big[ \log p(x, \theta, \gamma) - \log q(\theta \mid \gamma) - \log q(\gamma) \big]

    The inner expectation is differentiated through its draws. The outer one is a sum over all members
    ("enumerate", up to 2^10 of them), or it is estimated by ``num_particles`` draws whose gradient is that of log q
    times the bound less the mean of the others ("score"), which is unbiased. "auto" sums over up to
    ``4 * num_particles`` members and draws beyond. Relaxed indicators (Concrete laws, straight-through gradients) are
    refused: their gradients are biased.

    Args:
        num_particles: draws, at least 2.
        gradient: as above.

    Raises:
        InputError: numbers out of range, another guide than :class:`AutoStructure`, "relaxed".
        IntractableError: on use: "enumerate" for a space that is larger.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.inference import structure_model
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[9, 1], [1, 9]])
        >>> program = structure_model(rows)
        >>> guide, elbo = AutoStructure(program), StructureELBO(gradient="enumerate")
        >>> svi = pyro.infer.SVI(program, guide, pyro.optim.Adam({"lr": 0.2}), elbo)
        >>> losses = [svi.step() for _ in range(10)]
        >>> bool(guide.inclusion()[0] > 0.5)  # the rows speak for the pair
        True
    """

    def __init__(self, num_particles: int = 32, *, gradient: Gradient = "auto") -> None:
        check_whole(num_particles, "num_particles", 2)
        if cast(str, gradient) == "relaxed":
            problem = "'relaxed' indicators are no members of the space, and gradients through them are biased"
            raise refused("gradient", problem, "use 'score', which has no bias", code="no-method")
        check_choice(gradient, ("auto", "enumerate", "score"), "gradient")
        super().__init__(num_particles=num_particles, vectorize_particles=True)
        self.gradient: Gradient = gradient

    def _members(self, guide: AutoStructure) -> torch.Tensor | None:
        """All members where they are summed over."""
        prior = guide.structure_prior
        num = len(prior.space.members) if prior.space.members is not None else math.inf
        if self.gradient == "score" or (self.gradient == "auto" and num > _WORTH * self.num_particles):
            return None
        if num > _MAX_ENUMERATED:
            problem = f"{prior.space!r} has more than {_MAX_ENUMERATED} members to sum over"
            raise out_of_reach("gradient", problem, "use 'score'")
        return prior.enumerate_support().double()

    def _bounds(
        self, model: Callable[..., Any], guide: AutoStructure, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """Bounds of single draws (K,), log q of their indicators (K,), and whether these are all members."""
        if guide.prototype_trace is None:
            guide._setup_prototype(*args, **kwargs)
        # All members, or draws; outside of all plates, whose depth is found at first use.
        members = self._members(guide)
        size = self.num_particles if members is None else len(members)
        if not math.isfinite(self.max_plate_nesting):
            self._guess_max_plate_nesting(model, guide, args, kwargs)
        nesting = int(self.max_plate_nesting)
        # Collections side by side, outside of all plates of the program.
        plate = pyro.plate("_particles", size, dim=-nesting - 1)
        fixed = None if members is None else members.reshape(size, *(1,) * nesting, -1)

        def guided() -> Any:
            with plate:
                return guide(*args, **kwargs)

        def modelled() -> Any:
            with plate:
                return model(*args, **kwargs)

        if fixed is None:
            guide_trace = pyro.poutine.trace(guided).get_trace()
        else:
            with guide.fixed(fixed):
                guide_trace = pyro.poutine.trace(guided).get_trace()
        model_trace = pyro.poutine.trace(pyro.poutine.replay(modelled, trace=guide_trace)).get_trace()
        # One bound for each collection: log p less log q, summed over the dimensions of plates.
        bound = torch.zeros(size, dtype=torch.float64)
        log_q = bound
        for sign, trace in ((1, model_trace), (-1, guide_trace)):
            trace.compute_log_prob()
            nodes: dict[str, Any] = dict(trace.nodes)
            for name, node in nodes.items():
                if node["type"] == "sample" and "log_prob" in node:
                    log_prob = node["log_prob"]
                    log_prob = log_prob.reshape(*log_prob.shape[: log_prob.dim() - nesting], -1).sum(-1)
                    bound = bound + sign * log_prob
                    if trace is guide_trace and name == guide._site:
                        log_q = log_prob
        return bound, log_q, members is not None

    def loss_and_grads(self, model: Callable[..., Any], guide: Any, *args: Any, **kwargs: Any) -> float:
        """The loss, with its gradients added to those of the parameters."""
        check_type(guide, AutoStructure, "guide")
        bound, log_q, is_sum = self._bounds(model, guide, args, kwargs)
        # A sum has the gradient of its terms; draws that of log q times what they gain over the others.
        if is_sum:
            mean = surrogate = (log_q.exp() * bound).sum()
        else:
            mean = bound.mean()
            others = (bound.sum() - bound) / (len(bound) - 1)
            surrogate = mean + ((bound - others).detach() * log_q).mean()
        if not bool(torch.isfinite(mean)):
            raise conflict("model", "its bound is not finite", "check the scales of priors and the learning rate")
        (-surrogate).backward()
        return -float(mean.detach())

    def loss(self, model: Callable[..., Any], guide: Any, *args: Any, **kwargs: Any) -> float:
        """The loss alone."""
        check_type(guide, AutoStructure, "guide")
        with torch.no_grad():
            bound, log_q, is_sum = self._bounds(model, guide, args, kwargs)
            return -float((log_q.exp() * bound).sum() if is_sum else bound.mean())
