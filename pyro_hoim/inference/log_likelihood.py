"""Pointwise log-likelihoods of posterior draws: for any Pyro program, and per cell for log-linear models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from pyro import poutine
from pyro.distributions import Unit
from pyro.poutine.messenger import Messenger
from pyro.poutine.trace_struct import Trace
from pyro.poutine.util import prune_subsample_sites, site_is_subsample

from ..checks import check_shape
from ..core.partition import PartitionBackend
from ..errors import none_received, refused, unexpected, wrong_shape
from ..log_linear.coding import Coding
from ..log_linear.laws.law import HierarchicalLogLinear
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["cell_log_likelihood", "log_joint", "pointwise_log_likelihood"]

Samples = Mapping[str, torch.Tensor]


def pointwise_log_likelihood(
    model: Callable[..., Any],
    samples: Samples,
    *args: Any,
    group_by_chain: bool = True,
    parallel: bool = False,
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
        parallel: run the model once with all draws as an outermost batch dimension. Much faster, but the model must
            be vectorised; the first and last draws are checked against a run of their own.
        kwargs: keyword arguments of the model.

    Shape:
        ``samples[name]`` (chain, draw, \*site shape), or (draw, \*site shape); the result has the same leading
        dimensions followed by the batch shape of the observed site.

    Raises:
        InputError: no samples, leading dimensions that differ, a latent site without samples, no observed site, or
            with ``parallel`` a model that is not vectorised.

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
    lead, flat = _flatten(samples, group_by_chain)
    size = math.prod(lead)
    if parallel and size:
        result = _parallel(model, flat, size, args, kwargs)
        for i in {0, size - 1}:
            single = _observed(_conditioned(model, {k: v[i] for k, v in flat.items()}, args, kwargs))
            for name, value in single.items():
                if name not in result or not torch.allclose(result[name][i], value, rtol=1e-4, atol=1e-5):
                    problem = (
                        f"site {name!r} of draw {i} differs when the draws are run together, so the model is not "
                        "vectorised"
                    )
                    raise refused("parallel", problem, "use parallel=False", code="other-domain")
    else:
        traces = (_conditioned(model, {k: v[i] for k, v in flat.items()}, args, kwargs) for i in range(size))
        rows = [_observed(trace) for trace in traces]
        result = {name: torch.stack([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    if not result:
        problem = "expected at least one observed site, found none"
        raise refused("model", problem, "pass the data to the model", code="empty")
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in result.items()}


def log_joint(
    model: Callable[..., Any], samples: Samples, *args: Any, group_by_chain: bool = True, **kwargs: Any
) -> torch.Tensor:
    """Log of the joint density of data and draw (nats), in the constrained space, in the leading shape of the samples.

    Args:
        model: as in :func:`pointwise_log_likelihood`, like what follows.
        samples: likewise.
        args: likewise.
        group_by_chain: likewise.
        kwargs: likewise.
    """
    lead, flat = _flatten(samples, group_by_chain)
    size = math.prod(lead)
    values = [
        torch.as_tensor(_conditioned(model, {k: v[i] for k, v in flat.items()}, args, kwargs).log_prob_sum())
        for i in range(size)
    ]
    return torch.stack(values).reshape(lead).detach()


def cell_log_likelihood(
    hypergraph: InteractionHypergraph,
    theta: torch.Tensor,
    states: torch.Tensor,
    *,
    coding: Coding = "free",
    partition: PartitionBackend | None = None,
    batch_size: int = 1024,
) -> torch.Tensor:
    r"""Log-probability of each observed cell under each draw of theta: one term per cell, not per row.

    .. math:: \ell_{sc} = \theta_s \cdot A_{x_c} - \log Z(\theta_s)

    Rows in one cell share their term; :func:`pyro_hoim.interop.loo_by_cell` weights it by the cell's count.

    Args:
        hypergraph: the interactions.
        theta: posterior draws.
        states: codes of the distinct observed cells, for instance ``observations.unique().codes``.
        coding: coding of ``theta``.
        partition: exact backend; the distribution's default when None.
        batch_size: draws evaluated at once.

    Shape:
        ``theta`` (\*sample, num_parameters), ``states`` (num_cells, d); returns (\*sample, num_cells), nats.

    Raises:
        InputError: wrong shapes or codes.
        IntractableError: log Z exceeds the backend's budget.
    """
    check_shape(states, (len(hypergraph.domain),), "states")
    if states.dim() != 2:
        raise wrong_shape("states", f"(num_cells, {len(hypergraph.domain)})", states)
    lead, flat = theta.shape[:-1], theta.detach().reshape(-1, theta.shape[-1])
    parts = []
    with torch.no_grad():
        for chunk in flat.split(batch_size):
            law = HierarchicalLogLinear(hypergraph, chunk, coding=coding, partition=partition)
            parts.append(law.log_prob(states[:, None]).T)
    return torch.cat(parts).reshape(*lead, states.shape[0])


def _flatten(samples: Samples, group_by_chain: bool) -> tuple[tuple[int, ...], dict[str, torch.Tensor]]:
    """Leading shape and the samples with one leading dimension."""
    num = 2 if group_by_chain else 1
    if not samples:
        raise none_received("samples", "draws of at least one site")
    shapes = {name: tuple(value.shape[:num]) for name, value in samples.items()}
    lead = next(iter(shapes.values()))
    if len(lead) < num or any(shape != lead for shape in shapes.values()):
        expected = f"{num} equal leading dimensions for every site"
        raise unexpected("samples", expected, received=shapes, code="wrong-shape")
    return lead, {name: value.reshape(-1, *value.shape[num:]) for name, value in samples.items()}


class _SetLatent(Messenger):
    """Give latent sites their values and leave observed ones alone; a latent site without a value is an error."""

    def __init__(self, values: Samples) -> None:
        super().__init__()
        self._values = values

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] or site_is_subsample(msg):
            return
        if msg["name"] not in self._values:
            problem = f"latent site {msg['name']!r} has no draws"
            raise refused("samples", problem, "give them, or marginalise it out of the model", code="missing-part")
        msg["value"], msg["done"] = self._values[msg["name"]], True


def _conditioned(model: Callable[..., Any], values: Samples, args: Any, kwargs: Any) -> Trace:
    """Trace of the model with its latent sites set."""
    with torch.no_grad(), poutine.trace() as tracer, _SetLatent(values):
        model(*args, **kwargs)
    trace = prune_subsample_sites(tracer.trace)
    trace.compute_log_prob()
    return trace


def _nodes(trace: Trace) -> dict[str, Any]:
    """Messages of a trace by site; which keys they have is known after ``compute_log_prob`` only."""
    return dict(trace.nodes)


def _observed(trace: Trace) -> dict[str, torch.Tensor]:
    """Unscaled log-probabilities of the observed sites."""
    return {
        name: site["unscaled_log_prob"].detach()
        for name, site in _nodes(trace).items()
        if site["type"] == "sample"
        and site["is_observed"]
        and not site["infer"].get("_deterministic")
        and not isinstance(site["fn"], Unit)
    }


def _parallel(model: Callable[..., Any], flat: Samples, size: int, args: Any, kwargs: Any) -> dict[str, torch.Tensor]:
    """All draws as one batch dimension to the left of every plate."""
    single = _conditioned(model, {k: v[0] for k, v in flat.items()}, args, kwargs)
    nodes = _nodes(single)
    sites = [site for site in nodes.values() if site["type"] == "sample"]
    depth = max((len(site["fn"].batch_shape) for site in sites), default=0)
    values = {}
    for name, value in flat.items():
        event = value.shape[1:]
        if name in nodes:
            missing = depth - len(nodes[name]["fn"].batch_shape)
            values[name] = value.reshape(size, *(1,) * missing, *event)
    together = _observed(_conditioned(model, values, args, kwargs))
    result = {}
    for name, value in together.items():
        batch = nodes[name]["unscaled_log_prob"].shape
        try:
            full = value.expand(size, *(1,) * (depth - len(batch)), *batch)
        except RuntimeError:
            problem = f"site {name!r} is not vectorised"
            raise refused("parallel", problem, "use parallel=False", code="no-method") from None
        result[name] = full.reshape(size, *batch)
    return result
