"""Log Z and expectations at any size by annealed importance sampling, with an error bar and a verdict on it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ..._modes import plain_mode
from ...annealing.backend import METHOD, AnnealedBackend, constant
from ...annealing.mode_checks import ModeRuns, hamming
from ...annealing.runs import AnnealingOptions, Run, Traits, derived, drawn_seed
from ...annealing.weights import log_sum
from ...checks import checked_sample_shape, is_transformed
from ...core.model import LogLinearModel
from ...core.partition import Cost, LogPartition, PlannedBackend, Verdict, check_model, log_z_with_gradient, state_text
from ...core.words import in_python
from ...data.frames import as_observations
from ...data.observations import Observations
from ...errors import (
    IntractableError,
    check_choice,
    check_positive,
    check_type,
    conflict,
    out_of_reach,
    refused,
    size_text,
    unexpected,
)
from ...runs.schedule import GibbsSchedule
from ...structure.hypergraph import InteractionHypergraph, row_strides
from ..chains.choice import BlockChoice
from ..chains.connected import Connectedness, connection_of
from ..chains.gibbs import EngineName, GibbsChains
from ..chains.inside import Listing
from ..energy import LogLinearEnergy
from ..exact.elimination import VariableElimination
from ..exact.enumeration import Enumeration
from ..impossible import ProductInside, support_of
from .ascents import ascend

# Product laws that annealed runs start from.


@lru_cache(maxsize=256)
@plain_mode()
def _layout(hypergraph: InteractionHypergraph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where single-variable terms are in the tables and in the reference, and levels (d, largest cardinality).

    Levels are positions in the reference, its size where a variable has no such level.
    """
    cards = hypergraph.domain.cardinalities
    starts = list(itertools.accumulate(cards, initial=0))
    source, target = list[int](), list[int]()
    for edge, piece in zip(hypergraph.edge_indices, hypergraph.term_slices.values(), strict=True):
        if len(edge) == 1:
            source.extend(range(piece.start, piece.stop))
            target.extend(range(starts[edge[0]], starts[edge[0] + 1]))
    levels = torch.full((len(cards), max(cards, default=0)), starts[-1])
    for i, (start, end) in enumerate(itertools.pairwise(starts)):
        levels[i, : end - start] = torch.arange(start, end)
    return torch.tensor(source, dtype=torch.long), torch.tensor(target, dtype=torch.long), levels


def log_frequencies(observations: Observations, smoothing: float = 1.0) -> torch.Tensor:
    r"""Log weights of all levels from the data's marginals, a reference for :class:`AnnealedImportance`.

    .. math:: r_v[k] = \log \frac{n_v[k] + a / K_v}{n_v + a}

    for ``smoothing`` a, counts n of the cells that are not missing and K levels; a product law close to the data is
    often closer to a fitted model than its own single-variable terms.

    Args:
        observations: the data.
        smoothing: prior counts of every variable, spread over its levels.

    Shape:
        Returns (sum of cardinalities,), float64, one variable after the other.

    Raises:
        InputError: smoothing that is not positive and finite.
        InputTypeError: no observations.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 3})
        >>> data = Observations(domain, torch.tensor([[0, 2], [1, 2], [1, -1]]))
        >>> log_frequencies(data, 1.0).exp().round(decimals=3).tolist()
        [0.375, 0.625, 0.111, 0.111, 0.778]
    """
    observations = as_observations(observations, argument="log_frequencies")
    check_positive(smoothing, "log_frequencies smoothing")
    parts: list[torch.Tensor] = []
    for codes, levels in zip(observations.narrow.T, observations.domain.cardinalities, strict=True):
        known = codes >= 0
        counts = torch.zeros(levels, dtype=torch.float64).index_add_(0, codes[known].long(), observations.counts[known])
        parts.append(((counts + smoothing / levels) / (counts.sum() + smoothing)).log())
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def fitted(graph: InteractionHypergraph, codes: torch.Tensor) -> torch.Tensor:
    """Log weights (..., sum of cardinalities) of the product law of states (..., m, d), one state more, spread."""
    cards, count = graph.domain.cardinalities, codes.shape[-2]
    first = list(itertools.accumulate(cards, initial=0))
    weights = codes.new_zeros((*codes.shape[:-2], first[-1]), dtype=torch.float64)
    for levels in sorted(set(cards)):
        at = [i for i, number in enumerate(cards) if number == levels]
        shares = torch.stack([(codes[..., at] == k).sum(-2) for k in range(levels)], -1).double()
        shares = (shares + 1 / levels) / (count + 1)
        weights[..., [first[i] + k for i in at for k in range(levels)]] = shares.log().flatten(-2)
    return weights


