"""Priors over collections: members by brute force, normalisation, exact and chain draws, moves, bad input."""

import copy
import itertools
import math
import pickle

import networkx as nx
import numpy as np
import pyro
import pytest
import torch
from scipy.special import betaln

from pyro_hoim import Domain, InputError, InteractionHypergraph, IntractableError
from pyro_hoim.inference import StructurePrior
from pyro_hoim.inference.structure._junction_kernels import draw_graphs, sum_trees
from pyro_hoim.inference.structure.prior import StructureSpace
from pyro_hoim.testing import assert_exact_law, assert_stationary, raises, required_draws


def domain_of(size):
    return Domain.from_cardinalities([2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2][:size])


def brute_force(space):
    """Members by the definitions, from every vector of indicators, through the library's hypergraphs and networkx."""
    found = set()
    domain, names = space.domain, space.domain.names
    for kept in itertools.product([False, True], repeat=len(space.candidates)):
        edges = [e for e, k in zip(space.candidates, kept, strict=True) if k]
        collection = InteractionHypergraph(domain, [(n,) for n in names] + edges, hierarchical=False)
        if space.name == "hierarchical":
            is_member = all(len(e) == 2 or collection.heredity_score(e) >= space.heredity for e in edges)
        elif space.name == "pairwise":
            is_member = True
        else:
            is_member = collection.is_hierarchical and set(collection.maximal_edges) == set(collection.cliques)
            if space.name == "decomposable":
                graph = nx.Graph([e for e in edges if len(e) == 2])
                is_member = is_member and (len(graph) == 0 or nx.is_chordal(graph))
        if is_member:
            found.add(tuple(":".join(e) for e in edges))
    return found


def listed(space):
    assert space.members is not None
    return [tuple(":".join(space.candidates[j]) for j in np.flatnonzero(row)) for row in space.members]


SPACES = [
    {"size": 1},
    {"size": 2},
    {"size": 3},
    {"size": 4},
    {"size": 4, "max_order": 3},
    {"size": 4, "max_order": 2},
    {"size": 4, "heredity": 0.5},
    {"size": 4, "heredity": 0.75},
    {"size": 3, "heredity": 0.0},
    {"size": 1, "space": "decomposable"},
    {"size": 4, "space": "graphical"},
    {"size": 4, "space": "graphical", "max_order": 2},
    {"size": 4, "space": "decomposable"},
    {"size": 4, "space": "decomposable", "max_order": 3},
    {"size": 4, "space": "decomposable", "max_order": 2},
    {"size": 4, "space": "pairwise"},
    {"size": 1, "space": "pairwise"},
]


def space_of(size, **options):
    return StructureSpace(domain_of(size), **options)


@pytest.mark.parametrize("options", SPACES, ids=str)
def test_members_moves_and_writings_agree_with_the_definitions(options):
    space = space_of(**options)
    members = space.members
    assert members is not None
    assert len(set(listed(space))) == len(members)
    assert set(listed(space)) == brute_force(space)
    masks = space.masks_of(members)
    assert masks == sorted(masks)
    assert (space.flags_of(masks) == members).all()
    every = np.array(list(itertools.product([False, True], repeat=len(space.candidates))), dtype=bool)
    assert space.are_members(every).sum() == len(members)
    inside = set(masks)
    for mask in masks:
        assert space.contains(mask)
        births, deaths = space.moves(mask)
        flips = [mask ^ 1 << j for j in range(space.num_free)]
        assert sorted(births + deaths) == sorted(other for other in flips if other in inside)
        assert all(other > mask for other in births) and all(other < mask for other in deaths)
        assert [space.may_flip(mask, j) for j in range(space.num_free)] == [other in inside for other in flips]
        hypergraph = space.hypergraph_of(mask)
        assert space.mask_of(hypergraph) == mask
        assert hypergraph.edges[len(space.domain) :] == tuple(space.edges_of(mask))
    outside = set(range(2**space.num_free)) - inside if space.num_free < 12 else set()
    assert not any(space.contains(mask) for mask in outside)


