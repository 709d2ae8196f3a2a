"""Every public function that takes rows takes data frames, and finds what it finds in the same rows as observations."""

import dataclasses

import numpy as np
import polars as pl
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import (
    CountTable,
    InteractionHypergraph,
    Observations,
    boltzmann,
    dependency_network as networks,
    generalized_root as roots,
    inference,
    information,
    log_linear,
)
from pyro_hoim.core import Law, extend_rows
from pyro_hoim.data.information import InformationTable
from pyro_hoim.inference import StructureEvidence, StructurePrior, enumerate_structures, log_evidence, structure_model
from pyro_hoim.inference.structure import average, birth_death, chains
from pyro_hoim.log_linear import log_frequencies, row_log_weights, statistics_of
from pyro_hoim.study.analysis import analyse

NAMES = ("smoke", "mental", "phys")


def _data():
    return hoim.load_table("czech_autoworkers").project(NAMES).unique()


def _frame(data):
    """The same rows as single labels and counts, columns in another order, with one that no model knows."""
    return data.to_pandas()[["phys", "count", "smoke", "mental"]].assign(note="x")


DATA = _data()
GRAPH = InteractionHypergraph.from_order(DATA.domain, 2)
SINGLE = InteractionHypergraph.from_order(DATA.domain, 1)
FIT = log_linear.fit(GRAPH, DATA)
ENERGY = FIT.model
NETWORK = networks.learn_network(DATA)
SPACE = StructurePrior(DATA.domain, space="decomposable")
SETTINGS = inference.NUTSSettings(num_chains=1, num_draws=5, burn_in=5)


def _trainer(rows):
    return log_linear.ExactTrainer(rows, SINGLE)


def _machine():
    structure = boltzmann.MachineStructure.restricted(DATA.domain, 1)
    return boltzmann.BoltzmannMachine(structure, torch.linspace(-0.5, 0.5, structure.num_parameters).double())


KNOWN = {
    "fit": lambda d: log_linear.fit(GRAPH, d),
    "fit validation": lambda d: log_linear.fit(GRAPH, DATA, validation=d),
    "fit_incomplete": lambda d: log_linear.fit_incomplete(GRAPH, d),
    "row_log_likelihood": lambda d: log_linear.row_log_likelihood(FIT, d),
    "row_log_weights": lambda d: row_log_weights(ENERGY, d),
    "predict": lambda d: log_linear.predict(ENERGY, d, "phys"),
    "impute": lambda d: log_linear.impute(ENERGY, d),
    "score_rows": lambda d: log_linear.score_rows(ENERGY, d),
    "prediction_accuracy": lambda d: log_linear.prediction_accuracy(ENERGY, d, "phys"),
    "fit_collection": lambda d: log_linear.fit_collection(DATA, GRAPH).score(d),
    "select": lambda d: log_linear.select(DATA, d, _trainer(DATA)).hypergraph,
    "confirm": lambda d: log_linear.confirm(d, DATA, GRAPH).hypergraph,
    "pseudo-likelihood": lambda d: log_linear.LogLinearPseudoLikelihood(GRAPH, d).log_prob(np.zeros(6)),
    "categorical loss": lambda d: log_linear.CategoricalLoss(GRAPH, d).value(np.zeros(6)),
    "statistics": lambda d: statistics_of(d, GRAPH),
    "posterior of a prior": lambda d: log_linear.DiaconisYlvisaker.uniform(SINGLE, 1.0).log_marginal_likelihood(d),
    "sample_posterior": lambda d: hoim.sample_posterior(GRAPH, d, 1.0, SETTINGS, seed=1, progress=False).theta,
    "pseudo posterior": lambda d: (
        inference.sample_pseudo_posterior(GRAPH, d, 1.0, SETTINGS, seed=1, progress=False).theta
    ),
    "log_evidence": lambda d: log_evidence(GRAPH, d),
    "structure evidence": lambda d: StructureEvidence(d, SPACE.space, "conjugate:1").term(0b11),
    "structures": lambda d: enumerate_structures(d, "conjugate:1", SPACE).probabilities,
    "average": lambda d: average.average_decomposable(d, "conjugate:1", SPACE, num_draws=50, seed=1).log_evidence,
    "drawn structures": lambda d: (
        chains.sample_structures(
            d, "conjugate:1", SPACE, chains.ChainSettings(num_draws=200, num_chains=2), seed=1
        ).log_evidence
    ),
    "birth and death": lambda d: birth_death.BirthDeath(d, "conjugate:1", SPACE).evidence.term(0b11),
    "program": lambda d: structure_model(d, SPACE).total_count,
    "removal_effect": lambda d: information.removal_effect(ENERGY, [("smoke", "phys")], d, target="phys"),
    "network scores": lambda d: networks.score_network(NETWORK.conditionals, d),
    "network prediction": lambda d: networks.predict_network(NETWORK.conditionals, d, "phys"),
    "network completion": lambda d: networks.impute_network(NETWORK.conditionals, d),
    "network edges": lambda d: networks.edge_information(NETWORK.conditionals, d),
    "network posterior": lambda d: inference.sample_network_posterior(NETWORK, d, num_draws=3, seed=1).draws,
    "machine scores": lambda d: boltzmann.row_log_scores(_machine(), d),
    "machine prediction": lambda d: boltzmann.predict_machine(_machine(), d, "phys"),
    "extend_rows": lambda d: extend_rows(d, DATA.domain).codes,
}
"""Calls with a model whose variables are known."""

