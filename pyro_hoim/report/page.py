"""The report of an analysis: one self-contained HTML page, the model file and the posterior, in one folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jinja2
import torch

from ..data.observations import Observations
from ..log_linear.file import ModelFile, save_model
from ..log_linear.infinite import infinite_to_json
from ..study.analysis import Analysis
from ..study.posterior import file_stem
from .blocks import Part
from .sections import page_parts, page_summary, page_warnings
from .words import listed, plural

__all__ = ["render_page", "render_report", "write_page", "write_report"]

_NAMED = 12
_PACKAGES = ("pyro-hoim", "pyro-ppl", "torch", "arviz", "numpy")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def render_report(analysis: Analysis, title: str | None = None) -> str:
    """HTML of a report, with every picture inside; it loads nothing from elsewhere.

    Args:
        analysis: what to show.
        title: heading of the page; by default made from the data's name.

    Returns:
        The page as text.
    """
    data = analysis.train
    return render_page(
        title=title or f"Log-linear analysis of {analysis.title.replace('_', ' ')}",
        rows=analysis.chosen.scores.rows,
        names=data.domain.names,
        summary=page_summary(analysis),
        warnings=page_warnings(analysis),
        about=analysis.about,
        parts=page_parts(analysis),
        seed=analysis.seed,
    )


def write_page(html: str, folder: Path) -> None:
    """Write ``report.html`` into an existing folder in one step, so that no half-written page is ever seen."""
    page = folder / "report.html"
    draft = page.with_suffix(".html.part")
    draft.write_text(html, encoding="utf-8")
    os.replace(draft, page)


def _parts_text(rows: Mapping[str, float]) -> str:
    held = [(part, count) for part, count in rows.items() if count]
    if [part for part, _ in held] == ["train"]:
        return plural(held[0][1], "row")
    words = [plural(count, part, part) for part, count in held]
    noun = "row" if held[-1][1] == 1 else "rows"
    return f"{', '.join(words[:-1])}{' and ' * (len(words) > 1)}{words[-1]} {noun}"


def render_page(
    *,
    title: str,
    rows: Mapping[str, float],
    names: Sequence[str],
    summary: Sequence[str],
    warnings: Sequence[str],
    about: Sequence[str],
    parts: Sequence[Part],
    seed: int,
) -> str:
    """HTML of any report: a heading, sentences, and parts made of text, tables and pictures.

    Args:
        title: heading of the page.
        rows: of every part; the line below the heading tells those of parts that hold some.
        names: of the variables, in the same line; all of them are shown when the pointer rests on it.
        summary: sentences that answer the reader's question.
        warnings: what to know before trusting the page.
        about: sentences on the data.
        parts: the sections.
        seed: shown at the end, with the versions of the packages.

    Returns:
        The page as text.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pyro_hoim.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("template.html.j2").render(
        title=title,
        subtitle=f"{_parts_text(rows)} of {plural(len(names), 'variable')}: {listed(names, _NAMED)}",
        tooltip=", ".join(names),
        summary=summary,
        warnings=warnings,
        about=about,
        parts=parts,
        provenance=[
            ("seed", str(seed)),
            ("Python", platform.python_version()),
            *((name, _version(name)) for name in _PACKAGES),
        ],
    )


def write_report(analysis: Analysis, folder: Path) -> None:
    """Write ``report.html``, ``model.safetensors`` and, with posteriors, ``posterior.nc`` into an existing folder.

    With several models every one is also written as ``model-<name>.safetensors`` and ``posterior-<name>.nc``; the
    files without a name are those of the model kept.

    Args:
        analysis: what to write.
        folder: an existing folder; files of the same names are replaced.
    """
    for model in analysis.models:
        stored = ModelFile(
            model.hypergraph,
            model.fit.theta,
            "free",
            {
                "name": model.name,
                "data": analysis.title,
                "rows": analysis.train.total_count,
                "independent": _column_shares(analysis.train),
                "log_likelihood": model.fit.log_likelihood,
                "status": model.fit.status,
                "infinite_combinations": analysis.infinite_combinations(model),
                "num_infinite_combinations": analysis.num_infinite_combinations(model),
                "infinite_interactions": [infinite_to_json(row) for row in model.interactions if row["is_infinite"]],
                "prior": str(analysis.prior or "none"),
                "seed": analysis.seed,
            },
        )
        targets = [folder / "model.safetensors"] if model is analysis.chosen else []
        if len(analysis.models) > 1:
            targets.append(folder / f"model-{file_stem(model.name)}.safetensors")
        for target in targets:
            save_model(target, stored)
        if model.posterior is not None:
            names = [folder / "posterior.nc"] if model is analysis.chosen else []
            if len(analysis.models) > 1:
                names.append(folder / f"posterior-{file_stem(model.name)}.nc")
            for name in names:
                model.posterior.data.to_netcdf(str(name))
    write_page(render_report(analysis), folder)


def _column_shares(rows: Observations) -> dict[str, list[float]]:
    """Frequencies of the levels of every column among its known cells; equal ones where no cell is known."""
    shares: dict[str, list[float]] = {}
    for column, variable in enumerate(rows.domain):
        known = rows.codes[:, column] >= 0
        counts = torch.bincount(
            rows.codes[known, column], weights=rows.counts[known].double(), minlength=variable.cardinality
        )
        counts = counts if counts.any() else torch.ones_like(counts)
        shares[variable.name] = (counts / counts.sum()).tolist()
    return shares
