r"""Structure of a generalized root model: which entries of its sparse super-symmetric tensors are parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, cast

import networkx as nx
import numpy as np
import numpy.typing as npt
import torch

from .._modes import plain_mode
from ..checks import broadcast_shapes
from ..errors import (
    check_type,
    check_unique,
    check_whole,
    is_whole,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ..schema import Domain, Variable
from ..structure.hypergraph import InteractionHypergraph
from .nodes.columns import Families, NodeFamilies

Key = tuple[int, int]
Positions = npt.NDArray[np.int64]

_LARGEST_ROOT = 1000  # models keep d times the largest root numbers
_LARGEST_SET = 170  # 171! is beyond the largest number
_COMPLETE_LIMIT = 2**24


class TermGroup(NamedTuple):
    """Terms of one root: schema positions (m, l) and coefficients (m,)."""

    root: int
    rows: Positions
    values: npt.NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number l of variables in every term."""
        return self.rows.shape[1]

    @property
    def power(self) -> Fraction:
        """Power l/j of the scale."""
        return Fraction(self.size, self.root)


def terms_where(terms: Iterable[TermGroup], is_chosen: Callable[[Positions], Any]) -> list[TermGroup]:
    """The terms for which a function of their rows (m, l) is true (m,), in groups that are not empty."""
    pairs = [(t, is_chosen(t.rows)) for t in terms]
    return [TermGroup(t.root, t.rows[chosen], t.values[chosen]) for t, chosen in pairs if chosen.any()]


