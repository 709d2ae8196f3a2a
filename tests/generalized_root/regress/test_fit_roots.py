"""Fits of all nodes: the joint model, options, odd columns, workers, checkpoints, bad input."""

import math
import pickle
import time

import joblib
import numpy as np
import pytest
import scipy.sparse
import scipy.special
import torch

from pyro_hoim.data import CountTable
from pyro_hoim.errors import ConvergenceWarning, InputError, IntractableError
from pyro_hoim.generalized_root import RootSettings, fit_root_path, fit_roots
from pyro_hoim.generalized_root.nodes.families import PoissonFamily, TruncatedPoissonFamily
from pyro_hoim.generalized_root.regress import fit as _run
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import raises


def count_table(seed=0, num_rows=120, width=6):
    rng = np.random.default_rng(seed)
    hidden = rng.gamma(0.7, 1.2, (num_rows, 3))
    load = rng.random((3, width)) * (rng.random((3, width)) < 0.6)
    return rng.poisson(hidden @ load + 0.15).astype(float)


def check_equal(one, other):
    assert one.structure == other.structure
    assert torch.equal(one.psi, other.psi)
    assert torch.equal(one.kkt_residual, other.kkt_residual)
    assert torch.equal(one.objective, other.objective)
    for first, second in zip(one.nodes, other.nodes, strict=True):
        assert first.terms == second.terms


# The joint model


def test_tuples_are_joined_from_their_nodes():
    fitted = fit_roots(count_table(), order=3, l1=0.01)
    mean, kept, shared = (
        {term.names: term.coefficient for term in joined.terms() if len(term.names) > 1}
        for joined in (fitted, fitted.joined("and"), fitted.joined("or"))
    )
    by_node = {}
    for node in fitted.nodes:
        for term in node.terms:
            by_node.setdefault(term.names, []).append(term.coefficient)
    partial = {names for names, found in by_node.items() if len(found) < len(names)}
    assert partial
    assert len(partial) < len(by_node)
    assert mean == pytest.approx({names: sum(found) / len(names) for names, found in by_node.items()})
    assert shared == pytest.approx({names: sum(found) / len(found) for names, found in by_node.items()})
    assert kept == pytest.approx({names: value for names, value in mean.items() if names not in partial})
    check_equal(fitted, fitted.joined("or").joined("mean"))


def test_entries_are_coefficients_over_factorials():
    fitted = fit_roots(count_table(), order=3, l1=0.005)
    assert (3, 3) in fitted.structure.keys
    for term, psi in zip(fitted.structure.names, fitted.psi.tolist(), strict=True):
        (found,) = [t for t in fitted.terms(term[0]) if t.names == term[1]]
        assert psi * math.factorial(len(term[1])) == pytest.approx(found.coefficient, abs=1e-15)
    assert [abs(t.coefficient) for t in fitted.terms((2, 2), num=3)] == sorted(
        (abs(t.coefficient) for t in fitted.terms((2, 2), num=3)), reverse=True
    )
    assert all(t.coefficient < 0 for t in fitted.terms(sign=-1))


@pytest.mark.parametrize("full", [False, True])
def test_pseudo_likelihood_is_that_of_the_energy(full):
    x = count_table(1)
    fitted = fit_roots(x[:80], order=3, l1=0.01, full=full)
    energy = fitted.energy()
    expected = energy.node_log_prob(torch.from_numpy(x[80:]))
    torch.testing.assert_close(fitted.log_pseudo_prob(x[80:], by_node=True), expected, rtol=0, atol=1e-9)
    sparse = scipy.sparse.coo_matrix(x[80:])
    torch.testing.assert_close(fitted.log_pseudo_prob(sparse), expected.sum(1), rtol=0, atol=1e-9)


def test_objective_is_minus_the_pseudo_likelihood_of_the_rows_with_penalties():
    x = count_table(2)
    fitted = fit_roots(x, order=3, l1=0.02)
    own = fitted.log_pseudo_prob(x, symmetrized=False, by_node=True).mean(0)
    base = torch.from_numpy(scipy.special.gammaln(x + 1)).mean(0)
    for node, mean, constant, objective in zip(fitted.nodes, own, base, fitted.objective, strict=True):
        penalty = 0.02 * sum(abs(term.coefficient) for term in node.terms)
        assert -mean.item() - constant.item() + penalty == pytest.approx(objective.item(), abs=1e-10)


# Options


