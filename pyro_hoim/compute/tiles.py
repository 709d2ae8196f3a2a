"""How many chains a tile holds, and when one thread is enough."""

from __future__ import annotations

import math

__all__ = [
    "SMALL",
    "tile_width",
]

SMALL = 2000
"""Visits of tiles below which starting threads costs more than it saves."""


def tile_width(num_groups: int, num_chains: int, num_threads: int) -> int:
    """Lanes per tile, a multiple of 16 up to 256 with which all threads are done soonest.

    A tile takes about as long as its lanes and 32 more.

    Example:
        >>> [tile_width(1, n, 2) for n in (1, 40, 512, 600)], tile_width(100, 600, 2)
        ([16, 32, 256, 160], 208)
    """
    fewest = -(-num_chains // 256)
    best, width = math.inf, 16
    for tiles in range(fewest, fewest + num_threads):
        lanes = -(-num_chains // tiles // 16) * 16
        rounds = -(-num_groups * tiles // num_threads)
        if rounds * (lanes + 32) < best:
            best, width = rounds * (lanes + 32), lanes
    return width
