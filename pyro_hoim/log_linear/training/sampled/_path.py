"""The training path: steps with chains that follow, checks of the chains, and recovery. Private to training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from tqdm import tqdm

from ....core.trainer import TrainingReport
from ....runs.checkpoint import check_time
from ....structure.hypergraph import Edge, InteractionHypergraph
from ...coding import parametrization
from ..ridge import InteractionRidge
from ._weighted_chains import (
    Population,
    StartLaw,
    WeightedChains,
    annealed_population,
    disagreement,
    drawn,
    is_independent,
    law_of_singles,
    seed_of,
)
from .options import SampledTraining

# Coordinates in which sampled training makes its steps, with the ridge there.

Floats = NDArray[np.float64]


class Coordinates:
    """Raw tables of a hierarchical collection, or the free coordinates of balanced tables of another.

    Raw tables are many coordinates of one law. Adam is faster in them, and the ridge is on them: on the same law it is
    weaker than on balanced tables.
    """

    def __init__(self, hypergraph: InteractionHypergraph, ridge: InteractionRidge | None, total: float) -> None:
        self._codings = parametrization(hypergraph)
        self._hypergraph = hypergraph
        self._total = total
        self.is_raw = hypergraph.is_hierarchical
        self.size = hypergraph.num_terms if self.is_raw else hypergraph.num_parameters
        self._smooth = None if ridge is None or ridge.is_zero else ridge
        self._ridge = np.zeros(self.size)
        if self._smooth is not None:
            self._ridge = self._smooth.majorant(hypergraph, are_tables=self.is_raw) / total

    def _mapped(self, function: Callable[[torch.Tensor], torch.Tensor], values: Floats) -> Floats:
        return function(torch.from_numpy(values)).numpy()

    def of_tables(self, tables: Floats) -> Floats:
        """Coordinates (size,) of balanced tables (num_terms,)."""
        return tables.copy() if self.is_raw else self._mapped(self._codings.from_tables, tables)

    def tables(self, x: Floats) -> Floats:
        """Tables (num_terms,) of coordinates, balanced unless these are raw."""
        return x if self.is_raw else self._mapped(self._codings.to_tables, x)

    def balanced(self, x: Floats) -> Floats:
        """Balanced tables (num_terms,) of coordinates."""
        if not self.is_raw:
            return self.tables(x)
        return self._mapped(lambda tables: self._codings.purify(tables)[0], x)

    def gradient(self, eta: Floats) -> Floats:
        """Gradient (size,) of the sum of tables times eta (num_terms,)."""
        return eta if self.is_raw else self._mapped(self._codings.free_statistics, eta)

    def _pull(self, x: Floats) -> Floats | float:
        """Gradient of the ridge per row."""
        return 0.0 if self._smooth is None else self._smooth.gradient(x, self._hypergraph) / self._total

    def step(self, x: Floats, direction: Floats, step: Floats) -> Floats:
        r"""Coordinates after a step with step sizes s (size,) and the proximal map of the ridge in the metric 1/s.

        The ridge acts by a diagonal above its precision at the new coordinates, which divides by
        :math:`1 + s \lambda`, and by the rest of it at the old ones.
        """
        new = x + step * direction
        if self._smooth is not None:
            new -= step * (self._pull(x) - self._ridge * x)
        return new / (1 + step * self._ridge)

    def residual(self, x: Floats, gradient: Floats) -> float:
        """Largest absolute entry of the gradient with the ridge."""
        return float(np.abs(gradient - self._pull(x)).max(initial=0.0))


_MAX_SWEEPS = 4  # per step, to which sampling is raised
_RECOVERY = 0.1  # factor of the rate after a divergence
_MAX_RECOVERIES = 3
_MAX_ROUNDS = 6  # of more iterations, after a final check which found modes that were missed
_EXTRA_RATE = 0.1  # of the learning rate, where training goes on after a failed final check
_EXTRA = 25  # iterations of every such round: enough to push a mode down, too few for noise to raise others
_COLLAPSED = 0.02  # effective share of the chains after a step that counts as collapsed
_MAX_COLLAPSES = 20  # in a row
_WORSE = 0.5  # nats above the best check, or the start, that a check may find before training counts as diverged
_MISSED = 0.9  # share of a fresh, uneven population in the union above which the chains had missed modes
_LARGEST = 1e6  # entries of tables beyond which energies lose their digits
_STILL_OFF = (
    "the last check still found modes that the chains had missed; use more chains, a lower learning rate, or stronger "
    "penalties"
)
_FIRST, _SECOND = 0.9, 0.999  # decay of the moments of Adam
_RARER, _RAREST = 2, 4  # factor of the distance of checks after one that agreed, and the largest
_DOUBTS = 3  # checks that have to agree after one that did not before they become rarer
_COARSE = 4  # temperatures of a whole check per temperature of the coarsest that stands in for it while it agrees
_GROWN, _LARGE = 3.0, 0.3  # growth of the mean gradient from one check to the next, and its size, when it diverges


class Adam:
    r"""Moments of a gradient, whose metric is known so that a ridge can be added by its proximal map.

    A step is ``rate * metric * direction`` with metric :math:`1 / (\sqrt{v} + \epsilon)`.
    """

    def __init__(self, size: int, damping: float) -> None:
        self._damping = damping
        self._mean = np.zeros(size)
        self._square = np.zeros(size)
        self._num_mean = self._num_square = 0

    def step(self, gradient: Floats) -> tuple[Floats, Floats]:
        """Direction and metric (size,) after taking up a gradient of ascent."""
        self._num_mean += 1
        self._num_square += 1
        self._mean *= _FIRST
        self._mean += (1 - _FIRST) * gradient
        self._square *= _SECOND
        self._square += (1 - _SECOND) * np.square(gradient)
        metric = np.sqrt(self._square / (1 - _SECOND**self._num_square))
        metric += self._damping
        return self._mean / (1 - _FIRST**self._num_mean), np.reciprocal(metric, out=metric)

    def shorten(self, scale: float) -> None:
        """The step was made shorter: so is the momentum."""
        self._mean *= scale

    def forget_direction(self) -> None:
        """Drop the momentum, because the gradient jumped; the metric stays."""
        self._mean[:] = 0.0
        self._num_mean = 0


class Plain:
    """Steps along the gradient itself, with the interface of :class:`Adam`."""

    def step(self, gradient: Floats) -> tuple[Floats, Floats]:
        """Direction and metric (size,)."""
        return gradient, np.ones_like(gradient)

    def shorten(self, scale: float) -> None:
        """Nothing is remembered."""

    def forget_direction(self) -> None:
        """Nothing is remembered."""


@dataclass(frozen=True)
class Problem:
    """What is fitted: a collection, the frequencies of its cells (num_terms,), and laws to start annealed runs from.

    Sets that were ``added`` last may be visited more often.
    """

    hypergraph: InteractionHypergraph
    goal: Floats
    starts: tuple[StartLaw, ...]
    coordinates: Coordinates
    added: tuple[Edge, ...] = ()


class Outcome(NamedTuple):
    """Balanced tables, the chains that belong to them, the report, whether the last check agreed, its evenness."""

    tables: Floats
    population: Population
    report: TrainingReport
    is_calm: bool
    evenness: float  # effective share of the fresh population; 0 of one that was resampled on its way


class Objection(Exception):  # noqa: N818 (an answer, not an error)
    """A check found fault with a path that is to be given up then."""


class _Comparison(NamedTuple):
    """Chains joined with a fresh population: its loss, its distance, its share, what they say against the chains."""

    union: Population
    loss: float
    distance: float
    share: float
    is_off: bool
    evenness: float


class SampledPath:
    """One call of training."""

    def __init__(
        self,
        problem: Problem,
        settings: SampledTraining,
        tables: Floats,
        population: Population | None,
        seed: int,
        *,
        is_start: bool = False,
        gives_up: bool = False,
    ) -> None:
        # Where the path is, and how it steps.
        self._problem = problem
        self._gives_up = gives_up
        self._settings = settings
        self._coordinates = problem.coordinates
        self._seed = seed
        self._num_populations = 0
        self._is_start = is_start
        self._x = self._coordinates.of_tables(tables)
        self._steps = self._new_steps()
        self._sweeps = settings.sweeps_per_step
        self._rate = settings.learning_rate
        self._notes: list[str] = []
        # Parameters that passed a check, and their loss by the annealed population; infinite before any check.
        self._best, self._best_loss = self._x.copy(), self._start_loss(tables, population)
        self._last_loss = np.inf
        # What checks have found so far.
        self._recoveries = self._collapses = 0
        self._gradients: list[float] = []
        self._last_gradient = np.inf
        self._checks = settings.refresh_every is not None and settings.chains == "weighted"
        self._coarse = _COARSE
        self._evenness = 0.0
        self._doubts = 0  # checks that have to agree before they become rarer
        self._apart = 1  # distance of two checks, of that in the settings
        # Chains at the start: those given, annealed ones, or exact draws.
        if population is None and not is_independent(problem.hypergraph, tables):
            population = self._annealed()
        if population is None:
            population = drawn(law_of_singles(problem.hypergraph, tables), settings.num_chains, seed_of(seed, 0))
        self._chains = self._started(population)

    def _new_steps(self) -> Adam | Plain:
        settings = self._settings
        return Adam(self._coordinates.size, settings.damping) if settings.optimiser == "adam" else Plain()

    def _started(self, population: Population) -> WeightedChains:
        self._num_populations += 1
        problem, tables = self._problem, self._coordinates.tables(self._x)
        seed = seed_of(self._seed, self._num_populations)
        return WeightedChains(problem.hypergraph, tables, self._settings, seed, population, added=problem.added)

    def _gradient(self) -> Floats:
        return self._coordinates.gradient(self._problem.goal - self._chains.eta())

    def _step(self, rate: float) -> bool:
        """A parameter step, reweighting, resampling and sweeps; False where the step was not sound."""
        gradient = self._gradient()
        self._gradients.append(float(np.abs(gradient).max(initial=0.0)))
        direction, metric = self._steps.step(gradient)
        metric *= rate
        new = self._coordinates.step(self._x, direction, metric)
        tables = self._coordinates.tables(new)
        if not (np.abs(tables).max(initial=0.0) < _LARGEST):
            self._notes.append("a step left the range of finite energies")
            return False
        # A step that changes energies by too much is shortened: the weights must follow.
        growth = self._chains.growth(tables - self._coordinates.tables(self._x))
        spread = self._chains.spread(growth)
        if spread > self._settings.max_change:
            scale = self._settings.max_change / spread
            new = self._x + scale * (new - self._x)
            tables, growth = self._coordinates.tables(new), scale * growth
            self._steps.shorten(scale)
        self._x = new
        # Weights take up the change; the chains are resampled where few are left, and moved on.
        self._chains.set_tables(tables)
        self._chains.grow(growth)
        is_collapsed = self._chains.effective_size < _COLLAPSED * len(growth)
        self._collapses = self._collapses + 1 if is_collapsed else 0
        self._chains.resample()
        self._chains.chains.sweep(self._sweeps)
        if self._collapses >= _MAX_COLLAPSES:
            self._notes.append(f"the weights collapsed in each of {_MAX_COLLAPSES} steps in a row")
            return False
        return True

    def _annealed(self, num_chains: int | None = None, coarse: int = 1) -> Population:
        """A fresh population, with one of ``coarse`` temperatures."""
        self._num_populations += 1
        problem, tables = self._problem, self._coordinates.tables(self._x)
        seed = seed_of(self._seed, self._num_populations)
        settings = self._settings
        settings = replace(settings, refresh_temperatures=-(-settings.refresh_temperatures // coarse))
        return annealed_population(problem.hypergraph, tables, settings, problem.starts, seed, num_chains)

    def _object(self) -> None:
        """The next checks are whole and frequent; a path that gives up does."""
        self._coarse, self._doubts, self._apart = 1, _DOUBTS, 1
        if self._gives_up:
            raise Objection

    def _raise_sampling(self) -> None:
        self._sweeps = max(self._sweeps, min(_MAX_SWEEPS, self._sweeps + 1))

    def _compared(self, before: Population, coarse: int) -> _Comparison:
        """A fresh population beside the chains."""
        annealed = self._annealed(self._settings.refresh_chains, coarse)
        loss = annealed.log_z - float(self._coordinates.tables(self._x) @ self._problem.goal)
        distance, is_off = disagreement(before, annealed, self._problem.hypergraph)
        union = before.joined(annealed)
        share = float(softmax(union.log_weights)[len(before.codes) :].sum())
        # Absolute weights of many variables drift by some nats on the path. A mode of such a share that even weights
        # met would show in the laws of interactions.
        is_missed = share > _MISSED and not annealed.is_even
        evenness = annealed.effective_size / len(annealed.codes) if annealed.is_even else 0.0
        return _Comparison(union, loss, distance, share, is_off or is_missed, evenness)

    def _is_bad(self, comparison: _Comparison) -> bool:
        """Whether a comparison speaks against the chains or the parameters."""
        return comparison.is_off or comparison.loss > self._best_loss + _WORSE

    def _check(self, where: str, *, is_last: bool = False) -> tuple[bool, bool]:
        """Join a fresh annealed population: whether the chains agreed with it, and whether training is sound.

        A quarter or half of the temperatures does while weights stay even and all is well; what is said against the
        chains a whole check says again.
        """
        # Compare with a fresh population, by fewer temperatures while nothing speaks against that.
        before, coarse = self._chains.population, 1 if is_last else self._coarse
        comparison = self._compared(before, coarse)
        while coarse > 1 and (self._is_bad(comparison) or not comparison.evenness):
            self._coarse = coarse = 1 if self._is_bad(comparison) else coarse // 2
            comparison = self._compared(before, coarse)
        union, loss, distance, share, is_off, self._evenness = comparison
        # Both go on together; checks become rarer while they agree.
        self._chains = self._started(union)
        self._apart = min(_RAREST, _RARER * self._apart) if self._evenness and not (is_off or self._doubts) else 1
        self._doubts = max(0, self._doubts - 1)
        if is_off:
            self._object()
            self._steps.forget_direction()
            self._raise_sampling()
            self._notes.append(
                f"{where}: chains and a fresh annealed population differed by {distance:.2f} in the law of an "
                f"interaction; joined, the fresh one has a share of {share:.2f}; {self._sweeps} sweeps per step"
            )
        # Is training itself sound? Neither gradient nor loss may have grown.
        gradient = float(np.mean(self._gradients)) if self._gradients else 0.0
        grew = gradient > max(_LARGE, _GROWN * self._last_gradient)
        self._gradients, self._last_gradient = [], gradient
        is_sound = not (grew or min(loss, self._last_loss) > self._best_loss + _WORSE)
        if not is_sound:
            why = "the gradient grew" if grew else f"the training loss rose to {loss:.2f} from {self._best_loss:.2f}"
            self._notes.append(f"{where}: {why}")
        self._last_loss = loss
        if not is_off and loss < self._best_loss:
            self._best, self._best_loss = self._x.copy(), loss
        return not is_off, is_sound

    def _recover(self) -> bool:
        """Back to the last sound parameters, with more sweeps and a tenth of the rate; False where that was in vain."""
        self._object()
        self._recoveries += 1
        self._x = self._best.copy()
        self._steps = self._new_steps()
        self._chains = self._started(self._annealed())
        self._collapses, self._gradients, self._last_loss = 0, [], self._best_loss
        if self._recoveries > _MAX_RECOVERIES:
            return False
        self._rate *= _RECOVERY
        self._raise_sampling()
        self._notes.append(
            f"training went back to its last sound parameters, with {self._sweeps} sweeps per step and a rate of "
            f"{self._rate:.3g}"
        )
        return True

    def run(self) -> Outcome:
        """All iterations, final checks, and more iterations where those fail."""
        # The schedule, then final checks that push down modes which chains had missed.
        settings = self._settings
        count = settings.num_iterations
        is_sound = self._iterate(count, settings.average, "iteration")
        num, agree = count, not self._checks
        for k in range(_MAX_ROUNDS + 1 if self._checks and is_sound else 0):
            where = "after training" if k == 0 else f"after {k} more rounds"
            agree, is_sound = self._check(where, is_last=True)
            if not is_sound and (not self._recover() or k == _MAX_ROUNDS):
                break
            if agree and is_sound:
                break
            is_sound = True
            if k == _MAX_ROUNDS:
                self._notes.append(_STILL_OFF)
                break
            extra = min(_EXTRA, count)
            self._rate = min(self._rate, _EXTRA_RATE * settings.learning_rate)
            is_sound = self._iterate(extra, 0.5, f"round {k + 1}, iteration", checks=False)
            num += extra
            if not is_sound:
                break
        # The report, and tables with the weights that belong to them.
        if not is_sound:
            self._notes.append("training diverged; the tables are the last sound ones")
        gradient = self._coordinates.residual(self._x, self._gradient())
        report = TrainingReport("max_iterations" if is_sound else "diverged", num, gradient, tuple(self._notes))
        tables = self._coordinates.balanced(self._x)
        self._chains.move_to(tables)  # absolute weights of the balanced tables
        return Outcome(tables, self._chains.population, report, agree and is_sound, self._evenness)

    def _start_loss(self, tables: Floats, population: Population | None) -> float:
        """Loss of the first parameters where their constant is known; infinite elsewhere."""
        fitted = float(tables @ self._problem.goal)
        if is_independent(self._problem.hypergraph, tables):
            return law_of_singles(self._problem.hypergraph, tables).log_z - fitted
        if self._is_start and population is not None:
            return population.log_z - fitted
        return np.inf

    def _iterate(self, count: int, average: float, what: str, *, checks: bool = True) -> bool:
        """Steps with a rate that rises and falls, then the mean of the last parameters; whether they are sound."""
        # The rate rises, then falls; a path that is unsound goes back.
        every = self._settings.refresh_every
        warm_up = max(1.0, self._settings.warm_up * count) if checks else 1.0
        total, num_summed, due = np.zeros_like(self._x), 0, (every or 0) - 1
        for k in tqdm(range(count), desc="training", unit="step", disable=not self._settings.progress):
            check_time()
            is_sound = self._step(self._rate * min(1.0, (k + 1) / warm_up) * (1 - k / count))
            if is_sound and checks and self._checks and every and k >= due and k + 1 < count:
                is_sound = self._check(f"{what} {k + 1}")[1]
                due = k + every * self._apart
            if not is_sound:
                total, num_summed = np.zeros_like(self._x), 0
                if not self._recover():
                    return False
            elif k >= count * (1 - average):
                total += self._x
                num_summed += 1
        if num_summed:
            self._x = total / num_summed
            self._chains.move_to(self._coordinates.tables(self._x))
        return True
