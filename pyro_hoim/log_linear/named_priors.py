"""Priors of the estimates of an analysis by name: as a penalty of a fit, strengths of a search, and a distribution."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..errors import check_positive, conflict, out_of_range, refused, unexpected
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .fitting.penalties import L2, Conjugate, Penalty
from .laws.normal import normal_prior, unit_information_prior, unit_strengths
from .laws.priors import DiaconisYlvisaker
from .training.ridge import InteractionRidge

PriorKind = Literal["none", "unit", "normal", "ridge", "conjugate"]
GRAMMAR = "none, unit, normal:S, ridge:S or conjugate:N with positive numbers S and N; unit:M knows as much as M rows"
_MAX_SETS = 20_000
_MAX_NUMBER = 1e15


@dataclass(frozen=True)
class Prior:
    r"""A prior over the natural parameters of a log-linear model in its free coordinates, written as text.

    ================  ==========================================================================================
    text              prior, and the penalty that its mode minimises beside minus the log-likelihood of all rows
    ================  ==========================================================================================
    ``none``          flat: maximum likelihood
    ``unit``          normal, standard deviation :math:`\prod_{i \in S} I_i^{1/2}` for the interaction S of variables
                      with :math:`I_i` levels: the information of one row of a uniform table
                      (:func:`unit_information_prior`)
    ``unit:M``        the same with the information of M rows, standard deviations divided by :math:`M^{1/2}`
    ``normal:S``      normal, standard deviation S for every coordinate: penalty :math:`\|\theta\|^2 / (2 S^2)`
    ``ridge:S``       the same prior by its strength: penalty :math:`S \|\theta\|^2 / 2`, that is ``normal:`` with
                      :math:`S^{-1/2}`
    ``conjugate:N``   Diaconis and Ylvisaker's, N fictive rows spread evenly over the cells: penalty
                      :math:`N \log Z(\theta)`
    ================  ==========================================================================================

    All but ``none`` make every estimate finite; a fit under them is the mode of the posterior. All are the same when
    the levels of a variable are renamed.

    Attributes:
        kind: the word.
        number: S, N or M; None where there is none.

    References:
        Petros Dellaportas and Jonathan Forster, Markov chain Monte Carlo model determination for hierarchical and
        graphical log-linear models, 1999, for unit information; Persi Diaconis and Donald Ylvisaker, Conjugate priors
        for exponential families, 1979.
    """

    kind: PriorKind
    number: float | None = None

    @classmethod
    def parse(cls, text: str, what: str = "prior") -> Prior:
        """The prior of a text."""
        kind, colon, digits = text.strip().partition(":")
        problem = unexpected(what, GRAMMAR, text, code="unknown-choice")
        if kind not in get_args(PriorKind) or (kind == "none" and colon):
            raise problem
        if kind == "none" or (kind == "unit" and not colon):
            return cls(kind)  # type: ignore[arg-type]
        try:
            number = float(digits)
        except ValueError:
            raise problem from None
        if not (math.isfinite(number) and number > 0):
            raise problem
        if not 1 / _MAX_NUMBER <= number <= _MAX_NUMBER:  # so that squares and inverses are float32 numbers
            raise out_of_range(what, f"a number from {1 / _MAX_NUMBER:g} to {_MAX_NUMBER:g}", text)
        return cls(kind, number)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.kind if self.number is None else f"{self.kind}:{self.number:.12g}"

    @property
    def is_flat(self) -> bool:
        """Whether there is no prior: maximum likelihood."""
        return self.kind == "none"

    @property
    def rows(self) -> float:
        """Rows whose information ``unit`` and ``conjugate`` have."""
        return 1.0 if self.number is None else self.number

    def scaled(self, factor: float) -> Prior:
        """The prior with so many times the information: precisions, or fictive rows, times a positive number.

        Example:
            >>> str(Prior.parse("unit").scaled(4)), str(Prior.parse("normal:1").scaled(4))
            ('unit:4', 'normal:0.5')
        """
        check_positive(factor, "factor")
        match self.kind:
            case "none":
                return self
            case "unit" | "conjugate":
                rows = self.rows * factor
                return Prior(self.kind, None if self.kind == "unit" and rows == 1 else rows)
            case "normal":
                return Prior(self.kind, self.scale / math.sqrt(factor))
            case "ridge":
                return Prior(self.kind, self.strength * factor)

    @property
    def strength(self) -> float:
        """Strength of ``normal`` and ``ridge``, one over the variance."""
        assert self.number is not None
        return self.number if self.kind == "ridge" else self.number**-2

    @property
    def scale(self) -> float:
        """Standard deviation of ``normal`` and ``ridge``, in nats."""
        assert self.number is not None
        return self.number if self.kind == "normal" else self.number**-0.5

    def penalty(self, hypergraph: InteractionHypergraph) -> Penalty | None:
        """Minus the log density up to a constant, for :func:`~pyro_hoim.log_linear.fitting.fit`; None for ``none``."""
        match self.kind:
            case "none":
                return None
            case "unit":
                return InteractionRidge(by_edge=unit_strengths(hypergraph.domain, hypergraph.edges, self.rows))
            case "conjugate":
                assert self.number is not None
                return Conjugate(self.number)
            case _:
                return L2(self.strength)

    def strengths(self, domain: Domain, max_order: int, what: str = "prior") -> InteractionRidge:
        """Strengths of all sets of up to ``max_order`` variables, for :func:`~pyro_hoim.log_linear.learn`."""
        if self.kind in ("none", "conjugate"):
            raise conflict(
                what,
                f"a search needs unit, normal:S or ridge:S, received {self}; without a prior the rows choose the "
                "strengths",
            )
        if self.kind != "unit":
            return InteractionRidge(self.strength)
        names = domain.names
        num = sum(math.comb(len(names), size) for size in range(1, max_order + 1))
        if num > _MAX_SETS:
            problem = f"unit has a strength for each of {num} sets of columns, the limit is {_MAX_SETS}"
            raise refused(what, problem, "use ridge:S or normal:S", "over-budget")
        sets = itertools.chain.from_iterable(itertools.combinations(names, k) for k in range(1, max_order + 1))
        return InteractionRidge(by_edge=unit_strengths(domain, list(sets), self.rows))

    def distribution(self, hypergraph: InteractionHypergraph, what: str = "prior") -> Any:
        """The prior as a distribution over the free coordinates."""
        match self.kind:
            case "none":
                raise conflict(what, "a posterior needs a proper prior, received none", "use normal:S or another")
            case "unit":
                return unit_information_prior(hypergraph, self.rows)
            case "conjugate":
                assert self.number is not None
                return DiaconisYlvisaker.uniform(hypergraph, self.number)
            case _:
                return normal_prior(hypergraph, self.scale)

    def describe(self) -> str:
        """The prior in words."""
        match self.kind:
            case "none":
                return "no prior (maximum likelihood)"
            case "unit":
                rows = "one row" if self.rows == 1 else f"{self.rows:.4g} rows"
                return f"independent normal priors with the information of {rows}"
            case "conjugate":
                rows = "row" if self.number == 1 else "rows"
                return f"the conjugate prior of {self.number:.4g} fictive {rows}, spread evenly over the cells"
            case _:
                return f"independent normal priors with standard deviation {self.scale:.4g}"
