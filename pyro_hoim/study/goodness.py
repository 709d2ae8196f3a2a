"""What a report says about a test against the saturated model: the statistics, the p-value and what it rests on."""

from __future__ import annotations

from ..core.words import number, plural
from ..log_linear.goodness.goodness_of_fit import GoodnessOfFit

__all__ = ["goodness_sentences"]


def goodness_sentences(test: GoodnessOfFit) -> list[str]:
    """One or two sentences that give the numbers and what they rest on."""
    square = "\N{SUPERSCRIPT TWO}"
    if test.df_adjusted <= 0:
        if not test.num_cells_zero:
            return ["The model is saturated: it reproduces the observed table and leaves nothing to test."]
        reproduced = (
            f"No degrees of freedom are left: the margins force {plural(test.num_cells_zero, 'cell')} to zero, and on "
            "the other cells the model reproduces the observed table."
        )
        return [reproduced]
    statistics = (
        f"Against the saturated model: G{square} = {number(test.deviance)} and X{square} = {number(test.pearson)} on "
        f"{plural(test.df_adjusted, 'degree')} of freedom"
    )
    if test.p_value_method is None:
        return [f"{statistics}; there is no p-value, because {test.p_value_note}."]
    if test.p_value_method == "chi-square":
        rests = f"by the chi-square distribution: {test.p_value_note}"
        return [f"{statistics}; p = {number(test.p_value)} for G{square} {rests}."]
    symbol = "G" if test.p_value_statistic == "deviance" else "X"
    source = "with the same margins" if test.p_value_method == "exact" else "drawn from the fitted model and refitted"
    name = "exact conditional test" if test.p_value_method == "exact" else "parametric bootstrap"
    tables = f"{plural(test.num_tables, 'table')} {source}"
    if test.p_value <= (1 + 1e-9) / (test.num_tables + 1):
        found = f"{symbol}{square} is not as large in any of {tables}, hence p = {number(test.p_value)} ({name})"
    else:
        error = number(test.p_value_std_error)
        rests = f"{name}, Monte Carlo standard error {error}"
        found = f"p = {number(test.p_value)} for {symbol}{square}, from {tables} ({rests})"
    return [f"{statistics}; {found}.", f"The chi-square distribution is not used, because {test.p_value_note}."]
