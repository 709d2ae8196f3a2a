"""Importance sampling from mini-buckets, whose weights their upper bound limits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ...annealing.backend import GAP, constant
from ...annealing.runs import drawn_seed
from ...annealing.weights import log_mean_weight
from ...core.model import LogLinearModel
from ...core.partition import Cost, LogPartition, Verdict, check_any_possible, check_model, log_z_with_gradient
from ...errors import (
    ConvergenceWarning,
    caller_level,
    check_fraction,
    check_positive,
    check_whole,
    out_of_reach,
    size_text,
)
from ...structure.hypergraph import InteractionHypergraph, cell_index, row_strides
from ._draws import CHUNK, Run, Watch, code_type, independent, met, resampled
from ._join_graph import JoinGraph
from .mini_buckets import INTERRUPTED, LOOK_UPS, Bracket, BucketBackend, outward

_METHOD = "importance sampling from mini-buckets"
_MAX_TABLE = 2**26  # cells of a marginal table
_FEWEST = 100  # draws that have to carry the weight of an estimate
_RUNS = 16  # runs with resampling that are made together, the fewest whose mean has an error bar
_ROOM = 1.0  # nats above an estimate that limits may leave to a part of the model that all draws missed
_LOSS = 0.1  # nats for each divided variable between an estimate and the bound, where mini-buckets nearly agree
_LEAST_SIZE = 2**5  # particles of a run


@dataclass(frozen=True)
class BucketImportance(BucketBackend):
    r"""Importance sampling from mini-buckets: an estimate of log Z whose weights are bounded by the upper bound.

    .. math:: \hat Z = \frac1n \sum_{i=1}^n \frac{q(x_i)}{p(x_i)}, \qquad 0 \le \frac{q(x)}{p(x)} \le e^U, \qquad
        p(x) = \prod_v \frac{1}{C_v} \prod_r p_r(x_v)^{w_r}, \qquad C_v = \sum_{x_v} \prod_r p_r(x_v)^{w_r} \le 1

    *Independent draws.* States are drawn against the order of elimination, every variable from the normalised geometric
    mean of what the mini-buckets r of :class:`MiniBuckets` say of it. The mean weight estimates Z without bias. A
    weight is :math:`e^U \prod_v C_v`, which by Hölder's inequality is at most :math:`e^U`. So the mean has limits that
    hold for the number of draws made, without assumptions, whenever one looks (by betting against means). ``lower`` and
    ``upper`` are the tighter of these limits, at ``level``, and of the deterministic bounds, between which ``value``
    always is. The distinct states of every portion of draws raise the lower bound to the log of their sum of q.

    *Runs with resampling.* Where limits are not close enough, nor the error below half of ``max_error``, runs of up to
    4,096 draws are made side by side, which are drawn anew by their weights wherever few carry these (sequential Monte
    Carlo). The mean of what is taken off at those moments estimates Z without bias too, and with far less spread where
    weights are the product of many small losses. Of independent runs, which are bounded below by zero, the lower limit
    takes account as well. The error is that of at least 16 of them, with an allowance for their skewness.

    Draws are doubled until the limits are within ``max_error`` of each other's middle, ``num_draws`` are made, or it is
    foreseen that these would not be enough. Runs are doubled until the error is below half of ``max_error``, or
    ``num_draws`` particles are used. The verdict is "verified" in the first case; "consistent" where at least a hundred
    draws carry the weight, or the runs support an error bar, the two agree, no limit refutes them, and little room is
    left to what all may have missed: limits at most one nat above, or a bound at most 0.1 nats for each variable of
    divided mini-buckets; otherwise "unreliable", with an infinite error, while the limits hold in any case. A Ctrl-C
    during the passes leaves an estimate from the bounds by then and the first draws, and a note.

    Args:
        max_cells, passes, orders, max_memory_bytes, progress: as of :class:`MiniBuckets`.
        time_limit: seconds, for each element of the batch, after which neither a pass nor a portion of draws begins;
            one of each is made in any case. A third of it is for each bound, the rest for draws. None for no limit.
        num_draws: largest number of independent draws for each element of the batch, and as many again in runs, if
            they are at least 1,024.
        max_error: half the distance, in nats, between limits that are close enough.
        level: probability that the limits hold.
        seed: of the draws; None takes one from PyTorch's global generator.

    Raises:
        InputError: an option outside its range.

    References:
        Qiang Liu, John Fisher and Alexander Ihler, Probabilistic variational bounds for graphical models, NeurIPS 2015,
        whose draws are from arithmetic means.
        Christian Naesseth, Fredrik Lindsten and Thomas Schön, Sequential Monte Carlo for graphical models, NeurIPS
        2014.
        Ian Waudby-Smith and Aaditya Ramdas, Estimating means of bounded random variables by betting, Journal of the
        Royal Statistical Society B 86, 2024.

    Example:
        >>> from pyro_hoim import Domain, LogLinearEnergy
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 12), 2)
        >>> tables = torch.linspace(0, 99, graph.num_terms, dtype=torch.float64).sin()
        >>> model = LogLinearEnergy(graph, tables)
        >>> result = BucketImportance(max_cells=2**6, seed=1).log_partition(model)
        >>> from pyro_hoim.log_linear import Enumeration
        >>> exact = Enumeration().log_partition(model).value
        >>> result.verdict, bool(abs(result.value - exact) < 4 * result.std_error)
        ('verified', True)
    """

    num_draws: int = 2**17
    max_error: float = 0.1
    level: float = 0.95
    seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.num_draws, "BucketImportance num_draws", 2)
        check_positive(self.max_error, "BucketImportance max_error")
        check_fraction(self.level, "BucketImportance level")
        if self.seed is not None:
            check_whole(self.seed, "BucketImportance seed", 0)

    @property
    @override
    def _method(self) -> str:
        return _METHOD

    @override
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        cards = hypergraph.domain.cardinalities
        cells = math.prod(cards[v] for v in hypergraph.domain.indices(keep))
        cost = super().plan_after(hypergraph)
        if cost.feasible and keep and cells > _MAX_TABLE:
            asked = f"a joint table of {size_text(cells, 'cells')} is asked for, more than {_MAX_TABLE}"
            cost = replace(cost, feasible=False, reason=asked, hint="keep fewer variables")
        return replace(cost, flops=cost.flops + 200 * self.num_draws * len(cards))

    @override
    def _memory_bytes(self, hypergraph: InteractionHypergraph, graphs: list[JoinGraph]) -> int:
        """With the states of one portion of draws, their look-ups, and all weights and what limits make of them."""
        cards = hypergraph.domain.cardinalities
        states = (_RUNS * self._run_size + CHUNK) * np.dtype(code_type(cards)).itemsize * len(cards)
        return super()._memory_bytes(hypergraph, graphs) + 2 * states + 32 * LOOK_UPS + 64 * self.num_draws

    @property
    def _run_size(self) -> int:
        """Particles of a run: few enough for two times the fewest runs; zero where they would be too few."""
        size = min(CHUNK, self.num_draws // (2 * _RUNS))
        return size if size >= _LEAST_SIZE else 0

    def _runs(self, model: LogLinearModel, cells: Cells | None = None, is_partial: bool = False) -> list[_Draws]:
        """Bounds and draws of every element of the batch; of one that was interrupted as in :meth:`_brackets`."""
        self.plan(model.hypergraph).check()
        rows, graph, runs = self._tables(model), model.hypergraph, list[_Draws]()
        seed = drawn_seed(None) if self.seed is None else self.seed
        for k, row in enumerate(rows):
            with self._watch(3) as watch:
                bracket = self._bracket(graph, row, seed, watch)
                if bracket.is_interrupted and not (is_partial and k == len(rows) - 1):
                    raise KeyboardInterrupt
                drawn = _Draws(self, bracket, (seed, k), cells)
                try:
                    drawn.make(watch, is_short=bracket.is_interrupted)
                except KeyboardInterrupt:
                    if not (is_partial and k == len(rows) - 1):
                        raise
                    # One portion of draws, as where the passes were interrupted.
                    drawn = _Draws(self, bracket, (seed, k), cells)
                    drawn.make(watch, is_short=True)
                runs.append(drawn)
        return runs

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        """The estimate in nats, value (*batch), differentiable once in the tables.

        Raises:
            InputError: tables of NaN or plus infinity.
            IntractableError: the budget of memory or cells; a second derivative.

        Warns:
            ConvergenceWarning: the verdict is "unreliable".

        Randomness:
            ``seed``, or PyTorch's global generator when it is None.
        """
        result, runs = self._estimated(model)
        doubts = dict.fromkeys(run.doubts[0] for run in runs if run.verdict == Verdict.UNRELIABLE)
        if doubts:
            hint = "raise max_cells, passes or num_draws; the limits hold in any case"
            message = f"{', and '.join(doubts)}, so that the estimate is unreliable"
            warnings.warn(
                ConvergenceWarning(message, argument="BucketImportance", hint=hint), stacklevel=caller_level()
            )
        return result

    def unwarned(self, model: LogLinearModel) -> LogPartition:
        """The result of :meth:`log_partition`, for callers that know more before they warn."""
        return self._estimated(model)[0]

    def _estimated(self, model: LogLinearModel) -> tuple[LogPartition, list[_Draws]]:
        """The estimate, with the draws of every model that it comes from."""
        check_model(model)
        cost = self.plan(model.hypergraph).check()
        is_sloped = torch.is_grad_enabled() and model.tables.requires_grad
        runs = self._runs(model, _all_cells(model.hypergraph) if is_sloped else None, is_partial=True)
        batch = model.tables.shape[:-1]

        def shaped(numbers: list[float]) -> torch.Tensor:
            return torch.tensor(numbers, dtype=model.tables.dtype, device=model.tables.device).reshape(batch)

        value = shaped([run.value for run in runs])
        if is_sloped:
            slopes = self._eta(model, runs)
            value = log_z_with_gradient(model.tables, lambda _: (value, slopes), lambda t: constant(t, slopes))
        verdicts = torch.tensor([int(run.verdict) for run in runs], dtype=torch.int8).reshape(batch)
        result = LogPartition(
            value=value,
            kind="biased",
            std_error=shaped([run.std_error for run in runs]),
            ess=shaped([run.ess for run in runs]),
            lower=outward(model.tables, [run.lower for run in runs], is_upper=False),
            upper=outward(model.tables, [run.upper for run in runs], is_upper=True),
            cost=cost,
            method=_METHOD,
            coding=model.hypergraph.coding,
            verdicts=verdicts.to(model.tables.device),
            notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
            lower_bound=outward(model.tables, [run.low for run in runs], is_upper=False),
            upper_bound=outward(model.tables, [run.high for run in runs], is_upper=True),
        )
        return result, runs

    @staticmethod
    def _eta(model: LogLinearModel, runs: list[_Draws]) -> torch.Tensor:
        rows = [run.shares for run in runs]
        eta = torch.stack(rows) if rows else torch.zeros(0, model.hypergraph.num_terms)
        return eta.to(model.tables).reshape(model.tables.shape)

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        """Estimated eta, flat (*batch, num_terms): shares of the weights, without a gradient of their own."""
        check_model(model)
        eta = self._eta(model, self._possible(model, _all_cells(model.hypergraph)))
        return constant(model.tables, eta) if model.tables.requires_grad else eta

    def _possible(self, model: LogLinearModel, cells: Cells) -> list[_Draws]:
        runs = self._runs(model, cells)
        check_any_possible(torch.tensor([run.high for run in runs], dtype=torch.float64))
        return runs

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        """Shares of the weights by the joint levels of ``names``, (*batch, *cardinalities)."""
        return self.verified_marginal(model, names)[0]

    def verified_marginal(self, model: LogLinearModel, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """:meth:`marginal`, and whether the estimates of log Z by these draws are verified."""
        check_model(model)
        self.plan(model.hypergraph, keep=names).check()
        positions = list(model.hypergraph.domain.indices(names))
        shape = tuple(model.hypergraph.domain.cardinalities[v] for v in positions)
        strides = torch.tensor(row_strides(shape), dtype=torch.long)

        def of_states(states: torch.Tensor) -> torch.Tensor:
            return (states[:, positions] * strides).sum(-1, keepdim=True)

        runs = self._possible(model, Cells(math.prod(shape), 1, of_states))
        rows = [run.shares for run in runs]
        joint = torch.stack(rows) if rows else torch.zeros(0, math.prod(shape))
        probs = joint.to(model.tables).reshape((*model.tables.shape[:-1], *shape))
        is_verified = all(run.verdict == Verdict.VERIFIED for run in runs)
        return constant(model.tables, probs) if model.tables.requires_grad else probs, is_verified


class Cells(NamedTuple):
    """Cells of which shares are wanted: their number, and those (n, width) that states (n, d) are in."""

    number: int
    width: int
    of_states: Callable[[torch.Tensor], torch.Tensor]


def _all_cells(hypergraph: InteractionHypergraph) -> Cells:
    """Those of all tables."""
    return Cells(hypergraph.num_terms, len(hypergraph), cell_index(hypergraph).flat)


class _Tally:
    """Sums of weights by cells, relative to the largest weight so far."""

    def __init__(self, cells: Cells) -> None:
        self._cells, self._top = cells, -math.inf
        self._sums, self._total = torch.zeros(cells.number, dtype=torch.float64), 0.0

    def add(self, run: Run) -> None:
        """Count the states of a run, whose weights are those of one draw each."""
        top = float(run.log_weights.max(initial=-math.inf))
        if top > self._top:
            scale = math.exp(self._top - top)
            self._sums, self._total, self._top = self._sums * scale, self._total * scale, top
        if self._top == -math.inf:
            return
        weights = torch.from_numpy(np.exp(run.log_weights - self._top))
        self._total += float(weights.sum())
        most = max(1, LOOK_UPS // max(1, self._cells.width))
        for some, part in zip(torch.from_numpy(run.states).split(most), weights.split(most), strict=True):
            where = self._cells.of_states(some.long())
            self._sums.index_add_(0, where.reshape(-1), part[:, None].expand(where.shape).reshape(-1))

    @property
    def has_weight(self) -> bool:
        """Whether any state was possible."""
        return self._total > 0

    @property
    def shares(self) -> torch.Tensor:
        """Shares of the weight (cells,), zeros where there is none."""
        return self._sums / self._total if self._total else self._sums


class _Estimate(NamedTuple):
    """Log of a mean of weights, its error, infinite where nothing supports one, and draws that carry the weight."""

    value: float
    error: float
    ess: float


def _of_draws(log_weights: NDArray[np.float64]) -> _Estimate:
    """From independent draws, at least two."""
    top = float(log_weights.max())
    if top == -math.inf:
        return _Estimate(top, math.inf, 0.0)
    # Weights over the largest of them, so that none vanishes where the bound is far above.
    weights = np.exp(log_weights - top)
    mean, ess = float(weights.mean()), float(weights.sum() ** 2 / (weights**2).sum())
    error = float(weights.std(ddof=1)) / math.sqrt(len(weights)) / mean
    return _Estimate(top + math.log(mean), error if ess >= _FEWEST else math.inf, ess)


def _of_runs(log_means: NDArray[np.float64], size: int) -> _Estimate:
    """From runs of ``size`` particles each; one without a possible state leaves no error bar."""
    possible = log_means[log_means > -math.inf]
    if not len(possible):
        return _Estimate(-math.inf, math.inf, 0.0)
    result = log_mean_weight(possible[None], size)
    value = float(result.value[0]) + math.log(len(possible) / len(log_means))
    is_reliable = bool(result.is_reliable[0]) and len(possible) == len(log_means)
    return _Estimate(value, float(result.error[0]) if is_reliable else math.inf, float(result.ess[0]))


class _Draws:
    """Draws from the mini-buckets of one model, doubled until limits are close enough, and runs with resampling."""

    def __init__(
        self, options: BucketImportance, bracket: Bracket, seeds: tuple[int, int], cells: Cells | None
    ) -> None:
        self.options, self.bracket, self._seeds = options, bracket, seeds
        self.low, self.high = bracket.low, bracket.high
        self.num_divided = sum(len(bucket) > 1 for bucket in bracket.upper.graph.buckets)
        self.log_weights, self.log_means = np.zeros(0), np.zeros(0)
        self._tallies = None if cells is None else (_Tally(cells), _Tally(cells))
        self._portions, self._times, self._is_of_runs = 0, 0.0, False
        self.value, self.lower, self.upper = self.high, self.low, self.high
        self.std_error, self.ess, self.is_close = 0.0, 0.0, True  # no draw is made where no state is possible
        self.notes, self.doubts = ["no state is possible"], list[str]()

    def make(self, watch: Watch, is_short: bool) -> None:
        """Make draws, judging the estimate on the way; one portion of them if ``is_short``."""
        if self.high == -math.inf:
            return
        options, sizes = self.options, [min(self.options.num_draws, CHUNK)]
        while sizes[-1] < options.num_draws:
            sizes.append(min(2 * sizes[-1], options.num_draws))
        self._draw(sizes[0])
        watch.show(low=self.lower, high=self.upper)
        if not is_short:
            self._extend(sizes[1:], watch, self._is_promising)
            if not self.is_close and self.std_error > options.max_error / 2 and options._run_size:
                self._resample(watch)
                # Runs may tell that more draws help after all; without an error bar these are the last resort.
                self._extend(sizes[1:], watch, lambda: self._is_promising() or math.isinf(self.std_error))
        self.notes += watch.notes
        if is_short:
            self.notes.append(INTERRUPTED)

    def _extend(self, sizes: list[int], watch: Watch, is_worth: Callable[[], bool]) -> None:
        """Make independent draws up to each of some numbers, while they are worth it and there is time."""
        for size in sizes:
            if size > len(self.log_weights):
                if self.is_close or not is_worth() or watch.is_over(3, "the draws"):
                    return
                self._draw(size)
                watch.show(low=self.lower, high=self.upper)

    def _is_promising(self) -> bool:
        """Whether limits can come close enough by the largest number of draws, if the estimate is right."""
        shares = math.exp(self.value - self.high) * self.options.num_draws
        return math.log1p(math.log(2 / self._failing) / shares) < 2 * self.options.max_error if shares > 0 else False

    def _resample(self, watch: Watch) -> None:
        """Make runs with resampling until their error is small enough."""
        options, size = self.options, self.options._run_size
        most = options.num_draws // size // _RUNS * _RUNS
        while len(self.log_means) < most and not watch.is_over(3, "the runs with resampling"):
            for _ in range(max(1, min(len(self.log_means), most - len(self.log_means)) // _RUNS)):
                runs = resampled(self.bracket.upper, _RUNS, size, self._next_seed())
                self._times += sum(run.times for run in runs)
                for run in runs:
                    self._count(run, 1)
                means = [np.logaddexp.reduce(run.log_weights) - math.log(size) for run in runs]
                self.log_means = np.concatenate([self.log_means, means])
            self._judge()
            watch.show(low=self.lower, high=self.upper)
            if self.std_error <= options.max_error / 2:
                return

    def _draw(self, size: int) -> None:
        """Make independent draws until there are so many."""
        while len(self.log_weights) < size:
            run = independent(self.bracket.upper, min(CHUNK, size - len(self.log_weights)), self._next_seed())
            self._count(run, 0)
            self.log_weights = np.concatenate([self.log_weights, run.log_weights])
        self._judge()

    def _next_seed(self) -> int:
        self._portions += 1
        return int(np.random.SeedSequence([*self._seeds, self._portions]).generate_state(1, np.uint64)[0])

    def _count(self, run: Run, which: int) -> None:
        # Possible states prove a lower bound, whatever their weights.
        upper = self.bracket.upper
        tables = torch.from_numpy(upper.values[: upper.compiled.num_terms])
        self.low = min(self.high, max(self.low, met(upper.graph.hypergraph, tables, run.states).bound))
        if self._tallies is not None:
            self._tallies[which].add(run)

    @property
    def _failing(self) -> float:
        """Probability that one of the limits fails."""
        return (1 - self.options.level) / 2

    def _judge(self) -> None:
        """Estimate, error and limits from the draws and runs so far."""
        draws = estimate = _of_draws(self.log_weights)
        notes = [f"{len(self.log_weights)} draws, of which {draws.ess:.4g} carry the weight"]
        is_against = False
        if len(self.log_means):
            runs = _of_runs(self.log_means, self.options._run_size)
            notes[0] += f", give {draws.value:.7g}" + (f" ± {draws.error:.2g}" if math.isfinite(draws.error) else "")
            notes.append(
                f"{len(self.log_means)} runs of {self.options._run_size} draws, drawn anew "
                f"{self._times / len(self.log_means):.3g} times each, give {runs.value:.7g}"
                + (f" ± {runs.error:.2g}" if math.isfinite(runs.error) else "")
            )
            is_against = abs(runs.value - draws.value) > GAP * math.hypot(runs.error, draws.error)
            # Without an error bar on either side runs are closer, since draws miss more.
            self._is_of_runs = runs.error <= draws.error
            estimate = runs if self._is_of_runs else draws
        self.lower = max(self.low, lower_limit([self.log_weights, self.log_means], self._failing))
        self.upper = min(self.high, self.high + upper_limit(self.log_weights - self.high, self._failing))
        # Draws that are too low for the bounds have missed a part of the model, and limits that cross are an unlucky
        # run's; the bounds hold.
        is_missed = self.lower > self.upper or estimate.value < self.lower - GAP * estimate.error
        if self.lower > self.upper:
            self.lower, self.upper = self.low, self.high
        self.ess, self.value = estimate.ess, min(max(estimate.value, self.lower), self.upper)
        self.is_close = self.upper - self.lower <= 2 * self.options.max_error
        # Equal weights far below the bound may be those of a part of the model alone, which the draws cannot tell.
        is_open = self.upper - self.value > _ROOM and self.high - self.value > _LOSS * self.num_divided
        doubts = {
            "few draws carry the weight": math.isinf(estimate.error),
            "the bounds refute what the draws give": is_missed,
            "independent draws and runs with resampling contradict each other": is_against,
            "the bounds leave room for a part of the model that all draws may have missed": is_open,
        }
        self.doubts = [doubt for doubt, is_raised in doubts.items() if is_raised]
        self.std_error = math.inf if self.doubts else estimate.error
        if self.is_close:
            self.std_error = min(self.std_error, self.upper - self.lower)
        notes.append(f"limits {self.lower:.6g} to {self.upper:.6g}, bounds {self.low:.6g} to {self.high:.6g}")
        self.notes = ["; ".join(notes)]
        if is_missed:
            self.notes.append(f"the draws alone give {estimate.value:.6g}, which the bounds refute")
        if is_open:
            self.notes.append(
                f"the limits leave {self.upper - self.value:.3g} nats to parts of the model that draws may have missed"
            )
        if is_against:
            self.notes.append(f"independent draws give {draws.value:.6g}, which the runs contradict")

    @property
    def verdict(self) -> Verdict:
        """How far the estimate can be believed."""
        if self.is_close:
            return Verdict.VERIFIED
        return Verdict.CONSISTENT if math.isfinite(self.std_error) else Verdict.UNRELIABLE

    @property
    def shares(self) -> torch.Tensor:
        """Shares of the weights by the cells that were asked for, float64 (cells,)."""
        if self._tallies is None:
            raise AssertionError("no cells were asked for")
        tally = self._tallies[self._is_of_runs]
        if self.high > -math.inf and not tally.has_weight:
            problem = f"none of {len(self.log_weights)} draws is a possible state, so that there are no means of them"
            raise out_of_reach("BucketImportance", problem, "raise max_cells or num_draws, or use chains")
        return tally.shares


# Limits of the mean of independent weights that hold for their number, by betting against means.

Floats = NDArray[np.float64]

_STAKES = 0.5 ** np.arange(17)  # each half of the one before, down to what a hundred thousand weights call for
_WIDEST = 40.0  # nats from the mean within which limits are looked for
_HALVINGS = 24  # of that distance
_FACTORS = 2**14  # that are computed at once


def _log_capital(ratios: Floats, priors: Floats) -> float:
    """Log of the average capital over stakes, where each gains its share of ``ratios`` (n,), none below -1."""
    # Products of eight factors at a time need fewer logarithms; they end in zero or infinity only far from any limit.
    parts = np.concatenate([ratios, np.zeros(-len(ratios) % 8)]).reshape(8, -1)
    most = max(1, _FACTORS // max(1, parts.size))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        logs = [
            np.log((1.0 + stakes[:, None, None] * parts).prod(1)).sum(1)
            for stakes in np.split(_STAKES[: len(priors)], range(most, len(priors), most))
        ]
    logs = np.nan_to_num(np.concatenate(logs), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    return float(np.logaddexp.reduce(logs + np.log(priors)))


def _last_refuted(near: float, far: float, is_refuted: Callable[[float], bool]) -> float:
    """The point closest to ``near`` known to be refuted, by halving, where all beyond it towards ``far`` are."""
    if not is_refuted(far):
        return math.nan
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        near, far = (near, middle) if is_refuted(middle) else (middle, far)
    return far


def lower_limit(streams: Sequence[Floats], failing: float) -> float:
    """Log of a mean that is above that of the weights with a probability of at most ``failing``; -inf where none is.

    Args:
        streams: logarithms of non-negative weights, independent, all of one mean, each stream (n,); every one has the
            same share of the first capital, and an empty one keeps it.
        failing: between 0 and 1.
    """
    tops = [float(logs.max(initial=-math.inf)) for logs in streams]
    if max(tops, default=-math.inf) == -math.inf:
        return -math.inf
    means = [t + math.log(np.exp(logs - t).mean()) for logs, t in zip(streams, tops, strict=True) if t > -math.inf]
    priors = np.full(len(_STAKES), 1 / len(_STAKES))

    def is_refuted(log_mean: float) -> bool:
        capitals = [_log_capital(np.exp(logs - log_mean) - 1.0, priors) if len(logs) else 0.0 for logs in streams]
        return float(np.logaddexp.reduce(capitals)) - math.log(len(streams)) >= -math.log(failing)

    limit = _last_refuted(max(means), max(means) - _WIDEST, is_refuted)
    return -math.inf if math.isnan(limit) else limit


def upper_limit(log_shares: Floats, failing: float) -> float:
    r"""Log of a mean that is below that of shares with a probability of at most ``failing``, at most 0.

    Stakes are on shares being below the mean: :math:`\prod_i (1 + c (\mu - w_i))`. Half of the capital has the stake
    one, which is the best while hardly any share is large.

    Args:
        log_shares: logarithms (n,) of independent weights between 0 and 1.
        failing: between 0 and 1.
    """
    shares, number = np.exp(np.minimum(log_shares, 0.0)), 12
    priors = np.array([0.5, *np.full(number, 0.5 / number)])

    def is_refuted(log_mean: float) -> bool:
        mean = math.exp(log_mean)
        return _log_capital(mean - shares, priors) >= -math.log(failing)

    # Nothing refutes the mean of the shares, nor a mean that would show in less than one of them.
    near = math.log(max(float(shares.mean()), 1 / (3 * len(shares)))) if len(shares) else 0.0
    limit = _last_refuted(min(near, 0.0), 0.0, is_refuted)
    return 0.0 if math.isnan(limit) else limit
