"""Sentences on standard error while a model is learned. Private to the analysis."""

from __future__ import annotations

import math
import sys
import time

from ...data.observations import Observations
from ..energy import LogLinearEnergy
from ..scores import score_rows
from ..search.result import SelectionRound


class ProgressLines:
    """Lines with the time so far; those of rounds with the gain over an independent model on some rows."""

    def __init__(self, independent: LogLinearEnergy, rows: Observations, begin: float, is_shown: bool) -> None:
        self._independent = score_rows(independent, rows).nll if is_shown else math.nan
        self._begin = begin
        self._is_shown = is_shown

    def text(self, words: str) -> None:
        """One line with the time so far."""
        if self._is_shown:
            sys.stderr.write(f"[{time.perf_counter() - self._begin:6.1f} s] {words}\n")
            sys.stderr.flush()

    def round(self, entry: SelectionRound) -> None:
        """A round of the search."""
        loss = f"validation loss {entry.validation_loss:.4f}"
        if entry.validation_std_error > 0:
            loss += f" ± {entry.validation_std_error:.2g} of log Z"
        if entry.loss_kind != "pseudo-likelihood":
            gain = round(self._independent - entry.validation_loss, 4) + 0.0  # no minus before a zero
            loss += f", gain over independence {gain:.4f}"
        self.text(f"round {entry.number}: {interactions(entry.num_interactions)}, {loss} ({entry.verdict})")


def interactions(count: int) -> str:
    """A number of interactions, the sets of two variables or more, in words."""
    return f"{count:,} interaction{'' if count == 1 else 's'}"
