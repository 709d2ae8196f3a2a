r"""Conditional laws of one variable given all others: the protocol, leaf tables and plain tables."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, Self, runtime_checkable

import torch
from typing_extensions import override

from ..checks import broadcast_shapes
from ..errors import (
    check_names,
    check_type,
    check_unique,
    other_domain,
    out_of_range,
    refused,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ..schema import Domain
from ..structure.hypergraph import check_codes, evidence_codes, gather_slices
from .decision_graph import DecisionGraph

_TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-9}


@runtime_checkable
class NodeConditional(Protocol):
    r"""The conditional law of one variable given all others, :math:`\theta_i(x_i \mid x_{-i})`.

    Laws an implementation must obey: the exponentials of a result sum to one over its last dimension (to zero where a
    model leaves no level possible), and the result depends on the variables in ``reads`` alone, never on the variable
    itself, whose entries may hold anything.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> node = TableConditional(domain, "a", ["b"], torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
        >>> node.reads, node.has_zeros, node.log_probs(torch.tensor([0, 1])).exp()
        (('b',), True, tensor([0., 1.]))
    """

    @property
    def domain(self) -> Domain:
        """The variables, in the order of the last dimension of a state."""
        ...

    @property
    def variable(self) -> str:
        """Name of the variable whose law this is."""
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the variables that the law may depend on, in schema order."""
        ...

    @property
    def has_zeros(self) -> bool:
        """Whether a probability may be zero; False only where none ever is."""
        ...

    def log_probs(self, x: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (*sample, cardinality) at codes x (*sample, d), in nats; bad codes are refused."""
        ...


def _check_table(probs: object, rows: str, variable: str) -> torch.Tensor:
    """A floating tensor whose last dimension holds laws, or an error that names the first row that is none."""
    argument = f"probs of {variable!r}"
    if not isinstance(probs, torch.Tensor) or probs.dtype not in _TOLERANCE:
        received = probs.dtype if isinstance(probs, torch.Tensor) else type(probs).__name__
        raise wrong_type(argument, "a float32 or float64 tensor", received=received)
    # Entries first, then sums, so that the message names the first fault.
    values = probs.detach().double()
    is_bad = ~torch.isfinite(values) | (values < 0)
    if bool(is_bad.any()):
        where = tuple(int(i) for i in is_bad.nonzero()[0])
        expected = "finite probabilities from 0 on"
        raise out_of_range(argument, expected, received=f"{values[where].item()} at index {where}")
    totals = values.sum(-1)
    is_off = (totals - 1).abs() > _TOLERANCE[probs.dtype]
    if bool(is_off.any()):
        where = tuple(int(i) for i in is_off.nonzero()[0])
        position = where[0] if len(where) == 1 else where
        problem = f"expected rows that sum to one, but {rows} {position} sums to {totals[where].item():.9g}"
        raise refused(argument, problem, code="out-of-range")
    return probs


class _TabulatedConditional(ABC):
    """What decision graphs and plain tables share as a :class:`NodeConditional`: their laws stand in a table."""

    domain: Domain
    variable: str
    reads: tuple[str, ...]
    probs: torch.Tensor

    @property
    def has_zeros(self) -> bool:
        return bool((self.probs == 0).any())

    def log_probs(self, x: torch.Tensor) -> torch.Tensor:
        return self.update_log_probs(check_codes(x, self.domain, columns=list(self.domain.indices(self.reads))))

    def update_log_probs(self, codes: torch.Tensor) -> torch.Tensor:
        """The same at the codes of a chain, which are not checked anew at every update."""
        probs = self.law_at(codes)
        is_zero = probs <= 0
        return probs.masked_fill(is_zero, 1.0).log().masked_fill(is_zero, -math.inf)

    @abstractmethod
    def law_at(self, codes: torch.Tensor) -> torch.Tensor:
        """Probabilities (*sample broadcast with batch, cardinality) at codes (*sample, d), which are not checked."""

    @abstractmethod
    def with_probs(self, probs: torch.Tensor) -> Self:
        """The same conditional with another table."""

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Self:
        """The conditional with its table elsewhere; rows are normalised anew when the precision grows."""
        moved = self.probs.to(device=device, dtype=dtype)
        grew = moved.dtype == torch.float64 and self.probs.dtype != torch.float64
        return self.with_probs(moved / moved.sum(-1, keepdim=True) if grew else moved)


class LeafConditional(_TabulatedConditional):
    r"""A decision graph with one law per leaf, :math:`\theta_i(x_i \mid Y_i(x))`.

    Args:
        graph: the information source :math:`Y_i`.
        probs: law of the variable at every leaf, (num_leaves, cardinality); float32 or float64, on any device. Kept as
            it is, with its gradient.

    Raises:
        InputTypeError: no decision graph, or no floating-point tensor.
        InputError: a wrong shape, an entry that is negative or not finite, or a row that does not sum to one (to 1e-6
            in float32, 1e-9 in float64); the row is named.

    Example:
        >>> domain = Domain.from_cardinalities({"rain": 2, "wet": 2})
        >>> probs = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
        >>> node = LeafConditional(DecisionGraph(domain, "wet").split(0, "rain"), probs)
        >>> node.log_probs(torch.tensor([1, -1])).exp()
        tensor([0.2000, 0.8000])
    """

    def __init__(self, graph: DecisionGraph, probs: torch.Tensor) -> None:
        check_type(graph, DecisionGraph, "graph")
        shape = (graph.num_leaves, graph.domain[graph.variable].cardinality)
        if isinstance(probs, torch.Tensor) and tuple(probs.shape) != shape:
            expected = f"{shape}, one row per leaf and one column per level of {graph.variable!r}"
            raise wrong_shape("probs", expected, probs)
        self.graph = graph
        self.domain, self.variable, self.reads = graph.domain, graph.variable, graph.reads
        self.probs = _check_table(probs, "leaf", graph.variable)

    def __repr__(self) -> str:
        return f"LeafConditional({self.graph!r})"

    @override
    def law_at(self, codes: torch.Tensor) -> torch.Tensor:
        return self.probs[self.graph.compiled.leaves(codes)]

    @override
    def with_probs(self, probs: torch.Tensor) -> LeafConditional:
        return LeafConditional(self.graph, probs)

    def condition(self, evidence: Mapping[str, int | str]) -> LeafConditional:
        """The conditional over the remaining variables when some others are fixed; see :class:`DecisionGraph`."""
        graph, source = self.graph.condition(evidence)
        return LeafConditional(graph, self.probs[torch.tensor(source, device=self.probs.device)])


class TableConditional(_TabulatedConditional):
    r"""A plain table over given parents, :math:`\theta_i(x_i \mid x_{\mathrm{pa}(i)})`.

    Args:
        domain: the variables.
        variable: the variable whose law this is.
        parents: names of the parents, in the order of the axes of ``probs`` before the last.
        probs: law of the variable for every state of the parents, (*batch, *cardinalities of the parents, cardinality);
            float32 or float64, on any device. Kept as it is, with its gradient.

    Raises:
        UnknownNameError: an unknown variable.
        InputError, InputTypeError: a repeated parent, the variable itself among them, and what
            :class:`LeafConditional` refuses.

    Example:
        >>> domain = Domain.from_cardinalities({"rain": 2, "wet": 2})
        >>> node = TableConditional(domain, "wet", ["rain"], torch.tensor([[0.9, 0.1], [0.2, 0.8]]))
        >>> node.log_probs(torch.tensor([[0, -1], [1, -1]])).exp()
        tensor([[0.9000, 0.1000],
                [0.2000, 0.8000]])
    """

    def __init__(self, domain: Domain, variable: str, parents: Sequence[str], probs: torch.Tensor) -> None:
        check_type(domain, Domain, "domain")
        domain.index(variable)
        if isinstance(parents, str):
            raise wrong_type("parents", "a sequence of names", received=f"the string {parents!r}")
        self.domain, self.variable, self.parents = domain, variable, tuple(parents)
        check_names(self.parents, domain.names, "parents")
        check_unique(self.parents, "parents")
        if variable in self.parents:
            raise other_domain("parents", f"other variables than {variable!r}, whose law this is")
        self.reads = tuple(sorted(self.parents, key=domain.index))
        shape = tuple(domain[name].cardinality for name in (*self.parents, variable))
        if isinstance(probs, torch.Tensor) and tuple(probs.shape[-len(shape) :]) != shape:
            expected = f"(..., {', '.join(map(str, shape))}), the cardinalities of {(*self.parents, variable)}"
            raise wrong_shape("probs", expected, probs)
        self.probs = _check_table(probs, "row", variable)
        self.batch_shape = torch.Size(probs.shape[: probs.ndim - len(shape)])

    def __repr__(self) -> str:
        return f"TableConditional({self.variable!r}, parents={self.parents})"

    @override
    def law_at(self, codes: torch.Tensor) -> torch.Tensor:
        # Rows of the flat table by the codes of the parents, the last one fastest.
        row = torch.zeros(codes.shape[:-1], dtype=torch.long, device=codes.device)
        batch, sizes = self.batch_shape, self.probs.shape[len(self.batch_shape) :]
        for position, size in zip(self.domain.indices(self.parents), sizes, strict=False):
            row = row * size + codes[..., position]
        if batch:
            try:
                shape = broadcast_shapes(row.shape, batch)
            except RuntimeError:
                expected = f"leading dimensions that broadcast with the batch shape {tuple(batch)} of the tables"
                raise unexpected("x", expected, received=f"shape {tuple(codes.shape)}", code="wrong-shape") from None
            # Every element of the batch has its own rows, one table behind the other.
            start = torch.arange(batch.numel(), device=row.device).reshape(batch) * math.prod(sizes[:-1])
            row = (row + start).expand(shape)
        return self.probs.reshape(-1, sizes[-1])[row]

    @override
    def with_probs(self, probs: torch.Tensor) -> TableConditional:
        return TableConditional(self.domain, self.variable, self.parents, probs)

    def condition(self, evidence: Mapping[str, int | str | torch.Tensor]) -> TableConditional:
        """The conditional over the remaining variables when some others are fixed: a slice of the table.

        Evidence and errors are those of :class:`~pyro_hoim.dependency_network.ClampedConditional`.
        """
        codes, rest, _ = remaining(self.domain, self.variable, evidence, self.batch_shape)
        num_batch, device = len(self.batch_shape), self.probs.device
        given = [codes.get(name) for name in (*self.parents, self.variable)]
        tables = gather_slices(
            self.probs, num_batch, [None if code is None else torch.as_tensor(code, device=device) for code in given]
        )
        sizes = [n for n, code in zip(self.probs.shape[num_batch:], given, strict=True) if code is None]
        parents = [name for name in self.parents if name not in codes]
        return TableConditional(rest, self.variable, parents, tables.reshape(*tables.shape[:-1], *sizes))


def batch_shape_of(node: NodeConditional) -> torch.Size:
    """Batch of the parameters of a conditional; one that does not say has none."""
    return torch.Size(getattr(node, "batch_shape", ()))


def remaining(
    domain: Domain, variable: str, evidence: Mapping[str, int | str | torch.Tensor], batch_shape: Sequence[int] = ()
) -> tuple[dict[str, int | torch.Tensor], Domain, torch.Size]:
    """Codes of the evidence, the domain of the variables that it leaves, and the shape of codes and batch together."""
    codes, shape = evidence_codes(domain, evidence, batch_shape)
    if variable in codes:
        raise other_domain("evidence", f"other variables than {variable!r}, whose law is conditioned")
    return codes, domain.project(name for name in domain.names if name not in codes), shape
