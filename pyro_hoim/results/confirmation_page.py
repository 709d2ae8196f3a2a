"""What reports and commands say of tests of interactions, the same in every family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.page import Cell, Section, cell
from ..core.words import fixed, plural
from .confirmation import InteractionTest

__all__ = ["add_tests", "confirmation_json", "kept_sentence"]

_SHOWN = 20
_LEAST = 1e-16  # below it a normal tail is no more than a name for a large z


def kept_sentence(tests: Sequence[InteractionTest], rate: float, rows: str, noun: str = "interaction") -> str:
    """How many were tested on some rows, kept and rejected, and why."""
    rejected = [test for test in tests if not test.is_kept]
    replaced = sum(test.is_confirmed for test in rejected)
    why = f"{len(rejected) - replaced} are not confirmed by these rows, which does not show that they are absent"
    if replaced:
        why += f"; {replaced} are confirmed alone, but not beside those that replace them"
    return (
        f"{plural(len(tests), noun)} {'was' if len(tests) == 1 else 'were'} tested on all rows of {rows} "
        f"(false discovery rate {rate:g}): the structure keeps {len(tests) - len(rejected)} and rejects {len(rejected)}"
        + (f" ({why})." if rejected else ".")
    )


def add_tests(section: Section, tests: Sequence[InteractionTest]) -> None:
    """The table of tests, with held-out gains where there are some."""
    has_gains = any(test.gain is not None for test in tests)
    lines = [
        [
            ":".join(test.edge),
            *([cell(test.gain, _signed, test.gain_std_error)] if has_gains else []),
            cell(test.z, "{:.1f}".format),
            Cell(f"{test.p_value:.1g}" if test.p_value >= _LEAST else f"< {_LEAST:g}", test.p_value),
            _decision(test),
        ]
        for test in tests
    ]
    columns = ["interaction", *(["held-out gain"] if has_gains else []), "z", "p", "decision"]
    section.table(columns, lines, first=_SHOWN, further="Further interactions")


def confirmation_json(tests: Sequence[InteractionTest], rate: float) -> dict[str, Any]:
    """The tests that a structure was decided by, for ``fit.json``."""
    kept = sum(test.is_kept for test in tests)
    return {
        "false_discovery_rate": rate,
        "num_kept": kept,
        "num_rejected": len(tests) - kept,
        "tests": [test.to_json() for test in tests],
    }


def _signed(value: float) -> str:
    return fixed(value, 4, True)


def _decision(test: InteractionTest) -> str:
    """What became of an interaction, in words."""
    if test.is_kept:
        return "kept"
    if test.replaced_by:
        return "replaced by " + ", ".join(":".join(edge) for edge in test.replaced_by)
    return "replaced by others" if test.is_confirmed else "not confirmed"
