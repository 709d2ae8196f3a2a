r"""Odds ratios of the interactions of a log-linear model, with intervals and tests, in one coding for every model.

The contrast of an interaction S at levels x against the reference levels r, all other variables at theirs, is

.. math:: \log \mathrm{OR}^S_{x} = \sum_{R \subseteq S} (-1)^{|S| - |R|} \log q(x_R, r_{V - R})

of a pair a log odds ratio, of three variables the log of the ratio of two odds ratios, of more the ratio of two such
ratios. In a hierarchical model these are the coefficients of corner coding.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import scipy
import torch
from scipy.special import ndtr, ndtri

from ...errors import HoimError, conflict
from ...results.contrasts import INTERVALS, STORED_LEVEL, Contrasts, contrast_frame
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..coding import Reference, parametrization, reference_codes
from ..file import ModelFile, conditional_words
from ..fitting.design import design_entries, design_matrix
from ..fitting.identified import are_possible_comparisons
from ..fitting.result import CovarianceKind, FitResult
from ..infinite import contrast_signs, covariance_problem, size_problem
from ..scores import infinite_interactions
from ..training.ridge import InteractionRidge
from .goodness_of_fit import SMALL_ENTRIES, restriction_of, rough_terms

_T = TypeVar("_T")

_SHOWN = 12  # terms by name in a note
_MEANING = "each odds ratio compares a level with {}, given all other columns"
_HIGHER = (
    "a pair in a larger interaction has the odds ratio at the {} levels of the columns that modify it",
    "of three columns it is the ratio of two odds ratios, of four the ratio of two such ratios",
)
_CHOSEN = (
    "the estimates are drawn towards zero by a penalty that the rows chose",
    "that the rows chose the interactions, too, makes these intervals too short",
)
_WEIGHTED = (
    "weights count as {:.0f} effective rows (Kish)",
    "robust intervals are those of a fit of these interactions to the rows",
)
_OTHERS = "reference= chooses other levels to compare with, of which more combinations may be possible"
_STEPS = "odds ratios of the terms of the formula: against the first level of its column, linear ones for one step"


def comparisons(graph: InteractionHypergraph, codes: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Term and levels in words of every contrast: ``smoke=y vs n, mental=y vs n``."""
    terms, words = list[str](), list[str]()
    for edge in _joint(graph):
        labels = [(name, graph.domain[name].labels, codes[name]) for name in edge]
        steps = [
            [f"{name}={label} vs {of[code]}" for k, label in enumerate(of) if k != code] for name, of, code in labels
        ]
        for combination in itertools.product(*steps):
            terms.append(":".join(edge))
            words.append(", ".join(combination))
    return terms, words


def _joint(graph: InteractionHypergraph) -> list[Edge]:
    return [edge for edge in graph.edges if len(edge) > 1]


def contrast_values(graph: InteractionHypergraph, tables: torch.Tensor, codes: Mapping[str, int]) -> torch.Tensor:
    """Log odds ratios (*batch, k) of the model of any tables (*batch, num_terms), in the order of comparisons."""
    parts = parametrization(graph).split(tables)
    values = {edge: list[torch.Tensor]() for edge in _joint(graph)}
    batch = tables.ndim - 1
    for edge, table in parts.items():
        inside = (part for size in range(2, len(edge) + 1) for part in itertools.combinations(edge, size))
        for part in inside:
            if part in values:
                values[part].append(_difference(table, edge, part, codes).flatten(batch))
    whole = [torch.stack(pieces).sum(0) if len(pieces) > 1 else pieces[0] for pieces in values.values()]
    return torch.cat([tables.new_zeros(*tables.shape[:-1], 0), *whole], -1)


def _difference(table: torch.Tensor, edge: Edge, part: Edge, codes: Mapping[str, int]) -> torch.Tensor:
    """Differences of a table from the reference over some of its variables, the others at their reference."""
    first = table.ndim - len(edge)
    for axis in reversed(range(len(edge))):
        dimension, code = first + axis, codes[edge[axis]]
        reference = table.select(dimension, code)
        if edge[axis] in part:
            others = [k for k in range(table.shape[dimension]) if k != code]
            reference = table.index_select(dimension, torch.tensor(others, dtype=torch.long)) - reference.unsqueeze(
                dimension
            )
        table = reference
    return table


def check_reference(reference: Reference | None, is_restricted: bool) -> None:
    """Refuse reference levels of restricted interactions, whose terms compare with what their formula says."""
    if is_restricted and reference is not None:
        raise conflict("reference", "restricted interactions have the odds ratios of their terms")


