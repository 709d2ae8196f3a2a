"""How chains are made and checked, and how calls are cut for their engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ...checks import check_exact_shape, check_finite
from ...compute.engine import Engine, Record
from ...core.chains import Chains
from ...core.model import LogLinearModel
from ...errors import (
    check_choice,
    check_whole,
    conflict,
    other_domain,
    out_of_range,
    out_of_reach,
    wrong_shape,
    wrong_type,
)
from ...runs.arguments import broadcast, checked_clamps, checked_codes, checked_tables, received, seed_from
from ...runs.checkpoint import checksum
from ...runs.schedule import GibbsSchedule
from ...structure.hypergraph import InteractionHypergraph

EngineName = Literal["auto", "products", "tables", "torch"]
_MAX_CELLS = 2**31 - 1
_LOOKUPS_PER_CALL, _LEAST_CHAINS = 2**30, 32
_LOOKUPS_PER_CALL_TORCH, _LOOKUPS_PER_STEP_TORCH = 2**24, 2**14


class ChainSetup(Chains):
    """What is behind :class:`~pyro_hoim.log_linear.GibbsChains`, whose arguments these are: checks, shapes, the engine.

    Engines see the batch as one axis of groups: (groups, chains, d).
    """

    def __init__(
        self,
        model: LogLinearModel,
        num_chains: int,
        *,
        schedule: GibbsSchedule | None = None,
        clamped: Mapping[str, Any] | None = None,
        init: torch.Tensor | None = None,
        reference: torch.Tensor | None = None,
        seed: int | torch.Generator | None = 0,
        engine: EngineName = "auto",
        precision: torch.dtype = torch.float32,
    ) -> None:
        self._num_chains = check_whole(num_chains, "num_chains")
        self._precision = precision
        self._seed = seed_from(seed)
        self._schedule = GibbsSchedule() if schedule is None else schedule
        if not isinstance(self._schedule, GibbsSchedule):
            raise wrong_type("schedule", "a GibbsSchedule", schedule)
        check_choice(precision, (torch.float32, torch.float64), "precision")
        tables = checked_tables(model, precision)
        self._hypergraph = model.hypergraph
        self._batch = torch.Size(tables.shape[:-1])
        if not self._batch.numel():
            raise wrong_shape("model", "at least one element in the batch", tuple(self._batch))
        self._device = tables.device
        self._size = sum(self.domain.cardinalities)
        self._tables = tables
        self._groups = self._batch.numel()
        self._lead = (*self._batch, self._num_chains)
        self._reference = self._checked_reference(reference)
        fixed = checked_clamps(self.domain, clamped or {}, self._lead, self._device)
        self._clamped = tuple(self.domain.names[i] for i in fixed)
        self._clamped_codes = [torch.as_tensor(codes) for codes in fixed.values()]
        self._blocks = self._schedule.resolve(self._hypergraph, self._clamped)
        states = None if init is None else self._checked_codes(init, "init")
        self._init = 0 if states is None else checksum({"init": states})
        self._engine = make_engine(
            engine,
            self._hypergraph,
            self._blocks,
            (self._groups, self._num_chains),
            self._seed,
            precision,
            tables.device,
        )
        self._set_weights()
        if states is None:
            states = self._reference_draws()
        for i, codes in fixed.items():
            states[..., i] = codes
        self._engine.set_codes(self._grouped(states, 1))

    def _grouped(self, values: torch.Tensor, num_trailing: int) -> torch.Tensor:
        """(*batch, chains, *trailing) as (groups, chains, *trailing)."""
        return values.reshape(self._groups, self._num_chains, *values.shape[values.dim() - num_trailing :])

    def _checked_reference(self, reference: torch.Tensor | None) -> torch.Tensor:
        if reference is None:
            return torch.zeros(1, self._size, dtype=torch.float64, device=self._device)
        if not isinstance(reference, torch.Tensor) or not reference.is_floating_point():
            raise wrong_type("reference", "a floating-point tensor", received=received(reference))
        if reference.dim() == 0 or reference.shape[-1] != self._size:
            raise wrong_shape("reference", f"(..., {self._size}), one entry per level of every variable", reference)
        check_finite(reference, "reference")
        return self._broadcast(reference.detach().double(), (*self._batch, self._size), "reference").reshape(
            self._groups, self._size
        )

    def _broadcast(self, values: torch.Tensor, shape: Sequence[int], argument: str) -> torch.Tensor:
        return broadcast(values.to(self._device), shape, argument)

    def _checked_codes(self, codes: torch.Tensor, argument: str) -> torch.Tensor:
        return checked_codes(self.domain, codes, self._lead, argument).to(self._device)

    def _reference_draws(self) -> torch.Tensor:
        """States from the reference law, (*batch, chains, d); those of a chain depend on (seed, group, chain) alone."""
        streams = (np.random.Philox(key=self._seed ^ 0x5EED, counter=g << 128) for g in range(self._groups))
        uniforms = np.stack([np.random.Generator(s).random((self._num_chains, len(self.domain))) for s in streams])
        reference = self._reference.cpu().numpy()
        codes = np.zeros(uniforms.shape, dtype=np.int64)
        sizes = np.array(self.domain.cardinalities, dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        for levels in np.unique(sizes).tolist():
            at = np.flatnonzero(sizes == levels)
            weights = reference[:, starts[at, None] + np.arange(levels)]
            total = np.exp(weights - weights.max(-1, keepdims=True)).cumsum(-1)[:, None]
            picked = at if len(at) < len(sizes) else slice(None)  # a slice needs no copies
            uniform = uniforms[..., picked] * total[..., -1]
            for k in range(levels - 1):
                codes[..., picked] += total[..., k] <= uniform
        return torch.from_numpy(codes).reshape(*self._batch, self._num_chains, -1).to(self._device)

    def _set_weights(self) -> None:
        self._engine.set_weights(self._tables.reshape(self._groups, -1).double(), self._reference)

    def _other_tables(self, model: LogLinearModel) -> torch.Tensor:
        tables = checked_tables(model, self._precision)
        if model.hypergraph != self._hypergraph:
            raise other_domain("model", "the interactions of the chains", hint="make new chains for other interactions")
        check_exact_shape(tables, self._tables.shape, "model: tables")
        return tables

    def _other_rows(self, model: LogLinearModel) -> torch.Tensor:
        """Tables of another model, float64 (groups, num_terms)."""
        return self._other_tables(model).reshape(self._groups, -1).double()

    @property
    @override
    def sweeps_per_call(self) -> int:
        cards, incident = self.domain.cardinalities, self._hypergraph.incident
        lookups = 0
        for block in self._blocks:
            num_edges = len(set[int]().union(*(incident[i] for i in block)))
            lookups += math.prod(cards[i] for i in block) * (1 + num_edges)
        if type(self._engine).__name__ == "TorchEngine":
            lookups = lookups * self._groups * self._num_chains + _LOOKUPS_PER_STEP_TORCH * len(self._blocks)
            limit = _LOOKUPS_PER_CALL_TORCH
        else:
            lookups *= self._groups * max(self._num_chains, _LEAST_CHAINS)  # the fewer, the emptier the vectors
            limit = _LOOKUPS_PER_CALL
        return max(1, min(2**20, limit // max(1, lookups)))

    def _chunks(self, num_sweeps: int, thin: int) -> list[tuple[int, int]]:
        """First sweep and length of calls to the engine: one, unless every sweep has an order of its own."""
        limit, done = max(1, self._sweeps_per_call(num_sweeps, thin)), self._num_sweeps
        return [(done + first, min(limit, num_sweeps - first)) for first in range(0, max(1, num_sweeps), limit)]

    def _sweeps_per_call(self, num_sweeps: int, thin: int = 1) -> int:
        """All of them where every sweep visits the blocks alike; else so many that the orders take little memory."""
        if self._schedule.scan == "sequential" and not self._schedule.emphasised:
            return num_sweeps
        return max(1, 4096 // max(1, thin)) * max(1, thin)

    def _ungrouped(self, record: Record) -> Record:
        """Groups back to the batch."""
        counts, energies, states = record.counts, record.energies, record.states
        lead = (record.num_records, *self._lead)
        return Record(
            record.num_records,
            None if counts is None else counts.reshape(*self._batch, self._hypergraph.num_terms),
            None if energies is None else energies.reshape(lead),
            None if states is None else states.reshape(*lead, len(self.domain)),
        )

    def _betas(self, beta: float | torch.Tensor) -> NDArray[np.float64]:
        try:
            values = torch.as_tensor(beta, dtype=torch.float64).detach()
        except (TypeError, ValueError) as error:
            raise wrong_type("beta", "a number or a tensor", received=received(beta)) from error
        if not bool(((values >= 0) & (values <= 1)).all()):
            raise out_of_range("beta", "inverse temperatures within [0, 1]", received=values.tolist())
        values = values.to("cpu") if values.dim() == 0 else self._broadcast(values, self._batch, "beta").cpu()
        return np.ascontiguousarray(values.expand(self._batch).reshape(-1).numpy())


def make_engine(
    name: EngineName,
    hypergraph: InteractionHypergraph,
    blocks: tuple[tuple[int, ...], ...],
    shape: tuple[int, int],
    seed: int,
    precision: torch.dtype,
    device: torch.device,
) -> Engine:
    """The engine that moves the chains; compiled ones are imported when first needed."""
    check_choice(name, ("auto", "products", "tables", "torch"), "engine")
    if name == "torch" or (name == "auto" and device.type != "cpu"):
        from .torch_engine import TorchEngine

        return TorchEngine(hypergraph, blocks, *shape, seed, precision, device)
    if device.type != "cpu":
        raise conflict("engine", f"{name!r} runs on the CPU, received tables on {device}", "use 'torch' or 'auto'")
    cells = sum(
        len(edge) * math.prod(shape) for edge, shape in zip(hypergraph.edges, hypergraph.edge_shapes, strict=True)
    )
    if cells > _MAX_CELLS:
        problem = (
            f"the tables and their transposed copies have {cells} cells, the compiled engines address {_MAX_CELLS}"
        )
        raise out_of_reach("model", problem, "use engine='torch' or smaller interactions")
    if name != "tables":
        from .products_engine import ProductsEngine

        if ProductsEngine.supports(hypergraph):
            return cast(Engine, ProductsEngine(hypergraph, blocks, *shape, seed, precision))
        if name == "products":
            problem = "'products' needs variables with at most two levels and interactions of at most eight"
            raise conflict("engine", problem, "use 'tables' or 'auto'")
    from .tables_engine import TablesEngine

    return cast(Engine, TablesEngine(hypergraph, blocks, *shape, seed, precision))
