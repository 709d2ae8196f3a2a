r"""Both sides of the sandwich covariance: information, and sums of products of weighted scores over sampling units.

.. math:: B = \sum_h \frac{n_h}{n_h - 1} \sum_{u \in h} (z_u - \bar z_h)(z_u - \bar z_h)^\top, \qquad
    z_u = \sum_{i \in u} w_i s_i

with the scores :math:`s_i` of the rows, units u (rows, or clusters of them) and strata h of :math:`n_h` units; at a
maximum without strata the mean vanishes. It is the covariance of the total score of units drawn with replacement within
strata (David Binder, On the variances of asymptotically normal estimators from complex surveys, 1983).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from scipy.sparse import csr_matrix

from ..core.partition import PartitionBackend
from ..data.observations import Observations
from ..errors import check_choice, conflict, out_of_reach, refused, size_text, wrong_shape
from ..structure.hypergraph import InteractionHypergraph
from .coding import parametrization
from .energy import LogLinearEnergy
from .fitting.design import cell_codes

WeightKind = Literal["auto", "frequency", "sampling"]
"""Whether weights are numbers of observations or say how many others a row stands for; ``auto``: whole ones are."""

_CHUNK = 2**22  # entries of the statistics of rows that are held at once
_MAX_ENTRIES = 2**27  # of the total scores of units
_MOST_COPIES, _FLOPS = 64, 2**24  # of a model that are summed at once, and what that may cost


def covariance_of(design: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Covariance of the statistics (parameters, parameters) under a distribution of the cells."""
    mean = probs @ design
    return (design * probs[:, None]).T @ design - np.outer(mean, mean)


def missing_information(
    hypergraph: InteractionHypergraph, data: Observations, design: np.ndarray, probs: np.ndarray
) -> np.ndarray:
    """Sum over rows of the covariance of the statistics given the known cells."""
    rows, cells = data.unique(), cell_codes(hypergraph)
    result = np.zeros((design.shape[1], design.shape[1]))
    for codes, count in zip(rows.codes.numpy(), rows.counts.numpy(), strict=True):
        if (codes < 0).any():
            agree = ((cells == codes) | (codes < 0)).all(1)
            result += count * covariance_of(design[agree], probs[agree] / probs[agree].sum())
    return result


def known_statistics(
    hypergraph: InteractionHypergraph, rows: np.ndarray, design: np.ndarray, probs: np.ndarray
) -> np.ndarray:
    """Expected statistics (U, num_parameters) of rows (U, d) given their known cells; -1 is a missing one."""
    cells = cell_codes(hypergraph)
    result = np.empty((len(rows), design.shape[1]))
    for number, codes in enumerate(rows):
        agree = ((cells == codes) | (codes < 0)).all(1)
        result[number] = (probs[agree] @ design[agree]) / probs[agree].sum()
    return result