def once_per_fit(function: Callable[..., _T]) -> Callable[..., _T]:
    """What a summary, a page and a file of a fit ask for alike is found once."""
    of_fits = WeakKeyDictionary[FitResult, dict[str, _T]]()

    @wraps(function)
    def known(result: FitResult, **options: Any) -> _T:
        of_fit = of_fits.setdefault(result, {})
        key = repr(sorted(pair for pair in options.items() if pair[1] is not None))
        if key not in of_fit:
            of_fit[key] = function(result, **options)
        return of_fit[key]

    return known


@once_per_fit
def contrasts_of_fit(
    result: FitResult, *, level: float, covariance: CovarianceKind | None = None, reference: Reference | None = None
) -> Contrasts:
    """Log odds ratios of a fit with standard errors where it has them; arguments as of ``fit_summary``."""
    graph, restriction = result.hypergraph, result.restriction
    check_reference(reference, restriction is not None)
    codes = reference_codes(graph.domain, reference)
    if covariance is not None:
        result.covariance_of_kind(covariance)  # what was asked for is refused where it does not exist
    # What they are called, and their values.
    readings = np.zeros((0, 0))
    has_zeros = result.structural_zeros is not None
    if restriction is None:
        terms, levels = comparisons(graph, codes)
        estimate = contrast_values(graph, result.tables, codes).numpy()
        notes = _meaning(graph, reference)
    else:
        joint = np.flatnonzero(restriction.belongs(_joint(graph)))
        terms, levels = ([of[i] for i in joint] for of in (restriction.terms, restriction.comparisons))
        readings = restriction.readings[joint]
        estimate = readings @ result.theta.numpy()
        notes = [_STEPS]
    rows = contrast_frame(terms, levels).assign(estimate=estimate, std_error=math.nan, limit=math.nan, p_value=math.nan)
    if not len(rows):
        return Contrasts(rows, level, (), False, False)
    # Errors, where the fit has any.
    problem = covariance_problem(result)
    matrix, error = torch.empty(0), np.empty(0)
    if has_zeros:
        by_term = torch.from_numpy(readings).T
        values = partial(_values, graph, codes) if restriction is None else lambda theta: theta @ by_term
        rows["exists"] = result._is_possible_comparison(values).numpy()
        rows.loc[~rows["exists"], "estimate"] = math.nan
        counts = Counter(terms)
        lost = {term for term in counts if counts[term] > 1} - set(itertools.compress(terms, rows["exists"]))
        notes += [_OTHERS] if lost and restriction is None else []
    if not problem:
        matrix = _functions(graph, codes) if restriction is None else torch.from_numpy(readings)
        try:
            error = result.contrast_errors(matrix, covariance).numpy()
        except HoimError as refusal:  # a penalty that is not smooth, or nobody can tell what is identified
            problem = refusal.problem or str(refusal)
    if problem:
        lost = [":".join(row["edge"]) for row in infinite_interactions(result) if not row["is_declared"]]
        rows.loc[rows["term"].isin(lost), "estimate"] = math.nan
        if has_zeros and restriction is None and result.penalty is None:
            rows.loc[~result.is_identified(_functions(graph, codes)).numpy(), "estimate"] = math.nan
        return Contrasts(rows, level, (*notes, f"no standard errors: {problem}"), False, False)
    # Of what the rows send to infinity the sign and the finite limit.
    exists = rows["exists"].to_numpy(dtype=bool) if has_zeros else np.ones(len(rows), dtype=bool)
    gone: np.ndarray = ~np.isfinite(error) & exists
    rows["std_error"] = np.where(np.isfinite(error) & exists, error, math.nan)
    if gone.any():
        signs = contrast_signs(result, matrix[gone].numpy())
        rows.loc[gone, "estimate"] = np.where(signs == 0, math.nan, np.copysign(math.inf, signs))
        limits = profile_limits(result, matrix[gone].numpy(), signs, level)
        rows.loc[gone, ["limit", "p_value"]] = limits
    notes += notes_on_errors(result, covariance)
    return Contrasts(rows, level, tuple(notes), True, result.penalty is None)


def _functions(graph: InteractionHypergraph, codes: Mapping[str, int]) -> torch.Tensor:
    """Log odds ratios as linear functions (k, num_parameters) of theta."""
    return _values(graph, codes, torch.eye(graph.num_parameters, dtype=torch.float64)).T.contiguous()


def _values(graph: InteractionHypergraph, codes: Mapping[str, int], theta: torch.Tensor) -> torch.Tensor:
    """Log odds ratios (*batch, k) of theta (*batch, num_parameters)."""
    return contrast_values(graph, parametrization(graph).to_tables(theta), codes)


