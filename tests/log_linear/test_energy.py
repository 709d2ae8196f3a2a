"""The log-linear energy against the enumerated law; identities to a relative 1e-10 in float64."""

import itertools
import math
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from pyro_hoim import Auto, Domain, InputError, InteractionHypergraph, IntractableError, LogLinearEnergy
from pyro_hoim.core import ConditionalModel, EnergyModel
from pyro_hoim.errors import InputTypeError, UnknownNameError
from pyro_hoim.log_linear import Enumeration, MatrixEnumeration, VariableElimination, parametrization
from pyro_hoim.testing import enumerate_codes, exact_table, random_tables

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def build(graph, batch=(), seed=0):
    """Model with arbitrary, unbalanced tables."""
    tables = random_tables(graph, np.random.default_rng(seed), balanced=False, batch_shape=batch)
    return LogLinearEnergy(graph, torch.from_numpy(tables))


def states(graph):
    """All joint states (num_states, d) in row-major order."""
    return torch.from_numpy(enumerate_codes(graph.domain.cardinalities))


def conditional(log_probs, members):
    """Log conditional of some axes given the others, as an array over all joint states."""
    probs = np.exp(log_probs)
    return log_probs - np.log(probs.sum(axis=tuple(members), keepdims=True))


def close(left, right):
    np.testing.assert_allclose(left.detach().numpy(), np.asarray(right), **TOLERANCE)


def test_energy_of_every_state_and_its_gradient(hypergraph):
    model, x = build(hypergraph), states(hypergraph)
    literal = exact_table(hypergraph, model.tables, normalised=False).ravel()
    close(model.energy(x), -literal)
    close(model.energy(x.double()), -literal)
    close(model.energy(x.to(torch.uint8)), -literal)
    assert model.energy(x[0]).shape == ()
    assert model.energy(x[:0]).shape == (0,)
    tables = model.tables.requires_grad_()
    found = torch.autograd.functional.jacobian(lambda t: LogLinearEnergy(hypergraph, t).energy(x), tables)
    close(found, -parametrization(hypergraph).statistics(x))


def test_control_sees_a_dropped_interaction_and_transposed_axes():
    graph = InteractionHypergraph.saturated(Domain.from_cardinalities([3, 3]))
    model, x = build(graph), states(graph)
    literal = -exact_table(graph, model.tables, normalised=False).ravel()
    close(model.energy(x), literal)
    dropped = model.tables.clone()
    dropped[-9:] = 0
    for wrong in (LogLinearEnergy(graph, dropped).energy(x), model.energy(x.flip(-1))):
        assert np.abs(wrong.numpy() - literal).max() > 0.1


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
def test_model_from_theta_has_balanced_tables(hierarchical, coding):
    codings = parametrization(hierarchical)
    tables = torch.from_numpy(random_tables(hierarchical, np.random.default_rng(0)))
    theta = codings.from_tables(tables, coding)
    close(LogLinearEnergy.from_theta(hierarchical, theta, coding).tables, tables)


def test_conditionals_of_every_block_of_up_to_two_and_of_all_variables(hypergraph):
    model, x, cards = build(hypergraph), states(hypergraph), hypergraph.domain.cardinalities
    log_probs = exact_table(hypergraph, model.tables)
    for size in range(min(2, len(cards)) + 1):
        for members in itertools.permutations(range(len(cards)), size):
            block = [hypergraph.domain.names[i] for i in members]
            found = model.block_conditional(block, x)
            assert found.shape == (len(x), *(cards[i] for i in members))
            at_state = found[(torch.arange(len(x)), *(x[:, i] for i in members))]
            close(at_state, conditional(log_probs, list(members)).ravel())
            close(found.reshape(len(x), -1).logsumexp(-1), np.zeros(len(x)))
    model, names = build(hypergraph), hypergraph.domain.names
    anything = torch.full((len(names),), -1)
    close(model.block_conditional(names, anything), exact_table(hypergraph, model.tables))
    reverse = model.block_conditional(names[::-1], anything)
    close(reverse.permute(tuple(reversed(range(len(names))))), exact_table(hypergraph, model.tables))


