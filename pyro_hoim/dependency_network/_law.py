"""What all copies of one dependency network share: the network, its scan, and its law once that was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

import torch

from .._modes import plain_mode
from ..core.laws.expansion import list_states
from ..core.laws.traces import refuse_traced
from ..errors import check_choice, check_whole, out_of_reach, refused, size_text
from .adapted_conditionals import device_of, tables_of
from .chains.ergodicity import check_ergodic
from .chains.pseudo_gibbs import PseudoGibbsChains
from .conditionals import DependencyConditionals
from .scan import Scan, checked_scan
from .stationary.laws import StationaryLaw, StationaryMethod, stationary_law

NetworkSampler = Literal["auto", "exact", "pseudo-gibbs"]

_RECORDED_CODES = 2**26


@dataclass(eq=False)
class NetworkLaw:
    """A network with its scan; arguments are those of :class:`~pyro_hoim.dependency_network.DependencyNetwork`."""

    conditionals: DependencyConditionals
    scan: Scan
    sampler: NetworkSampler
    num_sweeps: int
    method: StationaryMethod
    max_states: int

    def __post_init__(self) -> None:
        self.batch_shape = self.conditionals.batch_shape
        self.domain = self.conditionals.domain
        check_choice(self.sampler, get_args(NetworkSampler), "sampler")
        check_choice(self.method, get_args(StationaryMethod), "method")
        check_whole(self.num_sweeps, "num_sweeps")
        check_whole(self.max_states, "max_states", 0)
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

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tables of probabilities of the nodes that have one."""
        return [table for table in map(tables_of, self.conditionals.nodes) if table is not None]

    @cached_property
    def probe(self) -> torch.Tensor:
        """An empty result of the conditionals, which tells precision and device."""
        device = next((d for d in map(device_of, self.conditionals.nodes) if d is not None), torch.device("cpu"))
        with plain_mode(*self.tensors), torch.no_grad():
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
        with plain_mode(*self.tensors):
            return stationary_law(self.conditionals, scan=self.scan, method=self.method, max_states=self.max_states)

    @cached_property
    def log_probs(self) -> torch.Tensor:
        """Log-probability of every cell (*cardinalities), in the precision and on the device of the network."""
        stationary, probe = self.stationary, self.probe
        with plain_mode(*self.tensors):
            return stationary.probs.log().to(probe)

    def moment(self, power: int) -> torch.Tensor:
        """Expectation of a power of every code (d,), like :attr:`probe`."""
        probs = self.stationary.probs
        found: list[torch.Tensor] = []
        for i, size in enumerate(self.domain.cardinalities):
            gone = [j for j in range(probs.dim()) if j != i]
            law = probs.sum(gone) if gone else probs
            found.append(law @ torch.arange(size, dtype=probs.dtype, device=probs.device) ** power)
        return (torch.stack(found) if found else probs.new_zeros(0)).to(self.probe)

    def clamped(self, evidence: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the distribution over the remaining variables."""
        rest = self.conditionals.condition(evidence)
        if evidence and not rest.batch_shape and (reason := check_ergodic(self.conditionals, evidence).impossible):
            raise refused("evidence", reason, "smooth the conditionals or leave a variable out", "impossible")
        scan = checked_scan(self.domain, rest.domain.names, self.scan)
        options = {option.name: getattr(self, option.name) for option in fields(self)}
        return {**options, "conditionals": rest, "scan": scan}

    def check_gradient(self, what: str) -> None:
        """Refuse what would silently have no gradient."""
        if torch.is_grad_enabled() and any(table.requires_grad for table in self.tensors):
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
            scan=self.scan,
            seed=int(torch.randint(2**62, ())),
            precision=torch.float64,
            check=False,
        )
        chains.sweep(self.num_sweeps)
        return chains.states if self.scan.selection is not None else self._at_any_place(chains)

    def _check_chains(self) -> None:
        """Once: an error where chains have more than one limiting law, a warning where that is left open."""
        if self._is_checked:
            return
        check_ergodic(self.conditionals, scan=self.scan).require_law(stacklevel=5)
        self._is_checked = True

    def _at_any_place(self, chains: PseudoGibbsChains) -> torch.Tensor:
        """States of chains that each stop at a place of the order drawn for it, whose law is the mean of all places."""
        codes, order = chains.states, self.scan.order
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
