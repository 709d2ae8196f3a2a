"""Prediction of any variable from the others with one joint model (paper 1, section 5.3 and table 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import pandas as pd
import torch

from ..data import Observations
from ..errors import InputError, check_names
from ..models import LogLinearEnergy
from ..partition import Auto
from ..sampling.arguments import checked_seed
from ..schema import Domain
from .given import (
    ClampedGibbs,
    RowMethod,
    chain_portions,
    check_energy,
    check_model,
    check_rows,
    checked_gibbs,
    condition_rows,
    drawn_seed,
    exact_portions,
    is_exactly_feasible,
    row_chains,
    row_patterns,
)

__all__ = ["Prediction", "extend_rows", "predict"]

_LOOK_UPS_PER_CALL = 2**21


@dataclass(frozen=True, eq=False)
class Prediction:
    r"""Probabilities of the levels of one variable in every row, and how well they foretell what the rows say.

    Attributes:
        target: the variable.
        labels: its levels.
        log_probs: log q(x_t | the known other cells), float64 (N, K), nats; NaN in rows without a prediction.
        std_error: standard errors of the probabilities, 0 where exact; from the spread between the chains of a row,
            (N, K).
        is_exact: rows without Monte Carlo error, (N,).
        truth: code of the target in the rows, -1 where unknown, (N,).
        counts: count of every row, (N,).

    Example:
        >>> from pyro_hoim.structure import InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_labels({"rain": ["no", "yes"], "wet": ["no", "yes"]}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, 0], [1, 1], [0, 1]]), graph.domain)
        >>> found = predict(model, rows, "wet")
        >>> found.labels_predicted, round(found.accuracy, 4), round(found.log_loss, 4)
        (('no', 'yes', 'no'), 0.6667, 0.7936)
    """

    target: str
    labels: tuple[str, ...]
    log_probs: torch.Tensor
    std_error: torch.Tensor
    is_exact: torch.Tensor
    truth: torch.Tensor
    counts: torch.Tensor

    @property
    def probs(self) -> torch.Tensor:
        """Probabilities of the levels, (N, K)."""
        return self.log_probs.exp()

    @property
    def kind(self) -> Literal["exact", "biased"]:
        """``exact``, or ``biased`` where some rows are averages over Markov chains (right in the limit)."""
        return "exact" if bool((self.is_exact | ~self.is_predicted).all()) else "biased"

    @property
    def is_predicted(self) -> torch.Tensor:
        """Rows with a prediction, (N,): all but those that :meth:`without` set aside."""
        return ~self.log_probs.isnan().any(-1)

    def without(self, excluded: torch.Tensor) -> Prediction:
        """The same with no prediction in some rows (N,), those whose known cells have probability zero together."""
        nothing = excluded[:, None]
        return replace(
            self,
            log_probs=torch.where(nothing, math.nan, self.log_probs),
            std_error=torch.where(nothing, math.nan, self.std_error),
            is_exact=self.is_exact & ~excluded,
        )

    @cached_property
    def codes(self) -> torch.Tensor:
        """Most probable level of every row, the first of equals, (N,); -1 in rows without a prediction."""
        return torch.where(self.is_predicted, self.log_probs.argmax(-1), -1)

    @property
    def labels_predicted(self) -> tuple[str, ...]:
        """Label of the most probable level of every row; empty in rows without a prediction."""
        return tuple(self.labels[i] if i >= 0 else "" for i in self.codes.tolist())

    @property
    def _known(self) -> torch.Tensor:
        return (self.truth >= 0) & (self.counts > 0) & self.is_predicted

    @property
    def rows(self) -> float:
        """Number of observations with a prediction and a known target."""
        return float(self.counts[self._known].sum())

    @cached_property
    def confusion(self) -> torch.Tensor:
        """Observations by true (first axis) and predicted level, (K, K)."""
        size, known = len(self.labels), self._known
        table = torch.zeros(size * size, dtype=torch.float64)
        table.index_add_(0, self.truth[known] * size + self.codes[known], self.counts[known])
        return table.reshape(size, size)

    @property
    def accuracy(self) -> float:
        """Share of observations whose target is the most probable level; NaN where no target is known."""
        return float(self.confusion.trace()) / self.rows if self.rows else math.nan

    @property
    def majority_accuracy(self) -> float:
        """Accuracy of always guessing the most frequent level of these rows; NaN where no target is known."""
        return float(self.confusion.sum(1).max()) / self.rows if self.rows else math.nan

    @property
    def majority_p_value(self) -> float:
        r"""One-sided exact McNemar test of the accuracy against always guessing the most frequent level.

        .. math:: \Pr(B \ge b), \qquad B \sim \mathrm{Binomial}(b + c, 1/2)

        where b rows are predicted rightly and are not of that level, and c rows are of that level and predicted
        wrongly. NaN where no target is known.

        References:
            Quinn McNemar, Note on the sampling error of the difference between correlated proportions or percentages,
            Psychometrika 12, 1947.
        """
        from scipy.stats import binom

        if not self.rows:
            return math.nan
        most = int(self.confusion.sum(1).argmax())
        right = float(self.confusion.trace() - self.confusion[most, most])
        wrong = float(self.confusion[most].sum() - self.confusion[most, most])
        return float(binom.sf(round(right) - 1, round(right) + round(wrong), 0.5))

    @property
    def class_accuracy(self) -> dict[str, float]:
        """Share of the observations of each level that were recognised; NaN for a level that does not occur."""
        totals = self.confusion.sum(1)
        return {
            label: float(right / total) if total > 0 else math.nan
            for label, right, total in zip(self.labels, self.confusion.diagonal(), totals, strict=True)
        }

    @property
    def log_loss(self) -> float:
        """Mean of minus the log probability of the true level, in nats; NaN where no target is known."""
        known = self._known
        if not self.rows:
            return math.nan
        chosen = self.log_probs[known].gather(1, self.truth[known, None]).squeeze(1)
        return -float((self.counts[known] * chosen).sum()) / self.rows

    def to_pandas(self) -> pd.DataFrame:
        """One line a row: ``predicted``, the probability of every level as ``p(label)``, and ``is_exact``."""
        frame = pd.DataFrame({"predicted": list(self.labels_predicted)})
        for label, column in zip(self.labels, self.probs.T, strict=True):
            frame[f"p({label})"] = column.numpy()
        frame["is_exact"] = self.is_exact.numpy()
        return frame


def extend_rows(data: Observations, domain: Domain) -> Observations:
    """Rows over some of the variables of a domain as rows over all of them, the others missing.

    Args:
        data: rows; their variables must be those of the domain, labels included.
        domain: all variables.

    Raises:
        InputError: a variable with other labels.
        InputTypeError: no observations.
        UnknownNameError: a variable that the domain does not have.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 3})
        >>> extend_rows(Observations.from_tensor(torch.tensor([[2]]), domain.project(["b"])), domain).codes.tolist()
        [[-1, 2]]
    """
    check_rows(data)
    if data.domain == domain:
        return data
    check_names(data.domain.names, domain.names, "data")
    for variable in data.domain:
        if variable != domain[variable.name]:
            raise InputError(
                f"data: variable {variable.name!r} has other labels than in the model; read the file with domain=..."
            )
    codes = torch.full((len(data.codes), len(domain)), -1, dtype=torch.long)
    codes[:, list(domain.indices(data.domain.names))] = data.codes
    return Observations.from_tensor(codes, domain, weights=data.counts)


def predict(
    model: LogLinearEnergy,
    data: Observations,
    target: str,
    *,
    method: RowMethod = "auto",
    gibbs: ClampedGibbs | None = None,
    seed: int = 0,
) -> Prediction:
    r"""Conditional law of one variable in every row given the row's other known cells.

    .. math:: q(x_t \mid x_O) = \frac{\sum_{x_M} \exp(-E(x_t, x_O, x_M))}{\sum_{x'_t, x_M} \exp(-E(x'_t, x_O, x_M))}

    Where no other cell is missing this is a softmax over look-ups in the interactions that hold the target, exact at
    any size: 16,000 mushroom rows take about a tenth of a second. With missing cells M the sum is exact where
    conditioning on the known cells leaves a law within reach of :class:`~pyro_hoim.partition.Auto`; otherwise Gibbs
    chains move the target and the missing cells with the others clamped, and the conditional probabilities
    :math:`q(x_t \mid \text{all other cells of the state})` are averaged over states (Rao-Blackwell), which is far more
    precise than counting levels; their standard errors know nothing of modes that no chain of a row entered. The target
    of a row is never read for its own prediction.

    Args:
        model: one model.
        data: rows over the model's variables, or over some of them; the others are missing.
        target: the variable to predict.
        method: ``auto``: exact where a row needs at most 2e7 operations or all rows together at most 2e9, else Gibbs;
            ``exact``: exact or refused; ``gibbs``: chains wherever another cell than the target is missing.
        gibbs: length and number of the chains; defaults of :class:`ClampedGibbs`.
        seed: seed of the chains.

    Returns:
        Probabilities, their errors, and accuracy, log loss and confusion where the target is known.

    Raises:
        InputError: another domain, a batch of models, a seed out of range, or an unknown method.
        InputTypeError: no LogLinearEnergy, no observations, a seed that is no whole number, or ``gibbs`` that is no
            :class:`ClampedGibbs`.
        IntractableError: ``exact`` beyond the reach of the backends.
        UnknownNameError: ``target`` is no variable of the model.

    Randomness:
        From ``seed`` only; with exact rows nothing is drawn.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, section 5.3.
    """
    check_energy(model)
    check_rows(data)
    check_names([target], model.domain.names, "target")
    seed = checked_seed(seed)
    data = extend_rows(data, model.domain)
    check_model(model, data.domain, method)
    column, size = data.domain.index(target), data.domain[target].cardinality
    hidden = data.codes.clone()
    hidden[:, column] = -1
    codes, inverse = torch.unique(hidden, dim=0, return_inverse=True)
    rows = Observations.from_tensor(codes, data.domain)
    log_probs = torch.empty(len(codes), size, dtype=torch.float64)
    std_error = torch.zeros_like(log_probs)
    is_exact = torch.ones(len(codes), dtype=torch.bool)
    generator = torch.Generator().manual_seed(seed)
    settings = checked_gibbs(gibbs)
    num_incomplete = int(((codes < 0).sum(1) > 1).sum())
    for missing, positions in row_patterns(rows):
        if missing == (target,):
            step = max(1, _LOOK_UPS_PER_CALL // max(1, size * _degree(model, target)))
            for part in positions.split(step):
                log_probs[part] = model.block_conditional([target], codes[part]).double()
        elif is_exactly_feasible(model, missing, num_incomplete, method, keep=[target]):
            for part in exact_portions(model, missing, positions):
                laws, _ = condition_rows(model, missing, codes[part])
                log_probs[part] = Auto().log_marginal(laws, [target]).double()
        else:
            is_exact[positions] = False
            for part in chain_portions(positions, settings.num_chains):
                probs, error = _averaged(model, target, missing, codes[part], settings, drawn_seed(generator))
                log_probs[part], std_error[part] = probs.log(), error
    return Prediction(
        target,
        data.domain[target].labels,
        log_probs[inverse],
        std_error[inverse],
        is_exact[inverse],
        data.codes[:, column].clone(),
        data.counts.clone(),
    )


def _degree(model: LogLinearEnergy, target: str) -> int:
    """Number of interactions that hold the target."""
    return sum(target in edge for edge in model.hypergraph.edges)


def _averaged(
    model: LogLinearEnergy,
    target: str,
    missing: tuple[str, ...],
    codes: torch.Tensor,
    gibbs: ClampedGibbs,
    seed: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Conditional probabilities of the target averaged over chains, and their standard errors: (R, K) each."""
    chains = row_chains(model, missing, codes, gibbs.num_chains, gibbs, seed)
    size = model.domain[target].cardinality
    step = max(1, _LOOK_UPS_PER_CALL // max(1, size * _degree(model, target)))
    records = max(1, step // chains.num_chains)
    total = torch.zeros(chains.num_chains, size, dtype=torch.float64)
    left = gibbs.num_records
    while left:
        now = min(records, left)
        record = chains.sweep(now * gibbs.thin, thin=gibbs.thin, codes=True)
        assert record.codes is not None
        for start in range(0, chains.num_chains, step):
            log_probs = model.block_conditional([target], record.codes[:, start : start + step])
            total[start : start + step] += log_probs.double().exp().sum(0)
        left -= now
    means = (total / gibbs.num_records).reshape(len(codes), gibbs.num_chains, -1)
    return means.mean(1), means.std(1) / gibbs.num_chains**0.5
