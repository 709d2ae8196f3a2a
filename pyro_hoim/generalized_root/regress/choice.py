"""Choice of the l1 penalty of root regressions."""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.words import plural
from ...data.frames import FrameLike, is_frame
from ...errors import ConvergenceWarning, InputError, check_type, check_whole, conflict, out_of_range, wrong_type
from ...runs.checkpoint import checked_run
from .confirm import with_confirmed
from .fit import check_penalties, fit_root_path, warn_regressions
from .mixed import read_table
from .options import (
    FOLDS,
    ColumnChoice,
    ColumnReading,
    FamilyChoice,
    L1Rule,
    Penalty,
    RootSettings,
    checked_candidates,
    checked_families,
    checked_order,
    checked_settings,
)
from .refit import warn_refits
from .result import RootFitResult
from .rows import RootRows, prepare_rows

Scores = tuple[float, ...]
FitPath = Callable[..., Sequence[RootFitResult]]


class L1ChoiceResult(NamedTuple):
    """A chosen penalty and why.

    Attributes:
        l1: the chosen penalty.
        fit: the model of all rows under it, with its confirmed model.
        scores: one per penalty: mean held-out log pseudo-likelihood, nats per row (largest is best); extended BIC of
            all nodes together, nats (smallest is best); or instability of the pair graph (largest below the limit):
            mean over pairs of :math:`2 f (1 - f)`, with the share f of the subsamples in which a tuple joins the pair.
        std_errors: standard error over the rows of ``held-out`` scores, else None.
        path: models of all rows under every penalty.
    """

    l1: Penalty
    fit: RootFitResult
    scores: Scores
    std_errors: Scores | None
    path: tuple[RootFitResult, ...]


