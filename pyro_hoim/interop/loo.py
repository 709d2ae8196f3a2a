"""Leave-one-out comparison when rows of one cell share their log-likelihood, and a summary that says "constant"."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, minimize
from scipy.special import logsumexp

from ..errors import check_names, conflict, out_of_reach, refused, size_text, unexpected
from .arviz import CELL_GROUP
from .backend import choose_backend, get_group

__all__ = ["compare_by_cell", "loo_by_cell", "loo_figures", "summarise"]

_MOST_ROWS = 2**22  # whose pointwise values are written out


def loo_by_cell(data: Any, *, var_name: str | None = None, reff: float | None = None) -> Any:
    r"""PSIS-LOO computed once per observed cell and weighted by the cell's count; equal to that of all rows.

    .. math:: \mathrm{elpd} = \sum_c n_c\, \mathrm{elpd}_c, \qquad
        p = \sum_c n_c (\mathrm{lppd}_c - \mathrm{elpd}_c), \qquad
        \mathrm{se}^2 = \sum_c n_c \Bigl(\mathrm{elpd}_c - \tfrac{1}{N} \mathrm{elpd}\Bigr)^2

    (times N / (N - 1) where the installed ArviZ does so). Rows of one cell have the same terms under every draw, hence
    the same importance weights and the same Pareto k. The cost is that of the distinct cells, whatever N.

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
    engine = choose_backend(data=data)
    cells, name = _cells(data, var_name)
    terms, dims = cells[name], ("chain", "draw", cells[name].dims[-1])
    terms = terms.transpose(*dims)
    counts = np.asarray(get_group(data, "constant_data")[f"{name}_count"].values)
    if counts.sum() < 2:
        raise conflict(f"{name!r}", f"leave-one-out needs at least two rows, received {int(counts.sum())}")
    keep = np.flatnonzero(counts)
    terms, counts = terms.isel({dims[2]: keep}), counts[keep]
    if len(counts) == 1:
        problem = "all rows fall in one cell; leave-one-out has nothing to compare"
        raise refused(f"{name!r}", problem, code="missing-part")

    posterior = get_group(data, "posterior")
    groups = {"log_likelihood": terms.rename(name).to_dataset()}
    if posterior is not None:
        groups["posterior"] = posterior
    elif reff is None:
        problem = "the data have no posterior group to compute the efficiency from"
        raise refused("reff", problem, "give reff", code="missing-part")
    result = engine.stats.loo(engine.bundle(groups), pointwise=True, var_name=name, reff=reff)

    keys = ("elpd", "p", "elpd_i") if engine.is_tree else ("elpd_loo", "p_loo", "loo_i")
    each = np.asarray(result[keys[2]].values, dtype=np.float64)
    flat = np.asarray(terms.values, dtype=np.float64).reshape(-1, len(counts))
    lppd = np.asarray(logsumexp(flat, axis=0)) - math.log(flat.shape[0])
    num_rows = int(counts.sum())
    elpd = float(counts @ each)
    result[keys[0]] = elpd
    result[keys[1]] = float(counts @ lppd) - elpd
    result["se"] = _standard_error(float(result["se"]), each, counts)
    result["n_data_points"] = num_rows
    row = f"{name}_row"
    for key in (keys[2], "pareto_k") if num_rows <= _MOST_ROWS else ():
        values = result[key].isel({dims[2]: np.repeat(np.arange(len(counts)), counts)})
        result[key] = (
            values.drop_vars(dims[2], errors="ignore").rename({dims[2]: row}).assign_coords({row: range(num_rows)})
        )
    if engine.is_tree:
        result["log_weights"] = None
    return result


def _standard_error(of_cells: float, each: np.ndarray, counts: np.ndarray) -> float:
    """Standard error over the rows; its divisor, n or (arviz-stats 1.x) n - 1, is read off the error ``of_cells``."""
    size, num_rows = len(each), int(counts.sum())
    plain = float(((each - each.mean()) ** 2).sum())
    is_unbiased = plain > 0 and of_cells**2 / plain > 1 + 0.5 / (size - 1)
    squares = float(counts @ (each - counts @ each / num_rows) ** 2)
    return math.sqrt(squares * num_rows / (num_rows - 1) if is_unbiased else squares)


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


def compare_by_cell(models: Mapping[str, Any], *, var_name: str | None = None, **options: Any) -> Any:
    """ArviZ's ``compare`` on :func:`loo_by_cell` of every model, best first: the same table as on the expanded rows.

    Args:
        models: ``{name: data}``, each from :func:`to_arviz` with ``cell_count``, all on the same cells in the same
            order, of one generation of ArviZ.
        var_name: name of the log-likelihood.
        options: further arguments of ``compare``, for instance ``method="stacking"``. Of more than 2^22 rows the table
            is that of its defaults, computed from the cells: differences in elpd and weights by stacking.

    Raises:
        InputError: fewer than two models, cells or counts that differ, or as :func:`loo_by_cell`.
        IntractableError: ``options`` and more than 2^22 rows.

    Example:
        >>> from pyro_hoim import to_arviz
        >>> terms = 0.01 * np.random.default_rng(0).normal(size=(2, 200, 3)) - 1
        >>> data = to_arviz({"mu": terms[..., 0]}, log_likelihood={"y": terms}, cell_count=[5, 1, 4])
        >>> compare_by_cell({"only": data})
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: models: expected at least two, received 1
    """
    if len(models) < 2:
        raise unexpected("models", "at least two", received=len(models), code="missing-part")
    first = counts = None
    for label, data in models.items():
        _, name = _cells(data, var_name)
        counts = np.asarray(get_group(data, "constant_data")[f"{name}_count"].values)
        if first is not None and not np.array_equal(first, counts):
            problem = f"the cell counts of {label!r} differ from the first model's"
            raise refused("models", problem, "use one data set", code="other-domain")
        first = counts
    assert counts is not None
    if options and counts.sum() > _MOST_ROWS:
        problem = f"{size_text(int(counts.sum()), 'rows')} would be written out, more than {_MOST_ROWS}"
        raise out_of_reach("compare_by_cell", problem, f"leave out {', '.join(options)}")
    found = {label: loo_by_cell(data, var_name=var_name) for label, data in models.items()}
    if counts.sum() > _MOST_ROWS:
        return _compared(found, counts[counts > 0])
    return choose_backend(data=next(iter(models.values()))).stats.compare(found, **options)


