"""Random laws of the papers: log-linear ones with normal tables, symmetric Dirichlet ones, uniform numbers."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from pyro_hoim.core.law import Law, check_cells
from pyro_hoim.errors import check_not_negative, check_positive
from pyro_hoim.log_linear.coding import parametrization
from pyro_hoim.schema import Domain
from pyro_hoim.structure.hypergraph import InteractionHypergraph

__all__ = ["random_dirichlet_law", "random_law", "random_uniform_law"]


def random_law(
    domain: Domain,
    edges: Iterable[Sequence[str]] | None = None,
    *,
    scale: float = 1.0,
    generator: torch.Generator | None = None,
) -> Law:
    r"""Random log-linear law, the synthetic distributions of paper 1 (appendix B.2).

    .. math:: p(x) \propto \exp \sum_{S} \theta^S_{x_S}

    Every entry of :math:`\theta^S` is normal, and then each table is centred so that all its fibres sum to zero. That
    is a standard normal vector in the free coordinates, which is how it is drawn. Costs O(cells x number of sets).

    Args:
        domain: the variables.
        edges: sets of variables that have a table, closed under subsets or not; default all.
        scale: standard deviation of an entry before centring, in nats; 1 in the paper.
        generator: source of randomness; the global one when left out.

    Raises:
        InputError: ``scale`` is negative or not finite, or an edge is not a set of variables.
        IntractableError: more than 2^24 cells.
    """
    check_cells(domain)
    check_not_negative(scale, "scale")
    if edges is None:
        hypergraph = InteractionHypergraph.saturated(domain)
    else:
        hypergraph = InteractionHypergraph(domain, edges, hierarchical=False)
    theta = scale * torch.randn(hypergraph.num_parameters, generator=generator, dtype=torch.float64)
    codings = parametrization(hypergraph)
    log_table = np.zeros(domain.cardinalities)
    for edge, table in codings.split(codings.to_tables(theta)).items():
        members = set(domain.indices(edge))
        log_table += table.numpy().reshape([n if i in members else 1 for i, n in enumerate(domain.cardinalities)])
    weights = np.exp(log_table - log_table.max())
    return Law(domain, torch.from_numpy(weights / weights.sum()))


def random_dirichlet_law(
    domain: Domain, concentration: float = 1.0, *, generator: torch.Generator | None = None
) -> Law:
    """Random law whose cells follow a symmetric Dirichlet distribution: no interaction is preferred.

    At ``concentration`` 1 the laws are uniform on the simplex; the smaller, the sparser. Seeds a NumPy PCG64 generator
    with one integer from ``generator``, the global one when left out. At most 2^24 cells.
    """
    check_cells(domain)
    check_positive(concentration, "concentration")
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    probs = np.random.default_rng(seed).dirichlet(np.full(domain.num_states, float(concentration)))
    return Law(domain, torch.from_numpy(probs.reshape(domain.cardinalities)))


def random_uniform_law(domain: Domain, *, generator: torch.Generator | None = None) -> Law:
    """Random law whose cells are independent uniform numbers of [0, 1), divided by their sum (paper 4, experiments).

    It is nearer to the uniform law than a Dirichlet draw: its divergence from it tends to log 2 - 1/2 = 0.193 nats as
    cells are added, that of :func:`random_dirichlet_law` to 1 - gamma = 0.423. At most 2^24 cells.
    """
    check_cells(domain)
    weights = torch.rand(domain.cardinalities, generator=generator, dtype=torch.float64)
    return Law(domain, weights / weights.sum())
