"""Frank-Wolfe and proximal steps against a generic convex solver, by hand, and by their certificates and rates."""

import copy
import itertools
import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from problems import by_cvxpy, rows

from pyro_hoim import Domain, HierarchicalLogLinear, InputError, InteractionHypergraph, Observations
from pyro_hoim.log_linear import (
    Ball,
    CategoricalLoss,
    GroupL2,
    GroupNorm,
    L1Norm,
    NormPenalty,
    NuclearNorm,
    PseudoLikelihoodLoss,
    Stopping,
    SymmetricInteractionTensor,
    fit,
    fit_penalised,
    frank_wolfe,
    load_model,
    parametrization,
    penalty_grid,
    solution_path,
)
from pyro_hoim.log_linear.constrained import frank_wolfe as module, paths
from pyro_hoim.log_linear.constrained.frank_wolfe import StepRule, best_steps, grid_step, nested_step
from pyro_hoim.log_linear.constrained.losses import Loss
from pyro_hoim.runs.checkpoint import RunOptions
from pyro_hoim.testing import raises

from support.calls import interrupt_signal, noted

NORMS = {"sparse": L1Norm(), "low_rank": NuclearNorm()}
CASES = [
    (5, 2, {"sparse": 2.0}),
    (4, 3, {"sparse": 3.0}),
    (5, 3, {"sparse": 1.0}),
    (5, 2, {"low_rank": 2.0}),
    (5, 2, {"sparse": 1.0, "low_rank": 1.0}),
]


def balls(radii: dict[str, float]) -> dict[str, Ball]:
    return {name: Ball(NORMS[name], radius) for name, radius in radii.items()}


def penalties(strengths: dict[str, float]) -> dict[str, NormPenalty]:
    return {name: NormPenalty(NORMS[name], strength) for name, strength in strengths.items()}


@pytest.mark.parametrize(("num", "order", "radii"), CASES)
def test_constrained_minima_are_those_of_a_convex_solver(num: int, order: int, radii: dict[str, float]) -> None:
    loss = PseudoLikelihoodLoss(rows(num), order)
    found, oracle = frank_wolfe(loss, balls(radii)), by_cvxpy(loss, radii)
    assert (found.status, found.loss) == ("converged", pytest.approx(oracle, rel=1e-6))
    assert found.loss - oracle <= found.gap + 1e-8
    assert all(term.contains(found.parts[name].numpy()) for name, term in balls(radii).items())
    other = frank_wolfe(loss, balls({name: 0.9 * radius for name, radius in radii.items()}))  # control
    assert other.loss > oracle * (1 + 1e-4)


@pytest.mark.parametrize(("num", "order", "radii"), CASES)
def test_penalised_minima_are_those_of_a_convex_solver(num: int, order: int, radii: dict[str, float]) -> None:
    loss, strengths = PseudoLikelihoodLoss(rows(num), order), dict.fromkeys(radii, 0.06)
    found, oracle = fit_penalised(loss, penalties(strengths)), by_cvxpy(loss, strengths, as_penalties=True)
    assert (found.status, found.objective) == ("converged", pytest.approx(oracle, rel=1e-6))
    assert -1e-8 <= found.objective - oracle <= found.gap + 1e-8


@pytest.mark.parametrize(("num", "order", "radii"), CASES)
def test_duality_maps_both_problems_into_one_another(num: int, order: int, radii: dict[str, float]) -> None:
    """(3.1) at (a, b) gives (lambda, mu), (3.2) there has the same solution, and its norms are (a, b) again."""
    loss, stopping = PseudoLikelihoodLoss(rows(num), order), Stopping(tolerance=1e-9)
    within = frank_wolfe(loss, balls(radii), stopping=stopping)
    held = fit_penalised(loss, within.dual_form(), stopping=stopping)  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(held.theta, within.theta, atol=2e-4)
    assert held.loss == pytest.approx(within.loss, rel=1e-6)
    if len(radii) == 1:  # of two parts only the sum is unique
        assert held.norms == pytest.approx(radii, rel=1e-3)
    again = frank_wolfe(loss, held.dual_form(), stopping=stopping)  # pyright: ignore[reportArgumentType]
    assert again.multipliers == pytest.approx(within.multipliers, rel=1e-3)
    control = fit_penalised(loss, penalties({k: 1.5 * v for k, v in within.multipliers.items()}), stopping=stopping)
    assert float((control.theta - within.theta).abs().max()) > 1e-2


