"""Posteriors over which interactions exist: priors over collections, evidence, enumeration."""

from __future__ import annotations
