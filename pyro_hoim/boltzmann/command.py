"""Boltzmann machines as a family of the registry."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from typing_extensions import override

from ..annealing.runs import chosen_rows
from ..budgets import MAX_SWEEPS
from ..core.command.answers import (
    annealed_rows_note,
    completion_answer,
    describe_log_z,
    drawn_rows,
    is_default_log_z,
    log_partition_json,
    log_z_of,
    prediction_answer,
    score_answer,
)
from ..core.command.options import BURN_IN, COMPLETE, DRAW_METHOD, LABEL, LABELLED, LOG_Z_OPTIONS
from ..core.command.rows import LabelledPlan, Missing, Table, warn_of_size
from ..core.family import Answer, Family, Option, Question, Request, Stored, more_interactions, top_interactions
from ..core.page import Section, cell
from ..core.partition import LogPartition
from ..core.prediction import Prediction
from ..core.scores import Figures, RowLogLikelihood, Scores, scores_of
from ..core.studies import Content, Part, Study
from ..core.words import (
    amount_text,
    coefficient,
    columns_of,
    fixed,
    literal,
    option,
    plural,
    possible_rows,
    rows_text,
    short_edge,
)
from ..data.observations import Observations
from ..errors import IntractableError, check_names, conflict
from ..log_linear.annealed.importance import AnnealedImportance
from ..log_linear.auto import in_coding
from ..plots.drawing import (
    BLUE,
    FONT,
    INK,
    KINDS,
    ORANGE,
    SIGNED,
    WIDTH,
    axes_for,
    ends,
    label_lines,
    legend_below,
    plain_axes,
)
from ..results.answer import odds_answer
from ..results.contrasts import pair_odds_ratios
from ..runs.checkpoint import RunOptions
from ..runs.container import BOLTZMANN
from ..runs.schedule import GibbsSchedule
from ..schema import Domain
from .file import MachineFile
from .law import (
    BoltzmannMachine,
    impute_machine,
    log_likelihoods,
    predict_machine,
    row_log_pseudo_scores,
    row_log_scores,
    strongest,
)
from .learning import LearningOptions, MachineResult, check_method, fit_machine
from .structure import MachineStructure, check_edges

# Pictures of a machine: its weights, and how it was learned.

_MOST, _UNITS = 60, 12  # columns and hidden units that are drawn


def weights_figure(weights: np.ndarray, visible: Sequence[str], hidden: Sequence[str]) -> Figure:
    """Weights (n, m) as a heat map, a row for a column of the data, hidden units by the size of their weights.

    Blue ties, orange repels; columns beyond the first sixty and units beyond the first twelve are left out.
    """
    order: list[int] = np.argsort(-np.square(weights).sum(0), kind="stable").tolist()
    shown = weights[:_MOST, order[:_UNITS]]
    limit = ends(weights)
    names, key = label_lines(visible[:_MOST], 20, 1)
    figure, scale = Figure(), Normalize(-limit, limit)
    width = min(1.3 + 0.2 * shown.shape[1] + 0.08 * max(map(len, names), default=0), WIDTH)
    axes = axes_for(figure, max(width, 3.4), 0.8 + 0.2 * max(len(names), 3))
    axes.imshow(shown, cmap=SIGNED, norm=scale, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(shown.shape[1]), [literal(hidden[i]) for i in order[:_UNITS]], rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0, colors=INK, labelsize=FONT)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(ScalarMappable(scale, SIGNED), ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("weight (nats)", color=INK, fontsize=FONT)
    bar.ax.tick_params(colors=INK, labelsize=FONT)
    bar.outline.set_visible(False)
    signs = [Patch(facecolor=BLUE, label="above 0: ties"), Patch(facecolor=ORANGE, label="below 0: repels")]
    legend_below(None, axes, signs, key)
    return figure


def curve_figure(curve: Sequence[tuple[int, float, float | None]], name: str) -> Figure:
    """Scores along the run, of training rows and of validation rows where there are any."""
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    axes = figure.add_subplot()
    at = [entry[0] for entry in curve]
    axes.plot(at, [entry[1] for entry in curve], color=KINDS[0], label="training rows")
    if curve[0][2] is not None:
        axes.plot(
            at, [np.nan if entry[2] is None else entry[2] for entry in curve], color=KINDS[1], label="validation rows"
        )
        axes.legend(frameon=False, fontsize=9)
    plain_axes(axes, "iteration", f"{name} (nats a row)")
    return figure


# A learned machine with its log Z and its scores on every part of the rows.

COLOURS = GibbsSchedule("colours")
"""Layers in turn."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MachineAnalysis(Study[Part]):
    """What a fit has found, with the attributes of every study.

    Attributes:
        result: the machine and how it was learned.
        log_z: exact, or an estimate with its verdict.
        shares: of level 1 of every column among the training rows, half a row added to each level.
        ratios: odds ratios of pairs of columns among the training rows, of the strongest interactions first.
    """

    heading: ClassVar[str] = "Boltzmann machine of"
    noun: ClassVar[str] = "machine"

    result: MachineResult
    log_z: LogPartition
    shares: Sequence[float]
    ratios: pd.DataFrame

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
        structure, result = self.law.structure, self.result
        how = _METHODS[result.options.method].format(steps=plural(result.options.steps, "sweep"))
        amount = amount_text(result.num_rows, self.has_weights)
        learning = Section("How it was learned", is_folded=True)
        learning.figure(curve_figure(result.curve, result.score_name), f"The {result.score_name} during learning")
        ran = f"{plural(result.iterations, 'iteration')} in {result.seconds:.1f} s"
        learning.note(f"On up to 1,000 of the most frequent rows. {ran}.")
        learning.text(
            f"A restricted Boltzmann machine with {plural(structure.num_hidden, 'hidden unit')} and "
            f"{plural(structure.num_parameters, 'parameter')} was estimated from {amount} of "
            f"{plural(len(self.law.domain), 'column')} ({possible_rows(self.law.domain.num_states)}), by {how}. Its "
            f"log-likelihoods are {_kind(self)}."
        )
        answer = odds_answer(self.ratios, amount)
        return Content(
            answer.sentences,
            [*_warnings(self), *answer.limits],
            [answer.section, _interactions(self), _weights(self), learning],
            answer.picture,
        )

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
    def records(self) -> dict[str, MachineFile]:
        about = {"data": self.title, "rows": self.result.num_rows, "seed": self.seed}
        info: dict[str, Any] = {**about, "independent": list(self.shares), "method": self.result.options.method}
        if self.log_z.kind != "exact":
            info["log_partition"] = self.log_z.to_json()
        return {"model": MachineFile(self.law.structure, self.law.theta, info)}


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


