"""Tables as people have them: text of any delimiter and encoding, packed or not, Excel, Parquet, Feather and Stata."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pandas as pd

from ...errors import InputError, check_unique, refused, unexpected
from ..csv_file import CsvColumns, parse_csv, read_bytes
from ..encoding import labels_of_values, values_of
from .excel_file import read_sheet
from .packed_file import is_excel, unpacked
from .safe_cells import MARK, restored
from .typed_file import TYPED, not_plain, read_frame

__all__ = [
    "SAY_ENCODING",
    "found_delimiter",
    "found_header",
    "header_end",
    "lines_above",
    "read_table_file",
]

_DELIMITERS = {",": "','", ";": "';'", "\t": "tab", "|": "'|'", " ": "blank"}
_SAMPLE_CHARACTERS, _SAMPLE_ROWS = 2**18, 200
_PIECE = 2**20
_OTHERS = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "JSON"),
    **dict.fromkeys((".sav", ".zsav", ".por"), "an SPSS file"),
    **dict.fromkeys((".rds", ".rda", ".rdata"), "an R file"),
    **dict.fromkeys((".npz", ".npy"), "a NumPy file"),
    ".sas7bdat": "a SAS file",
    ".xls": "an Excel file of the years before 2007",
    ".ods": "an OpenDocument file",
    ".pdf": "a PDF file",
    ".safetensors": "a model file",
}
_SIGNATURES = {b"PAR1": ".parquet", b"ARROW1": ".feather", b"%PDF": ".pdf", b"\xd0\xcf\x11\xe0": ".xls"}
SAY_ENCODING = "give its encoding, such as encoding='cp1251', or save the file as UTF-8"
_SURROGATE = re.compile("[\ud800-\udfff]")
_SEP_LINE = re.compile(r'"?sep=(.)"?[ \t;,]*(?:\r\n|\r|\n)', re.IGNORECASE)
_COMMENT = re.compile(r"(#[^\r\n]*)(?:\r\n|\r|\n)([^\r\n]*)")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+(?:,\d+)?")
_NAMELESS = re.compile(r"Unnamed: 0(\.\d+)*")  # what pandas calls a column without a name, once written
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


class _Rows(NamedTuple):
    """Header and columns of cells, with lines and notes; of text also the delimiter."""

    header: tuple[str, ...]
    columns: Sequence[tuple[str, ...]]
    lines: tuple[int, ...]
    notes: list[str]
    unit: str = "line"
    delimiter: str = ","


def read_table_file(path: str | os.PathLike[str], *, sep: str | None = None, encoding: str | None = None) -> CsvColumns:
    """Columns of a table in a file; InputError names the line of what is wrong in it.

    Text may be packed (gzip, bzip2, xz, zip with one file). Its delimiter is the one that divides header and rows
    alike: comma, semicolon, tab, bar or blanks, also named by Excel's line ``sep=;``. Its encoding is that of a
    byte-order mark, else UTF-8, else Windows-1252. Decimal commas become points where commas do not divide cells.
    Comment lines above the header (``#``), row numbers under no name and empty last columns are left out. What differs
    from comma and UTF-8 is said in ``notes``.

    Args:
        path: the file. By its name Parquet, Feather (extra ``parquet``), Excel (extra ``excel``, its first sheet that
            holds anything) or Stata; else text.
        sep: the character between cells, or ``tab``; None finds it.
        encoding: of the text, a name that Python knows; None finds it.

    Raises:
        InputError: no table, or one with a fault: the line and what to do are named.
    """
    if sep is not None and sep not in ("tab", "\\t") and len(sep) != 1:
        raise unexpected("sep", "one character or tab", sep)
    if encoding is not None:
        _check_encoding(encoding)
    raw = read_bytes(path)
    kind = next((suffix for mark, suffix in _SIGNATURES.items() if raw.startswith(mark)), Path(path).suffix.lower())
    if kind in _OTHERS:
        hint = "save it as CSV (UTF-8), .xlsx or .parquet"
        raise unexpected(path, "a table", received=_OTHERS[kind], hint=hint, code="damaged-file")
    if kind in TYPED:
        return _typed(path, *read_frame(path, raw, kind))
    if is_excel(raw):
        return _of_rows(path, _excel(path, raw))
    raw = unpacked(path, raw)
    name, notes = _found_encoding(path, raw, encoding)
    head = _head(_opened(raw, name))
    if head.lstrip()[:1] in ("{", "[", "<") and sep is None:
        found = "HTML or XML" if head.lstrip().startswith("<") else "JSON"
        hint = "save it as a table with a header line, such as CSV"
        raise unexpected(path, "a table", received=found, hint=hint, code="damaged-file")
    given = {"tab": "\t", "\\t": "\t"}.get(str(sep), sep)
    return _of_rows(path, _text_rows(path, head, lambda: _opened(raw, name), given, notes))


def _check_encoding(encoding: str) -> None:
    """Refuse an encoding that Python does not know."""
    try:
        io.TextIOWrapper(io.BytesIO(), encoding)  # more than codecs.lookup, which also knows rot13
    except (LookupError, ValueError):
        expected = "an encoding that Python knows, such as utf-8, cp1252, latin-1, utf-16 or shift_jis"
        raise unexpected("encoding", expected, encoding, code="unknown-choice") from None


def _found_encoding(path: Any, raw: bytes, encoding: str | None) -> tuple[str, list[str]]:
    """Encoding in which all bytes are text, and a note on it where it was found and is not UTF-8."""
    marks = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    found = encoding or next((name for mark, name in marks.items() if raw.startswith(mark)), None)
    if found is None and b"\0" in raw[:4000] and len(raw) % 2 == 0:
        even, odd = raw[0:4000:2].count(0), raw[1:4000:2].count(0)
        half = min(len(raw), 4000) // 4
        found = "utf-16-le" if even == 0 and odd > half else "utf-16-be" if odd == 0 and even > half else None
    if b"\0" in raw and found is None:
        raise _zero_byte(path, raw.count(b"\n", 0, raw.index(b"\0")) + 1)
    for name in [found] if found else ["utf-8", "cp1252", "latin-1"]:
        plain = "utf-8-sig" if name.lower().replace("_", "-") in ("utf-8", "utf8") else name
        try:
            _check_decoded(path, raw, plain)
        except UnicodeError as error:
            if found is None:
                continue
            where, problem = path, f"not {name}"
            if isinstance(error, UnicodeDecodeError):
                where = f"{path} line {raw.count(10, 0, error.start) + 1}"
                problem = f"not {name} (byte 0x{error.object[error.end - 1]:02x})"
            raise refused(where, problem, SAY_ENCODING, code="wrong-encoding") from None
        if found is None and name != "utf-8":
            _check_western(path, raw)
        return plain, [name] if encoding is None and not name.startswith("utf-8") else []
    raise AssertionError


def _zero_byte(path: Any, line: int) -> InputError:
    hint = "this is not a table of text; save it as CSV, .xlsx or .parquet"
    return unexpected(f"{path} line {line}", "text", received="a zero byte", hint=hint, code="damaged-file")


def _check_decoded(path: Any, raw: bytes, name: str) -> None:
    """Raise UnicodeError unless bytes are text, which has no zero characters; only a piece is decoded at a time."""
    decoder = codecs.getincrementaldecoder(name)()
    lines = 1
    for start in range(0, len(raw), _PIECE):
        end = start + _PIECE
        try:
            piece = decoder.decode(raw[start:end], final=end >= len(raw))
        except UnicodeDecodeError as error:
            error.start += min(end, len(raw)) - len(error.object)  # what was left of the last piece comes first
            raise
        if _SURROGATE.search(piece):
            raise UnicodeError
        if "\0" in piece:
            raise _zero_byte(path, lines + piece.count("\n", 0, piece.index("\0")))
        lines += piece.count("\n")


def _opened(raw: bytes, encoding: str) -> io.TextIOWrapper:
    """Bytes as text with the line ends that it has."""
    return io.TextIOWrapper(io.BytesIO(raw), encoding, newline="")


def _head(stream: TextIO) -> str:
    """The first lines of a text, whole ones unless the first is very long."""
    text = stream.read(_SAMPLE_CHARACTERS)
    cut = max(text.rfind("\n"), text.rfind("\r")) + 1 if stream.read(1) else 0
    return text[:cut] if cut else text


def _check_western(path: Any, raw: bytes) -> None:
    """Refuse text that is not UTF-8 and in which letters beyond ASCII are too many for a language of Western Europe."""
    letters = sum(map(bytes.isalpha, map(bytes, zip(raw[:4000], strict=True))))
    beyond = sum(byte > 0x7F for byte in raw[:4000])
    is_control = any(byte < 9 for byte in raw[:4000])
    if is_control or beyond > max(4, letters):
        found = "bytes that are no text" if is_control else "mostly letters beyond ASCII, and no UTF-8"
        raise unexpected(path, "a table of text", received=found, hint=SAY_ENCODING, code="wrong-encoding")


def _text_rows(path: Any, head: str, opened: Callable[[], TextIO], sep: str | None, notes: list[str]) -> _Rows:
    """Rows of a text that begins with ``head``, its delimiter given or found."""
    above = lines_above(head)
    place, skipped, is_safe = above.end, above.comments, above.is_safe
    first_line, sep = (1, sep) if above.sep is None else (2, sep or above.sep)
    head, stream = head[place:], opened()
    stream.read(place)
    delimiter = found_delimiter(head) if sep is None else sep
    spare = _spare_cells(head, delimiter)
    header, columns, lines = parse_csv(path, stream, delimiter, first_line=first_line + skipped, spare=spare)
    read = [f"{_DELIMITERS.get(delimiter, repr(delimiter))}-separated"] if sep is None and delimiter != "," else []
    told = [f"read as {', '.join([*read, *notes])}"] if read or notes else []
    if is_safe:
        header, columns = tuple(map(restored, header)), [tuple(map(restored, column)) for column in columns]
        told.append("apostrophes before cells that a spreadsheet would run removed, as its first line says")
    elif skipped:
        told.append(f"{skipped} comment line{'s' * (skipped > 1)} above the header left out")
    if spare:
        header = ("", *header) if any(columns[-1][:_SAMPLE_ROWS]) else (*header, "")
    return _Rows(header, columns, lines, told, delimiter=delimiter)


class _Above(NamedTuple):
    """What stands above a header: where it ends, the comment lines, whether one marks safe cells, and a delimiter."""

    end: int
    comments: int
    is_safe: bool
    sep: str | None


def lines_above(head: str) -> _Above:
    """The line ``sep=;`` and the comment lines above the header of a text."""
    skipped, is_safe = 0, False
    first = _SEP_LINE.match(head)
    place, sep = (0, None) if first is None else (first.end(), first[1])
    while line := _COMMENT.match(head, place):
        told, below = (next(csv.reader([part]), []) for part in line.groups())
        is_header = head[place + 1 : place + 2].strip() and len(told) == len(below) and not below[0].startswith("#")
        if not below or is_header:
            break
        is_mark = line[1].strip('";,|\t ') == MARK
        place, skipped, is_safe = line.start(2), skipped + 1, is_safe or is_mark
    return _Above(place, skipped, is_safe, sep)


def _sample(head: str, delimiter: str) -> list[list[str]]:
    """The first rows."""
    found: list[list[str]] = []
    try:
        reader = csv.reader(head.splitlines(keepends=True), delimiter=delimiter, skipinitialspace=delimiter == " ")
        for row in reader:
            if row:
                found.append(row)
            if len(found) > _SAMPLE_ROWS:
                break
    except csv.Error:
        pass
    return found


def found_delimiter(text: str) -> str:
    """The character that divides the header and most rows alike; the comma where none does."""
    best, chosen = (0.0, 0), ","
    for delimiter in _DELIMITERS:
        header, *rows = _sample(text, delimiter) or [[]]
        width, least = len(header), 3 if delimiter == " " else 2
        if width < least:
            continue
        widths = Counter(map(len, rows))
        share = max(widths[width], widths[width + 1]) / max(1, len(rows))
        if (delimiter != " " or share == 1) and (share, width) > best:
            best, chosen = (share, width), delimiter
    return chosen


def found_header(text: str, delimiter: str) -> tuple[str, ...]:
    """The cells of the first line, without blanks around them."""
    return tuple(cell.strip() for cell in (_sample(text, delimiter) or [[]])[0])


def header_end(text: str, place: int, delimiter: str) -> int:
    """Number of the line that the header from a place on ends in; empty lines and line ends inside quotes count."""
    above = sum(1 for _ in io.StringIO(text[:place], newline=""))
    reader = csv.reader(io.StringIO(text[place:], newline=""), delimiter=delimiter)
    next(filter(None, reader), None)
    return above + reader.line_num


def _spare_cells(text: str, delimiter: str) -> int:
    """1 where every row has a cell more than the header, as R writes row names and some programs a last delimiter."""
    header, *rows = _sample(text, delimiter) or [[]]
    return int(len(header) > 1 and bool(rows) and all(len(row) == len(header) + 1 for row in rows))


def _excel(path: Any, raw: bytes) -> _Rows:
    """The first sheet of a workbook that holds anything."""
    name, rows, lines, others = read_sheet(path, raw)
    if not rows:
        raise unexpected(path, "a header and rows", received="empty sheets", code="empty")
    width = max(map(len, rows))
    columns = zip(*([*row, *[None] * (width - len(row))] for row in rows), strict=True)
    held = [
        tuple(labels_of_values(path, column, strip=True))
        for column in columns
        if any(value is not None for value in column)
    ]
    notes = [f"read the sheet {name!r}, the first of {others + 1}"] if others else []
    header = tuple(column[0] for column in held)
    return _Rows(header, tuple(column[1:] for column in held), lines[1:], notes, unit="row")


def _typed(path: Any, frame: pd.DataFrame, categorical: Collection[str]) -> CsvColumns:
    """A file that names the types of its columns; categorical ones keep their levels."""
    if not len(frame) or not len(frame.columns):
        raise unexpected(path, "columns and rows", received=f"{len(frame.columns)} and {len(frame)}", code="empty")
    header = tuple(str(name).strip() for name in frame.columns)
    check_unique(header, f"{path} columns")
    columns = tuple(_typed_cells(f"{path} column {name!r}", frame.iloc[:, i]) for i, name in enumerate(header))
    types = {
        name: _categories(f"{path} column {name!r}", kind) for name, kind in zip(header, frame.dtypes, strict=True)
    }
    held = {name: dtype for name, dtype in types.items() if dtype is not None and name in categorical}
    return CsvColumns(str(path), header, columns, tuple(range(1, len(frame) + 1)), (), held, "row")


def _typed_cells(place: str, values: pd.Series) -> tuple[str, ...]:
    try:
        codes, distinct = pd.factorize(values)
    except TypeError:
        raise not_plain(place) from None
    texts = [*labels_of_values(place, values_of(distinct, values.dtype)), ""]
    return tuple(texts[code] for code in codes)


def _categories(place: str, dtype: Any) -> pd.CategoricalDtype | None:
    if not isinstance(dtype, pd.CategoricalDtype):
        return None
    labels = labels_of_values(place, dtype.categories)
    check_unique(labels, f"{place} categories")
    return pd.CategoricalDtype(labels, dtype.ordered)


def _of_rows(path: Any, read: _Rows) -> CsvColumns:
    """Columns of rows, without those that have no name and hold nothing or number the rows; names are checked."""
    header, notes = read.header, list(read.notes)
    if not read.lines:
        raise unexpected(path, "rows below the header", received="the header only", code="empty")
    columns = [*read.columns]
    keep = [bool(name) or any(column) for name, column in zip(header, columns, strict=True)]
    if not all(keep):
        notes.append(f"{keep.count(False)} empty column{'s' * (keep.count(False) > 1)} without a name left out")
    is_nameless = not header[0] or _NAMELESS.fullmatch(header[0])
    if keep[0] and is_nameless and len(set(columns[0])) == len(columns[0]) and keep.count(True) > 1:
        keep[0] = False
        notes.append("the first column, row names without a name of their own, left out")
    header = tuple(name for name, kept in zip(header, keep, strict=True) if kept)
    columns = [column for column, kept in zip(columns, keep, strict=True) if kept]
    for position, name in enumerate(header, start=1):
        if not name:
            found = f"none for column {position}"
            hint = "name it in the first line, or remove the column"
            raise unexpected(path, "a name for every column", received=found, hint=hint, code="missing-part")
    _check_names(path, header, columns)
    if read.unit == "line" and read.delimiter != ",":
        commas = [i for i, column in enumerate(columns) if _has_decimal_commas(column)]
        for i in commas:
            columns[i] = tuple(cell.replace(",", ".") for cell in columns[i])
        if commas:
            notes.append(f"decimal commas in {', '.join(repr(header[i]) for i in commas[:6])} read as points")
    return CsvColumns(str(path), header, tuple(columns), read.lines, tuple(notes), {}, read.unit)


def _check_names(path: Any, header: tuple[str, ...], columns: Sequence[Sequence[str]]) -> None:
    """Refuse a first line that is no header but a row of numbers, and names that occur twice."""
    is_numbered = header in (tuple(map(str, range(len(header)))), tuple(map(str, range(1, len(header) + 1))))
    if all(map(_NUMBER.fullmatch, header)) and not is_numbered:
        held = sum(name in set(column) for name, column in zip(header, columns, strict=True))
        if len(set(header)) < len(header) or 2 * held > len(header):
            hint = "add a first line with the names of the columns"
            raise unexpected(path, "a header", received="numbers in the first line", hint=hint, code="missing-part")
    try:
        check_unique(header, f"{path} header")
    except ValueError as error:
        raise error.replace(hint="rename or remove one of them") from None  # type: ignore[attr-defined]


def _has_decimal_commas(column: Sequence[str]) -> bool:
    return any("," in cell for cell in column) and all(_DECIMAL_COMMA.fullmatch(cell) for cell in column if cell)
