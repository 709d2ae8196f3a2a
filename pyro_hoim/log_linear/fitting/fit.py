"""Fitting a hierarchical log-linear model: choice of objective, penalty and solver, and the result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from tqdm import tqdm

from ...checks import check_finite
from ...core.partition import PartitionBackend
from ...data.counts import digest
from ...data.frames import DataLike, RowsLike, as_observations, is_frame, is_source
from ...data.observations import Observations
from ...data.sources.sourced import few_rows
from ...errors import (
    ConvergenceWarning,
    DataWarning,
    NonexistentEstimateWarning,
    caller_level,
    check_choice,
    check_type,
    conflict,
    refused,
    wrong_type,
)
from ...runs.checkpoint import RunFile, RunOptions, check_arrays, checked_run
from ...runs.container import checksum
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..bounds.mini_buckets import MiniBuckets
from ..chains.connected import connectedness
from ..coding import parametrization
from ..energy import LogLinearEnergy
from ..exact.elimination import VariableElimination
from ..impossible import (
    ImpossibleStates,
    PossibleStates,
    StructuralZeros,
    on_support,
    structural_states,
    support_of_states,
)
from ..restricted.terms import RestrictedInteractions
from .bound import KEPT_SHAPES, LikelihoodBound, buckets_of, checked_buckets, is_exact_as_cheap, solve_jointly
from .design import (
    Coordinates,
    cell_counts,
    check_data,
    check_design,
    check_domain,
    check_validation,
    design_entries,
    design_matrix,
    own_coordinates,
)
from .existence import (
    Face,
    MLEExistence,
    cells_outside,
    check_data_possible,
    check_rows_possible,
    find_face,
    identified_directions,
    known_zeros,
    mle_existence,
    no_such_table,
)
from .objectives import DenseLikelihood, Likelihood, Objective, Penalised, PseudoLikelihood, WithFictiveRows
from .penalties import Conjugate, CoupledPenalty, Penalty, ProximalPenalty, SmoothPenalty, working_coordinates
from .result import FitResult
from .solvers import (
    Evaluate,
    HeldOut,
    Outcome,
    Patience,
    Point,
    State,
    Stopping,
    gradient_descent,
    kept_shapes,
    lbfgs,
    newton,
    proximal_gradient,
)

# Checks of the arguments of a fit, all made before any work, and the choice of a method.

OBJECTIVES = ("likelihood", "pseudo-likelihood", "bound")
METHODS = ("auto", "newton", "lbfgs", "proximal-gradient", "gradient")
_NEWTON_ENTRIES = 2**23
_NEWTON_PARAMETERS = 600


def is_newton(hypergraph: InteractionHypergraph) -> bool:
    """Whether a Hessian is formed and solved in a moment, so that fits without further wishes take Newton's steps."""
    return design_entries(hypergraph) <= _NEWTON_ENTRIES and hypergraph.num_parameters <= _NEWTON_PARAMETERS


def uses_design(hypergraph: InteractionHypergraph) -> bool:
    """Whether a likelihood without further wishes is that of a dense design, and not of a partition backend."""
    return is_newton(hypergraph) or design_entries(hypergraph) <= _NEWTON_ENTRIES


