"""Tables of text: pandas reads what loads alike, and a table that was written by the rules comes back."""

import csv
import io
import string

import pandas as pd
from harness import Reader
from hypothesis import strategies as st
from mutations import mutate_bytes

from pyro_hoim.data import CountTable, Observations, read_table_file

SEEDS = [
    b"a,b,c\n1,x,yes\n2,y,no\n1,x,no\n",
    b'"a b","c,d",count\r\n"x ""y""",1,3\r\n z ,2,4\r\n',
    b"a;b\n1,5;2\n2,5;3\n",
    b"sep=;\na;b\n1;2\n3;4\n",
    b"# note\na\tb\n1\t2\n\n3\t4\n",
    b"a b c\n1 2 3\n4 5 6\n",
    "größe,b\nå,ß\nœ,☃\n".encode(),
    "größe,b\nå,ß\nñ,é\n".encode("cp1252"),
    "a,b\n1,2\n3,4\n".encode("utf-16"),
    b"\xef\xbb\xbfa|b|weight\n1|2|0.5\n3|4|1e3\n",
    b",a,b\n1,x,y\n2,x,z\n",
    b"a,b,count\n0,1,9007199254740992\n1,0,1e15\n",
]


def draw(rng):
    return mutate_bytes(rng, rng.choice(SEEDS) * rng.choice([1, 1, 1, 3]))


def by_pandas(data, encoding, delimiter=","):
    """Header and columns as pandas reads them."""
    options = {"index_col": False, "dtype": str, "keep_default_na": False, "skip_blank_lines": True}
    frame = pd.read_csv(io.BytesIO(data), header=None, encoding=encoding, sep=delimiter, **options)
    rows = [[str(cell).strip() for cell in row] for row in frame.itertuples(index=False)]
    return tuple(rows[0]), [tuple(column) for column in zip(*rows[1:], strict=True)]


def read_strict(data, folder):
    """A CSV file of UTF-8."""
    path = folder / "t.csv"
    path.write_bytes(data)
    table = read_table_file(path, sep=",", encoding="utf-8")
    if table.notes:  # what is not read as it stands there
        return
    if len(table.header) > 1 or "" not in table.columns[0]:  # pandas leaves out lines of blanks
        assert (table.header, [*table.columns]) == by_pandas(data, "utf-8-sig")


def read_found(data, folder):
    """A file of any delimiter and encoding, then its rows as observations."""
    path = folder / "t.csv"
    path.write_bytes(data)
    table = read_table_file(path)
    assert len({len(column) for column in table.columns}) == 1 and len(table.columns) == len(table.header)
    rows = Observations.from_csv(table)
    back = rows.to_pandas(count=None).astype(object).fillna("")
    for name in rows.domain.names:
        assert [str(cell) for cell in back[name]] == [*table.column(name)]


def read_numbers(data, folder):
    """A file of counts."""
    path = folder / "t.csv"
    path.write_bytes(data)
    table = CountTable.from_csv(path)
    cells = read_table_file(path)
    if table.num_rows == len(cells.lines):
        assert table.to_array().tolist() == [
            [float(cells.column(n)[i]) for n in table.domain.names] for i in range(table.num_rows)
        ]


CELL = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8).map(str.strip)
DELIMITERS = st.sampled_from([",", ";", "\t", "|", "^"])


@st.composite
def written(draw):
    """A table, its delimiter, its encoding and how it is written."""
    width = draw(st.integers(2, 5))
    header = draw(
        st.lists(st.text(string.ascii_letters, min_size=1, max_size=6), min_size=width, max_size=width, unique=True)
    )
    rows = draw(st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1, max_size=8))
    sep = draw(DELIMITERS)
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32-le"]))
    return (
        header,
        rows,
        sep,
        encoding,
        draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])),
    )


def read_back(case, folder):
    """What a program wrote by the rules is read as it was, whatever the cells hold; nothing is refused."""
    header, rows, sep, encoding, end, quoting = case
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=sep, quoting=quoting, lineterminator=end).writerows([header, *rows])
    path = folder / "t.csv"
    path.write_bytes(out.getvalue().encode(encoding))
    try:
        table = read_table_file(path, sep=sep, encoding=encoding)
    except ValueError as error:
        raise AssertionError(f"refused: {error}") from error
    columns = [tuple(column) for column in zip(*rows, strict=True)]
    if "decimal commas" in " ".join(table.notes):  # only where cells are not divided by commas
        assert sep != ","
        columns = [
            tuple(found) if "," in "".join(cells) and "," not in "".join(found) else cells
            for cells, found in zip(columns, table.columns, strict=True)
        ]
    assert (table.header, [*table.columns]) == (tuple(header), columns)


READERS = [
    Reader("CSV, strict", read_strict, draw),
    Reader("CSV, TSV and other text", read_found, draw),
    Reader("CSV of numbers", read_numbers, draw),
    Reader("CSV, written and read back", read_back, written(), 0.5),
]
