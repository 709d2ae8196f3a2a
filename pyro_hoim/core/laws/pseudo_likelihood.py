"""What the log pseudo-likelihoods of all families offer: a concave function of a vector, with its derivatives."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ...checks import check_exact_shape, checked_floating
from ...errors import refused

# Second derivatives as tensors whose own derivatives, which nobody computes, are refused and not left out.


class LastDerivative(torch.autograd.Function):
    """A tensor that depends on another one; differentiating it with respect to that raises :class:`InputError`."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, of: torch.Tensor, argument: str) -> torch.Tensor:
        """The value itself."""
        del of
        ctx.argument = argument
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Refused."""
        del grad_outputs
        raise refused(ctx.argument, "third derivatives are not computed", code="no-method")


Floats = NDArray[np.float64]


class PseudoLikelihood(ABC):
    """Log pseudo-likelihood of weighted distinct rows, on the processor in double precision.

    Attributes:
        argument: what the vector of unknowns is called in messages.
        num_unknowns: its length.
        weights: how often each distinct row was seen, (m,).
    """

    argument: ClassVar[str]
    num_unknowns: int
    weights: Floats

    @abstractmethod
    def log_prob(self, vector: NDArray[Any], /) -> float:
        """Value in nats; minus infinity where a conditional at some row cannot be normalised."""

    @abstractmethod
    def value_and_gradient(self, vector: NDArray[Any], /) -> tuple[float, Floats]:
        """Value and gradient (num_unknowns,) together; minus infinity and zeros where there is no law."""

    @abstractmethod
    def row_scores(self, vector: NDArray[Any], /) -> Floats:
        """Gradient of the log pseudo-probability of each distinct row, (m, num_unknowns), without its weight."""

    @abstractmethod
    def hessian(self, vector: NDArray[Any], /) -> Floats:
        """Hessian (num_unknowns, num_unknowns), negative semi-definite."""

    def __call__(self, vector: torch.Tensor) -> torch.Tensor:
        """The value, of the vector's dtype and device, as in a factor of a Pyro program; differentiable twice.

        A third derivative raises :class:`InputError`.
        """
        return _Value.apply(checked_floating(vector, self.argument), self)  # pyright: ignore[reportUnknownVariableType, reportReturnType]

    def _checked(self, vector: NDArray[Any]) -> Floats:
        """The vector of unknowns in double precision."""
        unknowns = np.ascontiguousarray(vector, dtype=np.float64)
        check_exact_shape(unknowns, (self.num_unknowns,), self.argument)
        return unknowns


class _Value(torch.autograd.Function):
    """Value and gradient from one evaluation; the Hessian is found only where the gradient is differentiated."""

    @staticmethod
    def forward(ctx: Any, vector: torch.Tensor, likelihood: PseudoLikelihood) -> torch.Tensor:
        value, gradient = likelihood.value_and_gradient(vector.detach().cpu().double().numpy())
        ctx.likelihood = likelihood
        ctx.save_for_backward(vector, torch.from_numpy(gradient).to(vector))
        return vector.new_tensor(value)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[torch.Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        vector, gradient = ctx.saved_tensors
        if torch.is_grad_enabled() and vector.requires_grad:
            gradient: Any = _Gradient.apply(vector, gradient, ctx.likelihood)
        return grad_outputs[0] * gradient, None


class _Gradient(torch.autograd.Function):
    """The gradient that was found with the value, with the Hessian as its derivative."""

    @staticmethod
    def forward(ctx: Any, vector: torch.Tensor, gradient: torch.Tensor, likelihood: PseudoLikelihood) -> torch.Tensor:
        ctx.likelihood = likelihood
        ctx.save_for_backward(vector)
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[torch.Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (vector,) = ctx.saved_tensors
        hessian: Any = torch.from_numpy(ctx.likelihood.hessian(vector.detach().cpu().double().numpy())).to(vector)
        if torch.is_grad_enabled() and vector.requires_grad:
            hessian = LastDerivative.apply(hessian, vector, ctx.likelihood.argument)
        return grad_outputs[0] @ hessian, None, None
