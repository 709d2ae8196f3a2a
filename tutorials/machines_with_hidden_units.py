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
# # Machines with hidden units
#
# A restricted Boltzmann machine ties the columns of a table by hidden units, each joined to all of them. **What has
# such a machine learned, how sure is its likelihood, and what may be said of its weights?** The data are 665 households
# of Rochdale, eight columns of two levels; the machine has three hidden units.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS

from pyro_hoim import AnnealedImportance, Domain, RestrictedBoltzmannMachine, load_table
from pyro_hoim.boltzmann import LearningOptions, effective_interactions, fit_machine
from pyro_hoim.interop import to_arviz
from pyro_hoim.runs import GibbsSchedule

rows = load_table("rochdale")
train, held = rows.split([0.7, 0.3], seed=1)

# %% [markdown]
# ## Three ways to learn
#
# Persistent chains and contrastive divergence step along an estimate of the gradient; with three hidden units the
# likelihood itself can be climbed, since log Z is a sum over $2^3$ states of the hidden layer.


# %%
def gain(law, part):
    """Mean log-likelihood above that of independent columns, in nats a row."""
    merged, alone = part.unique(), fit_machine(train, 0, LearningOptions("exact")).law
    each = law.log_prob(merged.codes) - alone.log_prob(merged.codes)
    return float((each * merged.counts).sum() / merged.total_count)


ways = {
    "pcd": LearningOptions("pcd", iterations=2500),
    "cd": LearningOptions("cd", iterations=2500),
    "exact": LearningOptions("exact", iterations=2000, decay=0.002),
}
found = {name: fit_machine(train, 3, options, validation=held, seed=2) for name, options in ways.items()}
for name, result in found.items():
    print(f"{name:6} gain on training rows {gain(result.law, train):.3f}, on the others {gain(result.law, held):.3f}")

# %%
figure, axes = plt.subplots(figsize=(6.5, 3))
for name, result in found.items():
    steps = np.array([entry[0] for entry in result.curve]) / result.iterations
    axes.plot(steps, [entry[2] for entry in result.curve], label=name)
axes.set(xlabel="share of the run", ylabel="log-likelihood of the rows held out (nats)")
axes.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# ## How sure is the likelihood?
#
# Here log Z is exact. Where both layers are large it is estimated by annealing all variables, layer after layer, and
# the estimate comes with an error and a verdict. On this machine the two can be compared.

# %%
law = found["exact"].law
backend = AnnealedImportance(num_chains=256, num_temperatures=300, seed=3, schedule=GibbsSchedule("colours"))
annealed = RestrictedBoltzmannMachine(law.domain, law.visible_bias, law.hidden_bias, law.weights, partition=backend)
exact, estimate = law.log_partition, annealed.log_partition
print(f"exact {float(exact.value):.4f}, annealed {float(estimate.value):.4f} +- {float(estimate.std_error):.4f}")
print(f"{estimate.verdict}, between {float(estimate.lower):.4f} and {float(estimate.upper):.4f}")

# %% [markdown]
# ## What has it learned?
#
# Weights are not identified: permuting the hidden units, or switching one over, gives the same distribution. What the
# units bring among the columns is: sum them out, and every set of columns has an interaction. With eight columns
# there are 247 of them, all tied to 24 weights.

# %%
interactions = effective_interactions(law, 8)
strongest = sorted((names for names in interactions if len(names) > 1), key=lambda s: -abs(interactions[s]))
for names in strongest[:6]:
    print(f"{interactions[names]:+.3f}  {' : '.join(names)}")
order = [2, 0, 1]
parts = law.weights[:, order].clone(), law.hidden_bias[order].clone(), law.visible_bias + law.weights[:, 0]
parts[0][:, 1] *= -1  # the unit that stands second now, switched over
parts[1][1] *= -1
other = RestrictedBoltzmannMachine(law.domain, parts[2], parts[1], parts[0])
same = effective_interactions(other, 8)
print("largest difference of an interaction:", max(abs(same[names] - interactions[names]) for names in same))

# %% [markdown]
# ## Priors on weights
#
# A machine is a Pyro site, so weights may have priors. With one hidden unit and positive weights the posterior has one
# mode left; without the sign it would have two, and $2^m m!$ with m units. Three columns suffice to show it.

# %%
small = train.project(["Education", "HusbandEducation", "Asian"])
merged = small.unique()
domain = Domain(merged.domain)


def program():
    b = pyro.sample("b", dist.Normal(torch.zeros(3), 2.0).to_event(1))
    c = pyro.sample("c", dist.Normal(torch.zeros(1), 2.0).to_event(1))
    w = pyro.sample("w", dist.HalfNormal(2 * torch.ones(3, 1)).to_event(2))
    machine = RestrictedBoltzmannMachine(domain, b, c, w)
    pyro.factor("rows", (machine.log_prob(merged.codes) * merged.counts).sum())


pyro.set_rng_seed(4)
mcmc = MCMC(NUTS(program, max_tree_depth=5), num_samples=80, warmup_steps=80, disable_progbar=True)
mcmc.run()
posterior = to_arviz(mcmc)
weights = mcmc.get_samples()["w"][..., 0]
print("posterior means of the weights:", weights.mean(0).numpy().round(2))

# %% [markdown]
# The last cell asserts what was said.

# %%
assert gain(found["exact"].law, train) > gain(found["pcd"].law, train)
assert all(gain(result.law, held) > 0.15 for result in found.values())
assert abs(float(estimate.value - exact.value)) < 5 * float(estimate.std_error)
assert float(estimate.lower) <= float(exact.value) <= float(estimate.upper)
assert len(strongest) == 247
assert max(abs(same[names] - interactions[names]) for names in same) < 1e-9
assert not torch.allclose(other.weights, law.weights)
assert posterior is not None
assert bool((weights > 0).all())
assert float(weights[:, :2].mean()) > 0.5
plt.close("all")
