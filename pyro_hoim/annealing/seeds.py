"""Seeds of annealed runs."""

from __future__ import annotations

import torch

__all__ = [
    "derived",
    "drawn_seed",
]


def derived(seed: int, purpose: int) -> int:
    """Another seed for another part of the same call."""
    return (seed + purpose * 0x9E3779B97F4A7C15) % 2**62


def drawn_seed(generator: torch.Generator | None) -> int:
    """A seed from ``generator`` or PyTorch's global generator."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**62, (), generator=generator, device=device))
