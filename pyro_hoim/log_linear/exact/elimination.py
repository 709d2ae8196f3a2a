"""Exact inference by variable elimination."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from typing_extensions import override

from ...checks import checked_sample_shape
from ...core.model import LogLinearModel
from ...core.partition import (
    Cost,
    ExactBackend,
    LogPartition,
    check_any_possible,
    check_model,
    is_recorded,
    may_have_zeros,
)
from ...errors import check_choice, other_domain, out_of_range, size_text, unexpected
from ...structure.hypergraph import InteractionHypergraph
from . import _linear_space as linear_space, _log_space as log_space
from ._program import BucketPlan, memory_cells, sliced_plan

Task = Literal["value", "gradient", "states"]


_WORDS: dict[Task, str] = {
    "value": "log Z alone",
    "gradient": "log Z and all marginals",
    "states": "the messages that states are drawn from",
}


@dataclass(frozen=True)
class VariableElimination(ExactBackend):
    r"""Exact inference by summing variables out one at a time (bucket elimination).

    .. math:: m_k(x_{C_k \setminus v_k}) = \sum_{x_{v_k}} \prod_{f \in \text{bucket } k} f(x), \qquad
        Z = \prod_{\text{roots}} m

    Cost is exponential in the induced width of the structure only: time and memory are those of the tables formed,
    known before running (:meth:`plan`). When the largest exceeds ``max_cells``, a few variables are conditioned on
    and looped over (slicing), which trades time for memory. Samples are independent draws, made against the order of
    elimination; the mode is found by max-product in the same way. Exact, to rounding, at any scale of parameters.

    Args:
        max_cells: largest table allowed.
        max_slices: largest number of slices allowed.
        max_operations: largest number of operations of log Z, all slices together; about a nanosecond each.
        max_memory_bytes: largest memory of one element of the batch, counted in float64: buffers of log Z with all
            marginals (:meth:`plan`), of log Z alone where no gradient is asked for, or what log space holds.
        order: names of variables in the order of elimination; default: a good one is searched for. Names that a
            structure lacks, or that are kept, are passed over; variables that are not named come last, in a good order.
        space: ``auto`` computes in scaled linear space with compiled loops on the CPU, in log space with PyTorch on
            other devices and where the range of the tables would underflow; ``log`` always in log space.

    Raises:
        InputError: an option that is not positive; a name that is repeated in ``order``; on use, an order that names
            no variable of the structure.

    References:
        Rina Dechter, Bucket elimination: a unifying framework for reasoning, Artificial Intelligence 113, 1999.
        Steffen Lauritzen and David Spiegelhalter, Local computations with probabilities on graphical structures and
        their application to expert systems, Journal of the Royal Statistical Society B 50, 1988.

    Example:
        >>> from pyro_hoim import Domain, LogLinearEnergy
        >>> domain = Domain.from_cardinalities([2] * 40)
        >>> chain = InteractionHypergraph(domain, zip(domain.names, domain.names[1:]), closure=True)
        >>> model = LogLinearEnergy(chain, torch.zeros(chain.num_terms, dtype=torch.float64))
        >>> round(float(VariableElimination().log_partition(model).value) / math.log(2), 6)
        40.0
    """

    max_cells: int = 2**26
    max_slices: int = 2**10
    max_operations: int = 2**37
    max_memory_bytes: int = 2**32
    order: tuple[str, ...] | None = None
    space: Literal["auto", "log"] = "auto"

    def __post_init__(self) -> None:
        for name in ("max_cells", "max_slices", "max_operations", "max_memory_bytes"):
            if getattr(self, name) < 1:
                raise out_of_range(f"VariableElimination {name}", "at least 1", received=getattr(self, name))
        check_choice(self.space, ("auto", "log"), "VariableElimination space")
        if self.order is not None:
            object.__setattr__(self, "order", tuple(self.order))
            if len(set(self.order)) < len(self.order):
                raise unexpected("VariableElimination order", "each name once", self.order, code="repeated-name")

    @override
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        return self._cost(self._plan(hypergraph, keep))

    def operations(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> int:
        """Operations of log Z, all slices together: :meth:`plan`'s ``flops``, without working out its memory."""
        plan = self._plan(hypergraph, keep)
        return plan.flops * plan.num_slices

    def _plan(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> BucketPlan:
        if self.order and len(hypergraph.domain) and set(self.order).isdisjoint(hypergraph.domain.names):
            expected = f"names of the variables, such as {hypergraph.domain.names[0]!r}"
            raise other_domain("VariableElimination order", expected, received=f"none of them in {self.order}")
        positions = hypergraph.domain.indices(keep)
        return sliced_plan(hypergraph, positions, self.order, self.max_cells, self.max_slices)

    def _memory(self, plan: BucketPlan, task: Task, linear: bool) -> int:
        """Bytes in float64 of one element of the batch: of the program's buffers, or of the tables of log space."""
        terms = plan.hypergraph.num_terms
        if plan.keep or task == "states" or not linear:
            return 8 * log_space.cells_alive(plan, task == "gradient")
        if task == "value":
            return 8 * (memory_cells(plan)[0] + terms)
        return 8 * (memory_cells(plan)[1] + (1 + plan.num_slices) * terms)

    def _cost(self, plan: BucketPlan, task: Task = "gradient", linear: bool | None = None) -> Cost:
        names = plan.hypergraph.domain.names
        flops = plan.flops * plan.num_slices
        sliced = f", in {plan.num_slices} slices" if plan.slices else ""
        needed = plan.largest_cells
        memory = 8 * log_space.cells_alive(plan, False)
        # The first budget that is exceeded refuses; memory is counted where the others allow the run.
        lacking = None
        if needed > self.max_cells:
            few = f"{self.max_cells} and {self.max_slices} slices do not suffice"
            lacking = (
                f"a table of {size_text(needed, 'cells')}, the budget is {few}",
                "(max_cells=...) or (max_slices=...)",
            )
        elif flops > self.max_operations:
            what = f"{size_text(flops, 'operations')}{sliced}, the budget is {self.max_operations}"
            lacking = what, "(max_operations=...) or (max_cells=...)"
        else:
            memory = self._memory(plan, task, self.space == "auto" if linear is None else linear)
            if memory > self.max_memory_bytes:
                size = f"{memory} bytes (about {memory / 2**30:.3g} GiB in float64)"
                what = f"{size} for {_WORDS[task]}{sliced}, the budget is {self.max_memory_bytes}"
                lacking = what, "(max_memory_bytes=...)"
        reason = f"the largest table has {needed} cells{sliced}, within the budget of {self.max_cells}"
        return Cost(
            cells=needed,
            total_cells=plan.total_cells * plan.num_slices,
            flops=flops,
            memory_bytes=memory,
            feasible=lacking is None,
            reason=f"elimination needs {lacking[0]}" if lacking else reason,
            method="variable elimination",
            order=tuple(names[v] for v in plan.order),
            slices=tuple(names[v] for v in plan.slices),
            hint=f"raise VariableElimination{lacking[1]}, or use fewer interactions" if lacking else None,
        )

    def _ready(
        self, model: LogLinearModel, task: Task | None = None, keep: Sequence[str] = ()
    ) -> tuple[BucketPlan, Cost, torch.Tensor]:
        """Plan, its cost, that of the task (of log Z) being within the budget, and tables as (B, num_terms)."""
        check_model(model)
        task = task or ("gradient" if is_recorded(model.tables) else "value")
        plan = self._plan(model.hypergraph, keep)
        tables = model.tables.reshape(math.prod(model.tables.shape[:-1]), model.hypergraph.num_terms)
        cost = self._cost(plan)
        linear = self._is_linear(tables)
        if not (cost.feasible and linear) or plan.keep or task == "states":
            self._cost(plan, task, linear).check()
        return plan, cost, tables

    def _is_linear(self, tables: torch.Tensor) -> bool:
        return self.space == "auto" and linear_space.is_supported(tables)

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        plan, cost, tables = self._ready(model)
        log_z = linear_space.log_z if self._is_linear(tables) else log_space.log_z
        value = log_z(plan, tables).reshape(model.tables.shape[:-1])
        return LogPartition.exact(value, cost, model.hypergraph.coding)

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        plan, _, tables = self._ready(model, "gradient")
        if self._is_linear(tables):
            return linear_space.expectations(plan, tables).reshape(model.tables.shape)
        if may_have_zeros(tables):
            check_any_possible(log_space.log_z(plan, tables.detach()))
        return linear_space.differentiable_expectations(plan, tables).reshape(model.tables.shape)

    @override
    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        plan, _, tables = self._ready(model, keep=names)
        joint = log_space.log_z(plan, tables)
        flat = joint.reshape(joint.shape[0], plan.size(plan.keep))
        log_z = torch.logsumexp(flat, -1, keepdim=True)
        check_any_possible(log_z)
        result = flat - log_z
        return result.reshape((*model.tables.shape[:-1], *joint.shape[1:]))

    @override
    @torch.no_grad()
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        check_model(model)
        sample_shape = checked_sample_shape(
            sample_shape, math.prod(model.tables.shape[:-1]) * len(model.hypergraph.domain)
        )
        plan, _, tables = self._ready(model, "states")
        # In linear space where that is faster and the range of the numbers suffices, else in log space.
        num_draws = math.prod(sample_shape)
        linear = num_draws and self._is_linear(tables)
        linear = linear and linear_space.is_faster(plan, len(tables), self.max_memory_bytes)
        drawn = [linear_space.sample(plan, t, num_draws, generator) if linear else None for t in tables.detach()]
        missing = [b for b, part in enumerate(drawn) if part is None]

        def draw(log_weights: torch.Tensor) -> torch.Tensor:
            cumulative = torch.softmax(log_weights.double(), -1).cumsum(-1)
            shape, last = (len(log_weights), 1), log_weights.shape[-1] - 1
            uniform = torch.rand(shape, dtype=torch.float64, device=log_weights.device, generator=generator)
            return (uniform * cumulative[:, -1:] >= cumulative[:, :last]).sum(-1)

        if missing:
            check_any_possible(log_space.log_z(plan, tables[missing]))
        parts = iter(log_space.trace_back(plan, tables[missing], num_draws, draw, log_space.log_sum).unbind(1))
        states = [next(parts) if part is None else part for part in drawn]
        d = len(model.hypergraph.domain)
        joined = torch.stack(states, 1) if states else tables.new_zeros(num_draws, 0, d, dtype=torch.long)
        return joined.reshape(*sample_shape, *model.tables.shape[:-1], d)

    @override
    @torch.no_grad()
    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:
        plan, _, tables = self._ready(model, "states")
        batch = model.tables.shape[:-1]
        value = log_space.log_z(plan, tables, log_space.log_max)
        check_any_possible(value)
        states = log_space.trace_back(plan, tables, 1, lambda w: w.argmax(-1), log_space.log_max)
        return states.reshape(*batch, len(model.hypergraph.domain)), value.reshape(batch)
