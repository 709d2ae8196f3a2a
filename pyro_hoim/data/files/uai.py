"""Files of the inference competitions of UAI: models, evidence and results, whose variables and levels are numbers.

A file is words between blanks, wherever its lines end. Lines that begin with ``c`` are comments, and so is what follows
a ``#``, as pyAgrum writes it. In every table the last variable of the scope changes fastest.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, Literal, NoReturn

import numpy as np

from ...atomic import write_file
from ...budgets import MAX_COLUMNS, MAX_ENTRIES, MAX_LABELS, check_size
from ...errors import IntractableError, check_type, check_whole, refused, unexpected
from .source_file import check_bytes, not_empty, read_file

__all__ = [
    "MAX_UAI_BYTES",
    "Task",
    "UaiTables",
    "is_uai",
    "read_numbered_evidence",
    "read_solution",
    "read_tables",
    "sums_to_one",
    "write_numbered_evidence",
    "write_solution",
    "write_tables",
]

MAX_UAI_BYTES = 2**27
"""Bytes of a model that is read: up to 6 GB, and half a minute, where its tables are small."""
Task = Literal["PR", "MAR", "MAP"]
Source = str | os.PathLike[str] | BinaryIO
_KINDS = (b"MARKOV", b"BAYES")
_TASKS: Mapping[bytes, Task] = {b"PR": "PR", b"MAR": "MAR", b"MAP": "MAP", b"MPE": "MAP"}
_COMMENT = re.compile(rb"(?m)^c(?:[ \t].*)?$|#.*$")
_WORD = re.compile(rb"[^ \t\n\r\v\f]+")
_MORE = "read_uai in Python takes {}=..., if that is meant"
_ROUNDING = 1e-3  # of the sum of published probabilities


@dataclass(frozen=True)
class UaiTables:
    """A model as its file has it.

    Attributes:
        kind: ``MARKOV`` or ``BAYES``.
        cardinalities: of the variables, which are numbered from 0.
        lengths: numbers of variables of the factors, in the order of the file; 0 of a constant.
        variables: numbers of the variables of all factors, one factor after the other.
        sizes: numbers of entries of the factors.
        logs: logs of the weights of all factors, the last variable of each fastest; minus infinity for 0.
    """

    kind: str
    cardinalities: np.ndarray
    lengths: np.ndarray
    variables: np.ndarray
    sizes: np.ndarray
    logs: np.ndarray


class _Words:
    """The words of a file, read one after the other, and where in it each of them stands."""

    def __init__(self, source: Source, what: str, most: int = MAX_UAI_BYTES) -> None:
        if hasattr(source, "read"):
            stream: Any = source
            raw = stream.read(most + 1)
            raw = raw.encode() if isinstance(raw, str) else raw
            self.origin: object = getattr(source, "name", what)
            check_bytes(self.origin, len(raw), most)
        else:
            check_type(source, str | os.PathLike, "source", "a path or an open file")
            path: Any = source
            self.origin, raw = path, read_file(path, what, most)
        if raw.startswith(b"c") or b"\nc" in raw or b"#" in raw:
            raw = _COMMENT.sub(b"", raw)
        self.raw = not_empty(self.origin, raw, what)
        self.words = self.raw.split()

    def numbers(self, begin: int = 0, end: int | None = None) -> np.ndarray:
        """Words as numbers; what is none is refused, and so is one that float64 would make zero."""
        words = self.words[begin:end]
        try:
            values = np.array(list(map(float, words)), dtype=np.float64)
        except ValueError:
            values = np.empty(0)
        if len(values) != len(words) or b"_" in self.raw:
            wrong = next((i for i, word in enumerate(words) if not _is_number(word)), None)
            if wrong is not None:
                self.refuse(begin + wrong, "a number")
        zeros = np.flatnonzero(values == 0).tolist()
        lost = {w for w in {words[i] for i in zeros} if re.search(rb"[1-9]", re.split(rb"[eE]", w)[0])}
        if lost:
            self.refuse(begin + next(i for i in zeros if words[i] in lost), "a number in the range of float64")
        return values

    def refuse(self, index: int, expected: str, received: str | None = None) -> NoReturn:
        """Refuse a word, or what begins with it, or that the file ends before it."""
        if index >= len(self.words):
            hint = "the file may be truncated"
            raise unexpected(self.origin, expected, received="the end of the file", hint=hint, code="damaged-file")
        start = next(islice(_WORD.finditer(self.raw), index, None)).start()
        line = self.raw.count(b"\n", 0, start) + 1
        word = self.words[index]
        shown = repr(word[:40].decode("utf-8", "backslashreplace")) if received is None else received
        raise unexpected(f"{self.origin}, line {line}", expected, received=shown, code="damaged-file")


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return b"_" not in word


def is_uai(path: str | os.PathLike[str]) -> bool:
    """Whether a file is named as a model in this format, whatever it holds, or begins as one; False if unreadable."""
    if os.fspath(path).lower().endswith(".uai"):
        return True
    try:
        with open(path, "rb") as file:
            head = file.read(2**12)
    except OSError:
        return False
    return _COMMENT.sub(b"", head).split()[:1] in [[kind] for kind in _KINDS]


class _Reader:
    """The numbers of a file in the order of the format, each checked where it stands."""

    def __init__(self, words: _Words, begin: int) -> None:
        self.words, self.begin, self.at = words, begin, 0
        self.values = words.numbers(begin)

    def refuse(self, index: int, expected: str, received: str | None = None) -> NoReturn:
        """Refuse the number at an index, or what begins with it, or that the file ends before it."""
        self.words.refuse(self.begin + index, expected, received)

    def whole(self, what: str, low: int, high: int | None = None) -> int:
        """The next number, a whole one within bounds."""
        index, self.at = self.at, self.at + 1
        value = self.values[index] if index < len(self.values) else math.nan
        if not (low <= value <= (2**53 if high is None else high) and value % 1 == 0):
            bounds = f"from {low}" if high is None else f"from {low} to {high}"
            self.refuse(index, f"{what}, a whole number {bounds}")
        return int(value)

    def take(self, number: int, what: str) -> np.ndarray:
        """The next so many numbers."""
        begin, self.at = self.at, self.at + number
        if self.at > len(self.values):
            self.refuse(len(self.values), what)
        return self.values[begin : self.at]

    def check(self, is_right: np.ndarray, begin: int, expected: str) -> None:
        """Refuse the first number from ``begin`` on that is not right."""
        if not is_right.all():
            self.refuse(begin + int(np.argmin(is_right)), expected)

    def finish(self, what: str) -> None:
        """Refuse numbers that are left."""
        if self.at < len(self.values):
            self.refuse(self.at, f"nothing after {what}")


def read_tables(
    source: Source,
    *,
    max_bytes: int = MAX_UAI_BYTES,
    max_variables: int = MAX_COLUMNS,
    max_cells: int = MAX_ENTRIES,
) -> UaiTables:
    """The factors of a model.

    Args:
        source: a file, or an open one.
        max_bytes: bytes that are read.
        max_variables: variables that the file may have.
        max_cells: entries of all tables together.

    Raises:
        InputError: what is not in the format, with its line.
        IntractableError: a file above a limit.
    """
    try:
        words = _Words(source, "a model in the UAI format", max_bytes)
    except IntractableError as error:
        raise error.replace(hint=_MORE.format("max_bytes")) from None
    if words.words[0] not in _KINDS:
        words.refuse(0, "MARKOV or BAYES")
    reader = _Reader(words, 1)
    # Variables.
    number = reader.whole("the number of variables", 1)
    check_size(number, max_variables, "variables", words.origin, _MORE.format("max_variables"))
    cards = reader.take(number, f"the number of levels of each of {number:,} variables")
    is_right = (cards >= 1) & (cards == np.floor(cards)) & (cards <= MAX_LABELS)
    reader.check(is_right, reader.at - number, f"a number of levels, a whole number from 1 to {MAX_LABELS}")
    factors = reader.whole("the number of factors", 0)
    lengths, scopes = _scopes(reader, factors, number)
    sizes = _sizes(cards, scopes, lengths)
    hint = _MORE.format("max_cells")
    check_size(int(min(sizes.sum(), 2.0**62)), max_cells, "entries", words.origin, hint, "its tables have")
    # Tables, each after the number of its entries.
    sizes = sizes.astype(np.int64)
    heads = reader.at + np.cumsum(sizes + 1) - sizes - 1
    present = heads[heads < len(reader.values)]
    is_right = reader.values[present] == sizes[: len(present)]
    if not is_right.all():
        wrong = int(np.argmin(is_right))
        last = int(lengths[: wrong + 1].sum())
        levels = " x ".join(f"{int(cards[i])}" for i in scopes[last - lengths[wrong] : last])
        reader.refuse(int(present[wrong]), f"{int(sizes[wrong])} entries of factor {wrong} ({levels or 'a constant'})")
    begin = reader.at
    weights = reader.take(int(sizes.sum()) + factors, "the tables of all factors")
    reader.check((weights >= 0) & (weights < math.inf), begin, "a finite number from 0")
    reader.finish("the last table")
    with np.errstate(divide="ignore"):
        logs = np.log(np.delete(weights, heads - begin))
    return UaiTables(words.words[0].decode(), cards.astype(np.int64), lengths, scopes, sizes, logs)


def _scopes(reader: _Reader, factors: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the scopes, and the variables of all of them."""
    first, lengths, run = reader.at, list[int](), 1
    while len(lengths) < factors:
        length = reader.whole("the number of variables of a factor", 0, number)
        # Scopes of one length often follow each other: twice as many as before are looked at.
        step, left = length + 1, min(2 * run, factors - len(lengths))
        ahead = reader.values[reader.at - 1 : reader.at - 1 + left * step : step]
        run = int(np.argmin(ahead == length)) or len(ahead)
        lengths += [length] * run
        reader.at += run * step - 1
    if reader.at > len(reader.values):
        reader.refuse(len(reader.values), "the scopes of all factors")
    counts = np.array(lengths, dtype=np.int64)
    numbers = np.delete(np.arange(first, reader.at), np.cumsum(counts + 1) - counts - 1)
    scopes = reader.values[numbers]
    # Variables that there are, each once in a factor.
    is_right = (scopes >= 0) & (scopes < number) & (scopes == np.floor(scopes))
    if not is_right.all():
        wrong = int(numbers[np.argmin(is_right)])
        reader.refuse(wrong, f"the number of a variable, from 0 to {number - 1}")
    owners = np.repeat(np.arange(factors), counts)
    order = np.lexsort((scopes, owners))
    is_twice = (np.diff(scopes[order]) == 0) & (np.diff(owners[order]) == 0)
    if is_twice.any():
        reader.refuse(int(numbers[order[1:][is_twice].min()]), "every variable of a factor once")
    return counts, scopes.astype(np.int64)