def test_candidates_limit_the_search():
    x = count_table(3)
    free = fit_roots(x, order=3, l1=0.005)
    pairs = {t.names for t in free.terms((2, 2))}
    triples = {t.names for t in free.terms((3, 3))}
    assert ("x0", "x1") not in triples
    wanted = [("x2", "x0", "x1"), ("x1", "x2", "x3")]
    some = fit_roots(x, order=3, l1=0.005, settings=RootSettings(candidates=wanted))
    assert {t.names for t in some.terms((3, 3))} <= {("x0", "x1", "x2"), ("x1", "x2", "x3")}
    assert len({t.names for t in some.terms((2, 2))}) > 3
    none = fit_roots(x, order=3, l1=0.005, settings=RootSettings(candidates={3: []}))
    check_pairs = fit_roots(x, order=2, l1=0.005)
    assert none.structure == check_pairs.structure
    torch.testing.assert_close(none.psi, check_pairs.psi, rtol=0, atol=1e-5)
    every = fit_roots(x, order=3, l1=0.005, settings=RootSettings(candidates={2: sorted(pairs), 3: sorted(triples)}))
    assert every.structure == free.structure  # nothing that was left out was needed
    torch.testing.assert_close(every.psi, free.psi, rtol=0, atol=1e-4)


def test_order_four_finds_a_planted_quadruple():
    rng = np.random.default_rng(4)
    x = rng.poisson(0.8, (1500, 5)).astype(float)
    # x4 depends on the product of fourth roots of x0, x1, x2 and on nothing else
    x[:, 4] = rng.poisson(np.exp(-1.5 + 2.5 * (x[:, 0] * x[:, 1] * x[:, 2]) ** 0.25))
    fitted = fit_roots(x, order=4, l1={2: 0.05, 3: 0.05, 4: 0.02})
    node = fitted.nodes[4]
    best = max(node.terms, key=lambda t: abs(t.coefficient))
    assert best.key == (4, 4)
    assert best.names == ("x0", "x1", "x2", "x4")
    staged = fit_roots(
        x, order=4, l1={2: 0.05, 3: 0.05, 4: 0.02}, settings=RootSettings(candidates=[("x0", "x1", "x2", "x4")])
    )
    assert staged.nodes[4].terms[-1].names == ("x0", "x1", "x2", "x4")


def test_stages_search_cliques_only():
    x = count_table(5, 200)
    pairs = {t.names for t in fit_roots(x, order=2, l1=0.02).terms((2, 2))}
    staged = fit_roots(x, order=3, l1={2: 0.02, 3: 0.002}, settings=RootSettings(stagewise=True))
    free = fit_roots(x, order=3, l1={2: 0.02, 3: 0.002})
    triples = [t.names for t in staged.terms((3, 3))]
    assert triples
    for a, b, c in triples:
        assert {(a, b), (a, c), (b, c)} <= pairs
    assert len(triples) < len(free.terms((3, 3)))
    assert staged.is_converged
    assert (staged.objective >= free.objective - 1e-9).all()


def test_all_keys_have_more_terms():
    x = count_table(6)
    fitted = fit_roots(x, order=2, l1=0.002, full=True)
    assert (2, 1) in fitted.structure.keys
    simplified = fit_roots(x, order=2, l1=0.002)
    assert (fitted.objective <= simplified.objective + 1e-9).all()
    assert (fitted.objective < simplified.objective - 1e-5).any()


def test_one_column_and_order_one():
    fitted = fit_roots([[1], [0], [3]], order=3)
    assert fitted.structure.names == (((1, 1), ("x0",)),)
    assert fitted.psi.item() == pytest.approx(math.log(4 / 3), abs=1e-10)
    assert fit_roots(count_table(), order=1).structure.is_independent


# Odd columns


def test_zero_columns_are_left_out():
    x = count_table(7)
    with_zero = np.insert(x, 2, 0.0, axis=1)
    names = ["a", "b", "none", "c", "d", "e", "f"]
    fitted = fit_roots(with_zero, order=3, names=names)
    plain = fit_roots(x, order=3, names=[n for n in names if n != "none"])
    assert fitted.zero_columns == ("none",)
    assert fitted.constant_columns == ("none",)
    assert fitted.intercepts[2] == -math.inf
    assert fitted.nodes[2].status == "fixed"
    assert fitted.structure == plain.structure
    torch.testing.assert_close(fitted.psi, plain.psi, rtol=0, atol=0)
    torch.testing.assert_close(fitted.log_pseudo_prob(with_zero), plain.log_pseudo_prob(x), rtol=0, atol=1e-12)
    with_zero[0, 2] = 1.0
    assert fitted.log_pseudo_prob(with_zero)[0] == -math.inf


