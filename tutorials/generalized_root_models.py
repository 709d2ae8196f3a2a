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
# # What a generalized root model is
#
# Counts of words, of clicks, of species; waiting times, amounts of rain. How can such variables depend on each other?
# The obvious model multiplies them:
# $\log q(x) = \sum_s \theta_s x_s + \sum_{st} \theta_{st} x_s x_t - \sum_s \log x_s!$.
# A positive $\theta_{st}$ would make this grow like a square, faster than the factorial falls, and nothing could be
# normalised. So variables could only avoid each other.
#
# **Can counts attract each other, three at a time?** They can if the product of $j$ of them goes in by its $j$-th root:
#
# $$\log q(x) = \sum_s c_s x_s + \sum_{st} c_{st} \sqrt{x_s x_t} + \sum_{str} c_{str} \sqrt[3]{x_s x_t x_r}
# + \sum_s B(x_s)$$
#
# Every term now grows as fast as the total count and no faster. This is the *generalized root model* of Inouye,
# Ravikumar and Dhillon (2016). $B$ says what the numbers are: $-\log x!$ for counts, 0 for positive reals.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from pyro_hoim import Domain
from pyro_hoim.errors import InputError
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootChains,
    RootStructure,
    check_normalizable,
    fit_root_path,
    fit_roots,
    node_bounds,
)
from pyro_hoim.generalized_root.study.dependence import log_odds_ratio, pair_moments
from pyro_hoim.schema import Variable

from studies.node_bounds_figure import node_bounds_figure
from studies.recovery import draw_root_rows, plant_roots, roc_curve, root_recovery, tuple_scores

long = os.environ.get("PYRO_HOIM_LONG") == "1" and os.environ.get("PYRO_HOIM_SHORT") != "1"
folder = Path(os.environ.get("PYRO_HOIM_FIGURES", "."))
seed = 2016
torch.set_num_threads(1)
blue, orange, green, grey = "#2166ac", "#d95f02", "#1b7837", "#888888"


def model(family, singles, interactions):
    """A model from the coefficients of its terms."""
    domain = Domain([Variable(name, kind=family.kind) for name in singles])
    structure = RootStructure.simplified(domain, interactions)
    values = {(name,): value for name, value in singles.items()} | interactions
    coefficients = torch.tensor([values[names] for _, names in structure.names], dtype=torch.float64)
    return GeneralizedRootEnergy.from_coefficients(structure, coefficients, family)


def plain(axes):
    axes.spines[["top", "right"]].set_visible(False)


words = model(PoissonFamily(), {"boundary": 0.3, "layer": 0.2}, {("boundary", "layer"): 0.8})
table = torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0)).to(torch.float64)
log_q = -words.energy(table).reshape(5, 5)
pd.DataFrame(log_q.numpy()).round(2).rename_axis(index="boundary", columns="layer")

# %% [markdown]
# ## Attraction and repulsion
#
# How far do correlations go? For two variables everything is a sum or an integral, so this is exact (lines); Gibbs
# chains, which redraw one variable at a time and work for any number of variables, agree (dots). On the left two counts
# with $c_1 = 0.5$, on the right two positive numbers with $c_1 = -1$, whose interaction must stay below 2.

