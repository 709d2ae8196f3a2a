r"""Coordinates of a hierarchical log-linear model: free, corner and balanced codings of theta, eta and pi.

A model is :math:`\log q(x) = \sum_{S} \theta^S_{x_S} - \log Z`, a sum of interaction tables. Infinitely many towers of
tables give the same law; a *coding* picks one. Every coding is a linear map on a flat vector (last dimension),
hyperedge after hyperedge in the order of the hypergraph, the last axis of a table fastest:

==========  ==================  =====================================================================================
coding      length              meaning
==========  ==================  =====================================================================================
balanced    ``num_terms``       whole tables; every fibre sums to zero (paper 1, equation 21)
free        ``num_parameters``  coordinates of the balanced tables in an orthonormal basis, one for every entry
                                without a level 0, whose probability it raises (:class:`Parametrization`)
corner      ``num_parameters``  entries at levels 1, 2, ... of tables that vanish where a level is 0 (the reference)
==========  ==================  =====================================================================================

*Tables* without further word are any tables at all, in the layout of the balanced coding. A hierarchical collection
has one family in all codings. One that lacks subsets has two, balanced (``balanced`` and ``free``) or ``corner``, and
says which (:attr:`InteractionHypergraph.coding <pyro_hoim.InteractionHypergraph>`); what would lead from one into the
other, and the reduction of arbitrary tables, is refused, because a table would be moved into subsets that are missing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, Literal, NamedTuple, SupportsIndex, get_args

import numpy as np
import torch

from .._modes import plain_mode
from ..checks import broadcast_shapes, check_shape, checked_floating, is_hidden
from ..errors import InputError, check_choice, check_type, conflict, other_domain, refused, unexpected
from ..schema import Domain
from ..structure.hypergraph import Edge, InteractionHypergraph, cell_index, check_codes, check_tables

# Linear maps between flat vectors of interaction tables that are Kronecker products on every hyperedge.

Array = np.ndarray
Layout = Literal["terms", "parameters", "subsets"]
Factor = Callable[[int], Array]

_KRONECKER_ENTRIES = 2**16  # of the product of a shape, above which it is applied axis by axis instead of being stored
_DENSE_ENTRIES = 2**20  # largest dense matrix that replaces a chain of maps
_ENTRIES_PER_BLOCK = 12_000  # a dense product over so many costs about as much as one block of the structured form


def level_contrasts(n: int) -> Array:
    r"""Orthonormal contrasts of n levels as columns, shape (n, n - 1); column l - 1 is that of level l."""
    contrasts = np.vstack([np.full((1, n - 1), -1 / math.sqrt(n)), np.eye(n - 1)])
    contrasts[1:] -= 1 / (n + math.sqrt(n))
    return contrasts


def corner_embedding(n: int) -> Array:
    """Places n - 1 free entries at levels 1 ... n - 1 and zero at level 0, shape (n, n - 1)."""
    return np.eye(n)[:, 1:]


class Block(NamedTuple):
    """Hyperedges of one shape."""

    shape: tuple[int, ...]
    inputs: Array
    outputs: Array


def _positions(hypergraph: InteractionHypergraph, edges: list[Edge], shape: tuple[int, ...], layout: Layout) -> Array:
    """Positions (num_edges, entries) of hyperedges of one shape in a layout."""
    if layout == "subsets":
        return np.stack([_subset_positions(hypergraph, edge, shape) for edge in edges])
    slices = hypergraph.term_slices if layout == "terms" else hypergraph.parameter_slices
    starts = np.array([slices[edge].start for edge in edges])
    size = math.prod(shape) if layout == "terms" else math.prod(n - 1 for n in shape)
    return starts[:, None] + np.arange(size)


def _subset_positions(hypergraph: InteractionHypergraph, edge: Edge, shape: tuple[int, ...]) -> Array:
    """Where a transformed table goes: index 0 on an axis means without that variable, j its free entry j - 1."""
    places = np.empty(shape, dtype=np.int64)
    for is_inside in itertools.product((False, True), repeat=len(edge)):
        subset = tuple(name for name, keep in zip(edge, is_inside, strict=True) if keep)
        where = tuple(slice(1, None) if keep else 0 for keep in is_inside)
        if subset:
            target = hypergraph.parameter_slices[subset]
            sizes = [n - 1 for n, keep in zip(shape, is_inside, strict=True) if keep]
            places[where] = np.arange(target.start, target.stop).reshape(sizes)
        else:
            places[where] = hypergraph.num_parameters
    return places.ravel()


class _Placed(NamedTuple):
    """Constants of a map on one device and dtype."""

    gather: torch.Tensor | None
    factors: list[list[torch.Tensor]]
    place: torch.Tensor | None
    scatter: torch.Tensor | None


class KroneckerMap:
    """One structured linear map, that maps the entries of hyperedges of one shape alike."""

    def __init__(self, blocks: Sequence[Block], factor: Factor, num_inputs: int, num_outputs: int) -> None:
        self.blocks = [b for b in blocks if b.inputs.size and b.outputs.size]
        self.factor = factor
        self.num_inputs = num_inputs
        self.num_outputs = num_outputs
        self._placed: dict[tuple[torch.dtype, torch.device], _Placed] = {}

    def adjoint(self) -> KroneckerMap:
        """The transposed map."""
        blocks = [Block(b.shape, b.outputs, b.inputs) for b in self.blocks]
        return KroneckerMap(blocks, lambda n: self.factor(n).T, self.num_outputs, self.num_inputs)

    def _place(self, dtype: torch.dtype, device: torch.device) -> _Placed:
        key = (dtype, device)
        if key not in self._placed:
            with plain_mode():
                none = np.zeros(0, dtype=np.int64)
                inputs = np.concatenate([none, *(b.inputs.ravel() for b in self.blocks)])
                outputs = np.concatenate([none, *(b.outputs.ravel() for b in self.blocks)])
                # Copies that would change nothing are left out.
                gather = (
                    None if np.array_equal(inputs, np.arange(self.num_inputs)) else torch.from_numpy(inputs).to(device)
                )
                permutation = scatter = None
                if not np.array_equal(np.sort(outputs), np.arange(self.num_outputs)):
                    scatter = torch.from_numpy(outputs).to(device)
                elif not np.array_equal(outputs, np.arange(self.num_outputs)):
                    permutation = torch.from_numpy(np.argsort(outputs)).to(device)
                factors: list[list[torch.Tensor]] = []
                for block in self.blocks:
                    axes = [self.factor(n) for n in block.shape]
                    if block.inputs.shape[1] * block.outputs.shape[1] <= _KRONECKER_ENTRIES:
                        axes = [reduce(np.kron, axes)]
                    # Transposed, because rows of entries are multiplied from the right.
                    factors.append([torch.from_numpy(np.ascontiguousarray(a.T)).to(device, dtype) for a in axes])
                self._placed[key] = _Placed(gather, factors, permutation, scatter)
        return self._placed[key]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``x`` (*batch, num_inputs), giving (*batch, num_outputs)."""
        gather, factors, permutation, scatter = self._place(x.dtype, x.device)
        batch = x.shape[:-1]
        if not self.blocks:
            return x.new_zeros(*batch, self.num_outputs)
        if gather is not None:
            x = x.index_select(-1, gather)
        pieces = x.split([b.inputs.size for b in self.blocks], -1)
        results: list[torch.Tensor] = []
        for block, piece, matrices in zip(self.blocks, pieces, factors, strict=True):
            value = piece.reshape(*batch, *block.inputs.shape)
            if len(matrices) == 1:
                value = value @ matrices[0]
            else:
                # The first axis is split off, multiplied and put last; after all axes the order is restored.
                num_edges, size = block.inputs.shape
                for matrix in matrices:
                    size = size // matrix.shape[0]
                    value = value.reshape(*batch, num_edges, matrix.shape[0], size)
                    size = size * matrix.shape[1]
                    value = (value.transpose(-1, -2) @ matrix).reshape(*batch, num_edges, size)
            results.append(value.reshape(*batch, block.outputs.size))
        y = torch.cat(results, -1)
        if permutation is not None:
            return y.index_select(-1, permutation)
        if scatter is not None:
            return x.new_zeros(*batch, self.num_outputs).index_add(-1, scatter, y)
        return y


