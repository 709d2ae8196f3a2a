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
# # Survey weights and ordered categories
#
# Two things set tables of social surveys apart. Their answers are *ordered* ("always wrong", "almost always wrong",
# ...), which a model of whole interactions ignores. And their rows carry *weights*, which say how many people a
# respondent stands for; usual standard errors take them for numbers of respondents.
#
# The questions: **how much of an association do scores explain, and what are the standard errors under weights?**

# %%
import numpy as np
import pandas as pd

from pyro_hoim import Domain, InteractionHypergraph, Observations, Variable, fit, goodness_of_fit
from pyro_hoim.log_linear import coefficient_table, likelihood_ratio_test
from pyro_hoim.plots import plot_association, plot_forest

seed = 0

# %% [markdown]
# ## One parameter in the place of nine
#
# 926 respondents of the General Social Survey 1991 on sex before marriage and on birth control for teenagers (Alan
# Agresti, *Categorical Data Analysis*, 2002, table 9.3).

# %%
wrong = ("always wrong", "almost always", "sometimes", "not wrong")
agree = ("strongly disagree", "disagree", "agree", "strongly agree")
opinions = Observations.from_table(
    Domain([Variable("premarital", wrong, kind="ordinal"), Variable("teenage", agree, kind="ordinal")]),
    [[81, 68, 60, 38], [24, 26, 29, 14], [18, 41, 74, 42], [36, 57, 161, 157]],
)
independent = fit("premarital + teenage", opinions)
ordered = fit("linear(premarital):linear(teenage)", opinions)
saturated = fit("premarital*teenage", opinions)
pd.DataFrame(
    {
        name: {"parameters": result.num_parameters, "G2": goodness_of_fit(result).deviance}
        for name, result in (("independent", independent), ("linear by linear", ordered), ("saturated", saturated))
    }
).T.round(2)

# %% [markdown]
# `linear(premarital):linear(teenage)` restricts the interaction to $\beta u_i v_j$ with the scores 1, 2, 3, 4. One
# parameter takes 116 of the 128 units of $G^2$. Residuals against independence are well above 2 in the corners.
# Against the model with scores none is.

# %%
plot_association(opinions)
# %%
plot_association(opinions, expected=ordered.num_rows * ordered.probs.numpy().reshape(4, 4))
# %% [markdown]
# The coefficient is the log odds ratio of any two neighbouring levels: 0.286, with a standard error of 0.028. Scores of
# your own go into the formula, `linear(premarital, 1, 2, 4, 5)`; `linear(premarital):teenage` gives every answer on
# teenagers a slope of its own. Does it add anything?

# %%
beta = coefficient_table(ordered).iloc[-1]
slopes = fit("linear(premarital):teenage", opinions)
more = likelihood_ratio_test(ordered, slopes)
print(f"beta = {beta['estimate']:.3f} ({beta['std_error']:.3f}), odds ratio {np.exp(beta['estimate']):.2f}")
print(f"slopes that differ: G2 = {more.statistic:.2f} on {more.df} df, p = {more.p_value:.2f}")

# %% [markdown]
# ## Square tables
#
# The unaided vision of 7,477 women, right and left eye (Alan Stuart, 1955). The eyes agree, of course, so that
# independence is no question. Is the table *symmetric*, apart from the margins? And are the margins alike? The
# difference between symmetry, `tied`, and quasi-symmetry, `symmetric`, tests the second.

# %%
grades = ("highest", "second", "third", "lowest")
vision = Observations.from_table(
    Domain.from_labels({"right": grades, "left": grades}),
    [[1520, 266, 124, 66], [234, 1512, 432, 78], [117, 362, 1772, 205], [36, 82, 179, 492]],
)
symmetry, quasi = fit("tied(right, left)", vision), fit("symmetric(right, left)", vision)
shape, margins = goodness_of_fit(quasi), likelihood_ratio_test(symmetry, quasi)
print(f"quasi-symmetry: G2 = {shape.deviance:.2f} on {shape.df} df, p = {shape.p_value:.3f}")
print(f"equal margins:  G2 = {margins.statistic:.2f} on {margins.df} df, p = {margins.p_value:.4f}")

