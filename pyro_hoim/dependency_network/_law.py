"""What all copies of one dependency network share: the network, its scan, and its law once that was found."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

import torch

from ..core.laws.expansion import list_states
from ..core.laws.traces import refuse_traced
from ..errors import (
    ConvergenceWarning,
    check_names,
    check_type,
    check_whole,
    conflict,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_type,
)
from .adapted_conditionals import ClampedConditional
from .chains.ergodicity import check_ergodic
from .chains.pseudo_gibbs import PseudoGibbsChains
from .conditionals import DependencyConditionals
from .scan import selection_probs
from .stationary.laws import StationaryLaw, StationaryMethod, StationaryScan, stationary_law

NetworkSampler = Literal["auto", "exact", "pseudo-gibbs"]

_RECORDED_CODES = 2**26


class NetworkLaw:
    """A network with its scan; arguments are those of :class:`~pyro_hoim.dependency_network.DependencyNetwork`."""

    def __init__(
        self,
        conditionals: DependencyConditionals,
        scan: StationaryScan,
        selection: Mapping[str, float] | None,
        order: Sequence[str] | None,
        sampler: NetworkSampler,
        num_sweeps: int,
        method: StationaryMethod,
        max_states: int,
    ) -> None:
        found = getattr(conditionals, "conditionals", conditionals)
        if not isinstance(found, DependencyConditionals):
            hint = "DependencyConditionals.from_model makes them of a model"
            raise wrong_type("conditionals", "DependencyConditionals", conditionals, hint)
        domain = found.domain
        for name, value, allowed in (
            ("scan", scan, get_args(StationaryScan)),
            ("sampler", sampler, get_args(NetworkSampler)),
            ("method", method, get_args(StationaryMethod)),
        ):
            if value not in allowed:
                raise unexpected(name, f"one of {allowed}", value, code="unknown-choice")
        for name, number, least in (("num_sweeps", num_sweeps, 1), ("max_states", max_states, 0)):
            check_whole(number, name, least)
        if scan == "sequential" and selection is not None:
            raise conflict("selection", "belongs to the random scan", "pass scan='random', or leave it out")
        if scan == "random" and order is not None:
            raise conflict("order", "belongs to the sequential scan", "pass scan='sequential', or leave it out")
        check_type(selection, Mapping | None, "selection", "a mapping by name")
        if isinstance(order, str):
            raise wrong_type("order", "a sequence of names", received=f"the string {order!r}")
        self.conditionals = found
        self.batch_shape = found.batch_shape
        self.domain = domain
        self.scan: StationaryScan = scan
        self.selection: dict[str, float] | None = None
        self.order: tuple[str, ...] | None = None
        if scan == "random" and len(domain):
            check_names(selection or (), domain.names, "selection")
            weights = selection_probs(domain, domain.names, selection).tolist()
            self.selection = dict(zip(domain.names, weights, strict=True))
        elif scan == "random":
            self.selection = {}
        else:
            self.order = domain.names if order is None else tuple(order)
            check_names(self.order, domain.names, "order")
            domain.indices(self.order)
            if missing := [name for name in domain.names if name not in self.order]:
                raise refused("order", f"expected every variable, but {missing[0]!r} is missing", code="missing-part")
        self.sampler: NetworkSampler = sampler
        self.num_sweeps = num_sweeps
        self.method: StationaryMethod = method
        self.max_states = max_states
        self._is_checked = False

    @property
    def is_enumerable(self) -> bool:
        """Whether the law is within the budget of states."""
        return self.domain.num_states <= self.max_states

    @property
    def draws_exactly(self) -> bool:
        """Whether states are drawn from the enumerated law."""
        return self.sampler == "exact" or (self.sampler == "auto" and self.is_enumerable)

    def require(self, what: str) -> None:
        """Raise where the law cannot be enumerated, or there is a batch of networks."""
        self.conditionals.require_single(what)
        if not self.is_enumerable:
            problem = (
                "the law of a dependency network is known only by enumeration; this one needs "
                f"{size_text(self.domain.num_states, 'states')}, the budget is max_states={self.max_states}. Raise "
                "max_states, or use log_pseudo_prob; in a program, pyro.factor(name, network.log_pseudo_prob(x).sum())"
            )
            raise out_of_reach(what, problem)

    @cached_property
    def probe(self) -> torch.Tensor:
        """An empty result of the conditionals, which tells precision and device."""
        device = next((d for d in map(_device, self.conditionals.nodes) if d is not None), torch.device("cpu"))
        with torch.no_grad():
            return self.conditionals.log_conditionals(
                torch.zeros(0, *(1 for _ in self.batch_shape), len(self.domain), dtype=torch.long, device=device)
            ).detach()

    @property
    def device(self) -> torch.device:
        """Where the tables are."""
        return self.probe.device

    @cached_property
    def stationary(self) -> StationaryLaw:
        """The law, found once, and never inside a traced program."""
        refuse_traced("conditionals", "the stationary law", ", or ask for network.stationary_law before the trace")
        return stationary_law(
            self.conditionals,
            scan=self.scan,
            selection=self.selection or None,
            order=self.order,
            method=self.method,
            max_states=self.max_states,
        )

    @cached_property
    def log_probs(self) -> torch.Tensor:
        """Log-probability of every cell (*cardinalities), in the precision and on the device of the network."""
        return self.stationary.probs.log().to(self.probe)

    def moment(self, power: int) -> torch.Tensor:
        """Expectation of a power of every code (d,), like :attr:`probe`."""
        axes = range(len(self.domain))
        found = torch.zeros(len(self.domain), dtype=torch.float64)
        for i, size in enumerate(self.domain.cardinalities):
            gone = [j for j in axes if j != i]
            law = self.stationary.probs.sum(gone) if gone else self.stationary.probs
            found[i] = law @ torch.arange(size, dtype=torch.float64) ** power
        return found.to(self.probe)

    def clamped(self, evidence: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the distribution over the remaining variables."""
        rest = self.conditionals.condition(evidence)
        if evidence and not rest.batch_shape and (reason := check_ergodic(self.conditionals, evidence).impossible):
            raise refused("evidence", reason, "smooth the conditionals or leave a variable out")
        names = rest.domain.names
        selection = None
        if self.selection and names:
            weights = selection_probs(self.domain, names, self.selection).tolist()
            selection = dict(zip(names, weights, strict=True))
        return {
            "conditionals": rest,
            "scan": self.scan,
            "selection": selection,
            "order": None if self.order is None else [name for name in self.order if name in names],
            "sampler": self.sampler,
            "num_sweeps": self.num_sweeps,
            "method": self.method,
            "max_states": self.max_states,
        }

    def check_gradient(self, what: str) -> None:
        """Refuse what would silently have no gradient."""
        if torch.is_grad_enabled() and any(_requires_grad(node) for node in self.conditionals.nodes):
            problem = "the law of a dependency network is found without gradients, but a table requires one"
            raise refused(what, problem, "use log_pseudo_prob, which has them, or torch.no_grad()", code="no-method")

    def draw(self, shape: torch.Size) -> torch.Tensor:
        """States (*shape, d) with PyTorch's global generator."""
        self.conditionals.require_single("sample")
        found = self._exact_codes(shape.numel()) if self.draws_exactly else self._chain_codes(shape.numel())
        return found.to(self.probe.device).reshape((*shape, len(self.domain)))

    def _exact_codes(self, num_draws: int) -> torch.Tensor:
        """Independent states (num_draws, d) of the enumerated law."""
        self.require("sample")
        flat = self.stationary.probs.reshape(-1).cumsum(0)
        uniforms = torch.rand(num_draws, dtype=torch.float64) * flat[-1]
        index = torch.searchsorted(flat, uniforms, right=True).clamp(max=len(flat) - 1)
        return list_states(self.domain.cardinalities, index.device)[index]

    def _chain_codes(self, num_draws: int) -> torch.Tensor:
        """Last states (num_draws, d) of as many chains."""
        self._check_chains()
        chains = PseudoGibbsChains(
            self.conditionals,
            num_draws,
            scan=self.selection or (self.scan if self.order is None else self.order),
            seed=int(torch.randint(2**62, ())),
            precision=torch.float64,
            check=False,
        )
        chains.sweep(self.num_sweeps)
        return chains.states if self.order is None else self._at_any_place(chains, self.order)

    def _check_chains(self) -> None:
        """Once: an error where chains have more than one limiting law, a warning where that is left open."""
        if self._is_checked:
            return
        found = check_ergodic(self.conditionals, scan=self.scan if self.order is None else self.order)
        if found.has_unique_law is False:
            raise refused("conditionals", found.finding, found.hint, "no-method")
        if found.has_unique_law is None:
            warnings.warn(ConvergenceWarning(f"conditionals: {found.message}"), stacklevel=4)
        self._is_checked = True

    def _at_any_place(self, chains: PseudoGibbsChains, order: tuple[str, ...]) -> torch.Tensor:
        """States of chains that each stop at a place of the order drawn for it, whose law is the mean of all places."""
        codes = chains.states
        if not order:
            return codes
        is_drawn = torch.tensor([self.domain[name].cardinality > 1 for name in order])
        wanted = is_drawn.cumsum(0)[torch.randint(len(order), (len(codes),))].to(codes.device)
        size = max(1, _RECORDED_CODES // max(1, codes.numel()))
        for start in range(0, int(is_drawn.sum()), size):
            num_updates = min(size, int(is_drawn.sum()) - start)
            record = chains.update(num_updates, thin=1, states=True).states
            assert record is not None
            rows = ((wanted > start) & (wanted <= start + num_updates)).nonzero().squeeze(-1)
            place = wanted[rows] - start - 1
            codes[rows] = record[place.cpu(), rows.cpu()].to(codes)
        return codes


def _tables_of(node: Any) -> torch.Tensor | None:
    """Parameters of a conditional, where it has a tensor of them."""
    if isinstance(node, ClampedConditional):
        return _tables_of(node.node)
    found = getattr(node, "probs", getattr(getattr(node, "model", None), "tables", None))
    return found if isinstance(found, torch.Tensor) else None


def _device(node: object) -> torch.device | None:
    tables = _tables_of(node)
    return None if tables is None else tables.device


def _requires_grad(node: object) -> bool:
    tables = _tables_of(node)
    return tables is not None and tables.requires_grad