def test_conditional_does_not_read_the_block():
    model = build(InteractionHypergraph.saturated(Domain.from_cardinalities([2, 3, 2])))
    x = torch.tensor([1, 0, 1])
    for other in (torch.tensor([1, 2, 1]), torch.tensor([1, -1, 1]), torch.tensor([1, 99, 1])):
        assert torch.equal(model.block_conditional(["x1"], x), model.block_conditional(["x1"], other))
    assert not torch.equal(model.block_conditional(["x1"], x), model.block_conditional(["x1"], torch.tensor([0, 0, 1])))


def test_pseudo_likelihood(hypergraph):
    model, x = build(hypergraph), states(hypergraph)
    log_probs = exact_table(hypergraph, model.tables)
    literal = sum((conditional(log_probs, [i]) for i in range(log_probs.ndim)), np.zeros(log_probs.shape))
    close(model.log_pseudo_prob(x), literal.ravel())
    if hypergraph.order > 1 and log_probs.size > 4:
        assert np.abs(literal - log_probs).max() > 1e-3  # the control: it is not the log-likelihood


def test_conditioning(hypergraph):
    model, names, cards = build(hypergraph, (2,)), hypergraph.domain.names, hypergraph.domain.cardinalities
    full = -model.energy(states(hypergraph)[:, None]).T.reshape(2, *cards)
    for size in range(len(names) + 1):
        for fixed in itertools.combinations(range(len(names)), size):
            evidence = {names[i]: cards[i] - 1 for i in fixed}
            rest, constant = model.condition(evidence)
            assert rest.domain.names == tuple(n for n in names if n not in evidence)
            assert constant.shape == rest.batch_shape == (2,)
            slices = full[(slice(None), *(cards[i] - 1 if i in fixed else slice(None) for i in range(len(names))))]
            close(constant - rest.energy(states(rest.hypergraph)[:, None]), slices.reshape(2, -1).T)


def test_conditioning_takes_labels_and_keeps_gradients():
    domain = Domain.from_labels({"sky": ("clear", "cloudy"), "rain": ("no", "yes", "hail")})
    graph = InteractionHypergraph.saturated(domain)
    model = build(graph)
    by_label, _ = model.condition({"rain": "hail"})
    by_code, _ = model.condition({"rain": 2})
    assert torch.equal(by_label.tables, by_code.tables)
    tables = model.tables.clone().requires_grad_()

    def conditioned(t):
        rest, constant = LogLinearEnergy(graph, t).condition({"sky": 1})
        return rest.tables, constant

    assert torch.autograd.gradcheck(conditioned, tables)
    with pytest.raises(UnknownNameError, match="yes"):
        model.condition({"rain": "ye"})
    with pytest.raises(UnknownNameError, match="rain"):
        model.condition({"rains": 0})
    with pytest.raises(InputError, match="0 to 2"):
        model.condition({"rain": 3})
    for wrong in (None, [("rain", 1)]):
        with pytest.raises(InputTypeError, match="evidence: expected a mapping from names"):
            model.condition(wrong)


def test_batches_equal_singles_and_broadcast_with_samples(hypergraph):
    model, x = build(hypergraph, (2, 3)), states(hypergraph)[:4]
    names = hypergraph.domain.names[:2]
    singles = [LogLinearEnergy(hypergraph, t) for t in model.tables.reshape(6, -1)]
    for function in (
        lambda m, s: m.energy(s),
        lambda m, s: m.log_pseudo_prob(s),
        lambda m, s: m.block_conditional(names, s),
    ):
        stacked = torch.stack([function(m, x) for m in singles])  # (6, n, ...)
        found = function(model, x[:, None, None])  # (n, 2, 3, ...)
        tail = found.shape[3:]
        close(found, stacked.reshape(2, 3, len(x), *tail).movedim(2, 0))
        # One state for every member of the batch, and one state for all of them.
        own = function(model, x[:1].expand(6, -1).reshape(2, 3, -1))
        close(own, found[0])
        close(function(model, x[0]), found[0])
        # An expanded model holds no copy and gives the same.
        expanded = singles[0].expand((2, 3))
        close(function(expanded, x[0]), function(singles[0], x[0]).expand(2, 3, *tail))


