"""Every exact backend, held to the public conformance suite, and the suite held to a backend that is wrong."""

from __future__ import annotations

import dataclasses
import itertools
import pickle

import pytest

from pyro_hoim.core import PartitionBackend
from pyro_hoim.log_linear import VariableElimination
from pyro_hoim.log_linear.energy import LogLinearEnergy
from pyro_hoim.testing import BACKEND_CHECKS, BackendCase, check_backend, standard_hypergraphs


def test_backend_conforms(backend):
    assert isinstance(backend, PartitionBackend)
    if getattr(backend, "max_cells", None) != 9:
        check_backend(backend)
        return
    checks = [check for check in BACKEND_CHECKS if check.__name__ != "check_marginals"]  # of more than nine cells
    for check, hypergraph in itertools.product(checks, standard_hypergraphs().values()):
        check(BackendCase(backend, hypergraph, scale=1.0))


def test_exact_results_are_verified(backend):
    result = backend.log_partition(BackendCase(backend, standard_hypergraphs()["cycle"]).model())
    assert (result.verdict, result.notes, result.sandwich) == ("verified", (), None)


class DropsAnInteraction(VariableElimination):
    """Negative control: forgets the last interaction table."""

    def log_partition(self, model):
        return super().log_partition(_dropped(model))

    def expectations(self, model):
        return super().expectations(_dropped(model))

    def log_marginal(self, model, names):
        return super().log_marginal(_dropped(model), names)

    def sample(self, model, sample_shape=(), generator=None):
        return super().sample(_dropped(model), sample_shape, generator)

    def mode(self, model):
        return super().mode(_dropped(model))


def _dropped(model):
    keep = model.tables.new_ones(model.hypergraph.num_terms)
    keep[list(model.hypergraph.term_slices.values())[-1]] = 0
    return LogLinearEnergy(model.hypergraph, model.tables * keep)


@pytest.mark.parametrize(
    "check", [c for c in BACKEND_CHECKS if c.__name__ not in ("check_batch",)], ids=lambda c: c.__name__
)
def test_suite_finds_a_dropped_interaction(check):
    case = BackendCase(DropsAnInteraction(), standard_hypergraphs()["three-way"], scale=1.0)
    with pytest.raises(AssertionError):
        check(case)


def test_backends_are_values(backend):
    options = {field.name: getattr(backend, field.name) for field in dataclasses.fields(backend)}
    other = type(backend)(**options)
    assert pickle.loads(pickle.dumps(backend)) == backend == other
    assert hash(backend) == hash(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(backend, next(iter(options)), None)
