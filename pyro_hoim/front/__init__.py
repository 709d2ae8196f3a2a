"""The front door: fits from data frames, formulas and words."""

from .fit import fit

__all__ = ["fit"]