def test_sizes_of_spaces_are_the_published_ones():
    found = {
        name: [len(space_of(size, space=name).members) for size in range(1, 6)]
        for name in ("hierarchical", "graphical", "decomposable")
    }
    assert found == {
        "hierarchical": [1, 2, 9, 114, 6894],  # A006126
        "graphical": [1, 2, 8, 64, 1024],
        "decomposable": [1, 2, 8, 61, 822],  # A058862
    }
    assert len(space_of(6, space="decomposable").members) == 18154
    assert space_of(6).members is None and space_of(6).size_text == "7785062 (about 7.79e+06)"
    assert space_of(8, space="pairwise").size_text == "268435456 (about 2.68e+08)"
    assert "more than 65536" in space_of(6, max_order=3).size_text


def test_eliminations_give_cliques_over_separators():
    space = space_of(5, space="decomposable")
    members = space.members
    assert members is not None
    largest, closed = space.eliminate(members[:, : space.num_pairs])
    rng = np.random.default_rng(0)
    term = rng.normal(size=2**5)
    term[0] = 0.3  # the empty separator of a component counts, too
    for k in range(0, len(members), 7):
        hypergraph = space.hypergraph_of(space.masks_of(members[k : k + 1])[0])
        bits = [sum(1 << i for i in space.domain.indices(names)) for names in hypergraph.cliques]
        assert max(b.bit_count() for b in bits) == largest[k]
        separators = [sum(1 << i for i in space.domain.indices(n.separator)) for n in hypergraph.junction_tree()]
        expected = sum(term[b] for b in bits) - sum(term[b] for b in separators)
        found = sum(term[int(c)] - term[int(c) ^ 1 << v] for v, c in enumerate(closed[k]))
        assert found == pytest.approx(expected, rel=1e-12)
    four_cycle = np.zeros((1, space.num_pairs), dtype=bool)
    for pair in ((0, 1), (1, 2), (2, 3), (0, 3)):
        four_cycle[0, space.position[pair]] = True
    assert space.eliminate(four_cycle)[0].tolist() == [-1]  # control


PRIORS = [
    {"size": 3},
    {"size": 4, "inclusion": 0.2},
    {"size": 4, "inclusion": ("beta", 1.0, 3.0)},
    {"size": 4, "expected_size": 2.5},
    {"size": 4, "heredity": 0.5, "inclusion": 0.7},
    {"size": 4, "space": "decomposable", "inclusion": 0.3},
    {"size": 4, "space": "graphical", "inclusion": ("beta", 2.0, 2.0)},
    {"size": 4, "space": "pairwise", "inclusion": ("beta", 0.5, 2.0)},
    {"size": 4, "space": "pairwise", "expected_size": 1.5},
    {"size": 1},
]


def prior_of(size, **options):
    return StructurePrior(domain_of(size), **options)


@pytest.mark.parametrize("options", PRIORS, ids=str)
def test_log_prob_is_the_formula_over_the_space_and_sums_to_one(options):
    prior = prior_of(**options)
    every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=prior.event_shape[0])), dtype=torch.float64)
    log_prob = prior.log_prob(every)
    members = brute_force(prior.space)
    names = [":".join(e) for e in prior.space.candidates]
    is_member = torch.tensor([tuple(n for n, v in zip(names, row, strict=True) if v) in members for row in every])
    assert torch.equal(torch.isfinite(log_prob), is_member)
    assert torch.equal(prior.support.check(every), is_member)
    assert float(log_prob.exp().sum()) == pytest.approx(1, rel=1e-12)
    sizes, num = every[:, : prior.space.num_free].sum(-1), prior.space.num_free
    if isinstance(prior.inclusion, tuple):
        _, a, b = prior.inclusion
        kernel = torch.from_numpy(betaln(a + sizes.numpy(), b + num - sizes.numpy()))
    else:
        kernel = sizes * math.log(prior.inclusion) + (num - sizes) * math.log(1 - prior.inclusion)
    constant = torch.logsumexp(kernel[is_member], 0)
    torch.testing.assert_close(log_prob[is_member], (kernel - constant)[is_member], rtol=1e-12, atol=1e-12)
    if "expected_size" in options:
        assert float(log_prob.exp() @ sizes) == pytest.approx(options["expected_size"], rel=1e-9)
    torch.testing.assert_close(prior.marginal_inclusion, log_prob.exp() @ every, rtol=1e-12, atol=1e-12)
    assert not prior.unnormalised and prior.sample_is_exact and prior.is_listed
    support = prior.enumerate_support().double()
    torch.testing.assert_close(prior.log_prob(support).exp(), prior.probs, rtol=1e-12, atol=0)
    masks = prior.space.masks_of(support.numpy() == 1)
    assert [prior.log_weight(mask) for mask in masks] == pytest.approx(prior.log_prob(support).tolist())


