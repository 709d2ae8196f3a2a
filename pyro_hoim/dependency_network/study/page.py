"""The page of a dependency network. Nothing is computed here but formats."""

from __future__ import annotations

from typing import cast

from ...core.page import Page, Section, cell
from ...core.scores import rows_are_distinct
from ...core.words import (
    PSEUDO,
    against_majority,
    amount_column,
    amount_text,
    distinct_sentence,
    gain_sentence,
    listed,
    number,
    plural,
    possible_rows,
    shorten,
)
from ...schema import Domain
from ..node_conditionals import LeafConditional
from .analysis import NetworkAnalysis
from .figures import decision_graph_figure, dependency_figure, dependency_matrix_figure

__all__ = ["network_page"]

_FIRST, _BRIEF = 20, 12
_DRAWN, _KEPT = 60, 40  # variables in a picture
_GRAPHS = 3
_STAGES = {"law": "joint distribution"}
_NODES = 60


def network_page(analysis: NetworkAnalysis) -> Page:
    """The page of a dependency network.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.dependency_network import analyse_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> page = network_page(analyse_network({"train": rows}, title="two_coins"))
        >>> page.title, page.rows["train"], [section.title for section in page.sections][:2]
        ('Dependency network of two coins', 100.0, ['How well it predicts rows', 'Which variables predict which'])
    """
    return Page(
        title=f"Dependency network of {analysis.title.replace('_', ' ')}",
        rows={name: 0.0 if part is None else part.scores.rows for name, part in analysis.parts.items()},
        names=analysis.domain.names,
        summary=_summary(analysis),
        warnings=_warnings(analysis),
        about=analysis.about,
        sections=[_scores(analysis), _structure(analysis), _nodes(analysis), _graphs(analysis), _trust(analysis)],
        seed=analysis.seed,
        has_weights=analysis.has_weights,
    )


def _summary(analysis: NetworkAnalysis) -> list[str]:
    """A few sentences that answer the reader's question."""
    learned, domain = analysis.learned, analysis.domain
    leaves = sum(node.num_leaves for node in learned.nodes)
    parameters = sum(node.num_parameters for node in learned.nodes)
    sentences = [
        (
            f"{analysis.title}: {amount_text(learned.num_observations, analysis.has_weights)} of "
            f"{plural(len(domain), 'variable')} "
            f"({possible_rows(domain.num_states)}). The dependency network predicts every variable from others by a "
            f"decision graph; it has {plural(len(analysis.edges), 'arrow')}, {plural(leaves, 'leaf', 'leaves')} and "
            f"{plural(parameters, 'parameter')} in all."
        )
    ]
    where = analysis.judged_on
    judged = analysis.held[where]
    sentences.insert(0, gain_sentence(where, "network", judged.scores.gain, judged.scores.gain_std_error, PSEUDO))
    if judged.accuracy is not None:
        against = against_majority(judged.accuracy)
        sentences.append(
            f"{shorten(judged.accuracy['target'])} is predicted correctly in {judged.accuracy['accuracy']:.1%} of "
            f"these rows (always the most frequent level: {judged.accuracy['majority_accuracy']:.1%})"
            + (f": {against}." if against else ".")
        )
    sentences.append(_law_sentence(analysis))
    return sentences


def _law_sentence(analysis: NetworkAnalysis) -> str:
    found = analysis.found
    if found.law is not None:
        return "The joint distribution at which its conditionals settle was enumerated, and draws from it are exact."
    if found.has_unique_law is False:
        return "Its conditionals settle at no single joint distribution; see below."
    return (
        f"Its joint distribution was not enumerated ({found.reason}): there are pseudo-likelihoods but no "
        "likelihoods, and rows are drawn by pseudo-Gibbs sampling, which is approximate."
    )


def _distinct(analysis: NetworkAnalysis) -> list[str]:
    """A sentence on the parts whose rows are all distinct, if there are any; they show where independent columns do."""
    held = {name: part.independent for name, part in analysis.held.items()}
    names = [name for name, found in held.items() if rows_are_distinct(found.rows, found.nll, found.kl)]
    return [distinct_sentence(names)] if names else []