def score_machine(
    law: BoltzmannMachine, data: Observations, log_z: LogPartition, shares: Sequence[float] | None
) -> Scores:
    """Scores of rows with a positive total count."""
    log_probs, alone = row_log_scores(law, data).double() - log_z.value.double(), None
    if shares is not None:
        p = torch.tensor(shares, dtype=torch.float64)
        cells = torch.where(data.codes == 1, p.log(), (-p).log1p())
        alone = torch.where(data.codes < 0, 0.0, cells).sum(-1)
    scores = scores_of(data, log_probs, alone, partial(row_log_pseudo_scores, law))
    return scores if data.effective_count > 1 else replace(scores, nll_std_error=None)


# Learning a restricted Boltzmann machine at the command line.

_PATIENCE = 10  # evaluations, of 100
MACHINE_OPTIONS = (
    Option("hidden", "Number of hidden units. 0 makes the columns independent.", kind="whole", low=0, default=8),
    Option(
        "method",
        "pcd takes gradients from chains that are kept. cd is contrastive divergence, from chains that start at the "
        "rows. exact takes exact gradients, if the smaller layer has few states.",
        choices=("pcd", "cd", "exact"),
        default="pcd",
    ),
    Option("steps", "Sweeps of the chains for a step of cd or pcd.", kind="whole", low=1, high=MAX_SWEEPS, default=1),
    Option("rate", "Rate of cd and pcd.", kind="number", high=100, is_open=True, default=0.1),
    Option(
        "iterations", "Largest number of steps of the gradient.", kind="whole", low=1, high=MAX_SWEEPS, default=10_000
    ),
    Option(
        "decay",
        "Weight of the penalty, which is half the sum of the squared weights.",
        kind="number",
        high=1e6,
        default=0.0,
    ),
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
        # Validation rows, where there are any, end the run.
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
        # Log Z once, for the scores of all parts.
        # Share of level 1 of every column, half a row added to each level
        ones = (rows.codes == 1).double().T @ rows.counts
        known = (rows.codes >= 0).double().T @ rows.counts
        shares = ((ones + 0.5) / (known + 1)).tolist()
        log_z = find_log_z(result.law, request.seed, request.progress)
        target = asked["target"]

        def scored(part: Observations) -> Part | None:
            if not part.total_count:
                return None
            accuracy = None if target is None else predict_machine(result.law, part, target).summary
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
            ratios=pair_odds_ratios(rows, _pairs(result.law), is_searched=True),
        )


