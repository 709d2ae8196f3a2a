"""How long a fit by exact inference will take: one evaluation of log Z and its gradient is timed before it begins."""

from __future__ import annotations

import time
import warnings

import torch

from ...core.partition import Cost
from ...core.words import plural
from ...errors import CostWarning, caller_level, out_of_reach
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..energy import LogLinearEnergy

_EVALUATIONS = 30  # of log Z and its gradient: fits of 300 to 20,000 rows without a prior took 9 to 46
_FASTEST = 4e-9  # seconds per operation of the engines at their best
_SHORT, _LONG, _MOST = 1.0, 10.0, 300.0


def expected_seconds(graph: InteractionHypergraph, cost: Cost) -> float:
    """Seconds that a fit of interactions takes very roughly; 0 where it is short.

    What ``cost``, the plan of ``Auto()``, says of operations differs between engines by a factor of ten in time. So
    the engine is asked: it evaluates log Z of the uniform law, once more where the first time it had to be loaded. What
    takes more than five minutes at best is not tried.
    """
    least = _EVALUATIONS * _FASTEST * cost.flops
    if 10 * least < _SHORT or least > _MOST:
        return 2 * least if least > _MOST else 0.0
    tables = torch.zeros(graph.num_terms, dtype=torch.float64, requires_grad=True)
    taken = list[float]()
    while len(taken) < 2 and sum(taken) < _LONG / _EVALUATIONS:
        start = time.perf_counter()
        Auto().log_partition(LogLinearEnergy(graph, tables, validate=False)).value.backward()
        taken.append(time.perf_counter() - start)
    return _EVALUATIONS * min(taken)


def duration_words(seconds: float) -> str:
    """A length of time in words."""
    return plural(round(seconds), "second") if seconds < 100 else plural(round(seconds / 60), "minute")


def check_duration(graph: InteractionHypergraph) -> None:
    """Refuse a fit that would take more than five minutes, before anything is computed, and say how long others take.

    Raises:
        IntractableError: a fit that takes longer with the fastest engine, or log Z out of reach.

    Warns:
        CostWarning: more than ten seconds.
    """
    cost = Auto().plan(graph).check()
    less = (
        "fewer levels (pyro_hoim.data.bin_columns) or columns make smaller tables, a lower order fewer interactions, "
        "and learn() chooses them"
    )
    tables = f"tables of up to {plural(cost.cells, 'cell')}"
    if (seconds := expected_seconds(graph, cost)) > _MOST and _EVALUATIONS * _FASTEST * cost.flops > _MOST:
        problem = f"{tables}, summed some {_EVALUATIONS} times, take very roughly {duration_words(seconds)}"
        raise out_of_reach("the fit", problem, f"{less}; partition=Auto() of pyro_hoim.log_linear takes the time")
    if seconds > _LONG:
        warning = f"the fit takes very roughly {duration_words(seconds)} ({tables})"
        warnings.warn(CostWarning(f"{warning}; {less}"), stacklevel=caller_level())
