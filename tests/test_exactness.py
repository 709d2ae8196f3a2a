"""The tables of docs/exact_or_approximate.md agree with the objects."""

import contextlib
import math
from pathlib import Path

import numpy as np
import pyro
import pytest
import torch

import pyro_hoim
from pyro_hoim import (
    DiaconisYlvisaker,
    Domain,
    GeneralizedRoot,
    HierarchicalLogLinear,
    InputError,
    InteractionHypergraph,
    IntractableError,
    LogLinearEnergy,
    LogLinearStatistics,
    RootStructure,
    Variable,
    boltzmann,
    log_linear,
)
from pyro_hoim.boltzmann.learning import check_method
from pyro_hoim.data import Observations
from pyro_hoim.dependency_network import DecisionGraph, LeafConditional
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    PoissonFamily,
    RootAnnealed,
    RootAuto,
    TruncatedPoissonFamily,
)
from pyro_hoim.inference import (
    BirthDeath,
    Exchange,
    Langevin,
    MixedGibbs,
    NoisyExchange,
    PseudoPosterior,
    StructurePrior,
    average_decomposable,
    enumerate_structures,
    log_evidence,
    sample_network_posterior,
    structure_model,
)
from pyro_hoim.information import bias_variance

from studies.random_laws import random_uniform_law

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "exact_or_approximate.md").read_text(encoding="utf-8")


def _table(name):
    body = PAGE.split(f"<!-- {name}-table-start -->")[1].split(f"<!-- {name}-table-end -->")[0]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.strip().splitlines()]
    return {row[0]: dict(zip([name.strip("`") for name in header[1:]], row[1:], strict=True)) for row in rows}


EXACTNESS = _table("exact")
BACKENDS = ("Enumeration", "VariableElimination", "Auto", "AnnealedImportance")
KINDS = {"exact": "exact", "*biased low*": "biased"}


@pytest.fixture(scope="module")
def domain():
    return Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})


def test_every_quantity_and_backend_is_in_the_table():
    assert len(EXACTNESS) == 15
    assert all(set(row) == set(BACKENDS) for row in EXACTNESS.values())


@pytest.mark.parametrize("name", BACKENDS)
def test_backends_are_as_exact_as_the_table_says(name, domain):
    backend = getattr(log_linear, name)()
    hypergraph = InteractionHypergraph.from_order(domain, 2)
    theta = torch.linspace(-1, 1, hypergraph.num_parameters, dtype=torch.float64)
    result = backend.log_partition(LogLinearEnergy.from_theta(hypergraph, theta))
    says = {quantity: row[name] for quantity, row in EXACTNESS.items()}
    assert result.kind == KINDS[says["log Z"]]
    expectations = ("marginals and expectations (eta)", "gradients of log Z", "entropy, Kullback-Leibler divergence")
    for quantity in ("Z", *expectations):
        assert (says[quantity] == "exact") is backend.is_exact
    corner = InteractionHypergraph(domain, [("a", "b"), ("b", "c")], hierarchical=False, coding="corner")
    for coding in ("corner", "balanced"):
        found = log_linear.log_partition(LogLinearEnergy.from_theta(corner, theta[:4]), coding, partition=backend)
        told = says["`log_partition` of a model in a coding asked for, corner families too"]
        assert found.kind == KINDS[told] and found.coding == coding
    rows = HierarchicalLogLinear(hypergraph, theta, partition=backend)
    counts = LogLinearStatistics(hypergraph, theta, 5, partition=backend)
    assert rows.sample_is_exact is (says["samples of `HierarchicalLogLinear`"] == "exact")
    assert counts.sample_is_exact is (says["samples of `LogLinearStatistics`, up to 2^20 states"] == "exact")
    exact = HierarchicalLogLinear(hypergraph, theta)
    assert says["mode and marginal distributions of `HierarchicalLogLinear`"].startswith("exact")
    assert torch.equal(rows.mode, exact.mode)
    assert torch.allclose(rows.marginal(["a"]).probs, exact.marginal(["a"]).probs)
    assert says["energies, conditional distributions, log pseudo-likelihood"] == "exact"
    state = torch.tensor([1, 2, 0])
    assert rows.log_pseudo_prob(state) == exact.log_pseudo_prob(state)


