"""A posterior over structure with what a reader needs to judge it: rival models, other priors, averaged cells."""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pyro.ops.stats import split_gelman_rubin

from ...data.observations import Observations
from ...inference.structure.cells import MAX_CELLS
from ...inference.structure.drawn.average import MAX_VARIABLES, average_decomposable
from ...inference.structure.drawn.sampling import (
    ChainSettings,
    posterior_of,
    sample_chain,
    sample_structures,
    theta_given,
)
from ...inference.structure.posterior import StructurePosterior, StructureProbability, enumerate_structures
from ...inference.structure.prior import StructurePrior
from ...inference.structure.scorer import StructureEvidence
from ...interop.arviz import to_arviz
from ...interop.loo import loo_by_cell, loo_figures
from ...log_linear.laws.law import cell_log_likelihood
from ...log_linear.named_priors import Prior
from ...runs.checkpoint import RunOptions
from ...structure.hypergraph import InteractionHypergraph
from ..posterior import compare_data, in_processes

__all__ = [
    "STRUCTURE_FILE",
    "LeftOut",
    "RivalModel",
    "Route",
    "StructureRecord",
    "find_structures",
    "record_structures",
]

STRUCTURE_FILE = "structures.safetensors"
"""Name of the file of a posterior over structure."""

Route = Literal["list", "junction-trees", "chains"]
_RIVALS = 5
_FACTORS = (0.25, 1.0, 4.0)


@dataclass(frozen=True)
class LeftOut:
    """Leave-one-out cross-validation of one collection.

    Attributes:
        elpd: expected log predictive density, nats.
        std_error: its standard error over rows.
        num_effective_parameters: the effective number of parameters.
        max_pareto_k: largest Pareto shape.
        max_r_hat: largest R-hat of the draws of theta that it rests on.
        weight: of the collection in the mixture that predicts rows left out with the largest density (stacking).
    """

    elpd: float
    std_error: float
    num_effective_parameters: float
    max_pareto_k: float
    max_r_hat: float
    weight: float = 1.0


@dataclass(frozen=True)
class RivalModel:
    """One of the most probable collections: its probability and evidence, and its leave-one-out where there is any."""

    hypergraph: InteractionHypergraph
    probability: float
    log_evidence: float
    left_out: LeftOut | None

    @property
    def name(self) -> str:
        """The generating class, such as ``[a b][c]``."""
        return "".join(f"[{' '.join(edge)}]" for edge in self.hypergraph.maximal_edges)


@dataclass(frozen=True, eq=False)
class StructureRecord:
    """A posterior over structure as a page and a file show it.

    Attributes:
        posterior: the posterior.
        route: how it was found: every collection in a list, independent draws of junction trees, or chains.
        prior: of theta.
        rivals: the five most probable collections.
        others: posteriors under a quarter, once and four times the information of the prior, by the prior.
        cells: mean probabilities of cells, (*cardinalities); None where the table has more than 4,096.
        reason: why leave-one-out is missing; empty where it is there.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[6, 4], [3, 7]])
        >>> law, prior = StructurePrior(rows.domain, space="decomposable"), Prior("conjugate", 1.0)
        >>> posterior, route = find_structures(rows, prior, law, None, seed=1, run=RunOptions())
        >>> record = record_structures(posterior, route, 2, 20, seed=1)
        >>> [rival.name for rival in record.rivals], list(record.others)
        (['[a][b]', '[a b]'], ['conjugate:0.25', 'conjugate:1', 'conjugate:4'])
    """

    posterior: StructurePosterior
    route: Route
    prior: Prior
    rivals: tuple[RivalModel, ...]
    others: dict[str, StructurePosterior]
    cells: torch.Tensor | None
    reason: str

    @cached_property
    def max_r_hat(self) -> float | None:
        """Largest R-hat of an indicator, infinite where chains are stuck apart; None without chains."""
        r_hat = self.posterior.inclusion.r_hat
        return None if r_hat is None else float(r_hat.max()) if len(r_hat) else 1.0

    def to_json(self, file: str) -> dict[str, Any]:
        """What a file of numbers holds of it, with the name of the posterior's own file."""
        posterior, inclusion = self.posterior, self.posterior.inclusion
        r_hats = [None] * len(inclusion.edges) if inclusion.r_hat is None else inclusion.r_hat.tolist()
        rows = zip(inclusion.edges, inclusion.mean.tolist(), inclusion.mcse.tolist(), r_hats, strict=True)
        return {
            "method": self.route,
            "evidence_method": posterior.method,
            "is_exact": posterior.is_exact,
            "status": posterior.status,
            "space": posterior.structure_prior.space.name,
            "prior": str(self.prior),
            "num_collections": posterior.num_structures,
            "inclusion": [
                {"edge": list(edge), "probability": mean, "mcse": mcse, "r_hat": r_hat}
                for edge, mean, mcse, r_hat in rows
            ],
            "models": [_rival_json(rival) for rival in self.rivals],
            "loo_missing": self.reason or None,
            "other_priors": [
                {"prior": name, "num_effective": other.num_effective, "inclusion": other.inclusion.mean.tolist()}
                for name, other in self.others.items()
            ],
            "max_r_hat": self.max_r_hat,
            "file": file,
        }


