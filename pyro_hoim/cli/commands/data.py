"""``data``: an embedded table or a public data set as CSV."""

import csv
import io
from pathlib import Path

import click

from ...atomic import write_file
from ...core.words import plural
from ...data.files.safe_cells import safe_rows, warn_of_formulas
from ...datasets.embedded import load_table, tables
from ...datasets.files import data_file, dataset_files
from ...errors import check_names
from ..asking import SAFE_CSV, check_new_file, show_csv, write_csv
from ..options import Command
from ..output import say


@click.command(cls=Command)
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.csv", help="Write here instead of printing.")
@SAFE_CSV
def data(name: str, out: Path | None, safe_csv: bool) -> None:
    """Print an embedded table or a public data set as CSV: ``pyro-hoim data mushroom > mushroom.csv``.

    A table has one line per cell with a column named count. A public data set has one line per observation, as it was
    published; it is downloaded once, and its checksum is verified every time.
    """
    # Everything that may be wrong is found before a file is made.
    embedded = [info.name for info in tables()]
    check_names([name], [*embedded, *(info.name for info in dataset_files())], "NAME", noun="data set")
    check_new_file(out)
    if name in embedded:
        frame = load_table(name).to_pandas()
        write_csv(frame, out, safe_csv)
        lines = len(frame)
    else:
        text = data_file(name).read_text(encoding="utf-8")
        rows = list(csv.reader(text.splitlines(keepends=True)))
        head, written, formulas = safe_rows(rows, safe_csv)
        if head:
            buffer = io.StringIO()
            csv.writer(buffer, lineterminator="\n").writerows(written)
            text = head + buffer.getvalue()
        show_csv(text) if out is None else write_file(out, text)
        warn_of_formulas(formulas, "--safe-csv")
        lines = len(rows) - 1
    if out is not None:
        say(f"{plural(lines, 'line')} below the header written to {out}")
