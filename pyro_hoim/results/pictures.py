"""Pictures of a result of any family, from what the registry says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from typing_extensions import override

from ..core import operations
from ..core.family import Stored, family_of_model
from ..core.operations import stored_model
from ..core.page import Block, Cell, Page, Section
from ..core.scores import Figures
from ..core.studies import Content, Part, Study
from ..core.words import at_least, coefficient, digits, listed, plural
from ..data.columns import RowOptions
from ..data.observations import Observations
from ..errors import InputError, IntractableError, MissingDataError, none_received, out_of_reach
from ..plots.drawing import Target
from ..plots.fitted import plot_fitted
from ..plots.hypergraph import plot_hypergraph
from ..plots.intervals import plot_forest, plot_interactions
from ..plots.mosaic import plot_mosaic
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .answer import CAUTION, NONE, OddsAnswer, clearest_effects, interaction_tests, odds_answer, stored_tests
from .comparison import figures_of
from .contrasts import STORED_LEVEL
from .table import cell_text

_MOST_CELLS = 2**17
_SPARSE, _ROWS_TOGETHER, _GROUPS = 1.0, 5.0, 40  # expected in a cell, and in a group of cells; groups


def draw_interactions(result: Any, ax: Target, top: int | None) -> Axes:
    """Coefficients of two and more columns with their intervals; strengths where the family has no coefficients."""
    table = pd.DataFrame(result.summary())
    if "estimate" not in table:
        ties = _ties(result)[:top]
        values = np.array([value for _, value in ties])
        none, names = np.full(len(ties), np.nan), [":".join(edge) for edge, _ in ties]
        return plot_forest(names, values, none, none, ax=ax, reference=None, label="strength")
    joint = table["term"].str.contains(":")
    table = table[joint] if bool(joint.any()) else table
    missing = {name: np.nan for name in ("lower", "upper") if name not in table}
    return plot_interactions(table.assign(**missing), ax=ax, top=top, label="estimate")


def _ties(result: Any) -> list[tuple[tuple[str, ...], float]]:
    """Interactions of two and more columns with their strengths, both directions of a network as one."""
    weights, _ = operations.strengths(result)
    return sorted(((e, v) for e, v in weights.items() if len(e) > 1 and v), key=lambda item: -abs(item[1]))


def draw_hypergraph(result: Any, ax: Target, **options: Any) -> Axes:
    """The interactions on a circle, as wide as they are strong."""
    _, stored = operations.stored_model(result)
    weights, signs = operations.strengths(result)
    options.setdefault("signs", signs)
    plain = Domain.from_cardinalities(dict.fromkeys(stored.variables.names, 2))  # of numbers, too
    graph = InteractionHypergraph(plain, list(weights), hierarchical=False)
    return plot_hypergraph(graph, weights, ax=ax, **options)


def draw_fitted(result: Any, ax: Target, data: Any, options: RowOptions) -> Axes:
    """Observed counts of all cells against those that the model expects; of sparse tables, of cells of like chance."""
    rows = _rows(result, data, "plot_fitted", options).drop_missing()
    remedy = "look at predict(data, target), column by column"
    if rows.domain.num_states > _MOST_CELLS:
        problem = f"a table of more than {_MOST_CELLS:,} cells has too few rows in each"
        raise out_of_reach("plot_fitted", problem, remedy)
    grid = torch.cartesian_prod(*(torch.arange(n) for n in rows.domain.cardinalities))
    cells = grid.reshape(-1, len(rows.domain))
    observed = rows.table().flatten()
    scores, _ = operations.scored_rows(result, rows.replaced(codes=cells, counts=observed))
    if scores.kind != "likelihood":
        raise out_of_reach("plot_fitted", "the probabilities of cells are out of reach, for log Z is", remedy)
    expected = (rows.total_count * scores.values.double().exp()).numpy()
    # Single cells of a sparse table hold 0 or 1 row, which would be stripes.
    if float(np.median(expected)) >= _SPARSE:
        return plot_fitted(observed.numpy(), expected, ax=ax)
    is_possible = expected > 0
    chance, sums = np.log(expected[is_possible]), list[tuple[float, float]]()
    groups = np.digitize(chance, np.linspace(chance.min(), chance.max(), _GROUPS)[1:-1])
    together = [0.0, float(observed.numpy()[~is_possible].sum())]
    for m, n in zip(*(np.bincount(groups, of[is_possible]) for of in (expected, observed.numpy())), strict=True):
        together = [together[0] + m, together[1] + n]
        if together[0] >= _ROWS_TOGETHER:
            sums.append((together[0], together[1]))
            together = [0.0, 0.0]
    sums += [(together[0], together[1])] if any(together) else []
    axes = plot_fitted([n for _, n in sums], [m for m, _ in sums], ax=ax)
    axes.set_xlabel("expected count, cells of like probability together")
    return axes


def draw_mosaic(result: Any, names: tuple[str, ...], ax: Target, data: Any, options: RowOptions) -> Axes:
    """The observed table of some columns, shaded by how far it is from their independence."""
    return plot_mosaic(_rows(result, data, "plot_mosaic", options), names or None, ax=ax)


def _rows(result: Any, data: Any, method: str, options: RowOptions) -> Observations:
    """Rows of labels as given, or those that the result keeps."""
    family = family_of_model(result)
    if family.data_type != "labels":
        problem = f"the columns of a {family.name} are numbers, which make no table of cells"
        raise out_of_reach(method, problem, "cut them into levels, or plot predict(data, target)", code="no-method")
    kept = getattr(result, "data", None) if data is None else data
    if kept is None:
        raise none_received("data", "rows, for the model does not keep those it was fitted to", "give data=")
    read = operations.read_rows(result, kept, **options)
    assert isinstance(read, Observations)
    return read


# The page on a result of any family: its size, its table, and its interactions as a picture.

_SHOWN = 8
_NAMED, _WIDTH = 3, 80  # interactions in a sentence, and characters of one
_TITLE = 2  # columns that name a table without a name
_DIRECTIONS = (("go together", 1), ("avoid each other", -1))


@dataclass(frozen=True, eq=False, kw_only=True)
class ResultStudy(Study[Part]):
    """What a result says of itself, on the page of every study; its rows are not divided into parts."""

    heading: ClassVar[str] = "Model of"
    result: Any
    stored: Stored
    size: Figures

    @classmethod
    def of(cls, result: Any) -> ResultStudy:
        """The study of a result of any family."""
        _, stored = stored_model(result)
        joined, figures = stored.joined, figures_of(result)
        return cls(
            result=result,
            stored=stored,
            size=figures,
            title=stored.info.get("data")
            or listed((stored.variables if stored.joined is None else stored.domain).names, _TITLE),
            about=[] if joined is None else [joined.sentence()],
            parts={"train": None},
            seed=int(stored.info.get("seed", 0)),
            has_weights=figures.has_weights,
        )

    @property
    @override
    def shows_scores(self) -> bool:
        return False

    @property
    @override
    def domain(self) -> Domain:
        return self.stored.variables if self.stored.joined is None else self.stored.domain

    @override
    def records(self) -> dict[str, Any]:
        return {"model": self.stored.model}

    @override
    def figures(self, folder: Path) -> dict[str, Any]:
        return asdict(self.size)

    @override
    def page(self) -> Page:
        name = family_of_model(self.result).name
        title = f"{name[0].upper()}{name[1:]} of {self.title}"
        return replace(super().page(), title=title, rows={"train": self.size.num_rows or 0})

    @override
    def content(self) -> Content:
        """Size, terms and interactions."""
        table = self.result.summary()
        answer = self._answer()
        # The table of the result, as it prints it.
        terms = Section("What the model consists of", is_folded=answer is not None)
        lines = [[_cell(column, value) for column, value in row.items()] for row in table.to_dict("records")]
        head = [str(column).replace("_", " ") for column in table.columns]
        terms.text(" ".join(self._size()), brief=True)
        terms.table(head, lines, first=_SHOWN, further="All others", brief=_SHOWN)
        for note in table.attrs.get("notes", ()):
            terms.note(f"{note[0].upper()}{note[1:]}.")
        # The interactions by strength
        section, ties = None, _ties(self.result)
        if ties:
            section = Section("All interactions at a glance")
            section.figure(draw_hypergraph(self.result, Figure()).figure, "Interactions around a circle")
        declared = [f"Declared impossible: {self.size.zeros}."] if self.size.zeros else []
        if answer is not None:
            limits = [*declared, *family_of_model(self.result).caveats(self.result), *answer.limits]
            return Content(answer.sentences, limits, [answer.section, section, terms], answer.picture)
        if not ties:
            return Content(["The model has no interaction."], [*declared, NONE], [terms])
        drawing, narrow = (draw_interactions(self.result, Figure(), most).figure for most in (_SHOWN, _SHOWN // 2))
        picture = Block("figure", "Largest interactions", drawing=drawing, narrow=narrow)
        caveats = [*declared, "The strengths have no intervals.", CAUTION]
        return Content(self._strongest(ties), caveats, [terms, section], picture)

    def _strongest(self, ties: Sequence[tuple[tuple[str, ...], float]]) -> list[str]:
        """Which columns go together, of a family without odds ratios."""
        names, pairs = list(self.domain.names), sum(len(edge) == 2 for edge, _ in ties)
        counts = [plural(pairs, "pair")] * (pairs > 0) + [plural(len(ties) - pairs, "larger set")] * (len(ties) > pairs)
        where = "this model" if self.size.num_rows is None else self.size.rows_text
        verb = "is" if len(ties) == 1 else "are"
        sentences = [f"In {where}, {' and '.join(counts)} of the {plural(len(names), 'column')} {verb} associated."]
        # The sign of an estimate says in which direction, where there is one.
        table, values = pd.DataFrame(self.result.summary()), dict(ties)
        groups = [("The strongest are", 0)]
        if "estimate" in table:
            signed = dict.fromkeys(table["term"].astype(str), 0.0)
            for term, estimate in zip(table["term"].astype(str), table["estimate"].astype(float), strict=True):
                signed[term] += estimate
            values = {edge: signed.get(":".join(edge), 0.0) for edge in values}
            whose = "whose second levels " if family_of_model(self.result).data_type == "labels" else "that "
            groups = [(f"Those {whose}{how} most are", sign) for how, sign in _DIRECTIONS]
        for words, sign in groups:
            shown = [
                f"{' with '.join(edge)} ({coefficient(value).replace('-', '−') if sign else digits(value)})"
                for edge, value in values.items()
                if value * sign > 0 or not sign
            ]
            sentences += [f"{words} {listed(shown[:_NAMED], _NAMED, _WIDTH)}."] if shown else []
        alone = [name for name in names if not any(name in edge for edge in values)]
        return sentences + ([f"No interaction includes {listed(alone, _NAMED)}."] if alone else [])

    def _size(self) -> list[str]:
        """How large the model is, and how well it fits."""
        figures, name = self.size, family_of_model(self.result).name
        size = [plural(figures.num_interactions, "interaction")]
        size += [] if figures.num_parameters is None else [plural(figures.num_parameters, "parameter")]
        sentences = [f"A {name} of {plural(figures.num_variables, 'column')} with {' and '.join(size)}."]
        if figures.num_rows is not None and figures.log_likelihood is not None:
            sentences.append(f"Its log-likelihood on its {figures.rows_text} is {figures.log_likelihood:.2f} nats.")
        elif figures.num_rows is not None and figures.log_likelihood_bound is not None:
            least = at_least(figures.log_likelihood_bound)
            sentences.append(f"Its log-likelihood on its {figures.rows_text} is at least {least} nats (a lower bound).")
        if figures.deviance is not None and figures.df is not None:
            words = f"{figures.deviance:.2f} on {plural(figures.df, 'degree')} of freedom"
            sentences.append(f"Its deviance from the saturated model is {words}.")
        return sentences

    def _answer(self) -> OddsAnswer | None:
        """What its odds ratios say, of a family that has them."""
        family = family_of_model(self.result)
        if not family.has("odds_ratios") or not len(self.domain):
            return None
        rows = self.size.rows_text if self.size.num_rows is not None else "the rows of the fit"
        try:
            table = self.result.odds_ratios()
        except IntractableError:  # a model that no rows made, of a family that has them of its rows
            return None
        has_tests = family.has("term_tests") and "p_value" in table
        try:
            tests = interaction_tests(self.result, self.result.test_terms(method="wald")) if has_tests else None
        except (IntractableError, MissingDataError):  # a model of a file, or of rows with missing cells
            tests = stored_tests(self.stored.info)
        # Of numbers odds ratios are hard to picture: effects compare means.
        effects = list[str]()
        if family.data_type == "numbers" and family.has("effects"):
            with suppress(InputError):  # no typical values, or no law at them
                effects = clearest_effects(self.result.effects(), STORED_LEVEL)
        confirmed_at = self.stored.info.get("false_discovery_rate")
        return odds_answer(table, rows, tests=tests, confirmed_at=confirmed_at, effects=effects)


def _cell(name: object, value: object) -> Cell:
    """A cell of the table of terms."""
    nothing = value is None or (isinstance(value, float) and math.isnan(value))
    kept = None if nothing else value if isinstance(value, (str, int, float)) else str(value)
    return Cell(cell_text(name, value), kept)
