"""Pages on models with impossible states say nothing that the probabilities of all cells contradict."""

import numpy as np
import pytest

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.study import analyse
from pyro_hoim.study.model import structure_section

pytestmark = pytest.mark.usefixtures("words_alone")

NAMES = "abcd"
DOMAIN = Domain.from_cardinalities(dict.fromkeys(NAMES, 3))
CHAIN = InteractionHypergraph.from_formula(DOMAIN, "a*b + b*c + c*d")
CELLS = np.array(list(np.ndindex(DOMAIN.cardinalities)))


def rows_without(*combinations, seed=0):
    counts = np.random.default_rng(seed).integers(3, 12, DOMAIN.cardinalities)
    for combination in combinations:
        counts[tuple(combination.get(name, slice(None)) for name in NAMES)] = 0
    return Observations.from_table(DOMAIN, counts)


def law_of(result):
    """Probabilities of all cells."""
    return np.exp(result.row_log_likelihood(Observations.from_tensor(CELLS, DOMAIN)).to_numpy()).reshape(3, 3, 3, 3)


def information(law, first, second, given):
    """Conditional mutual information of two columns given others, by sums over the table, nats."""

    def entropy(names):
        margin = law.sum(tuple(i for i, name in enumerate(NAMES) if name not in names))
        return -float(np.sum(margin * np.log(np.where(margin > 0, margin, 1))))

    return entropy({first, *given}) + entropy({second, *given}) - entropy({first, second, *given}) - entropy(set(given))


ENDS = {"a": 0, "d": 0}
INSIDE = {"b": 1, "c": 2}


@pytest.mark.parametrize(
    ("declared", "number", "tied"),
    [([ENDS], 2, ["a:d"]), ([INSIDE], 3, []), ([ENDS, {"a": 1, "c": 1}, INSIDE], 1, ["a:c", "a:d"]), ([], 3, [])],
)
def test_independences_hold_in_the_law(declared, number, tied):
    rows = rows_without(*declared)
    labels = [{name: str(code) for name, code in combination.items()} for combination in declared]
    study = analyse({"train": rows}, {"chain": CHAIN}, structural_zeros=labels)
    model, page = study.chosen, study.page()
    size = " ".join([*page.warnings[:1], *(block.text for part in page.sections for block in part.blocks)])
    section, law = structure_section(model), law_of(model.fit)
    told = " ".join(block.text for block in section.blocks)
    pairs = [row for block in section.blocks if "independent pair" in block.columns for row in block.rows]
    assert len(pairs) == number and f"independences ({number})" in told
    for pair, given in pairs:
        first, second = pair.shown.split(" ⫫ ")
        assert abs(information(law, first, second, [] if given.shown == "nothing" else given.shown.split(", "))) < 1e-10
    assert ("closed form" in told) == (not declared) and ("Outside the impossible" in told) == bool(declared)
    assert (f"Some combinations of {', '.join(tied)} are impossible" in told) == bool(tied)
    # The control: the interactions alone would claim what does not hold.
    claimed = [information(law, *statement) for statement in CHAIN.conditional_independences()]
    assert (max(map(abs, claimed)) > 1e-4) == bool(tied)
    # The size of the table is that of what is possible.
    left = int((law > 0).sum())
    assert ("over 81 possible rows" in size, f"{left} of 81 rows are possible" in size) == (
        not declared,
        bool(declared),
    )
