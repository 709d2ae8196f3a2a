"""How a table of text is written: encoding, delimiter, header and row names, found alike for every way of reading."""

import codecs
import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, zip_longest
from typing import Any, BinaryIO, NamedTuple, TextIO

from ...errors import InputError, check_unique, out_of_reach, refused, unexpected
from .safe_cells import MARK, restored
from .source_file import not_empty, read_file

_DELIMITERS = {",": "','", ";": "';'", "\t": "tab", "|": "'|'", " ": "blank"}
_HEAD_BYTES, _SAMPLE_CHARACTERS, _SAMPLE_ROWS = 4_000, 2**18, 200
_MOST_TEXT = 2**28  # bytes of a text that is read as a whole
_MOST_NAMES = 2**25  # names of rows that are compared
_PIECE = 2**20
_MOST_LINE = 2**24  # characters
_SAY_ENCODING = "give its encoding, such as encoding='cp1251', or save the file as UTF-8"
_SEP_LINE = re.compile(r'"?sep=(.)"?[ \t;,]*(?:\r\n|\r|\n)', re.IGNORECASE)
_COMMENT = re.compile(r"(#[^\r\n]*)(?:\r\n|\r|\n)([^\r\n]*)")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+(?:,\d+)?")
_NAMELESS = re.compile(r"Unnamed: 0(\.\d+)*")  # what pandas calls a column without a name, once written
_COUNT = re.compile("0|[1-9][0-9]{0,17}")
_NO_TABLES = {
    "HTML or XML": re.compile(
        r"\s*<(?:!--|!doctype|\?xml|html|head|body|table)[\s>-]|\s*<[a-z][^<>]*>.*>\s*\Z", re.I | re.S
    ),
    "JSON": re.compile(r'\s*(?:\{\s*["}]|\[\s*[\[{"\]])'),
    "Weka's ARFF": re.compile(r"(?:\s*%[^\r\n]*[\r\n]+)*\s*@relation\s", re.I),
    "a model in UAI format": re.compile(r"\s*(?:MARKOV|BAYES)\s+\d+\s"),
    "a network in BIF format": re.compile(r"\s*network\s+\S+\s*\{"),
    "an object of R, as dput writes it": re.compile(r"\s*structure\("),
}
_FTABLE = "an ftable of R"
_FTABLE_CSV = (
    "write.csv(as.data.frame(as.table(x)), 'table.csv', row.names = FALSE) saves its counts as the column Freq"
)
_DOS = re.compile(rb"[A-Za-z][\x82\x84\x94][a-z]|[\x81\x8d\x8f\x90\x9d]")
"""Quotes within words, and bytes that Windows does not know: letters of a code page of DOS."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_GAP = re.compile(r"^[ ]{2,}\S|\S[ ]{2,}\S")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


class TextFormat(NamedTuple):
    """How a table of text is written."""

    encoding: str  # in which all bytes are text
    delimiter: str  # the character between cells
    header: tuple[str, ...]  # names of the columns as the rows have them; empty for a column without a name
    place: int  # number of characters above the header
    first_line: int  # number of the line that the header begins in
    last_line: int  # number of the line that it ends in
    spare: int  # cells that the rows have more than the line of the header, 0 or 1
    has_rows: bool  # whether anything stands below the header
    is_safe: bool  # whether apostrophes stand before cells that a spreadsheet would run
    notes: tuple[str, ...]  # sentences on what was found

    def rows(self, path: Any, stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
        """Rows below the header of bytes, each with the line that it ends in."""
        with as_text(stream, self.encoding) as text:
            text.read(self.place)
            csv_rows = _csv_rows(path, text, self.delimiter, self.first_line, self.spare)
            next(csv_rows)
            yield from csv_rows


def text_format(path: Any, opened: Callable[[], BinaryIO], sep: str | None, encoding: str | None) -> TextFormat:
    """The format of the text in some bytes, which are read from their beginning several times.

    ``opened`` opens them, unpacked; ``sep`` is the character between cells, or ``tab``, and it and the encoding are
    found where they are None.
    """
    # Text in an encoding, whose beginning tells what kind of table it is.
    sep = {"tab": "\t", "\\t": "\t"}.get(str(sep), sep)
    if sep is not None and len(sep) != 1:
        raise unexpected("sep", "one character or tab", sep)
    name, notes = found_encoding(path, opened, encoding)
    with as_text(opened(), name) as stream:
        text = stream.read(_SAMPLE_CHARACTERS)
        cut = max(text.rfind("\n"), text.rfind("\r")) + 1 if stream.read(1) else 0
        head = text[:cut] if cut else text
    if sep is None and head.strip() and (received := _other_text(head)) is not None:
        hint = _FTABLE_CSV if received == _FTABLE else "save it as a table with a header line, such as CSV"
        raise unexpected(path, "a table", received=received, hint=hint, code="damaged-file")
    # Comments and ``sep=`` above the header, and the character between cells.
    end, comments, is_safe, told_sep = _lines_above(head)
    first_line = 1 + comments + (told_sep is not None)
    delimiter = sep or told_sep or _found_delimiter(head[end:])
    is_found = not sep and not told_sep and delimiter != ","
    read = [f"{_DELIMITERS.get(delimiter, repr(delimiter))}-separated"] if is_found else []
    sentences = [f"read as {', '.join([*read, *notes])}"] if read or notes else []
    if is_safe:
        sentences.append("apostrophes before cells that a spreadsheet would run removed, as its first line says")
    elif comments:
        sentences.append(f"{comments} comment line{'s' * (comments > 1)} above the header left out")
    # The header, and whether rows have one cell more than it, as R writes names of rows.
    with as_text(opened(), name) as stream:
        stream.read(end)
        rows = _csv_rows(path, stream, delimiter, first_line)
        last_line, first = next(rows, (0, []))
        has_rows = next(rows, None) is not None
    if not first or not head.strip():
        raise unexpected(path, "a header and rows", received="an empty file", code="empty")
    header = tuple(restored(cell.strip()) if is_safe else cell.strip() for cell in first)
    _, *sample = _sample(head[end:], delimiter) or [[]]
    spare = int(len(header) > 1 and bool(sample) and all(len(row) == len(header) + 1 for row in sample))
    if spare:  # row names, as R writes them, or a last delimiter
        header = ("", *header) if any(row[-1].strip() for row in sample) else (*header, "")
    check_header(path, header, sample)
    return TextFormat(name, delimiter, header, end, first_line, last_line, spare, has_rows, is_safe, tuple(sentences))


def _csv_rows(
    path: Any, stream: TextIO, delimiter: str, first_line: int, spare: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Header and rows of a text whose first line has a number, each with the line that it ends in, without empty ones.

    All rows are wider than the header by ``spare`` cells, where it is given.
    """
    reader = csv.reader(stream, delimiter=delimiter, strict=True, skipinitialspace=delimiter == " ")
    width = 0
    try:
        for row in filter(None, reader):
            line = reader.line_num + first_line - 1
            if width and len(row) != width:
                expected = f"{width} cells as in the {'rows above' if spare else 'header'}"
                raise unexpected(f"{path} line {line}", expected, received=len(row), code="wrong-shape")
            yield line, row
            width = width or (0 if spare is None else len(row) + spare)
    except csv.Error as error:
        where = f"{path} line {reader.line_num + first_line - 1}"
        raise refused(where, f"not readable as CSV ({error})", code="damaged-file") from None


