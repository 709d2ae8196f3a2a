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
# # Which family do these sets define?
#
# A log-linear model is a sum of tables, one for every set of variables in a collection. When every subset of a set is
# in the collection, too, it does not matter how the tables are made unique: with a reference level (*corner* coding)
# or with fibres that sum to zero (*balanced* coding), the distributions are the same. When subsets are missing it
# does matter.
#
# Two questions of this tutorial: **what do three variables with a triple alone look like in either coding, and what is
# it to penalise one coding rather than the other?**

# %%
import pyro
import torch

from pyro_hoim import (
    HierarchicalLogLinear,
    InputError,
    InteractionHypergraph,
    LogLinearEnergy,
    Observations,
    fit,
    load_table,
)
from pyro_hoim.log_linear import L1, log_partition, parametrization

seed = 1
pyro.set_rng_seed(seed)
czech = load_table("czech_autoworkers")
domain = czech.domain.project(["smoke", "mental", "phys"])
triple = InteractionHypergraph(domain, [domain.names], hierarchical=False)
one = torch.ones(1, dtype=torch.float64)

balanced = HierarchicalLogLinear(triple, one)
corner = HierarchicalLogLinear(triple, one, coding="corner")
print("balanced", balanced.probs.flatten().numpy().round(3))
print("corner  ", corner.probs.flatten().numpy().round(3))

# %% [markdown]
# One parameter each, and two families. In the balanced one a state's probability depends on whether the number of
# variables at their first level is even; every pair of variables is independent. In the corner one the one state
# without a first level is more probable than all others, and every pair depends. The distribution says which family
# it belongs to, through its collection:

# %%
print(balanced.hypergraph, corner.hypergraph, sep="\n")
print(corner.condition({"phys": 1}).hypergraph)  # what is left of the triple is a pair
try:
    parametrization(corner.hypergraph).convert(one, "corner", "free")
except InputError as error:
    print(error)

# %% [markdown]
# A fit of that collection stays in its family; theta and its standard error are in corner coding.

# %%
rows = Observations(domain, corner.sample((2000,)))
estimate = fit(corner.hypergraph, rows)
other = fit(balanced.hypergraph, rows)
error = float(estimate.standard_errors()[0])
print(f"{estimate.coding} theta {float(estimate.theta[0]):.3f} +- {error:.3f}")
print(f"log-likelihood {estimate.log_likelihood:.1f}, of the balanced family {other.log_likelihood:.1f}")

# %% [markdown]
# As the error above says, the closure holds both: there corner theta becomes balanced tables of every subset.

# %%
lifted = LogLinearEnergy.from_theta(triple, one, "corner").on_closure()
whole = HierarchicalLogLinear.from_tables(lifted.hypergraph, lifted.tables)
for edge, table in (
    parametrization(whole.hypergraph).split(parametrization(whole.hypergraph).to_tables(whole.theta)).items()
):
    print(":".join(edge), table.flatten().numpy().round(3))

# %% [markdown]
# ## Log Z belongs to a coding
#
# Corner tables vanish at the state of first levels, so there log Z is all that is left: it is $\psi(\theta) = -\log
# p(0, \dots, 0)$. Balanced tables have mean zero over all states. One function gives either, of one distribution.

# %%
psi = log_partition(corner.energy_model, "corner")
mean = log_partition(corner.energy_model, "balanced")
print(float(psi.value), float(-corner.log_prob(torch.zeros(3))))
print(float(mean.value), float(-corner.log_prob_table.mean()))

# %% [markdown]
# ## A penalty belongs to a coding
#
# All pairs of the six variables of the Czech table are a hierarchical collection, one family. A lasso on its free
# coordinates and a lasso on its corner coordinates are still two problems, with other zeros. The result names the one
# that was solved, and `coefficients("corner")` holds what its solver found, exact zeros included.

# %%
pairs = InteractionHypergraph.from_order(czech.domain, 2)
found = {coding: fit(pairs, czech, penalty=L1(15.0, min_order=2, coding=coding)) for coding in ("free", "corner")}
for coding, result in found.items():
    theta = result.coefficients(coding)
    kept = [":".join(edge) for edge, where in pairs.parameter_slices.items() if len(edge) > 1 and theta[where] != 0]
    size = float(result.coefficients("corner")[6:].abs().sum())
    print(f"{result.penalty}: {len(kept)} of 15 pairs, corner l1 norm {size:.3f}")
    print("  ", ", ".join(kept))

# %% [markdown]
# What this tutorial claims, checked:

# %%
pair = balanced.marginal(["smoke", "mental"]).probs
assert torch.allclose(pair, torch.full((2, 2), 0.25, dtype=torch.float64))
assert not torch.allclose(corner.marginal(["smoke", "mental"]).probs, pair)
assert abs(float(estimate.theta[0]) - 1.0) < 4 * error
assert estimate.log_likelihood > other.log_likelihood + 50
assert torch.allclose(whole.probs, corner.probs)
assert torch.allclose(psi.value, -corner.log_prob(torch.zeros(3)))
assert torch.allclose(mean.value, -corner.log_prob_table.mean())


def penalised(result):
    """Problem (3.2) of paper 3: minus the log-likelihood plus the corner l1 norm of the pairs."""
    return -result.log_likelihood + 15.0 * float(result.coefficients("corner")[6:].abs().sum())


assert penalised(found["corner"]) < penalised(found["free"]) - 0.1
assert "coding='corner'" in repr(found["corner"])
