"""Fits of all nodes: the joint model, options, odd columns, workers, checkpoints, rows with counts, the penalty."""

import math
import pickle
import time

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.special
import scipy.stats
import torch

from pyro_hoim.data import CountTable, open_rows
from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError, IntractableError, MissingDataError
from pyro_hoim.generalized_root import L1Rule, RootSettings, choose_l1, fit_root_path, fit_roots
from pyro_hoim.generalized_root.nodes.families import PoissonFamily, TruncatedPoissonFamily
from pyro_hoim.generalized_root.regress import fit as _run
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import raises

from support.calls import noted
from support.root_models import count_table


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
    assert (best.key, best.names) == ((4, 4), ("x0", "x1", "x2", "x4"))
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
    assert (fitted.zero_columns, fitted.constant_columns) == (("none",), ("none",))
    assert fitted.intercepts[2] == -math.inf
    assert (fitted.nodes[2].status, fitted.structure) == ("fixed", plain.structure)
    torch.testing.assert_close(fitted.psi, plain.psi, rtol=0, atol=0)
    torch.testing.assert_close(fitted.log_pseudo_prob(with_zero), plain.log_pseudo_prob(x), rtol=0, atol=1e-12)
    with_zero[0, 2] = 1.0
    assert fitted.log_pseudo_prob(with_zero)[0] == -math.inf


def test_constant_and_saturated_columns():
    x = np.concatenate([count_table(8), np.full((120, 1), 3.0)], axis=1)
    fitted = fit_roots(x, order=3, l1=0.05)
    assert fitted.is_converged
    assert (fitted.constant_columns, fitted.zero_columns) == (("x6",), ())
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


def test_frames_are_read_by_the_names_of_their_columns():
    x = count_table()
    fitted = fit_roots(x, order=2)
    expected, frame = fitted.log_pseudo_prob(x), pd.DataFrame(x, columns=fitted.domain.names)
    turned = frame[frame.columns[::-1]]
    assert torch.equal(fitted.log_pseudo_prob(turned.assign(note="text")), expected)
    assert not torch.equal(fitted.log_pseudo_prob(turned.to_numpy()), expected)  # control: rows without names
    with raises("unknown-name"):
        fitted.log_pseudo_prob(frame.drop(columns="x2"))


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
    solved = noted(monkeypatch, _run, "solve_node", 4)
    with pytest.raises(KeyboardInterrupt):
        fit_roots(x, order=3, l1=0.01, run=RunOptions(file))
    assert file.exists()
    check_equal(fit_roots(x, order=3, l1=0.01, run=RunOptions(file, resume=True)), fit_roots(x, order=3, l1=0.01))
    del solved[3]  # which was interrupted
    assert sorted(node for _, node, *_ in solved[:6]) == list(range(6))  # the first three were not solved again


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


# Rows with counts


NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def counted_rows():
    """Sixty distinct rows of dependent counts, and how often each was seen, some never."""
    random = np.random.default_rng(3)
    x = random.poisson(1.5, (60, 3))
    x[:, 1] += x[:, 0] * (random.random(60) < 0.7)
    x[:, 2] += (x[:, 0] * x[:, 1] > 2) * random.integers(0, 3, 60)
    return x, random.integers(0, 6, 60)


def equal(found, expected):
    assert found.structure == expected.structure and found.num_rows == expected.num_rows
    assert torch.allclose(found.psi, expected.psi, rtol=0, atol=1e-9)
    assert torch.allclose(found.objective, expected.objective, rtol=0, atol=1e-9)


TIGHT = RootSettings(tolerance=1e-10)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("poisson", {"order": 3, "l1": 0.01}),
        ("poisson", {"order": 2, "l1": 0.02, "full": True, "refit": "all"}),
        ("poisson", {"order": 2, "l1": 0.02, "refit": "singles"}),
        ("gaussian", {"order": 2, "l1": 0.05}),
        ("exponential", {"order": 2, "l1": 0.05}),
    ],
)
def test_counts_are_rows_repeated(counted_rows, family, options):
    x, counts = counted_rows
    x = x - 2.5 if family == "gaussian" else x + 0.5 * (family == "exponential")
    options = {"settings": TIGHT, "names": NAMES, **options}
    equal(fit_roots(x, family, counts=counts, **options), fit_roots(np.repeat(x, counts, 0), family, **options))


def test_counts_along_a_path(counted_rows):
    x, counts = counted_rows
    some = fit_root_path(x, [0.1, 0.02], order=2, settings=TIGHT, counts=counts)
    expected = fit_root_path(np.repeat(x, counts, 0), [0.1, 0.02], order=2, settings=TIGHT)
    for one, other in zip(some, expected, strict=True):
        equal(one, other)


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # of both fits alike, near the bound
def test_counts_under_the_upper_bound(counted_rows):
    x, counts = counted_rows
    settings = RootSettings(objective="upper-bound", num_subdomains=8)
    some = fit_roots(x, order=2, l1=0.05, settings=settings, counts=counts)
    expected = fit_roots(np.repeat(x, counts, 0), order=2, l1=0.05, settings=settings)
    assert [node.status for node in some.nodes] == [node.status for node in expected.nodes]
    assert torch.allclose(some.objective, expected.objective, rtol=0, atol=1e-9)


