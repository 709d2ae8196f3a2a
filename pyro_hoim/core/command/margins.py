"""Probabilities of the values of a few columns under a model of any family, given others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch

from ...data.observations import Observations
from ...errors import check_names, check_unique, conflict, out_of_reach
from ..family import Answer, Family, Question
from ..tables import beside_figures
from ..words import columns_of, fixed, plural

__all__ = ["margins"]

_MAX_CELLS = 2**16
_SHOWN = 50


def margins(family: Family, question: Question, names: Sequence[str], given: Mapping[str, Any]) -> Answer:
    r"""The table of :math:`q(x_A \mid x_B)`: exact where missing cells can be summed over, else from draws.

    Args:
        family: of the model.
        question: about it; ``draws`` and ``seed`` are used where draws are.
        names: the columns :math:`A`.
        given: codes, or numbers, of the columns :math:`B`.

    Raises:
        InputError: names that are unknown, repeated or among those given, or given values that are impossible.
        IntractableError: more than 65,536 cells, or columns of real numbers.
    """
    domain = question.stored.domain
    check_names(names, domain.names, "names")
    check_unique(names, "names")
    for name in names:
        if name in given:
            raise conflict("given", f"fixes {name!r}, whose distribution is asked for")
    cells, error = _exact(family, question, names, given), None
    if cells is None:
        cells, error = _drawn(family, question, names, given), question["draws"]
    rows: list[dict[str, Any]] = []
    shown: list[list[str]] = []
    for key, p in cells.items():
        spread = 0.0 if error is None else math.sqrt(p * (1 - p) / error)
        rows.append({"levels": list(key), "probability": p, "std_error": spread})
        shown.append([*key, fixed(p, 6), *([f"+- {spread:.1g}"] if error else [])])
    head = beside_figures(dict.fromkeys(names, ()), dict.fromkeys(["probability", *(["error"] if error else [])], ()))
    lines = columns_of(list(head), shown[:_SHOWN])
    if len(rows) > _SHOWN:
        lines.append(f"({plural(len(rows) - _SHOWN, 'more cell')})")
    kind = "exact" if error is None else "estimate"
    notes = [] if error is None else [f"the probabilities are shares of {error:,} draws, with their standard errors"]
    return Answer({"names": list(names), "cells": rows, "kind": kind, "draws": error}, lines, notes)


def _exact(
    family: Family, question: Question, names: Sequence[str], given: Mapping[str, Any]
) -> dict[tuple[str, ...], float] | None:
    """Probabilities from the likelihoods of rows whose other cells are missing; None where these are out of reach."""
    domain = question.stored.domain
    if family.data_type != "labels" or family.row_log_likelihood is None:
        return None
    variables = [domain[name] for name in names]
    if math.prod(v.cardinality for v in variables) > _MAX_CELLS:
        raise out_of_reach("names", f"a table of more than {_MAX_CELLS:,} cells", "ask for fewer columns")
    states = list(product(*(range(v.cardinality) for v in variables)))
    codes = torch.full((len(states), len(domain)), -1, dtype=torch.long)
    codes[:, list(domain.indices(names))] = torch.tensor(states).reshape(len(states), len(names))
    for name, code in given.items():
        codes[:, domain.index(name)] = code
    found = family.row_log_likelihood(question.stored, Observations.from_tensor(codes, domain))
    if found.kind != "likelihood" or not found.is_exact:
        return None
    labels = [tuple(v.labels[k] for v, k in zip(variables, state, strict=True)) for state in states]
    return dict(zip(labels, torch.softmax(found.values, 0).tolist(), strict=True))


def _drawn(
    family: Family, question: Question, names: Sequence[str], given: Mapping[str, Any]
) -> dict[tuple[str, ...], float]:
    """Shares of draws, the largest first."""
    unset = {known.name: known.unset for known in family.options.get("sample", ())}
    values = {**unset, "number": question["draws"], "seed": question["seed"], "given": given}
    frame = family.draw(replace(question, values=values)).frame
    assert frame is not None
    if any(frame[name].dtype.kind == "f" for name in names):
        raise out_of_reach("names", "columns of real numbers have no table of probabilities", "draw rows by sample")
    shares = frame.value_counts(subset=list(names)) / len(frame)
    keys: list[Any] = shares.index.tolist()
    return {tuple(map(str, key)): float(share) for key, share in zip(keys, shares, strict=True)}
