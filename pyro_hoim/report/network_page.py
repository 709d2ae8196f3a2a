"""The report of a dependency network: one self-contained HTML page, the model file, and the same as plain text."""

from __future__ import annotations

import math
from pathlib import Path

from ..dependency_network.study.analysis import NetworkAnalysis
from .blocks import number
from .network_sections import network_distinct, network_parts, network_summary, network_warnings
from .page import render_page, write_page
from .plain import columns_of
from .words import accuracy_line, fixed, short_labels

__all__ = ["network_plain_report", "render_network_report", "write_network_report"]

_SHOWN = 12
_NAME = 26  # characters


def render_network_report(analysis: NetworkAnalysis) -> str:
    """HTML of the report of a dependency network, with every picture inside; it loads nothing from elsewhere.

    Args:
        analysis: what to show.

    Returns:
        The page as text.
    """
    names = analysis.domain.names
    rows = {name: 0.0 if part is None else part.scores.rows for name, part in analysis.parts.items()}
    return render_page(
        title=f"Dependency network of {analysis.title.replace('_', ' ')}",
        rows=rows,
        names=names,
        summary=network_summary(analysis),
        warnings=network_warnings(analysis),
        about=analysis.about,
        parts=network_parts(analysis),
        seed=analysis.seed,
    )


def write_network_report(analysis: NetworkAnalysis, folder: Path) -> None:
    """Write ``report.html`` and ``model.safetensors`` into an existing folder.

    Args:
        analysis: what to write.
        folder: an existing folder; files of the same names are replaced.
    """
    analysis.save(folder / "model.safetensors")
    write_page(render_network_report(analysis), folder)


def network_plain_report(analysis: NetworkAnalysis) -> str:
    """What was learned: scores beside independent variables, the most informative arrows, the best known variables.

    Args:
        analysis: what to show.

    Returns:
        Several lines of text.
    """
    parts = {name: part for name, part in analysis.parts.items() if part is not None}
    lines = [*network_summary(analysis), ""]
    columns = ["part", "rows", "pseudo-NLL", "independent", "gain", "SE", "NLL", "KL", "FC", "FC-limit"]
    lines += columns_of(
        columns,
        [
            [
                name,
                number(part.scores.rows),
                _digits(part.scores.pseudo_nll),
                _digits(part.independent.pseudo_nll),
                _digits(part.gain),
                _digits(part.gain_std_error),
                _digits(part.scores.nll),
                _digits(part.scores.kl),
                number(part.scores.fc),
                number(part.scores.fc_limit),
            ]
            for name, part in parts.items()
        ],
    )
    lines += [f"({sentence})" for sentence in network_distinct(analysis)]
    if analysis.target is not None:
        lines.append("")
        for name, part in parts.items():
            if part.accuracy is not None:
                lines.append(accuracy_line(name, part.accuracy))
    labels = short_labels(analysis.domain.names, _NAME)
    if analysis.edges:
        lines.append("")
        lines += columns_of(
            ["from → to", "information"],
            [[f"{labels[e.parent]} → {labels[e.child]}", fixed(e.value)] for e in analysis.edges[:_SHOWN]],
        )
        lines.append("(information: nats a row that the graph of the second gained by asking the first)")
    order = sorted(range(len(analysis.domain)), key=lambda i: -analysis.graphs[i].gain)[:_SHOWN]
    lines.append("")
    lines += columns_of(
        ["variable", "reads", "leaves", "parameters", "entropy", "information"],
        [
            [
                labels[analysis.learned.nodes[i].variable],
                number(len(analysis.learned.nodes[i].reads)),
                number(analysis.learned.nodes[i].num_leaves),
                number(analysis.learned.nodes[i].num_parameters),
                fixed(analysis.graphs[i].entropy),
                fixed(analysis.graphs[i].gain),
            ]
            for i in order
        ],
    )
    lines += [f"note: {sentence}" for sentence in network_warnings(analysis)]
    return "\n".join(lines)


def _digits(value: float | None) -> str:
    return "–" if value is None else number(value) if not math.isfinite(value) else fixed(value)
