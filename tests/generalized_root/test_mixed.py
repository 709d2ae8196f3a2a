"""Root models whose variables have families of their own, against plain loops, wide grids and closed forms."""

import dataclasses
import io
import itertools
import json
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from scipy.special import gammaln, logsumexp

from pyro_hoim import ConvergenceWarning, CountTable, Domain, InputError, IntractableError, Variable, load
from pyro_hoim.cli import main
from pyro_hoim.generalized_root import (
    ConditionalGaussianClosedForm,
    ExponentialFamily,
    GaussianFamily,
    GeneralizedRoot,
    GeneralizedRootEnergy,
    IndicatorFamily,
    NodeFamilies,
    RootAnnealed,
    RootAuto,
    RootChains,
    RootEnumeration,
    RootFile,
    RootModel,
    RootPseudoLikelihood,
    RootStructure,
    TruncatedPoissonFamily,
    UserFamily,
    check_normalizable,
    draw_from_nodes,
    draw_roots,
    independent_log_partition,
    load_roots,
    node_bounds,
    node_log_partition,
    predict_roots,
    save_roots,
)
from pyro_hoim.inference import NUTSSettings, sample_root_posterior
from pyro_hoim.testing import assert_close, raises

from support.mixed_roots import (
    BINARY,
    GAUSSIAN,
    LARGE,
    MIXTURES,
    POISSON,
    RED,
    brute_force,
    conditional_gaussian_log_z,
    grid,
    log_density,
    mixed_energy,
    mixed_states,
)

ALL = pytest.mark.parametrize("name", MIXTURES)
PLAIN = [name for name in MIXTURES if "user" not in name]
CATEGORIES = [name for name in MIXTURES if "categor" in name]
BUILT_IN = pytest.mark.parametrize("name", PLAIN)
"""Mixtures of families of the library, whose definition the oracles know."""


def statistics(energy, columns):
    """Products of roots of every term on a grid."""
    one = GeneralizedRootEnergy(energy.structure, torch.zeros(energy.structure.num_terms).double(), energy.families)
    base = log_density(one, columns)
    for t in range(energy.structure.num_terms):
        psi = torch.zeros(energy.structure.num_terms, dtype=torch.float64)
        psi[t] = 1 / energy.structure.multiplicity[t]
        yield log_density(GeneralizedRootEnergy(energy.structure, psi, energy.families), columns) - base


# Energies and conditionals


@ALL
def test_energy_is_the_sum_over_terms_of_each_variables_own_roots(name):
    energy = mixed_energy(name)
    x = mixed_states(energy, 8)
    expected = log_density(energy, list(x.T.numpy()))
    assert_close(-energy.energy(x), expected, relative=1e-12)
    base = energy.families.log_base(x).sum(-1)
    assert_close(energy.statistics(x) @ energy.coefficients + base, expected, relative=1e-12)
    assert energy.energy(x[:0]).shape == (0,)
    single = energy.to(dtype=torch.float32)
    assert_close(single.energy(x), energy.energy(x), relative=1e-4)


def test_control_sees_another_family_of_one_variable():
    energy = mixed_energy("all")
    x = mixed_states(energy, 8)
    other = GeneralizedRootEnergy(
        energy.structure, energy.psi, [BINARY, TruncatedPoissonFamily(9), *energy.families[2:]]
    )
    swapped = RootStructure(
        Domain([*energy.domain.variables[:3], Variable("v3", kind="positive")]),
        {key: energy.structure.tuples(key) for key in energy.structure.keys},
    )
    wrong = GeneralizedRootEnergy(swapped, energy.psi, [*energy.families[:3], ExponentialFamily()])
    assert_close(other.energy(x), energy.energy(x), relative=1e-12)  # a maximum changes supports, not energies
    assert float((wrong.energy(x.abs()) - energy.energy(x)).abs().max()) > 1e-2


@BUILT_IN
def test_conditionals_are_slices_of_the_joint_law(name):
    energy = mixed_energy(name)
    x = mixed_states(energy, 4)
    found = energy.node_log_prob(x)
    for row, values in zip(found, x.numpy(), strict=True):
        for s, family in enumerate(energy.families):
            if family.name == "indicator":
                continue
            points, log_weights = grid(family, energy.order)
            columns = [points if t == s else value for t, value in enumerate(values)]
            expected = log_density(energy, list(values)) - logsumexp(log_density(energy, columns) + log_weights)
            assert row[s].item() == pytest.approx(expected, abs=1e-9), (name, s)
    assert_close(energy.log_pseudo_prob(x), found.sum(-1), relative=1e-12)


@ALL
def test_conditioning_keeps_log_q_and_the_families_of_the_rest(name):
    energy = mixed_energy(name, batch=(2,))
    x = mixed_states(energy, 3)[:, None]
    units = [[f"v{s}" for s in unit] for unit in energy.families.units]
    for fixed in (*units, list(energy.domain.names)):
        values = dict(zip(fixed, x[..., energy.domain.indices(fixed)].unbind(-1), strict=True))
        rest, constant = energy.expand((3, 2)).condition(values)
        left = [n for n in energy.domain.names if n not in fixed]
        assert list(rest.families) == [energy.families[s] for s in energy.domain.indices(left)]
        inner = x[..., energy.domain.indices(left)].expand(3, 2, -1)
        assert_close(constant - rest.energy(inner), -energy.energy(x), relative=1e-10)


