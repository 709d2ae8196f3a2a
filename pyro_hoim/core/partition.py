"""The contract of the partition layer: what a computation costs, what it returns, what a backend is asked."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ..checks import is_hidden, is_transformed
from ..errors import InputError, IntractableError, out_of_reach, refused, size_text, unexpected, wrong_type
from ..structure.hypergraph import InteractionHypergraph
from .model import LogLinearModel

Kind = Literal["exact", "lower bound", "upper bound", "unbiased", "biased"]

_ERRORS_ALLOWED = 5.0  # standard errors that a log-probability may be above zero


class Verdict(IntEnum):
    """How far an estimate of log Z can be believed, from the least to the most.

    Attributes:
        UNRELIABLE: a check failed, or the runs support no error bar.
        CONSISTENT: every check agrees, without proof: a part of the model that no run has seen would not show.
        VERIFIED: exact, or within limits that hold at their stated level.

    Example:
        >>> Verdict.CONSISTENT < Verdict.VERIFIED, Verdict.UNRELIABLE.word
        (True, 'unreliable')
    """

    UNRELIABLE = 0
    CONSISTENT = 1
    VERIFIED = 2

    @property
    def word(self) -> str:
        """The verdict as pages and JSON print it: ``unreliable``, ``consistent`` or ``verified``."""
        return self.name.lower()


_NUMBERS = ("value", "std_error", "lower", "upper", "lower_bound", "upper_bound", "ess")
_SIZES = ("cells", "total_cells", "flops", "memory_bytes")
_SHOWN = 6


def _first_few(names: tuple[str, ...]) -> str:
    """Names as Python shows them; of many the first ones and their number."""
    if len(names) <= _SHOWN:
        return repr(names)
    return f"({', '.join(map(repr, names[:_SHOWN]))}, ...: {len(names)} in all)"


@dataclass(frozen=True)
class Cost:
    """What a computation will cost, known before it runs, for one element of the batch in float64.

    Attributes:
        cells: cells of the largest table that is formed.
        total_cells: cells of all tables formed (all slices together).
        flops: floating-point operations of log Z, to within a small factor; marginals cost about three times that.
        memory_bytes: peak memory of log Z and all marginals; a lower bound where cells or flops exceed the budget.
        feasible: whether the backend will run it.
        reason: why this method was chosen, or why the computation is refused, in one sentence.
        hint: which options raise the budget, or None.
        method: name of the method.
        order: elimination order, empty where none is used.
        slices: variables that are conditioned on and looped over.
    """

    cells: int
    total_cells: int
    flops: int
    memory_bytes: int
    feasible: bool
    reason: str
    method: str
    order: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()
    hint: str | None = None

    def __repr__(self) -> str:
        """Short for any number of variables and of any cost: the first names and how many there are."""
        sizes = [f"{name}={size_text(getattr(self, name))}" for name in _SIZES]
        rest = f"feasible={self.feasible}, reason={self.reason!r}, method={self.method!r}"
        return f"Cost({', '.join(sizes)}, {rest}, order={_first_few(self.order)}, slices={_first_few(self.slices)})"

    def check(self) -> Cost:
        """Return the cost itself, or raise :class:`IntractableError` with its reason if it is not feasible."""
        if not self.feasible:
            raise IntractableError(self.reason, hint=self.hint)
        return self


@dataclass(frozen=True)
class Sandwich:
    """Two estimates of log Z from opposite sides: the forward run is low on average, the reverse run is high.

    Attributes:
        forward: log Z from runs that lead from the reference law to the model, (*batch), nats.
        forward_error: its standard error as computed from the weights, whether or not they are to be trusted; of
            :class:`~pyro_hoim.log_linear.SampledTrainer` infinite where they are not.
        reverse: log Z from runs that lead from the model to the reference law, (*batch), nats.
        reverse_error: its standard error, likewise.
        start: whether the reverse runs began with perfect samples of the model (``exact``) or with states of longer
            annealed runs (``tempered``), which may all have missed a mode.
    """

    forward: torch.Tensor
    forward_error: torch.Tensor
    reverse: torch.Tensor
    reverse_error: torch.Tensor
    start: Literal["exact", "tempered"]

    @property
    def gap(self) -> torch.Tensor:
        """Reverse minus forward estimate, (*batch), nats; large where one of the runs has not seen the whole law."""
        return self.reverse - self.forward


@dataclass(frozen=True)
class LogPartition:
    """Logarithm of the normalising constant, in nats, and how far it can be trusted.

    Attributes:
        value: log Z of the model's tables, shape (*batch); for balanced tables this is the log Z of the coding. For
            that of another coding see :func:`~pyro_hoim.log_linear.log_partition`.
        kind: ``exact``, or the kind of estimate.
        std_error: standard error of ``value``, 0 when exact, infinite where none can be given.
        ess: effective sample size, None when exact.
        lower: one-sided lower limit, equal to ``value`` when exact.
        upper: one-sided upper limit, equal to ``value`` when exact.
        cost: what it cost.
        method: name of the method.
        coding: the coding whose theta has no constant term, as the model's collection says it.
        verdicts: codes of :class:`Verdict`, int8; a 0-d ``VERIFIED`` when exact, (*batch) when estimated.
        notes: sentences on what the result rests on, or why it is unreliable and what to try.
        lower_bound: a number that is never above log Z, (*batch): log of the sum of q over the distinct states met, or
            what mini-buckets say; None where none was looked for.
        upper_bound: a number that is never below log Z, (*batch); None where none was looked for.
        sandwich: estimates from both sides, where a reverse run was made.
    """

    value: torch.Tensor
    kind: Kind
    std_error: torch.Tensor | float
    ess: torch.Tensor | None
    lower: torch.Tensor
    upper: torch.Tensor
    cost: Cost
    method: str
    coding: str = "balanced"
    verdicts: torch.Tensor = field(default_factory=partial(torch.tensor, Verdict.VERIFIED, dtype=torch.int8))
    notes: tuple[str, ...] = ()
    lower_bound: torch.Tensor | None = None
    upper_bound: torch.Tensor | None = None
    sandwich: Sandwich | None = None

    @property
    def verdict(self) -> str:
        """The word of the least verdict of the batch: ``unreliable``, ``consistent`` or ``verified``."""
        return Verdict(int(self.verdicts.min()) if self.verdicts.numel() else Verdict.VERIFIED).word

    def moved(self, by: torch.Tensor, coding: str) -> LogPartition:
        """The same result for tables that differ by minus a constant (*batch), nats, and belong to a coding."""
        sides, numbers = self.sandwich, ("value", "lower", "upper", "lower_bound", "upper_bound")
        if sides is not None:
            sides = replace(sides, forward=sides.forward + by, reverse=sides.reverse + by)
        found = {name: getattr(self, name) for name in numbers}
        sums = {name: None if number is None else number + by for name, number in found.items()}
        return replace(self, **sums, sandwich=sides, coding=coding)

    def to(self, device: torch.device | str) -> LogPartition:
        """The same result on a device."""

        def moved(record: Any) -> dict[str, torch.Tensor]:
            parts = {part.name: getattr(record, part.name) for part in fields(record)}
            return {name: part.to(device) for name, part in parts.items() if isinstance(part, torch.Tensor)}

        sides = None if self.sandwich is None else replace(self.sandwich, **moved(self.sandwich))
        return replace(self, **moved(self), sandwich=sides)

    def check_log_probs(
        self, log_probs: torch.Tensor, describe: Callable[[int], str], rows: torch.Tensor | float = 1
    ) -> None:
        """Refuse log-probabilities of discrete states that are above zero by more than the error of log Z.

        A result that is not exact may be too small; states that it would give more than probability one prove it.
        IntractableError for one above zero by more than five standard errors, or at all where there is none.

        Args:
            log_probs: of states (*sample, *batch), given this log Z, nats; no densities.
            describe: the state at a place of ``log_probs``, flat, in words.
            rows: rows that every entry is the log-likelihood of, () or (*batch).
        """
        if self.kind == "exact":
            return
        value, values = self.value.detach(), log_probs.detach()
        error = torch.as_tensor(self.std_error, dtype=value.dtype, device=value.device).detach()
        rounding = 1e3 * torch.finfo(value.dtype).eps * (1 + value.abs())
        allowed = _ERRORS_ALLOWED * torch.where(torch.isfinite(error), error, torch.zeros_like(error)) + rounding
        is_above = values > allowed * rows
        if bool(is_above.any()):
            worst = int(torch.where(is_above, values, -math.inf).argmax())
            excess = float(values.reshape(-1)[worst])
            raise out_of_reach(
                "log_prob",
                f"{describe(worst)} would get the log-probability +{excess:.4g}, as the estimate of log Z "
                f"({self.verdict}) has missed a part of the model that holds it",
                "use more temperatures or chains, or an exact backend with a larger budget",
            )

    @classmethod
    def exact(cls, value: torch.Tensor, cost: Cost, coding: str = "balanced") -> LogPartition:
        """Result of an exact method; NaN or infinity is an :class:`InputError`, never a result.

        Minus infinity is log Z of a model without a possible state. Inside ``torch.func.vmap`` and its kin values
        cannot be looked at; there the check is left to the caller.
        """
        if not is_transformed(value) and not (
            value.item() < math.inf if value.numel() == 1 else bool((value.detach() < math.inf).all())
        ):
            problem = "log Z is not finite; expected tables below infinity, received NaN or infinite ones"
            raise refused("log_partition", problem, code="not-finite")
        return cls(value, "exact", 0.0, None, value, value, cost, cost.method, coding)

    def to_json(self) -> dict[str, Any]:
        """What a file keeps of a single log Z: everything but the sandwich and the cost; None for infinite numbers."""

        def number(entry: torch.Tensor | float | None) -> float | None:
            return None if entry is None or not math.isfinite(entry) else float(entry)

        return {
            **{name: number(getattr(self, name)) for name in _NUMBERS},
            **{name: getattr(self, name) for name in ("kind", "verdict", "method", "coding")},
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LogPartition:
        """What :meth:`to_json` wrote, 0-d float64; its cost, paid elsewhere, is nothing; others are refused."""

        def tensor(name: str, missing: float) -> torch.Tensor:
            return torch.tensor(missing if data[name] is None else float(data[name]), dtype=torch.float64)

        def bound(name: str, missing: float) -> torch.Tensor | None:
            return None if data.get(name) is None else tensor(name, missing)

        try:
            value, verdict = tensor("value", math.nan), Verdict[data["verdict"].upper()]
            return cls(
                value=value,
                kind=data["kind"],
                std_error=tensor("std_error", math.inf),
                ess=None if data["ess"] is None else tensor("ess", math.nan),
                lower=tensor("lower", -math.inf),
                upper=tensor("upper", math.inf),
                cost=Cost(0, 0, 0, 0, True, "found before", data["method"]),
                method=data["method"],
                coding=data["coding"],
                verdicts=torch.tensor(verdict, dtype=torch.int8),
                notes=tuple(data["notes"]),
                lower_bound=bound("lower_bound", -math.inf),
                upper_bound=bound("upper_bound", math.inf),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise unexpected("log_partition", "the entries of LogPartition.to_json", data) from error


@runtime_checkable
class PartitionBackend(Protocol):
    r"""A method that normalises log-linear models :math:`q(x) = \exp \sum_S \theta^S_{x_S}`.

    A backend is a frozen dataclass of options, compared by value; it holds no results. Work on the structure alone is
    cached per hypergraph. Every method takes batches (*batch, num_terms) and keeps dtype and device. Past its budget
    a backend raises :class:`~pyro_hoim.errors.IntractableError` before any work, and a backend without some method or
    derivative raises it there. The laws of a backend with ``is_exact`` hold to rounding:

    * ``log_partition(model).value == log(sum over x of q(x))``
    * ``grad(log_partition(model).value, model.tables) == expectations(model)``
    * ``expectations(model)[slice of S] == marginal(model, S)``, flat, for every edge S
    * ``marginal(model, names) == exp(log_marginal(model, names))``, summing to one over the axes of ``names``
    * ``log_marginal(model, all names)[x] == log q(x) - log_partition(model).value``
    * ``mode(model) == (argmax q, max log q)``; ``sample`` draws independent states with law ``q / Z``
    * a zero table changes nothing; disjoint models add their log Z; one state per variable gives ``log q`` of it
    * ``log_partition``, ``expectations``, ``marginal`` and ``log_marginal`` are twice differentiable in
      ``model.tables``

    and those of every backend, exact or not:

    * ``plan(hypergraph).feasible`` is True exactly when ``log_partition`` and ``expectations`` run
    * ``marginal`` sums to one and ``log_marginal`` is its logarithm, for the same random numbers
    * ``log_partition(model).value`` is differentiable once; for the same random numbers its gradient is
      ``expectations(model)``.

    A state that selects an entry of minus infinity is impossible: q is 0 there. Where every state is, log Z is minus
    infinity with a gradient of zero, and there is nothing to draw or to expect: every other method raises
    :class:`~pyro_hoim.errors.InputError` with the code "impossible".

    ``marginal(model, [])`` is one, (*batch), and an empty batch has empty results. What is no model is refused at once,
    by :class:`~pyro_hoim.errors.InputTypeError`.

    Where ``is_exact`` is False, results are random. Z, not log Z, then has the right expectation, eta and marginals
    approach the truth as chains are added, the gradient is an estimate of the true one rather than the slope of the
    random value, draws come close to ``q / Z``, and there may be no ``mode``.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> from pyro_hoim.log_linear import Enumeration, VariableElimination
        >>> chain = InteractionHypergraph.from_formula(Domain.from_cardinalities([2] * 12), "x0*x1 + x1*x2 + x2*x3")
        >>> [backend.plan(chain).cells for backend in (Enumeration(), VariableElimination())]
        [4096, 4]
    """

    @property
    def is_exact(self) -> bool:
        """Whether every result is exact; one that may fall back on estimates is not."""
        ...

    def plan(
        self, hypergraph: InteractionHypergraph, evidence_names: Sequence[str] = (), keep: Sequence[str] = ()
    ) -> Cost:
        """Cost of log Z after conditioning on ``evidence_names``, with a joint table over ``keep`` at the end.

        Raises:
            UnknownNameError: a name is not in the domain.
            InputError: a name is repeated.
        """
        ...

    def log_partition(self, model: LogLinearModel) -> LogPartition:
        """Log Z in nats, value (*batch): minus infinity where no state is possible; InputError for NaN or infinity."""
        ...

    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        """eta, the probability of every cell of every edge, flat (*batch, num_terms)."""
        ...

    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        """Joint probabilities of ``names`` (*batch, *cardinalities), in their order; refused as in :meth:`plan`."""
        ...

    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        """Logarithms of :meth:`marginal`, in nats."""
        ...

    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """Independent states, long (*sample_shape, *batch, d); a ``sample_shape`` must be a sequence of sizes.

        Randomness:
            From ``generator`` or, if it is None, PyTorch's global generator. Same seed and device, same states.
        """
        ...

    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:
        """A most probable state, long (*batch, d), and its log unnormalised probability (*batch), in nats."""
        ...


def check_any_possible(log_z: torch.Tensor, argument: str = "model") -> None:
    """Raise :class:`InputError` where log Z (or the log weight of a mode) is minus infinity: no state is possible."""
    if not (torch.jit.is_tracing() or is_hidden(log_z)) and float(log_z.detach().sum()) == -math.inf:
        raise no_state(argument)


def no_state(argument: str = "model") -> InputError:
    """The error about a model of which no state is possible."""
    return refused(argument, "no state is possible, as impossible combinations exclude every one", code="impossible")


def check_model(model: object) -> None:
    """Raise :class:`InputTypeError` unless a model has interactions and tables; what holds one is named with it."""
    if _is_model(model):
        return
    holding = [name for name in ("energy", "model", "energy_model") if _is_model(getattr(model, name, None))]
    hint = f"pass its .{holding[0]}" if holding else None
    raise wrong_type("model", "a log-linear model, such as a LogLinearEnergy", model, hint)


def _is_model(value: object) -> bool:
    """Whether a value is what :class:`~pyro_hoim.core.model.LogLinearModel` describes; a class is none."""
    has_graph = isinstance(getattr(value, "hypergraph", None), InteractionHypergraph)
    return has_graph and isinstance(getattr(value, "tables", None), torch.Tensor)


def check_hypergraph(hypergraph: object) -> None:
    """Raise :class:`InputTypeError` unless a plan is asked of interactions; a model is named with those it has."""
    if not isinstance(hypergraph, InteractionHypergraph):
        has_one = isinstance(getattr(hypergraph, "hypergraph", None), InteractionHypergraph)
        hint = "pass its .hypergraph" if has_one else None
        raise wrong_type("hypergraph", "an InteractionHypergraph", hypergraph, hint)


class PlannedBackend(PartitionBackend):
    """A backend that knows its cost from the structure that evidence leaves."""

    @abstractmethod
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        """Cost of a structure, the evidence of :meth:`plan` already taken out of it."""

    @override
    def plan(
        self, hypergraph: InteractionHypergraph, evidence_names: Sequence[str] = (), keep: Sequence[str] = ()
    ) -> Cost:
        check_hypergraph(hypergraph)
        return self.plan_after(hypergraph.restrict(evidence_names) if evidence_names else hypergraph, keep)

    @override
    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.marginal(model, names).log()


class ExactBackend(PlannedBackend):
    """A backend all of whose results are exact to rounding."""

    @property
    @override
    def is_exact(self) -> bool:
        return True

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.log_marginal(model, names).exp()


# Log Z in autograd: for backends that find eta along the way, and where all terms of a sum are impossible.

Evaluate = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def is_recorded(tables: torch.Tensor) -> bool:
    """Whether work outside PyTorch has to stand in a record: autograd's for a gradient, or that of a traced program.

    Without an operation of its own, what compiled loops find would be a constant of the traced function.
    """
    return torch.jit.is_tracing() or (torch.is_grad_enabled() and tables.requires_grad)


def may_have_zeros(tables: torch.Tensor) -> bool:
    """Whether an entry is minus infinity; True where values cannot be looked at, or are not finite otherwise."""
    return torch.jit.is_tracing() or is_hidden(tables) or not math.isfinite(float(tables.detach().sum()))


def log_sum_exp(logs: torch.Tensor, dim: int | tuple[int, ...] = -1) -> torch.Tensor:
    """As ``torch.logsumexp``, with a gradient of zero, where that is NaN, of terms that all are minus infinity."""
    is_zero = logs.amax(dim, keepdim=True) == -math.inf
    total = torch.logsumexp(logs.masked_fill(is_zero, 0.0), dim, keepdim=True).masked_fill(is_zero, -math.inf)
    return total.squeeze(dim)


def log_softmax(logs: torch.Tensor) -> torch.Tensor:
    """As ``torch.log_softmax`` over the last dimension, minus infinity where that is NaN as all of it is."""
    is_zero = logs.amax(-1, keepdim=True) == -math.inf
    return torch.log_softmax(logs.masked_fill(is_zero, 0.0), -1).masked_fill(is_zero, -math.inf)


class _LogZ(torch.autograd.Function):  # pyright: ignore[reportUntypedBaseClass]
    """Log Z (*batch) of parameters (*batch, num_terms), saved together with its gradient (*batch, num_terms)."""

    @staticmethod
    def forward(
        ctx: Any, tables: torch.Tensor, evaluate: Evaluate, eta: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        values, found = evaluate(tables.detach())
        ctx.eta = eta
        ctx.save_for_backward(tables, found)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        tables, found = ctx.saved_tensors
        if torch.is_grad_enabled() and tables.requires_grad:  # the gradient will be differentiated in its turn
            found = ctx.eta(tables)
        return grads[0].unsqueeze(-1) * found, None, None


_apply: Callable[..., torch.Tensor] = _LogZ.apply


def log_z_with_gradient(
    tables: torch.Tensor, evaluate: Evaluate, eta: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Log Z (*batch) whose gradient is the eta that ``evaluate`` returns with it.

    ``evaluate`` maps tables (*batch, num_terms) to log Z and eta without a graph; ``eta`` is differentiable and called
    for derivatives of the gradient only.
    """
    return _apply(tables, evaluate, eta)