@dataclass(frozen=True)
class ProductLaws:
    """Product laws with normalised log weights (J, B, sum of cardinalities)."""

    graph: InteractionHypergraph
    weights: NDArray[np.float64]
    log_share: NDArray[np.float64] | float = 0.0
    """Log probability (J, B) of the possible states, to which the laws are restricted."""

    @classmethod
    def of(
        cls, graph: InteractionHypergraph, codes: NDArray[np.generic], support: LogLinearEnergy | None = None
    ) -> ProductLaws:
        """The laws of states (J, B, m, d), restricted to the ``support`` that all models share, if any.

        Levels not seen share as many states as levels were seen.

        Few seen say that the others are rare, many seen that many more are to come (Ian Witten and Timothy Bell, The
        zero-frequency problem, 1991, method C).
        """
        # How often every level was seen.
        cards, count = graph.domain.cardinalities, codes.shape[-2]
        firsts, total = np.cumsum([0, *cards[:-1]]), sum(cards)
        flat = (codes + firsts).reshape(-1, count * len(cards))
        places = flat + total * np.arange(len(flat))[:, None]
        counts = np.bincount(places.reshape(-1), minlength=total * len(flat)).reshape(len(flat), total)
        # Levels that were not share by how many were.
        levels = np.array(cards)
        seen = np.add.reduceat(counts > 0, firsts, axis=-1)
        spread = seen / np.where(seen < levels, levels - seen, levels)
        is_new = (counts == 0) | np.repeat(seen == levels, levels, -1)
        shares = (counts + np.where(is_new, np.repeat(spread, levels, -1), 0)) / (count + np.repeat(seen, levels, -1))
        weights = np.log(shares).reshape(*codes.shape[:2], total)
        if support is None:
            return cls(graph, weights)
        law = ProductInside(support, torch.from_numpy(weights).to(support.device))
        is_quick = law.is_exact and law.cost.flops < _MOST_OPERATIONS
        return cls(graph, weights, law.log_normaliser.cpu().numpy() if is_quick else 0.0)

    def log_prob(self, states: NDArray[np.generic]) -> NDArray[np.float64]:
        """Log probabilities (J, B, n) of states (B, n, d), or (J, B, n, d) under their own laws."""
        places = states + np.cumsum([0, *self.graph.domain.cardinalities[:-1]])
        if states.ndim == 4:
            flat = places.reshape(*places.shape[:2], -1)
            log_prob = np.take_along_axis(self.weights, flat, -1).reshape(places.shape).sum(-1)
            return log_prob - np.asarray(self.log_share)[..., None]
        log_probs = list[NDArray[np.float64]]()
        for b, where in enumerate(places):
            chosen = np.zeros((len(where), self.weights.shape[-1]))
            np.put_along_axis(chosen, where, 1, -1)
            log_probs.append(self.weights[:, b] @ chosen.T)
        return np.stack(log_probs, 1) - np.asarray(self.log_share)[..., None]


# Log-linear models as annealed runs see them.

Numbers = NDArray[np.generic]


@lru_cache(maxsize=256)
@plain_mode()
def perfect_backend(hypergraph: InteractionHypergraph) -> VariableElimination | Enumeration | None:
    """The exact backend that draws independent states, from which reverse runs start, within about a second."""
    elimination = VariableElimination(max_cells=2**20, max_slices=2**4, max_operations=2**30, max_memory_bytes=2**30)
    if elimination.plan(hypergraph).feasible:
        return elimination
    enumeration = Enumeration(max_states=2**20)
    return enumeration if enumeration.plan(hypergraph).feasible else None