def read_data(
    hypergraph: InteractionHypergraph, data: DataLike | torch.Tensor, validation: DataLike | None, objective: str
) -> tuple[Observations | torch.Tensor, Observations | None]:
    """Data frames and sources among the arguments as observations or margins of the hypergraph, others as they are."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    read = as_observations(data, domain=hypergraph.domain) if is_frame(data) else data
    if is_source(read):
        check_domain(hypergraph, read.domain, "data")
        read = read.distinct() if objective == "pseudo-likelihood" else rows_or_margins(hypergraph, read)
    if is_frame(validation) or is_source(validation):
        validation = as_observations(validation, domain=hypergraph.domain, argument="validation")
    return read, validation  # type: ignore[return-value]


def rows_or_margins(hypergraph: InteractionHypergraph, source: RowsLike) -> Observations | torch.Tensor:
    """The distinct rows of a source where these are at most 2^25 cells, else the margins of a hypergraph.

    Which of both does not depend on where the rows lie, and neither do the bits.
    """
    distinct = few_rows(source)
    return source.marginal_counts(hypergraph.edges).double() if distinct is None else distinct


def choose_method(
    hypergraph: InteractionHypergraph,
    data: Observations | torch.Tensor,
    method: str,
    objective: str,
    penalty: Penalty | None,
    partition: PartitionBackend | None,
    early_stopping: bool,
) -> tuple[bool, str]:
    """Whether a dense design is used, and the method; options without a meaning or that do not fit are refused."""
    # Options that have no meaning on their own.
    check_choice(objective, OBJECTIVES, "objective")
    if penalty is not None and not isinstance(penalty, SmoothPenalty | ProximalPenalty | Conjugate):
        raise wrong_type("penalty", "L2, L1, GroupL2, Conjugate or None", received=repr(penalty))
    if isinstance(penalty, Conjugate) and objective != "likelihood":
        raise conflict("penalty", f"{penalty!r} goes with the likelihood, received objective {objective!r}", "use L2")
    if partition is not None:  # a protocol is dear to ask
        check_type(partition, PartitionBackend, "partition", "a partition backend")
        if isinstance(partition, PossibleStates):
            problem = "PossibleStates is the backend of a law or of a posterior"
            raise conflict("partition", problem, "give its states as structural_zeros, and its backend as partition")
        if isinstance(partition, MiniBuckets) and objective == "likelihood":
            raise conflict("partition", "MiniBuckets bound log Z, as objective='bound' needs it", "use that or Auto()")
    check_choice(method, METHODS, "method")
    is_smooth = penalty is None or isinstance(penalty, SmoothPenalty | Conjugate)
    is_coupled = penalty is not None and isinstance(penalty, CoupledPenalty) and not penalty.is_diagonal(hypergraph)
    likelihood = objective == "likelihood"
    if objective == "bound":
        buckets_of(partition)
    if objective == "pseudo-likelihood" and not isinstance(data, Observations):
        raise conflict("objective", "the pseudo-likelihood needs observations, received marginal counts")
    # Newton's method wants a Hessian that is formed and solved in a moment, and no steps to look at in between.
    small = is_newton(hypergraph)
    if method == "auto":
        if not is_smooth:
            method = "proximal-gradient"
        elif likelihood and small and partition is None and not (early_stopping or is_coupled):
            method = "newton"
        else:
            method = "lbfgs"
    # What was chosen or asked for must go with objective and penalty.
    needs_hessian, needs_prox = method == "newton", method == "proximal-gradient"
    is_dense = likelihood and partition is None and (needs_hessian or uses_design(hypergraph))
    if needs_hessian and not is_dense:
        title = "the likelihood through a partition backend" if likelihood else f"the {objective}"
        raise conflict("method", f"'newton' needs a Hessian, which {title} does not offer", "use 'lbfgs'")
    if objective == "bound" and method == "gradient":
        raise conflict("method", "'gradient' takes steps of one length, which a bound has not", "use 'lbfgs'")
    if needs_hessian and is_coupled:
        problem = f"{method!r} needs a diagonal Hessian, {penalty!r} has none here"
        raise conflict("penalty", problem, "fit with method='lbfgs'")
    if needs_prox and not isinstance(penalty, ProximalPenalty):
        raise conflict("method", f"{method!r} needs a penalty with a proximal map, received {penalty!r}", "use 'lbfgs'")
    if not needs_prox and not is_smooth:
        raise conflict("penalty", f"{method!r} needs a smooth penalty, received {penalty!r}", "use 'proximal-gradient'")
    if is_dense:
        check_design(hypergraph)
    return is_dense, method


# What a solver works on: objective, start and, for infinite estimates, coordinates of the facial set.

SMALL_ENTRIES = 2**23
"""Up to this many entries of the design, existence is examined exactly although a backend was asked for."""

_ROUGHLY, _START_STEPS = 1e-2, 50  # gradient per row, and steps, of where the bound of a likelihood begins
_QUICK_OPERATIONS = 2**30  # of an exact sum beside what is not exact, a second or so
_ROUNDING = 1e-6  # nats a row by which a likelihood may exceed 1
_PUSH = 32.0  # by so many nats theta moves forced zeros below what is possible


@dataclass
class Problem:
    """Everything a solver run needs, in the coordinates it works in, and what its result is made of.

    ``start`` is in those coordinates: ``coordinates``, or with ``basis`` (num_parameters, rank) those along its
    columns, which are directions of the ``face`` or of a restriction. ``own_mean`` are the empirical means of the
    statistics of the family, empty for the pseudo-likelihood; ``design`` is that of the family, too. ``support`` are
    the impossible states of the law that the solver works on, ``limit`` those of an infinite estimate.
    """

    coordinates: Coordinates
    objective: Objective
    start: np.ndarray
    num_rows: float
    own_mean: np.ndarray
    rows: Observations | None = None
    margins: torch.Tensor | None = None
    support: ImpossibleStates | None = None
    limit: ImpossibleStates | None = None
    existence: MLEExistence | None = None
    face: Face | None = None
    recession: np.ndarray | None = None
    basis: np.ndarray | None = None
    design: np.ndarray | None = None

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The interactions."""
        return self.coordinates.hypergraph

    @property
    def is_infinite(self) -> bool:
        """Whether the estimate is known to be infinite."""
        return self.existence is not None and self.existence.exists is False

    def lift(self, theta: np.ndarray) -> np.ndarray:
        """Theta of the family from the solver's coordinates."""
        return self.coordinates.to_own(theta) if self.basis is None else self.basis @ theta

    def lower(self, theta: np.ndarray) -> np.ndarray:
        """The solver's coordinates from theta of the family."""
        return self.coordinates.from_own(theta) if self.basis is None else theta @ self.basis

    def held_out(self, rows: Observations) -> HeldOut:
        """Mean loss of other rows, as a function of the solver's coordinates and the training loss there.

        Two likelihoods share log Z, so they differ by a linear term, and nothing is evaluated. Rows in cells that the
        estimate gives no probability lose infinitely much.
        """
        if isinstance(self.objective, PseudoLikelihood):
            other = PseudoLikelihood(self.hypergraph, rows, self.coordinates)
            return lambda theta, _: other.value(theta)
        if self.basis is not None and self.face is not None and (cell_counts(rows)[~self.face.cells] > 0).any():
            return lambda *_: math.inf
        margins = rows.marginal_counts(self.hypergraph.edges)
        mean = own_coordinates(self.hypergraph).statistics(margins) / rows.total_count
        difference = self.own_mean - mean
        return lambda theta, loss: loss + float(self.lift(theta) @ difference)

    def moved(self, theta: np.ndarray) -> np.ndarray:
        """Theta of the family moved along the direction of recession until forced zeros are below what is possible.

        The law on the support is the same. Finite tables alone, which do not know it, then come close.
        """
        if not (self.is_infinite and self.recession is not None):
            return theta
        if self.design is None or self.face is None:
            return theta + 2 * _PUSH * self.recession
        logits, slope = self.design @ theta, self.design @ self.recession
        cells = self.face.cells
        loss = float(slope[cells].mean()) - slope
        is_lost = ~cells & (loss > 0.5)  # of forced zeros at least one
        excess = logits[is_lost] - float(np.logaddexp.reduce(logits[cells])) + math.log(len(cells)) + _PUSH
        return theta + float((excess / loss[is_lost]).max(initial=0.0)) * self.recession


