"""Reading draws and statistics out of Pyro objects, with the faults of Pyro 1.9.2 undone or refused."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..budgets import MAX_BYTES, check_size
from ..checks import array_of
from ..errors import check_whole, conflict, refused, unexpected, wrong_shape, wrong_type
from ..inference.statistics import draw_statistics
from .backend import installed_version

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Draws:
    r"""Posterior draws and what was learned about the run.

    Attributes:
        arrays: draws by site, (chain, draw, \*site shape).
        sample_stats: statistics of each draw, (chain, draw).
        attributes: figures that belong to chains or to the run, JSON-ready.
    """

    arrays: Arrays
    sample_stats: Arrays = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def lead(self) -> tuple[int, int] | None:
        """Numbers of chains and of draws, None without sites."""
        for value in self.arrays.values():
            return value.shape[0], value.shape[1]
        return None


def to_array(value: Any) -> np.ndarray:
    """NumPy copy of a tensor or array; bfloat16 becomes float32. Masked cells and draws of 4 GiB are refused."""
    is_short = isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16
    array = array_of(value.float() if is_short else value, "draws")
    check_size(array.nbytes, MAX_BYTES, "bytes", "draws", "keep fewer of them", "they take")
    return np.array(array)


def read_draws(source: Any, *, num_chains: int | None = None, integer_sites: Iterable[str] | None = None) -> Draws:
    """Draws grouped by chain from a Pyro ``MCMC`` object or a mapping."""
    if isinstance(source, Mapping):
        arrays = {str(name): to_array(value) for name, value in source.items()}
        arrays = {name: _grouped(name, value, num_chains) for name, value in arrays.items()}
        _check_lead(arrays)
        return Draws(arrays if integer_sites is None else restore_integers(arrays, integer_sites))
    if not callable(getattr(source, "get_samples", None)):
        raise wrong_type("posterior", "a Pyro MCMC object or a dict of draws", source)
    if getattr(source, "_samples", ()) is None:
        raise refused("posterior", "the MCMC object holds no draws", "call its run() first", code="missing-part")
    if num_chains is not None:
        raise conflict("num_chains", "applies to a dict of flat draws only; an MCMC object knows its chains")
    # Draws as the program made them, with what is known of each.
    samples = dict(source.get_samples(group_by_chain=True))
    samples, repaired = _repair_save_params(source, samples)
    arrays = {str(name): to_array(value) for name, value in samples.items()}
    _check_lead(arrays)
    arrays = restore_integers(arrays, integer_sites)
    first = next(iter(arrays.values()), None)
    chains = int(getattr(source, "num_chains", 1) if first is None else first.shape[0])
    draws = int(getattr(source, "num_samples", 0) if first is None else first.shape[1])
    # Statistics by draw and figures by chain from the diagnostics of the run, whatever they hold.
    per_chain = _chain_diagnostics(source, chains)
    stats = draw_statistics(per_chain, draws)
    attributes: dict[str, Any] = {}
    for name in per_chain[0] if per_chain else ():
        values = [float(v) for chain in per_chain if isinstance(v := chain.get(name), int | float)]
        if len(values) == len(per_chain):
            attributes["chain_" + str(name).replace(" ", "_")] = values
    # Counts and truth values are not floating.
    for name in ("tree_depth", "n_steps"):
        if name in stats:
            stats[name] = stats[name].astype(np.int64)
    if "reached_max_treedepth" in stats:
        stats["reached_max_treedepth"] = stats["reached_max_treedepth"].astype(bool)
    step_size = getattr(getattr(source, "kernel", None), "step_size", None)
    if chains == 1 and "step_size" not in stats and isinstance(step_size, int | float):
        stats["step_size"] = np.full((1, draws), float(step_size))
    if repaired:
        attributes["repaired_save_params"] = repaired
    return Draws(arrays, stats, attributes)


def restore_integers(arrays: Arrays, sites: Iterable[str] | None = None) -> Arrays:
    """Give back int64 to sites that Pyro concatenated with floating ones.

    Pyro's MCMC joins all sites of a draw in one tensor, so integer sites beside floating ones come back as float32.
    """
    # Sites that were named, or else those that look it.
    named = None if sites is None else set(sites)
    if named is not None and (unknown := sorted(named - set(arrays))):
        raise refused("integer_sites", f"unknown site {unknown[0]!r}; known: {sorted(arrays)}", code="unknown-name")
    result = dict(arrays)
    for name, value in arrays.items():
        if not np.issubdtype(value.dtype, np.floating) or (named is not None and name not in named):
            continue
        whole = bool(value.size) and bool((np.isfinite(value) & (value == np.floor(value))).all())
        if named is not None and not whole:
            raise refused("integer_sites", f"site {name!r} has draws that are not whole numbers", code="out-of-range")
        if whole and (named is not None or value.min() < value.max()):
            result[name] = value.astype(np.int64)
    return result


def constant_sites(arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Number of entries of each site that never change over chains and draws; sites without any are left out.

    R-hat divides by their variance and is NaN; say so instead of showing it.
    """
    counts = {}
    for name, value in arrays.items():
        if value.ndim >= 2 and value.size:
            flat = value.reshape(value.shape[0] * value.shape[1], -1)
            if number := int((flat == flat[:1]).all(axis=0).sum()):
                counts[name] = number
    return counts


