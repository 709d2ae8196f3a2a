"""The suite of impossible states, run by every family that can have them, and refused by laws that forget one."""

import functools
import itertools
import tempfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import kl_divergence

import pyro_hoim
from pyro_hoim import (
    DependencyConditionals,
    DependencyNetwork,
    Domain,
    GeneralizedRoot,
    HierarchicalLogLinear,
    InteractionHypergraph,
    LogLinearEnergy,
    Observations,
    RootStructure,
    Variable,
    fit_roots,
    learn,
    learn_network,
    read_uai,
    sample_posterior,
    stationary_law,
)
from pyro_hoim.boltzmann import BoltzmannMachine, MachineFile, MachineStructure, RestrictedBoltzmannMachine
from pyro_hoim.cli import run
from pyro_hoim.core.law import Law
from pyro_hoim.core.operations import impute, predict, row_log_likelihood, sample, score, stored_model
from pyro_hoim.errors import InputError
from pyro_hoim.estimators import InteractionClassifier, InteractionDensity, InteractionImputer
from pyro_hoim.generalized_root import UserFamily
from pyro_hoim.inference import NUTSSettings
from pyro_hoim.information import removal_values
from pyro_hoim.log_linear import (
    Auto,
    Enumeration,
    ImpossibleStates,
    MatrixEnumeration,
    Poset,
    PosetLaw,
    PossibleStates,
    Stopping,
    VariableElimination,
    load_model,
    parametrization,
)
from pyro_hoim.testing import SUPPORT_CHECKS, SupportCase, check_support, exact_table

from support.fitted_zeros import SOCIAL, case, logs

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
PAIRS = [{"a": 0, "b": 1}, {"b": 2, "c": 1}]  # combinations of interactions
FACE = [{"a": 0, "b": 0, "c": 0}, {"a": 1, "b": 2, "c": 1}]  # of no interaction, as in Haberman's table


def theta(requires_grad=False):
    values = np.random.default_rng(4).normal(size=GRAPH.num_parameters)
    return torch.tensor(values, requires_grad=requires_grad)


def log_probs_without(*combinations):
    """By enumeration: the table of the law without impossible states, these taken out, normalised again."""
    table = exact_table(GRAPH, LogLinearEnergy.from_theta(GRAPH, theta()).tables)
    for combination in combinations:
        table[tuple(combination.get(name, slice(None)) for name in DOMAIN.names)] = -np.inf
    return table - np.log(np.exp(table).sum())


def law_case(*combinations, **options):
    impossible = ImpossibleStates.of_combinations(DOMAIN, combinations)
    law = HierarchicalLogLinear(GRAPH, theta(**options), impossible=impossible)
    return SupportCase.of(law, log_probs_without(*combinations))


def law_of_tables():
    """The table of all three columns in a saturated model."""
    log_probs, graph = log_probs_without(*PAIRS, *FACE), InteractionHypergraph.saturated(DOMAIN)
    return SupportCase.of(HierarchicalLogLinear.from_tables(graph, {DOMAIN.names: log_probs}), log_probs)


def law_of_a_column():
    table = log_probs_without(*PAIRS, *FACE)[..., 1]
    return SupportCase.of(law_case(*PAIRS, *FACE).subject.condition({"c": 1}), table - np.logaddexp.reduce(table, None))


def law_of_a_margin():
    table = np.logaddexp.reduce(log_probs_without({"a": 0, "b": 1}, *FACE), axis=2)
    return SupportCase.of(law_case({"a": 0, "b": 1}, *FACE).subject.marginal(["a", "b"]), table)


def energy_case(backend, *combinations, **options):
    energy = LogLinearEnergy.from_theta(GRAPH, theta())
    energy = ImpossibleStates.of_combinations(DOMAIN, combinations).applied(energy)
    tables = energy.tables.clone().requires_grad_(options.get("requires_grad", False))
    model = LogLinearEnergy(energy.hypergraph, tables)
    return SupportCase.of(model, log_probs_without(*combinations), backend=backend)


def larger(case, smaller):
    return replace(case, smaller=smaller)


def fit_case(name):
    _, law, result = case(name)
    return SupportCase.of(result, logs(law))


def network():
    """The conditionals of a law on its support belong together, so that their chain settles at that law."""
    energy = ImpossibleStates.of_combinations(DOMAIN, FACE).applied(LogLinearEnergy.from_theta(GRAPH, theta()))
    law = DependencyNetwork(DependencyConditionals.from_model(energy).tabulated())
    return SupportCase.of(law, log_probs_without(*FACE))


