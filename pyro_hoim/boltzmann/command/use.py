"""Answers about a Boltzmann machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import torch

from ...annealing.runs import chosen_rows
from ...core.command.answers import (
    describe_log_z,
    drawn_rows,
    figure_line,
    is_default_log_z,
    log_z_json,
    log_z_of,
    prediction_answer,
)
from ...core.family import Answer, Question, Stored
from ...core.partition import LogPartition
from ...core.prediction import Prediction
from ...core.scores import Figures, RowLogLikelihood
from ...core.words import coefficient, columns_of, gain_sentence, option, short_edge
from ...data.observations import Observations
from ...errors import IntractableError
from ...log_linear.annealed.importance import AnnealedImportance
from ...log_linear.auto import in_coding
from ..file import MachineFile
from ..interactions import effective_interactions
from ..law import BoltzmannMachine, impute_machine, log_likelihoods, predict_machine, row_log_pseudo_scores
from .analysis import COLOURS, SCORES, find_log_z, score_machine

__all__ = [
    "complete",
    "draw",
    "interactions",
    "log_z",
    "machine_figures",
    "machine_summary",
    "predict",
    "score",
    "strongest",
]


_PORTION = 1024  # rows drawn between two steps of the progress bar
_EDGE = 48  # characters
_SETS = 2**16  # of which interactions are shown
_LARGEST = 3  # variables of an interaction where not all sets are looked at
_OF_PART = ("gain", "gain_std_error", "nll", "pseudo_nll")


def _law(question: Question) -> BoltzmannMachine:
    file: MachineFile = question.stored.model
    return file.law()


class _Exact:
    """Log Z of the machine itself as :func:`log_z_of` asks for it."""

    def log_partition(self, law: BoltzmannMachine) -> LogPartition:
        """Exact, or refused."""
        return law.log_partition


def log_z(question: Question, starts: torch.Tensor | None = None) -> LogPartition:
    """Log Z in corner coding; ``auto`` prefers exact to what the file keeps. Estimates look for modes from starts."""
    law = _law(question)
    if question["method"] == "ais":
        if starts is not None and len(starts):
            hidden = (law.energy_model.hidden_fields(starts) > 0).long()
            starts = torch.cat([starts, hidden], -1)
        joint = law.joint.energy_model
        return in_coding(joint, log_z_of(question, joint, AnnealedImportance, None, starts), "corner")
    kept = question.stored.info.get("log_partition")
    if kept is not None and is_default_log_z(question):
        try:
            return law.log_partition
        except IntractableError:
            return LogPartition.from_json(kept)
    return log_z_of(question, law, None, _Exact())


def draw(question: Question) -> Answer:
    """Rows given some columns: perfect where log Z is a small sum, else by one Gibbs chain a row."""
    law, number, given, method = _law(question), question["number"], question["given"], question["method"]
    rest, notes = law.condition(given), list[str]()
    if method == "gibbs" or (method == "auto" and not _is_exact(rest)):
        burn_in = {} if question["burn_in"] is None else {"burn_in": question["burn_in"]}
        backend = AnnealedImportance(schedule=COLOURS, **burn_in)
        rest = BoltzmannMachine(rest.structure, rest.theta, partition=backend)
        notes.append(
            "the rows are approximate: each is the state of a Gibbs chain of its own, annealed and then burnt in by "
            f"{backend.burn_in} sweeps; compare with a longer {option('burn_in')}"
        )
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


def complete(question: Question) -> Answer:
    """Completions of rows, by perfect draws."""
    if question["method"] == "gibbs":
        problem = "the missing cells of rows are drawn perfectly, or not at all"
        raise IntractableError(problem, argument=option("method", "gibbs"), code="no-method")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(question["seed"])
        found = impute_machine(_law(question), question.rows, question["number"])
    return Answer(frame=found.to_pandas())


def _independent(question: Question) -> list[float] | None:
    """Shares of level 1 of every column that the file keeps, if any."""
    return question.stored.info.get("independent")


def score(question: Question) -> Answer:
    """NLL, KL, pseudo-NLL and gain over independent columns, with an exact log Z, that of the file, or an estimate."""
    law, shares, starts = _law(question), _independent(question), None
    if question["method"] == "ais" and not question.rows.has_missing:
        starts = chosen_rows(question.rows.codes, question.rows.counts)
    found = log_z(question, starts)
    scores = score_machine(law, question.rows, found, shares)

    def of_part(part: Observations) -> dict[str, Any]:
        its = score_machine(law, part, found, shares)
        return {name: getattr(its, name) for name in _OF_PART}

    lines = [] if shares is None else [gain_sentence("file's", "machine", scores.gain, scores.gain_std_error)]
    lines.append(f"rows                {scores.rows:g}")
    lines += question.left_out("with them the NLL and the pseudo-NLL would be infinite")
    lines.append(figure_line("NLL per row", scores.nll, error=scores.nll_std_error))
    lines.append(figure_line("KL to the file", scores.kl))
    lines.append(figure_line("pseudo-NLL per row", scores.pseudo_nll))
    lines += describe_log_z(found) if found.kind != "exact" else []
    return Answer(
        json={
            "rows": scores.rows,
            "nll_std_error": scores.nll_std_error,
            **{key: getattr(scores, name) for key, name in SCORES.items()},
            **log_z_json(found),
        },
        lines=lines,
        of_part=of_part,
        shown=["nll"] if shares is None else ["gain", "nll"],
    )


def score_each_row(stored: Stored, rows: Observations, pseudo: bool = False) -> RowLogLikelihood:
    """Log-likelihood of every row, with an exact log Z or an estimate; log pseudo-likelihood on demand."""
    law: BoltzmannMachine = stored.model.law()
    if pseudo:
        return RowLogLikelihood(row_log_pseudo_scores(law, rows), "pseudo-likelihood")
    found = find_log_z(law, seed=0, progress=False)
    return RowLogLikelihood(log_likelihoods(law, rows, found), is_exact=found.kind == "exact")


def predict(question: Question) -> Answer:
    """A column of rows given the known cells of the others; exact, without log Z of the machine."""
    law, target = _law(question), question["target"]

    def predicted(part: Observations) -> Prediction:
        return predict_machine(law, part, target)

    return prediction_answer(question, predicted(question.rows), predicted)


def strongest(law: BoltzmannMachine) -> tuple[int, list[tuple[tuple[str, ...], float]]]:
    """The largest order within reach, and interactions of two and more columns up to it, strongest first."""
    n, order, total = len(law.domain), 0, 0
    while order < n and (total := total + math.comb(n, order + 1)) <= _SETS and (order < _LARGEST or 2**n <= _SETS):
        order += 1
    if order < 2:
        return order, []
    found = effective_interactions(law, order)
    return order, sorted(((e, v) for e, v in found.items() if len(e) > 1), key=lambda pair: -abs(pair[1]))


def interactions(question: Question) -> Answer:
    """Corner interactions of the columns that the hidden units bring, by the size of their values."""
    order, values = strongest(_law(question))
    values = values[: question["top"]]
    json = {"interactions": [{"edge": list(edge), "value": value} for edge, value in values], "largest_order": order}
    cells = [[short_edge(edge, _EDGE), coefficient(value)] for edge, value in values]
    note = f"(interactions of up to {order} columns in corner coding, the hidden units summed out; nats)"
    return Answer(json, [*columns_of(["interaction", "value"], cells), note])


# What a Boltzmann machine says of its columns, and how likely rows are under it.


def machine_summary(file: MachineFile, level: float = 0.95) -> pd.DataFrame:
    """Interactions of the visible columns, the hidden units summed out, strongest first; ``level`` plays no role.

    Returns:
        ``term``; ``estimate``, its value in corner coding, in nats; and of pairs the ``odds_ratio`` where all other
        columns are at their first level.
    """
    _ = level
    order, values = strongest(file.law())
    found = pd.DataFrame(
        {"term": [":".join(edge) for edge, _ in values], "estimate": np.array([value for _, value in values])}
    )
    is_pair = np.array([len(edge) == 2 for edge, _ in values], dtype=bool)
    with np.errstate(over="ignore"):
        found["odds_ratio"] = np.where(is_pair, np.exp(found["estimate"]), np.nan)
    notes = [f"interactions of up to {order} columns, the hidden units summed out (corner coding), in nats"]
    found.attrs["notes"] = [*notes, "no standard errors: the likelihood of a machine has many optima"]
    return found


def machine_figures(file: MachineFile, status: str) -> Figures:
    """Its size; an interaction is a weight between two units."""
    return Figures(
        num_variables=len(file.structure.domain),
        num_interactions=len(file.structure.edges),
        num_parameters=file.structure.num_parameters,
        num_rows=file.info.get("rows"),
        status=status,
        method=f"method {file.info['method']!r}" if "method" in file.info else "",
    )
