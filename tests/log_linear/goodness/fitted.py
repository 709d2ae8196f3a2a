"""Fits of small tables that the tests of goodness of fit share."""

import numpy as np

from pyro_hoim import Domain, InteractionHypergraph, Observations, load_table
from pyro_hoim.log_linear import fit

DIAGONAL = np.array([[0, 5, 9], [7, 0, 4], [6, 8, 0]])  # whose zeros may be structural


def of_table(counts, **options):
    """Observations of a table over a, b, ... ."""
    shape = np.shape(counts)
    return Observations.from_table(Domain.from_cardinalities(dict(zip("abcd", shape, strict=False))), counts, **options)


def order_fit(data, order=2, **options):
    """Fit of all interactions up to an order to observations, or to a data set of this name."""
    data = load_table(data) if isinstance(data, str) else data
    return fit(InteractionHypergraph.from_order(data.domain, order), data, **options)
