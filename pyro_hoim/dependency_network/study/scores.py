"""Scores of rows under a dependency network: pseudo-likelihood at any size, likelihood where the law is enumerated."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.rows import ClampedGibbs, row_patterns
from ...core.scores import RowLogLikelihood, Scores, mean_gain, mean_over_rows
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import (
    ConvergenceWarning,
    InputTypeError,
    check_type,
    none_received,
    other_domain,
    rounded_power,
    unexpected,
)
from ...schema import Domain
from ..chains.ergodicity import check_ergodic
from ..conditionals import DependencyConditionals
from ..decision_graph import DecisionGraph, Split
from ..geometry import fc_limit, full_conditional_divergence
from ..node_conditionals import LeafConditional
from ..stationary import StationaryLaw, stationary_law
from .predictions import predict_network

# What the nodes of a dependency network gain from the variables that they read.

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DependencyEdge:
    """One variable that the conditional of another one reads.

    Attributes:
        parent: the variable that is read.
        child: the variable whose conditional reads it.
        value: information on the child that its graph gained by asking the parent, nats per row.
        num_splits: how often the graph asks the parent.
    """

    parent: str
    child: str
    value: float
    num_splits: int


@dataclass(frozen=True, eq=False)
class GraphInformation:
    r"""How a decision graph came to know its variable, found by replaying it on rows; in nats per row.

    .. math:: H(X_i) - H(X_i \mid Y_i) = \sum_{\text{splits}} \Delta_s - \sum_{\text{merges}} \Delta_m

    Attributes:
        edges: one per variable that is asked, in schema order; a value is the sum over the splits on it.
        entropy: empirical entropy of the variable, :math:`H(X_i)`.
        conditional_entropy: empirical :math:`H(X_i \\mid Y_i)`.
        merged: information given up by all merges.
        counts: weights of the rows by leaf and level, (num_leaves, cardinality) float64.
    """

    edges: tuple[DependencyEdge, ...]
    entropy: float
    conditional_entropy: float
    merged: float
    counts: torch.Tensor

    @property
    def gain(self) -> float:
        r"""What the graph knows of its variable, :math:`H(X_i) - H(X_i \mid Y_i)`."""
        return self.entropy - self.conditional_entropy


def edge_information(
    conditionals: DependencyConditionals, rows: DataLike
) -> tuple[tuple[DependencyEdge, ...], tuple[GraphInformation, ...]]:
    """Directed edges of a network of decision graphs, most informative first, and what every graph knows.

    A value tells how much a node learned from a parent when its graph asked for it, one after the other: of two
    parents that tell the same, the one asked first gets the credit, and what only both together tell goes to the last.

    Args:
        conditionals: the network.
        rows: the rows it was learned from, or others. A row without a cell that is asked goes to every child with the
            child's share of the rows that have it, as in learning.

    Raises:
        InputTypeError: no network, no observations, or a conditional that is no decision graph.
        InputError: another domain, or no row in which some variable is known.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> apart = learn_network(rows, max_leaves=1).conditionals
        >>> edges, graphs = edge_information(apart, rows)
        >>> edges, graphs[0].gain
        ((), 0.0)
    """
    check_type(conditionals, DependencyConditionals, "conditionals")
    rows = as_observations(rows, domain=conditionals.domain, argument="rows")
    for node in conditionals.nodes:
        if not isinstance(node, LeafConditional):
            problem = f"expected decision graphs, but that of {node.variable!r} is a {type(node).__name__}"
            raise InputTypeError(problem, argument="conditionals")
    merged = rows.unique()
    found = tuple(_graph_information(n.graph, merged) for n in conditionals.nodes if isinstance(n, LeafConditional))
    return sorted_edges(found, conditionals.domain), found


def _graph_information(graph: DecisionGraph, rows: Observations) -> GraphInformation:
    """Replay one decision graph on rows; InputError for another domain, or where the variable is never known."""
    domain = graph.domain
    if rows.domain != domain:
        raise other_domain("rows", "the variables and labels of the network's domain")
    column = domain.index(graph.variable)
    is_known = ((rows.codes[:, column] >= 0) & (rows.counts > 0)).numpy()
    codes, weight = rows.codes.numpy()[is_known], rows.counts.double().numpy()[is_known]
    if not len(weight):
        raise none_received("rows", f"rows in which {graph.variable!r} is known")
    size = domain[graph.variable].cardinality
    row, leaf, num_leaves = np.arange(len(weight)), np.zeros(len(weight), dtype=np.int64), 1
    level = codes[:, column]
    levels, split_tables = _tally(level, weight, size), list[Floats]()
    # The rows walk down the graph as it was grown: a split sends them on, a merge joins two leaves.
    for operation in graph.operations:
        if isinstance(operation, Split):
            width = domain[operation.on].cardinality
            here = leaf == operation.leaf
            seen = codes[row[here], domain.index(operation.on)]
            known = seen >= 0
            into, children, shares = row[here], seen.copy(), weight[here]
            if not known.all():
                into, children, shares = _share_out(into, seen, shares, width)
            split_tables.append(_tally(children * size + level[into], shares, width * size).reshape(width, size))
            rest = leaf[~here]
            row = np.concatenate([row[~here], into])
            weight = np.concatenate([weight[~here], shares])
            leaf = np.concatenate([rest - (rest > operation.leaf), num_leaves - 1 + children])
            num_leaves += width - 1
        else:
            leaf = np.where(leaf == operation.second, operation.first, leaf - (leaf > operation.second))
            num_leaves -= 1
    return information_of_tables(graph, levels, split_tables)


def information_of_tables(graph: DecisionGraph, root: Floats, split_tables: Iterable[Floats]) -> GraphInformation:
    """What a graph knows, from the counts of its variable and those of the leaves that each split makes.

    Shapes: own (n_i,); of every split in turn (levels of the variable asked, n_i).
    """
    total, tables = float(root.sum()), iter(split_tables)
    gained, asked, merged = dict.fromkeys(graph.reads, 0.0), dict.fromkeys(graph.reads, 0), 0.0
    # Replay the operations on tables: splits gain information, merges give some up.
    leaves, spreads = [root], [_spread(root)]
    for operation in graph.operations:
        if isinstance(operation, Split):
            split = next(tables)
            parts = list(map(_spread, split))
            gained[operation.on] += (spreads.pop(operation.leaf) - sum(parts)) / total
            asked[operation.on] += 1
            leaves.pop(operation.leaf)
            leaves.extend(split)
            spreads.extend(parts)
        else:
            first, apart = operation.first, spreads[operation.first] + spreads.pop(operation.second)
            leaves[first] = leaves[first] + leaves.pop(operation.second)
            spreads[first] = _spread(leaves[first])
            merged += (spreads[first] - apart) / total
    counts = np.stack(leaves)
    return GraphInformation(
        tuple(DependencyEdge(name, graph.variable, max(gained[name], 0.0), asked[name]) for name in graph.reads),
        _spread(root) / total,
        sum(spreads) / total,
        merged,
        torch.from_numpy(counts),
    )


def sorted_edges(graphs: Iterable[GraphInformation], domain: Domain) -> tuple[DependencyEdge, ...]:
    """Edges of all graphs, most informative first."""
    place = domain.index
    edges = (edge for graph in graphs for edge in graph.edges)
    return tuple(sorted(edges, key=lambda e: (-e.value, place(e.parent), place(e.child))))


def _share_out(
    rows: NDArray[np.int64], seen: NDArray[np.int64], weight: Floats, width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Rows without the variable of a split, spread over its levels in proportion to the rows that have it."""
    known = seen >= 0
    # Shares of the levels among the rows that have the cell, equal where none has.
    shares = _tally(seen[known], weight[known], width)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(width, 1 / width)
    levels = np.flatnonzero(shares)
    into = np.repeat(rows[~known], len(levels))
    children = np.tile(levels, int((~known).sum()))
    spread = np.repeat(weight[~known], len(levels)) * shares[children]
    return (
        np.concatenate([rows[known], into]),
        np.concatenate([seen[known], children]),
        np.concatenate([weight[known], spread]),
    )


