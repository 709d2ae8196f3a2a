"""Log-linear models as Pyro distributions: rows, sufficient statistics and priors."""

from . import kl as kl  # registers the divergences