def _with_limit(
    problem: Problem, margins: torch.Tensor, structural: ImpossibleStates | None, rows: Observations | None
) -> None:
    """Existence of the estimate, and the limit where it is infinite, of a fit that does not list every cell."""
    graph = problem.hypergraph
    if rows is None:
        problem.existence, empty = known_zeros(graph, margins, structural)
    else:
        problem.existence, empty = mle_existence(graph, rows, structural_zeros=structural), None
        if problem.is_infinite and problem.existence.facial_set is not None:
            further = () if structural is None else structural.structure.edges
            empty = ImpossibleStates.of_cells(graph, ~problem.existence.facial_set, further)
        elif problem.is_infinite:
            empty = known_zeros(graph, margins, structural)[1]
    problem.limit = ImpossibleStates.union(structural, empty)
    if problem.is_infinite:
        fallen = torch.zeros(graph.num_terms, dtype=torch.float64)
        fallen[margins <= 0] = -1.0
        problem.recession = parametrization(graph).from_tables(fallen).numpy()


def _check_single_steps(hypergraph: InteractionHypergraph, zeros: ImpossibleStates | None, is_declared: bool) -> None:
    """Refuse zeros that were declared, and warn of others, between which steps of single columns do not lead."""
    if zeros is None:
        return
    domain = hypergraph.domain
    known = connectedness(support_of_states(hypergraph, zeros).zeros, [(name,) for name in domain.names])
    steps = "the pseudo-likelihood compares states that differ in one column"
    if known.verdict == "refuted":
        problem = f"{steps}, and no such steps lead {known.apart(domain)}, whose shares it may leave open"
        if is_declared:
            raise refused("objective", problem, "fit with objective='likelihood'", code="impossible")
        warnings.warn(DataWarning(f"fit: {problem}; fit with objective='likelihood'"), stacklevel=caller_level())
    elif known.verdict == "untested" and is_declared:
        problem = f"{steps}; whether such steps connect all possible states was not tested, as there are too many"
        warnings.warn(DataWarning(f"fit: {problem}"), stacklevel=caller_level())


def _dense_problem(
    coordinates: Coordinates,
    rows: Observations,
    structural: ImpossibleStates | None,
    penalty: Penalty | None,
    from_zero: bool,
    space: np.ndarray | None,
) -> Problem:
    """Likelihood on a dense design, restricted to a smaller facial set unless a path from zero is wanted."""
    # The design, and the means of its statistics.
    num_rows, hypergraph = rows.total_count, coordinates.hypergraph
    design, working = design_matrix(hypergraph), design_matrix(hypergraph, coordinates.coding)
    counts = cell_counts(rows)
    own_mean = counts @ design / num_rows
    mean = own_mean if working is design else counts @ working / num_rows
    # The facial set, on which the estimate is finite.
    existence, face = None, None
    if penalty is None:
        existence, face = find_face(hypergraph, design, counts, structural, rows, space)
    limit, recession = structural, None
    if face is not None:
        further = () if structural is None else structural.structure.edges
        limit, recession = ImpossibleStates.of_cells(hypergraph, ~face.cells, further), face.recession
    support = structural if from_zero else limit
    if from_zero or face is None:  # the path need not reach the limit: all but structural zeros are possible
        face = None
        if structural is not None:  # a penalty identifies every parameter there
            possible = cells_outside(structural)
            directions = identified_directions(design, possible, space) if penalty is None else np.eye(design.shape[1])
            face = Face(possible, directions, np.zeros(len(directions)))
    # The solver sees the statistics on that set, along the directions that are identified there.
    basis, used = space, working
    if face is not None:
        basis = face.basis if penalty is None and not from_zero else space
        used, counts = working[face.cells], counts[face.cells]
    if basis is not None:
        used, mean = used @ basis, mean @ basis
    objective = DenseLikelihood(used, mean)
    start = np.zeros(used.shape[1])
    # One step of reweighted least squares from means half-way between the counts and their average.
    if len(start) and not from_zero:
        means = (counts + num_rows / len(counts)) / 2
        target, probs = np.log(means) + counts / means, means / means.sum()
        centre = probs @ used
        right = (probs * target) @ used - float(probs @ target) * centre
        hessian = objective.covariance(probs, centre)
        hessian[np.diag_indices_from(hessian)] += 1e-9
        start = np.linalg.solve(np.triu(hessian) + np.triu(hessian, 1).T, right)
    return Problem(
        coordinates,
        objective,
        start,
        num_rows,
        own_mean,
        rows,
        support=support,
        limit=limit,
        existence=existence,
        face=face,
        recession=recession,
        basis=basis,
        design=design,
    )


