"""Log odds ratios with their errors, of any family: what a file keeps of them, and the table of a level."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from ..core.words import plural, shorten
from ..data.observations import Observations
from ..schema import Domain

STORED_LEVEL = 0.95
"""Coverage of the limits that a model file keeps."""
INTERVALS = "intervals"
"""A note that begins so gets their level before it."""
_FIGURES = ("estimate", "std_error", "limit", "p_value")
_NONE = "The model has no interactions, so there is no odds ratio."
_MOST_PAIRS, _MOST_ROWS = 100, 2000
_NAMED, _WIDTH = 3, 80  # contrasts in a note, and characters of one
_ALONE = "each odds ratio compares a level with the first one, of two columns alone, whatever the others are"


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Log odds ratios of interactions.

    Attributes:
        rows: ``term``, ``levels`` (words), ``estimate`` (infinite where its sign is certain, NaN where it is not
            identified), ``std_error``, and of infinite ones the finite ``limit`` of an interval and ``p_value``; of
            models with structural zeros also ``exists``, False for those that compare declared combinations; of
            penalised estimates perhaps ``centre``, which the interval is around.
        level: coverage of the intervals that the limits belong to.
        notes: what the numbers are.
        has_errors: whether there are standard errors.
        has_tests: whether these are tests, too.
        is_crude: whether they are of two columns alone, which other columns may explain.
        num_searched: contrasts among which these were chosen in the same rows, all counted by adjusted p-values; 0
            where they were given.
    """

    rows: pd.DataFrame
    level: float
    notes: tuple[str, ...]
    has_errors: bool
    has_tests: bool
    is_crude: bool = False
    num_searched: int = 0

    @property
    def exists(self) -> np.ndarray:
        """Which of them compare possible combinations alone, booleans (k,)."""
        return (
            self.rows["exists"].to_numpy(dtype=bool) if "exists" in self.rows else np.ones(len(self.rows), dtype=bool)
        )

    def to_json(self) -> dict[str, Any]:
        """What a model file keeps, inverse of :meth:`from_json`."""
        names = ("has_errors", "has_tests", "is_crude", "num_searched")
        flags = {name: getattr(self, name) for name in names}
        return {"level": self.level, "notes": list(self.notes), **flags, "rows": rows_to_json(self.rows, _FIGURES)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Contrasts:
        """Contrasts as a model file keeps them."""
        flags = value["has_errors"], value["has_tests"], value.get("is_crude", False), value.get("num_searched", 0)
        return cls(rows_from_json(value["rows"], _FIGURES), float(value["level"]), tuple(value["notes"]), *flags)


def rows_to_json(rows: pd.DataFrame, figures: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of terms and levels with figures as a model file keeps them, inverse of :func:`rows_from_json`."""
    records = list[dict[str, Any]]()
    for row in rows.to_dict("records"):
        sign = int(np.sign(row["estimate"])) if math.isinf(row["estimate"]) else 0
        known = {name: row[name] if math.isfinite(row[name]) else None for name in figures}
        known |= {"exists": bool(row["exists"])} if "exists" in row else {}
        records.append({"term": row["term"], "levels": row["levels"], "sign": sign, **known})
    return records


def rows_from_json(records: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> pd.DataFrame:
    """Rows as a model file keeps them; NaN where a figure is not finite, and infinite estimates of their sign."""
    rows = contrast_frame([row["term"] for row in records], [row["levels"] for row in records])
    for name in figures:
        rows[name] = np.array([math.nan if row[name] is None else row[name] for row in records], dtype=float)
    signs = np.array([row["sign"] for row in records], dtype=float)
    rows["estimate"] = np.where(signs == 0, rows["estimate"], np.copysign(math.inf, signs))
    if any("exists" in row for row in records):
        rows["exists"] = [row.get("exists", True) for row in records]
    return rows


def contrast_frame(terms: Sequence[str], levels: Sequence[str]) -> pd.DataFrame:
    """Rows of terms and levels without a figure."""
    return pd.DataFrame({"term": list(terms), "levels": list(levels)}, dtype=object)


def odds_ratios_table(contrasts: Contrasts, level: float = STORED_LEVEL) -> pd.DataFrame:
    """Odds ratios with intervals, strongest first: by the end of the interval that is nearest to 1, then by size.

    A large odds ratio that few rows support then stands below a smaller one that is certain.

    Args:
        contrasts: their logarithms.
        level: coverage of the intervals.

    Returns:
        ``term``, ``levels``, ``odds_ratio``, ``lower`` and ``upper``, NaN without errors, and where there are tests
        ``p_value`` and ``p_value_adjusted``, over all rows. ``attrs["absent"]``, where there are such, lists term and
        levels of those that compare what is declared impossible, and do not exist.
    """
    rows, notes = contrasts.rows, with_level(contrasts.notes, level)
    estimate = rows["estimate"].to_numpy(dtype=float)
    table = contrast_frame(rows["term"].tolist(), rows["levels"].tolist())
    if not len(rows):
        table.attrs = {"notes": [_NONE], "level": level}
        return table.assign(**{name: pd.Series(dtype=float) for name in ("odds_ratio", "lower", "upper")})
    low, high = limits_of(contrasts, level)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        table["odds_ratio"] = np.exp(estimate)
        table["lower"], table["upper"] = np.exp(low), np.exp(high)
        if contrasts.has_errors and contrasts.has_tests:
            wald = 2 * ndtr(-np.abs(estimate / rows["std_error"].to_numpy(dtype=float)))
            table["p_value"] = np.where(np.isfinite(estimate), wald, rows["p_value"])
            among = "all pairs of columns" if contrasts.num_searched else "all rows"
            notes.append(f"adjusted p-values by Benjamini and Hochberg, over {among}")
            table["p_value_adjusted"] = step_up(table["p_value"].to_numpy(), contrasts.num_searched)
    # What does not exist, is infinite or not identified is said.
    is_infinite, exists = np.isinf(estimate), contrasts.exists
    absent = [(rows["term"].iloc[row], rows["levels"].iloc[row]) for row in np.flatnonzero(~exists)]
    notes += [do_not_exist([levels for _, levels in absent], "odds ratio")] if absent else []
    if lost := int(np.isnan(estimate[exists]).sum()):
        them = "it" if lost == 1 else "them"
        notes.append(f"{plural(lost, 'odds ratio is', 'odds ratios are')} not identified: no row tells of {them}")
    if num := int(is_infinite.sum()):
        words = f"{plural(num, 'odds ratio is', 'odds ratios are')} 0 or infinite, for the rows lack combinations"
        notes.append(words if contrasts.is_crude else f"{words}; a prior makes {'it' if num == 1 else 'them'} finite")
        missing = int(np.isnan(np.where(estimate > 0, low, high)[is_infinite]).sum())
        if contrasts.has_errors and missing:
            other = f"; a model file keeps those of {contrasts.level:.0%}" if level != contrasts.level else ""
            notes.append(f"{plural(missing, 'finite limit was', 'finite limits were')} not computed{other}")
    table = table.iloc[strongest_first(estimate, low, high)].reset_index(drop=True)
    table.attrs = {"notes": notes, "level": level, "hidden": ["term"]}
    table.attrs |= {"is_crude": True, "is_searched": contrasts.num_searched > 0} if contrasts.is_crude else {}
    table.attrs |= {"absent": absent} if absent else {}
    return table


def do_not_exist(levels: Sequence[str], what: str) -> str:
    """A note on odds ratios or coefficients of these levels, which compare what is declared impossible."""
    shown = "; ".join(shorten(words, _WIDTH) for words in levels[:_NAMED])
    more = f"; and {plural(len(levels) - _NAMED, 'other')}" if len(levels) > _NAMED else ""
    verb, compare = ("does", "it compares") if len(levels) == 1 else ("do", "they compare")
    return (
        f"{plural(len(levels), what)} {verb} not exist, because {compare} combinations that are declared impossible: "
        f"{shown}{more}"
    )


def step_up(p_values: np.ndarray, least: int = 0, price: float = 1.0) -> np.ndarray:
    """P-values (m,), times ``price``, adjusted by the step-up procedure over at least so many tests; NaN do not count.

    References:
        Yoav Benjamini and Yosef Hochberg, Controlling the false discovery rate, 1995.
    """
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    steps = p_values[order] * (max(len(known), least) * price) / np.arange(1, len(known) + 1)
    adjusted = np.full(len(p_values), math.nan)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(steps[::-1])[::-1])
    return adjusted


def with_level(notes: Iterable[str], level: float) -> list[str]:
    """Notes with the level of the intervals that one of them begins with."""
    return [f"{level:.0%} {note}" if note.startswith(INTERVALS) else note for note in notes]


def limits_of(contrasts: Contrasts, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the intervals of the log odds ratios; NaN without an error. Those around a centre reach the estimate."""
    estimate, error = (contrasts.rows[name].to_numpy(dtype=float) for name in ("estimate", "std_error"))
    width = float(ndtri((1 + level) / 2)) * error
    limit = contrasts.rows["limit"].to_numpy(dtype=float) if math.isclose(level, contrasts.level) else math.nan
    rises, falls = np.isposinf(estimate), np.isneginf(estimate)
    centre = contrasts.rows["centre"].to_numpy(dtype=float) if "centre" in contrasts.rows else estimate
    low = np.where(rises, limit, np.where(falls, estimate, np.minimum(centre - width, estimate)))
    high = np.where(falls, limit, np.where(rises, estimate, np.maximum(centre + width, estimate)))
    return (low, high) if contrasts.has_errors else (np.full_like(low, math.nan), np.full_like(low, math.nan))


def strongest_first(estimate: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Order of log odds ratios: by the end of the interval that is nearest to 0, then by size; absent ones last."""
    is_clear = (low > 0) | (high < 0)
    nearest = np.where(is_clear, np.fmin(np.abs(low), np.abs(high)), 0.0)
    size = np.where(np.isnan(estimate), -1.0, np.abs(estimate))
    return np.lexsort((-size, -nearest))


def pair_contrasts(
    domain: Domain,
    pairs: Iterable[tuple[str, str]],
    count: Callable[[int, int], np.ndarray],
    *,
    is_searched: bool = False,
) -> Contrasts:
    """Log odds ratios of pairs of columns by themselves, for families whose parameters are none.

    Their errors are Woolf's, and their tests Wald's. A pair with an empty cell has an odds ratio of 0 or infinity,
    without limits.

    Args:
        domain: of the columns.
        pairs: names of two columns, the most important first; the first hundred are looked at, and fewer where these
            have more than 2,000 odds ratios.
        count: counts of the table of two columns, which are named by their indices in order.
        is_searched: whether the pairs were chosen in these rows, so that p-values are adjusted for the contrasts of all
            pairs of columns.
    """
    unique = list(dict.fromkeys(tuple(sorted(map(domain.index, pair))) for pair in pairs))
    terms, levels, figures = list[str](), list[str](), list[tuple[float, float]]()
    num_pairs, variables = 0, list(domain)
    for i, j in unique[:_MOST_PAIRS]:
        if len(terms) >= _MOST_ROWS:
            break
        num_pairs += 1
        (a, of_a), (b, of_b) = ((variables[k].name, variables[k].labels) for k in (i, j))
        counts = count(i, j)
        for x, y in itertools.product(range(1, len(of_a)), range(1, len(of_b))):
            terms.append(f"{a}:{b}")
            levels.append(f"{a}={of_a[x]} vs {of_a[0]}, {b}={of_b[y]} vs {of_b[0]}")
            cells = counts[[0, x, 0, x], [0, y, y, 0]]
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.log(cells)
                error = float(np.sqrt((1 / cells).sum())) if (cells > 0).all() else math.nan
                figures.append((float(logs[:2].sum() - logs[2:].sum()), error))
    estimate, std_error = np.array(figures, dtype=float).reshape(-1, 2).T
    rows = contrast_frame(terms, levels).assign(
        estimate=estimate, std_error=std_error, limit=math.nan, p_value=math.nan
    )
    notes = [_ALONE, f"{INTERVALS} and Wald tests by Woolf's standard errors"]
    if left_out := len(unique) - num_pairs:
        notes.append(f"of the {plural(num_pairs, 'strongest pair')}; {left_out:,} more have none here")
    free = np.array(domain.cardinalities) - 1
    num_all = (int(free.sum()) ** 2 - int((free**2).sum())) // 2
    num_searched = max(num_all, len(terms)) if is_searched else 0
    return Contrasts(rows, STORED_LEVEL, tuple(notes), True, True, is_crude=True, num_searched=num_searched)


def pair_odds_ratios(
    rows: Observations, pairs: Iterable[tuple[str, str]], *, is_searched: bool = False
) -> pd.DataFrame:
    """Odds ratios of pairs of columns by themselves in some rows, as :func:`pair_contrasts`, the strongest first.

    Weights count with their effective number of rows.

    Args:
        rows: rows of labels.
        pairs: names of two columns, the most important first.
        is_searched: as of :func:`pair_contrasts`.

    Returns:
        The columns of ``odds_ratios()``.

    Example:
        >>> domain = Domain.from_labels({"smoke": ["n", "y"], "ill": ["n", "y"]})
        >>> table = Observations.from_table(domain, [[30, 10], [20, 40]])
        >>> pair_odds_ratios(table, [("smoke", "ill")]).round(2).to_dict("records")[0]["lower"]
        2.45
    """
    codes, weights = rows.narrow.numpy(), rows.counts.numpy() * (rows.effective_count / rows.total_count)

    sizes = rows.domain.cardinalities

    def count(i: int, j: int) -> np.ndarray:
        return table_of_two(codes[:, i], codes[:, j], weights, (sizes[i], sizes[j]))

    return odds_ratios_table(pair_contrasts(rows.domain, pairs, count, is_searched=is_searched))


def table_of_two(first: np.ndarray, second: np.ndarray, weights: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Counts (shape) of the rows (N,) that have a code in both columns; other numbers stand for missing cells."""
    is_known = (first >= 0) & (first < shape[0]) & (second >= 0) & (second < shape[1])
    cells = first[is_known].astype(np.int64) * shape[1] + second[is_known]
    return np.bincount(cells, weights[is_known], shape[0] * shape[1]).reshape(shape)
