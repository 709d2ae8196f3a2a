"""A model of joined columns answers questions about the columns as they were: predictions, draws, completed rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd
import torch

from ..data.joined import ColumnGroup, JoinedColumns, JoinedRows
from ..data.observations import Observations
from ..errors import MissingDataError, out_of_reach, refused
from ..schema import Domain
from .command.answers import prediction_answer
from .family import Answer, Family, Question, Stored
from .partition import LogPartition
from .prediction import Prediction, numbered
from .scores import RowLogLikelihood
from .words import listed, plural, whole

__all__ = ["joined_of", "model_domain", "opened"]


_ROUNDS = 200
"""How often draws that disagree with the known cells of a group are made again."""
_MOST_ROWS = 2**20
_LOST = {"nll": math.inf, "kl": math.inf, "pseudo_nll": math.inf, "gain": -math.inf, "nll_std_error": math.inf}


def joined_of(stored: Stored) -> JoinedColumns | None:
    """The columns that a model has joined; None where it has not."""
    entry = stored.info.get("joined")
    return None if entry is None else JoinedColumns.from_json(entry)


def model_domain(stored: Stored) -> Domain:
    """The variables that the interactions of a model are of: joined ones where it has joined columns."""
    joined = joined_of(stored)
    return stored.domain if joined is None else joined.joined_domain


def opened(family: Family, stored: Stored) -> tuple[Family, Stored]:
    """A family and a model as they answer about columns; as they are where the model has joined none."""
    joined = joined_of(stored)
    if joined is None:
        return family, stored
    if stored.domain not in (joined.domain, joined.joined_domain):
        raise refused("model", "its joined columns are not those of its variables", code="other-domain")
    about_columns = _JoinedAnswers(family, joined, replace(_plain(stored), domain=joined.joined_domain))
    wrapped = copy(family)
    answers = ("draw", "score", "predict", "interactions", "complete", "log_z", "row_log_likelihood")
    vars(wrapped).update({name: getattr(about_columns, name) for name in answers})
    return wrapped, replace(_plain(stored), domain=joined.domain)


def _plain(stored: Stored) -> Stored:
    """The record itself, of a loaded model."""
    return Stored(stored.kind, stored.model, stored.domain, stored.info)


@dataclass(frozen=True, eq=False)
class _JoinedAnswers:
    """Answers of a family about joined variables as answers about columns.

    Rows come in over the columns and are joined on the way in; what the family says is split on the way out.
    """

    family: Family
    joined: JoinedColumns
    inner: Stored

    def _asked(self, question: Question, **changes: Any) -> Question:
        return replace(question, stored=self.inner, **changes)

    def log_z(self, question: Question) -> LogPartition:
        """Log Z of the model of the joined variables."""
        return self.family.log_z(self._asked(question))

    def interactions(self, question: Question) -> Answer:
        """Interactions of the joined variables, with the columns that these hold."""
        answer = self.family.interactions(self._asked(question))
        shown = {name for row in answer.json["interactions"] for name in row["edge"]}
        groups = {group.name: list(group.columns) for group in self.joined.groups if group.name in shown}
        lines = [f"{name} joins {listed(columns)}" for name, columns in groups.items()]
        return replace(answer, json={**answer.json, "joined": groups}, lines=[*answer.lines, *lines])

    def predict(self, question: Question) -> Answer:
        r"""One column of rows.

        A column within a group is predicted by the levels of its group that the other columns of the group leave,

        .. math:: q(x_c = 1 \mid \text{rest}) = \sum_{l \in L : x_c(l) = 1} q(l) \Big/ \sum_{l \in L} q(l)

        Groups whose known cells say no single level play no part in the prediction of other columns.
        """
        group = self.joined.group_of(question["target"])
        if group is None:
            read = self.joined.read(question.rows)
            answer = self.family.predict(self._asked(question, rows=read.rows))
            of_part = answer.of_part
            if of_part is not None:
                answer = replace(answer, of_part=lambda part: of_part(self.joined.read(part).rows))
            return replace(answer, notes=[*answer.notes, *_unused(read, question.rows)])
        notes: dict[str, None] = {}
        answer = prediction_answer(self._asked(question), lambda rows: self._within(group, question, rows, notes))
        return replace(answer, notes=list(notes))

    def _within(self, group: ColumnGroup, question: Question, rows: Observations, notes: dict[str, None]) -> Prediction:
        """A column of a group from the other columns."""
        target, position = question["target"], self.joined.domain.index(question["target"])
        # What the other columns of the group leave: the target, and the level that it would say, are hidden.
        codes = rows.codes.clone()
        codes[:, position] = -1
        read = self.joined.read(rows.replaced(codes=codes))
        allowed = read.allowed[self.joined.groups.index(group)].double()
        hidden = read.rows.codes.clone()
        hidden[:, read.rows.domain.index(group.name)] = -1
        values = {**question.values, "target": group.name}
        changes = {"rows": read.rows.replaced(codes=hidden), "values": values, "has_target": False}
        answer = self.family.predict(self._asked(question, **changes))
        notes |= dict.fromkeys([*answer.notes, *_unused(read, rows)])
        assert answer.frame is not None
        # Probabilities of the levels that are left, added up by the code that they give the target.
        names = [f"p({label})" for label in group.labels]
        probs = torch.from_numpy(answer.frame[names].to_numpy(dtype=float).copy()) * allowed
        is_decided = allowed.sum(1) == 1  # by the other columns, however improbable they are
        probs = torch.where(is_decided[:, None], allowed, probs)
        variable = self.joined.domain[target]
        column = torch.tensor([level[group.columns.index(target)] for level in group.levels])
        by_code = torch.stack([probs[:, column == code].sum(1) for code in range(variable.cardinality)], 1)
        log_probs = (by_code / by_code.sum(1, keepdim=True)).log()
        is_exact = is_decided | torch.from_numpy(answer.frame["is_exact"].to_numpy(dtype=bool).copy())
        error = torch.where(is_exact[:, None], 0.0, math.nan).expand_as(log_probs)
        return Prediction.of(rows, target, log_probs, error, is_exact)

    def draw(self, question: Question) -> Answer:
        """Rows given some columns, drawn again until they agree with columns that leave several levels of a group.

        Raises:
            InputError: given values that no level of a group has.
            IntractableError: given values that draws never agree with.
        """
        codes = torch.full((1, len(self.joined.domain)), -1, dtype=torch.long)
        for name, code in question["given"].items():
            codes[0, self.joined.domain.index(name)] = code
        read = self._possible(Observations.from_tensor(codes, self.joined.domain), "given")
        evidence = zip(self.joined.joined_domain.names, read.rows.codes[0].tolist(), strict=True)
        given = {name: code for name, code in evidence if code >= 0}
        number, parts, notes = question["number"], list[torch.Tensor](), dict[str, None]()
        left = number
        for attempt in range(_ROUNDS):
            values = {**question.values, "given": given, "seed": question["seed"] + attempt}
            answer = self.family.draw(self._asked(question, values=values))
            notes |= dict.fromkeys(answer.notes)
            codes = self._codes_of(answer)
            codes = codes[self._agrees(codes, read, torch.zeros(len(codes), dtype=torch.long))][:left]
            parts.append(codes)
            left -= len(codes)
            if not left:
                return replace(answer, frame=self._split(torch.cat(parts)), notes=list(notes))
        problem = f"{number - left} of {_ROUNDS * number:,} draws agree with the columns given"
        raise out_of_reach("given", problem, "give the one column of a group that is set")

    def complete(self, question: Question) -> Answer:
        """Rows with their missing cells filled, each ``number`` times.

        Raises:
            InputError: rows that no level of a group describes.
            MissingDataError: the most probable cells are asked for, and disagree with known cells of a group.
            IntractableError: rows with known cells that draws never agree with.
        """
        read, number = self._possible(question.rows, "complete"), question["number"]
        answer = self.family.complete(self._asked(question, rows=read.rows))
        codes, notes = self._codes_of(answer), dict.fromkeys(answer.notes)
        owner = torch.arange(len(question.rows.codes)).repeat(number)
        left = (~self._agrees(codes, read, owner)).nonzero().squeeze(1)
        known = f"{plural(len(left), 'row')} have known cells in joined columns that"
        if len(left) and question.values.get("most_probable"):
            hint = "draw the cells, or leave those columns empty"
            raise MissingDataError(f"{known} the most probable level is not of", argument="complete", hint=hint)
        # Rows that disagree with their known cells are drawn again, with a seed of their own each time.
        for attempt in range(1, _ROUNDS):
            if not len(left):
                break
            values = {**question.values, "number": 1, "seed": question["seed"] + attempt}
            again = self.family.complete(self._asked(question, rows=read.rows.rows(owner[left]), values=values))
            notes |= dict.fromkeys(again.notes)
            codes[left] = self._codes_of(again)
            left = left[~self._agrees(codes[left], read, owner[left])]
        if len(left):
            known = f"{plural(len(left), 'row')} have known cells in joined columns that"
            raise out_of_reach(
                "complete", f"{known} {_ROUNDS} draws did not agree with", "leave those columns empty there"
            )
        return replace(answer, frame=numbered(self._split(codes), number), notes=list(notes))

    def _codes_of(self, answer: Answer) -> torch.Tensor:
        """Codes of the labels of an answer, over the joined variables."""
        assert answer.frame is not None
        domain = self.joined.joined_domain
        columns = zip(answer.frame.columns[-len(domain) :], domain, strict=True)  # after the number of the imputation
        codes = [pd.Categorical(answer.frame[name], categories=list(v.labels)).codes for name, v in columns]
        return torch.stack([torch.from_numpy(column.copy()).long() for column in codes], 1)

    def _split(self, codes: torch.Tensor) -> pd.DataFrame:
        """Labels of the columns that codes of the joined variables say."""
        return self.joined.split(Observations.from_tensor(codes, self.joined.joined_domain)).to_pandas(count=None)

    def _agrees(self, codes: torch.Tensor, read: JoinedRows, owner: torch.Tensor) -> torch.Tensor:
        """Which states (M,) have levels that the known cells of their rows leave, or no level at all."""
        agrees = torch.ones(len(codes), dtype=torch.bool)
        for group, allowed in zip(self.joined.groups, read.allowed, strict=True):
            level = codes[:, self.joined.joined_domain.index(group.name)]
            agrees &= (level < 0) | allowed[owner, level]
        return agrees

    def _possible(self, rows: Observations, argument: str) -> JoinedRows:
        """Rows over the joined variables, refused where they break a group."""
        read = self.joined.read(rows)
        if bool(read.is_broken.any()):
            number = plural(int(read.is_broken.any(1).sum()), "row")
            group = self.joined.groups[int(read.is_broken.any(0).nonzero()[0])]
            problem = (
                f"{number} hold values that {group.name!r}, columns of which one says the others, never has together"
            )
            raise refused(argument, problem, code="impossible")
        return read

    def score(self, question: Question) -> Answer:
        """Figures of rows; a row that breaks a group has probability zero."""
        # Rows that break a group are impossible, and the family scores the others.
        read = self._complete_groups(question.rows)
        is_broken = read.is_broken.any(1)
        answer = self.family.score(self._asked(question, rows=read.rows.rows(~read.is_broken.any(1))))
        lost = float(question.rows.counts[is_broken].sum())
        of_part = answer.of_part

        def figures(part: Observations) -> dict[str, float | None]:
            assert of_part is not None
            is_broken = (read := self._complete_groups(part)).is_broken.any(1)
            return _with_lost(of_part(read.rows.rows(~is_broken)), bool((part.counts[is_broken] > 0).any()))

        # Of all rows together likelihoods are infinite; both figures are told.
        json, lines = _with_lost(answer.json, lost > 0), list(answer.lines)
        if lost:
            possible = {name: answer.json[name] for name in ("rows", "nll", "gain") if name in answer.json}
            impossible = whole(answer.json.get("impossible_rows") or 0) + whole(lost)
            total = whole(question.rows.total_count)
            json = {**json, "rows": total, "impossible_rows": impossible, "possible": possible}
            names = [group.name for group, bad in zip(self.joined.groups, read.is_broken.any(0), strict=True) if bad]
            verb = "breaks" if lost == 1 else "break"
            sentence = (
                f"{plural(lost, 'row')} of {total:,} {verb} joined columns ({listed(names)}) and have probability "
                "zero, so that the NLL of all rows is infinite; of the others:"
            )
            lines = [sentence, *lines]
        return replace(answer, json=json, lines=lines, of_part=None if of_part is None else figures)

    def row_log_likelihood(self, stored: Stored, rows: Observations, pseudo: bool = False) -> RowLogLikelihood:
        """Log-likelihood of every row, summed over the levels that its known cells leave."""
        del stored  # these answers hold it
        read = self.joined.read(rows)
        spread, owner = _spread(read, self.joined)
        of_levels = self.family.row_log_likelihood(self.inner, spread, pseudo)
        if of_levels.kind != "likelihood" and bool(read.is_open.any()):
            problem = "the pseudo-likelihood of rows that leave levels of joined columns open is not defined"
            raise out_of_reach("rows", problem, "fill all cells of such columns, or none", code="no-method")
        values = torch.full((len(rows.codes),), -math.inf, dtype=torch.float64)
        values = values.scatter_reduce(0, owner, of_levels.values.double(), "amax")
        peak = torch.where(values.isfinite(), values, 0.0)
        sums = torch.zeros_like(values).index_add_(0, owner, (of_levels.values.double() - peak[owner]).exp())
        return replace(of_levels, values=torch.where(read.is_broken.any(1), -math.inf, peak + sums.log()))

    def _complete_groups(self, rows: Observations) -> JoinedRows:
        """Rows whose groups are known, missing or broken, one possible row at least; refused otherwise."""
        read = self.joined.read(rows)
        is_open = read.is_open.any(1) & (rows.counts > 0)
        if bool(is_open.any()):
            number = plural(int(is_open.sum()), "row")
            problem = f"{number} have missing cells in joined columns that leave several levels"
            hint = "fill these cells, or leave all columns of the group empty; row_log_likelihood sums over the levels"
            raise MissingDataError(problem, argument="rows", hint=hint)
        is_possible = (rows.counts > 0) & ~read.is_broken.any(1)
        if len(rows.counts) and not bool(is_possible.any()):
            names = [group.name for group, bad in zip(self.joined.groups, read.is_broken.any(0), strict=True) if bad]
            problem = f"every row breaks joined columns ({listed(names)}) and has probability zero"
            raise refused("rows", problem, code="impossible")
        return read


def _unused(read: JoinedRows, rows: Observations) -> list[str]:
    """A sentence where groups of rows say no single level."""
    notes: list[str] = []
    for is_bad, what in ((read.is_broken, "break"), (read.is_open, "do not say the level of")):
        number = int((is_bad.any(1) & (rows.counts > 0)).sum())
        if number:
            notes.append(f"{plural(number, 'row')} {what} joined columns, which are then taken as unknown there")
    return notes


def _with_lost(figures: Mapping[str, Any], is_lost: bool) -> dict[str, Any]:
    """Figures of rows some of which have probability zero."""
    if not is_lost:
        return dict(figures)
    changed = {name: value for name, value in _LOST.items() if figures.get(name) is not None}
    return {**figures, **changed, **({"gain_std_error": None} if "gain_std_error" in figures else {})}


def _spread(read: JoinedRows, joined: JoinedColumns) -> tuple[Observations, torch.Tensor]:
    """Rows with every level that their known cells leave, and which row each came from; broken rows are left out."""
    is_open = read.is_open.any(1)
    plain = (~is_open & ~read.is_broken.any(1)).nonzero().squeeze(1)
    codes, owners = [read.rows.codes[plain]], [plain]
    total = len(plain)
    for row in (is_open & ~read.is_broken.any(1)).nonzero().squeeze(1).tolist():
        open_groups = read.is_open[row].nonzero().squeeze(1).tolist()
        levels = [read.allowed[g][row].nonzero().squeeze(1).tolist() for g in open_groups]
        total += math.prod(map(len, levels))
        if total > _MOST_ROWS:
            problem = f"missing cells in joined columns leave more than {_MOST_ROWS:,} combinations of levels"
            raise out_of_reach("rows", problem, "ask for fewer rows, or leave all columns of a group empty")
        places = [read.rows.domain.index(joined.groups[g].name) for g in open_groups]
        every = torch.tensor(list(product(*levels)))
        filled = read.rows.codes[row].repeat(len(every), 1)
        filled[:, places] = every
        codes.append(filled)
        owners.append(torch.full((len(every),), row))
    return Observations.from_tensor(torch.cat(codes), read.rows.domain), torch.cat(owners)
