"""Priors over which interactions exist, as a Pyro distribution over indicators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pyro.distributions import TorchDistribution
from scipy.special import logsumexp
from torch.distributions import constraints

from ..._modes import plain_mode
from ...checks import broadcast_shapes, check_shape, checked_sample_shape
from ...core.laws.expansion import check_expandable
from ...data.columns import FrameOptions
from ...data.frames import DataLike, as_observations, rows_of_frame
from ...data.observations import Observations
from ...errors import (
    check_choice,
    check_fraction,
    check_positive,
    check_type,
    check_whole,
    conflict,
    is_real,
    none_received,
    other_domain,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
)
from ...schema import Domain
from ...structure.hypergraph import Edge, InteractionHypergraph

_BURN_IN_SWEEPS, _SWEEPS = 50, 10


class StructureSupport(constraints.Constraint):
    """Indicator vectors (..., candidates), of any dtype, of the members of a space; :meth:`check` returns (...)."""

    is_discrete = True
    event_dim = 1

    def __init__(self, space: StructureSpace) -> None:
        self.space = space
        super().__init__()

    def check(self, value: torch.Tensor) -> torch.Tensor:
        """Whether each vector holds zeros and ones alone and is a member."""
        check_shape(value, (len(self.space.candidates),), "value")
        is_binary = ((value == 0) | (value == 1)).all(-1)
        flags = (value == 1).reshape(value.shape[:-1].numel(), value.shape[-1]).cpu().numpy()
        inside = torch.from_numpy(self.space.are_members(flags)).to(value.device)
        return is_binary & inside.reshape(value.shape[:-1])


class StructurePrior(TorchDistribution):
    r"""A law over collections of interactions: vectors of 0 and 1 over the candidate interactions.

    .. math:: p(\gamma) \propto \mathbb 1[\gamma \in \mathcal G]\; \rho^{k} (1 - \rho)^{m - k}, \qquad
        p(\gamma) \propto \mathbb 1[\gamma \in \mathcal G]\; \frac{B(a + k, b + m - k)}{B(a, b)}

    with k the number of interactions that are present out of m. Candidates are the sets of 2 to ``max_order``
    variables in the order of :class:`~pyro_hoim.structure.InteractionHypergraph`; main effects are always present and
    have no indicator. Which vectors :math:`\mathcal G` are possible is the *space*:

    ================  ===========================================================================================
    space             collections
    ================  ===========================================================================================
    ``hierarchical``  an interaction of three and more variables needs a share ``heredity`` of its facets; with 1
                      every subset of an interaction is present
    ``graphical``     the cliques of a graph; the indicators of pairs fix the others, and k and m count pairs
    ``decomposable``  likewise, of a chordal graph
    ``pairwise``      any pairs, nothing above
    ================  ===========================================================================================

    With ``inclusion=0.5`` every collection of the space is as probable. Spaces of up to 2^16 collections (of graphs
    for the middle two) are listed: all hierarchical collections of five variables (6,894), all graphs of six. Then,
    and where indicators are free of one another (pairs alone, or ``heredity=0``), everything is exact; otherwise

    ====================  ================================  ==================================================
    quantity              listed, or free indicators        otherwise
    ====================  ================================  ==================================================
    ``log_prob``          normalised                        up to a constant: ``unnormalised`` is True
    ``sample``            exact                             last states of a Metropolis chain
    ``expected_size``     solved for                        IntractableError
    ====================  ================================  ==================================================

    Args:
        domain: finite variables.
        max_order: largest interaction; by default 2 for ``pairwise`` and the number of variables otherwise.
        heredity: share of facets, 0 to 1, of ``hierarchical``; below 1 a collection need not be closed under subsets.
        inclusion: :math:`\rho`, or ``("beta", a, b)`` for an unknown :math:`\rho` with a beta law, which corrects for
            the number of candidates.
        expected_size: expectation of k, in the place of ``inclusion``, which is solved for.
        space: which collections.
        validate_args: check values given to :meth:`log_prob`; default is Pyro's global setting.

    Attributes:
        space: the space, with its candidates.
        inclusion: :math:`\rho` or the beta law.

    Shape:
        batch shape (), event shape (number of candidates,); samples have PyTorch's default floating dtype.

    Raises:
        InputError: numbers out of range, options that exclude each other, an ``expected_size`` that no member reaches.
        InputTypeError: ``domain`` is none.
        IntractableError: too many candidates; ``expected_size`` in a space that is not listed.

    Randomness:
        :meth:`sample` uses PyTorch's global generator.

    References:
        James Scott and James Berger, Bayes and empirical-Bayes multiplicity adjustment in the variable-selection
        problem, Annals of Statistics 38, 2010, for the beta law.

    Example:
        >>> prior = StructurePrior(Domain.from_cardinalities({"a": 2, "b": 2, "c": 3}), max_order=3)
        >>> prior.space.candidates
        (('a', 'b'), ('a', 'c'), ('b', 'c'), ('a', 'b', 'c'))
        >>> prior.log_prob(torch.tensor([1.0, 1.0, 1.0, 1.0])).exp()  # one of nine collections
        tensor(0.1111)
        >>> prior.log_prob(torch.tensor([1.0, 0.0, 0.0, 1.0]))  # two facets of the triple are absent
        tensor(-inf)
        >>> prior.hypergraph_of(torch.tensor([1.0, 0.0, 1.0, 0.0])).edges
        (('a',), ('b',), ('c',), ('a', 'b'), ('b', 'c'))
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # type: ignore[override]  # noqa: RUF012
    has_rsample = False

    def __init__(
        self,
        domain: Domain,
        *,
        max_order: int | None = None,
        heredity: float = 1.0,
        inclusion: float | tuple[str, float, float] = 0.5,
        expected_size: float | None = None,
        space: SpaceName = "hierarchical",
        validate_args: bool | None = None,
    ) -> None:
        self.space = StructureSpace(domain, max_order=max_order, heredity=heredity, space=space)
        self.inclusion: float | tuple[str, float, float] = _checked_inclusion(inclusion)
        if expected_size is not None:
            if inclusion != 0.5:
                raise conflict("expected_size", "it stands in the place of inclusion", "leave one of them out")
            self.inclusion = self._solve(expected_size)
        self._settle(torch.Size(), validate_args)

    def _settle(self, batch_shape: torch.Size, validate_args: bool | None) -> None:
        super().__init__(batch_shape, torch.Size((len(self.space.candidates),)), validate_args=False)
        del self._validate_args  # read when used, as other laws of the library do
        if validate_args is not None:
            self._validate_args = validate_args

    def __repr__(self) -> str:
        batch = f", batch_shape={tuple(self.batch_shape)}" if self.batch_shape else ""
        return f"StructurePrior({self.space!r}, inclusion={self.inclusion}{batch})"

    # What is exact

    @property
    def is_listed(self) -> bool:
        """Whether all members of the space are listed."""
        return self.space.members is not None

    @property
    def unnormalised(self) -> bool:
        """Whether :meth:`log_prob` leaves out the constant, a sum over a space that is not listed."""
        return not (self.space.is_free or self.is_listed)

    @property
    def sample_is_exact(self) -> bool:
        """Whether :meth:`sample` draws from this law and not from a chain."""
        return not self.unnormalised

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether :meth:`enumerate_support` can answer."""
        return self.is_listed

    @property
    def support(self) -> StructureSupport:  # type: ignore[override]
        """The members of the space."""
        return StructureSupport(self.space)

    # Weights by size

    @cached_property
    @plain_mode()
    def log_weights(self) -> torch.Tensor:
        """Log-probability of a member with k = 0, 1, ... free interactions, float64 (num_free + 1,), nats."""
        kernel = _log_kernel(self.inclusion, self.space.num_free)
        if not self.space.is_free and self.is_listed:
            kernel = kernel - logsumexp(kernel[self._sizes])
        return torch.from_numpy(kernel)

    @cached_property
    def _sizes(self) -> np.ndarray:
        """Number of free interactions of every member listed."""
        return _members(self.space, "expected_size")[:, : self.space.num_free].sum(1)

    def _solve(self, expected_size: float) -> float:
        """The inclusion under which the expectation of k is a number."""
        check_positive(expected_size, "expected_size")
        # Free indicators have the share itself for their inclusion.
        num = self.space.num_free
        largest = num if self.space.is_free else int(self._sizes.max(initial=0))
        if expected_size >= largest:
            problem = f"a number below {largest}, the largest collection of the space {self.space.name!r}"
            raise out_of_range("expected_size", problem, expected_size)
        if self.space.is_free:
            return expected_size / num
        # The expectation rises with the log odds: halve the interval that holds it.
        counts = np.bincount(self._sizes, minlength=num + 1)
        sizes = np.arange(num + 1)
        low, high = -60.0, 60.0  # log odds; the expectation grows with them
        for _ in range(200):
            middle = (low + high) / 2
            log_weight = np.where(counts > 0, np.log(np.maximum(counts, 1)) + sizes * middle, -np.inf)
            weight = np.exp(log_weight - log_weight.max())
            low, high = (middle, high) if (weight @ sizes) / weight.sum() < expected_size else (low, middle)
        return 1 / (1 + math.exp(-low))

    def log_weight(self, mask: int) -> float:
        """Log-probability of a member given by its mask (:class:`~.space.StructureSpace`), without a check."""
        return self._weight_list[mask.bit_count()]

    @cached_property
    def _weight_list(self) -> list[float]:
        return self.log_weights.tolist()

    @cached_property
    @plain_mode()
    def probs(self) -> torch.Tensor:
        """Probabilities of the members in the order of :meth:`enumerate_support`, float64; for listed spaces."""
        sizes = _members(self.space, "probs")[:, : self.space.num_free].sum(1)
        return self.log_weights[torch.from_numpy(sizes)].exp()

    @cached_property
    @plain_mode()
    def marginal_inclusion(self) -> torch.Tensor:
        """Probability that each candidate is present, float64 (candidates,); listed or free spaces."""
        if self.space.is_free:
            inclusion = self.inclusion
            mean = inclusion[1] / (inclusion[1] + inclusion[2]) if isinstance(inclusion, tuple) else inclusion
            return torch.full(self.event_shape, mean, dtype=torch.float64)
        members = torch.from_numpy(_members(self.space, "marginal_inclusion").astype(np.float64))
        return self.probs @ members

    # Pyro's contract

    def expand(self, batch_shape: Sequence[int], _instance: StructurePrior | None = None) -> StructurePrior:
        """The law with a larger batch shape; the list of members is shared."""
        new = cast("StructurePrior", self._get_checked_instance(StructurePrior, _instance))
        shape = check_expandable(self.batch_shape, batch_shape)
        for name, value in self.__dict__.items():
            if name not in ("_batch_shape", "_event_shape", "_validate_args"):
                setattr(new, name, value)
        new._settle(shape, self.__dict__.get("_validate_args"))
        return new

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-probability of indicators, in nats; minus infinity for collections outside the space.

        Shape:
            value (*sample, *batch, candidates); returns (*sample, *batch).
        """
        check_shape(value, self.event_shape, "value")
        if self._validate_args and not bool(((value == 0) | (value == 1)).all()):
            raise unexpected("value", "zeros and ones", code="out-of-range")
        # The number of present interactions fixes the probability of a member.
        sizes = (value[..., : self.space.num_free] == 1).sum(-1)
        dtype = value.dtype if value.is_floating_point() else torch.get_default_dtype()
        weights = self.log_weights.to(value.device)[sizes]
        shape = broadcast_shapes(value.shape[:-1], self.batch_shape)
        return torch.where(self.support.check(value), weights, -math.inf).to(dtype).expand(shape)

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Indicators (*sample, *batch, candidates), exact or from a chain (see the class)."""
        shape = checked_sample_shape(sample_shape, self.shape().numel()) + self.batch_shape
        num = math.prod(shape)
        size = len(self.space.candidates)
        dtype = torch.get_default_dtype()
        # Exact where indicators are free or members are listed, else from a chain.
        with torch.no_grad():
            if self.space.is_free:
                rho = torch.full((num, 1), 0.5, dtype=torch.float64)
                if isinstance(self.inclusion, tuple):
                    rho = torch.distributions.Beta(self.inclusion[1], self.inclusion[2]).sample((num, 1)).double()
                else:
                    rho = rho.fill_(self.inclusion)
                drawn = torch.bernoulli(rho.expand(num, size))
            elif self.is_listed:
                index = torch.multinomial(self.probs, num, replacement=True) if num else torch.zeros(0).long()
                drawn = torch.from_numpy(_members(self.space, "sample")[index.numpy()])
            else:
                drawn = torch.from_numpy(self._chain(num))
        return drawn.to(dtype).reshape(*shape, size)

    def _chain(self, num: int) -> Flags:
        """States of one Metropolis chain of single flips, thinned; a sweep proposes as many as there are candidates."""
        space, mask, masks = self.space, 0, list[int]()
        steps = space.num_free * (_BURN_IN_SWEEPS + _SWEEPS * num)
        if not num:
            return np.zeros((0, len(space.candidates)), dtype=bool)
        flips = torch.randint(space.num_free, (steps,)).tolist()
        log_uniforms = torch.rand(steps, dtype=torch.float64).log().tolist()
        # Single flips, accepted by the prior alone; a state every so many sweeps.
        for step, (j, log_uniform) in enumerate(zip(flips, log_uniforms, strict=True), start=1):
            other = mask ^ 1 << j
            if log_uniform < self.log_weight(other) - self.log_weight(mask) and space.may_flip(mask, j):
                mask = other
            done, rest = divmod(step, space.num_free)
            if not rest and done > _BURN_IN_SWEEPS and not (done - _BURN_IN_SWEEPS) % _SWEEPS:
                masks.append(mask)
        return space.flags_of(masks)

    def enumerate_support(self, expand: bool = True) -> torch.Tensor:
        """All members (M, *batch, candidates), or (M, 1, ..., candidates) when not expanded; for listed spaces."""
        members = _members(self.space, "enumerate_support")
        flags = torch.from_numpy(members.astype(np.float64)).to(torch.get_default_dtype())
        flags = flags.reshape(len(flags), *(1,) * len(self.batch_shape), -1)
        return flags.expand(len(flags), *self.batch_shape, -1) if expand else flags

    # Collections

    @property
    def largest(self) -> InteractionHypergraph:
        """All candidates and main effects: the collection in which every other is a mask over theta."""
        return self.space.largest

    def hypergraph_of(self, gamma: torch.Tensor) -> InteractionHypergraph:
        """The collection of a vector of indicators (candidates,), main effects included; InputError outside."""
        check_shape(gamma, self.event_shape, "gamma")
        if gamma.dim() != 1 or not bool(self.support.check(gamma)):
            raise unexpected("gamma", f"one vector of indicators in the space {self.space.name!r}", code="impossible")
        return self.space.hypergraph_of(self.space.masks_of((gamma == 1).unsqueeze(0).cpu().numpy())[0])

    def gamma_of(self, hypergraph: InteractionHypergraph) -> torch.Tensor:
        """Indicators of a collection, (candidates,); InputError for one outside the space."""
        flags = self.space.flags_of([self.space.mask_of(hypergraph)])
        return torch.from_numpy(flags[0]).to(torch.get_default_dtype())

    def index(self, edge: Sequence[str]) -> int:
        """Position of an interaction among the candidates; InputError for another."""
        indices = tuple(sorted(self.space.domain.indices(edge)))
        if indices not in self.space.position:
            expected = f"an interaction of 2 to {self.space.max_order} variables"
            raise out_of_range("edge", expected, received=repr(tuple(edge)))
        return self.space.position[indices]

    def parameter_mask(self, gamma: torch.Tensor) -> torch.Tensor:
        """Indicators repeated over the free parameters of :attr:`largest`; ones for main effects.

        ``theta * parameter_mask(gamma)`` are the parameters of the collection inside the largest one, so that
        one law over its statistics serves all collections.

        Shape:
            gamma (*batch, candidates); returns (*batch, largest.num_parameters), dtype of gamma.
        """
        check_shape(gamma, self.event_shape, "gamma")
        ones = gamma.new_ones(*gamma.shape[:-1], len(self.space.domain))
        return self.largest.spread(torch.cat([ones, gamma], -1))


def rows_and_prior(
    data: DataLike,
    structure_prior: StructurePrior | None,
    space: SpaceName = "hierarchical",
    options: FrameOptions | None = None,
) -> tuple[Observations, StructurePrior]:
    """Rows with a prior over collections, by default one that makes every member of a space as probable."""
    check_type(structure_prior, StructurePrior | None, "structure_prior")
    domain = None if structure_prior is None else structure_prior.space.domain
    data = as_observations(rows_of_frame(data, options or {}, domain=domain), domain=domain)
    return data, StructurePrior(data.domain, space=space) if structure_prior is None else structure_prior


def _members(space: StructureSpace, what: str) -> Flags:
    """The list of members, or IntractableError."""
    if space.members is None:
        problem = f"the space {space.name!r} over {len(space.domain)} variables has {space.size_text} collections"
        raise out_of_reach(what, f"{problem}, the limit of a list is {MAX_LISTED}", "lower max_order")
    return space.members


def _log_kernel(inclusion: float | tuple[str, float, float], num: int) -> np.ndarray:
    """Log weight of k = 0, ..., num present interactions; a law of free indicators, hence normalised there."""
    sizes = np.arange(num + 1, dtype=np.float64)
    if isinstance(inclusion, tuple):
        _, a, b = inclusion
        rise_a, rise_b, rise = (np.append(0.0, np.log(x + sizes[:num]).cumsum()) for x in (a, b, a + b))
        return rise_a + rise_b[::-1] - rise[-1]  # differences of beta functions cancel where a and b are large
    return sizes * math.log(inclusion) + (num - sizes) * math.log1p(-inclusion)


def _checked_inclusion(inclusion: Any) -> float | tuple[str, float, float]:
    if isinstance(inclusion, tuple):
        parts = cast("tuple[Any, ...]", inclusion)
        if len(parts) != 3 or parts[0] != "beta":
            raise unexpected(
                "inclusion", "a number between 0 and 1 or ('beta', a, b)", inclusion, code="unknown-choice"
            )
        for value in parts[1:]:
            check_positive(value, "inclusion")
        check_positive(float(parts[1]) + float(parts[2]), "inclusion")
        return ("beta", float(parts[1]), float(parts[2]))
    check_fraction(inclusion, "inclusion")
    return float(inclusion)


# Spaces of collections of interactions: candidates, membership, moves to neighbours, lists of all members.

SpaceName = Literal["hierarchical", "graphical", "decomposable", "pairwise"]
Flags = NDArray[np.bool_]

MAX_LISTED = 2**16
"""Largest number of collections (of graphs, for graphical and decomposable ones) that are listed."""
_MAX_CANDIDATES = 20_000
_MAX_VARIABLES = 62  # sets of variables are the bits of one signed integer
_HIERARCHICAL = {6: 7_785_062, 7: 2_414_627_396_434}
"""Hierarchical collections of any order with all main effects of so many variables (sequence A006126 of the OEIS)."""


class StructureSpace:
    r"""The collections that a structure may be (see :class:`~.prior.StructurePrior`), of 2 to ``max_order`` variables.

    A graphical or decomposable member is fixed by its pairs. *Free* candidates are those that may be chosen: the pairs
    in these two spaces, all candidates in the others. A birth or death changes one free candidate; a swap is a death
    and a birth. What else has to change with it, changes.

    Raises:
        InputError: numbers out of range, or options that exclude each other.
        IntractableError: more than 20,000 candidates.
    """

    def __init__(
        self, domain: Domain, *, max_order: int | None = None, heredity: float = 1.0, space: SpaceName = "hierarchical"
    ) -> None:
        check_type(domain, Domain, "domain")
        check_choice(space, get_args(SpaceName), "space")
        cards = domain.cardinalities  # refuses variables that are not finite
        if not cards:
            raise none_received("domain", "at least one variable")
        if space != "hierarchical" and heredity != 1:
            raise conflict("heredity", f"space={space!r} has rules of its own", "leave it out, or use 'hierarchical'")
        if not is_real(heredity) or not 0 <= heredity <= 1:
            raise out_of_range("heredity", "a number from 0 to 1", heredity)
        # The order is at least that of pairs, and in a space of pairs no more.
        least = min(2, len(cards))
        if max_order is None:
            max_order = least if space == "pairwise" else len(cards)
        max_order = check_whole(max_order, "max_order", least, len(cards))
        if space == "pairwise" and max_order > 2:
            raise conflict("max_order", f"space='pairwise' has pairs alone, received {max_order}", "use 'hierarchical'")
        if len(cards) > _MAX_VARIABLES and space in ("graphical", "decomposable"):
            problem = f"space={space!r} takes up to {_MAX_VARIABLES} variables, received {len(cards)}"
            raise out_of_reach("domain", problem, "use space='pairwise'")
        # Candidates are counted before they are listed.
        num = sum(math.comb(len(cards), k) for k in range(2, max_order + 1))
        if num > _MAX_CANDIDATES:
            problem = f"{size_text(num, 'candidates')}, the limit is {_MAX_CANDIDATES}"
            raise out_of_reach("max_order", problem, "lower max_order or take fewer variables")
        self.domain, self.max_order, self.heredity, self.name = domain, max_order, float(heredity), space
        orders = range(2, max_order + 1)
        self.candidate_indices = tuple(e for k in orders for e in itertools.combinations(range(len(cards)), k))
        self.candidates: tuple[Edge, ...] = tuple(tuple(domain.names[i] for i in e) for e in self.candidate_indices)
        self.position = {e: j for j, e in enumerate(self.candidate_indices)}
        self.num_pairs = math.comb(len(cards), 2)

    def __repr__(self) -> str:
        return f"StructureSpace({self.name}, {len(self.domain)} variables, {len(self.candidates)} candidates)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StructureSpace):
            return NotImplemented
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key[1:])

    @property
    def _key(self) -> tuple[object, ...]:
        return self.domain, self.max_order, self.heredity, self.name

    # Parts

    @property
    def is_graphical(self) -> bool:
        """Whether pairs fix the rest."""
        return self.name in ("graphical", "decomposable")

    @property
    def is_free(self) -> bool:
        """Whether any vector of indicators is a member."""
        return not self.is_graphical and not any(self.needed)

    @cached_property
    def largest(self) -> InteractionHypergraph:
        """Main effects and all candidates: the collection in which every member is a mask."""
        singles = ((name,) for name in self.domain.names)
        return InteractionHypergraph(self.domain, itertools.chain(singles, self.candidates))

    @property
    def num_free(self) -> int:
        """Number of free candidates, the first ones."""
        return self.num_pairs if self.is_graphical else len(self.candidates)

    @cached_property
    def facets(self) -> tuple[int, ...]:
        """Bits of the facets of every candidate; none for pairs, whose facets are always there."""
        return tuple(
            sum(1 << self.position[f] for f in itertools.combinations(e, len(e) - 1)) if len(e) > 2 else 0
            for e in self.candidate_indices
        )

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """How many facets every candidate needs."""
        return tuple(math.ceil(self.heredity * len(e) - 1e-9) if len(e) > 2 else 0 for e in self.candidate_indices)

    @cached_property
    def _above(self) -> tuple[tuple[int, ...], ...]:
        """Candidates with one variable more than each, of which it is a facet."""
        supersets: list[list[int]] = [[] for _ in self.candidates]
        for j, facets in enumerate(self.facets):
            for f in bits_of(facets):
                supersets[f].append(j)
        return tuple(map(tuple, supersets))

    @cached_property
    def pair_bits(self) -> tuple[int, ...]:
        """Bits of the pairs inside every candidate."""
        return tuple(sum(1 << self.position[p] for p in itertools.combinations(e, 2)) for e in self.candidate_indices)

    # Members in two writings

    def flags_of(self, masks: Sequence[int]) -> Flags:
        """Indicators (M, candidates) of masks."""
        return self.completed(self.unpacked(masks))

    def unpacked(self, masks: Sequence[int]) -> Flags:
        """Indicators (M, num_free) of the free candidates."""
        num_bytes = (self.num_free + 7) // 8
        packed = np.frombuffer(b"".join(mask.to_bytes(num_bytes, "little") for mask in masks), dtype=np.uint8)
        array = packed.reshape(len(masks), num_bytes)
        return np.unpackbits(array, axis=1, bitorder="little", count=self.num_free).astype(bool)

    def masks_of(self, flags: Flags) -> list[int]:
        """Masks of indicators (M, candidates)."""
        packed = np.packbits(flags[:, : self.num_free], axis=1, bitorder="little")
        return [int.from_bytes(row.tobytes(), "little") for row in packed]

    def completed(self, free: Flags) -> Flags:
        """Indicators of all candidates from those of the free ones (M, num_free): cliques follow from pairs."""
        if not self.is_graphical:
            return free
        whole = np.empty((len(free), len(self.candidates)), dtype=np.bool_)
        whole[:, : self.num_pairs] = free
        for j in range(self.num_pairs, len(self.candidates)):
            whole[:, j] = free[:, bits_of(self.pair_bits[j])].all(1)
        return whole

    def edges_of(self, mask: int) -> list[Edge]:
        """The interactions of a member, main effects left out."""
        if not self.is_graphical:
            return [self.candidates[j] for j in bits_of(mask)]
        return [e for e, inner in zip(self.candidates, self.pair_bits, strict=True) if mask & inner == inner]

    def hypergraph_of(self, mask: int) -> InteractionHypergraph:
        """The collection of a member, main effects included."""
        edges = [*((name,) for name in self.domain.names), *self.edges_of(mask)]
        return InteractionHypergraph(self.domain, edges, hierarchical=self.heredity == 1)

    def mask_of(self, hypergraph: InteractionHypergraph) -> int:
        """The mask of a collection; InputError for one of another domain or outside the space."""
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        if hypergraph.domain != self.domain:
            raise other_domain("hypergraph", "a collection over the same domain", received="one over another domain")
        # Main effects are always there; what is larger has to be a member.
        larger = [e for e in hypergraph.edge_indices if len(e) > 1]
        if len(hypergraph) - len(larger) < len(self.domain):
            raise refused("hypergraph", "a main effect is missing", "add all single variables", "missing-part")
        flags = np.zeros((1, len(self.candidates)), dtype=np.bool_)
        for e in larger:
            if e not in self.position:
                raise out_of_range("hypergraph", f"interactions of up to {self.max_order} variables", received=len(e))
            flags[0, self.position[e]] = True
        if not bool(self.are_members(flags).all()):
            raise refused("hypergraph", f"it is not in the space {self.name!r}", code="impossible")
        return self.masks_of(flags)[0]

    # Membership

    def contains(self, mask: int) -> bool:
        """Whether a mask is that of a member."""
        if mask < 0 or mask >> self.num_free:
            return False
        if self.is_graphical:
            return bool(self._allows(self.unpacked([mask]))[0])
        return all((mask & self.facets[j]).bit_count() >= self.needed[j] for j in bits_of(mask))

    def are_members(self, flags: Flags) -> Flags:
        """Which vectors of indicators (M, candidates) are members, (M,)."""
        if self.is_graphical:
            free = flags[:, : self.num_free]
            return (self.completed(free) == flags).all(1) & self._allows(free)
        inside = np.ones(len(flags), dtype=bool)
        for j in range(self.num_pairs, len(self.candidates)):
            present = flags[:, bits_of(self.facets[j])].sum(1)
            inside &= ~flags[:, j] | (present >= self.needed[j])
        return inside

    def _allows(self, pairs: Flags) -> Flags:
        """Which graphs (M, num_pairs) have no clique above ``max_order`` and, where asked for, are chordal."""
        if self.name == "decomposable":
            largest = self.eliminate(pairs)[0]
            return (largest >= 0) & (largest <= self.max_order)
        allowed = np.ones(len(pairs), dtype=bool)
        for e in itertools.combinations(range(len(self.domain)), self.max_order + 1):
            allowed &= ~pairs[:, [self.position[p] for p in itertools.combinations(e, 2)]].all(1)
        return allowed

    def eliminate(self, pairs: Flags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        r"""Largest cliques of chordal graphs (M,), -1 for others, and their sets :math:`v \cup \mathrm{later}(v)`.

        With vertices taken away one by one, each while its remaining neighbours are a clique, a product over cliques
        divided by that over separators is the product over v of :math:`f(v \cup \mathrm{later}(v)) /
        f(\mathrm{later}(v))`. Sets of variables are integers, (M, d); pairs are (M, num_pairs).
        """
        from ._kernels import eliminate_graphs

        closed = np.empty((len(pairs), len(self.domain)), dtype=np.int64)
        largest = eliminate_graphs(np.ascontiguousarray(pairs), self._ends, len(self.domain), closed)
        return largest, closed

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.array(self.candidate_indices[: self.num_pairs], dtype=np.int64).reshape(-1, 2)

    # Neighbours

    def moves(self, mask: int) -> tuple[list[int], list[int]]:
        """Members that differ by a birth, and by a death, of one free candidate; ascending by that candidate."""
        if self.is_graphical:
            changed = np.repeat(self.unpacked([mask]), self.num_free, 0)
            changed[np.diag_indices(self.num_free)] ^= True
            inside = self._allows(changed)
            possible = [j for j in range(self.num_free) if inside[j]]
        else:
            possible = [j for j in range(self.num_free) if self.may_flip(mask, j)]
        births = [mask | 1 << j for j in possible if not mask >> j & 1]
        return births, [mask ^ 1 << j for j in possible if mask >> j & 1]

    def may_flip(self, mask: int, j: int) -> bool:
        """Whether a member with the indicator of free candidate j turned round is a member."""
        if self.is_graphical:
            return self.contains(mask ^ 1 << j)
        # A birth needs its own facets, a death must leave enough to those above.
        if not mask >> j & 1:
            return (mask & self.facets[j]).bit_count() >= self.needed[j]
        rest = mask ^ 1 << j
        return all(not mask >> k & 1 or (rest & self.facets[k]).bit_count() >= self.needed[k] for k in self._above[j])

    # Lists

    @cached_property
    def members(self) -> Flags | None:
        """Indicators of all members (M, candidates), ascending by mask; None beyond :data:`MAX_LISTED`."""
        # Candidate by candidate: every member so far with it absent, and present where its facets allow that.
        rows = np.zeros((1, 0), dtype=bool)
        for j in range(self.num_free):
            grown = rows
            if not self.is_graphical:
                grown = rows[rows[:, bits_of(self.facets[j])].sum(1) >= self.needed[j]]
            if len(rows) + len(grown) > MAX_LISTED:
                return None
            absent, present = np.zeros((len(rows), 1), dtype=bool), np.ones((len(grown), 1), dtype=bool)
            rows = np.concatenate([np.hstack([rows, absent]), np.hstack([grown, present])])
        if self.is_graphical:
            rows = self.completed(rows[self._allows(rows)])
        rows.flags.writeable = False
        return rows

    @property
    def size_text(self) -> str:
        """How many members there are, in words."""
        if self.members is not None:
            return str(len(self.members))
        if self.is_graphical:
            return f"those of {size_text(2**self.num_pairs)} graphs that qualify"
        if self.max_order == 2:
            return size_text(2**self.num_pairs)
        is_whole = self.max_order == len(self.domain) and self.heredity == 1
        known = _HIERARCHICAL.get(len(self.domain)) if is_whole else None
        return f"more than {MAX_LISTED}" if known is None else size_text(known)


def bits_of(mask: int) -> list[int]:
    """Positions of the bits that are set, ascending."""
    return [j for j in range(mask.bit_length()) if mask >> j & 1]