def test_rays_stretch_every_variable_by_its_own_statistic():
    energy = mixed_energy("all")
    v, z = mixed_states(energy, 3).abs() + 0.5, torch.tensor([0.5, 4.0, 9.0], dtype=torch.float64)
    stretched = v * torch.stack([z, z, z, z.sqrt()], -1)
    assert_close(energy.radial_log_density(z, v), log_density(energy, list(stretched.T.numpy())), relative=1e-10)
    v[:, 3] *= -1  # a Gaussian direction may point down, a count's may not
    energy.radial_natural(v)
    with raises("out-of-range", "direction"):
        energy.radial_natural(-v)


# Log Z, moments and gradients


@BUILT_IN
def test_exact_log_z_moments_and_expectations_are_those_of_wide_grids(name):
    energy = mixed_energy(name)
    log_z, logs, columns = brute_force(energy)
    probs = np.exp(logs)
    backend = RootEnumeration()
    assert_close(backend.log_partition(energy).value, log_z, relative=1e-9, absolute=1e-9)
    assert_close(backend.expectations(energy), [(probs * t).sum() for t in statistics(energy, columns)], relative=1e-7)
    means = np.array([(probs * x).sum() for x in columns])
    squares = np.array([(probs * (x - m) ** 2).sum() for x, m in zip(columns, means, strict=True)])
    mean, variance = backend.moments(energy)
    assert_close(mean, means, relative=1e-7, absolute=1e-8)
    assert_close(variance, squares, relative=1e-7)
    alone = dataclasses.replace(backend).log_partition(without_interactions(energy)).value
    assert_close(alone, independent_log_partition(energy), relative=1e-9, absolute=1e-9)
    assert abs(alone.item() - log_z) > 1e-3  # the control: interactions matter


def without_interactions(energy):
    psi = torch.where(torch.tensor([len(names) > 1 for _, names in energy.structure.names]), 0.0, energy.psi)
    return GeneralizedRootEnergy(energy.structure, psi, energy.families)


def conditional_gaussian(seed):
    """Three Gaussian variables, a 0/1 column and a count up to 4, all pairs."""
    families = [GAUSSIAN, BINARY, GAUSSIAN, TruncatedPoissonFamily(4), GAUSSIAN]
    domain = Domain([Variable(f"v{i}", kind=family.kind) for i, family in enumerate(families)])
    structure = RootStructure.mixed(domain, itertools.combinations(domain.names, 2))
    psi = torch.tensor(np.random.default_rng(seed).normal(0, 0.2, structure.num_terms))
    psi[[0, 2, 4]] = -torch.tensor([1.0, 1.5, 2.0], dtype=torch.float64)
    return GeneralizedRootEnergy(structure, psi, families)


def nominal_gaussian(seed):
    """Categories of three and two levels, a 0/1 column and two Gaussian variables, all pairs."""
    families = [RED, GAUSSIAN, LARGE, RED, BINARY, GAUSSIAN, LARGE, RED]
    domain = Domain([Variable(f"v{i}", kind=family.kind) for i, family in enumerate(families)])
    inside = [{"v0", "v3", "v7"}, {"v2", "v6"}]
    pairs = [pair for pair in itertools.combinations(domain.names, 2) if not any(set(pair) <= one for one in inside)]
    structure = RootStructure.mixed(domain, pairs)
    psi = torch.tensor(np.random.default_rng(seed).normal(0, 0.3, structure.num_terms))
    psi[[1, 5]] = -torch.tensor([1.0, 1.5], dtype=torch.float64)
    return GeneralizedRootEnergy(structure, psi, families)


@pytest.mark.parametrize("seed", range(3))
def test_conditional_gaussian_models_have_their_closed_form(seed):
    for energy in (
        conditional_gaussian(seed),
        nominal_gaussian(seed),
        mixed_energy("category-gaussian", seed),
        mixed_energy("binary-gaussian"),
    ):
        expected = conditional_gaussian_log_z(energy)
        backend = ConditionalGaussianClosedForm()
        assert RootAuto().select(energy)[0][1] == backend
        assert backend.log_partition(energy).value.item() == pytest.approx(expected, abs=1e-10)
        psi = energy.psi.clone()
        psi[-1] += 0.05
        moved = GeneralizedRootEnergy(energy.structure, psi, energy.families)
        assert abs(conditional_gaussian_log_z(moved) - expected) > 1e-5  # the control
    assert RootEnumeration().log_partition(energy).value.item() == pytest.approx(expected, abs=1e-8)
    both = [b.expectations(energy) for b in (backend, RootEnumeration())]
    assert_close(both[0], both[1], relative=1e-7)
    both = [torch.stack(b.moments(energy)) for b in (backend, RootEnumeration())]
    assert_close(both[0], both[1], relative=1e-7, absolute=1e-9)


