"""Annealed backends of every family: runs, gradient, and the verdict on runs that gives log Z its error bar."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .. import budgets
from ..core.partition import Certificate, Cost, LogPartition, Sandwich, certificate, log_z_with_gradient
from ..core.words import in_python
from ..errors import ConvergenceWarning, out_of_reach
from .mode_checks import THIN, Ends, Weighed, explored, first_to_weigh, weighed
from .runs import AnnealedModel, AnnealingOptions, Reverse, Run, Traits, derived, drawn_seed, forward, reverse
from .weights import (
    MIN_CHAINS,
    Flags,
    Floats,
    WeightEstimate,
    acceptance_ratio,
    island_means,
    log_mean_lower_limit,
    log_mean_weight,
    one_sided_limits,
)

# The verdict on annealed runs, whatever was annealed: from runs, forward and reverse, to an estimate of log Z.

METHOD = "annealed importance sampling"

GAP = 4.0  # errors between two estimates that count as agreement; normal ones would part once in 16,000 runs
_GAP_NOTE = (
    "{{which}}forward and reverse runs disagree by more than their errors, or hardly overlap, so that at least one has "
    "not seen the whole law; {advice}"
)
_COMBINE_NOTE = "{which}combine=True would report both runs together, for which there is an error bar"
TEMPERED_NOTE = (
    "the reverse run started from tempered runs, not from perfect samples, so that a mode that no chain found would "
    "stay unseen; the upper limit rests on there being none"
)
_UNSEEN = 1.0  # chains' worth of the law in the error: five of them, or more, go unseen in 0.7 % of the runs at most
_FEW = 8  # batch elements that get a note of their own
_BEATEN_NOTE = (
    "the state {state} alone has log q = {log_q:.6g}, all states met together {bound:.6g}, a lower bound of log Z; the "
    "runs found {value:.6g}: they have missed the part of the model that this state belongs to"
)
_MISSED_NOTE = (
    "{which}runs from the modes that a search found give log Z = {more:.6g}, the run from the reference {value:.6g}: "
    "it has missed a mode, such as that of {state}"
)
_UNWEIGHED_NOTE = (
    "{which}modes found, not weighed: a search found modes, such as {state}, in which hardly a chain ended, and runs "
    "from there support no estimate of their weight; log Z may be up to {more:.6g} or more, the runs found {value:.6g}"
)
_COMPLETE_NOTE = "{which}every state of the model was met, so that log Z is their sum"
_RUNS = 6  # phases with runs of their own
_FEWEST = 64  # chains of such a run, where there are as many
ONE_SIDED_NOTE = "there was no reverse run, so that a mode that no chain found would stay unseen"


class Checks(NamedTuple):
    """What is known of B models besides the weights of the runs."""

    certificate: Certificate  # what the states met prove
    weighed: Weighed | None  # what runs from the modes found say; None where none were made
    rounding: Floats  # error of the arithmetic, (B,), nats
    best_states: tuple[str, ...]  # the best state of every model in words
    missed_note: str = _MISSED_NOTE  # on what contradicts the main run


class Weights(NamedTuple):
    """Log Z0 (B,), log weights (B, chains) of forward and of reverse runs, if any, and where all of these started."""

    log_z0: Floats
    ahead: Floats
    behind: Floats | None
    start: Literal["exact", "tempered"] = "exact"


def rows(values: torch.Tensor) -> Floats:
    """Values (B, n) as an array."""
    return values.cpu().numpy()


def estimate_of(options: AnnealingOptions, log_weights: Floats) -> WeightEstimate:
    """Estimate from log weights (B, chains); islands are the independent parts when there is resampling."""
    groups = options.num_groups
    return log_mean_weight(island_means(log_weights, groups), 1 if groups is None else options.num_chains // groups)


def _moved(
    model: AnnealedModel, run: Run, starts: NDArray[np.generic], sweeps: int, looks: int, stream: int
) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
    """:class:`~pyro_hoim.annealing.mode_checks.Moved`, as many chains at a time as the budget of cells holds."""
    batch, number, size = starts.shape
    most = max(1, budgets.MAX_CELLS // max(1, batch * size))
    parts = list[list[np.ndarray]]()
    for k, part in enumerate(np.array_split(starts, max(1, -(-number // most)), axis=1)):
        chains, at_looks = model.chains_at(run, part, stream + 100 * k), list[tuple[np.ndarray, np.ndarray]]()
        for look in range(looks):
            chains.sweep(THIN if look else sweeps)
            at_looks.append((chains.states.cpu().numpy(), rows(chains.log_q)))
        parts.append([np.stack(column) for column in zip(*at_looks, strict=True)])
    states, log_q = (np.concatenate(column, 2) for column in zip(*parts, strict=True))
    return states, log_q


def judged(runs: Sequence[Run], behind: Sequence[Reverse] | None, like: torch.Tensor, cost: Cost) -> LogPartition:
    """The result of forward and perhaps reverse runs, of one or more parts of a batch, as of :func:`result_of`."""
    is_perfect = all(run.start == "exact" for run in behind or [])
    weights = Weights(
        np.concatenate([rows(run.model.log_z0) for run in runs]),
        np.concatenate([rows(run.log_weights) for run in runs]),
        None if behind is None else np.concatenate([rows(run.log_weights) for run in behind]),
        "exact" if is_perfect else "tempered",
    )
    checks = list(map(checked, runs, behind or [None] * len(runs)))
    # The checks of all parts of a batch; where runs from modes were made for some, the others passed them
    columns = zip(*(astuple(part.certificate) for part in checks), strict=True)
    proof = Certificate(*map(np.concatenate, columns))
    weighed: Weighed | None = None
    if any(part.weighed is not None for part in checks):
        nothing = Weighed(np.zeros(1, dtype=bool), np.zeros(1, dtype=bool), np.full(1, -np.inf), np.zeros(1))
        columns = zip(*(part.weighed or nothing for part in checks), strict=True)
        weighed = Weighed(*map(np.concatenate, columns))
    words = tuple(state for part in checks for state in part.best_states)
    return result_of(
        runs[0].model.options,
        runs[0].model.traits,
        weights,
        Checks(proof, weighed, np.concatenate([part.rounding for part in checks]), words),
        like,
        cost,
    )


def checked(run: Run, reverse: Reverse | None) -> Checks:
    """States met and looked for, and where the reverse run had no perfect samples, runs from the modes weighed."""
    model, options = run.model, run.model.options
    traits = model.traits
    ascents = model.ascend(run)
    if ascents is None:
        return checks_of(run, Certificate.none(len(run.ends)), None)
    # All states met, and what these prove.
    met = [(run.ends, run.log_q), ascents, *([] if reverse is None else [(reverse.states, reverse.log_q)])]
    proof = certificate([states for states, _ in met], [log_q for _, log_q in met], traits.cardinalities)
    of_modes: Weighed | None = None
    is_open = estimate_of(options, rows(run.log_weights)).is_reliable & ~proof.is_complete
    # Phases that ascents lead to, and runs of their own from the heaviest.
    if reverse is not None and reverse.start == "tempered" and is_open.any():
        main = Ends(rows(run.log_weights + model.log_z0[:, None]), rows(run.ends), rows(run.log_q), options.num_groups)
        random = np.random.default_rng(derived(run.seed, 11))
        count = options.num_chains
        phases = explored(rows(ascents[0]), partial(_moved, model, run), model.fitted, count, traits.distance, random)
        phases = first_to_weigh(phases, main, traits.distance)
        number = max(1, min(_RUNS, len(phases.ceiling), count // _FEWEST))
        starts = phases.states[:number, :, np.arange(count // number) % phases.states.shape[2]]
        of_modes = weighed(main, phases, model.mode_runs(run, starts), traits.distance)
    return checks_of(run, proof, of_modes)


def checks_of(run: Run, proof: Certificate, weighed: Weighed | None, missed_note: str = _MISSED_NOTE) -> Checks:
    """What the states met and other runs say about a forward run, with the error of its arithmetic."""
    rounding = run.model.traits.conditional_error * math.sqrt(run.ends.shape[-1]) * rows(run.slope).std(-1)
    has_states = np.isfinite(proof.best_log_q)
    rounding = rounding + np.where(has_states, np.finfo(np.float64).eps * np.abs(proof.best_log_q), 0)
    return Checks(proof, weighed, rounding, tuple(map(run.model.describe, proof.best)), missed_note)


def result_of(
    options: AnnealingOptions, traits: Traits, weights: Weights, checks: Checks, like: torch.Tensor, cost: Cost
) -> LogPartition:
    """The result of runs over a batch of B models, with the verdict on its error.

    It has the shape (*batch), dtype and device of ``like``; ``cost`` is that of a forward run.
    """
    log_z0, log_weights, behind, start = weights
    advice = traits.advice
    forward, notes = estimate_of(options, log_weights), _Notes(like.numel())
    notes.add(~forward.is_reliable, _weight_note(forward, options, advice))

    def shaped(values: Floats) -> torch.Tensor:
        return torch.from_numpy(values).to(like.device, like.dtype).reshape(like.shape)

    # Forward runs alone, or both directions held against each other.
    is_perfect = behind is not None and start == "exact"
    sandwich = None
    if behind is None:
        best, reliable = forward, forward.is_reliable
        lower, upper = one_sided_limits(forward, options.level, reliable)
        notes.lines.append(ONE_SIDED_NOTE)
    else:
        back = log_mean_weight(behind)
        compared = _compared(options, (log_weights, forward), (behind, back), traits.is_reversible)
        best, lower, upper, reliable = compared[:4]
        if options.combine:
            notes = _Notes(like.numel())
        elif is_perfect and (words := in_python(_COMBINE_NOTE)):  # no command combines runs
            notes.add(compared.is_joint & ~reliable, words)
        notes.add(~compared.agree, _GAP_NOTE.format(advice=advice))
        parts = (forward.value + log_z0, forward.error, log_z0 - back.value, back.error)
        sandwich = Sandwich(*map(shaped, parts), start=start)
        notes.lines.append(_perfect_note(options) if is_perfect else TEMPERED_NOTE)
    # Errors of the arithmetic and of what perfect starts may not have met are part of the error.
    rounding = np.hypot(np.finfo(np.float64).eps * np.abs(log_z0), checks.rounding)
    unseen = _UNSEEN / options.num_chains if is_perfect else 0.0
    outcome = _Outcome(
        best.value + log_z0, np.sqrt(best.error**2 + rounding**2 + unseen**2), lower + log_z0, upper + log_z0, reliable
    )
    outcome = _with_checks(outcome, checks, notes, is_perfect)
    if not traits.is_connected:
        outcome = outcome._replace(reliable=outcome.reliable & checks.certificate.is_complete)
    notes.lines += [traits.caution] if traits.caution else []
    # Verified is what was listed, or runs from perfect samples that agree; the rest is consistent at best.
    precision = torch.finfo(like.dtype).eps * np.abs(outcome.value)
    is_known = checks.certificate.is_complete
    verified = outcome.reliable & (is_known | is_perfect)
    return LogPartition(
        shaped(outcome.value),
        "biased",
        shaped(np.where(outcome.reliable, np.hypot(outcome.error, precision), np.inf)),
        shaped(best.ess),
        shaped(outcome.lower),
        shaped(outcome.upper),
        cost,
        METHOD,
        coding=traits.coding,
        lower_bound=shaped(checks.certificate.bound),
        verdicts=torch.from_numpy(outcome.reliable.astype(np.int8) + verified).to(like.device).reshape(like.shape),
        notes=tuple(notes.lines),
        sandwich=sandwich,
    )


class _Compared(NamedTuple):
    """Estimate of Z / Z0, limits of its log, whether to believe the error, whether the runs agree, and support one."""

    best: WeightEstimate
    lower: Floats
    upper: Floats
    reliable: Flags
    agree: Flags
    is_joint: Flags


def _compared(
    options: AnnealingOptions,
    ahead: tuple[Floats, WeightEstimate],
    behind: tuple[Floats, WeightEstimate],
    is_reversible: bool,
) -> _Compared:
    """Forward and reverse runs, log weights and the estimates from these, held against each other."""
    (log_weights, forward), back = ahead, behind[1]
    agree = _is_close(forward.value, -back.value, forward.error, back.error) | ~back.is_reliable
    both, is_joint = forward, np.zeros_like(agree)
    if options.resample_below is None and is_reversible:
        # The acceptance ratio needs no well-behaved reverse weights, so it is a second test; the reverse estimate
        # itself is the first, where its weights allow.
        both = acceptance_ratio(log_weights, behind[0])
        agree = agree & _is_close(forward.value, both.value, forward.error, both.error) & both.is_reliable
        is_joint = both.is_reliable
    independent = log_weights if options.resample_below is None else None
    # The lower limit from the forward run and the upper one from the reverse run; Markov's where these would cross.
    closer = [None if logs is None else log_mean_lower_limit(logs, options.level) for logs in (independent, behind[0])]
    lower, upper, is_apart = np.zeros_like(forward.value), np.zeros_like(forward.value), agree
    for _ in range(2):
        lower = _limit(closer[0], forward, options.level, forward.is_reliable & is_apart)
        upper = -_limit(closer[1], back, options.level, back.is_reliable & is_apart)
        is_apart = is_apart & (lower <= upper)
    if options.combine:
        return _Compared(both, lower, upper, both.is_reliable, both.is_reliable, is_joint)
    best = forward._replace(error=np.maximum(forward.error, np.abs(forward.value - both.value)))
    return _Compared(best, lower, upper, forward.is_reliable & agree, agree, is_joint)


class _Outcome(NamedTuple):
    """An estimate, its error, limits and whether these are to be believed; arrays (B,)."""

    value: Floats
    error: Floats
    lower: Floats
    upper: Floats
    reliable: Flags


def _with_checks(outcome: _Outcome, checks: Checks, notes: _Notes, is_perfect: bool) -> _Outcome:
    """The outcome in the light of the states that were met and of the runs from modes."""
    value, error, lower, upper, reliable = outcome
    proof = checks.certificate
    slack = 1e-9 * (1 + np.abs(proof.bound))
    # States met outweigh the estimate.
    is_beaten = proof.bound > np.where(reliable, np.maximum(upper, value + GAP * error), value) + slack
    is_beaten &= ~proof.is_complete
    for i in np.flatnonzero(is_beaten).tolist():
        text = _BEATEN_NOTE.format(
            state=checks.best_states[i], log_q=proof.best_log_q[i], bound=proof.bound[i], value=value[i]
        )
        notes.lines.append(text if len(value) == 1 else f"batch element {i}: {text}")
        if len(value) > _FEW:
            break
    # Runs from modes contradict it, or could not weigh a mode.
    if checks.weighed is not None:
        modes = checks.weighed
        contradicted = reliable & ~is_beaten & modes.is_contradicted
        unweighed = reliable & ~is_beaten & ~contradicted & modes.is_unweighed
        for where, text in ((contradicted, checks.missed_note), (unweighed, _UNWEIGHED_NOTE)):
            if where.any():
                i = int(where.argmax())
                facts = {"value": value[i], "more": modes.log_z[i], "state": checks.best_states[i]}
                notes.add(where, text.format(which="{which}", **facts))
        is_beaten = is_beaten | contradicted | unweighed
        error, upper = np.hypot(error, modes.unseen), upper + modes.unseen
        value = np.where(contradicted, modes.log_z, value)
    if not is_perfect:  # the upper limit of perfect starts rests on nothing that the checks have refuted
        upper = np.where(is_beaten, np.inf, upper)
    # The sum of the states met bounds everything, and is all where every state was met.
    reliable = reliable & ~is_beaten
    error = np.maximum(error, proof.bound - value)
    value, lower, upper = (np.maximum(part, proof.bound) for part in (value, lower, upper))
    known = proof.is_complete
    notes.add(known, _COMPLETE_NOTE)
    value, lower, upper = (np.where(known, proof.bound, part) for part in (value, lower, upper))
    return _Outcome(value, np.where(known, slack / 1e3, error), lower, upper, reliable | known)


def _is_close(first: Floats, second: Floats, error: Floats, other: Floats) -> Flags:
    return np.abs(first - second) <= GAP * np.hypot(error, other) + 1e-9


def _limit(closer: Floats | None, estimate: WeightEstimate, level: float, trusted: Flags) -> Floats:
    """Lower limit of the log of the expected weight: Markov's or, where weights (None: only islands) allow, closer."""
    if closer is None:
        return one_sided_limits(estimate, level, trusted)[0]
    markov = estimate.value + math.log1p(-level)
    return np.where(trusted, np.maximum(markov, closer), markov)