# The fit itself.

Method = Literal["auto", "newton", "lbfgs", "proximal-gradient", "gradient"]
ObjectiveName = Literal["likelihood", "pseudo-likelihood", "bound"]


class _Monitor:
    """Receives every iterate of a solver; decides when to stop."""

    def __init__(
        self,
        problem: Problem,
        validation: Observations | None,
        stopping: Stopping,
        file: RunFile | None,
        progress: bool,
    ) -> None:
        self.last: Point | None = None
        self.last_iteration = 0
        self._resumable: tuple[Point, Callable[[], State], State] | None = None
        self._file = file
        self._entropies = 0.0, 0.0  # of training and validation rows
        if progress or validation is not None:
            self._entropies = _entropy(problem, problem.rows), _entropy(problem, validation)
        self.patience = None
        if validation is not None:
            self.patience = Patience(problem.held_out(validation), stopping.patience)
        self.bar = tqdm(total=stopping.max_iterations, unit="iteration", leave=False) if progress else None

    @property
    def best(self) -> Point | None:
        """The best iterate on validation rows, of a fit that may stop early."""
        return None if self.patience is None or self.patience.limit is None else self.patience.best

    def write(self) -> None:
        """Keep in the checkpoint what a continued fit makes the same steps from."""
        if self._file is not None and self._resumable is not None:
            point, state, patience = self._resumable
            entries = {"theta": point.theta, **state(), **patience}
            self._file.write({name: torch.from_numpy(np.array(value)) for name, value in entries.items()})

    def validation_kl(self) -> float | None:
        """Divergence of the validation rows at the parameters that are kept."""
        if self.patience is None or self.last is None:
            return None
        value = self.patience.value if self.best is None else self.patience.best_value
        return value - self._entropies[1]

    def __call__(self, iteration: int, point: Point, norm: float, state: Callable[[], State]) -> bool:
        """Take note of an iterate; True asks the solver to stop, which a continued fit finds out again."""
        self.last, self.last_iteration = point, iteration
        stop = self.patience is not None and self.patience(iteration, point)
        if not stop:
            self._resumable = point, state, {} if self.patience is None else self.patience.state()
        if self._file is not None and self._file.is_due:
            self.write()
        if self.bar is not None:
            shown = "" if self.patience is None else f" validation {self.patience.value - self._entropies[1]:.4f}"
            self.bar.update()
            self.bar.set_postfix_str(f"train {point.loss - self._entropies[0]:.4f}{shown} gradient {norm:.1e}")
        return stop


