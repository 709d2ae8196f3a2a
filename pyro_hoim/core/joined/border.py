"""A model of joined columns answers questions about the columns as they were, whatever its family.

A model file whose information has an entry ``joined`` holds a model of joined variables
(:class:`~pyro_hoim.data.JoinedColumns`). The family knows nothing of that: here its answers are wrapped, so that rows
come in and go out over the columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from ...data.joined.columns import JoinedColumns, JoinedRows
from ...data.observations import Observations
from ...errors import MissingDataError, out_of_reach, refused
from ...schema import Domain
from ..family import Answer, Family, Question, Stored
from ..partition import LogPartition
from ..scores import RowLogLikelihood
from ..words import listed, plural, whole
from .draws import completed, drawn
from .predictions import predicted

__all__ = ["joined_of", "model_domain", "opened"]

_MOST_ROWS = 2**20
_LOST = {"nll": math.inf, "kl": math.inf, "pseudo_nll": math.inf, "gain": -math.inf, "nll_std_error": math.inf}


def joined_of(stored: Stored) -> JoinedColumns | None:
    """The columns that a model has joined; None where it has not."""
    held = stored.info.get("joined")
    return None if held is None else JoinedColumns.from_json(held)


def model_domain(stored: Stored) -> Domain:
    """The variables that the interactions of a model are of: joined ones where it has joined columns."""
    joined = joined_of(stored)
    return stored.domain if joined is None else joined.joined_domain


def opened(family: Family, stored: Stored) -> tuple[Family, Stored]:
    """A family and a model as they answer about columns; as they are where the model has joined none.

    Example:
        >>> import pyro_hoim as hoim
        >>> from pyro_hoim.core.operations import stored_model
        >>> rows = hoim.load_table("ucb_admissions")
        >>> family, stored = stored_model(hoim.fit(hoim.InteractionHypergraph.from_order(rows.domain, 2), rows))
        >>> opened(family, stored) == (family, stored)
        True
    """
    joined = joined_of(stored)
    if joined is None:
        return family, stored
    if stored.domain not in (joined.domain, joined.joined_domain):
        raise refused("model", "its joined columns are not those of its variables", code="other-domain")
    border = _Border(family, joined, replace(_plain(stored), domain=joined.joined_domain))
    wrapped: dict[str, Any] = {name: getattr(border, name) for name in ("draw", "score", "predict", "interactions")}
    for name in ("complete", "log_z", "row_log_likelihood"):
        wrapped[name] = None if getattr(family, name) is None else getattr(border, name)
    return replace(family, **wrapped), replace(_plain(stored), domain=joined.domain)


def _plain(stored: Stored) -> Stored:
    """The record itself, of a loaded model."""
    return Stored(stored.kind, stored.model, stored.domain, stored.info)


@dataclass(frozen=True, eq=False)
class _Border:
    """Answers of a family about joined variables as answers about columns."""

    family: Family
    joined: JoinedColumns
    inner: Stored

    def _asked(self, question: Question, **changes: Any) -> Question:
        return replace(question, stored=self.inner, **changes)

    def draw(self, question: Question) -> Answer:
        """Rows given some columns."""
        return drawn(self.family.draw, self.joined, self._asked(question))

    def complete(self, question: Question) -> Answer:
        """Rows with their missing cells filled."""
        assert self.family.complete is not None
        return completed(self.family.complete, self.joined, self._asked(question))

    def predict(self, question: Question) -> Answer:
        """One column of rows."""
        return predicted(self.family.predict, self.joined, self._asked(question))

    def log_z(self, question: Question) -> LogPartition:
        """Log Z of the model of the joined variables."""
        assert self.family.log_z is not None
        return self.family.log_z(self._asked(question))

    def interactions(self, question: Question) -> Answer:
        """Interactions of the joined variables, with the columns that these hold."""
        answer = self.family.interactions(self._asked(question))
        shown = {name for row in answer.json["interactions"] for name in row["edge"]}
        groups = {group.name: list(group.columns) for group in self.joined.groups if group.name in shown}
        lines = [f"{name} joins {listed(columns)}" for name, columns in groups.items()]
        return replace(answer, json={**answer.json, "joined": groups}, lines=[*answer.lines, *lines])

    def score(self, question: Question) -> Answer:
        """Figures of rows; a row that breaks a group has probability zero."""
        read = self._complete_groups(question.rows)
        is_broken = read.is_broken.any(1)
        answer = self.family.score(self._asked(question, rows=_possible(read)))
        lost = float(question.rows.counts[is_broken].sum())
        of_part = answer.of_part

        def figures(part: Observations) -> dict[str, float | None]:
            assert of_part is not None
            found = self._complete_groups(part)
            broken = bool((part.counts[found.is_broken.any(1)] > 0).any())
            return _with_lost(of_part(_possible(found)), broken)

        json, lines = _with_lost(answer.json, lost > 0), list(answer.lines)
        if lost:
            possible = {name: answer.json[name] for name in ("rows", "nll", "gain") if name in answer.json}
            impossible = whole(answer.json.get("impossible_rows") or 0) + whole(lost)
            total = whole(question.rows.total_count)
            json = {**json, "rows": total, "impossible_rows": impossible, "possible": possible}
            names = [group.name for group, bad in zip(self.joined.groups, read.is_broken.any(0), strict=True) if bad]
            verb = "breaks" if lost == 1 else "break"
            told = (
                f"{plural(lost, 'row')} of {total:,} {verb} joined columns ({listed(names)}) and have probability "
                "zero, so that the NLL of all rows is infinite; of the others:"
            )
            lines = [told, *lines]
        return replace(answer, json=json, lines=lines, of_part=None if of_part is None else figures)

    def row_log_likelihood(self, stored: Stored, rows: Observations, pseudo: bool = False) -> RowLogLikelihood:
        """Log-likelihood of every row, summed over the levels that its known cells leave."""
        del stored  # the border holds it
        assert self.family.row_log_likelihood is not None
        read = self.joined.read(rows)
        spread, owner = _spread(read, self.joined)
        found = self.family.row_log_likelihood(self.inner, spread, pseudo)
        if found.kind != "likelihood" and bool(read.is_open.any()):
            problem = "the pseudo-likelihood of rows that leave levels of joined columns open is not defined"
            raise out_of_reach("rows", problem, "fill all cells of such columns, or none", code="no-method")
        values = torch.full((len(rows.codes),), -math.inf, dtype=torch.float64)
        values = values.scatter_reduce(0, owner, found.values.double(), "amax")
        peak = torch.where(values.isfinite(), values, 0.0)
        sums = torch.zeros_like(values).index_add_(0, owner, (found.values.double() - peak[owner]).exp())
        return replace(found, values=torch.where(read.is_broken.any(1), -math.inf, peak + sums.log()))

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


def _possible(read: JoinedRows) -> Observations:
    """The joined rows that break no group."""
    return read.rows.rows(~read.is_broken.any(1))


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
