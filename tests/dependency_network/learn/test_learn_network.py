"""Learning of a whole network: smoothing, workers, checkpoints, what is reported."""

import itertools
import math
import pickle

import joblib
import numpy as np
import pytest
import scipy.stats
import torch

from pyro_hoim.data import Observations
from pyro_hoim.datasets import load_breast_cancer, load_mushroom
from pyro_hoim.dependency_network import AIC, MDL, leaf_probs, learn_network, learn_node
from pyro_hoim.dependency_network.learn import network
from pyro_hoim.errors import InputError
from pyro_hoim.runs import RunOptions
from pyro_hoim.schema import Domain
from pyro_hoim.testing import raises


def related(seed=0, num_rows=300, missing=0.0):
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 4, "e": 2})
    codes = np.empty((num_rows, 5), dtype=np.int64)
    codes[:, 1] = rng.integers(0, 3, num_rows)
    codes[:, 2] = rng.random(num_rows) < 0.3
    codes[:, 0] = (codes[:, 1] > 0) ^ (rng.random(num_rows) < 0.1)
    codes[:, 3] = (codes[:, 1] + codes[:, 2] + (rng.random(num_rows) < 0.2)) % 4
    codes[:, 4] = codes[:, 3] // 2
    codes[rng.random(codes.shape) < missing] = -1
    return Observations(domain, torch.from_numpy(codes))


def check_equal(one, other):
    assert one.nodes == other.nodes
    assert (one.penalty, one.alpha, one.num_observations) == (other.penalty, other.alpha, other.num_observations)
    for first, second in zip(one.conditionals.nodes, other.conditionals.nodes, strict=True):
        assert first.graph == second.graph
        assert torch.equal(first.probs, second.probs)
    for first, second in zip(one.counts, other.counts, strict=True):
        assert torch.equal(first, second)


# Tables and what is reported


def test_every_node_is_learned_as_by_itself():
    data = related(missing=0.1)
    reads = {"a": ["b", "c"], "e": []}
    learned = learn_network(data, penalty=AIC(), reads=reads, max_leaves=6, lossless=True, alpha=2.0)
    assert learned.conditionals.domain == data.domain
    assert (learned.penalty, learned.alpha, learned.num_observations) == ("aic", 2.0, 300.0)
    for name, counts, report in zip(data.domain.names, learned.counts, learned.nodes, strict=True):
        graph, own, own_report = learn_node(
            data, name, penalty=AIC(), reads=reads.get(name), max_leaves=6, lossless=True
        )
        node = learned.conditionals.node(name)
        assert node.graph == graph
        assert torch.equal(counts, own)
        assert report == own_report
        size = data.domain[name].cardinality
        expected = (own + 2 / size) / (own.sum(1, keepdim=True) + 2)
        torch.testing.assert_close(node.probs, expected, rtol=1e-14, atol=0)
    assert learned.cost == pytest.approx(sum(report.cost for report in learned.nodes) / 5, abs=1e-15)


def test_smoothing_of_leaf_tables():
    counts = torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert leaf_probs(counts, 0.0).tolist() == [[0.75, 0.25, 0.0], [1 / 3, 1 / 3, 1 / 3]]
    assert leaf_probs(counts, 3.0).tolist() == [[4 / 7, 2 / 7, 1 / 7], [1 / 3, 1 / 3, 1 / 3]]
    assert leaf_probs(counts, 1e-310).sum(1).tolist() == [1.0, 1.0]
    learned = learn_network(related(), alpha=0.0)
    check_equal(learned.with_alpha(1.5), learn_network(related(), alpha=1.5))
    with pytest.raises(InputError, match="alpha: expected a finite number from 0"):
        learned.with_alpha(-1.0)


def test_fc_limit_is_that_of_the_rows_law():
    data = related()
    learned = learn_network(data, alpha=0.0)
    p = data.table() / data.total_count
    total = 0.0
    for i, name in enumerate(data.domain.names):
        own = p / p.sum(i, keepdim=True)
        theta = learned.conditionals.full_table(name)
        keep = p > 0
        total += float((p[keep] * (own[keep] / theta[keep]).log()).sum())
    assert learned.fc_limit == pytest.approx(total / 5, abs=1e-12)
    assert learned.fc_limit > 0.01
    assert learn_network(related(missing=0.1)).fc_limit is None