def test_draws_of_conditional_gaussian_models_are_perfect():
    energy = conditional_gaussian(5)
    law = GeneralizedRoot(energy.structure, energy.psi, energy.families)
    assert law.sample_is_exact
    torch.manual_seed(1)
    values = energy.statistics(law.sample((20_000,)))
    error = values.std(0) / len(values) ** 0.5
    assert float(((values.mean(0) - law.expectations) / error).abs().max()) < 4.5
    alone = without_interactions(energy)  # the control
    other = RootAuto().expectations(alone)
    assert float(((values.mean(0) - other) / error).abs().max()) > 10
    batch = GeneralizedRootEnergy(energy.structure, torch.stack([energy.psi, alone.psi]), energy.families)
    backend = ConditionalGaussianClosedForm()
    assert backend.sample(batch, (3, 2)).shape == (3, 2, 2, 5)
    assert_close(backend.log_partition(batch).value[1], independent_log_partition(alone), relative=1e-9)


@pytest.mark.parametrize(
    ("energy", "options", "words"),
    [
        (mixed_energy("poisson-gaussian"), {}, "expected bounded counts and Gaussian variables"),
        (mixed_energy("finite"), {}, "expected bounded counts and Gaussian variables"),
        (mixed_energy("gaussians-binary"), {"max_states": 1}, "2 states of counts, above max_states=1"),
    ],
)
def test_other_models_have_no_conditional_gaussian_form(energy, options, words):
    with pytest.raises(IntractableError, match=words):
        ConditionalGaussianClosedForm(**options).log_partition(energy)


def test_cubic_roots_of_gaussian_variables_have_no_closed_form():
    energy = mixed_energy("gaussians-binary")
    structure = RootStructure.mixed(energy.domain, [("v0", "v1", "v2")])
    with pytest.raises(IntractableError, match="roots up to 2 in terms of Gaussian variables, received 3"):
        ConditionalGaussianClosedForm().plan(structure, energy.families).check()
    psi = energy.psi.clone()
    psi[0] = 0.5
    with raises("not-normalizable"):
        ConditionalGaussianClosedForm().log_partition(GeneralizedRootEnergy(energy.structure, psi, energy.families))


def test_strong_interactions_of_a_count_and_a_number_leave_nothing_out():
    """A Poisson rate that the number raises, and a number that the count moves far out."""
    domain = Domain([Variable("n", kind="count"), Variable("y", kind="real"), Variable("b", kind="count")])
    structure = RootStructure.mixed(domain, [("n", "y"), ("y", "b")])
    psi = torch.tensor([0.5, -0.5, 0.0, 0.0, 0.9, 2.0], dtype=torch.float64)
    energy = GeneralizedRootEnergy(structure, psi, [POISSON, GAUSSIAN, BINARY])
    # Given both counts the number is normal, and its integral a closed form.
    n, b = np.meshgrid(np.arange(400.0), [0.0, 1.0], indexing="ij")
    entries = dict(zip(structure.names, psi.tolist(), strict=True))
    shift = entries[(2, 1), ("y",)] + 2 * entries[(2, 2), ("n", "y")] * np.sqrt(n)
    shift = shift + 2 * entries[(2, 2), ("y", "b")] * b
    curve = -2 * entries[(1, 1), ("y",)]
    logs = entries[(1, 1), ("n",)] * n + entries[(1, 1), ("b",)] * b - gammaln(n + 1)
    expected = logsumexp(logs + shift**2 / (2 * curve) + 0.5 * math.log(2 * math.pi / curve))
    assert RootEnumeration().log_partition(energy).value.item() == pytest.approx(expected, abs=1e-8)


@ALL
def test_gradients_of_log_z_and_conditionals(name):
    energy = mixed_energy(name)
    x = mixed_states(energy, 3)

    def both(psi):
        model = GeneralizedRootEnergy(energy.structure, psi, energy.families)
        rows = x.reshape(len(x), *[1] * (psi.dim() - 1), -1)
        log_z = RootAuto(allow_undecided=True).log_partition(model).value
        return torch.stack([log_z, model.log_pseudo_prob(rows).sum(0)])

    psi = energy.psi.clone().requires_grad_(True)
    steps = 1e-5 * torch.eye(len(psi), dtype=torch.float64)
    ends = both(energy.psi + torch.cat([steps, -steps])).reshape(2, 2, -1)
    slopes = torch.stack([torch.autograd.grad(value, psi, retain_graph=True)[0] for value in both(psi)])
    assert_close(slopes, (ends[:, 0] - ends[:, 1]) / 2e-5, relative=1e-5)


@ALL
def test_annealed_log_z_is_within_its_limits(name):
    energy = mixed_energy(name)
    exact = RootAuto().log_partition(energy).value
    result = RootAnnealed(num_chains=200, num_temperatures=30, burn_in=20, seed=5).log_partition(energy)
    assert abs(float(result.value - exact)) < 6 * float(result.std_error) + 1e-9
    assert result.verdict != "unreliable"
    assert float(result.std_error) < 0.05


# Chains and draws


@ALL
def test_chains_have_the_law_of_the_model(name):
    energy = mixed_energy(name, scale=0.5 if name == "category-alone" else 0.25)
    exact = RootAuto().expectations(energy)
    chains = RootChains(energy, 3000 if name == "user-binary" else 6000, seed=2)
    assert_close(chains.log_q(), -energy.energy(chains.states), relative=1e-9, absolute=1e-12)
    assert_close(chains.interaction_score(), energy.interaction_score(chains.states), relative=1e-9, absolute=1e-12)
    values = energy.statistics(chains.states)  # the control: chains that have not moved are those without interactions
    drifted = ((values.mean(0) - exact) / (values.std(0) / len(values) ** 0.5)).abs().max()
    chains.sweep(10)
    values = energy.statistics(chains.states)
    scores = (values.mean(0) - exact) / (values.std(0) / len(values) ** 0.5)
    assert float(scores.abs().max()) < 4.5
    assert float(drifted) > 5
    assert_close(chains.log_q(), -energy.energy(chains.states), relative=1e-9, absolute=1e-12)


