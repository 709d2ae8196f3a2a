"""Diagnostics of chains: energy, cells of interactions, levels or values, and functions of the state, through ArviZ."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from ..errors import check_names, conflict, out_of_range, refused, unexpected, wrong_shape, wrong_type
from ..runs.sampling import ChainRun
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .backend import BackendName, choose_backend
from .coordinates import interaction_name
from .samples import to_array

__all__ = ["ChainDiagnostics", "StatisticDiagnostics", "chains_to_arviz", "diagnose_chains"]

MIN_DRAWS = 4
"""Fewest draws per chain that R-hat and effective sample sizes exist for."""

_MAX_STATISTICS = 100_000

Array = np.ndarray
Kind = Literal["energy", "cell", "level", "value", "function", "log_q"]
Functions = Mapping[str, Callable[[torch.Tensor], Any]]
Groups = dict[Kind, tuple[list[str], Array]]
"""Names and values (chains, draws, statistics) of everything looked at, by kind."""


@dataclass(frozen=True)
class StatisticDiagnostics:
    """How well one statistic of the state was sampled.

    Attributes:
        name: "energy", "smoke:mental[y,n]", "age[old]" or the name of a function.
        kind: what it is.
        mean: over all chains and draws; of a constant its value.
        sd: standard deviation over all chains and draws, 0 for a constant.
        mcse_mean: Monte Carlo standard error of the mean, None for a constant.
        ess_bulk: rank-normalised effective sample size, None for a constant.
        ess_tail: smaller effective sample size of the 5 % and 95 % quantiles, None for a constant.
        r_hat: rank-normalised split R-hat; None for a constant and with one chain, infinite when every chain is stuck
            at a value and not all at the same.
        is_constant: whether no chain ever changed it and all agree.
    """

    name: str
    kind: Kind
    mean: float
    sd: float
    mcse_mean: float | None
    ess_bulk: float | None
    ess_tail: float | None
    r_hat: float | None
    is_constant: bool


@dataclass(frozen=True)
class ChainDiagnostics:
    """Diagnostics of all statistics of some chains; printing it shows the table.

    Attributes:
        rows: one entry per statistic.
        num_chains: number of chains.
        num_draws: draws per chain.
    """

    rows: tuple[StatisticDiagnostics, ...]
    num_chains: int
    num_draws: int

    def __getitem__(self, name: str) -> StatisticDiagnostics:
        """The entry of a statistic."""
        names = [row.name for row in self.rows]
        check_names([name], names, "name", noun="statistic")
        return self.rows[names.index(name)]

    def __iter__(self) -> Iterator[StatisticDiagnostics]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def constants(self) -> dict[str, float]:
        """Statistics that never changed, with their values."""
        return {row.name: row.mean for row in self.rows if row.is_constant}

    @property
    def max_r_hat(self) -> float | None:
        """Largest R-hat, None if there is none (one chain, or nothing that moves)."""
        return max((row.r_hat for row in self.rows if row.r_hat is not None), default=None)

    @property
    def min_ess(self) -> float | None:
        """Smallest effective sample size, bulk or tail, None if nothing moves."""
        sizes = [s for row in self.rows for s in (row.ess_bulk, row.ess_tail) if s is not None]
        return min(sizes, default=None)

    def to_frame(self) -> Any:
        """A pandas table with the statistics as its index; what does not exist is ``<NA>``, never NaN."""
        import pandas as pd

        index = pd.Index([row.name for row in self.rows], name="statistic")
        columns: dict[str, Any] = {"kind": pd.array([row.kind for row in self.rows], dtype="string")}
        for name in ("mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"):
            values = [getattr(row, name) for row in self.rows]
            columns[name] = pd.array([pd.NA if v is None else v for v in values], dtype="Float64")
        columns["is_constant"] = pd.array([row.is_constant for row in self.rows], dtype="boolean")
        return pd.DataFrame(columns, index=index)

    def __str__(self) -> str:
        width = max([len(row.name) for row in self.rows] + [len("statistic")])
        lines = [
            f"{'statistic':<{width}} {'mean':>10} {'sd':>9} {'mcse':>9} {'ess_bulk':>8} {'ess_tail':>8} {'r_hat':>6}"
        ]
        for row in self.rows:
            start = f"{row.name:<{width}} {row.mean:>10.4g}"
            if row.is_constant:
                lines.append(f"{start} constant")
                continue
            r_hat = "-" if row.r_hat is None else f"{row.r_hat:.3f}"
            lines.append(
                f"{start} {row.sd:>9.3g} {row.mcse_mean:>9.2g} {row.ess_bulk:>8.0f} {row.ess_tail:>8.0f} {r_hat:>6}"
            )
        lines.append(f"{self.num_chains} chains of {self.num_draws} draws")
        if self.num_chains == 1:
            lines[-1] = f"one chain of {self.num_draws} draws, which has no R-hat"
        return "\n".join(lines)


def diagnose_chains(
    model: Any,
    codes: Any = None,
    *,
    energies: Any = None,
    edges: Sequence[Sequence[str]] | Literal["all"] = (),
    variables: Sequence[str] | Literal["all"] = "all",
    functions: Functions | None = None,
    backend: BackendName | None = None,
) -> ChainDiagnostics:
    r"""R-hat, effective sample sizes and Monte Carlo errors of statistics of chains, computed by ArviZ.

    Statistics that never change, such as clamped variables, are reported as constant with their value, whatever ArviZ
    would say of them.

    Args:
        model: of chains of levels the hypergraph, or anything with ``hypergraph`` (a log-linear law or energy model);
            if it also has ``energy(codes)``, energies are computed where they are not given. Of chains of counts or
            reals their run with its draws and energies.
        codes: level codes, chains first; or the result of :func:`~pyro_hoim.runs.sample_chains` of one model that
            recorded its draws, whose energies are then used too. (A bare tensor of recorded draws has the draws first
            and needs ``.transpose(0, 1)``.) None with a run of numbers.
        energies: energy of every state in nats, such as those recorded with the codes.
        edges: interactions whose cells are looked at, the sufficient statistics; "all" takes every one.
        variables: those whose levels or values are looked at.
        functions: further statistics by name; each gets the states as a tensor (chains, draws, d) and returns a number
            per state.
        backend: see :func:`pyro_hoim.interop.choose_backend`.

    Shape:
        codes (chains, draws, d); energies and values of functions (chains, draws).

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
        >>> [row.name for row in report]
        ['a[0]', 'a[1]', 'b[0]', 'b[1]', 'sum']
        >>> report.constants, report["sum"].r_hat < 1.1
        ({'b[0]': 1.0, 'b[1]': 0.0}, True)
    """
    options: dict[str, Any] = {"energies": energies, "edges": edges, "variables": variables, "functions": functions}
    return _diagnose(_statistics(model, codes, **options), backend)


def _diagnose(groups: Groups, backend: BackendName | None) -> ChainDiagnostics:
    names = [name for labels, _ in groups.values() for name in labels]
    kinds = [kind for kind, (labels, _) in groups.items() for _ in labels]
    values = np.concatenate([array for _, array in groups.values()], axis=-1)
    num_chains, num_draws = values.shape[:2]
    flat = values.reshape(-1, values.shape[-1])
    is_constant = (flat == flat[0]).all(axis=0)
    is_stuck = ~is_constant & (values == values[:, :1]).all(axis=(0, 1))
    moving = np.flatnonzero(~is_constant)
    found = _arviz_figures(values[..., moving], backend) if len(moving) else {}
    place = {int(column): k for k, column in enumerate(moving)}
    rows: list[StatisticDiagnostics] = []
    for column, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        figures: dict[str, float | None] = dict.fromkeys(("mcse_mean", "ess_bulk", "ess_tail", "r_hat"))
        if column in place:
            figures = {key: float(array[place[column]]) for key, array in found.items()}
            if is_stuck[column]:
                figures["r_hat"] = float("inf")
            if num_chains == 1:
                figures["r_hat"] = None
        constant = bool(is_constant[column])
        mean = float(flat[0, column] if constant else flat[:, column].mean())
        sd = 0.0 if constant else float(flat[:, column].std(ddof=1))
        rows.append(StatisticDiagnostics(name, kind, mean, sd, **figures, is_constant=constant))  # pyright: ignore[reportArgumentType]
    return ChainDiagnostics(tuple(rows), num_chains, num_draws)


def chains_to_arviz(model: Any, codes: Any = None, *, backend: BackendName | None = None, **options: Any) -> Any:
    """Statistics of chains as ArviZ data, for its plots: ``InferenceData`` or, from ArviZ 1.0, ``DataTree``.

    The group ``posterior`` has the variables ``energy`` or ``log_q``, ``cell`` with the dimension ``cell_name``
    ("a:b[0,1]"), ``level`` with ``level_name`` ("a[1]") or ``value`` with ``value_name`` ("a"), and one per function.

    Args:
        model: as in :func:`diagnose_chains`, like all other arguments.
        codes: likewise.
        backend: likewise.
        options: likewise.
    """
    found: dict[str, Array] = {}
    coords: dict[str, list[str]] = {}
    dims: dict[str, list[str]] = {}
    for kind, (labels, array) in _statistics(model, codes, **options).items():
        if kind in ("cell", "level", "value"):
            found[kind], dims[kind] = array, [f"{kind}_name"]
            coords[f"{kind}_name"] = labels
        else:
            found.update({name: array[..., k] for k, name in enumerate(labels)})
    return choose_backend(backend).from_dict({"posterior": found}, coords, dims)


def _of_run(run: ChainRun[Any], energies: Any) -> tuple[Any, Any]:
    """Codes (chains, draws, d) and energies of a run, which has the draws first."""
    if run.draws is None:
        raise conflict("codes", "the run recorded no draws", "run sample_chains with record=('draws', ...)")
    if run.draws.dim() != 3:
        found = f"one of a batch {tuple(run.draws.shape[1:-2])}"
        raise unexpected("codes", "the run of one model", received=found, code="wrong-shape")
    if energies is None and run.energies is not None:
        energies = run.energies.transpose(0, 1)
    return run.draws.transpose(0, 1), energies


def _statistics(
    model: Any,
    codes: Any,
    *,
    energies: Any = None,
    edges: Any = (),
    variables: Any = "all",
    functions: Functions | None = None,
) -> Groups:
    """The statistics that were asked for."""
    groups: Groups = {}
    chosen: list[tuple[str, ...]] = []
    if codes is None:
        domain, states, log_q = _numbers(model)
        groups["log_q"] = (["log_q"], _checked_values(log_q, states, "log_q")[..., None])
    else:
        if isinstance(codes, ChainRun):
            codes, energies = _of_run(codes, energies)
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


def _numbers(run: Any) -> tuple[Domain, torch.Tensor, Any]:
    """Variables, states (chains, draws, d) and log q (chains, draws) of a run of chains of numbers."""
    if not isinstance(run, ChainRun) or run.chains.hypergraph is not None:
        raise wrong_type("model", "a run of chains of numbers, or codes beside the model", run)
    if run.draws is None or run.energies is None:
        raise conflict("model", "the run recorded no draws or no energies", "leave record out of sample_chains")
    if run.num_draws < MIN_DRAWS:
        raise out_of_range("model", f"at least {MIN_DRAWS} draws per chain", received=run.num_draws)
    return run.chains.domain, run.draws.transpose(0, 1), -run.energies.transpose(0, 1)


def _cells(domain: Domain, edges: Sequence[tuple[str, ...]], states: Array) -> tuple[list[str], Array]:
    """Names of the cells of some sets of variables, and their indicators (chains, draws, cells)."""
    names: list[str] = []
    columns: list[Array] = []
    for edge in edges:
        positions, cards = domain.indices(edge), [domain[name].cardinality for name in edge]
        labels = itertools.product(*(domain[name].labels for name in edge))
        names += [f"{interaction_name(edge)}[{','.join(label)}]" for label in labels]
        if len(names) > _MAX_STATISTICS:
            raise refused("edges, variables", f"more than {_MAX_STATISTICS} statistics", "choose fewer")
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
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "mcse_mean": ("mcse", {"method": "mean"}),
        "ess_bulk": ("ess", {"method": "bulk"}),
        "ess_tail": ("ess", {"method": "tail", "prob": (0.05, 0.95)}),  # the generations have other defaults
    }
    if len(values) > 1:
        calls["r_hat"] = ("rhat", {"method": "rank"})
    result: dict[str, Array] = {}
    # An indicator that is rare in half a chain has constant halves, about which ArviZ divides by zero and is right.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (function, options) in calls.items():
            found = getattr(engine.stats, function)(data, **options)
            group = getattr(found, "children", {}).get("posterior", found)
            result[name] = np.asarray(group["value"].values, dtype=np.float64)
    return result
