"""Importance sampling from mini-buckets, whose weights their upper bound limits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ...annealing.backend import constant
from ...annealing.runs import drawn_seed
from ...core.autograd import log_z_with_gradient
from ...core.model import LogLinearModel
from ...core.partition import Cost, LogPartition, Verdict, check_any_possible
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
from ._watch import Watch
from .mini_buckets import CHUNK, INTERRUPTED, LOOK_UPS, Bracket, BucketBackend, log_q, outward

__all__ = ["BucketImportance"]

_METHOD = "importance sampling from mini-buckets"
_MAX_TABLE = 2**26  # cells of a marginal table
_FEWEST = 100  # draws that have to carry the weight of an estimate
_CONTRADICTION = 4.0  # errors below a bound that a normal estimate is once in 30,000 runs


@dataclass(frozen=True)
class BucketImportance(BucketBackend):
    r"""Importance sampling from mini-buckets: an estimate of log Z whose weights are bounded by the upper bound.

    .. math:: \hat Z = \frac1n \sum_{i=1}^n \frac{q(x_i)}{p(x_i)}, \qquad 0 \le \frac{q(x)}{p(x)} \le e^U

    States are drawn independently from mixtures p of what the mini-buckets of :class:`MiniBuckets` say, against the
    order of elimination. The mean weight estimates Z without bias. As no weight is above the bound U, the mean has
    limits that hold for the number of draws made, without assumptions (empirical Bernstein bound). ``lower`` and
    ``upper`` are the tighter of these limits, at ``level``, and of the deterministic bounds, between which ``value``
    always is.

    Draws are doubled until the limits are within ``max_error`` of each other's middle, or ``num_draws`` are made. The
    verdict is "verified" in the first case; "consistent" where at least a hundred draws carry the weight and no bound
    refutes them; otherwise "unreliable", with an infinite error, while the limits hold in any case. A Ctrl-C during
    the passes leaves an estimate from the bounds by then and the first draws, and a note.

    Args:
        max_cells, passes, orders, max_memory_bytes, progress: as of :class:`MiniBuckets`.
        time_limit: seconds, for each element of the batch, after which neither a pass nor a portion of draws begins;
            one of each is made in any case. A third of it is for each bound, the rest for draws. None for no limit.
        num_draws: largest number of draws for each element of the batch.
        max_error: half the distance, in nats, between limits that are close enough.
        level: probability that the limits hold.
        seed: of the draws; None takes one from PyTorch's global generator.

    Raises:
        InputError: an option outside its range.

    References:
        Qiang Liu, John Fisher and Alexander Ihler, Probabilistic variational bounds for graphical models, NeurIPS 2015.
        Andreas Maurer and Massimiliano Pontil, Empirical Bernstein bounds and sample variance penalization, COLT 2009,
        theorem 4.

    Example:
        >>> from pyro_hoim import Domain, LogLinearEnergy
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 12), 2)
        >>> model = LogLinearEnergy(graph, torch.linspace(-1, 1, graph.num_terms, dtype=torch.float64))
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
        # States and weights of all draws stay, since means of cells are asked for after them.
        code = torch.empty(0, dtype=_code(hypergraph)).element_size()
        drawn = self.num_draws * (code * len(cards) + 64) + 32 * CHUNK * len(cards)
        memory, flops = cost.memory_bytes + drawn, cost.flops + 100 * self.num_draws * len(cards)
        if cost.feasible and memory > self.max_memory_bytes:
            reason = f"mini-buckets and draws need {memory} bytes (about {memory / 2**30:.3g} GiB)"
            reason = f"{reason}, the budget is {self.max_memory_bytes}"
            hint = "raise BucketImportance(max_memory_bytes=...), or lower max_cells or num_draws"
            cost = replace(cost, feasible=False, reason=reason, hint=hint)
        return replace(cost, flops=flops, memory_bytes=memory)

    def _runs(self, model: LogLinearModel, is_partial: bool = False) -> list[_Draws]:
        """Bounds and draws of every element of the batch; of one that was interrupted as in :meth:`_brackets`."""
        self.plan(model.hypergraph).check()
        rows, graph, runs = self._tables(model), model.hypergraph, list[_Draws]()
        seed = drawn_seed(None) if self.seed is None else self.seed
        for k, row in enumerate(rows):
            with self._watch(3) as watch:
                bracket = self._bracket(graph, row, seed, watch)
                if bracket.is_interrupted and not (is_partial and k == len(rows) - 1):
                    raise KeyboardInterrupt
                random = np.random.default_rng([seed, k])
                try:
                    drawn = _Draws(self, graph, row, bracket, random, watch)
                except KeyboardInterrupt:
                    if not (is_partial and k == len(rows) - 1):
                        raise
                    # One portion of draws, as where the passes were interrupted.
                    drawn = _Draws(self, graph, row, replace(bracket, is_interrupted=True), random, watch)
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
        result = self.unwarned(model)
        if result.verdict == Verdict.UNRELIABLE.word:
            hint = "raise max_cells, passes or num_draws; the limits hold in any case"
            message = "few draws carry the weight, so that the estimate is unreliable"
            warnings.warn(
                ConvergenceWarning(message, argument="BucketImportance", hint=hint), stacklevel=caller_level()
            )
        return result

    def unwarned(self, model: LogLinearModel) -> LogPartition:
        """The result of :meth:`log_partition`, for callers that know more before they warn."""
        cost = self.plan(model.hypergraph).check()
        runs, batch = self._runs(model, is_partial=True), model.tables.shape[:-1]

        def shaped(numbers: list[float]) -> torch.Tensor:
            return torch.tensor(numbers, dtype=model.tables.dtype, device=model.tables.device).reshape(batch)

        value = shaped([run.value for run in runs])
        if torch.is_grad_enabled() and model.tables.requires_grad:
            slopes = self._eta(model, runs)
            value = log_z_with_gradient(model.tables, lambda _: (value, slopes), lambda t: constant(t, slopes))
        verdicts = torch.tensor([int(run.verdict) for run in runs], dtype=torch.int8).reshape(batch)
        return LogPartition(
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

    def _eta(self, model: LogLinearModel, runs: list[_Draws]) -> torch.Tensor:
        graph = model.hypergraph
        rows = [run.shares(graph.num_terms, cell_index(graph).flat, len(graph)) for run in runs]
        eta = torch.stack(rows) if rows else torch.zeros(0, graph.num_terms)
        return eta.to(model.tables).reshape(model.tables.shape)

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        """Estimated eta, flat (*batch, num_terms): shares of the weights, without a gradient of their own."""
        eta = self._eta(model, self._possible(model))
        return constant(model.tables, eta) if model.tables.requires_grad else eta

    def _possible(self, model: LogLinearModel) -> list[_Draws]:
        runs = self._runs(model)
        check_any_possible(torch.tensor([run.high for run in runs], dtype=torch.float64))
        return runs

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        """Shares of the weights by the joint levels of ``names``, (*batch, *cardinalities)."""
        return self.verified_marginal(model, names)[0]

    def verified_marginal(self, model: LogLinearModel, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """:meth:`marginal`, and whether the estimates of log Z by these draws are verified."""
        self.plan(model.hypergraph, keep=names).check()
        positions = list(model.hypergraph.domain.indices(names))
        shape = tuple(model.hypergraph.domain.cardinalities[v] for v in positions)
        strides = torch.tensor(row_strides(shape), dtype=torch.long)

        def cells(states: torch.Tensor) -> torch.Tensor:
            return (states[:, positions] * strides).sum(-1, keepdim=True)

        runs = self._possible(model)
        rows = [run.shares(math.prod(shape), cells) for run in runs]
        joint = torch.stack(rows) if rows else torch.zeros(0, math.prod(shape))
        probs = joint.to(model.tables).reshape(*model.tables.shape[:-1], *shape)
        is_verified = all(run.verdict == Verdict.VERIFIED for run in runs)
        return constant(model.tables, probs) if model.tables.requires_grad else probs, is_verified


def _code(hypergraph: InteractionHypergraph) -> torch.dtype:
    """The smallest type of states that stay."""
    return torch.uint8 if max(hypergraph.domain.cardinalities, default=1) <= 2**8 else torch.int32


class _Draws:
    """Draws from the mini-buckets of one model, doubled until limits are close enough."""

    def __init__(
        self,
        options: BucketImportance,
        hypergraph: InteractionHypergraph,
        tables: torch.Tensor,
        bracket: Bracket,
        random: np.random.Generator,
        watch: Watch,
    ) -> None:
        self.low, self.high = bracket.low, bracket.high
        self.states, self.log_weights = list[torch.Tensor](), np.zeros(0)
        self.value, self.lower, self.upper = self.high, self.low, self.high
        self.std_error, self.ess, self.is_close = 0.0, float(options.num_draws), True
        self.notes = ["no state is possible"]
        if self.high == -math.inf:
            return
        sizes = [min(options.num_draws, CHUNK)]
        while sizes[-1] < options.num_draws:
            sizes.append(min(2 * sizes[-1], options.num_draws))
        # Every look at the limits has its share of the probability that one of them fails.
        failing = (1 - options.level) / 2 / len(sizes)
        for size in sizes[:1] if bracket.is_interrupted else sizes:
            # One block for all draws up to the next look, since many small ones would leave holes in the memory.
            block = torch.empty(size - len(self.log_weights), len(hypergraph.domain), dtype=_code(hypergraph))
            for part in block.split(CHUNK):
                codes, log_probs = bracket.upper.draw(random.random(part.shape))
                states = torch.from_numpy(codes)
                log_weights = log_q(hypergraph, tables, states).numpy() - log_probs
                part.copy_(states)
                self.log_weights = np.concatenate([self.log_weights, log_weights])
            self.states.append(block)
            self._judge(options, failing)
            watch.show(low=self.lower, high=self.upper)
            if self.is_close or (size < sizes[-1] and watch.is_over(3, "the draws")):
                break
        self.notes += watch.notes
        if bracket.is_interrupted:
            self.notes.append(INTERRUPTED)

    def _judge(self, options: BucketImportance, failing: float) -> None:
        """Estimate, error and limits from the draws so far."""
        count, top = len(self.log_weights), float(self.log_weights.max())
        # Weights over the largest, which is at most e^U, so that none vanishes where U is far above.
        weights = self.weights
        mean, variance = float(weights.mean()), float(weights.var(ddof=1))
        self.ess = float(weights.sum()) ** 2 / float((weights**2).sum()) if top > -math.inf else 0.0
        estimate = top + math.log(mean) if top > -math.inf else -math.inf
        error = math.sqrt(variance / count) / mean if self.ess >= _FEWEST else math.inf
        # The empirical Bernstein bound, of weights over e^U.
        share = math.exp(min(top - self.high, 0.0))
        spread = share * math.sqrt(2 * variance * math.log(2 / failing) / count)
        margin, mean = spread + 7 * math.log(2 / failing) / (3 * (count - 1)), share * mean
        self.lower = max(self.low, self.high + math.log(mean - margin)) if mean > margin else self.low
        self.upper = min(self.high, self.high + math.log(mean + margin))
        # Draws that are too low for the bounds have missed a part of the model, and limits that cross are an unlucky
        # run's; the bounds hold.
        is_missed = self.lower > self.upper or estimate < self.low - _CONTRADICTION * error
        if self.lower > self.upper:
            self.lower, self.upper = self.low, self.high
        self.value = min(max(estimate, self.lower), self.upper)
        self.is_close = self.upper - self.lower <= 2 * options.max_error
        self.std_error = math.inf if is_missed else error
        if self.is_close:
            self.std_error = min(self.std_error, self.upper - self.lower)
        summary = (
            f"{count} draws, of which {self.ess:.4g} carry the weight; limits {self.lower:.6g} to {self.upper:.6g}"
        )
        self.notes = [f"{summary}, bounds {self.low:.6g} to {self.high:.6g}"]
        if is_missed:
            self.notes.append(f"the draws alone give {estimate:.6g}, which the bounds refute")

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights of the draws over the largest of them, zero where all are."""
        top = float(self.log_weights.max(initial=-math.inf))
        return np.exp(self.log_weights - top) if top > -math.inf else np.zeros(len(self.log_weights))

    @property
    def verdict(self) -> Verdict:
        """How far the estimate can be believed."""
        if self.is_close:
            return Verdict.VERIFIED
        return Verdict.CONSISTENT if math.isfinite(self.std_error) else Verdict.UNRELIABLE

    def shares(self, num_cells: int, cells: Callable[[torch.Tensor], torch.Tensor], width: int = 1) -> torch.Tensor:
        """Weighted shares of draws by cells (n, width) of states (n, d), float64 (num_cells,)."""
        sums, weights = torch.zeros(num_cells, dtype=torch.float64), torch.from_numpy(self.weights)
        if self.high > -math.inf and not float(weights.sum()):
            problem = f"none of {len(weights)} draws is a possible state, so that there are no means of them"
            raise out_of_reach("BucketImportance", problem, "raise max_cells or num_draws, or use chains")
        most = min(CHUNK, max(1, LOOK_UPS // max(1, width)))
        all_states = [some for states in self.states for some in states.split(most)]
        for states, part in zip(all_states, weights.split([len(some) for some in all_states]), strict=True):
            where = cells(states.long())
            sums.index_add_(0, where.reshape(-1), part[:, None].expand(where.shape).reshape(-1))
        return sums / weights.sum() if len(weights) else sums
