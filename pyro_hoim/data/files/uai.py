"""Files of the inference competitions of UAI: their words and numbers, and models, whose variables are numbers.

A file is words between blanks, wherever its lines end. A line whose first word, without a blank before it, is ``c`` is
a comment, and so is what follows a ``#``, as pyAgrum writes it. In every table the last variable of the scope changes
fastest.
"""

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, NoReturn

import numpy as np

from ...atomic import write_file
from ...budgets import MAX_LABELS, check_size
from ...errors import IntractableError, check_type, unexpected
from .source_file import check_bytes, not_empty, read_file

MAX_UAI_BYTES = 2**27
"""Bytes of a model that is read: up to 6 GB, and half a minute, where its tables are small."""
Source = str | os.PathLike[str] | BinaryIO
_KINDS = (b"MARKOV", b"BAYES")
_COMMENT = re.compile(rb"(?m)^c(?:[ \t].*)?\r?$|#.*$")
_WORD = re.compile(rb"[^ \t\n\r\v\f]+")
_MORE = "read_uai in Python takes {}=..., if that is meant"


@dataclass(frozen=True)
class UaiTables:
    """A model as its file has it.

    Attributes:
        cardinalities: of the variables, which are numbered from 0.
        lengths: numbers of variables of the factors, in the order of the file; 0 of a constant.
        variables: numbers of the variables of all factors, one factor after the other.
        sizes: numbers of entries of the factors.
        logs: logs of the weights of all factors, the last variable of each fastest; minus infinity for 0.
    """

    cardinalities: np.ndarray
    lengths: np.ndarray
    variables: np.ndarray
    sizes: np.ndarray
    logs: np.ndarray


class UaiWords:
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


class UaiNumbers:
    """The numbers of a file in the order of the format, each checked where it stands."""

    def __init__(self, words: UaiWords, begin: int) -> None:
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


def read_tables(source: Source, max_bytes: int, max_variables: int, max_cells: int) -> UaiTables:
    """The factors of a model; arguments and errors as of :func:`~pyro_hoim.interop.read_uai`."""
    try:
        words = UaiWords(source, "a model in the UAI format", max_bytes)
    except IntractableError as error:
        raise error.replace(hint=_MORE.format("max_bytes")) from None
    if words.words[0] not in _KINDS:
        words.refuse(0, "MARKOV or BAYES")
    reader = UaiNumbers(words, 1)
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
    return UaiTables(cards.astype(np.int64), lengths, scopes, sizes, logs)


def _scopes(reader: UaiNumbers, factors: int, number: int) -> tuple[np.ndarray, np.ndarray]:
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
