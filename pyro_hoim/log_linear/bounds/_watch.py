"""How long passes and draws go on, and what is shown of them."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Self

from tqdm import tqdm


class Watch:
    """Ends the work on one model at a time limit, and shows the bounds so far in a line on standard error.

    Args:
        time_limit: seconds, of which every part of the work has the same share; None for no limit.
        progress: whether a line is shown.
        parts: number of parts, which follow each other.
    """

    def __init__(self, time_limit: float | None, progress: bool, parts: int) -> None:
        self._begin, self._limit, self._parts = time.monotonic(), time_limit, parts
        self._ended, self._low, self._high = list[str](), -math.inf, math.inf
        self._bar = tqdm(desc="log Z", bar_format="{desc} [{elapsed}]", leave=False, disable=not progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()

    def is_over(self, part: int, what: str) -> bool:
        """Whether the time of the first so many parts is over, of which the note will say that it ended some work."""
        if self._limit is None or time.monotonic() - self._begin < self._limit * part / self._parts:
            return False
        self._ended.append(what)
        return True

    def show(self, low: float = -math.inf, high: float = math.inf) -> None:
        """Show bounds of log Z where they are tighter than those before."""
        self._low, self._high = max(self._low, low), min(self._high, high)
        self._bar.set_description_str(f"log Z between {self._low:.7g} and {self._high:.7g}")

    def count(self, drawn: int, wanted: int, proposals: int) -> None:
        """Show how many states were drawn so far."""
        self._bar.set_description_str(f"{drawn} of {wanted} states, from {proposals} draws")

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on what the time limit ended, if anything."""
        if not self._ended:
            return ()
        return (f"the time limit of {self._limit:g} s ended {', '.join(dict.fromkeys(self._ended))}",)
