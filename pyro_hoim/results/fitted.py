"""What every result of a fit and every loaded model can do, whatever its family."""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pandas as pd
from typing_extensions import override

from ..atomic import made_folder
from ..core import operations
from ..core.family import Stored, family_of_model
from ..core.words import at_least, plural
from ..data.columns import RowOptions
from ..data.counts import CountTable
from ..data.observations import Observations
from ..errors import check_fraction, check_names, refused
from .comparison import compare, figures_of
from .table import SummaryTable, html_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..plots.drawing import Target


class Fitted:
    """Methods of the results of all families. What a family cannot do raises one error that says what to do instead.

    Rows are data frames of pandas or polars, :class:`~pyro_hoim.Observations`, or a :class:`~pyro_hoim.CountTable` of
    numbers; of a data frame the columns of the model are read, in any order.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> result = fit(InteractionHypergraph.saturated(domain), Observations.from_table(domain, [[30, 10], [20, 40]]))
        >>> result
        FitResult: log-linear model, 2 variables, 1 interaction, 3 parameters
          100 rows, log-likelihood -127.99, converged
        >>> result.summary()[["term", "estimate", "odds_ratio"]].round(3).to_dict("list")
        {'term': ['a:b', 'a', 'b'], 'estimate': [1.792, -0.405, -1.099], 'odds_ratio': [6.0, nan, nan]}
    """

    @cached_property
    def as_stored(self) -> Stored:
        """What a file would hold of the result; made once, for it does not change."""
        return operations.stored_record(self)

    def summary(self, level: float = 0.95, **options: Any) -> SummaryTable:
        """What the model consists of, a line for every coefficient, with tests where the family has them.

        Args:
            level: coverage of the intervals.
            options: of the family. A log-linear model takes ``coding``: ``"corner"``, the default where the model has
                it, compares with the first level of every variable, so that coefficients of pairs are log odds ratios
                (with other levels by ``reference={name: level}``); ``"balanced"`` has deviations that sum to zero over
                the levels.

        Returns:
            ``term``, the interaction; of labels the ``levels``; ``estimate`` and, where the family has them,
            ``std_error``, ``lower``, ``upper``, ``z``, ``p_value`` (Wald, two-sided) and the ``odds_ratio`` of pairs.
            Columns that the family lacks are absent; a dependency network says instead what every column reads. An
            infinite estimate is infinite where its sign is certain, else NaN, and has no interval.

        Raises:
            InputError: a level outside 0 and 1.
            UnknownNameError: an option that the family lacks.
        """
        check_fraction(level, "level")
        family = family_of_model(self)
        known = [*inspect.signature(family.summary).parameters][1:]
        check_names(options, known, "options", noun="option of summary")
        if not family.has("summary"):
            return _table(operations.interactions(self).rename(columns={"value": "estimate"}))
        return _table(family.summary(self, level=level, **options))

    def odds_ratios(self, level: float = 0.95, **options: Any) -> SummaryTable:
        """Odds ratios of all interactions, strongest first, with intervals and tests where the model has them.

        One coding for every model: each level is compared with the reference level of its column, the first one, given
        all other columns. A pair in a larger interaction has the odds ratio at the reference levels of the columns that
        modify it, three columns the ratio of two odds ratios, four the ratio of two such ratios. A term with
        ``linear(a)`` has the odds ratio for one step of the scores of a. These are the exponentials of the
        coefficients of ``summary()``.

        A dependency network has no such parameters. It has the odds ratios of the pairs that its arrows tie, of two
        columns alone, which other columns may explain. A root model compares the value 1 with 0, and numbers of which
        it knows the standard deviation at that distance (from a rounded mean in a data frame), all others at these.

        Strongest first means: by the end of the interval that is nearest to 1, so that a large odds ratio which few
        rows support does not come first; then, and without intervals, by size.

        Args:
            level: coverage of the intervals.
            options: of the family. A log-linear model takes ``covariance``, ``"model"`` or ``"robust"`` (sandwich),
                the default of weighted rows; and ``reference={name: level}`` for other reference levels.

        Returns:
            One row for every contrast of an interaction: ``term``; ``levels`` in words, such as
            "smoke=y vs n, ill=y vs n"; ``odds_ratio``; ``lower`` and ``upper``; and where there are tests ``p_value``
            (Wald, two-sided; of infinite ones by the likelihood ratio) and ``p_value_adjusted`` by Benjamini and
            Hochberg, over all rows. The limits are NaN where the model has no standard errors: those of more than 600
            parameters, of a penalty that is not smooth or of norm bounds, and root models without a refit of all
            terms. Those of learned models do not account for the search. An odds ratio may be 0
            or infinite, with one finite limit from the profile likelihood; it is NaN where the rows do not identify
            it. ``attrs["notes"]`` says what the numbers rest on, ``attrs["level"]`` the coverage.

        Raises:
            InputError: a level outside 0 and 1, or reference levels of restricted interactions.
            UnknownNameError: an option that the family lacks.
            IntractableError: the family has no odds ratios; the message says what to use.

        Example:
            >>> from pyro_hoim import Domain, Observations, fit
            >>> domain = Domain.from_labels({"smoke": ["n", "y"], "ill": ["n", "y"]})
            >>> result = fit("smoke*ill", Observations.from_table(domain, [[30, 10], [20, 40]]))
            >>> result.odds_ratios()[["levels", "odds_ratio", "lower", "upper"]].round(2).values.tolist()
            [['smoke=y vs n, ill=y vs n', 6.0, 2.45, 14.68]]
        """
        check_fraction(level, "level")
        family = family_of_model(self)
        if family.has("odds_ratios"):
            known = [*inspect.signature(family.odds_ratios).parameters][1:]
            check_names(options, known, "options", noun="option of odds_ratios")
        return _table(family.odds_ratios(self, level=level, **options))

    def effects(
        self,
        response: str | None = None,
        *,
        given: Mapping[str, Any] | None = None,
        change: Mapping[str, Any] | None = None,
        level: float = 0.95,
    ) -> SummaryTable:
        r"""What a change of one column does to another, all others held at stated values; of root models.

        The effect is that on the distribution of the response given all other columns: an odds ratio of a 0/1 column,
        and of every level of a category against its first one; a ratio of means of counts (of Poisson ones a rate
        ratio) and of positive numbers; a difference of means of real numbers. In a root model it depends on where a
        change begins, as the values are those of roots.

        Args:
            response: the column that responds; every one in turn when None.
            given: values at which other columns are held, in the words of the table; by default those that are typical
                in the rows learned from: of numbers the median, of 0/1 columns and categories the most frequent value.
            change: of a column, how much it is changed by from the value that it is held at, or a pair of values; by
                default one unit, of real and positive numbers of a data frame about one standard deviation; of a 0/1
                column from 0 to 1, and of a category from its first level to each other.
            level: coverage of the intervals.

        Returns:
            A row for every change of a column that shares a term with the response: ``response``, with categories
            ``levels``, ``column``, ``before`` and ``after``; ``effect``, which says what is compared; ``estimate`` of
            the model; ``std_error`` (of a ratio that of its logarithm), ``lower`` and ``upper`` by the delta method
            from the sandwich covariance of a refit, given the terms of the model. Where the penalty moves some estimate
            visibly, ``unpenalised`` is the one without it. ``attrs["given"]`` has the values held.

        Raises:
            InputError: a level outside 0 and 1, a value outside a column's support, or a model without typical values.
            UnknownNameError: an unknown column.
            IntractableError: the family has no such effects.

        Example:
            >>> import numpy as np
            >>> from pyro_hoim import fit_roots
            >>> from pyro_hoim.generalized_root import TruncatedPoissonFamily
            >>> rng = np.random.default_rng(0)
            >>> smoke = rng.random(800) < 0.4
            >>> rows = np.column_stack([smoke, rng.poisson(np.where(smoke, 3.0, 1.5))])
            >>> families = {"smoke": TruncatedPoissonFamily(1), "visits": "poisson"}
            >>> fitted = fit_roots(rows, families, order=2, names=["smoke", "visits"], refit="all")
            >>> table = fitted.effects("visits")
            >>> table[["column", "before", "after", "effect"]].values.tolist()
            [['smoke', '0', '1', 'rate ratio']]
        """
        check_fraction(level, "level")
        family = family_of_model(self)
        return _table(family.effects(self, response=response, given=given, change=change, level=level))

    def test_terms(self, **options: Any) -> SummaryTable:
        """A test of every interaction, with p-values adjusted for their number.

        Args:
            options: of the family; those of a log-linear model are of
                :func:`~pyro_hoim.log_linear.goodness.goodness_of_fit.term_tests`.

        Raises:
            IntractableError: the family has no such tests.
        """
        return _table(family_of_model(self).term_tests(self, **options))

    def interactions(self, top: int | None = None, **options: Any) -> SummaryTable:
        """What ties the columns, strongest first; see :func:`pyro_hoim.core.operations.interactions`."""
        return _table(operations.interactions(self, top, **options))

    def predict(self, data: Any, target: str, **options: Any) -> pd.DataFrame:
        """One column of rows from the others; see :func:`pyro_hoim.predict`."""
        return operations.predict(self, data, target, **options)

    def sample(
        self, number: int, given: Mapping[str, Any] | None = None, seed: int = 0, **options: Any
    ) -> pd.DataFrame:
        """Independent rows of the model, also given some columns; see :func:`pyro_hoim.sample`."""
        return operations.sample(self, number, given, seed=seed, **options)

    def score(self, data: Any, **options: Any) -> dict[str, Any]:
        """How well the model predicts rows, in nats a row; see :func:`pyro_hoim.score`."""
        return operations.score(self, data, **options)

    def impute(self, data: Any, number: int = 1, **options: Any) -> pd.DataFrame:
        """Rows with their missing cells drawn given the others; see :func:`pyro_hoim.impute`."""
        return operations.impute(self, data, number, **options)

    def row_log_likelihood(
        self, data: Any, pseudo: bool = False, *, missing_values: Collection[str] = ("",)
    ) -> pd.Series:
        """Log-likelihood of every row; see :func:`pyro_hoim.core.operations.row_log_likelihood`."""
        return operations.row_log_likelihood(self, data, pseudo=pseudo, missing_values=missing_values)

    def compare(self, *others: Any, data: Any = None, **options: Unpack[RowOptions]) -> SummaryTable:
        """This model, number 1, beside others; see :func:`pyro_hoim.compare`, which takes names."""
        models = {f"model {number}": model for number, model in enumerate((self, *others), 1)}
        return compare(models, data, **options)

    def plot_interactions(self, ax: Target = None, *, top: int | None = 20) -> Axes:
        """Coefficients of two and more columns with their intervals, the largest; see :mod:`pyro_hoim.plots`.

        Args:
            ax: axes to draw into, an empty figure, or None for a new figure of pyplot.
            top: at most so many.
        """
        from .pictures import draw_interactions

        return draw_interactions(self, ax, top)

    def plot_hypergraph(self, ax: Target = None, **options: Any) -> Axes:
        """All interactions on a circle, as wide as they are strong.

        Args:
            ax: as of :meth:`plot_interactions`.
            options: as ``top`` and ``title``, see :func:`pyro_hoim.plots.plot_hypergraph`.
        """
        from .pictures import draw_hypergraph

        return draw_hypergraph(self, ax, **options)

    def plot_fitted(self, ax: Target = None, *, data: Any = None, **options: Unpack[RowOptions]) -> Axes:
        """Counts of cells against those expected; in a sparse table cells of like probability are taken together.

        Args:
            ax: as of :meth:`plot_interactions`.
            data: rows to count; by default those that the result keeps.
            options: of a data frame ``weights``, ``count``, ``missing`` and ``missing_values``, as
                :func:`pyro_hoim.score` has them.

        Raises:
            InputError: no rows given, and none kept.
            IntractableError: the columns are numbers, the table has more than 131,072 cells, or the probabilities of
                these are out of reach.
        """
        from .pictures import draw_fitted

        return draw_fitted(self, ax, data, options)

    def plot_mosaic(self, *names: str, ax: Target = None, data: Any = None, **options: Unpack[RowOptions]) -> Axes:
        """A mosaic of the counts of one to four columns, shaded by how far they are from independence.

        Args:
            names: the columns, in the order of the splits; all when none is named.
            ax: as of :meth:`plot_interactions`.
            data: as of :meth:`plot_fitted`.
            options: likewise.

        Raises:
            InputError: as of :meth:`plot_fitted`, or more than four columns.
            IntractableError: the columns are numbers.
        """
        from .pictures import draw_mosaic

        return draw_mosaic(self, names, ax, data, options)

    def report(self, folder: str | os.PathLike[str], *, safe_csv: bool = False) -> Path:
        """Write a page on the model, ``report.html``, into a folder, which is made where there is none.

        Args:
            folder: where to; the page's tables and pictures stand beside it.
            safe_csv: write an apostrophe before cells of the tables that a spreadsheet would run.

        Returns:
            The path of the page.

        Raises:
            InputError: the folder is a file, or the system refuses to write; a folder that was made is removed again.

        Warns:
            DataWarning: with the number of cells that a spreadsheet would run, where they are written as they are.
        """
        from ..report.origin import provenance
        from ..report.render import write_page
        from .pictures import ResultStudy

        page, rows = ResultStudy.of(self).page(), getattr(self, "data", None)
        made = provenance(rows if isinstance(rows, Observations | CountTable) else None, seed=page.seed)
        target = Path(folder)
        if target.is_file():
            raise refused("folder", f"{target} is a file", "name a folder, which is made where there is none")
        with made_folder(target):
            write_page(page, target, made, safe_csv=safe_csv)
        return target / "report.html"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model into a file; see :func:`pyro_hoim.save`."""
        operations.save(self, path)

    @override
    def __repr__(self) -> str:
        family, figures = family_of_model(self), figures_of(self)
        first = [
            f"{type(self).__name__}: {family.name}",
            plural(figures.num_variables, "variable"),
            plural(figures.num_interactions, "interaction"),
            *([] if figures.num_parameters is None else [plural(figures.num_parameters, "parameter")]),
        ]
        second = [] if figures.num_rows is None else [figures.rows_text]
        if figures.log_likelihood is not None:
            second.append(f"log-likelihood {figures.log_likelihood:.2f}")
        elif figures.log_likelihood_bound is not None:
            second.append(f"log-likelihood at least {at_least(figures.log_likelihood_bound)}")
        elif figures.log_pseudo_likelihood is not None:
            second.append(f"log pseudo-likelihood {figures.log_pseudo_likelihood:.2f}")
        second += [words for words in (figures.status, figures.method) if words]
        lines = [", ".join(first), ", ".join(second), f"declared impossible: {figures.zeros}" if figures.zeros else ""]
        return "\n  ".join(filter(None, lines))

    def _repr_html_(self) -> str:
        return html_of(self.summary(), repr(self).replace("\n  ", "; "))


def _table(frame: pd.DataFrame) -> SummaryTable:
    """The same with the print of results."""
    table = SummaryTable(frame)
    table.attrs = dict(frame.attrs)
    return table


class LoadedModel(Fitted, Stored):
    """A model as its file holds it, with the methods of results.

    Example:
        >>> import tempfile
        >>> from pyro_hoim import fit, load, load_table
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit("Admit * Gender", load_table("ucb_admissions")).save(folder + "/model.safetensors")
        ...     model = load(folder)
        >>> model.predict(pd.DataFrame({"Gender": ["Male"]}), "Admit").round(4)  # 1198 of 2691 men
          predicted  p(Admitted)  p(Rejected)  is_exact
        0  Rejected       0.4452       0.5548      True
    """

    __repr__ = Fitted.__repr__

    @property
    def impossible(self) -> Any:
        """The states of probability zero, as of the fit; None where there are none, or the family has none."""
        return getattr(self.model, "impossible", None)

    @property
    def structural_zeros(self) -> Any:
        """Those of them that the fit was told of."""
        return getattr(self.model, "structural_zeros", None)
