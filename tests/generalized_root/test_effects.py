"""Effects of one column on another in root models, against enumerated conditionals, regressions and simulation."""

import itertools
import math
import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from scipy.stats import norm

from pyro_hoim import Domain, Variable, fit, load
from pyro_hoim.core import operations
from pyro_hoim.errors import UnknownNameError
from pyro_hoim.generalized_root import (
    GaussianFamily,
    GeneralizedRootEnergy,
    IndicatorFamily,
    PoissonFamily,
    RootPseudoLikelihood,
    RootSettings,
    RootStructure,
    TruncatedPoissonFamily,
    fit_roots,
    sandwich_errors,
)
from pyro_hoim.generalized_root.effects import RootEffects
from pyro_hoim.generalized_root.regress.errors import RootErrors
from pyro_hoim.testing import raises
from tests.support.mixed_roots import MIXTURES, grid, log_density, mixed_energy, mixed_states

BINARY, REAL, COUNT = TruncatedPoissonFamily(1), GaussianFamily(), PoissonFamily()
pytestmark = pytest.mark.usefixtures("words_alone")

FREE = RootSettings(refit_share=0.0, false_discovery_rate=None, tolerance=1e-9)


def conditional_mean(energy, state, s):
    """Mean of a variable given all others, summed or integrated on a grid of its values."""
    values, log_weights = grid(energy.families[s], energy.order, tops=90)
    columns = [np.full(len(values), float(value)) for value in state]
    columns[s] = values
    logs = log_density(energy, columns) + log_weights
    weights = np.exp(logs - logs.max())
    return float(weights @ values / weights.sum())


def typical(energy, seed=0):
    return dict(zip(energy.domain.names, mixed_states(energy, 1, seed)[0].tolist(), strict=True))


NUMBERS = [
    name for name, (families, _) in MIXTURES.items() if not any(isinstance(f, IndicatorFamily) for f in families)
]


@pytest.mark.parametrize("name", NUMBERS)
def test_effects_compare_the_conditionals_of_the_energy(name):
    energy = mixed_energy(name)
    values = typical(energy)
    reading = RootEffects(energy, RootErrors.none(energy.structure.num_terms, "a test"), values)
    table = reading.effects(None, None, None, 0.95)
    assert len(table)
    for row in table.to_dict("records"):
        s, t = energy.domain.indices([row["response"], row["column"]])
        means = []
        for end in ("before", "after"):
            state = [values[n] for n in energy.domain.names]
            state[t] = float(row[end].replace("−", "-"))
            means.append(conditional_mean(energy, state, s))
        if row["effect"] == "odds ratio":
            wanted = (means[1] / (1 - means[1])) / (means[0] / (1 - means[0]))
        elif row["effect"] == "mean difference":
            wanted = means[1] - means[0]
        else:
            wanted = means[1] / means[0]
        # Words have four digits of the values.
        assert row["estimate"] == pytest.approx(wanted, rel=2e-3, abs=2e-3), row
        family = energy.families[s]
        kinds = {"poisson": "rate ratio", "exponential": "ratio of means", "gaussian": "mean difference"}
        assert row["effect"] == ("odds ratio" if family.largest_value == 1 else kinds.get(family.name, row["effect"]))


def mixed_category():
    """A category of three levels, a 0/1 column, a count and a real number, each pair with terms."""
    names = ["region=north", "region=south", "region=west", "ill", "visits", "change"]
    families = [IndicatorFamily("region")] * 3 + [BINARY, COUNT, REAL]
    domain = Domain([Variable(n, kind=f.kind) for n, f in zip(names, families, strict=True)])
    pairs = [(level, name) for level in names[:3] for name in names[3:]]
    pairs += [("ill", "visits"), ("ill", "change"), ("visits", "change")]
    structure = RootStructure(domain, {(1, 1): [(n,) for n in names], (2, 1): [("change",)], (2, 2): pairs})
    psi = np.random.default_rng(2).normal(0, 0.2, structure.num_terms)
    psi[5] = -0.6
    return GeneralizedRootEnergy(structure, torch.from_numpy(psi), families)


def category_rows(num_rows=600, seed=0):
    rng = np.random.default_rng(seed)
    region = rng.integers(0, 3, num_rows)
    ill = rng.random(num_rows) < np.array([0.2, 0.4, 0.6])[region]
    visits = rng.poisson(np.exp(0.2 + 0.5 * ill + 0.2 * (region == 2)))
    change = rng.normal(0.3 * ill + 0.2 * (region == 1))
    return torch.from_numpy(np.column_stack([np.eye(3)[region], ill, visits, change]).astype(float))


