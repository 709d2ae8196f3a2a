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
# # When is log Z exact, and what does the error bar mean?
#
# Every probability of a log-linear model divides by $Z = \sum_x \exp \sum_S \theta^S_{x_S}$, a sum over all joint
# states. Two questions decide what you may do with a model: **can the sum be done exactly, and if it cannot, how far
# can its estimate be trusted?** The first has an answer before anything is computed. The second needs a look at what
# an error bar claims.

# %%
import io
import math
import warnings

import matplotlib.pyplot as plt
import torch

from pyro_hoim import (
    AnnealedImportance,
    Auto,
    ConvergenceWarning,
    Domain,
    InteractionHypergraph,
    LogLinearEnergy,
    read_uai,
)
from pyro_hoim.log_linear import Enumeration

seed = 1
torch.set_num_threads(1)

# %% [markdown]
# ## Exact or not: ask the plan
#
# Elimination sums out one variable after the other. What it costs is the largest table that appears on the way, and
# that depends on the structure alone: a path of any length is cheap, a square grid grows with its side, a model with
# all pairs needs all states. `plan` tells the size, and whether it fits the budget, without computing anything.


# %%
def binary(number):
    return Domain.from_cardinalities([2] * number)


def path(number):
    pairs = [(f"x{i}", f"x{i + 1}") for i in range(number - 1)]
    return InteractionHypergraph(binary(number), pairs, closure=True)


def grid(side):
    right = [(f"x{side * i + j}", f"x{side * i + j + 1}") for i in range(side) for j in range(side - 1)]
    down = [(f"x{side * i + j}", f"x{side * i + j + side}") for i in range(side - 1) for j in range(side)]
    return InteractionHypergraph(binary(side**2), right + down, closure=True)


structures = {
    "path": [path(n) for n in (4, 16, 64, 144, 400)],
    "square grid": [grid(side) for side in (2, 4, 8, 12, 16, 20)],
    "all pairs": [InteractionHypergraph.from_order(binary(n), 2) for n in (4, 8, 16, 24, 48)],
}
plans = {
    name: [(len(h.domain), Auto().plan(h).cells, Auto().plan(h).feasible) for h in family]
    for name, family in structures.items()
}

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, points), marker in zip(plans.items(), "os^", strict=True):
    (line,) = axes.plot([n for n, _, _ in points], [math.log2(c) for _, c, _ in points], label=name, alpha=0.6)
    for n, cells, feasible in points:
        axes.plot(n, math.log2(cells), marker, color=line.get_color(), fillstyle="full" if feasible else "none")
axes.set(xlabel="variables", ylabel="largest table, log2 of its cells", ylim=(0, 50), xlim=(0, 420))
axes.set_title("Filled: exact within the default budget. Hollow: refused")
axes.legend()
plt.show()

# %% [markdown]
# The same question can be asked of a model of others: `read_uai` reads the files of the inference competitions of UAI.
# A weight of zero there is an impossible combination here: three switches, never all in the same position.

# %%
all_but_two = "0 1 1 1 1 1 1 0"
switches = read_uai(io.BytesIO(f"MARKOV 3 2 2 2  1  3 0 1 2  8 {all_but_two}".encode()))
possible = float(Auto().log_partition(switches).value)
print(f"{Auto().plan(switches.hypergraph).method}: log Z = {possible:.4f}, log of the number of possible states")

# %% [markdown]
# A refusal is an error with numbers, never a hang. It also says how to ask for an estimate: nothing that is not exact
# is ever slipped in.

# %%
rng = torch.Generator().manual_seed(seed)
large = InteractionHypergraph.from_order(binary(48), 2)
large_model = LogLinearEnergy.from_theta(large, 0.1 * torch.randn(large.num_parameters, generator=rng).double())
try:
    Auto().log_partition(large_model)
except ValueError as refusal:
    print(refusal)

estimate = AnnealedImportance(seed=seed).log_partition(large_model)
print(f"log Z = {float(estimate.value):.4f} +- {float(estimate.std_error):.4f}, ESS {float(estimate.ess):.0f} of 512")
print(f"limits {float(estimate.lower):.4f} to {float(estimate.upper):.4f}")
print(*estimate.notes, sep="\n")

# %% [markdown]
# ## What the error bar claims
#
# Annealed importance sampling leads chains from a distribution whose constant is known to the model, in small steps
# of an inverse temperature, and weights each chain by what it met on the way. The mean weight is an unbiased estimate
# of $Z / Z_0$. The standard error comes from the spread of the weights.
#
# An error bar is a claim about repetitions: in 99.7 of 100 runs the truth should lie within three standard errors.
# That can be tested where the truth is known. Here is a model of 14 variables with interactions up to order three,
# small enough to enumerate, and 200 runs of 100 temperatures.

