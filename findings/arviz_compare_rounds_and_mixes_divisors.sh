#!/usr/bin/env bash
# arviz-stats 1.3.3: compare() rounds its table, so that weights need not sum to one, and mixes two divisors.
#
# Seen for two models of five observations: stacking weights and elpd come as rounded numbers, not only as printed ones;
# the standard error of elpd has the divisor n - 1, that of the difference of two models n. Differences have the other
# sign than in ArviZ 0.2x (the worse model has a negative one). Needs Python 3.12 or newer; PYTHON names it.
set -euo pipefail
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' || { echo "needs Python 3.12 or newer: PYTHON=..." >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    arviz-stats[xarray]==1.3.3 arviz-base==1.3.1 numpy==2.5.5 scipy==1.18.1
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import arviz_stats
import numpy as np
from arviz_base import from_dict


def model(seed, scale):
    random = np.random.default_rng(seed)
    values = -1 + scale * random.normal(size=(4, 500, 5))
    return from_dict({"posterior": {"mu": random.normal(size=(4, 500))}, "log_likelihood": {"y": values}})


models = {"A": model(0, 0.1), "B": model(1, 0.3)}
table = arviz_stats.compare(models)
loos = {name: arviz_stats.loo(data, pointwise=True) for name, data in models.items()}
print("arviz-stats", version("arviz-stats"), "arviz-base", version("arviz-base"))
print(table.to_string())
pointwise = {name: np.asarray(loo.elpd_i).ravel() for name, loo in loos.items()}
worse = table.index[-1]
best = table.index[0]
difference = pointwise[worse] - pointwise[best]
n = len(difference)
exact = {"elpd": pointwise[worse].sum(), "se": np.sqrt(n * pointwise[worse].var(ddof=1)), "dse": np.sqrt(n * difference.var(ddof=0))}
print({name: float(value) for name, value in exact.items()})
for name, value in exact.items():
    shown = float(table.loc[worse, name])
    assert shown != value, name
    assert abs(shown - value) < 0.06, (name, shown, value)
    assert shown == round(shown, 3), name
assert float(table.loc[worse, "elpd_diff"]) < 0
print("as described")
PYTHON
