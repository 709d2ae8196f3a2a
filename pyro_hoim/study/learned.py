"""Everything that one report on a learned model shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from typing_extensions import override

from ..core.command.answers import by_part, log_partition_json
from ..core.page import Cell, Section, cell
from ..core.scores import mean_over_rows
from ..core.studies import INDEPENDENT, PARTS, Content, Study, check_part_names
from ..core.words import amount_text, coefficient, fixed, number, parameters_text, plural, possible_rows
from ..data.observations import Observations
from ..data.order import ordinal_orders
from ..information.removal import RemovalValue, removal_values
from ..log_linear.annealed.importance import AnnealedImportance
from ..log_linear.file import ModelFile
from ..log_linear.fitting.design import design_entries
from ..log_linear.fitting.existence import mle_existence
from ..log_linear.fitting.fit import SMALL_ENTRIES
from ..log_linear.given import row_log_weights
from ..log_linear.learning.model import LearnResult
from ..log_linear.scores import interaction_table, prediction_accuracy, score_rows
from ..log_linear.search.figures import capacity_figure
from ..plots.drawing import figure_of
from ..plots.hypergraph import plot_hypergraph
from ..results.answer import odds_answer
from ..results.confirmation import add_tests, confirmation_json, kept_sentence
from ..results.contrasts import pair_odds_ratios
from ..schema import Domain
from .model import PredictivePart, TablePart, held_out, split_of_part, split_section

__all__ = ["LearnedAnalysis", "analyse_learned", "structure_section", "structure_sentences"]


ONE_BODY = "one-body model"
"""Name of trained single variables, which a learned model is set beside."""
_VALUED = 400
_SAMPLES = 4096


@dataclass(frozen=True, eq=False, kw_only=True)
class LearnedAnalysis(Study[TablePart]):
    """A learned model with its scores and interactions, with the attributes of every study.

    Attributes:
        learned: the model, with its structure.
        interactions: sets of two variables or more: ``edge``, ``strength`` (root mean square of the table),
            ``coefficient`` with its ``levels``, the penalty's ``ridge`` and what the model loses without it
            (``removal``), most valuable first.
        target: the column predicted.
        num_parameters_fitted: free parameters of :attr:`model` that the rows it was fitted to identify, as
            :attr:`~pyro_hoim.log_linear.FitResult.num_parameters_fitted`; None where these were not counted.
        num_parameters_predictive: the same of ``learned``.
        prior: that was asked for, in words.
        pairs: odds ratios of the pairs by themselves, in the rows that the page judges on.
    """

    heading: ClassVar[str] = "What was learned from"

    learned: LearnResult
    interactions: tuple[dict[str, Any], ...]
    target: str | None
    num_parameters_fitted: int | None = None
    num_parameters_predictive: int | None = None
    prior: str | None = None
    pairs: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)

    @override
    def odds_ratios(self, level: float = 0.95) -> pd.DataFrame:
        return self.model.odds_ratios(level)

    @property
    @override
    def domain(self) -> Domain:
        """The variables."""
        return self.model.hypergraph.domain

    @property
    def model(self) -> LearnResult:
        """The model that scores and interactions are of: the structure, where there is one."""
        return self.learned if self.learned.structure is None else self.learned.structure

    @override
    def explain_scores(self, section: Section) -> None:
        """What the simpler laws are."""
        section.note("Independent columns are smoothed frequencies; one-body: single variables under the penalty.")

    @override
    def content(self) -> Content:
        """Structure, interactions, their tests, the search and how it went."""
        model = self.model
        table, rows = self.odds_ratios(), amount_text(model.num_rows, self.has_weights)
        only_pairs = all(len(line["edge"]) == 2 for line in self.interactions)
        if "lower" not in table and only_pairs and len(self.pairs):  # of two columns at a time there are intervals
            count = self.held[self.judged_on].scores.rows
            table, rows = self.pairs, f"{amount_text(count, self.has_weights)} ({self.judged_on})"
        confirmation = model.confirmation
        rate = None if confirmation is None else confirmation.false_discovery_rate
        answer = odds_answer(table, rows, target=self.target, confirmed_at=rate)
        return Content(
            answer.sentences,
            [*_warnings(self), *answer.limits],
            [
                answer.section,
                _interactions(self),
                structure_section(self),
                split_section({"learned": self.parts}) if self.shows_kl else None,
                _capacity(self),
                _making(self),
            ],
            answer.picture,
        )

    @override
    def records(self) -> dict[str, ModelFile]:
        """The model, and beside a model with a structure ``predictive``, the richer one."""
        models = (
            {"model": self.model} if self.model is self.learned else {"model": self.model, "predictive": self.learned}
        )
        about = {"name": "learned", "data": self.title, "seed": self.seed}
        return {name: model.file({**about, "status": model.training.status}) for name, model in models.items()}

    @override
    def save_further(self, folder: Path) -> dict[str, str]:
        return {} if self.model is self.learned else {"predictive model": "predictive.safetensors"}

    @override
    def figures(self, folder: Path) -> dict[str, Any]:
        """Of the model, the search, the interactions and the richer model."""
        learned = self.model
        graph, log_z, selection = learned.hypergraph, learned.log_partition, learned.selection
        return {
            "num_interactions": graph.num_interactions,
            "num_parameters": self.num_parameters_fitted,
            "num_parameters_family": graph.num_parameters,
            "edges": [list(edge) for edge in graph.edges],
            "log_partition": {
                **(log_partition_json(log_z) or {}),
                "sandwich_gap": None if log_z.sandwich is None else float(log_z.sandwich.gap),
            },
            **by_part(self.parts, one_body_kl=lambda part: part.baselines[ONE_BODY].kl),
            "prior": self.prior,
            "trainer": learned.trainer,
            "status": learned.training.status,
            "refit": learned.refit,
            "selection": selection
            and {
                "status": selection.status,
                "best_round": selection.best_round,
                "rounds": [_round_json(entry.to_json()) for entry in selection.rounds],
            },
            "interactions": [_interaction_json(line) for line in self.interactions[:50]],
            "joined": {} if learned.joined is None else {g.name: list(g.columns) for g in learned.joined.groups},
            "notes": list(learned.notes),
            "structure": _structure_json(self),
            "predictive": _predictive_json(self, folder),
        }


def _predictive_json(analysis: LearnedAnalysis, folder: Path) -> dict[str, Any] | None:
    """The richer model that predicts; None where there is no other than the structure."""
    learned = analysis.learned
    if learned is analysis.model:
        return None
    return {
        "model": str(folder / "predictive.safetensors"),
        "num_interactions": learned.hypergraph.num_interactions,
        "num_parameters": analysis.num_parameters_predictive,
        "num_parameters_family": learned.hypergraph.num_parameters,
        "log_partition": log_partition_json(learned.log_partition),
        **by_part(
            analysis.parts,
            **{name: f"predictive.model.{name}" for name in ("nll", "kl", "pseudo_nll", "gain", "gain_std_error")},
            **{name: f"predictive.{name}" for name in ("advantage", "advantage_std_error")},
            accuracy=lambda part: part.predictive.accuracy and part.predictive.accuracy["accuracy"],
        ),
    }


def _structure_json(analysis: LearnedAnalysis) -> dict[str, Any] | None:
    """The tests that the structure was decided by; None without one."""
    confirmation = analysis.model.confirmation
    if confirmation is None:
        return None
    return confirmation_json(confirmation.tests, confirmation.false_discovery_rate)


def _round_json(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A round without the names of what was added; its parameters are those of the family."""
    found = {name: value for name, value in entry.items() if name not in ("changed", "scores")}
    return {"num_parameters_family" if name == "num_parameters" else name: value for name, value in found.items()}


