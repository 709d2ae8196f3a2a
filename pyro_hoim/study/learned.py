"""Everything that one report on a learned model shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.page import Section, cell
from ..core.scores import PARTS, StudyRecord, check_part_names, mean_over_rows
from ..core.words import fixed
from ..data.observations import Observations
from ..information.removal import RemovalValue, removal_values
from ..log_linear.fitting.design import design_entries
from ..log_linear.fitting.existence import mle_existence
from ..log_linear.fitting.problems import SMALL_ENTRIES
from ..log_linear.learning.model import LearnResult
from ..log_linear.scores import interaction_table, prediction_accuracy, score_rows
from ..results.confirmation_page import add_tests, kept_sentence
from .parts import PartScores, PredictivePart, held_out, split_of_part

__all__ = ["LearnedAnalysis", "analyse_learned", "structure_section", "structure_sentences"]


_VALUED = 400
_SAMPLES = 4096


@dataclass(frozen=True, eq=False, kw_only=True)
class LearnedAnalysis(StudyRecord[PartScores]):
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

    Example:
        >>> from pyro_hoim import Domain, learn
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> found = analyse_learned(learn(rows, rows), {"train": rows})
        >>> found.num_parameters_fitted, found.target
        (3, None)
    """

    learned: LearnResult
    interactions: tuple[dict[str, Any], ...]
    target: str | None
    num_parameters_fitted: int | None = None
    num_parameters_predictive: int | None = None

    @property
    def model(self) -> LearnResult:
        """The model that scores and interactions are of: the structure, where there is one."""
        return self.learned if self.learned.structure is None else self.learned.structure


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
    check_part_names(parts)
    model = learned if learned.structure is None else learned.structure
    energy = model.energy
    laws = held_out({name: rows for name, rows in parts.items() if not (learned.refit and name == "validation")})
    scored: dict[str, PartScores | None] = {}
    for name, rows in sorted(parts.items(), key=lambda part: PARTS.index(part[0])):
        if rows is None or not rows.total_count > 0:
            scored[name] = None
            continue
        scored[name] = PartScores(
            model.row_scores(rows),
            score_rows(learned.independent, rows),
            None if target is None else prediction_accuracy(energy, rows, target),
            one_body=score_rows(learned.one_body, rows),
            predictive=None if model is learned else _predictive(learned, model, rows, target),
            split=split_of_part(laws.get(name), energy),
        )
    rows = [parts[name] for name in (("train", "validation") if learned.refit else ("train",)) if name in parts]
    fitted = _together([part for part in rows if part is not None])
    number = _num_identified(model, fitted)
    return LearnedAnalysis(
        title=title,
        about=tuple(about),
        parts=scored,
        seed=seed,
        learned=learned,
        interactions=_interactions(model, seed),
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
    change = (structure.energy.energy(merged.codes) - energy.energy(merged.codes)).double() + shift
    mean, error = mean_over_rows(change, merged.counts, merged.squared_weights)
    return PredictivePart(
        richer.row_scores(rows),
        None if target is None else prediction_accuracy(energy, rows, target),
        mean,
        error,
    )


def _interactions(learned: LearnResult, seed: int) -> tuple[dict[str, Any], ...]:
    """The learned sets of two variables or more; the strongest are valued, the others follow by strength."""
    energy = learned.energy
    present = set(learned.hypergraph.edges)
    rows = [row for row in interaction_table(energy) if len(row["edge"]) > 1 and tuple(row["edge"]) in present]
    wanted = [tuple(row["edge"]) for row in rows[:_VALUED]]
    values = removal_values(energy, wanted, num_samples=_SAMPLES, seed=seed) if wanted else []
    by_edge: dict[tuple[str, ...], RemovalValue] = dict(zip(wanted, values, strict=True))
    lines = [
        {
            "edge": list(row["edge"]),
            "strength": row["value"],
            "coefficient": row["coefficient"],
            "levels": row["levels"],
            "ridge": learned.ridge.strength(row["edge"]),
            "removal": by_edge.get(tuple(row["edge"])),
        }
        for row in rows
    ]
    valued, rest = lines[: len(wanted)], lines[len(wanted) :]
    return (*sorted(valued, key=lambda line: -line["removal"].value), *rest)


# What a report says of a learned structure: which interactions held-out rows confirm, and what the rejected cost.


def structure_sentences(analysis: LearnedAnalysis) -> list[str]:
    """What was kept and rejected, and what the richer model predicts better; nothing without a structure."""
    confirmation = analysis.model.confirmation
    if confirmation is None:
        return []
    sentences = [kept_sentence(confirmation.tests, confirmation.false_discovery_rate, "training and validation")]
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
    section = Section("Which interactions the rows confirm")
    for words in structure_sentences(analysis):
        section.text(words)
    compared = [
        [
            name,
            cell(entry.gain),
            cell(entry.predictive.model.less_nll(entry.independent)),
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
    add_tests(section, confirmation.tests)
    section.note(
        "p is two-sided, of all rows of training and validation, beside the other interactions of the structure: of "
        "the number of rows in a cell of the interaction given the statistics of the others (a saddle-point tail, good "
        "to the smallest counts), or of the likelihood ratio where every level is frequent. z is a standard normal "
        "variable with the same p. The Benjamini-Hochberg procedure over all sets that could be interactions keeps the "
        "expected share of absent ones among the kept below the rate. Replaced: confirmed alone, but not beside the "
        "interactions named. Held-out gain: log-likelihood of one variable of a validation row, given the others, with "
        "the interaction less that without it, in nats, with its standard error; it measures prediction and decides "
        "nothing."
    )
    return section


def _signed(value: float) -> str:
    return fixed(value, 4, True)
