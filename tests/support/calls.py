"""Calls of functions that a test notes, and what happens in one of them."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pyro_hoim.log_linear import FitResult
from pyro_hoim.runs import RunOptions

interrupt_signal = partial(signal.raise_signal, signal.SIGINT)
"""Ctrl-C that reaches the program by its signal; :func:`noted` raises what this comes to."""


def _interrupt() -> None:
    raise KeyboardInterrupt


def noted(
    patch: pytest.MonkeyPatch, owner: Any, name: str, number: int | None = None, event: Callable[[], Any] = _interrupt
) -> list[tuple[Any, ...]]:
    """Arguments of all calls of a function from now on; in the call of a number, from 1, something happens first."""
    plain, calls = getattr(owner, name), list[tuple[Any, ...]]()

    def called(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == number:
            event()
        return plain(*arguments, **options)

    patch.setattr(owner, name, called)
    return calls


def stopped_again(
    patch: pytest.MonkeyPatch, objective: Any, fit: Callable[..., FitResult], file: Path, least: int
) -> tuple[FitResult, list[FitResult]]:
    """A fit, and its results where it is stopped again and again, every time a few evaluations later.

    Only what was interrupted is done twice, and the last result is that of the whole fit.
    """
    with patch.context() as counting:
        total = noted(counting, objective, "evaluate")
        whole = fit()
    parts, calls = list[FitResult](), list[Any]()
    for stop in range(6):
        with patch.context() as stopping:
            calls = noted(stopping, objective, "evaluate", least + len(total) // 4 if stop < 5 else None)
            parts.append(fit(run=RunOptions(file, resume=True)))
        if parts[-1].status != "interrupted":
            break
    assert len(parts) > 1 and len(calls) + 1 < len(total)  # control: it did not begin anew
    assert parts[-1].status == whole.status and parts[-1].num_iterations == whole.num_iterations
    assert torch.equal(parts[-1].theta, whole.theta)
    return whole, parts
