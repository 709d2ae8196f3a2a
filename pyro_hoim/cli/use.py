"""``sample``, ``score`` and ``predict``: use a fitted model."""

from __future__ import annotations

import math
from pathlib import Path

import click
import torch

from ..analysis import matches_any, prediction_accuracy, score_rows
from ..data import Observations
from ..errors import InputError, check_names
from ..learning import Combination
from ..model_file import ModelFile, load_model
from ..models import LogLinearEnergy
from ..partition import Auto
from .output import echo_json, whole

__all__ = ["predict", "sample", "score"]

MODEL = click.argument("model", type=click.Path(path_type=Path))
DATA = click.argument("file", type=click.Path(path_type=Path))
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
MISSING = click.option(
    "--missing", multiple=True, metavar="LABEL", help="Cells with this label are missing, as empty cells are."
)


def read_model(path: Path) -> ModelFile:
    """A model file, or the one in a folder that ``fit`` wrote."""
    return load_model(path / "model.safetensors" if path.is_dir() else path)


def energy_of(stored: ModelFile) -> LogLinearEnergy:
    """The energy of a model file, in float64 balanced tables."""
    return LogLinearEnergy.from_theta(stored.hypergraph, stored.theta, stored.coding)


def _num_impossible(stored: ModelFile, data: Observations) -> float:
    """Rows that hold a combination to which the infinite estimate behind the model gives probability zero."""
    found = [Combination(tuple(c["edge"]), tuple(c["levels"])) for c in stored.info.get("infinite_combinations", [])]
    total = stored.info.get("num_infinite_combinations", len(found))
    if total > len(found):
        click.echo(
            f"pyro-hoim: warning: the model file names only {len(found)} of {total} combinations of probability zero; "
            "rows with one of the others get a very small probability instead",
            err=True,
        )
    return float(data.counts[matches_any(data.codes, data.domain, found)].sum())


def read_for(model: LogLinearEnergy, file: Path, missing: tuple[str, ...] = ()) -> Observations:
    """Rows of a CSV file over the model's variables; unknown labels are refused."""
    return Observations.from_csv(file, domain=model.domain, missing_values=("", *missing))


@click.command(short_help="Draw rows from a model.")
@MODEL
@click.option("-n", "number", type=click.IntRange(0), required=True, metavar="N", help="How many rows.")
@click.option("--given", multiple=True, metavar="COL=VALUE", help="Fix a column; may be given several times.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the draws.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.csv", help="Write here instead of printing.")
def sample(model: Path, number: int, given: tuple[str, ...], seed: int, out: Path | None) -> None:
    """Draw independent rows from MODEL, exactly (no Markov chain), as CSV."""
    stored = read_model(model)
    energy = energy_of(stored)
    evidence: dict[str, int] = {}
    for text in given:
        name, equals, label = text.partition("=")
        if not equals:
            raise InputError(f"--given: expected COL=VALUE, received {text!r}")
        check_names([name], energy.domain.names, "--given")
        if name in evidence:
            raise InputError(f"--given: column {name!r} is fixed twice")
        evidence.update(energy.domain.encode_state({name: label}))
    if out is not None and out.exists():
        raise InputError(f"--out: {out} exists; choose another file")
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"--out: the folder {out.absolute().parent} does not exist")
    rest, _ = energy.condition(evidence)
    drawn = Auto().sample(rest, (number,), generator=torch.Generator().manual_seed(seed))
    codes = torch.empty((number, len(energy.domain)), dtype=torch.long)
    for column, name in enumerate(energy.domain.names):
        codes[:, column] = evidence[name] if name in evidence else drawn[:, rest.domain.index(name)]
    frame = Observations.from_tensor(codes, energy.domain).to_pandas(count=None)
    if out is None:
        click.echo(frame.to_csv(index=False, lineterminator="\n"), nl=False)
    else:
        frame.to_csv(out, index=False, lineterminator="\n")
        click.echo(f"{number} rows written to {out}")


@click.command(short_help="Log-likelihood of the rows of a file.")
@MODEL
@DATA
@MISSING
@JSON
def score(model: Path, file: Path, missing: tuple[str, ...], as_json: bool) -> None:
    """Mean negative log-likelihood of the rows of FILE under MODEL, and KL to their empirical law, in nats a row.

    Missing cells are summed over. The KL divergence needs complete rows.
    """
    stored = read_model(model)
    energy = energy_of(stored)
    data = read_for(energy, file, missing)
    if not data.total_count > 0:
        raise InputError(f"{file}: expected at least one observation, received counts that sum to zero")
    values = score_rows(energy, data)
    impossible = _num_impossible(stored, data)
    nll = math.inf if impossible else values.nll
    kl = math.inf if impossible and values.kl is not None else values.kl
    result = {
        "rows": whole(values.rows),
        "impossible_rows": whole(impossible),
        "nll": nll,
        "kl": kl,
        "nll_std_error": math.inf if impossible else values.nll_std_error,
        "log_z_std_error": 0.0,
        "pseudo_nll": values.pseudo_nll,
    }
    if as_json:
        echo_json(result)
        return
    click.echo(f"rows                {values.rows:g}")
    if impossible:
        click.echo(f"impossible rows     {impossible:g} (a combination never seen when the model was fitted)")
    click.echo(f"NLL per row         {_text(nll)} nats (standard error over rows {_text(values.nll_std_error)})")
    click.echo(f"KL to the file      {_text(kl)}" + (" nats" if kl is not None else ""))
    click.echo(f"pseudo-NLL per row  {_text(values.pseudo_nll)} nats")


def _text(value: float | None) -> str:
    """Six significant digits, or why there is no number."""
    if value is None:
        return "not available (missing cells)"
    return "infinite" if math.isinf(value) else f"{value:.6g}"


@click.command(short_help="Predict one column from the others.")
@MODEL
@DATA
@click.option("--target", required=True, metavar="COL", help="The column to predict.")
@MISSING
@JSON
def predict(model: Path, file: Path, target: str, missing: tuple[str, ...], as_json: bool) -> None:
    """Predict column COL of FILE from its other columns and compare with what the file says."""
    stored = read_model(model)
    energy = energy_of(stored)
    check_names([target], energy.domain.names, "--target")
    data = read_for(energy, file, missing)
    result = prediction_accuracy(energy, data, target)
    result["rows"] = whole(result["rows"])
    if as_json:
        echo_json(result)
        return
    click.echo(f"target             {target}")
    click.echo(f"rows               {result['rows']:g}")
    click.echo(f"accuracy           {result['accuracy']:.4f}")
    click.echo(f"majority accuracy  {result['majority_accuracy']:.4f}")
