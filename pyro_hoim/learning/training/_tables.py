"""Tables carried from one collection of interactions to another. Private to training."""

from __future__ import annotations

import torch

from ...errors import InputError
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["restructured_tables"]


def restructured_tables(
    tables: torch.Tensor, source: InteractionHypergraph, target: InteractionHypergraph
) -> torch.Tensor:
    """Tables in the layout of another collection: common interactions keep theirs, new ones are zero.

    Balanced tables stay balanced. It serves any vector with an entry per table entry, such as moments.

    Args:
        tables: in the layout of ``source.term_slices``.
        source: the collection of the tables.
        target: the other collection, over the same domain.

    Shape:
        tables (*batch, source.num_terms); result (*batch, target.num_terms), a new tensor.

    Raises:
        InputError: another domain, or tables of the wrong length.
    """
    if target.domain != source.domain:
        raise InputError(
            f"hypergraph: expected a collection over the variables {source.domain.names} and their levels, received "
            f"one over {target.domain.names} or other levels; make a new trainer"
        )
    if tables.shape[-1] != source.num_terms:
        raise InputError(f"tables: expected shape (..., {source.num_terms}), received {tuple(tables.shape)}")
    result = tables.new_zeros(*tables.shape[:-1], target.num_terms)
    here = source.term_slices
    for edge, where in target.term_slices.items():
        if edge in here:
            result[..., where] = tables[..., here[edge]]
    return result
