"""Chains over collections by births, deaths and swaps, with theta integrated out or drawn, and their posterior."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from ...budgets import check_draws
from ...data.columns import FrameOptions
from ...data.frames import DataLike
from ...errors import (
    ConvergenceWarning,
    check_positive,
    check_type,
    check_whole,
    conflict,
    out_of_range,
    unexpected,
    wrong_type,
)
from ...log_linear.laws.priors import DiaconisYlvisaker
from ...log_linear.named_priors import Prior
from ...runs.arguments import checked_seed
from ...runs.checkpoint import RunOptions, checked_run, follow, packed, unpacked
from ...runs.container import checksum
from ...structure.hypergraph import InteractionHypergraph
from ..kernels import r_hat_limit
from .evidence import EvidenceMethod, StructureEvidence
from .kernel import Floats
from .posterior import StructurePosterior
from .prior import StructurePrior, rows_and_prior
from .program import ThetaPrior, resolved_prior

# Metropolis chains over collections: births, deaths and swaps inside heredity, at one temperature or at several.

SWAP_SHARE = 0.25
_MOST_MOVES = 2**18  # members whose moves are remembered


class Neighbourhood:
    r"""The moves between the members of a space, and how likely each is to be proposed.

    Three quarters of the proposals are a birth or a death, one of those possible, each with the same probability. The
    others are swaps: a death, then a birth of another candidate, each one of those possible. The member between the two
    is the intersection of both ends, so that the way back passes it, too, and

    .. math:: \frac{q(m' \to m)}{q(m \to m')} = \frac{|B(m)| + |D(m)|}{|B(m')| + |D(m')|}
        \quad\text{or}\quad \frac{|D(m)|}{|D(m')|} \text{ for a swap.}
    """

    def __init__(self, prior: StructurePrior) -> None:
        self.prior = prior
        self._kept: dict[int, tuple[list[int], list[int]]] = {}

    def moves(self, mask: int) -> tuple[list[int], list[int]]:
        """Members one birth away and one death away; remembered."""
        moves = self._kept.get(mask)
        if moves is None:
            if len(self._kept) >= _MOST_MOVES:
                self._kept.clear()
            moves = self._kept[mask] = self.prior.space.moves(mask)
        return moves

    def propose(self, mask: int, uniforms: Sequence[float]) -> tuple[int, float]:
        """A member and the log ratio above, by three uniform numbers; the member itself where there is no move."""
        # A swap: a death, then another birth, from the member between the two.
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
        # A birth or a death.
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
    and odd pairs in turn. With one temperature this is plain birth, death and swap. The log evidence is that of a mask.
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
        # Moves at every temperature, of which those at 1 are counted.
        num_moves = max(self.neighbourhood.prior.space.num_free, 1)
        num_changed = [self.walk(k, temperature, num_moves) for k, temperature in enumerate(self.temperatures)]
        self.num_accepted += num_changed[0]
        self.num_moves += num_moves
        # Exchanges of neighbours, even and odd pairs in turn.
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


# Chains over collections and theta: reversible jumps with theta proposed at the mode of the collection jumped to.
#
# .. math:: \theta' \sim q_{m'}, \qquad q_m = t_\nu\big(\hat\theta_m, H_m^{-1}\big), \qquad
#     w(m, \theta) = \frac{p(\theta \mid m)\, p(x \mid \theta, m)}{q_m(\theta)}, \qquad
#     \alpha = 1 \wedge \frac{p(m')\, w(m', \theta')}{p(m)\, w(m, \theta)} \frac{q(m' \to m)}{q(m \to m')}
#
# with the mode and minus the Hessian H of the posterior given m. All of theta is drawn anew, so the dimension is
# matched by the densities of both ends and the Jacobian is one. The weight is an estimate of the evidence by one draw
# without bias, whose expectation the collapsed chain has in its place. Student laws have longer tails than every
# posterior under a normal or conjugate prior: weights are bounded there, and the chain cannot be stuck where a normal
# law would be too thin. Copies at a temperature t have the law :math:`p(m)\, q_m(\theta)\, w^{1 / t}`, all steps of
# which need the weight alone, and are exchanged as collapsed ones are.

_FREEDOM = 8.0
"""Degrees of freedom of proposals: efficient near normal posteriors, bounded weights beyond them."""
_BATCH = 1024
_MAX_KEPT = 2**25  # numbers in proposals that are remembered
_JUMPS_PER_MOVE = 4
_STEPS_PER_DRAW = 8  # of theta given a member
_STEP = 2.38
"""Scale of random-walk steps in standard deviations, divided by the root of the dimension (Roberts et al., 1997)."""


class Point(NamedTuple):
    """A collection with parameters: its mask, theta (its P parameters), and two log-densities there, nats."""

    mask: int
    theta: Floats
    log_joint: float
    log_proposal: float

    @property
    def log_weight(self) -> float:
        """Log of the joint density over that of the proposal."""
        return self.log_joint - self.log_proposal


class ThetaProposal:
    """The Student law of theta at the mode of one member, and the joint density of rows and theta."""

    def __init__(self, evidence: StructureEvidence, mask: int) -> None:
        self.mask = mask
        # The law at the mode, whitened by the factor of the curvature, and its constant.
        self.kernel, self._constant = evidence.joint(mask)
        mode = self.kernel.mode
        self.size, self.mode, self.factor = self.kernel.size, mode.theta, mode.factor
        self.inverse = np.linalg.inv(mode.factor)
        self._power = 0.5 * (_FREEDOM + self.size)
        self._log_top = math.lgamma(self._power) - math.lgamma(0.5 * _FREEDOM) + 0.5 * mode.log_det
        self._log_top -= 0.5 * self.size * math.log(_FREEDOM * math.pi)

    @property
    def num_kept(self) -> int:
        """Numbers that the proposal holds."""
        return 2 * self.size * self.size + (self.kernel.design.size if self.kernel.is_dense else 0)

    def log_joint(self, theta: Floats) -> float:
        """Log-density of rows and theta (P,) given the member, nats."""
        return self.kernel.value(theta) + self._constant

    def log_prob(self, theta: Floats) -> float:
        """Log-density of the Student law at theta (P,)."""
        return self._log_density((theta - self.mode) @ self.factor)

    def _log_density(self, whitened: Floats) -> float:
        return self._log_top - self._power * math.log1p(float(whitened @ whitened) / _FREEDOM)

    def at(self, theta: Floats) -> Point:
        """The point with a given theta (P,)."""
        return Point(self.mask, theta, self.log_joint(theta), self.log_prob(theta))

    def draw(self, rng: np.random.Generator) -> Point:
        """A point with theta from the Student law."""
        whitened = rng.standard_normal(self.size) / math.sqrt(rng.chisquare(_FREEDOM) / _FREEDOM)
        theta = self.mode + whitened @ self.inverse
        return Point(self.mask, theta, self.log_joint(theta), self._log_density(whitened))

    def many(self, num: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draws of the Student law (num, P), and log weights (num,) up to a constant."""
        spread = np.sqrt(rng.chisquare(_FREEDOM, (num, 1)) / _FREEDOM)
        whitened = rng.standard_normal((num, self.size)) / spread
        theta = self.mode + whitened @ self.inverse
        values = np.concatenate([self.kernel.evaluate(part)[0] for part in np.array_split(theta, 1 + num // _BATCH)])
        return theta, values + self._power * np.log1p(np.square(whitened).sum(1) / _FREEDOM)

    def near(self, theta: Floats, rng: np.random.Generator) -> Point:
        """A point at a random-walk step from theta (P,), with the curvature at the mode."""
        noise = rng.standard_normal(self.size) * (_STEP / math.sqrt(max(self.size, 1)))
        return self.at(theta + noise @ self.inverse)


class ThetaProposals:
    """Proposals of all members met so far.

    Raises:
        InputError: a prior without its constant.
    """

    def __init__(self, evidence: StructureEvidence) -> None:
        law = resolved_prior(evidence.prior, evidence.space.largest)
        if isinstance(law, DiaconisYlvisaker) and evidence.space.name != "decomposable":
            problem = "jumps need the constant of the conjugate prior, which has no closed form in this space"
            raise conflict("prior", problem, "use 'unit', or space='decomposable'")
        if getattr(law, "unnormalised", False):
            raise conflict("prior", "jumps need its constant, which its log_prob leaves out")
        self.evidence, self._kept, self._num_kept = evidence, dict[int, ThetaProposal](), 0

    def __getitem__(self, mask: int) -> ThetaProposal:
        """The proposal of one member; remembered."""
        positions = self._kept.get(mask)
        if positions is None:
            positions = ThetaProposal(self.evidence, mask)
            if self._num_kept > _MAX_KEPT:
                self._kept.clear()
                self._num_kept = 0
            self._kept[mask] = positions
            self._num_kept += positions.num_kept
        return positions

    @cached_property
    def num_parameters(self) -> int:
        """Number of parameters of the largest collection."""
        return self.evidence.space.largest.num_parameters

    def spread(self, mask: int, theta: Floats) -> Floats:
        """Theta of a member (P,) among the parameters of the largest collection, zero where absent."""
        whole = np.zeros(self.num_parameters)
        whole[self.evidence.columns([mask])[0]] = theta
        return whole


class JumpChain(TemperedChain):
    """Copies of one chain over collections and theta; the first has their posterior for its law.

    A sweep makes the moves of :class:`~.chains.TemperedChain` as jumps; after every fourth, theta is proposed anew
    within the collection and then moved by a random-walk step, both accepted by Metropolis and Hastings.
    """

    def __init__(
        self,
        moves: Neighbourhood,
        proposals: ThetaProposals,
        temperatures: Sequence[float],
        starts: Sequence[int],
        seed: int | np.random.SeedSequence,
    ) -> None:
        self.proposals = proposals
        super().__init__(moves, proposals.evidence, temperatures, starts, seed)

    @property
    def masks(self) -> list[int]:  # type: ignore[override]
        """The members at all temperatures."""
        return [point.mask for point in self.points]

    @masks.setter
    def masks(self, masks: list[int]) -> None:
        """Put the copies at members, with theta from their proposals."""
        self.points = [self.proposals[mask].draw(self._generator) for mask in masks]

    @property
    def theta(self) -> Floats:
        """Parameters of the chain of the posterior among those of the largest collection, zero where absent."""
        return self.proposals.spread(self.points[0].mask, self.points[0].theta)

    def value(self, copy: int) -> float:
        """What is tempered of a copy: its log weight."""
        return self.points[copy].log_weight

    def swap(self, copy: int) -> None:
        """Exchange a copy with the next hotter one."""
        self.points[copy], self.points[copy + 1] = self.points[copy + 1], self.points[copy]

    def walk(self, copy: int, temperature: float, num_moves: int) -> int:
        """Moves of one copy; how many changed the collection."""
        # Jumps between collections; now and then theta is renewed and moved inside one.
        rng, point, num_changed = self._generator, self.points[copy], 0
        for step, uniforms in enumerate(rng.random((num_moves, 6)).tolist()):
            mask, log_ratio = self.neighbourhood.propose(point.mask, uniforms)
            after = self.jump(point, mask, log_ratio, temperature, uniforms[3])
            num_changed += after.mask != point.mask
            point = after
            if step % _JUMPS_PER_MOVE == 0:
                point = self.jump(point, point.mask, 0.0, temperature, uniforms[4])
                point = self.drift(point, temperature, uniforms[5])
        self.points[copy] = point
        return num_changed

    def jump(self, point: Point, mask: int, log_ratio: float, temperature: float, uniform: float) -> Point:
        """A point of another member, or of the same, with theta drawn anew, or the point itself."""
        other = self.proposals[mask].draw(self._generator)
        weight = self.neighbourhood.prior.log_weight
        gain = (other.log_weight - point.log_weight) / temperature + weight(mask) - weight(point.mask) + log_ratio
        return other if gain >= 0 or uniform < math.exp(gain) else point

    def drift(self, point: Point, temperature: float, uniform: float) -> Point:
        """A point of the same member one random-walk step away, or the point itself."""
        other = self.proposals[point.mask].near(point.theta, self._generator)
        gain = (other.log_weight - point.log_weight) / temperature + other.log_proposal - point.log_proposal
        return other if gain >= 0 or uniform < math.exp(gain) else point

    def state(self) -> dict[str, Any]:
        """As of the base class, with theta."""
        points = [[point.theta.tolist(), point.log_joint, point.log_proposal] for point in self.points]
        return {**super().state(), "points": points}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a :meth:`state`."""
        super().restore(state)
        self.points = [
            Point(int(mask, 16), np.array(theta, dtype=np.float64), *logs)
            for mask, (theta, *logs) in zip(state["masks"], state["points"], strict=True)
        ]


def chain_of(
    moves: Neighbourhood,
    evidence: StructureEvidence,
    proposals: ThetaProposals | None,
    temperatures: Sequence[float],
    start: int,
    seed: int | np.random.SeedSequence,
) -> TemperedChain:
    """A chain with theta integrated out, or one that draws it from proposals; all copies start at one member."""
    starts = [start] * len(temperatures)
    if proposals is None:
        return TemperedChain(moves, evidence, temperatures, starts, seed)
    return JumpChain(moves, proposals, temperatures, starts, seed)


def theta_given(evidence: StructureEvidence, mask: int, num_chains: int, num_draws: int, *, seed: int) -> torch.Tensor:
    """Draws of theta given a member, (num_chains, num_draws, parameters of the member), float64.

    Independent and exact with the conjugate prior on decomposable collections. Else every eighth state of chains whose
    proposals are independent draws of the Student law, accepted by Metropolis and Hastings: exact under any prior but
    for the beginning of a chain. All proposals are valued at once.
    """
    if evidence.method == "exact":
        generator = torch.Generator().manual_seed(seed)
        columns = torch.from_numpy(evidence.columns([mask])[0])
        return evidence.sample_theta(mask, num_chains * num_draws, generator)[:, columns].unflatten(0, (num_chains, -1))
    # Independence Metropolis: proposals are all drawn and weighed before chains accept them.
    proposal, steps = ThetaProposal(evidence, mask), _STEPS_PER_DRAW * (1 + num_draws)
    drawn = np.empty((num_chains, num_draws, proposal.size))
    for rows, chain_seed in zip(drawn, np.random.SeedSequence(seed).spawn(num_chains), strict=True):
        rng = np.random.default_rng(chain_seed)
        theta, log_weights = proposal.many(steps, rng)
        at, visited = 0, np.empty(steps, dtype=np.int64)
        for k, log_uniform in enumerate(np.log1p(-rng.random(steps)).tolist()):
            at = k if log_uniform < log_weights[k] - log_weights[at] else at
            visited[k] = at
        rows[:] = theta[visited[2 * _STEPS_PER_DRAW - 1 :: _STEPS_PER_DRAW]]
    return torch.from_numpy(drawn)


Starts: TypeAlias = Literal["spread", "empty", "full", "prior", "select"] | Sequence[InteractionHypergraph]


@dataclass(frozen=True)
class ChainSettings:
    """How chains over collections run.

    Attributes:
        num_chains: independent chains, each with all temperatures; at least 2, as one has none to disagree with.
        num_draws: draws a chain, one after every sweep; a sweep makes as many moves as there are free candidates.
        burn_in: sweeps before them.
        temperatures: of the evidence, from 1, rising. The draws are those at 1; hotter copies find what it does not.
        starts: where chains begin: "empty" (main effects alone), "full" (births in random order until none is
            possible), "prior" (draws of the structure prior), "spread" (these three in turn), "select" (where greedy
            births and deaths by the evidence lead from these, which saves burn-in), or a collection a chain. Chains
            that begin alike may agree without having seen what lies far from there.

    Raises:
        InputError: numbers out of range, temperatures that do not rise from 1, an unknown word.
        InputTypeError: arguments of the wrong type.

    Example:
        >>> ChainSettings(num_chains=1)
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: num_chains: expected a whole number from 2, received 1
    """

    num_chains: int = 4
    num_draws: int = 1000
    burn_in: int = 200
    temperatures: Sequence[float] | NDArray[Any] = (1.0,)
    starts: Starts = "spread"

    def __post_init__(self) -> None:
        for name, least in (("num_chains", 2), ("num_draws", 4), ("burn_in", 0)):
            check_whole(getattr(self, name), name, least)
        check_draws(self.num_chains * self.num_draws)
        object.__setattr__(self, "temperatures", checked_temperatures(self.temperatures))
        if isinstance(self.starts, str):
            if self.starts not in ("spread", "empty", "full", "prior", "select"):
                expected = "'spread', 'empty', 'full', 'prior', 'select' or a collection for every chain"
                raise unexpected("starts", expected, self.starts, code="unknown-choice")
        elif not isinstance(self.starts, Sequence) or len(self.starts) != self.num_chains:
            raise wrong_type("starts", f"a word or {self.num_chains} collections, one for every chain", self.starts)


def sample_structures(
    data: DataLike,
    prior: ThetaPrior = "unit",
    structure_prior: StructurePrior | None = None,
    settings: ChainSettings | None = None,
    *,
    method: EvidenceMethod = "auto",
    collapsed: bool = True,
    seed: int = 0,
    run: RunOptions | None = None,
    **options: Unpack[FrameOptions],
) -> StructurePosterior:
    r"""The posterior over collections by chains of births, deaths and swaps, with theta integrated out or drawn.

    .. math:: p(\gamma \mid x) \propto p(\gamma) \int p(\theta \mid \gamma)\, p(x \mid \theta, \gamma) \, d\theta

    Every move asks for the evidence of one collection, which is kept, so that known collections cost a look-up. Chains
    are exact where the evidence is (conjugate prior, decomposable collections); over Laplace's evidence they are exact
    for an approximate law, and ``is_exact`` is False. With ``collapsed=False`` theta is drawn with the collection, by
    reversible jumps (:class:`~pyro_hoim.inference.BirthDeath`): exact for every prior with a constant, and the draws of
    theta are kept. Chains of single moves are lost where modes lie far apart, as
    with many rows or nearly determined columns: give ``temperatures`` then, such as
    ``numpy.geomspace(1, 1000, 20)``, with exchanges between neighbours accepted a quarter of the time or more. Chains
    that start far apart tell: ``status`` is "unconverged" where the R-hat of an indicator exceeds
    :func:`~pyro_hoim.inference.r_hat_limit`, or where it is stuck at different values.

    Args:
        data: complete rows; weights are allowed, and no rows at all (the posterior is then the prior).
        prior: prior of theta given a collection, as in :func:`~pyro_hoim.inference.enumerate_structures`.
        structure_prior: prior over collections; every hierarchical one with the same probability when None.
        settings: numbers of chains and draws, temperatures and starts.
        method: of the evidence, as in :func:`~pyro_hoim.inference.enumerate_structures`; jumps do not need it, and only
            report it.
        collapsed: integrate theta out, or draw it by reversible jumps.
        seed: of everything random; the global generators are left as they are.
        run: the file from which an interrupted run continues with the same arguments, and progress. A prior that is a
            function cannot be told from another one in a file, and is refused with a checkpoint.
        options: of a data frame ``weights``, ``count``, ``missing`` (``"drop"``), ``missing_values``, ``bins``,
            ``exclude`` and ``allow``, as :func:`pyro_hoim.fit` has them.

    Returns:
        The posterior with ``index`` of shape (num_chains, num_draws), and ``theta`` where it is drawn.

    Raises:
        InputError: another domain, a flat prior, a method that does not fit, a start outside the space, a checkpoint of
            another run, jumps under a prior whose constant is not known.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.

    Warns:
        ConvergenceWarning: chains disagree; ``status`` says so too.

    References:
        David Madigan and Jeremy York, Bayesian graphical models for discrete data, International Statistical Review 63,
        1995; Charles Geyer, Markov chain Monte Carlo maximum likelihood, 1991, for the temperatures; Peter Green,
        Reversible jump Markov chain Monte Carlo computation and Bayesian model determination, Biometrika 82, 1995.

    Example:
        >>> from pyro_hoim import load_table
        >>> table = load_table("czech_autoworkers")
        >>> decomposable = StructurePrior(table.domain, space="decomposable")
        >>> settings = ChainSettings(num_draws=2000)
        >>> posterior = sample_structures(table, "conjugate:1", decomposable, settings, seed=1)
        >>> posterior.status, posterior.is_exact, abs(posterior.inclusion["phys", "protein"] - 0.743) < 0.1
        ('converged', True, True)
    """
    # Rows and priors, then chains with the file that they continue from.
    data, structure_prior = rows_and_prior(data, structure_prior, options=options)
    check_type(settings, ChainSettings | None, "settings")
    check_type(collapsed, bool, "collapsed")
    settings = ChainSettings() if settings is None else settings
    seed, run = checked_seed(seed), checked_run(run)
    evidence = StructureEvidence(data, structure_prior.space, prior, method=method, seed=seed)
    if run.checkpoint is not None and not isinstance(evidence.prior, Prior):
        raise conflict("prior", "functions cannot be told apart in a checkpoint", "name the prior by a text")
    walk = _Walk(evidence, structure_prior, settings, collapsed, seed)
    file = run.file()
    follow(walk, {"kind": "structures", **walk.settings, "seed": seed}, file, run.progress)
    return posterior_of(evidence, structure_prior, walk.drawn, None if collapsed else walk.theta)


def sample_chain(
    evidence: StructureEvidence,
    structure_prior: StructurePrior,
    settings: ChainSettings,
    number: int,
    *,
    seed: int,
    run: RunOptions,
) -> list[int]:
    """Masks that one chain of :func:`sample_structures` draws, with the same seed and theta integrated out."""
    walk = _Walk(evidence, structure_prior, settings, True, seed, number)
    follow(walk, {"kind": "structures", **walk.settings, "seed": seed}, run.file(), run.progress)
    return walk.drawn[0]


class _Walk:
    """Burn-in and draws of all chains, or of one by its number, as a :class:`~pyro_hoim.runs.checkpoint.Job`."""

    def __init__(
        self,
        evidence: StructureEvidence,
        prior: StructurePrior,
        settings: ChainSettings,
        collapsed: bool,
        seed: int,
        number: int | None = None,
    ) -> None:
        # Every chain has a seed for its moves and one for its start.
        self.done, self.burn_in = 0, settings.burn_in
        self.total = settings.burn_in + settings.num_draws
        moves = Neighbourhood(prior)
        seeds = np.random.SeedSequence(seed).spawn(2 * settings.num_chains)
        starts = _starts(moves, evidence, settings, [np.random.default_rng(s) for s in seeds[settings.num_chains :]])
        temperatures = tuple(settings.temperatures)
        proposals = None if collapsed else ThetaProposals(evidence)
        self.chains = [
            chain_of(moves, evidence, proposals, temperatures, start, chain_seed)
            for k, (start, chain_seed) in enumerate(zip(starts, seeds, strict=False))
            if number in (None, k)
        ]
        # What is drawn, and what a continued run must have in common with this one.
        self.drawn: list[list[int]] = [[] for _ in self.chains]
        shape = (len(self.chains), 0 if collapsed else settings.num_draws, prior.largest.num_parameters)
        self.theta = torch.zeros(shape, dtype=torch.float64)
        law = {"space": repr(prior.space), "heredity": prior.space.heredity, "inclusion": repr(prior.inclusion)}
        rows = {"codes": evidence.data.codes, "counts": evidence.data.counts}
        self.settings: dict[str, Any] = {
            **law,
            "prior": str(evidence.prior),
            "method": evidence.method,
            "collapsed": collapsed,
            "data digest": checksum(rows),
            "domain": repr([(v.name, v.cardinality) for v in evidence.data.domain]),
            "starts digest": checksum({"starts": packed([hex(start) for start in starts])}),
            "temperatures": list(temperatures),
            "num_draws": settings.num_draws,
            "burn_in": settings.burn_in,
            "chain": number,
        }

    def advance(self) -> int:
        for chain, drawn, theta in zip(self.chains, self.drawn, self.theta, strict=True):
            chain.sweep()
            if self.done >= self.burn_in:
                if isinstance(chain, JumpChain):
                    theta[len(drawn)] = torch.from_numpy(chain.theta)
                drawn.append(chain.mask)
        return 1

    def state(self) -> dict[str, torch.Tensor]:
        drawn = [[hex(mask) for mask in row] for row in self.drawn]
        chains = packed([chain.state() for chain in self.chains])
        return {"chains": chains, "drawn": packed(drawn), "theta": self.theta.clone()}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        for chain, kept in zip(self.chains, unpacked(state["chains"]), strict=True):
            chain.restore(kept)
        self.drawn = [[int(mask, 16) for mask in row] for row in unpacked(state["drawn"])]
        self.theta = state["theta"].clone()
        if {len(row) for row in self.drawn} != {max(0, self.done - self.burn_in)}:
            raise ValueError(f"{len(self.drawn[0])} draws after {self.done} sweeps")


def _starts(
    moves: Neighbourhood,
    evidence: StructureEvidence,
    settings: ChainSettings,
    generators: Sequence[np.random.Generator],
) -> list[int]:
    """One member for every chain."""
    space = moves.prior.space
    if not isinstance(settings.starts, str):
        return [space.mask_of(graph) for graph in settings.starts]
    # Words in turn, so that chains start far apart.
    words = ("empty", "full", "prior") if settings.starts in ("spread", "select") else (settings.starts,)
    starts: list[int] = []
    for k, generator in enumerate(generators):
        mask, word = 0, words[k % len(words)]
        if word == "prior":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(generator.integers(2**63)))
                flags = moves.prior.sample(torch.Size([1])) == 1
            mask = space.masks_of(flags.numpy())[0]
        while word == "full" and (births := moves.moves(mask)[0]):
            mask = births[int(generator.integers(len(births)))]
        starts.append(_climbed(moves, evidence, mask) if settings.starts == "select" else mask)
    return starts


def _climbed(moves: Neighbourhood, evidence: StructureEvidence, mask: int) -> int:
    """The member that the best births and deaths lead to: more probable than all that are one of them away."""
    # From member to the best of its neighbours, until none is better.
    best, weight = -np.inf, moves.prior.log_weight
    around = [mask]
    while True:
        values = evidence.many(around) + np.array([weight(member) for member in around])
        best_of = int(values.argmax())
        if values[best_of] <= best:
            return mask
        mask, best = around[best_of], values[best_of]
        around = [*moves.moves(mask)[0], *moves.moves(mask)[1]]
        if not around:
            return mask


def posterior_of(
    evidence: StructureEvidence, prior: StructurePrior, drawn: Sequence[Sequence[int]], theta: torch.Tensor | None
) -> StructurePosterior:
    """The draws of chains, masks by chain with theta or without, as a posterior with its status."""
    # Distinct members, and where the chains met them.
    masks = sorted({mask for row in drawn for mask in row})
    position = {mask: k for k, mask in enumerate(masks)}
    index = torch.tensor([[position[mask] for mask in row] for row in drawn])
    shares = torch.bincount(index.flatten(), minlength=len(masks)).double() / index.numel()
    gamma = torch.from_numpy(prior.space.flags_of(masks).copy())
    values = torch.from_numpy(evidence.many(masks))
    is_exact = evidence.is_exact or theta is not None
    # The worst indicator decides.
    result = StructurePosterior(
        evidence, prior, gamma, values, shares, index, theta, is_exact=is_exact, status="converged"
    )
    r_hat = result.inclusion.r_hat
    limit = r_hat_limit(*index.shape)
    if r_hat is None or bool((r_hat <= limit).all()):
        return result
    worst = float(r_hat.max())
    worst_edge = prior.space.candidates[int(r_hat.argmax())]
    warnings.warn(
        f"structures: largest R-hat {worst:.3g} (limit {limit:.3g}), of {'*'.join(worst_edge)}; take more draws, or "
        "temperatures where chains are stuck",
        ConvergenceWarning,
        stacklevel=3,
    )
    return replace(result, status="unconverged")
