r"""Learning of one conditional, and of a whole dependency network: all nodes by themselves, with a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Unpack, cast

import joblib
import numpy as np
import torch
from tqdm import tqdm

from ...budgets import MAX_NETWORK_WORK, NETWORK_BITS_AT_ONCE, check_size
from ...data.columns import FrameOptions
from ...data.frames import DataLike, rows_of_frame
from ...data.observations import Observations, rows_digest
from ...data.sources import RowSource
from ...errors import (
    check_names,
    check_not_negative,
    check_type,
    check_whole,
    is_whole,
    other_domain,
    out_of_range,
    wrong_type,
)
from ...results.contrasts import Contrasts, pair_contrasts
from ...results.fitted import Fitted
from ...runs.checkpoint import DeferredInterrupt, RunFile, RunOptions, check_arrays, check_equal, checked_run
from ...runs.container import DEPENDENCY_NETWORK
from ...schema import Domain
from ..conditionals import DependencyConditionals
from ..decision_graph import DecisionGraph, Merge, Split
from ..node_conditionals import LeafConditional
from ..study.scores import DependencyEdge, GraphInformation, edge_information, information_of_tables, sorted_edges
from ._rows import Columns, PreparedRows, SourceRows, checked_rows, read_source, sum_log
from ._search import Found, search
from .penalties import (
    SourcePenalty,
    TheoremConditions,
    check_theorem_conditions,
    checked_penalty,
    large_penalty,
    leaf_penalties,
)

# One conditional: greedy splits and merges of a decision graph (paper 5, algorithm 2).

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


# A network: all nodes, on joblib's workers.

_LARGEST_PARAMETERS = 10**12
_FLOAT = torch.float64
_ARRAYS = {
    "steps": (torch.int64, None, 3),
    "deltas": (_FLOAT, None),
    "counts": (_FLOAT, None, None),
    "tables": (_FLOAT, None, None),
    "seconds": (_FLOAT,),
}


@dataclass(frozen=True, eq=False, repr=False)
class LearnedNetwork(Fitted):
    """A learned dependency network and how it came about.

    Attributes:
        conditionals: the network; every conditional is a decision graph with a table.
        nodes: one report per variable, in schema order.
        counts: counts of the leaves behind every table, each (num_leaves, cardinality) float64, in schema order.
        penalty: name of the penalty.
        alpha: Dirichlet prior of a leaf table, total over its levels.
        num_observations: total weight of the rows.
        conditions: what theorem 5 asks for, of the network as a whole: the lossless source counts as a candidate where
            it was one of every node and no ``reads`` kept variables from being asked.
        edges: arrows, the most informative first.
        contrasts: log odds ratios of the columns of the hundred strongest pairs by themselves, among the rows.
    """

    model_kind: ClassVar[str] = DEPENDENCY_NETWORK

    conditionals: DependencyConditionals
    nodes: tuple[NodeReport, ...]
    counts: tuple[torch.Tensor, ...]
    penalty: str
    alpha: float
    num_observations: float
    conditions: TheoremConditions
    edges: tuple[DependencyEdge, ...] = field(repr=False)
    contrasts: Contrasts = field(repr=False)

    @property
    def cost(self) -> float:
        """Mean over the nodes of H(X_i | Y_i) + R, nats per observation."""
        return sum(node.cost for node in self.nodes) / len(self.nodes)

    @property
    def fc_limit(self) -> float | None:
        r"""FC-limit of the rows' own law, of unsmoothed tables and equal selection probabilities (equation 10).

        .. math:: \frac1d \sum_i KL(\hat p \| E(\theta_i)) = \frac1d \sum_i H(X_i \mid Y_i) - H(X_i \mid X_{-i})

        None where rows with missing cells leave it undefined.
        """
        found = [node.divergence for node in self.nodes]
        return None if None in found else math.fsum(cast("list[float]", found)) / len(found)

    def with_alpha(self, alpha: float) -> LearnedNetwork:
        """The same graphs with leaf tables under another prior; 0 gives the paper's, a negative one InputError."""
        check_not_negative(alpha, "alpha")
        nodes = [
            LeafConditional(cast(LeafConditional, node).graph, leaf_probs(counts, alpha))
            for node, counts in zip(self.conditionals.nodes, self.counts, strict=True)
        ]
        return replace(self, conditionals=DependencyConditionals(nodes), alpha=float(alpha))


