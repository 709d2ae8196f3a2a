"""Models, evidence and results in the format of the inference competitions of UAI.

Variables and levels have numbers alone there: those of a model that is read are called ``x0``, ``x1``, ... and ``0``,
``1``, ..., and those of any model are numbered in the order of its domain. Weights are read as their logs in nats,
zeros as minus infinity; the log10 of Z of a result file becomes nats.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from ..atomic import write_file
from ..budgets import MAX_COLUMNS, MAX_ENTRIES
from ..core.family import Stored
from ..data.files.uai import MAX_UAI_BYTES, Source, UaiNumbers, UaiTables, UaiWords, read_tables
from ..errors import check_choice, check_type, check_whole, out_of_range, refused
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.file import GivenTables
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph

Task = Literal["PR", "MAR", "MAP"]
_LOG_10 = math.log(10.0)
_ROUNDING = 1e-3  # of the sum of published probabilities


def read_uai(
    source: Source, *, max_bytes: int = MAX_UAI_BYTES, max_variables: int = MAX_COLUMNS, max_cells: int = MAX_ENTRIES
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
        The pages on file formats of the UAI competitions of 2008 to 2022; lines whose first word is ``c`` are comments,
        as that of 2016 says.

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
    for name, limit in limits.items():
        check_whole(limit, name)
    file = read_tables(source, **limits)
    edges, tables = _joined(file)
    constant = float(file.logs[(np.cumsum(file.sizes) - file.sizes)[file.lengths == 0]].sum())
    if not edges:
        edges, tables = [(0,)], np.zeros(file.cardinalities[0])
    tables[: math.prod(file.cardinalities[list(edges[0])].tolist())] += constant
    domain = Domain.from_cardinalities(file.cardinalities.tolist())
    graph = InteractionHypergraph(domain)._part(tuple(edges))
    return LogLinearEnergy(graph, torch.from_numpy(tables), validate=False)


def _joined(file: UaiTables) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Sets of variables by size, then by number, and their tables one after the other; equal sets are added up."""
    cards, sizes, starts = file.cardinalities, file.sizes, np.cumsum(file.sizes) - file.sizes
    firsts, logs = np.cumsum(file.lengths) - file.lengths, file.logs.copy()
    edges, tables = list[tuple[int, ...]](), list[np.ndarray]()
    for length in np.unique(file.lengths[file.lengths > 0]).tolist():
        of_length = np.flatnonzero(file.lengths == length)
        scopes = file.variables[firsts[of_length, None] + np.arange(length)]
        order = np.argsort(scopes, axis=1)
        # Tables with their axes in the order of the variables, those of one shape and order at once.
        kinds, _, kind_of = _distinct(np.hstack([cards[scopes], order]))
        by_kind = np.split(np.argsort(kind_of, kind="stable"), np.cumsum(np.bincount(kind_of)))
        for kind, of_kind in zip(kinds.tolist(), by_kind, strict=False):
            shape, axes = kind[:length], kind[length:]
            if axes != sorted(axes):
                cells, rows = np.arange(math.prod(shape)), starts[of_length[of_kind], None]
                logs[rows + cells] = file.logs[rows + cells.reshape(shape).transpose(axes).ravel()]
        members = np.take_along_axis(scopes, order, 1)
        unique, first, edge_of = _distinct(members)
        edges += map(tuple, unique.tolist())
        # The first factor of each set, and sums where a set has several.
        chosen = of_length[first]
        ends = np.cumsum(sizes[chosen])
        block = logs[np.repeat(starts[chosen] - (ends - sizes[chosen]), sizes[chosen]) + np.arange(sizes[chosen].sum())]
        is_several, groups = np.bincount(edge_of)[edge_of] > 1, dict[int, list[int]]()
        for edge, factor in zip(edge_of[is_several].tolist(), of_length[is_several].tolist(), strict=True):
            groups.setdefault(edge, []).append(factor)
        for edge, several in groups.items():
            block[ends[edge] - sizes[several[0]] : ends[edge]] = _sum([logs[starts[j] :][: sizes[j]] for j in several])
        tables.append(block)
    return edges, np.concatenate([np.empty(0), *tables])


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of whole numbers in lexical order, where each stands first, and which one every row is."""
    base, width = int(rows.max(initial=0)) + 1, rows.shape[1]
    keys = rows
    if base**width < 2**62:  # as digits of one number, which are sorted sooner
        keys = rows @ np.array([base**power for power in reversed(range(width))])
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return rows[first], first, inverse.ravel()


def _sum(tables: list[np.ndarray]) -> np.ndarray:
    """Sum in pairs: that of 2, 4, ... equal tables is exact."""
    while len(tables) > 1:
        tables = [sum(tables[i + 1 : i + 2], start=tables[i]) for i in range(0, len(tables), 2)]
    return tables[0]


def stored_uai(path: str | os.PathLike[str]) -> Stored:
    """What commands ask about the model of a file."""
    return GivenTables(read_uai(path)).as_stored()


# Evidence and results, which say values of variables by their numbers.


def read_uai_evidence(source: Source, domain: Domain, *, sample: int | None = None) -> dict[str, int]:
    r"""Codes by name of an evidence file, as :meth:`LogLinearEnergy.condition` takes them.

    Both layouts are read: ``2  0 1  3 0`` (two variables are observed), and the same after a count of samples. Where
    a file can be read in both ways, lines decide: a count stands alone in its line, and every sample in its own. A file
    whose end may be missing in one of these ways is refused.

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
    check_type(domain, Domain, "domain")
    words = UaiWords(source, "evidence in the UAI format")
    reader = UaiNumbers(words, 0)
    samples = _samples(words, reader)
    if sample is None and len(samples) > 1:
        hint = f"keep one in the file, or read_uai_evidence in Python takes sample=, from 0 to {len(samples) - 1}"
        raise refused(words.origin, f"holds {len(samples)} samples of evidence", hint, code="conflict")
    chosen = 0 if sample is None else check_whole(sample, "sample", 0, max(len(samples), 1) - 1)
    begin, number = samples[chosen] if samples else (0, 0)
    # Pairs of a variable and its level.
    reader.at, evidence, names, cards = begin, dict[str, int](), domain.names, domain.cardinalities
    for _ in range(number):
        variable = reader.whole("the number of a variable", 0, len(names) - 1)
        level = reader.whole(f"a level of variable {variable}", 0, cards[variable] - 1)
        before = evidence.setdefault(names[variable], level)
        if before != level:
            reader.refuse(reader.at - 1, f"one level of variable {variable}, which is {before} before")
    return evidence


