"""Finding the latent log-linear site of a Pyro program without drawing from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyro
import torch
from pyro.ops.provenance import get_provenance, track_provenance
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from pyro.util import get_rng_state, set_rng_state

from ..errors import refused
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.laws.law import HierarchicalLogLinear

_NUM_TRIALS = 5


class LatentLaw(NamedTuple):
    """A latent site and its energy."""

    site: str
    energy: LogLinearEnergy


def plain_energy(law: HierarchicalLogLinear) -> LogLinearEnergy:
    """The energies of a law without a graph, so that they can go to another process."""
    model = law.energy_model
    return LogLinearEnergy(model.hypergraph, model.tables.detach())


def law_of(fn: Any) -> HierarchicalLogLinear | None:
    """The log-linear law of a site, dimensions declared as events included."""
    while isinstance(fn, torch.distributions.Independent):
        fn = fn.base_dist
    return fn if isinstance(fn, HierarchicalLogLinear) else None


class _UniformStates(Messenger):
    """Latent log-linear sites get uniform states instead of draws, which may be out of reach."""

    def __init__(self, is_tracked: bool) -> None:
        super().__init__()
        self._is_tracked = is_tracked
        self._generator = torch.Generator().manual_seed(0)

    def restart(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def _pyro_sample(self, msg: Any) -> None:
        law = None if msg["is_observed"] or msg["value"] is not None else law_of(msg["fn"])
        if law is None:
            return
        levels = torch.tensor(law.domain.cardinalities, dtype=torch.float64)
        uniform = torch.rand((*law.batch_shape, len(levels)), generator=self._generator, dtype=torch.float64)
        value = (uniform * levels).long().to(law.theta.device)
        msg["value"] = track_provenance(value, frozenset({msg["name"]})) if self._is_tracked else value


def find_latent_law(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> LatentLaw:
    """The only latent site of a program, a log-linear law on which no observed site depends."""
    state = get_rng_state()
    trials: list[Any] = []
    for seed in range(_NUM_TRIALS):
        set_rng_state(state)  # equal random numbers, so that a difference comes from the latent value
        trials.append(_trace(model, args, kwargs, seed))
    site = _latent_site(trials[0])
    terms = [_observed_terms(trace) for trace in trials]
    dependent = {name for term in terms for name in set(term) ^ set(terms[0])}
    dependent |= {n for n, v in terms[0].items() if any(n in t and not _same(t[n], v) for t in terms)}
    set_rng_state(state)
    dependent |= _tracked(model, args, kwargs)
    if dependent:
        problem = (
            f"the observed sites {sorted(dependent)} depend on the latent site {site!r}, so its conditional law is not "
            "the log-linear one"
        )
        raise refused("model", problem, "use the mixed kernel, pyro_hoim.inference.MixedGibbs")
    law = law_of(trials[0].nodes[site]["fn"])
    assert law is not None
    return LatentLaw(site, plain_energy(law))


def _trace(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seed: int, *, is_tracked: bool = False
) -> Any:
    states = _UniformStates(is_tracked)
    states.restart(seed)
    with pyro.poutine.block(), torch.no_grad(), states:
        return pyro.poutine.trace(model).get_trace(*args, **kwargs)


def _latent_site(trace: Any) -> str:
    """Name of the only latent site, checked."""
    latent = {
        name: node
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and not node["is_observed"] and not site_is_subsample(node)
    }
    laws = [name for name, node in latent.items() if law_of(node["fn"]) is not None]
    if not laws:
        raise refused(
            "model",
            f"expected a latent HierarchicalLogLinear site, found the latent sites {sorted(latent)}; a masked law "
            "does not count as one",
        )
    others = sorted(set(latent) - {laws[0]})
    if others:
        problem = f"expected {laws[0]!r} to be the only latent site, found also {others}"
        raise refused("model", problem, "observe them, or use the mixed kernel, pyro_hoim.inference.MixedGibbs")
    node = latent[laws[0]]
    is_scaled = not bool((torch.as_tensor(node["scale"]) == 1).all())
    is_masked = node["mask"] is not None and not bool(torch.as_tensor(node["mask"]).all())
    if is_scaled or is_masked:
        problem = f"the latent site {laws[0]!r} is masked, scaled or in a subsampled plate"
        raise refused("model", problem, "use it plainly")
    return laws[0]


def _observed_terms(trace: Any) -> dict[str, torch.Tensor]:
    """What every observed site contributes: its log-probability, or the parts of it where that may need a log Z."""
    terms: dict[str, torch.Tensor] = {}
    for name, node in trace.nodes.items():
        if node["type"] != "sample" or not node["is_observed"] or node["infer"].get("_deterministic"):
            continue
        law = law_of(node["fn"])
        if law is None:
            terms[name] = node["fn"].log_prob(node["value"])
        else:
            terms[name] = torch.cat([law.theta.flatten(), node["value"].flatten().to(law.theta)])
    return terms


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and bool(torch.equal(first.nan_to_num(), second.nan_to_num()))


def _tracked(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[str]:
    """Observed sites that tensor operations link to a latent log-linear site, rare dependences included."""
    try:
        terms = _observed_terms(_trace(model, args, kwargs, 0, is_tracked=True))
        return {name for name, term in terms.items() if get_provenance(term)}
    except Exception:  # noqa: BLE001 (a program may do what tracking tensors cannot; the trials have spoken already)
        return set()
