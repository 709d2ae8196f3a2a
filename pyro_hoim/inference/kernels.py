"""Pyro's NUTS with what diagnostics need: a mass matrix that is given, its settings, and what judges its draws."""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, cast

import torch
from pyro.infer import NUTS
from pyro.infer.mcmc.adaptation import BlockMassMatrix
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from scipy import special
from typing_extensions import override

from ..budgets import check_draws
from ..errors import (
    ConvergenceWarning,
    InputError,
    check_fraction,
    check_type,
    check_whole,
    refused,
    unexpected,
    wrong_type,
)

R_HAT_LIMIT = 1.01
"""Largest R-hat of long chains that have converged, the one limit of the library; see :func:`r_hat_limit`."""
_R_HAT_NOISE = 1e-4


def checked_params(params: Mapping[str, torch.Tensor] | None) -> dict[str, torch.Tensor] | None:
    """Initial values as a dict of their own; InputTypeError for what is no dict of tensors."""
    if params is None:
        return None
    if not isinstance(params, Mapping) or not all(isinstance(value, torch.Tensor) for value in params.values()):
        raise wrong_type("initial_params", "a dict of tensors", params)
    return dict(params)


def no_chain(kernel: MCMCKernel) -> InputError:
    """The error about a kernel that is used before its setup."""
    return refused(type(kernel).__name__, "no chain is set up", "call setup() first", code="missing-part")


