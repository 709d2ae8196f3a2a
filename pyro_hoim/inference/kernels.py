"""Pyro's NUTS with what diagnostics need, a mass matrix that is given, and its settings checked."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from pyro.infer import NUTS
from pyro.infer.mcmc.adaptation import BlockMassMatrix

from ..errors import check_whole, out_of_range

__all__ = ["FixedMassMatrix", "RecordingNUTS", "check_sampler_settings"]


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
        >>> def model():
        ...     pyro.sample("x", pyro.distributions.Normal(0.0, 1.0))
        >>> mcmc = pyro.infer.MCMC(RecordingNUTS(model), num_samples=20, warmup_steps=20, disable_progbar=True)
        >>> mcmc.run()
        >>> len(mcmc.diagnostics()["sample_stats"]["chain 0"]["n_steps"])
        20
    """

    def __init__(self, model: Any = None, *arguments: Any, **options: Any) -> None:
        super().__init__(model, *arguments, **options)
        self._clear_record()

    def _clear_record(self) -> None:
        self._inside_tree = False
        self._current: dict[str, float] = {}
        self._record: dict[str, list[float]] = {}

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        """Prepare a chain; the record of an earlier one is forgotten."""
        self._clear_record()
        super().setup(warmup_steps, *args, **kwargs)

    def _build_tree(self, *arguments: Any) -> Any:  # type: ignore[override]
        """Build one subtree; the outermost calls, one per doubling, are noted."""
        if self._inside_tree:
            return super()._build_tree(*arguments)
        self._inside_tree = True
        try:
            tree = super()._build_tree(*arguments)
        finally:
            self._inside_tree = False
        current, (depth, energy) = self._current, arguments[-2:]
        current["energy"] = float(energy)
        current["tree_depth"] = float(depth) + 1
        current["n_steps"] = current.get("n_steps", 0.0) + float(tree.num_proposals)
        current["accepted"] = current.get("accepted", 0.0) + float(tree.sum_accept_probs)
        return tree

    def sample(self, params: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Make one transition, exactly as :class:`pyro.infer.NUTS` does."""
        self._current = {}
        result = super().sample(params)
        current, state = self._current, cast(Any, self)  # HMC sets its counters to None first
        if current and state._t > state._warmup_steps:
            accepted = current.pop("accepted") / current["n_steps"]
            lp = -float(state._potential_energy_last)
            values = {**current, "lp": lp, "acceptance_rate": accepted, "step_size": float(self.step_size)}
            values["reached_max_treedepth"] = float(current["tree_depth"] >= self._max_tree_depth)
            for name, value in values.items():
                self._record.setdefault(name, []).append(value)
        return result

    def diagnostics(self) -> dict[str, Any]:
        """Pyro's diagnostics of the chain with the per-draw record under ``"sample_stats"``."""
        return {**super().diagnostics(), "sample_stats": {name: list(values) for name, values in self._record.items()}}


class FixedMassMatrix(BlockMassMatrix):
    """A dense mass matrix that is given and not adapted."""

    def __init__(self, covariance: torch.Tensor) -> None:
        super().__init__()
        self._covariance = covariance

    def configure(
        self, mass_matrix_shape: dict[Any, Any], adapt_mass_matrix: bool = True, options: dict[str, Any] | None = None
    ) -> None:
        """Set the inverse mass matrix of the only block; nothing is adapted, the options are the matrix's own."""
        del adapt_mass_matrix, options
        for names, shape in mass_matrix_shape.items():
            self._mass_matrix_size[names] = shape[0]
            self.inverse_mass_matrix = {names: self._covariance}


def check_sampler_settings(
    num_draws: int, num_warmup: int | None, num_chains: int, target_accept: float, max_tree_depth: int
) -> None:
    """Raise unless the sampler's settings make sense."""
    wanted = {"num_draws": (num_draws, 4), "num_chains": (num_chains, 1), "max_tree_depth": (max_tree_depth, 1)}
    if num_warmup is not None:
        wanted["num_warmup"] = (num_warmup, 0)
    for name, (value, least) in wanted.items():
        check_whole(value, name, least)
    if not (isinstance(target_accept, float) and math.isfinite(target_accept) and 0 < target_accept < 1):
        raise out_of_range("target_accept", "a number between 0 and 1", target_accept)
