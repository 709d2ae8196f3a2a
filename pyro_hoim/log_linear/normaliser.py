r"""Log Z in the coding that is asked for: of one law it is another number in every coding."""

from __future__ import annotations

import torch

from ..core.partition import LogPartition, PartitionBackend
from ..errors import check_choice
from ..structure.cells import cell_index
from .auto import Auto
from .coding import Coding
from .codings.references import Reference, check_corner, reference_codes
from .energy import LogLinearEnergy

__all__ = ["in_coding", "log_partition"]


def log_partition(
    model: LogLinearEnergy,
    coding: Coding | None = None,
    *,
    partition: PartitionBackend | None = None,
    reference: Reference | None = None,
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
        reference: levels of the corner coding in place of the first, by variable: -log of their probability.

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
        ('corner', 2.3408)
    """
    check_corner("corner" if coding is None else coding, reference)
    coding = coding if reference is None else "corner"
    return in_coding(model, (Auto() if partition is None else partition).log_partition(model), coding, reference)


def in_coding(
    model: LogLinearEnergy, found: LogPartition, coding: Coding | None, reference: Reference | None = None
) -> LogPartition:
    """Log Z of the model's tables as one of a coding."""
    coding = model.hypergraph.coding if coding is None else coding
    check_choice(coding, ("free", "corner", "balanced"), "coding")
    tables, slices = model.tables, model.hypergraph.term_slices.values()
    if coding == "corner":
        levels = list(reference_codes(model.domain, reference).values())
        state = torch.tensor(levels, dtype=torch.long, device=tables.device).reshape(1, -1)
        first = cell_index(model.hypergraph).flat(state)[0]
        return found.moved(-tables.index_select(-1, first).sum(-1), "corner")
    sizes = torch.tensor([where.stop - where.start for where in slices], dtype=torch.long, device=tables.device)
    return found.moved(-(tables / sizes.repeat_interleave(sizes)).sum(-1), "balanced")
