"""Fits within norm balls in a study: the record against the law, its pictures, and what the page warns of."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_hoim import InputError, load_table
from pyro_hoim.log_linear.constrained.norms import interaction_matrix
from pyro_hoim.runs.checkpoint import RunOptions
from pyro_hoim.study import constrained as sections
from pyro_hoim.study.constrained import Constraint, as_fit, fit_constrained

DATA = load_table("three_features")


@pytest.fixture(scope="module")
def record():
    return fit_constrained(DATA, 2, Constraint.parse("sparse-low-rank:1,2", "penalty"), RunOptions())


def test_the_fit_is_the_same_law(record):
    law = record.result.law()
    fit = as_fit(record, DATA, float(law.log_partition.value))
    likelihood = float((DATA.counts * law.log_prob(DATA.codes)).sum())
    assert fit.log_likelihood == pytest.approx(likelihood, rel=1e-12)
    torch.testing.assert_close(fit.coefficients("corner"), record.result.theta, rtol=1e-12, atol=1e-12)
    assert (fit.status, fit.objective, fit.coding) == ("converged", "pseudo-likelihood", "free")
    low = interaction_matrix(record.result.parts["low_rank"].numpy())
    assert record.rank == np.linalg.matrix_rank(low, tol=1e-5) < 3 and record.num_nonzero < 6
    assert record.norm("low_rank") == pytest.approx(2, rel=1e-9)


def test_a_record_may_go_on_from_its_file(tmp_path, monkeypatch, record):
    path = tmp_path / "run"
    constraint = record.constraint
    monkeypatch.setattr("pyro_hoim.study.constrained._CHUNK", 1)
    monkeypatch.setattr("pyro_hoim.study.constrained._CHUNKS", 2)
    monkeypatch.setattr("pyro_hoim.runs.checkpoint.RunFile.SECONDS", 0.0)
    short = fit_constrained(DATA, 2, constraint, RunOptions(path))
    assert short.result.status == "max_iterations" and short.result.gap > record.result.gap
    assert "stopped before" in sections.constrained_warnings(short)[0]
    assert len(sections.constrained_warnings(record)) == 1  # that parameters are bounded
    monkeypatch.setattr("pyro_hoim.study.constrained._CHUNKS", 99)
    ended = fit_constrained(DATA, 2, constraint, RunOptions(path, resume=True))
    again = fit_constrained(DATA, 2, constraint, RunOptions(path, resume=True))  # the last piece once more
    whole = fit_constrained(DATA, 2, constraint, RunOptions())
    assert whole.result.loss == pytest.approx(record.result.loss, abs=whole.result.gap + record.result.gap)
    np.testing.assert_array_equal(whole.result.trace[: len(short.result.trace)], short.result.trace)
    for one in (ended, again):
        assert torch.equal(one.result.theta, whole.result.theta)
        np.testing.assert_array_equal(one.result.trace, whole.result.trace)
    with pytest.raises(InputError, match="belongs to a run with penalty='sparse-low-rank:1,2'"):
        fit_constrained(DATA, 2, Constraint.parse("l1:1", "penalty"), RunOptions(path, resume=True))


def test_pictures_show_the_parts_and_the_gap(record):
    (axes,) = sections._sparse(record).axes
    values = record.result.parts["sparse"].numpy()
    shown = {label.get_text(): bar.get_width() for label, bar in zip(axes.get_yticklabels(), axes.patches, strict=True)}
    named = {":".join(edge): value for edge, value in zip(record.result.hypergraph.edges, values, strict=True) if value}
    assert shown == named
    (axes,) = sections._spectrum(record.singular_values).axes
    assert [bar.get_height() for bar in axes.patches] == record.singular_values.tolist()
    (axes,) = sections._gap(record.result.trace[:, 1]).axes
    assert axes.get_yscale() == "log" and axes.get_lines()[0].get_ydata()[-1] == record.result.gap > 0
    assert sections._gap(np.array([1.0, 0.0, math.nan])).axes[0].get_lines()[0].get_xdata().tolist() == [1]


def test_sentences(record):
    text = " ".join(sections.constrained_sentences(record))
    assert "up to 2 variables" in text and "l1 norm is at most 1" in text and "Schatten 1 norm is at most 2" in text
    assert f"rank {record.rank} of 3" in text and f"{record.num_nonzero} are not zero" in text
    page = sections.constrained_section(record)
    below = " ".join(block.text for block in page.blocks if block.text)
    assert all(line in below for line in sections.constrained_sentences(record))
    assert "adds up the singular values of all of them" in below
    only = replace(record, constraint=Constraint("l1:1", {"sparse": 1.0}))
    assert "low-rank part has rank" not in " ".join(sections.constrained_sentences(only))
