"""What a generalized root model consists of, and how likely rows are under it."""

from __future__ import annotations

import pandas as pd
import torch

from ...core.scores import Figures
from ..file import RootFile
from ..regress.result import RootRefitResult, RootTerm
from ..study.analysis import standardise_term

__all__ = ["root_figures", "root_summary"]


def root_summary(file: RootFile, level: float = 0.95) -> pd.DataFrame:
    """A line for every coefficient of the joint model, those of single columns first; ``level`` plays no role.

    Returns:
        ``term``; ``root``, the order j of the roots that are multiplied; ``estimate``, the factor of their product; and
        of real columns with known scales ``per_sd``, the same for columns divided by their standard deviations.
    """
    _ = level
    energy, scales = file.energy(torch.float64), file.info.get("scales", {})
    zipped = zip(energy.structure.names, energy.coefficients.tolist(), strict=True)
    terms = [RootTerm(key, names, value) for (key, names), value in zipped]
    terms = sorted(terms, key=lambda term: (term.key[1] > 1, -abs(term.coefficient) if term.key[1] > 1 else 0.0))
    columns = {
        "term": [":".join(term.names) for term in terms],
        "root": [term.key[0] for term in terms],
        "estimate": [term.coefficient for term in terms],
    }
    if scales:
        columns["per_sd"] = [standardise_term(term, scales).coefficient for term in terms]
    found = pd.DataFrame(columns)
    notes = ["estimate: factor of the product of the roots of the columns in the log density"]
    found.attrs["notes"] = [*notes, "no standard errors: the coefficients come from penalised regressions"]
    return found


def root_figures(file: RootFile, refit: RootRefitResult | None, status: str) -> Figures:
    """Its size, and the log pseudo-likelihood of the training rows after a refit."""
    rows = file.info.get("rows")
    return Figures(
        num_variables=len(file.info.get("columns", file.structure.domain.names)),
        num_interactions=sum(key[1] > 1 for key, _ in file.structure.names),
        num_parameters=file.structure.num_terms,
        num_rows=rows,
        log_pseudo_likelihood=None if refit is None or rows is None else -refit.pseudo_nll * rows,
        status=status,
        method="penalised regressions" + ("" if refit is None else f", refit {refit.method!r}"),
    )
