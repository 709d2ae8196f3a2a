"""Boltzmann machines as a family of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from typing_extensions import override

from ...annealing.runs import chosen_rows
from ...core.command.answers import (
    annealed_rows_note,
    completion_answer,
    drawn_rows,
    is_default_log_z,
    log_z_of,
    prediction_answer,
    score_answer,
)
from ...core.command.options import BURN_IN, COMPLETE, DRAW_METHOD, LABEL, LOG_Z_OPTIONS
from ...core.family import Answer, Asked, Family, Option, Plan, Question, Stored
from ...core.partition import LogPartition
from ...core.prediction import Prediction
from ...core.scores import Figures, RowLogLikelihood
from ...core.words import coefficient, columns_of, option, short_edge
from ...data.observations import Observations
from ...errors import IntractableError
from ...log_linear.annealed.importance import AnnealedImportance
from ...log_linear.auto import in_coding
from ...runs.container import BOLTZMANN, check_single
from ..file import MachineFile, load_machine, save_machine
from ..interactions import strongest
from ..law import BoltzmannMachine, impute_machine, log_likelihoods, predict_machine, row_log_pseudo_scores
from ..learning.fit import MachineResult
from .analysis import COLOURS, MACHINE_OPTIONS, MachinePlan, estimate, find_log_z, score_machine

__all__ = ["FAMILY", "MachineFamily"]


_PORTION = 1024  # rows drawn between two steps of the progress bar
_EDGE = 48  # characters


class MachineFamily(Family):
    """Restricted and general Boltzmann machines.

    Example:
        >>> FAMILY.kind
        'boltzmann-machine'
    """

    kind = BOLTZMANN
    name = "Boltzmann machine"
    short = "rbm"
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
        "samples": "its interactions are sorted by value",
    }

    @override
    def fit(self, asked: Asked) -> Plan:
        return MachinePlan(asked)

    @override
    def estimate(self, rows: Observations, *, hidden: int = 8, seed: int = 0, **options: Any) -> MachineResult:
        return estimate(rows, hidden=hidden, seed=seed, **options)

    @override
    def load(self, path: Path) -> MachineFile:
        file = load_machine(path)
        check_single(path, file.theta, "load_machine")
        return file

    @override
    def write(self, path: Path, model: MachineFile) -> None:
        save_machine(path, model)

    @override
    def stored(self, model: Any) -> Stored:
        info = dict[str, Any]()
        if isinstance(model, MachineResult):
            info = {"rows": model.num_rows, "method": model.options.method}
            model = model.law
        if isinstance(model, BoltzmannMachine):
            model = MachineFile(model.structure, model.theta, info)
        return Stored(BOLTZMANN, model, model.structure.domain, model.info)

    @override
    def summary(self, model: Any, *, level: float = 0.95) -> pd.DataFrame:
        return _summary(self.file_of(model), level)

    @override
    def figures(self, model: Any) -> Figures:
        is_early = isinstance(model, MachineResult) and model.converged is False
        return _figures(self.file_of(model), "not converged" if is_early else "")

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
        return log_z_of(question, law, None, _Exact())

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
        law, shares, starts = _law(question), _independent(question), None
        if question["method"] == "ais" and not question.rows.has_missing:
            starts = chosen_rows(question.rows.codes, question.rows.counts)
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
        values = values[: question["top"]]
        json = {
            "interactions": [{"edge": list(edge), "value": value} for edge, value in values],
            "largest_order": order,
        }
        cells = [[short_edge(edge, _EDGE), coefficient(value)] for edge, value in values]
        note = f"(interactions of up to {order} columns in corner coding, the hidden units summed out; nats)"
        return Answer(json, [*columns_of(["interaction", "value"], cells), note])


def _law(question: Question) -> BoltzmannMachine:
    file: MachineFile = question.stored.model
    return file.law()


class _Exact:
    """Log Z of the machine itself as :func:`log_z_of` asks for it."""

    def log_partition(self, law: BoltzmannMachine) -> LogPartition:
        """Exact, or refused."""
        return law.log_partition


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


def _independent(question: Question) -> list[float] | None:
    """Shares of level 1 of every column that the file keeps, if any."""
    return question.stored.info.get("independent")


def _summary(file: MachineFile, level: float = 0.95) -> pd.DataFrame:
    """Interactions of the visible columns, the hidden units summed out, strongest first; ``level`` plays no role.

    Returns:
        ``term``; ``estimate``, its value in corner coding, in nats; and of pairs the ``odds_ratio`` where all other
        columns are at their first level.
    """
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


def _figures(file: MachineFile, status: str) -> Figures:
    """Its size; an interaction is a weight between two units."""
    return Figures(
        num_variables=len(file.structure.domain),
        num_interactions=len(file.structure.edges),
        num_parameters=file.structure.num_parameters,
        num_rows=file.info.get("rows"),
        status=status,
        method=f"method {file.info['method']!r}" if "method" in file.info else "",
    )


FAMILY = MachineFamily()
