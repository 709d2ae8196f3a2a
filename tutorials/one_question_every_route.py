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
# # One question, every route
#
# The library often has several ways to an answer: a closed form, an exact sum, a chain, a posterior by NUTS. **Do they
# agree, and what does each cost?** This page asks one question of one table by each of them, then goes where only
# chains and estimates are left.
#
# The table has 592 students by hair, eyes and sex. The question: how probable are blue eyes given blond hair?

# %%
import math
import tempfile
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyro
import torch
from pyro.infer import MCMC

from pyro_hoim import (
    AnnealedImportance,
    Auto,
    BlockGibbs,
    CountTable,
    DependencyConditionals,
    DependencyNetwork,
    DiaconisYlvisaker,
    Domain,
    GeneralizedRootEnergy,
    GibbsChains,
    HierarchicalLogLinear,
    HoimError,
    InteractionHypergraph,
    IntractableError,
    LogLinearEnergy,
    Observations,
    PseudoGibbs,
    RootGibbs,
    fit,
    fit_roots,
    impute,
    load,
    load_table,
    predict,
    run_mcmc,
    sample,
    sample_chains,
    sample_posterior,
    save,
    score,
    stationary_law,
    warm_up,
)
from pyro_hoim.inference import NUTSSettings

seed = 3
torch.set_num_threads(1)
warm_up(jobs=1)  # compiles the samplers once per machine, so that no time below is that of a compiler

table = load_table("hair_eye_color")
print(dict(zip(table.domain.names, table.domain.cardinalities, strict=True)))
hair, eye = table.domain["Hair"], table.domain["Eye"]
blond, blue = hair.labels.index("Blond"), eye.labels.index("Blue")
model = InteractionHypergraph(table.domain, [("Hair", "Eye"), ("Hair", "Sex")], closure=True)

# %% [markdown]
# ## A fitted distribution, by sums and by chains
#
# The fit gives one $\theta$. The distribution is a Pyro distribution: conditioned on blond hair it is another
# distribution of the same kind, whose marginal is a sum over 8 states. Three more routes lead to the same number:
# block Gibbs on the joint distribution, in Pyro's own `MCMC`, pseudo-Gibbs on the network of the distribution's
# conditionals, and that network's stationary distribution, by linear algebra.

# %%
law = HierarchicalLogLinear(model, fit(model, table).theta)
exact = float(law.condition({"Hair": "Blond"}).marginal(["Eye"]).probs[blue])
network = DependencyConditionals.from_model(LogLinearEnergy.from_theta(model, law.theta))
joint = stationary_law(network).probs[blond].sum(-1)
limit = float(joint[blue] / joint.sum())


def frequency(kernel):
    """Share of blue eyes among the draws of a kernel in Pyro's MCMC, and the seconds that it took."""
    pyro.set_rng_seed(seed)
    begin = time.perf_counter()
    chain = MCMC(kernel, num_samples=4_000, warmup_steps=200, disable_progbar=True)
    chain.run()
    draws = kernel.decode(chain.get_samples())["x"]
    return float((draws[:, table.domain.index("Eye")] == blue).double().mean()), time.perf_counter() - begin


block, block_seconds = frequency(BlockGibbs(law, clamped={"Hair": "Blond"}))
pseudo, pseudo_seconds = frequency(PseudoGibbs(network, clamped={"Hair": "Blond"}))
pd.DataFrame(
    {
        "P(blue | blond)": [exact, limit, block, pseudo],
        "how": ["sum over states", "linear algebra", f"4,000 sweeps, {block_seconds:.1f} s", f"{pseudo_seconds:.1f} s"],
    },
    index=["condition, marginal", "stationary law", "BlockGibbs", "PseudoGibbs"],
).round(4)

# %% [markdown]
# The network has a Pyro site of its own; where the conditionals belong to one joint distribution, as here, it is that
# distribution.

# %%
site = DependencyNetwork(network)
states = law.enumerate_support()
print(f"largest difference of log_prob: {float((site.log_prob(states) - law.log_prob(states)).abs().max()):.1e}")

# %% [markdown]
# ## A posterior, in closed form and by NUTS
#
# A point estimate hides what 592 students cannot tell. The collection of this page is decomposable, so its conjugate
# prior updates in closed form and its posterior is drawn without a chain; NUTS has to find the same distribution by
# following gradients of $\log Z$.

# %%
prior = DiaconisYlvisaker.uniform(model, 4.0)
counts = table.marginal_counts(model.edges)
posterior = prior.posterior(counts, table.total_count)
print("exact draws:", posterior.sample_is_exact)
pyro.set_rng_seed(seed)
by_form = posterior.sample((4_000,))
by_nuts = sample_posterior(
    model, table, prior, settings=NUTSSettings(num_draws=500, num_chains=2), seed=seed, progress=False
)


