"""What a fit has found, in every family: scores of the parts of the rows, the keys of ``fit.json``, and one page."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, TypeVar

import pandas as pd

from ..errors import unexpected
from ..schema import Domain
from .page import Block, Page, Section, cell
from .scores import Scores, rows_are_distinct
from .words import PSEUDO, amount_column, distinct_sentence, gain_sentence, num_states_text, whole

PARTS = ("train", "validation", "test")
"""The parts of a table that a study divides into."""

INDEPENDENT = "independent columns"
"""Name of the simplest law that a model is set beside."""

_EXPLAINED = {
    "NLL": "NLL: mean of minus the log-probability of a row.",
    "pseudo-NLL": "Pseudo-NLL: sum over the columns of minus the log-probability of a cell given the rest of its row; "
    "of independent columns it is the NLL.",
    "KL": "KL: Kullback-Leibler divergence from the observed frequencies of the part.",
}


def check_part_names(parts: Iterable[str]) -> None:
    """Raise :class:`InputError` for a part of another name."""
    unknown = [name for name in parts if name not in PARTS]
    if unknown:
        raise unexpected("parts", ", ".join(PARTS), unknown[0], code="unknown-choice")


@dataclass(frozen=True, eq=False)
class Part:
    """Scores of one part of the rows, beside those of simpler laws.

    Attributes:
        scores: of the model; infinite where a row is impossible.
        baselines: of simpler laws by name, independent columns first; empty where ``scores`` hold the gain, or there
            is none.
        accuracy: target, accuracy, majority_accuracy, majority_p_value and rows of predicting a target; None without.
        measure: the score that the gain is a difference of.
    """

    scores: Scores
    baselines: Mapping[str, Scores] = field(default_factory=dict[str, Scores])
    accuracy: dict[str, Any] | None = None
    measure: Literal["nll", "pseudo_nll"] = "nll"

    @property
    def independent(self) -> Scores:
        """Scores of independent columns."""
        return next(iter(self.baselines.values()))

    @property
    def has_gain(self) -> bool:
        """Whether the model was set beside independent columns."""
        return bool(self.baselines) or self.scores.gain is not None

    @property
    def gain(self) -> float | None:
        """By how much the measure is lower than that of independent columns, in nats; None where both are infinite."""
        return self.gain_of(self.scores) if self.baselines else self.scores.gain

    @property
    def gain_std_error(self) -> float | None:
        """Its standard error over rows, of paired differences; None where it is infinite and for one row."""
        return self.scores.gain_std_error

    def gain_of(self, scores: Scores) -> float | None:
        """The same of other scores of these rows."""
        gain = getattr(self.independent, self.measure) - getattr(scores, self.measure)
        return None if math.isnan(gain) else gain

    @property
    def independent_kl(self) -> float | None:
        """KL of independent columns."""
        return self.independent.kl if self.baselines else self.scores.reference_kl

    @property
    def independent_pseudo_nll(self) -> float | None:
        """Pseudo-NLL of independent columns."""
        return self.independent.pseudo_nll if self.baselines else None

    @property
    def is_distinct(self) -> bool:
        """Whether all rows are distinct, so that KL says nothing about fit."""
        scores = next(iter(self.baselines.values()), self.scores)
        return rows_are_distinct(scores.rows, scores.nll, scores.kl)


P = TypeVar("P", bound=Part)


@dataclass(frozen=True)
class Content:
    """What a family says of a study on its page.

    Attributes:
        sentences: that answer the reader's question, at most five.
        warnings: what limits the answer.
        sections: in reading order, before the scores; None for one that has nothing to say.
        picture: of the answer, a block of a figure.
    """

    sentences: Sequence[str]
    warnings: Sequence[str]
    sections: Sequence[Section | None]
    picture: Block | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Study(ABC, Generic[P]):
    """What a fit has found: a model, and how well it describes every part of the rows.

    A family says what its columns are, what it adds to the figures and to the page, and how the model is saved. The
    scores, their table, and what surrounds them are written here, once.

    Attributes:
        heading: title of the page, before that of the data.
        noun: what the model is called on the page.
        score_columns: further columns of the table of scores, with the attribute of scores that they show.
        title: of the data.
        about: sentences on the data.
        parts: ``train``, ``validation`` and ``test``; None for an empty one.
        seed: of everything random.
        seconds: time by stage.
        has_weights: whether the numbers of rows are sums of weights.
        is_open: whether a time limit ended the work, so that its checkpoint stays and can be continued.
    """

    heading: ClassVar[str]
    noun: ClassVar[str] = "model"
    score_columns: ClassVar[Mapping[str, str]] = MappingProxyType({})

    title: str
    about: Sequence[str]
    parts: Mapping[str, P | None]
    seed: int
    seconds: Mapping[str, float] = field(default_factory=dict[str, float], repr=False)
    has_weights: bool = False
    is_open: bool = False

    def odds_ratios(self, level: float = 0.95) -> pd.DataFrame | None:  # noqa: ARG002
        """What ``odds_ratios`` of the model says, with intervals of this coverage; None where its family has none."""
        return None

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.records()["model"].domain

    @abstractmethod
    def content(self) -> Content:
        """What the page says beside the scores."""

    @abstractmethod
    def figures(self, folder: Path) -> Mapping[str, Any]:
        """Keys of ``fit.json`` beside those of every family; ``folder`` is where further files are left."""

    @abstractmethod
    def records(self) -> Mapping[str, Any]:
        """Records of model files by their names without the ending; that of the fit is ``model``."""

    def save(self, folder: Path) -> dict[str, str]:
        """Leave the model files in a folder that exists, and further files; returned are those beside the model."""
        for name, record in self.records().items():
            record.save(folder / f"{name}.safetensors")
        return dict(self.save_further(folder))

    def save_further(self, folder: Path) -> Mapping[str, str]:  # noqa: ARG002
        """Leave what is no model file; names of all files beside the model, by what they hold."""
        return {}

    def law_name(self, name: str) -> str:
        """What a simpler law is called on the page."""
        return name

    def explain_scores(self, section: Section) -> None:
        """Add to the section of scores what is to be said or drawn of them besides."""

    @property
    def held(self) -> dict[str, P]:
        """The parts that hold rows, in their order."""
        return {name: part for name, part in self.parts.items() if part is not None}

    @property
    def judged_on(self) -> str:
        """The last part that holds rows: the one to judge the model by."""
        return list(self.held)[-1]

    @property
    def shows_scores(self) -> bool:
        """Whether the page has the table of scores."""
        return True

    @property
    def shows_kl(self) -> bool:
        """Whether KL says anything: some part has rows that are alike."""
        return not all(part.is_distinct for part in self.held.values())

    def to_json(self, folder: Path) -> dict[str, Any]:
        """The keys of ``fit.json``; figures of a part are None where it is empty, and rows 0."""
        every = self.parts.items()

        def of_scores(name: str) -> dict[str, Any]:
            return {part: None if scored is None else getattr(scored.scores, name) for part, scored in every}

        def of_part(name: str) -> dict[str, Any]:
            return {part: None if scored is None else getattr(scored, name) for part, scored in every}

        rows = {part: 0 if scored is None else whole(scored.scores.rows) for part, scored in every}
        lost = {part: 0 if scored is None else whole(scored.scores.impossible_rows) for part, scored in every}
        keys: dict[str, Any] = {
            "num_variables": len(self.domain),
            "num_states": num_states_text(self.domain.num_states) if all(v.is_finite for v in self.domain) else None,
            "rows": rows,
            "impossible_rows": lost,
            **{name: of_scores(name) for name in ("kl", "nll", "pseudo_nll", "gain_std_error")},
            **{name: of_part(name) for name in ("gain", "independent_kl", "independent_pseudo_nll")},
        }
        accuracy = of_part("accuracy")
        if any(accuracy.values()):
            keys["accuracy"] = {part: of and {**of, "rows": whole(of["rows"])} for part, of in accuracy.items()}
        keys |= self.figures(folder)
        return keys | ({"stage_seconds": dict(self.seconds)} if self.seconds else {})

    def page(self) -> Page:
        """What a reader is told."""
        content = self.content()
        sections = [*content.sections, self._scores() if self.shows_scores else None]
        return Page(
            title=f"{self.heading} {self.title.replace('_', ' ')}",
            rows={name: 0.0 if part is None else float(part.scores.rows) for name, part in self.parts.items()},
            names=self.domain.names,
            summary=content.sentences,
            warnings=content.warnings,
            about=self.about,
            sections=[section for section in sections if section is not None],
            seed=self.seed,
            has_weights=self.has_weights,
            picture=content.picture,
        )

    def _scores(self) -> Section:
        """A line for every part and law; columns without a figure are left out."""
        section = Section("How well it predicts rows")
        judged = self.held[self.judged_on]
        if judged.has_gain:
            what = [PSEUDO] if judged.measure == "pseudo_nll" else []
            gain = gain_sentence(self.judged_on, self.noun, judged.gain, judged.gain_std_error, *what)
            section.text(gain, brief=True)
        columns = ["part", "model", amount_column(self.has_weights), "gain", "NLL", "pseudo-NLL", "KL"]
        columns += self.score_columns
        table: list[list[Any]] = []
        # The part to judge by is shown, before those that a reader may open.
        for name, part in reversed(self.held.items()):
            for law, scores in {**part.baselines, "": part.scores}.items():  # the model has no name of a law
                gain = cell(part.gain_of(scores)) if law else cell(part.gain, error=part.gain_std_error)
                figures = [scores.nll, scores.pseudo_nll, scores.kl if self.shows_kl else None]
                figures += [getattr(scores, attribute, None) for attribute in self.score_columns.values()]
                called = self.law_name(law) if law else self.noun
                table.append([name, called, scores.rows, gain, *map(cell, figures)])
        present = [i for i in range(len(columns)) if i < 3 or any(row[i].value is not None for row in table)]
        shown = sum(row[0] == self.judged_on for row in table)
        section.table(
            [columns[i] for i in present],
            [[row[i] for i in present] for row in table],
            first=shown,
            further="Other parts of the rows",
            brief=len(table),
        )
        # The words below the table explain the columns that it has.
        measure = {"nll": "NLL", "pseudo_nll": "pseudo-NLL"}[self.held[self.judged_on].measure]
        gain = f" Gain: by how much the {measure} is lower than that of independent columns, ± its standard error."
        gain = gain if "gain" in [columns[i] for i in present] else ""
        explained = [text for name, text in _EXPLAINED.items() if name in [columns[i] for i in present]]
        section.note(" ".join([f"In nats a row.{gain}", *explained]))
        self.explain_scores(section)
        distinct = [name for name, part in self.held.items() if part.is_distinct]
        if distinct and self.shows_kl:
            section.note(distinct_sentence(distinct), brief=True)
        elif distinct:
            alike = "All rows are distinct: KL, which then is NLL - log(rows) and says nothing about fit, is left out."
            section.note(alike, brief=True)
        section.accuracy_table({name: part.accuracy for name, part in self.held.items()}, self.has_weights)
        return section