def test_control_rows_without_their_counts_are_another_fit(counted_rows):
    x, counts = counted_rows
    one, other = (fit_roots(x, counts=held, order=2, l1=0.01) for held in (counts, None))
    assert not torch.allclose(one.objective, other.objective, atol=1e-3)


def test_rows_that_lie_elsewhere_are_counted(counted_rows, tmp_path):
    x = np.repeat(*counted_rows, 0)
    frame = pd.DataFrame(x, columns=NAMES)
    frame.iloc[:50].to_parquet(tmp_path / "0.parquet")
    frame.iloc[50:].astype(float).to_parquet(tmp_path / "1.parquet")
    expected = fit_roots(CountTable.from_matrix(x, NAMES), order=2, l1=0.01, settings=TIGHT)
    equal(fit_roots(open_rows(tmp_path), order=2, l1=0.01, settings=TIGHT), expected)
    real = fit_roots(x - 0.25, "gaussian", order=2, l1=0.05, settings=TIGHT, names=NAMES)
    equal(fit_roots(open_rows(frame - 0.25), "gaussian", order=2, l1=0.05, settings=TIGHT), real)
    with pytest.raises(InputTypeError, match="fit_roots alone"):
        expected.log_pseudo_prob(open_rows(frame))


@pytest.mark.parametrize("counts", [[1, 2], [[1] * 60] * 2, [1.5] * 60, [-1] * 60, ["x"] * 60])
def test_counts_that_are_none_are_refused(counted_rows, counts):
    with pytest.raises(InputError, match="counts"):
        fit_roots(counted_rows[0], counts=counts)


def test_no_row_and_no_number(counted_rows):
    with pytest.raises(InputError, match="at least one row"):
        fit_roots(counted_rows[0], counts=np.zeros(60))
    words = pd.DataFrame({"a": ["x", "y"] * 9, "b": [1, 2] * 9})
    with pytest.raises(InputError):
        fit_roots(open_rows(words))
    gaps = pd.DataFrame({"a": [1.0, None] * 9, "b": [1, 2] * 9})
    with pytest.raises(MissingDataError, match="drop_missing"):
        fit_roots(open_rows(gaps))
    with pytest.raises(InputError, match="a source has its own"):
        fit_roots(open_rows(gaps), counts=[1])
    with pytest.raises(InputError, match="repeat the rows"):
        choose_l1(counted_rows[0], [0.1], rule=L1Rule("ebic"), counts=counted_rows[1])


# Choice of the penalty, and stability of tuples


L1S = [0.4, 0.1, 0.03, 0.003]


def planted(seed=0, num_rows=400):
    """x1 follows x0; x2 and x3 are independent of everything."""
    rng = np.random.default_rng(seed)
    x = rng.poisson(1.0, (num_rows, 4)).astype(float)
    x[:, 1] = rng.poisson(0.3 + x[:, 0])
    return x


def test_held_out_score_is_the_pseudo_likelihood():
    x = planted()
    found = choose_l1(x[:300], L1S, order=2, validation=x[300:])
    path = fit_root_path(x[:300], L1S, order=2)
    expected = [float(fitted.log_pseudo_prob(x[300:]).mean()) for fitted in path]
    assert list(found.scores) == pytest.approx(expected, abs=1e-10)
    assert found.l1 == L1S[int(np.argmax(expected))]
    assert found.fit is found.path[int(np.argmax(expected))]
    assert found.l1 < 0.4  # the pair is worth having


def test_cross_validation_scores_every_row_once():
    """With the row order known, the parts can be repeated by hand."""
    x = planted(1, 90)
    found = choose_l1(x, L1S, order=2, rule=L1Rule(folds=3), generator=torch.Generator().manual_seed(3))
    order = torch.randperm(90, generator=torch.Generator().manual_seed(3)).numpy()
    values = np.zeros((len(L1S), 90))
    for part in np.array_split(order, 3):
        rest = np.setdiff1d(np.arange(90), part)
        for step, fitted in enumerate(fit_root_path(x[rest], L1S, order=2)):
            values[step, part] = fitted.log_pseudo_prob(x[part]).numpy()
    assert list(found.scores) == pytest.approx(values.mean(1).tolist(), abs=1e-8)
    assert list(found.std_errors) == pytest.approx((values.std(1, ddof=1) / math.sqrt(90)).tolist(), abs=1e-8)


def test_columns_that_are_zero_in_a_part_do_not_spoil_the_score():
    x = planted(2, 60)
    x = np.concatenate([x, np.eye(60)[:, :1]], axis=1)  # one single 1: zero in the other rows
    found = choose_l1(x, [0.4, 0.05], order=2, rule=L1Rule(folds=4))
    assert all(math.isfinite(score) for score in found.scores)


