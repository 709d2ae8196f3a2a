"""Annealed estimates of log Z that stay within the limits that mini-buckets prove."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from typing_extensions import override

from ...annealing.backend import GAP, constant
from ...core.model import LogLinearModel
from ...core.partition import Cost, LogPartition, PlannedBackend, Verdict, check_any_possible, check_model
from ...errors import ConvergenceWarning, caller_level
from ...structure.hypergraph import InteractionHypergraph
from ..annealed.importance import AnnealedImportance
from ..energy import LogLinearEnergy
from .importance import BucketImportance


@dataclass(frozen=True)
class BoundedAnnealing(PlannedBackend):
    """Importance sampling from mini-buckets, and annealed runs where that is not verified.

    For each element of the batch the estimate with the better verdict is taken, of equal ones that with the smaller
    error. Both limits hold together. An annealed estimate outside the limits of the mini-buckets, which hold without
    assumptions, is never taken. Where an annealed estimate that is not unreliable contradicts them, the result is
    unreliable and has the limits of the mini-buckets.

    Args:
        buckets: what is tried first.
        annealed: what follows; draws are those of its chains.
    """

    buckets: BucketImportance
    annealed: AnnealedImportance

    @property
    @override
    def is_exact(self) -> bool:
        return False

    @property
    def seed(self) -> int | None:
        """Seed of the mini-buckets; None where either estimate takes fresh random numbers."""
        return None if self.annealed.seed is None else self.buckets.seed

    @property
    def burn_in(self) -> int:
        """Sweeps of the chains that draws are the ends of."""
        return self.annealed.burn_in

    @override
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        first, then = self.buckets.plan(hypergraph, keep=keep), self.annealed.plan(hypergraph, keep=keep)
        refusing = next((cost for cost in (first, then) if not cost.feasible), None)
        return Cost(
            cells=max(first.cells, then.cells),
            total_cells=first.total_cells + then.total_cells,
            flops=first.flops + then.flops,
            memory_bytes=max(first.memory_bytes, then.memory_bytes),
            feasible=refusing is None,
            reason=f"{first.reason}; annealed runs follow where that is not verified"
            if not refusing
            else refusing.reason,
            method=f"{first.method}, then {then.method}",
            hint=None if refusing is None else refusing.hint,
        )

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        """The better estimate in nats, value (*batch), differentiable once in the tables.

        Warns:
            ConvergenceWarning: the verdict is "unreliable".
        """
        check_model(model)
        cost = self.plan(model.hypergraph).check()
        first = self.buckets.unwarned(model)
        if bool((first.verdicts == Verdict.VERIFIED).all()):
            return replace(first, cost=cost)
        with warnings.catch_warnings():  # the warning is about both together
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = better_of(first, self.annealed.log_partition(model))
        if result.verdict == Verdict.UNRELIABLE.word:
            hint = "see the notes of log_partition; raise max_cells of the buckets or num_temperatures of the runs"
            warning = ConvergenceWarning("the estimate is unreliable", argument=type(self).__name__, hint=hint)
            warnings.warn(warning, stacklevel=caller_level())
        return replace(result, cost=cost)

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        """Expectations by the estimate that is taken, flat (*batch, num_terms)."""
        check_model(model)
        leaf = LogLinearEnergy._trusted(model.hypergraph, model.tables.detach().requires_grad_())
        with torch.enable_grad():
            value = self.log_partition(leaf).value
            check_any_possible(value)
            (eta,) = torch.autograd.grad(value.sum(), leaf.tables)
        return constant(model.tables, eta) if model.tables.requires_grad else eta

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        """Joint probabilities of ``names``, by the annealed chains unless the buckets are verified for the batch."""
        probs, is_verified = self.buckets.verified_marginal(model, names)
        return probs if is_verified else self.annealed.marginal(model, names)

    @override
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        return self.annealed.sample(model, sample_shape, generator)

    @override
    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:
        return self.annealed.mode(model)


def better_of(first: LogPartition, then: LogPartition) -> LogPartition:
    """The better of an estimate whose limits hold without assumptions and another, for each element of the batch."""
    value, other = first.value.detach(), then.value.detach()
    verdicts, grades = first.verdicts, then.verdicts.to(first.verdicts.device)
    error, spread = torch.as_tensor(first.std_error).to(value), torch.as_tensor(then.std_error).to(value)
    is_open = verdicts != Verdict.VERIFIED
    is_believed = is_open & (grades != Verdict.UNRELIABLE)
    is_inside = (other >= first.lower) & (other <= first.upper)
    is_better = (grades > verdicts) | ((grades == verdicts) & (spread < error))
    is_taken = is_open & is_inside & is_better
    # Two estimates that both count as right are not far apart, and the limits of one reach those of the other.
    is_apart = (other - value).abs() > GAP * torch.hypot(error, spread)
    is_against = is_believed & (is_apart | (then.lower > first.upper) | (then.upper < first.lower))
    is_taken = is_taken & ~is_against
    chosen = torch.where(is_taken, other, value)
    is_joined = is_believed & is_inside & ~is_against
    lower = torch.where(is_joined, torch.minimum(torch.maximum(first.lower, then.lower), chosen), first.lower)
    upper = torch.where(is_joined, torch.maximum(torch.minimum(first.upper, then.upper), chosen), first.upper)
    std_error = torch.where(is_taken, spread, error)
    notes = [*first.notes, *(f"annealed runs: {note}" for note in then.notes)]
    for at in is_against.nonzero().tolist():
        index, which = tuple(at), f" of element {', '.join(map(str, at))}" if at else ""
        shown = [f"{float(part[index]):.6g}" for part in (other, first.lower, first.upper)]
        notes.append(
            f"the annealed estimate {shown[0]}{which} contradicts the limits of the mini-buckets, {shown[1]} to "
            f"{shown[2]}, or the estimate between them: these limits alone hold"
        )
    bounds = [bound for bound in (first.lower_bound, then.lower_bound) if bound is not None]
    methods = [result.method for result, has in ((first, ~is_taken), (then, is_taken)) if bool(has.any())]
    return replace(
        then if bool(is_taken.any()) else first,
        value=torch.where(is_taken, then.value, first.value),
        std_error=torch.where(is_against, torch.inf, std_error),
        ess=first.ess if first.ess is None or then.ess is None else torch.where(is_taken, then.ess, first.ess),
        lower=lower,
        upper=upper,
        verdicts=torch.where(is_against, int(Verdict.UNRELIABLE), torch.where(is_taken, grades, verdicts)),
        method=" and ".join(methods),
        notes=tuple(notes),
        lower_bound=torch.stack(bounds).amax(0) if bounds else None,
        upper_bound=first.upper_bound,
        sandwich=then.sandwich,
    )
