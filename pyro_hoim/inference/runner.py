"""Running Pyro kernels in this process: chains as a dimension where a kernel can, integers kept as integers."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.distributions import Unit
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from pyro.poutine.messenger import Messenger
from pyro.poutine.trace_struct import Trace
from pyro.poutine.util import prune_subsample_sites, site_is_subsample
from pyro.util import get_rng_state, set_rng_seed, set_rng_state
from tqdm import tqdm

from ..budgets import check_draws
from ..errors import check_type, check_whole, conflict, none_received, out_of_range, refused, unexpected, wrong_type
from .statistics import draw_statistics

if TYPE_CHECKING:
    from collections.abc import Generator


# What a trace of a program holds.


def sample_nodes(trace: Trace) -> dict[str, dict[str, Any]]:
    """Sample sites of a trace without plates' own and ``pyro.deterministic`` ones, whose log-probability is 0."""
    nodes = cast(dict[str, Any], trace.nodes)
    return {
        name: node
        for name, node in nodes.items()
        if node["type"] == "sample" and not site_is_subsample(node) and not node["infer"].get("_deterministic")
    }


def check_plates(trace: Trace) -> None:
    """Refuse a plate of which a program takes some elements only."""
    for name, node in cast(dict[str, Any], trace.nodes).items():
        if site_is_subsample(node) and len(node["value"]) != node["fn"].size:
            problem = f"plate {name!r} takes {len(node['value'])} of {node['fn'].size} elements"
            hint = "leave out subsample_size and subsample"
            raise conflict("model", f"{problem}; MCMC needs all of them, {hint}")


def is_discrete(fn: Any) -> bool:
    """Whether a law has whole-number or listed values."""
    try:
        return bool(fn.support.is_discrete)
    except (NotImplementedError, AttributeError):
        return bool(getattr(fn, "has_enumerate_support", False))


# Log-likelihoods of posterior draws of any Pyro program.


