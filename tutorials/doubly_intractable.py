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
# # A posterior without the normalising constant
#
# The likelihood of $N$ rows is $f(x \mid \theta) / Z(\theta)^N$. Where $Z$ is a sum over too many states, Metropolis
# and NUTS cannot form the ratio of two thetas. **Can the posterior be drawn from all the same, and exactly?**
#
# The exchange algorithm (Murray, Ghahramani and MacKay, 2006) proposes $\theta'$, draws a whole *auxiliary* data set
# $w$ of $N$ rows from the model at $\theta'$, and accepts with
#
# $$ r = \frac{\pi(\theta')}{\pi(\theta)} \cdot \frac{f(x \mid \theta')}{f(x \mid \theta)}
#        \cdot \frac{f(w \mid \theta)}{f(w \mid \theta')}. $$
#
# Every constant cancels: the data would rather be at $\theta'$, the auxiliary data at $\theta$, and the two exchange.
# Drawing $w$ is easier than computing $Z$, and the chain is exact where the draw is.

# %%
import math

import pyro
import pyro.distributions as dist
import torch

from pyro_hoim import AnnealedImportance, Domain, HierarchicalLogLinear, InteractionHypergraph, load_table
from pyro_hoim.errors import InputError
from pyro_hoim.inference import Exchange, NoisyExchange, NUTSSettings, log_linear_model, run_mcmc, sample_posterior
from pyro_hoim.log_linear import normal_prior, statistics_of

seed = 1
torch.set_num_threads(1)

# %% [markdown]
# ## Where the answer is known
#
# Six risk factors of 1,841 Czech car workers have 64 cells, so log Z is exact and NUTS is the yardstick. The program is
# an ordinary one. `run_mcmc` moves all chains of the kernel as one tensor: many short ones are what it is best at.

# %%
workers = load_table("czech_autoworkers")
pairs = InteractionHypergraph.from_order(workers.domain, 2)
counts = statistics_of(workers, pairs)
prior = normal_prior(pairs, dtype=torch.float64)
arguments = (pairs, prior, counts, workers.total_count)

run = run_mcmc(
    Exchange(log_linear_model), 150, burn_in=150, num_chains=200, seed=seed, model_args=arguments, progress=False
)
nuts = sample_posterior(pairs, workers, 1.0, NUTSSettings(2, 500, 100), seed=seed, progress=False)
exchanged = run.get_samples()["theta"]
spread = nuts.theta.flatten(0, 1).std(0)
away = (exchanged.mean(0) - nuts.theta.flatten(0, 1).mean(0)) / spread
float(away.abs().max()), float((exchanged.std(0) / spread).min()), float((exchanged.std(0) / spread).max())

# %% [markdown]
# `sample_stats` tells the acceptance of every draw and whether the kernel is exact, which it is here: a table of
# 1,841 rows is drawn from 64 cells without any Markov chain. Half of the noise in the ratio comes from $w$. *Bridges*
# (`num_bridges=K`) lead it from $\theta'$ back to $\theta$ over K distributions in between; each lowers the noise,
# costs one more draw, and leaves the chain exact. `NoisyExchange` averages over M auxiliary data sets instead: as
# cheap, and not exact, with an error of O(1 / M).

# %%
kernels = {
    "exchange": Exchange(log_linear_model),
    "3 bridges": Exchange(log_linear_model, num_bridges=3),
    "4 data sets": NoisyExchange(log_linear_model, 4),
    "autoregressive": Exchange(log_linear_model, proposal="autoregressive"),
}
moved = {}
for name, kernel in kernels.items():
    one = run_mcmc(kernel, 50, burn_in=100, num_chains=50, seed=seed, model_args=arguments, progress=False)
    step = one.samples["theta"].diff(dim=1) / spread
    moved[name] = float(step.square().sum(-1).mean())
    print(f"{name:15} exact {bool(one.sample_stats['is_exact'].all())!s:6} squared jump {moved[name]:.2f}")

