"""Studies of columns of several kinds: predictions against brute force, independent columns against SciPy."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from pyro_hoim import CountTable, Domain, Variable
from pyro_hoim.core.prediction import Prediction
from pyro_hoim.errors import InputError, UnknownNameError
from pyro_hoim.generalized_root import (
    GeneralizedRootEnergy,
    RootFile,
    RootModel,
    RootPrediction,
    RootStructure,
    UserFamily,
    analyse_roots,
    draw_roots,
    fit_independent,
    load_roots,
    predict_roots,
)
from pyro_hoim.generalized_root.command import FAMILY
from pyro_hoim.generalized_root.nodes.columns import NodeFamilies
from pyro_hoim.generalized_root.study.baselines import kept_independent

from support.mixed_roots import BINARY, EXPONENTIAL, GAUSSIAN, MIXTURES, POISSON, RED, mixed_energy

# In u with x = u^6 all roots are smooth on either side of 0, so that few points are enough.
U = (np.arange(12_000.0) + 0.5) / 12_000
HALF = 60 * U**6, 5 * np.log(U)
GRIDS = {
    "count": (np.arange(400.0), np.zeros(400)),
    "positive": HALF,
    "real": (np.concatenate([-HALF[0][::-1], HALF[0]]), np.concatenate([HALF[1][::-1], HALF[1]])),
}
"""Values of a variable of a kind, and the logs of their weights in an integral."""


def some_rows(energy, num=5, seed=4):
    """Possible rows of a model, whatever their probability."""
    rng, rows = np.random.default_rng(seed), np.zeros((num, len(energy.domain)))
    for s, family in enumerate(energy.families):
        top = min(family.largest_value, 4)
        draws = {"count": rng.integers(0, top + 1, num), "positive": rng.exponential(1, num)}
        rows[:, s] = draws.get(family.kind, rng.normal(0, 1, num))
    for places in energy.families.blocks:
        rows[:, places] = np.eye(len(places))[rng.integers(0, len(places), num)]
    return CountTable.from_matrix(rows, energy.domain.names, kind="real")


def brute_law(energy, row, s):
    """Values of one variable and their probabilities given the others of a row, from energies alone."""
    family = energy.families[s]
    values, log_weights = (part[GRIDS[family.kind][0] <= family.largest_value] for part in GRIDS[family.kind])
    states = np.repeat(row[None], len(values), 0)
    states[:, s] = values
    score = log_weights - energy.energy(torch.from_numpy(states)).numpy()
    probs = np.exp(score - score.max())
    return values, probs / probs.sum()


@pytest.mark.parametrize("name", [name for name in MIXTURES if name != "user-binary"])
def test_predictions_agree_with_brute_force(name):
    energy = mixed_energy(name)
    model, table = RootModel(energy, energy.domain, {}), some_rows(energy)
    rows = table.to_array()
    for s, (column, family) in enumerate(zip(energy.domain.names, energy.families, strict=True)):
        if family.name == "indicator":
            continue
        found = predict_roots(model, table, column)
        laws = [brute_law(energy, row, s) for row in rows]
        if family == BINARY:
            assert isinstance(found, Prediction) and found.labels == ("0", "1")
            assert found.probs.numpy() == pytest.approx(np.array([probs for _, probs in laws]), rel=1e-9)
            assert found.truth.tolist() == rows[:, s].tolist()
            continue
        assert isinstance(found, RootPrediction)
        means = np.array([probs @ values for values, probs in laws])
        stds = np.array([math.sqrt(probs @ values**2 - (probs @ values) ** 2) for values, probs in laws])
        assert found.mean == pytest.approx(means, abs=1e-5) and found.std == pytest.approx(stds, abs=1e-5)
        own = energy.node_log_prob(torch.from_numpy(rows))[:, s].numpy()
        assert found.log_probs == pytest.approx(own, abs=1e-9)
        for level in (0.5, 0.95):
            low, high = found.interval(level)
            for i, (values, probs) in enumerate(laws):
                reached = np.cumsum(probs)
                ends = [values[np.searchsorted(reached, share)] for share in ((1 - level) / 2, (1 + level) / 2)]
                step = 0 if family.is_discrete else 0.02 * stds[i]
                assert abs(low[i] - ends[0]) <= step and abs(high[i] - ends[1]) <= step
        wide, narrow = found.interval(0.99), found.interval(0.2)
        assert (wide[0] <= narrow[0]).all() and (wide[1] >= narrow[1]).all() and (wide[1] > narrow[1]).any()


def test_a_category_is_predicted_as_one_column():
    energy = mixed_energy("two-categories")
    model, table = RootModel(energy, energy.domain, {}), some_rows(energy)
    rows = torch.from_numpy(table.to_array())
    found = predict_roots(model, table, "colour")
    assert isinstance(found, Prediction) and found.labels == ("v0", "v2")
    scores = []
    for level in (0, 2):
        states = rows.clone()
        states[:, [0, 2]] = 0.0
        states[:, level] = 1.0
        scores.append(-energy.energy(states))
    expected = torch.stack(scores, 1).softmax(1)
    assert torch.allclose(found.probs, expected, rtol=1e-9)
    assert found.truth.tolist() == rows[:, 2].long().tolist()
    assert found.log_loss == pytest.approx(-float(expected[range(5), found.truth].log().mean()))
    # Its own column is not read where it is unknown.
    table.matrix[:, [0, 2]] = 0.0
    unknown = predict_roots(model, table, "colour", is_known=False)
    assert torch.equal(unknown.log_probs, found.log_probs) and unknown.truth.tolist() == [-1] * 5
    with pytest.raises(UnknownNameError, match="colours"):
        predict_roots(model, table, "colours")


def test_levels_that_no_row_had_have_probability_zero():
    domain = Domain([Variable(name, kind="count") for name in ("c=a", "c=b", "n")])
    structure = RootStructure.mixed(domain, [("c=a", "n")])
    family = {"c=a": RED.__class__("c"), "c=b": RED.__class__("c"), "n": POISSON}
    energy = GeneralizedRootEnergy(structure, torch.tensor([0.3, 0.1, 0.2, 0.1]), family)
    whole = Domain([Variable(name, kind="count") for name in ("c=a", "c=rare", "c=b", "n")])
    model = RootModel(energy, whole, {"c=rare": 0.0})
    table = CountTable.from_matrix([[1, 0, 0, 2], [0, 0, 1, 1]], whole.names, kind="real")
    found = predict_roots(model, table, "c")
    assert found.labels == ("a", "rare", "b") and found.probs[:, 1].tolist() == [0.0, 0.0]
    assert found.probs.sum(1).numpy() == pytest.approx([1.0, 1.0])
    drawn = draw_roots(model, 3, clamped={"c=rare": 0})
    assert drawn.values[:, 1].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(InputError, match="was 0 in all rows"):
        draw_roots(model, 3, clamped={"c=rare": 1})


NAMES = ("smoker", "visits", "change", "wait", "c=a", "c=b", "c=d")
FAMILIES = (BINARY, POISSON, GAUSSIAN, EXPONENTIAL, *(RED.__class__("c"),) * 3)


def mixed_rows(num=300, seed=3):
    """Columns of all kinds that share a cause."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=num)
    smoker = (rng.random(num) < 1 / (1 + np.exp(-z))).astype(float)
    visits, change = rng.poisson(np.exp(0.4 * z)), z + rng.normal(0, 0.8, num)
    wait, level = rng.exponential(np.exp(0.3 * z)), rng.integers(0, 3, num)
    return np.stack([smoker, visits, change, wait, *np.eye(3)[level].T], 1)


