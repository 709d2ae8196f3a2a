"""Variable elimination: plans, slicing, refusals, where linear space gives way to log space, large tables."""

import math
from contextlib import contextmanager
from functools import partial
from unittest.mock import Mock

import forkserver
import numpy as np
import pytest
import torch
from hypothesis import given

from pyro_hoim import Domain, InputError, InteractionHypergraph, IntractableError
from pyro_hoim.generalized_root import (
    GaussianClosedForm,
    IndependentClosedForm,
    RootAnnealed,
    RootAuto,
    RootEnumeration,
)
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Auto,
    Enumeration,
    HierarchicalLogLinear,
    LogLinearEnergy,
    MatrixEnumeration,
    VariableElimination,
)
from pyro_hoim.log_linear.exact import (
    _linear_space as linear_samples,
    _linear_space as linear_space,
    _log_space as log_space,
)
from pyro_hoim.log_linear.exact._program import bucket_plan, compiled
from pyro_hoim.testing import (
    assert_close,
    assert_exact_law,
    count_states,
    exact_log_partition,
    exact_statistics,
    exact_table,
    raises,
    random_tables,
    required_draws,
)

from support.calls import noted
from support.root_models import random_energy
from support.strategies import domains, hypergraphs, models

SMALL = models(
    hypergraph=hypergraphs(domain=domains(min_variables=0, max_variables=6, max_states=128), hierarchical=False),
    batch_shape=(2,),
)


GRIDS = [((12, 8), beta, torch.float64, 1e-10) for beta in (0.0, 0.3, 1.0, 8.0)]
GRIDS.append(((10, 10), 0.4, torch.float32, 1e-6))


def grid(rows, columns, cardinality=2):
    domain = Domain.from_cardinalities({f"v{i}_{j}": cardinality for i in range(rows) for j in range(columns)})
    edges = [(f"v{i}_{j}", f"v{i}_{j + 1}") for i in range(rows) for j in range(columns - 1)]
    edges += [(f"v{i}_{j}", f"v{i + 1}_{j}") for i in range(rows - 1) for j in range(columns)]
    return InteractionHypergraph(domain, edges, closure=True)


def ising_log_z(rows, columns, beta):
    """Log Z of a free-boundary Ising model by its transfer matrix, in plain NumPy."""
    spins = np.array([[1 - 2 * ((s >> i) & 1) for i in range(columns)] for s in range(2**columns)])
    inside = np.exp(beta * (spins[:, :-1] * spins[:, 1:]).sum(1))
    transfer = np.exp(beta * spins @ spins.T)
    vector, scale = inside, 0.0
    for _ in range(rows - 1):
        vector = inside * (transfer @ vector)
        scale += math.log(vector.max())
        vector = vector / vector.max()
    return scale + math.log(vector.sum())


def ising_tables(hypergraph, beta, dtype):
    tables = torch.zeros(hypergraph.num_terms, dtype=dtype)
    for edge, piece in hypergraph.term_slices.items():
        if len(edge) == 2:
            tables[piece] = torch.tensor([beta, -beta, -beta, beta], dtype=dtype)
    return tables


@pytest.fixture
def forbid_log_space(monkeypatch):
    """Fail if the fallback is taken."""

    monkeypatch.setattr(log_space, "log_z", Mock(side_effect=AssertionError("log space was used")))


@contextmanager
def large_programs():
    """Run even small programs step by step, on two threads."""
    limits, threads = (linear_space._LARGE_BUFFER, linear_space._LARGE_STEP), torch.get_num_threads()
    linear_space._LARGE_BUFFER, linear_space._LARGE_STEP = 0, 1
    torch.set_num_threads(2)
    try:
        yield
    finally:
        linear_space._LARGE_BUFFER, linear_space._LARGE_STEP = limits
        torch.set_num_threads(threads)


@pytest.fixture
def everything_is_large():
    with large_programs():
        yield


# Against closed forms


@pytest.mark.parametrize(("size", "beta", "dtype", "tolerance"), GRIDS)
def test_ising_grid_equals_the_transfer_matrix(size, beta, dtype, tolerance, forbid_log_space):
    hypergraph = grid(*size)
    beta = float(torch.tensor(beta, dtype=dtype))

    def error(coupling):
        model = LogLinearEnergy(hypergraph, ising_tables(hypergraph, coupling, dtype))
        return abs(float(VariableElimination().log_partition(model).value) / ising_log_z(*size, beta) - 1)

    assert error(beta) < tolerance
    step = 1e-6 if beta and dtype == torch.float64 else 2 * tolerance**0.5  # a double root at beta 0
    assert error(beta + step) > tolerance  # control


