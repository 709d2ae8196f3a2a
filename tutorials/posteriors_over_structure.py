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
# # Which interactions exist? Posteriors over structure
#
# A search ends with one collection of interactions. A posterior over collections says which of them the rows support,
# how much, and what is left open. The table is that of six risk factors of 1,841 Czech car workers.
#
# The question: **how sure are we of each interaction, and how much of that is the prior on theta?** Listing every
# collection needs no random numbers; what does has its seed shown.

# %%
import json
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from itertools import combinations
from pathlib import Path

import pandas as pd
import pyro
import torch

from pyro_hoim import Domain, InteractionHypergraph, Observations, load_table
from pyro_hoim.cli import run
from pyro_hoim.inference import StructurePrior, enumerate_structures, load_structure_posterior, log_evidence
from pyro_hoim.log_linear import horseshoe_prior

table = load_table("czech_autoworkers")
names = dict(zip("abcdef", table.domain.names, strict=True))
letters = {name: letter for letter, name in names.items()}
letters


# %%
def model(text: str) -> InteractionHypergraph:
    """The hierarchical collection of a generating class such as "ace,bc,de,f"."""
    edges = [[names[letter] for letter in edge] for edge in text.split(",")]
    return InteractionHypergraph(table.domain, edges, closure=True)


def short(hypergraph: InteractionHypergraph) -> str:
    """The generating class in letters."""
    return ",".join(sorted("".join(letters[name] for name in edge) for edge in hypergraph.maximal_edges))


# %% [markdown]
# ## A distribution over collections
#
# `StructurePrior` is a Pyro distribution over vectors of 0 and 1, one entry for every set of two and more variables;
# main effects are always present. A *space* says which vectors are possible: hierarchical collections, graphs,
# decomposable graphs, or pairs alone. Every collection is as probable unless `inclusion` says otherwise: a probability,
# `("beta", a, b)` for an unknown one, or an `expected_size`.

# %%
decomposable = StructurePrior(table.domain, space="decomposable")
pairs = StructurePrior(table.domain, space="pairwise")
sparse = StructurePrior(table.domain, space="pairwise", expected_size=3)
print(
    len(decomposable.enumerate_support()), "decomposable collections,", len(pairs.enumerate_support()), "sets of pairs"
)
print(
    "prior probability of a pair:",
    float(pairs.marginal_inclusion[0]),
    "or",
    round(float(sparse.marginal_inclusion[0]), 3),
)

# %% [markdown]
# Above 2^16 collections a space is not listed. `log_prob` is then known up to a constant (`unnormalised`) and draws
# come from a chain (`sample_is_exact` is false).

# %%
every = StructurePrior(table.domain)
print(every.unnormalised, every.sample_is_exact, every.space.size_text)

# %% [markdown]
# ## The evidence of one collection
#
# The evidence is the probability of the rows with theta integrated out. With the conjugate prior of Diaconis and
# Ylvisaker it has a closed form on decomposable collections (Massam, Liu and Dobra, 2009). These are the five best ones
# for one fictive row that the R package `bayesloglin` prints, by their distance from the first.

# %%
published = {
    "ace,bc,de,f": 0.0,
    "ace,ade,bc,f": 0.872,
    "ace,ad,bc,f": 0.898,
    "ac,bc,be,de,f": 1.426,
    "ace,bc,bf,de": 1.581,
}
exact = {text: log_evidence(model(text), table, "conjugate:1").value for text in published}
laplace = {text: log_evidence(model(text), table, "conjugate:1", method="laplace").value for text in published}
best = exact["ace,bc,de,f"]
comparison = pd.DataFrame(
    {
        "parameters": {text: model(text).num_parameters for text in published},
        "published": published,
        "below the best": {text: best - value for text, value in exact.items()},
        "Laplace is too large by": {text: laplace[text] - exact[text] for text in published},
    }
)
print(f"log evidence of the best: {best:.3f}")
comparison.round(3)

# %% [markdown]
# The last column is the price of Laplace's method with this prior: one fictive row spread over 64 cells is a
# distribution far from normal, its constant comes out too small by nats, and the more so the more parameters there
# are. The posterior of theta given 1,841 rows is nearly normal; that part is right to 0.02 nats. Annealing in the
# number of rows (`path`) finds the constant for any collection, with a standard error:

# %%
checked = log_evidence(model("ace,bc,de,f"), table, "conjugate:1", method="path", seed=0)
print(f"{checked.value:.3f} +- {checked.std_error:.3f}, exact {best:.3f}, Laplace {laplace['ace,bc,de,f']:.3f}")

