"""Learning of a whole dependency network: all nodes by themselves, on joblib's workers, with a checkpoint."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
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
from ...data.observations import Observations
from ...data.sources import RowSource
from ...errors import check_names, check_not_negative, check_type, check_whole, is_whole, out_of_range, wrong_type
from ...results.contrasts import Contrasts, pair_contrasts
from ...results.fitted import Fitted
from ...runs.checkpoint import DeferredInterrupt, RunFile, RunOptions, check_arrays, check_equal, checked_run
from ...runs.container import DEPENDENCY_NETWORK
from ..conditionals import DependencyConditionals
from ..decision_graph import DecisionGraph
from ..node_conditionals import LeafConditional
from ..study.scores import DependencyEdge, GraphInformation, edge_information, sorted_edges
from ._rows import PreparedRows, SourceRows, checked_rows, read_source
from ._search import Found, search
from .node import NodeReport, NodeTask, SearchOptions, checked_reads, leaf_probs
from .penalties import SourcePenalty, TheoremConditions, check_theorem_conditions, checked_penalty

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
    """Digest of the domain and of the law, whatever the order of rows."""
    if not rows.has_whole_counts:  # sums of fractions depend on the order of equal rows
        rows = rows.rows(torch.argsort(rows.counts, stable=True))
    merged = rows.unique()
    content = hashlib.sha256(json.dumps(rows.domain.to_json()).encode())
    for part in merged.code_bytes():
        content.update(part)
    content.update(merged.counts.numpy().tobytes())
    return content.hexdigest()[:32]


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
