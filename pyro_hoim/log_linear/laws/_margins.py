"""Checks of marginal tables: shapes, sums, agreement, and membership of the interior of the marginal polytope."""

from __future__ import annotations

import torch

from ...checks import check_finite, check_shape
from ...errors import check_type, out_of_range, refused, wrong_type
from ...structure.hypergraph import InteractionHypergraph
from ..coding import parametrization
from .natural_parameters import consistent_margins, interior_margin

_BOUNDARY = 1e-9


def check_hypergraph(hypergraph: InteractionHypergraph) -> None:
    """Raise :class:`InputTypeError` unless the argument is a hypergraph."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")


def check_conjugate_arguments(
    hypergraph: InteractionHypergraph, mean_statistics: torch.Tensor, prior_sample_size: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checked s and n0 of one dtype and device."""
    check_hypergraph(hypergraph)
    if not isinstance(mean_statistics, torch.Tensor) or not mean_statistics.is_floating_point():
        raise wrong_type("mean_statistics", "a tensor of floating-point numbers")
    s = mean_statistics
    check_shape(s, (hypergraph.num_terms,), "mean_statistics")
    check_finite(s.detach(), "mean_statistics")
    n0 = torch.as_tensor(prior_sample_size, dtype=s.dtype, device=s.device)
    check_finite(n0.detach(), "prior_sample_size")
    if not bool((n0 > 0).all()):
        found = f"{float(n0.min())}, which makes the prior improper"
        raise out_of_range("prior_sample_size", "positive numbers", received=found)
    if bool((s < 0).any()):
        raise out_of_range("mean_statistics", "probabilities", received="a negative entry")
    check_margins(hypergraph, s.detach(), torch.ones_like(n0), "mean_statistics")
    return s, n0


def check_margins(hypergraph: InteractionHypergraph, flat: torch.Tensor, total: torch.Tensor, argument: str) -> None:
    """Raise unless every table sums to the total and every pair of nested tables agrees."""
    tolerance = (1e-9 if flat.dtype == torch.float64 else 1e-4) * (1 + total)
    tables = parametrization(hypergraph).split(flat)
    for edge, table in tables.items():
        axes = list(range(-len(edge), 0))
        gap = (table.sum(axes) - total).abs()
        if bool((gap > tolerance).any()):
            raise refused(
                argument,
                f"the table of {':'.join(edge)} sums to {_first(table.sum(axes), gap):.6g}, expected "
                f"{_first(total.expand(gap.shape), gap):.6g}",
            )
        for i in range(len(edge)) if len(edge) > 1 else ():
            facet = edge[:i] + edge[i + 1 :]
            if facet in tables:
                gap = (table.sum(i - len(edge)) - tables[facet]).abs().flatten(1 - len(edge)).amax(-1)
                if bool((gap > tolerance).any()):
                    problem = (
                        f"the table of {':'.join(edge)} summed over {edge[i]} differs from that of {':'.join(facet)} "
                        f"by {float(gap.max()):.3g}; expected the marginals of one law"
                    )
                    raise refused(argument, problem, code="other-domain")


def _first(values: torch.Tensor, gap: torch.Tensor) -> float:
    """The value at the largest gap."""
    return float(values.reshape(-1)[int(gap.reshape(-1).argmax())])


def check_interior(hypergraph: InteractionHypergraph, s: torch.Tensor) -> bool | None:
    """True when every s of the batch is interior, None when undecided; raise when one is not."""
    zero = "the prior is improper: theta would be infinite; mix in a little of the uniform law's marginals"
    if bool((s <= 0).any()):
        index = int((s <= 0).nonzero()[0][-1])
        edge = next(e for e, part in hypergraph.term_slices.items() if part.start <= index < part.stop)
        raise refused("mean_statistics", f"a cell of {':'.join(edge)} has probability zero; {zero}", code="impossible")
    if hypergraph.is_decomposable:
        return True
    decided: bool | None = True
    # Tables of single precision agree up to its rounding, which moves the margin by about as much.
    boundary = max(_BOUNDARY, torch.finfo(s.dtype).eps)
    for row in consistent_margins(hypergraph, s.reshape(-1, hypergraph.num_terms).unique(dim=0)):
        margin = interior_margin(hypergraph, row)
        if margin is None:
            decided = None
        elif margin <= boundary:
            fault = "no table has these margins" if margin < -boundary else "every table with these margins has a zero"
            precision = "" if s.dtype == torch.float64 else f" to the precision of {s.dtype}"
            problem = f"expected a point in the interior of the marginal polytope, but {fault}{precision}; {zero}"
            raise refused("mean_statistics", problem)
    return decided