class RootStructure:
    r"""The free entries of the tensors :math:`\Psi_{(j)}^{(\ell)}`, l <= j, of a root model (paper 2, (1) and (3)).

    A term is a key (j, l) and a set of l distinct variables, which interact through their j-th roots
    (:class:`~pyro_hoim.generalized_root.GeneralizedRootEnergy` has the sum). The tensors are super-symmetric and zero
    where two indices are equal, so a set stands for l! equal entries (:attr:`multiplicity`).
    Terms are sorted by key, inside a key by schema positions; that is the order of the last dimension of every vector
    of parameters. Immutable, hashable and compared by value. Nothing of size d^l is stored.

    Args:
        domain: the variables, of kind ``count``, ``positive`` or ``real``.
        terms: for every key (j, l) the sets of l variable names, each in any order; keys without sets are left out.

    Raises:
        InputError: a key outside 1 <= l <= j or with l above 170, a set of another size, a repeated variable or set,
            an unknown name, or a variable with levels.
        InputTypeError: a domain or terms of another type, or a string where a set of names is expected.

    Example:
        >>> from pyro_hoim import Variable
        >>> domain = Domain([Variable(name, kind="count") for name in "abc"])
        >>> structure = RootStructure(domain, {(1, 1): [("a",), ("b",)], (2, 2): [("b", "a")]})
        >>> structure.names
        (((1, 1), ('a',)), ((1, 1), ('b',)), ((2, 2), ('a', 'b')))
        >>> structure.multiplicity.tolist()
        [1.0, 1.0, 2.0]
    """

    domain: Domain
    """The variables, in the order of the last dimension of a state."""
    keys: tuple[Key, ...]
    """Keys (j, l) that have terms, in order."""
    slices: Mapping[Key, slice]
    """Place of the terms of a key in a vector of parameters."""
    num_terms: int
    """Number of terms, the length of a vector of parameters."""
    _arrays: dict[Key, Positions]

    def __init__(self, domain: Domain, terms: Mapping[tuple[int, int], Iterable[Iterable[str]]]) -> None:
        check_type(domain, Domain, "domain")
        check_type(terms, Mapping, "terms", "a mapping from (j, l) to sets")
        arrays = {_check_key(key): _named_positions(domain, key, tuples) for key, tuples in terms.items()}
        self._set(domain, arrays)

    def _set(self, domain: Domain, arrays: Mapping[Key, Positions]) -> None:
        """Sort, check for repeated sets and fill the slots; positions inside a row are sorted here."""
        for variable in domain:
            if variable.is_finite:
                received, hint = f"{variable.name!r} of kind {variable.kind!r}", "use a log-linear model for levels"
                expected = "variables of kind 'count', 'positive' or 'real'"
                raise unexpected("domain", expected, hint=hint, received=received, code="other-domain")
        # Terms sorted by key, then by positions, and the hash of all of it.
        values = self.__dict__
        values["domain"] = domain
        sorted_arrays = {key: _sorted_rows(domain, key, arrays[key]) for key in sorted(arrays) if len(arrays[key])}
        values["_arrays"] = sorted_arrays
        values["keys"] = tuple(sorted_arrays)
        stops = list(itertools.accumulate((len(rows) for rows in sorted_arrays.values()), initial=0))
        values["slices"] = {key: slice(stops[i], stops[i + 1]) for i, key in enumerate(sorted_arrays)}
        values["num_terms"] = stops[-1]
        values["_hash"] = hash((domain.names, tuple((key, rows.tobytes()) for key, rows in sorted_arrays.items())))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a RootStructure is immutable")

    def __getstate__(self) -> dict[str, Any]:
        return {"domain": self.domain, "arrays": self._arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(state["domain"], state["arrays"])

    def __hash__(self) -> int:
        return self.__dict__["_hash"]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, RootStructure):
            return NotImplemented
        same = self.keys == other.keys and self.domain == other.domain
        return same and all(np.array_equal(self._arrays[key], other._arrays[key]) for key in self.keys)

    def __repr__(self) -> str:
        counts = ", ".join(f"{key}: {len(self._arrays[key])}" for key in self.keys)
        return f"RootStructure({len(self.domain)} variables, {self.num_terms} terms: {{{counts}}})"

    @classmethod
    def from_positions(
        cls, domain: Domain, positions: Mapping[tuple[int, int], npt.ArrayLike | torch.Tensor]
    ) -> RootStructure:
        """Structure from schema positions, for every key an array of whole numbers (m, l); quick for many terms.

        Errors are those of the constructor, and of arrays of another shape or type or with positions outside it.
        """
        arrays: dict[Key, Positions] = {}
        for key, given in positions.items():
            _, size = _check_key(key)
            argument = f"positions[{key}]"
            try:
                rows = np.asarray(given)
            except ValueError as error:
                expected = f"rows of {size} whole numbers"
                raise unexpected(argument, expected, received=error, code="wrong-shape") from error
            if rows.size == 0:
                continue
            # Whole numbers (m, l) that are positions.
            if rows.dtype.kind not in "iu":
                raise wrong_type(argument, "whole numbers", received=f"dtype {rows.dtype}")
            if rows.ndim != 2 or rows.shape[1] != size:
                raise wrong_shape(argument, f"(m, {size})", rows)
            if rows.min() < 0 or rows.max() >= len(domain):
                wrong = rows.min() if rows.min() < 0 else rows.max()
                raise out_of_range(argument, f"0 to {len(domain) - 1}", received=wrong)
            arrays[key] = rows.astype(np.int64)
        self = cls.__new__(cls)
        self._set(domain, arrays)
        return self

    @classmethod
    def independent(cls, domain: Domain) -> RootStructure:
        """One term (1, 1) per variable: the independent model of the base family."""
        return cls.from_positions(domain, {(1, 1): np.arange(len(domain))[:, None]})

    @classmethod
    def simplified(cls, domain: Domain, tuples: Iterable[Iterable[str]] = ()) -> RootStructure:
        """One term (1, 1) per variable, named in ``tuples`` or not, and one (l, l) per set of l (equation 4)."""
        terms: dict[Key, list[tuple[str, ...]]] = {(1, 1): [(name,) for name in domain.names]}
        for given in tuples:
            names = _set_names(given, "tuples")
            if not names:
                raise unexpected("tuples", "at least one variable in every set", received="an empty one", code="empty")
            if len(names) == 1:
                domain.index(names[0])
            else:
                terms.setdefault((len(names), len(names)), []).append(names)
        return cls(domain, terms)

    @classmethod
    def mixed(
        cls,
        domain: Domain,
        tuples: Iterable[Iterable[str]] = (),
        *,
        full: bool = False,
        order: int | None = None,
        family: Families | None = None,
    ) -> RootStructure:
        """As :meth:`simplified`, with a term (2, 1) for every variable of kind ``real``, which gives it a mean.

        The terms of a model whose variables have families of their own.

        Args:
            domain: the variables.
            tuples: sets of names that interact.
            full: all keys (j, l) with l <= j <= order of every variable and set, in place of j = l alone, as far as
                they are different functions: all roots of 0 and 1 are equal, so that a set of 0/1 columns and
                indicators has one key, and one of bounded counts as many as products of their values other than 0.
            order: the largest root of a full model; the size of the largest set, or 2, when None.
            family: a family for every variable, as an energy takes it, which a full model needs.

        Example:
            >>> domain = Domain([Variable("ill", kind="count"), Variable("weight", kind="real")])
            >>> RootStructure.mixed(domain, [("ill", "weight")]).names
            (((1, 1), ('ill',)), ((1, 1), ('weight',)), ((2, 1), ('weight',)), ((2, 2), ('ill', 'weight')))
        """
        simplified = cls.simplified(domain, tuples)
        terms = {key: simplified.tuples(key) for key in simplified.keys}
        means = [(variable.name,) for variable in domain if variable.kind == "real"]
        if not full:
            return cls(domain, {**terms, (2, 1): means})
        if family is None:
            raise unexpected(
                "family", "a family for every variable, for full=True", received="None", code="missing-part"
            )
        families, largest = NodeFamilies.of(family, domain), check_whole(order or max(simplified.order, 2), "order")
        if largest < simplified.order:
            raise out_of_range("order", f"at least {simplified.order}, the size of the largest set", received=largest)
        # Every root of every set, as long as it adds a function of the values.
        every: dict[Key, list[tuple[str, ...]]] = {}
        for (_, size), sets in terms.items():
            for names in sets:
                for j in families.full_roots(domain.indices(names), largest):
                    every.setdefault((j, size), []).append(names)
        return cls(domain, every)

    @classmethod
    def complete(cls, domain: Domain, order: int) -> RootStructure:
        """Every term of every key 1 <= l <= j <= order; more than 2^24 terms are an :class:`IntractableError`."""
        check_whole(order, "order")
        lengths = range(1, min(order, len(domain)) + 1)
        size = sum(math.comb(len(domain), length) * (order - length + 1) for length in lengths)
        # Refuse before anything is listed.
        if size > _COMPLETE_LIMIT:
            problem = f"{size_text(size, 'terms')} exceed the limit of {_COMPLETE_LIMIT}"
            raise out_of_reach("order", problem, "name the sets instead")
        arrays: dict[Key, Positions] = {}
        for length in lengths:
            rows = np.array(list(itertools.combinations(range(len(domain)), length)), dtype=np.int64)
            arrays.update({(j, length): rows for j in range(length, order + 1)})
        return cls.from_positions(domain, arrays)

    def without(self, terms: Mapping[tuple[int, int], Iterable[Iterable[str]]]) -> RootStructure:
        """This structure without the given terms; one that is not there is an :class:`InputError`."""
        # Places of the terms that go, and what stays by key.
        gone = [self.index(names, key[0]) for key, names in RootStructure(self.domain, terms).names]
        places_of = {key: np.setdiff1d(np.arange(self.num_terms)[place], gone) for key, place in self.slices.items()}
        rows = {key: self._arrays[key][places - self.slices[key].start] for key, places in places_of.items()}
        return RootStructure.from_positions(self.domain, rows)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of the variables."""
        return frozenset(variable.kind for variable in self.domain)

    @cached_property
    def order(self) -> int:
        """The largest root j (k of the paper); 1 without terms."""
        return max((j for j, _ in self.keys), default=1)

    @cached_property
    def largest_set(self) -> int:
        """The largest number of variables of a term; 0 without terms."""
        return max((length for _, length in self.keys), default=0)

    @cached_property
    @plain_mode()
    def multiplicity(self) -> torch.Tensor:
        """Number l! of equal tensor entries of every term, float64 (num_terms,)."""
        parts = [np.full(len(rows), float(math.factorial(key[1]))) for key, rows in self._arrays.items()]
        return torch.from_numpy(np.concatenate([np.zeros(0), *parts]))

    @cached_property
    def is_independent(self) -> bool:
        """Whether every term has one variable."""
        return all(length == 1 for _, length in self.keys)

    def positions(self, key: tuple[int, int]) -> torch.Tensor:
        """Schema positions of the terms of a key, long (m, l); (0, l) for a key without terms."""
        return torch.from_numpy(self.rows(key).copy())

    def rows(self, key: tuple[int, int]) -> Positions:
        """As :meth:`positions`, an array that cannot be written to; the same under every mode of PyTorch."""
        rows = self._arrays.get(_check_key(key))
        return np.zeros((0, key[1]), dtype=np.int64) if rows is None else rows

    def columns(self, key: tuple[int, int], device: torch.device | str = "cpu") -> list[torch.Tensor]:
        """The columns of :meth:`positions` as l contiguous tensors (m,); kept, so not to be changed."""
        columns = self.__dict__.setdefault("_columns", {})
        entry = (key, str(device))
        if entry not in columns:
            with plain_mode():
                columns[entry] = [c.contiguous().to(device) for c in self.positions(key).unbind(1)]
        return columns[entry]

    def single_natural(self, psi: torch.Tensor, order: int | None = None) -> torch.Tensor:
        """Natural parameters (*batch, d, k) by the terms of single variables alone, of psi (*batch, num_terms)."""
        k, size = order or self.order, len(self.domain)
        natural = psi.new_zeros((*psi.shape[:-1], size * k))
        for (j, length), place in self.slices.items():
            if length == 1:
                natural = natural.index_add(-1, self.columns((j, 1), psi.device)[0] * k + j - 1, psi[..., place])
        return natural.reshape((*psi.shape[:-1], size, k))

    def nonzero(self, coefficients: npt.NDArray[np.float64]) -> list[TermGroup]:
        """The terms with other coefficients (num_terms,) than zero, by key."""
        parts = [(key[0], rows, coefficients[self.slices[key]]) for key, rows in self._arrays.items()]
        return [TermGroup(j, rows[values != 0], values[values != 0]) for j, rows, values in parts if values.any()]

    def tuples(self, key: tuple[int, int]) -> tuple[tuple[str, ...], ...]:
        """Names of the terms of a key, each in schema order; empty for a key without terms."""
        rows = self._arrays.get(_check_key(key))
        names = self.domain.names
        return () if rows is None else tuple(tuple(names[i] for i in row) for row in rows.tolist())

    @cached_property
    def names(self) -> tuple[tuple[tuple[int, int], tuple[str, ...]], ...]:
        """Key and variable names of every term, in order."""
        return tuple((key, names) for key in self.keys for names in self.tuples(key))

    @cached_property
    def _places(self) -> dict[tuple[int, tuple[str, ...]], int]:
        return {(key[0], names): i for i, (key, names) in enumerate(self.names)}

    def index(self, names: Iterable[str], root: int | None = None) -> int:
        """Place of the term of some variables, in any order, and of a root j in a vector of parameters.

        The root may be left out where these variables have one term. Refuses unknown names (:class:`UnknownNameError`),
        a term that is not there, and several without a root (:class:`InputError`).
        """
        given = _set_names(names, "names")
        ordered = tuple(self.domain.names[i] for i in sorted(self.domain.indices(given)))
        # The terms of these variables, by root.
        roots = range(1, self.order + 1) if root is None else [root]
        by_root = {j: self._places[j, ordered] for j in roots if (j, ordered) in self._places}
        shown = ":".join(ordered)
        if not by_root:
            where = f" for root {root}" if root else ""
            raise refused("names", f"{shown} is no term of the structure{where}", code="unknown-name")
        if len(by_root) > 1:
            problem = f"{shown} has terms for the roots {', '.join(map(str, by_root))}"
            raise refused("names", problem, "say which by root", code="missing-part")
        return next(iter(by_root.values()))

    @cached_property
    def graph(self) -> nx.Graph[int]:
        """Graph over schema positions; two variables are adjacent when a term holds both. Not to be changed."""
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(len(self.domain)))
        for (_, length), rows in self._arrays.items():
            for a, b in itertools.combinations(range(length), 2):
                graph.add_edges_from(cast("list[tuple[int, int]]", rows[:, [a, b]].tolist()))
        return graph

    def components(self) -> tuple[tuple[str, ...], ...]:
        """Connected components of the graph, names in schema order; their variables are independent of each other."""
        parts = sorted(sorted(part) for part in nx.connected_components(self.graph))
        return tuple(tuple(self.domain.names[i] for i in part) for part in parts)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description, inverse of :meth:`from_json`."""
        terms = [{"root": j, "size": length, "positions": self._arrays[j, length].tolist()} for j, length in self.keys]
        return {"domain": self.domain.to_json(), "terms": terms}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RootStructure:
        """Rebuild a structure from :meth:`to_json`; refuses something else."""
        try:
            domain = Domain.from_json(value["domain"])
            arrays = {(entry["root"], entry["size"]): entry["positions"] for entry in value["terms"]}
            structure = cls.from_positions(domain, arrays)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise unexpected("root structure", f"an object with domain and terms ({error})") from error
        if structure.to_json()["terms"] != value["terms"]:
            raise refused("root structure", "the keys (root, size), or the terms of one, are repeated or not in order")
        return structure


