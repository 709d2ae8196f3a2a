"""Auxiliary data of the exchange algorithm: log weights of a path from a proposal back to the present parameters."""

from __future__ import annotations

from typing import Any, Literal

import torch

from ...errors import refused
from ._sites import IntractableSite, SiteData

Kind = Literal["auto", "perfect", "gibbs"]

_MOST_GIBBS_CELLS = 2**28


class AuxiliaryData:
    r"""Auxiliary data sets of one site, perfect or by Gibbs chains that start at the data.

    .. math:: \log w = \sum_{k=0}^{K} (\eta_{k+1} - \eta_k) \cdot t(y_k), \qquad
        \eta_k = \eta' + \tfrac{k}{K + 1} (\eta - \eta'), \quad y_0 \sim p(\cdot \mid \eta')

    where :math:`y_k` follows from :math:`y_{k-1}` by a reversible transition that leaves :math:`p(\cdot \mid \eta_k)`
    invariant: K bridges. Where draws are perfect that transition draws all rows anew. Its mean weight is
    :math:`Z(\eta)^N / Z(\eta')^N`.
    """

    def __init__(self, site: IntractableSite, kind: Kind, natural: torch.Tensor, num_bridges: int) -> None:
        can_draw = site.draws_perfectly(natural[:1, 0]) if natural.shape[1] else True
        if kind == "perfect" and not can_draw:
            problem = f"site {site.name!r} has no perfect draws"
            raise refused("auxiliary", problem, "use 'gibbs' or 'auto'", code="no-method")
        self.is_perfect = can_draw and kind != "gibbs"
        self._site, self._num_bridges = site, num_bridges
        self._chains: Any = None
        self._key: tuple[Any, ...] = ()

    def log_weights(
        self, start: torch.Tensor, end: torch.Tensor, data: SiteData, *, copies: int = 1, num_sweeps: int = 0
    ) -> torch.Tensor:
        """Log weights (copies, chains) between natural parameters (chains, G, num_terms)."""
        if not float(data.total.sum()):
            return torch.zeros(copies, len(start), dtype=torch.float64)
        if self.is_perfect:
            return self._perfect(start, end, data.total, copies)
        key = (id(data), start.shape, copies)
        if self._chains is None or key != self._key:
            width = self._site.law.domain
            cells = start.shape[0] * copies * float(data.total.max()) * len(width) * start.shape[1]
            if cells > _MOST_GIBBS_CELLS:
                problem = f"Gibbs chains for every row of every auxiliary data set hold {cells:.3g} values"
                raise refused("num_chains", problem, f"the limit is {_MOST_GIBBS_CELLS}; take fewer chains")
            seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64))
            self._chains, self._key = self._site.chains(start, data, copies, seed), key
            self._data = data  # keeps the identity in the key alive
        return self._chains.log_weights(start, end, num_sweeps, self._num_bridges)

    def _perfect(self, start: torch.Tensor, end: torch.Tensor, total: torch.Tensor, copies: int) -> torch.Tensor:
        steps = self._num_bridges + 1
        share = torch.arange(steps, dtype=torch.float64).reshape(-1, 1, 1, 1) / steps
        path = start + share * (end - start)
        shape = (copies, *path.shape)
        natural = path.expand(shape).reshape(-1, path.shape[-1])
        drawn = self._site.draw(natural, total.expand(shape[:-1]).reshape(-1)).reshape(shape)
        return (drawn.mean(1) * (end - start)).sum((-1, -2))
