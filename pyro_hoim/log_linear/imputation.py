"""Filling missing cells of rows from a fitted model: several random completions, or the most probable one."""

from __future__ import annotations

from typing import Literal

import torch

from ..budgets import check_cells
from ..core.prediction import Imputation, extend_rows
from ..core.rows import (
    ClampedGibbs,
    RowMethod,
    chain_portions,
    check_count,
    checked_gibbs,
    drawn_seed,
)
from ..data.frames import DataLike
from ..errors import check_choice, conflict
from ..runs.arguments import checked_seed
from .auto import Auto
from .chains.gibbs import GibbsChains
from .energy import LogLinearEnergy
from .given import (
    check_energy,
    check_model,
    condition_rows,
    exact_portions,
    impossible_rows,
    is_exactly_feasible,
    possible_draws,
    possible_patterns,
    row_chains,
)

__all__ = ["impute"]


def impute(
    model: LogLinearEnergy,
    data: DataLike,
    num_imputations: int = 1,
    *,
    how: Literal["draws", "most probable"] = "draws",
    method: RowMethod = "auto",
    gibbs: ClampedGibbs | None = None,
    seed: int = 0,
) -> Imputation:
    r"""Fill the missing cells of every row given its known cells.

    .. math:: x_M \sim q(x_M \mid x_O) \qquad \text{or} \qquad x_M = \arg\max q(x_M \mid x_O)

    Draws (multiple imputation) keep the spread and the dependence of what is missing; the most probable completion
    makes the data look more alike than they are. Exact where conditioning on the known cells leaves a law within reach;
    otherwise every draw is the last state of a Gibbs chain of its own, and the most probable completion a local maximum
    near the best state that the chains visited. The uncertainty of the model's parameters is not included. A row whose
    known cells have probability zero together stays as it is, and is not exact.

    Args:
        model: one model.
        data: rows over the model's variables, or over some of them; the others are missing.
        num_imputations: completions of every row; 1 for the most probable one.
        how: ``draws`` or ``most probable``.
        method: as in :func:`~pyro_hoim.log_linear.predictions.predict`.
        gibbs: length of the chains; defaults of :class:`~pyro_hoim.core.rows.ClampedGibbs`.
        seed: seed of everything random.

    Raises:
        InputError: another domain, a batch of models, unknown options, a seed out of range, or several most probable
            completions.
        IntractableError: ``exact`` beyond the reach of the backends.

    References:
        Donald Rubin, Multiple Imputation for Nonresponse in Surveys, 1987.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations
        >>> graph = InteractionHypergraph.saturated(Domain.from_labels({"rain": ["no", "yes"], "wet": ["no", "yes"]}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 9.0], dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [-1, 1]]), graph.domain)
        >>> impute(model, rows).codes.tolist()
        [[[0, 0], [1, 1]]]
    """
    check_energy(model)
    check_count(num_imputations, "num_imputations")
    seed = checked_seed(seed)
    check_choice(how, ("draws", "most probable"), "how")
    if how == "most probable" and num_imputations > 1:
        raise conflict("num_imputations", "there is one most probable completion of a row", "ask for 1 or for draws")
    data = extend_rows(data, model.domain)
    check_model(model, data.domain, method)
    settings = checked_gibbs(gibbs)
    generator = torch.Generator().manual_seed(seed)
    check_cells(
        num_imputations, data.codes.numel(), "num_imputations", "make fewer imputations, or of fewer rows at a time"
    )
    codes = data.codes.repeat(num_imputations, 1, 1)
    is_incomplete = (data.codes < 0).any(1)
    excluded = torch.zeros_like(is_incomplete)
    excluded[is_incomplete] = impossible_rows(model, data.codes[is_incomplete])
    is_exact, num_incomplete = ~excluded, int(is_incomplete.sum())
    for missing, rows in possible_patterns(data, excluded):
        columns = torch.tensor(data.domain.indices(missing), dtype=torch.long)
        if not missing:
            continue
        if is_exactly_feasible(model, missing, num_incomplete, method):
            for part in exact_portions(model, missing, rows):
                laws, _ = condition_rows(model, missing, data.codes[part])
                found = (
                    Auto().sample(laws, (num_imputations,), generator)
                    if how == "draws"
                    else Auto().mode(laws)[0].unsqueeze(0)
                )
                codes[:, part[:, None], columns] = found
            continue
        is_exact[rows] = False
        num_chains = num_imputations if how == "draws" else settings.num_chains
        for part in chain_portions(rows, num_chains):
            codes[:, part[:, None], columns] = _by_chains(
                model, missing, data.codes[part], num_chains, settings, generator, how
            )[..., columns]
    return Imputation(data, codes, is_exact, how)


def _by_chains(
    model: LogLinearEnergy,
    missing: tuple[str, ...],
    codes: torch.Tensor,
    num_chains: int,
    gibbs: ClampedGibbs,
    generator: torch.Generator,
    how: str,
) -> torch.Tensor:
    """Completions (k, R, d) of rows, codes (R, d): the ends of all chains, or the best states that they met."""
    if how == "draws":

        def draw(finite: LogLinearEnergy, wanted: torch.Tensor) -> torch.Tensor:
            rows = codes[wanted // num_chains]
            return row_chains(finite, missing, rows, 1, gibbs, drawn_seed(generator)).states

        states = possible_draws(model, len(codes) * num_chains, draw)
        return states.reshape(len(codes), num_chains, -1).movedim(1, 0)
    columns = list(model.domain.indices(missing))

    def best(finite: LogLinearEnergy, wanted: torch.Tensor) -> torch.Tensor:
        chains = row_chains(finite, missing, codes[wanted], num_chains, gibbs, drawn_seed(generator))
        return _ascend(finite, _best_states(finite, chains, gibbs, len(wanted)), columns)

    return possible_draws(model, len(codes), best).unsqueeze(0)


def _best_states(model: LogLinearEnergy, chains: GibbsChains, gibbs: ClampedGibbs, num_rows: int) -> torch.Tensor:
    """State of least energy that the chains of every row visit, (num_rows, d)."""
    best = chains.states.clone()
    least = chains.energy.clone()
    for _ in range(gibbs.num_records):
        chains.sweep(gibbs.thin)
        energy = chains.energy
        better = energy < least
        least = torch.where(better, energy, least)
        best[better] = chains.states[better]
    chosen = least.reshape(num_rows, -1).argmin(1)
    return best.reshape(num_rows, -1, len(model.domain))[torch.arange(num_rows), chosen]


def _ascend(model: LogLinearEnergy, states: torch.Tensor, columns: list[int]) -> torch.Tensor:
    """Set variables to their most probable level in turn until nothing changes, (R, d); float64 avoids circles."""
    model = model.to(dtype=torch.float64)
    states = states.clone()
    moving = torch.arange(len(states))
    while len(moving):
        before = states[moving]
        now = before.clone()
        for column in columns:
            log_probs = model.block_conditional([model.domain.names[column]], now)
            gain = log_probs.max(1).values - log_probs.gather(1, now[:, column, None]).squeeze(1)
            now[:, column] = torch.where(gain > 1e-12, log_probs.argmax(1), now[:, column])
        states[moving] = now
        moving = moving[(now != before).any(1)]
    return states