# %% [markdown]
# ## What is not exact
#
# `AnnealedImportance` estimates $Z$ without bias. Putting $\hat Z^{-N}$ for $Z^{-N}$ into Metropolis looks like
# pseudo-marginal Monte Carlo, which is exact for unbiased estimates of the *likelihood*. But the mean of $\hat Z^{-N}$
# is not $Z^{-N}$: with a standard error $\sigma$ of $\log\hat Z$ it is too large by a factor of about
# $e^{N(N+1)\sigma^2/2}$, another one at every theta. So it is refused, in NUTS and here.

# %%
try:
    Exchange(log_linear_model, auxiliary=AnnealedImportance())
except InputError as error:
    refusal = str(error)
refusal

# %% [markdown]
# ## Where log Z is out of reach
#
# Thirty spins that all influence each other equally have $2^{30}$ states and no smaller elimination. (A sum over
# magnetisations gives log Z in this one case, which checks the answer.) There are no perfect draws, so every row of $w$
# is a Gibbs chain that starts at a row of the data and makes `num_sweeps` sweeps. `is_exact` is False then, and
# `check_sweeps` compares with twice as many.

# %%
num_spins, num_rows, truth = 30, 20, 0.6
spins = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * num_spins), 2)
is_pair = torch.tensor([len(edge) == 2 for edge in spins.edges], dtype=torch.float64)

ups = torch.arange(num_spins + 1, dtype=torch.float64)
products = ((2 * ups - num_spins) ** 2 - num_spins) / 2  # sum of s_i s_j over pairs
log_ways = torch.lgamma(torch.tensor(num_spins + 1.0)) - torch.lgamma(ups + 1) - torch.lgamma(num_spins - ups + 1)


def log_weights(strength):
    """Log weights of the numbers of spins that are up, for strengths (S,)."""
    return log_ways + strength.unsqueeze(-1) / num_spins * products


generator = torch.Generator().manual_seed(seed)
drawn = torch.multinomial(log_weights(torch.tensor([truth])).softmax(-1)[0], num_rows, True, generator=generator)
ranks = torch.rand(num_rows, num_spins, generator=generator).argsort(-1).argsort(-1)
rows = (ranks < drawn.unsqueeze(-1)).long()


def program():
    strength = pyro.sample("strength", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
    theta = strength.unsqueeze(-1) * is_pair * (2 / num_spins)  # a table of a pair holds half a coordinate
    with pyro.plate("rows", num_rows):
        pyro.sample("x", HierarchicalLogLinear(spins, theta), obs=rows)


kernel = Exchange(program, num_sweeps=20)
found = run_mcmc(kernel, 30, burn_in=30, num_chains=16, seed=seed, progress=False)
pyro.set_rng_seed(seed)
check = kernel.check_sweeps(found.get_samples(), num_proposals=200)
check

# %%
grid = torch.linspace(-3, 2, 2001, dtype=torch.float64)
log_density = grid / num_spins * products[rows.sum(-1)].sum() - num_rows * log_weights(grid).logsumexp(-1)
weight = (log_density - grid.square() / 2).softmax(0)
exact_mean = float(weight @ grid)
exact_sd = math.sqrt(float(weight @ grid.square()) - exact_mean**2)
strengths = found.samples["strength"]
error = float(strengths.mean(1).std()) / math.sqrt(len(strengths))
print(f"posterior mean {float(strengths.mean()):.3f} +- {error:.3f}, exact {exact_mean:.3f}, sd {exact_sd:.3f}")

# %% [markdown]
# ## What to remember
#
# * Ask `Exchange` for an exact posterior where draws are perfect; where they are not, run `check_sweeps` first.
# * Let chains be a dimension: a program costs a millisecond to run, for one chain or for five hundred.
# * Where log Z is exact NUTS remains the better choice for a few long chains, and needs no data sets at all. A table in
#   "Exact or approximate?" says which sampler to take where.

# %%
assert float(away.abs().max()) < 0.3
assert "no unbiased Z^-N" in refusal
assert min(moved["3 bridges"], moved["4 data sets"], moved["autoregressive"]) > moved["exchange"]
assert not found.sample_stats["is_exact"].any()
assert not check.is_changed
assert abs(float(strengths.mean()) - exact_mean) < 5 * error