def test_long_chain_keeps_its_scale(forbid_log_space):
    """4,000 steps whose product would overflow any floating-point number."""
    size = 4000
    domain = Domain.from_cardinalities([2] * size)
    chain = InteractionHypergraph(domain, zip(domain.names, domain.names[1:], strict=False), hierarchical=False)
    tables = torch.tensor([3.0, -1.0, -1.0, 3.0], dtype=torch.float64).repeat(size - 1)
    backend = VariableElimination(order=domain.names)
    exact = math.log(2) + (size - 1) * math.log(math.exp(3) + math.exp(-1))
    assert math.isclose(float(backend.log_partition(LogLinearEnergy(chain, tables)).value), exact, rel_tol=1e-12)
    single = LogLinearEnergy(chain, tables.float())
    assert math.isclose(float(backend.log_partition(single).value), exact, rel_tol=1e-6)
    eta = backend.expectations(single).reshape(-1, 4)
    agree = 0.5 / (1 + math.exp(-4))
    assert_close(eta[:, 0].double(), np.full(size - 1, agree), relative=1e-5)


# Ranges


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 30.0, 100.0, 1000.0])
def test_any_range_of_tables(dtype, spread):
    """A table that favours one state by e^spread against another that favours the opposite as strongly."""
    domain = Domain.from_cardinalities([2, 2, 2])
    hypergraph = InteractionHypergraph(domain, [("x0", "x1"), ("x1", "x2")], closure=True)
    rng = np.random.default_rng(3)
    tables = torch.as_tensor(random_tables(hypergraph, rng, scale=spread, batch_shape=(4,), balanced=False)).to(dtype)
    model = LogLinearEnergy(hypergraph, tables)
    expected = exact_log_partition(hypergraph, tables.double())
    eta = exact_statistics(hypergraph, exact_table(hypergraph, tables.double()))
    tolerance = 1e-10 if dtype == torch.float64 else 2e-6 * (1 + spread)
    assert_close(VariableElimination().log_partition(model).value.double(), expected, relative=tolerance)
    assert_close(VariableElimination().expectations(model).double(), eta, relative=tolerance)


def test_log_space_takes_over_where_linear_space_underflows_and_would_be_wrong(monkeypatch):
    calls = noted(monkeypatch, log_space, "log_z")
    hypergraph = grid(3, 3)
    mild = torch.zeros(2, hypergraph.num_terms, dtype=torch.float32)
    strong = mild.clone()
    strong[1, 0] = 500.0
    VariableElimination().log_partition(LogLinearEnergy(hypergraph, mild))
    assert not calls
    value = VariableElimination().log_partition(LogLinearEnergy(hypergraph, strong)).value
    assert calls
    assert_close(value.double(), exact_log_partition(hypergraph, strong.double()), relative=1e-6)
    # Negative control: the same sums in linear space lose the only states that fit both tables.
    one, two = torch.tensor([0.0, -800.0]).double(), torch.tensor([-800.0, 0.0]).double()
    assert (one.exp() * two.exp()).sum() == 0
    domain = Domain.from_cardinalities([2])
    hypergraph = InteractionHypergraph(domain, [("x0",)])
    both = LogLinearEnergy(hypergraph, one + two)
    assert float(VariableElimination().log_partition(both).value) == pytest.approx(math.log(2) - 800)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_results_that_are_not_finite_are_errors(backend, bad):
    hypergraph = grid(2, 2)
    tables = torch.zeros(hypergraph.num_terms)
    tables[:] = bad
    with pytest.raises(InputError, match="finite"):
        backend.log_partition(LogLinearEnergy(hypergraph, tables, validate=False))


# Large tables