def test_constraints_that_do_not_bind_have_no_multiplier() -> None:
    data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
    found = frank_wolfe(PseudoLikelihoodLoss(data, 2), Ball(L1Norm(), 10.0), stopping=Stopping(tolerance=1e-12))
    expected = torch.tensor([math.log(20 / 30), math.log(10 / 30), math.log(40 * 30 / 200)], dtype=torch.float64)
    np.testing.assert_allclose(found.theta, expected, atol=1e-6)  # saturated: the conditionals are the table's
    assert found.multipliers["sparse"] < 1e-6


def small(num: int = 5) -> PseudoLikelihoodLoss:
    return PseudoLikelihoodLoss(rows(num), 2)


BOTH = balls({"sparse": 1.0, "low_rank": 1.0})


def test_the_first_steps_are_algorithm_4_by_hand() -> None:
    loss = small()
    sparse = low_rank = np.zeros(15)
    for i in range(4):
        slope = loss.value_and_gradient(sparse + low_rank)[1]
        at = int(np.argmax(np.abs(slope)))
        vertex = np.zeros(15)
        vertex[at] = -np.sign(slope[at])
        matrix = np.zeros((5, 5))
        matrix[np.triu_indices(5, 1)] = slope[5:]
        matrix = matrix + matrix.T + np.diag(slope[:5])
        sigma, u = np.linalg.eigh(-matrix)
        r = int(np.argmax(np.abs(sigma)))
        square = np.sign(sigma[r]) * np.outer(u[:, r], u[:, r])
        zeta = 2 / (i + 2)
        sparse = (1 - zeta) * sparse + zeta * vertex
        low_rank = (1 - zeta) * low_rank + zeta * np.append(np.diag(square), 2 * square[np.triu_indices(5, 1)])
        iterates = module._plain(loss, list(BOTH.values()), np.zeros((2, 15)), "diminishing")
        parts = next(itertools.islice(iterates, i + 1, None)).parts
        np.testing.assert_allclose(parts, [sparse, low_rank], atol=1e-13)


def test_step_rules_agree_with_a_fine_grid_and_with_one_another() -> None:
    loss = small()
    parts = frank_wolfe(loss, BOTH, method="standard", stopping=Stopping(max_iterations=4)).parts
    at = torch.stack(list(parts.values())).numpy()
    slope = loss.value_and_gradient(at.sum(0))[1]
    moves = np.stack([ball.vertex(slope) for ball in BOTH.values()]) - at
    plane = loss.restrict(at.sum(0), moves)
    fine = np.linspace(0, 1, 2001)
    best = fine[np.argmin([plane.value(np.array([t, t])) for t in fine])]
    common = module.step_lengths("exact", plane, 2, 0)
    np.testing.assert_allclose(common, best, atol=6e-4)
    np.testing.assert_allclose(nested_step(plane, 2), common, atol=1e-2)
    assert abs(grid_step(plane, 2)[0] - common[0]) <= 0.05
    assert module.step_lengths("diminishing", plane, 2, 3).tolist() == [0.4, 0.4]
    two = module.step_lengths("two-variable", plane, 2, 0)
    coarse = min(plane.value(np.array(pair)) for pair in itertools.product(np.linspace(0, 1, 41), repeat=2))
    assert plane.value(two) <= min(coarse, plane.value(common)) + 1e-14
    one = loss.restrict(at.sum(0), moves[:1])
    assert best_steps(one, np.array([1e-3]))[0] in (0.0, 1e-3) or 0 < best_steps(one, np.array([1e-3]))[0] < 1e-3


def test_nested_search_finds_a_minimum_to_the_right_of_the_best_point() -> None:
    """Where the print continues to the left of the best grid point, it would miss this one."""
    loss = small()
    downhill = -np.eye(15)[:1] * np.sign(loss.value_and_gradient(np.zeros(15))[1][0])
    exact = best_steps(loss.restrict(np.zeros(15), downhill), np.full(1, 50.0))[0]
    scaled = loss.restrict(np.zeros(15), downhill * (exact / 0.6))  # the minimum is at 0.6, the best point at 0.5
    assert nested_step(scaled, 1)[0] == pytest.approx(0.6, abs=1e-3)


