"""Corner coding against any level of every variable, not the first one alone: exact linear maps."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import SupportsIndex

import numpy as np
import torch

from ...errors import check_choice, check_type, conflict, refused
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..coding import CODINGS, Coding, parametrization

__all__ = [
    "THETA_DIM",
    "Reference",
    "check_corner",
    "entry_labels",
    "from_reference",
    "reference_codes",
    "reference_matrix",
    "theta_coords",
    "to_reference",
]

THETA_DIM = "interaction_level"
"""Name of the dimension that runs over the coordinates of theta."""
Reference = Mapping[str, str | SupportsIndex]
"""Reference levels of corner coding by variable, labels or codes; variables that are not named keep their first."""


def to_reference(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, reference: Reference | None, source: Coding = "corner"
) -> torch.Tensor:
    r"""Corner theta against chosen reference levels, from theta in a coding.

    .. math:: \theta^S_{x_S} = \sum_{T \supseteq S} \; \sum_{R \subseteq S} (-1)^{|S| - |R|}\,
        \bar\theta^T(x_R, r_{T - R})

    where :math:`\bar\theta` are any tables of the model and r the reference: the coefficient of S at levels x is the
    log ratio of probabilities (odds ratio, ...) of x and r over the variables of S, all others at their reference. The
    entries of a table are those of the levels other than r, in the order of the schema. Linear and exact: of corner
    theta only sums and differences of its entries are taken. The law and its number of parameters stay the same.

    Args:
        hypergraph: a hierarchical collection.
        theta: coordinates in the coding ``source``.
        reference: levels by variable; others keep their first level, and None keeps all.
        source: coding of ``theta``; its corner coding is that against the first levels.

    Shape:
        theta (*batch, num(source)), result (*batch, num_parameters).

    Raises:
        UnknownNameError: an unknown variable or label.
        InputError: a code out of range, a variable of one level, which has no coefficients, or a collection that lacks
            subsets, whose corner tables against other levels are another family.
        InputTypeError: no mapping.

    Example:
        >>> graph = InteractionHypergraph.saturated(Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"]}))
        >>> theta = torch.tensor([0.5, 0.1, 0.2, 1.0, 3.0], dtype=torch.float64)  # against no and x
        >>> to_reference(graph, theta, {"b": "z"}).tolist()  # a, then b at x and y, then a with b at x and y
        [3.5, -0.2, -0.1, -3.0, -2.0]
    """
    codings, order = parametrization(hypergraph), _order(hypergraph, reference)
    corner = codings.convert(theta, source, "corner", validate=False) if source != "corner" else theta
    if order is None:
        return corner
    return codings.from_tables(codings.corner_tables(corner)[..., order], "corner")


def from_reference(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, reference: Reference | None, target: Coding = "corner"
) -> torch.Tensor:
    """Theta in a coding from corner theta against chosen reference levels, the inverse of :func:`to_reference`.

    Example:
        >>> graph = InteractionHypergraph.saturated(Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"]}))
        >>> theta = torch.tensor([3.5, -0.2, -0.1, -3.0, -2.0], dtype=torch.float64)
        >>> from_reference(graph, theta, {"b": "z"}).round(decimals=9).tolist()
        [0.5, 0.1, 0.2, 1.0, 3.0]
    """
    codings, order = parametrization(hypergraph), _order(hypergraph, reference)
    if order is not None:
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        theta = codings.from_tables(codings.corner_tables(theta)[..., back], "corner")
    return theta if target == "corner" else codings.convert(theta, "corner", target, validate=False)


def reference_matrix(hypergraph: InteractionHypergraph, source: Coding, reference: Reference | None) -> torch.Tensor:
    """Dense matrix (num_parameters, num(source)), float64, of :func:`to_reference`; for small collections.

    Example:
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 3}), 1)
        >>> reference_matrix(graph, "corner", {"a": 2}).tolist()  # 0 against 2, 1 against 2
        [[0.0, -1.0], [1.0, -1.0]]
    """
    units = torch.eye(parametrization(hypergraph).num(source), dtype=torch.float64)
    return to_reference(hypergraph, units, reference, source).T


def reference_codes(domain: Domain, reference: Reference | None) -> dict[str, int]:
    """The code of the reference level of every variable."""
    found = dict.fromkeys(domain.names, 0)
    if reference is None:
        return found
    check_type(reference, Mapping, "reference", "a level for every variable, {name: label}")
    codes = domain.encode_state(reference)
    for name in codes:
        if domain[name].cardinality < 2:
            problem = f"{name!r} has one level, which nothing is compared with"
            raise refused("reference", problem, "leave it out", code="wrong-shape")
    return found | codes


def check_corner(coding: Coding, reference: Reference | None) -> None:
    """Refuse reference levels in codings that have none."""
    if reference is not None and coding != "corner":
        problem = f"the {coding} coding compares with no level"
        raise conflict("reference", problem, "say coding='corner'")


def entry_labels(
    hypergraph: InteractionHypergraph, coding: Coding, reference: Reference | None = None
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Interaction and levels of every coordinate of theta: all levels in the balanced coding, else without one."""
    check_choice(coding, CODINGS, "coding")
    check_corner(coding, reference)
    domain, gone = hypergraph.domain, reference_codes(hypergraph.domain, reference)
    terms, levels = list[str](), list[tuple[str, ...]]()
    for edge in hypergraph.edges:
        labels = [
            [label for code, label in enumerate(domain[name].labels) if coding == "balanced" or code != gone[name]]
            for name in edge
        ]
        for combination in itertools.product(*labels):
            terms.append(":".join(edge))
            levels.append(combination)
    return terms, levels


def theta_coords(
    hypergraph: InteractionHypergraph, coding: Coding = "free", reference: Reference | None = None
) -> dict[str, list[str]]:
    """Interaction and level of every coordinate of theta, in the order of the flat vector.

    Args:
        hypergraph: the interactions.
        coding: "balanced" coordinates belong to all levels of each variable, "corner" and "free" ones to those from
            the second on. Raising a free coordinate raises the probability of the levels that it is named by
            (:class:`~pyro_hoim.log_linear.Parametrization`).
        reference: of corner coordinates: the levels that they have none for, where they are not the first.

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
    terms, levels = entry_labels(hypergraph, coding, reference)
    levels = [",".join(found) for found in levels]
    names = [f"{term}[{level}]" for term, level in zip(terms, levels, strict=True)]
    return {"interaction": terms, "level": levels, THETA_DIM: names}


def _order(hypergraph: InteractionHypergraph, reference: Reference | None) -> torch.Tensor | None:
    """Positions of the entries of all tables with the reference levels put first; None where they are first."""
    codes = reference_codes(hypergraph.domain, reference)
    if not any(codes.values()):
        return None
    if not hypergraph.is_hierarchical:
        problem = "corner tables against other levels are another family on a collection that lacks subsets"
        raise conflict("reference", problem, "take hypergraph.closure()")
    pieces = [np.zeros(0, dtype=np.int64)]
    for edge, where in hypergraph.term_slices.items():
        sizes = [hypergraph.domain[name].cardinality for name in edge]
        table = np.arange(where.start, where.stop).reshape(sizes)
        axes = [[codes[n], *(c for c in range(size) if c != codes[n])] for n, size in zip(edge, sizes, strict=True)]
        pieces.append(table[np.ix_(*axes)].ravel())
    return torch.from_numpy(np.concatenate(pieces))
