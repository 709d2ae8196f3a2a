"""Exact laws of dependency networks: where pseudo-Gibbs sampling settles, by random and by sequential scan."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, SupportsIndex, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres

from ..core.partition import state_text
from ..errors import (
    ConvergenceWarning,
    check_choice,
    check_type,
    check_whole,
    conflict,
    is_whole,
    out_of_reach,
    size_text,
    unexpected,
    wrong_type,
)
from ..schema import Domain
from .chains.ergodicity import closed_classes, move_graph
from .conditionals import DependencyConditionals, checked_conditionals
from .scan import Scan, ScanLike, checked_scan

# Fixed point of a map of laws: plain iteration, with Krylov steps where it is slow.

Floats = NDArray[Any]

_BLOCK = 16  # steps between two looks at the residual
_TAIL = 4  # of them, the last ones give the rate of convergence
_SLOW = 8 * _BLOCK  # with more steps than that to go, Krylov steps are tried
_ROUNDING = 4e-16  # residual (total mass that moves) that rounding leaves
_ALLOWED = 1e-9  # error that is accepted where rounding ends the iteration
_SETTLED = 1e-10  # change of a cell relative to itself at which it has settled
_MAX_SETTLING = 1024
_KRYLOV = (30, 60, 120)  # steps of a Krylov run, longer each time


class FixedPoint(NamedTuple):
    """A fixed law (num_states,), the mass that one more step moves, its error, steps, and how it ended."""

    law: Floats
    residual: float
    error: float
    num_iterations: int
    is_converged: bool
    is_settled: bool = False


def fixed_point(
    step: Callable[[Floats], Floats], is_recurrent: NDArray[Any], tolerance: float, max_iterations: int
) -> FixedPoint:
    """Law with ``step(law) == law`` of a stochastic map with one fixed law, to which plain iteration must converge.

    A map that hardly ever moves mass between some sets of states leaves nearly fixed any mixture of their laws, so a
    small residual alone says nothing. Hence two runs, from the uniform law and from the most probable state of its
    result; what they differ by counts as error. At the end plain steps settle small cells, for they subtract nothing.
    """
    # Two runs, from the flattest law and from the most concentrated one.
    uniform = is_recurrent / is_recurrent.sum()
    first = _run(step, uniform, uniform, tolerance, max_iterations)
    if not first.is_converged:
        return first
    start = np.zeros(len(uniform))
    start[first.law.argmax()] = 1.0
    second = _run(step, start, uniform, tolerance, max_iterations)
    error = max(first.error, second.error, float(np.abs(first.law - second.law).sum()))
    is_converged = second.is_converged and error <= max(_ALLOWED, 2 * tolerance)
    residual = max(first.residual, second.residual)
    # What Krylov steps leave in small cells is wiped out by plain ones.
    law, used, is_settled = _settle_cells(step, first.law, is_recurrent)
    used += first.num_iterations + second.num_iterations
    return FixedPoint(law, residual, error, used, is_converged, is_settled)


def _settle_cells(
    step: Callable[[Floats], Floats], law: Floats, is_recurrent: NDArray[Any]
) -> tuple[Floats, int, bool]:
    """Plain steps until no cell changes by more than a small share of itself; steps made, and whether that was met."""
    for used in range(1, _MAX_SETTLING + 1):
        after = step(law)
        after /= after.sum()
        if used % _BLOCK == 0 and bool((np.abs(after - law) <= _SETTLED * after).all()):
            return after, used, bool((after[is_recurrent] > 0).all())
        law = after
    return law, _MAX_SETTLING, False


def _run(
    step: Callable[[Floats], Floats], law: Floats, uniform: Floats, tolerance: float, max_iterations: int
) -> FixedPoint:
    """One run from a law.

    The error is what is left of a geometric series with the slowest rate seen. Krylov steps solve (identity - map +
    uniform law x sum) law = uniform law, which has the fixed law as its only solution.
    """
    used = runs = 0
    rate, residual, error = 0.0, math.inf, math.inf
    # Plain steps show the rate; where it is slow, Krylov steps jump ahead.
    while used < max_iterations:
        law, before, residual = _iterate(step, law)
        used += _BLOCK
        if residual > 100 * _ROUNDING:
            rate = max(rate, (residual / before) ** (1 / _TAIL))
        error = residual * rate / (1 - rate) if rate < 1 else math.inf
        if error <= tolerance or (residual <= _ROUNDING and error <= _ALLOWED):
            return FixedPoint(law, residual, error, used, True)
        to_go = math.log(tolerance / error) / math.log(rate) if rate < 1 else math.inf
        if to_go > _SLOW and used < max_iterations:
            length = _KRYLOV[min(runs, len(_KRYLOV) - 1)]
            # Improve a law by one run of GMRES; negative entries are cut off.
            n = len(law)
            make: Any = LinearOperator  # its factory takes other arguments than the class that SciPy annotates
            operator = make((n, n), matvec=lambda x: x - step(x) + x.sum() * uniform, dtype=np.float64)
            improved, _ = gmres(operator, uniform, x0=law, rtol=0.0, atol=1e-17, restart=length, maxiter=1)
            improved = np.maximum(improved, 0.0)
            jump = improved / improved.sum()
            used += length
            runs += 1
            if float(np.abs(step(jump) - jump).sum()) < residual:
                law = jump
    return FixedPoint(law, residual, error, used, False)


def _iterate(step: Callable[[Floats], Floats], law: Floats) -> tuple[Floats, float, float]:
    """A block of plain steps; the mass moved by the step ``_TAIL`` before the last, and by the last."""
    before = last = 0.0
    for k in range(_BLOCK):
        after = step(law)
        after /= after.sum()
        if k >= _BLOCK - 1 - _TAIL:
            last = float(np.abs(after - law).sum())
            before = last if k == _BLOCK - 1 - _TAIL else before
        law = after
    return law, before, last


StationaryMethod = Literal["auto", "solve", "power"]
Clamp = Mapping[str, str | SupportsIndex]


_AUTO_SOLVE = 1024
_MAX_SOLVE = 4096
_PATIENCE = 2000  # iterations after which elimination is quicker
_NEAR_ZERO = 1e-3
_SHOWN_CLASSES = 3
_TOLERANCE = 1e-12  # misplaced mass at which the iteration ends
_FACTS = ("residual", "error", "num_iterations", "is_converged")


@dataclass(frozen=True, eq=False, kw_only=True)
class _Settled:
    """What both kinds of laws say of how they were found."""

    domain: Domain
    probs: torch.Tensor = field(repr=False)
    clamped: Mapping[str, int]
    scan: Scan = field(repr=False)
    method: Literal["solve", "power"] = "solve"
    residual: float = 0.0
    error: float = 0.0
    num_iterations: int = 0
    is_converged: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class StationaryLaw(_Settled):
    r"""The law that pseudo-Gibbs sampling of a dependency network settles at.

    Attributes:
        domain: the variables that are updated, clamped ones left out.
        probs: the law (\*cardinalities), float64, summing to one; of the sequential scan the mean of its cyclic laws.
        clamped: codes of the clamped variables, by name.
        scan: the scan of the others.
        method: ``solve`` (elimination of states) or ``power`` (iteration).
        residual: probability mass that one more step, or sweep, moves.
        error: estimate of the mass that is misplaced; zero for ``solve``, whose cells are right to rounding.
        num_iterations: steps or sweeps made; zero for ``solve``.
        is_converged: whether ``error`` is within the tolerance, or within 1e-9 where rounding ended the iteration.
    """


@dataclass(frozen=True, eq=False, kw_only=True)
class CyclicLaws(_Settled):
    r"""The laws between which the sequential scan goes round, one before the update of each variable.

    The fields that are not named here are those of :class:`StationaryLaw`.

    Attributes:
        probs: (num_variables, \*cardinalities), float64; entry k is the law just before ``scan.order[k]`` is updated,
            which is the law just after the variable before it in the order was (for k = 0, the last one).
    """

    def before(self, name: str) -> torch.Tensor:
        r"""The law just before a variable is updated, (\*cardinalities)."""
        self.domain.index(name)
        return self.probs[self.scan.order.index(name)]

    def after(self, name: str) -> torch.Tensor:
        r"""The law just after a variable was updated, (\*cardinalities); its conditional is the network's own."""
        self.domain.index(name)
        return self.probs[(self.scan.order.index(name) + 1) % len(self.scan.order)]

    @property
    def mean(self) -> torch.Tensor:
        r"""Mean of the laws (\*cardinalities): how often a state is seen if every single update is recorded (3)."""
        return self.probs.mean(0) if len(self.scan.order) else torch.ones((), dtype=torch.float64)


