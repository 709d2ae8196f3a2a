"""Dependency networks of a table: scores, information of edges, predictions and draws, against enumeration."""

import itertools
import math

import numpy as np
import pytest
import torch
from network_oracles import pair

from pyro_hoim import Domain, Observations, load_table
from pyro_hoim.core import ClampedGibbs, Law
from pyro_hoim.dependency_network import (
    DependencyConditionals,
    TableConditional,
    analyse_network,
    draw_network,
    edge_information,
    find_law,
    full_conditional_divergence,
    full_conditionals,
    impute_network,
    learn_network,
    load_network,
    predict_network,
    score_network,
    stationary_law,
)
from pyro_hoim.errors import InputError, InputTypeError, IntractableError
from pyro_hoim.testing import assert_exact_law, raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})


def random_law(seed=0):
    return Law(DOMAIN, torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(12)).reshape(2, 3, 2)))


def rows_of(law, number, seed=1):
    counts = np.random.default_rng(seed).multinomial(number, law.probs.flatten().numpy()).reshape(law.probs.shape)
    return Observations.from_table(law.domain, torch.from_numpy(counts).double())


def with_gaps(rows, seed=2):
    each = torch.repeat_interleave(rows.codes, rows.counts.long(), 0)
    gaps = torch.rand(each.shape, generator=torch.Generator().manual_seed(seed)) < 0.15
    return Observations.from_tensor(torch.where(gaps, -1, each), rows.domain)


def frozen():
    """Two variables that copy each other: two closed classes."""
    domain = Domain.from_labels({"a": ["no", "yes"], "b": ["no", "yes"]})
    copy = torch.eye(2, dtype=torch.float64)
    return pair(copy, copy, domain)


# Scores


def test_exact_conditionals_of_a_law_score_rows_as_the_law_itself_does():
    law, rows = random_law(), rows_of(random_law(), 500)
    network = full_conditionals(law)
    scores = score_network(network, rows, law=find_law(network).law)
    weight = rows.table().double() / rows.total_count
    nll = -float((weight * law.probs.log()).sum())
    assert (scores.nll, scores.kl) == (pytest.approx(nll, abs=1e-10), pytest.approx(nll - rows.entropy(), abs=1e-10))
    pseudo = sum(-float((weight * (law.probs / law.probs.sum(i, keepdim=True)).log()).sum()) for i in range(3))
    assert scores.pseudo_nll == pytest.approx(pseudo, abs=1e-12)
    assert sum(scores.nodes.values()) == pytest.approx(pseudo, abs=1e-12)
    assert scores.fc == pytest.approx(full_conditional_divergence(rows, law), abs=1e-10)
    assert scores.fc == pytest.approx(scores.fc_limit, abs=1e-10)  # consistent conditionals: theorem 3 is tight


def test_the_divergence_stays_below_its_limit_and_the_pseudo_likelihood_splits_into_it():
    train = rows_of(random_law(), 300)
    network = learn_network(train).conditionals
    scores = score_network(network, train, law=find_law(network).law)
    assert scores.fc is not None
    assert scores.fc <= scores.fc_limit + 1e-12
    lossless = sum(train.entropy() - train.entropy([n for n in DOMAIN.names if n != name]) for name in DOMAIN.names)
    assert scores.pseudo_nll - lossless == pytest.approx(3 * scores.fc_limit, abs=1e-12)


def test_missing_cells_are_summed_over_in_the_law_and_averaged_over_in_the_pseudo_likelihood():
    law = random_law()
    network = full_conditionals(law)
    rows = Observations.from_tensor(torch.tensor([[0, -1, 1], [1, 2, 0]]), DOMAIN)
    chains = ClampedGibbs(num_chains=400, burn_in=20, num_sweeps=50, thin=1)
    scores = score_network(network, rows, law=find_law(network).law, gibbs=chains)
    p = law.probs
    assert scores.nll == pytest.approx(-float(p[0, :, 1].sum().log() + p[1, 2, 0].log()) / 2, abs=1e-9)
    pair = p.sum(1)
    known = -float((pair[0, 1] / pair[:, 1].sum()).log() + (pair[0, 1] / pair[0].sum()).log())
    complete = -float(network.log_pseudo_prob(torch.tensor([1, 2, 0])))
    assert (scores.pseudo_nll, scores.approximate_rows) == (pytest.approx((known + complete) / 2, abs=5e-3), 1)
    assert scores.kl is None
    assert scores.fc_limit is None


def test_rows_that_a_conditional_excludes_make_the_scores_infinite_and_are_counted():
    network = frozen()
    rows = Observations.from_tensor(torch.tensor([[0, 0], [0, 1], [0, 1]]), network.domain)
    scores = score_network(network, rows)
    assert (scores.pseudo_nll, scores.impossible_rows, scores.fc_limit) == (math.inf, 2, math.inf)


