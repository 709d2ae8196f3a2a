"""Numbers that describe a fitted model: scores of rows, predictions of a column, strengths of interactions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri

from ..core.prediction import check_count
from ..core.scores import Scores, scores_of
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import IntractableError, check_fraction, check_type, refused
from .auto import Auto
from .coding import parametrization
from .energy import LogLinearEnergy, check_energy
from .fitting.result import FitResult
from .given import check_single, impossible_rows, predict, row_log_weights
from .infinite import covariance_problem, mark_infinite

_CELLS_PER_CALL = 2**20  # rows times interactions of pseudo-likelihoods that are computed at once


def score_rows(
    energy: LogLinearEnergy, data: DataLike, *, log_z: float | None = None, reference: LogLinearEnergy | None = None
) -> Scores:
    """Score rows under a model; missing cells are summed over.

    Args:
        energy: one model.
        data: rows over its domain with a positive total count.
        log_z: normalising constant of the energy, where it is known or estimated already; exact when None.
        reference: a model over the same variables that the gain is measured from, such as that of independent columns.

    Raises:
        InputError: another domain, a batch of models, or no rows.
        IntractableError: log Z is out of reach, or the missing cells take too many operations to be summed over.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.zeros(3, dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, 0], [1, 1]]), graph.domain)
        >>> scores = score_rows(model, rows)
        >>> round(scores.nll, 4), round(scores.kl, 4)  # log 4, and log 4 - log 2
        (1.3863, 0.6931)
    """
    check_energy(energy, "energy")
    data = as_observations(data, domain=energy.domain)
    if reference is not None:
        check_energy(reference, "reference")
    values = _log_prob(energy, data, log_z)
    alone = None if reference is None else _log_prob(reference, data, None)
    return scores_of(data, values, alone, partial(row_log_pseudo_prob, energy))


def _log_prob(energy: LogLinearEnergy, data: Observations, log_z: float | None) -> torch.Tensor:
    """Log-probability of the known cells of every row, (N,)."""
    return row_log_weights(energy, data) - (float(Auto().log_partition(energy).value) if log_z is None else log_z)


def row_log_pseudo_prob(energy: LogLinearEnergy, data: DataLike) -> torch.Tensor:
    """Sum over the known cells of a row of log q(cell | the other known cells), (N,); of impossible rows -infinity."""
    data = as_observations(data, domain=energy.domain)
    is_possible = ~impossible_rows(energy, data.narrow)
    complete = (data.narrow >= 0).all(1) & is_possible
    values = torch.full((data.num_rows,), -math.inf, dtype=energy.dtype)
    for part in complete.nonzero().squeeze(1).split(max(1, _CELLS_PER_CALL // max(1, len(energy.hypergraph)))):
        values[part] = energy.log_pseudo_prob(data.narrow[part])
    left = is_possible & ~complete
    if not bool(left.any()):
        return values
    rows = Observations(data.domain, data.narrow[left])
    total = torch.zeros(rows.num_rows, dtype=torch.float64)
    for column, name in enumerate(data.domain.names):
        codes = rows.codes[:, column]
        chosen = predict(energy, rows, name, method="exact").log_probs.gather(1, codes.clamp(min=0)[:, None]).squeeze(1)
        total += torch.where(codes >= 0, chosen, 0.0)
    values[left] = total.to(values.dtype)
    return values


def prediction_accuracy(energy: LogLinearEnergy, data: DataLike, target: str) -> dict[str, Any]:
    r"""Share of rows whose ``target`` is the most probable level given the row's other cells.

    .. math:: \hat x_t = \arg\max_{x_t} q(x_t, x_O)

    A summary of :func:`~pyro_hoim.log_linear.given.predict` with its defaults; rows whose target is missing do
    not count.

    Returns:
        The :attr:`~pyro_hoim.core.prediction.Prediction.summary` of the prediction.

    Raises:
        InputError: no row has a known target.
        UnknownNameError: ``target`` is no variable of the rows.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))  # b as a
        >>> found = prediction_accuracy(model, Observations.from_table(graph.domain, [[30, 10], [20, 40]]), "b")
        >>> found["accuracy"], found["majority_accuracy"]
        (0.7, 0.5)
    """
    check_energy(energy, "energy")
    data = as_observations(data, domain=energy.domain)
    column = data.domain.index(target)
    known = (data.narrow[:, column] >= 0) & (data.counts > 0)
    if not bool(known.any()):
        raise refused("target", f"no row has a known value of {target!r}", code="empty")
    return predict(energy, data.rows(known).unique(), target).summary


def interaction_table(energy: LogLinearEnergy) -> list[dict[str, Any]]:
    """Interactions of a model by strength, the strongest first.

    Returns:
        For every edge of at least one free parameter: ``edge``, ``value`` (root mean square of the model's table, in
        nats), ``coefficient`` (its entry of largest size), the ``levels`` that entry stands for and its ``position``
        in the flat table.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.2, -0.1, 0.5], dtype=torch.float64))
        >>> [(row["edge"], round(row["value"], 3)) for row in interaction_table(model)]
        [(['a', 'b'], 0.25), (['a'], 0.141), (['b'], 0.071)]
    """
    check_energy(energy, "energy")
    check_single(energy, "energy")
    rows: list[dict[str, Any]] = []
    for edge, table in parametrization(energy.hypergraph).split(energy.tables).items():
        if all(n > 1 for n in table.shape):
            flat = int(table.abs().argmax())
            codes = np.unravel_index(flat, table.shape)
            row = {"edge": list(edge), "value": float(table.square().mean().sqrt())}
            levels = [energy.domain[name].labels[int(code)] for name, code in zip(edge, codes, strict=True)]
            rows.append({**row, "coefficient": float(table.flatten()[flat]), "levels": levels, "position": flat})
    return sorted(rows, key=lambda row: (-row["value"], len(row["edge"])))


def interactions_of_fit(result: FitResult) -> list[dict[str, Any]]:
    """:func:`interaction_table` of a fit, with what impossible states leave of its rows, infinite ones first."""
    return mark_infinite(result, interaction_table(LogLinearEnergy(result.hypergraph, result.tables)))


def infinite_interactions(result: FitResult) -> list[dict[str, Any]]:
    """Those that an infinite estimate or structural zeros do not leave finite."""
    return [row for row in interactions_of_fit(result) if row["is_infinite"]]


@dataclass(frozen=True)
class CoefficientInterval:
    """The largest entry of an interaction's balanced table, with an interval.

    Attributes:
        edge: the interaction.
        levels: labels of the entry.
        index: position of the entry in the flat tables.
        estimate: posterior mean, or the fitted value, in nats.
        lower, upper: ends of the interval, of which ``level`` is the coverage.
    """

    edge: tuple[str, ...]
    levels: tuple[str, ...]
    index: int
    estimate: float
    lower: float
    upper: float
    level: float


def coefficient_intervals(
    result: FitResult, draws: np.ndarray | None = None, *, level: float = 0.9, top: int = 30
) -> list[CoefficientInterval]:
    """Intervals of the largest coefficient of each interaction, the strongest interactions first.

    Args:
        result: a fit.
        draws: posterior draws of the free parameters; without them the intervals are the large-sample ones.
        level: coverage; equal tails.
        top: how many interactions.

    Shape:
        draws (num_draws, num_parameters).

    Returns:
        At most ``top`` intervals, none of coefficients that are infinite. Without draws there are none for a fit that
        did not converge, was stopped early, is so large that its covariance would take minutes, or has none.

    Raises:
        InputError: a level outside (0, 1), or fewer than one interaction asked for.
        InputTypeError: no FitResult, or a number of interactions that is no whole number.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, fit
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> found = coefficient_intervals(fit(InteractionHypergraph.saturated(rows.domain), rows), level=0.95)
        >>> [(interval.edge, round(interval.estimate, 4)) for interval in found]  # log(6) / 4 first
        [(('a', 'b'), 0.4479), (('a',), -0.2452), (('b',), 0.1014)]
    """
    check_type(result, FitResult, "result")
    check_fraction(level, "level")
    check_count(top, "top")
    maps = parametrization(result.hypergraph)
    slices = result.hypergraph.term_slices
    rows = interaction_table(LogLinearEnergy(result.hypergraph, result.tables))[:top]
    index = [slices[tuple(r["edge"])].start + r["position"] for r in rows]
    if not rows:
        return []
    # From posterior draws, or large-sample errors where these are cheap.
    tail = (1 - level) / 2
    if draws is not None:
        tables = maps.to_tables(torch.as_tensor(draws, dtype=torch.float64))[:, index].numpy()
        centre, (lower, upper) = tables.mean(0), np.quantile(tables, [tail, 1 - tail], axis=0)
    elif not covariance_problem(result):
        try:
            units = torch.eye(result.hypergraph.num_parameters, dtype=torch.float64)
            error = result.contrast_errors(maps.to_tables(units).T[index]).numpy()
        except IntractableError:  # singular information: the data do not tell the coefficients apart
            return []
        centre = result.tables[index].numpy()
        lower, upper = centre + ndtri(tail) * error, centre - ndtri(tail) * error
    else:
        return []
    return [
        CoefficientInterval(tuple(r["edge"]), tuple(r["levels"]), i, float(c), float(a), float(b), level)
        for r, i, c, a, b in zip(rows, index, centre, lower, upper, strict=True)
        if math.isfinite(a) and math.isfinite(b)
    ]


def column_shares(rows: Observations) -> dict[str, list[float]]:
    """Frequencies of the levels of every column among its known cells; equal ones where no cell is known."""
    shares: dict[str, list[float]] = {}
    for column, variable in enumerate(rows.domain):
        known = rows.narrow[:, column] >= 0
        counts = torch.bincount(
            rows.narrow[known, column], weights=rows.counts[known].double(), minlength=variable.cardinality
        )
        counts = counts if counts.any() else torch.ones_like(counts)
        shares[variable.name] = (counts / counts.sum()).tolist()
    return shares


def directions_of(result: FitResult) -> dict[str, torch.Tensor]:
    """What a model file keeps of restricted interactions: which tables they allow."""
    return {} if result.restriction is None else {"directions": torch.from_numpy(result.restriction.directions)}