def test_chains_with_clamps_and_records_restart_bit_by_bit():
    energy = mixed_energy("all")
    chains = RootChains(energy, 40, clamped={"v3": torch.linspace(-1, 1, 40)}, seed=3)
    chains.sweep(3)
    state = chains.state_dict()
    first = chains.sweep(4, thin=2, energies=True, states=True)
    chains.load_state_dict(state)
    second = chains.sweep(4, thin=2, energies=True, states=True)
    assert torch.equal(first.states, second.states)
    assert torch.equal(chains.states[:, 3], torch.linspace(-1, 1, 40).double())
    energy.families.check_values(chains.states, "states")
    with raises("out-of-range", "clamped['v3']"):
        RootChains(energy, 2, clamped={"v3": math.inf})
    with raises("out-of-range", "clamped['v0']"):
        RootChains(energy, 2, clamped={"v0": 2})


# Pseudo-likelihoods, files and programs


@ALL
def test_pseudo_likelihood_of_rows_is_that_of_the_model(name):
    energy = mixed_energy(name)
    rows = mixed_states(energy, 12)
    weights = torch.arange(1.0, 13.0, dtype=torch.float64)
    likelihood = RootPseudoLikelihood(energy.structure, rows, energy.families, weights)
    psi = energy.psi.clone().requires_grad_(True)
    model = GeneralizedRootEnergy(energy.structure, psi, energy.families)
    value = (weights * model.log_pseudo_prob(rows)).sum()
    (slope,) = torch.autograd.grad(value, psi, create_graph=True)
    assert likelihood.log_prob(psi.detach().numpy()) == pytest.approx(value.item(), rel=1e-10)
    assert_close(likelihood.gradient(psi.detach().numpy()), slope, relative=1e-8, absolute=1e-8)
    (second,) = torch.autograd.grad(slope.sum(), psi)
    assert_close(likelihood.hessian(psi.detach().numpy()).sum(0), second, relative=1e-7, absolute=1e-7)


@BUILT_IN
def test_files_give_back_every_family(tmp_path, name):
    energy = mixed_energy(name)
    path = tmp_path / "model.safetensors"
    save_roots(
        path, RootFile(energy.structure, energy.psi, dict(zip(energy.domain.names, energy.families, strict=True)))
    )
    loaded = load_roots(path)
    x = mixed_states(energy, 3)
    assert torch.equal(loaded.energy().energy(x), energy.energy(x))
    assert (loaded.families, loaded.domain) == (energy.families, energy.domain)
    again = tmp_path / "again.safetensors"
    save_roots(again, loaded)
    assert again.read_bytes() == path.read_bytes()


def test_tables_of_rows_are_taken_alike_by_loaded_models_and_by_commands(tmp_path, capsys):
    """Of columns of several kinds: each is judged by its own family, whatever the others hold."""
    domain = Domain([Variable("k", kind="count"), Variable("w", kind="real")])
    structure = RootStructure.mixed(domain, [("k", "w")])
    families = {"k": TruncatedPoissonFamily(2), "w": GaussianFamily()}
    path, table = tmp_path / "model.safetensors", tmp_path / "rows.csv"
    save_roots(path, RootFile(structure, torch.tensor([0.1, -0.5, 0.2, 0.1], dtype=torch.float64), families))
    frame = pd.DataFrame({"k": [1, 0], "w": [0.5, -0.25]})
    frame.to_csv(table, index=False)
    model, energy = load(path), load_roots(path).energy()
    rows = torch.tensor(frame.to_numpy())
    pseudo = -float(energy.log_pseudo_prob(rows).mean())
    assert model.score(frame)["pseudo_nll"] == pytest.approx(pseudo, rel=1e-9)
    exact = -energy.energy(rows) - RootAuto().log_partition(energy).value
    assert_close(model.row_log_likelihood(frame).values, exact, relative=1e-9)
    assert "w" in model.predict(frame, "w")
    assert len(model.compare(model, data=frame)) == 2
    with pytest.raises(SystemExit):
        main(["score", str(path), str(table), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["pseudo_nll"], shown["nll"]) == (pytest.approx(pseudo), pytest.approx(-float(exact.mean())))
    # A value that another column could hold.
    bad = pd.DataFrame({"k": [1, 0.5], "w": [0.5, -0.25]})
    with pytest.raises(InputError, match=r"column 'k': expected a whole number from 0 .*received 0.5"):
        model.score(bad)
    bad.to_csv(table, index=False)
    with pytest.raises(SystemExit):
        main(["score", str(path), str(table)])
    assert "line 3, column 'k': expected a whole number" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"column 'k': .* takes numbers from 0 to 2, received 3"):
        model.score(pd.DataFrame({"k": [3, 0], "w": [0.5, -0.25]}))


