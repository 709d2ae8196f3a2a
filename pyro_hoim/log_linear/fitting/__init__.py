"""Fits of one collection: objectives, penalties, solvers, existence and results."""
