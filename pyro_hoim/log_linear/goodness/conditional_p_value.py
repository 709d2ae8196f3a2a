r"""Conditional p-values of hierarchical models: among all tables with the margins that the model fits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...data.observations import Observations
from ...errors import out_of_reach, size_text
from ...structure.hypergraph import InteractionHypergraph
from ..fitting.design import cell_codes, cell_numbers
from .bootstrap import MIN_TABLES, bootstrap_cost, drawn_statistics
from .fibre import Fibre, listed_tables

__all__ = ["conditional_cost", "conditional_p_value", "conditional_tables"]


# Tables of a decomposable model drawn given the margins that it fits, for exact tests of that model.

_MOST_VALUES = 2**26


def conditional_cost(hypergraph: InteractionHypergraph, data: Observations) -> float:
    """Rows that are moved for one table, and cells that are read."""
    return data.total_count * len(hypergraph.junction_tree()) + hypergraph.domain.num_states / 8


def conditional_tables(
    hypergraph: InteractionHypergraph, data: Observations, cells: np.ndarray, seed: int
) -> Callable[[int], np.ndarray]:
    """Tables (cells in the mask, size) drawn given the observed margins of the cliques, by moving every row.

    IntractableError for more than 2^26 values of rows.

    References:
        Alan Agresti, A survey of exact inference for contingency tables, 1992, section 3; Steffen Lauritzen, Graphical
        Models, 1996, section 4.4.
    """
    domain = hypergraph.domain
    cards = domain.cardinalities
    if (values := int(data.total_count) * len(domain)) > _MOST_VALUES:
        problem = f"an exact test moves every row, {size_text(values, 'values')}, more than {_MOST_VALUES}"
        raise out_of_reach("p_value", problem, "use 'chi-square' or 'bootstrap'")
    rows = data.unique()  # the same tables whatever the order of the rows
    codes = np.repeat(rows.codes.numpy(), rows.counts.numpy().astype(np.int64), axis=0)
    steps: list[tuple[list[int], list[int], np.ndarray]] = []
    for node in hypergraph.junction_tree():
        separator = list(domain.indices(node.separator))
        added = [i for i in domain.indices(node.clique) if i not in separator]
        order = np.argsort(cell_numbers(codes, separator, cards), kind="stable")
        steps.append((separator, added, codes[order][:, added]))
    random = np.random.default_rng(seed)
    covered = {i for _, added, _ in steps for i in added}

    def draw(size: int) -> np.ndarray:
        tables = np.empty((int(cells.sum()), size))
        for number in range(size):
            drawn = np.zeros_like(codes)
            for i in set(range(len(cards))) - covered:
                drawn[:, i] = random.permutation(codes[:, i])
            for separator, added, dealt in steps:
                order = np.argsort(cell_numbers(drawn, separator, cards) + random.random(len(drawn)))
                drawn[order[:, None], added] = dealt
            states = cell_numbers(drawn, range(len(cards)), cards)
            tables[:, number] = np.bincount(states, minlength=len(cells))[cells]
        return tables

    return draw


_STEPS_PER_CELL = 10  # G2 forgets where it was in about one move a cell
_MIN_STEPS, _LEAST_BOUNDED = 200, 1000
_STEP = 25  # cost of a step, in cell updates of a refit
_SEARCH = 0.5  # cost of a step of sparse tables, for every cell that holds rows
_SPARSE = 0.25  # share of cells that hold rows, below which moves are found among the rows
_MOST_SPARSE = 2**31  # rows
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ConditionalPValue:
    """Shares of tables whose statistics are at least the observed ones, and how they were found.

    Attributes:
        p_value: of G2 against the larger model.
        p_value_larger: share of tables whose G2 is larger than the observed one, without ties.
        p_value_pearson: of X2; NaN beside a larger model that is not saturated.
        std_error: Monte Carlo standard error of ``p_value``, given the table that the chains leave; 0 where all tables
            are listed.
        num_tables: tables that were drawn, or 0.
        note: how, and whether the moves are known to reach all tables.
    """

    p_value: float
    p_value_larger: float
    p_value_pearson: float
    std_error: float
    num_tables: int
    note: str


def conditional_p_value(
    small: InteractionHypergraph,
    big: InteractionHypergraph | None,
    counts: np.ndarray,
    expected: np.ndarray,
    df: int,
    *,
    possible: np.ndarray | None = None,
    num_tables: int,
    seed: int,
    budget: float = math.inf,
) -> ConditionalPValue:
    r"""Conditional test of a hierarchical model against a larger one, or against the saturated model.

    .. math:: p = \sum_{n' \in F} \frac{[T(n') \ge T(n)]}{\prod_x n'_x!} \Big/ \sum_{n' \in F} \frac{1}{\prod_x n'_x!}

    The fibre F holds the tables with the margins that the small model fits, and T is G2 of the small model less that of
    the larger one. A small fibre is listed. Of others, tables are drawn by chains of moves, by the parallel method; the
    p-value is then valid whatever the number of steps, and it is conditional on the part of F that the moves connect.

    Args:
        small: the null model, hierarchical.
        big: a hierarchical model that contains it; None for the saturated one.
        counts: whole numbers (num_states,).
        expected: expected counts of the small model (num_states,), 0 where it is known that no table has rows.
        df: degrees of freedom of the test, for the accuracy of refits.
        possible: cells that are no structural zeros (num_states,), bool; None for all.
        num_tables: tables to draw.
        seed: of the chains.
        budget: most cell updates; at least 99 tables are drawn whatever it is, by shorter chains.

    References:
        Julian Besag and Peter Clifford, Generalized Monte Carlo significance tests, Biometrika 76(4), 1989; Alan
        Agresti, A survey of exact inference for contingency tables, Statistical Science 7(1), 1992, section 3.
    """
    cells = expected > 0
    codes, cards = cell_codes(small), small.domain.cardinalities
    margins = [cell_numbers(codes, small.domain.indices(edge), cards) for edge in small.maximal_edges]
    larger = None
    if big is not None:
        larger = [cell_numbers(codes[cells], big.domain.indices(edge), cards) for edge in big.maximal_edges]

    def compared(draw: Callable[[int], np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which tables, the observed one first, have as large a G2, a larger one, as large an X2."""
        statistics = drawn_statistics(
            draw, counts[cells], expected[cells], [], larger, df, num_tables=size, budget=math.inf, drawing=0
        )
        deviance, other = (values - values[0] for values in (statistics.deviance, statistics.pearson))
        slack, rough = (_ROUNDING * (1 + abs(values[0])) for values in (statistics.deviance, statistics.pearson))
        return deviance >= -slack, deviance > slack, other >= -rough

    listed = listed_tables(counts, cells, margins)
    if listed is not None:
        tables, probs = listed
        columns, done = tables[:, cells].T.astype(float), itertools.count()
        draw = lambda size: columns[:, list(itertools.islice(done, size))]  # noqa: E731
        shares = [float(probs @ which[1:]) for which in compared(draw, len(tables))]
        error, num_tables = 0.0, 0
        note = f"the p-value is over all {len(tables):,} tables with the fitted margins"
        note = note if len(tables) > 1 else "no other table has the fitted margins"
    else:
        fibre = Fibre(small, np.ones(len(cells), dtype=bool) if possible is None else possible)
        refit = bootstrap_cost(int(cells.sum()), len(larger or ()))
        num_occupied = -float(np.expm1(-expected).sum())
        is_sparse = bool(num_occupied < _SPARSE * cells.sum() and counts.sum() < _MOST_SPARSE)
        step = _STEP + is_sparse * _SEARCH * num_occupied
        steps = max(_MIN_STEPS, _STEPS_PER_CELL * int(cells.sum()))
        if budget < math.inf:
            least = min(steps, _LEAST_BOUNDED)
            steps = int(max(least, min(steps, budget / (2 * MIN_TABLES * step))))
            num_tables = int(np.clip(budget // (steps * step + refit), MIN_TABLES, num_tables))
        walked = fibre.chains(counts, steps, seed, is_sparse=is_sparse)
        shares = [
            float(which.mean())
            for which in compared(lambda size: walked.draw(size)[:, cells].T.astype(float), num_tables)
        ]
        error = math.sqrt(shares[0] * (1 - shares[0]) / num_tables)
        about = "reach all tables with the fitted margins"
        if not walked.num_moves:
            about = "found no other table with the fitted margins"
        elif not fibre.is_connected:
            about = "may not reach all tables with the fitted margins: the p-value is conditional on those they reach"
        note = f"chains of {steps:,} moves {about}"
    share, strict, pearson = shares
    return ConditionalPValue(
        min(1.0, share), strict, min(1.0, pearson) if big is None else math.nan, error, num_tables, note
    )
