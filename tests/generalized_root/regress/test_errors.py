"""Sandwich errors of joint root models, against closed forms, finite differences, resampling and simulation."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from pyro_hoim import Domain, Variable, load
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
    refit_roots,
    sandwich_errors,
)
from pyro_hoim.generalized_root.effects import RootEffects
from pyro_hoim.generalized_root.regress import errors as module
from tests.support.mixed_roots import mixed_energy, mixed_states

BINARY, REAL, COUNT = TruncatedPoissonFamily(1), GaussianFamily(), PoissonFamily()
QUIET = RootSettings(false_discovery_rate=None)
CELLS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


def model(families, terms, psi=None):
    """A model of columns a, b, ...; all entries 0 unless given, squares of reals -1/2."""
    names = "abcdefgh"[: len(families)]
    structure = RootStructure(Domain([Variable(n, kind=f.kind) for n, f in zip(names, families, strict=True)]), terms)
    if psi is None:
        reals = {n for n, f in zip(names, families, strict=True) if f.kind == "real"}
        psi = [-0.5 if key == (1, 1) and term[0] in reals else 0.0 for key, term in structure.names]
    return GeneralizedRootEnergy(structure, torch.tensor(psi, dtype=torch.float64), families)


def singles(size, *further):
    return {(1, 1): [(name,) for name in "abcdefgh"[:size]], **dict(further)}


def binary_pair():
    return model([BINARY, BINARY], singles(2, ((2, 2), [("a", "b")])))


def test_a_pair_of_yes_no_columns_has_the_errors_of_its_odds_ratio():
    n = np.array([30.0, 10.0, 20.0, 40.0])
    found = sandwich_errors(binary_pair(), CELLS, torch.from_numpy(n))
    a, b, both = math.log(n[2] / n[0]), math.log(n[1] / n[0]), math.log(n[0] * n[3] / (n[1] * n[2]))
    assert found.unpenalised.tolist() == pytest.approx([a, b, both], rel=1e-6)
    wanted = [math.sqrt(1 / n[2] + 1 / n[0]), math.sqrt(1 / n[1] + 1 / n[0]), math.sqrt((1 / n).sum())]
    assert found.std_error.tolist() == pytest.approx(wanted, rel=1e-6)
    # What each of two regressions would say, were they independent, is too small.
    law = RootPseudoLikelihood(binary_pair().structure, CELLS, BINARY, torch.from_numpy(n))
    psi = found.unpenalised.numpy() / [1, 1, 2]
    naive = 2 * math.sqrt(np.linalg.inv(-law.hessian(psi))[2, 2])
    assert naive < 0.75 * wanted[2]


def test_independent_counts_have_the_errors_of_their_logarithms():
    rows = torch.tensor([[1.0, 0.0], [4.0, 2.0], [0.0, 3.0], [2.0, 1.0], [9.0, 1.0]])
    found = sandwich_errors(model([COUNT, COUNT], singles(2)), rows)
    spread = rows.numpy().std(0) / rows.numpy().mean(0) / math.sqrt(5)
    assert found.std_error.numpy() == pytest.approx(spread, rel=1e-6)
    # Rows in the shares of a Poisson law: one over the root of n lambda.
    counts = torch.arange(60.0)[:, None]
    weights = 500 * torch.exp(counts[:, 0] * math.log(3.0) - 3.0 - torch.lgamma(counts[:, 0] + 1))
    poisson = sandwich_errors(model([COUNT], singles(1)), counts, weights)
    assert float(poisson.std_error) == pytest.approx(1 / math.sqrt(500 * 3.0), rel=1e-6)


def test_two_real_columns_have_the_errors_of_their_precision():
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal([0.5, -1.0], [[2.0, 0.7], [0.7, 1.0]], 300) + 0.3 * rng.exponential(1.0, (300, 1))
    pair = model([REAL, REAL], singles(2, ((2, 1), [("a",), ("b",)]), ((2, 2), [("a", "b")])))
    found = sandwich_errors(pair, torch.from_numpy(x))
    # The pseudo-likelihood of all pairs is the likelihood: a coefficient of x_a x_b is minus an entry of the precision.
    centred = x - x.mean(0)
    precision = np.linalg.inv(centred.T @ centred / 300)
    scores = centred @ precision
    influence = precision[None] - scores[:, :, None] * scores[:, None, :]
    place = pair.structure.index(["a", "b"])
    assert float(found.unpenalised[place]) == pytest.approx(-precision[0, 1], rel=1e-5)
    errors = np.sqrt((influence**2).mean(0) / 300)
    assert float(found.std_error[place]) == pytest.approx(errors[0, 1], rel=1e-5)
    assert found.std_error[:2].tolist() == pytest.approx((errors.diagonal() / 2).tolist(), rel=1e-5)


@pytest.mark.parametrize("name", ["exponential-gaussian", "counts"])
def test_the_parts_are_those_of_finite_differences(name):
    energy = mixed_energy(name)
    rows = mixed_states(energy, 200, seed=1)
    found = sandwich_errors(energy, rows)
    assert not found.reason
    best, step = found.unpenalised.numpy() / energy.structure.multiplicity.numpy(), 1e-4

    def scores(psi):
        parts = []
        for m in range(len(psi)):
            ends = [psi + sign * step * np.eye(len(psi))[m] for sign in (1, -1)]
            values = [
                GeneralizedRootEnergy(energy.structure, torch.from_numpy(end), energy.families).log_pseudo_prob(rows)
                for end in ends
            ]
            parts.append((values[0] - values[1]).numpy() / (2 * step))
        return np.stack(parts, 1)

    at_best = scores(best)
    assert np.abs(at_best.sum(0)).max() < 1e-2
    hessian = np.stack(
        [(scores(best + h).sum(0) - scores(best - h).sum(0)) / (2 * step) for h in step * np.eye(len(best))]
    )
    inverse, centred = np.linalg.inv(hessian), at_best - at_best.mean(0)
    covariance = inverse @ centred.T @ centred @ inverse
    scale = energy.structure.multiplicity.numpy()
    errors = np.sqrt(covariance.diagonal()) * scale
    assert found.std_error.numpy() == pytest.approx(errors, rel=1e-3)


def test_counts_of_rows_are_repeated_rows():
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 2, 60), rng.poisson(2, 60)], 1).astype(float)
    counts = rng.integers(0, 4, 60)
    options = {"names": ["a", "b"], "order": 2, "l1": 0.001, "refit": "all"}
    counted = fit_roots(x, [BINARY, "poisson"], counts=counts, **options).errors
    repeated = fit_roots(np.repeat(x, counts, 0), [BINARY, "poisson"], **options).errors
    assert counted.std_error.numpy() == pytest.approx(repeated.std_error.numpy(), rel=1e-6)
    once = fit_roots(x, [BINARY, "poisson"], **options).errors
    assert float(once.std_error[0]) != pytest.approx(float(counted.std_error[0]), rel=1e-3)


def test_contrasts_of_categories_are_those_of_the_table():
    counts = np.array([[20.0, 35.0, 10.0], [40.0, 15.0, 25.0]])
    names = [f"a={i}" for i in range(2)] + [f"b={j}" for j in range(3)]
    domain = Domain([Variable(name, kind="count") for name in names])
    families = [IndicatorFamily("a")] * 2 + [IndicatorFamily("b")] * 3
    pairs = [(f"a={i}", f"b={j}") for i in range(2) for j in range(3)]
    structure = RootStructure(domain, {(1, 1): [(name,) for name in names], (2, 2): pairs})
    energy = GeneralizedRootEnergy(structure, torch.zeros(11, dtype=torch.float64), families)
    rows = torch.tensor([[*np.eye(2)[i], *np.eye(3)[j]] for i in range(2) for j in range(3)])
    errors = sandwich_errors(energy, rows, torch.from_numpy(counts.reshape(-1)))
    assert errors.unknown.shape[1] == 6  # of 11 parameters, 5 are free
    assert errors.std_error.isnan().all()  # no parameter of its own, only contrasts are identified
    lines, weights = RootEffects(energy, errors, {}).lines()
    values, std_errors = errors.of(weights)
    by_levels = {line.levels: (value, error) for line, value, error in zip(lines, values, std_errors, strict=True)}
    for j in (1, 2):
        cells = counts[[0, 0, 1, 1], [0, j, 0, j]]
        log_ratio = math.log(cells[0] * cells[3] / (cells[1] * cells[2]))
        assert by_levels[f"a=1, b={j}"] == pytest.approx((log_ratio, math.sqrt((1 / cells).sum())), rel=1e-5)
    first = counts[:, 0]
    assert by_levels["a=1"] == pytest.approx((math.log(first[1] / first[0]), math.sqrt((1 / first).sum())), rel=1e-5)
    assert len(by_levels) == 5


def test_a_coefficient_that_is_infinite_has_no_error():
    n = np.array([30.0, 10.0, 20.0, 0.0])
    found = sandwich_errors(binary_pair(), CELLS, torch.from_numpy(n))
    assert found.std_error.isnan().tolist() == [False, False, True]
    assert float(found.std_error[0]) == pytest.approx(math.sqrt(1 / 30 + 1 / 20), rel=1e-3)
    assert np.isnan(found.of(np.array([[1.0, 1.0, 1.0]]))[1]).all()
    # Also of a start that is far on its way.
    far = model([BINARY, BINARY], singles(2, ((2, 2), [("a", "b")])), [math.log(20 / 30), math.log(1 / 3), -4.0])
    assert sandwich_errors(far, CELLS, torch.from_numpy(n)).std_error.isnan().tolist() == [False, False, True]
    # One that is only badly known has one.
    n[3] = 1.0
    assert not sandwich_errors(binary_pair(), CELLS, torch.from_numpy(n)).std_error.isnan().any()


def test_what_the_rows_do_not_identify_has_no_error():
    # No two of three columns are ever 1 together, so that their triple has no part in any conditional.
    rows = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    weights = torch.tensor([5.0, 6.0, 7.0, 3.0])
    triple = sandwich_errors(model([BINARY] * 3, singles(3, ((3, 3), [("a", "b", "c")]))), rows, weights)
    assert triple.std_error.isnan().tolist() == [False, False, False, True]
    # Both roots of a 0/1 column are equal: only their sum has an error.
    double = sandwich_errors(model([BINARY], {(1, 1): [("a",)], (2, 1): [("a",)]}), rows[:, :1], weights)
    assert double.std_error.isnan().all()
    value, error = double.of(np.array([[1.0, 1.0]]))
    assert float(value[0]) == pytest.approx(math.log(6 / 15)), float(error[0]) == pytest.approx(
        math.sqrt(1 / 6 + 1 / 15)
    )


def test_there_are_no_errors_without_a_refit_of_all_terms_and_the_reason_is_given(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 2, 90), rng.poisson(2, 90), rng.poisson(1, 90)], 1).astype(float)
    options = {"order": 2, "names": ["a", "b", "c"], "settings": RootSettings(false_discovery_rate=None)}
    reasons = {"none": "regressions were not refitted", "singles": "coefficients of sets were not refitted"}
    for refit, reason in reasons.items():
        fitted = fit_roots(x, [BINARY, "poisson", "poisson"], refit=refit, **options)
        assert reason in fitted.errors.reason and fitted.errors.covariance is None
        table = fitted.summary()
        assert "std_error" not in table and f"no standard errors: {fitted.errors.reason}" in table.attrs["notes"]
        fitted.save(tmp_path / f"{refit}.safetensors")
        assert load(tmp_path / f"{refit}.safetensors").summary().attrs["notes"] == table.attrs["notes"]
    refitted = refit_roots(fitted, x)
    assert refitted.errors.reason == "" and "std_error" in refitted.summary()
    monkeypatch.setattr(module, "MOST_TERMS", 2)
    assert "more" not in refitted.errors.reason  # made once
    assert "at most 2" in sandwich_errors(refitted.energy(), torch.from_numpy(x)).reason


def test_a_file_keeps_the_errors(tmp_path):
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 2, 200), rng.poisson(2, 200)], 1).astype(float)
    fitted = fit_roots(x, [BINARY, "poisson"], order=2, names=["a", "b"], refit="all")
    fitted.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert torch.equal(loaded.model.errors.covariance, fitted.errors.covariance)
    assert loaded.summary().equals(fitted.summary()) and loaded.odds_ratios().equals(fitted.odds_ratios())
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


def test_errors_are_those_of_resampled_rows():
    rng = np.random.default_rng(0)
    ill = rng.random(400) < 0.4
    x = np.stack([ill, rng.poisson(np.exp(0.2 + 0.6 * ill)), rng.normal(0.5 * ill)], 1)
    energy = model(
        [BINARY, COUNT, REAL], singles(3, ((2, 1), [("c",)]), ((2, 2), [("a", "b"), ("a", "c"), ("b", "c")]))
    )
    rows = torch.from_numpy(x)
    found = sandwich_errors(energy, rows)
    draws = []
    start = GeneralizedRootEnergy(energy.structure, found.unpenalised / energy.structure.multiplicity, energy.families)
    for _ in range(200):
        counts = torch.from_numpy(np.bincount(rng.integers(0, 400, 400), minlength=400).astype(float))
        draws.append(sandwich_errors(start, rows, counts).unpenalised.numpy())
    ratio = np.std(draws, axis=0) / found.std_error.numpy()
    # The spread of 200 draws is known to 5 %, five times that; the curvature alone misses it for sets.
    assert np.abs(np.log(ratio)).max() < 0.25
    law = RootPseudoLikelihood(energy.structure, rows, energy.families)
    naive = np.sqrt(np.linalg.inv(-law.hessian(start.psi.numpy())).diagonal()) * energy.structure.multiplicity.numpy()
    assert np.log(np.std(draws, axis=0) / naive).max() > 0.25


def coverage(law, structure, truth, states, rng, num_rows=500, num_tables=800):
    """Share of tables whose 95 % interval holds the truth: by the sandwich, and by the curvature alone."""
    start = GeneralizedRootEnergy(structure, torch.from_numpy(truth), BINARY)
    hits = np.zeros((2, len(truth)))
    scale = structure.multiplicity.numpy()
    for _ in range(num_tables):
        counts = torch.from_numpy(rng.multinomial(num_rows, law).astype(float))
        found = sandwich_errors(start, states, counts)
        best = found.unpenalised.numpy()
        curvature = -RootPseudoLikelihood(structure, states, BINARY, counts).hessian(best / scale)
        naive = np.sqrt(np.linalg.inv(curvature).diagonal()) * scale
        for i, errors in enumerate((found.std_error.numpy(), naive)):
            hits[i] += np.abs(best - scale * truth) <= norm.ppf(0.975) * errors
    return hits / num_tables


def test_intervals_cover_the_truth_and_those_of_the_curvature_do_not():
    names = "abc"
    domain = Domain([Variable(name, kind="count") for name in names])
    structure = RootStructure(domain, {(1, 1): [(n,) for n in names], (2, 2): [("a", "b"), ("a", "c"), ("b", "c")]})
    truth = np.array([-0.5, 0.2, -0.3, 0.5, -0.4, 0.3])
    states = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    weights = -GeneralizedRootEnergy(structure, torch.from_numpy(truth), BINARY).energy(states)
    covered, naive = coverage(weights.softmax(0).numpy(), structure, truth, states, np.random.default_rng(0))
    # Five standard deviations of 800 tables are 3.9 points.
    assert np.abs(covered - 0.95).max() < 0.04
    assert naive[3:].max() < 0.9


def test_intervals_of_counts_that_vary_too_much_cover_their_logarithms():
    rng = np.random.default_rng(0)
    energy, hits = model([COUNT], singles(1)), np.zeros(2)
    for _ in range(600):
        x = rng.negative_binomial(2.0, 2.0 / (2.0 + 4.0), 300).astype(float)  # mean 4, variance 12
        found = sandwich_errors(energy, torch.from_numpy(x[:, None]))
        miss = abs(float(found.unpenalised) - math.log(4.0))
        hits += [miss <= norm.ppf(0.975) * error for error in (float(found.std_error), 1 / math.sqrt(x.sum()))]
    covered, naive = hits / 600
    assert abs(covered - 0.95) < 0.045 and naive < 0.85


def test_a_fit_with_a_penalty_has_intervals_around_the_estimate_without_it():
    rng = np.random.default_rng(0)
    x = CELLS.numpy()[rng.choice(4, 2000, p=[0.4, 0.1, 0.15, 0.35])]
    fitted = fit_roots(x, [BINARY, BINARY], order=2, l1=0.02, names=["a", "b"], refit="all")
    table = fitted.summary().set_index("term").loc["a:b"]
    counts = np.bincount((x @ [2, 1]).astype(int))
    log_ratio, error = math.log(counts[0] * counts[3] / counts[1] / counts[2]), math.sqrt((1 / counts).sum())
    assert table["estimate"] < log_ratio - 0.01
    assert table["unpenalised"] == pytest.approx(log_ratio, rel=1e-5)
    assert table["std_error"] == pytest.approx(error, rel=1e-5) and table["z"] == pytest.approx(
        log_ratio / error, rel=1e-5
    )
    assert table["upper"] == pytest.approx(log_ratio + norm.ppf(0.975) * error, rel=1e-5)
    assert table["lower"] == pytest.approx(min(table["estimate"], log_ratio - norm.ppf(0.975) * error), rel=1e-5)
    ratios = fitted.odds_ratios(0.9).iloc[0]
    assert ratios["odds_ratio"] == pytest.approx(math.exp(table["estimate"]))
    assert ratios["upper"] == pytest.approx(math.exp(log_ratio + norm.ppf(0.95) * error), rel=1e-5)
    assert sum("conditional on the selection" in note for note in fitted.summary().attrs["notes"]) == 1


def test_a_fit_with_a_category_has_errors_along_what_it_may_move():
    rng = np.random.default_rng(0)
    region = rng.integers(0, 3, 500)
    visits = rng.poisson(np.exp(0.3 + 0.3 * (region == 2)))
    waits = rng.exponential(1.0 + 0.4 * (region == 1))
    x = np.column_stack([np.eye(3)[region], visits, waits])
    names = [f"region={level}" for level in ("north", "south", "west")] + ["visits", "waits"]
    families = [IndicatorFamily("region")] * 3 + ["poisson", "exponential"]
    settings = RootSettings(refit_share=0.0, tolerance=1e-9, false_discovery_rate=None)
    fitted = fit_roots(x, families, order=2, l1=1e-4, names=names, refit="all", settings=settings)
    errors = fitted.errors
    # The refit has no penalty: its optimum is that of the errors, along the same directions.
    assert errors.unpenalised.numpy() == pytest.approx(fitted.coefficients.numpy(), abs=1e-5)
    assert not errors.std_error.isnan().any()
    table = fitted.summary()
    assert table["std_error"].notna().all() and "unpenalised" not in table
    # Were every level free to move, they would move together with a root of the count that the model lacks.
    rows, weights = fitted.training.columns(range(5)), torch.from_numpy(fitted.training.weights)
    assert torch.equal(rows, torch.from_numpy(x))
    loose = sandwich_errors(fitted.energy(), rows, weights)
    assert np.abs(loose.unpenalised.numpy() - fitted.coefficients.numpy()).max() > 1e-3


@pytest.mark.slow
def test_intervals_of_penalised_fits_cover_the_truth_and_those_around_their_estimates_do_not():
    names = "abc"
    domain = Domain([Variable(name, kind="count") for name in names])
    structure = RootStructure(domain, {(1, 1): [(n,) for n in names], (2, 2): [("a", "b"), ("a", "c"), ("b", "c")]})
    truth = torch.tensor([-0.5, 0.2, -0.3, 0.5, -0.4, 0.3], dtype=torch.float64)
    states = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    law = (-GeneralizedRootEnergy(structure, truth, BINARY).energy(states)).softmax(0).numpy()
    wanted = {
        ":".join(term): float(value)
        for (_, term), value in zip(structure.names, structure.multiplicity * truth, strict=True)
    }
    options = {"order": 2, "l1": 0.01, "names": list(names), "refit": "all"}
    rng, hits, shrunk, num_tables = np.random.default_rng(1), np.zeros(6), np.zeros(6), 200
    for _ in range(num_tables):
        counts = rng.multinomial(2000, law)
        table = fit_roots(states.numpy(), BINARY, counts=counts, **options, settings=QUIET).summary().set_index("term")
        table = table.reindex(list(wanted))  # a set that was not selected is missed
        values = np.array([*wanted.values()])
        hits += (table["lower"] <= values) & (values <= table["upper"])
        shrunk += np.abs(table["estimate"] - values) <= norm.ppf(0.975) * table["std_error"]
    # Five standard deviations of 200 tables are 7.7 points; intervals reach to the estimate, and may cover more.
    assert (hits / num_tables).min() > 0.87
    assert (shrunk[3:] / num_tables).max() < 0.87
