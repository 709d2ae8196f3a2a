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
# # Positive numbers that depend on each other
#
# Waiting times, amounts of rain, incomes: positive, skewed, many near zero and a few large. A normal distribution
# does not fit, and taking logarithms makes the small ones, which say least, weigh most. The **exponential root
# model** is what the exponential distribution becomes when variables interact:
#
# $$p(x) \propto \exp\Bigl(\sum_s c_s x_s + \sum_{st} c_{st} \sqrt{x_s x_t}\Bigr), \qquad x \ge 0$$
#
# **Is it worth it, may we use it, and how sure are we of the parameters?** The rows are simulated from a known model,
# so that every answer can be checked: rain at three stations. Two lie in one valley and get rain together; the one
# beyond the ridge stays dry when the first is wet.

# %%
import os
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch

from pyro_hoim import Domain
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GeneralizedRoot,
    GeneralizedRootEnergy,
    RootPseudoLikelihood,
    RootStructure,
    check_normalizable,
    fit_roots,
)
from pyro_hoim.inference import NUTSSettings, sample_root_posterior
from pyro_hoim.interop import ArvizNames, to_arviz
from pyro_hoim.schema import Variable

from studies.recovery import draw_root_rows

long = os.environ.get("PYRO_HOIM_LONG") == "1" and os.environ.get("PYRO_HOIM_SHORT") != "1"
folder = Path(os.environ.get("PYRO_HOIM_FIGURES", "."))
seed = 11
torch.set_num_threads(1)
blue, orange, grey = "#2166ac", "#d95f02", "#888888"

family = ExponentialFamily()
domain = Domain([Variable(name, kind="positive", unit="cm") for name in ("source", "bend", "ridge")])
planted = {("source", "bend"): 1.2, ("source", "ridge"): -1.5}
structure = RootStructure.simplified(domain, planted)
values = torch.tensor([planted.get(names, -1.2) for _, names in structure.names], dtype=torch.float64)
truth = GeneralizedRootEnergy.from_coefficients(structure, values, family)
rows = draw_root_rows(truth, 150, generator=torch.Generator().manual_seed(seed))
others = draw_root_rows(truth, 3000, generator=torch.Generator().manual_seed(seed + 1))
data = rows.to_tensor()
pd.DataFrame(data.numpy(), columns=domain.names).describe().round(2)

# %% [markdown]
# ## Fit
#
# One regression per variable; a small penalty keeps out what the rows do not ask for. All three pairs may enter.

# %%
fit = fit_roots(rows, family, order=2, l1=0.005)
energy = GeneralizedRootEnergy(fit.structure, fit.psi, family)
pd.DataFrame(
    {
        "planted": {
            ":".join(names): planted.get(names, -1.2 if len(names) == 1 else 0.0) for _, names in fit.structure.names
        },
        "learned": {
            ":".join(names): float(c) for (_, names), c in zip(fit.structure.names, fit.coefficients, strict=True)
        },
    }
).round(3)

# %% [markdown]
# ## May we use it?
#
# Regressions know nothing of each other, and attraction may be learned so strong that no distribution has these
# conditionals. The question has an answer before anything is sampled:

# %%
verdict = check_normalizable(energy)
print(f"{verdict.verdict}: {verdict.reason}")

# %% [markdown]
# Twice the attraction would be too much, and there is a direction to show it: a mixture of stations that rises together
# for ever.

# %%
pairs = fit.structure.slices[2, 2]
doubled = fit.psi.clone()
doubled[pairs] = 2 * doubled[pairs].clamp(min=0)
refused = check_normalizable(GeneralizedRootEnergy(fit.structure, doubled, family))
print(f"{refused.verdict}: {refused.reason}")
dict(zip(domain.names, [round(float(v), 2) for v in refused.witness], strict=True))

# %% [markdown]
# ## Is it worth it?
#
# Log pseudo-likelihood of 3,000 rows that were not learned from, against stations that ignore each other:

# %%
alone = fit_roots(rows, family, order=1)
nll = {
    "independent": -float(alone.log_pseudo_prob(others).mean()),
    "learned": -float(fit.log_pseudo_prob(others).mean()),
    "planted": -float(truth.log_pseudo_prob(others.to_tensor()).mean()),
}
pd.Series(nll, name="nats a row").round(3).to_frame()

# %% [markdown]
# And rows drawn from the learned distribution look like the data:

# %%
pyro.set_rng_seed(seed)
law = GeneralizedRoot(fit.structure, fit.psi, family)
drawn = law.sample((1000,))
figure, panels = plt.subplots(1, 3, figsize=(10, 3.5), layout="constrained")
for axes, (a, b) in zip(panels, (("source", "bend"), ("source", "ridge"), ("bend", "ridge")), strict=True):
    i, j = domain.index(a), domain.index(b)
    axes.plot(drawn[:, i], drawn[:, j], ".", color=grey, markersize=2.5, label="drawn")
    axes.plot(data[:, i], data[:, j], ".", color=orange, markersize=4, label="data")
    axes.set(xlabel=f"{a}, cm", ylabel=f"{b}, cm")
    axes.spines[["top", "right"]].set_visible(False)
panels[0].legend(frameon=False, markerscale=3)
if long:
    figure.savefig(folder / "positive_data_draws.png", dpi=80)
