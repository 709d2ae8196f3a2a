"""What a report says of a learned structure: which interactions held-out rows confirm, and what the rejected cost."""

from __future__ import annotations

from ..core.page import Section, cell
from ..core.words import fixed
from ..results.confirmation_page import add_tests, kept_sentence
from .learned import LearnedAnalysis

__all__ = ["structure_section", "structure_sentences"]


def structure_sentences(analysis: LearnedAnalysis) -> list[str]:
    """What was kept and rejected, and what the richer model predicts better; nothing without a structure."""
    confirmation = analysis.model.confirmation
    if confirmation is None:
        return []
    found = [kept_sentence(confirmation.tests, confirmation.false_discovery_rate, "training and validation")]
    other = analysis.held[analysis.judged_on].predictive
    if other is not None:
        is_exact = all(m.log_partition.kind == "exact" for m in (analysis.model, analysis.learned))
        left_out = "" if is_exact else "; the errors of log Z are not part of it"
        found.append(
            f"The predictive model (predictive.safetensors) has all that the search chose: on the {analysis.judged_on} "
            f"rows its log-likelihood differs from that of the structure by {fixed(other.advantage, 4, True)} ± "
            f"{other.advantage_std_error:.1g} nats a row (standard error over rows{left_out})."
        )
    return found


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
