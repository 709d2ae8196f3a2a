"""Metropolis chains over collections: births, deaths and swaps inside heredity, at one temperature or at several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import check_positive, out_of_range, unexpected
from ..prior import StructurePrior

__all__ = ["Neighbourhood", "TemperedChain", "checked_temperatures"]

SWAP_SHARE = 0.25
_MAX_KEPT = 2**18  # members whose moves are remembered


class Neighbourhood:
    r"""The moves between the members of a space, and how likely each is to be proposed.

    Three quarters of the proposals are a birth or a death, one of those possible, each with the same probability. The
    others are swaps: a death, then a birth of another candidate, each one of those possible. The member between the two
    is the intersection of both ends, so that the way back passes it, too, and

    .. math:: \frac{q(m' \to m)}{q(m \to m')} = \frac{|B(m)| + |D(m)|}{|B(m')| + |D(m')|}
        \quad\text{or}\quad \frac{|D(m)|}{|D(m')|} \text{ for a swap.}

    Args:
        prior: law whose space it is.
    """

    def __init__(self, prior: StructurePrior) -> None:
        self.prior = prior
        self._kept: dict[int, tuple[list[int], list[int]]] = {}

    def moves(self, mask: int) -> tuple[list[int], list[int]]:
        """Members one birth away and one death away; remembered."""
        found = self._kept.get(mask)
        if found is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            found = self._kept[mask] = self.prior.space.moves(mask)
        return found

    def propose(self, mask: int, uniforms: Sequence[float]) -> tuple[int, float]:
        """A member and the log ratio above, by three uniform numbers; the member itself where there is no move."""
        births, deaths = self.moves(mask)
        if uniforms[0] < SWAP_SHARE:
            if not deaths:
                return mask, 0.0
            between = deaths[int(uniforms[1] * len(deaths))]
            ends = [end for end in self.moves(between)[0] if end != mask]
            if not ends:
                return mask, 0.0
            end = ends[int(uniforms[2] * len(ends))]
            return end, math.log(len(deaths) / len(self.moves(end)[1]))
        number = len(births) + len(deaths)
        if not number:
            return mask, 0.0
        number_of_move = int(uniforms[1] * number)
        end = births[number_of_move] if number_of_move < len(births) else deaths[number_of_move - len(births)]
        back = self.moves(end)
        return end, math.log(number / (len(back[0]) + len(back[1])))

    def proposals(self, mask: int) -> dict[int, tuple[float, float]]:
        """Every member that can be proposed with its probability and log ratio; for tests and small spaces."""
        births, deaths = self.moves(mask)
        moves_to: dict[int, tuple[float, float]] = {}
        ends = births + deaths
        for end in ends:
            back = self.moves(end)
            moves_to[end] = (1 - SWAP_SHARE) / len(ends), math.log(len(ends) / (len(back[0]) + len(back[1])))
        for between in deaths:
            others = [end for end in self.moves(between)[0] if end != mask]
            for end in others:
                ratio = math.log(len(deaths) / len(self.moves(end)[1]))
                moves_to[end] = SWAP_SHARE / len(deaths) / len(others), ratio
        return moves_to


class TemperedChain:
    r"""Copies of one chain at rising temperatures; the first has the posterior for its law.

    .. math:: \pi_t(m) \propto p(m) \, p(x \mid m)^{1 / t}

    A sweep makes as many moves of every copy as there are free candidates and then exchanges neighbouring copies, even
    and odd pairs in turn. With one temperature this is plain birth, death and swap.

    Args:
        moves: the moves, and the prior.
        log_evidence: log p(x | m) by mask, nats.
        temperatures: from 1, rising.
        starts: a member for every temperature.
        seed: of the numbers that decide.
    """

    def __init__(
        self,
        moves: Neighbourhood,
        log_evidence: Callable[[int], float],
        temperatures: Sequence[float],
        starts: Sequence[int],
        seed: int | np.random.SeedSequence,
    ) -> None:
        self.neighbourhood, self.log_evidence = moves, log_evidence
        self.temperatures = tuple(temperatures)
        self.num_sweeps = self.num_accepted = self.num_moves = 0
        self.exchanged = np.zeros(len(self.temperatures) - 1, dtype=np.int64)
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self.masks = list(starts)

    def value(self, copy: int) -> float:
        """What is tempered of a copy: its log evidence."""
        return self.log_evidence(self.masks[copy])

    def swap(self, copy: int) -> None:
        """Exchange a copy with the next hotter one."""
        self.masks[copy], self.masks[copy + 1] = self.masks[copy + 1], self.masks[copy]

    def walk(self, copy: int, temperature: float, num_moves: int) -> int:
        """Moves of one copy; how many changed the collection."""
        mask, num_changed = self.masks[copy], 0
        for uniforms in self._generator.random((num_moves, 4)).tolist():
            after = self.move(mask, temperature, uniforms)
            num_changed += after != mask
            mask = after
        self.masks[copy] = mask
        return num_changed

    @property
    def mask(self) -> int:
        """Where the chain of the posterior is."""
        return self.masks[0]

    @property
    def acceptance(self) -> float:
        """Share of moves at temperature 1 that were accepted."""
        return self.num_accepted / max(self.num_moves, 1)

    @property
    def exchange_rates(self) -> list[float]:
        """Share of exchanges between neighbouring temperatures that were accepted."""
        tried = [max((self.num_sweeps + 1 - k % 2) // 2, 1) for k in range(len(self.exchanged))]
        return [int(n) / t for n, t in zip(self.exchanged, tried, strict=True)]

    def move(self, mask: int, temperature: float, uniforms: Sequence[float]) -> int:
        """One move by four uniform numbers."""
        other, log_ratio = self.neighbourhood.propose(mask, uniforms)
        if other == mask:
            return mask
        weight = self.neighbourhood.prior.log_weight
        gain = (self.log_evidence(other) - self.log_evidence(mask)) / temperature + weight(other) - weight(mask)
        return other if gain + log_ratio >= 0 or uniforms[3] < math.exp(gain + log_ratio) else mask

    def transition(self, mask: int, temperature: float = 1.0) -> dict[int, float]:
        """The law of :meth:`move` from a member; for tests and small spaces."""
        weight = self.neighbourhood.prior.log_weight
        law: dict[int, float] = {}
        for end, (share, log_ratio) in self.neighbourhood.proposals(mask).items():
            gain = (self.log_evidence(end) - self.log_evidence(mask)) / temperature + weight(end) - weight(mask)
            law[end] = share * math.exp(min(0.0, gain + log_ratio))
        law[mask] = 1 - math.fsum(law.values())
        return law

    def sweep(self) -> None:
        """Moves of every copy, then exchanges."""
        num_moves = max(self.neighbourhood.prior.space.num_free, 1)
        num_changed = [self.walk(k, temperature, num_moves) for k, temperature in enumerate(self.temperatures)]
        self.num_accepted += num_changed[0]
        self.num_moves += num_moves
        uniforms = self._generator.random(len(self.exchanged)).tolist()
        for k in range(self.num_sweeps % 2, len(uniforms), 2):
            cooling = 1 / self.temperatures[k] - 1 / self.temperatures[k + 1]
            gain = cooling * (self.value(k + 1) - self.value(k))
            if gain >= 0 or uniforms[k] < math.exp(gain):
                self.swap(k)
                self.exchanged[k] += 1
        self.num_sweeps += 1

    # Checkpoints

    def state(self) -> dict[str, Any]:
        """All that the chain's future depends on, as JSON."""
        counts = [self.num_sweeps, self.num_accepted, self.num_moves, *self.exchanged.tolist()]
        return {
            "masks": [hex(m) for m in self.masks],
            "counts": counts,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a :meth:`state`."""
        self.masks = [int(m, 16) for m in state["masks"]]
        self.num_sweeps, self.num_accepted, self.num_moves, *exchanged = state["counts"]
        self.exchanged[:] = exchanged
        self._generator.bit_generator.state = state["generator"]


def checked_temperatures(temperatures: Sequence[float] | NDArray[Any]) -> tuple[float, ...]:
    """Temperatures that start at 1 and rise, or one error."""
    if isinstance(temperatures, np.ndarray) and temperatures.ndim == 1:
        temperatures = temperatures.tolist()
    if isinstance(temperatures, str) or not isinstance(temperatures, Sequence) or not len(temperatures):
        raise unexpected("temperatures", "numbers from 1, rising", temperatures, code="wrong-type")
    for value in temperatures:
        check_positive(value, "temperatures")
    if temperatures[0] != 1 or any(b <= a for a, b in pairwise(temperatures)):
        raise out_of_range("temperatures", "numbers from 1, rising", received=str(list(temperatures))[:80])
    return tuple(float(t) for t in temperatures)
