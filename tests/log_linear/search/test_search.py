"""The search: algorithms 1 and 2 written out by brute force, known structures, stop rule, checkpoints, results."""

import functools
import itertools
import json
import math
from dataclasses import replace
from functools import reduce

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import torch

from pyro_hoim import Domain, InputError, InteractionHypergraph, IntractableError, LogLinearEnergy, Observations
from pyro_hoim.core import Loss, TrainingReport
from pyro_hoim.errors import InputTypeError, MissingDataError
from pyro_hoim.log_linear import (
    Enumeration,
    ExactTrainer,
    Gain,
    InteractionRidge,
    PseudoTrainer,
    Refined,
    SampledTrainer,
    SampledTraining,
    ScoreContext,
    SelectionOptions,
    SelectionRound,
    Stopping,
    StopRule,
    capacity_figure,
    parametrization,
    prune as pruned,
    select as searched,
)
from pyro_hoim.log_linear.search.figures import DARK, LIGHT
from pyro_hoim.log_linear.search.greedy import table_variance
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2})
SINGLES = InteractionHypergraph.from_order(DOMAIN, 1)

HEREDITIES = (0.3, 0.5, 1.0, "semi-strong")


def draw(law, size, rng, domain=DOMAIN):
    return Observations.from_table(domain, rng.multinomial(size, law.ravel()).reshape(domain.cardinalities))


class Dying(ExactTrainer):
    """Counts its rounds, and stops in the middle of one of them."""

    calls = 0
    die_at = 10**9
    error: type[BaseException] = KeyboardInterrupt

    def train(self):
        self.calls += 1
        report = super().train()
        if self.calls == self.die_at:
            raise self.error
        return report


def same(first, second):
    """Equal but for the time that was spent."""
    assert [replace(r, seconds=0.0) for r in first.rounds] == [replace(r, seconds=0.0) for r in second.rounds]
    assert (first.best_round, first.status, first.hypergraph) == (second.best_round, second.status, second.hypergraph)
    assert torch.equal(first.tables, second.tables)


def select(train, validation, trainer, *, init=None, min_score=0.0, **flat):
    """The search with its options side by side."""
    run = RunOptions(**{name: flat.pop(name) for name in ("checkpoint", "resume", "progress") if name in flat})
    return searched(train, validation, trainer, SelectionOptions(**flat), init=init, run=run, min_score=min_score)


def design(domain, edges):
    """Orthonormal pure statistics of the states, (states, parameters), and the columns of each edge."""
    columns = [np.ones((domain.num_states, 0))]
    for edge in edges:
        factors = []
        for name, n in zip(domain.names, domain.cardinalities, strict=True):
            centred = np.eye(n) - 1 / n
            factors.append(np.linalg.svd(centred)[0][:, : n - 1] if name in edge else np.ones((n, 1)))
        columns.append(functools.reduce(np.kron, factors))
    return np.concatenate(columns, 1)


def maximum_likelihood(domain, edges, counts):
    """Law of the states by Newton's method."""
    x, p = design(domain, edges), counts / counts.sum()
    theta = np.zeros(x.shape[1])
    for _ in range(100):
        q = np.exp(x @ theta)
        q /= q.sum()
        gradient = x.T @ (q - p)
        if np.abs(gradient).max(initial=0) < 1e-13:
            break
        hessian = x.T @ (q[:, None] * x) - np.outer(x.T @ q, x.T @ q)
        theta -= np.linalg.solve(hessian, gradient)
    return q


def absolute_j(domain, edge, p):
    value = 0.0
    for size in range(len(edge) + 1):
        for part in itertools.combinations(edge, size):
            margin = p.reshape(domain.cardinalities).sum(tuple(i for i, n in enumerate(domain.names) if n not in part))
            value += (-1) ** (len(edge) - size) * float((margin * np.log(margin * margin.size)).sum())
    return abs(value)


def written_out(train, validation, heredity, per_round, divide, start):
    """Algorithms 1 and 2 with ">=" in line 5 and a descending sort in line 12; the last round is the worse one."""
    domain = train.domain
    p, r = (rows.table().numpy().ravel() / rows.total_count for rows in (train, validation))
    selected, rounds, best = [frozenset(), *start], [], math.inf
    while True:
        edges = sorted((e for e in selected if e), key=lambda e: (len(e), sorted(e)))
        q = maximum_likelihood(domain, edges, p)
        error = -float(r @ np.log(q))
        rounds.append((set(selected) - {frozenset()}, error))
        if error >= best:
            return rounds
        best = error
        available = []
        for size in range(1, len(domain) + 1):
            for edge in itertools.combinations(domain.names, size):
                present = sum(frozenset(edge) - {name} in selected for name in edge)
                passes = present >= size - 1 if heredity == "semi-strong" else present / size >= heredity
                if passes and frozenset(edge) not in selected:
                    available.append(edge)
        scores = []
        for edge in available:
            score = absolute_j(domain, edge, p)
            if divide:
                score /= math.prod(domain[name].cardinality - 1 for name in edge)
            scores.append(score)
        if not available:
            return rounds
        order = sorted(range(len(available)), key=lambda i: -scores[i])
        selected += [frozenset(available[i]) for i in order[:per_round]]