# %%
settings = {
    "counts (Poisson)": (PoissonFamily(), 0.5, np.linspace(-4, 2, 17)),
    "positive numbers (exponential)": (ExponentialFamily(), -1.0, np.linspace(-4, 1.9, 17)),
}
num_chains = 1000
correlations, distances = {}, []
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for axes, (title, (family, single, values)) in zip(panels, settings.items(), strict=True):
    pairs = [model(family, {"a": single, "b": single}, {("a", "b"): value}) for value in values]
    exact = [pair_moments(pair) for pair in pairs]
    correlations[title] = pd.Series([found.correlation for found in exact], index=values)
    axes.plot(values, correlations[title], color=blue, label="exact")
    for i in range(0, len(values), 4):
        chains = RootChains(pairs[i], num_chains, seed=torch.Generator().manual_seed(seed + i))
        chains.sweep(50)
        x = (chains.states - exact[i].mean) / exact[i].variance.sqrt()
        products = x.prod(1)
        distances.append(float((products.mean() - exact[i].correlation) / (products.std() / num_chains**0.5)))
        axes.plot(values[i], products.mean(), "o", color=orange, markersize=5, label="Gibbs" if i == 0 else None)
    axes.axhline(0, color=grey, linewidth=0.8)
    axes.axvline(0, color=grey, linewidth=0.8)
    axes.set(title=title, xlabel="coefficient of $\\sqrt{x_a x_b}$")
    plain(axes)
panels[0].set_ylabel("correlation")
panels[0].legend(frameon=False)
if long:
    figure.savefig(folder / "root_correlation.png", dpi=80)
plt.show()

# %% [markdown]
# Both signs, for both. Positive numbers near the edge of what can be normalised are nearly proportional. Repulsion has
# a floor: variables that are positive cannot do more than leave each other at zero.
#
# ## Two ways to cut through the distribution
#
# All that the library does with these models goes through two kinds of one-dimensional distributions. Hold all
# variables but one: the **node conditional** (upper row) is $\exp(\eta_1 x + \eta_2 \sqrt x + \dots + B(x))$, where
# the $\eta$ are sums over the others. It is what Gibbs sampling draws from and what regressions fit. Hold the
# proportions and let the total $z$ vary: along a ray the **radial conditional** (lower row) is $\exp(\eta_1(v) z +
# \dots)$, and it tells whether the distribution can be normalised.

# %%
pair = model(ExponentialFamily(), {"a": -1.0, "b": -1.0}, {("a", "b"): 1.2})
grid = torch.linspace(0.005, 6, 160, dtype=torch.float64)
states = torch.cartesian_prod(grid, grid)
log_density = (-pair.energy(states)).reshape(160, 160).T
levels = torch.linspace(-6, 0, 13)
held = {0.5: "-", 2.0: "--", 4.5: ":"}
rays = {"(1/2, 1/2)": (0.5, 0.5), "(1/6, 5/6)": (1 / 6, 5 / 6), "(1, 0)": (1.0, 0.0)}
styles = ["-", "--", ":"]

figure, panels = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
for axes in panels[:, 0]:
    axes.contourf(grid, grid, log_density, levels=levels, cmap="Greys", extend="min")
    axes.set(xlabel="$x_a$", ylabel="$x_b$", aspect="equal")
for value, style in held.items():
    panels[0, 0].axhline(value, color=blue, linestyle=style)
    states = torch.stack([grid, torch.full_like(grid, value)], 1)
    panels[0, 1].plot(grid, pair.node_log_prob(states)[:, 0].exp(), color=blue, linestyle=style, label=f"$x_b={value}$")
panels[0, 0].set_title("node: all others held")
panels[0, 1].set(xlabel="$x_a$", ylabel="$p(x_a \\mid x_b)$", ylim=(0, 1))
for (label, direction), style in zip(rays.items(), styles, strict=True):
    v = torch.tensor(direction, dtype=torch.float64)
    reach = 6 / max(direction)
    panels[1, 0].plot([0, reach * v[0]], [0, reach * v[1]], color=orange, linestyle=style)
    along = pair.radial_log_density(2 * grid, v.expand(160, 2)).exp()
    slope = float(next(iter(pair.radial_natural(v).values())))
    name = f"$v=${label}, $\\eta_1={slope:.2f}$"
    panels[1, 1].plot(2 * grid, along, color=orange, linestyle=style, label=name)
panels[1, 0].set_title("radial: proportions held")
panels[1, 0].set(xlim=(0, 6), ylim=(0, 6))
panels[1, 1].set(xlabel="total $z$", ylabel="$q(z v)$", ylim=(0, 1))
for axes in panels[:, 1]:
    axes.legend(frameon=False, fontsize=9)
    plain(axes)