class LinearMap:
    """Composition of structured maps, kept as one dense matrix where that is faster."""

    def __init__(self, *maps: KroneckerMap, num_outputs: int) -> None:
        self.maps = maps
        self.num_inputs = maps[0].num_inputs if maps else num_outputs
        self.num_outputs = num_outputs
        calls = sum(len(m.blocks) + 2 for m in maps)
        self.is_dense = self.num_inputs * num_outputs <= min(_DENSE_ENTRIES, _ENTRIES_PER_BLOCK * calls) and calls > 0
        self._matrices: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    def _apply(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.maps:
            x = step(x[..., : step.num_inputs])
        return x[..., : self.num_outputs]

    def matrix(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Dense matrix (num_inputs, num_outputs) by which a row vector is multiplied from the right."""
        with plain_mode():
            # Always rounded from double precision, so that a dtype changes the entries by rounding alone.
            dense = self._apply(torch.eye(self.num_inputs, dtype=torch.float64, device="cpu"))
            return dense.to(device, dtype).contiguous()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``x`` (*batch, num_inputs), giving (*batch, num_outputs)."""
        if not self.is_dense:
            return self._apply(x)
        key = (x.dtype, x.device)
        dense = self._matrices.get(key)
        if dense is None:
            dense = self._matrices[key] = self.matrix(*key)
        return x @ dense


# The codings.

Coding = Literal["free", "corner", "balanced"]
CODINGS: tuple[str, ...] = get_args(Coding)

_ON_CLOSURE = "other tables have a model on the closure: lift() them to hypergraph.closure()"


class Parametrization:
    r"""The linear maps between the codings of one hypergraph, exact both ways, and the mean coordinates eta and pi.

    .. math::
        \theta^S_{\mathrm{balanced}} = \Big(\bigotimes_{k \in S} H_{I_k}\Big) \theta^S_{\mathrm{free}}, \qquad
        \pi^S = \sum_{T \subseteq S} (-1)^{|S| - |T|}\, \eta^T \otimes u^{S - T}

    where the columns of :math:`H_n` are orthonormal contrasts, one for every level from 1. Column l is
    :math:`1 - 1/(n + \sqrt n)` at level l, :math:`-1/\sqrt n` at level 0 and :math:`-1/(n + \sqrt n)` at the others,
    so (-1, 1) / sqrt(2) for two levels. A free coordinate is named by one level from 1 of every variable of S:

    * Its sign. At every theta, raising the coordinate of levels l raises :math:`\Pr(x_S = l)`: the derivative with its
      column b is :math:`\Pr(x_S = l)\,(b_l - E\,b_{x_S}) > 0`, because no entry of b exceeds :math:`b_l`.
    * Its value. For one variable of probabilities p it is :math:`\log p_l - \sum_m w_m \log p_m` with the weights
      :math:`w_0 = 1/\sqrt n` and :math:`w_m = 1/(n + \sqrt n)`, which sum to one. The difference of two coordinates is
      the log ratio of their probabilities. An interaction takes these contrasts along every axis.

    Matrices are built on first use and kept for every dtype and device. Small maps are one dense product; large ones
    cost one batched product for every distinct table shape. All methods are linear (or affine), differentiable any
    number of times and vectorised over leading dimensions; dtype and device are the argument's.

    Args:
        hypergraph: the interaction structure. Prefer :func:`parametrization`, which shares the matrices.

    Shape:
        theta (*batch, num(coding)); tables, eta and pi (*batch, num_terms); statistics as theta; constants (*batch).

    Raises:
        InputError: of every method, for a wrong length, shape or code, an unknown coding, the coding of another
            family or arbitrary tables of a collection that is not hierarchical, or tables that should be balanced (or
            vanish at level 0) and do not.
        InputTypeError: likewise, for what is no floating-point tensor.
        IntractableError: of the constructor, tables of more than 2^27 entries or a variable of more than 2^13 levels.

    References:
        Paper 1, appendix A.3, equations (9), (21) and (22).

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> codings = parametrization(hypergraph)
        >>> theta = torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)  # the log odds ratio of a and b is 2
        >>> codings.convert(theta, "corner", "balanced").round(decimals=6).tolist()
        [-0.5, 0.5, -0.5, 0.5, 0.5, -0.5, -0.5, 0.5]
    """

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        check_tables(hypergraph)
        self.hypergraph = hypergraph
        self._steps: dict[str, KroneckerMap] = {}
        self._maps: dict[tuple[str, ...], LinearMap] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return parametrization, (self.hypergraph,)

    def __repr__(self) -> str:
        return f"Parametrization({self.hypergraph!r})"

    @property
    def coding(self) -> Coding:
        """Coordinates of the family: ``corner`` where it has corner tables alone, otherwise ``free``."""
        return "corner" if self.hypergraph.coding == "corner" else "free"

    def num(self, coding: Coding) -> int:
        """Length of theta in a coding."""
        self._check_coding(coding)
        return self.hypergraph.num_terms if coding == "balanced" else self.hypergraph.num_parameters

    def _check_coding(self, coding: str, argument: str = "coding") -> None:
        check_choice(coding, CODINGS, argument)
        if self.hypergraph.coding == "corner" != coding:
            self._check_hierarchical(f"the {coding} coding")
        if self.hypergraph.coding != "corner" == coding:
            self._check_hierarchical("the corner coding")

    def _check_hierarchical(self, what: str) -> None:
        if not self.hypergraph.is_hierarchical:
            hint = "use the coding 'free' or 'balanced', or lift() the tables to hypergraph.closure()"
            if self.hypergraph.coding == "corner":
                hint = "use the coding 'corner', or lift() the tables to hypergraph.closure()"
            elif "corner" in what:
                hint += "; hypergraph.in_coding('corner') is the family of corner tables on the same sets, another one"
            problem = f"{what} lives on the closure of a collection that is not hierarchical"
            raise InputError(problem, hint=hint, code="no-method")

    @staticmethod
    def _check(value: torch.Tensor, size: int, argument: str) -> None:
        check_shape(checked_floating(value, argument), (size,), argument)

    def _check_tables(self, tables: torch.Tensor) -> None:
        """Refuse tables of another size, and such as have no theta: impossible combinations are kept beside it."""
        self._check(tables, self.hypergraph.num_terms, "tables")
        if is_hidden(tables) or bool(torch.isfinite(tables.detach()).all()):
            return
        if bool(torch.isneginf(tables.detach()).any()):
            hint = "HierarchicalLogLinear.from_tables keeps what is impossible beside theta"
            raise unexpected("tables", "finite tables", hint=hint, received="-inf", code="impossible")
        raise unexpected("tables", "finite tables", received="NaN or infinite ones", code="not-finite")

    def check_balanced(self, tables: torch.Tensor, argument: str) -> None:
        """Refuse tables whose fibres do not sum to zero."""
        expected = "balanced tables (every fibre sums to zero)"
        hint = "call purify() first"
        if not self.hypergraph.is_hierarchical:
            hint = "take hypergraph and tables of LogLinearEnergy(hypergraph, tables).on_closure()"
        self._check_alike(tables, self._map("centre"), tables, argument, expected, hint)

    @staticmethod
    def _check_alike(
        tables: torch.Tensor, rebuilt: LinearMap, source: torch.Tensor, argument: str, expected: str, hint: str = ""
    ) -> None:
        """Refuse tables that differ from those rebuilt from a source by more than the root of the rounding unit."""
        if tables.numel() and not is_hidden(tables):
            values = tables.detach()
            excess = (values - rebuilt(source.detach())).abs().amax()
            limit = torch.finfo(values.dtype).eps ** 0.5 * values.abs().amax().clamp(min=1)
            if not bool(excess <= limit):
                received = f"means of up to {float(excess):.3g}" if hint else f"{float(excess):.3g} at a level 0"
                raise unexpected(argument, expected, hint=hint or _ON_CLOSURE, received=received)

    def to_tables(self, theta: torch.Tensor, coding: Coding | None = None, *, validate: bool = True) -> torch.Tensor:
        """Balanced tables of theta in any coding, :attr:`coding` by default; :meth:`corner_tables` of a corner family.

        From the balanced coding this is the orthogonal projection, which leaves balanced tables as they are up to
        rounding and makes gradients in ``theta`` the purified ones (paper 1, equation 9). From the corner coding the
        constant that :meth:`purify` returns is dropped. With ``validate``, ``coding="balanced"`` tables that are not
        balanced are refused.
        """
        coding = coding or self.coding
        self._check(theta, self.num(coding), "theta")
        if validate and coding == "balanced":
            self.check_balanced(theta, "theta")
        return self.tables_map(coding)(theta)

    def tables_map(self, coding: Coding) -> LinearMap:
        """The map of :meth:`to_tables`, for theta of a coding that were checked before."""
        return self._map("corner") if self.hypergraph.coding == "corner" else self._map(*_TO_TABLES[coding])

    def from_tables(self, tables: torch.Tensor, coding: Coding | None = None) -> torch.Tensor:
        """Theta in a coding, :attr:`coding` by default, from finite tables; the constant of :meth:`purify` is dropped.

        Collections that are not hierarchical have tables of their own kind alone.
        """
        coding = coding or self.coding
        self._check_coding(coding)
        self._check_tables(tables)
        if self.hypergraph.coding == "corner":
            theta = self._map("corner_statistics")(tables)
            self._check_alike(tables, self._map("corner"), theta, "tables", "corner tables (zero where a level is 0)")
            return theta
        if not self.hypergraph.is_hierarchical:
            self.check_balanced(tables, "tables")
            return self._map("pure" if coding == "free" else "centre")(tables)
        if coding == "free":
            return self._map("purify")(tables)
        return self._map("anchor")(tables) if coding == "corner" else self._map("purify", "free")(tables)

    def convert(self, theta: torch.Tensor, source: Coding, target: Coding, *, validate: bool = True) -> torch.Tensor:
        """Theta in another coding of the same law; with ``validate``, tables that should be balanced are checked."""
        self._check_coding(target, "target")
        self._check_coding(source, "source")
        self._check(theta, self.num(source), "theta")
        if validate and source == "balanced":
            self.check_balanced(theta, "theta")
        return self._conversion(source, target)(theta)

    def _conversion(self, source: str, target: str) -> LinearMap:
        if target == "balanced":
            return self._map(*_TO_TABLES[source])
        to_free = {"free": (), "corner": ("corner", "purify"), "balanced": ("pure",)}[source]
        from_free = {"free": (), "corner": ("free", "anchor")}[target]
        return self._map(*to_free, *from_free) if source != target else self._map()

    def purify(self, tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        r"""Balanced tables and the constant that together equal arbitrary tables.

        .. math:: \sum_S \theta^S_{x_S} = c + \sum_S \theta^S_{\mathrm{balanced}, x_S} \quad \text{for every } x

        The mean of a table over some of its axes moves to the table of the remaining ones, or to the constant. Hence
        log Z of the tables is log Z of the balanced tables plus c, which is in nats.
        """
        self._check_coding("balanced")
        self._check_tables(tables)
        if not self.hypergraph.is_hierarchical:
            self.check_balanced(tables, "tables")
            return self._map("centre")(tables), tables.new_zeros(tables.shape[:-1])
        pure = self._map("purify_all")(tables)
        return self._map("free")(pure[..., :-1]), pure[..., -1]

    def corner_tables(self, theta: torch.Tensor) -> torch.Tensor:
        r"""Whole tables of the corner coding: zero wherever a level is 0, the entries of theta elsewhere.

        Their log Z is that of the corner coding, :math:`-\log p(0, \dots, 0)`, and its gradient is
        :meth:`corner_statistics`. They exist for every collection of sets, hierarchical or not, and are the tables of
        these sets alone.
        """
        self._check(theta, self.hypergraph.num_parameters, "theta")
        return self._map("corner")(theta)

    def eta_to_pi(self, eta: torch.Tensor) -> torch.Tensor:
        r"""Purified mean coordinates (paper 1, equation 22): the marginal tables with every axis centred.

        .. math:: \pi^S = \sum_{T \subseteq S} (-1)^{|S| - |T|}\, \eta^T \otimes u^{S - T}

        with u the uniform law. Centring needs the table of S alone, so it is defined for every collection; it equals
        the formula because the marginals of a table are the tables of its subsets. Of a difference of means of the
        model and of the data it is the purified gradient of the divergence from the data (equation 9).
        """
        self._check(eta, self.hypergraph.num_terms, "eta")
        return self._map("centre")(eta)

    def pi_to_eta(self, pi: torch.Tensor) -> torch.Tensor:
        r"""Marginal tables from purified ones, the inverse of :meth:`eta_to_pi` for probabilities.

        .. math:: \eta^S = \sum_{T \subseteq S} \pi^T \otimes u^{S - T}, \qquad \pi^\emptyset = 1
        """
        self._check_hierarchical("the inverse of pi")
        self._check(pi, self.hypergraph.num_terms, "pi")
        pure = self._map("pure")(pi)
        return self._map("unpurify")(torch.cat([pure, pure.new_ones(*pure.shape[:-1], 1)], -1))

    def free_statistics(self, eta: torch.Tensor) -> torch.Tensor:
        """Gradient of log Z in the free coding: marginal tables, probabilities or counts, in the orthonormal basis."""
        self._check_coding("free")
        self._check(eta, self.hypergraph.num_terms, "eta")
        return self._map("pure")(eta)

    def corner_statistics(self, eta: torch.Tensor) -> torch.Tensor:
        """Expected statistics of the corner coding: marginal probabilities, or counts, of cells without a level 0."""
        self._check_coding("corner")
        self._check(eta, self.hypergraph.num_terms, "eta")
        return self._map("corner_statistics")(eta)

    def mean_statistics(self, eta: torch.Tensor, coding: Coding | None = None) -> torch.Tensor:
        """Gradient of log Z in a coding, :attr:`coding` by default, at marginal tables, probabilities or counts."""
        coding = coding or self.coding
        self._check_coding(coding)
        of = {"free": self.free_statistics, "corner": self.corner_statistics, "balanced": self.eta_to_pi}
        return of[coding](eta)

    def statistics(self, states: torch.Tensor, *, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Indicator tables of joint states: one 1 in every hyperedge's table. Their mean over rows is eta.

        Shape:
            states (*sample, d) codes; result (*sample, num_terms).
        """
        index = cell_index(self.hypergraph).flat(check_codes(states, self.hypergraph.domain, "states"))
        zeros = torch.zeros(*index.shape[:-1], self.hypergraph.num_terms, dtype=dtype, device=index.device)
        return zeros.scatter(-1, index, 1.0)

    def split(self, tables: torch.Tensor) -> dict[Edge, torch.Tensor]:
        """A flat vector as one table (*batch, *cardinalities) per hyperedge."""
        self._check(tables, self.hypergraph.num_terms, "tables")
        pieces = zip(self.hypergraph.term_slices.items(), self.hypergraph.edge_shapes, strict=True)
        return {edge: tables[..., where].reshape(*tables.shape[:-1], *shape) for (edge, where), shape in pieces}

    def join(self, tables: Mapping[Edge, torch.Tensor]) -> torch.Tensor:
        """Inverse of :meth:`split`; the tables are broadcast to a common batch shape."""
        graph = self.hypergraph
        if set(tables) != set(graph.edges):
            odd = min(set(tables) ^ set(graph.edges))
            is_missing = odd in set(graph.edges)
            hint = f"{odd!r} is {'missing' if is_missing else 'not a hyperedge of the collection'}"
            code = "missing-part" if is_missing else "unknown-name"
            raise unexpected("tables", "one table per hyperedge", hint=hint, code=code)
        if not graph.edges:
            return torch.zeros(0)
        flat: list[torch.Tensor] = []
        for edge, shape in zip(graph.edges, graph.edge_shapes, strict=True):
            table = tables[edge]
            check_shape(table, shape, f"tables[{edge!r}]")
            flat.append(table.reshape(*table.shape[: table.ndim - len(shape)], math.prod(shape)))
        batches = dict.fromkeys(tuple(piece.shape[:-1]) for piece in flat)
        try:
            batch = broadcast_shapes(*batches)
        except RuntimeError:
            received = " and ".join(str(batch) for batch in batches if batch)
            raise unexpected("tables", "batches that broadcast", received=received, code="wrong-shape") from None
        return torch.cat([piece.expand(*batch, piece.shape[-1]) for piece in flat], -1)

    def lift(self, tables: torch.Tensor, hypergraph: InteractionHypergraph) -> torch.Tensor:
        """The same tables in a larger collection, such as the closure, with zeros for its other hyperedges.

        Balanced tables stay balanced, and the law stays the same. The collection has the same domain and every
        hyperedge of this one.
        """
        self._check(tables, self.hypergraph.num_terms, "tables")
        if hypergraph.domain != self.hypergraph.domain:
            raise other_domain("hypergraph", "a collection over the same domain", received="one over another domain")
        where = hypergraph.term_slices
        absent = [edge for edge in self.hypergraph.edges if edge not in where]
        if absent:
            problem = f"expected every hyperedge of this collection, but {absent[0]!r} is absent"
            raise refused("hypergraph", problem, code="missing-part")
        places = [torch.arange(where[edge].start, where[edge].stop) for edge in self.hypergraph.edges]
        index = torch.cat([torch.zeros(0, dtype=torch.long), *places]).to(tables.device)
        return tables.new_zeros(*tables.shape[:-1], hypergraph.num_terms).index_add(-1, index, tables)

    def matrix(self, source: Coding, target: Coding) -> torch.Tensor:
        """Dense matrix M (num(target), num(source)), float64, with ``theta_target = M @ theta_source``.

        For small collections. From the balanced coding, M also projects: on balanced tables it is exact.
        """
        self._check_coding(source, "source")
        self._check_coding(target, "target")
        return self._conversion(source, target).matrix(torch.float64, torch.device("cpu")).T

    def _map(self, *names: str) -> LinearMap:
        """Composition of steps from left to right; without steps the identity on parameters."""
        if names not in self._maps:
            steps = [self._step(name.removesuffix("_all")) for name in names]
            # "purify" and "anchor" end with the constant, which only "purify_all" and its adjoint keep.
            size = self.hypergraph.num_parameters
            if names and names[-1] not in ("purify", "anchor"):
                size = steps[-1].num_outputs
            self._maps[names] = LinearMap(*steps, num_outputs=size)
        return self._maps[names]

    def _step(self, name: str) -> KroneckerMap:
        if name not in self._steps:
            self._steps[name] = self._build(name)
        return self._steps[name]

    def _build(self, name: str) -> KroneckerMap:
        if name in _ADJOINTS:
            return self._step(_ADJOINTS[name]).adjoint()
        graph = self.hypergraph
        inputs, outputs, factor = _STEPS[name]
        num = graph.num_parameters
        sizes = {"terms": graph.num_terms, "parameters": num, "subsets": num + 1}
        # Hyperedges of one shape have one map.
        groups: dict[tuple[int, ...], list[Edge]] = {}
        for edge, shape in zip(graph.edges, graph.edge_shapes, strict=True):
            groups.setdefault(shape, []).append(edge)
        blocks = [
            Block(shape, _positions(graph, edges, shape, inputs), _positions(graph, edges, shape, outputs))
            for shape, edges in groups.items()
        ]
        return KroneckerMap(blocks, factor, sizes[inputs], sizes[outputs])


def _mean_and_contrasts(n: int) -> np.ndarray:
    """The mean over an axis, then the coordinates of the rest; shape (n, n)."""
    return np.vstack([np.full((1, n), 1 / n), level_contrasts(n).T])


def _reference_and_differences(n: int) -> np.ndarray:
    """The entry at level 0, then the differences of the others from it; shape (n, n)."""
    matrix = np.eye(n)
    matrix[1:, 0] = -1
    return matrix


_STEPS: dict[str, tuple[Layout, Layout, Factor]] = {
    "free": ("parameters", "terms", level_contrasts),  # free coordinates -> balanced tables
    "corner": ("parameters", "terms", corner_embedding),  # corner entries -> tables that vanish at level 0
    "centre": ("terms", "terms", lambda n: np.eye(n) - 1 / n),  # tables -> their centred parts
    # tables -> free coordinates, or corner entries, of their parts in every subset, then the constant
    "purify": ("terms", "subsets", _mean_and_contrasts),
    "anchor": ("terms", "subsets", _reference_and_differences),
}
_TO_TABLES = {"free": ("free",), "corner": ("corner", "purify", "free"), "balanced": ("centre",)}
_ADJOINTS = {
    "pure": "free",  # tables -> free coordinates of their centred parts
    "corner_statistics": "corner",  # tables -> entries without a level 0
    "unpurify": "purify",  # pi in free coordinates, then 1 -> marginal tables
}


@lru_cache(maxsize=64)
@plain_mode()
def parametrization(hypergraph: InteractionHypergraph) -> Parametrization:
    """The :class:`Parametrization` of a hypergraph; equal hypergraphs share one, with its matrices.

    Example:
        >>> from pyro_hoim import Domain
        >>> codings = parametrization(InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2})))
        >>> codings.convert(torch.tensor([0.0, 0.0, 1.0]), "free", "corner").tolist()  # the log odds ratio is 2
        [-1.0, -1.0, 2.0]
    """
    return Parametrization(hypergraph)


def family_of(hypergraph: InteractionHypergraph, coding: Coding | None) -> tuple[InteractionHypergraph, Coding]:
    """The collection with the family that theta of a coding belongs to, and the coding; None is the collection's own.

    Corner theta says that the family is that of corner tables, whatever sets are missing.
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    family = _in_corner(hypergraph) if coding == "corner" else hypergraph
    return family, coding or parametrization(family).coding


def check_balanced_family(hypergraph: InteractionHypergraph, what: str) -> None:
    """Refuse a family of corner tables where something is defined for balanced ones alone."""
    if hypergraph.coding == "corner":
        problem = f"{what} needs balanced tables, and this collection lacks subsets and has corner tables"
        hint = "take hypergraph.closure(), or for a model its on_closure()"
        raise InputError(problem, argument="hypergraph", hint=hint, code="no-method")


@lru_cache(maxsize=64)
def _in_corner(hypergraph: InteractionHypergraph) -> InteractionHypergraph:
    """The family of corner tables on the same sets, the same object every time."""
    return hypergraph.in_coding("corner")


def table_variables(
    hypergraph: InteractionHypergraph, name: str, tables: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, list[str]], dict[str, list[str]]]:
    """One variable per interaction with a dimension of labelled levels per member."""
    arrays: dict[str, np.ndarray] = {}
    dims: dict[str, list[str]] = {}
    coords: dict[str, list[str]] = {}
    slices: Mapping[Any, slice] = hypergraph.term_slices
    for (edge, where), shape in zip(slices.items(), hypergraph.edge_shapes, strict=True):
        variable = f"{name}[{':'.join(edge)}]"
        arrays[variable] = tables[..., where].reshape(*tables.shape[:-1], *shape)
        dims[variable] = [f"{member}_level" for member in edge]
        coords.update({f"{member}_level": list(hypergraph.domain[member].labels) for member in edge})
    return arrays, dims, coords