def _samples(words: UaiWords, reader: UaiNumbers) -> list[tuple[int, int]]:
    """Where the pairs of every sample begin, and how many there are."""
    total, count = len(reader.values), reader.whole("the number of observed variables, or of samples", 0)
    if total == 1 and count == 0:
        return []
    lines = _sample_lines(words, count)
    if total == 1 + 2 * count and lines != "whole":
        if lines == "cut":
            reader.refuse(total, "whole samples in their lines, or the only sample in one line with its number")
        return [(1, count)]
    if total < 1 + 2 * count and lines == "none":
        reader.refuse(total, f"{2 * count} numbers of variables and levels, or samples in lines of their own")
    # A count of samples before them.
    samples = list[tuple[int, int]]()
    for _ in range(count):
        number = reader.whole("the number of observed variables", 0)
        samples.append((reader.at, number))
        reader.at += 2 * number
        if reader.at > total:
            reader.refuse(total, f"{count} or more numbers of variables and levels")
    reader.finish(f"{count} samples")
    return samples


def _sample_lines(words: UaiWords, count: int) -> Literal["whole", "cut", "none"]:
    """Whether the first line is the count alone and every other line one sample, the last of them perhaps cut off."""
    head, *lines = [line.split() for line in words.raw.splitlines() if line.strip()]
    if len(head) != 1 or not len(lines) == count > 0:
        return "none"
    left = [1 + 2 * float(line[0]) - len(line) for line in lines]
    if any(left[:-1]) or left[-1] < 0:
        return "none"
    return "cut" if left[-1] else "whole"


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
    check_type(domain, Domain, "domain")
    check_type(evidence, Mapping, "evidence", "a mapping from names to labels or codes")
    codes = domain.encode_state(evidence)
    pairs = (number for name, code in codes.items() for number in (domain.index(name), code))
    write_file(path, " ".join(map(str, (len(codes), *pairs))) + "\n")