@given(SMALL)
def test_step_by_step_equals_brute_force(drawn):
    model, backend = LogLinearEnergy(drawn.hypergraph, drawn.tables), VariableElimination()
    with large_programs():
        value, eta = backend.log_partition(model).value, backend.expectations(model)
    assert_close(value, exact_log_partition(drawn.hypergraph, drawn.tables))
    assert_close(eta, exact_statistics(drawn.hypergraph, exact_table(drawn.hypergraph, drawn.tables)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_grid_equals_log_space(dtype, everything_is_large):
    hypergraph = grid(8, 11)
    tables = torch.as_tensor(random_tables(hypergraph, np.random.default_rng(0), scale=0.7)).to(dtype)
    model = LogLinearEnergy(hypergraph, tables)
    log_only = VariableElimination(space="log")
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    exact = LogLinearEnergy(hypergraph, tables.double())
    log_z, eta = log_only.log_partition(exact).value, log_only.expectations(exact)
    for order in (None, hypergraph.domain.names):
        backend = VariableElimination(order=order)
        assert_close(backend.log_partition(model).value.double(), log_z, relative=tolerance)
        assert_close(backend.expectations(model).double(), eta, relative=tolerance)


def test_dense_table_equals_enumeration(everything_is_large):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([3, 2, 4, 2, 5, 3]), 3)
    tables = torch.as_tensor(random_tables(hypergraph, np.random.default_rng(1), batch_shape=(2,)))
    model = LogLinearEnergy(hypergraph, tables)
    assert_close(VariableElimination().log_partition(model).value, Enumeration().log_partition(model).value)
    assert_close(VariableElimination().expectations(model), Enumeration().expectations(model))


def test_a_batch_split_between_threads_equals_one_thread(monkeypatch):
    hypergraph = grid(4, 4)
    tables = torch.as_tensor(random_tables(hypergraph, np.random.default_rng(1), batch_shape=(17,)))
    model = LogLinearEnergy(hypergraph, tables)
    one = VariableElimination().expectations(model)
    monkeypatch.setattr(linear_space, "_LARGE_BATCH", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(VariableElimination().expectations(model), one)


# Plans and budgets


@given(SMALL)
def test_slicing_equals_no_slicing(drawn):
    model = LogLinearEnergy(drawn.hypergraph, drawn.tables)
    whole = VariableElimination()
    cells = whole.plan(drawn.hypergraph).cells
    backend = VariableElimination(max_cells=max(1, cells // 3))
    plan = backend.plan(drawn.hypergraph)
    assert plan.feasible
    assert plan.cells <= backend.max_cells
    assert (len(plan.slices) > 0) == (cells > backend.max_cells)
    assert_close(backend.log_partition(model).value, whole.log_partition(model).value)
    assert_close(backend.expectations(model), whole.expectations(model))
    assert_close(backend.mode(model)[1], whole.mode(model)[1])


def test_budget_refusals_state_cells_budget_and_option():
    hypergraph = grid(20, 20)
    backend = VariableElimination(max_cells=2**10, max_slices=4)
    plan = backend.plan(hypergraph)
    assert not plan.feasible
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms))
    for call in (
        lambda: backend.log_partition(model),
        lambda: backend.expectations(model),
        lambda: backend.sample(model),
        lambda: backend.mode(model),
        lambda: backend.marginal(model, hypergraph.domain.names[:2]),
    ):
        with pytest.raises(IntractableError, match=r"table of \d+ cells.*is 1024.*4 slices.*max_cells=\.\.\."):
            call()
    domain = Domain.from_cardinalities([4] * 12)
    model = LogLinearEnergy(InteractionHypergraph(domain, []), torch.zeros(0))
    assert VariableElimination().log_partition(model).value == pytest.approx(12 * math.log(4))
    with pytest.raises(IntractableError, match="16777216 cells"):
        VariableElimination(max_cells=2**20).marginal(model, domain.names)


def test_too_many_operations_are_refused_with_their_number():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 12), 2)
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms, dtype=torch.float64))
    backend = VariableElimination(max_cells=2**9)
    plan = backend.plan(hypergraph)
    assert plan.feasible
    assert len(plan.slices) == 3
    assert float(backend.log_partition(model).value) == pytest.approx(12 * math.log(2), rel=1e-12)
    backend = VariableElimination(max_cells=2**9, max_operations=plan.flops - 1)
    assert not backend.plan(hypergraph).feasible
    with pytest.raises(IntractableError, match=rf"{plan.flops} operations.*in 8 slices.*is {plan.flops - 1}"):
        backend.log_partition(model)


