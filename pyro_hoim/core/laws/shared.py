"""What distributions over vectors have in common whose copies of another batch shape share one law.

Private to the package. Whatever is found once, a normalising constant or an enumerated law, is kept by the law, so that
a plate over a million rows finds it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, cast

import torch
from pyro.distributions import TorchDistribution

from ...checks import checked_sample_shape
from .expansion import beside_their_origin, check_expandable, split_expansion
from .traces import refuse_traced
from .values import sample_batch

__all__ = ["SharedLaw"]


class SharedLaw(TorchDistribution):
    """A distribution over vectors that keeps its parameters, and all that follows from them, in a law.

    A class sets the attributes named in ``_shared``, then calls :meth:`_settle`. A subclass with a constructor of its
    own has to say itself how it is expanded, as everywhere in Pyro.
    """

    has_rsample = False

    _shared: ClassVar[tuple[str, ...]] = ("_law",)
    """Attributes that expanded copies have in common."""

    _law: Any
    """What is shared; where tensors depend on parameters with a batch, ``_law.batch_shape`` is theirs."""

    def _settle(self, batch_shape: torch.Size, event_size: int, validate_args: bool | None) -> None:
        """Fix the shapes; without a setting of its own the law validates by Pyro's setting of the moment of use."""
        super().__init__(batch_shape, torch.Size((event_size,)), validate_args=False)
        del self._validate_args  # the base class would store the global setting of this moment
        if validate_args is not None:
            self._validate_args = validate_args

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """The same law with a larger batch shape; what was found once, such as log Z, is shared, not found anew.

        Raises:
            InputError: the present batch shape does not broadcast to the new one.
        """
        family = next(cls for cls in type(self).__mro__ if SharedLaw in cls.__bases__)
        new = cast("Self", self._get_checked_instance(family, _instance))
        shape = check_expandable(self.batch_shape, batch_shape)
        for name in self._shared:
            setattr(new, name, getattr(self, name))
        new._settle(shape, self.event_shape[0], self._own_validation)
        return new

    @property
    def _own_validation(self) -> bool | None:
        """The setting of this very law; None where Pyro's counts."""
        return self.__dict__.get("_validate_args")

    def _repr(self, *words: str) -> str:
        """Name of the class with the words and, where there is one, the batch shape."""
        batch = [f"batch_shape={tuple(self.batch_shape)}"] if self.batch_shape else []
        return f"{type(self).__name__}({', '.join([*words, *batch])})"

    # Tensors of the law in the batch shape of the distribution

    @property
    def _is_own_batch(self) -> bool:
        return self._batch_shape == self._law.batch_shape

    def _expanded(self, tensor: torch.Tensor, event_dim: int = 0) -> torch.Tensor:
        """A tensor with the batch shape of the law, given the batch shape of this distribution."""
        if self._is_own_batch:
            return tensor
        return tensor.expand(self.batch_shape + tensor.shape[tensor.dim() - event_dim :])

    def _sample_batch(self, value: torch.Tensor) -> torch.Size:
        """Broadcast shape of a value's leading dimensions with the batch."""
        return sample_batch(value, self.batch_shape, self.event_shape)

    def _drawn(
        self, sample_shape: Sequence[int], draw: Callable[[torch.Size], torch.Tensor], like: torch.Tensor
    ) -> torch.Tensor:
        """Draws (*sample, *batch, d) by a sampler of the law.

        Args:
            sample_shape: leading dimensions.
            draw: gives independent states (*shape, *batch of the law, d) for a shape.
            like: a tensor of the dtype and on the device of draws, for results without any.

        Raises:
            InputError: inside a traced program.
        """
        refuse_traced("sample", "the draws")
        lead, inner = split_expansion(self._law.batch_shape, self.batch_shape)
        sample_shape = checked_sample_shape(sample_shape)
        shape = self.shape(sample_shape)
        if not shape.numel():
            return like.new_zeros(shape)
        with torch.no_grad():
            drawn = draw(torch.Size((*sample_shape, *lead, *inner)))
        if any(n != 1 for n in inner):
            drawn = beside_their_origin(drawn, len(sample_shape) + len(lead), len(inner))
        return drawn.reshape(shape)
