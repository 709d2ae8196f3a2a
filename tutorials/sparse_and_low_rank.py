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
# # Sparse and low-rank interactions by Frank-Wolfe
#
# A model of all interactions of up to K binary variables is a strongly symmetric tensor, and has too many parameters
# for most tables. Two things may hold the tensor back: **few entries** (a ball of the l1 norm), or **few directions**
# (a ball of the nuclear norm of its unfolding). Frank-Wolfe needs no projection, only the vertex of the ball against
# which the gradient is steepest, and every step tells how far the loss can still fall.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

from pyro_hoim import Domain, Observations
from pyro_hoim.datasets import load_classic3, load_table
from pyro_hoim.log_linear import (
    Ball,
    L1Norm,
    NormPenalty,
    NuclearNorm,
    OverlappedNorm,
    PseudoLikelihoodLoss,
    Stopping,
    douglas_rachford,
    frank_wolfe,
    penalty_grid,
    solution_path,
)

torch.set_num_threads(1)

# %% [markdown]
# ## A small table
#
# The 10,000 rows of table 1.2 of the paper, three variables. Without a bound its program found the singles -3.6605,
# 1.4626, 0.7821 and half-couplings of pairs -0.4238, 1.1982, -0.8032; a ball that holds the optimum gives it again.

# %%
domain = Domain.from_cardinalities({"x": 2, "y": 2, "z": 2})
small = Observations.from_table(domain, [[[983, 2105], [4172, 1849]], [[11, 612], [60, 208]]])
loss = PseudoLikelihoodLoss(small, 2)
whole = frank_wolfe(loss, Ball(L1Norm(), 20.0), stopping=Stopping(1e-12))
entries = whole.theta.numpy() / [1, 1, 1, 2, 2, 2]
assert np.abs(entries - [-3.6605, 1.4626, 0.7821, -0.4238, 1.1982, -0.8032]).max() < 1e-3
print(entries.round(4))

# %% [markdown]
# In a ball of radius 3 the solution is another one. The plain algorithm takes steps of $2 / (i + 2)$ towards vertices;
# its gap falls as $1 / i$. Steps from one vertex to another make it fall linearly, and corrected steps are few.

# %%
ball = Ball(L1Norm(), 3.0)
ways = {
    "steps 2 / (i + 2)": {"method": "standard", "step": "diminishing"},
    "best steps": {"method": "standard"},
    "pairwise steps": {"method": "pairwise"},
    "corrected": {"method": "fully-corrective"},
}
runs = {name: frank_wolfe(loss, ball, stopping=Stopping(1e-10, 300), **way) for name, way in ways.items()}
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name, run in runs.items():
    gaps = np.minimum.accumulate(run.trace[:, 1])
    axes.loglog(np.arange(1, len(gaps) + 1), np.maximum(gaps, 1e-12), label=name)
axes.set(xlabel="iteration", ylabel="smallest duality gap so far, nats per row")
axes.legend()
plt.show()

best = runs["corrected"].loss
assert runs["corrected"].status == "converged"
for run in runs.values():
    assert run.loss - best <= run.gap + 1e-12  # the gap is never below the error
    assert ball.contains(run.theta.numpy())

# %% [markdown]
# ## Few entries: six risk factors
#
# The table of 1,841 men in a Czechoslovak car factory has six binary columns, and 41 parameters up to order 3. The
# strength of the penalty is chosen by rows that were held out.

# %%
train, held = load_table("czech_autoworkers").split([0.7, 0.3], seed=0)
loss, judge = PseudoLikelihoodLoss(train, 3), PseudoLikelihoodLoss(held, 3)
path = solution_path(loss, judge, {"sparse": penalty_grid(loss, L1Norm(), 12, 0.005)})
path.figure()

# %%
path.to_frame()[["sparse_strength", "num_parameters", "loss", "held_out", "is_best"]].round(4)

# %%
chosen = path.best
order = np.argsort(-np.abs(chosen.theta.numpy()))
for k in order[:8]:
    print(" x ".join(loss.hypergraph.edges[k]), round(float(chosen.theta[k]), 2))
pairs = [k for k in order if len(loss.hypergraph.edges[k]) == 2]
assert set(loss.hypergraph.edges[pairs[0]]) == {"mental", "phys"}  # strenuous work is rarely both
assert all(result.status == "converged" for result in path.results)
assert 0 < int((chosen.theta != 0).sum()) < loss.num_parameters

