"""The automatic choice follows its table, can be asked beforehand, and refuses with numbers."""

from dataclasses import astuple, replace

import pytest
import torch

from pyro_hoim.errors import InputError, InputTypeError, IntractableError, UnknownNameError
from pyro_hoim.log_linear import Auto, Enumeration, MatrixEnumeration, VariableElimination
from pyro_hoim.log_linear.energy import LogLinearEnergy
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

MUSHROOM = Domain.from_cardinalities([2, 6, 4, 10, 2, 9, 2, 2, 2, 12])


def chain(length):
    domain = Domain.from_cardinalities([2] * length)
    return InteractionHypergraph(domain, zip(domain.names, domain.names[1:], strict=False), closure=True)


@pytest.mark.parametrize(
    ("hypergraph", "backend", "method"),
    [
        (InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2), MatrixEnumeration, "design matrix"),
        (InteractionHypergraph(Domain(), []), MatrixEnumeration, "design matrix"),
        (InteractionHypergraph.from_order(MUSHROOM, 3), Enumeration, "enumeration"),
        (InteractionHypergraph.from_order(MUSHROOM, 1), VariableElimination, "variable elimination"),
        (chain(200), VariableElimination, "variable elimination"),
        (InteractionHypergraph(Domain.from_cardinalities([9] * 50), []), VariableElimination, "variable elimination"),
    ],
)
def test_decision_table(hypergraph, backend, method):
    cost = Auto().plan(hypergraph)
    assert cost.feasible
    assert cost.method == method
    assert cost.reason
    assert isinstance(Auto().select(hypergraph), backend)


def test_a_plan_prints_briefly_whatever_the_size():
    for backend in (Auto(), VariableElimination(), Enumeration()):
        plan = backend.plan(chain(900))
        assert len(repr(plan)) == len(str(plan)) < 700
        assert repr(plan.reason) in repr(plan)
    plan = Auto().plan(chain(900))
    assert len(plan.order) == 900
    assert f"order=({', '.join(map(repr, plan.order[:6]))}, ...: 900 in all)" in repr(plan)
    assert len(repr(astuple(plan))) > 5000  # the control: every name
    huge = replace(plan, total_cells=2**20_000, slices=plan.order, order=("a",))  # too long for Python to print
    assert "total_cells=about 3.98e+6020, " in repr(huge)
    shown = repr(plan).partition("order=")[2].partition(", slices")[0]
    assert repr(huge).endswith(f", order=('a',), slices={shown})")


def test_enumeration_serves_where_elimination_is_over_its_budget():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 14), 3)
    auto = Auto(elimination=VariableElimination(max_cells=16, max_slices=1))
    assert auto.plan(hypergraph).method == "enumeration"


def test_elimination_is_not_compiled_where_enumeration_is_chosen(monkeypatch):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 16), 3)
    operations = VariableElimination().operations(hypergraph)
    assert operations == VariableElimination().plan(hypergraph).flops

    def refuse(_plan):
        raise AssertionError("compiled")

    monkeypatch.setattr("pyro_hoim.log_linear.exact.elimination.memory_cells", refuse)
    cost = Auto().plan(hypergraph)
    assert cost.method == "enumeration"
    assert f"{operations} operations" in cost.reason
    with pytest.raises(AssertionError, match="compiled"):
        VariableElimination().plan(hypergraph)


def test_refusal_names_every_budget():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([4] * 20), 2)
    cost = Auto().plan(hypergraph)
    assert not cost.feasible
    for part in ("1099511627776 cells", "is 67108864", "1024 slices", "the budget of 4194304", "max_cells=..."):
        assert part in f"{cost.reason}; {cost.hint}"
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms))
    for call in (Auto().log_partition, Auto().expectations, Auto().mode, Auto().sample):
        with pytest.raises(IntractableError, match="the budget is 67108864"):
            call(model)


def test_evidence_can_make_a_model_tractable():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([4] * 20), 2)
    evidence = hypergraph.domain.names[:15]
    assert Auto().plan(hypergraph, evidence_names=evidence).feasible
    for names in ({"evidence_names": ["nobody"]}, {"keep": ["nobody"]}):
        with pytest.raises(UnknownNameError):
            Auto().plan(hypergraph, **names)


@pytest.mark.parametrize("backend", [Enumeration(max_states=63), MatrixEnumeration(max_entries=64 * 72 - 1)], ids=str)
def test_enumeration_refuses_beyond_its_budget(backend):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms))
    assert not backend.plan(hypergraph).feasible
    names = hypergraph.domain.names[:1]
    for call in (
        lambda: backend.log_partition(model),
        lambda: backend.expectations(model),
        lambda: backend.log_marginal(model, names),
        lambda: backend.sample(model),
        lambda: backend.mode(model),
    ):
        with pytest.raises(IntractableError, match=r"(64 cells.*is 63|4608 entries.*is 4607)"):
            call()


@pytest.mark.parametrize("wrong", [True, Enumeration(), "ais"])
def test_the_fallback_must_be_annealed(wrong):
    with pytest.raises(InputTypeError, match=r"annealed: expected AnnealedImportance\(\.\.\.\) or None"):
        Auto(annealed=wrong)


def test_options_must_be_positive():
    for backend, option in ((Enumeration, "max_states"), (MatrixEnumeration, "max_entries")):
        with pytest.raises(InputError, match=option):
            backend(**{option: 0})


def test_results_say_how_they_were_obtained():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
    result = Auto().log_partition(LogLinearEnergy(hypergraph, torch.zeros(3, hypergraph.num_terms)))
    assert (result.kind, result.coding, result.method) == ("exact", "balanced", "design matrix")
    assert result.std_error == 0
    assert result.ess is None
    assert torch.equal(result.lower, result.value)
    assert torch.equal(result.upper, result.value)
    assert result.cost == Auto().plan(hypergraph)


def test_large_batches_are_enumerated_in_chunks(monkeypatch):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 4]), 2)
    tables = torch.randn(7, hypergraph.num_terms, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = LogLinearEnergy(hypergraph, tables)
    backend = Enumeration()
    whole = backend.log_partition(model).value, backend.expectations(model), backend.marginal(model, ("x2", "x0"))
    monkeypatch.setattr("pyro_hoim.log_linear.exact.enumeration._BATCH_CELLS", 48)
    parts = backend.log_partition(model).value, backend.expectations(model), backend.marginal(model, ("x2", "x0"))
    for one, two in zip(whole, parts, strict=True):
        assert torch.equal(one, two)
    assert backend.sample(model, (2,)).shape == (2, 7, 3)
