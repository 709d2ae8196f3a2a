"""One study of one table of counts with a generalized root model: what was learned, beside simpler laws."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from typing_extensions import override

from ...core.command.answers import by_part, log_partition_json
from ...core.page import Block, Cell, Section, cell
from ...core.partition import LogPartition
from ...core.scores import Scores, mean_gain
from ...core.studies import PARTS, Content, Part, Study, check_part_names
from ...core.words import coefficient, digits, listed, option, plural
from ...data.counts import CountTable
from ...errors import is_real, none_received, other_domain, refused, unexpected
from ...plots.drawing import FAINT, FONT, INK, KINDS, SLATE, WIDTH, figure_of, plain_axes, wrapped
from ...plots.hypergraph import plot_hypergraph
from ...plots.intervals import plot_forest
from ...results.answer import CAUTION
from ...results.confirmation import InteractionTest, add_tests, confirmation_json, kept_sentence
from ...results.contrasts import STORED_LEVEL
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..effects import RootEffects, with_errors
from ..file import RootFile
from ..frames import RootColumns
from ..nodes.columns import Families, NodeFamilies
from ..nodes.families import family_to_json
from ..regress.choice import comparing, cross_validated_scores, held_out_scores, warn_of_chosen
from ..regress.confirm import with_confirmed
from ..regress.fit import fit_root_path
from ..regress.options import RootSettings, checked_order
from ..regress.result import RootFitResult, RootTerm
from .baselines import OWN, IndependentColumns, IndependentLaw, baselines_of, fit_independent
from .mixed_page import (
    FittedColumn,
    columns_section,
    effects_section,
    fit_namer,
    fitted_columns,
    fitted_section,
    limits,
    sets_picture,
    sets_section,
    summary_sentences,
)
from .scores import RootModel, columns_domain, exact_log_partition, in_units, levels_of, root_scores

AUTO_L1 = (0.1, 0.05, 0.02, 0.01, 0.005)
"""Penalties that are tried where none is given."""

PAIRWISE = "pairwise"
"""Name of the baseline of order 2 (the square root graphical model)."""

LAWS = {
    "poisson": "independent Poisson",
    "truncated-poisson": "independent truncated Poisson",
    "negative-binomial": "independent negative binomial",
    "exponential": "independent exponential",
    "normal": "independent normal",
    OWN: "independent",
    PAIRWISE: "pairs only",
}
"""What baselines are called on a page."""

_TOP = 50
_LEARN = partial(fit_root_path, refit="all", settings=RootSettings(false_discovery_rate=None))


@dataclass(frozen=True)
class PathStep:
    """One penalty that was tried.

    Attributes:
        l1: the penalty, nats a row.
        num_terms: terms of two and more variables.
        train: pseudo-NLL of the training rows, nats a row.
        validation: of validation rows, or of training rows left out in turn, over the columns that are not fixed in the
            rows learned from; None where nothing was compared.
        kkt_residual: largest of all nodes.
    """

    l1: float
    num_terms: int
    train: float
    validation: float | None
    kkt_residual: float


@dataclass(frozen=True, eq=False, kw_only=True)
class RootAnalysis(Study[Part]):
    """Everything that a report of a generalized root model shows, with the attributes of every study.

    Attributes:
        fit: the model that was kept.
        path: all penalties that were tried, in the order tried.
        pairwise: the same with pairs only, as baseline; None where the order is at most 2.
        log_partition: of the model where it is exact, else None.
        no_log_partition: why it is None.
        scales: where all columns are real numbers, their standard deviations among the training rows; else empty.
        independent: the member of the family without interactions, fitted to the training rows.
        fitted: where columns have several families, each beside what the model expects of it; else none.
    """

    heading: ClassVar[str] = "Generalized root model of"

    fit: RootFitResult
    path: tuple[PathStep, ...]
    pairwise: RootFitResult | None
    log_partition: LogPartition | None
    no_log_partition: str
    scales: Mapping[str, float]
    independent: IndependentLaw | IndependentColumns
    fitted: tuple[FittedColumn, ...] = ()

    @property
    def is_mixed(self) -> bool:
        """Whether columns have families of their own, so that the page speaks of columns and levels."""
        return self.fit.families.common is None or self.fit.columns is not None

    @property
    @override
    def domain(self) -> Domain:
        """All columns, a category as one."""
        return self.fit.domain if self.fit.columns is None else columns_domain(self.fit.columns)

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

    @override
    def records(self) -> dict[str, RootFile]:
        """The model, and where its sets were tested ``confirmed``, that of the sets that the rows confirm."""
        models = {"model": self.fit, "confirmed": self.fit.confirmed}
        return {name: self._record(fit) for name, fit in models.items() if fit is not None}

    @override
    def save_further(self, folder: Path) -> dict[str, str]:
        return {} if self.fit.confirmed is None else {"confirmed model": "confirmed.safetensors"}

    def _record(self, fit: RootFitResult) -> RootFile:
        # The file also holds the columns that are no part of the model.
        several: dict[str, Any] = {}
        if fit.families.common is None:
            each = {name: fit.families[fit.domain.index(name)] for name in fit.fixed_columns}
            several["fixed_kinds"] = {name: family.kind for name, family in each.items()}
            several["fixed_families"] = {name: family_to_json(family) for name, family in each.items()}
        if fit.columns is not None:
            several["frame"] = fit.columns.to_json()
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
            **several,
        }
        tensors = self.independent.tensors() | ({} if fit.scales is None else {"root_scales": fit.scales})
        return with_errors(RootFile(fit.structure, fit.psi, fit.free_families, info, tensors), fit)

    @override
    def law_name(self, name: str) -> str:
        return LAWS[name]

    @override
    def explain_scores(self, section: Section) -> None:
        """What the simpler laws are."""
        of = "are each of their own family" if self.is_mixed else "are of the family"
        section.note(f"Independent columns {of}. NLL and KL are given where log Z is exact.")

    @override
    def content(self) -> Content:
        """What varies together, tests, single columns, and how it was estimated."""
        tests = _tests_of(self)
        if self.is_mixed:
            effects = effects_section(RootEffects.of(self._record(self.fit)).strongest_effects(STORED_LEVEL))
            drawn = fitted_section(self.fitted, self.judged_on)
            begin = [sets_section(self.fit, tests), effects, drawn, columns_section(self.fit)]
            sections = [section for section in begin if section is not None]
        else:
            sections = [_glance(self), *(_tuples(self, size) for size in _sizes(self))]
        sections += [_confirmed(record) for record in [self.fit.confirmed] if record is not None]
        section = Section("Single columns", is_folded=True)
        lower = [key for key in sorted(self.fit.num_terms) if key[1] == 1 and key[0] > 1]
        of_roots = {key: {term.names: term.coefficient for term in self.fit.terms(key)} for key in lower}

        of_real = self.is_mixed and not self.fit.is_full  # of the lower roots only real columns have one then
        roots = {2: "of the number itself"} if of_real else _ROOTS
        columns = ["column", "coefficient", *(roots.get(j, f"{j}-th root") for j, _ in lower)]
        singles = sorted(self.fit.terms((1, 1)), key=lambda term: -term.coefficient)
        rows: list[list[object]] = []
        for term in singles:
            values = [term.coefficient, *(of_roots[key].get(term.names) for key in lower)]
            rows.append(["".join(term.names), *map(_signed, values)])
        section.table(columns, rows, first=_FIRST, further="Further columns", brief=_BRIEF)
        sentence = "Coefficient of the column itself, largest first; no penalty shrinks it."
        if lower and of_real:
            sentence += " That of a real number is of its square, and the second one gives it its mean."
        elif lower:
            sentence += " Those of its roots let it vary more (or less) than the family allows for independent columns."
        section.note(sentence)
        sections.append(section)
        if self.l1 is not None and len([step for step in self.path if step.l1 > 0]) > 1:
            sections.append(_path(self))
        warnings = [*_warnings(self), *(limits(self.fit) if self.is_mixed else []), CAUTION]
        picture = sets_picture(self.fit) if self.is_mixed else _answer_picture(self)
        return Content(_summary(self), warnings, [*sections, _trust(self)], picture)

    def per_deviation(self, term: RootTerm) -> RootTerm:
        """A term of columns, or of roots, divided by their standard deviations where these are known."""
        if self.fit.scales is not None:
            return in_units(term, self.fit.scales, self.fit.domain)
        return standardise_term(term, self.scales)

    @override
    def figures(self, folder: Path) -> dict[str, Any]:
        """Of the fit, its baselines, its interactions and the penalties tried."""
        # Sizes and columns, scores, how it was learned, and terms.
        fit, tests = self.fit, None if self.fit.confirmed is None else self.fit.confirmed.confirmation
        names = self.held[self.judged_on].baselines
        return {
            **({} if fit.columns is None else {"columns": fit.columns.to_json()["columns"]}),
            "num_interactions": fit.num_interactions,
            "num_parameters": fit.structure.num_terms,
            "num_terms": [{"root": j, "order": size, "terms": n} for (j, size), n in fit.num_terms.items()],
            "edges": _edges(fit),
            "log_partition": log_partition_json(self.log_partition),
            "log_partition_reason": self.no_log_partition or None,
            "zero_columns": list(fit.zero_columns),
            "constant_columns": list(fit.constant_columns),
            "fixed_columns": dict(fit.fixed_columns),
            **by_part(self.parts, pseudo_nll_std_error="scores.pseudo_nll_std_error"),
            "baselines": by_part(
                self.parts, **{name: lambda part, n=name: part.baselines[n].pseudo_nll for name in names}
            ),
            "family": fit.families.name,
            "maximum": int(fit.families[0].largest_value) if fit.families.name == "truncated-poisson" else None,
            "order": fit.order,
            "l1": self.l1,
            "symmetrize": fit.symmetrize,
            "is_full": fit.is_full,
            "refit": None if fit.refit is None else asdict(fit.refit),
            "structure": None if tests is None else confirmation_json(tests.tests, tests.false_discovery_rate),
            "path": [
                {
                    "l1": step.l1,
                    "num_interactions": step.num_terms,
                    "pseudo_nll": {"train": step.train, "validation": step.validation},
                    "kkt_residual": step.kkt_residual,
                }
                for step in self.path
            ],
            "kkt_residual": float(fit.kkt_residual.max()) if len(fit.nodes) else 0.0,
            "tolerance": fit.tolerance,
            "status": "converged" if fit.is_converged else "not converged",
            "singles": [
                tuple_json(term, fit.columns)
                for key in sorted(fit.num_terms)
                if key[1] == 1
                for term in sorted(fit.terms(key), key=lambda term: -term.coefficient)[:_TOP]
            ],
            "interactions": [
                {**tuple_json(term, fit.columns), "standardised": self.per_deviation(term).coefficient}
                for key in sorted(fit.num_terms)
                if key[1] > 1
                for sign in (1, -1)
                for term in fit.terms(key, num=_TOP, sign=sign)
            ],
        }


def _edges(fit: RootFitResult) -> list[list[str]]:
    """The columns of every interaction, a category as one."""
    several = [term.names for term in fit.terms() if term.key[1] > 1]
    sets = several if fit.columns is None else dict.fromkeys(map(fit.columns.set_of, several))
    return [list(one) for one in sets]


def tuple_json(term: RootTerm, columns: RootColumns | None = None) -> dict[str, Any]:
    """The JSON object of a term: its columns, tensor entry and coefficient, and the levels of its categories."""
    j, size = term.key
    edge = term.names if columns is None else columns.set_of(term.names)
    return {
        "edge": list(edge),
        **({} if columns is None else {"levels": dict(levels_of(columns, term.names))}),
        "value": term.coefficient / math.factorial(size),
        "coefficient": term.coefficient,
        "order": size,
        "root": j,
    }


def standardise_term(term: RootTerm, scales: Mapping[str, float]) -> RootTerm:
    r"""A term with the coefficient that it had were every column divided by its standard deviation.

    .. math:: \psi \prod_{s} \sigma_s^{2 / j}

    for the j-th root of the product of squares, the statistics of reals; columns without a scale, as counts, keep
    their units.

    Example:
        >>> standardise_term(RootTerm((2, 2), ("a", "b"), 0.5), {"a": 2.0, "b": 3.0}).coefficient  # 0.5 * 2 * 3
        3.0
    """
    if not scales:
        return term
    factor = math.prod(scales[name] ** (2 / term.key[0]) for name in term.names if name in scales)
    return replace(term, coefficient=term.coefficient * factor)


def analyse_roots(
    parts: Mapping[str, CountTable],
    family: Families | RootColumns,
    *,
    order: int | None = None,
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
        family: node family, or that of every column; rows of several are a table of kind ``real``. Or how columns of
            a data frame became these variables, whose names the page then has.
        order: largest root; by default 3, and 2 where columns have several families.
        l1: penalty, or several: that of the best pseudo-likelihood of the validation rows is kept, or without any of
            every fifth of the training rows, left out in turn; of equals the largest.
        pairwise: also learn the model with pairs only.
        false_discovery_rate: of the sets that all training rows confirm, the confirmed model of ``fit``; None for none.
        learn: learns the training rows, called as ``learn(rows, penalties, family, order=...)``, such as
            :func:`~pyro_hoim.generalized_root.fit_root_path` with further arguments by :func:`functools.partial`.
        seed: shuffles the training rows into fifths, where they are left out in turn.
        title: of the data.
        about: sentences on the data.

    Raises:
        InputError: no training rows, or too few to leave some out; an unknown part, or other columns.

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
    # The largest root, with all penalties, and the sets that all training rows confirm.
    begin = time.perf_counter()
    columns = family if isinstance(family, RootColumns) else None
    families = NodeFamilies.of(family.families if isinstance(family, RootColumns) else family, train.domain)
    one = families.common or families

    @comparing()
    def learned(root: int) -> tuple[RootFitResult, tuple[PathStep, ...]]:
        fits, scores = learn(train, penalties, one, order=root), None
        if validation is not None:
            scores = held_out_scores(fits, validation)[0]
        elif len(penalties) > 1:
            rows, generator = fits[0].rows(train, root), torch.Generator().manual_seed(seed)
            refit = lambda some: learn(train.rows(some), penalties, one, order=root)  # noqa: E731
            scores = cross_validated_scores(rows, refit, generator)[0]
        return _chosen(fits, penalties, train, scores)

    order = checked_order(order, families.each)
    fit, path = learned(order)
    settings = RootSettings(false_discovery_rate=false_discovery_rate)
    fit = with_confirmed(fit, fit.rows(train, fit.order), {}, settings)
    warn_of_chosen(fit)
    fit = fit.with_columns(columns) if columns is not None else fit
    learning = time.perf_counter() - begin
    # Simpler laws of the same rows, which the gain is over.
    independent = {kind: fit_independent(train, kind, one) for kind in baselines_of(families)}
    laws: dict[str, IndependentLaw | IndependentColumns | RootFitResult] = {**independent}
    pairs = learned(2)[0] if pairwise and order > 2 else None
    if pairs is not None:
        laws[PAIRWISE] = pairs
    baselines = time.perf_counter() - begin - learning
    # Every part is scored by all of them, likelihoods where log Z is exact.
    model = RootModel.from_fit(fit)
    log_partition, reason = exact_log_partition(model.energy)
    scored = {
        name: _part(fit, model, log_partition, laws, with_rows[name]) if name in with_rows else None for name in PARTS
    }
    scoring = time.perf_counter() - begin - learning - baselines
    spread = _spread(train, families)
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
        scales=spread,
        independent=next(iter(independent.values())),
        fitted=_fitted(fit, model, with_rows),
    )


def _fitted(fit: RootFitResult, model: RootModel, parts: Mapping[str, CountTable]) -> tuple[FittedColumn, ...]:
    """The columns of the rows that the model is judged by, beside what it expects of them."""
    if fit.columns is None and fit.families.common is not None:
        return ()
    rows = parts[[name for name in PARTS if name in parts][-1]]
    names = list(dict.fromkeys(map(fit_namer(fit), fit.domain.names)))
    return fitted_columns(model, rows, names)


def _spread(train: CountTable, families: NodeFamilies) -> dict[str, float]:
    """Standard deviations of the columns of a table of real numbers."""
    if not families.is_gaussian:
        return {}
    return dict(zip(train.domain.names, train.to_array().std(0).tolist(), strict=True))


def _chosen(
    fits: Sequence[RootFitResult], penalties: Sequence[float], train: CountTable, held_out: Sequence[float] | None
) -> tuple[RootFitResult, tuple[PathStep, ...]]:
    """The fit with the best held-out score, of equals that of the largest penalty, and all steps."""
    scores: Sequence[float | None] = [None] * len(fits) if held_out is None else held_out
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
    if len(fits) == 1:
        return fits[0], steps
    # A score that is no number never wins.
    comparable = [i for i, score in enumerate(scores) if score is not None and not math.isnan(score)]
    if not comparable:
        raise refused("l1", "no penalty has a score on held-out rows that is a number", code="other-domain")
    return fits[max(comparable, key=lambda i: (scores[i], penalties[i]))], steps


def _part(
    fit: RootFitResult,
    model: RootModel,
    log_partition: LogPartition | None,
    laws: Mapping[str, IndependentLaw | IndependentColumns | RootFitResult],
    rows: CountTable,
) -> Part:
    # The model, with a likelihood where log Z is exact.
    entropy = model.entropy(rows)
    log_prob = None if log_partition is None else model.log_q(rows) - float(log_partition.value)
    log_pseudo = fit.log_pseudo_prob(rows)
    scores = root_scores(log_pseudo.numpy(), log_prob, entropy)
    # Simpler laws; the first one is what the gain is over.
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
    return Part(replace(scores, gain_std_error=gain_error), baselines, measure="pseudo_nll")


# Pictures of a generalized root model: who varies with whom, scores and penalties.


def root_network_figure(
    terms: Sequence[RootTerm], *, max_variables: int = 24, max_pairs: int = 60, max_sets: int = 12
) -> Figure:
    """The strongest tuples on a circle: pairs as arcs, larger sets as hulls or stars, coloured by their signs.

    Args:
        terms: tuples of two and more variables, strongest first; the coefficients of several roots of a set add up.
        max_variables: most variables, those of the strongest tuples, that are drawn.
        max_pairs: most pairs that are drawn.
        max_sets: most sets of three and more that are drawn.

    Raises:
        InputError: no tuple of two or more variables.

    Example:
        >>> figure = root_network_figure([RootTerm((2, 2), ("skin", "friction"), 2.87)])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['skin', 'friction']
    """
    shown = [term for term in terms if len(term.names) > 1]
    if not shown:
        raise none_received("terms", "at least one tuple of two or more variables")
    # Tuples as long as their variables are few enough; coefficients of several roots add up.
    names: dict[str, None] = {}
    weights: dict[tuple[str, ...], float] = {}
    for term in shown:
        wider = dict.fromkeys([*names, *term.names])
        if len(wider) <= max_variables:
            names = wider
            weights[term.names] = weights.get(term.names, 0.0) + term.coefficient
    # A collection whose strengths are the coefficients.
    edges = [*((name,) for name in names), *weights]
    domain = Domain.from_cardinalities(dict.fromkeys(names, 2))
    graph = InteractionHypergraph(domain, edges, hierarchical=False)
    strengths = {domain.project(edge).names: value for edge, value in weights.items()}
    signs = ("rise together", "avoid each other")
    return figure_of(plot_hypergraph, graph, strengths, top=max_pairs, max_sets=max_sets, signs=signs)


def root_scores_figure(scores: Mapping[str, Mapping[str, Scores]]) -> Figure:
    """Pseudo-NLL of several laws as bars, one panel a part, with one standard error over the rows.

    Args:
        scores: by part, then by law.

    Raises:
        InputError: no part, or none with a finite score.

    Example:
        >>> from pyro_hoim.core import Scores
        >>> made = {"independent": 3.1, "model": 2.7}
        >>> scores = {k: Scores(rows=50, pseudo_nll=v, pseudo_nll_std_error=0.2) for k, v in made.items()}
        >>> figure = root_scores_figure({"train": scores, "test": scores})
        >>> [axes.get_title() for axes in figure.axes]
        ['train', 'test']
    """
    if not scores or not any(math.isfinite(s.pseudo_nll) for part in scores.values() for s in part.values()):
        raise none_received("scores", "at least one part with a finite pseudo-NLL")
    # One panel a part, one bar a law, the model last.
    laws = list(next(iter(scores.values())))
    figure = Figure(figsize=(2.6 + 2.6 * len(scores), 1.2 + 0.42 * len(laws)), layout="constrained")
    grid = figure.subplots(1, len(scores), squeeze=False, sharex=True, sharey=True)[0]
    for axes, (part, scores_of) in zip(grid, scores.items(), strict=True):
        values = np.array([scores_of[law].pseudo_nll for law in laws])
        errors = np.array([scores_of[law].pseudo_nll_std_error for law in laws])
        finite = np.isfinite(values)
        heights = np.arange(len(laws))[::-1]
        colours = [INK if law == laws[-1] else FAINT for law in laws]
        axes.barh(
            heights[finite],
            values[finite],
            color=[c for c, keep in zip(colours, finite, strict=True) if keep],
            xerr=np.nan_to_num(errors[finite]),
            error_kw={"ecolor": SLATE, "elinewidth": 1.0, "capsize": 2},
            height=0.62,
        )
        for at, value in zip(heights[~finite], values[~finite], strict=True):
            words = "infinite" if value > 0 else "–"
            axes.text(0.02, at, words, va="center", fontsize=9, color=INK, transform=axes.get_yaxis_transform())
        axes.set_yticks(heights, [wrapped(law, 24) for law in laws])
        axes.set_title(part, color=INK, fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        plain_axes(axes, "pseudo-NLL, nats per row")
    handles: list[Any] = [Patch(facecolor=INK, label="this model"), Patch(facecolor=FAINT, label="simpler models")]
    handles.append(Line2D([], [], color=SLATE, linewidth=1.0, label="one standard error"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=FONT, labelcolor=INK)
    return figure


def penalty_path_figure(path: Sequence[PathStep], chosen: float) -> Figure:
    """Pseudo-NLL and number of tuples against the penalty.

    Args:
        path: penalties that were tried.
        chosen: the one that was kept, marked.

    Raises:
        InputError: fewer than two penalties above zero.

    Example:
        >>> path = [PathStep(0.1, 2, 3.0, 3.2, 1e-7), PathStep(0.01, 5, 2.8, 3.1, 1e-7)]
        >>> figure = penalty_path_figure(path, 0.01)
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['pseudo-NLL, nats per row', 'tuples of two and more']
    """
    # Scores on the left, sizes on the right, both over the logarithm of the penalty.
    steps = sorted((step for step in path if step.l1 > 0), key=lambda step: step.l1)
    if len(steps) < 2:
        raise unexpected("path", "at least two penalties above 0", received=len(steps), code="empty")
    l1 = [step.l1 for step in steps]
    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    left, right = figure.subplots(2, 1, sharex=True)
    left.plot(l1, [step.train for step in steps], "o-", color=KINDS[0], markersize=4, label="training")
    if all(step.validation is not None for step in steps):
        left.plot(l1, [step.validation or 0.0 for step in steps], "o-", color=KINDS[1], markersize=4, label="held out")
    right.plot(l1, [step.num_terms for step in steps], "o-", color=SLATE, markersize=4)
    for axes, up in ((left, "pseudo-NLL, nats per row"), (right, "tuples of two and more")):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(l1))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        if chosen > 0:
            axes.axvline(chosen, color=INK, linestyle=(0, (4, 3)), linewidth=1.2, label="kept")
        axes.grid(axis="y", color=FAINT, alpha=0.25)
        plain_axes(axes, "penalty, nats per row", up)
    left.legend(frameon=False, fontsize=FONT, labelcolor=INK)
    return figure


# The page. Nothing is computed here but formats.

_FIRST, _BRIEF = 6, 6
_DRAWN = 24  # columns
_WIDE, _NARROW = 6, 4  # interactions in the first picture
_NODES = 20
_SIGNS = ((1, "Rise together"), (-1, "Avoid each other"))
_SIZES = {2: "Pairs", 3: "Triples"}
_ROOTS = {2: "of its square root", 3: "of its cube root"}


def _terms_of(analysis: RootAnalysis, size: int, sign: int) -> list[RootTerm]:
    """Tuples of one size with coefficients of one sign, strongest first."""
    terms = [term for term in analysis.fit.terms(sign=sign) if term.key[1] == size and term.key != (1, 1)]
    return sorted(terms, key=lambda term: -abs(standardise_term(term, analysis.scales).coefficient))


def _sizes(analysis: RootAnalysis) -> list[int]:
    return sorted({size for _, size in analysis.fit.num_terms if size > 1})


def _summary(analysis: RootAnalysis) -> list[str]:
    """What varies together, and how much that helps to predict."""
    if analysis.is_mixed:
        return [*summary_sentences(analysis.fit, _tests_of(analysis), _p_text), *_gain_sentences(analysis)]
    # What varies together, and the strongest pairs of each sign.
    fit = analysis.fit
    counts = {size: sum(n for (_, s), n in fit.num_terms.items() if s == size) for size in _sizes(analysis)}
    words = {2: "pair", 3: "triple"}
    learned = " and ".join(
        plural(n, words.get(size, f"set of {size}"), f"sets of {size}" if size > 3 else "")
        for size, n in counts.items()
    )
    columns = plural(len(analysis.domain), "column")
    tests = _tests_of(analysis)
    confirmed, where_in = sum(test.is_kept for test in tests), f"In {plural(fit.num_rows, 'row')}"
    if tests:
        known = f"{confirmed} of them" if confirmed else "none of them"
        sentences = [f"{where_in}, regressions find {learned} of the {columns}, and tests confirm {known}."]
    elif learned:
        sentences = [f"{where_in}, regressions find {learned} of the {columns}, which nothing has tested."]
    else:
        sentences = [f"{where_in}, no set of the {columns} varies together."]
    net = _net(analysis)
    for sign, word in ((1, "rise together"), (-1, "avoid each other")):
        strongest = [
            f"{' and '.join(names)} ({coefficient(value).replace('-', '−')}{_p_text(p_value)})"
            for names, (value, p_value) in net.items()
            if value * sign > 0 and len(names) == 2
        ][:2]
        if strongest:
            sentences.append(f"The pairs that {word} most, given all other columns: {'; '.join(strongest)}.")
    return [*sentences, *_gain_sentences(analysis)]


def _gain_sentences(analysis: RootAnalysis) -> list[str]:
    """What the interactions bring, beside the best of the simpler laws."""
    where, sentences = analysis.judged_on, list[str]()
    judged = analysis.held[where]
    simpler = {name: scores.pseudo_nll for name, scores in judged.baselines.items()}
    if simpler:
        name = min(simpler, key=lambda law: simpler[law])
        gain = simpler[name] - judged.scores.pseudo_nll
        better = "better" if gain > 0 else "worse"
        other = "the model with pairs only" if name == PAIRWISE else f"{LAWS[name]} columns"
        sentences.append(
            f"On the {where} rows it predicts a cell from the others {better} than {other}, by "
            f"{digits(abs(gain))} nats a row."
        )
    return sentences


def _net(analysis: RootAnalysis) -> dict[tuple[str, ...], tuple[float, float | None]]:
    """Sums of the coefficients of sets over their roots with p-values, strongest first; those that rows confirm."""
    tests = {test.edge: test for test in _tests_of(analysis)}
    sums: dict[tuple[str, ...], float] = {}
    for term in analysis.fit.terms():
        if term.key[1] > 1:
            sums[term.names] = sums.get(term.names, 0.0) + standardise_term(term, analysis.scales).coefficient
    net = sorted(sums.items(), key=lambda item: -abs(item[1]))
    if not any(test.is_kept for test in tests.values()):
        return {names: (value, tests[names].p_value if names in tests else None) for names, value in net}
    return {names: (value, tests[names].p_value) for names, value in net if names in tests and tests[names].is_kept}


def _p_text(p_value: float | None) -> str:
    """A p-value behind a coefficient, where the set was tested."""
    if p_value is None:
        return ""
    return f", p = {p_value:.1g}" if p_value >= _LEAST_P else f", p < {_LEAST_P:g}"


_LEAST_P = 1e-16


def _tests_of(analysis: RootAnalysis) -> Sequence[InteractionTest]:
    """The tests of all sets that the regressions found."""
    confirmed = analysis.fit.confirmed
    return () if confirmed is None or confirmed.confirmation is None else confirmed.confirmation.tests


def _warnings(analysis: RootAnalysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    fit = analysis.fit
    warnings: list[str] = []
    # Of the regressions and of the rows.
    if not fit.is_converged:
        worst = float(fit.kkt_residual.max())
        warnings.append(
            f"Not every regression has converged: the largest residual is {worst:.1e}, the tolerance "
            f"{fit.tolerance:.1e}."
        )
    if fit.fixed_columns:
        columns = list(fit.fixed_columns)
        verb = "holds" if len(columns) == 1 else "hold"
        warnings.append(
            f"{plural(len(columns), 'column')} {verb} one value in all training rows, at the edge of the family's "
            f"range ({listed(columns)}): no finite coefficient fits best (for zeros it is minus infinity). Any other "
            "value is impossible under this model, and no interaction can contain these columns."
        )
    for name, part in analysis.held.items():
        rows = part.scores.impossible_rows
        if rows:
            verb = "holds" if rows == 1 else "hold"
            warnings.append(
                f"{plural(rows, 'row')} of {name} {verb} other values in columns that held one value in all training "
                "rows, so that scores are infinite; leave these columns out, or train on more rows."
            )
    tests = _tests_of(analysis)
    if tests:
        record = analysis.fit.confirmed
        assert record is not None
        assert record.confirmation is not None
        warnings.append(kept_sentence(tests, record.confirmation.false_discovery_rate, "training", "set"))
    judged = analysis.held[analysis.judged_on]
    # Overdispersion, which a model without roots of single columns partly takes for dependence.
    spread = judged.baselines.get("negative-binomial")
    gap = 0.0 if spread is None or analysis.fit.is_full else judged.scores.pseudo_nll - spread.pseudo_nll
    if gap * judged.scores.rows > len(analysis.domain):  # more than their further parameters gain on Poisson counts
        remedy = "" if analysis.is_mixed else f" {option('full', True)} adds terms that absorb this."
        warnings.append(
            "Independent negative binomial counts predict better: these counts vary more than Poisson ones, which the "
            f"model partly takes for dependence.{remedy}"
        )
    # A model that loses against independent columns must not be interpreted.
    if judged.gain is not None and judged.gain < 0 and analysis.fit.num_interactions:
        remedy = option("refit", "all")
        why = f"averaging the columns' regressions lost more than their interactions gain ({remedy} mends that)."
        if fit.refit is not None and fit.refit.method == "all":
            why = "what it learned from the training rows does not hold on these."
        warnings.append(
            f"On the {analysis.judged_on} rows the model predicts worse than independent columns, by "
            f"{digits(-judged.gain)} nats a row: {why} Do not interpret the interactions; try "
            f"{'' if analysis.is_mixed else option('full', True) + ', or '}a larger {option('l1')}."
        )
    # Of the joint law.
    if fit.refit is not None and fit.refit.status == "shortened":
        warnings.append(
            "The best coefficients do not define a distribution (its integral is infinite), so they stop "
            f"{100 * fit.refit.way:.3g} % of the way there."
        )
    if fit.families.is_gaussian and not analysis.is_mixed and not analysis.fit.is_full:
        warnings.append(
            f"Without {option('full', True)} every column of a Gaussian root model has mean zero: unless the columns "
            "were centred, their means are mistaken for variance and dependence."
        )
    if "cannot be normalised" in analysis.no_log_partition or "undecided" in analysis.no_log_partition:
        warnings.append(f"The regressions need not define one joint distribution: {analysis.no_log_partition}.")
    return warnings


def _answer_picture(analysis: RootAnalysis) -> Block | None:
    """Coefficients of the strongest interactions, fewer on a small screen."""
    net = list(_net(analysis).items())
    if not net:
        return None

    def drawn(most: int, legend: bool = True) -> Figure:
        labels = [" and ".join(names) for names, _ in net[:most]]
        values, none = np.array([value for _, (value, _) in net[:most]]), np.full(len(labels), np.nan)
        beside = [f"{coefficient(v).replace('-', '−')}{_p_text(p)}" for _, (v, p) in net[:most]]
        return figure_of(plot_forest, labels, values, none, none, beside=beside, label="coefficient", legend=legend)

    about = "Strongest interactions: above 0 the columns rise together, below 0 they avoid each other"
    return Block("figure", about, drawing=drawn(_WIDE), narrow=drawn(_NARROW, legend=False))


def _glance(analysis: RootAnalysis) -> Section | None:
    """All interactions on a circle."""
    terms = [term for size in _sizes(analysis) for sign, _ in _SIGNS for term in _terms_of(analysis, size, sign)]
    terms = sorted((standardise_term(term, analysis.scales) for term in terms), key=lambda term: -abs(term.coefficient))
    if not terms:
        return None
    section = Section("All interactions at a glance")
    about = "The strongest interactions: columns on a circle, pairs as arcs, larger sets as regions or stars"
    section.figure(root_network_figure(terms, max_variables=_DRAWN), about)
    return section


def _signed(value: float | None) -> Cell:
    return cell(value, coefficient)


def _tuples(analysis: RootAnalysis, size: int) -> Section:
    section = Section(_SIZES.get(size, f"Sets of {size}"))
    # A table for either sign.
    for sign, words in _SIGNS:
        terms = _terms_of(analysis, size, sign)
        if not terms:
            continue
        columns = ["columns", "coefficient", "tensor entry"]
        if analysis.scales:
            columns.append("per standard deviation")
        has_roots = len({term.key[0] for term in terms}) > 1
        if has_roots:
            columns.append("root")
        cells: list[list[object]] = []
        for term in terms:
            values = [term.coefficient, term.coefficient / math.factorial(size)]
            if analysis.scales:
                values.append(standardise_term(term, analysis.scales).coefficient)
            names = (" + " if sign > 0 else " − ").join(term.names)
            cells.append([names, *map(_signed, values), *([term.key[0]] if has_roots else [])])
        shown = f", the {_FIRST} strongest first" if len(terms) > _FIRST else ""
        section.heading(f"{words} ({plural(len(terms), 'set')}{shown})", brief=True)
        section.table(columns, cells, first=_FIRST, further="Further sets", brief=_BRIEF)
    # What a coefficient multiplies depends on the family and on how the regressions were joined.
    root = {2: "square roots", 3: "cube roots"}.get(size, f"{size}-th roots")
    units = ""
    if analysis.scales:  # Gaussian, whose statistic is the square: x itself for pairs
        root = "values" if size == 2 else f"absolute values to the power 2/{size}"
        units = (
            " It is in units of the columns; per standard deviation, it is that of columns divided by their standard "
            "deviations among the training rows. The penalty acts in units of the columns, so that a column of small "
            "numbers is shrunk more: rescale columns to similar spread before the fit."
        )
    way = f"the columns' own regressions were joined by '{analysis.fit.symmetrize}'"
    if analysis.fit.refit is not None and analysis.fit.refit.method == "all":
        way = "it was fitted together with all others"
    elif analysis.fit.symmetrize == "mean":
        way = "it is the mean over the columns' own regressions, with absent ones as zero (mean)"
    section.note(
        f"The coefficient multiplies the product of the columns' {root} in the log-density of a row (of a higher "
        f"root where one is named); {way}. The entry of the symmetric tensor is the coefficient over {size}!." + units
    )
    return section


def _confirmed(record: RootFitResult) -> Section:
    """The tests of all sets that the regressions found."""
    section = Section("Which interactions the rows confirm", is_folded=True)
    if record.confirmation is None or not record.confirmation.tests:
        section.text("The regressions found no sets to test.")
        return section
    tests, rate = record.confirmation.tests, record.confirmation.false_discovery_rate
    section.text(kept_sentence(tests, rate, "training", "set"))
    add_tests(section, tests)
    section.note(
        "A penalty that predicts well keeps sets that are absent. p is two-sided, of all training rows, beside the "
        "other sets that are kept: of the sum of the products of roots, given how often each value of a column occurs "
        "and the statistics of the other sets (a saddle-point tail, good to the smallest counts), so that columns may "
        "vary as they like by themselves. It is the largest of the p-values of its columns. The Benjamini-Hochberg "
        "procedure over all sets keeps the expected share of absent ones among the kept below the rate. Replaced: "
        "confirmed alone, but not beside the sets named. The model above keeps all sets for prediction."
    )
    return section


def _path(analysis: RootAnalysis) -> Section:
    section = Section("The penalty", is_folded=True)
    # One line per penalty, the kept one marked.
    section.table(
        ["penalty", "interactions", "pseudo-NLL train", "pseudo-NLL held out", "largest residual"],
        [
            [
                cell(s.l1, "{:g}".format),
                s.num_terms,
                cell(s.train),
                cell(s.validation),
                cell(s.kkt_residual, "{:.1e}".format),
            ]
            for s in analysis.path
        ],
        chosen=next(i for i, s in enumerate(analysis.path) if s.l1 == analysis.l1),
    )
    if all(math.isfinite(s.train) and math.isfinite(s.validation or 0.0) for s in analysis.path):
        drawing = penalty_path_figure(analysis.path, analysis.l1 or 0.0)
        section.figure(drawing, "Pseudo-NLL and number of interactions against the penalty")
    rows = (
        "the validation rows" if "validation" in analysis.held else "every fifth of the training rows, left out in turn"
    )
    section.note(f"The penalty with the lowest pseudo-NLL on held-out rows was kept: {rows}.")
    return section


def _trust(analysis: RootAnalysis) -> Section:
    section = Section("How it was estimated", is_folded=True)
    fit, refit = analysis.fit, analysis.fit.refit
    # The regressions, and what was done after joining with what that brought.
    refitted = "The joint model fits a little worse than each regression by itself."
    if refit is not None:
        what = "all coefficients" if refit.method == "all" else "the coefficients of single columns"
        penalty = f" under {100 * refit.share:g} % of the penalties" if refit.method == "all" else ""
        refitted = (
            f"Then {what} were fitted again, together{penalty}: pseudo-NLL of the training rows "
            f"{digits(refit.joined_pseudo_nll)} before, {digits(refit.pseudo_nll)} after, "
            f"{digits(refit.independent_pseudo_nll)} of independent columns ({refit.status.replace('_', ' ')}, "
            f"residual {refit.kkt_residual:.1e})."
        )
    state = "all converged" if fit.is_converged else "not all of them converged"
    section.text(
        f"Learning: one l1-penalised regression a column, {state}; the largest violation of the optimality conditions, "
        f"over all possible interactions, is {float(fit.kkt_residual.max()):.1e} (tolerance "
        f"{fit.tolerance:.1e}). The regressions were learned one by one and then joined. {refitted}"
    )
    # The normalising constant.
    log_z = analysis.log_partition
    remedy = f"annealed importance sampling ({option('method', 'ais')})"
    words = (
        "The normalising constant is not known exactly here, so there are pseudo-likelihoods but no likelihoods "
        f"({analysis.no_log_partition.split('; for an estimate')[0]}). {remedy} estimates it with an error bar."
    )
    if log_z is not None:
        words = f"Log normalising constant: {float(log_z.value):.8g} ({log_z.method}, exact)."
    section.text(words)
    # The regressions that are furthest from their optimum.
    slowest = sorted(fit.nodes, key=lambda node: -node.kkt_residual)[:_NODES]
    rows = [
        [n.variable, len(n.terms), cell(n.objective), cell(n.kkt_residual, "{:.1e}".format), n.num_steps, n.status]
        for n in slowest
    ]
    columns = ["column", "interactions", "objective", "residual", "steps", "state"]
    section.table(columns, rows, first=_NODES)
    section.note("Time: " + ", ".join(f"{s} {value:.1f} s" for s, value in analysis.seconds.items()) + ".")
    return section
