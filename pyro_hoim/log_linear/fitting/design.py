"""Checks of what is fitted, coordinates of theta, and the dense design of a small table, as a NumPy matrix.

Small tables are fitted fastest with one matrix whose rows are cells and whose columns are the statistics. Those
used last are kept; larger models go through a partition backend and never form it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
import torch

from ...checks import check_finite, check_shape
from ...data.observations import Observations
from ...errors import (
    MissingDataError,
    check_type,
    other_domain,
    out_of_range,
    out_of_reach,
    size_text,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..coding import MARGIN_TOLERANCE, Coding, check_margins, corner_embedding, level_contrasts, parametrization

MAX_DESIGN_ENTRIES = 2**26
"""Largest number of entries of a dense design (512 MiB in double precision)."""


def design_entries(hypergraph: InteractionHypergraph) -> int:
    """Entries of the dense design, cells times parameters."""
    return hypergraph.domain.num_states * max(hypergraph.num_parameters, 1)


def edge_basis(shape: tuple[int, ...], coding: Coding = "free") -> np.ndarray:
    """Tables of one hyperedge as columns in the order of its parameters: an orthonormal basis, or corner indicators."""
    factor = corner_embedding if coding == "corner" else level_contrasts
    return reduce(np.kron, [factor(n) for n in shape])


def row_statistics(hypergraph: InteractionHypergraph, codes: np.ndarray, coding: Coding | None = None) -> np.ndarray:
    """Statistics (N, num_parameters) of complete rows (N, d) in a coding, the family's own by default."""
    coding = coding or parametrization(hypergraph).coding
    result = np.empty((len(codes), hypergraph.num_parameters))
    shapes = zip(hypergraph.parameter_slices.values(), hypergraph.edge_indices, hypergraph.edge_shapes, strict=True)
    for where, members, shape in shapes:
        result[:, where] = edge_basis(shape, coding)[np.ravel_multi_index(tuple(codes.T[list(members)]), shape)]
    return result


def _build(hypergraph: InteractionHypergraph, coding: Coding) -> np.ndarray:
    design = row_statistics(hypergraph, cell_codes(hypergraph), coding)
    design.flags.writeable = False
    return design


_SMALL, _LARGE = 2**20, 2**24  # entries of designs of which the last sixteen are kept, and the last one
_small_design, _large_design = lru_cache(maxsize=16)(_build), lru_cache(maxsize=1)(_build)


def check_design(hypergraph: InteractionHypergraph) -> int:
    """Entries of a dense design, refused beyond :data:`MAX_DESIGN_ENTRIES`."""
    needed = design_entries(hypergraph)
    if needed > MAX_DESIGN_ENTRIES:
        problem = (
            f"a dense design of {size_text(hypergraph.domain.num_states, 'cells')} by {hypergraph.num_parameters} "
            f"parameters needs {size_text(needed, 'entries')}, the budget is {MAX_DESIGN_ENTRIES}"
        )
        raise out_of_reach("method", problem, "use method='lbfgs'")
    return needed


def design_matrix(hypergraph: InteractionHypergraph, coding: Coding | None = None) -> np.ndarray:
    r"""Statistics of every cell in a coding, :math:`X` with :math:`\log q(x) = (X \theta)_x - \log Z`.

    The coding, "free" or "corner", is that of the collection's family when None.
    """
    entries = check_design(hypergraph)
    coding = coding or parametrization(hypergraph).coding
    if entries > _LARGE:
        return _build(hypergraph, coding)
    return _small_design(hypergraph, coding) if entries <= _SMALL else _large_design(hypergraph, coding)


def cell_codes(hypergraph: InteractionHypergraph) -> np.ndarray:
    """Codes of every cell in row-major order."""
    cards = hypergraph.domain.cardinalities
    return np.stack([a.ravel() for a in np.indices(cards)], axis=1) if cards else np.zeros((1, 0), dtype=np.int64)


def cell_numbers(codes: np.ndarray, columns: Sequence[int], cards: Sequence[int]) -> np.ndarray:
    """Row-major positions (N,) of rows (N, d) of complete codes in the table of some columns."""
    numbers = np.zeros(len(codes), dtype=np.int64)
    for i in columns:
        numbers = numbers * cards[i] + codes[:, i]
    return numbers


def cell_counts(data: Observations) -> np.ndarray:
    """Counts of every cell in row-major order; the rows must be complete."""
    cards = data.domain.cardinalities
    index = cell_numbers(data.narrow.numpy(), range(len(cards)), cards)
    return np.bincount(index, weights=data.counts.numpy(), minlength=data.domain.num_states)


# Iterative proportional fitting of tables to the margins of others.