def test_fc_limit_counts_the_variables_that_may_not_be_read():
    """A node kept from its only neighbour loses log 2 - H(1/9); with what it may read alone it would lose nothing."""
    table = [[[40, 5], [40, 5]], [[5, 40], [5, 40]]]
    data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}), table)
    learned = learn_network(data, reads={"a": ["b"], "c": ["b"]})
    lost = math.log(2) + math.log(1 / 9) / 9 + math.log(8 / 9) * 8 / 9
    assert [report.divergence for report in learned.nodes] == pytest.approx([lost, 0.0, lost], abs=1e-12)
    assert learned.fc_limit == pytest.approx(2 * lost / 3, abs=1e-12)
    assert learned.nodes[0].lossless_entropy == pytest.approx(math.log(2), abs=1e-12)


def test_pseudo_likelihood_of_the_training_rows_is_minus_the_entropies():
    data = related(3)
    learned = learn_network(data, alpha=0.0)
    mean = float(learned.conditionals.log_pseudo_prob(data.codes).double().mean())
    assert mean == pytest.approx(-sum(report.entropy for report in learned.nodes), abs=1e-11)


def test_conditions_of_theorem_5_are_reported():
    data = related()
    assert learn_network(data, lossless=True).conditions.hold
    without = learn_network(data).conditions
    assert (without.lossless_is_candidate, without.is_positive, without.vanishes) == (False, True, True)
    assert not learn_network(data, lossless=True, reads={"a": ["b"]}).conditions.lossless_is_candidate
    assert not learn_network(data, lossless=True, max_leaves=10).conditions.lossless_is_candidate
    wide = Observations(Domain.from_cardinalities([2] * 70), torch.eye(70, dtype=torch.long)[:30])
    learned = learn_network(wide, lossless=True)
    assert not learned.conditions.lossless_is_candidate
    assert learned.nodes[0].lossless_leaves == 2**69
    assert learned.nodes[0].lossless_cost == math.inf


def test_dependencies_of_a_chain_are_found():
    """Rows of a Markov chain: every variable reads its neighbours and nothing else."""
    rng = np.random.default_rng(1)
    codes = np.empty((20_000, 6), dtype=np.int64)
    codes[:, 0] = rng.integers(0, 2, 20_000)
    for j in range(1, 6):
        codes[:, j] = codes[:, j - 1] ^ (rng.random(20_000) < 0.2)
    data = Observations(Domain.from_cardinalities([2] * 6), torch.from_numpy(codes))
    learned = learn_network(data)
    expected = {(f"x{i}", f"x{j}") for i, j in itertools.product(range(6), repeat=2) if abs(i - j) == 1}
    assert set(learned.conditionals.edges) == expected


def test_dependencies_that_are_not_there_are_rarely_found():
    """A pair of independent columns is split on with P(chi-square(1) > log N) = 0.0086, of 600 pairs about 5."""
    rng = np.random.default_rng(1)
    domain = Domain.from_cardinalities([2] * 6)
    found = 0
    for _ in range(40):
        data = Observations(domain, torch.from_numpy(rng.integers(0, 2, (1000, 6))))
        found += len({frozenset(edge) for edge in learn_network(data).conditionals.edges})
    assert found <= scipy.stats.binom.ppf(1 - 1e-6, 600, scipy.stats.chi2.sf(math.log(1000), 1))


# Workers


@pytest.mark.usefixtures("shared_data")
@pytest.mark.parametrize("jobs", [2, -1])
def test_jobs_do_not_change_the_result(jobs):
    data = load_breast_cancer()
    check_equal(learn_network(data, jobs=jobs, penalty="aic"), learn_network(data, penalty="aic"))


def test_a_search_travels_between_processes():
    data = related(missing=0.1)
    prepared = network.PreparedRows.from_rows(data)
    task = network.NodeTask(prepared, data.domain, 0, None)
    options = network.SearchOptions(AIC(), False, None)
    search, arguments = pickle.loads(pickle.dumps((network.search, task.arguments(options))))
    graph, counts, report = task.finish(pickle.loads(pickle.dumps(search(*arguments))), options)
    expected_graph, expected_counts, expected_report = learn_node(data, "a", penalty="aic")
    assert graph == expected_graph and report == expected_report
    assert torch.equal(counts, expected_counts)


@pytest.mark.slow
def test_processes_give_the_same_result():
    data = related()
    expected = learn_network(data, penalty="aic")
    with joblib.parallel_config(backend="loky", n_jobs=2):
        check_equal(learn_network(data, penalty="aic"), expected)


@pytest.mark.usefixtures("shared_data")
def test_a_dask_cluster_gives_the_same_result():
    from distributed import Client, LocalCluster

    data = load_breast_cancer()
    expected = learn_network(data, penalty="aic")
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        check_equal(learn_network(data, penalty="aic"), expected)


# Checkpoints