def law_of(domain, edges, rng, scale=1.0):
    log_law = design(domain, edges) @ (scale * rng.normal(size=design(domain, edges).shape[1]))
    return np.exp(log_law) / np.exp(log_law).sum()


def two_parts(seed, size=4_000):
    rng = np.random.default_rng(seed)
    parts = [(list(itertools.combinations("abcd", k)), scale) for k, scale in ((1, 0.4), (2, 0.2), (3, 0.6))]
    law = np.prod([law_of(DOMAIN, edges, rng, scale) for edges, scale in parts], axis=0)
    law = 0.9 * law / law.sum() + 0.1 / 24
    return draw(law, size, rng), draw(law, size // 4, rng)


def trainer_of(rows, start=None, **options):
    hypergraph = InteractionHypergraph.from_order(rows.domain, 1) if start is None else start
    return ExactTrainer(rows, hypergraph, **{"stopping": Stopping(1e-9), **options})


@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize("heredity", HEREDITIES)
@pytest.mark.parametrize("empty", [False, True])
def test_equals_the_algorithms_written_out(heredity, divide, empty):
    train, validation = two_parts(seed=11)
    start = InteractionHypergraph(DOMAIN) if empty else None
    score = "J-per-parameter" if divide else "J"
    found = select(train, validation, trainer_of(train, start), heredity=heredity, score=score, per_round=2, init=start)
    singles = [] if empty else [frozenset(name) for name in "abcd"]
    expected = written_out(train, validation, heredity, 2, divide, singles)
    assert len(found.rounds) == len(expected) > 2
    collection = set(singles)
    for entry, (edges, error) in zip(found.rounds, expected, strict=True):
        collection |= {frozenset(edge) for edge in entry.changed}
        assert collection == edges
        assert entry.validation_loss == pytest.approx(error, abs=1e-8)
        assert entry.validation_kl == pytest.approx(error - validation.entropy(), abs=1e-8)
        assert list(entry.scores) == sorted(entry.scores, reverse=True)
    errors = [error for _, error in expected]
    assert found.best_round == int(np.argmin(errors))
    assert set(map(frozenset, found.hypergraph.edges)) == expected[found.best_round][0]


def test_settings_matter_to_the_sequence():
    # Control for the test above: neither heredity nor the division nor the number per round is without effect.
    def sequence(seed, per_round=2, **options):
        train, validation = two_parts(seed)
        options = {"heredity": 0.3, "score": "J", **options}
        rounds = select(train, validation, trainer_of(train), patience=50, per_round=per_round, **options).rounds
        return [edge for entry in rounds for edge in entry.changed]

    for options in ({"heredity": 1.0}, {"score": "J-per-parameter"}, {"per_round": 1}):
        # Not of every table: strong interactions come first in any case.
        assert any(sequence(seed) != sequence(seed, **options) for seed in (11, 12, 13, 14))


@pytest.mark.parametrize("heredity", [0.5, 1.0])
@pytest.mark.parametrize(
    "maximal", [[("a", "b"), ("c", "d")], [("a", "b", "c"), ("d",)], [("a", "b", "c"), ("c", "d")], [("a",)]]
)
def test_finds_a_known_structure(maximal, heredity):
    rng = np.random.default_rng(7)
    truth = InteractionHypergraph(DOMAIN, [*maximal, *[(n,) for n in "abcd"]], closure=True)
    law = law_of(DOMAIN, truth.edges, rng)
    train, validation = draw(law, 200_000, rng), draw(law, 100_000, rng)
    found = select(train, validation, trainer_of(train), heredity=heredity, per_round=1)
    assert (found.hypergraph, found.status) == (truth, "exhausted")
    # Control: the plain score keeps proposing, and only the validation rows end that.
    plain = select(train, validation, trainer_of(train), heredity=heredity, score="J", per_round=1, patience=99)
    assert (len(plain.rounds[-1].changed), plain.rounds[-1].num_interactions) == (1, 11)


def test_weak_heredity_takes_a_triple_without_its_pairs_and_the_model_is_lifted():
    # Exclusive or: no pair holds any information, the triple all of it.
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    law = np.array([[[4, 1], [1, 4]], [[1, 4], [4, 1]]]) / 20
    train = Observations.from_table(domain, law * 4_000)
    start = InteractionHypergraph.from_formula(domain, "a + b + c + a:b", hierarchical=False)
    found = select(train, train, trainer_of(train), heredity=0.3, init=start)
    assert ("a", "b", "c") in found.hypergraph
    assert ("a", "c") not in found.hypergraph
    model = found.log_linear()
    assert model.hypergraph == found.hypergraph.closure()
    log_z = Enumeration().log_partition(model).value
    codes = torch.cartesian_prod(*[torch.arange(2)] * 3)
    np.testing.assert_allclose((-model.energy(codes) - log_z).exp().reshape(2, 2, 2), law, atol=1e-6)
    strong = select(train, train, trainer_of(train), heredity=1.0)
    assert ("a", "b", "c") not in strong.hypergraph
    assert strong.log_linear().hypergraph == strong.hypergraph


def test_refined_score_is_the_refined_information():
    train, _ = two_parts(seed=3, size=20_000)
    trainer = trainer_of(train)
    p = train.table().numpy().ravel() / train.total_count
    singles = [(n,) for n in "abcd"]

    def divergence(edges):
        return float(p @ np.log(p / maximum_likelihood(DOMAIN, edges, p)))

    candidates = [("a", "b"), ("b", "d"), ("a", "c", "d")]
    expected = [divergence(singles) - divergence([*singles, edge]) for edge in candidates]
    before = trainer.tables.clone()
    np.testing.assert_allclose(Refined()(candidates, ScoreContext(train, trainer)), expected, atol=1e-9)
    assert torch.equal(trainer.tables, before)
    found = select(train, train, trainer, score="refined", per_round=1, max_rounds=1)
    assert found.rounds[1].scores[0] == pytest.approx(found.rounds[0].train_loss - found.rounds[1].train_loss, abs=1e-9)
    with pytest.raises(IntractableError, match="the limit is 20; use score='gain'"):
        select(train, train, trainer_of(train), score=Refined(max_states=20))


def test_a_masked_selection_knows_what_its_model_excludes(tmp_path):
    """Rows without one pair of levels: the divergences of the rounds are those of the tables with the mask."""
    counts = 2 + np.random.default_rng(4).poisson(6.0, DOMAIN.cardinalities)
    counts[1, 2] = 0
    train = Observations.from_table(DOMAIN, counts)
    validation = Observations.from_table(DOMAIN, counts + (counts > 0))
    pairs = InteractionHypergraph.from_order(DOMAIN, 2)

    def masking(masked, **options):
        trainer = PseudoTrainer(train, SINGLES, penalty=InteractionRidge(0.1), masked=masked)
        return select(train, validation, trainer, init=pairs, max_rounds=0, **options)

    def divergence(found, rows, mask):
        states = torch.cartesian_prod(*(torch.arange(n) for n in DOMAIN.cardinalities))
        energy = LogLinearEnergy(found.hypergraph, found.tables).energy(states).numpy()
        if mask:
            energy[(states[:, 0] == 1) & (states[:, 1] == 2)] = math.inf
        p = rows.table().numpy().ravel() / rows.total_count
        q = np.exp(-energy) / np.exp(-energy).sum()
        return float(p[p > 0] @ np.log(p[p > 0] / q[p > 0]))

    found, plain = masking(True), masking(False)
    assert found.best.train_kl == pytest.approx(divergence(found, train, True), rel=1e-9)
    assert found.best.validation_kl == pytest.approx(divergence(found, validation, True), rel=1e-9)
    assert divergence(found, validation, False) > found.best.validation_kl + 1e-3  # control: the tables alone
    where = found.hypergraph.term_slices["a", "b"]
    assert found.excluded.nonzero().ravel().tolist() == [where.start + 1 * 3 + 2]
    with pytest.raises(InputError, match=r"finite tables, but masking gives probability zero to 1 combinations"):
        found.log_linear()
    assert plain.excluded is None and torch.equal(plain.log_linear().tables, plain.tables)
    masking(True, checkpoint=tmp_path / "run")
    again = masking(True, checkpoint=tmp_path / "run", resume=True)
    assert torch.equal(again.excluded, found.excluded) and torch.equal(again.tables, found.tables)


# The stop rule


@pytest.mark.parametrize(
    ("losses", "errors", "patience", "verdicts", "best", "status"),
    [
        ([3, 2, 2.5], [0, 0, 0], 1, "start improved worse", 1, "stopped early"),
        ([3, 2, 2], [0, 0, 0], 1, "start improved worse", 1, "stopped early"),
        ([3, 2, 2.5, 1], [0, 0, 0, 0], 2, "start improved worse improved", 3, None),
        ([3, 2, math.inf], [0, 0, 0], 1, "start improved worse", 1, "stopped early"),
        ([3, 2, math.nan], [0, 0, 0], 1, "start improved worse", 1, "stopped early"),
        ([3, 2.95], [0.1, 0.1], 1, "start undecided", 0, None),
        ([3, 3.2], [0.1, 0.1], 1, "start undecided", 0, None),
        ([3, 3.3], [0.1, 0.1], 1, "start worse", 0, "stopped early"),
        ([3, 2.9, 2.8, 2.7], [0.1] * 4, 1, "start undecided undecided improved", 3, None),  # small steps add up
        ([3] * 6, [0.1] * 6, 1, "start" + " undecided" * 5, 0, "undecided"),
    ],
)
def test_stop_rule(losses, errors, patience, verdicts, best, status):
    train, validation = two_parts(seed=1, size=400)
    template = select(train, validation, trainer_of(train), max_rounds=0).rounds[0]
    rule, rounds, found = StopRule(patience), [], 0
    for loss, error in zip(losses, errors, strict=True):
        verdict = rule.verdict(rounds[found] if rounds else None, Loss(loss, error, "estimated"))
        rounds.append(replace(template, validation_loss=loss, validation_std_error=error, verdict=verdict))
        found = len(rounds) - 1 if verdict in ("start", "improved") else found
    assert [r.verdict for r in rounds] == verdicts.split()
    assert found == best
    assert rule.status(rounds, found) == status


@pytest.mark.parametrize(
    ("losses", "sizes", "least", "status"),
    [
        ([3, 2.5, 2.39], [0, 1, 11], 0.01, None),  # 0.011 nats for each of ten
        ([3, 2.5, 2.41], [0, 1, 11], 0.01, "little gain"),
        ([3, 2.5, 2.41], [0, 1, 11], 0.0, None),
        ([3, 2.999], [0, 1], 0.01, "little gain"),
        ([3], [0], 0.01, None),
        ([3, 2.5, 2.6, 2.39], [0, 1, 6, 11], 0.01, None),  # against the best before
        ([3, 2.5, 2.6, 2.41], [0, 1, 6, 11], 0.01, "little gain"),
    ],
)
def test_a_round_of_little_gain_for_its_size_is_the_last(losses, sizes, least, status):
    train, validation = two_parts(seed=1, size=400)
    template = select(train, validation, trainer_of(train), max_rounds=0).rounds[0]
    rounds = [
        replace(template, validation_loss=loss, num_interactions=size) for loss, size in zip(losses, sizes, strict=True)
    ]
    rule = StopRule(patience=9, least_gain=least)
    assert rule.status(rounds, len(rounds) - 1) == status
    worse = replace(rounds[-1], validation_loss=9.0, verdict="worse")
    assert rule.status([*rounds, worse], len(rounds) - 1) is None


def test_limits_little_gain_and_divergence_end_the_search():
    train, validation = two_parts(seed=2)
    options = {"score": "J", "patience": 99}
    assert len(select(train, validation, trainer_of(train), max_rounds=2, **options).rounds) == 3
    found = select(train, validation, trainer_of(train), max_order=2, **options)
    assert (found.status, found.rounds[-1].num_interactions) == ("exhausted", 6)
    known = [("b", "a"), ("a", "b", "c")]
    found = select(train, validation, trainer_of(train), candidates=known, heredity=None, **options)
    assert [set(r.changed) for r in found.rounds[1:]] == [{("a", "b"), ("a", "b", "c")}]
    found = select(train, validation, trainer_of(train), min_score=math.inf, **options)
    assert (found.status, len(found.rounds)) == ("exhausted", 1)
    options = {"score": "J", "patience": 99, "per_round": 1}
    found = select(train, validation, trainer_of(train), least_gain=1e6, **options)
    assert (found.status, len(found.rounds), found.best_round) == ("little gain", 2, 1)
    whole = select(train, validation, trainer_of(train), least_gain=0.0, **options)
    assert whole.status == "exhausted" and len(whole.rounds) > 2
    with raises("out-of-range", "least_gain"):
        select(train, validation, trainer_of(train), least_gain=-1.0)
    trainer = Diverging(train, SINGLES)
    found = select(train, validation, trainer, score="J", per_round=1, patience=99)
    assert (found.status, found.rounds[-1].training_status) == ("diverged", "diverged")
    assert found.rounds[-1].num_interactions == 3


def test_a_function_is_a_score():
    train, validation = two_parts(seed=2)
    seen = []

    def alphabetical(candidates, context):
        seen.append((len(candidates), context.hypergraph))
        return np.array([-float("abcd".index(edge[0])) for edge in candidates])

    found = select(
        train, validation, trainer_of(train), score=alphabetical, per_round=2, min_score=-math.inf, max_rounds=1
    )
    assert found.rounds[1].changed == (("a", "b"), ("a", "c"))  # of equal scores the earlier edge comes first
    assert seen == [(6, SINGLES)]
    assert "alphabetical" in found.settings["score"]


class Pretending(ExactTrainer):
    """An exact trainer that reports another kind of loss."""

    def loss(self, rows):
        return Loss(super().loss(rows).value + 100.0, 0.0, "pseudo-likelihood")


def test_divergences_are_those_of_the_likelihood_whatever_the_loss():
    train, validation = two_parts(seed=2)
    honest = select(train, validation, trainer_of(train), max_rounds=2)
    found = select(train, validation, Pretending(train, SINGLES, stopping=Stopping(1e-9)), max_rounds=2)
    for first, second in zip(honest.rounds, found.rounds, strict=True):
        assert second.train_kl == pytest.approx(first.train_kl, abs=1e-9)
        assert second.validation_kl == pytest.approx(first.validation_kl, abs=1e-9)
        assert second.validation_loss == pytest.approx(first.validation_loss + 100, abs=1e-9)

    class Unknown(Pretending):
        def log_partition(self):
            return None

    found = select(train, validation, Unknown(train, SINGLES), max_rounds=1)
    assert found.rounds[1].validation_kl is None
    assert found.capacity_curve()["validation_kl"].isna().all()


class Diverging(ExactTrainer):
    def train(self):
        report = super().train()
        return TrainingReport("diverged", 1, 1.0) if len(self.hypergraph) > 6 else report


# Checkpoints


class Killed(BaseException):
    """Stands in for the end of a process: nothing may catch it."""


def dying(train, **options):
    trainer = Dying(train, SINGLES, penalty=InteractionRidge(0.1), stopping=Stopping(max_iterations=7))
    for name, value in options.items():
        setattr(trainer, name, value)
    return trainer


@pytest.mark.parametrize("error", [Killed, KeyboardInterrupt])
@pytest.mark.parametrize("die_at", [2, 4])
def test_a_killed_search_continues_bit_by_bit(tmp_path, error, die_at):
    train, validation = two_parts(seed=5)
    options = {"score": "J", "per_round": 1, "patience": 3, "heredity": 0.3}
    whole = select(train, validation, dying(train), **options)
    assert len(whole.rounds) > 5
    path = tmp_path / "run"
    with pytest.raises(error):
        select(train, validation, dying(train, die_at=die_at, error=error), checkpoint=path, **options)
    with pytest.raises(InputError, match="pass resume=True"):
        select(train, validation, dying(train), checkpoint=path, **options)
    resumed = dying(train)
    same(select(train, validation, resumed, checkpoint=path, resume=True, **options), whole)
    assert resumed.calls == len(whole.rounds) - die_at + 1  # finished rounds are not made again
    again = dying(train)
    same(select(train, validation, again, checkpoint=path, resume=True, **options), whole)
    assert again.calls == 0


SHORT = SampledTraining(num_chains=200, num_iterations=20, refresh_temperatures=20, margin_states=1000, seed=3)


def sampled(rows):
    return SampledTrainer(rows, SINGLES, settings=SHORT)


def by_pseudo_likelihood(rows):
    return PseudoTrainer(rows, SINGLES, stopping=Stopping(max_iterations=8))


@pytest.mark.parametrize(
    ("make", "kind"), [(dying, "exact"), (sampled, "estimated"), (by_pseudo_likelihood, "pseudo-likelihood")]
)
def test_a_longer_search_continues_a_shorter_one_of_any_trainer(tmp_path, make, kind):
    train, validation = two_parts(seed=5)
    options = {"per_round": 1, "patience": 9}
    whole = select(train, validation, make(train), max_rounds=4, **options)
    assert (len(whole.rounds), whole.rounds[0].loss_kind) == (5, kind)
    assert (whole.rounds[-1].validation_std_error > 0) == (make is sampled)
    assert whole.rounds[-1].train_kl < whole.rounds[0].train_kl
    path = tmp_path / "run"
    select(train, validation, make(train), max_rounds=2, checkpoint=path, **options)
    same(select(train, validation, make(train), max_rounds=4, checkpoint=path, resume=True, **options), whole)


def test_a_masked_model_is_infinitely_far_from_rows_it_excludes(tmp_path):
    train = Observations(DOMAIN, torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]] * 5))
    validation = Observations(DOMAIN, torch.tensor([[0, 2, 0, 0], [1, 1, 1, 1]]))  # no training row has level 2 of b

    def masking(masked):
        return PseudoTrainer(train, SINGLES, masked=masked, penalty=InteractionRidge(1.0))

    path = tmp_path / "run"
    (first,) = select(train, validation, masking(True), max_rounds=0, checkpoint=path).rounds
    assert first.validation_loss == first.validation_kl == math.inf
    assert math.isfinite(first.train_kl)
    (control,) = select(train, validation, masking(False), max_rounds=0).rounds
    assert math.isfinite(control.validation_kl)
    with pytest.raises(InputError, match="masked"):
        select(train, validation, masking(False), max_rounds=0, checkpoint=path, resume=True)