def _tally(index: NDArray[np.int64], weight: Floats, size: int) -> Floats:
    return np.bincount(index, weights=weight, minlength=size).astype(np.float64)


def _spread(counts: Floats) -> float:
    """Total weight times the entropy of a table of counts, nats."""
    values = [value for value in counts.tolist() if value > 0]  # a few numbers, which lists are quicker for
    total = math.fsum(values)
    return total * math.log(total) - math.fsum(value * math.log(value) for value in values) if total > 0 else 0.0


_MAX_STATES = 2**16
_GIBBS = ClampedGibbs(burn_in=20, num_sweeps=40, thin=2)


@dataclass(frozen=True, eq=False)
class NetworkLawFinding:
    """The law that a network settles at under the random scan with equal probabilities, or why there is no table of it.

    Attributes:
        law: the enumerated law, None where it is out of reach or there is no single one.
        reason: why there is none, one clause; empty with a law.
        has_unique_law: whether there is a single limiting law; None where zero probabilities leave it open.
    """

    law: StationaryLaw | None
    reason: str
    has_unique_law: bool | None


def find_law(conditionals: DependencyConditionals, *, max_states: int = _MAX_STATES) -> NetworkLawFinding:
    """The enumerated law of a network where it exists and has at most ``max_states`` states.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> found = find_law(learn_network(rows, alpha=0.0).conditionals)
        >>> found.has_unique_law, found.law.probs.round(decimals=4).tolist()
        (True, [[0.4, 0.1], [0.1, 0.4]])
    """
    ergodicity = check_ergodic(conditionals, max_states=max_states)
    if ergodicity.has_unique_law is False:
        return NetworkLawFinding(None, ergodicity.message, False)
    # Too many states, or an iteration without an end, leave no table.
    size = conditionals.domain.num_states
    if size > max_states:
        shown = f"{size:,}" if size < 10**9 else "{}e{}".format(*rounded_power(size, 1))
        reason = f"it has {shown} states, at most {max_states:,} are enumerated"
        return NetworkLawFinding(None, reason, ergodicity.has_unique_law)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said by the result
        law = stationary_law(conditionals, max_states=max_states)
    if not law.is_converged:
        return NetworkLawFinding(None, "the iteration for the stationary law did not settle", ergodicity.has_unique_law)
    return NetworkLawFinding(law, "", True)


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkScores(Scores):
    r"""Scores of rows under a dependency network: those of every model, with what the conditionals say.

    The pseudo-NLL is the mean of :math:`-\sum_i \log \theta_i(x_i \mid x_{-i})` over the known cells. A likelihood
    is that under the enumerated law, where there is one.

    Attributes:
        nodes: mean of :math:`-\log \theta_i(x_i \mid x_{-i})` by variable, over the rows in which it is known; NaN
            where it never is.
        fc: full conditional divergence of the rows' empirical law from the enumerated one; None without a law or with
            missing cells.
        fc_limit: its bound from the conditionals alone; None with missing cells.
    """

    nodes: dict[str, float] = field(repr=False)
    fc: float | None
    fc_limit: float | None


