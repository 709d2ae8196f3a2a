"""The PyTorch engine: joined visits, precision, and the states that it saves."""

from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pyro_hoim.errors import IntractableError
from pyro_hoim.log_linear.chains.gibbs import make_engine
from pyro_hoim.log_linear.chains.torch_engine import Graphs, TorchEngine
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
    assert _engine(sites)._planned((0, 1, 2, 3, 4)) == [(0,), (1,), (2,), (3,), (4,)]
    colours = GibbsSchedule("colours").resolve(CHAIN)
    batches = _engine(colours)._planned((0, 1, 2, 3, 4))
    assert [sorted(colours[b][0] for b in batch) for batch in batches] in ([[0, 2, 4], [1, 3]], [[1, 3], [0, 2, 4]])
    pairs = ((0, 1), (2, 3), (3, 4), (0,))
    assert _engine(pairs)._planned((0, 1, 2, 3)) == [(0,), (1, 3), (2,)]
    graph = InteractionHypergraph(CHAIN.domain, [("a", "b"), ("d",), ("e",)], closure=True)
    assert TorchEngine(graph, ((0, 1), (3,), (4,), (2,)), 1, 1, 4)._planned((0, 1, 2, 3)) == [(0, 1, 2, 3)]


def test_a_visit_waits_for_no_more_than_it_must():
    """A grid in schema order takes as many steps as it has diagonals; visits to one variable stay in order."""
    names = [f"x{i}{j}" for i in range(4) for j in range(4)]
    pairs = [(f"x{i}{j}", f"x{i}{j + 1}") for i in range(4) for j in range(3)]
    pairs += [(f"x{i}{j}", f"x{i + 1}{j}") for i in range(3) for j in range(4)]
    grid = InteractionHypergraph(Domain.from_cardinalities(dict.fromkeys(names, 2)), pairs, closure=True)
    sites = tuple((i,) for i in range(16))
    found = [sorted(step) for step in TorchEngine(grid, sites, 1, 1, 0)._planned(tuple(range(16)))]
    assert found == [[4 * i + j for i in range(4) for j in range(4) if i + j == k] for k in range(7)]
    assert _engine(tuple((i,) for i in range(5)))._planned((0, 0, 3, 3, 4)) == [(0, 3), (0, 3), (4,)]


def test_steps_in_parts_draw_the_same_states():
    """Blocks and chains are cut where a step would look up too many cells at once."""
    blocks = GibbsSchedule("colours").resolve(CHAIN)
    whole, parts = (_engine(blocks, 2, 2500, dtype=torch.float64) for _ in range(2))
    parts._max_cells = 2**14
    assert len(parts._planned((0, 1, 2, 3, 4))) == 5
    for engine in (whole, parts):
        engine.sweep(ROW[None], 3, np.full(2, 0.5))
    assert (whole.get_codes() != whole.get_codes()[:, :1]).any()
    torch.testing.assert_close(whole.energies()[0], parts.energies()[0], rtol=1e-12, atol=1e-12)
    assert torch.equal(whole.statistics(), parts.statistics())
    assert torch.equal(whole.get_codes(), parts.get_codes())


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
    assert engine._planned.cache_info().currsize == 64
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
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, **_: self.zero_())
    engine.sweep(np.zeros((1, 1), dtype=np.int32), 1, np.ones(1))
    assert engine.get_codes().flatten().tolist() == [1, 1]


def test_compiled_engines_refuse_tables_that_they_cannot_address():
    domain = Domain.from_cardinalities([2] * 31)
    graph = InteractionHypergraph(domain, [domain.names], hierarchical=False)
    with pytest.raises(IntractableError, match="compiled engines address 2147483647"):
        make_engine("auto", graph, ((0,),), (1, 1), 0, torch.float32, torch.device("cpu"))


# Captured kernels, on the CPU


class _Tape(TorchDispatchMode):
    """Notes operations with the memory they read and write, as a CUDA graph does; what lies outside stays as it is."""

    def __init__(self):
        super().__init__()
        self._kernels = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        changes = func._schema.is_mutable
        out = args[0] if changes else func(*args, **kwargs)
        self._kernels.append((func, args, kwargs, None if changes else out))
        return out

    def replay(self):
        for func, args, kwargs, out in self._kernels:
            found = func(*args, **kwargs)
            if isinstance(out, torch.Tensor) and not out._is_view():
                out.copy_(found)


def _taped(self, function):
    with _Tape() as tape:
        function()
    return tape.replay


def _moves(engine, order):
    """Everything that moves an engine or changes what it reads; what it comes to."""
    codes = torch.zeros(2, 30, 5, dtype=torch.long)
    found = []
    for k in range(4):
        engine.sweep(order, 7, np.ones(2))
        engine.sweep(order, 3, np.array([0.3, 0.3 + 0.1 * k]))
        engine.gather(torch.arange(30).flip(0).expand(2, 30))
        found.append(engine.anneal(order, np.linspace(0, 1, 6), 2))
        engine.set_weights(_tables(2) * (1 + k), torch.linspace(-1, 1, 11)[None])
        engine.sweep(order[:, ::-1], 6, np.full(2, 0.7))
        state = engine.state()
        found += [engine.statistics(), *engine.energies(), engine.get_codes()]
        engine.set_codes(codes + k % 2)
        engine.sweep(order, 1, np.full(2, 0.7))
        engine.load_state(state)
    return found


@pytest.mark.parametrize("stale", [None, "_codes", "_tables", "_beta", "_uniform"])
def test_captured_kernels_read_what_was_set_after_the_capture(stale):
    """A replayed sweep gives equal bits; and where one of the tensors moved to new memory, it would not."""
    blocks = GibbsSchedule("colours").resolve(CHAIN)
    order = np.stack([ROW, ROW[::-1]])
    plain, captured = (_engine(blocks, 2, 30) for _ in range(2))
    captured._graphs.is_on = True
    if stale == "_uniform":
        captured._draw_uniforms(50)  # enough for all
    with mock.patch.object(Graphs, "_recorded", _taped):
        captured.sweep(order, 10, np.array([0.3, 0.4]))
        plain.sweep(order, 10, np.array([0.3, 0.4]))
        if stale == "_uniform":
            captured.load_state(plain.state())
        assert len(captured._graphs._captured) == 2
        if stale is not None:
            setattr(captured, stale, getattr(captured, stale).clone())
        found, wanted = _moves(captured, order), _moves(plain, order)
    assert all(map(torch.equal, found, wanted)) == (stale is None)


def test_failed_capture_runs_as_before(caplog):
    def refuse(self, function):
        raise RuntimeError("operation not permitted when stream is capturing")

    plain, captured = (_engine(GibbsSchedule("colours").resolve(CHAIN), 2, 30) for _ in range(2))
    captured._graphs.is_on = True
    with mock.patch.object(Graphs, "_recorded", refuse), caplog.at_level("INFO", logger="pyro_hoim"):
        assert all(map(torch.equal, _moves(captured, ROW[None]), _moves(plain, ROW[None])))
    assert not captured._graphs.is_on and "operation not permitted" in caplog.text


def test_visits_in_random_order_are_not_captured():
    engine = _engine(GibbsSchedule("colours").resolve(CHAIN))
    engine._graphs.is_on = True
    order = np.random.default_rng(0).integers(0, 5, (1100, 5)).astype(np.int32)
    with mock.patch.object(Graphs, "_recorded", _taped):
        engine.sweep(order, 1100, np.ones(1))
    assert len(engine._graphs._captured) <= 16 and len(engine._graphs._uses) <= 1025
