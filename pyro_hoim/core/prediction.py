"""Predictions of one variable, and completed rows, whatever the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch

from .._modes import plain_mode
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import check_names, check_type, is_whole, out_of_range, refused, wrong_type
from ..schema import Domain
from .model import Chains

# Tables of results that hold columns of the data beside figures about them.


def beside_figures(columns: Mapping[str, Any], figures: Mapping[str, Any]) -> pd.DataFrame:
    """A table of columns of data, then of figures about them; a column with the name of a figure is ``name (column)``.

    The attribute ``columns`` of the table says what each column of data is called in it.

    Example:
        >>> table = beside_figures({"a": ["x"], "z": ["y"]}, {"estimate": [0.5], "z": [1.2]})
        >>> list(table), table.attrs
        (['a', 'z (column)', 'estimate', 'z'], {'columns': {'a': 'a', 'z': 'z (column)'}})
    """
    called: dict[str, str] = {}
    for name in sorted(columns, key=lambda name: name in figures):  # those that keep their names come first
        new = name
        while new in figures or new in called.values():
            new += " (column)"
        called[name] = new
    table = pd.DataFrame({**{called[name]: columns[name] for name in columns}, **figures})
    table.attrs["columns"] = {name: called[name] for name in columns}
    return table


def numbered(rows: pd.DataFrame, number: int) -> pd.DataFrame:
    """Several completions of rows, one below the other, with a first column ``imputation`` that counts from 1."""
    if number == 1:
        return rows
    numbers = np.repeat(np.arange(1, number + 1), len(rows) // number)
    table = beside_figures({str(name): values for name, values in rows.items()}, {"imputation": numbers})
    table.insert(0, "imputation", table.pop("imputation"))
    return table


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
        squares: of weights, the sum of the squared weights of every row, (N,); None of counts.
    """

    target: str
    labels: tuple[str, ...]
    log_probs: torch.Tensor
    std_error: torch.Tensor
    is_exact: torch.Tensor
    truth: torch.Tensor
    counts: torch.Tensor
    squares: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        rows: Observations,
        target: str,
        log_probs: torch.Tensor,
        std_error: torch.Tensor | None = None,
        is_exact: torch.Tensor | None = None,
    ) -> Prediction:
        """A prediction of a column of rows, with what the rows say of it; exact where nothing else is said."""
        error = torch.zeros_like(log_probs) if std_error is None else std_error
        exact = torch.ones(len(log_probs), dtype=torch.bool) if is_exact is None else is_exact
        truth = rows.codes[:, rows.domain.index(target)].clone()
        weights = rows.counts.clone(), rows.squared_weights.clone()
        return cls(target, rows.domain[target].labels, log_probs, error, exact, truth, *weights)

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
        """Rows with a prediction, (N,): all but those whose other known cells have probability zero together."""
        return ~self.log_probs.isnan().any(-1)

    @cached_property
    @plain_mode()
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
    @plain_mode()
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
        wrongly. Of weights, b and c are shares of the effective number of these rows, and the tail is that of the
        beta distribution at fractions, as in Korn and Graubard's intervals. NaN where no target is known.

        References:
            Edward Korn and Barry Graubard, Confidence intervals for proportions with small expected number of positive
            counts estimated from survey data, Survey Methodology 24, 1998.
            Quinn McNemar, Note on the sampling error of the difference between correlated proportions or percentages,
            Psychometrika 12, 1947.
        """
        from scipy.special import betainc

        if not self.rows:
            return math.nan
        most = int(self.confusion.sum(1).argmax())
        is_most, is_right = self.truth == most, self.truth == self.codes
        right, wrong = self._known & is_right & ~is_most, self._known & is_most & ~is_right
        b, c = float(self.counts[right].sum()), float(self.counts[wrong].sum())
        if not b:
            return 1.0
        squares = self.counts if self.squares is None else self.squares
        scale = (b + c) / float(squares[right | wrong].sum())  # rows per unit of weight; 1 of counts
        return float(betainc(b * scale, c * scale + 1, 0.5))

    @property
    def summary(self) -> dict[str, Any]:
        """``target``, ``accuracy``, ``majority_accuracy``, ``majority_p_value`` and ``rows``."""
        names = ("target", "accuracy", "majority_accuracy", "majority_p_value", "rows")
        return {name: getattr(self, name) for name in names}

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


@dataclass(frozen=True, eq=False)
class Imputation:
    """Completed rows.

    Attributes:
        data: the rows as they were.
        codes: the completions, long (num_imputations, N, d); rows whose known cells have probability zero together miss
            what they missed, -1.
        is_exact: rows without an approximation: complete ones, perfect draws, proven modes; (N,).
        how: ``draws`` or ``most probable``.
    """

    data: Observations
    codes: torch.Tensor
    is_exact: torch.Tensor
    how: str

    @property
    def num_imputations(self) -> int:
        """Completions of every row."""
        return len(self.codes)

    @property
    def is_completed(self) -> torch.Tensor:
        """Rows without a missing cell, (N,)."""
        return (self.codes >= 0).flatten(2).all(-1).all(0)

    def observations(self, number: int = 0) -> Observations:
        """One completed data set, with the counts of the rows."""
        if not 0 <= number < self.num_imputations:
            raise out_of_range("number", f"0 to {self.num_imputations - 1}", received=number)
        return self.data.replaced(codes=self.codes[number].clone())

    def to_pandas(self) -> pd.DataFrame:
        """All completions below each other; where there are several, the first column ``imputation`` counts from 1.

        A variable of that name is then called ``imputation (column)``.
        """
        codes = self.codes.flatten(0, 1)
        return numbered(Observations.from_tensor(codes, self.data.domain).to_pandas(count=None), self.num_imputations)


def extend_rows(data: DataLike, domain: Domain, absent: Collection[str] = ()) -> Observations:
    """Rows over some of the variables of a domain, labels included, as rows over all of them, the others missing.

    Of a data frame only columns that are ``absent`` may be.

    Raises:
        InputError: a variable with other labels.
        UnknownNameError: a variable that the domain does not have.

    Example:
        >>> domain = Domain.from_labels({"rain": ["no", "yes"], "wet": ["no", "yes"]})
        >>> rows = Observations.from_tensor(torch.tensor([[1], [0]]), Domain.from_labels({"wet": ["no", "yes"]}))
        >>> extend_rows(rows, domain).codes.tolist()
        [[-1, 1], [-1, 0]]
    """
    data = as_observations(data, domain=domain, absent=absent)
    if data.domain == domain:
        return data
    check_names(data.domain.names, domain.names, "data")
    for variable in data.domain:
        if variable != domain[variable.name]:
            problem = f"variable {variable.name!r} has other labels than in the model"
            raise refused("data", problem, "read the file with domain=...", code="other-domain")
    codes = torch.full((data.num_rows, len(domain)), -1, dtype=data.narrow.dtype)
    codes[:, list(domain.indices(data.domain.names))] = data.narrow
    return data.replaced(domain=domain, codes=codes)


# Rows of which some cells are known, whatever their model: patterns, portions and settings of their chains.

RowMethod = Literal["auto", "exact", "gibbs"]
METHODS = get_args(RowMethod)

_MAX_CHAINS = 2**15


@dataclass(frozen=True)
class ClampedGibbs:
    """How long the Gibbs chains of a row with missing cells run; numbers that are too small are refused.

    Every chain is led to the conditional law through ``num_temperatures`` equal steps of temperature, one sweep each,
    then burnt in. The draws are approximate: correct in the limit of long chains.

    Args:
        num_chains: independent chains of each row; their spread gives the standard error of a prediction. A draw of an
            imputation is the last state of a chain of its own, so imputations have as many chains as draws.
        num_temperatures: steps from the uniform law to the model.
        burn_in: sweeps at the model before anything is used.
        num_sweeps: sweeps of a prediction after burn-in, a multiple of ``thin``; every ``thin``-th is averaged.
        thin: see ``num_sweeps``.

    Example:
        >>> ClampedGibbs(num_sweeps=100, thin=4).num_records
        25
    """

    num_chains: int = 8
    num_temperatures: int = 50
    burn_in: int = 50
    num_sweeps: int = 200
    thin: int = 2

    def __post_init__(self) -> None:
        for name, least in (("num_chains", 2), ("num_temperatures", 1), ("burn_in", 0), ("num_sweeps", 1), ("thin", 1)):
            check_count(getattr(self, name), name, least)
        if self.num_sweeps % self.thin:
            raise out_of_range("num_sweeps", f"a multiple of thin={self.thin}", received=self.num_sweeps)

    @property
    def num_records(self) -> int:
        """States of a chain that a prediction averages over."""
        return self.num_sweeps // self.thin


def check_count(value: object, argument: str, least: int = 1) -> None:
    """Raise unless a whole number from ``least``."""
    if not is_whole(value):
        raise wrong_type(argument, "a whole number", received=repr(value))
    if value < least:
        raise out_of_range(argument, f"at least {least}", received=value)


def checked_gibbs(gibbs: ClampedGibbs | None) -> ClampedGibbs:
    """The settings given, or the defaults; anything else is an :class:`InputTypeError`."""
    check_type(gibbs, ClampedGibbs | None, "gibbs")
    return ClampedGibbs() if gibbs is None else gibbs


def row_patterns(data: Observations) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Distinct sets of missing variables: (their names in schema order, positions of the rows with it)."""
    if data.num_rows and not data.has_missing:
        yield (), torch.arange(data.num_rows)
        return
    masks, inverse = torch.unique(data.narrow < 0, dim=0, return_inverse=True)
    order = inverse.argsort(stable=True)
    sizes = torch.bincount(inverse, minlength=len(masks)).tolist()
    for mask, rows in zip(masks.tolist(), order.split(sizes), strict=True):
        yield tuple(n for n, gone in zip(data.domain.names, mask, strict=True) if gone), rows