def _interaction_json(line: Mapping[str, Any]) -> dict[str, Any]:
    """An interaction under the names that the command ``interactions`` uses."""
    removal = line["removal"]
    shown = None if removal is None else {"value": removal.value, "std_error": removal.std_error, "kind": removal.kind}
    return {
        "edge": line["edge"],
        "value": line["strength"],
        "coefficient": line["coefficient"],
        "levels": line["levels"],
        "refined_information": shown,
        "ridge": line["ridge"],
    }


def analyse_learned(
    learned: LearnResult,
    parts: Mapping[str, Observations | None],
    *,
    target: str | None = None,
    title: str = "table",
    about: Sequence[str] = (),
    seed: int = 0,
) -> LearnedAnalysis:
    """Score the parts of the rows, and value the interactions.

    Args:
        learned: the model; where it has a structure, that is valued, and the richer model is scored beside it.
        parts: train, validation and test rows by name; None or empty where there are none.
        target: also measure how well this variable is predicted.
        title: name of the data.
        about: sentences on the data.
        seed: of the states that removal values of large models are estimated from.

    Raises:
        UnknownNameError: ``target`` is no variable.
        InputError: rows over other variables, or a part of another name.

    Example:
        >>> from pyro_hoim import Domain, learn
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> rows = Observations.from_table(domain, [[40, 10], [10, 40]])
        >>> found = analyse_learned(learn(rows, rows), {"train": rows})
        >>> [line["edge"] for line in found.interactions], round(found.parts["train"].gain, 2)  # the mutual information
        ([['a', 'b']], 0.19)
    """
    # Validation rows that were fitted, too, judge nothing.
    check_part_names(parts)
    model = learned if learned.structure is None else learned.structure
    energy = model.energy
    laws = held_out({name: rows for name, rows in parts.items() if not (learned.refit and name == "validation")})
    # The structure is scored beside simpler laws, and beside the richer model where there is one.
    scored: dict[str, TablePart | None] = {}
    for name, rows in sorted(parts.items(), key=lambda part: PARTS.index(part[0])):
        if rows is None or not rows.total_count > 0:
            scored[name] = None
            continue
        scored[name] = TablePart(
            model.row_scores(rows),
            {INDEPENDENT: score_rows(learned.independent, rows), ONE_BODY: score_rows(learned.one_body, rows)},
            None if target is None else prediction_accuracy(energy, rows, target),
            predictive=None if model is learned else _predictive(learned, model, rows, target),
            split=split_of_part(laws.get(name), energy),
        )
    # Parameters are counted on the rows of the fit.
    rows = [parts[name] for name in (("train", "validation") if learned.refit else ("train",)) if name in parts]
    fitted = _together([part for part in rows if part is not None])
    number = _num_identified(model, fitted)
    # The learned sets of two variables or more; the strongest are valued, the others follow by strength.
    energy = model.energy
    present = set(model.hypergraph.edges)
    rows = [row for row in interaction_table(energy) if len(row["edge"]) > 1 and tuple(row["edge"]) in present]
    # Valuing takes a fit or draws each, so weak ones go without.
    wanted = [tuple(row["edge"]) for row in rows[:_VALUED]]
    values = removal_values(energy, wanted, num_samples=_SAMPLES, seed=seed) if wanted else []
    by_edge: dict[tuple[str, ...], RemovalValue] = dict(zip(wanted, values, strict=True))
    lines: list[dict[str, Any]] = [
        {
            "edge": list(row["edge"]),
            "strength": row["value"],
            "coefficient": row["coefficient"],
            "levels": row["levels"],
            "ridge": model.ridge.strength(row["edge"]),
            "removal": by_edge.get(tuple(row["edge"])),
        }
        for row in rows
    ]
    valued, rest = lines[: len(wanted)], lines[len(wanted) :]
    interactions = (*sorted(valued, key=lambda line: -line["removal"].value), *rest)
    judged = [(name, part) for name in PARTS if (part := parts.get(name)) is not None and part.total_count > 0]
    pairs = [(line["edge"][0], line["edge"][1]) for line in interactions if len(line["edge"]) == 2]
    return LearnedAnalysis(
        title=title,
        about=tuple(about),
        parts=scored,
        seed=seed,
        seconds=learned.seconds,
        learned=learned,
        interactions=interactions,
        pairs=pair_odds_ratios(judged[-1][1], pairs, is_searched=judged[-1][0] != "test") if judged else pd.DataFrame(),
        target=target,
        num_parameters_fitted=number,
        num_parameters_predictive=number if model is learned else _num_identified(learned, fitted),
        has_weights=any(part is not None and not part.has_whole_counts for part in parts.values()),
    )