# What states alone prove about log Z: it is at least the log of the sum of q over the distinct ones. Private.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MIX = 0x5EED  # of the multipliers that tell states of large models apart
_SHOWN_VALUES = 12  # variables of a state in a message


@dataclass(frozen=True)
class Certificate:
    """Deterministic facts about log Z from the states that were met; arrays over a batch of B models.

    Attributes:
        bound: log of the sum of q over the distinct states, (B,), nats; a lower bound of log Z.
        best: a state of the largest log q, (B, d).
        best_log_q: its log q, (B,), nats.
        is_complete: whether the states are all states there are, (B,), so that ``bound`` is log Z.
    """

    bound: Floats
    best: NDArray[np.generic]
    best_log_q: Floats
    is_complete: NDArray[np.bool_]

    @classmethod
    def none(cls, size: int) -> Certificate:
        """What is known without states, and of densities, which bound nothing."""
        nothing = np.full(size, -np.inf)
        return cls(nothing, np.zeros((size, 0)), nothing, np.zeros(size, dtype=bool))


def certificate(
    states: Sequence[torch.Tensor], log_q: Sequence[torch.Tensor], cardinalities: Sequence[int] | None
) -> Certificate:
    """The certificate of states (B, n, d), level codes or counts, with their log q (B, n) in nats, given in parts.

    ``cardinalities`` are the levels of every variable; None of counts, which have no end.
    """
    codes = np.concatenate([part.cpu().numpy().astype(np.int64) for part in states], 1)
    values = np.concatenate([part.cpu().numpy() for part in log_q], 1)
    keys = _keys(codes, cardinalities)
    order = keys.argsort(-1)
    sorted_keys = np.take_along_axis(keys, order, -1)
    is_new = np.ones(keys.shape, dtype=bool)
    is_new[:, 1:] = sorted_keys[:, 1:] != sorted_keys[:, :-1]
    distinct = np.where(is_new, np.take_along_axis(values, order, -1), -np.inf)
    top = values.max(-1)
    bound = np.log(np.exp(distinct - top[:, None]).sum(-1)) + top
    total = None if cardinalities is None else math.prod(cardinalities)
    best = codes[np.arange(len(codes)), values.argmax(-1)]
    return Certificate(bound, best, top, is_new.sum(-1) == total if total else np.zeros(len(codes), dtype=bool))


def _keys(codes: Integers, cardinalities: Sequence[int] | None) -> Integers:
    """Numbers (B, n), equal for equal states; beyond 2^63 states others share one with a chance of 2^-64 a pair."""
    if cardinalities is not None and math.prod(cardinalities) < 2**63:
        strides = [math.prod(cardinalities[i + 1 :]) for i in range(len(cardinalities))]
        return codes @ np.array(strides, dtype=np.int64) if strides else codes.sum(-1)
    odd = np.random.default_rng(_MIX).integers(2**63, size=codes.shape[-1], dtype=np.uint64) * 2 + 1
    return (codes.astype(np.uint64) * odd).sum(-1, dtype=np.uint64).view(np.int64)


def state_text(names: Sequence[str], values: Sequence[object]) -> str:
    """A state in words, the first twelve variables of it."""
    shown = ", ".join(f"{name}={value}" for name, value in list(zip(names, values, strict=True))[:_SHOWN_VALUES])
    return f"({shown}{', ...' if len(names) > _SHOWN_VALUES else ''})"
