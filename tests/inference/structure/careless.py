"""A chain that is wrong on purpose, for the tests that must notice."""

import math

from pyro_hoim.inference.structure.drawn.sampling import JumpChain


class CarelessChain(JumpChain):
    """A control: the densities of proposals are left out."""

    def jump(self, point, mask, log_ratio, temperature, uniform):
        other = self.proposals[mask].draw(self._generator)
        weight = self.neighbourhood.prior.log_weight
        gain = (other.log_joint - point.log_joint) / temperature + weight(mask) - weight(point.mask) + log_ratio
        return other if gain >= 0 or uniform < math.exp(gain) else point
