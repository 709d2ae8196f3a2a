"""Every family fits rows in memory and says the log-likelihood of every row."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_hoim import CountTable, InteractionHypergraph, LogLinearEnergy, Observations, fit
from pyro_hoim.errors import InputError, UnknownNameError
from pyro_hoim.families import families
from pyro_hoim.log_linear.scores import row_log_pseudo_prob

ROWS = np.array([(a, b, a * (1 - b)) for a, b in itertools.product((0, 1), repeat=2) for _ in range(3 + 4 * a + 2 * b)])
FRAME = pd.DataFrame(np.vstack([ROWS, [[0, 0, 1], [0, 1, 1], [1, 1, 1], [1, 0, 0]]]), columns=["a", "b", "c"])
SETTINGS = {
    "log-linear": {"order": 2},
    "dependency-network": {"alpha": 1.0},
    "grm": {"family": "truncated-poisson", "maximum": 1, "order": 2},
    "rbm": {"hidden": 2, "method": "exact", "iterations": 500, "decay": 0.01},
}


def _rows(family, frame):
    return Observations.from_pandas(frame) if family.data_type == "labels" else CountTable.from_pandas(frame)


def _all_rows(family):
    return _rows(family, pd.DataFrame(itertools.product((0, 1), repeat=3), columns=list("abc")))


@pytest.mark.parametrize("family", families(), ids=lambda family: family.short)
def test_rows_in_memory_are_fitted_and_their_probabilities_sum_to_one(family):
    rows = FRAME if family.data_type == "numbers" else _rows(family, FRAME)
    stored = family.stored(family.estimate(rows, seed=0, **SETTINGS[family.short]))
    assert stored is not None and stored.domain.names == ("a", "b", "c")
    found = family.row_log_likelihood(stored, _all_rows(family), pseudo=False)
    assert (found.kind, found.is_exact) == ("likelihood", True)
    assert float(found.values.exp().sum()) == pytest.approx(1, abs=1e-9)
    assert len(set(found.values.numpy().round(6))) > 2  # control: no uniform distribution


def test_missing_cells_are_summed_over():
    (family,) = (family for family in families() if family.short == "dependency-network")
    stored = family.stored(family.estimate(_rows(family, FRAME), seed=0))
    found = family.row_log_likelihood(stored, _all_rows(family), pseudo=False).values
    part = _rows(family, pd.DataFrame({"a": [1, 0], "b": [None, 1.0], "c": [0, 1]})).codes
    part = Observations.from_tensor(part, stored.domain)
    both = family.row_log_likelihood(stored, part, pseudo=False).values
    assert float(both[0].exp()) == pytest.approx(float(found[[4, 6]].exp().sum()), abs=1e-12)


def test_the_pseudo_likelihood_of_a_row_with_a_gap_sums_over_it():
    graph = InteractionHypergraph.saturated(_rows(families()[0], FRAME).domain)
    model = LogLinearEnergy(graph, fit(graph, Observations.from_pandas(FRAME)).tables)
    probs = torch.stack([-model.energy(torch.tensor(x)) for x in itertools.product((0, 1), repeat=3)])
    probs = probs.softmax(0).reshape(2, 2, 2)
    gap = Observations.from_tensor(torch.tensor([[1, -1, 0]]), graph.domain)
    pair = probs.sum(1)
    expected = math.log(pair[1, 0] / pair[:, 0].sum()) + math.log(pair[1, 0] / pair[1].sum())
    assert float(row_log_pseudo_prob(model, gap)) == pytest.approx(expected, abs=1e-12)


def test_options_are_checked():
    log_linear, _, _, machine = families()
    rows = _rows(log_linear, FRAME)
    with pytest.raises(InputError, match="order, edges: at most one"):
        log_linear.estimate(rows, seed=0, order=2, edges="a*b")
    with pytest.raises(UnknownNameError, match=r"unknown option of a Boltzmann machine 'iteration'.*'iterations'"):
        machine.estimate(rows, seed=0, iteration=3)
    by_name, by_sets = (log_linear.estimate(rows, seed=0, edges=edges) for edges in ("a*b + c", [("a", "b"), ("c",)]))
    assert by_name.hypergraph == by_sets.hypergraph