@pytest.mark.parametrize("options", PRIORS[:-1], ids=str)
def test_draws_follow_the_law(options):
    prior = prior_of(**options)
    support = prior.enumerate_support()
    place = {mask: k for k, mask in enumerate(prior.space.masks_of(support.numpy() == 1))}
    pyro.set_rng_seed(0)
    draws = prior.sample((required_draws(len(support), 0.05),))
    masks = prior.space.masks_of(draws.numpy() == 1)
    counts = np.bincount([place[mask] for mask in masks], minlength=len(support))
    assert_exact_law(counts, prior.probs.numpy())


def test_the_chain_of_a_space_that_is_not_listed_has_the_law_as_its_own():
    prior = prior_of(4, inclusion=0.3)
    masks = prior.space.masks_of(prior.enumerate_support().numpy() == 1)
    place = {mask: k for k, mask in enumerate(masks)}
    num = prior.space.num_free
    transition = np.zeros((len(masks), len(masks)))
    for mask, k in place.items():
        for j in range(num):
            other = mask ^ 1 << j
            accept = min(1.0, math.exp(prior.log_weight(other) - prior.log_weight(mask)))
            accept *= prior.space.may_flip(mask, j)
            if accept:
                transition[k, place[other]] += accept / num
            transition[k, k] += (1 - accept) / num
    assert_stationary(transition, prior.probs.numpy())
    pyro.set_rng_seed(1)
    flags = prior._chain(4000)
    assert prior.space.are_members(flags).all()
    error = flags.mean(0) - prior.marginal_inclusion.numpy()
    assert np.abs(error).max() < 0.05  # 4,000 thinned states: standard error below 0.01
    assert np.abs(flags.mean(0) - prior_of(4).marginal_inclusion.numpy()).max() > 0.1  # control: another inclusion


def test_a_space_that_is_not_listed_says_so():
    prior = prior_of(6)
    assert prior.unnormalised and not prior.sample_is_exact and not prior.has_enumerate_support
    pyro.set_rng_seed(0)
    draws = prior.sample((5,))
    assert draws.shape == (5, 57) and bool(prior.support.check(draws).all())
    assert torch.isfinite(prior.log_prob(draws)).all()
    assert prior.sample((0,)).shape == (0, 57)
    for what in ("enumerate_support", "probs", "marginal_inclusion"):
        with raises("over-budget", what):
            _ = prior.enumerate_support() if what == "enumerate_support" else getattr(prior, what)
    with raises("over-budget", "expected_size"):
        prior_of(6, expected_size=3)
    large = StructurePrior(Domain.from_cardinalities([2] * 40), space="pairwise", expected_size=20)
    assert not large.unnormalised and large.sample_is_exact and not large.has_enumerate_support
    assert large.log_prob(torch.zeros(780)) == pytest.approx(780 * math.log1p(-20 / 780), rel=1e-6)
    assert large.sample((200,)).sum(-1).mean() == pytest.approx(20, abs=2)


def test_it_is_a_pyro_distribution():
    prior = prior_of(4, inclusion=0.4)
    pyro.set_rng_seed(3)
    wide = prior.expand((2, 3))
    assert wide.batch_shape == (2, 3) and wide.sample((5,)).shape == (5, 2, 3, 11)
    assert (wide.log_prob(torch.zeros(11)).shape, wide.enumerate_support().shape) == ((2, 3), (114, 2, 3, 11))
    assert wide.enumerate_support(expand=False).shape == (114, 1, 1, 11)
    for clone in (pickle.loads(pickle.dumps(prior)), copy.deepcopy(prior)):
        assert torch.equal(clone.log_prob(torch.zeros(11)), prior.log_prob(torch.zeros(11)))
    assert prior.log_prob(torch.zeros(11, dtype=torch.long)).dtype == torch.get_default_dtype()
    assert prior.log_prob(torch.zeros(11, dtype=torch.float64)).dtype == torch.float64

    @pyro.infer.config_enumerate
    def program():
        gamma = pyro.sample("gamma", prior)
        pyro.sample("seen", pyro.distributions.Bernoulli(0.2 + 0.5 * gamma[..., 0]), obs=torch.tensor(1.0))

    loss = pyro.infer.TraceEnum_ELBO(max_plate_nesting=0).loss(program, lambda: None)
    expected = -math.log(0.2 + 0.5 * float(prior.marginal_inclusion[0]))
    assert loss == pytest.approx(expected, rel=1e-5)


