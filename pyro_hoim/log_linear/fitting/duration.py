"""How long a fit of given interactions takes, and what is refused or warned of for that before any work.

Seconds are formulas of the sizes of interactions and rows, the same for :func:`pyro_hoim.plan` and for a fit that is
about to begin; :mod:`pyro_hoim.planning` says how good they are. Only the engines of large tables differ too much from
each other for a formula: before a long fit one evaluation of log Z is timed.
"""

import math
import time
import warnings

import torch

from ...core.partition import Cost, PartitionBackend
from ...core.words import plural
from ...errors import CostWarning, caller_level, out_of_reach
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..energy import LogLinearEnergy
from .bound import buckets_of, is_exact_as_cheap
from .design import design_entries
from .existence import MAX_FACIAL_CELLS, MAX_FACIAL_PARAMETERS
from .fit import is_newton, uses_design

_EVALUATIONS = 16  # of log Z and its gradient, where there are many more rows than parameters
_FLOP, _FASTEST = 1.4e-8, 4e-9  # seconds per operation of the engines: on average, and at their best
_ENTRY = 5e-9  # seconds per entry of a dense design that is read for a value and its gradient
_STEP = 4e-10  # seconds per entry and parameter of a dense design, of all Newton steps together
_READ = 1.5e-7  # seconds per entry of a table that a row reads, of a whole fit by pseudo-likelihood
_BOUND_EVALUATIONS, _BUCKET_CELL = 400, 5e-8  # of mini-buckets in a fit by a bound, and seconds per cell of one
_PROGRAM = 1e5  # entries of the linear program of existence that take a second; time grows by their power 1.6
_COMPLETIONS = 8  # fits that summing over a few missing cells takes
_PENALISED, _REPEATS = 330, 15  # of log Z in a fit with a penalty by gradients, and of such fits in one by EM
_SHORT, _LONG, _MOST = 0.5, 10.0, 300.0
_MOST_STATES = 2**40  # from which on exact sums need no closer look
_SHORT_ENTRIES = 2**14  # of the design, with which a fit is short by any engine, so that none is planned
_LESS = (
    "fewer levels (pyro_hoim.data.bin_columns) or columns make smaller tables, a lower order fewer interactions, and "
    "learn() chooses them"
)
_FEWER_CELLS = "partition=MiniBuckets(max_cells=...) of pyro_hoim.log_linear takes less, for a looser bound"


def duration_words(seconds: float) -> str:
    """A length of time in words."""
    return plural(round(seconds), "second") if seconds < 100 else plural(round(seconds / 60), "minute")


def _evaluations(graph: InteractionHypergraph, num_rows: float) -> float:
    """Of log Z and its gradient: the fewer rows a parameter has, the further a fit goes."""
    return _EVALUATIONS * (1 + graph.num_parameters / max(1.0, num_rows))


def exact_seconds(
    graph: InteractionHypergraph,
    cost: Cost,
    num_rows: float,
    *,
    evaluation: float | None = None,
    has_missing: bool = False,
) -> float:
    """Seconds that a fit by exact inference takes very roughly.

    Args:
        graph: the interactions.
        cost: the plan of ``Auto()``.
        num_rows: rows that are fitted; infinitely many for margins.
        evaluation: seconds of one evaluation of log Z and its gradient; on average when None.
        has_missing: whether missing cells are summed over, which takes one fit after another.
    """
    design, parameters = design_entries(graph), graph.num_parameters
    if is_newton(graph):
        seconds = 0.02 + _STEP * design * parameters
    elif uses_design(graph):
        seconds = _evaluations(graph, num_rows) * _ENTRY * design
    else:
        seconds = _evaluations(graph, num_rows) * (_FLOP * cost.flops if evaluation is None else evaluation)
    # Of a sparse table a linear program finds the cells that the estimate gives no probability.
    states = graph.domain.num_states
    if states <= MAX_FACIAL_CELLS and parameters <= MAX_FACIAL_PARAMETERS and num_rows < min(states, parameters):
        seconds += ((states - num_rows) * (parameters - num_rows) / _PROGRAM) ** 1.6
    return seconds * (_COMPLETIONS if has_missing else 1)


def timed_seconds(graph: InteractionHypergraph, cost: Cost, num_rows: float) -> float:
    """As :func:`exact_seconds`, by one evaluation of the engine where the formula alone says too little.

    It evaluates log Z of the uniform law, once more where the first time it had to be loaded. What is short in any case
    is not timed, and neither is what takes more than five minutes at best.
    """
    least = _evaluations(graph, num_rows) * _FASTEST * cost.flops
    if uses_design(graph) or 10 * least < _SHORT or least > _MOST:
        return exact_seconds(graph, cost, num_rows)
    tables = torch.zeros(graph.num_terms, dtype=torch.float64, requires_grad=True)
    taken = list[float]()
    while len(taken) < 2 and sum(taken) < _LONG / _EVALUATIONS:
        start = time.perf_counter()
        Auto().log_partition(LogLinearEnergy(graph, tables, validate=False)).value.backward()
        taken.append(time.perf_counter() - start)
    return exact_seconds(graph, cost, num_rows, evaluation=min(taken))