@pytest.mark.parametrize("step", get_args(StepRule))
def test_gap_and_error_of_the_standard_method_fall_as_one_over_i(step: Any) -> None:
    """The smallest gap so far falls with a slope of about -1 on logarithmic axes, on a grid until it stalls."""
    loss, limit = small(), 400
    found = frank_wolfe(loss, BOTH, method="standard", step=step, stopping=Stopping(1e-9, limit))
    best = frank_wolfe(loss, BOTH).loss
    objective, gap = found.trace.T
    index = np.arange(1, len(gap) + 1)
    late = index >= 10
    bound = 2 * (2 * 2) ** 2 * 5 * 2 / 4  # squared diameter times the largest curvature of a row
    assert (objective - best <= 2 * bound / (index + 1)).all()
    assert (gap >= objective - best - 1e-9).all()
    if found.status == "max_iterations":
        assert np.polyfit(np.log(index[late]), np.log(np.minimum.accumulate(gap)[late]), 1)[0] < -0.8
    assert found.status == ("stalled" if step == "grid" else "max_iterations")


@pytest.mark.parametrize(("step", "shortest"), [("grid", 1 / 20), ("nested", 4.0**-8)])
def test_searches_on_grids_stall_where_every_step_is_too_long(step: Any, shortest: float) -> None:
    """At the end no multiple of the shortest step towards the vertices lowers the loss, though they lead downhill."""
    stalled = 0
    for seed in range(12):
        loss, terms = random_problem(seed)
        run = frank_wolfe(loss, terms, method="standard", step=step, stopping=Stopping(1e-9, 400))
        if run.status != "stalled":
            continue
        stalled += 1
        last = np.stack([part.numpy() for part in run.parts.values()])
        value, slope = loss.value_and_gradient(last.sum(0))
        moves = np.stack([ball.vertex(slope) for ball in terms.values()]) - last
        plane = loss.restrict(last.sum(0), moves)
        assert plane.value(np.full(len(moves), shortest)) >= value
        assert plane.derivatives(np.zeros(len(moves))).gradient.sum() < 0
    assert stalled >= (6 if step == "grid" else 1)


def test_control_steps_that_do_not_shrink_do_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "step_lengths", lambda *_: np.full(2, 0.5))
    found = frank_wolfe(small(), BOTH, method="standard", stopping=Stopping(1e-9, 400))
    gap = np.minimum.accumulate(found.trace[:, 1])
    assert np.polyfit(np.log(np.arange(10, 401)), np.log(gap[9:]), 1)[0] > -0.5


@pytest.mark.parametrize("method", ["pairwise", "away"])
def test_steps_on_vertices_converge_linearly(method: Any) -> None:
    """The logarithm of the gap falls with the iterations; that of the standard method with their logarithm."""
    loss, ball = small(5), Ball(L1Norm(), 2.0)
    found = frank_wolfe(loss, ball, method=method, stopping=Stopping(1e-11, 1000))
    plain = frank_wolfe(loss, ball, method="standard", stopping=Stopping(1e-11, 1000))
    assert found.status == "converged" and plain.status == "max_iterations"
    gap = np.minimum.accumulate(found.trace[:, 1])
    half = len(gap) // 2
    rate = np.polyfit(np.arange(half), np.log(gap[half : 2 * half]), 1)[0]
    assert rate < -0.02
    assert found.loss == pytest.approx(frank_wolfe(loss, ball).loss, abs=1e-8)
    assert plain.trace[-1, 1] > 1e3 * found.gap


def random_problem(seed: int) -> tuple[PseudoLikelihoodLoss, dict[str, Ball]]:
    rng = np.random.default_rng(seed)
    num, order = int(rng.integers(3, 7)), int(rng.integers(2, 4))
    loss = PseudoLikelihoodLoss(rows(num, int(rng.integers(5, 80)), seed, float(rng.uniform(0.2, 3))), order)
    names = [["sparse"], ["low_rank"], ["sparse", "low_rank"]][int(rng.integers(3)) if order == 2 else 0]
    return loss, balls({name: float(np.exp(rng.uniform(-2, 2))) for name in names})


def excesses(seed: int, share: float = 1.0) -> float:
    """Largest excess of the true error over a share of the gap along a run on a random problem."""
    loss, terms = random_problem(seed)
    rule = ("diminishing", "exact", "two-variable")[seed % 3]
    run = frank_wolfe(loss, terms, method="standard", step=rule, stopping=Stopping(1e-9, 25))
    best = frank_wolfe(loss, terms, stopping=Stopping(tolerance=1e-10))
    assert best.gap <= 1e-6 * best.loss  # the least loss is known to this
    corrected = best.trace[:, 0] - share * best.trace[:, 1]
    return float(np.concatenate([run.trace[:, 0] - share * run.trace[:, 1], corrected]).max() - best.loss)


