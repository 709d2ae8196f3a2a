"""Scores of rows under a dependency network: pseudo-likelihood at any size, likelihood where the law is enumerated."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ...budgets import check_cells
from ...core.prediction import (
    METHODS,
    ClampedGibbs,
    Imputation,
    Prediction,
    RowMethod,
    chain_averages,
    chain_portions,
    check_count,
    checked_gibbs,
    drawn_seed,
    extend_rows,
    row_patterns,
)
from ...core.scores import RowLogLikelihood, Scores, mean_gain, mean_over_rows
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import (
    ConvergenceWarning,
    InputTypeError,
    check_choice,
    check_names,
    check_type,
    none_received,
    other_domain,
    out_of_reach,
    rounded_power,
    size_text,
    unexpected,
)
from ...runs.arguments import checked_seed
from ...schema import Domain
from ..chains.ergodicity import check_ergodic
from ..chains.pseudo_gibbs import PseudoGibbsChains
from ..conditionals import DependencyConditionals, checked_conditionals
from ..decision_graph import DecisionGraph, Split
from ..geometry import fc_limit, full_conditional_divergence
from ..node_conditionals import LeafConditional, NodeConditional
from ..stationary import StationaryLaw, stationary_law

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
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # said by the result
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


# Prediction, completion of rows and draws with a dependency network.

_LOOK_UPS_PER_CALL = 2**20
_PORTION = 2**14


def predict_network(
    conditionals: DependencyConditionals,
    data: DataLike,
    target: str,
    *,
    method: RowMethod = "auto",
    gibbs: ClampedGibbs | None = None,
    seed: int = 0,
) -> Prediction:
    r"""Conditional law of one variable in every row (paper 5, sections 2 and 5): :math:`\theta_t(x_t \mid x_{-t})`.

    One walk down the decision graph per row, whatever the size of the network. Missing cells that leave one leaf only
    do not matter. Otherwise conditional pseudo-Gibbs chains move the target and the missing cells with the known ones
    clamped, and the conditional probabilities of the target are averaged over their states.

    .. math:: \frac{1}{m} \sum_{k=1}^m \theta_t(\cdot \mid x_O, x_M^{(k)}), \qquad
        (x_t, x_M)^{(k)} \sim \pi'(\cdot \mid x_O)

    Args:
        conditionals: the network.
        data: rows over its variables, or over some of them; the others are missing.
        target: the variable to predict; its cells are never read for their own prediction.
        method: ``auto``; ``exact``: refuse rows that need chains; ``gibbs``: chains for all rows with other missing
            cells.
        gibbs: number and length of the chains; there is no annealing.
        seed: seed of the chains.

    Raises:
        InputError, InputTypeError, UnknownNameError: another domain, or arguments out of range or of the wrong type.
        IntractableError: ``exact`` and a row whose conditional depends on cells that are missing.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_labels({"rain": ["no", "yes"], "wet": ["no", "yes"]})
        >>> table = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
        >>> nodes = [TableConditional(domain, "rain", ["wet"], table), TableConditional(domain, "wet", ["rain"], table)]
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, 1]]), domain)
        >>> predict_network(DependencyConditionals(nodes), rows, "wet").labels_predicted
        ('no', 'yes')
    """
    data = extend_rows(data, checked_conditionals(conditionals).domain, (target,))
    check_names([target], data.domain.names, "target")
    check_choice(method, METHODS, "method")
    settings, generator = checked_gibbs(gibbs), torch.Generator().manual_seed(checked_seed(seed))
    node, column = conditionals.node(target), data.domain.index(target)
    # Rows that differ in the target alone have the same prediction.
    hidden = data.codes.clone()
    hidden[:, column] = -1
    codes, inverse = torch.unique(hidden, dim=0, return_inverse=True)
    log_probs = torch.empty(len(codes), data.domain[target].cardinality, dtype=torch.float64)
    std_error = torch.zeros_like(log_probs)
    is_exact = ~(((codes < 0).sum(1) > 1) if method == "gibbs" else _meets_missing(node, codes))
    if method == "exact" and not bool(is_exact.all()):
        asked = [n for n in node.reads if bool((codes[~is_exact, data.domain.index(n)] < 0).any())]
        raise out_of_reach(
            "method",
            f"exact prediction of {target!r} asks for cells that {int((~is_exact).sum())} distinct rows lack (in "
            f"{', '.join(map(repr, asked[:4]))}); method 'gibbs' averages over them",
        )
    # What the conditional asks is known in most rows: one walk down its graph.
    log_probs[is_exact] = node.log_probs(codes[is_exact].clamp(min=0)).double()
    is_lost = is_exact & log_probs.isneginf().all(1)
    # The others average over chains that hold their known cells, rows of one pattern together.
    waiting = (~is_exact).nonzero().squeeze(1)
    for missing, positions in row_patterns(Observations.from_tensor(codes[waiting], data.domain)):
        for part in chain_portions(waiting[positions], settings.num_chains):
            chains = _row_chains(conditionals, missing, codes[part], settings.num_chains, drawn_seed(generator))
            chains.sweep(settings.burn_in)
            size = log_probs.shape[1]
            most = max(1, _LOOK_UPS_PER_CALL // size)
            probs, error = chain_averages(chains, settings, size, most, lambda states: node.log_probs(states.long()))
            # A chain's states count as far as they leave a level possible.
            total = probs.sum(1, keepdim=True)
            log_probs[part], std_error[part] = (probs / total).log(), error / total
            is_lost[part] = total.squeeze(1) == 0
    log_probs[is_lost], std_error[is_lost], is_exact[is_lost] = math.nan, math.nan, False
    return Prediction.of(data, target, log_probs[inverse], std_error[inverse], is_exact[inverse])


def impute_network(
    conditionals: DependencyConditionals,
    data: DataLike,
    num_imputations: int = 1,
    *,
    gibbs: ClampedGibbs | None = None,
    seed: int = 0,
) -> Imputation:
    r"""Fill the missing cells of every row by conditional pseudo-Gibbs sampling given its known cells (algorithm 3).

    Every completion is the last state of a chain of its own, after ``burn_in`` sweeps from uniform levels.

    Args:
        conditionals: the network.
        data: rows over its variables, or over some of them; the others are missing.
        num_imputations: completions of every row.
        gibbs: ``burn_in`` is read, nothing else.
        seed: seed of the chains.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> nodes = [TableConditional(domain, name, [other], torch.eye(2)) for name, other in ("ab", "ba")]
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, -1]]), domain)
        >>> impute_network(DependencyConditionals(nodes), rows).codes[0].tolist()  # each copies the other
        [[0, 0], [1, 1]]
    """
    data = extend_rows(data, checked_conditionals(conditionals).domain)
    check_count(num_imputations, "num_imputations")
    settings, generator = checked_gibbs(gibbs), torch.Generator().manual_seed(checked_seed(seed))
    hint = "make fewer imputations, or of fewer rows at a time"
    check_cells(num_imputations, data.codes.numel(), "num_imputations", hint)
    # Rows that lack the same cells share their chains.
    codes = data.codes.repeat(num_imputations, 1, 1)
    for missing, rows in row_patterns(data):
        columns = torch.tensor(data.domain.indices(missing), dtype=torch.long)
        for part in chain_portions(rows, num_imputations) if missing else ():
            chains = _row_chains(conditionals, missing, data.codes[part], num_imputations, drawn_seed(generator))
            chains.sweep(settings.burn_in)
            states = chains.states.reshape(len(part), num_imputations, -1).movedim(1, 0)
            codes[:, part[:, None], columns] = states[..., columns]
    return Imputation(data, codes, (data.codes >= 0).all(1), "draws")


@dataclass(frozen=True, eq=False)
class NetworkDraws:
    """Rows drawn from the law of a dependency network.

    Attributes:
        codes: the rows, long (N, d).
        is_exact: whether they are independent draws of the enumerated law.
        burn_in: sweeps of every chain before its row was taken; 0 where exact.
    """

    codes: torch.Tensor
    is_exact: bool
    burn_in: int


def draw_network(
    conditionals: DependencyConditionals,
    number: int,
    *,
    clamped: Mapping[str, str | int] | None = None,
    method: Literal["auto", "exact", "gibbs"] = "auto",
    burn_in: int = 200,
    seed: int = 0,
    advance: Callable[[int], Any] | None = None,
) -> NetworkDraws:
    r"""Draw rows from the law of the random scan, :math:`\pi`, or with clamped variables :math:`\pi'(x \mid x_C)` (2).

    Up to 65,536 states of the variables that are not clamped the law is enumerated and the draws are exact and
    independent. Otherwise every row is the last state of a pseudo-Gibbs chain of its own: no thinning, independent
    rows, biased by the start as far as ``burn_in`` sweeps have not removed it.

    Args:
        conditionals: the network.
        number: how many rows.
        clamped: label or code of variables held fixed; all of them leave copies of the evidence.
        method: ``exact``: the enumerated law or an error; ``gibbs``: chains; ``auto``: exact where possible.
        burn_in: sweeps before the row of a chain is taken.
        seed: seed of everything random.
        advance: called with the number of rows after every portion of them.

    Raises:
        InputError: no single limiting law (the states are named), evidence of probability zero, or numbers out of
            range.
        InputTypeError, UnknownNameError: arguments of the wrong type, an unknown variable or label.
        IntractableError: ``exact`` and too many states.

    Warns:
        ConvergenceWarning: zero probabilities leave it open whether there is a single limiting law.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> draws = draw_network(learn_network(rows).conditionals, 10_000)
        >>> draws.is_exact, round(float((draws.codes[:, 0] == draws.codes[:, 1]).double().mean()), 1)  # 80 of 100 rows
        (True, 0.8)
    """
    conditionals = checked_conditionals(conditionals)
    check_count(number, "number")
    check_count(burn_in, "burn_in", 0)
    check_choice(method, METHODS, "method")
    domain, seed = conditionals.domain, checked_seed(seed)
    evidence = domain.encode_state(clamped or {})
    check_ergodic(conditionals, evidence).require_law()
    free = domain.project([name for name in domain.names if name not in evidence])
    if method == "exact" and free.num_states > _MAX_STATES:
        raise out_of_reach(
            "method",
            f"exact draws need the enumerated law of {size_text(free.num_states, 'states')}, the limit is "
            f"{_MAX_STATES}; method 'gibbs' draws approximately, and clamping more variables leaves fewer states",
        )
    # Exact and independent draws from the enumerated law of the free columns.
    if method != "gibbs" and free.num_states <= _MAX_STATES:
        law = stationary_law(conditionals, clamped=evidence)
        codes = torch.empty((number, len(domain)), dtype=torch.long)
        generator = torch.Generator().manual_seed(seed)
        index = torch.multinomial(law.probs.reshape(-1), number, replacement=True, generator=generator)
        if len(free):
            codes[:, list(domain.indices(free.names))] = torch.stack(torch.unravel_index(index, free.cardinalities), -1)
        for name, code in evidence.items():
            codes[:, domain.index(name)] = code
        if advance is not None:
            advance(number)
        return NetworkDraws(codes, True, 0)
    # Else the last state of a chain for every row.
    parts: list[torch.Tensor] = []
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, number, _PORTION):
        size, seed = min(_PORTION, number - start), drawn_seed(generator)
        chains = PseudoGibbsChains(conditionals, size, scan="random", clamped=evidence, seed=seed, check=False)
        chains.sweep(burn_in)
        parts.append(chains.states)
        if advance is not None:
            advance(len(parts[-1]))
    return NetworkDraws(torch.cat(parts), False, burn_in)


def _meets_missing(node: NodeConditional, codes: torch.Tensor) -> torch.Tensor:
    """Whether the conditional of a row (N, d) depends on cells that are missing, (N,)."""
    meets = (codes[:, list(node.domain.indices(node.reads))] < 0).any(1)
    if not isinstance(node, LeafConditional) or not bool(meets.any()):
        return meets
    # Which nodes a row may reach, its missing cells taking every level; parents come before children.
    graph, rows = node.graph.compiled, codes[meets]
    reached = torch.zeros((len(graph.variables), len(rows)), dtype=torch.bool)
    reached[0] = True
    for at, (variable, first) in enumerate(zip(graph.variables.tolist(), graph.offsets.tolist(), strict=True)):
        for level in range(node.domain.cardinalities[variable] if variable >= 0 else 0):
            cells = rows[:, variable]
            reached[graph.children[first + level]] |= reached[at] & ((cells == level) | (cells < 0))
    meets[meets.clone()] = reached[torch.from_numpy(graph.variables < 0)].sum(0) > 1
    return meets


def _row_chains(
    conditionals: DependencyConditionals, missing: tuple[str, ...], codes: torch.Tensor, num_chains: int, seed: int
) -> PseudoGibbsChains:
    """Chains of the missing variables of rows (R, d), those of one row next to each other."""
    columns = zip(conditionals.domain.names, codes.T, strict=True)
    clamped = {name: column.repeat_interleave(num_chains) for name, column in columns if name not in missing}
    size = len(codes) * num_chains
    return PseudoGibbsChains(conditionals, size, scan="random", clamped=clamped, seed=seed, check=False)
