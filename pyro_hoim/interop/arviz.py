"""From Pyro draws to ArviZ: named dimensions, statistics of the draws, log-likelihoods and predictive draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypedDict, Unpack, runtime_checkable

import numpy as np
import torch

from ..data.encoding import LARGEST_COUNT
from ..errors import (
    IntractableError,
    check_choice,
    check_names,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
)
from ..log_linear.coding import THETA_DIM, Coding, parametrization, table_variables, theta_coords
from ..structure.hypergraph import InteractionHypergraph
from .backend import Backend, BackendName, choose_backend, get_group, installed_version, set_group
from .samples import Draws, constant_sites, read_draws, read_group, to_array

# Posteriors over structure as draws with named interactions.

INTERACTION_DIM = "interaction"
"""Name of the dimension that runs over the interactions that may be present."""


@runtime_checkable
class Structures(Protocol):
    """What is read of a :class:`~pyro_hoim.inference.StructurePosterior`."""

    @property
    def structure_prior(self) -> Any:
        """The prior over collections."""
        ...

    @property
    def status(self) -> str:
        """What is known of the draws."""
        ...

    def chains(self, num_chains: int | None = None) -> Any:
        """The draws by chain."""
        ...


CELL_GROUP = "cell_log_likelihood"
"""Group of the log-likelihoods that hold one term per observed cell instead of one per row."""

_MAX_EXPANDED = 2**25  # numbers, unless asked for
_MOST_EXPANDED = 2**28

_ORIGINAL = "original_name"

Group = Mapping[str, Any]


@dataclass(frozen=True)
class ArvizNames:
    """What dimensions, coordinates and the site of the free parameters are called.

    Attributes:
        dims: dimension names by variable, without chain and draw.
        coords: coordinate values by dimension.
        theta: site whose coordinates a hypergraph names.
        coding: coding of that site; None for that of the collection's family.
        layout: "flat" gives that site the dimension ``interaction_level`` ("smoke:mental[n,n]", see
            :func:`~pyro_hoim.log_linear.theta_coords`) with the further coordinates ``interaction`` and ``level``;
            "tables" makes it one variable per interaction, ``theta[smoke:mental]``, its balanced table, with dimensions
            ``smoke_level`` and ``mental_level`` whose coordinates are the labels. Others are refused.

    Example:
        >>> import numpy as np
        >>> names = ArvizNames(dims={"beta": ["term"]}, coords={"term": ["age", "sex"]})
        >>> to_arviz({"beta": np.zeros((4, 10, 2))}, names=names).posterior["beta"].sel(term="sex").shape
        (4, 10)
    """

    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    theta: str = "theta"
    coding: Coding | None = None
    layout: Literal["flat", "tables"] = "flat"

    def __post_init__(self) -> None:
        check_choice(self.layout, ("flat", "tables"), "layout")


class Groups(TypedDict, total=False):
    """Further groups of ArviZ data; draws are (chain, draw, ...) or flat, (draw, ...) for the prior."""

    sample_stats: Group | None
    posterior_predictive: Group | Callable[..., Group] | None
    prior: Group | None
    prior_predictive: Group | None
    observed_data: Group | None
    constant_data: Group | None


def to_arviz(
    posterior: Any = None,
    *,
    num_chains: int | None = None,
    hypergraph: InteractionHypergraph | None = None,
    names: ArvizNames | None = None,
    log_likelihood: Group | Callable[..., Group] | None = None,
    cell_count: Any = None,
    expand_cells: bool | None = None,
    integer_sites: Iterable[str] | None = None,
    backend: BackendName | None = None,
    **groups: Unpack[Groups],
) -> Any:
    r"""ArviZ data from the draws of any Pyro program: ``InferenceData`` before ArviZ 1.0, ``DataTree`` from then on.

    Faults of Pyro 1.9.2 are undone on the way: integer sites that came back as floats are integers again; values that
    ``MCMC(save_params=...)`` handed to the wrong names go back to their own; diagnostics that are missing, None or
    without divergences are left out instead of raising; entries that never change are counted in the attribute
    ``constant_sites``, since their R-hat is NaN.

    No site is left out, whatever its name. A site has another name in the data where xarray or netCDF could not hold
    its own: ``/`` is written ``|``, in dimensions too, and ``" (site)"`` follows the name of a dimension or coordinate,
    such as ``chain``. The attribute ``original_name`` of that variable has the name that was given. The coordinates of
    theta give way to sites and dimensions of their name: ``theta_level`` then stands for ``level``.

    A :class:`~pyro_hoim.inference.StructurePosterior` becomes ``inclusion`` (chain, draw, interaction) of zeros and
    ones and ``theta`` of the largest collection, zero where an interaction is absent, with ``log_evidence`` and
    ``temperature`` (of the draws: 1) in ``sample_stats`` and ``prior_inclusion`` in ``constant_data``, where that is
    known. One that lists collections, or has weighted draws, has no chains: its draws are independent ones (4 chains
    of 1,000; the attribute ``independent_draws`` says so). Theta given a collection is drawn as
    :meth:`~pyro_hoim.inference.StructurePosterior.sample` does. The attribute ``status`` is that of the posterior.

    Args:
        posterior: a Pyro ``MCMC`` object after ``run()``, ``{site: draws}``, a posterior over structure, or None.
        num_chains: None if the arrays of a dict are (chain, draw, \*shape); a number if they are flat. Not for MCMC.
            Of a posterior over structure without chains, how many its draws are divided into.
        hypergraph: names the coordinates of the site ``names.theta``.
        names: of dimensions and coordinates.
        log_likelihood: ``{name: terms}`` in nats, (chain, draw, \*observations) or flat, or a function that gets the
            draws as tensors (chain, draw, \*shape) and returns that, such as one that calls
            ``pyro_hoim.inference.pointwise_log_likelihood``.
        cell_count: counts of the observed cells when ``log_likelihood`` has one term per distinct cell: an array if
            it has one name, else ``{name: counts}``. The terms go to the group ``cell_log_likelihood``, the counts to
            ``constant_data`` as ``name_count``; :func:`loo_by_cell` reads both.
        expand_cells: whether the group ``log_likelihood`` gets one term per row, cell after cell, so that
            ArviZ's own ``loo`` is right; None does so up to 2^25 numbers. Per-cell terms are never put there, because
            ``loo`` would then count every cell once.
        integer_sites: sites to be returned as int64; None finds them in an MCMC run (every draw whole, not all
            equal); an empty tuple switches that off.
        backend: "arviz", "arviz_base" or None, see :func:`pyro_hoim.interop.choose_backend`.
        groups: further groups of ArviZ as ``{name: array}``: ``sample_stats``, which replace those found in the MCMC
            object, ``posterior_predictive``, which may be a function as above, ``prior``, ``prior_predictive``,
            ``observed_data`` and ``constant_data``.

    Raises:
        InputError: shapes or names that do not fit, a run without draws, cell counts that are not whole numbers; or
            the backend is not installed.
        InputTypeError: a posterior or group of the wrong type.
        IntractableError: ``expand_cells`` would make more than 2^28 numbers.

    Example:
        >>> import numpy as np
        >>> names = ArvizNames(dims={"mu": ["city"]}, coords={"city": ["a", "b", "c"]})
        >>> data = to_arviz({"mu": np.zeros((2, 50, 3))}, names=names)
        >>> data.posterior["mu"].dims
        ('chain', 'draw', 'city')
    """
    # Draws of the posterior, which the other groups are compared with.
    names = ArvizNames() if names is None else names
    check_names(groups, list(Groups.__annotations__), "to_arviz", noun="group")
    engine = choose_backend(backend)
    if isinstance(posterior, Structures):
        # Draws of indicators, and theta where it is not too large; they are those of temperature 1.
        chains, prior = posterior.chains(num_chains), posterior.structure_prior
        sites = {"inclusion": to_array(chains.gamma).astype(np.int64)}
        if chains.theta is not None:
            sites["theta"] = to_array(chains.theta)
            hypergraph = prior.largest if hypergraph is None else hypergraph
        constants: dict[str, np.ndarray] = {}
        with suppress(IntractableError):  # a sum over a space that is not listed
            constants["prior_inclusion"] = to_array(prior.marginal_inclusion)
        log_evidence = to_array(chains.log_evidence)
        stats = {"log_evidence": log_evidence, "temperature": np.ones_like(log_evidence)}
        about = {"status": posterior.status, "independent_draws": chains.is_independent}
        dims = {name: [INTERACTION_DIM] for name in ("inclusion", "prior_inclusion")}
        coords = {INTERACTION_DIM: [":".join(edge) for edge in prior.space.candidates]}
        names = replace(names, dims={**dims, **names.dims}, coords={**coords, **names.coords})
        draws = Draws(sites, stats, about)
        groups["constant_data"] = {**constants, **(groups.get("constant_data") or {})}
    elif posterior is None:
        draws = Draws({})
    else:
        draws = read_draws(posterior, num_chains=num_chains, integer_sites=integer_sites)
    # Groups as arrays by name; those of draws have chains and draws first.
    lead, variables = draws.lead, dict(draws.arrays)
    all_dims = {name: list(value) for name, value in names.dims.items()}
    all_coords: dict[str, Any] = {name: list(value) for name, value in names.coords.items()}
    prior = groups.get("prior")
    prior_arrays = {} if prior is None else _like(read_group("prior", prior, None, {}), variables)

    stats = {**draws.sample_stats, **read_group("sample_stats", groups.get("sample_stats") or {}, lead, {})}
    data_groups = {"posterior": variables, "prior": prior_arrays, "sample_stats": stats}
    if (predictive := groups.get("posterior_predictive")) is not None:
        data_groups["posterior_predictive"] = read_group("posterior_predictive", predictive, lead, draws.arrays)
    if (simulated := groups.get("prior_predictive")) is not None:
        data_groups["prior_predictive"] = read_group("prior_predictive", simulated, None, {})
    for group in ("observed_data", "constant_data"):
        data_groups[group] = {name: to_array(value) for name, value in (groups.get(group) or {}).items()}

    # Terms of cells stay apart from those of rows, for ArviZ would count a cell once.
    terms = {} if log_likelihood is None else read_group("log_likelihood", log_likelihood, lead, draws.arrays)
    counts = _counts(terms, cell_count)
    cells = {name: terms.pop(name) for name in counts}
    for name, count in counts.items():
        data_groups["constant_data"][f"{name}_count"] = count
        all_dims.setdefault(f"{name}_count", [f"{name}_cell"])
        size = int(count.sum()) * int(np.prod(cells[name].shape[:2]))
        if expand_cells and size > _MOST_EXPANDED:
            made = size_text(size, "numbers")
            raise out_of_reach("expand_cells", f"makes {made}, more than {_MOST_EXPANDED}", "use loo_by_cell instead")
        if expand_cells or (expand_cells is None and size <= _MAX_EXPANDED):
            terms[name] = np.repeat(cells[name], count, axis=2)
            all_dims[name] = [f"{name}_row"]
    data_groups["log_likelihood"] = terms
    # After all other names are known, because the coordinates of theta give way to them.
    theta_dim, extra_coords = THETA_DIM, dict[str, list[str]]()
    if hypergraph is not None:
        if variables or not prior_arrays:
            check_names([names.theta], list(variables), "theta", noun="site")
        taken = {*all_coords, *(dim for dims in all_dims.values() for dim in dims)}.union(*data_groups.values(), cells)
        theta_dim = _free(THETA_DIM, taken)
        extra_coords = _name_theta(hypergraph, names, (variables, prior_arrays), all_dims, all_coords, theta_dim)
        extra_coords = {_free(name, taken): values for name, values in extra_coords.items()}

    if not any(data_groups.values()) and not cells:
        hint = "give posterior draws or at least one other group"
        raise refused("to_arviz", "nothing to convert", hint, code="missing-part")
    axes = {*all_coords, *extra_coords, theta_dim, *(f"{name}_cell" for name in cells)}
    data = _made(engine, data_groups, cells, all_dims, all_coords, axes)
    _annotate(data, draws, variables, extra_coords, theta_dim)
    return data


def original_name(dataset: Any, name: str) -> str:
    """The name that was given to a variable of a Dataset that :func:`to_arviz` made."""
    return str(dataset[name].attrs.get(_ORIGINAL, name))


def stored_name(dataset: Any, name: str) -> str | None:
    """The variable of a Dataset that a name was given to, None where there is none."""
    return next((str(key) for key in dataset.data_vars if name in (original_name(dataset, key), key)), None)


def _free(name: str, taken: Collection[str]) -> str:
    """A name of a coordinate of theta that nothing else has."""
    while name in taken:
        name = f"theta_{name}"
    return name


def _made(
    engine: Backend,
    groups: Mapping[str, Mapping[str, np.ndarray]],
    cells: Mapping[str, np.ndarray],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Any],
    further_axes: Iterable[str],
) -> Any:
    """The data object, every name as xarray and netCDF can hold it."""
    # Stored names of axes first, because those of sites give way to them.
    arrays = {name: value for group in (*groups.values(), cells) for name, value in group.items()}
    used = {name: list(dims[name]) for name in dims if any(name in group for group in groups.values())}
    axes = _without_slashes([*further_axes, *(dim for named in used.values() for dim in named)])
    # ArviZ names the dimensions of the others itself.
    unnamed = {f"{name}_dim_{i}" for name, value in arrays.items() if name not in used for i in range(value.ndim)}
    sites = _without_slashes(arrays, {"chain", "draw", *axes.values(), *unnamed})

    stored = {group: {sites[name]: value for name, value in names_of.items()} for group, names_of in groups.items()}
    coords = {axes[name]: values for name, values in coords.items()}
    data = engine.from_dict(stored, coords, {sites[name]: [axes[dim] for dim in used[name]] for name in used})
    if cells:
        cell_dims = {sites[name]: [axes[f"{name}_cell"]] for name in cells}
        values = {sites[name]: value for name, value in cells.items()}
        set_group(data, CELL_GROUP, engine.dataset(values, coords, cell_dims))

    # What was renamed says what it was called.
    changed = {new: old for old, new in (*sites.items(), *axes.items()) if new != old}
    for group in (*groups, CELL_GROUP) if changed else ():
        dataset = get_group(data, group)
        if dataset is not None and (taken := changed.keys() & set(dataset.variables)):
            for name in taken:
                dataset[name].attrs[_ORIGINAL] = changed[name]
            set_group(data, group, dataset)
    return data


def _without_slashes(names: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Different names without a slash that are not taken, by name; those that can be kept are."""
    renamed: dict[str, str] = {}
    used = set(taken)
    for name in sorted(dict.fromkeys(names), key=lambda name: ("/" in name, name)):
        stored = name.replace("/", "|")
        while stored in used:
            stored += " (site)"
        used.add(stored)
        renamed[name] = stored
    return renamed


