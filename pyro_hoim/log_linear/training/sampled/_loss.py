"""Log Z of trained tables by annealed runs on chains of their own, made longer within a budget. Private to training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ....annealing.verdict import METHOD
from ....annealing.weights import WeightEstimate, log_mean_weight, one_sided_limits
from ....core.certificate import certificate, state_text
from ....core.partition import LogPartition, Sandwich, Verdict
from ....runs.time_limit import check_time
from ....schema import Domain
from ...annealed.importance import AnnealedImportance
from ...chains.gibbs import GibbsChains
from ...energy import LogLinearEnergy
from ._start import StartLaw
from ._weighted_chains import Population, seed_of, systematic
from .options import SampledTraining

Floats = NDArray[np.float64]
_FIRST = (1024, 500)  # chains and temperatures of the first run
_EVEN = 0.25  # effective share of the chains above which more of them are better than more temperatures
_TEMPERED = 4  # temperatures of the run that stands in for perfect samples, per temperature of the reverse run
_BURN_IN = 200  # sweeps after it
_REVERSE = 6  # a reverse run and the tempered run it starts from cost as much as that many forward runs
_COLD = 1000.0  # inverse temperature that leaves nothing to chance
_ASCENT = 12  # sweeps at it
_LEVEL = 0.99  # of the one-sided limits
_GAP = 4.0  # errors between forward and reverse estimate that count as agreement
_MARKOV = math.log(1e4)  # an estimate without bias is that much too high in one of so many runs at most
_ONE_SIDED = "there was no reverse run, so that a mode that no chain found would stay unseen"
_TEMPERED_NOTE = (
    "the reverse run started from tempered runs, not from perfect samples, so that a mode that no chain found would "
    "stay unseen; the upper limit rests on there being none"
)


class _Runs:
    """Annealed runs between a start law and a model."""

    def __init__(self, model: LogLinearEnergy, settings: SampledTraining, start: StartLaw) -> None:
        padded = start.padded(model.hypergraph, model.tables.numpy())
        self.model = LogLinearEnergy(start.hypergraph, torch.from_numpy(padded).to(settings.device), validate=False)
        self._settings = settings
        self._law = start
        tables = torch.from_numpy(start.tables).to(settings.device)
        self._first = LogLinearEnergy(start.hypergraph, tables, validate=False)

    def forward(self, size: tuple[int, int], seed: int) -> tuple[GibbsChains, Floats]:
        """Chains at the model, and their log weights with the constant of the start."""
        settings, init = self._settings, self._law.states(size[0], np.random.default_rng(seed_of(seed, 3)))
        engine, precision = settings.engine, settings.precision
        chains = GibbsChains(self.model, size[0], init=init, seed=seed, engine=engine, precision=precision)
        log_weights = chains.anneal(_path(size[1]), start=self._first).cpu().numpy()
        return chains, log_weights + self._law.log_z

    def climbed(self, states: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """States (1, n, d) at which ascents from states (n, d) end, and their log q (1, n)."""
        cold = LogLinearEnergy(self.model.hypergraph, self.model.tables * _COLD, validate=False)
        ascents = GibbsChains(cold, len(states), init=states, seed=seed, engine=self._settings.engine)
        ascents.sweep(_ASCENT)
        return ascents.states[None], -ascents.energy[None] / _COLD

    def backward(self, size: tuple[int, int], seed: int) -> Floats:
        """Log weights (chains,) of runs from the model, as a longer forward run finds it, back to the start."""
        chains, log_weights = self.forward((size[0], _TEMPERED * size[1]), seed)
        weights = np.exp(log_weights - log_weights.max()).cumsum()
        chains.gather(systematic(weights / weights[-1], size[0], np.random.default_rng(seed_of(seed, 7))))
        chains.sweep(_BURN_IN)
        log_weights = chains.anneal(_path(size[1]).flip(0), start=self._first, reverse_order=True)
        return log_weights.cpu().numpy() - self._law.log_z


def _path(num_temperatures: int) -> torch.Tensor:
    return torch.linspace(0, 1, num_temperatures + 1, dtype=torch.float64)


def annealed_log_z(
    model: LogLinearEnergy,
    settings: SampledTraining,
    starts: Sequence[StartLaw],
    seed: int,
    rows: torch.Tensor | None = None,
) -> tuple[LogPartition, Population | None]:
    """Forward estimate with a standard error of at most that of the settings, or the largest run within their budget.

    The runs begin at the first of the starts. No choice is made among them by their own errors, since a run that missed
    something has a small one. One more run begins at the second start, which is wide: where its estimate is larger
    beyond error, there are modes that the others have missed, and the result is not reliable. Ascents start from the
    ends of all chains and from ``rows`` (n, d) of the data, for states that bound log Z. Beside a result that has no
    error bar stand the weighted ends of the runs, as many as a population has.
    """
    runs = _Runs(model, settings, starts[0])
    size, k = _FIRST, 0
    while True:
        check_time()
        chains, log_weights = runs.forward(size, seed_of(seed, k))
        estimate = log_mean_weight(log_weights[None])
        found = _result(model, size, estimate)
        if float(found.std_error) <= settings.loss_standard_error:
            break
        is_even = bool(estimate.is_reliable[0]) and float(estimate.ess[0]) > _EVEN * size[0]
        larger = (2 * size[0], size[1]) if is_even else (2 * size[0], 2 * size[1])
        if is_even:  # the error falls with the square root of the number of chains: no steps that only confirm this
            room = settings.loss_budget // max(1, larger[0] * larger[1])
            wanted = (float(found.std_error) / settings.loss_standard_error) ** 2 / 2
            larger = (larger[0] * 2 ** max(0, min(math.ceil(math.log2(wanted)), room.bit_length() - 1)), larger[1])
        if larger[0] * larger[1] > settings.loss_budget:
            found = replace(found, notes=(*found.notes, _budget_note(found, settings)))
            break
        size, k = larger, k + 1
    met = [_met(chains), runs.climbed(chains.states, seed_of(seed, 301))]
    ends = Population(chains.states.cpu(), log_weights)
    if rows is not None:
        met += [(rows[None], -model.energy(rows)[None]), runs.climbed(rows, seed_of(seed, 303))]
    for start in starts[1:]:
        others = _Runs(model, settings, start)
        chains, wide = others.forward(_FIRST, seed_of(seed, 201))
        met += [_met(chains), others.climbed(chains.states, seed_of(seed, 302))]
        found = _compared(found, log_mean_weight(wide[None]))
        ends = ends.joined(Population(chains.states.cpu(), wide))
    found = _bounded(found, model.hypergraph.domain, met)
    if math.isfinite(float(found.std_error)):
        return found, None
    return found, ends.resampled(settings.num_chains, np.random.default_rng(seed_of(seed, 401)))


def _met(chains: GibbsChains) -> tuple[torch.Tensor, torch.Tensor]:
    """States (1, chains, d) and their log q (1, chains)."""
    return chains.states[None], -chains.energy[None]


def _bounded(result: LogPartition, domain: Domain, met: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> LogPartition:
    """The result with the bound that the states met give; not reliable where it lies below that."""
    proof = certificate([states for states, _ in met], [values for _, values in met], domain.cardinalities)
    bound = torch.full_like(result.value, float(proof.bound[0]))
    own = float(result.std_error) if math.isfinite(float(result.std_error)) else 0.0
    result = replace(result, lower_bound=bound)
    if float(bound) <= float(result.value) + 1e-9 * (1 + abs(float(bound))):
        return replace(result, lower=torch.maximum(result.lower, bound))
    error = torch.full_like(result.value, max(float(result.std_error), float(bound - result.value)))
    raised = replace(result, value=bound, lower=bound, upper=torch.maximum(result.upper, bound), std_error=error)
    if float(bound) <= max(float(result.value) + _GAP * own, float(result.upper)) and math.isfinite(float(error)):
        return raised
    labels = [variable.labels[int(k)] for variable, k in zip(domain, proof.best[0].tolist(), strict=True)]
    note = (
        f"the states met have log q of {float(bound):.6g} together, a lower bound of log Z, and the runs found "
        f"{float(result.value):.6g}: they have missed a part of the model, such as {state_text(domain.names, labels)}"
    )
    return replace(_refused(raised, math.inf, note), lower=bound)


def _budget_note(found: LogPartition, settings: SampledTraining) -> str:
    return (
        f"the standard error of log Z is {float(found.std_error):.3g}, more than the {settings.loss_standard_error:g} "
        f"asked for, after runs within the budget of {settings.loss_budget} sweeps; raise loss_budget"
    )


def _compared(result: LogPartition, wide: WeightEstimate) -> LogPartition:
    """The result, not reliable where a run from a wider start has found more than it."""
    gap = float(wide.value[0]) - float(result.value)
    own = float(result.std_error) if result.std_error is not None else math.inf
    limit = _GAP * math.hypot(own, float(wide.error[0])) if bool(wide.is_reliable[0]) else _MARKOV
    if gap <= limit + 1e-9:
        return result
    note = f"a run from a wider law gives {gap:.3g} nats more: there are modes far from the rows that others missed"
    return _refused(replace(result, value=torch.full_like(result.value, float(wide.value[0]))), math.inf, note)


def _refused(result: LogPartition, error: float, note: str) -> LogPartition:
    """The result, not reliable: what is left are Markov's lower limit and no upper one."""
    return replace(
        result,
        std_error=torch.full_like(result.value, error),
        lower=result.value + math.log1p(-_LEVEL),
        upper=torch.full_like(result.value, math.inf),
        verdicts=torch.full_like(result.value, Verdict.UNRELIABLE, dtype=torch.int8),
        notes=(*result.notes, note),
    )


