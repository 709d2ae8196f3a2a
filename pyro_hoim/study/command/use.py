"""Answers about a log-linear model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from scipy.special import ndtri

from ...annealing.runs import chosen_rows
from ...budgets import MAX_SWEEPS
from ...core.command.answers import (
    accuracy_by_part,
    by_part,
    describe_log_z,
    drawn_rows,
    figure_line,
    is_default_log_z,
    log_partition_json,
    log_z_json,
    log_z_of,
    not_completed,
    prediction_answer,
    rows_by_part,
)
from ...core.command.options import LARGEST_SEED
from ...core.command.rows import warn_of_ranks
from ...core.family import Answer, Option, Question, Stored
from ...core.partition import LogPartition
from ...core.prediction import Prediction
from ...core.rows import ClampedGibbs
from ...core.scores import RowLogLikelihood
from ...core.words import (
    columns_of,
    fixed,
    gain_sentence,
    num_states_text,
    number,
    option,
    plain,
    plural,
    short_edge,
    whole,
)
from ...data.observations import Observations
from ...errors import IntractableError, check_choice, check_fraction, conflict, out_of_reach, refused, size_text
from ...information.removal import RemovalValue, removal_values
from ...log_linear.annealed.importance import ADVICE, AnnealedImportance
from ...log_linear.auto import Auto
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.exact.elimination import VariableElimination
from ...log_linear.fitting.duration import check_duration
from ...log_linear.fitting.fit import fit
from ...log_linear.fitting.incomplete import fit_incomplete, row_log_likelihood
from ...log_linear.fitting.result import FitResult
from ...log_linear.given import impossible_rows, impute, possible_draws, predict as predict_rows
from ...log_linear.goodness.goodness_of_fit import GoodnessOfFit
from ...log_linear.impossible import walled
from ...log_linear.infinite import with_infinite
from ...log_linear.named_priors import Prior
from ...log_linear.restricted.interactions import RestrictedInteractions, graph_of
from ...log_linear.restricted.terms import interactions_of
from ...log_linear.scores import gain_over_columns, interaction_table, row_log_pseudo_prob, score_rows
from ...structure.hypergraph import InteractionHypergraph
from ..analysis import Analysis, finite_contrast_lines
from ..files import STRUCTURE_FILE

__all__ = [
    "GAINS",
    "SCORES",
    "complete",
    "draw",
    "estimate",
    "interactions",
    "log_z",
    "predict",
    "score",
    "score_each_row",
    "summary",
]


# A log-linear model from rows in memory, and the log-likelihood of rows.

_MOST_FLOPS, _MOST_SUMS = 2**20, 2**24
_QUICK = Auto(elimination=VariableElimination(max_operations=2**28))
"""Log Z where it takes about a second."""


def estimate(
    rows: Observations,
    *,
    order: int | None = None,
    edges: str | Iterable[Iterable[str]] | None = None,
    prior: str = "unit",
    objective: Literal["auto", "likelihood", "pseudo-likelihood"] = "auto",
    seed: int = 0,  # noqa: ARG001 (nothing is random)
) -> FitResult:
    """Given interactions: all of up to ``order`` variables (2), or ``edges`` as a formula or sets of names, closed.

    A formula may hold functions such as ``linear(a)`` (:func:`~pyro_hoim.log_linear.restricted_interactions`).
    With the objective ``auto`` complete rows are fitted by likelihood where log Z takes up to 2^20 operations, else by
    pseudo-likelihood; missing cells are summed over, which needs an exact likelihood. Unlike a fit for its tests, the
    estimate is finite by default: ``prior`` is ``unit``, and ``none`` is maximum likelihood.
    """
    check_choice(objective, ("auto", "likelihood", "pseudo-likelihood"), "objective")
    domain = rows.domain
    if edges is None:
        structure = InteractionHypergraph.from_order(domain, min(2, len(domain)) if order is None else order)
    elif order is not None:
        raise conflict("order, edges", "at most one of them says the interactions")
    elif isinstance(edges, str):
        structure = interactions_of(domain, edges)
        if isinstance(structure, RestrictedInteractions):
            warn_of_ranks(structure.orders)
    else:
        structure = InteractionHypergraph(domain, edges, closure=True)
    graph = graph_of(structure)
    cost, penalty = Auto().plan(graph), Prior.parse(prior).penalty(graph)
    if rows.has_missing:
        if objective == "pseudo-likelihood":
            raise conflict("objective", "a pseudo-likelihood needs complete rows", 'give "likelihood" or "auto"')
        if cost.feasible and cost.flops > _MOST_SUMS:
            problem = f"to sum over them needs log Z of {size_text(int(cost.flops), 'operations')} at every step"
            raise out_of_reach("missing cells", problem, "leave out their rows, or use fewer interactions or levels")
        return fit_incomplete(structure, rows, penalty=penalty)
    if objective == "auto":
        objective = "likelihood" if cost.feasible and cost.flops <= _MOST_FLOPS else "pseudo-likelihood"
    elif objective == "likelihood":
        check_duration(graph)
    quick = _QUICK if objective == "pseudo-likelihood" else None
    return fit(structure, rows, penalty=penalty, objective=objective, partition=quick)


def score_each_row(stored: Stored, rows: Observations, pseudo: bool = False) -> RowLogLikelihood:
    """Log-likelihood of every row; log pseudo-likelihood on demand and where log Z takes longer than about a second."""
    energy: LogLinearEnergy = stored.model.energy
    if not pseudo and _QUICK.plan(energy.hypergraph).feasible:
        return RowLogLikelihood(row_log_likelihood(energy, rows))
    return RowLogLikelihood(row_log_pseudo_prob(energy, rows), "pseudo-likelihood")


# The keys of ``fit.json`` of given interactions.

SCORES = {"kl": "model.kl", "nll": "model.nll", "pseudo_nll": "model.pseudo_nll", "independent_kl": "independent.kl"}
GAINS = {"gain": "gain", "gain_std_error": "gain_std_error"}


def _goodness_json(test: GoodnessOfFit | None) -> dict[str, Any] | None:
    """The keys of a test against the saturated model, None where the table is too large or cells are missing."""
    if test is None:
        return None
    names = ("method", "statistic", "pearson", "note")
    return {
        **{name: getattr(test, name) for name in ("deviance", "pearson", "p_value", "num_tables")},
        **{f"p_value_{name}": getattr(test, f"p_value_{name}") for name in names},
        "df": test.df_adjusted,
        "p_value_std_error": test.p_value_std_error if test.num_tables else None,
    }


def summary(analysis: Analysis, folder: Path) -> dict[str, Any]:
    """The keys of ``fit.json``."""
    chosen = analysis.chosen
    structure, parts = chosen.hypergraph, chosen.parts
    found: dict[str, Any] = {
        "num_variables": len(structure.domain),
        "num_states": num_states_text(structure.domain.num_states),
        "num_interactions": structure.num_interactions,
        "num_parameters": chosen.fit.num_parameters_fitted,
        "edges": [list(edge) for edge in structure.edges],
        "log_partition": log_partition_json(chosen.log_partition),
        "rows": rows_by_part(parts, "model.rows"),
        "impossible_rows": rows_by_part(parts, "impossible_rows"),
        **by_part(parts, **SCORES, **GAINS),
        "goodness_of_fit": _goodness_json(chosen.goodness),
        "goodness_of_fit_reason": analysis.no_goodness,
        "prior": str(analysis.prior or "none"),
        "status": chosen.fit.status,
        "mle_exists": None if chosen.fit.existence is None else chosen.fit.existence.exists,
        **chosen.infinite_json,
    }
    if chosen.uncertainty is not None:
        found |= chosen.uncertainty.to_json()
    if any(part and part.accuracy for part in parts.values()):
        found["accuracy"] = accuracy_by_part(parts)
    if len(analysis.models) > 1 or chosen.goodness is not None:
        found["models"] = analysis.comparison_records()
    if len(analysis.models) > 1:
        found["nested_tests"] = list(analysis.nested_tests)
    if chosen.posterior is not None:
        found["posterior"] = {
            "file": str(folder / "posterior.nc"),
            "prior": str(chosen.posterior.prior),
            "max_r_hat": chosen.posterior.max_r_hat,
            "min_ess_bulk": chosen.posterior.min_ess_bulk,
            "divergences": chosen.posterior.num_divergences,
        }
    if analysis.structures is not None:
        found["structure_posterior"] = analysis.structures.to_json(str(folder / STRUCTURE_FILE))
    if analysis.constrained is not None:
        found["penalty"] = analysis.constrained.to_json()
    return found


_PORTION = 1024  # rows drawn between two steps of the progress bar
_EDGE, _LEVELS = 48, 32  # characters
_OF_PART = ("gain", "gain_std_error", "nll", "pseudo_nll")

MOST_PROBABLE = Option("most_probable", "With {complete}: the most probable cells instead of draws.", kind="flag")
INTERACTIONS_OPTIONS = (
    Option(
        "information",
        "Also find what the model loses without each interaction.",
        kind="switch",
        default=True,
    ),
    Option(
        "samples",
        "Rows drawn from a large model to estimate that loss.",
        kind="whole",
        low=100,
        high=MAX_SWEEPS,
        default=4096,
        metavar="N",
    ),
    Option("level", "Coverage of the intervals of coefficients.", kind="number", high=1, default=0.95),
    Option("seed", "Seed of those rows.", kind="whole", low=0, high=LARGEST_SEED, default=0),
)


def draw(question: Question) -> Answer:
    """Rows given some columns, exact or by Gibbs."""
    energy, number, evidence = question.stored.model.energy, question["number"], question["given"]
    known = torch.tensor([[evidence.get(name, -1) for name in energy.domain.names]], dtype=torch.long)
    if bool(impossible_rows(energy, known)):
        cells = ", ".join(f"{name}={energy.domain[name].labels[code]}" for name, code in evidence.items())
        problem = f"{cells} has probability zero in the model"
        other = "" if question.stored.info.get("has_structural_zeros") else f", or fit with {option('prior', 'unit')}"
        raise refused("given", problem, f"give other values{other}", code="impossible")
    rest, _ = energy.condition(evidence)
    drawn, notes = _drawn(rest, question)
    codes = known.repeat(number, 1)
    for column, name in enumerate(energy.domain.names):
        if name not in evidence:
            codes[:, column] = drawn[:, rest.domain.index(name)]
    return Answer(frame=Observations.from_tensor(codes, energy.domain).to_pandas(count=None), notes=notes)


def _drawn(energy: LogLinearEnergy, question: Question) -> tuple[torch.Tensor, list[str]]:
    """Rows (number, d), exact or by Gibbs, the latter with a note."""
    number, method, burn_in = question["number"], question["method"], question["burn_in"]
    generator = torch.Generator().manual_seed(question["seed"])
    cost = Auto().plan(energy.hypergraph)
    if not len(energy.domain):
        return torch.zeros((number, 0), dtype=torch.long), []
    if cost.feasible and method != "gibbs":
        return Auto().sample(energy, (number,), generator), []
    if method == "exact":
        gibbs, given = option("method", "gibbs"), option("given")
        raise IntractableError(
            cost.reason, hint=f"{gibbs} draws approximately, at any size, or fix columns with {given}"
        )
    backend = AnnealedImportance() if burn_in is None else AnnealedImportance(burn_in=burn_in)

    def by_chains(finite: LogLinearEnergy, wanted: torch.Tensor) -> torch.Tensor:
        parts: list[torch.Tensor] = []
        with drawn_rows(question, "gibbs") as advance:
            for portion in wanted.split(_PORTION):
                parts.append(backend.sample(finite, (len(portion),), generator))
                advance(len(portion))
        return torch.cat(parts)

    told = (
        "the rows are approximate: each is the state of a Gibbs chain of its own, annealed and then burnt in by "
        f"{backend.burn_in} sweeps; compare with a longer {option('burn_in')}"
    )
    return possible_draws(energy, number, by_chains), [told]


def complete(question: Question) -> Answer:
    """Completions of rows; those whose known cells have probability zero stay as they are."""
    found = impute(
        question.stored.model.energy,
        question.rows,
        question["number"],
        how="most probable" if question["most_probable"] else "draws",
        method=question["method"],
        gibbs=ClampedGibbs() if question["burn_in"] is None else ClampedGibbs(burn_in=question["burn_in"]),
        seed=question["seed"],
    )
    approximate = int((~found.is_exact & found.is_completed).sum())
    notes = [*_note_chains(approximate, "filled"), *not_completed(found)]
    return Answer(frame=found.to_pandas(), notes=notes)


def _note_chains(count: int, verb: str) -> list[str]:
    """A note on rows that needed Markov chains."""
    if not count:
        return []
    miss, are = ("misses", "it is") if count == 1 else ("miss", "they are")
    told = (
        f"{plural(count, 'row')} {miss} so many cells that {are} {verb} approximately, by Gibbs chains that hold the "
        f"known cells; {option('method', 'exact')} refuses instead"
    )
    return [told]


def log_z(question: Question, starts: torch.Tensor | None = None) -> LogPartition:
    """Log Z of the family's tables; ``auto`` prefers exact to what the file keeps, estimates look from starts."""
    stored = question.stored.model
    kept = stored.log_partition if is_default_log_z(question) else None
    if kept is not None and not Auto().plan(stored.hypergraph).feasible:
        found = replace(kept, method=f"{kept.method}, as the model file holds it")
    else:
        energy = walled(stored.energy) if question["method"] == "ais" else stored.energy
        found = log_z_of(question, energy, AnnealedImportance, Auto(), starts)
    more = f"try more {option('temperatures')} or {option('chains')}; in Python there are block moves and resampling"
    return replace(found, notes=tuple(note.replace(ADVICE, f"{more} as well") for note in found.notes))


