"""How strongly a learned model holds its interactions back."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import check_type, conflict, is_whole, out_of_range
from ..training.ridge import InteractionRidge

__all__ = ["Regularisation"]

_SINGLES = 0.05
_WEAK = (0.05, 5.0)  # strengths of pairs and of larger sets where the rows do not choose them
_STRONG = (1.0, 20.0)  # those that the rows begin to choose from


@dataclass(frozen=True)
class Regularisation:
    """The ridge of a learned model, and how often the training rows move its strengths.

    Attributes:
        penalty: strengths to begin with, in place of 0.05 for single variables, 0.05 for pairs and 5 beyond (weak), or
            1 for pairs and 20 beyond (where the rows choose from there).
        smoothness: correlation of neighbouring levels of ordinal variables that the penalty assumes; not used with
            ``penalty``.
        evidence_rounds: times that a fit moves the strengths; by default 2 in the search, none (sampled) or 4 at its
            end, 4 without a search; 0 leaves the strengths as they are.

    Raises:
        InputError: numbers out of range, or strengths of zero, which cannot be moved.
        InputTypeError: a penalty that is no InteractionRidge.

    Example:
        >>> options = Regularisation(smoothness=0.5)
        >>> [ridge.strength(edge) for ridge in (options.weak, options.strong) for edge in (("a", "b"), ("a", "b", "c"))]
        [0.05, 5.0, 1.0, 20.0]
    """

    penalty: InteractionRidge | None = None
    smoothness: float = 0.9
    evidence_rounds: int | None = None

    def __post_init__(self) -> None:
        rounds = self.evidence_rounds
        if rounds is not None and (not is_whole(rounds) or rounds < 0):
            raise out_of_range("evidence_rounds", "a whole number from 0 or None", rounds)
        check_type(self.penalty, InteractionRidge | None, "penalty", "InteractionRidge or None")
        if self.strong.is_zero and rounds != 0:
            raise conflict("penalty", "strengths of zero cannot be updated", "pass positive ones, or evidence_rounds=0")

    @property
    def strong(self) -> InteractionRidge:
        """The strengths that the rows begin to choose from."""
        return self._ridge(*_STRONG)

    @property
    def weak(self) -> InteractionRidge:
        """The strengths where the rows do not choose."""
        return self._ridge(*_WEAK)

    def _ridge(self, pairs: float, larger: float) -> InteractionRidge:
        if self.penalty is not None:
            return self.penalty
        return InteractionRidge(larger, by_order={1: _SINGLES, 2: pairs}, smoothness=self.smoothness)
