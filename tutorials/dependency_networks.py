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
# # What a dependency network is, and when to trust it
#
# A log-linear model is one distribution, from which all conditionals follow. A **dependency network** goes the other
# way: one conditional distribution $\theta_i(x_i \mid x_{-i})$ per variable, each learned by itself as a table, a
# decision graph or any classifier. That is fast and works for hundreds of variables. But conditionals learned one by
# one need not belong to any joint distribution. The network's distribution is *defined* as where a chain settles that
# redraws one variable at a time from its conditional: pseudo-Gibbs sampling.
#
# The question of this page: **is that distribution anything like the distribution of the rows?** There is a bound,
# the FC-limit, that answers without sampling. The fate of the 2,201 people on board the Titanic serves as an example.

# %%
import math

import matplotlib.pyplot as plt
import pandas as pd
import pyro
import torch

from pyro_hoim import load_table, sample_chains
from pyro_hoim.core import Law
from pyro_hoim.dependency_network import (
    DependencyNetwork,
    PseudoGibbsChains,
    check_ergodic,
    conditional_inference_error,
    cyclic_laws,
    decision_graph_figure,
    fc_limit,
    full_conditional_divergence,
    full_conditionals,
    learn_network,
    stationary_law,
)
from pyro_hoim.inference import sample_network_posterior

seed = 7
rows = load_table("titanic")
domain = rows.domain
{variable.name: variable.labels for variable in domain}

# %% [markdown]
# ## From rows to a network
#
# For each variable the learner starts with one leaf and makes the split or merge that lowers
# $H(X_i \mid Y_i) + R$ most, until none does: the entropy that is left, in nats per person, and a price for every free
# probability (MDL by default).

# %%
learned = learn_network(rows)
network = learned.conditionals
pd.DataFrame(
    [
        {"variable": n.variable, "reads": ", ".join(n.reads), "leaves": n.num_leaves, "merges": n.num_merges}
        for n in learned.nodes
    ]
).set_index("variable")

# %% [markdown]
# Every variable has a decision graph of its own. That of survival:

# %%
position = domain.index("Survived")
figure = decision_graph_figure(network.node("Survived"), learned.counts[position])
plt.show()

# %% [markdown]
# Arrows that meet are merges: groups with the same chances share a leaf, and so its rows.
#
# ## Do the conditionals have a distribution?
#
# First, does the chain forget its start? If some probabilities are zero it may be caught. The leaf tables have a
# Dirichlet prior (`alpha=1` in all per leaf), so here none is:

# %%
ergodic = check_ergodic(network)
ergodic.is_ergodic, ergodic.message

# %% [markdown]
# Then there is one stationary distribution, and with few states it is found exactly. It depends on how the chain
# picks the next variable: at random, with any probabilities, or in turn. If the conditionals belonged to one
# distribution, all of these would be that distribution, and all places in a sweep too.

# %%
law = Law(domain, stationary_law(network).probs)
observed = Law.from_observations(rows)
often = {name: 1 / 2 if name == "Class" else 1 / 6 for name in domain.names}
others = {
    "random, half of the updates on Class": stationary_law(network, scan=often).probs,
    "sequential, mean of a sweep": stationary_law(network, scan="sequential").probs,
    "sequential, just after Survived": cyclic_laws(network).after("Survived"),
    "the rows": observed.probs,
}
pd.Series(
    {name: 0.5 * float((probs - law.probs).abs().sum()) for name, probs in others.items()},
    name="total variation from the random scan's law",
).round(4).to_frame()

# %% [markdown]
# The conditionals disagree a little. How much, on the scale of the bound below: the mean divergence of the
# distribution from the conditionals that made it. It needs no rows and would be zero if they belonged together.

# %%
inconsistency = fc_limit(law, network)
round(inconsistency.value, 5)

