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
# # Interaction models in scikit-learn
#
# **How large must the interactions be?** Cross-validation answers that with three estimators that keep the contract of
# scikit-learn: a density, a classifier and an imputer. They need `pip install 'pyro-hoim[sklearn]'`.
#
# The table holds six binary risk factors of 1,841 workers. Rows are shuffled with seed 0.

# %%
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from pyro_hoim import load_table
from pyro_hoim.estimators import InteractionClassifier, InteractionDensity, InteractionImputer

SEED = 0
cells = load_table("czech_autoworkers").to_pandas()
rows = cells.loc[cells.index.repeat(cells["count"].astype(int))]
rows = rows.drop(columns="count").sample(frac=1, random_state=SEED)
rows = rows.reset_index(drop=True)
rows.head()

# %% [markdown]
# ## A search over the order
#
# The score of a density is its mean log-likelihood of rows that it has not seen, in nats.

# %%
search = GridSearchCV(InteractionDensity(), {"order": [1, 2, 3]}, cv=5)
search.fit(rows)
scores = pd.DataFrame(search.cv_results_)
scores[["param_order", "mean_test_score", "std_test_score"]].round(4)

# %% [markdown]
# Pairs gain over independent columns; triples gain nothing that lasts. The model behind an estimator is `result_`.

# %%
search.best_estimator_.result_

# %% [markdown]
# ## Missing cells, and a class
#
# A fifth of the cells are lost at random. The imputer draws each from the distribution given the known cells of its
# row; the classifier can also do without it, for it sums over missing cells.

# %%
target = rows.columns[0]
X, y = rows.drop(columns=target), rows[target]
lost = np.random.default_rng(SEED).random(X.shape) < 0.2
gaps = X.mask(lost)
models = {
    "cells filled": make_pipeline(InteractionImputer(random_state=SEED), InteractionClassifier(order=2)),
    "cells summed over": InteractionClassifier(order=2),
    "no cell missing": InteractionClassifier(order=2),
}
accuracy = {
    name: cross_val_score(model, X if name == "no cell missing" else gaps, y, cv=3).mean()
    for name, model in models.items()
}
pd.Series(accuracy).round(3)

# %% [markdown]
# What the cells said already stays as it was, and a known cell is never changed.

# %%
filled = InteractionImputer(random_state=SEED).fit_transform(gaps)
assert search.best_params_["order"] in (2, 3)
assert scores["mean_test_score"].iloc[1] > scores["mean_test_score"].iloc[0] + 0.01
assert not filled.isna().to_numpy().any()
assert filled.where(~lost).equals(gaps)
assert max(accuracy, key=accuracy.get) == "no cell missing"
