"""Hard mixing: a categorical table in one-hot binary coding freezes single sites; blocks of a group move it."""

import itertools

import numpy as np
import pytest
import torch

from pyro_hoim.log_linear import GibbsChains, LogLinearEnergy
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_exact_law, assert_stationary, count_states, enumerate_codes, required_draws

from support.transitions import slice_states, sweep_matrix, tempered_law

ENGINES = ("products", "tables", "torch")
COLOURS, SHAPES = ("red", "green", "blue"), ("round", "square")
NAMES = (*COLOURS, *SHAPES)
PENALTY = 14.0
PAIRS = [*itertools.combinations(COLOURS, 2), SHAPES]
SITES = [(n,) for n in NAMES]


def _one_hot():
    """Graph and tables of a 3 x 2 table of probabilities in binary coding, and the table.

    Every two levels of a group exclude each other by a large penalty, and every level is wanted by as much, so that
    states with exactly one level per group carry all but 1e-5 of the probability.
    """
    table = np.array([[0.30, 0.05], [0.10, 0.20], [0.05, 0.30]])
    domain = Domain.from_cardinalities(dict.fromkeys(NAMES, 2))
    cross = list(itertools.product(COLOURS, SHAPES))
    graph = InteractionHypergraph(domain, [*PAIRS, *cross], closure=True)
    tables = np.zeros(graph.num_terms)
    for edge, where in graph.term_slices.items():
        if len(edge) == 1:
            tables[where] = [0.0, PENALTY]
        elif edge in PAIRS:
            tables[where] = [0.0, 0.0, 0.0, -2 * PENALTY]
        else:
            tables[where.stop - 1] = np.log(table[COLOURS.index(edge[0]), SHAPES.index(edge[1])])
    return graph, tables, table


GRAPH, TABLES, TABLE = _one_hot()
LAW = tempered_law(GRAPH, TABLES)
START = int(np.ravel_multi_index((1, 0, 0, 1, 0), (2,) * 5))


def _chains(engine, blocks, num_chains):
    init = torch.tensor([1, 0, 0, 1, 0])
    schedule = GibbsSchedule(blocks)
    model = LogLinearEnergy(GRAPH, torch.as_tensor(TABLES))
    return GibbsChains(model, num_chains, schedule=schedule, init=init, engine=engine, seed=5)


def test_binary_law_is_the_table():
    codes = enumerate_codes((2,) * 5)
    valid = (codes[:, :3].sum(1) == 1) & (codes[:, 3:].sum(1) == 1)
    assert LAW[~valid].sum() < 1e-4
    for i, j in itertools.product(range(3), range(2)):
        state = np.ravel_multi_index((*np.eye(3, dtype=int)[i], *np.eye(2, dtype=int)[j]), (2,) * 5)
        assert abs(LAW[state] - TABLE[i, j]) < 1e-4


def test_single_sites_are_frozen_and_blocks_of_a_group_are_not():
    """Second eigenvalues: sites within 1e-4 of one; pairs, whose draws swap two levels, and groups far below."""
    sites = assert_stationary(sweep_matrix(GRAPH, TABLES, SITES), LAW)
    pairs = assert_stationary(sweep_matrix(GRAPH, TABLES, PAIRS), LAW)
    groups = assert_stationary(sweep_matrix(GRAPH, TABLES, [COLOURS, SHAPES]), LAW)
    assert 1 - 1e-4 < sites < 1 - 1e-9
    assert pairs < 0.6
    assert groups < 0.5
    law = np.linalg.matrix_power(sweep_matrix(GRAPH, TABLES, SITES), 200)[START]
    assert np.abs(law - LAW).sum() / 2 > 0.5  # still far after 200 sweeps
    law = np.linalg.matrix_power(sweep_matrix(GRAPH, TABLES, PAIRS), 30)[START]
    assert np.abs(law - LAW).sum() / 2 < 1e-4


@pytest.mark.parametrize("engine", ENGINES)
def test_single_sites_miss_the_law(engine):
    """Twenty sweeps of sites follow their matrix, and so fail the test of the exact law that blocks pass."""
    size = required_draws(32, 0.05)
    frozen = _chains(engine, "sites", size)
    frozen.sweep(20)
    counts = count_states(frozen.states, (2,) * 5)
    assert_exact_law(counts, np.linalg.matrix_power(sweep_matrix(GRAPH, TABLES, SITES), 20)[START])
    with pytest.raises(AssertionError, match="chi-square"):
        assert_exact_law(counts, LAW)
    assert counts[START] > 0.99 * size


@pytest.mark.parametrize(
    "blocks",
    ["interactions", PAIRS, [COLOURS, SHAPES], [NAMES]],
    ids=["whole interactions", "swaps", "groups", "everything"],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_reach_the_law(engine, blocks):
    """A total variation of 0.05 is found after as many sweeps as bring the matrix within 1e-4 of the law."""
    chains = _chains(engine, blocks, required_draws(32, 0.05))
    matrix, law, num_sweeps = sweep_matrix(GRAPH, TABLES, chains.blocks), np.eye(32)[START], 0
    while np.abs(law - LAW).sum() / 2 > 1e-4:
        law, num_sweeps = law @ matrix, num_sweeps + 1
        assert num_sweeps < 30
    chains.sweep(num_sweeps)
    assert_exact_law(count_states(chains.states, (2,) * 5), LAW)


@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_reach_the_law_of_a_clamped_group(engine):
    """With the shape observed the colours follow their conditional law."""
    fixed = {"round": 0, "square": 1}
    model = LogLinearEnergy(GRAPH, torch.as_tensor(TABLES))
    size = required_draws(8, 0.03)
    schedule = GibbsSchedule("interactions")
    chains = GibbsChains(model, size, schedule=schedule, clamped=fixed, engine=engine, seed=6)
    chains.sweep(30)
    law = tempered_law(GRAPH, TABLES, clamped=fixed)
    kept = slice_states(GRAPH, fixed)
    matrix = sweep_matrix(GRAPH, TABLES, chains.blocks)[np.ix_(kept, kept)]
    assert assert_stationary(matrix, law[kept]) < 0.7
    assert_exact_law(count_states(chains.states, (2,) * 5), law)
