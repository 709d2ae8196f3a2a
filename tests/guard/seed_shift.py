"""Move every seed of a run by PYRO_HOIM_TEST_SEED_SHIFT: in tests, in the library they call, in child processes.

A seed s becomes s + shift * stride wherever it enters a generator: equal seeds stay equal, different ones different.
Tests marked ``fixed_seed`` compare with numbers that were drawn once, and keep their seeds.
"""

import functools
import os
import sys
from contextlib import contextmanager

VARIABLE = "PYRO_HOIM_TEST_SEED_SHIFT"
STRIDE = 1_000_003  # shifted seeds of one test are not seeds of another


def shift():
    """The shift in force; read at every seed, so that a fixed_seed test can turn it off for its children too."""
    return int(os.environ.get(VARIABLE, "0") or 0)


@contextmanager
def unshifted():
    """No shift inside."""
    before = os.environ.pop(VARIABLE, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before


def moved(seed):
    """The seed to use in place of this one; anything but a number (None, a generator) is returned as it came."""
    import numpy as np

    by = shift()
    if not by or isinstance(seed, bool):
        return seed
    if isinstance(seed, int | np.integer):
        return (int(seed) + by * STRIDE) % 2**63
    if isinstance(seed, list | tuple | np.ndarray):
        return [*seed, by]
    return seed


def install():
    """Patch PyTorch, NumPy and the streams of the compiled samplers, where a shift is asked for."""
    if shift() and not getattr(sys, "_seeds_moved", False):
        sys._seeds_moved = True
        _patch_torch()
        _patch_numpy()
        from pyro_hoim.compute import lanes
        from pyro_hoim.log_linear.chains import products_engine

        lanes.lane_seeds = products_engine.lane_seeds = _moving_first(lanes.lane_seeds)


def _moving_first(function):
    @functools.wraps(function)
    def wrapped(seed, *arguments, **named):
        return function(moved(seed), *arguments, **named)

    return wrapped


def _patch_torch():
    import torch

    plain = torch.Generator

    class AnyGenerator(type(plain)):
        """Generators made by C++ code (copies, the default one) are instances too."""

        def __instancecheck__(cls, instance):
            return isinstance(instance, plain)

    class Generator(plain, metaclass=AnyGenerator):
        def manual_seed(self, seed):
            super().manual_seed(moved(seed))
            return self

    torch.Generator = Generator
    torch.manual_seed = torch.random.manual_seed = _moving_first(torch.manual_seed)


def _patch_numpy():
    import numpy as np

    make, philox, seed = np.random.default_rng, np.random.Philox, np.random.seed

    @functools.wraps(make)
    def default_rng(seed=None):
        return make(moved(seed))

    @functools.wraps(philox)
    def keyed(seed=None, *, counter=None, key=None):
        if isinstance(key, np.ndarray):  # the words of one key
            return philox(seed, counter=counter, key=np.array([moved(int(key[0])), *key[1:]], dtype=np.uint64))
        return philox(seed, counter=counter, key=moved(key))

    np.random.default_rng, np.random.Philox = default_rng, keyed
    np.random.seed = lambda value=None: seed(moved(value) if value is None else moved(value) % 2**32)
