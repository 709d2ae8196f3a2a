"""What the report of a learned model says, as sentences, tables and pictures. Nothing is computed here but formats."""

from __future__ import annotations

import math
from typing import Any

from ..core.page import Cell, Page, Section, cell
from ..core.words import (
    amount_text,
    coefficient,
    distinct_sentence,
    fixed,
    gain_sentence,
    number,
    parameters_text,
    plural,
    possible_rows,
)
from ..data.order import ordinal_orders
from ..log_linear.annealed.importance import AnnealedImportance
from ..log_linear.search.figures import capacity_figure
from ..plots.drawing import figure_of
from ..plots.hypergraph import plot_hypergraph
from ..plots.pairs import pair_matrix, plot_pairs
from .learned import LearnedAnalysis, structure_section, structure_sentences
from .parts import KL_EXPLAINED, SCORES_EXPLAINED, distinct_parts, num_rows, score_section, split_section

__all__ = ["learned_page"]

_FIRST, _BRIEF = 20, 12
_NOTABLE = 0.01  # nats a row
_DRAWN = 60
_MATRIX = 60
_STATUS = {
    "stopped early": "the validation rows gained nothing more",
    "exhausted": "no set of variables was left that promised a gain",
    "little gain": "the interactions added last brought little for their number",
    "max_rounds": "the number of rounds that was asked for was reached",
    "undecided": "several rounds could not be told apart within the error of log Z",
    "diverged": "training of a larger collection diverged",
    "time limit": "the time limit was reached",
}


def learned_page(analysis: LearnedAnalysis) -> Page:
    """The page of a learned model.

    Example:
        >>> from pyro_hoim import Domain, Observations, learn
        >>> from pyro_hoim.study import analyse_learned
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> page = learned_page(analyse_learned(learn(rows, rows), {"train": rows}, title="pairs"))
        >>> page.title, page.rows["train"]
        ('What was learned from pairs', 100.0)
    """
    sections = [
        _scores(analysis),
        split_section({"learned": analysis.parts}) if _shows_kl(analysis) else None,
        _structure(analysis),
        _interactions(analysis),
        structure_section(analysis),
        _capacity(analysis),
        _making(analysis),
    ]
    return Page(
        title=f"What was learned from {analysis.title.replace('_', ' ')}",
        rows=num_rows(analysis.parts),
        names=analysis.model.hypergraph.domain.names,
        summary=_summary(analysis),
        warnings=_warnings(analysis),
        about=analysis.about,
        sections=[section for section in sections if section is not None],
        seed=analysis.seed,
        has_weights=analysis.has_weights,
    )


def _summary(analysis: LearnedAnalysis) -> list[str]:
    """A few sentences that answer the reader's question."""
    learned = analysis.model
    graph = learned.hypergraph
    domain = graph.domain
    by_order = [sum(len(edge) == k for edge in graph.edges) for k in range(2, graph.order + 1)]
    words = ["pair", "triple", "quadruple"]
    listed = [
        plural(count, words[i]) if i < len(words) else f"{plural(count, 'set')} of {i + 2}"
        for i, count in enumerate(by_order)
        if count
    ]
    sentences = [
        (
            f"{analysis.title}: {' and '.join(listed) if listed else 'no interaction'}, with "
            f"{parameters_text(analysis.num_parameters_fitted, graph.num_parameters)}, estimated from "
            f"{amount_text(learned.num_rows, analysis.has_weights)} of {plural(len(domain), 'variable')} "
            f"({possible_rows(domain.num_states)})."
            f"{_loss_sentence(analysis)}"
        )
    ]
    judged = analysis.held[analysis.judged_on]
    sentences.insert(0, gain_sentence(analysis.judged_on, "model", judged.gain, judged.gain_std_error))
    selection = learned.selection
    if selection is not None:
        reason = _STATUS.get(selection.status, selection.status)
        best = selection.rounds[selection.best_round]
        sentences.append(
            f"The search tried {plural(len(selection.rounds), 'collection')} of interactions and kept number "
            f"{selection.best_round} "
            f"({plural(best.num_interactions, 'interaction')}); it ended because {reason}."
        )
    sentences.extend(structure_sentences(analysis))
    sentences.append(_log_z_sentence(analysis))
    return sentences


def _loss_sentence(analysis: LearnedAnalysis) -> str:
    """Without how many interactions the model loses much; of bounds only what these say."""
    valued = [line["removal"] for line in analysis.interactions if line["removal"] is not None]
    if not valued:
        return ""
    many, of = sum(value.value >= _NOTABLE for value in valued), plural(len(valued), "interaction")
    if all(value.kind == "exact" for value in valued):
        return f" Without it the model loses {_NOTABLE} nats a row or more for {many} of {of}."
    return (
        f" For {len(valued) - many} of {of} the loss without it is less than {_NOTABLE} nats a row, by an estimated "
        "upper bound."
    )