def _meaning(graph: InteractionHypergraph, reference: Reference | None) -> list[str]:
    """Notes on what the odds ratios compare."""
    named = ", ".join(f"{name} {label}" for name, label in (reference or {}).items())
    against = f"reference level ({named}; of other columns the first)" if named else "first level of its column"
    higher = [note.format("reference" if named else "first") for note in _HIGHER] if graph.order > 2 else []
    return [_MEANING.format(f"the {against}"), *higher]


def notes_on_errors(result: FitResult, covariance: CovarianceKind | None) -> list[str]:
    """What intervals and tests rest on; the first note begins with the word before which their level belongs."""
    kind = result.usual_covariance if covariance is None else covariance
    is_robust = not (isinstance(kind, str) and kind == "model")
    robust = " from robust (sandwich) standard errors" if is_robust else ""
    has_weights = result.data is not None and not result.data.has_whole_counts
    if covariance is None and is_robust:
        robust += ", because the rows have weights" if has_weights else ", as a pseudo-likelihood needs"
    notes = list[str]()
    if result.penalty is None:
        notes.append(f"{INTERVALS} and Wald tests{robust}")
        rough = rough_terms(result) if result.objective == "likelihood" else []
        if rough:
            shown = ", ".join(rough[:_SHOWN]) + (f" and {len(rough) - _SHOWN} more" if len(rough) > _SHOWN else "")
            notes.append(f"p-values are rough, because the expected counts are small: {shown}")
    else:  # a test of zero would ask of a prior that says otherwise
        notes.append(f"{INTERVALS} by a normal approximation of the posterior at its mode{robust}")
        # Of a penalty that differs by interaction the numbers are for programs.
        many = isinstance(result.penalty, InteractionRidge)
        penalty = "normal priors, one for every interaction" if many else repr(result.penalty)
        notes.append(f"the estimates are drawn towards zero by {penalty}")
    if has_weights:
        size = f"weights that add up to {result.num_rows:g}; effective rows (Kish): {result.effective_num_rows:.0f}"
        notes.append(size if is_robust else f"{size}; covariance='robust' takes them for survey weights")
    return notes


def contrasts_of_file(file: ModelFile, reference: Reference | None = None) -> Contrasts:
    """Log odds ratios of a model from its file: those that the file keeps, else estimates without an error."""
    check_reference(reference, file.info.get("is_restricted", False))
    stored = file.info.get("odds_ratios")
    if stored is not None and reference is None:
        return Contrasts.from_json(stored)
    learned = _learned_fit(file)
    if isinstance(learned, FitResult):
        contrasts = contrasts_of_fit(learned, level=STORED_LEVEL, reference=reference)
        rows = file.info.get("effective_rows")
        weighted = [] if rows is None else [note.format(rows) for note in _WEIGHTED]
        return replace(contrasts, notes=(*contrasts.notes[:-1], *_CHOSEN, *weighted))
    graph = file.hypergraph
    codes = reference_codes(graph.domain, reference)
    terms, levels = comparisons(graph, codes)
    estimate = contrast_values(graph, file.finite.tables, codes).detach().numpy()
    rows = contrast_frame(terms, levels).assign(estimate=estimate, std_error=math.nan, limit=math.nan, p_value=math.nan)
    lost = [":".join(row["edge"]) for row in file.info.get("infinite_interactions", []) if not row.get("is_declared")]
    rows.loc[rows["term"].isin(lost), "estimate"] = math.nan
    if file.structural_zeros is not None:
        rows["exists"] = are_possible_in_file(file, partial(_values, graph, codes))
        rows.loc[~rows["exists"], "estimate"] = math.nan
    has_others = stored is not None and stored["has_errors"]
    why = "the model file keeps those against the first levels alone" if has_others else learned
    notes = [*_meaning(graph, reference), f"no standard errors: {why}"]
    return Contrasts(rows, STORED_LEVEL, tuple(notes), False, False)


