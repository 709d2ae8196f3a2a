"""``pyro-hoim fit --model dependency-network``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...core.family import Asked, Option, Request, Study
from ...core.words import num_states_text, plural
from ...data.observations import Observations
from ...dependency_network.learn.network import learn_network
from ...dependency_network.study.analysis import NetworkAnalysis, analyse_network
from ...log_linear.learning.columns import check_columns
from ..labelled import JOBS, LABELLED, read_labelled
from ..output import whole
from ..reading import Fractions, Missing, Table, held_out_split

__all__ = ["NETWORK_OPTIONS", "NetworkPlan"]

NETWORK_OPTIONS = (
    Option(
        "alpha",
        "With a dependency network: total of the Dirichlet prior of every leaf; 0 is no smoothing.",
        kind="number",
        high=1e6,
        default=1.0,
    ),
    Option("max_leaves", "With a dependency network: most leaves of a graph.", kind="whole", low=1, metavar="N"),
    Option(
        "lossless",
        "With a dependency network: also try asking all other columns at once, where they have few states.",
        kind="flag",
    ),
    JOBS,
    *LABELLED,
)


@dataclass(frozen=True)
class NetworkPlan:
    """Learning a dependency network; see :func:`~pyro_hoim.dependency_network.analyse_network`."""

    asked: Asked

    def read(self) -> Table:
        """The table."""
        return read_labelled(self.asked)[0]

    def complete(self, source: Table) -> Table:
        """The table with missing cells dealt with, refused where no column can be learned."""
        table = source.complete(Missing.parse(self.asked["missing"]), None)
        check_columns(table.rows)
        return table

    def split(self, source: Table) -> Fractions:
        """A fifth of the rows is held out."""
        return held_out_split(source.rows.total_count)

    def run(self, request: Request) -> Study:
        """Learn from the training rows."""
        rows = request.source.rows
        about = request.about
        learned = plural(request.parts["train"].total_count, "row"), plural(len(rows.domain), "column")
        request.announce(
            f"learning {learned[1]} from {learned[0]}; an interrupted run is continued by --resume from "
            f"{request.checkpoint}"
        )
        if isinstance(rows, Observations) and rows.has_missing:
            about.append(
                "Missing cells were kept (--missing marginalise): a column is learned from the rows in which it is "
                "known, and a row without a cell that a graph asks goes to every answer with that answer's share."
            )
        asked = self.asked
        learn = partial(
            learn_network,
            alpha=asked["alpha"],
            max_leaves=asked["max_leaves"],
            lossless=asked["lossless"],
            jobs=-1 if asked["jobs"] is None else asked["jobs"],
            checkpoint=request.checkpoint / "network.safetensors",
            resume=request.resume,
            progress=request.progress,
        )
        analysis = analyse_network(
            request.parts,
            learn=learn,
            target=asked["target"],
            seed=request.seed,
            title=request.source.name,
            about=about,
        )
        return Study(analysis, _summary(analysis))


def _summary(analysis: NetworkAnalysis) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    learned, parts, domain = analysis.learned, analysis.parts, analysis.domain

    def each(read: Callable[[Any], Any]) -> dict[str, Any]:
        return {part: None if found is None else read(found) for part, found in parts.items()}

    summary: dict[str, Any] = {
        "num_variables": len(domain),
        "num_states": num_states_text(domain.num_states),
        "num_interactions": len(analysis.edges),
        "num_leaves": sum(node.num_leaves for node in learned.nodes),
        "num_parameters": sum(node.num_parameters for node in learned.nodes),
        "edges": [[edge.parent, edge.child] for edge in analysis.edges],
        "log_partition": None,
        "rows": {part: 0 if found is None else whole(found.scores.rows) for part, found in parts.items()},
        "impossible_rows": each(lambda found: whole(found.scores.impossible_rows)),
        "approximate_rows": each(lambda found: whole(found.scores.approximate_rows)),
        "kl": each(lambda found: found.scores.kl),
        "nll": each(lambda found: found.scores.nll),
        "pseudo_nll": each(lambda found: found.scores.pseudo_nll),
        "independent_kl": each(lambda found: found.independent.kl),
        "independent_pseudo_nll": each(lambda found: found.independent.pseudo_nll),
        "gain": each(lambda found: found.scores.gain),
        "gain_std_error": each(lambda found: found.scores.gain_std_error),
        "fc": each(lambda found: found.scores.fc),
        "fc_limit": each(lambda found: found.scores.fc_limit),
        "has_unique_law": analysis.found.has_unique_law,
        "law": analysis.found.reason or "enumerated",
        "penalty": learned.penalty,
        "alpha": learned.alpha,
        "interactions": [{"edge": [edge.parent, edge.child], "value": edge.value} for edge in analysis.edges],
        "nodes": [
            {
                "variable": node.variable,
                "reads": list(node.reads),
                "num_leaves": node.num_leaves,
                "num_parameters": node.num_parameters,
                "entropy": graph.entropy,
                "information": graph.gain,
                "nll": each(lambda found, name=node.variable: found.scores.nodes[name]),
                "lossless_wins": node.lossless_wins,
            }
            for node, graph in zip(learned.nodes, analysis.graphs, strict=True)
        ],
    }
    if analysis.target is not None:
        summary["accuracy"] = each(
            lambda found: found.accuracy and {**found.accuracy, "rows": whole(found.accuracy["rows"])}
        )
    return {**summary, "stage_seconds": dict(analysis.seconds)}
