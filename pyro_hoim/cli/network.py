"""``pyro-hoim fit --model dependency-network``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ..analysis import NetworkAnalysis, analyse_network
from ..data import Observations
from ..report import network_plain_report, num_states_text, write_network_report
from ..report.words import plural
from .methods import is_terminal
from .options import Number, WholeNumber
from .output import Output, peak_memory_mb, whole
from .reading import Table
from .session import Session, announce, session

__all__ = ["NETWORK_ONLY", "NETWORK_OPTIONS", "NetworkOptions", "run_network"]

NETWORK_ONLY = ("alpha", "max_leaves", "lossless")
"""Names of the options of ``fit`` that belong to dependency networks alone."""

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--alpha",
        type=Number(1e6, zero=True),
        default=1.0,
        show_default=True,
        help="With a dependency network: total of the Dirichlet prior of every leaf; 0 is no smoothing.",
    ),
    click.option(
        "--max-leaves", type=WholeNumber(1), metavar="N", help="With a dependency network: most leaves of a graph."
    ),
    click.option(
        "--lossless",
        is_flag=True,
        help="With a dependency network: also try asking all other columns at once, where they have few states.",
    ),
    click.option(
        "--jobs",
        type=WholeNumber(1),
        metavar="N",
        help="With --posterior: chains drawn at a time, each in a process; with a dependency network or grm: columns "
        "learned at a time.  [default: one per core]",
    ),
)


def NETWORK_OPTIONS(command: _F) -> _F:  # noqa: N802 (a decorator like click's own constants here)
    """Add the options of learning a dependency network to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class NetworkOptions:
    """What the command line says about learning a network; see :func:`~pyro_hoim.analysis.analyse_network`."""

    alpha: float = 1.0
    max_leaves: int | None = None
    lossless: bool = False
    jobs: int | None = None


def run_network(parts: dict[str, Observations], options: NetworkOptions, output: Output[Table]) -> None:
    """Learn a dependency network from the training rows, and write and print what was found.

    Args:
        parts: rows of train, validation and test.
        options: of learning.
        output: what to write and print.
    """
    table = output.table
    with session(output.folder(), output.started, output.as_read) as run:
        rows, columns = plural(parts["train"].total_count, "row"), plural(len(table.rows.domain), "column")
        announce(
            f"learning {columns} from {rows}; an interrupted run is continued by --resume from {run.checkpoint}",
            output.started,
        )
        about = [*table.about, *table.told()]
        if table.rows.has_missing:
            about.append(
                "Missing cells were kept (--missing marginalise): a column is learned from the rows in which it is "
                "known, and a row without a cell that a graph asks goes to every answer with that answer's share."
            )
        analysis = analyse_network(
            parts,
            alpha=options.alpha,
            max_leaves=options.max_leaves,
            lossless=options.lossless,
            jobs=-1 if options.jobs is None else options.jobs,
            target=output.target,
            seed=output.seed,
            title=table.name,
            about=about,
            checkpoint=run.checkpoint / "network.safetensors",
            resume=output.resume,
            progress=is_terminal(),
        )
        announce("writing the report", output.started)
        write_network_report(analysis, run.folder)
        output.write(_summary(analysis, run, table), run)
    if not output.as_json:
        output.echo(network_plain_report(analysis))
        click.echo(f"\nreport: {run.folder / 'report.html'}\nmodel:  {run.folder / 'model.safetensors'}")


def _summary(analysis: NetworkAnalysis, run: Session, table: Table) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    learned, parts, domain = analysis.learned, analysis.parts, analysis.domain

    def each(read: Callable[[Any], Any]) -> dict[str, Any]:
        return {part: None if found is None else read(found) for part, found in parts.items()}

    summary: dict[str, Any] = {
        "model": str(run.folder / "model.safetensors"),
        "report": str(run.folder / "report.html"),
        "num_variables": len(domain),
        "num_states": num_states_text(domain.num_states),
        "num_interactions": len(analysis.edges),
        "num_leaves": sum(node.num_leaves for node in learned.nodes),
        "num_parameters": sum(node.num_parameters for node in learned.nodes),
        "edges": [[edge.parent, edge.child] for edge in analysis.edges],
        "log_partition": None,
        "rows": {part: 0 if found is None else whole(found.scores.rows) for part, found in parts.items()},
        "dropped_rows": whole(table.dropped_rows),
        "constant_columns": list(table.constant_columns),
        "impossible_rows": each(lambda found: whole(found.scores.impossible_rows)),
        "approximate_rows": each(lambda found: whole(found.scores.approximate_rows)),
        "kl": each(lambda found: found.scores.kl),
        "nll": each(lambda found: found.scores.nll),
        "pseudo_nll": each(lambda found: found.scores.pseudo_nll),
        "independent_kl": each(lambda found: found.independent_kl),
        "independent_pseudo_nll": each(lambda found: found.independent.pseudo_nll),
        "gain": each(lambda found: found.scores.gain),
        "gain_std_error": each(lambda found: found.gain_std_error),
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
    return {
        **summary,
        "stage_seconds": dict(analysis.seconds),
        "seconds": run.seconds,
        "peak_memory_mb": peak_memory_mb(),
        "seed": analysis.seed,
    }