def test_effects_of_and_on_a_category_are_those_of_its_levels():
    energy = mixed_category()
    values = {"region=north": 0.0, "region=south": 1.0, "region=west": 0.0, "ill": 1.0, "visits": 2.0, "change": 0.4}
    reading = RootEffects(energy, RootErrors.none(energy.structure.num_terms, "a test"), values)
    on = reading.effects("region", None, None, 0.95)
    assert on[["levels", "column"]].values.tolist()[:2] == [["south vs north", "ill"], ["west vs north", "ill"]]
    of = reading.effects("visits", None, {"region": ("south", "west")}, 0.95)
    assert of["column"].tolist() == ["region", "ill", "change"]

    def log_q(**changed):
        return float(-energy.energy(torch.tensor([{**values, **changed}[n] for n in energy.domain.names])))

    def at(level):
        return {f"region={other}": float(other == level) for other in ("north", "south", "west")}

    for row in on[on["column"] == "visits"].to_dict("records"):
        level, reference = row["levels"].split(" vs ")
        parts = [log_q(**at(which), visits=value) for which, value in itertools.product((level, reference), (3.0, 2.0))]
        assert math.log(row["estimate"]) == pytest.approx(parts[0] - parts[1] - parts[2] + parts[3], abs=1e-10)
    means = []
    for level in ("south", "west"):
        counts = np.arange(80.0)
        logs = np.array([log_q(**at(level), visits=count) for count in counts])
        weights = np.exp(logs - logs.max())
        means.append(weights @ counts / weights.sum())
    assert of["estimate"].iloc[0] == pytest.approx(means[1] / means[0], rel=1e-9)
    # From the first level to each other, unless stated.
    assert reading.effects("ill", None, None, 0.95)["after"].tolist() == ["south", "west", "3", "1.4"]


def test_errors_of_effects_are_slopes_of_what_is_identified():
    energy, rows = mixed_category(), category_rows()
    errors = sandwich_errors(energy, rows)
    assert errors.unknown.shape[1] == 3  # the shift of the category, and one of the 0/1 and the real column's products
    medians = {"region=north": 1.0, "region=south": 0.0, "region=west": 0.0, "ill": 0.0, "visits": 1.0, "change": 0.1}
    best = GeneralizedRootEnergy(energy.structure, errors.unpenalised / energy.structure.multiplicity, energy.families)
    table = RootEffects(best, errors, medians).effects(None, None, None, 0.95)
    assert table["std_error"].notna().all() and "unpenalised" not in table
    # By finite differences of the effects in the coefficients.
    step = 1e-5

    def effects(coefficients):
        psi = coefficients / energy.structure.multiplicity
        moved = GeneralizedRootEnergy(energy.structure, psi, energy.families)
        none = RootErrors.none(len(psi), "a test")
        frame = RootEffects(moved, none, medians).effects(None, None, None, 0.95)
        is_ratio = (frame["effect"] != "mean difference").to_numpy()
        values = frame["estimate"].to_numpy()
        return np.where(is_ratio, np.log(np.where(is_ratio, values, 1.0)), values)

    slopes = np.stack(
        [
            (effects(errors.unpenalised + step * e) - effects(errors.unpenalised - step * e)) / (2 * step)
            for e in torch.eye(energy.structure.num_terms, dtype=torch.float64)
        ],
        1,
    )
    wanted = np.sqrt((slopes @ errors.covariance.numpy() * slopes).sum(1))
    assert table["std_error"].to_numpy() == pytest.approx(wanted, rel=1e-4)


def test_a_saturated_pair_of_yes_no_columns_is_a_logistic_regression():
    rng = np.random.default_rng(0)
    smoke = (rng.random(700) < 0.4).astype(float)
    ill = (rng.random(700) < 0.2 + 0.3 * smoke).astype(float)
    fitted = fit_roots(
        np.stack([smoke, ill], 1), BINARY, order=2, l1=1e-3, names=["smoke", "ill"], refit="all", settings=FREE
    )
    row = fitted.effects("ill").iloc[0]
    logit = sm.Logit(ill, sm.add_constant(smoke)).fit(disp=0, cov_type="HC0")
    assert row["estimate"] == pytest.approx(math.exp(logit.params[1]), rel=1e-5)
    assert row["std_error"] == pytest.approx(logit.bse[1], rel=1e-5)
    assert (row["lower"], row["upper"]) == pytest.approx(tuple(np.exp(logit.conf_int()[1])), rel=1e-5)
    ratios = fitted.odds_ratios().iloc[0]
    assert ratios[["odds_ratio", "lower", "upper"]].tolist() == pytest.approx(
        row[["estimate", "lower", "upper"]].tolist()
    )


