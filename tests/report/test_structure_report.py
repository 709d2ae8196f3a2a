"""Sections and pictures of a posterior over structure: what they hold is what the record says."""

import io

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch

from pyro_hoim import Domain, Observations, load_table
from pyro_hoim.core.words import digits
from pyro_hoim.inference import ChainSettings, StructurePrior
from pyro_hoim.log_linear import Prior, fit
from pyro_hoim.plots.drawing import KINDS
from pyro_hoim.runs.checkpoint import RunOptions
from pyro_hoim.study.structures import (
    dots_figure,
    find_structures,
    record_structures,
    structure_sections,
    structure_sentence,
    structure_warnings,
)

TABLE = load_table("czech_autoworkers").project(["smoke", "mental", "phys", "protein"])
JUDGING = ("trust", "best", "reliable", "good", "bad", "poor")


@pytest.fixture(scope="module", params=["list", "chains"])
def found(request):
    """A record and its sections by title."""
    settings = None if request.param == "list" else ChainSettings(3, 1000, 50)
    prior = Prior.parse("conjugate:1")
    law = StructurePrior(TABLE.domain, space="decomposable")
    posterior, route = find_structures(TABLE, prior, law, settings, seed=3, run=RunOptions())
    record = record_structures(posterior, route, 2, 100, seed=3)
    top = fit(record.rivals[0].hypergraph, TABLE, penalty=prior.penalty(record.rivals[0].hypergraph))
    return record, {section.title: section for section in structure_sections(record, top)}


def tables(section):
    return [block for block in section.blocks if block.kind == "table"]


def texts(section):
    return " ".join(block.text for block in section.blocks)


def test_the_sections_of_each_route(found):
    record, sections = found
    titles = ["Which interactions exist", "Most probable models", "Where the chains disagree", "Other priors"]
    titles += ["Averaged cells"]
    assert list(sections) == [t for t in titles if record.route == "chains" or t != "Where the chains disagree"]
    words = " ".join(map(texts, sections.values())) + structure_sentence(record)
    assert not [word for word in JUDGING if word in words.lower().split()]
    likely = sum(mean > 0.5 for mean in record.posterior.inclusion.mean.tolist())
    assert structure_sentence(record).startswith(f"{likely} interaction")
    assert "the most probable is [" in texts(sections["Which interactions exist"])  # not on the first screen
    for section in sections.values():
        for block in section.blocks:
            if block.kind == "figure":
                block.drawing.savefig(io.BytesIO(), dpi=40)
                assert block.text


def test_the_picture_is_as_wide_as_the_probabilities(found):
    record, sections = found
    inclusion = record.posterior.inclusion
    picture = next(block for block in sections["Which interactions exist"].blocks if block.kind == "figure")
    widths = sorted(p.get_linewidth() for p in picture.drawing.axes[0].patches if isinstance(p, PathPatch))
    pairs = [p for edge, p in zip(inclusion.edges, inclusion.mean.tolist(), strict=True) if len(edge) == 2]
    assert widths == pytest.approx(sorted(0.5 + 5.5 * p for p in pairs if p >= 0.05))
    (table,) = tables(sections["Which interactions exist"])[:1]
    for row in table.rows:
        assert row[1].value == float(inclusion[row[0].shown.split(":")]) and row[1].shown == digits(row[1].value)
    assert ("R-hat" in table.columns) is ("Monte Carlo SE" in table.columns) is (record.route == "chains")


def test_models_stand_beside_their_evidence_and_leave_one_out(found):
    record, sections = found
    table, generators = tables(sections["Most probable models"])
    assert [row[1].shown for row in generators.rows] == [rival.name for rival in record.rivals]
    assert table.columns[:5] == ("collection", "probability", "log evidence", "elpd (LOO)", "stacking weight")
    for row, rival in zip(table.rows, record.rivals, strict=True):
        assert row[1].shown == digits(rival.probability) and row[2].value == rival.log_evidence
        assert float(row[2].shown) == pytest.approx(rival.log_evidence, abs=0.005)
        assert float(row[3].shown) == pytest.approx(rival.left_out.elpd, abs=0.005)


