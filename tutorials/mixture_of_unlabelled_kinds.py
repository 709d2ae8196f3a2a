# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
#   kernelspec:
#     name: python3
#     display_name: Python 3
# ---

# %% [markdown]
# # A mixture of log-linear models with unknown labels
#
# Six yes-or-no questions stand around a table. Consistent people answer neighbouring questions alike, contrary people
# answer them differently, and half of either kind say yes to every single question. 3,000 people have answered and
# nobody wrote down who is of which kind. **Can the kinds be told apart by nothing but how answers hang together?**
#
# A latent class analysis cannot: it knows kinds by how often they say yes. A mixture whose components are log-linear
# models can, and every number of its posterior can be checked, since the six questions have only 64 joint answers.

# %%
import math

import arviz as az
import matplotlib.pyplot as plt
import pandas as pd
import pyro
import pyro.distributions as dist
import scipy.stats
import torch
from pyro import poutine
from pyro.infer.mcmc.util import initialize_model

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, fit, normal_prior, run_mcmc
from pyro_hoim.inference import RecordingNUTS
from pyro_hoim.log_linear import L2, statistics_of
from pyro_hoim.testing import FALSE_ALARM_RATE

seed = 1
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)

questions = list("abcdef")
domain = Domain.from_cardinalities(dict.fromkeys(questions, 2))
neighbours = list(zip(questions, questions[1:] + questions[:1], strict=True))
ring = InteractionHypergraph(domain, neighbours, closure=True)
is_pair = torch.tensor([float(len(edge) == 2) for edge in ring.edges])

true_share = torch.tensor([0.6, 0.4])  # consistent, contrary
strengths = torch.cat([torch.zeros(6), torch.linspace(0.6, 0.9, 6)])  # single questions, pairs of neighbours
true_theta = torch.stack([strengths, -strengths])
num_people = 3000

pyro.set_rng_seed(seed)
kind = dist.Categorical(true_share).sample((num_people,))
rows = HierarchicalLogLinear(ring, true_theta[kind]).sample()
rows.double().mean(0)

# %% [markdown]
# ## The program
#
# People with equal answers have equal likelihoods, so the data are 64 counts. The distribution takes a batch of two
# thetas, which makes it a component of Pyro's `MixtureSameFamily`: labels are summed out exactly, and NUTS sees 25
# numbers.

# %%
cells = torch.cartesian_prod(*[torch.arange(2)] * 6)
place = 2 ** torch.arange(5, -1, -1)
counts = torch.bincount(rows @ place, minlength=64).double()


def program(cells, counts):
    share = pyro.sample("share", dist.Dirichlet(torch.ones(2)))
    with pyro.plate("kinds", 2):
        theta = pyro.sample("theta", normal_prior(ring, dtype=torch.float64))
    mixture = dist.MixtureSameFamily(dist.Categorical(share), HierarchicalLogLinear(ring, theta))
    with pyro.plate("cells", len(cells)), poutine.scale(scale=counts):
        pyro.sample("answers", mixture, obs=cells)


# %% [markdown]
# The label may also stay a site of the program, which Pyro enumerates. Then every person is a row of their own:
# `poutine.scale` around an enumerated label would be another model, in which all people of a cell are of one kind, and
# NUTS does not complain.


# %%
def with_labels(rows, counts):
    share = pyro.sample("share", dist.Dirichlet(torch.ones(2)))
    with pyro.plate("kinds", 2):
        theta = pyro.sample("theta", normal_prior(ring, dtype=torch.float64))
    with pyro.plate("people", len(rows)), poutine.scale(scale=counts):
        label = pyro.sample("kind", dist.Categorical(share), infer={"enumerate": "parallel"})
        pyro.sample("answers", HierarchicalLogLinear(ring, theta[label]), obs=rows)


def energy_gap(model, *args):
    """Difference of the potential between two points, which constants of the density do not touch."""
    _, potential, _, _ = initialize_model(model, model_args=args)
    first = {"share": torch.tensor([0.2]), "theta": true_theta}
    second = {"share": torch.tensor([-0.5]), "theta": true_theta.flip(1)}
    return float(potential(first) - potential(second))


gaps = {
    "summed out, 64 counts": energy_gap(program, cells, counts),
    "enumerated, one row a person": energy_gap(with_labels, rows, torch.ones(num_people)),
    "enumerated, 64 counts (another model)": energy_gap(with_labels, cells, counts),
}
gaps

# %% [markdown]
# ## Labels have no names
#
# Exchanging the kinds changes neither prior nor likelihood, so the posterior has two equal halves, and a chain sees the
# one it falls into. That is no failure to converge: after the kinds of every draw have been put in order, by the sum of
# their interactions, chains agree.