def answers(theta):
    """P(blue | blond) for draws of theta in the free coding, (draws, num_parameters)."""
    joint = HierarchicalLogLinear(model, theta, coding="free").marginal(["Hair", "Eye"]).probs[..., blond, :]
    return (joint[..., blue] / joint.sum(-1)).numpy()


form, nuts = answers(by_form), answers(by_nuts.theta.flatten(0, 1))
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
bins = np.linspace(0.6, 0.85, 41)
axes.hist(form, bins, density=True, alpha=0.5, label="closed form, independent draws")
axes.hist(nuts, bins, density=True, histtype="step", linewidth=1.5, color="black", label="NUTS")
axes.axvline(exact, color="tab:red", label="the fitted law")
axes.set(xlabel="P(blue eyes | blond hair)", ylabel="posterior density")
axes.legend()
plt.show()
print(f"mean {form.mean():.4f} and {nuts.mean():.4f}, sd {form.std():.4f} and {nuts.std():.4f}; NUTS {by_nuts.status}")

# %% [markdown]
# ## Counts
#
# A table of counts has infinitely many states. Here two words draw a third: 800 made-up rows of a root model, whose
# coefficients come back from regressions of every column on the others, and a Gibbs kernel for the fitted model.

# %%
rng = np.random.default_rng(seed)
common = rng.poisson(1.0, 800)
made = np.stack([rng.poisson(0.5 + common), rng.poisson(0.5 + common), rng.poisson(0.7, size=800)], 1)
words = CountTable.from_matrix(made, names=["wing", "flow", "heat"])
roots = fit_roots(words, "poisson", order=2, l1=0.01)
energy = GeneralizedRootEnergy(roots.structure, roots.psi, roots.family)
pyro.set_rng_seed(seed)
run = run_mcmc(RootGibbs(energy, num_chains=64), num_draws=400, burn_in=100, progress=False)
drawn = run.samples["x"].flatten(0, 1).numpy()
pd.DataFrame({"rows": np.corrcoef(made.T)[0], "draws": np.corrcoef(drawn.T)[0]}, index=words.domain.names).round(2)

# %% [markdown]
# ## The same words for every family
#
# Whatever the family, a model is kept and used by six functions. Each takes what `load` returns, and what a fit or
# learning returned.

# %%
with tempfile.TemporaryDirectory() as folder:
    save(fit(model, table), f"{folder}/students.safetensors")
    students = load(f"{folder}/students.safetensors")
asked = {
    "log-linear model": (students, table, "Eye"),
    "dependency network": (network.tabulated(), table, "Eye"),
    "generalized root model": (roots, words, "flow"),
}
told = {}
for name, (any_model, rows, target) in asked.items():
    prediction = predict(any_model, rows, target)
    told[name] = {
        "pseudo-NLL": score(any_model, rows)["pseudo_nll"],
        f"first prediction of {target}": prediction.iloc[0, 0],
        "draws": len(sample(any_model, 50, seed=seed)),
    }
pd.DataFrame(told).T

# %% [markdown]
# Rows with gaps are completed by draws given what is known; how often blond hair gets blue eyes is the answer again.

# %%
blonds = Observations.from_pandas(pd.DataFrame({"Hair": ["Blond"] * 2_000}), domain=table.domain.project(["Hair"]))
completed = impute(students, blonds, seed=seed)
filled = float((completed["Eye"] == "Blue").mean())
print(f"P(blue | blond) among completed rows: {filled:.3f}")

# %% [markdown]
# ## Where sums end
#
# No exact backend can treat forty binary variables in one large clique of pairs. The refusal comes before any work,
# as an exception of the library, and holds the numbers. A chain needs no $Z$; an estimate of $\log Z$ is there for
# the asking, with an error bar.

# %%
large = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 40), 2)
generator = torch.Generator().manual_seed(seed)
wide = LogLinearEnergy.from_theta(large, 0.05 * torch.randn(large.num_parameters, generator=generator).double())
try:
    Auto().log_partition(wide)
except HoimError as refusal:
    refused = refusal
print(type(refused).__name__, "-", str(refused).split(";")[0])

chains = sample_chains(GibbsChains(wide, 256, seed=seed), 400, burn_in=100)
estimate = AnnealedImportance(seed=seed).log_partition(wide)
print(f"eta of the first variable: {float(chains.eta[0]):.4f} +- {float(chains.std_error[0]):.4f}")
print(f"log Z = {float(estimate.value):.3f} +- {float(estimate.std_error):.3f} ({estimate.verdict})")

# %% [markdown]
# The claims of this page, checked: sums and linear algebra agree to the last digits, chains to their noise, and the
# two posteriors to theirs.

# %%
assert abs(exact - limit) < 1e-10
noise = math.sqrt(exact * (1 - exact) / 1_000)  # as if one sweep in four were independent
assert max(abs(block - exact), abs(pseudo - exact), abs(filled - exact)) < 5 * noise
assert abs(form.mean() - nuts.mean()) < 5 * form.std() / math.sqrt(500)
assert isinstance(refused, IntractableError)
assert estimate.verdict != "unreliable"
