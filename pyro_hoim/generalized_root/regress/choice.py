"""Choice of the l1 penalty of root regressions, and how stable the tuples are under resampling of the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln

from ...errors import check_fraction, check_type, check_whole, out_of_range, refused
from ..nodes.families import NodeFamily
from ._space import Penalty, checked_candidates, clique_candidates
from .fit import check_penalties, checked_family, fit_root_path
from .options import L1Rule, RootSettings, checked_settings
from .result import RootFitResult
from .rows import RootRows, RowSubset, prepare_rows

__all__ = ["L1ChoiceResult", "RootStability", "choose_l1", "held_out_scores", "root_stability"]

Term = tuple[tuple[int, int], tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class L1ChoiceResult:
    """A chosen penalty and why.

    Attributes:
        l1: the chosen penalty.
        fit: the model of all rows under it.
        rule: how it was chosen.
        l1s: penalties compared.
        scores: one per penalty: mean held-out log pseudo-likelihood, nats per row (largest is best); extended BIC of
            all nodes together, nats (smallest is best); or instability of the pair graph (largest below the limit).
        std_errors: standard error over the rows of ``held-out`` scores, else None.
        path: models of all rows under every penalty.
    """

    l1: Penalty
    fit: RootFitResult
    rule: L1Rule
    l1s: tuple[Penalty, ...]
    scores: tuple[float, ...]
    std_errors: tuple[float, ...] | None
    path: tuple[RootFitResult, ...]


@dataclass(frozen=True, eq=False)
class RootStability:
    r"""How often tuples are found in subsamples of the rows.

    Attributes:
        l1s: penalties.
        frequencies: share of the subsamples in which a tuple has a nonzero coefficient, by (key, names), one number per
            penalty; a tuple that was never found is absent.
        num_subsamples, subsample_size: subsamples and rows in each.
        mean_selected: mean number of tuples of two or more variables found under any of the penalties.
        num_tuples: tuples searched; with ``stagewise``, of sizes from 3 on the mean number of cliques of a subsample.
        instability: mean over pairs of variables of :math:`2 f (1 - f)`, f being the share of the subsamples in which
            some tuple joins the pair, one number per penalty.
    """

    l1s: tuple[Penalty, ...]
    frequencies: Mapping[Term, tuple[float, ...]]
    num_subsamples: int
    subsample_size: int
    mean_selected: float
    num_tuples: int
    instability: tuple[float, ...]

    def selected(self, threshold: float = 0.75) -> list[Term]:
        """Tuples found in at least this share of the subsamples under some penalty, most frequent first."""
        if not 0 < threshold <= 1:
            raise out_of_range("threshold", "a share above 0 and up to 1", threshold)
        best = {term: max(shares) for term, shares in self.frequencies.items()}
        return sorted((t for t, share in best.items() if share >= threshold), key=lambda t: (-best[t], t))

    def expected_false(self, threshold: float = 0.75) -> float:
        """Upper bound of the expected number of wrong tuples among :meth:`selected`, :math:`q^2 / ((2t - 1) p)`.

        It holds for thresholds t above 1/2, others are refused, where wrong tuples are exchangeable and no better than
        chance; q is :attr:`mean_selected`, p is :attr:`num_tuples` (Meinshausen and Bühlmann, 2010, theorem 1).
        """
        if not 0.5 < threshold <= 1:
            raise out_of_range("threshold", "a share above 1/2 and up to 1", threshold)
        return self.mean_selected**2 / ((2 * threshold - 1) * max(1, self.num_tuples))


def choose_l1(
    data: Any,
    l1s: Sequence[Penalty],
    family: str | NodeFamily = "poisson",
    rule: L1Rule | None = None,
    *,
    validation: Any = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> L1ChoiceResult:
    r"""Choose the penalty of :func:`~pyro_hoim.generalized_root.fit_roots` from several.

    ``held-out``: largest mean log pseudo-likelihood of the joint model on ``validation``, or on the parts left out in
    turn, refitted if ``refit`` says so; columns that are fixed in the rows learned from do not count. ``ebic``: the
    smallest sum over nodes, of their own regressions, of

    .. math:: -2 n\, \ell_s + m_s \log n + 2 \gamma \sum_{(j, \ell)} \log \binom{P_\ell}{m_{sj\ell}}

    with m nonzero coefficients out of P tuples of each size. ``stability``: the weakest penalty up to which the graph
    of pairs stays stable in subsamples of :math:`10 \sqrt n` rows (instability at most ``limit``), or the first one if
    none does.

    Args:
        data: rows, as ``fit_roots`` takes them.
        l1s: penalties in falling order.
        family: node family.
        rule: how to choose; ``L1Rule()``, which is held-out, when None.
        validation: rows to score on instead of leaving parts out.
        generator: random numbers that shuffle the rows into parts or draw the subsamples; without one, a new generator
            of seed 0.
        options: further arguments of :func:`~pyro_hoim.generalized_root.fit_root_path`.

    Raises:
        InputError: arguments out of range; whatever ``fit_root_path`` raises.

    References:
        Jiahua Chen and Zehua Chen, Extended Bayesian information criteria for model selection, 2008. Rina Foygel and
        Mathias Drton, Bayesian model choice and information criteria in sparse generalized linear models, 2011. Han
        Liu, Kathryn Roeder and Larry Wasserman, Stability approach to regularization selection, 2010.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).poisson(1.0, (200, 3))
        >>> x[:, 1] += x[:, 0]
        >>> choose_l1(x, [0.5, 0.02], rule=L1Rule("ebic"), order=2).l1
        0.02
    """
    rule = L1Rule() if rule is None else rule
    check_type(rule, L1Rule, "rule")
    rows, options = _prepared(data, family, l1s, options)
    scores: tuple[float, ...] = ()
    errors: tuple[float, ...] | None = None
    if rule.name == "held-out" and validation is None:
        scores, errors = _cross_validated(rows, l1s, rule.folds, _checked_generator(generator), options)
    elif rule.name == "stability":
        scores = root_stability(
            RowSubset(rows.domain, rows.matrix),
            l1s,
            rows.family,
            num_subsamples=rule.num_subsamples,
            share=min(0.8, 10.0 / math.sqrt(rows.num_rows)),
            generator=generator,
            **options,
        ).instability
    path = fit_root_path(RowSubset(rows.domain, rows.matrix), l1s, rows.family, **options)
    if rule.name == "ebic":
        scores = tuple(_ebic(fitted, rule.gamma) for fitted in path)
        best = int(np.argmin(scores))
    elif rule.name == "stability":
        stable = np.maximum.accumulate(scores) <= rule.limit
        best = max(0, int(stable.sum()) - 1)
    else:
        if validation is not None:
            scores, errors = held_out_scores(path, validation)
        best = int(np.argmax(scores))
    return L1ChoiceResult(l1s[best], path[best], rule, tuple(l1s), scores, errors, path)


def root_stability(
    data: Any,
    l1s: Sequence[Penalty],
    family: str | NodeFamily = "poisson",
    *,
    num_subsamples: int = 50,
    share: float = 0.5,
    generator: torch.Generator | None = None,
    **options: Any,
) -> RootStability:
    """Fit subsamples of the rows, drawn without replacement, and count how often every tuple is found.

    Args:
        data: rows, as ``fit_roots`` takes them.
        l1s: penalties in falling order.
        family: node family.
        num_subsamples: number of subsamples, from 2.
        share: share of the rows in each, above 0 and below 1.
        generator: random numbers; without one, a new generator of seed 0.
        options: further arguments of :func:`~pyro_hoim.generalized_root.fit_root_path`; a refit is left out.

    References:
        Nicolai Meinshausen and Peter Bühlmann, Stability selection, 2010.
    """
    check_whole(num_subsamples, "num_subsamples", 2)
    check_fraction(share, "share")
    rows, options = _prepared(data, family, l1s, {**options, "refit": "none"})
    generator = _checked_generator(generator)
    size = max(1, int(share * rows.num_rows))
    counts: dict[Term, NDArray[np.int64]] = {}
    width = len(rows.domain)
    joined = np.zeros((len(l1s), width, width))
    selected = searched = 0
    settings: RootSettings = options["settings"]
    staged = range(3, options["order"] + 1) if settings.stagewise else range(0)
    listed = checked_candidates(settings.candidates, rows.domain, options["order"])
    for _ in range(num_subsamples):
        index = torch.randperm(rows.num_rows, generator=generator)[:size].numpy()
        path = fit_root_path(RowSubset(rows.domain, rows.matrix[index]), l1s, rows.family, **options)
        union: set[Any] = set()
        cliques: set[tuple[int, ...]] = set()
        for step, fitted in enumerate(path):
            pairs: set[tuple[int, int]] = set()
            for key, names in fitted.structure.names:
                if key[1] > 1:
                    counts.setdefault((key, names), np.zeros(len(l1s), np.int64))[step] += 1
                    union.add((key, names))
                    positions = rows.domain.indices(names)
                    pairs.update((a, b) for i, a in enumerate(positions) for b in positions[i + 1 :])
            for a, b in pairs:
                joined[step, a, b] += 1
            for size_of in staged:
                if size_of not in listed:
                    cliques.update(map(tuple, clique_candidates(fitted.pair_graph, size_of).tolist()))
        selected += len(union)
        searched += sum(len(_roots_of(len(clique), options)) for clique in cliques)
    shares = joined / num_subsamples
    instability = (2 * shares * (1 - shares)).sum((1, 2)) / max(1, width * (width - 1) / 2)
    whole = [size for size in range(2, options["order"] + 1) if size in listed or size not in staged]
    num_tuples = round(searched / num_subsamples) + sum(
        (len(listed[size]) if size in listed else math.comb(width, size)) * len(_roots_of(size, options))
        for size in whole
    )
    return RootStability(
        tuple(l1s),
        {term: tuple((found / num_subsamples).tolist()) for term, found in counts.items()},
        num_subsamples,
        size,
        selected / num_subsamples,
        num_tuples,
        tuple(instability.tolist()),
    )


def _roots_of(size: int, options: Mapping[str, Any]) -> range:
    """Roots j that tuples of a size are searched with."""
    return range(size, (options["order"] if options.get("full", False) else size) + 1)


def _prepared(
    data: Any, family: str | NodeFamily, l1s: Sequence[Penalty], options: Mapping[str, Any]
) -> tuple[RootRows, dict[str, Any]]:
    """Checked rows, and the options of the fits."""
    check_penalties(l1s)
    for name in ("checkpoint", "resume"):
        if name in options:
            raise refused(name, "several paths are fitted here, which have no common checkpoint")
    found: dict[str, Any] = {"order": 3, **options, "settings": checked_settings(options.get("settings"))}
    check_whole(found["order"], "order")
    rows = prepare_rows(data, checked_family(family), found["order"], found.pop("names", None))
    return rows, found


def _checked_generator(generator: torch.Generator | None) -> torch.Generator:
    if generator is None:
        return torch.Generator().manual_seed(0)
    check_type(generator, torch.Generator, "generator", "a torch.Generator")
    return generator


def held_out_scores(path: Sequence[RootFitResult], validation: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean log pseudo-likelihood of rows under each of several fits of the same rows, and its standard errors.

    Columns that are fixed in the rows learned from do not count: any other value is impossible under every fit.
    """
    is_free = [name not in path[0].fixed_columns for name in path[0].domain.names]
    values = [fitted.log_pseudo_prob(validation, by_node=True).numpy()[:, is_free].sum(1) for fitted in path]
    return _means(np.stack(values))