# %% [markdown]
# ## Every decomposable collection
#
# All 18,154 of them take about a second, and every number is exact.

# %%
posterior = enumerate_structures(table, "conjugate:1", decomposable)
for hypergraph, probability, value in posterior.models(5):
    print(f"{probability:.4f}  {value:.3f}  {short(hypergraph)}")
print("median model:", short(posterior.median_model), "-", posterior.status)

# %% [markdown]
# With Laplace's method in the place of the closed form the same prior gives other answers. Half the sum of the absolute
# differences of all probabilities:


# %%
def distance(p: torch.Tensor, q: torch.Tensor) -> float:
    """Total variation."""
    return 0.5 * float((p - q).abs().sum())


approximate = enumerate_structures(table, "conjugate:1", decomposable, method="laplace")
unit = enumerate_structures(table, "unit", decomposable)
to_exact = distance(posterior.probabilities, approximate.probabilities)
to_unit = distance(approximate.probabilities, unit.probabilities)
print(f"Laplace, conjugate prior: {to_exact:.3f} from the exact posterior, {to_unit:.3f} from unit information")

# %% [markdown]
# So that approximation with one fictive row is in effect another prior: the normal one of **unit information**, which
# knows as much as one row of a uniform table. Hence the default here is that prior itself. Its constant is known
# for every collection, and only the posterior of theta, which is nearly normal, is approximated.
#
# ## All sets of pairs

# %%
both = enumerate_structures(table, "unit", pairs)
for hypergraph, probability, _ in both.models(4):
    print(f"{probability:.3f}  {short(hypergraph)}")
columns = {
    "all pairs, unit information": both,
    "three pairs expected": enumerate_structures(table, "unit", sparse),
    "normal, scale 1": enumerate_structures(table, "normal:1", pairs),
    "normal, scale 10": enumerate_structures(table, "normal:10", pairs),
}
inclusion = pd.DataFrame({name: found.inclusion.mean[:15].numpy() for name, found in columns.items()})
inclusion.index = ["".join(letters[name] for name in edge) for edge in pairs.space.candidates]
inclusion.round(3)

# %% [markdown]
# Five pairs are there under any of these priors. `be` and `ce` replace each other: nearly always one of the two is
# present, and the table cannot tell which. A search that ends with one model hides this. Wide priors on theta favour
# small collections, whatever the rows say: the scale is part of the question.

# %%
be, ce = ([names["b"], names["e"]], [names["c"], names["e"]])
is_there = both.gamma[:, pairs.index(be)] | both.gamma[:, pairs.index(ce)]
either = float(both.probabilities @ is_there.double())
print(f"be {both.inclusion[be]:.3f}, ce {both.inclusion[ce]:.3f}, one or both {either:.3f}")
print(f"Bayes factor of ad: {both.bayes_factor([names['a'], names['d']]):.1f}")

# %% [markdown]
# ## Averages over collections
#
# `cell_probabilities` is the posterior mean of the table, over theta and over collections; `sample` draws both, and
# `predict` foretells one column of new rows from what is known of them, here of somebody who smokes and no more.

# %%
averaged = both.cell_probabilities()
draws = both.sample(2000, seed=0)
print(averaged.shape, float(averaged.sum()), draws.gamma.shape, draws.theta.shape)
print("share of draws with ad:", float(draws.gamma[:, pairs.index([names["a"], names["d"]])].mean()))

smoker = Observations.from_tensor(torch.tensor([[0]]), Domain([table.domain[names["a"]]]))
found = both.predict(smoker, names["e"])
given = averaged.sum((1, 2, 3, 5))[0]
print(f"{names['e']} given {names['a']}:", dict(zip(found.labels, found.probs[0].tolist(), strict=True)))

# %% [markdown]
# ## Shrinking instead of leaving out
#
# A horseshoe keeps every interaction and gives each a scale of its own, near zero for most and free for a few. Nothing
# discrete is left to explore, NUTS draws theta, and no interaction has a probability of being there. What it says
# beforehand can be drawn: how much of every pair is let through, 1 - 1 / (1 + (tau lambda)^2), for three scales of tau.
# Here the scale of a triple is kept below those of its pairs, as heredity does for indicators.

# %%
orders = InteractionHypergraph.from_order(table.domain, 3)
first_pair, first_triple = (orders.parameter_slices[edge].start for edge in (orders.edges[6], orders.edges[21]))


