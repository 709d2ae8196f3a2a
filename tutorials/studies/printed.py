"""Algorithms 1 and 2 of paper 1 as printed, under every reading of its step that the text allows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from pyro_hoim.core.trainer import Loss, TrainingReport
from pyro_hoim.data.observations import Observations
from pyro_hoim.errors import check_choice, check_positive, check_whole
from pyro_hoim.log_linear.energy import LogLinearEnergy
from pyro_hoim.log_linear.search.candidates import Heredity
from pyro_hoim.log_linear.search.greedy import select
from pyro_hoim.log_linear.search.rounds import SelectionOptions, SelectionResult, SelectionRound
from pyro_hoim.log_linear.search.scores import InteractionInformation, ScoreContext
from pyro_hoim.log_linear.training._dense_kernels import centre
from pyro_hoim.log_linear.training.exact import DenseEngine, ExactTrainer
from pyro_hoim.structure.hypergraph import Edge, InteractionHypergraph

__all__ = ["PrintedTrainer", "Reading", "printed_search", "printed_stop"]


@dataclass(frozen=True)
class Reading:
    r"""What GRADIENTDESCENT of algorithm 2 may mean.

    .. math:: \theta^S \leftarrow \theta^S - \alpha (\eta^S_\theta - \hat\eta^S)

    Attributes:
        gradient: ``"raw"`` as in line 16, where tables are not balanced and those of a collection that lacks subsets
            stand for them, too; or ``"purified"``, equation (9).
        order: all tables ``"together"``, from one eta; or ``"in turn"``, as the loop of line 15 says, where each sees
            what the tables before it have changed.
        is_shared: whether the step is divided by the number of tables.
        is_masked: whether combinations of levels that no training row has are left out of the model ("masking",
            caption of figure 6). Rows that have one are left out of the divergence: it would be infinite.
        step: alpha.
        num_steps: T.
    """

    gradient: Literal["raw", "purified"] = "purified"
    order: Literal["together", "in turn"] = "together"
    is_shared: bool = False
    is_masked: bool = False
    step: float = 0.5
    num_steps: int = 10

    def __post_init__(self) -> None:
        check_choice(self.gradient, ("raw", "purified"), "gradient")
        check_choice(self.order, ("together", "in turn"), "order")
        check_positive(self.step, "step")
        check_whole(self.num_steps, "num_steps")


class PrintedTrainer(ExactTrainer):
    """Exact margins, and T steps of one reading in every call of ``train``; begins with the empty collection.

    Tables are whatever the steps made them: raw ones are not balanced. The loss counts a row that has a combination
    without a training row, if these are masked, as if the model gave it its own frequency, so that the loss less the
    entropy is the divergence over all other rows.
    """

    def __init__(self, rows: Observations, reading: Reading) -> None:
        self.reading = reading
        super().__init__(rows, InteractionHypergraph(rows.domain))

    def _prepare(self, hypergraph: InteractionHypergraph) -> None:
        super()._prepare(hypergraph)
        if self.reading.is_masked:
            self._engine = DenseEngine(hypergraph)  # elimination takes no minus infinity
        self._is_out = self.excluded(hypergraph).numpy()

    def excluded(self, hypergraph: InteractionHypergraph) -> torch.Tensor:
        """Table entries (num_terms,) that are left out of the model."""
        if not self.reading.is_masked:
            return torch.zeros(hypergraph.num_terms, dtype=torch.bool)
        return torch.from_numpy(self._margins_of(self.rows)(hypergraph) == 0)

    def _evaluate(self, tables: np.ndarray) -> tuple[float, np.ndarray]:
        """Log Z and eta with what is left out."""
        return self._engine.evaluate(np.where(self._is_out, -math.inf, tables))

    def _normaliser(self) -> float:
        return self._evaluate(self._tables)[0]

    def _fit(self) -> TrainingReport:
        reading, tables, goal = self.reading, self._tables.copy(), self._frequencies(self.rows)
        step = reading.step / (max(1, len(self.hypergraph)) if reading.is_shared else 1)
        if reading.order == "in turn":
            self._move_in_turn(tables, goal, step)
        else:
            for _ in range(reading.num_steps):
                gradient = self._evaluate(tables)[1] - goal
                if reading.gradient == "purified":
                    centre(self._axes, gradient)
                tables -= step * gradient
        if not np.isfinite(tables).all():
            return TrainingReport("diverged", reading.num_steps, math.inf)
        self._adopt(tables)
        norm = float(np.abs(self._evaluate(tables)[1] - goal).max(initial=0.0))
        return TrainingReport("max_iterations", reading.num_steps, norm)

    def _move_in_turn(self, tables: np.ndarray, goal: np.ndarray, step: float) -> None:
        """All steps, in place, over the states that are not left out, whose weights are kept up to date."""
        parts = list(self.hypergraph.term_slices.values())
        cells = self._cells_of_states()
        for _ in range(self.reading.num_steps):
            logs = sum((tables[where][at] for where, at in zip(parts, cells, strict=True)), np.zeros(1))
            weights = np.exp(logs - logs.max())
            for where, at, shape in zip(parts, cells, self.hypergraph.edge_shapes, strict=True):
                slope = np.bincount(at, weights, where.stop - where.start) / weights.sum() - goal[where]
                for axis in range(len(shape)) if self.reading.gradient == "purified" else ():
                    table = slope.reshape(shape)
                    slope = (table - table.mean(axis, keepdims=True)).ravel()
                tables[where] -= step * slope
                weights *= np.exp(-step * slope)[at]

    def _cells_of_states(self) -> list[np.ndarray]:
        """For every table the cells of all states that are not left out."""
        cards = self.hypergraph.domain.cardinalities
        codes = np.indices(cards, dtype=np.int32).reshape(len(cards), -1)
        found: list[np.ndarray] = []
        pieces = (self.hypergraph.edge_indices, self.hypergraph.edge_shapes, self.hypergraph.term_slices.values())
        for edge, shape, where in zip(*pieces, strict=True):
            at = np.asarray(np.ravel_multi_index(tuple(codes[i] for i in edge), shape))
            kept = ~self._is_out[where][at]
            if not kept.all():
                codes, at, found = codes[:, kept], at[kept], [other[kept] for other in found]
            found.append(at)
        return found

    def lost_share(self, rows: Observations) -> float:
        """Share of rows that have a combination that is left out."""
        return float(rows.counts @ self._are_lost(rows)) / rows.total_count

    def _are_lost(self, rows: Observations) -> torch.Tensor:
        marks = LogLinearEnergy(self.hypergraph, torch.from_numpy(self._is_out.astype(np.float64)), validate=False)
        return (marks.energy(rows.codes) < 0).double()

    def loss(self, rows: Observations) -> Loss:
        if not self._is_out.any():
            return super().loss(rows)
        states = rows.unique()
        frequencies = states.counts / states.total_count
        model = LogLinearEnergy(self.hypergraph, torch.from_numpy(self._tables), validate=False)
        lost = self._are_lost(states).bool()
        logs = torch.where(lost, frequencies.log(), -model.energy(states.codes) - self._normaliser())
        return Loss(-float(frequencies @ logs), 0.0, "exact")


def printed_search(
    train: Observations,
    validation: Observations,
    reading: Reading,
    *,
    heredity: Heredity = 0.3,
    divides_by: Literal["parameters", "cells", "nothing"] = "parameters",
    is_ascending: bool = False,
    per_round: int = 10,
    num_rounds: int = 30,
) -> SelectionResult:
    """Algorithm 1 from nothing, run on beyond its stop: the whole curve of rounds.

    Args:
        train: training rows.
        validation: validation rows.
        reading: of the step.
        heredity: tau.
        divides_by: number of free parameters of a candidate, or of cells of its table, that divides the score.
        is_ascending: take the lowest scores first, as line 12 of algorithm 2 is printed.
        per_round: K.
        num_rounds: rounds after the empty collection.
    """
    check_choice(divides_by, ("parameters", "cells", "nothing"), "divides_by")
    information = InteractionInformation(per_parameter=divides_by == "parameters")

    def score(candidates: Sequence[Edge], context: ScoreContext) -> np.ndarray:
        values = information(candidates, context)
        if divides_by == "cells":
            values = values / [math.prod(train.domain[name].cardinality for name in edge) for edge in candidates]
        return -values if is_ascending else values

    options = SelectionOptions(
        heredity=heredity, score=score, per_round=per_round, patience=num_rounds + 1, max_rounds=num_rounds
    )
    start = InteractionHypergraph(train.domain)
    return select(train, validation, PrintedTrainer(train, reading), options, min_score=-math.inf, init=start)


def printed_stop(rounds: Sequence[SelectionRound]) -> int:
    """The round that algorithm 1 returns: the first that is no better than the one before, else the last."""
    losses = [entry.validation_loss for entry in rounds]
    return next((k for k in range(1, len(losses)) if not losses[k] < losses[k - 1]), len(losses) - 1)
