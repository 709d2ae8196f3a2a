"""The family of every variable of a generalized root model: one for all, or one each (paper 2, section 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import cast, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import constraints
from typing_extensions import override

from ..._modes import plain_mode
from ...errors import InputError, check_names, check_type, conflict, out_of_range, unexpected, wrong_type
from ...schema import Domain
from .families import IndicatorFamily, NodeFamily, PoissonFamily
from .log_partition import NodeMoments, node_log_partition, node_moments
from .user_family import UserFamily, user_value_moments

_MANY = 1000  # as large as a root may be

Families = NodeFamily | Mapping[str, NodeFamily] | Sequence[NodeFamily]
"""What an argument ``family`` takes: one for all variables, one by name, or one each in schema order."""


@dataclass(frozen=True)
class NodeFamilies(Sequence[NodeFamily]):
    r"""Families of d variables in schema order, so that :math:`T_s` and :math:`B_s` belong to variable s.

    A sequence of :class:`~pyro_hoim.generalized_root.NodeFamily`; equal families make equal values. Methods that take
    values or natural parameters work on all variables together, those of one family at a time; where all have the same
    family they cost what the family alone does.

    Attributes:
        each: the family of every variable.
        common: the family that all variables have; None where they have several.

    Example:
        >>> from pyro_hoim import Variable
        >>> from pyro_hoim.generalized_root import GaussianFamily, PoissonFamily
        >>> domain = Domain([Variable("visits", kind="count"), Variable("weight", kind="real")])
        >>> families = NodeFamilies.of({"weight": GaussianFamily(), "visits": PoissonFamily()}, domain)
        >>> families.root(torch.tensor([4.0, -3.0]), 2)  # the root of the count, and the number itself
        tensor([ 2., -3.])
        >>> families.log_base(torch.tensor([2.0, -3.0]))  # minus log 2!, and 0
        tensor([-0.6931,  0.0000])
    """

    each: tuple[NodeFamily, ...]
    common: NodeFamily | None = None

    @classmethod
    def of(cls, family: Families, domain: Domain) -> NodeFamilies:
        """Families of the variables of a domain.

        Raises:
            InputError: names that are not those of the variables, or another number of families.
            InputTypeError: something else than families.
        """
        # By type first: checks of abstract classes cost more than all else that small models do here.
        names = domain.names
        if type(family) is NodeFamilies and len(family.each) == len(names):
            return family
        if isinstance(family, NodeFamily):
            return _alike(family, len(names))
        if isinstance(family, str) or not isinstance(family, Mapping | Sequence):
            raise wrong_type("family", "a NodeFamily, or one for every variable", family)
        # One by name, or one each in order.
        if isinstance(family, Mapping):
            check_names(family, names, "family")
            missing = [name for name in names if name not in family]
            if missing:
                expected, received = "a family for every variable", f"none for {missing[0]!r}"
                raise unexpected("family", expected, received=received, code="missing-part")
            each = tuple(family[name] for name in names)
        else:
            each = tuple(cast("Iterable[NodeFamily]", family))
            if len(each) != len(names):
                expected = f"one family, or {len(names)}, one for every variable"
                raise unexpected("family", expected, received=f"{len(each)} families", code="wrong-shape")
        for name, one in zip(names, each, strict=True):
            check_type(one, NodeFamily, f"family of {name!r}", "a node family")
        return cls._joined(each, PoissonFamily())

    @classmethod
    def _joined(cls, each: tuple[NodeFamily, ...], otherwise: NodeFamily) -> NodeFamilies:
        """Families with the common one, which is any where there are no variables; indicators have none."""
        first = each[0] if each else otherwise
        if isinstance(first, IndicatorFamily):
            return cls(each) if each else cls(each, PoissonFamily())
        return cls(each, first if all(family == first for family in each) else None)

    def __hash__(self) -> int:
        return hash(self.each if self.common is None else self.common)

    @override
    def __len__(self) -> int:
        return len(self.each)

    @override
    def __iter__(self) -> Iterator[NodeFamily]:
        return iter(self.each)

    @overload
    def __getitem__(self, index: int) -> NodeFamily: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[NodeFamily, ...]: ...
    @override
    def __getitem__(self, index: int | slice) -> NodeFamily | tuple[NodeFamily, ...]:
        return self.each[index]

    @override
    def __repr__(self) -> str:
        return repr(self.each if self.common is None else self.common)

    def the_one(self, argument: str) -> NodeFamily:
        """The common family, for what needs one; an :class:`InputError` where variables have several."""
        if self.common is None:
            expected = "one family for all variables"
            hint = "energies, conditionals, log Z, chains, pseudo-likelihoods and model files take several"
            raise unexpected(argument, expected, hint=hint, received=self.name, code="no-method")
        return self.common

    def at(self, positions: Iterable[int]) -> NodeFamilies:
        """Families of some variables, by schema positions."""
        if self.common is not None:
            return _alike(self.common, len(list(positions)))
        return self._joined(tuple(self.each[s] for s in positions), self.each[0])

    def check_kinds(self, domain: Domain) -> None:
        """Refuse variables of another kind than that of the values of their families."""
        for variable, family in zip(domain, self.each, strict=True):
            if variable.kind != family.kind:
                problem = f"the {family.name} family needs variables of kind {family.kind!r}"
                raise conflict("structure", f"{problem}, but {variable.name!r} is of kind {variable.kind!r}")

    @property
    def name(self) -> str:
        """Name of the common family, or those of all in the order of their first variables."""
        return ", ".join(dict.fromkeys(family.name for family in self._distinct))

    @cached_property
    def _distinct(self) -> tuple[NodeFamily, ...]:
        return (self.common,) if self.common is not None else tuple(dict.fromkeys(self.each))

    @cached_property
    def groups(self) -> tuple[tuple[NodeFamily, NDArray[np.int64]], ...]:
        """The distinct families, each with the positions of its variables."""
        if self.common is not None:
            return ((self.common, np.arange(len(self.each))),)
        places = {family: number for number, family in enumerate(self._distinct)}
        number = np.array([places[family] for family in self.each], dtype=np.int64)
        return tuple((family, np.flatnonzero(number == k)) for family, k in places.items())

    @cached_property
    def blocks(self) -> tuple[NDArray[np.int64], ...]:
        """Positions of the indicators of every category."""
        if self.common is not None:
            return ()
        return tuple(places for family, places in self.groups if isinstance(family, IndicatorFamily))

    @cached_property
    def units(self) -> tuple[NDArray[np.int64], ...]:
        """What is drawn and summed together: the positions of every category, and of every other variable alone."""
        units = {int(places[0]): places for places in self.blocks}
        inside = {int(s) for places in self.blocks for s in places}
        return tuple(units.get(s, np.array([s])) for s in range(len(self.each)) if s in units or s not in inside)

    def block_of(self, s: int) -> NDArray[np.int64]:
        """Positions of what is drawn and summed together with a variable, itself among them."""
        return next((places for places in self.blocks if s in places), np.array([s]))

    def check_whole(self, positions: Iterable[int], domain: Domain, argument: str) -> None:
        """Refuse a part of the indicators of a category."""
        given = set(positions)
        for places in self.blocks:
            inside = [s for s in places.tolist() if s in given]
            if inside and len(inside) < len(places):
                missing = domain.names[next(s for s in places.tolist() if s not in given)]
                problem = f"{domain.names[inside[0]]!r} is one of several indicators of a category"
                raise conflict(argument, problem, f"give all of them, {missing!r} too")

    def is_possible(self, values: Tensor) -> Tensor:
        """Whether states (*sample, d) of bounded counts have a base measure and one indicator of every category."""
        is_possible = torch.isfinite(self.log_base(values)).all(-1)
        for places in self.blocks:
            is_possible = is_possible & (values[..., torch.from_numpy(places)].sum(-1) == 1)
        return is_possible

    def states_of(self, positions: Sequence[int]) -> Tensor:
        """All joint states (N, m) of whole units of bounded counts, the last unit fastest, float64."""
        place = {s: i for i, s in enumerate(positions)}
        units = [unit for unit in self.units if int(unit[0]) in place]
        sizes = [self.size_of(unit) for unit in units]
        codes = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), np.int64)
        states = np.zeros((codes.shape[1], len(positions)))
        for unit, code in zip(units, codes, strict=True):
            values = self.values_of(unit)
            states[:, [place[int(s)] for s in unit]] = values[code]
        return torch.from_numpy(states)

    def is_category(self, unit: NDArray[np.int64]) -> bool:
        """Whether a unit holds the indicators of a category."""
        return isinstance(self.each[int(unit[0])], IndicatorFamily)

    def size_of(self, unit: NDArray[np.int64]) -> int:
        """Number of values of a unit of bounded counts."""
        return len(unit) if self.is_category(unit) else int(self.each[int(unit[0])].largest_value) + 1

    def sizes(self, values: Sequence[int]) -> list[int]:
        """Number of points of every unit, from those of every variable."""
        if not self.blocks:
            return list(values)
        return [len(unit) if self.is_category(unit) else values[int(unit[0])] for unit in self.units]

    def values_of(self, unit: NDArray[np.int64]) -> NDArray[np.float64]:
        """Values (n, m) of the variables of a unit of bounded counts."""
        if self.is_category(unit):
            return np.eye(len(unit))
        return np.arange(float(self.size_of(unit)))[:, None]

    def num_roots(self, positions: Iterable[int]) -> int:
        """Largest number of roots whose products over some variables are linearly independent functions.

        That of the products of values other than 0, since powers of distinct numbers are independent; a large one where
        a member has infinitely many values, or a statistic of a user.
        """
        products = {1.0}
        for family in (self.each[s] for s in positions):
            if isinstance(family, UserFamily) or not (family.is_discrete and family.largest_value < _MANY):
                return _MANY
            values = range(1, int(family.largest_value) + 1)
            products = {product * value for product in products for value in values}
            if len(products) >= _MANY:
                return _MANY
        return len(products)

    def full_roots(self, positions: Sequence[int], order: int) -> range:
        """Roots up to an order of the terms of some variables in a full model: as many as are different functions."""
        size = len(positions)
        return range(size, min(order, size + self.num_roots(positions) - 1) + 1)

    def gathered(self, log_probs: Tensor, values: Tensor) -> Tensor:
        """Log probabilities (*shape, d) with that of every category at its indicator that is set, 0 at the others."""
        for places in self.blocks:
            where = torch.from_numpy(places).to(log_probs.device)
            total = log_probs[..., where].sum(-1, keepdim=True)
            log_probs = log_probs.index_copy(-1, where, total * values[..., where].to(total))
        return log_probs

    @cached_property
    @plain_mode()
    def _order(self) -> Tensor:
        """Place of every variable among those of all groups, one group after the other."""
        parts = [positions for _, positions in self.groups]
        return torch.from_numpy(np.argsort(np.concatenate([np.zeros(0, np.int64), *parts]), kind="stable"))

    @cached_property
    def is_discrete(self) -> bool:
        """Whether all values are counts."""
        return all(family.is_discrete for family in self._distinct)

    @cached_property
    def is_bounded(self) -> bool:
        """Whether every variable has finitely many values."""
        return all(family.is_discrete and math.isfinite(family.largest_value) for family in self._distinct)

    @cached_property
    def is_gaussian(self) -> bool:
        """Whether all variables are of the Gaussian family."""
        return all(family.name == "gaussian" for family in self._distinct)

    @cached_property
    def has_user_family(self) -> bool:
        """Whether some family is a user's."""
        return any(isinstance(family, UserFamily) for family in self._distinct)

    @cached_property
    def largest_values(self) -> tuple[float, ...]:
        """Largest value of every variable; infinity where there is none."""
        return tuple(family.largest_value for family in self.each)

    @property
    def support(self) -> constraints.Constraint:
        """The domain of every variable, along the last dimension of a state, as a constraint of an entry."""
        if self.common is not None:
            return self.common.support
        each = constraints.cat([family.support for family in self.each], dim=-1)
        return _OneOfEvery(each, self) if self.blocks else each  # type: ignore[no-any-return]

    def root(self, values: Tensor, j: int, axis: int = -1) -> Tensor:
        """The j-th roots of the statistics, shape of the values, whose variables are along an axis."""
        if self.common is not None:
            return self.common.root(values, j)
        parts = [family.root(self._taken(values, places, axis), j) for family, places in self.groups]
        return self._placed(parts, axis)

    def roots(self, values: Tensor, order: int) -> Tensor:
        """The roots of orders 1 to k in a new last dimension, (*sample, d, k), of values (*sample, d)."""
        return torch.stack([self.root(values, j) for j in range(1, order + 1)], -1)

    def log_base(self, values: Tensor) -> Tensor:
        """Log base measures (*sample, d) of values (*sample, d)."""
        if self.common is not None:
            return self.common.log_base(values)
        parts = [family.log_base(self._taken(values, places, -1)) for family, places in self.groups]
        return self._placed(parts, -1)

    def check_values(self, values: Tensor, argument: str) -> None:
        """Refuse values (*sample, d) unless all are of the domains of their variables; the first one is named."""
        if self.common is not None:
            self.common.check_values(values, argument)
            return
        for family, places in self.groups:
            try:
                family.check_values(self._taken(values, places, -1), argument)
            except InputError:
                for s in places.tolist():  # one by one, for the place of the wrong value
                    family.check_values(values[..., s], f"{argument}[..., {s}]")
                raise
        for places in self.blocks:
            if bool((values[..., torch.from_numpy(places)].sum(-1) != 1).any()):
                category = cast("IndicatorFamily", self.each[int(places[0])]).category
                raise out_of_range(
                    argument, f"one indicator of the category {category!r} that is 1, and others that are 0"
                )

    def log_partition(self, natural: Tensor) -> Tensor:
        """Node log partitions (*batch, d) in nats at natural parameters (*batch, d, k), differentiable twice.

        That of a category is with its first indicator, and 0 with the others.
        """
        if self.common is not None:
            return node_log_partition(self.common, natural)
        parts = [_log_partition(family, self._taken(natural, places, -2)) for family, places in self.groups]
        return self._placed(parts, -1)

    def moments(self, natural: Tensor, hessian: bool = True) -> NodeMoments:
        """As :func:`~pyro_hoim.generalized_root.node_moments`, of all variables at parameters (*batch, d, k).

        Values of categories are as in :meth:`log_partition`, and covariances between indicators are left out.
        """
        if self.common is not None:
            return node_moments(self.common, natural, hessian)
        laws = [_moments(family, self._taken(natural, places, -2), hessian) for family, places in self.groups]
        covariances = [law.covariance for law in laws if law.covariance is not None]
        return NodeMoments(
            self._placed([law.value for law in laws], -1),
            self._placed([law.mean for law in laws], -2),
            self._placed(covariances, -3) if hessian else None,
            self._placed([law.error for law in laws], -1),
        )

    def value_moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (*batch, d) of the values themselves, of independent variables."""
        pairs = [_value_moments(family, self._taken(natural, places, -2)) for family, places in self.groups]
        mean, variance = ([pair[i] for pair in pairs] for i in (0, 1))
        return self._placed(mean, -1), self._placed(variance, -1)

    def _taken(self, values: Tensor, places: NDArray[np.int64], axis: int) -> Tensor:
        """The slices of some variables along an axis."""
        if self.common is not None:
            return values
        return values.index_select(axis, torch.from_numpy(places).to(values.device))

    def _placed(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Slices of all groups, in schema order along an axis."""
        if len(parts) == 1:
            return parts[0]
        return torch.cat(list(parts), axis).index_select(axis, self._order.to(parts[0].device))