def fit(
    hypergraph: InteractionHypergraph | RestrictedInteractions,
    data: DataLike | torch.Tensor,
    *,
    method: Method = "auto",
    objective: ObjectiveName = "likelihood",
    penalty: Penalty | None = None,
    partition: PartitionBackend | None = None,
    structural_zeros: StructuralZeros = None,
    validation: DataLike | None = None,
    stopping: Stopping | None = None,
    run: RunOptions | None = None,
) -> FitResult:
    r"""Fit theta of a hierarchical log-linear model by (penalised) likelihood, pseudo-likelihood or a lower bound.

    .. math:: \max_\theta \; N \big(\theta \cdot \eta_{\mathrm{data}} - \log Z(\theta)\big) - \mathrm{penalty}(\theta)

    The cost of a step does not depend on N: the data enter through their marginal counts. Small tables use a dense
    design and Newton's method; large ones exact gradients through a partition backend and L-BFGS. Existence of the
    maximum-likelihood estimate is always examined; where it is infinite, the fit is its limit, the extended estimate.
    Ctrl-C ends a fit early: the best iterate so far comes back with the status ``interrupted``; before the first
    iterate KeyboardInterrupt is raised.

    Args:
        hypergraph: the interaction structure; it says the family of a collection that lacks subsets. Or interactions
            restricted by scores, symmetry and diagonals (:func:`~pyro_hoim.log_linear.restricted_interactions`), for
            the likelihood without penalty.
        data: complete observations, or flat marginal counts in the layout of ``hypergraph.term_slices``; of rows that
            need not be in memory (:func:`~pyro_hoim.data.open_rows`) the distinct ones are taken where these are at
            most 2^25 cells, else, for the likelihood, the margins.
        method: ``newton`` (exact Hessian, dense design), ``lbfgs``, ``proximal-gradient`` (penalties that are not
            smooth), ``gradient`` (the paper's fixed step of 0.5) or ``auto``: proximal gradient for penalties that are
            not smooth; Newton for the likelihood when cells times parameters are at most 2^23, parameters at most
            600, no backend was given and the fit does not stop early; else L-BFGS.
        objective: ``likelihood``, ``pseudo-likelihood`` (which needs observations, and no log Z), or ``bound``: a lower
            bound of the likelihood beyond exact sums, which is certain and convex, by mini-buckets. It ends at the
            tolerance, or where 50 iterations gain fewer nats per row; unless a tolerance is given, also where they gain
            less than a twentieth of what all after the first 50 have gained. Where the bound would be exact, or an
            exact sum costs no more, the fit is that of the likelihood.
        penalty: added to the negative log-likelihood of all rows, in nats: ``L2``, ``L1``, ``GroupL2``, ``Conjugate``
            (of the likelihood without structural zeros) or ``InteractionRidge``. Of the first three ``coding`` says
            whether free or corner theta is penalised; a corner family takes corner penalties alone.
        partition: backend for log Z and its gradient; default ``Auto()``, or the dense design when it is small. Of a
            bound :class:`~pyro_hoim.log_linear.MiniBuckets`, whose passes the solver begins with.
        structural_zeros: what is impossible: combinations of levels by name, such as
            ``[{"sex": "male", "pregnant": "yes"}]``, of which a value may be a list of levels;
            :class:`~pyro_hoim.log_linear.ImpossibleStates`; or of a small table a mask of its shape, whose axes
            are the variables of the domain (of a data frame its columns in their order, whatever the formula says). The
            result gives these states probability zero in all that it does.
        validation: rows whose divergence the result holds, and by which the fit may stop early.
        stopping: tolerance (1e-9 for Newton, else 1e-6), iterations (100 for Newton, else 5,000), and the patience
            with which a fit stops early on the validation rows (never). The parameters that were best then come back,
            with the status ``early_stopped`` unless they are those of the last iteration.
        run: checkpoint, written every 30 seconds and on Ctrl-C, and a progress bar. A continued fit makes the steps of
            one that was not interrupted, and ends with the same bits.

    Returns:
        :class:`FitResult`. Its ``status`` says how the fit ended.

    Raises:
        MissingDataError: missing cells in ``data`` or ``validation``.
        InputError: arguments that do not fit together, another domain, no observations, margins that no table has, or
            rows that hold what is marked as impossible, which are counted and named. For the pseudo-likelihood also
            structural zeros between which steps of single columns do not lead to every possible state.
        IntractableError: no feasible way to log Z, with the cells needed and the option that raises the budget.

    Warns:
        ConvergenceWarning: the criterion was not met and the fit did not stop early.
        NonexistentEstimateWarning: the estimate is infinite; the offending combinations are named.
        DataWarning: steps of single columns do not connect what an infinite estimate of the pseudo-likelihood leaves
            possible, or it is not known whether they connect what structural zeros leave.

    References:
        Paper 1, section 4.2 and table 4; Yvonne Bishop, Stephen Fienberg and Paul Holland, Discrete Multivariate
        Analysis, 1975, chapter 3; of bounds Qiang Liu and Alexander Ihler, Bounding the partition function using
        Hölder's inequality, 2011.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> data = Observations.from_table(domain, [[30, 10], [20, 40]])
        >>> result = fit(InteractionHypergraph.saturated(domain), data)
        >>> result.status, round(float(result.coefficients("corner")[-1]), 6)  # log(30 * 40 / (10 * 20))
        ('converged', 1.791759)
        >>> from pyro_hoim.log_linear import L2, MiniBuckets
        >>> wide = Domain.from_cardinalities([2] * 8)
        >>> rows = Observations.from_tensor(torch.eye(8, dtype=torch.long).repeat(5, 1), wide)
        >>> pairs = InteractionHypergraph.from_order(wide, 2)
        >>> result = fit(pairs, rows, objective="bound", partition=MiniBuckets(max_cells=2**4), penalty=L2(1.0))
        >>> result.objective, result.log_likelihood_bound < result.log_likelihood
        ('bound', True)
    """
    # All arguments are looked at before any work.
    restriction, space = None, None
    if isinstance(hypergraph, RestrictedInteractions):
        restriction, space, hypergraph = hypergraph, hypergraph.basis, hypergraph.hypergraph
        if penalty is not None or objective != "likelihood":
            argument = "penalty" if penalty is not None else "objective"
            problem = "restricted interactions are fitted by maximum likelihood without a penalty"
            raise conflict(argument, problem, "fit their hypergraph, which has the whole tables")
    data, validation = read_data(hypergraph, data, validation, objective)
    check_data(hypergraph, data, "data")
    check_type(stopping, Stopping | None, "stopping", "Stopping or None")
    # How the fit is made, which must go with all that was asked for.
    stopping, run = stopping or Stopping(), checked_run(run)
    stops_early = stopping.patience is not None
    check_validation(hypergraph, validation, stops_early)
    structural = structural_states(hypergraph.domain, structural_zeros)
    if isinstance(penalty, Conjugate) and structural is not None:
        raise conflict("penalty", "Conjugate spreads rows over all cells, received structural_zeros", "use L2")
    if validation is not None:
        check_rows_possible(structural, validation, "validation")
    check_data_possible(structural, hypergraph, data)
    if objective == "bound":
        choose_method(hypergraph, data, method, objective, penalty, partition, stops_early)
        objective, partition = _bound_or_likelihood(hypergraph, structural, partition)
    if structural is not None and partition is None and not isinstance(data, Observations):
        partition = Auto()  # the dense design has no support of margins alone
    is_dense, chosen = choose_method(hypergraph, data, method, objective, penalty, partition, stops_early)
    coordinates = working_coordinates(hypergraph, penalty)
    if objective != "pseudo-likelihood" and not is_dense:
        partition = Auto() if partition is None else partition
        on_support(partition, structural).plan(hypergraph).check()
    # The objective with its start, on the face of the estimate where that is infinite.
    file, from_zero = run.file(), stops_early or chosen == "gradient"
    backend = None if is_dense else partition
    problem = _problem(objective, coordinates, data, penalty, backend, structural, from_zero, space)
    if isinstance(problem.objective, LikelihoodBound):
        problem.objective.ends_by_gains = stopping.tolerance is None
    # A checkpoint puts the solver where it was.
    defaults = (1e-9, 100) if chosen == "newton" else (1e-6, 5000)
    stopping = Stopping(stopping.tolerance or defaults[0], stopping.max_iterations or defaults[1], stopping.patience)
    monitor = _Monitor(problem, validation, stopping, file, run.progress)
    state = None if file is None else _taken_up(problem, chosen, penalty, partition, validation, monitor, file)
    outcome, best = _solved(problem, chosen, penalty, stopping, monitor, state or {})
    # A mean negative log-likelihood of any rows is positive.
    if problem.rows is None and not outcome.point.loss >= -_ROUNDING:
        raise no_such_table(structural)
    # Back in the coordinates of the family.
    _warn(problem, outcome, chosen, stopping)
    theta, impossible = problem.lift(outcome.point.theta), problem.support
    if outcome.status == "infinite":
        theta, impossible = problem.moved(theta), problem.limit
    theta = torch.from_numpy(np.ascontiguousarray(theta))
    log_likelihood, log_partition = _likelihood(problem, theta, impossible, outcome.point.loss, partition)
    return FitResult(
        hypergraph=hypergraph,
        theta=theta,
        log_likelihood=log_likelihood,
        log_likelihood_bound=_least_likelihood(problem, outcome.point.theta),
        log_partition=log_partition,
        num_rows=problem.num_rows,
        status=outcome.status,
        num_iterations=outcome.num_iterations,
        gradient_norm=outcome.norm,
        existence=problem.existence,
        objective=objective,
        method=chosen,
        penalty=penalty,
        partition=partition,
        data=problem.rows,
        margins=problem.margins,
        structural_zeros=structural,
        impossible=impossible,
        best_iteration=best,
        validation_kl=monitor.validation_kl(),
        restriction=restriction,
        recession=None if problem.recession is None else torch.from_numpy(problem.recession),
        _face=problem.face,
        _design=problem.design,
        _penalised=None if problem.basis is not None else torch.from_numpy(outcome.point.theta),
    )