def test_files_of_one_family_are_the_same_however_it_is_given(tmp_path):
    domain = Domain([Variable(name, kind="count") for name in "ab"])
    structure = RootStructure.simplified(domain, [("a", "b")])
    paths = [tmp_path / name for name in ("one", "each", "named")]
    for path, family in zip(paths, (POISSON, [POISSON] * 2, {"b": POISSON, "a": POISSON}), strict=True):
        save_roots(path, RootFile(structure, torch.zeros(3), family))
    assert len({path.read_bytes() for path in paths}) == 1
    assert load_roots(paths[1]).family == POISSON


def test_files_refuse_what_they_could_not_give_back():
    energy = mixed_energy("user-binary")
    with raises("unknown-choice", "family"):
        RootFile(energy.structure, energy.psi, energy.families)
    energy = mixed_energy("binary-poisson")
    info = {"columns": ["v0", "v1", "c"], "fixed_columns": {"c": 1.0}}
    with raises("invalid-value", "info['fixed_columns']"):
        RootFile(energy.structure, energy.psi, energy.families, info)
    with raises("unknown-name", "info['fixed_kinds']"):
        RootFile(energy.structure, energy.psi, energy.families, info | {"fixed_kinds": {"c": "real", "d": "real"}})
    file = RootFile(energy.structure, energy.psi, energy.families, info | {"fixed_kinds": {"c": "real"}})
    assert [variable.kind for variable in file.domain] == ["count", "count", "real"]


def test_sites_of_a_program_take_rows_of_all_kinds():
    energy = mixed_energy("all")
    law = GeneralizedRoot(energy.structure, energy.psi, energy.families)
    draws = law.sample((50,))
    assert bool(law.support.check(draws).all())
    assert not bool(law.support.check(draws - 0.5).any())
    assert_close(law.log_prob(draws), -energy.energy(draws) - RootEnumeration().log_partition(energy).value)

    def program(rows):
        shift = pyro.sample("shift", pyro.distributions.Normal(0.0, 1.0).expand(energy.psi.shape).to_event(1))
        moved = GeneralizedRoot(energy.structure, energy.psi + 0.01 * shift.double(), energy.families)
        with pyro.plate("rows", len(rows)):
            pyro.sample("x", moved, obs=rows)

    trace = pyro.poutine.trace(program).get_trace(draws)
    assert math.isfinite(float(trace.log_prob_sum()))
    with pytest.raises(InputError, match=r"value\[\.\.\., 1\]"):
        law.log_prob(draws + 0.5 * torch.tensor([0.0, 1.0, 0.0, 0.0]))
    rest = law.condition({"v0": 1, "v3": -0.5})
    assert list(rest.families) == [POISSON, ExponentialFamily()]
    assert repr(rest.families) in repr(rest)


def test_divergence_of_mixed_laws_is_exact():
    p, q = (mixed_energy("binary-gaussian", seed=s) for s in (1, 2))
    log_z, logs, columns = brute_force(p)
    other, _, _ = brute_force(q)
    expected = (np.exp(logs) * (log_density(p, columns) - log_z - log_density(q, columns) + other)).sum()
    laws = [GeneralizedRoot(e.structure, e.psi, e.families) for e in (p, q)]
    assert torch.distributions.kl_divergence(*laws).item() == pytest.approx(expected, abs=1e-8)
    with raises("other-domain"):
        torch.distributions.kl_divergence(laws[0], GeneralizedRoot(*_binary_poisson()))


def _binary_poisson():
    energy = mixed_energy("binary-poisson")
    return energy.structure, energy.psi, energy.families


# What one says