def stationary_law(
    conditionals: DependencyConditionals,
    *,
    scan: ScanLike = "random",
    clamped: Clamp | None = None,
    method: StationaryMethod = "auto",
    max_iterations: int = 100_000,
    max_states: int = 2**16,
) -> StationaryLaw:
    r"""Law at which pseudo-Gibbs sampling of a dependency network settles, as a table over all joint states.

    .. math:: \pi(x) = \sum_i c_i \, \pi(x_{-i}) \, \theta_i(x_i \mid x_{-i})

    That is the random scan. The sequential scan has no such law; its law here is the mean of the cyclic laws
    (:func:`cyclic_laws`), equation 3. With clamped variables it is the law :math:`\pi'(x \mid x_C)` of conditional
    pseudo-Gibbs sampling, which is not the conditional of :math:`\pi` unless the conditionals fit one joint law;
    evidence that the network itself never meets is taken as it is.

    Up to 1,024 states the law is found by eliminating states without subtractions, O(num_states^3) and right to
    rounding in every cell. Above by iteration with Krylov steps, O(num_states x num_variables) each: a fraction of a
    second for 12 binary variables, seconds for 16. It is made twice, from two starts, because a chain that hardly ever
    leaves some sets of states can seem to have settled; where the two disagree, or cells far below 1e-16 do not settle,
    ``auto`` eliminates up to 4,096 states (seconds); above, a warning tells of disagreement, and cells that small may
    be wrong. States that the chain leaves for ever get probability zero.

    Args:
        conditionals: one conditional per variable.
        scan: as of :class:`~pyro_hoim.dependency_network.PseudoGibbsChains`.
        clamped: label or code of variables that are held fixed.
        method: ``solve`` (up to 4,096 states), ``power``, or ``auto``.
        max_iterations: most steps, or sweeps, of the iteration.
        max_states: largest number of joint states allowed.

    Raises:
        InputError: an option is out of range, or the network has several closed classes of states, one state of each
            being named: where it settles then depends on the start.
        InputTypeError: ``conditionals`` has the wrong type.
        IntractableError: more states than allowed; nothing was computed.
        UnknownNameError: a name or label is unknown.

    Warns:
        ConvergenceWarning: the iteration ended before its criterion was met.

    References:
        Paper 5, equations 1 to 5 and section 5. Winfried Grassmann, Michael Taksar and Daniel Heyman, Regenerative
        Analysis and Steady State Distributions for Markov Chains, 1985.

    Example:
        >>> from pyro_hoim.dependency_network import DependencyConditionals, TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> copy, fair = torch.eye(2).double() * 0.8 + 0.1, torch.full((2, 2), 0.5).double()
        >>> nodes = [TableConditional(domain, "a", ["b"], copy), TableConditional(domain, "b", ["a"], fair)]
        >>> law = stationary_law(DependencyConditionals(nodes))
        >>> [[round(p, 6) for p in row] for row in law.probs.tolist()]
        [[0.35, 0.15], [0.15, 0.35]]
    """
    free = _Free(conditionals, scan, clamped, method, max_iterations, max_states)
    if free.scan.selection is None:
        laws = _cyclic_laws(free)
        facts: dict[str, Any] = {**vars(laws), "probs": laws.mean}
        return StationaryLaw(**facts)
    from ._stationary_kernels import mix_updates

    tables, levels, strides = free.tables, np.array(free.levels), np.array(free.strides)
    weights = np.array(list(free.scan.selection.values()))
    law, facts_of_law = free.settle(tables, lambda law: mix_updates(law, tables, levels, strides, weights), method)
    return StationaryLaw(probs=torch.from_numpy(law).reshape(free.levels), **free.named, **facts_of_law)


