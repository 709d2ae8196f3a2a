"""Splitting for interactions of any order against CVXPY, its certificate, and what a run does at its ends."""

import itertools
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.log_linear import (
    Ball,
    GroupNorm,
    InteractionScreeningLoss,
    L1Norm,
    NormPenalty,
    NuclearNorm,
    OverlappedNorm,
    PseudoLikelihoodLoss,
    Stopping,
    SymmetricInteractionTensor,
    douglas_rachford,
    fit_penalised,
    frank_wolfe,
    tensor_layout,
)
from pyro_hoim.testing import raises

Kind = type[PseudoLikelihoodLoss] | type[InteractionScreeningLoss]


def chain(num: int, count: int, seed: int = 0) -> Observations:
    """Rows in which every variable copies the one before it half of the time."""
    rng = np.random.default_rng(seed)
    codes = (rng.random((count, num)) < 0.5).astype(int)
    for j in range(1, num):
        codes[:, j] = np.where(rng.random(count) < 0.5, codes[:, j - 1], codes[:, j])
    return Observations.from_tensor(
        torch.from_numpy(codes), Domain.from_cardinalities({f"x{i}": 2 for i in range(num)})
    )


def penalties(loss: Any, low: float, sparse: float | None) -> dict[str, NormPenalty]:
    terms = {"low_rank": NormPenalty(OverlappedNorm(loss.hypergraph), low)}
    return terms if sparse is None else terms | {"sparse": NormPenalty(L1Norm(), sparse)}


def by_cvxpy(
    data: Observations,
    order: int,
    low: float,
    sparse: float | None,
    *,
    kind: Kind = PseudoLikelihoodLoss,
    ball: bool = False,
) -> float:
    """The minimum by an interior-point method; equal columns of the dense unfolding are put together by sorting."""
    num, distinct = len(data.domain), data.unique()
    states, weights = distinct.codes.numpy().astype(float), distinct.counts.numpy() / data.total_count
    edges = [edge for k in range(1, order + 1) for edge in itertools.combinations(range(num), k)]
    layout = tensor_layout(num, order)
    columns, counts = np.unique(layout.index.reshape(num, -1), axis=1, return_counts=True)
    unfold = np.zeros((columns.size, len(edges)))
    unfold[np.arange(columns.size), columns.ravel()] = (np.sqrt(counts) / layout.multiplicity[columns]).ravel()
    alone, joint = cp.Variable(len(edges)), cp.Variable(len(edges))
    theta = joint if sparse is None else alone + joint
    value = 0
    for i in range(num):
        terms = [states[:, [j for j in edge if j != i]].prod(1) * (i in edge) for edge in edges]
        against = cp.multiply(1 - 2 * states[:, i], np.stack(terms, 1) @ theta)
        value += weights @ (cp.logistic(against) if kind is PseudoLikelihoodLoss else cp.exp(against / 2))
    nuclear = order * cp.normNuc(cp.reshape(unfold @ joint, columns.shape, order="C"))
    limits = []
    if ball:
        limits = [nuclear <= low] + ([] if sparse is None else [cp.norm1(alone) <= sparse])
    else:
        value += low * nuclear + (0 if sparse is None else sparse * cp.norm1(alone))
    problem = cp.Problem(cp.Minimize(value), limits)
    found = problem.solve(solver="CLARABEL", tol_gap_rel=1e-7, tol_gap_abs=1e-7, tol_feas=1e-7)
    assert problem.status == "optimal"
    return float(found)