def score(question: Question) -> Answer:
    """Gain over independent columns, NLL and pseudo-NLL."""
    stored, rows = question.stored, question.rows
    energy: LogLinearEnergy = stored.model.energy
    starts = None
    if question["method"] == "ais":
        merged = rows.drop_missing().unique()
        starts = chosen_rows(merged.codes, merged.counts)
    log_z_found = log_z(question, starts)
    value = float(log_z_found.value)
    shares: dict[str, list[float]] | None = stored.info.get("independent")

    def figures(part: Observations) -> dict[str, Any]:
        found = score_rows(energy, part, log_z=value)
        gain, error = (None, None) if shares is None else gain_over_columns(energy, part, value, shares)
        return {
            "rows": whole(found.rows),
            "impossible_rows": whole(float(part.counts[impossible_rows(energy, part.codes)].sum())),
            "gain": gain,
            "gain_std_error": error,
            "nll": found.nll,
            "kl": found.kl,
            "nll_std_error": found.nll_std_error,
            **log_z_json(log_z_found),
            "pseudo_nll": found.pseudo_nll,
        }

    found = figures(rows)
    if shares is None:
        first = "The gain over independent columns is not known: the model file does not hold their frequencies."
    else:
        first = gain_sentence("file's", "model", found["gain"], found["gain_std_error"])
    lines = [first, f"rows                {rows.total_count:g}"]
    lines += question.left_out("with them the NLL would be infinite")
    if found["impossible_rows"]:
        number = found["impossible_rows"]
        lines.append(f"impossible rows     {number:g} (a combination that the model gives probability zero)")
    lines.append(figure_line("NLL per row", found["nll"], error=found["nll_std_error"]))
    lines.append(figure_line("pseudo-NLL per row", found["pseudo_nll"]))
    lines += describe_log_z(log_z_found) if log_z_found.kind != "exact" else []
    return Answer(
        json=found,
        lines=lines,
        notes=_unnamed_combinations(stored),
        of_part=lambda part: {name: value for name, value in figures(part).items() if name in _OF_PART},
        shown=["nll"] if shares is None else ["gain", "nll"],
    )


