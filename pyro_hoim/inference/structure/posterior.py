"""Posteriors over collections of interactions, listed or drawn."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, Unpack, get_args

import numpy as np
import torch
from pyro.ops.stats import split_gelman_rubin

from ..._modes import plain_mode
from ...core.partition import PartitionBackend
from ...core.prediction import Prediction, extend_rows, row_patterns
from ...data.columns import FrameOptions
from ...data.frames import DataLike
from ...data.observations import Observations
from ...errors import check_names, check_type, check_whole, conflict, out_of_range, out_of_reach
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.given import predict
from ...log_linear.named_priors import Prior
from ...runs.arguments import checked_seed
from ...runs.container import STRUCTURE_POSTERIOR, plain, read_model, stored, write_container
from ...runs.rules import DOMAIN, FLAG, NAME, NUMBER, WHOLE, Either, Fields, Row, one_of, optional
from ...schema import Domain
from ...structure.hypergraph import Edge, InteractionHypergraph
from .evidence import EvidenceMethod, StructureEvidence
from .kernel import MAX_CELLS
from .prior import MAX_LISTED, Flags, SpaceName, StructurePrior, rows_and_prior
from .program import ThetaPrior

Status: TypeAlias = Literal["exact", "approximate", "converged", "unconverged"]

_NEGLIGIBLE = 1e-6
_MAX_THETA = 2**25  # numbers in the draws of theta of all chains
_CHAINS, _DRAWS = 4, 1000  # of independent draws, by default


class StructureProbability(NamedTuple):
    """One collection of a posterior: its probability and its log evidence, nats."""

    hypergraph: InteractionHypergraph
    probability: float
    log_evidence: float


class StructureDraws(NamedTuple):
    """Draws of indicators (num_draws, candidates) and of theta (num_draws, parameters of the largest collection)."""

    gamma: torch.Tensor
    theta: torch.Tensor


class StructureChains(NamedTuple):
    """Draws by chain: indicators, log evidence in nats, theta (None where it is too large), and if independent.

    Shape:
        gamma (num_chains, num_draws, candidates), log_evidence (num_chains, num_draws), theta (num_chains, num_draws,
        parameters of the largest collection), zero where absent.
    """

    gamma: torch.Tensor
    log_evidence: torch.Tensor
    theta: torch.Tensor | None
    is_independent: bool


@dataclass(frozen=True, eq=False)
class Inclusion:
    """Posterior probability of each interaction, with its error where it comes from chains.

    Attributes:
        edges: the interactions in order.
        mean: probability that each is present, float64 (candidates,).
        mcse: Monte Carlo standard error, of chains by batches of sqrt(num_draws) draws; zeros where the collections are
            listed, and where no draw differs from the others, which bounds nothing; NaN where they
            are not at the same value.
        r_hat: split R-hat of the indicators, infinite where every chain is stuck and not all at the same value, 1 where
            all are; None where the collections are listed.
        per_chain: means of every chain (num_chains, candidates); None where the collections are listed.
    """

    edges: tuple[Edge, ...]
    mean: torch.Tensor
    mcse: torch.Tensor
    r_hat: torch.Tensor | None = None
    per_chain: torch.Tensor | None = None

    def __getitem__(self, edge: Sequence[str]) -> float:
        wanted = frozenset(edge)
        positions = [k for k, other in enumerate(self.edges) if frozenset(other) == wanted]
        if not positions:
            raise out_of_range("edge", "an interaction that may be present", received=repr(tuple(edge)))
        return float(self.mean[positions[0]])


@dataclass(frozen=True, eq=False)
class StructurePosterior:
    r"""Which interactions exist: probabilities of collections given rows.

    .. math:: p(\gamma \mid x) \propto p(\gamma) \int p(\theta \mid \gamma)\, p(x \mid \theta, \gamma) \, d\theta

    Attributes:
        evidence: the log evidence of any member, and theta given it.
        structure_prior: the prior over collections.
        gamma: indicators of the distinct collections, bool (M, candidates).
        log_evidence: of these, nats, float64 (M,).
        probabilities: of these, float64 (M,): of all collections of the space, or shares of the draws.
        index: for chains, positions in ``gamma``, long (num_chains, num_draws); None otherwise.
        theta: for chains that draw it, the free parameters of the largest collection, float64 (num_chains, num_draws,
            parameters), zero where an interaction is absent; None where theta is integrated out.
        num_effective: for independent draws with weights, how many of equal weight are worth as much; else None.
        is_exact: whether nothing is approximate but the Monte Carlo error: the evidence is exact, and the collections
            are listed or drawn by chains with this posterior as their law.
        status: "exact" or "approximate" for a list, by the evidence; "exact" (but for the Monte Carlo error) for
            independent draws with weights; "converged" or "unconverged" for chains.
    """

    evidence: StructureEvidence = field(repr=False)
    structure_prior: StructurePrior
    gamma: torch.Tensor = field(repr=False)
    log_evidence: torch.Tensor = field(repr=False)
    probabilities: torch.Tensor = field(repr=False)
    index: torch.Tensor | None = field(default=None, repr=False)
    theta: torch.Tensor | None = field(default=None, repr=False)
    num_effective: float | None = None
    is_exact: bool = False
    status: Status = "approximate"

    @property
    def data(self) -> Observations:
        """The distinct rows with their counts."""
        return self.evidence.data

    @property
    def method(self) -> EvidenceMethod:
        """How the evidence is found."""
        return self.evidence.method

    @property
    def num_structures(self) -> int:
        """Number of distinct collections."""
        return len(self.gamma)

    # Interactions

    @cached_property
    @plain_mode()
    def inclusion(self) -> Inclusion:
        """Posterior probability of every interaction."""
        edges = self.structure_prior.space.candidates
        mean = self.probabilities @ self.gamma.double()
        if self.index is None:
            variance = (mean * (1 - mean)).clamp(min=0) / (self.num_effective or math.inf)
            return Inclusion(edges, mean, variance.sqrt())
        # A chain that is stuck tells nothing of its error; stuck at different values, chains contradict each other.
        draws = self.gamma[self.index].double()
        is_stuck = (draws == draws[:, :1]).all(1).all(0)
        is_torn = is_stuck & ~(draws == draws[0, 0]).all(1).all(0)
        mcse = torch.where(is_torn, math.nan, torch.zeros_like(mean))
        r_hat = torch.where(is_torn, math.inf, torch.ones_like(mean))
        if not bool(is_stuck.all()):
            moving = draws[..., ~is_stuck]  # R-hat of constant columns is NaN, and spreads to the others
            r_hat[~is_stuck] = split_gelman_rubin(moving, chain_dim=0, sample_dim=1)
            # By means of batches, which a chain that is stuck among others that move has, too.
            length = math.isqrt(moving.shape[1])
            batches = moving[:, : moving.shape[1] // length * length].unflatten(1, (-1, length)).mean(2).flatten(0, 1)
            mcse[~is_stuck] = batches.std(0) / math.sqrt(len(batches))
        return Inclusion(edges, mean, mcse, r_hat, draws.mean(1))

    def bayes_factor(self, edge: Sequence[str]) -> float:
        """Posterior odds of an interaction divided by its prior odds; infinite where it is always present.

        Raises:
            InputError: not a candidate.
            IntractableError: the prior odds need the list of a space that is too large.
        """
        position = self.structure_prior.index(edge)
        after, before = (float(law[position]) for law in (self.inclusion.mean, self.structure_prior.marginal_inclusion))
        return math.inf if after >= 1 else after / (1 - after) * (1 - before) / before

    @property
    def median_model(self) -> InteractionHypergraph:
        """The interactions of probability above one half, and all main effects.

        Closed under subsets where every collection is. It need not be a member of a space of graphs.
        """
        space = self.structure_prior.space
        likely = [e for e, mean in zip(space.candidates, self.inclusion.mean.tolist(), strict=True) if mean > 0.5]
        singles = [(name,) for name in space.domain.names]
        return InteractionHypergraph(space.domain, singles + likely, hierarchical=space.heredity == 1)

    # Collections

    @cached_property
    def _order(self) -> list[int]:
        """Positions by falling probability; ties in the order of the list."""
        return torch.argsort(self.probabilities, descending=True, stable=True).tolist()

    @cached_property
    def _masks(self) -> list[int]:
        flags: Flags = self.gamma.numpy()
        return self.structure_prior.space.masks_of(flags)

    def models(self, limit: int = 10) -> tuple[StructureProbability, ...]:
        """The most probable collections, with their probability and log evidence.

        Args:
            limit: how many at most.
        """
        space = self.structure_prior.space
        return tuple(
            StructureProbability(
                space.hypergraph_of(self._masks[k]), float(self.probabilities[k]), float(self.log_evidence[k])
            )
            for k in self._order[: check_whole(limit, "limit")]
        )

    # Other priors

    def reweighted(self, prior: ThetaPrior) -> StructurePosterior:
        r"""The posterior under another prior of theta, by the evidence of the same collections under it.

        .. math:: p'(\gamma \mid x) \propto p(\gamma \mid x)\, p'(x \mid \gamma) / p(x \mid \gamma)

        Where the collections are listed this is the posterior that a list under the other prior gives. Draws are
        weighted: ``num_effective`` says how many of equal weight they are worth, and collections that none of them met
        stay unknown.

        Args:
            prior: as in :func:`~pyro_hoim.inference.enumerate_structures`.

        Raises:
            InputError: a flat prior, or one for which the evidence has no such ``method``.
            InputTypeError: ``prior`` is none.
        """
        old = self.evidence
        evidence = StructureEvidence(
            old.data, old.space, prior, method=old.method, partition=old.partition, seed=old.seed
        )
        # A list is weighed anew; draws are weighted by the ratio of their evidences.
        values = torch.from_numpy(evidence.many(self._masks))
        is_listed = self.index is None and self.num_effective is None
        base = self.structure_prior.probs.log() if is_listed else self.probabilities.log() - self.log_evidence
        weights = torch.softmax(base + values, 0)
        num = self.num_effective if self.index is None else float(self.index.numel())
        # How many draws of equal weight these are worth.
        if num is not None:
            met = self.probabilities > 0
            num /= float((weights[met].square() / self.probabilities[met]).sum())
        return replace(
            self,
            evidence=evidence,
            log_evidence=values,
            probabilities=weights,
            index=None,
            theta=None,
            num_effective=num,
            is_exact=self.is_exact and evidence.is_exact,
            status=self.status if self.index is None else "approximate",
        )

    # Draws and averages

    def sample(self, num_draws: int = 1000, *, seed: int = 0) -> StructureDraws:
        """Draws of a collection and of theta given it; theta is zero where an interaction is absent.

        Chains with theta give states of theirs, drawn with replacement. Otherwise collections are drawn by their
        probabilities, and theta is exact with the conjugate prior on decomposable collections, else normal at the mode.

        Args:
            num_draws: how many.
            seed: of the draws; the global generators are left as they are.
        """
        check_whole(num_draws, "num_draws")
        generator = torch.Generator().manual_seed(checked_seed(seed))
        if self.theta is not None and self.index is not None:
            at = torch.randint(self.index.numel(), (num_draws,), generator=generator)
            gamma = self.gamma[self.index.flatten()[at]].to(torch.get_default_dtype())
            return StructureDraws(gamma, self.theta.flatten(0, 1)[at])
        chosen = torch.multinomial(self.probabilities, num_draws, replacement=True, generator=generator)
        return StructureDraws(self.gamma[chosen].to(torch.get_default_dtype()), self._theta_of(chosen, generator))

    def _theta_of(self, chosen: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Draws of theta (num, parameters) given collections by their positions (num,)."""
        theta = torch.empty(len(chosen), self.structure_prior.largest.num_parameters, dtype=torch.float64)
        for k in chosen.unique().tolist():
            places = (chosen == k).nonzero()[:, 0]
            theta[places] = self.evidence.sample_theta(self._masks[k], len(places), generator)
        return theta

    def chains(self, num_chains: int | None = None, *, seed: int = 0) -> StructureChains:
        """The draws of the chains with theta, or independent draws where no chain was run.

        This is what :func:`~pyro_hoim.interop.to_arviz` shows. Where chains integrate theta out it is drawn given each
        collection, as :meth:`sample` does, and left out where the draws would hold more than 2^25 numbers.

        Args:
            num_chains: chains of 1,000 that independent draws are divided into, 4 when None; of chains that were run
                their number, or None.
            seed: of independent draws, and of theta; the global generators are left as they are.

        Raises:
            InputError: another number of chains than were run.
        """
        generator = torch.Generator().manual_seed(checked_seed(seed))
        if self.index is None:
            num = check_whole(_CHAINS if num_chains is None else num_chains, "num_chains")
            chosen = torch.multinomial(self.probabilities, num * _DRAWS, replacement=True, generator=generator)
            index = chosen.reshape(num, _DRAWS)
        else:
            index = self.index
            if num_chains not in (None, len(index)):
                raise out_of_range("num_chains", f"None or {len(index)}, the chains that were run", num_chains)
        # Theta is drawn where chains integrate it out, unless that is too much to hold.
        theta = self.theta
        if theta is None and index.numel() * self.structure_prior.largest.num_parameters <= _MAX_THETA:
            theta = self._theta_of(index.flatten(), generator).unflatten(0, index.shape)
        return StructureChains(self.gamma[index], self.log_evidence[index], theta, self.index is None)

    def cell_probabilities(self) -> torch.Tensor:
        """Posterior mean of the probability of every cell, averaged over collections, float64 (*cardinalities).

        Chains with theta give the mean over their states. Otherwise collections that together have a probability below
        1e-6 are left out, and given a collection the mean is exact with the conjugate prior on decomposable ones, else
        of second order in 1 / N (Laplace's expansion).

        Raises:
            IntractableError: a table of more than 4,096 cells.
        """
        return self._cells(self.probabilities, self.theta)

    def _cells(self, probabilities: torch.Tensor, theta: torch.Tensor | None) -> torch.Tensor:
        """Mean cells (*cardinalities) over states of theta (..., P), or with probabilities of the collections (M,)."""
        if theta is not None:
            return self.evidence.mean_cells_at(theta.flatten(0, -2))
        order = probabilities.argsort(descending=True, stable=True)
        weights = probabilities[order].numpy()
        num = int(np.searchsorted(np.cumsum(weights), 1 - _NEGLIGIBLE)) + 1
        masks = [self._masks[k] for k in order[:num].tolist()]
        table = torch.from_numpy(self.evidence.cell_probabilities(masks, weights[:num]))
        return (table / table.sum()).reshape(self.structure_prior.space.domain.cardinalities)

    def predict(self, rows: Observations, target: str, *, num_draws: int = 200, seed: int = 0) -> Prediction:
        r"""One column of new rows from their other known cells, averaged over collections and theta.

        .. math:: p(x_t \mid x_O, x) = \frac{E\,[p(x_t, x_O \mid \theta, \gamma) \mid x]}{
            E\,[p(x_O \mid \theta, \gamma) \mid x]}

        From :meth:`cell_probabilities`, hence as exact as they are, where a table has up to 4,096 cells. Beyond, the
        mean over draws of the probabilities given each, which leaves out what a row's known cells say of theta, of the
        order of 1 / N.

        Args:
            rows: over the variables of the data, or some of them; the others are missing. What they say of the target
                is not used.
            target: the column.
            num_draws: draws of collection and theta beyond 4,096 cells.
            seed: of these; the global generators are left as they are.

        Returns:
            Probabilities for every row. ``is_exact`` where collections are listed and their evidence and means exact;
            ``std_error`` from the spread between chains or draws, a bound for independent draws with weights, and 0 for
            a list, which says nothing of Laplace's expansion.

        Raises:
            InputError: rows with other labels; numbers out of range.
            UnknownNameError: a variable that the data does not have.
            IntractableError: beyond 4,096 cells, as :func:`~pyro_hoim.log_linear.predict`.
        """
        # Rows without their target, which is what is asked for.
        domain = self.structure_prior.space.domain
        rows, _ = extend_rows(rows, domain), check_names([target], domain.names, "target")
        column = domain.index(target)
        hidden = rows.codes.clone()
        hidden[:, column] = -1
        given = Observations.from_tensor(hidden, domain)
        if domain.num_states > MAX_CELLS:
            # Means over draws of the probabilities given each, and their standard errors.
            check_whole(num_draws, "num_draws", 2)
            drawn, space = self.sample(num_draws, seed=seed), self.structure_prior.space
            draws: list[torch.Tensor] = []
            for mask, theta in zip(space.masks_of((drawn.gamma == 1).numpy()), drawn.theta, strict=True):
                columns = torch.from_numpy(self.evidence.columns([mask])[0])
                model = LogLinearEnergy.from_theta(space.hypergraph_of(mask), theta[columns])
                draws.append(predict(model, given, target, seed=seed).probs)
            each = torch.stack(draws)
            probs, error = each.mean(0), each.std(0) / math.sqrt(num_draws)
        else:
            probs = _conditionals(self.cell_probabilities(), given, target)
            error = self._error_of(probs, given, target)
        # An exact list of small tables leaves no error; all else says how large it is.
        is_sure = self.method == "exact" and self.status == "exact" and self.num_effective is None
        is_exact = torch.full((len(hidden),), is_sure and domain.num_states <= MAX_CELLS)
        return Prediction.of(rows, target, probs.log(), error, is_exact)

    def _error_of(self, probs: torch.Tensor, given: Observations, target: str) -> torch.Tensor:
        """Monte Carlo standard errors of probabilities (N, K) from mean cells; zeros for a list."""
        if self.index is None:
            return (probs * (1 - probs) / (self.num_effective or math.inf)).sqrt()
        num = self.num_structures
        shares = [torch.bincount(row, minlength=num).double() / len(row) for row in self.index]
        thetas = [None] * len(shares) if self.theta is None else list(self.theta)
        tables = torch.stack([self._cells(*both) for both in zip(shares, thetas, strict=True)])
        return _conditionals(tables, given, target).std(0) / math.sqrt(len(tables))