def table_of(rows, names=NAMES):
    return CountTable.from_matrix(rows, names, kind="real")


def test_independent_columns_are_of_their_own_families():
    rows, later = mixed_rows(), mixed_rows(50, 8)
    families = NodeFamilies.of(FAMILIES, table_of(rows).domain)
    law = fit_independent(table_of(rows), "independent", families)
    expected = scipy.stats.bernoulli(rows[:, 0].mean()).logpmf(later[:, 0])
    expected += scipy.stats.norm(rows[:, 2].mean(), rows[:, 2].std()).logpdf(later[:, 2])
    expected += scipy.stats.expon(scale=rows[:, 3].mean()).logpdf(later[:, 3])
    expected += np.log(rows[:, 4:].mean(0))[later[:, 4:].argmax(1)]  # once for the whole category
    poisson = scipy.stats.poisson(rows[:, 1].mean()).logpmf(later[:, 1])
    assert law.log_prob(table_of(later)) == pytest.approx(expected + poisson, rel=1e-9)
    # Counts as negative binomials, everything else alike.
    spread = fit_independent(table_of(rows), "negative-binomial", families).log_prob(table_of(later))
    alone = fit_independent(CountTable.from_matrix(rows[:, [1]]), "negative-binomial", POISSON)
    counts = alone.log_prob(CountTable.from_matrix(later[:, [1]]))
    assert spread == pytest.approx(expected + counts, rel=1e-9) and np.abs(counts - poisson).max() > 0.1
    with pytest.raises(InputError, match="kind: expected 'independent' or"):
        fit_independent(table_of(rows), "poisson", families)
    own = NodeFamilies.of((UserFamily("geometric", "count", np.zeros_like), *FAMILIES[1:]), table_of(rows).domain)
    with pytest.raises(InputError, match="geometric family, which is somebody's own"):
        fit_independent(table_of(rows), "independent", own)