def _set_names(given: object, argument: str) -> tuple[str, ...]:
    """A set of variables as a tuple of names."""
    names = _listed(given, argument)
    check_unique(names, argument)
    return names


def _listed(given: object, argument: str) -> tuple[Any, ...]:
    """What is given, refused unless it is a collection."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise wrong_type(argument, "sequences of variable names", received=repr(given))
    return tuple(cast("Iterable[Any]", given))


def _check_key(key: object) -> Key:
    """A key (j, l) with 1 <= l <= j, or an error."""
    if not isinstance(key, tuple) or len(key) != 2 or not all(map(is_whole, key)):
        raise unexpected("terms", "keys (j, l) of two whole numbers", key)
    j, length = cast("Key", key)
    if not 1 <= length <= j:
        raise unexpected("terms", "keys (j, l) with 1 <= l <= j", key)
    if j > _LARGEST_ROOT:
        raise unexpected("terms", f"roots j up to {_LARGEST_ROOT}", key)
    if length > _LARGEST_SET:
        raise unexpected("terms", f"sets of up to {_LARGEST_SET} variables, for which l! is a number", key)
    return j, length


def _named_positions(domain: Domain, key: Key, tuples: object) -> Positions:
    """Schema positions (m, l) of sets of names."""
    argument = f"terms[{key}]"
    sets = [_set_names(given, argument) for given in _listed(tuples, argument)]
    for names in sets:
        if len(names) != key[1]:
            raise unexpected(argument, f"sets of {key[1]} variables", names, code="wrong-shape")
    return np.array([domain.indices(names) for names in sets], dtype=np.int64).reshape(len(sets), key[1])


def _sorted_rows(domain: Domain, key: Key, rows: Positions) -> Positions:
    """Positions with rows sorted, inside and among each other; refuses repeated positions and rows."""
    # Inside rows, then among them; equal ones stand next to each other.
    ordered = np.sort(rows, axis=1)
    ordered = np.ascontiguousarray(ordered[np.lexsort(ordered.T[::-1])])
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if repeated.any():
        shown = ":".join(domain.names[i] for i in ordered[repeated.argmax()])
        problem = f"the variables of a set must be distinct, received {shown}"
        raise refused(f"terms[{key}]", problem, code="repeated-name")
    same = (ordered[1:] == ordered[:-1]).all(axis=1)
    if same.any():
        shown = ":".join(domain.names[i] for i in ordered[same.argmax()])
        raise refused(f"terms[{key}]", f"sets must be unique, but {shown} is repeated", code="repeated-name")
    ordered.setflags(write=False)
    return ordered


# What is derived from a root model: its terms when some variables are fixed, and the model over levels.


def fold(
    structure: RootStructure, coefficients: torch.Tensor, positions: Sequence[int], roots: Callable[[int], torch.Tensor]
) -> tuple[RootStructure, torch.Tensor, torch.Tensor]:
    """Structure and coefficients over the variables that are not fixed, and the constant that is left."""
    # Places of fixed and of free variables.
    d = len(structure.domain)
    position = np.full(d, -1)  # of a fixed variable among the fixed ones
    position[list(positions)] = np.arange(len(positions))
    free = np.flatnonzero(position < 0)
    renumbered = np.full(d, -1)
    renumbered[free] = np.arange(len(free))
    rows: dict[tuple[int, int], list[npt.NDArray[np.int64]]] = {}
    weights: dict[tuple[int, int], list[torch.Tensor]] = {}
    shape = broadcast_shapes(coefficients.shape[:-1], roots(1).shape[:-1])
    constant = coefficients.new_zeros(shape)
    for key in structure.keys:
        j, length = key
        terms = structure.rows(key)
        is_free = position[terms] < 0
        part = coefficients[..., structure.slices[key]]
        fixed = roots(j)
        # Place -1 finds the factor 1 of a free variable.
        values = torch.cat([fixed, fixed.new_ones(*fixed.shape[:-1], 1)], -1)
        # Terms by the number of their variables that stay free.
        for left in range(length + 1):
            chosen = np.flatnonzero(is_free.sum(1) == left)
            if not len(chosen):
                continue
            where = torch.from_numpy(position[terms[chosen]]).to(values.device)
            weight = part.index_select(-1, torch.from_numpy(chosen).to(part.device)) * values[..., where].prod(-1)
            if left == 0:
                constant = constant + weight.sum(-1)
                continue
            rows.setdefault((j, left), []).append(renumbered[terms[chosen][is_free[chosen]].reshape(-1, left)])
            weights.setdefault((j, left), []).append(weight)
    # Terms that have become equal add up.
    variables = structure.domain.variables
    folded: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
    parts: dict[tuple[int, int], torch.Tensor] = {}
    for key, pieces in rows.items():
        unique, inverse = np.unique(np.concatenate(pieces), axis=0, return_inverse=True)
        weight = torch.cat(weights[key], -1)
        index = torch.from_numpy(inverse.reshape(-1)).to(weight.device)
        folded[key] = unique
        parts[key] = weight.new_zeros(*weight.shape[:-1], len(unique)).index_add(-1, index, weight)
    rest = RootStructure.from_positions(Domain(variables[i] for i in free), folded)
    empty = coefficients.new_zeros(*shape, 0)
    return rest, torch.cat([empty, *(parts[key] for key in rest.keys)], -1), constant


class CountsAsLevels:
    """The model of ordinal variables; a code is the count itself. The energy that makes it is ``counts``."""

    def __init__(self, counts: Any) -> None:
        sizes = counts.require_finite("model")
        self._counts = counts
        self.energy, self.block_conditional = counts.energy, counts.block_conditional
        levels = {size: tuple(str(value) for value in range(size)) for size in sizes}
        variables = zip(counts.domain, sizes, strict=True)
        self.domain = Domain(Variable(v.name, levels[size], "ordinal", v.unit) for v, size in variables)
        names = self.domain.names
        pairs = [(names[i], names[j]) for i, j in counts.structure.graph.edges]
        self.hypergraph = InteractionHypergraph(self.domain, pairs, closure=True)
        self.batch_shape = counts.batch_shape

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> CountsAsLevels:
        """The model in another precision or on another device."""
        return CountsAsLevels(self._counts.to(dtype=dtype, device=device))


# Sums over the terms of a root structure, never by a dense tensor.
#
# Inside, variables come first: roots are (d, *sample), so that taking a variable is one contiguous copy.

_CHUNK_CELLS = 2**17  # terms times states that are worked on at once: what a processor keeps close

_Chunk = tuple[torch.Tensor, tuple[torch.Tensor, ...]]

Roots = Callable[[int], torch.Tensor]
"""The j-th roots (d, *sample) of a state, by j; asked for once per key."""


def term_products(structure: RootStructure, roots: Roots, keys: Iterable[tuple[int, int]]) -> list[torch.Tensor]:
    """Products of the roots over the variables of every term, one tensor (m, *sample) per key."""
    return [_products(roots(key[0]), structure.columns(key, roots(key[0]).device)) for key in keys]


def _products(values: torch.Tensor, columns: Sequence[torch.Tensor]) -> torch.Tensor:
    product = values.index_select(0, columns[0])
    for column in columns[1:]:
        product = product * values.index_select(0, column)
    return product


def _chunks(structure: RootStructure, key: tuple[int, int], part: torch.Tensor, num_states: int) -> Iterator[_Chunk]:
    """Coefficients (*batch, m) and columns of a key, a few terms at a time."""
    step = max(1, _CHUNK_CELLS // max(1, num_states))
    columns = structure.columns(key, part.device)
    yield from zip(part.split(step, -1), zip(*(column.split(step) for column in columns), strict=True), strict=True)


def weighted_products(
    structure: RootStructure,
    coefficients: torch.Tensor,
    roots: Roots,
    sample: torch.Size,
    keys: Iterable[tuple[int, int]],
) -> torch.Tensor:
    """Sum over terms of coefficient times product, (*broadcast of sample and batch); coefficients (*batch, T)."""
    batch = coefficients.shape[:-1]
    shape = broadcast_shapes(sample, batch)
    total = coefficients.new_zeros(shape)
    for key in keys:
        values = roots(key[0])
        for part, columns in _chunks(structure, key, coefficients[..., structure.slices[key]], shape.numel()):
            total = total + _contract(part, _products(values, columns), shape)
    return total


def _contract(part: torch.Tensor, products: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Inner product over terms of (*batch, m) and (m, *sample), broadcast to a shape."""
    # Shared dimensions need a product of every pair.
    batch, sample, rank = part.shape[:-1], products.shape[1:], len(shape)
    if batch.numel() * sample.numel() != shape.numel():
        left = part.movedim(-1, 0).reshape(-1, *[1] * (rank - len(batch)), *batch)
        return (left * products.reshape(-1, *[1] * (rank - len(sample)), *sample)).sum(0)
    # No dimension is shared, so that one matrix product does it and nothing of size (m, *shape) is made.
    outer = part.reshape(batch.numel(), -1) @ products.reshape(products.shape[0], sample.numel())
    outer = outer.reshape((*[1] * (rank - len(batch)), *batch, *[1] * (rank - len(sample)), *sample))
    return outer.permute(tuple(axis for i in range(rank) for axis in (i, rank + i))).reshape(shape)