def test_a_pair_of_real_columns_is_a_linear_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    y = 0.5 * x - 0.3 + 0.8 * rng.normal(size=500)
    fitted = fit_roots(
        np.stack([x, y], 1), "gaussian", order=2, l1=1e-4, full=True, names=["x", "y"], refit="all", settings=FREE
    )
    row = fitted.effects("y").iloc[0]
    line = sm.OLS(y, sm.add_constant(x)).fit(cov_type="HC0")
    assert row["effect"] == "mean difference" and row["estimate"] == pytest.approx(line.params[1], rel=1e-5)
    assert row["std_error"] == pytest.approx(line.bse[1], rel=1e-4)
    # A step of two is twice that, and so is its error.
    twice = fitted.effects("y", change={"x": 2}).iloc[0]
    assert (twice["estimate"], twice["std_error"]) == pytest.approx((2 * row["estimate"], 2 * row["std_error"]))


def pair_of_count(num_rows, rng):
    ill = rng.random(num_rows) < 0.4
    return np.stack([ill, rng.poisson(np.exp(0.4 + 0.5 * ill))], 1).astype(float)


def test_intervals_of_a_rate_ratio_cover_it_and_those_of_the_curvature_do_not():
    domain = Domain([Variable("ill", kind="count"), Variable("visits", kind="count")])
    structure = RootStructure.simplified(domain, [("ill", "visits")])
    truth = GeneralizedRootEnergy(structure, torch.tensor([-1.5, 0.2, 0.4], dtype=torch.float64), [BINARY, COUNT])
    states = torch.tensor(list(itertools.product((0.0, 1.0), np.arange(30.0))), dtype=torch.float64)
    law = (-truth.energy(states)).softmax(0).numpy()
    given, rng = {"ill": 0.0, "visits": 1.0}, np.random.default_rng(0)

    def ratio(energy, errors):
        return RootEffects(energy, errors, given).effects("visits", None, None, 0.95).iloc[0]

    wanted = ratio(truth, RootErrors.none(3, "a test"))["estimate"]
    hits, num_tables = np.zeros(2), 300
    for _ in range(num_tables):
        counts = torch.from_numpy(rng.multinomial(400, law).astype(float))
        errors = sandwich_errors(truth, states, counts)
        best = GeneralizedRootEnergy(structure, errors.unpenalised / structure.multiplicity, [BINARY, COUNT])
        curvature = -RootPseudoLikelihood(structure, states, [BINARY, COUNT], counts).hessian(best.psi.numpy())
        scale = structure.multiplicity.numpy()
        inverse = torch.from_numpy(np.linalg.inv(curvature) * scale[:, None] * scale)
        naive = RootErrors(errors.unpenalised, inverse, errors.unknown)
        hits += [row["lower"] <= wanted <= row["upper"] for row in (ratio(best, errors), ratio(best, naive))]
    covered, too_narrow = hits / num_tables
    # Five standard deviations of 300 tables are 6.3 points.
    assert abs(covered - 0.95) < 0.063 and too_narrow < 0.88


def test_errors_of_a_rate_ratio_are_those_of_resampled_rows():
    rng = np.random.default_rng(1)
    x = pair_of_count(500, rng)
    options = {"order": 2, "l1": 1e-3, "names": ["ill", "visits"], "refit": "all", "settings": FREE}
    fitted = fit_roots(x, [BINARY, "poisson"], **options)
    row = fitted.effects("visits", given={"visits": 1}).iloc[0]
    logs = []
    for _ in range(100):
        again = fit_roots(x[rng.integers(0, 500, 500)], [BINARY, "poisson"], **options)
        logs.append(math.log(again.effects("visits", given={"visits": 1})["estimate"].iloc[0]))
    # The spread of 100 draws is known to 7 %; five times that.
    assert abs(math.log(np.std(logs) / row["std_error"])) < 0.35


