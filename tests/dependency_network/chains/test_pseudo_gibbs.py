"""Pseudo-Gibbs chains: laws against transition matrices, clamped variables, bits, records, checkpoints, bad input.

The matrices come from the definition of a network alone: a graph is replayed state by state, a table is looked up, and
nothing of the samplers is used. Every law is a random test at the rate of the library with a detectable total variation
of 0.05; the controls are laws of samplers with a known fault, which the same draws must refuse.
"""

import inspect
import itertools

import numpy as np
import pytest
import torch
from network_oracles import fixed_law, laws_of, pair, random_network, update_matrix
from scipy.stats import t as student

from pyro_hoim import Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy, sample_chains
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    DependencyNetwork,
    LeafConditional,
    ModelConditional,
    PseudoGibbsChains,
    TableConditional,
    stationary_law,
)
from pyro_hoim.dependency_network.chains.engines import alias_tables, walker_program
from pyro_hoim.errors import ConvergenceWarning, InputError
from pyro_hoim.interop import diagnose_chains
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    assert_stationary,
    count_states,
    enumerate_codes,
    exact_table,
    raises,
    random_tables,
    required_draws,
)

from support.transitions import recompute_counts

DOMAIN = Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["only"], "d": ["0", "1"]})
CARDS = DOMAIN.cardinalities
STATES = enumerate_codes(CARDS)
SIZE = required_draws(len(STATES), 0.05)
WEIGHTS = {"a": 0.6, "b": 0.1, "c": 0.05, "d": 0.25}
ENGINES = {
    "compiled": {"engine": "compiled"},
    "compiled64": {"engine": "compiled", "precision": torch.float64},
    "torch": {"engine": "torch"},
}
engines = pytest.mark.parametrize("engine", ENGINES)
scans = pytest.mark.parametrize("scan", ["sequential", "random"])


def dirichlet(rng, *shape, dtype=torch.float64):
    probs = torch.from_numpy(rng.dirichlet(np.ones(shape[-1]), shape[:-1])).to(dtype)
    return probs / probs.sum(-1, keepdim=True)


def network(seed=0, dtype=torch.float64):
    """A graph with a merge, a table and a graph that asks one variable twice; conditionals of no joint law."""
    rng = np.random.default_rng(seed)
    of_a = DecisionGraph(DOMAIN, "a").split(0, "b").split(1, "d").merge(0, 2)
    of_d = DecisionGraph(DOMAIN, "d").split(0, "a").split(0, "b").merge(0, 3).split(0, "a")
    nodes = [
        LeafConditional(of_a, dirichlet(rng, of_a.num_leaves, 2, dtype=dtype)),
        TableConditional(DOMAIN, "b", ["d", "c", "a"], dirichlet(rng, 2, 1, 2, 3, dtype=dtype)),
        TableConditional(DOMAIN, "c", [], dirichlet(rng, 1, dtype=dtype)),
        LeafConditional(of_d, dirichlet(rng, of_d.num_leaves, 2, dtype=dtype)),
    ]
    return DependencyConditionals(nodes)


# The oracle


def scan_matrix(conditionals, scan, names, weights=None):
    """Transition matrix of a sweep over the names."""
    steps = [update_matrix(conditionals, name) for name in names]
    if scan == "sequential":
        return np.linalg.multi_dot([np.eye(len(steps[0])), *steps])
    shares = np.array([1.0 if weights is None else weights[name] for name in names])
    one = sum(c * step for c, step in zip(shares / shares.sum(), steps, strict=True))
    return np.linalg.matrix_power(np.asarray(one), len(names))


def counts_of(codes, domain=DOMAIN):
    return count_states(codes, domain.cardinalities)


def refuses(counts, law):
    """Whether draws are told from a law."""
    try:
        assert_exact_law(counts, law)
    except AssertionError:
        return True
    return False


# Laws


