"""Completions of rows against the enumerated conditional law, exact and by chains."""

import numpy as np
import pytest
import torch

from pyro_hoim.core.rows import ClampedGibbs
from pyro_hoim.data import Observations
from pyro_hoim.errors import InputError, IntractableError
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.log_linear.given import _ascend, impute
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_exact_law, exact_table, raises, random_tables, required_draws

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 3)
MODEL = LogLinearEnergy(GRAPH, torch.from_numpy(random_tables(GRAPH, np.random.default_rng(4), scale=0.5)))
LARGE = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
DRAWS = required_draws(12, 0.02)
MISSING = [(0, -1, 1, -1), (1, -1, 0, -1), (-1, 2, -1, -1), (1, 1, 1, 1)]


def rows(*codes):
    return Observations.from_tensor(torch.tensor(codes), DOMAIN)


def conditional(row):
    """Law of the missing cells of a row, axes in schema order."""
    table = np.exp(exact_table(GRAPH, MODEL.tables.numpy()))
    cells = table[tuple(slice(None) if code < 0 else code for code in row)]
    return cells / cells.sum()


def counts(codes, row):
    """Draws (M, d) of a row in the cells of its missing variables."""
    gone = [i for i, code in enumerate(row) if code < 0]
    table = np.zeros([DOMAIN.cardinalities[i] for i in gone])
    np.add.at(table, tuple(codes[:, gone].numpy().T), 1)
    return table


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_draws_have_the_conditional_law_of_every_row(method):
    found = impute(MODEL, rows(*MISSING), DRAWS, method=method, gibbs=ClampedGibbs(burn_in=40), seed=11)
    for number, row in enumerate(MISSING[:3]):
        table = counts(found.codes[:, number], row)
        assert_exact_law(table, conditional(row), what=f"{method}, row {number}")
        for i, code in enumerate(row):
            assert code < 0 or bool((found.codes[:, number, i] == code).all())
    with pytest.raises(AssertionError):  # control: the law given the other row's cells
        assert_exact_law(counts(found.codes[:, 0], MISSING[0]), conditional(MISSING[1]))
    assert bool((found.codes[:, 3] == 1).all())
    assert found.is_exact.tolist() == [method == "exact"] * 3 + [True]


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_most_probable_completions_are_modes(method):
    data = rows(*[(a, b, -1, -1) for a in (-1, 0, 1) for b in (-1, 0, 1, 2)])
    found = impute(MODEL, data, how="most probable", method=method)
    for row, completed in zip(data.codes.tolist(), found.codes[0].tolist(), strict=True):
        law = conditional(tuple(row))
        mode = np.unravel_index(law.argmax(), law.shape)
        assert [c for c, known in zip(completed, row, strict=True) if known < 0] == list(mode)
    wrong = impute(LogLinearEnergy(GRAPH, -MODEL.tables), data, how="most probable", method=method)  # control
    assert not torch.equal(wrong.codes, found.codes)


def test_large_models_are_filled_exactly_or_by_chains():
    generator = torch.Generator().manual_seed(1)
    theta = 0.05 * torch.randn(LARGE.num_parameters, generator=generator, dtype=torch.float64)
    model = LogLinearEnergy.from_theta(LARGE, theta)
    codes = torch.randint(0, 2, (6, 60), generator=generator)
    holed = codes.clone()
    holed[:3, :5] = -1
    holed[3:, :50] = -1
    data = Observations.from_tensor(holed, LARGE.domain)
    found = impute(model, data, 3, seed=5)
    assert found.is_exact.tolist() == [True] * 3 + [False] * 3
    assert bool(((found.codes == holed) | (holed < 0)).all()) and bool((found.codes >= 0).all())
    assert torch.equal(impute(model, data, 3, seed=5).codes, found.codes)
    assert not torch.equal(impute(model, data, 3, seed=6).codes, found.codes)
    best = impute(model, data, how="most probable")
    assert bool((model.energy(best.codes[0]) <= model.energy(found.codes).min(0).values + 1e-9).all())
    for i in range(60):  # a local maximum: no single change of a missing cell helps
        changed = best.codes[0].clone()
        changed[:, i] = 1 - changed[:, i]
        free = holed[:, i] < 0
        assert bool((model.energy(changed) >= model.energy(best.codes[0]) - 1e-9)[free].all())
    with pytest.raises(IntractableError, match="approximate method, gibbs"):
        impute(model, data, method="exact")


