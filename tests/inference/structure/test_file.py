"""Files of posteriors over structure, the same collections under other priors, and predictions."""

import functools
import itertools

import numpy as np
import pytest
import torch
from forged_files import change as forge

from pyro_hoim import Domain, Observations
from pyro_hoim.errors import ModelFileError
from pyro_hoim.inference import (
    ChainSettings,
    StructurePrior,
    average_decomposable,
    enumerate_structures,
    load_structure_posterior,
    sample_structures,
    save_structure_posterior,
)
from pyro_hoim.log_linear import Prior, unit_information_prior
from pyro_hoim.testing import raises


def small(dtype=torch.float64):
    counts = np.random.default_rng(1).multinomial(
        80, [0.25, 0.02, 0.03, 0.1, 0.05, 0.15, 0.2, 0.05, 0.05, 0.02, 0.05, 0.03]
    )
    table = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), counts.reshape(2, 3, 2))
    return Observations(table.domain, table.codes, table.counts.to(dtype))


@functools.cache
def posteriors():
    rows = small()
    beta = StructurePrior(rows.domain, inclusion=("beta", 1.0, 3.0), heredity=0.5)
    trees = StructurePrior(rows.domain, space="decomposable")
    short = ChainSettings(2, 40, 5)
    return {
        "list": enumerate_structures(rows, "unit:2", beta),
        "trees": average_decomposable(rows, "conjugate:2", trees, num_draws=50),
        "chains": sample_structures(rows, "normal:0.7", StructurePrior(rows.domain), short, seed=2),
        "jumps": sample_structures(small(torch.float32), "unit", beta, short, seed=3, collapsed=False),
    }


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_everything_comes_back(tmp_path):
    for name, before in posteriors().items():
        path = tmp_path / f"{name}.safetensors"
        save_structure_posterior(path, before, {"seed": 1})
        after = load_structure_posterior(path)
        for field in ("gamma", "log_evidence", "probabilities", "index", "theta"):
            one = getattr(before, field)
            two = getattr(after, field)
            assert one is two or (torch.equal(one, two) and one.dtype == two.dtype), (name, field)
        for field in ("num_effective", "is_exact", "status", "method"):
            assert getattr(before, field) == getattr(after, field)
        assert after.structure_prior.space == before.structure_prior.space
        assert after.structure_prior.inclusion == before.structure_prior.inclusion
        assert after.models(3) == before.models(3)
        assert torch.equal(after.cell_probabilities(), before.cell_probabilities())
        assert torch.equal(after.sample(20, seed=1).theta, before.sample(20, seed=1).theta)
        assert after.data.total_count == 80 and after.data.counts.dtype == before.data.counts.dtype


def test_a_function_is_no_prior_of_a_file(tmp_path):
    posterior = enumerate_structures(small(), unit_information_prior)
    with raises("conflict", "posterior"):
        save_structure_posterior(tmp_path / "p.safetensors", posterior)
    assert not list(tmp_path.iterdir())


def _of(name, change):
    return lambda header, tensors: tensors.update({name: change(tensors[name]).clone()})


