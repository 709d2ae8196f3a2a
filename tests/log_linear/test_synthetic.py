"""Synthetic rows against enumeration."""

import numpy as np
import pytest
import torch

from pyro_hoim.errors import InputError
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.log_linear.given import synthesise
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_exact_law, count_states, exact_table, raises, random_tables, required_draws

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
MODEL = LogLinearEnergy(GRAPH, torch.from_numpy(random_tables(GRAPH, np.random.default_rng(0), scale=0.5)))


@pytest.mark.parametrize("method", ["auto", "gibbs"])
def test_rows_have_the_law_of_the_model(method):
    number = required_draws(12, 0.05)
    found = synthesise(MODEL, number, 3, method=method)
    counts = count_states(found.codes.numpy(), DOMAIN.cardinalities)
    law = np.exp(exact_table(GRAPH, MODEL.tables.numpy()))
    assert_exact_law(counts, law.reshape(counts.shape))
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.full(counts.shape, 1 / 12))
    assert torch.equal(found.codes, synthesise(MODEL, number, 3, method=method).codes)
    assert list(found.to_pandas(count=None).columns) == ["a", "b", "c"]


def test_bad_arguments_are_refused():
    large = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
    for model, number, method, code, argument in (
        (MODEL, 0, "auto", "out-of-range", "num_rows"),
        (MODEL, 2.0, "auto", "wrong-type", "num_rows"),
        (MODEL, True, "auto", "wrong-type", "num_rows"),
        (MODEL, 1, "best", "unknown-choice", "method"),
        (LogLinearEnergy(large, torch.zeros(large.num_terms)), 1, "exact", "over-budget", "method"),
    ):
        with raises(code, argument):
            synthesise(model, number, method=method)
    with pytest.raises(InputError, match="expected one model"):
        synthesise(MODEL.expand([2]), 1)