OPEN = {
    "formula": lambda d: hoim.fit("smoke*mental + phys", d),
    "learn": lambda d: hoim.learn(d, d).hypergraph,
    "learn_network": lambda d: hoim.learn_network(d).counts,
    "fit_machine": lambda d: boltzmann.fit_machine(d, 1, boltzmann.LearningOptions("pcd", iterations=30)).law.probs,
    "law": Law.from_observations,
    "information": lambda d: InformationTable(d).mutual_information([("smoke", "phys")]),
    "refined information": lambda d: information.marginal_refined_information(d, ("smoke", "phys")).value,
    "frequencies": lambda d: sorted(log_frequencies(d, 1.0).tolist()),
    "train_machine": lambda d: log_linear.train_machine(d, [("smoke", "phys")], method="newton").law,
    "losses": lambda d: log_linear.PseudoLikelihoodLoss(d, 2).value(np.zeros(6)),
    "midranks": lambda d: log_linear.midranks(d, "phys"),
    "structures of all collections": lambda d: enumerate_structures(d, "unit").probabilities,
    "analysis": lambda d: analyse({"train": d}, {"pairs": GRAPH}).models[0].fit,
}
"""Calls that take the variables from the rows."""


def _plain(value):
    """A result as numbers and words that can be compared."""
    if isinstance(value, torch.Tensor):
        return np.asarray(value.detach())
    if isinstance(value, Observations):
        return [_plain(value.codes), _plain(value.counts)]
    if isinstance(value, dict):
        return {key: _plain(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    if dataclasses.is_dataclass(value) and hasattr(value, "theta") and hasattr(value, "log_likelihood"):
        return [value.log_likelihood, _plain(value.theta)]
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value) if not f.name.startswith("_")]
        return {name: _plain(getattr(value, name)) for name in fields if name not in ("seconds", "run")}
    return value


def _assert_same(found, expected):
    found, expected = _plain(found), _plain(expected)
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            _assert_same(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _assert_same(one, other)
    elif isinstance(expected, np.ndarray | float):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    elif isinstance(expected, int | str | None) or hasattr(expected, "edges"):
        assert found == expected


@pytest.mark.parametrize("call", KNOWN.values(), ids=KNOWN)
def test_rows_of_a_known_model_may_be_a_frame(call):
    torch.manual_seed(0)
    expected = call(DATA)
    for frame in (_frame(DATA), pl.from_pandas(_frame(DATA))):
        torch.manual_seed(0)
        _assert_same(call(frame), expected)


@pytest.mark.parametrize("call", OPEN.values(), ids=OPEN)
def test_rows_to_learn_from_may_be_a_frame(call):
    torch.manual_seed(0)
    expected = call(DATA)
    torch.manual_seed(0)
    _assert_same(call(DATA.to_pandas()), expected)


def test_control_other_rows_are_told_apart():
    other = _frame(DATA).assign(count=range(1, len(DATA.codes) + 1))
    for name in ("fit", "score_rows", "network scores", "statistics", "pseudo-likelihood"):
        with pytest.raises(AssertionError):
            _assert_same(KNOWN[name](other), KNOWN[name](DATA))


def test_one_frame_is_enough_to_learn_from():
    found, expected = hoim.learn(DATA.to_pandas(), seed=3), hoim.learn(*DATA.split([0.75, 0.25], 3), seed=3)
    assert found.hypergraph == expected.hypergraph and found.num_rows == expected.num_rows
    torch.testing.assert_close(found.tables, expected.tables)
    assert not torch.equal(found.tables, hoim.learn(DATA, seed=4).tables)  # control: another quarter


def test_root_models_take_frames_of_numbers():
    generator = torch.Generator().manual_seed(0)
    counts = torch.poisson(torch.full((80, 3), 2.0), generator=generator).long().numpy()
    frame = pl.DataFrame({name: counts[:, i] for i, name in enumerate("abc")})
    found, expected = (hoim.fit_roots(d, order=2, l1=0.1) for d in (frame, CountTable.from_matrix(counts, list("abc"))))
    assert found.structure.names == expected.structure.names
    torch.testing.assert_close(found.energy().psi, expected.energy().psi)
    path = roots.fit_root_path(frame.to_pandas(), [0.1], order=2)[0]
    torch.testing.assert_close(path.energy().psi, expected.energy().psi)


def test_row_log_likelihood_of_a_fit_is_that_of_its_model():
    frame = _frame(DATA).drop(columns="count")
    found = log_linear.row_log_likelihood(FIT, frame)
    torch.testing.assert_close(found, log_linear.row_log_likelihood(ENERGY, DATA))
    assert float(found.exp().sum()) == pytest.approx(1.0)  # every cell once


def test_what_is_no_frame_is_refused_in_one_way():
    for call in [*KNOWN.values(), *OPEN.values()]:
        with pytest.raises(TypeError):
            call(object())
