"""Modes of PyTorch, and how to leave them for tensors that are found once and serve later calls too."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from .checks import is_transformed

_C: Any = torch._C


@contextmanager
def plain_mode(*inputs: torch.Tensor, gradients: bool = False) -> Generator[None]:
    """Work outside all modes that the caller may be in, so that what is found can be kept for every later caller.

    A tensor made in inference mode, inside ``torch.func``, under a fake or a ``meta`` device or under autocast belongs
    to that mode: once kept, it would break training, pickling or precision of others. Use it around what fills a cache
    of tensors, as a decorator below ``lru_cache`` or ``cached_property``.

    Args:
        inputs: tensors that the result is made of. Where one of them belongs to a transformation or is a tensor of
            another class, the result does too, and nothing changes.
        gradients: whether autograd records where a mode is left; otherwise that stays as it is.
    """
    if not _is_in_mode() or not all(map(_is_plain, inputs)):
        yield
        return
    with (
        temporarily_clear_interpreter_stack(),
        _disable_current_modes(),
        _C.DisableTorchFunction(),
        _C._DisableAutocast(),
        torch.inference_mode(False),
        torch.set_grad_enabled(gradients),
    ):
        yield


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not is_transformed(tensor)


def _is_in_mode() -> bool:
    """Whether any mode is active but that of gradients."""
    return (
        torch.is_inference_mode_enabled()
        or _C._functorch.peek_interpreter_stack() is not None
        or _C._len_torch_function_stack() > 0
        or _C._len_torch_dispatch_stack() > 0
        or any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    )
