"""A time at which work that can be given up is given up; what was finished before it stays."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["TimeUp", "check_time", "ending_at"]

_until: ContextVar[float] = ContextVar("until", default=math.inf)


class TimeUp(Exception):  # noqa: N818 (not an error: the caller goes on with what it has)
    """The time is over; raised between two steps of a computation that changes nothing before its end."""


@contextmanager
def ending_at(until: float) -> Generator[None]:
    """Inside, :func:`check_time` raises once the monotonic clock is beyond ``until``; the earlier end counts.

    Example:
        >>> with ending_at(time.monotonic() - 1):
        ...     check_time()
        Traceback (most recent call last):
            ...
        pyro_hoim.runs.time_limit.TimeUp
    """
    token = _until.set(min(until, _until.get()))
    try:
        yield
    finally:
        _until.reset(token)


def check_time() -> None:
    """Give up where the time is over; outside :func:`ending_at` there is no end."""
    if time.monotonic() > _until.get():
        raise TimeUp