@engines
@scans
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sweep_from_a_fixed_state_has_the_law_of_its_matrix(engine, scan, dtype):
    conditionals = network(dtype=dtype)
    names = ["d", "a", "b"] if scan == "sequential" else ["a", "b", "d"]
    kind = names if scan == "sequential" else WEIGHTS
    chains = PseudoGibbsChains(conditionals, SIZE, scan=kind, init=torch.tensor(STATES[7]), seed=1, **ENGINES[engine])
    assert chains.scan.order == tuple(names)
    chains.sweep(2)
    law = np.linalg.matrix_power(scan_matrix(conditionals, scan, names, WEIGHTS), 2)[7]
    assert_exact_law(counts_of(chains.states), law)


def together(conditionals, first, second):
    """Two variables drawn from the same old state."""
    domain, laws = conditionals.domain, [laws_of(conditionals, name) for name in (first, second)]
    i, j = domain.indices([first, second])
    matrix = np.zeros((len(STATES), len(STATES)))
    for s, state in enumerate(STATES):
        for k, m in itertools.product(range(CARDS[i]), range(CARDS[j])):
            moved = state.copy()
            moved[i], moved[j] = k, m
            matrix[s, np.ravel_multi_index(tuple(moved), CARDS)] += laws[0][s, k] * laws[1][s, m]
    return matrix


@engines
def test_laws_of_faulty_samplers_are_told_apart(engine):
    conditionals = network()
    start = torch.tensor(STATES[7])
    chains = PseudoGibbsChains(conditionals, SIZE, scan="sequential", init=start, seed=2, **ENGINES[engine])
    chains.sweep(1)
    counts = counts_of(chains.states)
    assert not refuses(counts, scan_matrix(conditionals, "sequential", "abd")[7])
    assert refuses(counts, (together(conditionals, "a", "b") @ update_matrix(conditionals, "d"))[7])  # neighbours
    stale = update_matrix(conditionals, "a") @ together(conditionals, "b", "d")
    assert refuses(counts, stale[7])  # the last one reads what b was before
    assert refuses(counts, scan_matrix(conditionals, "sequential", "dba")[7])  # backwards
    chains = PseudoGibbsChains(conditionals, SIZE, scan=WEIGHTS, init=start, seed=2, **ENGINES[engine])
    chains.sweep(1)
    counts = counts_of(chains.states)
    assert not refuses(counts, scan_matrix(conditionals, "random", "abd", WEIGHTS)[7])
    assert refuses(counts, scan_matrix(conditionals, "random", "abd")[7])  # uniform probabilities


@engines
def test_many_chains_at_one_moment_follow_the_stationary_law_of_the_random_scan(engine):
    conditionals = network(3)
    matrix = scan_matrix(conditionals, "random", "abd", WEIGHTS)
    law = fixed_law(matrix)
    assert_stationary(matrix, law)
    chains = PseudoGibbsChains(conditionals, SIZE, scan=WEIGHTS, seed=4, **ENGINES[engine])
    chains.sweep(80)
    assert np.abs(np.linalg.matrix_power(matrix, 80) - law).max() < 1e-9
    assert_exact_law(counts_of(chains.states), law)
    # With one order for all chains they would all have drawn the same variable last.
    last = [law @ update_matrix(conditionals, name) for name in "abd"]
    assert all(refuses(counts_of(chains.states), shared) for shared in last)


@engines
def test_the_sequential_scan_has_one_law_for_every_place_in_its_order(engine):
    conditionals, order = network(5), "bda"
    matrix = scan_matrix(conditionals, "sequential", order)
    laws = [fixed_law(matrix)]
    assert_stationary(matrix, laws[0])
    for name in order:
        laws.append(laws[-1] @ update_matrix(conditionals, name))
    assert_close(laws[3], laws[0], relative=1e-12)
    chains = PseudoGibbsChains(conditionals, SIZE, scan=list(order), seed=6, **ENGINES[engine])
    chains.sweep(40)
    for k in range(4):
        counts = counts_of(chains.states)
        assert_exact_law(counts, laws[k])
        assert refuses(counts, laws[(k + 1) % 3])
        chains.update()
    assert (chains.num_updates, chains.num_sweeps) == (124, 41)