def test_the_gap_is_never_below_the_true_error() -> None:
    assert max(excesses(seed) for seed in range(20)) <= 1e-12


@pytest.mark.slow
def test_the_gap_is_never_below_the_true_error_on_a_thousand_problems() -> None:
    assert max(excesses(seed) for seed in range(1000)) <= 1e-12


def test_control_half_the_gap_is_below_the_true_error() -> None:
    assert max(excesses(seed, 0.5) for seed in range(10)) > 1e-3


@pytest.mark.parametrize("method", ["standard", "fully-corrective"])
def test_iterates_are_strongly_symmetric(method: Any) -> None:
    for order, terms in ((2, BOTH), (3, balls({"sparse": 2.0}))):
        loss = PseudoLikelihoodLoss(rows(5), order)
        found = frank_wolfe(loss, terms, method=method, stopping=Stopping(max_iterations=30))
        for part in [found.theta, *found.parts.values()]:
            dense = SymmetricInteractionTensor(part, 5, order).dense.numpy()
            for index in itertools.product(range(5), repeat=order):
                short = tuple(sorted(set(index)))
                same = (*short, *[short[-1]] * (order - len(short)))
                assert abs(dense[index] - dense[same]) <= 1e-12
        assert float(found.tensor.l1_norm()) == pytest.approx(float(found.theta.abs().sum()), rel=1e-12)


