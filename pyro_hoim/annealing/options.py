"""Options of annealed importance sampling that every family has."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import torch

from ..budgets import MAX_SWEEPS
from ..errors import (
    check_choice,
    check_fraction,
    check_whole,
    conflict,
    out_of_range,
    unexpected,
    wrong_shape,
    wrong_type,
)
from .weights import MIN_CHAINS

__all__ = ["AnnealingOptions", "chosen_rows"]

Rows = tuple[tuple[int, ...], ...]
_MOST = 256  # distinct rows
_LARGEST = 2**53  # count
_ADAPTIVE_STEPS = 1000  # what an adaptive path counts as


@dataclass(frozen=True)
class AnnealingOptions:
    """Chains, path, directions and randomness of annealed runs; checked when made, compared by value.

    Args:
        num_chains: independent chains, 16 or more for an error bar.
        num_temperatures: steps of the path, equally spaced in beta, where ``temperatures`` is None.
        temperatures: inverse temperatures that rise from 0 to 1, or ``"adaptive"``: a pilot run with random numbers
            of its own finds steps of equal difficulty, and the estimate then uses them as given, without bias.
        conditional_ess: effective share of the chains that an adaptive step must leave.
        sweeps_per_step: sweeps at every temperature.
        resample_below: effective share below which islands of chains are resampled (sequential Monte Carlo), if any.
        islands: independent groups of chains when resampling; the error then comes from these.
        reverse: make the reverse run, and without perfect samples runs from modes; ``"auto"`` only without a gradient.
        combine: report Bennett's acceptance ratio of both runs instead of the forward estimate: much better where
            one run alone is poor. Needs perfect samples, so models within reach of exact methods.
        level: of the one-sided limits.
        seed: None draws a fresh one from PyTorch's global generator in every call. A number fixes all randomness:
            the estimate is then the same function of the whole batch in every call (streams belong to rows), as
            Hamiltonian samplers need; its error biases their results. It jumps where a state changes, and its gradient
            is the expectation under the weighted chains: Hamiltonian samplers stay valid, but accept less.
        starts: states of level codes or counts, such as rows of data, that count as met and that ascents start from,
            too: a mode that holds one is not missed. Of more than 256 distinct rows the 128 most frequent are taken
            and 128 evenly spaced among the others, in lexicographic order. All other random numbers stay as they are.
        burn_in: sweeps at beta 1 before a state counts as a draw, and before a tempered reverse run.
        progress: show a bar on standard error.

    Shape:
        starts (rows, d).

    Raises:
        InputError: an option outside its range, or a missing cell in ``starts``.
        InputTypeError: ``starts`` that are no numbers.

    Example:
        >>> AnnealingOptions(temperatures=(0.0, 0.2, 0.6, 1.0)).num_steps
        3
        >>> AnnealingOptions(temperatures=(0.0, 0.6, 0.2, 1.0))
        Traceback (most recent call last):
        pyro_hoim.errors.InputError: temperatures: expected inverse temperatures that rise strictly from 0 to 1, ...
    """

    num_chains: int = 512
    num_temperatures: int = 1000
    temperatures: Sequence[float] | Literal["adaptive"] | None = None
    conditional_ess: float = 0.999
    sweeps_per_step: int = 1
    resample_below: float | None = None
    islands: int = 32
    reverse: bool | Literal["auto"] = "auto"
    combine: bool = False
    level: float = 0.99
    seed: int | None = None
    starts: torch.Tensor | Sequence[Sequence[float]] | None = field(default=None, repr=False)
    burn_in: int = 200
    progress: bool = False

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for name in ("num_chains", "num_temperatures", "sweeps_per_step", "islands"):
            most = None if name in ("num_chains", "islands") else MAX_SWEEPS
            check_whole(getattr(self, name), f"{owner} {name}", most=most)
        check_whole(self.burn_in, f"{owner} burn_in", 0)
        if self.seed is not None:
            check_whole(self.seed, f"{owner} seed", 0, 2**62 - 1)
        for name in ("conditional_ess", "level"):
            check_fraction(getattr(self, name), f"{owner} {name}")
        if isinstance(self.temperatures, str):
            if self.temperatures != "adaptive":
                wanted = "'adaptive', numbers or None"
                raise unexpected(f"{owner} temperatures", wanted, self.temperatures, code="unknown-choice")
        elif self.temperatures is not None:
            object.__setattr__(self, "temperatures", _checked_path(self.temperatures))
        if self.starts is not None:
            object.__setattr__(self, "starts", _checked_rows(self.starts, owner))
        check_choice(self.reverse, (True, False, "auto"), f"{owner} reverse")
        below = self.resample_below
        if below is not None:
            if below != 1:
                check_fraction(below, f"{owner} resample_below")
            if self.islands < MIN_CHAINS or self.num_chains % self.islands:
                wanted = f"at least {MIN_CHAINS} that divide num_chains={self.num_chains}"
                raise out_of_range(f"{owner} islands", wanted, self.islands)
        if self.combine and (self.reverse is False or below is not None):
            raise conflict(f"{owner} combine", "needs the reverse run, and no resampling")

    @property
    def num_steps(self) -> int:
        """Temperatures of a forward run; an adaptive path counts as 1,000."""
        if isinstance(self.temperatures, tuple):
            return len(self.temperatures) - 1
        return self.num_temperatures if self.temperatures is None else _ADAPTIVE_STEPS

    @property
    def num_groups(self) -> int | None:
        """Independent groups of chains where there is resampling, else None."""
        return None if self.resample_below is None else self.islands

    def rows_within(self, largest: Sequence[float]) -> torch.Tensor | None:
        """The rows of ``starts`` (n, d), long, for a model whose variables go up to ``largest``; None without any.

        Raises:
            InputError: another number of variables, or a cell that is too large.
        """
        if self.starts is None:
            return None
        argument, found = f"{type(self).__name__} starts", torch.tensor(cast("Rows", self.starts), dtype=torch.long)
        if found.shape[1] != len(largest):
            wanted = f"rows of {len(largest)} cells, one for every variable of the model"
            raise unexpected(argument, wanted, found.shape[1], code="wrong-shape")
        is_bad = found > torch.tensor(largest, dtype=torch.float64)
        if bool(is_bad.any()):
            row, column = (int(i) for i in is_bad.nonzero()[0])
            wanted = f"at most {largest[column]:g} for variable number {column}"
            raise out_of_range(argument, wanted, int(found[row, column]))
        return found


def _checked_path(values: Sequence[float]) -> tuple[float, ...]:
    """Temperatures of the user as floats."""
    try:
        path = tuple(float(v) for v in values)
    except (TypeError, ValueError):
        raise unexpected("temperatures", "numbers that rise from 0 to 1", values, code="wrong-type") from None
    if len(path) < 2 or path[0] != 0 or path[-1] != 1 or not all(a < b for a, b in itertools.pairwise(path)):
        shown = f"{path[:3]} ... {path[-1:]}" if len(path) > 4 else path
        raise out_of_range("temperatures", "inverse temperatures that rise strictly from 0 to 1", received=shown)
    return path


def chosen_rows(rows: torch.Tensor, counts: torch.Tensor | None = None) -> torch.Tensor:
    """At most 256 distinct rows (n, d) of those given (N, d), in lexicographic order.

    Of more distinct rows half are the most frequent, the others are evenly spaced among the rest. ``counts`` (N,).
    """
    if not rows.shape[1]:
        return rows[:1]
    distinct, where = torch.unique(rows, dim=0, return_inverse=True)
    if len(distinct) <= _MOST:
        return distinct
    counts = torch.ones(len(rows), dtype=torch.float64) if counts is None else counts.double()
    total = torch.zeros(len(distinct), dtype=torch.float64).index_add_(0, where, counts)
    order, half = total.argsort(descending=True, stable=True), _MOST // 2
    rest = order[half:].sort().values
    places = torch.arange(_MOST - half) * len(rest) // (_MOST - half)
    return distinct[torch.cat([order[:half], rest[places]]).sort().values]


def _checked_rows(value: object, owner: str) -> Rows:
    """Rows that a user gave for the option ``starts``, chosen, in a form that can be hashed."""
    argument = f"{owner} starts"
    try:
        rows = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        rows = torch.zeros(0, dtype=torch.bool)
    if rows.dtype == torch.bool or rows.is_complex():
        raise wrong_type(argument, "a matrix of level codes or counts", value)
    if rows.dim() != 2 or not len(rows):
        raise wrong_shape(argument, "(rows, variables) of at least one row", rows)
    cells = rows.double()
    is_bad = ~((cells >= 0) & (cells <= _LARGEST) & (cells == cells.floor()))
    if bool(is_bad.any()):
        wanted, received = "complete rows of level codes or counts, whole numbers from 0", f"{cells[is_bad][0]:g}"
        hint = "leave out rows with missing cells"
        raise unexpected(argument, wanted, hint=hint, received=received, code="missing-cells")
    return tuple(map(tuple, chosen_rows(rows.long()).tolist()))
