"""Strengths of a ridge from the training rows themselves: the fixed point of the evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...checks import check_exact_shape
from ...errors import check_positive, check_type, check_whole, is_real, out_of_range
from ...structure.hypergraph import Edge, InteractionHypergraph
from .ridge import InteractionRidge, contrast_spectrum

__all__ = ["EvidenceRounds", "num_effective", "updated_ridge"]

Floats = NDArray[np.float64]
_LEAST, _LARGEST = 0.05, 1e6  # strengths


@dataclass(frozen=True)
class EvidenceRounds:
    """How often the strengths of a ridge are moved towards the maximum of the evidence, and how far each time.

    Raises:
        InputError: a number of rounds that is no whole number from 0, or a damping outside (0, 1].

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> graph = InteractionHypergraph.saturated(rows.domain)
        >>> trainer = ExactTrainer(rows, graph, penalty=InteractionRidge(20.0), evidence=EvidenceRounds(2))
        >>> trainer.train().status, round(trainer.penalty.strength(("a", "b")), 2)  # the rows want less than 20
        ('converged', 3.58)
    """

    num_rounds: int = 0
    damping: float = 0.5

    def __post_init__(self) -> None:
        check_whole(self.num_rounds, "evidence_rounds", 0)
        object.__setattr__(self, "damping", check_damping(self.damping, "evidence_damping"))


def updated_ridge(
    ridge: InteractionRidge,
    hypergraph: InteractionHypergraph,
    tables: Floats,
    margins_data: Floats,
    num_rows: float,
    *,
    damping: float = 0.5,
    pseudo: bool = False,
) -> InteractionRidge:
    r"""One step of the fixed point of the evidence, for interactions of two or more variables.

    .. math:: \lambda_S \leftarrow \lambda_S^{1 - d} \Big( \frac{\gamma_S}{b_S^\top K_S b_S} \Big)^d, \qquad
        \gamma_S = \sum_c \sum_k \frac{1}{\prod_{i \in S} I_i} \frac{h_c}{h_c + \lambda_S k}

    The ridge is read as a normal prior. At the strengths that maximise the probability of the rows, the parameters
    integrated out by a normal approximation around the fitted tables b, the expected and the fitted squared norm agree.
    The effective number of parameters :math:`\gamma_S` is approximated by a diagonal curvature: cell c has the
    curvature :math:`h_c`, its number of rows, and every free coordinate the mean over the cells; k runs over the
    eigenvalues of :math:`K_S` within balanced tables. No validation rows are needed. Interactions that the rows do not
    support receive strengths that grow from step to step; the tables must be refitted in between. Single variables keep
    their strengths.

    Args:
        ridge: the penalty that the tables were fitted with.
        hypergraph: the collection.
        tables: balanced tables of the fit (num_terms,).
        margins_data: frequencies of the cells of every interaction among the rows (num_terms,).
        num_rows: number of rows, with multiplicity.
        damping: share d of the step that is made, on the logarithmic scale; 1 is the whole step.
        pseudo: whether the tables maximise the pseudo-likelihood, which counts a row once for every variable of an
            interaction; the strength is then that many times the precision of the prior.

    Returns:
        The ridge with new strengths, from 0.05 to 1e6; so a strength of zero does not stay zero.

    Raises:
        InputError: a damping outside (0, 1], no rows, or wrong lengths.
        InputTypeError: no InteractionRidge.

    References:
        David MacKay, Bayesian interpolation, 1992, section 4; Michael Tipping, Sparse Bayesian learning and the
        relevance vector machine, 2001, section 2.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> graph = InteractionHypergraph.saturated(rows.domain)
        >>> margins = (rows.marginal_counts(graph.edges) / 100).numpy()
        >>> tables = np.array([-0.2, 0.2, 0.0, 0.0, 0.45, -0.45, -0.45, 0.45])
        >>> found = updated_ridge(InteractionRidge(1.0), graph, tables, margins, 100, damping=1.0)
        >>> round(found.strength(("a", "b")), 3)
        1.174
    """
    check_type(ridge, InteractionRidge, "ridge")
    check_damping(damping, "damping")
    check_exact_shape(tables, (hypergraph.num_terms,), "tables")
    effective = num_effective(ridge, hypergraph, margins_data, num_rows, pseudo=pseudo)
    unit = replace(ridge, default=1.0, by_order={}, by_edge={})
    squares = tables * unit.gradient(tables, hypergraph)
    strengths: dict[Edge, float] = {}
    for edge, where in hypergraph.term_slices.items():
        if len(edge) < 2 or not effective[edge]:
            continue
        norm, goal = float(squares[where].sum()), _LARGEST
        weight = len(edge) if pseudo else 1
        if norm > 0:
            goal = min(max(weight * effective[edge] / norm, _LEAST), _LARGEST)
        strength = ridge.strength(edge) ** (1 - damping) * goal**damping
        strengths[edge] = min(max(strength, _LEAST), _LARGEST)
    return ridge.updated(strengths)


def num_effective(
    ridge: InteractionRidge,
    hypergraph: InteractionHypergraph,
    margins_data: Floats,
    num_rows: float,
    *,
    pseudo: bool = False,
) -> dict[Edge, float]:
    r"""Effective number of parameters :math:`\gamma_S` of every interaction; see :func:`updated_ridge`."""
    check_exact_shape(margins_data, (hypergraph.num_terms,), "margins_data")
    check_positive(num_rows, "num_rows")
    result: dict[Edge, float] = {}
    for edge, where in hypergraph.term_slices.items():
        rows, num_cells = np.unique(np.round(num_rows * margins_data[where], 9), return_counts=True)
        strength = ridge.strength(edge) / (len(edge) if pseudo else 1)
        eigenvalues, multiplicities = _spectrum(ridge, hypergraph, edge)
        prior = strength * eigenvalues
        seen = rows > 0
        shares = rows[seen, None] / (rows[seen, None] + prior)
        result[edge] = float(num_cells[seen] @ shares @ multiplicities) / (where.stop - where.start)
    return result


def check_damping(damping: object, argument: str) -> float:
    """Raise unless a number above 0 and at most 1."""
    if not is_real(damping) or not 0 < damping <= 1:
        raise out_of_range(argument, "a number above 0, at most 1", damping)
    return float(damping)


def _spectrum(ridge: InteractionRidge, hypergraph: InteractionHypergraph, edge: Edge) -> tuple[Floats, Floats]:
    """Distinct eigenvalues of the precision of balanced tables, and how often each occurs."""
    eigenvalues, multiplicity = np.ones(1), 1
    for name in edge:
        variable = hypergraph.domain[name]
        if ridge.is_smooth(edge, variable):
            axis = contrast_spectrum(variable.cardinality, ridge.smoothness)
            eigenvalues = np.multiply.outer(eigenvalues, axis).reshape(-1)
        else:
            multiplicity *= variable.cardinality - 1
    return eigenvalues, np.full(len(eigenvalues), float(multiplicity))
