"""Partially ordered sets, laws on them, and higher-order Boltzmann machines over any collection of subsets."""