def test_the_law_is_found_or_there_is_a_reason():
    found = find_law(frozen())
    assert found.law is None
    assert found.has_unique_law is False
    assert "a=no, b=no; a=yes, b=yes" in found.reason
    network = full_conditionals(random_law())
    assert find_law(network, max_states=11).reason == "it has 12 states, at most 11 are enumerated"


# Information of edges


@pytest.mark.parametrize("gaps", [False, True])
def test_replaying_the_graphs_gives_the_learners_counts_and_splits_its_information_over_the_edges(gaps):
    rows = load_table("czech_autoworkers")
    rows = with_gaps(rows) if gaps else rows
    learned = learn_network(rows)
    edges, graphs = edge_information(learned.conditionals, rows)
    assert {(e.parent, e.child) for e in edges} == set(learned.conditionals.edges)
    assert [e.value for e in edges] == sorted((e.value for e in edges), reverse=True)
    for graph, counts, report in zip(graphs, learned.counts, learned.nodes, strict=True):
        torch.testing.assert_close(graph.counts, counts, rtol=1e-7, atol=1e-7)
        assert graph.conditional_entropy == pytest.approx(report.entropy, abs=1e-9)
        gained = sum(e.value for e in graph.edges)
        assert gained - graph.merged == pytest.approx(graph.gain, abs=1e-10)
        assert sum(e.num_splits for e in graph.edges) == report.num_splits


def test_what_an_edge_is_worth_is_the_mutual_information_where_one_parent_is_asked():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    rows = Observations.from_table(domain, [[40, 10], [5, 45]])
    edges, graphs = edge_information(learn_network(rows).conditionals, rows)
    information = rows.entropy(["a"]) + rows.entropy(["b"]) - rows.entropy()
    assert [e.value for e in edges] == pytest.approx([information] * 2, abs=1e-12)
    assert [g.gain for g in graphs] == pytest.approx([information] * 2, abs=1e-12)


def test_edges_of_plain_tables_are_refused_by_name():
    with pytest.raises(InputTypeError, match="that of 'a' is a TableConditional"):
        edge_information(full_conditionals(random_law()), rows_of(random_law(), 10))


# Predictions


def test_predictions_are_the_conditionals_themselves_and_never_read_the_target():
    rows = load_table("czech_autoworkers")
    network = learn_network(rows).conditionals
    states = torch.tensor(list(itertools.product((0, 1), repeat=6)))
    data = Observations.from_tensor(states, rows.domain)
    for name in rows.domain.names:
        found = predict_network(network, data, name)
        torch.testing.assert_close(found.log_probs, network.node(name).log_probs(states), rtol=0, atol=0)
        assert found.kind == "exact"


def test_a_missing_cell_matters_only_where_the_graph_asks_for_it():
    rows = load_table("czech_autoworkers")
    network = learn_network(rows).conditionals
    node = network.node("smoke")
    states = torch.tensor(list(itertools.product((-1, 0, 1), repeat=6)))
    data = Observations.from_tensor(states, rows.domain)
    found = predict_network(network, data, "smoke", gibbs=ClampedGibbs(num_chains=2, burn_in=1, num_sweeps=2, thin=2))
    for row, is_exact, log_probs in zip(states, found.is_exact.tolist(), found.log_probs, strict=True):
        filled = torch.tensor(list(itertools.product(*([c] if c >= 0 else [0, 1] for c in row.tolist()))))
        leaves = {int(k) for k in node.graph.leaves(filled)}
        assert is_exact == (len(leaves) == 1)
        if is_exact:
            assert torch.equal(log_probs, node.log_probs(filled[0]))


def test_missing_cells_are_averaged_over_as_the_law_says():
    law = random_law()
    network = full_conditionals(law)
    data = Observations.from_tensor(torch.tensor([[-1, -1, 0], [1, -1, 1]]), DOMAIN)
    found = predict_network(
        network, data, "a", gibbs=ClampedGibbs(num_chains=400, burn_in=20, num_sweeps=100, thin=2), seed=3
    )
    pair = law.probs.sum(1)
    exact = torch.stack([pair[:, c] / pair[:, c].sum() for c in (0, 1)])
    assert bool(((found.probs - exact).abs() < 4 * found.std_error).all())
    assert bool((found.std_error < 0.01).all())
    assert found.kind == "biased"
    with pytest.raises(IntractableError, match=r"exact prediction of 'a' asks for cells that 2 distinct rows lack"):
        predict_network(network, data, "a", method="exact")