def _means(values: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means and standard errors over rows of (penalties, n)."""
    errors = values.std(1, ddof=1) / math.sqrt(values.shape[1]) if values.shape[1] > 1 else np.full(len(values), np.nan)
    return tuple(values.mean(1).tolist()), tuple(errors.tolist())


def _cross_validated(
    rows: RootRows, l1s: Sequence[Penalty], folds: int, generator: torch.Generator, options: Mapping[str, Any]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Held-out log pseudo-likelihood of every row; columns that are fixed in some part's training rows do not count."""
    check_whole(folds, "folds", 2, rows.num_rows)
    order = torch.randperm(rows.num_rows, generator=generator).numpy()
    parts = [np.sort(part) for part in np.array_split(order, folds)]
    values = np.zeros((len(l1s), rows.num_rows, len(rows.domain)))
    is_fixed = np.zeros(len(rows.domain), dtype=bool)
    for part in parts:
        rest = np.setdiff1d(np.arange(rows.num_rows), part)
        path = fit_root_path(RowSubset(rows.domain, rows.matrix[rest]), l1s, rows.family, **options)
        is_fixed |= np.array([name in path[0].fixed_columns for name in rows.domain.names])
        held_out = RowSubset(rows.domain, rows.matrix[part])
        for step, fitted in enumerate(path):
            values[step, part] = fitted.log_pseudo_prob(held_out, by_node=True).numpy()
    return _means(values[:, :, ~is_fixed].sum(2))


def _ebic(fitted: RootFitResult, gamma: float) -> float:
    """Extended BIC of all nodes' own regressions, without the base measure's constant."""
    width, n = len(fitted.structure.domain), fitted.num_rows
    total = 0.0
    for node in fitted.nodes:
        if node.variable in fitted.fixed_columns:
            continue
        penalty = sum(fitted.l1[term.key[0]] * abs(term.coefficient) for term in node.terms)
        total += 2 * n * (node.objective - penalty) + len(node.terms) * math.log(n)
        for key in {term.key for term in node.terms}:
            found = sum(term.key == key for term in node.terms)
            most = math.comb(width - 1, key[1] - 1)
            total += 2 * gamma * float(gammaln(most + 1) - gammaln(found + 1) - gammaln(most - found + 1))
    return total
