r"""Learning of one conditional: greedy splits and merges of a decision graph (paper 5, algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...data.frames import DataLike
from ...errors import check_whole, other_domain, wrong_type
from ...schema import Domain
from ..decision_graph import DecisionGraph, Merge, Split
from ..study.scores import GraphInformation, information_of_tables
from ._rows import Columns, PreparedRows, checked_rows, sum_log
from ._search import Found, search
from .penalties import SourcePenalty, checked_penalty, large_penalty, leaf_penalties

_LARGEST_LOSSLESS = 2**14
_LARGEST_SOURCE = 2**20


@dataclass(frozen=True)
class NodeReport:
    r"""How the conditional of one variable was learned; costs and entropies in nats per observation.

    Attributes:
        variable: name of the variable.
        num_observations: weight of the rows in which it is known, N.
        reads: names of the variables that its graph asks, in schema order.
        num_leaves: leaves of the graph.
        num_parameters: free probabilities k of the leaf tables.
        num_splits: splits recorded.
        num_merges: merges recorded.
        entropy: empirical conditional entropy :math:`H(X_i \mid Y_i)`.
        cost: :math:`H(X_i \mid Y_i) + R(k, N)`, equation (15).
        costs: cost after every step of the search, that of one leaf first.
        full_entropy: empirical :math:`H(X_i \mid X_{-i})` given all other variables, whether they may be read or not;
            None where these have missing cells.
        lossless_leaves: leaves of the lossless source, the joint states of all variables that may be read.
        lossless_entropy: empirical conditional entropy given the variables that may be read; None where these have
            missing cells.
        lossless_cost: cost of the lossless source, infinite beyond 10^12 parameters; None likewise.
        is_lossless_candidate: whether the lossless source was among the candidates (theorem 5, condition 1).
        from_lossless: whether the search went on from the lossless source.
        seconds: time of the search.
    """

    variable: str
    num_observations: float
    reads: tuple[str, ...]
    num_leaves: int
    num_parameters: int
    num_splits: int
    num_merges: int
    entropy: float
    cost: float
    costs: tuple[float, ...]
    full_entropy: float | None
    lossless_leaves: int
    lossless_entropy: float | None
    lossless_cost: float | None
    is_lossless_candidate: bool
    from_lossless: bool
    seconds: float = field(compare=False)

    @property
    def lossless_wins(self) -> bool | None:
        """Whether the lossless source costs less than the graph found; None where its cost is not known."""
        return None if self.lossless_cost is None else self.lossless_cost < self.cost - 1e-12

    @property
    def divergence(self) -> float | None:
        r"""Divergence from the rows to the node, :math:`KL(\hat p \| E(\theta_i))`, before smoothing (theorem 4)."""
        return None if self.full_entropy is None else max(self.entropy - self.full_entropy, 0.0)


@dataclass(frozen=True)
class SearchOptions:
    """What all nodes of one run share."""

    penalty: SourcePenalty
    lossless: bool
    max_leaves: int | None
    leaf_costs: dict[tuple[int, float], list[float]] = field(default_factory=dict, repr=False, compare=False)
    """Penalties of leaves by levels of a variable and observations, which all nodes alike share."""

    def __post_init__(self) -> None:
        if self.max_leaves is not None:
            check_whole(self.max_leaves, "max_leaves")


def learn_node(
    rows: DataLike,
    variable: str,
    *,
    penalty: str | SourcePenalty = "mdl",
    lossless: bool = False,
    reads: Sequence[str] | None = None,
    max_leaves: int | None = None,
) -> tuple[DecisionGraph, torch.Tensor, NodeReport]:
    """Learn the information source of one variable by steepest descent over splits and merges.

    Search, ties, missing cells, arguments and errors are those of
    :func:`~pyro_hoim.dependency_network.learn_network`, for one name. Returned are the graph, the counts of its leaves
    (num_leaves, cardinality), float64, and a report.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> graph, counts, report = learn_node(rows, "a")
        >>> graph.reads, counts.tolist(), report.num_leaves
        (('b',), [[40.0, 10.0], [10.0, 40.0]], 2)
    """
    rows = checked_rows(rows).in_effective_rows()
    index = rows.domain.index(variable)
    options = SearchOptions(checked_penalty(penalty, len(rows.domain) - 1)[1], lossless, max_leaves)
    task = NodeTask(PreparedRows.from_rows(rows), rows.domain, index, checked_reads(rows.domain, variable, reads))
    outcome = search(*task.arguments(options))
    return task.finish(outcome, options)


class NodeTask:
    """One node and the columns it may ask (None: all): arguments of its search, and what is made of the result."""

    def __init__(self, prepared: PreparedRows, domain: Domain, index: int, asked: tuple[int, ...] | None) -> None:
        self.domain, self.index = domain, index
        self.variable = domain.variables[index]
        self._x = prepared.own(index)
        self._rank = prepared.ranks[index]
        self._all = prepared
        self._prepared = prepared if asked is None else prepared.columns(asked)
        self._columns = tuple(range(len(domain))) if asked is None else asked
        # The entropy of the variable alone is what a search may spend on leaves.
        self._level_counts = prepared.level_counts(index)
        self.num_observations = float(self._level_counts.sum())
        if not prepared.is_whole:
            self.num_observations = math.fsum(prepared.weights[self._x < len(self._rank)].tolist())
        seen = self._level_counts[self._level_counts > 0]
        self._budget = float(-(seen * np.log(seen / self.num_observations)).sum())
        # Columns of one level have nothing to ask.
        others = [k for k, j in enumerate(self._columns) if j != index]
        self.lossless_leaves = math.prod(int(self._prepared.sizes[k]) for k in others)
        self._askable = [k for k in others if self._prepared.sizes[k] > 1]

    def is_candidate(self, options: SearchOptions) -> bool:
        """Whether the lossless source is a candidate."""
        most = min(_LARGEST_LOSSLESS, options.max_leaves or _LARGEST_LOSSLESS)
        return options.lossless and self.lossless_leaves <= most

    def arguments(self, options: SearchOptions) -> tuple[Any, ...]:
        """Arguments of :func:`search`."""
        rows = self._prepared
        size = len(self._rank)
        most = options.max_leaves or min(rows.num_rows * int(rows.sizes.max(initial=1)) + 1, _LARGEST_SOURCE)
        is_candidate = self.is_candidate(options)
        if is_candidate:
            most = max(most, self.lossless_leaves)
        # Penalties up to the largest source that could pay.
        known = options.leaf_costs.get((size, self.num_observations))
        penalties, all_of_them = leaf_penalties(
            options.penalty, size - 1, self.num_observations, self._budget, most, known
        )
        options.leaf_costs[size, self.num_observations] = all_of_them
        # Columns of equally many levels are one kind, whose splits cost the same.
        kinds = np.full(len(rows.sizes), -1, dtype=np.int64)
        kind_sizes = np.unique(rows.sizes[self._askable])
        kinds[self._askable] = np.searchsorted(kind_sizes, rows.sizes[self._askable])
        num_lossless = self.lossless_leaves if is_candidate and self.lossless_leaves < len(penalties) else 0
        none = np.zeros(0, dtype=np.int64)
        columns = Columns(
            rows.ids, rows.first, rows.sizes, rows.missing, kinds, kind_sizes, rows.bits, rows.planes, rows.lines,
            none, none,
        )  # fmt: skip
        return columns, rows.weights, self._x, size, penalties, rows.is_whole, num_lossless

    def finish(self, search: Found, options: SearchOptions) -> tuple[DecisionGraph, torch.Tensor, NodeReport]:
        """Graph, counts and report in the order of the domain's levels."""
        # The search numbers levels by the rows; graph and counts are in the order of the schema.
        operations, order = self._operations(search.steps)
        made = (Split(a, self.domain.names[b]) if kind == 0 else Merge(a, b) for kind, a, b in operations)
        graph = DecisionGraph(self.domain, self.variable.name, made)
        counts = search.counts[order][:, self._rank]
        if search.counts.shape != (len(order), len(self._rank)) or len(search.deltas) != len(search.steps):
            raise ValueError(f"counts of shape {search.counts.shape} after {len(search.steps)} steps")
        # Costs and entropies from the counts of the leaves, per observation.
        size, total = len(self._rank), self.num_observations
        entropy = max((sum_log(counts.sum(1)) - sum_log(counts)) / total, 0.0)
        one_leaf = self._budget / total + options.penalty(size - 1, total)
        full_entropy = self._all.entropy_given(self._x, size, total, self.index)
        is_whole = self._prepared is self._all
        lossless_entropy = full_entropy if is_whole else self._prepared.entropy_given(self._x, size, total, None)
        lossless_cost = None
        if lossless_entropy is not None:
            parameters = self.lossless_leaves * (size - 1)
            lossless_cost = lossless_entropy + large_penalty(options.penalty, parameters, total)
        # Costs of every step, and what the lossless source would cost.
        report = NodeReport(
            variable=self.variable.name,
            num_observations=total,
            reads=graph.reads,
            num_leaves=graph.num_leaves,
            num_parameters=graph.num_parameters,
            num_splits=sum(kind == 0 for kind, _, _ in operations),
            num_merges=sum(kind == 1 for kind, _, _ in operations),
            entropy=entropy,
            cost=entropy + options.penalty(graph.num_parameters, total),
            costs=tuple((one_leaf + np.concatenate([[0.0], np.cumsum(search.deltas)]) / total).tolist()),
            full_entropy=full_entropy,
            lossless_leaves=self.lossless_leaves,
            lossless_entropy=lossless_entropy,
            lossless_cost=lossless_cost,
            is_lossless_candidate=self.is_candidate(options),
            from_lossless=bool((search.steps[:, 0] == 2).any()),
            seconds=search.seconds,
        )
        return graph, torch.from_numpy(counts), report

    def information(self, graph: DecisionGraph, search: Found) -> GraphInformation | None:
        """What a graph knows of its variable by the counts of the search.

        None where these are fractions, or the search went on from the lossless source.
        """
        # Counts of all leaves that splits made, back in the order of the schema's levels.
        rows = self._prepared
        kinds = search.steps[:, 0]
        if not rows.is_whole or (self._all.missing >= 0).any() or (kinds == 2).any():
            return None
        asked = search.steps[kinds == 0, 2]
        widths = rows.sizes[asked]
        ends = np.cumsum(widths)
        pairs = zip(asked.tolist(), (ends - widths).tolist(), ends.tolist(), strict=True)
        tables = [search.tables[a:b][rows.ranks[column]][:, self._rank] for column, a, b in pairs]
        return information_of_tables(graph, self._level_counts[self._rank], tables)

    def _operations(self, steps: np.ndarray) -> tuple[list[tuple[int, int, int]], list[int]]:
        """Steps with leaves numbered as equations (19, 20) do, children in the order of the domain's levels.

        The search numbers children by the rows' order of levels; also returned is the search's number of every leaf.
        """
        here: list[int] = [0]
        there: list[int] = [0]
        used = 1
        operations: list[tuple[int, int, int]] = []

        def split(leaf: int, column: int) -> None:
            nonlocal used
            rank = self._prepared.ranks[column]
            node = here.pop(leaf)
            at = there.index(node)
            there.pop(at)
            here.extend(range(used, used + len(rank)))
            there.extend(used + int(r) for r in rank)
            used += len(rank)
            operations.append((0, at, self._columns[column]))

        # Replay the steps in both numberings of the leaves.
        for kind, a, b in steps.tolist():
            if kind == 0:
                split(a, b)
            elif kind == 1:
                node, other = here[a], here.pop(b)
                low, high = sorted((there.index(node), there.index(other)))
                there.pop(high)
                there[low] = here[a] = used
                used += 1
                operations.append((1, low, high))
            elif self.lossless_leaves > _LARGEST_LOSSLESS:
                raise ValueError("a lossless source that was no candidate")
            else:
                here, there, used = [0], [0], 1
                operations.clear()
                for column in self._askable:
                    for _ in range(len(here)):
                        split(0, column)
        # Where each leaf of the schema's numbering stands among those of the search.
        number = {node: k for k, node in enumerate(here)}
        return operations, [number[node] for node in there]


