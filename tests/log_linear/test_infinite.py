"""Infinite interactions and their finite contrasts, against odds ratios, corners of saturated tables and ranks."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.optimize import linprog

from pyro_hoim import Domain, InteractionHypergraph, Observations, load_table
from pyro_hoim.log_linear import Enumeration, LogLinearEnergy, fit, interaction_table, odds_ratio_table
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.log_linear.infinite import _are_within, infinite_to_json, mark_infinite, with_infinite
from pyro_hoim.report import plain_text
from pyro_hoim.study import analyse

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")


def marked(data, order, **options):
    result = fit(InteractionHypergraph.from_order(data.domain, order), data, **options)
    rows = mark_infinite(result, interaction_table(LogLinearEnergy(result.hypergraph, result.tables)))
    return result, {tuple(row["edge"]): row for row in rows}


def from_table(counts):
    counts = np.array(counts)
    names = "abcd"[: counts.ndim]
    return Observations.from_table(Domain.from_cardinalities(dict(zip(names, counts.shape, strict=True))), counts)


def test_finite_contrasts_of_a_pair_are_its_finite_odds_ratios():
    data = load_table("titanic")
    result, rows = marked(data, 2)
    row = rows["Class", "Age"]
    assert [other["is_infinite"] for other in rows.values()] == [True] * 3 + [False] * 7
    assert (row["value"], row["coefficient"], row["levels"]) == (math.inf, -math.inf, ["Crew", "Child"])
    assert (row["num_identified"], row["num_parameters"], len(row["finite_contrasts"])) == (2, 3, 3)
    for found in row["finite_contrasts"]:
        (first, second), labels = zip(found["before"], found["after"], strict=True), data.domain
        frame = odds_ratio_table(result, "Class", "Age", first_levels=first, second_levels=second)
        assert found["estimate"] == pytest.approx(float(frame["log_odds_ratio"][0]), abs=1e-9)
        assert found["std_error"] == pytest.approx(float(frame["std_error"][0]), rel=1e-9)
        assert "Crew" not in found["before"] + found["after"] and labels is data.domain
    crew = odds_ratio_table(result, "Class", "Age", first_levels=("1st", "Crew"))
    assert math.isinf(float(crew["std_error"][0]))  # control: those with the empty cell are not identified
    finite = rows["Class", "Sex"]
    assert not finite["is_infinite"] and finite["num_identified"] == 3 and not finite["finite_contrasts"]


@pytest.mark.parametrize("counts", [[[5, 0, 3], [0, 4, 6]], [[5, 0, 0], [0, 4, 6], [2, 3, 0]], [[5, 0], [0, 4]]])
def test_a_contrast_of_a_saturated_table_is_finite_if_and_only_if_no_corner_is_empty(counts):
    counts = np.array(counts)
    _, rows = marked(from_table(counts), 2)
    row = rows["a", "b"]
    expected = {}
    for i, j in itertools.combinations(range(counts.shape[0]), 2):
        for k, m in itertools.combinations(range(counts.shape[1]), 2):
            corners = counts[[i, i, j, j], [k, m, k, m]]
            if corners.min() > 0:
                a, b, c, d = np.log(corners)
                expected[frozenset((str(i), str(j))), frozenset((str(k), str(m)))] = abs(a - b - c + d)
    found = {
        tuple(frozenset(levels) for levels in zip(c["before"], c["after"], strict=True)): c["estimate"]
        for c in row["finite_contrasts"]
    }
    assert found.keys() == expected.keys()
    assert row["is_infinite"]
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, abs=1e-7)


def test_directions_are_counted_as_by_ranks_of_the_design():
    data = load_table("titanic")
    result, rows = marked(data, 3)
    design = design_matrix(result.hypergraph)
    cells = result.existence.facial_set
    face = design[cells] - design[cells].mean(0)
    total = np.linalg.matrix_rank(face)
    for edge, row in rows.items():
        where = result.hypergraph.parameter_slices[edge]
        others = np.delete(face, np.arange(where.start, where.stop), axis=1)
        # What the interaction adds to the rank is what the data identify whatever the others are.
        assert row["num_identified"] == total - np.linalg.matrix_rank(others)
        assert row["is_infinite"] == (row["num_identified"] < row["num_parameters"])


def test_a_finite_fit_has_no_infinite_interactions():
    data = load_table("hair_eye_color")
    result, rows = marked(data, 2)
    table = interaction_table(LogLinearEnergy(result.hypergraph, result.tables))
    assert [list(edge) for edge in rows] == [row["edge"] for row in table]
    assert not any(row["is_infinite"] or row["finite_contrasts"] for row in rows.values())


def test_without_a_facial_set_the_margins_decide():
    _, rows = marked(load_table("titanic"), 2, partition=Enumeration())
    (near, far) = (rows["Class", "Age"], rows["Class", "Sex"])
    assert near["is_infinite"] and near["levels"] == ["Crew", "Child"] and not far["is_infinite"]


def test_a_model_file_keeps_what_is_infinite():
    data = load_table("titanic")
    result, rows = marked(data, 2)
    kept = json.loads(json.dumps([infinite_to_json(row) for row in rows.values() if row["is_infinite"]]))
    table = interaction_table(LogLinearEnergy(result.hypergraph, result.tables))
    again = {tuple(row["edge"]): row for row in with_infinite(table, kept)}
    assert list(again) == list(rows)
    for edge, row in again.items():
        for key in ("value", "coefficient", "levels", "is_infinite"):
            assert row[key] == rows[edge][key]


def test_the_report_ranks_infinite_interactions_first_and_counts_parameters_once():
    # As mushroom's class, odor and bruises: a smell that settles the class, and one that does not.
    counts = np.array([[[8, 4], [0, 0], [30, 10]], [[0, 0], [20, 3], [6, 5]]])
    data = from_table(counts)
    analysis = analyse({"train": data}, {"pairs": InteractionHypergraph.from_order(data.domain, 2)})
    page = analysis.page()
    text = plain_text(page)
    result = analysis.chosen.fit
    assert result.num_parameters_fitted < result.hypergraph.num_parameters
    (strengths,) = [s for s in page.sections if s.title.startswith("Strengths")]
    rows = [row for block in strengths.blocks if block.kind == "table" for row in block.rows]
    assert rows[0][0].shown == "a:b" and rows[0][1].shown == "infinite"
    assert "infinitely many times as high" in text or "zero times as high" in text
    assert analysis.comparison_records()[0]["num_parameters"] == result.num_parameters_fitted
    goodness = analysis.chosen.goodness
    assert goodness.aic == pytest.approx(-2 * goodness.log_likelihood + 2 * result.num_parameters_fitted)
    for word in ("compatible", "hard to reconcile", "saturated:"):
        assert word not in text


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_vectors_of_a_cone_are_those_that_a_linear_program_reaches(lines):
    """Cones of dimension four that hold a subspace of ``lines`` dimensions; vectors inside, on the edge, outside."""
    rng = np.random.default_rng(lines)
    for _ in range(4):
        whole, half = rng.normal(size=(4, lines)), rng.normal(size=(4, 4 - lines))
        cone = np.hstack([whole, -whole, half, half @ rng.random((4 - lines, 6))])
        inside = (cone @ (rng.random((cone.shape[1], 6)) * (rng.random((cone.shape[1], 6)) < 0.3))).T
        vectors = np.vstack([inside, -inside, rng.normal(size=(12, 4)), np.zeros((1, 4))])
        reached = [linprog(np.zeros(cone.shape[1]), A_eq=cone, b_eq=vector).status == 0 for vector in vectors]
        assert _are_within(cone, vectors).tolist() == reached
        assert all(reached[:6]) and reached[-1] and not all(reached)  # control: some are not