def _rival_json(rival: RivalModel) -> dict[str, Any]:
    """The keys of one collection."""
    left = rival.left_out
    return {
        "edges": [list(edge) for edge in rival.hypergraph.edges],
        "probability": rival.probability,
        "log_evidence": rival.log_evidence,
        "elpd_loo": left and left.elpd,
        "elpd_se": left and left.std_error,
        "p_loo": left and left.num_effective_parameters,
        "max_pareto_k": left and left.max_pareto_k,
        "stacking_weight": left and left.weight,
    }


def find_structures(
    rows: Observations,
    prior: Prior,
    law: StructurePrior,
    settings: ChainSettings | None,
    *,
    jobs: int = 1,
    seed: int,
    run: RunOptions,
) -> tuple[StructurePosterior, Route]:
    """The posterior over structure by the route that its space allows: a list, junction trees, or chains.

    With ``settings`` chains are run in any case. ``run`` names the checkpoint file of chains. In several ``jobs`` every
    chain has a process, and a file with its number, of its own; the draws are the same, and a run is continued from the
    files that it has, whatever the number of jobs.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[6, 4], [3, 7]])
        >>> law, prior = StructurePrior(rows.domain, space="decomposable"), Prior("conjugate", 1.0)
        >>> posterior, route = find_structures(rows, prior, law, None, seed=1, run=RunOptions())
        >>> route, posterior.num_structures, round(posterior.inclusion["a", "b"], 2)
        ('list', 2, 0.26)
    """
    if settings is None and law.is_listed:
        return enumerate_structures(rows, prior, law, seed=seed), "list"
    is_closed = prior.kind == "conjugate" and law.space.name == "decomposable"
    if settings is None and is_closed and len(rows.domain) <= MAX_VARIABLES:
        return average_decomposable(rows, prior, law, seed=seed), "junction-trees"
    settings = ChainSettings() if settings is None else settings
    files = _files(run, settings.num_chains)
    has_own = any(path is not None and path.exists() for path in files)
    if not has_own and (jobs == 1 or (run.checkpoint is not None and Path(run.checkpoint).exists())):
        return sample_structures(rows, prior, law, settings, seed=seed, run=run), "chains"
    draw = partial(_own_chain, rows, prior, law, settings, files, seed, run.resume)
    numbers = dict(enumerate(range(settings.num_chains)))
    with closing(in_processes(draw, numbers, jobs, run.progress)) as results:
        drawn = dict(results)
    return posterior_of(_evidence(rows, prior, law, seed), law, [drawn[k] for k in numbers], None), "chains"


def _files(run: RunOptions, num: int) -> list[Path | None]:
    """The checkpoint of every chain that is drawn by itself."""
    if run.checkpoint is None:
        return [None] * num
    path = Path(run.checkpoint).absolute()  # a process may have another working directory
    return [path.with_name(f"{path.stem}-chain-{k}{path.suffix}") for k in range(num)]


def _evidence(rows: Observations, prior: Prior, law: StructurePrior, seed: int) -> StructureEvidence:
    return StructureEvidence(rows, law.space, prior, seed=seed)