# %% [markdown]
# ## The FC-limit
#
# How far is the distribution $p$ of the rows from the network's distribution $\pi$? Compare conditionals with
# conditionals:
#
# $$FC(p \,\|\, \pi) = \frac1n \sum_i \sum_x p(x) \log \frac{p(x_i \mid x_{-i})}{\pi(x_i \mid x_{-i})}$$
#
# This *full conditional divergence* stands to the pseudo-likelihood as KL to the likelihood; it is at most the KL
# divergence, and zero only if the distributions are equal (where all states are possible). Nothing in it can be
# computed when there are many variables, because it needs $\pi$. But for the random scan it is bounded by
#
# $$FC(p \,\|\, \pi) \;\le\; FC_{\lim}(p)
# = \frac1n \sum_i \sum_x p(x) \log \frac{p(x_i \mid x_{-i})}{\theta_i(x_i \mid x_{-i})}$$
#
# the **FC-limit**, where $\pi$'s conditionals are replaced by those that were learned. That needs rows and tables only.

# %%
limit = fc_limit(rows, network)
divergence = full_conditional_divergence(rows, law)
print(f"FC-limit {limit.value:.5f}, FC {divergence:.5f}, KL {observed.divergence(law):.5f} nats")
limit.to_pandas().round(4)

# %% [markdown]
# **How to read it.**
#
# * It is a *worst case in nats per variable*. 0.004 says: knowing all others, the network predicts a variable on the
#   average as well as the rows' own frequencies would, up to 0.4 % in the geometric mean of the probabilities.
# * It is a *sum over nodes*. A node with a large share is the one whose graph is too coarse.
# * It compares with these rows, *noise included*. It vanishes for tables that repeat the rows, which is no merit; so
#   look at rows that were not learned from, and compare networks with each other.
# * It bounds FC. KL may be larger, above all where states hang together so strongly that the chain seldom moves.
#
# So here are three networks on rows that they have not seen: variables that ignore each other, the learned graphs, and
# tables over all other variables that repeat the training rows (with a thousandth of a person added to every cell).
# Between two networks the difference of the column "other rows" is exactly that of their mean log pseudo-likelihoods,
# per variable. A second table joins, with 256 cells for 665 rows: women of Rochdale by economic activity and seven
# other attributes.


# %%
def compare(rows):
    train, test = rows.split([0.5, 0.5], seed=seed)
    nobody = {name: [] for name in rows.domain.names}
    counts = train.table() + 1e-3
    candidates = {
        "independent": learn_network(train, reads=nobody).conditionals,
        "decision graphs": learn_network(train).conditionals,
        "repeating the rows": full_conditionals(Law(rows.domain, counts / counts.sum())),
    }
    found = {
        name: {
            "FC-limit, training rows": fc_limit(train, one).value,
            "FC-limit, other rows": fc_limit(test, one).value,
            "FC, other rows": full_conditional_divergence(test, stationary_law(one)),
        }
        for name, one in candidates.items()
    }
    return pd.DataFrame(found).T


comparison = pd.concat({"titanic": compare(rows), "rochdale": compare(load_table("rochdale"))})
comparison.round(4)

# %% [markdown]
# On the training rows, repeating them always wins. On other rows it wins only where every cell has many of them, as on
# the Titanic; where cells have a few, graphs that pool them are better. The FC-limit on other rows is never
# small for Rochdale: half of 665 rows cannot tell what the frequencies in 256 cells are.

# %% [markdown]
# ## Sampling
#
# As a Pyro distribution the network draws from the stationary distribution itself if the states can be enumerated,
# and otherwise by pseudo-Gibbs chains. `log_prob` exists in the first case only; `log_pseudo_prob` always.

# %%
pyro.set_rng_seed(seed)
distribution = DependencyNetwork(network)
people = distribution.sample((5,))
print("exact draws:", distribution.sample_is_exact)
pd.DataFrame({v.name: [v.labels[int(c)] for c in people[:, i]] for i, v in enumerate(domain)}).assign(
    log_prob=distribution.log_prob(people), log_pseudo_prob=distribution.log_pseudo_prob(people)
).round(3)

# %% [markdown]
# Many chains at once, for networks of any size. Marginals come with standard errors; here they can be held against
# the exact distribution.