def test_collections_go_both_ways():
    prior = prior_of(4, space="decomposable")
    gamma = prior.gamma_of(InteractionHypergraph(prior.space.domain, [["x0", "x1", "x2"], ["x3"]], closure=True))
    assert prior.hypergraph_of(gamma).maximal_edges == (("x3",), ("x0", "x1", "x2"))
    assert prior.index(["x2", "x0"]) == 1 and prior.space.candidates[1] == ("x0", "x2")
    mask = prior.parameter_mask(gamma)
    kept = prior.hypergraph_of(gamma)
    assert mask.shape == (prior.largest.num_parameters,) and int(mask.sum()) == kept.num_parameters
    slices = prior.largest.parameter_slices
    assert {edge for edge, where in slices.items() if bool(mask[where].all())} == set(kept.edges)


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"inclusion": 0}, "out-of-range", "inclusion"),
        ({"inclusion": 1}, "out-of-range", "inclusion"),
        ({"inclusion": -0.5}, "out-of-range", "inclusion"),
        ({"inclusion": math.nan}, "out-of-range", "inclusion"),
        ({"inclusion": ("gamma", 1, 1)}, "unknown-choice", "inclusion"),
        ({"inclusion": ("beta", 1)}, "unknown-choice", "inclusion"),
        ({"inclusion": ("beta", 0, 1)}, "out-of-range", "inclusion"),
        ({"expected_size": 0}, "out-of-range", "expected_size"),
        ({"expected_size": 11}, "out-of-range", "expected_size"),
        ({"expected_size": 4, "space": "decomposable", "max_order": 2}, "out-of-range", "expected_size"),
        ({"expected_size": 2, "inclusion": 0.1}, "conflict", "expected_size"),
        ({"heredity": 1.5}, "out-of-range", "heredity"),
        ({"heredity": "strong"}, "out-of-range", "heredity"),
        ({"heredity": 0.5, "space": "graphical"}, "conflict", "heredity"),
        ({"max_order": 5}, "out-of-range", "max_order"),
        ({"max_order": 1}, "out-of-range", "max_order"),
        ({"max_order": 3, "space": "pairwise"}, "conflict", "max_order"),
        ({"space": "trees"}, "unknown-choice", "space"),
    ],
)
def test_bad_priors_are_refused(options, code, argument):
    with raises(code, argument):
        prior_of(4, **options)


def test_bad_domains_and_collections_are_refused():
    prior = prior_of(4, max_order=3)
    with raises("wrong-type", "domain"):
        StructurePrior("abc")
    with raises("empty", "domain"):
        StructurePrior(Domain.from_cardinalities([]))
    with raises("over-budget", "max_order"):
        StructurePrior(Domain.from_cardinalities([2] * 40), max_order=6)
    with raises("over-budget", "domain"):
        StructurePrior(Domain.from_cardinalities([2] * 63), max_order=2, space="graphical")
    domain = prior.space.domain
    with raises("missing-part", "hypergraph"):
        prior.gamma_of(InteractionHypergraph(domain, [["x0", "x1"]], closure=True))
    with raises("out-of-range", "hypergraph"):
        prior.gamma_of(InteractionHypergraph.saturated(domain))
    with raises("other-domain", "hypergraph"):
        prior.gamma_of(InteractionHypergraph.saturated(domain_of(3)))
    with raises("impossible", "hypergraph"):
        weak = [[n] for n in domain.names] + [["x0", "x1", "x2"]]
        prior.gamma_of(InteractionHypergraph(domain, weak, hierarchical=False))
    with raises("impossible", "gamma"):
        prior.hypergraph_of(torch.tensor([0.0] * 6 + [1.0] + [0.0] * 3))
    with raises("wrong-shape", "value"):
        prior.log_prob(torch.zeros(9))
    with pytest.raises(InputError, match="zeros and ones"):
        prior_of(4, validate_args=True).log_prob(torch.full((11,), 0.5))
    with raises("out-of-range", "edge"):
        prior.index(domain.names)
    with pytest.raises(IntractableError):
        _ = prior_of(7, space="decomposable").probs


# Sums over rooted junction trees and draws from them, against graphs listed one by one