@pytest.mark.parametrize("max_cells", [2**26, 2**8])
def test_memory_is_that_of_the_buffers(max_cells, everything_is_large, monkeypatch):
    """What the run allocates lies within the plan, and the plan is not far above it."""
    hypergraph = grid(9, 9)
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms, dtype=torch.float64))
    backend = VariableElimination(max_cells=max_cells)
    plan = backend.plan(hypergraph)
    assert bool(plan.slices) == (max_cells == 2**8)
    allocated = noted(monkeypatch, torch, "empty")
    backend.expectations(model)
    monkeypatch.undo()
    runs = 8 * sum(size for (size,) in allocated) // math.prod(hypergraph.domain[n].cardinality for n in plan.slices)
    assert runs <= plan.memory_bytes <= runs + 8 * (2 + 2 ** len(plan.slices)) * hypergraph.num_terms
    assert plan.memory_bytes != 8 * plan.cells  # negative control: the largest table is not what counts


def test_too_much_memory_is_refused_with_its_number():
    hypergraph = grid(24, 24)
    plan = VariableElimination().plan(hypergraph)
    assert not plan.feasible
    assert plan.cells <= VariableElimination().max_cells
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms))
    with pytest.raises(IntractableError, match=rf"{plan.memory_bytes} bytes.*GiB.*is 4294967296.*\.\.\."):
        VariableElimination().expectations(model)
    hypergraph = grid(10, 10)
    plan = VariableElimination().plan(hypergraph)
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms, dtype=torch.float64))
    assert VariableElimination(max_memory_bytes=plan.memory_bytes).expectations(model).isfinite().all()
    small = VariableElimination(max_memory_bytes=plan.memory_bytes - 1)
    assert not small.plan(hypergraph).feasible
    gradient = LogLinearEnergy(hypergraph, model.tables.clone().requires_grad_())
    for call in (
        lambda: small.expectations(model),
        lambda: small.log_partition(gradient),
        lambda: VariableElimination(max_memory_bytes=2**12).log_partition(model),
        lambda: VariableElimination(max_memory_bytes=2**12).sample(model),
        lambda: VariableElimination(max_memory_bytes=2**12).mode(model),
        lambda: VariableElimination(max_memory_bytes=2**12).marginal(model, hypergraph.domain.names[:2]),
        lambda: VariableElimination(max_memory_bytes=2**12, space="log").log_partition(model),
    ):
        with pytest.raises(IntractableError, match="max_memory_bytes"):
            call()
    for backend in (small, Auto(elimination=small)):  # log Z alone needs no adjoints
        assert float(backend.log_partition(model).value) == pytest.approx(100 * math.log(2), rel=1e-12)


