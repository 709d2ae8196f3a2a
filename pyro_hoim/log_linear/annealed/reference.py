"""Product laws that annealed runs start from."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from ..._modes import plain_mode
from ...annealing.weights import log_sum
from ...data.frames import as_observations
from ...data.observations import Observations
from ...errors import check_positive
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["ProductLaws", "fitted", "log_frequencies", "reference_normaliser", "single_terms"]


@lru_cache(maxsize=256)
@plain_mode()
def _layout(hypergraph: InteractionHypergraph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where single-variable terms are in the tables and in the reference, and levels (d, largest cardinality).

    Levels are positions in the reference, its size where a variable has no such level.
    """
    cards = hypergraph.domain.cardinalities
    starts = list(itertools.accumulate(cards, initial=0))
    source, target = list[int](), list[int]()
    for edge, piece in zip(hypergraph.edge_indices, hypergraph.term_slices.values(), strict=True):
        if len(edge) == 1:
            source.extend(range(piece.start, piece.stop))
            target.extend(range(starts[edge[0]], starts[edge[0] + 1]))
    levels = torch.full((len(cards), max(cards, default=0)), starts[-1])
    for i, (start, end) in enumerate(itertools.pairwise(starts)):
        levels[i, : end - start] = torch.arange(start, end)
    return torch.tensor(source, dtype=torch.long), torch.tensor(target, dtype=torch.long), levels


def single_terms(hypergraph: InteractionHypergraph, tables: torch.Tensor) -> torch.Tensor:
    """Single-variable tables (*batch, sum of cardinalities) of tables (*batch, num_terms); zero where there is none."""
    source, target, _ = _layout(hypergraph)
    terms = tables.new_zeros(*tables.shape[:-1], sum(hypergraph.domain.cardinalities), dtype=torch.float64)
    terms[..., target.to(tables.device)] = tables[..., source.to(tables.device)].double()
    return terms


def reference_normaliser(hypergraph: InteractionHypergraph, reference: torch.Tensor) -> torch.Tensor:
    """Log normalising constant (*batch) of the product law with log weights (*batch, sum of cardinalities)."""
    levels = _layout(hypergraph)[2].to(reference.device)
    padded = torch.nn.functional.pad(reference, (0, 1), value=-math.inf)
    return log_sum(padded[..., levels])[..., 0].sum(-1)


def log_frequencies(observations: Observations, smoothing: float = 1.0) -> torch.Tensor:
    r"""Log weights of all levels from the data's marginals, a reference for :class:`AnnealedImportance`.

    .. math:: r_v[k] = \log \frac{n_v[k] + a / K_v}{n_v + a}

    for ``smoothing`` a, counts n of the cells that are not missing and K levels; a product law close to the data is
    often closer to a fitted model than its own single-variable terms.

    Args:
        observations: the data.
        smoothing: prior counts of every variable, spread over its levels.

    Shape:
        Returns (sum of cardinalities,), float64, one variable after the other.

    Raises:
        InputError: smoothing that is not positive and finite.
        InputTypeError: no observations.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 3})
        >>> data = Observations(domain, torch.tensor([[0, 2], [1, 2], [1, -1]]))
        >>> log_frequencies(data, 1.0).exp().round(decimals=3).tolist()
        [0.375, 0.625, 0.111, 0.111, 0.778]
    """
    observations = as_observations(observations, argument="log_frequencies")
    check_positive(smoothing, "log_frequencies smoothing")
    parts: list[torch.Tensor] = []
    for codes, levels in zip(observations.codes.T, observations.domain.cardinalities, strict=True):
        known = codes >= 0
        counts = torch.zeros(levels, dtype=torch.float64).index_add_(0, codes[known], observations.counts[known])
        parts.append(((counts + smoothing / levels) / (counts.sum() + smoothing)).log())
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def fitted(graph: InteractionHypergraph, codes: torch.Tensor) -> torch.Tensor:
    """Log weights (..., sum of cardinalities) of the product law of states (..., m, d), one state more, spread."""
    cards, count = graph.domain.cardinalities, codes.shape[-2]
    first = list(itertools.accumulate(cards, initial=0))
    weights = codes.new_zeros((*codes.shape[:-2], first[-1]), dtype=torch.float64)
    for levels in sorted(set(cards)):
        at = [i for i, number in enumerate(cards) if number == levels]
        shares = torch.stack([(codes[..., at] == k).sum(-2) for k in range(levels)], -1).double()
        shares = (shares + 1 / levels) / (count + 1)
        weights[..., [first[i] + k for i in at for k in range(levels)]] = shares.log().flatten(-2)
    return weights


@dataclass(frozen=True)
class ProductLaws:
    """Product laws with normalised log weights (J, B, sum of cardinalities)."""

    graph: InteractionHypergraph
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, graph: InteractionHypergraph, codes: NDArray[np.generic]) -> ProductLaws:
        """The laws of states (J, B, m, d): levels not seen share as many states as levels were seen.

        Few seen say that the others are rare, many seen that many more are to come (Ian Witten and Timothy Bell, The
        zero-frequency problem, 1991, method C).
        """
        cards, count = graph.domain.cardinalities, codes.shape[-2]
        firsts, total = np.cumsum([0, *cards[:-1]]), sum(cards)
        flat = (codes + firsts).reshape(-1, count * len(cards))
        places = flat + total * np.arange(len(flat))[:, None]
        counts = np.bincount(places.reshape(-1), minlength=total * len(flat)).reshape(len(flat), total)
        levels = np.array(cards)
        seen = np.add.reduceat(counts > 0, firsts, axis=-1)
        spread = seen / np.where(seen < levels, levels - seen, levels)
        is_new = (counts == 0) | np.repeat(seen == levels, levels, -1)
        shares = (counts + np.where(is_new, np.repeat(spread, levels, -1), 0)) / (count + np.repeat(seen, levels, -1))
        return cls(graph, np.log(shares).reshape(*codes.shape[:2], total))

    def log_prob(self, states: NDArray[np.generic]) -> NDArray[np.float64]:
        """Log probabilities (J, B, n) of states (B, n, d), or (J, B, n, d) under their own laws."""
        places = states + np.cumsum([0, *self.graph.domain.cardinalities[:-1]])
        if states.ndim == 4:
            flat = places.reshape(*places.shape[:2], -1)
            return np.take_along_axis(self.weights, flat, -1).reshape(places.shape).sum(-1)
        found = list[NDArray[np.float64]]()
        for b, where in enumerate(places):
            chosen = np.zeros((len(where), self.weights.shape[-1]))
            np.put_along_axis(chosen, where, 1, -1)
            found.append(self.weights[:, b] @ chosen.T)
        return np.stack(found, 1)