def test_tables_for_readers():
    data = Observations.from_tensor(torch.tensor([[0, -1, 1, 0], [1, 1, 1, 1]]), DOMAIN, counts=[2, 3])
    found = impute(MODEL, data, 2)
    assert found.observations(1).counts.tolist() == [2, 3] and not found.observations(1).has_missing
    frame = found.to_pandas()
    assert list(frame.columns) == ["imputation", "a", "b", "c", "d"] and frame["imputation"].tolist() == [1, 1, 2, 2]
    assert list(impute(MODEL, data).to_pandas().columns) == ["a", "b", "c", "d"]
    with pytest.raises(InputError, match="number: expected 0 to 1"):
        found.observations(2)
    narrow = Observations.from_tensor(torch.tensor([[0]]), DOMAIN.project(["c"]))
    assert int(impute(MODEL, narrow).codes[0, 0, 2]) == 0


@pytest.mark.fixed_seed  # a control: which ascents go in a circle is a matter of rounding
def test_the_ascent_ends_where_states_tie_but_for_rounding():
    domain = Domain.from_cardinalities([2] * 4)
    graph = InteractionHypergraph.saturated(domain)
    num_circles = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tables = {e: 50 * rng.normal(size=[2] * len(e)) for e in graph.edges[:-1]}
        total = sum(t.reshape([2 if n in e else 1 for n in domain.names]) for e, t in tables.items())
        tables[domain.names] = -np.asarray(total)  # every state has the energy 0, up to rounding
        flat = torch.from_numpy(np.concatenate([tables[e].ravel() for e in graph.edges])).float()
        model = LogLinearEnergy(graph, flat, validate=False)
        assert _ascend(model, torch.zeros(1, 4, dtype=torch.long), [0, 1, 2, 3]).shape == (1, 4)
        num_circles += _goes_in_a_circle(model)
    assert num_circles > 0  # control: in single precision some never end


def _goes_in_a_circle(model):
    """Whether the same ascent in single precision comes back to a state that it has left."""
    state, seen = torch.zeros(1, 4, dtype=torch.long), set[tuple[int, ...]]()
    while True:
        before = state.clone()
        for column, name in enumerate(model.domain.names):
            log_probs = model.block_conditional([name], state)
            if float(log_probs.max() - log_probs[0, state[0, column]]) > 1e-12:
                state[0, column] = int(log_probs.argmax())
        if torch.equal(before, state):
            return False
        key = tuple(state[0].tolist())
        if key in seen:
            return True
        seen.add(key)


def test_bad_arguments_are_refused():
    data = rows(*MISSING)
    for row_data, options, code, argument in (
        (data, {"num_imputations": 0}, "out-of-range", "num_imputations"),
        (data, {"num_imputations": 1.5}, "wrong-type", "num_imputations"),
        (rows((1, 1, 1, 1)), {"gibbs": 50}, "wrong-type", "gibbs"),  # refused though no chain is needed
        (data, {"how": "mean"}, "unknown-choice", "how"),
        (data, {"method": "mcmc"}, "unknown-choice", "method"),
    ):
        with raises(code, argument):
            impute(MODEL, row_data, **options)
    with pytest.raises(InputError, match="one most probable completion"):
        impute(MODEL, data, 2, how="most probable")


def test_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    for method in ("exact", "gibbs"):
        impute(MODEL, rows(*MISSING), method=method)
    assert torch.equal(before, torch.get_rng_state())
