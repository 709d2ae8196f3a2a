"""Log-linear models as Pyro distributions: rows, sufficient statistics and priors."""

from . import statistics as statistics  # registers the divergences
