"""Models, evidence and results in the format of the inference competitions of UAI.

Variables and levels have numbers alone there: those of a model that is read are called ``x0``, ``x1``, ... and ``0``,
``1``, ..., and those of any model are numbered in the order of its domain. Weights are read as their logs in nats,
zeros as minus infinity; the log10 of Z of a result file becomes nats.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch

from ..budgets import MAX_COLUMNS, MAX_ENTRIES
from ..core.family import Stored
from ..data.files.uai import (
    MAX_UAI_BYTES,
    Task,
    read_numbered_evidence,
    read_solution,
    read_tables,
    write_numbered_evidence,
    write_solution,
)
from ..errors import check_choice, check_type
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.file import GivenTables
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["UaiResult", "read_uai", "read_uai_evidence", "read_uai_result", "write_uai_evidence", "write_uai_result"]

_LOG_10 = math.log(10.0)


def read_uai(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    max_bytes: int = MAX_UAI_BYTES,
    max_variables: int = MAX_COLUMNS,
    max_cells: int = MAX_ENTRIES,
) -> LogLinearEnergy:
    """The model of a file in the UAI format, MARKOV or BAYES.

    Tables are the logs of the weights (float64, nats), with minus infinity where a weight is zero, so that log Z of the
    tables is the log of the file's Z. Factors over the same variables are added. A constant is added to the first
    table, which is that of ``x0`` where there is no other. A variable that is in no factor has no table.

    Args:
        source: a file, or an open one.
        max_bytes: bytes that are read.
        max_variables: variables that the file may have.
        max_cells: entries of all tables together.

    Raises:
        InputError: no such file, or what is not in the format, with its line: the last variable of a scope changes
            fastest, weights are finite and not negative.
        IntractableError: a file above a limit.

    References:
        The pages on file formats of the UAI competitions of 2008 to 2022; lines that begin with ``c`` are comments, as
        that of 2016 says.

    Example:
        >>> import io
        >>> from pyro_hoim.log_linear import log_partition
        >>> text = b"MARKOV 2  2 3  2  1 0  2 0 1   2  1 3   6  1 0 0.5  2 1 1"
        >>> model = read_uai(io.BytesIO(text))
        >>> model.domain.names, model.hypergraph.edges
        (('x0', 'x1'), (('x0',), ('x0', 'x1')))
        >>> from pyro_hoim import Auto
        >>> round(Auto().log_partition(model).value.exp().item(), 6)  # 1 (1 + 0 + 0.5) + 3 (2 + 1 + 1)
        13.5
    """
    limits = {"max_bytes": max_bytes, "max_variables": max_variables, "max_cells": max_cells}
    file = read_tables(source, **limits)
    cards = file.cardinalities
    # Tables with their axes in the order of the variables, those over the same ones together.
    factors, constant = dict[tuple[int, ...], list[np.ndarray]](), 0.0
    for scope, table in zip(file.scopes, file.tables, strict=True):
        members = tuple(sorted(scope))
        if members != scope:
            axes = [scope.index(i) for i in members]
            table = table.reshape([cards[i] for i in scope]).transpose(axes).ravel()
        if members:
            factors.setdefault(members, []).append(table)
        else:
            constant += float(table[0])
    if not factors:
        factors[0,] = [np.zeros(cards[0])]
    # The collection has its edges by size, then by positions.
    edges = tuple(sorted(factors, key=lambda members: (len(members), members)))
    graph = InteractionHypergraph(Domain.from_cardinalities(cards))._part(edges)
    tables = [_sum(factors[members]) for members in edges]
    tables[0] = tables[0] + constant
    return LogLinearEnergy(graph, torch.from_numpy(np.concatenate(tables)), validate=False)


def _sum(tables: list[np.ndarray]) -> np.ndarray:
    """Sum in pairs: that of 2, 4, ... equal tables is exact."""
    while len(tables) > 1:
        pairs = [sum(tables[i + 1 : i + 2], start=tables[i]) for i in range(0, len(tables), 2)]
        tables = pairs
    return tables[0]


def stored_uai(path: str | os.PathLike[str]) -> Stored:
    """What commands ask about the model of a file."""
    return GivenTables(read_uai(path)).as_stored()


def read_uai_evidence(
    source: str | os.PathLike[str] | BinaryIO, domain: Domain, *, sample: int | None = None
) -> dict[str, int]:
    r"""Codes by name of an evidence file, as :meth:`LogLinearEnergy.condition` takes them.

    Both layouts are read: ``2  0 1  3 0`` (two variables are observed), and the same after a count of samples. Where
    a file can be read in both ways, lines decide: a count stands alone in its line, and every sample in its own.

    Args:
        source: a file, or an open one.
        domain: of the model, whose variables are numbered in this order.
        sample: which one of several samples, from 0.

    Raises:
        InputError: what is not in the format, with its line; a variable or level that the model lacks; a variable with
            two levels; several samples where none is chosen.

    Example:
        >>> import io
        >>> domain = Domain.from_cardinalities([2, 2, 2, 2])
        >>> read_uai_evidence(io.BytesIO(b"2  0 1  3 0"), domain)
        {'x0': 1, 'x3': 0}
        >>> read_uai_evidence(io.BytesIO(b"2 \n 1 0 1 \n 1 2 1"), domain, sample=1)
        {'x2': 1}
    """
    codes = read_numbered_evidence(source, domain.cardinalities, sample)
    return {domain.names[i]: code for i, code in codes.items()}


def write_uai_evidence(path: str | os.PathLike[str], domain: Domain, evidence: Mapping[str, int | str]) -> None:
    r"""Write labels or codes by name as an evidence file of one sample, without a count of samples.

    Raises:
        InputError: an unknown variable or level, or a file that cannot be written.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> domain = Domain.from_labels({"a": ("no", "yes"), "b": ("low", "high")})
        >>> with TemporaryDirectory() as folder:
        ...     write_uai_evidence(f"{folder}/e", domain, {"b": "high"})
        ...     Path(f"{folder}/e").read_text(), read_uai_evidence(f"{folder}/e", domain)
        ('1 1 1\n', {'b': 1})
    """
    codes = domain.encode_state(evidence)
    write_numbered_evidence(path, {domain.index(name): code for name, code in codes.items()})


@dataclass(frozen=True)
class UaiResult:
    """What a result file says; of the three answers the one that was asked for.

    Attributes:
        task: ``PR``, ``MAR``, or ``MAP``, which files also call MPE.
        log_partition: log Z in nats, of a PR.
        margins: probabilities of the levels of every variable, of a MAR.
        state: level of every variable, of a MAP.

    Example:
        >>> UaiResult("MAP", state=(0, 1, 0)).state
        (0, 1, 0)
    """

    task: Task
    log_partition: float | None = None
    margins: tuple[np.ndarray, ...] | None = None
    state: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_choice(self.task, tuple(_FIELDS), "task")
        check_type(self.solution, (float, tuple), _FIELDS[self.task], "what the task asks for")

    @property
    def solution(self) -> Any:
        """The answer, whichever it is."""
        return getattr(self, _FIELDS[self.task])


_FIELDS: Mapping[Task, str] = {"PR": "log_partition", "MAR": "margins", "MAP": "state"}


def read_uai_result(source: str | os.PathLike[str] | BinaryIO, domain: Domain | None = None) -> UaiResult:
    """The result of a file PR, MAR or MAP (MPE), the last one where a solver wrote several.

    Args:
        source: a file, or an open one.
        domain: of the model, which the result must fit.

    Raises:
        InputError: what is not in the format, or does not fit the domain, with its line.

    Example:
        >>> import io
        >>> round(read_uai_result(io.BytesIO(b"PR -0.2008")).log_partition, 4)  # nats: log10 times log 10
        -0.4624
    """
    task, solution = read_solution(source, None if domain is None else domain.cardinalities)
    if task == "PR":
        solution = float(solution) * _LOG_10 if isinstance(solution, float) else solution
    fields: dict[str, Any] = {_FIELDS[task]: solution}
    return UaiResult(task, **fields)


def write_uai_result(path: str | os.PathLike[str], result: UaiResult) -> None:
    r"""Write a result file, without a count of samples.

    Raises:
        InputError: a file that cannot be written.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_uai_result(f"{folder}/r", UaiResult("MAP", state=(0, 1)))
        ...     Path(f"{folder}/r").read_text()
        'MAP\n2 0 1\n'
    """
    check_type(result, UaiResult, "result")
    is_log = result.task == "PR"
    write_solution(path, result.task, result.solution / _LOG_10 if is_log else result.solution)