class LaneKernel(MCMCKernel):
    """A kernel that moves one chain or, with a dimension of chains in front of every value, many at once."""

    num_chains: int | None
    _given: dict[str, torch.Tensor] | None

    def with_chains(self, num_chains: int) -> Self:
        """A copy whose values have a leading dimension of ``num_chains`` chains."""
        result = copy.copy(self)
        result.num_chains = check_whole(num_chains, "num_chains")
        result._given = None
        result._clear()
        return result

    @abstractmethod
    def _clear(self) -> None:
        """Forget the chain."""

    @abstractmethod
    def _statistics(self) -> dict[str, torch.Tensor]:
        """Statistics (draws, chains) of the draws after warm-up."""

    @abstractmethod
    def _report(self, record: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Diagnostics from statistics of one chain (draws,), or of many."""

    @override
    def diagnostics(self) -> dict[str, Any]:
        """What is known of the run, with statistics of every draw after warm-up under ``"sample_stats"``, in nats.

        With a dimension of chains they are lists of draws of lists of chains.
        """
        record = self._statistics()
        return self._report({n: v[:, 0] if self.num_chains is None else v for n, v in record.items()})

    def chain_diagnostics(self) -> list[dict[str, Any]]:
        """Diagnostics of every chain by itself."""
        record = self._statistics()
        return [self._report({n: v[:, i] for n, v in record.items()}) for i in range(self.num_chains or 1)]


class RecordingNUTS(NUTS):
    """Pyro's NUTS, the same draws bit for bit, with per-draw statistics in its diagnostics.

    Pyro keeps only the positions of the divergences and one acceptance rate per chain. This kernel also keeps, for
    every draw after warm-up, the quantities that ArviZ reads from ``sample_stats``; they travel with
    ``diagnostics()``, so they come back from chains in other processes too, and
    :func:`pyro_hoim.interop.to_arviz` finds them. The cost is a few numbers per draw.

    Recorded per draw: ``energy`` (Hamiltonian at the start of the trajectory, nats), ``lp`` (log density of the draw
    in unconstrained space, nats), ``tree_depth``, ``n_steps`` (leapfrog steps), ``acceptance_rate``, ``step_size``
    and ``reached_max_treedepth``.

    Args:
        model: see :class:`pyro.infer.NUTS`, whose other arguments are passed on.
        arguments: further positional arguments of :class:`pyro.infer.NUTS`.
        options: keyword arguments of :class:`pyro.infer.NUTS`.

    References:
        Betancourt, Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo, 2016, for the use of
        the energy.

    Example:
        >>> import pyro
        >>> from pyro_hoim.inference import run_mcmc
        >>> kernel = RecordingNUTS(lambda: pyro.sample("z", pyro.distributions.Normal(0.0, 1.0)))
        >>> run = run_mcmc(kernel, 10, burn_in=10, seed=1, progress=False)
        >>> z = run.samples["z"].double()
        >>> torch.allclose(run.sample_stats["lp"].double(), -z**2 / 2 - math.log(2 * math.pi) / 2, atol=1e-5)
        True
    """

    def __init__(self, model: Any = None, *arguments: Any, **options: Any) -> None:
        super().__init__(model, *arguments, **options)
        self._clear_record()

    def _clear_record(self) -> None:
        self._inside_tree = False
        self._current: dict[str, float] = {}
        self._record: dict[str, list[float]] = {}

    @override
    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        self._clear_record()
        super().setup(warmup_steps, *args, **kwargs)

    @override
    def _build_tree(self, *arguments: Any) -> Any:  # type: ignore[override]
        """Build one subtree; the outermost calls, one per doubling, are noted."""
        if self._inside_tree:
            return super()._build_tree(*arguments)
        self._inside_tree = True
        try:
            tree = super()._build_tree(*arguments)
        finally:
            self._inside_tree = False
        # Doublings add up to one trajectory, whose last depth counts.
        current, (depth, energy) = self._current, arguments[-2:]
        current["energy"] = float(energy)
        current["tree_depth"] = float(depth) + 1
        current["n_steps"] = current.get("n_steps", 0.0) + float(tree.num_proposals)
        current["accepted"] = current.get("accepted", 0.0) + float(tree.sum_accept_probs)
        return tree

    @override
    def sample(self, params: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self._current = {}
        result = super().sample(params)
        current, state = self._current, cast(Any, self)  # HMC sets its counters to None first
        # Draws of warm-up are not kept, nor their statistics.
        if current and state._t > state._warmup_steps:
            accepted = current.pop("accepted") / current["n_steps"]
            lp = -float(state._potential_energy_last)
            values = {**current, "lp": lp, "acceptance_rate": accepted, "step_size": float(self.step_size)}
            values["reached_max_treedepth"] = float(current["tree_depth"] >= self._max_tree_depth)
            for name, value in values.items():
                self._record.setdefault(name, []).append(value)
        return result

    @override
    def diagnostics(self) -> dict[str, Any]:
        return {**super().diagnostics(), "sample_stats": {name: list(values) for name, values in self._record.items()}}


class PotentialNUTS(RecordingNUTS):
    """NUTS on a model whose potential is known: the model is traced once per chain, for its sites and first values."""

    def __init__(self, model: Any, potential: Any, **options: Any) -> None:
        self._known_potential = potential  # None: what Pyro makes of the program
        super().__init__(model, **options)

    def _initialize_model_properties(self, model_args: Any, model_kwargs: Any) -> None:
        super()._initialize_model_properties(model_args, model_kwargs)
        if self._known_potential is not None:
            self.potential_fn = self._known_potential


class FixedMassMatrix(BlockMassMatrix):
    """A dense mass matrix that is given and not adapted."""

    def __init__(self, covariance: torch.Tensor) -> None:
        super().__init__()
        self._covariance = covariance

    @override
    def configure(
        self, mass_matrix_shape: dict[Any, Any], adapt_mass_matrix: bool = True, options: dict[str, Any] | None = None
    ) -> None:
        del adapt_mass_matrix, options
        for names, shape in mass_matrix_shape.items():
            self._mass_matrix_size[names] = shape[0]
            self.inverse_mass_matrix = {names: self._covariance}


@dataclass(frozen=True)
class NUTSSettings:
    """How long NUTS draws and how it moves.

    Attributes:
        num_chains: chains, one after the other in this process.
        num_draws: draws kept of each, at least 4.
        burn_in: transitions before them; the number that suits the metric when None.
        target_accept: acceptance probability that the step size is tuned to.
        max_tree_depth: largest number of doublings of a trajectory.

    Raises:
        InputError: numbers out of range.

    Example:
        >>> NUTSSettings(num_draws=2)
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: num_draws: expected a whole number from 4, received 2
    """

    num_chains: int = 4
    num_draws: int = 1000
    burn_in: int | None = None
    target_accept: float = 0.8
    max_tree_depth: int = 10

    def __post_init__(self) -> None:
        for name, least in (("num_chains", 1), ("num_draws", 4), ("burn_in", 0), ("max_tree_depth", 1)):
            if name != "burn_in" or self.burn_in is not None:
                check_whole(getattr(self, name), name, least)
        check_fraction(self.target_accept, "target_accept")
        check_draws(self.num_chains * self.num_draws)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of :class:`pyro.infer.NUTS`."""
        return {"target_accept_prob": self.target_accept, "max_tree_depth": self.max_tree_depth}


def checked_settings(settings: NUTSSettings | None) -> NUTSSettings:
    """The settings given, or the defaults; anything else is an :class:`InputTypeError`."""
    check_type(settings, NUTSSettings | None, "settings", "NUTSSettings")
    return NUTSSettings() if settings is None else settings


def r_hat_limit(num_chains: int, num_draws: int) -> float:
    r"""Largest split R-hat that is not held against chains of finite length: :data:`R_HAT_LIMIT` and its noise.

    .. math:: \hat R^2 = \frac{h - 1 + F}{h}, \qquad F \sim F_{2m - 1,\, 2m (h - 1)}

    for 2m half chains of h independent normal draws each; the limit is :data:`R_HAT_LIMIT` plus the excess over 1 of
    the value that one parameter in 10,000 passes. Four chains of 1,000 draws have 1.013.

    Args:
        num_chains: chains m.
        num_draws: draws per chain, 2h, at least 4.

    References:
        Vehtari et al., Rank-normalization, folding, and localization: an improved R-hat for assessing convergence of
        MCMC, Bayesian Analysis 16, 2021, for the value 1.01. The R-hat here is split but not rank-normalised, which
        the normal tails of these posteriors do not ask for.

    Example:
        >>> round(r_hat_limit(4, 1000), 4), round(r_hat_limit(2, 20), 2)
        (1.0133, 1.37)
    """
    half = num_draws // 2
    excess = float(special.fdtri(2 * num_chains - 1, 2 * num_chains * (half - 1), 1 - _R_HAT_NOISE))
    return R_HAT_LIMIT - 1 + math.sqrt((half - 1 + excess) / half)


class PosteriorDraws(ABC):
    """Draws of the parameters of a model by NUTS and what judges them; a dataclass of its own in every family.

    Example:
        >>> from pyro_hoim import InteractionHypergraph, load_table
        >>> from pyro_hoim.inference import sample_posterior
        >>> rows = load_table("ucb_admissions")
        >>> settings = NUTSSettings(num_chains=2, num_draws=20, burn_in=20)
        >>> singles = InteractionHypergraph.from_order(rows.domain, 1)
        >>> draws = sample_posterior(singles, rows, settings=settings, seed=1, progress=False)
        >>> draws.parameters.shape, draws.ess.shape, draws.num_divergences
        (torch.Size([2, 20, 7]), torch.Size([7]), 0)
    """

    run: Any
    status: Literal["converged", "unconverged"]

    @property
    @abstractmethod
    def parameters(self) -> torch.Tensor:
        """The draws, (num_chains, num_draws, size)."""

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.parameters.shape[0]

    @property
    def num_draws(self) -> int:
        """Draws per chain."""
        return self.parameters.shape[1]

    @property
    def num_divergences(self) -> int:
        """Divergent transitions after burn-in, over all chains."""
        return sum(len(where) for where in self.run.diagnostics()["divergences"].values())

    @property
    def r_hat(self) -> torch.Tensor:
        """Split R-hat of every parameter, (size,)."""
        return split_gelman_rubin(self.parameters, chain_dim=0, sample_dim=1)

    @property
    def ess(self) -> torch.Tensor:
        """Effective sample size of the mean of every parameter over all chains, (size,)."""
        return effective_sample_size(self.parameters, chain_dim=0, sample_dim=1)

    def judged(self, fault: str = "") -> Self:
        """The same with its status; warns where R-hat, a divergence or another fault, in words, speaks against it."""
        r_hat, limit = float(self.r_hat.max()), r_hat_limit(self.num_chains, self.num_draws)
        if r_hat <= limit and not self.num_divergences and not fault:
            return self
        warnings.warn(
            f"posterior: {fault}largest R-hat {r_hat:.3f} (limit {limit:.3g}), {self.num_divergences} divergent "
            "transitions; take a longer burn-in, more draws or a narrower prior, or raise target_accept",
            ConvergenceWarning,
            stacklevel=3,
        )
        return replace(cast(Any, self), status="unconverged")


def check_prior_shape(prior: torch.distributions.Distribution, size: int) -> None:
    """Refuse a prior that is not one of ``size`` parameters."""
    if tuple(prior.event_shape) != (size,) or prior.batch_shape:
        expected = f"event shape ({size},) and no batch"
        received = f"event shape {tuple(prior.event_shape)} and batch shape {tuple(prior.batch_shape)}"
        raise unexpected("prior", expected, received=received, code="wrong-shape")
