"""Gibbs sampling as Pyro kernels: block Gibbs of log-linear laws, pseudo-Gibbs, Gibbs of generalized root models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from typing_extensions import override

from ..dependency_network.chains.pseudo_gibbs import PseudoGibbsChains
from ..dependency_network.conditionals import DependencyConditionals, checked_conditionals
from ..errors import check_type, check_whole, conflict, out_of_range, unexpected, wrong_type
from ..generalized_root.chains.gibbs import RootChains, checked_energy
from ..generalized_root.energy import GeneralizedRootEnergy
from ..log_linear.chains.gibbs import GibbsChains
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.laws.law import HierarchicalLogLinear
from .kernels import LaneKernel, checked_params, no_chain


class GibbsKernel(LaneKernel):
    r"""Chains of any family as a Pyro kernel of one site; no normalising constant is needed.

    The target is what the chains settle at, given the clamped variables. One transition is ``num_sweeps`` sweeps. The
    kernel runs in ``pyro.infer.MCMC``, there with several chains in processes of their own (started by "spawn" or
    "fork"), and in :func:`~pyro_hoim.inference.run_mcmc`, where all chains are one tensor and move together. Pyro's
    MCMC breaks on integer sites, so codes of levels are emitted as floats, which are exact; :meth:`decode` makes
    ``torch.long`` of them, and ``run_mcmc`` does that by itself.

    A family sets the class attributes and says how chains are made and what is told of a draw.

    Args:
        num_sweeps: sweeps per transition.
        clamped: variables held fixed, ``{name: value}`` as the chains of the family take them.
        num_chains: None for one chain without a dimension of its own, which is what ``pyro.infer.MCMC`` expects; a
            number puts a dimension of so many chains in front of every value.
        site: name of the site.
        options: further arguments of the chains.

    Shape:
        values (\*batch, d), or (num_chains, \*batch, d); batch is that of the law.

    Raises:
        InputError: numbers below 1; when a chain is set up all that the chains refuse.

    Randomness:
        :meth:`setup` draws one seed from PyTorch's global generator, so ``pyro.set_rng_seed`` makes a run
        reproducible; the processes of Pyro's MCMC have seeds of their own, hence streams of their own.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> pair = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
        >>> kernel = BlockGibbs(HierarchicalLogLinear(pair, torch.zeros(5)), engine="torch").with_chains(4)
        >>> kernel.setup(0)
        >>> kernel.sample(kernel.initial_params)["x"].shape
        torch.Size([4, 2])
        >>> kernel.decode({"x": torch.tensor([1.0, 2.0])})["x"]
        tensor([1, 2])
    """

    model_noun: ClassVar[str]
    statistic: ClassVar[str]
    is_coded: ClassVar[bool] = True
    """Whether the states are codes, and no numbers."""

    def __init__(
        self,
        *,
        num_sweeps: int = 1,
        clamped: Mapping[str, Any] | None = None,
        num_chains: int | None = None,
        site: str = "x",
        **options: Any,
    ) -> None:
        check_type(clamped, Mapping | None, "clamped", "a mapping from names to values")
        self.num_sweeps = check_whole(num_sweeps, "num_sweeps")
        self.num_chains = None if num_chains is None else check_whole(num_chains, "num_chains")
        self.clamped = dict(clamped or {})
        self.site = site
        # Pyro reads both after the last draw; ArviZ would call a model.
        self.transforms: dict[str, Any] = {}
        self.model = None
        self._options = options
        self._given: dict[str, torch.Tensor] | None = None
        self._clear()

    @override
    def _clear(self) -> None:
        self._chains: Any = None
        self._emitted: torch.Tensor | None = None
        self._warmup_steps = 0
        self._num_transitions = 0
        self._drawn: list[torch.Tensor] = []

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the chain, which belongs to one process; a copy is set up again."""
        return {**self.__dict__, "_chains": None, "_emitted": None}

    # What a family adds

    @abstractmethod
    def _make_chains(self, num_chains: int, init: torch.Tensor | None, seed: int) -> Any:
        """New chains."""

    @abstractmethod
    def _values(self, drawn: torch.Tensor) -> torch.Tensor:
        """The statistic (draws, chains) of all that was kept."""

    def _kept(self, chains: Any) -> torch.Tensor:
        """What is kept of a draw for the statistic: the states themselves."""
        return chains.states

    # The protocol of Pyro's kernels

    @override
    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        self._clear()
        if args or kwargs:
            raise conflict("setup", f"a {self.model_noun} takes no arguments")
        seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu"))
        self._warmup_steps = warmup_steps
        start = None if self._given is None else self._states_of(self._given[self.site])
        self._chains = self._make_chains(self.num_chains or 1, start, seed)
        self._emit()

    def _states_of(self, values: torch.Tensor) -> torch.Tensor:
        """Values of the site with the chains behind the batch."""
        if self.num_chains is None:
            return values.unsqueeze(-2) if values.dim() else values
        return values.movedim(0, -2) if values.dim() > 1 else values

    def _emit(self) -> dict[str, torch.Tensor]:
        """The states of the chains as values of the site: codes in PyTorch's default precision, numbers as they are."""
        states = self._chains.states
        values = states.squeeze(-2) if self.num_chains is None else states.movedim(-2, 0)
        if self.is_coded:
            values = values.to(torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32)
        self._emitted = values
        return {self.site: values.clone()}

    def _last(self) -> torch.Tensor:
        """The values emitted last."""
        if self._emitted is None:
            raise no_chain(self)
        return self._emitted

    @property
    def initial_params(self) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Where the chain starts: the values set, or values drawn at random."""
        return {self.site: self._last().clone()}

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor] | None) -> None:
        self._given = None
        given = checked_params(params)
        if given is not None and set(given) != {self.site}:
            expected = f"values of {self.site!r} alone"
            raise unexpected("initial_params", expected, received=sorted(given), code="unknown-name")
        self._given = given

    @override
    def sample(self, params: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One transition from the given values, which need not be those of the last one."""
        emitted, values = self._last(), params[self.site]
        chains = self._chains
        if not torch.equal(values.to(emitted), emitted):
            states = self._states_of(values)
            if fixed := list(chains.domain.indices(chains.clamped)):
                present = chains.states
                states = states.expand(present.shape).clone()
                states[..., fixed] = present[..., fixed].to(states)
            chains.set_states(states)
        chains.sweep(self.num_sweeps)
        self._num_transitions += 1
        if self._num_transitions > self._warmup_steps:
            self._drawn.append(self._kept(chains))
        return self._emit()

    @override
    def logging(self) -> dict[str, str]:  # type: ignore[override]
        return {}

    @override
    def _statistics(self) -> dict[str, torch.Tensor]:
        values = torch.zeros(0, self.num_chains or 1)
        if self._drawn:
            with torch.no_grad():
                values = self._values(torch.stack(self._drawn))
        return {self.statistic: values, **({"lp": -values} if self.statistic == "energy" else {})}

    @override
    def _report(self, record: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {"divergences": [], "sample_stats": {name: values.tolist() for name, values in record.items()}}

    @override
    def cleanup(self) -> None:
        """Let go of the chain and of initial values; the diagnostics stay until the next :meth:`setup`."""
        self._chains = self._emitted = self._given = None

    def decode(self, samples: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Draws with codes as ``torch.long``, whatever dimensions are in front; numbers stay as they are."""
        if not self.is_coded:
            return dict(samples)
        for name, value in samples.items():
            if not torch.equal(value, value.round()):
                raise out_of_range("samples", "whole numbers", received=f"others in {name!r}")
        return {name: value.long() for name, value in samples.items()}


class BlockGibbs(GibbsKernel):
    r"""Gibbs sampling of a log-linear law, see :class:`GibbsKernel`; :class:`MixedGibbs` takes programs.

    The target is :math:`p(x_F \mid x_C)`: the law of the free variables given the clamped ones, which every sweep of
    the schedule leaves invariant. The diagnostics hold the ``energy`` and ``lp``, minus it: those of the tables of the
    model, without log Z, summed over the batch.

    Args:
        law: the law; with a batch every element has chains of its own.
        options: of :class:`GibbsKernel`, and the schedule, engine and precision of
            :class:`~pyro_hoim.log_linear.GibbsChains`; clamped are ``{name: label, code or codes per batch element}``.

    References:
        Paper 1, appendix B.5.

    Example:
        >>> from pyro.infer import MCMC
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
        >>> law = HierarchicalLogLinear(hypergraph, torch.zeros(5))
        >>> kernel = BlockGibbs(law, clamped={"x0": 1}, engine="torch")
        >>> mcmc = MCMC(kernel, num_samples=20, warmup_steps=5, disable_progbar=True)
        >>> mcmc.run()
        >>> draws = kernel.decode(mcmc.get_samples())["x"]
        >>> draws.shape, draws.dtype, int(draws[:, 0].min())
        (torch.Size([20, 2]), torch.int64, 1)
    """

    model_noun = "law"
    statistic = "energy"

    def __init__(self, law: HierarchicalLogLinear, **options: Any) -> None:
        if not isinstance(law, HierarchicalLogLinear):
            raise wrong_type("law", "a log-linear law", law, "MixedGibbs takes programs")
        super().__init__(**options)
        model = law.energy_model
        self._energy = LogLinearEnergy(model.hypergraph, model.tables.detach())  # a graph cannot go to a process

    @override
    def _make_chains(self, num_chains: int, init: torch.Tensor | None, seed: int) -> GibbsChains:
        clamped = {
            name: value.unsqueeze(-1) if isinstance(value, torch.Tensor) else value
            for name, value in self.clamped.items()
        }
        return GibbsChains(self._energy, num_chains, clamped=clamped, init=init, seed=seed, **self._options)

    @override
    def _kept(self, chains: GibbsChains) -> torch.Tensor:
        energy = chains.energy
        return energy.reshape(-1, energy.shape[-1]).sum(0)

    @override
    def _values(self, drawn: torch.Tensor) -> torch.Tensor:
        return drawn

    @override
    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """Energy of the last state for the progress bar, averaged over the chains."""
        return {"energy": f"{float(self._drawn[-1].mean()):.2f}"} if self._drawn else {}


class PseudoGibbs(GibbsKernel):
    r"""Pseudo-Gibbs sampling of a dependency network, see :class:`GibbsKernel`.

    The target is the limiting law of the scan: :math:`\pi(x)`, or :math:`\pi'(x \mid x_C)` with clamped variables; with
    a sequential scan the law just after the last variable of the order. The diagnostics hold ``log_pseudo_prob``,
    :math:`\sum_i \log \theta_i(x_i \mid x_{-i})`, which is not a log-probability.

    Args:
        conditionals: the network, or a law that holds one as ``conditionals``.
        options: of :class:`GibbsKernel`, and the scan, engine, precision and checks of
            :class:`~pyro_hoim.dependency_network.PseudoGibbsChains`; clamped are
            ``{name: label, code or codes per chain}``.

    References:
        Paper 5, algorithms 1 and 3.

    Example:
        >>> from pyro_hoim import Domain, Observations, run_mcmc
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> kernel = PseudoGibbs(learn_network(rows), clamped={"b": 1}, engine="torch")
        >>> run = run_mcmc(kernel, 20, burn_in=5, num_chains=4, seed=1, progress=False)
        >>> run.samples["x"].shape, run.samples["x"][..., 1].unique().tolist()
        (torch.Size([4, 20, 2]), [1])
    """

    model_noun = "dependency network"
    statistic = "log_pseudo_prob"

    def __init__(self, conditionals: DependencyConditionals, **options: Any) -> None:
        super().__init__(**options)
        self.conditionals = checked_conditionals(conditionals)

    @override
    def _make_chains(self, num_chains: int, init: torch.Tensor | None, seed: int) -> PseudoGibbsChains:
        return PseudoGibbsChains(
            self.conditionals, num_chains, clamped=self.clamped, init=init, seed=seed, **self._options
        )

    @override
    def _kept(self, chains: PseudoGibbsChains) -> torch.Tensor:
        return chains.states.to(torch.int32)

    @override
    def _values(self, drawn: torch.Tensor) -> torch.Tensor:
        return self.conditionals.log_pseudo_prob(drawn.long())


class RootGibbs(GibbsKernel):
    r"""Gibbs sampling of a generalized root model from exact node conditionals, see :class:`GibbsKernel`.

    The target is the law :math:`q(x) / Z` of the model, or that of the other variables given some. Values are float64,
    also counts, which are whole numbers. The diagnostics hold ``log_q``, the log-probability up to a constant.

    Args:
        energy: the model without a batch, or a law that holds one as ``energy_model``.
        options: of :class:`GibbsKernel`, and ``check=False`` of :class:`~pyro_hoim.generalized_root.RootChains`;
            clamped are ``{name: value or values per chain}``.

    References:
        Inouye, Ravikumar, Dhillon (2016), Generalized root models, equation 5.

    Example:
        >>> from pyro.infer import MCMC
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable(name, kind="count") for name in "ab"])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([0.5, 0.0, 0.25]), PoissonFamily())
        >>> mcmc = MCMC(RootGibbs(energy, clamped={"b": 3}), num_samples=20, warmup_steps=5, disable_progbar=True)
        >>> mcmc.run()
        >>> draws = mcmc.get_samples()["x"]
        >>> draws.shape, draws.dtype, draws[:, 1].unique().tolist()
        (torch.Size([20, 2]), torch.float64, [3.0])
    """

    model_noun = "generalized root model"
    statistic = "log_q"
    is_coded = False

    def __init__(self, energy: GeneralizedRootEnergy, **options: Any) -> None:
        super().__init__(**options)
        self.energy = checked_energy(energy).detach()

    @override
    def _make_chains(self, num_chains: int, init: torch.Tensor | None, seed: int) -> RootChains:
        source = torch.Generator().manual_seed(seed)
        return RootChains(self.energy, num_chains, clamped=self.clamped, init=init, seed=source, **self._options)

    @override
    def _values(self, drawn: torch.Tensor) -> torch.Tensor:
        return -self.energy.energy(drawn.to(self.energy.dtype), validate=False)
