"""Random numbers of single chains for compiled samplers: xoshiro256++, one state per chain.

A state is a row of four words; rows come from :func:`chain_words` and depend on the seed and the chain alone.

References:
    David Blackman and Sebastiano Vigna, Scrambled linear pseudorandom number generators, 2021.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit
from ...compute.lanes import mix

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_12, _17, _19, _23, _41, _45 = (np.uint64(n) for n in (12, 17, 19, 23, 41, 45))


def chain_words(seed: int, num_chains: int) -> NDArray[np.uint64]:
    """States (num_chains, 4) that are never all zero."""
    key = mix(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)  # arrays wrap around without a warning
    chains = mix((key ^ np.arange(num_chains, dtype=np.uint64)) + _GOLDEN)
    steps = np.arange(1, 5, dtype=np.uint64) * _GOLDEN
    return np.ascontiguousarray(mix(chains[:, None] + steps))


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def uniform(words, b):
    """One draw of chain b: the middle of one of 2^52 equal intervals of (0, 1); row b of ``words`` moves on."""
    w0, w1, w2, w3 = words[b, 0], words[b, 1], words[b, 2], words[b, 3]
    total = w0 + w3
    found = ((total << _23) | (total >> _41)) + w0
    t = w1 << _17
    w2 ^= w0
    w3 ^= w1
    words[b, 1] = w1 ^ w2
    words[b, 0] = w0 ^ w3
    words[b, 2] = w2 ^ t
    words[b, 3] = (w3 << _45) | (w3 >> _19)
    return (np.float64(np.int64(found >> _12)) + 0.5) * 2.0**-52


@njit(nogil=True, cache=True, error_model="numpy")
def uniforms(words, chains, out):
    """One draw of each of some chains."""
    for i in range(chains.shape[0]):
        out[i] = uniform(words, chains[i])


@njit(nogil=True, cache=True, error_model="numpy")
def normal(words, b):
    """One draw of the standard normal law (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(uniform(words, b)))
    return radius * math.cos(2.0 * math.pi * uniform(words, b))
