"""Conformance suites: what every distribution and every exact partition backend must obey.

A new class registers one factory and inherits every check: ``pytest.mark.parametrize`` over ``DISTRIBUTION_CHECKS``,
each called with a ``DistributionCase``, or in one call ``check_distribution``, which reports every check that failed.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from pyro import poutine
from pyro.infer import Predictive

from .._modes import plain_mode
from ..errors import check_names, check_whole, out_of_range, unexpected
from .assertions import assert_close, assert_equal, assert_exact_law, required_draws
from .oracles import count_states, enumerate_codes

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Axis:
    r"""Values of one variable, or of indicators that are drawn together, at which a law is summed or integrated.

    A :class:`~pyro_hoim.testing.DistributionCase` of a law that is not finite has an axis for every variable. A sum
    over the points of all axes with their weights is the integral of the law, up to what the tails hold that the points
    leave out. Draws are counted in cells, whose probabilities are such sums too.

    Attributes:
        values: points (n, m) of m variables; m is 1 but for indicators.
        log_weights: logs of the weights of the points, (n,).
        cuts: ascending borders between cells of one variable; no point lies on one.
        outside: values (k, m) that are not of the support.
        is_whole: whether the points are all values that there are.

    Example:
        >>> axis = Axis.counts(3, top=40)
        >>> axis.values.shape, axis.cells(np.array([[0.0], [2.0], [17.0]])).tolist()
        ((40, 1), [0, 2, 3])
        >>> line = Axis.numbers([-9, -1, 1, 9])
        >>> round(float(np.exp(line.log_weights - 0.5 * line.values[:, 0] ** 2).sum() ** 2), 6)  # 2 pi
        6.283185
    """

    values: Floats
    log_weights: Floats
    cuts: Floats = field(default_factory=lambda: np.zeros(0))
    outside: Floats = field(default_factory=lambda: np.full((1, 1), np.nan))
    is_whole: bool = False

    @classmethod
    def levels(cls, size: int) -> Axis:
        """The codes from 0 to size - 1, a cell each."""
        check_whole(size, "size")
        values = np.arange(float(size))[:, None]
        outside = np.array([-1.0, size, 0.5, np.nan])[:, None]
        return cls(values, np.zeros(size), values[1:, 0] - 0.5, outside, is_whole=True)

    @classmethod
    def counts(cls, cells: int, top: int) -> Axis:
        """The counts from 0 to top - 1; a cell each for the first, and one for the others."""
        check_whole(top, "top")
        values = np.arange(float(top))[:, None]
        outside = np.array([-1.0, 0.5, np.inf, np.nan])[:, None]
        return cls(values, np.zeros(top), values[1 : cells + 1, 0] - 0.5, outside)

    @classmethod
    def indicators(cls, size: int) -> Axis:
        """The indicators of a category of some levels, of which one is 1."""
        check_whole(size, "size")
        outside = np.stack([np.zeros(size), np.full(size, 1.0 if size > 1 else 2.0), np.eye(size)[0] / 2])
        return cls(np.eye(size), np.zeros(size), outside=outside, is_whole=True)

    @classmethod
    def numbers(cls, knots: Sequence[float], nodes: int = 24, power: int = 1) -> Axis:
        r"""Gauss-Legendre nodes between consecutive knots, which are the borders of cells, in u with :math:`x = u^m`.

        Densities that are smooth in the m-th root of x are integrated to about 14 digits by panels of moderate width; a
        law of both signs needs a knot at 0 then.
        """
        ends = np.asarray(knots, dtype=np.float64)
        if len(ends) < 2 or (np.diff(ends) <= 0).any():
            raise out_of_range("knots", "at least two ascending numbers", received=list(knots))
        # Each panel by itself, in the root of the numbers.
        u = np.sign(ends) * np.abs(ends) ** (1 / power)
        points, weights = np.polynomial.legendre.leggauss(nodes)
        half = np.diff(u)[:, None] / 2
        at = (u[:-1, None] + half * (points + 1)).reshape(-1)
        log_weights = np.log((half * weights).reshape(-1)) + np.log(power) + (power - 1) * np.log(np.abs(at))
        values = np.sign(at) * np.abs(at) ** power
        outside = [np.nan, *([-1.0] if ends[0] == 0.0 else [])]
        return cls(values[:, None], log_weights, ends[1:-1], np.array(outside)[:, None])

    @property
    def width(self) -> int:
        """Number of variables."""
        return self.values.shape[1]

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return self.width if self.width > 1 else len(self.cuts) + 1

    def cells(self, values: Floats) -> NDArray[np.int64]:
        r"""Cells (\*sample,) of values (\*sample, m)."""
        if self.width > 1:
            return values.argmax(-1)
        return np.searchsorted(self.cuts, values[..., 0])


Factory = Callable[..., Any]

_MOST_STATES = 500
_DEPTH = 20.0  # nats below the most probable point, to which states of laws that are not finite are looked at


@dataclass(frozen=True)
class DistributionCase:
    r"""A law over vectors of level codes, of counts or of numbers, given by a factory and a batch of parameters.

    Args:
        factory: called as ``factory(theta, validate_args=bool)``; returns a distribution whose batch shape is
            ``theta.shape[:-1]`` and whose event shape is (d,). It must be deterministic.
        theta: sets of parameters, float64 (B, n) with B at least 2.
        log_probs: their exact log-probabilities (B, \*cardinalities), nats; see :func:`pyro_hoim.testing.exact_table`.
            With axes their log-densities at all points (B, \*numbers of points), by sums, integrals or closed forms.
        shape_arguments: keyword arguments of the class's ``infer_shapes`` other than ``theta``; None skips that check.
        axes: an axis for every variable, in order; None for level codes. Draws of a law with axes have the dtype of
            its parameters, those of level codes are whole numbers.
        parameter: name that ``infer_shapes`` has for the parameters.

    Example:
        >>> from functools import partial
        >>> from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 3}))
        >>> theta = torch.zeros(2, graph.num_parameters, dtype=torch.float64)
        >>> case = DistributionCase(partial(HierarchicalLogLinear, graph), theta, np.full((2, 2, 3), -math.log(6)))
        >>> case.cardinalities, case.make().log_prob(case.states[:, None]).exp()[0].round(decimals=4).tolist()
        ((2, 3), [0.1667, 0.1667])
    """

    factory: Factory
    theta: torch.Tensor
    log_probs: np.ndarray
    shape_arguments: dict[str, Any] | None = None
    axes: Sequence[Axis] | None = None
    parameter: str = "theta"

    def __post_init__(self) -> None:
        if self.theta.dim() != 2 or self.theta.shape[0] < 2 or self.theta.dtype != torch.float64:
            raise unexpected(
                "theta", "a float64 batch (B >= 2, n)", received=tuple(self.theta.shape), code="wrong-shape"
            )
        if np.shape(self.log_probs)[:1] != (self.theta.shape[0],):
            raise unexpected("log_probs", f"shape ({self.theta.shape[0]}, *cardinalities)", code="wrong-shape")
        sizes = tuple(len(axis.values) for axis in self.axes or ())
        if self.axes is not None and self.cardinalities != sizes:
            raise unexpected("log_probs", f"shape {(len(self.theta), *sizes)}, of all points", code="wrong-shape")

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of levels of each variable."""
        return tuple(self.log_probs.shape[1:])

    @property
    def num_variables(self) -> int:
        """Number of variables d."""
        return len(self.cardinalities) if self.axes is None else sum(axis.width for axis in self.axes)

    @property
    def is_whole(self) -> bool:
        """Whether the points are all joint states that there are."""
        return self.axes is None or all(axis.is_whole for axis in self.axes)

    @cached_property
    @plain_mode()
    def points(self) -> torch.Tensor:
        """All points (N, d): long level codes, or float64 values of the axes, the last one fastest."""
        codes = enumerate_codes(self.cardinalities)
        if self.axes is None:
            return torch.as_tensor(codes)
        parts = [axis.values[code] for axis, code in zip(self.axes, codes.T, strict=True)]
        return torch.from_numpy(np.concatenate([np.zeros((len(codes), 0)), *parts], 1))

    @cached_property
    def log_weights(self) -> np.ndarray:
        """Logs of the weights of all points, (N,)."""
        total = np.zeros(())
        for axis in self.axes or ():
            total = total[..., None] + axis.log_weights
        return total.reshape(-1) if self.axes is not None else np.zeros(len(self.points))

    @cached_property
    def _chosen(self) -> np.ndarray:
        """Places of the states: all points, or some that are not improbable."""
        expected = np.asarray(self.log_probs).reshape(len(self.theta), -1)
        if self.is_whole:
            return np.arange(expected.shape[1])
        height = expected.min(0)
        probable = np.flatnonzero(height > height.max() - _DEPTH)
        return probable[:: max(1, len(probable) // _MOST_STATES)]

    @property
    def states(self) -> torch.Tensor:
        """Every joint state (num_states, d), long for level codes; of a law that is not finite some probable points."""
        return self.points[self._chosen]

    @property
    def expected(self) -> np.ndarray:
        """Exact log-probabilities of the states (num_states, B)."""
        return np.asarray(self.log_probs).reshape(len(self.theta), -1).T[self._chosen]

    def counts(self, draws: torch.Tensor) -> np.ndarray:
        """Number of draws (..., d) in every cell, a state each for what is finite; impossible ones are refused."""
        if self.axes is None:
            return count_states(draws, self.cardinalities)
        rows = draws.detach().double().numpy()
        rows = rows.reshape(math.prod(rows.shape[:-1]), self.num_variables)
        return np.bincount(self._cells(rows), minlength=math.prod(axis.num_cells for axis in self.axes))

    def cell_probs(self, member: int) -> np.ndarray:
        """Probabilities of all cells, of a member of the batch."""
        logs = np.asarray(self.log_probs)[member].reshape(-1)
        if self.axes is None:
            return np.exp(logs)
        size = math.prod(axis.num_cells for axis in self.axes)
        return np.bincount(self._cells(self.points.numpy()), np.exp(logs + self.log_weights), size)

    def _cells(self, rows: np.ndarray) -> np.ndarray:
        """Flat cells (n,) of values (n, d)."""
        flat, first = np.zeros(len(rows), np.int64), 0
        for axis in self.axes or ():
            values = rows[:, first : first + axis.width]
            cells = axis.cells(values)
            if axis.is_whole and (axis.values[cells] != values).any():
                raise unexpected("draws", "values of the axes", received="others")
            flat, first = flat * axis.num_cells + cells, first + axis.width
        return flat

    def outside(self) -> list[torch.Tensor]:
        """Vectors (d,) that are not of the support, one wrong part each."""
        state, first = self.states[0], 0
        if self.axes is None:
            real = state.double()
            bad = [torch.full_like(state, -1), torch.tensor(self.cardinalities), real + 0.5, real * math.nan]
            return bad if self.cardinalities else []
        wrong: list[torch.Tensor] = []
        for axis in self.axes:
            head, tail = state[:first], state[first + axis.width :]
            wrong += [torch.cat([head, values, tail]) for values in torch.from_numpy(axis.outside)]
            first += axis.width
        return wrong

    def make(self, theta: torch.Tensor | None = None, validate_args: bool = True) -> Any:
        """The distribution of the whole batch, or of other parameters."""
        return self.factory(self.theta if theta is None else theta, validate_args=validate_args)


def _grid(case: DistributionCase) -> torch.Tensor:
    """States against the batch: (num_states, B, d)."""
    return case.states[:, None].expand(-1, len(case.theta), -1)


def check_shapes(case: DistributionCase) -> None:
    """Batch, event, sample and log-probability shapes; draws are in the support, and long if they are level codes."""
    law = case.make()
    batch, d = (len(case.theta),), case.num_variables
    assert_equal(tuple(law.batch_shape), batch, "batch_shape")
    assert_equal(tuple(law.event_shape), (d,), "event_shape")
    for lead in ((), (3,), (2, 3)):
        draws = law.sample(torch.Size(lead))
        assert_equal(tuple(draws.shape), (*lead, *batch, d), f"sample shape for {lead}")
        assert_equal(draws.dtype, torch.long if case.axes is None else case.theta.dtype, "sample dtype")
        assert_equal(tuple(law.log_prob(draws).shape), (*lead, *batch), f"log_prob shape for {lead}")
        assert_equal(bool(law.support.check(draws).all()), True, "samples in the support")
        case.counts(draws)


def check_exact_log_prob(case: DistributionCase) -> None:
    """Log-probabilities of every state equal the oracle's; integer and floating codes give the same."""
    law = case.make()
    assert_close(law.log_prob(_grid(case)), case.expected, what="log_prob")
    assert_close(law.log_prob(_grid(case).double()), case.expected, what="log_prob of floats")


def check_normalisation(case: DistributionCase) -> None:
    """Probabilities over the support sum, or densities integrate, to one."""
    points = case.points[:, None].expand(-1, len(case.theta), -1)
    logs = case.make().log_prob(points) + torch.from_numpy(case.log_weights)[:, None]
    relative = 1e-12 if case.is_whole else 1e-9  # of quadrature, and of what is beyond the points
    assert_close(logs.exp().sum(0), np.ones(len(case.theta)), relative=relative, what="total probability")


def check_enumerate_support(case: DistributionCase) -> None:
    """The support holds each state once, with Pyro's shapes, also after ``expand``."""
    law, num_states, d = case.make(), len(case.states), case.num_variables
    if not law.has_enumerate_support:
        return
    assert_equal(case.is_whole, True, "has_enumerate_support only of what is finite")
    # A law and its expansion list the same states.
    for wide in (law, law.expand((3, len(case.theta)))):
        batch = tuple(wide.batch_shape)
        flat = wide.enumerate_support(expand=False)
        assert_equal(tuple(flat.shape), (num_states, *(1 for _ in batch), d), "enumerate_support(expand=False) shape")
        full = wide.enumerate_support(expand=True)
        assert_equal(tuple(full.shape), (num_states, *batch, d), "enumerate_support(expand=True) shape")
        counts = case.counts(flat.reshape(num_states, d))
        assert_equal(counts.tolist(), [1] * num_states, "each state once")
        total = wide.log_prob(flat).exp().sum(0)
        assert_close(total, np.ones(batch), relative=1e-12, what="total probability of the support")


def check_batch_equals_singles(case: DistributionCase) -> None:
    """A batch gives what its members give one by one."""
    together = case.make().log_prob(_grid(case))
    for i, theta in enumerate(case.theta):
        single = case.make(theta)
        assert_equal(tuple(single.batch_shape), (), "batch_shape of a single law")
        assert_close(single.log_prob(case.states), together[:, i], what=f"member {i}")


def check_expand(case: DistributionCase) -> None:
    """``expand`` broadcasts, keeps the class and changes no probability."""
    law = case.make()
    wide = law.expand((3, len(case.theta)))
    assert_equal(type(wide), type(law), "class after expand")
    assert_equal(tuple(wide.batch_shape), (3, len(case.theta)), "expanded batch_shape")
    assert_equal(tuple(wide.sample((4,)).shape), (4, 3, len(case.theta), case.num_variables), "expanded sample shape")
    # Probabilities of copies are those of their original; draws are not.
    states = _grid(case)[:, None].expand(-1, 3, -1, -1)
    expected = np.broadcast_to(case.expected[:, None], (len(case.states), 3, len(case.theta)))
    assert_close(wide.log_prob(states), expected, what="log_prob after expand")
    single = case.make(case.theta[0]).expand((4,))
    # As many draws as make it a fault, but for one time in 10^9, that all of two members are equal.
    equal = float(np.square(case.cell_probs(0)).sum())
    num_draws = min(500, math.ceil(math.log(1e-9) / math.log(equal))) if 0 < equal < 1 else 1
    draws = single.sample((num_draws,))
    assert_equal(tuple(draws.shape), (num_draws, 4, case.num_variables), "sample shape of an expanded single law")
    if equal**num_draws < 1e-8:
        assert_equal(bool((draws[:, 0] != draws[:, 1]).any()), True, "expanded members are drawn independently")


def check_pickle_and_copy(case: DistributionCase) -> None:
    """Pickling and deep copies keep every probability."""
    law = case.make()
    for clone in (pickle.loads(pickle.dumps(law)), copy.deepcopy(law)):  # noqa: S301 (our own bytes)
        assert_close(clone.log_prob(_grid(case)), case.expected, what="log_prob of a copy")


def check_float32(case: DistributionCase) -> None:
    """Parameters in float32 give float32 results that agree with float64 to single precision."""
    result = case.make(case.theta.float()).log_prob(_grid(case))
    assert_equal(result.dtype, torch.float32, "log_prob dtype")
    scale = 1.0 + float(case.theta.abs().sum(-1).max())
    if case.axes is not None:  # terms of numbers are as large as the depth of the states, or larger
        scale += float(case.states.abs().max()) if case.num_variables else 0.0
    assert_close(result.double(), case.expected, relative=2e-6 * scale, absolute=2e-6 * scale, what="float32 log_prob")


def check_validation(case: DistributionCase) -> None:
    """Values outside the support, wrong event shapes and parameters that are not finite raise ``ValueError``."""
    law = case.make(validate_args=True)
    for value in [*case.outside(), torch.zeros(case.num_variables + 1, dtype=torch.long)]:
        _raises(ValueError, lambda value=value: law.log_prob(value), f"log_prob({value.tolist()})")
    if case.theta.shape[-1]:
        for number in (math.nan, math.inf):
            theta = case.theta.clone()
            theta[0, 0] = number
            _raises(ValueError, lambda theta=theta: case.make(theta, True), f"a parameter of {number}")


def check_gradients(case: DistributionCase) -> None:
    """Log-probabilities are twice differentiable in the parameters, equal to finite differences."""
    if not case.theta.shape[-1]:
        return
    theta = case.theta[0].clone().requires_grad_()
    states = case.states[:: max(1, len(case.states) // 4)]

    def log_prob(value: torch.Tensor) -> torch.Tensor:
        return case.make(value).log_prob(states)

    assert_equal(torch.autograd.gradcheck(log_prob, (theta,), raise_exception=False), True, "gradient of log_prob")
    second = torch.autograd.gradgradcheck(log_prob, (theta,), raise_exception=False)
    assert_equal(second, True, "second derivative of log_prob")


def check_infer_shapes(case: DistributionCase) -> None:
    """``infer_shapes`` of the class equals the shapes of the instance."""
    if case.shape_arguments is None:
        return
    law = case.make()
    batch, event = type(law).infer_shapes(**{case.parameter: case.theta.shape}, **case.shape_arguments)
    assert_equal((tuple(batch), tuple(event)), (tuple(law.batch_shape), tuple(law.event_shape)), "infer_shapes")


def check_seed(case: DistributionCase) -> None:
    """The same seed gives the same draws."""
    law = case.make()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        first = law.sample((50,))
        torch.manual_seed(7)
        second = law.sample((50,))
    assert_equal(bool((first == second).all()), True, "draws repeat under one seed")


def check_exact_samples(case: DistributionCase) -> None:
    """Draws follow the exact law; a total-variation error of 0.05 is found with probability 0.999 (seed 20)."""
    law = case.make()
    if not getattr(law, "sample_is_exact", True):
        return
    draws = required_draws(max(2, len(case.cell_probs(0))), 0.05)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        states = law.sample((draws,))
    for i in range(len(case.theta)):
        probs = case.cell_probs(i)
        assert_exact_law(case.counts(states[:, i]), probs / probs.sum(), what=f"draws of member {i}")


def check_pyro_site(case: DistributionCase) -> None:
    """Plates, parts of plates, a mask, a scale, an observation and ``Predictive`` treat the law as any Pyro site."""
    law, size = case.make(case.theta[0]), 5
    data = case.states[torch.arange(size) % len(case.states)]
    exact = case.expected[(torch.arange(size) % len(case.states)).numpy(), 0]

    def model(observed: torch.Tensor | None = None) -> torch.Tensor:
        with pyro.plate("rows", size):
            return pyro.sample("x", law, obs=observed)

    def half(observed: torch.Tensor) -> torch.Tensor:
        with pyro.plate("groups", 2, dim=-2), pyro.plate("rows", 2 * size, subsample=torch.arange(size), dim=-1):
            return pyro.sample("x", law, obs=observed)

    # Log-probabilities of sites are sums over states, times the scales of plates.
    trace = poutine.trace(model).get_trace(data)
    assert_close(trace.log_prob_sum(), exact.sum(), what="plate log_prob_sum")
    nested = poutine.trace(half).get_trace(data.expand(2, *data.shape))
    assert_close(nested.log_prob_sum(), 4 * exact.sum(), what="log_prob_sum of a part of nested plates")
    scaled = poutine.trace(poutine.scale(model, scale=3.0)).get_trace(data)
    assert_close(scaled.log_prob_sum(), 3 * exact.sum(), what="scaled log_prob_sum")
    keep: Any = torch.arange(size) % 2 == 0
    masked = poutine.trace(poutine.mask(model, mask=keep)).get_trace(data)
    assert_close(masked.log_prob_sum(), exact[keep.numpy()].sum(), what="masked log_prob_sum")
    assert_close(case.make().mask(False).log_prob(_grid(case)), 0 * case.expected, what="mask(False)")
    # A batch as one event, and draws without an observation.
    joint = case.make().to_event(1)
    assert_equal(tuple(joint.event_shape), (len(case.theta), case.num_variables), "to_event shape")
    assert_close(joint.log_prob(_grid(case)), case.expected.sum(1), what="to_event log_prob")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        drawn = Predictive(model, num_samples=4)()["x"]
    assert_equal(tuple(drawn.shape), (4, size, case.num_variables), "Predictive shape")


DISTRIBUTION_CHECKS: tuple[Callable[[DistributionCase], None], ...] = (
    check_shapes,
    check_exact_log_prob,
    check_normalisation,
    check_enumerate_support,
    check_batch_equals_singles,
    check_expand,
    check_pickle_and_copy,
    check_float32,
    check_validation,
    check_gradients,
    check_infer_shapes,
    check_seed,
    check_exact_samples,
    check_pyro_site,
)
"""Every check of a distribution, in order of cost."""


def check_distribution(
    factory: Factory,
    theta: torch.Tensor,
    *,
    log_probs: Any,
    shape_arguments: dict[str, Any] | None = None,
    axes: Sequence[Axis] | None = None,
    parameter: str = "theta",
    skip: Iterable[str] = (),
) -> None:
    """Run every check on one law and report all that fail; arguments as those of :class:`DistributionCase`.

    ``skip`` names checks not to run, for instance ``"check_pickle_and_copy"``.

    Example:
        >>> from functools import partial
        >>> from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2}))
        >>> theta, log_probs = torch.zeros(2, 1, dtype=torch.float64), np.log([[0.5, 0.5], [0.5, 0.5]])
        >>> check_distribution(partial(HierarchicalLogLinear, graph), theta, log_probs=log_probs)
        >>> check_distribution(partial(HierarchicalLogLinear, graph), theta + 0.1, log_probs=log_probs)
        Traceback (most recent call last):
        AssertionError: ...check_exact_log_prob...
    """
    table = np.asarray(log_probs.detach().cpu() if isinstance(log_probs, torch.Tensor) else log_probs)
    case = DistributionCase(factory, theta, table, shape_arguments, axes, parameter)
    run_cases(DISTRIBUTION_CHECKS, [("law", case)], skip)


def run_cases(
    checks: Sequence[Callable[[Any], None]], cases: Iterable[tuple[str, Any]], skip: Iterable[str] = ()
) -> None:
    """Run each check on named cases and raise one :class:`AssertionError` that lists every failure."""
    skipped = set(skip)
    check_names(skipped, [check.__name__ for check in checks], "skip", "check")
    # Every check runs, whatever failed before it.
    failures: list[str] = []
    for name, case in cases:
        for check in checks:
            if check.__name__ in skipped:
                continue
            try:
                check(case)
            except (AssertionError, ValueError, TypeError, RuntimeError, AttributeError, NotImplementedError) as error:
                failures.append(f"{name}: {check.__name__}: {type(error).__name__}: {error}")
    if failures:
        raise AssertionError(f"{len(failures)} checks failed:\n" + "\n".join(failures))


def _raises(kind: type[Exception], action: Callable[[], Any], what: str) -> None:
    try:
        action()
    except kind:
        return
    raise AssertionError(f"{what}: expected {kind.__name__}, nothing was raised")
