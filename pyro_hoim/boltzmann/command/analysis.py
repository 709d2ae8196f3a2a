"""A learned machine with its log Z and its scores on every part of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...core.command.answers import log_partition_json
from ...core.partition import LogPartition
from ...core.scores import mean_gain, mean_over_rows
from ...data.observations import Observations
from ...errors import IntractableError
from ...log_linear.annealed.importance import AnnealedImportance
from ...log_linear.normaliser import in_coding
from ...runs.schedule import GibbsSchedule
from ..file import MachineFile, save_machine
from ..law import BoltzmannMachine
from ..learning.fit import MachineResult
from ..scores import row_log_pseudo_scores, row_log_scores

__all__ = [
    "COLOURS",
    "MachineAnalysis",
    "MachineScores",
    "annealed",
    "find_log_z",
    "independent_shares",
    "score_machine",
    "summary_of",
]

COLOURS = GibbsSchedule("colours")
"""Layers in turn."""


@dataclass(frozen=True)
class MachineScores:
    """Mean scores of rows, in nats a row; None where they are not to be had.

    Attributes:
        rows: number of observations.
        nll: mean negative log-likelihood, missing cells summed over.
        nll_std_error: its standard error over rows.
        kl: ``nll`` less the entropy of the rows' empirical law; None with missing cells.
        pseudo_nll: mean negative log pseudo-likelihood; a missing cell is summed over and adds no factor of its own.
        gain: mean log-likelihood above that of independent columns.
        gain_std_error: its standard error over rows.
        independent_kl: as ``kl``, of independent columns.
    """

    rows: float
    nll: float
    nll_std_error: float | None
    kl: float | None
    pseudo_nll: float | None
    gain: float | None
    gain_std_error: float | None
    independent_kl: float | None


@dataclass(frozen=True)
class MachineAnalysis:
    """What a fit has found.

    Attributes:
        result: the machine and how it was learned.
        log_z: exact, or an estimate with its verdict.
        parts: scores of every part of the rows, None of an empty one.
        shares: of level 1 of every column among the training rows, half a row added to each level.
        title: of the page.
        about: sentences on the rows.
        seed: of everything random.
        target: column that is predicted, too, if any.
        accuracy: how well, by part.
        has_weights: whether the numbers of rows are sums of weights.
    """

    result: MachineResult
    log_z: LogPartition
    parts: Mapping[str, MachineScores | None]
    shares: Sequence[float]
    title: str
    about: Sequence[str]
    seed: int
    target: str | None = None
    accuracy: Mapping[str, dict[str, Any] | None] = field(default_factory=dict[str, Any])
    has_weights: bool = False

    @property
    def law(self) -> BoltzmannMachine:
        """The machine."""
        return self.result.law

    @property
    def info(self) -> dict[str, Any]:
        """What the file says beside the machine."""
        found: dict[str, Any] = {"independent": list(self.shares), "method": self.result.options.method}
        if self.log_z.kind != "exact":
            found["log_partition"] = self.log_z.to_json()
        return found

    def save(self, path: Path) -> None:
        """Write the model file."""
        save_machine(path, MachineFile(self.law.structure, self.law.theta, self.info))


def annealed(law: BoltzmannMachine, backend: AnnealedImportance) -> LogPartition:
    """An estimate of log Z in the machine's own coding, by chains of all variables."""
    joint = law.joint
    return in_coding(joint.energy_model, backend.log_partition(joint.energy_model), "corner")


def find_log_z(law: BoltzmannMachine, seed: int, progress: bool) -> LogPartition:
    """Exact where it can be, else estimated."""
    try:
        return law.log_partition
    except IntractableError:
        return annealed(law, AnnealedImportance(seed=seed, schedule=COLOURS, progress=progress))


def independent_shares(rows: Observations) -> list[float]:
    """Share of level 1 of every column, half a row added to each level."""
    ones = (rows.codes == 1).double().T @ rows.counts
    known = (rows.codes >= 0).double().T @ rows.counts
    return ((ones + 0.5) / (known + 1)).tolist()


def score_machine(
    law: BoltzmannMachine, data: Observations, log_z: LogPartition, shares: Sequence[float] | None
) -> MachineScores:
    """Scores of rows with a positive total count."""
    total, counts, squares = data.total_count, data.counts, data.squared_weights
    own = row_log_scores(law, data).double() - log_z.value.double()
    nll, nll_error = mean_over_rows(-own, counts, squares)
    entropy = None if data.has_missing else data.entropy()
    gain = gain_error = independent_kl = None
    if shares is not None:
        p = torch.tensor(shares, dtype=torch.float64)
        cells = torch.where(data.codes == 1, p.log(), (-p).log1p())
        alone = torch.where(data.codes < 0, 0.0, cells).sum(-1)
        gain, gain_error = mean_gain(own, alone, counts, squares)
        independent_kl = None if entropy is None else -float((alone * counts).sum()) / total - entropy
    return MachineScores(
        rows=total,
        nll=nll,
        nll_std_error=nll_error if data.effective_count > 1 else None,
        kl=None if entropy is None else nll - entropy,
        pseudo_nll=-float((row_log_pseudo_scores(law, data) * counts).sum()) / total,
        gain=gain,
        gain_std_error=gain_error,
        independent_kl=independent_kl,
    )


def summary_of(analysis: MachineAnalysis) -> dict[str, Any]:
    """Log Z and what is known of learning, for the JSON of ``fit``."""
    result, structure = analysis.result, analysis.law.structure
    return {
        "num_hidden": structure.num_hidden,
        "num_interactions": len(structure.edges),
        "num_parameters": structure.num_parameters,
        "edges": [list(edge) for edge in structure.edges],
        "log_partition": log_partition_json(analysis.log_z),
        "method": result.options.method,
        "iterations": result.iterations,
        "converged": result.converged,
        "score": result.score_name,
    }