def test_values_are_held_at_medians_and_most_frequent_ones_or_as_given():
    rng = np.random.default_rng(0)
    x = np.column_stack([pair_of_count(301, rng), rng.normal(0.2, 1.0, 301)])
    fitted = fit_roots(x, [BINARY, "poisson", "gaussian"], order=2, names=["ill", "visits", "age"], refit="all")
    table = fitted.effects()
    assert table.attrs["given"] == {"ill": 0.0, "visits": float(np.median(x[:, 1])), "age": float(np.median(x[:, 2]))}
    assert "medians and most frequent values" in str(table) and "conditional on the selection" in str(table)
    moved = fitted.effects("visits", given={"age": 0.0}, change={"ill": (1, 0)})
    assert moved.attrs["given"]["age"] == 0.0
    back = fitted.effects("visits", given={"age": 0.0})
    pick = lambda frame: frame.set_index("column").loc["ill", "estimate"]  # noqa: E731
    assert pick(moved) == pytest.approx(1 / pick(back))
    with raises("unknown-name", "given"):
        fitted.effects(given={"agee": 1})
    with raises("out-of-range"):
        fitted.effects(given={"visits": 1.5})
    with pytest.raises(ValueError, match=r"change\['age'\]: expected a step, or two values"):
        fitted.effects(change={"age": (1, 2, 3)})
    with pytest.raises(UnknownNameError):
        fitted.effects("nobody")
    with pytest.raises(ValueError, match="level"):
        fitted.effects(level=1.5)


def test_a_loaded_model_has_the_same_effects_and_a_law_without_rows_asks_for_values(tmp_path):
    x = pair_of_count(300, np.random.default_rng(0))
    fitted = fit_roots(x, [BINARY, "poisson"], order=2, names=["ill", "visits"], refit="all")
    fitted.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert loaded.effects().equals(fitted.effects()) and loaded.effects().attrs == fitted.effects().attrs
    reading = RootEffects(fitted.energy(), RootErrors.none(3, "a test"), {})
    with raises("conflict", "given"):
        reading.effects(None, None, None, 0.95)
    assert len(reading.effects(None, {"ill": 0, "visits": 1}, None, 0.95)) == 2


def test_other_families_say_what_to_use_instead():
    frame = pd.DataFrame({"a": ["x", "y"] * 10, "b": ["u", "v", "v", "u"] * 5})
    with raises("no-method", "effects"):
        fit("a*b", frame).effects("a")


def test_the_summary_names_the_clearest_effects_and_groups_sets():
    x = pair_of_count(300, np.random.default_rng(0))
    fitted = fit_roots(x, [BINARY, "poisson"], order=2, names=["ill", "visits"], refit="all")
    table = fitted.summary(0.9)
    rows = fitted.effects(level=0.9).to_dict("records")
    sentences = [note for note in table.attrs["notes"] if note.startswith(("ill: odds ratio", "visits: rate ratio"))]
    assert len(sentences) == 1  # one of a pair of columns
    row = rows[sentences[0].startswith("visits")]
    assert f"{row['estimate']:.3f} (90% interval {row['lower']:.3f} to" in sentences[0]
    assert table["z"].notna().all()
    width = norm.ppf(0.95) * table["std_error"]
    centre = table.get("unpenalised", table["estimate"])
    assert np.minimum(centre - width, table["estimate"]).tolist() == pytest.approx(table["lower"].tolist())


def test_odds_ratios_compare_real_numbers_from_their_mean_in_plain_digits():
    rng = np.random.default_rng(1)
    ill = rng.integers(0, 2, 400)
    frame = pd.DataFrame({"ill": ill, "weight": rng.normal(70.04 + 4 * ill, 3.0), "index": rng.normal(0.2, 1.0, 400)})
    fitted = fit_roots(frame, interactions="ill*weight")
    assert fitted.columns is not None
    ratios, origin = fitted.odds_ratios(), fitted.columns["weight"].origin
    step = float(f"{np.std(frame['weight']):.0e}")
    assert step > 1 and ratios["levels"].tolist() == [f"ill=1 vs 0, weight={origin + step:g} vs {origin:g}"]
    assert any("about one standard deviation" in note for note in ratios.attrs["notes"])
    counts = fit_roots(pd.DataFrame({"a": rng.poisson(3, 99), "b": rng.poisson(9, 99)}), interactions="a*b")
    assert not any("deviation" in note for note in counts.odds_ratios().attrs["notes"])