if long:
    figure.savefig(folder / "root_conditionals.png", dpi=80)
plt.show()

# %% [markdown]
# The node conditional has a closed form up to the square root only. Its normalising constant is enclosed between two
# sums that do have one, by replacing the roots by straight lines piece by piece; more pieces, closer bounds (figure 2
# of the paper, its parameters):

# %%
natural = (3.0232, -4.4966)
bounds = [node_bounds(PoissonFamily(), natural, num_subdomains=number) for number in (2, 5)]
figure = node_bounds_figure(PoissonFamily(), natural, bounds)
if long:
    figure.savefig(folder / "root_node_bounds.png", dpi=80)
figure

# %%
finer = {number: node_bounds(PoissonFamily(), natural, num_subdomains=number) for number in (2, 5, 9, 30)}
pd.DataFrame({n: {"lower": b.lower, "upper": b.upper, "gap": b.upper - b.lower} for n, b in finer.items()}).T.round(4)

# %% [markdown]
# ## When is there a distribution at all?
#
# Counts: always, whatever the parameters and the order, because $\log x!$ beats every root product. For positive
# numbers nothing else bends down, so $\eta_1(v)$ must be negative along every ray. That asks less than a definite
# matrix does: only rays of positive numbers count. `check_normalizable` proves it, disproves it with a direction, or
# says that it does not know; log Z is refused without a proof.

# %%
singles = dict.fromkeys("abc", -1.0)
examples = {
    "counts, strong": model(PoissonFamily(), dict.fromkeys("abc", 2.0), {("a", "b"): 9.0, ("a", "b", "c"): 20.0}),
    "all pairs 0.9": model(ExponentialFamily(), singles, {("a", "b"): 0.9, ("b", "c"): 0.9, ("a", "c"): 0.9}),
    "all pairs 1.1": model(ExponentialFamily(), singles, {("a", "b"): 1.1, ("b", "c"): 1.1, ("a", "c"): 1.1}),
    "all pairs -9": model(ExponentialFamily(), singles, {("a", "b"): -9.0, ("b", "c"): -9.0, ("a", "c"): -9.0}),
    "triple 2.9": model(ExponentialFamily(), singles, {("a", "b", "c"): 2.9}),
    "triple 3.1": model(ExponentialFamily(), singles, {("a", "b", "c"): 3.1}),
    "on the edge": model(ExponentialFamily(), {"a": -0.1, "b": -0.3}, {("a", "b"): 2 * (0.1 * 0.3) ** 0.5}),
}
verdicts = {name: check_normalizable(example) for name, example in examples.items()}
pd.DataFrame(
    [
        {
            "model": name,
            "verdict": found.verdict,
            "direction": "" if found.witness is None else str([round(float(v), 2) for v in found.witness]),
        }
        for name, found in verdicts.items()
    ]
).set_index("model")

# %%
for found in (verdicts["all pairs 1.1"], verdicts["on the edge"]):
    print(f"{found.verdict}: {found.reason}\n")
try:
    pair_moments(model(ExponentialFamily(), {"a": -1.0, "b": -1.0}, {("a", "b"): 2.2}))
    refused = False
except InputError as error:
    refused = True
    print(error)

# %% [markdown]
# ## What no pairwise model has
#
# Three words that make a phrase: the third decides whether the first two belong together. Here is a triple and nothing
# else. The log odds ratio of $a$ and $b$, $\log \frac{p(1,1)\,p(0,0)}{p(1,0)\,p(0,1)}$ given $c$, is the
# coefficient times $\sqrt[3]{c}$. In every pairwise model it is the same for all $c$, so the best that pairs can do is
# some average; with 8,000 rows:

