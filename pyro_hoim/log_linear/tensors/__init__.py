"""Strongly symmetric tensors: corner theta of a model of order K over binary variables, seen as one tensor."""
