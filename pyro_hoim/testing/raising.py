"""What an exception tells a program, as a check for tests."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ..errors import ErrorCode, HoimError

__all__ = ["raises"]


@contextmanager
def raises(code: ErrorCode, argument: str | None = None) -> Generator[None]:
    """Fail unless the block raises a :class:`~pyro_hoim.errors.HoimError` with a code and an argument."""
    try:
        yield
    except HoimError as error:
        found = (error.code, error.argument)
        if code != error.code or argument not in (None, error.argument):
            msg = f"expected {code!r} about {argument!r}, received {found} from {error}"
            raise AssertionError(msg) from error
    else:
        raise AssertionError(f"expected {code!r} about {argument!r}, nothing was raised")
