"""Learning a whole model: what it finds in laws that are known, against exact likelihoods, and how it goes on."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import Auto, Domain, InputError, InteractionHypergraph, LogLinearEnergy, Observations, Variable
from pyro_hoim.core.operations import row_log_likelihood
from pyro_hoim.data import ColumnGroup, JoinedColumns, join_columns
from pyro_hoim.data.frames import check_columns
from pyro_hoim.errors import DataWarning, InputTypeError, UnknownNameError
from pyro_hoim.log_linear import (
    ExactTrainer,
    Gain,
    InteractionRidge,
    Regularisation,
    SampledTraining,
    ScoreContext,
    SelectionOptions,
    fit,
    fit_collection,
    learn as learned_from,
    load_model,
)
from pyro_hoim.log_linear.learning import _session as _trainers
from pyro_hoim.log_linear.learning.learn import columns_joined
from pyro_hoim.log_linear.search.scores import GainEstimate
from pyro_hoim.runs import RunOptions, checkpoint
from pyro_hoim.runs.checkpoint import TimeUp
from pyro_hoim.study.learned import analyse_learned
from pyro_hoim.testing import raises

from studies.complexity import structure_recovery

KINDS = {
    "search": (
        SelectionOptions,
        ("heredity", "score", "candidates", "max_order", "per_round", "max_rounds", "time_limit"),
    ),
    "regularisation": (Regularisation, ("penalty", "smoothness", "evidence_rounds")),
    "run": (RunOptions, ("checkpoint", "resume", "progress")),
}


def learn(train, validation, **flat):
    """Learning with its options side by side."""
    grouped = {
        argument: kind(**{name: flat.pop(name) for name in names if name in flat})
        for argument, (kind, names) in KINDS.items()
    }
    return learned_from(train, validation, **grouped, **flat)


SMALL = {
    "trainer": "sampled",
    "per_round": 2,
    "evidence_rounds": 1,
    "max_rounds": 4,
    "sampling": SampledTraining(num_chains=500, num_iterations=50, refresh_temperatures=30, loss_standard_error=0.05),
}
Parts = tuple[Observations, Observations, Observations]
PLANTED = [("a", "b"), ("c", "d"), ("a", "c", "e")]


def law(seed=0, strength=0.7):
    """Six ternary variables with two pairs and one triple that has no pair inside."""
    domain = Domain.from_cardinalities(dict.fromkeys("abcdef", 3))
    graph = InteractionHypergraph(domain, [(n,) for n in domain.names] + PLANTED, hierarchical=False)
    generator = torch.Generator().manual_seed(seed)
    tables = strength * torch.randn(graph.num_terms, dtype=torch.float64, generator=generator)
    for edge, where in graph.term_slices.items():
        table = tables[where].reshape([3] * len(edge))
        for axis in range(len(edge)):
            table = table - table.mean(axis, keepdim=True)
        tables[where] = table.reshape(-1)
    return LogLinearEnergy(graph, tables)


def draw(model, number, seed):
    """Independent rows of a small law, drawn from its table of probabilities."""
    shape = model.domain.cardinalities
    probs = Auto().marginal(model, model.domain.names).reshape(-1).numpy()
    cells = np.random.default_rng(seed).choice(len(probs), size=number, p=probs / probs.sum())
    return Observations.from_tensor(torch.from_numpy(np.stack(np.unravel_index(cells, shape), 1)), model.domain)


def divergence(truth, model):
    """D(truth || model) by summing over all states."""
    p, q = (Auto().marginal(m, truth.domain.names).reshape(-1) for m in (truth, model))
    return float((p * (p.log() - q.log())).sum())


@pytest.fixture(scope="module")
def truth():
    return law()


@pytest.fixture(scope="module")
def parts(truth):
    return tuple(draw(truth, n, seed) for n, seed in ((3000, 1), (1500, 2), (3000, 3)))


@pytest.fixture(scope="module")
def learned(parts):
    return learn(parts[0], parts[1], per_round=3)


def test_structure_strengths_and_evidence_are_those_of_what_was_planted(learned, truth):
    found = analyse_learned(replace(learned, structure=None), {"train": None}).interactions
    strengths = {tuple(line["edge"]): line["strength"] for line in found}
    planted = [strengths.pop(edge) for edge in PLANTED]
    assert max(strengths.values()) < 0.25 * min(planted)
    worth = {tuple(line["edge"]): line["removal"] for line in found}
    assert worth["a", "c"].value >= worth["a", "c", "e"].value - 1e-6  # the pair goes with the triple
    idle = [v.value for e, v in worth.items() if not any(set(e) <= set(p) or set(p) <= set(e) for p in PLANTED)]
    assert max(idle) < 0.1 * min(worth[e].value for e in PLANTED)
    structure = learned.structure
    assert structure is not None
    assert structure_recovery(structure.hypergraph, truth.hypergraph) == (1.0, 1.0, 1.0)
    assert divergence(truth, structure.energy) < divergence(truth, learned.energy)
    # Control: without tests the surplus stays, although its tables are near zero.
    assert structure_recovery(learned.hypergraph, truth.hypergraph).precision < 0.2
    planted = [learned.ridge.strength(e) for e in PLANTED]
    idle = [learned.ridge.strength(e) for e in learned.hypergraph.edges if len(e) == 2 and e not in PLANTED]
    assert max(planted) < 20 < np.median(idle)


def test_learned_law_is_near_the_true_one(learned, truth):
    """A fit of the true structure by maximum likelihood has an expected divergence of half a parameter per row."""
    own = divergence(truth, learned.energy)
    expected = truth.hypergraph.num_parameters / (2 * learned.num_rows)
    assert own < 2 * expected
    # Control: pairs alone cannot reach it, whatever their parameters.
    pairs = learn(*(draw(truth, 3000, s) for s in (1, 2)), max_order=2)
    assert divergence(truth, pairs.energy) > 5 * expected


def test_scores_against_enumeration(learned, parts):
    test = parts[2]
    table = Auto().marginal(learned.energy, test.domain.names).log()
    nll = -float(table[tuple(test.codes.T)].mean())
    assert learned.row_scores(test).nll == pytest.approx(nll, rel=1e-10)
    assert learned.row_scores(test).kl == pytest.approx(nll - test.entropy(), rel=1e-8)
    smoothed = [(np.bincount(parts[0].codes[:, i], minlength=3) + 0.5) / 3001.5 for i in range(6)]
    independent = -sum(np.log(q)[test.codes[:, i]].mean() for i, q in enumerate(smoothed))
    assert learned.gain(test) == pytest.approx(independent - nll, rel=1e-10)


def test_independent_rows_teach_no_interaction():
    """Idle tables that are not held back lose about half a parameter per training row."""
    domain = Domain.from_cardinalities(dict.fromkeys("abcd", 3))
    rng = np.random.default_rng(5)
    train, validation, test = (
        Observations.from_tensor(torch.from_numpy(rng.integers(0, 3, (n, 4))), domain) for n in (400, 400, 20_000)
    )
    cost = 24 / (2 * 400)
    assert -learn(train, validation).gain(test) < 0.25 * cost
    pairs = InteractionHypergraph.from_order(domain, 2)
    free = fit_collection(train, pairs, regularisation=Regularisation(InteractionRidge(1e-6), evidence_rounds=0))
    assert -free.gain(test) > 0.5 * cost


def test_sampled_training_agrees_with_exact(learned, parts):
    graph = learned.hypergraph
    kept = Regularisation(learned.ridge, evidence_rounds=0)
    other, exact = (fit_collection(parts[0], graph, trainer=name, regularisation=kept) for name in ("sampled", "exact"))
    assert other.log_partition.kind != "exact" and float(other.log_partition.std_error) <= 0.02
    assert other.log_partition.sandwich is not None
    log_z = float(Auto().log_partition(other.energy).value)
    assert abs(float(other.log_partition.value) - log_z) < 5 * float(other.log_partition.std_error) + 1e-3
    assert divergence(exact.energy, other.energy) < 2e-3


def test_refit_takes_both_parts(parts):
    train, validation, test = (p.rows(torch.arange(400)) for p in parts)
    once = learn(train, validation, per_round=3)
    twice = learn(train, validation, per_round=3, refit=True)
    assert twice.hypergraph == once.hypergraph and twice.ridge == once.ridge
    assert (once.num_rows, twice.num_rows) == (400, 800)
    assert twice.row_scores(test).nll < once.row_scores(test).nll


def test_refit_continues_a_run_without(truth, tmp_path):
    rows = [draw(truth, n, s) for n, s in ((300, 1), (200, 2))]
    options = {"per_round": 3, "trainer": "exact"}
    once = learn(*rows, **options, checkpoint=tmp_path)
    assert once.structure.hypergraph != once.hypergraph
    again = learn(*rows, **options, refit=True, checkpoint=tmp_path, resume=True)
    whole = learn(*rows, **options, refit=True)
    assert torch.equal(again.tables, whole.tables)
    assert torch.equal(again.structure.tables, whole.structure.tables)


def test_model_file_holds_the_same_law(learned, tmp_path):
    learned.save(tmp_path / "model.safetensors", {"data": "planted"})
    file = load_model(tmp_path / "model.safetensors")
    assert file.hypergraph.is_hierarchical
    back = LogLinearEnergy.from_theta(file.hypergraph, file.theta, file.coding)
    assert torch.allclose(back.tables, learned.energy.tables, rtol=0, atol=1e-12)  # centred once more
    assert [tuple(e) for e in file.info["learned_edges"]] == list(learned.hypergraph.edges)
    assert InteractionRidge.from_json(file.info["ridge"]) == learned.ridge
    assert len(file.info["selection"]["rounds"]) == len(learned.selection.rounds)


def test_collection_without_subsets_is_saved_as_its_closure(parts, tmp_path):
    found = learn(parts[0], parts[1], candidates=[("a", "b"), ("a", "c", "e")], heredity=1 / 3)
    lone = found.hypergraph
    assert ("a", "b") in lone and ("a", "c", "e") not in lone  # no facet of the triple may join
    free = fit_collection(parts[0], lone.add_edges([("a", "c", "e")], hierarchical=False))
    assert not free.hypergraph.is_hierarchical
    free.save(tmp_path / "model.safetensors")
    file = load_model(tmp_path / "model.safetensors")
    assert file.hypergraph == free.hypergraph.closure()
    back = LogLinearEnergy.from_theta(file.hypergraph, file.theta, file.coding)
    assert divergence(back, LogLinearEnergy(free.hypergraph, free.tables)) == pytest.approx(0, abs=1e-12)


def test_capacity_curve_starts_at_single_variables(learned):
    selection = learned.selection
    assert selection is not None
    curve = selection.capacity_curve()
    assert curve["num_interactions"].to_list()[:2] == [0, 15]
    assert selection.rounds[0].verdict == "start"
    assert min(curve["validation_loss"].to_list()) == selection.best.validation_loss


@pytest.mark.parametrize("trainer", ["exact", "sampled", "pseudo-likelihood"])
def test_resumed_run_is_the_undisturbed_one(trainer, truth, tmp_path):
    """Stages are removed from the folder, as if the run had been killed before they were written."""
    rows = [draw(truth, n, s) for n, s in ((300, 1), (200, 2))]
    options = {**SMALL, "trainer": trainer, "max_rounds": 2, "refit": True, "checkpoint": tmp_path / "c"}
    whole = learn(*rows, **options)
    with pytest.raises(InputError, match="exists"):
        learn(*rows, **options)
    for stage in ("refit", "final"):
        (tmp_path / "c" / f"{stage}.safetensors").unlink()
        again = learn(*rows, **options, resume=True)
        assert torch.equal(again.tables, whole.tables) and again.ridge == whole.ridge
        assert float(again.log_partition.value) == float(whole.log_partition.value)
    with pytest.raises(InputError, match="per_round=2, not 3"):
        learn(*rows, **{**options, "per_round": 3}, resume=True)


@pytest.mark.parametrize("trainer", ["sampled", "exact"])
def test_resumed_run_whose_last_round_is_its_best(trainer, tmp_path):
    """Two rounds of triples, the second before the first in the order of the collection."""
    draws = torch.Generator().manual_seed(3)
    a, b, d, e = (torch.randint(2, (1500,), generator=draws) for _ in range(4))
    weak, strong = (torch.rand(1500, generator=draws) < share for share in (0.2, 0.05))
    codes = torch.stack([a, b, a ^ b ^ weak.long(), d, e, d ^ e ^ strong.long()], 1)
    train, validation = Observations.from_tensor(codes, Domain.from_cardinalities([2] * 6)).split([0.6, 0.4], 0)
    options = {**SMALL, "trainer": trainer, "per_round": 1, "checkpoint": tmp_path / "c"}
    whole = learn(train, validation, **options)
    assert whole.selection is not None and whole.selection.best_round == len(whole.selection.rounds) - 1 == 4
    again = learn(train, validation, **options, resume=True)
    assert torch.equal(again.tables, whole.tables) and again.ridge == whole.ridge


def test_constants_and_one_value_only():
    domain = Domain.from_labels({"a": ["x"], "b": ["y", "z"], "c": ["u", "v"]})
    rows = Observations.from_tensor(torch.tensor([[0, i % 2, i % 2] for i in range(60)]), domain)
    found = learn(rows, rows)
    assert ("b", "c") in found.hypergraph and ("a",) not in found.hypergraph
    assert found.gain(rows) > 0.6
    same = Observations.from_tensor(torch.zeros(9, 1, dtype=torch.long), Domain.from_labels({"a": ["x"]}))
    empty = learn(same, same)
    assert len(empty.hypergraph) == 0 and empty.row_scores(same).nll == 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_order": 1}, "max_order"),
        ({"trainer": "gibbs"}, "trainer"),
        ({"evidence_rounds": -1}, "evidence_rounds"),
        ({"per_round": 0}, "per_round"),
        ({"heredity": 0.0}, "heredity"),
        ({"score": "best"}, "score"),
        ({"smoothness": 1.0}, "smoothness"),
        ({"penalty": InteractionRidge()}, "strengths of zero"),
        ({"checkpoint": "no/such/folder"}, "does not exist"),
        ({"resume": True}, "checkpoint"),
    ],
)
def test_wrong_arguments(options, words, parts):
    with pytest.raises(InputError, match=words):
        learn(parts[0], parts[1], **options)


def test_parts_must_fit(parts):
    with raises("other-domain", "validation"):
        learn(parts[0], draw(law(), 10, 0).project(["a", "b"]))
    with raises("empty", "validation"):
        learn(parts[0], parts[0].rows(torch.arange(0)))


def test_columns_unique_per_row():
    def numbered(size):
        domain = Domain([Variable("id", tuple(map(str, range(size)))), Variable("a", ("x", "y"))])
        return Observations.from_tensor(torch.tensor([[i, i % 2] for i in range(size)]), domain)

    rows = numbered(30)
    with pytest.raises(InputError, match="'id' \\(30 levels in 30 rows\\)"):
        check_columns(rows)
    check_columns(rows.project(["a"]))  # control
    check_columns(numbered(20))
    many = Domain([Variable("zip", tuple(map(str, range(1001))))])
    codes = torch.arange(2001)[:, None] % 1001
    with pytest.raises(InputError, match="'zip' \\(1001 levels in 2001 rows\\)"):
        check_columns(Observations.from_tensor(codes, many))
    check_columns(Observations.from_tensor(torch.arange(2002)[:, None] % 1001, many))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_triple_without_pairs_is_found_although_pairs_alone_do_not_help(seed):
    draws = torch.Generator().manual_seed(seed)
    a, b, noise = (torch.randint(2, (800,), generator=draws) for _ in range(3))
    flips = torch.rand(800, generator=draws) < 0.15
    codes = torch.stack([a, b, (a ^ b) ^ flips.long(), noise], 1)
    rows = Observations.from_tensor(codes, Domain.from_cardinalities({"a": 2, "b": 2, "c": 2, "noise": 2}))
    train, validation, test = rows.split([0.5, 0.2, 0.3], seed)
    learned = learn(train, validation)
    assert ("a", "b", "c") in learned.hypergraph
    assert learned.gain(test) > 0.15


def test_candidates_need_no_heredity_unless_it_is_asked_for():
    draws = torch.Generator().manual_seed(5)
    a, b = (torch.randint(2, (600,), generator=draws) for _ in range(2))
    rows = Observations.from_tensor(torch.stack([a, b, a ^ b], 1), Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}))
    train, validation = rows.split([0.7, 0.3], 0)
    assert ("a", "b", "c") in learn(train, validation, candidates=[("a", "b", "c")]).hypergraph
    assert ("a", "b", "c") not in learn(train, validation, candidates=[("a", "b", "c")], heredity=1.0).hypergraph
    with pytest.raises(InputTypeError, match="candidates"):
        learn(train, validation, candidates=["ab"])


def test_pseudo_likelihood_beyond_its_marginal_laws_is_refused_before_any_work():
    domain = Domain.from_cardinalities([4] * 14)
    rows = Observations.from_tensor(torch.zeros(30, 14, dtype=torch.long), domain)
    with pytest.raises(InputError, match="use the trainer 'sampled'"):
        learn(rows, rows, trainer="pseudo-likelihood")


def test_a_search_that_could_judge_nothing_says_so(parts, monkeypatch):
    original = _trainers._SearchTrainer.loss

    def unjudged(self, rows):
        found = original(self, rows)
        return found if self.hypergraph.order == 1 else found._replace(std_error=np.inf)

    with monkeypatch.context() as patched:
        patched.setattr(_trainers._SearchTrainer, "loss", unjudged)
        learned = learn(*parts[:2], **SMALL, false_discovery_rate=None)
    assert learned.hypergraph.order == 1
    assert any("without an error bar" in note for note in learned.notes)


# The time limit


@pytest.mark.parametrize("trainer", ["sampled", "exact"])
def test_a_search_whose_time_is_over_has_its_best_model_and_goes_on(parts, tmp_path, trainer):
    options = {**SMALL, "trainer": trainer, "seed": 3, "max_rounds": 2}
    options = options if trainer == "sampled" else {k: v for k, v in options.items() if k != "sampling"}
    cut = learn(*parts[:2], **options, time_limit=1e-9, checkpoint=tmp_path / "run")
    assert cut.selection.status == "time limit"
    assert (cut.selection.best_round, cut.hypergraph.order, cut.structure) == (0, 1, None)
    assert abs(cut.gain(parts[2])) < 0.1
    assert [note.split(" ended ")[1].split(":")[0] for note in cut.notes if note.startswith("the time limit")] == [
        "the search; a resumed one goes on",
        "the last, longer fit",
        "the tests of single interactions",
    ]
    whole = learn(*parts[:2], **options, checkpoint=tmp_path / "run", resume=True)
    undisturbed = learn(*parts[:2], **options, time_limit=1e6)
    assert not any("time limit" in note for note in whole.notes)
    for one, other in ((whole, undisturbed), (whole.structure, undisturbed.structure)):
        assert one.hypergraph == other.hypergraph
        assert torch.equal(one.tables, other.tables)


def test_a_round_under_way_is_given_up(parts, monkeypatch):
    """The best round so far is taken with its own tables, strengths and log Z."""
    from pyro_hoim.log_linear.learning import learn as _search

    proposed, original = [], _search.StagedSearch._propose

    def late(self, hypergraph):
        found = original(self, hypergraph)
        proposed.append(None)
        if len(proposed) == 3:
            self._runner._until = 0.0
            raise TimeUp
        return found

    monkeypatch.setattr(_search.StagedSearch, "_propose", late)
    cut = learn(*parts[:2], **{**SMALL, "trainer": "exact", "time_limit": 1e6})
    assert (cut.selection.status, len(cut.selection.rounds)) == ("time limit", 3)
    assert cut.selection.best_round > 0
    assert cut.gain(parts[2]) > 0.1


def test_tests_under_way_are_given_up(parts, monkeypatch):
    """The model stays, and the note says what is missing; without a limit the same run has a structure."""
    from pyro_hoim.log_linear.search import confirmation

    original = confirmation.EdgeTester.response
    options = {**SMALL, "trainer": "exact"}

    def late(self, *sets):
        checkpoint._until.set(0.0)
        return original(self, *sets)

    whole = learn(*parts[:2], **options)
    with monkeypatch.context() as patched:
        patched.setattr(confirmation.EdgeTester, "response", late)
        cut = learn(*parts[:2], **options, time_limit=1e6)
    assert whole.structure is not None and cut.structure is None
    assert cut.hypergraph == whole.hypergraph
    assert any("ended the tests of single interactions" in note for note in cut.notes)


@pytest.mark.parametrize(
    ("gains", "room", "pays"),
    [
        ([9.0] * 3 + [2.0] * 97, 100, False),  # few would pay the cost of the search, and many gain something
        ([9.0] * 20 + [2.0] * 80, 100, True),  # enough pay it
        ([9.0] + [0.5] * 99, 40, True),  # what is left gains less than a nat
        ([9.0] * 3 + [2.0] * 97, 16, True),  # a small round needs fewer
        ([9.0] * 3 + [2.0] * 97, 10_000, True),  # more interactions than rows
    ],
)
def test_the_cost_of_the_search_falls_where_many_sets_gain_something(parts, monkeypatch, gains, room, pays):
    from pyro_hoim.log_linear.learning.learn import StagedSearch, singles

    train, validation, _ = parts
    made = ExactTrainer(train, singles(train.domain))
    ridge = InteractionRidge(1.0)
    options = SelectionOptions().filled(2, 3)
    search = StagedSearch(train, validation, made, options, ridge, 0, RunOptions(), print)
    loss = np.array(gains) / train.total_count
    monkeypatch.setattr(Gain, "estimate", lambda *_: GainEstimate(loss, loss))
    scores = search._scored([("a", "b")] * 100, ScoreContext(train, made), room=room)
    cost = math.log(100) / train.total_count if pays else 0.0
    assert np.allclose(scores, loss - cost, rtol=0, atol=1e-12)


@pytest.mark.parametrize("limit", [0, -1.0, float("inf"), float("nan"), True, "5m"])
def test_time_limits_out_of_range_are_refused(limit):
    with raises("out-of-range", "time_limit"):
        SelectionOptions(time_limit=limit)


@pytest.mark.parametrize(("seed", "held"), [(32, ("butter", "bread")), (40, ("marg", "bread"))])
def test_what_the_rows_confirm_is_not_held_at_zero_by_strengths_of_the_larger_model(seed, held):
    """Oracle: the maximum-likelihood estimate of the structure. Two substitutes go with bread, seldom together."""
    random = np.random.default_rng(seed)
    butter = random.random(1200) < 0.15
    marg = np.where(butter, random.random(1200) < 0.02, random.random(1200) < 0.15)
    bread = np.where(butter | marg, random.random(1200) < 0.65, random.random(1200) < 0.35)
    others = [random.random(1200) < share for share in (0.02, 0.01, 0.05, 0.3, 0.03, 0.1)]
    names = ["butter", "marg", "bread", *(f"z{i}" for i in range(6))]
    domain = Domain(Variable(name, ("0", "1")) for name in names)
    codes = torch.from_numpy(np.column_stack([butter, marg, bread, *others]).astype(int))
    rows = Observations(domain, codes)
    learned = learned_from(rows, seed=seed)
    structure, hypergraph = learned.structure, learned.structure.hypergraph
    exact = fit(hypergraph, rows).interactions().set_index("term")["coefficient"]
    found = structure.interactions().set_index("term")["coefficient"]
    term = ":".join(held)
    assert held in hypergraph.edges and exact[term] > 0.15
    assert found[term] > 0.5 * exact[term]
    assert abs(learned.interactions().set_index("term")["coefficient"][term]) < 0.05  # control: what the search chose


# Joined columns


def tables(number=600, seed=0):
    """Categories of four and two levels that depend on each other and on a coin; and the same as columns of 0 and 1."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 4, number)
    s = np.where(rng.random(number) < 0.8, k // 2, rng.integers(0, 2, number))
    w = np.where(rng.random(number) < 0.7, s, rng.integers(0, 2, number))
    plain = pd.DataFrame({"k": [f"v{i}" for i in k], "s": [f"s{i}" for i in s], "w": w.astype(str)})
    wide = pd.get_dummies(plain[["k", "s"]], prefix_sep="=").astype(int).astype(str).assign(w=plain["w"])
    return plain, wide


@pytest.fixture(scope="module")
def learned_both():
    plain, wide = tables()
    return plain, wide, hoim.learn(plain, seed=1), hoim.learn(wide, seed=1, join="hard")


@pytest.fixture(scope="module")
def soft(learned_both):
    """The model of the columns by default, whose groups may be broken."""
    return hoim.learn(learned_both[1], seed=1)


def test_columns_give_the_model_of_the_categories(learned_both):
    plain, wide, one, two = learned_both
    assert two.hypergraph.edges == one.hypergraph.edges and torch.equal(two.tables, one.tables)
    assert one.joined is None and [group.name for group in two.joined.groups] == ["k", "s"]
    assert two.gain(wide) == pytest.approx(one.gain(plain), abs=1e-12)
    assert two.row_scores(wide).nll == one.row_scores(plain).nll
    np.testing.assert_allclose(row_log_likelihood(two, wide), row_log_likelihood(one, plain), rtol=1e-12)
    assert two.structure.joined == two.joined and any("were joined" in note for note in two.notes)
    # Control: left apart they are another model.
    apart = hoim.learn(wide, join="none", seed=1, false_discovery_rate=None)
    assert len(apart.hypergraph.domain) == 7 and apart.joined is None and apart.gain(wide) != two.gain(wide)


def test_file_speaks_of_the_columns(learned_both, tmp_path):
    _, wide, _, model = learned_both
    model.save(tmp_path / "model.safetensors")
    loaded = hoim.load(tmp_path / "model.safetensors")
    assert loaded.domain.names == tuple(wide.columns)
    assert hoim.score(loaded, wide) == hoim.score(model, wide)
    drawn = loaded.sample(300, given={"k=v0": 0}, seed=2)
    assert (drawn["k=v0"] == "0").all() and set(drawn["k=v1"]) == {"0", "1"}
    assert (drawn[[f"k=v{i}" for i in range(4)]].astype(int).sum(axis=1) == 1).all()
    assert (tmp_path / "page" / "report.html").exists() or loaded.report(tmp_path / "page").exists()
    assert "were joined to 2 variables" in (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert {"k", "s"} <= {text.get_text() for text in loaded.plot_hypergraph().texts}
    assert hoim.compare({"a": loaded, "b": model}, wide)["gain"].tolist() == pytest.approx([0, 0])


def test_draws_given_columns_follow_the_law_given_them(learned_both):
    _, _, one, two = learned_both
    drawn = two.sample(4000, given={"k=v0": 0, "k=v1": 0}, seed=3)
    share = (drawn["w"] == "1").mean()
    law = one.sample(60_000, seed=4)
    law = law[law["k"].isin(["v2", "v3"])]
    expected = (law["w"] == "1").mean()
    assert abs(share - expected) < 4 * (0.25 / 4000 + 0.25 / len(law)) ** 0.5
    assert abs(share - (one.sample(4000, seed=5)["w"] == "1").mean()) > 0.1  # control: it is not the marginal law
    with pytest.raises(InputError, match="k=v0=1, k=v1=1 has probability zero"):
        two.sample(2, given={"k=v0": 1, "k=v1": 1})


def test_missing_cells_of_a_group(learned_both):
    plain, wide, one, two = learned_both
    rows = wide.head(40).copy()
    rows[["k=v2", "k=v3"]] = None  # k is v0, v1, or one of two levels
    found = row_log_likelihood(two, rows)
    levels = [row_log_likelihood(one, plain.head(40).assign(k=f"v{i}")).to_numpy() for i in range(4)]
    is_open = plain["k"].head(40).isin(["v2", "v3"]).to_numpy()
    known = row_log_likelihood(one, plain.head(40)).to_numpy()
    np.testing.assert_allclose(found, np.where(is_open, np.logaddexp(levels[2], levels[3]), known), rtol=1e-12)
    assert two.score(rows)["nll"] == pytest.approx(-found.mean(), rel=1e-12)
    full = two.impute(rows, 50, seed=1)
    assert (full[["k=v0", "k=v1"]] == pd.concat([rows] * 50)[["k=v0", "k=v1"]]).all(axis=None)
    share = (full["k=v3"] == "1").mean()
    odds = np.exp(levels[3] - np.logaddexp(levels[2], levels[3]))[is_open].sum() / 40
    assert abs(share - odds) < 4 * (0.25 * is_open.mean() / (50 * 40)) ** 0.5
    likely = two.impute(rows, most_probable=True)
    best = np.where(levels[2] >= levels[3], "k=v2", "k=v3")[is_open]
    assert (likely[is_open].to_numpy()[np.arange(is_open.sum()), likely.columns.get_indexer(best)] == "1").all()


def test_rows_that_break_a_group_are_impossible(learned_both):
    _, wide, _, two = learned_both
    broken = wide.copy()
    broken.loc[0, ["k=v0", "k=v1"]] = "1"
    found = two.score(broken)
    assert (found["nll"], found["gain"], found["impossible_rows"]) == (np.inf, None, 1)  # no gain over another zero
    assert row_log_likelihood(two, broken).iloc[0] == -two.row_scores(broken).nll == -np.inf
    # Given impossible cells nothing is predicted, and nothing is filled.
    three = broken.head(2).astype(object)
    for target in ("k=v2", "w"):
        with pytest.warns(DataWarning, match="not predicted: 1 row"):
            frame = two.predict(three, target)
        assert frame["p(1)"].isna().tolist() == [True, False]
        assert "not predicted: 1 row" in " ".join(frame.attrs["notes"])
    three["w"] = None
    with pytest.warns(DataWarning, match="not filled: 1 row"):
        full = two.impute(three, seed=1)
    assert full["w"].isna().tolist() == [True, False] and "not filled: 1 row" in " ".join(full.attrs["notes"])


def test_a_learned_group_may_be_broken(learned_both, soft, tmp_path):
    """Oracle: the law of the categories, Laplace's rule after 600 rows, and the columns' frequencies by hand."""
    plain, wide, one, _ = learned_both
    broken = wide.copy()
    broken.loc[0, ["k=v0", "k=v1", "k=v2", "k=v3"]] = ["1", "1", "0", "1"]
    whole = row_log_likelihood(one, plain).to_numpy() + 2 * np.log1p(-1 / 602)
    np.testing.assert_allclose(row_log_likelihood(soft, wide), whole, rtol=1e-12)
    shares = (wide[[f"k=v{i}" for i in range(4)]].astype(int).sum().to_numpy() + 1) / 602
    patterns = np.array(list(itertools.product([0, 1], repeat=4)))
    probs = np.where(patterns == 1, shares, 1 - shares).prod(1)
    u = probs[(patterns == [1, 1, 0, 1]).all(1)][0] / probs[patterns.sum(1) != 1].sum()
    first = plain.head(1).assign(k=None)
    expected = row_log_likelihood(one, first).iloc[0] + np.log(u / 602) + np.log1p(-1 / 602)
    assert row_log_likelihood(soft, broken).iloc[0] == pytest.approx(expected, rel=1e-12)
    # Scores are finite, and the same from a file.
    found = soft.score(broken)
    assert found["nll"] == pytest.approx(-(whole[1:].sum() + expected) / 600, rel=1e-12)
    assert found["impossible_rows"] == 0 and found["nll"] == pytest.approx(soft.row_scores(broken).nll)
    assert found["gain"] == pytest.approx(soft.gain(broken), abs=1e-9)
    soft.save(tmp_path / "model.safetensors")
    assert hoim.load(tmp_path / "model.safetensors").score(broken) == found
    for notes in (soft.notes, soft.summary().attrs["notes"]):
        assert "A new row breaks a group with probability 0.0033 (Laplace's rule, 600 rows)" in " ".join(notes)
    # The rest of its group all but decides a column; given a broken group others are predicted without it.
    frame = soft.predict(broken.head(2), "k=v2")
    assert 0 < frame["p(1)"].iloc[1] < 0.01 or 0.99 < frame["p(1)"].iloc[1] < 1
    hidden = broken.head(1).assign(**{f"k=v{i}": [None] for i in range(4)})
    assert soft.predict(broken.head(1), "w")["p(1)"].iloc[0] == pytest.approx(soft.predict(hidden, "w")["p(1)"].iloc[0])
    drawn = soft.sample(60_000, seed=1)[[f"k=v{i}" for i in range(4)]].astype(int).sum(axis=1)
    assert abs((drawn != 1).sum() - 60_000 / 602) < 4 * (60_000 / 602) ** 0.5
    # Control: a declared group is never broken; nor is one in a file of earlier versions, which knew no such law.
    info = soft.as_stored.info
    bare = [{name: value for name, value in g.items() if name != "broken"} for g in info["joined"]["groups"]]
    assert JoinedColumns.from_json({**info["joined"], "groups": bare}) == soft.joined.never_broken()
    assert soft.joined.never_broken() == hoim.learn(wide, seed=1, join="hard", false_discovery_rate=None).joined


def test_columns_left_apart_make_log_z_unreliable(learned_both):
    _, wide, _, two = learned_both
    rows = Observations.from_pandas(wide)
    apart = hoim.learn(rows, join="none", seed=1, false_discovery_rate=None)
    estimated = replace(apart, log_partition=replace(apart.log_partition, kind="unbiased"))
    none = JoinedColumns(rows.domain, ())
    with pytest.warns(DataWarning, match="6 columns exclude each other and are left apart"):
        found = columns_joined(estimated, none, rows)
    assert found.log_partition.verdict == "unreliable" and "exclude each other" in found.log_partition.notes[-1]
    # Controls: an exact log Z, joined columns, and columns of which often none is set.
    assert columns_joined(apart, none, rows) is apart
    joined = join_columns(rows)
    held = replace(two, joined=None, log_partition=replace(two.log_partition, kind="unbiased"))
    assert columns_joined(held, joined, joined.join(rows)).log_partition.verdict == "verified"
    rare = np.eye(3, 2)[np.random.default_rng(0).choice(3, 900, p=[0.2, 0.2, 0.6])]
    others = Observations.from_tensor(torch.from_numpy(rare).long(), Domain.from_cardinalities([2, 2]))
    assert columns_joined(estimated, JoinedColumns(others.domain, ()), others) is estimated


def test_arguments():
    plain, wide = tables(200)
    rows = Observations.from_pandas(wide)
    group = ColumnGroup(("k=v0", "k=v1"), ((1, 0), (0, 1), (0, 0)), name="first")
    search = SelectionOptions(candidates=[("k=v0", "w"), ("k=v1", "w"), ("k=v0", "k=v1")])
    found = hoim.learn(rows, rows, search, join=JoinedColumns(rows.domain, (group,)))
    assert found.hypergraph.edges[-1] == ("first", "w") and len(found.hypergraph.domain) == 6
    with pytest.raises(InputError, match="the columns of train"):
        hoim.learn(plain, join=JoinedColumns(rows.domain, (group,)))
    with pytest.raises(InputError, match="join"):
        hoim.learn(rows, join="some")
    with pytest.raises(UnknownNameError, match="seed"):
        hoim.learn(rows, seeds=1)
    with pytest.raises(InputError, match="break a group"):
        hoim.learn(rows, join=JoinedColumns(rows.domain, (ColumnGroup.exclusive(["k=v0", "w"]),)))
