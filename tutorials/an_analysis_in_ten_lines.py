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
# # An analysis in ten lines
#
# In the autumn of 1973, 4,526 people applied to the six largest departments of the University of California,
# Berkeley. 45 % of the men were admitted and 30 % of the women. **Were women at a disadvantage?** It is the best-known
# example of an association that turns round when a third variable is taken into account (Bickel, Hammel and
# O'Connell, 1975).
#
# All you need is a data frame, one row for every applicant. Here it is made from a table that comes with the library;
# yours would come from `pandas.read_csv`.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import pyro_hoim as hoim
from pyro_hoim import plan

cells = hoim.load_table("ucb_admissions").to_pandas()
applicants = cells.loc[cells.index.repeat(cells["count"])].drop(columns="count").reset_index(drop=True)
applicants.sample(5, random_state=1)

# %% [markdown]
# Before any work, a plan says how the columns are read, what each kind of model would cost, and which is advised.

# %%
print(plan(applicants))

# %% [markdown]
# ## 1. Fit
#
# A formula names the interactions, as in R: `Admit*Gender` is both variables and their association, `.^2` all pairs.
# Here admission may depend on gender and department, and men and women may choose other departments.

# %%
pairs = hoim.fit("Admit*Gender + Admit*Dept + Gender*Dept", applicants)
pairs

# %% [markdown]
# ## 2. Read
#
# Every line is a coefficient, compared with the first level of each variable. Those of pairs are log odds ratios.

# %%
summary = pairs.summary()
summary

# %% [markdown]
# Given the department, the odds of being *rejected* for women are about 0.9 times those of men: if anything the
# difference is in favour of women, and its interval contains 1. The departments differ far more, in how many
# they admit and in how many women apply.

# %% [markdown]
# ## 3. Look
#
# The largest coefficients with their intervals:

# %%
intervals = pairs.plot_interactions(top=12)

# %% [markdown]
# ## 4. See where the gap comes from
#
# A mosaic shows the counts as areas; blue cells hold more applicants than independence would give, orange ones fewer.
# Departments A and B, on the left, admit most of those who apply, and few women apply there; C to F reject most, and
# women apply there.

# %%
mosaic = pairs.plot_mosaic("Dept", "Gender", "Admit")

# %% [markdown]
# ## 5. Compare
#
# Two more models: one in which admission depends on the department alone, and one that forgets the departments.

# %%
same = hoim.fit("Admit*Dept + Gender*Dept", applicants)
blind = hoim.fit("Admit*Gender + Dept", applicants)
comparison = hoim.compare({"pairs": pairs, "department alone": same, "without departments": blind})
comparison

# %% [markdown]
# Leaving out the association of admission and gender costs next to nothing; leaving out the departments costs
# more than 1,000 units of AIC.

# %% [markdown]
# ## 6. Doubt
#
# Does the model of all pairs fit? A goodness-of-fit test says no, and the picture shows where: the two orange cells are
# the women who applied to department A, more of whom were admitted than one odds ratio for all departments allows.

# %%
fit_test = hoim.goodness_of_fit(pairs)
print(f"G2 = {fit_test.deviance:.2f} on {fit_test.df} degrees of freedom, p = {fit_test.p_value:.4f}")
fitted = pairs.plot_fitted()

# %% [markdown]
# ## 7. Predict
#
# The probability of admission of three applicants. Columns, types and the index are those of your data frame.

# %%
three = applicants.loc[[0, 1300, 4000], ["Gender", "Dept"]]
predictions = three.join(pairs.predict(three, "Admit"))
predictions

# %% [markdown]
# ## 8. Fill in
#
# Some answers are missing? Draw them given what is known, as often as you like (multiple imputation).

# %%
gaps = applicants.iloc[::800].copy()
gaps.loc[[800, 3200], "Gender"] = None
completed = pairs.impute(gaps, seed=1)
completed

# %% [markdown]
# ## 9. Draw
#
# New applicants from the model, here women only:

# %%
drawn = pairs.sample(1000, given={"Gender": "Female"}, seed=1)
drawn["Dept"].value_counts(normalize=True).sort_index().round(2)

# %% [markdown]
# ## 10. Share
#
# One page with tables and pictures, which opens in any browser, and the model in a file that loads again.

# %%
folder = Path(tempfile.mkdtemp())
page = pairs.report(folder)
pairs.save(folder / "pairs.safetensors")
loaded = hoim.load(folder / "pairs.safetensors")
sorted(path.name for path in folder.iterdir())

# %% [markdown]
# ## What was found
#
# Men were admitted more often over all, with an odds ratio of 1.84. Given the department there is no clear difference,
# and the little there is favours women: they applied to departments that are hard to enter. The next cell checks
# every number above; 1.84 and the test of the pairs (20.20 on 5 degrees of freedom) are those of the literature.

# %%
raw = hoim.fit("Admit*Gender", applicants).summary().set_index("term").loc["Admit:Gender"]
given = summary.set_index("term").loc["Admit:Gender"]
assert abs(float(raw["odds_ratio"]) - 1.84) < 0.005
assert 0.88 < float(given["odds_ratio"]) < 0.92
assert float(given["p_value"]) > 0.1
assert abs(fit_test.deviance - 20.20) < 0.005
assert fit_test.df == 5
aic = comparison["AIC"]
assert abs(float(aic["pairs"] - aic["department alone"])) < 2
assert float(aic["without departments"] - aic["pairs"]) > 1000
assert list(predictions.index) == [0, 1300, 4000]
assert not completed.isna().any(axis=None)
assert completed.dropna().loc[[0, 1600]].equals(gaps.loc[[0, 1600]])
assert loaded.predict(three, "Admit").equals(pairs.predict(three, "Admit"))
assert page.exists()
women = applicants.query("Dept == 'A' and Gender == 'Female'")
assert (women["Admit"] == "Admitted").sum() == 89 > 108 * float(pairs.predict(women, "Admit")["p(Admitted)"].iloc[0])