@pytest.mark.parametrize("name", BACKENDS)
def test_beyond_exact_reach_the_table_holds_or_the_answer_is_a_refusal(name):
    backend = getattr(log_linear, name)()
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
    rows = HierarchicalLogLinear(hypergraph, torch.zeros(hypergraph.num_parameters), partition=backend)
    counts = LogLinearStatistics(hypergraph, rows.theta, 5, partition=backend)
    with pytest.raises(IntractableError):
        _ = rows.mode
    assert counts.sample_is_exact is (EXACTNESS["samples of `LogLinearStatistics`, otherwise"][name] == "exact")
    if backend.is_exact:
        with pytest.raises(IntractableError):
            rows.log_prob(torch.zeros(60))


@pytest.mark.parametrize("name", BACKENDS)
def test_conjugate_prior_is_as_exact_as_the_table_says(name, domain):
    backend = getattr(log_linear, name)()
    decomposable = InteractionHypergraph(domain, [("a", "b"), ("b", "c")], closure=True)
    cycle = InteractionHypergraph.from_order(domain, 2)
    easy = DiaconisYlvisaker.uniform(decomposable, 3.0, partition=backend)
    hard = DiaconisYlvisaker.uniform(cycle, 3.0, partition=backend)
    assert EXACTNESS["samples of `DiaconisYlvisaker`, decomposable"][name] == "exact"
    assert easy.sample_is_exact
    density = "" if backend.is_exact else "*biased high*"
    assert EXACTNESS["density of `DiaconisYlvisaker`, decomposable"][name] == (density or "exact")
    assert not easy.unnormalised
    assert EXACTNESS["density of `DiaconisYlvisaker`, otherwise"][name].removeprefix("*biased high*, ") == (
        "up to a constant"
    )
    assert hard.unnormalised
    assert EXACTNESS["samples of `DiaconisYlvisaker`, otherwise"][name] == "*proposal*"
    assert not hard.sample_is_exact


def test_networks_are_as_exact_as_their_table_says():
    says = _table("network")
    assert len(says) == 5
    for column, num_variables in (("listed", 3), ("not listed", 40)):
        domain = Domain.from_cardinalities([2] * num_variables)
        singles = InteractionHypergraph.from_order(domain, 1)
        fair = LogLinearEnergy.from_theta(singles, torch.zeros(num_variables, dtype=torch.float64))
        nodes = pyro_hoim.DependencyConditionals.from_model(fair)
        network = pyro_hoim.DependencyNetwork(nodes)
        state = torch.zeros(num_variables, dtype=torch.long)
        assert says["conditionals, log pseudo-likelihood, FC-limit"][column] == "exact"
        assert network.log_pseudo_prob(state).item() == pytest.approx(-num_variables * math.log(2))
        graphs = [DecisionGraph(domain, name) for name in domain.names]
        leaves = pyro_hoim.DependencyConditionals(LeafConditional(g, torch.full((1, 2), 0.5)) for g in graphs)
        draws = sample_network_posterior(leaves, pyro_hoim.Observations(domain, state[None]), num_draws=2)
        told = says["posterior of leaf probabilities given the graphs, `sample_network_posterior`"][column]
        assert draws.is_exact is (told == "exact")
        is_exact = says["stationary distribution, `log_prob`, marginals of `DependencyNetwork`"][column] == "exact"
        assert is_exact is (says["full conditional divergence from the stationary distribution"][column] == "exact")
        assert network.sample_is_exact is is_exact
        assert is_exact is (says["samples of `DependencyNetwork`, given evidence or not"][column] == "exact")
        if is_exact:
            assert network.log_prob(state).item() == pytest.approx(-num_variables * math.log(2))
            assert network.condition({domain.names[0]: 0}).sample_is_exact
        else:
            with pytest.raises(IntractableError, match="log_pseudo_prob"):
                network.log_prob(state)
            with pytest.raises(IntractableError):
                network.marginal([domain.names[0]])


