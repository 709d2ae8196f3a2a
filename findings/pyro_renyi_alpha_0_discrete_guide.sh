#!/usr/bin/env bash
# Pyro 1.9.2: RenyiELBO(alpha=0), the importance-weighted bound, has no gradient for a discrete guide.
#
# A Bernoulli guide is not reparametrised, so a gradient needs the score function. Seen: with alpha = 0 the gradient of
# the guide's parameter is exactly 0 and training ends where it began, without a warning, while alpha = 0.5 and
# TraceGraph_ELBO give gradients for the same model, guide and seed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 pyro-ppl==1.9.2 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import RenyiELBO, TraceGraph_ELBO


def model():
    z = pyro.sample("z", dist.Bernoulli(0.3))
    pyro.sample("y", dist.Normal(z, 1.0), obs=torch.tensor(2.0))


def guide():
    q = pyro.param("q", torch.tensor(0.5), constraint=dist.constraints.unit_interval)
    pyro.sample("z", dist.Bernoulli(q))


gradients = {}
for name, bound in {
    "RenyiELBO(alpha=0)": RenyiELBO(alpha=0, num_particles=50),
    "RenyiELBO(alpha=0.5)": RenyiELBO(alpha=0.5, num_particles=50),
    "TraceGraph_ELBO": TraceGraph_ELBO(num_particles=50),
}.items():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    bound.loss_and_grads(model, guide)
    gradients[name] = pyro.param("q").unconstrained().grad.item()
print("pyro", pyro.__version__, "torch", torch.__version__)
print({name: round(value, 4) for name, value in gradients.items()})
assert gradients["RenyiELBO(alpha=0)"] == 0.0
assert all(abs(value) > 0.01 for name, value in gradients.items() if name != "RenyiELBO(alpha=0)")
print("as described")
PYTHON