@lru_cache(maxsize=4096)
@plain_mode()
def root_range(family: NodeFamily, j: int) -> tuple[float, float]:
    """Least and largest j-th root over the values of a bounded count."""
    top = family.largest_value
    values = torch.arange(top + 1) if isinstance(family, UserFamily) else torch.tensor([0.0, top])
    roots = family.root(values.double(), j)
    return float(roots.min()), float(roots.max())


@lru_cache(maxsize=256)
def _alike(family: NodeFamily, size: int) -> NodeFamilies:
    """One family for all variables; kept, for models of one shape are made again and again."""
    return NodeFamilies._joined((family,) * size, family)


class _OneOfEvery(constraints.Constraint):
    """States (*sample, d) in the domains of their variables, with one indicator of every category; entry by entry."""

    is_discrete = True

    def __init__(self, each: constraints.Constraint, families: NodeFamilies) -> None:
        self._each, self._families = each, families

    def check(self, value: Tensor) -> Tensor:
        """Whether every entry is right; those of a category are together."""
        is_right = self._each.check(value)
        for places in self._families.blocks:
            where = torch.from_numpy(places).to(value.device)
            is_one = (value[..., where].sum(-1, keepdim=True) == 1) & is_right[..., where]
            is_right = is_right.index_copy(-1, where, is_one)
        return is_right


