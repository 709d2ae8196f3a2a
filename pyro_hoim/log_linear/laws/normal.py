"""Normal priors over the free coordinates of a log-linear model: independent, and with scales of the horseshoe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from numbers import Integral, Real
from typing import Literal, TypeAlias, cast

import pyro
import torch
from pyro.distributions import HalfCauchy, Independent, InverseGamma, Normal  # pyright: ignore[reportAttributeAccessIssue]
from torch.nn.functional import pad

from ...checks import broadcast_shapes, is_hidden
from ...errors import check_choice, check_positive, check_type, conflict, out_of_range, refused, unexpected, wrong_type
from ...schema import Domain
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..coding import check_balanced_family

# The regularised horseshoe over interactions, where a child's scale is bounded by its parents'.

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
        local = pyro.sample(f"{self.prefix}own", HalfCauchy(one.expand(self.num_own)).to_event(1))
        half = self.slab_degrees / 2
        slab = pyro.sample(f"{self.prefix}slab", InverseGamma(half * one, half * self.slab_scale**2 * one))
        zeros = torch.zeros(self.hypergraph.num_parameters, dtype=torch.float64)
        direction = pyro.sample(f"{self.prefix}direction", Normal(zeros, 1.0).to_event(1))
        return pyro.deterministic(f"{self.prefix}theta", self.scales(overall, local, slab) * direction)

    @property
    def num_own(self) -> int:
        """Number of lambdas: interactions of two and more variables, or their coordinates."""
        if self.per == "edge":
            return self.hypergraph.num_interactions
        return self.hypergraph.num_parameters - _num_single(self.hypergraph)

    def scales(self, overall: torch.Tensor, local: torch.Tensor, slab: torch.Tensor) -> torch.Tensor:
        r"""Standard deviation of every coordinate of theta given tau, lambda and c squared.

        Shape:
            overall and slab (\*batch), own (\*batch, num_own); returns (\*batch, num_parameters), nats.
        """
        graph = self.hypergraph
        batch = broadcast_shapes(overall.shape, local.shape[:-1], slab.shape)
        log_own = -2 * (overall.unsqueeze(-1) * local).log().expand(*batch, self.num_own)
        # Edges stand in order of their sizes, so that what is not shrunk stands first.
        if self.per == "edge":
            log_own = graph.spread(pad(log_own, (len(graph) - self.num_own, 0)))
        else:
            log_own = pad(log_own, (_num_single(graph), 0))
        log_slab = -slab.log().expand(batch).unsqueeze(-1).expand(*batch, graph.num_parameters)
        # Edges before those that contain them.
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


# Independent normal priors over the free coordinates of a log-linear model.

_Value: TypeAlias = float | torch.Tensor
_Per: TypeAlias = Literal["edge", "coordinate"]


def normal_prior(
    hypergraph: InteractionHypergraph,
    scale: _Value | Mapping[int, _Value] | Mapping[Edge, _Value] = 1.0,
    *,
    per: _Per | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Independent:
    r"""Independent centred normals over the free coordinates, one scale per hyperedge or per coordinate.

    .. math:: \theta_{\mathrm{free}}^S \sim \mathcal N(0, \sigma_S^2 I), \qquad
        \log p = -\sum_S \frac{\lVert \theta^S_{\mathrm{balanced}} \rVert^2}{2 \sigma_S^2} + \text{const}

    With one scale per hyperedge the density depends on the balanced tables alone and does not change when levels are
    renamed. A scale of 1 puts a standard deviation of :math:`\sqrt 2` on a binary main effect's log odds and of 2 on a
    pair's log odds ratio. Scales may be random and carry gradients, as in hierarchical priors: draw one per hyperedge
    and hand the tensor over (horseshoe, automatic relevance determination), or one per order and hand over
    ``{1: first, 2: second}``.

    Args:
        hypergraph: the interactions.
        scale: standard deviations :math:`\sigma > 0` in nats: one number for all; ``{size of S: scale}`` for every
            size that occurs; ``{S: scale}`` for every hyperedge; or a tensor with one entry per hyperedge or per
            coordinate. Values of a mapping are numbers or tensors (*batch).
        per: what the last dimension of a tensor runs over, "edge" or "coordinate". None reads it from the length, which
            is refused where there are as many hyperedges as coordinates but not one each.
        dtype: floating dtype; that of the tensors, or PyTorch's default, when None.
        device: device of the parameters; that of the tensors when None.

    Shape:
        scale (), (*batch, num_edges) or (*batch, num_parameters); batch shape (*batch), event shape (num_parameters,).

    Raises:
        InputError: a scale that is not a positive finite number, a mapping that leaves out a hyperedge or names
            something else, or a tensor of another length. Tensors are not looked into where validation is switched off
            globally, as inside Pyro's MCMC.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
        >>> import pyro
        >>> def horseshoe():
        ...     overall = pyro.sample("overall", pyro.distributions.HalfCauchy(0.1))
        ...     own = pyro.sample("own", pyro.distributions.HalfCauchy(torch.ones(len(hypergraph))).to_event(1))
        ...     return pyro.sample("theta", normal_prior(hypergraph, overall * own, per="edge"))
        >>> horseshoe().shape
        torch.Size([5])
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    if per not in (None, "edge", "coordinate"):
        raise unexpected("per", "'edge', 'coordinate' or None", per, code="unknown-choice")
    # Scales of hyperedges, or of coordinates.
    if isinstance(scale, Mapping):
        # Checked scales (*batch, num_edges) from those of sizes or of hyperedges.
        given: dict[object, _Value] = {
            int(key) if isinstance(key, Integral) else tuple(cast("Edge", key)): value for key, value in scale.items()
        }
        keys = list(given)
        by_size = all(isinstance(key, int) for key in keys)
        wanted = [len(e) if by_size else e for e in hypergraph.edges]
        missing, unknown = sorted({str(k) for k in wanted if k not in keys}), [k for k in keys if k not in wanted]
        if missing or (unknown and not by_size):
            wrong = f"{', '.join(missing[:4])} is missing" if missing else f"{unknown[0]!r} is not a hyperedge"
            wanted = f"one entry per {'size of hyperedge' if by_size else 'hyperedge'}, {wrong}"
            raise unexpected("scale", wanted, code="missing-part" if missing else "unknown-name")
        scale, per = _values([given[key] for key in wanted]), "edge"
    elif not isinstance(scale, torch.Tensor) or scale.ndim == 0:
        scale, per = _values([scale]).expand(len(hypergraph)), "edge"
    else:
        _check(scale)
        # What the last dimension of a tensor runs over
        size = scale.shape[-1]
        sizes: dict[_Per, int] = {"edge": len(hypergraph), "coordinate": hypergraph.num_parameters}
        meanings: list[_Per] = [key for key in sizes if per in (None, key) and sizes[key] == size]
        if not meanings:
            wanted = " or ".join(f"{n} ({key}s)" for key, n in sizes.items() if per in (None, key))
            raise unexpected("scale", f"a last dimension of {wanted}", received=size, code="wrong-shape")
        if len(meanings) == 2 and any(math.prod(n - 1 for n in shape) != 1 for shape in hypergraph.edge_shapes):
            problem = (
                f"{size} entries may belong to the hyperedges or to the coordinates, of which there are as many but "
                "not one each"
            )
            raise conflict("scale", problem, "say per='edge' or per='coordinate'")
        per = meanings[0]
    scales = hypergraph.spread(scale) if per == "edge" else scale
    scales = scales.to(dtype=dtype, device=device)
    return Normal(torch.zeros_like(scales), scales).to_event(1)