@scans
@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_conditionals_of_a_joint_law_give_that_law(engine, scan):
    hypergraph = InteractionHypergraph(DOMAIN, [("a", "b", "d")], closure=True)
    tables = random_tables(hypergraph, np.random.default_rng(7), scale=1.0, balanced=False)
    conditionals = DependencyConditionals.from_model(LogLinearEnergy(hypergraph, torch.as_tensor(tables)))
    joint = np.exp(exact_table(hypergraph, tables)).reshape(-1)
    weights = WEIGHTS if scan == "random" else None
    kind = weights or scan
    assert_close(joint @ scan_matrix(conditionals, scan, "abd", weights), joint, relative=1e-12)
    if engine == "compiled":
        conditionals = conditionals.tabulated()
    chains = PseudoGibbsChains(conditionals, SIZE, scan=kind, seed=8, engine=engine)
    chains.sweep(30)
    counts = counts_of(chains.states)
    assert_exact_law(counts, joint)
    assert refuses(counts, fixed_law(scan_matrix(network(7), scan, "abd", weights)))


@scans
def test_foreign_conditionals_are_sampled_too(scan):
    mixed = network(9)
    score = torch.linspace(-1.0, 1.0, 4, dtype=torch.float64).reshape(2, 1, 2)
    unseen = torch.stack([torch.sigmoid(-score), torch.zeros_like(score), torch.sigmoid(score)], -1)
    table = TableConditional(DOMAIN, "b", ["a", "c", "d"], unseen)
    foreign = ModelConditional(DependencyConditionals([mixed.node("a"), table, mixed.node("c"), mixed.node("d")]), "b")
    conditionals = DependencyConditionals([mixed.node("a"), foreign, mixed.node("c"), mixed.node("d")])
    matrix = scan_matrix(conditionals, scan, "abd")
    chains = PseudoGibbsChains(conditionals, SIZE, scan=scan, seed=10)
    assert "ConditionalEngine" in repr(chains)
    chains.sweep(30)
    law = fixed_law(matrix)
    assert law.reshape(CARDS)[:, 1].max() < 1e-12  # a level that never occurs
    law[law < 1e-12] = 0
    counts = counts_of(chains.states)
    assert_exact_law(counts, law)
    assert refuses(counts, fixed_law(scan_matrix(mixed, scan, "abd")))
    compiled = PseudoGibbsChains(conditionals.tabulated(), SIZE, scan=scan, seed=10, engine="compiled")
    compiled.sweep(30)
    assert_exact_law(counts_of(compiled.states), law)


class Constant:
    """A conditional from outside the library that returns whatever it was made with."""

    domain, variable, reads, has_zeros = DOMAIN, "a", (), True

    def __init__(self, *values):
        self.values = torch.tensor(values)

    def log_probs(self, x):
        return self.values.expand(*x.shape[:-1], 2)


@scans
@pytest.mark.parametrize("value", [float("nan"), -float("inf"), float("inf")])
def test_foreign_conditionals_that_are_no_laws_are_refused_when_drawn(scan, value):
    rest = network().nodes[1:]
    chains = PseudoGibbsChains(DependencyConditionals([Constant(0.0, -1.0), *rest]), 50, scan=scan, check=False)
    chains.sweep(3)  # the control; need not be normalised
    chains = PseudoGibbsChains(DependencyConditionals([Constant(value, value), *rest]), 50, scan=scan, check=False)
    with raises("invalid-value", "conditionals"):
        chains.sweep(3)
    assert int(chains.states.amax()) <= 2


# Clamped variables