def test_another_run_is_refused(tmp_path):
    train, validation = two_parts(seed=5)
    path = tmp_path / "run"
    options = {"score": "J", "per_round": 1, "max_rounds": 1, "checkpoint": path}
    select(train, validation, dying(train), **options)
    for change in ({"heredity": 0.5}, {"score": "gain"}, {"per_round": 2}, {"patience": 2}, {"max_order": 2}):
        with pytest.raises(InputError, match=next(iter(change))):
            select(train, validation, dying(train), **{**options, **change}, resume=True)
    stronger = dying(train)
    stronger.penalty = InteractionRidge(0.2)
    for rows, trainer, message in (
        (train, dying(train), "another validation data"),
        (validation, stronger, "trainer penalty"),
        (validation, trainer_of(train), "trainer"),
    ):
        with pytest.raises(InputError, match=message):
            select(train, rows, trainer, **options, resume=True)
    with raises("conflict", "resume"):
        select(train, validation, dying(train), resume=True)


# Results


def test_capacity_curve_words_and_json_of_rounds(capsys):
    train, validation = two_parts(seed=5)
    found = select(train, validation, trainer_of(train), score="J", per_round=2, progress=True)
    output = capsys.readouterr()
    assert output.out == ""
    assert "interactions, validation" in output.err
    curve = found.capacity_curve()
    assert (list(curve.index), curve["is_best"].sum()) == (list(range(len(found.rounds))), 1)
    assert curve["validation_kl"].idxmin() == found.best_round == curve.index[curve["is_best"]][0]
    assert (curve["train_kl"].diff().dropna() < 0).all()
    assert curve["num_parameters"].iloc[found.best_round] == found.hypergraph.num_parameters
    assert f"{found.best.num_interactions} interactions" in repr(found)
    model = LogLinearEnergy(found.hypergraph, found.tables)
    log_z = float(Enumeration().log_partition(model).value)
    loss = log_z + float(validation.counts @ model.energy(validation.codes)) / 1000
    assert loss == pytest.approx(found.best.validation_loss, abs=1e-10)
    rounds = select(train, validation, trainer_of(train), score="J", heredity=0.3, per_round=3).rounds
    rounds = (*rounds[:-1], replace(rounds[-1], validation_loss=math.inf))
    kept = json.loads(json.dumps([entry.to_json() for entry in rounds], allow_nan=False))
    assert tuple(map(SelectionRound.from_json, kept)) == rounds


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"heredity": 2}, InputError, "heredity: expected"),
        ({"score": "best"}, InputError, "score: expected 'J'"),
        ({"score": 3}, InputTypeError, "score: expected a name or a function"),
        ({"score": lambda c, x: np.zeros(1)}, InputError, r"score: expected shape \(6,\)"),
        ({"score": lambda c, x: np.full(len(c), math.nan)}, InputError, "received NaN for a:b"),
        ({"per_round": 0}, InputError, "per_round: expected at least 1"),
        ({"per_round": 1.5}, InputTypeError, "per_round: expected a whole number"),
        ({"patience": 0}, InputError, "patience: expected at least 1"),
        ({"patience": 1.5}, InputTypeError, "patience"),
        ({"max_rounds": -1}, InputError, "max_rounds: expected at least 0"),
        ({"min_score": math.nan}, InputError, "min_score: expected a number"),
        ({"candidates": "ab"}, InputTypeError, "candidates: expected sets of names"),
        ({"init": [("a",)]}, InputTypeError, "init: expected an InteractionHypergraph"),
        ({"init": InteractionHypergraph(Domain.from_cardinalities([2]))}, InputError, "init: expected a collection"),
    ],
)
def test_bad_arguments(options, error, message):
    train, validation = two_parts(seed=5, size=400)
    with pytest.raises(error, match=message):
        select(train, validation, trainer_of(train), **options)


