"""Shapes of laws and lists of their states, whatever the model."""

import math
from collections.abc import Sequence

import torch

from ...errors import out_of_reach, refused, size_text


def check_cells(required: int, budget: int, what: str, option: str = "max_table_cells") -> None:
    """Raise :class:`IntractableError` when a dense result has more cells than its budget."""
    if required > budget:
        raise out_of_reach(what, f"needs {size_text(required, 'cells')}, the budget is {budget}", f"raise {option}")


def check_expandable(present: torch.Size, wanted: Sequence[int]) -> torch.Size:
    """The wanted batch shape, or :class:`InputError` when the present one does not broadcast to it."""
    shape = torch.Size(wanted)
    lead = len(shape) - len(present)
    if lead < 0 or any(n not in (1, m) for n, m in zip(present, shape[lead:], strict=True)):
        raise refused("batch_shape", f"{tuple(present)} cannot be expanded to {tuple(shape)}", code="wrong-shape")
    return shape


def list_states(cards: Sequence[int], device: torch.device) -> torch.Tensor:
    """Every state once, the last variable fastest, long (num_states, d)."""
    index = torch.arange(math.prod(cards), device=device)
    strides = [math.prod(cards[k + 1 :]) for k in range(len(cards))]
    columns = [index.div(s, rounding_mode="floor") % n for s, n in zip(strides, cards, strict=True)]
    return torch.stack(columns, -1) if columns else index.new_zeros((1, 0))


def enumerated_states(
    cards: Sequence[int], batch_shape: torch.Size, is_expanded: bool, device: torch.device
) -> torch.Tensor:
    """Every state beside a batch, (num_states, *batch, d), or (num_states, 1, ..., 1, d) when not expanded."""
    states = list_states(cards, device)
    states = states.reshape((len(states), *(1,) * len(batch_shape), len(cards)))
    return states.expand((len(states), *batch_shape, len(cards))) if is_expanded else states
