"""What a site contributes to a full conditional: its log-probability, with a log Z only where that matters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from pyro.distributions.util import scale_and_mask

from ...log_linear.laws.backends import is_exact_for
from ._discrete_sites import DiscreteSite, Visit, split_law

Node = Mapping[str, Any]


def log_z_factors(node: Node) -> tuple[tuple[Any, int], ...]:
    """All that decides how much the log Z of a log-linear site contributes, empty for another site."""
    law, mask = split_law(node["fn"])
    return () if law is None else ((law.theta, 1), (mask, 0), (node["mask"], 0), (node["scale"], 0))


def needs_log_z(nodes: list[Node]) -> bool:
    """Whether the log Z of a site contributes differently to some runs of the program."""
    first = log_z_factors(nodes[0])
    return any(
        not _is_equal(part, other)
        for node in nodes[1:]
        for (part, _), (other, _) in zip(first, log_z_factors(node), strict=True)
    )


def _is_equal(part: Any, other: Any) -> bool:
    if isinstance(part, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(part, other)
    return part is other or (type(part) is type(other) and part == other)


def has_estimate(fn: Any) -> bool:
    """Whether the log-probability of a distribution holds a log Z that its backend estimates."""
    while fn is not None:
        partition, hypergraph = getattr(fn, "partition", None), getattr(fn, "hypergraph", None)
        if partition is not None and hypergraph is not None:
            return not is_exact_for(partition, hypergraph)
        fn = getattr(fn, "base_dist", None)
    return False


def log_prob_of(node: Node, with_log_z: bool) -> torch.Tensor:
    """Log-probability of a site, that of a log-linear law up to its constant unless that is wanted."""
    law, mask = split_law(node["fn"])
    if law is None:
        term = node["fn"].log_prob(node["value"], *node["args"], **node["kwargs"])
    else:
        term = law.log_prob(node["value"]) if with_log_z else -law.energy(node["value"])
        term = scale_and_mask(term, mask=mask)
    return scale_and_mask(term, node["scale"], node["mask"])


def own_log_prob(node: Node, visit: Visit, value: torch.Tensor, site: DiscreteSite) -> torch.Tensor:
    """Log conditional of a block under the law of its own site, (candidates, rows), float64."""
    law, mask = split_law(node["fn"])
    assert law is not None
    table = law.energy_model.block_conditional(visit.names, value)
    table = table.reshape(*site.batch_shape, -1).movedim(-1, 0)
    table = scale_and_mask(scale_and_mask(table, mask=mask), node["scale"], node["mask"])
    return table.expand(table.shape[0], *site.batch_shape).reshape(len(visit.candidates), site.num_rows).double()


def without_nan(logits: torch.Tensor) -> torch.Tensor:
    """NaN counts as probability zero, as a divergence does in HMC."""
    return torch.where(logits.isnan(), -math.inf, logits)


def is_same_law(found: torch.Tensor, expected: torch.Tensor, error: float) -> bool:
    """Whether two rows of logits (1, candidates) agree up to a constant and rounding."""
    found, expected = without_nan(found), without_nan(expected)
    best = int(expected.argmax())
    if not math.isfinite(float(expected[0, best])):
        return True  # an impossible state tells nothing
    found, expected = found - found[:, best], expected - expected[:, best]
    is_equal = (found == expected) | ((found - expected).abs() <= 1e-4 + error)
    return bool(is_equal.all())
