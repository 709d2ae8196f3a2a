"""Interactions stand before single columns, the strongest first, and a list that is cut says how many are left out."""

import re

import numpy as np
import pandas as pd
import pytest

from pyro_hoim import CountTable, fit, fit_roots, learn_network, load_table
from pyro_hoim.boltzmann import LearningOptions, fit_machine
from pyro_hoim.results import SummaryTable


def of_labels():
    return fit("smoke*mental*phys + systol*protein + family", load_table("czech_autoworkers"))


def of_a_network():
    return learn_network(load_table("czech_autoworkers"))


def of_a_machine():
    return fit_machine(load_table("czech_autoworkers"), 1, LearningOptions("exact", iterations=300, decay=0.01))


def of_roots():
    random = np.random.default_rng(5)
    kind = random.random(240) < 0.5
    counts = {name: random.poisson(np.where(kind, 3.0, 1.0)) for name in ("x", "y", "z")}
    return fit_roots(CountTable.from_pandas(pd.DataFrame(counts)), "poisson", order=3, l1=0.001)


@pytest.mark.parametrize("make", [of_labels, of_a_network, of_a_machine, of_roots])
def test_top_counts_interactions_and_not_their_entries_nor_single_columns(make):
    result = make()
    everything, names = result.interactions(), {frozenset(t.split(":")) for t in result.interactions()["term"]}
    joint = [name for name in names if len(name) > 1]
    for top in (1, 2, len(joint), len(joint) + 3):
        table = result.interactions(top=top)
        shown = [frozenset(term.split(":")) for term in table["term"]]
        assert len(set(shown)) == min(top, len(joint)) and all(len(edge) > 1 for edge in shown)
        assert isinstance(table, SummaryTable)
        left_out = len(joint) - len(set(shown))
        said = re.search(r"\.\.\. (\d+) more interactions?", str(table))
        assert (int(said[1]) if said else 0) == left_out
        # All entries of these, in the order of the whole table.
        kept = everything[[frozenset(t.split(":")) in set(shown) for t in everything["term"]]]
        assert kept["term"].tolist() == table["term"].tolist()


def test_single_columns_come_last_and_are_there_without_a_limit():
    orders = of_labels().interactions()["order"].tolist()
    first = orders.index(1)
    assert min(orders[:first]) >= 2 and set(orders[first:]) == {1} and orders.count(1) == 6
    values = of_labels().interactions()["value"]
    assert values[:first].is_monotonic_decreasing and values[first:].is_monotonic_decreasing