def learn_network(
    rows: DataLike,
    *,
    penalty: str | SourcePenalty = "mdl",
    alpha: float = 1.0,
    lossless: bool = False,
    reads: Mapping[str, Sequence[str]] | None = None,
    max_leaves: int | None = None,
    max_work: int = MAX_NETWORK_WORK,
    jobs: int | None = None,
    run: RunOptions | None = None,
    **options: Unpack[FrameOptions],
) -> LearnedNetwork:
    r"""Learn a dependency network: for every variable a decision graph and the tables of its leaves.

    .. math:: \min_{Y_i} H(\hat p(X_i \mid Y_i)) + R(|Y_i| (|X_i| - 1), N), \qquad
        \theta_i(x \mid y) = \frac{N_{yx} + \alpha / |X_i|}{N_y + \alpha}

    From one leaf on, the split or merge that lowers the cost most is made until none lowers it (the paper goes on at
    equal cost). Steps whose costs agree to rounding are ordered: a merge first, and of merges the one that joins most
    rows; then the leaf that stands first; then the variable that stands first. Leaves are counted for this with the
    levels of a variable ordered by what the rows say of them, frequent ones first, so the result depends neither on
    the order of rows nor on that of labels, nor on ``jobs``; only levels that rows do not tell apart (symmetric tables)
    are taken in the order of their codes. Beyond counts of about 10^13 in all, rounding hides the price of a leaf.

    A split or merge is evaluated from the counts of the leaves it touches. Many distinct rows of weight one and columns
    of few levels are held as bits, and counted 64 rows at a time; the result is the same. Time is about (sum of levels
    of all variables) x (distinct rows) x (depth of the graph) per node, plus leaves squared for merges; memory is the
    distinct rows times the variables, and per leaf that may still be split, the levels of all variables times those
    of the node.

    Missing cells: a row without :math:`X_i` is left out for node i. A row without the variable of a split goes to every
    child with the child's share of the rows that have it, so counts of leaves may be fractions; a variable that is
    missing in all rows of a leaf does not split it.

    Args:
        rows: observations with counts or weights; N is their sum over the rows in which :math:`X_i` is known. Or a
            :class:`~pyro_hoim.data.RowSource` (:func:`~pyro_hoim.data.open_rows`): it is read twice and held as bits,
            one for each level but the first of every column, in at most 2^33 bytes with what the searches need; with
            missing cells, with counts, few distinct rows, or where it does not fit, as its distinct rows, of at most
            2^27 cells. The result has equal bits.
        penalty: ``"mdl"`` (the paper's), ``"aic"``, ``"ebic"`` (mdl and the price of choosing among the other columns:
            of hundreds of columns few arrows are then due to chance), or a function R(k, N) in nats per observation
            that does not fall in k; see :func:`~pyro_hoim.dependency_network.check_theorem_conditions`.
        alpha: total of a symmetric Dirichlet prior per leaf, whose posterior mean is the table; 0 gives the empirical
            frequencies (theorem 4), and the uniform law at a leaf without rows.
        lossless: add the lossless source, one leaf for every state of the other variables, to the candidates of
            every step (theorem 5, condition 1) where it has at most 2^14 leaves; the search may go on from it.
        reads: for some variables, the names that their graphs may ask; default all others.
        max_leaves: no split may make more leaves of a graph than this.
        max_work: largest allowed number of cells that all nodes together look at in one step of depth: rows times
            columns asked, over all nodes; a sixteenth of it where rows are held as bits.
        jobs: nodes at a time, as ``n_jobs`` of :class:`joblib.Parallel`; default one, or what a surrounding
            :func:`joblib.parallel_config` says, which also chooses processes or a Dask cluster in place of threads.
        run: the file with the nodes that are done, rewritten about every 30 seconds and when the run is interrupted;
            whether to continue from it (rows and arguments must be the same); and progress.
        options: of a data frame ``weights``, ``count``, ``missing`` (``"drop"``; else missing cells are kept) and
            ``missing_values`` as :func:`pyro_hoim.fit` has them, and ``bins``, ``exclude`` and ``allow``, which say how
            columns are cut, left out and taken as they are (:func:`~pyro_hoim.data.read_columns`).

    Raises:
        InputError: no observation, a variable that is always missing, arguments out of range, or a checkpoint of
            another run. InputTypeError, UnknownNameError likewise.
        IntractableError: more than ``max_work``, or a source that does not fit; the message has the numbers.

    References:
        Paper 5 (dependency networks), section 4, algorithm 2, equations (15) to (20), theorem 4. J. Ross Quinlan, C4.5:
        Programs for Machine Learning, 1993 (missing cells).

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> learned = learn_network(rows, alpha=0.0)
        >>> learned.conditionals.node("a").probs.tolist(), learned.conditionals.edges
        ([[0.8, 0.2], [0.2, 0.8]], (('b', 'a'), ('a', 'b')))
    """
    # The door: rows, penalty, what may be read, and the work that this makes.
    if isinstance(rows, RowSource):
        given = rows_of_frame(rows, options, argument="rows")
    else:
        rows = checked_rows(rows, options)
        given = rows.in_effective_rows()
    check_not_negative(alpha, "alpha")
    name, function = checked_penalty(penalty, len(given.domain) - 1)
    steps_allowed = SearchOptions(function, bool(lossless), max_leaves)
    domain = given.domain
    names = domain.names
    check_type(reads, Mapping | None, "reads", "a mapping from names to names")
    allowed = dict(reads or {})
    check_names(allowed, domain.names, "reads")
    asked = [checked_reads(domain, variable, allowed.get(variable)) for variable in names]
    if jobs is not None and not is_whole(jobs):
        raise wrong_type("jobs", "a whole number", received=repr(jobs))
    if jobs == 0:
        raise out_of_range("jobs", "a number of nodes at a time, or a negative one as joblib reads it", received="0")
    run = checked_run(run)
    check_whole(max_work, "max_work")
    file = run.file()
    if isinstance(given, RowSource):
        threads: Any = joblib.Parallel(n_jobs=jobs, prefer="threads")
        num_jobs: Any = joblib.effective_n_jobs(threads.n_jobs)
        given = read_source(given, lossless=steps_allowed.lossless, jobs=int(num_jobs))
    prepared = given.prepared if isinstance(given, SourceRows) else PreparedRows.from_rows(given)
    _check_work(prepared, asked, max_work)
    # Nodes are searched by themselves; results are arrays, which a checkpoint or another process can hold.
    done: dict[int, Found] = {}
    finished: dict[int, _Finished] = {}

    def task(index: int) -> NodeTask:
        return NodeTask(prepared, domain, index, asked[index])

    def finish(index: int, found: Found) -> _Finished:
        its = task(index)
        graph, counts, report = its.finish(found, steps_allowed)
        return _Finished(graph, counts, report, its.information(graph, found))

    if file is not None:
        settings = {
            "penalty": name,
            "lossless": steps_allowed.lossless,
            "reads": [None if a is None else list(a) for a in asked],
            "max_leaves": steps_allowed.max_leaves,
            "penalty digest": [float(function(k, given.total_count)) for k in (1, 2, 5, 10, 100)],
            "data digest": given.digest if isinstance(given, SourceRows) else _digest(given),
        }
        stored = file.start(settings)
        with file.taking_up():
            done = _restored(stored or {})
            check_equal(stored or {}, _tensors(done))
            finished = {i: finish(i, steps) for i, steps in done.items()}
    # Search what the checkpoint does not hold; it is written when due, and at an interrupt.
    missing = [i for i in range(len(names)) if i not in done]
    bar = tqdm(total=len(names), initial=len(done), unit="node", leave=False, disable=not run.progress)
    try:
        with closing(_run(task, missing, steps_allowed, jobs)) as results, bar:
            for index, steps in results:
                done[index] = steps
                bar.update()
                if file is not None and file.is_due:
                    _write(file, done)
    finally:
        if file is not None and done:
            _write(file, done)
    # Graphs, tables and edges are made of the arrays at the end.
    finished |= {i: finish(i, done[i]) for i in missing}
    learned = _learned(given, prepared, [finished[i] for i in range(len(names))], asked, (name, function), float(alpha))
    return replace(learned, num_observations=rows.total_count) if isinstance(rows, Observations) else learned


