"""Backward selection: known structures, what removal costs, heredity kept, checkpoints."""

import itertools
import math
from functools import reduce

import numpy as np
import pytest
import scipy.linalg
import torch
from search_models import DOMAIN, Dying, draw, same

from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.log_linear import (
    Enumeration,
    ExactTrainer,
    LogLinearEnergy,
    ScoreContext,
    SelectionOptions,
    Stopping,
    StopRule,
    parametrization,
    prune as pruned,
    select,
)
from pyro_hoim.log_linear.search.greedy import table_variance
from pyro_hoim.runs import RunOptions
from pyro_hoim.structure import InteractionHypergraph

SATURATED = InteractionHypergraph.saturated(DOMAIN)


def prune(train, validation, trainer, **flat):
    """The search with its options side by side."""
    stop, run = (
        kind(**{name: flat.pop(name) for name in names if name in flat})
        for kind, names in (
            (StopRule, ("patience", "tolerance", "max_rounds")),
            (RunOptions, ("checkpoint", "resume", "progress")),
        )
    )
    return pruned(train, validation, trainer, stop=stop, run=run, **flat)


def law_of(hypergraph, seed, scale=1.0):
    """A random law of a family, flat in schema order; Helmert's contrasts of every table are normal."""
    generator = torch.Generator().manual_seed(seed)
    theta = scale * torch.randn(hypergraph.num_parameters, generator=generator, dtype=torch.float64)
    bases = [reduce(np.kron, (scipy.linalg.helmert(n).T for n in shape)) for shape in hypergraph.edge_shapes]
    parts = [theta[where] for where in hypergraph.parameter_slices.values()]
    tables = [torch.from_numpy(basis) @ part for basis, part in zip(bases, parts, strict=True)]
    model = LogLinearEnergy(hypergraph, torch.cat(tables))
    codes = torch.cartesian_prod(*[torch.arange(n) for n in DOMAIN.cardinalities])
    return torch.softmax(-model.energy(codes), 0).numpy()


def two_parts(law, train, validation, seed):
    rng = np.random.default_rng(seed)
    return draw(law, train, rng), draw(law, validation, rng)


def trainer_of(rows, hypergraph=SATURATED, **options):
    return ExactTrainer(rows, hypergraph, **{"stopping": Stopping(1e-8), **options})


def structure(*maximal):
    return InteractionHypergraph(DOMAIN, [*maximal, *[(n,) for n in "abcd"]], closure=True)


@pytest.mark.parametrize("truth", [structure(("a", "b"), ("c", "d")), structure(("a", "b", "c"), ("c", "d"))])
def test_finds_a_known_structure(truth):
    train, validation = two_parts(law_of(truth, seed=5), 200_000, 100_000, seed=3)
    found = prune(train, validation, trainer_of(train), tolerance=1e-4)
    assert found.hypergraph == truth
    assert found.status == "stopped early"
    assert len(found.rounds) == len(SATURATED) - len(truth) + 2  # the start, one each, and the one that was too much
    assert found.rounds[-1].changed[0] in truth
    control = prune(train, validation, trainer_of(train), tolerance=10.0)
    assert control.status == "exhausted"
    assert control.hypergraph == structure()


def test_prune_after_select_removes_what_became_idle():
    truth = structure(("a", "b"), ("b", "c"), ("c", "d"))  # a chain: distant pairs depend, but not given the others
    train, validation = two_parts(law_of(truth, seed=1, scale=1.5), 100_000, 50_000, seed=4)
    trainer = trainer_of(train, structure())
    larger = select(train, validation, trainer, SelectionOptions(score="J", per_round=3, max_order=2, patience=9))
    assert len(larger.rounds[-1].changed) == 3
    found = prune(train, validation, trainer, tolerance=1e-4)
    assert found.hypergraph == truth


def test_variance_is_the_divergence_of_setting_a_table_to_zero():
    rows = draw(law_of(SATURATED, 2), 1000, np.random.default_rng(2))
    trainer = trainer_of(rows)
    generator = torch.Generator().manual_seed(1)
    for size, relative in ((1e-3, 3e-3), (1e-1, 0.3)):
        theta = size * torch.randn(SATURATED.num_parameters, generator=generator, dtype=torch.float64)
        tables = parametrization(SATURATED).to_tables(theta)
        trainer.load_state_dict({"tables": tables})
        edges = SATURATED.edges
        found = table_variance(edges, ScoreContext(rows, trainer))
        before = Enumeration().log_partition(LogLinearEnergy(SATURATED, tables)).value
        for edge, value in zip(edges, found, strict=True):
            smaller = tables.clone()
            smaller[SATURATED.term_slices[edge]] = 0.0
            after = Enumeration().log_partition(LogLinearEnergy(SATURATED, smaller)).value
            eta = Enumeration().expectations(LogLinearEnergy(SATURATED, tables))
            exact = float(eta @ (tables - smaller) - before + after)
            assert value == pytest.approx(exact, rel=relative)
        turned = table_variance([list(reversed(edge)) for edge in edges], ScoreContext(rows, trainer))
        np.testing.assert_array_equal(turned, found)  # names in any order, as lists