def _other_text(head: str) -> str | None:
    """What a text is that is unmistakably no table, such as JSON; a header may begin with ``<18`` or ``[0, 5)``."""
    if named := next((name for name, form in _NO_TABLES.items() if form.match(head)), None):
        return named
    if head.lstrip().startswith(("{", "[")):
        with suppress(ValueError):
            json.loads(head)
            return "JSON"
    # Blanks that align columns, as programs print tables.
    first, *below = filter(str.strip, head.splitlines())
    gaps = [_GAP.search(line) is not None for line in below[:_SAMPLE_ROWS]]
    is_aligned = _GAP.search(first) is not None and len(gaps) > 1 and sum(gaps) > 0.6 * len(gaps)
    if is_aligned and _found_delimiter(head) == "," and "," not in first:
        return _FTABLE if _is_ftable([first, *below]) else "columns of a fixed width, as R prints tables"
    return None


def _is_ftable(lines: Sequence[str]) -> bool:
    """Whether lines begin as R prints a flat table: column variables, indented, then names of row variables alone."""
    start = len(lines[0]) - len(lines[0].lstrip())
    names = next((line for line in lines[1:_SAMPLE_ROWS] if not line.startswith(" ")), "")
    return start > 0 and 0 < len(names.rstrip()) <= start


def as_text(stream: BinaryIO, encoding: str) -> io.TextIOWrapper:
    """Bytes as text with the line ends that it has."""
    return io.TextIOWrapper(stream, encoding, newline="")


def read_text(path: str | os.PathLike[str], expected: str) -> str:
    """Text of a UTF-8 file, with or without a byte-order mark; ``expected`` says in messages what it should be."""
    raw = not_empty(path, read_file(path, expected, _MOST_TEXT), expected)
    try:
        found_encoding(path, lambda: io.BytesIO(raw), "UTF-8")
    except InputError as error:
        raise error.replace(hint=f"save {expected} as UTF-8") from None
    return raw.decode("utf-8-sig")


