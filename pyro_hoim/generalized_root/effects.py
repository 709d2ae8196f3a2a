r"""What the coefficients of a root model say: lines of a summary, odds ratios, and effects of one column on another."""

from __future__ import annotations

import itertools
import math
import numbers
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from ..core.words import listed, number, plural, shorten
from ..errors import InputError, check_names, check_type, conflict, unexpected
from ..results.answer import DIFFERENCE, WHERE, clearest_effects
from ..results.contrasts import INTERVALS, STORED_LEVEL, Contrasts, contrast_frame, with_level
from .dispersion import dispersion_sentences
from .energy import GeneralizedRootEnergy
from .file import RootFile
from .frames import RootColumns
from .nodes.families import IndicatorFamily, NodeFamily
from .nodes.log_partition import node_moments
from .nodes.user_family import UserFamily, user_value_moments
from .regress.errors import RootErrors
from .regress.result import RootFitResult

Floats = NDArray[np.float64]

SELECTED = "errors and intervals are conditional on the selection of the terms, which they do not account for"
"""What limits every standard error of a root model."""
_UNPENALISED = "intervals are around the estimate without the penalty (unpenalised), and reach to that of the model"
_LOG_ERROR = "std_error of a ratio is that of its logarithm"
_SENTENCES, _MOST_SETS = 5, 200  # effects below a summary, and sets of a model that has them there
_WIDTH = 106  # characters of a note
_SHOWN = 8  # columns whose values a note gives
_SHRUNK = 0.01  # standard errors from which on a shift by the penalty is shown
_STEP = 1e-5  # of natural parameters, for slopes of users' families


class _Column(NamedTuple):
    """One column of a table: its variables in the model, and their values in words.

    Levels are those of a category, the reference first, or of a 0/1 column that has words; the origin is what was
    subtracted from a real number; the step is what it is changed by, ``in_sd`` if that is a standard deviation.
    """

    name: str
    positions: tuple[int, ...]
    is_category: bool = False
    levels: tuple[str, ...] = ()
    origin: float = 0.0
    step: float = 1.0
    in_sd: bool = False

    def word(self, values: torch.Tensor) -> str | float:
        """The value of its variables (m,) as the table has it."""
        if self.levels:
            return self.levels[int(values.argmax() if self.is_category else values[0])]
        return float(values[0]) + self.origin

    @property
    def compared(self) -> str:
        """What an odds ratio compares in words: the second level, or a step, with the first level or the origin."""
        if self.levels:
            return f"{self.levels[1]} vs {self.levels[0]}"
        return "1 SD vs 0" if self.in_sd else f"{self.origin + self.step:.10g} vs {self.origin:.10g}"


class _Line(NamedTuple):
    """One line of a summary: columns, levels in words, and the root of its product."""

    columns: tuple[str, ...]
    levels: str
    root: int


class _Change(NamedTuple):
    """A column that changes between two states (d,), in words."""

    column: str
    before: str
    after: str
    states: torch.Tensor


