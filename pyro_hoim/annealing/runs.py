"""The engine behind annealed importance sampling: paths of temperatures, forward and reverse runs, their starts."""

from __future__ import annotations

import itertools
import math
from typing import Literal, NamedTuple

import numpy as np
import torch

from ..errors import out_of_reach
from .annealable import Annealable, AnnealedModel, Run
from .options import AnnealingOptions
from .weights import log_sum

__all__ = ["Reverse", "derived", "drawn_seed", "forward", "resampled", "reverse"]

_PIECES = 100  # parts of a path between which weights are looked at, or progress is shown
_MAX_STEPS = 100_000  # of an adaptive path
_TEMPERED = 4  # temperatures of the run that stands in for perfect samples, per temperature of the estimate


class Reverse(NamedTuple):
    """Log weights (B, chains) of a reverse run, where it started (B, chains, d), log q there, and how it was drawn."""

    log_weights: torch.Tensor
    states: torch.Tensor
    log_q: torch.Tensor
    start: Literal["exact", "tempered"]


def derived(seed: int, purpose: int) -> int:
    """Another seed for another part of the same call."""
    return (int(seed) + purpose * 0x9E3779B97F4A7C15) % 2**62


def drawn_seed(generator: torch.Generator | None) -> int:
    """A seed from ``generator`` or PyTorch's global generator."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**62, (), generator=generator, device=device))


def _random(seed: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed(derived(seed, purpose))


def forward(model: AnnealedModel, seed: int) -> Run:
    """A forward run along the path of the options; the mean of its weights over all chains estimates Z / Z0."""
    options = model.options
    chains = model.begin(options.num_chains, seed)
    betas = _path(model, seed)
    log_weights = _weighted_run(chains, betas, options, _random(seed, 1))
    return Run(model, chains, chains.states, chains.log_q, chains.slope, log_weights, betas, seed)


def _path(model: AnnealedModel, seed: int) -> torch.Tensor:
    """Inverse temperatures (steps + 1,): those given, or those that a pilot run finds."""
    options = model.options
    if options.temperatures is None:
        return torch.linspace(0, 1, options.num_temperatures + 1, dtype=torch.float64)
    if not isinstance(options.temperatures, str):
        return torch.tensor(options.temperatures, dtype=torch.float64)
    pilot = model.begin(options.num_chains, derived(seed, 2))
    return _adaptive_path(pilot, options.conditional_ess, options.sweeps_per_step, _random(seed, 3))


def _weighted_run(
    chains: Annealable, betas: torch.Tensor, options: AnnealingOptions, generator: torch.Generator
) -> torch.Tensor:
    """Log weights (B, chains) of a run through ``betas``.

    Every island (consecutive chains) whose effective share falls below that of the options is resampled; its chains
    then carry the mean weight of the island, which keeps the estimate free of bias.
    """
    below, sweeps = options.resample_below, options.sweeps_per_step
    if below is None and not options.progress:
        return chains.anneal(betas, sweeps)
    steps = len(betas) - 1
    ends = [round(steps * k / min(steps, _PIECES)) for k in range(min(steps, _PIECES) + 1)]
    total = betas.new_zeros((), device=chains.slope.device)
    from tqdm import tqdm

    with tqdm(total=steps, desc="annealing", unit="temperature", disable=not options.progress) as bar:
        for first, last in itertools.pairwise(ends):
            total = total + chains.anneal(betas[first : last + 1], sweeps)
            bar.update(last - first)
            if below is not None and last < steps:
                index, total = resampled(total, options.islands, below, generator)
                chains.gather(index)
    return total


def reverse(run: Run) -> Reverse:
    """A reverse run from states of the model, which takes over the chains; the mean of its weights estimates Z0 / Z.

    Raises:
        IntractableError: both runs are to be combined and there are no perfect samples.
    """
    options = run.model.options
    states = run.model.perfect_states(derived(run.seed, 4))
    is_perfect = states is not None
    if states is None:
        if options.combine:
            problem = "needs perfect samples, which exact methods cannot give for this model within about a second"
            raise out_of_reach(f"{type(options).__name__} combine", problem, "use combine=False")
        states = _tempered_states(run)
    run.chains.set_states(states)
    log_q = run.chains.log_q
    log_weights = run.chains.anneal(run.betas.flip(0), options.sweeps_per_step, reverse_order=True)
    return Reverse(log_weights, states, log_q, "exact" if is_perfect else "tempered")


def _tempered_states(run: Run) -> torch.Tensor:
    """States (B, chains, d) of a longer annealed run, resampled by weight and moved on at beta 1."""
    options = run.model.options
    chains = run.model.begin(options.num_chains, derived(run.seed, 5))
    parts = torch.arange(_TEMPERED, dtype=torch.float64) / _TEMPERED
    steps = run.betas[:-1, None] + run.betas.diff()[:, None] * parts
    log_weights = chains.anneal(torch.cat([steps.reshape(-1), run.betas[-1:]]), options.sweeps_per_step)
    chains.gather(resampled(log_weights, 1, 1.0, _random(run.seed, 6))[0])
    chains.sweep(options.burn_in)
    return chains.states


def resampled(
    log_weights: torch.Tensor, islands: int, below: float, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Systematic resampling inside islands: index of the chain to copy and new log weights, both (B, chains).

    Islands whose effective share is at least ``below`` stay as they are.
    """
    parts = log_weights.unflatten(-1, (islands, -1))
    size = parts.shape[-1]
    share = torch.softmax(parts, -1)
    keep = (1 / share.square().sum(-1, keepdim=True)) >= below * size
    offset = torch.rand(*parts.shape[:-1], 1, dtype=torch.float64, generator=generator).to(parts.device)
    points = (torch.arange(size, dtype=torch.float64, device=parts.device) + offset) / size
    picked = torch.searchsorted(share.cumsum(-1), points, right=True).clamp_max(size - 1)
    picked = torch.where(keep, torch.arange(size, device=parts.device), picked)
    start = torch.arange(islands, device=parts.device)[:, None] * size
    means = (log_sum(parts) - math.log(size)).expand_as(parts)
    return (picked + start).flatten(-2), torch.where(keep, parts, means).flatten(-2)