def chain_portions(rows: torch.Tensor, num_chains: int) -> Sequence[torch.Tensor]:
    """Rows in portions of at most 32,768 chains."""
    return rows.split(max(1, _MAX_CHAINS // num_chains))


def chain_averages(
    chains: Chains, gibbs: ClampedGibbs, size: int, most: int, log_probs: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of ``size`` levels averaged over the chains of every row, and their standard errors: (R, K) each.

    The chains of a row stand side by side; ``log_probs`` is called with at most ``most`` states (records, chains, d).
    """
    total = torch.zeros(chains.num_chains, size, dtype=torch.float64)
    records = max(1, most // chains.num_chains)
    for first in range(0, gibbs.num_records, records):
        length = min(records, gibbs.num_records - first)
        states = chains.sweep(length * gibbs.thin, thin=gibbs.thin, states=True).states
        assert states is not None
        for start in range(0, chains.num_chains, most):
            total[start : start + most] += log_probs(states[:, start : start + most]).double().exp().sum(0)
    means = (total / gibbs.num_records).reshape(-1, gibbs.num_chains, size)
    return means.mean(1), means.std(1) / gibbs.num_chains**0.5


def drawn_seed(generator: torch.Generator) -> int:
    """A seed for one set of chains."""
    return int(torch.randint(2**31 - 1, (), generator=generator))
