"""Leave-one-out comparison when rows of one cell share their log-likelihood, and a summary that says "constant"."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import LinearConstraint, minimize
from scipy.special import logsumexp, softmax

from ..errors import check_choice, check_names, conflict, refused, unexpected
from .arviz import CELL_GROUP, original_name, stored_name
from .backend import choose_backend, get_group

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 2**22  # whose pointwise values are written out
_LEAST_TAIL = 5  # largest weights, to which a Pareto distribution is fitted
_OF_CHAINS = ("r_hat", "ess_bulk", "ess_tail", "ess_mean", "ess_median")


def loo_by_cell(data: Any, *, var_name: str | None = None, reff: float | None = None) -> Any:
    r"""PSIS-LOO computed once per observed cell and weighted by the cell's count; equal to that of all rows.

    .. math:: \mathrm{elpd} = \sum_c n_c\, \mathrm{elpd}_c, \qquad
        p = \sum_c n_c (\mathrm{lppd}_c - \mathrm{elpd}_c), \qquad
        \mathrm{se}^2 = \sum_c n_c \Bigl(\mathrm{elpd}_c - \tfrac{1}{N} \mathrm{elpd}\Bigr)^2

    (times N / (N - 1) where the installed ArviZ does so). Rows of one cell have the same terms under every draw, hence
    the same importance weights and the same Pareto k. The cost is that of the distinct cells, whatever N.

    Terms of too few draws (fewer than 25) or of too few values for a Pareto distribution of their largest weights keep
    the weights as they are and have an infinite Pareto k, under ArviZ 1.x too, whose own ``loo`` raises.

    Args:
        data: from :func:`to_arviz` with ``cell_count``.
        var_name: name of the log-likelihood; may be None if there is one.
        reff: relative efficiency of the draws; from the posterior when None, as ArviZ does.

    Returns:
        ArviZ's ``ELPDData`` with pointwise values for every row, cell after cell, as ``loo(..., pointwise=True)``
        gives for the expanded data. ``compare`` accepts it; models of one data set share the order of the cells. Of
        more than 2^22 rows the pointwise values are those of the observed cells.

    Raises:
        InputError: no per-cell log-likelihood, several of them and no ``var_name``, or fewer than two rows.

    References:
        Vehtari, Gelman and Gabry, Practical Bayesian model evaluation using LOO and WAIC, 2017, (4) and (10).

    Example:
        >>> import numpy as np
        >>> from pyro_hoim import to_arviz
        >>> rng = np.random.default_rng(0)
        >>> draws, terms = rng.normal(size=(2, 200)), -1 + 0.1 * rng.normal(size=(2, 200, 3))
        >>> data = to_arviz({"mu": draws}, log_likelihood={"y": terms}, cell_count=[5, 1, 4])
        >>> int(loo_by_cell(data)["n_data_points"])
        10
    """
    result, each, counts, dim, elpd_key = _by_cell(data, var_name, reff)
    size, num_rows = len(each), int(counts.sum())
    # The divisor of the error, n or (arviz-stats 1.x) n - 1, is read off that of the cells.
    plain = float(((each - each.mean()) ** 2).sum())
    is_unbiased = plain > 0 and float(result["se"]) ** 2 / plain > 1 + 0.5 / (size - 1)
    squares = float(counts @ (each - counts @ each / num_rows) ** 2)
    result["se"] = math.sqrt(squares * num_rows / (num_rows - 1) if is_unbiased else squares)
    # Pointwise values of the rows, cell after cell.
    row = f"{dim.removesuffix('_cell')}_row"
    for key in (elpd_key, "pareto_k") if num_rows <= _MOST_ROWS else ():
        values = result[key].isel({dim: np.repeat(np.arange(len(counts)), counts)})
        result[key] = values.drop_vars(dim, errors="ignore").rename({dim: row}).assign_coords({row: range(num_rows)})
    return result


class _ByCell(NamedTuple):
    """ArviZ's result with the sums over all rows; values of the cells (C,), their counts, dimension and key."""

    result: Any
    each: np.ndarray
    counts: np.ndarray
    dim: str
    key: str


