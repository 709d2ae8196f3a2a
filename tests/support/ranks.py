"""The exact rate of false alarms of the test that ranks are uniform."""

import numpy as np
from scipy import stats


def rank_test_rate(level: float, bins: int, expected: int) -> float:
    """How often the statistic passes its critical value, by the exact law of it.

    Multinomial counts are Poisson ones given their sum; sums of counts and of squares are added up bin by bin, by a
    Fourier transform over both.
    """
    counts = np.arange(6 * expected)
    weights = stats.poisson.pmf(counts, expected)
    grid = np.zeros((512, 16384))  # sums of counts and of squares past these have no weight to speak of
    offset = counts - expected
    keep = offset**2 < grid.shape[1]
    np.add.at(grid, (offset[keep] % 512, offset[keep] ** 2), weights[keep])
    law = np.fft.ifft((np.fft.fft2(grid) ** bins).mean(axis=0)).real
    critical = stats.chi2.isf(level, bins - 1)
    return float(law[np.arange(len(law)) / expected >= critical].sum() / law.sum())
