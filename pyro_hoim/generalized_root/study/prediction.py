"""One column of rows from all others under a generalized root model: numbers with intervals, labels with shares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm
from torch import Tensor

from ...core.prediction import Prediction
from ...data.counts import CountTable
from ...errors import check_fraction, check_names
from ..nodes.columns import NodeFamilies
from ..nodes.families import NodeFamily
from ..nodes.log_partition import node_moments
from ..nodes.user_family import UserFamily
from .scores import RootModel

Floats = NDArray[np.float64]

_SPREAD = 10.0  # standard deviations on either side of the mean that a grid of values covers
_POINTS = 800  # of a grid
_CELLS = 2**22  # numbers in one piece of work


def conditional_law(family: NodeFamily, natural: Floats, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
    """Values (N, G) of one variable and their probabilities (N, G) in every row, given natural parameters (N, k).

    Of counts the values are whole numbers, of continuous variables the middles of cells of equal width; both reach ten
    standard deviations from the mean as far as the support does.
    """
    # A window of every row.
    low, high = mean - _SPREAD * std, mean + _SPREAD * std
    if family.is_discrete:
        low = np.maximum(np.floor(low - 10), 0.0)
        high = np.minimum(np.ceil(high + 20), family.largest_value)
        step = np.maximum(np.ceil((high - low) / _POINTS), 1.0)
        points = low[:, None] + step[:, None] * np.arange(int(((high - low) // step).max(initial=0)) + 1)
    else:
        low = np.maximum(low, 0.0) if family.kind == "positive" else low
        step = np.maximum((high - low) / _POINTS, np.finfo(float).tiny)
        points = low[:, None] + step[:, None] * (np.arange(_POINTS) + 0.5)
    # Values beyond the largest one have no probability.
    inside = np.minimum(points, family.largest_value)
    values = torch.from_numpy(inside)
    roots = np.stack([family.root(values, j).numpy() for j in range(1, natural.shape[1] + 1)], -1)
    score = np.einsum("ngk,nk->ng", roots, natural) + family.log_base(values).numpy()
    score = np.where(points > family.largest_value, -np.inf, score)
    return points.astype(np.float64), np.exp(score - logsumexp(score, axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class RootPrediction:
    """Conditional mean of one variable given all others, for every row.

    Attributes:
        target: the variable.
        mean: E[x | the others], (N,).
        std: standard deviation of x given the others, (N,).
        values: what the file says, (N,), or None where it does not.
        log_probs: log p(x | the others) of these values, (N,), or None.
        family: of the variable; None of a column that held one value in the rows learned from.
        natural: parameters of its conditional laws, (N, k), or None likewise.
        origin: what was subtracted from the column to make the variable; all figures are those of the column.
    """

    target: str
    mean: np.ndarray
    std: np.ndarray
    values: np.ndarray | None
    log_probs: np.ndarray | None
    family: NodeFamily | None = None
    natural: np.ndarray | None = field(default=None, repr=False)
    origin: float = 0.0

    @property
    def rmse(self) -> float | None:
        """Root mean square error of the conditional mean; None without values."""
        return None if self.values is None else float(np.sqrt(np.mean((self.values - self.mean) ** 2)))

    @property
    def mae(self) -> float | None:
        """Mean absolute error of the conditional mean; None without values."""
        return None if self.values is None else float(np.mean(np.abs(self.values - self.mean)))

    @property
    def mean_rmse(self) -> float | None:
        """Root mean square error of always the mean of the rows: their standard deviation; None without values."""
        return None if self.values is None else float(self.values.std())

    @property
    def log_loss(self) -> float | None:
        """Minus the mean log-probability of the values given all others, nats; None without values."""
        return None if self.log_probs is None else -float(self.log_probs.mean())

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends (N,) of an interval that holds the value with some probability given the others.

        The ends are quantiles of the conditional law, so that as much lies below as above; of counts they are whole
        numbers, both inside. Coefficients are taken as known.

        Raises:
            InputError: a level that is not between 0 and 1.
        """
        check_fraction(level, "level")
        if self.family is None or self.natural is None:
            return self.mean.copy(), self.mean.copy()
        tail = (1 - level) / 2
        if self.family.name == "gaussian" and self.natural.shape[1] <= 2:
            far = float(norm.isf(tail)) * self.std
            return self.mean - far, self.mean + far
        # A few rows at a time, each on a grid of its own.
        ends, size = np.zeros((2, len(self.mean))), max(1, _CELLS // (_POINTS * (2 + self.natural.shape[1])))
        for start in range(0, len(self.mean), size):
            part = slice(start, start + size)
            mean = self.mean[part] - self.origin
            points, probs = conditional_law(self.family, self.natural[part], mean, self.std[part])
            ends[:, part] = [_quantile(self.family, points, probs, q) for q in (tail, 1 - tail)]
        return ends[0] + self.origin, ends[1] + self.origin

    def is_inside(self, level: float = 0.95) -> float | None:
        """Share of the rows whose value is inside their interval; None without values."""
        if self.values is None or not len(self.values):
            return None
        low, high = self.interval(level)
        return float(((low <= self.values) & (self.values <= high)).mean())


def _quantile(family: NodeFamily, points: Floats, probs: Floats, share: float) -> Floats:
    """Quantiles (N,) of laws on grids (N, G): the first value that reaches the share, inside its cell if continuous."""
    reached = np.minimum(np.cumsum(probs, 1), 1.0)
    first = np.minimum((reached < share * (1 - 1e-12)).sum(1), points.shape[1] - 1)
    rows = np.arange(len(points))
    at = points[rows, first]
    if family.is_discrete:
        return at
    width, mass = points[:, 1] - points[:, 0], probs[rows, first]
    inside = np.divide(share - (reached[rows, first] - mass), mass, out=np.full(len(at), 0.5), where=mass > 0)
    return at + (inside - 0.5) * width


def predict_roots(
    model: RootModel, table: CountTable, target: str, *, is_known: bool = True
) -> RootPrediction | Prediction:
    """Law of one column given all others, exact: of numbers a mean and a deviation, of labels probabilities.

    Where columns have several families, a 0/1 column has the levels 0 and 1, and a category, named as
    :class:`~pyro_hoim.generalized_root.IndicatorFamily` does, one for each of its indicators. Where the model knows the
    columns of a table, levels are their labels, and numbers are in their units.

    Args:
        model: the model.
        table: rows; the column of the target is not read for the mean.
        target: the variable, or the category.
        is_known: whether that column holds values to compare with.

    Returns:
        A :class:`RootPrediction`, or of labels a :class:`~pyro_hoim.core.prediction.Prediction`.

    Raises:
        UnknownNameError: no such variable.
        InputError: other columns, or values outside the support of the family.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import GeneralizedRootEnergy, PoissonFamily
        >>> structure = RootStructure.simplified(Domain([Variable(name, kind="count") for name in "ab"]), [("a", "b")])
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([0.0, 0.0, 0.0]), PoissonFamily())
        >>> model = RootModel(energy, structure.domain, {})
        >>> found = predict_roots(model, CountTable.from_matrix([[3, 1]], ["a", "b"]), "a")
        >>> found.mean.round(6).tolist(), round(found.log_loss, 4)  # a Poisson variable with mean one: 1 + log 3!
        ([1.0], 2.7918)
        >>> [end.tolist() for end in found.interval(0.9)]
        [[0.0], [3.0]]
    """
    # A column that held one value in training is known.
    check_names([target], list(dict.fromkeys([*model.domain.names, *model.categories])), "target")
    if target in model.categories:
        return _levels(model, table, target, is_known)
    origin = 0.0 if model.columns is None else model.columns[target].origin
    values = table.column(target) + origin if is_known else None
    if target in model.fixed:
        at = model.fixed[target] + origin
        log_probs = None if values is None else np.where(values == at, 0.0, -np.inf)
        return RootPrediction(target, np.full(table.num_rows, at), np.zeros(table.num_rows), values, log_probs)
    energy, column = model.energy, model.energy.domain.index(target)
    family = energy.families[column]
    if energy.families.common is None and family.largest_value == 1.0 and family.is_discrete:
        return _yes_no(model, table, target, is_known)
    # Moments of the target's node law, a few rows at a time.
    pieces: list[Tensor] = [torch.zeros(0, 3, dtype=torch.float64)]
    naturals: list[Tensor] = []
    with torch.no_grad():
        for rows, _ in model.pieces(table):
            natural = energy.node_natural(rows)[:, column].to(torch.float64)
            log_prob = torch.zeros(len(rows), dtype=torch.float64)
            mean, variance, log_z = _moments(family, natural)
            if is_known:
                score = (natural * family.roots(rows[:, column], natural.shape[-1])).sum(-1)
                log_prob = score + family.log_base(rows[:, column]) - log_z
            pieces.append(torch.stack([mean, variance.sqrt(), log_prob], 1))
            naturals.append(natural)
    mean, std, log_prob = torch.cat(pieces).numpy().T
    known = torch.cat(naturals).numpy() if naturals else np.zeros((0, energy.order))
    log_probs = None if values is None else log_prob
    return RootPrediction(target, mean + origin, std, values, log_probs, family, known, origin)


def _moments(family: NodeFamily, natural: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of the value of a variable, and its log partition, (N,), at parameters (N, k)."""
    if isinstance(family, UserFamily):  # whose statistic need not be the value
        one = NodeFamilies((family,), family)
        mean, variance = one.value_moments(natural[:, None])
        return mean[:, 0], variance[:, 0], one.log_partition(natural[:, None])[:, 0]
    root = 1 if family.name == "gaussian" else 0  # the value is the second root of its square
    law = node_moments(family, torch.nn.functional.pad(natural, (0, max(root + 1 - natural.shape[-1], 0))))
    assert law.covariance is not None
    return law.mean[:, root], law.covariance[:, root, root], law.value


def _yes_no(model: RootModel, table: CountTable, target: str, is_known: bool) -> Prediction:
    """Probabilities of 0 and 1 in every row."""
    column = model.energy.domain.index(target)
    with torch.no_grad():
        scores = [model.energy.node_natural(rows)[:, column].sum(-1) for rows, _ in model.pieces(table)]
    score = torch.cat([torch.zeros(0), *scores]).to(torch.float64)
    log_probs = torch.stack([torch.zeros_like(score), score], 1).log_softmax(1)
    truth = torch.from_numpy(table.column(target)).long() if is_known else torch.full((len(score),), -1)
    labels = () if model.columns is None else model.columns[target].levels
    return _labelled(target, labels or ("0", "1"), log_probs, truth)


def _levels(model: RootModel, table: CountTable, target: str, is_known: bool) -> Prediction:
    """Probabilities of the levels of a category in every row; of levels that no row learned from had, zero."""
    # Scores of the indicators in the model, of which one is set.
    names = model.categories[target]
    places = {name: i for i, name in enumerate(names)}
    columns = [model.energy.domain.index(name) for name in names if name in model.energy.domain]
    log_probs = torch.full((table.num_rows, len(names)), -math.inf, dtype=torch.float64)
    inside, start = [places[model.energy.domain.names[s]] for s in columns], 0
    with torch.no_grad():
        for rows, _ in model.pieces(table):
            if not is_known:  # any level will do, for its own indicators play no role
                rows[:, columns] = torch.eye(len(columns), dtype=rows.dtype)[0]
            score = model.energy.node_natural(rows)[:, columns].sum(-1).to(torch.float64)
            log_probs[start : start + len(rows), inside] = score.log_softmax(-1)
            start += len(rows)
    truth = torch.full((table.num_rows,), -1)
    if is_known:
        truth = torch.from_numpy(np.stack([table.column(name) for name in names], 1).argmax(1))
    return _labelled(target, tuple(name.removeprefix(f"{target}=") for name in names), log_probs, truth)


def _labelled(target: str, labels: tuple[str, ...], log_probs: Tensor, truth: Tensor) -> Prediction:
    exact, ones = torch.ones(len(truth), dtype=torch.bool), torch.ones(len(truth), dtype=torch.float64)
    return Prediction(target, labels, log_probs, torch.zeros_like(log_probs), exact, truth, ones)
