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
# Waiting times, amounts of rain, incomes: positive, skewed, many near zero and a few large. A normal law does not fit,
# and taking logarithms makes the small ones, which say least, weigh most. The **exponential root model** is what the
# exponential law becomes when variables interact:
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
from pyro_hoim.analysis.root_recovery import draw_root_rows
from pyro_hoim.distributions import GeneralizedRoot
from pyro_hoim.inference import RecordingNUTS, run_mcmc
from pyro_hoim.interop import to_arviz
from pyro_hoim.learning.root_regression import fit_roots
from pyro_hoim.models import ExponentialFamily, GeneralizedRootEnergy, RootStructure, check_normalizable
from pyro_hoim.schema import Variable

long = os.environ.get("PYRO_HOIM_LONG") == "1" and os.environ.get("PYRO_HOIM_SHORT") != "1"
folder = Path(os.environ.get("PYRO_HOIM_FIGURES", "."))
seed = 11
torch.set_num_threads(1)
blue, orange, grey = "#2166ac", "#d95f02", "#888888"

family = ExponentialFamily()
domain = Domain([Variable(name, kind="real", unit="cm") for name in ("source", "bend", "ridge")])
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
# Regressions know nothing of each other, and attraction may be learned so strong that no law has these conditionals.
# The question has an answer before anything is sampled:

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
# And rows drawn from the learned law look like the data:

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
# so it goes into a Pyro program as a factor beside a prior. NUTS does the rest; where a trial step has no law, the
# factor is not a number and the step is rejected.

# %%
full = RootStructure.complete(domain, 2).without({(2, 1): [(name,) for name in domain.names]})


def program(x):
    single = pyro.sample("single", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    pair = pyro.sample("pair", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    psi = torch.cat([single, pair / 2])  # coefficient = 2! times the entry of the tensor
    pyro.factor("rows", GeneralizedRoot(full, psi.double(), family).log_pseudo_prob(x).sum())


num_draws, num_chains = (500, 4) if long else (50, 2)
learned = {names: float(c) for (_, names), c in zip(fit.structure.names, fit.coefficients, strict=True)}
start = {
    "single": torch.tensor([learned[(name,)] for name in domain.names]),
    "pair": torch.tensor([learned.get(names, 0.0) for names in full.tuples((2, 2))]),
}
run = run_mcmc(
    RecordingNUTS(program, full_mass=True, max_tree_depth=7 if long else 3),
    num_draws,
    num_warmup=num_draws,
    num_chains=num_chains,
    seed=seed,
    model_args=(data,),
    initial_params={name: value.expand(num_chains, -1).clone() for name, value in start.items()},
    progress=False,
)
named = to_arviz(
    run,
    dims={"single": ["station"], "pair": ["stations"]},
    coords={"station": list(domain.names), "stations": [":".join(names) for names in full.tuples((2, 2))]},
)
summary = az.summary(named, kind="all", round_to=3)
known = {f"single[{name}]": -1.2 for name in domain.names}
known |= {f"pair[{':'.join(names)}]": planted.get(names, 0.0) for names in full.tuples((2, 2))}
summary.insert(0, "planted", [known[name] for name in summary.index])
summary[["planted", "mean", "sd", "ess_bulk", "r_hat"]]

# %%
pair_draws = run.samples["pair"].flatten(0, 1)
names = [":".join(n) for n in full.tuples((2, 2))]
true = [planted.get(n, 0.0) for n in full.tuples((2, 2))]
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
low, middle, high = pair_draws.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=pair_draws.dtype), 0)
place = np.arange(len(names))
axes.hlines(place, low, high, color=blue, linewidth=2, label="90 % of the posterior")
axes.plot(middle, place, "o", color=blue, markersize=5)
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
# One caution. A pseudo-likelihood counts what a pair tells twice, once at each end, so its intervals are too narrow:
# here the one of source and bend misses the planted value. Take it as a guide; where log Z can be integrated, as for
# three variables, observe `GeneralizedRoot` itself.
#
# ## The claims of this page, checked

# %%
assert all(learned[names] * value > 0 for names, value in planted.items())
assert verdict.is_proven
assert refused.verdict == "disproven"
assert nll["planted"] < nll["learned"] < nll["independent"] - 0.02
assert (comparison["data"] - comparison["drawn"]).abs().to_numpy().max() < 0.2
assert float(summary["r_hat"].max()) < 1.1
assert int(run.num_divergences) < 0.05 * num_draws * num_chains
centre, spread = pair_draws.mean(0), pair_draws.std(0)
assert float(((centre - torch.tensor(true)) / spread).abs().max()) < 5
sure = {name for name, a, b in zip(names, low, high, strict=True) if a > 0 or b < 0}
assert {":".join(n) for n in planted} <= sure