# %%
run = run_mcmc(
    RecordingNUTS(program, max_tree_depth=5, jit_compile=True, ignore_jit_warnings=True),  # twice as fast
    num_draws=250,
    burn_in=150,
    num_chains=2,
    seed=seed,
    model_args=(cells, counts),
    progress=False,
)
strength = run.samples["theta"] @ is_pair  # (chains, draws, kinds)
order = strength.argsort(-1, descending=True)
share = run.samples["share"].gather(-1, order)
theta = run.samples["theta"].gather(-2, order.unsqueeze(-1).expand_as(run.samples["theta"]))
draws = torch.cat([share[..., :1], theta.flatten(-2)], -1)  # (chains, draws, 25)
ordered = az.convert_to_dataset({"draws": draws.numpy()})
worst_r_hat = float(az.rhat(ordered)["draws"].max())
print(f"kinds exchanged in {[round(float(c), 2) for c in (order[..., 0] == 1).double().mean(1)]} of the draws by chain")
print(f"largest R-hat of the ordered draws: {worst_r_hat:.3f}, divergences: {run.num_divergences}")

# %% [markdown]
# ## The same answer by sums
#
# *Expectation maximisation* sums over labels too: in turn it shares out the 64 counts between the kinds and fits each
# share, and ends at a mode of the posterior. *Importance sampling* around that mode gives the moments of the posterior.
# Its density is spelled out with spins and a matrix, and shares no code with the program.

# %%


def expectation_maximisation(hypergraph, share, theta, tolerance=1e-7):
    """Mode of the posterior of shares and theta, by exact sums over labels."""
    tables = statistics_of(cells.unsqueeze(1), hypergraph)  # of every cell: (64, num_terms)
    previous = -math.inf
    while True:
        joint = HierarchicalLogLinear(hypergraph, theta).log_prob(cells[:, None]) + share.log()
        value = float(counts @ joint.logsumexp(1) - theta.square().sum() / 2)
        if value - previous < tolerance:
            return share, theta
        previous = value
        shared_out = counts.unsqueeze(1) * joint.softmax(1)  # (cells, kinds)
        share = shared_out.sum(0) / num_people
        theta = torch.stack([fit(hypergraph, tables.T @ column, penalty=L2(1.0)).theta for column in shared_out.T])


spins = (2 * cells.double() - 1) / math.sqrt(2)
features = torch.stack([spins[:, list(edge)].prod(1) for edge in ring.edge_indices])  # (12, cells)


def log_posterior(point):
    """Log density up to a constant at points (*batch, 25): share of the first kind, then both thetas."""
    shares = torch.stack([point[..., 0], 1 - point[..., 0]], -1)
    by_kind = (point[..., 1:].unflatten(-1, (2, -1)) @ features).log_softmax(-1)
    log_cells = (by_kind + shares.log().unsqueeze(-1)).logsumexp(-2)
    return log_cells @ counts - point[..., 1:].square().sum(-1) / 2


mode_share, mode_theta = expectation_maximisation(ring, torch.full((2,), 0.5), 0.3 * torch.stack([is_pair, -is_pair]))
mode = torch.cat([mode_share[:1], mode_theta.flatten()])
slope = torch.func.grad(log_posterior)(mode)
width = torch.linalg.cholesky(torch.linalg.inv(-torch.func.hessian(log_posterior)(mode)))
around = dist.MultivariateStudentT(10.0, mode, width)
points = around.sample((20_000,))
is_inside = (points[:, 0] > 0) & (points[:, 0] < 1)
points = points[is_inside]
weights = torch.cat([log_posterior(part) for part in points.split(2000)]) - around.log_prob(points)
weights = weights.softmax(0)
exact_mean = weights @ points
exact_sd = (weights @ (points - exact_mean).square()).sqrt()
exact_error = (weights.square() @ (points - exact_mean).square()).sqrt()
print(f"slope at the mode {float(slope.abs().max()):.1e}, {float(1 / weights.square().sum()):.0f} effective points")

mean, sd = draws.flatten(0, 1).mean(0), draws.flatten(0, 1).std(0)
chain_error = torch.as_tensor(az.mcse(ordered)["draws"].values)
apart = (mean - exact_mean).abs() / (chain_error.square() + exact_error.square()).sqrt()
print(f"NUTS and importance sampling: means at most {float(apart.max()):.1f} errors apart,")
print(f"standard deviations in a ratio of {float((sd / exact_sd).min()):.2f} to {float((sd / exact_sd).max()):.2f}")

# %% [markdown]
# ## Were the kinds found?
#
# The distance of the truth from the posterior, in units of its covariance, is about chi-square with 25 degrees of
# freedom. With the signs of the interactions exchanged it must be far too large.