def test_posteriors_over_structure_are_as_exact_as_their_table_says(domain):
    says = _table("structure")
    assert len(says) == 12
    counts = torch.arange(1, 13).reshape(2, 3, 2).numpy()
    data = pyro_hoim.Observations.from_table(domain, counts)
    chain = InteractionHypergraph(domain, [("a", "b"), ("b", "c")], closure=True)
    cycle = InteractionHypergraph.from_order(domain, 2)
    spaces = {
        "conjugate, decomposable": ("conjugate:2", chain, StructurePrior(domain, space="decomposable")),
        "conjugate, otherwise": ("conjugate:2", cycle, StructurePrior(domain)),
        "normal": ("unit", cycle, StructurePrior(domain)),
    }
    beyond = StructurePrior(Domain.from_cardinalities([2] * 6))
    for column, (prior, collection, structures) in spaces.items():
        found = log_evidence(collection, data, prior)
        assert found.method == says["`log_evidence`"][column].strip("*") and found.is_exact is (found.method == "exact")
        told = says["`enumerate_structures`: probabilities of collections and interactions"][column]
        if told.startswith("refused"):
            with pytest.raises(InputError):
                enumerate_structures(data, prior, structures)
            assert told == "refused, *laplace* or *path*"
            posterior = enumerate_structures(data, prior, structures, method="laplace")
            told = "*laplace*"
            two = data.project(["a", "b"])  # as the whole: another method, of as many collections as one asks for
            pair = StructurePrior(two.domain, max_order=2)
            assert enumerate_structures(two, prior, pair, method="path").method == "path"
        else:
            posterior = enumerate_structures(data, prior, structures)
        assert posterior.method == told.strip("*") and posterior.is_exact is (told == "exact")
        assert posterior.reweighted("unit:4" if prior == "unit" else "conjugate:8").is_exact is (told == "exact")
        others = says["the list under another prior, `reweighted` of `StructurePosterior`"]
        assert others == says["`enumerate_structures`: probabilities of collections and interactions"]
        chains = says["`sample_structures` and `BirthDeath`: the distribution that chains leave unchanged"]
        assert chains == says["`enumerate_structures`: probabilities of collections and interactions"]
        assert BirthDeath(data, prior, structures, method=posterior.method).is_exact is (told == "exact")
        told = says["both with `collapsed=False`, which draw theta, too"][column]
        if told == "refused":
            with pytest.raises(InputError):
                BirthDeath(data, prior, structures, method=posterior.method, collapsed=False)
        else:
            assert told == "exact"
            assert BirthDeath(data, prior, structures, collapsed=False).is_exact
        if says["`average_decomposable`: independent draws with weights"][column] == "exact":
            assert average_decomposable(data, prior, structures, num_draws=10).is_exact
        else:
            with pytest.raises(InputError):
                average_decomposable(data, prior, structures, num_draws=10)
        told = says["`MixedGibbs` on `structure_model`: the distribution that chains leave unchanged"][column]
        if told == "refused":
            with pytest.raises(InputError):
                structure_model(data, structures, prior)
        else:
            assert told == "exact"
            kernel = MixedGibbs(structure_model(data, structures, prior))
            kernel.setup(0)
            assert set(kernel.initial_params) == {"gamma", "theta"}
        assert says["`AutoStructure`"][column] == ("refused" if structures.space.is_graphical else "*variational*")
        assert posterior.is_exact is (says["mean cells and `predict` of `StructurePosterior`"][column] == "exact")
        assert posterior.is_exact is (posterior.predict(data, "a").kind == "exact")
        assert says["`log_prob` and samples of `StructurePrior`, listed or pairs"][column] == "exact"
        assert structures.sample_is_exact and not structures.unnormalised
        assert says["`log_prob` of `StructurePrior`, otherwise"][column] == "up to a constant"
        assert beyond.unnormalised
        assert says["samples of `StructurePrior`, otherwise"][column] == "*Metropolis*"
        assert not beyond.sample_is_exact


def test_root_models_are_as_exact_as_their_table_says():
    says = _table("root")
    assert len(says) == 6
    backends = {"RootAuto": RootAuto(), "RootAnnealed": RootAnnealed(num_chains=64)}
    psi = torch.tensor([-1.0, -1.5, 0.2], dtype=torch.float64)
    sampled = {
        "samples of independent, Gaussian (k <= 2), conditional Gaussian and listed count models": (
            (PoissonFamily(), PoissonFamily()),
            (GaussianFamily(), GaussianFamily()),
            (TruncatedPoissonFamily(1), GaussianFamily()),
        ),
        "samples of interacting reals otherwise": (
            (ExponentialFamily(), ExponentialFamily()),
            (PoissonFamily(), GaussianFamily()),
        ),
    }
    for column, backend in backends.items():
        assert says["node and radial conditionals, log pseudo-likelihood"][column] == "exact"
        for row, cases in sampled.items():
            for families in cases:
                domain = Domain([Variable(name, kind=f.kind) for name, f in zip("ab", families, strict=True)])
                pair = RootStructure.simplified(domain, [("a", "b")])
                law = GeneralizedRoot(pair, psi, families, partition=backend)
                is_exact = says["log Z and `log_prob` of `GeneralizedRoot`, within the budget"][column] == "exact"
                assert (law.log_partition.kind == "exact") is is_exact is backend.is_exact
                assert law.sample_is_exact is (says[row][column] == "exact")
    words = Domain([Variable(f"w{i}", kind="count") for i in range(12)])
    dense = RootStructure.complete(words, 2)
    beyond = GeneralizedRoot(dense, torch.full((dense.num_terms,), -0.05, dtype=torch.float64), PoissonFamily())
    assert says["log Z and `log_prob` of `GeneralizedRoot`, beyond"]["RootAuto"] == "refused"
    with pytest.raises(IntractableError):
        beyond.log_prob(torch.zeros(12, dtype=torch.float64))
    assert torch.isfinite(beyond.log_pseudo_prob(torch.zeros(12, dtype=torch.float64)))


