"""Interaction screening of binary variables with interactions of any order: an exponential loss of the node logits."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from .losses import BinaryLoss, Floats, NodeTerms

__all__ = ["InteractionScreeningLoss"]


class InteractionScreeningLoss(BinaryLoss):
    r"""Interaction screening objective of binary rows, summed over the nodes, as a function of corner theta.

    .. math:: f(\theta) = \frac1N \sum_r n_r \sum_i e^{-h_i(x_r)}, \qquad
        h_i(x) = E_\theta(\bar x_i, x_{-i}) / 2 - E_\theta(x) / 2 = (x_i - \tfrac12)\, \eta_i(x_{-i})

    :math:`h_i` is the sum of all terms of the log-probability that have variable i, centred over the two levels of i
    with equal weights. Centring takes out every coordinate system: monomials of zeros and ones give half the node logit
    with the sign of the observed level, and so do products of signs -1 and 1, in which Vuffray, Misra and Lokhov write
    binary models. So nothing is converted; theta is that of the corner coding as in every loss here, and what an l1
    norm penalises are corner coordinates, not their couplings of signs.

    Under the law of theta, :math:`e^{-h_i}` weighs the levels of i equally whatever the other variables are: the
    interactions of i are screened, every centred term has mean zero, and the expected gradient vanishes. The loss is
    convex and not negative, but it is no log-likelihood: it has no unit, and a value is not comparable with that of
    :class:`~pyro_hoim.log_linear.constrained.losses.PseudoLikelihoodLoss`. The original minimises the term of every
    node over parameters of its own; here, as in the pseudo-likelihood, an interaction has one parameter for all of its
    nodes. Rows that theta makes improbable weigh exponentially.

    Cost, arguments and errors are those of :class:`~pyro_hoim.log_linear.constrained.losses.BinaryLoss`. Beyond logits
    of some 1,400 values overflow to infinity, which the searches here take for steps that are too long.

    References:
        Marc Vuffray, Sidhant Misra and Andrey Lokhov, Efficient learning of discrete graphical models, 2020, the
        generalised interaction screening objective; Vuffray, Misra, Lokhov and Michael Chertkov, Interaction screening:
        efficient and sample-optimal learning of Ising models, 2016.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> loss = InteractionScreeningLoss(data, 2)
        >>> theta = np.log([0.25, 0.25, 16.0])  # of the table itself: log(10 / 40) twice, log(40 * 40 / (10 * 10))
        >>> bool(np.abs(loss.value_and_gradient(theta)[1]).max() < 1e-15)
        True
    """

    @override
    def _terms(self, logits: Floats, states: Floats, derivatives: int) -> NodeTerms:
        half = 0.5 - states
        with np.errstate(over="ignore"):
            value = np.exp(half * logits)
        none = np.empty(0)
        return NodeTerms(value, half * value if derivatives else none, 0.25 * value if derivatives == 2 else none)
