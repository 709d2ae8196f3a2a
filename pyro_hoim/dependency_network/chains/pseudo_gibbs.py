"""Many pseudo-Gibbs chains of a dependency network as one object."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from typing_extensions import override

from ...budgets import check_cells
from ...compute.engine import Record, Wanted
from ...core.model import Chains
from ...errors import check_choice, check_whole, conflict, unexpected
from ...runs.arguments import checked_clamps, checked_codes, checked_thin, seed_from
from ...runs.checkpoint import part_of
from ...runs.container import checksum
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..conditionals import DependencyConditionals, checked_conditionals
from ..node_conditionals import LeafConditional, NodeConditional, TableConditional
from ..scan import Scan, ScanLike, checked_scan, drawn_variables
from .engines import ConditionalEngine, WalkerEngine, is_walkable
from .ergodicity import check_ergodic

WalkerName = Literal["auto", "compiled", "torch"]

_UPDATES_PER_CALL, _UPDATES_PER_CALL_TORCH = 2**24, 2**21


class PseudoGibbsChains(Chains):
    r"""Chains that draw one variable at a time from its own conditional in a dependency network.

    .. math:: x_i \sim \theta_i(X_i \mid Y_i(x)), \qquad i = 0, 1, \dots, n - 1, 0, \dots \text{ or } i \sim c

    The conditionals need not belong to one joint law, so the limiting law is a property of the scan too. A *random*
    scan, in which every chain picks for itself variable i with probability :math:`c_i`, has a stationary law
    :math:`\pi`. A *sequential* scan has one law for every place in its order: states after whole sweeps follow the law
    just after the last variable of the order; :meth:`update` stops at the others. If the conditionals do belong to a
    joint law, this is Gibbs sampling and all these laws are equal. A *sweep* is as many updates as there are variables
    to draw.

    With clamped variables only the others are drawn (conditional pseudo-Gibbs). The limiting law
    :math:`\pi'(x \mid x_C)` is close to, but not, the conditional law :math:`\pi(x \mid x_C)`.

    Args:
        conditionals: the network, or a law that holds one as ``conditionals``.
        num_chains: number of chains.
        scan: "random", which the FC-limit bounds, or a mapping from names to the probabilities :math:`c_i` of a random
            scan (positive, with sum one; with clamped variables those of the others are used in proportion);
            "sequential", in the order of the schema, or a sequence of names in another order; or the scan of another
            object.
        clamped: variables held fixed, ``{name: code, label or codes per chain}``.
        init: first states, what broadcasts to (num_chains, d); uniform independent levels when None. Clamped variables
            keep their clamped values.
        edges: sets of variables whose cells are counted, besides all single variables.
        seed: of everything random, or what it is drawn from (None: the global generator). Chain c has its own stream,
            which depends on (seed, c) alone: more chains or threads change nothing (the torch engine has one stream
            for all chains).
        engine: "compiled" walks decision graphs and tables (CPU); "torch" takes every conditional on any device, one
            call per update; "auto" is compiled where all variables that are drawn allow it. Models
            with few neighbours become tables by :meth:`~pyro_hoim.dependency_network.DependencyConditionals.tabulated`.
        precision: of the compiled conditionals; in float32 probabilities have errors of 1e-7, and levels below that
            may never be drawn.
        check: refuse networks that have no single limiting law and evidence of probability zero, as far as
            :func:`~pyro_hoim.dependency_network.check_ergodic` knows. It costs an enumeration of up to 65,536 states,
            and nothing where no probability is zero.

    Raises:
        InputError: arguments out of range, a scan that leaves a free variable out, a network without a single limiting
            law or evidence of probability zero (the states are named), an engine that cannot do it.
        InputTypeError: arguments of the wrong type.
        UnknownNameError: a name or label that is not in the domain.

    Warns:
        ConvergenceWarning: zero probabilities leave it open whether there is a single limiting law.

    References:
        Paper 5, algorithms 1 and 3; David Heckerman et al., Dependency networks for inference, collaborative
        filtering, and data visualization, JMLR 1, 2000.

    Example:
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 3})
        >>> a = TableConditional(domain, "a", ["b"], torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]))
        >>> b = TableConditional(domain, "b", [], torch.tensor([0.2, 0.3, 0.5]))
        >>> chains = PseudoGibbsChains(DependencyConditionals([a, b]), 100, engine="torch", clamped={"b": "2"})
        >>> record = chains.sweep(20, thin=2, counts=True)
        >>> record.num_records, record.counts[2:].tolist()
        (10, [0.0, 0.0, 1000.0])
    """

    def __init__(
        self,
        conditionals: DependencyConditionals,
        num_chains: int,
        *,
        scan: ScanLike = "random",
        clamped: Mapping[str, Any] | None = None,
        init: torch.Tensor | None = None,
        edges: Sequence[Sequence[str]] = (),
        seed: int | torch.Generator | None = 0,
        engine: WalkerName = "auto",
        precision: torch.dtype = torch.float32,
        check: bool = True,
    ) -> None:
        self._conditionals = checked_conditionals(conditionals)
        self._num_chains, self._seed = check_whole(num_chains, "num_chains"), seed_from(seed)
        check_choice(precision, (torch.float32, torch.float64), "precision")
        # What is drawn, in which order, and with which probabilities.
        domain = self.domain
        check_cells(self._num_chains, len(domain), "num_chains", "take fewer chains", "chains")
        fixed = checked_clamps(domain, clamped or {}, [self._num_chains])
        self._clamped = tuple(domain.names[i] for i in fixed)
        self._scan = checked_scan(domain, drawn_variables(domain, fixed), scan)
        self._places = domain.indices(self._scan.order)
        weights = self._scan.selection
        self._selection = None if weights is None else np.array(list(weights.values()), dtype=np.float64)
        self._precision = precision
        # Cells that records count: of single variables, and of the sets asked for.
        counted = [*((name,) for name in domain.names), *edges]
        self._hypergraph = InteractionHypergraph(domain, counted, hierarchical=False)
        # First states, with the clamped variables at their values.
        states = self._first_states() if init is None else checked_codes(domain, init, [self._num_chains], "init").cpu()
        self._init = "" if init is None else checksum({"init": states})
        for i, codes in fixed.items():
            states[:, i] = codes
        # A chain without a single limiting law draws from none.
        if check:
            ergodicity = check_ergodic(self._conditionals, clamped, scan=self._scan)
            ergodicity.require_law(", or pass check=False to sample all the same")
        self._engine = self._make_engine(engine)
        self._engine.set_codes(states[None])
        self._num_updates = 0

    recordable = ("statistics", "draws")
    mixing_hint = "smooth the conditionals"
    identity = "network, scan, clamped value, engine, precision, seed or number of chains"

    def __repr__(self) -> str:
        return (
            f"PseudoGibbsChains({len(self._places)} of {len(self.domain)} variables, chains={self._num_chains}, "
            f"{self._scan.kind} scan, {type(self._engine).__name__})"
        )

    def _first_states(self) -> torch.Tensor:
        """Uniform states, long (num_chains, d); those of a chain depend on (seed, chain) alone."""
        generator = np.random.Generator(np.random.Philox(key=self._seed ^ 0x5EED))
        uniforms = generator.random((self._num_chains, len(self.domain)))
        return torch.from_numpy((uniforms * np.array(self.domain.cardinalities, dtype=np.int64)).astype(np.int64))

    def _make_engine(self, name: WalkerName) -> ConditionalEngine | WalkerEngine:
        check_choice(name, ("auto", "compiled", "torch"), "engine")
        nodes: list[NodeConditional] = [self._conditionals.nodes[i] for i in self._places]
        others = [node.variable for node in nodes if not is_walkable(node)]
        common = self._hypergraph, nodes, self._selection, self._num_chains, self._seed
        if name == "torch" or (name == "auto" and others) or not nodes:
            # Where the tables of conditionals are; the CPU if there are none.
            devices = {node.probs.device for node in nodes if isinstance(node, LeafConditional | TableConditional)}
            if len(devices) > 1:
                raise unexpected(
                    "conditionals", "tables on one device", received=sorted(map(str, devices)), code="conflict"
                )
            return ConditionalEngine(*common, (devices.pop() if devices else torch.device("cpu")))
        if others:
            problem = (
                f"'compiled' needs decision graphs or tables on the CPU, which the conditional of {others[0]!r} is not"
            )
            raise conflict("engine", problem, "use 'torch' or 'auto', or the network's tabulated()")
        return WalkerEngine(*common, self._precision)

    @property
    def conditionals(self) -> DependencyConditionals:
        """The network."""
        return self._conditionals

    @property
    @override
    def domain(self) -> Domain:
        return self._conditionals.domain

    @property
    @override
    def hypergraph(self) -> InteractionHypergraph:
        return self._hypergraph

    @property
    def num_updates(self) -> int:
        """Updates of every chain so far."""
        return self._num_updates

    @property
    @override
    def num_sweeps(self) -> int:
        return self._num_updates // max(1, len(self._places))

    @property
    def scan(self) -> Scan:
        """The scan of the variables that are drawn: neither clamped nor of one level."""
        return self._scan

    @property
    @override
    def states(self) -> torch.Tensor:
        return self._engine.get_codes()[0]

    @override
    def set_states(self, states: torch.Tensor) -> None:
        codes = checked_codes(self.domain, states, [self._num_chains], "states")
        self._init = checksum({"init": codes})
        self._engine.set_codes(codes[None])

    @override
    def sweep(self, num_sweeps: int = 1, *, thin: int = 0, counts: bool = False, states: bool = False) -> Record:
        """Move all chains by sweeps; look at them after every ``thin`` sweeps.

        Args:
            num_sweeps: how many sweeps.
            thin: sweeps between two records; at least 1 where something is recorded, else refused.
            counts: record how many chains were in every cell of every edge of ``hypergraph``, summed over records,
                (num_terms,).
            states: record the states (records, num_chains, d).
        """
        size = max(1, len(self._places))  # where every variable is clamped or has one level time passes all the same
        updates, wait = check_whole(num_sweeps, "num_sweeps", 0) * size, check_whole(thin, "thin", 0) * size
        return self.update(updates, thin=wait, counts=counts, states=states)

    def update(self, num_updates: int = 1, *, thin: int = 0, counts: bool = False, states: bool = False) -> Record:
        r"""Move all chains by single updates; look at them after every ``thin`` updates.

        A sequential scan goes on where it stopped. With ``thin=1`` its records are at all places of the order in turn,
        and their mean tends to that of the cyclic laws (paper 5, equation 3). Variables with one level have no place
        here, but one among the laws of :func:`~pyro_hoim.dependency_network.cyclic_laws`.

        Arguments and errors are those of :meth:`sweep`, with updates in the place of sweeps.
        """
        num_updates, thin = check_whole(num_updates, "num_updates", 0), checked_thin(thin, counts, states)
        record = self._engine.move(self._num_updates, num_updates, Wanted(thin, counts, False, states))
        self._num_updates += num_updates
        return record

    @property
    @override
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        parts = [self.domain.to_json(), self._num_chains, self._seed, self._scan.kind, self._places, self._clamped]
        parts += [self._hypergraph.to_json(), type(self._engine).__name__, str(self._precision)]
        digest.update(json.dumps(parts).encode())
        if self._selection is not None:
            digest.update(self._selection.tobytes())
        fixed = [self.domain.index(name) for name in self._clamped]
        digest.update(self.states[:, fixed].cpu().contiguous().numpy().tobytes())
        for i in self._places:
            digest.update(_node_digest(self._conditionals.nodes[i]))
        return digest.hexdigest()

    @property
    @override
    def sweeps_per_call(self) -> int:
        is_compiled = not isinstance(self._engine, ConditionalEngine)
        limit, least = (_UPDATES_PER_CALL, 16) if is_compiled else (_UPDATES_PER_CALL_TORCH, 2**11)
        return max(1, min(2**20, limit // (max(1, len(self._places)) * max(self._num_chains, least))))

    @override
    def _state(self) -> dict[str, torch.Tensor]:
        state = {f"engine.{name}": value for name, value in self._engine.state().items()}
        return {**state, "num_updates": torch.tensor(self._num_updates)}

    @override
    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        self._engine.load_state(part_of(state, "engine."))
        self._num_updates = int(state["num_updates"])


def _node_digest(node: NodeConditional) -> bytes:
    """Bytes that tell a conditional from others: its table, or else its values at some states to three digits."""
    digest = hashlib.sha256(f"{type(node).__name__} {node.variable} {node.reads}".encode())
    if isinstance(node, LeafConditional | TableConditional):
        source = node.graph.to_json() if isinstance(node, LeafConditional) else list(node.parents)
        digest.update(json.dumps(source).encode())
        digest.update(node.probs.detach().double().cpu().contiguous().numpy().tobytes())
        return digest.digest()
    # A conditional without a table is told apart by its values, rounded since devices differ.
    uniforms = np.random.Generator(np.random.Philox(key=1)).random((32, len(node.domain)))
    states = torch.from_numpy((uniforms * np.array(node.domain.cardinalities)).astype(np.int64))
    with torch.no_grad():
        values = node.log_probs(states).double().clamp(min=-math.log(1e12)) * 1000
    digest.update(values.round().long().cpu().contiguous().numpy().tobytes())
    return digest.digest()