# %%
phrase = model(PoissonFamily(), dict.fromkeys("abc", 0.3), {("a", "b", "c"): 0.8})
rows = draw_root_rows(phrase, 8000, generator=torch.Generator().manual_seed(seed))
others = draw_root_rows(phrase, 8000, generator=torch.Generator().manual_seed(seed + 1))
fits = {"pairs only": fit_roots(rows, order=2, l1=0.0), "pairs and triple": fit_roots(rows, order=3, l1=0.0)}
laws = {"truth": phrase} | {name: GeneralizedRootEnergy(f.structure, f.psi, f.family) for name, f in fits.items()}
looks = {"truth": (grey, "-"), "pairs only": (blue, "--"), "pairs and triple": (orange, ":")}
thirds = range(9)
odds = pd.DataFrame(
    {name: [log_odds_ratio(law, ("a", "b"), {"c": c}) for c in thirds] for name, law in laws.items()}, index=thirds
)
given = pd.DataFrame(
    {name: [pair_moments(law.condition({"c": c})[0]).correlation for c in thirds] for name, law in laws.items()},
    index=thirds,
)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for axes, values, label in zip(panels, (odds, given), ("log odds ratio", "correlation"), strict=True):
    for name, (colour, style) in looks.items():
        axes.plot(values.index, values[name], color=colour, linestyle=style, marker="o", markersize=3, label=name)
    axes.set(xlabel="value of $c$", ylabel=f"{label} of $a$ and $b$ given $c$")
    plain(axes)
panels[0].legend(frameon=False)
if long:
    figure.savefig(folder / "root_triple.png", dpi=80)
plt.show()

# %%
lost = {name: -float(law.log_pseudo_prob(others.to_tensor()).mean()) for name, law in laws.items()}
pd.DataFrame(
    {
        name: {
            ":".join(names): round(float(c), 3)
            for (_, names), c in zip(law.structure.names, law.coefficients, strict=True)
        }
        | {"nats a row, other rows": round(lost[name], 4)}
        for name, law in laws.items()
    }
).reindex(["a", "b", "c", "a:b", "a:c", "b:c", "a:b:c", "nats a row, other rows"]).map(
    lambda value: "" if pd.isna(value) else value
)

# %% [markdown]
# Pairs take the triple for three pairs. That is wrong where it matters most: without $c$ the two have nothing to do
# with each other.
#
# ## Finding them again
#
# Learning is one $\ell_1$-penalised regression per variable. Twelve counts, eight pairs and six triples, half of them
# negative, planted beforehand; all 66 pairs and 220 triples are candidates. How many rows does it take?

# %%
planted = plant_roots(seed=0)
sizes = [250, 500, 1000, 2000, 4000, 8000, 16000] if long else [250, 1000, 3000]
study = root_recovery(planted, sizes, repeats=2 if long else 1, held_out=2000, seed=seed)
columns = ["pair_auc", "triple_auc", "pair_error", "triple_error", "inside", "outside", "pseudo_nll"]
means = study.groupby(["model", "num_rows"], sort=False)[columns].mean()
means.loc[["pairs and triples", "pairs only", "known structure"]].round(3)

# %%
looks = {"pairs and triples": orange, "pairs only": blue, "known structure": green, "independent": grey}
sample = draw_root_rows(planted, 250, generator=torch.Generator().manual_seed(seed))
path = fit_root_path(sample, [0.1, 0.07, 0.05, 0.035, 0.025], order=3)
figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for size, style in ((2, "--"), (3, "-")):
    sets, scores = tuple_scores(path, size)
    curve = roc_curve(scores, [names in planted.structure.tuples((size, size)) for names in sets])
    label = f"{'pairs' if size == 2 else 'triples'}, area {curve.auc:.2f}"
    panels[0].plot(curve.false_positive_rate, curve.true_positive_rate, style, color=orange, label=label)
