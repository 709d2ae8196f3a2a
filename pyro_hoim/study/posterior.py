"""Posterior of one model inside an analysis: chains with checkpoints, diagnostics, leave-one-out."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from ..core.partition import PartitionBackend
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import ConvergenceWarning, check_type, check_whole, conflict
from ..inference.kernels import NUTSSettings, r_hat_limit
from ..inference.posterior import sample_posterior
from ..interop.arviz import ArvizNames, to_arviz
from ..interop.loo import compare_by_cell, loo_by_cell, loo_figures, summarise
from ..log_linear.auto import Auto
from ..log_linear.fitting.existence import check_rows_possible
from ..log_linear.impossible import ImpossibleStates, on_support
from ..log_linear.laws.law import cell_log_likelihood
from ..log_linear.named_priors import Prior
from ..runs.arguments import checked_seed
from ..runs.checkpoint import RunFile, RunOptions, check_arrays, checked_run
from ..runs.container import FORMAT_VERSION
from ..structure.hypergraph import InteractionHypergraph

# The chains of a posterior within a study, one after the other or in several processes, and their settings.

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
        impossible: structural zeros of the model, whose theta is that of the finite part.
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
    impossible: ImpossibleStates | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jobs is not None:
            check_whole(self.jobs, "jobs")
        if self.impossible is not None and self.prior.kind == "conjugate":
            raise conflict("prior", "conjugate spreads rows over all cells, received impossible states", "use normal:S")

    @property
    def partition(self) -> PartitionBackend:
        """The backend of log Z."""
        return on_support(Auto(), self.impossible)


def draw_chain(
    hypergraph: InteractionHypergraph, data: Observations, settings: PosteriorSettings, progress: bool, seed: int
) -> Chain:
    """One chain, which depends on its seed alone."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # judged over all chains together
        result = sample_posterior(
            hypergraph,
            data,
            settings.prior.distribution(hypergraph),
            replace(settings, num_chains=1),
            partition=settings.partition,
            seed=seed,
            progress=progress,
        )
    # Draws and what the sampler says of each, as a checkpoint holds them.
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
        for number, content in results:
            bar.update()
            yield number, pickle.loads(content)  # noqa: S301 (made by our own process)


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


_MAX_REPLICATED_CELLS = 4096
_DIGEST = "data, interactions, seed or settings digest"


@dataclass(frozen=True)
class Posterior:
    """Draws of one model with what a reader needs to judge them.

    Attributes:
        data: ArviZ data (InferenceData or DataTree).
        theta: draws of the free parameters, (num_chains, num_draws, num_parameters).
        summary: ArviZ's summary of theta.
        elpd_loo: expected log predictive density by leave-one-out, in nats; NaN where it cannot be had.
        elpd_se: its standard error.
        p_loo: effective number of parameters.
        max_pareto_k: largest Pareto shape.
        max_r_hat: largest rank-normalised R-hat.
        min_ess_bulk: smallest bulk effective sample size.
        num_divergences: divergent transitions after warm-up.
        description: one paragraph on prior and sampler.
        prior: of the draws.
    """

    data: Any
    theta: np.ndarray
    summary: pd.DataFrame
    elpd_loo: float
    elpd_se: float
    p_loo: float
    max_pareto_k: float
    max_r_hat: float
    min_ess_bulk: float
    num_divergences: int
    description: str
    prior: Prior

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.theta.shape[0]

    @property
    def num_draws(self) -> int:
        """Draws of each chain."""
        return self.theta.shape[1]

    @property
    def is_converged(self) -> bool:
        """Whether no transition diverged and R-hat is below the library's limit for chains of this length."""
        limit = r_hat_limit(self.num_chains, self.num_draws)
        return not self.num_divergences and not self.max_r_hat > limit


def file_stem(name: str) -> str:
    """Part of a file name for a model's name: short, without separators, different for different names.

    Example:
        >>> file_stem("pairs"), file_stem("a:b / c")
        ('pairs', 'a-b-c-da4b2964')
    """
    stem = re.sub(r"[^\w.]+", "-", name)
    if stem == name.replace(" ", "-") and len(stem) <= 40:
        return stem
    return f"{stem[:40].strip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _digest(hypergraph: InteractionHypergraph, data: Observations, settings: PosteriorSettings, seed: int) -> str:
    """Fingerprint of everything that a chain depends on."""
    text = json.dumps(
        [FORMAT_VERSION, hypergraph.to_json(), settings.num_draws, settings.burn_in, str(settings.prior), seed]
    )
    if (states := settings.impossible) is not None:
        text += json.dumps([states.structure.to_json(), states.excluded.tolist()])
    rows = data.unique()
    return hashlib.sha256(text.encode() + rows.codes.numpy().tobytes() + rows.counts.numpy().tobytes()).hexdigest()