def test_one_family_is_the_same_however_it_is_given():
    domain = Domain([Variable(name, kind="real") for name in "abc"])
    structure = RootStructure.complete(domain, 2)
    psi = -torch.rand(structure.num_terms, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    models = [
        GeneralizedRootEnergy(structure, psi, family)
        for family in (GAUSSIAN, [GAUSSIAN] * 3, {name: GaussianFamily() for name in "cab"})
    ]
    assert {repr(model) for model in models} == {repr(models[0])}
    assert {model.families for model in models} == {models[0].families}
    assert all(model.family == GAUSSIAN for model in models)
    draws = [RootChains(model, 20, seed=1, check=False) for model in models]
    [chains.sweep(3) for chains in draws]
    assert all(torch.equal(chains.states, draws[0].states) for chains in draws)
    assert {chains.fingerprint for chains in draws} == {draws[0].fingerprint}


def test_models_copy_and_travel():
    energy = mixed_energy("all")
    copy = pickle.loads(pickle.dumps(energy))
    assert copy.families == energy.families
    assert copy.to(dtype=torch.float32).families == energy.families
    assert hash(copy.families) == hash(energy.families)


def test_what_needs_one_family_says_so():
    energy = mixed_energy("binary-gaussian")
    with pytest.raises(InputError, match="one family for all variables, received truncated-poisson, gaussian"):
        _ = energy.family
    with raises("no-method"):
        energy.gaussian_parameters()
    with raises("no-method"):
        energy.require_finite("support")


@pytest.mark.parametrize(
    ("family", "code", "argument"),
    [
        ("poisson", "wrong-type", "family"),
        ({"a": POISSON}, "missing-part", "family"),
        ({"a": POISSON, "b": GAUSSIAN, "c": POISSON}, "unknown-name", "family"),
        ([POISSON], "wrong-shape", "family"),
        ([POISSON, "gaussian"], "wrong-type", "family of 'b'"),
        ([GAUSSIAN, GAUSSIAN], "conflict", "structure"),
        (7, "wrong-type", "family"),
    ],
)
def test_families_that_do_not_fit_are_refused(family, code, argument):
    domain = Domain([Variable("a", kind="count"), Variable("b", kind="real")])
    structure = RootStructure.mixed(domain)
    with raises(code, argument):
        GeneralizedRootEnergy(structure, torch.zeros(3), family)


def test_values_are_those_of_their_own_family():
    families = NodeFamilies.of([BINARY, GAUSSIAN, POISSON], Domain([Variable(n, kind=k) for n, k in KINDS.items()]))
    families.check_values(torch.tensor([1.0, -2.0, 7.0]), "x")
    for wrong, where in ((torch.tensor([2.0, 0.0, 0.0]), 0), (torch.tensor([0.0, 0.0, -1.0]), 2)):
        with raises("out-of-range", f"x[..., {where}]"):
            families.check_values(wrong, "x")


KINDS = {"a": "count", "b": "real", "c": "count"}


def test_normalizability_of_mixtures():
    for name in PLAIN:
        assert check_normalizable(mixed_energy(name)).is_proven, name
    assert check_normalizable(mixed_energy("user-binary")).is_proven
    unsaid = UserFamily("geometric", "count", np.zeros_like)
    energy = mixed_energy("user-binary")
    undecided = GeneralizedRootEnergy(energy.structure, energy.psi, [unsaid, BINARY])
    assert check_normalizable(undecided).verdict == "undecided"
    # Numbers that grow whatever the counts are.
    energy = mixed_energy("poisson-gaussian")
    psi = energy.psi.clone()
    psi[1] = 0.1
    verdict = check_normalizable(GeneralizedRootEnergy(energy.structure, psi, energy.families))
    assert verdict.verdict == "disproven"
    assert verdict.witness.tolist() == [0.0, 1.0]


def test_levels_of_a_category_are_not_added_up_in_verdicts():
    """exp((0.7 a + 0.7 b - 1) root(x)) diverges where both indicators can be 1, and does not where exactly one is."""
    domain = Domain([Variable("a", kind="count"), Variable("b", kind="count"), Variable("x", kind="positive")])
    structure = RootStructure(domain, {(2, 1): [("x",)], (2, 2): [("a", "x"), ("b", "x")]})
    psi = torch.tensor([-1.0, 0.35, 0.35])  # pairs stand twice in the sum
    free = {"a": BINARY, "b": BINARY, "x": ExponentialFamily()}
    levels = {"a": IndicatorFamily("colour"), "b": IndicatorFamily("colour"), "x": ExponentialFamily()}
    assert check_normalizable(GeneralizedRootEnergy(structure, psi, free)).verdict == "disproven"
    assert check_normalizable(GeneralizedRootEnergy(structure, psi, levels)).is_proven


def test_posteriors_and_predictions_take_rows_of_all_kinds():
    energy = mixed_energy("binary-gaussian")
    rows = GeneralizedRoot(energy.structure, energy.psi, energy.families).sample((300,))
    settings = NUTSSettings(num_draws=40, burn_in=40, num_chains=2)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # short chains
        posterior = sample_root_posterior(
            energy.structure, rows, energy.families, 3.0, settings, calibrate=False, progress=False
        )
    spread = posterior.covariance.diagonal().sqrt()
    assert bool(((posterior.mode - energy.psi).abs() < 5 * spread).all())
    table = CountTable.from_matrix(rows.numpy(), energy.domain.names, kind="real")
    for s, name in enumerate(energy.domain.names):
        found = predict_roots(RootModel(energy, energy.domain, {}), table, name)
        log_probs = torch.as_tensor(found.log_probs)
        if log_probs.ndim == 2:  # of 0 and 1
            log_probs = log_probs.gather(1, rows[:, [s]].long())[:, 0]
        assert_close(log_probs, energy.node_log_prob(rows)[:, s], relative=1e-9, absolute=1e-12)
    draws = draw_roots(RootModel(energy, energy.domain, {}), 5, clamped={"v1": -0.5})
    assert draws.is_exact
    assert draws.values[:, 1].tolist() == [-0.5] * 5


def test_commands_read_mixed_models(tmp_path, capsys):
    energy, path = mixed_energy("all"), tmp_path / "model.safetensors"
    save_roots(path, RootFile(energy.structure, energy.psi, energy.families))

    def run(*words):
        with pytest.raises(SystemExit) as left:
            main([*words])
        return left.value.code, capsys.readouterr()

    code, shown = run("log-z", str(path), "--json")
    assert json.loads(shown.out)["value"] == pytest.approx(RootAuto().log_partition(energy).value.item(), abs=1e-9)
    code, shown = run("sample", str(path), "--number", "3", "--given", "v0=1")
    table = pd.read_csv(io.StringIO(shown.out))
    assert (code, list(table.columns), table["v0"].tolist()) == (0, list(energy.domain.names), [1, 1, 1])
    assert pd.api.types.is_integer_dtype(table["v1"])
    code, shown = run("sample", str(path), "--number", "1", "--given", "v0=2")
    assert code != 0
    assert "from 0 to 1 for 'v0'" in shown.err
    rows = tmp_path / "rows.csv"
    table.to_csv(rows, index=False)
    code, shown = run("score", str(path), str(rows), "--json")
    states = torch.tensor(table.to_numpy(dtype=float))
    found = json.loads(shown.out)
    assert found["pseudo_nll"] == pytest.approx(-float(energy.log_pseudo_prob(states).mean()), rel=1e-6)
    assert found["gain"] is None  # the file holds no independent columns
    code, shown = run("interactions", str(path))
    assert code == 0
    assert "v0:v2:v3" in shown.out


# Categories


@pytest.mark.parametrize("name", CATEGORIES)
def test_conditionals_of_categories_are_those_of_all_indicators_together(name):
    energy = mixed_energy(name)
    x = mixed_states(energy, 6)
    found = energy.node_log_prob(x)
    for places in energy.families.blocks:
        levels = torch.eye(len(places)).double()
        tried = x[:, None].repeat(1, len(places), 1)
        tried[..., places] = levels
        expected = (-energy.energy(tried)).log_softmax(-1)[x[:, places] == 1]
        assert_close(found[:, places].sum(-1), expected, relative=1e-10)
        assert float(found[:, places].abs()[x[:, places] == 0].sum()) == 0.0


def test_blocks_of_listed_models_hold_whole_categories():
    energy = mixed_energy("category-alone")
    table = energy.block_conditional(["v2", "v1", "v0", "v3"], mixed_states(energy, 2))
    assert table.shape == (2, 2, 2, 2, 2)
    assert_close(table.exp().flatten(1).sum(-1), torch.ones(2), relative=1e-10)
    possible = [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert torch.isfinite(table[0]).nonzero()[:, 1:].unique(dim=0).tolist() == [list(p) for p in possible]
    law = GeneralizedRoot(energy.structure, energy.psi, energy.families)
    states = law.enumerate_support()
    assert len(states) == 3 * 4
    assert law.log_prob(states).exp().sum().item() == pytest.approx(1.0)
    assert bool(law.support.check(states).all())
    assert not bool(law.support.check(torch.tensor([1.0, 1, 0, 0, 0])))
    with raises("conflict", "block"):
        energy.block_conditional(["v0"], states)
    with raises("no-method"):
        energy.over_levels()


def test_one_parameter_of_a_category_is_redundant():
    energy = mixed_energy("category-counts")
    psi = energy.psi.clone()
    psi[[1, 3, 4]] += 0.7
    moved = GeneralizedRootEnergy(energy.structure, psi, energy.families)
    x = mixed_states(energy, 5)
    assert_close(moved.node_log_prob(x), energy.node_log_prob(x), relative=1e-10, absolute=1e-12)
    both = [RootAuto().log_partition(model).value for model in (moved, energy)]
    assert_close(both[0] - both[1], 0.7, relative=1e-9)
    psi[1] += 0.1  # the control
    other = GeneralizedRootEnergy(energy.structure, psi, energy.families)
    assert float((other.node_log_prob(x) - energy.node_log_prob(x)).abs().max()) > 1e-2


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda e: e.condition({"v1": 1}), "conflict", "evidence"),
        (lambda e: e.condition({"v1": 1, "v3": 1, "v4": 0}), "out-of-range", "evidence"),
        (lambda e: RootChains(e, 2, clamped={"v1": 1}), "conflict", "clamped"),
        (lambda e: RootChains(e, 2, clamped={"v1": 0, "v3": 0, "v4": 0}), "out-of-range", "clamped"),
        (lambda e: e.energy(torch.zeros(5)), "out-of-range", "x"),
        (lambda e: e.energy(torch.tensor([0.0, 1, 0, 1, 0])), "out-of-range", "x"),
        (
            lambda e: GeneralizedRootEnergy(
                RootStructure.simplified(e.domain, [("v1", "v3")]), torch.zeros(6), e.families
            ),
            "invalid-value",
            "structure",
        ),
        (lambda e: node_log_partition(e.families[1], torch.zeros(1)), "no-method", "family"),
        (lambda e: node_bounds(e.families[1], torch.zeros(1)), "no-method", "family"),
        (lambda e: draw_from_nodes(e.families[1], torch.zeros(1)), "no-method", "family"),
        (lambda _: IndicatorFamily(""), "invalid-value", "category"),
    ],
)
def test_categories_refuse_parts_of_themselves(call, code, argument):
    with raises(code, argument):
        call(mixed_energy("category-counts"))