def found_encoding(path: Any, opened: Callable[[], BinaryIO], encoding: str | None) -> tuple[str, list[str]]:
    """Encoding in which all bytes are text, and a note on it where it was found and is not UTF-8."""
    # An encoding that was named has to be one of text.
    if encoding is not None:
        try:
            io.TextIOWrapper(io.BytesIO(), encoding)  # more than codecs.lookup, which also knows rot13
        except (LookupError, ValueError):
            expected = "an encoding that Python knows, such as utf-8, cp1252, latin-1, utf-16 or shift_jis"
            raise unexpected("encoding", expected, encoding, code="unknown-choice") from None
    with opened() as stream:
        head = stream.read(_HEAD_BYTES)
    # Else the one that a mark or zero bytes state.
    marks = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    stated = encoding or next((name for mark, name in marks.items() if head.startswith(mark)), None)
    if stated is None and b"\0" in head:
        even, odd = head[::2].count(0), head[1::2].count(0)
        half = len(head) // 4
        stated = "utf-16-le" if even == 0 and odd > half else "utf-16-be" if odd == 0 and even > half else None
    # Without any the first of three in which all bytes are text, told apart from those of other languages.
    for name in [stated] if stated else ["utf-8", "cp1252", "latin-1"]:
        plain = "utf-8-sig" if name.lower().replace("_", "-") in ("utf-8", "utf8") else name
        try:
            with opened() as stream:
                _check_decoded(path, stream, plain)
        except UnicodeError as error:
            if stated is None:
                continue
            where, problem = path, f"not {name}"
            if isinstance(error, UnicodeDecodeError):
                where = f"{path} line {error.reason}"
                problem = f"not {name} (byte 0x{error.object[error.end - 1]:02x})"
            raise refused(where, problem, _SAY_ENCODING, code="wrong-encoding") from None
        if stated is None and name != "utf-8":
            # Letters beyond ASCII that are too many for Western Europe, or of DOS, are of another encoding.
            letters = sum(map(bytes.isalpha, map(bytes, zip(head, strict=True))))
            beyond = sum(byte > 0x7F for byte in head)
            is_control = any(byte < 9 for byte in head)
            if is_control or beyond > max(4, letters):
                contents = "bytes that are no text" if is_control else "mostly letters beyond ASCII, and no UTF-8"
                raise unexpected(path, "a table of text", received=contents, hint=_SAY_ENCODING, code="wrong-encoding")
            if word := _DOS.search(head):
                received = f"neither UTF-8 nor Windows-1252 (byte 0x{max(word[0]):02x}), perhaps of DOS"
                hint = "give its encoding, such as encoding='cp850', or save the file as UTF-8"
                raise unexpected(path, "a table of text", received=received, hint=hint, code="wrong-encoding")
        return plain, [name] if encoding is None and not name.startswith("utf-8") else []
    raise AssertionError


def _check_decoded(path: Any, stream: BinaryIO, name: str) -> None:
    """Raise UnicodeError unless bytes are text, without zero characters and endless lines; read piece by piece.

    The reason of the error is the number of the line.
    """
    line, length = 1, 0
    try:
        for piece in codecs.iterdecode(iter(partial(stream.read, _PIECE), b""), name):
            piece.encode()  # raises UnicodeError of halves of surrogate pairs
            if "\0" in piece:
                line += piece.count("\n", 0, piece.index("\0"))
                hint = "this is not a table of text; save it as CSV, .xlsx or .parquet"
                raise unexpected(f"{path} line {line}", "text", received="a zero byte", hint=hint, code="damaged-file")
            # A line without an end would be read as one cell.
            ends = piece.replace("\r", "\n")
            if length + len(ends.partition("\n")[0]) > _MOST_LINE:
                problem = f"a line of more than {_MOST_LINE} characters"
                raise out_of_reach(f"{path} line {line}", problem, "end the rows with line ends")
            length = len(ends.rpartition("\n")[2]) + (0 if "\n" in ends else length)
            line += piece.count("\n")
    except UnicodeDecodeError as error:
        error.reason = str(line + error.object[: error.start].count(b"\n"))
        raise


def _lines_above(head: str) -> tuple[int, int, bool, str | None]:
    """What stands above a header: its end, the number of comment lines, whether one marks safe cells, and ``sep=``."""
    skipped, is_safe = 0, False
    first = _SEP_LINE.match(head)
    end, sep = (0, None) if first is None else (first.end(), first[1])
    while line := _COMMENT.match(head, end):
        cells, below = (next(csv.reader([part]), []) for part in line.groups())
        is_header = head[end + 1 : end + 2].strip() and len(cells) == len(below) and not below[0].startswith("#")
        if not below or is_header:
            break
        is_safe |= line[1].strip('";,|\t ') == MARK
        end, skipped = line.start(2), skipped + 1
    return end, skipped, is_safe, sep