def test_bad_rows():
    train, validation = two_parts(seed=5, size=400)
    other = Observations.from_table(Domain.from_cardinalities([2]), [1, 1])
    trainer = trainer_of(train)
    for wrong, code, argument in (
        ((train, other, trainer), "other-domain", "validation"),
        ((validation, validation, trainer), "other-domain", "train"),
        ((train, validation, "exact"), "wrong-type", "trainer"),
        ((train, validation.table(), trainer), "wrong-type", "validation"),
        ((train, validation.rows(torch.arange(0)), trainer), "empty", "validation"),
    ):
        with raises(code, argument):
            select(*wrong)
    missing = Observations.from_tensor(torch.tensor([[0, 0, 0, -1]]), DOMAIN)
    with pytest.raises(MissingDataError, match="validation: 1 missing"):
        select(train, missing, trainer_of(train))


def test_gain_needs_no_fit_of_candidates():
    train, validation = two_parts(seed=5)
    trainer = dying(train)
    found = select(train, validation, trainer, score=Gain(search_cost=False), per_round=1)
    assert trainer.calls == len(found.rounds) > 2


# Backward selection


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


def random_law(hypergraph, seed, scale=1.0):
    """A random law of a family, flat in schema order; Helmert's contrasts of every table are normal."""
    generator = torch.Generator().manual_seed(seed)
    theta = scale * torch.randn(hypergraph.num_parameters, generator=generator, dtype=torch.float64)
    bases = [reduce(np.kron, (scipy.linalg.helmert(n).T for n in shape)) for shape in hypergraph.edge_shapes]
    parts = [theta[where] for where in hypergraph.parameter_slices.values()]
    tables = [torch.from_numpy(basis) @ part for basis, part in zip(bases, parts, strict=True)]
    model = LogLinearEnergy(hypergraph, torch.cat(tables))
    codes = torch.cartesian_prod(*[torch.arange(n) for n in DOMAIN.cardinalities])
    return torch.softmax(-model.energy(codes), 0).numpy()


