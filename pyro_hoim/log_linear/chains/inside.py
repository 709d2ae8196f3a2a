"""Where chains of a model with impossible states begin: states of a product law restricted to the possible ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...core.model import Chains
from ...errors import out_of_reach
from ..energy import LogLinearEnergy
from ..impossible import ProductInside, walled

_CELLS = 2**24  # of states that are drawn at once
_ROUNDS, _SWEEPS = 10, 200  # of a search where no exact method is within reach
_LOWEST = -3.5  # decimal logarithm of the inverse temperature at which a search begins


@dataclass(frozen=True)
class InsideChains:
    """What chains (groups, chains) may not enter: combinations of free variables, given the values of clamped ones.

    Attributes:
        law: reference laws restricted to the support, (rows,): one for every group, or for every group and combination
            of clamped values.
        row: that of every chain, (groups, chains).
        columns: schema positions of the variables of ``law.names``.
    """

    law: ProductInside
    row: torch.Tensor
    columns: list[int]

    @classmethod
    def of(
        cls,
        support: LogLinearEnergy,
        reference: torch.Tensor,
        clamped: Mapping[int, torch.Tensor | int],
        lead: tuple[int, int],
    ) -> InsideChains | None:
        """From models (groups,) of zeros and minus infinities; None where clamped values leave no combination out.

        Args:
            support: the models.
            reference: log weights of the reference laws, (groups or 1, levels).
            clamped: codes of fixed variables by position, numbers or tensors (groups, chains).
            lead: groups and chains.

        Raises:
            InputError: clamped values that are impossible together.
        """
        domain, (groups, chains) = support.domain, lead
        inside = {v for members in support.hypergraph.edge_indices for v in members}
        fixed = {domain.names[v]: code for v, code in clamped.items() if v in inside}
        row = torch.arange(groups, device=support.device)[:, None].expand(lead)
        law: ProductInside | None = ProductInside(support, reference.expand(groups, -1))
        if fixed:
            # One row for every group and combination of clamped values.
            columns = [row, *(torch.as_tensor(code, device=row.device).expand(lead) for code in fixed.values())]
            distinct, index = torch.stack(columns, -1).reshape(groups * chains, -1).unique(dim=0, return_inverse=True)
            of_rows = LogLinearEnergy._trusted(support.hypergraph, support.tables[distinct[:, 0]])
            law = ProductInside(of_rows, reference.expand(groups, -1)[distinct[:, 0]])
            law, row = law.condition(dict(zip(fixed, distinct[:, 1:].unbind(1), strict=True))), index.reshape(lead)
        return None if law is None else cls(law, row, list(domain.indices(law.names)))

    def draw(self, seed: int, chains_of: Callable[..., Chains]) -> torch.Tensor:
        """States (groups, chains, columns) of the laws of the chains; ``chains_of`` makes those of a search.

        They are exact draws where an exact method is within reach; else what a search finds that leads chains through
        walls which rise. InputError where no state is possible, IntractableError where the search ends without one.
        """
        if not self.law.is_exact:
            return self._searched(seed, chains_of)
        random = torch.Generator(self.row.device).manual_seed(seed)
        flat = self.row.reshape(-1)
        states = flat.new_zeros(len(flat), len(self.columns))
        counts = flat.bincount(minlength=len(self.law.model.tables))
        # Rows that as many chains share are drawn together.
        for number in counts.unique().tolist():
            rows = (counts == number).nonzero().squeeze(1)
            most = min(self.law.num_at_once, max(1, _CELLS // max(1, number * len(self.columns))))
            for part in rows.split(most) if number else ():
                drawn = self.law.at(part).sample(number, random)
                where = torch.isin(flat, part).nonzero().squeeze(1)
                where = where[flat[where].argsort(stable=True)]
                states[where] = drawn.reshape(-1, len(self.columns))
        return states.reshape(*self.row.shape, -1)

    def _searched(self, seed: int, chains_of: Callable[..., Chains]) -> torch.Tensor:
        """The same by chains of the laws whose impossible states are improbable, and ever more so."""
        model = self.law.model
        most = int(self.row.reshape(-1).bincount().max())
        chains: Any = chains_of(walled(model), most, seed=seed)
        path = torch.logspace(_LOWEST, 0, _SWEEPS, dtype=torch.float64).clamp(max=1)
        chains.anneal(torch.cat([path.new_zeros(1), path]))
        for _ in range(_ROUNDS):
            states = chains.states
            energies = LogLinearEnergy._trusted(model.hypergraph, model.tables[:, None]).energy(states, validate=False)
            is_inside = torch.isfinite(energies)
            if bool(is_inside.any(-1).all()):
                break
            chains.sweep(_SWEEPS)
        else:
            problem = (
                f"no possible state was found in {(_ROUNDS + 1) * _SWEEPS} sweeps of {most} chains, and exact methods "
                "are out of reach for the combinations that are impossible"
            )
            raise out_of_reach("model", problem, "give first states (init=), or clamp some variables")
        # Chains that are still outside begin where others are.
        inside = (~is_inside).sort(dim=-1, stable=True).indices
        turn = torch.arange(most, device=inside.device) % is_inside.sum(-1, keepdim=True)
        index = torch.where(is_inside, torch.arange(most, device=inside.device), inside.gather(-1, turn))
        states = states.gather(-2, index[..., None].expand_as(states))
        # As many of each row as it has chains.
        flat = self.row.reshape(-1)
        order = flat.argsort(stable=True)
        counts = flat.bincount(minlength=len(states))
        number = torch.arange(len(flat), device=flat.device) - (counts.cumsum(0) - counts)[flat[order]]
        result = flat.new_zeros(len(flat), states.shape[-1])
        result[order] = states[flat[order], number]
        return result.reshape(*self.row.shape, -1)
