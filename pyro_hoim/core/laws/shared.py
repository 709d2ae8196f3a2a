"""What distributions over vectors have in common whose copies of another batch shape share one law."""

from __future__ import annotations

import inspect
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Self, cast

import torch
from pyro.distributions import TorchDistribution, constraints
from pyro.distributions.util import broadcast_shape

from ..._modes import plain_mode
from ...checks import broadcast_shapes, check_dense, check_shape, checked_sample_shape, is_hidden
from ...errors import refused, unexpected, wrong_type
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..partition import LogPartition, state_text
from .expansion import check_expandable, enumerated_states
from .traces import refuse_traced

# Supports of the discrete laws, as PyTorch constraints.


class StateSpace(constraints.Constraint):
    r"""Vectors (..., d) of level codes, :math:`\prod_k \{0, \dots, I_k - 1\}`, for ``cardinalities`` in schema order.

    They may be integer or floating; :meth:`check` returns (...), NaN and fractions are outside.

    Example:
        >>> StateSpace((2, 3)).check(torch.tensor([[1, 2], [2, 0]])).tolist()
        [True, False]
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, cardinalities: tuple[int, ...]) -> None:
        self.cardinalities = tuple(cardinalities)
        super().__init__()

    def check(self, value: torch.Tensor) -> torch.Tensor:
        """Whether each vector is a state."""
        check_shape(value, (len(self.cardinalities),), "value")
        return is_code(value, self.cardinalities).all(-1)

    def __repr__(self) -> str:
        return f"StateSpace(cardinalities={self.cardinalities})"


class MarginalCounts(constraints.Constraint):
    """Flat marginal tables (..., num_terms) that one table of ``total_count`` non-negative cells could have.

    Checked are the signs, the sum of every table, and that every table agrees with the tables of its facets (the
    linear conditions that tie overlapping margins; they are necessary, for decomposable collections also sufficient).
    Sums may be off by rounding only.

    Args:
        hypergraph: the edges whose tables are listed.
        total_count: number of rows, a number or a tensor that broadcasts with the batch.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> MarginalCounts(graph, 10).check(torch.tensor([[4.0, 6.0, 7.0, 3.0], [4.0, 6.0, 7.0, 4.0]])).tolist()
        [True, False]
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, hypergraph: InteractionHypergraph, total_count: torch.Tensor | float) -> None:
        self.hypergraph = hypergraph
        self.total_count = total_count
        super().__init__()

    def check(self, value: torch.Tensor) -> torch.Tensor:
        """Whether each vector of tables is consistent."""
        expected = self.hypergraph.num_terms
        check_shape(value, (expected,), "value")
        table = value if value.is_floating_point() else value.to(torch.float64)
        total = torch.as_tensor(self.total_count, dtype=table.dtype, device=table.device).unsqueeze(-1)
        source, row, sign, num_rows = _consistency(self.hypergraph)
        source, row, sign = source.to(table.device), row.to(table.device), sign.to(table)
        sums = table.new_zeros((*table.shape[:-1], num_rows)).index_add(-1, row, table[..., source] * sign)
        num_edges = len(self.hypergraph)
        tolerance = 64 * torch.finfo(table.dtype).eps * total.clamp(min=1)
        is_complete = ((sums[..., :num_edges] - total).abs() <= tolerance).all(-1)
        is_consistent = (sums[..., num_edges:].abs() <= tolerance).all(-1)
        return (table >= 0).all(-1) & is_complete & is_consistent

    def __repr__(self) -> str:
        return f"MarginalCounts(num_terms={self.hypergraph.num_terms})"


def is_code(value: torch.Tensor, cardinalities: tuple[int, ...]) -> torch.Tensor:
    """Entry by entry, whether a value (..., d) is a code of its variable."""
    inside = (value >= 0) & (value < _bounds(cardinalities, value.device))
    return inside & (value == value.floor()) if value.is_floating_point() else inside


