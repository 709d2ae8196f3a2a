r"""Does the maximum-likelihood estimate exist?

The likelihood of a log-linear model attains its supremum if and only if the observed margins are the margins of a
table without zero cells. Otherwise some combinations of levels have probability zero in the limit, theta runs to
infinity along a *direction of recession*, and the cells that stay positive form the *facial set*. A zero in an
interaction's observed table is the common cause; it is not the only one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import scipy
import torch
from scipy.sparse import csr_matrix, hstack, identity, vstack

from ...core.words import plural
from ...data.observations import Observations
from ...errors import InputError, other_domain, refused
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..coding import MARGIN_TOLERANCE, parametrization
from ..energy import LogLinearEnergy
from ..given import impossible_rows
from ..impossible import ImpossibleStates, StructuralZeros, structural_states
from .design import (
    MAX_DESIGN_ENTRIES,
    cell_codes,
    cell_counts,
    cell_numbers,
    check_data,
    design_entries,
    design_matrix,
    fitted_margins,
)

_RANK_TOLERANCE = 1e-9
_ZERO = 1e-12
_SLACK = 1e-6  # larger ones are no rounding: directions fill the unit box, entries on cells are of order one
_LISTED = 1000
_SHOWN = 3  # combinations that a refusal names
MAX_FACIAL_CELLS, MAX_FACIAL_PARAMETERS = 20_000, 2500  # for which the exact linear program is solved
_FITS = 200  # rounds of proportional fitting before it
_SMALL_PROGRAM, _SMALL_DESIGN = 2**13, 500  # undecided cells times parameters; parameters
_FITTED_AN_ENTRY = 300  # updates of a cell by fitting that take as long as an entry of the program, roughly
_MARGIN_ENTRIES = 2**17  # cells times margins of the program that tells whether a table has them
_LEAST_FITTED = (1e-6, 1e-3, 1e-2, 0.1)  # of the mean cell: what is fitted less is left to the linear program


@dataclass(frozen=True)
class Combination:
    """A combination of levels (labels) of one interaction."""

    edge: Edge
    levels: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{name}={level}" for name, level in zip(self.edge, self.levels, strict=True))


@dataclass(frozen=True)
class MLEExistence:
    """Whether the maximum-likelihood estimate is finite, and what stands in its way.

    Attributes:
        exists: True, False, or None when a table without zero margins was not decided.
        kind: ``interior`` (finite), ``zero margin`` (some interaction has an empty combination of levels), ``facial``
            (no empty margin, yet the margins force zero cells) or ``unknown``.
        offending: minimal combinations with an empty margin, then further cells that are forced to zero; at most 1,000.
        num_offending: how many there are.
        num_cells_zero: possible cells that the extended estimate fits as zero; None when not computed.
        num_parameters_lost: free parameters that the facial set cannot identify; None when not computed.
        facial_set: mask over all cells (row-major) of those that stay positive; None when not computed.
        is_complete: whether every forced zero is known. False of a table beyond the linear program, whose model is not
            decomposable: what no row has is known there, and the margins may force more.
    """

    exists: bool | None
    kind: Literal["interior", "zero margin", "facial", "unknown"]
    offending: tuple[Combination, ...] = ()
    num_offending: int = 0
    num_cells_zero: int | None = None
    num_parameters_lost: int | None = None
    facial_set: np.ndarray | None = field(default=None, repr=False, compare=False)
    is_complete: bool = True

    def num_parameters_identified(self, hypergraph: InteractionHypergraph) -> int | None:
        """Free parameters of the model that the data identify, as df, AIC and BIC count them; None if unknown."""
        return None if self.num_parameters_lost is None else hypergraph.num_parameters - self.num_parameters_lost

    def describe(self, limit: int = 5) -> str:
        """One sentence; names up to ``limit`` offending combinations."""
        match self.kind:
            case "interior":
                return "the maximum-likelihood estimate is finite"
            case "unknown":
                return "no interaction has an empty margin; whether the margins force zeros was not decided"
            case "zero margin":
                reason = "never observed"
            case "facial":
                reason = "forced to zero by the observed margins"
        shown = "; ".join(f"({c})" for c in self.offending[:limit])
        more = f"; and {self.num_offending - limit} more" if self.num_offending > limit else ""
        noun = "combination of levels is" if self.num_offending == 1 else "combinations of levels are"
        number = f"{self.num_offending} {noun} {reason}"
        left = "" if self.is_complete else f". {UNDECIDED}"
        return f"no finite maximum-likelihood estimate: {number}: {shown}{more}{left}"


UNDECIDED = (
    f"All zeros of an estimate are found from rows of at most {MAX_FACIAL_CELLS:,} cells and {MAX_FACIAL_PARAMETERS:,} "
    "parameters; here the known zeros are used, and there may be more"
)
INTERIOR = MLEExistence(True, "interior", num_cells_zero=0, num_parameters_lost=0)


def zero_margins(hypergraph: InteractionHypergraph, margins: torch.Tensor) -> list[tuple[Edge, tuple[int, ...]]]:
    """Minimal combinations of levels whose observed margin is zero, as (edge, codes).

    A combination is minimal when no part of it is empty already.
    """
    empty: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    combinations: list[tuple[Edge, tuple[int, ...]]] = []
    values = margins.numpy()
    slices = hypergraph.term_slices.items()
    for (edge, where), members, shape in zip(slices, hypergraph.edge_indices, hypergraph.edge_shapes, strict=True):
        flat = np.flatnonzero(values[where] <= 0)
        for codes in zip(*np.unravel_index(flat, shape), strict=True) if len(flat) else ():
            levels = tuple(int(c) for c in codes)
            parts = ((members[:k] + members[k + 1 :], levels[:k] + levels[k + 1 :]) for k in range(len(members)))
            if not any(part in empty for part in parts):
                combinations.append((edge, levels))
            empty.add((members, levels))
    return combinations


def _empty_margins(
    hypergraph: InteractionHypergraph, margins: torch.Tensor, structural: ImpossibleStates | None
) -> list[tuple[Edge, tuple[int, ...]]]:
    """Those of :func:`zero_margins` that force a possible cell to zero; none for a collection that lacks subsets.

    Margins that are empty because all their cells are structural zeros say nothing.
    """
    empty = zero_margins(hypergraph, margins) if hypergraph.is_hierarchical else []
    if structural is None or not empty:
        return empty
    combinations = (dict(zip(edge, codes, strict=True)) for edge, codes in empty)
    rows = torch.tensor([[codes.get(name, -1) for name in hypergraph.domain.names] for codes in combinations])
    flat = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms, dtype=torch.float64))
    is_structural = impossible_rows(structural.applied(flat), rows).tolist()
    return [pair for pair, is_known in zip(empty, is_structural, strict=True) if not is_known]


def _named(hypergraph: InteractionHypergraph, sets: list[tuple[Edge, tuple[int, ...]]]) -> tuple[Combination, ...]:
    domain = hypergraph.domain
    return tuple(
        Combination(edge, tuple(domain[name].labels[c] for name, c in zip(edge, codes, strict=True)))
        for edge, codes in sets[:_LISTED]
    )


def _null_space(matrix: np.ndarray) -> np.ndarray:
    """Orthonormal basis of the null space, as columns; singular values are compared through their squares."""
    if matrix.shape[0] == 0:
        return np.eye(matrix.shape[1])
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    return vectors[:, values <= _RANK_TOLERANCE * max(values[-1], 1e-300)]


def identified_directions(design: np.ndarray, cells: np.ndarray, space: np.ndarray | None = None) -> np.ndarray:
    """Orthonormal basis (num_parameters, rank) of the directions in which the law on some cells changes.

    They lie in the subspace of which ``space`` is an orthonormal basis, if it is given.
    """
    design = design if space is None else design @ space
    centred = design[cells] - design[cells].mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    # Relative to the statistics themselves: where they are the same in all of these cells, what is left is rounding.
    scale = max(float(values.max(initial=0.0)), float(np.square(design[cells]).sum(0).max(initial=0.0)), 1e-300)
    basis = vectors[:, values > _RANK_TOLERANCE * scale]
    return basis if space is None else space @ basis


def forced_zeros(
    augmented: np.ndarray, positive: np.ndarray, undecided: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    r"""Undecided cells outside the facial set, and a direction of recession that shows it.

    Solves, with A the design and a column of ones,

    .. math:: \max \sum s \quad \text{where} \quad A w = 0 \text{ on positive cells}, \quad
        A w + s \le 0, \; 0 \le s \le 1 \text{ on undecided ones}, \quad -1 \le z \le 1

    for w = B z, B an orthonormal basis of what vanishes on the positive cells. The box keeps the program bounded in
    every variable; without it HiGHS may end without an answer. Directions can be scaled into the box, so the maximum is
    0 if and only if there is none; otherwise every cell with a slack is forced to zero. Those cells are set aside and
    the program is solved again, until no slack is left.
    """
    # Rounds of the program: what has a slack is forced to zero and set aside.
    direction = np.zeros(augmented.shape[1])
    basis = _null_space(augmented[positive])
    left = undecided
    rounds: list[tuple[np.ndarray, np.ndarray]] = []
    while basis.shape[1] and left.size:
        images = augmented[left] @ basis
        weights = _recession(np.where(np.abs(images) > _ZERO, images, 0.0))
        if weights is None:
            return None
        loss = -(images @ weights)
        if loss.max() <= _SLACK:
            break
        is_forced = loss > max(_SLACK, 1e-3 * loss.max())  # smaller slacks wait for a round where they are larger
        rounds.append((left[is_forced], basis @ weights))
        left = left[~is_forced]
    # A later direction may add to cells that were set aside before; an earlier one makes up for it.
    for cells, step in reversed(rounds):
        added = max(0.0, float((augmented[cells] @ direction).max()))
        direction = direction + (1 + added) / float(-(augmented[cells] @ step).max()) * step
    forced = np.concatenate([np.empty(0, dtype=np.int64), *(cells for cells, _ in rounds)])
    return np.sort(forced), direction


def _recession(images: np.ndarray) -> np.ndarray | None:
    """Solution z of the linear program of :func:`forced_zeros`; None when no solver of HiGHS finds one."""
    num, size = images.shape
    for method in ("highs-ds", "highs-ipm"):
        solution = scipy.optimize.linprog(
            np.concatenate([np.zeros(size), -np.ones(num)]),
            A_ub=csr_matrix(hstack([csr_matrix(images), identity(num)])),
            b_ub=np.zeros(num),
            bounds=[(-1, 1)] * size + [(0, 1)] * num,
            method=method,
            options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
        )
        if solution.status == 0:
            return solution.x[:size]
    return None


def _is_solved_sooner(augmented: np.ndarray, positive: np.ndarray, undecided: int, num_groups: int) -> bool:
    """Whether the linear program of :func:`forced_zeros` has few entries, or few beside the work of fitting a table."""
    columns = augmented.shape[1]
    if undecided * columns <= _SMALL_PROGRAM:
        return True
    if columns <= _SMALL_DESIGN:
        columns = _null_space(augmented[positive]).shape[1]  # what the positive cells leave open
    return _FITS * num_groups * len(augmented) >= _FITTED_AN_ENTRY * undecided * columns


def _shown_positive(
    hypergraph: InteractionHypergraph, augmented: np.ndarray, counts: np.ndarray, allowed: np.ndarray
) -> np.ndarray:
    """Cells that another table with the same margins has, which spares them the linear program.

    Proportional fitting nearly has the margins; least squares over its larger cells removes what is left, and the
    table that results is a proof where all of these stay positive.
    """
    cards = (1, *hypergraph.domain.cardinalities)
    margins = [hypergraph.domain.indices(edge) for edge in hypergraph.maximal_edges]
    even = allowed * (counts.sum() / max(1, int(allowed.sum())))
    fitted = fitted_margins(even.reshape(cards), counts.reshape(cards), margins, _FITS, 0.0).ravel()
    # Least squares over ever fewer cells, until a table without zeros there has the margins to rounding.
    for least in _LEAST_FITTED:
        cells = np.flatnonzero((counts > 0) | (fitted > least * fitted.mean()))
        part = augmented[cells]
        gap = augmented.T @ counts - part.T @ fitted[cells]
        table = fitted[cells] + part @ np.linalg.lstsq(part.T @ part, gap, rcond=_RANK_TOLERANCE)[0]
        left = np.abs(augmented.T @ counts - part.T @ table).max()
        if table.min() > _RANK_TOLERANCE * table.max() and left <= _RANK_TOLERANCE * counts.sum():
            return cells
    return np.flatnonzero(counts > 0)


@dataclass(frozen=True)
class Face:
    """The facial set and what is identified on it."""

    cells: np.ndarray
    basis: np.ndarray
    recession: np.ndarray


def find_face(
    hypergraph: InteractionHypergraph,
    design: np.ndarray,
    counts: np.ndarray,
    structural: ImpossibleStates | None,
    rows: Observations,
    space: np.ndarray | None = None,
) -> tuple[MLEExistence, Face | None]:
    """Existence on a small table, and the face when it is not everything or when cells are impossible.

    In a subspace of theta, of which ``space`` is a basis, empty margins need not force anything.
    """
    allowed = np.ones(len(counts), dtype=bool) if structural is None else cells_outside(structural)
    positive = counts > 0
    if structural is None and positive.all():
        return INTERIOR, None
    # Empty margins, which need no linear program.
    empty_margins: list[tuple[Edge, tuple[int, ...]]] = []
    if space is None:
        empty_margins = _empty_margins(hypergraph, rows.marginal_counts(hypergraph.edges), structural)
    # Cells that empty margins force to zero, and the direction in which theta runs away there.
    codes = cell_codes(hypergraph)
    dead = np.zeros(len(counts), dtype=bool)
    direction = np.zeros(hypergraph.num_terms)
    for edge, levels in empty_margins:
        members = list(hypergraph.domain.indices(edge))
        dead |= (codes[:, members] == np.array(levels)).all(1)
        shape = [hypergraph.domain.cardinalities[i] for i in members]
        direction[hypergraph.term_slices[edge].start + int(np.ravel_multi_index(levels, shape))] = -1.0
    dead &= allowed
    is_open = allowed & ~dead
    # The linear program for the rest, where the table is small enough for it.
    within = design if space is None else design @ space
    augmented, solution = np.hstack([within, np.ones((len(within), 1))]), None
    if int((is_open | positive).sum()) <= MAX_FACIAL_CELLS and within.shape[1] <= MAX_FACIAL_PARAMETERS:
        can_fit = hypergraph.is_hierarchical and space is None and bool(positive.any())
        # A small program is solved sooner than a table is fitted; of a large one HiGHS may find no answer.
        num_groups, undecided = len(hypergraph.maximal_edges), int((is_open & ~positive).sum())
        if can_fit and not _is_solved_sooner(augmented, positive, undecided, num_groups):
            positive[_shown_positive(hypergraph, augmented, counts, is_open)] = True
        solution = forced_zeros(augmented, np.flatnonzero(positive), np.flatnonzero(is_open & ~positive))
        if solution is None and can_fit:
            positive[_shown_positive(hypergraph, augmented, counts, is_open)] = True
            solution = forced_zeros(augmented, np.flatnonzero(positive), np.flatnonzero(is_open & ~positive))
    if solution is None:
        is_closed = hypergraph.is_decomposable and structural is None and space is None
        existence, face = _from_margins(hypergraph, empty_margins, is_closed), allowed & ~dead
        if face.all():
            return existence, None
        basis = identified_directions(design, face, space)
        result = Face(face, basis, parametrization(hypergraph).from_tables(torch.from_numpy(direction)).numpy())
        if is_closed:
            lost = basis.shape[0] - basis.shape[1]
            existence = replace(existence, num_cells_zero=int(dead.sum()), num_parameters_lost=lost, facial_set=face)
        return existence, result
    # The face, what is identified on it, and what the law loses there.
    forced, recession = solution
    face = allowed & ~dead
    face[forced] = False
    lost = int((allowed & ~face).sum())
    if lost == 0 and structural is None:
        return INTERIOR, None
    basis = identified_directions(design, face, space)
    unidentified = within.shape[1] - basis.shape[1]
    # Margins that the zero combinations empty lose as much as the linear program's direction may have added there.
    values_on_dead = augmented[dead] @ recession
    weight = 1.0 + max(0.0, float(values_on_dead.max(initial=0.0)))
    parts = recession[:-1].copy()
    if empty_margins:
        parts = parts + weight * parametrization(hypergraph).from_tables(torch.from_numpy(direction)).numpy()
    result = Face(face, basis, parts if space is None else space @ parts)
    if lost == 0:
        return MLEExistence(True, "interior", (), 0, 0, unidentified, face), result
    cells = [(hypergraph.domain.names, tuple(int(c) for c in codes[i])) for i in forced]
    offending = _named(hypergraph, empty_margins + cells)
    kind = "zero margin" if empty_margins else "facial"
    number = len(empty_margins) + len(cells)
    return MLEExistence(False, kind, offending, number, lost, unidentified, face), result


def _from_margins(
    hypergraph: InteractionHypergraph, empty: list[tuple[Edge, tuple[int, ...]]], is_closed: bool
) -> MLEExistence:
    """What the empty margins alone say; everything in closed form, a product of clique over separator margins."""
    if empty:
        return MLEExistence(False, "zero margin", _named(hypergraph, empty), len(empty), is_complete=is_closed)
    return INTERIOR if is_closed else MLEExistence(None, "unknown", is_complete=False)


def known_zeros(
    hypergraph: InteractionHypergraph, margins: torch.Tensor, structural: ImpossibleStates | None = None
) -> tuple[MLEExistence, ImpossibleStates | None]:
    """What observed margins say at any size: existence, and the combinations that the estimate excludes."""
    empty = _empty_margins(hypergraph, margins, structural)
    # The closed form of a decomposable model holds where the zeros are cells of its cliques.
    is_inside = structural is None or all(edge in hypergraph for edge in structural.structure.edges)
    existence = _from_margins(hypergraph, empty, hypergraph.is_decomposable and is_inside)
    shapes, tables = dict(zip(hypergraph.edges, hypergraph.edge_shapes, strict=True)), dict[Edge, np.ndarray]()
    for edge, codes in empty:
        tables.setdefault(edge, np.zeros(shapes[edge], dtype=bool))[codes] = True
    return existence, ImpossibleStates._of_tables(hypergraph.domain, tables)


def mle_existence(
    hypergraph: InteractionHypergraph, data: Observations | torch.Tensor, *, structural_zeros: StructuralZeros = None
) -> MLEExistence:
    r"""Whether the maximum-likelihood estimate of a log-linear model is finite for given data.

    The estimate is finite if and only if no direction d has :math:`(A d)_x = 0` on every observed cell and
    :math:`(A d)_x \le 0`, not everywhere 0, on the others. Empty margins of interactions are found first, at any
    size; a decomposable model without any has a finite estimate. On tables with at most 20,000 cells outside empty
    margins, 2,500 parameters and a dense design within budget a linear program is exact and gives the facial set too.

    Args:
        hypergraph: the interaction structure.
        data: complete observations, or flat marginal counts (num_terms,), for which only margins are examined.
        structural_zeros: impossible cells, as :func:`fit` takes them.

    Raises:
        MissingDataError: missing cells.
        InputError: another domain, a count in a structural zero, or margins that no table has.

    References:
        Stephen Fienberg and Alessandro Rinaldo, Maximum likelihood estimation in log-linear models, 2012, theorem 3.2
        and section 4.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> data = Observations.from_table(domain, [[3, 0], [2, 4]])
        >>> str(mle_existence(InteractionHypergraph.saturated(domain), data).offending[0])
        'a=0, b=1'
    """
    structural = structural_states(hypergraph.domain, structural_zeros)
    if not isinstance(data, Observations):
        check_data(hypergraph, data, "data")
        check_data_possible(structural, hypergraph, data)
        return known_zeros(hypergraph, data, structural)[0]
    if data.domain != hypergraph.domain:
        raise other_domain("data", f"the variables {hypergraph.domain.names}", received=data.domain.names)
    check_rows_possible(structural, data)
    if design_entries(hypergraph) > MAX_DESIGN_ENTRIES:
        return known_zeros(hypergraph, data.marginal_counts(hypergraph.edges), structural)[0]
    return find_face(hypergraph, design_matrix(hypergraph), cell_counts(data), structural, data)[0]


# Structural zeros as cells, and rows that hold them.


def cells_outside(states: ImpossibleStates) -> np.ndarray:
    """Mask (num_states,) of the cells of a small table that are possible."""
    lost = np.zeros(states.structure.domain.cardinalities, dtype=bool)
    for members, where in zip(states.structure.edge_indices, states.structure.term_slices.values(), strict=True):
        shape = [n if i in members else 1 for i, n in enumerate(lost.shape)]
        lost |= states.excluded[where].numpy().reshape(shape)
    return ~lost.ravel()


def check_rows_possible(
    structural: ImpossibleStates | None, rows: Observations, what: str = "data", argument: str = "structural_zeros"
) -> None:
    """Refuse rows that hold structural zeros in their known cells, naming these with the number of rows."""
    lost = [] if structural is None else structural.tally(rows)
    if not lost:
        return
    first = [", ".join(f"{name}={level}" for name, level in labels.items()) for labels, _ in lost[:_SHOWN]]
    more = f" and {plural(len(lost) - _SHOWN, 'other combination')}" if len(lost) > _SHOWN else ""
    total = f"{sum(count for _, count in lost):,g}"
    hold = "row of {} holds" if total == "1" else "rows of {} hold"
    shown = "; ".join(f"({words})" for words in first)
    problem = f"{total} {hold.format(what)} what is marked as impossible: {shown}{more}"
    raise refused(argument, problem, "correct these rows, or leave the zero out", code="impossible")


def check_data_possible(
    structural: ImpossibleStates | None,
    hypergraph: InteractionHypergraph,
    data: Observations | torch.Tensor,
    argument: str = "structural_zeros",
) -> None:
    """Refuse rows that hold structural zeros, and marginal counts (num_terms,) that no table without these has."""
    if isinstance(data, Observations):
        check_rows_possible(structural, data, argument=argument)
        return
    lost = (
        {} if structural is None else {e: structural.excluded[at] for e, at in structural.structure.term_slices.items()}
    )
    for edge, excluded in lost.items():
        if edge in hypergraph and bool((data[hypergraph.term_slices[edge]][excluded] > 0).any()):
            problem = f"margins of {', '.join(edge)} count rows in cells that are marked as impossible"
            raise refused(argument, problem, code="impossible")
    tolerance = max(MARGIN_TOLERANCE, 64 * torch.finfo(data.dtype).eps)  # of a margin, as where they must agree
    if _distance(structural, hypergraph, data) > tolerance * hypergraph.num_terms:
        raise no_such_table(structural)


def no_such_table(structural: ImpossibleStates | None) -> InputError:
    """The refusal of marginal counts that agree in pairs, and that no table has."""
    beside = "" if structural is None else " in which the structural zeros are empty"
    return refused("data", f"no table{beside} has these margins", "take them from rows", code="impossible")


def _distance(structural: ImpossibleStates | None, hypergraph: InteractionHypergraph, margins: torch.Tensor) -> float:
    """Least sum of the amounts by which the margins of a table differ from those given, in shares of the total.

    Margins of a decomposable model that agree in pairs are those of a table (Nikolai Vorob'ev, Consistent families of
    measures and their extensions, 1962). Others are not examined where the linear program is large: then 0.
    """
    edges, domain = hypergraph.maximal_edges, hypergraph.domain
    is_large = domain.num_states * len(edges) > _MARGIN_ENTRIES
    if is_large or (structural is None and hypergraph.is_decomposable):
        return 0.0
    codes = cell_codes(hypergraph)
    codes = codes if structural is None else codes[cells_outside(structural)]
    blocks, shares = list[csr_matrix](), list[np.ndarray]()
    for edge in edges:
        members = domain.indices(edge)
        cells = cell_numbers(codes, members, domain.cardinalities)
        counts = margins[hypergraph.term_slices[edge]].double().numpy()
        blocks.append(csr_matrix((np.ones(len(cells)), (cells, np.arange(len(cells)))), (len(counts), len(cells))))
        shares.append(counts / counts.sum())
    table, wanted = vstack(blocks), np.concatenate(shares)
    amounts = hstack([table, identity(len(wanted)), -identity(len(wanted))])
    prices = np.repeat([0.0, 1.0], [len(codes), 2 * len(wanted)])
    solution = scipy.optimize.linprog(prices, A_eq=csr_matrix(amounts), b_eq=wanted, method="highs")
    return float(solution.fun) if solution.status == 0 else 0.0