def test_heredity_is_kept_or_not():
    train, validation = two_parts(law_of(structure(), 3), 3000, 1000, seed=8)

    def collections(heredity, per_round=1):
        found = prune(
            train,
            validation,
            trainer_of(train, stopping=Stopping(1e-8, 5)),
            heredity=heredity,
            per_round=per_round,
            tolerance=9.0,
            ranking=lambda edges, context: np.array([float(len(e)) for e in edges]),  # would remove pairs first
        )
        present = set(SATURATED.edges)
        path = []
        for entry in found.rounds[1:]:
            present -= set(entry.changed)
            path.append(InteractionHypergraph(DOMAIN, present, hierarchical=False))
        return path

    assert all(c.is_hierarchical for c in collections(1.0))
    assert all(c.is_hierarchical for c in collections(1.0, per_round=3))
    assert not all(c.is_hierarchical for c in collections(None))
    for threshold in (0.5, 1.0):
        for c in collections(threshold, per_round=2):
            assert all(c.heredity_score(e) >= threshold for e in c.edges if len(e) > 1)
    assert not all(c.heredity_score(e) >= 0.5 for c in collections(None) for e in c.edges)
    assert all(len(c) >= 4 for c in collections(None))  # single variables stay


def test_a_killed_search_continues_bit_by_bit(tmp_path):
    train, validation = two_parts(law_of(structure(("a", "b")), 3), 3000, 1000, seed=9)
    options = {"patience": 9, "tolerance": 1e-3}
    whole = prune(train, validation, Dying(train, SATURATED, stopping=Stopping(max_iterations=6)), **options)
    assert len(whole.rounds) > 6
    dying = Dying(train, SATURATED, stopping=Stopping(max_iterations=6))
    dying.die_at = 5
    with pytest.raises(KeyboardInterrupt):
        prune(train, validation, dying, checkpoint=tmp_path / "run", **options)
    again = Dying(train, SATURATED, stopping=Stopping(max_iterations=6))
    found = prune(train, validation, again, checkpoint=tmp_path / "run", resume=True, **options)
    same(found, whole)
    assert again.calls == len(whole.rounds) - 4
    with pytest.raises(InputError, match="belongs to a run with"):
        select(train, validation, Dying(train, SATURATED), run=RunOptions(tmp_path / "run", resume=True))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ranking": 1}, InputTypeError, "ranking: expected a name or a function"),
        ({"ranking": lambda e, c: np.zeros(2)}, InputError, "ranking: expected shape"),
        ({"tolerance": -1.0}, InputError, "tolerance: expected"),
        ({"tolerance": math.inf}, InputError, "tolerance: expected"),
        ({"tolerance": math.nan}, InputError, "tolerance: expected"),
        ({"heredity": 0.0}, InputError, "heredity: expected"),
        ({"per_round": 0}, InputError, "per_round: expected"),
    ],
)
def test_bad_arguments(options, error, message):
    rows = draw(law_of(SATURATED, 1), 300, np.random.default_rng(1))
    with pytest.raises(error, match=message):
        prune(rows, rows, trainer_of(rows), **options)


def test_small_losses_do_not_add_up():
    train, validation = two_parts(law_of(SATURATED, 2, 0.15), 20_000, 20_000, seed=1)
    found = prune(train, validation, trainer_of(train), tolerance=2e-3)
    losses = [entry.validation_loss for entry in found.rounds]
    assert found.best.validation_loss <= min(losses) + 2e-3
    steps = np.diff(losses[: found.best_round + 2])
    assert (steps < 2e-3).all()  # control: no single step, not even the refused one, is above the tolerance
    assert found.rounds[-1].verdict == "worse"


def test_ties_keep_the_order_of_edges():
    rows = draw(law_of(SATURATED, 1), 300, np.random.default_rng(1))
    found = prune(
        rows,
        rows,
        trainer_of(rows, InteractionHypergraph.from_order(DOMAIN, 2), stopping=Stopping(1e-8, 3)),
        ranking=lambda edges, context: np.zeros(len(edges)),
        tolerance=9.0,
        per_round=2,
    )
    assert list(itertools.chain(*(entry.changed for entry in found.rounds))) == list(itertools.combinations("abcd", 2))