def test_all_variables_may_be_indicators():
    domain = Domain([Variable(f"v{i}", kind="count") for i in range(3)])
    energy = GeneralizedRootEnergy(RootStructure.independent(domain), torch.zeros(3), IndicatorFamily("a"))
    law = GeneralizedRoot(energy.structure, energy.psi, IndicatorFamily("a"))
    assert_close(law.mean, torch.full((3,), 1 / 3), relative=1e-6)
    assert law.sample_is_exact
    assert bool((law.sample((50,)).sum(-1) == 1).all())
    alone = GeneralizedRoot(*_one_level())
    assert alone.log_prob(torch.ones(1)).item() == pytest.approx(0.0)
    assert alone.sample((3,)).tolist() == [[1.0]] * 3


def _one_level():
    domain = Domain([Variable("v", kind="count")])
    return RootStructure.independent(domain), torch.zeros(1), IndicatorFamily("a")


@ALL
def test_laws_keep_precision_batches_and_shapes(name):
    energy = mixed_energy(name, batch=(2,))
    law = GeneralizedRoot(energy.structure, energy.psi.float(), energy.families)
    draws = law.sample((3,))
    double = GeneralizedRoot(energy.structure, energy.psi, energy.families)
    d = len(energy.domain)
    assert (draws.dtype, law.mean.dtype, draws.shape, law.variance.shape) == (torch.float32,) * 2 + ((3, 2, d), (2, d))
    assert_close(law.log_prob(draws), double.log_prob(draws.double()), relative=1e-5, absolute=1e-5)
    wide = double.expand((4, 2))
    assert wide.sample((5,)).shape == (5, 4, 2, d)
    assert wide.log_pseudo_prob(draws[:1]).shape == (4, 2)
    singles = [
        GeneralizedRoot(energy.structure, psi, energy.families).log_prob(draws[:, 0].double()) for psi in energy.psi
    ]
    assert_close(double.log_prob(draws[:, :1].double())[:, 0], singles[0], relative=1e-12)
    assert_close(double.log_prob(draws[:, :1].double())[:, 1], singles[1], relative=1e-12)