def weighted_slopes(
    structure: RootStructure, coefficients: torch.Tensor, roots: Roots, sample: torch.Size, order: int
) -> torch.Tensor:
    """Natural parameters of all node conditionals (*broadcast of sample and batch, d, order)."""
    batch = coefficients.shape[:-1]
    shape = broadcast_shapes(sample, batch)
    rank, d = len(shape), len(structure.domain)
    # Root by root, a few terms at a time.
    slopes: list[torch.Tensor] = []
    for j in range(1, order + 1):
        total = coefficients.new_zeros(d, *shape)
        for key in structure.keys:
            if key[0] != j:
                continue
            values = roots(j).reshape(d, *[1] * (rank - len(sample)), *sample)
            for part, columns in _chunks(structure, key, coefficients[..., structure.slices[key]], shape.numel()):
                part = part.movedim(-1, 0).reshape(-1, *[1] * (rank - len(batch)), *batch)
                # Add to every variable of every term the coefficient times the roots of the term's
                # other variables
                taken = [values.index_select(0, column) for column in columns]
                before = [part]
                for value in taken[:-1]:
                    before.append(before[-1] * value)
                after: torch.Tensor | None = None
                for i in reversed(range(len(columns))):
                    slope = before[i] if after is None else before[i] * after
                    total.index_add_(0, columns[i], slope.expand(len(part), *shape))
                    after = taken[i] if after is None else after * taken[i]
        slopes.append(total)
    return torch.stack(slopes, -1).movedim(0, -2)
