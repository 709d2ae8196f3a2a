"""The contract of training: parameters of a collection of interactions that may grow or shrink, fitted to rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch

from ..data.observations import Observations
from ..structure.hypergraph import InteractionHypergraph
from .partition import LogPartition

TrainingStatus = Literal["converged", "max_iterations", "diverged"]


class Loss(NamedTuple):
    """Mean negative log-likelihood of rows, or its stand-in.

    Attributes:
        value: nats per row; infinite when a row has probability zero.
        std_error: standard error from the estimate of log Z, 0 where that is exact or not needed. The sampling error
            over rows is not part of it.
        kind: ``exact`` or ``estimated`` negative log-likelihood, or ``pseudo-likelihood``.
    """

    value: float
    std_error: float
    kind: Literal["exact", "estimated", "pseudo-likelihood"]


class Margins(NamedTuple):
    """Marginal laws of a model over several sets of variables.

    Attributes:
        probs: probabilities, set after set, each row-major in schema order; float64.
        sample_size: number of independent draws that they are worth, infinite when exact.
    """

    probs: torch.Tensor
    sample_size: float


@dataclass(frozen=True)
class TrainingReport:
    """How one call of :meth:`Trainer.train` ended.

    Attributes:
        status: ``converged``, ``max_iterations`` (the schedule was used up, as sampled training always does), or
            ``diverged`` (the parameters are those of the last state that was sound).
        num_iterations: steps made.
        gradient_norm: largest absolute entry of the gradient per row at the end, penalty included.
        notes: sentences on what happened on the way, such as sampling that was raised.
    """

    status: TrainingStatus
    num_iterations: int
    gradient_norm: float
    notes: tuple[str, ...] = ()


@runtime_checkable
class Trainer(Protocol):
    """Balanced interaction tables of one collection, fitted to training rows.

    A trainer begins with the collection that it was made with, all tables zero but those of single variables, and can
    go over to another collection at any time. It knows how a model is fitted; which collections are worth fitting is
    the business of the search.

    Laws: ``tables`` are balanced, in the layout of ``hypergraph.term_slices``; ``restructure`` to the same collection
    changes nothing; interactions common to both collections keep their tables, new ones start at zero; two trainers
    with equal arguments that receive equal calls have equal tables; a trainer that loads another's ``state_dict``
    after the same ``restructure`` goes on as that one would.

    Example:
        >>> from pyro_hoim import InteractionHypergraph, load_table
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> rows = load_table("ucb_admissions")
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.from_order(rows.domain, 1))
        >>> trainer.restructure(InteractionHypergraph.from_order(rows.domain, 2))
        >>> trainer.tables.shape, trainer.train().status
        (torch.Size([38]), 'converged')
    """

    name: Literal["exact", "sampled", "pseudo-likelihood"]
    rows: Observations

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The present collection."""
        ...

    @property
    def tables(self) -> torch.Tensor:
        """Balanced tables (num_terms,), float64."""
        ...

    def restructure(self, hypergraph: InteractionHypergraph) -> None:
        """Go over to another collection over the same domain."""
        ...

    def train(self) -> TrainingReport:
        """Fit the present collection, from where the parameters are."""
        ...

    def loss(self, rows: Observations) -> Loss:
        """Mean loss of complete rows; no penalty is included."""
        ...

    def margins(self, edges: Sequence[tuple[str, ...]]) -> Margins:
        """Marginal laws of the present model over sets of variables, which need not be in the collection."""
        ...

    def log_partition(self) -> LogPartition | None:
        """Log Z of the tables, exact or estimated; None where it is out of reach."""
        ...

    def state_dict(self) -> Mapping[str, torch.Tensor]:
        """Everything that a resumed run needs besides the collection."""
        ...

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Inverse of :meth:`state_dict`, after ``restructure`` to the same collection."""
        ...


@runtime_checkable
class RidgeTrainer(Trainer, Protocol):
    """A trainer under a ridge, whose strengths rounds of evidence may move.

    Example:
        >>> from pyro_hoim import InteractionHypergraph, load_table
        >>> from pyro_hoim.log_linear import ExactTrainer, InteractionRidge
        >>> rows = load_table("ucb_admissions")
        >>> trainer: RidgeTrainer = ExactTrainer(rows, InteractionHypergraph.from_order(rows.domain, 2))
        >>> trainer.use_ridge(InteractionRidge(2.0), 0)
        >>> trainer.penalty.strength(("Admit", "Dept"))
        2.0
    """

    @property
    def penalty(self) -> Any:
        """The present ridge, with the strengths that rounds of evidence have found."""
        ...

    def use_ridge(self, ridge: Any, evidence_rounds: int) -> None:
        """Train under another ridge from now on, whose strengths so many rounds of evidence move."""
        ...


@runtime_checkable
class MaskedTrainer(Trainer, Protocol):
    """A trainer that may leave combinations of levels out of its model.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations
        >>> from pyro_hoim.log_linear import PseudoTrainer
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[4, 0], [3, 2]])
        >>> pair = InteractionHypergraph.from_order(rows.domain, 2)
        >>> trainer: MaskedTrainer = PseudoTrainer(rows, pair, masked=True)
        >>> trainer.excluded(pair)[pair.term_slices[("a", "b")]].tolist()  # no row has the second cell
        [False, True, False, False]
    """

    def excluded(self, hypergraph: InteractionHypergraph) -> torch.Tensor:
        """Table entries (num_terms,) of a collection that are left out."""
        ...


@runtime_checkable
class DoubtingTrainer(Trainer, Protocol):
    """A trainer that trains on where the estimate of its loss turns out to say nothing.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations
        >>> from pyro_hoim.log_linear import SampledTrainer, SampledTraining
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[4, 1], [3, 2]])
        >>> settings = SampledTraining(num_chains=64, num_iterations=20, restart="doubt")
        >>> pair = InteractionHypergraph.from_order(rows.domain, 2)
        >>> trainer: DoubtingTrainer = SampledTrainer(rows, pair, settings=settings)
        >>> trainer.train().status, trainer.retrained()
        ('max_iterations', None)
    """

    def retrained(self) -> TrainingReport | None:
        """Train on where the loss has no error bar; None where nothing was done."""
        ...