# Marginal tables given as numbers: do they belong to one table?

MARGIN_TOLERANCE = 1e-8
"""Relative difference that adding up many counts in double precision may leave."""


def margin_fault(
    hypergraph: InteractionHypergraph, margins: torch.Tensor, total: torch.Tensor, tolerance: torch.Tensor
) -> str | None:
    """What margins (*batch, num_terms) have that those of one table could not, beyond a tolerance (*batch), or None.

    Two tables agree when each sums to the same table of the variables they have in common. The tables are summed down
    one axis at a time, and every result is compared with the first one found for its variables; for decomposable
    collections that suffices for a common table to exist, for others it is necessary. Cost: O(closure of the tables).
    """
    # Every table holds all rows.
    margin_of: dict[Edge, tuple[torch.Tensor, Edge]] = {}
    for edge, table in parametrization(hypergraph).split(margins).items():
        margin_of[edge] = table, edge
        sums = table.sum(list(range(-len(edge), 0)))
        gap = (sums - total).abs()
        if bool((gap > tolerance).any()):
            worst = int(gap.argmax())
            sizes = (float(part.expand_as(gap).flatten()[worst]) for part in (sums, total))
            return f"a table of {':'.join(edge)} that sums to {'{:.6g}, not {:.6g}'.format(*sizes)}"
    # Tables that share variables agree over these; margins are followed down one variable at a time.
    pending = list(margin_of)
    while pending:
        names = pending.pop()
        table, source = margin_of[names]
        for axis in range(len(names)) if len(names) > 1 else ():
            rest = names[:axis] + names[axis + 1 :]
            margin = table.sum(axis - len(names))
            if rest not in margin_of:
                margin_of[rest] = margin, source
                pending.append(rest)
                continue
            known, other = margin_of[rest]
            gap = (margin - known).abs().flatten(-len(rest)).amax(-1)
            if bool((gap > tolerance).any()):
                tables = f"{':'.join(other)} and {':'.join(source)}"
                return f"tables of {tables} that differ by {float(gap.max()):.4g} over {':'.join(rest)}"
    return None