# %%
small = InteractionHypergraph.from_order(binary(14), 3)
theta = 0.15 * torch.randn(small.num_parameters, generator=rng).double()
model = LogLinearEnergy.from_theta(small, theta)
truth = float(Enumeration().log_partition(model).value)


def runs(model, number, **options):
    """Repeated estimates; their warnings are counted, not shown."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return [AnnealedImportance(seed=s, **options).log_partition(model) for s in range(number)]


repeated = runs(model, 200, num_temperatures=100, num_chains=128, reverse=False)
distance = torch.tensor([(float(r.value) - truth) / float(r.std_error) for r in repeated])

figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
axes.hist(distance, bins=30, density=True, color="tab:blue", alpha=0.6)
x = torch.linspace(-4, 4, 200)
axes.plot(x, torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), color="black", label="standard normal")
axes.axvspan(-3, 3, color="tab:green", alpha=0.1, label="within three standard errors")
axes.set(xlabel="(estimate - truth) / standard error", ylabel="density")
axes.set_title("200 runs where the truth is known")
axes.legend()
plt.show()
covered = float((distance.abs() < 3).double().mean())
print(f"{100 * covered:.1f} % within three standard errors; mean distance {float(distance.mean()):.2f}")

# %% [markdown]
# ## From both sides
#
# A run can also go in reverse: from perfect samples of the model (elimination or enumeration draws them where they
# are within reach) back to the simple distribution. The forward estimate of $\log Z$ is low on average, the reverse
# one is high, so together they hold the truth from both sides, and the gap between them says how far to trust either.
# Strong interactions and a short path open the gap; more temperatures close it.

# %%
strong = LogLinearEnergy.from_theta(small, 4 * theta)
strong_truth = float(Enumeration().log_partition(strong).value)
steps = [3, 10, 30, 100, 300, 1000]
ladders = {k: runs(strong, 12, num_temperatures=k, num_chains=64, reverse=True) for k in steps}

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for k, results in ladders.items():
    forward = [float(r.sandwich.forward) - strong_truth for r in results]
    reverse = [float(r.sandwich.reverse) - strong_truth for r in results]
    trusted = sum(r.verdict != "unreliable" for r in results)
    axes.plot([k * 0.93] * 12, forward, "v", color="tab:blue", alpha=0.5, label="forward" if k == 3 else None)
    axes.plot([k * 1.07] * 12, reverse, "^", color="tab:red", alpha=0.5, label="reverse" if k == 3 else None)
    axes.annotate(f"{trusted}/12", (k, 1), xycoords=("data", "axes fraction"), xytext=(k, 0.95), ha="center")
axes.axhline(0, color="black", linewidth=1)
axes.set(xscale="log", xlabel="temperatures", ylabel="estimate - truth, nats", ylim=(-2, 2.4))
axes.set_title("Twelve runs each; above: how many are not called unreliable")
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# A result that cannot support an error bar does not show one: `verdict` is "unreliable", `std_error` is infinite, a
# note says why and what to try. The limits `lower` and `upper` remain; they fall back on Markov's inequality, which
# holds for weights of any shape.

# %%
worst = ladders[3][0]
print(f"log Z = {float(worst.value):.2f} +- {float(worst.std_error)}, truth {strong_truth:.2f}")
print(f"limits {float(worst.lower):.2f} to {float(worst.upper):.2f}")
print(*worst.notes, sep="\n")

# %% [markdown]
# **When to use what.** Ask `Auto().plan(hypergraph)`. If it is feasible, log Z, its gradient and samples are exact.
# If not, `AnnealedImportance` gives an estimate with an error bar; read `verdict` before the number:
#
# - `"verified"`: every state was met, or the reverse run started from perfect samples and all checks agree. The limits
#   hold at their level; they allow for the part of the model that so many samples cannot be sure to meet.
# - `"consistent"`: all checks agree, without proof. Both runs, the states that a search for modes met (`lower_bound`
#   is the log of their sum, which log Z cannot fall below), and runs from these modes were compared. A mode that no
#   search finds stays unseen.
# - `"unreliable"`: a check failed; take more temperatures, whole-interaction blocks (`GibbsSchedule("interactions")`)
#   or an adaptive path.
#
# The claims of this page, checked:

# %%
assert math.isclose(possible, math.log(6))
assert covered >= 0.985
everything = [r for results in ladders.values() for r in results]
misses = [r for r in everything if abs(float(r.value) - strong_truth) > 3 * float(r.std_error)]
silent = [r for r in misses if r.verdict != "unreliable"]
held = sum(float(r.lower) <= strong_truth <= float(r.upper) for r in everything) / len(everything)
print(f"misses not called unreliable: {len(silent)} of {len(everything)}; within both limits {100 * held:.0f} %")
assert len(silent) <= 1
assert held >= 0.95
assert worst.verdict == "unreliable"
