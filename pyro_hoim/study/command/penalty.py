"""Fits within norm balls at the command line: sparse, low-rank, and sums of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ...core.command.options import only
from ...core.command.rows import ALL_TRAIN, Fractions, LabelledPlan, Missing, Table
from ...core.family import Asked, Option, Request
from ...core.words import option
from ...data.observations import Observations
from ...errors import conflict, out_of_range, out_of_reach
from ...log_linear.auto import Auto
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.fitting.result import FitResult
from ...log_linear.tensors.layout import check_binary
from ...runs.checkpoint import RunOptions
from ...structure.hypergraph import InteractionHypergraph
from ..analysis import Analysis, analyse
from ..constrained.record import ConstrainedRecord, Constraint, as_fit, fit_constrained

__all__ = ["PENALTY_OPTIONS", "PenaltyPlan", "plan_penalty"]

PENALTY_OPTIONS = (
    Option(
        "penalty",
        "Of a table with two levels a column: fit all interactions of up to {order} variables by pseudo-likelihood "
        "within norm balls. A bounds the l1 norm of a sparse part, B the overlapped Schatten 1 norm of a low-rank one; "
        "they are radii, in nats of corner coding, not strengths of a penalty.",
        metavar="l1:A|low-rank:B|sparse-low-rank:A,B",
    ),
)

_OTHERS = {
    "edges": "gives single interactions",
    "posterior": "draws a posterior",
    "prior": "makes estimates finite in another way",
}


@dataclass(frozen=True)
class PenaltyPlan(LabelledPlan):
    """A fit of all interactions up to an order within norm balls."""

    shares: ClassVar[Fractions | None] = ALL_TRAIN

    constraint: Constraint

    def complete(self, source: Table) -> Table:
        """The table without missing cells; refused where it has not two levels a column, or the order does not fit."""
        table = source.complete(Missing.parse(self.asked["missing"]), option("penalty", self.constraint.text))
        self._structure(table.rows)
        return table

    def run(self, request: Request) -> Analysis:
        """Fit, and set beside it what the page shows."""
        rows: Observations = request.parts["train"]
        structure = self._structure(rows)
        cost = Auto().plan(structure)
        if not cost.feasible:
            hint = f"use fewer {option('columns')} or a lower {option('order')}, or call frank_wolfe() of the library"
            raise out_of_reach(f"log Z of the fit by {option('penalty', self.constraint.text)}", cost.reason, hint)
        records: list[ConstrainedRecord] = []

        run = RunOptions(request.checkpoint / "penalty.safetensors", request.resume, request.progress)

        def estimate(graph: InteractionHypergraph, data: Observations) -> FitResult:
            record = fit_constrained(data, graph.order, self.constraint, run)
            records.append(record)
            model: LogLinearEnergy = record.result.model
            return as_fit(record, data, float(Auto().log_partition(model).value))

        shares = zip(request.parts.items(), request.fractions, strict=True)
        analysis = analyse(
            {part: rows_of for (part, rows_of), share in shares if share},
            {f"order {structure.order} within {self.constraint.text}": structure},
            target=self.asked["target"],
            seed=request.seed,
            title=request.source.name,
            about=request.about,
            run=RunOptions(request.checkpoint, request.resume, request.progress),
            estimate=estimate,
        )
        return replace(analysis, constrained=records[0])

    def _structure(self, data: Observations) -> InteractionHypergraph:
        """All interactions up to the order."""
        check_binary(data.domain, "penalty")
        num = len(data.domain)
        order = 2 if (given := only(self.asked, "order")) is None else given
        if num < 2:
            raise out_of_range("penalty", "a table of two columns or more", received=num)
        if not 2 <= order <= num:
            expected = f"2 to {num} (the number of variables) with {option('penalty', self.constraint.text)}"
            raise out_of_range("order", expected, received=order)
        return InteractionHypergraph.from_order(data.domain, order)


def plan_penalty(asked: Asked) -> PenaltyPlan | None:
    """Options checked against each other; None where no norm balls were asked for."""
    if asked["penalty"] is None:
        return None
    constraint = Constraint.parse(asked["penalty"], "penalty")
    for name, does in _OTHERS.items():
        if asked[name]:
            raise conflict("penalty", f"fits all interactions within norm balls, received {option(name)}, which {does}")
    for name in ("chains", "draws", "burn_in", "jobs"):
        if name in asked.given:
            raise conflict(name, f"has no use with {option('penalty', constraint.text)}")
    if asked.split is not None and asked.split[1]:
        problem = f"{option('penalty', constraint.text)} has no use for validation rows"
        raise conflict("split", problem, "make its second fraction 0")
    return PenaltyPlan(asked, constraint)
