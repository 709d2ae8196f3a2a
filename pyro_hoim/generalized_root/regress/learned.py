"""A root model learned from a data frame: families by column, a penalty chosen on rows held out, confirmed sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...data.frames import FrameLike, is_frame
from ...errors import InputError, check_whole, wrong_type
from .choice import choose_l1
from .fit import check_penalties
from .mixed import read_table
from .options import ColumnChoice, ColumnReading, L1Rule, Penalty, RootSettings
from .result import RootFitResult

L1S = (0.2, 0.1, 0.05, 0.02)
"""Penalties that are compared by default."""


class RootLearnOptions(ColumnChoice, total=False):
    """Options of :func:`pyro_hoim.learn` for models with a family for every column."""

    order: int
    l1s: Sequence[Penalty]
    false_discovery_rate: float | None
    seed: int


def learn_roots(train: FrameLike, validation: FrameLike | None, options: RootLearnOptions) -> RootFitResult:
    """The refitted model of the penalty that predicts rows best, with its confirmed model and its ``columns``.

    Without validation rows five parts of the rows are left out in turn.
    """
    for name, rows in (("train", train), ("validation", validation)):
        if rows is not None and not is_frame(rows):
            raise wrong_type(name, "a data frame, whose columns say their families", rows)
    order, seed = options.get("order", 2), options.get("seed", 0)
    check_whole(order, "order")
    check_whole(seed, "seed", 0)
    # Every row as often as it was seen, for parts of the rows are left out.
    reading = ColumnReading(exclude=options.get("exclude", ()), centre=options.get("centre", True))
    try:
        table = read_table(train, options.get("families", {}), reading, None, None)
    except InputError as error:
        raise error.replace(argument="families" if error.argument == "family" else error.argument) from None
    assert table.columns is not None
    values = table.data if table.counts is None else np.repeat(table.data, table.counts.astype(np.int64), axis=0)
    settings = RootSettings(false_discovery_rate=options.get("false_discovery_rate", 0.1))
    l1s = options.get("l1s", L1S)
    check_penalties(l1s)
    choice = choose_l1(
        values,
        l1s,
        table.columns.families,
        L1Rule("ebic") if len(l1s) == 1 and validation is None else None,  # nothing to compare, nothing to leave out
        validation=None if validation is None else table.columns.encode(validation),
        generator=torch.Generator().manual_seed(seed),
        order=order,
        names=table.names,
        refit="all",
        settings=settings,
    )
    return choice.fit.with_columns(table.columns)