def are_possible_in_file(file: ModelFile, functions: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
    """Which functions of theta, to (k,) and batched, the possible states of a model file determine, (k,)."""
    graph = file.hypergraph
    design = design_matrix(graph) if design_entries(graph) <= SMALL_ENTRIES else None
    restriction, zeros = restriction_of(file), file.structural_zeros
    return are_possible_comparisons(graph, zeros, design, restriction, functions).numpy()


def _learned_fit(file: ModelFile) -> FitResult | str:
    """A learned model as the penalised fit of its interactions; or why it has no covariance at hand."""
    info, ridge = file.info, file.info.get("ridge")
    if conditional := conditional_words(file):
        return conditional
    if ridge is None or "learned_edges" not in info:
        return "the model does not keep them"
    if info.get("trainer") == "pseudo-likelihood":
        return "a model learned by pseudo-likelihood has none"
    graph = InteractionHypergraph(file.domain, info["learned_edges"], hierarchical=False)
    if problem := size_problem(graph):
        return problem
    tables = parametrization(file.hypergraph).split(file.finite.tables.detach())
    codings = parametrization(graph)
    theta = codings.from_tables(codings.join({edge: tables[edge] for edge in graph.edges}))
    return FitResult(
        graph, theta, None, None, info.get("effective_rows") or info["rows"], "converged", 0, math.nan, None,
        "likelihood", "learn", penalty=InteractionRidge.from_json(ridge), _design=design_matrix(graph),
    )  # fmt: skip


# The finite end of the interval of an infinite log odds ratio, by its profile likelihood.

_MAX_WORK = 2**21  # cells times squared parameters, one Newton step
_MAX_CONTRASTS = 20
_MAX_STEPS = 60
_FAR = 40.0  # nats


def profile_limits(result: FitResult, contrasts: np.ndarray, signs: np.ndarray, level: float) -> np.ndarray:
    """Finite limits and p-values (k, 2) of infinite functions (k, num_parameters) of theta; NaN where there are none.

    The p-value is that of the likelihood-ratio test of zero. Weights count as Kish's effective number of rows.

    References:
        David Venzon and Suresh Moolgavkar, A method for computing profile-likelihood-based confidence intervals, 1988.
    """
    limits = np.full((len(signs), 2), math.nan)
    design = result._design
    has_missing = result.data is not None and result.data.has_missing
    if design is None or has_missing or result.penalty is not None or result.objective != "likelihood":
        return limits
    cells = np.ones(len(design), dtype=bool) if result.possible is None else result.possible
    space = np.eye(design.shape[1]) if result.restriction is None else result.restriction.basis
    if cells.sum() * space.shape[1] ** 2 > _MAX_WORK:
        return limits
    # The likelihood needs the fitted statistics alone, which are those of the rows.
    design, statistics = design[cells] @ space, result.mean_statistics.numpy() @ space
    probs = result.probs.numpy()
    best = float((probs[probs > 0] * np.log(probs[probs > 0])).sum())
    for row in np.flatnonzero(signs)[:_MAX_CONTRASTS]:
        profile = _Profile(design, statistics, signs[row] * (contrasts[row] @ space))
        scale, threshold = 2 * result.effective_num_rows, float(ndtri((1 + level) / 2)) ** 2

        def excess(value: float, profile: _Profile = profile, scale: float = scale, less: float = threshold) -> float:
            return scale * (best - profile.loglikelihood(value)) - less

        low = -1.0
        while excess(low) < 0 and low > -_FAR:
            low *= 2
        high = low + 1.0
        while excess(high) > 0 and high < _FAR:
            high += 2.0
        if excess(low) > 0 > excess(high):
            limits[row, 0] = signs[row] * scipy.optimize.brentq(excess, low, high, xtol=1e-9)
            limits[row, 1] = 2 * float(ndtr(-math.sqrt(max(0.0, excess(0.0) + threshold))))
    return limits


class _Profile:
    """The mean log-likelihood at the best theta with a given value of one contrast, which starts where it ended."""

    def __init__(self, design: np.ndarray, statistics: np.ndarray, contrast: np.ndarray) -> None:
        length = float(np.linalg.norm(contrast))
        rest = np.linalg.svd(contrast[None] / length)[2][1:].T
        self.along, self.design = design @ contrast / length**2, design @ rest
        self.along_statistic, self.statistics = float(statistics @ contrast) / length**2, statistics @ rest
        self.free = np.zeros(rest.shape[1])

    def _at(self, value: float, free: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean log-likelihood and probabilities of the cells."""
        logits = value * self.along + self.design @ free
        top = float(logits.max(initial=-math.inf))
        weights = np.exp(logits - top)
        log_z = top + math.log(weights.sum())
        return value * self.along_statistic + float(self.statistics @ free) - log_z, np.exp(logits - log_z)

    def loglikelihood(self, value: float) -> float:
        """Maximum over the other directions, in which it may be a supremum: Newton's steps, halved until they rise."""
        free, (best, probs) = self.free, self._at(value, self.free)
        for _ in range(_MAX_STEPS):
            mean = probs @ self.design
            gradient = self.statistics - mean
            hessian = (self.design * probs[:, None]).T @ self.design - np.outer(mean, mean)
            ridge = 1e-12 * max(float(np.trace(hessian)), 1e-12)
            step = np.linalg.solve(hessian + ridge * np.eye(len(free)), gradient)
            rise = float(gradient @ step)
            if rise < 1e-11:
                break
            length = 1.0
            while length > 1e-6:
                moved = free + length * step
                level, other = self._at(value, moved)
                if level > best:
                    free, best, probs = moved, level, other
                    break
                length /= 2
            else:
                break
        self.free = free
        return best
