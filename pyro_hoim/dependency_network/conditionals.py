r"""Dependency networks: one conditional law per variable, which need not belong to one joint law."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import torch

from ..checks import broadcast_shapes
from ..core.model import ConditionalModel, CountModel, EnergyModel
from ..errors import (
    InputTypeError,
    check_type,
    check_unique,
    other_domain,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_type,
)
from ..runs.container import DEPENDENCY_NETWORK
from ..schema import Domain
from ..structure.hypergraph import check_codes, evidence_codes
from .node_conditionals import LeafConditional, NodeConditional, TableConditional, batch_shape_of, remaining

# Conditional laws of one variable that come from elsewhere: from a model, or from a law with clamped variables.


def over_levels(model: ConditionalModel) -> ConditionalModel:
    """A model of variables with levels: one of counts over its levels, any other as it is; others are refused."""
    check_type(model, ConditionalModel, "model", "a conditional model")
    return model.over_levels() if isinstance(model, CountModel) else model


class ModelConditional:
    r"""The conditional of one variable under a model, :math:`q(x_i \mid x_{-i})`.

    Args:
        model: a conditional model of batch shape (), such as a :class:`~pyro_hoim.log_linear.LogLinearEnergy`. A root
            model of truncated counts is taken over ordinal variables whose codes are the counts.
        variable: the variable whose law this is.

    Raises:
        InputTypeError: no conditional model.
        UnknownNameError: an unknown variable.
        InputError: a model with a batch of parameters, or of infinitely many values.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> from pyro_hoim.log_linear import LogLinearEnergy
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> graph = InteractionHypergraph.from_formula(domain, "a*b + c")
        >>> model = LogLinearEnergy.from_theta(graph, torch.zeros(4))
        >>> ModelConditional(model, "a").reads, ModelConditional(model, "a").has_zeros
        (('b',), False)
    """

    def __init__(self, model: ConditionalModel, variable: str) -> None:
        model = over_levels(model)
        batch = tuple(getattr(model, "batch_shape", ()))
        if batch:
            raise unexpected("model", "one model", received=f"a batch of shape {batch}", code="wrong-shape")
        model.domain.index(variable)
        self.model, self.domain, self.variable = model, model.domain, variable

    def __repr__(self) -> str:
        return f"ModelConditional({self.variable!r}, {type(self.model).__name__})"

    @property
    def reads(self) -> tuple[str, ...]:
        """The neighbours of the variable where the model has hyperedges, else all others; in schema order."""
        edges = getattr(getattr(self.model, "hypergraph", None), "edges", None)
        others = {name for name in self.domain.names if name != self.variable}
        if edges is not None:
            others &= {name for edge in edges if self.variable in edge for name in edge}
        return tuple(sorted(others, key=self.domain.index))

    @property
    def has_zeros(self) -> bool:
        """Whether a probability may be zero: not where the model has an energy without impossible states."""
        return not isinstance(self.model, EnergyModel) or getattr(self.model, "has_impossible_states", False)

    def log_probs(self, x: torch.Tensor) -> torch.Tensor:
        """As the model gives them: minus infinity throughout where no level is possible beside the rest."""
        return self.model.block_conditional([self.variable], x)

    def update_log_probs(self, x: torch.Tensor) -> torch.Tensor:
        """What a chain draws from: where no level is possible all are alike, so that chains leave such states."""
        log_probs = self.log_probs(x)
        if self.has_zeros:
            is_nowhere = torch.isneginf(log_probs).all(-1, keepdim=True)
            return log_probs.masked_fill(is_nowhere, -math.log(self.domain[self.variable].cardinality))
        return log_probs

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> ModelConditional:
        """The conditional of the model elsewhere; InputTypeError where the model has no method ``to``."""
        if not hasattr(self.model, "to"):
            raise wrong_type("model", "one with a method 'to'", self.model)
        return ModelConditional(self.model.to(dtype=dtype, device=device), self.variable)  # type: ignore[attr-defined]


class ClampedConditional:
    """A conditional over the remaining variables when some others are fixed, for conditionals of any kind.

    Args:
        node: the conditional over all variables.
        evidence: ``{name: code or label}``, or a tensor of codes: one for every row or batch element. Tensors broadcast
            with each other and with the batch of the conditional, and their common shape is the new batch.

    Raises:
        UnknownNameError, InputError: an unknown name or label, a bad code, or shapes that do not broadcast.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> table = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
        >>> node = ClampedConditional(TableConditional(domain, "b", ["a"], table), {"a": 1})
        >>> node.domain.names, node.log_probs(torch.tensor([0])).exp()
        (('b',), tensor([0.3000, 0.7000]))
    """

    def __init__(self, node: NodeConditional, evidence: Mapping[str, int | str | torch.Tensor]) -> None:
        self.node, self.variable = node, node.variable
        self.evidence, self.domain, self.batch_shape = remaining(
            node.domain, node.variable, evidence, batch_shape_of(node)
        )
        self.reads = tuple(name for name in node.reads if name not in self.evidence)

    def __repr__(self) -> str:
        return f"ClampedConditional({self.node!r}, {self.evidence})"

    @property
    def has_zeros(self) -> bool:
        """As that of the conditional over all variables."""
        return self.node.has_zeros

    def log_probs(self, x: torch.Tensor) -> torch.Tensor:
        """Those of the conditional over all variables at the evidence and x."""
        return self.node.log_probs(self._whole(x))

    def update_log_probs(self, x: torch.Tensor) -> torch.Tensor:
        """As :meth:`log_probs`, of what chains draw from."""
        return update_log_probs(self.node, self._whole(x))

    def _whole(self, x: torch.Tensor) -> torch.Tensor:
        """Codes of all variables, with the evidence."""
        codes = check_codes(x, self.domain, columns=list(self.domain.indices(self.reads)))
        whole = self.node.domain
        fixed = [code.shape for code in self.evidence.values() if isinstance(code, torch.Tensor)]
        shape = broadcast_shapes(codes.shape[:-1], *fixed)
        full = torch.zeros(*shape, len(whole), dtype=torch.long, device=codes.device)
        full[..., list(whole.indices(self.domain.names))] = codes
        for name, code in self.evidence.items():
            full[..., whole.index(name)] = code
        return full


def update_log_probs(node: NodeConditional, x: torch.Tensor) -> torch.Tensor:
    """Log-probabilities that a chain draws a variable from: a law also where a model leaves no level possible."""
    return getattr(node, "update_log_probs", node.log_probs)(x)


def tables_of(node: object) -> torch.Tensor | None:
    """Parameters of a conditional, where it has a tensor of them."""
    if isinstance(node, ClampedConditional):
        return tables_of(node.node)
    found = getattr(node, "probs", getattr(getattr(node, "model", None), "tables", None))
    return found if isinstance(found, torch.Tensor) else None


def device_of(node: object) -> torch.device | None:
    """Where the parameters of a conditional are, where it has a tensor of them."""
    tables = tables_of(node)
    return None if tables is None else tables.device


_MAX_STATES = 2**22
_CHUNK = 2**17


class DependencyConditionals:
    r"""A dependency network as a model: for every variable its conditional law given all others.

    .. math:: \theta_i(x_i \mid x_{-i}), \qquad i = 1, \dots, d

    The conditionals are chosen or learned one by one, so in general no joint law has all of them, and there is no
    energy. What the network means as a joint law is the stationary law of pseudo-Gibbs sampling, which
    :class:`~pyro_hoim.dependency_network.DependencyNetwork` draws from. Fulfils the protocol of a conditional model.

    Attributes are ``domain``, the variables, and ``batch_shape``, the common shape of the batches of tables.

    Args:
        nodes: one :class:`~pyro_hoim.dependency_network.NodeConditional` per variable of one domain, in any order; kept
            in schema order as ``nodes``.

    Raises:
        InputTypeError: something that is no conditional.
        InputError: conditionals over different domains, two of one variable, or a variable without one.

    References:
        Paper 5, section 2. Heckerman, Chickering, Meek, Rounthwaite and Kadie, Dependency Networks for Inference,
        Collaborative Filtering, and Data Visualization, 2000.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> table = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
        >>> nodes = [TableConditional(domain, "a", ["b"], table), TableConditional(domain, "b", ["a"], table)]
        >>> network = DependencyConditionals(nodes)
        >>> network.edges
        (('b', 'a'), ('a', 'b'))
        >>> network.log_conditionals(torch.tensor([0, 1])).exp()
        tensor([0.2000, 0.1000])
    """

    model_kind: ClassVar[str] = DEPENDENCY_NETWORK

    def __init__(self, nodes: Iterable[NodeConditional]) -> None:
        given = list(nodes)
        for node in given:
            known = LeafConditional, TableConditional, ClampedConditional  # to look up a protocol takes a while
            check_type(node, (*known, NodeConditional), "nodes", "conditionals of one variable")
        # One conditional for every variable of one domain.
        self.domain = given[0].domain if given else Domain()
        if other := next((node.variable for node in given if node.domain != self.domain), None):
            raise other_domain(
                "nodes", f"a conditional of {other!r} over the variables of that of {given[0].variable!r}"
            )
        node_of = {node.variable: node for node in given}
        check_unique([node.variable for node in given], "nodes")
        if missing := next((name for name in self.domain.names if name not in node_of), None):
            problem = f"expected one conditional per variable, but there is none of {missing!r}"
            raise refused("nodes", problem, code="missing-part")
        self.nodes = tuple(node_of[name] for name in self.domain.names)
        # Batches of tables have to fit each other.
        shapes = [batch_shape_of(node) for node in self.nodes]
        try:
            self.batch_shape = broadcast_shapes(torch.Size(), *shapes)
        except RuntimeError:
            received = sorted(set(map(tuple, shapes)))
            expected = "batches that broadcast with each other"
            raise unexpected("nodes", expected, received=received, code="wrong-shape") from None

    @classmethod
    def from_model(cls, model: ConditionalModel) -> DependencyConditionals:
        """All conditionals of one model; they belong together, so pseudo-Gibbs sampling is Gibbs sampling.

        A root model of truncated counts is taken over ordinal variables whose codes are the counts. Errors are those of
        :class:`~pyro_hoim.dependency_network.ModelConditional`.
        """
        model = over_levels(model)
        return cls(ModelConditional(model, name) for name in model.domain.names)

    def __repr__(self) -> str:
        return f"DependencyConditionals({len(self.nodes)} variables, {len(self.edges)} edges)"

    def require_single(self, what: str) -> None:
        """Raise :class:`InputError` for a batch of networks where one is needed."""
        if self.batch_shape:
            hint = "build one network from the tables of one element"
            found = (
                f"a batch of shape {tuple(self.batch_shape)}, for which the conditionals and the pseudo-likelihood "
                "are offered"
            )
            raise unexpected(what, "one network", hint=hint, received=found, code="wrong-shape")

    def node(self, name: str) -> NodeConditional:
        """The conditional of one variable; UnknownNameError lists the closest names."""
        return self.nodes[self.domain.index(name)]

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Directed pairs (parent, child): the law of the child may read the parent. By child, then parent."""
        return tuple((parent, node.variable) for node in self.nodes for parent in node.reads)

    def block_conditional(self, block: Sequence[str], x: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (*sample, cardinality) of the one variable of a block given the rest at x (*sample, d).

        A network has no conditional law of several variables together, and refuses other blocks than of one name.
        """
        if isinstance(block, str):
            raise wrong_type("block", "a sequence of names", received=f"the string {block!r}")
        self.domain.indices(block)
        if len(block) != 1:
            hint = (
                "a dependency network holds one conditional law per variable, and these need not belong to a joint law "
                "from which larger blocks could be drawn"
            )
            raise unexpected("block", "one name", hint=hint, received=len(block), code="wrong-shape")
        return self.node(block[0]).log_probs(x)

    def log_conditionals(self, x: torch.Tensor) -> torch.Tensor:
        """Log-probability of every coordinate given the others (*sample broadcast with batch, d), in nats."""
        codes = check_codes(x, self.domain)
        columns: list[torch.Tensor] = []
        for i, node in enumerate(self.nodes):
            found = node.log_probs(codes)
            chosen = codes[..., i, None].expand(*found.shape[:-1], 1)
            columns.append(found.gather(-1, chosen).squeeze(-1))
        if not columns:
            return torch.zeros(codes.shape, device=codes.device)
        return torch.stack(torch.broadcast_tensors(*columns), -1)

    def log_pseudo_prob(self, x: torch.Tensor) -> torch.Tensor:
        """Log pseudo-likelihood (*sample broadcast with batch), the sum of :meth:`log_conditionals`; in nats."""
        return self.log_conditionals(x).sum(-1)

    def full_table(self, name: str) -> torch.Tensor:
        """The conditional law of a variable at every state of the others (*cardinalities), float64, read-only.

        A view of a table over the variables that are read; IntractableError beyond 2^22 joint states.
        """
        self.require_single("full_table")
        node, cards = self.node(name), self.domain.cardinalities
        if self.domain.num_states > _MAX_STATES:
            problem = f"{size_text(self.domain.num_states, 'joint states')} exceed the limit of {_MAX_STATES}"
            raise out_of_reach("full_table", problem)
        probs = _tabulate(node)
        position = self.domain.index(name)
        read = self.domain.indices(node.reads)
        # Axes of probs: the variables that are read in schema order, then the variable itself.
        probs = probs.movedim(-1, sum(i < position for i in read))
        shape = [n if i in read or i == position else 1 for i, n in enumerate(cards)]
        return probs.reshape(shape).expand(cards)

    def tabulated(self, *, max_cells: int = 2**16) -> DependencyConditionals:
        """The same network with plain float64 tables, of up to ``max_cells`` entries, in place of models.

        Compiled samplers read tables only. Tables and leaf tables stay as they are. A table holds a law everywhere:
        where a model leaves no level of a variable possible, all are alike, which chains leave for good.
        """
        self.require_single("tabulated")
        return DependencyConditionals(
            TableConditional(self.domain, node.variable, node.reads, _tabulate(node))
            if not isinstance(node, (LeafConditional, TableConditional))
            and math.prod(node.domain[name].cardinality for name in (*node.reads, node.variable)) <= max_cells
            else node
            for node in self.nodes
        )

    def to(
        self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> DependencyConditionals:
        """The network in another precision or on another device; InputTypeError for a conditional that cannot move."""
        moved: list[NodeConditional] = []
        for node in self.nodes:
            if not hasattr(node, "to"):
                problem = f"the conditional of {node.variable!r} has no method 'to'"
                raise InputTypeError(problem, argument="nodes", code="no-method")
            moved.append(node.to(dtype=dtype, device=device))  # type: ignore[attr-defined]
        return DependencyConditionals(moved)

    def condition(self, evidence: Mapping[str, int | str | torch.Tensor]) -> DependencyConditionals:
        r"""The network of the remaining variables with some clamped: :math:`\theta_i(x_i \mid x_{-i})` at the evidence.

        Its stationary law :math:`\pi'(x \mid x_C)` is that of conditional pseudo-Gibbs sampling. In general this is not
        the conditional law :math:`\pi(x \mid x_C)` of the network's own stationary law (paper 5, section 5.1).
        Evidence on all variables leaves a network without variables. Evidence and errors are those of
        :class:`~pyro_hoim.dependency_network.ClampedConditional`.
        """
        # Tables and graphs are cut down; what is neither keeps the evidence beside it.
        codes, _ = evidence_codes(self.domain, evidence, self.batch_shape)
        single: dict[str, int] = {name: code for name, code in codes.items() if isinstance(code, int)}
        left: list[NodeConditional] = []
        for node in self.nodes:
            if node.variable in codes:
                continue
            if isinstance(node, TableConditional):
                left.append(node.condition(codes))
            elif isinstance(node, LeafConditional) and len(single) == len(codes):
                left.append(node.condition(single))
            else:
                left.append(ClampedConditional(node, codes))
        return DependencyConditionals(left)


def checked_conditionals(conditionals: object, *, single: bool = True) -> DependencyConditionals:
    """The conditionals, or those of a law that holds some; a batch of networks is refused where one is needed."""
    found = getattr(conditionals, "conditionals", conditionals)
    if not isinstance(found, DependencyConditionals):
        hint = "make them of a model by DependencyConditionals.from_model"
        raise wrong_type("conditionals", "DependencyConditionals", conditionals, hint)
    if single:
        found.require_single("conditionals")
    return found


def _tabulate(node: NodeConditional) -> torch.Tensor:
    """Probabilities (*cardinalities of what is read, cardinality) in float64, with sums of one."""
    domain = node.domain
    read = domain.indices(node.reads)
    shape = [domain.cardinalities[i] for i in read]
    pieces: list[torch.Tensor] = []
    device = device_of(node)
    # States of the variables that are read, a portion at a time.
    for start in range(0, math.prod(shape), _CHUNK):
        index = torch.arange(start, min(start + _CHUNK, math.prod(shape)), device=device)
        codes = torch.zeros(len(index), len(domain), dtype=torch.long, device=device)
        if read:
            codes[:, list(read)] = torch.stack(torch.unravel_index(index, shape), -1)
        is_table = isinstance(node, (LeafConditional, TableConditional))
        pieces.append(node.law_at(codes).double() if is_table else update_log_probs(node, codes).double().exp())
    # Models give logarithms, whose rounding the sums would keep.
    probs = torch.cat(pieces)
    return (probs / probs.sum(-1, keepdim=True)).reshape(*shape, probs.shape[-1])
