"""What the functions of an analysis say to a wrong kind of model, rows, seed or number of samples."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyro_hoim import InteractionHypergraph, Observations, load_table
from pyro_hoim.core.prediction import extend_rows
from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.information import log_z_difference, removal_effect, removal_values, without
from pyro_hoim.information.removal import with_supersets
from pyro_hoim.log_linear import (
    Regularisation,
    coefficient_intervals,
    fit,
    fit_collection,
    impute,
    interaction_table,
    prediction_accuracy,
    score_rows,
    synthesise,
)
from pyro_hoim.log_linear.given import predict, row_log_weights
from pyro_hoim.study import PosteriorSettings, analyse, run_posterior
from pyro_hoim.testing import raises

ROWS = load_table("ucb_admissions")
GRAPH = InteractionHypergraph.from_order(ROWS.domain, 2)
MODEL = fit(GRAPH, ROWS).model
EDGES = [("Admit", "Gender")]

OF_A_MODEL = {
    "predict": lambda m, **o: predict(m, ROWS, "Admit", **o),
    "impute": lambda m, **o: impute(m, ROWS, **o),
    "synthesise": lambda m, **o: synthesise(m, 3, **o),
    "removal_values": lambda m, **o: removal_values(m, EDGES, **o),
    "removal_effect": lambda m, **o: removal_effect(m, EDGES, ROWS, **o),
    "log_z_difference": lambda m, **o: log_z_difference(m, m, **o),
}
"""Functions that take a seed as well."""

OF_A_MODEL_ALONE = {
    "without": lambda m: without(m, EDGES),
    "score_rows": lambda m: score_rows(m, ROWS),
    "prediction_accuracy": lambda m: prediction_accuracy(m, ROWS, "Admit"),
    "interaction_table": interaction_table,
    "row_log_weights": lambda m: row_log_weights(m, ROWS),
    "refit": lambda m: removal_effect(MODEL, EDGES, ROWS, refit=lambda _: m),
}

OF_ROWS = {
    "predict": lambda rows: predict(MODEL, rows, "Admit"),
    "impute": lambda rows: impute(MODEL, rows),
    "removal_effect": lambda rows: removal_effect(MODEL, EDGES, rows),
    "removal_effect, test": lambda rows: removal_effect(MODEL, EDGES, ROWS, rows),
    "score_rows": lambda rows: score_rows(MODEL, rows),
    "prediction_accuracy": lambda rows: prediction_accuracy(MODEL, rows, "Admit"),
    "row_log_weights": lambda rows: row_log_weights(MODEL, rows),
    "extend_rows": lambda rows: extend_rows(rows, ROWS.domain),
    "run_posterior": lambda rows: run_posterior(GRAPH, rows, PosteriorSettings(), seed=0),
    "analyse": lambda rows: analyse({"train": rows}, {"pairs": GRAPH}),
    "analyse, test": lambda rows: analyse({"train": ROWS, "test": rows}, {"pairs": GRAPH}),
}


@pytest.mark.parametrize("name", [*OF_A_MODEL, *OF_A_MODEL_ALONE])
def test_results_that_hold_a_model_are_refused_with_the_attribute_to_pass(name):
    ask = (OF_A_MODEL | OF_A_MODEL_ALONE)[name]
    ask(MODEL)  # control: the model itself is accepted
    learned = fit_collection(ROWS, GRAPH, trainer="exact", regularisation=Regularisation(evidence_rounds=0))
    for wrong, words in (
        (learned, "LearnResult; pass its .energy"),
        (fit(GRAPH, ROWS), "FitResult; pass its .model"),
        (SimpleNamespace(log_linear=lambda: MODEL), r"SimpleNamespace; pass its .log_linear\(\)"),
        (GRAPH, "InteractionHypergraph$"),
        (None, "NoneType$"),
    ):
        with pytest.raises(InputTypeError, match=rf"^\w+: expected a LogLinearEnergy, received {words}"):
            ask(wrong)


@pytest.mark.parametrize("name", OF_ROWS)
def test_tables_of_other_kinds_are_refused_with_what_makes_observations(name):
    for wrong, words in (
        (ROWS.codes, r"Tensor; make them with Observations.from_tensor\(codes, domain\)"),
        (ROWS.codes.numpy(), r"ndarray; make them with Observations.from_numpy\(rows\)"),
        ([[0, 1, 2]], "list; make them with Observations.from_pandas, from_csv"),
    ):
        with pytest.raises(InputTypeError, match=rf"^\w+: expected Observations or a data frame, received {words}"):
            OF_ROWS[name](wrong)


@pytest.mark.parametrize("name", OF_A_MODEL)
def test_seeds_are_whole_numbers_from_zero(name):
    ask = OF_A_MODEL[name]
    ask(MODEL, seed=np.int64(3))  # control
    for wrong in ("3", 3.0, None, True):
        with raises("wrong-type", "seed"):
            ask(MODEL, seed=wrong)
    for wrong in (-1, 2**63):
        with raises("out-of-range", "seed"):
            ask(MODEL, seed=wrong)


@pytest.mark.parametrize("name", ["removal_values", "removal_effect", "log_z_difference"])
def test_numbers_of_samples_are_checked_before_the_model_is_seen_to_be_small(name):
    ask = OF_A_MODEL[name]
    ask(MODEL, num_samples=2)  # control: exact here, so that no samples are drawn
    for wrong in (0, 1, -5):
        with pytest.raises(InputError, match=f"^num_samples: expected at least 2, received {wrong}"):
            ask(MODEL, num_samples=wrong)
    for wrong in ("many", 10.0, None, True):
        with raises("wrong-type", "num_samples"):
            ask(MODEL, num_samples=wrong)


FIT = fit(GRAPH, ROWS)
BATCH = type(MODEL)(GRAPH, MODEL.tables.expand(2, -1))
EMPTY = Observations(ROWS.domain, ROWS.codes, torch.zeros(len(ROWS.codes)))


@pytest.mark.parametrize(
    ("ask", "code", "argument"),
    [
        (lambda: with_supersets(MODEL, EDGES), "wrong-type", "hypergraph"),
        (lambda: coefficient_intervals(MODEL), "wrong-type", "result"),
        (lambda: removal_values(MODEL, EDGES, samples=[[0, 0, 0]], exact=False), "wrong-type", "samples"),
        (lambda: removal_values(MODEL, EDGES, samples=torch.zeros(3, 3), exact=False), "wrong-type", "samples"),
        (lambda: run_posterior(MODEL, ROWS, PosteriorSettings(), seed=0), "wrong-type", "hypergraph"),
        (lambda: run_posterior(GRAPH, ROWS, {}, seed=0), "wrong-type", "settings"),
        (lambda: run_posterior(GRAPH, ROWS, PosteriorSettings(), seed="0"), "wrong-type", "seed"),
        (lambda: analyse({"train": ROWS}, {"pairs": MODEL}), "wrong-type", "structures"),
        (lambda: analyse({"train": ROWS}, {"pairs": GRAPH}, seed="0"), "wrong-type", "seed"),
        (lambda: synthesise(MODEL, 3, burn_in="long"), "wrong-type", "burn_in"),
        (lambda: coefficient_intervals(FIT, level=1.0), "out-of-range", "level"),
        (lambda: coefficient_intervals(FIT, top=0), "out-of-range", "top"),
        (lambda: interaction_table(BATCH), "wrong-shape", "energy"),
        (lambda: score_rows(MODEL, EMPTY), "empty", "data"),
    ],
)
def test_other_arguments(ask, code, argument):
    with raises(code, argument):
        ask()
