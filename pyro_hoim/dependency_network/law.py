r"""Dependency networks as Pyro distributions: the law at which pseudo-Gibbs sampling settles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import torch
from pyro.distributions import constraints

from .._modes import plain_mode
from ..core.law import Law
from ..core.laws.expansion import list_states
from ..core.laws.shared import FiniteLaw
from ..core.laws.traces import refuse_traced
from ..errors import check_choice, check_whole, out_of_reach, refused, size_text, wrong_type
from ..runs.container import DEPENDENCY_NETWORK
from .chains.ergodicity import check_ergodic
from .chains.pseudo_gibbs import PseudoGibbsChains
from .conditionals import DependencyConditionals, checked_conditionals, device_of, tables_of
from .scan import Scan, ScanLike, checked_scan
from .stationary import StationaryLaw, StationaryMethod, stationary_law

# What all copies of one dependency network share: the network, its scan, and its law once that was found.

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
        moments: list[torch.Tensor] = []
        for i, size in enumerate(self.domain.cardinalities):
            gone = [j for j in range(probs.dim()) if j != i]
            law = probs.sum(gone) if gone else probs
            moments.append(law @ torch.arange(size, dtype=probs.dtype, device=probs.device) ** power)
        return (torch.stack(moments) if moments else probs.new_zeros(0)).to(self.probe)

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
        if self.draws_exactly:
            self.require("sample")
            flat = self.stationary.probs.reshape(-1).cumsum(0)
            uniforms = torch.rand(shape.numel(), dtype=torch.float64) * flat[-1]
            index = torch.searchsorted(flat, uniforms, right=True).clamp(max=len(flat) - 1)
            codes = list_states(self.domain.cardinalities, index.device)[index]
        else:
            # Once: an error where chains have more than one limiting law, a warning where that is left open.
            if not self._is_checked:
                check_ergodic(self.conditionals, scan=self.scan).require_law(stacklevel=3)
                self._is_checked = True
            options: dict[str, Any] = {"seed": int(torch.randint(2**62, ())), "precision": torch.float64}
            chains = PseudoGibbsChains(self.conditionals, shape.numel(), scan=self.scan, check=False, **options)
            chains.sweep(self.num_sweeps)
            codes = chains.states if self.scan.selection is not None else self._at_any_place(chains)
        return codes.to(self.probe.device).reshape((*shape, len(self.domain)))

    def _at_any_place(self, chains: PseudoGibbsChains) -> torch.Tensor:
        """States of chains that each stop at a place of the order drawn for it, whose law is the mean of all places."""
        codes, order = chains.states, self.scan.order
        if not order:
            return codes
        is_drawn = torch.tensor([self.domain[name].cardinality > 1 for name in order])
        # Every chain stops after the variable at its place; those of one level are never updated.
        wanted = is_drawn.cumsum(0)[torch.randint(len(order), (len(codes),))].to(codes.device)
        size = max(1, _RECORDED_CODES // max(1, codes.numel()))
        for start in range(0, int(is_drawn.sum()), size):
            num_updates = min(size, int(is_drawn.sum()) - start)
            # A portion of the sweep is recorded, as memory allows.
            record = chains.update(num_updates, thin=1, states=True).states
            assert record is not None
            rows = ((wanted > start) & (wanted <= start + num_updates)).nonzero().squeeze(-1)
            position = wanted[rows] - start - 1
            codes[rows] = record[position.cpu(), rows.cpu()].to(codes)
        return codes


class DependencyNetwork(FiniteLaw):
    r"""The law of d finite variables that a dependency network defines by pseudo-Gibbs sampling.

    .. math:: \pi(x) = \sum_i c_i \, \pi(x_{-i}) \, \theta_i(x_i \mid x_{-i})

    A value is a vector of level codes in schema order, so the event shape is (d,). The conditionals
    :math:`\theta_i` need not belong to one joint law; :math:`\pi` is what a chain that updates variable i with
    probability :math:`c_i` settles at. With a sequential scan it is the mean of the laws at all places of a sweep.
    The law has no formula: up to ``max_states`` joint states it is enumerated, and probabilities, moments, marginals
    and independent draws are exact. Beyond, these raise IntractableError and draws are the ends of pseudo-Gibbs chains.
    ``log_pseudo_prob`` is exact at any size, and differentiable in the tables, which ``log_prob`` is not: in a Pyro
    program of many variables write ``pyro.factor("rows", network.log_pseudo_prob(x).sum())``, not an observed site.

    Args:
        conditionals: one conditional per variable, or an object that holds them as ``conditionals``.
        scan: "random" with equal probabilities, a mapping from names to the probabilities :math:`c_i` of a random scan
            (positive, with sum one), "sequential" in schema order, or a sequence of all names in another order.
        sampler: "exact" draws from the enumerated law, "pseudo-gibbs" takes the last states of independent chains,
            "auto" (default) is exact up to ``max_states`` states.
        num_sweeps: sweeps of a pseudo-Gibbs chain from uniform levels to a draw; whether they are enough is not known.
        method: how the enumerated law is found, as in :func:`~pyro_hoim.dependency_network.stationary_law`.
        max_states: most joint states for which the law is enumerated. 2^16 take seconds.
        validate_args: as in every distribution; values are checked in any case.

    Shape:
        samples (*sample, *batch, d) of dtype ``torch.long``; :meth:`log_prob` takes integer or floating codes and
        returns (*sample, *batch). The batch shape is that of the conditionals, () for single tables, until
        :meth:`expand`. A batch of networks has pseudo-likelihoods, conditionals and :meth:`condition` alone.

    Raises:
        InputTypeError: no network, or arguments of the wrong type.
        InputError: an option that is out of range, a scan that does not name every variable. On use, a
            value of a wrong shape or outside the support, or a network with more than one limiting law (the states are
            named).
        UnknownNameError: an unknown name.

    Warns:
        ConvergenceWarning: on use, where zero probabilities leave it open whether chains forget their start, or the
            enumerated law did not settle.

    References:
        Paper 5, sections 2, 3 and 5; further sources with
        :class:`~pyro_hoim.dependency_network.DependencyConditionals`.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> copy, fair = torch.tensor([[0.9, 0.1], [0.1, 0.9]]), torch.tensor([0.5, 0.5])
        >>> nodes = [TableConditional(domain, "a", ["b"], copy), TableConditional(domain, "b", [], fair)]
        >>> network = DependencyNetwork(DependencyConditionals(nodes))
        >>> network.probs
        tensor([[0.3500, 0.1500],
                [0.1500, 0.3500]])
    """

    model_kind: ClassVar[str] = DEPENDENCY_NETWORK

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}  # type: ignore[override]
    _law: NetworkLaw

    def __init__(
        self,
        conditionals: DependencyConditionals,
        *,
        scan: ScanLike = "random",
        sampler: NetworkSampler = "auto",
        num_sweeps: int = 100,
        method: StationaryMethod = "auto",
        max_states: int = 2**16,
        validate_args: bool | None = None,
    ) -> None:
        found = checked_conditionals(conditionals, single=False)
        checked = checked_scan(found.domain, found.domain.names, scan)
        self._law = NetworkLaw(found, checked, sampler, num_sweeps, method, max_states)
        self._settle(self._law.batch_shape, len(self._law.domain), validate_args)

    @property
    def conditionals(self) -> DependencyConditionals:
        """The conditional laws."""
        return self._law.conditionals

    @property
    def scan(self) -> Scan:
        """Which variable a chain updates next."""
        return self._law.scan

    @property
    def max_states(self) -> int:
        """Most joint states for which the law is enumerated."""
        return self._law.max_states

    @classmethod
    def infer_shapes(  # type: ignore[override]
        cls,
        *,
        conditionals: DependencyConditionals,
        **other: Any,  # noqa: ARG003
    ) -> tuple[torch.Size, torch.Size]:
        """Pair of batch and event shape; further arguments are ignored."""
        return conditionals.batch_shape, torch.Size((len(conditionals.domain),))

    def __repr__(self) -> str:
        return self._repr(repr(self.conditionals), f"scan={self.scan.kind!r}")

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-probability in nats, (*sample, *batch), from the enumerated law; minus infinity for states left for good.

        Raises:
            IntractableError: more than :attr:`max_states` joint states; use :meth:`log_pseudo_prob`.
            InputError: a value of the wrong shape or outside the support; tables that require a
                gradient, which this has not; a network with more than one limiting law.
        """
        self._law.require("log_prob")
        self._law.check_gradient("log_prob")
        self._validate_sample(value)  # also without validation: a wrong code would select another state
        # The place of a state in the flat table, the last variable fastest.
        codes = value.long()
        index = torch.zeros(codes.shape[:-1], dtype=torch.long, device=codes.device)
        for i, size in enumerate(self.domain.cardinalities):
            index = index * size + codes[..., i]
        log_probs = self._law.log_probs.reshape(-1)[index]
        return log_probs.expand(self._sample_batch(value))

    def log_pseudo_prob(self, value: torch.Tensor) -> torch.Tensor:
        r"""Log pseudo-likelihood :math:`\sum_i \log \theta_i(x_i \mid x_{-i})`, differentiable in the tables; nats.

        It is not a log-probability, and costs one look-up per variable, whatever the number of states.
        """
        self._validate_sample(value)
        return self.conditionals.log_pseudo_prob(value).expand(self._sample_batch(value))

    @property
    def stationary_law(self) -> StationaryLaw:
        """The enumerated law with the way it was found, found once; errors as those of :meth:`log_prob`."""
        self._law.require("stationary_law")
        return self._law.stationary

    @property
    def log_prob_table(self) -> torch.Tensor:
        """Log-probability of every cell, (*batch, *cardinalities); see :meth:`log_prob`."""
        self._law.require("log_prob_table")
        self._law.check_gradient("log_prob_table")
        return self._expanded(self._law.log_probs, len(self.domain))

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Draws (*sample_shape, *batch, d) of level codes: exact and independent where :attr:`sample_is_exact`.

        Otherwise every draw is the last state of a pseudo-Gibbs chain of its own, after :attr:`sample_burn_in` sweeps
        from uniform levels; for a sequential scan at a place of the order drawn at random.

        Raises:
            InputError: the network has more than one limiting law, as far as that is known; the states are named.
            IntractableError: ``sampler="exact"`` and more than :attr:`max_states` joint states.
        """
        codes = torch.zeros((), dtype=torch.long, device=self._law.device)
        return self._drawn(sample_shape, self._law.draw, codes)

    def _require_enumerable(self) -> None:
        self._law.require("enumerate_support")

    def marginal(self, names: Iterable[str]) -> Law:
        """The law of some variables, in schema order: their table under the enumerated law; see :meth:`log_prob`."""
        if isinstance(names, str):
            raise wrong_type("names", "a collection of variable names", received=f"the string {names!r}")
        names = tuple(names)
        self.domain.indices(names)
        self._law.require("marginal")
        return Law(self.domain, self._law.stationary.probs).marginal(names)

    def _moments(self, what: str) -> tuple[torch.Tensor, torch.Tensor]:
        self._law.require(what)
        first = self._law.moment(1)
        return first, (self._law.moment(2) - first**2).clamp(min=0)

    @property
    def mode(self) -> torch.Tensor:
        """A most probable state of the enumerated law, (*batch, d) of dtype ``torch.long``."""
        self._law.require("mode")
        best = self._law.stationary.probs.reshape(-1).argmax()
        state = list_states(self.domain.cardinalities, torch.device("cpu"))[best].to(self._law.device)
        return self._expanded(state, 1)

    def entropy(self) -> torch.Tensor:
        """Shannon entropy of the enumerated law in nats, (*batch)."""
        self._law.require("entropy")
        return torch.special.entr(self._law.stationary.probs).sum().to(self._law.probe).expand(self.batch_shape)

    def condition(self, evidence: Mapping[str, str | int | torch.Tensor]) -> DependencyNetwork:
        r"""The network of the remaining variables with some clamped: the law :math:`\pi'(x \mid x_C)`.

        It is what conditional pseudo-Gibbs sampling settles at. Unless the conditionals belong to one joint law, it is
        *not* the conditional law :math:`\pi(x \mid x_C)` of this network's own law; near evidence of small probability
        it may be far off. Evidence and errors are those of :meth:`DependencyConditionals.condition`; evidence that a
        single network is known to give probability zero is refused.
        """
        return self._in_batch(type(self)(**self._law.clamped(evidence), validate_args=self._own_validation))