def test_large_batches_take_chunks_in_log_space(monkeypatch):
    hypergraph = grid(3, 3)
    tables = torch.as_tensor(random_tables(hypergraph, np.random.default_rng(4), batch_shape=(2, 5)))
    names = hypergraph.domain.names[:2]

    def results(backend):
        leaf = tables.clone().requires_grad_()
        model, with_graph = LogLinearEnergy(hypergraph, tables), LogLinearEnergy(hypergraph, leaf)
        joint = backend.log_marginal(with_graph, names)
        (gradient,) = torch.autograd.grad(joint[..., 0, 1].sum(), leaf)
        (eta,) = torch.autograd.grad(backend.log_partition(with_graph).value.sum(), leaf, create_graph=True)
        (product,) = torch.autograd.grad((eta * tables).sum(), leaf)
        mode = backend.mode(model)
        draws = backend.sample(model, (3,), torch.Generator().manual_seed(0))
        assert draws.shape == (3, 2, 5, 9)
        return [joint.detach(), gradient, eta.detach(), product, mode[0].double(), mode[1]]

    limit = 3 * log_space.cells_alive(bucket_plan(hypergraph), False)
    original, rows = log_space.upward, []

    def upward(plan, chunk, *args, **kwargs):
        assert len(chunk) <= max(1, limit // log_space.cells_alive(plan, False))
        rows.append(len(chunk))
        return original(plan, chunk, *args, **kwargs)

    for backend in (VariableElimination(), VariableElimination(space="log"), VariableElimination(max_cells=8)):
        whole = results(backend)
        with monkeypatch.context() as patch:
            patch.setattr(log_space, "_BATCH_CELLS", limit)
            patch.setattr(log_space, "upward", upward)
            chunked = results(backend)
        for one, two in zip(whole, chunked, strict=True):
            assert_close(two, one)
    assert 1 in rows
    assert 3 in rows


def test_sampling_in_chunks_keeps_each_model_its_own(monkeypatch):
    """Seven models, each all but certain of one state."""
    hypergraph = grid(2, 3)
    monkeypatch.setattr(log_space, "_BATCH_CELLS", 1)
    states = torch.randint(0, 2, (7, 6), generator=torch.Generator().manual_seed(1))
    tables = torch.zeros(7, hypergraph.num_terms, dtype=torch.float64)
    for v, piece in enumerate(list(hypergraph.term_slices.values())[:6]):
        tables[torch.arange(7), piece.start + states[:, v]] = 60.0
    draws = VariableElimination().sample(LogLinearEnergy(hypergraph, tables), (4,))
    assert torch.equal(draws, states.expand(4, 7, 6))


def test_plan_is_known_before_running_and_counts_evidence_and_kept_names():
    hypergraph = grid(6, 6)
    backend = VariableElimination()
    plan = backend.plan(hypergraph)
    assert plan.feasible
    assert (plan.method, sorted(plan.order)) == ("variable elimination", sorted(hypergraph.domain.names))
    assert plan.cells <= plan.total_cells <= plan.flops
    row = [f"v3_{j}" for j in range(6)]
    assert backend.plan(hypergraph, evidence_names=row).cells < plan.cells
    assert set(backend.plan(hypergraph, keep=row).order) == set(hypergraph.domain.names) - set(row)
    assert backend.plan(hypergraph, keep=row).cells >= 2**6


@pytest.mark.parametrize(
    ("options", "names", "code"),
    [
        *(({f"max_{what}": 0}, [], "out-of-range") for what in ("cells", "slices", "operations", "memory_bytes")),
        ({"space": "linear"}, [], "unknown-choice"),
        ({"order": ("v0_0", "v0_0")}, [], "repeated-name"),
        ({"order": ("nobody",)}, [], "other-domain"),
        ({}, ["v0_9"], "unknown-name"),
        ({}, ["v0_0", "v0_0"], "repeated-name"),
    ],
)
def test_bad_options_and_names(options, names, code):
    hypergraph = grid(2, 2)
    with raises(code):
        VariableElimination(**options).marginal(LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms)), names)


def test_a_given_order_serves_conditioning_and_marginals():
    hypergraph = grid(3, 3)
    names = hypergraph.domain.names
    tables = torch.as_tensor(random_tables(hypergraph, np.random.default_rng(2)))
    model = LogLinearEnergy(hypergraph, tables)
    for order in (names[::-1], names[4:], (*names[2:5], "somebody_else")):
        backend = VariableElimination(order=order)
        assert backend.plan(hypergraph).order[: len(set(order) & set(names))] == tuple(n for n in order if n in names)
        assert sorted(backend.plan(hypergraph).order) == sorted(names)
        assert_close(backend.log_partition(model).value, exact_log_partition(hypergraph, tables))
        wanted = (names[4], names[0])
        assert_close(backend.marginal(model, wanted), Enumeration().marginal(model, wanted))
        left = backend.plan(hypergraph, evidence_names=names[:4], keep=names[-1:]).order
        expected = tuple(n for n in order if n in names[4:-1])
        assert left[: len(expected)] == expected
        part, _ = model.condition({names[0]: 1, names[4]: 0})
        assert_close(backend.log_partition(part).value, Enumeration().log_partition(part).value)
        nothing, _ = model.condition(dict.fromkeys(names, 0))
        assert float(backend.log_partition(nothing).value) == 0
    sliced = VariableElimination(order=names[4:], max_cells=4)
    assert sliced.plan(hypergraph).slices
    assert_close(sliced.expectations(model), Enumeration().expectations(model))