class AnnealedChains(GibbsChains):
    """Chains whose energies, at both ends of a path, are whole."""

    @property
    def log_q(self) -> torch.Tensor:
        return -self.energy

    @property
    def slope(self) -> torch.Tensor:
        return self.reference_energy - self.energy


@dataclass(frozen=True)
class AnnealedLogLinear:
    """Tables (B, num_terms) without a graph, log weights of the reference law (B, levels) or (levels,).

    ``own`` are arguments of all chains: schedule, engine, precision; ``inside`` is the reference law restricted to the
    possible states, if any state is impossible; ``choice`` says in words which blocks were chosen, if they were.
    """

    energy: LogLinearEnergy
    reference: torch.Tensor
    options: AnnealingOptions
    traits: Traits
    own: dict[str, Any]
    inside: ProductInside | None
    choice: str = field(default="", kw_only=True)

    def _normaliser(self, reference: torch.Tensor) -> torch.Tensor:
        """Log normalising constants (..., B) of product laws (..., B, levels), restricted to the possible states."""
        if self.inside is None:
            # Log normalising constant (*batch) of the product law with log weights (*batch, sum of cardinalities)
            levels = _layout(self.energy.hypergraph)[2].to(reference.device)
            padded = torch.nn.functional.pad(reference, (0, 1), value=-math.inf)
            return log_sum(padded[..., levels])[..., 0].sum(-1)
        return replace(self.inside, log_weights=reference).log_normaliser

    @property
    def log_z0(self) -> torch.Tensor:
        log_z0 = self._normaliser(self.reference) if self.inside is None else self.inside.log_normaliser
        return log_z0.expand(self.energy.batch_shape)

    def begin(self, num_chains: int, seed: int) -> AnnealedChains:
        return AnnealedChains(self.energy, num_chains, reference=self.reference, seed=seed, **self.own)

    def perfect_states(self, seed: int) -> torch.Tensor | None:
        exact = perfect_backend(self.energy.hypergraph)
        if exact is None:
            return None
        random = torch.Generator(self.energy.device).manual_seed(seed)
        return exact.sample(self.energy, (self.options.num_chains,), random).movedim(0, -2)

    def ascend(self, run: Run) -> tuple[torch.Tensor, torch.Tensor]:
        return ascend(self.energy, run, self.own["engine"], None if self.inside is None else self.inside.support)

    def chains_at(self, run: Run, starts: Numbers, stream: int) -> AnnealedChains:
        init, seed = torch.from_numpy(starts).to(self.energy.device), derived(run.seed, 20 + stream)
        return AnnealedChains(self.energy, starts.shape[-2], init=init, seed=seed, **self.own)

    def fitted(self, states: Numbers) -> ProductLaws:
        support: LogLinearEnergy | None = None
        if self.inside is not None:
            tables = self.inside.support.tables
            if bool((tables == tables[:1]).all()):
                support = LogLinearEnergy._trusted(self.inside.support.hypergraph, tables[0])
        return ProductLaws.of(self.energy.hypergraph, states, support)

    def mode_runs(self, run: Run, starts: Numbers) -> ModeRuns:
        graph, options = self.energy.hypergraph, self.options
        many, count = self.energy.expand((len(starts), *self.energy.batch_shape)), starts.shape[-2]
        init = torch.from_numpy(starts).to(many.device)
        chains = AnnealedChains(many, count, init=init, seed=derived(run.seed, 9), **self.own)
        chains.sweep(options.burn_in)
        # Product laws fitted to where the chains are, and forward runs from them.
        reference = fitted(graph, chains.states)
        chains = AnnealedChains(many, count, reference=reference, seed=derived(run.seed, 10), **self.own)
        log_z0 = self._normaliser(reference)
        log_weights = chains.anneal(run.betas, options.sweeps_per_step) + log_z0[..., None]
        return ModeRuns(*(part.cpu().numpy() for part in (log_weights, chains.states, chains.log_q)))

    def describe(self, state: NDArray[np.generic]) -> str:
        domain = self.energy.domain
        return state_text(domain.names, [v.labels[int(i)] for v, i in zip(domain, state, strict=True)])