def backend_hessian(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, partition: PartitionBackend
) -> torch.Tensor:
    """Covariance of the statistics (num_parameters, num_parameters): rows of many copies of theta at once."""
    coordinates, size, parts = parametrization(hypergraph), len(theta), [theta.new_zeros(0, len(theta))]
    most = int(min(max(_FLOPS // max(partition.plan(hypergraph).flops, 1), 1), _MOST_COPIES))
    for start in range(0, size, most):
        with torch.enable_grad():
            free = theta.expand(min(most, size - start), size).clone().requires_grad_()
            model = LogLinearEnergy(hypergraph, coordinates.to_tables(free), validate=False)
            value = partition.log_partition(model).value.sum()
            (gradient,) = torch.autograd.grad(value, free, create_graph=True)
            parts += torch.autograd.grad(gradient.diagonal(start).sum(), free)
    return torch.cat(parts)


@dataclass(frozen=True)
class _Units:
    """Distinct rows; the weight of each in every unit or stratum; factors and sizes of strata."""

    rows: np.ndarray  # distinct rows (U, d)
    totals: Any  # sparse (units, U): weights of the distinct rows in a cluster, or in a stratum where rows are units
    squares: np.ndarray | None  # (U,) factors times squared weights, where rows are units
    strata: np.ndarray  # of the rows of ``totals``
    sizes: np.ndarray  # units of every stratum


def score_products(
    scores_of: Callable[[np.ndarray], np.ndarray],
    size: int,
    data: Observations,
    *,
    clusters: Sequence[Any] | None = None,
    strata: Sequence[Any] | None = None,
    weights: WeightKind = "auto",
) -> np.ndarray:
    """Products of weighted scores (num_parameters, num_parameters), see the module.

    Args:
        scores_of: scores (U, num_parameters) of distinct rows (U, d), in lexicographic order.
        size: number of parameters.
        data: the rows as they were sampled, (N,).
        clusters: what every row belongs to, (N,), or None where rows are the units.
        strata: likewise; a cluster lies in one stratum.
        weights: see :data:`WeightKind`; it makes no difference with clusters.
    """
    units = _units(data, clusters, strata, weights)
    if units.totals.shape[0] * size > _MAX_ENTRIES:
        problem = (
            f"{size_text(units.totals.shape[0], 'units')} by {size} parameters, the limit is {_MAX_ENTRIES} numbers"
        )
        raise out_of_reach("robust_covariance", problem, "use larger clusters or fewer interactions")
    # Total scores of the units, in portions of the rows.
    middle, scores = np.zeros((size, size)), np.zeros((units.totals.shape[0], size))
    step = max(1, _CHUNK // max(size, 1))
    for start in range(0, len(units.rows), step):
        part = slice(start, start + step)
        scores_of_rows = scores_of(units.rows[part])
        scores += units.totals[:, part] @ scores_of_rows
        if units.squares is not None:
            middle += (scores_of_rows * units.squares[part, None]).T @ scores_of_rows
    # Between the units of each stratum.
    factor = units.sizes / (units.sizes - 1)
    by_stratum = scores
    if units.squares is None:
        middle = (scores * factor[units.strata, None]).T @ scores
        by_stratum = np.zeros((len(units.sizes), size))
        np.add.at(by_stratum, units.strata, scores)
    return middle - (by_stratum * (factor / units.sizes)[:, None]).T @ by_stratum


def _units(data: Observations, clusters: Any, strata: Any, weights: WeightKind) -> _Units:
    check_choice(weights, ("auto", "frequency", "sampling"), "weights")
    is_counted = data.counts.numpy() > 0
    values = data.counts.numpy()[is_counted]
    by_cluster, by_stratum = (
        None if given is None else _codes(given, len(is_counted), name)[is_counted]
        for name, given in (("clusters", clusters), ("strata", strata))
    )
    # Equal rows share their statistics.
    rows, cell = np.unique(data.codes.numpy()[is_counted], axis=0, return_inverse=True)
    cell, num_rows = cell.reshape(-1), len(rows)
    stratum = np.zeros(len(values), dtype=np.int64) if by_stratum is None else _packed(by_stratum)
    # Units are clusters inside strata, or rows that count once or as often as they were seen.
    if by_cluster is not None:
        unit = _packed(by_cluster)
        first = np.unique(unit, return_index=True)[1]
        if (stratum != stratum[first][unit]).any():
            hint = "name the clusters of different strata differently"
            raise conflict("clusters", "expected each inside one stratum, one lies in two", hint)
        strata_of_units, multiplicity, squares = stratum[first], np.ones(len(first)), None
    else:
        is_frequency = weights == "frequency" or (weights == "auto" and data.has_whole_counts)
        each = np.square(values) if data.has_whole_counts else data.squared_weights.numpy()[is_counted]
        unit, strata_of_units = stratum, np.unique(stratum)
        multiplicity, squares = (values, values) if is_frequency else (np.square(values) / each, each)
    # A stratum of one unit has no variance.
    where = stratum if by_cluster is None else strata_of_units
    sizes = np.bincount(where, weights=multiplicity, minlength=len(np.unique(stratum)))
    if (sizes <= 1).any():
        problem = f"{int((sizes <= 1).sum())} of {len(sizes)} strata hold one sampling unit, whose variance is unknown"
        problem = problem if strata is not None else "there is one sampling unit, whose variance is unknown"
        raise refused("strata" if strata is not None else "clusters", problem, "merge strata", code="empty")
    if squares is not None:
        squares = np.bincount(cell, weights=squares * (sizes / (sizes - 1))[stratum], minlength=num_rows)
    totals = csr_matrix((values, (unit, cell)), shape=(int(unit.max()) + 1, num_rows))
    return _Units(rows, totals, squares, strata_of_units, sizes)


def _codes(given: Any, num_rows: int, argument: str) -> np.ndarray:
    """Numbers of the distinct values of a column, one a row; missing ones are refused."""
    column = pd.Series(given).reset_index(drop=True) if not isinstance(given, pd.Series) else given
    if len(column) != num_rows:
        hint = "the rows must be those of the fit, before equal ones were merged or incomplete ones dropped"
        raise wrong_shape(argument, f"({num_rows},), one value a row", (len(column),), hint)
    codes = pd.factorize(column)[0]
    if (codes < 0).any():
        raise refused(argument, f"{int((codes < 0).sum())} rows have no value", code="missing-cells")
    return codes


def _packed(codes: np.ndarray) -> np.ndarray:
    """The same codes, numbered from 0 without gaps."""
    return np.unique(codes, return_inverse=True)[1].reshape(-1)
