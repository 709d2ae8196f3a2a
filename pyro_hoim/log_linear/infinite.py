"""Interactions of an infinite estimate: in how many directions they are infinite, and which contrasts are finite."""

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import numpy as np
import scipy
import torch

from ..errors import InputError, IntractableError
from ..structure.hypergraph import Edge, InteractionHypergraph
from .coding import parametrization
from .fitting.design import edge_basis
from .fitting.result import NO_ERRORS_OF_BOUND, FitResult
from .impossible import support_of_states

DECLARED = "interactions that compare what is declared impossible are infinite or not identified: no row tells of them"
"""A note on those of structural zeros."""
_MAX_CONTRASTS = 5000
_MAX_GENERATORS = 2**21  # cells fitted as zero, times parameters, of which the signs of infinite estimates are found
_LISTED = 20
_MAX_DENSE_PARAMETERS = 1000
_MOST_PARAMETERS = 600  # of a covariance that is a matter of seconds
_TOO_MANY = f"the model has {{:,}} parameters, and they are computed for at most {_MOST_PARAMETERS}"
_TOLERANCE = 1e-7
_FINITE = {"is_infinite": False, "is_declared": False}


def mark_infinite(result: FitResult, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of :func:`interaction_table` with what impossible states leave of them, infinite ones first.

    ``is_declared`` are those that structural zeros alone make infinite, whatever the penalty.
    """
    slices = result.hypergraph.parameter_slices
    sizes = [slices[tuple(row["edge"])].stop - slices[tuple(row["edge"])].start for row in rows]
    marked = [
        {**row, **_FINITE, "num_parameters": size, "num_identified": size, "finite_contrasts": []}
        for row, size in zip(rows, sizes, strict=True)
    ]
    impossible, graph, zeros = result.impossible, result.hypergraph, result.structural_zeros
    if impossible is None:
        return marked
    if graph.num_parameters <= _MAX_DENSE_PARAMETERS and (result.is_listed or result._has_rank):
        basis = result.identified if result.penalty is None else result.identified_by_possible
        marked = marked if basis is None else [_from_basis(result, row, basis) for row in marked]
    else:  # declared combinations of columns that do not interact leave the interactions identified
        limit, declared = impossible.without(zeros), () if zeros is None else zeros.structure.edges
        empty = () if limit is None else limit.structure.edges
        inside = [edge for edge in declared if edge in graph]
        marked = [_from_margins(result, inside, _from_margins(result, empty, row), True) for row in marked]
    return sorted(marked, key=lambda row: (not row["is_infinite"], -_infinite_share(row)))


def infinite_to_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a model file keeps of an infinite interaction, because the tables in it are finite."""
    keys = ("edge", "levels", "position", "num_parameters", "num_identified", "finite_contrasts", "is_declared")
    return {**{key: row[key] for key in keys}, "sign": int(math.copysign(1, row["coefficient"]))}


def with_infinite(rows: Sequence[dict[str, Any]], infinite: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of :func:`interaction_table` of a stored model, its infinite interactions marked and first."""
    by_edge = {tuple(row["edge"]): row for row in rows}
    first = [
        {
            **by_edge.pop(tuple(entry["edge"])),
            **{key: value for key, value in entry.items() if key != "sign"},
            "is_infinite": True,
            "value": math.inf,
            "coefficient": entry["sign"] * math.inf,
        }
        for entry in infinite
        if tuple(entry["edge"]) in by_edge
    ]
    return [*first, *({**row, **_FINITE} for row in by_edge.values())]


def _infinite_share(row: dict[str, Any]) -> float:
    """Share of an interaction's directions that are infinite; all where that was not computed."""
    return 1.0 if row["num_identified"] is None else 1 - row["num_identified"] / row["num_parameters"]


def _from_margins(
    result: FitResult, empty: Sequence[Edge], row: dict[str, Any], is_declared: bool = False
) -> dict[str, Any]:
    """Of a large table: an interaction that shares its variables with an empty margin counts as infinite."""
    edge = tuple(row["edge"])
    if row["is_infinite"] or not any(set(edge) <= set(of) or set(of) <= set(edge) for of in empty):
        return row
    position, sign = _fastest(result, edge, row)
    variables = [result.hypergraph.domain[name] for name in edge]
    codes = np.unravel_index(position, [v.cardinality for v in variables])
    levels = [v.labels[int(c)] for v, c in zip(variables, codes, strict=True)]
    where = {"coefficient": sign * math.inf, "levels": levels, "position": position, "is_declared": is_declared}
    return {**row, **where, "is_infinite": True, "value": math.inf, "num_identified": None}


def _from_basis(result: FitResult, row: dict[str, Any], basis: torch.Tensor) -> dict[str, Any]:
    """An interaction by the directions that the facial set, or of penalised fits the possible cells, identify."""
    edge = tuple(row["edge"])
    where = result.hypergraph.parameter_slices[edge]
    units = torch.eye(len(basis), dtype=basis.dtype)[where]
    if bool(result._is_within(units, basis).all()):
        return row
    block, whole = basis[where], result.identified_by_possible
    identified = _num_held(block)
    most = len(block) if whole is None else _num_held(whole[where])
    # The entry that falls fastest stands for the interaction.
    position, sign = _fastest(result, edge, row)
    shape = [result.hypergraph.domain[name].cardinality for name in edge]
    codes = np.unravel_index(position, shape)
    return {
        **row,
        "is_infinite": True,
        "value": math.inf,
        "coefficient": sign * math.inf,
        "levels": [result.hypergraph.domain[n].labels[int(c)] for n, c in zip(edge, codes, strict=True)],
        "position": position,
        "num_identified": identified,
        "is_declared": identified == most < len(block),
        "finite_contrasts": _contrasts(result, edge, block)[:_LISTED] if identified else [],
    }


def _num_held(block: torch.Tensor) -> int:
    """Directions of one interaction alone that are identified: those that the basis holds all of."""
    return int((torch.linalg.eigvalsh(block @ block.T) > 1 - _TOLERANCE).sum())


def _fastest(result: FitResult, edge: tuple[str, ...], row: dict[str, Any]) -> tuple[int, float]:
    """The entry of a balanced table that falls fastest where impossible states do, and which way it moves."""
    coordinates, states = parametrization(result.hypergraph), result.structural_zeros
    direction = torch.zeros_like(result.theta) if result.recession is None else result.recession
    if states is not None:
        support = support_of_states(result.hypergraph, states)
        direction = direction - coordinates.from_tables(support.finite_terms(support.lost).double())
    table = coordinates.split(coordinates.to_tables(direction))[edge].flatten()
    position = int(table.argmin())
    if float(table[position]) < -1e-9:
        return position, -1.0
    return row["position"], math.copysign(1.0, row["coefficient"])


def _contrasts(result: FitResult, edge: tuple[str, ...], block: torch.Tensor) -> list[dict[str, Any]]:
    r"""Identified contrasts of one interaction, the largest first; those against first levels where there are many.

    .. math:: \sum_{\varepsilon \in \{0, 1\}^S} (-1)^{|S| - |\varepsilon|}\, \theta^S[x_\varepsilon]

    with :math:`x_\varepsilon` the level ``before`` where :math:`\varepsilon_i = 0` and ``after`` where it is 1: of a
    pair in no larger interaction the log odds ratio given all other variables, else averaged over their levels.
    """
    variables = [result.hypergraph.domain[name] for name in edge]
    # All pairs of levels of every variable, or only those with the first level.
    pairs = [list(itertools.combinations(range(v.cardinality), 2)) for v in variables]
    if math.prod(map(len, pairs)) > _MAX_CONTRASTS:
        pairs = [[(0, level) for level in range(1, v.cardinality)] for v in variables]
    if math.prod(map(len, pairs)) > _MAX_CONTRASTS:
        return []
    # A contrast is finite when no part of it leaves the identified directions.
    units = [(np.eye(v.cardinality), np.transpose(chosen)) for v, chosen in zip(variables, pairs, strict=True)]
    tables = reduce(np.kron, (unit[after] - unit[before] for unit, (before, after) in units))
    free = torch.from_numpy(tables @ edge_basis(tuple(v.cardinality for v in variables), result.coding))
    lost = free.square().sum(1) - (free @ block).square().sum(1)
    known = (lost <= _TOLERANCE * free.square().sum(1)).nonzero().squeeze(-1)
    where = result.hypergraph.parameter_slices[edge]
    estimates = free[known] @ result.theta[where]
    errors = torch.full_like(estimates, math.nan)
    if not covariance_problem(result):
        with suppress(IntractableError, InputError):  # singular information, or a penalty that is not smooth
            matrix = result.covariance_of_kind(None)[where, where]
            errors = ((free[known] @ matrix) * free[known]).sum(1).clamp(min=0).sqrt()
    # Written so that every estimate is positive.
    levels = list(itertools.product(*pairs))
    contrasts: list[dict[str, Any]] = []
    for index, estimate, error in zip(known.tolist(), estimates.tolist(), errors.tolist(), strict=True):
        before, after = (
            [v.labels[code] for v, code in zip(variables, end, strict=True)] for end in zip(*levels[index], strict=True)
        )
        if estimate < 0:  # the first variable is turned round
            before[0], after[0] = after[0], before[0]
        std_error = error if math.isfinite(error) else None
        contrasts.append({"before": before, "after": after, "estimate": abs(estimate), "std_error": std_error})
    return sorted(contrasts, key=lambda contrast: -contrast["estimate"])


def covariance_problem(result: FitResult) -> str:
    """Why a fit has no standard errors, in words; empty where its covariance is a matter of seconds."""
    if not result.is_converged:
        return f"the fit ended as {result.status!r}"
    if result.objective == "bound":
        return NO_ERRORS_OF_BOUND
    if result.objective == "likelihood":
        return size_problem(result.hypergraph)
    if result.is_bounded or result.data is None:
        return "a fit within norm bounds has none" if result.is_bounded else "the fit keeps no rows"
    size = result.hypergraph.num_parameters
    features = result.data.num_rows * sum(result.hypergraph.domain.cardinalities) * max(size, 1)
    if size > _MOST_PARAMETERS:
        return _TOO_MANY.format(size)
    return "" if features <= 2**30 else "of so many rows and parameters they would take minutes"


def size_problem(graph: InteractionHypergraph) -> str:
    """Why a covariance of all parameters would take long, in words; empty where it is a matter of seconds."""
    size = graph.num_parameters
    if size > _MOST_PARAMETERS:
        return _TOO_MANY.format(size)
    is_small = graph.domain.num_states * max(size, 1) <= 2**26  # ten seconds
    return "" if is_small else "for a table of so many cells they would take minutes"


def contrast_signs(result: FitResult, contrasts: np.ndarray) -> np.ndarray:
    r"""Which way functions (k, num_parameters) of theta run that the rows do not identify: 1, -1, or 0 for no saying.

    Outside the face F of cells with positive fitted probability, a direction d raises the likelihood without end where
    :math:`(x_f - x_c) \cdot d > 0` for the cells c fitted as zero and 0 on F. A coefficient :math:`k \cdot \theta` is
    :math:`+\infty` along all of them if and only if k lies in the cone of these differences, modulo those of F
    (Farkas' lemma). What is declared impossible has no likelihood, so that c runs over possible cells alone.
    """
    signs = np.zeros(len(contrasts))
    face, design = result._face, result._design
    if face is None or design is None or (~face.cells).sum() * design.shape[1] > _MAX_GENERATORS:
        return signs
    # Directions to the cells fitted as zero, and the functions whose sign is asked for.
    basis = np.asarray(face.basis)
    gone = ~face.cells if result.possible is None else ~face.cells & result.possible  # declared ones ask for nothing
    if not gone.any():
        return signs
    outside = design[face.cells][:1] - design[gone]
    if result.restriction is not None:
        space = result.restriction.basis
        outside = (outside @ space) @ space.T
    # A sign is certain where the cone holds the function.
    cone = (outside - (outside @ basis) @ basis.T).T
    contrasts = contrasts - (contrasts @ basis) @ basis.T
    for sign in (1.0, -1.0):
        signs[_are_within(cone, sign * contrasts)] = sign
    return signs


def _are_within(cone: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Which vectors (k, p) are combinations of the columns (p, n) of a cone without a negative weight.

    What is left of a vector beyond its nearest point of the cone has no positive product with any column, and so none
    with anything inside: with one vector, it excludes all others that have one.
    """
    norms = np.linalg.norm(vectors, axis=1)
    lengths = np.linalg.norm(cone, axis=0)
    within, is_open = np.zeros(len(vectors), dtype=bool), np.ones(len(vectors), dtype=bool)
    for row, vector in enumerate(vectors):
        if not is_open[row]:
            continue
        weights, distance = scipy.optimize.nnls(cone, vector)
        within[row] = distance <= 1e-8 * norms[row]
        if within[row]:
            continue
        beyond = (vector - cone @ weights) / distance
        if (beyond @ cone <= 1e-9 * lengths).all():  # as far as rounding lets it say so
            is_open &= vectors @ beyond <= 1e-6 * norms
    return within