def _replicates(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, data: Observations, settings: PosteriorSettings, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Replicated tables (chain, draw, *cards) and the observed one, for small tables of whole counts."""
    cards = hypergraph.domain.cardinalities
    if hypergraph.domain.num_states > _MAX_REPLICATED_CELLS or not cards or data.total_count % 1:
        return None
    states = torch.cartesian_prod(*(torch.arange(n) for n in cards)).reshape(-1, len(cards))
    probs = np.exp(cell_log_likelihood(hypergraph, theta, states, settings.partition).numpy())
    drawn = np.random.default_rng(seed).multinomial(int(data.total_count), probs / probs.sum(-1, keepdims=True))
    return drawn.reshape(*theta.shape[:2], *cards), data.table().numpy()


def run_posterior(
    hypergraph: InteractionHypergraph,
    data: DataLike,
    settings: PosteriorSettings,
    *,
    seed: int,
    name: str = "model",
    run: RunOptions | None = None,
) -> Posterior:
    """Draw, diagnose and score the posterior of one model.

    Every finished chain is written to the folder of ``run``; to resume, the chains found there are not drawn again, so
    an interrupted run continues where it stopped and ends with the same draws. Chains may be drawn in several
    processes, which changes no draw; these end with an interruption, and with this process when it is killed.

    Args:
        hypergraph: the interactions.
        data: complete rows.
        settings: chains, draws, warm-up, prior.
        seed: chain ``c`` is drawn with seed ``seed + c``.
        name: names the checkpoint files.
        run: folder of the checkpoint files, made if missing, whether to use chains found there, and progress.

    Raises:
        InputError: a chain found belongs to other data or settings, or a seed or number of jobs out of range.
        InputTypeError: a hypergraph, observations, settings or seed of another type.

    Warns:
        ConvergenceWarning: R-hat above :func:`~pyro_hoim.inference.r_hat_limit`, or divergent transitions.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> rows = Observations.from_table(domain, [[9, 1], [1, 9]])
        >>> settings = PosteriorSettings(num_chains=2, num_draws=20, burn_in=20, jobs=1)
        >>> found = run_posterior(InteractionHypergraph.from_order(domain, 2), rows, settings, seed=1)
        >>> found.num_chains, found.num_draws, bool(found.theta[..., 2].mean() > 0.3)  # the pair tends to agree
        (2, 20, True)
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    data = as_observations(data, domain=hypergraph.domain)
    check_type(settings, PosteriorSettings, "settings")
    check_rows_possible(settings.impossible, data)
    seed = checked_seed(seed)
    run = checked_run(run)
    digests = [_digest(hypergraph, data, settings, seed + number) for number in range(settings.num_chains)]
    # Chains that an earlier session finished are read; the others are drawn and left beside them.
    folder = run.folder()
    paths = [
        None if folder is None else folder / f"{file_stem(name)}-chain-{c}.safetensors" for c in range(len(digests))
    ]
    files = [None if path is None else RunFile(path, run.resume) for path in paths]
    # Finished chains by number; a damaged file, or one of other data or settings, is refused.
    stored: dict[int, Chain] = {}
    for number, (file, digest) in enumerate(zip(files, digests, strict=True)):
        chain = None if file is None else file.start({"kind": "posterior chain", _DIGEST: digest})
        if file is not None and chain is not None:
            with file.taking_up():
                first = next(iter(stored.values()), chain)
                wanted: dict[str, tuple[object, ...]] = {
                    name: (tensor.dtype, settings.num_draws) for name, tensor in first.items()
                }
                wanted["theta"] = (torch.float64, settings.num_draws, hypergraph.num_parameters)
                check_arrays(chain, wanted)
                if not bool(chain["theta"].isfinite().all()):
                    raise ValueError("theta is not finite")
                stored[number] = chain
    missing = {number: seed + number for number in range(settings.num_chains) if number not in stored}
    with closing(draw_chains(hypergraph, data, settings, missing, run.progress)) as drawn:
        for number, chain in drawn:
            stored[number], file = chain, files[number]
            if file is not None:
                file.write(chain)
    # All chains as one array, with what the sampler says of every draw.
    chains = [stored[number] for number in range(settings.num_chains)]
    theta = torch.stack([c["theta"] for c in chains])
    stats = {
        key.removeprefix("stats."): torch.stack([c[key] for c in chains]).numpy()
        for key in chains[0]
        if key.startswith("stats.")
    }
    return _describe(hypergraph, data, settings, theta, stats, seed, name)


def _describe(
    hypergraph: InteractionHypergraph,
    data: Observations,
    settings: PosteriorSettings,
    theta: torch.Tensor,
    stats: dict[str, np.ndarray],
    seed: int,
    name: str,
) -> Posterior:
    """Diagnostics and leave-one-out of finished chains."""
    # Cells rather than rows, for those of one cell have the same likelihood.
    cells = data.unique()
    codes, counts = cells.codes, cells.counts.numpy()
    whole = bool((counts % 1 == 0).all())
    # Leave-one-out and replicated tables need whole counts: every row of a cell is left out once.
    groups: dict[str, Any] = {}
    if whole:
        terms = cell_log_likelihood(hypergraph, theta, codes, settings.partition).numpy()
        groups = {"log_likelihood": {"cell": terms}, "cell_count": counts.astype(np.int64)}
        replicated = _replicates(hypergraph, theta, data, settings, seed)
        if replicated is not None:
            axes = [f"{name}_level" for name in hypergraph.domain.names]
            groups |= {
                "posterior_predictive": {"table": replicated[0]},
                "observed_data": {"table": replicated[1]},
                "names": ArvizNames(
                    dims={"table": axes},
                    coords={axis: list(v.labels) for axis, v in zip(axes, hypergraph.domain, strict=True)},
                ),
            }
    arviz_data = to_arviz({"theta": theta.numpy()}, hypergraph=hypergraph, sample_stats=stats, **groups)
    # Diagnostics of the coordinates that were sampled.
    summary = summarise(arviz_data, var_names=["theta"], round_to="none").drop(columns="is_constant")
    # Leave-one-out by cell, each as often as it was seen.
    elpd = dict.fromkeys(("elpd", "se", "p", "max_pareto_k"), float("nan"))
    if whole and len(counts) > 1:
        # The largest Pareto k is part of the result.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            loo = loo_by_cell(arviz_data)
        elpd = loo_figures(loo)
    divergences = int(stats["diverging"].sum()) if "diverging" in stats else 0
    r_hat = float(summary["r_hat"].max()) if len(summary) else 1.0
    result = Posterior(
        data=arviz_data,
        theta=theta.numpy(),
        summary=summary,
        elpd_loo=elpd["elpd"],
        elpd_se=elpd["se"],
        p_loo=elpd["p"],
        max_pareto_k=elpd["max_pareto_k"],
        max_r_hat=r_hat,
        min_ess_bulk=float(summary["ess_bulk"].min()) if len(summary) else float(theta.shape[0] * theta.shape[1]),
        num_divergences=divergences,
        prior=settings.prior,
        description=(
            f"Prior {settings.prior}: {settings.prior.describe()}, on the coordinates of an orthonormal basis of the "
            f"balanced tables; NUTS, {settings.num_chains} chains, {settings.burn_in} "
            f"warm-up transitions and {settings.num_draws} draws each."
        ),
    )
    if not result.is_converged:
        warnings.warn(
            ConvergenceWarning(
                f"{name}: largest R-hat {r_hat:.3f}, {divergences} divergent transitions; draw longer chains"
            ),
            stacklevel=3,
        )
    return result


def compare_models(posteriors: Mapping[str, Posterior]) -> pd.DataFrame | None:
    """Leave-one-out comparison of posteriors of the same data by name, best model first.

    Returns:
        The table of :func:`~pyro_hoim.interop.compare_by_cell` without its warnings; None with fewer than two
        posteriors, or where leave-one-out does not exist.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> rows = Observations.from_table(domain, [[9, 1], [1, 9]])
        >>> settings = PosteriorSettings(num_chains=2, num_draws=20, burn_in=20, jobs=1)
        >>> models = {str(order): InteractionHypergraph.from_order(domain, order) for order in (1, 2)}
        >>> found = {name: run_posterior(model, rows, settings, seed=1) for name, model in models.items()}
        >>> list(compare_models(found).index)  # the pair comes first
        ['2', '1']
    """
    if len(posteriors) < 2 or any(np.isnan(p.elpd_loo) for p in posteriors.values()):
        return None
    return compare_data({name: p.data for name, p in posteriors.items()})


def compare_data(data: Mapping[str, Any]) -> pd.DataFrame:
    """The same of ArviZ data with the log-likelihood of every cell, by name."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # the largest Pareto k is part of the result
        return compare_by_cell(data).drop(columns="warning")
