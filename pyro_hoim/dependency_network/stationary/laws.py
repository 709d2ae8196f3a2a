"""Exact laws of dependency networks: where pseudo-Gibbs sampling settles, by random and by sequential scan."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, SupportsIndex, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.certificate import state_text
from ...errors import (
    ConvergenceWarning,
    check_choice,
    check_positive,
    check_whole,
    is_whole,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_type,
)
from ...schema import Domain
from ..conditionals import DependencyConditionals
from ..scan import selection_probs
from ._closed_classes import closed_classes
from ._fixed_point import fixed_point

__all__ = ["CyclicLaws", "StationaryLaw", "StationaryMethod", "StationaryScan", "cyclic_laws", "stationary_law"]

StationaryMethod = Literal["auto", "solve", "power"]
StationaryScan = Literal["random", "sequential"]
Clamp = Mapping[str, str | SupportsIndex]
Floats = NDArray[Any]

_AUTO_SOLVE = 1024
_MAX_SOLVE = 4096
_PATIENCE = 2000  # iterations after which elimination is quicker
_NEAR_ZERO = 1e-3
_SHOWN_CLASSES = 3
_FACTS = ("residual", "error", "num_iterations", "is_converged")


@dataclass(frozen=True, eq=False, kw_only=True)
class _Settled:
    """What both kinds of laws say of how they were found."""

    domain: Domain
    probs: torch.Tensor = field(repr=False)
    clamped: Mapping[str, int]
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
        method: ``solve`` (elimination of states) or ``power`` (iteration).
        residual: probability mass that one more step, or sweep, moves.
        error: estimate of the mass that is misplaced; zero for ``solve``, whose cells are right to rounding.
        num_iterations: steps or sweeps made; zero for ``solve``.
        is_converged: whether ``error`` is within the tolerance, or within 1e-9 where rounding ended the iteration.
        scan: ``random`` or ``sequential``.
        selection: probability c_i with which the random scan updates a variable, by name; None for the other one.
        order: the order of the sequential scan; None for the other one.
    """

    scan: StationaryScan
    selection: Mapping[str, float] | None = field(default=None, repr=False)
    order: tuple[str, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class CyclicLaws(_Settled):
    r"""The laws between which the sequential scan goes round, one before the update of each variable.

    The fields that are not named here are those of :class:`StationaryLaw`.

    Attributes:
        probs: (num_variables, \*cardinalities), float64; entry k is the law just before ``order[k]`` is updated, which
            is the law just after the variable before it in the order was (for k = 0, the last one).
        order: the order of a sweep.
    """

    order: tuple[str, ...]

    def _place(self, name: str) -> int:
        self.domain.index(name)
        return self.order.index(name)

    def before(self, name: str) -> torch.Tensor:
        r"""The law just before a variable is updated, (\*cardinalities).

        Raises:
            UnknownNameError: no variable that is updated has this name.
        """
        return self.probs[self._place(name)]

    def after(self, name: str) -> torch.Tensor:
        r"""The law just after a variable was updated, (\*cardinalities); its conditional is the network's own.

        Raises:
            UnknownNameError: no variable that is updated has this name.
        """
        return self.probs[(self._place(name) + 1) % len(self.order)]

    @property
    def mean(self) -> torch.Tensor:
        r"""Mean of the laws (\*cardinalities): how often a state is seen if every single update is recorded (3)."""
        return self.probs.mean(0) if len(self.order) else torch.ones((), dtype=torch.float64)


def stationary_law(
    conditionals: DependencyConditionals,
    *,
    scan: StationaryScan = "random",
    selection: Mapping[str, float] | Sequence[float] | None = None,
    order: Sequence[str] | None = None,
    clamped: Clamp | None = None,
    method: StationaryMethod = "auto",
    tolerance: float = 1e-12,
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
        scan: ``random`` or ``sequential``.
        selection: c_i of the random scan by name, or in schema order; positive, summing to 1; default all equal. Those
            of clamped variables are left out and the others divided by their sum.
        order: order of the sequential scan, every variable that is not clamped once; default schema order.
        clamped: label or code of variables that are held fixed.
        method: ``solve`` (up to 4,096 states), ``power``, or ``auto``.
        tolerance: largest estimated misplaced probability mass at which the iteration ends.
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
    check_choice(scan, get_args(StationaryScan), "scan")
    if scan == "sequential":
        if selection is not None:
            raise unexpected("selection", "None with scan='sequential', which has an order instead", code="conflict")
        laws = cyclic_laws(
            conditionals,
            order=order,
            clamped=clamped,
            method=method,
            tolerance=tolerance,
            max_iterations=max_iterations,
            max_states=max_states,
        )
        fields: dict[str, Any] = {**vars(laws), "probs": laws.mean, "scan": scan}
        return StationaryLaw(**fields)
    if order is not None:
        raise unexpected("order", "None with scan='random', which has selection probabilities instead", code="conflict")
    _check_options(method, tolerance, max_iterations)
    codes, network, free = _free_network(conditionals, clamped)
    weights = selection_probs(conditionals.domain, free.domain.names, selection)
    free.check(max_states, method)
    common: dict[str, Any] = {"domain": free.domain, "clamped": codes, "scan": scan}
    common["selection"] = dict(zip(free.domain.names, weights.tolist(), strict=True))
    if not len(free.domain):
        return StationaryLaw(probs=torch.ones((), dtype=torch.float64), **common)
    from ._kernels import mix_updates

    tables = _tables(network)
    levels, strides = np.array(free.levels), np.array(free.strides)
    law, found = _settle(
        free, tables, None, lambda law: mix_updates(law, tables, levels, strides, weights), method, tolerance,
        max_iterations,
    )  # fmt: skip
    return StationaryLaw(probs=torch.from_numpy(law).reshape(free.domain.cardinalities), **common, **found)


def cyclic_laws(
    conditionals: DependencyConditionals,
    order: Sequence[str] | None = None,
    *,
    clamped: Clamp | None = None,
    method: StationaryMethod = "auto",
    tolerance: float = 1e-12,
    max_iterations: int = 100_000,
    max_states: int = 2**16,
) -> CyclicLaws:
    r"""Laws between which pseudo-Gibbs sampling by sequential scan goes round, one for each position of a sweep.

    .. math:: \pi^{k+1}(x) = \pi^k(x_{-i}) \, \theta_i(x_i \mid x_{-i}), \quad i = \text{the k-th of the order}

    Just after its update a variable has the network's own conditional, just before it in general not. Also for sweeps
    that return to the same state with some period only, such as deterministic ones. Costs as :func:`stationary_law`.

    Arguments, errors and warnings are those of :func:`stationary_law`, with sweeps in the place of steps.

    References:
        Paper 5, section 3.1 and equation 3.

    Example:
        >>> from pyro_hoim.dependency_network import DependencyConditionals, TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> copy, fair = torch.eye(2).double() * 0.8 + 0.1, torch.full((2, 2), 0.5).double()
        >>> nodes = [TableConditional(domain, "a", ["b"], copy), TableConditional(domain, "b", ["a"], fair)]
        >>> laws = cyclic_laws(DependencyConditionals(nodes))
        >>> [[round(p, 6) for p in row] for row in laws.after("a").tolist()]
        [[0.45, 0.05], [0.05, 0.45]]
    """
    _check_options(method, tolerance, max_iterations)
    codes, network, free = _free_network(conditionals, clamped)
    names = free.domain.names
    if not (order is None or isinstance(order, (str, Iterable))):
        raise wrong_type("order", "names of variables", order)
    wanted = names if order is None else (order,) if isinstance(order, str) else tuple(order)
    sweep = free.domain.indices(wanted)
    if len(sweep) != len(names):
        missing = next(name for name in names if name not in wanted)
        problem = f"expected every variable that is not clamped, but {missing!r} is missing"
        raise refused("order", problem, code="missing-part")
    free.check(max_states, method)
    if not len(names):
        return CyclicLaws(domain=free.domain, clamped=codes, order=wanted, probs=torch.ones((0,), dtype=torch.float64))
    from ._kernels import update_node

    tables = _tables(network)
    is_lazy = bool((tables < _NEAR_ZERO).any())  # a sweep may then be periodic, or nearly so, which half a step is not

    def full_sweep(law: Floats) -> Floats:
        after = law.copy()
        for i in sweep:
            update_node(after, tables[i], free.levels[i], free.strides[i])
        return after

    def step(law: Floats) -> Floats:
        return (law + full_sweep(law)) / 2 if is_lazy else full_sweep(law)

    law, found = _settle(free, tables, sweep, step, method, tolerance, max_iterations)
    laws: list[Floats] = []
    for i in sweep:
        laws.append(law.copy())
        update_node(law, tables[i], free.levels[i], free.strides[i])
    probs = torch.from_numpy(np.stack(laws)).reshape(-1, *free.domain.cardinalities)
    return CyclicLaws(domain=free.domain, clamped=codes, order=wanted, probs=probs, **found)


class _Layout(NamedTuple):
    """The variables that are updated, with the layout of a flat law."""

    domain: Domain
    levels: tuple[int, ...]
    strides: tuple[int, ...]

    def check(self, max_states: int, method: str) -> None:
        """Raise :class:`IntractableError` where the table or the elimination would be too large."""
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


def _check_options(method: str, tolerance: float, max_iterations: int) -> None:
    check_choice(method, get_args(StationaryMethod), "method")
    check_positive(tolerance, "tolerance")
    check_whole(max_iterations, "max_iterations")


def _free_network(
    conditionals: DependencyConditionals, clamped: Clamp | None
) -> tuple[dict[str, int], DependencyConditionals, _Layout]:
    """Codes of the clamped variables, the network of the others, and the layout of their law."""
    if not isinstance(conditionals, DependencyConditionals):
        hint = "DependencyConditionals.from_model makes them of a model"
        raise wrong_type("conditionals", "DependencyConditionals", conditionals, hint)
    conditionals.require_single("conditionals")
    if clamped is not None and not isinstance(clamped, Mapping):
        raise wrong_type("clamped", "a mapping from names to values", clamped)
    codes = conditionals.domain.encode_state(clamped or {})
    network = conditionals.condition(codes) if codes else conditionals
    levels = network.domain.cardinalities
    strides = tuple(math.prod(levels[i + 1 :]) for i in range(len(levels)))
    return codes, network, _Layout(network.domain, levels, strides)


def _tables(network: DependencyConditionals) -> Floats:
    """Probability of a state's own level given the others, (num_variables, num_states)."""
    tables = [network.full_table(name).detach().cpu().reshape(-1).numpy() for name in network.domain.names]
    return np.stack(tables)


def _settle(
    free: _Layout,
    tables: Floats,
    sweep: Sequence[int] | None,
    step: Callable[[Floats], Floats],
    method: StationaryMethod,
    tolerance: float,
    max_iterations: int,
) -> tuple[Floats, dict[str, Any]]:
    """The law that a step leaves as it is, and how it was found, as fields of a result."""
    classes, is_recurrent = closed_classes(tables, free.levels, free.strides, sweep)
    if len(classes) > 1:
        shown = "; ".join(_state_text(free, int(x)) for x in classes[:_SHOWN_CLASSES])
        raise unexpected(
            "conditionals",
            "an ergodic network",
            hint="where it settles depends on the start. Smooth the conditional tables or clamp a variable",
            received=(
                f"one with {size_text(len(classes))} closed sets of states that no chain leaves, around "
                f"{shown}{'; ...' * (len(classes) > _SHOWN_CLASSES)}"
            ),
        )
    size = free.domain.num_states
    if method == "solve" or (method == "auto" and size <= _AUTO_SOLVE):
        law = _eliminated(step, size, int(classes[0]))
        residual = float(np.abs(step(law) - law).sum())
        if math.isfinite(residual):
            return law, {"residual": residual}
    can_solve = method == "auto" and size <= _MAX_SOLVE
    found = fixed_point(step, is_recurrent, tolerance, min(max_iterations, _PATIENCE) if can_solve else max_iterations)
    if can_solve and not (found.is_converged and found.is_settled):
        return _settle(free, tables, sweep, step, "solve", tolerance, max_iterations)
    if not found.is_converged:
        warnings.warn(
            f"the stationary law did not settle within {found.num_iterations} iterations: a step moves a mass of "
            f"{found.residual:.2g}, the estimated error is {found.error:.2g}; raise max_iterations, or smooth "
            "probabilities near zero, which let a chain hardly ever leave some sets of states",
            ConvergenceWarning,
            stacklevel=3,
        )
    facts = found._asdict()
    return facts.pop("law"), {"method": "power", **{name: facts[name] for name in _FACTS}}


def _eliminated(step: Callable[[Floats], Floats], size: int, recurrent: int) -> Floats:
    """The law by elimination of states; ``recurrent`` is one that every state leads to, so it stays to the end."""
    from ._kernels import stationary_by_elimination

    matrix = np.empty((size, size))
    unit = np.zeros(size)
    for x in range(size):
        unit[x] = 1.0
        matrix[x] = step(unit)
        unit[x] = 0.0
    matrix[[0, recurrent]] = matrix[[recurrent, 0]]
    matrix[:, [0, recurrent]] = matrix[:, [recurrent, 0]]
    law = stationary_by_elimination(matrix)
    law[[0, recurrent]] = law[[recurrent, 0]]
    return law


def _state_text(free: _Layout, x: int) -> str:
    """A joint state in words, from its position."""
    codes = np.unravel_index(x, free.levels)
    return state_text(free.domain.names, [v.labels[int(code)] for v, code in zip(free.domain, codes, strict=True)])