def _taken_up(
    problem: Problem,
    method: str,
    penalty: Penalty | None,
    partition: PartitionBackend | None,
    validation: Observations | None,
    monitor: _Monitor,
    file: RunFile,
) -> State | None:
    """The state in a checkpoint, if there is one, where the solver and its patience go on from."""
    rows = digest(problem.rows) if problem.rows is not None else checksum({"means": torch.from_numpy(problem.own_mean)})
    settings: dict[str, Any] = {
        "hypergraph digest": problem.hypergraph.to_json(),
        "data digest": rows,
        "method": method,
        "objective": problem.objective.name,
        "penalty": repr(penalty),
        **({"partition": repr(partition)} if problem.objective.name == "bound" else {}),
        "validation digest": None if validation is None else digest(validation),
    }
    if problem.support is not None:
        settings["support digest"] = problem.support.structure.to_json()
        settings["excluded digest"] = checksum({"excluded": problem.support.excluded})
    arrays = file.start(settings)
    if arrays is None:
        return None
    # What the file holds must fit this solver; it then goes on as if nothing had been.
    with file.taking_up():
        size, patience, bound = len(problem.start), monitor.patience, problem.objective
        solver, extra = size, dict[str, tuple[int | None, ...]]()
        if isinstance(bound, LikelihoodBound):  # whose solver moves more than theta
            solver, extra = size + len(arrays["free"]), KEPT_SHAPES
        extra = {**extra, **({} if patience is None else patience.shapes(size))}
        shapes = {"theta": (size,), **kept_shapes(method, solver), **extra}
        check_arrays(arrays, {name: (torch.float64, *shape) for name, shape in shapes.items()})
        for name in arrays.keys() - {"patience"}:
            check_finite(arrays[name], name)
        state = {name: value.numpy() for name, value in arrays.items()}
        problem.start = state["theta"]
        if isinstance(bound, LikelihoodBound):
            bound.take_up(int(state["order"]), state["free"])
        if patience is not None:
            patience.take_up(state, _solver(problem, method, penalty)[0])
    return state


def _entropy(problem: Problem, rows: Observations | None) -> float:
    """Entropy of rows; 0 for the pseudo-likelihood and for sufficient statistics."""
    return 0.0 if rows is None or problem.objective.name == "pseudo-likelihood" else rows.entropy()


_ROWS = 1e-3
"""Rows that the sums of a fit by Newton's method may be off by, as far as rounding allows."""