def interrupted_after(number, monkeypatch):
    """Ctrl-C in place of the next search after ``number`` of them; the list of variables searched so far."""
    searched = []
    search = network.search

    def stop(*arguments):
        if len(searched) == number:
            raise KeyboardInterrupt
        searched.append(arguments)
        return search(*arguments)

    monkeypatch.setattr(network, "search", stop)
    return searched


def test_an_interrupted_run_continues_and_ends_with_the_same_result(tmp_path, monkeypatch):
    data = related(missing=0.05)
    expected = learn_network(data, alpha=0.5)
    path = tmp_path / "run.safetensors"
    with monkeypatch.context() as patch:
        searched = interrupted_after(3, patch)
        with pytest.raises(KeyboardInterrupt):
            learn_network(data, alpha=0.5, run=RunOptions(path))
        assert len(searched) == 3
    with monkeypatch.context() as patch:
        searched = interrupted_after(5, patch)
        check_equal(learn_network(data, alpha=0.5, run=RunOptions(path, resume=True)), expected)
        assert len(searched) == 2
    with monkeypatch.context() as patch:
        searched = interrupted_after(0, patch)
        check_equal(learn_network(data, alpha=2.0, run=RunOptions(path, resume=True)), expected.with_alpha(2.0))
        assert searched == []


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    data = related()
    path = tmp_path / "run.safetensors"
    learn_network(data, run=RunOptions(path))
    with pytest.raises(InputError, match="exists; pass resume=True"):
        learn_network(data, run=RunOptions(path))
    own = tmp_path / "own.safetensors"
    learn_network(data, penalty=lambda k, n: 0.01 * k, run=RunOptions(own))
    for rows, file, options, found in [
        (data, path, {"penalty": "aic"}, "penalty='mdl', not 'aic'"),
        (data, own, {"penalty": lambda k, n: 0.02 * k}, "another penalty"),
        (data, path, {"max_leaves": 3}, "max_leaves=None, not 3"),
        (related(1), path, {}, "another data"),
    ]:
        with pytest.raises(InputError, match=f"belongs to a run with {found}"):
            learn_network(rows, run=RunOptions(file, resume=True), **options)
    mixed = data.rows(torch.randperm(300, generator=torch.Generator().manual_seed(0)))
    check_equal(learn_network(mixed, run=RunOptions(path, resume=True)), learn_network(data))


def test_progress_counts_the_nodes(capsys):
    learn_network(related(), run=RunOptions(progress=True))
    assert "0/5" in capsys.readouterr().err
    learn_network(related())
    assert capsys.readouterr().err == ""


# Bad input


@pytest.mark.parametrize(
    ("rows", "options", "code", "argument"),
    [
        (related().rows(torch.zeros(300, dtype=torch.bool)), {}, "empty", "rows"),
        (Observations(Domain(), torch.zeros((3, 0), dtype=torch.long)), {}, "empty", "rows"),
        (related(), {"alpha": math.nan}, "out-of-range", "alpha"),
        (related(), {"alpha": "one"}, "out-of-range", "alpha"),
        (related(), {"jobs": 0}, "out-of-range", "jobs"),
        (related(), {"jobs": 1.5}, "wrong-type", "jobs"),
        (related(), {"reads": {"aa": ["b"]}}, "unknown-name", "reads"),
        (related(), {"reads": {"a": ["bb"]}}, "unknown-name", None),
        (related(), {"reads": {"a": 5}}, "wrong-type", "reads"),
        (related(), {"reads": ["a"]}, "wrong-type", "reads"),
        (related(), {"run": "file"}, "wrong-type", "run"),
    ],
)
def test_bad_arguments(rows, options, code, argument):
    with raises(code, argument):
        learn_network(rows, **options)


def test_columns_of_one_level_and_one_row():
    domain = Domain.from_cardinalities({"a": 1, "b": 9, "c": 2})
    learned = learn_network(Observations(domain, torch.tensor([[0, 3, 1]])), alpha=0.9)
    assert learned.conditionals.edges == ()
    assert learned.conditionals.node("a").probs.tolist() == [[1.0]]
    assert learned.conditionals.node("b").probs[0, 3].item() == pytest.approx(1.1 / 1.9)


@pytest.mark.usefixtures("shared_data")
def test_a_published_data_set():
    learned = learn_network(load_mushroom(), jobs=2)
    assert sum(report.num_leaves for report in learned.nodes) == 137
    assert learned.cost == pytest.approx(0.31276405644876853, abs=1e-12)
    assert learned.fc_limit == pytest.approx(0.004239024236624887, abs=1e-12)
    by_name = {report.variable: report for report in learned.nodes}
    assert (by_name["class"].num_leaves, by_name["class"].entropy) == (2, 0.0)
    assert by_name["class"].cost == MDL()(2, 8124.0)
    assert by_name["veil-type"].num_parameters == 0