@pytest.mark.parametrize("has_category", [False, True])
def test_units_of_a_column_do_not_matter_for_what_a_reader_compares(has_category, tmp_path):
    rng = np.random.default_rng(3)
    ill, kilos = rng.integers(0, 2, 300), rng.normal(size=300)
    frame = pd.DataFrame(
        {"ill": ill, "weight": 5 * kilos + 2 * ill, "cost": rng.exponential(np.exp(0.5 * ill + 0.3 * kilos))}
    )
    frame["visits"] = rng.poisson(2 + ill)
    if has_category:
        frame["region"] = np.array(["north", "south", "west"])[
            (rng.integers(0, 3, 300) + ill * rng.integers(0, 2, 300)) % 3
        ]
    families = {"cost": "positive", "visits": "count"}
    one = fit_roots(frame, families, l1=0.001, refit="all")
    other = fit_roots(
        frame.assign(weight=frame["weight"] * 1e-3, cost=frame["cost"] * 1e4), families, l1=0.001, refit="all"
    )
    first, second = one.odds_ratios(), other.odds_ratios()
    of_cost = first["levels"].str.contains("cost=")
    assert 3 <= of_cost.sum() < len(first) and "vs 0" in first.loc[of_cost, "levels"].iloc[0]
    assert list(first["term"]) == list(second["term"])
    np.testing.assert_allclose(
        first[["odds_ratio", "lower", "upper"]], second[["odds_ratio", "lower", "upper"]], rtol=1e-4
    )
    assert first["odds_ratio"].between(0.05, 20).all()
    effects = [fitted.effects("ill").set_index(["column", "after"])["estimate"].to_numpy() for fitted in (one, other)]
    np.testing.assert_allclose(*effects, rtol=1e-4)
    np.testing.assert_allclose(*([*operations.strengths(fitted)[0].values()] for fitted in (one, other)), rtol=1e-4)
    # Control: entries of the tensor do depend on units.
    entries = [fitted.interactions().set_index("term")["value"] for fitted in (one, other)]
    assert np.abs(entries[1] / entries[0]).max() > 20
    # The file keeps the steps.
    other.save(tmp_path / "model.safetensors")
    pd.testing.assert_frame_equal(
        pd.DataFrame(load(tmp_path / "model.safetensors").odds_ratios()), pd.DataFrame(second)
    )


def test_lines_of_a_summary_with_a_category_compare_its_levels():
    energy, rows = mixed_category(), category_rows()
    errors = sandwich_errors(energy, rows)
    best = GeneralizedRootEnergy(energy.structure, errors.unpenalised / energy.structure.multiplicity, energy.families)
    reading = RootEffects(best, errors, {})
    table = reading.summary(0.95)
    assert table["std_error"].notna().all()
    pairs = table[table["term"].str.contains(":")]
    assert [term for term, _ in itertools.groupby(pairs["term"])] == list(dict.fromkeys(pairs["term"]))  # sets together
    line = table[(table["term"] == "region:ill") & (table["levels"] == "region=west")].iloc[0]
    ratios = reading.contrasts().rows.set_index("levels")
    assert ratios.loc["region=west vs north, ill=1 vs 0", "estimate"] == pytest.approx(line["estimate"])
    assert ratios.loc["region=west vs north, ill=1 vs 0", "std_error"] == pytest.approx(line["std_error"])
    # A shift of the parameters of a category that changes no law changes no line.
    shifted = errors.unpenalised.clone()
    shifted[:3] += 5.0
    psi = shifted / energy.structure.multiplicity
    moved = RootEffects(GeneralizedRootEnergy(energy.structure, psi, energy.families), errors, {}).summary(0.95)
    assert moved["estimate"].to_numpy() == pytest.approx(table["estimate"].to_numpy(), abs=1e-9)
    assert (moved["term"] == table["term"]).all()


CATEGORY = [IndicatorFamily("region")] * 3
LEVELS = [f"region={level}" for level in ("north", "south", "west")]


