"""How a machine is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import check_choice, check_fraction, check_not_negative, check_positive, check_whole

__all__ = ["LearningMethod", "LearningOptions"]

LearningMethod = Literal["pcd", "cd", "exact"]


@dataclass(frozen=True)
class LearningOptions:
    r"""Method, step and length of learning.

    ``exact`` climbs the log-likelihood itself by L-BFGS, with log Z by a sum over a layer or an exact backend. ``cd``
    and ``pcd`` add ``rate`` times an estimate of its gradient,

    .. math:: \langle x_i x_j \rangle_\text{data} - \langle x_i x_j \rangle_\text{chains},

    whose first mean is exact in the hidden units and whose second comes from ``steps`` sweeps of block Gibbs: from the
    rows themselves (``cd``, contrastive divergence: biased, and the optimum is another one), or from chains that are
    kept from step to step (``pcd``: biased by as much as the chains lag behind). The paper's plain gradient is ``cd``
    with ``rate=0.1``, ``momentum=0`` and ``decay=0``.

    Args:
        method: "pcd", "cd" or "exact".
        steps: sweeps k between two steps of the gradient.
        rate: of the gradient, per row.
        iterations: steps of the gradient; at most so many of L-BFGS.
        batch_size: rows of a step, drawn with replacement by their counts; None for all rows at once.
        num_chains: chains of "pcd".
        momentum: share of the former step that is added.
        decay: half of it times the sum of squared weights is taken from the mean log-likelihood; biases are free.
        patience: stop when the score of the validation rows has not risen in so many evaluations, and keep the best
            machine; None runs to the end. There are 100 evaluations along the run, of "exact" one in 50 iterations at
            most.
        scale: standard deviation of the weights at the start; biases start at zero, those of visible variables at the
            log odds of their means.

    Raises:
        InputError: an option outside its range.

    References:
        Hinton (2002), Training products of experts; Tieleman (2008), Training restricted Boltzmann machines using
        approximations to the likelihood gradient. Paper 4, section 3.2.

    Example:
        >>> import torch
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.boltzmann import fit_machine
        >>> rows = Observations.from_table(Domain.from_cardinalities([2, 2]), torch.tensor([[40, 10], [10, 40]]))
        >>> strict = LearningOptions("exact", decay=100.0)  # hardly any weight, so independence
        >>> fit_machine(rows, 1, strict).law.probs.round(decimals=3).tolist()
        [[0.25, 0.25], [0.25, 0.25]]
    """

    method: LearningMethod = "pcd"
    steps: int = 1
    rate: float = 0.1
    iterations: int = 10_000
    batch_size: int | None = 100
    num_chains: int = 100
    momentum: float = 0.0
    decay: float = 0.0
    patience: int | None = None
    scale: float = 0.1

    def __post_init__(self) -> None:
        check_choice(self.method, get_args(LearningMethod), "method")
        for name in ("steps", "iterations", "num_chains"):
            check_whole(getattr(self, name), name)
        for name in ("batch_size", "patience"):
            if getattr(self, name) is not None:
                check_whole(getattr(self, name), name)
        check_positive(self.rate, "rate")
        check_not_negative(self.decay, "decay")
        check_not_negative(self.scale, "scale")
        if self.momentum != 0:
            check_fraction(self.momentum, "momentum")