NUMBERS = [  # of jumps
    _of("probabilities", lambda p: p * torch.nan),
    _of("probabilities", lambda p: -p),
    _of("probabilities", lambda p: 2 * p),
    _of("probabilities", lambda p: p.float()),
    _of("probabilities", lambda p: p.flip(0)),  # not the shares of the draws
    _of("log_evidence", lambda v: v * torch.nan),
    _of("gamma", lambda g: 7 * g),
    _of("gamma", lambda g: g[:1].expand_as(g)),
    _of("gamma", lambda g: g.double() * torch.nan),
    _of("index", lambda i: i.double()),
    _of("index", lambda i: i[0]),
    _of("theta", lambda t: t[..., 1:]),
    _of("theta", lambda t: t * torch.nan),
    lambda h, t: t.pop("index"),
    lambda h, t: t.update({n: t[n][:0].clone() for n in ("gamma", "log_evidence", "probabilities")}),
    lambda h, t: h["result"].update(status="good"),
    lambda h, t: h["result"].update(is_exact="yes"),
    lambda h, t: h["result"].update(num_effective="many"),
    lambda h, t: h["result"].update(num_effective=0),
    lambda h, t: h["result"].pop("status"),
]
PARTS = [  # of a list
    lambda h, t: t.pop("gamma"),
    lambda h, t: t["gamma"].fill_(0)[:, -1].fill_(1),
    lambda h, t: t.update(probabilities=t["probabilities"][1:].clone()),
    lambda h, t: t.update(index=torch.full((2, 3), 99)),
    lambda h, t: h["space"].update(space="cyclic"),
    lambda h, t: h["evidence"].update(prior="none"),
    lambda h, t: h["domain"].pop(),
    lambda h, t: h.update(kind="hierarchical-log-linear"),
]


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
@pytest.mark.parametrize(("changes", "message"), [(NUMBERS, "do not fit together"), (PARTS, r"p\.safetensors")])
def test_what_no_posterior_has_is_refused(changes, message, tmp_path):
    path = tmp_path / "p.safetensors"
    save_structure_posterior(path, posteriors()["jumps"] if changes is NUMBERS else enumerate_structures(small()))
    whole = path.read_bytes()
    forge(path, lambda h, t: None)
    load_structure_posterior(path)  # control: the file was written anew
    for change in changes:
        path.write_bytes(whole)
        forge(path, change)
        with pytest.raises(ModelFileError, match=message):
            load_structure_posterior(path)


# Other priors


def test_a_beta_law_of_great_numbers_is_its_limit():
    domain = small().domain
    sharp, half = (StructurePrior(domain, inclusion=law).probs for law in (("beta", 1e14, 1e14), 0.5))
    torch.testing.assert_close(sharp, half, rtol=1e-10, atol=0)  # differences of beta functions are half a nat off
    near = StructurePrior(domain, inclusion=("beta", 10.0, 10.0)).probs
    assert not torch.allclose(near, half, rtol=1e-2)  # control


def test_a_list_under_another_prior_is_the_list_of_that_prior():
    rows, law = small(), StructurePrior(small().domain, inclusion=0.3)
    before = enumerate_structures(rows, "unit", law)
    for text in ("unit:0.25", "unit:4", "normal:0.001", "normal:1000"):
        after, direct = before.reweighted(text), enumerate_structures(rows, text, law)
        assert torch.equal(after.log_evidence, direct.log_evidence)
        torch.testing.assert_close(after.probabilities, direct.probabilities, rtol=1e-10, atol=1e-300)
        assert (after.status, after.is_exact, after.num_effective) == ("approximate", False, None)
    assert before.inclusion["b", "c"] != pytest.approx(after.inclusion["b", "c"], abs=0.01)  # control: they differ


def test_draws_under_another_prior_are_weighted():
    counts = np.array([[[6, 2], [3, 4], [1, 2]], [[2, 5], [4, 1], [5, 3]]])
    rows = Observations.from_table(small().domain, counts)
    law = StructurePrior(rows.domain, space="decomposable")
    drawn = average_decomposable(rows, "conjugate:4", law, num_draws=20_000, seed=4)
    exact = enumerate_structures(rows, "conjugate:16", law)
    assert drawn.num_structures == exact.num_structures  # so that only the shares are random
    after = drawn.reweighted("conjugate:16")
    assert after.is_exact and after.status == "exact" and 1000 < (after.num_effective or 0) < 20_000
    error = 4.9 * float(after.inclusion.mcse.max())  # a = 1e-6 on both sides
    assert float((after.inclusion.mean - exact.inclusion.mean).abs().max()) < error
    assert float((drawn.inclusion.mean - exact.inclusion.mean).abs().max()) > error  # control: without the weights


def test_chains_under_the_same_prior_are_worth_all_their_draws():
    rows = small()
    chains = sample_structures(rows, "unit", settings=ChainSettings(2, 2000, 20), seed=5)
    same = chains.reweighted("unit:1")
    assert same.num_effective == pytest.approx(4000) and same.index is None and same.status == "approximate"
    torch.testing.assert_close(same.probabilities, chains.probabilities, rtol=1e-12, atol=0)


