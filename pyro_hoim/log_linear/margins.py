"""Marginal tables given as numbers: do they belong to one table? Private to the package."""

from __future__ import annotations

import torch

from ..errors import refused, unexpected
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["MARGIN_TOLERANCE", "check_margins", "margin_tolerance"]

MARGIN_TOLERANCE = 1e-8
"""Relative difference that adding up many counts in double precision may leave."""


def margin_tolerance(dtype: torch.dtype) -> float:
    """Relative difference between two margins of one table that is rounding, for tables given in a dtype."""
    return max(MARGIN_TOLERANCE, 64 * torch.finfo(dtype).eps)


def check_margins(hypergraph: InteractionHypergraph, margins: torch.Tensor, argument: str) -> None:
    """Refuse marginal tables that differ in their sum or in a margin they share.

    Two tables agree when each sums to the same table of the variables they have in common. The tables are summed down
    one axis at a time, and every result is compared with the first one found for its variables; for decomposable
    collections that suffices for a common table to exist, for others it is necessary. Cost: O(closure of the tables).

    Shape:
        margins (num_terms,), any floating-point dtype; differences up to :func:`margin_tolerance` of its dtype,
        relative to the largest sum, count as rounding.
    """
    slices = list(hypergraph.term_slices.items())
    shapes = hypergraph.edge_shapes
    totals = [margins[where].to(torch.float64).sum() for _, where in slices]
    if not totals:
        return
    low, high = float(min(totals)), float(max(totals))
    tolerance = margin_tolerance(margins.dtype) * high
    if high - low > tolerance:
        expected = "every margin to sum to the number of rows"
        raise unexpected(argument, expected, received=f"sums from {low:g} to {high:g}", code="missing-part")
    found: dict[tuple[str, ...], tuple[torch.Tensor, tuple[str, ...]]] = {
        edge: (margins[where].to(torch.float64).reshape(shape), edge)
        for (edge, where), shape in zip(slices, shapes, strict=True)
    }
    pending = [edge for edge, _ in slices]
    while pending:
        names = pending.pop()
        table, source = found[names]
        for axis in range(len(names)) if len(names) > 1 else ():
            rest = names[:axis] + names[axis + 1 :]
            margin = table.sum(axis)
            if rest not in found:
                found[rest] = (margin, source)
                pending.append(rest)
                continue
            known, other = found[rest]
            gap = float((margin - known).abs().max())
            if gap > tolerance:
                problem = (
                    f"expected margins of one table, but those of {':'.join(other)} and {':'.join(source)} differ by "
                    f"{gap:.4g} over {':'.join(rest)}"
                )
                raise refused(argument, problem, "count both from the same rows", code="other-domain")