class _Finished(NamedTuple):
    """A finished node: its graph, the counts of its leaves, its report, and what it knows where its counts say that."""

    graph: DecisionGraph
    counts: torch.Tensor
    report: NodeReport
    information: GraphInformation | None


def _learned(
    rows: Observations | SourceRows,
    prepared: PreparedRows,
    finished: Sequence[_Finished],
    asked: Sequence[tuple[int, ...] | None],
    penalty: tuple[str, SourcePenalty],
    alpha: float,
) -> LearnedNetwork:
    """The network of finished nodes."""
    reports = tuple(node.report for node in finished)
    # Theorem 5 is about the whole network: its conditions hold where they hold for every node.
    largest = max(r.lossless_leaves * (rows.domain[r.variable].cardinality - 1) for r in reports)
    is_candidate = all(r.is_lossless_candidate for r in reports) and all(
        a is None or len(a) == len(rows.domain) - 1 for a in asked
    )
    name, function = penalty
    size = min(max(largest, 1), _LARGEST_PARAMETERS)
    conditionals = DependencyConditionals(LeafConditional(f.graph, leaf_probs(f.counts, alpha)) for f in finished)
    # Edges from the counts of the search, or where these do not say them, from the rows.
    known = [node.information for node in finished if node.information is not None]
    if len(known) == len(finished):
        edges = sorted_edges(known, rows.domain)
    else:
        assert isinstance(rows, Observations)
        edges = edge_information(conditionals, rows)[0]
    return LearnedNetwork(
        conditionals,
        reports,
        tuple(node.counts for node in finished),
        name,
        alpha,
        rows.total_count,
        check_theorem_conditions(function, size, rows.total_count, lossless=is_candidate),
        edges,
        _pairs_apart(rows, prepared, edges),
    )