# %% [markdown]
# ## Few directions: words of three collections
#
# Whether each of 24 words stands in an abstract, for 3,893 abstracts of library science, aeronautics and medicine. For
# pairs the tensor is a symmetric matrix, a vertex of the ball is plus or minus the outer square of a unit vector, and
# the steepest vertex is an eigenvector of the gradient.

# %%
counts = load_classic3(columns=24)
present = torch.from_numpy((counts.to_array() > 0).astype(np.int64))
shuffled = present[torch.randperm(len(present), generator=torch.Generator().manual_seed(0))]


def losses(columns, order):
    """Loss of 2,000 abstracts and of the others."""
    domain = Domain.from_cardinalities({counts.domain.names[k]: 2 for k in columns})
    parts = shuffled[:, columns].split([2000, len(shuffled) - 2000])
    return [PseudoLikelihoodLoss(Observations.from_tensor(part, domain), order) for part in parts]


loss, judge = losses(list(range(24)), 2)
paths = {
    "few entries": solution_path(loss, judge, {"sparse": penalty_grid(loss, L1Norm(), 8, 0.003)}),
    "low rank": solution_path(loss, judge, {"low_rank": penalty_grid(loss, NuclearNorm(), 8, 0.003)}),
}
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name, path in paths.items():
    axes.plot([result.loss for result in path.results], path.held_out, "o-", label=name)
axes.set(xlabel="loss of training rows, nats per row", ylabel="loss of held-out rows, nats per row")
axes.legend()
plt.show()
print({name: round(min(path.held_out), 3) for name, path in paths.items()})
assert all(result.status == "converged" for path in paths.values() for result in path.results)
assert min(paths["few entries"].held_out) < min(paths["low rank"].held_out)

# %% [markdown]
# On these rows few entries do better: words are rare, so every one needs an entry of its own on the diagonal, and a
# diagonal is what a low rank cannot have. The paper's answer is a sum of both parts.
#
# ## Both parts, with triples
#
# From order 3 on the vertices of the low-rank ball are not known, and the paper leaves the problem open (4.3.2).
# `douglas_rachford` splits it: the unfolding is thresholded, theta stays strongly symmetric, and a lower bound of the
# minimum comes with every iteration. Eight words, several strengths of the low-rank part, one of the sparse part:

# %%
names = ["flow", "information", "pressure", "library", "boundary", "layer", "system", "mach"]
loss, judge = losses([counts.domain.names.index(name) for name in names], 3)
norm, found = OverlappedNorm(loss.hypergraph), []
for strength in (0.006, 0.004, 0.003, 0.002, 0.0014, 0.0008):
    terms = {"low_rank": NormPenalty(norm, strength), "sparse": NormPenalty(L1Norm(), 0.002)}
    found.append(douglas_rachford(loss, terms, start=found[-1] if found else None, stopping=Stopping(1e-6)))
held_out = [judge.value(result.theta.numpy()) for result in found]
for result, value in zip(found, held_out, strict=True):
    strength, num = result.terms["low_rank"].strength, int((result.parts["sparse"] != 0).sum())
    print(f"{strength:.4f}: rank {result.rank}, {num} sparse entries, held-out {value:.4f}, gap {result.gap:.1e}")
assert all(result.status == "converged" and result.gap <= 1e-6 * result.objective for result in found)
assert found[0].rank == 0
assert min(held_out) < held_out[0]  # a low-rank part helps beside the sparse one

# %% [markdown]
# The best strength of these leaves the low-rank part all eight directions, shrunk but not cut: held-out rows ask for
# good predictions, not for a small rank. Words of one subject stand out in its leading vectors.

# %%
best = found[int(np.argmin(held_out))]
singular = np.linalg.svd(norm.unfolding.matrix(best.parts["low_rank"].numpy()))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.bar(range(1, 9), singular[1])
left.set(xlabel="number", ylabel="singular value of one unfolding, nats", title="low-rank part")
scale = np.abs(singular[0][:, :3]).max()
right.imshow(singular[0][:, :3], cmap="RdBu", vmin=-scale, vmax=scale, aspect="auto")
right.set(
    yticks=range(8), yticklabels=names, xticks=range(3), xticklabels=["1", "2", "3"], title="left singular vectors"
)
plt.show()

leading = [names[k] for k in np.argsort(-np.abs(singular[0][:, 0]))[:2]]
assert set(leading) == {"layer", "mach"}