@dataclass(frozen=True)
class UaiResult:
    """What a result file says; of the three answers the one that was asked for.

    Attributes:
        task: ``PR``, ``MAR``, or ``MAP``, which files also call MPE.
        log_partition: log Z in nats, of a PR.
        margins: probabilities of the levels of every variable, of a MAR; an array (levels,) of each.
        state: level of every variable, of a MAP.

    Raises:
        InputError: another task, log Z that is NaN or infinity, levels that are no whole numbers from 0, or margins
            that are no probabilities: their sum may be off by 0.001, as those of published files are rounded.
        InputTypeError: not the answer that the task asks for.

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
        field = _FIELDS[self.task]
        if self.task == "PR":
            check_type(self.log_partition, float, field, "a float for a PR")
            if not self.log_partition < math.inf:  # type: ignore[operator]
                raise out_of_range(field, "a number below infinity", self.log_partition)
            return
        check_type(self.solution, tuple, field, f"a tuple for a {self.task}")
        for i, part in enumerate(self.solution):
            if self.task == "MAP":
                check_whole(part, f"{field}[{i}]", 0)
                continue
            check_type(part, np.ndarray, f"{field}[{i}]", "a NumPy array of probabilities")
            if not (part.ndim == 1 and part.dtype.kind in "fiu" and _sums_to_one(part)):
                expected = f"probabilities of variable {i} that sum to 1"
                raise out_of_range(field, expected, received=part.tolist())

    @property
    def solution(self) -> Any:
        """The answer, whichever it is."""
        return getattr(self, _FIELDS[self.task])


def _sums_to_one(probabilities: np.ndarray) -> bool:
    """Whether probabilities are those of one variable, up to the rounding of published files."""
    return bool((probabilities >= 0).all()) and abs(float(probabilities.sum()) - 1) <= _ROUNDING


_TASKS: Mapping[bytes, Task] = {b"PR": "PR", b"MAR": "MAR", b"MAP": "MAP", b"MPE": "MAP"}
_FIELDS: Mapping[Task, str] = {"PR": "log_partition", "MAR": "margins", "MAP": "state"}


def read_uai_result(source: Source, domain: Domain | None = None) -> UaiResult:
    """The result of a file PR, MAR or MAP (MPE), the last one where a solver wrote several.

    Args:
        source: a file, or an open one.
        domain: of the model, which the result must fit.

    Raises:
        InputError: what is not in the format, or does not fit the domain, with its line; probabilities of a variable
            whose sum is further than 0.001 from 1.

    Example:
        >>> import io
        >>> round(read_uai_result(io.BytesIO(b"PR -0.2008")).log_partition, 4)  # nats: log10 times log 10
        -0.4624
    """
    check_type(domain, Domain | None, "domain")
    words = UaiWords(source, "a result in the UAI format")
    if words.words[0] not in _TASKS:
        words.refuse(0, "PR, MAR, MAP or MPE")
    task, begin = _TASKS[words.words[0]], 1
    if b"-BEGIN-" in words.words:
        begin = len(words.words) - words.words[::-1].index(b"-BEGIN-")
    reader = UaiNumbers(words, begin)
    # With a count of samples, 1, there is one number more than the solution needs.
    if _length(task, reader.values) != len(reader.values) and len(reader.values) and reader.values[0] == 1:
        reader.at = 1
    solution: dict[str, Any] = {
        _FIELDS[task]: _SOLUTIONS[task](reader, None if domain is None else domain.cardinalities)
    }
    reader.finish("the solution")
    return UaiResult(task, **solution)


def _length(task: Task, values: np.ndarray) -> int:
    """How many numbers a solution without a count of samples would have."""
    if task == "PR" or not len(values):
        return 1
    if task == "MAP":
        return 1 + int(min(values[0], 2.0**53)) if values[0] >= 0 else -1
    if not 0 <= values[0] <= len(values):
        return -1
    at = 1
    for _ in range(int(values[0])):
        if at >= len(values) or not 0 <= values[at] <= len(values):
            return -1
        at += 1 + int(values[at])
    return at


def _log_z(reader: UaiNumbers, _: Sequence[int] | None) -> float:
    (value,) = reader.take(1, "the log10 of Z")
    reader.check(np.array([value < math.inf]), reader.at - 1, "a number below infinity")
    return float(value) * _LOG_10


def _number_of_variables(reader: UaiNumbers, cards: Sequence[int] | None) -> int:
    if cards is None:
        return reader.whole("the number of variables", 0)
    return reader.whole(f"the number of variables, {len(cards)}", len(cards), len(cards))


def _levels(reader: UaiNumbers, cards: Sequence[int] | None) -> tuple[int, ...]:
    number = _number_of_variables(reader, cards)
    return tuple(
        reader.whole(f"a level of variable {i}", 0, None if cards is None else cards[i] - 1) for i in range(number)
    )


def _probabilities(reader: UaiNumbers, cards: Sequence[int] | None) -> tuple[np.ndarray, ...]:
    margins = list[np.ndarray]()
    for i in range(_number_of_variables(reader, cards)):
        low, high = (1, None) if cards is None else (cards[i], cards[i])
        size = reader.whole(f"the number of levels of variable {i}", low, high)
        part = reader.take(size, f"probabilities of variable {i}")
        reader.check((part >= 0) & (part < math.inf), reader.at - size, "a probability")
        if not _sums_to_one(part):
            reader.refuse(reader.at - size, f"probabilities of variable {i} that sum to 1", f"{part.sum():.6g}")
        margins.append(part)
    return tuple(margins)


_SOLUTIONS: Mapping[Task, Any] = {"PR": _log_z, "MAP": _levels, "MAR": _probabilities}


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
    if result.task == "PR":
        numbers = [float(result.solution / _LOG_10)]
    elif result.task == "MAP":
        numbers = [len(result.solution), *map(int, result.solution)]
    else:
        parts = ((len(part), *map(float, part)) for part in result.solution)
        numbers = [len(result.solution), *itertools.chain(*parts)]
    write_file(path, f"{result.task}\n{' '.join(map(repr, numbers))}\n")