def parts_of(law, train, validation, seed):
    rng = np.random.default_rng(seed)
    return draw(law, train, rng), draw(law, validation, rng)


def trainer_from(rows, hypergraph=SATURATED, **options):
    return ExactTrainer(rows, hypergraph, **{"stopping": Stopping(1e-8), **options})


def structure(*maximal):
    return InteractionHypergraph(DOMAIN, [*maximal, *[(n,) for n in "abcd"]], closure=True)


@pytest.mark.parametrize("truth", [structure(("a", "b"), ("c", "d")), structure(("a", "b", "c"), ("c", "d"))])
def test_pruning_finds_a_known_structure(truth):
    train, validation = parts_of(random_law(truth, seed=5), 200_000, 100_000, seed=3)
    found = prune(train, validation, trainer_from(train), tolerance=1e-4)
    assert (found.hypergraph, found.status) == (truth, "stopped early")
    assert len(found.rounds) == len(SATURATED) - len(truth) + 2  # the start, one each, and the one that was too much
    assert found.rounds[-1].changed[0] in truth
    control = prune(train, validation, trainer_from(train), tolerance=10.0)
    assert (control.status, control.hypergraph) == ("exhausted", structure())


def test_prune_after_select_removes_what_became_idle():
    truth = structure(("a", "b"), ("b", "c"), ("c", "d"))  # a chain: distant pairs depend, but not given the others
    train, validation = parts_of(random_law(truth, seed=1, scale=1.5), 100_000, 50_000, seed=4)
    trainer = trainer_from(train, structure())
    larger = searched(train, validation, trainer, SelectionOptions(score="J", per_round=3, max_order=2, patience=9))
    assert len(larger.rounds[-1].changed) == 3
    found = prune(train, validation, trainer, tolerance=1e-4)
    assert found.hypergraph == truth


