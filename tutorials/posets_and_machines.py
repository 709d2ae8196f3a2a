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
# # Orders, coordinates and machines
#
# Sets of variables are ordered by inclusion, and the interactions of a model are a distribution's coordinates along
# that order. **What does this view give that tables of parameters do not?** Coordinates that any order has,
# projections that split a divergence like the sides of a right triangle, and with them the error of an estimate in
# two parts: what its family cannot say, and what the rows did not. It follows Luo and Sugiyama, *Bias-Variance
# Trade-Off in Hierarchical Probabilistic Models Using Higher-Order Feature Interactions* (2019).

# %%
# %matplotlib inline
import math

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch.distributions import kl_divergence

from pyro_hoim import Observations
from pyro_hoim.datasets import load_table
from pyro_hoim.information import bias_variance
from pyro_hoim.log_linear import (
    MachineTraining,
    Poset,
    PosetLaw,
    e_projection,
    gradient_steps,
    hasse_figure,
    log_partition,
    m_projection,
    train_machine,
)

from studies.random_laws import random_uniform_law

seed = 1
torch.set_num_threads(1)

# %% [markdown]
# ## Any order will do
#
# The divisors of 60, ordered by divisibility. A sum over everything below an element is the zeta transform, and its
# inverse, the Moebius transform, takes sums apart again. Numbers up to n fall apart by their common divisor with n, so
# the inverse of n itself is Euler's totient: how many numbers up to n have no divisor in common with it.

# %%
divisors = Poset.divisibility([n for n in range(1, 61) if 60 % n == 0])
totients = divisors.differences(torch.tensor(divisors.elements, dtype=torch.float64))
print(dict(zip(divisors.elements, totients.int().tolist(), strict=True)))
display(hasse_figure(divisors))

# %% [markdown]
# A distribution on the divisors has coordinates along the order: theta adds up from below to log-probabilities,
# probabilities add up from above to eta. Each is the gradient of a potential in the other.