def _pairs(law: BoltzmannMachine) -> list[tuple[str, str]]:
    """Pairs of columns of the strongest interactions first."""
    _, values = strongest(law)
    return [pair for edge, _ in values for pair in itertools.combinations(edge, 2)]


def _structure(domain: Domain, number: int) -> MachineStructure:
    """A restricted machine whose hidden units have names that no column has."""
    check_edges(len(domain), number)
    prefix = "h"
    while any(name.startswith(prefix) and name[len(prefix) :].isdigit() for name in domain.names):
        prefix = f"_{prefix}"
    return MachineStructure.restricted(domain, [f"{prefix}{k + 1}" for k in range(number)])


# The page. Nothing is computed here but formats.

_FIRST, _BRIEF = 8, 8
_METHODS = {
    "exact": "exact gradients",
    "cd": "contrastive divergence with {steps}",
    "pcd": "persistent chains with {steps}",
}


def _kind(analysis: MachineAnalysis) -> str:
    return "exact" if analysis.log_z.kind == "exact" else f"annealed, {analysis.log_z.verdict}"


def _warnings(analysis: MachineAnalysis) -> list[str]:
    """What a careful reader must know before trusting the page."""
    warnings: list[str] = []
    if analysis.log_z.verdict == "unreliable":
        warnings.append("The estimate of log Z is unreliable, and with it every likelihood here; see its notes.")
    if analysis.result.converged is False:
        warnings.append("Learning stopped early: more iterations would change the machine.")
    judged = analysis.held[analysis.judged_on]
    if judged.gain is not None and judged.gain < 2 * (judged.gain_std_error or 0.0):
        warnings.append(
            f"On the {analysis.judged_on} rows the machine is not shown to be better than independent columns, so its "
            "own interactions say nothing; try more iterations."
        )
    return warnings


def _interactions(analysis: MachineAnalysis) -> Section:
    section = Section("All interactions of the machine")
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
    section = Section("Weights", is_folded=True)
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


_PORTION = 1024  # rows drawn between two steps of the progress bar
_EDGE = 48  # characters


