"""One study of one table of counts with a generalized root model: what was learned, beside simpler laws."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch

from ...core.partition import LogPartition
from ...core.scores import PARTS, Scores, StudyRecord, check_part_names, mean_gain
from ...data.counts import CountTable
from ...errors import conflict, is_real, none_received, other_domain, refused
from ...schema import Domain
from ..file import RootFile, save_roots
from ..nodes.families import NodeFamily
from ..regress.choice import held_out_scores
from ..regress.confirm import with_confirmed
from ..regress.fit import fit_root_path
from ..regress.options import RootSettings
from ..regress.result import RootFitResult, RootTerm
from .baselines import BASELINES, IndependentLaw, fit_independent
from .scores import RootModel, exact_log_partition, root_scores

__all__ = [
    "AUTO_L1",
    "PathStep",
    "RootAnalysis",
    "RootPart",
    "analyse_roots",
    "standardise_term",
]

AUTO_L1 = (0.1, 0.05, 0.02, 0.01, 0.005)
"""Penalties that are tried where none is given."""

PAIRWISE = "pairwise"
"""Name of the baseline of order 2 (the square root graphical model)."""

_LEARN = partial(fit_root_path, refit="all", settings=RootSettings(false_discovery_rate=None))


@dataclass(frozen=True)
class PathStep:
    """One penalty that was tried.

    Attributes:
        l1: the penalty, nats a row.
        num_terms: terms of two and more variables.
        train: pseudo-NLL of the training rows, nats a row.
        validation: of the validation rows, over the columns that are not fixed in the training rows; None without any.
        kkt_residual: largest of all nodes.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> table = CountTable.from_matrix([[0, 1], [2, 2], [5, 4], [0, 0], [1, 1]], ["a", "b"])
        >>> analysis = analyse_roots({"train": table, "validation": table}, PoissonFamily(), order=2, l1=[5.0, 0.05])
        >>> [(step.l1, step.num_terms) for step in analysis.path], analysis.l1
        ([(5.0, 0), (0.05, 1)], 0.05)
    """

    l1: float
    num_terms: int
    train: float
    validation: float | None
    kkt_residual: float


@dataclass(frozen=True, eq=False)
class RootPart:
    """One part of the rows.

    Attributes:
        scores: of the model.
        baselines: of simpler laws by name, the independent member of the family first.
        gain_std_error: standard error of ``gain`` over rows, of paired differences; None if infinite, and for one row.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> table = CountTable.from_matrix([[0, 1], [2, 2], [5, 4], [0, 0], [1, 1]], ["a", "b"])
        >>> part = analyse_roots({"train": table}, PoissonFamily(), order=2).parts["train"]
        >>> part.scores.rows, part.gain > 0  # nats a row above independent columns
        (5, True)
    """

    scores: Scores
    baselines: Mapping[str, Scores]
    gain_std_error: float | None

    @property
    def independent(self) -> Scores:
        """Scores of the family's independent member."""
        return next(iter(self.baselines.values()))

    @property
    def gain(self) -> float:
        """Pseudo-NLL of the independent member less that of the model, nats a row."""
        return self.independent.pseudo_nll - self.scores.pseudo_nll


