"""Gibbs for the discrete sites of a Pyro program and HMC or NUTS for the continuous ones, in one kernel."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import torch
from pyro.infer.mcmc.hmc import HMC
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from typing_extensions import override

from ...errors import HoimError, check_names, check_whole, out_of_range, refused, unexpected, wrong_type
from ..intractable.exchange import Exchange
from ..kernels import RecordingNUTS, checked_params, no_chain
from ._full_conditional import DiscreteMoves, Mode, Program
from ._sites import (
    DiscreteSite,
    GivenDiscrete,
    Schedules,
    check_initial,
    constant_laws,
    find_dependence,
    find_sites,
    sample_nodes,
    start,
)

_TRIES = 10

Continuous = Callable[[Callable[..., Any]], HMC | Exchange] | Mapping[str, Any]


class MixedGibbs(MCMCKernel):
    r"""Draws the discrete sites of a program by Gibbs and the continuous ones by NUTS or HMC, in turn.

    With discrete sites x and continuous ones z, one transition is

    .. math:: x' \sim K_{p(x \mid z)}(x, \cdot), \qquad z' \sim H_{p(z \mid x')}(z, \cdot)

    where K draws every element of every discrete site from its full conditional, and H is one transition of the inner
    kernel, whose potential and gradient are computed afresh. Both leave the posterior invariant. Nothing is
    marginalised: the cost grows with the number of discrete elements, not of their joint states, and the chain has to
    find its way between these.

    Sites of :class:`~pyro_hoim.log_linear.HierarchicalLogLinear` are drawn block by block from their interactions and
    whatever else depends on them, without their log Z. NUTS, or a discrete site, needs that log Z where theta, a mask
    or a scale depends on it, or where the program looks into values so that nobody can tell; elsewhere it is a
    constant, and the law may be of any size. All other discrete sites with a finite support (Categorical, Bernoulli,
    Binomial, a :class:`~pyro_hoim.generalized_root.GeneralizedRoot` over bounded counts, ...) are drawn element by
    element, one element being a whole event: all counts of a row together. A
    :class:`~pyro_hoim.inference.StructurePrior` is drawn whole where it has up to 512 collections or is of graphs, and
    one indicator at a time beyond.

    The program is evaluated for all values of an element, and for all elements of a plate, at once where that gives
    what one by one gives; this is checked at the first transition, and :attr:`evaluation` and
    :attr:`evaluation_reasons` tell the outcome, as does the logger ``pyro_hoim`` for what is slow. Programs that look
    into values (``if x > 0``, ``.item()``) are evaluated one by one, and so are values on which an estimated log Z
    depends. Sites must be the same at every run, and the support of a site must not depend on the values of others.

    In ``pyro.infer.MCMC`` all values are floats, as Pyro would make them anyway; small integers are exact in them, and
    :meth:`decode` restores the dtypes. :func:`~pyro_hoim.inference.run_mcmc` decodes by itself.

    Args:
        model: the program.
        continuous: how to draw the continuous sites: a class or factory that makes a kernel from a program, such as
            ``pyro.infer.HMC`` or ``partial(NUTS, full_mass=True)``, or a dict of options for the default,
            :class:`~pyro_hoim.inference.RecordingNUTS`; where theta moves and log Z is out of reach,
            :class:`~pyro_hoim.inference.Exchange`. A new kernel is made for every chain.
        discrete_sites: names of the latent discrete sites, all of them, in the order of their moves; found when None.
        schedule: blocks and scan of the log-linear sites: one for all, or ``{site: schedule}``. Blocks "auto" are
            chosen where no other site depends on the law, and are single variables else.
        num_discrete_sweeps: sweeps over the discrete sites per transition.
        parallel: False evaluates one element and one value at a time throughout.

    Raises:
        InputError: numbers below 1, an inner kernel compiled with ``jit_compile`` (it would keep the first discrete
            values); when a chain is set up: no discrete site, a discrete site left out or without finite support,
            a subsampled plate, initial values that do not fit; in a transition: a discrete support that depends on
            other sites, a random estimate of log Z.

    Randomness:
        PyTorch's global generator, so ``pyro.set_rng_seed`` makes a run reproducible.

    References:
        Radford Neal, Markov chain sampling methods for Dirichlet process mixture models, JCGS 9, 2000, for Gibbs moves
        of discrete variables; Du Phan, Neeraj Pradhan and Martin Jankowiak, Composable effects for flexible and
        accelerated probabilistic programming in NumPyro, 2019.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> from pyro.infer import MCMC
        >>> def mixture(data):
        ...     centre = pyro.sample("centre", dist.Normal(torch.zeros(2), 5.0).to_event(1))
        ...     with pyro.plate("rows", len(data)):
        ...         group = pyro.sample("group", dist.Categorical(torch.ones(2)))
        ...         pyro.sample("y", dist.Normal(centre[group], 1.0), obs=data)
        >>> kernel = MixedGibbs(mixture)
        >>> mcmc = MCMC(kernel, num_samples=20, warmup_steps=20, disable_progbar=True)
        >>> mcmc.run(torch.tensor([-4.0, -5.0, 5.0]))
        >>> kernel.decode(mcmc.get_samples())["group"].dtype, kernel.evaluation
        (torch.int64, {'group': 'rows together'})
    """

    def __init__(
        self,
        model: Callable[..., Any],
        continuous: Continuous = RecordingNUTS,
        *,
        discrete_sites: Sequence[str] | None = None,
        schedule: Schedules = None,
        num_discrete_sweeps: int = 1,
        parallel: bool = True,
    ) -> None:
        if not callable(model):
            raise wrong_type("model", "a Pyro program", model)
        if isinstance(discrete_sites, str):
            raise wrong_type("discrete_sites", "a sequence of names", received=f"the string {discrete_sites!r}")
        check_whole(num_discrete_sweeps, "num_discrete_sweeps")
        self.model = model
        self._make_inner = partial(RecordingNUTS, **continuous) if isinstance(continuous, Mapping) else continuous
        _inner_kernel(self._make_inner, model)  # wrong options show here and not in a process of Pyro's
        self._requested = None if discrete_sites is None else tuple(discrete_sites)
        self._schedule = schedule
        self._num_sweeps = num_discrete_sweeps
        self._is_parallel = parallel
        self.transforms: Any = None  # None makes Pyro's MCMC set the kernel up where chains ran in other processes
        self._save_params: list[str] | None = None
        self._given: dict[str, torch.Tensor] | None = None
        self._told: frozenset[str] = frozenset()
        self._clear()

    def _clear(self) -> None:
        self.inner: HMC | Exchange | None = None
        """The kernel of the continuous sites of this chain, None if there are none."""
        self._conditioned = GivenDiscrete(self.model)
        self._sites: tuple[DiscreteSite, ...] = ()
        self._moves: DiscreteMoves | None = None
        self._initial: dict[str, torch.Tensor] | None = None
        self._warmup_steps = self._num_transitions = 0
        self._moved: dict[str, float] = {}
        self._is_set_up = False

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the chain, which belongs to one process; a copy is set up again."""
        bare: Any = object.__new__(type(self))
        vars(bare).update(vars(self))
        bare._clear()
        return {**vars(bare), "transforms": None}

    # What a chain is made of

    @property
    def discrete_sites(self) -> Mapping[str, torch.dtype]:
        """Names of the discrete sites with the dtype of their values; empty before :meth:`setup`."""
        return MappingProxyType({site.name: site.dtype for site in self._sites})

    @property
    def evaluation(self) -> dict[str, Mode]:
        """How each discrete site is evaluated, decided at the first transition.

        "law alone" (compiled chains of its law), "rows together" (one run of the program per block), "row by row", or
        "one by one".
        """
        return {} if self._moves is None else dict(self._moves.modes)

    @property
    def evaluation_reasons(self) -> dict[str, str]:
        """One sentence for every discrete site evaluated row by row or one by one: why, and what would be fast."""
        return {} if self._moves is None else dict(self._moves.reasons)

    @property
    def save_params(self) -> list[str]:
        """Names that Pyro's MCMC keeps; always sorted, since Pyro hands unsorted ones to the wrong sites."""
        return sorted(self._initial or {}) if self._save_params is None else self._save_params

    @save_params.setter
    def save_params(self, names: Sequence[str]) -> None:
        self._save_params = sorted(names)

    @property
    def initial_params(self) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Where the chain starts: continuous sites unconstrained, discrete ones as floats.

        They may be set before :meth:`setup` for all continuous sites, all or some discrete ones, or both kinds; the
        rest is found (continuous as by the inner kernel, log-linear sites uniform, other discrete ones by their prior).
        """
        return dict(self._initial or self._given or {})

    @initial_params.setter
    def initial_params(self, params: Mapping[str, torch.Tensor] | None) -> None:
        self._given = checked_params(params)

    # The protocol of Pyro's kernels

    @override
    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        self._clear()
        self._warmup_steps = warmup_steps
        # What there is to draw, from one run of the program.
        trace = start(self.model, args, kwargs)
        self._sites = find_sites(trace, self._requested, self._schedule)
        nodes = sample_nodes(trace)
        names = {site.name for site in self._sites}
        latent = {name: node["value"] for name, node in nodes.items() if not node["is_observed"]}
        if not names:
            raise refused(
                "model", "expected a latent discrete site, found none", "use NUTS or HMC alone", code="missing-part"
            )
        # Names that the user gave are checked against those of the program.
        continuous = [name for name in latent if name not in names]
        given = self._given or {}
        check_names(given, tuple(latent), "initial_params", "site")
        check_names(self._save_params or (), tuple(latent), "save_params", "site")
        # The inner kernel starts first: discrete sites are drawn given its position.
        program = Program(self.model, args, kwargs)
        dependence = find_dependence(program.run, latent)
        self._conditioned.constant_laws = constant_laws(dependence, continuous)
        values = self._start_inner(latent, continuous, given, args, kwargs)
        seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu"))
        discrete = {site.name: values[site.name] for site in self._sites}
        position = {} if self.inner is None else dict(cast(Any, self.inner).initial_params)
        self._initial = {**position, **{name: _to_float(value) for name, value in discrete.items()}}
        self._moves = DiscreteMoves(
            program,
            self._sites,
            {**self._constrained(position), **discrete},
            dependence,
            is_parallel=self._is_parallel,
            seed=seed,
        )
        self._moved = dict.fromkeys(discrete, 0.0)
        self._is_set_up = True

    def _start_inner(
        self,
        latent: Mapping[str, torch.Tensor],
        continuous: Sequence[str],
        given: Mapping[str, torch.Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> dict[str, torch.Tensor]:
        """First discrete values, with the inner kernel set up at them; other ones are tried where they cannot be."""
        # Values that were given are kept; the others come from the first run.
        fixed = {site.name: check_initial(site, given[site.name]) for site in self._sites if site.name in given}
        values = {site.name: latent[site.name] for site in self._sites} | fixed
        self.transforms = {}
        if not continuous:
            return values
        position = {name: given[name] for name in continuous if name in given}
        if position and (missing := [name for name in continuous if name not in position]):
            problem = f"expected all continuous sites or none, but {missing[0]!r} is missing"
            raise refused("initial_params", problem, code="missing-part")
        # The inner kernel may find no start at these discrete values: then others are drawn.
        for attempt in range(1, _TRIES + 1):
            self._conditioned.values = values
            self.inner = _inner_kernel(self._make_inner, self._conditioned)
            if position:
                self.inner.initial_params = {name: value.detach().clone() for name, value in position.items()}
            try:
                self.inner.setup(self._warmup_steps, *args, **kwargs)
                break
            except ValueError as error:
                if isinstance(error.__cause__, HoimError):  # Pyro wraps every ValueError of a log-probability
                    raise error.__cause__ from None
                if "valid initial params" not in str(error) or len(fixed) == len(self._sites) or attempt == _TRIES:
                    raise
            again = sample_nodes(start(self.model, args, kwargs))
            values = {site.name: again[site.name]["value"] for site in self._sites} | fixed
        assert self.inner is not None
        self.transforms = self.inner.transforms
        return values

    def _constrained(self, position: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            return {name: self.transforms[name].inv(value) for name, value in position.items()}

    @override
    def sample(self, params: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if self._moves is None or not self._is_set_up:
            raise no_chain(self)
        # Discrete sites given the continuous ones, then these given those.
        discrete = {site.name: params[site.name].round().to(site.dtype) for site in self._sites}
        position = {name: value for name, value in params.items() if name not in discrete}
        before = discrete
        values = {**self._constrained(position), **discrete}
        for _ in range(self._num_sweeps):
            values = self._move_discrete(values)
        discrete = {name: values[name] for name in before}
        if self.inner is not None:
            self._refresh_inner(discrete)
            position = self.inner.sample(position)
        self._note(before, discrete)
        return {**position, **{name: _to_float(value) for name, value in discrete.items()}}

    def _move_discrete(self, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One sweep over the discrete sites given everything else."""
        assert self._moves is not None
        values = self._moves.sweep(values)
        for site, mode in self._moves.modes.items():
            if mode == "one by one" and self._is_parallel and site not in self._told:
                self._told |= {site}
                logging.getLogger("pyro_hoim").warning(
                    "MixedGibbs: site %r is evaluated %s", site, self._moves.reasons[site]
                )
        return values

    def _refresh_inner(self, discrete: dict[str, torch.Tensor]) -> None:
        """Tell the inner kernel the new discrete values: its potential and gradient belong to the old ones."""
        assert self.inner is not None
        self._conditioned.values = discrete
        self.inner.clear_cache()

    def _note(self, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> None:
        """Keep the share of entries that changed, averaged over the transitions of this phase."""
        if self._num_transitions == self._warmup_steps:
            self._moved = dict.fromkeys(self._moved, 0.0)
        self._num_transitions += 1
        # Means over warm-up and over draws are kept apart.
        past = self._num_transitions - self._warmup_steps
        count = past if past > 0 else self._num_transitions
        for name, value in after.items():
            share = float((value != before[name]).double().mean()) if value.numel() else 0.0
            self._moved[name] += (share - self._moved[name]) / count

    def logging(self) -> dict[str, str]:  # type: ignore[override]
        """What the inner kernel shows, and the share of discrete entries that change per transition."""
        shown = OrderedDict[str, str]()
        if self.inner is not None:
            shown.update({str(key): value for key, value in self.inner.logging().items()})
        shown["moved"] = f"{sum(self._moved.values()) / max(len(self._moved), 1):.2f}"
        return shown

    def diagnostics(self) -> dict[str, Any]:
        """Those of the inner kernel and, per discrete site, ``"moved"`` and ``"evaluation"``.

        The first is the mean share of entries that change, the second :attr:`evaluation`, with the reason where there
        is one.
        """
        inner: dict[str, Any] = {"divergences": [], "acceptance rate": 1.0}
        if self.inner is not None:
            inner = self.inner.diagnostics()
        evaluation = {**self.evaluation, **self.evaluation_reasons}
        return {**inner, "moved": dict(self._moved), "evaluation": evaluation}

    def cleanup(self) -> None:
        """Let go of the chain; names, dtypes and transforms stay for what follows the run."""
        if self.inner is not None:
            self.inner.cleanup()
        self._given = None
        self._is_set_up = False

    def decode(self, samples: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Draws with the discrete sites in the dtype of the program, whatever dimensions are in front."""
        if not self._sites:
            raise refused("decode", "the discrete sites are not known before a run", code="missing-part")
        result = dict(samples)
        for name, dtype in self.discrete_sites.items():
            if name in result:
                if not torch.equal(result[name], result[name].round()):
                    raise out_of_range("samples", "whole numbers", received=f"others in {name!r}")
                result[name] = result[name].round().to(dtype)
        return result


def _to_float(value: torch.Tensor) -> torch.Tensor:
    """A discrete value as the float that Pyro would make of it; float64 where float32 would not be exact."""
    if value.is_floating_point():
        return value.clone()
    dtype = torch.get_default_dtype()
    if dtype != torch.float64 and value.numel() and int(value.abs().max()) >= 2**24:
        dtype = torch.float64
    return value.to(dtype if dtype in (torch.float32, torch.float64) else torch.float32)


def _inner_kernel(make: Any, program: Callable[..., Any]) -> HMC | Exchange:
    """A kernel for the continuous sites, checked."""
    if not callable(make):
        expected = (
            "a kernel class such as NUTS, a function that makes a kernel from a program, or a dict of options for NUTS"
        )
        raise wrong_type("continuous", expected, make)
    kernel = make(program)
    if not isinstance(kernel, HMC | Exchange):
        raise wrong_type("continuous", "it to make an Exchange, HMC or NUTS kernel", kernel)
    if kernel.model is not program:
        raise unexpected(
            "continuous", "a kernel of the program that the factory is given", received="another's", code="conflict"
        )
    if isinstance(kernel, HMC) and kernel._jit_compile:
        hint = "a compiled potential would keep the first discrete values"
        raise unexpected("continuous", "jit_compile=False", hint=hint, code="conflict")
    return kernel
