"""Pictures that several families share."""

from __future__ import annotations

__all__: list[str] = []
