r"""Closed forms of the conjugate prior on decomposable collections: the hyper-Dirichlet law.

A decomposable law factorises over the nodes of a junction tree, :math:`p(x) = \prod_C p(x_{R} \mid x_{S})` with
clique C, separator S to the parent and residual R = C - S. Under the conjugate prior with pseudo-counts
:math:`\alpha = n_0 s` these conditional tables are independent Dirichlet vectors, one for every clique and every cell
of its separator. A saturated collection is the case of one clique. The coordinates theta of all functions are those
of the ``free`` coding (:mod:`pyro_hoim.log_linear.coding`), and densities are with respect to Lebesgue measure
on them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import torch

from ...errors import IntractableError
from ...structure.hypergraph import Edge, InteractionHypergraph


@lru_cache(maxsize=256)
def log_jacobian(hypergraph: InteractionHypergraph) -> float:
    r"""Log of the constant Jacobian of the linear map from the free to the corner coding.

    .. math:: \log \left|\det \frac{\partial \theta_{\mathrm{corner}}}{\partial \theta_{\mathrm{free}}}\right|
        = \frac12 \sum_{S} \sum_{k \in S} \Big(\prod_{j \in S - k} (I_j - 1)\Big) \log I_k

    The map is triangular over the hyperedges; the block of S is the product over its axes of (differences from
    level 0) times (orthonormal contrasts), a square matrix of determinant :math:`\pm\sqrt{I_k}`.
    """
    total = 0.0
    for shape in hypergraph.edge_shapes:
        if min(shape) > 1:
            free = math.prod(n - 1 for n in shape)
            total += sum(0.5 * free / (n - 1) * math.log(n) for n in shape)
    return total


def log_normaliser(hypergraph: InteractionHypergraph, counts: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    r"""Log (*batch) of the integral of the conjugate kernel of counts (*batch, num_terms), total (*batch); exact.

    .. math:: \log \int e^{\alpha \cdot \theta - n_0 \log Z(\theta)} \, d\theta
        = \sum_{C} \Big( \sum_{i} \log\Gamma(\alpha^C_i) - \sum_{j} \log\Gamma(\alpha^{S_C}_j) \Big)
        - n_0 \sum_{k\ \mathrm{free}} \log I_k - \log \left|\det \partial \theta_{\mathrm{corner}} /
        \partial \theta_{\mathrm{free}}\right|

    over the cliques C of a junction tree with separators :math:`S_C`, where the empty separator of a root counts as
    one cell of :math:`n_0`; variables k in no hyperedge are uniform. Given the corner coordinates the
    Jacobian to the logits of the conditional tables is 1, as it is triangular from the leaves of the tree upwards.

    References:
        Hélène Massam, Jinnan Liu and Adrian Dobra, A conjugate prior for discrete hierarchical log-linear models,
        Annals of Statistics 37, 2009, section 4. A. P. Dawid and S. L. Lauritzen, Hyper Markov laws in the
        statistical analysis of decomposable graphical models, Annals of Statistics 21, 1993, section 3.
    """
    # Variables in no edge are uniform; each clique is Dirichlet given its separator.
    covered = {name for edge in hypergraph.edges for name in edge}
    value = -sum(math.log(v.cardinality) for v in hypergraph.domain if v.name not in covered) * total - log_jacobian(
        hypergraph
    )
    for _, table, residual in _nodes(hypergraph, counts):
        separator = table.sum(residual)
        value = value + _sum_cells(torch.lgamma(table), table.dim() - total.dim())
        value = value - _sum_cells(torch.lgamma(separator), separator.dim() - total.dim())
    return value


def sample_tables(
    hypergraph: InteractionHypergraph, counts: torch.Tensor, sample_shape: Sequence[int] = ()
) -> torch.Tensor:
    r"""Perfect draws (*sample_shape, *batch, num_terms) of the log conditional tables of a hyper-Dirichlet law.

    They are :math:`\log p(x_R \mid x_S)` at the cliques and zero elsewhere, so that their sum over hyperedges is
    log p(x) up to the constant of the variables in no hyperedge. They are not balanced.
    """
    wide = counts.expand(*sample_shape, *counts.shape)
    tables = torch.zeros_like(wide)
    for clique, table, residual in _nodes(hypergraph, wide):
        gamma = torch.distributions.Gamma(table + 1, torch.ones_like(table), validate_args=False).sample()
        log_gamma = gamma.log() - torch.distributions.Exponential(table, validate_args=False).sample()
        value = log_gamma - log_gamma.logsumexp(residual, keepdim=True)
        tables[..., hypergraph.term_slices[clique]] = value.reshape(*wide.shape[:-1], -1)
    return tables


def clique_tables(
    hypergraph: InteractionHypergraph, counts: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    r"""A function of the counts of every clique less that of its separator, zero elsewhere: unbalanced tables, nats.

    With the digamma function they are the expected log conditional tables; with the logarithm those of the law whose
    marginals are proportional to the counts (*batch, num_terms), which is the mode of the density over theta.
    """
    tables = torch.zeros_like(counts)
    pieces = {
        clique: (function(table) - function(table.sum(residual, keepdim=True))).reshape(*counts.shape[:-1], -1)
        for clique, table, residual in _nodes(hypergraph, counts)
    }
    parts = [pieces.get(edge, tables[..., where]) for edge, where in hypergraph.term_slices.items()]
    return torch.cat([tables[..., :0], *parts], -1)


def _nodes(hypergraph: InteractionHypergraph, counts: torch.Tensor) -> Iterator[tuple[Edge, torch.Tensor, list[int]]]:
    """Cliques of a junction tree, their tables ``(*batch, *cells)`` and the axes (negative) outside the separator."""
    if not hypergraph.is_decomposable:
        problem = (
            "the conjugate prior has a closed form for saturated and decomposable collections only, received "
            f"{hypergraph!r}"
        )
        raise IntractableError(problem, hint="see is_decomposable", code="no-method")
    for node in hypergraph.junction_tree():
        shape = [hypergraph.domain[name].cardinality for name in node.clique]
        table = counts[..., hypergraph.term_slices[node.clique]].reshape(*counts.shape[:-1], *shape)
        axes = [i - len(shape) for i, name in enumerate(node.clique) if name not in node.separator]
        yield node.clique, table, axes


def _sum_cells(table: torch.Tensor, num_axes: int) -> torch.Tensor:
    """Sum over the last ``num_axes`` axes, none included."""
    return table.sum(list(range(-num_axes, 0))) if num_axes else table