CASES = [(5, 3, 0.013, None), (5, 3, 0.013, 0.02), (4, 4, 0.01, 0.02), (5, 2, 0.02, 0.02)]
LARGE = [
    pytest.param(8, 3, 0.013, None, marks=pytest.mark.slow),
    pytest.param(8, 3, 0.013, 0.02, marks=pytest.mark.slow),
    pytest.param(7, 3, 0.004, 0.01, marks=pytest.mark.slow),
    pytest.param(6, 4, 0.01, 0.02, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("num", "order", "low", "sparse"), CASES + LARGE)
def test_objectives_are_those_of_a_generic_convex_solver(
    num: int, order: int, low: float, sparse: float | None
) -> None:
    data = chain(num, 60)
    loss = PseudoLikelihoodLoss(data, order)
    found = douglas_rachford(loss, penalties(loss, low, sparse), stopping=Stopping(tolerance=1e-8))
    assert found.status == "converged"
    oracle = by_cvxpy(data, order, low, sparse)
    assert found.objective == pytest.approx(oracle, rel=1e-7)
    assert found.gap >= found.objective - oracle - 1e-9  # the certificate holds
    rough = douglas_rachford(loss, penalties(loss, low, sparse), stopping=Stopping(max_iterations=3))
    assert rough.status == "max_iterations"
    assert rough.objective > oracle * (1 + 1e-5)  # control: a run that was cut off
    assert rough.gap >= rough.objective - oracle


@pytest.mark.parametrize(("kind", "ball"), [(InteractionScreeningLoss, False), (PseudoLikelihoodLoss, True)])
def test_screening_and_balls_agree_with_a_generic_convex_solver(kind: Kind, ball: bool) -> None:
    data, low, sparse = chain(4, 80, 1), (4.0, 1.0)[not ball] if ball else 0.02, 1.5 if ball else 0.03
    loss = kind(data, 3)
    terms: Any = penalties(loss, low, sparse)
    if ball:
        terms = {name: Ball(term.norm, term.strength) for name, term in terms.items()}
    found = douglas_rachford(loss, terms, stopping=Stopping(tolerance=1e-8))
    oracle = by_cvxpy(data, 3, low, sparse, kind=kind, ball=ball)
    assert found.objective == pytest.approx(oracle, rel=1e-7)
    assert found.gap >= found.objective - oracle - 1e-9
    assert not ball or all(term.contains(found.parts[name].numpy()) for name, term in terms.items())


@pytest.mark.parametrize("sparse", [None, 0.025])
def test_order_two_has_the_solutions_of_frank_wolfe_and_of_proximal_steps(sparse: float | None) -> None:
    loss = PseudoLikelihoodLoss(chain(7, 150), 2)
    found = douglas_rachford(loss, penalties(loss, 0.02, sparse), stopping=Stopping(tolerance=1e-8))
    half = {name: NormPenalty(term.norm, term.strength) for name, term in found.terms.items()}
    half["low_rank"] = NormPenalty(NuclearNorm(), 0.04)  # of one unfolding; the overlapped norm is of two
    other = fit_penalised(loss, half, stopping=Stopping(tolerance=1e-8))
    assert found.objective == pytest.approx(other.objective, rel=3e-8)
    radii = {name: Ball(term.norm, other.norms[name]) for name, term in half.items()}
    walked = frank_wolfe(loss, radii, stopping=Stopping(tolerance=1e-8))
    split = douglas_rachford(loss, found.dual_form(), stopping=Stopping(tolerance=1e-8))
    assert split.loss == pytest.approx(walked.loss, rel=1e-7)
    assert (
        found.objective > 1.001 * fit_penalised(loss, half | {"low_rank": NormPenalty(NuclearNorm(), 0.02)}).objective
    )


@pytest.mark.parametrize("sparse", [None, 0.03])
def test_parts_are_strongly_symmetric_and_as_low_in_rank_as_their_copy(sparse: float | None) -> None:
    loss = PseudoLikelihoodLoss(chain(6, 150), 3)
    found = douglas_rachford(loss, penalties(loss, 0.01, sparse), stopping=Stopping(tolerance=1e-9))
    for part in found.parts.values():
        dense = SymmetricInteractionTensor(part, 6, 3).dense
        for axes in itertools.permutations(range(3)):
            torch.testing.assert_close(dense.permute(axes), dense, rtol=0, atol=1e-12)
        torch.testing.assert_close(dense[0, 0, 1], dense[0, 1, 1], rtol=0, atol=1e-12)
    values = torch.linalg.svdvals(SymmetricInteractionTensor(found.parts["low_rank"], 6, 3).unfolding())
    assert 0 < found.rank <= 6
    assert float(values[found.rank :].sum()) < 1e-5 * float(values.sum())


def test_balls_of_a_solution_with_penalties_have_the_same_solution() -> None:
    loss = PseudoLikelihoodLoss(chain(6, 200), 3)
    first = douglas_rachford(loss, penalties(loss, 0.01, 0.015), stopping=Stopping(tolerance=1e-9))
    balls = first.dual_form()
    second = douglas_rachford(loss, balls, stopping=Stopping(tolerance=1e-9))
    assert second.loss == pytest.approx(first.loss, rel=1e-8)
    torch.testing.assert_close(second.theta, first.theta, rtol=0, atol=1e-3)
    assert second.multipliers["low_rank"] == pytest.approx(0.01, rel=1e-3)
    assert second.multipliers["sparse"] == pytest.approx(0.015, rel=1e-3)


def random_problem(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    num = int(rng.integers(2, 6))
    order = int(rng.integers(2, num + 1))
    kind = (PseudoLikelihoodLoss, InteractionScreeningLoss)[int(rng.integers(2))]
    loss = kind(chain(num, int(rng.integers(20, 100)), seed), order)
    terms: Any = penalties(
        loss, 10 ** rng.uniform(-2, -0.5) / order, 10 ** rng.uniform(-2, -0.5) if rng.random() < 0.5 else None
    )
    if rng.random() < 0.5:
        terms = {name: Ball(term.norm, 10 ** rng.uniform(-1, 1)) for name, term in terms.items()}
    return loss, terms


def check_gaps(seeds: range) -> float:
    """The smallest excess of gaps over errors; every iterate of a run is judged by a tight one."""
    least = np.inf
    for seed in seeds:
        loss, terms = random_problem(seed)
        tight = douglas_rachford(loss, terms, stopping=Stopping(tolerance=1e-9))
        assert tight.gap <= 2e-7 * tight.objective, seed
        for count in (1, 2, 5, 12):
            rough = douglas_rachford(loss, terms, stopping=Stopping(tolerance=1e-12, max_iterations=count))
            least = min(least, rough.gap - (rough.objective - tight.objective))
    return least


def test_gaps_are_never_below_the_true_error() -> None:
    assert check_gaps(range(20)) >= -1e-12


@pytest.mark.slow
def test_gaps_are_never_below_the_true_error_of_a_thousand_problems() -> None:
    assert check_gaps(range(20, 1040)) >= -1e-12


def test_balls_that_do_not_bind_leave_the_estimate() -> None:
    loss = PseudoLikelihoodLoss(chain(3, 200), 2)
    free = douglas_rachford(loss, Ball(OverlappedNorm(loss.hypergraph), 1e3), stopping=Stopping(tolerance=1e-7))
    assert free.status == "converged"
    assert np.abs(loss.value_and_gradient(free.theta.numpy())[1]).max() < 1e-8


def test_strong_penalties_leave_nothing_and_weak_ones_nearly_the_estimate() -> None:
    loss = PseudoLikelihoodLoss(chain(4, 200), 3)
    found = douglas_rachford(loss, penalties(loss, 5.0, 5.0))
    assert (found.status, found.rank) == ("converged", 0)
    assert not found.theta.any()
    assert found.objective == pytest.approx(4 * np.log(2), rel=1e-12)
    weak = douglas_rachford(loss, penalties(loss, 1e-5, None), stopping=Stopping(tolerance=1e-8))
    assert np.abs(loss.value_and_gradient(weak.theta.numpy())[1]).max() < 1e-3


def test_a_run_continues_from_a_neighbour_and_ends_at_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loss = PseudoLikelihoodLoss(chain(6, 200), 3)
    first = douglas_rachford(loss, penalties(loss, 0.02, 0.02), progress=True)
    assert "splitting" in capsys.readouterr().err
    cold = douglas_rachford(loss, penalties(loss, 0.019, 0.02))
    warm = douglas_rachford(loss, penalties(loss, 0.019, 0.02), start=first)
    assert warm.objective == pytest.approx(cold.objective, rel=2e-7)
    assert len(warm.trace) < len(cold.trace)
    calls, evaluate = [0], loss.value_and_gradient

    def interrupted(theta: np.ndarray) -> tuple[float, np.ndarray]:
        calls[0] += 1
        if calls[0] > 200:
            raise KeyboardInterrupt
        return evaluate(theta)

    monkeypatch.setattr(loss, "value_and_gradient", interrupted)
    cut = douglas_rachford(loss, penalties(loss, 0.02, 0.02))
    assert cut.status == "interrupted"
    assert first.objective < cut.objective < 6 * np.log(2)
    assert cut.gap >= cut.objective - first.objective


def test_a_tolerance_below_rounding_ends() -> None:
    loss = PseudoLikelihoodLoss(chain(3, 50), 3)
    found = douglas_rachford(
        loss, penalties(loss, 0.05, None), stopping=Stopping(tolerance=1e-300, max_iterations=2000)
    )
    assert found.status in ("stalled", "converged")
    assert found.gap < 1e-9


def test_bad_arguments_are_refused() -> None:
    loss = PseudoLikelihoodLoss(chain(4, 50), 3)
    low, sparse = NormPenalty(OverlappedNorm(loss.hypergraph), 0.1), NormPenalty(L1Norm(), 0.1)
    with raises("wrong-type", "loss"):
        douglas_rachford(None, low)  # type: ignore[arg-type]
    with raises("wrong-type"):
        douglas_rachford(loss, {"low_rank": Ball(low.norm, 1.0), "sparse": sparse})  # type: ignore[dict-item]
    group = NormPenalty(GroupNorm(loss.hypergraph), 0.1)
    for terms in (sparse, {"a": low, "b": low}, {"a": low, "b": sparse, "c": sparse}, {"a": low, "b": group}):
        with raises("conflict", "terms"):
            douglas_rachford(loss, terms)
    other = PseudoLikelihoodLoss(chain(5, 50), 3)
    with raises("other-domain", "norm"):
        douglas_rachford(other, low)
    found = douglas_rachford(loss, low, stopping=Stopping(max_iterations=2))
    with raises("conflict", "start"):
        douglas_rachford(loss, {"low_rank": low, "sparse": sparse}, start=found)
    with raises("wrong-type", "start"):
        douglas_rachford(loss, low, start=3)  # type: ignore[arg-type]


# Recovery


NUM = 8
GRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities({f"x{i}": 2 for i in range(NUM)}), 3)
CELLS = np.array(list(itertools.product((0, 1), repeat=NUM)))
MONOMIALS = np.stack([CELLS[:, edge].prod(1) for edge in GRAPH.edge_indices], 1).astype(float)
IS_TRIPLE = np.array([len(edge) == 3 for edge in GRAPH.edge_indices])


def draw(theta: np.ndarray, number: int, rng: np.random.Generator) -> Observations:
    weights = np.exp(MONOMIALS @ theta)
    return Observations.from_table(GRAPH.domain, rng.multinomial(number, weights / weights.sum()).reshape((2,) * NUM))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PseudoLikelihoodLoss, InteractionScreeningLoss])