def _together(parts: Sequence[Observations]) -> Observations | None:
    """The rows of all parts; None without any."""
    return Observations.concatenated(parts) if parts else None


def _num_identified(learned: LearnResult, rows: Observations | None) -> int | None:
    """Free parameters that the rows identify; None where they are not those of the fit, or the table is too large."""
    graph = learned.hypergraph
    if rows is None or rows.total_count != learned.num_rows:
        return None
    is_small = design_entries(graph) <= SMALL_ENTRIES
    found = mle_existence(graph, rows if is_small else rows.marginal_counts(graph.edges))
    return found.num_parameters_identified(graph)


def _predictive(richer: LearnResult, structure: LearnResult, rows: Observations, target: str | None) -> PredictivePart:
    """Scores of the richer model, with the paired difference to the structure."""
    energy, merged = richer.energy, rows.unique()
    shift = float(structure.log_partition.value) - float(richer.log_partition.value)
    change = (row_log_weights(energy, merged) - row_log_weights(structure.energy, merged)).double() + shift
    mean, error = mean_over_rows(change, merged.counts, merged.squared_weights)
    return PredictivePart(
        richer.row_scores(rows), None if target is None else prediction_accuracy(energy, rows, target), mean, error
    )


# What a report says of a learned structure: which interactions held-out rows confirm, and what the rejected cost.


