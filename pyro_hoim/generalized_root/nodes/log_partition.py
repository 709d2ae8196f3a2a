r"""Log partition function of a node given all others, with gradient and Hessian (paper 2, equations 12 to 14).

.. math:: A(\eta) = \log \int \exp\Bigl(\sum_{j=1}^k \eta_j T_j(x) + B(x)\Bigr) d\mu(x), \qquad
   \nabla A = E\,T, \qquad \nabla^2 A = \operatorname{Cov} T.

Small counts are summed from tables, large ones and real values by trapezoidal sums whose error is checked, the
exponential and the Gaussian family up to order 2 by their closed forms. The work is done by compiled loops on the CPU
in float64; tensors on another device, or in another precision, travel there and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checks import check_finite, checked_floating, refuse_transforms
from ...core.laws.pseudo_likelihood import LastDerivative
from ...errors import check_type, refused, wrong_shape
from .families import NodeFamily
from .kernels import evaluate_nodes
from .user_family import UserFamily

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NodeMoments:
    r"""Log partition of node conditionals with the moments of their root statistics."""

    value: Tensor
    """A(eta) (*batch), in nats."""
    mean: Tensor
    """Gradient of A, E T_j (*batch, k)."""
    covariance: Tensor | None
    """Hessian of A, Cov(T_i, T_j) (*batch, k, k); None if it was not asked for."""
    error: Tensor
    """Estimated error of the value relative to one plus the size of A, of moments relative to themselves (*batch)."""


def node_moments(family: NodeFamily, natural: Tensor, hessian: bool = True) -> NodeMoments:
    r"""A(eta) of many node conditionals with its gradient and Hessian, outside autograd.

    A row costs half a microsecond for counts below a hundred at k = 3, less for reals at k up to 2, and tens
    for means in the thousands and for other reals.

    Args:
        family: the node family.
        natural: natural parameters :math:`\eta_1, ..., \eta_k` of every row (*batch, k), finite, float32 or float64.
        hessian: whether the covariance is wanted.

    Returns:
        The moments in dtype and on the device of ``natural``; exact to about 1e-10 (``error`` says more).

    Raises:
        InputTypeError: natural is no floating-point tensor.
        InputError: a wrong shape, NaN or infinity, parameters whose density cannot be normalised, or a result beyond
            the largest number of the dtype, such as 3e38 in float32; the first such parameters are named.

    Example:
        >>> from pyro_hoim.generalized_root import GaussianFamily
        >>> found = node_moments(GaussianFamily(), torch.tensor([-0.5, 1.0]))  # normal, mean 1 and variance 1
        >>> found.mean, found.covariance  # of the square of x, and of x
        (tensor([2., 1.]), tensor([[6., 2.],
                [2., 1.]]))
    """
    check_type(family, NodeFamily, "family")
    check_finite(checked_natural(natural), "natural")
    return _moments(family, natural.detach(), 2 if hessian else 1)


def node_log_partition(family: NodeFamily, natural: Tensor) -> Tensor:
    """A(eta) (*batch) in nats of many node conditionals, differentiable twice in eta.

    The gradient is E T, its derivative Cov(T); a third derivative is an :class:`InputError`. Arguments, errors and
    source as :func:`node_moments`; natural inside a torch.func transformation is an :class:`InputError` too.

    Args:
        family: the node family.
        natural: natural parameters (*batch, k).

    Example:
        >>> from pyro_hoim.generalized_root import ExponentialFamily
        >>> natural = torch.tensor([-4.0], requires_grad=True)
        >>> value = node_log_partition(ExponentialFamily(), natural)  # -log 4
        >>> round(value.item(), 4), torch.autograd.grad(value, natural)
        (-1.3863, (tensor([0.2500]),))
    """
    check_type(family, NodeFamily, "family")
    check_finite(checked_natural(natural), "natural")
    refuse_transforms("node_log_partition", natural)
    return _LogPartition.apply(natural, family)  # type: ignore[no-any-return]


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, natural: Tensor, family: NodeFamily) -> Tensor:
        moments = _moments(family, natural.detach(), 1 if ctx.needs_input_grad[0] else 0)
        ctx.family, ctx.mean = family, moments.mean
        ctx.save_for_backward(natural)
        return moments.value

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None]:
        # The slope of A is the mean, whose slope is the covariance.
        (natural,) = ctx.saved_tensors
        mean = _Mean.apply(natural, ctx.family, ctx.mean)
        return grad_outputs[0].unsqueeze(-1) * mean, None


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, natural: Tensor, family: NodeFamily, mean: Tensor) -> Tensor:
        ctx.family = family
        ctx.save_for_backward(natural)
        return mean.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (natural,) = ctx.saved_tensors
        covariance: Any = _moments(ctx.family, natural.detach(), 2).covariance
        if torch.is_grad_enabled() and natural.requires_grad:
            covariance = LastDerivative.apply(covariance, natural, "natural")
        return (covariance @ grad_outputs[0].unsqueeze(-1)).squeeze(-1), None, None


def _moments(family: NodeFamily, natural: Tensor, order: int) -> NodeMoments:
    """Run the kernels and refuse what came out infinite."""
    # The kernels take float64 rows on the CPU.
    batch, k = natural.shape[:-1], natural.shape[-1]
    eta = np.ascontiguousarray(natural.to("cpu", torch.float64).reshape(-1, k).numpy())
    n = eta.shape[0]
    value, mean = np.empty(n), np.empty((n if order > 0 else 0, k))
    covariance = np.empty((n if order > 1 else 0, k, k))
    error = evaluate_nodes(family, eta, order, value, mean, covariance)
    # Refuse rows without a law, and results that the dtype cannot hold.
    bad = ~np.isfinite(value)
    if bad.any():
        row = int(np.argmax(bad))
        where = tuple(int(i) for i in np.unravel_index(row, tuple(batch))) if batch else ()
        why = "parameters whose density can be normalised (that of the highest power that is not zero is negative)"
        if family.is_discrete:
            why = "a log partition function below the largest number"
        if isinstance(family, UserFamily):
            why = "parameters whose sum or integral is finite and ends within what is looked at"
        problem = (
            f"the {family.name} family needs {why}, received {tuple(float(e) for e in eta[row])} at index {where} "
            f"({int(bad.sum())} such rows)"
        )
        raise refused("natural", problem, code="not-normalizable")
    _check_range(natural.dtype, family, eta, [value, mean, covariance][: order + 1])

    def back(numbers: Floats, *shape: int) -> Tensor:
        return torch.from_numpy(numbers).reshape((*batch, *shape)).to(natural.device, natural.dtype)

    return NodeMoments(
        back(value),
        back(mean, k) if order > 0 else natural.new_empty(0),
        back(covariance, k, k) if order > 1 else None,
        back(error),
    )


def _check_range(dtype: torch.dtype, family: NodeFamily, eta: Floats, results: list[Floats]) -> None:
    """Refuse results that are no numbers in the dtype of the parameters."""
    if dtype == torch.float64 or not len(eta):
        return
    largest = torch.finfo(dtype).max
    is_beyond = np.stack([(np.abs(values) > largest).reshape(len(eta), -1).any(1) for values in results])
    if is_beyond.any():
        row = int(np.argmax(is_beyond.any(0)))
        what = ("log partition function", "mean of a root", "covariance of roots")[int(np.argmax(is_beyond[:, row]))]
        problem = (
            f"the {family.name} family at {tuple(float(e) for e in eta[row])} has a {what} beyond the largest number "
            f"of {dtype} ({int(is_beyond.any(0).sum())} such rows)"
        )
        raise refused("natural", problem, "use float64", code="other-domain")


def checked_natural(natural: object) -> Tensor:
    """Natural parameters, refused unless they are a floating-point tensor (*batch, k)."""
    tensor = checked_floating(natural, "natural")
    if tensor.dim() == 0 or tensor.shape[-1] == 0:
        raise wrong_shape("natural", "(*batch, k) with k from 1", tensor)
    return tensor
