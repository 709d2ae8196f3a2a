"""Normalisability where variables have families of their own."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from ..nodes.families import NodeFamily
from ..nodes.user_family import UserFamily
from ..structure import TermGroup
from .form import Array, Form, Mask, connected, settle


class Nodes(NamedTuple):
    """What is asked of the variables: names, families, which are Gaussian (d,), and the largest root."""

    names: tuple[str, ...]
    families: tuple[NodeFamily, ...]
    is_real: Mask
    order: int


class Outcome(NamedTuple):
    """Verdict, reason, and where disproven a curve: values v (d,) and powers a (d,) of :math:`T(x_s) = T(v_s) z^{a_s}`.

    Without powers all are one, and v has any length.
    """

    verdict: Literal["proven", "disproven", "undecided"]
    reason: str
    values: Array | None = None
    growth: Array | None = None


def examine_mixed(nodes: Nodes, terms: list[TermGroup]) -> Outcome:
    """Verdict on a model whose variables have several families: the worst of its independent parts."""
    is_finite = np.array([f.is_discrete and math.isfinite(f.largest_value) for f in nodes.families])
    is_user = np.array([isinstance(f, UserFamily) for f in nodes.families]) & ~is_finite
    is_number = ~is_user & ~np.array([f.is_discrete for f in nodes.families])
    undecided: Outcome | None = None
    for part in connected(len(nodes.names), [t.rows for t in terms]):
        inside = part[is_number[part]]
        if is_user[part].any():
            name = nodes.names[part[is_user[part]][0]]
            if not all(getattr(nodes.families[s], "is_normalizable", False) for s in part[~is_finite[part]]):
                undecided = undecided or Outcome("undecided", f"the family of {name!r} is a user's")
            continue
        if not len(inside):
            continue
        leading = [t for t in terms if t.power == 1]
        verdict = settle(Form.of_terms(leading, len(nodes.names), nodes.is_real).restricted(inside))
        if verdict.sign == "positive":
            assert verdict.point is not None
            v = np.zeros(len(nodes.names))
            signs = np.ones(len(inside)) if verdict.signs is None else verdict.signs
            v[inside] = np.where(nodes.is_real[inside], signs * np.sqrt(verdict.point), verdict.point)
            return Outcome("disproven", f"log q grows along the direction, found by {verdict.how}", v)
        if verdict.sign != "negative":
            undecided = undecided or Outcome("undecided", f"the terms of power 1 do not settle it: {verdict.how}")
    return undecided or Outcome("proven", "the terms of power 1 are negative in every direction of the numbers")
