"""The states that are impossible in a log-linear law, whatever its parameters are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from ..._modes import plain_mode
from ...checks import broadcast_shapes
from ...core.laws.expansion import check_expandable, list_states
from ...errors import InputError, other_domain, refused
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph, evidence_codes
from ..auto import Auto
from ..energy import LogLinearEnergy
from ..impossible import ImpossibleStates, StructuralZeros, Support, structural_states, support_of, support_of_states

Impossible = StructuralZeros | LogLinearEnergy


@dataclass(frozen=True, eq=False)
class LawSupport(Support):
    """The support of a law, whose batch broadcasts to that of theta."""

    @classmethod
    def of(cls, source: InteractionHypergraph, impossible: Impossible, batch_shape: torch.Size) -> LawSupport | None:
        """From what a law is given, whose batch shape is that of theta; None where every state is possible."""
        if not isinstance(impossible, LogLinearEnergy):
            states = structural_states(source.domain, impossible, "impossible")
            return None if states is None else _of_states(source, states)
        if impossible.domain != source.domain:
            raise other_domain("impossible", f"the variables {source.domain.names}", impossible.domain.names)
        zeros = support_of(impossible)
        if zeros is None:
            return None
        try:
            check_expandable(zeros.batch_shape, batch_shape)
        except InputError:
            batches = f"the batch {tuple(zeros.batch_shape)} of its models does not broadcast to the batch"
            hint = "give every model a theta, such as theta.expand(3, -1) for three"
            raise refused("impossible", f"{batches} {tuple(batch_shape)} of theta", hint, code="wrong-shape") from None
        return cls.beside(source, zeros)

    def possible_states(self) -> torch.Tensor:
        """Which states are possible in any element of the batch, the last variable fastest, (num_states,)."""
        states = list_states(self.source.domain.cardinalities, torch.device("cpu"))
        states = states.reshape(len(states), *(1,) * len(self.zeros.batch_shape), states.shape[-1])
        return torch.isfinite(self.zeros.energy(states, validate=False)).reshape(len(states), -1).any(1)

    def condition(self, evidence: Mapping[str, str | int | torch.Tensor]) -> LogLinearEnergy:
        """What the evidence leaves of ``zeros``; InputError where the evidence has probability zero."""
        rest, constant = self.zeros.condition(evidence)
        lost = torch.isneginf(constant)
        if Auto().plan(rest.hypergraph).feasible:
            lost = lost | torch.isneginf(Auto().log_partition(rest).value)
        if bool(lost.any()):
            codes, _ = evidence_codes(self.source.domain, evidence, self.zeros.batch_shape)
            problem = f"{_shown(self.source.domain, codes, lost)} has probability zero"
            raise refused("evidence", problem, code="impossible")
        return rest

    def holds(self, other: LawSupport | None) -> torch.Tensor:
        """Whether every state of another support, of all states if None, is possible here, too, (*batch of both)."""
        is_outside = torch.zeros((), dtype=torch.bool)
        for edge, where in self.zeros.hypergraph.term_slices.items():
            lost = torch.isneginf(self.zeros.tables[..., where])
            if other is not None:
                lost = lost & (Auto().log_marginal(other.zeros, edge).flatten(-len(edge)) > -math.inf)
            is_outside = is_outside | lost.any(-1)
        return ~is_outside


@lru_cache(maxsize=64)
@plain_mode()
def _of_states(source: InteractionHypergraph, states: ImpossibleStates) -> LawSupport | None:
    """The support of one set of states, which posteriors ask for at every evaluation.

    A mask of the whole table is taken apart, so that the law is as easy to sum as its interactions allow.
    """
    if states.structure.edges == (source.domain.names,):
        states = ImpossibleStates.of_cells(source, states.excluded.cpu().numpy()) or states
    zeros = support_of(support_of_states(states.structure, states).model(torch.zeros(states.structure.num_terms)))
    return None if zeros is None else LawSupport.beside(source, zeros)


def _shown(domain: Domain, codes: Mapping[str, int | torch.Tensor], lost: torch.Tensor) -> str:
    """The first impossible evidence of a batch (*batch,) in words."""
    where = tuple(lost.nonzero()[0].tolist())
    names = [name for name in domain.names if name in codes]
    levels = [int(torch.as_tensor(codes[name]).expand(lost.shape)[where]) for name in names]
    cells = [f"{name}={domain[name].labels[level]}" for name, level in zip(names, levels, strict=True)]
    return ", ".join(cells) + (f" at index {where}" if where else "")


def support_of_tables(domain: Domain, zeros: Mapping[tuple[str, ...], torch.Tensor]) -> LogLinearEnergy | None:
    """The model of tables of zeros and minus infinities, {edge: flat}; None where no state is impossible."""
    if not zeros:
        return None
    graph = InteractionHypergraph(domain, zeros, hierarchical=False)
    batch = broadcast_shapes(*(table.shape[:-1] for table in zeros.values()))
    flat = torch.cat([zeros[e].double().expand(*batch, -1) for e in graph.edges], -1)
    return support_of(LogLinearEnergy._trusted(graph, flat))


def filled_tables(tables: torch.Tensor, slices: Iterable[slice]) -> torch.Tensor:
    """Finite tables: the mean of the others of its table in the place of minus infinity, zero where there is none."""
    parts = [tables[..., :0]]
    for where in slices:
        part = tables[..., where]
        lost = torch.isneginf(part)
        mean = part.masked_fill(lost, 0.0).sum(-1, keepdim=True) / (~lost).sum(-1, keepdim=True).clamp(min=1)
        parts.append(torch.where(lost, mean, part))
    return torch.cat(parts, -1)
