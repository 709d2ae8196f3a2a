r"""Conditional laws of one variable that come from elsewhere: from a model, or from a law with clamped variables."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..core.model import ConditionalModel, CountModel, EnergyModel
from ..errors import check_type, unexpected, wrong_type
from ..structure.cells import check_codes
from .node_conditionals import NodeConditional, batch_shape_of, remaining

__all__ = ["ClampedConditional", "ModelConditional"]


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
        """Whether a probability may be zero: never where the model has a (finite) energy."""
        return not isinstance(self.model, EnergyModel)

    def log_probs(self, x: torch.Tensor) -> torch.Tensor:
        """As the model gives them."""
        return self.model.block_conditional([self.variable], x)

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
        codes = check_codes(x, self.domain, columns=list(self.domain.indices(self.reads)))
        whole = self.node.domain
        fixed = [code.shape for code in self.evidence.values() if isinstance(code, torch.Tensor)]
        shape = torch.broadcast_shapes(codes.shape[:-1], *fixed)
        full = torch.zeros(*shape, len(whole), dtype=torch.long, device=codes.device)
        full[..., list(whole.indices(self.domain.names))] = codes
        for name, code in self.evidence.items():
            full[..., whole.index(name)] = code
        return self.node.log_probs(full)


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
