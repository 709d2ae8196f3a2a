"""Pseudo-Gibbs chains of dependency networks, their engines and their ergodicity."""
