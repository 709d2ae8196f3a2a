"""Log-likelihoods of posterior draws of any Pyro program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from pyro import poutine
from pyro.distributions import Unit
from pyro.poutine.messenger import Messenger
from pyro.poutine.trace_struct import Trace
from pyro.poutine.util import prune_subsample_sites, site_is_subsample

from ..errors import none_received, refused, unexpected

__all__ = ["log_joint", "pointwise_log_likelihood"]

Samples = Mapping[str, torch.Tensor]


def pointwise_log_likelihood(
    model: Callable[..., Any],
    samples: Samples,
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
    model: Callable[..., Any], samples: Samples, args: Any, kwargs: Any, group_by_chain: bool
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


def _observed(trace: Trace) -> dict[str, torch.Tensor]:
    """Unscaled log-probabilities of the observed sites."""
    return {
        name: site["unscaled_log_prob"].detach()
        for name, site in cast(dict[str, Any], trace.nodes).items()
        if site["type"] == "sample"
        and site["is_observed"]
        and not site["infer"].get("_deterministic")
        and not isinstance(site["fn"], Unit)
    }