@engines
@scans
def test_clamped_chains_have_the_law_of_the_clamped_network(engine, scan):
    """Half of the chains have b = y and half b = z: two laws at once, none of them a conditional of the whole law."""
    conditionals = network(11)
    values = torch.arange(2 * SIZE) % 2 + 1
    kind = WEIGHTS if scan == "random" else ["d", "b", "a"]
    chains = PseudoGibbsChains(conditionals, 2 * SIZE, scan=kind, clamped={"b": values}, seed=12, **ENGINES[engine])
    names = ["a", "d"] if scan == "random" else ["d", "a"]
    assert (chains.clamped, chains.scan.order) == (("b",), tuple(names))
    if scan == "random":
        assert chains.scan.selection == pytest.approx({"a": 0.6 / 0.85, "d": 0.25 / 0.85})
    chains.sweep(40)
    assert torch.equal(chains.states[:, 1], values)
    matrix = scan_matrix(conditionals, scan, names, WEIGHTS)
    whole = fixed_law(scan_matrix(conditionals, scan, ["a", "b", "d"], WEIGHTS))
    for level in (1, 2):
        kept = np.flatnonzero(STATES[:, 1] == level)
        law = np.zeros(len(STATES))
        law[kept] = fixed_law(matrix[np.ix_(kept, kept)])
        counts = counts_of(chains.states[values == level])
        assert_exact_law(counts, law)
        wrong = np.zeros(len(STATES))
        wrong[kept] = whole[kept] / whole[kept].sum()
        assert refuses(counts, wrong)


@engines
@scans
def test_all_clamped_chains_hold_the_evidence(engine, scan):
    evidence = {"a": "yes", "b": 2, "c": "only", "d": [0, 1, 1]}
    chains = PseudoGibbsChains(network(), 3, scan=scan, clamped=evidence, **ENGINES[engine])
    record = chains.sweep(4, thin=2, counts=True, states=True)
    assert chains.scan.order == ()
    expected = [[1, 2, 0, 0], [1, 2, 0, 1], [1, 2, 0, 1]]
    assert chains.states.tolist() == expected
    assert (record.states.tolist(), record.counts.tolist()) == ([expected, expected], [0, 6, 0, 0, 6, 6, 2, 4])
    assert chains.update(3, thin=3, states=True).num_records == 1


# Small and large domains


