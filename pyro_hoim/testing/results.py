"""Conformance of results: what the result of a fit, and a loaded model, of every family must do with data frames.

A family is tested by a ``ResultCase`` for its result and one for what its file gives: ``pytest.mark.parametrize`` over
``RESULT_CHECKS``, or in one call ``check_result``, which reports every check that failed.
"""

from __future__ import annotations

import copy
import math
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.operations import predict, stored_model
from ..errors import InputError, IntractableError
from ..results.fitted import Fitted
from ..results.table import SummaryTable
from .assertions import assert_close, assert_equal
from .conformance import run_cases

_LINE = 110


@dataclass(frozen=True)
class ResultCase:
    """A result with rows that it can be asked about.

    Args:
        result: of a fit, or what :func:`~pyro_hoim.load` returned.
        rows: a data frame with all columns of the model, without missing cells, with an index that is no range.
        target: one of these columns.

    Example:
        >>> from pyro_hoim import fit, load_table
        >>> rows = pd.DataFrame({"Admit": ["Admitted", "Rejected"], "Gender": ["Male", "Female"]}, index=["x", "y"])
        >>> case = ResultCase(fit("Admit * Gender", load_table("ucb_admissions")), rows, "Admit")
        >>> check_predict(case)  # the index, whatever the order of the columns
        >>> case.is_labels
        True
    """

    result: Any
    rows: pd.DataFrame
    target: str

    @property
    def is_labels(self) -> bool:
        """Whether the columns hold labels, not numbers."""
        return stored_model(self.result)[0].data_type == "labels"


def _or_refused(call: Callable[[], Any]) -> Any:
    """What a call returns, or None where the family lacks it and says in one line what to do instead."""
    try:
        return call()
    except (IntractableError, InputError) as error:
        assert_equal("\n" in str(error), False, "an error of one line")
        assert_equal(bool(error.hint), True, f"a hint of what to do instead of: {error}")
        return None


def check_summary(case: ResultCase) -> None:
    """A table of terms that fits a terminal, with limits in order; levels outside 0 and 1 are refused."""
    assert_equal(isinstance(case.result, Fitted), True, "a result that inherits Fitted")
    table = case.result.summary()
    assert_equal(isinstance(table, SummaryTable) and "term" in table, True, "a summary with terms")
    assert_equal(max(len(line) for line in str(table).split("\n")) <= _LINE, True, "a print that fits a line")
    if {"estimate", "std_error", "z"} <= set(table.columns):
        has_test = table["z"].notna()
        assert_close(table["z"][has_test], (table["estimate"] / table["std_error"])[has_test], what="z")
        assert_equal(bool((table["lower"] <= table["upper"])[has_test].all()), True, "limits in order")
    for level in (0.0, 1.0):
        try:
            case.result.summary(level=level)
        except InputError:
            continue
        raise AssertionError(f"level={level} is accepted")


def check_interactions(case: ResultCase) -> None:
    """Terms, orders and values, the strongest first; ``top`` interactions."""
    table = case.result.interactions()
    assert_equal(table.columns[:3].tolist(), ["term", "order", "value"], "columns of interactions")
    if len(table):
        first = {frozenset(term.split(":")) for term in case.result.interactions(1)["term"]}  # perhaps in several rows
        assert_equal(first, {frozenset(table["term"].iloc[0].split(":"))}, "the strongest interaction")


def check_odds_ratios(case: ResultCase) -> None:
    """Odds ratios inside their intervals with levels in words; or an error with a hint."""
    table = _or_refused(case.result.odds_ratios)
    if table is None:
        return
    assert_equal(table.columns[:3].tolist(), ["term", "levels", "odds_ratio"], "columns of odds ratios")
    assert_equal(max(len(line) for line in str(table.head(0)).split("\n")) > 0, True, "a print of no rows")
    if "lower" in table:
        inside = (table["lower"] <= table["odds_ratio"]) & (table["odds_ratio"] <= table["upper"])
        assert_equal(bool(inside[table["lower"].notna() & table["upper"].notna()].all()), True, "limits in order")