def _log_partition(family: NodeFamily, natural: Tensor) -> Tensor:
    """Node log partitions (*batch, m) of the variables of one family."""
    if not isinstance(family, IndicatorFamily):
        return node_log_partition(family, natural)
    value = natural.sum(-1).logsumexp(-1, keepdim=True)
    return torch.cat([value, value.new_zeros(*natural.shape[:-2], natural.shape[-2] - 1)], -1)


def _moments(family: NodeFamily, natural: Tensor, hessian: bool) -> NodeMoments:
    """Moments of the variables of one family at natural parameters (*batch, m, k)."""
    if not isinstance(family, IndicatorFamily):
        return node_moments(family, natural, hessian)
    value, k = _log_partition(family, natural.detach()), natural.shape[-1]
    probs = natural.detach().sum(-1).softmax(-1)
    covariance = (probs * (1 - probs))[..., None, None].expand(*probs.shape, k, k) if hessian else None
    return NodeMoments(value, probs.unsqueeze(-1).expand(*probs.shape, k), covariance, torch.zeros_like(value))


def _value_moments(family: NodeFamily, natural: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (*batch) of the value of a node at natural parameters (*batch, k)."""
    # A user's statistic need not be the value itself.
    if isinstance(family, IndicatorFamily):
        probs = natural.sum(-1).softmax(-1)
        return probs, probs * (1 - probs)
    if isinstance(family, UserFamily):
        rows = natural.detach().cpu().double().numpy()
        pair = user_value_moments(family, np.ascontiguousarray(rows.reshape(-1, rows.shape[-1])))
        mean, variance = (torch.from_numpy(part).reshape(rows.shape[:-1]).to(natural) for part in pair)
        return mean, variance
    # Else the value is among the roots.
    root = 1 if family.name == "gaussian" else 0
    wide = torch.nn.functional.pad(natural, (0, max(root + 1 - natural.shape[-1], 0)))
    node = node_moments(family, wide)
    assert node.covariance is not None
    return node.mean[..., root], node.covariance[..., root, root]
