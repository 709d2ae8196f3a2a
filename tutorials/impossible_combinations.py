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
# # Combinations that cannot be
#
# Some cells of a table are empty because nothing can be there. A father and a son of the same occupation do not count
# as mobile. A machine that is switched off makes no noise. Such *structural zeros* are part of the model: every state
# that holds one has probability zero, whatever the parameters are.
#
# The question of this tutorial: **how is a model told of them, in a small table and in a wide one, and what obeys?**

# %% [markdown]
# ## Who leaves his father's occupation
#
# Five occupations of 19,912 American fathers and sons (Robert Hauser, 1979). Sons mostly stay where their fathers were.
# Among those who move, is the destination independent of the origin? The diagonal is taken out of the question.

# %%
import itertools

import numpy as np
import pandas as pd

import pyro_hoim as hoim

seed = 1
occupations = ["upper non-manual", "lower non-manual", "upper manual", "lower manual", "farm"]
moved = np.array(
    [
        [1414, 521, 302, 643, 40],
        [724, 524, 254, 703, 48],
        [798, 648, 856, 1676, 108],
        [756, 914, 771, 3325, 237],
        [409, 357, 441, 1611, 1832],
    ]
)
np.fill_diagonal(moved, 0)
table = pd.DataFrame(
    [(a, b, moved[i, j]) for i, a in enumerate(occupations) for j, b in enumerate(occupations)],
    columns=["father", "son", "count"],
)

# %%
same = [{"father": name, "son": name} for name in occupations]
quasi = hoim.fit("father + son", table, structural_zeros=same)
test = hoim.goodness_of_fit(quasi)
print(f"G2 = {test.deviance:.1f} on {test.df} degrees of freedom, p {test.p_value:.1g}")

# %% [markdown]
# The model is quasi-independence: $q(a, b) \propto \alpha_a \beta_b$ for $a \ne b$. Twenty cells are possible, nine
# parameters and the total are fitted, and eleven degrees of freedom are left. It does not hold. Where sons go depends
# on where they come from even among those who move. Everything that the result does knows the diagonal:

# %%
sons = quasi.predict(pd.DataFrame({"father": ["farm"]}), "son").filter(like="p(")
drawn = quasi.sample(5000, seed=seed)
print(sons.round(3).T)
print("drawn on the diagonal:", int((drawn["father"] == drawn["son"]).sum()))

# %% [markdown]
# ## Forty columns and one forbidden pair
#
# Forty sensors in a row, each of which tends to do what its neighbour does. Sensors 7 and 21 share a power supply that
# carries only one of them, so that never both are on. These two do not interact in the model, and no list of the
# $2^{40}$ states is made: the fit sums by elimination over the states that are possible.

# %%
random = np.random.default_rng(seed)
states = np.empty((6000, 40), dtype=int)
states[:, 0] = random.random(6000) < 0.4
for i in range(1, 40):
    states[:, i] = np.where(random.random(6000) < 0.7, states[:, i - 1], random.random(6000) < 0.4)
states = states[~((states[:, 7] == 1) & (states[:, 21] == 1))]
names = [f"s{i}" for i in range(40)]
sensors = pd.DataFrame(states, columns=names).astype(str)
row = " + ".join(f"{a}*{b}" for a, b in itertools.pairwise(names))

knowing = hoim.fit(row, sensors, structural_zeros=[{"s7": "1", "s21": "1"}])
ignorant = hoim.fit(row, sensors)
for name, result in (("knowing", knowing), ("ignorant", ignorant)):
    both = result.sample(4000, seed=seed)[["s7", "s21"]].eq("1").all(axis=1).mean()
    print(f"{name:9} log-likelihood {result.log_likelihood:.1f}, both on in {100 * both:.1f} % of drawn rows")

# %% [markdown]
# The model that knows describes the rows better with the same number of parameters. A row in which both are on is an
# error of the data, and the fit says how many there are instead of averaging over them.

# %%
broken = sensors.copy()
broken.loc[:2, ["s7", "s21"]] = "1"
try:
    hoim.fit(row, broken, structural_zeros=[{"s7": "1", "s21": "1"}])
except hoim.InputError as error:
    message = str(error)
print(message)

# %% [markdown]
# ## The claim, checked

# %%
assert (round(test.deviance, 1), test.df) == (683.3, 11)  # as published
assert sons["p(farm)"].item() == 0
assert not (drawn["father"] == drawn["son"]).any()
assert not knowing.sample(4000, seed=seed)[["s7", "s21"]].eq("1").all(axis=1).any()
assert knowing.num_parameters == ignorant.num_parameters
assert knowing.log_likelihood > ignorant.log_likelihood + 100
assert "3 rows of data hold what is marked as impossible: (s7=1, s21=1)" in message
