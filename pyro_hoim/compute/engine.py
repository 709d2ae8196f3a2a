"""The contract between chains and the code that moves them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Engine", "Record"]

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


class Wanted(NamedTuple):
    """What is to be noted during some sweeps: after every ``thin``-th one, of 0 never, parts of :class:`Record`."""

    thin: int = 0
    counts: bool = False
    energies: bool = False
    states: bool = False


NOTHING = Wanted()
"""Nothing is noted."""


class Record(NamedTuple):
    """What was noted at the records during some sweeps; a part that was not asked for is None.

    Attributes:
        counts: number of (chain, record) pairs in every cell of every edge, float64 (groups, num_terms).
        energies: of the model, float64 (records, groups, chains), nats.
        states: codes in uint8 or int32, or values in float64, (records, groups, chains, d).
    """

    num_records: int
    counts: torch.Tensor | None = None
    energies: torch.Tensor | None = None
    states: torch.Tensor | None = None


def join_records(parts: list[Record]) -> Record:
    """Records of consecutive sweeps as one."""
    if len(parts) == 1:
        return parts[0]
    counts, energies, states = (
        [part for record in parts if (part := getattr(record, name)) is not None]
        for name in ("counts", "energies", "states")
    )
    return Record(
        sum(record.num_records for record in parts),
        torch.stack(counts).sum(0) if counts else None,
        torch.cat(energies) if energies else None,
        torch.cat(states) if states else None,
    )


class Engine(Protocol):
    r"""Groups of chains of one structure: their states, random numbers, cached energies and how they move.

    A *group* is a row of weights and an inverse temperature shared by its chains (an element of a batch of parameters).
    All arrays are (groups, chains, ...). The target of group g at beta is

    .. math:: \log f_\beta(x) = \beta \sum_S \theta_g^S[x_S] + (1 - \beta) \sum_v r_g^v[x_v]

    Laws an engine must obey:

    * a visit to a block draws it from its exact conditional of :math:`f_\beta` given the other variables;
    * ``energies()`` equals energies recomputed from the codes, whatever ran before;
    * the random numbers of chain c in group g depend on (seed, g, c) only, never on how many threads, groups or
      chains there are (an engine on a GPU may depend on the numbers of groups and chains);
    * equal state and equal calls give equal results.

    An engine never validates: :class:`~pyro_hoim.log_linear.GibbsChains` does. Constructors take ``(hypergraph, blocks,
    num_groups, num_chains, seed, dtype)`` where ``blocks`` are tuples of schema positions and ``dtype`` is the
    precision of the conditionals; ``max_listed`` is the number of joint states above which a block is drawn by
    elimination. New weights need no new compilation.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> from pyro_hoim.log_linear.chains.torch_engine import TorchEngine
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> engine: Engine = TorchEngine(graph, ((0,), (1,)), 1, 3, 0, torch.float64)
        >>> engine.set_weights(torch.ones(1, 8), torch.zeros(1, 4))
        >>> engine.set_codes(torch.zeros(1, 3, 2, dtype=torch.long))
        >>> engine.energies()[0].tolist()  # less the tables of a, of b and of both
        [[-3.0, -3.0, -3.0]]
    """

    def set_weights(self, tables: torch.Tensor, reference: torch.Tensor) -> None:
        """Take tables (groups or 1, num_terms) and reference log weights (groups or 1, sum of cardinalities)."""
        ...

    def set_codes(self, codes: torch.Tensor) -> None:
        """Take states, long (groups, chains, d); weights come first. Energies are recomputed."""
        ...

    def get_codes(self) -> torch.Tensor:
        """States, long (groups, chains, d), a copy."""
        ...

    def energies(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Cached energies of the model and of the reference law, float64 (groups, chains) each, copies, nats."""
        ...

    def energies_of(self, tables: torch.Tensor) -> torch.Tensor:
        """Energies, float64 (groups, chains), of the states under other tables (groups or 1, num_terms), nats."""
        ...

    def sweep(self, order: Ints, num_sweeps: int, beta: Floats, wanted: Wanted = NOTHING) -> Record:
        """Run ``num_sweeps`` sweeps at ``beta`` (groups,); sweep s visits the blocks ``order[s % len(order)]``."""
        ...

    def anneal(
        self, order: Ints, betas: Floats, sweeps_per_step: int, start: torch.Tensor | None = None
    ) -> torch.Tensor:
        r"""Log weights, float64 (groups, chains), of annealed importance sampling through ``betas`` (steps + 1,).

        For every k from 1: the log weight grows by :math:`(\beta_k - \beta_{k-1}) (\log f_1(x) - \log f_0(x))` and
        then ``sweeps_per_step`` sweeps run at :math:`\beta_k`. The betas may fall, for runs in reverse.

        With ``start``, as many rows as the tables, the tables at beta are :math:`(1 - \beta) \theta_{\mathrm{start}} +
        \beta \theta` and the reference plays no part; the log weights grow by the energies of their difference.
        """
        ...

    def statistics(self, weights: torch.Tensor | None = None) -> torch.Tensor:
        """Sum of weights (groups, chains; 1) in every cell of every edge, float64 (groups, num_terms)."""
        ...

    def gather(self, index: torch.Tensor) -> None:
        """Chain c of group g takes state and energies of chain ``index[g, c]`` of its group; random numbers stay."""
        ...

    def state(self) -> dict[str, torch.Tensor]:
        """Everything but the weights, as tensors that safetensors can store."""
        ...

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from :meth:`state`; weights come first. Equal states continue with equal bits."""
        ...
