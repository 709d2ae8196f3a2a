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
# # One table, many kinds of columns
#
# In 1996, before the presidential election between Bill Clinton and Bob Dole, 944 people were asked for whom they
# would vote, which party they leaned to, on how many days of the last week they had watched the news on television,
# where they stood between left and right, and for their age, education and income (American National Election Studies,
# as statsmodels ships it). **Which of these go together, each given all the others?**
#
# The columns are of every kind: a choice of two, a category, a count of days, and numbers. A log-linear model would
# have to cut the numbers into levels. A generalized root model gives every column the law that suits it.

# %%
# %matplotlib inline
import textwrap

import pandas as pd
from statsmodels.datasets import anes96

import pyro_hoim as hoim

answers = anes96.load_pandas().data
parties = pd.cut(answers["PID"], [-1, 1, 4, 6], labels=["Democrat", "Independent", "Republican"])
people = pd.DataFrame(
    {
        "vote": answers["vote"].map({0: "Clinton", 1: "Dole"}),
        "party": parties,
        "news": answers["TVnews"].astype(int),
        "view": answers["selfLR"],
        "age": answers["age"],
        "education": answers["educ"],
        "income": answers["income"],
    }
)
people.sample(5, random_state=1)

# %% [markdown]
# ## 1. What the columns are
#
# Text and two values say what they are. Whole numbers do not always: the values 0 to 7 could be a count, a scale, or
# the codes of eight regions. The library asks, and does not guess.

# %%
try:
    hoim.fit_roots(people)
except hoim.InputError as error:
    print(textwrap.fill(str(error), 90))

# %% [markdown]
# Days of a week are a count from 0 to 7. The answers about views, education and income are scales with many steps,
# which are numbers here, as age is: `"*"` says so of all columns that were asked for.

# %%
kinds = {"news": "bounded:7", "*": "real"}

# %% [markdown]
# ## 2. Learn
#
# Every column is regressed on all others: `vote` by a logistic regression, `party` by a multinomial one, `news` as a
# count, the rest as real numbers. Held-out rows choose the penalty, which decides what enters. Of what entered, the
# pairs that all rows confirm are in `confirmed`: at most a tenth of them should be false.

# %%
fit = hoim.learn(people, numbers="families", families=kinds, order=2)
model = fit.confirmed
print(model)

# %% [markdown]
# What was chosen for every column, and why:

# %%
model.columns.table()

# %% [markdown]
# ## 3. Read
#
# Which columns are tied to which, each given all others? The width of a line is the size of the coefficient, of roots
# divided by their standard deviations, so that years and dollars compare.

# %%
graph = model.plot_hypergraph()

# %% [markdown]
# The summary has the coefficients with their standard errors, and below them what the clearest ones mean.

# %%
summary = model.summary()
summary

# %% [markdown]
# A vote is tied to party and view, as everyone would expect, and nothing else is confirmed to matter once these two are
# known. How strongly? `effects` says what a change of another column does, all else being equal: of a category from its
# first level, of a number by about one standard deviation. Of a vote the effect is an *odds ratio*.

# %%
effects = model.effects("vote")
effects

# %% [markdown]
# Of two people who agree in all else, the odds that the one who stands a step further to the right would vote for Dole
# are about twice those of the other. The intervals take the pairs of the model as given, as the last lines of the
# table say. They are not symmetric, because the estimates keep a little of the penalty and the intervals do not.
#
# What goes with the news? Changes can be stated, such as that of age from 30 to 60 years. Of a count the effect is a
# *ratio of means*.

# %%
news = model.effects("news", change={"age": (30, 60)})
news

# %% [markdown]
# ## 4. Predict
#
# Every column can be predicted from the others: by a probability for each label, and by an interval for numbers.

# %%
three = people.iloc[[0, 100, 900]]
three.join(model.predict(three, "vote")[["p(Clinton)", "p(Dole)"]])

# %%
model.predict(three, "age")

# %% [markdown]
# ## 5. Doubt
#
# The notes of the summary have a warning: the days of news vary twice as much as the model says. Draws from the model
# should look like people. In most columns they do, but not in this one:

# %%
drawn = model.sample(5000, seed=1)
numbers = ["news", "view", "age", "education", "income"]
spread = pd.DataFrame({"table": people[numbers].std(), "model": drawn[numbers].std()})
spread.round(2)

# %% [markdown]
# The days vary more than a count from 0 to 7 does. A third of the people watch the news on every day and a sixth on
# none, which no such law has:

# %%
days = pd.DataFrame({"table": people["news"].value_counts(True), "model": drawn["news"].value_counts(True)})
days.sort_index().round(2)

# %% [markdown]
# So take the days as what they are for most people, a category: never, on some days, or on every day.

# %%
habits = pd.cut(people["news"], [-1, 0, 6, 7], labels=["never", "some days", "every day"])
again = hoim.learn(people.assign(news=habits), numbers="families", families={"*": "real"}, order=2).confirmed
odds = again.effects("news", change={"age": (30, 60)})
odds

# %% [markdown]
# The sentence that this table carries: **of two people alike in vote, party, view, education and income, the one who
# is 60 has several times the odds of the one who is 30 of watching the news every day rather than never.** The other
# pairs are those of the first model.


# %%
def pairs_of(result):
    """The pairs of columns of a model."""
    return {frozenset(names) for names in result.sets if len(names) == 2}


print("in both:", sorted(" - ".join(sorted(pair)) for pair in pairs_of(model) & pairs_of(again)))
print("in one:", sorted(" - ".join(sorted(pair)) for pair in pairs_of(model) ^ pairs_of(again)))

# %%
assert {frozenset({"vote", "party"}), frozenset({"vote", "view"})} <= pairs_of(model) & pairs_of(again)
every_day = odds[odds["levels"].str.startswith("every day")].iloc[0]
assert every_day["lower"] > 2.0  # the odds of a person of 60 over those of one of 30