def pair_reads(levels: list[int]) -> int:
    """Entries of the tables of all pairs that one row reads for the conditionals of all columns."""
    return sum(levels) * (len(levels) - 1)


def pseudo_seconds(reads: int, num_parameters: float, num_rows: float) -> float:
    """Seconds that a fit by pseudo-likelihood takes very roughly.

    Args:
        reads: entries of tables that one row reads, as :func:`pair_reads` counts them for all pairs.
        num_parameters: of the model.
        num_rows: rows that differ.
    """
    return 0.1 + _READ * reads * num_rows * (1 + 0.1 * num_parameters / max(1.0, num_rows))


def _warn(seconds: float, what: str, less: str) -> None:
    if seconds > _LONG:
        warning = f"the fit takes very roughly {duration_words(seconds)} ({what})"
        warnings.warn(CostWarning(f"{warning}; {less}"), stacklevel=caller_level())


def check_duration(graph: InteractionHypergraph, num_rows: float, *, has_missing: bool = False) -> None:
    """Refuse a fit that would take more than five minutes, before anything is computed, and say how long others take.

    Raises:
        IntractableError: a fit that takes longer with the fastest engine, or log Z out of reach.

    Warns:
        CostWarning: more than ten seconds.
    """
    if design_entries(graph) <= _SHORT_ENTRIES and not has_missing:
        return
    cost = Auto().plan(graph).check()
    tables = f"tables of up to {plural(cost.cells, 'cell')}"
    seconds, evaluations = timed_seconds(graph, cost, num_rows), _evaluations(graph, num_rows)
    if not uses_design(graph) and seconds > _MOST and evaluations * _FASTEST * cost.flops > _MOST:
        problem = f"{tables}, summed some {evaluations:.0f} times, take very roughly {duration_words(seconds)}"
        raise out_of_reach("the fit", problem, f"{_LESS}; partition=Auto() of pyro_hoim.log_linear takes the time")
    _warn(seconds * (_COMPLETIONS if has_missing else 1), tables, _LESS)


def incomplete_seconds(graph: InteractionHypergraph, num_rows: float) -> float:
    """Seconds that a fit with a penalty, by exact sums over missing cells, takes very roughly; infinite out of reach.

    Tables with rare levels take three times as many steps, others a third.
    It evaluates log Z of the uniform law as :func:`timed_seconds` does.
    """
    if graph.domain.num_states > _MOST_STATES:
        return math.inf
    cost = Auto().plan(graph)
    if not cost.feasible:
        return math.inf
    if uses_design(graph):
        return exact_seconds(graph, cost, num_rows, has_missing=True)
    evaluation = timed_seconds(graph, cost, num_rows) / _evaluations(graph, num_rows)
    return _REPEATS * _PENALISED * evaluation


def check_incomplete_duration(graph: InteractionHypergraph, num_rows: float, less: str) -> None:
    """Say of a fit with a penalty that sums over missing cells how long it takes, and what takes ``less``.

    Warns:
        CostWarning: more than ten seconds.
    """
    seconds = incomplete_seconds(graph, num_rows)
    if math.isfinite(seconds):
        _warn(seconds, "missing cells are summed over in one fit after another", less)


def bound_seconds(total_cells: float) -> float:
    """Seconds that a fit by its bound takes very roughly, in mini-buckets of so many cells together."""
    return 0.1 + _BOUND_EVALUATIONS * _BUCKET_CELL * total_cells


def check_bound_duration(graph: InteractionHypergraph, partition: PartitionBackend | None) -> None:
    """Say of a fit by its bound how long it takes.

    Raises:
        InputError: a backend other than mini-buckets.

    Warns:
        CostWarning: more than ten seconds.
    """
    if not is_exact_as_cheap(graph, partition):
        cost = buckets_of(partition).plan(graph)
        _warn(bound_seconds(cost.total_cells), f"mini-buckets of up to {plural(cost.cells, 'cell')}", _FEWER_CELLS)


def check_pseudo_duration(graph: InteractionHypergraph, num_rows: float) -> None:
    """Say of a fit by pseudo-likelihood how long it takes.

    Warns:
        CostWarning: more than ten seconds.
    """
    num_rows = min(num_rows, graph.domain.num_states)
    # Entries of the tables of interactions that one row reads for the conditionals of all columns.
    cards = graph.domain.cardinalities
    reads = sum(cards[i] for members in graph.edge_indices if len(members) > 1 for i in members)
    seconds = pseudo_seconds(reads, graph.num_parameters, num_rows)
    _warn(seconds, f"{plural(graph.num_parameters, 'parameter')}, {plural(num_rows, 'row')}", _LESS)