def _own_chain(
    rows: Observations,
    prior: Prior,
    law: StructurePrior,
    settings: ChainSettings,
    files: list[Path | None],
    seed: int,
    resume: bool,
    number: int,
) -> list[int]:
    """The draws of one chain, in a process of its own."""
    run = RunOptions(files[number], resume)
    return sample_chain(_evidence(rows, prior, law, seed), law, settings, number, seed=seed, run=run)


def record_structures(
    posterior: StructurePosterior, route: Route, num_chains: int, num_draws: int, *, seed: int
) -> StructureRecord:
    """Set the rivals, other priors and averaged cells beside a posterior whose prior of theta has a name.

    Args:
        posterior: the posterior.
        route: how it was found.
        num_chains: chains of theta given each of the most probable collections.
        num_draws: draws of each.
        seed: of these draws.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[6, 4], [3, 7]])
        >>> law, prior = StructurePrior(rows.domain, space="decomposable"), Prior("conjugate", 1.0)
        >>> posterior, route = find_structures(rows, prior, law, None, seed=1, run=RunOptions())
        >>> record = record_structures(posterior, route, 2, 20, seed=1)
        >>> record.cells.shape, round(float(record.cells.sum()), 6), record.reason
        (torch.Size([2, 2]), 1.0, '')
    """
    prior = posterior.evidence.prior
    assert isinstance(prior, Prior)
    models = posterior.models(_RIVALS)
    left_out, reason = _left_out(posterior, models, (num_chains, num_draws), seed)
    rivals = [RivalModel(*model, left) for model, left in zip(models, left_out, strict=True)]
    others = {str(prior.scaled(factor)): factor for factor in _FACTORS}
    is_small = posterior.structure_prior.space.domain.num_states <= MAX_CELLS
    return StructureRecord(
        posterior=posterior,
        route=route,
        prior=prior,
        rivals=tuple(rivals),
        others={name: posterior if f == 1 else posterior.reweighted(name) for name, f in others.items()},
        cells=posterior.cell_probabilities() if is_small else None,
        reason=reason,
    )


def _left_out(
    posterior: StructurePosterior, models: tuple[StructureProbability, ...], shape: tuple[int, int], seed: int
) -> tuple[list[LeftOut | None], str]:
    """Leave-one-out of every collection with stacking weights, or why there is none."""
    cells = posterior.data
    reason = ""
    if cells.domain.num_states > MAX_CELLS:
        reason = f"the table has more than {MAX_CELLS:,} cells"
    elif bool((cells.counts % 1 != 0).any()):
        reason = "the counts are not whole numbers"
    elif int((cells.counts > 0).sum()) < 2:
        reason = "all rows fall in one cell"
    if reason:
        return [None] * len(models), reason
    data: dict[str, Any] = {}
    records: list[LeftOut] = []
    for number, model in enumerate(models):
        mask = posterior.structure_prior.space.mask_of(model.hypergraph)
        theta = theta_given(posterior.evidence, mask, *shape, seed=seed + number)
        one = _arviz_data(model.hypergraph, cells, theta)
        r_hats = split_gelman_rubin(theta, chain_dim=0, sample_dim=1) if model.hypergraph.num_parameters else None
        r_hat = 1.0 if r_hats is None else float(r_hats.nan_to_num(1.0).max())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the largest Pareto k is part of the record
            figures = loo_figures(loo_by_cell(one))
        records.append(LeftOut(figures["elpd"], figures["se"], figures["p"], figures["max_pareto_k"], r_hat))
        data[str(number)] = one
    if len(records) > 1:
        table = compare_data(data)
        weights = dict(zip(map(str, table.index), table["weight"].tolist(), strict=True))
        records = [replace(left, weight=weights[str(k)]) for k, left in enumerate(records)]
    return list(records), ""


def _arviz_data(hypergraph: InteractionHypergraph, cells: Observations, theta: torch.Tensor) -> Any:
    """Draws of theta (chains, draws, P) with the log-likelihood of every cell."""
    terms = cell_log_likelihood(hypergraph, theta, cells.codes).numpy()
    return to_arviz(
        {"theta": theta.numpy()},
        hypergraph=hypergraph,
        log_likelihood={"cell": terms},
        cell_count=cells.counts.numpy().astype(np.int64),
    )