def _adaptive_path(chains: Annealable, target: float, sweeps: int, generator: torch.Generator) -> torch.Tensor:
    """Inverse temperatures (steps + 1,) found by a pilot run of ``chains``, which are moved to the end of it.

    Every step leaves a conditional effective sample size of ``target`` times the chains (Yan Zhou, Adam Johansen and
    John Aston, Toward automatic model comparison, 2016, section 3.3).
    """
    betas = [0.0]
    log_weights = torch.zeros_like(chains.slope)
    while betas[-1] < 1:
        step = _longest_step(chains.slope, torch.softmax(log_weights, -1), target, 1 - betas[-1])
        following = min(1.0, max(betas[-1] + step, betas[-1] + 1 / _MAX_STEPS))
        log_weights = log_weights + chains.anneal([betas[-1], following], sweeps)
        betas.append(following)
        if following < 1:
            index, log_weights = resampled(log_weights, 1, 0.5, generator)
            chains.gather(index)
    return torch.tensor(betas, dtype=torch.float64)


def _longest_step(slope: torch.Tensor, weights: torch.Tensor, target: float, most: float) -> float:
    """Largest step up to ``most`` whose conditional effective share is at least ``target`` in every batch element.

    With u = exp(step * slope) and weights W it is (sum W u)^2 / sum W u^2.
    """
    slopes, shares = (slope - slope.amax(-1, keepdim=True)).cpu().numpy(), weights.cpu().numpy()

    def enough(step: float) -> bool:
        growth = np.exp(step * slopes)
        first, second = (shares * growth).sum(-1), (shares * np.square(growth)).sum(-1)
        return bool((np.square(first) >= target * second).all())

    if enough(most):
        return most
    low, high = 0.0, most
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low