def score_network(
    conditionals: DependencyConditionals,
    data: DataLike,
    *,
    law: StationaryLaw | None = None,
    reference: DependencyConditionals | None = None,
    gibbs: ClampedGibbs = _GIBBS,
    seed: int = 0,
) -> NetworkScores:
    r"""Score rows under a dependency network (paper 5, equations 6 to 10).

    A missing cell adds no factor of its own to the pseudo-likelihood. A factor that needs a missing cell is the mean of
    the conditional over conditional pseudo-Gibbs chains, as in :func:`predict_network`.

    Args:
        conditionals: the network.
        data: rows over its domain with a positive total count; others are refused.
        law: its enumerated law over all variables, for what needs one; see :func:`find_law`.
        reference: a network over the same domain that the gain is measured from, such as that of independent columns.
        gibbs: number and length of the chains.
        seed: seed of the chains.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> network = learn_network(rows, alpha=0.0).conditionals
        >>> scores = score_network(network, rows, law=find_law(network).law)
        >>> round(scores.nll, 4), round(rows.entropy(), 4), abs(scores.kl) < 1e-9
        (1.1935, 1.1935, True)
    """
    data = as_observations(data, domain=conditionals.domain)
    if data.domain != conditionals.domain:
        expected = "the variables and labels of the model's domain"
        raise other_domain("data", expected, hint="read the file with domain=...")
    if not data.total_count > 0:
        raise unexpected("data", "at least one row", received="a total count of 0", code="empty")
    data = data.unique()
    total, counts, squares = data.total_count, data.counts, data.squared_weights
    # The pseudo-likelihood, and its gain from paired differences.
    log_probs, is_exact = _log_conditionals(conditionals, data, gibbs, seed)
    pseudo = log_probs.nan_to_num(nan=0.0, neginf=-math.inf).sum(1)
    mean, error = mean_over_rows(-pseudo, counts, squares)
    gain = gain_error = None
    if reference is not None:
        apart = _log_conditionals(reference, data, gibbs, seed)[0].nan_to_num(nan=0.0, neginf=-math.inf).sum(1)
        gain, gain_error = mean_gain(pseudo, apart, counts, squares)
    # What needs the joint law.
    nll = nll_error = kl = fc = None
    if law is not None:
        nll, nll_error = mean_over_rows(-_log_law(law, data), counts, squares)
        kl = None if data.has_missing else nll - data.entropy()
        fc = None if data.has_missing else full_conditional_divergence(data, law)
    return NetworkScores(
        rows=total,
        pseudo_nll=mean,
        pseudo_nll_std_error=error,
        nodes={name: _node_mean(log_probs[:, i], counts) for i, name in enumerate(data.domain.names)},
        impossible_rows=float(counts[pseudo == -math.inf].sum()),
        approximate_rows=float(counts[~is_exact].sum()),
        nll=nll,
        nll_std_error=nll_error,
        kl=kl,
        fc=fc,
        fc_limit=None if data.has_missing else fc_limit(data, conditionals).value,
        gain=gain,
        gain_std_error=gain_error,
    )


