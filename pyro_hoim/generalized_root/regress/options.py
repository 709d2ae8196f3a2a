"""What root regressions search: checked options, penalties, candidate tuples, and the space of features."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict, cast, get_args

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ...errors import (
    check_choice,
    check_fraction,
    check_not_negative,
    check_positive,
    check_type,
    check_whole,
    is_real,
    is_whole,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_type,
)
from ...schema import Domain
from ..nodes.columns import Families
from ..nodes.families import NodeFamily, node_family
from ..structure import Key

Candidates = Iterable[Iterable[str]] | Mapping[int, Iterable[Iterable[str]]]
Symmetrize = Literal["mean", "and", "or"]
Refit = Literal["none", "singles", "all"]
Objective = Literal["log-partition", "upper-bound"]
Stop = Literal["residual", "published"]
Penalty = float | Mapping[int, float]
FamilyChoice = str | NodeFamily | Mapping[str, str | NodeFamily] | Sequence[str | NodeFamily]


class ColumnReading(TypedDict, total=False):
    """How the columns of a data frame are read; see :func:`choose_families`."""

    exclude: Collection[str]
    centre: bool


class ColumnChoice(ColumnReading, total=False):
    """How families of the columns of a data frame are chosen; see :func:`choose_families`."""

    families: Mapping[str, str | NodeFamily]


class FrameColumns(ColumnReading, total=False):
    """What may be said of the columns of a data frame of root models; see :func:`fit_roots`."""

    interactions: str | Iterable[str | Iterable[str]]


FOLDS = 5
"""Parts of the rows that are left out in turn."""
SCANNED_SIZE = 3
_MOST_LISTED = 2 * 10**7


@dataclass(frozen=True, eq=False)
class RootSettings:
    """How root regressions are searched, solved, joined and refitted.

    Args:
        candidates: tuples that may be used, of sizes 2 to the order. Sizes of which none is given are searched whole,
            as far as size 3; a mapping from sizes to tuples may hold an empty size. Sizes from 4 on that are not given
            are listed in full where that is possible.
        stagewise: fit order 2 first, then search only the cliques of its joint model's pairs, size by size; each
            penalty of a path then starts afresh.
        symmetrize: ``mean``, ``and`` or ``or``; see :class:`~pyro_hoim.generalized_root.RootFitResult`.
        refit_share: share of the penalties that a refit of ``all`` keeps, from 0, where the optimum may lie at
            infinity, to 1. A half did well on held-out rows; less is better where rows are many.
        tolerance: largest KKT residual of a node: distance of a subgradient from zero, over all features. Where the
            mean of feature x root is beyond 10^4 (huge counts), it is in units of its 10^-4 part.
        max_iterations: most Newton steps of a node and penalty, and of a refit.
        max_work: most multiplications that the scans of all nodes may need.
        objective: what a node minimises: ``log-partition``, the exact one, or ``upper-bound``, the certified bound of
            paper 2 in its place (Poisson and truncated Poisson only), at some fifty times the cost. A bound on few
            subdomains jumps where one of them moves, so that steps may stall: take more of them, or the published
            stop. The refit and the log pseudo-likelihood stay exact.
        num_subdomains: of ``upper-bound``: number of subdomains, from 1; the paper's 10 query points are 9.
        stop: ``residual``, the tolerance; or ``published``, the rule of the authors' program: at most 30 Newton steps,
            ended by the first that would lower the objective by less than 1e-5 of itself, which is not taken. The
            status is then ``stopped``, without a warning, and the residual says how far from the optimum that is.
        jobs: nodes (of a refit: columns, or parts of the rows) at a time, as ``n_jobs`` of :class:`joblib.Parallel`;
            default one, or what a surrounding :func:`joblib.parallel_config` says, which also chooses processes or a
            Dask cluster in place of threads. The result does not depend on it.
        false_discovery_rate: share of the sets of the confirmed model that are absent from the law of the rows, on
            average at most, between 0 and 1; None for no confirmed model. See
            :func:`~pyro_hoim.generalized_root.confirm_roots`.

    Raises:
        InputError: a number out of range, or an unknown way to symmetrize.
        InputTypeError: ``refit_share`` or ``jobs`` is no number.

    Example:
        >>> from pyro_hoim import fit_roots
        >>> x = [[2, 1], [0, 0], [1, 3], [3, 2], [9, 8], [0, 1]]
        >>> fit_roots(x, order=2, settings=RootSettings(candidates={2: []})).num_interactions
        0
        >>> fit_roots(x, order=2, settings=RootSettings(candidates=[("x0", "x1")])).num_interactions
        1
    """

    candidates: Candidates | None = None
    stagewise: bool = False
    symmetrize: Symmetrize = "mean"
    refit_share: float = 0.5
    tolerance: float = 1e-6
    max_iterations: int = 500
    max_work: float = 1e13
    objective: Objective = "log-partition"
    num_subdomains: int = 9
    stop: Stop = "residual"
    jobs: int | None = None
    false_discovery_rate: float | None = 0.1

    def __post_init__(self) -> None:
        check_choice(self.symmetrize, get_args(Symmetrize), "symmetrize")
        if not is_real(self.refit_share):
            raise wrong_type("refit_share", "a number", received=repr(self.refit_share))
        if not 0 <= self.refit_share <= 1:
            raise out_of_range("refit_share", "a share from 0 to 1", self.refit_share)
        check_positive(self.tolerance, "tolerance")
        check_whole(self.max_iterations, "max_iterations")
        check_choice(self.objective, get_args(Objective), "objective")
        check_whole(self.num_subdomains, "num_subdomains")
        check_choice(self.stop, get_args(Stop), "stop")
        if self.false_discovery_rate is not None:
            check_fraction(self.false_discovery_rate, "false_discovery_rate")
        if self.jobs is not None and not is_whole(self.jobs):
            raise wrong_type("jobs", "a whole number", received=repr(self.jobs))
        if self.jobs == 0:
            raise out_of_range("jobs", "a number of nodes at a time, or a negative one as joblib reads it", 0)


@dataclass(frozen=True)
class L1Rule:
    """How a penalty is chosen; see :func:`~pyro_hoim.generalized_root.choose_l1`.

    Args:
        name: ``held-out``, ``ebic`` or ``stability``.
        folds: of ``held-out``: number of parts, each left out in turn.
        gamma: of ``ebic``: weight of the extended part, from 0 (plain BIC) to 1.
        num_subsamples: of ``stability``.
        limit: of ``stability``: largest instability, above 0 and below 1/2.

    Raises:
        InputError: an unknown name, or a number out of range.

    Example:
        >>> try:
        ...     L1Rule("ebic", gamma=2.0)
        ... except ValueError as error:
        ...     print(error)
        gamma: expected a number from 0 to 1, received 2.0
    """

    name: Literal["held-out", "ebic", "stability"] = "held-out"
    folds: int = FOLDS
    gamma: float = 0.5
    num_subsamples: int = 20
    limit: float = 0.05

    def __post_init__(self) -> None:
        check_choice(self.name, ("held-out", "ebic", "stability"), "rule")
        check_whole(self.folds, "folds", 2)
        if not 0 <= self.gamma <= 1:
            raise out_of_range("gamma", "a number from 0 to 1", self.gamma)
        check_whole(self.num_subsamples, "num_subsamples", 2)
        if not 0 < self.limit < 0.5:
            raise out_of_range("limit", "an instability above 0 and below 1/2", self.limit)


def checked_settings(settings: RootSettings | None) -> RootSettings:
    """The settings, or those by default."""
    if settings is None:
        return RootSettings()
    check_type(settings, RootSettings, "settings")
    return settings


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """Keys (j, l) by l, then j, the penalty of each, and tuples (m, l) of the sizes that are not searched whole."""

    keys: tuple[Key, ...]
    l1: tuple[float, ...]
    listed: Mapping[int, NDArray[np.int64]]
    _others: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict, repr=False)

    @property
    def width(self) -> int:
        """Most other variables of one feature, at least 1."""
        return max(1, *(size - 1 for _, size in self.keys))

    def prepare(self, num_variables: int) -> None:
        """Lay the listed tuples out by node; to be called before the space is shared between threads."""
        # Every tuple once for each of its members, sorted by node.
        for size, tuples in self.listed.items():
            nodes = tuples.reshape(-1)
            order = np.argsort(nodes, kind="stable")
            starts = np.searchsorted(nodes[order], np.arange(num_variables + 1)).astype(np.int64)
            repeated = tuples[order // size]
            others = repeated[repeated != nodes[order][:, None]].reshape(-1, size - 1)
            self._others[size] = (starts, np.ascontiguousarray(others))

    def others(self, size: int, node: int) -> NDArray[np.int64] | None:
        """The other variables of a node's listed tuples (m, size - 1), or None where all are searched."""
        if size not in self.listed:
            return None
        starts, others = self._others[size]
        return others[starts[node] : starts[node + 1]]

    def with_singles(self, roots: Iterable[int], has_mean: bool) -> SearchSpace:
        """The same features of sets, of a column's own those of some roots, and a mean (2, 1) without a penalty."""
        pairs = dict(zip(self.keys, self.l1, strict=True))
        pairs = {key: penalty for key, penalty in pairs.items() if key[1] > 1 or key[0] in roots}
        if has_mean:
            pairs[2, 1] = 0.0
        keys = sorted(pairs, key=lambda key: (key[1], key[0]))
        return replace(self, keys=tuple(keys), l1=tuple(pairs[key] for key in keys))

    def with_l1(self, l1: Mapping[int, float]) -> SearchSpace:
        """The same features under other penalties of the root orders."""
        return replace(self, l1=_key_penalties(self.keys, l1))


