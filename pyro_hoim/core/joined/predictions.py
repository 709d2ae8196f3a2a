"""Predictions of columns by a model of joined ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from ...data.joined.columns import ColumnGroup, JoinedColumns, JoinedRows
from ...data.observations import Observations
from ..command.answers import prediction_answer
from ..family import Answer, Question
from ..prediction import Prediction
from ..words import plural

__all__ = ["predicted"]

_Predict = Callable[[Question], Answer]


def predicted(predict: _Predict, joined: JoinedColumns, question: Question) -> Answer:
    r"""What a family says of a column, asked about joined variables.

    A column within a group is predicted by the levels of its group that the other columns of the group leave,

    .. math:: q(x_c = 1 \mid \text{rest}) = \sum_{l \in L : x_c(l) = 1} q(l) \Big/ \sum_{l \in L} q(l)

    Groups whose known cells say no single level play no part in the prediction of other columns.

    Args:
        predict: of the family.
        joined: the columns.
        question: about the joined variables, with rows over the columns.
    """
    group = joined.group_of(question["target"])
    if group is None:
        read = joined.read(question.rows)
        answer = predict(replace(question, rows=read.rows))
        of_part = answer.of_part
        notes = [*answer.notes, *_unused(read, question.rows)]
        if of_part is None:
            return replace(answer, notes=notes)
        return replace(answer, notes=notes, of_part=lambda part: of_part(joined.read(part).rows))
    told: list[str] = []

    def found(rows: Observations) -> Prediction:
        return _within(predict, joined, group, question, rows, told)

    every = found(question.rows)
    notes = list(dict.fromkeys(told))
    approximate = int((~every.is_exact & every.is_predicted).sum())
    return prediction_answer(question, every, found, approximate, notes)


def _within(
    predict: _Predict,
    joined: JoinedColumns,
    group: ColumnGroup,
    question: Question,
    rows: Observations,
    told: list[str],
) -> Prediction:
    """A column of a group from the other columns."""
    target, place = question["target"], joined.domain.index(question["target"])
    codes = rows.codes.clone()
    codes[:, place] = -1
    read = joined.read(rows.replaced(codes=codes))
    allowed = read.allowed[joined.groups.index(group)].double()
    hidden = read.rows.codes.clone()
    hidden[:, read.rows.domain.index(group.name)] = -1
    asked = read.rows.replaced(codes=hidden)
    values = {**question.values, "target": group.name}
    answer = predict(replace(question, rows=asked, values=values, has_target=False))
    told += [*answer.notes, *_unused(read, rows)]
    assert answer.frame is not None
    names = [f"p({label})" for label in group.labels]
    probs = torch.from_numpy(answer.frame[names].to_numpy(dtype=float).copy()) * allowed
    is_decided = allowed.sum(1) == 1  # by the other columns, however improbable they are
    probs = torch.where(is_decided[:, None], allowed, probs)
    variable = joined.domain[target]
    column = torch.tensor([level[group.columns.index(target)] for level in group.levels])
    by_code = torch.stack([probs[:, column == code].sum(1) for code in range(variable.cardinality)], 1)
    log_probs = (by_code / by_code.sum(1, keepdim=True)).log()
    is_exact = is_decided | torch.from_numpy(answer.frame["is_exact"].to_numpy(dtype=bool).copy())
    error = torch.where(is_exact[:, None], 0.0, math.nan).expand_as(log_probs)
    told_by = (rows.codes[:, place], rows.counts, rows.squared_weights)
    return Prediction(target, variable.labels, log_probs, error, is_exact, *told_by)


def _unused(read: JoinedRows, rows: Observations) -> list[str]:
    """A sentence where groups of rows say no single level."""
    found: list[str] = []
    for is_bad, what in ((read.is_broken, "break"), (read.is_open, "do not say the level of")):
        number = int((is_bad.any(1) & (rows.counts > 0)).sum())
        if number:
            told = f"{plural(number, 'row')} {what} joined columns, which are then taken as unknown there"
            found.append(told)
    return found
