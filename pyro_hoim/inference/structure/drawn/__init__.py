"""Posteriors over structure by draws: tempered chains, and junction trees of decomposable collections."""
