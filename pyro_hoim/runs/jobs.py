"""Long runs in steps: progress, interruption, checkpoints, and the arguments that such runs share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from tqdm import tqdm

from ..errors import check_whole
from .checkpoint import DeferredInterrupt, RunFile, check_alike, check_equal

__all__ = ["Job", "follow"]


class Job(Protocol):
    """A run in steps.

    Where the steps end depends on the arguments alone, never on time, so that a run in parts makes the same calls as a
    run in one go, and thereby has the same bits.
    """

    done: int
    burn_in: int
    total: int

    def advance(self) -> int:
        """Make one step; sweeps made."""
        ...

    def state(self) -> dict[str, torch.Tensor]:
        """Everything to continue from."""
        ...

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`state`."""
        ...


def follow(
    job: Job,
    settings: Mapping[str, Any],
    file: RunFile | None,
    progress: bool,
    words: tuple[str, str] = ("sampling", "sweep"),
) -> float:
    """Run to the end, with a progress bar and checkpoints; seconds, those of earlier parts included.

    ``words`` say on the bar what is done after burn-in, and what a step is. Ctrl-C ends the current step, writes a
    checkpoint and raises KeyboardInterrupt.
    """
    before = 0.0
    found = None if file is None else file.start(settings)
    if file is not None and found is not None:
        with file.taking_up():
            check_alike(
                found, {**job.state(), "done": torch.tensor(0), "seconds": torch.zeros((), dtype=torch.float64)}
            )
            before = float(found.pop("seconds"))
            job.done = check_whole(int(found.pop("done")), "done", 0, job.total)
            job.load_state(found)
            check_equal(found, job.state())  # short arrays are not spread, nor others converted
    start = time.monotonic()

    def save() -> None:
        if file is not None:
            spent = torch.tensor(before + time.monotonic() - start, dtype=torch.float64)
            file.write({**job.state(), "done": torch.tensor(job.done), "seconds": spent})

    bar = tqdm(total=job.total, initial=job.done, unit=words[1], leave=False) if progress else None
    try:
        with DeferredInterrupt() as interrupt:
            while job.done < job.total:
                if bar is not None:
                    bar.set_description_str("burn-in" if job.done < job.burn_in else words[0], refresh=False)
                made = job.advance()
                job.done += made
                if bar is not None:
                    bar.update(made)
                if interrupt.is_pending or job.done == job.total or (file is not None and file.is_due):
                    save()
                    interrupt.deliver()
    finally:
        if bar is not None:
            bar.close()
    return before + time.monotonic() - start
