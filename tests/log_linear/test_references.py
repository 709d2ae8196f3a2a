"""Corner coding against any level: by the log ratios of enumerated probabilities, by relabelled rows, and refused."""

import itertools
import math

import numpy as np
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import (
    Domain,
    InputError,
    InteractionHypergraph,
    NonexistentEstimateWarning,
    Observations,
    fit,
    load_table,
)
from pyro_hoim.errors import UnknownNameError
from pyro_hoim.log_linear import (
    L2,
    LogLinearEnergy,
    coefficient_table,
    from_reference,
    log_partition,
    parametrization,
    reference_matrix,
    theta_coords,
    to_reference,
)
from pyro_hoim.testing import assert_close

DOMAIN = Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["0", "1", "2", "3"], "one": ["only"]})
GRAPH = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c"), ("one",)], closure=True)
REFERENCES = [{}, {"a": "yes"}, {"b": "z", "c": 1}, {"a": 1, "b": "y", "c": "3"}]


def random_theta(seed=0, batch=()):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, GRAPH.num_parameters, dtype=torch.float64, generator=generator)


def log_probs(model):
    """Log-probabilities of all states, by enumeration."""
    states = torch.tensor(list(np.ndindex(*DOMAIN.cardinalities)))
    logits = -model.energy(states)
    return (logits - logits.logsumexp(0)).reshape(DOMAIN.cardinalities).numpy()


def ratios(table, reference):
    """Corner coefficients as alternating sums of log-probabilities, all other variables at the reference."""
    code = {name: reference.get(name, 0) for name in DOMAIN.names}
    code = {n: c if isinstance(c, int) else DOMAIN[n].labels.index(c) for n, c in code.items()}
    found = []
    for edge in GRAPH.edges:
        levels = [[c for c in range(DOMAIN[n].cardinality) if c != code[n]] for n in edge]
        for combination in itertools.product(*levels):
            total = 0.0
            for kept in itertools.product((0, 1), repeat=len(edge)):
                state = dict(code)
                state |= {n: c for n, c, keep in zip(edge, combination, kept, strict=True) if keep}
                total += (-1) ** (len(edge) - sum(kept)) * table[tuple(state[n] for n in DOMAIN.names)]
            found.append(total)
    return np.array(found)


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
@pytest.mark.parametrize("source", ["corner", "free", "balanced"])
def test_coefficients_are_log_ratios_of_probabilities(reference, source):
    model = LogLinearEnergy.from_theta(GRAPH, random_theta())
    theta = parametrization(GRAPH).from_tables(model.tables, source)
    found = to_reference(GRAPH, theta, reference, source)
    wanted = ratios(log_probs(model), reference)
    assert_close(found, torch.from_numpy(wanted), relative=1e-12)
    if reference:  # control: against the first levels they are others
        assert np.abs(ratios(log_probs(model), {}) - wanted).max() > 0.1


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_the_map_is_exact_and_so_is_its_inverse(reference):
    theta = torch.randint(-50, 50, (3, GRAPH.num_parameters), generator=torch.Generator().manual_seed(1)).double()
    moved = to_reference(GRAPH, theta, reference)
    assert torch.equal(from_reference(GRAPH, moved, reference), theta)
    matrix = reference_matrix(GRAPH, "corner", reference)
    assert set(matrix.unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert torch.equal(theta @ matrix.T, moved)
    assert round(abs(float(torch.linalg.det(matrix)))) == 1
    free = from_reference(GRAPH, moved, reference, "free")
    assert_close(free, parametrization(GRAPH).convert(theta, "corner", "free"), relative=1e-12)


def test_nothing_changes_without_a_reference():
    theta = random_theta()
    for same in (None, {}, {"a": "no"}, {"a": 0, "b": 0, "c": "0"}):
        assert to_reference(GRAPH, theta, same) is theta
    rows = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(rows.domain, 2), rows)
    first = {name: rows.domain[name].labels[0] for name in rows.domain.names}
    assert torch.equal(result.coefficients("corner"), result.coefficients("corner", first))
    assert coefficient_table(result).equals(coefficient_table(result, reference=first))


def test_a_model_of_such_theta_and_its_log_z():
    reference = {"b": "z", "c": 1}
    theta = random_theta(2, (2,))
    model = LogLinearEnergy.from_theta(GRAPH, theta, "corner", reference=reference)
    plain = LogLinearEnergy.from_theta(GRAPH, from_reference(GRAPH, theta, reference), "corner")
    assert_close(model.tables, plain.tables, relative=1e-12)
    one = LogLinearEnergy.from_theta(GRAPH, theta[0], reference=reference)
    assert_close(torch.from_numpy(ratios(log_probs(one), reference)), theta[0], relative=1e-12)
    found = log_partition(one, reference=reference)
    assert found.coding == "corner"
    assert float(found.value) == pytest.approx(-log_probs(one)[0, 2, 1, 0], abs=1e-12)
    assert abs(float(log_partition(one, "corner").value) - float(found.value)) > 0.1  # control: the first levels


def relabelled(rows, reference):
    """The rows with the reference levels first, as a program that knows only the first level needs them."""
    labels = {}
    for variable in rows.domain:
        chosen = reference.get(variable.name, variable.labels[0])
        labels[variable.name] = [chosen, *(label for label in variable.labels if label != chosen)]
    axes = [[rows.domain[n].labels.index(label) for label in names] for n, names in labels.items()]
    return Observations.from_table(Domain.from_labels(labels), rows.table().numpy()[np.ix_(*axes)])


