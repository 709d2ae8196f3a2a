"""Backward elimination: interactions stay in a structure only where held-out rows confirm them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import false_discovery_control

from ...core.rows import check_count
from ...core.trainer import Trainer
from ...data.frames import DataLike
from ...data.observations import Observations
from ...data.sources.sourced import held_rows
from ...errors import check_fraction
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..energy import LogLinearEnergy
from .rounds import checked_rows

__all__ = ["EliminationResult", "InteractionTest", "eliminate"]

_PROJECTIONS = 20
_ONE_SIDED = 1.645  # standard errors: 5 %
_RESOLUTION = 20  # the bisection ends at this share of the interactions
_APART = 0.01  # of the distance of the gain from its expectation: nearer log ratios are alike
_LEAST_APART = 10  # rows
_ROWS_PER_CALL = 2**15  # of pseudo-likelihoods, which look at every interaction of every row at once
_ROUNDING = 1e-12  # nats
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class InteractionTest:
    """What held-out rows say about one interaction.

    Attributes:
        edge: the interaction.
        gain: held-out log-likelihood with it less that without it, in nats a row.
        gain_std_error: sampling error of the gain over the held-out rows.
        z, p_value: the statistic of :func:`eliminate`, standard normal where the interaction is absent; one-sided.
        is_kept: whether it is in the structure. Beyond exact reach an interaction may be removed although its own test
            confirms it, because others stand in for it.
        is_confirmed: whether its own test confirms it.
        is_refitted: whether the others were fitted again without it; else their tables were left as they are, up to
            its subsets.
        num_apart: held-out rows whose log ratio differs from the median by more than a hundredth of the distance of the
            gain from its expectation; None in files that do not hold it.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.saturated(rows.domain))
        >>> _ = trainer.train()
        >>> test = eliminate(rows, rows, trainer).tests[0]
        >>> test.edge, test.is_kept, round(test.gain, 3), test.p_value < 0.001
        (('a', 'b'), True, 0.086, True)
    """

    edge: Edge
    gain: float
    gain_std_error: float
    z: float
    p_value: float
    is_kept: bool
    is_confirmed: bool
    is_refitted: bool
    num_apart: float | None = None

    @property
    def has_normal_law(self) -> bool:
        """Whether enough rows differ in their log ratio (ten) for errors, z and p by the normal law of a mean.

        Where almost all rows gain alike, their spread says nothing of the rows that are rarer than these can show.
        """
        return self.num_apart is None or self.num_apart >= _LEAST_APART

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description, inverse of :meth:`from_json`; an infinite z is None."""
        return {**asdict(self), "edge": list(self.edge), "z": self.z if math.isfinite(self.z) else None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> InteractionTest:
        """Inverse of :meth:`to_json`."""
        found = dict(value)
        if found["z"] is None:
            found["z"] = math.inf if found["p_value"] < 0.5 else -math.inf
        return cls(edge=tuple(found.pop("edge")), **found)


@dataclass(frozen=True)
class EliminationResult:
    """Interactions that held-out rows confirm, and the test of every one.

    Attributes:
        hypergraph: those that stayed, with all single variables of the start.
        tests: of every interaction tested, as it stood when it was removed or at the end; the kept ones first, then by
            falling gain.
        false_discovery_rate: as asked.
        num_fits: how often the trainer was run.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.saturated(domain))
        >>> _ = trainer.train()
        >>> found = eliminate(rows, rows, trainer)
        >>> found.hypergraph.edges[-1], [test.edge for test in found.rejected]
        (('a', 'b'), [('a', 'b', 'c'), ('a', 'c'), ('b', 'c')])
    """

    hypergraph: InteractionHypergraph
    tests: tuple[InteractionTest, ...]
    false_discovery_rate: float
    num_fits: int

    @property
    def rejected(self) -> tuple[InteractionTest, ...]:
        """The tests of the interactions that were removed."""
        return tuple(test for test in self.tests if not test.is_kept)


def eliminate(
    train: DataLike,
    validation: DataLike,
    trainer: Trainer,
    *,
    false_discovery_rate: float = 0.1,
    max_refits: int = 200,
) -> EliminationResult:
    r"""Remove interactions that held-out rows do not confirm; every removal is followed by a fit.

    .. math:: \ell = \log q - \log q_{-S}, \qquad
        z_S = \frac{\bar\ell_{\mathrm{validation}} - \mathbb E_{q_{-S}}[\ell]}{\sqrt{\operatorname{Var}[\ell] / m}}

    where q is the model, :math:`q_{-S}` the one without S and m the number of validation rows. The direction
    :math:`\ell` comes from the training rows alone, so that z is standard normal where S is absent (a score test),
    however many interactions were tried before. The gain :math:`\bar\ell`, which held-out rows lose without S, is
    reported beside it; a poorly estimated table may lose although its interaction exists. One-sided p-values go through
    the procedure of Benjamini and Hochberg over all interactions of the start: on average at most
    ``false_discovery_rate`` of the interactions kept are absent from the law of the rows, as far as the tests are
    independent.

    First :math:`q_{-S}` is q with the table of S, less what its subsets explain, set to zero; the weaker half of the
    unconfirmed interactions goes, the trainer is run, and so on until all are confirmed. The variance then also counts
    the error of the other tables. An exact trainer next removes every one that is left in turn and fits the others
    again, the weakest first; this tells interactions apart that can stand in for each other. Where fits are too dear
    for that, a bisection of the order of z finds the most that can go together, weakest first, such that the held-out
    pseudo-likelihood does not fall by a one-sided test of 5 % when the others are fitted again; what is left is tested
    anew in that fit, and the weaker half of the unconfirmed goes, as before, until all are confirmed.

    Args:
        train: the rows that the trainer was made with.
        validation: further rows over the same domain, complete.
        trainer: fitted to its collection; it is taken over, and holds the structure at the end.
        false_discovery_rate: see above, between 0 and 1.
        max_refits: most interactions that are removed in turn; with more left, that stage is passed over.

    Returns:
        The structure and all tests. Single variables are never removed.

    Raises:
        InputError: arguments out of range, or rows that are not the trainer's.
        MissingDataError: missing cells.
        IntractableError: the trainer knows no margins of its model.

    References:
        Yoav Benjamini and Yosef Hochberg, Controlling the false discovery rate, 1995.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.saturated(domain))
        >>> _ = trainer.train()
        >>> [test.edge for test in eliminate(rows, rows, trainer).tests if test.is_kept]
        [('a', 'b')]
    """
    train, validation = checked_rows(train, validation, trainer)
    check_fraction(false_discovery_rate, "false_discovery_rate")
    check_count(max_refits, "max_refits", 0)
    search = _Search(train, validation, trainer, false_discovery_rate)
    is_exact = trainer.name == "exact" and len(search.edges) <= max_refits
    if is_exact or trainer.name == "pseudo-likelihood":
        search.remove_in_halves()
    if is_exact:
        search.remove_in_turn()
    elif trainer.name != "pseudo-likelihood":
        search.remove_together()
        search.remove_in_halves()
    tests = sorted(search.tests.values(), key=lambda test: (not test.is_kept, -test.gain))
    return EliminationResult(trainer.hypergraph, tuple(tests), float(false_discovery_rate), search.num_fits)


class _Search:
    """The present structure and the last test of every interaction."""

    def __init__(self, train: Observations, validation: Observations, trainer: Trainer, level: float) -> None:
        self.trainer, self.level = trainer, level
        self.train, self.validation = train.unique(), validation.unique()
        self.tests: dict[Edge, InteractionTest] = {}
        self.num_fits = 0
        self._num_tests = len(self.edges)

    @property
    def edges(self) -> list[Edge]:
        """Interactions of two variables or more with a free parameter."""
        graph = self.trainer.hypergraph
        return [e for e in graph.edges if len(e) > 1 and all(graph.domain[name].cardinality > 1 for name in e)]

    def _confirmed(self, tests: Sequence[InteractionTest]) -> NDArray[np.bool_]:
        """Which tests the procedure of Benjamini and Hochberg rejects; those not at hand count as not rejected."""
        p_values = np.ones(max(1, self._num_tests))
        p_values[: len(tests)] = [test.p_value for test in tests]
        return false_discovery_control(p_values)[: len(tests)] <= self.level

    def _note(self, test: InteractionTest, is_kept: bool, is_confirmed: bool | None = None) -> None:
        confirmed = is_kept if is_confirmed is None else is_confirmed
        self.tests[test.edge] = replace(test, is_kept=is_kept, is_confirmed=confirmed)

    def remove_in_halves(self) -> None:
        """The weaker half of the unconfirmed interactions goes at a time."""
        while True:
            found = self._zeroed()
            is_confirmed = self._confirmed(found)
            for test in found:
                self._note(test, True)
            weak = sorted((t for t, kept in zip(found, is_confirmed, strict=True) if not kept), key=lambda t: t.z)
            if not weak:
                return
            gone = weak[: (len(weak) + 1) // 2]
            for test in gone:
                self._note(test, False)
            self.trainer.restructure(
                self.trainer.hypergraph.remove_edges([test.edge for test in gone], hierarchical=False)
            )
            self._fit()

    def remove_together(self) -> None:
        """The most of the weakest interactions that the others, fitted again, make up for."""
        trainer = self.trainer
        found = sorted(self._zeroed(), key=lambda test: test.z)
        start, whole = self._log_pseudo_prob(), trainer.hypergraph
        is_confirmed = self._confirmed(found)
        least = int((~is_confirmed).sum())  # these go in any case
        most, graph, state = len(found) + 1, trainer.hypergraph, dict(trainer.state_dict())
        middle = least
        while middle < most:
            if middle:
                gone = [test.edge for test in found[:middle]]
                trainer.restructure(whole.remove_edges(gone, hierarchical=False))
                self._fit()
            if middle == least or not self._is_missed(start - self._log_pseudo_prob()):
                least, graph, state = middle, trainer.hypergraph, dict(trainer.state_dict())
            else:
                most = middle
            middle = (least + most) // 2
            if most - least <= max(1, len(found) // _RESOLUTION):
                break
        trainer.restructure(graph)
        trainer.load_state_dict(state)
        for number, test in enumerate(found):
            self._note(test, number >= least, bool(is_confirmed[number]))

    def _log_pseudo_prob(self) -> Floats:
        """Log pseudo-likelihood of every validation row under the present model, which needs no log Z."""
        energy = LogLinearEnergy(self.trainer.hypergraph, self.trainer.tables, validate=False)
        parts = held_rows(self.validation).codes.split(_ROWS_PER_CALL)
        return torch.cat([energy.log_pseudo_prob(codes) for codes in parts]).numpy()

    def _is_missed(self, change: Floats) -> bool:
        """Whether held-out rows lose what was removed, beyond their sampling error."""
        counts = held_rows(self.validation).counts.numpy()
        total = float(counts.sum())
        gain = float(counts @ change) / total
        spread = float(counts @ (change - gain) ** 2) / total
        return gain > _ONE_SIDED * math.sqrt(spread / total)

    def remove_in_turn(self) -> None:
        """Every interaction goes in turn while the others are fitted again, until all that are left are confirmed."""
        while True:
            order = sorted(self.edges, key=lambda edge: self.tests[edge].z)
            before = len(order)
            for edge in order:
                state, graph = dict(self.trainer.state_dict()), self.trainer.hypergraph
                test = self._refitted(edge)
                self._note(test, True)
                present = [self.tests[other] for other in self.edges] + [self.tests[edge]]
                if bool(self._confirmed(present)[-1]):
                    self.trainer.restructure(graph)
                    self.trainer.load_state_dict(state)
                else:
                    self._note(test, False)
            if len(self.edges) == before:
                return

    def _fit(self) -> None:
        self.trainer.train()
        self.num_fits += 1

    def _zeroed(self) -> list[InteractionTest]:
        """Tests of all interactions, the own table of each set to zero."""
        edges, graph = self.edges, self.trainer.hypergraph
        if not edges:
            return []
        margins = self.trainer.margins(edges)
        flat = (margins.probs, self.train.marginal_counts(edges), self.validation.marginal_counts(edges))
        shapes = [tuple(graph.domain[name].cardinality for name in edge) for edge in edges]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        whole = self.trainer.tables.numpy()  # every call makes a copy
        tables = [whole[graph.term_slices[edge]] for edge in edges]
        columns = (tables, *(np.split(values.numpy(), ends) for values in flat))
        present = set(graph.edges)
        found: list[InteractionTest] = []
        for edge, shape, *parts in zip(edges, shapes, *columns, strict=True):
            table, q, train, validation = (part.reshape(shape) for part in parts)
            axes = [
                kept
                for size in range(1, len(edge))
                for kept in itertools.combinations(range(len(edge)), size)
                if tuple(edge[i] for i in kept) in present
            ]
            own = _without_subsets(table, q, axes)
            least = float(own.min())
            without = q * np.exp(least - own)
            scale = float(without.sum())
            ratio = own - least + math.log(scale)
            expected = float((without * ratio).sum()) / scale
            noise = 1 / float(train.sum()) + 1 / margins.sample_size
            found.append(self._test(edge, ratio, validation, train, expected, noise, False))
        return found

    def _refitted(self, edge: Edge) -> InteractionTest:
        """Test of an interaction after the others were fitted again; the trainer then lacks it."""
        trainer = self.trainer
        full = LogLinearEnergy(trainer.hypergraph, trainer.tables.clone(), validate=False)
        full_log_z = _log_z(trainer)
        trainer.restructure(trainer.hypergraph.remove_edges([edge], hierarchical=False))
        self._fit()
        rest = LogLinearEnergy(trainer.hypergraph, trainer.tables, validate=False)
        shift = _log_z(trainer) - full_log_z
        parts = held_rows(self.validation), held_rows(self.train)
        ratios = [(rest.energy(rows.codes) - full.energy(rows.codes)).numpy() + shift for rows in parts]
        expected = trainer.margins(full.hypergraph.edges).probs.numpy()
        change = full.tables.numpy().copy()
        for other, where in rest.hypergraph.term_slices.items():
            change[full.hypergraph.term_slices[other]] -= rest.tables.numpy()[where]
        held_out, train = (rows.counts.numpy() for rows in parts)
        counts = (  # over the rows of both, validation first
            np.concatenate([held_out, np.zeros_like(train)]),
            np.concatenate([np.zeros_like(held_out), train]),
        )
        return self._test(edge, np.concatenate(ratios), *counts, float(change @ expected) + shift, 0.0, True)

    def _test(
        self,
        edge: Edge,
        ratio: Floats,
        validation: Floats,
        train: Floats,
        expected: float,
        noise: float,
        is_refitted: bool,
    ) -> InteractionTest:
        """Statistic and gain from log ratios at the cells or rows, with their counts."""
        total = float(validation.sum())
        gain = float((validation * ratio).sum()) / total
        spread = float((validation * (ratio - gain) ** 2).sum()) / total
        both = validation + train
        centre = float((both * ratio).sum() / both.sum())
        variance = max(float((both * (ratio - centre) ** 2).sum() / both.sum()), spread)
        error = math.sqrt(variance * (1 / total + noise))
        excess = gain - expected
        z = excess / error if error > 1e-300 else 0.0
        if error <= 1e-300 and abs(excess) > _ROUNDING:  # all rows gain alike: one column is a copy of the other
            z = math.copysign(math.inf, excess)
        apart = _num_apart(ratio, validation, max(_APART * abs(excess), _ROUNDING))
        p_value = float(ndtr(-z))
        return InteractionTest(edge, gain, math.sqrt(spread / total), z, p_value, True, True, is_refitted, apart)


def _num_apart(ratio: Floats, counts: Floats, tolerance: float) -> float:
    """Number of rows that differ from the median by more than a tolerance."""
    values, weights = ratio.ravel(), counts.ravel()
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    median = values[order[int(np.searchsorted(below, below[-1] / 2))]]
    return float(weights[np.abs(values - median) > tolerance].sum())


def _log_z(trainer: Trainer) -> float:
    found = trainer.log_partition()
    assert found is not None  # an exact trainer
    return float(found.value)


def _without_subsets(table: Floats, q: Floats, subsets: Sequence[tuple[int, ...]]) -> Floats:
    """The table less its projection, in the metric of the margin q, on functions of some subsets of its axes."""
    own = table - float((q * table).sum())
    for _ in range(_PROJECTIONS if subsets else 0):
        for kept in subsets:
            gone = tuple(i for i in range(table.ndim) if i not in kept)
            weight = q.sum(gone, keepdims=True)
            mean = (q * own).sum(gone, keepdims=True) / np.where(weight > 0, weight, 1.0)
            own = own - mean
    return own
