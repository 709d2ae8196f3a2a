"""A generalized root model at work on rows: pseudo-likelihoods, likelihoods, predictions and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

import numpy as np
import torch

from ...core.partition import Cost, LogPartition
from ...core.scores import Scores
from ...data.counts import CountTable
from ...errors import InputError, IntractableError, check_names, other_domain, out_of_reach, refused, size_text
from ...schema import Domain, Variable
from ..auto import RootAuto
from ..chains.gibbs import RootChains
from ..energy import GeneralizedRootEnergy
from ..file import RootFile
from ..frames import RootColumns
from ..nodes.families import IndicatorFamily
from ..regress.result import RootFitResult, RootTerm

_PORTION = 2**22  # numbers in one piece of work
_CHAINS = 1024
_MOST_FLOPS = 2 * 10**9


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard error of minus log probabilities."""
    if not np.isfinite(values).all():
        return math.inf, math.inf
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), error


def root_scores(log_pseudo: np.ndarray, log_prob: np.ndarray | None = None, entropy: float | None = None) -> Scores:
    """Scores from the log pseudo-likelihood and, where there is one, the log-likelihood of every row, (N,), nats.

    ``entropy`` is that of the empirical law of the rows, for the KL divergence.
    """
    pseudo, pseudo_error = _mean_and_error(-log_pseudo)
    nll, error = (None, None) if log_prob is None else _mean_and_error(-log_prob)
    return Scores(
        rows=len(log_pseudo),
        impossible_rows=int(np.isneginf(log_pseudo).sum()),
        pseudo_nll=pseudo,
        pseudo_nll_std_error=pseudo_error,
        nll=nll,
        nll_std_error=error,
        kl=None if nll is None or entropy is None else nll - entropy,
    )


def _refusal(cost: Cost) -> str:
    """Why an exact sum is not made unasked, or nothing."""
    if not cost.feasible:
        return cost.reason
    if cost.flops > _MOST_FLOPS:
        return f"exact sums would take {size_text(int(cost.flops), 'operations')}; they are made on demand only"
    return ""


def exact_log_partition(energy: GeneralizedRootEnergy) -> tuple[LogPartition | None, str]:
    """Log Z by the exact methods where these take seconds, or None and the reason why there is none."""
    try:
        reason = _refusal(RootAuto().plan_energy(energy))
        if reason:
            return None, reason
        return RootAuto().log_partition(energy), ""
    except (InputError, IntractableError) as error:
        return None, str(error)


