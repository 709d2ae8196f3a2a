"""The page of a Boltzmann machine. Nothing is computed here but formats and interactions."""

from __future__ import annotations

from ...core.command.answers import describe_log_z
from ...core.page import Page, Section, cell
from ...core.words import amount_column, amount_text, fixed, gain_sentence, plural, possible_rows
from ..interactions import strongest
from .analysis import MachineAnalysis
from .figures import curve_figure, weights_figure

__all__ = ["machine_page"]

_FIRST, _BRIEF = 20, 8
_METHODS = {
    "exact": "exact gradients",
    "cd": "contrastive divergence with {steps}",
    "pcd": "persistent chains with {steps}",
}


def machine_page(analysis: MachineAnalysis) -> Page:
    """The page of a machine."""
    return Page(
        title=f"Boltzmann machine of {analysis.title.replace('_', ' ')}",
        rows={name: 0.0 if part is None else part.rows for name, part in analysis.parts.items()},
        names=analysis.law.domain.names,
        summary=_summary(analysis),
        warnings=_warnings(analysis),
        about=analysis.about,
        sections=[_scores(analysis), _interactions(analysis), _weights(analysis), _learning(analysis)],
        seed=analysis.seed,
        has_weights=analysis.has_weights,
    )


def _kind(analysis: MachineAnalysis) -> str:
    return "exact" if analysis.log_z.kind == "exact" else f"annealed, {analysis.log_z.verdict}"


def _summary(analysis: MachineAnalysis) -> list[str]:
    """A few sentences that answer the reader's question."""
    structure, result = analysis.law.structure, analysis.result
    judged = next(name for name in ("test", "validation", "train") if analysis.parts[name] is not None)
    scores = analysis.parts[judged]
    assert scores is not None
    how = _METHODS[result.options.method].format(steps=plural(result.options.steps, "sweep"))
    amount = amount_text(result.num_rows, analysis.has_weights)
    fitted = (
        f"{analysis.title}: {amount} of {plural(len(analysis.law.domain), 'column')} "
        f"({possible_rows(analysis.law.domain.num_states)}). A restricted Boltzmann machine with "
        f"{plural(structure.num_hidden, 'hidden unit')} and {plural(structure.num_parameters, 'parameter')} was "
        "estimated from them, by "
        f"{how}."
    )
    return [
        gain_sentence(judged, "machine", scores.gain, scores.gain_std_error),
        fitted,
        f"Its log-likelihoods are {_kind(analysis)}.",
    ]


def _warnings(analysis: MachineAnalysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    found: list[str] = []
    if analysis.log_z.verdict == "unreliable":
        found.append("The estimate of log Z is unreliable, and with it every likelihood here; see its notes.")
    if analysis.result.converged is False:
        found.append("Learning stopped before it had converged: more iterations would change the machine.")
    return found


def _scores(analysis: MachineAnalysis) -> Section:
    section = Section("How well it predicts rows")
    rows = [
        [name, part.rows, *map(cell, (part.nll, part.kl, part.pseudo_nll, part.gain))]
        for name, part in analysis.parts.items()
        if part is not None
    ]
    amount = amount_column(analysis.has_weights)
    columns = ["part", amount, f"NLL ({_kind(analysis)})", "KL", "pseudo-NLL", "gain over independent columns"]
    section.table(columns, rows, brief=len(rows))
    section.note(
        "In nats a row. NLL: mean of minus the log-probability of a row. KL: Kullback-Leibler divergence of the "
        "machine from the observed frequencies. Pseudo-NLL: sum over the columns of minus the log-probability of a "
        "cell given the rest of its row. Gain: by how much the NLL is lower than that of independent columns."
    )
    section.accuracy_table(analysis.accuracy, analysis.has_weights)
    for line in describe_log_z(analysis.log_z):
        section.note(line)
    return section


def _interactions(analysis: MachineAnalysis) -> Section:
    section = Section("Interactions of the columns")
    order, values = strongest(analysis.law)
    if not values:
        section.text("There are no interactions to show.")
        return section
    section.text(
        f"Hidden units make columns depend on each other. These are the interactions of up to {order} columns once the "
        "hidden units are summed out, in corner coding: the change of the log-probability when these columns go from "
        "level 0 to level 1, the others staying at 0, beyond what smaller sets explain."
    )
    rows = [[":".join(edge), cell(value, _signed)] for edge, value in values]
    columns = ["interaction", "value (nats)"]
    section.table(columns, rows, first=_FIRST, further="Further interactions", brief=_BRIEF)
    return section


def _signed(value: float) -> str:
    return fixed(value, sign=True)


def _weights(analysis: MachineAnalysis) -> Section:
    section = Section("Weights")
    law = analysis.law
    if not law.structure.num_hidden or not len(law.domain):
        section.text("There are no hidden units.")
        return section
    weights = law.energy_model.weights.numpy()
    drawing = weights_figure(weights, law.domain.names, law.structure.hidden)
    section.figure(drawing, "Weights between columns and hidden units, the strongest units first")
    section.note(
        "Each row is a hidden unit. Order and sign of units have no meaning: exchanging two, or swapping the two "
        "states of one, gives the same machine. Compare interactions, not weights."
    )
    return section


def _learning(analysis: MachineAnalysis) -> Section:
    result = analysis.result
    section = Section("Learning")
    section.figure(curve_figure(result.curve, result.score_name), f"The {result.score_name} during learning")
    section.note(
        f"On up to 1,000 of the most frequent rows. {plural(result.iterations, 'iteration')} in {result.seconds:.1f} s."
    )
    return section
