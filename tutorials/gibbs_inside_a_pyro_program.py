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
# # Gibbs inside a Pyro program
#
# A picture of 100 black and white pixels was sent over a noisy line. Nobody knows how strong the noise was, which
# voltages stood for black and white, or how much neighbouring pixels tend to be alike. **What was the picture?**
#
# The unknowns are of two kinds: four numbers, for which NUTS is made, and 100 pixels with $2^{100}$ joint values,
# which can neither be differentiated nor enumerated. `MixedGibbs` draws each kind by the method that suits it, in one
# kernel: pixels by Gibbs given the numbers, numbers by NUTS given the pixels.

# %%
import arviz as az
import matplotlib.pyplot as plt
import pyro
import pyro.distributions as dist
import torch

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, MixedGibbs, run_mcmc, to_arviz
from pyro_hoim.runs import GibbsSchedule

seed = 1
torch.set_num_threads(1)

drawing = """
..........
....##....
...####...
..######..
.########.
..######..
..######..
..######..
..######..
..........
"""
picture = torch.tensor([[float(c == "#") for c in line] for line in drawing.split()])
size = len(picture)
true_voltage, true_noise = torch.tensor([1.0, 2.0]), 0.7
generator = torch.Generator().manual_seed(seed)
received = true_voltage[picture.long()] + true_noise * torch.randn(size, size, generator=generator)

# %% [markdown]
# ## The program
#
# The prior of the picture is a log-linear distribution with one interaction for every pair of neighbours and a common
# strength, an Ising model. Its strength is unknown, so NUTS needs the normalising constant and its gradient: on a 10
# by 10 grid both are exact, by elimination. The Gibbs moves of the pixels never need it.
#
# Black is defined as the higher voltage. Without that, a picture and its negative would be equally probable and no
# chain could be trusted to find both.

# %%
names = [f"r{i}c{j}" for i in range(size) for j in range(size)]
below = [(f"r{i}c{j}", f"r{i + 1}c{j}") for i in range(size - 1) for j in range(size)]
right = [(f"r{i}c{j}", f"r{i}c{j + 1}") for i in range(size) for j in range(size - 1)]
grid = InteractionHypergraph(Domain.from_cardinalities(dict.fromkeys(names, 2)), below + right, closure=True)
is_pair = torch.tensor([float(len(edge) == 2) for edge in grid.edges])


def program(received):
    likeness = pyro.sample("likeness", dist.HalfNormal(0.5))
    noise = pyro.sample("noise", dist.LogNormal(-0.5, 0.5))
    white = pyro.sample("white", dist.Normal(1.0, 1.0))
    contrast = pyro.sample("contrast", dist.LogNormal(0.0, 0.3))
    pixels = pyro.sample("pixels", HierarchicalLogLinear(grid, likeness * is_pair))
    with pyro.plate("positions", size * size):
        pyro.sample("received", dist.Normal(white + contrast * pixels, noise), obs=received.flatten())


# %% [markdown]
# ## The kernel
#
# Single pixels inside a black area rarely turn white alone. Blocks of half a row, 32 joint states each, are drawn
# from their exact conditional distribution instead. `run_mcmc` keeps the pixels as integers.
#
# A chain that starts from random pixels may begin by explaining everything as noise around one colour, and a Gibbs
# sampler leaves such a state slowly. So both chains start from a rough guess: dark where the voltage is above average.

# %%
half = size // 2
blocks = [names[first : first + half] for first in range(0, size * size, half)]
kernel = MixedGibbs(program, {"max_tree_depth": 3}, schedule=GibbsSchedule(blocks))
guess = (received > received.mean()).float().flatten()
run = run_mcmc(
    kernel,
    num_draws=80,
    burn_in=50,
    num_chains=2,
    seed=seed,
    model_args=(received,),
    initial_params={"pixels": guess.expand(2, -1)},
    progress=False,
)

print("evaluation:", kernel.evaluation)
print("pixels:", tuple(run.samples["pixels"].shape), run.samples["pixels"].dtype)
print("divergences:", run.num_divergences)
moved = [round(chain["pixels"], 2) for chain in run.diagnostics()["moved"].values()]
print("share of pixels that change per transition, by chain:", moved)