def search_space(
    num_variables: int, order: int, l1: Mapping[int, float], full: bool, listed: Mapping[int, NDArray[np.int64]]
) -> SearchSpace:
    """Search space up to some order; sizes beyond 3 that are not listed must have few enough tuples to be."""
    # Keys by size, then by root.
    keys = sorted(
        ((j, size) for j in range(1, order + 1) for size in (range(1, j + 1) if full else (j,))),
        key=lambda key: (key[1], key[0]),
    )
    # Refuse before anything is listed, so that no memory is taken in vain.
    lists = dict(listed)
    for size in range(SCANNED_SIZE + 1, order + 1):
        if size in lists:
            continue
        count = math.comb(num_variables, size)
        if count > _MOST_LISTED:
            needed = size_text(count * size * 8, "bytes")
            raise out_of_reach(
                "order",
                f"{size_text(count, 'sets')} of {size} variables would be searched, which needs {needed} for their "
                f"list alone; the limit is {_MOST_LISTED} sets",
                f"give candidates={{{size}: [...]}}, or pass stagewise=True to search the cliques of the pairs only",
            )
    for size in range(SCANNED_SIZE + 1, order + 1):
        if size in lists:
            continue
        count = math.comb(num_variables, size)
        combinations = itertools.chain.from_iterable(itertools.combinations(range(num_variables), size))
        lists[size] = np.fromiter(combinations, np.int64, count * size).reshape(count, size)
    lists = {size: tuples for size, tuples in lists.items() if 2 <= size <= order}
    space = SearchSpace(tuple(keys), _key_penalties(keys, l1), lists)
    space.prepare(num_variables)
    return space


