"""One study of one table with a dependency network: what was learned, how well it predicts rows, and its law."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pandas as pd
import torch
from typing_extensions import override

from ...core.command.answers import by_part
from ...core.page import Section, cell
from ...core.scores import Figures
from ...core.studies import INDEPENDENT, PARTS, Content, Part, Study, check_part_names
from ...core.words import against_majority, amount_text, listed, number, option, plural, possible_rows, shorten, whole
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import check_names, none_received, other_domain
from ...results.answer import odds_answer
from ...schema import Domain
from ..file import NetworkFile
from ..learn.network import LearnedNetwork, learn_network
from ..node_conditionals import LeafConditional, TableConditional
from .figures import decision_graph_figure, dependency_figure
from .scores import (
    DependencyEdge,
    GraphInformation,
    NetworkLawFinding,
    NetworkScores,
    edge_information,
    find_law,
    predict_network,
    score_network,
)

# What a dependency network consists of, column by column, and how well it describes the rows it was learned from.


def learned_file(learned: LearnedNetwork) -> NetworkFile:
    """What a file holds of a learned network: its counts and the information of every edge, too."""
    smoothed = {
        node.variable: table.sum(0) + learned.alpha / table.shape[-1]
        for node, table in zip(learned.nodes, learned.counts, strict=True)
    }
    # Independent columns under the same prior, which scores are compared with.
    info = {
        "independent": {name: (table / table.sum()).tolist() for name, table in smoothed.items()},
        "rows": learned.num_observations,
        "penalty": learned.penalty,
        "alpha": learned.alpha,
        "edges": [[edge.parent, edge.child, edge.value] for edge in learned.edges],
        "odds_ratios": learned.contrasts.to_json(),
    }
    return NetworkFile(learned.conditionals, info, {f"counts.{i}": table for i, table in enumerate(learned.counts)})


def _tables(file: NetworkFile) -> Iterator[tuple[str, tuple[str, ...], torch.Tensor, torch.Tensor | None]]:
    """Of every column: its name, what it reads, probabilities (leaves, levels), and counts likewise where kept."""
    for index, node in enumerate(file.conditionals.nodes):
        assert isinstance(node, LeafConditional | TableConditional)
        probs = node.probs.double().flatten(0, -2)
        yield node.variable, tuple(node.reads), probs, file.tensors.get(f"counts.{index}")


def network_summary(file: NetworkFile, level: float = 0.95) -> pd.DataFrame:
    """A line for every column; ``level`` plays no role.

    Returns:
        ``term``, the column; ``parents``, the columns that its conditional reads; ``leaves``, ``parameters``; and where
        the file holds the counts ``entropy`` of the column and ``information`` that its parents give, nats a row.
    """
    _ = level
    # A line for every column; entropies only where the file holds counts.
    rows = list[dict[str, Any]]()
    for name, parents, probs, counts in _tables(file):
        leaves, levels = probs.shape
        row: dict[str, Any] = {
            "term": name,
            "parents": ", ".join(parents),
            "leaves": leaves,
            "parameters": leaves * (levels - 1),
        }
        if counts is not None:
            row["entropy"] = _entropy(counts.sum(0, keepdim=True))
            row["information"] = row["entropy"] - _entropy(counts)
        rows.append(row)
    frame = pd.DataFrame(rows)
    frame.attrs["notes"] = ["parents: columns from which a column is predicted"]
    if "information" in frame:
        frame.attrs["notes"].append("information: what they say about it on the training rows, in nats a row")
    return frame


def _entropy(counts: torch.Tensor) -> float:
    """Mean entropy of the rows (k, levels) of a table of counts, weighted by their totals."""
    totals, total = counts.sum(-1), float(counts.sum())
    spread = torch.special.xlogy(totals, totals).sum() - torch.special.xlogy(counts, counts).sum()
    return max(float(spread) / total, 0.0) if total > 0 else math.nan


def network_figures(file: NetworkFile) -> Figures:
    """Its size, and its log pseudo-likelihood on the training rows where the file holds their counts."""
    size, pseudo = 0, 0.0
    for _, _, probs, counts in _tables(file):
        size += probs.numel() - len(probs)
        pseudo += math.nan if counts is None else float(torch.special.xlogy(counts, probs).sum())
    return Figures(
        num_variables=len(file.conditionals.domain),
        num_interactions=len(file.conditionals.edges),
        num_parameters=size,
        num_rows=file.info.get("rows"),
        log_pseudo_likelihood=None if math.isnan(pseudo) else pseudo,
        method=f"penalty {file.info['penalty']!r}" if "penalty" in file.info else "",
    )


@dataclass(frozen=True, eq=False)
class NetworkPart(Part):
    """Scores of one part of the rows, with the attributes of every part; independent columns have the prior."""

    scores: NetworkScores


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkAnalysis(Study[NetworkPart]):
    """Everything that a report of a dependency network shows, with the attributes of every study.

    Attributes:
        learned: the network with its reports.
        edges: what is read by whom, most informative first.
        graphs: what every graph knows of its variable, on the training rows, in schema order.
        found: the law, or why there is no table of it.
        target: a variable to predict.
        independent: probabilities of the levels of every column under independent columns with the same prior.
    """

    heading: ClassVar[str] = "Dependency network of"
    noun: ClassVar[str] = "network"
    score_columns: ClassVar[Mapping[str, str]] = {"FC": "fc", "FC-limit": "fc_limit"}

    learned: LearnedNetwork
    edges: tuple[DependencyEdge, ...]
    graphs: tuple[GraphInformation, ...]
    found: NetworkLawFinding
    target: str | None
    independent: Mapping[str, list[float]] = field(repr=False)

    @property
    @override
    def domain(self) -> Domain:
        """The variables."""
        return self.learned.conditionals.domain

    @override
    def explain_scores(self, section: Section) -> None:
        """What the divergences of full conditionals are."""
        section.note(
            "NLL, KL and FC need the joint distribution, which is known for small tables only. FC, of full "
            "conditionals: mean divergence between the conditional distributions observed in the part and those of "
            "the network; it is never above the FC-limit, which needs no joint distribution (where every state can be "
            "left, as with any alpha above 0)."
        )

    @override
    def content(self) -> Content:
        """Which variables predict which, by what questions, and how it was estimated."""
        rows = amount_text(self.learned.num_observations, self.has_weights)
        judged = self.held[self.judged_on].accuracy
        sentences = list[str]()
        if judged is not None:
            against = against_majority(judged)
            sentences.append(
                f"{shorten(judged['target'])} is predicted correctly in {judged['accuracy']:.1%} of the "
                f"{self.judged_on} rows (always the most frequent level: {judged['majority_accuracy']:.1%})"
                + (f": {against}." if against else ".")
            )
        answer = odds_answer(self.learned.odds_ratios(), rows, 5 - len(sentences), target=self.target)
        return Content(
            [*answer.sentences, *sentences],
            [*_warnings(self), *answer.limits],
            [answer.section, _structure(self), _nodes(self), _graphs(self), _trust(self)],
            answer.picture,
        )

    @override
    def records(self) -> dict[str, NetworkFile]:
        file = learned_file(self.learned)
        edges = [[edge.parent, edge.child, edge.value] for edge in self.edges]
        about = {"data": self.title, "seed": self.seed, "edges": edges, "independent": dict(self.independent)}
        return {"model": replace(file, info={**file.info, **about})}

    @override
    def figures(self, folder: Path) -> dict[str, Any]:
        """Of the network, its law and every variable."""
        learned, parts = self.learned, self.parts
        return {
            "num_interactions": len(self.edges),
            "num_leaves": sum(node.num_leaves for node in learned.nodes),
            "num_parameters": sum(node.num_parameters for node in learned.nodes),
            "edges": [[edge.parent, edge.child] for edge in self.edges],
            "log_partition": None,
            **by_part(
                parts,
                approximate_rows=lambda part: whole(part.scores.approximate_rows),
                **{name: f"scores.{name}" for name in ("fc", "fc_limit")},
            ),
            "has_unique_law": self.found.has_unique_law,
            "law": self.found.reason or "enumerated",
            "penalty": learned.penalty,
            "alpha": learned.alpha,
            "interactions": [{"edge": [edge.parent, edge.child], "value": edge.value} for edge in self.edges],
            "nodes": [
                {
                    "variable": node.variable,
                    "reads": list(node.reads),
                    "num_leaves": node.num_leaves,
                    "num_parameters": node.num_parameters,
                    "entropy": graph.entropy,
                    "information": graph.gain,
                    **by_part(parts, nll=lambda part, name=node.variable: part.scores.nodes[name]),
                    "lossless_wins": node.lossless_wins,
                }
                for node, graph in zip(learned.nodes, self.graphs, strict=True)
            ],
        }


def analyse_network(
    parts: Mapping[str, DataLike],
    *,
    learn: Callable[[Observations], LearnedNetwork] = learn_network,
    target: str | None = None,
    seed: int = 0,
    title: str = "data",
    about: Sequence[str] = (),
) -> NetworkAnalysis:
    """Learn a dependency network from training rows and score it on all parts.

    Args:
        parts: rows of ``train`` and, where there are any, ``validation`` and ``test``; only the first are learned from.
        learn: learns the training rows, such as ``functools.partial(learn_network, alpha=0.5)``.
        target: also say how well this variable is predicted from the others.
        seed: seed of what is random: chains for missing cells.
        title: of the data.
        about: sentences on the data.

    Raises:
        InputError: no training rows, an unknown part, different domains, and what the learner refuses.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> analysis = analyse_network({"train": rows, "test": rows})
        >>> round(analysis.parts["test"].scores.pseudo_nll, 4), round(analysis.parts["test"].independent.pseudo_nll, 4)
        (1.001, 1.3863)
    """
    check_part_names(parts)
    domain = as_observations(parts["train"], argument="parts['train']").domain if "train" in parts else None
    parts = {name: as_observations(rows, domain=domain, argument=f"parts[{name!r}]") for name, rows in parts.items()}
    if "train" not in parts or not parts["train"].total_count > 0:
        raise none_received("parts", "rows of 'train'")
    train = parts["train"]
    if target is not None:
        check_names([target], train.domain.names, "target")
    for name, rows in parts.items():
        if rows.domain != train.domain:
            raise other_domain(f"parts[{name!r}]", "the variables and labels of the training rows")
    # The network, and independent columns under the same prior, from the training rows.
    begin = time.perf_counter()
    learned = learn(train)
    independent = learn_network(train, alpha=learned.alpha, max_leaves=1)
    edges, graphs = edge_information(learned.conditionals, train)
    learning = time.perf_counter() - begin
    # Likelihoods need the joint law, which small networks have.
    finding = find_law(learned.conditionals)
    law = time.perf_counter() - begin - learning
    scored: dict[str, NetworkPart | None] = dict.fromkeys(PARTS)
    for name, rows in parts.items():
        if rows.total_count > 0:
            scored[name] = _part(learned, independent, rows, finding, target, seed)
    seconds = {"learning": learning, "law": law, "scoring": time.perf_counter() - begin - learning - law}
    # Probabilities of the levels of every column under a network without arrows.
    sizes = torch.tensor(train.domain.cardinalities)
    codes = torch.minimum(torch.arange(int(sizes.max()))[:, None], sizes - 1)
    probs = independent.conditionals.log_conditionals(codes).double().exp()
    return NetworkAnalysis(
        title=title,
        about=tuple(about),
        parts=scored,
        seed=seed,
        seconds=seconds,
        learned=learned,
        edges=edges,
        graphs=graphs,
        found=finding,
        target=target,
        independent={name: probs[: int(sizes[i]), i].tolist() for i, name in enumerate(train.domain.names)},
        has_weights=not train.has_whole_counts,
    )


def _part(
    learned: LearnedNetwork,
    independent: LearnedNetwork,
    rows: Observations,
    finding: NetworkLawFinding,
    target: str | None,
    seed: int,
) -> NetworkPart:
    scores = score_network(learned.conditionals, rows, law=finding.law, reference=independent.conditionals, seed=seed)
    apart = score_network(independent.conditionals, rows, seed=seed)
    if not rows.has_missing:  # of independent variables the pseudo-likelihood is the likelihood
        nll, error = apart.pseudo_nll, apart.pseudo_nll_std_error
        apart = replace(apart, nll=nll, nll_std_error=error, kl=nll - rows.entropy())
    accuracy = None
    if target is not None:
        prediction = predict_network(learned.conditionals, rows, target, seed=seed)
        accuracy = prediction.summary if prediction.rows else None
    return NetworkPart(scores, {INDEPENDENT: apart}, accuracy, measure="pseudo_nll")


# The page. Nothing is computed here but formats.

_FIRST, _BRIEF = 8, 8
_DRAWN, _KEPT = 24, 24  # variables in a picture
_GRAPHS = 3
_STAGES = {"law": "joint distribution"}
_NODES = 60


def _size_sentence(analysis: NetworkAnalysis) -> str:
    """What was learned, and from what."""
    learned, domain = analysis.learned, analysis.domain
    leaves = sum(node.num_leaves for node in learned.nodes)
    parameters = sum(node.num_parameters for node in learned.nodes)
    return (
        f"The dependency network predicts every column from others by a decision graph. It has "
        f"{plural(len(analysis.edges), 'arrow')}, {plural(leaves, 'leaf', 'leaves')} and "
        f"{plural(parameters, 'parameter')}, learned from "
        f"{amount_text(learned.num_observations, analysis.has_weights)} of {plural(len(domain), 'column')} "
        f"({possible_rows(domain.num_states)})."
    )


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


def _warnings(analysis: NetworkAnalysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    warnings: list[str] = []
    # Whether rows can be drawn at all.
    finding = analysis.found
    if finding.has_unique_law is False:
        warnings.append(f"Rows cannot be drawn from this network: {finding.reason}. Learn it with an alpha above 0.")
    if finding.has_unique_law is None:
        warnings.append(
            "Some conditional probabilities are zero, and it is not known whether the network settles at a single "
            "distribution. An alpha above 0 leaves no doubt."
        )
    # Rows that have no finite score, or only an approximate one.
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
    if finding.law is None and finding.has_unique_law:
        warnings.append("There are pseudo-likelihoods but no likelihoods, and rows are drawn approximately.")
    winners = [node.variable for node in analysis.learned.nodes if node.lossless_wins]  # theorem 5, condition 1
    if winners:
        warnings.append(
            f"For {listed(winners)} the search missed something: a table over all other columns describes the rows "
            f"better than the graph. The option {option('lossless', True)} adds that table to the candidates."
        )
    return warnings


def _structure(analysis: NetworkAnalysis) -> Section:
    section = Section("Which variables predict which")
    edges, domain = analysis.edges, analysis.domain
    if not edges:
        section.text("No variable predicts another one well enough to justify its parameters.")
        return section
    drawn = _drawn(analysis)
    values = {(e.parent, e.child): e.value for e in edges if e.parent in drawn and e.child in drawn}
    drawing = dependency_figure(drawn, values, target=analysis.target)
    section.figure(drawing, "Columns on a circle; an arrow runs from a column to one that is predicted from it")
    if len(drawn) < len(domain):
        section.note(
            f"The pictures show the {len(drawn)} variables of the strongest arrows, and the arrows between them."
        )

    # The arrows one by one, the strongest first.
    rows = [[e.parent, e.child, cell(e.value), e.num_splits] for e in edges]
    columns = ["predictor", "predicted", "gain (nats a row)", "questions"]
    section.table(columns, rows, first=_FIRST, further="Further arrows", brief=_BRIEF)
    section.note(
        "Gain is how many nats a row questions about the predictor added to the log-likelihood of the training rows. "
        "What two predictors share is credited to the one asked first, so a missing arrow does not mean independence."
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
    section = Section("What predicts each column", is_folded=True)
    parts = analysis.held
    # A line for every variable, the best predicted first.
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
    section = Section("Decision graphs", is_folded=True)
    # The graphs that say most, and that of the target before them.
    chosen = sorted(range(len(analysis.domain)), key=lambda i: -analysis.graphs[i].gain)
    chosen = [i for i in chosen if analysis.learned.nodes[i].num_leaves > 1][:_GRAPHS]
    if analysis.target is not None:
        first = analysis.domain.index(analysis.target)
        chosen = [first, *(i for i in chosen if i != first)][:_GRAPHS]
    for i in chosen:
        node = cast(LeafConditional, analysis.learned.conditionals.nodes[i])
        drawing = decision_graph_figure(node, analysis.learned.counts[i])
        about = f"Decision graph of {node.variable}: questions from left to right, predicted distributions at the end"
        narrow = decision_graph_figure(node, analysis.learned.counts[i], max_ends=8, max_depth=1)
        section.figure(drawing, about, "" if i == chosen[0] else f"Decision graph of {node.variable}", narrow)
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
    section = Section("How it was estimated", is_folded=True)
    section.text(_size_sentence(analysis))
    learned = analysis.learned
    section.text(
        "The conditional distributions were learned one by one, so there may be no joint distribution that has all of "
        "them. The joint distribution of the network is the one at which it settles when a variable picked at random "
        "is drawn given all others, again and again (pseudo-Gibbs sampling with random scan). "
        f"{_law_sentence(analysis)}"
    )
    # What bounds the distance from the rows without the joint distribution.
    limits = {name: entry.scores.fc_limit for name, entry in analysis.held.items()}
    known = {name: value for name, value in limits.items() if value is not None}
    if known:
        shown = ", ".join(f"{name} {number(value)}" for name, value in known.items())
        section.text(
            f"FC-limit: {shown} nats. A small value shows that the network's distribution is close to that of the "
            "rows, however many states there are; a large one shows nothing, above all where most rows are distinct."
        )
    # How it was learned, under which conditions, and how long it took.
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
