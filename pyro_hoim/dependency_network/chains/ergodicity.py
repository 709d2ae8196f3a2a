"""Whether the chain of pseudo-Gibbs sampling forgets where it began, and which states keep it from doing so."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components

from ...errors import ConvergenceWarning, refused
from ...runs.arguments import checked_clamps
from ...schema import Domain
from ..conditionals import DependencyConditionals, checked_conditionals, device_of, update_log_probs
from ..node_conditionals import LeafConditional, TableConditional
from ..scan import Scan, ScanLike, checked_scan, drawn_variables

# Possible moves of a chain that changes one variable at a time, and the states that it never leaves.

Ints = NDArray[Any]
Positive = Sequence[NDArray[np.bool_]]


def move_graph(positive: Positive, cards: Sequence[int], order: Sequence[int] | None) -> Any:
    """Possible moves as a sparse matrix: between states, or between (place in the order, state) where there is one.

    ``positive`` says whether every level of a variable is possible at every state, (num_states, levels) by variable, of
    which the last moves fastest. States of several combinations of clamped values may stand one after the other; no
    move joins them.
    """
    size, count = len(positive[0]), 1 if order is None else len(order)
    visits = list[tuple[Ints, Ints]]()  # from and to numbers of all possible updates
    for i in range(len(cards)) if order is None else order:
        stride = math.prod(cards[i + 1 :])
        source, level = positive[i].nonzero()
        visits.append((source, source + (level - source // stride % cards[i]) * stride))
    source = np.concatenate([s + k % count * size for k, (s, _) in enumerate(visits)])
    target = np.concatenate([t + (k + 1) % count * size for k, (_, t) in enumerate(visits)])
    return csr_matrix((np.ones(len(source), dtype=np.int8), (source, target)), shape=(size * count, size * count))


def closed_classes(graph: Any, num_states: int) -> Ints:
    """Number of the closed class of every state (num_states,), rising with its first state; -1 for transient states."""
    # A class is closed where no move leads out of it.
    count, label = connected_components(graph, directed=True, connection="strong")
    edges = graph.tocoo()
    is_closed = np.ones(count, dtype=bool)
    is_closed[label[edges.row][label[edges.row] != label[edges.col]]] = False
    # Closed classes are numbered by their first states, so that results do not depend on SciPy.
    start = label[:num_states]  # every class of a sweep holds states of its beginning
    first = np.full(count, num_states, dtype=np.int64)
    np.minimum.at(first, start, np.arange(num_states))
    closed = np.flatnonzero(is_closed)
    number = np.full(count, -1, dtype=np.int64)
    number[closed[first[closed].argsort()]] = np.arange(len(closed))
    return number[start]


_NUM_SHOWN = 3
_MAX_MOVES = 2**23


@dataclass(frozen=True)
class Ergodicity:
    """What is known of the chain of pseudo-Gibbs sampling of a dependency network.

    A set of states is *closed* when no update leaves it, and a state is *transient* when the chain leaves it for good.
    A chain has one limiting law from every start if and only if it has one closed class that is aperiodic; it is
    ergodic if all states are in that class.

    Attributes:
        is_ergodic: whether the chain is irreducible and aperiodic; None where that is not known.
        has_unique_law: whether it has one limiting law from every start, which may leave out transient states; None
            where that is not known.
        method: how it was found out: "positive" (no probability is zero), "common state" (some state can be reached
            from every other one), "enumeration" of all states, or "undecided".
        zero_nodes: variables that are drawn and have a conditional probability that is, or may be, zero.
        num_closed: largest number of closed classes of one combination of clamped values; None where it is not known.
        closed_states: one state of each of the first of these classes, or one that is met periodically; labels by name.
        transient_states: the first transient states.
        num_transient: number of transient states; None where it is not known.
        period: largest period of a closed class, in sweeps; 1 is aperiodic.
        impossible: clamped values that the network itself gives probability zero, in words; empty if there are none or
            it is not known.
    """

    is_ergodic: bool | None
    has_unique_law: bool | None
    method: Literal["positive", "common state", "enumeration", "undecided"]
    zero_nodes: tuple[str, ...] = ()
    num_closed: int | None = None
    closed_states: tuple[dict[str, str], ...] = ()
    transient_states: tuple[dict[str, str], ...] = ()
    num_transient: int | None = None
    period: int | None = None
    impossible: str = ""

    @property
    def message(self) -> str:
        """The finding with the next step where there is one."""
        return self.finding if self.hint is None else f"{self.finding}; {self.hint}"

    @property
    def hint(self) -> str | None:
        """The next step where there is no single limiting law."""
        if self.has_unique_law is not False:
            return None
        if self.num_closed != 1:
            return f"smooth the conditionals of {_names(self.zero_nodes)}"
        return (
            "stationary_law(scan='sequential') gives the mean of its cyclic laws; to sample, use the random scan or "
            "probabilities above zero"
        )

    @property
    def finding(self) -> str:
        """The finding in one clause."""
        if self.has_unique_law is False:
            if self.num_closed == 1:
                return (
                    f"the sequential scan is periodic: from {_shown(self.closed_states[0])} it comes back every "
                    f"{self.period} sweeps only"
                )
            states = "; ".join(map(_shown, self.closed_states))
            return f"no single limiting law: the chain cannot go between {states}"
        if self.has_unique_law is None:
            return (
                f"it is not known whether the chain has a single limiting law: the conditionals of "
                f"{_names(self.zero_nodes)} have zero probabilities and there are too many states to look at"
            )
        if self.is_ergodic:
            return "the chain is ergodic"
        if self.num_transient:
            return (
                f"the chain has a single limiting law; {self.num_transient} states have probability zero in it, such "
                f"as {_shown(self.transient_states[0])}"
            )
        return "the chain has a single limiting law; some states may have probability zero in it"

    def require_law(self, escape: str = "", stacklevel: int = 3) -> None:
        """Raise where there is no single limiting law of these clamped values; warn where that is not known."""
        if self.impossible:
            raise refused("clamped", self.impossible, f"smooth the conditionals{escape}", "impossible")
        if self.has_unique_law is False:
            raise refused("conditionals", self.finding, f"{self.hint}{escape}", "no-method")
        if self.has_unique_law is None:
            warnings.warn(ConvergenceWarning(f"conditionals: {self.message}"), stacklevel=stacklevel)


def check_ergodic(
    conditionals: DependencyConditionals,
    clamped: Mapping[str, Any] | None = None,
    *,
    scan: ScanLike = "random",
    max_states: int = 2**16,
) -> Ergodicity:
    r"""Whether pseudo-Gibbs sampling of a dependency network has one limiting law, and is ergodic.

    Networks without zero probabilities are ergodic. Otherwise a state that every other one leads to decides: if every
    variable in turn has a level that is possible whatever the variables before it leave open. Then all states are
    enumerated, up to ``max_states``, and the classes of the graph of single updates are found. A random scan is never
    periodic, because a variable that was just drawn may be drawn again and stay; a sequential scan can be. What is
    refused is what :class:`~pyro_hoim.dependency_network.PseudoGibbsChains` refuses.

    Args:
        conditionals: the network.
        clamped: variables held fixed, ``{name: code, label or codes per chain}``; every combination of values that
            occurs must have a limiting law of its own.
        scan: which variable is updated next, as in :class:`~pyro_hoim.dependency_network.PseudoGibbsChains`.
        max_states: most states that are enumerated, over all combinations of clamped values.

    References:
        Paper 5, sections 2.2 and 5; John Kemeny and Laurie Snell, Finite Markov Chains, 1960, chapters 2 and 5.

    Example:
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> copy = torch.eye(2)
        >>> both = [TableConditional(domain, "a", ["b"], copy), TableConditional(domain, "b", ["a"], copy)]
        >>> check_ergodic(DependencyConditionals(both)).message.split("; smooth")[0]
        'no single limiting law: the chain cannot go between a=0, b=0; a=1, b=1'
    """
    conditionals = checked_conditionals(conditionals)
    domain, nodes = conditionals.domain, conditionals.nodes
    fixed = checked_clamps(domain, clamped or {}, None)
    scan = checked_scan(domain, drawn_variables(domain, fixed), scan)
    # Distinct combinations of clamped codes (rows, d), -1 where a variable is free.
    codes = {i: torch.as_tensor(value).cpu().reshape(-1).numpy() for i, value in fixed.items()}
    rows = np.full((max([1, *map(len, codes.values())]), len(domain)), -1, dtype=np.int64)
    for i, values in codes.items():
        rows[:, i] = values
    rows, places = (np.unique(rows, axis=0) if len(domain) else rows), domain.indices(scan.order)
    # Without zeros every state leads to every other one.
    zeros = tuple(domain.names[i] for i in sorted(places) if nodes[i].has_zeros)
    impossible = _impossible(conditionals, rows, list(fixed), max_states)
    if not zeros:
        return Ergodicity(True, True, "positive", num_closed=1, num_transient=0, period=1, impossible=impossible)
    # Zeros: all states are looked at where they are few, else one that all others lead to is looked for.
    num_states = math.prod(domain.cardinalities[i] for i in places)
    num_moves = num_states * sum(domain.cardinalities[i] for i in places)
    if len(rows) * num_states <= max_states and num_moves <= _MAX_MOVES:
        return _enumerated(conditionals, rows, scan, zeros, impossible)
    if all(_has_common_state(conditionals, row, places) for row in rows[:max_states]) and len(rows) <= max_states:
        return Ergodicity(None, True, "common state", zeros, num_closed=1, period=1, impossible=impossible)
    return Ergodicity(None, None, "undecided", zeros, impossible=impossible)


def _graph_of(
    conditionals: DependencyConditionals, rows: NDArray[np.int64], places: Sequence[int], order: Sequence[int] | None
) -> tuple[NDArray[np.int64], Any]:
    """All states (rows x num_states, d) with some variables free, the last of them moving fastest, and their moves."""
    cards = [conditionals.domain.cardinalities[i] for i in places]
    size = math.prod(cards)
    states = np.repeat(rows, size, axis=0)
    states[states < 0] = 0
    if places:
        codes = np.stack(np.unravel_index(np.arange(size), cards), axis=-1)
        states[:, list(places)] = np.tile(codes, (len(rows), 1))
    # Whether every level of a variable is possible at every state, (num_states, levels) by variable.
    positive: list[NDArray[np.bool_]] = []
    with torch.no_grad():
        for node in (conditionals.nodes[i] for i in places):
            log_probs = update_log_probs(node, torch.as_tensor(states, device=device_of(node)))
            positive.append((log_probs > -math.inf).cpu().numpy())
    return states, move_graph(positive, cards, order)


def _enumerated(
    conditionals: DependencyConditionals, rows: NDArray[np.int64], scan: Scan, zeros: tuple[str, ...], impossible: str
) -> Ergodicity:
    domain, places = conditionals.domain, conditionals.domain.indices(scan.order)
    size, is_random = math.prod(domain.cardinalities[i] for i in places), scan.selection is not None
    closed, transient = list[dict[str, str]](), list[dict[str, str]]()
    num_closed = num_transient = 0
    period = 1
    # The random scan needs no periods, so that one graph serves all combinations of clamped values.
    for part in [rows] if is_random else rows[:, None]:
        states, graph = _graph_of(conditionals, part, places, None if is_random else range(len(places)))
        # Closed classes, transient states and periods of these combinations of clamped values.
        class_of = closed_classes(graph, len(states))
        numbers, first = np.unique(class_of, return_index=True)
        first, left = first[numbers >= 0], np.flatnonzero(class_of < 0)
        sweeps = [1 if is_random else _period(graph, int(x)) // len(places) for x in first]
        # The combination with the most classes, or the longest period, is the one that is shown.
        row_of = first // size
        number = np.bincount(row_of)
        most, worst = int(number.max()), int(number.argmax())
        if most > num_closed or (most == num_closed == 1 and max(sweeps) > period):
            closed = [_named(domain, states[x]) for x in first[row_of == worst][:_NUM_SHOWN]]
        num_closed, period = max(num_closed, most), max(period, *sweeps)
        num_transient += len(left)
        transient += [_named(domain, s) for s in states[left[:_NUM_SHOWN]]]
    is_unique = num_closed == 1 and period == 1
    return Ergodicity(
        is_unique and not num_transient,
        is_unique,
        "enumeration",
        zeros,
        num_closed=num_closed,
        closed_states=tuple(closed),
        transient_states=tuple(transient[:_NUM_SHOWN]),
        num_transient=num_transient,
        period=period,
        impossible=impossible,
    )


def _period(graph: Any, start: int) -> int:
    """Greatest common divisor of the lengths of all cycles through a state of a closed class."""
    order, parents = breadth_first_order(graph, start, directed=True, return_predecessors=True)
    # Moves within the class change the distance from the state by one but for multiples of the period.
    depth = np.full(graph.shape[0], -1, dtype=np.int64)
    depth[start] = 0
    for node in order[1:]:
        depth[node] = depth[parents[node]] + 1
    edges = graph.tocoo()
    inside = depth[edges.row] >= 0
    return int(np.gcd.reduce(depth[edges.row[inside]] + 1 - depth[edges.col[inside]]))


def _laws(node: Any, known: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Possible levels (laws, levels) under all laws that known codes (-1 unknown) leave; None where it cannot tell."""
    if isinstance(node, LeafConditional):
        leaves = node.graph.compiled.leaves_behind(node.domain.cardinalities, known=known.tolist())
        return (node.probs.detach()[sorted(leaves)] > 0).cpu().numpy()
    if isinstance(node, TableConditional):
        codes = (int(known[node.domain.index(name)]) for name in node.parents)
        rows = node.probs.detach()[tuple(slice(None) if c < 0 else c for c in codes)]
        return (rows.reshape(-1, rows.shape[-1]) > 0).cpu().numpy()
    return None if node.has_zeros else np.ones((1, node.domain[node.variable].cardinality), dtype=bool)


