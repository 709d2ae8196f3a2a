"""What a solver works on: objective, start and, for infinite estimates, coordinates of the facial set. Private."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ...core.partition import PartitionBackend
from ...data.observations import Observations
from ...structure.hypergraph import InteractionHypergraph
from ..impossible import ImpossibleStates
from .design import Coordinates, cell_counts, design_entries, design_matrix, own_coordinates
from .existence import (
    Face,
    MLEExistence,
    check_impossible_counts,
    find_face,
    identified_directions,
    mle_existence,
    zero_margins,
)
from .objectives import DenseLikelihood, Likelihood, Objective, PseudoLikelihood
from .penalties import Penalty
from .solvers import HeldOut

SMALL_ENTRIES = 2**23
"""Up to this many entries of the design, existence is examined exactly although a backend was asked for."""

_PUSH = 32.0  # forced zeros get at most exp(-32) of the probability together


@dataclass
class Problem:
    """Everything a solver run needs, in the coordinates it works in, and what its result is made of.

    ``start`` is in those coordinates: ``coordinates``, or with ``basis`` (num_parameters, rank) those along its
    columns, which are directions of the ``face`` or of a restriction. ``own_mean`` are the empirical means of the
    statistics of the family, empty for the pseudo-likelihood; ``design`` is that of the family, too.
    """

    coordinates: Coordinates
    objective: Objective
    start: np.ndarray
    num_rows: float
    own_mean: np.ndarray
    rows: Observations | None = None
    margins: torch.Tensor | None = None
    possible: np.ndarray | None = None
    existence: MLEExistence | None = None
    face: Face | None = None
    basis: np.ndarray | None = None
    design: np.ndarray | None = None

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The interactions."""
        return self.coordinates.hypergraph

    @property
    def is_infinite(self) -> bool:
        """Whether the estimate is known to be infinite."""
        return self.existence is not None and self.existence.exists is False

    def impossible(self, status: str) -> ImpossibleStates | None:
        """What has probability zero in the result of a fit that ended so: structural zeros, and the limit's zeros.

        Those of a large table are the combinations that no row has.
        """
        graph, existence = self.hypergraph, self.existence
        if status == "infinite" and existence is not None and existence.facial_set is not None:
            return ImpossibleStates.of_cells(graph, ~existence.facial_set)
        lost = None if self.face is None else ~self.face.cells
        if status == "infinite":
            margins = self.margins
            if margins is None:
                assert self.rows is not None
                margins = self.rows.marginal_counts(graph.edges)
            combinations = [dict(zip(edge, codes, strict=True)) for edge, codes in zero_margins(graph, margins)]
            if lost is None:
                return ImpossibleStates.of_combinations(graph.domain, combinations)
            table = lost.reshape(graph.domain.cardinalities)
            for codes in combinations:
                table[tuple(codes.get(name, slice(None)) for name in graph.domain.names)] = True
        return None if lost is None else ImpossibleStates.of_cells(graph, lost)

    def lift(self, theta: np.ndarray) -> np.ndarray:
        """Theta of the family from the solver's coordinates."""
        return self.coordinates.to_own(theta) if self.basis is None else self.basis @ theta

    def lower(self, theta: np.ndarray) -> np.ndarray:
        """The solver's coordinates from theta of the family."""
        return self.coordinates.from_own(theta) if self.basis is None else theta @ self.basis

    def held_out(self, rows: Observations) -> HeldOut:
        """Mean loss of other rows, as a function of the solver's coordinates and the training loss there.

        Two likelihoods share log Z, so they differ by a linear term, and nothing is evaluated. Rows in cells that the
        estimate gives no probability lose infinitely much.
        """
        if isinstance(self.objective, PseudoLikelihood):
            other = PseudoLikelihood(self.hypergraph, rows, self.coordinates)
            return lambda theta, _: other.value(theta)
        if self.basis is not None and self.face is not None and (cell_counts(rows)[~self.face.cells] > 0).any():
            return lambda *_: math.inf
        margins = rows.marginal_counts(self.hypergraph.edges)
        mean = own_coordinates(self.hypergraph).statistics(margins) / rows.total_count
        difference = self.own_mean - mean
        return lambda theta, loss: loss + float(self.lift(theta) @ difference)

    def limit(self, theta: np.ndarray) -> np.ndarray:
        """Theta of the family moved along the direction of recession until the forced zeros are negligible."""
        face, design = self.face, self.design
        if not (self.basis is not None and self.is_infinite and face is not None and design is not None):
            return theta
        forced = ~face.cells if self.possible is None else self.possible & ~face.cells
        if not forced.any():
            return theta
        logits, slope = design @ theta, design @ face.recession
        loss = slope - float(slope[face.cells].mean())
        log_z = float(np.logaddexp.reduce(logits[face.cells]))
        excess = logits[forced] - log_z + math.log(int(forced.sum())) + _PUSH
        scale = float((excess / np.maximum(-loss[forced], 1e-6)).max())
        return theta + max(scale, 0.0) * face.recession