def structure_sentences(analysis: LearnedAnalysis) -> list[str]:
    """What was kept and rejected, and what the richer model predicts better; nothing without a structure."""
    confirmation = analysis.model.confirmation
    if confirmation is None:
        return []
    sentences = [kept_sentence(confirmation.tests, confirmation.false_discovery_rate, _FITTED_ROWS)]
    other = analysis.held[analysis.judged_on].predictive
    if other is not None:
        is_exact = all(m.log_partition.kind == "exact" for m in (analysis.model, analysis.learned))
        left_out = "" if is_exact else "; the errors of log Z are not part of it"
        sentences.append(
            f"The predictive model (predictive.safetensors) has all that the search chose: on the {analysis.judged_on} "
            f"rows its log-likelihood differs from that of the structure by {fixed(other.advantage, 4, True)} ± "
            f"{other.advantage_std_error:.1g} nats a row (standard error over rows{left_out})."
        )
    return sentences


def structure_section(analysis: LearnedAnalysis) -> Section | None:
    """The section on tests of interactions; None without a structure."""
    confirmation = analysis.model.confirmation
    if confirmation is None:
        return None
    section = Section("Which interactions the rows confirm", is_folded=True)
    for words in structure_sentences(analysis):
        section.text(words)
    # What rejecting interactions costs on every part.
    compared = [
        [
            name,
            cell(entry.gain),
            cell(entry.gain_of(entry.predictive.model)),
            cell(entry.predictive.advantage, _signed, entry.predictive.advantage_std_error),
            *(
                cell(accuracy["accuracy"])
                for accuracy in (entry.accuracy, entry.predictive.accuracy)
                if accuracy is not None
            ),
        ]
        for name, entry in analysis.held.items()
        if entry.predictive is not None
    ]
    if compared:
        head = ["part", "gain of the structure", "gain of the predictive model", "difference"]
        if analysis.target is not None:
            head += ["accuracy of the structure", "accuracy of the predictive model"]
        section.table(head, compared)
    # Every test that decided, and what it rests on.
    add_tests(section, confirmation.tests)
    section.note(
        "p is two-sided and beside the other interactions that are kept. It comes from the number of rows in a cell of "
        "the interaction (a saddle-point tail, good to the smallest counts), or from the likelihood ratio where every "
        "level is frequent; z is a standard normal number with the same p. The Benjamini-Hochberg procedure over all "
        "possible interactions keeps the expected share of absent ones among the kept below the rate. Replaced means: "
        "passed a test of its own, but not beside the interactions named. Held-out gain is how much the interaction "
        "helps to predict a column of a validation row, in nats; it decides nothing."
    )
    return section


def _signed(value: float) -> str:
    return fixed(value, 4, True)


# The page. Nothing is computed here but formats.

_FIRST, _BRIEF = 8, 8
_NOTABLE = 0.01  # nats a row
_STATUS = {
    "stopped early": "the validation rows gained nothing more",
    "exhausted": "no set of variables was left that promised a gain",
    "little gain": "the interactions added last brought little for their number",
    "max_rounds": "the number of rounds that was asked for was reached",
    "undecided": "several rounds could not be told apart within the error of log Z",
    "diverged": "training of a larger collection diverged",
    "time limit": "the time limit was reached",
}


_FITTED_ROWS = "training and validation"


def _size_sentence(analysis: LearnedAnalysis) -> str:
    """How many sets of each size there are, and of what they were estimated."""
    learned = analysis.model
    graph = learned.hypergraph
    by_order = [sum(len(edge) == k for edge in graph.edges) for k in range(2, graph.order + 1)]
    words = ["pair", "triple", "quadruple"]
    listed = [
        plural(count, words[i]) if i < len(words) else f"{plural(count, 'set')} of {i + 2}"
        for i, count in enumerate(by_order)
        if count
    ]
    return (
        f"The model has {' and '.join(listed) if listed else 'no interaction'} and "
        f"{parameters_text(analysis.num_parameters_fitted, graph.num_parameters)}, estimated from "
        f"{amount_text(learned.num_rows, analysis.has_weights)} of {plural(len(graph.domain), 'column')} "
        f"({possible_rows(graph.domain.num_states)})."
    )


