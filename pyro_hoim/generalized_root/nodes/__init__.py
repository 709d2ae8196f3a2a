"""Families of one variable, the log partition of a node and its certified bounds."""