def _sample(head: str, delimiter: str) -> list[list[str]]:
    cells: list[list[str]] = []
    lines = (line[0] for line in _LINE.finditer(head))  # a stream of text would take four bytes for each character
    with suppress(csv.Error):
        rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter == " ")
        cells.extend(islice(filter(None, rows), _SAMPLE_ROWS + 1))
    return cells


def _found_delimiter(text: str) -> str:
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


def named_columns(
    path: Any, header: Sequence[str], column: Callable[[int], Iterable[str]]
) -> tuple[dict[str, int], list[str]]:
    """Places of the columns by their names, without row names and empty columns, and notes on those left out.

    ``column`` gives the cells at a place. Row names are in a first column whose name is none, or what pandas calls it
    then, and differ from each other.
    """
    # Columns without a name and without cells, such as a last delimiter makes, are left out.
    notes: list[str] = []
    positions = [i for i, name in enumerate(header) if name or any(map(str.strip, column(i)))]
    if empty := len(header) - len(positions):
        notes.append(f"{empty} empty column{'s' * (empty > 1)} without a name left out")
    # Row names are a first column without a name whose cells differ.
    is_nameless = positions[:1] == [0] and len(positions) > 1 and (not header[0] or _NAMELESS.fullmatch(header[0]))
    if is_nameless and _differ(path, column(0)):
        positions = positions[1:]
        notes.append("the first column, row names without a name of their own, left out")
    for position, i in enumerate(positions, start=1):
        if not header[i]:
            received = f"none for column {position}"
            hint = (
                "the first line must hold the names of the columns: remove lines above it (a title){}, or name it there"
            )
            # Beneath a title, which fills one cell, names stand in the first full line.
            full = _first_full_line(column(j) for j in positions) if sum(map(bool, header)) == 1 else None
            hint = hint.format("" if full is None else f", since the names seem to be {full}")
            raise unexpected(path, "a name for every column", received=received, hint=hint, code="missing-part")
    check_unique([header[i] for i in positions], f"{path} header", "rename or remove one of them")
    return {header[i]: i for i in positions}, notes


def _first_full_line(columns: Iterable[Iterable[str]]) -> str | None:
    """The first of some rows whose cells are all full, different words and no numbers, as words to name it by."""
    for cells in islice(zip(*columns, strict=True), _SAMPLE_ROWS):
        words = [cell.strip() for cell in cells]
        if all(words) and len({*words}) == len(words) and not any(word[0].isdigit() for word in words):
            return f"{', '.join(map(repr, words[:3]))}{', ...' if len(words) > 3 else ''}"
    return None


def _differ(path: Any, cells: Iterable[str]) -> bool:
    """Whether no two cells are equal; numbers that count rows need no memory."""
    # Row numbers need no memory, since they follow each other.
    counted, others = range(0), set[str]()
    for cell in map(str.strip, cells):
        number = int(cell) if _COUNT.fullmatch(cell) else -1
        if number in counted or cell in others:
            return False
        if number == counted.stop or (number >= 0 and not counted):
            counted = range(counted.start if counted else number, number + 1)
        else:
            others.add(cell)
            if len(others) > _MOST_NAMES:
                raise out_of_reach(path, f"more than {_MOST_NAMES} names of rows", "remove the first column")
    return True


def check_header(path: Any, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Refuse a first line that is no header but a row of numbers, such as the first ``rows`` hold."""
    named = [name for name in header if name]
    is_numbered = named in ([*map(str, range(len(named)))], [*map(str, range(1, len(named) + 1))])
    if named and all(map(_NUMBER.fullmatch, named)) and not is_numbered:
        columns = zip_longest(*islice(rows, _SAMPLE_ROWS), fillvalue="")
        times = sum(name in map(str.strip, column) for name, column in zip(header, columns, strict=False) if name)
        if len(set(named)) < len(named) or 2 * times > len(named):
            hint = "add a first line with the names of the columns"
            raise unexpected(path, "a header", received="numbers in the first line", hint=hint, code="missing-part")


def comma_numbers(cells: Iterable[str]) -> bool | None:
    """Whether some of the cells have a decimal comma; None where one is neither a number nor empty."""
    numbers = [cell for cell in cells if cell]
    return any("," in cell for cell in numbers) if all(map(_DECIMAL_COMMA.fullmatch, numbers)) else None
