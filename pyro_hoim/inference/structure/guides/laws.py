"""Laws that a guide of structures is made of: indicators one after the other, and parameters given indicators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from pyro.distributions import TorchDistribution, constraints

from ....checks import checked_sample_shape
from ..prior import StructureSupport
from ..space import StructureSpace, bits_of

__all__ = ["SequentialStructure", "present_normal"]


class Heredity:
    """Which candidates are free to be present, given those before them; tensors of one space, made once."""

    def __init__(self, space: StructureSpace) -> None:
        num = space.num_free
        facets = np.zeros((num, num))
        for j in range(num):
            facets[j, bits_of(space.facets[j])] = 1
        self.space = space
        self.facets = torch.from_numpy(facets)
        self.needed = torch.tensor(space.needed[:num], dtype=torch.float64)

    def is_free(self, indicators: torch.Tensor) -> torch.Tensor:
        """Candidates whose facets suffice, (..., num_free), from indicators of the same shape."""
        return indicators.to(self.facets) @ self.facets.T >= self.needed


class SequentialStructure(TorchDistribution):
    r"""Indicators drawn one after the other in the order of the candidates, so that facets come before what they bear.

    .. math:: q(\gamma) = \prod_j q(\gamma_j \mid \gamma_{<j}), \qquad
        \operatorname{logit} q(\gamma_j = 1 \mid \gamma_{<j}) = b_j + \sum_{i < j} W_{ji} \gamma_i

    where the facets of candidate j are present as heredity asks, and :math:`\gamma_j = 0` where not: every draw is a
    member of the space. Without W the indicators are independent but for heredity.

    Args:
        heredity: of the space, one that heredity alone defines.
        bias: b, (num_free,), nats.
        weights: W, (num_free, num_free), of which the part below the diagonal counts; None for zero.
        batch_shape: of identical laws.
        fixed: what :meth:`sample` answers, (*batch_shape, num_free); for sums over listed members.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}  # type: ignore[override]
    has_rsample = False

    def __init__(
        self,
        heredity: Heredity,
        bias: torch.Tensor,
        weights: torch.Tensor | None = None,
        batch_shape: Sequence[int] = (),
        fixed: torch.Tensor | None = None,
    ) -> None:
        self.heredity, self.bias, self.fixed = heredity, bias, fixed
        self.weights = None if weights is None else weights.tril(-1)
        super().__init__(torch.Size(batch_shape), bias.shape[-1:], validate_args=False)

    @property
    def support(self) -> StructureSupport:  # type: ignore[override]
        """The members of the space."""
        return StructureSupport(self.heredity.space)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> SequentialStructure:
        """The law with another batch shape."""
        return SequentialStructure(self.heredity, self.bias, self.weights, batch_shape, self.fixed)

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Indicators (*sample, *batch, num_free), float64."""
        if self.fixed is not None:
            return self.fixed
        with torch.no_grad():
            shape = checked_sample_shape(sample_shape, self.batch_shape.numel() * len(self.bias)) + self.batch_shape
            drawn = self.bias.new_zeros((*shape, len(self.bias)))
            for j in range(len(self.bias)):
                logit = self.bias[j].expand(shape)
                if self.weights is not None:
                    logit = logit + drawn @ self.weights[j]
                is_free = drawn @ self.heredity.facets[j] >= self.heredity.needed[j]
                drawn[..., j] = torch.bernoulli(torch.sigmoid(logit)) * is_free
            return drawn

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-probability, nats; minus infinity outside the space."""
        value = value.to(self.bias.dtype)
        logits = self.bias if self.weights is None else self.bias + value @ self.weights.T
        terms = torch.nn.functional.logsigmoid(torch.where(value == 1, logits, -logits))
        is_free = self.heredity.is_free(value)
        forbidden = ((value == 1) & ~is_free).any(-1)
        total = torch.where(is_free, terms, 0.0).sum(-1)
        shape = torch.broadcast_shapes(total.shape, self.batch_shape)
        return total.masked_fill(forbidden, -math.inf).expand(shape)


def present_normal(
    mean: torch.Tensor,
    factor: torch.Tensor,
    absent_mean: torch.Tensor,
    absent_scale: torch.Tensor,
    is_present: torch.Tensor,
) -> torch.distributions.MultivariateNormal:
    r"""The normal law of coordinates given that some are absent: those present follow the law given zeros elsewhere.

    .. math:: \theta_p \mid \theta_a = 0 \sim \mathcal N\big(\mu_p + \Lambda_{pp}^{-1} \Lambda_{pa} \mu_a,
        \Lambda_{pp}^{-1}\big), \qquad \Lambda = L L^\top

    which is the posterior of every collection at once where the log-likelihood of the largest one is quadratic. Absent
    coordinates are independent normals of their own, which become the prior.

    Shape:
        mean, absent_mean, absent_scale (P,); factor L (P, P), lower triangular; is_present (*batch, P), 0 or 1; event
        shape (P,), batch (*batch).
    """
    precision = factor @ factor.mT
    outer = is_present.unsqueeze(-1) * is_present.unsqueeze(-2)
    own = torch.where(is_present == 1, torch.zeros_like(absent_scale), absent_scale.square().reciprocal())
    masked = precision * outer + torch.diag_embed(own)
    pull = (precision @ (mean * (1 - is_present)).unsqueeze(-1)).squeeze(-1) * is_present
    # A factor of the precision with its coordinates in reverse order is, turned back, the inverse of the covariance's.
    inverse = torch.linalg.cholesky(masked.flip(-2, -1)).flip(-2, -1).mT
    covariance_root = torch.linalg.solve_triangular(inverse, torch.eye(len(mean), dtype=mean.dtype), upper=False)
    shift = (covariance_root @ (covariance_root.mT @ pull.unsqueeze(-1))).squeeze(-1)
    loc = torch.where(is_present == 1, mean + shift, absent_mean)
    return torch.distributions.MultivariateNormal(loc, scale_tril=covariance_root, validate_args=False)