def cyclic_laws(
    conditionals: DependencyConditionals,
    scan: Scan | Literal["sequential"] | Sequence[str] = "sequential",
    *,
    clamped: Clamp | None = None,
    method: StationaryMethod = "auto",
) -> CyclicLaws:
    r"""Laws between which pseudo-Gibbs sampling by sequential scan goes round, one for each position of a sweep.

    .. math:: \pi^{k+1}(x) = \pi^k(x_{-i}) \, \theta_i(x_i \mid x_{-i}), \quad i = \text{the k-th of the order}

    Just after its update a variable has the network's own conditional, just before it in general not. Also for sweeps
    that return to the same state with some period only, such as deterministic ones. Arguments, costs, errors and
    warnings are those of :func:`stationary_law`, with sweeps in the place of steps; a random scan is refused.

    References:
        Paper 5, section 3.1 and equation 3.

    Example:
        >>> from pyro_hoim.dependency_network import DependencyConditionals, TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> copy, fair = torch.eye(2).double() * 0.8 + 0.1, torch.full((2, 2), 0.5).double()
        >>> nodes = [TableConditional(domain, "a", ["b"], copy), TableConditional(domain, "b", ["a"], fair)]
        >>> laws = cyclic_laws(DependencyConditionals(nodes))
        >>> laws.before("a").round(decimals=4).tolist(), laws.after("a").round(decimals=4).tolist()
        ([[0.25, 0.25], [0.25, 0.25]], [[0.45, 0.05], [0.05, 0.45]])
    """
    free = _Free(conditionals, scan, clamped, method)
    if free.scan.selection is not None:
        raise conflict("scan", "a random scan has one stationary law and no cyclic ones", "pass scan='sequential'")
    return _cyclic_laws(free)