def check_predict(case: ResultCase) -> None:
    """One line a row with its index, whatever the order of the columns and what else the frame holds."""
    predicted = case.result.predict(case.rows, case.target)
    assert_equal(predicted.index.tolist(), case.rows.index.tolist(), "index of predictions")
    turned = case.rows[case.rows.columns[::-1]].assign(another=1.0)
    pd.testing.assert_frame_equal(case.result.predict(turned, case.target), predicted, check_exact=False)
    unknown = case.result.predict(case.rows.drop(columns=case.target), case.target)
    assert_equal(len(unknown), len(case.rows), "predictions without the column of the target")


def check_sample(case: ResultCase) -> None:
    """Rows of all columns, the same for a seed, with columns held where they are given."""
    names = stored_model(case.result)[1].domain.names
    drawn = case.result.sample(7, seed=1)
    assert_equal((len(drawn), sorted(drawn.columns)), (7, sorted(names)), "rows drawn")
    pd.testing.assert_frame_equal(case.result.sample(7, seed=1), drawn)
    value = case.rows[case.target].iloc[0]
    cells = case.result.sample(3, given={case.target: value}, seed=1)[case.target]
    assert_equal({str(cell) for cell in cells}, {str(value)}, "a column that is held")


def check_score(case: ResultCase) -> None:
    """Figures by name, a finite one among them, with notes."""
    scores = case.result.score(case.rows)
    assert_equal(isinstance(scores["notes"], list), True, "notes of a score")
    known = [scores.get(name) for name in ("nll", "pseudo_nll")]
    assert_equal(any(value is not None and math.isfinite(value) for value in known), True, "a finite score")


def check_impute(case: ResultCase) -> None:
    """Missing cells filled, all others, index, columns and types kept; or an error with a hint."""
    holes = case.rows.copy()
    holes[case.target] = holes[case.target].astype(object)
    holes.iloc[0, holes.columns.get_loc(case.target)] = None  # pyright: ignore[reportArgumentType]
    completed = _or_refused(lambda: case.result.impute(holes, seed=0))
    if completed is not None:
        assert_equal(completed.index.tolist(), case.rows.index.tolist(), "index of completed rows")
        assert_equal(completed.columns.tolist(), case.rows.columns.tolist(), "columns of completed rows")
        assert_equal(int(completed.isna().to_numpy().sum()), 0, "missing cells that are left")
        others = [name for name in case.rows if name != case.target]
        pd.testing.assert_frame_equal(completed.loc[:, others], case.rows.loc[:, others])


def check_row_log_likelihood(case: ResultCase) -> None:
    """A number a row with its index, whose mean is that of the score; or an error with a hint."""
    for pseudo in (False, True):
        values = _or_refused(lambda pseudo=pseudo: case.result.row_log_likelihood(case.rows, pseudo=pseudo))
        if values is None:
            continue
        assert_equal(values.index.tolist(), case.rows.index.tolist(), "index of log-likelihoods")
        name = "nll" if values.attrs["kind"] == "likelihood" else "pseudo_nll"
        score = case.result.score(case.rows).get(name)
        if score is not None:
            assert_close(-values.mean(), score, relative=1e-6, what=f"mean of the rows and {name}")


def check_compare(case: ResultCase) -> None:
    """A line for each model; a model gains nothing over itself."""
    table = case.result.compare(case.result)
    assert_equal((table.index.tolist(), table.index.name), (["model 1", "model 2"], "model"), "models compared")
    by_rows = _or_refused(lambda: case.result.compare(case.result, data=case.rows))
    if by_rows is not None:
        assert_equal(by_rows["gain"].tolist(), [0.0, 0.0], "gain over itself")


