"""What a search of interactions found, round by round, and its file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from typing_extensions import override

from ...errors import refused
from ...results.fitted import Fitted
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..energy import LogLinearEnergy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SelectionResult", "SelectionRound", "SelectionStatus", "Verdict"]

Verdict = Literal["start", "improved", "worse", "undecided"]
SelectionStatus = Literal[
    "stopped early", "exhausted", "little gain", "max_rounds", "undecided", "diverged", "time limit", "unfinished"
]


@dataclass(frozen=True)
class SelectionRound:
    """One collection of the search, fitted.

    Attributes:
        number: 0 for the collection that the search starts from.
        changed: interactions added (or removed, by :func:`~pyro_hoim.log_linear.prune`) in this round, best
            first.
        scores: their scores.
        num_candidates: interactions that were scored.
        num_interactions: sets of two and more variables in the collection.
        num_parameters: free parameters of the collection.
        train_loss, validation_loss: mean losses of the rows, in nats; what kind of loss says ``loss_kind``.
        train_std_error, validation_std_error: their standard errors from log Z.
        loss_kind: ``exact``, ``estimated`` or ``pseudo-likelihood``.
        train_kl, validation_kl: divergences of the model from the empirical laws of the rows, in nats, whatever the
            trainer's loss; None where log Z is out of reach.
        training_status: how training of this collection ended.
        verdict: what the validation loss says against the best round before.
        seconds: time of scores, training and losses.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear import ExactTrainer, select
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> found = select(rows, rows, ExactTrainer(rows, InteractionHypergraph.from_order(rows.domain, 1)))
        >>> [(step.changed, step.verdict, round(step.validation_loss, 4)) for step in found.rounds]
        [((), 'start', 1.3662), ((('a', 'b'),), 'improved', 1.2799)]
    """

    number: int
    changed: tuple[Edge, ...]
    scores: tuple[float, ...]
    num_candidates: int
    num_interactions: int
    num_parameters: int
    train_loss: float
    train_std_error: float
    validation_loss: float
    validation_std_error: float
    loss_kind: str
    train_kl: float | None
    validation_kl: float | None
    training_status: str
    verdict: Verdict
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description; numbers that are not finite become strings."""
        values = asdict(self)
        values["scores"] = [_plain(score) for score in self.scores]
        values["changed"] = [list(edge) for edge in self.changed]
        return {name: _plain(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SelectionRound:
        """Inverse of :meth:`to_json`."""
        texts = ("loss_kind", "training_status", "verdict")
        found = {name: entry if name in texts else _number(entry) for name, entry in value.items()}
        found["changed"] = tuple(tuple(edge) for edge in value["changed"])
        found["scores"] = tuple(float(score) for score in value["scores"])
        return cls(**found)


def _plain(value: Any) -> Any:
    """A float that is not finite as a string, which JSON has no number for."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


@dataclass(frozen=True, eq=False, repr=False)
class SelectionResult(Fitted):
    """Interactions selected on validation rows, and the path that led to them.

    Attributes:
        rounds: every collection that was fitted, the start first.
        best_round: number of the round whose collection and tables these are.
        hypergraph: the collection of that round; it need not be hierarchical.
        tables: its balanced tables (num_terms,), float64, in the layout of ``hypergraph.term_slices``.
        status: why the search ended: ``stopped early`` (the validation loss did not improve), ``exhausted`` (no
            candidate scores above the minimum, or nothing can be removed), ``little gain`` (the interactions of the
            last round brought less than ``least_gain`` each), ``max_rounds``, ``undecided`` (many rounds that the error
            of log Z leaves open), ``diverged``, ``time limit``, or ``unfinished``.
        settings: arguments of the search.
        excluded: entries of the tables (num_terms,) that a masked trainer leaves out: combinations that no training
            row has, to which the selected model gives probability zero whatever the tables say; None where there is
            none. Losses and divergences of the rounds are those of the model with the mask.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear import ExactTrainer, select
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> found = select(rows, rows, ExactTrainer(rows, InteractionHypergraph.from_order(domain, 1)))
        >>> found.capacity_curve()[["num_interactions", "num_parameters", "is_best"]].values.tolist()
        [[0, 3, False], [1, 4, True]]
    """

    rounds: tuple[SelectionRound, ...]
    best_round: int
    hypergraph: InteractionHypergraph
    tables: torch.Tensor
    status: SelectionStatus
    settings: Mapping[str, Any]
    excluded: torch.Tensor | None = None

    @override
    def __repr__(self) -> str:
        best, variables = self.best, len(self.hypergraph.domain)
        kl = "" if best.validation_kl is None else f", validation KL {best.validation_kl:.4f}"
        return (
            f"SelectionResult: log-linear model, {variables} variables, {best.num_interactions} interactions, "
            f"{best.num_parameters} parameters\n"
            f"  {self.status}, best of {len(self.rounds)} rounds is {self.best_round}{kl}"
        )

    @property
    def best(self) -> SelectionRound:
        """The best round."""
        return self.rounds[self.best_round]

    def capacity_curve(self) -> pd.DataFrame:
        """Numbers and words of every round in a row each, and ``is_best`` (paper 1, figures 4 to 6)."""
        import pandas as pd

        frame = pd.DataFrame([asdict(entry) for entry in self.rounds]).drop(columns=["changed", "scores"])
        for name in ("train_kl", "validation_kl"):
            frame[name] = frame[name].astype(float)
        frame["is_best"] = frame["number"] == self.best_round
        return frame.set_index("number")

    def log_linear(self) -> LogLinearEnergy:
        """The selected model, on the closure of its collection, where added tables are zero.

        Raises:
            InputError: the trainer was masked, and the model excludes combinations, which finite tables cannot.
        """
        if self.excluded is not None:
            problem = (
                f"expected a model of finite tables, but masking gives probability zero to {int(self.excluded.sum())} "
                "combinations without a training row; select with masked=False, or take "
                "LogLinearEnergy(selection.hypergraph, selection.tables), another law, in which all can occur"
            )
            raise refused("log_linear", problem, code="impossible")
        return LogLinearEnergy(self.hypergraph, self.tables).on_closure()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description without collection, tables and times, so that equal searches have equal ones."""
        rounds = [entry.to_json() for entry in self.rounds]
        for entry in rounds:
            del entry["seconds"]
        return {
            "status": self.status,
            "best_round": self.best_round,
            "settings": dict(self.settings),
            "rounds": rounds,
        }
