#!/usr/bin/env bash
# Pyro 1.9.2: poutine.scale around an enumerated site and its observation stands in three places, by who computes.
#
# With the scale s = 3 around both, s log sum_z p(z) p(y|z) = -2.946695 and log sum_z (p(z) p(y|z))^s = -3.207145.
# Seen: TraceEnum_ELBO gives the first, the potential of NUTS the second, and infer_discrete draws z as if there were no
# scale at all (P(z=1|y) = 0.0834, where the scaled weights have 0.0008). Weights of rows by poutine.scale around a
# mixture therefore fit another model with NUTS than with SVI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 pyro-ppl==1.9.2 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import TraceEnum_ELBO, infer_discrete
from pyro.infer.mcmc.util import initialize_model

torch.set_default_dtype(torch.float64)
prior, y, scale = torch.tensor([0.9, 0.1]), torch.tensor(0.3), 3.0
joint = prior.log() + dist.Normal(torch.tensor([0.0, 1.0]), 1.0).log_prob(y)
outside, inside = scale * joint.logsumexp(0).item(), (scale * joint).logsumexp(0).item()


def model():
    with pyro.poutine.scale(scale=scale):
        z = pyro.sample("z", dist.Categorical(prior), infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(z.double(), 1.0), obs=y)


elbo = -TraceEnum_ELBO(max_plate_nesting=0).loss(model, lambda: None)
nuts = -float(initialize_model(model, max_plate_nesting=0)[1]({}))
pyro.set_rng_seed(0)
drawn = infer_discrete(model, first_available_dim=-1)
ones = [pyro.poutine.trace(drawn).get_trace().nodes["z"]["value"].item() for _ in range(2000)]
share = sum(ones) / len(ones)
print("pyro", pyro.__version__, "torch", torch.__version__)
print(f"closed forms: outside the sum {outside:.6f}, inside {inside:.6f}")
print(f"TraceEnum_ELBO {elbo:.6f}, NUTS {nuts:.6f}, infer_discrete P(z = 1 | y) {share:.4f}")
assert abs(elbo - outside) < 1e-9
assert abs(nuts - inside) < 1e-9
assert abs(share - torch.softmax(joint, 0)[1].item()) < 0.03
print("as described")
PYTHON
