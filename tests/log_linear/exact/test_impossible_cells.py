"""Tables with entries of minus infinity: exact backends sum the other cells, annealed estimates refuse by name."""

import math
from functools import partial

import pytest
import torch

from pyro_hoim.errors import InputError
from pyro_hoim.log_linear import AnnealedImportance, Enumeration, GibbsChains, LogLinearEnergy
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

DOMAIN = Domain.from_cardinalities([2, 3, 2])
HYPERGRAPH = InteractionHypergraph(DOMAIN, [("x0", "x1"), ("x1", "x2")], closure=True)
STATES = torch.cartesian_prod(*[torch.arange(count) for count in DOMAIN.cardinalities])


def model(where, dtype=torch.float64):
    tables = torch.randn(HYPERGRAPH.num_terms, generator=torch.Generator().manual_seed(0), dtype=dtype)
    if where == "cell":
        tables[HYPERGRAPH.term_slices["x0", "x1"].start + 1] = -math.inf
    elif where == "level":
        tables[HYPERGRAPH.term_slices["x1",].start] = -math.inf
    else:
        tables[HYPERGRAPH.term_slices["x1",]] = -math.inf
    return LogLinearEnergy(HYPERGRAPH, tables, validate=False)


def places(state):
    """Positions of the entries that a state selects."""
    found = []
    for edge, shape in zip(HYPERGRAPH.edge_indices, HYPERGRAPH.edge_shapes, strict=True):
        cell = 0
        for variable, levels in zip(edge, shape, strict=True):
            cell = cell * levels + int(state[variable])
        found.append(HYPERGRAPH.term_slices[tuple(DOMAIN.names[i] for i in edge)].start + cell)
    return found


def possible(energy):
    """States that are not excluded and their log unnormalised probabilities, sums of finite entries only."""
    rows = [(state, sum(float(energy.tables[k]) for k in places(state))) for state in STATES]
    kept = [(state, value) for state, value in rows if math.isfinite(value)]
    return torch.stack([state for state, _ in kept]), torch.tensor([value for _, value in kept], dtype=torch.float64)


@pytest.mark.parametrize("where", ["cell", "level"])
def test_exact_backends_sum_the_possible_cells(backend, where):
    energy = model(where)
    states, logits = possible(energy)
    assert len(states) < len(STATES)
    log_z = backend.log_partition(energy)
    assert log_z.kind == "exact"
    assert float(log_z.value) == pytest.approx(float(logits.logsumexp(0)), rel=1e-12)
    eta = torch.zeros(HYPERGRAPH.num_terms, dtype=torch.float64)
    for state, weight in zip(states, logits.softmax(0), strict=True):
        eta[places(state)] += weight
    assert torch.allclose(backend.expectations(energy), eta, rtol=1e-10, atol=1e-15)
    drawn = backend.sample(energy, (200,), generator=torch.Generator().manual_seed(0))
    allowed = {tuple(state) for state in states.tolist()}
    assert {tuple(state) for state in drawn.tolist()} <= allowed
    assert tuple(backend.mode(energy)[0].tolist()) == tuple(states[logits.argmax()].tolist())


def test_exact_backends_refuse_a_model_without_a_possible_cell(backend):
    with pytest.raises(InputError, match="log Z is not finite"):
        backend.log_partition(model("nothing"))


def test_gradients_of_the_other_entries_are_their_probabilities(backend):
    energy = model("cell")
    tables = energy.tables.clone().requires_grad_()
    backend.log_partition(LogLinearEnergy(HYPERGRAPH, tables, validate=False)).value.backward()
    assert tables.grad is not None
    assert torch.allclose(tables.grad, Enumeration().expectations(energy), rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("call", [AnnealedImportance(num_chains=4).log_partition, partial(GibbsChains, num_chains=4)])
def test_samplers_refuse_impossible_cells_by_name(call):
    with pytest.raises(InputError, match="received -inf; samplers and annealed estimates do not know impossible cells"):
        call(model("cell"))