@engines
@scans
def test_domains_without_variables_of_one_level_and_of_one_variable(engine, scan):
    nothing = PseudoGibbsChains(DependencyConditionals([]), 4, scan=scan, **ENGINES[engine])
    nothing.sweep(3, thin=1, counts=True, states=True)
    assert nothing.states.shape == (4, 0)
    one = Domain.from_cardinalities({"only": 1})
    chains = PseudoGibbsChains(
        DependencyConditionals([TableConditional(one, "only", [], torch.ones(1))]), 4, scan=scan, **ENGINES[engine]
    )
    chains.sweep(2)
    assert chains.states.tolist() == [[0]] * 4
    single = Domain.from_cardinalities({"x": 3})
    law = torch.tensor([0.5, 0.0, 0.5])
    size = required_draws(2, 0.05)
    chains = PseudoGibbsChains(
        DependencyConditionals([TableConditional(single, "x", [], law)]), size, scan=scan, **ENGINES[engine]
    )
    chains.sweep(1)
    assert_exact_law(counts_of(chains.states, single), law.numpy())


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_a_variable_with_more_levels_than_a_byte_counts(engine):
    domain = Domain.from_cardinalities({"wide": 300, "b": 2})
    rng = np.random.default_rng(13)
    wide = dirichlet(rng, 2, 300)
    wide[1, 256:] = 0
    wide /= wide.sum(-1, keepdim=True)
    b = torch.tensor([[0.9, 0.1]] * 256 + [[0.2, 0.8]] * 44)
    conditionals = DependencyConditionals(
        [TableConditional(domain, "wide", ["b"], wide), TableConditional(domain, "b", ["wide"], b)]
    )
    size = 20_000
    chains = PseudoGibbsChains(
        conditionals, size, scan="sequential", init=torch.tensor([299, 1]), seed=14, engine=engine
    )
    record = chains.sweep(1, thin=1, counts=True, states=True)
    law = scan_matrix(conditionals, "sequential", ["wide", "b"])[599]
    top = np.isin(np.arange(600) // 2, range(256, 300))
    assert law[top].sum() == 0
    assert_exact_law(counts_of(chains.states, domain), law)
    assert torch.equal(record.states[0].long(), chains.states)
    assert torch.equal(record.counts[:300], torch.bincount(chains.states[:, 0], minlength=300).double())


def test_slots_give_back_the_laws_they_were_made_of():
    rng = np.random.default_rng(15)
    for size in (1, 2, 3, 7, 300):
        probs = rng.dirichlet(np.full(size, 0.3), 20)
        probs[rng.random(probs.shape) < 0.3] = 0
        probs[:, -1] += 1 - probs.sum(-1)
        probs[0] = np.eye(size)[-1]
        cuts, others = alias_tables(probs)
        found = cuts / size
        for row, (cut, other) in enumerate(zip(cuts, others, strict=True)):
            np.add.at(found[row], other, (1 - cut) / size)
        assert_close(found, probs, relative=1e-12)
        assert not cuts[probs == 0].any()
        assert (np.take_along_axis(probs, others, -1)[cuts < 1] > 0).all()


def test_the_program_leads_every_state_to_its_law():
    conditionals = network(16)
    nodes = [conditionals.node(name) for name in "abd"]
    program = walker_program(nodes, torch.float64)
    states = np.hstack([STATES, np.zeros((len(STATES), 1), dtype=np.int64)])
    for k, name in enumerate("abd"):
        laws, levels = laws_of(conditionals, name), int(program.levels[k])
        for state, law in zip(states, laws, strict=True):
            place = int(program.roots[k])
            for _ in range(int(program.depths[k])):
                place = int(program.code[place + 1 + state[program.code[place]]])
            assert program.code[place] == 4 and program.code[place + 1] == place
            first = int(program.code[place + 2])
            cut, other = program.cuts[first : first + levels], program.others[first : first + levels]
            found = cut / levels
            np.add.at(found, other, (1 - cut) / levels)
            assert_close(found, law, relative=1e-12)
    assert program.depths.tolist() == [2, 3, 3]


# Bits, records, checkpoints


@engines
@scans
def test_equal_seeds_give_equal_bits_on_any_number_of_threads(engine, scan):
    def run(threads, seed):
        torch.set_num_threads(threads)
        chains = PseudoGibbsChains(network(), 700, scan=scan, seed=seed, edges=[("d", "a")], **ENGINES[engine])
        sweeps = 2 if engine == "torch" else 300  # enough updates for the compiled engine to use both
        record = chains.sweep(sweeps, thin=sweeps // 2, counts=True, states=True)
        assert record.counts is not None and record.states is not None
        return chains.states, record.counts, record.states

    before = torch.get_num_threads()
    try:
        one, two, other = run(1, 5), run(2, 5), run(1, 6)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0], other[0])


@scans
def test_first_chains_have_the_same_bits_in_larger_runs(scan):
    few, many = (PseudoGibbsChains(network(), n, scan=scan, seed=4) for n in (10, 300))
    assert torch.equal(few.states, many.states[:10])
    few.sweep(5)
    many.sweep(5)
    assert torch.equal(few.states, many.states[:10])
    assert len(many.states.unique(dim=0)) > 6