def test_the_exchange_algorithm_is_as_exact_as_its_table_says() -> None:
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
    rows = torch.tensor([[0, 1], [1, 1], [1, 0]])

    def program() -> None:
        theta = pyro.sample("theta", log_linear.normal_prior(hypergraph, dtype=torch.float64))
        with pyro.plate("rows", 3):
            pyro.sample("x", HierarchicalLogLinear(hypergraph, theta), obs=rows)

    says = _table("exchange")
    kernels = {
        "`Exchange`, bridged or not": lambda **options: Exchange(program, num_bridges=1, **options),
        "`NoisyExchange`, M data sets": lambda **options: NoisyExchange(program, 2, **options),
        "`Langevin`, with means by an exact backend or by kept Gibbs chains": lambda auxiliary, num_sweeps: Langevin(
            program, gradient="backend" if auxiliary == "perfect" else "persistent", num_sweeps=num_sweeps
        ),
    }
    pseudo = says.pop("`sample_pseudo_posterior`, which has no auxiliary data")
    assert set(pseudo.values()) == {"*the pseudo-posterior*"}
    assert PseudoPosterior.is_exact is False
    assert set(says) == set(kernels)
    for row, make in kernels.items():
        for column, auxiliary in (("perfect auxiliary data", "perfect"), ("Gibbs", "gibbs")):
            kernel = make(auxiliary=auxiliary, num_sweeps=1)
            kernel.setup(0)
            assert kernel.is_exact is (says[row][column] == "the posterior")


