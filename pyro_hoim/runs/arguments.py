"""Checks of what users hand to samplers. Private to :mod:`pyro_hoim.runs`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..checks import check_below_infinity, check_shape
from ..core.model import LogLinearModel
from ..errors import check_names, check_type, check_whole, is_whole, out_of_range, unexpected, wrong_type
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph

_PER_CHAIN = (list, tuple, np.ndarray, torch.Tensor)
_LARGEST = 1e30  # sums of tables below it stay far from the end of float32


def checked_tables(model: LogLinearModel, precision: torch.dtype = torch.float64) -> torch.Tensor:
    """Checked tables of a model, without a graph; entries of minus infinity are impossible cells."""
    # A model is told by its parts: families have classes of their own.
    hypergraph, tables = getattr(model, "hypergraph", None), getattr(model, "tables", None)
    if not isinstance(hypergraph, InteractionHypergraph) or not isinstance(tables, torch.Tensor):
        raise wrong_type("model", "a log-linear energy model", model)
    if tables.dim() == 0 or tables.shape[-1] != hypergraph.num_terms:
        raise unexpected(
            "model", f"tables (..., {hypergraph.num_terms})", received=tuple(tables.shape), code="wrong-shape"
        )
    check_below_infinity(tables, "model: tables")
    if precision == torch.float32 and tables.numel():
        largest = float(tables.detach().nan_to_num(neginf=0.0).abs().max())
        if largest > _LARGEST:
            expected = f"tables within +-{_LARGEST:g} for conditionals in float32"
            raise out_of_range("model", expected, hint="use precision=torch.float64", received=f"{largest:g}")
    return tables.detach().clone()


def check_levels(codes: torch.Tensor, levels: torch.Tensor, argument: str) -> None:
    """Raise unless codes are whole numbers from 0 to below ``levels`` (broadcast)."""
    wrong = (codes < 0) | (codes >= levels)
    if codes.is_floating_point():
        wrong = wrong | (codes != codes.round())
    if bool(wrong.any()):
        where = tuple(int(i) for i in wrong.nonzero()[0])
        bound = int(levels.expand_as(codes)[where])
        expected = f"whole numbers from 0 to {bound - 1}"
        raise out_of_range(argument, expected, received=f"{codes[where].item()} at index {where}")


def broadcast(values: torch.Tensor, shape: Sequence[int], argument: str) -> torch.Tensor:
    """Values expanded to a shape, or an error."""
    try:
        return values.expand(tuple(shape))
    except RuntimeError:
        expected = f"a shape that broadcasts to {tuple(shape)}"
        raise unexpected(argument, expected, received=tuple(values.shape), code="wrong-shape") from None


def checked_states(states: object, shape: Sequence[int], argument: str, noun: str = "values") -> torch.Tensor:
    """States (*lead, d), expanded, or an error unless they are a tensor of numbers."""
    if not isinstance(states, torch.Tensor) or states.dtype == torch.bool or states.is_complex():
        raise wrong_type(argument, f"a tensor of {noun}", received=received(states))
    check_shape(states, (shape[-1],), argument)
    return broadcast(states, shape, argument)


def checked_codes(domain: Domain, codes: object, lead: Sequence[int], argument: str) -> torch.Tensor:
    """Codes of states, long (*lead, d), copied."""
    states = checked_states(codes, (*lead, len(domain)), argument, "level codes")
    check_levels(states, torch.tensor(domain.cardinalities, device=states.device), argument)
    return states.long().clone()


def checked_clamps(
    domain: Domain, clamped: Mapping[str, Any], lead: Sequence[int] | None, device: torch.device | str = "cpu"
) -> dict[int, torch.Tensor | int]:
    """Positions of clamped variables with a code, or codes (*lead), in schema order; of any length where it is None."""
    check_type(clamped, Mapping, "clamped", "a mapping from names to values")
    check_names(clamped, domain.names, "clamped")
    # Codes of every chain, or one level for all, which may be given by its label.
    per_chain = {n: torch.as_tensor(v, device=device) for n, v in clamped.items() if isinstance(v, _PER_CHAIN)}
    shape = (max((v.numel() for v in per_chain.values()), default=1),) if lead is None else lead
    clamps: dict[int, torch.Tensor | int] = {}
    for name, value in clamped.items():
        i, argument = domain.index(name), f"clamped[{name!r}]"
        if name in per_chain:
            codes = broadcast(per_chain[name], shape, argument)
            check_levels(codes, torch.tensor(domain.cardinalities[i], device=device), argument)
            clamps[i] = codes.long()
        else:
            clamps[i] = domain.encode_state({name: value})[name]
    return dict(sorted(clamps.items()))


def checked_seed(value: int) -> int:
    """The value, or an error unless it is a seed."""
    if not is_whole(value):
        raise wrong_type("seed", "a whole number from 0 to 2^63 - 1", received=repr(value))
    if not 0 <= value < 2**63:
        raise out_of_range("seed", "a whole number from 0 to 2^63 - 1", value)
    return int(value)


def seed_from(seed: int | torch.Generator | None) -> int:
    """A seed as it is, or drawn from a generator of any device; None draws it from PyTorch's global generator."""
    if seed is not None and not isinstance(seed, torch.Generator):
        return checked_seed(seed)
    device = "cpu" if seed is None else seed.device
    return int(torch.randint(2**63 - 1, (), dtype=torch.int64, device=device, generator=seed))


def received(value: object) -> str:
    """A value as error messages describe it."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__


def checked_thin(thin: int, *recorded: bool) -> int:
    """Sweeps between two records, at least 1 where a part is recorded; InputError for others."""
    thin = check_whole(thin, "thin", 0)
    if not thin and any(recorded):
        raise out_of_range("thin", "1 or more where something is recorded", received="0")
    return thin