def _places(d):
    """Numbers of sets of variables in base 3."""
    return np.array([sum(3**i for i in range(d) if mask >> i & 1) for mask in range(2**d)])


def _listed(d, cliques, separators):
    """Log weight and number of rooted junction trees of every chordal graph, by the neighbours of its variables."""
    pairs = list(itertools.combinations(range(d), 2))
    found = {}
    for chosen in itertools.chain.from_iterable(itertools.combinations(pairs, k) for k in range(len(pairs) + 1)):
        graph = nx.Graph(chosen)
        graph.add_nodes_from(range(d))
        if not nx.is_chordal(graph):
            continue
        sets = [sum(1 << v for v in clique) for clique in nx.find_cliques(graph)]
        overlaps = list(itertools.combinations(range(len(sets)), 2))
        trees = []
        for links in itertools.combinations(overlaps, len(sets) - 1):
            tree = nx.Graph(links)
            tree.add_nodes_from(range(len(sets)))
            if nx.is_connected(tree):
                trees.append([sets[a] & sets[b] for a, b in links])
        largest = max(sum(s.bit_count() for s in tree) for tree in trees)
        best = [tree for tree in trees if sum(s.bit_count() for s in tree) == largest]
        weight = sum(cliques[c] for c in sets) - sum(separators[s] for s in best[0])
        key = tuple(1 << v | sum(1 << u for u in graph[v]) for v in range(d))
        found[key] = float(weight), len(best) * len(sets)
    return found


def _weights(d, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(scale=2, size=2**d), rng.normal(size=2**d)


@pytest.mark.parametrize(("d", "num_graphs"), [(1, 1), (2, 2), (3, 8), (4, 61)])
def test_sums_run_over_all_rooted_trees(d, num_graphs):
    cliques, separators = _weights(d, d)
    listed = _listed(d, cliques, separators)
    places = _places(d)
    total = sum_trees(places, cliques, separators)[0][2 * places[-1]]
    wanted = np.logaddexp.reduce([weight + np.log(copies) for weight, copies in listed.values()])
    assert len(listed) == num_graphs
    assert total == pytest.approx(wanted, rel=1e-12)


def test_large_cliques_can_be_forbidden():
    cliques, separators = _weights(4, 1)
    cliques[[mask.bit_count() > 2 for mask in range(16)]] = -np.inf
    listed = _listed(4, cliques, separators)
    total = sum_trees(_places(4), cliques, separators)[0][2 * _places(4)[-1]]
    finite = [weight + np.log(copies) for weight, copies in listed.values() if np.isfinite(weight)]
    assert len(finite) < len(listed)
    assert total == pytest.approx(np.logaddexp.reduce(finite), rel=1e-12)


def _drawn(d, num_draws):
    cliques, separators = _weights(d, d)
    places = _places(d)
    uniforms = np.random.default_rng(3).random((num_draws, 3 * d))
    neighbours = np.zeros((num_draws, d), dtype=np.int64)
    scores, copies = np.zeros(num_draws), np.zeros(num_draws)
    sums = sum_trees(places, cliques, separators)
    draw_graphs(places, cliques, separators, sums, uniforms, neighbours, scores, copies)
    return neighbours, scores, copies


def test_draws_have_the_law_of_rooted_trees_and_control_that_of_graphs():
    neighbours, scores, copies = _drawn(4, 40_000)
    listed = _listed(4, *_weights(4, 4))
    position = {key: k for k, key in enumerate(listed)}
    rows = [tuple(row) for row in neighbours.tolist()]
    for row, score, log_copies in zip(rows[:2_000], scores, copies, strict=False):
        weight, number = listed[row]
        assert score == pytest.approx(weight, rel=1e-10, abs=1e-10)
        assert np.exp(log_copies) == pytest.approx(number, rel=1e-10)
    counts = np.bincount([position[row] for row in rows], minlength=len(listed))
    logs = np.array([weight for weight, _ in listed.values()])
    numbers = np.array([number for _, number in listed.values()])
    trees, graphs = numbers * np.exp(logs), np.exp(logs)
    assert_exact_law(counts, trees / trees.sum())
    with pytest.raises(AssertionError):
        assert_exact_law(counts, graphs / graphs.sum())


def test_one_variable_has_one_graph():
    neighbours, _, copies = _drawn(1, 3)
    assert neighbours.tolist() == [[1], [1], [1]] and copies.tolist() == [0.0, 0.0, 0.0]
