"""Training by pseudo-likelihood: no log Z is needed, so any number of variables will do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from typing_extensions import override

from ...core.partition import LogPartition, PartitionBackend
from ...core.trainer import Loss, Margins, MaskedTrainer
from ...data.observations import Observations
from ...errors import IntractableError, other_domain, out_of_reach, wrong_type
from ...structure.hypergraph import InteractionHypergraph
from ..fitting.design import check_data
from ..fitting.objectives import BackendEngine, ConditionalLayout, PseudoRows
from ..fitting.penalties import L2
from ..fitting.solvers import Evaluate, HeldOut, Point, Stopping
from .exact import Engine, choose_engine
from .ridge import EvidenceRounds, InteractionRidge
from .table_trainer import DescentTrainer, join_margins, margin_edges


class PseudoTrainer(DescentTrainer, MaskedTrainer):
    r"""Balanced tables fitted by the mean negative log pseudo-likelihood; log Z is not needed.

    .. math:: f(\theta) = -\frac1N \sum_n \sum_i \log q_\theta(x_{n,i} \mid x_{n,-i}) + \mathrm{penalty}(\theta) / N

    It is a :class:`~pyro_hoim.core.trainer.Trainer`. An evaluation costs O(distinct rows x sum of edge sizes
    x cardinality), whatever the number of states. The estimate is consistent, but on few rows it is worse than that of
    the likelihood. Any collection will do, also one that is not hierarchical.

    Args:
        rows, hypergraph, penalty, partition, method, step, validation, stopping, evidence: see
            :class:`~pyro_hoim.log_linear.ExactTrainer`.
        masked: leave combinations that no training row has in some interaction out of every conditional: the model
            gives them probability zero, and a row that has one an infinite loss. Without masking every loss is finite.

    Raises:
        InputError: as of :class:`~pyro_hoim.log_linear.ExactTrainer`, and so errors of types and of missing cells.

    References:
        Julian Besag, Statistical analysis of non-lattice data, 1975, equation (3); Paper 1, appendix B.1,
        figure 6 and table 4.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> trainer = PseudoTrainer(rows, InteractionHypergraph.saturated(rows.domain))
        >>> trainer.train().status
        'converged'
        >>> [round(p, 4) for p in trainer.margins([("a", "b")]).probs.tolist()]  # saturated: that of the likelihood
        [0.3, 0.1, 0.2, 0.4]
    """

    name: Literal["exact", "sampled", "pseudo-likelihood"] = "pseudo-likelihood"
    _is_pseudo = True

    def __init__(
        self,
        rows: Observations,
        hypergraph: InteractionHypergraph,
        *,
        penalty: InteractionRidge | L2 | None = None,
        masked: bool = False,
        partition: PartitionBackend | None = None,
        method: Literal["lbfgs", "gradient"] = "lbfgs",
        step: float = 0.5,
        validation: Observations | None = None,
        stopping: Stopping | None = None,
        evidence: EvidenceRounds | None = None,
    ) -> None:
        if not isinstance(masked, bool):
            raise wrong_type("masked", "True or False", received=repr(masked))
        self.masked = masked
        self._pseudo_rows = lru_cache(maxsize=4)(PseudoRows)  # rows are told apart by identity
        super().__init__(
            rows,
            hypergraph,
            penalty=penalty,
            partition=partition,
            method=method,
            step=step,
            validation=validation,
            stopping=stopping,
            evidence=evidence,
        )

    def _prepare(self, hypergraph: InteractionHypergraph) -> None:
        self._layout = ConditionalLayout(hypergraph)
        self._excluded = self.excluded(hypergraph).numpy()
        self._engine: Engine | str | None = None

    def excluded(self, hypergraph: InteractionHypergraph) -> torch.Tensor:
        """Table entries (num_terms,) of a collection that masking leaves out, as no training row has them.

        Raises:
            InputError: another domain.
        """
        if hypergraph.domain != self.rows.domain:
            raise other_domain("hypergraph", "a collection over the domain of the rows", received="another domain")
        if not self.masked:
            return torch.zeros(hypergraph.num_terms, dtype=torch.bool)
        return torch.from_numpy(self._margins_of(self.rows)(hypergraph) == 0)

    def _effective(self, tables: np.ndarray) -> np.ndarray:
        """Tables with minus infinity where a combination is left out."""
        return np.where(self._excluded, -math.inf, tables) if self._excluded.any() else tables

    def _losses(self) -> tuple[Evaluate, HeldOut | None]:
        rows = self._pseudo_rows(self.rows)

        def evaluate(tables: np.ndarray) -> Point:
            loss, raw = rows.evaluate(self._layout, self._effective(tables))
            return self._penalised(tables, loss, raw)

        if self.validation is None:
            return evaluate, None
        others = self._pseudo_rows(self.validation)

        def held_out(tables: np.ndarray, _: float) -> float:
            return others.value(self._layout, self._effective(tables))

        return evaluate, held_out

    @override
    def loss(self, rows: Observations) -> Loss:
        check_data(self._hypergraph, rows, "rows")
        value = self._pseudo_rows(rows).value(self._layout, self._effective(self._tables))
        return Loss(value, 0.0, "pseudo-likelihood")

    @override
    def margins(self, edges: Sequence[tuple[str, ...]]) -> Margins:
        positions = margin_edges(self._hypergraph, edges)
        engine = self._engine_or_reason()
        if isinstance(engine, str):
            problem = f"out of exact reach for a model trained by pseudo-likelihood ({engine})"
            raise out_of_reach("margins", problem, "draw samples from the model, or use the loss, which needs no log Z")
        return join_margins(engine.margins(self._effective(self._tables), positions))

    def log_partition(self) -> LogPartition | None:
        """Log Z of the tables, exact, over the states that are not left out; None where it is out of reach."""
        engine = self._engine_or_reason()
        if isinstance(engine, str):
            return None
        result = engine.log_partition(self._effective(self._tables))
        if self._excluded.any():
            note = f"{int(self._excluded.sum())} combinations without a training row are left out"
            result = replace(result, notes=(*result.notes, note))
        return result

    def _engine_or_reason(self) -> Engine | str:
        """The exact engine of the present collection, chosen once, or why there is none."""
        if self._engine is None:
            try:
                engine = choose_engine(self._hypergraph, self.partition)
            except IntractableError as error:
                self._engine = str(error)
            else:
                is_backend = isinstance(engine, BackendEngine) and bool(self._excluded.any())
                reason = "a partition backend cannot leave out combinations; use masked=False or no backend"
                self._engine = reason if is_backend else engine
        return self._engine