def drawn_scales(overall_scale: float, num_draws: int = 200) -> torch.Tensor:
    """Scales of all coordinates under draws of the prior, (num_draws, num_parameters)."""
    prior = horseshoe_prior(orders, overall_scale=overall_scale)
    found = []
    with pyro.poutine.seed(rng_seed=0):
        for _ in range(num_draws):
            nodes = pyro.poutine.trace(prior).get_trace().nodes
            found.append(prior.scales(*(nodes[name]["value"] for name in ("overall", "own", "slab"))))
    return torch.stack(found)


scales = {overall: drawn_scales(overall) for overall in (0.01, 0.1, 1.0)}
shrunk = pd.DataFrame(
    {
        "pairs with a scale above 0.1 nats": {
            k: float((v[:, first_pair:first_triple] > 0.1).double().sum(1).mean()) for k, v in scales.items()
        },
        "triples with a scale above 0.1 nats": {
            k: float((v[:, first_triple:] > 0.1).double().sum(1).mean()) for k, v in scales.items()
        },
    }
)
shrunk.round(1)

# %% [markdown]
# There are 15 pairs and 20 triples. In a program the prior stands where theta is needed:
# `LogLinearStatistics(orders, prior(), total)` inside the model, under `NUTS` with `target_accept_prob` near 0.95.

# %%
parents = {
    triple: [orders.parameter_slices[pair].start for pair in combinations(triple, 2)] for triple in orders.edges[21:41]
}
triples_stay_below = all(
    bool((scales[1.0][:, orders.parameter_slices[triple].start] < scales[1.0][:, pairs_of].min(1).values).all())
    for triple, pairs_of in parents.items()
)

# %% [markdown]
# ## The same from the command line
#
# ```
# pyro-hoim structures czech_autoworkers --space decomposable --prior conjugate:1 --out DIR
# ```
#
# writes a page with the interactions, the most probable collections, other priors and averaged cells, and the posterior
# as a file. Run from here, it gives the numbers above.

# %%
with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
    options = ["--space", "decomposable", "--prior", "conjugate:1"]
    status = run(["structures", "czech_autoworkers", *options, "--out", f"{folder}/out"])
    told = json.loads(Path(folder, "out", "fit.json").read_text())["structure_posterior"]
    kept = load_structure_posterior(Path(folder, "out", told["file"]))

# %% [markdown]
# Leave-one-out asks which collection predicts rows it has not seen; stacking weights are those of the mixture that does
# so with the largest density. Neither is a probability of a collection, and they need not agree with the evidence.

# %%
columns = ["probability", "log_evidence", "elpd_loo", "elpd_se", "stacking_weight"]
rivals = pd.DataFrame(told["models"], index=[short(model.hypergraph) for model in kept.models(5)])[columns]
rivals.round(3)

# %% [markdown]
# The same list under other priors, each by the evidence of every collection under it: with four times the information
# two interactions of three variables are likely, with a quarter neither is.

# %%
others = pd.DataFrame(
    {text: kept.reweighted(text).inclusion.mean.numpy() for text in ("conjugate:0.25", "conjugate:1", "conjugate:4")},
    index=["".join(letters[name] for name in edge) for edge in kept.inclusion.edges],
)
others[others.max(axis=1) > 0.3].round(3)

# %% [markdown]
# ## What was claimed

# %%
for text, below in published.items():
    assert abs(best - exact[text] - below) < 1e-3
assert abs(best + 6732.459) < 1e-3
assert abs(posterior.models(1)[0].probability - 0.2489) < 1e-3
assert posterior.is_exact
assert not both.is_exact
assert 5.2 < laplace["ace,bc,de,f"] - best < 5.4
assert abs(checked.value - best) < 5 * checked.std_error
assert to_exact > 0.4
assert to_unit < 0.01
assert short(both.models(1)[0].hypergraph) == "ac,ad,ae,bc,ce,de,f"
assert either > 0.99
assert 0.4 < both.inclusion[be] < 0.6
assert (inclusion.loc[["ac", "ad", "ae", "bc", "de"]] > 0.5).all().all()
assert abs(float(averaged.sum()) - 1) < 1e-12
assert torch.allclose(found.probs[0], given / given.sum())
assert status == 0
assert torch.equal(kept.inclusion.mean, posterior.inclusion.mean)
assert rivals["stacking_weight"].iloc[0] < 0.1 < rivals["probability"].iloc[0]
assert others["conjugate:1"].round(3)["ce"] == 0.743
assert (others.loc[["ace", "ade"], "conjugate:4"] > 0.5).all()
assert (others.loc[["ace", "ade"], "conjugate:0.25"] < 0.2).all()
assert triples_stay_below
assert shrunk.iloc[:, 0].is_monotonic_increasing
assert (shrunk.iloc[:, 1] / 20 < shrunk.iloc[:, 0] / 15).all()