def test_scaled_priors_know_so_many_times_as_much():
    for text, expected in {
        "unit": "unit:4",
        "unit:0.25": "unit",
        "normal:2": "normal:1",
        "ridge:2": "ridge:8",
        "conjugate:1": "conjugate:4",
        "none": "none",
    }.items():
        assert str(Prior.parse(text).scaled(4)) == expected
    graph = StructurePrior(small().domain).largest
    four = Prior.parse("unit:4").distribution(graph)
    torch.testing.assert_close(four.stddev, unit_information_prior(graph, 4.0).stddev)
    assert Prior.parse("unit:4").strengths(graph.domain, 2).by_edge["a", "b"] == pytest.approx(4 / 6)
    for text in ("unit:", "unit:0", "unit:-1", "none:1"):
        with raises("unknown-choice", "prior"):
            Prior.parse(text)
    for text in ("normal:1e-16", "ridge:1e16", "conjugate:1e308"):
        with raises("out-of-range", "prior"):
            Prior.parse(text)
    for text in ("normal:1e-15", "normal:1e15", "ridge:1e15", "unit:1e-15"):  # control
        assert bool(enumerate_structures(small(), text).probabilities.isfinite().all()), text
    with raises("out-of-range", "factor"):
        Prior.parse("unit").scaled(0)


# Predictions


COUNTS = np.random.default_rng(1).poisson([2, 5, 4, 9, 3, 8, 1, 6, 2, 5, 4, 6, 9, 3, 5, 1]).reshape((2,) * 4)
FOUR = Observations.from_table(Domain.from_labels({n: ["no", "yes"] for n in "abcd"}), COUNTS)
GRAPHS = StructurePrior(FOUR.domain, space="decomposable")
EVERY = Observations.from_tensor(torch.tensor(list(itertools.product([-1, 0, 1], repeat=4))), FOUR.domain)
LISTED = enumerate_structures(FOUR, "conjugate:3", GRAPHS)


def by_models(row, column):
    """The probabilities of a column, from sums over collections of products of Dirichlet means along their cliques."""
    counts = FOUR.table().numpy() + 3 / 16
    joint = np.zeros((2,) * 4)
    for graph, probability, _ in LISTED.models(LISTED.num_structures):
        left, edges = list(range(4)), [frozenset(FOUR.domain.indices(e)) for e in graph.edges if len(e) > 1]
        product = np.full((2,) * 4, probability)
        while left:
            near = {v: [w for w in left if frozenset((v, w)) in edges and w != v] for v in left}
            v = next(v for v in left if all(frozenset(p) in edges for p in itertools.combinations(near[v], 2)))
            others = tuple(w for w in range(4) if w != v and w not in near[v])
            both = counts.sum(others, keepdims=True)
            product = product * both / both.sum(v, keepdims=True)
            left.remove(v)
        joint += product
    known = tuple(slice(None) if k == column or code < 0 else slice(code, code + 1) for k, code in enumerate(row))
    found = joint[known].sum(tuple(k for k in range(4) if k != column))
    return found / found.sum()


@pytest.mark.parametrize("target", ["a", "c"])
def test_listed_predictions_are_those_of_sums_over_collections(target):
    found, column = LISTED.predict(EVERY, target), FOUR.domain.index(target)
    wanted = np.stack([by_models(row, column) for row in EVERY.codes.tolist()])
    np.testing.assert_allclose(found.probs, wanted, atol=1e-6)  # collections that together have as little are left out
    assert found.kind == "exact" and bool((found.std_error == 0).all()) and found.labels == FOUR.domain[target].labels
    assert torch.equal(found.truth, EVERY.codes[:, column])
    best = LISTED.models(1)[0].hypergraph
    alone = enumerate_structures(FOUR, "conjugate:3", StructurePrior(FOUR.domain, space="decomposable", inclusion=1e-9))
    assert best != alone.models(1)[0].hypergraph  # a control: one collection alone predicts otherwise
    assert float((alone.predict(EVERY, target).probs - found.probs).abs().max()) > 0.01