def _warnings(analysis: NetworkAnalysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    warnings: list[str] = []
    finding = analysis.found
    if finding.has_unique_law is False:
        warnings.append(f"Rows cannot be drawn from this network: {finding.reason}. Learn it with an alpha above 0.")
    if finding.has_unique_law is None:
        warnings.append(
            "Some conditional probabilities are zero, and it is not known whether the network settles at a single "
            "distribution. An alpha above 0 leaves no doubt."
        )
    for name, part in analysis.held.items():
        rows = part.scores.impossible_rows
        if rows:
            verb = "holds a cell" if rows == 1 else "hold cells"
            warnings.append(
                f"{plural(rows, 'row')} of {name} {verb} that the network gives probability zero, so that scores are "
                "infinite; an alpha above 0 avoids this."
            )
        rows = part.scores.approximate_rows
        if rows:
            warnings.append(
                f"In {plural(rows, 'row')} of {name} missing cells were averaged over by pseudo-Gibbs chains; their "
                "scores carry a small Monte Carlo error."
            )
    winners = [node.variable for node in analysis.learned.nodes if node.lossless_wins]  # theorem 5, condition 1
    if winners:
        warnings.append(
            f"For {listed(winners)} the search missed something: a table over all other variables at once describes "
            "the rows in fewer nats than the graph found, as where only several variables together are informative. "
            "The option lossless adds that table to the candidates."
        )
    return warnings


def _scores(analysis: NetworkAnalysis) -> Section:
    section = Section("How well it predicts rows")
    parts = analysis.held
    amount = amount_column(analysis.has_weights)
    columns = ["part", amount, "pseudo-NLL", "independent", "gain", "SE", "NLL", "KL", "KL independent", "FC"]
    rows: list[list[object]] = []
    for name, entry in parts.items():
        scores, apart = entry.scores, entry.independent
        values = (
            scores.pseudo_nll,
            apart.pseudo_nll,
            entry.gain,
            scores.gain_std_error,
            scores.nll,
            scores.kl,
            apart.kl,
        )
        rows.append([name, scores.rows, *map(cell, values), scores.fc, scores.fc_limit])
    section.table([*columns, "FC-limit"], rows, brief=len(parts))
    section.note(
        "In nats a row. Pseudo-NLL: sum over the variables of minus the log-probability of a cell given the rest of "
        "its row; independent: the same of independent columns; gain: their difference, with its standard error (SE). "
        "NLL (minus the log-probability of a row), KL (Kullback-Leibler divergence from the observed frequencies) and "
        "FC need the joint distribution, which is known for small tables only. FC, of full conditionals: mean "
        "divergence between the conditional distributions observed in the part and those of the network; it is never "
        "above the FC-limit, which needs no joint distribution (where every state can be left, as with any alpha above "
        "0)."
    )
    for sentence in _distinct(analysis):
        section.note(sentence, brief=True)
    section.accuracy_table({name: entry.accuracy for name, entry in parts.items()}, analysis.has_weights)
    return section


def _structure(analysis: NetworkAnalysis) -> Section:
    section = Section("Which variables predict which")
    edges, domain = analysis.edges, analysis.domain
    if not edges:
        section.text("No variable predicts another one well enough to justify its parameters.")
        return section
    drawn = _drawn(analysis)
    values = {(e.parent, e.child): e.value for e in edges if e.parent in drawn and e.child in drawn}
    drawing = dependency_figure(drawn, values, target=analysis.target)
    section.figure(drawing, "Variables on a circle; an arrow runs from a variable to one that is predicted from it")
    about = "The same as a matrix: each row is predicted from its columns"
    section.figure(dependency_matrix_figure(drawn, values), about)
    if len(drawn) < len(domain):
        section.note(
            f"The pictures show the {len(drawn)} variables of the strongest arrows, and the arrows between them."
        )

    rows = [[e.parent, e.child, cell(e.value), e.num_splits] for e in edges]
    columns = ["predictor", "predicted", "gain (nats a row)", "questions"]
    section.table(columns, rows, first=_FIRST, further="Further arrows", brief=_BRIEF)
    section.note(
        "Gain: log-likelihood of the training rows, in nats a row, that questions about the predictor added; "
        "questions: how many of the decision graph. Information that two predictors share is credited to the one "
        "asked first, so a missing arrow does not mean independence; and an arrow does not mean cause."
    )
    return section


def _drawn(analysis: NetworkAnalysis) -> Domain:
    """All variables, or where they are too many those of the strongest arrows and the target."""
    domain = analysis.domain
    if len(domain) <= _DRAWN:
        return domain
    kept = set[str]() if analysis.target is None else {analysis.target}
    for edge in analysis.edges:
        if len(kept) + 2 > _KEPT:
            break
        kept |= {edge.parent, edge.child}
    return domain.project(name for name in domain.names if name in kept)


def _nodes(analysis: NetworkAnalysis) -> Section:
    section = Section("Variables")
    parts = analysis.held
    columns = ["variable", "levels", "predicted from", "leaves", "parameters", "entropy", "gain"]
    columns += [f"{name} NLL" for name in parts] + ["all others at once"]
    lossless = {None: "–", True: "costs less", False: "costs no less"}

    def row(i: int) -> list[object]:
        node, graph = analysis.learned.nodes[i], analysis.graphs[i]
        parents = [edge.parent for edge in sorted(graph.edges, key=lambda e: -e.value)]
        return [
            node.variable,
            analysis.domain.cardinalities[i],
            ", ".join(parents) or "none",
            node.num_leaves,
            node.num_parameters,
            cell(graph.entropy),
            cell(graph.gain),
            *(cell(entry.scores.nodes[node.variable]) for entry in parts.values()),
            lossless[node.lossless_wins],
        ]

    size = len(analysis.domain)
    order = sorted(range(size), key=lambda i: -analysis.graphs[i].gain)
    section.table(columns, [row(i) for i in order], first=_NODES, further="Further variables", brief=_BRIEF)
    section.note(
        "Entropy of the variable in the training rows, and by how much its graph lowers that (gain), in nats. NLL: "
        "mean of minus the log-probability of the variable's cell given the others. All others at once: whether a "
        "table over all other variables would describe the variable in fewer nats, parameters included; a dash where "
        "it is not known."
    )
    return section


def _graphs(analysis: NetworkAnalysis) -> Section:
    section = Section("Decision graphs")
    chosen = sorted(range(len(analysis.domain)), key=lambda i: -analysis.graphs[i].gain)
    chosen = [i for i in chosen if analysis.learned.nodes[i].num_leaves > 1][:_GRAPHS]
    if analysis.target is not None:
        first = analysis.domain.index(analysis.target)
        chosen = [first, *(i for i in chosen if i != first)][:_GRAPHS]
    for i in chosen:
        node = cast(LeafConditional, analysis.learned.conditionals.nodes[i])
        drawing = decision_graph_figure(node, analysis.learned.counts[i])
        about = f"Decision graph of {node.variable}: questions from left to right, predicted distributions at the end"
        section.figure(drawing, about, folded="" if i == chosen[0] else f"Decision graph of {node.variable}")
    if not chosen:
        section.text("Every graph has a single leaf: the variables are predicted by their frequencies alone.")
        return section
    whose = "the target and of " if analysis.target is not None and len(chosen) > 1 else ""
    what = "the variables that are predicted best" if len(chosen) > 1 or not whose else ""
    section.note(
        f"The graphs of {whose}{what}. Read from left to right, a question at a time; a bar is the distribution of the "
        "variable where the answers lead, and the number beside it counts the training rows there."
    )
    return section


def _trust(analysis: NetworkAnalysis) -> Section:
    section = Section("How it was estimated")
    learned = analysis.learned
    section.text(
        "The conditional distributions were learned one by one, so there may be no joint distribution that has all of "
        "them. The joint distribution of the network is the one at which it settles when a variable picked at random "
        "is drawn given all others, again and again (pseudo-Gibbs sampling with random scan). "
        f"{_law_sentence(analysis)}"
    )
    limits = {name: entry.scores.fc_limit for name, entry in analysis.held.items()}
    known = {name: value for name, value in limits.items() if value is not None}
    if known:
        shown = ", ".join(f"{name} {number(value)}" for name, value in known.items())
        section.text(
            f"FC-limit: {shown} nats. A small value shows that the network's distribution is close to that of the "
            "rows, however many states there are; a large one shows nothing, above all where most rows are distinct."
        )
    prior = f"a Dirichlet prior of total {learned.alpha:g} in every leaf" if learned.alpha else "no smoothing (alpha 0)"
    conditions = "all conditions hold under which the distribution converges to the true one as rows grow"
    if not learned.conditions.hold:
        conditions = f"not {conditions}: {learned.conditions.message.split('; pass')[0]}"
    section.text(
        f"Learning: greedy splits and merges of leaves under the {learned.penalty} penalty, with {prior}; {conditions}"
        ". Time: "
        + ", ".join(f"{_STAGES.get(stage, stage)} {value:.1f} s" for stage, value in analysis.seconds.items())
        + "."
    )
    return section
