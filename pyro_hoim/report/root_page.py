"""The report of a generalized root model: one self-contained HTML page, the model file, and the same as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..generalized_root.study.analysis import RootAnalysis
from .blocks import number
from .page import render_page, write_page
from .plain import columns_of
from .root_sections import HINTS, law_names, root_parts, root_summary, root_warnings, singles, tuples
from .words import coefficient, short_edge

__all__ = ["render_root_report", "root_plain_report", "write_root_report"]

_SHOWN = 10
_EDGE = 44  # characters


def render_root_report(analysis: RootAnalysis, hints: Mapping[str, str] = HINTS) -> str:
    """HTML of the report of a generalized root model, with every picture inside; it loads nothing from elsewhere.

    Args:
        analysis: what to show.
        hints: how to do what is advised, with the keys of ``root_sections.HINTS``, the default.

    Returns:
        The page as text.
    """
    names = analysis.domain.names
    rows = {name: 0.0 if part is None else float(part.scores.rows) for name, part in analysis.parts.items()}
    return render_page(
        title=f"Generalized root model of {analysis.title.replace('_', ' ')}",
        rows=rows,
        names=names,
        summary=root_summary(analysis, hints),
        warnings=root_warnings(analysis, hints),
        about=analysis.about,
        parts=root_parts(analysis, hints),
        seed=analysis.seed,
    )


def write_root_report(analysis: RootAnalysis, folder: Path, hints: Mapping[str, str] = HINTS) -> None:
    """Write ``report.html`` and ``model.safetensors`` into an existing folder.

    Args:
        analysis: what to write.
        folder: an existing folder; files of the same names are replaced.
        hints: as of :func:`render_root_report`.
    """
    analysis.save(folder / "model.safetensors")
    write_page(render_root_report(analysis, hints), folder)


def root_plain_report(analysis: RootAnalysis, hints: Mapping[str, str] = HINTS) -> str:
    """What was learned: scores beside simpler laws, the strongest tuples, the largest single columns.

    Args:
        analysis: what to show.
        hints: how to do what is advised, with the keys of ``root_sections.HINTS``, the default.

    Returns:
        Several lines of text.
    """
    lines = [*root_summary(analysis, hints), ""]
    names = law_names(analysis)
    rows: list[list[str]] = []
    for part, held in analysis.parts.items():
        if held is not None:
            for law, scores in {**held.baselines, "": held.scores}.items():
                gain = held.independent.pseudo_nll - scores.pseudo_nll
                cells = (float(scores.rows), scores.pseudo_nll, scores.pseudo_nll_std_error, gain, scores.nll)
                rows.append([f"{part}: {names[law]}", *map(number, cells)])
    lines += columns_of(["part: law", "rows", "pseudo-NLL", "std. error", "gain", "NLL"], rows)
    for size in sorted({size for _, size in analysis.num_terms if size > 1}):
        for sign, between in ((1, " + "), (-1, " - ")):
            terms = tuples(analysis, size, sign)[:_SHOWN]
            if terms:
                lines.append("")
                head = [f"{'positive' if sign > 0 else 'negative'} sets of {size}", "coefficient"]
                cells = [[short_edge(t.names, _EDGE, between), coefficient(t.coefficient)] for t in terms]
                if analysis.scales:
                    head.append("per standard deviation")
                    scaled = [coefficient(analysis.standardised(term).coefficient) for term in terms]
                    cells = [[*cell, value] for cell, value in zip(cells, scaled, strict=True)]
                lines += columns_of(head, cells)
    lines.append("")
    lines += columns_of(
        ["column", "coefficient"],
        [[short_edge(t.names, _EDGE), coefficient(t.coefficient)] for t in singles(analysis)[:_SHOWN]],
    )
    lines += [f"note: {sentence}" for sentence in root_warnings(analysis, hints)]
    return "\n".join(lines)