def test_imputed_rows_keep_their_known_cells_and_follow_the_law():
    law = random_law()
    data = Observations.from_tensor(torch.tensor([[-1, 1, -1], [0, 0, 1]]), DOMAIN)
    found = impute_network(full_conditionals(law), data, 5000, seed=4)
    assert found.codes.shape == (5000, 2, 3)
    assert bool((found.codes[:, 1] == torch.tensor([0, 0, 1])).all())
    assert found.is_exact.tolist() == [False, True]
    counts = torch.bincount(found.codes[:, 0, 0] * 2 + found.codes[:, 0, 2], minlength=4)
    assert_exact_law(counts, (law.probs[:, 1] / law.probs[:, 1].sum()).flatten())


# Draws


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_draws_follow_the_law_of_the_clamped_network(method):
    network = learn_network(rows_of(random_law(), 400)).conditionals
    drawn = draw_network(network, 5000, clamped={"b": 2}, method=method, seed=5)
    assert (drawn.is_exact, drawn.burn_in) == (method == "exact", 0 if method == "exact" else 200)
    assert bool((drawn.codes[:, 1] == 2).all())
    law = stationary_law(network, clamped={"b": 2}).probs.flatten()
    assert_exact_law(torch.bincount(drawn.codes[:, 0] * 2 + drawn.codes[:, 2], minlength=4), law)


def test_draws_do_not_depend_on_anything_but_the_seed():
    network = full_conditionals(random_law())
    for method in ("exact", "gibbs"):
        one, two, other = (draw_network(network, 50, method=method, seed=s).codes for s in (1, 1, 2))
        assert torch.equal(one, two)
        assert not torch.equal(one, other)


def test_clamping_everything_gives_the_evidence_back():
    network = full_conditionals(random_law())
    assert draw_network(network, 3, clamped={"a": 1, "b": 0, "c": 1}).codes.tolist() == [[1, 0, 1]] * 3


def test_networks_and_evidence_without_a_law_are_refused_with_the_states():
    with pytest.raises(InputError, match="cannot go between a=no, b=no; a=yes, b=yes"):
        draw_network(frozen(), 5)
    with pytest.raises(InputError, match="a=no, b=yes has probability zero"):
        draw_network(frozen(), 5, clamped={"a": "no", "b": "yes"})
    domain = Domain.from_cardinalities({f"x{i}": 2 for i in range(17)})
    fair = torch.tensor([0.5, 0.5])
    wide = DependencyConditionals(TableConditional(domain, name, [], fair) for name in domain.names)
    with pytest.raises(IntractableError, match="131072 states, the limit is 65536"):
        draw_network(wide, 5, method="exact")
    assert draw_network(wide, 5, burn_in=1).is_exact is False


# The whole study


def test_a_study_scores_every_part_and_its_file_gives_the_network_back(tmp_path):
    rows = load_table("czech_autoworkers")
    train, validation, test = rows.split((0.5, 0.0, 0.5), 0)
    found = analyse_network({"train": train, "validation": validation, "test": test}, target="smoke", seed=1)
    assert found.parts["validation"] is None
    assert found.judged_on == "test"
    part = found.parts["test"]
    independent = learn_network(train, max_leaves=1).conditionals
    each = torch.repeat_interleave(test.codes, test.counts.long(), 0)
    assert part.independent.pseudo_nll == pytest.approx(-float(independent.log_pseudo_prob(each).mean()), abs=1e-12)
    assert part.independent.kl == pytest.approx(part.independent.pseudo_nll - test.entropy(), abs=1e-12)
    network = found.learned.conditionals
    assert part.scores.pseudo_nll == pytest.approx(-float(network.log_pseudo_prob(each).mean()), abs=1e-12)
    right = network.node("smoke").log_probs(each).argmax(-1) == each[:, 0]
    assert part.accuracy == {
        "target": "smoke",
        "accuracy": pytest.approx(float(right.double().mean())),
        "majority_accuracy": pytest.approx(float(test.marginal_counts([("smoke",)]).max()) / test.total_count),
        "majority_p_value": predict_network(network, test, "smoke").majority_p_value,
        "rows": test.total_count,
    }
    found.save(tmp_path)
    file = load_network(tmp_path / "model.safetensors")
    assert torch.equal(file.conditionals.log_conditionals(each), network.log_conditionals(each))
    assert file.info["edges"] == [[e.parent, e.child, e.value] for e in found.edges]
    assert torch.equal(file.tensors["counts.0"], found.learned.counts[0])


def test_wrong_studies_are_refused():
    rows = load_table("czech_autoworkers")
    with raises("empty", "parts"):
        analyse_network({"test": rows})
    with raises("other-domain", "parts['test']"):
        analyse_network({"train": rows, "test": rows.project(["smoke"])})
    with raises("unknown-name", "target"):
        analyse_network({"train": rows}, target="smok")
    codes = rows.codes.clone()
    codes[:, 2] = -1
    with raises("missing-part", "rows"):
        analyse_network({"train": Observations.from_tensor(codes, rows.domain, weights=rows.counts)})