def check_margins(
    hypergraph: InteractionHypergraph,
    margins: torch.Tensor,
    total: torch.Tensor,
    tolerance: torch.Tensor,
    argument: str,
) -> None:
    """Refuse what :func:`margin_fault` finds."""
    if fault := margin_fault(hypergraph, margins, total, tolerance):
        hint = "count all from the same rows"
        raise unexpected(argument, "margins of one table", hint=hint, received=fault, code="other-domain")


# Corner coding against any level of every variable, not the first one alone: exact linear maps.

THETA_DIM = "interaction_level"
"""Name of the dimension that runs over the coordinates of theta."""
Reference = Mapping[str, str | SupportsIndex]
"""Reference levels of corner coding by variable, labels or codes; variables that are not named keep their first."""


def to_reference(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, reference: Reference | None, source: Coding = "corner"
) -> torch.Tensor:
    r"""Corner theta against chosen reference levels, from theta in a coding.

    .. math:: \theta^S_{x_S} = \sum_{T \supseteq S} \; \sum_{R \subseteq S} (-1)^{|S| - |R|}\,
        \bar\theta^T(x_R, r_{T - R})

    where :math:`\bar\theta` are any tables of the model and r the reference: the coefficient of S at levels x is the
    log ratio of probabilities (odds ratio, ...) of x and r over the variables of S, all others at their reference. The
    entries of a table are those of the levels other than r, in the order of the schema. Linear and exact: of corner
    theta only sums and differences of its entries are taken. The law and its number of parameters stay the same.

    Args:
        hypergraph: a hierarchical collection.
        theta: coordinates in the coding ``source``.
        reference: levels by variable; others keep their first level, and None keeps all.
        source: coding of ``theta``; its corner coding is that against the first levels.

    Shape:
        theta (*batch, num(source)), result (*batch, num_parameters).

    Raises:
        UnknownNameError: an unknown variable or label.
        InputError: a code out of range, a variable of one level, which has no coefficients, or a collection that lacks
            subsets, whose corner tables against other levels are another family.
        InputTypeError: no mapping.

    Example:
        >>> graph = InteractionHypergraph.saturated(Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"]}))
        >>> theta = torch.tensor([0.5, 0.1, 0.2, 1.0, 3.0], dtype=torch.float64)  # against no and x
        >>> to_reference(graph, theta, {"b": "z"}).tolist()  # a, then b at x and y, then a with b at x and y
        [3.5, -0.2, -0.1, -3.0, -2.0]
    """
    codings, order = parametrization(hypergraph), _order(hypergraph, reference)
    corner = codings.convert(theta, source, "corner", validate=False) if source != "corner" else theta
    if order is None:
        return corner
    return codings.from_tables(codings.corner_tables(corner)[..., order], "corner")


