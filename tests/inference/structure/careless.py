"""A chain that is wrong on purpose, for the tests that must notice."""

from __future__ import annotations

import math

from pyro_hoim.inference.structure.drawn.sampling import JumpChain, Point


class CarelessChain(JumpChain):
    """A control: the densities of proposals are left out."""

    def jump(self, point: Point, mask: int, log_ratio: float, temperature: float, uniform: float) -> Point:
        other = self.proposals[mask].draw(self._generator)
        weight = self.neighbourhood.prior.log_weight
        gain = (other.log_joint - point.log_joint) / temperature + weight(mask) - weight(point.mask) + log_ratio
        return other if gain >= 0 or uniform < math.exp(gain) else point