def test_planted_triples_are_found_with_many_rows_and_none_of_independent_columns(kind: type) -> None:
    hits, errors, alone = {300: [], 20_000: []}, {300: [], 20_000: []}, []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        theta = np.where([len(edge) == 1 for edge in GRAPH.edge_indices], -0.7, 0.0)
        planted = rng.choice(np.flatnonzero(IS_TRIPLE), 4, replace=False)
        main = theta.copy()
        theta[planted] = rng.choice([-1.5, 1.5], 4)
        for number in hits:
            penalty = NormPenalty(L1Norm(), 0.6 * np.sqrt(np.log(len(theta)) / number))
            found = fit_penalised(kind(draw(theta, number, rng), 3), penalty).theta.numpy()
            top = np.argsort(-np.abs(found * IS_TRIPLE))[:4]
            hits[number].append(np.isin(top, planted).mean())
            errors[number].append(np.linalg.norm(found - theta))
        none = fit_penalised(kind(draw(main, 20_000, rng), 3), penalty).theta.numpy()  # control: the last strength
        alone.append(np.abs(none * IS_TRIPLE).max())
    assert min(hits[20_000]) == 1.0
    assert np.mean(hits[300]) < 1.0
    assert np.mean(errors[20_000]) < 0.5 * np.mean(errors[300])
    assert max(alone) < 0.3


