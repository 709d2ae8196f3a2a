r"""The two contracts of a model: conditionals, and conditionals with an energy.

A model is *unnormalised*: it never knows its partition function. A distribution is a model, a partition backend and a
sampler. Dependency networks satisfy the first protocol only, because their conditionals need not belong to one law.

Conventions of both protocols:

* A joint state is the last dimension of a tensor of codes ``x`` (*sample, d), in the order of ``domain``; integers, or
  floats that are whole numbers.
* Parameters have a batch shape; ``x.shape[:-1]`` is broadcast against it as in :mod:`torch.distributions`.
* Everything is in nats and differentiable in the parameters by autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch

from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["ConditionalModel", "CountModel", "EnergyModel", "LogLinearModel"]


@runtime_checkable
class ConditionalModel(Protocol):
    r"""A family of conditional laws, one for every block of variables given all the others.

    Laws an implementation must obey, for every block B and state x:

    * ``block_conditional(B, x).exp()`` sums to one over its last ``len(B)`` dimensions;
    * it does not depend on ``x[..., B]``, which may hold anything;
    * permuting the names of B permutes those dimensions and changes nothing else.
    """

    @property
    def domain(self) -> Domain:
        """The variables, in the order of the last dimension of a state."""
        ...

    def block_conditional(self, block: Sequence[str], x: torch.Tensor) -> torch.Tensor:
        r"""Log probabilities of the states of a block given the rest, :math:`\log p(x_B \mid x_{-B})`.

        Args:
            block: distinct variable names; their order is the order of the trailing dimensions of the result.
            x: codes; the entries of the block are not read.

        Shape:
            x (*sample, d); result (*broadcast of sample and batch, *cardinalities of the block).
        """
        ...


@runtime_checkable
class EnergyModel(ConditionalModel, Protocol):
    r"""A conditional model whose conditionals come from one energy, :math:`q(x) \propto \exp(-E(x))`.

    Further law: ``block_conditional(B, x)`` at a state of B, minus that at another state, equals the difference of
    minus the energies of the two joint states.
    """

    def energy(self, x: torch.Tensor) -> torch.Tensor:
        """Minus the log of the unnormalised probability.

        Shape:
            x (*sample, d); result (*broadcast of sample and batch).
        """
        ...


@runtime_checkable
class CountModel(ConditionalModel, Protocol):
    """A conditional model of values that are their own numbers, and so no codes of levels."""

    def over_levels(self) -> ConditionalModel:
        """The same model over ordinal variables; a code is the value itself."""
        ...


class LogLinearModel(Protocol):
    """What samplers and backends read of a log-linear model: hypergraph and flat tables (*batch, num_terms)."""

    hypergraph: InteractionHypergraph
    tables: torch.Tensor