@pytest.mark.parametrize("penalty", [None, L2(2.0, coding="free")])
def test_a_fit_says_what_the_fit_of_relabelled_rows_says(penalty):
    rows, reference = load_table("hair_eye_color"), {"Hair": "Brown", "Eye": "Green", "Sex": "Female"}
    own = fit(InteractionHypergraph.from_order(rows.domain, 2), rows, penalty=penalty)
    other = relabelled(rows, reference)
    twin = fit(InteractionHypergraph.from_order(other.domain, 2), other, penalty=penalty)
    columns = ["interaction", "levels", "estimate", "std_error", "lower", "upper"]
    found, wanted = coefficient_table(own, reference=reference)[columns], coefficient_table(twin)[columns]
    assert found[columns[:2]].equals(wanted[columns[:2]])
    numbers = [torch.tensor(frame[columns[2:]].to_numpy(float)) for frame in (found, wanted)]
    assert_close(*numbers, relative=1e-6)
    robust = own.standard_errors("corner", "robust", reference)
    assert_close(robust, twin.standard_errors("corner", "robust"), relative=1e-6)
    plain = coefficient_table(own)[columns]
    assert not np.allclose(plain["estimate"], found["estimate"], atol=0.05)  # control


def test_infinite_coefficients_against_another_level():
    domain = Domain.from_labels({"a": ["p", "q"], "b": ["x", "y", "z"]})
    rows = Observations.from_table(domain, [[10, 20, 0], [5, 8, 9]])
    with pytest.warns(NonexistentEstimateWarning):
        result = fit(InteractionHypergraph.saturated(domain), rows)
    found = result.summary(reference={"b": "y"}).set_index(["term", "levels"])["estimate"]
    assert found["a:b", "q, z"] == math.inf
    assert found["a:b", "q, x"] == pytest.approx(math.log(5 * 20 / (10 * 8)), abs=1e-6)
    against = result.summary(reference={"a": "q", "b": "z"}).set_index(["term", "levels"])["estimate"]
    assert against["a:b", "p, x"] == against["a:b", "p, y"] == math.inf
    assert math.isfinite(against["b", "x"])


def test_summaries_of_results_and_files(tmp_path):
    rows = load_table("ucb_admissions")
    result = fit(InteractionHypergraph.from_order(rows.domain, 2), rows)
    reference = {"Dept": "F"}
    found = result.summary(reference=reference)
    assert "F" not in set(found.loc[found["term"] == "Dept", "levels"])
    assert "Dept F" in found.attrs["notes"][0]
    probs = result.probs.reshape(rows.domain.cardinalities)  # Admit, Gender, Dept
    ratio = float(probs[1, 0, 0] * probs[0, 0, 5] / (probs[0, 0, 0] * probs[1, 0, 5]))
    told = found.set_index(["term", "levels"]).loc[("Admit:Dept", "Rejected, A"), "odds_ratio"]
    assert told == pytest.approx(ratio, rel=1e-9)
    path = tmp_path / "model.safetensors"
    hoim.save(result, path)
    stored = hoim.load(path).summary(reference=reference)
    assert_close(torch.tensor(stored["estimate"].to_numpy()), torch.tensor(found["estimate"].to_numpy()), relative=1e-9)
    assert theta_coords(result.hypergraph, "corner", reference)["interaction_level"][2] == "Dept[A]"


@pytest.mark.parametrize(
    ("reference", "error", "words"),
    [
        ({"one": "only"}, InputError, "'one' has one level"),
        ({"q": "x"}, UnknownNameError, "'q'"),
        ({"b": "w"}, UnknownNameError, "'w'"),
        ({"b": 3}, InputError, "a code from 0 to 2"),
        ({"b": True}, InputError, "a code from 0 to 2"),
        ("b", TypeError, "a level for every variable"),
    ],
)
def test_refused_references(reference, error, words):
    with pytest.raises(error, match=words):
        to_reference(GRAPH, random_theta(), reference)


def test_refused_codings_and_families():
    rows = load_table("ucb_admissions")
    result = fit(InteractionHypergraph.from_order(rows.domain, 1), rows)
    for call in (
        lambda: result.coefficients("free", {"Dept": "F"}),
        lambda: result.standard_errors("balanced", reference={"Dept": "F"}),
        lambda: coefficient_table(result, coding="free", reference={"Dept": "F"}),
        lambda: result.summary(coding="balanced", reference={"Dept": "F"}),
        lambda: log_partition(result.model, "balanced", reference={"Dept": "F"}),
        lambda: theta_coords(result.hypergraph, reference={"Dept": "F"}),
        lambda: LogLinearEnergy.from_theta(result.hypergraph, result.theta, "free", reference={"Dept": "F"}),
    ):
        with pytest.raises(InputError, match="compares with no level"):
            call()
    lacking = InteractionHypergraph(DOMAIN, [("a", "b")], hierarchical=False, coding="corner")
    theta = torch.zeros(2, dtype=torch.float64)
    assert to_reference(lacking, theta, {"a": "no"}) is theta
    with pytest.raises(InputError, match="another family"):
        to_reference(lacking, theta, {"a": "yes"})
