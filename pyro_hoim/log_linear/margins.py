"""Marginal tables given as numbers: do they belong to one table? Private to the package."""

from __future__ import annotations

import torch

from ..errors import unexpected
from ..structure.hypergraph import Edge, InteractionHypergraph
from .coding import parametrization

__all__ = ["MARGIN_TOLERANCE", "check_margins", "margin_fault"]

MARGIN_TOLERANCE = 1e-8
"""Relative difference that adding up many counts in double precision may leave."""


def margin_fault(
    hypergraph: InteractionHypergraph, margins: torch.Tensor, total: torch.Tensor, tolerance: torch.Tensor
) -> str | None:
    """What margins (*batch, num_terms) have that those of one table could not, beyond a tolerance (*batch), or None.

    Two tables agree when each sums to the same table of the variables they have in common. The tables are summed down
    one axis at a time, and every result is compared with the first one found for its variables; for decomposable
    collections that suffices for a common table to exist, for others it is necessary. Cost: O(closure of the tables).
    """
    found: dict[Edge, tuple[torch.Tensor, Edge]] = {}
    for edge, table in parametrization(hypergraph).split(margins).items():
        found[edge] = table, edge
        sums = table.sum(list(range(-len(edge), 0)))
        gap = (sums - total).abs()
        if bool((gap > tolerance).any()):
            worst = int(gap.argmax())
            sizes = (float(part.expand_as(gap).flatten()[worst]) for part in (sums, total))
            return f"a table of {':'.join(edge)} that sums to {'{:.6g}, not {:.6g}'.format(*sizes)}"
    pending = list(found)
    while pending:
        names = pending.pop()
        table, source = found[names]
        for axis in range(len(names)) if len(names) > 1 else ():
            rest = names[:axis] + names[axis + 1 :]
            margin = table.sum(axis - len(names))
            if rest not in found:
                found[rest] = margin, source
                pending.append(rest)
                continue
            known, other = found[rest]
            gap = (margin - known).abs().flatten(-len(rest)).amax(-1)
            if bool((gap > tolerance).any()):
                tables = f"{':'.join(other)} and {':'.join(source)}"
                return f"tables of {tables} that differ by {float(gap.max()):.4g} over {':'.join(rest)}"
    return None


def check_margins(
    hypergraph: InteractionHypergraph,
    margins: torch.Tensor,
    total: torch.Tensor,
    tolerance: torch.Tensor,
    argument: str,
) -> None:
    """Refuse what :func:`margin_fault` finds."""
    if fault := margin_fault(hypergraph, margins, total, tolerance):
        hint = "count all from the same rows"
        raise unexpected(argument, "margins of one table", hint=hint, received=fault, code="other-domain")
