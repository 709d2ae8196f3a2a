"""Which sampler of theta to take for a collection, a number of rows and a prior: by predicted cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..core.partition import Cost
from ..errors import check_type, check_whole, out_of_reach, refused as refused_because
from ..log_linear.annealed.importance import AnnealedImportance
from ..log_linear.auto import Auto
from ..log_linear.laws.natural_parameters import MAX_DENSE_PARAMETERS
from ..log_linear.laws.priors import DiaconisYlvisaker
from ..structure.hypergraph import InteractionHypergraph
from .posterior import is_normal, prior_of

__all__ = ["SamplerAdvice", "recommend_sampler"]

Method = Literal["conjugate", "nuts", "exchange", "bridged", "noisy", "pseudo", "langevin"]

_CALLS: dict[Method, str] = {
    "conjugate": "DiaconisYlvisaker.posterior(counts, total).sample((num_draws,))",
    "nuts": "sample_posterior(hypergraph, data, prior)",
    "exchange": "run_mcmc(Exchange(program, proposal='autoregressive'), num_chains=512)",
    "bridged": "run_mcmc(Exchange(program, num_bridges=3), num_chains=512)",
    "noisy": "run_mcmc(NoisyExchange(program, 4), num_chains=512)",
    "pseudo": "sample_pseudo_posterior(hypergraph, data, prior)",
    "langevin": "run_mcmc(Langevin(program, num_particles=max(256, num_rows)))",
}
_EFFECTIVE_DRAWS = 1000
_PATIENCE = 3600.0  # seconds for so many effective draws, beyond which an exact method counts as out of reach
_SMALL_TABLE = 2**22  # cells times terms, up to which whole tables are drawn
# Rates in seconds, of one core, fitted to the tables of bench_intractable.py in docs/benchmarks.md; those of
# elimination, of a NUTS gradient and of draws by row come from single timings, and tell the order of magnitude alone.
_PROGRAM = 4.4e-6  # a program at one of some hundred points
_CELL, _CELL_BY_PARAMETER = 4e-8, 1.9e-9  # a cell of a table that is drawn
_MEAN = 1.3e-9  # a cell and a parameter of exact mean statistics
_FLOP = 1.25e-8  # of elimination, with gradient
_GRADIENT, _PSEUDO_GRADIENT = 4.1e-4, 2.8e-4  # of NUTS, beside log Z or the pseudo-likelihood
_PSEUDO_LOOKUP, _CHAIN_LOOKUP, _SWEEP_LOOKUP = 3.1e-9, 1.5e-9, 3e-10  # of a row; kept and told chains; many sweeps
_GRADIENTS = 8  # of NUTS for an effective draw
_LANGEVIN_STEPS = 41  # of size 0.1
_MOVES, _MOVES_BY_PARAMETER = 30.0, 2.2  # of the autoregressive exchange kernel
_WALK, _BRIDGED_WALK, _NOISY_WALK = 2.0, 1.28, 1.6  # times as many by a random walk, with 3 bridges, with 4 data sets
_SETS = 4  # auxiliary data sets of these two
_SWEEPS, _PARTICLES = 200, 256


@dataclass(frozen=True)
class SamplerAdvice:
    """A sampler of theta, why, and what it and the others would cost.

    Attributes:
        method: "conjugate", "nuts", "exchange", "bridged", "noisy", "pseudo" or "langevin".
        reason: in one sentence.
        cost: predicted processor seconds for 1,000 effective draws of the worst parameter, to within a small factor;
            burn-in and compilation are not counted.
        is_exact: whether the method leaves the posterior invariant.
        call: how it is called.
        costs: of every method that is possible, from the cheapest on.
        refused: why the others are not possible.

    Example:
        >>> from pyro_hoim import Domain
        >>> advice = recommend_sampler(InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 40), 2), 2000)
        >>> advice.is_exact, sorted(advice.refused)
        (False, ['conjugate', 'nuts'])
    """

    method: Method
    reason: str
    cost: float
    is_exact: bool
    call: str
    costs: Mapping[Method, float]
    refused: Mapping[Method, str]


@dataclass(frozen=True)
class _Task:
    """What costs depend on: sizes, look-ups of a sweep over one row, and the cost of log Z."""

    num_parameters: int
    num_rows: int
    num_states: int
    lookups: int
    exact: Cost
    is_normal: bool

    @property
    def is_small(self) -> bool:
        """Whether whole tables are drawn."""
        return self.num_states * max(1, self.num_parameters) <= _SMALL_TABLE

    @property
    def draws_perfectly(self) -> bool:
        """Whether auxiliary data are perfect draws."""
        return self.is_small or self.exact.feasible


def recommend_sampler(hypergraph: InteractionHypergraph, num_rows: int, prior: Any = 1.0) -> SamplerAdvice:
    r"""The sampler of theta to take for so many rows: the cheapest exact one within reach, else the cheapest estimate.

    Costs follow from the plan of log Z (:class:`~pyro_hoim.log_linear.Auto`), the look-ups of a Gibbs sweep, the
    numbers of parameters, rows and cells, and rates that were measured once on one machine, most of them in
    ``docs/benchmarks.md``: rely on their order of magnitude. NUTS pays some gradients of log Z for an effective draw,
    whatever the number of parameters; an exchange kernel a number of auxiliary data sets that grows with it, each a
    table of cells where these are few, else sweeps over all rows; Langevin dynamics kept chains, as many as there are
    rows; the pseudo-posterior look-ups over distinct rows. An exact method that needs more than an hour for 1,000
    effective draws counts as out of reach.

    Args:
        hypergraph: the interactions.
        num_rows: number of rows N.
        prior: a positive number (scale of :func:`~pyro_hoim.log_linear.normal_prior`), or a Pyro distribution over the
            free coordinates. With :class:`~pyro_hoim.log_linear.DiaconisYlvisaker`, whose density holds log Z, only
            exact draws (decomposable collections) and NUTS are possible; a prior that is not normal excludes the
            pseudo-posterior.

    Raises:
        InputError: no parameters, a negative number of rows, or a prior that does not fit.
        InputTypeError: arguments of another type.
        IntractableError: a conjugate prior whose log Z is out of reach.

    Example:
        >>> from pyro_hoim import Domain
        >>> few = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
        >>> recommend_sampler(few, 2000).method
        'exchange'
        >>> recommend_sampler(InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 40), 2), 2000).method
        'pseudo'
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    check_whole(num_rows, "num_rows", 0)
    if not hypergraph.num_parameters:
        raise refused_because("hypergraph", "it has no parameters to draw", code="empty")
    law = prior_of(hypergraph, prior)
    exact = (law.partition if isinstance(law, DiaconisYlvisaker) else Auto()).plan(hypergraph)
    lookups = int(AnnealedImportance(num_chains=1, num_temperatures=1).plan(hypergraph).flops)
    num_states = hypergraph.domain.num_states
    task = _Task(hypergraph.num_parameters, num_rows, num_states, lookups, exact, is_normal(law))
    if isinstance(law, DiaconisYlvisaker):
        refused: dict[Method, str] = dict.fromkeys(_CALLS, "the density of the conjugate prior holds log Z")
        costs: dict[Method, float] = {"conjugate": _EFFECTIVE_DRAWS * _CELL * hypergraph.num_terms}
        if not hypergraph.is_decomposable:
            costs = {"nuts": _nuts(task)}
            if not exact.feasible:
                problem = f"the density of a conjugate prior holds log Z, and {exact.reason}"
                raise out_of_reach("prior", problem, "take a normal prior")
    else:
        costs, refused = _costs(task)
    costs = dict(sorted(costs.items(), key=lambda item: item[1]))
    return _chosen(task, costs, {name: why for name, why in refused.items() if name not in costs})


