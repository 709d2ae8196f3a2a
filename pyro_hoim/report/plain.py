"""An analysis as plain text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..study.analysis import Analysis
from .blocks import number
from .infinite import finite_contrast_lines
from .sections import distinct_parts, page_summary, page_warnings
from .words import accuracy_line, fixed, plural, short_edge

__all__ = ["columns_of", "plain_report"]

_SHOWN = 10
_EDGE = 56  # characters


def columns_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned lines: the first column to the left, the others to the right."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    return [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in [header, *rows]
    ]


def plain_report(analysis: Analysis) -> str:
    """The comparison of the models, the answer, and the strongest interactions.

    Args:
        analysis: what to show.

    Returns:
        Several lines of text.
    """
    data = analysis.train
    lines = [
        f"{analysis.title}: {plural(data.total_count, 'observation')} of {plural(len(data.domain), 'variable')}",
        "",
    ]
    names = {
        "name": "model",
        "num_parameters": "parameters",
        "g2": "G2",
        "x2": "X2",
        "df": "df",
        "p_value": "p",
        "aic": "AIC",
        "bic": "BIC",
        "elpd_loo": "elpd LOO",
        "elpd_se": "SE",
        "max_r_hat": "R-hat",
        "min_ess_bulk": "ESS",
    }
    records = analysis.comparison_records()
    present = [key for key in names if any(key in record for record in records)]
    for record in records:
        if math.isfinite(record.get("min_ess_bulk", math.nan)):
            record["min_ess_bulk"] = round(record["min_ess_bulk"])
    rows = [[number(record.get(key)) for key in present] for record in records]
    lines += columns_of([names[key] for key in present], rows)
    scores = analysis.chosen.scores
    parts = [part for part, count in scores.rows.items() if count]
    if len(parts) > 1:
        lines.append("")
        lines += columns_of(
            ["part", "rows", "gain", "SE", "NLL", "KL", "KL independent"],
            [
                [p]
                + [
                    number(column[p])
                    for column in (
                        scores.rows,
                        scores.gain,
                        scores.gain_std_error,
                        scores.nll,
                        scores.kl,
                        scores.independent_kl,
                    )
                ]
                for p in parts
            ],
        )
        lines += [f"({sentence})" for sentence in distinct_parts(analysis)]
    if analysis.chosen.accuracy is not None:
        lines.append("")
        for part, found in analysis.chosen.accuracy.items():
            if found is not None:
                lines.append(accuracy_line(part, found))
    lines.append("")
    lines += page_summary(analysis)
    lines += [f"note: {sentence}" for sentence in page_warnings(analysis)]
    shown = [row for row in analysis.chosen.interactions if len(row["edge"]) > 1][:_SHOWN]
    if shown:
        lines.append("")
        lines += columns_of(
            ["interaction", "strength", "coefficient"],
            [
                [short_edge(r["edge"], _EDGE)]
                + (
                    ["infinite", number(r["coefficient"])]
                    if r["is_infinite"]
                    else [fixed(r["value"]), fixed(r["coefficient"], sign=True)]
                )
                for r in shown
            ],
        )
        lines += finite_contrast_lines(shown)
    return "\n".join(lines)