def _name_theta(
    hypergraph: InteractionHypergraph,
    labels: ArvizNames,
    groups: Sequence[dict[str, np.ndarray]],
    dims: dict[str, list[str]],
    coords: dict[str, Any],
    dimension: str,
) -> dict[str, list[str]]:
    """Names the coordinates of theta in place, or puts its tables in its stead; its secondary coordinates."""
    # Coordinates in one dimension, or a variable per interaction.
    theta, coding = labels.theta, labels.coding or parametrization(hypergraph).coding
    coordinates = theta_coords(hypergraph, coding)
    names = coordinates.pop(THETA_DIM)
    extra: dict[str, list[str]] = {}
    for group in groups:
        if theta not in group:
            continue
        if group[theta].shape[2:] != (len(names),):
            raise refused(
                "theta",
                f"site {theta!r} has shape {group[theta].shape[2:]}, but the hypergraph has {len(names)} coordinates "
                f"in the {coding!r} coding",
                code="wrong-shape",
            )
        if labels.layout == "flat":
            dims[theta], coords[dimension], extra = [dimension], names, coordinates
            continue
        values = torch.as_tensor(group.pop(theta))
        tables = parametrization(hypergraph).to_tables(values, coding, validate=False)
        arrays, axes, levels = table_variables(hypergraph, theta, tables.numpy())
        group.update(arrays)
        dims.update(axes)
        coords.update(levels)
    return extra