def from_reference(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, reference: Reference | None, target: Coding = "corner"
) -> torch.Tensor:
    """Theta in a coding from corner theta against chosen reference levels, the inverse of :func:`to_reference`.

    Example:
        >>> graph = InteractionHypergraph.saturated(Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"]}))
        >>> theta = torch.tensor([3.5, -0.2, -0.1, -3.0, -2.0], dtype=torch.float64)
        >>> from_reference(graph, theta, {"b": "z"}).round(decimals=9).tolist()
        [0.5, 0.1, 0.2, 1.0, 3.0]
    """
    codings, order = parametrization(hypergraph), _order(hypergraph, reference)
    if order is not None:
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        theta = codings.from_tables(codings.corner_tables(theta)[..., back], "corner")
    return theta if target == "corner" else codings.convert(theta, "corner", target, validate=False)


def reference_matrix(hypergraph: InteractionHypergraph, source: Coding, reference: Reference | None) -> torch.Tensor:
    """Dense matrix (num_parameters, num(source)), float64, of :func:`to_reference`; for small collections.

    Example:
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 3}), 1)
        >>> reference_matrix(graph, "corner", {"a": 2}).tolist()  # 0 against 2, 1 against 2
        [[0.0, -1.0], [1.0, -1.0]]
    """
    units = torch.eye(parametrization(hypergraph).num(source), dtype=torch.float64)
    return to_reference(hypergraph, units, reference, source).T


