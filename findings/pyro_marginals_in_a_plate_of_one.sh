#!/usr/bin/env bash
# Pyro 1.9.2: an enumerated site in a plate of one has no marginal law, and is drawn without the plate.
#
# The same program with a plate of two gives the posterior of every row and a draw of shape (2,). With a plate of one, as
# a table of one row or the last batch of a pass makes it, TraceEnum_ELBO.compute_marginals ends in a KeyError, and
# infer_discrete draws a value of shape () in place of (1,). The loss of the same ELBO is right for both.
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

torch.set_default_dtype(torch.float64)
prior = torch.tensor([0.9, 0.1])


def program(y):
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Categorical(prior), infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(z.double(), 1.0), obs=y)
    return z


def outcome(y):
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    loss = elbo.loss(lambda: program(y), lambda: None)
    likelihood = dist.Normal(torch.tensor([0.0, 1.0]), 1.0).log_prob(y[:, None])
    assert abs(-loss - (prior.log() + likelihood).logsumexp(-1).sum().item()) < 1e-9
    shape = tuple(infer_discrete(lambda: program(y), first_available_dim=-2)().shape)
    try:
        probs = elbo.compute_marginals(lambda: program(y), lambda: None)["z"].probs
    except KeyError:
        return "KeyError", shape
    assert torch.allclose(probs, torch.softmax(prior.log() + likelihood, -1))
    return "the posterior of every row", shape


found = {rows: outcome(torch.linspace(0.3, 1.0, rows)) for rows in (1, 2, 3)}
print("pyro", pyro.__version__, "torch", torch.__version__)
print("compute_marginals and the shape of a draw, by rows of the plate:", found)
assert found == {1: ("KeyError", ()), **{rows: ("the posterior of every row", (rows,)) for rows in (2, 3)}}
print("as described")
PYTHON