# %% [markdown]
# ## Rows with weights
#
# A made-up survey of 1,200 people in 300 households, whose members think alike. One region was oversampled, so that its
# people stand for fewer others. Opinion and region move votes; age has nothing to do with anything.

# %%
random = np.random.default_rng(seed)
household = np.repeat(np.arange(300), 4)
region = np.repeat(random.random(300) < 0.6, 4).astype(int)
old = random.random(1200) < 0.5
lean = np.repeat(random.normal(size=300), 4)
yes = lean + random.normal(size=1200) > 0
votes = 0.8 * yes + lean + 0.5 * region + random.normal(size=1200) > 0.5
weights = np.where(region == 1, 0.4, 2.2)
survey = pd.DataFrame({"region": region, "old": old, "opinion": yes, "votes": votes, "w": weights})
result = fit(".^2", survey, weights="w")
print(f"{len(survey)} rows, {result.effective_num_rows:.0f} effective rows of equal weight")

# %% [markdown]
# Errors of the model take the weights for counts. Robust ones hold for weights, and with `clusters` for households too.
# They do not change when all weights are multiplied by ten; those of the model do.

# %%
clustered = result.robust_covariance(clusters=household)
tables = {
    kind: coefficient_table(result, covariance=covariance)
    for kind, covariance in (("model", "model"), ("robust", "robust"), ("clustered", clustered))
}
pairs = tables["model"]["interaction"].str.contains(":")
errors = pd.DataFrame({kind: table["std_error"][pairs] for kind, table in tables.items()})
errors.insert(0, "interaction", tables["model"]["interaction"][pairs])
errors.round(3)

# %%
frame = tables["clustered"][pairs]
plot_forest(
    frame["interaction"].tolist(),
    *(frame[c].to_numpy() for c in ("estimate", "lower", "upper")),
    label="log odds ratio, 95 % interval from households",
)
# %% [markdown]
# ## Which pairs are there?
#
# Six tests at 5 % find something false one time in four. `test_terms` adjusts the p-values, here such that on average
# at most 5 % of the pairs found are false. With a robust covariance the likelihood ratio is corrected by its design
# effect (Rao and Scott).

# %%
tests = result.test_terms(covariance=clustered, correction="benjamini-hochberg")
tests.drop(columns=["note", "removal"]).round(4)

# %% [markdown]
# ## How often do the intervals cover?
#
# Two hundred surveys of two independent answers, both shared in households of four, and the 95 % interval of their log
# odds ratio, which is zero. The errors of the model are far too small.

# %%
domain = Domain.from_cardinalities({"old": 2, "opinion": 2})
graph, covered = InteractionHypergraph.saturated(domain), []
for _ in range(200):
    leans = np.repeat(random.normal(size=(2, 150)), 4, axis=1)  # of age and of opinion, independently
    codes = (2.5 * leans + random.normal(size=(2, 600)) > 0).astype(int).T
    weights = random.choice([0.4, 2.2], size=600)
    one = fit(graph, Observations.from_tensor(codes, domain, weights=weights))
    robust = one.robust_covariance(clusters=np.repeat(np.arange(150), 4))
    estimate = float(one.coefficients("corner")[-1])
    covered.append(
        {
            kind: abs(estimate) <= 1.96 * float(one.standard_errors("corner", covariance)[-1])
            for kind, covariance in (("model", "model"), ("clustered", robust))
        }
    )
coverage = pd.DataFrame(covered).mean()
coverage

# %% [markdown]
# ## The claim, checked

# %%
assert round(goodness_of_fit(independent).deviance, 1) == 127.7
assert round(goodness_of_fit(ordered).deviance, 2) == 11.53
assert (round(beta["estimate"], 3), round(beta["std_error"], 3)) == (0.286, 0.028)
assert (round(shape.deviance, 2), round(margins.statistic, 2)) == (7.27, 11.98)
found = set(tests["term"][tests["p_value_adjusted"] < 0.05])
assert "opinion:votes" in found
assert not found & {"region:old", "old:opinion", "old:votes"}
assert coverage["clustered"] > 0.9 > 0.85 > coverage["model"]
