"""Log Z and expectations at any size by annealed importance sampling, with an error bar and a verdict on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal, cast, get_args

import torch
from typing_extensions import override

from ...annealing.annealable import Run, Traits
from ...annealing.backend import AnnealedBackend, constant
from ...annealing.mode_checks import hamming
from ...annealing.runs import drawn_seed
from ...annealing.verdict import METHOD
from ...checks import checked_sample_shape, is_transformed
from ...core.model import LogLinearModel
from ...core.partition import Cost, LogPartition
from ...errors import IntractableError, check_choice, check_type, conflict, out_of_reach, refused, size_text, unexpected
from ...runs.schedule import GibbsSchedule
from ...structure.cells import row_strides
from ...structure.hypergraph import InteractionHypergraph
from ..chains.gibbs import EngineName
from ..energy import LogLinearEnergy
from ..exact.base import PlannedBackend
from ._model import AnnealedChains, AnnealedLogLinear
from .reference import log_frequencies, single_terms

__all__ = ["ADVICE", "AnnealedImportance", "log_frequencies"]

ADVICE = (
    "try more temperatures (num_temperatures, temperatures='adaptive'), block moves (GibbsSchedule('interactions')), "
    "resampling (resample_below=0.5), more chains, or an exact backend with a larger budget"
)
"""What a note on an unreliable estimate advises."""

_MAX_CHAINS = 2**16  # chains of one call of sample
_SAMPLE_TEMPERATURES = 100  # of the path that leads draws to the model
_THIN = 20  # sweeps between two draws of one chain
_MAX_CELLS = 2**26  # of a marginal table
_CONDITIONALS = {torch.float32: 1e-6, torch.float64: 1e-15}  # relative error of the chains' probabilities


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

    *Verdict.* "verified", "consistent" or "unreliable", with a note and a
    :class:`~pyro_hoim.errors.ConvergenceWarning`; :doc:`/exact_or_approximate` says what each rests on.

    *Options.* Those of :class:`~pyro_hoim.annealing.AnnealingOptions`, and those below.

    Attributes:
        schedule: blocks and scan of the sweeps; ``GibbsSchedule("interactions")`` moves whole interactions.
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
        check_choice(self.precision, tuple(_CONDITIONALS), "AnnealedImportance precision")

    @property
    def _is_reversible(self) -> bool:
        """Whether a reverse run makes the very sweeps of the forward run, in reverse."""
        return self.schedule.scan == "sequential" and not self.schedule.emphasised

    @override
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        return _cost(self, hypergraph, tuple(keep))

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        """Estimated log Z in nats, value (*batch), differentiable once in the tables.

        Raises:
            InputError: tables that are not finite, a reference of the wrong length, or starts that are no states.
            IntractableError: a block too large to be drawn at once; ``combine`` without perfect samples; a second
                derivative.

        Warns:
            ConvergenceWarning: the verdict is "unreliable".

        Randomness:
            ``seed``, or PyTorch's global generator when it is None.
        """
        cost = self.plan(model.hypergraph).check()
        self.rows_within([k - 1 for k in model.hypergraph.domain.cardinalities])
        return self._estimated([self._annealed(model)], model.tables, cost, lambda runs: _statistics(runs[0], model))

    def _annealed(self, model: LogLinearModel) -> AnnealedLogLinear:
        """The model without a graph, its batch flat, as the engine sees it."""
        graph, tables = model.hypergraph, model.tables
        if is_transformed(tables):
            raise refused(
                "AnnealedImportance",
                "torch.func transformations cannot go through sampling",
                "give a batch of tables instead of vmap and use backward() instead of torch.func.grad",
                code="no-method",
            )
        tables = tables.detach().reshape(tables.shape[:-1].numel(), graph.num_terms)
        error, cards = _CONDITIONALS[self.precision], graph.domain.cardinalities
        traits = Traits(graph.coding, ADVICE, hamming, error, cards, self._is_reversible)
        energy = LogLinearEnergy(graph, tables, validate=False)
        own: dict[str, Any] = {"schedule": self.schedule, "engine": self.engine, "precision": self.precision}
        return AnnealedLogLinear(energy, self._reference(energy), self, traits, own)

    def _reference(self, model: LogLinearEnergy) -> torch.Tensor:
        """Log weights of the reference law, float64 (B, sum of cardinalities) or without the batch."""
        size = sum(model.domain.cardinalities)
        if isinstance(self.reference, str):
            if self.reference == "singles":
                return single_terms(model.hypergraph, model.tables)
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
            InputError: tables that are not finite, or a reference of the wrong length.

        Warns:
            ConvergenceWarning: the weights are degenerate.
        """
        self.plan(model.hypergraph).check()
        eta = _statistics(self._weighted([self._annealed(model)])[0], model)
        return constant(model.tables, eta) if model.tables.requires_grad else eta

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        indices = model.hypergraph.domain.indices(names)
        shape = [model.hypergraph.domain.cardinalities[i] for i in indices]
        self.plan(model.hypergraph, keep=names).check()
        (run,) = self._weighted([self._annealed(model)])
        index = (run.ends[..., list(indices)] * run.ends.new_tensor(row_strides(shape))).sum(-1)
        table = run.log_weights.new_zeros(len(index), math.prod(shape))
        table.scatter_add_(-1, index, torch.softmax(run.log_weights, -1))
        probs = table.to(model.tables.dtype).reshape((*model.tables.shape[:-1], *shape))
        return constant(model.tables, probs) if model.tables.requires_grad else probs

    @override
    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.marginal(model, names).log()

    @override
    @torch.no_grad()
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """States, long (*sample_shape, *batch, d), one from each of as many chains: close to the model, not exact.

        Every chain runs through 100 temperatures and then ``burn_in`` sweeps at beta 1. Beyond 65,536 chains, chains
        give several states, 20 sweeps apart.

        Raises:
            InputError: tables that are not finite, or a reference of the wrong length.

        Randomness:
            One seed from ``generator`` or, if it is None, PyTorch's global generator; ``seed`` is not used.
        """
        batch, d = model.tables.shape[:-1], len(model.hypergraph.domain)
        sample_shape = checked_sample_shape(sample_shape, batch.numel() * d)
        self.plan(model.hypergraph).check()
        annealed = self._annealed(model)
        draws = math.prod(sample_shape)
        if not draws or not batch.numel():
            return torch.zeros(*sample_shape, *batch, d, dtype=torch.long, device=model.tables.device)
        num_chains = min(draws, max(1, _MAX_CHAINS // batch.numel()))
        chains = annealed.begin(num_chains, drawn_seed(generator))
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
        raise out_of_reach(
            "mode",
            "AnnealedImportance draws states and cannot say which is the most probable",
            "use an exact backend such as VariableElimination(max_cells=...)",
            code="no-method",
        )


def _statistics(run: Run, model: LogLinearModel) -> torch.Tensor:
    """Self-normalised mean of the edge statistics at the end of a run, in shape and dtype of the tables."""
    found = cast("AnnealedChains", run.chains).statistics(torch.softmax(run.log_weights, -1))
    return found.to(model.tables.dtype).reshape(model.tables.shape)


@lru_cache(maxsize=256)
def _cost(options: AnnealedImportance, hypergraph: InteractionHypergraph, keep: tuple[str, ...]) -> Cost:
    """Cost of a forward run; refused where a block or the table over ``keep`` is too large."""
    cards = hypergraph.domain.cardinalities
    lookups = sum(cards[i] for edge in hypergraph.edge_indices for i in edge) + sum(cards)
    steps = options.num_steps
    cells = math.prod(cards[i] for i in hypergraph.domain.indices(keep))
    reason, feasible = f"{options.num_chains} chains through {steps} temperatures", cells <= _MAX_CELLS
    if not feasible:
        few = f"more than {_MAX_CELLS}; keep fewer variables"
        reason = f"a joint table of {size_text(cells, 'cells')} is asked for, {few}"
    try:
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
