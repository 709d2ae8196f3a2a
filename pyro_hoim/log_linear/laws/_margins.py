"""Checks of marginal tables: shapes, sums, agreement, and membership of the interior of the marginal polytope.

Private to the package.
"""

from __future__ import annotations

import torch

from ...checks import check_finite
from ...errors import InputError, InputTypeError
from ...structure.hypergraph import InteractionHypergraph
from ..coding import parametrization
from .natural_parameters import consistent_margins, interior_margin

_BOUNDARY = 1e-9


def check_hypergraph(hypergraph: InteractionHypergraph) -> None:
    """Raise :class:`InputTypeError` unless the argument is a hypergraph."""
    if not isinstance(hypergraph, InteractionHypergraph):
        raise InputTypeError(f"hypergraph: expected an InteractionHypergraph, received {type(hypergraph).__name__}")


def check_conjugate_arguments(
    hypergraph: InteractionHypergraph, mean_statistics: torch.Tensor, prior_sample_size: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checked s and n0 of one dtype and device."""
    check_hypergraph(hypergraph)
    if not isinstance(mean_statistics, torch.Tensor) or not mean_statistics.is_floating_point():
        raise InputTypeError("mean_statistics: expected a tensor of floating-point numbers")
    s = mean_statistics
    if s.dim() == 0 or s.shape[-1] != hypergraph.num_terms:
        raise InputError(f"mean_statistics: expected shape (..., {hypergraph.num_terms}), received {tuple(s.shape)}")
    check_finite(s.detach(), "mean_statistics")
    n0 = torch.as_tensor(prior_sample_size, dtype=s.dtype, device=s.device)
    check_finite(n0.detach(), "prior_sample_size")
    if not bool((n0 > 0).all()):
        raise InputError(
            f"prior_sample_size: expected positive numbers, received {float(n0.min())}, which makes the prior improper"
        )
    if bool((s < 0).any()):
        raise InputError("mean_statistics: expected probabilities, received a negative entry")
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
            raise InputError(
                f"{argument}: the table of {':'.join(edge)} sums to {_first(table.sum(axes), gap):.6g}, expected "
                f"{_first(total.expand(gap.shape), gap):.6g}"
            )
        for i in range(len(edge)) if len(edge) > 1 else ():
            facet = edge[:i] + edge[i + 1 :]
            if facet in tables:
                gap = (table.sum(i - len(edge)) - tables[facet]).abs().flatten(1 - len(edge)).amax(-1)
                if bool((gap > tolerance).any()):
                    raise InputError(
                        f"{argument}: the table of {':'.join(edge)} summed over {edge[i]} differs from that of "
                        f"{':'.join(facet)} by {float(gap.max()):.3g}; expected the marginals of one law"
                    )


def _first(values: torch.Tensor, gap: torch.Tensor) -> float:
    """The value at the largest gap."""
    return float(values.reshape(-1)[int(gap.reshape(-1).argmax())])


def check_interior(hypergraph: InteractionHypergraph, s: torch.Tensor) -> bool | None:
    """True when every s of the batch is interior, None when undecided; raise when one is not."""
    zero = "the prior is improper: theta would be infinite; mix in a little of the uniform law's marginals"
    if bool((s <= 0).any()):
        index = int((s <= 0).nonzero()[0][-1])
        edge = next(e for e, part in hypergraph.term_slices.items() if part.start <= index < part.stop)
        raise InputError(f"mean_statistics: a cell of {':'.join(edge)} has probability zero; {zero}")
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
            raise InputError(
                "mean_statistics: expected a point in the interior of the marginal polytope, but "
                f"{fault}{precision}; {zero}"
            )
    return decided
