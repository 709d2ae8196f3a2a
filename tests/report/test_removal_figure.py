"""The picture of a removal shows the numbers of its effect."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_hoim.core.figures.drawing import as_data_uri
from pyro_hoim.datasets import load_table
from pyro_hoim.information.removal import RemovalEffect, removal_effect
from pyro_hoim.information.removal_figure import removal_figure
from pyro_hoim.log_linear import LogLinearEnergy, fit
from pyro_hoim.structure import InteractionHypergraph


def effect(**options: str) -> RemovalEffect:
    rows = load_table("ucb_admissions")
    result = fit(InteractionHypergraph.from_order(rows.domain, 2), rows)
    return removal_effect(LogLinearEnergy(result.hypergraph, result.tables), [("Admit", "Dept")], rows, **options)


def test_groups_and_likelihood_are_drawn() -> None:
    found = effect(target="Admit", sensitive="Gender")
    figure = removal_figure(found)
    left, right = figure.axes
    assert found.groups is not None
    dots = {line.get_label(): line.get_xdata() for line in left.lines if line.get_marker() == "o"}
    for name in found.models:
        (key,) = [k for k in dots if k.startswith(f"{name} (range {found.parity_difference[name]:.3f}")]
        np.testing.assert_allclose(dots[key], found.groups[name])
    assert [t.get_text() for t in left.get_yticklabels()] == ["Male (n = 2691)", "Female (n = 1835)"]
    changes = [float(line.get_xdata()[0]) for line in right.lines if line.get_marker() == "o"]
    assert changes == pytest.approx(found.log_likelihood["change"].tolist())
    assert as_data_uri(figure).startswith("data:image/png")


def test_one_panel_without_groups() -> None:
    assert len(removal_figure(effect()).axes) == 1
