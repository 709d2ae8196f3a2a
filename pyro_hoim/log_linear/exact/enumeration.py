"""Exact inference by enumeration of every joint state, of few states by a design matrix."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from typing_extensions import override

from ..._modes import plain_mode
from ...checks import checked_sample_shape, is_transformed
from ...core.model import LogLinearModel
from ...core.partition import (
    Cost,
    ExactBackend,
    LogPartition,
    check_any_possible,
    check_model,
    is_recorded,
    log_sum_exp,
    log_z_with_gradient,
    may_have_zeros,
    no_state,
)
from ...errors import out_of_range, size_text
from ...structure.hypergraph import InteractionHypergraph, cell_index

_BATCH_CELLS = 2**24  # cells of a chunk of the batch that are alive at once


class _Leaf(NamedTuple):
    """One interaction table over its variables in enumeration order."""

    edge: int
    shape: tuple[int, ...]
    own: int


class _Split(NamedTuple):
    """Sum of tables that hold a variable (``head``) and of others, over a prefix of axes and ``own`` later ones."""

    head: _Leaf | _Split
    rest: _Leaf | _Split | None
    shape: tuple[int, ...]
    own: int
    head_shape: tuple[int, ...]
    rest_shape: tuple[int, ...]


_Node = _Leaf | _Split


class _Tree(NamedTuple):
    """Enumeration order of the variables, tree of sums for one structure, and cells that it writes.

    ``there`` takes the axes of every table, behind that of the batch, to enumeration order, ``back`` to schema order.
    """

    axes: tuple[int, ...]
    root: _Node | None
    cells: int
    there: tuple[tuple[int, ...], ...]
    back: tuple[tuple[int, ...], ...]


def _padded(node: _Node, length: int) -> tuple[int, ...]:
    """Shape of a node as an operand of its parent: ones between its prefix and its own axes."""
    cut = len(node.shape) - node.own
    return (*node.shape[:cut], *([1] * (length - len(node.shape))), *node.shape[cut:])


@lru_cache(maxsize=128)
def _accumulation(hypergraph: InteractionHypergraph) -> _Tree:
    """Tables grouped by their last variable, each group by its last but one: few sums run over all states."""
    cards = hypergraph.domain.cardinalities
    axes = tuple(sorted(range(len(cards)), key=lambda v: (cards[v], v)))
    rank = {v: i for i, v in enumerate(axes)}
    sizes = [cards[v] for v in axes]
    cells = 0

    def build(group: list[tuple[tuple[int, ...], int]], suffix: tuple[int, ...]) -> _Node:
        nonlocal cells
        last = max((scope[-1] for scope, _ in group if scope), default=-1)
        if last < 0:
            return _Leaf(group[0][1], tuple(sizes[i] for i in suffix), len(suffix))
        inside = [(scope[:-1], edge) for scope, edge in group if scope and scope[-1] == last]
        outside = [(scope, edge) for scope, edge in group if not scope or scope[-1] != last]
        head = build(inside, (last, *suffix))
        rest = build(outside, suffix) if outside else None
        length = last + 1 + len(suffix)
        shape = head_shape = _padded(head, length)
        rest_shape = () if rest is None else _padded(rest, length)
        if rest is not None:
            shape = tuple(map(max, shape, rest_shape))
            cells += math.prod(shape)
        return _Split(head, rest, shape, len(suffix), head_shape, rest_shape)

    # Small variables come first, so that the sums over all states run along long rows.
    ranks = [[rank[v] for v in edge] for edge in hypergraph.edge_indices]
    orders = [sorted(range(len(edge)), key=edge.__getitem__) for edge in ranks]
    group = [(tuple(sorted(edge)), number) for number, edge in enumerate(ranks)]
    root = build(group, ()) if group else None
    there = tuple((0, *(i + 1 for i in order)) for order in orders)
    back = tuple((0, *(order.index(i) + 1 for i in range(len(order)))) for order in orders)
    return _Tree(axes, root, cells, there, back)


def _permuted(table: Any, axes: tuple[int, ...]) -> Any:
    """A tensor or an array with its axes in another order."""
    return table.permute(axes) if isinstance(table, torch.Tensor) else table.transpose(axes)


def enumeration_axes(hypergraph: InteractionHypergraph) -> tuple[int, ...]:
    """Schema positions in enumeration order, the last fastest."""
    return _accumulation(hypergraph).axes


def decode_states(hypergraph: InteractionHypergraph, flat: torch.Tensor) -> torch.Tensor:
    """States (..., d), columns in schema order, from positions (...) in enumeration order."""
    cards = hypergraph.domain.cardinalities
    codes = flat.new_zeros(*flat.shape, len(cards))
    for v in reversed(enumeration_axes(hypergraph)):
        codes[..., v] = flat % cards[v]
        flat = flat // cards[v]
    return codes


def _collect(node: _Node, leaves: list[Any]) -> Any:
    """Sum of the tables below a node, (B, *node.shape); tensors or arrays."""
    if isinstance(node, _Leaf):
        return leaves[node.edge]
    head = _collect(node.head, leaves)
    head = head.reshape(head.shape[0], *node.head_shape)
    if node.rest is None:
        return head
    rest = _collect(node.rest, leaves)
    return rest.reshape(rest.shape[0], *node.rest_shape) + head


def _folded(probs: Any, have: Sequence[int], want: Sequence[int]) -> Any:
    """Sum over axes longer than wanted; of arrays one at a time, so that rounding errors stay small."""
    gone = [i + 1 for i, (a, b) in enumerate(zip(have, want, strict=True)) if b < a]
    if isinstance(probs, torch.Tensor):
        return probs.sum(gone) if gone else probs
    for before, axis in enumerate(gone):
        probs = np.add.reduce(probs, axis=axis - before)
    return probs


def _distribute(node: _Node, probs: Any, marginals: list[Any]) -> None:
    """Marginals of the tables below a node, from its own marginal (B, *node.shape), into ``marginals``."""
    if isinstance(node, _Leaf):
        marginals[node.edge] = probs
        return
    for child, shape in ((node.head, node.head_shape), (node.rest, node.rest_shape)):
        if child is not None:
            part = _folded(probs, node.shape, shape)
            _distribute(child, part.reshape(probs.shape[0], *child.shape), marginals)


@dataclass(frozen=True)
class Enumeration(ExactBackend):
    r"""Exact inference by forming the table of all joint states.

    .. math:: \log Z = \log \sum_x \exp \sum_S \theta^S_{x_S}

    The log table is accumulated from prefixes of the variables, so a dense model of order k needs about k additions
    of full size, not one per interaction; marginals fold it back the same way. Time and memory are proportional to
    the number of states. Exact, in log space, at any scale of parameters.

    Args:
        max_states: largest number of joint states allowed, per element of the batch.

    Raises:
        InputError: ``max_states`` is not positive.

    Example:
        >>> from pyro_hoim import Domain, LogLinearEnergy
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 3]))
        >>> model = LogLinearEnergy(hypergraph, torch.zeros(11, dtype=torch.float64))
        >>> round(float(Enumeration().log_partition(model).value.exp()), 9)
        6.0
        >>> [round(p, 9) for p in Enumeration().marginal(model, ["x0"]).tolist()]
        [0.5, 0.5]
    """

    max_states: int = 2**22

    def __post_init__(self) -> None:
        if self.max_states < 1:
            raise out_of_range("Enumeration max_states", "at least 1", received=self.max_states)

    @override
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        hypergraph.domain.indices(keep)
        states = hypergraph.domain.num_states
        feasible, hint = states <= self.max_states, None
        total = states + (_accumulation(hypergraph).cells if feasible else states * len(hypergraph.edges))
        reason = f"{size_text(states)} joint states, within the budget of {self.max_states}"
        if not feasible:
            reason = f"enumeration needs a table of {size_text(states, 'cells')}, the budget is {self.max_states}"
            hint = "raise Enumeration(max_states=...) or use VariableElimination"
        memory = 8 * (total + 2 * states)
        return Cost(states, total, total + 3 * states, memory, feasible, reason, "enumeration", hint=hint)

    def _accumulate(self, hypergraph: InteractionHypergraph, tables: Any) -> Any:
        """Sum of the tables (B, *shape of the root) of tables (B, num_terms), tensor or array; None without edges."""
        tree = _accumulation(hypergraph)
        if tree.root is None:
            return None
        pieces = zip(hypergraph.term_slices.values(), hypergraph.edge_shapes, tree.there, strict=True)
        leaves = [_permuted(tables[:, piece].reshape(len(tables), *shape), axes) for piece, shape, axes in pieces]
        return _collect(tree.root, leaves)

    def _log_table(self, hypergraph: InteractionHypergraph, tables: torch.Tensor) -> torch.Tensor:
        """Unnormalised log probabilities (B, *cardinalities in enumeration order) of tables (B, num_terms)."""
        full = [hypergraph.domain.cardinalities[v] for v in enumeration_axes(hypergraph)]
        table = self._accumulate(hypergraph, tables)
        if table is None:
            return tables.new_zeros(tables.shape[0], *full)
        return table.reshape(*table.shape, *([1] * (len(full) + 1 - table.dim()))).expand(-1, *full)

    def _statistics(self, hypergraph: InteractionHypergraph, probs: Any) -> Any:
        """Mean coordinates (B, num_terms) of probabilities (B, *shape of the root), tensor or array."""
        tree = _accumulation(hypergraph)
        if tree.root is None:
            return probs[:, :0]
        marginals: list[Any] = [probs] * len(hypergraph.edges)
        _distribute(tree.root, probs, marginals)
        ordered = [_permuted(table, axes) for table, axes in zip(marginals, tree.back, strict=True)]
        flat = [table.reshape(len(table), math.prod(table.shape[1:])) for table in ordered]
        return torch.cat(flat, -1) if isinstance(probs, torch.Tensor) else np.concatenate(flat, -1)

    def _chunks(self, model: LogLinearModel) -> Sequence[torch.Tensor]:
        """The batch flattened, in chunks that fit the memory bound, each (b, num_terms)."""
        hypergraph = model.hypergraph
        self.plan(hypergraph).check()
        tables = model.tables.reshape(math.prod(model.tables.shape[:-1]), hypergraph.num_terms)
        return tables.split(max(1, _BATCH_CELLS // hypergraph.domain.num_states))

    def _log_joint(self, hypergraph: InteractionHypergraph, tables: torch.Tensor) -> torch.Tensor:
        """Unnormalised log probabilities (b, num_states), the enumeration's last variable fastest."""
        return self._log_table(hypergraph, tables).reshape(tables.shape[0], hypergraph.domain.num_states)

    @torch.no_grad()
    def _evaluate(
        self, hypergraph: InteractionHypergraph, tables: torch.Tensor, want_eta: bool = True, is_checked: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log Z (b,) and eta (b, num_terms) in one pass, without a graph; in NumPy on the CPU, on one core.

        NumPy's sums are faster than PyTorch's here, and unlike them do not slow down when the cores are shared. Without
        a possible state eta are zeros, or an error when ``is_checked``.
        """
        if tables.device.type != "cpu" or tables.dtype not in (torch.float32, torch.float64):
            eta = self._differentiable_eta(hypergraph, tables, is_checked) if want_eta else tables
            return log_sum_exp(self._log_joint(hypergraph, tables)), eta
        table = self._accumulate(hypergraph, tables.numpy())
        free = math.log(hypergraph.domain.num_states)
        if table is None:
            return tables.new_full((tables.shape[0],), free), tables
        free -= math.log(math.prod(table.shape[1:]))
        flat = table.reshape(table.shape[0], math.prod(table.shape[1:]))
        # Weights less the largest, so that none overflows.
        top = flat.max(-1, keepdims=True)
        with np.errstate(invalid="ignore"):  # tables that are not finite are reported by the caller
            weights = np.exp(flat - top)
            total = weights.sum(-1, keepdims=True)
        if top.sum() == -np.inf:
            if is_checked:
                raise no_state()
            weights[top[:, 0] == -np.inf] = 0.0
            total[top == -np.inf] = 1.0
        log_z = torch.from_numpy((np.log(total) + top + free)[:, 0])
        eta = self._statistics(hypergraph, weights.reshape(table.shape)) / total if want_eta else table
        return log_z, torch.from_numpy(eta)

    def _differentiable_eta(
        self, hypergraph: InteractionHypergraph, tables: torch.Tensor, is_checked: bool = False
    ) -> torch.Tensor:
        """Eta (b, num_terms) by PyTorch operations; zeros, or refused, where no state is possible."""
        table = self._accumulate(hypergraph, tables)
        if table is None:
            return tables
        logs = table.reshape(tables.shape[0], math.prod(table.shape[1:]))
        if may_have_zeros(tables):
            log_z = log_sum_exp(logs)
            if is_checked:
                check_any_possible(log_z)
            probs = (logs - log_z.masked_fill(log_z == -math.inf, 0.0).unsqueeze(-1)).exp()
        else:
            probs = torch.softmax(logs, -1)
        return self._statistics(hypergraph, probs.reshape(table.shape))

    def _log_z(self, hypergraph: InteractionHypergraph, tables: torch.Tensor) -> torch.Tensor:
        """Log Z (b,); its gradient is the eta found in the same pass."""
        if is_transformed(tables):
            return log_sum_exp(self._log_joint(hypergraph, tables))
        if is_recorded(tables):
            return log_z_with_gradient(
                tables, lambda t: self._evaluate(hypergraph, t), lambda t: self._differentiable_eta(hypergraph, t)
            )
        return self._evaluate(hypergraph, tables.detach(), want_eta=False)[0]

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        check_model(model)
        values = [self._log_z(model.hypergraph, chunk) for chunk in self._chunks(model)]
        value = torch.cat(values).reshape(model.tables.shape[:-1])
        return LogPartition.exact(value, self.plan(model.hypergraph), model.hypergraph.coding)

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        check_model(model)
        hypergraph, chunks = model.hypergraph, self._chunks(model)
        if is_recorded(model.tables) or is_transformed(model.tables):
            parts = [self._differentiable_eta(hypergraph, chunk, True) for chunk in chunks]
        else:
            parts = [self._evaluate(hypergraph, chunk.detach(), is_checked=True)[1] for chunk in chunks]
        return torch.cat(parts).reshape(model.tables.shape)

    @override
    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        check_model(model)
        hypergraph = model.hypergraph
        wanted = hypergraph.domain.indices(names)
        axes = _accumulation(hypergraph).axes if self.plan(hypergraph).feasible else ()
        wanted_axes = [v for v in axes if v in wanted]
        gone = tuple(i + 1 for i, v in enumerate(axes) if v not in wanted)
        zeros = may_have_zeros(model.tables)
        parts: list[torch.Tensor] = []
        for chunk in self._chunks(model):
            table = self._log_table(hypergraph, chunk)
            flat = table.reshape(chunk.shape[0], hypergraph.domain.num_states)
            if zeros:
                check_any_possible(flat.amax(-1))
            table = torch.log_softmax(flat, -1).reshape(table.shape)
            if gone:
                table = log_sum_exp(table, gone) if zeros else torch.logsumexp(table, gone)
            parts.append(table.permute(0, *(wanted_axes.index(v) + 1 for v in wanted)))
        joint = torch.cat(parts)
        return joint.reshape((*model.tables.shape[:-1], *joint.shape[1:]))

    @override
    @torch.no_grad()
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        check_model(model)
        sample_shape = checked_sample_shape(
            sample_shape, math.prod(model.tables.shape[:-1]) * len(model.hypergraph.domain)
        )
        draws = math.prod(sample_shape)
        parts: list[torch.Tensor] = []
        for chunk in self._chunks(model):
            logs = self._log_joint(model.hypergraph, chunk).double()
            weights = torch.softmax(logs, -1).cumsum(-1)
            total = weights[:, -1:]
            if math.isnan(total.item() if len(total) == 1 else float(total.sum())):
                check_any_possible(logs.max(-1).values)
            uniform = torch.rand(
                weights.shape[0], draws, dtype=torch.float64, device=weights.device, generator=generator
            )
            index = torch.searchsorted(weights, uniform * total, right=True)
            parts.append(index.clamp_(max=weights.shape[1] - 1))
        states = decode_states(model.hypergraph, torch.cat(parts).T)
        return states.reshape(*sample_shape, *model.tables.shape[:-1], len(model.hypergraph.domain))

    @override
    @torch.no_grad()
    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:
        check_model(model)
        best = [self._log_joint(model.hypergraph, chunk).max(-1) for chunk in self._chunks(model)]
        check_any_possible(torch.cat([b.values for b in best]))
        batch = model.tables.shape[:-1]
        states = decode_states(model.hypergraph, torch.cat([b.indices for b in best]))
        return states.reshape(*batch, len(model.hypergraph.domain)), torch.cat([b.values for b in best]).reshape(batch)


# Small models: the table of all states by one product with a design matrix.

_KEPT, _KEPT_ENTRIES = 64, 2**23  # design matrices that are kept, and entries of them all
_kept: OrderedDict[tuple[InteractionHypergraph, torch.dtype, torch.device], torch.Tensor] = OrderedDict()
_lock = threading.Lock()


def _design(hypergraph: InteractionHypergraph, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zero-one matrix (num_states, num_terms), states in enumeration order: 1 where the state selects the term.

    The ``_KEPT`` used last are kept, ``_KEPT_ENTRIES`` entries at most. A matrix is made outside of the modes of the
    moment: whoever asks first may be in inference mode or inside a transformation.
    """
    key = (hypergraph, dtype, device)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    with plain_mode():
        states = decode_states(hypergraph, torch.arange(hypergraph.domain.num_states, device=device))
        zeros = torch.zeros(len(states), hypergraph.num_terms, dtype=dtype, device=device)
        matrix = zeros.scatter_(-1, cell_index(hypergraph).flat(states), 1.0)
    with _lock:
        _kept[key] = matrix
        while len(_kept) > _KEPT or (len(_kept) > 1 and sum(m.numel() for m in _kept.values()) > _KEPT_ENTRIES):
            _kept.popitem(last=False)
    return matrix


def _logits(tables: torch.Tensor, design: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Log unnormalised probabilities (*batch, num_states); entries of minus infinity exclude the states they belong to.

    Also whether there may be such entries. The product alone would make NaN of them, 0 times infinity. Inside
    ``torch.func`` values cannot be looked at.
    """
    logits = torch.matmul(tables, design.T)
    if not is_transformed(tables) and math.isfinite(logits.detach().sum().item()):
        return logits, False
    is_impossible = torch.isneginf(tables)
    excluded = torch.matmul(is_impossible.to(design.dtype), design.T) > 0
    return torch.where(excluded, -math.inf, torch.matmul(torch.where(is_impossible, 0.0, tables), design.T)), True


@dataclass(frozen=True)
class MatrixEnumeration(Enumeration):
    r"""Enumeration of a small model as two products with its design matrix A (states by terms).

    .. math:: \log Z = \log \sum_x \exp (A \theta)_x, \qquad \eta = A^{\mathsf T} \operatorname{softmax}(A \theta)

    The fastest way for models of a few thousand states at most, which NUTS evaluates thousands of times. Cost and
    memory are num_states times num_terms; the matrix is made once per structure, dtype and device. Exact.

    Args:
        max_states: largest number of joint states allowed.
        max_entries: largest number of entries of the matrix allowed.

    Raises:
        InputError: an option is not positive.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
        >>> MatrixEnumeration().plan(hypergraph).reason
        '64 states by 72 terms, within the budget of 1048576'
    """

    max_entries: int = 2**20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_entries < 1:
            raise out_of_range("MatrixEnumeration max_entries", "at least 1", received=self.max_entries)

    @override
    def plan_after(self, hypergraph: InteractionHypergraph, keep: Sequence[str] = ()) -> Cost:
        hypergraph.domain.indices(keep)
        return _cost(self, hypergraph.domain.num_states, hypergraph.num_terms)

    def _log_table(self, hypergraph: InteractionHypergraph, tables: torch.Tensor) -> torch.Tensor:
        flat, _ = _logits(tables, _design(hypergraph, tables.dtype, tables.device))
        return flat.reshape(
            tables.shape[0], *(hypergraph.domain.cardinalities[v] for v in enumeration_axes(hypergraph))
        )

    @override
    def log_partition(self, model: LogLinearModel) -> LogPartition:
        cost, _, logits, zeros = self._ready(model)
        value = log_sum_exp(logits) if zeros else torch.logsumexp(logits, -1)
        return LogPartition.exact(value, cost, model.hypergraph.coding)

    @override
    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        _, design, logits, zeros = self._ready(model)
        if zeros:
            check_any_possible(logits.amax(-1))
        return torch.matmul(torch.softmax(logits, -1), design)

    def _ready(self, model: LogLinearModel) -> tuple[Cost, torch.Tensor, torch.Tensor, bool]:
        """Cost, design matrix and log unnormalised probabilities of a model within the budget; if some may be zero."""
        check_model(model)
        cost = _cost(self, model.hypergraph.domain.num_states, model.hypergraph.num_terms).check()
        design = _design(model.hypergraph, model.tables.dtype, model.tables.device)
        logits, zeros = _logits(model.tables, design)
        return cost, design, logits, zeros


@lru_cache(maxsize=256)
def _cost(backend: MatrixEnumeration, states: int, terms: int) -> Cost:
    """Cost of a number of states by a number of terms."""
    entries = states * max(terms, 1)
    feasible, hint = entries <= backend.max_entries and states <= backend.max_states, None
    reason = f"{size_text(states)} states by {terms} terms, within the budget of {backend.max_entries}"
    if not feasible:
        need = f"{size_text(entries, 'entries')} for {size_text(states, 'states')}"
        reason = f"the design matrix needs {need}, the budget is {backend.max_entries} and {backend.max_states}"
        hint = "raise MatrixEnumeration(max_entries=...) or use Enumeration or VariableElimination"
    memory = 8 * (entries + 3 * states)
    return Cost(states, states, 2 * entries, memory, feasible, reason, "design matrix", hint=hint)
