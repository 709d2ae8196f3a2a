"""Many Gibbs chains of a log-linear model as one object."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from typing_extensions import override

from ...budgets import check_cells
from ...checks import check_exact_shape, check_finite, checked_floating
from ...compute.engine import Engine, Record, Wanted, join_records
from ...core.model import Chains, LogLinearModel
from ...core.partition import state_text
from ...core.words import in_python
from ...errors import (
    ConvergenceWarning,
    InputError,
    IntractableError,
    caller_level,
    check_choice,
    check_type,
    check_whole,
    conflict,
    other_domain,
    out_of_range,
    out_of_reach,
    refused,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ...runs.arguments import (
    broadcast,
    check_levels,
    checked_clamps,
    checked_codes,
    checked_tables,
    checked_thin,
    received,
    seed_from,
)
from ...runs.checkpoint import part_of
from ...runs.container import checksum
from ...runs.schedule import MAX_BLOCK_STATES, GibbsSchedule
from ...schema import Domain
from ...structure.elimination_order import block_buckets, bucket_cells
from ...structure.hypergraph import InteractionHypergraph
from ..energy import LogLinearEnergy
from ..impossible import support_of
from .choice import CHAINS, GROUPS, BlockChoice, choose_schedule
from .connected import Connectedness, connectedness, joined_blocks
from .inside import InsideChains, Listing, Lists, listed_states

# Which engine moves the chains.

EngineName = Literal["auto", "products", "tables", "torch"]
_MAX_CELLS = 2**31 - 1
_LEAST_BETA = 2.0**-120  # at which finite tables weigh nothing and impossible states stay impossible
_REFERENCE_STREAM = 0x5EED
_PILOT_STREAM = 0xB10C


def make_engine(
    name: EngineName,
    hypergraph: InteractionHypergraph,
    blocks: tuple[tuple[int, ...], ...],
    shape: tuple[int, int],
    seed: int,
    precision: torch.dtype,
    device: torch.device,
    has_impossible: bool = False,
    max_listed: int = MAX_BLOCK_STATES,
    lists: Lists | None = None,
) -> Engine:
    """The engine that moves the chains; compiled ones are imported when first needed."""
    # PyTorch on every other device; on the CPU tables must be within reach of 32-bit positions.
    check_choice(name, get_args(EngineName), "engine")
    if name == "torch" or (name == "auto" and device.type != "cpu"):
        from .torch_engine import TorchEngine

        return TorchEngine(hypergraph, blocks, *shape, seed, precision, device, max_listed, lists)
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
    # Products are faster, where the model has binary variables alone, and finite tables.
    if name == "products" and has_impossible:
        raise conflict("engine", "'products' needs models without impossible states", "use 'tables' or 'auto'")
    if name != "tables" and not has_impossible:
        from .products_engine import ProductsEngine

        if ProductsEngine.supports(hypergraph, blocks, max_listed):
            return cast(Engine, ProductsEngine(hypergraph, blocks, *shape, seed, precision, max_listed))
        if name == "products":
            problem = (
                "'products' needs variables with at most two levels, interactions of at most eight, and large blocks "
                "that are trees"
            )
            raise conflict("engine", problem, "use 'tables' or 'auto'")
    from .tables_engine import TablesEngine

    return cast(Engine, TablesEngine(hypergraph, blocks, *shape, seed, precision, max_listed, lists))


def reference_draws(domain: Domain, reference: torch.Tensor, lead: Sequence[int], seed: int) -> torch.Tensor:
    """States (*batch, chains, d) from product laws with log weights (groups, levels), by a generator of the device."""
    device, num_chains, start = reference.device, lead[-1], 0
    random = torch.Generator(device).manual_seed(seed ^ _REFERENCE_STREAM)
    columns: list[torch.Tensor] = []
    for levels in domain.cardinalities:
        shares = torch.softmax(reference[:, start : start + levels], -1).expand(math.prod(lead[:-1]), -1)
        start += levels
        points = torch.rand(len(shares), num_chains, dtype=shares.dtype, generator=random, device=device)
        columns.append(torch.searchsorted(shares.cumsum(-1)[:, :-1].contiguous(), points, right=True))
    states = torch.stack(columns, -1) if columns else torch.zeros(*lead, 0, dtype=torch.long, device=device)
    return states.reshape(*lead, len(columns))


_LOOKUPS_PER_CALL, _LEAST_CHAINS = 2**30, 32
_LOOKUPS_PER_CALL_TORCH, _LOOKUPS_PER_STEP_TORCH = 2**26, 2**14
_READS_OF_CELL = 4  # of a block drawn by elimination
_FASTER = 2**7  # times as many look-ups of the PyTorch engine on a device other than the CPU


class GibbsChains(Chains):
    r"""Gibbs chains of a log-linear model, all moved at once; no normalising constant is needed.

    .. math:: \log f_\beta(x) = -\beta E(x) + (1 - \beta) \sum_v r^v[x_v]

    is the target at inverse temperature beta: the model at 1 and the *reference* law, a product of single-variable
    laws, at 0. A sweep costs one look-up per variable, state and interaction that holds it. The chains are exact
    Markov chains; how far they are from their target is what burn-in and diagnostics are for.

    Where tables hold minus infinity, states are impossible at every beta: chains begin in possible ones and stay there.
    First states are then drawn from the reference law restricted to these, exactly where exact methods reach the
    impossible combinations, else as a search of 2,200 sweeps finds them. A schedule of sites, colours, trees or
    widths gets further blocks where it would not connect the possible states and some do; :attr:`connectedness` says
    what is known.

    Args:
        model: the energies; a batch of tables makes a batch of chains.
        num_chains: chains per element of the batch.
        schedule: blocks and scan; None visits all sites, on another device than the CPU by colour classes. Blocks
            "auto" are chosen for the model by pilot runs of a few other chains, in about a second at most;
            :attr:`choice` says which and why. The chains are then those of the chosen schedule and the seed.
        clamped: variables held fixed, ``{name: code, label or codes per chain}``.
        init: first states, possible ones; drawn from the reference law when None. Clamped variables keep their clamped
            values.
        reference: log weights of the laws at beta 0, one variable after the other; uniform laws when None.
        seed: of everything random, or what it is drawn from (None: the global generator). The stream of chain c of
            batch element g depends on (seed, g, c) alone (the torch engine has one stream for all chains, that of a
            generator of the device).
        engine: "products" (binary models without impossible states, and large blocks that are trees; fastest),
            "tables" (any levels), both compiled for the CPU; "torch" (any device; the reference); "auto" picks by
            cardinalities, blocks and device.
        precision: of the conditionals; float32 has relative errors of 1e-6 in probabilities, and levels below 1e-7 may
            never be drawn. Energies are float64.

    Shape:
        tables (*batch, num_terms); reference (*batch, sum of cardinalities) or without the batch; init and states
        (*batch, num_chains, d); energies (*batch, num_chains), in nats.

    Raises:
        InputError: numbers of chains below 1, tables of NaN or plus infinity, a reference that is not finite, a clamped
            value or initial code that is no level, shapes or types that do not fit, an engine that cannot do the model,
            no possible state, first states or clamped values that are impossible.
        UnknownNameError: a block or clamped name that is not in the domain.
        IntractableError: a block that is too large to be drawn, see :class:`~pyro_hoim.runs.GibbsSchedule`, or no
            possible state found.

    References:
        Paper 1, appendix B.5.

    Example:
        >>> from pyro_hoim import Domain, LogLinearEnergy
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
        >>> chains = GibbsChains(LogLinearEnergy(hypergraph, torch.zeros(11)), 100, engine="torch")
        >>> record = chains.sweep(10, thin=2, counts=True)
        >>> record.num_records, float(record.counts[:2].sum())
        (5, 500.0)
    """

    recordable = ("statistics", "energies", "draws")
    identity = "model, schedule, clamped value, engine, precision, seed or number of chains"
    mixing_hint = "draw larger blocks (schedule=, a pyro_hoim.runs.GibbsSchedule)"

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
        # This is the door of all engines: what they are given is checked here.
        self._num_chains = check_whole(num_chains, "num_chains")
        self._precision = precision
        self._seed = seed_from(seed)
        check_type(schedule, GibbsSchedule | None, "schedule")
        check_choice(precision, (torch.float32, torch.float64), "precision")
        tables = checked_tables(model, precision)
        self._hypergraph = model.hypergraph
        self._batch = torch.Size(tables.shape[:-1])
        if not self._batch.numel():
            raise wrong_shape("model", "at least one element in the batch", tuple(self._batch))
        check_cells(
            self._num_chains, self._batch.numel() * len(self.domain), "num_chains", "take fewer chains", "chains"
        )
        # What everything has one row or chain of.
        self._device = tables.device
        self._schedule = schedule or GibbsSchedule("sites" if self._device.type == "cpu" else "colours")
        self._size = sum(self.domain.cardinalities)
        self._tables = tables
        self._groups = self._batch.numel()
        self._lead = (*self._batch, self._num_chains)
        if reference is None:
            self._reference = torch.zeros(1, self._size, dtype=torch.float64, device=self._device)
        else:
            checked_floating(reference, "reference")
            if reference.dim() == 0 or reference.shape[-1] != self._size:
                raise wrong_shape("reference", f"(..., {self._size}), one entry per level of every variable", reference)
            check_finite(reference, "reference")
            wide = self._broadcast(reference.detach().double(), (*self._batch, self._size), "reference")
            self._reference = wide.reshape(self._groups, self._size)
        # Clamped variables leave the blocks, and keep their codes whatever the first states are.
        fixed = checked_clamps(self.domain, clamped or {}, self._lead, self._device)
        self._clamped = tuple(self.domain.names[i] for i in fixed)
        self._clamped_codes = [torch.as_tensor(codes) for codes in fixed.values()]
        self._fixed = fixed
        self._set_impossible(tables)
        states = None if init is None else self._checked_codes(init, "init")
        self._engine_name: EngineName = engine
        self._choice: BlockChoice | None = None
        if self._schedule.blocks == "auto":
            base = "sites" if self._device.type == "cpu" else "colours"
            pilot = partial(self._pilot, states)
            self._choice = choose_schedule(self._schedule, self._hypergraph, self._listing, pilot, base)
            self._schedule = self._choice.schedule
        has_list = None if self._listing is None else self._listing.has
        self._blocks = self._schedule.resolve(self._hypergraph, self._clamped, has_list)
        self._init = "" if states is None else checksum({"init": states})
        if self._inside is not None:
            joined = joined_blocks(self._inside.law.support, self._schedule, self.blocks)
            self._blocks += tuple(tuple(self.domain.indices(block)) for block in joined)
        # Weights come before states, because energies are those of both.
        self._lists = listed_states(self._listing, self._blocks, self.domain.names)
        self._engine = self._made_engine()
        self._engine.set_weights(self._rows(tables), self._reference)
        if states is None:
            states = self._reference_draws()
            if self._inside is not None:
                columns = self._inside.columns
                states[..., columns] = self._inside.draw(self._seed, GibbsChains).reshape(*self._lead, len(columns))
        for i, codes in fixed.items():
            states[..., i] = codes
        self._engine.set_codes(self._grouped(states, 1))
        self._check_inside("init")

    def __repr__(self) -> str:
        engine = type(self._engine).__name__
        return f"GibbsChains({self._hypergraph!r}, batch={tuple(self._batch)}, chains={self._num_chains}, {engine})"

    def _pilot(self, init: torch.Tensor | None, schedule: GibbsSchedule, start: torch.Tensor | None) -> GibbsChains:
        """A few chains of the first models of the batch, by which a schedule is tried; their streams are their own."""
        groups, turn = min(self._groups, GROUPS), torch.arange(CHAINS, device=self._device) % self._num_chains
        fixed = {
            self.domain.names[i]: self._grouped(codes, 0)[:groups, turn]
            if isinstance(codes, torch.Tensor) and codes.ndim
            else codes
            for i, codes in self._fixed.items()
        }
        if start is None and init is not None and self._inside is not None and not self._inside.law.is_exact:
            start = self._grouped(init, 1)[:groups, turn]  # spares a search for possible states
        return GibbsChains(
            LogLinearEnergy._trusted(self._hypergraph, self._tables.reshape(self._groups, -1)[:groups]),
            CHAINS,
            schedule=schedule,
            clamped=fixed,
            init=start,
            reference=self._reference.expand(self._groups, -1)[:groups],
            seed=self._seed ^ _PILOT_STREAM,
            engine=self._engine_name,
            precision=self._precision,
        )

    def _made_engine(self) -> Engine:
        """An engine for the blocks and the lists of their possible states."""
        shape, has_impossible = (self._groups, self._num_chains), self._impossible is not None
        options = self._seed, self._precision, self._device, has_impossible, self._schedule.max_listed, self._lists
        return make_engine(self._engine_name, self._hypergraph, self._blocks, shape, *options)

    def _set_impossible(self, tables: torch.Tensor) -> None:
        """Take up which cells of tables are impossible, and so which states chains may not enter."""
        self._forget_impossible()
        support = support_of(LogLinearEnergy._trusted(self._hypergraph, tables))
        if support is None:
            return
        self._impossible = torch.isneginf(tables).reshape(self._groups, -1)
        fixed = dict(self._fixed)
        for i, codes in fixed.items():
            if isinstance(codes, torch.Tensor) and codes.ndim:
                fixed[i] = self._grouped(codes, 0)
        support = LogLinearEnergy._trusted(support.hypergraph, support.tables.reshape(self._groups, -1))
        self._inside = InsideChains.of(support, self._reference, fixed, (self._groups, self._num_chains))
        self._listing = None if self._inside is None else Listing(self._inside.law.support)

    def _forget_impossible(self) -> None:
        """All states are possible."""
        self._impossible = self._inside = self._connected = self._listing = None

    def _check_inside(self, argument: str) -> None:
        """InputError where chains are in impossible states."""
        if self._impossible is None:
            return
        is_outside = ~torch.isfinite(self.energy)
        if bool(is_outside.any()):
            state = self.states[is_outside][0].tolist()
            labels = [v.labels[code] for v, code in zip(self.domain, state, strict=True)]
            problem = f"{int(is_outside.sum())} of {is_outside.numel()} chains would be in impossible states, such as "
            raise refused(argument, problem + state_text(self.domain.names, labels), code="impossible")

    def _whole(self, betas: np.ndarray) -> np.ndarray:
        """Inverse temperatures at which impossible states stay impossible, also where they are zero."""
        return betas if self._impossible is None else np.maximum(betas, _LEAST_BETA)

    def _grouped(self, values: torch.Tensor, num_trailing: int) -> torch.Tensor:
        """(*batch, chains, *trailing) as (groups, chains, *trailing)."""
        return values.reshape(self._groups, self._num_chains, *values.shape[values.dim() - num_trailing :])

    def _broadcast(self, values: torch.Tensor, shape: Sequence[int], argument: str) -> torch.Tensor:
        return broadcast(values.to(self._device), shape, argument)

    def _checked_codes(self, codes: torch.Tensor, argument: str) -> torch.Tensor:
        return checked_codes(self.domain, codes, self._lead, argument).to(self._device)

    def _reference_draws(self) -> torch.Tensor:
        """States from the reference law, (*batch, chains, d); those of a chain depend on (seed, group, chain) alone."""
        if self._device.type != "cpu":
            return reference_draws(self.domain, self._reference, self._lead, self._seed)
        uniforms = np.empty((self._groups, self._num_chains, len(self.domain)))
        stream = np.random.Philox(key=self._seed ^ 0x5EED)
        start, random = stream.state, np.random.Generator(stream)
        for group, out in enumerate(uniforms):  # streams of their own would each ask the system for entropy
            start["state"]["counter"][2] = group
            stream.state = start
            random.random(out=out)
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

    def _rows(self, tables: torch.Tensor) -> torch.Tensor:
        """Tables as float64 (groups, num_terms)."""
        return tables.reshape(self._groups, -1).double()

    def _other_tables(self, model: LogLinearModel, validate: bool = True) -> torch.Tensor:
        tables = checked_tables(model, self._precision) if validate else model.tables.detach().clone()
        if model.hypergraph != self._hypergraph:
            raise other_domain("model", "the interactions of the chains", hint="make new chains for other interactions")
        check_exact_shape(tables, self._tables.shape, "model: tables")
        return tables

    @property
    @override
    def hypergraph(self) -> InteractionHypergraph:
        return self._hypergraph

    @property
    @override
    def domain(self) -> Domain:
        return self._hypergraph.domain

    @property
    @override
    def batch_shape(self) -> torch.Size:
        return self._batch

    @property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """Names of the variables that are drawn together, in the order of a sequential scan."""
        return tuple(tuple(self.domain.names[i] for i in block) for block in self._blocks)

    @property
    def schedule(self) -> GibbsSchedule:
        """Blocks and scan; in place of the blocks "auto" those that were chosen."""
        return self._schedule

    @property
    def choice(self) -> BlockChoice | None:
        """What blocks "auto" were chosen from, and why; None where they were given."""
        return self._choice

    @property
    def connectedness(self) -> Literal["proved", "refuted", "untested"]:
        """Whether the blocks lead from every possible state to every other one, given the clamped variables.

        "refuted" chains that begin in different parts of the possible states stay there, so that their law depends on
        where they begin. It is "untested" where more than 65,536 states would have to be listed of variables that
        impossible combinations join, or more than 64 sets of impossible combinations be looked at.
        """
        return self._connection.verdict

    @property
    def _connection(self) -> Connectedness:
        """The same with two states that no chain connects, if any."""
        if self._connected is None:
            inside = self._inside
            self._connected = Connectedness("proved")
            if inside is not None:
                self._connected = connectedness(inside.law.support, self.blocks)
        return self._connected

    @property
    @override
    def barrier(self) -> str:
        return self._connection.words(self.domain) if self.connectedness == "refuted" else ""

    def warn_unless_connected(self, argument: str) -> None:
        """Give :class:`ConvergenceWarning` where the chains are not known to reach every possible state."""
        if problem := self._connection.words(self.domain):
            hint = f"{in_python(f'{self.mixing_hint}, or ')}use an exact backend"
            warnings.warn(ConvergenceWarning(problem, argument=argument, hint=hint), stacklevel=caller_level())

    @property
    @override
    def states(self) -> torch.Tensor:
        return self._engine.get_codes().reshape(*self._lead, -1)

    @property
    def energy(self) -> torch.Tensor:
        """Energy of the model, minus the log of its unnormalised probability, float64 (*batch, num_chains), nats."""
        return self._engine.energies()[0].reshape(self._lead)

    @property
    def reference_energy(self) -> torch.Tensor:
        """Minus the sum of the reference log weights of a state, float64 (*batch, num_chains), nats."""
        return self._engine.energies()[1].reshape(self._lead)

    @override
    def set_states(self, states: torch.Tensor) -> None:
        codes, before = self._checked_codes(states, "states"), self._engine.get_codes()
        self._engine.set_codes(self._grouped(codes, 1))
        try:
            self._check_inside("states")
        except InputError:
            self._engine.set_codes(before)
            raise
        if self._impossible is not None and self._fixed:  # which have other values now
            self._fixed = {i: codes[..., i] for i in self._fixed}
            self._set_impossible(self._tables)
            self._list_anew(self._tables)
        self._init = checksum({"init": codes})

    def set_model(self, model: LogLinearModel, *, validate: bool = True) -> None:
        """New tables for the same interactions; refused are another hypergraph or batch shape.

        Refused are also tables in which the states of the chains are impossible. The blocks stay as they are.

        ``validate`` looks at every entry; leave it out only for tables that are known to be finite.
        """
        tables = self._other_tables(model, validate)
        lost = torch.isneginf(tables).reshape(self._groups, -1) if validate else None
        if lost is None or not bool(lost.any()):
            self._forget_impossible()
        elif self._impossible is None or not torch.equal(lost, self._impossible):
            if type(self._engine).__name__ == "ProductsEngine":
                raise conflict("model", "has impossible states, which the engine 'products' cannot deal with")
            if bool(torch.isinf(self.energy_of(model)).any()):
                problem = "chains are in states that are impossible in it"
                raise refused("model", problem, "give the chains other states first", code="impossible")
            self._set_impossible(tables)
        try:
            self._list_anew(tables)
        except IntractableError:
            self._set_impossible(self._tables)
            raise
        self._tables = tables
        self._engine.set_weights(self._rows(self._tables), self._reference)

    def _list_anew(self, tables: torch.Tensor) -> None:
        """Another engine where other joint states of the blocks are possible; its chains are where they were."""
        lists = listed_states(self._listing, self._blocks, self.domain.names)
        if lists == self._lists:
            return
        has_list = None if self._listing is None else self._listing.has
        GibbsSchedule(self.blocks).resolve(self._hypergraph, self._clamped, has_list)  # a block may be too large now
        state, self._lists = self._engine.state(), lists
        self._engine = self._made_engine()
        self._engine.set_weights(self._rows(tables), self._reference)
        self._engine.load_state(state)

    def energy_of(self, model: LogLinearModel, *, validate: bool = True) -> torch.Tensor:
        """Energy of the present states under other tables, as of :meth:`set_model`, float64 (*batch, num_chains)."""
        return self._engine.energies_of(self._rows(self._other_tables(model, validate))).reshape(self._lead)

    def gather(self, index: torch.Tensor) -> None:
        """Resampling: chain c takes the state of chain ``index[..., c]`` (*batch, num_chains) of its batch element."""
        if not isinstance(index, torch.Tensor) or index.shape != self._lead or index.is_floating_point():
            raise unexpected("index", f"integers of shape {self._lead}", received=received(index), code="wrong-shape")
        check_levels(index, torch.tensor(self._num_chains, device=index.device), "index")
        self._engine.gather(self._grouped(index.long(), 0))

    @override
    def sweep(
        self,
        num_sweeps: int = 1,
        beta: float | torch.Tensor = 1.0,
        *,
        thin: int = 0,
        counts: bool = False,
        energies: bool = False,
        states: bool = False,
    ) -> Record:
        """Move all chains by sweeps at beta; look at them after every ``thin`` sweeps.

        Args:
            num_sweeps: how many sweeps.
            beta: inverse temperature in [0, 1], one number or one per element of the batch.
            thin: sweeps between two records; at least 1 where something is recorded.
            counts: record how many chains were in every cell of every edge, summed over records.
            energies: record the energy of every chain.
            states: record the states.

        Shape:
            beta () or (*batch); counts (*batch, num_terms); energies (records, *batch, num_chains); states
            (records, *batch, num_chains, d).

        Raises:
            InputError: negative numbers, beta outside [0, 1].
        """
        num_sweeps, thin = check_whole(num_sweeps, "num_sweeps", 0), checked_thin(thin, counts, energies, states)
        # Inverse temperatures, one for every group.
        try:
            values = torch.as_tensor(beta, dtype=torch.float64).detach()
        except (TypeError, ValueError) as error:
            raise wrong_type("beta", "a number or a tensor", received=received(beta)) from error
        if not bool(((values >= 0) & (values <= 1)).all()):
            raise out_of_range("beta", "inverse temperatures within [0, 1]", received=values.tolist())
        values = values.to("cpu") if values.dim() == 0 else self._broadcast(values, self._batch, "beta").cpu()
        levels = self._whole(np.ascontiguousarray(values.expand(self._batch).reshape(-1).numpy()))
        wanted, parts = Wanted(thin, counts, energies, states), list[Record]()
        limit = max(1, self._sweeps_per_call(num_sweeps, thin))
        for first in range(0, max(1, num_sweeps), limit):
            length = min(limit, num_sweeps - first)
            order = self._schedule.order(self._hypergraph, self._blocks, self._num_sweeps, length, self._seed)
            parts.append(self._engine.sweep(order, length, levels, wanted))
            self._num_sweeps += length
        # Groups back to the batch.
        number, *noted = join_records(parts)
        lead = (number, *self._lead)
        shapes = (*self._batch, self._hypergraph.num_terms), lead, (*lead, len(self.domain))
        return Record(number, *(None if p is None else p.reshape(s) for p, s in zip(noted, shapes, strict=True)))

    def anneal(
        self,
        betas: torch.Tensor | Sequence[float],
        sweeps_per_step: int = 1,
        *,
        reverse_order: bool = False,
        start: LogLinearModel | None = None,
    ) -> torch.Tensor:
        r"""Move all chains through a path of temperatures; log weights of annealed importance sampling.

        .. math:: \log w = \sum_{k \ge 1} (\beta_k - \beta_{k-1}) \, [\log f_1(x_{k-1}) - \log f_0(x_{k-1})]

        where :math:`x_{k-1}` is the state before the sweeps at :math:`\beta_k`. If the chains start from the target
        at the first beta, the mean weight is Z at the last over Z at the first beta, without bias.

        Args:
            betas: inverse temperatures within [0, 1], rising or falling.
            sweeps_per_step: sweeps after every change.
            reverse_order: visit the blocks of every sweep from the last to the first; with falling betas this is the
                exact reversal of the rising run.
            start: another model of the same interactions, to stand at beta 0 in place of the reference; the tables at
                beta are then :math:`(1 - \beta) \theta_{\mathrm{start}} + \beta \theta`. A model that is close and
                can be drawn from exactly, such as a tree, makes the path short. It is restricted to the possible
                states of the model, as the reference is.

        Shape:
            betas (steps + 1,); returns float64 (*batch, num_chains), nats.

        Raises:
            InputError: fewer than one beta, values outside [0, 1], a number of sweeps below 1, or a start with another
                hypergraph or batch shape, or with impossible cells that are possible in the model.

        References:
            Radford Neal, Annealed importance sampling, Statistics and Computing 11, 2001, equations (3) to (11).
        """
        # The path, and the other end of it where there is one.
        path = torch.as_tensor(betas, dtype=torch.float64).detach().cpu()
        if path.dim() != 1 or not len(path) or not bool(((path >= 0) & (path <= 1)).all()):
            raise out_of_range("betas", "a sequence of inverse temperatures within [0, 1]", received=path.tolist())
        sweeps_per_step = check_whole(sweeps_per_step, "sweeps_per_step")
        first_tables = None if start is None else self._rows(self._other_tables(start))
        if first_tables is not None and self._impossible is not None:
            first_tables = first_tables.masked_fill(self._impossible, 0.0)
        if first_tables is not None and bool(torch.isneginf(first_tables).any()):
            raise refused("start", "has impossible cells that the model has not", code="impossible")
        levels = self._whole(path.numpy())
        steps = len(path) - 1
        weights = torch.zeros(self._groups, self._num_chains, dtype=torch.float64, device=self._device)
        # In calls whose orders take little memory; reversed runs go back through the same ones.
        first, limit = self._num_sweeps, max(1, self._sweeps_per_call(steps * sweeps_per_step) // sweeps_per_step)
        for begin in range(0, steps, limit):
            stop = min(steps, begin + limit)
            start_step = steps - stop if reverse_order else begin
            length = (stop - begin) * sweeps_per_step
            order = self._schedule.order(
                self._hypergraph, self._blocks, first + start_step * sweeps_per_step, length, self._seed
            )
            if reverse_order:
                order = np.ascontiguousarray(order[::-1, ::-1])
            weights += self._engine.anneal(order, levels[begin : stop + 1], sweeps_per_step, first_tables)
            self._num_sweeps += length
        return weights.reshape(self._lead)

    def statistics(self, weights: torch.Tensor | None = None) -> torch.Tensor:
        """Sum of weights of chains (*batch, num_chains; 1) in every cell of every edge, float64 (*batch, num_terms)."""
        if weights is not None:
            if not isinstance(weights, torch.Tensor):
                raise wrong_type("weights", "a tensor", received=received(weights))
            weights = self._grouped(self._broadcast(weights.detach().double(), self._lead, "weights"), 0)
        return self._engine.statistics(weights).reshape(*self._batch, -1)

    @property
    @override
    def sweeps_per_call(self) -> int:
        cards, incident = self.domain.cardinalities, self._hypergraph.incident
        lookups = 0
        for block, listed in zip(self._blocks, self._lists or (None,) * len(self._blocks), strict=True):
            num_edges = len(set[int]().union(*(incident[i] for i in block)))
            states = math.prod(cards[i] for i in block) if listed is None else len(listed)
            if listed is None and states > self._schedule.max_listed:
                lookups += num_edges + _READS_OF_CELL * bucket_cells(block_buckets(self._hypergraph, block), cards)
            else:
                lookups += states * (1 + num_edges)
        if type(self._engine).__name__ == "TorchEngine":
            lookups = lookups * self._groups * self._num_chains + _LOOKUPS_PER_STEP_TORCH * len(self._blocks)
            limit = _LOOKUPS_PER_CALL_TORCH * (1 if self._device.type == "cpu" else _FASTER)
        else:
            lookups *= self._groups * max(self._num_chains, _LEAST_CHAINS)  # the fewer, the emptier the vectors
            limit = _LOOKUPS_PER_CALL
        return max(1, min(2**20, limit // max(1, lookups)))

    def _sweeps_per_call(self, num_sweeps: int, thin: int = 1) -> int:
        """All of them where every sweep visits the blocks alike; else so many that the orders take little memory."""
        if self._schedule.scan == "sequential" and not self._schedule.emphasised:
            return num_sweeps
        return max(1, 4096 // max(1, thin)) * max(1, thin)

    @property
    @override
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        parts = [self._hypergraph.to_json(), list(self._batch), self._num_chains, self._seed, repr(self._schedule)]
        parts += [self._clamped, type(self._engine).__name__, str(self._precision)]
        digest.update(json.dumps(parts).encode())
        for values in (self._tables, self._reference, *self._clamped_codes):
            digest.update(values.double().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @override
    def _state(self) -> dict[str, torch.Tensor]:
        state = {f"engine.{name}": value for name, value in self._engine.state().items()}
        return {**state, "num_sweeps": torch.tensor(self._num_sweeps)}

    @override
    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        self._engine.load_state(part_of(state, "engine."))
        self._num_sweeps = int(state["num_sweeps"])