def test_impossible_validation_rows_do_not_spoil_the_score():
    x, later = planted(0, 300), planted(1, 100)
    expected = choose_l1(x, [5.0, 0.01], order=2, validation=later)
    found = choose_l1(
        np.hstack([x, np.zeros((300, 1))]), [5.0, 0.01], order=2, validation=np.hstack([later, np.ones((100, 1))])
    )
    assert found.l1 == expected.l1 == 0.01
    assert found.scores == pytest.approx(expected.scores, abs=1e-9)


def test_extended_bic_by_hand():
    x = planted(3)
    found = choose_l1(x, L1S, order=2, rule=L1Rule("ebic", gamma=1.0))
    for fitted, score in zip(found.path, found.scores, strict=True):
        own = fitted.log_pseudo_prob(x, symmetrized=False, by_node=True).sum(0)
        base = torch.lgamma(torch.from_numpy(x) + 1).sum(0)
        total = 0.0
        for node, value, constant in zip(fitted.nodes, own.tolist(), base.tolist(), strict=True):
            m = len(node.terms)
            total += -2 * (value + constant) + m * math.log(400) + 2 * math.log(math.comb(3, m))
        assert score == pytest.approx(total, abs=1e-6)
    assert ((2, 2), ("x0", "x1")) in found.fit.structure.names
    assert found.l1 not in (L1S[0], L1S[-1])


def test_planted_pair_is_stable_and_noise_is_not():
    x, rule = planted(4), L1Rule("stability")
    found = choose_l1(x, [0.25, 0.15], order=2, rule=rule)
    high, low = found.scores
    assert high == 0.0 <= low < 0.05
    assert [term.names for term in found.path[0].terms((2, 2))] == [("x0", "x1")]  # in every half, as nothing else
    assert len(fit_roots(x[:, 2:], order=2, l1=0.15).terms((2, 2))) == 0
    # Negative control: with hardly a penalty noise comes and goes.
    assert choose_l1(x[:, 2:], [0.02], order=2, rule=rule).scores[0] > 0.1


def test_stability_rule_takes_the_weakest_stable_penalty():
    x = planted(5)
    l1s = [0.25, 0.18, 0.05, 0.02]
    random = torch.Generator().manual_seed(1)
    found = choose_l1(x, l1s, order=2, rule=L1Rule("stability", limit=0.05), generator=random)
    stable = int((np.maximum.accumulate(found.scores) <= 0.05).sum())
    assert 0 < stable < 4
    assert found.l1 == l1s[stable - 1]
    assert ((2, 2), ("x0", "x1")) in found.fit.structure.names


def test_results_do_not_touch_global_random_state():
    state = torch.get_rng_state()
    first = choose_l1(planted(6, 50), [0.3, 0.1], order=2, rule=L1Rule(folds=2))
    second = choose_l1(planted(6, 50), [0.3, 0.1], order=2, rule=L1Rule(folds=2))
    assert torch.equal(state, torch.get_rng_state())
    assert first.scores == second.scores


def test_false_pairs_at_lambda_max_are_rare():
    """At twice the 0.999 quantile of a null gradient no pair enters: 6 pairs x 2 nodes of independent columns."""
    rng = np.random.default_rng(7)
    x = rng.poisson(1.0, (1000, 4)).astype(float)
    spread = np.sqrt(x).std() ** 2 / math.sqrt(1000)
    assert len(fit_roots(x, order=2, l1=2 * scipy.stats.norm.ppf(0.9995) * spread).terms((2, 2))) == 0
    assert len(fit_roots(x, order=2, l1=0.01 * spread).terms((2, 2))) == 6


@pytest.mark.parametrize(
    ("arguments", "code", "argument"),
    [
        ({"rule": "ebic"}, "wrong-type", "rule"),
        ({"rule": L1Rule(folds=31)}, "out-of-range", "data"),
        ({"l1s": 0.1}, "wrong-type", "l1s"),
        ({"l1s": []}, "empty", "l1s"),
        ({"run": RunOptions("file")}, "conflict", "checkpoint"),
        ({"generator": 3}, "wrong-type", "generator"),
        ({"order": 0}, "out-of-range", "order"),
    ],
)
def test_bad_arguments_of_choices(arguments, code, argument):
    with raises(code, argument):
        choose_l1(planted(0, 30), **({"l1s": [0.3, 0.1], "order": 2} | arguments))


@pytest.mark.parametrize(
    ("name", "value"), [("name", "aic"), ("gamma", 2.0), ("limit", 0.7), ("folds", 1), ("num_subsamples", 1)]
)
def test_bad_rules(name, value):
    with raises("unknown-choice" if name == "name" else "out-of-range", "rule" if name == "name" else name):
        L1Rule(**{name: value})