def _search_sentence(analysis: LearnedAnalysis) -> str:
    """How the search came to the interactions, and why it ended."""
    selection = analysis.model.selection
    if selection is None:
        return ""
    best, reason = selection.rounds[selection.best_round], _STATUS.get(selection.status, selection.status)
    return (
        f"The search tried {plural(len(selection.rounds), 'collection')} of interactions and kept number "
        f"{selection.best_round} ({plural(best.num_interactions, 'interaction')}). It ended because {reason}."
    )


def _loss_sentence(analysis: LearnedAnalysis) -> str:
    """Without how many interactions the model loses much; of bounds only what these say."""
    valued = [line["removal"] for line in analysis.interactions if line["removal"] is not None]
    if not valued:
        return ""
    many, of = sum(value.value >= _NOTABLE for value in valued), plural(len(valued), "interaction")
    if all(value.kind == "exact" for value in valued):
        return f"{many} of {of} matter: without any one of these the model loses {_NOTABLE} nats a row or more."
    less = len(valued) - many
    shown = f"{less} of the {of} matter less than {_NOTABLE} nats a row, by an estimated upper bound."
    return shown if less else f"None of the {of} could be shown to matter less than {_NOTABLE} nats a row."


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


def _warnings(analysis: LearnedAnalysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    learned = analysis.model
    warnings: list[str] = []
    if learned.training.status == "diverged":
        warnings.append("Training diverged; the parameters are those of the last step before.")
    log_z = learned.log_partition
    if log_z.verdict == "unreliable":
        warnings.append(f"Likelihoods here are unreliable, for the check of log Z failed: {' '.join(log_z.notes)}")
    elif log_z.kind != "exact":
        error = f"standard error {float(log_z.std_error):.2g}" if math.isfinite(log_z.std_error) else "no error bar"
        warnings.append(f"Likelihoods rest on an estimate of log Z ({error}, {log_z.verdict}).")
    if learned.confirmation is not None and learned.confirmation.tests:
        tests, rate = learned.confirmation.tests, learned.confirmation.false_discovery_rate
        warnings.append(kept_sentence(tests, rate, _FITTED_ROWS))
    if learned.refit:
        warnings.append(
            "The parameters were fitted to the training and validation rows together, so only the test rows show how "
            "well new rows are predicted."
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


def _capacity(analysis: LearnedAnalysis) -> Section | None:
    selection = analysis.model.selection
    if selection is None:
        return None
    section = Section("The search", is_folded=True)
    section.text(_search_sentence(analysis))
    # A logarithmic picture needs something above zero.
    curve = selection.capacity_curve()
    measure, what = ("kl", "Divergence from") if analysis.shows_kl else ("loss", "Mean loss of")
    drawable = curve[f"validation_{measure}"].to_numpy(dtype=float)
    if len(curve) > 1 and bool((drawable > 0).any()):
        section.figure(
            capacity_figure({"capacity curve": curve}, measure=measure),
            f"{what} training and validation rows against the parameters of the family, round by round",
        )
    # Each round with its verdict.
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


def _interactions(analysis: LearnedAnalysis) -> Section | None:
    lines = analysis.interactions
    if not lines:
        return None
    section = Section("All interactions at a glance")
    loss = _loss_sentence(analysis)
    if loss:
        section.text(loss, brief=True)
    valued = [line for line in lines if line["removal"] is not None]
    weights = {tuple(line["edge"]): max(0.0, float(line["removal"].value)) for line in valued}
    if any(weights.values()):
        about = "Columns on a circle; the wider an arc, the more the model loses without the pair"
        drawing = figure_of(plot_hypergraph, analysis.model.hypergraph, weights, unit="nats a row")
        section.figure(drawing, about)
    # The strongest first; the rest is folded.
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
    # Bounds are marked as such.
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
    section = Section("How it was estimated", is_folded=True)
    section.text(_size_sentence(analysis))
    section.text(_log_z_sentence(analysis))
    # An estimate of log Z is shown with all that it rests on.
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
    # How long it took, and what was taken for ordered.
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
