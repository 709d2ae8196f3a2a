#!/usr/bin/env bash
# Pyro 1.9.2: a mask on an enumerated discrete site means two different things, by who computes.
#
# A site z of two states is masked (poutine.mask), enumerated in parallel, and an observation depends on it. Sums in
# closed form: log p(y) is -0.982232 where z keeps its prior, and -0.365800 where the mask takes the prior away.
# Seen: TraceEnum_ELBO and compute_marginals ignore the mask (-0.982232, P(z=1|y) = 0.0834); the potential of NUTS and
# the draws of infer_discrete apply it (-0.365800, P(z=1|y) = 0.4502). Nothing warns. Two algorithms that are given one
# program therefore fit two models.
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
prior, y = torch.tensor([0.9, 0.1]), torch.tensor(0.3)
likelihood = dist.Normal(torch.tensor([0.0, 1.0]), 1.0).log_prob(y)
with_prior, without = ((w + likelihood).logsumexp(0).item() for w in (prior.log(), torch.zeros(2)))


def model():
    with pyro.poutine.mask(mask=False):
        z = pyro.sample("z", dist.Categorical(prior), infer={"enumerate": "parallel"})
    pyro.sample("y", dist.Normal(z.double(), 1.0), obs=y)


elbo = TraceEnum_ELBO(max_plate_nesting=0)
values = {
    "TraceEnum_ELBO": -elbo.loss(model, lambda: None),
    "NUTS potential": -float(initialize_model(model, max_plate_nesting=0)[1]({})),
}
pyro.set_rng_seed(0)
drawn = infer_discrete(model, first_available_dim=-1)
ones = [pyro.poutine.trace(drawn).get_trace().nodes["z"]["value"].item() for _ in range(2000)]
shares = {
    "compute_marginals": elbo.compute_marginals(model, lambda: None)["z"].probs[1].item(),
    "infer_discrete": sum(ones) / len(ones),
}
print("pyro", pyro.__version__, "torch", torch.__version__)
print(f"closed forms: with the prior {with_prior:.6f}, without it {without:.6f}")
print("log p(y):", {name: round(value, 6) for name, value in values.items()})
print("P(z = 1 | y):", {name: round(value, 4) for name, value in shares.items()})
assert abs(values["TraceEnum_ELBO"] - with_prior) < 1e-9
assert abs(values["NUTS potential"] - without) < 1e-9
assert abs(shares["compute_marginals"] - torch.softmax(prior.log() + likelihood, 0)[1].item()) < 1e-9
assert abs(shares["infer_discrete"] - torch.softmax(likelihood, 0)[1].item()) < 0.06
print("as described")
PYTHON