# %%
truth = torch.cat([true_share[:1], true_theta.flatten()])
exchanged = torch.cat([true_share[:1], true_theta.flip(0).flatten()])
precision = torch.linalg.inv(((points - exact_mean).T * weights) @ (points - exact_mean))
distance, far_distance = (
    float((point - exact_mean) @ precision @ (point - exact_mean)) for point in (truth, exchanged)
)
limit = float(scipy.stats.chi2.isf(FALSE_ALARM_RATE, len(truth)))
print(f"distance {distance:.1f}, of the kinds exchanged {far_distance:.0f}, limit {limit:.0f}")

# %% [markdown]
# Who is of which kind? Averaged over draws, each cell has a probability. Nobody can do better than one who knows the
# true parameters, and that is not perfect either: some answers fit both kinds.


# %%
def assigned(share, theta):
    """Probability that a person of each cell is consistent, averaged over draws."""
    with torch.no_grad():
        joint = HierarchicalLogLinear(ring, theta).log_prob(cells[:, None, None]) + share.log()
    return joint.softmax(-1)[..., 0].mean(1)


some = slice(None, None, 4)
by_posterior = assigned(share.flatten(0, 1)[some], theta.flatten(0, 1)[some])
by_truth = assigned(true_share.unsqueeze(0), true_theta.unsqueeze(0))
cell_of = rows @ place
accuracy = {
    name: float(((probability[cell_of] > 0.5) == (kind == 0)).double().mean())
    for name, probability in {"posterior": by_posterior, "true parameters": by_truth}.items()
}
accuracy

# %% [markdown]
# ## Would less have done?
#
# Two kinds of independent answers (a latent class analysis), or one kind with all fifteen pairs: the divergence of the
# truth from each fit is a sum over 64 cells.

# %%
first_order, all_pairs = (InteractionHypergraph.from_order(domain, k) for k in (1, 2))
start = torch.randn(2, first_order.num_parameters)
classes_share, classes_theta = expectation_maximisation(first_order, torch.full((2,), 0.5), start)
one_kind = fit(all_pairs, statistics_of(rows, all_pairs), penalty=L2(1.0)).theta


def log_probs(hypergraph, share, theta):
    return (HierarchicalLogLinear(hypergraph, theta).log_prob(cells[:, None]) + share.log()).logsumexp(1)


log_truth = log_probs(ring, true_share, true_theta)
fitted = {
    "two kinds, rings": log_probs(ring, mode_share, mode_theta),
    "two kinds, independent": log_probs(first_order, classes_share, classes_theta),
    "one kind, all pairs": log_probs(all_pairs, torch.ones(1), one_kind.unsqueeze(0)),
}
divergence = {name: float(log_truth.exp() @ (log_truth - values)) for name, values in fitted.items()}
pd.Series(divergence, name="divergence in nats").to_frame().round(4)

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", width_ratios=[2, 1])
colors, labels = ("#2a6f97", "#b5562f"), ("consistent", "contrary")
names = ["".join(edge) for edge in ring.edges]
for k in range(2):
    low, high = theta[..., k, :].flatten(0, 1).quantile(torch.tensor([0.025, 0.975]), 0)
    at = torch.arange(len(names)) + 0.24 * k - 0.12
    axes[0].vlines(at, low, high, color=colors[k], linewidth=3, alpha=0.6, label=labels[k])
    axes[0].plot(at, mode_theta[k], "_", color=colors[k], markersize=9)
    axes[0].plot(at, true_theta[k], "k.", markersize=4, label="truth" if k else None)
axes[0].set(xticks=range(len(names)), xticklabels=names, ylabel="theta, 95 % interval")
axes[0].legend(frameon=False, ncols=3, loc="lower left")
axes[1].plot(by_truth, by_posterior, "o", color="#4a7a49", alpha=0.6)
axes[1].axline((0, 0), slope=1, color="#22303c", linewidth=0.8)
axes[1].set(xlabel="with the true parameters", ylabel="posterior", title="Pr(consistent | answers), by cell")
plt.show()

# %% [markdown]
# ## The claim, checked
#
# Limits on errors are those of a normal distribution at the false-alarm rate of all tests, $10^{-6}$.

# %%
errors = float(scipy.stats.norm.isf(FALSE_ALARM_RATE / 2 / len(truth)))
program_gap, label_gap, wrong_gap = gaps.values()
assert abs(program_gap - label_gap) < 1e-8 * abs(program_gap)
assert abs(wrong_gap - label_gap) > 10
assert worst_r_hat < 1.1
assert float(slope.abs().max()) < 0.1
assert float(apart.max()) < errors
assert 0.75 < float((sd / exact_sd).min()) < float((sd / exact_sd).max()) < 1.33
assert distance < limit < far_distance
assert accuracy["posterior"] > accuracy["true parameters"] - 0.03
assert divergence["two kinds, rings"] < 0.2 * min(list(divergence.values())[1:])
