"""Exact log Z of generalized root models: closed forms, sums and quadrature."""