def _log_z_sentence(analysis: LearnedAnalysis) -> str:
    log_z = analysis.model.log_partition
    if log_z.kind == "exact":
        return (
            "Gradients, log Z and likelihoods are exact."
            if analysis.model.trainer == "exact"
            else ("Log Z and likelihoods are exact.")
        )
    error = float(log_z.std_error)
    shown = f"standard error {error:.2g}" if math.isfinite(error) else "no error bar"
    return (
        f"Log Z, the normalising constant, is estimated by annealed importance sampling: {float(log_z.value):.3f} "
        f"nats, {shown}; likelihoods and gains carry its error, which their standard errors over rows leave out; "
        "predictions do not. The estimate is "
        f"{log_z.verdict}: {_MEANING[log_z.verdict]}."
    )


_MEANING = {
    "verified": "its limits hold with the stated probability",
    "consistent": "every check that could be made agrees; states that no run has visited would not show",
    "unreliable": "a check failed, or the runs support no error bar",
}


def _shows_kl(analysis: LearnedAnalysis) -> bool:
    """Whether KL says anything: some part has rows that are alike."""
    return len(distinct_parts(analysis.held)) < len(analysis.held)


def _warnings(analysis: LearnedAnalysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    learned = analysis.model
    warnings: list[str] = []
    if learned.training.status == "diverged":
        warnings.append("Training diverged; the parameters are those of the last step before.")
    log_z = learned.log_partition
    if log_z.verdict == "unreliable":
        warnings.append(f"The estimate of log Z is unreliable: {' '.join(log_z.notes) or 'no reason is known'}")
    if learned.refit:
        warnings.append(
            "The final parameters were fitted to the training and validation rows together, so the scores of both are "
            "those of rows the model has seen."
        )
    return warnings


def _loss_without(removal: Any) -> Cell:
    """What the model loses without an interaction, with its error."""
    if removal is None:
        return cell(None)
    value = float(removal.value)
    if removal.kind == "exact":
        return Cell(number(value if abs(value) > 1e-12 else 0.0), value)
    return cell(value, fixed, float(removal.std_error), before="≤ ")


def _scores(analysis: LearnedAnalysis) -> Section:
    names = distinct_parts(analysis.held)
    columns, explained, notes = {}, "", [distinct_sentence(names)] if names else []
    if _shows_kl(analysis):
        columns = {"KL": "model", "KL independent": "independent", "KL of one-body": "one_body"}
        explained = f" {KL_EXPLAINED} One-body: a model of single variables alone, under the penalty."
    elif names:
        notes = ["All rows are distinct: KL, which then is NLL - log(rows) and says nothing about fit, is left out."]
    return score_section(
        "How well it describes rows",
        analysis,
        columns,
        f"{SCORES_EXPLAINED} Independent columns are smoothed frequencies.{explained}",
        notes,
    )


def _capacity(analysis: LearnedAnalysis) -> Section | None:
    selection = analysis.model.selection
    if selection is None:
        return None
    section = Section("The search")
    curve = selection.capacity_curve()
    measure, what = ("kl", "Divergence from") if _shows_kl(analysis) else ("loss", "Mean loss of")
    drawable = curve[f"validation_{measure}"].to_numpy(dtype=float)
    if len(curve) > 1 and bool((drawable > 0).any()):
        section.figure(
            capacity_figure({"capacity curve": curve}, measure=measure),
            f"{what} training and validation rows against the parameters of the family, round by round",
        )
    columns = ["round", "interactions", "parameters of the family", "training loss", "validation loss"]
    rows: list[list[object]] = []
    for r in selection.rounds:
        error = r.validation_std_error or None
        losses = [cell(r.train_loss), cell(r.validation_loss, error=error, write_error="{:.2g}".format)]
        sizes = [r.number, r.num_interactions, r.num_parameters]
        rows.append([*sizes, *losses, r.verdict, cell(r.seconds, "{:.1f}".format)])
    section.table([*columns, "verdict", "seconds"], rows, chosen=selection.best_round)
    section.note(
        "Each round adds interactions or changes their penalties, and is judged by the loss on the validation rows: "
        "the mean of minus the log-probability of a row. The picture, a capacity curve, shows whether more parameters "
        "still help on rows that were not fitted. The best set of interactions was then trained longer."
    )
    return section


def _structure(analysis: LearnedAnalysis) -> Section | None:
    lines = [line for line in analysis.interactions if line["removal"] is not None]
    if not lines:
        return None
    section = Section("Structure")
    graph = analysis.model.hypergraph
    weights = {tuple(line["edge"]): max(0.0, float(line["removal"].value)) for line in lines}
    if len(graph.domain) <= _DRAWN:
        section.figure(
            figure_of(plot_hypergraph, graph, weights, unit="nats a row"),
            "Variables on a circle; the wider an arc, the more the model loses without the pair; larger sets are "
            "regions or stars",
        )
    if len(graph.domain) <= _MATRIX:
        matrix = pair_matrix(graph, weights)
        section.figure(
            figure_of(plot_pairs, matrix, label="loss without the pair, nats a row"), "The pairs as a matrix"
        )
    if section.blocks:
        words = (
            "Widths and colours show the log-likelihood, in nats a row, that the model loses without an interaction"
            + ("." if all(line["removal"].kind == "exact" for line in lines) else " (an estimated upper bound).")
        )
    else:
        words = "With so many variables the pictures are left out."
    section.note(words)
    return section


def _interactions(analysis: LearnedAnalysis) -> Section | None:
    lines = analysis.interactions
    if not lines:
        return None
    section = Section("Interactions")

    rows = [
        [
            ":".join(line["edge"]),
            _loss_without(line["removal"]),
            cell(line["strength"]),
            cell(line["coefficient"], coefficient),
            ", ".join(line["levels"]),
            line["ridge"],
        ]
        for line in lines
    ]
    columns = ["interaction", "loss without it", "strength", "coefficient", "levels", "penalty"]
    section.table(columns, rows, first=_FIRST, further="Further interactions", brief=_BRIEF)
    kinds = {line["removal"].kind for line in lines if line["removal"] is not None}
    meaning = (
        "; it is exact"
        if kinds == {"exact"}
        else "; ≤: an upper bound, where only the interactions inside it are fitted again, to rows drawn from the model"
    )
    section.note(
        "Loss without it: log-likelihood, in nats a row, that the model loses when the interaction and all that "
        "contain it are "
        f"removed{meaning}. Strength: root mean square of its coefficients. Coefficient: the largest of them, at the "
        "levels named; a positive one makes this combination more probable than smaller interactions do. Penalty: "
        "strength of the ridge penalty that shrinks it, large where the rows do not support it."
    )
    return section


def _making(analysis: LearnedAnalysis) -> Section:
    learned = analysis.model
    section = Section("How it was estimated")
    section.text(_log_z_sentence(analysis))
    log_z = learned.log_partition
    if log_z.kind != "exact":
        limits = f"{_limit(log_z.lower)} to {_limit(log_z.upper)}"
        rows: list[list[object]] = [
            ["log Z", _with_error(log_z.value, log_z.std_error)],
            [f"one-sided limits, {AnnealedImportance.level:.0%} each", limits],
            ["effective chains", "–" if log_z.ess is None else f"{float(log_z.ess):.4g}"],
            ["verdict", log_z.verdict],
        ]
        if log_z.sandwich is not None:
            s = log_z.sandwich
            rows.append(["check: a forward run", _with_error(s.forward, s.forward_error)])
            rows.append(["check: a reverse run", _with_error(s.reverse, s.reverse_error)])
        section.table(["quantity", "value"], rows)
        if log_z.sandwich is not None:
            section.note(
                "The runs of the check are separate and shorter, so log Z may lie outside the two. A run without an "
                "error bar is no check. All are in nats."
            )
    training = learned.training
    status = training.status.replace("_", " ")
    section.text(
        f"Training: {learned.trainer} gradients, {plural(training.num_iterations, 'step')}, {status}, largest "
        f"gradient entry {training.gradient_norm:.2g}. Time: "
        + ", ".join(f"{stage.replace('_', ' ')} {value:.1f} s" for stage, value in learned.seconds.items())
        + f"; together {sum(learned.seconds.values()):.1f} s."
    )
    orders = ordinal_orders(learned.hypergraph.domain) if learned.ridge.smoothness > 0 else {}
    notes = [f"Neighbouring levels of {name} are taken to be alike: {order.shown}." for name, order in orders.items()]
    for words in (*notes, *learned.notes):
        section.note(words)
    return section


def _with_error(value: Any, error: Any) -> str:
    return f"{float(value):.4f} " + (f"± {float(error):.2g}" if math.isfinite(error) else "(no error bar)")


def _limit(value: Any) -> str:
    return f"{float(value):.4f}" if math.isfinite(value) else "unknown"
