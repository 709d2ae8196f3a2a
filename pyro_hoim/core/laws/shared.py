"""What distributions over vectors have in common whose copies of another batch shape share one law."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, cast

import torch
from pyro.distributions import TorchDistribution, constraints
from pyro.distributions.util import broadcast_shape

from ...checks import check_dense, checked_sample_shape, is_hidden
from ...errors import refused, unexpected, wrong_type
from ...schema import Domain
from ..partition import LogPartition
from .expansion import beside_their_origin, check_expandable, enumerated_states, split_expansion
from .support import StateSpace
from .traces import expand_result, refuse_traced

__all__ = ["EnergyLaw", "FiniteLaw", "SharedLaw", "check_numbers", "check_shape", "check_value"]


# Checks of values of laws over vectors.


def check_shape(value: object, words: str, batch_shape: torch.Size, event_shape: torch.Size) -> torch.Tensor:
    """The value, or an error unless it is a tensor whose shape ends with the event and fits the batch."""
    if not isinstance(value, torch.Tensor):
        raise wrong_type("value", f"a tensor of {words}", value)
    check_dense(value, "value")
    if value.dim() == 0 or value.shape[-1:] != event_shape:
        expected = (*batch_shape, *event_shape)
        raise unexpected(
            "value", f"a shape that broadcasts with {expected}", received=tuple(value.shape), code="wrong-shape"
        )
    sample_batch(value, batch_shape, event_shape)
    return value


def check_numbers(value: object, words: str, batch_shape: torch.Size, event_shape: torch.Size) -> torch.Tensor:
    """As :func:`check_shape`; neither truth values nor complex numbers are taken."""
    if isinstance(value, torch.Tensor) and (value.dtype == torch.bool or value.is_complex()):
        raise wrong_type("value", words, received=f"dtype {value.dtype}")
    return check_shape(value, words, batch_shape, event_shape)


def check_value(value: object, domain: Domain, batch_shape: torch.Size, *, if_missing: str = "") -> None:
    """Raise unless a value has the right shape and lies in the support; ``if_missing`` is said of a code -1."""
    value = check_numbers(value, "level codes", batch_shape, torch.Size((len(domain),)))
    if is_hidden(value):
        return
    is_level = StateSpace(domain.cardinalities).is_level(value)
    if not bool(is_level.all()):
        where = (~is_level).nonzero()[0].tolist()
        variable, received = domain.variables[where[-1]], value[tuple(where)].item()
        raise refused(
            "value",
            f"variable {variable.name!r} has codes 0 to {variable.cardinality - 1}, received {received} at index "
            f"{tuple(where)}, outside the support{(if_missing if received == -1 else '')}",
            code="out-of-range",
        )


def sample_batch(value: torch.Tensor, batch_shape: torch.Size, event_shape: torch.Size) -> torch.Size:
    """Broadcast shape of a value's leading dimensions with the batch."""
    try:
        return torch.Size(broadcast_shape(value.shape[:-1], batch_shape))
    except ValueError:
        expected = (*batch_shape, *event_shape)
        wanted = f"a shape that broadcasts with {expected}"
        raise unexpected("value", wanted, received=tuple(value.shape), code="wrong-shape") from None


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
        shape = torch.broadcast_shapes(derived.batch_shape, self.batch_shape)
        return derived if shape == derived.batch_shape else derived.expand(shape)

    def _sample_batch(self, value: torch.Tensor) -> torch.Size:
        """Broadcast shape of a value's leading dimensions with the batch."""
        return sample_batch(value, self.batch_shape, self.event_shape)

    def _drawn(
        self, sample_shape: Sequence[int], draw: Callable[[torch.Size], torch.Tensor], like: torch.Tensor
    ) -> torch.Tensor:
        """Draws (*sample, *batch, d), like a tensor, by ``draw``, which gives (*shape, *batch of the law, d)."""
        refuse_traced("sample", "the draws")
        lead, inner = split_expansion(self._law.batch_shape, self.batch_shape)
        sample_shape = checked_sample_shape(sample_shape, self.shape().numel())
        shape = self.shape(sample_shape)
        if not shape.numel():
            return like.new_zeros(shape)
        with torch.no_grad():
            drawn = draw(torch.Size((*sample_shape, *lead, *inner)))
        if any(n != 1 for n in inner):
            drawn = beside_their_origin(drawn, len(sample_shape) + len(lead), len(inner))
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

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant with its kind, error and cost, computed once per law; its tensors are (*batch)."""
        result = self._law.log_partition
        return result if self._is_own_batch else expand_result(result, self._law.batch_shape, self.batch_shape)


class FiniteLaw(SharedLaw):
    """A law of vectors of level codes."""

    has_enumerate_support = True

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> StateSpace:  # type: ignore[override]
        """Vectors of level codes."""
        return StateSpace(self.domain.cardinalities)

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