def _by_cell(data: Any, var_name: str | None, reff: float | None) -> _ByCell:
    """Leave-one-out of the cells that were seen."""
    # Cells that were seen, of enough rows and draws.
    engine = choose_backend(data=data)
    terms, counts, name = _cells(data, var_name)
    dim = str(terms.dims[-1])
    if terms.sizes["chain"] * terms.sizes["draw"] < 2:
        raise conflict(f"{name!r}", "leave-one-out needs at least two draws, received 1")
    if counts.sum() < 2:
        raise conflict(f"{name!r}", f"leave-one-out needs at least two rows, received {int(counts.sum())}")
    keep = np.flatnonzero(counts)
    terms, counts = terms.isel({dim: keep}), counts[keep]
    if len(counts) == 1:
        problem = "all rows fall in one cell; leave-one-out has nothing to compare"
        raise refused(f"{name!r}", problem, code="missing-part")

    # ArviZ's own estimate for the cells, each as one row.
    posterior = get_group(data, "posterior")
    groups = {"log_likelihood": terms.rename("terms").to_dataset()}
    if posterior is not None:
        groups["posterior"] = posterior
    elif reff is None:
        problem = "the data have no posterior group to compute the efficiency from"
        raise refused("reff", problem, "give reff", code="missing-part")
    weights = _weights(terms, posterior, reff) if engine.is_tree else {}
    result = engine.stats.loo(engine.bundle(groups), pointwise=True, var_name="terms", reff=reff, **weights)
    keys = ("elpd", "p", "elpd_i") if engine.is_tree else ("elpd_loo", "p_loo", "loo_i")
    if engine.is_tree:
        result["log_weights"] = None
        if np.isnan(result["pareto_k"].values).any():  # too many equal weights in the tail
            result["pareto_k"], result["warning"] = result["pareto_k"].fillna(np.inf), True

    # Sums over all rows take every cell as often as it was seen.
    each = np.asarray(result[keys[2]].values, dtype=np.float64)
    flat = np.asarray(terms.values, dtype=np.float64).reshape(-1, len(counts))
    lppd = np.asarray(logsumexp(flat, axis=0)) - math.log(flat.shape[0])
    result[keys[0]] = elpd = float(counts @ each)
    result[keys[1]] = float(counts @ lppd) - elpd
    result["n_data_points"] = int(counts.sum())
    return _ByCell(result, each, counts, dim, keys[2])


def _weights(terms: Any, posterior: Any, reff: float | None) -> dict[str, Any]:
    """Log weights and Pareto k of terms (chain, draw, cell) where arviz-stats would raise for one of them."""
    size = terms.sizes["chain"] * terms.sizes["draw"]
    if reff is None and terms.sizes["chain"] == 1:
        reff = 1.0
    elif reff is None:  # as ArviZ does
        sizes = posterior.azstats.ess(method="mean")
        reff = float(np.hstack([sizes[name].values.ravel() for name in sizes.data_vars]).mean()) / size
    # Terms whose largest weights differ: to them alone a Pareto distribution can be fitted.
    tail = int(3 * math.sqrt(size / reff)) if size * reff > 225 else size // 5
    ratios = -terms.astype(np.float64)
    log_weights = ratios.copy(data=ratios.values - logsumexp(ratios.values, axis=(0, 1)))
    ordered = np.sort(log_weights.values.reshape(size, -1), axis=0)
    is_fitted = np.zeros(ordered.shape[1], dtype=bool)
    if tail >= _LEAST_TAIL:
        is_fitted = ordered[-1] - ordered[-tail] >= np.finfo(np.float64).tiny
    if is_fitted.all():
        return {}
    pareto_k = log_weights.isel(chain=0, draw=0, drop=True).copy(data=np.full(len(is_fitted), np.inf))
    if is_fitted.any():
        some = terms.isel({terms.dims[-1]: is_fitted})
        smooth, shapes = some.azstats.psislw(r_eff=reff, dim=["chain", "draw"])
        log_weights.values[..., is_fitted] = smooth.transpose(*terms.dims).values
        pareto_k.values[is_fitted] = shapes.values
    return {"log_weights": log_weights, "pareto_k": pareto_k}