class MachineFamily(Family):
    """Restricted and general Boltzmann machines."""

    kind = BOLTZMANN
    name = "Boltzmann machine"
    short = "rbm"
    record = MachineFile
    plan = MachinePlan
    commands: ClassVar[Mapping[str, tuple[Option, ...]]] = {
        "fit": MACHINE_OPTIONS,
        "sample": (DRAW_METHOD, BURN_IN, *COMPLETE),
        "score": (LABEL, *LOG_Z_OPTIONS),
        "predict": (LABEL,),
        "log-z": LOG_Z_OPTIONS,
    }
    instead: ClassVar[Mapping[str, str]] = {
        "prior": "its weights are held back by {decay}",
        "most_probable": "its missing cells are drawn",
        "information": "its interactions are sorted by value",
        "num_samples": "its interactions are sorted by value",
    }

    @override
    def estimate(self, rows: Observations, *, hidden: int = 8, seed: int = 0, **options: Any) -> MachineResult:
        """A restricted machine learned from complete rows; further options are those of ``LearningOptions``."""
        names = [field.name for field in fields(LearningOptions)]
        check_names(options, names, "options", noun="option of a Boltzmann machine")
        return fit_machine(rows, _structure(rows.domain, hidden), LearningOptions(**options), seed=seed)

    @override
    def record_of(self, model: MachineResult | BoltzmannMachine) -> MachineFile:
        if isinstance(model, BoltzmannMachine):
            return MachineFile(model.structure, model.theta)
        info = {"rows": model.num_rows, "method": model.options.method}
        return MachineFile(model.law.structure, model.law.theta, info)

    @override
    def summary(self, model: Any, *, level: float = 0.95) -> pd.DataFrame:
        # Interactions of the visible columns, the hidden units summed out, strongest first; `level` plays
        # no role
        file = self.file_of(model)
        _ = level
        order, values = strongest(file.law())
        table = pd.DataFrame(
            {"term": [":".join(edge) for edge, _ in values], "estimate": np.array([value for _, value in values])}
        )
        is_pair = np.array([len(edge) == 2 for edge, _ in values], dtype=bool)
        with np.errstate(over="ignore"):
            table["odds_ratio"] = np.where(is_pair, np.exp(table["estimate"]), np.nan)
        notes = [f"interactions of up to {order} columns, the hidden units summed out (corner coding), in nats"]
        table.attrs["notes"] = [*notes, "no standard errors: the likelihood of a machine has many optima"]
        return table

    @override
    def figures(self, model: Any) -> Figures:
        is_early = isinstance(model, MachineResult) and model.converged is False
        file = self.file_of(model)
        return Figures(
            num_variables=len(file.structure.domain),
            num_interactions=len(file.structure.edges),
            num_parameters=file.structure.num_parameters,
            num_rows=file.info.get("rows"),
            status="not converged" if is_early else "",
            method=f"method {file.info['method']!r}" if "method" in file.info else "",
        )

    @override
    def log_z(self, question: Question, starts: torch.Tensor | None = None) -> LogPartition:
        """Log Z in corner coding; ``auto`` prefers exact to what the file keeps, estimates look from starts."""
        law = _law(question)
        if question["method"] == "ais":
            if starts is not None and len(starts):
                hidden = (law.energy_model.hidden_fields(starts) > 0).long()
                starts = torch.cat([starts, hidden], -1)
            joint = law.joint.energy_model
            return in_coding(joint, log_z_of(question, joint, AnnealedImportance, None, starts), "corner")
        stored = question.stored.info.get("log_partition")
        if stored is not None and is_default_log_z(question):
            try:
                return law.log_partition
            except IntractableError:
                return LogPartition.from_json(stored)
        return log_z_of(question, law, None, lambda machine: machine.log_partition)

    @override
    def draw(self, question: Question) -> Answer:
        """Rows given some columns: perfect where log Z is a small sum, else by one Gibbs chain a row."""
        law, number, given, method = _law(question), question["number"], question["given"], question["method"]
        rest, notes = law.condition(given), list[str]()
        if method == "gibbs" or (method == "auto" and not _is_exact(rest)):
            burn_in = {} if question["burn_in"] is None else {"burn_in": question["burn_in"]}
            backend = AnnealedImportance(schedule=COLOURS, **burn_in)
            rest = BoltzmannMachine(rest.structure, rest.theta, partition=backend)
            notes.append(annealed_rows_note(backend.burn_in))
        parts: list[torch.Tensor] = []
        with torch.random.fork_rng(devices=[]), drawn_rows(question, "gibbs") as advance:
            torch.manual_seed(question["seed"])
            for start in range(0, number, _PORTION):
                parts.append(_sample(rest, min(_PORTION, number - start)))
                advance(len(parts[-1]))
        drawn, names = torch.cat(parts), law.domain.names
        codes = torch.tensor([[given.get(name, -1) for name in names]]).repeat(number, 1)
        codes[:, [i for i, name in enumerate(names) if name not in given]] = drawn
        return Answer(frame=Observations.from_tensor(codes, law.domain).to_pandas(count=None), notes=notes)

    @override
    def complete(self, question: Question) -> Answer:
        """Completions of rows, by perfect draws."""
        if question["method"] == "gibbs":
            problem = "the missing cells of rows are drawn perfectly, or not at all"
            raise IntractableError(problem, argument=option("method", "gibbs"), code="no-method")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(question["seed"])
            found = impute_machine(_law(question), question.rows, question["number"])
        return completion_answer(found, "Gibbs")

    @override
    def score(self, question: Question) -> Answer:
        """NLL, KL, pseudo-NLL and gain over independent columns, with log Z exact, of the file, or estimated."""
        law, shares, starts = _law(question), question.stored.info.get("independent"), None
        if question["method"] == "ais" and not question.rows.has_missing:
            starts = chosen_rows(question.rows.narrow, question.rows.counts)
        log_z = self.log_z(question, starts)
        score = partial(score_machine, law, log_z=log_z, shares=shares)
        return score_answer(question, score, noun="machine", has_reference=shares is not None, log_z=log_z)

    @override
    def row_log_likelihood(self, stored: Stored, rows: Observations, pseudo: bool = False) -> RowLogLikelihood:
        """Log-likelihood of every row, with an exact log Z or an estimate; log pseudo-likelihood on demand."""
        law: BoltzmannMachine = stored.model.law()
        if pseudo:
            return RowLogLikelihood(row_log_pseudo_scores(law, rows), "pseudo-likelihood")
        found = find_log_z(law, seed=0, progress=False)
        return RowLogLikelihood(log_likelihoods(law, rows, found), is_exact=found.kind == "exact")

    @override
    def predict(self, question: Question) -> Answer:
        """A column of rows given the known cells of the others; exact, without log Z of the machine."""
        law, target = _law(question), question["target"]

        def predicted(part: Observations) -> Prediction:
            return predict_machine(law, part, target)

        return prediction_answer(question, predicted)

    @override
    def interactions(self, question: Question) -> Answer:
        """Corner interactions of the columns that the hidden units bring, by the size of their values."""
        order, values = strongest(_law(question))
        positions, left_out = top_interactions([edge for edge, _ in values], question["top"])
        values = [values[position] for position in positions]
        json = {
            "interactions": [{"edge": list(edge), "value": value} for edge, value in values],
            "left_out": left_out,
            "largest_order": order,
        }
        cells = [[short_edge(edge, _EDGE), coefficient(value)] for edge, value in values]
        note = f"(interactions of up to {order} columns in corner coding, the hidden units summed out; nats)"
        return Answer(json, [*columns_of(["interaction", "value"], cells), *more_interactions(left_out), note])


def _law(question: Question) -> BoltzmannMachine:
    file: MachineFile = question.stored.model
    return file.law()


def _is_exact(law: BoltzmannMachine) -> bool:
    """Whether perfect draws are within reach."""
    try:
        _sample(law, 0)
    except IntractableError:
        return False
    return law.sample_is_exact


def _sample(law: BoltzmannMachine, number: int) -> torch.Tensor:
    try:
        return law.sample((number,))
    except IntractableError as error:
        gibbs, given = option("method", "gibbs"), option("given")
        raise error.replace(hint=f"{gibbs} draws approximately, at any size, or fix columns with {given}") from error


FAMILY = MachineFamily()