@given(hypergraphs(domain=domains(min_variables=0), hierarchical=False))
def test_programs_are_sound(hypergraph):
    """Each node is used once, places that are alive together do not overlap, and the work is that of the plan."""
    plan = bucket_plan(hypergraph)
    program = compiled(plan)
    steps, size = program.arrays.steps, program.arrays.size
    operands = [n for step in steps[:, :2].tolist() for n in step if n]
    assert len(operands) == len(set(operands))
    made = {int(z): i for i, z in enumerate(steps[:, 2])}
    used = {n: i for i, step in enumerate(steps[:, :2].tolist()) for n in step if n}
    nodes = range(1, len(size))
    for a in nodes:
        for b in nodes:
            if a < b and made.get(b, -1) <= used.get(a, len(made)) and made.get(a, -1) <= used.get(b, len(made)):
                low, high = sorted((a, b), key=lambda n: program.reused[n])
                assert program.reused[low] + size[low] <= program.reused[high]


# Processes


def test_compiled_loops_survive_a_fork(tmp_path):
    code = (
        "import os, torch\n"
        "from pyro_hoim.log_linear.energy import LogLinearEnergy\n"
        "from pyro_hoim.log_linear import VariableElimination\n"
        "from pyro_hoim.log_linear.exact import _linear_space as ls\n"
        "from pyro_hoim.schema import Domain\n"
        "from pyro_hoim.structure import InteractionHypergraph\n"
        "torch.set_num_threads(2); ls._LARGE_BUFFER = 0; ls._LARGE_STEP = 1\n"
        "h = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 5), 2)\n"
        "m = LogLinearEnergy(h, torch.zeros(h.num_terms))\n"
        "b = VariableElimination()\n"
        "first = b.expectations(m)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(0 if torch.equal(b.expectations(m), first) else 3)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    forkserver.run(code, tmp_path / "output")


# Perfect draws and modes


HYPERGRAPH = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2, "e": 1}),
    [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("e",)],
    closure=True,
)
CARDINALITIES = HYPERGRAPH.domain.cardinalities
TABLES = torch.as_tensor(random_tables(HYPERGRAPH, np.random.default_rng(8), scale=1.0, batch_shape=(2,)))
PROBS = np.exp(exact_table(HYPERGRAPH, TABLES)).reshape(2, -1)
DRAWS = required_draws(math.prod(CARDINALITIES), 0.02)  # a total variation of 0.02 is found with power 0.999
BACKENDS = (
    VariableElimination(),
    VariableElimination(max_cells=6),
    VariableElimination(order=("c", "a", "e", "b", "d")),
    Enumeration(),
    MatrixEnumeration(),
    Auto(),
)


def _counts(backend, tables, seed):
    draws = backend.sample(LogLinearEnergy(HYPERGRAPH, tables), (DRAWS,), torch.Generator().manual_seed(seed))
    return [count_states(draws[:, b], CARDINALITIES) for b in range(2)]


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_draws_follow_the_exact_law(backend):
    dropped = TABLES.clone()
    dropped[:, HYPERGRAPH.term_slices["c", "d"]] = 0
    for counts, wrong, probs in zip(*(_counts(backend, tables, 1) for tables in (TABLES, dropped)), PROBS, strict=True):
        assert_exact_law(counts, probs)
        with pytest.raises(AssertionError):  # control: a sampler that ignores one interaction
            assert_exact_law(wrong, probs)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_generators(backend):
    draw = partial(backend.sample, LogLinearEnergy(HYPERGRAPH, TABLES), (3, 5))
    one, other = (draw(torch.Generator().manual_seed(seed)) for seed in (4, 5))
    assert one.shape == (3, 5, 2, 5)
    assert not torch.equal(one, other)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = draw()
        torch.manual_seed(3)
        assert torch.equal(draw(), first)


def test_extreme_laws_never_draw_impossible_states():
    """At scale 30 nearly all mass sits on a few states; none of the others may appear in 2,000 draws."""
    tables = torch.as_tensor(random_tables(HYPERGRAPH, np.random.default_rng(2), scale=30.0))
    probs = np.exp(exact_table(HYPERGRAPH, tables)).reshape(-1)
    for backend in BACKENDS:
        draws = backend.sample(LogLinearEnergy(HYPERGRAPH, tables), (2000,), torch.Generator().manual_seed(6))
        counts = count_states(draws, CARDINALITIES)
        assert not counts[probs < 1e-12].any()


