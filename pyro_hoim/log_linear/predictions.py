"""Prediction of any variable from the others with one joint model (paper 1, section 5.3 and table 3)."""

from __future__ import annotations

import math
from functools import partial

import torch

from ..core.prediction import Prediction, extend_rows
from ..core.rows import (
    ClampedGibbs,
    RowMethod,
    chain_averages,
    chain_portions,
    checked_gibbs,
    drawn_seed,
)
from ..data.frames import DataLike
from ..data.observations import Observations
from ..errors import check_names
from ..runs.arguments import checked_seed
from .auto import Auto
from .energy import LogLinearEnergy
from .given import (
    check_energy,
    check_model,
    condition_rows,
    exact_portions,
    impossible_rows,
    is_exactly_feasible,
    possible_patterns,
    row_chains,
)
from .impossible import walled

__all__ = ["predict"]

_LOOK_UPS_PER_CALL = 2**21


def predict(
    model: LogLinearEnergy,
    data: DataLike,
    target: str,
    *,
    method: RowMethod = "auto",
    gibbs: ClampedGibbs | None = None,
    seed: int = 0,
) -> Prediction:
    r"""Conditional law of one variable in every row given the row's other known cells.

    .. math:: q(x_t \mid x_O) = \frac{\sum_{x_M} \exp(-E(x_t, x_O, x_M))}{\sum_{x'_t, x_M} \exp(-E(x'_t, x_O, x_M))}

    Where no other cell is missing this is a softmax over look-ups, exact at any size. With missing cells M the sum is
    exact where conditioning on the known cells leaves a law within reach; otherwise the conditional probabilities along
    Gibbs chains of the target and the missing cells are averaged (Rao-Blackwell); their standard errors know nothing of
    modes that no chain of a row entered. The target of a row is never read for its own prediction. A row whose other
    known cells have probability zero together gets none: NaN, and not exact.

    Args:
        model: one model.
        data: rows over the model's variables, or over some of them; the others are missing.
        target: the variable to predict.
        method: ``auto``: exact where a row needs at most 2e7 operations or all rows together at most 2e9, else Gibbs;
            ``exact``: exact or refused; ``gibbs``: chains wherever another cell than the target is missing.
        gibbs: length and number of the chains; defaults of :class:`ClampedGibbs`.
        seed: seed of the chains.

    Raises:
        InputError: another domain, a batch of models, a seed out of range, or an unknown method.
        IntractableError: ``exact`` beyond the reach of the backends.
        UnknownNameError: ``target`` is no variable of the model.

    References:
        Paper 1, section 5.3.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, -1]]), graph.domain)
        >>> predict(model, rows, "b").probs.round(decimals=4).tolist()  # 1 / (1 + exp(-1)) for the level of a
        [[0.7311, 0.2689], [0.2689, 0.7311]]
    """
    check_energy(model)
    check_names([target], model.domain.names, "target")
    seed = checked_seed(seed)
    data = extend_rows(data, model.domain, (target,))
    check_model(model, data.domain, method)
    column, size = data.domain.index(target), data.domain[target].cardinality
    hidden = data.codes.clone()
    hidden[:, column] = -1
    codes, inverse = torch.unique(hidden, dim=0, return_inverse=True)
    rows = Observations.from_tensor(codes, data.domain)
    excluded = impossible_rows(model, codes)
    log_probs = torch.full((len(codes), size), math.nan, dtype=torch.float64)
    std_error = torch.where(excluded[:, None], math.nan, torch.zeros_like(log_probs))
    is_exact = ~excluded
    generator = torch.Generator().manual_seed(seed)
    settings = checked_gibbs(gibbs)
    finite = walled(model)
    degree = sum(target in edge for edge in model.hypergraph.edges)
    most = max(1, _LOOK_UPS_PER_CALL // max(1, size * degree))
    num_incomplete = int(((codes < 0).sum(1) > 1).sum())
    for missing, positions in possible_patterns(rows, excluded):
        if missing == (target,):
            for part in positions.split(most):
                log_probs[part] = model.block_conditional([target], codes[part]).double()
        elif is_exactly_feasible(model, missing, num_incomplete, method, keep=[target]):
            for part in exact_portions(model, missing, positions):
                laws, _ = condition_rows(model, missing, codes[part])
                log_probs[part] = Auto().log_marginal(laws, [target]).double()
        else:
            is_exact[positions] = False
            for part in chain_portions(positions, settings.num_chains):
                chains = row_chains(finite, missing, codes[part], settings.num_chains, settings, drawn_seed(generator))
                probs, error = chain_averages(chains, settings, size, most, partial(finite.block_conditional, [target]))
                if finite is not model:
                    lost = _impossible_labels(model, codes[part], column)
                    probs, error = probs.masked_fill(lost, 0.0), error.masked_fill(lost, 0.0)
                    probs = probs / probs.sum(1, keepdim=True)
                log_probs[part], std_error[part] = probs.log(), error
    return Prediction(
        target,
        data.domain[target].labels,
        log_probs[inverse],
        std_error[inverse],
        is_exact[inverse],
        data.codes[:, column].clone(),
        data.counts.clone(),
        data.squared_weights.clone(),
    )


def _impossible_labels(model: LogLinearEnergy, codes: torch.Tensor, column: int) -> torch.Tensor:
    """Levels of a variable that have probability zero given the known cells of rows, codes (R, d): (R, K)."""
    filled = codes.repeat_interleave(size := model.domain.cardinalities[column], 0)
    filled[:, column] = torch.arange(size).repeat(len(codes))
    return impossible_rows(model, filled).reshape(len(codes), size)