def read_group(
    group: str, values: Mapping[str, Any] | Callable[..., Any], lead: tuple[int, int] | None, samples: Arrays
) -> Arrays:
    """Draws of a group that belongs to the posterior draws, grouped by chain."""
    if callable(values):
        values = values({name: torch.as_tensor(value) for name, value in samples.items()})
    if not isinstance(values, Mapping):
        raise wrong_type(group, "a dict of arrays", values)
    # Draws come by chain already, or one behind the other.
    result = {}
    for name, value in values.items():
        array = to_array(value)
        if lead is None:
            result[str(name)] = array[None]
        elif array.shape[:2] == lead and not (lead[0] > 1 and lead[1] == 1 and array.shape[0] == lead[0] * lead[1]):
            result[str(name)] = array
        elif array.ndim and array.shape[0] == math.prod(lead):
            result[str(name)] = array.reshape(*lead, *array.shape[1:])
        else:
            expected = f"leading dimensions {lead} (chain, draw) or {math.prod(lead)} flat draws"
            raise unexpected(f"{group}[{name!r}]", expected, received=f"shape {array.shape}", code="wrong-shape")
    return result


def _grouped(name: str, value: np.ndarray, num_chains: int | None) -> np.ndarray:
    if num_chains is None:
        if value.ndim < 2:
            raise wrong_shape(f"posterior[{name!r}]", "(chain, draw, ...)", value, "for flat draws give num_chains")
        return value
    check_whole(num_chains, "num_chains")
    if value.ndim < 1 or value.shape[0] % num_chains:
        expected = f"a first dimension that is a multiple of num_chains={num_chains}"
        raise unexpected(f"posterior[{name!r}]", expected, received=f"shape {value.shape}", code="wrong-shape")
    return value.reshape(num_chains, value.shape[0] // num_chains, *value.shape[1:])


def _check_lead(arrays: Arrays) -> None:
    leads = {name: value.shape[:2] for name, value in arrays.items()}
    if len(set(leads.values())) > 1:
        raise unexpected("posterior", "equal (chain, draw) for every site", received=leads, code="wrong-shape")


def _repair_save_params(source: Any, samples: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Values handed back to their own names after ``MCMC(save_params=...)`` with unsorted names."""
    # Pyro packs in the order of save_params, unpacks in sorted order, and takes the transform of the wrong name.
    order = list(getattr(getattr(source, "kernel", None), "save_params", None) or [])
    parts = (installed_version("pyro-ppl") or "").split("+")[0].split(".")[:3]
    is_faulty = all(map(str.isdigit, parts)) and tuple(map(int, parts)) <= (1, 9, 2)
    if order == sorted(order) or not is_faulty or set(order) != set(samples):
        return samples, []
    # What was packed, as it was packed.
    transforms = getattr(source, "transforms", None) or {}
    packed = []
    for name in sorted(order):
        value = torch.as_tensor(samples[name])
        packed.append(transforms[name](value) if name in transforms else value)
    flat = torch.cat([value.reshape(*value.shape[:2], -1) for value in packed], -1)
    if not bool(torch.isfinite(flat).all()):
        problem = (
            f"MCMC ran with save_params {order}, which this Pyro hands to the wrong names, and the values cannot be "
            "recovered"
        )
        raise refused("posterior", problem, "run again with save_params sorted", code="no-method")
    # Cut anew, in the order of save_params.
    shapes = {name: value.shape[2:] for name, value in zip(sorted(order), packed, strict=True)}
    result, start = {}, 0
    for name in order:
        size = shapes[name].numel()
        value = flat[..., start : start + size].reshape(*flat.shape[:2], *shapes[name])
        result[name] = transforms[name].inv(value) if name in transforms else value
        start += size
    return result, order


def _chain_diagnostics(source: Any, chains: int) -> list[Mapping[str, Any]]:
    """Kernel diagnostics of each chain, empty where there are none."""
    # The public method also computes R-hat, which raises for integer sites and for diagnostics that are None.
    raw = getattr(source, "_diagnostics", None)
    if isinstance(raw, list):
        return [item if isinstance(item, Mapping) else {} for item in raw] if len(raw) == chains else []
    try:
        public = source.diagnostics()
    except (AttributeError, TypeError, RuntimeError, ValueError):
        return []
    if not isinstance(public, Mapping):
        return []
    keys = [f"chain {i}" for i in range(chains)]
    result: list[Any] = [{} for _ in keys]
    for name, value in public.items():
        if isinstance(value, Mapping) and set(value) == set(keys):
            for target, key in zip(result, keys, strict=True):
                target[name] = value[key]
    return result
