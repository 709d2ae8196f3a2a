"""Diagnostics of chains: energy, cells of interactions, levels or values, and functions of the state, through ArviZ."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ..errors import check_names, conflict, out_of_range, refused, unexpected, wrong_shape, wrong_type
from ..runs.sampling import ChainRun
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .backend import BackendName, choose_backend
from .samples import to_array

if TYPE_CHECKING:
    import pandas as pd

MIN_DRAWS = 4
"""Fewest draws per chain that R-hat and effective sample sizes exist for."""

_MAX_STATISTICS = 100_000

_FIGURES: dict[str, tuple[str, dict[str, Any]]] = {
    "mcse_mean": ("mcse", {"method": "mean"}),
    "ess_bulk": ("ess", {"method": "bulk"}),
    "ess_tail": ("ess", {"method": "tail", "prob": (0.05, 0.95)}),  # the generations have other defaults
    "r_hat": ("rhat", {"method": "rank"}),
}

Array = np.ndarray
Functions = Mapping[str, Callable[[torch.Tensor], Any]]
Groups = dict[str, tuple[list[str], Array]]
"""Names and values (chains, draws, statistics) of everything looked at, by kind."""


def diagnose_chains(
    model: Any,
    codes: Any = None,
    *,
    energies: Any = None,
    edges: Sequence[Sequence[str]] | Literal["all"] = (),
    variables: Sequence[str] | Literal["all"] = "all",
    functions: Functions | None = None,
    backend: BackendName | None = None,
) -> pd.DataFrame:
    r"""R-hat, effective sample sizes and Monte Carlo errors of statistics of chains, computed by ArviZ.

    Statistics that never change, such as clamped variables, are reported as constant with their value, whatever ArviZ
    would say of them: they have no R-hat, no effective sample size and no error.

    Args:
        model: of chains of levels the hypergraph, or anything with ``hypergraph`` (a log-linear law or energy model);
            if it also has ``energy(codes)``, energies are computed where they are not given. Of chains of counts or
            reals their run with its draws and energies.
        codes: level codes (chains, draws, d); or the result of :func:`~pyro_hoim.runs.sample_chains` of one model that
            recorded its draws, whose energies are then used too. (A bare tensor of recorded draws has the draws first
            and needs ``.transpose(0, 1)``.) None with a run of numbers.
        energies: energy of every state (chains, draws) in nats, such as those recorded with the codes.
        edges: interactions whose cells are looked at, the sufficient statistics; "all" takes every one.
        variables: those whose levels or values are looked at.
        functions: further statistics by name; each gets the states as a tensor (chains, draws, d) and returns a number
            per state.
        backend: see :func:`pyro_hoim.interop.choose_backend`.

    Returns:
        One line per statistic, named "energy" or "log_q", "smoke:mental[y,n]", "age[old]", by a variable of numbers or
        by a function. Columns: ``kind`` (energy, log_q, cell, level, value or function); ``mean`` and ``sd`` over all
        chains and draws; ``mcse_mean``, the Monte Carlo standard error of the mean; ``ess_bulk`` and ``ess_tail``;
        ``r_hat``, rank-normalised and split, infinite where every chain is stuck at a value and not all at the same;
        ``is_constant``. What does not exist, R-hat of one chain too, is ``<NA>``, never NaN.

    Raises:
        InputError: shapes that do not fit, codes that are no levels, fewer than 4 draws, values that are not finite,
            nothing to look at, an edge that is not in the hypergraph, or a function with the name of another statistic.
        UnknownNameError: a variable that is not in the domain.

    References:
        Vehtari et al., Rank-normalization, folding, and localization: an improved R-hat for assessing convergence of
        MCMC, Bayesian Analysis 16, 2021, equations (13) and (14) and section 4.3.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2}), 2)
        >>> codes = np.random.default_rng(0).integers(0, 2, (4, 100, 2))
        >>> codes[..., 1] = 0
        >>> report = diagnose_chains(hypergraph, codes, functions={"sum": lambda x: x.sum(-1)})
        >>> list(report.index)
        ['a[0]', 'a[1]', 'b[0]', 'b[1]', 'sum']
        >>> report["mean"][report["is_constant"]].to_dict(), bool(report.loc["sum", "r_hat"] < 1.1)
        ({'b[0]': 1.0, 'b[1]': 0.0}, True)
    """
    import pandas as pd

    groups = _statistics(model, codes, energies, edges, variables, functions)
    # What never moves, and what moves between chains alone.
    names = [name for labels, _ in groups.values() for name in labels]
    values = np.concatenate([array for _, array in groups.values()], axis=-1)
    flat = values.reshape(-1, values.shape[-1])
    is_constant = (flat == flat[0]).all(axis=0)
    is_stuck = ~is_constant & (values == values[:, :1]).all(axis=(0, 1))
    # A line per statistic; ArviZ is asked of those that move.
    table = pd.DataFrame(index=pd.Index(names, name="statistic"))
    table["kind"] = pd.array([kind for kind, (labels, _) in groups.items() for _ in labels], dtype="string")
    for name in ("mean", "sd", *_FIGURES):
        table[name] = pd.array([pd.NA] * len(names), dtype="Float64")
    table["mean"] = np.where(is_constant, flat[0], flat.mean(axis=0))
    table["sd"] = np.where(is_constant, 0.0, flat.std(axis=0, ddof=1))
    if not is_constant.all():
        for name, figures in _arviz_figures(values[..., ~is_constant], backend).items():
            table.loc[~is_constant, name] = figures
        if len(values) > 1:
            table.loc[is_stuck, "r_hat"] = np.inf
    table["is_constant"] = is_constant
    return table


def _statistics(
    model: Any, codes: Any, energies: Any, edges: Any, variables: Any, functions: Functions | None
) -> Groups:
    """The statistics that were asked for."""
    groups: Groups = {}
    chosen: list[tuple[str, ...]] = []
    if codes is None:
        # Variables, states (chains, draws, d) and log q (chains, draws) of a run of chains of numbers
        if not isinstance(model, ChainRun) or model.chains.hypergraph is not None:
            raise wrong_type("model", "a run of chains of numbers, or codes beside the model", model)
        if model.draws is None or model.energies is None:
            raise conflict("model", "the run recorded no draws or no energies", "leave record out of sample_chains")
        if model.num_draws < MIN_DRAWS:
            raise out_of_range("model", f"at least {MIN_DRAWS} draws per chain", received=model.num_draws)
        domain, states, log_q = model.chains.domain, model.draws.transpose(0, 1), -model.energies.transpose(0, 1)
        groups["log_q"] = (["log_q"], _checked_values(log_q, states, "log_q")[..., None])
    else:
        if isinstance(codes, ChainRun):
            run = codes  # has the draws first
            if run.draws is None:
                raise conflict("codes", "the run recorded no draws", "run sample_chains with record=('draws', ...)")
            if run.draws.dim() != 3:
                batch = f"one of a batch {tuple(run.draws.shape[1:-2])}"
                raise unexpected("codes", "the run of one model", received=batch, code="wrong-shape")
            codes = run.draws.transpose(0, 1)
            if energies is None and run.energies is not None:
                energies = run.energies.transpose(0, 1)
        hypergraph = model if isinstance(model, InteractionHypergraph) else getattr(model, "hypergraph", None)
        if not isinstance(hypergraph, InteractionHypergraph):
            raise wrong_type("model", "a hypergraph or a model with one", model)
        domain, states = hypergraph.domain, torch.from_numpy(_checked_codes(codes, hypergraph.domain.cardinalities))
        energy_of = getattr(model, "energy", None)
        if energies is None and callable(energy_of):
            energies = energy_of(states)
        if energies is not None:
            groups["energy"] = (["energy"], _checked_values(energies, states, "energies")[..., None])
        chosen = _checked_edges(hypergraph, edges)
        if chosen:
            groups["cell"] = _cells(domain, chosen, states.numpy())
    # Single variables, and functions of the whole state.
    names = domain.names if isinstance(variables, str) and variables == "all" else variables
    if isinstance(names, str):
        raise wrong_type("variables", "a sequence of names or 'all'", received=repr(names))
    check_names(names, domain.names, "variables")
    if codes is None:
        if names:
            groups["value"] = (list(names), states[..., list(domain.indices(names))].cpu().numpy())
    elif levels := [(name,) for name in names if (name,) not in chosen]:  # those are cells already
        groups["level"] = _cells(domain, levels, states.numpy())
    if functions:
        if taken := {*groups, *(("log_q", *names) if codes is None else ("energy", "cell", "level"))} & set(functions):
            raise refused("functions", f"the names {sorted(taken)} are taken", "choose others", code="repeated-name")
        values = [_checked_values(f(states), states, f"functions[{name!r}]") for name, f in functions.items()]
        groups["function"] = (list(functions), np.stack(values, axis=-1))
    if not groups:
        hint = "give energies, edges, variables or functions"
        raise refused("variables", "nothing to look at", hint, code="missing-part")
    return groups


def _cells(domain: Domain, edges: Sequence[tuple[str, ...]], states: Array) -> tuple[list[str], Array]:
    """Names of the cells of some sets of variables, and their indicators (chains, draws, cells)."""
    names: list[str] = []
    columns: list[Array] = []
    for edge in edges:
        positions, cards = domain.indices(edge), [domain[name].cardinality for name in edge]
        labels = itertools.product(*(domain[name].labels for name in edge))
        names += [f"{':'.join(edge)}[{','.join(label)}]" for label in labels]
        if len(names) > _MAX_STATISTICS:
            raise refused(
                "edges, variables", f"more than {_MAX_STATISTICS} statistics", "choose fewer", code="over-budget"
            )
        index = np.ravel_multi_index(tuple(states[..., i] for i in positions), cards)
        columns.append((index[..., None] == np.arange(int(np.prod(cards)))).astype(np.float64))
    return names, np.concatenate(columns, axis=-1)


def _checked_codes(codes: Any, cardinalities: Sequence[int]) -> Array:
    states = to_array(codes)
    if states.ndim != 3 or states.shape[-1] != len(cardinalities) or not states.shape[0]:
        raise wrong_shape("codes", f"(chains, draws, {len(cardinalities)})", states)
    if states.shape[1] < MIN_DRAWS:
        raise out_of_range("codes", f"at least {MIN_DRAWS} draws per chain", received=states.shape[1])
    whole = states.astype(np.int64)
    wrong = (whole != states) | (whole < 0) | (whole >= np.array(cardinalities, dtype=np.int64))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        expected = f"whole numbers from 0 to {cardinalities[where[-1]] - 1}"
        raise out_of_range("codes", expected, received=f"{states[where]} at index {where}")
    return whole


def _checked_edges(hypergraph: InteractionHypergraph, edges: Any) -> list[tuple[str, ...]]:
    if isinstance(edges, str) and edges == "all":
        return [edge for edge in hypergraph.edges if edge]
    if isinstance(edges, str):
        raise wrong_type("edges", "a sequence of interactions or 'all'", received=repr(edges))
    result: list[tuple[str, ...]] = []
    for edge in edges:
        if isinstance(edge, str):
            raise wrong_type("edges", "interactions that are sequences of names", received=repr(edge))
        check_names(edge, hypergraph.domain.names, "edges")
        ordered = tuple(name for name in hypergraph.domain.names if name in set(edge))
        if ordered not in hypergraph.edges:
            problem = f"{tuple(edge)} is no interaction of the hypergraph"
            raise refused("edges", problem, "use functions for others", code="unknown-name")
        result.append(ordered)
    return list(dict.fromkeys(result))


def _checked_values(values: Any, states: torch.Tensor, argument: str) -> Array:
    array, lead = to_array(values).astype(np.float64), tuple(states.shape[:2])
    if array.shape != lead:
        raise wrong_shape(argument, f"{lead} (chains, draws)", array)
    if not np.isfinite(array).all():
        raise unexpected(argument, "finite numbers", received="NaN or an infinity", code="not-finite")
    return array


def _arviz_figures(values: Array, backend: BackendName | None) -> dict[str, Array]:
    """ArviZ's figures of moving statistics (chains, draws, n), each (n,)."""
    engine = choose_backend(backend)
    data = engine.from_dict({"posterior": {"value": values}}, {}, {"value": ["statistic"]})
    calls = {name: call for name, call in _FIGURES.items() if name != "r_hat" or len(values) > 1}
    result: dict[str, Array] = {}
    # An indicator that is rare in half a chain has constant halves, about which ArviZ divides by zero and is right.
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        for name, (function, options) in calls.items():
            figures = getattr(engine.stats, function)(data, **options)
            group = getattr(figures, "children", {}).get("posterior", figures)
            result[name] = np.asarray(group["value"].values, dtype=np.float64)
    return result
