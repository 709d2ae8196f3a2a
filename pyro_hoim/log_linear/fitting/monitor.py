"""Following a fit: history, early stopping on validation rows, progress bar and checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
import torch
from tqdm import tqdm

from ...errors import refused
from ...structure.hypergraph import InteractionHypergraph
from ..file import ModelFile, load_model, save_model
from .problems import HeldOut
from .result import HistoryEntry

__all__ = ["Checkpoint", "Monitor", "load_checkpoint"]

_SECONDS_BETWEEN_CHECKPOINTS = 30.0


class Checkpoint:
    """A model file with the latest parameters of a running fit, replaced in one step.

    Args:
        path: the file; its folder must exist.
        hypergraph: the interaction structure.
        seconds: least time between two writes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        hypergraph: InteractionHypergraph,
        seconds: float = _SECONDS_BETWEEN_CHECKPOINTS,
    ) -> None:
        self.path = path
        self.hypergraph = hypergraph
        self.seconds = seconds
        self._due = time.monotonic() + seconds

    def write(self, theta: np.ndarray, iteration: int, *, force: bool = False) -> None:
        """Write if it is time, or in any case with ``force``."""
        if force or time.monotonic() >= self._due:
            info = {"checkpoint": True, "iteration": iteration}
            save_model(self.path, ModelFile(self.hypergraph, torch.from_numpy(theta), info=info))
            self._due = time.monotonic() + self.seconds


def load_checkpoint(path: str | os.PathLike[str], hypergraph: InteractionHypergraph) -> np.ndarray:
    """Free parameters (num_parameters,) of a checkpoint.

    Raises:
        ModelFileError: no such file, or not a model file.
        InputError: it belongs to another model.
    """
    file = load_model(path)
    if file.hypergraph != hypergraph or file.coding != "free":
        problem = f"{os.fspath(path)} belongs to another model, {file.hypergraph!r}"
        raise refused("checkpoint", problem, code="other-run")
    return file.theta.numpy().copy()


class Monitor:
    """Receives every iterate of a solver; decides when to stop.

    Args:
        train_entropy: subtracted from the training loss, nats.
        validation: loss of the validation rows as a function of (theta, training loss), or None.
        validation_entropy: subtracted from the validation loss, nats.
        patience: iterations without a better validation loss after which the fit stops; None never stops.
        lift: maps the solver's coordinates to free parameters.
        checkpoint: where to keep the parameters, or None.
        keep_history: keep an entry for every iterate.
        progress: show a progress bar on standard error.
        max_iterations: length of the progress bar.
    """

    def __init__(
        self,
        *,
        train_entropy: float = 0.0,
        validation: HeldOut | None = None,
        validation_entropy: float = 0.0,
        patience: int | None = None,
        lift: Callable[[np.ndarray], np.ndarray] | None = None,
        checkpoint: Checkpoint | None = None,
        keep_history: bool = False,
        progress: bool = False,
        max_iterations: int = 0,
    ) -> None:
        self.history: list[HistoryEntry] = []
        self.best_theta: np.ndarray | None = None
        self.best_iteration: int | None = None
        self.best_validation = float("inf")
        self.last_theta: np.ndarray | None = None
        self.last_iteration = 0
        self._train_entropy = train_entropy
        self._validation = validation
        self._validation_entropy = validation_entropy
        self._patience = patience
        self._lift = lift
        self._checkpoint = checkpoint
        self._keep_history = keep_history or validation is not None
        self._bar = tqdm(total=max_iterations, unit="iteration", leave=False) if progress else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        if interrupted and self._checkpoint is not None and self.kept is not None:
            self._checkpoint.write(self.kept, self.last_iteration, force=True)

    @property
    def kept(self) -> np.ndarray | None:
        """The best iterate on validation rows when stopping early, else the last one."""
        return self.best_theta if self._patience is not None and self.best_theta is not None else self.last_theta

    def __call__(self, iteration: int, theta: np.ndarray, loss: float, gradient_norm: float) -> bool:
        """Take note of an iterate; True asks the solver to stop."""
        free = theta if self._lift is None else self._lift(theta)
        self.last_theta, self.last_iteration = free.copy(), iteration
        held_out = None
        if self._validation is not None:
            held_out = self._validation(free, loss) - self._validation_entropy
            if held_out < self.best_validation:
                self.best_validation, self.best_iteration = held_out, iteration
                self.best_theta = self.last_theta
        if self._keep_history:
            self.history.append(HistoryEntry(iteration, loss - self._train_entropy, held_out, gradient_norm))
        if self._checkpoint is not None:
            assert self.kept is not None
            self._checkpoint.write(self.kept, iteration)
        if self._bar is not None:
            self._bar.update()
            shown = "" if held_out is None else f" validation {held_out:.4f}"
            self._bar.set_postfix_str(f"train {loss - self._train_entropy:.4f}{shown} gradient {gradient_norm:.1e}")
        return self._patience is not None and iteration - (self.best_iteration or 0) >= self._patience