def test_expand_and_to():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 2)
    model = build(graph, (2, 1))
    assert model.expand((4, 2, 3)).batch_shape == (4, 2, 3)
    assert model.expand((4, 2, 3)).tables.data_ptr() == model.tables.data_ptr()
    for wrong in ((3, 1), (2,), (1,)):
        with pytest.raises(InputError, match="cannot be expanded"):
            model.expand(wrong)
    small = model.to(dtype=torch.float32)
    assert (small.dtype, small.device) == (torch.float32, torch.device("cpu"))
    assert small.energy(torch.zeros(2, 1, 2)).dtype == torch.float32
    torch.testing.assert_close(
        small.energy(torch.zeros(2)).double(), model.energy(torch.zeros(2)), rtol=1e-5, atol=1e-5
    )


def test_derivatives():
    graph = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 3]))
    x = states(graph)
    for batch in ((), (2,)):
        tables = build(graph, batch).tables.requires_grad_()
        rows = x[:, None] if batch else x
        for function in (
            lambda t, s=rows: LogLinearEnergy(graph, t).energy(s),
            lambda t, s=rows: LogLinearEnergy(graph, t).log_pseudo_prob(s),
            lambda t, s=rows: LogLinearEnergy(graph, t).block_conditional(["x1"], s),
        ):
            assert torch.autograd.gradcheck(function, tables)
            assert torch.autograd.gradgradcheck(function, tables)


def test_protocols():
    model = build(InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1))
    assert isinstance(model, ConditionalModel)
    assert isinstance(model, EnergyModel)
    assert not isinstance(model.hypergraph, ConditionalModel)


def test_refusals_name_what_was_received():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3}), 2)
    model, wrong = build(graph, (2,)), torch.tensor([[1, 3], [0, 0]])
    holed = torch.tensor([0.0] * 3 + [math.nan] + [0.0] * 7)
    for call, error, text in (
        (lambda: model.energy(wrong), InputError, r"variable 'b', received 3 at index \(0, 1\)"),
        (lambda: model.log_pseudo_prob(torch.tensor([-1, 0])), InputError, r"received -1"),
        (lambda: model.energy(torch.tensor([0.5, 0.0])), InputError, r"received 0.5"),
        (lambda: model.energy(torch.tensor([0.0, math.nan])), InputError, r"received nan"),
        (lambda: model.block_conditional(["a"], torch.tensor([0, 3])), InputError, r"variable 'b'.*\(1,\)"),
        (lambda: model.energy(torch.zeros(3)), InputError, r"\(\.\.\., 2\), received \(3,\)"),
        (lambda: model.energy(torch.zeros(3, 2)), InputError, r"batch shape \(2,\), received shape \(3, 2\)"),
        (lambda: model.energy([0, 0]), InputTypeError, "list"),
        (lambda: model.energy(torch.zeros(2, dtype=torch.bool)), InputTypeError, "bool"),
        (lambda: model.block_conditional(["c"], torch.zeros(2)), UnknownNameError, "'c'"),
        (lambda: model.block_conditional(["a", "a"], torch.zeros(2)), InputError, "repeated"),
        (lambda: model.block_conditional("ab", torch.zeros(2)), InputTypeError, "string 'ab'"),
        (lambda: LogLinearEnergy(graph, torch.zeros(10)), InputError, r"received \(10,\)"),
        (lambda: LogLinearEnergy(graph, holed), InputError, r"received nan at index \(3,\)"),
        (lambda: LogLinearEnergy(graph, torch.zeros(11, dtype=torch.long)), InputTypeError, "int64"),
        (lambda: LogLinearEnergy("a", torch.zeros(11)), InputTypeError, "InteractionHypergraph"),
    ):
        with pytest.raises(error, match=text):
            call()
    with pytest.raises(InputError, match="received inf at index"):
        LogLinearEnergy(graph, torch.full((11,), math.inf))
    LogLinearEnergy(graph, torch.full((11,), math.inf), validate=False)
    assert math.isinf(float(LogLinearEnergy(graph, torch.full((11,), -math.inf)).energy(torch.tensor([0, 0]))))


def test_huge_block_is_refused_with_numbers():
    domain = Domain.from_cardinalities([2] * 23)
    model = build(InteractionHypergraph.from_order(domain, 1))
    with pytest.raises(IntractableError, match=r"8388608.*4194304"):
        model.block_conditional(domain.names, torch.zeros(23))


# The automatic choice of a backend


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


