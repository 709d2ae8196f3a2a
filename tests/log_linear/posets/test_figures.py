"""Hasse diagrams: elements, layers and lines are those of the poset; the pictures were looked at."""

import numpy as np
import pytest

from pyro_hoim.log_linear import Poset, hasse_figure
from pyro_hoim.testing import raises

LATTICE = Poset.boolean_lattice(["1", "2", "3", "4"])


def drawn(figure):
    """Circles by their labels, and lines, of a figure."""
    (axes,) = figure.axes
    places = {text.get_text(): tuple(np.asarray(text.xy)) for text in axes.texts}
    segments = {tuple(map(tuple, segment)) for segment in axes.collections[0].get_segments()}
    faces = [line.get_markerfacecolor() for line in axes.lines]
    return places, segments, faces


def test_figure_1b_of_paper_4():
    places, segments, faces = drawn(hasse_figure(LATTICE))
    assert len(places) == 16 and len(set(places.values())) == 16
    assert {label: y for label, (_, y) in places.items() if label in ("∅", "3", "24", "123", "1234")} == {
        "∅": 0, "3": 1, "24": 2, "123": 3, "1234": 4,
    }  # fmt: skip
    names = {element: "".join(element) or "∅" for element in LATTICE.elements}
    assert segments == {(places[names[x]], places[names[y]]) for x, y in LATTICE.covers}
    assert [faces.count(colour) for colour in ("#22303c", "#5b8c5a", "#2a6f97", "#a23e48", "#ffffff")] == [
        1,
        4,
        6,
        4,
        1,
    ]


def test_only_members_are_filled():
    _, _, faces = drawn(hasse_figure(LATTICE, members=LATTICE.up_to(1)))
    assert faces.count("white") == 11 and faces.count("#5b8c5a") == 4


@pytest.mark.parametrize("poset", [Poset.divisibility([1, 2, 3, 4, 6, 12]), Poset(["b", "a"], []), Poset(["x"], [])])
def test_other_posets_have_their_covers(poset):
    places, segments, _ = drawn(hasse_figure(poset))
    assert segments == {(places[str(x)], places[str(y)]) for x, y in poset.covers}
    assert len(set(places.values())) == len(poset)


def test_long_names_stand_below_their_circles():
    places, segments, _ = drawn(hasse_figure(Poset.boolean_lattice(["smoking", "exercise"])))
    assert set(places) == {"∅", "smoking", "exercise", "smoking\nexercise"} and len(segments) == 4


def test_diagrams_that_cannot_be_read_are_refused():
    with raises("over-budget", "poset"):
        hasse_figure(Poset.boolean_lattice(9))
    with raises("unknown-name", "element"):
        hasse_figure(LATTICE, members=[("5",)])
