r"""Log Z in the coding that is asked for: of one law it is another number in every coding."""

from __future__ import annotations

from dataclasses import replace

from ..core.partition import LogPartition, PartitionBackend
from ..errors import check_choice
from .auto import Auto
from .coding import Coding
from .energy import LogLinearEnergy

__all__ = ["family_log_partition", "in_coding", "log_partition"]


def log_partition(
    model: LogLinearEnergy, coding: Coding | None = None, *, partition: PartitionBackend | None = None
) -> LogPartition:
    r"""Log Z of a model in a coding: what makes the sum of that coding's tables a log-probability.

    .. math:: \log Z_{\mathrm{corner}} = -\log p(0, \dots, 0), \qquad
        \log Z_{\mathrm{balanced}} = \log Z_{\mathrm{free}} = -\frac{1}{|\mathcal X|} \sum_x \log p(x)

    Corner tables vanish at the state of all references, so there only log Z is left: it is the :math:`\psi(\theta)` of
    binary models in 0/1 monomials. Balanced tables have mean zero over the states. A backend's own ``log_partition``
    belongs to the tables as they stand; this adds their constant, which is linear in them, so errors, limits and
    gradients stay those of the estimate. For every collection, hierarchical or not: both numbers belong to the law.

    Args:
        model: the model, of any tables.
        coding: "corner", "balanced" or "free"; None for that of the family, "balanced" unless the model's collection
            says "corner".
        partition: backend of log Z; ``Auto()`` when None.

    Shape:
        every number (*batch) of the model; the field ``coding`` is "corner" or "balanced".

    Raises:
        InputError: an unknown coding.
        IntractableError: log Z exceeds the budget of the backend.

    References:
        Paper 4, equation (6).

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> pair = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(pair, torch.tensor([0.0, 0.0, 2.0]), "corner")
        >>> psi = log_partition(model, "corner")
        >>> psi.coding, round(float(psi.value), 4)  # log(1 + 1 + 1 + e^2)
        ('corner', 2.341)
    """
    return in_coding(model, family_log_partition(Auto() if partition is None else partition, model), coding)


def family_log_partition(partition: PartitionBackend, model: LogLinearEnergy) -> LogPartition:
    """Log Z of tables as they stand, those of their collection's family; the result says which."""
    found = partition.log_partition(model)
    return replace(found, coding="corner") if model.hypergraph.coding == "corner" else found


def in_coding(model: LogLinearEnergy, found: LogPartition, coding: Coding | None) -> LogPartition:
    """Log Z of the model's tables as one of a coding."""
    coding = model.hypergraph.coding if coding is None else coding
    check_choice(coding, ("free", "corner", "balanced"), "coding")
    tables, graph = model.tables, model.hypergraph
    constant = tables.new_zeros(tables.shape[:-1])
    for where in graph.term_slices.values():
        constant = constant + (tables[..., where.start] if coding == "corner" else tables[..., where].mean(-1))
    return found.moved(-constant, "corner" if coding == "corner" else "balanced")