def test_an_analysis_of_several_families_scores_and_comes_back_from_its_file(tmp_path):
    rows = np.hstack([mixed_rows()[:, :4], np.zeros((300, 1)), np.full((300, 1), 2.5)])
    names = (*NAMES[:4], "never", "level")
    table = table_of(rows, names)
    families = NodeFamilies.of((*FAMILIES[:4], POISSON, GAUSSIAN), table.domain)
    parts = dict(zip(("train", "validation", "test"), table.split((0.6, 0.2, 0.2), 1), strict=True))
    found = analyse_roots(parts, families, order=2, l1=[0.1, 0.02], title="made")
    assert found.fit.fixed_columns == {"never": 0.0, "level": 2.5} and found.fit.num_interactions
    law = fit_independent(parts["train"], "independent", families)
    judged = found.held["test"]
    assert judged.baselines["independent"].pseudo_nll == pytest.approx(-law.log_prob(parts["test"]).mean())
    model = RootModel.from_fit(found.fit)
    each = model.log_pseudo_prob(parts["test"]) - law.log_prob(parts["test"])
    assert judged.gain == pytest.approx(each.mean())
    assert judged.scores.gain_std_error == pytest.approx(each.std() / math.sqrt(60))
    # Units of mixed columns are those of their roots.
    assert found.scales == {} and found.fit.scales is not None
    assert torch.equal(found.records()["model"].tensors["root_scales"], found.fit.scales)
    # NLL, as log Z is exact, and no KL of a law with a density.
    exact = -(model.log_q(parts["test"]) - float(found.log_partition.value)).mean()
    assert judged.scores.nll == pytest.approx(exact) and judged.scores.kl is None
    # The file knows the family of every column, those of one value among them.
    found.save(tmp_path)
    stored = load_roots(tmp_path / "model.safetensors")
    assert stored.column_families == families and stored.domain.names == names
    assert [variable.kind for variable in stored.domain] == [family.kind for family in families]
    kept = kept_independent(stored, stored.domain)
    assert kept.log_prob(parts["test"]) == pytest.approx(law.log_prob(parts["test"]), rel=1e-12)
    assert RootModel.from_file(stored).log_pseudo_prob(table).tolist() == model.log_pseudo_prob(table).tolist()
    wrong = RootFile(stored.structure, stored.psi, stored.family, {**stored.info}, stored.tensors)
    poisson = {"name": "poisson", "maximum": None}
    with pytest.raises(UnknownNameError, match="fixed_families"):
        RootFile(wrong.structure, wrong.psi, wrong.family, {**wrong.info, "fixed_families": {"smoker": poisson}})
    named = {"never": {"name": "binomial", "maximum": None}}
    with pytest.raises(InputError, match="binomial"):
        RootFile(wrong.structure, wrong.psi, wrong.family, {**wrong.info, "fixed_families": named})


def test_counts_and_labels_alone_have_a_divergence():
    rows = mixed_rows()[:, [0, 1]]
    table = table_of(rows, NAMES[:2])
    found = analyse_roots({"train": table}, [BINARY, POISSON], order=2, l1=0.02)
    scores = found.parts["train"].scores
    entropy = CountTable.from_matrix(rows).entropy()
    assert scores.kl == pytest.approx(scores.nll - entropy)


def test_what_a_file_says_of_its_coefficients_and_columns_is_checked():
    energy = mixed_energy("category-gaussian")
    file = RootFile(energy.structure, energy.psi, energy.families)
    assert FAMILY.figures(file).method == "stated coefficients"  # of no regression
    learned = RootFile(energy.structure, energy.psi, energy.families, {"rows": 10, "refit": None})
    assert FAMILY.figures(learned).method == "penalised regressions"
    assert file.set_of(("v0", "v1")) == ("colour", "v1")
    right = torch.ones(len(energy.domain), 2)
    RootFile(energy.structure, energy.psi, energy.families, {}, {"root_scales": right})
    with pytest.raises(InputError, match="root_scales"):
        RootFile(energy.structure, energy.psi, energy.families, {}, {"root_scales": right[1:]})
    with pytest.raises(InputError, match="frame"):
        RootFile(energy.structure, energy.psi, energy.families, {"frame": {"columns": []}})
    own = UserFamily("geometric", "count", np.zeros_like)
    structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
    with pytest.raises(InputError, match="node_family knows"):
        RootFile(structure, torch.ones(1), own)