@pytest.mark.parametrize("options", [{}, {"max_cells": 6}, {"order": ("c", "a", "e", "b", "d")}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_and_log_space_draw_the_same_states(options, dtype):
    """Equal uniforms give equal states, but for ties in rounding; other weights do not."""
    model = LogLinearEnergy(HYPERGRAPH, TABLES[0].to(dtype))
    linear, log, other = (
        VariableElimination(space=space, **options).sample(of, (4000,), torch.Generator().manual_seed(2))
        for space, of in (("auto", model), ("log", model), ("auto", LogLinearEnergy(HYPERGRAPH, 0.9 * model.tables)))
    )
    assert (linear != log).any(-1).sum() <= (0 if dtype == torch.float64 else 4)
    assert (linear != other).any(-1).sum() > 50


def test_draws_are_made_in_log_space_where_the_range_does_not_suffice():
    tables = TABLES.clone()
    tables[1] *= 1e4
    both, alone = (
        VariableElimination().sample(LogLinearEnergy(HYPERGRAPH, t), (100,), torch.Generator().manual_seed(2))
        for t in (tables, tables[:1])
    )
    assert torch.equal(both[:, 0], alone[:, 0])
    best, _ = VariableElimination().mode(LogLinearEnergy(HYPERGRAPH, tables[1]))
    assert (both[:, 1] == best).all()


def test_many_draws_and_many_models(monkeypatch):
    """Draws in pieces and on threads, and the batch of tiny models, follow the exact law."""
    monkeypatch.setattr(linear_samples, "_UNIFORMS", 2**13)
    monkeypatch.setattr(linear_samples, "_LARGE", 1)
    for counts, probs in zip(_counts(VariableElimination(), TABLES, 1), PROBS, strict=True):
        assert_exact_law(counts, probs)
    many = LogLinearEnergy(HYPERGRAPH, TABLES[0].expand(DRAWS, -1))
    draws = VariableElimination().sample(many, (), torch.Generator().manual_seed(1))
    assert_exact_law(count_states(draws, CARDINALITIES), PROBS[0])


def test_draws_of_many_variables_have_the_right_means():
    """A chain of 60 variables: pair frequencies against exact marginals, 5 standard errors on 236 cells."""
    domain = Domain.from_cardinalities([2] * 60)
    chain = InteractionHypergraph(domain, zip(domain.names, domain.names[1:], strict=False), closure=True)
    tables = torch.as_tensor(random_tables(chain, np.random.default_rng(3)))
    model = LogLinearEnergy(chain, tables)
    eta = VariableElimination().expectations(model)
    draws = VariableElimination().sample(model, (20_000,), torch.Generator().manual_seed(1))
    for edge, piece in chain.term_slices.items():
        index = torch.zeros(len(draws), dtype=torch.long)
        for name in edge:
            index = 2 * index + draws[:, domain.index(name)]
        share = torch.bincount(index, minlength=2 ** len(edge)) / len(draws)
        error = (eta[piece] * (1 - eta[piece]) / len(draws)).sqrt()
        assert ((share - eta[piece]).abs() <= 5.5 * error + 1e-9).all()


MODEL = LogLinearEnergy(HYPERGRAPH, TABLES)
COUNTS, REALS = random_energy("poisson", 2, 1, seed=1), random_energy("gaussian", 2, 2, seed=1)
SAMPLERS = {
    **{str(backend): partial(backend.sample, MODEL) for backend in (*BACKENDS, AnnealedImportance(burn_in=1))},
    **{
        type(backend).__name__: partial(backend.sample, COUNTS)
        for backend in (IndependentClosedForm(), RootEnumeration(), RootAuto(), RootAnnealed(burn_in=1))
    },
    "GaussianClosedForm": partial(GaussianClosedForm().sample, REALS),
    "law": HierarchicalLogLinear(HYPERGRAPH, TABLES, coding="balanced").sample,
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_sample_shapes_are_sequences_of_whole_numbers(name):
    sample = SAMPLERS[name]
    for shape in ((), (2,), [3, 1], torch.Size([2, 0]), (np.int64(2),)):
        draws, single = sample(shape), sample(())
        assert draws.shape == (*shape, *single.shape)
    for shape in (2, 2.0, "2", (2.0,), (True,), None, torch.tensor([2])):
        with raises("wrong-type", "sample_shape"):
            sample(shape)
    with raises("out-of-range", "sample_shape"):
        sample((2, -1))