def test_rows_over_some_columns_and_no_rows():
    some = Observations.from_tensor(torch.tensor([[1, 0]]), Domain([FOUR.domain["d"], FOUR.domain["b"]]))
    found = LISTED.predict(some, "c")
    np.testing.assert_allclose(found.probs[0], by_models([-1, 0, -1, 1], 2), atol=1e-6)
    assert found.truth.tolist() == [-1]
    none = Observations.from_tensor(torch.zeros(0, 4, dtype=torch.long), FOUR.domain)
    assert LISTED.predict(none, "c").probs.shape == (0, 2)
    flat = Observations.from_tensor(torch.tensor([[0, 0], [1, 0], [1, 0]]), Domain.from_cardinalities([2, 1]))
    assert enumerate_structures(flat).predict(flat, "x1").probs.tolist() == [[1.0]] * 3
    one = Observations.from_tensor(torch.tensor([[0], [1], [1]]), Domain.from_cardinalities([2]))
    prior = StructurePrior(one.domain, space="decomposable")
    assert enumerate_structures(one, "conjugate:2", prior).predict(one, "x0").probs[0].tolist() == pytest.approx(
        [2 / 5, 3 / 5]
    )


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # a hair above the limit
@pytest.mark.parametrize("kind", ["chains", "chains with theta", "trees"])
def test_drawn_predictions_are_the_listed_ones_up_to_their_error(kind):
    settings = ChainSettings(8, 300, 50)
    if kind == "trees":
        drawn = average_decomposable(FOUR, "conjugate:3", GRAPHS, num_draws=4_000, seed=1)
    else:
        drawn = sample_structures(FOUR, "conjugate:3", GRAPHS, settings, collapsed=kind == "chains", seed=1)
    found, wanted = drawn.predict(EVERY, "b"), LISTED.predict(EVERY, "b")
    off = (found.probs - wanted.probs).abs()
    assert found.kind == "biased" and float(found.std_error.max()) < 0.03
    # Seven degrees of freedom of eight chains: 12 standard errors have a tail of some 1e-6.
    assert bool((off <= 12 * found.std_error + 1e-9).all())
    others = enumerate_structures(FOUR.rows(torch.arange(8)), "conjugate:3", GRAPHS).predict(EVERY, "b")
    assert bool(((found.probs - others.probs).abs() > 12 * found.std_error).any())


def test_laplace_is_not_called_exact_and_comes_near_conjugate_means():
    unit = enumerate_structures(FOUR, "unit", GRAPHS).predict(EVERY, "b")
    assert unit.kind == "biased" and float((unit.probs - LISTED.predict(EVERY, "b").probs).abs().max()) < 0.02


def test_large_tables_are_predicted_by_draws(monkeypatch):
    before = torch.get_rng_state()
    exact = LISTED.predict(FOUR, "b")
    monkeypatch.setattr("pyro_hoim.inference.structure.posterior.MAX_CELLS", 8)
    found = LISTED.predict(FOUR, "b", num_draws=200, seed=1)
    assert torch.equal(before, torch.get_rng_state()) and found.kind == "biased"
    assert torch.equal(found.probs, LISTED.predict(FOUR, "b", num_draws=200, seed=1).probs)
    # What a row says of theta is of the order of one in 70 rows.
    assert bool(((found.probs - exact.probs).abs() < 5.5 * found.std_error + 2e-3).all())
    assert 0 < float(found.std_error.max()) < 0.015


def test_bad_input():
    with raises("unknown-name", "target"):
        LISTED.predict(FOUR, "height")
    with raises("other-domain", "data"):
        LISTED.predict(Observations.from_tensor(torch.zeros(1, 1).long(), Domain.from_cardinalities({"b": 3})), "b")
    with raises("wrong-type", None):
        LISTED.predict([[0, 1, 0, 1]], "b")
