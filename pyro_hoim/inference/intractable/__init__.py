"""Parameters of laws whose normalising constant is not computed: the exchange algorithm and its kin."""

from __future__ import annotations
