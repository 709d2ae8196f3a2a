"""Rows of which some cells are known, whatever their model: patterns, portions and settings of their chains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from ..data.observations import Observations
from ..errors import check_type, is_whole, out_of_range, wrong_type
from .model import Chains

RowMethod = Literal["auto", "exact", "gibbs"]
METHODS = get_args(RowMethod)

_MAX_CHAINS = 2**15


@dataclass(frozen=True)
class ClampedGibbs:
    """How long the Gibbs chains of a row with missing cells run; numbers that are too small are refused.

    Every chain is led to the conditional law through ``num_temperatures`` equal steps of temperature, one sweep each,
    then burnt in. The draws are approximate: correct in the limit of long chains.

    Args:
        num_chains: independent chains of each row; their spread gives the standard error of a prediction. A draw of an
            imputation is the last state of a chain of its own, so imputations have as many chains as draws.
        num_temperatures: steps from the uniform law to the model.
        burn_in: sweeps at the model before anything is used.
        num_sweeps: sweeps of a prediction after burn-in, a multiple of ``thin``; every ``thin``-th is averaged.
        thin: see ``num_sweeps``.

    Example:
        >>> ClampedGibbs(num_sweeps=100, thin=4).num_records
        25
    """

    num_chains: int = 8
    num_temperatures: int = 50
    burn_in: int = 50
    num_sweeps: int = 200
    thin: int = 2

    def __post_init__(self) -> None:
        for name, least in (("num_chains", 2), ("num_temperatures", 1), ("burn_in", 0), ("num_sweeps", 1), ("thin", 1)):
            check_count(getattr(self, name), name, least)
        if self.num_sweeps % self.thin:
            raise out_of_range("num_sweeps", f"a multiple of thin={self.thin}", received=self.num_sweeps)

    @property
    def num_records(self) -> int:
        """States of a chain that a prediction averages over."""
        return self.num_sweeps // self.thin


def check_count(value: object, argument: str, least: int = 1) -> None:
    """Raise unless a whole number from ``least``."""
    if not is_whole(value):
        raise wrong_type(argument, "a whole number", received=repr(value))
    if value < least:
        raise out_of_range(argument, f"at least {least}", received=value)


def checked_gibbs(gibbs: ClampedGibbs | None) -> ClampedGibbs:
    """The settings given, or the defaults; anything else is an :class:`InputTypeError`."""
    check_type(gibbs, ClampedGibbs | None, "gibbs")
    return ClampedGibbs() if gibbs is None else gibbs


def row_patterns(data: Observations) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Distinct sets of missing variables: (their names in schema order, positions of the rows with it)."""
    if data.num_rows and not data.has_missing:
        yield (), torch.arange(data.num_rows)
        return
    masks, inverse = torch.unique(data.narrow < 0, dim=0, return_inverse=True)
    order = inverse.argsort(stable=True)
    sizes = torch.bincount(inverse, minlength=len(masks)).tolist()
    for mask, rows in zip(masks.tolist(), order.split(sizes), strict=True):
        yield tuple(n for n, gone in zip(data.domain.names, mask, strict=True) if gone), rows


def chain_portions(rows: torch.Tensor, num_chains: int) -> Sequence[torch.Tensor]:
    """Rows in portions of at most 32,768 chains."""
    return rows.split(max(1, _MAX_CHAINS // num_chains))


def chain_averages(
    chains: Chains, gibbs: ClampedGibbs, size: int, most: int, log_probs: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of ``size`` levels averaged over the chains of every row, and their standard errors: (R, K) each.

    The chains of a row stand side by side; ``log_probs`` is called with at most ``most`` states (records, chains, d).
    """
    total = torch.zeros(chains.num_chains, size, dtype=torch.float64)
    records = max(1, most // chains.num_chains)
    for first in range(0, gibbs.num_records, records):
        length = min(records, gibbs.num_records - first)
        states = chains.sweep(length * gibbs.thin, thin=gibbs.thin, states=True).states
        assert states is not None
        for start in range(0, chains.num_chains, most):
            total[start : start + most] += log_probs(states[:, start : start + most]).double().exp().sum(0)
    means = (total / gibbs.num_records).reshape(-1, gibbs.num_chains, size)
    return means.mean(1), means.std(1) / gibbs.num_chains**0.5


def drawn_seed(generator: torch.Generator) -> int:
    """A seed for one set of chains."""
    return int(torch.randint(2**31 - 1, (), generator=generator))
