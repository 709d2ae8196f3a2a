"""The engine behind annealed importance sampling: what can be annealed, options, paths, forward and reverse runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ..budgets import MAX_SWEEPS
from ..data.counting import distinct_rows
from ..errors import (
    check_choice,
    check_fraction,
    check_whole,
    conflict,
    out_of_range,
    out_of_reach,
    unexpected,
    wrong_shape,
    wrong_type,
)
from .mode_checks import Distance, ModeRuns, PhaseLaws
from .weights import MIN_CHAINS, log_sum

__all__ = ["AnnealingOptions"]


# Options of annealed importance sampling that every family has.

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
        # Path and starts are kept as tuples, so that options can be hashed.
        if isinstance(self.temperatures, str):
            if self.temperatures != "adaptive":
                wanted = "'adaptive', numbers or None"
                raise unexpected(f"{owner} temperatures", wanted, self.temperatures, code="unknown-choice")
        elif self.temperatures is not None:
            # Temperatures of the user as floats
            values = self.temperatures
            try:
                path = tuple(float(v) for v in values)
            except (TypeError, ValueError):
                raise unexpected("temperatures", "numbers that rise from 0 to 1", values, code="wrong-type") from None
            if len(path) < 2 or path[0] != 0 or path[-1] != 1 or not all(a < b for a, b in itertools.pairwise(path)):
                shown = f"{path[:3]} ... {path[-1:]}" if len(path) > 4 else path
                raise out_of_range(
                    "temperatures", "inverse temperatures that rise strictly from 0 to 1", received=shown
                )
            object.__setattr__(self, "temperatures", path)
        if self.starts is not None:
            object.__setattr__(self, "starts", _checked_rows(self.starts, owner))
        # Resampling and the acceptance ratio exclude each other.
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
        argument, states = f"{type(self).__name__} starts", torch.tensor(cast("Rows", self.starts), dtype=torch.long)
        if states.shape[1] != len(largest):
            wanted = f"rows of {len(largest)} cells, one for every variable of the model"
            raise unexpected(argument, wanted, states.shape[1], code="wrong-shape")
        is_bad = states > torch.tensor(largest, dtype=torch.float64)
        if bool(is_bad.any()):
            row, column = (int(i) for i in is_bad.nonzero()[0])
            wanted = f"at most {largest[column]:g} for variable number {column}"
            raise out_of_range(argument, wanted, int(states[row, column]))
        return states


def chosen_rows(rows: torch.Tensor, counts: torch.Tensor | None = None) -> torch.Tensor:
    """At most 256 distinct rows (n, d), long, of whole numbers from 0 of those given (N, d), in lexicographic order.

    Of more distinct rows half are the most frequent, the others are evenly spaced among the rest. ``counts`` (N,).
    """
    cells = rows.numpy()
    first, where = map(torch.from_numpy, distinct_rows(cells, (cells.max(0, initial=0).astype(np.int64) + 1).tolist()))
    distinct = rows[first]
    if len(distinct) <= _MOST:
        return distinct.long()
    counts = torch.ones(len(rows), dtype=torch.float64) if counts is None else counts.double()
    total = torch.zeros(len(distinct), dtype=torch.float64).index_add_(0, where, counts)
    order, half = total.argsort(descending=True, stable=True), _MOST // 2
    rest = order[half:].sort().values
    places = torch.arange(_MOST - half) * len(rest) // (_MOST - half)
    return distinct[torch.cat([order[:half], rest[places]]).sort().values].long()


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


# What can be annealed: chains on a path of laws, and a model that says how they begin and where to look.


class Annealable(Protocol):
    """Chains on the path; a batch of B models comes first in every shape.

    ``log_q`` (B, chains), nats, is that of the model, ``slope`` (B, chains) log q less log q0. ``states`` and
    ``set_states`` read and replace all states (B, chains, d); ``gather`` gives every chain the state of the chain
    named, index (B, chains). ``sweep`` moves at beta 1. ``anneal`` gives the log weights (B, chains) of a path, each
    change followed by sweeps.
    """

    @property
    def states(self) -> torch.Tensor: ...

    @property
    def log_q(self) -> torch.Tensor: ...

    @property
    def slope(self) -> torch.Tensor: ...

    def sweep(self, num_sweeps: int, /) -> object: ...

    def anneal(
        self, betas: torch.Tensor | Sequence[float], sweeps: int = 1, /, *, reverse_order: bool = False
    ) -> torch.Tensor: ...

    def gather(self, index: torch.Tensor, /) -> None: ...

    def set_states(self, states: torch.Tensor, /) -> None: ...


@dataclass(frozen=True)
class Traits:
    """What the engine has to know of a family."""

    coding: str  # of the models
    advice: str  # what a reader of an unreliable result may try
    distance: Distance  # of two states
    conditional_error: float  # relative error of the probabilities that chains draw from
    cardinalities: tuple[int, ...] | None = None  # levels of every variable; None of counts, which have no end
    is_reversible: bool = True  # whether a reverse run makes the very sweeps of the forward run, in reverse
    is_connected: bool = True  # whether chains reach every possible state from every other one, as far as is known
    caution: str = ""  # a note about what is known of that


class AnnealedModel(Protocol):
    """B models of one structure, without a graph, with the options of their runs.

    ``log_z0`` (B,) is log Z, nats, of the reference law from which ``begin`` draws chains. ``perfect_states`` are
    independent states of the models (B, num_chains, d), None where no exact method has them quickly. ``ascend`` gives
    states (B, n, d) at which ascents from the ends of a run and from other starts ended, with their log q (B, n); None
    of densities. ``chains_at`` are chains of the model that begin at states (B, n, d); ``stream`` tells their random
    numbers from those of other calls. ``fitted`` are the product laws of states (J, B, n, d). ``mode_runs`` moves
    chains on from states (K, B, m, d) and makes forward runs from references fitted to these. ``describe`` puts a
    state (d,) in words.
    """

    @property
    def options(self) -> AnnealingOptions: ...

    @property
    def traits(self) -> Traits: ...

    @property
    def log_z0(self) -> torch.Tensor: ...

    def begin(self, num_chains: int, seed: int) -> Annealable: ...

    def perfect_states(self, seed: int) -> torch.Tensor | None: ...

    def ascend(self, run: Run) -> tuple[torch.Tensor, torch.Tensor] | None: ...

    def chains_at(self, run: Run, starts: NDArray[np.generic], stream: int) -> Annealable: ...

    def fitted(self, states: NDArray[np.generic]) -> PhaseLaws: ...

    def mode_runs(self, run: Run, starts: NDArray[np.generic]) -> ModeRuns: ...

    def describe(self, state: NDArray[np.generic]) -> str: ...


class Run(NamedTuple):
    """A forward run; a reverse run takes over its chains."""

    model: AnnealedModel
    chains: Annealable
    ends: torch.Tensor  # (B, chains, d)
    log_q: torch.Tensor  # of the ends, (B, chains)
    slope: torch.Tensor  # log q - log q0 of the ends, (B, chains)
    log_weights: torch.Tensor  # (B, chains)
    betas: torch.Tensor  # (steps + 1,)
    seed: int


# The engine behind annealed importance sampling: paths of temperatures, forward and reverse runs, their starts.

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
    # Every step of a pilot run leaves a conditional effective sample size that is the same share of the chains (Yan
    # Zhou, Adam Johansen and John Aston, Toward automatic model comparison, 2016, section 3.3).
    betas, log_weights, generator = [0.0], torch.zeros_like(pilot.slope), _random(seed, 3)
    while betas[-1] < 1:
        step = _longest_step(pilot.slope, torch.softmax(log_weights, -1), options.conditional_ess, 1 - betas[-1])
        following = min(1.0, max(betas[-1] + step, betas[-1] + 1 / _MAX_STEPS))
        log_weights = log_weights + pilot.anneal([betas[-1], following], options.sweeps_per_step)
        betas.append(following)
        if following < 1:
            index, log_weights = resampled(log_weights, 1, 0.5, generator)
            pilot.gather(index)
    return torch.tensor(betas, dtype=torch.float64)


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
    # In parts, between which weights are looked at.
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
    """A reverse run from states of the model, which takes over the chains; the mean of its weights estimates Z0 / Z."""
    options = run.model.options
    states = run.model.perfect_states(derived(run.seed, 4))
    is_perfect = states is not None
    if states is None:
        if options.combine:
            problem = "needs perfect samples, which exact methods cannot give for this model within about a second"
            raise out_of_reach(f"{type(options).__name__} combine", problem, "use combine=False")
        # The ends of a longer annealed run, resampled by weight and moved on at beta 1.
        chains = run.model.begin(options.num_chains, derived(run.seed, 5))
        parts = torch.arange(_TEMPERED, dtype=torch.float64) / _TEMPERED
        steps = run.betas[:-1, None] + run.betas.diff()[:, None] * parts
        log_weights = chains.anneal(torch.cat([steps.reshape(-1), run.betas[-1:]]), options.sweeps_per_step)
        chains.gather(resampled(log_weights, 1, 1.0, _random(run.seed, 6))[0])
        chains.sweep(options.burn_in)
        states = chains.states
    run.chains.set_states(states)
    log_q = run.chains.log_q
    log_weights = run.chains.anneal(run.betas.flip(0), options.sweeps_per_step, reverse_order=True)
    return Reverse(log_weights, states, log_q, "exact" if is_perfect else "tempered")


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