def _has_common_state(conditionals: DependencyConditionals, row: NDArray[np.int64], places: Sequence[int]) -> bool:
    """Whether a state is found that can be reached from every state, and kept.

    Variables are settled one after the other: one that has a level possible under all laws which the settled ones
    leave takes it. After as many sweeps as there are variables every chain may be in the state of these levels.
    """
    # Variables are settled as long as one can be.
    known, rest = row.copy(), list(places)
    while rest:
        settled = list[int]()
        for i in rest:
            laws = _laws(conditionals.nodes[i], known)
            if laws is not None and laws.all(0).any():
                known[i] = int(laws.all(0).argmax())
                settled.append(i)
        if not settled:
            return False
        rest = [i for i in rest if i not in settled]
    return True


def _impossible(
    conditionals: DependencyConditionals, rows: NDArray[np.int64], clamped: Sequence[int], max_states: int
) -> str:
    """Which clamped values the network itself, nothing clamped, gives probability zero; empty if none is known."""
    domain, nodes = conditionals.domain, conditionals.nodes
    if not clamped or not any(node.has_zeros for node in nodes):
        return ""
    # Few states: evidence is impossible where all states that have it are transient.
    size = domain.num_states
    if size <= max_states and size * sum(domain.cardinalities) <= _MAX_MOVES:
        every = domain.indices(drawn_variables(domain, {}))
        states, graph = _graph_of(conditionals, np.full((1, len(domain)), -1), every, None)
        recurrent = states[closed_classes(graph, len(states)) >= 0]
        for row in rows:
            if not (recurrent[:, list(clamped)] == row[list(clamped)]).all(-1).any():
                return f"{_shown(_named(domain, row))} has probability zero in the law of the network"
        return ""
    # Many states: only laws that exclude a value whatever the free variables are.
    doubtful = [i for i in clamped if nodes[i].has_zeros]
    for row in rows[:max_states] if doubtful else ():
        for i in doubtful:
            laws = _laws(nodes[i], row)
            if laws is not None and not laws[:, row[i]].any():
                others = {name: label for name, label in _named(domain, row).items() if name != domain.names[i]}
                label = domain.variables[i].labels[row[i]]
                given = f" given {_shown(others)}" if others else ""
                return f"{domain.names[i]}={label} has probability zero{given}, whatever the free variables are"
    return ""


def _named(domain: Domain, codes: NDArray[np.int64]) -> dict[str, str]:
    """Labels by name, without free variables (code -1)."""
    return {v.name: v.labels[int(code)] for v, code in zip(domain.variables, codes, strict=True) if code >= 0}


def _shown(state: Mapping[str, str]) -> str:
    """A state in words, cut where it is long."""
    parts = [f"{name}={label}" for name, label in state.items()]
    return ", ".join(parts[:12]) + (", ..." if len(parts) > 12 else "")


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:6])) + (", ..." if len(names) > 6 else "")
