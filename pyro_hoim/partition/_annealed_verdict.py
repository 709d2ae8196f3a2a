"""The verdict on annealed runs, whatever was annealed: from log weights, forward and reverse, to an estimate of log Z.

Private to the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
import torch

from ._annealing import island_means
from .base import Cost, LogPartition, Sandwich
from .weights import MIN_CHAINS, Flags, Floats, WeightEstimate, acceptance_ratio, log_mean_weight, one_sided_limits

__all__ = ["METHOD", "AnnealingOptions", "Start", "estimate_of", "num_steps", "result_of"]

METHOD = "annealed importance sampling"
Start = Literal["exact", "tempered"]

_GAP = 4.0  # errors between two estimates that count as agreement; normal ones would part once in 16,000 runs
_ADAPTIVE_STEPS = 1000  # what an adaptive path counts as
_GAP_NOTE = (
    "{{which}}forward and reverse runs disagree by more than their errors, or hardly overlap, so that at least one has "
    "not seen the whole law; {advice}"
)
_COMBINE_NOTE = "{which}combine=True would report both runs together, for which there is an error bar"
_TEMPERED_NOTE = (
    "the reverse run started from tempered runs, not from perfect samples, so that a mode that no chain found would "
    "stay unseen; the upper limit rests on there being none"
)
_ONE_SIDED_NOTE = "there was no reverse run, so that a mode that no chain found would stay unseen"


class AnnealingOptions(Protocol):
    """Options that every annealed backend has."""

    @property
    def num_chains(self) -> int:
        """Chains of a run."""
        ...

    @property
    def num_temperatures(self) -> int:
        """Steps of an even path."""
        ...

    @property
    def temperatures(self) -> Sequence[float] | Literal["adaptive"] | None:
        """The path, None for an even one."""
        ...

    @property
    def resample_below(self) -> float | None:
        """Share of effective chains below which chains are resampled."""
        ...

    @property
    def islands(self) -> int:
        """Independent parts when there is resampling."""
        ...

    @property
    def combine(self) -> bool:
        """Whether both runs are reported together."""
        ...

    @property
    def level(self) -> float:
        """Of the one-sided limits."""
        ...


def num_steps(options: AnnealingOptions) -> int:
    """Temperatures of a forward run; an adaptive path counts as 1,000."""
    if isinstance(options.temperatures, tuple):
        return len(options.temperatures) - 1
    return options.num_temperatures if options.temperatures is None else _ADAPTIVE_STEPS


def estimate_of(options: AnnealingOptions, log_weights: Floats) -> WeightEstimate:
    """Estimate from log weights (B, chains); islands are the independent parts when there is resampling."""
    if options.resample_below is None:
        return log_mean_weight(log_weights)
    means = island_means(torch.from_numpy(log_weights), options.islands).numpy()
    return log_mean_weight(means, options.num_chains // options.islands)


def result_of(
    options: AnnealingOptions,
    log_z0: Floats,
    log_weights: Floats,
    behind: Floats | None,
    *,
    start: Start = "exact",
    is_reversible: bool,
    advice: str,
    like: torch.Tensor,
    cost: Cost,
    coding: str,
) -> LogPartition:
    """The result of forward and perhaps reverse runs over a batch of B models, with the verdict on its error.

    Args:
        options: of the backend.
        log_z0: log Z of the reference (B,).
        log_weights: of the forward runs (B, chains).
        behind: of the reverse runs, likewise; None without them.
        start: where all reverse runs started.
        is_reversible: whether the two directions are mutual reversals, so that their acceptance ratio means something.
        advice: what a reader may try.
        like: a tensor (*batch) of the dtype and on the device of results.
        cost: of a forward run.
        coding: of the model.
    """
    forward = estimate_of(options, log_weights)
    best, reliable, notes = forward, forward.is_reliable, Notes(like.numel())
    notes.add(~reliable, _weight_note(forward, options, advice))

    def shaped(values: Floats) -> torch.Tensor:
        return torch.from_numpy(values).to(like.device, like.dtype).reshape(like.shape)

    sandwich = None
    if behind is None:
        lower, upper = one_sided_limits(forward, options.level, reliable)
        notes.add_general(_ONE_SIDED_NOTE)
    else:
        back = log_mean_weight(behind)
        agree = _is_close(forward.value, -back.value, forward.error, back.error) | ~back.is_reliable
        both = forward
        if options.resample_below is None and is_reversible:
            # The acceptance ratio needs no well-behaved reverse weights, so it is a second test; the reverse estimate
            # itself is the first, where its weights allow.
            both = acceptance_ratio(log_weights, behind)
            agree = agree & _is_close(forward.value, both.value, forward.error, both.error) & both.is_reliable
        lower, upper = _two_sided(options.level, forward, back, agree)
        reliable = reliable & agree
        best = forward._replace(error=np.maximum(forward.error, np.abs(forward.value - both.value)))
        if options.combine:
            best, reliable, notes = both, both.is_reliable, Notes(like.numel())
            agree = reliable
        elif start == "exact" and both is not forward:
            notes.add(~reliable & both.is_reliable, _COMBINE_NOTE)
        notes.add(~agree, _GAP_NOTE.format(advice=advice))
        if start == "tempered":
            notes.add_general(_TEMPERED_NOTE)
        parts = (forward.value + log_z0, forward.error, log_z0 - back.value, back.error)
        sandwich = Sandwich(*map(shaped, parts), start=start)
    value = best.value + log_z0
    error = np.where(reliable, np.hypot(best.error, torch.finfo(like.dtype).eps * np.abs(value)), np.inf)
    return LogPartition(
        shaped(value),
        "biased",
        shaped(error),
        shaped(best.ess),
        shaped(lower + log_z0),
        shaped(upper + log_z0),
        cost,
        METHOD,
        coding=coding,
        verdicts=torch.from_numpy(np.asarray(reliable, np.int8)).to(like.device).reshape(like.shape),
        notes=notes.lines(),
        sandwich=sandwich,
    )


def _is_close(first: Floats, second: Floats, error: Floats, other: Floats) -> Flags:
    return np.abs(first - second) <= _GAP * np.hypot(error, other) + 1e-9


def _two_sided(level: float, forward: WeightEstimate, behind: WeightEstimate, agree: Flags) -> tuple[Floats, Floats]:
    """Lower limit from the forward run and upper one from the reverse run; Markov's where normal ones would cross."""
    lower = one_sided_limits(forward, level, forward.is_reliable & agree)[0]
    upper = -one_sided_limits(behind, level, behind.is_reliable & agree)[0]
    ordered = agree & (lower <= upper)
    lower = one_sided_limits(forward, level, forward.is_reliable & ordered)[0]
    return lower, -one_sided_limits(behind, level, behind.is_reliable & ordered)[0]


def _weight_note(found: WeightEstimate, options: AnnealingOptions, advice: str) -> str:
    if options.num_chains < MIN_CHAINS:
        return (
            f"{{which}}{options.num_chains} chains are too few for an error bar; "
            f"use num_chains of at least {MIN_CHAINS}"
        )
    return (
        f"{{which}}weights are uneven: down to {float(found.ess.min()):.3g} effective of {options.num_chains} chains, "
        f"the largest holds up to {float(found.share.max()):.0%} of the weight, or their logarithms spread too far "
        f"for so few chains; {advice}"
    )


class Notes:
    """Sentences about a result, with the number of batch elements they are true of."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lines: list[str] = []

    def add(self, where: Flags, text: str) -> None:
        """A sentence that is true where the mask (B,) is."""
        found = int(where.sum())
        if found:
            which = "" if self._count == 1 else f"{found} of {self._count} batch elements: "
            self._lines.append(text.format(which=which))

    def add_general(self, text: str) -> None:
        """A sentence that is true of the whole result."""
        self._lines.append(text)

    def lines(self) -> tuple[str, ...]:
        """All sentences."""
        return tuple(self._lines)
