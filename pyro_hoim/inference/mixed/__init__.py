"""Gibbs for the discrete sites of a program and HMC or NUTS for the continuous ones."""