def test_variance_is_the_divergence_of_setting_a_table_to_zero():
    rows = draw(random_law(SATURATED, 2), 1000, np.random.default_rng(2))
    trainer = trainer_from(rows)
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
    train, validation = parts_of(random_law(structure(), 3), 3000, 1000, seed=8)

    def collections(heredity, per_round=1):
        found = prune(
            train,
            validation,
            trainer_from(train, stopping=Stopping(1e-8, 5)),
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


def test_killed_pruning_continues_bit_by_bit(tmp_path):
    train, validation = parts_of(random_law(structure(("a", "b")), 3), 3000, 1000, seed=9)
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
        searched(train, validation, Dying(train, SATURATED), run=RunOptions(tmp_path / "run", resume=True))


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
def test_bad_arguments_of_pruning(options, error, message):
    rows = draw(random_law(SATURATED, 1), 300, np.random.default_rng(1))
    with pytest.raises(error, match=message):
        prune(rows, rows, trainer_from(rows), **options)


def test_small_losses_do_not_add_up():
    train, validation = parts_of(random_law(SATURATED, 2, 0.15), 20_000, 20_000, seed=1)
    found = prune(train, validation, trainer_from(train), tolerance=2e-3)
    losses = [entry.validation_loss for entry in found.rounds]
    assert found.best.validation_loss <= min(losses) + 2e-3
    steps = np.diff(losses[: found.best_round + 2])
    assert (steps < 2e-3).all()  # control: no single step, not even the refused one, is above the tolerance
    assert found.rounds[-1].verdict == "worse"


def test_ties_keep_the_order_of_edges():
    rows = draw(random_law(SATURATED, 1), 300, np.random.default_rng(1))
    found = prune(
        rows,
        rows,
        trainer_from(rows, InteractionHypergraph.from_order(DOMAIN, 2), stopping=Stopping(1e-8, 3)),
        ranking=lambda edges, context: np.zeros(len(edges)),
        tolerance=9.0,
        per_round=2,
    )
    assert list(itertools.chain(*(entry.changed for entry in found.rounds))) == list(itertools.combinations("abcd", 2))


# The capacity figure


def curve(validation, best):
    number = np.arange(len(validation))
    return pd.DataFrame(
        {
            "num_interactions": 4 + 2 * number,
            "num_parameters": 10 * 2.0**number,
            "train_kl": 4.0 / (1 + number),
            "validation_kl": validation,
            "is_best": number == best,
        }
    )


def test_panels_hold_the_curves():
    curves = {"weak": curve([4.0, 2.0, np.inf, 1.0], 3), "strong": curve([4.0, 3.0, 3.5], 1)}
    figure = capacity_figure(curves, references={"all pairs": 2.5}, columns=1)
    assert [axes.get_title() for axes in figure.axes] == ["weak", "strong"]
    for axes, frame in zip(figure.axes, curves.values(), strict=True):
        lines = {line.get_color(): line for line in axes.get_lines()}
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        np.testing.assert_array_equal(lines[DARK].get_ydata(), frame["train_kl"])
        shown = np.isfinite(frame["validation_kl"])
        np.testing.assert_array_equal(lines[LIGHT].get_ydata(), frame["validation_kl"][shown])
        np.testing.assert_array_equal(lines[LIGHT].get_xdata(), frame["num_parameters"][shown])
        assert [text.get_text() for text in axes.texts] == [f"{frame['validation_kl'][frame['is_best']].iloc[0]:.3f}"]
        assert 2.5 in [line.get_ydata()[0] for line in axes.get_lines()]
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "all pairs"


@pytest.mark.parametrize(("kind", "label"), [("exact", "NLL"), ("pseudo-likelihood", "pseudo-NLL")])
def test_losses_in_place_of_divergences(kind, label):
    frame = curve([np.nan, np.nan], 1).assign(train_loss=[9.0, 7.0], validation_loss=[9.5, 8.0], loss_kind=kind)
    (axes,) = capacity_figure({"one": frame}, measure="loss").axes
    lines = {line.get_color(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(lines[DARK].get_ydata(), [9.0, 7.0])
    np.testing.assert_array_equal(lines[LIGHT].get_ydata(), [9.5, 8.0])
    assert axes.get_ylabel() == f"{label}, nats per row" and axes.texts[0].get_text() == "8.000"


def test_nothing_to_draw():
    with pytest.raises(InputError, match="at least one capacity curve"):
        capacity_figure({})
    with pytest.raises(InputError, match="'x' has no positive, finite"):
        capacity_figure({"x": curve([np.nan, np.nan], 0)})


def test_rounds_of_one_size_stand_beside_the_line():
    frame = curve([4.0, 3.0, 2.0, 1.0], 3)
    frame["num_parameters"] = [10.0, 30.0, 30.0, 90.0]
    (axes,) = capacity_figure({"one": frame}).axes
    for colour, name in ((DARK, "train_kl"), (LIGHT, "validation_kl")):
        line, beside = (line for line in axes.get_lines() if line.get_color() == colour)
        assert (
            line.get_xdata().tolist() == [10, 30, 90] and line.get_ydata().tolist() == frame[name][[0, 2, 3]].tolist()
        )
        assert (beside.get_xdata().tolist(), beside.get_ydata().tolist()) == ([30], [frame[name][1]])
        assert beside.get_linestyle() != "-" or len(beside.get_xdata()) == 1
    assert axes.get_xticks().tolist() == [10, 30, 90]


def test_one_size_and_a_narrow_range_have_ticks():
    frame = curve([0.52, 0.5], 1).assign(num_parameters=40.0, train_kl=[0.51, 0.49])
    figure = capacity_figure({"one": frame})
    figure.canvas.draw()
    (axes,) = figure.axes
    assert axes.get_xticks().tolist() == [40] and axes.get_xlim() == (20, 80)
    low, high = axes.get_ylim()
    assert sum(low < tick < high for tick in axes.get_yticks()) >= 3
    assert not len(axes.xaxis.get_minorticklocs()) and not len(axes.yaxis.get_minorticklocs())
    wide = capacity_figure({"one": curve([4.0, 3.0, 2.0, 1.0, 0.5], 4)}).axes[0]
    assert {10, 20, 50, 100} <= set(wide.get_xticks().tolist())  # control: decades have round ticks
