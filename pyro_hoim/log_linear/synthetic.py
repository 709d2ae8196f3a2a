"""Synthetic rows drawn from a fitted model."""

from __future__ import annotations

import torch

from ..core.rows import RowMethod, check_count
from ..data.observations import Observations
from ..errors import out_of_reach
from ..runs.arguments import checked_seed
from .annealed.importance import AnnealedImportance
from .auto import Auto
from .energy import LogLinearEnergy
from .given import check_energy, check_model, possible_draws

__all__ = ["synthesise"]


def synthesise(
    model: LogLinearEnergy,
    num_rows: int,
    seed: int = 0,
    *,
    method: RowMethod = "auto",
    burn_in: int = AnnealedImportance.burn_in,
) -> Observations:
    """Independent rows of a model.

    Exact draws where a backend accepts the model; otherwise every row is the last state of a Gibbs chain of its own,
    led to the model through 100 temperatures and then burnt in. Use ``to_pandas(count=None)`` for a data frame.

    Args:
        model: one model.
        num_rows: how many rows.
        seed: seed of the draws.
        method: ``exact`` (or refused), ``gibbs`` (approximate), or ``auto``: exact where possible.
        burn_in: sweeps of a chain after annealing.

    Raises:
        InputError: a batch of models, a number of rows below 1, a seed out of range, or an unknown method.
        IntractableError: ``exact`` beyond the reach of the backends.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 20.0], dtype=torch.float64))  # b as a
        >>> rows = synthesise(model, 1000)
        >>> rows.codes.shape, bool((rows.codes[:, 0] == rows.codes[:, 1]).all())
        (torch.Size([1000, 2]), True)
    """
    check_energy(model)
    check_count(num_rows, "num_rows")
    check_count(burn_in, "burn_in", 0)
    seed = checked_seed(seed)
    check_model(model, model.domain, method)
    generator = torch.Generator().manual_seed(seed)
    cost = Auto().plan(model.hypergraph)
    if method == "exact" and not cost.feasible:
        raise out_of_reach("method", cost.reason, "'gibbs' draws approximately, at any size")
    if cost.feasible and method != "gibbs":
        codes = Auto().sample(model, (num_rows,), generator)
    else:
        backend = AnnealedImportance(burn_in=burn_in)
        codes = possible_draws(model, num_rows, lambda finite, n: backend.sample(finite, (len(n),), generator))
    return Observations.from_tensor(codes, model.domain)
