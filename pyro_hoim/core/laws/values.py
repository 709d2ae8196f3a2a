"""Checks of values of laws over vectors. Private to the package."""

from __future__ import annotations

import torch
from pyro.distributions.util import broadcast_shape

from ...checks import check_dense, is_hidden
from ...errors import refused, unexpected, wrong_type
from ...schema import Domain
from .support import StateSpace

__all__ = ["check_numbers", "check_shape", "check_value", "sample_batch"]


def check_shape(value: object, words: str, batch_shape: torch.Size, event_shape: torch.Size) -> torch.Tensor:
    """The value, or an error unless it is a tensor whose shape ends with the event and fits the batch."""
    if not isinstance(value, torch.Tensor):
        raise wrong_type("value", f"a tensor of {words}", value)
    check_dense(value, "value")
    if value.dim() == 0 or value.shape[-1:] != event_shape:
        expected = (*batch_shape, *event_shape)
        raise unexpected(
            "value", f"a shape that broadcasts with {expected}", received=tuple(value.shape), code="wrong-shape"
        )
    sample_batch(value, batch_shape, event_shape)
    return value


def check_numbers(value: object, words: str, batch_shape: torch.Size, event_shape: torch.Size) -> torch.Tensor:
    """As :func:`check_shape`; neither truth values nor complex numbers are taken."""
    if isinstance(value, torch.Tensor) and (value.dtype == torch.bool or value.is_complex()):
        raise wrong_type("value", words, received=f"dtype {value.dtype}")
    return check_shape(value, words, batch_shape, event_shape)


def check_value(value: object, domain: Domain, batch_shape: torch.Size, *, if_missing: str = "") -> None:
    """Raise unless a value has the right shape and lies in the support; ``if_missing`` is said of a code -1."""
    value = check_numbers(value, "level codes", batch_shape, torch.Size((len(domain),)))
    if is_hidden(value):
        return
    is_level = StateSpace(domain.cardinalities).is_level(value)
    if not bool(is_level.all()):
        where = (~is_level).nonzero()[0].tolist()
        variable, received = domain.variables[where[-1]], value[tuple(where)].item()
        raise refused(
            "value",
            f"variable {variable.name!r} has codes 0 to {variable.cardinality - 1}, received {received} at index "
            f"{tuple(where)}, outside the support{(if_missing if received == -1 else '')}",
            code="out-of-range",
        )


def sample_batch(value: torch.Tensor, batch_shape: torch.Size, event_shape: torch.Size) -> torch.Size:
    """Broadcast shape of a value's leading dimensions with the batch."""
    try:
        return torch.Size(broadcast_shape(value.shape[:-1], batch_shape))
    except ValueError:
        expected = (*batch_shape, *event_shape)
        wanted = f"a shape that broadcasts with {expected}"
        raise unexpected("value", wanted, received=tuple(value.shape), code="wrong-shape") from None
