"""Which sites of a program depend on which latent values, found by following these through the tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyro
import torch
from pyro.ops.provenance import ProvenanceTensor, detach_provenance, get_provenance
from pyro.poutine.trace_struct import Trace
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ._discrete_sites import element_law, is_discrete, sample_nodes, split_law
from ._terms import log_z_factors

# What these return says nothing about values.
_METADATA = frozenset(
    (
        *("dim", "size", "numel", "nelement", "ndimension", "stride", "element_size", "__len__", "__hash__", "__get__"),
        *("is_floating_point", "is_complex", "is_signed", "is_contiguous", "is_same_size", "is_inference", "is_tensor"),
        *("is_conj", "is_neg", "get_device", "result_type", "can_cast"),
    )
)


class _Leaks(TorchFunctionMode):
    """Notes where a tracked value first left the tensors: into Python numbers, arrays, or an untracked tensor."""

    found: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.found is None and (upstream := get_provenance((args, kwargs))):
            name = getattr(func, "__name__", "")
            is_in_place = name == "__setitem__" or "out" in kwargs or (name.endswith("_") and not name.endswith("__"))
            tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            if tensors:
                is_lost = not all(isinstance(leaf, ProvenanceTensor) for leaf in tensors)
            else:
                is_lost = name not in _METADATA and not (name == "__bool__" and _is_own_check())
            if is_in_place or is_lost:
                self.found = _leak(upstream, name, is_in_place)
        return result


def _leak(upstream: Iterable[str], name: str, is_in_place: bool) -> str:
    """One clause on a value that left the tensors, with the line of the program where it did."""
    what = {"__bool__": "a condition", "__setitem__": "assignment into a tensor"}.get(name, f"{name}()")
    where, frame = "", sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "pyro", "pyro_hoim"):
        frame = frame.f_back
    if frame is not None:
        where = f" (line {frame.f_lineno} of {Path(frame.f_code.co_filename).name})"
    sites = ", ".join(map(repr, sorted(upstream)))
    return (
        f"{what} changes a tensor in place with the value of {sites}{where}"
        if is_in_place
        else f"the program takes the value of {sites} out of the tensors by {what}{where}"
    )


def _is_own_check() -> bool:
    """Whether this library, and not the program, looked at a value: its laws refuse theta that is not finite."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "torch":
        frame = frame.f_back
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").startswith("pyro_hoim.")


class Dependence(NamedTuple):
    """Which sites depend on which latent values, in every state."""

    followers: dict[str, frozenset[str]]
    log_z: dict[str, frozenset[str]]
    loose: frozenset[str]


def find_dependence(
    run: Callable[[Mapping[str, torch.Tensor]], Trace], values: Mapping[str, torch.Tensor]
) -> Dependence | str:
    """What depends on what in a program, or one clause on why that is not known."""
    followers: dict[str, set[str]] = {name: set() for name in values}
    log_z: dict[str, frozenset[str]] = {}
    loose: set[str] = set()
    tracked = {name: ProvenanceTensor(detach_provenance(v), frozenset({name})) for name, v in values.items()}
    leaks = _Leaks()
    try:
        with torch.no_grad(), pyro.validation_enabled(False):
            with leaks:
                nodes = sample_nodes(run(tracked))
                for name, node in nodes.items():
                    parts: list[Any] = [node["scale"], node["mask"], node["value"]]
                    if _is_own(node["fn"]):
                        parts += list(_tensors(node["fn"], set()))
                    else:
                        parts.append(node["fn"].log_prob(node["value"], *node["args"], **node["kwargs"]))
                    for upstream in get_provenance(parts) - {name}:
                        followers[upstream].add(name)
                    if factors := log_z_factors(node):
                        log_z[name] = get_provenance([part for part, _ in factors])
            loose = {name for name in values if _is_loose(nodes[name]["fn"])}
    except Exception as error:  # noqa: BLE001  a tracked tensor is a stranger to some operations: then nothing is known
        return leaks.found or f"values cannot be followed through the program, which raises {brief(error)} on the way"
    return leaks.found or Dependence({n: frozenset(f) for n, f in followers.items()}, log_z, frozenset(loose))


def brief(error: Exception) -> str:
    """Class and first line of an exception, cut to a length that fits into a sentence."""
    first = str(error).strip().partition("\n")[0]
    return (
        f"{type(error).__name__}: {first[:160]}{'...' if len(first) > 160 else ''}" if first else type(error).__name__
    )


def _is_loose(fn: Any) -> bool:
    """Whether a list of the values of a discrete law looks at a tracked value."""
    if split_law(fn)[0] is not None or not is_discrete(fn):
        return False
    leaks = _Leaks()
    with leaks:
        values = element_law(fn).enumerate_support(expand=False)
    return leaks.found is not None or bool(get_provenance(values))


def _is_own(fn: Any) -> bool:
    """Whether a distribution is or wraps one of this library, whose log-probability may need a log Z."""
    while fn is not None:
        if type(fn).__module__.startswith("pyro_hoim."):
            return True
        fn = getattr(fn, "base_dist", None)
    return False


def _tensors(part: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """All tensors that a distribution holds, however deep."""
    if isinstance(part, torch.Tensor):
        yield part
    elif id(part) not in seen:
        seen.add(id(part))
        inner: Any = ()
        if isinstance(part, Mapping):
            inner = part.values()
        elif isinstance(part, list | tuple):
            inner = part
        elif hasattr(part, "__dict__"):
            inner = vars(part).values()
        for value in inner:
            yield from _tensors(value, seen)
