"""One study of one table with a dependency network: what was learned, how well it predicts rows, and its law."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import torch

from ...core.scores import PARTS, Figures, StudyRecord, check_part_names
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import check_names, none_received, other_domain
from ...schema import Domain
from ..conditionals import DependencyConditionals
from ..file import NetworkFile, save_network
from ..learn.network import LearnedNetwork, learn_network
from ..node_conditionals import LeafConditional, TableConditional
from .predictions import predict_network
from .scores import (
    DependencyEdge,
    GraphInformation,
    NetworkLawFinding,
    NetworkScores,
    edge_information,
    find_law,
    score_network,
)

__all__ = ["NetworkAnalysis", "NetworkPart", "analyse_network", "learned_file", "network_figures", "network_summary"]


# What a dependency network consists of, column by column, and how well it describes the rows it was learned from.


def learned_file(learned: LearnedNetwork) -> NetworkFile:
    """What a file holds of a learned network: its counts and the information of every edge, too."""
    smoothed = {
        node.variable: table.sum(0) + learned.alpha / table.shape[-1]
        for node, table in zip(learned.nodes, learned.counts, strict=True)
    }
    info = {
        "independent": {name: (table / table.sum()).tolist() for name, table in smoothed.items()},
        "rows": learned.num_observations,
        "penalty": learned.penalty,
        "alpha": learned.alpha,
        "edges": [[edge.parent, edge.child, edge.value] for edge in learned.edges],
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
class NetworkPart:
    """One part of the rows.

    Attributes:
        scores: of the network.
        independent: of independent variables with the same prior, whose pseudo-likelihood is their likelihood.
        accuracy: target, accuracy, majority_accuracy, majority_p_value and rows of predicting the target; None without.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> part = analyse_network({"train": rows}, target="b").parts["train"]
        >>> round(part.gain, 4), part.accuracy["accuracy"], part.accuracy["majority_accuracy"]
        (0.3853, 0.8, 0.5)
    """

    scores: NetworkScores
    independent: NetworkScores
    accuracy: dict[str, Any] | None

    @property
    def gain(self) -> float:
        """Pseudo-NLL of independent variables less that of the network, nats a row."""
        return self.independent.pseudo_nll - self.scores.pseudo_nll


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkAnalysis(StudyRecord[NetworkPart]):
    """Everything that a report of a dependency network shows, with the attributes of every study.

    Attributes:
        learned: the network with its reports.
        edges: what is read by whom, most informative first.
        graphs: what every graph knows of its variable, on the training rows, in schema order.
        found: the law, or why there is no table of it.
        target: a variable to predict.
        independent: probabilities of the levels of every column under independent columns with the same prior.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> analysis = analyse_network({"train": rows})
        >>> [(edge.parent, edge.child, round(edge.value, 4)) for edge in analysis.edges], analysis.found.reason
        ([('a', 'b', 0.1927), ('b', 'a', 0.1927)], '')
    """

    learned: LearnedNetwork
    edges: tuple[DependencyEdge, ...]
    graphs: tuple[GraphInformation, ...]
    found: NetworkLawFinding
    target: str | None
    independent: Mapping[str, list[float]] = field(repr=False)

    @property
    def domain(self) -> Domain:
        """The variables."""
        return self.learned.conditionals.domain

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file, with the information of every edge and the counts of every leaf, into a folder."""
        learned = self.learned
        info = {
            "data": self.title,
            "rows": learned.num_observations,
            "penalty": learned.penalty,
            "alpha": learned.alpha,
            "seed": self.seed,
            "edges": [[edge.parent, edge.child, edge.value] for edge in self.edges],
            "independent": dict(self.independent),
        }
        counts = {f"counts.{i}": table for i, table in enumerate(learned.counts)}
        save_network(path, NetworkFile(learned.conditionals, info, counts))


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
    begin = time.perf_counter()
    learned = learn(train)
    independent = learn_network(train, alpha=learned.alpha, max_leaves=1)
    edges, graphs = edge_information(learned.conditionals, train)
    learning = time.perf_counter() - begin
    finding = find_law(learned.conditionals)
    law = time.perf_counter() - begin - learning
    scored = {
        name: _part(learned, independent, rows, finding, target, seed)
        if (rows := parts.get(name)) is not None and rows.total_count > 0
        else None
        for name in PARTS
    }
    seconds = {"learning": learning, "law": law, "scoring": time.perf_counter() - begin - learning - law}
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
        independent=_column_shares(independent.conditionals),
        has_weights=not train.has_whole_counts,
    )


def _column_shares(independent: DependencyConditionals) -> dict[str, list[float]]:
    """Probabilities of the levels of every column under a network without arrows."""
    domain = independent.domain
    sizes = torch.tensor(domain.cardinalities)
    codes = torch.minimum(torch.arange(int(sizes.max()))[:, None], sizes - 1)
    probs = independent.log_conditionals(codes).double().exp()
    return {name: probs[: int(sizes[i]), i].tolist() for i, name in enumerate(domain.names)}


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
        if prediction.rows:
            figures = ("target", "accuracy", "majority_accuracy", "majority_p_value", "rows")
            accuracy = {name: getattr(prediction, name) for name in figures}
    return NetworkPart(scores, apart, accuracy)
