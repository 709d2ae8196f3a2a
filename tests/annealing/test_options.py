"""Options of annealed runs, which both backends check alike."""

import math

import pytest
import torch

from pyro_hoim.generalized_root import RootAnnealed
from pyro_hoim.log_linear import AnnealedImportance
from pyro_hoim.testing import raises

PATHS = [(0.0, 0.5), (0.1, 1.0), (0.0, 0.6, 0.5, 1.0), (0.0, -0.5, 1.0), (0.0, math.nan, 1.0), (0.0,)]
BAD = [
    *(({"num_chains": value}, "num_chains", "out-of-range") for value in (0, 2.5, True)),
    *(({"num_temperatures": value}, "num_temperatures", "out-of-range") for value in (0, 10**9)),
    ({"sweeps_per_step": 0}, "sweeps_per_step", "out-of-range"),
    *(({"temperatures": path}, None, "out-of-range") for path in PATHS),
    ({"temperatures": 3}, None, "wrong-type"),
    ({"temperatures": "cosy"}, "temperatures", "unknown-choice"),
    *(({"conditional_ess": value}, "conditional_ess", "out-of-range") for value in (1.0, 0, "x")),
    *(({"level": value}, "level", "out-of-range") for value in (0.0, 1.0)),
    *(({"resample_below": value}, "resample_below", "out-of-range") for value in ("x", 0.0, 2.0)),
    ({"resample_below": 0.5, "islands": 8}, "islands", "out-of-range"),
    ({"resample_below": 0.5, "num_chains": 100}, "islands", "out-of-range"),
    ({"reverse": "perhaps"}, "reverse", "unknown-choice"),
    ({"combine": True, "reverse": False}, "combine", "conflict"),
    ({"combine": True, "resample_below": 0.5}, "combine", "conflict"),
    *(({"seed": value}, "seed", "out-of-range") for value in (-1, 2**62)),
    ({"burn_in": -1}, "burn_in", "out-of-range"),
    *(({"starts": rows}, "starts", "wrong-shape") for rows in ([0, 1], torch.zeros(0, 4))),
    *(({"starts": [[0, cell]]}, "starts", "missing-cells") for cell in (-1, math.nan, 0.5, 2.0**60)),
    *(({"starts": rows}, "starts", "wrong-type") for rows in ("rows", torch.ones(2, 2, dtype=torch.bool))),
]


@pytest.mark.parametrize("backend", [AnnealedImportance, RootAnnealed])
@pytest.mark.parametrize(("options", "name", "code"), BAD)
def test_bad_options(backend, options, name, code):
    with raises(code, f"{backend.__name__} {name}" if name else "temperatures"):
        backend(**options)


def test_values_at_the_ends_are_taken():
    assert RootAnnealed(resample_below=1, islands=16, seed=2**62 - 1, burn_in=0).num_groups == 16
    assert AnnealedImportance(temperatures=[0, 0.5, 1]).num_steps == 2
    assert AnnealedImportance(temperatures="adaptive").num_steps == 1000