def _solver(problem: Problem, method: str, penalty: Penalty | None) -> tuple[Evaluate, Callable[..., Outcome]]:
    """What is minimised, and by what."""
    if isinstance(problem.objective, LikelihoodBound):
        return _bound_solver(problem, problem.objective, penalty)
    if method == "proximal-gradient":
        assert isinstance(penalty, ProximalPenalty)
        prox, graph, total = penalty.prox, problem.hypergraph, problem.num_rows
        return problem.objective.evaluate, partial(
            proximal_gradient, prox=lambda theta, step: prox(theta, step / total, graph)
        )
    target: Objective | Penalised | WithFictiveRows = problem.objective
    if isinstance(penalty, Conjugate):
        assert not isinstance(target, PseudoLikelihood)
        target = WithFictiveRows(target, penalty.num_rows / problem.num_rows)
    elif penalty is not None:
        assert isinstance(penalty, SmoothPenalty)
        target = Penalised(target, penalty, problem.hypergraph, problem.num_rows)
    if method == "newton":
        assert not isinstance(target, Likelihood | PseudoLikelihood)
        return target.evaluate, partial(newton, hessian=target.hessian, goal=_ROWS / problem.num_rows)
    if method != "lbfgs":
        return target.evaluate, gradient_descent
    is_coupled = isinstance(penalty, CoupledPenalty) and not penalty.is_diagonal(problem.hypergraph)
    if not isinstance(problem.objective, PseudoLikelihood) or problem.basis is not None or is_coupled:
        return target.evaluate, lbfgs
    precision = np.zeros(problem.hypergraph.num_parameters)
    if isinstance(penalty, SmoothPenalty):
        precision += penalty.hessian_diagonal(problem.start, problem.hypergraph) / problem.num_rows
    return target.evaluate, partial(lbfgs, precondition=problem.objective.preconditioner(precision))


def _bound_solver(
    problem: Problem, objective: LikelihoodBound, penalty: Penalty | None
) -> tuple[Evaluate, Callable[..., Outcome]]:
    """The same of a bound, whose solver moves costs beside theta."""
    graph, total, size = problem.hypergraph, problem.num_rows, len(problem.start)
    if penalty is None or isinstance(penalty, SmoothPenalty):
        evaluate = objective.evaluate if penalty is None else Penalised(objective, penalty, graph, total).evaluate
        return evaluate, partial(solve_jointly, objective=objective, solve=lbfgs)
    assert isinstance(penalty, ProximalPenalty)
    shrunk = penalty.prox

    def prox(both: np.ndarray, step: float) -> np.ndarray:
        return np.concatenate([shrunk(both[:size], step / total, graph), both[size:]])

    solve = partial(proximal_gradient, prox=prox)
    return objective.evaluate, partial(solve_jointly, objective=objective, solve=solve)


def _solved(
    problem: Problem, method: str, penalty: Penalty | None, stopping: Stopping, monitor: _Monitor, state: State
) -> tuple[Outcome, int | None]:
    """The outcome at the parameters that are kept, and their iteration where the fit may stop early."""
    # Solve; an interrupt keeps the best iterate so far.
    evaluate, solve = _solver(problem, method, penalty)
    try:
        start = evaluate(problem.start)
        last = solve(evaluate, start, stopping.tolerance, stopping.max_iterations, monitor, state=state)
    except KeyboardInterrupt:
        monitor.write()
        point = monitor.best or monitor.last
        if point is None:
            raise
        last = Outcome(point, point.norm, monitor.last_iteration, "interrupted")
    finally:
        if monitor.bar is not None:
            monitor.bar.close()
    # Early stopping returns the best point on the validation rows.
    best, point = None, monitor.best
    if monitor.patience is not None and point is not None:
        best = monitor.patience.best_iteration
        is_early = last.status == "stopped" or (last.status == "converged" and best != last.num_iterations)
        last = Outcome(point, point.norm, last.num_iterations, "early_stopped" if is_early else last.status)
    if last.status == "converged" and problem.is_infinite:
        last = last._replace(status="infinite")
    return last, best


