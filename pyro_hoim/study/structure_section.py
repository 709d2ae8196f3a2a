"""What a report says of a learned structure: which interactions held-out rows confirm, and what the rejected cost."""

from __future__ import annotations

from ..core.page import Cell, Section, cell
from ..core.words import fixed, plural
from ..log_linear.search.elimination import InteractionTest
from .learned import LearnedAnalysis

__all__ = ["structure_section", "structure_sentences"]

_SHOWN = 20
_LEAST = 1e-16  # below it a normal tail is no more than a name for a large z


def structure_sentences(analysis: LearnedAnalysis) -> list[str]:
    """What was kept and rejected, and what the richer model predicts better; nothing without a structure."""
    elimination = analysis.model.elimination
    if elimination is None:
        return []
    rows = analysis.parts.get("validation")
    judges = "the validation rows" if rows is None else f"{plural(rows.model.rows, 'validation row')}"
    tested, rejected = len(elimination.tests), len(elimination.rejected)
    rate = f"false discovery rate {elimination.false_discovery_rate:g}"
    redundant = sum(test.is_confirmed for test in elimination.rejected)
    why = f"{rejected - redundant} are not confirmed by these rows, which does not show that they are absent"
    if redundant:
        why += f"; {redundant} are, but without them all the others, fitted again, describe the rows as well"
    found = [
        (
            f"{plural(tested, 'interaction')} {'was' if tested == 1 else 'were'} tested on {judges} ({rate}): the "
            f"structure keeps {tested - rejected} and rejects {rejected}" + (f" ({why})." if rejected else ".")
        )
    ]
    other = analysis.held[analysis.judged_on].predictive
    if other is not None:
        is_exact = all(m.log_partition.kind == "exact" for m in (analysis.model, analysis.learned))
        left_out = "" if is_exact else "; the errors of log Z are not part of it"
        found.append(
            f"The predictive model (predictive.safetensors) keeps all of them: on the {analysis.judged_on} rows its "
            f"log-likelihood differs from that of the structure by {fixed(other.advantage, 4, True)} ± "
            f"{other.advantage_std_error:.1g} nats a row (standard error over rows{left_out})."
        )
    return found


def structure_section(analysis: LearnedAnalysis) -> Section | None:
    """The section on tests of interactions; None without a structure."""
    elimination = analysis.model.elimination
    if elimination is None:
        return None
    section = Section("Which interactions the held-out rows confirm")
    for words in structure_sentences(analysis):
        section.text(words)
    compared = [
        [
            name,
            cell(entry.gain),
            cell(entry.independent.nll - entry.predictive.model.nll),
            cell(entry.predictive.advantage, _signed, entry.predictive.advantage_std_error),
            *(cell(found["accuracy"]) for found in (entry.accuracy, entry.predictive.accuracy) if found is not None),
        ]
        for name, entry in analysis.held.items()
        if entry.predictive is not None
    ]
    if compared:
        head = ["part", "gain of the structure", "gain of the predictive model", "difference"]
        if analysis.target is not None:
            head += ["accuracy of the structure", "accuracy of the predictive model"]
        section.table(head, compared)
    lines = [
        [
            ":".join(test.edge),
            *_statistics(test),
            "kept" if test.is_kept else "replaced by others" if test.is_confirmed else "not confirmed",
        ]
        for test in elimination.tests
    ]
    columns = ["interaction", "held-out gain", "z", "p", "decision"]
    section.table(columns, lines, first=_SHOWN, further="Further interactions")
    refitted = (
        "" if not any(t.is_refitted for t in elimination.tests) else " (of the confirmed, with all others fitted again)"
    )
    section.note(
        f"Held-out gain: log-likelihood of a validation row with the interaction less that without it{refitted}, "
        "in nats, with its standard error. z tests whether the rows look as if it were absent, in the direction "
        "that the training rows gave it; it is standard normal if so. p is one-sided; the Benjamini-Hochberg "
        "procedure over all interactions tested keeps the expected share of absent ones among the confirmed below "
        "the rate."
    )
    if not all(test.has_normal_law for test in elimination.tests):
        section.note(
            "–: fewer than ten validation rows gain another amount than the others. The standard error, z and p "
            "rest on how the gain varies over rows, and are not shown; the decision was made by the same z, whose "
            "level is not known there."
        )
    return section


def _signed(value: float) -> str:
    return fixed(value, 4, True)


def _statistics(test: InteractionTest) -> list[Cell]:
    """Gain with its error, z and p; the gain alone where too few rows differ for the others."""
    if not test.has_normal_law:
        return [cell(test.gain, _signed), cell(None), cell(None)]
    p_value = f"{test.p_value:.1g}" if test.p_value >= _LEAST else f"< {_LEAST:g}"
    gain = cell(test.gain, _signed, test.gain_std_error)
    return [gain, cell(test.z, "{:.1f}".format), Cell(p_value, test.p_value)]