def _perfect_note(options: AnnealingOptions) -> str:
    unseen = -math.expm1(math.log1p(-options.level) / options.num_chains)
    return (
        f"the reverse run started from {options.num_chains} perfect samples; limits allow for the share of the model, "
        f"up to {unseen:.2g} at level {options.level:g}, that so many cannot be sure to meet"
    )


def _weight_note(estimate: WeightEstimate, options: AnnealingOptions, advice: str) -> str:
    if options.num_chains < MIN_CHAINS:
        return (
            f"{{which}}{options.num_chains} {'chain is' if options.num_chains == 1 else 'chains are'} too few for an "
            f"error bar; use at least {MIN_CHAINS}"
        )
    effective = f"{float(estimate.ess.min()):.3g} effective of {options.num_chains} chains"
    return (
        f"{{which}}weights are uneven: down to {effective}, the largest holds up to {float(estimate.share.max()):.0%} "
        f"of the weight, or their logarithms spread too far for so few chains; {advice}"
    )


class _Notes:
    """Sentences about a result, with the number of batch elements they are true of."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.lines: list[str] = []

    def add(self, where: Flags, text: str) -> None:
        """A sentence that is true where the mask (B,) is."""
        number = int(where.sum())
        if number:
            which = "" if self._count == 1 else f"{number} of {self._count} batch elements: "
            self.lines.append(text.format(which=which))


# What the annealed backends of all families share: runs, gradient, verdict and warning.

_STREAM = 1000  # apart are the random streams of two models of a call


class _Constant(torch.autograd.Function):  # pyright: ignore[reportUntypedBaseClass]
    """Estimated expectations, which depend on the tables but have no derivative."""

    @staticmethod
    def forward(ctx: Any, tables: torch.Tensor, values: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ARG004
        raise out_of_reach(
            "log_partition",
            "an estimate or bound of log Z is differentiable once; eta, marginals and second derivatives have no "
            "gradient. Use an exact backend such as Auto() where one is within its budget, or detach() the value",
        )


constant: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _Constant.apply
"""``values`` as a function of the tables that raises :class:`IntractableError` when it is differentiated."""


@dataclass(frozen=True)
class AnnealedBackend(AnnealingOptions):
    """Annealed importance sampling by the engine, for a family that gives :class:`AnnealedModel`."""

    _remedies: ClassVar[str] = "use more temperatures or resampling"

    @property
    def is_exact(self) -> bool:
        """Always false: results are random estimates."""
        return False

    def _forward(self, models: Sequence[AnnealedModel]) -> list[Run]:
        """One forward run for each model; without a seed in the options a fresh one is drawn."""
        seed = drawn_seed(None) if self.seed is None else self.seed
        return [forward(model, derived(seed, i * _STREAM)) for i, model in enumerate(models)]

    def _weighted(self, models: Sequence[AnnealedModel]) -> list[Run]:
        """Forward runs, with a warning where their weights are degenerate."""
        runs = self._forward(models)
        reliable = (bool(estimate_of(self, rows(run.log_weights)).is_reliable.all()) for run in runs)
        if not all(reliable) or not all(model.traits.is_connected for model in models):
            self._warn()
        return runs

    def _estimated(
        self,
        models: Sequence[AnnealedModel],
        parameters: torch.Tensor,
        cost: Cost,
        slope: Callable[[Sequence[Run]], torch.Tensor],
    ) -> LogPartition:
        """Log Z of all models together, differentiable in parameters (*batch, num_terms) with the slope of the runs."""
        differentiable = torch.is_grad_enabled() and parameters.requires_grad
        runs = self._forward(models)
        slopes = slope(runs) if differentiable else None
        wanted = self.combine or (not differentiable if self.reverse == "auto" else self.reverse)
        # The verdict, and the gradient that the weighted chains give.
        like = parameters.detach().new_zeros(parameters.shape[:-1])
        result = judged(runs, [reverse(run) for run in runs] if wanted else None, like, cost)
        if slopes is not None:
            found_once = result.value, slopes
            value = log_z_with_gradient(parameters, lambda _: found_once, lambda t: constant(t, slopes))
            result = replace(result, value=value)
        if result.verdict == "unreliable":
            self._warn()
        return result

    def _warn(self) -> None:
        hint = f"see the notes of log_partition; {self._remedies}, or an exact backend with a larger budget"
        warning = ConvergenceWarning("the estimate is unreliable", argument=type(self).__name__, hint=hint)
        warnings.warn(warning, stacklevel=4)