def loo_figures(result: Any) -> dict[str, float]:
    """The figures of an ``ELPDData`` under one set of names, whichever generation of ArviZ made it.

    They are ``elpd``, ``se`` and ``p`` (nats), ``num_rows``, and ``max_pareto_k`` (NaN without pointwise values).

    Example:
        >>> from pyro_hoim import to_arviz
        >>> terms = np.full((2, 200, 3), math.log(0.5)) + 1e-9 * np.random.default_rng(0).normal(size=(2, 200, 3))
        >>> data = to_arviz({"mu": np.zeros((2, 200))}, log_likelihood={"y": terms}, cell_count=[5, 1, 4])
        >>> figures = loo_figures(loo_by_cell(data, reff=1.0))
        >>> round(figures["elpd"], 4), figures["num_rows"]  # 10 log(1/2)
        (-6.9315, 10.0)
    """
    is_old = hasattr(result, "index")
    pareto_k = result.get("pareto_k") if is_old else getattr(result, "pareto_k", None)
    return {
        "elpd": float(result["elpd_loo" if is_old else "elpd"]),
        "se": float(result["se"]),
        "p": float(result["p_loo" if is_old else "p"]),
        "num_rows": float(result["n_data_points"]),
        "max_pareto_k": math.nan if pareto_k is None else float(np.max(pareto_k.values)),
    }


def compare_by_cell(
    models: Mapping[str, Any],
    *,
    var_name: str | None = None,
    method: Literal["stacking", "pseudo-bma", "bb-pseudo-bma"] = "stacking",
) -> pd.DataFrame:
    r"""Leave-one-out comparison of models of the same rows, computed once per observed cell, best model first.

    .. math:: \Delta_m = \sum_c n_c (\mathrm{elpd}_{bc} - \mathrm{elpd}_{mc}), \qquad
        \mathrm{dse}^2 = \frac{N}{N - 1} \sum_c n_c
        \Bigl(\mathrm{elpd}_{bc} - \mathrm{elpd}_{mc} - \tfrac{1}{N} \Delta_m\Bigr)^2

    with b the best model. The table has this definition for any number of rows and under every ArviZ, whose own
    ``compare`` differs: 0.2x divides by N in place of N - 1, 1.x makes the differences negative, divides by N in the
    error of the differences only, and rounds.

    Args:
        models: ``{name: data}``, each from :func:`to_arviz` with ``cell_count``, all on the same cells in the same
            order.
        var_name: name of the log-likelihood.
        method: of the weights: ``stacking`` of the predictive distributions; ``pseudo-bma``, proportional to the
            exponential of elpd; ``bb-pseudo-bma``, their means over 1,000 Bayesian bootstraps of the rows.

    Returns:
        A row a model. Columns ``rank`` (from 0), ``elpd`` and ``p`` of :func:`loo_by_cell`, ``elpd_diff`` (how far
        behind the best, never negative), ``dse`` (its standard error), ``se`` (of elpd, with the divisor N - 1),
        ``weight`` (their sum is 1), and ``warning``, whether a Pareto k is above its limit. Nothing is rounded.

    Raises:
        InputError: fewer than two models, cells or counts that differ, an unknown method, or as :func:`loo_by_cell`.

    References:
        Yao, Vehtari, Simpson and Gelman, Using stacking to average Bayesian predictive distributions, Bayesian
        Analysis 13, 2018, (5) and section 3.4.

    Example:
        >>> from pyro_hoim import to_arviz
        >>> rng = np.random.default_rng(0)
        >>> terms = {name: mean + 0.01 * rng.normal(size=(2, 200, 3)) for name, mean in (("near", -1), ("far", -2))}
        >>> draws = {"mu": rng.normal(size=(2, 200))}
        >>> data = {n: to_arviz(draws, log_likelihood={"y": t}, cell_count=[5, 1, 4]) for n, t in terms.items()}
        >>> compare_by_cell(data)[["elpd_diff", "weight"]].round(2).to_dict("index")
        {'near': {'elpd_diff': 0.0, 'weight': 1.0}, 'far': {'elpd_diff': 10.0, 'weight': 0.0}}
    """
    import pandas as pd

    check_choice(method, ("stacking", "pseudo-bma", "bb-pseudo-bma"), "method")
    if len(models) < 2:
        raise unexpected("models", "at least two", received=len(models), code="missing-part")
    first = None
    for label, data in models.items():
        _, counts, _ = _cells(data, var_name)
        first = counts if first is None else first
        if not np.array_equal(first, counts):
            problem = f"the cell counts of {label!r} differ from the first model's"
            raise refused("models", problem, "use one data set", code="other-domain")
    # Best model first; differences are taken cell by cell.
    by_model = {label: _by_cell(data, var_name, None) for label, data in models.items()}
    figures = {label: loo_figures(one.result) for label, one in by_model.items()}
    order = sorted(by_model, key=lambda label: -figures[label]["elpd"])
    counts = by_model[order[0]].counts
    each = np.stack([by_model[label].each for label in order], axis=1)
    gaps = each[:, :1] - each
    columns = {
        "rank": range(len(order)),
        "elpd": [figures[label]["elpd"] for label in order],
        "p": [figures[label]["p"] for label in order],
        "elpd_diff": counts @ gaps,
        "dse": _spread(gaps, counts),
        "se": _spread(each, counts),
        "weight": _model_weights(each, counts, method),
        "warning": [bool(by_model[label].result["warning"]) for label in order],
    }
    return pd.DataFrame(columns, index=order)


