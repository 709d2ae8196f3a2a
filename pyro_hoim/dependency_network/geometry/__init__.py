"""Full conditional manifolds, FC divergence and FC-limit."""
