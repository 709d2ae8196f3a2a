"""Laws of Gibbs sweeps and of draws from node conditionals of generalized root models, against exact laws."""

import itertools

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from pyro_hoim import Domain, GeneralizedRootEnergy, RootStructure, Variable
from pyro_hoim.generalized_root import RootChains, TruncatedPoissonFamily, draw_from_nodes, node_family
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_exact_law

LEVELS = 4  # counts 0, ..., 3
NUM_DRAWS = 30_000


def counts_model(d=3, scale=0.5, seed=0):
    """A full model of third order, whose states are enumerated by NumPy alone."""
    domain = Domain([Variable(f"v{i}", kind="count") for i in range(d)])
    structure = RootStructure.complete(domain, 3)
    coefficients = scale * torch.randn(
        structure.num_terms, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return GeneralizedRootEnergy.from_coefficients(structure, coefficients, TruncatedPoissonFamily(LEVELS - 1))


def box(d=3):
    return np.array(list(itertools.product(range(LEVELS), repeat=d)), dtype=np.float64)


def exact_law(energy, beta=1.0, dropped=None):
    """Probabilities of all states of the box, from the formula."""
    x = box(len(energy.domain))
    coefficients = energy.coefficients.numpy()
    log_q = -special.gammaln(x + 1).sum(1)
    for i, ((j, _), names) in enumerate(energy.structure.names):
        places = [energy.domain.index(name) for name in names]
        weight = beta if len(names) > 1 else 1.0
        if (j, names) != dropped:
            log_q += weight * coefficients[i] * np.prod(x[:, places] ** (1 / j), axis=1)
    return np.exp(log_q - special.logsumexp(log_q))


def cells(states):
    return np.ravel_multi_index(states.long().numpy().T, (LEVELS,) * states.shape[1])


def from_law(law, num, seed, d=3):
    return torch.from_numpy(box(d)[np.random.default_rng(seed).choice(len(law), size=num, p=law)])


def histogram(states):
    return np.bincount(cells(states), minlength=LEVELS ** states.shape[1])


@pytest.mark.parametrize("reverse_order", [False, True])
@pytest.mark.parametrize("beta", [1.0, 0.4, 0.0])
def test_a_sweep_keeps_the_exact_law(beta, reverse_order):
    energy = counts_model()
    law = exact_law(energy, beta)
    start = from_law(law, NUM_DRAWS, seed=1)
    chains = RootChains(energy, NUM_DRAWS, init=start, seed=torch.Generator().manual_seed(2))
    chains.sweep(1, beta=beta, reverse_order=reverse_order)
    assert_exact_law(histogram(chains.states), law)


@pytest.mark.fixed_seed  # of the model whose interactions show the error
@pytest.mark.parametrize(
    "wrong",
    [{"beta": 0.9}, {"dropped": (2, ("v0", "v1"))}, {"dropped": (3, ("v0", "v1", "v2"))}],
    ids=["beta off", "pair dropped", "triple dropped"],
)
def test_negative_control_a_sweep_of_another_model(wrong):
    energy = counts_model(scale=0.8, seed=3)
    law = exact_law(energy, **wrong)
    chains = RootChains(energy, NUM_DRAWS, init=from_law(law, NUM_DRAWS, seed=4), seed=torch.Generator().manual_seed(5))
    chains.sweep(3)
    with pytest.raises(AssertionError):
        assert_exact_law(histogram(chains.states), law)


@pytest.mark.fixed_seed  # of the model whose interactions show the error
def test_negative_control_two_neighbours_at_once():
    energy = counts_model(scale=0.8, seed=3)
    law = exact_law(energy)
    start = from_law(law, NUM_DRAWS, seed=6)
    natural = energy.node_natural(start)
    states = start.clone()
    for s in (0, 1):  # both given the old value of the other
        states[:, s] = draw_from_nodes(energy.family, natural[:, s], generator=torch.Generator().manual_seed(7 + s))
    with pytest.raises(AssertionError):
        assert_exact_law(histogram(states), law)


def test_given_variables_leave_the_conditional_law():
    energy = counts_model()
    law = exact_law(energy).reshape((LEVELS,) * 3)[:, 2]
    law = law / law.sum()
    chains = RootChains(energy, NUM_DRAWS, clamped={"v1": 2.0}, seed=torch.Generator().manual_seed(9))
    chains.sweep(30)
    states = chains.states
    assert bool((states[:, 1] == 2).all())
    pairs = (states[:, 0] * LEVELS + states[:, 2]).long().numpy()
    assert_exact_law(np.bincount(pairs, minlength=LEVELS**2), law.reshape(-1))


def test_chains_start_in_the_independent_member_and_forget_a_bad_start():
    energy = counts_model()
    chains = RootChains(energy, NUM_DRAWS, seed=torch.Generator().manual_seed(10))
    assert_exact_law(histogram(chains.states), exact_law(energy, beta=0.0))
    start = torch.full((3,), LEVELS - 1.0)
    chains = RootChains(energy, NUM_DRAWS, init=start, seed=torch.Generator().manual_seed(8))
    chains.sweep(40)
    assert_exact_law(histogram(chains.states), exact_law(energy))


# Draws from one conditional


def count_law(natural, top):
    x = np.arange(top + 1, dtype=np.float64)
    log_p = sum(eta * x ** (1 / (j + 1)) for j, eta in enumerate(natural)) - special.gammaln(x + 1)
    return np.exp(log_p - special.logsumexp(log_p))


def node_draws(family, natural, seed, num=NUM_DRAWS // 2):
    """Draws of one node with the same natural parameters, or with a row of them for each."""
    eta = torch.as_tensor(np.asarray(natural, dtype=np.float64))
    eta = eta.expand(num, -1) if eta.dim() == 1 else eta
    family = node_family(family) if isinstance(family, str) else family
    return draw_from_nodes(family, eta, generator=torch.Generator().manual_seed(seed)).numpy()


def in_cells(draws, law, num_cells=40):
    """Counts and probabilities of about equally probable runs of values."""
    cumulative = np.cumsum(law)
    edges = np.unique(np.searchsorted(cumulative, np.linspace(0, 1, num_cells + 1)[1:-1]))
    probs = np.diff(np.concatenate([[0.0], cumulative[edges], [1.0]])).clip(0)  # sums round to beyond 1
    return np.bincount(np.searchsorted(edges, draws), minlength=len(probs)), probs


POISSON = [
    [0.5],
    [-50.0, 0.0, 0.0],
    [2.0, -1.0, 0.5],
    [3.0, -9.0, 4.0],
    [4.5, 0.3, -1.0],
    [5.5],
    [1.0, 60.0],
    [6.2, -26.9232843398],  # two modes, 40 % at 0 and the others near 180
    [8.0, -66.2291374477],  # the same, near 1100
    [8.0, -40.0, 3.0],
    [14.0],
    [14.1, -150.0, 400.0],
]


def test_negative_control_poisson_conditional_with_a_parameter_off():
    draws = node_draws("poisson", [14.0005], 11)
    counts, probs = in_cells(draws, count_law([14.0], int(1.2 * draws.max())))
    with pytest.raises(AssertionError):
        assert_exact_law(counts, probs)


TRUNCATED = [(1, [3.0]), (5, [3.0, -2.0]), (300, [8.0, -30.0, 2.0]), (2000, [9.0]), (10**5, [9.0, 3.0])]


@pytest.mark.parametrize(("maximum", "natural"), [*((None, natural) for natural in POISSON), *TRUNCATED], ids=str)
def test_conditionals_of_counts(maximum, natural):
    family = "poisson" if maximum is None else node_family("truncated-poisson", maximum=maximum)
    draws = node_draws(family, natural, 11 if maximum is None else 12)
    assert maximum is None or draws.max() <= maximum
    assert_exact_law(*in_cells(draws, count_law(natural, int(1.2 * draws.max() + 400) if maximum is None else maximum)))


def assert_uniform(shares):
    """Kolmogorov's test at the false-alarm rate: probability integral transforms of independent draws are uniform."""
    p_value = stats.kstest(shares, "uniform").pvalue
    assert p_value > FALSE_ALARM_RATE, p_value


def line_cdf(log_density, draws, breaks):
    """Distribution function of draws from a density on the line, by Gauss-Legendre rules between many points."""
    points = np.unique(np.concatenate([breaks, np.quantile(draws, np.linspace(0, 1, 400))]))
    nodes, weights = np.polynomial.legendre.leggauss(20)
    low, width = points[:-1, None], np.diff(points)[:, None]
    values = log_density(low + width * (nodes + 1) / 2)
    top = values.max()
    masses = (np.exp(values - top) * weights * width / 2).sum(1)
    starts = np.concatenate([[0.0], np.cumsum(masses)])
    i = np.clip(np.searchsorted(points, draws, side="right") - 1, 0, len(masses) - 1)
    inside = points[i, None] + (draws - points[i])[:, None] * (nodes + 1) / 2
    part = (np.exp(log_density(inside) - top) * weights).sum(1) * (draws - points[i]) / 2
    return (starts[i] + part) / starts[-1]


EXPONENTIAL = [
    [-2.0],
    [-1.0, 3.0],
    [-1.0, -3.0, 2.0],
    [-1.0, -60.0, 40.0],
    [-1.0, 30.0, -47.3288123798],  # two modes, 40 % near 0 and the others near 140
    [-1.0, 30.0, -80.0],
    [-1e-3, 4.0, -3.0],
    [-1e-3, 60.0, 0.0],
    [-1e-9, -2.0],
    [0.0, -2.0, 1.0],
    [0.0, 0.0, -1.5],
    [-1e-4, 200.0],  # mean 1e12
]


def exponential_shares(natural, draws):
    def log_density(x):
        return sum(eta * x ** (1 / (j + 1)) for j, eta in enumerate(natural))

    top = draws.max()
    breaks = np.concatenate([[0.0], np.geomspace(1e-12 * top, top, 800), top * np.geomspace(1.001, 30, 200)])
    return line_cdf(log_density, draws, breaks)


GAUSSIAN = [
    [-0.5],
    [-2.0, 3.0],
    [-0.5, 0.3, -2.0],
    [-0.5, 1.0, -20.0],  # a spike at 0 and a bell
    [-0.5, 0.3, 5.0],  # two bells
    [-0.5, 20.0, 3.0, -1.0],
    [-1e-3, 0.2, 0.0, -3.0],
    [0.0, 0.0, -2.0],
    [-1e6, 2e6 * 1e3, 3.0],  # mean 1e3 with standard deviation 7e-4
]


def gaussian_shares(natural, draws):
    def log_density(x):
        centre = -natural[1] / natural[0] / 2 if len(natural) > 1 and natural[0] else 0.0
        roots = sum(eta * np.abs(x) ** (2 / (j + 3)) for j, eta in enumerate(natural[2:]))
        return natural[0] * (x - centre) ** 2 + roots

    low, high = draws.min(), draws.max()
    reach = np.geomspace(1e-12, 4.0, 500) * max(abs(low), abs(high))
    breaks = np.concatenate(
        [-reach, [0.0], reach, np.linspace(low - 0.3 * (high - low), high + 0.3 * (high - low), 300)]
    )
    return line_cdf(log_density, draws, breaks)


REALS = {"exponential": (exponential_shares, 13), "gaussian": (gaussian_shares, 14)}


@pytest.mark.parametrize(
    ("name", "natural"), [*(("exponential", eta) for eta in EXPONENTIAL), *(("gaussian", eta) for eta in GAUSSIAN)]
)
def test_conditionals_of_reals(name, natural):
    shares, seed = REALS[name]
    assert_uniform(shares(natural, node_draws(name, natural, seed)))


@pytest.mark.parametrize(
    ("name", "natural", "of", "sign"),
    [("exponential", [-1.0, 3.1], [-1.0, 3.0], 1), ("gaussian", [-0.5, 0.3, -2.0], [-0.5, 0.3, -2.0], -1)],
)
def test_negative_control_conditionals_with_a_root_off_or_the_sign_of_the_mean_wrong(name, natural, of, sign):
    shares, seed = REALS[name]
    with pytest.raises(AssertionError):
        assert_uniform(shares(natural, sign * node_draws(name, of, seed)))


# Sweeps of models of reals


def reals(names, keyed, family):
    """A model from ``{key: {names: coefficient}}``."""
    domain = Domain([Variable(name, kind=node_family(family).kind) for name in names])
    structure = RootStructure(domain, {key: list(terms) for key, terms in keyed.items()})
    coefficients = torch.tensor([keyed[key][members] for key, members in structure.names], dtype=torch.float64)
    return GeneralizedRootEnergy.from_coefficients(structure, coefficients, node_family(family))


def rectangle_law(log_q, edges):
    """Probabilities of the rectangles between edges of two variables, by Gauss-Legendre rules on squared distances."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    points, measures, cell = [], [], []
    for i, (low, high) in enumerate(itertools.pairwise(edges)):
        for start, end in ((low, (low + high) / 2), ((low + high) / 2, high)):
            t = (nodes + 1) / 2
            near = start if start == low else end  # cube roots and square roots are smooth in a power of the distance
            x = near + (end - start) * t**6 * (1 if near == start else -1)
            points.append(x)
            measures.append(weights / 2 * (end - start) * 6 * t**5)
            cell.append(np.full(len(x), i))
    points, measures, cell = (np.concatenate(parts) for parts in (points, measures, cell))
    grid = np.exp(log_q(points[:, None], points[None])) * measures[:, None] * measures[None]
    size = len(edges) - 1
    masses = np.bincount((cell[:, None] * size + cell[None]).ravel(), weights=grid.ravel(), minlength=size**2)
    return masses / masses.sum()


def rectangles(states, edges):
    i = np.clip(np.searchsorted(edges, states.numpy(), side="right") - 1, 0, len(edges) - 2)
    return np.bincount(i[:, 0] * (len(edges) - 1) + i[:, 1], minlength=(len(edges) - 1) ** 2)


def accepted(rng, propose, log_accept, num):
    """Exact draws by rejection."""
    found = np.zeros((0, 2))
    while len(found) < num:
        x = propose(4 * num)
        found = np.concatenate([found, x[np.log(rng.random(len(x))) < log_accept(x)]])
    return torch.from_numpy(found[:num])


EXPONENTIAL_EDGES = np.array([0.0, 0.1, 0.3, 0.7, 1.4, 3.0, 8.0, 45.0])


def exponential_pair(pair=0.8):
    terms = {(1, 1): {("a",): -1.0, ("b",): -1.5}, (2, 1): {("a",): -0.5}, (2, 2): {("a", "b"): pair}}
    return reals("ab", terms, "exponential")


def exponential_pair_draws(num, seed, pair=0.8):
    """Proposals are independent; pair * sqrt(x y) is at most pair * (x + y) / 2."""
    rng = np.random.default_rng(seed)
    rates = np.array([1.0 - pair / 2, 1.5 - pair / 2])

    def log_accept(x):
        return pair * (np.sqrt(x.prod(1)) - x.sum(1) / 2) - 0.5 * np.sqrt(x[:, 0])

    return accepted(rng, lambda n: rng.exponential(1 / rates, (n, 2)), log_accept, num)


def exponential_pair_law(pair=0.8):
    return rectangle_law(lambda x, y: -x - 1.5 * y - 0.5 * np.sqrt(x) + pair * np.sqrt(x * y), EXPONENTIAL_EDGES)


def test_a_sweep_of_exponentials_keeps_the_law_of_quadrature():
    law, start = exponential_pair_law(), exponential_pair_draws(NUM_DRAWS, seed=20)
    assert_exact_law(rectangles(start, EXPONENTIAL_EDGES), law)  # the start itself
    right, weaker = (
        RootChains(exponential_pair(pair), NUM_DRAWS, init=start, seed=torch.Generator().manual_seed(21))
        for pair in (0.8, 0.6)
    )
    right.sweep(1)
    assert_exact_law(rectangles(right.states, EXPONENTIAL_EDGES), law)
    weaker.sweep(1)
    with pytest.raises(AssertionError):  # negative control
        assert_exact_law(rectangles(weaker.states, EXPONENTIAL_EDGES), law)


GAUSSIAN_EDGES = np.array([-9.0, -1.5, -0.8, -0.3, 0.0, 0.3, 0.8, 1.5, 9.0])


def cube_roots(linear=0.3):
    terms = {(1, 1): {("a",): -1.0, ("b",): -1.2}, (2, 2): {("a", "b"): linear}, (3, 2): {("a", "b"): 0.5}}
    return reals("ab", terms, "gaussian")


def test_a_sweep_of_gaussians_with_cube_roots_keeps_the_law_of_quadrature():
    rng = np.random.default_rng(22)
    precision = 2 * (np.array([[1.0, -0.15], [-0.15, 1.2]]) - np.eye(2) / 6)
    factor = np.linalg.cholesky(np.linalg.inv(precision))

    def log_accept(x):  # |x y|^(2/3) is at most 1/3 + (x^2 + y^2) / 3
        return 0.5 * (np.abs(x.prod(1)) ** (2 / 3) - 1 / 3 - (x**2).sum(1) / 3)

    start = accepted(rng, lambda n: rng.standard_normal((n, 2)) @ factor.T, log_accept, NUM_DRAWS)
    law = rectangle_law(
        lambda x, y: -(x**2) - 1.2 * y**2 + 0.3 * x * y + 0.5 * np.abs(x * y) ** (2 / 3), GAUSSIAN_EDGES
    )
    assert_exact_law(rectangles(start, GAUSSIAN_EDGES), law)  # the start itself
    for linear in (0.3, 0.1):
        chains = RootChains(
            cube_roots(linear), NUM_DRAWS, init=start, seed=torch.Generator().manual_seed(23), check=False
        )
        chains.sweep(1 if linear == 0.3 else 3)
        if linear == 0.3:
            assert_exact_law(rectangles(chains.states, GAUSSIAN_EDGES), law)
        else:  # negative control
            with pytest.raises(AssertionError):
                assert_exact_law(rectangles(chains.states, GAUSSIAN_EDGES), law)


def gaussian_model(off=1.0):
    terms = {
        (1, 1): {("a",): -1.0, ("b",): -0.8, ("c",): -2.0},
        (2, 1): {("a",): 0.5, ("c",): -3.0},
        (2, 2): {("a", "b"): 0.9 * off, ("b", "c"): -1.1},
    }
    return reals("abc", terms, "gaussian")


def assert_multivariate_normal(states, law):
    """Whitened states, and sums of their pairs, have standard normal coordinates."""
    white = torch.linalg.solve_triangular(law.scale_tril, (states - law.loc).T, upper=False).T.numpy()
    mixed = [white[:, i] for i in range(3)]
    mixed += [(white[:, i] + white[:, j]) / np.sqrt(2) for i, j in itertools.combinations(range(3), 2)]
    for values in mixed:
        assert_uniform(stats.norm.cdf(values))


def test_sweeps_of_gaussians_keep_the_multivariate_normal():
    precision = torch.tensor([[2.0, -0.9, 0.0], [-0.9, 1.6, 1.1], [0.0, 1.1, 4.0]], dtype=torch.float64)
    loc = torch.linalg.solve(precision, torch.tensor([0.5, 0.0, -3.0], dtype=torch.float64))
    law = torch.distributions.MultivariateNormal(loc, precision_matrix=precision)
    noise = torch.randn(NUM_DRAWS, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(24))
    start = loc + noise @ law.scale_tril.T
    chains = RootChains(gaussian_model(), NUM_DRAWS, init=start, seed=torch.Generator().manual_seed(25))
    chains.sweep(1)
    assert_multivariate_normal(chains.states, law)
    control = RootChains(gaussian_model(0.9), NUM_DRAWS, init=start, seed=torch.Generator().manual_seed(25))
    control.sweep(5)
    with pytest.raises(AssertionError):
        assert_multivariate_normal(control.states, law)
    fresh = RootChains(gaussian_model(), NUM_DRAWS, seed=torch.Generator().manual_seed(26))
    fresh.sweep(60)
    assert_multivariate_normal(fresh.states, law)


# One draw from each of many random laws: their probability integral transforms are uniform


def random_naturals(rng, num, order, largest):
    """Roots of either sign and any strength; about a third is zero."""
    natural = rng.standard_normal((num, order)) * 10 ** rng.uniform(-2, largest, (num, order))
    return natural * (rng.random((num, order)) < 0.7)


@pytest.mark.parametrize("maximum", [None, 60, 900])
def test_one_draw_from_each_of_many_random_laws_of_counts(maximum):
    rng, num, top = np.random.default_rng(30), 2000, 2000 if maximum is None else maximum
    natural = random_naturals(rng, num, 4, 1.0)
    natural[:, 0] = rng.uniform(-6, 4, num)
    x = np.arange(top + 1, dtype=np.float64)
    log_p = natural @ np.stack([x ** (1 / j) for j in range(1, 5)]) - special.gammaln(x + 1)
    inside = log_p[:, -1] < log_p.max(1) - 50 if maximum is None else np.full(num, True)
    assert inside.mean() > 0.9
    natural, log_p = natural[inside], log_p[inside]
    p = np.exp(log_p - special.logsumexp(log_p, axis=1, keepdims=True))
    family = node_family("poisson") if maximum is None else node_family("truncated-poisson", maximum=maximum)
    draws = node_draws(family, natural, 31).astype(np.int64)
    here = np.arange(len(draws)), draws
    shares = p.cumsum(1)[here] - rng.random(len(draws)) * p[here]
    assert_uniform(shares)
    with pytest.raises(AssertionError):  # negative control: the neighbouring count
        assert_uniform(p.cumsum(1)[here[0], np.minimum(draws + 1, top)] - rng.random(len(draws)) * p[here])


@pytest.mark.parametrize("name", ["exponential", "gaussian"])
def test_one_draw_from_each_of_many_random_laws_of_reals(name):
    rng, num = np.random.default_rng(32), 1500
    natural = random_naturals(rng, num, 4, 1.0)
    natural[:, 0] = -(10 ** rng.uniform(-1, 1, num))
    draws = node_draws(name, natural, 33)
    t = np.linspace(-60, 12, 6001)  # logarithms of distances from 0; the trapezium rule errs by 1e-5 at most
    u = np.exp(t)
    signs = [1.0] if name == "exponential" else [-1.0, 1.0]
    power = 1 if name == "exponential" else 2
    shares = []
    for eta, x in zip(natural, draws, strict=True):
        parts = []
        for sign in signs:
            log_density = sum(a * u ** (power / (j + 1)) for j, a in enumerate(eta) if not (power == 2 and j == 1))
            parts.append(log_density + t + (sign * eta[1] * u if power == 2 else 0.0))
        top = max(part.max() for part in parts)
        sums = [integrate.cumulative_trapezoid(np.exp(part - top), t, initial=0.0) for part in parts]
        total = sum(s[-1] for s in sums)
        own = sums[0] if power == 1 or x < 0 else sums[1]
        below = np.interp(np.log(abs(x)), t, own)
        shares.append(below / total if power == 1 else (sums[0][-1] + (below if x > 0 else -below)) / total)
    assert_uniform(shares)


@pytest.mark.parametrize("rate", [1e7, 3e11])
def test_means_far_beyond_tables(rate):
    rng, draws = np.random.default_rng(40), node_draws("poisson", [np.log(rate)], 41)
    scaled = (draws + rng.random(len(draws)) - rate - 0.5) / np.sqrt(rate)

    def shares(z):  # the first term of the Edgeworth series
        skewness = 1 / np.sqrt(rate)
        return stats.norm.cdf(z) - skewness / 6 * (z**2 - 1) * stats.norm.pdf(z)

    assert_uniform(shares(scaled))
    with pytest.raises(AssertionError):  # negative control: six per cent of a standard deviation
        assert_uniform(shares(scaled + 0.06))
