"""What a fit says of the time that it will take, and what is refused for it, by a clock that the test winds."""

import importlib
import itertools
import math
import warnings

import pandas as pd
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import Auto, Domain, InteractionHypergraph
from pyro_hoim.errors import CostWarning, IntractableError
from pyro_hoim.estimators import InteractionDensity
from pyro_hoim.log_linear.fitting import duration
from pyro_hoim.log_linear.fitting.duration import duration_words, timed_seconds

front = importlib.import_module("pyro_hoim.front")


def table(levels, columns, rows=40):
    codes = torch.randint(levels, (rows, columns), generator=torch.Generator().manual_seed(1))
    return pd.DataFrame(codes.numpy()).add_prefix("v").astype(str)


def pairs(levels, columns):
    return InteractionHypergraph.from_order(Domain.from_cardinalities([levels] * columns), 2)


def wound(monkeypatch, *lengths):
    """A clock by which calls between two readings take these times."""
    readings = itertools.accumulate(x for length in lengths for x in (0.0, length))
    monkeypatch.setattr(duration.time, "perf_counter", lambda: next(readings))


@pytest.mark.parametrize(("lengths", "expected"), [((0.2, 0.1), 1.6), ((0.1, 0.2), 1.6), ((5.0,), 80.0)])
def test_one_evaluation_of_the_engine_is_timed_and_a_slow_one_once(monkeypatch, lengths, expected):
    graph = pairs(2, 17)
    # Sixteen evaluations, and twice as many where there are as few rows as parameters.
    wound(monkeypatch, *lengths, *lengths)
    assert timed_seconds(graph, Auto().plan(graph), math.inf) == pytest.approx(expected)
    assert timed_seconds(graph, Auto().plan(graph), graph.num_parameters) == pytest.approx(2 * expected)


def test_short_fits_are_not_timed_and_say_nothing(monkeypatch):
    wound(monkeypatch)  # reading it would be an error
    with warnings.catch_warnings(action="error", category=CostWarning):
        assert hoim.fit(".^2", table(2, 4)).num_rows == 40
    graph = pairs(2, 10)
    assert 0 < timed_seconds(graph, Auto().plan(graph), 40) < 1


def test_long_fits_warn_and_the_longest_are_refused_before_anything_is_computed(monkeypatch):
    asked = []
    monkeypatch.setattr(front, "fit_log_linear", lambda *_, partition=None, **__: asked.append(partition))
    wound(monkeypatch, 2.0)
    with pytest.warns(CostWarning, match=r"very roughly 56 seconds \(tables of up to 131,072 cells\); fewer levels"):
        hoim.fit(".^2", table(2, 17, 200))
    wide = table(5, 12, 2000)
    with pytest.raises(
        IntractableError, match=r"the fit: .* 48,828,125 cells.* minutes; hoim\.\w+\(data.*learn\(\).*partition=Auto"
    ):
        hoim.fit(".^2", wide)
    with pytest.raises(IntractableError, match=r"the fit: .* 48,828,125 cells"):
        InteractionDensity(options={"objective": "likelihood"}).fit(wide)
    hoim.fit(".^2", wide, partition=Auto())  # the control: whoever names a backend takes the time
    assert asked == [None, Auto()]


def test_lengths_in_words():
    assert [duration_words(s) for s in (1, 12.4, 99, 130)] == ["1 second", "12 seconds", "99 seconds", "2 minutes"]
