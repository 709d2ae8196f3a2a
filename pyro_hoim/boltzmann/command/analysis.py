"""A learned machine with its log Z and its scores on every part of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from ...budgets import MAX_SWEEPS
from ...core.command.answers import by_part, log_partition_json, rows_by_part
from ...core.command.options import LABELLED
from ...core.command.rows import LabelledPlan, Missing, Table, warn_of_size
from ...core.family import Option, Request, Study
from ...core.partition import LogPartition
from ...core.scores import Scores, mean_gain, mean_over_rows
from ...core.words import num_states_text, option, plural, rows_text
from ...data.observations import Observations
from ...errors import IntractableError, check_names, conflict
from ...log_linear.annealed.importance import AnnealedImportance
from ...log_linear.auto import in_coding
from ...runs.checkpoint import RunOptions
from ...runs.schedule import GibbsSchedule
from ...schema import Domain
from ..file import MachineFile, save_machine
from ..law import BoltzmannMachine, predict_machine, row_log_pseudo_scores, row_log_scores
from ..learning.fit import MachineResult, check_method, fit_machine
from ..learning.options import LearningOptions
from ..structure import MachineStructure, check_edges

__all__ = [
    "COLOURS",
    "MACHINE_OPTIONS",
    "SCORES",
    "MachineAnalysis",
    "MachinePlan",
    "annealed",
    "estimate",
    "find_log_z",
    "score_machine",
]


COLOURS = GibbsSchedule("colours")
"""Layers in turn."""


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
    parts: Mapping[str, Scores | None]
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
) -> Scores:
    """Scores of rows with a positive total count."""
    total, counts, squares = data.total_count, data.counts, data.squared_weights
    log_probs = row_log_scores(law, data).double() - log_z.value.double()
    nll, nll_error = mean_over_rows(-log_probs, counts, squares)
    entropy = None if data.has_missing else data.entropy()
    gain = gain_error = None
    if shares is not None:
        p = torch.tensor(shares, dtype=torch.float64)
        cells = torch.where(data.codes == 1, p.log(), (-p).log1p())
        alone = torch.where(data.codes < 0, 0.0, cells).sum(-1)
        gain, gain_error = mean_gain(log_probs, alone, counts, squares)
    return Scores(
        rows=total,
        nll=nll,
        nll_std_error=nll_error if data.effective_count > 1 else None,
        kl=None if entropy is None else nll - entropy,
        pseudo_nll=-float((row_log_pseudo_scores(law, data) * counts).sum()) / total,
        gain=gain,
        gain_std_error=gain_error,
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


# Learning a restricted Boltzmann machine at the command line.

_PATIENCE = 10  # evaluations, of 100
SCORES = {
    **{name: name for name in ("nll", "kl", "pseudo_nll", "gain", "gain_std_error")},
    "independent_kl": "reference_kl",
}
"""Keys of JSON for scores of rows."""

MACHINE_OPTIONS = (
    Option("hidden", "Hidden units; 0 makes the columns independent.", kind="whole", low=0, default=8),
    Option(
        "method",
        "pcd: gradients from chains that are kept; cd: contrastive divergence, from chains that start at the "
        "rows; exact: exact gradients, where the smaller layer has few states.",
        choices=("pcd", "cd", "exact"),
        default="pcd",
    ),
    Option("steps", "Sweeps of the chains for a step of cd or pcd.", kind="whole", low=1, high=MAX_SWEEPS, default=1),
    Option("rate", "Rate of cd and pcd.", kind="number", high=100, is_open=True, default=0.1),
    Option("iterations", "Steps of the gradient, at most.", kind="whole", low=1, high=MAX_SWEEPS, default=10_000),
    Option("decay", "Weight of half the squared weights.", kind="number", high=1e6, default=0.0),
    *LABELLED,
)


@dataclass(frozen=True)
class MachinePlan(LabelledPlan):
    """Learning a machine; see :func:`~pyro_hoim.boltzmann.fit_machine`."""

    def read(self) -> Table:
        """The table."""
        if self.asked["method"] == "exact":
            for name in ("steps", "rate"):
                if name in self.asked.given:
                    raise conflict(name, f"belongs to cd and pcd, received {option('method', 'exact')}")
        return super().read()

    def complete(self, source: Table) -> Table:
        """Rows without missing cells, of binary columns."""
        found = source.complete(Missing.parse(self.asked["missing"]), "a Boltzmann machine")
        check_method(_structure(found.rows.domain, self.asked["hidden"]), self.asked["method"])
        return found

    def run(self, request: Request) -> Study:
        """Learn from the training rows; validation rows, where there are any, end the run."""
        asked, parts = self.asked, request.parts
        rows: Observations = parts["train"]
        structure = _structure(rows.domain, asked["hidden"])
        validation = parts["validation"] if parts["validation"].total_count else None
        options = LearningOptions(
            asked["method"],
            steps=asked["steps"],
            rate=asked["rate"],
            iterations=asked["iterations"],
            decay=asked["decay"],
            patience=None if validation is None else _PATIENCE,
        )
        warn_of_size(rows, structure.num_parameters, f"fewer {option('hidden')} units, or {option('decay')}")
        size = plural(structure.num_hidden, "hidden unit"), rows_text(rows)
        request.begin(f"learning {size[0]} from {size[1]}")
        result = fit_machine(
            rows,
            structure,
            options,
            validation=validation,
            seed=request.seed,
            run=RunOptions(request.checkpoint / "machine.safetensors", request.resume, request.progress),
        )
        shares = independent_shares(rows)
        log_z = find_log_z(result.law, request.seed, request.progress)
        scores = {
            name: score_machine(result.law, part, log_z, shares) if part.total_count else None
            for name, part in parts.items()
        }
        target = asked["target"]
        analysis = MachineAnalysis(
            result=result,
            log_z=log_z,
            parts=scores,
            shares=shares,
            title=request.source.name,
            about=request.about,
            seed=request.seed,
            target=target,
            has_weights=not rows.has_whole_counts,
            accuracy={} if target is None else {name: _accuracy(result.law, p, target) for name, p in parts.items()},
        )
        return Study(analysis, _summary(analysis))


def estimate(rows: Observations, *, hidden: int = 8, seed: int = 0, **options: Any) -> MachineResult:
    """A restricted machine learned from complete rows; further options are those of ``LearningOptions``."""
    names = [field.name for field in fields(LearningOptions)]
    check_names(options, names, "options", noun="option of a Boltzmann machine")
    return fit_machine(rows, _structure(rows.domain, hidden), LearningOptions(**options), seed=seed)


def _structure(domain: Domain, number: int) -> MachineStructure:
    """A restricted machine whose hidden units have names that no column has."""
    check_edges(len(domain), number)
    prefix = "h"
    while any(name.startswith(prefix) and name[len(prefix) :].isdigit() for name in domain.names):
        prefix = f"_{prefix}"
    return MachineStructure.restricted(domain, [f"{prefix}{k + 1}" for k in range(number)])


def _accuracy(law: BoltzmannMachine, part: Observations, target: str) -> dict[str, Any] | None:
    """How well a column is predicted on a part of the rows."""
    if not part.total_count:
        return None
    found = predict_machine(law, part, target)
    names = ("target", "accuracy", "majority_accuracy", "majority_p_value", "rows")
    return {name: getattr(found, name) for name in names}


def _summary(analysis: MachineAnalysis) -> dict[str, Any]:
    """The keys of ``fit.json``."""
    domain = analysis.law.domain
    summary: dict[str, Any] = {
        "num_variables": len(domain),
        "num_states": num_states_text(domain.num_states),
        **summary_of(analysis),
        "goodness_of_fit": None,
        "rows": rows_by_part(analysis.parts, "rows"),
        **by_part(analysis.parts, **SCORES),
    }
    if analysis.target is not None:
        summary["accuracy"] = analysis.accuracy
    return summary