def test_constant_and_saturated_columns():
    x = np.concatenate([count_table(8), np.full((120, 1), 3.0)], axis=1)
    fitted = fit_roots(x, order=3, l1=0.05)
    assert fitted.is_converged
    assert fitted.constant_columns == ("x6",)
    assert fitted.zero_columns == ()
    full = np.minimum(x, 3.0)
    cut = fit_roots(full, TruncatedPoissonFamily(3), order=2, l1=0.05)
    assert dict(cut.fixed_columns) == {"x6": 3.0}
    assert cut.intercepts[6] == math.inf
    assert "x6" not in cut.structure.domain.names
    assert not any("x6" in term.names for node in cut.nodes for term in node.terms)


def test_huge_counts():
    rng = np.random.default_rng(9)
    x = np.stack([rng.poisson(1e7, 60), rng.poisson(2.0, 60), rng.poisson(1e7, 60)], axis=1).astype(float)
    fitted = fit_roots(x, order=1)
    np.testing.assert_allclose(fitted.psi.numpy(), np.log(x.mean(0)), rtol=1e-10)
    pairs = fit_roots(x, order=2, l1=50.0)
    assert bool((pairs.kkt_residual < 1e-6).all())


# Workers and checkpoints


def test_workers_and_kinds_of_data_do_not_matter():
    x = count_table(10)
    one = fit_roots(x, order=3, settings=RootSettings(jobs=1))
    for other in (
        fit_roots(x, order=3, settings=RootSettings(jobs=2)),
        fit_roots(scipy.sparse.csr_matrix(x), order=3),
        fit_roots(scipy.sparse.coo_array(x.astype(np.int32)), order=3),
        fit_roots(torch.from_numpy(x).float(), PoissonFamily(), order=3),
        fit_roots(CountTable.from_matrix(x, [f"x{i}" for i in range(6)]), order=3),
        pickle.loads(pickle.dumps(one)),
    ):
        check_equal(one, other)


@pytest.mark.slow  # the cluster below is sent the same tasks, and starts no interpreter
def test_processes_give_the_same_result():
    x = count_table(13, 60, 4)
    expected = fit_roots(x, order=3)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        check_equal(fit_roots(x, order=3), expected)


def test_a_dask_cluster_gives_the_same_result():
    from distributed import Client, LocalCluster

    x = count_table(13, 60, 4)
    expected = fit_roots(x, order=3)
    where = {"processes": False, "protocol": "tcp", "host": "127.0.0.1", "dashboard_address": None}
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, **where) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        check_equal(fit_roots(x, order=3), expected)


def test_resume_continues_and_refuses_another_run(tmp_path):
    x, options = count_table(11), {"order": 3, "l1": 0.01, "settings": RootSettings(stagewise=True)}
    path = tmp_path / "run.checkpoint"
    begin, resume = {"run": RunOptions(path)}, {"run": RunOptions(path, resume=True)}
    whole = fit_roots(x, **options)
    check_equal(whole, fit_roots(x, **options, **begin))
    start = time.process_time()
    again = fit_roots(x, **options, **resume)
    assert time.process_time() - start < 5
    check_equal(whole, again)
    assert [n.seconds for n in again.nodes] != [n.seconds for n in whole.nodes]
    with raises("existing-file", "checkpoint"):
        fit_roots(x, order=3, l1=0.01, **begin)
    for other in ({"l1": 0.02}, {"settings": RootSettings(stagewise=True, symmetrize="and")}):
        with raises("other-run", "checkpoint"):
            fit_roots(x, **options | other, **resume)
    with pytest.raises(InputError, match="another data"):
        fit_roots(x + 1, **options, **resume)


