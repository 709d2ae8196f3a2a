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
# # The tensor view of higher orders
#
# A model of binary variables with interactions of up to K variables has one number for every set of up to K
# variables. **Can all of them be put into one object with which one can compute?** They are the entries of a
# symmetric tensor, of which a pair model's matrix is the simplest case. This page follows the figures and tables of
# Saffer, *Multivariate Models with Higher-Order Interactions* (2019).

# %%
# %matplotlib inline
import itertools

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import display

from pyro_hoim import HierarchicalLogLinear, InteractionHypergraph, fit
from pyro_hoim.datasets import load_table
from pyro_hoim.log_linear import (
    SymmetricInteractionTensor,
    latent_norm,
    multiplicity,
    num_interactions,
    slice_coefficient,
    subtensor_coefficient,
    tensor_layout,
)
from pyro_hoim.log_linear.constrained.losses import PseudoLikelihoodLoss

from studies.tensor_figures import ball_figure, slices_figure, symmetric_ball_figure, triangle_figure

seed = 1
torch.set_num_threads(1)

# %% [markdown]
# ## Pairs: a matrix
#
# Ten thousand rows of three features (the paper's table 1.2), fitted by pseudo-likelihood. Off the diagonal an entry
# of the matrix is half a parameter, because the sum over all entries visits every pair twice:

# %%
data = load_table("three_features")
pairs = InteractionHypergraph.from_order(data.domain, 2)
result = fit(pairs, data, objective="pseudo-likelihood")
matrix = SymmetricInteractionTensor.from_law(HierarchicalLogLinear(pairs, result.theta))
print(matrix.dense.numpy().round(4))
printed = np.array([-3.6605, 1.4626, 0.7821, -0.4238, 1.1982, -0.8032])
print("largest difference from the print:", f"{np.abs(matrix.entries.numpy() - printed).max():.1e}")

observed = data.table().flatten() / data.total_count
fitted = matrix.law().log_prob_table.exp().flatten()
for state, p, q in zip(itertools.product((0, 1), repeat=3), observed, fitted, strict=True):
    print(state, f"observed {float(p):.4f}  model {float(q):.4f}")

# %% [markdown]
# The thesis minimised this pseudo-likelihood with general optimisers of PyTorch, above all Adam (section 4.6). The
# logits of a tensor are differentiable in its parameters, so that any of them can be used. With steps that get shorter
# Adam comes to the minimum that is computed above, and the printed numbers are a point just short of it:

# %%
states = torch.tensor(list(itertools.product((0, 1), repeat=3)))
theta = torch.zeros(6, dtype=torch.float64, requires_grad=True)
adam = torch.optim.Adam([theta], lr=0.3)
shorter = torch.optim.lr_scheduler.ExponentialLR(adam, 0.997)
for _ in range(2000):
    adam.zero_grad()
    logits = SymmetricInteractionTensor(theta, 3, 2).node_logits(states)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, states.double(), reduction="none")
    (losses.sum(1) @ observed).backward()
    adam.step()
    shorter.step()
by_adam = SymmetricInteractionTensor(theta.detach(), 3, 2).entries
print("Adam:", by_adam.numpy().round(4))
print("less the minimum:", f"{float((by_adam - matrix.entries).abs().max()):.1e}")

# %% [markdown]
# ## More orders, more entries
#
# How many parameters a model of order K over n variables has (table 1.1); the last number of a row is that of all
# distributions:

# %%
for n in range(2, 7):
    print(f"n = {n}:", *[num_interactions(n, order) for order in range(2, n + 1)])

# %% [markdown]
# In a tensor of order three an entry belongs to the *set* of its indices, so $q_{112} = q_{122}$. What concerns one
# variable is three slices, one along every axis (figures 2.1 to 2.3). They overlap, orange where two of them meet and
# violet where all three do:

# %%
display(slices_figure(num_variables=4, variable=1))

# %% [markdown]
# ## How often an interaction stands in the tensor
#
# A set of m variables fills $\tau_{K,m}$ entries of a tensor of order K, of which $\psi_{K,m}$ are in one slice
# (figures 2.4 and 2.5, where 32 is printed for 31):

