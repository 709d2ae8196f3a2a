"""Pairs of bits against skglm's l1 logistic regression, another program for the same problem."""

import numpy as np
import pytest

from pyro_hoim.generalized_root import RootSettings, TruncatedPoissonFamily, fit_roots


def bits(num_rows=250, width=8):
    rng = np.random.default_rng(3)
    hidden = rng.normal(size=(num_rows, 2))
    return (hidden @ rng.normal(size=(2, width)) + rng.normal(size=(num_rows, width)) > 0.3).astype(float)


@pytest.mark.slow  # skglm compiles for about 20 s; the same comparison with scikit-learn runs in every test run
def test_pairs_of_bits_are_skglms_logistic_regression():
    from skglm.datafits import Logistic
    from skglm.estimators import GeneralizedLinearEstimator
    from skglm.penalties import L1
    from skglm.solvers import ProxNewton

    x = bits()
    num_columns = x.shape[1]
    found = num_nonzero = 0
    for l1 in (0.02, 0.005, 0.001):
        fitted = fit_roots(x, TruncatedPoissonFamily(1), order=2, l1=l1, settings=RootSettings(tolerance=1e-10))
        for node in range(num_columns):
            others = [t for t in range(num_columns) if t != node]
            solver = ProxNewton(fit_intercept=True, tol=1e-12, max_iter=1000)
            peer = GeneralizedLinearEstimator(Logistic(), L1(l1), solver)
            peer.fit(np.asfortranarray(x[:, others]), 2 * x[:, node] - 1)
            mine = np.zeros(num_columns)
            for term in fitted.nodes[node].terms:
                (other,) = set(term.names) - {f"x{node}"}
                mine[int(other.removeprefix("x"))] = term.coefficient
            np.testing.assert_allclose(mine[others], np.ravel(peer.coef_), rtol=0, atol=1e-6)
            assert fitted.nodes[node].intercept == pytest.approx(float(np.ravel(peer.intercept_)[0]), abs=1e-6)
            found += int((mine != 0).sum())
            num_nonzero += int((np.ravel(peer.coef_) != 0).sum())
            control = GeneralizedLinearEstimator(Logistic(), L1(1.01 * l1), solver)
            control.fit(np.asfortranarray(x[:, others]), 2 * x[:, node] - 1)
            assert np.abs(mine[others] - np.ravel(control.coef_)).max() > 1e-5  # control: another penalty, other values
    assert found == num_nonzero > 100
