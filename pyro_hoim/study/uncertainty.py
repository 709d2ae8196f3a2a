"""How well the rows determine a fit: standard errors and intervals of coefficients, and a test of every interaction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch

from ..core.page import Section
from ..core.words import plural
from ..errors import IntractableError
from ..log_linear.coding import parametrization
from ..log_linear.fitting.result import FitResult
from ..log_linear.goodness.goodness_of_fit import term_tests
from ..log_linear.goodness.p_values import SMALLER
from ..log_linear.goodness.summary import fit_summary
from ..log_linear.infinite import has_cheap_covariance

__all__ = ["TestMethod", "Uncertainty", "uncertainty", "uncertainty_section"]

TestMethod = Literal["wald", "likelihood-ratio"]

_BRIEF = 12
_TESTS = ("term", "removal", "df", "statistic", "p_value", "p_value_adjusted", "p_value_method", "note")


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What the rows say of the precision of a fit.

    Attributes:
        level: coverage of the intervals.
        coefficients: :func:`~pyro_hoim.log_linear.goodness.summary.fit_summary`, with standard errors.
        tests: :func:`~pyro_hoim.log_linear.term_tests`, None of a fit that has none.
        method: of the tests.
        kept: what a model file keeps: of the entry that stands for each interaction the standard error, None where it
            is infinite, and of an interaction the test.
    """

    level: float
    coefficients: pd.DataFrame
    tests: pd.DataFrame | None
    method: TestMethod
    kept: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """The keys of ``fit.json``."""
        tests = None if self.tests is None else self.tests.filter(_TESTS).to_dict("records")
        return {
            "level": self.level,
            "coefficients": self.coefficients.to_dict("records"),
            "coefficients_notes": self.coefficients.attrs["notes"],
            "tests": tests,
            "tests_method": None if tests is None else self.method,
        }


def uncertainty(
    fit: FitResult, interactions: Sequence[dict[str, Any]], level: float, method: TestMethod
) -> Uncertainty | None:
    """Standard errors, intervals and tests of a fit; None where it has none, or they would take minutes."""
    if not has_cheap_covariance(fit):
        return None
    frame = fit_summary(fit, level=level)
    if "std_error" not in frame:  # a penalty that is not smooth, singular information
        return None
    tests = None
    if fit.penalty is None and fit.data is not None and not fit.data.has_missing:
        try:
            tests = term_tests(fit, method=method)
        except IntractableError:  # the rows do not tell some coefficients apart
            tests = None
    return Uncertainty(level, frame, tests, method, _kept(fit, interactions, tests))


def _kept(
    fit: FitResult, interactions: Sequence[dict[str, Any]], tests: pd.DataFrame | None
) -> tuple[dict[str, Any], ...]:
    """Standard error and test of every interaction."""
    slices = fit.hypergraph.term_slices
    index = [slices[tuple(row["edge"])].start + row["position"] for row in interactions]
    units = torch.eye(fit.hypergraph.num_parameters, dtype=torch.float64)
    errors = fit.contrast_errors(parametrization(fit.hypergraph).to_tables(units).T[index], None).tolist()
    by_term = {} if tests is None else {row["term"]: row for row in tests.to_dict("records")}
    records = list[dict[str, Any]]()
    for row, error in zip(interactions, errors, strict=True):
        test = by_term.get(":".join(row["edge"]), {})
        figures = {name: test.get(name) for name in ("df", "statistic", "p_value", "p_value_adjusted")}
        figures = {"std_error": error, **figures}
        known = {n: v if v is not None and math.isfinite(v) else None for n, v in figures.items()}
        records.append({"edge": list(row["edge"]), **known})
    return tuple(records)


def uncertainty_section(uncertainty: Uncertainty | None) -> Section | None:
    """The tables of coefficients and tests."""
    if uncertainty is None:
        return None
    section = Section("Coefficients and tests")
    frame, percent = uncertainty.coefficients, f"{100 * uncertainty.level:g} %"
    names = {"term": "term", "levels": "levels", "estimate": "estimate", "std_error": "SE", "lower": "lower"}
    names |= {"upper": "upper", "z": "z", "p_value": "p", "odds_ratio": "odds ratio"}
    columns = [name for name in names if name in frame]
    rows = frame[columns].astype(object).to_numpy().tolist()
    folded = f"All {len(frame)} coefficients" if len(frame) > 2 * _BRIEF else ""
    section.table([names[name] for name in columns], rows, folded=folded, brief=_BRIEF)
    section.note(f"Intervals: {percent}. {'. '.join(n[0].upper() + n[1:] for n in frame.attrs['notes'])}.")
    if uncertainty.tests is not None and len(uncertainty.tests):
        section.heading("Tests of interactions", brief=True)
        columns = ["term", "removal", "df", "statistic", "p_value", "p_value_adjusted", "p_value_method"]
        rows = uncertainty.tests[columns].astype(object).to_numpy().tolist()
        label = "Wald" if uncertainty.method == "wald" else "likelihood ratio"
        section.table(["interaction", "removed", "df", label, "p", "adjusted p", "p by"], rows, brief=_BRIEF)
        section.note(
            "Each interaction against the model without it and without those that contain it. Adjusted p: by "
            "Benjamini and Hochberg, rejecting those of at most 0.05 keeps the expected share of false rejections at "
            "most 0.05."
        )
        why = dict.fromkeys(uncertainty.tests.loc[uncertainty.tests["p_value_method"].isna(), "note"])
        if why:
            section.note(f"No p-value where {'; '.join(map(str, why))}.", brief=True)
        if num := int(uncertainty.tests["note"].astype(str).str.endswith(SMALLER).sum()):
            section.note(f"Of {plural(num, 'test')} the p-values are smaller than shown: no table drawn is as extreme.")
        if num := int(uncertainty.tests["note"].astype(str).str.startswith("rough").sum()):
            section.note(f"Of {plural(num, 'test')} the p-values are rough: the expected counts are small.", brief=True)
    return section