def test_an_interrupted_run_is_continued(tmp_path, monkeypatch):
    x = count_table(12)
    file = tmp_path / "run.checkpoint"
    solve = _run.solve_node
    solved = []

    def interrupted(rows, node, *arguments):
        if len(solved) == 3:
            raise KeyboardInterrupt
        solved.append(node)
        return solve(rows, node, *arguments)

    monkeypatch.setattr(_run, "solve_node", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_roots(x, order=3, l1=0.01, run=RunOptions(file))
    assert file.exists()
    monkeypatch.setattr(_run, "solve_node", lambda rows, node, *a: solved.append(node) or solve(rows, node, *a))
    check_equal(fit_roots(x, order=3, l1=0.01, run=RunOptions(file, resume=True)), fit_roots(x, order=3, l1=0.01))
    assert sorted(solved[:6]) == list(range(6))  # the first three were not solved again


# Bad input


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("value", [math.nan, -1.0, 0.5, math.inf, 1e300])
def test_values_outside_the_support_are_named(value, make):
    x = count_table()
    x[2, 3] = value
    with raises("out-of-range", "data, row 2 (counted from 0), column 'x3'"):
        fit_roots(make(x))


BAD = [
    ({"l1": -0.1}, "out-of-range", "l1"),
    ({"l1": math.nan}, "out-of-range", "l1"),
    ({"l1": "0.1"}, "out-of-range", "l1"),
    ({"l1": [0.1, 0.2]}, "out-of-range", "l1"),
    ({"l1": {2: 0.1}}, "missing-part", "l1"),
    ({"l1": {1: 0.1, 2: 0.1, 3: 0.1}}, "out-of-range", "l1"),
    ({"order": 0}, "out-of-range", "order"),
    ({"order": 2.0}, "out-of-range", "order"),
    ({"names": ["a"]}, "wrong-shape", "data names"),
    ({"names": "abcdef"}, "wrong-type", "names"),
    ({"names": ["a"] * 6}, "repeated-name", "data names"),
    ({"symmetrize": "max"}, "unknown-choice", "symmetrize"),
    ({"tolerance": 0}, "out-of-range", "tolerance"),
    ({"max_iterations": 0}, "out-of-range", "max_iterations"),
    ({"jobs": 0}, "out-of-range", "jobs"),
    ({"jobs": 1.5}, "wrong-type", "jobs"),
    ({"run": "file"}, "wrong-type", "run"),
    ({"candidates": ["x0"]}, "wrong-type", "candidates"),
    ({"candidates": [("x0", "x9")]}, "unknown-name", None),
    ({"candidates": [("x0", "x0")]}, "repeated-name", None),
    ({"candidates": [("x0",)]}, "out-of-range", "candidates"),
    ({"candidates": {4: []}}, "out-of-range", "candidates"),
    ({"candidates": {3: [("x0", "x1")]}}, "wrong-shape", "candidates[3]"),
    ({"max_work": 10}, "over-budget", "order"),
    ({"data": [[1.0], [-2.0]], "family": "exponential"}, "out-of-range", "data, row 1 (counted from 0), column 'x0'"),
    ({"data": [[1], [4]], "family": TruncatedPoissonFamily(3)}, "out-of-range", None),
    ({"data": [[1], [4]], "family": "poison"}, "unknown-choice", "family"),
    ({"data": np.zeros((0, 3))}, "empty", "data"),
    ({"data": [1, 2, 3]}, "wrong-shape", "data"),
    ({"data": [["a", "b"]]}, "wrong-type", "data"),
]


@pytest.mark.parametrize(("arguments", "code", "argument"), BAD)
def test_bad_arguments(arguments, code, argument):
    own = {name: value for name, value in arguments.items() if name in RootSettings.__dataclass_fields__}
    others = {"data": count_table()} | {name: value for name, value in arguments.items() if name not in own}
    with raises(code, argument):
        fit_roots(settings=RootSettings(**own), **others)


def test_bad_costs_and_paths():
    with pytest.raises(IntractableError, match=r"of 4 variables would be searched.*bytes.*candidates"):
        fit_roots(scipy.sparse.eye(400, format="csr"), order=4)
    for l1s, code in (([], "empty"), (0.1, "wrong-type")):
        with raises(code, "l1s"):
            fit_root_path(count_table(), l1s)
    fitted = fit_roots(count_table())
    with raises("wrong-shape", "data names"):
        fitted.log_pseudo_prob(np.zeros((2, 3)))


def test_too_few_steps_are_reported():
    with pytest.warns(ConvergenceWarning, match="root regressions have not converged; the worst is"):
        fitted = fit_roots(count_table(), order=3, settings=RootSettings(max_iterations=1))
    assert not fitted.is_converged
    assert "max_iterations" in {node.status for node in fitted.nodes}
    assert float(fitted.kkt_residual.max()) > 1e-6


@pytest.mark.fixed_seed  # of few rows that drive an intercept to its end
def test_the_edge_of_the_domain_is_told_with_what_helps():
    """Lower roots drive an intercept of a few spread rows to its end, 0."""
    x = np.exp(1.5 * np.random.default_rng(1).normal(size=(15, 3)))
    options = {"order": 2, "l1": 0.05}
    helps = "edge of the family's domain, stops the line search: raise l1, or leave out full=True"
    with pytest.warns(ConvergenceWarning, match=helps):
        fitted = fit_roots(x, "exponential", full=True, **options)
    assert [node.status for node in fitted.nodes] == ["stalled", "converged", "converged"]
    assert -1e-3 < fitted.nodes[0].intercept < 0
    assert fit_roots(x, "exponential", **options).is_converged
    assert fit_roots(x, "exponential", full=True, **options | {"l1": 0.3}).is_converged
