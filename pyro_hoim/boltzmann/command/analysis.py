"""A learned machine with its log Z and its scores on every part of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import torch
from typing_extensions import override

from ...budgets import MAX_SWEEPS
from ...core.command.answers import describe_log_z, log_partition_json
from ...core.command.options import LABELLED
from ...core.command.rows import LabelledPlan, Missing, Table, warn_of_size
from ...core.family import Option, Request
from ...core.page import Section, cell
from ...core.partition import LogPartition
from ...core.scores import Scores, mean_gain, mean_over_rows
from ...core.studies import Content, Part, Study
from ...core.words import amount_text, fixed, option, plural, possible_rows, rows_text
from ...data.observations import Observations
from ...errors import IntractableError, check_names, conflict
from ...log_linear.annealed.importance import AnnealedImportance
from ...log_linear.auto import in_coding
from ...runs.checkpoint import RunOptions
from ...runs.schedule import GibbsSchedule
from ...schema import Domain
from ..file import MachineFile, save_machine
from ..interactions import strongest
from ..law import BoltzmannMachine, predict_machine, row_log_pseudo_scores, row_log_scores
from ..learning.fit import MachineResult, check_method, fit_machine
from ..learning.options import LearningOptions
from ..structure import MachineStructure, check_edges
from .figures import curve_figure, weights_figure

__all__ = [
    "COLOURS",
    "MACHINE_OPTIONS",
    "MachineAnalysis",
    "MachinePlan",
    "annealed",
    "estimate",
    "find_log_z",
    "score_machine",
]


COLOURS = GibbsSchedule("colours")
"""Layers in turn."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MachineAnalysis(Study[Part]):
    """What a fit has found, with the attributes of every study.

    Attributes:
        result: the machine and how it was learned.
        log_z: exact, or an estimate with its verdict.
        shares: of level 1 of every column among the training rows, half a row added to each level.
    """

    heading: ClassVar[str] = "Boltzmann machine of"
    noun: ClassVar[str] = "machine"

    result: MachineResult
    log_z: LogPartition
    shares: Sequence[float]

    @property
    def law(self) -> BoltzmannMachine:
        """The machine."""
        return self.result.law

    @property
    @override
    def domain(self) -> Domain:
        """The columns."""
        return self.law.domain

    @override
    def explain_scores(self, section: Section) -> None:
        """What is known of log Z."""
        for line in describe_log_z(self.log_z):
            section.note(line)

    @override
    def content(self) -> Content:
        """Interactions, weights and the course of learning."""
        sections = [_interactions(self), _weights(self), _learning(self)]
        return Content(_summary(self), _warnings(self), sections)

    @override
    def figures(self, folder: Path) -> dict[str, Any]:
        """Log Z, and what is known of learning."""
        result, structure = self.result, self.law.structure
        return {
            "num_hidden": structure.num_hidden,
            "num_interactions": len(structure.edges),
            "num_parameters": structure.num_parameters,
            "edges": [list(edge) for edge in structure.edges],
            "log_partition": log_partition_json(self.log_z),
            "method": result.options.method,
            "iterations": result.iterations,
            "converged": result.converged,
            "score": result.score_name,
            "goodness_of_fit": None,
        }

    @override
    def save(self, folder: Path) -> dict[str, str]:
        """Write the model file."""
        info: dict[str, Any] = {"independent": list(self.shares), "method": self.result.options.method}
        if self.log_z.kind != "exact":
            info["log_partition"] = self.log_z.to_json()
        save_machine(folder / "model.safetensors", MachineFile(self.law.structure, self.law.theta, info))
        return {}


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


# Learning a restricted Boltzmann machine at the command line.

_PATIENCE = 10  # evaluations, of 100
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

    def run(self, request: Request) -> MachineAnalysis:
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
        target = asked["target"]

        def scored(part: Observations) -> Part | None:
            if not part.total_count:
                return None
            accuracy = None if target is None else _accuracy(result.law, part, target)
            return Part(score_machine(result.law, part, log_z, shares), accuracy=accuracy)

        return MachineAnalysis(
            title=request.source.name,
            about=request.about,
            parts={name: scored(part) for name, part in parts.items()},
            seed=request.seed,
            has_weights=not rows.has_whole_counts,
            result=result,
            log_z=log_z,
            shares=shares,
        )


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