@dataclass(frozen=True, eq=False)
class RootModel:
    """A generalized root model together with the columns that took one value when it was learned.

    Args:
        energy: the model of the other columns, without a batch.
        domain: all columns.
        fixed: value of every column that is not in the model; any other value is impossible.
        columns: how columns of a table became the variables, where that is known.

    Raises:
        InputError: the columns of the model and the fixed ones do not make up the domain.

    Example:
        >>> from pyro_hoim import fit_roots
        >>> table = CountTable.from_matrix([[2, 0], [1, 0], [4, 0], [0, 0]], ["a", "b"])
        >>> model = RootModel.from_fit(fit_roots(table, order=2))
        >>> model.fixed, model.log_q(CountTable.from_matrix([[1, 1]], ["a", "b"])).tolist()  # b was zero in all rows
        ({'b': 0.0}, [-inf])
    """

    energy: GeneralizedRootEnergy
    domain: Domain
    fixed: Mapping[str, float]
    columns: RootColumns | None = None

    def __post_init__(self) -> None:
        free = [name for name in self.domain.names if name not in self.fixed]
        if list(self.energy.domain.names) != free or not set(self.fixed) <= set(self.domain.names):
            raise other_domain("fixed", "the columns of the domain that the model does not hold")

    @classmethod
    def from_fit(cls, fit: RootFitResult) -> RootModel:
        """The joint model of a fit."""
        return cls(fit.energy(), fit.domain, dict(fit.fixed_columns), fit.columns)

    @classmethod
    def from_file(cls, stored: RootFile) -> RootModel:
        """The model of a file; columns without a finite coefficient are in its information."""
        return cls(stored.energy(), stored.domain, stored.fixed, stored.columns)

    @cached_property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """Indicators of every category, those of levels that no row learned from had among them, by its name."""
        if self.columns is not None:
            return {column.name: column.variables for column in self.columns.columns if column.is_category}
        families, names = self.energy.families, self.energy.domain.names
        found = dict[str, tuple[str, ...]]()
        for places in families.blocks:
            category = cast("IndicatorFamily", families[int(places[0])]).category
            inside = {names[s] for s in places} | {name for name in self.fixed if name.startswith(f"{category}=")}
            found[category] = tuple(name for name in self.domain.names if name in inside)
        return found

    def pieces(self, table: CountTable) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Values of the free columns of a few rows at a time, and which of these rows are possible."""
        if table.domain.names != self.domain.names:
            raise other_domain("table", f"columns {', '.join(self.domain.names[:6])}, ..., as the model has")
        free = [self.domain.index(name) for name in self.energy.domain.names]
        fixed = [self.domain.index(name) for name in self.fixed]
        wanted = torch.tensor([self.fixed[name] for name in self.fixed], dtype=torch.float64)
        size = max(1, _PORTION // (self.energy.structure.num_terms + 8 * len(self.domain) + 1))
        for start in range(0, table.num_rows, size):
            values = table.rows(np.arange(start, min(start + size, table.num_rows))).to_tensor()
            yield values[:, free], (values[:, fixed] == wanted).all(1)

    def some_rows(self, table: CountTable, most: int) -> torch.Tensor:
        """Values of the free columns in at most so many rows, evenly spaced, (n, d) float64."""
        size = min(most, table.num_rows)
        places = np.arange(size) * table.num_rows // max(size, 1)
        return table.rows(places).columns(self.energy.domain.names).to_tensor()

    def log_pseudo_prob(self, table: CountTable) -> np.ndarray:
        """Log pseudo-likelihood of every row, (N,), nats; minus infinity for impossible rows."""
        return self._each(table, self.energy.log_pseudo_prob)

    def log_q(self, table: CountTable) -> np.ndarray:
        """Log unnormalised density of every row, (N,), nats; minus infinity for impossible rows."""
        return self._each(table, lambda values: -self.energy.energy(values))

    def _each(self, table: CountTable, score: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
        pieces = [np.zeros(0)]
        with torch.no_grad():
            for values, is_possible in self.pieces(table):
                scores = score(values) if values.shape[1] else torch.zeros(len(values), dtype=torch.float64)
                pieces.append(torch.where(is_possible, scores, -math.inf).numpy())
        return np.concatenate(pieces)

    def scores(self, table: CountTable, log_z: float | None = None) -> Scores:
        """Scores of rows; NLL and KL too where log Z is given."""
        log_pseudo = self.log_pseudo_prob(table)
        if log_z is None:
            return root_scores(log_pseudo)
        return root_scores(log_pseudo, self.log_q(table) - log_z, self.entropy(table))

    def entropy(self, table: CountTable) -> float | None:
        """Entropy of the empirical law of rows, nats; None where a column has a density, or for no rows."""
        if not self.energy.families.is_discrete or any(variable.kind != "count" for variable in self.domain):
            return None
        return CountTable.from_matrix(table.matrix, table.domain.names).entropy()


@dataclass(frozen=True, eq=False)
class RootDraws:
    """Rows drawn from a model.

    Attributes:
        values: (number, d), columns in the order of the domain.
        is_exact: whether they are independent draws from the model itself.
        burn_in: sweeps of every chain where they are not.
    """

    values: torch.Tensor
    is_exact: bool
    burn_in: int


def draw_roots(
    model: RootModel,
    num_draws: int,
    *,
    clamped: Mapping[str, float] | None = None,
    method: Literal["auto", "exact", "gibbs"] = "auto",
    burn_in: int = 200,
    seed: int = 0,
    advance: Callable[[int], object] | None = None,
) -> RootDraws:
    """Draw rows: exactly where the model is small or has a closed form, else one Gibbs chain a row.

    Args:
        model: the model.
        num_draws: rows.
        clamped: variables held at a value.
        method: ``exact`` refuses where exact draws are not possible; ``gibbs`` always runs chains.
        burn_in: sweeps of a chain before its state is taken; it starts at the member without interactions.
        seed: of the draws; global random state is left alone.
        advance: called with the number of rows that are done.

    Raises:
        UnknownNameError: an unknown variable is clamped.
        InputError: a value that is outside the family's support or impossible, or a model that no law belongs to.
        IntractableError: ``exact`` and no exact method.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> structure = RootStructure.simplified(Domain([Variable(name, kind="count") for name in "ab"]), [("a", "b")])
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([0.0, 0.0, 0.25]), PoissonFamily())
        >>> draws = draw_roots(RootModel(energy, structure.domain, {}), 4, clamped={"b": 3})
        >>> draws.values[:, 1].tolist(), draws.is_exact
        ([3.0, 3.0, 3.0, 3.0], True)
    """
    fixed = dict(clamped or {})
    check_names(list(fixed), model.domain.names, "clamped")
    families = dict(zip(model.energy.domain.names, model.energy.families, strict=True))
    for name, value in fixed.items():
        family = families.get(name, model.energy.families.common)  # of a column of one value where all have one
        if family is not None:
            family.check_values(torch.tensor(value, dtype=torch.float64), f"clamped {name!r}")
        if name in model.fixed and model.fixed[name] != value:
            problem = f"{name!r} was {model.fixed[name]:g} in all rows learned from, received {value:g}"
            raise refused("clamped", problem, code="impossible")
    # Columns that were fixed in training, or are given, hold their value; the rest is drawn.
    given = {**model.fixed, **fixed}
    inside = {name: value for name, value in fixed.items() if name in model.energy.domain}
    rest = model.energy.condition(inside)[0] if inside else model.energy
    generator = torch.Generator().manual_seed(seed)
    values = torch.empty((num_draws, len(model.domain)), dtype=torch.float64)
    for name, value in given.items():
        values[:, model.domain.index(name)] = value
    columns = [model.domain.index(name) for name in rest.domain.names]
    if not columns or not num_draws:
        return RootDraws(values, True, 0)
    if method != "gibbs":
        try:
            cost = RootAuto().plan_energy(rest)
            reason = "" if method == "exact" and cost.feasible else _refusal(cost)
            if not reason:
                values[:, columns] = RootAuto().sample(rest, (num_draws,), generator).to(torch.float64)
                return RootDraws(values, True, 0)
        except IntractableError as error:
            reason = str(error)
        if method == "exact":
            raise out_of_reach("method exact", reason)
    # Else the last state of a chain for every row, in portions that fit in memory.
    for start in range(0, num_draws, _CHAINS):
        chains = RootChains(rest, min(_CHAINS, num_draws - start), seed=generator)
        chains.sweep(burn_in)
        values[start : start + _CHAINS, columns] = chains.states.to(torch.float64)
        if advance is not None:
            advance(len(chains.states))
    return RootDraws(values, False, burn_in)


# Sets of the columns of a table: what ties them, where a category is one column of several variables.


@dataclass(frozen=True)
class ColumnSet:
    """The terms of a set of columns: one, or one for every combination of levels of its categories.

    Attributes:
        names: the columns.
        terms: their coefficients, the largest first.
        strength: root of the sum of the squared coefficients, each times the standard deviations of its roots, so that
            it does not depend on units.
    """

    names: tuple[str, ...]
    terms: tuple[RootTerm, ...]
    strength: float

    @property
    def coefficient(self) -> float | None:
        """The sum of the coefficients over roots; None where levels have coefficients of their own."""
        if len({term.names for term in self.terms}) > 1:
            return None
        return sum(term.coefficient for term in self.terms)


def in_units(term: RootTerm, scales: torch.Tensor | None, domain: Domain) -> RootTerm:
    """A term with the coefficient of roots divided by their standard deviations (d, k), where these are known."""
    if scales is None:
        return term
    unit = math.prod(scales[list(domain.indices(term.names)), term.key[0] - 1].tolist())
    return replace(term, coefficient=term.coefficient * unit)


def sets_by_strength(
    terms: Sequence[RootTerm],
    scales: torch.Tensor | None,
    domain: Domain,
    set_of: Callable[[Sequence[str]], tuple[str, ...]],
) -> list[ColumnSet]:
    """Sets of columns, the strongest first.

    Args:
        terms: of two and more variables.
        scales: standard deviations of the roots of every variable of the domain, (d, k).
        domain: all variables.
        set_of: the columns of some variables.

    Example:
        >>> domain = Domain.from_cardinalities({"c=a": 2, "c=b": 2, "x": 2})
        >>> terms = [RootTerm((2, 2), ("c=a", "x"), -0.3), RootTerm((2, 2), ("c=b", "x"), 0.4)]
        >>> (found,) = sets_by_strength(terms, None, domain, lambda names: ("c", "x"))
        >>> found.names, found.strength, found.coefficient is None
        (('c', 'x'), 0.5, True)
    """
    by_set: dict[tuple[str, ...], list[RootTerm]] = {}
    for term in terms:
        by_set.setdefault(set_of(term.names), []).append(term)
    sets = list[ColumnSet]()
    for names, inside in by_set.items():
        inside.sort(key=lambda term: -abs(term.coefficient))
        squares = [in_units(term, scales, domain).coefficient ** 2 for term in inside]
        sets.append(ColumnSet(names, tuple(inside), math.sqrt(math.fsum(squares))))
    return sorted(sets, key=lambda one: -one.strength)


def levels_of(columns: RootColumns | None, names: Sequence[str]) -> Mapping[str, str]:
    """The level of every category among some variables, by its column."""
    if columns is None:
        return {}
    found = dict[str, str]()
    for name in names:
        column = columns[columns.column_of[name]]
        if column.is_category:
            found[column.name] = column.levels[column.variables.index(name)]
    return found


def columns_domain(columns: RootColumns) -> Domain:
    """The columns of a table as variables: with their labels where they have some, else as numbers."""
    return Domain(
        Variable(column.name, column.levels) if column.levels else Variable(column.name, kind=column.family.kind)
        for column in columns.columns
    )