def sum_to(tables: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """Margins over some axes of tables (B, *shape), with axes of length one for the others."""
    gone = tuple(i + 1 for i in range(tables.ndim - 1) if i not in axes)
    return tables.sum(gone, keepdims=True)


def fitted_margins(
    laws: np.ndarray, data: np.ndarray, facets: Sequence[Sequence[int]], max_cycles: int = 50, tolerance: float = 1e-6
) -> np.ndarray:
    """Tables (B, *shape) fitted to the margins of data over the given axes, until no margin is off by more."""
    # Of many small tables NumPy sums fast along the long axis alone.
    at = -1 if len(data) > data[:1].size else 0
    laws, data = (np.ascontiguousarray(np.moveaxis(tables, 0, at)) for tables in (laws, data))
    others = [tuple(i + 1 + at for i in range(data.ndim - 1) if i not in axes) for axes in facets]
    targets = [(gone, data.sum(gone, keepdims=True)) for gone in others]
    for _ in range(max_cycles if facets else 0):
        change = 0.0
        for gone, target in targets:
            margin = laws.sum(gone, keepdims=True)
            change = max(change, float(np.abs(margin - target).max()))
            laws = laws * np.divide(target, margin, out=np.zeros_like(target), where=margin > 0)
        if change < tolerance:
            break
    return np.moveaxis(laws, at, 0)


# The coordinates that a fit works in: linear maps from theta to tables and from marginal tables to its statistics.


@dataclass(frozen=True)
class Coordinates:
    """Theta of a collection in the free or the corner coding.

    A loss and its gradient are the same functions of tables in both. Results are in those of the
    family, which are others than those that a fit works in where a penalty asks for corner theta of a hierarchical
    collection.
    """

    hypergraph: InteractionHypergraph
    coding: Coding

    def tables(self, theta: np.ndarray) -> np.ndarray:
        """Tables (num_terms,), up to a constant, of theta (num_parameters,)."""
        codings, vector = parametrization(self.hypergraph), torch.from_numpy(theta)
        if self.coding == "corner":
            return codings.corner_tables(vector).numpy()
        return codings.to_tables(vector, self.coding).numpy()

    def statistics(self, eta: np.ndarray | torch.Tensor) -> np.ndarray:
        """Statistics (num_parameters,) of marginal tables (num_terms,): what the gradient in theta is made of."""
        return parametrization(self.hypergraph).mean_statistics(torch.as_tensor(eta), self.coding).numpy()

    def to_own(self, theta: np.ndarray) -> np.ndarray:
        """Theta in the coordinates of the family."""
        codings = parametrization(self.hypergraph)
        if self.coding == codings.coding:
            return theta
        return codings.convert(torch.from_numpy(theta), self.coding, codings.coding).numpy()

    def from_own(self, theta: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`to_own`."""
        codings = parametrization(self.hypergraph)
        if self.coding == codings.coding:
            return theta
        return codings.convert(torch.from_numpy(theta), codings.coding, self.coding).numpy()


def own_coordinates(hypergraph: InteractionHypergraph) -> Coordinates:
    """The coordinates of a collection's family."""
    return Coordinates(hypergraph, parametrization(hypergraph).coding)


# What a fit is given.


def check_domain(hypergraph: InteractionHypergraph, domain: Domain, argument: str) -> None:
    """Refuse variables or levels other than those of the hypergraph."""
    if domain != hypergraph.domain:
        expected = f"the variables and levels of the hypergraph, {hypergraph.domain.names}"
        hint = "project the data or build the hypergraph on data.domain"
        raise other_domain(argument, expected, hint=hint, received=domain.names)


def check_data(
    hypergraph: InteractionHypergraph, data: Observations | torch.Tensor, argument: str, *, may_be_empty: bool = False
) -> None:
    """Refuse data of other variables, with missing cells, without observations, or margins that do not agree."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    if isinstance(data, Observations):
        check_domain(hypergraph, data.domain, argument)
        if data.has_missing:
            hint = "call drop_missing() or missing_as_level(label) first"
            raise MissingDataError(f"{data.num_missing_cells} missing cells", argument=argument, hint=hint)
        if not (may_be_empty or data.total_count > 0):
            raise unexpected(argument, "at least one observation", received="a total count of 0", code="empty")
        return
    # Margins come without rows, so that what holds of any rows is looked at here.
    if not isinstance(data, torch.Tensor) or not data.is_floating_point():
        received = f"dtype {data.dtype}" if isinstance(data, torch.Tensor) else type(data).__name__
        raise wrong_type(argument, "Observations or a floating-point tensor of marginal counts", received=received)
    check_shape(data, (hypergraph.num_terms,), argument)
    check_finite(data, argument)
    if data.ndim != 1:
        raise wrong_shape(argument, f"({hypergraph.num_terms},)", data)
    if not hypergraph.edges:
        raise unexpected(argument, "observations, because a model without interactions has no margins", code="conflict")
    if bool((data < 0).any()):
        raise out_of_range(argument, "non-negative marginal counts", received=f"{float(data.min()):g}")
    # Margins of one table agree on what they share, up to the rounding of their dtype.
    wide = data.double()
    total = torch.stack([wide[where].sum() for where in hypergraph.term_slices.values()]).max()
    tolerance = max(MARGIN_TOLERANCE, 64 * torch.finfo(data.dtype).eps) * total
    check_margins(hypergraph, wide, total, tolerance, argument)
    if not bool((data > 0).any()):
        raise unexpected(argument, "at least one observation", received="a total count of 0", code="empty")


def check_validation(hypergraph: InteractionHypergraph, validation: Observations | None, early_stopping: bool) -> None:
    """Refuse validation rows that do not fit the model, and early stopping without any."""
    if validation is not None:
        check_type(validation, Observations, "validation")
        check_data(hypergraph, validation, "validation")
    elif early_stopping:
        raise unexpected("patience", "validation rows", hint="pass validation=...", received="none", code="conflict")
