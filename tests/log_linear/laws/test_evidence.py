"""Evidence as tensors, one value per row and batch element: against the sliced joint table, 1e-10 relative."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from law_models import theta_of

from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.generalized_root import (
    GaussianFamily,
    GeneralizedRoot,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.log_linear import HierarchicalLogLinear, LogLinearEnergy
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, exact_table, raises

from support.strategies import domains, hypergraphs

GRAPH = InteractionHypergraph.from_order(Domain.from_labels({"a": "xy", "b": "uvw", "c": "pq", "d": "st"}), 3)
ROWS = torch.tensor([0, 2, 1, 1, 0])


def sliced(law, element, state):
    """Conditional table of one batch element by slicing and normalising its joint table."""
    table = np.exp(exact_table(law.hypergraph, law.energy_model.tables[element]))
    part = table[tuple(state.get(name, slice(None)) for name in law.domain.names)]
    return part / part.sum()


@given(hypergraphs(domain=domains(max_variables=4), hierarchical=False), st.data())
def test_every_row_and_batch_element_has_its_own_slice(graph, data):
    law = HierarchicalLogLinear(graph, theta_of(graph, 2))
    names = data.draw(st.lists(st.sampled_from(graph.domain.names), unique=True))
    rng, evidence = np.random.default_rng(data.draw(st.integers(0, 99))), {}
    for name in names:
        shape = data.draw(st.sampled_from([(), (2,), (3, 1), (3, 2)]))
        codes = rng.integers(graph.domain[name].cardinality, size=shape)
        evidence[name] = torch.from_numpy(codes) if shape else int(codes)
    found = law.condition(evidence)
    batch = torch.broadcast_shapes((2,), *(torch.as_tensor(codes).shape for codes in evidence.values()))
    assert found.batch_shape == batch and found.hypergraph == graph.restrict(names)
    rest, constant = law.energy_model.condition(evidence)
    assert rest.batch_shape == constant.shape == batch
    for element in itertools.product(*map(range, batch)):
        state = {name: int(torch.as_tensor(codes).expand(batch)[element]) for name, codes in evidence.items()}
        assert_close(found.probs[element], sliced(law, element[-1:], state), absolute=1e-10)
        alone, c = law.energy_model.condition(state)
        assert torch.equal(rest.tables[element], alone.tables[element[-1:]])
        assert_close(constant[element], c[element[-1:]], absolute=1e-12)


def test_labels_codes_and_tensors_together():
    law = HierarchicalLogLinear(GRAPH, theta_of(GRAPH))
    found = law.condition({"a": "y", "b": ROWS, "c": 1})
    assert found.batch_shape == (5,) and found.domain.names == ("d",)
    for row, b in enumerate(ROWS.tolist()):
        assert_close(found.probs[row], sliced(law, (), {"a": 1, "b": b, "c": 1}), absolute=1e-10)
    # Control: the evidence of another row is another law.
    assert float((found.probs[0] - found.probs[1]).abs().max()) > 0.01
    assert torch.equal(law.condition({"b": ROWS.double(), "a": 1, "c": 1}).probs, found.probs)
    assert_close(law.condition({}).probs, law.probs, absolute=1e-12)
    nothing_left = law.condition({"a": 1, "b": ROWS, "c": ROWS % 2, "d": 0})
    assert nothing_left.batch_shape == (5,) and nothing_left.event_shape == (0,)


def test_chain_rule_of_rows_holds_in_expanded_laws_both_precisions_and_gradients():
    x = torch.tensor([[0, 2, 1, 0], [1, 0, 0, 1], [1, 1, 1, 1]])
    for dtype in (torch.float32, torch.float64):
        theta = theta_of(GRAPH, 2).to(dtype).requires_grad_()
        law = HierarchicalLogLinear(GRAPH, theta).expand((3, 2))
        given_ab = law.condition({"a": x[:, :1], "b": x[:, 1:2]})
        assert given_ab.batch_shape == (3, 2) and given_ab.theta.dtype == dtype
        total = law.marginal(["a", "b"]).log_prob(x[:, None, :2]) + given_ab.log_prob(x[:, None, 2:])
        joint = law.log_prob(x[:, None])
        tolerance = 1e-10 if dtype == torch.float64 else 1e-5
        assert_close(total, joint, absolute=tolerance)
        gradients = [torch.autograd.grad(value.sum(), theta, retain_graph=True)[0] for value in (total, joint)]
        assert_close(*gradients, absolute=tolerance)


@pytest.mark.parametrize(
    ("evidence", "error", "message"),
    [
        ({"b": torch.tensor([0, 3])}, InputError, r"evidence of 'b': expected codes from 0 to 2 .*received 3"),
        ({"b": torch.tensor([0, -1])}, InputError, "evidence of 'b'.*received -1"),
        ({"b": torch.tensor([0.0, 0.5])}, InputError, "evidence of 'b'.*received 0.5"),
        ({"b": torch.tensor([True, False])}, InputTypeError, "evidence of 'b'.*torch.bool"),
        ({"bb": torch.tensor([0, 1])}, UnknownNameError, "did you mean 'b'"),
        ({"bb": "u"}, UnknownNameError, "did you mean 'b'"),
        ({"b": "uu"}, UnknownNameError, "label 'uu'"),
        ({"b": 3}, InputError, "code from 0 to 2"),
        ({"a": torch.zeros(2).long(), "b": torch.zeros(3).long()}, InputError, r"'b'.*broadcasts with \(2,\).*\(3,\)"),
    ],
)
def test_wrong_evidence(evidence, error, message):
    with pytest.raises(error, match=message):
        HierarchicalLogLinear(GRAPH, theta_of(GRAPH)).condition(evidence)


# Generalized root models


def energy_of(family, *batch):
    kind = "real" if family.name == "gaussian" else "count"
    domain = Domain([Variable(name, kind=kind) for name in "abc"])
    structure = RootStructure.complete(domain, 2 if family.name == "gaussian" else 3)
    psi = 0.1 * torch.from_numpy(np.random.default_rng(3).normal(size=(*batch, structure.num_terms)))
    if family.name == "gaussian":
        psi[..., structure.slices[1, 1]] = -1.0
    return GeneralizedRootEnergy(structure, psi, family)


@pytest.mark.parametrize(
    "family", [PoissonFamily(), TruncatedPoissonFamily(4), GaussianFamily()], ids=lambda family: family.name
)
def test_root_energies_of_rows_and_batches_are_those_of_single_values(family):
    energy = energy_of(family, 2)
    a, c = torch.tensor([[0.0], [3.0], [1.0]]), torch.tensor([1.0, 2.0])
    rest, constant = energy.condition({"c": c, "a": a})
    assert rest.batch_shape == constant.shape == (3, 2) and rest.domain.names == ("b",)
    b = torch.tensor([[2.0]])
    full = torch.stack(torch.broadcast_tensors(a, torch.tensor(2.0), c), -1)
    assert_close(constant - rest.energy(b), -energy.energy(full), absolute=1e-10)
    for row, k in itertools.product(range(3), range(2)):
        one, _ = energy.condition({"a": float(a[row]), "c": float(c[k])})
        assert one.structure == rest.structure
        assert_close(rest.psi[row, k], one.psi[k], absolute=1e-12)
    assert float((rest.psi[0] - rest.psi[1]).abs().max()) > 1e-3  # the control: rows differ


def test_root_laws_given_rows_are_ratios_of_the_joint_law():
    family = TruncatedPoissonFamily(3)
    law = GeneralizedRoot(energy_of(family).structure, energy_of(family, 2).psi, family).expand((3, 2))
    x = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 3.0], [1.0, 1.0, 1.0]])
    found = law.condition({"a": x[:, :1], "b": x[:, 1:2]})
    assert found.batch_shape == (3, 2)
    levels = torch.arange(4.0)[:, None, None, None].expand(4, 3, 1, 1)
    cells = torch.cat([x[:, None, :2].expand(4, 3, 1, 2), levels], -1)
    joint = law.log_prob(cells)
    assert_close(found.log_prob(levels), joint - joint.logsumexp(0), absolute=1e-10)


def test_root_evidence_carries_gradients_and_refuses_what_does_not_fit():
    energy = energy_of(GaussianFamily())
    a = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(energy.condition({"a": a})[0].psi.sum(), a)
    step = 1e-6
    for i in range(2):
        ends = [energy.condition({"a": float(a[i].detach()) + sign * step})[0].psi.sum() for sign in (1, -1)]
        assert float(gradient[i]) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-6)
    counts = energy_of(PoissonFamily(), 2)
    with pytest.raises(InputError, match=r"evidence\['a'\]"):
        counts.condition({"a": torch.tensor([1.0, -1.0])})
    with pytest.raises(InputError, match=r"broadcast with the batch shape \(2,\), received 'a' \(3,\)"):
        counts.condition({"a": torch.ones(3)})
    for bad in ("many", torch.tensor([True, False]), math):
        with raises("wrong-type", "evidence['a']"):
            counts.condition({"a": bad})


def test_models_of_one_element_and_of_no_row():
    model = LogLinearEnergy.from_theta(GRAPH, theta_of(GRAPH, 1))
    rest, constant = model.condition({"a": torch.zeros(0, 1).long()})
    assert rest.batch_shape == constant.shape == (0, 1)
    rest, constant = model.condition({name: torch.zeros(4, 1).long() for name in "abcd"})
    assert rest.tables.shape == (4, 1, 0) and constant.shape == (4, 1)
