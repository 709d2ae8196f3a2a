"""The keys of ``fit.json`` of given interactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.command.answers import accuracy_by_part, by_part, log_partition_json, rows_by_part
from ...core.words import num_states_text
from ...log_linear.goodness.goodness_of_fit import GoodnessOfFit
from ..analysis import Analysis
from ..files import STRUCTURE_FILE

__all__ = ["GAINS", "SCORES", "summary"]

SCORES = {"kl": "model.kl", "nll": "model.nll", "pseudo_nll": "model.pseudo_nll", "independent_kl": "independent.kl"}
GAINS = {"gain": "gain", "gain_std_error": "gain_std_error"}


def _goodness_json(test: GoodnessOfFit | None) -> dict[str, Any] | None:
    """The keys of a test against the saturated model, None where the table is too large or cells are missing."""
    if test is None:
        return None
    names = ("method", "statistic", "pearson", "note")
    return {
        **{name: getattr(test, name) for name in ("deviance", "pearson", "p_value", "num_tables")},
        **{f"p_value_{name}": getattr(test, f"p_value_{name}") for name in names},
        "df": test.df_adjusted,
        "p_value_std_error": test.p_value_std_error if test.num_tables else None,
    }


def summary(analysis: Analysis, folder: Path) -> dict[str, Any]:
    """The keys of ``fit.json``."""
    chosen = analysis.chosen
    structure, parts = chosen.hypergraph, chosen.parts
    keys: dict[str, Any] = {
        "num_variables": len(structure.domain),
        "num_states": num_states_text(structure.domain.num_states),
        "num_interactions": structure.num_interactions,
        "num_parameters": chosen.fit.num_parameters_fitted,
        "edges": [list(edge) for edge in structure.edges],
        "log_partition": log_partition_json(chosen.log_partition),
        "rows": rows_by_part(parts, "model.rows"),
        "impossible_rows": rows_by_part(parts, "impossible_rows"),
        **by_part(parts, **SCORES, **GAINS),
        "goodness_of_fit": _goodness_json(chosen.goodness),
        "goodness_of_fit_reason": analysis.no_goodness,
        "prior": str(analysis.prior or "none"),
        "status": chosen.fit.status,
        "mle_exists": None if chosen.fit.existence is None else chosen.fit.existence.exists,
        **chosen.infinite_json,
    }
    if chosen.uncertainty is not None:
        keys |= chosen.uncertainty.to_json()
    if any(part and part.accuracy for part in parts.values()):
        keys["accuracy"] = accuracy_by_part(parts)
    if len(analysis.models) > 1 or chosen.goodness is not None:
        keys["models"] = analysis.comparison_records()
    if len(analysis.models) > 1:
        keys["nested_tests"] = list(analysis.nested_tests)
    if chosen.posterior is not None:
        keys["posterior"] = {
            "file": str(folder / "posterior.nc"),
            "prior": str(chosen.posterior.prior),
            "max_r_hat": chosen.posterior.max_r_hat,
            "min_ess_bulk": chosen.posterior.min_ess_bulk,
            "divergences": chosen.posterior.num_divergences,
        }
    if analysis.structures is not None:
        keys["structure_posterior"] = analysis.structures.to_json(str(folder / STRUCTURE_FILE))
    if analysis.constrained is not None:
        keys["penalty"] = analysis.constrained.to_json()
    return keys
