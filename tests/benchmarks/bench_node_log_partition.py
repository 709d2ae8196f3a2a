"""Node log partitions with gradient and Hessian, against plain NumPy sums and SciPy quadrature in the same run.

    python tests/benchmarks/bench_node_log_partition.py [--append]

Poisson, k = 3, one row for each of the 3,893 texts of Classic3, eta_1 from -3 to 3 and the other two from -3 to 3. The
peer adds the counts from 0 to 99 for all rows at once in NumPy, enough for these rows; for the exponential family it is
scipy.integrate.quad, one row and one moment after the other.
"""

import math

import numpy as np
from harness import Report, median, script
from scipy import integrate, special

from pyro_hoim.generalized_root import ExponentialFamily, GaussianFamily, PoissonFamily, UserFamily
from pyro_hoim.generalized_root.nodes.kernels import evaluate_nodes

ROWS = 3893


def ours(family, eta, order):
    n, k = eta.shape
    value, mean, cov = np.empty(n), np.empty((n, k)), np.empty((n, k, k))
    evaluate_nodes(family, eta, order, value, mean, cov)
    return value, mean, cov


def numpy_sums(eta, order, last=100):
    """The same by broadcasting, with every table made beforehand."""
    x = np.arange(last, dtype=float)
    roots = np.stack([x ** (1 / j) for j in range(1, eta.shape[1] + 1)])
    base = -special.gammaln(x + 1)

    def call():
        logs = eta @ roots + base
        top = logs.max(1, keepdims=True)
        weights = np.exp(logs - top)
        total = weights.sum(1, keepdims=True)
        value = (top + np.log(total))[:, 0]
        if order == 0:
            return value, None, None
        weights /= total
        mean = weights @ roots.T
        if order == 1:
            return value, mean, None
        products = (roots[:, None] * roots[None]).reshape(-1, last)
        cov = (weights @ products.T).reshape(-1, *2 * roots.shape[:1]) - mean[:, :, None] * mean[:, None]
        return value, mean, cov

    return call


def scipy_quadrature(eta):
    """Value, means and second moments of every row by adaptive quadrature."""
    k = eta.shape[1]
    orders = range(1, k + 1)
    powers = {0.0, *(1 / i for i in orders), *(1 / i + 1 / j for i in orders for j in orders)}

    def density(x, row, power):
        return x**power * math.exp(sum(e * x ** (1 / j) for j, e in enumerate(row, 1)))

    def call():
        return [integrate.quad(density, 0, math.inf, (row, p), epsrel=1e-10)[0] for row in eta for p in powers]

    return call


def main():
    parser = script(__doc__)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    report = Report()
    typical = rng.uniform(-3, 3, (ROWS, 3))
    for order in (0, 1, 2):
        peer = numpy_sums(typical, order)
        for found, expected in zip(ours(PoissonFamily(), typical, order), peer(), strict=True):
            if expected is not None:
                np.testing.assert_allclose(found, expected, rtol=1e-8)
        mine, fastest = median(lambda: ours(PoissonFamily(), typical, order), 30)
        theirs, _ = median(peer, 10)
        what = f"Poisson, k = 3, {ROWS} rows, order {order}"
        report.add(what, "pyro_hoim", mine, theirs / mine, f"fastest {fastest * 1e3:.2f} ms")
        report.add(what, "NumPy sums", theirs)
    sparse = typical - [3.0, 0.0, 0.0]
    mine, fastest = median(lambda: ours(PoissonFamily(), sparse, 2), 30)
    theirs, _ = median(numpy_sums(sparse, 2), 10)
    report.add(
        "Poisson, the same with eta_1 from -6 to 0, order 2",
        "pyro_hoim",
        mine,
        theirs / mine,
        f"fastest {fastest * 1e3:.2f} ms",
    )
    large = np.column_stack([rng.uniform(10, 16, 200), rng.uniform(-3, 3, (200, 2))])
    mine, fastest = median(lambda: ours(PoissonFamily(), large, 2), 5)
    report.add(
        "Poisson, 200 rows with means of 1e4 to 1e7, order 2", "pyro_hoim", mine, 0, f"{mine / 200 * 1e6:.0f} µs a row"
    )
    own = UserFamily("own Poisson", "count", lambda x: -special.gammaln(x + 1))
    mine, fastest = median(lambda: ours(own, typical, 2), 5)
    report.add(f"Poisson as a user's family, k = 3, {ROWS} rows, order 2", "pyro_hoim", mine)
    real = np.column_stack([-rng.uniform(0.1, 3, 200), rng.uniform(-3, 3, (200, 2))])
    for family, name in ((ExponentialFamily(), "exponential"), (GaussianFamily(), "Gaussian")):
        mine, fastest = median(lambda: ours(family, real, 2), 5)
        note, ratio = f"{mine / 200 * 1e6:.0f} µs a row", 0
        if name == "exponential":
            theirs, _ = median(scipy_quadrature(real[:10]), 1, warm=0)
            ratio = theirs * 20 / mine
        report.add(f"{name}, k = 3, 200 rows, order 2", "pyro_hoim", mine, ratio, note)
        if name == "exponential":
            report.add(f"{name}, k = 3, 200 rows, order 2", "scipy.integrate.quad (10 rows, scaled)", theirs * 20)
    own = UserFamily("own exponential", "positive", np.zeros_like)
    mine, fastest = median(lambda: ours(own, real, 2), 5)
    note = f"{mine / 200 * 1e6:.0f} µs a row"
    report.add("exponential as a user's family, k = 3, 200 rows, order 2", "pyro_hoim", mine, 0, note)
    if arguments.append:
        report.append("Node log partitions")


if __name__ == "__main__":
    main()
