"""A learned model as plain text for a terminal."""

from __future__ import annotations

from ...study.learned import LearnedAnalysis
from ..blocks import number
from ..plain import columns_of
from ..words import accuracy_line, fixed, short_edge
from .sections import learned_distinct, learned_summary, learned_warnings, shows_kl, worth_text

__all__ = ["learned_plain_report"]

_SHOWN = 12
_EDGE, _LEVELS = 44, 28  # characters


def learned_plain_report(analysis: LearnedAnalysis) -> str:
    """What was learned: scores beside the independent model, interactions worth most, what was estimated.

    Args:
        analysis: what to show.

    Returns:
        Several lines of text.
    """
    parts = {name: part for name, part in analysis.parts.items() if part is not None}
    lines = [*learned_summary(analysis), ""]
    with_kl = shows_kl(analysis)
    lines += columns_of(
        ["part", "rows", "gain", "SE", "NLL", *(["KL", "KL independent"] if with_kl else [])],
        [
            [
                name,
                number(part.model.rows),
                fixed(part.gain),
                _four(part.gain_std_error),
                fixed(part.model.nll),
                *((_four(part.model.kl), _four(part.independent.kl)) if with_kl else ()),
            ]
            for name, part in parts.items()
        ],
    )
    lines += [f"({sentence})" for sentence in learned_distinct(analysis)]
    if analysis.target is not None:
        lines.append("")
        for name, part in parts.items():
            if part.accuracy is not None:
                lines.append(accuracy_line(name, part.accuracy))
    shown = analysis.interactions[:_SHOWN]
    if shown:
        lines.append("")
        lines += columns_of(
            ["interaction", "worth", "strength", "levels"],
            [
                [
                    short_edge(r["edge"], _EDGE),
                    worth_text(r["removal"]),
                    fixed(r["strength"]),
                    short_edge(r["levels"], _LEVELS),
                ]
                for r in shown
            ],
        )
        lines.append("(worth: nats a row that the model loses without it; ≤ marks an estimated upper bound)")
    lines += [f"note: {sentence}" for sentence in learned_warnings(analysis)]
    return "\n".join(lines)


def _four(value: float | None) -> str:
    return "–" if value is None else fixed(value)
