"""What a run says of its progress on standard error, so that it is never silent for long."""

from __future__ import annotations

import time
from threading import Condition, Thread
from types import TracebackType
from typing import Self

import click
from tqdm import tqdm

from ..errors import visible

__all__ = ["PERIOD", "Progress"]

PERIOD = 10.0
"""Seconds after which a command says that it goes on."""


class Progress:
    """Announces the stages of a run with the time since it began, and that a stage goes on where it takes long.

    The latter is left out while a progress bar moves.

    Args:
        begin: of the run, as ``time.perf_counter`` tells it.
        period: longest silence, seconds; by default ten.

    Attributes:
        opening: said before the first stage, so that a run that is refused says nothing else.
        stage: what is being done; empty before the first.
    """

    def __init__(self, begin: float, period: float | None = None) -> None:
        self._begin, self._period = begin, PERIOD if period is None else period
        self.opening: str | None = None
        self.stage, self._said = "", time.perf_counter()
        self._change = Condition()
        self._is_over = False
        self._thread = Thread(target=self._remind, daemon=True)

    def __call__(self, words: str) -> None:
        """Announce a stage."""
        with self._change:
            self.stage = words.split(";", maxsplit=1)[0]
            self._say(words)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._change:
            self._is_over = True
            self._change.notify()
        self._thread.join()

    def _say(self, words: str) -> None:
        if self.opening is not None:
            opening, self.opening = self.opening, None
            self._say(opening)
        self._said = time.perf_counter()
        click.echo(f"[{self._said - self._begin:6.1f} s] {visible(words)}", err=True)

    def _remind(self) -> None:
        """Say at every period without a word that the stage goes on."""
        with self._change:
            while not self._is_over:
                silent = time.perf_counter() - self._said
                if silent < self._period:
                    self._change.wait(self._period - silent)
                elif getattr(tqdm, "_instances", ()):
                    self._change.wait(self._period)
                else:
                    self._say(f"still {self.stage}" if self.stage else "still at work")
