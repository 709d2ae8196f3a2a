"""Encoded observations: rows or cells of finite variables with counts or weights, and readers for them."""

from .observations import Observations

__all__ = ["Observations"]