@lru_cache(maxsize=128)
@plain_mode()
def _bounds(cardinalities: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Cardinalities as a tensor (d,)."""
    return torch.tensor(cardinalities, dtype=torch.long, device=device)


@lru_cache(maxsize=128)
@plain_mode()
def _consistency(hypergraph: InteractionHypergraph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Sparse linear conditions (term, row, sign, number of rows): first the sum of every table, then every facet."""
    source: list[torch.Tensor] = []
    row: list[torch.Tensor] = []
    sign: list[torch.Tensor] = []

    def add(terms: torch.Tensor, rows: torch.Tensor, value: float) -> None:
        source.append(terms)
        row.append(rows)
        sign.append(torch.full((len(terms),), value, dtype=torch.float64))

    # Every table sums to one.
    slices = hypergraph.term_slices
    for position, where in enumerate(slices.values()):
        terms = torch.arange(where.start, where.stop)
        add(terms, torch.full_like(terms, position), 1.0)
    # Summed over one variable, a table is that of the other variables.
    num_rows = len(hypergraph)
    for edge, shape in zip(hypergraph.edges, hypergraph.edge_shapes, strict=True):
        for facet in itertools.combinations(range(len(edge)), len(edge) - 1):
            where = slices.get(tuple(edge[i] for i in facet))
            if where is None:
                continue
            terms = torch.arange(where.start, where.stop)
            cells = math.prod(shape[i] for i in facet)
            axes = [shape[i] if i in facet else 1 for i in range(len(edge))]
            rows = (num_rows + torch.arange(cells)).reshape(axes).expand(shape).reshape(-1)
            add(torch.arange(slices[edge].start, slices[edge].stop), rows, 1.0)
            add(terms, num_rows + torch.arange(cells), -1.0)
            num_rows += cells
    if not source:
        empty = torch.zeros(0, dtype=torch.long)
        return empty, empty, torch.zeros(0, dtype=torch.float64), 0
    return torch.cat(source), torch.cat(row), torch.cat(sign), num_rows


# Laws that copies of another batch shape share.


def expand_result(result: LogPartition, present: torch.Size, wanted: torch.Size) -> LogPartition:
    """A result whose tensors of the present batch shape have the wanted one."""

    def expanded(part: Any) -> Any:
        values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
        return replace(
            part,
            **{n: v.expand(wanted) for n, v in values.items() if isinstance(v, torch.Tensor) and v.shape == present},
        )

    if result.sandwich is not None:
        result = replace(result, sandwich=expanded(result.sandwich))
    return expanded(result)


class SharedLaw(TorchDistribution):
    """A distribution over vectors that keeps its parameters, and all that follows from them, in a law.

    A class sets the attributes named in ``_shared``, then calls :meth:`_settle`. A subclass with a constructor of its
    own has to say itself how it is expanded, as everywhere in Pyro.
    """

    has_rsample = False

    _shared: ClassVar[tuple[str, ...]] = ("_law",)
    """Attributes that expanded copies have in common."""

    _law: Any
    """What is shared; where tensors depend on parameters with a batch, ``_law.batch_shape`` is theirs."""

    def __new__(cls, *_: Any, **options: Any) -> Self:  # pyright: ignore[reportInconsistentConstructor]
        """Refuse by name what ``TraceEnum_ELBO.compute_marginals`` of Pyro does, ``type(law)(logits=...)``."""
        if "logits" in options and "logits" not in inspect.signature(cls.__init__).parameters:
            problem = f"{cls.__name__} has none, and TraceEnum_ELBO.compute_marginals makes marginal laws from them"
            hint = 'use pyro.poutine.reparam(program, {"x": StateIndexReparam()}), which gives the law of x_index'
            raise refused("logits", problem, hint, code="no-method")
        return super().__new__(cls)

    def _settle(self, batch_shape: torch.Size, event_size: int, validate_args: bool | None) -> None:
        """Fix the shapes; without a setting of its own the law validates by Pyro's setting of the moment of use."""
        super().__init__(batch_shape, torch.Size((event_size,)), validate_args=False)
        del self._validate_args  # the base class would store the global setting of this moment
        if validate_args is not None:
            self._validate_args = validate_args

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """The same law with a larger batch shape; what was found once, such as log Z, is shared, not found anew."""
        laws = [cls for cls in type(self).__mro__ if issubclass(cls, SharedLaw) and "__init__" in vars(cls)]
        new = cast("Self", self._get_checked_instance(laws[-1], _instance))
        shape = check_expandable(self.batch_shape, batch_shape)
        for name in self._shared:
            setattr(new, name, getattr(self, name))
        new._settle(shape, self.event_shape[0], self._own_validation)
        return new

    @property
    def domain(self) -> Domain:
        """The variables."""
        return self._law.domain

    @property
    def sample_is_exact(self) -> bool:
        """Whether :meth:`sample` draws from this very law, independently and without a Markov chain."""
        return self._law.draws_exactly

    @property
    def sample_burn_in(self) -> int:
        """Sweeps of a chain at the model itself before a state is a draw of :meth:`sample`; 0 where draws are exact."""
        return 0 if self.sample_is_exact else self._law.num_sweeps

    @property
    def mean(self) -> torch.Tensor:
        """Mean of every variable, (*batch, d); of finite ones that of the level codes, if their order means something.

        Exact where :meth:`log_prob` is, otherwise an estimate.
        """
        return self._expanded(self._moments("mean")[0], 1)

    @property
    def variance(self) -> torch.Tensor:
        """Variance of every variable, (*batch, d), as for :attr:`mean`."""
        return self._expanded(self._moments("variance")[1], 1)

    def _moments(self, what: str) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG002
        """Mean and variance of every variable, each (*batch of the law, d); ``what`` of them is asked for."""
        return self._law.moments

    @property
    def _own_validation(self) -> bool | None:
        """The setting of this very law; None where Pyro's counts."""
        return self.__dict__.get("_validate_args")

    def _repr(self, *words: str) -> str:
        """Name of the class with the words and, where there is one, the batch shape."""
        batch = [f"batch_shape={tuple(self.batch_shape)}"] if self.batch_shape else []
        return f"{type(self).__name__}({', '.join([*words, *batch])})"

    # Tensors of the law in the batch shape of the distribution

    @property
    def _is_own_batch(self) -> bool:
        return self._batch_shape == self._law.batch_shape

    def _expanded(self, tensor: torch.Tensor, event_dim: int = 0) -> torch.Tensor:
        """A tensor with the batch shape of the law, given the batch shape of this distribution."""
        if self._is_own_batch:
            return tensor
        return tensor.expand(self.batch_shape + tensor.shape[tensor.dim() - event_dim :])

    def _in_batch(self, derived: Self) -> Self:
        """A law derived from the parameters alone, in the batch shape of this distribution."""
        shape = broadcast_shapes(derived.batch_shape, self.batch_shape)
        return derived if shape == derived.batch_shape else derived.expand(shape)

    def _check_value(self, value: object, words: str, *, only_numbers: bool = True) -> torch.Tensor:
        """The value, or an error unless it is a dense tensor whose shape ends with the event and fits the batch.

        With ``only_numbers`` neither truth values nor complex numbers are taken.
        """
        if not isinstance(value, torch.Tensor):
            raise wrong_type("value", f"a tensor of {words}", value)
        if only_numbers and (value.dtype == torch.bool or value.is_complex()):
            raise wrong_type("value", words, received=f"dtype {value.dtype}")
        check_dense(value, "value")
        self._sample_batch(value)
        return value

    def _undefined(self, value: torch.Tensor) -> torch.Tensor:
        """NaN in the shape of a log-probability, tied to the graph of the parameters."""
        return (self._law.parameters.sum(-1) * math.nan).expand(self._sample_batch(value))

    def _sample_batch(self, value: torch.Tensor) -> torch.Size:
        """Broadcast shape of a value's leading dimensions with the batch."""
        try:
            if value.shape[-1:] == self.event_shape:
                return torch.Size(broadcast_shape(value.shape[:-1], self.batch_shape))
        except ValueError:
            pass
        wanted = f"a shape that broadcasts with {(*self.batch_shape, *self.event_shape)}"
        raise unexpected("value", wanted, received=tuple(value.shape), code="wrong-shape")

    def _drawn(
        self, sample_shape: Sequence[int], draw: Callable[[torch.Size], torch.Tensor], like: torch.Tensor
    ) -> torch.Tensor:
        """Draws (*sample, *batch, d), like a tensor, by ``draw``, which gives (*shape, *batch of the law, d)."""
        refuse_traced("sample", "the draws")
        # Sizes of the new leading dimensions, and per present dimension by how much it was expanded (1: not).
        present, wanted = self._law.batch_shape, self.batch_shape
        lead = tuple(wanted[: len(wanted) - len(present)])
        inner = tuple(m if n == 1 else 1 for n, m in zip(present, wanted[len(lead) :], strict=True))
        sample_shape = checked_sample_shape(sample_shape, self.shape().numel())
        shape = self.shape(sample_shape)
        if not shape.numel():
            return like.new_zeros(shape)
        with torch.no_grad():
            drawn = draw(torch.Size((*sample_shape, *lead, *inner)))
        if any(n != 1 for n in inner):
            # Copies go before the batch dimension that they expand.
            first, width = len(sample_shape) + len(lead), len(inner)
            pairs = (i for k in range(width) for i in (first + k, first + width + k))
            drawn = drawn.permute([*range(first), *pairs, first + 2 * width])
        return drawn.reshape(shape)


class EnergyLaw(SharedLaw):
    """A law of a model with an energy and a backend that normalises it."""

    _arguments: ClassVar[tuple[str, str]]
    """Names of the constructor's structure, whose variables fix the event shape, and of its parameters."""

    @classmethod
    def infer_shapes(cls, **arguments: Any) -> tuple[torch.Size, torch.Size]:  # type: ignore[override]
        """Batch and event shape, from the structure and the shape of the parameters under the constructor's names."""
        structure, parameters = (arguments[name] for name in cls._arguments)
        return torch.Size(tuple(parameters)[:-1]), torch.Size((len(structure.domain),))

    @property
    def partition(self) -> Any:
        """The backend that normalises, and draws where it can."""
        return self._law.partition

    @property
    def energy_model(self) -> Any:
        """The unnormalised model: energies and conditionals without the normalising constant."""
        return self._law.model if self._is_own_batch else self._law.model.expand(self.batch_shape)

    def energy(self, value: torch.Tensor) -> torch.Tensor:
        """Minus the log-probability without its normalising constant, (*sample, *batch)."""
        if self._validate_args:
            self._validate_sample(value)
        return self._energy(value).expand(self._sample_batch(value))

    def _energy(self, value: torch.Tensor) -> torch.Tensor:
        """Energies (*sample, *batch of the law) of values that were checked when validating."""
        return self._law.model.energy(value, validate=False)

    def _normalised(
        self, log_probs: torch.Tensor, log_z: LogPartition, value: torch.Tensor, *, is_discrete: bool = True
    ) -> torch.Tensor:
        """Log-probabilities (*sample, *batch) by the law's log Z; refused where its estimate proves wrong."""
        if is_discrete and log_z.kind != "exact":
            domain = self._law.domain

            def describe(place: int) -> str:
                states = value.expand(*log_probs.shape, value.shape[-1]).reshape(-1, value.shape[-1])
                labels = [
                    v.labels[k] if v.labels else k for v, k in zip(domain, states[place].long().tolist(), strict=True)
                ]
                return f"the state {state_text(domain.names, labels)}"

            log_z.check_log_probs(log_probs, describe)
        return log_probs if self._is_own_batch else log_probs.expand(self._sample_batch(value))

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant with its kind, error and cost, computed once per law; its tensors are (*batch)."""
        result = self._law.log_partition
        return result if self._is_own_batch else expand_result(result, self._law.batch_shape, self.batch_shape)


class FiniteLaw(SharedLaw):
    """A law of vectors of level codes."""

    has_enumerate_support = True

    _if_missing: ClassVar[str] = ""
    """What the refusal of a code -1 adds."""

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> StateSpace:  # type: ignore[override]
        """Vectors of level codes."""
        return StateSpace(self.domain.cardinalities)

    def _validate_sample(self, value: torch.Tensor) -> None:
        value, domain = self._check_value(value, "level codes"), self._law.domain
        if is_hidden(value):
            return
        is_level = is_code(value, domain.cardinalities)
        if not bool(is_level.all()):
            where = (~is_level).nonzero()[0].tolist()
            variable, received = domain.variables[where[-1]], value[tuple(where)].item()
            raise refused(
                "value",
                f"variable {variable.name!r} has codes 0 to {variable.cardinality - 1}, received {received} at index "
                f"{tuple(where)}, outside the support{(self._if_missing if received == -1 else '')}",
                code="out-of-range",
            )

    @property
    @abstractmethod
    def log_prob_table(self) -> torch.Tensor:
        """Log-probability of every cell, (*batch, *cardinalities)."""

    @property
    def probs(self) -> torch.Tensor:
        """Probability of every cell, (*batch, *cardinalities); see :attr:`log_prob_table`."""
        return self.log_prob_table.exp()

    def enumerate_support(self, expand: bool = True) -> torch.Tensor:
        """Every state once, the last variable fastest, (num_states, *batch, d); a batch of ones unless expanded."""
        self._require_enumerable()
        return enumerated_states(self.domain.cardinalities, self.batch_shape, expand, self._law.device)

    @abstractmethod
    def _require_enumerable(self) -> None:
        """Refuse more states than may be listed."""