# %% [markdown]
# All 32 values of a block are tried in one run of the program. The kernel found out by itself that this is allowed, by
# comparing it with one run per value.
#
# ## A slow and a fast spelling
#
# It is allowed where values stay in tensors and the program lets a new leftmost dimension pass. The two programs below
# are the same model. The first takes a value out of the tensors (`.item()`), so the kernel cannot know what another
# value would have changed, and runs the program once for every row and value. The logger `pyro_hoim` says so once, and
# `evaluation_reasons` keeps the sentence.
#
# | slow | fast |
# |---|---|
# | `if gate.item() > 0: ... else: ...`, `float(z)` | `torch.where(gate > 0, ..., ...)`, indexing, masks |
# | `loc[0] = z` | `torch.stack([z, ...], -1)` |
# | `x[0]`, `x.view(3)` | `x[..., 0]`, `x.unflatten(-1, ...)` |
# | `x.sum()`, `x.sum(-1)` over a plate | `x.sum(-1, keepdim=True)` |
# | rows without a plate, or used outside it | `with pyro.plate(...)` around all that depends on a row |

# %%
voltages = torch.tensor([0.9, 2.1, 1.9])


def slow(voltages):
    is_inverted = pyro.sample("is_inverted", dist.Bernoulli(0.5))
    with pyro.plate("rows", len(voltages)):
        bit = pyro.sample("bit", dist.Bernoulli(0.5))
        loc = 2 - bit if is_inverted.item() else 1 + bit
        pyro.sample("voltage", dist.Normal(loc, 0.3), obs=voltages)


def fast(voltages):
    is_inverted = pyro.sample("is_inverted", dist.Bernoulli(0.5))
    with pyro.plate("rows", len(voltages)):
        bit = pyro.sample("bit", dist.Bernoulli(0.5))
        loc = torch.where(is_inverted > 0, 2 - bit, 1 + bit)
        pyro.sample("voltage", dist.Normal(loc, 0.3), obs=voltages)


spelling = {}
for spelled in (slow, fast):
    spelling[spelled] = MixedGibbs(spelled)
    run_mcmc(spelling[spelled], num_draws=5, num_chains=1, seed=seed, model_args=(voltages,), progress=False)
    print(f"{spelled.__name__}:", spelling[spelled].evaluation)
print(spelling[slow].evaluation_reasons["bit"])

# %%
summary = az.summary(to_arviz(run), var_names=["likeness", "noise", "white", "contrast"], kind="all", round_to=2)
summary

# %% [markdown]
# ## The picture
#
# Thresholding the received values halfway between the true voltages is the best one can do pixel by pixel, and it
# would have to be told the voltages. The posterior has to find them, but it knows that neighbours are alike.

# %%
probability = run.get_samples()["pixels"].double().mean(0).reshape(size, size)
restored = (probability > 0.5).float()
thresholded = (received > true_voltage.mean()).float()
errors = {"thresholded": int((thresholded != picture).sum()), "restored": int((restored != picture).sum())}

figure, axes = plt.subplots(1, 5, figsize=(11, 2.6), layout="constrained")
panels = {
    "sent": picture,
    "received": received,
    f"thresholded: {errors['thresholded']} wrong": thresholded,
    f"restored: {errors['restored']} wrong": restored,
    "Pr(black | received)": probability,
}
for axis, (title, values) in zip(axes, panels.items(), strict=True):
    image = axis.imshow(values, cmap="Greys")
    axis.set(title=title, xticks=[], yticks=[])
figure.colorbar(image, ax=axes[-1], shrink=0.8)
plt.show()

# %% [markdown]
# Where the restored picture is wrong, does it say so? The probabilities are those of a model, so of the pixels that it
# calls black or white with probability above 0.9 more than nine in ten should be right.

# %%
is_sure = (probability - 0.5).abs() > 0.4
share = float((restored == picture)[is_sure].double().mean())
print(f"sure about {int(is_sure.sum())} pixels, right about {share:.0%} of them")

likeness, noise = (run.samples[name].flatten() for name in ("likeness", "noise"))
figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
axes[0].hist(noise, bins=25, color="#4477aa")
axes[0].axvline(true_noise, color="black", linestyle="--", label="truth")
axes[0].set(xlabel="noise", yticks=[])
axes[0].legend()
axes[1].hist(likeness, bins=25, color="#4477aa")
axes[1].set(xlabel="likeness of neighbours", yticks=[])
plt.show()

# %% [markdown]
# The noise, which no pixel shows by itself, is recovered, and the strength of the interaction is clearly above zero.
#
# ## The claim, checked

# %%
interval = torch.quantile(noise, torch.tensor([0.025, 0.975]))
assert errors["restored"] <= errors["thresholded"] // 2
assert interval[0] < true_noise < interval[1]
assert float(likeness.min()) > 0
assert share > 0.9
assert run.samples["pixels"].dtype == torch.long
assert kernel.evaluation == {"pixels": "rows together"}
assert set(spelling[slow].evaluation.values()) == {"one by one"}
assert set(spelling[fast].evaluation.values()) == {"rows together"}