def _key_penalties(keys: Iterable[Key], l1: Mapping[int, float]) -> tuple[float, ...]:
    return tuple(0.0 if key == (1, 1) else l1[key[0]] for key in keys)


def checked_l1(l1: Any, order: int, argument: str = "l1") -> dict[int, float]:
    """Penalty of each root order from 2 on."""
    # One penalty for each root order, or one for all.
    if isinstance(l1, Mapping):
        given = cast("Mapping[Any, Any]", l1)
        wrong = [j for j in given if not is_whole(j) or not 2 <= j <= order]
        if wrong:
            raise out_of_range(argument, f"root orders from 2 to {order} as keys", wrong[0])
        missing = [j for j in range(2, order + 1) if j not in given]
        if missing:
            problem = f"no penalty for root order {missing[0]}"
            raise refused(argument, problem, f"give one for each of 2 to {order}", code="missing-part")
        for j in range(2, order + 1):
            check_not_negative(given[j], f"{argument}[{j}]")
        return {j: float(given[j]) for j in range(2, order + 1)}
    check_not_negative(l1, argument)
    return dict.fromkeys(range(2, order + 1), float(l1))


def checked_candidates(candidates: Any, domain: Domain, order: int) -> dict[int, NDArray[np.int64]]:
    """Positions (m, size), sorted and distinct, of the tuples given for each size."""
    if candidates is None:
        return {}
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise wrong_type("candidates", "tuples of variable names", received=repr(candidates))
    # By size: as a mapping says, else as each tuple is.
    groups: dict[int, set[tuple[int, ...]]] = {}
    by_size = cast("Mapping[Any, Iterable[Any]]", candidates if isinstance(candidates, Mapping) else {None: candidates})
    for size, tuples in by_size.items():
        if size is not None:
            if not is_whole(size) or not 2 <= size <= order:
                raise out_of_range("candidates", f"sizes from 2 to {order} as keys", size)
            groups[size] = set()
        for names in tuples:
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise wrong_type("candidates", "a tuple of variable names", received=repr(names))
            positions = tuple(sorted(domain.indices(cast("Iterable[str]", names))))
            if not 2 <= len(positions) <= order:
                shown = tuple(domain.names[i] for i in positions)
                raise out_of_range("candidates", f"2 to {order} variables in a tuple (the order)", received=shown)
            if size not in (None, len(positions)):
                expected, shown = f"tuples of {size} variables", tuple(domain.names[i] for i in positions)
                raise unexpected(f"candidates[{size}]", expected, received=shown, code="wrong-shape")
            groups.setdefault(len(positions), set()).add(positions)
    return {size: np.array(sorted(sets), dtype=np.int64).reshape(-1, size) for size, sets in groups.items()}