@engines
@scans
def test_records_agree_with_recorded_states_and_change_nothing(engine, scan):
    made = [PseudoGibbsChains(network(), 25, scan=scan, edges=[("d", "b")], **ENGINES[engine]) for _ in range(3)]
    chains, silent, single = made
    record = chains.sweep(7, thin=3, counts=True, states=True)
    assert record.num_records == 2 and record.states is not None and record.counts is not None
    assert record.states.shape == (2, 25, 4) and record.states.dtype == torch.uint8
    for k in range(2):
        silent.sweep(3)
        assert torch.equal(record.states[k].long(), silent.states)
    silent.sweep(1)
    assert torch.equal(chains.states, silent.states)
    assert chains.hypergraph.edges == (("a",), ("b",), ("c",), ("d",), ("b", "d"))
    assert_close(record.counts, recompute_counts(chains.hypergraph, record.states), relative=0.0)
    updates = single.update(21, thin=9, counts=True, states=True)
    assert torch.equal(updates.states, record.states) and torch.equal(updates.counts, record.counts)
    assert torch.equal(single.states, chains.states)
    empty = chains.sweep(0, thin=1, counts=True, states=True)
    assert empty.num_records == 0 and empty.states is not None and empty.states.shape == (0, 25, 4)
    bare = chains.sweep(2, thin=1)
    assert (bare.num_records, bare.counts, bare.states, bare.energies) == (2, None, None, None)


@engines
@scans
def test_a_checkpoint_continues_with_equal_bits(engine, scan):
    options = {"scan": scan, "clamped": {"a": 1}, "seed": 3, **ENGINES[engine]}
    chains = PseudoGibbsChains(network(), 40, **options)
    chains.update(7)
    state = {name: value.clone() for name, value in chains.state_dict().items()}
    chains.sweep(5)
    other = PseudoGibbsChains(network(), 40, **options)
    other.load_state_dict(state)
    assert other.num_updates == 7
    other.sweep(5)
    assert torch.equal(chains.states, other.states)
    changes = [
        lambda: PseudoGibbsChains(network(1), 40, **options),
        lambda: PseudoGibbsChains(network(), 40, **{**options, "clamped": {"a": 0}}),
        lambda: PseudoGibbsChains(network(), 40, **{**options, "seed": 4}),
        lambda: PseudoGibbsChains(network(), 41, **options),
        lambda: PseudoGibbsChains(network(), 40, **options, edges=[("a", "b")]),
    ]
    for change in changes:
        with pytest.raises(InputError, match="state: the checkpoint belongs to chains of another network"):
            change().load_state_dict(state)


def test_checkpoints_tell_models_apart():
    hypergraph = InteractionHypergraph(DOMAIN, [("a", "b")], closure=True)
    prints = set()
    for scale in (0.0, 0.3):
        tables = torch.linspace(-scale, scale, hypergraph.num_terms, dtype=torch.float64)
        model = DependencyConditionals.from_model(LogLinearEnergy(hypergraph, tables))
        prints.add(PseudoGibbsChains(model, 2).fingerprint)
    assert len(prints) == 2


@engines
def test_states_can_be_set_and_global_random_numbers_are_left_alone(engine):
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.get_state()  # noqa: NPY002
    chains = PseudoGibbsChains(network(), 5, init=torch.tensor([1, 2, 0, 1]), clamped={"a": 0}, **ENGINES[engine])
    assert chains.states.tolist() == [[0, 2, 0, 1]] * 5
    chains.set_states(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    assert chains.states.tolist() == [[1, 0, 0, 0]] * 5
    chains.sweep(3)
    assert chains.states[:, 0].tolist() == [1] * 5
    assert torch.equal(torch_state, torch.random.get_rng_state())
    after = np.random.get_state()  # noqa: NPY002
    np.testing.assert_array_equal(numpy_state[1], after[1])


def test_first_states_are_uniform_and_those_of_gibbs_chains():
    chains = PseudoGibbsChains(network(), SIZE, seed=5)
    counts = counts_of(chains.states)
    assert_exact_law(counts, np.full(len(STATES), 1 / len(STATES)))
    hypergraph = InteractionHypergraph(DOMAIN, [("a", "b")], closure=True)
    gibbs = GibbsChains(LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms)), SIZE, seed=5, engine="torch")
    assert torch.equal(gibbs.states, chains.states)