def _compared(found: Mapping[str, Any], counts: np.ndarray) -> Any:
    """ArviZ's table of comparison from pointwise values of cells (C,), weights by stacking of all rows."""
    import pandas as pd

    figures = {label: loo_figures(result) for label, result in found.items()}
    order = sorted(found, key=lambda label: -figures[label]["elpd"])
    is_old = hasattr(found[order[0]], "index")
    keys = ("elpd_loo", "p_loo", "loo_i") if is_old else ("elpd", "p", "elpd_i")
    each = np.stack([np.asarray(found[label][keys[2]].values, dtype=np.float64) for label in order], axis=1)
    shares, num = counts / counts.sum(), len(order)
    likelihood = np.exp(each - each.max(1, keepdims=True))
    weights = minimize(
        lambda w: -float(shares @ np.log(likelihood @ w)),
        np.full(num, 1 / num),
        jac=lambda w: -(shares / (likelihood @ w)) @ likelihood,
        bounds=[(0, 1)] * num,
        constraints=LinearConstraint(np.ones(num), 1, 1),
        method="SLSQP",
    ).x
    gaps = each[:, :1] - each
    means = shares @ gaps
    rows = float(counts.sum())
    columns = {
        "rank": range(num),
        keys[0]: [figures[label]["elpd"] for label in order],
        keys[1]: [figures[label]["p"] for label in order],
        "elpd_diff": rows * means,
        "weight": weights,
        "se": [figures[label]["se"] for label in order],
        "dse": np.sqrt(rows * (shares @ (gaps - means) ** 2)),
        "warning": [bool(found[label]["warning"]) for label in order],
    }
    return pd.DataFrame(columns, index=order)


def summarise(data: Any, **options: Any) -> Any:
    """ArviZ's ``summary`` with a column ``is_constant``: entries that never change have no R-hat, not a bad one.

    Their R-hat and effective sample sizes are NaN. The R-hat of an entry at which every chain is stuck, and not all at
    the same value, is infinite.

    Args:
        data: from :func:`to_arviz`.
        options: arguments of ``summary``, for instance ``var_names`` or ``kind="diagnostics"``.

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

    engine = choose_backend(data=data)
    posterior = get_group(data, options.get("group", "posterior"))
    if posterior is None:
        problem = f"there is no group {options.get('group', 'posterior')!r} to summarise"
        raise refused("data", problem, code="unknown-name")
    names = [str(name) for name in posterior.data_vars]
    shown = options.get("var_names")
    if shown is not None:
        wanted = [shown] if isinstance(shown, str) else [str(name) for name in shown]
        check_names(wanted, names, "var_names")
        names = wanted
    # arviz-stats joins the variables, and fails where one has coordinates beside those of its dimensions.
    plain = posterior.drop_vars([name for name in posterior.coords if name not in posterior.dims])
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        table = engine.stats.summary(engine.bundle({options.get("group", "posterior"): plain}), **options)
    shown_draws = posterior[names]
    still = shown_draws.max("draw") == shown_draws.min("draw")
    same = shown_draws.max(("chain", "draw")) == shown_draws.min(("chain", "draw"))
    constant, stuck = (
        np.array([flag for name in names for flag in np.asarray(found[name].values).reshape(-1)], dtype=bool)
        for found in (same, still.all("chain"))
    )
    if len(constant) != len(table):
        raise conflict("options", "the table's rows cannot be told apart", "leave out filter_vars and coords")
    constant = pd.Series(constant, index=table.index, dtype=bool)
    for column in ("r_hat", "ess_bulk", "ess_tail"):
        if column in table:
            numbers: Any = pd.to_numeric(table[column], errors="coerce")
            table[column] = numbers.mask(constant)
    if "r_hat" in table:
        table.loc[stuck & ~constant, "r_hat"] = np.inf
    table["is_constant"] = constant
    return table


def _cells(data: Any, var_name: str | None) -> tuple[Any, str]:
    """Per-cell terms and the name asked for."""
    cells = get_group(data, CELL_GROUP)
    if cells is None:
        problem = "no per-cell log-likelihood"
        raise refused("data", problem, "call to_arviz with log_likelihood and cell_count", code="missing-part")
    names = [str(name) for name in cells.data_vars]
    if var_name is None:
        if len(names) > 1:
            raise unexpected("var_name", f"one of {names}", received="None", code="unknown-choice")
        return cells, names[0]
    check_names([var_name], names, "var_name", noun="log-likelihood")
    return cells, var_name