@dataclass(frozen=True, eq=False, kw_only=True)
class RootAnalysis(StudyRecord[RootPart]):
    """Everything that a report of a generalized root model shows, with the attributes of every study.

    Attributes:
        fit: the model that was kept.
        path: all penalties that were tried, in the order tried.
        pairwise: the same with pairs only, as baseline; None where the order is at most 2.
        log_partition: of the model where it is exact, else None.
        no_log_partition: why it is None.
        scales: of real numbers, the standard deviation of every column among the training rows; else empty.
        independent: the member of the family without interactions, fitted to the training rows.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> table = CountTable.from_matrix([[0, 1], [2, 2], [5, 4], [0, 0], [1, 1]], ["a", "b"])
        >>> analysis = analyse_roots({"train": table}, PoissonFamily(), order=2)
        >>> list(analysis.parts["train"].baselines), analysis.l1, analysis.log_partition.method
        (['poisson', 'negative-binomial'], 0.01, 'enumeration')
    """

    fit: RootFitResult
    path: tuple[PathStep, ...]
    pairwise: RootFitResult | None
    log_partition: LogPartition | None
    no_log_partition: str
    scales: Mapping[str, float]
    independent: IndependentLaw

    @property
    def domain(self) -> Domain:
        """All columns."""
        return self.fit.domain

    @property
    def l1(self) -> float | None:
        """The penalty that was kept; None for independent variables."""
        return next(iter(self.fit.l1.values()), None)

    def comparison_records(self) -> list[dict[str, Any]]:
        """One record a law and part: ``model``, ``part``, ``rows``, ``pseudo_nll``, ``std_error``, ``gain``."""
        records: list[dict[str, Any]] = []
        for name, part in self.held.items():
            for model, scores in {**part.baselines, f"grm order {self.fit.order}": part.scores}.items():
                records.append(
                    {
                        "model": model,
                        "part": name,
                        "rows": scores.rows,
                        "pseudo_nll": scores.pseudo_nll,
                        "std_error": scores.pseudo_nll_std_error,
                        "gain": part.independent.pseudo_nll - scores.pseudo_nll,
                    }
                )
        return records

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file, in a folder that exists; it also holds the columns that are no part of the model."""
        fit = self.fit
        info = {
            "data": self.title,
            "rows": fit.num_rows,
            "columns": list(fit.domain.names),
            "fixed_columns": dict(fit.fixed_columns),
            "l1": {str(root): value for root, value in fit.l1.items()},
            "symmetrize": fit.symmetrize,
            "refit": "none" if fit.refit is None else fit.refit.method,
            "is_full": fit.is_full,
            "scales": dict(self.scales),
            "seed": self.seed,
        }
        save_roots(path, RootFile(fit.structure, fit.psi, fit.family, info, self.independent.tensors()))


def standardise_term(term: RootTerm, scales: Mapping[str, float]) -> RootTerm:
    r"""A term with the coefficient that it had were every column divided by its standard deviation.

    .. math:: \psi \prod_{s} \sigma_s^{2 / j}

    for the j-th root of the product of squares, the statistics of reals; without scales, as of counts, unchanged.

    Example:
        >>> standardise_term(RootTerm((2, 2), ("a", "b"), 0.5), {"a": 2.0, "b": 3.0}).coefficient  # 0.5 * 2 * 3
        3.0
    """
    if not scales:
        return term
    factor = math.prod(scales[name] ** (2 / term.key[0]) for name in term.names)
    return replace(term, coefficient=term.coefficient * factor)


def analyse_roots(
    parts: Mapping[str, CountTable],
    family: NodeFamily,
    *,
    order: int = 3,
    l1: float | Sequence[float] = 0.01,
    pairwise: bool = True,
    false_discovery_rate: float | None = 0.1,
    learn: Callable[..., Sequence[RootFitResult]] = _LEARN,
    seed: int = 0,
    title: str = "data",
    about: Sequence[str] = (),
) -> RootAnalysis:
    """Learn a generalized root model from training rows and score it on all parts, beside simpler laws.

    These are independent columns by maximum likelihood and, from order 3 on, the model with pairs only.

    Args:
        parts: rows of ``train`` and, where there are any, ``validation`` and ``test``; only the first are learned from.
        family: node family.
        order: largest root.
        l1: penalty, or several: the best pseudo-likelihood of the validation rows is kept, of equals the largest.
        pairwise: also learn the model with pairs only.
        false_discovery_rate: of the sets that all training rows confirm, the confirmed model of ``fit``; None for none.
        learn: learns the training rows, called as ``learn(rows, penalties, family, order=...)``, such as
            :func:`~pyro_hoim.generalized_root.fit_root_path` with further arguments by :func:`functools.partial`.
        seed: noted in the model file; learning is deterministic.
        title: of the data.
        about: sentences on the data.

    Raises:
        InputError: no training rows, an unknown part, other columns, several penalties but no validation rows.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> table = CountTable.from_matrix([[0, 1], [2, 2], [5, 4], [0, 0], [1, 1]], ["a", "b"])
        >>> analyse_roots({"train": table}, PoissonFamily(), order=2).fit.num_interactions
        1
    """
    penalties = [float(l1)] if is_real(l1) else list(cast("Sequence[float]", l1))
    check_part_names(parts)
    with_rows = {name: rows for name, rows in parts.items() if rows.num_rows}
    if "train" not in with_rows:
        raise none_received("parts", "rows of 'train'")
    train, validation = with_rows["train"], with_rows.get("validation")
    for name, rows in parts.items():
        if rows.domain != train.domain:
            raise other_domain(f"parts[{name!r}]", "the columns of the training rows")
    if not penalties:
        raise none_received("l1", "at least one penalty")
    if len(penalties) > 1 and validation is None:
        raise conflict("l1", "a choice among several penalties needs validation rows, received none")
    begin = time.perf_counter()

    def learned(root: int) -> tuple[RootFitResult, tuple[PathStep, ...]]:
        return _chosen(learn(train, penalties, family, order=root), penalties, train, validation)

    fit, path = learned(order)
    settings = RootSettings(false_discovery_rate=false_discovery_rate)
    fit = with_confirmed(fit, fit.rows(train, fit.order), {}, settings)
    learning = time.perf_counter() - begin
    independent = {kind: fit_independent(train, kind, family) for kind in BASELINES[family.name]}
    laws: dict[str, IndependentLaw | RootFitResult] = {**independent}
    pairs = learned(2)[0] if pairwise and order > 2 else None
    if pairs is not None:
        laws[PAIRWISE] = pairs
    baselines = time.perf_counter() - begin - learning
    model = RootModel.from_fit(fit)
    log_partition, reason = exact_log_partition(model.energy)
    scored = {
        name: _part(fit, model, log_partition, laws, with_rows[name]) if name in with_rows else None for name in PARTS
    }
    scoring = time.perf_counter() - begin - learning - baselines
    spread = train.to_array().std(0).tolist() if family.name == "gaussian" else []
    return RootAnalysis(
        title=title,
        about=tuple(about),
        parts=scored,
        seed=seed,
        seconds={"learning": learning, "baselines": baselines, "scoring": scoring},
        fit=fit,
        path=path,
        pairwise=pairs,
        log_partition=log_partition,
        no_log_partition=reason,
        scales=dict(zip(train.domain.names, spread, strict=False)),
        independent=next(iter(independent.values())),
    )


def _chosen(
    fits: Sequence[RootFitResult], penalties: Sequence[float], train: CountTable, validation: CountTable | None
) -> tuple[RootFitResult, tuple[PathStep, ...]]:
    """The fit with the best validation score (the only one without a choice), and all steps."""
    scores: Sequence[float | None] = [None] * len(fits)
    if validation is not None:
        scores, _ = held_out_scores(fits, validation)
    steps = tuple(
        PathStep(
            float(penalty),
            fit.num_interactions,
            -float(fit.log_pseudo_prob(train).mean()),
            None if score is None else -score,
            float(fit.kkt_residual.max()),
        )
        for fit, penalty, score in zip(fits, penalties, scores, strict=True)
    )
    return fits[_best(scores, penalties) if len(fits) > 1 else 0], steps


def _best(scores: Sequence[float | None], penalties: Sequence[float]) -> int:
    """Place of the best score, ties to the larger penalty; a score that is no number never wins."""
    comparable = [i for i, score in enumerate(scores) if score is not None and not math.isnan(score)]
    if not comparable:
        raise refused("l1", "no penalty has a score on the validation rows that is a number", code="other-domain")
    return max(comparable, key=lambda i: (scores[i], penalties[i]))


def _part(
    fit: RootFitResult,
    model: RootModel,
    log_partition: LogPartition | None,
    laws: Mapping[str, IndependentLaw | RootFitResult],
    rows: CountTable,
) -> RootPart:
    entropy = rows.entropy()
    log_prob = None if log_partition is None else model.log_q(rows) - float(log_partition.value)
    log_pseudo = fit.log_pseudo_prob(rows)
    scores = root_scores(log_pseudo.numpy(), log_prob, entropy)
    gain_error = None
    baselines: dict[str, Scores] = {}
    for name, law in laws.items():
        if isinstance(law, RootFitResult):
            baselines[name] = root_scores(law.log_pseudo_prob(rows).numpy())
        else:
            each = law.log_prob(rows)
            if not baselines:
                gain_error = mean_gain(
                    log_pseudo, torch.as_tensor(each), torch.ones(len(log_pseudo), dtype=torch.float64)
                )[1]
            baselines[name] = root_scores(each, each, entropy)
    return RootPart(scores, baselines, gain_error)
