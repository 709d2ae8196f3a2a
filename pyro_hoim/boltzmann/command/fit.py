"""Learning a restricted Boltzmann machine at the command line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ...budgets import MAX_SWEEPS
from ...core.command.answers import by_part, rows_by_part
from ...core.command.guards import warn_of_size
from ...core.command.options import LABELLED
from ...core.command.rows import Fractions, Missing, Table, held_out_split, read_labelled
from ...core.family import Asked, Option, Request, Study
from ...core.words import num_states_text, option, plural, rows_text
from ...data.observations import Observations
from ...errors import check_names, conflict
from ...runs.options import RunOptions
from ...schema import Domain
from ..law import BoltzmannMachine
from ..learning.fit import MachineResult, check_method, fit_machine
from ..learning.options import LearningOptions
from ..scores import predict_machine
from ..structure import MachineStructure, check_edges
from .analysis import MachineAnalysis, find_log_z, independent_shares, score_machine, summary_of

__all__ = ["MACHINE_OPTIONS", "MachinePlan", "estimate"]

_PATIENCE = 10  # evaluations, of 100
_PARTS = ("nll", "kl", "pseudo_nll", "gain", "gain_std_error", "independent_kl")

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
class MachinePlan:
    """Learning a machine; see :func:`~pyro_hoim.boltzmann.fit_machine`."""

    asked: Asked

    def read(self) -> Table:
        """The table."""
        if self.asked["method"] == "exact":
            for name in ("steps", "rate"):
                if name in self.asked.given:
                    raise conflict(name, f"belongs to cd and pcd, received {option('method', 'exact')}")
        return read_labelled(self.asked)

    def complete(self, source: Table) -> Table:
        """Rows without missing cells, of binary columns."""
        found = source.complete(Missing.parse(self.asked["missing"]), "a Boltzmann machine")
        check_method(_structure(found.rows.domain, self.asked["hidden"]), self.asked["method"])
        return found

    def split(self, source: Table) -> Fractions:
        """A fifth of the rows is held out."""
        return held_out_split(source.rows.total_count)

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
        **by_part(analysis.parts, **{name: name for name in _PARTS}),
    }
    if analysis.target is not None:
        summary["accuracy"] = analysis.accuracy
    return summary
