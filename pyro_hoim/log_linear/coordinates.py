"""Names for the coordinates of theta: which interaction, which levels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ..errors import check_choice
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["THETA_DIM", "table_variables", "theta_coords"]

THETA_DIM = "interaction_level"
"""Name of the dimension that runs over the coordinates of theta."""


def theta_coords(
    hypergraph: InteractionHypergraph, coding: Literal["free", "corner", "balanced"] = "free"
) -> dict[str, list[str]]:
    """Interaction and level of every coordinate of theta, in the order of the flat vector.

    Args:
        hypergraph: the interactions.
        coding: "balanced" coordinates belong to all levels of each variable, "corner" and "free" ones to those from
            the second on. Raising a free coordinate raises the probability of the levels that it is named by
            (:class:`~pyro_hoim.log_linear.Parametrization`).

    Returns:
        Three lists of equal length: ``"interaction"`` ("smoke:mental"), ``"level"`` ("y,n") and
        ``"interaction_level"`` ("smoke:mental[y,n]"), which is unique.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_labels({"smoke": ["y", "n"], "age": ["old", "mid", "new"]})
        >>> graph = InteractionHypergraph(domain, [["smoke", "age"]], closure=True)
        >>> theta_coords(graph)["interaction_level"]
        ['smoke[n]', 'age[mid]', 'age[new]', 'smoke:age[n,mid]', 'smoke:age[n,new]']
    """
    check_choice(coding, ("free", "corner", "balanced"), "coding")
    domain = hypergraph.domain
    result: dict[str, list[str]] = {"interaction": [], "level": [], THETA_DIM: []}
    for edge in hypergraph.edges:
        labels = [domain[name].labels[coding != "balanced" :] for name in edge]
        for combination in itertools.product(*labels):
            level = ",".join(combination)
            result["interaction"].append(":".join(edge))
            result["level"].append(level)
            result[THETA_DIM].append(f"{':'.join(edge)}[{level}]")
    return result


def table_variables(
    hypergraph: InteractionHypergraph, name: str, tables: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, list[str]], dict[str, list[str]]]:
    """One variable per interaction with a dimension of labelled levels per member."""
    arrays: dict[str, np.ndarray] = {}
    dims: dict[str, list[str]] = {}
    coords: dict[str, list[str]] = {}
    slices: Mapping[Any, slice] = hypergraph.term_slices
    for (edge, where), shape in zip(slices.items(), hypergraph.edge_shapes, strict=True):
        variable = f"{name}[{':'.join(edge)}]"
        arrays[variable] = tables[..., where].reshape(*tables.shape[:-1], *shape)
        dims[variable] = [f"{member}_level" for member in edge]
        coords.update({f"{member}_level": list(hypergraph.domain[member].labels) for member in edge})
    return arrays, dims, coords