def check_test_terms(case: ResultCase) -> None:
    """Tests of every interaction; or an error with a hint."""
    tests = _or_refused(case.result.test_terms)
    if tests is not None:
        assert_equal({"term", "df", "statistic", "p_value"} <= set(tests.columns), True, "columns of tests")


def check_plots(case: ResultCase) -> None:
    """Every picture is drawn into the axes given, which come back; or an error with a hint."""
    names = list(case.rows.columns[:2])
    plots: list[Callable[[Axes], Axes]] = [
        case.result.plot_interactions,
        case.result.plot_hypergraph,
        lambda axes: case.result.plot_fitted(axes, data=case.rows),
        lambda axes: case.result.plot_mosaic(*names, ax=axes, data=case.rows),
    ]
    # A family may refuse some pictures, but not all.
    drawn = 0
    for plot in plots:
        axes = Figure().add_subplot()
        shown = _or_refused(lambda plot=plot, axes=axes: plot(axes))
        assert_equal(shown is None or shown is axes, True, "the axes given")
        drawn += shown is not None
    assert_equal(drawn >= 2, True, "pictures of the interactions")


def check_report_and_file(case: ResultCase) -> None:
    """A page in a new folder, and a file from which the same model comes back."""
    with tempfile.TemporaryDirectory() as folder:
        page = case.result.report(Path(folder) / "new")
        assert_equal("</html>" in page.read_text(encoding="utf-8"), True, "a page")
        # What comes back from the file predicts what the result predicted.
        path = Path(folder) / "model.safetensors"
        case.result.save(path)
        family, stored = stored_model(case.result)
        again = family.read(path)
        assert_equal(again.domain, stored.domain, "columns of the file")
        from_file, before = (predict(model, case.rows, case.target) for model in (again, case.result))
        pd.testing.assert_frame_equal(from_file, before)


def check_print(case: ResultCase) -> None:
    """One or two short lines, and HTML that holds the table and no picture of the terminal."""
    lines = repr(case.result).split("\n")
    assert_equal(len(lines) <= 2 and max(map(len, lines)) <= 160, True, f"a short print, found {lines}")
    page = case.result._repr_html_()
    assert_equal("<table" in page and "<script" not in page and page.count("<tr>") <= 21, True, "HTML of a result")


def check_copies(case: ResultCase) -> None:
    """Pickled by an old and a new protocol, and copied deeply, a result gives the same numbers."""
    before = case.result.summary(), case.result.predict(case.rows, case.target)
    copies = [pickle.loads(pickle.dumps(case.result, number)) for number in (2, 5)]  # noqa: S301 (our own bytes)
    for other in [*copies, copy.deepcopy(case.result)]:
        assert_equal(type(other), type(case.result), "type of a copy")
        pd.testing.assert_frame_equal(pd.DataFrame(other.summary()), pd.DataFrame(before[0]), check_exact=True)
        pd.testing.assert_frame_equal(other.predict(case.rows, case.target), before[1], check_exact=True)


RESULT_CHECKS: tuple[Callable[[ResultCase], None], ...] = (
    check_summary,
    check_interactions,
    check_odds_ratios,
    check_predict,
    check_sample,
    check_score,
    check_impute,
    check_row_log_likelihood,
    check_compare,
    check_test_terms,
    check_plots,
    check_report_and_file,
    check_print,
    check_copies,
)
"""Every check of a result, called with a ``ResultCase``."""


def check_result(case: ResultCase) -> None:
    """Run every check; AssertionError names all that failed.

    Example:
        >>> rows = pd.DataFrame({"Admit": ["Admitted"], "Gender": ["Male"]}, index=["x"])
        >>> check_result(ResultCase(Fitted(), rows, "Admit"))  # a class that no family registers
        Traceback (most recent call last):
        AssertionError: ... checks failed:
        result: check_summary: InputTypeError: model: expected a model, a law or the result of a fit ...
    """
    run_cases(RESULT_CHECKS, [("result", case)])
