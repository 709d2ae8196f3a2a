"""Checks of marginal tables: shapes, sums, agreement, and membership of the interior of the marginal polytope."""

from __future__ import annotations

import torch

from ...checks import check_dense, check_finite, check_shape, checked_floating
from ...data.encoding import LARGEST_COUNT
from ...errors import check_type, out_of_range, refused, wrong_type
from ...structure.hypergraph import InteractionHypergraph
from ..coding import check_balanced_family
from ..margins import check_margins
from .natural_parameters import consistent_margins, interior_margin

_BOUNDARY = 1e-9


def check_conjugate_arguments(
    hypergraph: InteractionHypergraph, mean_statistics: torch.Tensor, prior_sample_size: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checked s and n0 of one dtype and device."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    check_balanced_family(hypergraph, "the conjugate prior")
    s = checked_floating(mean_statistics, "mean_statistics")
    check_shape(s, (hypergraph.num_terms,), "mean_statistics")
    check_finite(s.detach(), "mean_statistics")
    if isinstance(prior_sample_size, torch.Tensor):
        check_dense(prior_sample_size, "prior_sample_size")
    try:
        n0 = torch.as_tensor(prior_sample_size, dtype=s.dtype, device=s.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise wrong_type("prior_sample_size", "a positive number, or a tensor of them", prior_sample_size) from error
    check_finite(n0.detach(), "prior_sample_size")
    if not bool((n0 > 0).all()):
        found = f"{float(n0.min())}, which makes the prior improper"
        raise out_of_range("prior_sample_size", "positive numbers", received=found)
    if bool((n0 > LARGEST_COUNT).any()):
        raise out_of_range("prior_sample_size", f"at most {LARGEST_COUNT}", received=float(n0.max()))
    if bool((s < 0).any()):
        raise out_of_range("mean_statistics", "probabilities", received="a negative entry")
    one = torch.ones_like(n0)
    check_margins(hypergraph, s.detach(), one, rounding(one), "mean_statistics")
    return s, n0


def rounding(total: torch.Tensor) -> torch.Tensor:
    """Difference between the margins of one table that is rounding, (*batch)."""
    return (1e-9 if total.dtype == torch.float64 else 1e-4) * (1 + total)


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
            raise refused("mean_statistics", problem, code="out-of-range")
    return decided