def clique_candidates(pairs: NDArray[np.int64], size: int, limit: int = _MOST_LISTED) -> NDArray[np.int64]:
    """All cliques of some size in a graph of pairs (m, 2), as sorted rows (count, size)."""
    # Cliques come by size.
    graph: Any = nx.Graph()
    graph.add_edges_from(pairs.tolist())
    cliques: list[tuple[int, ...]] = []
    for clique in nx.enumerate_all_cliques(graph):  # by size
        if len(clique) > size:
            break
        if len(clique) == size:
            cliques.append(tuple(sorted(clique)))
            if len(cliques) > limit:
                problem = f"more than {limit} cliques of {size} variables in the graph of {len(pairs)} pairs"
                raise out_of_reach("stagewise", problem, "raise l1 or give candidates")
    return np.array(sorted(cliques), dtype=np.int64).reshape(-1, size)


def checked_families(family: Any) -> Families:
    """A node family or one by its name; or one for every column, by name or in their order."""
    check_type(
        family, str | NodeFamily | Mapping | Sequence, "family", "a name or a node family, or one for every column"
    )
    if isinstance(family, str | NodeFamily):
        return _checked_family(family, "family")
    if isinstance(family, Mapping):
        named = cast("Mapping[str, Any]", family)
        return {name: _checked_family(one, f"family of {name!r}") for name, one in named.items()}
    return [_checked_family(one, f"family[{i}]") for i, one in enumerate(cast("Sequence[Any]", family))]


def checked_order(order: int | None, families: Families) -> int:
    """The largest root: as asked, or 3, and 2 where columns have several families."""
    if order is not None:
        return check_whole(order, "order")
    several = families.values() if isinstance(families, Mapping) else families
    return 3 if isinstance(several, NodeFamily) or len(set(several)) < 2 else 2


def _checked_family(family: Any, argument: str) -> NodeFamily:
    check_type(family, str | NodeFamily, argument, "a name or a node family")
    return node_family(family) if isinstance(family, str) else family