def _conditionals(tables: torch.Tensor, rows: Observations, target: str) -> torch.Tensor:
    """Probabilities of the levels of a variable, missing in all rows, given their known cells: (..., N, K).

    From joint probabilities of positive sum, (..., *cards).
    """
    domain, num_batch = rows.domain, tables.dim() - len(rows.domain)
    size = domain[target].cardinality
    probs = tables.new_empty(*tables.shape[:num_batch], len(rows.codes), size)
    last = tables.movedim(num_batch + domain.index(target), -1)
    others = [name for name in domain.names if name != target]
    # Rows that lack the same cells share one margin of the tables.
    for missing, positions in row_patterns(rows):
        gone = [num_batch + k for k, name in enumerate(others) if name in missing]
        margin = (last.sum(gone) if gone else last).reshape(*tables.shape[:num_batch], -1, size)
        cell = torch.zeros_like(positions)
        for name in others:
            if name not in missing:
                cell = cell * domain[name].cardinality + rows.codes[positions, domain.index(name)]
        probs[..., positions, :] = margin[..., cell, :]
    return probs / probs.sum(-1, keepdim=True)


# Posteriors over collections by listing every one.


def enumerate_structures(
    data: DataLike,
    prior: ThetaPrior = "unit",
    structure_prior: StructurePrior | None = None,
    *,
    method: EvidenceMethod = "auto",
    partition: PartitionBackend | None = None,
    seed: int = 0,
    **options: Unpack[FrameOptions],
) -> StructurePosterior:
    r"""The posterior over all collections of a space, by the evidence of each.

    .. math:: p(\gamma \mid x) = \frac{p(\gamma)\, p(x \mid \gamma)}{\sum_{\gamma' \in \mathcal G} p(\gamma')\,
        p(x \mid \gamma')}

    For spaces of up to 2^16 collections: every hierarchical collection of five variables (6,894), every graph,
    decomposable graph or set of pairs of six. With priors by name and tables of up to 4,096 cells some ten thousand
    collections a second; decomposable ones with the conjugate prior are exact, all 18,154 of six variables in a second.

    Args:
        data: complete rows; weights are allowed, and no rows at all (the posterior is then the prior).
        prior: prior of theta given a collection, as in :func:`~pyro_hoim.inference.log_evidence`; a function makes one
            for every collection.
        structure_prior: prior over collections; every hierarchical one with the same probability when None.
        method: of the evidence, the same for all collections. ``auto`` is ``exact`` for the conjugate prior on
            decomposable ones, refused for this prior in other spaces, since closed forms and approximations do not
            compare, and ``laplace`` for other priors.
        partition: exact backend for tables that are not small; ``Auto()`` when None.
        seed: of ``bridge`` and ``path``.
        options: of a data frame ``weights``, ``count``, ``missing`` (``"drop"``), ``missing_values``, ``bins``,
            ``exclude`` and ``allow``, as :func:`pyro_hoim.fit` has them.

    Raises:
        InputError: another domain, a flat prior, a distribution of one collection, a method that does not fit.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.
        IntractableError: a space that is too large to be listed; its size is named.

    References:
        Adrian Raftery, Approximate Bayes factors and accounting for model uncertainty in generalised linear models,
        Biometrika 83, 1996, for averages over models.

    Example:
        >>> from pyro_hoim import load_table
        >>> table = load_table("czech_autoworkers")
        >>> decomposable = StructurePrior(table.domain, space="decomposable")
        >>> posterior = enumerate_structures(table, "conjugate:1", decomposable)
        >>> posterior.num_structures, posterior.status, round(posterior.inclusion["phys", "protein"], 3)
        (18154, 'exact', 0.743)
        >>> posterior.models(1)[0].hypergraph.maximal_edges
        (('family',), ('mental', 'phys'), ('systol', 'protein'), ('smoke', 'phys', 'protein'))
    """
    data, structure_prior = rows_and_prior(data, structure_prior, options=options)
    space = structure_prior.space
    evidence = StructureEvidence(data, space, prior, method=method, partition=partition, seed=seed)
    members = space.members
    if members is None:
        problem = (
            f"the space {space.name!r} over {len(space.domain)} variables up to order {space.max_order} has "
            f"{space.size_text} collections, the limit of a list is {MAX_LISTED}"
        )
        raise out_of_reach("structure_prior", problem, "lower max_order, or draw collections by chains")
    # All members weighed by prior and evidence.
    log_evidence = torch.from_numpy(evidence.many(space.masks_of(members)))
    probabilities = torch.softmax(log_evidence + structure_prior.probs.log(), 0)
    status = "exact" if evidence.is_exact else "approximate"
    gamma = torch.from_numpy(members.copy())
    return StructurePosterior(
        evidence, structure_prior, gamma, log_evidence, probabilities, is_exact=evidence.is_exact, status=status
    )