def network_log_likelihood(
    conditionals: DependencyConditionals, data: DataLike, pseudo: bool = False
) -> RowLogLikelihood:
    """Log-likelihood of every row under the enumerated law; pseudo-likelihood on demand and where there is none."""
    data = as_observations(data, domain=conditionals.domain)
    law = None if pseudo else find_law(conditionals).law
    if law is not None:
        return RowLogLikelihood(_log_law(law, data))
    log_probs, is_exact = _log_conditionals(conditionals, data, _GIBBS, seed=0)
    values = log_probs.nan_to_num(nan=0.0, neginf=-math.inf).sum(1)
    return RowLogLikelihood(values, "pseudo-likelihood", bool(is_exact.all()))


def _log_conditionals(
    conditionals: DependencyConditionals, data: Observations, gibbs: ClampedGibbs, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of every cell given the others, NaN where it is missing, (N, d); rows without chains, (N,)."""
    # Complete rows need one look-up a cell.
    complete = (data.codes >= 0).all(1)
    values = torch.full(data.codes.shape, math.nan, dtype=torch.float64)
    values[complete] = conditionals.log_conditionals(data.codes[complete]).double()
    is_exact = torch.ones(len(data.codes), dtype=torch.bool)
    # Others are predicted column by column, over chains where a conditional asks what is missing.
    gaps = (~complete).nonzero().squeeze(1)
    for column, name in enumerate(data.domain.names if len(gaps) else ()):
        known = gaps[data.codes[gaps, column] >= 0]
        prediction = predict_network(conditionals, data.rows(known), name, gibbs=gibbs, seed=seed)
        log_probs = prediction.log_probs.gather(1, prediction.truth[:, None]).squeeze(1)
        # Beside cells that are impossible together nothing is predicted, and no level is possible.
        values[known, column] = log_probs.masked_fill(log_probs.isnan(), -math.inf)
        is_exact[known] &= prediction.is_exact
    return values, is_exact


def _log_law(law: StationaryLaw, data: Observations) -> torch.Tensor:
    """Log-probability of the known cells of every row, (N,)."""
    values = torch.empty(len(data.codes), dtype=torch.float64)
    for missing, rows in row_patterns(data):
        known = [i for i, name in enumerate(data.domain.names) if name not in missing]
        gone = data.domain.indices(missing)
        table = law.probs.sum(gone) if gone else law.probs
        values[rows] = table[tuple(data.codes[rows][:, known].T)].log()
    return values


def _node_mean(log_probs: torch.Tensor, counts: torch.Tensor) -> float:
    known = ~log_probs.isnan()
    total = float(counts[known].sum())
    return -float((counts[known] * log_probs[known]).sum()) / total + 0.0 if total else math.nan