def test_groups_of_categorical_variables_are_those_of_the_penalised_fit() -> None:
    domain = Domain.from_cardinalities({"a": 3, "b": 2, "c": 3})
    table = np.random.default_rng(0).multinomial(150, np.random.default_rng(1).dirichlet(np.ones(18))).reshape(3, 2, 3)
    data = Observations.from_table(domain, table.astype(float))
    hypergraph = InteractionHypergraph.from_order(domain, 2)
    loss, strength = CategoricalLoss(hypergraph, data), 0.12
    assert isinstance(loss, Loss)
    stopping = Stopping(tolerance=1e-10)
    held = fit_penalised(loss, NormPenalty(GroupNorm(hypergraph), strength), stopping=stopping)
    oracle = fit(
        hypergraph, data, objective="pseudo-likelihood", penalty=GroupL2(150 * strength), stopping=Stopping(1e-9, 20000)
    )
    np.testing.assert_allclose(held.theta, oracle.theta, atol=1e-5)
    within = frank_wolfe(loss, held.dual_form(), stopping=stopping)  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(within.theta, oracle.theta, atol=1e-4)
    edges = {edge: float(within.theta[where].norm()) for edge, where in hypergraph.parameter_slices.items()}
    assert 0 < sum(norm == 0 for norm in edges.values()) < len(edges)
    plain = frank_wolfe(loss, held.dual_form(), method="standard", stopping=Stopping(1e-3, 300))  # pyright: ignore[reportArgumentType]
    assert 0 <= plain.loss - within.loss <= plain.gap <= 2e-3 * plain.loss
    point, moves = np.random.default_rng(2).standard_normal((2, loss.num_parameters)) / 3, np.eye(loss.num_parameters)
    plane = loss.restrict(point[0], moves[:3]).derivatives(point[1, :3])
    value, slope = loss.value_and_gradient(point[0] + point[1, :3] @ moves[:3])
    assert plane.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(plane.gradient, slope[:3], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(
        plane.hessian, loss.reduced_hessian(point[0] + point[1, :3] @ moves[:3], moves[:, :3]), atol=1e-13
    )


def test_a_result_gives_model_law_tensor_table_and_file(tmp_path: Any) -> None:
    loss = small()
    found = frank_wolfe(loss, BOTH)
    law = found.law()
    assert isinstance(law, HierarchicalLogLinear)
    states = torch.tensor(list(itertools.product((0, 1), repeat=5)))
    energies = [view.energy(states) - view.energy(states[:1]) for view in (found.model, found.tensor)]
    np.testing.assert_allclose(*energies, atol=1e-12)
    assert float(law.log_prob(states).exp().sum()) == pytest.approx(1)
    frame = found.to_frame()
    assert frame.loc["sparse", "norm"] == pytest.approx(1)
    found.save(tmp_path / "model.safetensors")
    kept = load_model(tmp_path / "model.safetensors")
    assert kept.coding == "corner" and torch.equal(kept.theta, found.theta)
    assert torch.equal(kept.tensors["part_sparse"], found.parts["sparse"])
    assert kept.info["gap"] == found.gap
    free = parametrization(loss.hypergraph).convert(found.theta, "corner", "free")
    assert free.shape == found.theta.shape


def test_a_start_shortens_the_run_and_is_moved_into_the_balls() -> None:
    loss = small()
    wide = frank_wolfe(loss, balls({"sparse": 1.2, "low_rank": 1.2}))
    warm = frank_wolfe(loss, BOTH, start=wide)
    assert warm.loss == pytest.approx(frank_wolfe(loss, BOTH).loss, rel=1e-6)
    assert warm.trace[0, 0] < loss.value(np.zeros(15))
    assert frank_wolfe(loss, BOTH, start=warm).trace.shape[0] == 1
    with raises("conflict", "start"):
        frank_wolfe(loss, BOTH, start=frank_wolfe(loss, balls({"sparse": 1.0})))


def interrupted(loss: PseudoLikelihoodLoss, calls: int) -> PseudoLikelihoodLoss:
    """The loss, interrupted after some evaluations."""
    left, found = iter(range(calls)), copy.copy(loss)

    def evaluated(theta: np.ndarray) -> tuple[float, np.ndarray]:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return loss.value_and_gradient(theta)

    found.value_and_gradient = evaluated
    return found


@pytest.mark.parametrize("method", ["standard", "fully-corrective"])
def test_an_interrupted_run_gives_the_best_point_so_far(method: Any) -> None:
    loss = small()
    found = frank_wolfe(interrupted(loss, 6), BOTH, method=method)
    assert found.status == "interrupted"
    assert found.loss <= found.trace[:, 0].min()
    assert found.loss - frank_wolfe(loss, BOTH).loss <= found.gap
    with pytest.raises(KeyboardInterrupt):
        frank_wolfe(interrupted(loss, 0), BOTH)


def test_arguments_without_meaning_are_refused_by_name() -> None:
    loss = small()
    with raises("conflict", "method"):
        frank_wolfe(loss, BOTH, method="pairwise")
    with raises("unknown-choice", "method"):
        frank_wolfe(loss, BOTH, method="fast")  # pyright: ignore[reportArgumentType]
    with raises("unknown-choice", "step"):
        frank_wolfe(loss, BOTH, step="long")  # pyright: ignore[reportArgumentType]
    with raises("empty", "balls"):
        frank_wolfe(loss, {})
    with raises("wrong-type", "balls"):
        frank_wolfe(loss, 2.0)  # pyright: ignore[reportArgumentType]
    with raises("wrong-type", "balls['sparse']"):
        frank_wolfe(loss, penalties({"sparse": 1.0}))  # pyright: ignore[reportArgumentType]
    with raises("wrong-type", "loss"):
        frank_wolfe(None, BOTH)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="the nuclear norm is that of a symmetric matrix"):
        frank_wolfe(PseudoLikelihoodLoss(rows(4), 3), balls({"low_rank": 1.0}))
    with raises("wrong-type", "stopping"):
        frank_wolfe(loss, BOTH, stopping=1e-3)  # pyright: ignore[reportArgumentType]
    with raises("conflict", "dual_form"):
        fit_penalised(loss, penalties({"sparse": 100.0})).dual_form()
    free = fit_penalised(loss, penalties({"sparse": 1e-3})).norms["sparse"]
    with raises("conflict", "dual_form"):  # the minimum is within the ball
        frank_wolfe(loss, balls({"sparse": 10 * free})).dual_form()
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    with raises("other-domain", "data"):
        CategoricalLoss(InteractionHypergraph.saturated(domain), rows(3))


# Paths


TRAIN, TEST = (PseudoLikelihoodLoss(rows(4, 80).rows(part), 2) for part in (torch.arange(50), torch.arange(50, 80)))
GRID = {
    "sparse": [Ball(L1Norm(), a) for a in (2.0, 0.5)],
    "low_rank": [Ball(NuclearNorm(), b) for b in (0.3, 1.0, 3.0)],
}