@dataclass(frozen=True, eq=False)
class RootEffects:
    """A root model as one reads it, with errors and typical values where it has them.

    Args:
        energy: the model, without a batch, float64.
        errors: of its coefficients.
        typical: value of every variable that is typical in the rows learned from; empty where they are not known.
        frame: the columns of the data frame that the rows come from, for their words; None of numbers.
        dispersion: columns that vary otherwise than the model says, with the ratio of the variances.
        scales: standard deviations of columns of real numbers that come from no data frame.
    """

    energy: GeneralizedRootEnergy
    errors: RootErrors
    typical: Mapping[str, float]
    frame: RootColumns | None = None
    dispersion: Mapping[str, float] = field(default_factory=dict[str, float])
    scales: Mapping[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def of(cls, file: RootFile) -> RootEffects:
        """What a file holds."""
        info = file.info
        typical, dispersion = info.get("typical", {}), info.get("dispersion", {})
        return cls(file.energy(torch.float64), file.errors, typical, file.columns, dispersion, file.scales)

    @cached_property
    def coefficients(self) -> Floats:
        """Of all terms, (num_terms,)."""
        return self.energy.coefficients.detach().numpy()

    @cached_property
    def columns(self) -> tuple[_Column, ...]:
        """The columns of the table, in the order of their first variables."""
        names, families, columns = self.energy.domain.names, self.energy.families, list[_Column]()
        for unit in families.units:
            positions = tuple(unit.tolist())
            family = families[positions[0]]
            if isinstance(family, IndicatorFamily):
                levels = tuple(names[s].removeprefix(f"{family.category}=") for s in positions)
                columns.append(_Column(family.category, positions, True, levels))
                continue
            name = names[positions[0]]
            if self.frame is not None:
                known = self.frame[name]
                columns.append(_Column(name, positions, False, known.levels, known.origin, known.step))
                continue
            columns.append(_Column(name, positions, step=self.scales.get(name, 1.0), in_sd=name in self.scales))
        return tuple(columns)

    @property
    def has_levels(self) -> bool:
        """Whether some column has levels in words."""
        return any(column.levels for column in self.columns)

    @cached_property
    def column_of(self) -> NDArray[np.int64]:
        """Number of the column of every variable, (d,)."""
        number_of = np.zeros(len(self.energy.domain), dtype=np.int64)
        for i, column in enumerate(self.columns):
            number_of[list(column.positions)] = i
        return number_of

    @cached_property
    def sets(self) -> dict[tuple[int, ...], list[int]]:
        """Places of the terms of every set of columns."""
        sets: dict[tuple[int, ...], list[int]] = {}
        for key, where in self.energy.structure.slices.items():
            columns = np.sort(self.column_of[self.energy.structure.positions(key).numpy()], axis=1)
            for term, row in zip(range(where.start, where.stop), columns.tolist(), strict=True):
                sets.setdefault(tuple(row), []).append(term)
        return sets

    # Lines of a summary.

    def lines(self) -> tuple[list[_Line], Any]:
        """Lines with weights (m, num_terms) of the coefficients that are added up in each.

        A category's levels are compared with its first one, so that every line is identified: its indicator is
        replaced by 1 less the others. Without categories a line is a term.
        """
        names, structure, families = self.energy.domain.names, self.energy.structure, self.energy.families
        if not families.blocks:
            lines = [self._line(key[0], self.energy.domain.indices(terms), names) for key, terms in structure.names]
            return lines, sparse.eye_array(len(lines), format="csr")
        # Sums over products without reference levels, by root (none where all are 0 or 1) and variables.
        others = {int(block[0]): block[1:].tolist() for block in families.blocks}
        places: dict[tuple[int, tuple[int, ...]], int] = {}
        entries: list[tuple[float, int, int]] = []
        term = 0
        for key in structure.keys:
            for positions in structure.positions(key).tolist():
                parts = [[(s, -1.0) for s in others[s]] + [(-1, 1.0)] if s in others else [(s, 1.0)] for s in positions]
                for choice in itertools.product(*parts):
                    rest = tuple(sorted(s for s, _ in choice if s >= 0))
                    if rest:
                        is_plain = all(families[s].largest_value == 1.0 for s in rest)
                        line = places.setdefault((len(rest) if is_plain else key[0], rest), len(places))
                        entries.append((math.prod(sign for _, sign in choice), line, term))
                term += 1
        lines = [self._line(root, positions, names) for root, positions in places]
        value, row, column = zip(*entries, strict=True) if entries else ((), (), ())
        return lines, sparse.csr_array((value, (row, column)), shape=(len(lines), structure.num_terms))

    def _line(self, root: int, positions: Sequence[int], names: Sequence[str]) -> _Line:
        columns = [self.columns[i] for i in self.column_of[list(positions)]]
        levels = [
            names[s] if column.is_category else f"{column.name}={column.levels[1]}"
            for s, column in zip(positions, columns, strict=True)
            if column.levels
        ]
        return _Line(tuple(column.name for column in columns), ", ".join(levels), root)

    def summary(self, level: float) -> pd.DataFrame:
        """A line for every coefficient that is identified, single columns first, then sets, the strongest first."""
        lines, weights = self.lines()
        estimate = np.asarray(weights @ self.coefficients)
        # Sets together, by their largest coefficient.
        strongest: dict[tuple[str, ...], float] = {}
        for line, value in zip(lines, estimate.tolist(), strict=True):
            strongest[line.columns] = max(strongest.get(line.columns, 0.0), abs(value))
        places = {column.name: i for i, column in enumerate(self.columns)}
        rank = [
            (
                len(line.columns) > 1,
                -strongest[line.columns] if len(line.columns) > 1 else 0.0,
                *map(places.get, line.columns),
            )
            for line in lines
        ]
        order = sorted(range(len(lines)), key=lambda i: rank[i])
        frame = pd.DataFrame({"term": [":".join(lines[i].columns) for i in order]}, dtype=object)
        if self.has_levels:
            frame["levels"] = [lines[i].levels for i in order]
        frame["root"] = [lines[i].root for i in order]
        frame["estimate"] = estimate[order]
        notes = ["estimate: factor of the product of the roots of the columns in the log density"]
        if self.has_levels:
            references = [f"{column.name}={column.levels[0]}" for column in self.columns if column.levels]
            notes += textwrap.wrap(f"levels are compared with {', '.join(references)}", _WIDTH)
        if self.errors.covariance is None:
            notes.append(f"no standard errors: {self.errors.reason}")
        else:
            # Errors, z and intervals of sums of coefficients, beside their estimates.
            values, errors = self.errors.of(weights[order])
            low, high = limits(frame["estimate"].to_numpy(dtype=float), values, errors, level)
            with np.errstate(divide="ignore", invalid="ignore"):
                frame["std_error"], frame["z"] = errors, values / errors
            frame["lower"], frame["upper"] = low, high
            if _is_shrunk(frame["estimate"].to_numpy(dtype=float), values, errors):
                frame["unpenalised"] = values
                notes.append(_UNPENALISED)
            notes.append(SELECTED)
            notes += _lost("coefficient", errors)
        notes += [line for one in dispersion_sentences(self.dispersion) for line in textwrap.wrap(one, _WIDTH)]
        frame.attrs |= {"notes": [*notes, *self.strongest_effects(level)], "hidden": ["unpenalised"]}
        return frame

    def strongest_effects(self, level: float) -> list[str]:
        """Sentences on the effects that are clearest, one of every pair of columns, at typical values."""
        several = sum(len(columns) > 1 for columns in self.sets)
        if not self.typical or not several or several > _MOST_SETS:
            return []
        try:
            sentences = clearest_effects(self.effects(None, None, None, level), level)
        except InputError:  # no law at typical values, as published regressions may have it
            return []
        if not sentences:
            return []
        left_out = len(sentences) - _SENTENCES
        more = [f"effects() has those of {plural(left_out, 'other pair')} of columns"] if left_out > 0 else []
        return [f"clearest effects of a change of one column, {WHERE}", *sentences[:_SENTENCES], *more]

    # Odds ratios.

    def contrasts(self) -> Contrasts:
        """Log odds ratios of a step from the origin, and of levels against the first, all other columns at such."""
        names, structure = self.energy.domain.names, self.energy.structure
        terms, levels, weights = list[str](), list[str](), list[Any]()
        for columns, places in self.sets.items():
            if len(columns) < 2:
                continue
            members = [self.columns[i] for i in columns]
            for chosen in itertools.product(*(column.positions[column.is_category :] for column in members)):
                terms.append(":".join(column.name for column in members))
                words = [
                    f"{names[s]} vs {column.levels[0]}" if column.is_category else f"{column.name}={column.compared}"
                    for s, column in zip(chosen, members, strict=True)
                ]
                levels.append(", ".join(words))
                weights.append(self._odds_weights(members, chosen, places))
        matrix = sparse.vstack(weights, format="csr") if weights else sparse.csr_array((0, structure.num_terms))
        estimate = np.asarray(matrix @ self.coefficients)
        values, errors = self.errors.of(matrix)
        rows = contrast_frame(terms, levels).assign(estimate=estimate, std_error=errors, limit=math.nan)
        # What the numbers are.
        unit = "a value of one standard deviation" if self.scales and self.frame is None else "the value 1"
        notes = [f"each odds ratio compares {unit} with 0, all other columns at 0"]
        if self.frame is not None:
            notes = ["each odds ratio compares two values of each of its columns, all other columns at the second ones"]
            if any(column.step != 1 for column in self.columns):
                notes.append("numbers with fractions are compared at a distance of about one standard deviation")
        if any(len(columns) > 2 for columns in self.sets):
            notes.append("of three columns it is the ratio of two odds ratios")
        if self.errors.covariance is None:
            notes.append(f"no intervals: {self.errors.reason}")
            return Contrasts(rows.assign(p_value=math.nan), STORED_LEVEL, tuple(notes), False, False)
        notes += [f"{INTERVALS} by sandwich standard errors", SELECTED]
        notes += _lost("ratio", errors)
        if _is_shrunk(estimate, values, errors):
            rows["centre"] = values
            notes.append(_UNPENALISED.replace(" (unpenalised)", ""))
        return Contrasts(rows.assign(p_value=math.nan), STORED_LEVEL, tuple(notes), True, False)

    def _odds_weights(self, members: Sequence[_Column], chosen: Sequence[int], places: Sequence[int]) -> Any:
        """Weights (1, num_terms) of a log odds ratio: the alternating sum of the statistics at both values of each."""
        structure, families = self.energy.structure, self.energy.families
        if families.blocks:  # terms of reference levels of other categories count, too
            total = torch.zeros(structure.num_terms, dtype=torch.float64)
            base = torch.zeros(len(self.energy.domain), dtype=torch.float64)
            base[[int(block[0]) for block in families.blocks]] = 1.0
            for is_changed in itertools.product((False, True), repeat=len(members)):
                state = base.clone()
                for column, s, moves in zip(members, chosen, is_changed, strict=True):
                    if moves:
                        state[list(column.positions)] = 0.0
                        state[s] = column.step
                sign = (-1.0) ** (len(members) - sum(is_changed))
                total += sign * self.energy.statistics(state, validate=False)
            return sparse.csr_array(total.numpy()[None])
        # Without categories only the terms of the set itself have a part.
        steps = torch.tensor([column.step for column in members], dtype=torch.float64)
        value = [
            math.prod(float(families[s].root(step, root)) for s, step in zip(chosen, steps, strict=True))
            for root in (structure.names[term][0][0] for term in places)
        ]
        return sparse.csr_array((value, ([0] * len(places), places)), shape=(1, structure.num_terms))

    # Effects of one column on another.

    def effects(
        self, response: str | None, given: Mapping[str, Any] | None, change: Mapping[str, Any] | None, level: float
    ) -> pd.DataFrame:
        """Effects as :meth:`pyro_hoim.results.fitted.Fitted.effects` says them."""
        by_name = {column.name: column for column in self.columns}
        if response is not None:
            check_names([response], list(by_name), "response", noun="column")
        state = self._state(given)
        changes = self._changes(state, given or {}, change)
        neighbours: dict[str, set[str]] = {name: set() for name in by_name}
        for columns in self.sets:
            names = {self.columns[i].name for i in columns}
            for name in names:
                neighbours[name] |= names - {name}
        # Every change of a column that shares a term with the response.
        records: list[dict[str, Any]] = []
        for column in self.columns:
            if response in (None, column.name):
                for one in (one for name in by_name if name in neighbours[column.name] for one in changes[name]):
                    records += self._effects_of(column, one, level)
        levels = ["levels"] if any(record["levels"] for record in records) else []
        unpenalised = ["unpenalised"] if any(record["is_shrunk"] for record in records) else []
        figures = ["column", "before", "after", "effect", "estimate", "std_error", "lower", "upper"]
        frame = pd.DataFrame(records, columns=["response", *levels, *figures, *unpenalised])
        notes = self._notes(state, response, frame, level, bool(given))
        frame.attrs = {"notes": notes, "level": level, "given": self._worded(state), "hidden": ["unpenalised"]}
        return frame

    def _state(self, given: Mapping[str, Any] | None) -> torch.Tensor:
        """Values (d,) of all variables: those given, else the typical ones."""
        names, given = self.energy.domain.names, {} if given is None else given
        check_type(given, Mapping, "given", "values by column, such as {'a': 1}, or None")
        check_names(given, [column.name for column in self.columns], "given", noun="column")
        state = torch.tensor([self.typical.get(name, math.nan) for name in names], dtype=torch.float64)
        for column in self.columns:
            if column.name in given:
                state[list(column.positions)] = self._values(column, given[column.name], f"given[{column.name!r}]")
        lost = [column.name for column in self.columns if bool(state[list(column.positions)].isnan().any())]
        if lost:
            problem = "the model does not hold typical values of its columns"
            raise conflict("given", f"{problem}: give one for {listed(lost)}")
        return state

    def _values(self, column: _Column, value: Any, argument: str) -> torch.Tensor:
        """Values (m,) of the variables of a column at one of its values."""
        if column.levels and (column.is_category or not _is_bit(value, column)):
            words = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
            if words not in column.levels:
                expected = f"one of the levels {listed(list(column.levels))}"
                raise unexpected(argument, expected, words, code="unknown-choice")
            chosen = torch.tensor([float(level == words) for level in column.levels], dtype=torch.float64)
            return chosen if column.is_category else chosen[1:]
        if not isinstance(value, numbers.Real):
            raise unexpected(argument, "a number", value)
        given = torch.tensor([float(value) - column.origin], dtype=torch.float64)
        self.energy.families[column.positions[0]].check_values(given, argument)
        return given

    def _changes(
        self, state: torch.Tensor, given: Mapping[str, Any], change: Mapping[str, Any] | None
    ) -> dict[str, list[_Change]]:
        """What every column is changed from and to: by its step, or as stated; of a category from its first level."""
        stated = {} if change is None else change
        check_type(stated, Mapping, "change", "steps or pairs of values by column, such as {'a': 10}, or None")
        check_names(stated, [column.name for column in self.columns], "change", noun="column")
        changes: dict[str, list[_Change]] = {}
        for column in self.columns:
            argument, how = f"change[{column.name!r}]", stated.get(column.name)
            family = self.energy.families[column.positions[0]]
            if isinstance(how, Sequence) and not isinstance(how, str):
                if len(how) != 2:
                    raise unexpected(argument, "a step, or two values", how)
                pairs = [(how[0], how[1])]
            elif column.levels:
                if how is not None:
                    raise unexpected(argument, "two levels", how)
                pairs = [(column.levels[0], level) for level in column.levels[1:]]
            else:
                if how is not None and not isinstance(how, numbers.Real):
                    raise unexpected(argument, "a step, or two values", how)
                step, start = column.step if how is None else float(how), float(state[column.positions[0]])
                if family.largest_value == 1.0:
                    start = 0.0
                elif column.name not in given and start + step > family.largest_value:
                    start = family.largest_value - step  # the last step that there is
                pairs = [(start + column.origin, start + column.origin + step)]
            changes[column.name] = [self._change(column, state, pair, argument) for pair in pairs]
        return changes

    def _change(self, column: _Column, state: torch.Tensor, pair: tuple[Any, Any], argument: str) -> _Change:
        states = torch.stack([state, state])
        for i, value in enumerate(pair):
            states[i, list(column.positions)] = self._values(column, value, argument)
        before, after = (_text(column.word(end[list(column.positions)])) for end in states)
        return _Change(column.name, before, after, states)

    def _design(self, states: torch.Tensor, s: int) -> Any:
        """Weights (2, k, num_terms) of the coefficients in the natural parameters of a variable at two states."""
        structure, k = self.energy.structure, max(self.energy.order, 2)
        roots = self.energy.families.roots(states, k).numpy()
        parts: list[tuple[Floats, NDArray[Any], NDArray[Any]]] = []
        for key, where in structure.slices.items():
            positions = structure.positions(key).numpy()
            chosen = np.flatnonzero((positions == s).any(1))
            others = positions[chosen]
            product = np.where(others == s, 1.0, roots[:, others, key[0] - 1]).prod(-1)
            for i in range(2):
                line = np.full(len(chosen), i * k + key[0] - 1)
                parts.append((product[i], line, where.start + chosen))
        values, lines, places = (np.concatenate(part) for part in zip(*parts, strict=True))
        return sparse.csr_array((values, (lines, places)), shape=(2 * k, structure.num_terms))

    def _effects_of(self, column: _Column, change: _Change, level: float) -> list[dict[str, Any]]:
        """Effects of one change on a column; of a category on every level but the first."""
        family, designs = (
            self.energy.families[column.positions[0]],
            [self._design(change.states, s) for s in column.positions],
        )
        ends = family.roots(torch.tensor([0.0, 1.0], dtype=torch.float64), designs[0].shape[0] // 2).numpy()
        rise = ends[1] - ends[0]  # of the roots from 0 to 1
        by_root = sparse.csr_array(np.concatenate([-rise, rise])[None])  # after less before
        coefficients = self.coefficients, self.errors.unpenalised.numpy()
        records: list[dict[str, Any]] = []
        if column.is_category or family.largest_value == 1.0:
            # Log odds are linear in the coefficients.
            pairs = zip(designs[1:], column.levels[1:], strict=True) if column.is_category else [(designs[0], "")]
            for design, words in pairs:
                weights = by_root @ (design - designs[0] if column.is_category else design)
                levels = f"{words} vs {column.levels[0]}" if words else column.compared * bool(column.levels)
                estimate, (value, error) = float((weights @ coefficients[0])[0]), self.errors.of(weights)
                records.append(_record("odds ratio", levels, estimate, float(value[0]), float(error[0]), level))
        else:
            # Means are not: their slopes make a line of them.
            what, is_ratio = _kind(family)
            estimate, _ = _difference(family, designs[0], coefficients[0], is_ratio)
            value = error = math.nan
            if self.errors.covariance is not None:
                try:
                    value, slopes = _difference(family, designs[0], coefficients[1], is_ratio)
                    error = float(self.errors.of(slopes)[1][0])
                except InputError:  # no law without the penalty
                    pass
            records.append(_record(what, "", estimate, value if error == error else math.nan, error, level))
        where = {"response": column.name, "column": change.column, "before": change.before, "after": change.after}
        return [{**where, **record} for record in records]

    def _worded(self, state: torch.Tensor) -> dict[str, Any]:
        """The value of every column in words of the table."""
        return {column.name: column.word(state[list(column.positions)]) for column in self.columns}

    def _notes(
        self, state: torch.Tensor, response: str | None, frame: pd.DataFrame, level: float, is_given: bool
    ) -> list[str]:
        """What an effect is, which values the other columns have, and what the errors rest on."""
        fixed = [name for name in self._worded(state) if name != response]
        shown = [f"{shorten(name)}={_text(self._worded(state)[name])}" for name in fixed[:_SHOWN]]
        more = f", and {plural(len(fixed) - _SHOWN, 'other')}" if len(fixed) > _SHOWN else ""
        notes = ["each effect is that of one column's change from before to after on the response, given all others"]
        if shown:
            values = "" if is_given else "medians and most frequent values, "
            notes += textwrap.wrap(f"columns that do not change are held at {values}{', '.join(shown)}{more}", _WIDTH)
        kinds = set(frame["effect"])
        if kinds - {DIFFERENCE}:
            notes.append(_LOG_ERROR)
        if kinds & {"rate ratio", "ratio of means"}:
            notes.append("a rate ratio or a ratio of means compares conditional means, and depends on where it starts")
        if self.errors.covariance is None:
            return [*notes, f"no standard errors: {self.errors.reason}"]
        notes += with_level([f"{INTERVALS} by sandwich standard errors and the delta method"], level)
        notes += [SELECTED, *_lost("effect", frame["std_error"].to_numpy(dtype=float))]
        return [*notes, *([_UNPENALISED] if "unpenalised" in frame else [])]


def with_errors(file: RootFile, fit: RootFitResult) -> RootFile:
    """The file of a fit with its errors, typical values, and what varies otherwise than it says."""
    if fit.training is None:
        return file.with_errors(fit.errors, {})
    values = fit.training.typical(fit.families).tolist()
    typical = dict(zip(fit.domain.names, values, strict=True))
    return file.with_errors(fit.errors, {name: typical[name] for name in fit.structure.domain.names}, fit.dispersion)


def _lost(what: str, errors: Floats) -> list[str]:
    """Why some have no error, where any lacks it."""
    number_of = int(np.isnan(errors).sum())
    if not number_of:
        return []
    words = plural(number_of, f"{what} has no error", f"{what}s have no errors")
    return [f"{words}: not identified by the rows, or infinite without the penalty"]


def _is_bit(value: Any, column: _Column) -> bool:
    """Whether a value of a 0/1 column with words is one of 0 and 1, and no word."""
    return isinstance(value, numbers.Real) and str(value) not in column.levels and value in (0, 1)


def limits(estimate: Floats, centre: Floats, error: Floats, level: float) -> tuple[Floats, Floats]:
    """Ends of intervals around centres, which reach to the estimates of the model."""
    width = float(ndtri((1 + level) / 2)) * error
    low, high = np.minimum(centre - width, estimate), np.maximum(centre + width, estimate)
    return np.where(np.isnan(width), math.nan, low), np.where(np.isnan(width), math.nan, high)


def _is_shrunk(estimate: Floats, centre: Floats, error: Floats) -> bool:
    """Whether a penalty moves some estimate by a visible share of its error."""
    return bool((np.abs(estimate - centre) > _SHRUNK * error).any())


def _text(value: str | float) -> str:
    """A label, or a number as a table would have it."""
    if isinstance(value, str):
        return value
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def _record(what: str, levels: str, estimate: float, centre: float, error: float, level: float) -> dict[str, Any]:
    """One effect with its interval; of ratios on their own scale, from logarithms."""
    low, high = limits(np.array([estimate]), np.array([centre]), np.array([error]), level)
    values = {"estimate": estimate, "lower": float(low[0]), "upper": float(high[0]), "unpenalised": centre}
    if what != DIFFERENCE:
        values = {name: (math.inf if value >= 709 else math.exp(value)) for name, value in values.items()}
    is_shrunk = abs(estimate - centre) > _SHRUNK * error
    return {"levels": levels, "effect": what, "std_error": error, **values, "is_shrunk": is_shrunk}


def _kind(family: NodeFamily) -> tuple[str, bool]:
    """What an effect on the mean of a family is called, and whether it is a ratio."""
    if isinstance(family, UserFamily) or family.kind == "real":
        return DIFFERENCE, False
    return ("rate ratio" if family.name == "poisson" else "ratio of means"), True


def _difference(family: NodeFamily, design: Any, coefficients: Floats, is_ratio: bool) -> tuple[float, Any]:
    """Mean after less mean before, or of their logarithms, and its slopes in the coefficients (1, num_terms)."""
    eta = np.asarray(design @ coefficients).reshape(2, -1)
    mean, slopes = _means(family, eta)
    if is_ratio:
        mean, slopes = np.log(mean), slopes / mean[:, None]
    signs = np.array([[-1.0], [1.0]])
    return float(mean[1] - mean[0]), sparse.csr_array((signs * slopes).reshape(1, -1)) @ design


def _means(family: NodeFamily, eta: Floats) -> tuple[Floats, Floats]:
    """Means (n,) of the values of a node, and their slopes (n, k) in its natural parameters (n, k)."""
    if isinstance(family, UserFamily):
        shifts = _STEP * np.eye(eta.shape[1])
        moved = np.concatenate([eta, *(eta + sign * shift for shift in shifts for sign in (1.0, -1.0))])
        means = user_value_moments(family, np.ascontiguousarray(moved))[0].reshape(-1, len(eta))
        return means[0], ((means[1::2] - means[2::2]) / (2 * _STEP)).T
    moments = node_moments(family, torch.from_numpy(np.ascontiguousarray(eta)))
    assert moments.covariance is not None
    root = 1 if family.name == "gaussian" else 0
    return moments.mean[:, root].numpy(), moments.covariance[:, root].numpy()