def advice() -> str:
    """What a note on an unreliable estimate advises."""
    return in_python(
        "try more temperatures (num_temperatures, temperatures='adaptive'), block moves "
        "(pyro_hoim.runs.GibbsSchedule('interactions')), resampling (resample_below=0.5), more chains, or an exact "
        "backend with a larger budget",
        "try more temperatures or chains, or an exact method with a larger budget",
    )


_MAX_CHAINS = 2**16  # chains of one call of sample
_SAMPLE_TEMPERATURES = 100  # of the path that leads draws to the model
_THIN = 20  # sweeps between two draws of one chain
_MAX_CELLS = 2**26  # of a marginal table
_MOST_OPERATIONS = 1e5  # for the share of possible states under a law fitted to a phase, of which there are many
CONDITIONAL_ERRORS = {torch.float32: 1e-6, torch.float64: 1e-15}  # relative error of the chains' probabilities


@dataclass(frozen=True)
class AnnealedImportance(AnnealedBackend, PlannedBackend):
    r"""Annealed importance sampling: Gibbs chains led from a product law to the model, and weighted.

    .. math:: \log \hat Z = \log Z_0 + \log \frac1M \sum_{c=1}^M w_c, \qquad
        \log w_c = \sum_k (\beta_k - \beta_{k-1}) \bigl(\log q(x_{c,k-1}) - \log q_0(x_{c,k-1})\bigr)

    For models whose exact constant is out of reach. :math:`\hat Z` has no bias, so :math:`\log \hat Z` is low on
    average, by about half its squared error. Time is ``num_chains * num_temperatures`` sweeps; memory that of the
    chains. The weighted chains give eta, so that log Z is differentiable, once; ``expectations``, ``marginal`` and
    ``log_marginal`` come from the same kind of run (self-normalised, bias of order 1 / M) and carry no gradient.

    ``std_error`` allows for few chains, skewed weights and rounding, and is at least the distance to the estimate that
    combines forward and reverse run. It is infinite where the weights support none: few effective weights, a heavy
    tail, or a reverse run that disagrees.

    *States are bounds.* ``lower_bound`` is the log of the sum of q over the distinct states that the runs met and at
    which ascents ended, from chain ends, random states, what every level draws the other variables to, the best cells
    of the strongest interactions and ``starts``; the order of the levels does not matter to this search. Within the
    error it raises ``value`` and ``lower``; beyond the upper limit it makes the estimate unreliable, and a note shows
    the state.

    *Forward and reverse.* The reverse run starts from the model and estimates 1 / Z: from perfect samples where
    elimination or enumeration gives them within about a second, otherwise from runs through four times as many
    temperatures. ``lower`` and ``upper`` are one-sided limits at ``level`` from the two runs, not bounds; a mode of
    share p that M perfect samples miss with probability :math:`(1 - p)^M` is allowed for. Where weights support no
    closer limits, they are those of Markov's inequality, ``log(1 / (1 - level))`` away.

    *Runs from modes.* Without perfect samples, chains of the model go on from where the ascents ended, and show the
    phases there: narrow peaks, or broad sets of states none of which is probable alone. The mean of log q over the
    states of a phase plus the entropy of the product of their marginals is at least its part of log Z. By this number
    up to six phases get further forward runs, from product laws fitted to them, in about the time of one forward run.
    They must agree with the main run about these phases; where a phase may hold 1 % of Z and no run has weighed it, the
    note says "modes found, not weighed". What phases that the main run hardly met may add is part of ``std_error``.

    *Impossible states.* Where tables hold minus infinity, the product law is restricted to the possible states: its log
    Z and draws come from an exact method on the impossible combinations alone, and no run leaves them. Blocks that do
    not lead from every possible state to every other one make an estimate unreliable.

    *Verdict.* "verified", "consistent" or "unreliable", with a note and a
    :class:`~pyro_hoim.errors.ConvergenceWarning`; :doc:`/exact_or_approximate` says what each rests on.

    *Options.* Those of :class:`~pyro_hoim.annealing.AnnealingOptions`, and those below.

    Attributes:
        schedule: blocks and scan of the sweeps; ``GibbsSchedule("interactions")`` moves whole interactions. Blocks
            "auto" are chosen once for all temperatures, by pilot runs with the model itself (beta 1), and the
            ``reason`` of the result's cost names them.
        reference: the product law at beta 0: ``"singles"`` (the model's own single-variable terms), ``"uniform"``, or
            log weights of all levels, one variable after the other (see :func:`log_frequencies`).
        engine, precision: of the chains, see :class:`~pyro_hoim.log_linear.GibbsChains`.

    Raises:
        InputError: an option outside its range, or a missing cell in ``starts``.
        InputTypeError: an option of the wrong type.

    References:
        Radford Neal, Annealed importance sampling, Statistics and Computing 11, 2001.
        Roger Grosse, Zoubin Ghahramani and Ryan Adams, Sandwiching the marginal likelihood using bidirectional Monte
        Carlo, 2015.
        Paper 1, appendix B.5.

    Example:
        >>> from pyro_hoim import Domain, LogLinearEnergy
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 5), 2)
        >>> model = LogLinearEnergy(hypergraph, torch.linspace(-1, 1, hypergraph.num_terms, dtype=torch.float64))
        >>> backend = AnnealedImportance(num_chains=64, num_temperatures=50, seed=1, engine="torch")
        >>> result = backend.log_partition(model)
        >>> bool(result.lower < result.value < result.upper), result.verdict, result.sandwich.start
        (True, 'verified', 'exact')
    """

    schedule: GibbsSchedule = field(default_factory=GibbsSchedule)
    reference: Sequence[float] | torch.Tensor | Literal["singles", "uniform"] = "singles"
    engine: EngineName = "auto"
    precision: torch.dtype = torch.float32

    _remedies: ClassVar[str] = "use more temperatures, block moves or resampling"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_type(self.schedule, GibbsSchedule, "AnnealedImportance schedule")
        if self.combine and not self._is_reversible:
            raise conflict("AnnealedImportance combine", "needs a sequential schedule without emphasis")
        if not isinstance(self.reference, str):
            weights = torch.as_tensor(self.reference).detach()
            if weights.dim() != 1 or not bool(torch.isfinite(weights).all()):
                wanted = "a vector of finite log weights, one for every level of every variable"
                received = f"shape {tuple(weights.shape)} or numbers that are not finite"
                code = "wrong-shape" if weights.dim() != 1 else "not-finite"
                raise unexpected("AnnealedImportance reference", wanted, received=received, code=code)
            object.__setattr__(self, "reference", tuple(weights.double().tolist()))
        elif self.reference not in ("singles", "uniform"):
            wanted = "'singles', 'uniform' or log weights"
            raise unexpected("AnnealedImportance reference", wanted, self.reference, code="unknown-choice")
        check_choice(self.engine, get_args(EngineName), "AnnealedImportance engine")
        check_choice(self.precision, tuple(CONDITIONAL_ERRORS), "AnnealedImportance precision")

    @property
    def _is_reversible(self) -> bool:
        """Whether a reverse run makes the very sweeps of the forward run, in reverse."""
        return self.schedule.scan == "sequential" and not self.schedule.emphasised

    @override
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        return _cost(self, hypergraph, tuple(keep))

    def _checked_cost(self, model: LogLinearModel, keep: Sequence[str] = ()) -> Cost:
        """Cost of a forward run within the budget; of large blocks with few possible states the model alone knows."""
        cost = self.plan(model.hypergraph, keep=keep)
        support = None if cost.feasible or is_transformed(model.tables) else support_of(model)
        if support is None:
            return cost.check()
        if self.schedule.blocks != "auto":
            self.schedule.resolve(model.hypergraph, has_list=Listing(support).has)
        return _cost(self, model.hypergraph, tuple(keep), are_blocks_checked=True).check()

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        """Estimated log Z in nats, value (*batch), differentiable once in the tables; -inf where no state is possible.

        Raises:
            InputError: tables of NaN or plus infinity, a reference of the wrong length, or starts that are no states.
            IntractableError: a block too large to be drawn at once; ``combine`` without perfect samples; a second
                derivative; impossible combinations over which no exact method can sum a product law.

        Warns:
            ConvergenceWarning: the verdict is "unreliable".

        Randomness:
            ``seed``, or PyTorch's global generator when it is None.
        """
        check_model(model)
        cost = self._checked_cost(model)
        self.rows_within([k - 1 for k in model.hypergraph.domain.cardinalities])
        is_possible = _are_possible(model)
        if not bool(is_possible.all()) or not is_possible.numel():
            return self._beside_nothing(model, is_possible, cost)
        annealed = self._annealed(model)
        if annealed.choice:
            cost = replace(cost, reason=f"{cost.reason}; {annealed.choice}")
        return self._estimated([annealed], model.tables, cost, lambda runs: _statistics(runs[0], model))

    def _beside_nothing(self, model: LogLinearModel, is_possible: torch.Tensor, cost: Cost) -> LogPartition:
        """Log Z of a batch of which some elements have no possible state, and of an empty one: runs of the others."""
        tables, batch, coding = model.tables, model.tables.shape[:-1], model.hypergraph.coding
        nothing, where = tables.detach().new_full(batch, -math.inf), is_possible.nonzero()[:, 0].to(tables.device)
        lost = batch.numel() - len(where)
        if not len(where):
            slopes, value = torch.zeros_like(tables), nothing
            if torch.is_grad_enabled() and tables.requires_grad:
                value = log_z_with_gradient(tables, lambda _: (nothing, slopes), lambda t: constant(t, slopes))
            result = replace(LogPartition.exact(value, cost, coding), notes=("no state is possible",) if lost else ())
            return replace(result, lower=nothing, upper=nothing)
        # The numbers of the runs, among those of the others.
        rows = tables.reshape(batch.numel(), tables.shape[-1])[where]
        part = self.log_partition(LogLinearEnergy._trusted(model.hypergraph, rows))

        def among(one: torch.Tensor | float | None, other: float) -> torch.Tensor:
            numbers = torch.as_tensor(math.nan if one is None else one).expand(len(where))
            rest = numbers.detach().new_full((batch.numel(),), other)
            return rest.index_put((where,), numbers).reshape(batch)

        return replace(
            part,
            value=among(part.value, -math.inf),
            std_error=among(part.std_error, 0.0),
            ess=among(part.ess, 0.0),
            lower=among(part.lower, -math.inf),
            upper=among(part.upper, -math.inf),
            verdicts=among(part.verdicts, int(Verdict.VERIFIED)),
            notes=(f"no state of {lost} of {batch.numel()} batch elements is possible", *part.notes),
            lower_bound=None if part.lower_bound is None else among(part.lower_bound, -math.inf),
            sandwich=None,
        )

    def _annealed(self, model: LogLinearModel, is_weighted: bool = True) -> AnnealedLogLinear:
        """The model without a graph, its batch flat, as the engine sees it; weights need exact starts of the runs."""
        graph, tables = model.hypergraph, model.tables
        if is_transformed(tables):
            raise refused(
                "AnnealedImportance",
                "torch.func transformations cannot go through sampling",
                "give a batch of tables instead of vmap and use backward() instead of torch.func.grad",
                code="no-method",
            )
        tables = tables.detach().reshape(tables.shape[:-1].numel(), graph.num_terms)
        energy = LogLinearEnergy._trusted(graph, tables)
        reference, support = self._reference(energy), support_of(energy)
        inside, connection = None, Connectedness("proved")
        if support is not None:
            inside = ProductInside(support, reference)
            if is_weighted:
                _ = inside.log_normaliser  # which says where there is none
        schedule, choice = self._schedule_for(energy, reference)
        if support is not None:
            connection = connection_of(support, schedule, graph)
        error, cards = CONDITIONAL_ERRORS[self.precision], graph.domain.cardinalities
        is_connected, caution = connection.verdict != "refuted", connection.words(graph.domain)
        traits = Traits(graph.coding, advice(), hamming, error, cards, self._is_reversible, is_connected, caution)
        options: dict[str, Any] = {"schedule": schedule, "engine": self.engine, "precision": self.precision}
        return AnnealedLogLinear(energy, reference, self, traits, options, inside, choice=str(choice or ""))

    def _schedule_for(
        self, energy: LogLinearEnergy, reference: torch.Tensor
    ) -> tuple[GibbsSchedule, BlockChoice | None]:
        """The schedule, with blocks in place of "auto" that suit the model at beta 1, where chains are slowest."""
        if self.schedule.blocks != "auto":
            return self.schedule, None
        if not energy.batch_shape.numel():
            return replace(self.schedule, blocks="sites"), None
        options: dict[str, Any] = {"engine": self.engine, "precision": self.precision, "seed": self.seed or 0}
        chains = GibbsChains(energy, 1, schedule=self.schedule, reference=reference, **options)
        return chains.schedule, chains.choice

    def _reference(self, model: LogLinearEnergy) -> torch.Tensor:
        """Log weights of the reference law, float64 (B, sum of cardinalities) or without the batch."""
        size = sum(model.domain.cardinalities)
        if isinstance(self.reference, str):
            if self.reference == "singles":
                # Tables of single variables, zero where there are none: impossible levels are not for it to leave out.
                tables, (source, target, _) = model.tables, _layout(model.hypergraph)
                terms = tables.new_zeros(*tables.shape[:-1], size, dtype=torch.float64)
                terms[..., target.to(tables.device)] = tables[..., source.to(tables.device)].double()
                return terms.masked_fill_(torch.isneginf(terms), 0.0)
            return model.tables.new_zeros(size, dtype=torch.float64)
        if len(self.reference) != size:
            wanted = f"{size} log weights, one for every level of every variable"
            raise unexpected("AnnealedImportance reference", wanted, len(self.reference), code="wrong-shape")
        return torch.as_tensor(self.reference, dtype=torch.float64, device=model.device)

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        """Estimated eta, flat (*batch, num_terms); its bias is of order one over the number of chains.

        With a fixed seed this is what autograd gives for :meth:`log_partition`, an estimate of the gradient of the
        true log Z; the random value itself jumps in the tables. It has no gradient itself.

        Raises:
            InputError: tables of NaN or plus infinity, no possible state, or a reference of the wrong length.

        Warns:
            ConvergenceWarning: the weights are degenerate.
        """
        check_model(model)
        self._checked_cost(model)
        if not model.tables.shape[:-1].numel():
            return torch.zeros_like(model.tables)
        eta = _statistics(self._weighted([self._annealed(model)])[0], model)
        return constant(model.tables, eta) if model.tables.requires_grad else eta

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        check_model(model)
        indices = model.hypergraph.domain.indices(names)
        shape = [model.hypergraph.domain.cardinalities[i] for i in indices]
        self._checked_cost(model, names)
        if not model.tables.shape[:-1].numel():
            return model.tables.detach().new_zeros((*model.tables.shape[:-1], *shape))
        (run,) = self._weighted([self._annealed(model)])
        index = (run.ends[..., list(indices)] * run.ends.new_tensor(row_strides(shape))).sum(-1)
        table = run.log_weights.new_zeros(len(index), math.prod(shape))
        table.scatter_add_(-1, index, torch.softmax(run.log_weights, -1))
        probs = table.to(model.tables.dtype).reshape((*model.tables.shape[:-1], *shape))
        return constant(model.tables, probs) if model.tables.requires_grad else probs

    @override
    @torch.no_grad()
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """States, long (*sample_shape, *batch, d), one from each of as many chains: close to the model, not exact.

        Every chain runs through 100 temperatures and then ``burn_in`` sweeps at beta 1. Beyond 65,536 chains, chains
        give several states, 20 sweeps apart. No state is an impossible one.

        Warns:
            ConvergenceWarning: the chains are not known to reach every possible state.

        Raises:
            InputError: tables of NaN or plus infinity, no possible state, or a reference of the wrong length.

        Randomness:
            One seed from ``generator`` or, if it is None, PyTorch's global generator; ``seed`` is not used.
        """
        check_model(model)
        batch, d = model.tables.shape[:-1], len(model.hypergraph.domain)
        sample_shape = checked_sample_shape(sample_shape, batch.numel() * d)
        self._checked_cost(model)
        annealed = self._annealed(model, is_weighted=False)
        draws = math.prod(sample_shape)
        if not draws or not batch.numel():
            return torch.zeros(*sample_shape, *batch, d, dtype=torch.long, device=model.tables.device)
        num_chains = min(draws, max(1, _MAX_CHAINS // batch.numel()))
        chains = annealed.begin(num_chains, drawn_seed(generator))
        chains.warn_unless_connected("sample")
        chains.anneal(torch.linspace(0, 1, _SAMPLE_TEMPERATURES + 1, dtype=torch.float64))
        chains.sweep(self.burn_in)
        parts = [chains.states]
        for _ in range(math.ceil(draws / num_chains) - 1):
            chains.sweep(_THIN)
            parts.append(chains.states)
        states = torch.cat(parts, -2).narrow(-2, 0, draws).movedim(-2, 0)
        return states.reshape(*sample_shape, *batch, d)

    @override
    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:
        check_model(model)
        raise out_of_reach(
            "mode",
            "AnnealedImportance draws states and cannot say which is the most probable",
            "use an exact backend such as VariableElimination(max_cells=...)",
            code="no-method",
        )


def _are_possible(model: LogLinearModel) -> torch.Tensor:
    """Which elements of a batch have a possible state, bool (B,); errors as of product laws inside."""
    rows = model.tables.detach().reshape(model.tables.shape[:-1].numel(), model.hypergraph.num_terms)
    support = None if is_transformed(rows) else support_of(LogLinearEnergy._trusted(model.hypergraph, rows))
    if support is None:
        return torch.ones(len(rows), dtype=torch.bool)
    return ProductInside(support, support.tables.new_zeros(sum(support.domain.cardinalities))).are_possible


def _statistics(run: Run, model: LogLinearModel) -> torch.Tensor:
    """Self-normalised mean of the edge statistics at the end of a run, in shape and dtype of the tables."""
    sums = cast("AnnealedChains", run.chains).statistics(torch.softmax(run.log_weights, -1))
    return sums.to(model.tables.dtype).reshape(model.tables.shape)


@lru_cache(maxsize=256)
def _cost(
    options: AnnealedImportance,
    hypergraph: InteractionHypergraph,
    keep: tuple[str, ...],
    are_blocks_checked: bool = False,
) -> Cost:
    """Cost of a forward run; refused where a block or the table over ``keep`` is too large."""
    # Look-ups of a sweep, and cells of the table that is asked for.
    cards = hypergraph.domain.cardinalities
    lookups = sum(cards[i] for edge in hypergraph.edge_indices for i in edge) + sum(cards)
    steps = options.num_steps
    cells = math.prod(cards[i] for i in hypergraph.domain.indices(keep))
    reason, feasible = f"{options.num_chains} chains through {steps} temperatures", cells <= _MAX_CELLS
    if not feasible:
        few = f"more than {_MAX_CELLS}; keep fewer variables"
        reason = f"a joint table of {size_text(cells, 'cells')} is asked for, {few}"
    try:
        if not are_blocks_checked and options.schedule.blocks != "auto":
            options.schedule.resolve(hypergraph)
    except IntractableError as error:
        feasible, reason = False, str(error)
    return Cost(
        cells=max((math.prod(shape) for shape in hypergraph.edge_shapes), default=1),
        total_cells=hypergraph.num_terms + (cells if keep else 0),
        flops=options.num_chains * steps * options.sweeps_per_step * lookups,
        memory_bytes=options.num_chains * (16 * len(cards) + 64) + 8 * (hypergraph.num_terms + cells),
        feasible=feasible,
        reason=reason,
        method=METHOD,
    )
