"""A log-linear model from a data frame: interactions as a formula, a prior in words, counts and weights by column."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd
import torch

from .core.command.rows import warn_of_columns, warn_of_ranks, warn_of_size
from .core.words import listed, plural
from .data.columns import ColumnOptions, ColumnRules, python_words
from .data.encoding import plain_numbers
from .data.frames import DataLike, FrameLike, as_counts, as_frame, as_observations, column_named, drop_missing, is_frame
from .data.joined import Join, JoinedColumns
from .data.observations import Observations
from .data.readers import Source, check_counting, is_count_name, mostly_differ
from .data.sources import RowSource
from .data.wide import long_table, with_index
from .errors import (
    CostWarning,
    IntractableError,
    MissingDataError,
    UnknownNameError,
    caller_level,
    check_choice,
    check_names,
    check_type,
    conflict,
    is_whole,
    none_received,
    out_of_reach,
    refused,
    wrong_type,
)
from .log_linear.fitting.duration import check_bound_duration, check_duration, check_pseudo_duration
from .log_linear.fitting.fit import fit as fit_log_linear, rows_or_margins, uses_design
from .log_linear.fitting.incomplete import fit_incomplete
from .log_linear.fitting.penalties import Conjugate, Penalty, ProximalPenalty, SmoothPenalty
from .log_linear.fitting.result import FitResult
from .log_linear.impossible import structural_states
from .log_linear.learning.learn import LearnOptions, LearnResult, learn as learn_log_linear
from .log_linear.named_priors import Prior
from .log_linear.restricted.terms import (
    FUNCTIONS,
    Interactions,
    RestrictedInteractions,
    graph_of,
    restricted_interactions,
)
from .log_linear.search.rounds import SelectionOptions
from .planning import Route, advise, counts_in_frame, gaps_of, plan, routes_of, size_of, with_assumed, words_of
from .schema import Domain
from .structure.formula import FunctionTerm, parse_terms, split_formula
from .structure.hypergraph import InteractionHypergraph

if TYPE_CHECKING:
    from .generalized_root.regress.choice import RootLearnOptions
    from .generalized_root.regress.result import RootFitResult

__all__ = ["fit", "learn"]


Edges = Iterable[str | Iterable[str]]
Structure = str | InteractionHypergraph | int | Edges

_SAY = "a formula such as 'a*b + c', order=2, edges=[('a', 'b')] or an InteractionHypergraph"
_MISSING = ("drop", "marginalise")
_FEW, _DENSE = 12, 4  # different values of a response; combinations of levels per cell that is listed
_ALL_PAIRS = ".^2"
_OWN = ("order", "edges", "prior", "weights", "count", "missing", "missing_values", *ColumnRules.__annotations__)


@dataclass(frozen=True)
class _Columns:
    """How a data frame is read; what :func:`fit` was told of its columns."""

    weights: str | None = None
    count: str | None = "count"
    missing_values: Collection[str] = ("",)
    rules: ColumnRules = field(default_factory=ColumnRules)


def fit(
    structure: Structure | DataLike | None = None,
    data: DataLike | torch.Tensor | None = None,
    *,
    order: int | None = None,
    edges: Edges | None = None,
    prior: str | Prior | Penalty | None = None,
    weights: str | None = None,
    count: str | None = "count",
    missing: str | None = None,
    missing_values: Collection[str] = ("",),
    **options: Any,
) -> FitResult | Any:
    r"""Fit a hierarchical log-linear model to a data frame, to observations or to marginal counts.

    .. math:: \max_\theta \; N \big(\theta \cdot \eta_{\mathrm{data}} - \log Z(\theta)\big) + \log \pi(\theta)

    Maximum likelihood without a prior; with a prior pi, the mode of the posterior (MAP). The rest is that of
    :func:`pyro_hoim.log_linear.fit`, which does the work.

    Args:
        structure: which sets of variables interact. A formula such as ``"smoke*mental + phys*systol"``
            (:mod:`pyro_hoim.structure.formula`), whose left side, if any, names the column of counts
            (``"Freq ~ .^2"``), and which may hold scores and symmetry, such as ``linear(a):linear(b)``
            (:func:`~pyro_hoim.log_linear.restricted_interactions`); an :class:`~pyro_hoim.InteractionHypergraph`;
            the largest size of a set; or sets of names. Subsets of a set belong to the model. With ``order`` or
            ``edges`` it is left out: ``fit(frame, order=2)``. Without all three the plan of the table decides
            (:func:`pyro_hoim.plan`): all pairs are fitted where exact sums over them take a minute at most, or where a
            prior or an option of such fits is given; wider tables are learned, and counts get a root model.
        data: a data frame of pandas or polars, one row per observation or per cell with its count; a cross-tabulation
            or counts by combination (``pd.crosstab``, ``groupby().size()``); :class:`~pyro_hoim.Observations`; rows
            that need not be in memory (:func:`~pyro_hoim.data.open_rows`), of which the distinct ones, or margins, are
            held; or, with a hypergraph, flat marginal counts. Of a formula and of sets the columns that they name are
            used, ``.`` standing for all; of an order all columns.
        order: sets of up to so many variables.
        edges: sets of names, or ``"a:b"``, of which subsets belong to the model.
        prior: ``"unit"``, ``"unit:M"``, ``"normal:S"``, ``"ridge:S"``, ``"conjugate:N"`` or ``"none"`` as
            :class:`~pyro_hoim.log_linear.Prior` describes them, or a penalty such as ``L2(1.0)``.
        weights: column of weights of a data frame, fractions allowed, in place of counts.
        count: column of whole counts of a data frame; the default may be absent. None says that no column holds counts
            or weights.
        missing: what to do with rows that have missing cells: ``"drop"`` leaves them out, ``"marginalise"`` sums over
            their missing cells, assumed missing at random (:func:`pyro_hoim.log_linear.fit_incomplete`). Without it
            missing cells are an error.
        missing_values: labels of a data frame that mean "missing", besides None and NaN.
        options: of :func:`pyro_hoim.log_linear.fit`, such as ``objective="pseudo-likelihood"`` or ``"bound"``, or
            ``structural_zeros=[{"sex": "male", "pregnant": "yes"}]``, what is impossible; and of a data frame
            ``bins``, ``exclude`` and ``allow``, which say how columns are cut, left out and taken as they are
            (:func:`~pyro_hoim.data.read_columns`): ``bins="auto"`` cuts numbers of many values at quantiles.

    Returns:
        :class:`~pyro_hoim.log_linear.FitResult`. Where the plan chose another route, a
        :class:`~pyro_hoim.dependency_network.LearnedNetwork`, a :class:`~pyro_hoim.log_linear.LearnResult` or a
        :class:`~pyro_hoim.generalized_root.RootFitResult`, which all have the methods of results.

    Raises:
        UnknownNameError: a column, label or option that does not exist; the closest are listed.
        MissingDataError: missing cells, and ``missing`` does not say what to do with them.
        InputError: interactions that are said twice; scores of levels whose order is not known; columns that a formula
            spells out and that name rows, or hold dates or free text; no column that varies; numbers of many values of
            which ``bins``, ``exclude`` and ``allow`` say nothing; a column such as ``Freq`` or ``weight`` of which
            neither formula, ``count`` nor ``weights`` tells; no rows; or as :func:`pyro_hoim.log_linear.fit`.
        InputTypeError: data or a prior of another type.
        IntractableError: log Z is out of reach, or a fit that would take more than five minutes, unless ``partition``
            names the backend that is to take them.

    Warns:
        CostWarning: a fit that takes more than ten seconds, or the plan chose another route than all pairs.
        DataWarning: ``linear`` takes the ranks of levels that are numbers not equally far apart; of a data frame,
            columns that were left out or cut, constant columns, or more parameters than rows without a prior.
        ConvergenceWarning, NonexistentEstimateWarning: as :func:`pyro_hoim.log_linear.fit`.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"wet": [True, True, False, False], "cold": list("ynyn"), "n": [30, 10, 20, 40]})
        >>> result = fit("wet*cold", frame, count="n")
        >>> result.num_rows, round(abs(float(result.coefficients("corner")[-1])), 6)  # log(30 * 40 / (10 * 20))
        (100.0, 1.791759)
    """
    # The frame may come first, where ``order`` or ``edges`` say the interactions.
    if data is None and not isinstance(structure, str | Interactions) and not is_whole(structure):
        structure, data = None, structure  # type: ignore[assignment]
    if data is None:
        raise none_received("data", "a data frame or observations", "write fit('a*b', frame) or fit(frame, order=2)")
    data = long_table(data) if isinstance(data, pd.Series) else data
    if is_frame(structure):
        raise conflict(
            "structure, data", "the data frame comes second", "write fit('a*b', frame) or fit(frame, order=2)"
        )
    # Options of the call, before any row is read.
    if missing is not None:
        check_choice(missing, _MISSING, "missing")
    for name, column in (("weights", weights), ("count", count)):
        check_type(column, str | None, name, "the name of a column or None")
    accepted = [name for name in inspect.signature(fit_log_linear).parameters if name not in ("hypergraph", "data")]
    if missing == "marginalise":
        accepted += ["tolerance", "max_iterations", "progress"]
    check_names(options, [*_OWN, *accepted], "fit", noun="option")
    rules: Any = {name: options.pop(name) for name in ColumnRules.__annotations__ if name in options}
    # Without a structure the plan chooses the model: all pairs, where exact sums are in reach or options ask for them.
    columns, table = _Columns(weights, count, missing_values, rules), data
    reading = {"weights": weights, "count": count, "missing": missing, "missing_values": missing_values, **rules}
    if structure is order is edges is None:
        structure = _ALL_PAIRS
        is_read = isinstance(data, Observations | RowSource) and columns == _Columns()
        if prior is None and not options and (is_frame(data) or is_read):
            route, why, read = _advised(data, columns, reading)
            if route.name != "pairs":
                return _along(route, why, read, _plan_call(reading, table))
            data, columns = read, _Columns()
    asked = _said(structure, order, edges)
    try:
        # Interactions and rows, over the columns that both have.
        rows: Observations | torch.Tensor
        if is_frame(data):
            interactions, rows = _read_frame(asked, data, columns)
            warn_of_columns(rows)
        else:
            if columns != _Columns():
                names = ", ".join(["weights, count, missing_values", *ColumnRules.__annotations__])
                problem = f"{names} can only be said of a data frame"
                raise conflict("fit", problem, "observations hold their own counts and missing cells")
            interactions, rows = _read_rows(asked, data)
            if isinstance(rows, RowSource):
                rows = _held(rows, interactions, missing)
        # The prior, and what is worth a warning, before the work begins.
        penalty = options.pop("penalty", None)
        if prior is not None:
            if penalty is not None:
                raise conflict("prior, penalty", "at most one of them", "a penalty may be given as the prior")
            penalty = _penalty(prior, interactions)
        if isinstance(interactions, RestrictedInteractions):
            warn_of_ranks(interactions.orders)
        if is_frame(data) and isinstance(rows, Observations) and penalty is None and columns.weights is None:
            warn_of_size(rows, interactions.num_parameters)
        graph, num_rows = graph_of(interactions), rows.num_rows if isinstance(rows, Observations) else math.inf
        zeros = options["structural_zeros"] = structural_states(graph.domain, options.get("structural_zeros"))
        summed = graph if zeros is None or uses_design(graph) else zeros.added_to(graph)
        objective = options.get("objective", "likelihood")
        if options.get("partition") is None and objective == "likelihood":
            is_summed = isinstance(rows, Observations) and rows.has_missing and missing == "marginalise"
            check_duration(summed, num_rows, has_missing=is_summed)
        elif objective == "pseudo-likelihood":
            check_pseudo_duration(graph, num_rows)
        elif objective == "bound":
            check_bound_duration(summed, options.get("partition"))
        return _fitted(interactions, rows, missing, {**options, "penalty": penalty})
    except IntractableError as error:
        if options.get("structural_zeros") is not None:  # which no other route takes
            raise
        raise _with_route(error, asked, table, reading) from None


def learn(
    train: DataLike,
    validation: DataLike | None = None,
    search: SelectionOptions | None = None,
    *,
    numbers: Literal["cut", "families"] = "cut",
    join: Join | JoinedColumns = "exact",
    **options: Any,
) -> LearnResult | RootFitResult:
    """Learn which columns interact, and how strongly.

    Numbers of many values are cut into levels, or refused, and a log-linear model is learned of levels
    (:func:`pyro_hoim.log_linear.learn`), unless ``numbers="families"``. Then every column keeps its values and has a
    family of its own, chosen by its type and values (:func:`~pyro_hoim.generalized_root.choose_families`), and a
    generalized root model is learned: penalised regressions of every column on all others under several penalties, of
    which the one that predicts rows left out best is kept, refitted, and tested set by set.

    Args:
        train: complete rows; for families a data frame.
        validation: complete rows that decide when the search ends, or which penalty is kept. When None a quarter of
            ``train``, or for families each fifth of it in turn.
        search: of levels, as of :func:`pyro_hoim.log_linear.learn`.
        numbers: ``cut``, or ``families``.
        join: which columns of levels are joined, as of :func:`pyro_hoim.log_linear.learn`.
        options: of levels those of :func:`pyro_hoim.log_linear.learn`. For families ``families`` (of some columns, by
            name), ``exclude`` and ``centre`` as :func:`~pyro_hoim.generalized_root.choose_families` has them; ``order``
            (2), the size of the largest set; ``l1s``, the penalties in falling order; ``false_discovery_rate`` (0.1)
            of the confirmed sets; and ``seed``.

    Returns:
        :class:`~pyro_hoim.log_linear.LearnResult`, or :class:`~pyro_hoim.generalized_root.RootFitResult`, whose
        ``columns`` say the families and whose ``confirmed`` is the model of the sets that all rows confirm.

    Raises:
        UnknownNameError: an option that does not exist.
        InputError: an option of the other way, columns whose family has to be said, or as of the functions above.
        MissingDataError: missing cells.

    Example:
        >>> import numpy as np
        >>> import pandas as pd
        >>> rng = np.random.default_rng(0)
        >>> ill = rng.random(300) < 0.4
        >>> cost = rng.exponential(np.where(ill, 60.0, 20.0))
        >>> frame = pd.DataFrame({"ill": ill, "cost": cost, "weight": rng.normal(70.0, 9.0, 300)})
        >>> learned = learn(frame, numbers="families")
        >>> print(learned.columns.overview)
        0/1: ill; positive numbers: cost; real numbers: weight
        >>> learned.confirmed.confirmation.kept
        (('ill', 'cost'),)
    """
    from .generalized_root.regress import choice as of_families

    check_choice(numbers, ("cut", "families"), "numbers")
    by_way = {
        "cut": [*LearnOptions.__annotations__, "join"],
        "families": [*of_families.RootLearnOptions.__annotations__],
    }
    other = "families" if numbers == "cut" else "cut"
    if wrong := [name for name in options if name in by_way[other] and name not in by_way[numbers]]:
        raise conflict(wrong[0], f"belongs to numbers={other!r}, received numbers={numbers!r}")
    if numbers == "cut":
        return learn_log_linear(train, validation, search, join=join, **options)
    for name, is_given in (("search", search is not None), ("join", join != "exact")):
        if is_given:
            raise conflict(name, f"belongs to numbers='cut', received numbers={numbers!r}")
    check_names(options, by_way["families"], "learn", noun="option")
    return of_families.learn_roots(cast("Any", train), cast("Any", validation), cast("RootLearnOptions", options))


def _with_route(error: IntractableError, asked: Any, data: Any, reading: Mapping[str, Any]) -> IntractableError:
    """A refusal for size that also names the route that is open for the table, if any."""
    if isinstance(data, torch.Tensor):
        return error
    table = plan(data, **reading) if is_frame(data) else plan(data, missing=reading["missing"])
    # All pairs are no way out of all pairs.
    refused_route = "pairs" if asked in (2, _ALL_PAIRS) else None
    routes = [table.advised, table["learn"], table["network"], table["pseudo-likelihood"]]
    ways = [f"{r.call} takes {r.words}" for r in routes if r and r.is_open and r.name != refused_route][:1]
    ways += [f"{_plan_call(reading, data)} shows all routes", *([error.hint] if error.hint else [])]
    return error.replace(hint="; ".join(ways))


def _advised(data: Any, columns: _Columns, reading: Mapping[str, Any]) -> tuple[Route, str, Any]:
    """The route that the plan advises, why, and what it takes: a frame of counts, or rows of labels of all columns."""
    # Counts are told from labels before they are read as such.
    words = words_of(reading, data)
    if is_frame(data):
        numbers = counts_in_frame(as_frame(data), columns.weights, columns.count, columns.rules)
        if numbers is not None:
            frame, size = numbers
            without = with_assumed(reading, {"exclude": size.left_out})
            route, why = advise(routes_of(size, words_of(without, data)))
            if route is not None and route.name == "roots":
                return route, why, frame if columns.count == "count" else as_counts(frame, count=columns.count)
        rows = _read_frame(1, data, columns)[1]
    else:
        rows = data
    # Costs are those of the rows that will be fitted.
    rows = _dealt_with(rows, reading["missing"])
    route, why = advise(routes_of(size_of(rows), words))
    if route is None:
        raise refused("data", why)
    return route, why, rows


def _plan_call(reading: Mapping[str, Any], data: Any) -> str:
    """The call that plans a table of which so much was said."""
    return "hoim.plan({data}{options})".format_map(words_of(reading, data))


def _along(route: Route, why: str, data: Any, planned: str) -> Any:
    """What a route other than all pairs ends in, with one line that says so and how to ask for another."""
    others = f"order=2 alone asks for a log-linear model of all pairs, and {planned} shows all routes"
    warnings.warn(CostWarning(f"{why}, so this is {route.call}; {others}"), stacklevel=caller_level())
    if route.name == "roots":
        from .generalized_root.regress.fit import fit_roots

        return fit_roots(data, order=2, l1=0.1, refit="all")
    if route.name == "learn":
        return learn_log_linear(data, search=SelectionOptions(max_order=2))
    if route.name == "network":
        from .dependency_network.learn.network import learn_network

        return learn_network(data, penalty="ebic")
    raise out_of_reach("data", f"{why}, and it is not taken by itself", f"call {route.call}")


def _said(structure: Any, order: int | None, edges: Any) -> Any:
    """The one thing that says the interactions: a formula, hypergraph, order or list of sets."""
    given = [value for value in (structure, order, edges) if value is not None]
    if len(given) > 1:
        raise conflict("structure, order, edges", "one of them says the interactions, not several")
    only = given[0]
    if isinstance(only, str | Interactions) or is_whole(only):
        return only
    if not isinstance(only, Sequence | Collection) or not all(isinstance(edge, Iterable) for edge in only):
        raise wrong_type("structure", _SAY, only)
    sets = [tuple(edge.split(":")) if isinstance(edge, str) else tuple(edge) for edge in only]
    for name in itertools.chain.from_iterable(sets):
        check_type(name, str, "edges", "the names of columns")
    return sets


def _read_frame(asked: Any, data: FrameLike, columns: _Columns) -> tuple[Interactions, Observations]:
    """The interactions over the columns of a data frame that they use, and its rows."""
    frame = as_frame(data)
    how: dict[str, Any] = {name: getattr(columns, name) for name in ("weights", "count", "missing_values")}
    if isinstance(asked, Interactions):
        if columns.rules:
            raise conflict(", ".join(columns.rules), "the levels of the columns are those of the hypergraph")
        domain = graph_of(asked).domain
        _check_counting(frame, columns, domain.names)
        return asked, as_observations(frame, domain=domain, **how)
    # Levels of the index are columns where the formula names them.
    left = None
    if isinstance(asked, str):
        left, asked = split_formula(asked)
    made_long = long_table if (left, columns.weights, columns.count) == (None, None, "count") else with_index
    frame = made_long(frame, lambda name: name in _named(asked, [name]))
    # The left side of a formula is the column of counts.
    if left is not None:
        check_names([left], [str(name) for name in frame.columns], "left side of the formula", noun="column")
        if columns.count not in (None, "count", left) or columns.weights is not None:
            raise conflict("structure, count", f"the left side of the formula names the counts, {left!r}, already")
        others = [str(name) for name in frame.columns if str(name) != left]
        if columns.count != left:
            _check_counts(frame, left, _interactions(asked, others)[0])
        columns = replace(columns, count=left)
        how["count"] = left
    # Columns that are left out are as if they were not there, and the interactions must not spell them out.
    exclude = columns.rules.get("exclude", ())
    if isinstance(exclude, str):
        raise wrong_type("exclude", "a collection of names of columns", received=repr(exclude))
    check_names(exclude, [str(name) for name in frame.columns], "exclude", noun="column")
    if both := sorted(_named(asked, list(exclude)) & {*exclude}):
        raise conflict("exclude", f"column {both[0]!r} is asked for and left out")
    rules: Any = {name: value for name, value in columns.rules.items() if name != "exclude"}
    frame = frame.loc[:, [str(name) not in exclude for name in frame.columns]]
    # The rows of the columns that the interactions use, then the interactions over those that were not left out.
    names = [str(name) for name in frame.columns if str(name) not in (columns.weights, columns.count)]
    _check_counting(frame, columns, _named(asked, names))
    try:
        used, over = _interactions(asked, names)
    except UnknownNameError as error:
        if error.received != repr(columns.count) or column_named(frame, str(columns.count)) is None:
            raise
        raise error.replace(
            problem=f"column {columns.count!r} holds counts", hint="say count=None if it does not"
        ) from None
    read = [name for name in names if name in used] or None
    rows = as_observations(frame, columns=read, named=_named(asked, names), write=python_words, **how, **rules)
    if read is not None and len(rows.domain) < len(read):
        _, over = _interactions(asked, rows.domain.names)
    return over(rows.domain), rows


def _check_counting(frame: pd.DataFrame, columns: _Columns, chosen: Collection[str]) -> None:
    """Refuse what seems to be a column of counts or weights, where nothing was said of either."""
    if columns.weights is None and columns.count == "count" and "count" not in map(str, frame.columns):
        say = "say {0.role}={0.name!r} if it does, count=None if it does not"
        rules = ColumnOptions(**columns.rules)
        check_counting(Source.of_frame(frame), {*chosen, *rules.spoken_of}, say.format)


def _named(text: Any, names: Sequence[str]) -> set[str]:
    """The columns that a formula or a list of sets spells out."""
    if isinstance(text, str):
        return {name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)}
    return set() if is_whole(text) else set(itertools.chain.from_iterable(text))


def _check_counts(frame: pd.DataFrame, left: str, used: Collection[str]) -> None:
    """Refuse the left side of a formula where it is a response: no numbers, 0 and 1, or of rows that are no cells.

    Rows are cells where they differ in the other columns. Those that agree in the columns used are cells still where
    their counts are many, or where the other columns have hardly more combinations than there are rows.
    """
    column = column_named(frame, left)
    hint = f"write {left}*... without ~, and use predict(data, {left!r}) of the fit"
    assert column is not None
    is_labels = isinstance(column.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(column.dtype)
    numbers = pd.Series(np.nan if is_labels else plain_numbers(column.astype(object)))
    problem = "holds no counts"
    if numbers.notna().any() and (is_count_name(left) or not numbers.dropna().isin([0, 1]).all()):
        others = frame.loc[:, [str(name) != left for name in frame.columns]].astype(str)
        others = others.loc[:, [others.iloc[:, i].nunique() < len(others) for i in range(others.shape[1])]]
        cells = others.loc[:, [str(name) in used for name in others.columns]]
        is_dense = not mostly_differ(cells) and others.nunique().prod() <= _DENSE * len(others)
        is_few = 4 * numbers.nunique() <= len(numbers) and numbers.nunique() <= _FEW
        is_cells = mostly_differ(cells) or (mostly_differ(others) and (is_dense or not is_few))
        if is_count_name(left) or len(frame) < 2 or is_cells:
            return
        seen = plural(numbers.nunique(), "different value")
        where = "the columns of the formula" if mostly_differ(others) else "the other columns"
        problem = f"({seen} in {len(frame)} rows, which repeat in {where}) seems to be one"
        hint += f", or say count={left!r} if it holds counts"
    problem = f"a log-linear model has no response, and {left!r} on the left of ~ {problem}"
    raise refused("structure", problem, hint)


def _read_rows(asked: Any, data: Any) -> tuple[Interactions, Any]:
    """The interactions over the variables of observations that they use, and the rows; marginal counts as they are."""
    if isinstance(asked, Interactions):
        return asked, data
    rows = data if isinstance(data, RowSource) else as_observations(data)
    if isinstance(asked, str):
        left, asked = split_formula(asked)
        if left is not None:
            problem = f"observations hold their counts, and the left side {left!r} names none"
            raise conflict("structure", problem, "write the right side alone")
    used, over = _interactions(asked, rows.domain.names)
    rows = rows.project(used) if used else rows
    return over(rows.domain), rows


def _held(source: RowSource, interactions: Interactions, missing: str | None) -> Observations | torch.Tensor:
    """Distinct rows of a source, or margins where these are too many, after what was said of missing cells."""
    if missing == "marginalise":
        return source.distinct()
    return rows_or_margins(graph_of(interactions), source if missing is None else source.drop_missing())


def _interactions(asked: Any, names: Sequence[str]) -> tuple[set[str], Callable[[Domain], Interactions]]:
    """The columns that a formula or a list of sets uses, none for all, and what makes the interactions of a domain."""
    if is_whole(asked):
        return set(names), lambda domain: InteractionHypergraph.from_order(domain, asked)
    if not isinstance(asked, str):
        check_names(itertools.chain.from_iterable(asked), names, "edges", noun="column")
        sets, text = asked, None
    else:
        terms = parse_terms(asked, names, FUNCTIONS, closure=True)
        text = asked if any(isinstance(factor, FunctionTerm) for term in terms for factor in term) else None
        sets = [
            [n for factor in term for n in (factor.variables if isinstance(factor, FunctionTerm) else (factor,))]
            for term in terms
        ]
    used = {name for edge in sets for name in edge}
    if text is not None:
        return used, lambda domain: restricted_interactions(domain, text)
    return used, lambda domain: InteractionHypergraph(domain, sets, closure=True)


def _penalty(prior: Any, interactions: Interactions) -> Penalty | None:
    """What a prior adds to minus the log-likelihood."""
    hypergraph = graph_of(interactions)
    if isinstance(prior, str):
        prior = Prior.parse(prior)
    if isinstance(prior, Prior):
        return prior.penalty(hypergraph)
    check_type(
        prior,
        SmoothPenalty | ProximalPenalty | Conjugate,
        "prior",
        "unit, normal:S, ridge:S, conjugate:N, a Prior or a penalty",
    )
    return prior


def _dealt_with(rows: Observations | RowSource, missing: str | None) -> Any:
    """The rows after what was asked for was done about missing cells, which stay where they are summed over."""
    if missing == "marginalise" or (isinstance(rows, Observations) and not rows.has_missing):
        return rows
    if missing is None:
        gaps = {name: n for name, n in gaps_of(rows).items() if n}
        if not gaps:
            return rows
        where = listed([f"{name!r} ({n})" for name, n in gaps.items()])
        hint = "pass missing='drop' to leave these rows out, or missing='marginalise' to sum over the missing cells"
        raise MissingDataError(f"missing cells in {where}", argument="data", hint=hint)
    return rows.drop_missing() if isinstance(rows, RowSource) else drop_missing(rows, "data")


def _fitted(
    interactions: Interactions, rows: Observations | torch.Tensor, missing: str | None, options: dict[str, Any]
) -> FitResult:
    """The fit, after what was asked for was done about missing cells."""
    run: Callable[..., FitResult] = fit_log_linear
    if isinstance(rows, Observations) and rows.has_missing:
        remaining: Observations = _dealt_with(rows, missing)
        rows, run = remaining, fit_incomplete if remaining.has_missing else fit_log_linear
    if run is fit_log_linear:
        options = {k: v for k, v in options.items() if k not in ("tolerance", "max_iterations", "progress")}
    return run(interactions, rows, **options)
