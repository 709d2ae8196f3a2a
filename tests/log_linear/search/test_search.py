"""The search: algorithms 1 and 2 written out by brute force, known structures, stop rule, checkpoints, results."""

import functools
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from search_models import DOMAIN, Dying, draw, same

from pyro_hoim.core import Loss, TrainingReport
from pyro_hoim.data import Observations
from pyro_hoim.errors import InputError, InputTypeError, IntractableError, MissingDataError
from pyro_hoim.log_linear import (
    Enumeration,
    ExactTrainer,
    Gain,
    InteractionRidge,
    LogLinearEnergy,
    PseudoTrainer,
    Refined,
    SampledTrainer,
    SampledTraining,
    ScoreContext,
    SelectionOptions,
    Stopping,
    select as searched,
)
from pyro_hoim.log_linear.search.rounds import SelectionRound, StopRule
from pyro_hoim.runs import RunOptions
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

SINGLES = InteractionHypergraph.from_order(DOMAIN, 1)

HEREDITIES = (0.3, 0.5, 1.0, "semi-strong")


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
    assert found.hypergraph == truth
    assert found.status == "exhausted"
    # Control: the plain score keeps proposing, and only the validation rows end that.
    plain = select(train, validation, trainer_of(train), heredity=heredity, score="J", per_round=1, patience=99)
    assert len(plain.rounds[-1].changed) == 1
    assert plain.rounds[-1].num_interactions == 11


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

    def searched(masked, **options):
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

    found, plain = searched(True), searched(False)
    assert found.best.train_kl == pytest.approx(divergence(found, train, True), rel=1e-9)
    assert found.best.validation_kl == pytest.approx(divergence(found, validation, True), rel=1e-9)
    assert divergence(found, validation, False) > found.best.validation_kl + 1e-3  # control: the tables alone
    where = found.hypergraph.term_slices["a", "b"]
    assert found.excluded.nonzero().ravel().tolist() == [where.start + 1 * 3 + 2]
    with pytest.raises(InputError, match=r"finite tables, but masking gives probability zero to 1 combinations"):
        found.log_linear()
    assert plain.excluded is None and torch.equal(plain.log_linear().tables, plain.tables)
    searched(True, checkpoint=tmp_path / "run")
    again = searched(True, checkpoint=tmp_path / "run", resume=True)
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


def test_a_search_ends_with_little_gain_where_asked():
    train, validation = two_parts(seed=2)
    options = {"score": "J", "patience": 99, "per_round": 1}
    found = select(train, validation, trainer_of(train), least_gain=1e6, **options)
    assert (found.status, len(found.rounds), found.best_round) == ("little gain", 2, 1)
    whole = select(train, validation, trainer_of(train), least_gain=0.0, **options)
    assert whole.status == "exhausted" and len(whole.rounds) > 2
    with raises("out-of-range", "least_gain"):
        select(train, validation, trainer_of(train), least_gain=-1.0)


def test_limits_end_the_search():
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


def test_divergence_ends_the_search():
    train, validation = two_parts(seed=2)
    trainer = Diverging(train, SINGLES)
    found = select(train, validation, trainer, score="J", per_round=1, patience=99)
    assert found.status == "diverged"
    assert found.rounds[-1].training_status == "diverged"
    assert found.rounds[-1].num_interactions == 3


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


SHORT = SampledTraining(num_chains=200, num_iterations=40, refresh_temperatures=50, margin_states=2000, seed=3)


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
    assert len(whole.rounds) == 5
    assert whole.rounds[0].loss_kind == kind
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


def test_rounds_survive_json():
    train, validation = two_parts(seed=5)
    rounds = select(train, validation, trainer_of(train), score="J", heredity=0.3, per_round=3).rounds
    rounds = (*rounds[:-1], replace(rounds[-1], validation_loss=math.inf))
    kept = json.loads(json.dumps([entry.to_json() for entry in rounds], allow_nan=False))
    assert tuple(map(SelectionRound.from_json, kept)) == rounds


def test_capacity_curve_and_words(capsys):
    train, validation = two_parts(seed=5)
    found = select(train, validation, trainer_of(train), score="J", per_round=2, progress=True)
    output = capsys.readouterr()
    assert output.out == ""
    assert "interactions, validation" in output.err
    curve = found.capacity_curve()
    assert list(curve.index) == list(range(len(found.rounds)))
    assert curve["is_best"].sum() == 1
    assert curve["validation_kl"].idxmin() == found.best_round == curve.index[curve["is_best"]][0]
    assert (curve["train_kl"].diff().dropna() < 0).all()
    assert curve["num_parameters"].iloc[found.best_round] == found.hypergraph.num_parameters
    assert f"{found.best.num_interactions} interactions" in repr(found)
    model = LogLinearEnergy(found.hypergraph, found.tables)
    log_z = float(Enumeration().log_partition(model).value)
    loss = log_z + float(validation.counts @ model.energy(validation.codes)) / 1000
    assert loss == pytest.approx(found.best.validation_loss, abs=1e-10)


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