@pytest.mark.slow
def test_a_planted_low_rank_tensor_is_nearer_by_low_rank_than_by_few_entries() -> None:
    norm = OverlappedNorm(GRAPH)
    counts = norm.unfolding.multiplicity
    inside = np.array([[set(edge) <= block for edge in GRAPH.edge_indices] for block in ({0, 1, 2, 3}, {4, 5, 6, 7})])
    theta = counts * (np.array([0.08, -0.08]) @ inside)
    errors = {(name, number): [] for name in ("low", "l1") for number in (500, 20_000)}
    for seed, (name, number) in itertools.product(range(5), errors):
        loss = PseudoLikelihoodLoss(draw(theta, number, np.random.default_rng([seed, number])), 3)
        scale = np.sqrt(np.log(NUM) / number)
        if name == "low":
            found = douglas_rachford(loss, NormPenalty(norm, 0.7 * scale))
        else:
            found = fit_penalised(loss, NormPenalty(L1Norm(), 0.25 * scale))
        errors[name, number].append(np.sqrt(((found.theta.numpy() - theta) ** 2 / counts).sum()))
    mean = {key: np.mean(value) for key, value in errors.items()}
    assert mean["low", 20_000] < 0.7 * mean["low", 500]
    for number in (500, 20_000):
        assert mean["low", number] < mean["l1", number]