def _like(prior: dict[str, np.ndarray], posterior: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Prior draws without the dimensions of size one that ``Predictive`` puts in for the model's plates."""
    result = {}
    for name, value in prior.items():
        shape = posterior[name].shape[2:] if name in posterior else value.shape[2:]
        extra = value.ndim - 2 - len(shape)
        padded = value.shape[2:] == (1,) * extra + shape
        result[name] = value.reshape(*value.shape[:2], *shape) if extra > 0 and padded else value
    return result


def _counts(terms: Mapping[str, np.ndarray], cell_count: Any) -> dict[str, np.ndarray]:
    """Whole cell counts by name, checked against the terms."""
    if cell_count is None:
        return {}
    # One array belongs to the only log-likelihood.
    if not isinstance(cell_count, Mapping):
        if len(terms) != 1:
            raise unexpected(
                "cell_count", f"a dict of counts for {sorted(terms)}", received="one array", code="missing-part"
            )
        cell_count = {next(iter(terms)): cell_count}
    check_names(cell_count, list(terms), "cell_count", noun="log-likelihood")
    result = {}
    for name, value in cell_count.items():
        count = to_array(value)
        if count.ndim != 1 or terms[name].shape[2:] != count.shape:
            expected = f"one count per term {terms[name].shape[2:]}"
            raise out_of_range(f"cell_count[{name!r}]", expected, received=count.shape)
        is_count = np.isfinite(count) & (count == np.floor(count)) & (count >= 0)
        if not is_count.all() or count.astype(np.float64).sum() > LARGEST_COUNT:
            expected = f"whole non-negative counts of a total up to {LARGEST_COUNT}"
            raise out_of_range(f"cell_count[{name!r}]", expected, hint="leave-one-out needs rows")
        result[name] = count.astype(np.int64)
    return result


def _annotate(
    data: Any, draws: Draws, variables: Mapping[str, np.ndarray], extra: Mapping[str, list[str]], theta_dim: str
) -> None:
    """Secondary coordinates of theta, and what is to be known about the run, as attributes."""
    # About the library and the run, in every group of draws.
    version = installed_version("pyro-ppl") or "unknown"
    about = {"inference_library": "pyro-ppl", "inference_library_version": version}
    about.update({name: json.dumps(value) for name, value in draws.attributes.items()})
    for group in ("posterior", "prior"):
        dataset = get_group(data, group)
        if dataset is None:
            continue
        if extra and theta_dim in dataset.dims:
            dataset = dataset.assign_coords({name: (theta_dim, value) for name, value in extra.items()})
        dataset = dataset.assign_attrs(about)
        if group == "posterior":
            dataset = dataset.assign_attrs(constant_sites=json.dumps(constant_sites(variables)))
        set_group(data, group, dataset)
