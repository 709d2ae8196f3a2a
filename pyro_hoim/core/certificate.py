"""What states alone prove about log Z: it is at least the log of the sum of q over the distinct ones. Private."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MIX = 0x5EED  # of the multipliers that tell states of large models apart
_SHOWN = 12  # variables of a state in a message


@dataclass(frozen=True)
class Certificate:
    """Deterministic facts about log Z from the states that were met; arrays over a batch of B models.

    Attributes:
        bound: log of the sum of q over the distinct states, (B,), nats; a lower bound of log Z.
        best: a state of the largest log q, (B, d).
        best_log_q: its log q, (B,), nats.
        is_complete: whether the states are all states there are, (B,), so that ``bound`` is log Z.
    """

    bound: Floats
    best: NDArray[np.generic]
    best_log_q: Floats
    is_complete: NDArray[np.bool_]

    @classmethod
    def none(cls, size: int) -> Certificate:
        """What is known without states, and of densities, which bound nothing."""
        nothing = np.full(size, -np.inf)
        return cls(nothing, np.zeros((size, 0)), nothing, np.zeros(size, dtype=bool))


def certificate(
    states: Sequence[torch.Tensor], log_q: Sequence[torch.Tensor], cardinalities: Sequence[int] | None
) -> Certificate:
    """The certificate of states (B, n, d), level codes or counts, with their log q (B, n) in nats, given in parts.

    ``cardinalities`` are the levels of every variable; None of counts, which have no end.
    """
    codes = np.concatenate([part.cpu().numpy().astype(np.int64) for part in states], 1)
    values = np.concatenate([part.cpu().numpy() for part in log_q], 1)
    keys = _keys(codes, cardinalities)
    order = keys.argsort(-1)
    sorted_keys = np.take_along_axis(keys, order, -1)
    is_new = np.ones(keys.shape, dtype=bool)
    is_new[:, 1:] = sorted_keys[:, 1:] != sorted_keys[:, :-1]
    distinct = np.where(is_new, np.take_along_axis(values, order, -1), -np.inf)
    top = values.max(-1)
    bound = np.log(np.exp(distinct - top[:, None]).sum(-1)) + top
    total = None if cardinalities is None else math.prod(cardinalities)
    best = codes[np.arange(len(codes)), values.argmax(-1)]
    return Certificate(bound, best, top, is_new.sum(-1) == total if total else np.zeros(len(codes), dtype=bool))


def _keys(codes: Integers, cardinalities: Sequence[int] | None) -> Integers:
    """Numbers (B, n), equal for equal states; beyond 2^63 states others share one with a chance of 2^-64 a pair."""
    if cardinalities is not None and math.prod(cardinalities) < 2**63:
        strides = [math.prod(cardinalities[i + 1 :]) for i in range(len(cardinalities))]
        return codes @ np.array(strides, dtype=np.int64) if strides else codes.sum(-1)
    odd = np.random.default_rng(_MIX).integers(2**63, size=codes.shape[-1], dtype=np.uint64) * 2 + 1
    return (codes.astype(np.uint64) * odd).sum(-1, dtype=np.uint64).view(np.int64)


def state_text(names: Sequence[str], values: Sequence[object]) -> str:
    """A state in words, the first twelve variables of it."""
    shown = ", ".join(f"{name}={value}" for name, value in list(zip(names, values, strict=True))[:_SHOWN])
    return f"({shown}{', ...' if len(names) > _SHOWN else ''})"
