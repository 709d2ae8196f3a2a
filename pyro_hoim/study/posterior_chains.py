"""The chains of a posterior within a study, one after the other or in several processes, and their settings."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast

import numpy as np
import torch
from tqdm import tqdm

from ..data.observations import Observations
from ..errors import ConvergenceWarning, check_whole
from ..inference.kernels import NUTSSettings
from ..inference.posterior import sample_posterior
from ..interop.arviz import to_arviz
from ..log_linear.named_priors import Prior
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["Chain", "PosteriorSettings", "draw_chains", "in_processes"]

_Drawn = TypeVar("_Drawn")

Chain = dict[str, torch.Tensor]
"""``theta`` (draws, parameters) and ``stats.<name>`` (draws,)."""

_LEAST_TRANSITIONS = 4000
"""Transitions of all chains below which processes, which import the library first, take longer than they save."""


@dataclass(frozen=True)
class PosteriorSettings(NUTSSettings):
    """How posteriors are sampled: :class:`~pyro_hoim.inference.NUTSSettings`, by default 500 transitions of burn-in.

    Attributes:
        prior: of the free parameters; any but ``none``.
        jobs: chains at a time; beyond one, each is drawn in a process of its own. None takes one per core where the
            chains have 4,000 transitions or more together, and one elsewhere.

    Example:
        >>> settings = PosteriorSettings(num_chains=2, num_draws=200)
        >>> settings.burn_in, settings.prior
        (500, Prior(kind='normal', number=1.0))
    """

    burn_in: int | None = 500
    prior: Prior = field(default_factory=lambda: Prior("normal", 1.0))
    jobs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jobs is not None:
            check_whole(self.jobs, "jobs")


def draw_chain(
    hypergraph: InteractionHypergraph, data: Observations, settings: PosteriorSettings, progress: bool, seed: int
) -> Chain:
    """One chain, which depends on its seed alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # judged over all chains together
        result = sample_posterior(
            hypergraph,
            data,
            settings.prior.distribution(hypergraph),
            replace(settings, num_chains=1),
            seed=seed,
            progress=progress,
        )
    tensors = {"theta": result.theta[0].contiguous()}
    stats = to_arviz(result.run)["sample_stats"]
    for name in stats.data_vars:
        values = np.asarray(stats[name].values)
        if values.shape == (1, settings.num_draws):
            tensors[f"stats.{name}"] = torch.from_numpy(np.ascontiguousarray(values[0]))
    return tensors


def draw_chains(
    hypergraph: InteractionHypergraph,
    data: Observations,
    settings: PosteriorSettings,
    seeds: Mapping[int, int],
    progress: bool,
) -> Generator[tuple[int, Chain]]:
    """The chains of some numbers, by their seeds, as they get done, ``(number, chain)``, whatever ``settings.jobs``."""
    import joblib

    jobs = settings.jobs
    if jobs is None:
        length = len(seeds) * (settings.num_draws + (settings.burn_in or 0))
        jobs = joblib.cpu_count() if length >= _LEAST_TRANSITIONS else 1
    jobs = min(jobs, len(seeds))
    if jobs <= 1:
        for number, seed in seeds.items():
            yield number, draw_chain(hypergraph, data, settings, progress, seed)
        return
    yield from in_processes(partial(draw_chain, hypergraph, data, settings, False), seeds, jobs, progress)


def in_processes(
    draw: Callable[[int], _Drawn], arguments: Mapping[int, int], jobs: int, progress: bool
) -> Generator[tuple[int, _Drawn]]:
    """What a function that can be pickled draws, by number, as it gets done, in so many processes at a time."""
    import joblib

    # Pickled here, because PyTorch would put tensors that are sent to a process into shared memory.
    task = pickle.dumps(draw)
    parallel = joblib.Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered")
    calls = (joblib.delayed(_in_process)(task, number, argument, os.getpid()) for number, argument in arguments.items())
    bar = tqdm(total=len(arguments), desc="chains", unit="chain", disable=not progress, file=sys.stderr)
    with bar, closing(cast("Generator[tuple[int, bytes]]", parallel(calls))) as results:
        for number, found in results:
            bar.update()
            yield number, pickle.loads(found)  # noqa: S301 (made by our own process)


def _in_process(task: bytes, number: int, argument: int, parent: int) -> tuple[int, bytes]:
    """Number of a chain and the chain, drawn by a process that leaves interruptions to its parent and ends with it."""
    draw = cast("Callable[[int], object]", pickle.loads(task))  # noqa: S301 (made by our own process)
    if os.getpid() == parent:
        return number, pickle.dumps(draw(argument))
    _end_with(parent)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return number, pickle.dumps(draw(argument))
    finally:
        signal.signal(signal.SIGINT, before)  # the process may be given other work


_watched: set[int] = set()


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may have been killed."""
    if parent in _watched or os.getppid() != parent:
        return
    _watched.add(parent)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="pyro-hoim-parent", daemon=True).start()