def leaf_probs(counts: torch.Tensor, alpha: float) -> torch.Tensor:
    r"""Posterior mean of leaf tables (num_leaves, cardinality) under a symmetric Dirichlet prior, ``alpha`` in all.

    .. math:: \theta(x \mid y) = \frac{N_{yx} + \alpha / |X|}{N_y + \alpha}

    With ``alpha`` 0 these are the empirical frequencies of theorem 4; a leaf without rows is then uniform.

    Example:
        >>> leaf_probs(torch.tensor([[8.0, 2.0], [0.0, 0.0]]).double(), alpha=2.0)  # no row: one half each
        tensor([[0.7500, 0.2500],
                [0.5000, 0.5000]], dtype=torch.float64)
    """
    size = counts.shape[-1]
    sums = counts.sum(-1, keepdim=True)
    has_rows = sums > 0
    probs = (counts + alpha / size) / torch.where(has_rows, sums + alpha, torch.ones_like(sums))
    return torch.where(has_rows, probs, torch.full_like(probs, 1 / size))


def checked_reads(domain: Domain, variable: str, reads: Sequence[str] | None) -> tuple[int, ...] | None:
    """Positions of the variables that may be read, None for all others."""
    if reads is None:
        return None
    if isinstance(reads, str) or not isinstance(reads, Iterable):
        raise wrong_type("reads", "a sequence of names", received=repr(reads))
    if variable in reads:
        raise other_domain("reads", f"other variables than {variable!r}", received="that one too")
    return tuple(sorted(domain.indices(reads)))
