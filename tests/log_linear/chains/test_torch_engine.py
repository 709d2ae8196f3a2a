"""The PyTorch engine: joined visits, precision, and the states that it saves."""

import numpy as np
import pytest
import torch

from pyro_hoim.errors import IntractableError
from pyro_hoim.log_linear.chains._engines import make_engine
from pyro_hoim.log_linear.chains.torch_engine import TorchEngine
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import random_tables

CHAIN = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2, "e": 2}),
    [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")],
    closure=True,
)
ROW = np.arange(5, dtype=np.int32)


def _engine(blocks, num_groups=1, num_chains=8, seed=0, **options):
    engine = TorchEngine(CHAIN, blocks, num_groups, num_chains, seed, **options)
    engine.set_weights(_tables(num_groups), torch.zeros(1, 11))
    engine.set_codes(torch.zeros(num_groups, num_chains, 5, dtype=torch.long))
    return engine


def _tables(num):
    return torch.as_tensor(random_tables(CHAIN, np.random.default_rng(2), batch_shape=(num,), balanced=False))


def test_visits_without_a_common_interaction_are_joined():
    sites = tuple((i,) for i in range(5))
    assert _engine(sites)._batched((0, 1, 2, 3, 4)) == [(0,), (1,), (2,), (3,), (4,)]
    colours = GibbsSchedule("colours").resolve(CHAIN)
    batches = _engine(colours)._batched((0, 1, 2, 3, 4))
    assert [sorted(colours[b][0] for b in batch) for batch in batches] in ([[0, 2, 4], [1, 3]], [[1, 3], [0, 2, 4]])
    assert _engine(sites)._batched((0, 0, 3, 3)) == [(0,), (0, 3), (3,)]
    pairs = ((0, 1), (2, 3), (3, 4), (0,))
    assert _engine(pairs)._batched((0, 1, 2, 3)) == [(0,), (1,), (2, 3)]
    graph = InteractionHypergraph(CHAIN.domain, [("a", "b"), ("d",), ("e",)], closure=True)
    assert TorchEngine(graph, ((0, 1), (3,), (4,), (2,)), 1, 1, 4)._batched((0, 1, 2, 3)) == [(0, 1, 2, 3)]


def test_copies_do_not_share_memory():
    engine = _engine(tuple((i,) for i in range(5)))
    codes, (energy, reference) = engine.get_codes(), engine.energies()
    kept = [codes.clone(), energy.clone(), reference.clone()]
    engine.sweep(ROW[None], 5, np.ones(1))
    for before, now in zip(kept, (codes, energy, reference), strict=True):
        assert torch.equal(before, now)
    codes += 1
    energy += 1
    assert (engine.get_codes() < torch.tensor([2, 3, 2, 2, 2])).all()


def test_many_different_orders_do_not_fill_the_memory():
    """Compiled orders are forgotten when there are too many; the law does not notice."""
    engine = _engine(tuple((i,) for i in range(5)))
    order = np.random.default_rng(0).integers(0, 5, (400, 5)).astype(np.int32)
    engine.sweep(order, 400, np.ones(1))
    assert engine._batched.cache_info().currsize == 64
    assert engine._update.cache_info().currsize <= engine._update.cache_info().maxsize == 4096


def test_code_type_follows_the_number_of_levels():
    assert _engine(((0,), (1,), (2,), (3,), (4,)))._code == torch.uint8
    graph = InteractionHypergraph(Domain.from_cardinalities([257]), [])
    assert TorchEngine(graph, ((0,),), 1, 1, 0)._code == torch.int32


def test_lowest_random_number_draws_no_impossible_state(monkeypatch):
    graph = InteractionHypergraph(Domain.from_cardinalities([3]), [("x0",)])
    engine = TorchEngine(graph, ((0,),), 1, 2, 0)
    engine.set_weights(torch.tensor([[-40.0, 0.0, 0.0]]), torch.zeros(1, 3))  # probability 2e-18 of the first state
    engine.set_codes(torch.full((1, 2, 1), 2))
    monkeypatch.setattr(torch, "rand", lambda shape, dtype, **_: torch.zeros(shape, dtype=dtype))
    engine.sweep(np.zeros((1, 1), dtype=np.int32), 1, np.ones(1))
    assert engine.get_codes().flatten().tolist() == [1, 1]


def test_compiled_engines_refuse_tables_that_they_cannot_address():
    domain = Domain.from_cardinalities([2] * 31)
    graph = InteractionHypergraph(domain, [domain.names], hierarchical=False)
    with pytest.raises(IntractableError, match="compiled engines address 2147483647"):
        make_engine("auto", graph, ((0,),), (1, 1), 0, torch.float32, torch.device("cpu"))
