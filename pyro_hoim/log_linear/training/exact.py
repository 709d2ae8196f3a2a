"""Training with exact gradients: maximum likelihood, with or without a ridge, where log Z is within reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from typing_extensions import override

from ...core.partition import LogPartition
from ...core.trainer import Loss, Margins
from ...data.observations import Observations
from ...structure.hypergraph import InteractionHypergraph
from ..fitting.arguments import check_data
from ..fitting.solvers import Evaluate, HeldOut, Point
from .dense.engines import choose_engine
from .descent import DescentTrainer
from .table_trainer import join_margins, margin_edges

__all__ = ["ExactTrainer"]


class ExactTrainer(DescentTrainer):
    r"""Balanced tables fitted by exact gradients of the mean negative log-likelihood.

    .. math:: f(\theta) = \log Z(\theta) - \theta \cdot \hat\eta + \mathrm{penalty}(\theta) / N, \qquad
        \tilde\nabla_{\theta^S} f = \pi^S_\theta - \hat\pi^S + \lambda_S \theta^S / N

    It is a :class:`~pyro_hoim.core.trainer.Trainer`. Any collection will do, also one that is not hierarchical. An
    evaluation costs the same for any number of rows. Log Z and eta come from a dense sweep, a few passes over the table
    of states of every connected component, where these have at most 2^22 states and elimination is not far cheaper;
    else from ``partition``, by default ``Auto()``. Every call of :meth:`train` begins where the tables are.

    Args:
        rows: complete training rows.
        hypergraph: the collection to begin with. Tables of single variables begin at the logarithms of their counts
            plus one half, the others at zero.
        penalty: ridge (or ``L2``) added to the negative log-likelihood of all rows; without one an estimate may be
            infinite, and training then ends at its limits.
        partition: exact backend that is used instead of the sweep.
        method: ``lbfgs``, or ``gradient``: descent along the purified gradient with a fixed ``step``.
        step: of the method ``gradient``.
        validation: rows whose loss is looked at after every step; the tables where it was lowest are kept.
        stopping: tolerance (1e-6), most steps of one call (1,000), and patience with the validation rows (20).
        evidence: how often a call of :meth:`train` moves the strengths of interactions, by
            :func:`~pyro_hoim.log_linear.updated_ridge`, and fits again; new ones begin with that of ``penalty``.

    Raises:
        InputError: rows of another domain or none, options without a meaning, or a backend that estimates.
        MissingDataError: missing cells.
        IntractableError: no exact way within its budget.

    References:
        Paper 1, section 4.2, equation (9) and algorithm 2.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.from_order(rows.domain, 1))
        >>> trainer.restructure(InteractionHypergraph.saturated(rows.domain))
        >>> trainer.train().status
        'converged'
    """

    name: Literal["exact", "sampled", "pseudo-likelihood"] = "exact"

    def _prepare(self, hypergraph: InteractionHypergraph) -> None:
        self._engine = choose_engine(hypergraph, self.partition)
        self._known: tuple[np.ndarray, float] | None = None

    def _losses(self) -> tuple[Evaluate, HeldOut | None]:
        goal = self._frequencies(self.rows)

        def evaluate(tables: np.ndarray) -> Point:
            log_z, eta = self._engine.evaluate(tables)
            return self._penalised(tables, log_z - float(tables @ goal), eta - goal)

        if self.validation is None:
            return evaluate, None
        difference = goal - self._frequencies(self.validation)

        def held_out(tables: np.ndarray, loss: float) -> float:
            return loss + float(tables @ difference)

        return evaluate, held_out

    def _normaliser(self) -> float:
        """Log Z of the present tables, computed once for them."""
        if self._known is None or self._known[0] is not self._tables:
            self._known = (self._tables, self._engine.evaluate(self._tables)[0])
        return self._known[1]

    @override
    def loss(self, rows: Observations) -> Loss:
        check_data(self._hypergraph, rows, "rows")
        return Loss(self._normaliser() - float(self._tables @ self._frequencies(rows)), 0.0, "exact")

    @override
    def margins(self, edges: Sequence[tuple[str, ...]]) -> Margins:
        return join_margins(self._engine.margins(self._tables, margin_edges(self._hypergraph, edges)))

    @override
    def log_partition(self) -> LogPartition:
        return self._engine.log_partition(self._tables)
