r"""Rows of which some cells are known, under one model: one conditional model per row, or Gibbs chains that hold them.

What prediction and imputation share. Rows that miss the same variables are treated together: their conditional models
are one batch over the missing variables, and their chains are one :class:`~pyro_hoim.sampling.GibbsChains` with the
known cells clamped to other values in every chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..data import Observations
from ..errors import InputError, InputTypeError, IntractableError
from ..models import LogLinearEnergy
from ..partition import Auto
from ..sampling import GibbsChains
from ..schema import Domain

__all__ = [
    "ClampedGibbs",
    "RowMethod",
    "condition_rows",
    "is_exactly_feasible",
    "row_chains",
    "row_log_weights",
    "row_patterns",
]

RowMethod = Literal["auto", "exact", "gibbs"]
METHODS = ("auto", "exact", "gibbs")

_MAX_OPERATIONS = 2 * 10**9
_MAX_ROW_OPERATIONS = 2 * 10**7
_MAX_BYTES = 2**28
_MAX_CHAINS = 2**15
_LOOK_UPS_PER_CALL = 2**22


@dataclass(frozen=True)
class ClampedGibbs:
    """How long the Gibbs chains of a row with missing cells run.

    Every chain is led to the conditional law through ``num_temperatures`` equal steps of temperature, one sweep each,
    then burnt in. The draws are approximate: correct in the limit of long chains.

    Args:
        num_chains: independent chains of each row; their spread gives the standard error of a prediction. A draw of an
            imputation is the last state of a chain of its own, so imputations have as many chains as draws.
        num_temperatures: steps from the uniform law to the model.
        burn_in: sweeps at the model before anything is used.
        num_sweeps: sweeps of a prediction after burn-in, of which every ``thin``-th is averaged.
        thin: see ``num_sweeps``.

    Raises:
        InputError: numbers that are too small, or sweeps that are no multiple of ``thin``.

    Example:
        >>> ClampedGibbs(num_sweeps=100, thin=5).num_records
        20
    """

    num_chains: int = 8
    num_temperatures: int = 50
    burn_in: int = 50
    num_sweeps: int = 200
    thin: int = 2

    def __post_init__(self) -> None:
        for name, least in (("num_chains", 2), ("num_temperatures", 1), ("burn_in", 0), ("num_sweeps", 1), ("thin", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputTypeError(f"{name}: expected a whole number, received {value!r}")
            if value < least:
                raise InputError(f"{name}: expected at least {least}, received {value}")
        if self.num_sweeps % self.thin:
            raise InputError(f"num_sweeps: expected a multiple of thin={self.thin}, received {self.num_sweeps}")

    @property
    def num_records(self) -> int:
        """States of a chain that a prediction averages over."""
        return self.num_sweeps // self.thin


def check_model(model: LogLinearEnergy, domain: Domain, method: str) -> None:
    """Raise :class:`InputError` unless the model is a single one whose domain is ``domain`` and the method exists."""
    if domain != model.domain:
        raise InputError("data: expected the variables and labels of the model's domain; read the file with domain=...")
    if model.batch_shape:
        raise InputError(f"model: expected one model, received a batch of shape {tuple(model.batch_shape)}")
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, received {method!r}")


def row_patterns(data: Observations) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Distinct sets of missing variables: (their names in schema order, positions of the rows with it).

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> data = Observations.from_tensor(torch.tensor([[0, -1], [1, 1], [1, -1]]), domain)
        >>> [(names, rows.tolist()) for names, rows in row_patterns(data)]
        [((), [1]), (('b',), [0, 2])]
    """
    masks, inverse = torch.unique(data.codes < 0, dim=0, return_inverse=True)
    order = inverse.argsort(stable=True)
    sizes = torch.bincount(inverse, minlength=len(masks)).tolist()
    for mask, rows in zip(masks.tolist(), order.split(sizes), strict=True):
        yield tuple(n for n, gone in zip(data.domain.names, mask, strict=True) if gone), rows


def condition_rows(
    model: LogLinearEnergy, missing: Sequence[str], codes: torch.Tensor
) -> tuple[LogLinearEnergy, torch.Tensor]:
    r"""The laws of the missing variables of many rows as one batch of models.

    .. math:: -E(x_{r, O}, x_M) = c_r - E'_r(x_M)

    :meth:`~pyro_hoim.models.LogLinearEnergy.condition` for many rows at once.

    Args:
        model: one model.
        missing: the variables that stay.
        codes: the rows; entries of missing variables are not read.

    Shape:
        codes (R, d); the batch of the result is (R,), and so is the constant.

    Returns:
        Models over the missing variables in schema order, and the constants c in nats.

    Example:
        >>> from pyro_hoim.structure import InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy(graph, torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 4.0]))
        >>> batch, constant = condition_rows(model, ["b"], torch.tensor([[0, -1], [1, -1]]))
        >>> batch.tables.tolist(), constant.tolist()
        ([[1.0, 3.0], [3.0, 5.0]], [0.0, 0.0])
    """
    domain = model.domain
    stay = set(domain.indices(missing))
    rest = model.hypergraph.restrict([n for i, n in enumerate(domain.names) if i not in stay])
    tables = model.tables.new_zeros(len(codes), rest.num_terms)
    constant = model.tables.new_zeros(len(codes))
    where = rest.term_slices
    slices = model.hypergraph.term_slices.values()
    for piece, members, shape in zip(slices, model.hypergraph.edge_indices, model.hypergraph.edge_shapes, strict=True):
        kept = [axis for axis, i in enumerate(members) if i in stay]
        if not kept:
            constant += model.tables[piece].reshape(shape)[tuple(codes[:, i] for i in members)]
            continue
        fixed = [axis for axis, i in enumerate(members) if i not in stay]
        table = model.tables[piece].reshape(shape).permute(*fixed, *kept)
        at = tuple(codes[:, members[axis]] for axis in fixed)
        table = table[at].flatten(1) if at else table.reshape(1, -1)
        tables[:, where[tuple(domain.names[members[axis]] for axis in kept)]] += table
    return LogLinearEnergy(rest, tables, validate=False), constant