def test_nothing_has_any_family():
    nothing = RootStructure(Domain([]), {})
    for family in ({}, [], POISSON, IndicatorFamily("a")):
        law = GeneralizedRoot(nothing, torch.zeros(0), family)
        assert law.log_prob(torch.zeros(3, 0)).tolist() == [0.0] * 3
        assert law.sample((2,)).shape == (2, 0)


# Full models


@pytest.mark.parametrize("name", [n for n in MIXTURES if n != "every-kind"])
def test_full_models_have_every_root_that_is_a_function_of_its_own(name):
    """The statistics of all keys are as many as their rank, and a root more of a bounded set adds nothing to it."""
    small = mixed_energy(name)
    sets = [names for (_, size), names in small.structure.names if size > 1]
    structure = RootStructure.mixed(small.domain, sets, full=True, order=4, family=small.families)
    rows = mixed_states(small, 4000)

    def rank(one):
        psi = torch.zeros(one.num_terms, dtype=torch.float64)
        values = GeneralizedRootEnergy(one, psi, small.families).statistics(rows)
        columns = torch.cat([torch.ones(len(rows), 1).double(), values], 1)
        columns = columns / columns.norm(dim=0)
        return int(torch.linalg.matrix_rank(columns, rtol=1e-9))

    redundant = len(small.families.blocks)  # indicators of a category sum to 1
    redundant += sum(_whole_sets(small, sets))
    assert rank(structure) == 1 + structure.num_terms - redundant
    terms = {key: structure.tuples(key) for key in structure.keys}
    bounded = [n for n in {n for _, n in structure.names} if small.families.num_roots(small.domain.indices(n)) < 4]
    for names in bounded:
        last = max(j for (j, _), members in structure.names if members == names)
        more = {**terms, (last + 1, len(names)): [*terms.get((last + 1, len(names)), ()), names]}
        assert rank(RootStructure(small.domain, more)) == rank(structure), names
    plain = RootStructure.mixed(small.domain, sets)
    assert {(len(n), n) for _, n in plain.names} == {(len(n), n) for _, n in structure.names}


def _whole_sets(energy, sets):
    """By category and rest of a set: 1 where all its indicators meet it, whose sum is the rest alone."""
    for places in energy.families.blocks:
        members = {energy.domain.names[s] for s in places}
        rests = [tuple(n for n in names if n not in members) for names in sets if members & set(names)]
        yield from (1 for rest in set(rests) if rests.count(rest) == len(members))


def test_keys_of_full_models_are_those_that_columns_need():
    families = {"ill": BINARY, "level": TruncatedPoissonFamily(2), "visits": POISSON, "weight": GAUSSIAN}
    domain = Domain([Variable(name, kind=family.kind) for name, family in families.items()])
    full = RootStructure.mixed(domain, [("ill", "weight"), ("ill", "level")], full=True, order=3, family=families)
    roots = {}
    for (j, _), names in full.names:
        roots.setdefault(names, []).append(j)
    assert roots == {
        ("ill",): [1],
        ("level",): [1, 2],
        ("visits",): [1, 2, 3],
        ("weight",): [1, 2, 3],
        ("ill", "weight"): [2, 3],
        ("ill", "level"): [2, 3],
    }
    with raises("missing-part", "family"):
        RootStructure.mixed(domain, full=True)
    with raises("out-of-range", "order"):
        RootStructure.mixed(domain, [("ill", "level", "visits")], full=True, order=2, family=families)
    with raises("out-of-range", "order"):
        RootStructure.mixed(domain, full=True, order=2.5, family=families)
    energy = GeneralizedRootEnergy(full, torch.zeros(full.num_terms), families)
    assert energy.node_natural(torch.tensor([1.0, 2.0, 3.0, -1.0])).shape == (4, 3)
