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
# # A log-linear model inside a Pyro program
#
# In 1973, 44 % of the men and 30 % of the women who applied to the six largest departments of Berkeley's graduate
# school were admitted. Departments decide, so the fair question is put within them: **does admission depend on gender
# once departments may differ?**
#
# Each department has a 2 by 2 table. Six separate fits would waste what the departments have in common, one fit would
# hide what they do not. A hierarchy does neither: every department has its own $\theta$, drawn around a common one.
# In Pyro that is a plate around an ordinary site.

# %%
import warnings

import arviz as az
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC

from pyro_hoim import HierarchicalLogLinear, InteractionHypergraph, LogLinearStatistics, load_table, to_arviz
from pyro_hoim.inference import RecordingNUTS, posterior_predictive, predictive_check
from pyro_hoim.interop import ArvizNames, compare_by_cell

seed = 1
torch.set_num_threads(1)

admissions = load_table("ucb_admissions")
departments = admissions.domain["Dept"].labels
table = admissions.table()  # float64, axes: Admit, Gender, Dept
table.sum(2)

# %% [markdown]
# ## The data, as sufficient statistics
#
# A program needs the marginal counts of each department, not its rows: one line a department, in the layout of the
# hypergraph's edges.

# %%
pair = admissions.domain.project(["Admit", "Gender"])
with_interaction = InteractionHypergraph.from_order(pair, 2)
without_interaction = InteractionHypergraph.from_order(pair, 1)
totals = table.sum((0, 1))


def counts_by_department(hypergraph):
    margins = {("Admit",): table.sum(1), ("Gender",): table.sum(0), ("Admit", "Gender"): table.flatten(0, 1)}
    return torch.cat([margins[edge] for edge in hypergraph.edges]).T


counts_by_department(with_interaction)

# %% [markdown]
# ## The program
#
# Theta lives in the free coding: orthonormal coordinates, in which a prior that treats the levels alike is a plain
# normal. Raising a coordinate raises the probability of the levels that it is named by, which are those from the second
# on: here *Rejected* and *Female*. For two binary variables the coordinate of the pair is half the log odds ratio.
# (Where variables have more levels, `normal_prior(hypergraph, scales)` takes a scale per interaction, drawn or fixed.)


# %%
def program(hypergraph, counts):
    size = hypergraph.num_parameters
    zeros = torch.zeros(size, dtype=counts.dtype)
    common = pyro.sample("common", dist.Normal(zeros, 2.0).to_event(1))
    spread = pyro.sample("spread", dist.HalfNormal(zeros + 1.0).to_event(1))
    with pyro.plate("department", len(departments)):
        theta = pyro.sample("theta", dist.Normal(common, spread).to_event(1))
        pyro.sample("counts", LogLinearStatistics(hypergraph, theta, totals), obs=counts)


def posterior(hypergraph):
    pyro.set_rng_seed(seed)
    # NUTS, with the statistics that ArviZ reads; a program without branches may be traced once, which is faster.
    kernel = RecordingNUTS(program, target_accept_prob=0.9, jit_compile=True, ignore_jit_warnings=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="num_chains=2 is more than available_cpu")  # then one after the other
        chains = MCMC(kernel, num_samples=250, warmup_steps=150, num_chains=2, disable_progbar=True)
        chains.run(hypergraph, counts_by_department(hypergraph))
    return chains


# %% [markdown]
# ## Diagnosis and comparison in ArviZ
#
# `to_arviz` names the dimensions. All applicants of one cell share one term of the log-likelihood, so 24 terms with
# their counts stand for 4,526 applicants, and leave-one-out is computed once per cell.

# %%
states = torch.cartesian_prod(torch.arange(2), torch.arange(2))


def log_likelihood_by_cell(hypergraph, theta):
    law = HierarchicalLogLinear(hypergraph, theta)  # batch: chain, draw, department
    terms = law.log_prob(states[:, None, None, None, :])
    return terms.permute(1, 2, 0, 3).flatten(2)


def analysed(hypergraph):
    chains = posterior(hypergraph)
    theta = chains.get_samples(group_by_chain=True)["theta"]
    return to_arviz(
        chains,
        log_likelihood={"applicants": log_likelihood_by_cell(hypergraph, theta)},
        cell_count=table.flatten(0, 1).flatten(),
        names=ArvizNames(
            dims={"theta": ["department", "coordinate"], "common": ["coordinate"], "spread": ["coordinate"]},
            coords={"department": departments, "coordinate": [":".join(edge) for edge in hypergraph.edges]},
        ),
    )


results = {"gender matters": analysed(with_interaction), "gender does not": analysed(without_interaction)}
summary = az.summary(results["gender matters"], var_names=["common", "spread"])
summary

# %% [markdown]
# Twice the last coordinate is the log odds ratio of being *admitted* and *male*.

# %%
draws = 2 * results["gender matters"].posterior
ratios = draws["theta"].sel(coordinate="Admit:Gender").quantile([0.05, 0.5, 0.95], dim=["chain", "draw"])
common = draws["common"].sel(coordinate="Admit:Gender").quantile([0.05, 0.5, 0.95], dim=["chain", "draw"])
crude = float((table.sum(2)[0, 0] * table.sum(2)[1, 1] / (table.sum(2)[0, 1] * table.sum(2)[1, 0])).log())
print(f"departments ignored: {crude:+.2f}")
print(f"common to departments: {common[1]:+.2f} ({common[0]:+.2f} to {common[2]:+.2f})")
ratios.to_pandas().round(2)

# %% [markdown]
# Ignoring departments, men are favoured. Within departments they are not: the common log odds ratio has no clear
# sign, and in department A it is women who were favoured. More of them applied to departments that admit few.

# %%
comparison = compare_by_cell(results)
comparison.iloc[:, :6]

# %% [markdown]
# The interaction is worth having for department A alone. Here is one more use of the same distribution: what would
# one more applicant's sex say about admission in A? Conditioning is exact and works on all posterior draws at once.

# %%
theta = torch.as_tensor(results["gender matters"].posterior["theta"].values)[0, :, 0]
for gender in ("Male", "Female"):
    admitted = HierarchicalLogLinear(with_interaction, theta).condition({"Gender": gender}).probs[:, 0]
    print(f"Pr(admitted | A, {gender}) = {admitted.mean():.2f} +- {admitted.std():.2f}")

# %% [markdown]
# ## A posterior predictive check
#
# Every draw of theta gives expected counts and a replicated data set of the same size. If the program describes the
# data, the observed deviance is exceeded by the replicated one in about half of the draws.


# %%
def predictive_p_value(hypergraph, result):
    theta = torch.as_tensor(result.posterior["theta"].values)
    checks = []
    for k, total in enumerate(totals):
        replicates = posterior_predictive(hypergraph, theta[:, :, k], int(total), seed=k)
        checks.append(predictive_check(replicates, table[..., k]))
    observed, replicated = sum(c.observed for c in checks), sum(c.replicated for c in checks)
    return float((replicated >= observed).double().mean())


p_values = {
    "gender matters": predictive_p_value(with_interaction, results["gender matters"]),
    "gender does not": predictive_p_value(without_interaction, results["gender does not"]),
}
p_values

# %% [markdown]
# ## The claim, checked

# %%
assert crude > 0.5
assert common[0] < 0 < common[2]
assert float(ratios.sel(department="A")[2]) < 0
assert comparison.index[0] == "gender matters"
assert float(summary["r_hat"].max()) < 1.05
assert p_values["gender matters"] > 0.2
assert p_values["gender does not"] < 0.1