# Files of posteriors over structure: safetensors with a JSON header, as model files.

_ROUNDING = 1e-9
_CONTENTS = {
    "domain": DOMAIN,
    "space": Fields({"space": one_of(*get_args(SpaceName)), "max_order": WHOLE, "heredity": NUMBER}),
    "inclusion": Either(NUMBER, Row(one_of("beta"), NUMBER, NUMBER)),
    "evidence": Fields({"prior": NAME, "method": one_of(*get_args(EvidenceMethod)), "seed": WHOLE}),
    "result": Fields({"num_effective": optional(NUMBER), "is_exact": FLAG, "status": one_of(*get_args(Status))}),
}


def save_structure_posterior(
    path: str | os.PathLike[str], posterior: StructurePosterior, info: Mapping[str, Any] | None = None
) -> None:
    """Write a posterior over structure, replacing an existing file in a single step.

    The file holds the collections with their log evidence and probabilities, the draws of chains, the distinct rows and
    the priors, so that everything that can be asked of the posterior can be asked again. Reading it executes nothing.

    Args:
        path: the file; its folder must exist.
        posterior: what to write; its prior of theta has a name (:class:`~pyro_hoim.log_linear.Prior`).
        info: further JSON values.

    Raises:
        InputError: a prior that is a function, which no file can hold.
        InputTypeError: ``posterior`` is none.
        ModelFileError: the folder does not exist, or the file cannot be written.

    Example:
        >>> import tempfile
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.inference import enumerate_structures
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[9, 1], [1, 9]])
        >>> posterior = enumerate_structures(rows)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_structure_posterior(f"{folder}/posterior.safetensors", posterior)
        ...     kept = load_structure_posterior(f"{folder}/posterior.safetensors")
        >>> kept.num_structures, kept.inclusion["a", "b"] == posterior.inclusion["a", "b"]
        (2, True)
    """
    check_type(posterior, StructurePosterior, "posterior")
    evidence, law = posterior.evidence, posterior.structure_prior
    if not isinstance(evidence.prior, Prior):
        raise conflict("posterior", "its prior is a function, which a file cannot hold", "name the prior by a text")
    # What the posterior is about as JSON, and its numbers as tensors.
    contents = {
        "domain": law.space.domain.to_json(),
        "space": {"space": law.space.name, "max_order": law.space.max_order, "heredity": law.space.heredity},
        "inclusion": list(law.inclusion) if isinstance(law.inclusion, tuple) else law.inclusion,
        "evidence": {"prior": str(evidence.prior), "method": evidence.method, "seed": evidence.seed},
        "result": {name: getattr(posterior, name) for name in ("num_effective", "is_exact", "status")},
        "info": plain(info or {}, "info"),
    }
    tensors = {
        "gamma": posterior.gamma.to(torch.uint8),
        "log_evidence": posterior.log_evidence,
        "probabilities": posterior.probabilities,
        "codes": posterior.data.codes,
        "counts": posterior.data.counts,
        **({} if posterior.data.has_whole_counts else {"squares": posterior.data.squared_weights}),
        **{name: value for name in ("index", "theta") if (value := getattr(posterior, name)) is not None},
    }
    write_container(path, STRUCTURE_POSTERIOR, contents, {name: stored(value) for name, value in tensors.items()})