def test_every_point_is_the_solution_there_and_the_best_has_the_least_held_out_loss() -> None:
    path = solution_path(TRAIN, TEST, GRID)
    assert path.status == "complete" and len(path.results) == 6
    sizes = [tuple(term.radius for term in result.terms.values()) for result in path.results]  # pyright: ignore[reportAttributeAccessIssue]
    assert sizes == [(0.5, 0.3), (0.5, 1.0), (0.5, 3.0), (2.0, 3.0), (2.0, 1.0), (2.0, 0.3)]
    for result, held_out in zip(path.results, path.held_out, strict=True):
        cold = frank_wolfe(TRAIN, result.terms)  # pyright: ignore[reportArgumentType]
        assert result.loss == pytest.approx(cold.loss, rel=3e-7)
        assert held_out == pytest.approx(TEST.value(result.theta.numpy()))
    frame = path.to_frame()
    assert frame["is_best"].sum() == 1
    assert frame.loc[frame["held_out"].idxmin(), "is_best"]
    assert TEST.value(path.best.theta.numpy()) == min(path.held_out)


def test_penalties_go_from_the_one_that_makes_theta_zero() -> None:
    grid = penalty_grid(TRAIN, L1Norm(), 6, 0.02)
    path = solution_path(TRAIN, TEST, {"sparse": grid[::-1]})
    assert float(path.results[0].theta.abs().max()) < 1e-6
    assert fit_penalised(TRAIN, NormPenalty(L1Norm(), 0.98 * grid[0].strength)).norms["sparse"] > 0  # control
    frame = path.to_frame()
    assert (np.diff(frame["sparse_strength"]) < 0).all() and (np.diff(frame["sparse_norm"]) > 0).all()
    assert grid[-1].strength == pytest.approx(0.02 * grid[0].strength)


def test_pictures_show_losses_and_the_best_point() -> None:
    line = solution_path(TRAIN, TEST, {"sparse": GRID["sparse"]}).figure().axes[0]
    assert [text.get_text() for text in line.get_legend().get_texts()] == ["training", "held out", "best"]
    map_ = solution_path(TRAIN, TEST, GRID)
    axes = map_.figure().axes[0]
    (ring,) = [drawn for drawn in axes.lines if drawn.get_label() == "best"]
    assert ring.get_xdata()[0] == map_.best.terms["sparse"].radius  # pyright: ignore[reportAttributeAccessIssue, reportIndexIssue]
    three = {name: [Ball(L1Norm(), 1.0)] for name in "abc"}
    with raises("out-of-range", "path"):
        solution_path(TRAIN, TEST, three, stopping=Stopping(max_iterations=1)).figure()


def test_an_interrupted_path_returns_what_it_has_and_continues_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = solution_path(TRAIN, TEST, GRID)
    file = tmp_path / "path.safetensors"
    noted(monkeypatch, paths, "frank_wolfe", 4, interrupt_signal)
    part = solution_path(TRAIN, TEST, GRID, run=RunOptions(file))
    assert part.status == "interrupted" and len(part.results) == 4
    rest = solution_path(TRAIN, TEST, GRID, run=RunOptions(file, resume=True))
    assert rest.status == "complete" and rest.held_out == whole.held_out
    for one, other in zip(rest.results, whole.results, strict=True):
        np.testing.assert_array_equal(one.theta, other.theta)
        np.testing.assert_array_equal(one.trace, other.trace)
        assert (one.gap, one.status, one.multipliers) == (other.gap, other.status, other.multipliers)
    with raises("other-run", "checkpoint"):
        solution_path(TRAIN, TRAIN, GRID, run=RunOptions(file, resume=True))


def test_grids_and_rows_without_meaning_are_refused() -> None:
    with raises("other-domain", "held_out"):
        solution_path(TRAIN, PseudoLikelihoodLoss(rows(4), 3), GRID)
    with raises("empty", "grid"):
        solution_path(TRAIN, TEST, {"sparse": []})
    with raises("wrong-type", "grid['b']"):
        solution_path(TRAIN, TEST, {"a": GRID["sparse"], "b": [NormPenalty(L1Norm(), 1.0)]})  # pyright: ignore[reportArgumentType]
    with raises("wrong-type", "grid"):
        solution_path(TRAIN, TEST, [1.0])  # pyright: ignore[reportArgumentType]
    with raises("out-of-range", "ratio"):
        penalty_grid(TRAIN, L1Norm(), 5, 2.0)