def _cyclic_laws(free: _Free) -> CyclicLaws:
    """The laws of a sequential scan."""
    from ._stationary_kernels import update_node

    tables, sweep = free.tables, free.domain.indices(free.scan.order)
    is_lazy = bool((tables < _NEAR_ZERO).any())  # a sweep may then be periodic, or nearly so, which half a step is not

    def step(law: Floats) -> Floats:
        after = law.copy()
        for i in sweep:
            update_node(after, tables[i], free.levels[i], free.strides[i])
        return (law + after) / 2 if is_lazy else after

    law, facts_of_law = free.settle(tables, step, free.method)
    # One sweep from the fixed law passes the law before every update.
    laws: list[Floats] = []
    for i in sweep:
        laws.append(law.copy())
        update_node(law, tables[i], free.levels[i], free.strides[i])
    return CyclicLaws(probs=torch.from_numpy(np.array(laws)).reshape(-1, *free.levels), **free.named, **facts_of_law)


class _Free:
    """The network of the variables that are updated, the layout of their flat law, and how it is to be found."""

    def __init__(
        self,
        conditionals: DependencyConditionals,
        scan: ScanLike,
        clamped: Clamp | None,
        method: StationaryMethod,
        max_iterations: int = 100_000,
        max_states: int = 2**16,
    ) -> None:
        # The network of the variables that are not clamped.
        check_choice(method, get_args(StationaryMethod), "method")
        check_whole(max_iterations, "max_iterations")
        conditionals = checked_conditionals(conditionals)
        check_type(clamped, Mapping | None, "clamped", "a mapping from names to values")
        codes = conditionals.domain.encode_state(clamped or {})
        self.network = conditionals.condition(codes) if codes else conditionals
        self.domain = self.network.domain
        self.levels = self.domain.cardinalities
        self.strides = tuple(math.prod(self.levels[i + 1 :]) for i in range(len(self.levels)))
        self.scan = checked_scan(conditionals.domain, self.domain.names, scan)
        self.named: dict[str, Any] = {"domain": self.domain, "clamped": codes, "scan": self.scan}
        self.method: StationaryMethod = method
        self.max_iterations = max_iterations
        # Its table has to fit the budget.
        if not is_whole(max_states):
            raise wrong_type("max_states", "a whole number", max_states)
        size = self.domain.num_states
        if size > max_states:
            problem = f"their law is a table of {size_text(size, 'cells')}, the budget is max_states={max_states}"
            hint = "raise max_states, clamp variables, or draw from it by pseudo-Gibbs sampling"
            raise out_of_reach("conditionals", problem, hint)
        if method == "solve" and size > _MAX_SOLVE:
            problem = f"solve takes at most {_MAX_SOLVE} states, received {size_text(size)}"
            raise out_of_reach("method", problem, "use method='power'")

    @property
    def tables(self) -> Floats:
        """Probability of a state's own level given the others, (num_variables, num_states)."""
        tables = [self.network.full_table(name).detach().cpu().reshape(-1).numpy() for name in self.domain.names]
        return np.array(tables)

    def settle(
        self, tables: Floats, step: Callable[[Floats], Floats], method: StationaryMethod
    ) -> tuple[Floats, dict[str, Any]]:
        """The law that a step leaves as it is, and how it was found, as fields of a result."""
        if not len(self.domain):
            return np.ones(1), {}
        size = self.domain.num_states
        recurrent, is_recurrent = self._recurrent(tables)
        if method == "solve" or (method == "auto" and size <= _AUTO_SOLVE):
            # Elimination of states; one that every state leads to stays to the end.
            from ._stationary_kernels import stationary_by_elimination

            matrix = np.empty((size, size))
            unit = np.zeros(size)
            for x in range(size):
                unit[x] = 1.0
                matrix[x] = step(unit)
                unit[x] = 0.0
            # Elimination ends at state 0, which has to be one that every state leads to.
            matrix[[0, recurrent]] = matrix[[recurrent, 0]]
            matrix[:, [0, recurrent]] = matrix[:, [recurrent, 0]]
            law = stationary_by_elimination(matrix)
            law[[0, recurrent]] = law[[recurrent, 0]]
            residual = float(np.abs(step(law) - law).sum())
            if math.isfinite(residual):
                return law, {"residual": residual}
        can_solve = method == "auto" and size <= _MAX_SOLVE
        most = min(self.max_iterations, _PATIENCE) if can_solve else self.max_iterations
        end = fixed_point(step, is_recurrent, _TOLERANCE, most)
        if can_solve and not (end.is_converged and end.is_settled):
            return self.settle(tables, step, "solve")
        if not end.is_converged:
            warnings.warn(
                f"the stationary law did not settle within {end.num_iterations} iterations: a step moves a mass of "
                f"{end.residual:.2g}, the estimated error is {end.error:.2g}; raise max_iterations, or smooth "
                "probabilities near zero, which let a chain hardly ever leave some sets of states",
                ConvergenceWarning,
                stacklevel=3,
            )
        facts = end._asdict()
        return facts.pop("law"), {"method": "power", **{name: facts[name] for name in _FACTS}}

    def _recurrent(self, tables: Floats) -> tuple[int, NDArray[np.bool_]]:
        """A state that every state leads to, and whether states are visited again and again; refused where none is."""
        size = self.domain.num_states
        if bool((tables > 0).all()):
            return 0, np.ones(size, dtype=bool)
        # Zeros may keep the chain within several sets of states; then no law is the law.
        positive: list[NDArray[np.bool_]] = []
        for table, levels, stride in zip(tables, self.levels, self.strides, strict=True):
            to = (table > 0).reshape(-1, 1, levels, stride).swapaxes(2, 3)
            positive.append(np.repeat(to, levels, axis=1).reshape(size, levels))
        order = self.domain.indices(self.scan.order) if self.scan.selection is None else None
        class_of = closed_classes(move_graph(positive, self.levels, order), size)
        numbers, first = np.unique(class_of, return_index=True)
        first = first[numbers >= 0]
        if len(first) > 1:
            codes = np.array(np.unravel_index(first[:_SHOWN_CLASSES], self.levels)).T
            labels = ([v.labels[k] for v, k in zip(self.domain, row, strict=True)] for row in codes.tolist())
            shown = "; ".join(state_text(self.domain.names, row) for row in labels)
            more = "; ..." * (len(first) > _SHOWN_CLASSES)
            received = (
                f"one with {size_text(len(first))} closed sets of states that no chain leaves, around {shown}{more}"
            )
            hint = "where it settles depends on the start. Smooth the conditional tables or clamp a variable"
            raise unexpected("conditionals", "an ergodic network", hint=hint, received=received, code="no-method")
        return int(first[0]), class_of >= 0