# Bad input


@pytest.mark.parametrize(
    ("arguments", "code", "argument"),
    [
        ({"num_chains": 0}, "out-of-range", "num_chains"),
        ({"num_chains": True}, "out-of-range", "num_chains"),
        ({"scan": "cyclic"}, "unknown-choice", "scan"),
        ({"scan": "abd"}, "unknown-choice", "scan"),
        ({"scan": ["a", "b"]}, "missing-part", "scan"),
        *(({"scan": {**WEIGHTS, "a": wrong}}, "out-of-range", "scan") for wrong in (0.0, -0.6, float("nan"), "x")),
        ({"clamped": {"b": 3}}, "out-of-range", None),
        ({"clamped": {"b": "w"}}, "unknown-name", None),
        ({"clamped": {"bb": 1}}, "unknown-name", "clamped"),
        ({"clamped": {"b": torch.tensor(3)}}, "out-of-range", "clamped['b']"),
        ({"clamped": {"b": torch.zeros(7)}}, "wrong-shape", "clamped['b']"),
        ({"clamped": ["b"]}, "wrong-type", "clamped"),
        ({"init": torch.zeros(5, 3)}, "wrong-shape", "init"),
        ({"init": torch.zeros(6, 4)}, "wrong-shape", "init"),
        ({"init": torch.full((4,), 2)}, "out-of-range", "init"),
        ({"init": [0, 0, 0, 0]}, "wrong-type", "init"),
        ({"edges": [("a", "e")]}, "unknown-name", None),
        ({"seed": -1}, "out-of-range", "seed"),
        ({"engine": "tables"}, "unknown-choice", "engine"),
        ({"precision": torch.float16}, "unknown-choice", "precision"),
        ({"conditionals": 3}, "wrong-type", "conditionals"),
    ],
)
def test_bad_arguments_are_refused(arguments, code, argument):
    given = {"conditionals": network(), "num_chains": 5, "engine": "torch", "scan": "random", **arguments}
    with raises(code, argument):
        PseudoGibbsChains(**given)


@pytest.mark.parametrize("sampler", [PseudoGibbsChains, DependencyNetwork])
def test_the_random_scan_is_the_default_everywhere(sampler):
    """The FC-limit belongs to it, and the same network must not have two laws by default."""
    assert inspect.signature(sampler).parameters["scan"].default == "random"
    assert PseudoGibbsChains(network(), 2).scan.kind == "random"


def test_models_are_not_compiled():
    hypergraph = InteractionHypergraph(DOMAIN, [("a", "b")], closure=True)
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms))
    conditionals = DependencyConditionals.from_model(model)
    with pytest.raises(InputError, match=r"engine: 'compiled' needs decision graphs or tables on the CPU.*'a' is not"):
        PseudoGibbsChains(conditionals, 5, engine="compiled")
    assert "WalkerEngine" in repr(PseudoGibbsChains(conditionals.tabulated(), 5))


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda c: c.sweep(-1), "out-of-range", "num_sweeps"),
        (lambda c: c.update(1.5), "out-of-range", "num_updates"),
        (lambda c: c.sweep(1, thin=-2), "out-of-range", "thin"),
        (lambda c: c.sweep(1, counts=True), "out-of-range", "thin"),
        (lambda c: c.update(1, states=True), "out-of-range", "thin"),
        (lambda c: c.set_states(torch.zeros(3)), "wrong-shape", "states"),
        (lambda c: c.set_states(torch.full((4,), 5)), "out-of-range", "states"),
    ],
)
@pytest.mark.parametrize("clamped", [{}, {"a": 0, "b": 0, "d": 0}])
def test_bad_calls_are_refused_and_change_nothing(call, code, argument, clamped):
    chains = PseudoGibbsChains(network(), 5, engine="torch", clamped=clamped)
    codes = chains.states
    with raises(code, argument):
        call(chains)
    assert torch.equal(chains.states, codes)
    assert chains.num_updates == 0


