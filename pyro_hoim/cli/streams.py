"""Rows that are read piece by piece and written piece by piece: completed, and with predictions beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..atomic import new_file
from ..core.command.options import LARGEST_SEED
from ..core.command.pieces import Pieces
from ..core.family import Answer, Family, Question
from ..core.words import plural
from ..data.files.safe_cells import safe_frame, warn_of_formulas
from ..data.observations import Observations
from ..data.readers import labels_of
from ..errors import conflict, out_of_range
from .asking import beside, show_csv
from .output import say
from .unseen import KnownRows, UnseenLabels

__all__ = ["complete_pieces", "predict_pieces", "repeated"]


def complete_pieces(family: Family, question: Question, path: Path, out: Path | None, safe: bool) -> None:
    """Complete the rows of a folder or file in their order, in blocks of 65,536 with a seed of their own each."""
    complete = family.complete
    if complete is None:
        raise conflict("--complete", f"a {family.name} completes no rows")
    missing = tuple(question.values.get("missing") or ())
    kept = question.stored.info.get("reading") or {}
    known = KnownRows.opened(question.stored.domain, path, Pieces.of(question.values), missing, (), kept)
    notes: dict[str, None] = {}
    unseen = 0.0

    def parts() -> Iterator[pd.DataFrame]:
        nonlocal unseen
        for number, rows in enumerate(known.blocks()):
            found, is_unseen = known.coded(rows)
            unseen += float(rows.counts[is_unseen].sum())
            if not found.total_count > 0:
                continue
            asked = {**question.values, "seed": _block_seed(question["seed"], number)}
            answer = complete(replace(question, values=asked, rows=repeated(found, question["number"])))
            notes.update(dict.fromkeys(answer.notes))
            yield pd.DataFrame() if answer.frame is None else answer.frame

    written = _write(parts(), out, safe)
    left_out = UnseenLabels(unseen, known.unseen_labels(), np.zeros(0, dtype=bool))
    for note in (*left_out.lines("they are not completed and not written"), *notes):
        say(f"pyro-hoim: note: {note}", err=True)
    if out is not None:
        say(f"{plural(written, 'row')} written to {out}")


def predict_pieces(family: Family, asked: Mapping[str, Question], known: KnownRows, out: Path, safe: bool) -> int:
    """The columns of the model as the rows have them, with predictions beside, block by block; how many were made."""
    predicted = 0

    def parts() -> Iterator[pd.DataFrame]:
        nonlocal predicted
        for rows in known.blocks():
            found, is_unseen = known.coded(rows)
            answers: dict[str, Answer] = {}
            for name, question in asked.items():
                answers[name] = family.predict(replace(question, rows=found)) if len(found.codes) else Answer({}, [])
            predicted += max(answer.json.get("predicted_rows", 0) for answer in answers.values())
            frame = labels_of(rows.domain, rows.codes.numpy()).astype(object).fillna("")
            if bool((rows.counts != 1).any()):
                is_whole = known.weight is None
                frame[known.weight or "count"] = rows.counts.long().numpy() if is_whole else rows.counts.numpy()
            yield beside(frame, answers, UnseenLabels(0.0, {}, is_unseen.numpy()), known.path, known.domain)

    _write(parts(), out, safe)
    return predicted


def repeated(rows: Observations, number: int = 1) -> Observations:
    """Rows to complete, each as often as its count says; refused where their copies would be too many cells."""
    from ..budgets import check_cells

    if not rows.has_whole_counts or not rows.total_count > 0:
        raise out_of_range("--complete", "whole counts, not all zero")
    hint = "give fewer rows, smaller counts or a smaller -n"
    check_cells(int(rows.total_count) * number, len(rows.domain), "--complete", hint, "rows")
    return Observations.from_tensor(torch.repeat_interleave(rows.codes, rows.counts.long(), dim=0), rows.domain)


def _block_seed(seed: int, number: int) -> int:
    """The seed of a block: the one given of the first, so that few rows are completed as those of one file are."""
    if not number:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] % LARGEST_SEED)


def _write(parts: Iterator[pd.DataFrame], out: Path | None, safe: bool) -> int:
    """Data frames of the same columns as one CSV; the number of rows."""
    if safe:
        raise conflict("--safe-csv", "belongs to a file that is read whole")
    written, formulas = 0, list[str]()
    with nullcontext() if out is None else new_file(out) as file:
        for frame in parts:
            _, frame, found = safe_frame(frame, safe)
            formulas = formulas or found
            options: Any = {"index": False, "header": not written, "lineterminator": "\n"}
            written += len(frame)
            if file is None:
                show_csv(frame.to_csv(**options))
            else:
                frame.to_csv(file, **options)
    warn_of_formulas(formulas, "--safe-csv")
    return written