def _accuracy(law: BoltzmannMachine, part: Observations, target: str) -> dict[str, Any]:
    """How well a column is predicted on a part of the rows."""
    found = predict_machine(law, part, target)
    names = ("target", "accuracy", "majority_accuracy", "majority_p_value", "rows")
    return {name: getattr(found, name) for name in names}


# The page. Nothing is computed here but formats.

_FIRST, _BRIEF = 20, 8
_METHODS = {
    "exact": "exact gradients",
    "cd": "contrastive divergence with {steps}",
    "pcd": "persistent chains with {steps}",
}


def _kind(analysis: MachineAnalysis) -> str:
    return "exact" if analysis.log_z.kind == "exact" else f"annealed, {analysis.log_z.verdict}"


def _summary(analysis: MachineAnalysis) -> list[str]:
    """A few sentences that answer the reader's question."""
    structure, result = analysis.law.structure, analysis.result
    how = _METHODS[result.options.method].format(steps=plural(result.options.steps, "sweep"))
    amount = amount_text(result.num_rows, analysis.has_weights)
    fitted = (
        f"{analysis.title}: {amount} of {plural(len(analysis.law.domain), 'column')} "
        f"({possible_rows(analysis.law.domain.num_states)}). A restricted Boltzmann machine with "
        f"{plural(structure.num_hidden, 'hidden unit')} and {plural(structure.num_parameters, 'parameter')} was "
        "estimated from them, by "
        f"{how}."
    )
    return [
        fitted,
        f"Its log-likelihoods are {_kind(analysis)}.",
    ]


def _warnings(analysis: MachineAnalysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    found: list[str] = []
    if analysis.log_z.verdict == "unreliable":
        found.append("The estimate of log Z is unreliable, and with it every likelihood here; see its notes.")
    if analysis.result.converged is False:
        found.append("Learning stopped before it had converged: more iterations would change the machine.")
    return found


def _interactions(analysis: MachineAnalysis) -> Section:
    section = Section("Interactions of the columns")
    order, values = strongest(analysis.law)
    if not values:
        section.text("There are no interactions to show.")
        return section
    section.text(
        f"Hidden units make columns depend on each other. These are the interactions of up to {order} columns once the "
        "hidden units are summed out, in corner coding: the change of the log-probability when these columns go from "
        "level 0 to level 1, the others staying at 0, beyond what smaller sets explain."
    )
    rows = [[":".join(edge), cell(value, _signed)] for edge, value in values]
    columns = ["interaction", "value (nats)"]
    section.table(columns, rows, first=_FIRST, further="Further interactions", brief=_BRIEF)
    return section


def _signed(value: float) -> str:
    return fixed(value, sign=True)


def _weights(analysis: MachineAnalysis) -> Section:
    section = Section("Weights")
    law = analysis.law
    if not law.structure.num_hidden or not len(law.domain):
        section.text("There are no hidden units.")
        return section
    weights = law.energy_model.weights.numpy()
    drawing = weights_figure(weights, law.domain.names, law.structure.hidden)
    section.figure(drawing, "Weights between columns and hidden units, the strongest units first")
    section.note(
        "Each row is a hidden unit. Order and sign of units have no meaning: exchanging two, or swapping the two "
        "states of one, gives the same machine. Compare interactions, not weights."
    )
    return section


def _learning(analysis: MachineAnalysis) -> Section:
    result = analysis.result
    section = Section("Learning")
    section.figure(curve_figure(result.curve, result.score_name), f"The {result.score_name} during learning")
    section.note(
        f"On up to 1,000 of the most frequent rows. {plural(result.iterations, 'iteration')} in {result.seconds:.1f} s."
    )
    return section
