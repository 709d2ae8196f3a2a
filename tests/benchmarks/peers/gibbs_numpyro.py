"""Gibbs sampling of a binary model by NumPyro's DiscreteHMCGibbs; run by ../bench_gibbs.py in NumPyro's environment.

    python gibbs_numpyro.py MODELS.npz MODEL SWEEPS CHAINS

A continuous site that nothing depends on is added because the kernel needs one. A sweep visits every variable once.
Prints one JSON line with the rates of a first and of a second run of the same object.
"""

import json
import sys
import time
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC, MCMC, DiscreteHMCGibbs

stored = np.load(sys.argv[1], allow_pickle=False)
name, num_sweeps, num_chains = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
cards = stored[f"{name}/cards"]
scopes = json.loads(str(stored[f"{name}/scopes"]))
weights = stored[f"{name}/weights"]
parts = []
for size in sorted({len(s) for s in scopes}):
    chosen = [i for i, s in enumerate(scopes) if len(s) == size]
    parts.append((jnp.array([scopes[i] for i in chosen]), jnp.array(weights[chosen])))


def model():
    numpyro.sample("unused", dist.Normal(0, 1))
    x = numpyro.sample("x", dist.Bernoulli(0.5).expand([len(cards)]))
    spins = 2.0 * x - 1.0
    for members, weight in parts:
        numpyro.factor(f"order {members.shape[1]}", (weight * jnp.prod(spins[..., members], -1)).sum(-1))


kernel = DiscreteHMCGibbs(HMC(model, num_steps=1, step_size=0.1, adapt_step_size=False, adapt_mass_matrix=False))
method = jax.vmap if num_chains > 1 else "sequential"
mcmc = MCMC(
    kernel, num_warmup=0, num_samples=num_sweeps, num_chains=num_chains, chain_method=method, progress_bar=False
)
rates = []
for seed in range(2):
    start = time.perf_counter()
    mcmc.run(jax.random.key(seed))
    jax.block_until_ready(mcmc.get_samples()["x"])
    rates.append(len(cards) * num_sweeps * num_chains / (time.perf_counter() - start))
result = {
    "model": name,
    "peer": f"numpyro {version('numpyro')} DiscreteHMCGibbs",
    "chains": num_chains,
    "sweeps": num_sweeps,
    "rate_first": rates[0],
    "rate": rates[1],
    "means": np.asarray(mcmc.get_samples()["x"], dtype=float).mean(0).tolist(),
}
print(json.dumps(result), flush=True)