@pytest.mark.parametrize("name", ["MiniBuckets", "BucketImportance"])
def test_bounds_are_as_exact_as_the_table_says(name, monkeypatch):
    says = {quantity: row[name] for quantity, row in _table("bounds").items()}
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 10), 2)
    tables = torch.linspace(-0.3, 0.3, hypergraph.num_terms, dtype=torch.float64)
    model, options = LogLinearEnergy(hypergraph, tables), {} if name == "MiniBuckets" else {"seed": 0}
    kinds = {**KINDS, "*upper bound*": "upper bound"}
    for quantity, max_cells in (("log Z, no bucket divided", 2**12), ("log Z, otherwise", 2**4)):
        backend = getattr(log_linear, name)(max_cells=max_cells, **options)
        assert backend.log_partition(model).kind == kinds[says[quantity]]
    assert says["`lower` and `upper`"].startswith("certain")
    assert says["mode"] == "refused"
    with pytest.raises(IntractableError):
        backend.mode(model)
    assert says["samples"] == "exact or refused"
    assert backend.sample(model, (2,), torch.Generator().manual_seed(0)).shape == (2, 10)
    monkeypatch.setattr("pyro_hoim.log_linear.bounds.mini_buckets._MOST_PROPOSALS", 2**12)
    with pytest.raises(IntractableError):
        backend.sample(model, (10**5,), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("objective", ["likelihood", "pseudo-likelihood", "bound"])
def test_fits_say_as_much_of_their_likelihood_as_the_table_says(objective):
    says = {quantity: row[objective] for quantity, row in _table("objective").items()}
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
    codes = torch.randint(0, 2, (60, 6), generator=torch.Generator().manual_seed(0))
    rows = Observations.from_tensor(codes, hypergraph.domain)
    partition = log_linear.MiniBuckets(max_cells=4) if objective == "bound" else None
    options = {"objective": objective, "partition": partition, "penalty": log_linear.L2(1.0)}
    result = log_linear.fit(hypergraph, rows, **options)
    energy = float(rows.counts @ result.model.energy(rows.codes))
    exact = -energy - 60 * float(log_linear.Enumeration().log_partition(result.model).value)
    assert says["objective and its gradient"] == "exact"
    assert says["`log_likelihood` of the result"].split(" or ")[0] == "exact"
    assert result.log_likelihood == pytest.approx(exact, rel=1e-12)
    is_certain = says["`log_likelihood_bound` of the result"] == "certain"
    assert (result.log_likelihood_bound is not None) is is_certain
    assert not is_certain or result.log_likelihood_bound <= exact
    if says["standard errors"] == "refused":
        with pytest.raises(InputError):
            result.standard_errors()
    else:
        kind = {"large-sample": "model", "robust": "robust"}[says["standard errors"]]
        assert torch.equal(result.standard_errors(), result.standard_errors(covariance=kind))


@pytest.mark.parametrize("is_small", [True, False])
def test_hidden_units_are_as_exact_as_the_table_says(is_small):
    column = "smaller layer up to 2^22 states" if is_small else "larger layers, annealed"
    says = {quantity: row[column] for quantity, row in _table("hidden").items()}
    domain = Domain.from_cardinalities([2] * 24)
    partition = None if is_small else pyro_hoim.AnnealedImportance(num_chains=64, num_temperatures=50, seed=1)
    weights = torch.full((24, 2 if is_small else 24), 0.1, dtype=torch.float64)
    bias = torch.zeros(24, dtype=torch.float64)
    law = boltzmann.RestrictedBoltzmannMachine(domain, bias, weights[0], weights, partition=partition)
    name = "`RestrictedBoltzmannMachine`"
    assert law.log_partition.kind == KINDS[says[f"log Z of {name}"]]
    assert (says[f"log Z of {name}"], says[f"`log_prob` of {name}"]) in {
        ("exact", "exact"),
        ("*biased low*", "*biased high*"),
    }
    assert law.sample_is_exact is (says[f"samples of {name}"] == "exact")
    assert says[f"free energy, conditionals and interactions of {name}"] == "exact"
    on = torch.ones(24, dtype=torch.long)
    fields = (weights[0] + weights.sum(0)).exp().log1p().sum()
    torch.testing.assert_close(law.free_energy(on), -fields, rtol=1e-12, atol=0.0)
    assert len(boltzmann.effective_interactions(law, 2)) == 24 + 24 * 23 // 2
    refuses = pytest.raises(IntractableError, match="states") if not is_small else contextlib.nullcontext()
    assert (says['gradient of `fit_machine`, method "exact"'] == "refused") is not is_small
    with refuses:
        check_method(law.structure, "exact")
    assert says['gradient of `fit_machine`, methods "cd" and "pcd"'] == "*biased*"
    check_method(law.structure, "pcd")


@pytest.mark.parametrize("method", ["newton", "gradient", "gibbs"])
def test_machines_are_as_exact_as_the_table_says(method):
    says = {quantity: row[method] for quantity, row in _table("machine").items()}
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    lattice = log_linear.Poset.boolean_lattice(domain)
    truth = random_uniform_law(domain, generator=torch.Generator().manual_seed(1))
    training = log_linear.MachineTraining(num_iterations=20, num_chains=400, num_temperatures=20)
    machine = log_linear.train_machine(truth, 2, method=method, training=training)
    assert (machine.gradient_norm < 1e-9) is (says["theta"] == "maximum likelihood")
    exact = log_linear.train_machine(truth, 2, training=training)
    counted = not torch.allclose(machine.theta, exact.theta) and method != "newton"
    assert counted is (says["eta of the machine in a step"] == "*counted in chains*")
    assert machine.log_partition.kind == KINDS[says["log Z"]]
    law = log_linear.PosetLaw.from_probs(lattice, machine.law.log_prob_table.reshape(-1).exp())
    again = log_linear.PosetLaw.from_eta(lattice, law.eta)
    assert says["theta, eta, probabilities and Fisher information of its `PosetLaw`"] == "exact"
    torch.testing.assert_close(again.theta, law.theta, rtol=1e-9, atol=1e-9)
    hessian = torch.autograd.functional.hessian(
        lambda theta: log_linear.PosetLaw(lattice, theta).log_partition, law.theta
    )
    torch.testing.assert_close(law.fisher_information(), hessian, rtol=1e-9, atol=1e-12)
    projection = log_linear.train_machine(truth, 2, method="newton").law
    divided = bias_variance(truth, projection, machine.law)
    assert says["bias + variance = total, given the projection"] == "exact"
    torch.testing.assert_close(divided.total, divided.bias + divided.variance, rtol=1e-8, atol=1e-12)


def test_tensors_are_as_exact_as_the_table_says():
    says = {quantity: row["answer"] for quantity, row in _table("tensor").items()}
    theta = torch.linspace(-1, 1, 7, dtype=torch.float64)
    tensor = log_linear.SymmetricInteractionTensor(theta, num_variables=3, order=3)
    law = tensor.law()
    states = law.enumerate_support()
    assert says.pop("theta, entries, distribution and node conditionals of `SymmetricInteractionTensor`") == "exact"
    assert law.log_partition.kind == "exact"
    torch.testing.assert_close(law.log_prob(states), (-tensor.energy(states)).log_softmax(0), rtol=1e-12, atol=0)
    logits = tensor.node_logits(states)
    torch.testing.assert_close(tensor.node_logits(states, "slice"), logits, rtol=1e-12, atol=1e-12)
    own = torch.where(states == 1, logits, -logits).sigmoid().log().sum(-1)
    torch.testing.assert_close(law.log_pseudo_prob(states), own, rtol=1e-12, atol=0)
    assert says.pop("Schatten and overlapped norms") == "exact"
    nuclear = torch.linalg.matrix_norm(tensor.dense.reshape(3, 9), "nuc")
    torch.testing.assert_close(tensor.overlapped_norm(), 3 * nuclear, rtol=1e-12, atol=0)
    assert says.pop("`latent_norm`") == "*between two bounds*"
    norm = tensor.latent_norm()
    assert 0 < norm.lower <= norm.upper <= float(nuclear)
    assert 0 <= norm.gap <= 1e-6 * norm.upper
    assert not says


def test_constrained_estimates_are_as_exact_as_the_table_says():
    says = {quantity: row["answer"] for quantity, row in _table("constrained").items()}
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    rows = Observations.from_table(domain, [[30, 10], [20, 40]])
    loss = log_linear.PseudoLikelihoodLoss(rows, 2)
    losses = "`PseudoLikelihoodLoss`, `CategoricalLoss`, `InteractionScreeningLoss`"
    assert says.pop(f"loss, gradient and curvature of {losses}") == "exact"
    theta = [0.3, -0.2, 0.7]
    corner = torch.tensor(theta, dtype=torch.float64)
    model = log_linear.LogLinearEnergy.from_theta(loss.hypergraph, corner, coding="corner")
    mean = float((rows.counts * model.log_pseudo_prob(rows.codes)).sum() / rows.total_count)
    assert loss.value(theta) == pytest.approx(-mean, rel=1e-12)
    free = log_linear.CategoricalLoss(loss.hypergraph, rows)
    other = log_linear.parametrization(loss.hypergraph).convert(corner, "corner", "free")
    assert free.value(other.numpy()) == pytest.approx(-mean, rel=1e-12)
    signs, logits = 2 * rows.codes.numpy() - 1, log_linear.PseudoLikelihoodLoss(rows, 2).logits(theta)
    screened = float(rows.counts.numpy() @ np.exp(-signs * logits / 2).sum(-1) / rows.total_count)
    assert log_linear.InteractionScreeningLoss(rows, 2).value(theta) == pytest.approx(screened, rel=1e-12)
    low = log_linear.NormPenalty(log_linear.OverlappedNorm(loss.hypergraph), 0.05)
    ball, norm = log_linear.Ball(log_linear.L1Norm(), 1.5), log_linear.L1Norm()
    few = log_linear.Stopping(max_iterations=3)
    for name, found, best in (
        (
            "minimum within balls, `frank_wolfe`",
            log_linear.frank_wolfe(loss, ball, method="standard", stopping=few),
            log_linear.frank_wolfe(loss, ball),
        ),
        (
            "minimum with penalties, `fit_penalised`",
            log_linear.fit_penalised(loss, log_linear.NormPenalty(norm, 0.1), stopping=log_linear.Stopping(1e-12, 1)),
            log_linear.fit_penalised(loss, log_linear.NormPenalty(norm, 0.1)),
        ),
        (
            "minimum of low-rank problems of any order, `douglas_rachford`",
            log_linear.douglas_rachford(loss, low, stopping=few),
            log_linear.douglas_rachford(loss, low),
        ),
    ):
        assert says.pop(name) == "*above it by at most the gap*"
        assert 0 < found.objective - best.objective <= found.gap
    assert not says