def _result(model: LogLinearEnergy, size: tuple[int, int], found: WeightEstimate) -> LogPartition:
    options = AnnealedImportance(num_chains=size[0], num_temperatures=size[1], seed=0)
    lower, upper = one_sided_limits(found, _LEVEL, found.is_reliable)
    is_reliable = bool(found.is_reliable[0])
    notes = (_ONE_SIDED,)
    if not is_reliable:
        share = (
            f"weights are uneven: {found.ess[0]:.3g} effective of {size[0]} chains, the largest holds "
            f"{found.share[0]:.0%} of the weight, or their logarithms spread too far for so few chains"
        )
        notes = (share, *notes)
    error = float(found.error[0]) if is_reliable else math.inf
    values = (float(found.value[0]), error, float(found.ess[0]), float(lower[0]), float(upper[0]))
    value, std_error, ess, low, high = (torch.tensor(v, dtype=torch.float64) for v in values)
    return LogPartition(
        value,
        "biased",
        std_error,
        ess,
        low,
        high,
        options.plan(model.hypergraph),
        METHOD,
        verdicts=torch.tensor(Verdict.CONSISTENT if is_reliable else Verdict.UNRELIABLE, dtype=torch.int8),
        notes=notes,
    )


def with_reverse_run(
    result: LogPartition, model: LogLinearEnergy, settings: SampledTraining, starts: Sequence[StartLaw], seed: int
) -> LogPartition:
    """The estimate with a sandwich from a shorter forward and reverse run; their disagreement is an error."""
    share = max(1.0, _FIRST[0] * _FIRST[1] * _REVERSE / settings.loss_budget)
    size = (max(16, round(_FIRST[0] / math.sqrt(share))), max(10, round(_FIRST[1] / math.sqrt(share))))
    runs = _Runs(model, settings, starts[0])
    ahead = log_mean_weight(runs.forward(size, seed_of(seed, 102))[1][None])
    behind = log_mean_weight(runs.backward(size, seed_of(seed, 103))[None])
    errors = [float(run.error[0]) if bool(run.is_reliable[0]) else math.inf for run in (ahead, behind)]
    parts = (ahead.value[0], errors[0], -behind.value[0], errors[1])
    sandwich = Sandwich(*(torch.tensor(float(v), dtype=torch.float64) for v in parts), start="tempered")
    gap = abs(float(behind.value[0] + result.value))
    own = float(result.std_error)
    error = math.hypot(own if math.isfinite(own) else 0.0, float(behind.error[0]))
    notes = tuple(note for note in result.notes if note != _ONE_SIDED)
    result = replace(result, sandwich=sandwich, notes=(*notes, _TEMPERED_NOTE))
    if not bool(behind.is_reliable[0]):
        return replace(result, notes=(*result.notes, "the weights of the reverse run support no error bar"))
    if gap <= _GAP * error + 1e-9:
        return result
    note = f"the reverse run is {gap:.3g} nats away, more than its error; a part of the law may be unseen"
    return _refused(result, max(gap, own), note)