def predict(question: Question) -> Answer:
    """A column of rows."""
    energy, target = question.stored.model.energy, question["target"]

    def predicted(part: Observations) -> Prediction:
        return predict_rows(energy, part, target, method=question["method"], seed=question["seed"])

    found = predicted(question.rows)
    approximate = int((~found.is_exact & found.is_predicted).sum())
    return prediction_answer(question, found, predicted, approximate, _note_chains(approximate, "predicted"))


def interactions(question: Question) -> Answer:
    """Interactions by strength, with what the model loses without them."""
    energy: LogLinearEnergy = question.stored.model.finite
    rows: list[dict[str, Any]] = with_infinite(
        interaction_table(energy), question.stored.info.get("infinite_interactions", [])
    )[: question["top"]]
    # Information is not defined for corner families, nor where structural zeros outlast every interaction.
    has_zeros = question.stored.info.get("has_structural_zeros", False)
    if has_zeros and question["information"] and "information" in question.given:
        raise out_of_reach("information", "it is not defined for models with structural zeros", code="no-method")
    information = question["information"] and not has_zeros and energy.hypergraph.coding != "corner"
    if information and rows:
        wanted = [row["edge"] for row in rows]
        values = removal_values(energy, wanted, num_samples=question["samples"], seed=question["seed"])
        rows = [{**row, "refined_information": _information(v)} for row, v in zip(rows, values, strict=True)]
    check_fraction(question["level"], "level")
    rows, precise = _with_uncertainty(rows, question.stored.info.get("uncertainty", []), question["level"])
    head = ["interaction", "strength", "coefficient", *precise]
    head += [*(["information"] if information else []), "levels"]
    cells = [
        [
            short_edge(row["edge"], _EDGE),
            "infinite" if row["is_infinite"] else fixed(row["value"]),
            plain(number(row["coefficient"])) if row["is_infinite"] else fixed(row["coefficient"], sign=True),
            *(plain(number(row[name])) for name in precise.values()),
            *([_information_text(row["refined_information"])] if information else []),
            short_edge(row["levels"], _LEVELS),
        ]
        for row in rows
    ]
    return Answer({"interactions": rows}, [*columns_of(head, cells), *finite_contrast_lines(rows)])


