"""The parts of a table that a study divides into, and what the studies of all families hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..errors import unexpected

__all__ = ["PARTS", "StudyRecord", "check_part_names"]

PARTS = ("train", "validation", "test")

Part = TypeVar("Part")


@dataclass(frozen=True, eq=False, kw_only=True)
class StudyRecord(Generic[Part]):
    """What the study of one table holds in every family.

    Attributes:
        title: of the data.
        about: sentences on the data.
        parts: ``train``, ``validation`` and ``test``; None for an empty one.
        seed: of everything random.
        seconds: time by stage.
        has_weights: whether the numbers of rows are sums of weights.
    """

    title: str
    about: tuple[str, ...]
    parts: Mapping[str, Part | None]
    seed: int
    seconds: Mapping[str, float] = field(default_factory=dict[str, float], repr=False)
    has_weights: bool = field(default=False, kw_only=True)

    @property
    def held(self) -> dict[str, Part]:
        """The parts that hold rows, in their order."""
        return {name: part for name, part in self.parts.items() if part is not None}

    @property
    def judged_on(self) -> str:
        """The last part that holds rows: the one to judge the model by."""
        return list(self.held)[-1]


def check_part_names(parts: Iterable[str]) -> None:
    """Raise :class:`InputError` for a part of another name."""
    unknown = [name for name in parts if name not in PARTS]
    if unknown:
        raise unexpected("parts", ", ".join(PARTS), unknown[0], code="unknown-choice")