def unit_information_prior(
    hypergraph: InteractionHypergraph,
    rows: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Independent:
    r"""Independent normals that know as much as some rows of a uniform table: a default for comparing structures.

    .. math:: \theta_{\mathrm{free}}^S \sim \mathcal N(0, \sigma_S^2 I), \qquad
        \sigma_S^2 = \frac{1}{m} \prod_{i \in S} I_i

    for m rows and variables of :math:`I_i` levels. The precision is that of m rows at the uniform law,
    :math:`m \nabla^2 \log Z(0)`, and this holds exactly, for any numbers of levels and any collection: the free basis
    of an interaction is a product of orthonormal contrasts that sum to zero, so that under the uniform law its
    coordinates, and those of different interactions, are uncorrelated with variance :math:`\prod_{i \in S} I_i^{-1}`.
    For binary variables it is the unit information prior of the literature; for more levels the same law in every
    basis that an orthogonal change of contrasts leads to. Its constant is known, unlike that of
    :class:`~pyro_hoim.log_linear.DiaconisYlvisaker` on collections that are not decomposable, and the law of the
    coordinates of an interaction does not depend on which others are present.

    Args:
        hypergraph: the interactions.
        rows: m, positive; 1 is the prior ``unit`` of :class:`~pyro_hoim.log_linear.Prior`.
        dtype: floating dtype; PyTorch's default when None.
        device: device of the parameters.

    Shape:
        batch shape (), event shape (num_parameters,).

    Raises:
        InputError: ``rows`` is not a positive finite number.
        InputTypeError: ``hypergraph`` is none.

    References:
        Petros Dellaportas and Jonathan Forster, Markov chain Monte Carlo model determination for hierarchical and
        graphical log-linear models, Biometrika 86, 1999, section 3; Robert Kass and Larry Wasserman, A reference
        Bayesian test for nested hypotheses and its relationship to the Schwarz criterion, JASA 90, 1995.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
        >>> unit_information_prior(hypergraph).variance.round()
        tensor([2., 3., 3., 6., 6.])
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    check_balanced_family(hypergraph, "the unit information prior")
    check_positive(rows, "rows")
    strengths = unit_strengths(hypergraph.domain, hypergraph.edges, rows)
    values = [strength**-0.5 for strength in strengths.values()]
    scales = torch.tensor(values, dtype=dtype or torch.get_default_dtype(), device=device)
    return normal_prior(hypergraph, scales, per="edge")


def unit_strengths(domain: Domain, edges: Sequence[Edge], rows: float = 1.0) -> dict[Edge, float]:
    """Information of some rows of a uniform table about a free coordinate of every set: rows over its cells."""
    return {edge: rows / math.prod(domain[name].cardinality for name in edge) for edge in edges}


def _values(values: list[_Value]) -> torch.Tensor:
    """Checked numbers and tensors (*batch) side by side (*batch, len(values)); the dtype is that of the tensors."""
    for value in values:
        _check(value)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    dtype = reduce(torch.promote_types, [t.dtype for t in tensors]) if tensors else torch.get_default_dtype()
    device = tensors[0].device if tensors else None
    placed = [torch.as_tensor(value, dtype=dtype, device=device) for value in values]
    return torch.stack(torch.broadcast_tensors(*placed), -1) if placed else torch.empty(0, dtype=dtype)


def _check(value: object) -> None:
    """Refuse what is no scale; tensors are looked into unless validation is switched off globally."""
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point():
            raise wrong_type("scale", "floating-point numbers", received=f"dtype {value.dtype}")
        if not torch.distributions.Distribution._validate_args or is_hidden(value):
            return
        is_good = torch.isfinite(value) & (value > 0)
        if not bool(is_good.all()):
            worst = value[~is_good][0]
            raise out_of_range("scale", "positive finite numbers", received=f"{float(worst):g}")
    elif isinstance(value, bool) or not isinstance(value, Real):
        raise wrong_type("scale", "a number, a mapping to numbers or a tensor", value)
    elif not (math.isfinite(value) and float(value) > 0):
        raise out_of_range("scale", "positive finite numbers", value)