# %%
chains = PseudoGibbsChains(network, 256, edges=[("Class", "Survived")], seed=seed)
estimate, error = sample_chains(chains, 400, burn_in=50).probs(["Class", "Survived"])
exact = distribution.marginal(["Class", "Survived"]).probs
z_scores = (estimate - exact) / error
pd.DataFrame(
    {"estimate": estimate[:, 1], "standard error": error[:, 1], "exact": exact[:, 1].double()},
    index=pd.Index(domain["Class"].labels, name="class, survived"),
).round(4)

# %% [markdown]
# ## Questions about some variables given others
#
# Who survived among women of the third class? Clamp what is given and let the rest settle. (With one variable left this
# is a look-up of its conditional, with more it is a chain.)

# %%
given = {"Sex": "Female", "Class": "3rd"}
answer = distribution.condition(given)
answer.domain.names, answer.marginal(["Survived"]).probs

# %% [markdown]
# Each question has a clamped network of its own, whose distribution is not the conditional of the whole network's
# distribution. The FC-limits of all questions average, with the probabilities of what is given, to that of the whole
# network; so common cases are answered well, and rare ones need not be. All eight, with the FC-limit, and the KL
# divergence that it stands for:

# %%
errors = conditional_inference_error(rows, network, ["Class", "Sex"])
questions = errors.to_pandas()
questions.round(4)

# %% [markdown]
# ## How sure are the tables?
#
# With the graphs fixed the likelihood is the product of the conditionals, every leaf has its own probabilities, and
# their Dirichlet prior is conjugate: the posterior is known, and its draws are independent. Each draw is a network
# again, with a distribution of its own, so anything that is computed from a network gets an interval.

# %%
posterior = sample_network_posterior(learned, rows, num_draws=50, seed=seed)
saved = torch.stack([DependencyNetwork(posterior.network(i)).marginal(["Survived"]).probs[1] for i in range(200)])
share = float(rows.marginal_counts([("Survived",)])[1] / rows.total_count)
print(f"survival: {float(saved.mean()):.3f} +- {float(saved.std()):.3f}, in the rows {share:.3f}")

# %% [markdown]
# ## In short
#
# * Trust the conditionals first: they are what was learned, and held-out rows judge them.
# * Trust the joint distribution as far as the FC-limit on held-out rows is small, if the chain is ergodic and picks
#   variables at random with the weights of the limit.
# * Look at the inconsistency where there are few states: if distributions of different scans differ by more than you
#   care about, the joint distribution is a matter of taste.
# * Give rare evidence to a dependency network with care, and look at the FC-limit of that very question.
#
# [](dependency_network_limits.py) measures all of this on distributions that are known.
#
# ## The claims of this page, checked

# %%
assert ergodic.is_ergodic
assert divergence <= limit.value
assert divergence <= observed.divergence(law)
assert limit.value < 0.006
assert 0 < inconsistency.value < limit.value
assert max(0.5 * float((probs - law.probs).abs().sum()) for probs in others.values()) < 0.06
assert (comparison["FC, other rows"] <= comparison["FC-limit, other rows"] + 1e-12).all()
for name, best in {"titanic": "repeating the rows", "rochdale": "decision graphs"}.items():
    assert comparison.loc[name]["FC-limit, training rows"].idxmin() == "repeating the rows"
    assert comparison.loc[name]["FC-limit, other rows"].idxmin() == best
assert float(z_scores.abs().max()) < 5
assert abs(float((questions["prob"] * questions["limit"]).sum()) - sum(errors.node_means.values()) / 2) < 1e-12
assert (questions["fc"] <= questions["limit"] + 1e-12).all()
assert abs(errors.node_means["Survived"] - limit.nodes["Survived"]) < 1e-12
assert posterior.is_exact
assert torch.allclose(posterior.means["Survived"], network.node("Survived").probs)
assert abs(float(saved.mean()) - share) < 3 * float(saved.std())
assert 0.5 < float(saved.std()) / math.sqrt(share * (1 - share) / rows.total_count) < 2
assert torch.isclose(answer.marginal(["Survived"]).probs.sum(), torch.ones((), dtype=torch.float64))