_PRECISE = {"SE": "std_error", "lower": "lower", "upper": "upper", "p": "p_value", "adjusted p": "p_value_adjusted"}


def _with_uncertainty(
    rows: list[dict[str, Any]], kept: Sequence[Mapping[str, Any]], level: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows with standard error, interval and test where the file keeps them, and the columns to show."""
    held = {tuple(found["edge"]): found for found in kept}
    if not held:
        return rows, {}
    names, width = ("std_error", "df", "statistic", "p_value", "p_value_adjusted"), -ndtri((1 - level) / 2)
    result = list[dict[str, Any]]()
    for row in rows:
        found = held.get(tuple(row["edge"]), {})
        error = found.get("std_error")
        ends = {"lower": None, "upper": None}
        if error is not None:
            ends = {"lower": row["coefficient"] - width * error, "upper": row["coefficient"] + width * error}
        result.append({**row, **{name: found.get(name) for name in names}, **ends})
    is_tested = any(row["p_value"] is not None for row in result)
    return result, {head: name for head, name in _PRECISE.items() if is_tested or not name.startswith("p_")}


def _information(value: RemovalValue) -> dict[str, Any]:
    """The JSON object of a removal value."""
    return {"value": value.value, "std_error": value.std_error, "kind": value.kind}


def _information_text(value: dict[str, Any]) -> str:
    """The number, with <= and its error where it is an estimated bound."""
    if value["kind"] == "exact":
        return fixed(value["value"], 5)
    error = f"{value['std_error']:.1g}" if math.isfinite(value["std_error"]) else "?"
    return f"<={fixed(value['value'])} +-{error}"


def _unnamed_combinations(stored: Stored) -> list[str]:
    """A sentence where a file of an earlier version does not name all combinations."""
    found = len(stored.info.get("infinite_combinations", []))
    total = stored.info.get("num_infinite_combinations", found)
    if total <= found:
        return []
    told = (
        f"the model file names only {found} of {total} combinations of probability zero; rows with one of the others "
        "get a very small probability instead"
    )
    return [told]