plt.show()


# %%
def shown(x):
    found = np.corrcoef(x.T.numpy())
    return pd.DataFrame(found, index=domain.names, columns=domain.names).round(2)


comparison = pd.concat({"data": shown(data), "drawn": shown(drawn)}, axis=1)
comparison

# %% [markdown]
# ## How sure are we?
#
# The normalising constant of three positive numbers can be integrated, of thirty not. The pseudo-likelihood needs none,
# so it goes into a Pyro program as a factor beside a prior:

# %%
full = RootStructure.complete(domain, 2).without({(2, 1): [(name,) for name in domain.names]})
likelihood = RootPseudoLikelihood(full, data, family)


def program():
    single = pyro.sample("single", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    pair = pyro.sample("pair", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    psi = torch.cat([single, pair / 2])  # coefficient = 2! times the entry of the tensor
    pyro.factor("rows", likelihood(psi))


pyro.set_rng_seed(seed)
trace = pyro.poutine.trace(pyro.poutine.condition(program, {"single": torch.full((3,), -1.2)})).get_trace()
log_joint = trace.log_prob_sum()
print(f"log joint density of one draw from the prior: {float(log_joint):.1f} nats")

# %% [markdown]
# Any of Pyro's kernels and guides takes it from there. For independent normal priors one call does it all, with a mass
# matrix from the curvature at the mode. One caution decides how to read the result: a pseudo-likelihood counts what a
# pair tells twice, once at each end, so its posterior is too narrow. `sample_root_posterior` therefore moves the draws
# until their spread is the sampling error of the estimate. `plain_covariance` says what they had before.

# %%
scale = torch.tensor([3.0] * 3 + [0.5] * 3)  # of psi: half of the coefficient of a pair
num_draws, burn_in, num_chains = (1000, 200, 4) if long else (70, 30, 2)
posterior = sample_root_posterior(
    full,
    data,
    family,
    dist.Normal(torch.zeros(6), scale).to_event(1),
    settings=NUTSSettings(num_draws=num_draws, burn_in=burn_in, num_chains=num_chains),
    seed=seed,
    progress=False,
)
named = to_arviz(posterior.run, names=ArvizNames({"psi": ["term"]}, {"term": posterior.term_names}))
summary = az.summary(named, kind="all", round_to=3)
multiplicity = np.array([1, 1, 1, 2, 2, 2])
known = np.array([planted.get(names, -1.2 if len(names) == 1 else 0.0) for _, names in full.names])
summary.insert(0, "planted", known / multiplicity)
summary.insert(4, "sd, not calibrated", posterior.plain_covariance.diagonal().sqrt().numpy().round(3))
summary[["planted", "mean", "sd", "sd, not calibrated", "ess_bulk", "r_hat"]]

# %%
pairs_at = full.slices[2, 2]
names = posterior.term_names[pairs_at]
true = known[pairs_at]
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
place = np.arange(len(names))
draws = posterior.coefficients.flatten(0, 1)[:, pairs_at]
low, middle, high = draws.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=draws.dtype), 0)
axes.hlines(place, low, high, color=blue, linewidth=2, label="90 % of the posterior")
axes.plot(middle, place, "o", color=blue, markersize=5)
mode, width = 2 * posterior.mode[pairs_at], 2 * 1.645 * posterior.plain_covariance.diagonal().sqrt()[pairs_at]
axes.hlines(place + 0.2, mode - width, mode + width, color=grey, linewidth=2, label="not calibrated")
axes.plot(true, place, "x", color=orange, markersize=8, markeredgewidth=2, label="planted")
axes.axvline(0, color=grey, linewidth=0.8)
axes.set_yticks(place, names)
axes.invert_yaxis()
axes.set_xlabel("coefficient of the root of the product, per cm")
axes.legend(frameon=False, fontsize=9)
axes.spines[["top", "right"]].set_visible(False)
if long:
    figure.savefig(folder / "positive_data_posterior.png", dpi=80)
plt.show()

# %% [markdown]
# The calibration is an approximation for many rows. Where log Z can be integrated, as for three variables, observing
# `GeneralizedRoot` itself gives the posterior without one.
#
# ## The claims of this page, checked

# %%
learned = {names: float(c) for (_, names), c in zip(fit.structure.names, fit.coefficients, strict=True)}
assert all(learned[names] * value > 0 for names, value in planted.items())
assert verdict.is_proven
assert refused.verdict == "disproven"
assert nll["planted"] < nll["learned"] < nll["independent"] - 0.02
assert (comparison["data"] - comparison["drawn"]).abs().to_numpy().max() < 0.2
assert float(summary["r_hat"].max()) < 1.1
assert posterior.num_divergences < 0.05 * num_draws * num_chains
assert bool(torch.isfinite(log_joint))
spread = posterior.coefficients.flatten(0, 1).std(0)[pairs_at]
plain, calibrated = (c.diagonal().sqrt()[pairs_at] for c in (posterior.plain_covariance, posterior.covariance))
assert bool((calibrated > plain).all())
centre = posterior.coefficients.flatten(0, 1).mean(0)[pairs_at]
assert float(((centre - torch.from_numpy(true)) / spread).abs().max()) < 4
assert {name for name, z in zip(names, centre / spread, strict=True) if abs(z) > 2} == {":".join(n) for n in planted}