def _spread(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Standard errors (M,) of the sums over all rows of values of cells (C, M)."""
    rows = counts.sum()
    return np.sqrt(rows / (rows - 1) * (counts @ (values - counts @ values / rows) ** 2))


def _model_weights(each: np.ndarray, counts: np.ndarray, method: str) -> np.ndarray:
    """Weights (M,) of models from their values of cells (C, M)."""
    num = each.shape[1]
    if method == "stacking":
        shares = counts / counts.sum()
        likelihood = np.exp(each - each.max(1, keepdims=True))
        weights = minimize(
            lambda w: -float(shares @ np.log(likelihood @ w)),
            np.full(num, 1 / num),
            jac=lambda w: -(shares / (likelihood @ w)) @ likelihood,
            bounds=[(0, 1)] * num,
            constraints=LinearConstraint(np.ones(num), 1, 1),
            method="SLSQP",
        ).x
        return weights / weights.sum()
    # The bootstrap weights of rows of one cell add up to a Dirichlet distribution with the counts.
    shares = np.random.default_rng(124).dirichlet(counts, 1000) if method == "bb-pseudo-bma" else counts / counts.sum()
    return np.atleast_2d(softmax(shares @ each * counts.sum(), axis=-1)).mean(0)


def summarise(data: Any, **options: Any) -> Any:
    """ArviZ's ``summary`` with a column ``is_constant``: entries that never change have no R-hat, not a bad one.

    Their R-hat and effective sample sizes are NaN. The R-hat of an entry at which every chain is stuck, and not all at
    the same value, is infinite. Booleans are summarised as 0 and 1. Under ArviZ 1.x nothing is rounded unless
    ``round_to`` says so.

    Args:
        data: from :func:`to_arviz`.
        options: arguments of ``summary``, for instance ``var_names`` or ``kind="diagnostics"``. With ``fmt="xarray"``
            or ``"long"`` the figure ``is_constant``, 1 or 0, stands beside the others.

    Raises:
        InputError: no such group, or ``filter_vars`` or ``coords`` that leave other rows than the variables have.
        UnknownNameError: a name in ``var_names`` that is no variable.

    Example:
        >>> import numpy as np
        >>> from pyro_hoim import to_arviz
        >>> draws = {"a": np.random.default_rng(0).normal(size=(2, 50)), "b": np.zeros((2, 50))}
        >>> summarise(to_arviz(draws))["is_constant"].tolist()
        [False, True]
    """
    import pandas as pd

    # The variables that are shown, under the names that they are stored by.
    engine = choose_backend(data=data)
    group = options.get("group", "posterior")
    draws = get_group(data, group)
    if draws is None:
        raise refused("data", f"there is no group {group!r} to summarise", code="unknown-name")
    shown = options.get("var_names")
    if shown is not None:
        wanted = [shown] if isinstance(shown, str) else [str(name) for name in shown]
        options["var_names"] = wanted = [stored_name(draws, name) or name for name in wanted]
        check_names(wanted, [str(name) for name in draws.data_vars], "var_names")
        draws = draws[wanted]
    fmt = options.pop("fmt", "wide")
    check_choice(fmt, ("wide", "long", "xarray"), "fmt")
    if engine.is_tree:
        options.setdefault("round_to", "none")  # else texts stand beside the numbers, which no correction reaches
    # arviz-stats joins the variables, and fails where one has coordinates beside those of its dimensions; intervals
    # are differences, which booleans do not have.
    draws = draws.drop_vars([name for name in draws.coords if name not in draws.dims])
    draws = draws.map(lambda values: values.astype(np.int64) if values.dtype == bool else values, keep_attrs=True)
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        bundle = engine.bundle({group: draws})
        table = engine.stats.summary(bundle, fmt="wide" if fmt == "wide" else "xarray", **options)
    # What never moves has no R-hat; where every chain is stuck elsewhere, it is infinite.
    is_constant = draws.max(("chain", "draw")) == draws.min(("chain", "draw"))
    is_stuck = (draws.max("draw") == draws.min("draw")).all("chain") & ~is_constant
    if fmt != "wide":
        return _corrected(table, is_constant, is_stuck, as_frame=fmt == "long")
    constant, stuck = (
        np.concatenate([np.asarray(flags[name].values, dtype=bool).ravel() for name in draws.data_vars])
        for flags in (is_constant, is_stuck)
    )
    if len(constant) != len(table):
        raise conflict("options", "the table's rows cannot be told apart", "leave out filter_vars and coords")
    table = pd.DataFrame(table)
    for column in table.columns.intersection(_OF_CHAINS):
        numbers: Any = pd.to_numeric(table[column], errors="coerce")
        table[column] = numbers.mask(constant)
    if "r_hat" in table:
        table.loc[stuck, "r_hat"] = np.inf
    table["is_constant"] = constant
    return table


def _corrected(table: Any, is_constant: Any, is_stuck: Any, as_frame: bool) -> Any:
    """A summary as a Dataset, or a data frame of it, with the figure ``is_constant``, 1 or 0."""
    import xarray as xr

    dim = next(name for name in ("summary", "metric") if name in table.dims)
    is_of_chains = table[dim].isin(_OF_CHAINS)
    table = table.where(~(is_constant & is_of_chains))
    table = table.where(~(is_stuck & (table[dim] == "r_hat")), np.inf)
    flags = is_constant.astype(np.float64).expand_dims({dim: ["is_constant"]})
    table = xr.concat([table, flags], dim=dim)
    if not as_frame:
        return table
    frame = table.to_dataframe().reset_index().set_index(dim)
    return frame.rename_axis(None)


def _cells(data: Any, var_name: str | None) -> tuple[Any, np.ndarray, str]:
    """Per-cell terms (chain, draw, cell) of the name asked for, their counts, and the name that was given to them."""
    cells = get_group(data, CELL_GROUP)
    if cells is None:
        hint = "call to_arviz with log_likelihood and cell_count"
        raise refused("data", "no per-cell log-likelihood", hint, code="missing-part")
    names = [original_name(cells, str(name)) for name in cells.data_vars]
    if var_name is None:
        if len(names) > 1:
            raise unexpected("var_name", f"one of {names}", received="None", code="unknown-choice")
        var_name = names[0]
    check_names([var_name], names, "var_name", noun="log-likelihood")
    terms, constants = cells[stored_name(cells, var_name)], get_group(data, "constant_data")
    counts = np.asarray(constants[stored_name(constants, f"{var_name}_count")].values)
    return terms.transpose("chain", "draw", ...), counts, var_name