# %%
theta = 0.5 * torch.randn(len(divisors) - 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
law = PosetLaw(divisors, theta)
back = PosetLaw.from_eta(divisors, law.eta).theta
print("theta to eta and back:", f"{float((back - theta).abs().max()):.0e}", " psi:", round(float(law.log_partition), 4))

# %% [markdown]
# ## Two projections, two right angles
#
# Keep theta on a collection B only, and choose it so that eta on B stays: that is the maximum-likelihood estimate,
# the closest distribution without other interactions. The divergence to any further distribution of that kind is then
# a sum. The other projection changes eta on B to what is wanted and leaves theta elsewhere alone.

# %%
collection = [2, 3, 12]
closest = m_projection(divisors, law.probs, collection)
other = gradient_steps(divisors, collection, torch.tensor([0.5, 0.3, 0.1], dtype=torch.float64), num_iterations=20)
whole = torch.zeros(len(divisors) - 1, dtype=torch.float64)
whole[divisors.indices(collection) - 1] = other
member = PosetLaw(divisors, whole)
sides = kl_divergence(law, closest.law), kl_divergence(closest.law, member)
print("D(p; q) + D(q; r) =", round(float(sum(sides)), 6), "  D(p; r) =", round(float(kl_divergence(law, member)), 6))

wanted = torch.tensor([0.8, 0.4, 0.2], dtype=torch.float64)
moved = e_projection(law, collection, wanted)
places = divisors.indices(collection) - 1
print("eta on the collection:", moved.law.eta[places].tolist())

# %% [markdown]
# ## Machines: subsets of variables
#
# Six risk factors of 1,841 car workers. The order is now that of all 64 subsets, a Boltzmann machine has weights on
# some of them, and nothing asks for closed collections: here all single factors, one pair and one triple without its
# pairs. (For a picture that can be read, the first four factors.)

# %%
workers = load_table("czech_autoworkers")
names = workers.domain.names
sets = [*((name,) for name in names), names[:2], names[1:4]]
small = Poset.boolean_lattice(names[:4])
display(hasse_figure(small, members=[s for s in sets if set(s) <= set(names[:4])]))

machine = train_machine(workers, sets, method="newton")
for edge, weight in zip(machine.hypergraph.edges, machine.theta.tolist(), strict=True):
    print(f"{':'.join(edge):>18} {weight:7.3f}")

# %% [markdown]
# The paper makes plain steps along the gradient, eta of the data less eta of the machine. The second is exact here, by
# transforms of 64 numbers, or counted in Gibbs samples, with log Z by annealed importance sampling from
# $\log Z_0 = n \log 2$:

# %%
steps = MachineTraining(num_iterations=500, num_chains=2000, num_temperatures=300, learning_rate=0.5, seed=seed)
exact = train_machine(workers, sets, training=steps)
sampled = train_machine(workers, sets, method="gibbs", training=steps)
print("largest difference of weights:", round(float((exact.theta - sampled.theta).abs().max()), 3))
annealed = sampled.log_partition
psi = float(log_partition(sampled.law.energy_model, "corner").value)
print(f"log Z of the second: {float(annealed.value):.4f} annealed ({annealed.verdict}), {psi:.4f} by summing")

# %% [markdown]
# ## The error of an estimate, in two parts
#
# A distribution whose 64 probabilities are uniform numbers, divided by their sum, and machines of every order from
# data sets of 1,000 rows. Bias is the divergence to the closest machine, variance that from it to the estimate, and
# together they are the error, exactly. The number of parameters over twice the number of rows is what variance is
# near when the distribution is close to the family and rows are many.

# %%
generator = torch.Generator().manual_seed(seed)
truth = random_uniform_law(workers.domain, generator=generator)
lattice = Poset.boolean_lattice(workers.domain)
num_rows, num_sets = 1000, 24
draws = torch.multinomial(truth.probs.reshape(-1), num_rows * num_sets, replacement=True, generator=generator)
counts = torch.stack([torch.bincount(part, minlength=64) for part in draws.reshape(num_sets, num_rows)]).double()
bias, variance, remainder = {}, {}, {}
for order in range(1, 6):
    members = lattice.up_to(order)
    projection = m_projection(lattice, truth.probs.reshape(-1), members)
    fits = torch.stack([m_projection(lattice, one, members).probs for one in counts])
    result = bias_variance(truth.probs.reshape(-1).log(), projection.probs.log(), fits.log())
    bias[order], variance[order] = float(result.bias), result.average("variance")
    remainder[order] = float(result.remainder.abs().max())
    print(
        f"order {order}, {len(members):2} weights: bias {bias[order]:.4f}, variance {variance[order].mean:.4f} "
        f"(s.e. {variance[order].std_error:.4f}), weights / 2N {len(members) / (2 * num_rows):.4f}"
    )

# %% [markdown]
# More weights cannot raise the bias, since every family holds the one before. With 62 weights the mean is infinite:
# a thousand rows over 64 states leave a state out now and then, as the next section shows.
#
# ## Where the variance is infinite
#
# Fifteen rows leave some pair of factors without any that has both. The estimate of order two is then a limit that
# excludes states, and its variance infinite, as is its expectation at any number of rows. An estimate after finitely
# many steps is positive; its variance depends on how many there were.

# %%
few = counts.new_zeros(64)
few.index_add_(0, draws[:15], torch.ones(15, dtype=torch.float64))
members = lattice.up_to(2)
projection = m_projection(lattice, truth.probs.reshape(-1), members)
limit = m_projection(lattice, few, members)
table = few.reshape(workers.domain.cardinalities)
after = {
    num: train_machine(Observations.from_table(workers.domain, table), 2, training=MachineTraining(num_iterations=num))
    for num in (100, 1000, 10_000)
}
probs = torch.stack([limit.probs, *(found.law.probs.reshape(-1) for found in after.values())])
stopped = bias_variance(truth.probs.reshape(-1).log(), projection.probs.log(), probs.log())
print("variance of the limit, and after 100, 1,000 and 10,000 steps:", [round(float(v), 2) for v in stopped.variance])
print(stopped.note)

# %% [markdown]
# ## What this page claims

# %%
assert totients.tolist() == [sum(math.gcd(k, n) == 1 for k in range(1, n + 1)) for n in divisors.elements]
assert float((back - theta).abs().max()) < 1e-10
assert abs(float(sum(sides) - kl_divergence(law, member))) < 1e-10
assert float((moved.law.eta[places] - wanted).abs().max()) < 1e-10
assert float((exact.theta - sampled.theta).abs().max()) < 0.2
assert abs(float(annealed.value) - psi) < 0.01
assert max(remainder.values()) < 1e-8
assert all(bias[order + 1] < bias[order] for order in range(1, 5))
assert limit.is_attained is False
assert stopped.num_infinite == 1
assert bool(stopped.variance[1:].isfinite().all())
assert bool((stopped.variance[2:] > stopped.variance[1:-1]).all())
plt.close("all")
