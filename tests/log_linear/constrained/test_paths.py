"""Solution paths: every point is the solution there, the choice is by held-out rows, runs stop and continue."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problems import rows

from pyro_hoim.log_linear import Stopping
from pyro_hoim.log_linear.constrained import paths
from pyro_hoim.log_linear.constrained.frank_wolfe import fit_penalised, frank_wolfe
from pyro_hoim.log_linear.constrained.losses import PseudoLikelihoodLoss
from pyro_hoim.log_linear.constrained.norms import Ball, L1Norm, NormPenalty, NuclearNorm
from pyro_hoim.log_linear.constrained.paths import penalty_grid, solution_path
from pyro_hoim.runs.checkpoint import RunOptions
from pyro_hoim.testing import raises

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
    calls, solve = itertools.count(), paths.frank_wolfe

    def interrupted(*args: Any, **options: Any) -> Any:
        if next(calls) == 3:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)
        return solve(*args, **options)

    monkeypatch.setattr(paths, "frank_wolfe", interrupted)
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