def _nuts(task: _Task) -> float:
    return _EFFECTIVE_DRAWS * _GRADIENTS * (_GRADIENT + task.exact.flops * _FLOP)


def _costs(task: _Task) -> tuple[dict[Method, float], dict[Method, str]]:
    """Seconds of every method that is possible, and why the others are not."""
    rows, size, costs = task.num_rows, task.num_parameters, dict[Method, float]()
    is_dense = size <= MAX_DENSE_PARAMETERS
    sweep = rows * task.lookups * _SWEEP_LOOKUP
    refused: dict[Method, str] = {"conjugate": "the prior is not conjugate"}
    if task.exact.feasible:
        costs["nuts"] = _nuts(task)
    else:
        refused["nuts"] = f"log Z: {task.exact.reason}"
    if task.is_small:
        data_set = task.num_states * (_CELL + _CELL_BY_PARAMETER * size)
    else:
        data_set = sweep + task.exact.flops * _FLOP if task.exact.feasible else _SWEEPS * sweep
    moves = _EFFECTIVE_DRAWS * (_MOVES + _MOVES_BY_PARAMETER * size)
    more = _SETS if task.draws_perfectly else 1  # a bridge is one more table, or one more sweep
    if is_dense:
        costs["exchange"] = moves * (_PROGRAM + data_set)
    else:  # by the adaptive walk
        costs["exchange"] = moves * _WALK * (_PROGRAM + data_set)
    costs["bridged"] = moves * _BRIDGED_WALK * (_PROGRAM + more * data_set)
    costs["noisy"] = moves * _NOISY_WALK * (_PROGRAM + _SETS * data_set)
    means = max(_PARTICLES, rows) * task.lookups * _CHAIN_LOOKUP
    if task.exact.feasible:
        means = min(task.exact.flops * _FLOP, task.num_states * size * _MEAN if task.is_small else math.inf)
    costs["langevin"] = _EFFECTIVE_DRAWS * _LANGEVIN_STEPS * (_PROGRAM + means)
    if not task.is_normal:
        refused["pseudo"] = "it needs a normal prior"
    elif not is_dense:
        refused["pseudo"] = f"{size} parameters, its Hessian is dense up to {MAX_DENSE_PARAMETERS}"
    elif 0 < rows <= size:
        refused["pseudo"] = f"its calibration needs more rows than the {size} parameters"
    else:
        gradient = _PSEUDO_GRADIENT + min(rows, task.num_states) * task.lookups * _PSEUDO_LOOKUP
        costs["pseudo"] = _EFFECTIVE_DRAWS * _GRADIENTS * gradient
    return costs, refused


def _chosen(task: _Task, costs: dict[Method, float], refused: dict[Method, str]) -> SamplerAdvice:
    """The advice, from costs in rising order."""
    exact_ones: list[Method] = ["conjugate", "nuts", *(("exchange", "bridged") if task.draws_perfectly else ())]
    within: list[Method] = [name for name in costs if name in exact_ones and costs[name] <= _PATIENCE]
    method: Method = next(iter(within or costs))
    is_exact = method in exact_ones
    if method == "conjugate":
        reason = "the posterior of a conjugate prior over a decomposable collection is drawn independently"
    elif is_exact:
        others = "" if len(within) < 2 else f", before {within[1]} with {costs[within[1]]:.2g}"
        reason = f"it is exact, and the cheapest that is: {costs[method]:.2g} seconds{others}"
    else:
        why = task.exact.reason if not task.exact.feasible else f"log Z costs {task.exact.flops:.2g} operations"
        note = "" if task.num_parameters <= MAX_DENSE_PARAMETERS else "; take preconditioner='none'"
        reason = f"no exact method is within reach ({why}), and it is the cheapest estimate{note}"
    return SamplerAdvice(method, reason, costs[method], is_exact, _CALLS[method], costs, refused)
