"""Appendix E of the paper: the Poisson model of Classic3, k = 3, 500 words, l1 = 0.01.

Our solutions are certified optima (every subgradient below 1e-6, and checked by another optimiser and autograd on
small problems),
the printed ones came from bounds of the log partition and, as it seems, looser stops. All printed
values but five lie within 1 %, half a unit of their last digit or 0.003 of ours; the five are listed below with what
the optimum is.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from pyro_hoim.generalized_root import PoissonFamily, RootSettings, fit_roots
from pyro_hoim.generalized_root.regress.node import solve_node
from pyro_hoim.generalized_root.regress.options import search_space
from pyro_hoim.generalized_root.regress.rows import prepare_rows

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "grm_classic3.json").read_text())
SETTINGS = GOLDEN["settings"]
LISTS = {
    "singles": (1, 0),
    "positive_pairs": (2, 1),
    "negative_pairs": (2, -1),
    "positive_triples": (3, 1),
    "negative_triples": (3, -1),
}
# Printed values that are further off, and the optimum at tolerance 1e-9. Four are pairs with words ("pressure", "heat",
# "body") whose regressions have many weak features. In the fifth, "injection" gets its coefficient only after steps
# that a stop at a residual of 1e-3 does not make; without it the mean would be 0.042.
EXCEPTIONS = {
    frozenset({"information", "pressure"}): -0.6475,
    frozenset({"pressure", "library"}): -0.5947,
    frozenset({"information", "heat"}): -0.5601,
    frozenset({"library", "body"}): -0.2567,
    frozenset({"boundary", "injection", "mass"}): 0.0525,
}


def half_unit(printed):
    return 0.5 * 10.0 ** -len(printed.partition(".")[2])


def is_close(printed, value):
    return abs(value - float(printed)) <= max(0.01 * abs(float(printed)), half_unit(printed), 0.003)


@pytest.fixture(scope="module")
def words_and_counts(shared_data):
    file = shared_data / "classic3_sqr_top1000.npz"
    if not file.is_file():
        message = f"{file.name} is not in the data folder: the published tables of Classic3 are NOT checked"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message)
        pytest.skip(message)
    words = (shared_data / "classic3_sqr_top1000_vocab.txt").read_text().split()
    width = SETTINGS["variables"]
    return words[:width], scipy.sparse.load_npz(file).tocsr()[:, :width]


def test_published_values_of_some_tuples(words_and_counts):
    """The tuples whose words all are among eight: their nodes are solved, each over all 500 words."""
    words, counts = words_and_counts
    order, l1 = SETTINGS["order"], SETTINGS["l1"]
    rows = prepare_rows(counts, PoissonFamily(), order, words)
    space = search_space(len(words), order, dict.fromkeys(range(2, order + 1), l1), False, {})
    found = {}
    chosen = ("information", "boundary", "layer", "skin", "friction", "heat", "transfer", "conditions")
    for word in chosen:
        node = words.index(word)
        solution = solve_node(rows, node, space, RootSettings())
        assert solution.outcome.residual <= 1e-6
        for others, value in zip(solution.others.tolist(), solution.coefficients.tolist(), strict=True):
            names = frozenset([word, *(words[i] for i in others if i >= 0)])
            found[names] = found.get(names, 0.0) + value / len(names)
    checked = 0
    for name in LISTS:
        for printed, tuple_words in GOLDEN[name]:
            names = frozenset(tuple_words)
            if printed is not None and names <= set(chosen) and names not in EXCEPTIONS:
                assert is_close(printed, found[names]), (printed, names, found[names])
                checked += 1
    assert checked >= 6
    # Negative control: without the division by the number of member nodes the tables are not met.
    assert not is_close("4.9827", 2 * found[frozenset({"boundary", "layer"})])


@pytest.mark.slow
def test_every_published_value(words_and_counts):
    words, counts = words_and_counts
    settings = RootSettings(jobs=2, false_discovery_rate=None)
    fitted = fit_roots(counts, order=SETTINGS["order"], l1=SETTINGS["l1"], names=words, settings=settings)
    assert fitted.is_converged
    assert float(fitted.kkt_residual.max()) < 1e-6
    values = {frozenset(term.names): term.coefficient for term in fitted.terms()}
    for name, (size, sign) in LISTS.items():
        ours = sorted(fitted.terms((size, size), sign=sign), key=lambda term: -term.coefficient * (sign or 1))
        listed = [frozenset(tuple_words) for _, tuple_words in GOLDEN[name]]
        leading = {frozenset(term.names) for term in ours[: len(listed)]}
        assert len(leading & set(listed)) >= len(listed) - (2 if len(listed) == 50 else 1), name
        for printed, tuple_words in GOLDEN[name]:
            names = frozenset(tuple_words)
            value = values.get(names, 0.0)
            if names in EXCEPTIONS:
                assert value == pytest.approx(EXCEPTIONS[names], abs=2e-4)
            elif printed is not None:
                assert is_close(printed, value), (name, printed, tuple_words, value)
    assert np.isclose(values[frozenset({"layer", "skin", "friction"})], 0.50667, atol=1e-4)