def _problem(
    objective: ObjectiveName,
    coordinates: Coordinates,
    data: Observations | torch.Tensor,
    penalty: Penalty | None,
    backend: PartitionBackend | None,
    structural: ImpossibleStates | None,
    from_zero: bool,
    space: np.ndarray | None,
) -> Problem:
    """What the solver works on; without a backend the likelihood of a dense design.

    ``space`` is the basis of a subspace that theta is restricted to. The support of an infinite estimate is that of its
    limit, unless a path from zero is wanted.
    """
    if isinstance(data, Observations):
        if objective == "pseudo-likelihood":
            # The pseudo-likelihood of complete rows; an empty margin makes its maximum infinite, too.
            hypergraph = coordinates.hypergraph
            _check_single_steps(hypergraph, structural, is_declared=True)
            start, margins = np.zeros(hypergraph.num_parameters), data.marginal_counts(hypergraph.edges)
            target = PseudoLikelihood(hypergraph, data, coordinates, structural)
            problem = Problem(coordinates, target, start, data.total_count, np.empty(0), data, support=structural)
            if penalty is None:
                _with_limit(problem, margins, structural, None)
                if not problem.is_infinite:
                    problem.existence = None  # of the likelihood it says no more
                elif not from_zero:
                    _check_single_steps(hypergraph, problem.limit, is_declared=False)
                    problem.support = problem.limit
                    problem.objective = PseudoLikelihood(hypergraph, data, coordinates, problem.limit)
            return problem
        if backend is None:
            return _dense_problem(coordinates, data, structural, penalty, from_zero, space)
    # Likelihood from marginal counts, or its bound: the means of the statistics, from rows or margins.
    is_bound = objective == "bound"
    hypergraph = coordinates.hypergraph
    rows = data if isinstance(data, Observations) else None
    margins = (data.marginal_counts(hypergraph.edges) if isinstance(data, Observations) else data).to(torch.float64)
    if rows is not None:
        num_rows = rows.total_count
    else:
        num_rows = float(margins[next(iter(hypergraph.term_slices.values()))].sum())
    mean, own_mean = (c.statistics(margins) / num_rows for c in (coordinates, own_coordinates(hypergraph)))

    def through_backend(support: ImpossibleStates | None) -> Likelihood | LikelihoodBound:
        if is_bound:
            return LikelihoodBound(hypergraph, mean, buckets_of(backend), coordinates, support)
        assert backend is not None
        return Likelihood(hypergraph, mean, on_support(backend, support), coordinates, space)

    # Through the design where there is no backend; a subspace has fewer parameters.
    design, support = None, structural
    if backend is None:
        design, working = design_matrix(hypergraph), design_matrix(hypergraph, coordinates.coding)
        used = (working, mean) if space is None else (working @ space, mean @ space)
        likelihood: Objective = DenseLikelihood(*used)
    else:
        likelihood = through_backend(support)
    start = np.zeros(hypergraph.num_parameters if space is None else space.shape[1])
    problem = Problem(
        coordinates, likelihood, start, num_rows, own_mean, rows, margins, support, support, basis=space, design=design
    )
    if space is not None:
        problem.existence = MLEExistence(None, "unknown", is_complete=False)
    elif penalty is None:
        is_small = rows is not None and design_entries(hypergraph) <= SMALL_ENTRIES
        _with_limit(problem, margins, structural, rows if is_small and not is_bound else None)
        if problem.is_infinite and backend is not None and not from_zero:
            problem.support = problem.limit
            problem.objective = through_backend(problem.limit)
        elif is_bound and not problem.is_infinite:
            problem.existence = None  # of the likelihood it says no more
    if is_bound and rows is not None and not from_zero:
        # Roughly the maximum of the pseudo-likelihood, where the orders of mini-buckets can be told apart.
        target = PseudoLikelihood(problem.hypergraph, rows, problem.coordinates, problem.support)
        penalised: PseudoLikelihood | Penalised = target
        if isinstance(penalty, SmoothPenalty):
            penalised = Penalised(target, penalty, problem.hypergraph, problem.num_rows)
        first = penalised.evaluate(problem.start)
        problem.start = lbfgs(penalised.evaluate, first, _ROUGHLY, _START_STEPS, lambda *_: False).point.theta
    return problem


def _bound_or_likelihood(
    hypergraph: InteractionHypergraph, structural: ImpossibleStates | None, partition: PartitionBackend | None
) -> tuple[ObjectiveName, PartitionBackend | None]:
    """The objective of a fit by a bound, with its backend: the likelihood where that is exact at no higher cost."""
    graph = hypergraph if structural is None else structural.added_to(hypergraph)
    if is_exact_as_cheap(graph, partition):
        return "likelihood", None
    return "bound", checked_buckets(graph, hypergraph.num_parameters, partition)


def _least_likelihood(problem: Problem, theta: np.ndarray) -> float | None:
    """What the log-likelihood of all rows is at least, of a fit by its bound, in the coordinates of the solver."""
    bound = problem.objective
    return problem.num_rows * bound.certified(theta) if isinstance(bound, LikelihoodBound) else None


def _likelihood(
    problem: Problem,
    theta: torch.Tensor,
    impossible: ImpossibleStates | None,
    loss: float,
    partition: PartitionBackend | None,
) -> tuple[float | None, float | None]:
    """Log-likelihood of all rows and log Z; of another objective only where exact sums are within reach."""
    backend = Auto() if partition is None else partition
    if problem.objective.name == "likelihood" and backend.is_exact:
        return -problem.num_rows * loss, loss + float(theta.numpy() @ problem.own_mean)
    if not backend.is_exact:  # an estimate or a bound is not quoted as the likelihood
        backend = Auto(elimination=VariableElimination(max_operations=_QUICK_OPERATIONS))
    model = LogLinearEnergy.from_theta(problem.hypergraph, theta)
    model = model if impossible is None else impossible.applied(model)
    if problem.rows is None or not backend.plan(model.hypergraph).feasible:
        return None, None
    log_partition = float(backend.log_partition(model).value)
    rows = problem.rows.rows(problem.rows.counts > 0)
    energy = float(rows.counts @ model.energy(rows.codes))
    return -energy - problem.num_rows * log_partition, log_partition


def _warn(problem: Problem, outcome: Outcome, method: str, stopping: Stopping) -> None:
    """Say that there is no finite estimate, or that the criterion was not met."""
    existence = problem.existence if problem.is_infinite else None
    if existence is not None and (outcome.status == "infinite" or stopping.patience is None):
        warnings.warn(existence.describe(), NonexistentEstimateWarning, stacklevel=caller_level())
    if outcome.status not in ("converged", "infinite", "early_stopped"):
        warnings.warn(
            f"fit: {outcome.status} after {outcome.num_iterations} iterations of {method}, gradient "
            f"{outcome.norm:.2g} per row, tolerance {stopping.tolerance:.2g}; "
            "raise max_iterations or tolerance, or add a penalty",
            ConvergenceWarning,
            stacklevel=caller_level(),
        )