def reference_codes(domain: Domain, reference: Reference | None) -> dict[str, int]:
    """The code of the reference level of every variable."""
    first = dict.fromkeys(domain.names, 0)
    if reference is None:
        return first
    check_type(reference, Mapping, "reference", "a level for every variable, {name: label}")
    codes = domain.encode_state(reference)
    for name in codes:
        if domain[name].cardinality < 2:
            problem = f"{name!r} has one level, which nothing is compared with"
            raise refused("reference", problem, "leave it out", code="wrong-shape")
    return first | codes


def check_corner(coding: Coding, reference: Reference | None) -> None:
    """Refuse reference levels in codings that have none."""
    if reference is not None and coding != "corner":
        problem = f"the {coding} coding compares with no level"
        raise conflict("reference", problem, "say coding='corner'")


def entry_labels(
    hypergraph: InteractionHypergraph, coding: Coding, reference: Reference | None = None
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Interaction and levels of every coordinate of theta: all levels in the balanced coding, else without one."""
    check_choice(coding, CODINGS, "coding")
    check_corner(coding, reference)
    domain, gone = hypergraph.domain, reference_codes(hypergraph.domain, reference)
    terms, levels = list[str](), list[tuple[str, ...]]()
    for edge in hypergraph.edges:
        labels = [
            [label for code, label in enumerate(domain[name].labels) if coding == "balanced" or code != gone[name]]
            for name in edge
        ]
        for combination in itertools.product(*labels):
            terms.append(":".join(edge))
            levels.append(combination)
    return terms, levels


def theta_coords(
    hypergraph: InteractionHypergraph, coding: Coding = "free", reference: Reference | None = None
) -> dict[str, list[str]]:
    """Interaction and level of every coordinate of theta, in the order of the flat vector.

    Args:
        hypergraph: the interactions.
        coding: "balanced" coordinates belong to all levels of each variable, "corner" and "free" ones to those from
            the second on. Raising a free coordinate raises the probability of the levels that it is named by
            (:class:`~pyro_hoim.log_linear.Parametrization`).
        reference: of corner coordinates: the levels that they have none for, where they are not the first.

    Returns:
        Three lists of equal length: ``"interaction"`` ("smoke:mental"), ``"level"`` ("y,n") and
        ``"interaction_level"`` ("smoke:mental[y,n]"), which is unique.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_labels({"smoke": ["y", "n"], "age": ["old", "mid", "new"]})
        >>> graph = InteractionHypergraph(domain, [["smoke", "age"]], closure=True)
        >>> theta_coords(graph)["interaction_level"]
        ['smoke[n]', 'age[mid]', 'age[new]', 'smoke:age[n,mid]', 'smoke:age[n,new]']
    """
    terms, levels = entry_labels(hypergraph, coding, reference)
    levels = [",".join(labels) for labels in levels]
    names = [f"{term}[{level}]" for term, level in zip(terms, levels, strict=True)]
    return {"interaction": terms, "level": levels, THETA_DIM: names}


def _order(hypergraph: InteractionHypergraph, reference: Reference | None) -> torch.Tensor | None:
    """Positions of the entries of all tables with the reference levels put first; None where they are first."""
    codes = reference_codes(hypergraph.domain, reference)
    if not any(codes.values()):
        return None
    if not hypergraph.is_hierarchical:
        problem = "corner tables against other levels are another family on a collection that lacks subsets"
        raise conflict("reference", problem, "take hypergraph.closure()")
    pieces = [np.zeros(0, dtype=np.int64)]
    for edge, where in hypergraph.term_slices.items():
        sizes = [hypergraph.domain[name].cardinality for name in edge]
        table = np.arange(where.start, where.stop).reshape(sizes)
        axes = [[codes[n], *(c for c in range(size) if c != codes[n])] for n, size in zip(edge, sizes, strict=True)]
        pieces.append(table[np.ix_(*axes)].ravel())
    return torch.from_numpy(np.concatenate(pieces))
