"""Learning of Boltzmann machines: exact gradients, contrastive divergence, persistent chains."""
