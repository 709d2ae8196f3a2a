r"""Log-linear energies: minus the sum of the entries that a state selects in the interaction tables."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from typing_extensions import override

from ..checks import check_below_infinity, check_shape, checked_floating, is_hidden
from ..core.laws.parameter_cache import version_of
from ..core.model import ParametricEnergy
from ..core.partition import log_softmax, may_have_zeros
from ..data.files.uai import write_tables
from ..errors import check_type, wrong_shape, wrong_type
from ..runs.container import LOG_LINEAR
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph, cell_index, check_codes, evidence_codes, gather_slices
from .coding import Coding, Reference, check_corner, family_of, from_reference, parametrization


class LogLinearEnergy(ParametricEnergy):
    r"""Energy of a hierarchical (or weakly hierarchical) log-linear model with given interaction tables.

    .. math:: E(x) = -\sum_{S \in \mathcal I} \theta^S_{x_S}, \qquad q(x) \propto \exp(-E(x))

    The tables may be any tables; :meth:`from_theta` makes those of the family from a coding. A state costs one look-up
    per hyperedge, a conditional one look-up per hyperedge that meets the block and per state of the block. Exact.

    Args:
        hypergraph: the interaction structure.
        tables: interaction tables, flat, in the layout of ``hypergraph.term_slices``; in nats.
            An entry of minus infinity makes its cells impossible: every state that selects it has probability zero.
        validate: check that no entry is NaN or plus infinity. Shape and type are always checked.

    Shape:
        tables (*batch, num_terms).

    Raises:
        InputError: wrong length, or entries of NaN or plus infinity; of its methods a wrong shape, or a code that is
            read and is no level of its variable.
        InputTypeError: not a hypergraph or not a floating-point tensor.

    References:
        Paper 1, section 3.1.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(hypergraph, torch.tensor([0.0, 0.0, 2.0]))
        >>> model.energy(torch.tensor([[0, 0], [0, 1]])).tolist()
        [-1.0, 1.0]
    """

    model_kind: ClassVar[str] = LOG_LINEAR
    _zeros: tuple[int, bool] | None = None

    def __init__(self, hypergraph: InteractionHypergraph, tables: torch.Tensor, *, validate: bool = True) -> None:
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        check_shape(checked_floating(tables, "tables"), (hypergraph.num_terms,), "tables")
        if validate:
            check_below_infinity(tables, "tables")
        self.hypergraph = hypergraph
        self.tables = tables

    @classmethod
    def _trusted(cls, hypergraph: InteractionHypergraph, tables: torch.Tensor) -> LogLinearEnergy:
        """The model of tables that were checked before."""
        model = cls.__new__(cls)
        model.hypergraph, model.tables = hypergraph, tables
        return model

    @classmethod
    def from_theta(
        cls,
        hypergraph: InteractionHypergraph,
        theta: torch.Tensor,
        coding: Coding | None = None,
        *,
        reference: Reference | None = None,
        validate: bool = True,
    ) -> LogLinearEnergy:
        """Model with the tables of theta: balanced ones, from which the constant of other codings is dropped.

        The coding None stands for that of the collection's family. Corner theta of a collection that lacks subsets
        belongs to the family of corner tables, which the model's collection then says. It is theta against the levels
        of ``reference``, else the first (:func:`~pyro_hoim.log_linear.to_reference`).

        Shape:
            theta (*batch, num(coding)).
        """
        if reference is not None:
            check_corner("corner" if coding is None else coding, reference)
            theta, coding = from_reference(hypergraph, theta, reference), "corner"
        hypergraph, coding = family_of(hypergraph, coding)
        tables = parametrization(hypergraph).to_tables(theta, coding, validate=validate)
        return cls(hypergraph, tables, validate=validate)

    def __repr__(self) -> str:
        return f"LogLinearEnergy({self.hypergraph!r}, batch_shape={tuple(self.batch_shape)})"

    @property
    @override
    def domain(self) -> Domain:
        return self.hypergraph.domain

    @property
    @override
    def parameters(self) -> torch.Tensor:
        return self.tables

    @override
    def _with(self, parameters: torch.Tensor) -> LogLinearEnergy:
        return self._trusted(self.hypergraph, parameters)

    def on_closure(self) -> LogLinearEnergy:
        """The same law on the closure of a collection that lacks subsets, where the added tables are zero."""
        if self.hypergraph.is_hierarchical:
            return self
        closure = self.hypergraph.closure()
        return LogLinearEnergy(closure, parametrization(self.hypergraph).lift(self.tables, closure))

    def _look_up(self, index: torch.Tensor, shape: torch.Size, num_trailing: int) -> torch.Tensor:
        """Entries at flat positions, of which all but the trailing dimensions broadcast with the batch to ``shape``."""
        trailing, tables = index.shape[index.ndim - num_trailing :], self.tables
        batch = tables.shape[:-1]
        num_tables = math.prod(batch)  # a tuple where Pyro traces provenance
        if num_tables == 1:
            return tables.reshape(-1).index_select(0, index.reshape(-1)).reshape(*shape, *trailing)
        start = torch.arange(num_tables, device=index.device) * tables.shape[-1]
        flat = start.reshape(*batch, *([1] * num_trailing)) + index
        return tables.reshape(-1).index_select(0, flat.reshape(-1)).reshape(*shape, *trailing)

    def energy(self, x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        """Minus the log of the unnormalised probability, in nats.

        Shape:
            x (*sample, d); result: sample broadcast with the batch shape.
        """
        codes = check_codes(x, self.domain) if validate else x.long()
        return -self._look_up(cell_index(self.hypergraph).flat(codes), self._shape(codes), 1).sum(-1)

    def block_conditional(self, block: Sequence[str], x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        r"""Log probabilities of the states of a block given the rest, :math:`\log q(x_B \mid x_{-B})`.

        Args:
            block: distinct variable names; their order is that of the trailing dimensions of the result.
            x: codes; the entries of the block are not read.
            validate: check the codes; leave it out only for codes that were checked before.

        Of the tables those are read that hold a variable of the block. Where they exclude all its states beside the
        rest, all are minus infinity, with gradients of zero.

        Shape:
            x (*sample, d); result (*sample broadcast with batch, *cardinalities of the block).

        Raises:
            UnknownNameError: a name is not in the domain.
            InputError: a repeated name, a wrong shape, or a code that is read and is no level of its variable.
            IntractableError: the block has more than 2^22 states.
        """
        positions, shape, _ = self._block(block, self.domain.cardinalities)
        others = [i for i in range(len(self.domain)) if i not in set(positions)]
        codes = check_codes(x, self.domain, columns=others) if validate else x.long()
        log_probs = self._conditional(positions, codes)
        return log_probs.reshape((*log_probs.shape[:-1], *shape))

    def log_pseudo_prob(self, x: torch.Tensor) -> torch.Tensor:
        r"""Log pseudo-likelihood, :math:`\sum_i \log q(x_i \mid x_{-i})`; it needs no partition function.

        Minus infinity where x is impossible.

        Shape:
            x (*sample, d); result: sample broadcast with the batch shape, in nats.
        """
        codes = check_codes(x, self.domain)
        shape = self._shape(codes)
        total = self.tables.new_zeros(shape)
        for i in range(len(self.domain)):
            log_probs = self._conditional((i,), codes)
            chosen = codes[..., i, None].expand(*shape, 1)
            total = total + log_probs.gather(-1, chosen).squeeze(-1)
        return total

    def _conditional(self, positions: tuple[int, ...], codes: torch.Tensor) -> torch.Tensor:
        """Log probabilities (*shape, num_states) of the states of a block in row-major order."""
        cells = cell_index(self.hypergraph)
        index, offsets = cells.block(codes, positions)  # (*sample, edges), (states, edges)
        logs = self._look_up(index[..., None, :] + offsets, self._shape(codes), 2).sum(-1)
        return log_softmax(logs) if self.has_impossible_states else torch.log_softmax(logs, -1)

    @property
    def has_impossible_states(self) -> bool:
        """Whether an entry is minus infinity; True where values cannot be looked at, as inside ``torch.func.vmap``."""
        if torch.jit.is_tracing() or is_hidden(self.tables):
            return True
        version = version_of(self.tables)
        if self._zeros is None or self._zeros[0] != version:
            self._zeros = version, may_have_zeros(self.tables)
        return self._zeros[1]

    def condition(self, evidence: Mapping[str, int | str | torch.Tensor]) -> tuple[LogLinearEnergy, torch.Tensor]:
        r"""The model of the remaining variables when some are fixed.

        .. math:: -E(x) = c - E'(x_{-V}) \quad \text{where } x_V \text{ is the evidence}

        Every table is sliced at the evidence; slices over the same remaining variables are added, those over none make
        the constant c.

        Args:
            evidence: ``{name: code or label}``, or a tensor of codes: one for every row or batch element.

        Shape:
            tensors broadcast with each other and with the batch shape; the batch shape of the result is the common one.

        Returns:
            The model on the remaining variables, in schema order, and the constant c in nats, shape (*batch,). It is
            minus infinity where the evidence holds an impossible combination. Other evidence may still be impossible,
            as log Z of the remaining model then says.

        Raises:
            UnknownNameError: unknown variable or label.
            InputError: a code that is no level of its variable, or tensors whose shapes do not broadcast.
        """
        codes, shape = evidence_codes(self.domain, evidence, self.batch_shape)
        rest = self.hypergraph.restrict(evidence)
        cards, batch = self.domain.cardinalities, self.batch_shape
        parts: dict[tuple[str, ...], torch.Tensor] = {}
        slices = self.hypergraph.term_slices.items()
        # Tables sliced at the evidence, and added where they are left over the same variables.
        for (edge, where), members in zip(slices, self.hypergraph.edge_indices, strict=True):
            table = self.tables[..., where].reshape(*batch, *(cards[i] for i in members))
            left: list[torch.Tensor | None] = []  # of every axis that stays: its codes, None where it is free
            for axis, name in reversed(list(enumerate(edge))):
                code = codes.get(name)
                if isinstance(code, int):
                    table = table.select(len(batch) + axis, code)
                else:
                    left.insert(0, code)
            table = gather_slices(table, len(batch), left)
            key = tuple(n for n in edge if n not in codes)
            parts[key] = parts[key] + table if key in parts else table
        constant = parts.pop((), self.tables.new_zeros(*batch, 1)).squeeze(-1)
        pieces = [parts[e].expand(*shape, parts[e].shape[-1]) for e in rest.edges]
        flat = torch.cat([self.tables.new_zeros(*shape, 0), *pieces], -1)
        return self._trusted(rest, flat), constant.expand(shape)

    def to_uai(self, path: str | os.PathLike[str]) -> None:
        r"""Write the model as a MARKOV file in the UAI format: weights :math:`\exp \theta^S_{x_S}`, zeros exact.

        The variables are numbered in schema order; the format has no names and no labels. Nothing is rescaled, so that
        Z stays. A table with entries beyond 600 nats is written as 2, 4, ... factors over the same variables, each of
        an equal share, because its weights would leave the range of float64. Reading gives every entry back to the last
        bit where a weight of float64 has this log, as of each model that was read, else to the nearest weight, whose
        log is wrong by 1.2e-16 at most.

        Raises:
            InputError: a batch of models, entries beyond 614,400 nats, no variables, or a file that cannot be written.

        Example:
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> from pyro_hoim import Domain
            >>> graph = InteractionHypergraph(Domain.from_cardinalities([2]), [("x0",)])
            >>> model = LogLinearEnergy(graph, torch.tensor([0.0, -math.inf]))
            >>> with TemporaryDirectory() as folder:
            ...     model.to_uai(f"{folder}/model.uai")
            ...     Path(f"{folder}/model.uai").read_text().split()
            ['MARKOV', '1', '2', '1', '1', '0', '2', '1.0', '0.0']
        """
        if self.batch_shape:
            raise wrong_shape("tables", "(num_terms,), of one model", self.tables)
        tables = self.tables.detach().double().cpu().numpy()
        parts = (tables[where] for where in self.hypergraph.term_slices.values())
        write_tables(path, self.domain.cardinalities, self.hypergraph.edge_indices, parts)


def check_energy(model: object, argument: str = "model") -> None:
    """Raise :class:`InputTypeError` unless a log-linear energy; where a result holds one, the message says how."""
    if isinstance(model, LogLinearEnergy):
        return
    hint = ""
    for name in ("energy", "model", "energy_model"):
        if isinstance(getattr(model, name, None), LogLinearEnergy):
            hint = f"; pass its .{name}"
    if not hint and callable(getattr(model, "log_linear", None)):
        hint = "; pass its .log_linear()"
    raise wrong_type(argument, "a LogLinearEnergy", received=f"{type(model).__name__}{hint}")
