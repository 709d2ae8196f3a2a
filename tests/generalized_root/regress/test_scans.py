"""Scans of all pairs of other columns for gradients beyond the penalty, with columns screened first, against sums."""

import numpy as np
import pytest
import scipy.sparse

from pyro_hoim.generalized_root.regress._kernels import scan_pairs, screened_columns


def problem(seed):
    """Sparse roots (n, p) by rows and residuals (n,), some of them zero."""
    rng = np.random.default_rng(seed)
    dense = rng.gamma(1.0, 1.0, (60, 25)) * (rng.random((60, 25)) < rng.uniform(0.02, 0.6, 25))
    residuals = rng.normal(0.0, rng.choice([0.01, 1.0], 60)) * (rng.random(60) < 0.8)
    return dense, residuals


def scanned(dense, residuals, skipped, threshold):
    rows = scipy.sparse.csr_matrix(dense)
    sparse = rows.indptr[1:].astype(np.uint32), rows.indices.astype(np.uint32), rows.data
    *sparse, kept = screened_columns(*sparse, residuals, dense.shape[1], skipped, threshold)
    first, second, sums = scan_pairs(*sparse, residuals, max(1, len(kept)), -1, threshold)
    return {(int(kept[a]), int(kept[b])): value for a, b, value in zip(first, second, sums, strict=True)}, kept


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("threshold", [0.0, 0.5, 2.0, 5.0, 1e3])
def test_screened_scans_find_what_all_sums_show(seed, threshold):
    dense, residuals = problem(seed)
    sums = np.einsum("n,nt,nr->tr", residuals, dense, dense)
    wanted = {
        (t, r): sums[t, r]
        for t in range(25)
        for r in range(t + 1, 25)
        if abs(sums[t, r]) > threshold and 7 not in (t, r)
    }
    found, kept = scanned(dense, residuals, 7, threshold)
    assert found.keys() == wanted.keys() and 7 not in kept
    np.testing.assert_allclose([found[pair] for pair in wanted], list(wanted.values()), rtol=1e-12)


def test_control_columns_are_left_out_and_some_of_the_rest_are_needed():
    dense, residuals = problem(1)
    found, kept = scanned(dense, residuals, 7, 5.0)
    assert found and len(kept) < 24
    needed = {t for pair in found for t in pair}
    assert needed <= set(kept.tolist())
    assert scanned(dense, residuals, min(needed), 5.0)[0].keys() != found.keys()