def test_enumeration_serves_where_elimination_is_over_its_budget_or_dearer(monkeypatch):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 14), 3)
    auto = Auto(elimination=VariableElimination(max_cells=16, max_slices=1))
    assert auto.plan(hypergraph).method == "enumeration"
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


def test_refusal_names_every_budget_and_evidence_can_make_a_model_tractable():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([4] * 20), 2)
    cost = Auto().plan(hypergraph)
    assert not cost.feasible
    for part in ("1099511627776 cells", "is 67108864", "1024 slices", "the budget of 4194304", "max_cells=..."):
        assert part in f"{cost.reason}; {cost.hint}"
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms))
    for call in (Auto().log_partition, Auto().expectations, Auto().mode, Auto().sample):
        with pytest.raises(IntractableError, match="the budget is 67108864"):
            call(model)
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


# Impossible states: against the joint table, by sums.


def partly_impossible():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), 2)
    tables = torch.from_numpy(np.random.default_rng(3).normal(size=graph.num_terms))
    tables[graph.term_slices["a", "b"]][:2] = -math.inf  # a=0 goes with b=2 alone
    tables[graph.term_slices["b", "c"]][4:] = -math.inf  # b=2 with nothing
    return LogLinearEnergy(graph, tables.requires_grad_())


def test_conditionals_beside_impossible_states_are_those_of_the_table():
    model = partly_impossible()
    table, codes = np.exp(exact_table(model.hypergraph, model.tables)), states(model.hypergraph)
    for block in (["a"], ["c"], ["b", "a"], ["c", "a", "b"]):
        axes = [model.domain.index(name) for name in block]
        log_probs = model.block_conditional(block, codes)
        assert not bool(torch.isnan(log_probs).any())
        for state, logs in zip(codes.tolist(), log_probs, strict=True):
            rest = tuple(code for i, code in enumerate(state) if i not in axes)
            weights = np.moveaxis(table, axes, range(len(axes)))[(..., *rest)]
            if weights.sum() > 0:
                close(logs.exp(), weights / weights.sum())
    # Beside b=2 no level of c is possible.
    assert torch.isneginf(model.block_conditional(["c"], torch.tensor([1, 2, 0]))).tolist() == [True, True]
    (gradient,) = torch.autograd.grad(model.block_conditional(["a"], codes).exp().sum(), model.tables)
    assert bool(torch.isfinite(gradient).all())


def test_log_pseudo_probability_of_impossible_states_is_minus_infinity():
    model = partly_impossible()
    codes = states(model.hypergraph)
    values = model.log_pseudo_prob(codes)
    assert torch.equal(torch.isneginf(values), torch.isposinf(model.energy(codes)))
    assert not bool(torch.isnan(values).any())
    (gradient,) = torch.autograd.grad(values[torch.isfinite(values)].sum(), model.tables)
    assert bool(torch.isfinite(gradient).all())
    # Looked at again after a change in place; other supports inside vmap.
    finite = LogLinearEnergy(model.hypergraph, model.tables.detach().nan_to_num(neginf=0.0))
    assert not finite.has_impossible_states
    finite.tables[0] = -math.inf
    assert finite.has_impossible_states

    def of(tables):
        return LogLinearEnergy(model.hypergraph, tables, validate=False).log_pseudo_prob(codes[7])

    batch = torch.stack([model.tables.detach(), finite.tables])
    close(torch.func.vmap(of)(batch), torch.stack([of(tables) for tables in batch]))


def test_evidence_that_is_impossible_shows_in_the_constant_or_in_log_z():
    model = partly_impossible()
    rest, constant = model.condition({"a": torch.tensor([0, 0, 1]), "b": torch.tensor([1, 2, 1])})
    assert torch.isneginf(constant).tolist() == [True, False, False]
    # The constant alone does not know that b=2 has no c; log Z of what is left does.
    assert torch.isneginf(Enumeration().log_partition(rest).value).tolist() == [False, True, False]
    pair = InteractionHypergraph(model.domain, [("a", "b")], hierarchical=False)
    sparse = LogLinearEnergy(pair, torch.tensor([0.0, -math.inf, 1.0, 0.0, 0.5, 0.0]))
    codes = states(pair)
    assert torch.equal(sparse.on_closure().energy(codes), sparse.energy(codes))