def _sizes(cards: np.ndarray, scopes: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Numbers of entries of the factors, whole numbers as float64; those of constants are 1."""
    sizes, has_scope = np.ones(len(lengths)), lengths > 0
    if has_scope.any():
        sizes[has_scope] = np.multiply.reduceat(cards[scopes], (np.cumsum(lengths) - lengths)[has_scope])
    return sizes


# Writing: weights from logs, so that reading gives the logs back.

_REACH = 600.0  # nats, so that weights are far from both ends of the range of float64
_MOST_PARTS = 2**10


def write_tables(
    path: str | os.PathLike[str],
    cardinalities: Sequence[int],
    scopes: Iterable[Sequence[int]],
    tables: Iterable[np.ndarray],
) -> None:
    """Write a model; a table whose weights would leave the range of float64 becomes 2, 4, ... factors of one scope.

    The logs of the weights, added over equal scopes, are the tables again: to the last bit where a weight of float64
    has this log, else to the nearest weight.

    Args:
        path: the file.
        cardinalities: of all variables.
        scopes: numbers of the variables of every table.
        tables: logs of the weights, minus infinity for zero.

    Raises:
        InputError: tables beyond 614,400 nats, or a file that cannot be written.
    """
    scopes, tables = list(scopes), list(tables)
    logs = np.concatenate([np.empty(0), *tables])
    # Shares of tables that one factor cannot hold.
    sizes = np.array([len(table) for table in tables], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    largest = np.where(np.isfinite(logs), np.abs(logs), 0.0)
    largest = np.maximum.reduceat(largest, starts) if len(starts) else np.empty(0)
    if (largest > _REACH * _MOST_PARTS).any():
        expected = f"entries within {_REACH * _MOST_PARTS:,.0f} nats of 0"
        raise unexpected(
            "tables", expected, received=largest.max(), hint="subtract a constant from them", code="out-of-range"
        )
    parts = 2 ** np.ceil(np.log2(np.maximum(largest / _REACH, 1.0))).astype(np.int64)
    words = list(map(repr, _weights(logs / np.repeat(parts, sizes)).tolist()))
    # Factors, the scopes of all before the tables of all.
    heads, bodies = list[str](), list[str]()
    for scope, start, size, number in zip(scopes, starts.tolist(), sizes.tolist(), parts.tolist(), strict=True):
        heads += [" ".join(map(str, (len(scope), *scope)))] * number
        bodies += [f"{size}\n {' '.join(words[start : start + size])}"] * number
    lines = ["MARKOV", str(len(cardinalities)), " ".join(map(str, cardinalities)), str(len(heads)), *heads, ""]
    write_file(path, "\n".join([*lines, *bodies, ""]))


def _weights(logs: np.ndarray) -> np.ndarray:
    """Numbers whose logs these are: of the nearest three, one with this log where there is one."""
    weights = np.exp(logs)
    candidates = np.stack([weights, np.nextafter(weights, 0.0), np.nextafter(weights, math.inf)])
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.abs(np.log(candidates) - logs)
    errors[:, np.isneginf(logs)] = 0.0  # zero, the first candidate
    return np.take_along_axis(candidates, errors.argmin(0)[None], 0)[0]


# Evidence and results, which say values of variables by their numbers.


def read_numbered_evidence(source: Source, cardinalities: Sequence[int], sample: int | None = None) -> dict[int, int]:
    """Levels by number of the variable, of a file with or without a count of samples before its samples.

    Args:
        source: a file, or an open one.
        cardinalities: of the variables of the model.
        sample: which one of several samples, from 0.

    Raises:
        InputError: what is not in the format, a variable or a level that the model lacks, a variable given two levels,
            or several samples where none is chosen.
    """
    words = _Words(source, "evidence in the UAI format")
    reader = _Reader(words, 0)
    samples = _samples(words, reader)
    if sample is None and len(samples) > 1:
        hint = f"keep one in the file, or read_uai_evidence in Python takes sample=, from 0 to {len(samples) - 1}"
        raise refused(words.origin, f"holds {len(samples)} samples of evidence", hint, code="conflict")
    chosen = 0 if sample is None else check_whole(sample, "sample", 0, max(len(samples), 1) - 1)
    begin, number = samples[chosen] if samples else (0, 0)
    # Pairs of a variable and its level.
    reader.at, evidence = begin, dict[int, int]()
    for _ in range(number):
        variable = reader.whole("the number of a variable", 0, len(cardinalities) - 1)
        level = reader.whole(f"a level of variable {variable}", 0, cardinalities[variable] - 1)
        if evidence.setdefault(variable, level) != level:
            reader.refuse(reader.at - 1, f"one level of variable {variable}, which is {evidence[variable]} before")
    return evidence


def _samples(words: _Words, reader: _Reader) -> list[tuple[int, int]]:
    """Where the pairs of every sample begin, and how many there are."""
    total, count = len(reader.values), reader.whole("the number of observed variables, or of samples", 0)
    if total == 1 and count == 0:
        return []
    if total == 1 + 2 * count and not _has_sample_lines(words, count):
        return [(1, count)]
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


def _has_sample_lines(words: _Words, count: int) -> bool:
    """Whether the first line is the count alone, and every other line is one sample."""
    head, *lines = [line.split() for line in words.raw.splitlines() if line.strip()]
    is_count = len(head) == 1 and len(lines) == count > 0
    return is_count and all(len(line) == 1 + 2 * float(line[0]) for line in lines)


def write_numbered_evidence(path: str | os.PathLike[str], evidence: Mapping[int, int]) -> None:
    """Write one sample, without a count of samples: ``number variable level variable level ...``."""
    pairs = (number for item in evidence.items() for number in item)
    write_file(path, " ".join(map(str, (len(evidence), *pairs))) + "\n")


def read_solution(
    source: Source, cardinalities: Sequence[int] | None = None
) -> tuple[Task, float | tuple[int, ...] | tuple[np.ndarray, ...]]:
    """Task and solution of a result file, the last one where it has several.

    A PR is the log10 of Z as the file says it; a MAR has the probabilities of every variable; a MAP, also written MPE,
    the level of every variable. Each may have a count of samples, 1, before it.

    Raises:
        InputError: what is not in the format, or does not fit ``cardinalities`` where they are given.
    """
    words = _Words(source, "a result in the UAI format")
    if words.words[0] not in _TASKS:
        words.refuse(0, "PR, MAR, MAP or MPE")
    task, begin = _TASKS[words.words[0]], 1
    if b"-BEGIN-" in words.words:
        begin = len(words.words) - words.words[::-1].index(b"-BEGIN-")
    reader = _Reader(words, begin)
    # With a count of samples there is one number more than the solution needs.
    if _length(task, reader.values) != len(reader.values) and len(reader.values) and reader.values[0] == 1:
        reader.at = 1
    solution = _SOLUTIONS[task](reader, cardinalities)
    reader.finish("the solution")
    return task, solution


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


def _log10(reader: _Reader, _: Sequence[int] | None) -> float:
    (value,) = reader.take(1, "the log10 of Z")
    reader.check(np.array([value < math.inf]), reader.at - 1, "a number below infinity")
    return float(value)


def _number_of_variables(reader: _Reader, cards: Sequence[int] | None) -> int:
    if cards is None:
        return reader.whole("the number of variables", 0)
    return reader.whole(f"the number of variables, {len(cards)}", len(cards), len(cards))


def _levels(reader: _Reader, cards: Sequence[int] | None) -> tuple[int, ...]:
    number = _number_of_variables(reader, cards)
    return tuple(
        reader.whole(f"a level of variable {i}", 0, None if cards is None else cards[i] - 1) for i in range(number)
    )


def _probabilities(reader: _Reader, cards: Sequence[int] | None) -> tuple[np.ndarray, ...]:
    margins = list[np.ndarray]()
    for i in range(_number_of_variables(reader, cards)):
        low, high = (1, None) if cards is None else (cards[i], cards[i])
        size = reader.whole(f"the number of levels of variable {i}", low, high)
        part = reader.take(size, f"probabilities of variable {i}")
        reader.check((part >= 0) & (part < math.inf), reader.at - size, "a probability")
        if not sums_to_one(part):
            reader.refuse(reader.at - size, f"probabilities of variable {i} that sum to 1", f"{part.sum():.6g}")
        margins.append(part)
    return tuple(margins)


def sums_to_one(probabilities: np.ndarray) -> bool:
    """Whether probabilities are those of one variable, up to the rounding of published files."""
    return bool((probabilities >= 0).all()) and abs(float(probabilities.sum()) - 1) <= _ROUNDING


_SOLUTIONS: Mapping[Task, Any] = {"PR": _log10, "MAP": _levels, "MAR": _probabilities}


def write_solution(
    path: str | os.PathLike[str], task: Task, solution: float | Sequence[int] | Sequence[Sequence[float]]
) -> None:
    """Write a result as :func:`read_solution` gives it, without a count of samples."""
    parts: Any = solution
    if task == "PR":
        numbers = [float(parts)]
    elif task == "MAP":
        numbers = [len(parts), *map(int, parts)]
    else:
        numbers = [len(parts), *(number for part in parts for number in (len(part), *map(float, part)))]
    write_file(path, f"{task}\n{' '.join(map(repr, numbers))}\n")