def load_structure_posterior(path: str | os.PathLike[str]) -> StructurePosterior:
    """Read a posterior over structure; numbers and draws come back exactly as they were written.

    Args:
        path: the file.

    Raises:
        ModelFileError: no such file, not a readable safetensors file (damaged or truncated), written by another
            program, of another format version, of another kind, or with contents that do not fit together.

    Example:
        >>> load_structure_posterior("missing.safetensors")
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.ModelFileError: missing.safetensors: no such file
    """
    return read_model(path, STRUCTURE_POSTERIOR, _CONTENTS, _built)


def _built(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> StructurePosterior:
    """What header and tensors stand for."""
    # Rows and priors, then the collections, which must be distinct members of the space.
    domain = Domain.from_json(header["domain"])
    inclusion = header["inclusion"]
    law = StructurePrior(
        domain, **header["space"], inclusion=tuple(inclusion) if isinstance(inclusion, list) else inclusion
    )
    rows = Observations(domain, tensors["codes"], tensors["counts"], "squares" in tensors, tensors.get("squares"))
    evidence = StructureEvidence(rows, law.space, **header["evidence"])
    # Distinct members of the space, each with its log evidence, and probabilities that sum to one.
    gamma, values, shares = (tensors[name] for name in ("gamma", "log_evidence", "probabilities"))
    if gamma.dtype != torch.uint8 or not bool((gamma <= 1).all()) or not bool(law.support.check(gamma.bool()).all()):
        raise conflict("gamma", "a collection lies outside the space")
    if not len(gamma) or len(gamma.unique(dim=0)) < len(gamma):
        raise conflict("gamma", "collections are repeated, or there are none")
    if any(value.dtype != torch.float64 or value.shape != gamma.shape[:1] for value in (values, shares)):
        raise conflict("gamma", "there is not one number for every collection")
    if bool(values.isnan().any()) or not (bool((shares >= 0).all()) and abs(float(shares.sum()) - 1) < _ROUNDING):
        raise conflict("probabilities", "they are not those of a law")
    index, theta = tensors.get("index"), tensors.get("theta")
    # Chains meet every collection as often as its share says, with finite theta.
    shares = tensors["probabilities"]
    if index is not None:
        if index.dtype != torch.long or index.dim() != 2 or not bool(((index >= 0) & (index < len(shares))).all()):
            raise conflict("index", "it does not point at collections")
        counts = torch.bincount(index.flatten(), minlength=len(shares)).double()
        if not torch.allclose(counts / index.numel(), shares, rtol=0, atol=_ROUNDING):
            raise conflict("index", "the draws are not those of the probabilities")
    if theta is not None:
        shape = None if index is None else (*index.shape, law.largest.num_parameters)
        if theta.shape != shape or theta.dtype != torch.float64 or not bool(theta.isfinite().all()):
            raise conflict("theta", "there is not one finite value for every draw")
    result = header["result"]
    if result["num_effective"] is not None and result["num_effective"] <= 0:
        raise conflict("result", "no posterior has these values")
    return StructurePosterior(evidence, law, gamma.bool(), values, shares, index, theta, **result)
