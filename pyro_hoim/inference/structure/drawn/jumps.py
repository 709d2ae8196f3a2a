r"""Chains over collections and theta: reversible jumps with theta proposed at the mode of the collection jumped to.

.. math:: \theta' \sim q_{m'}, \qquad q_m = t_\nu\big(\hat\theta_m, H_m^{-1}\big), \qquad
    w(m, \theta) = \frac{p(\theta \mid m)\, p(x \mid \theta, m)}{q_m(\theta)}, \qquad
    \alpha = 1 \wedge \frac{p(m')\, w(m', \theta')}{p(m)\, w(m, \theta)} \frac{q(m' \to m)}{q(m \to m')}

with the mode and minus the Hessian H of the posterior given m. All of theta is drawn anew, so the dimension is matched
by the densities of both ends and the Jacobian is one. The weight is an estimate of the evidence by one draw without
bias, whose expectation the collapsed chain has in its place. Student laws have longer tails than every posterior under
a normal or conjugate prior: weights are bounded there, and the chain cannot be stuck where a normal law would be too
thin. Copies at a temperature t have the law :math:`p(m)\, q_m(\theta)\, w^{1 / t}`, all steps of which need the weight
alone, and are exchanged as collapsed ones are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from ....errors import conflict
from ....log_linear.laws.priors import DiaconisYlvisaker
from ..kernel import Floats
from ..scorer import StructureEvidence
from ..theta_prior import resolved_prior
from .chains import Neighbourhood, TemperedChain

__all__ = ["JumpChain", "Point", "ThetaProposal", "ThetaProposals", "chain_of", "theta_given"]

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
    """The Student law of theta at the mode of one member, and the joint density of rows and theta.

    Args:
        evidence: rows and prior.
        mask: the member.
    """

    def __init__(self, evidence: StructureEvidence, mask: int) -> None:
        self.mask = mask
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
        found = self._kept.get(mask)
        if found is None:
            found = ThetaProposal(self.evidence, mask)
            if self._num_kept > _MAX_KEPT:
                self._kept.clear()
                self._num_kept = 0
            self._kept[mask] = found
            self._num_kept += found.num_kept
        return found

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

    Args:
        moves: the moves, and the prior over collections.
        proposals: of theta.
        temperatures: from 1, rising.
        starts: a member for every temperature.
        seed: of the numbers that decide.
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
    proposal, steps = ThetaProposal(evidence, mask), _STEPS_PER_DRAW * (1 + num_draws)
    drawn = np.empty((num_chains, num_draws, proposal.size))
    for rows, own in zip(drawn, np.random.SeedSequence(seed).spawn(num_chains), strict=True):
        rng = np.random.default_rng(own)
        theta, log_weights = proposal.many(steps, rng)
        at, kept = 0, np.empty(steps, dtype=np.int64)
        for k, log_uniform in enumerate(np.log1p(-rng.random(steps)).tolist()):
            at = k if log_uniform < log_weights[k] - log_weights[at] else at
            kept[k] = at
        rows[:] = theta[kept[2 * _STEPS_PER_DRAW - 1 :: _STEPS_PER_DRAW]]
    return torch.from_numpy(drawn)
