"""What a dependency network consists of, column by column, and how well it describes the rows it was learned from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch

from ...core.scores import Figures
from ..file import NetworkFile
from ..learn.network import LearnedNetwork
from ..node_conditionals import LeafConditional, TableConditional

__all__ = ["learned_file", "network_figures", "network_summary"]


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
    found = pd.DataFrame(rows)
    found.attrs["notes"] = ["parents: columns from which a column is predicted"]
    if "information" in found:
        found.attrs["notes"].append("information: what they say about it on the training rows, in nats a row")
    return found


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
