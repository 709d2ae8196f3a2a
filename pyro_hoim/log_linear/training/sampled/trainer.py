"""Training beyond the reach of exact gradients: chains with importance weights that follow the parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ....annealing.backend import GAP, ONE_SIDED_NOTE, TEMPERED_NOTE, Weights, checks_of, result_of, rows as numbers
from ....annealing.mode_checks import Weighed, hamming
from ....annealing.runs import Run, Traits, chosen_rows, forward, reverse
from ....annealing.weights import WeightEstimate, log_mean_weight
from ....core.model import LogLinearModel
from ....core.partition import LogPartition, Sandwich, Verdict, certificate
from ....core.trainer import Loss, Margins, TrainingReport
from ....data.observations import Observations
from ....data.sources.sourced import held_rows
from ....errors import check_type
from ....runs.checkpoint import check_time
from ....structure.hypergraph import InteractionHypergraph
from ...annealed.ascents import climbed
from ...annealed.importance import CONDITIONAL_ERRORS, AnnealedChains, AnnealedImportance, AnnealedLogLinear
from ...energy import LogLinearEnergy
from ...fitting.design import check_data
from ...fitting.penalties import L2
from ..ridge import EvidenceRounds, InteractionRidge
from ..table_trainer import TableTrainer, join_margins, margin_edges, restructured_tables, state_part
from ._path import Coordinates, Objection, Problem, SampledPath
from ._weighted_chains import (
    Population,
    StartLaw,
    States,
    WeightedChains,
    annealed_population,
    drawn,
    forest_law,
    is_independent,
    law_of_singles,
    network_law,
    seed_of,
    systematic,
)
from .options import SampledTraining

# Log Z of trained tables by annealed runs on chains of their own, made longer within a budget.

Floats = NDArray[np.float64]
_FIRST = (1024, 500)  # chains and temperatures of the first run
_EVEN = 0.25  # effective share of the chains above which more of them are better than more temperatures
_REVERSE = 6  # a reverse run and the tempered run it starts from cost as much as that many forward runs
_ASCENT = 12  # sweeps of an ascent
_MARKOV = math.log(1e4)  # an estimate without bias is that much too high in one of so many runs at most
_WIDER_NOTE = "a run from a wider law gives {:.3g} nats more: there are modes far from the rows that others missed"


class _LedChains(AnnealedChains):
    """Chains of a model on the path from another, ``first``, whose constant is known."""

    first: LogLinearEnergy

    @property
    @override
    def slope(self) -> torch.Tensor:
        return self.energy_of(self.first, validate=False) - self.energy

    @override
    def anneal(
        self,
        betas: torch.Tensor | Sequence[float],
        sweeps_per_step: int = 1,
        *,
        reverse_order: bool = False,
        start: LogLinearModel | None = None,
    ) -> torch.Tensor:
        start = self.first if start is None else start
        return super().anneal(betas, sweeps_per_step, reverse_order=reverse_order, start=start)


@dataclass(frozen=True)
class _FromLaw(AnnealedLogLinear):
    """One model whose runs begin with exact draws of a start law."""

    law: StartLaw

    @classmethod
    def of(cls, model: LogLinearEnergy, settings: SampledTraining, law: StartLaw, size: tuple[int, int]) -> _FromLaw:
        """A model, padded to the collection of the law, with runs of so many chains and temperatures."""
        padded = torch.from_numpy(law.padded(model.hypergraph, model.tables.numpy())).to(settings.device)
        energy = LogLinearEnergy(law.hypergraph, padded[None], validate=False)
        options = AnnealedImportance(num_chains=size[0], num_temperatures=size[1], seed=0)
        error = CONDITIONAL_ERRORS[settings.precision]
        traits = Traits(model.hypergraph.coding, "raise loss_budget", hamming, error, is_reversible=False)
        chains = {"engine": settings.engine, "precision": settings.precision}
        return cls(energy, torch.zeros(()), options, traits, chains, None, law)

    @property
    @override
    def log_z0(self) -> torch.Tensor:
        return torch.tensor([self.law.log_z], dtype=torch.float64, device=self.energy.device)

    @override
    def begin(self, num_chains: int, seed: int) -> _LedChains:
        init = self.law.states(num_chains, np.random.default_rng(seed_of(seed, 3)))
        chains = _LedChains(self.energy, num_chains, init=init[None], seed=seed, **self.own)
        first = torch.from_numpy(self.law.tables).to(self.energy.device)
        chains.first = LogLinearEnergy(self.law.hypergraph, first[None], validate=False)
        return chains

    @override
    def perfect_states(self, seed: int) -> None:
        """None: reverse runs begin with tempered states, whatever the model."""


def annealed_log_z(
    model: LogLinearEnergy,
    settings: SampledTraining,
    starts: Sequence[StartLaw],
    seed: int,
    rows: torch.Tensor | None = None,
) -> tuple[LogPartition, Population | None]:
    """Forward estimate with a standard error of at most that of the settings, or the largest run within their budget.

    The runs begin at the first of the starts. No choice is made among them by their own errors, since a run that missed
    something has a small one. One more run begins at the second start, which is wide: where its estimate is larger
    beyond error, there are modes that the others have missed, and the result is not reliable. Ascents start from the
    ends of all chains and from ``rows`` (n, d) of the data, for states that bound log Z. Beside a result that has no
    error bar stand the weighted ends of the runs, as many as a population has.
    """
    size, k, note = _FIRST, 0, None
    while True:
        check_time()
        run = forward(_FromLaw.of(model, settings, starts[0], size), seed_of(seed, k))
        estimate = log_mean_weight(numbers(run.log_weights))
        error = _error(estimate)
        if error <= settings.loss_standard_error:
            break
        larger = _larger(size, estimate, error, settings)
        if larger[0] * larger[1] > settings.loss_budget:
            note = (
                f"the standard error of log Z is {error:.3g}, more than the {settings.loss_standard_error:g} asked "
                f"for, after runs within the budget of {settings.loss_budget} sweeps; raise loss_budget"
            )
            break
        size, k = larger, k + 1
    # The wide run and the states that all runs, the rows and ascents from these met are held against the estimate.
    wide = [forward(_FromLaw.of(model, settings, law, _FIRST), seed_of(seed, 201)) for law in starts[1:]]
    met = [(run.ends, run.log_q), _ascended(run, run.ends[0], seed_of(seed, 301))]
    if rows is not None:
        met += [(rows[None], -model.energy(rows)[None]), _ascended(run, rows, seed_of(seed, 303))]
    for other in wide:
        met += [(other.ends, other.log_q), _ascended(other, other.ends[0], seed_of(seed, 302))]
    result = _judged(run, wide, met)
    if note is not None:
        result = replace(result, notes=(*result.notes, note))
    if math.isfinite(float(result.std_error)):
        return result, None
    ends = reduce(Population.joined, [Population(each.ends[0].cpu(), _log_z_weights(each)[0]) for each in (run, *wide)])
    return result, ends.resampled(settings.num_chains, np.random.default_rng(seed_of(seed, 401)))


def _error(estimate: WeightEstimate) -> float:
    """Its standard error, infinite where that is not to be trusted."""
    return float(estimate.error[0]) if estimate.is_reliable[0] else math.inf


def _larger(
    size: tuple[int, int], estimate: WeightEstimate, error: float, settings: SampledTraining
) -> tuple[int, int]:
    """Chains and temperatures of the next run: more chains alone where the weights are even."""
    if not (estimate.is_reliable[0] and estimate.ess[0] > _EVEN * size[0]):
        return 2 * size[0], 2 * size[1]
    # The error falls with the square root of the number of chains: no steps that only confirm this.
    room = settings.loss_budget // max(1, 2 * size[0] * size[1])
    wanted = (error / settings.loss_standard_error) ** 2 / 2
    return 2 * size[0] * 2 ** max(0, min(math.ceil(math.log2(wanted)), room.bit_length() - 1)), size[1]


def _log_z_weights(run: Run) -> Floats:
    """Log weights (1, chains) whose mean estimates Z."""
    return numbers(run.log_weights + run.model.log_z0[:, None])


def _ascended(run: Run, states: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """States (1, n, d) at which ascents of the model of a run from states (n, d) end, and their log q (1, n)."""
    model = cast("_FromLaw", run.model)
    return climbed(model.energy, states[None], None, _ASCENT, seed, model.own["engine"])


def _judged(run: Run, wide: Sequence[Run], met: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> LogPartition:
    """The verdict on a forward run, held against runs from wider laws and the states (1, n, d) met, with log q."""
    estimate, weighed, note = log_mean_weight(_log_z_weights(run)), None, ""
    for other in map(log_mean_weight, map(_log_z_weights, wide)):
        gap, nothing = other.value - estimate.value, np.zeros(1)
        limit = GAP * np.hypot(estimate.error, other.error) if other.is_reliable[0] else _MARKOV
        weighed = Weighed(gap > limit + 1e-9, nothing > 0, other.value, nothing)
        note = _WIDER_NOTE.format(float(gap[0])) if weighed.is_contradicted[0] else ""
    # That all states were met is not asked: tables small enough for it are trained exactly.
    proof = certificate([states for states, _ in met], [log_q for _, log_q in met], None)
    checks = checks_of(run, proof, weighed, note)
    options, graph = cast("AnnealedImportance", run.model.options), cast("_FromLaw", run.model).energy.hypergraph
    weights = Weights(numbers(run.model.log_z0), numbers(run.log_weights), None)
    like = torch.zeros((), dtype=torch.float64)
    result = result_of(options, run.model.traits, weights, checks, like, options.plan(graph))
    return result if not note or note in result.notes else replace(result, notes=(*result.notes, note))


def with_reverse_run(
    result: LogPartition, model: LogLinearEnergy, settings: SampledTraining, starts: Sequence[StartLaw], seed: int
) -> LogPartition:
    """The estimate with a sandwich from a shorter forward and reverse run; where they disagree, not reliable."""
    share = max(1.0, _FIRST[0] * _FIRST[1] * _REVERSE / settings.loss_budget)
    size = (max(16, round(_FIRST[0] / math.sqrt(share))), max(10, round(_FIRST[1] / math.sqrt(share))))
    run = forward(_FromLaw.of(model, settings, starts[0], size), seed_of(seed, 102))
    ahead = log_mean_weight(_log_z_weights(run))
    behind = log_mean_weight(numbers(reverse(run).log_weights - run.model.log_z0[:, None]))
    return _sandwiched(result, ahead, behind)


def _sandwiched(result: LogPartition, ahead: WeightEstimate, behind: WeightEstimate) -> LogPartition:
    """The estimate held against a forward and a reverse run."""
    # Both runs stand beside the estimate, whatever they say.
    parts = (ahead.value[0], _error(ahead), -behind.value[0], _error(behind))
    sandwich = Sandwich(*(torch.tensor(float(v), dtype=torch.float64) for v in parts), start="tempered")
    notes = tuple(note for note in result.notes if note != ONE_SIDED_NOTE)
    result = replace(result, sandwich=sandwich, notes=(*notes, TEMPERED_NOTE))
    if not behind.is_reliable[0]:
        return replace(result, notes=(*result.notes, "the weights of the reverse run support no error bar"))
    # A gap beyond their errors speaks against it.
    gap, error = abs(float(behind.value[0] + result.value)), float(result.std_error)
    if gap <= GAP * math.hypot(error if math.isfinite(error) else 0.0, float(behind.error[0])) + 1e-9:
        return result
    note = f"the reverse run is {gap:.3g} nats away, more than its error; a part of the law may be unseen"
    return replace(
        result,
        std_error=torch.full_like(result.value, max(gap, error)),
        lower=result.value + math.log1p(-AnnealedImportance.level),
        upper=torch.full_like(result.value, math.inf),
        verdicts=torch.full_like(result.value, Verdict.UNRELIABLE, dtype=torch.int8),
        notes=(*result.notes, note),
    )


_START, _TRAIN, _MARGINS, _ANNEAL, _LOSS = range(5)  # purposes of seeds
_STATES_PER_CALL = 2**9  # of energies, which look at every interaction of every state at once
_MARGIN_SWEEPS = 5  # between two states of a chain that are counted
_MENDING, _MAX_MENDED = 10, 3  # of steps and rate in a path after a log Z without an error bar; how many such paths
_MENDED_AVERAGE = 0.5  # of its iterations
_GROWN, _ALIKE = 2, 4  # parts of the iterations that training goes on for, after interactions joined and else
_LEAST_SHARE = 0.1  # effective share of the chains below which margins come from a fresh annealed population


class SampledTrainer(TableTrainer):
    r"""Balanced tables fitted by Gibbs chains that carry importance weights along the training path.

    .. math:: \theta \leftarrow \theta + \alpha_t \, \mathrm{Adam}(\hat\eta_{\mathrm{data}} - \hat\eta_\theta), \qquad
        \log w_c \leftarrow \log w_c + E_{\theta_t}(x_c) - E_{\theta_{t+1}}(x_c), \qquad
        \hat\eta_\theta = \sum_c w_c \, \delta(x_c) \Big/ \sum_c w_c

    It is a :class:`~pyro_hoim.core.trainer.Trainer` for any number of variables. The path starts at the best
    forest among the pairs of the collection (Chow and Liu), where the chains are exact draws; after every step they are
    reweighted, resampled where the weights are uneven, and moved by Gibbs sweeps. A step costs one sweep and two looks
    at every state and interaction, about 3 ms for 4,000 chains and 253 interactions of 23 variables on one core.

    *Modes that chains miss.* Noise in the parameters makes modes far from the data, which chains that follow the path
    may not see. The rate therefore rises slowly, steps are shortened to a bounded change of energies, and every
    ``refresh_every`` steps and at the end a fresh annealed population joins the chains, each with the share that its
    weights stand for. Where they differ, sampling is raised. Training that diverges goes back to its last sound
    parameters, with more sweeps and a lower rate. The report's ``notes`` tell of all this; an interrupt leaves the
    trainer as it was before the call.

    *Device.* With ``SampledTraining(device="cuda")`` chains, their weights and annealed runs are on the GPU;
    a step sends tables there and brings eta and three numbers back. Steps, checks and margins are of the CPU.

    *Results.* Gradients have sampling error, so parameters are as good as the number of chains. Log Z is estimated by
    annealed importance sampling on chains of its own, made longer until the error is small enough or the budget used
    up, with a reverse run whose gap its ``sandwich`` holds (losses do without that run). Its error bar is refused where
    runs from the independent law find more, or where it is below the bound of the states met, up to 256 of the rows
    among them. Margins are counted in states of the chains as they go on; their ``sample_size`` allows for uneven
    weights and autocorrelation. All results are functions of the state: equal calls give equal numbers.

    Args:
        rows, hypergraph, evidence: see :class:`~pyro_hoim.log_linear.ExactTrainer`.
        penalty: ridge (or ``L2``) added to the negative log-likelihood of all rows. It acts on the *raw* tables of a
            hierarchical collection, which are not balanced while training, and on balanced tables else.
        settings: number of chains, steps, checks and so on.

    Raises:
        InputError: rows of another domain or none.
        MissingDataError: missing cells.
        UnknownNameError: the penalty has a strength for a variable that is not in the domain.

    References:
        Paper 1, section 4.2 and appendix B.5; C. K. Chow and C. N. Liu, Approximating discrete probability
        distributions with dependence trees, 1968; Davide Carbone, Mengjian Hua, Simon Coste and Eric Vanden-Eijnden,
        Efficient training of energy-based models using Jarzynski equality, 2023, algorithm 1.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> settings = SampledTraining(num_chains=500, num_iterations=200, refresh_every=None)
        >>> trainer = SampledTrainer(rows, InteractionHypergraph.saturated(rows.domain), settings=settings)
        >>> trainer.train().status
        'max_iterations'
    """

    name: Literal["exact", "sampled", "pseudo-likelihood"] = "sampled"
    _least_evenness = 0.0  # of the last fresh population, without which the next call does not go on

    def __init__(
        self,
        rows: Observations,
        hypergraph: InteractionHypergraph,
        *,
        penalty: InteractionRidge | L2 | None = None,
        settings: SampledTraining | None = None,
        evidence: EvidenceRounds | None = None,
    ) -> None:
        check_type(settings, SampledTraining | None, "settings", "SampledTraining")
        self.settings = SampledTraining() if settings is None else settings
        self._population: Population | None = None
        self._num_trained = 0
        self._is_calm = self._has_grown = self._has_gone_on = False
        self._laws: tuple[tuple[InteractionHypergraph, str, float], tuple[StartLaw, ...]] | None = None
        super().__init__(rows, hypergraph, penalty, evidence)

    @override
    def _adopt(self, tables: Floats) -> None:
        super()._adopt(tables)
        self._states: tuple[States, float] | None = None
        self._log_z: LogPartition | None = None
        self._found: Population | None = None  # states behind a log Z without an error bar
        self._is_sandwiched = False

    @property
    def _model(self) -> LogLinearEnergy:
        return LogLinearEnergy(self._hypergraph, torch.from_numpy(self._tables), validate=False)

    def _seed(self, purpose: int) -> int:
        return seed_of(self.settings.seed, self._num_trained, purpose)

    @override
    def _prepare(self, hypergraph: InteractionHypergraph) -> None:
        known = set(getattr(self, "_hypergraph", hypergraph).edges)
        self._added = tuple(edge for edge in hypergraph.edges if edge not in known)
        if self._population is None:
            return
        self._has_grown = self._has_grown or not set(hypergraph.edges) <= set(self._hypergraph.edges)
        if set(self._hypergraph.edges) <= set(hypergraph.edges):
            return
        # Weights take up what the interactions that left had added to the energies.
        codes, before = self._population.codes, self._model
        tables = restructured_tables(before.tables, before.hypergraph, hypergraph)
        after = LogLinearEnergy(hypergraph, tables, validate=False)
        growth = torch.cat([before.energy(part) - after.energy(part) for part in codes.split(_STATES_PER_CALL)])
        self._population = Population(codes, self._population.log_weights + growth.numpy())
        self._is_calm = self._is_calm and self._population.effective_size > _LEAST_SHARE * len(codes)

    def retrained(self) -> TrainingReport | None:
        """Train on where log Z of the tables has no error bar; None where it has one.

        The weighted ends of the runs for log Z join the chains, because a state with a weight far above the others
        belongs to a mode that training did not see, and a short path takes it into account; so up to three times. With
        ``restart="doubt"``, a call that had gone on is then made again from the start where there is still no error
        bar, and the next one begins there. Strengths stay those that rounds of evidence found.
        """
        with self._whole():
            if self.settings.chains != "weighted" or self._population is None or not self._is_doubtful():
                return None
            settings, evidence, goes_back = self.settings, self.evidence, self._has_gone_on
            reports = self._mended()
            if self._is_doubtful() and goes_back:
                self.settings, self.evidence = replace(settings, restart=True), replace(evidence, num_rounds=0)
                reports += [self._trained(), *self._mended()]
                self.settings, self.evidence = settings, evidence
            is_open = self._is_doubtful()
            self._is_calm = self._is_calm and not is_open
            rest = ", and it has none yet" if is_open else ""
            note = f"training went on {len(reports)} times where log Z had no error bar{rest}"
            notes = [text for report in reports for text in report.notes]
            count = sum(report.num_iterations for report in reports)
            return replace(reports[-1], num_iterations=count, notes=(*notes, note))

    def _mended(self) -> list[TrainingReport]:
        """Short paths with the states that the runs for log Z found, while that has no error bar."""
        settings, reports = self.settings, list[TrainingReport]()
        count = max(1, settings.num_iterations // _MENDING)
        rate = settings.learning_rate / _MENDING
        short = replace(settings, num_iterations=count, learning_rate=rate, warm_up=0.0, average=_MENDED_AVERAGE)
        while len(reports) < _MAX_MENDED and self._is_doubtful():
            if self._population is not None and self._found is not None:
                self._population = self._population.joined(self._found)
            reports.append(self._path(short, restarts=False))
        return reports

    def _is_doubtful(self) -> bool:
        """Whether annealed runs give log Z of the present tables no error bar."""
        return not math.isfinite(float(self._forward_log_z().std_error))

    @override
    def _fit(self) -> TrainingReport:
        settings, self._has_gone_on = self.settings, False
        if settings.restart != "doubt" or not self._is_calm or self._population is None:
            return self._path(settings, restarts=bool(settings.restart))
        count = -(-settings.num_iterations // (_GROWN if self._has_grown else _ALIKE))
        try:
            report = self._path(replace(settings, num_iterations=count), restarts=False, gives_up=True)
        except Objection:
            return self._path(settings, restarts=True)
        self._has_gone_on = True
        return report

    def _path(self, settings: SampledTraining, *, restarts: bool, gives_up: bool = False) -> TrainingReport:
        """Train once, from the start or from where tables and chains are."""
        graph = self._hypergraph
        tables, population = self._tables, self._population
        is_start = restarts or (population is None and is_independent(graph, tables))
        if is_start:
            tables, population = self._forest().balanced(), None
        if population is None and settings.chains == "persistent":
            # Training rows in proportion to their counts
            count = self.settings.num_chains
            shares = np.cumsum(self.rows.counts.numpy()) / self.rows.total_count
            picked = systematic(shares, count, np.random.default_rng(self._seed(_START)))
            population = Population(self.rows.narrow[picked].long(), np.zeros(count))
        elif is_start:
            # Exact draws of the law, with the constant of its balanced tables
            law = self._forest()
            codes = drawn(law, self.settings.num_chains, self._seed(_START)).codes
            change = LogLinearEnergy(self._hypergraph, torch.from_numpy(tables - law.tables), validate=False)
            log_z = law.log_z - float(change.energy(codes[0]))  # the same for all states
            population = Population(codes, np.full(len(codes), log_z))
        problem = Problem(
            graph,
            self._frequencies(self.rows),
            self._starts(),
            Coordinates(graph, self._penalty, self.rows.total_count),
            self._added,
        )
        seed = self._seed(_TRAIN)
        outcome = SampledPath(problem, settings, tables, population, seed, is_start=is_start, gives_up=gives_up).run()
        self._num_trained += 1
        self._population = outcome.population
        self._is_calm = outcome.is_calm and outcome.evenness >= self._least_evenness
        self._has_grown = False
        self._adopt(outcome.tables)
        return outcome.report

    def _forest(self) -> StartLaw:
        """The law within the collection that training starts from."""
        margins, settings = self._margins_of(self.rows), self.settings
        return forest_law(margins, self._hypergraph, settings.smoothing, pairs=settings.start != "independent")

    def _starts(self) -> tuple[StartLaw, ...]:
        """The laws that annealed runs start from, one close to the rows and the wide one; kept for the next call."""
        settings, graph = self.settings, self._hypergraph
        key = (graph, settings.start, settings.smoothing)
        if self._laws is None or self._laws[0] != key:
            forest = self._forest()
            laws = (forest,)
            if settings.start != "independent":
                wide = forest_law(self._margins_of(self.rows), graph, settings.smoothing, pairs=False)
                near = network_law(held_rows(self.rows), graph, forest) if settings.start == "network" else forest
                laws = (near, wide)
            self._laws = key, laws
        return self._laws[1]

    @override
    def log_partition(self) -> LogPartition:
        result = self._forward_log_z()
        if not self._is_sandwiched:
            seed = self._seed(_LOSS)
            self._log_z = result = with_reverse_run(result, self._model, self.settings, self._starts(), seed)
            self._is_sandwiched = True
        return result

    def _forward_log_z(self) -> LogPartition:
        if self._log_z is None:
            merged = self.rows.unique()
            rows = chosen_rows(merged.narrow, merged.counts)
            estimate = annealed_log_z(self._model, self.settings, self._starts(), self._seed(_LOSS), rows)
            self._log_z, self._found = estimate
        return self._log_z

    @override
    def loss(self, rows: Observations) -> Loss:
        check_data(self._hypergraph, rows, "rows")
        log_z = self._forward_log_z()
        fitted = float(self._tables @ self._frequencies(rows))
        return Loss(float(log_z.value) - fitted, float(log_z.std_error), "estimated")

    @override
    def margins(self, edges: Sequence[tuple[str, ...]]) -> Margins:
        sets = margin_edges(self._hypergraph, edges)
        states, size = self._margin_states()
        return join_margins(states.margins(sets), size)

    def _margin_states(self) -> tuple[States, float]:
        """States of equal weight, and the number of independent draws that they are worth."""
        if self._states is None:
            # States of the chains, resampled, five sweeps apart, as many as the settings ask for.
            chains = self._chains_of_margins()
            effective = chains.effective_size
            chains.resample(always=True)
            settings, count = self.settings, chains.chains.num_chains
            records = -(-settings.margin_states // count)
            cards = self._hypergraph.domain.cardinalities
            codes = np.empty((len(cards), records, count), np.uint8 if max(cards, default=1) <= 256 else np.int32)
            energies = np.empty((records, count))
            for k in range(records):
                chains.chains.sweep(_MARGIN_SWEEPS)
                codes[:, k] = chains.chains.states.cpu().numpy().T
                energies[k] = chains.chains.energy.cpu().numpy()
            self._states = States(codes.reshape(len(codes), -1), cards), effective * _independent_records(energies)
        return self._states

    def _chains_of_margins(self) -> WeightedChains:
        """Chains of the present tables: those of the last training, or annealed ones where few weights are left."""
        settings, graph, population = self.settings, self._hypergraph, self._population
        seed = self._seed(_MARGINS)
        if population is None and is_independent(graph, self._tables):
            population = drawn(law_of_singles(graph, self._tables), settings.num_chains, seed_of(seed, 2))
        elif population is None or population.effective_size < _LEAST_SHARE * len(population.codes):
            starts = self._starts()
            population = annealed_population(graph, self._tables, settings, starts, self._seed(_ANNEAL))
        return WeightedChains(graph, self._tables, settings, seed, population)

    @override
    def state_dict(self) -> Mapping[str, torch.Tensor]:
        population = self._population or Population(self.rows.narrow[:0].long(), np.zeros(0))
        added = [edge in set(self._added) for edge in self._hypergraph.edges]
        emphasis = {} if self.settings.emphasis is None else {"added": torch.tensor(added, dtype=torch.bool)}
        return {
            **super().state_dict(),
            **emphasis,
            "codes": population.codes.clone(),
            "log_weights": torch.from_numpy(population.log_weights.copy()),
            "num_trained": torch.tensor(self._num_trained),
            "doubt": torch.tensor([not self._is_calm, self._has_grown]),
        }

    @override
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        # All parts are looked at before any is taken over.
        count = len(state["codes"]) if isinstance(state.get("codes"), torch.Tensor) else 0
        codes = state_part(state, "codes", (count, len(self._hypergraph.domain))).to("cpu", torch.long).clone()
        log_weights = state_part(state, "log_weights", (count,)).to("cpu", torch.float64).numpy().copy()
        num_trained = int(state_part(state, "num_trained", ()))
        doubt = [True, False] if state.get("doubt") is None else state_part(state, "doubt", (2,)).tolist()
        if count:
            Observations(self._hypergraph.domain, codes)  # refuses codes that are no levels
        super().load_state_dict(state)
        self._population = Population(codes, log_weights) if count else None
        self._num_trained = num_trained
        self._is_calm, self._has_grown = not doubt[0], bool(doubt[1])
        edges, added = self._hypergraph.edges, state.get("added")
        self._added = () if added is None else tuple(e for e, is_new in zip(edges, added, strict=True) if is_new)


def _independent_records(energies: Floats) -> float:
    """Number of independent states per chain: the energy's variance over the variance of a chain's mean energy."""
    records, variance, between = len(energies), float(energies.var()), float(energies.mean(0).var())
    if variance <= 0 or between <= 0:
        return float(records)
    return min(float(records), max(1.0, variance / between))