SLICED = VariableElimination(max_cells=8, max_slices=64)


# Families with zeros of their own.


def normalised(table):
    return table - np.logaddexp.reduce(table, None)


def those_with(evidence, drawn, names, number):
    """The first draws that agree with the evidence."""
    agree = torch.ones(len(drawn), dtype=torch.bool)
    for name, code in evidence.items():
        agree &= drawn[:, names.index(name)] == code
    return drawn[agree][:number]


def poset_law():
    """The sets of three columns that do not hold both a and b; log p is a sum of theta over the sets below."""
    domain = Domain.from_cardinalities(dict.fromkeys("abc", 2))
    sets = [of for size in range(4) for of in itertools.combinations("abc", size) if not {"a", "b"} <= {*of}]
    values = np.random.default_rng(5).normal(size=len(sets) - 1)
    poset = Poset(sets, [(s, t) for s in sets for t in sets if {*s} < {*t}])
    law = PosetLaw(poset, torch.tensor(values, requires_grad=True))
    states, table = torch.tensor([[int(name in of) for name in "abc"] for of in sets]), np.full((2, 2, 2), -np.inf)
    for of, state in zip(sets, states.tolist(), strict=True):
        table[tuple(state)] = sum(value for s, value in zip(sets[1:], values, strict=True) if {*s} <= {*of})

    def log_prob(asked):
        is_this = (asked[:, None] == states).all(-1)
        return torch.where(is_this, law.log_prob(torch.arange(len(sets))), -torch.inf).amax(-1)

    def draw(number, seed, evidence):
        torch.manual_seed(seed)
        return those_with(evidence, states[law.sample((100 * number,))], "abc", number)

    more = {"draw": draw, "entropy": law.entropy, "parameters": law.theta, "mode": lambda: states[law.probs.argmax()]}
    return SupportCase(domain, normalised(table), log_prob, **more, subject=None)


def no_twos(values):
    with np.errstate(divide="ignore"):
        return np.log(values != 2) - np.log1p(values)


COUNTS = Domain([Variable(name, kind="count") for name in "xy"])
NO_TWOS = UserFamily("no twos", "count", no_twos, maximum=3, is_normalizable=True)


def root_law(**options):
    psi = torch.tensor([0.3, -0.2, 0.4], dtype=torch.float64, requires_grad=True)
    return GeneralizedRoot(RootStructure.simplified(COUNTS, [("x", "y")]), psi, NO_TWOS, **options)


def root_of_impossible_counts():
    """By the definition of the energy: coefficients, twice that of the pair, and the base measure."""
    law, x = root_law(validate_args=False), np.arange(4.0)
    alone = [value * x + no_twos(x) for value in (0.3, -0.2)]
    table = alone[0][:, None] + alone[1] + 2 * 0.4 * np.sqrt(np.outer(x, x))

    def draw(number, seed, evidence):
        torch.manual_seed(seed)
        rest = law.condition({name: float(code) for name, code in evidence.items()}) if evidence else law
        drawn = rest.sample((number,)).long()
        fixed = [torch.full((number,), evidence[name]) if name in evidence else None for name in "xy"]
        columns = iter(drawn.T)
        return torch.stack([next(columns) if column is None else column for column in fixed], -1)

    return SupportCase(
        Domain.from_cardinalities({"x": 4, "y": 4}),
        normalised(table),
        lambda states: law.log_prob(states.double()),
        draw=draw,
        conditional=lambda name, given: law.condition(given).log_prob(torch.arange(4.0)[:, None].double()).exp(),
        divergence=lambda other: kl_divergence(law, other.subject),
        parameters=law.psi,
        subject=law,
    )


def estimators():
    """A density and a classifier of scikit-learn with quasi-independence; the oracle is that of the fit."""
    case = fit_case("structural zeros on the diagonal")
    codes = np.repeat(np.argwhere(SOCIAL), SOCIAL[SOCIAL > 0], axis=0)
    frame = pd.DataFrame(codes, columns=["a", "b"]).astype(str)
    options = {"structural_zeros": np.eye(4, dtype=bool)}
    density = InteractionDensity(edges="a + b", prior="none", options=options).fit(frame)
    classifier = InteractionClassifier(edges="a + y", prior="none", options=options).fit(frame[["a"]], frame["b"])

    def conditional(name, given):
        if name == "a":
            return case.expected([name], given)  # the class is b
        return classifier.predict_proba(pd.DataFrame({"a": [str(given["a"])]}))[0]

    def log_prob(states):
        return density.score_samples(pd.DataFrame(states.numpy(), columns=["a", "b"]).astype(str))

    def draw(number, seed, evidence):
        density.set_params(random_state=seed)
        drawn = torch.from_numpy(density.sample(100 * number).to_numpy(dtype=int))
        return those_with(evidence, drawn, "ab", number)

    return SupportCase(case.domain, case.log_probs, log_prob, draw=draw, conditional=conditional)


