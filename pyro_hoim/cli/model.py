"""What the commands on a model share: its file, rows for it, and where rows are written."""

from __future__ import annotations

import math
from pathlib import Path

import click
import pandas as pd

from ..dependency_network.file import NetworkFile, load_network
from ..errors import check_names, conflict, out_of_range, refused, unexpected
from ..generalized_root.file import RootFile, load_roots
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.file import ModelFile, load_model, model_kind
from ..report.words import plural
from ..schema import Domain

__all__ = [
    "DATA",
    "JSON",
    "MISSING",
    "MODEL",
    "VOCAB",
    "check_no_vocab",
    "check_target_file",
    "energy_of",
    "is_network",
    "is_roots",
    "number_text",
    "parse_given",
    "parse_values",
    "read_model",
    "read_network",
    "read_roots",
    "write_rows",
]

MODEL = click.argument("model", type=click.Path(path_type=Path))
DATA = click.argument("file", type=click.Path(path_type=Path))
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
VOCAB = click.option(
    "--vocab",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Column names of a .npz FILE for a generalized root model.  [default: the same name with _vocab.txt]",
)
MISSING = click.option(
    "--missing", multiple=True, metavar="LABEL", help="Cells with this label are missing, as empty cells are."
)


def _file_of(path: Path) -> Path:
    """A model file, or the one in a folder that ``fit`` wrote."""
    return path / "model.safetensors" if path.is_dir() else path


def is_network(path: Path) -> bool:
    """Whether a model file, or the one in a folder, holds a dependency network.

    Raises:
        ModelFileError: no readable model file.
    """
    return model_kind(_file_of(path)) == "dependency-network"


def is_roots(path: Path) -> bool:
    """Whether a model file, or the one in a folder, holds a generalized root model.

    Raises:
        ModelFileError: no readable model file.
    """
    return model_kind(_file_of(path)) == "generalized-root"


def read_model(path: Path) -> ModelFile:
    """A log-linear model from its file or the folder that ``fit`` wrote."""
    return load_model(_file_of(path))


def read_network(path: Path) -> NetworkFile:
    """A dependency network from its file or the folder that ``fit`` wrote."""
    return load_network(_file_of(path))


def read_roots(path: Path) -> RootFile:
    """A generalized root model from its file or the folder that ``fit`` wrote."""
    return load_roots(_file_of(path))


def energy_of(stored: ModelFile) -> LogLinearEnergy:
    """The energy of a model file, in float64 balanced tables."""
    return LogLinearEnergy.from_theta(stored.hypergraph, stored.theta, stored.coding)


def parse_given(given: tuple[str, ...], domain: Domain) -> dict[str, int]:
    """Codes of the columns that ``--given`` fixes.

    Raises:
        InputError: no COL=VALUE, or a column that is fixed twice.
        UnknownNameError: an unknown column or label.
    """
    return domain.encode_state(_words_given(given, domain))


def parse_values(given: tuple[str, ...], domain: Domain) -> dict[str, float]:
    """Numbers at which ``--given`` holds columns of counts or real numbers.

    Raises:
        InputError: no COL=VALUE, a column that is fixed twice, or no number.
        UnknownNameError: an unknown column.
    """
    found: dict[str, float] = {}
    for name, word in _words_given(given, domain).items():
        try:
            found[name] = float(word)
        except ValueError:
            raise out_of_range("--given", f"a number for {name!r}", word) from None
    return found


def _words_given(given: tuple[str, ...], domain: Domain) -> dict[str, str]:
    """What stands behind the equals signs, by column."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, word = text.partition("=")
        if not equals:
            raise unexpected("--given", "COL=VALUE", text)
        check_names([name], domain.names, "--given")
        if name in found:
            raise refused("--given", f"column {name!r} is fixed twice", code="repeated-name")
        found[name] = word
    return found


def check_no_vocab(vocab: Path | None) -> None:
    """Refuse ``--vocab`` with a model of labelled columns."""
    if vocab is not None:
        raise conflict("--vocab", "belongs to a .npz file for a generalized root model")


def check_target_file(out: Path | None) -> None:
    """Refuse a file that exists or cannot be made."""
    if out is not None and out.exists():
        raise refused("--out", f"{out} exists", "choose another file", code="existing-file")
    if out is not None and not out.absolute().parent.is_dir():
        raise refused("--out", f"the folder {out.absolute().parent} does not exist", code="no-file")


def write_rows(frame: pd.DataFrame, out: Path | None) -> None:
    """Rows as CSV, to a file or to standard output."""
    if out is None:
        click.echo(frame.to_csv(index=False, lineterminator="\n"), nl=False)
    else:
        frame.to_csv(out, index=False, lineterminator="\n")
        click.echo(f"{plural(len(frame), 'row')} written to {out}")


def number_text(value: float | None, missing: str = "missing cells") -> str:
    """Six significant digits, or why there is no number."""
    if value is None:
        return f"not available ({missing})"
    return "infinite" if math.isinf(value) else f"{value:.6g}"
