"""Posteriors over collections by chains of births, deaths and swaps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ....budgets import check_draws
from ....data.frames import DataLike, as_observations
from ....errors import ConvergenceWarning, check_type, check_whole, conflict, unexpected, wrong_type
from ....log_linear.named_priors import Prior
from ....runs.arguments import checked_seed
from ....runs.checkpoint import packed, unpacked
from ....runs.jobs import follow
from ....runs.options import RunOptions, checked_run
from ....runs.seal import checksum
from ....structure.hypergraph import InteractionHypergraph
from ...kernels import r_hat_limit
from ..evidence import EvidenceMethod
from ..posterior import StructurePosterior
from ..prior import StructurePrior
from ..scorer import StructureEvidence
from ..theta_prior import ThetaPrior
from .chains import Neighbourhood, checked_temperatures
from .jumps import JumpChain, ThetaProposals, chain_of

__all__ = ["ChainSettings", "posterior_of", "sample_chain", "sample_structures"]

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
    check_type(structure_prior, StructurePrior | None, "structure_prior")
    data = as_observations(data, domain=None if structure_prior is None else structure_prior.space.domain)
    check_type(settings, ChainSettings | None, "settings")
    check_type(collapsed, bool, "collapsed")
    settings = ChainSettings() if settings is None else settings
    structure_prior = StructurePrior(data.domain) if structure_prior is None else structure_prior
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
    """Burn-in and draws of all chains, or of one by its number, as a :class:`~pyro_hoim.runs.jobs.Job`."""

    def __init__(
        self,
        evidence: StructureEvidence,
        prior: StructurePrior,
        settings: ChainSettings,
        collapsed: bool,
        seed: int,
        number: int | None = None,
    ) -> None:
        self.done, self.burn_in = 0, settings.burn_in
        self.total = settings.burn_in + settings.num_draws
        moves = Neighbourhood(prior)
        seeds = np.random.SeedSequence(seed).spawn(2 * settings.num_chains)
        starts = _starts(moves, evidence, settings, [np.random.default_rng(s) for s in seeds[settings.num_chains :]])
        temperatures = checked_temperatures(settings.temperatures)
        proposals = None if collapsed else ThetaProposals(evidence)
        self.chains = [
            chain_of(moves, evidence, proposals, temperatures, start, own)
            for k, (start, own) in enumerate(zip(starts, seeds, strict=False))
            if number in (None, k)
        ]
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
    words = ("empty", "full", "prior") if settings.starts in ("spread", "select") else (settings.starts,)
    found: list[int] = []
    for k, generator in enumerate(generators):
        mask, word = 0, words[k % len(words)]
        if word == "prior":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(generator.integers(2**63)))
                flags = moves.prior.sample(torch.Size([1])) == 1
            mask = space.masks_of(flags.numpy())[0]
        while word == "full" and (births := moves.moves(mask)[0]):
            mask = births[int(generator.integers(len(births)))]
        found.append(_climbed(moves, evidence, mask) if settings.starts == "select" else mask)
    return found


def _climbed(moves: Neighbourhood, evidence: StructureEvidence, mask: int) -> int:
    """The member that the best births and deaths lead to: more probable than all that are one of them away."""
    best, weight = -np.inf, moves.prior.log_weight
    around = [mask]
    while True:
        values = evidence.many(around) + np.array([weight(member) for member in around])
        place = int(values.argmax())
        if values[place] <= best:
            return mask
        mask, best = around[place], values[place]
        around = [*moves.moves(mask)[0], *moves.moves(mask)[1]]
        if not around:
            return mask


def posterior_of(
    evidence: StructureEvidence, prior: StructurePrior, drawn: Sequence[Sequence[int]], theta: torch.Tensor | None
) -> StructurePosterior:
    """The draws of chains, masks by chain with theta or without, as a posterior with its status."""
    masks = sorted({mask for row in drawn for mask in row})
    position = {mask: k for k, mask in enumerate(masks)}
    index = torch.tensor([[position[mask] for mask in row] for row in drawn])
    shares = torch.bincount(index.flatten(), minlength=len(masks)).double() / index.numel()
    gamma = torch.from_numpy(prior.space.flags_of(masks).copy())
    values = torch.from_numpy(evidence.many(masks))
    is_exact = evidence.is_exact or theta is not None
    result = StructurePosterior(
        evidence, prior, gamma, values, shares, index, theta, is_exact=is_exact, status="converged"
    )
    r_hat = result.inclusion.r_hat
    limit = r_hat_limit(*index.shape)
    if r_hat is None or bool((r_hat <= limit).all()):
        return result
    worst = float(r_hat.max())
    place = prior.space.candidates[int(r_hat.argmax())]
    warnings.warn(
        f"structures: largest R-hat {worst:.3g} (limit {limit:.3g}), of {'*'.join(place)}; take more draws, or "
        "temperatures where chains are stuck",
        ConvergenceWarning,
        stacklevel=3,
    )
    return replace(result, status="unconverged")
