"""A root model of finitely many counts as a model of variables with levels. Private to the package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..schema import Domain, Variable
from ..structure.hypergraph import InteractionHypergraph


class CountsAsLevels:
    """The model of ordinal variables; a code is the count itself. The energy that makes it is ``counts``."""

    def __init__(self, counts: Any) -> None:
        levels = tuple(str(value) for value in range(counts.require_finite("model")))
        self._counts = counts
        self.domain = Domain(Variable(v.name, levels, "ordinal", v.unit) for v in counts.domain)
        names = self.domain.names
        pairs = [(names[i], names[j]) for i, j in counts.structure.graph.edges]
        self.hypergraph = InteractionHypergraph(self.domain, pairs, closure=True)
        self.batch_shape = counts.batch_shape

    def energy(self, x: torch.Tensor) -> torch.Tensor:
        """Energy of the counts."""
        return self._counts.energy(x)

    def block_conditional(self, block: Sequence[str], x: torch.Tensor) -> torch.Tensor:
        """Conditional of a block of counts."""
        return self._counts.block_conditional(block, x)

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> CountsAsLevels:
        """The model in another precision or on another device."""
        return CountsAsLevels(self._counts.to(dtype=dtype, device=device))