def pseudo_problem(coordinates: Coordinates, rows: Observations, penalty: Penalty | None) -> Problem:
    """Pseudo-likelihood of complete rows; an empty margin makes its maximum infinite, too."""
    hypergraph = coordinates.hypergraph
    start = np.zeros(hypergraph.num_parameters)
    target = PseudoLikelihood(hypergraph, rows, coordinates)
    problem = Problem(coordinates, target, start, rows.total_count, np.empty(0), rows)
    if penalty is None:
        found = mle_existence(hypergraph, rows.marginal_counts(hypergraph.edges))
        problem.existence = found if found.kind == "zero margin" else None
    return problem


def general_problem(
    coordinates: Coordinates,
    data: Observations | torch.Tensor,
    penalty: Penalty | None,
    partition: PartitionBackend | None,
    space: np.ndarray | None = None,
) -> Problem:
    """Likelihood from marginal counts, through a backend, or without one through the dense design.

    ``space`` is the basis of a subspace that theta is restricted to.
    """
    hypergraph = coordinates.hypergraph
    rows = data if isinstance(data, Observations) else None
    margins = (data.marginal_counts(hypergraph.edges) if isinstance(data, Observations) else data).to(torch.float64)
    if rows is not None:
        num_rows = rows.total_count
    else:
        num_rows = float(margins[next(iter(hypergraph.term_slices.values()))].sum())
    mean, own_mean = (c.statistics(margins) / num_rows for c in (coordinates, own_coordinates(hypergraph)))
    design = None
    if partition is None:
        design, working = design_matrix(hypergraph), coordinates.design()
        used = (working, mean) if space is None else (working @ space, mean @ space)
        objective: Objective = DenseLikelihood(*used)
    else:
        objective = Likelihood(hypergraph, mean, partition, coordinates, space)
    start = np.zeros(hypergraph.num_parameters if space is None else space.shape[1])
    existence = None if space is None else MLEExistence(None, "unknown")
    if penalty is None and space is None:
        is_small = rows is not None and design_entries(hypergraph) <= SMALL_ENTRIES
        existence = mle_existence(hypergraph, rows if rows is not None and is_small else margins)
    return Problem(
        coordinates, objective, start, num_rows, own_mean, rows, margins, None, existence, basis=space, design=design
    )


def dense_problem(
    coordinates: Coordinates,
    rows: Observations,
    possible: np.ndarray | None,
    penalty: Penalty | None,
    from_zero: bool,
    space: np.ndarray | None = None,
) -> Problem:
    """Likelihood on a dense design, restricted to a smaller facial set unless a path from zero is wanted.

    ``space`` is the basis of a subspace that theta is restricted to.
    """
    num_rows, hypergraph = rows.total_count, coordinates.hypergraph
    design, working = design_matrix(hypergraph), coordinates.design()
    counts = cell_counts(rows)
    check_impossible_counts(counts, possible)
    own_mean = counts @ design / num_rows
    mean = own_mean if working is design else counts @ working / num_rows
    existence, face = None, None
    within = design if space is None else design @ space
    if penalty is None:
        existence, face = find_face(hypergraph, within, counts, possible, rows, space)
    if from_zero or face is None:  # the path need not reach the limit: all but structural zeros are possible
        face = None if possible is None else _possible_face(within, possible, space, penalty)
    basis, used = space, working
    if face is not None:
        basis = face.basis if penalty is None and not from_zero else space
        used, counts = working[face.cells], counts[face.cells]
    if basis is not None:
        used, mean = used @ basis, mean @ basis
    objective = DenseLikelihood(used, mean)
    start = np.zeros(used.shape[1]) if from_zero else _least_squares(objective, counts, num_rows)
    return Problem(
        coordinates, objective, start, num_rows, own_mean, rows, None, possible, existence, face, basis, design
    )


def _possible_face(within: np.ndarray, possible: np.ndarray, space: np.ndarray | None, penalty: Penalty | None) -> Face:
    """All cells but structural zeros; a penalty identifies every parameter there."""
    size = within.shape[1]
    basis = identified_directions(within, possible) if penalty is None else np.eye(size)
    own = basis if space is None else space @ basis
    return Face(possible, basis.shape[1], own, np.zeros(len(own)))


def _least_squares(objective: DenseLikelihood, counts: np.ndarray, num_rows: float) -> np.ndarray:
    """One step of iteratively reweighted least squares from means half-way between the counts and their average."""
    means = (counts + num_rows / len(counts)) / 2
    target = np.log(means) + counts / means
    probs = means / means.sum()
    centre = probs @ objective.design
    right = (probs * target) @ objective.design - float(probs @ target) * centre
    hessian = objective.covariance(probs, centre)
    hessian[np.diag_indices_from(hessian)] += 1e-9
    hessian = np.triu(hessian) + np.triu(hessian, 1).T
    return np.linalg.solve(hessian, right) if len(right) else right