panels[0].plot([0, 1], [0, 1], color=grey, linewidth=0.8)
panels[0].set(title="ROC curves, 250 rows", xlabel="false positive rate", ylabel="true positive rate", aspect="equal")
panels[0].legend(frameon=False, fontsize=9, loc="lower right")
for name, column, style in (("pairs and triples", "triple_auc", "-"), ("pairs and triples", "pair_auc", "--")):
    values = means.loc[name, column]
    panels[1].plot(values.index, values, style, color=looks[name], marker="o", markersize=4, label=column[:-4] + "s")
values = means.loc["pairs only", "pair_auc"]
panels[1].plot(values.index, values, "--", color=blue, marker="o", markersize=4, label="pairs, without triples")
panels[1].set(title="area under the curve", xlabel="rows", xscale="log", ylim=(0.5, 1.02))
panels[1].legend(frameon=False, fontsize=9, loc="lower right")
reference = means.loc["truth", "pseudo_nll"]
for name in ("pairs and triples", "pairs only", "known structure"):
    excess = means.loc[name, "pseudo_nll"] - reference
    panels[2].plot(excess.index, excess, color=looks[name], marker="o", markersize=4, label=name)
panels[2].set(title="nats a row above the truth", xlabel="rows", xscale="log", ylim=(0, None))
panels[2].legend(frameon=False, fontsize=9)
for axes in panels:
    plain(axes)
for axes in panels[1:]:
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
if long:
    figure.savefig(folder / "root_recovery.png", dpi=80)
plt.show()

# %% [markdown]
# `inside` is the share of the 18 pairs inside planted triples, none of them planted, that the chosen fit has; `outside`
# the same share among the other pairs that are not there. Without triples, pairs stand in for them.
#
# ## In short
#
# * Roots of products let counts and positive numbers attract each other, in pairs and in threes, and still have a
#   distribution.
# * For counts every parameter is allowed. For positive numbers ask `check_normalizable` first.
# * A triple means that two variables go together more, or less, the more there is of a third.
# * A fit with pairs only shows pairs where there is a triple. Fit both, and compare them on other rows.
#
# [](positive_data.py) fits positive numbers and looks at the uncertainty.
#
# ## The claims of this page, checked

# %%
for series in correlations.values():
    assert (series.diff().dropna() > 0).all()
    assert series.iloc[0] < -0.2 < 0.25 < series.iloc[-1]
assert correlations["positive numbers (exponential)"].iloc[-1] > 0.85
assert max(map(abs, distances)) < 5
assert abs(float(pair.radial_natural(torch.tensor([0.5, 0.5], dtype=torch.float64))[1]) + 0.4) < 1e-12
x = torch.arange(400, dtype=torch.float64)
exact = float(torch.logsumexp(natural[0] * x + natural[1] * x.sqrt() - (x + 1).lgamma(), 0))
assert all(b.lower <= exact <= b.upper for b in finer.values())
assert finer[30].upper - finer[30].lower < 0.1
expected = ["proven", "proven", "disproven", "proven", "proven", "disproven", "undecided"]
assert [found.verdict for found in verdicts.values()] == expected
assert refused
assert float(odds["pairs only"].std()) < 1e-9
assert odds["pairs only"][0] > 0.1
assert (odds["truth"] - odds["pairs and triple"]).abs().max() < 0.25
assert abs(given["truth"][0]) < 1e-9
assert given["truth"][8] > 0.12
assert given["pairs only"][0] > given["pairs only"][8] > 0
assert lost["pairs and triple"] < lost["pairs only"] - 0.01
last = sizes[-1]
assert means.loc[("pairs and triples", last), "triple_auc"] >= 0.95
assert means.loc[("pairs and triples", last), "pair_auc"] >= 0.95
assert means.loc[("pairs only", last), "inside"] > 0.9 > means.loc[("pairs and triples", last), "inside"]
assert means.loc[("pairs only", last), "pseudo_nll"] > means.loc[("pairs and triples", last), "pseudo_nll"]
assert means.loc[("known structure", last), "triple_error"] < 0.6 * means.loc[("known structure", 250), "triple_error"]
