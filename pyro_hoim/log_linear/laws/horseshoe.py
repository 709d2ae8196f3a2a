"""The regularised horseshoe over interactions, where a child's scale is bounded by its parents'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyro
import torch
from pyro.distributions import HalfCauchy, InverseGamma, Normal  # pyright: ignore[reportAttributeAccessIssue]
from torch.nn.functional import pad

from ...errors import check_choice, check_positive, check_type, refused
from ...structure.hypergraph import Edge, InteractionHypergraph

__all__ = ["HorseshoePrior", "horseshoe_prior"]

Per = Literal["edge", "coordinate"]


@dataclass(frozen=True, eq=False)
class HorseshoePrior:
    r"""The part of a Pyro program that draws theta from :func:`horseshoe_prior`; call it where theta is needed.

    Its sites are, behind ``prefix``, ``overall`` (tau), ``own`` (lambda), ``slab`` (c squared) and ``direction`` (a
    standard normal); ``theta`` is kept as a deterministic site. Nothing else is random.

    Attributes:
        hypergraph: the interactions.
        overall_scale: scale of the half-Cauchy law of tau.
        slab_scale: scale of the slab, nats.
        slab_degrees: degrees of freedom of the slab.
        per: what has a lambda of its own.
        has_heredity: whether scales of interactions are bounded by those of their parts.
        prefix: in front of the names of the sites.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> prior = horseshoe_prior(graph, prefix="h.")
        >>> sites = pyro.poutine.trace(prior).get_trace().nodes
        >>> [name for name in sites if name.startswith("h.")], prior.num_own
        (['h.overall', 'h.own', 'h.slab', 'h.direction', 'h.theta'], 1)
    """

    hypergraph: InteractionHypergraph
    overall_scale: float
    slab_scale: float
    slab_degrees: float
    per: Per
    has_heredity: bool
    prefix: str

    def __call__(self) -> torch.Tensor:
        """Draw theta in the free coding, (num_parameters,), float64."""
        one = torch.ones((), dtype=torch.float64)
        overall = pyro.sample(f"{self.prefix}overall", HalfCauchy(self.overall_scale * one))
        own = pyro.sample(f"{self.prefix}own", HalfCauchy(one.expand(self.num_own)).to_event(1))
        half = self.slab_degrees / 2
        slab = pyro.sample(f"{self.prefix}slab", InverseGamma(half * one, half * self.slab_scale**2 * one))
        zeros = torch.zeros(self.hypergraph.num_parameters, dtype=torch.float64)
        direction = pyro.sample(f"{self.prefix}direction", Normal(zeros, 1.0).to_event(1))
        return pyro.deterministic(f"{self.prefix}theta", self.scales(overall, own, slab) * direction)

    @property
    def num_own(self) -> int:
        """Number of lambdas: interactions of two and more variables, or their coordinates."""
        if self.per == "edge":
            return self.hypergraph.num_interactions
        return self.hypergraph.num_parameters - _num_single(self.hypergraph)

    def scales(self, overall: torch.Tensor, own: torch.Tensor, slab: torch.Tensor) -> torch.Tensor:
        r"""Standard deviation of every coordinate of theta given tau, lambda and c squared.

        Shape:
            overall and slab (\*batch), own (\*batch, num_own); returns (\*batch, num_parameters), nats.
        """
        graph = self.hypergraph
        batch = torch.broadcast_shapes(overall.shape, own.shape[:-1], slab.shape)
        log_own = -2 * (overall.unsqueeze(-1) * own).log().expand(*batch, self.num_own)
        # Edges stand in order of their sizes, so that what is not shrunk stands first.
        if self.per == "edge":
            log_own = graph.spread(pad(log_own, (len(graph) - self.num_own, 0)))
        else:
            log_own = pad(log_own, (_num_single(graph), 0))
        log_slab = -slab.log().expand(batch).unsqueeze(-1).expand(*batch, graph.num_parameters)
        blocks: dict[Edge, torch.Tensor] = {}
        for (edge, where), shape in zip(graph.parameter_slices.items(), graph.edge_shapes, strict=True):
            free = [n - 1 for n in shape]
            # Precisions of the slab, of lambda and of the parents add up; their logarithms cannot overflow.
            terms = [log_slab[..., where]]
            if len(edge) > 1:
                terms.append(log_own[..., where])
            for k in range(len(edge) if self.has_heredity and len(edge) > 2 else 0):
                if (parent := edge[:k] + edge[k + 1 :]) in blocks:
                    wide = blocks[parent].unsqueeze(len(batch) + k).expand(*batch, *free)
                    terms.append(wide.flatten(len(batch)))
            blocks[edge] = torch.stack(terms).logsumexp(0).reshape(*batch, *free)
        parts = [block.reshape(*batch, -1) for block in blocks.values()]
        return (-torch.cat([log_slab[..., :0], *parts], -1) / 2).exp()


def horseshoe_prior(
    hypergraph: InteractionHypergraph,
    *,
    overall_scale: float = 0.1,
    slab_scale: float = 2.0,
    slab_degrees: float = 4.0,
    per: Per = "edge",
    has_heredity: bool = True,
    prefix: str = "",
) -> HorseshoePrior:
    r"""A regularised horseshoe over theta: most interactions near zero, a few free, none beyond the slab.

    .. math:: \theta_j \sim \mathcal N(0, \sigma_j^2), \qquad
        \frac{1}{\sigma_j^2} = \frac{1}{\tau^2 \lambda_j^2} + \frac{1}{c^2} + \sum_{T} \frac{1}{\sigma_{j(T)}^2},
        \qquad \tau \sim C^+(0, \tau_0), \quad \lambda \sim C^+(0, 1), \quad
        c^2 \sim \mathrm{IG}(\nu / 2, \nu s^2 / 2)

    Without the sum this is the regularised horseshoe. The sum runs over the parents T of the interaction, its subsets
    of one variable less that have two variables or more, each with the coordinate j(T) that forgets the missing
    variable: a child's scale is below every parent's, and below the smallest of k parents by a factor of at most
    :math:`\sqrt{k + 1}` for a free lambda. Single variables have the slab alone. Sites are drawn uncentred, which NUTS
    needs.

    Args:
        hypergraph: the interactions.
        overall_scale: :math:`\tau_0`; the smaller, the fewer interactions are free.
        slab_scale: s, nats: what a free interaction's coordinates are expected to be.
        slab_degrees: :math:`\nu`; the larger, the lighter the tails of the slab.
        per: "edge" gives all coordinates of an interaction one lambda (the group horseshoe), "coordinate" each its own.
        has_heredity: False leaves the sum out.
        prefix: in front of the names of the sites.

    Raises:
        InputError: scales or degrees that are not positive, an unknown ``per``, or a collection without interactions.
        InputTypeError: no hypergraph.

    References:
        Juho Piironen and Aki Vehtari, Sparsity information and regularization in the horseshoe and other shrinkage
        priors, Electronic Journal of Statistics 11, 2017, equations 2.8 and 3.12.

    Example:
        >>> from pyro_hoim import Domain, LogLinearStatistics
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 2]), 3)
        >>> prior = horseshoe_prior(hypergraph)
        >>> def program(counts, total):
        ...     pyro.sample("counts", LogLinearStatistics(hypergraph, prior(), total), obs=counts)
        >>> sigma = prior.scales(torch.tensor(1.0), torch.tensor([1.0, 2.0, 3.0, 9.0]), torch.tensor(4.0))
        >>> bool(sigma[-1] < sigma[3:6].min())
        True
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    for name, value in (("overall_scale", overall_scale), ("slab_scale", slab_scale), ("slab_degrees", slab_degrees)):
        check_positive(value, name)
    check_choice(per, ("edge", "coordinate"), "per")
    if not hypergraph.num_interactions:
        raise refused("hypergraph", "it has no interactions to shrink", code="empty")
    return HorseshoePrior(hypergraph, overall_scale, slab_scale, slab_degrees, per, has_heredity, prefix)


def _num_single(hypergraph: InteractionHypergraph) -> int:
    """Number of coordinates of single variables."""
    slices = hypergraph.parameter_slices
    return sum(where.stop - where.start for edge, where in slices.items() if len(edge) < 2)
