"""The coordinates that a fit works in: linear maps from theta to tables and from marginal tables to its statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ...errors import conflict
from ...structure.hypergraph import InteractionHypergraph
from ..coding import Coding, parametrization
from .design import design_matrix
from .penalties import Conjugate, Penalty, coding_of

__all__ = ["Coordinates", "own_coordinates", "working_coordinates"]


@dataclass(frozen=True)
class Coordinates:
    """Theta of a collection in the free or the corner coding.

    A loss and its gradient are the same functions of tables in both. Results are in the coordinates ``own`` of the
    family, which are others than those that a fit works in where a penalty asks for corner theta of a hierarchical
    collection.
    """

    hypergraph: InteractionHypergraph
    coding: Coding

    @property
    def own(self) -> Coding:
        """The coordinates of the family."""
        return parametrization(self.hypergraph).coding

    def tables(self, theta: np.ndarray) -> np.ndarray:
        """Tables (num_terms,), up to a constant, of theta (num_parameters,)."""
        codings, vector = parametrization(self.hypergraph), torch.from_numpy(theta)
        if self.coding == "corner":
            return codings.corner_tables(vector).numpy()
        return codings.to_tables(vector, self.coding).numpy()

    def statistics(self, eta: np.ndarray | torch.Tensor) -> np.ndarray:
        """Statistics (num_parameters,) of marginal tables (num_terms,): what the gradient in theta is made of."""
        return parametrization(self.hypergraph).mean_statistics(torch.as_tensor(eta), self.coding).numpy()

    def design(self) -> np.ndarray:
        """Statistics of every cell (num_states, num_parameters)."""
        return design_matrix(self.hypergraph, self.coding)

    def to_own(self, theta: np.ndarray) -> np.ndarray:
        """Theta in the coordinates of the family."""
        return self._converted(theta, self.coding, self.own)

    def from_own(self, theta: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`to_own`."""
        return self._converted(theta, self.own, self.coding)

    def _converted(self, theta: np.ndarray, source: Coding, target: Coding) -> np.ndarray:
        if source == target:
            return theta
        return parametrization(self.hypergraph).convert(torch.from_numpy(theta), source, target).numpy()


def own_coordinates(hypergraph: InteractionHypergraph) -> Coordinates:
    """The coordinates of a collection's family."""
    return Coordinates(hypergraph, parametrization(hypergraph).coding)


def working_coordinates(hypergraph: InteractionHypergraph, penalty: Penalty | None) -> Coordinates:
    """The coordinates in which a penalty has its closed forms; refused where the family has no such coordinates."""
    of_family = own_coordinates(hypergraph)
    if penalty is None:
        return of_family
    coding = coding_of(penalty)
    if of_family.coding == "corner" and (isinstance(penalty, Conjugate) or coding != "corner"):
        problem = f"the collection lacks subsets and has corner tables, {penalty!r} acts on free coordinates"
        raise conflict("penalty", problem, "use L1, L2 or GroupL2 with coding='corner', or fit the closure")
    if coding == "corner" and not hypergraph.is_hierarchical and of_family.coding != "corner":
        problem = f"the collection lacks subsets and has balanced tables, {penalty!r} acts on corner coordinates"
        raise conflict("penalty", problem, "fit hypergraph.in_coding('corner'), another family, or the closure")
    return Coordinates(hypergraph, coding)