def pointwise_log_likelihood(
    model: Callable[..., Any],
    samples: Mapping[str, torch.Tensor],
    *args: Any,
    group_by_chain: bool = True,
    **kwargs: Any,
) -> dict[str, torch.Tensor]:
    r"""Log-probability of every observation under every posterior draw of any Pyro model.

    The model is run conditioned on each draw and the log-probabilities of its observed sites are kept, one per
    element of the site's batch shape; scales (``poutine.scale``, subsampling) are left out, masks are kept.

    Args:
        model: Pyro model; run with ``args`` and ``kwargs``, which must hold the data.
        samples: draws of every latent site, as ``mcmc.get_samples(group_by_chain=True)`` or ``Predictive`` give them.
        args: positional arguments of the model.
        group_by_chain: whether the draws have two leading dimensions (chain, draw) or one.
        kwargs: keyword arguments of the model.

    Shape:
        ``samples[name]`` (chain, draw, \*site shape), or (draw, \*site shape); the result has the same leading
        dimensions followed by the batch shape of the observed site.

    Raises:
        InputError: no samples, leading dimensions that differ, a latent site without samples, or no observed site.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> def model(data):
        ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("rows", len(data)):
        ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=data)
        >>> result = pointwise_log_likelihood(model, {"mu": torch.zeros(2, 5)}, torch.zeros(3))
        >>> result["y"].shape
        torch.Size([2, 5, 3])
    """
    lead, traces = _traces(model, samples, args, kwargs, group_by_chain)
    rows = [
        {
            name: site["unscaled_log_prob"].detach()
            for name, site in sample_nodes(trace).items()
            if site["is_observed"] and not isinstance(site["fn"], Unit)
        }
        for trace in traces
    ]
    result = {name: torch.stack([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    if not result:
        problem = "expected at least one observed site, found none"
        raise refused("model", problem, "pass the data to the model", code="empty")
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in result.items()}


def log_joint(
    model: Callable[..., Any],
    samples: Mapping[str, torch.Tensor],
    *args: Any,
    group_by_chain: bool = True,
    **kwargs: Any,
) -> torch.Tensor:
    """Log of the joint density of data and draw (nats), in the constrained space, in the leading shape of the samples.

    Args:
        model: as in :func:`pointwise_log_likelihood`, like what follows.
        samples: likewise.
        args: likewise.
        group_by_chain: likewise.
        kwargs: likewise.

    Example:
        >>> import math, pyro, pyro.distributions as dist
        >>> def model(data):
        ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     pyro.sample("y", dist.Normal(mu, 1.0), obs=data)
        >>> found = log_joint(model, {"mu": torch.zeros(1, 2)}, torch.tensor(0.0))
        >>> [[round(value, 4) for value in chain] for chain in found.tolist()], round(-math.log(2 * math.pi), 4)
        ([[-1.8379, -1.8379]], -1.8379)
    """
    lead, traces = _traces(model, samples, args, kwargs, group_by_chain)
    values = [torch.as_tensor(trace.log_prob_sum()) for trace in traces]
    return torch.stack(values).reshape(lead).detach()


def _traces(
    model: Callable[..., Any], samples: Mapping[str, torch.Tensor], args: Any, kwargs: Any, group_by_chain: bool
) -> tuple[tuple[int, ...], Iterator[Trace]]:
    """Leading shape of the samples, and a trace of the model for every draw."""
    num = 2 if group_by_chain else 1
    if not samples:
        raise none_received("samples", "draws of at least one site")
    shapes = {name: tuple(value.shape[:num]) for name, value in samples.items()}
    lead = next(iter(shapes.values()))
    if len(lead) < num or any(shape != lead for shape in shapes.values()):
        expected = f"{num} equal leading dimensions for every site"
        raise unexpected("samples", expected, received=shapes, code="wrong-shape")
    flat = {name: value.reshape(-1, *value.shape[num:]) for name, value in samples.items()}
    draws = ({name: value[i] for name, value in flat.items()} for i in range(math.prod(lead)))
    return lead, (_conditioned(model, draw, args, kwargs) for draw in draws)


class _SetLatent(Messenger):
    """Give latent sites their values and leave observed ones alone; a latent site without a value is an error."""

    def __init__(self, values: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self._values = values

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] or site_is_subsample(msg):
            return
        if msg["name"] not in self._values:
            problem = f"latent site {msg['name']!r} has no draws"
            raise refused("samples", problem, "give them, or marginalise it out of the model", code="missing-part")
        msg["value"], msg["done"] = self._values[msg["name"]], True


def _conditioned(model: Callable[..., Any], values: Mapping[str, torch.Tensor], args: Any, kwargs: Any) -> Trace:
    """Trace of the model with its latent sites set."""
    with torch.no_grad(), poutine.trace() as tracer, _SetLatent(values):
        model(*args, **kwargs)
    trace = prune_subsample_sites(tracer.trace)
    trace.compute_log_prob()
    return trace


Samples = dict[str, torch.Tensor]


@runtime_checkable
class VectorizedKernel(Protocol):
    """A kernel that moves many chains at once, such as :class:`~pyro_hoim.inference.BlockGibbs`.

    Example:
        >>> from pyro_hoim import BlockGibbs, Domain, HierarchicalLogLinear, InteractionHypergraph
        >>> pair = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
        >>> kernel: VectorizedKernel = BlockGibbs(HierarchicalLogLinear(pair, torch.zeros(5)), engine="torch")
        >>> many = kernel.with_chains(4)
        >>> many.setup(0)
        >>> many.initial_params["x"].shape, len(many.chain_diagnostics())
        (torch.Size([4, 2]), 4)
    """

    def with_chains(self, num_chains: int) -> MCMCKernel:
        """A kernel of the same kind whose values have a leading dimension of ``num_chains`` chains."""
        ...

    def chain_diagnostics(self) -> list[dict[str, Any]]:
        """Diagnostics of every chain by itself."""
        ...


@dataclass(frozen=True, eq=False)
class MCMCRun:
    r"""Draws of some chains with their statistics; :func:`pyro_hoim.interop.to_arviz` takes it as it takes Pyro's MCMC.

    Attributes:
        samples: draws by site, (num_chains, num_draws, \*event); integer sites are ``torch.long``.
        sample_stats: statistics of every draw by name, (num_chains, num_draws).
        chain_diagnostics: what the kernel said of every chain.
        burn_in: transitions before the first draw.
        num_draws: draws per chain.
        seed: seed of the run, None if it took the global generators.
    """

    samples: Samples
    sample_stats: Samples
    chain_diagnostics: tuple[dict[str, Any], ...]
    burn_in: int
    num_draws: int
    seed: int | None

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return len(self.chain_diagnostics)

    @property
    def num_divergences(self) -> int:
        """Divergent transitions after warm-up, over all chains."""
        return sum(len(chain.get("divergences", ())) for chain in self.chain_diagnostics)

    def get_samples(self, *, group_by_chain: bool = False) -> Samples:
        r"""Draws by site, (num_chains \* num_draws, \*event), or grouped."""
        if group_by_chain:
            return dict(self.samples)
        return {name: value.flatten(0, 1) for name, value in self.samples.items()}

    def diagnostics(self) -> dict[str, dict[str, Any]]:
        """What the kernel said, ``{name: {"chain 0": value, ...}}`` as Pyro's MCMC gives it."""
        names = dict.fromkeys(name for chain in self.chain_diagnostics for name in chain)
        return {
            name: {f"chain {i}": chain[name] for i, chain in enumerate(self.chain_diagnostics) if name in chain}
            for name in names
        }

    def __repr__(self) -> str:
        sites = ", ".join(f"{name} {tuple(value.shape[2:])}" for name, value in self.samples.items())
        return f"MCMCRun({self.num_chains} chains, {self.num_draws} draws, sites: {sites})"


def run_mcmc(
    kernel: MCMCKernel,
    num_draws: int = 1000,
    *,
    burn_in: int | None = None,
    num_chains: int | None = None,
    seed: int | None = None,
    model_args: Sequence[Any] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    initial_params: Mapping[str, torch.Tensor] | None = None,
    progress: bool = True,
) -> MCMCRun:
    r"""Draw from any Pyro kernel in this process; nothing is forked, and every site keeps its type.

    A kernel that can carry chains as a dimension (a :class:`VectorizedKernel`, such as
    :class:`~pyro_hoim.inference.BlockGibbs`) moves all of them at once; the chains of any other kernel, such as NUTS,
    run one after the other. Sites that a kernel emits as floats although they are integers come back as
    ``torch.long``, by its method ``decode`` where it has one. Constrained sites are transformed back, as Pyro does.

    Args:
        kernel: any :class:`pyro.infer.mcmc.mcmc_kernel.MCMCKernel`.
        num_draws: draws per chain.
        burn_in: transitions before them; ``num_draws`` when None, as in Pyro.
        num_chains: chains; when None the number the kernel was made for, else 4.
        seed: seed of everything random; the global generators are then left as they were. Chain c of a kernel that
            runs one chain at a time depends on (seed, c) alone. None takes and advances the global generators.
        model_args: arguments of the kernel's program.
        model_kwargs: likewise.
        initial_params: where chains start, in the kernel's (unconstrained) space; the kernel's own choice when None.
        progress: show a progress bar on standard error.

    Shape:
        initial_params (num_chains, \*event); samples (num_chains, num_draws, \*event).

    Raises:
        InputError: numbers out of range, initial values for another number of chains.
        InputTypeError: no kernel, or arguments of the wrong type; whatever the kernel raises.

    Example:
        >>> from pyro_hoim import BlockGibbs, Domain, HierarchicalLogLinear, InteractionHypergraph
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
        >>> kernel = BlockGibbs(HierarchicalLogLinear(hypergraph, torch.zeros(5)), engine="torch")
        >>> run = run_mcmc(kernel, 50, burn_in=10, num_chains=16, seed=1, progress=False)
        >>> run.samples["x"].shape, run.samples["x"].dtype, run.sample_stats["energy"].shape
        (torch.Size([16, 50, 2]), torch.int64, torch.Size([16, 50]))
    """
    # Numbers, and where chains start.
    check_type(kernel, MCMCKernel, "kernel", "a Pyro MCMCKernel")
    chosen: int = (getattr(kernel, "num_chains", None) or 4) if num_chains is None else num_chains
    num_draws, num_chains = check_whole(num_draws, "num_draws"), check_whole(chosen, "num_chains")
    check_draws(num_chains * num_draws)
    burn_in = num_draws if burn_in is None else check_whole(burn_in, "burn_in", 0)
    if seed is not None and check_whole(seed, "seed", 0) >= 2**63:
        raise out_of_range("seed", "a whole number below 2^63", received=seed)
    start = _checked_start(initial_params, num_chains)
    is_vectorized = isinstance(kernel, VectorizedKernel)
    total = (burn_in + num_draws) * (1 if is_vectorized else num_chains)
    # Validation off, as Pyro's MCMC has it: a trajectory that leaves the support is a divergence, not an error.
    with (
        random_state(seed),
        pyro.validation_enabled(False),
        pyro.poutine.block(),
        tqdm(total=total, file=sys.stderr, disable=not progress, unit="transition") as bar,
    ):
        run = partial(_run_chain, (burn_in, num_draws), bar, model_args, model_kwargs or {})
        # All chains as one tensor where the kernel can, else one after the other, each from a seed of its own.
        if is_vectorized:
            many = kernel.with_chains(num_chains)  # pyright: ignore[reportAttributeAccessIssue]
            _seed_chain(seed, None)
            drawn, diagnostics = run(many, start)
            samples = {name: value.movedim(0, 1) for name, value in drawn.items()}
        else:
            parts: list[Samples] = []
            diagnostics = []
            for chain in range(num_chains):
                _seed_chain(seed, chain)
                first = None if start is None else {name: value[chain] for name, value in start.items()}
                drawn, report = run(kernel, first)
                parts.append(drawn)
                diagnostics += report
            samples = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    # Statistics that all chains tell of every draw.
    statistics = {name: torch.from_numpy(value) for name, value in draw_statistics(diagnostics, num_draws).items()}
    return MCMCRun(samples, statistics, tuple(diagnostics), burn_in, num_draws, seed)


def _run_chain(
    sizes: tuple[int, int],
    bar: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    kernel: MCMCKernel,
    start: Samples | None,
) -> tuple[Samples, list[dict[str, Any]]]:
    """Draws (num_draws, *shape) of one call of the kernel in constrained space, and the diagnostics of its chains."""
    burn_in, num_draws = sizes
    if start is not None:
        kernel.initial_params = start
    try:
        kernel.setup(burn_in, *args, **kwargs)
        # Draws after warm-up, of the sites that the kernel or the caller names.
        params = kernel.initial_params
        names = list(getattr(kernel, "save_params", None) or params)
        recorded: dict[str, list[torch.Tensor]] = {name: [] for name in names}
        for step in range(burn_in + num_draws):
            params = kernel.sample(params)
            if step >= burn_in:
                for name in names:
                    recorded[name].append(params[name].detach().clone())
            bar.set_postfix(kernel.logging() or {}, refresh=False)
            bar.update()
        # Back to the support of the sites, and to whole numbers where the kernel knows them.
        diagnostics = (
            kernel.chain_diagnostics() if isinstance(kernel, VectorizedKernel) else [kernel.diagnostics() or {}]
        )
        transforms: Mapping[str, Any] = getattr(kernel, "transforms", None) or {}
        drawn = {name: torch.stack(values) for name, values in recorded.items()}
        drawn = {name: transforms[name].inv(v) if name in transforms else v for name, v in drawn.items()}
        decode: Callable[[Samples], Samples] | None = getattr(kernel, "decode", None)
        return (drawn if decode is None else decode(drawn)), diagnostics
    finally:
        kernel.cleanup()


@contextmanager
def random_state(seed: int | None) -> Generator[None]:
    """Keep the global generators as they were if there is a seed."""
    state = get_rng_state()
    try:
        yield
    finally:
        if seed is not None:
            set_rng_state(state)


def _seed_chain(seed: int | None, chain: int | None) -> None:
    if seed is not None:
        entropy = [seed] if chain is None else [seed, chain + 1]
        set_rng_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))


def _checked_start(params: Mapping[str, torch.Tensor] | None, num_chains: int) -> Samples | None:
    if params is None:
        return None
    if not isinstance(params, Mapping):
        raise wrong_type("initial_params", "a dict of tensors", params)
    for name, value in params.items():
        check_type(value, torch.Tensor, f"initial_params[{name!r}]", "a tensor")
        if value.dim() == 0 or len(value) != num_chains:
            expected = f"a first dimension of {num_chains} chains"
            received = f"shape {tuple(value.shape)}"
            raise unexpected(f"initial_params[{name!r}]", expected, received=received, code="wrong-shape")
    return dict(params)
