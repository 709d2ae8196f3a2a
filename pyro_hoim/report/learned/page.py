"""The report of a learned model: one self-contained HTML page and the model file, in one folder."""

from __future__ import annotations

from pathlib import Path

from ...study.learned import LearnedAnalysis
from ..page import render_page, write_page
from .sections import learned_parts, learned_summary, learned_warnings

__all__ = ["render_learned_report", "write_learned_report"]


def render_learned_report(analysis: LearnedAnalysis) -> str:
    """HTML of the report of a learned model, with every picture inside; it loads nothing from elsewhere.

    Args:
        analysis: what to show.

    Returns:
        The page as text.
    """
    learned = analysis.model
    names = learned.hypergraph.domain.names
    rows = {name: 0.0 if part is None else part.model.rows for name, part in analysis.parts.items()}
    return render_page(
        title=f"What was learned from {analysis.title.replace('_', ' ')}",
        rows=rows,
        names=names,
        summary=learned_summary(analysis),
        warnings=learned_warnings(analysis),
        about=analysis.about,
        parts=learned_parts(analysis),
        seed=analysis.seed,
    )


def write_learned_report(analysis: LearnedAnalysis, folder: Path) -> None:
    """Write ``report.html`` and ``model.safetensors``, and of a model with a structure ``predictive.safetensors``.

    With a structure, that is ``model.safetensors``, and the richer model is ``predictive.safetensors``.

    Args:
        analysis: what to write.
        folder: an existing folder; files of the same names are replaced.
    """
    models = {"model": analysis.model}
    if analysis.model is not analysis.learned:
        models["predictive"] = analysis.learned
    for name, model in models.items():
        about = {"name": "learned", "data": analysis.title, "status": model.training.status, "seed": analysis.seed}
        model.save(folder / f"{name}.safetensors", about)
    write_page(render_learned_report(analysis), folder)
