"""Regressions on upper bounds of the log partition, and the published stop, against the certified optimum."""

import numpy as np
import pytest
import torch

from pyro_hoim.generalized_root import RootSettings, fit_roots
from pyro_hoim.testing import raises

BOUND = {"objective": "upper-bound", "stop": "published"}


def counts():
    rng = np.random.default_rng(5)
    hidden = rng.gamma(1.5, 1.0, (150, 1))
    return rng.poisson(hidden * [1.0, 2.0, 0.5, 1.5]).astype(float)


def fit(**options):
    return fit_roots(counts(), order=3, l1=0.02, settings=RootSettings(**options))


def distance(one, other):
    """Largest difference of the coefficients of two fits."""
    values = [{(term.key, term.names): term.coefficient for term in found.terms()} for found in (one, other)]
    return max(abs(values[0].get(name, 0.0) - values[1].get(name, 0.0)) for name in {*values[0], *values[1]})


def test_the_minimum_of_the_bound_is_above_the_optimum_and_nears_it():
    exact, near = fit(tolerance=1e-8), fit(objective="upper-bound", num_subdomains=20)
    far = fit(num_subdomains=2, **BOUND)
    for fitted in (near, far):
        assert (fitted.objective >= exact.objective - 1e-10).all()
    assert near.is_converged and float((near.objective - exact.objective).sum()) < 1e-6
    assert float((far.objective - exact.objective).sum()) > 1e-3
    assert distance(near, exact) < 1e-4 < 1e-2 < distance(far, exact)  # the latter is the control


def test_the_published_stop_ends_before_the_optimum_and_says_so():
    exact, early = fit(tolerance=1e-8), fit(stop="published")
    assert {node.status for node in early.nodes} == {"stopped"} and not early.is_converged
    above = early.objective - exact.objective
    assert (above >= -1e-12).all() and (above < 1e-4 * exact.objective.abs()).all()
    assert float(above.max()) > 1e-9 and float(early.kkt_residual.max()) > 1e-6
    assert torch.equal(early.psi, fit(stop="published", tolerance=1e-12).psi)  # the tolerance plays no part


def test_options_that_do_not_go_together_are_refused_before_any_work():
    with raises("conflict", "objective"):
        fit_roots([[0.5, 1.0]], "exponential", settings=RootSettings(objective="upper-bound"))
    with raises("over-budget", "objective"):
        fit_roots([[2e5], [1.0]], settings=RootSettings(objective="upper-bound"))
    for option in ({"objective": "upper-bounds"}, {"stop": "publishd"}):
        with pytest.raises(ValueError, match=next(iter(option))):
            RootSettings(**option)
    with pytest.raises(ValueError, match="num_subdomains"):
        RootSettings(num_subdomains=0)
