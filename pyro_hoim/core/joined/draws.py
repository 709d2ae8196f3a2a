"""Draws of columns, and completed rows, by a model of joined ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import torch

from ...data.joined.columns import JoinedColumns, JoinedRows
from ...data.observations import Observations
from ...errors import MissingDataError, out_of_reach, refused
from ...schema import Domain
from ..family import Answer, Question
from ..tables import numbered
from ..words import plural

__all__ = ["completed", "drawn"]

_ROUNDS = 200
"""How often draws that disagree with the known cells of a group are made again."""


def drawn(draw: Callable[[Question], Answer], joined: JoinedColumns, question: Question) -> Answer:
    """Rows of the columns, given codes of some, drawn by a family from joined variables.

    Columns that leave several levels of their group are held by drawing again until they agree, which leaves
    independent draws of the distribution given them.

    Raises:
        InputError: given values that no level of a group has.
        IntractableError: given values that draws never agree with.
    """
    codes = torch.full((1, len(joined.domain)), -1, dtype=torch.long)
    for name, code in question["given"].items():
        codes[0, joined.domain.index(name)] = code
    read = joined.read(Observations.from_tensor(codes, joined.domain))
    _check_possible(read, joined, "given")
    evidence = read.rows.codes[0].tolist()
    given = {name: code for name, code in zip(joined.joined_domain.names, evidence, strict=True) if code >= 0}
    number, found, notes = question["number"], list[torch.Tensor](), dict[str, None]()
    left = number
    for attempt in range(_ROUNDS):
        values = {**question.values, "given": given, "seed": question["seed"] + attempt}
        answer = draw(replace(question, values=values))
        notes |= dict.fromkeys(answer.notes)
        codes = _codes_of(answer, joined.joined_domain)
        codes = codes[_agrees(codes, read, torch.zeros(len(codes), dtype=torch.long), joined)][:left]
        found.append(codes)
        left -= len(codes)
        if not left:
            rows = Observations.from_tensor(torch.cat(found), joined.joined_domain)
            return replace(answer, frame=joined.split(rows).to_pandas(count=None), notes=list(notes))
    problem = f"{number - left} of {_ROUNDS * number:,} draws agree with the columns given"
    raise out_of_reach("given", problem, "give the one column of a group that is set")


def completed(complete: Callable[[Question], Answer], joined: JoinedColumns, question: Question) -> Answer:
    """Rows with their missing cells filled, each ``number`` times, by a family from joined variables.

    Raises:
        InputError: rows that no level of a group describes.
        MissingDataError: the most probable cells are asked for, and disagree with known cells of a group.
        IntractableError: rows with known cells that draws never agree with.
    """
    read, number = joined.read(question.rows), question["number"]
    _check_possible(read, joined, "complete")
    size = len(question.rows.codes)
    answer = complete(replace(question, rows=read.rows))
    codes, notes = _codes_of(answer, joined.joined_domain), dict.fromkeys(answer.notes)
    owner = torch.arange(size).repeat(number)
    left = (~_agrees(codes, read, owner, joined)).nonzero().squeeze(1)
    if len(left) and question.values.get("most_probable"):
        problem = (
            f"{plural(len(left), 'row')} have known cells in joined columns that the most probable level is not of"
        )
        raise MissingDataError(problem, argument="complete", hint="draw the cells, or leave those columns empty")
    for attempt in range(1, _ROUNDS):
        if not len(left):
            break
        values = {**question.values, "number": 1, "seed": question["seed"] + attempt}
        again = complete(replace(question, rows=read.rows.rows(owner[left]), values=values))
        notes |= dict.fromkeys(again.notes)
        codes[left] = _codes_of(again, joined.joined_domain)
        left = left[~_agrees(codes[left], read, owner[left], joined)]
    if len(left):
        problem = (
            f"{plural(len(left), 'row')} have known cells in joined columns that {_ROUNDS} draws did not agree with"
        )
        raise out_of_reach("complete", problem, "leave those columns empty there")
    frame = joined.split(Observations.from_tensor(codes, joined.joined_domain)).to_pandas(count=None)
    return replace(answer, frame=numbered(frame, number), notes=list(notes))


def _codes_of(answer: Answer, domain: Domain) -> torch.Tensor:
    """Codes of the labels of an answer."""
    assert answer.frame is not None
    columns = zip(answer.frame.columns[-len(domain) :], domain, strict=True)  # after the number of the imputation
    codes = [pd.Categorical(answer.frame[name], categories=list(v.labels)).codes for name, v in columns]
    return torch.stack([torch.from_numpy(column.copy()).long() for column in codes], 1)


def _agrees(codes: torch.Tensor, read: JoinedRows, owner: torch.Tensor, joined: JoinedColumns) -> torch.Tensor:
    """Which states (M,) have levels that the known cells of their rows leave, or none where those are impossible."""
    found = torch.ones(len(codes), dtype=torch.bool)
    for group, allowed in zip(joined.groups, read.allowed, strict=True):
        level = codes[:, joined.joined_domain.index(group.name)]
        found &= (level < 0) | allowed[owner, level]
    return found


def _check_possible(read: JoinedRows, joined: JoinedColumns, argument: str) -> None:
    """Refuse rows that break a group."""
    if bool(read.is_broken.any()):
        rows = plural(int(read.is_broken.any(1).sum()), "row")
        group = joined.groups[int(read.is_broken.any(0).nonzero()[0])]
        problem = f"{rows} hold values that {group.name!r}, columns of which one says the others, never has together"
        raise refused(argument, problem, code="impossible")