def joined_columns():
    """Three indicators and a column beside them, learned as two columns: the table of these, by enumeration."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 3, 600)
    frame = pd.DataFrame({f"k={k}": level == k for k in range(3)}).astype(int)
    result = learn(frame.assign(o=np.where(rng.random(600) < 0.7, level % 2, 1 - level % 2)), join="hard")
    _, stored = stored_model(result)
    energy = stored.model.energy
    table = np.full((2, 2, 2, 2), -np.inf)
    joined = exact_table(energy.hypergraph, energy.tables)
    joined = joined if energy.domain.cardinalities == (3, 2) else joined.T
    for k, of in enumerate(stored.joined.groups[0].levels):
        table[tuple(of)] = joined[k]
    return SupportCase.of(result, normalised(table))


def backend_without(*combinations):
    return PossibleStates(VariableElimination(), ImpossibleStates.of_combinations(DOMAIN, combinations))


def law_of_a_backend():
    law = HierarchicalLogLinear(GRAPH, theta(), partition=backend_without(*PAIRS))
    return SupportCase.of(law, log_probs_without(*PAIRS))


def posterior():
    """The mean over draws of theta of laws on the possible states, by a softmax over these."""
    backend = backend_without(*PAIRS)
    rows = Observations.from_tensor(law_case(*PAIRS).subject.sample((200,)), DOMAIN)
    settings = NUTSSettings(num_chains=1, num_draws=10, burn_in=10)
    draws = sample_posterior(GRAPH, rows, 1.0, settings, partition=backend, progress=False).theta[0]
    law = HierarchicalLogLinear(GRAPH, draws, partition=backend)
    tables = [exact_table(GRAPH, LogLinearEnergy.from_theta(GRAPH, values).tables) for values in draws]
    cells = log_probs_without(*PAIRS) > -np.inf
    probs = np.mean([np.exp(normalised(np.where(cells, table, -np.inf))) for table in tables], axis=0)

    def draw(number, seed, evidence):
        torch.manual_seed(seed)
        rest = law.condition(evidence) if evidence else law
        drawn = rest.sample((number,)).flatten(0, 1)[torch.randperm(number * len(draws))[:number]]
        states = torch.zeros(number, len(DOMAIN), dtype=torch.long)
        free = [i for i, name in enumerate(DOMAIN.names) if name not in evidence]
        states[:, free] = drawn
        for name, code in evidence.items():
            states[:, DOMAIN.index(name)] = code
        return states

    def log_prob(states):
        return law.log_prob(states[:, None]).logsumexp(-1) - np.log(len(draws))

    with np.errstate(divide="ignore"):
        return SupportCase(DOMAIN, np.log(probs), log_prob, draw=draw, draws_exactly=False)


def dense_law():
    """A table of probabilities, which answers for margins and divergences."""
    table = log_probs_without(*PAIRS)
    law = Law(DOMAIN, np.exp(table))
    return SupportCase(
        DOMAIN,
        table,
        lambda states: law.probs[tuple(states.T)].log(),
        marginal=lambda names: law.marginal(names).probs.permute(np.argsort(np.argsort(names)).tolist()),
        entropy=lambda: law.information.entropy([DOMAIN.names])[0],
        divergence=lambda other: law.divergence(other.subject),
        subject=law,
    )


def settled_law():
    """The law at which the conditionals of a law settle, which is that law."""
    energy = ImpossibleStates.of_combinations(DOMAIN, FACE).applied(LogLinearEnergy.from_theta(GRAPH, theta()))
    probs = stationary_law(DependencyConditionals.from_model(energy)).probs
    return SupportCase(DOMAIN, log_probs_without(*FACE), lambda states: probs[tuple(states.T)].log())


def read_model():
    """A file in the UAI format has weights of zero, which are read as impossible states."""
    energy = ImpossibleStates.of_combinations(DOMAIN, FACE).applied(LogLinearEnergy.from_theta(GRAPH, theta()))
    with tempfile.TemporaryDirectory() as folder:
        energy.to_uai(f"{folder}/model.uai")
        return SupportCase.of(read_uai(f"{folder}/model.uai"), log_probs_without(*FACE))


def weighted_fit(**options):
    """Rows weighted by a law of the model: it fits them best, by any objective."""
    table = log_probs_without({"a": 0, "b": 1})
    states = torch.from_numpy(np.argwhere(table > -np.inf))
    rows = Observations(DOMAIN, states, torch.from_numpy(1e3 * np.exp(table[tuple(states.T)])))
    options |= {"structural_zeros": [{"a": "0", "b": "1"}], "stopping": Stopping(1e-11)}
    return SupportCase.of(pyro_hoim.fit(GRAPH, rows, **options), table)


CASES = {
    "energy, design matrix": lambda: energy_case(MatrixEnumeration(), *PAIRS),
    "energy, enumeration": lambda: energy_case(Enumeration(), *PAIRS, requires_grad=True),
    "energy, elimination": lambda: energy_case(VariableElimination(), *FACE, requires_grad=True),
    "energy, log space": lambda: energy_case(VariableElimination(space="log"), *PAIRS, *FACE, requires_grad=True),
    "energy, in slices": lambda: replace(energy_case(SLICED, *PAIRS), marginal=None),  # of all columns is too large
    "law": lambda: larger(law_case(*PAIRS), law_case(*PAIRS, *FACE)),
    "law with gradients": lambda: larger(law_case(*PAIRS, requires_grad=True), law_case(*PAIRS, *FACE)),
    "law on a face": lambda: larger(law_case(*FACE, requires_grad=True), law_case(*PAIRS, *FACE, requires_grad=True)),
    "law of tables": law_of_tables,
    "law given a column": law_of_a_column,
    "law of a margin": law_of_a_margin,
    "law of all states": lambda: larger(law_case(), law_case(*FACE)),
    "fit with structural zeros": lambda: fit_case("structural zeros on the diagonal"),
    "its file": lambda: made("fit with structural zeros").copied(),
    "fit with an empty margin": lambda: fit_case("an empty cell of a pair"),
    "file of an empty margin": lambda: made("fit with an empty margin").copied(),
    "fit on a face": lambda: fit_case("forced without an empty margin"),
    "fit by pseudo-likelihood": lambda: weighted_fit(objective="pseudo-likelihood"),
    "fit by elimination": lambda: weighted_fit(partition=VariableElimination()),
    "dependency network": network,
    "file of a face": lambda: made("fit on a face").copied(),
    "law of a backend": law_of_a_backend,
    "posterior": posterior,
    "estimators": estimators,
    "learned model of joined columns": joined_columns,
    "its own file": lambda: made("learned model of joined columns").copied(),
    "law on a poset": poset_law,
    "root model of impossible counts": root_of_impossible_counts,
    "dense law": dense_law,
    "stationary law": settled_law,
    "model of a file in the UAI format": read_model,
}


made = functools.lru_cache(lambda name: CASES[name]())


@pytest.mark.parametrize("check", SUPPORT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CASES)
def test_family_obeys_its_support(name, check):
    check(made(name))


BITS = Domain.from_cardinalities(dict.fromkeys("xy", 2))
MACHINE = MachineStructure(BITS, 1)
LATTICE = Poset.boolean_lattice(["x", "y"])
INFINITE = torch.full((3,), -torch.inf, dtype=torch.float64)
ZEROS = {"structural_zeros": [{"a": "0", "b": "1"}]}
ROWS = Observations.from_tensor(torch.tensor([[0, 1, 0], [1, 0, 0], [1, 2, 1]]), DOMAIN)
TABLE = pd.DataFrame(np.argwhere(np.ones((2, 2, 2)))[[0, 1, 4, 5, 6, 7]], columns=list("abc"))
GIVEN = {"edges": "a*b + c", "options": ZEROS}
HOLDING = TABLE.replace({"a": {1: 0}})


def density(family):
    return lambda: InteractionDensity(family=family, options=ZEROS).fit(TABLE)


REFUSALS = {
    # Machines with hidden units have no impossible states: their theta is finite.
    "machine": ("not-finite", lambda: BoltzmannMachine(MACHINE, INFINITE)),
    "restricted machine": (
        "not-finite",
        lambda: RestrictedBoltzmannMachine(BITS, INFINITE[:2], INFINITE[:1], INFINITE[:2, None]),
    ),
    "file of a machine": ("not-finite", lambda: MachineFile(MACHINE, INFINITE)),
    "estimator of a machine": ("unknown-name", density("rbm")),
    # Laws and root models have finite parameters, and a poset positive probabilities.
    "theta": ("not-finite", lambda: HierarchicalLogLinear(GRAPH, torch.full((GRAPH.num_parameters,), -torch.inf))),
    "theta on a poset": ("not-finite", lambda: PosetLaw(LATTICE, INFINITE)),
    "probabilities on a poset": ("out-of-range", lambda: PosetLaw.from_probs(LATTICE, torch.tensor([0.5, 0.5, 0, 0]))),
    "means on a poset": ("out-of-range", lambda: PosetLaw.from_eta(LATTICE, torch.tensor([0.5, 0.5, 0.0]))),
    "psi": ("not-finite", lambda: GeneralizedRoot(root_law().structure, INFINITE, NO_TWOS)),
    "estimator of a root model": ("unknown-name", density("grm")),
    "fit of a root model": ("unknown-name", lambda: fit_roots(TABLE, **ZEROS)),
    # Values that a family of counts excludes are no values of it.
    "impossible count": ("impossible", lambda: root_law().log_prob(torch.tensor([2.0, 0.0]))),
    "given an impossible count": ("impossible", lambda: root_law().condition({"x": 2.0})),
    # What searches or spreads rows over all states.
    "learned model": ("unknown-name", lambda: learn(TABLE, **ZEROS)),
    "learned network": ("unknown-name", lambda: learn_network(TABLE, **ZEROS)),
    "estimator of a network": ("unknown-name", density("dependency-network")),
    "conjugate prior": ("conflict", lambda: pyro_hoim.fit("a*b + c", TABLE, prior="conjugate:1", **ZEROS)),
    "states in a backend of a fit": ("conflict", lambda: pyro_hoim.fit(GRAPH, ROWS, partition=backend_without(*PAIRS))),
    "bounds of what an interaction tells": (
        "impossible",
        lambda: removal_values(law_case(*PAIRS).subject.energy_model, exact=False),
    ),
    # Rows that hold what is impossible.
    "rows of a fit": ("impossible", lambda: pyro_hoim.fit(GRAPH, ROWS, structural_zeros=[{"a": "0", "b": "1"}])),
    "rows of a posterior": (
        "impossible",
        lambda: sample_posterior(GRAPH, ROWS, 1.0, partition=backend_without(*PAIRS)),
    ),
    "rows of a density": ("impossible", lambda: InteractionDensity(**GIVEN).fit(HOLDING)),
    "rows of a classifier": (
        "impossible",
        lambda: InteractionClassifier(**GIVEN | {"edges": "a*b + y"}).fit(HOLDING[["a", "b"]], TABLE["c"]),
    ),
    "rows of an imputer": ("impossible", lambda: InteractionImputer(**GIVEN).fit(HOLDING)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_has_no_impossible_states_refuses_them(name):
    code, door = REFUSALS[name]
    with pytest.raises(InputError) as refusal:
        door()
    assert refusal.value.code == code and "\n" not in str(refusal.value)


@pytest.mark.parametrize("model", ["rbm", "grm", "dependency-network"])
def test_commands_of_other_families_refuse_structural_zeros(model, tmp_path, capsys):
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    assert run(["fit", str(tmp_path / "t.csv"), "--model", model, "--structural-zeros", "a=0,b=1"]) == 2
    assert f"--structural-zeros: belongs to --model log-linear, received --model {model}" in capsys.readouterr().err


def test_a_root_law_lists_the_counts_that_it_accepts():
    """Pyro sums over the states that are listed, and checks each of them."""
    law = root_law(validate_args=True)
    listed = law.enumerate_support()
    assert len(listed) == 9 and float(law.log_prob(listed).exp().sum().detach()) == pytest.approx(1.0)
    assert law.expand((2,)).enumerate_support().shape == (9, 2, 2)


def test_a_law_that_forgets_one_combination_fails():
    forgetful = law_case(*PAIRS)
    case = replace(forgetful, log_probs=log_probs_without(*PAIRS, FACE[0]))
    with pytest.raises(AssertionError) as failure:
        check_support(larger(case, law_case(*PAIRS, *FACE)))
    named = {check.__name__ for check in SUPPORT_CHECKS if f"{check.__name__}:" in str(failure.value)}
    assert named >= {
        f"check_support_{name}" for name in ("log_prob", "total", "marginals", "entropy", "draws", "copies")
    }


def test_a_file_of_a_batch_has_one_set_of_impossible_states(tmp_path):
    law = law_case(*PAIRS).subject
    zeros = law.impossible.tables.expand(2, -1).clone()
    same = LogLinearEnergy(law.impossible.hypergraph, zeros.clone())
    zeros[1] = 0.0
    other = LogLinearEnergy(law.impossible.hypergraph, zeros)
    pyro_hoim.save(HierarchicalLogLinear(GRAPH, theta().expand(2, -1), impossible=same), tmp_path / "law.safetensors")
    read = load_model(tmp_path / "law.safetensors").energy
    assert read.tables.isneginf().equal(law.energy_model.tables.isneginf().expand(2, -1))
    for model in (other, HierarchicalLogLinear(GRAPH, theta().expand(2, -1), impossible=other)):
        with pytest.raises(InputError, match=r"the models of the batch \(2,\) have different impossible states"):
            pyro_hoim.save(model, tmp_path / "law.safetensors")


def test_every_door_refuses_a_batch():
    batch = HierarchicalLogLinear(GRAPH, theta().expand(2, -1), impossible=PAIRS)
    rows = Observations.from_tensor(torch.tensor([[0, 0, 0]]), DOMAIN)
    doors = [
        lambda: score(batch, rows),
        lambda: sample(batch, 3),
        lambda: impute(batch, rows),
        lambda: row_log_likelihood(batch, rows),
        lambda: predict(batch, rows, "a"),
    ]
    for door in doors:
        with pytest.raises(InputError, match=r"model: expected one model, received a batch of shape \(2,\)"):
            door()


def _outside(*_):
    return torch.tensor([0, 1, 0])  # one of PAIRS


BROKEN = {
    "check_support_log_prob": {
        "log_prob": lambda states: law_case(*PAIRS).log_prob(states).nan_to_num(neginf=torch.nan)
    },
    "check_support_mode": {"mode": _outside},
    "check_support_marginals": {"marginal": lambda names: law_case().marginal(names)},
    "check_support_conditioning": {"conditional": lambda name, _: torch.ones(DOMAIN[name].cardinality) / 2},
    "check_support_entropy": {"entropy": lambda: torch.tensor(torch.nan)},
    "check_support_divergence": {"divergence": lambda other: torch.zeros(())},
    "check_support_draws": {"draw": lambda number, seed, evidence: _outside().expand(number, 3)},
    "check_support_copies": {"copied": law_case},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_fails_its_check(name):
    case = larger(law_case(*PAIRS), law_case(*PAIRS, *FACE))
    check_support(case)
    with pytest.raises(AssertionError, match=rf"1 checks failed:\nsupport: {name}"):
        check_support(replace(case, **BROKEN[name]), skip=["check_support_total"])


def test_gradients_that_are_not_finite_fail():
    case = law_case(*PAIRS, requires_grad=True)
    slope = case.parameters.sum() - case.parameters.detach().sum()  # zero, with a root that has no slope
    broken = replace(case, log_prob=lambda states: case.log_prob(states) + slope.sqrt())
    with pytest.raises(AssertionError, match="check_support_gradients"):
        check_support(broken)


def random_case(seed):
    """A law of random interactions, tables and support, as often as not one whose support is not connected."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities(rng.integers(2, 4, size=rng.integers(2, 5)).tolist())
    sizes = rng.integers(1, min(3, len(domain)) + 1, size=3)
    edges = {tuple(sorted(rng.choice(domain.names, size=size, replace=False))) for size in sizes}
    graph = InteractionHypergraph(domain, edges, closure=True)
    cells = rng.random(domain.cardinalities) < rng.choice([0.1, 0.4, 0.8])
    cells[tuple(rng.integers(domain.cardinalities))] = False
    coding = ("free", "corner", "balanced")[seed % 3]
    values = parametrization(graph).convert(torch.from_numpy(rng.normal(size=graph.num_parameters)), "free", coding)
    backend = (Auto(), Enumeration(), VariableElimination())[seed // 3 % 3]
    with np.errstate(divide="ignore"):
        table = exact_table(graph, LogLinearEnergy.from_theta(graph, values, coding).tables) + np.log(~cells)
    table -= np.log(np.exp(table).sum())
    law = HierarchicalLogLinear(graph, values.requires_grad_(), impossible=cells, coding=coding, partition=backend)
    return SupportCase.of(law, table)


@pytest.mark.parametrize("seed", range(9))
def test_random_law_obeys_its_support(seed):
    check_support(random_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9, 189))
def test_many_random_laws_obey_their_supports(seed):
    check_support(random_case(seed))
