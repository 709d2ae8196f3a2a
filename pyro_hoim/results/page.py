"""The page on a result of any family: its size, its table, and its interactions as a picture."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from ..core.joined.border import joined_of
from ..core.operations import interactions, stored_model
from ..core.page import Cell, Page, Section
from ..core.words import plural
from .comparison import figures_of
from .pictures import draw_hypergraph, draw_interactions
from .table import cell_text

__all__ = ["result_page"]

_SHOWN = 15


def result_page(result: Any) -> Page:
    """What the result says of itself; a study of parts of the rows has a page of its own."""
    family, stored = stored_model(result)
    found, table, joined = figures_of(result), result.summary(), joined_of(stored)
    size = [plural(found.num_interactions, "interaction")]
    size += [] if found.num_parameters is None else [plural(found.num_parameters, "parameter")]
    sentences = [f"A {family.name} of {plural(found.num_variables, 'variable')} with {' and '.join(size)}."]
    if found.num_rows is not None and found.log_likelihood is not None:
        sentences.append(f"Its log-likelihood on its {found.rows_text} is {found.log_likelihood:.2f} nats.")
    if found.deviance is not None and found.df is not None:
        words = f"{found.deviance:.2f} on {plural(found.df, 'degree')} of freedom"
        sentences.append(f"Its deviance from the saturated model is {words}.")
    terms = Section("What the model consists of")
    lines = [[_cell(name, value) for name, value in row.items()] for row in table.to_dict("records")]
    head = [str(name).replace("_", " ") for name in table.columns]
    terms.table(head, lines, first=_SHOWN, further="All others", brief=_SHOWN)
    for note in table.attrs.get("notes", ()):
        terms.note(f"{note[0].upper()}{note[1:]}.")
    return Page(
        title=f"{family.name[0].upper()}{family.name[1:]} of {stored.info.get('data', 'data')}",
        rows={"train": found.num_rows or 0},
        has_weights=found.has_weights,
        names=stored.domain.names,
        summary=sentences,
        warnings=[],
        about=[] if joined is None else [joined.sentence()],
        sections=[terms, _pictures(result)],
        seed=int(stored.info.get("seed", 0)),
    )


def _cell(name: object, value: object) -> Cell:
    """A cell of the table of terms."""
    nothing = value is None or (isinstance(value, float) and math.isnan(value))
    kept = None if nothing else value if isinstance(value, (str, int, float)) else str(value)
    return Cell(cell_text(name, value), kept)


def _pictures(result: Any) -> Section:
    """The interactions by strength."""
    section = Section("Interactions")
    if len(interactions(result)):
        section.figure(draw_interactions(result, Figure(), _SHOWN).figure, "Largest interactions")
        section.figure(draw_hypergraph(result, Figure()).figure, "Interactions around a circle")
    else:
        section.text("The model has no interaction.")
    return section
