"""What constrained and penalised estimation return: theta and its parts, the gap as certificate, and the dual form."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..._modes import plain_mode
from ...core.partition import PartitionBackend
from ...errors import conflict
from ...structure.hypergraph import InteractionHypergraph
from ..coding import Coding
from ..energy import LogLinearEnergy
from ..file import ModelFile, save_model
from ..laws.law import HierarchicalLogLinear
from ..tensors.layout import check_binary
from ..tensors.tensor import SymmetricInteractionTensor
from .losses import Loss
from .norms import Ball, NormPenalty

Floats = NDArray[np.float64]
ConstrainedStatus = Literal["converged", "max_iterations", "stalled", "interrupted"]


@dataclass(frozen=True, eq=False)
class ConstrainedResult:
    r"""A minimiser of a loss under norm constraints or penalties, with a certificate.

    Attributes:
        hypergraph: the interactions.
        coding: the coding of theta.
        parts: parts of theta by name, (num_parameters,) each, such as "sparse" and "low_rank".
        terms: the ball, or the penalty, of every part.
        loss: the loss at theta, nats per row.
        gap: duality gap: the objective exceeds its minimum by at most this, nats per row.
        status: "converged" when the gap fell to the tolerance, "max_iterations", "stalled" when nothing improves for
            rounding or because the steps of a grid are too long, or "interrupted".
        multipliers: dual norm of the gradient at theta by part: lambda and mu.
        trace: objective and gap of every iteration, (iterations, 2).
    """

    hypergraph: InteractionHypergraph
    coding: Coding
    parts: Mapping[str, torch.Tensor]
    terms: Mapping[str, Ball | NormPenalty]
    loss: float
    gap: float
    status: ConstrainedStatus
    multipliers: Mapping[str, float]
    trace: Floats

    @classmethod
    def from_parts(
        cls,
        loss: Loss,
        terms: Mapping[str, Ball | NormPenalty],
        parts: Floats,
        gradient: Floats,
        gap: float,
        status: Any,
        trace: Floats,
    ) -> Self:
        """The result of parts (k, num_parameters) at which the loss has a gradient (num_parameters,)."""
        return cls(
            hypergraph=loss.hypergraph,
            coding=loss.coding,
            parts={name: torch.from_numpy(part.copy()) for name, part in zip(terms, parts, strict=True)},
            terms=dict(terms),
            loss=loss.value(parts.sum(0)),
            gap=gap,
            status=status,
            multipliers={name: term.norm.dual(gradient) for name, term in terms.items()},
            trace=trace,
        )

    @cached_property
    @plain_mode()
    def theta(self) -> torch.Tensor:
        """The sum of the parts (num_parameters,), float64."""
        return torch.stack(list(self.parts.values())).sum(0)

    @cached_property
    def norms(self) -> dict[str, float]:
        """Norm of every part."""
        return {name: term.norm.value(self.parts[name].numpy()) for name, term in self.terms.items()}

    @property
    def objective(self) -> float:
        """The loss plus the penalties, nats per row."""
        return self.loss + sum(term.cost(self.norms[name]) for name, term in self.terms.items())

    @cached_property
    @plain_mode()
    def model(self) -> LogLinearEnergy:
        """The unnormalised model."""
        return LogLinearEnergy.from_theta(self.hypergraph, self.theta, coding=self.coding)

    @cached_property
    @plain_mode()
    def tensor(self) -> SymmetricInteractionTensor:
        """Theta as a strongly symmetric tensor; InputError unless the interactions are all sets of binary variables."""
        check_binary(self.hypergraph.domain, "tensor")
        return SymmetricInteractionTensor(self.theta, len(self.hypergraph.domain), self.hypergraph.order)

    def law(self, partition: PartitionBackend | None = None) -> HierarchicalLogLinear:
        """The distribution, with log Z by a backend."""
        return HierarchicalLogLinear(self.hypergraph, self.theta, coding=self.coding, partition=partition)

    def dual_form(self) -> dict[str, Ball] | dict[str, NormPenalty]:
        r"""The terms under which the other problem has the same solution (paper 3, section 3.2).

        By Lagrange duality a solution within balls of radii a and b minimises the loss with penalties of the strengths
        lambda and mu, the dual norms of its gradient; a solution with penalties is one within balls of its norms.

        Raises:
            InputError: a constraint that does not bind, or a part that is zero, has no positive counterpart.
        """
        is_constrained = all(isinstance(term, Ball) for term in self.terms.values())
        weights, kind = (self.multipliers, NormPenalty) if is_constrained else (self.norms, Ball)
        for (name, term), norm in zip(self.terms.items(), self.norms.values(), strict=True):
            is_inside = isinstance(term, Ball) and norm < (1 - 1e-6) * term.radius
            if is_inside and weights[name] * norm <= 100 * self.gap:  # what is left of the gradient is the gap's
                raise conflict("dual_form", f"the ball of {name!r} does not bind", "leave its constraint out")
        for name, value in weights.items():
            if not value > 0:
                problem = f"the {'gradient' if is_constrained else 'norm'} of {name!r} is zero"
                raise conflict("dual_form", problem, "leave that part out")
        return {name: kind(term.norm, weights[name]) for name, term in self.terms.items()}  # pyright: ignore[reportReturnType]

    def to_frame(self) -> pd.DataFrame:
        """One row a part: norm, bound or strength, multiplier and number of parameters that are not zero."""
        rows = [
            {
                "part": name,
                "norm": self.norms[name],
                "radius": getattr(term, "radius", None),
                "strength": getattr(term, "strength", self.multipliers[name]),
                "num_parameters": int((self.parts[name] != 0).sum()),
            }
            for name, term in self.terms.items()
        ]
        return pd.DataFrame(rows).set_index("part")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write theta as a model file in its coding, with the parts as further tensors.

        Raises:
            ModelFileError: the file cannot be written.
        """
        info = {"loss": self.loss, "gap": self.gap, "status": self.status, "multipliers": dict(self.multipliers)}
        tensors = {f"part_{name}": part for name, part in self.parts.items()}
        save_model(path, ModelFile(self.hypergraph, self.theta, self.coding, info, tensors))