# %%
display(triangle_figure(multiplicity, symbol=r"\tau_{K,m}"))
display(triangle_figure(subtensor_coefficient, symbol=r"\psi_{K,m}"))

# %% [markdown]
# The log odds of a variable given the others add up slices with signs that undo the overlaps, $\pi_{K,m}$: inclusion
# and exclusion (figure 2.6).

# %%
display(triangle_figure(slice_coefficient, symbol=r"\pi_{K,m}"))

generator = torch.Generator().manual_seed(seed)
layout = tensor_layout(6, 4)
tensor = SymmetricInteractionTensor(torch.randn(layout.num_parameters, dtype=torch.float64, generator=generator), 6, 4)
states = torch.tensor(list(itertools.product((0, 1), repeat=6)))
difference = (tensor.node_logits(states, "standard") - tensor.node_logits(states, "slice")).abs().max()
print(f"{tensor}: both representations agree to {float(difference):.1e} nats")

# %% [markdown]
# ## What makes a tensor simple: few entries
#
# The l1 norm of the tensor is that of its parameters. In a ball of this norm the minimum of a loss tends to lie on a
# corner, where entries are zero (figure 3.1; here the pair and one main effect of the first and the third feature,
# the other main effect held at its estimate):

# %%
two_features = data.project(["X", "Z"])
loss = PseudoLikelihoodLoss(two_features, 2)
two = fit(loss.hypergraph, two_features, objective="pseudo-likelihood")
estimate = two.coefficients("corner").numpy()


def value(points):
    flat = np.reshape(points, (-1, 2))
    values = [loss.value(np.array([estimate[0], main, pair])) for main, pair in flat]
    return np.reshape(values, np.shape(points)[:-1])


radius = 1.0
edge = np.linspace(-radius, radius, 801)
rim = np.concatenate([np.stack([edge, sign * (radius - np.abs(edge))], 1) for sign in (1, -1)])
best = rim[value(rim).argmin()]
print("in the ball:", best.round(3), " free:", estimate[1:].round(3))
display(ball_figure(value, estimate[1:], best, radius))

# %% [markdown]
# Symmetry cuts the ball, and moves its corners inwards: a corner is one set of variables, which shares the radius
# among its entries (figure 4.1).

# %%
display(symmetric_ball_figure())

# %% [markdown]
# ## What makes a tensor simple: low rank
#
# Unfolded along any axis a strongly symmetric tensor gives the same matrix. Its nuclear norm, once per axis, is the
# *overlapped* norm. The *latent* norm may cut the tensor into one part per axis. The thesis holds the two to be the
# same but for a factor K, as they are if all parts are symmetric. Parts without symmetry do better, and a dual tensor
# certifies how much:

# %%
cubic = SymmetricInteractionTensor(torch.randn(14, dtype=torch.float64, generator=generator), 4, 3)
only_main = torch.zeros(14, dtype=torch.float64)
only_main[:4] = torch.randn(4, dtype=torch.float64, generator=generator)
diagonal = SymmetricInteractionTensor(only_main, 4, 3)
for name, each in (("random", cubic), ("diagonal", diagonal)):
    norm = latent_norm(each.dense)
    overlapped = float(each.overlapped_norm()) / 3
    print(f"{name}: overlapped / 3 = {overlapped:.5f}, latent from {norm.lower:.5f} to {norm.upper:.5f}")

# %% [markdown]
# ## What this page claims

# %%
assert np.abs(matrix.entries.numpy() - printed).max() < 1e-3
assert float((by_adam - matrix.entries).abs().max()) < 1e-5
assert float(difference) < 1e-12
assert [num_interactions(6, order) for order in range(2, 7)] == [21, 41, 56, 62, 63]
assert subtensor_coefficient(6, 2) == 31
assert 3 * latent_norm(cubic.dense).upper < 0.995 * float(cubic.overlapped_norm())
assert abs(3 * latent_norm(diagonal.dense).lower - float(diagonal.overlapped_norm())) < 1e-5
assert abs(best[0]) < 1e-12  # a corner of the ball
plt.close("all")