def test_a_category_and_a_yes_no_column_are_logistic_regressions_of_each_other():
    rng = np.random.default_rng(0)
    region = rng.integers(0, 3, 600)
    ill = (rng.random(600) < np.array([0.2, 0.35, 0.6])[region]).astype(float)
    x = np.column_stack([np.eye(3)[region], ill])
    options = {"order": 2, "l1": 1e-4, "names": [*LEVELS, "ill"], "refit": "all", "settings": FREE}
    fitted = fit_roots(x, [*CATEGORY, BINARY], **options)
    on_ill, on_region = fitted.effects("ill"), fitted.effects("region")
    logit = sm.Logit(ill, np.column_stack([np.ones(600), np.eye(3)[region][:, 1:]])).fit(disp=0, cov_type="HC0")
    assert on_ill["after"].tolist() == ["south", "west"]
    assert np.log(on_ill["estimate"]).tolist() == pytest.approx(logit.params[1:].tolist(), rel=1e-4)
    assert on_ill["std_error"].tolist() == pytest.approx(logit.bse[1:].tolist(), rel=1e-4)
    multinomial = sm.MNLogit(region, sm.add_constant(ill)).fit(disp=0)
    assert np.log(on_region["estimate"]).tolist() == pytest.approx(multinomial.params[1].tolist(), rel=1e-4)
    # The model is saturated, so that errors of either kind agree for many rows; these are those of the table.
    counts = pd.crosstab(region, ill).to_numpy()
    woolf = [math.sqrt((1 / counts[[0, 0, j, j], [0, 1, 0, 1]]).sum()) for j in (1, 2)]
    assert on_region["std_error"].tolist() == pytest.approx(woolf, rel=1e-4)


def test_a_data_frame_has_its_words_in_effects(tmp_path):
    rng = np.random.default_rng(0)
    region, smoke = rng.integers(0, 3, 400), rng.random(400) < 0.4
    frame = pd.DataFrame(
        {
            "region": np.array(["north", "south", "west"])[region],
            "smoke": np.where(smoke, "yes", "no"),
            "change": 20.0 + rng.normal(0.6 * (region == 1) + 0.5 * smoke),
        }
    )
    fitted = fit_roots(frame, order=2, l1=0.01, refit="all")
    table = fitted.effects("change", change={"region": ("west", "south")})
    assert table[["column", "before", "after"]].values.tolist() == [["region", "west", "south"], ["smoke", "no", "yes"]]
    given = fitted.effects().attrs["given"]
    assert given["smoke"] == "no" and given["region"] in frame["region"].to_numpy()
    assert given["change"] == pytest.approx(np.quantile(frame["change"], 0.5, method="inverted_cdf"))
    # Values are in the units of the frame, whatever the origin of a variable.
    at_twenty = fitted.effects("smoke", given={"change": 20.0}, change={"region": ("north", "south")})
    assert at_twenty.set_index("column").loc["change", ["before", "after"]].tolist() == ["20", "21"]
    assert "smoke=yes vs no, change=" in " ".join(fitted.odds_ratios()["levels"])
    assert "region=north" in str(fitted.summary())
    with raises("unknown-choice", "given['smoke']"):
        fitted.effects(given={"smoke": "perhaps"})
    fitted.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert loaded.effects().equals(fitted.effects())
    # Pages and pictures are of the columns, with the odds ratios of their levels.
    assert "region" in [text.get_text() for text in loaded.plot_hypergraph().texts]
    page = fitted.report(tmp_path / "page").read_text(encoding="utf-8")
    assert re.search(r"change: mean difference .* for smoke from no to yes", page)
    assert "An effect is that with all others at their medians" in page and "conditional on the selection" in page


@pytest.mark.slow
def test_errors_of_effects_with_a_category_are_those_of_resampled_rows():
    rng = np.random.default_rng(0)
    region = rng.integers(0, 3, 600)
    ill = rng.random(600) < 0.2 + 0.15 * region
    visits = rng.poisson(np.exp(0.2 + 0.5 * ill + 0.25 * (region == 2)))
    change = rng.normal(0.6 * (region == 1) + 0.4 * ill)
    x = np.column_stack([np.eye(3)[region], ill, visits, change])
    options = {"order": 2, "l1": 1e-4, "names": [*LEVELS, "ill", "visits", "change"], "refit": "all", "settings": FREE}
    given = {"region": "north", "ill": 0, "visits": 1, "change": 0.2}

    def effects(rows):
        table = fit_roots(rows, [*CATEGORY, BINARY, "poisson", "gaussian"], **options).effects(given=given)
        is_ratio = (table["effect"] != "mean difference").to_numpy()
        values = table["estimate"].to_numpy()
        return np.where(is_ratio, np.log(np.where(is_ratio, values, 1.0)), values), table["std_error"].to_numpy()

    draws = [effects(x[rng.integers(0, 600, 600)])[0] for _ in range(60)]
    # The spread of 60 draws is known to 9 %; five times that.
    assert np.abs(np.log(np.std(draws, axis=0) / effects(x)[1])).max() < 0.46