def test_dots_are_at_the_probabilities(found):
    record, sections = found
    shown = {"Other priors": {name: other.inclusion.mean for name, other in record.others.items()}}
    if record.route == "chains":
        chains = enumerate(record.posterior.inclusion.per_chain, start=1)
        shown["Where the chains disagree"] = {f"chain {c}": row for c, row in chains}
    for title, values in shown.items():
        picture = next(block for block in sections[title].blocks if block.kind == "figure")
        edges = {":".join(edge): k for k, edge in enumerate(record.posterior.inclusion.edges)}
        labels = [text.get_text().replace("\n", "") for text in picture.drawing.axes[0].get_yticklabels()]
        lines = {line.get_label(): line for line in picture.drawing.axes[0].lines if line.get_marker() == "o"}
        assert set(lines) == set(values)
        for name, law in values.items():
            assert lines[name].get_xdata() == pytest.approx([float(law[edges[label]]) for label in labels])


def test_averaged_cells_sum_to_the_rows(found):
    record, sections = found
    total = TABLE.total_count
    assert float(record.cells.sum()) == pytest.approx(1)
    (table,) = [block for block in sections["Averaged cells"].blocks if block.kind == "table"]
    counts = np.array([[cell.value for cell in row[-3:]] for row in table.rows], dtype=float)
    assert counts.sum(0) == pytest.approx([total] * 3)


def test_chains_that_disagree_are_named():
    law = StructurePrior(TABLE.domain)
    with pytest.warns(UserWarning, match="R-hat"):
        posterior, route = find_structures(
            TABLE, Prior.parse("unit"), law, ChainSettings(3, 4, 0), seed=1, run=RunOptions()
        )
    record = record_structures(posterior, route, 2, 50, seed=1)
    (told,) = structure_warnings(record)
    assert "The chains over collections disagree (largest R-hat of an interaction" in told
    settled, listed = find_structures(TABLE, Prior.parse("unit"), law, None, seed=1, run=RunOptions())
    assert structure_warnings(record_structures(settled, listed, 2, 50, seed=1)) == []  # control


def test_leave_one_out_that_rests_on_few_draws_is_named():
    law = StructurePrior(TABLE.domain)
    listed, route = find_structures(TABLE, Prior.parse("unit"), law, None, seed=1, run=RunOptions())
    few, many = (record_structures(listed, route, 2, draws, seed=1) for draws in (10, 500))
    worst = max(rival.left_out.max_pareto_k for rival in few.rivals)
    told = f"Leave-one-out is unreliable for some cells (largest Pareto k {worst:.2f})."
    assert worst > 0.7 and structure_warnings(few) == [told]
    assert structure_warnings(many) == []  # control


def test_sets_that_follow_from_many_pairs_are_not_drawn():
    seven = Domain.from_cardinalities([2] * 7)
    rows = Observations(seven, torch.tensor([[0] * 7, [1] * 7]), torch.tensor([20.0, 20.0]))
    prior = Prior.parse("conjugate:1")
    law = StructurePrior(seven, space="decomposable", max_order=4, inclusion=0.9)
    found, route = find_structures(rows, prior, law, ChainSettings(2, 20, 5), seed=1, run=RunOptions())
    record = record_structures(found, route, 2, 20, seed=1)
    top = fit(record.rivals[0].hypergraph, rows, penalty=prior.penalty(record.rivals[0].hypergraph))
    section = structure_sections(record, top)[0]
    (picture,) = [block for block in section.blocks if block.kind == "figure"]
    legend = [text.get_text() for text in picture.drawing.axes[0].get_legend().get_texts()]
    pairs = sum(p >= 0.05 for e, p in zip(found.inclusion.edges, found.inclusion.mean, strict=True) if len(e) == 2)
    assert legend[0] == f"pairs: {pairs}" and not any("sets" in words for words in legend)
    assert "larger sets follow from the pairs and are not drawn" in texts(section)


def test_pictures_of_odd_sizes():
    for number in (0, 1, 15):
        values = {f"series {k}": np.linspace(0, 1, number) for k in range(9)}
        figure = dots_figure([f"$label {k}$" for k in range(number)], values, "probability")
        colours = [to_hex(line.get_color()) for line in figure.axes[0].lines if line.get_marker() == "o"]
        assert len(colours) == 9 and colours[0] == colours[8] == KINDS[0]
        figure.savefig(io.BytesIO(), dpi=30)
    assert torch.get_default_dtype() == torch.float32
