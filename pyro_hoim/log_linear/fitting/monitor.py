"""Following a fit: history, early stopping on validation rows, progress bar and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
import torch
from tqdm import tqdm

from ...runs.checkpoint import RunFile
from .result import HistoryEntry
from .solvers import Patience, Point

__all__ = ["Monitor"]


class Monitor:
    """Receives every iterate of a solver; decides when to stop.

    ``lift`` maps the solver's coordinates to free ones, which the checkpoint holds; ``total`` is the length of a bar.
    """

    def __init__(
        self, lift: Callable[[np.ndarray], np.ndarray], file: RunFile | None = None, total: int | None = None
    ) -> None:
        self.history: list[HistoryEntry] = []
        self.last: Point | None = None
        self.last_iteration = 0
        self.patience: Patience | None = None
        self.stops_early = False
        self._entropies = (0.0, 0.0)
        self._lift = lift
        self._file = file
        self._bar = None if total is None else tqdm(total=total, unit="iteration", leave=False)

    def watch(self, patience: Patience, stops_early: bool, train_entropy: float, validation_entropy: float) -> None:
        """Record the losses of training and validation rows less their entropies, and stop early where asked to."""
        self.patience, self.stops_early = patience, stops_early
        self._entropies = (train_entropy, validation_entropy)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._write()

    @property
    def kept(self) -> Point | None:
        """The best iterate on validation rows when stopping early, else the last one."""
        return self.patience.best if self.stops_early and self.patience is not None else self.last

    def _write(self) -> None:
        if self._file is not None and self.kept is not None:
            self._file.write({"theta": torch.from_numpy(self._lift(self.kept.theta))})

    def __call__(self, iteration: int, point: Point, norm: float) -> bool:
        """Take note of an iterate; True asks the solver to stop."""
        self.last, self.last_iteration = point, iteration
        stop, train, validation, shown = False, point.loss - self._entropies[0], None, ""
        if self.patience is not None:
            stop = self.patience(iteration, point)
            validation = self.patience.value - self._entropies[1]
            self.history.append(HistoryEntry(iteration, train, validation, norm))
            shown = f" validation {validation:.4f}"
        if self._file is not None and self._file.is_due:
            self._write()
        if self._bar is not None:
            self._bar.update()
            self._bar.set_postfix_str(f"train {train:.4f}{shown} gradient {norm:.1e}")
        return stop