def choose_l1(
    data: Any,
    l1s: Sequence[Penalty],
    family: FamilyChoice = "poisson",
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

    with m nonzero free coefficients, of which each tuple of categories has several, out of P tuples of each size.
    ``stability``: the weakest penalty up to which the graph of pairs stays stable in subsamples of
    :math:`10 \sqrt n` rows (instability at most ``limit``), or else the first.

    Args:
        data: rows, as ``fit_roots`` takes them.
        l1s: penalties in falling order.
        family: node family, or one for every column.
        rule: how to choose; ``L1Rule()``, which is held-out, when None.
        validation: rows to score on instead of leaving parts out.
        generator: random numbers that shuffle the rows into parts or draw the subsamples; by default of seed 0.
        options: further arguments of :func:`~pyro_hoim.generalized_root.fit_root_path`.

    Raises:
        InputError: arguments out of range; whatever ``fit_root_path`` raises.

    Warns:
        ConvergenceWarning: as ``fit_root_path``, of the fit that is chosen and of its confirmed model.

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
    # The door; a path of its own per part, which shares no checkpoint with others.
    rule = L1Rule() if rule is None else rule
    check_type(rule, L1Rule, "rule")
    check_penalties(l1s)
    if checked_run(options.get("run")).checkpoint is not None:
        raise conflict("checkpoint", "several paths are fitted here, which have no common checkpoint")
    families = checked_families(family)
    order = options["order"] = checked_order(options.get("order"), families)
    if options.get("counts") is not None:
        raise conflict("counts", "cannot be left out part by part", "repeat the rows")
    rows = prepare_rows(data, families, order, options.pop("names", None))
    settings = checked_settings(options.get("settings"))
    options["settings"] = replace(settings, false_discovery_rate=None)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    check_type(generator, torch.Generator, "generator", "a torch.Generator")

    def fit_path(index: NDArray[np.int64], **changes: Any) -> tuple[RootFitResult, ...]:
        part, names = rows.part(index)
        return fit_root_path(part, l1s, rows.families, names=names, **{**options, **changes})

    # Rules on parts of the rows score before the path of all rows, others after it.
    scores, errors = (), None
    with comparing():
        if rule.name == "held-out" and validation is None:
            scores, errors = cross_validated_scores(rows, fit_path, generator, rule.folds)
        elif rule.name == "stability":
            scores = _instability(rows, fit_path, rule.num_subsamples, generator)
        path = fit_path(np.arange(rows.num_rows))
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
    # Only the chosen model is confirmed: tests of every penalty would take as long as their fits.
    listed = checked_candidates(settings.candidates, rows.units, order)
    chosen = with_confirmed(path[best], rows, listed, settings)
    warn_of_chosen(chosen)
    path = (*path[:best], chosen, *path[best + 1 :])
    return L1ChoiceResult(l1s[best], path[best], scores, errors, path)


@contextmanager
def comparing() -> Generator[None]:
    """Inside, nothing is said of fits that have not converged: they are scored as they are, and one is chosen."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        yield


def warn_of_chosen(fit: RootFitResult) -> None:
    """Warn of what has not converged in a fit that was chosen, or in its confirmed model."""
    warn_regressions([fit])
    warn_refits([one for one in (fit, fit.confirmed) if one is not None])


def _instability(rows: RootRows, fit_path: FitPath, num_subsamples: int, generator: torch.Generator) -> Scores:
    """Instability of the graph of pairs under each penalty, in subsamples drawn without replacement."""
    # How often each pair is in the graph of a subsample.
    size = max(1, int(min(0.8, 10.0 / math.sqrt(rows.num_rows)) * rows.num_rows))
    joined: list[Counter[tuple[str, ...]]] = []
    for _ in range(num_subsamples):
        path = fit_path(torch.randperm(rows.num_rows, generator=generator)[:size].numpy(), refit="none")
        joined = joined or [Counter() for _ in path]
        for times, fitted in zip(joined, path, strict=True):
            times.update({pair for names in fitted.sets for pair in itertools.combinations(names, 2)})
    # The variance of that indicator, averaged over pairs.
    num_pairs = max(1, math.comb(len(rows.nodes), 2))
    shares = [np.array(list(times.values())) / num_subsamples for times in joined]
    return tuple(float((2 * share * (1 - share)).sum()) / num_pairs for share in shares)


def held_out_scores(path: Sequence[RootFitResult], validation: Any) -> tuple[Scores, Scores]:
    """Mean log pseudo-likelihood of rows under each of several fits of the same rows, and its standard errors.

    Columns that are fixed in the rows learned from do not count: any other value is impossible under every fit.
    """
    is_free = [name not in path[0].fixed_columns for name in path[0].domain.names]
    values = [fitted.log_pseudo_prob(validation, by_node=True).numpy()[:, is_free].sum(1) for fitted in path]
    return _means(np.stack(values))


def _means(values: NDArray[np.float64]) -> tuple[Scores, Scores]:
    """Means and standard errors over rows of (penalties, n)."""
    errors = values.std(1, ddof=1) / math.sqrt(values.shape[1]) if values.shape[1] > 1 else np.full(len(values), np.nan)
    return tuple(values.mean(1).tolist()), tuple(errors.tolist())


def cross_validated_scores(
    rows: RootRows, fit_path: FitPath, generator: torch.Generator, folds: int = FOLDS
) -> tuple[Scores, Scores]:
    """The same of rows that are left out part by part, each under fits of the other parts.

    Columns that are fixed in some part's training rows do not count.
    """
    if rows.num_rows < folds:
        expected = f"at least {plural(folds, 'row')}, for as many parts are left out in turn to compare penalties"
        raise out_of_range("data", expected, received=rows.num_rows)
    # Parts of shuffled rows, each scored by fits of the others.
    order = torch.randperm(rows.num_rows, generator=generator).numpy()
    parts = [np.sort(part) for part in np.array_split(order, folds)]
    is_fixed = np.zeros(len(rows.domain), dtype=bool)
    values: list[NDArray[np.float64]] = []
    for part in parts:
        path = fit_path(np.setdiff1d(np.arange(rows.num_rows), part))
        is_fixed |= np.array([name in path[0].fixed_columns for name in rows.domain.names])
        held_out, _ = rows.part(part)
        values.append(np.stack([fitted.log_pseudo_prob(held_out, by_node=True).numpy() for fitted in path]))
    by_row = np.concatenate(values, 1)[:, np.argsort(np.concatenate(parts))]
    return _means(by_row[:, :, ~is_fixed].sum(2))


def _ebic(fitted: RootFitResult, gamma: float) -> float:
    """Extended BIC of all nodes' own regressions, without the base measure's constant."""
    # Twice the loss without the penalty, and what the number of free coefficients costs; a category is one node.
    width, n = len(fitted.free_families.units), fitted.num_rows
    total = 0.0
    for unit in fitted.units:
        nodes = [fitted.nodes[s] for s in unit.tolist()]
        groups = fitted.penalties(term for node in nodes for term in node.terms)
        loss = math.fsum(node.objective for node in nodes) - math.fsum(cost for _, _, cost in groups)
        total += 2 * n * loss + sum(count for _, count, _ in groups) * math.log(n)
        for (_, size), found in Counter(key for key, _, _ in groups).items():
            total += 2 * gamma * math.log(math.comb(math.comb(width - 1, size - 1), found))
    return total


# A model learned from a frame: families by column, a penalty chosen on rows held out, confirmed sets.

L1S = (0.2, 0.1, 0.05, 0.02)
"""Penalties that are compared by default."""


class RootLearnOptions(ColumnChoice, total=False):
    """Options of :func:`pyro_hoim.learn` for models with a family for every column."""

    order: int
    l1s: Sequence[Penalty]
    false_discovery_rate: float | None
    seed: int


def learn_roots(train: FrameLike, validation: FrameLike | None, options: RootLearnOptions) -> RootFitResult:
    """The refitted model of the penalty that predicts rows best, with its confirmed model and its ``columns``.

    Without validation rows five parts of the rows are left out in turn.
    """
    for name, rows in (("train", train), ("validation", validation)):
        if rows is not None and not is_frame(rows):
            raise wrong_type(name, "a data frame, whose columns say their families", rows)
    order, seed = options.get("order", 2), options.get("seed", 0)
    check_whole(order, "order")
    check_whole(seed, "seed", 0)
    # Every row as often as it was seen, for parts of the rows are left out.
    reading = ColumnReading(exclude=options.get("exclude", ()), centre=options.get("centre", True))
    try:
        table = read_table(train, options.get("families", {}), reading, None, None)
    except InputError as error:
        raise error.replace(argument="families" if error.argument == "family" else error.argument) from None
    assert table.columns is not None
    values = table.data if table.counts is None else np.repeat(table.data, table.counts.astype(np.int64), axis=0)
    settings = RootSettings(false_discovery_rate=options.get("false_discovery_rate", 0.1))
    l1s = options.get("l1s", L1S)
    check_penalties(l1s)
    choice = choose_l1(
        values,
        l1s,
        table.columns.families,
        L1Rule("ebic") if len(l1s) == 1 and validation is None else None,  # nothing to compare, nothing to leave out
        validation=None if validation is None else table.columns.encode(validation),
        generator=torch.Generator().manual_seed(seed),
        order=order,
        names=table.names,
        refit="all",
        settings=settings,
    )
    return choice.fit.with_columns(table.columns)
