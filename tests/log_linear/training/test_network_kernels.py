"""Scores of parents in a directed network, against rows left out one by one."""

import math

import numpy as np
import pytest

from pyro_hoim.log_linear.training.sampled._kernels import parent_scores

CARDS = (2, 3, 4, 1)


def left_out(codes, counts, child, parents, fitted, prior):
    """Sum over observations of the log-probability of the child given the others with equal parents, and a prior."""
    total = 0.0
    observations = [row for row, count in zip(codes.tolist(), counts.tolist(), strict=True) for _ in range(int(count))]
    for n, row in enumerate(observations):
        state = [row[j] for j in parents]
        alike = [o for m, o in enumerate(observations) if m != n and [o[j] for j in parents] == state]
        equal = sum(o[child] == row[child] for o in alike)
        cell = 0
        for j in parents[:-1]:
            cell = cell * CARDS[j] + row[j]
        total += math.log((equal + prior * fitted[cell, row[child]]) / (len(alike) + prior))
    return total


def scores(codes, counts, child, parents, free, fitted, prior, max_cells=4096):
    cells = np.zeros(len(codes), dtype=np.int64)
    for j in parents:
        cells = cells * CARDS[j] + codes[:, j]
    columns = np.ascontiguousarray(codes.T, dtype=np.int32)
    return parent_scores(columns, np.array(CARDS), counts, child, cells, fitted, prior, np.array(free), max_cells)


@pytest.mark.parametrize("parents", [(), (1,)])
def test_scores_are_those_of_rows_left_out(parents):
    random = np.random.default_rng(len(parents))
    codes = random.integers(0, CARDS, (30, 4))
    counts = random.integers(1, 4, 30).astype(np.float64)
    fitted = random.dirichlet([2.0, 2.0], math.prod(CARDS[j] for j in parents))
    found = scores(codes, counts, 0, parents, [2, 3], fitted, 1.5)
    assert found[0] == pytest.approx(left_out(codes, counts, 0, (*parents, 2), fitted, 1.5), abs=1e-10)
    assert found[1] == -math.inf  # one level says nothing
    other = left_out(codes, counts, 0, (*parents, 2), fitted, 3.0)  # control
    assert abs(found[0] - other) > 0.1


def test_families_that_are_too_large_are_left_out():
    codes = np.random.default_rng(0).integers(0, CARDS, (30, 4))
    fitted = np.full((1, 2), 0.5)
    found = scores(codes, np.ones(30), 0, (), [1, 2], fitted, 1.0, max_cells=6)
    assert found[0] > -math.inf and found[1] == -math.inf
    assert len(scores(codes, np.ones(30), 0, (), np.zeros(0, dtype=np.int64), fitted, 1.0)) == 0
