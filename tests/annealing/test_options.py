"""Options of annealed runs, which both backends check alike."""

from __future__ import annotations

import pytest

from pyro_hoim.errors import InputError
from pyro_hoim.generalized_root import RootAnnealed
from pyro_hoim.log_linear import AnnealedImportance


@pytest.mark.parametrize("backend", [AnnealedImportance, RootAnnealed])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_chains": 0}, "num_chains"),
        ({"num_chains": 2.5}, "num_chains"),
        ({"num_chains": True}, "num_chains"),
        ({"num_temperatures": 0}, "num_temperatures"),
        ({"sweeps_per_step": 0}, "sweeps_per_step"),
        ({"temperatures": (0.0, 0.5)}, "rise strictly from 0 to 1"),
        ({"temperatures": (0.1, 1.0)}, "rise strictly from 0 to 1"),
        ({"temperatures": (0.0, 0.6, 0.5, 1.0)}, "rise strictly from 0 to 1"),
        ({"temperatures": (0.0, -0.5, 1.0)}, "rise strictly from 0 to 1"),
        ({"temperatures": (0.0, float("nan"), 1.0)}, "rise strictly from 0 to 1"),
        ({"temperatures": (0.0,)}, "rise strictly from 0 to 1"),
        ({"temperatures": 3}, "temperatures"),
        ({"temperatures": "cosy"}, "adaptive"),
        ({"conditional_ess": 1.0}, "conditional_ess"),
        ({"conditional_ess": 0}, "conditional_ess"),
        ({"conditional_ess": "x"}, "conditional_ess"),
        ({"level": 0.0}, "level"),
        ({"level": 1.0}, "level"),
        ({"resample_below": "x"}, "resample_below"),
        ({"resample_below": 0.0}, "resample_below"),
        ({"resample_below": 2.0}, "resample_below"),
        ({"resample_below": 0.5, "islands": 8}, "islands"),
        ({"resample_below": 0.5, "num_chains": 100}, "islands"),
        ({"reverse": "perhaps"}, "reverse"),
        ({"combine": True, "reverse": False}, "combine"),
        ({"combine": True, "resample_below": 0.5}, "combine"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**62}, "seed"),
        ({"burn_in": -1}, "burn_in"),
    ],
)
def test_bad_options(backend, options, words):
    with pytest.raises(InputError, match=words) as found:
        backend(**options)
    assert str(found.value).startswith((backend.__name__, "temperatures"))


def test_values_at_the_ends_are_taken():
    assert RootAnnealed(resample_below=1, islands=16, seed=2**62 - 1, burn_in=0).num_groups == 16
    assert AnnealedImportance(temperatures=[0, 0.5, 1]).num_steps == 2
    assert AnnealedImportance(temperatures="adaptive").num_steps == 1000
