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
# # Gallery: every plot once
#
# Functions of `pyro_hoim.plots` take data and axes (`ax=`) and return axes. Without axes they make a figure, which a
# notebook shows. They draw tables, hypergraphs and predictions of any model, of this library or another one.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np

from pyro_hoim import fit, goodness_of_fit, load_table, plots
from pyro_hoim.log_linear import coefficient_table

seed = 0
hair = load_table("hair_eye_color")
titanic = load_table("titanic")
workers = load_table("czech_autoworkers")

# %% [markdown]
# ## Tables
#
# **Mosaic.** Areas are counts; blue cells hold more rows than independent variables would give, orange ones fewer.

# %%
mosaic = plots.plot_mosaic(titanic, ["Class", "Sex", "Survived"])

# %% [markdown]
# **Association plot.** Bars are Pearson residuals, as wide as the root of the expected count; their areas are the
# differences of observed and expected counts.

# %%
association = plots.plot_association(hair, ["Hair", "Eye"])

# %% [markdown]
# ## Interactions
#
# **Forest of intervals.** The terms of a fit with the largest coefficients, with their 95 % intervals.

# %%
pairs = fit("smoke*mental + mental*phys + smoke*phys + smoke*systol + phys*protein + smoke*protein + family", workers)
table = coefficient_table(pairs).rename(columns={"interaction": "term"})
forest = plots.plot_interactions(table, top=12, label="coefficient in corner coding (nats), 95 % interval")

# %% [markdown]
# **Hypergraph.** Variables on a circle; arcs are as wide as the interactions are strong, and coloured by their signs.

# %%
several = table[table["term"].str.contains(":")]
weights = {tuple(term.split(":")): value for term, value in zip(several["term"], several["estimate"], strict=True)}
circle = plots.plot_hypergraph(pairs.hypergraph, weights, unit="nats", signs=("more often together", "less often"))

# %% [markdown]
# **Pairs as a matrix.** The same numbers; a cross marks a pair that is not in the model.

# %%
matrix = plots.plot_pairs(plots.pair_matrix(pairs.hypergraph, weights), label="coefficient (nats)")

# %% [markdown]
# ## Fit and comparison
#
# **Observed and expected counts, and residuals.** Two plots in the axes of one figure.

# %%
observed = workers.table().numpy()
expected = workers.total_count * pairs.probs.numpy().reshape(observed.shape)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.6), layout="constrained")
plots.plot_fitted(observed, expected, ax=left)
residuals = plots.plot_residuals(expected, plots.pearson_residuals(observed, expected), ax=right)

# %% [markdown]
# **Comparison.** The best model is on top and emphasised.

# %%
models = {"some pairs": pairs, **{f"order {k}": fit(workers, order=k) for k in (1, 2, 3)}}
bic = [goodness_of_fit(model).bic for model in models.values()]
comparison = plots.plot_comparison(list(models), bic, label="BIC", lower_is_better=True)

# %% [markdown]
# ## Predictions
#
# **Calibration.** How often passengers survived, against the probability that the model gives them.

# %%
survival = fit("Class*Sex*Survived + Age*Survived", titanic)
counts = titanic.table().numpy()
probs = survival.probs.numpy().reshape(counts.shape)
joint = probs.sum(-1, keepdims=True)
chance = np.divide(probs, joint, out=np.zeros_like(probs), where=joint > 0)[..., 1]
times = counts.reshape(-1, 2).astype(int)
predicted = np.repeat(np.repeat(chance.ravel(), 2), times.ravel())
happened = np.repeat(np.tile([False, True], len(times)), times.ravel())
calibration = plots.plot_calibration(predicted, happened)

# %% [markdown]
# **Receiver operating characteristic.** Share of survivors found against the share of false alarms; curves of several
# models share the axes.

# %%
women = counts.sum((0, 2))[:, 1] / counts.sum((0, 2, 3))
by_sex = np.broadcast_to(women[None, :, None], chance.shape)
roc = plots.plot_roc(predicted, happened, name="model")
plots.plot_roc(
    np.repeat(np.repeat(by_sex.ravel(), 2), times.ravel()), happened, ax=roc, name="sex alone", colour="#d1662f"
)

# %% [markdown]
# Areas, heights and positions are the numbers themselves:

# %%
areas = np.array([tile.get_width() * tile.get_height() for tile in mosaic.patches])
shares = titanic.project(["Class", "Sex", "Survived"]).table().numpy().ravel()
assert np.allclose(areas / areas.sum(), shares[shares > 0] / shares.sum())
assert comparison.get_yticklabels()[0].get_text() == min(zip(bic, models, strict=True))[1]
assert plots.roc_points(predicted, happened)[2] > 0.7