def _pairs_apart(rows: Observations | SourceRows, prepared: PreparedRows, edges: Sequence[DependencyEdge]) -> Contrasts:
    """Log odds ratios of the pairs of columns that arrows tie."""
    scale = rows.effective_count / rows.total_count if isinstance(rows, Observations) else 1.0
    ranks = prepared.ranks

    def count(i: int, j: int) -> np.ndarray:
        return prepared.table(i, j, scale)[np.ix_(ranks[i], ranks[j])]

    return pair_contrasts(rows.domain, [(edge.parent, edge.child) for edge in edges], count, is_searched=True)


def _check_work(prepared: PreparedRows, asked: Sequence[tuple[int, ...] | None], most: int) -> None:
    """Raise IntractableError where looking once at every cell that every node may ask is more than the budget."""
    width = len(prepared.sizes)
    looks = sum(width - 1 if columns is None else len(columns) for columns in asked)
    cells = prepared.num_rows * looks
    if len(prepared.bits):
        cells //= NETWORK_BITS_AT_ONCE
    hint = "restrict reads, take a sample of the rows, or raise max_work"
    what = f"{len(asked):,} nodes of {prepared.num_rows:,} rows look at"
    check_size(cells, most, "cells or groups of bits at every depth", "max_work", hint, what)


def _run(
    task: Callable[[int], NodeTask], missing: Sequence[int], options: SearchOptions, jobs: int | None
) -> Generator[tuple[int, Found]]:
    """Results of the missing nodes as they come."""
    # The compiled search releases the interpreter lock: threads share the rows. A parallel_config overrides this.
    jobs = None if jobs is None else min(jobs, max(1, len(missing)))
    parallel = joblib.Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered")
    found = parallel(joblib.delayed(_numbered)(i, *task(i).arguments(options)) for i in missing)
    yield from cast("Generator[tuple[int, Found]]", found)


def _numbered(index: int, *arguments: Any) -> tuple[int, Found]:
    return index, search(*arguments)


def _digest(rows: Observations) -> str:
    # Sums of fractions depend on the order of equal rows.
    whole = rows.has_whole_counts
    return rows_digest(rows if whole else rows.rows(torch.argsort(rows.counts, stable=True)))


def _write(file: RunFile, done: Mapping[int, Found]) -> None:
    with DeferredInterrupt():
        file.write(_tensors(done))


def _tensors(done: Mapping[int, Found]) -> dict[str, torch.Tensor]:
    arrays = ((f"{index}.{part}", value) for index, result in done.items() for part, value in result._asdict().items())
    return {name: torch.as_tensor(np.asarray(value)) for name, value in arrays}


def _restored(found: Mapping[str, torch.Tensor]) -> dict[int, Found]:
    numbers = [int(name.removesuffix(".steps")) for name in found if name.endswith(".steps")]
    for i in numbers:
        # A checkpoint may be damaged: shapes and signs before anything is made of it.
        own = {part: found[f"{i}.{part}"] for part in _ARRAYS}
        check_arrays(own, _ARRAYS)
        counts = torch.cat([own[part].flatten() for part in ("counts", "tables")])
        if not bool(((counts >= 0) & counts.isfinite()).all()) or bool((own["steps"] < -1).any()):
            raise ValueError(f"the counts or steps of node {i} are out of range")
    arrays = {i: [found[f"{i}.{part}"].numpy() for part in tuple(_ARRAYS)[:-1]] for i in numbers}
    return {i: Found._make([*arrays[i], float(found[f"{i}.seconds"])]) for i in numbers}