# Long runs


THREE = Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["0", "1"]})
ENGINE = "torch"  # needs no compiler; the engines have tests of their own


def three_variables(seed=0):
    """Every variable reads the two others; no joint law."""
    return random_network(THREE, seed)


def sticky(probability):
    """Two variables that agree with a probability."""
    probs = torch.tensor([[probability, 1 - probability], [1 - probability, probability]], dtype=torch.float64)
    return pair(probs, probs)


def limit(num_batches, num_cells):
    """Standard errors, from that many batches of records, that one of the cells exceeds at the rate of the library."""
    return float(student.isf(FALSE_ALARM_RATE / 2 / num_cells, num_batches - 1))


def test_marginals_are_those_of_the_stationary_law():
    exact = stationary_law(three_variables()).probs
    run = sample_chains(
        PseudoGibbsChains(three_variables(), 64, edges=[("c", "a")], seed=1, engine=ENGINE), 600, burn_in=40
    )
    assert run.is_mixed
    for names, axes in (("b", (0, 2)), (("a", "c"), (1,))):
        probs, errors = run.probs(names)
        wanted = exact.sum(axes)
        assert probs.shape == wanted.shape
        assert float(((probs - wanted).abs() / errors).max()) < limit(24, 4)
        assert float(errors.max()) < 0.01
    uniform = torch.full((3,), 1 / 3, dtype=torch.float64)
    probs, errors = run.probs("b")
    assert float(((probs - uniform).abs() / errors).max()) > limit(24, 4)  # control


def test_clamped_runs_estimate_the_law_of_the_clamped_network():
    exact = stationary_law(three_variables(), clamped={"b": "z"}).probs
    run = sample_chains(
        PseudoGibbsChains(three_variables(), 64, clamped={"b": "z"}, seed=2, engine=ENGINE), 400, burn_in=40
    )
    probs, errors = run.probs("c")
    assert float(((probs - exact.sum(0)).abs() / errors).max()) < limit(20, 2)
    whole = stationary_law(three_variables()).probs[:, 2]
    assert float(((probs - whole.sum(0) / whole.sum()).abs() / errors).max()) > limit(20, 2)  # not its conditional
    assert run.probs("b")[0].tolist() == [0.0, 0.0, 1.0]


def test_arviz_diagnoses_a_run():
    chains = PseudoGibbsChains(three_variables(), 4, edges=[("a", "c")], seed=3, engine=ENGINE)
    run = sample_chains(chains, 300, burn_in=30, record=("statistics", "draws"))
    report = diagnose_chains(run.chains, run, edges=[("a", "c")])
    assert list(report.index[:4]) == ["a:c[no,0]", "a:c[no,1]", "a:c[yes,0]", "a:c[yes,1]"]
    assert report["r_hat"].max() < 1.05
    assert report[["ess_bulk", "ess_tail"]].min().min() > 200
    assert report.loc["b[x]", "mean"] == pytest.approx(float(run.probs("b")[0][0]), abs=1e-12)


def test_chains_that_do_not_mix_are_found_out():
    init = torch.zeros(64, 2, dtype=torch.long)
    init[:16] = 1
    with pytest.warns(ConvergenceWarning, match="have not mixed; make longer runs, or smooth the conditionals"):
        run = sample_chains(PseudoGibbsChains(sticky(1 - 1e-7), 64, init=init, engine=ENGINE), 100)
    assert run.is_mixed is False
    control = PseudoGibbsChains(sticky(0.6), 64, init=init, engine=ENGINE)
    assert sample_chains(control, 100).is_mixed is True


def test_variables_that_are_all_clamped_are_counted():
    held = sample_chains(PseudoGibbsChains(three_variables(), 3, clamped={"a": 0, "b": 1, "c": 1}, engine=ENGINE), 10)
    assert held.eta.tolist() == [1, 0, 0, 1, 0, 0, 1]
