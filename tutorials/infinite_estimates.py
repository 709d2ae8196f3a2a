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
# # When does the maximum-likelihood estimate exist?
#
# No child was a member of the Titanic's crew. That is one empty cell in a two-way margin, and it has a consequence: a
# log-linear model that contains the interaction of class and age wants to give such people probability exactly zero,
# and no finite $\theta$ does. An optimiser that is not told so reports "converged" with large coefficients and
# standard errors that mean nothing.
#
# The question of this tutorial: **what does the fit say here, and what can be done?**

# %%
import warnings

import pyro
import torch
from pyro.infer import MCMC, NUTS

from pyro_hoim import (
    InteractionHypergraph,
    LogLinearStatistics,
    NonexistentEstimateWarning,
    fit,
    goodness_of_fit,
    load_table,
    normal_prior,
)

seed = 1
titanic = load_table("titanic")
pairs = InteractionHypergraph.from_order(titanic.domain, 2)
titanic.table().sum((1, 3))  # class by age: the crew has no children

# %% [markdown]
# ## The fit says so
#
# Before it starts, the fit decides by linear programming which cells every model of the family that explains the
# margins must leave empty. It then fits the others, and warns.

# %%
with warnings.catch_warnings(record=True, action="always") as caught:
    estimate = fit(pairs, titanic)

for warning in caught:
    print(warning.category.__name__, "-", warning.message)

print("status:", estimate.status)
print("offending:", *estimate.existence.offending, sep="\n  ")

# %% [markdown]
# The probabilities of the limit are well defined although $\theta$ is not: the fitted cells, and with them the
# deviance, are those of the limit. What changes is the count of degrees of freedom. Some of the 32 cells are fitted
# as zero and cannot disagree with the data. One parameter is lost with them. Both counts are reported.

# %%
test = goodness_of_fit(estimate)
print(f"G2 = {test.deviance:.3f}, df = {test.df} as the textbook counts, {test.df_adjusted} adjusted")
print("cells fitted zero:", estimate.existence.num_cells_zero)

# %% [markdown]
# ## What can be done: a prior
#
# With a proper prior the posterior is proper, whatever the zeros. A normal prior on the free coordinates says that an
# interaction of more than a few nats is implausible; the data pull the empty combination down, the prior stops it.

# %%
counts = titanic.marginal_counts(pairs.edges)


def program(counts):
    theta = pyro.sample("theta", normal_prior(pairs, scale=1.0, dtype=counts.dtype))
    pyro.sample("counts", LogLinearStatistics(pairs, theta, titanic.total_count), obs=counts)
    return theta


torch.set_num_threads(1)
pyro.set_rng_seed(seed)
kernel = NUTS(program, jit_compile=True, ignore_jit_warnings=True)  # traced once, which is faster
chain = MCMC(kernel, num_samples=200, warmup_steps=200, disable_progbar=True)
chain.run(counts)
theta = chain.get_samples()["theta"]

# %% [markdown]
# The probability of a child among the crew, draw by draw: small, positive, and uncertain.

# %%
from pyro_hoim import HierarchicalLogLinear

crew, child = titanic.domain["Class"].code("Crew"), titanic.domain["Age"].code("Child")
probability = HierarchicalLogLinear(pairs, theta).marginal(["Class", "Age"]).probs[:, crew, child]
low, middle, high = torch.quantile(probability, torch.tensor([0.05, 0.5, 0.95], dtype=probability.dtype)).tolist()
print(f"Pr(crew, child): median {middle:.1e}, 90 % interval {low:.1e} to {high:.1e}")

# %% [markdown]
# ## The claim, checked

# %%
assert [w.category for w in caught] == [NonexistentEstimateWarning]
assert estimate.status == "infinite"
assert str(estimate.existence.offending[0]) == "Class=Crew, Age=Child"
assert abs(test.deviance - 116.588) < 0.001
assert (test.df, test.df_adjusted) == (13, 10)
assert 0 < low < high < 0.005