def is_exactly_feasible(
    model: LogLinearEnergy, missing: Sequence[str], num_rows: int, method: RowMethod, keep: Sequence[str] = ()
) -> bool:
    """Whether rows with these missing variables are to be treated exactly.

    ``auto`` allows exact work where a backend accepts it and a row needs at most 2e7 operations (about as long as
    chains would take), or all ``num_rows`` of the call together at most 2e9; ``exact`` allows it wherever a backend
    accepts it.

    Args:
        model: one model.
        missing: variables that the rows miss.
        num_rows: rows of the whole call with missing cells.
        method: ``auto``, ``exact`` or ``gibbs``.
        keep: variables whose joint law is wanted.

    Raises:
        IntractableError: ``exact`` is asked for and no backend accepts it.
    """
    if method == "gibbs":
        return False
    gone = set(missing)
    known = [n for n in model.domain.names if n not in gone]
    cost = Auto().plan(model.hypergraph, known, keep=keep)
    if method == "exact":
        if not cost.feasible:
            raise IntractableError(
                f"rows that miss {', '.join(missing)}: {cost.reason}. Predictions and completions have an approximate "
                "method, gibbs"
            )
        return True
    return cost.feasible and (cost.flops <= _MAX_ROW_OPERATIONS or cost.flops * num_rows <= _MAX_OPERATIONS)


def exact_portions(model: LogLinearEnergy, missing: Sequence[str], rows: torch.Tensor) -> Sequence[torch.Tensor]:
    """Rows in portions whose conditional models fit into memory together."""
    gone = set(missing)
    cost = Auto().plan(model.hypergraph, [n for n in model.domain.names if n not in gone])
    rest = model.hypergraph.restrict([n for n in model.domain.names if n not in gone])
    return rows.split(max(1, _MAX_BYTES // max(1, cost.memory_bytes + 8 * rest.num_terms)))


def row_log_weights(model: LogLinearEnergy, data: Observations) -> torch.Tensor:
    r"""Log of the unnormalised probability of every row, summed over what it misses.

    .. math:: \log \sum_{x_M} \exp(-E(x_O, x_M))

    Exact, in memory that does not grow with the number of completions of the rows: rows that miss the same variables
    are one batch of conditional models. The counts of the rows play no role.

    Args:
        model: one model.
        data: rows over its variables, missing cells as -1.

    Shape:
        Result (N,), in nats.

    Raises:
        InputError: another domain, or a batch of models.
        IntractableError: no exact backend accepts what a row misses.

    Example:
        >>> from pyro_hoim.structure import InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy(graph, torch.zeros(8, dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, 1], [0, -1], [-1, -1]]), graph.domain)
        >>> row_log_weights(model, rows).exp().round().tolist()
        [1.0, 2.0, 4.0]
    """
    check_model(model, data.domain, "exact")
    if not len(data.codes):
        return model.tables.new_zeros(0)
    codes, inverse = torch.unique(data.codes, dim=0, return_inverse=True)
    values = model.tables.new_empty(len(codes))
    for missing, rows in row_patterns(Observations.from_tensor(codes, data.domain)):
        if not missing:
            for part in rows.split(max(1, _LOOK_UPS_PER_CALL // max(1, len(model.hypergraph)))):
                values[part] = -model.energy(codes[part])
            continue
        is_exactly_feasible(model, missing, len(rows), "exact")
        for part in exact_portions(model, missing, rows):
            laws, constant = condition_rows(model, missing, codes[part])
            values[part] = Auto().log_partition(laws).value + constant
    return values[inverse]


def row_chains(
    model: LogLinearEnergy, missing: Sequence[str], codes: torch.Tensor, num_chains: int, gibbs: ClampedGibbs, seed: int
) -> GibbsChains:
    """Chains of the missing variables of rows, annealed and burnt in; those of one row are next to each other.

    Shape:
        codes (R, d); the chains' states are (R * num_chains, d).

    Randomness:
        From ``seed`` only.
    """
    gone = set(missing)
    clamped = {
        name: codes[:, i].repeat_interleave(num_chains) for i, name in enumerate(model.domain.names) if name not in gone
    }
    chains = GibbsChains(model, len(codes) * num_chains, clamped=clamped, seed=seed)
    chains.anneal(torch.linspace(0, 1, gibbs.num_temperatures + 1, dtype=torch.float64))
    chains.sweep(gibbs.burn_in)
    return chains


def chain_portions(rows: torch.Tensor, num_chains: int) -> Sequence[torch.Tensor]:
    """Rows in portions of at most 32,768 chains."""
    return rows.split(max(1, _MAX_CHAINS // num_chains))


def drawn_seed(generator: torch.Generator) -> int:
    """A seed for one set of chains."""
    return int(torch.randint(2**31 - 1, (), generator=generator))
