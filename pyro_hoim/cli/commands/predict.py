"""``predict``: one column of a file from the others."""

from __future__ import annotations

from pathlib import Path

import click
import torch

from ...core.prediction import Prediction, extend_rows
from ...core.rows import RowMethod
from ...data.observations import Observations
from ...errors import check_names, conflict
from ...log_linear.predictions import predict as predict_rows
from ...report.words import against_majority, plural
from ..impossible import impossible_rows
from ..labels import read_known
from ..model import (
    DATA,
    JSON,
    MISSING,
    MODEL,
    VOCAB,
    check_no_vocab,
    check_target_file,
    energy_of,
    is_network,
    is_roots,
    number_text,
    read_model,
)
from ..options import SEED
from ..output import echo_json, whole
from ..seen import score_seen, seen_lines
from .use import note_approximate

__all__ = ["predict"]


@click.command()
@MODEL
@DATA
@click.option("--target", required=True, metavar="COL", help="The column to predict.")
@click.option(
    "--method",
    type=click.Choice(["auto", "exact", "gibbs"]),
    default="auto",
    show_default=True,
    help="How to sum over other cells that are missing. exact: exactly or not at all; gibbs: averages over Markov "
    "chains; auto: exact where a row takes about a tenth of a second at most, else gibbs, and says so.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of gibbs.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE.csv", help="Write the prediction of every row here."
)
@MISSING
@VOCAB
@JSON
def predict(
    model: Path,
    file: Path,
    target: str,
    method: RowMethod,
    seed: int,
    out: Path | None,
    missing: tuple[str, ...],
    vocab: Path | None,
    as_json: bool,
) -> None:
    """Predict column COL of FILE from its other columns and compare with what the file says.

    FILE may leave COL out, or some of its cells empty: those rows are predicted (--out writes predictions and
    probabilities) but not scored. A row with a label that the
    model does not know has no prediction and is counted; --missing LABEL makes the label missing.
    With all other cells known a prediction is exact for models of any size.

    Of a generalized root model: the mean of the column given all others, exact, and its errors.
    """
    check_target_file(out)
    if is_roots(model):
        from ..by_family.grm_use import predict_with_roots

        if missing or method == "gibbs":
            name = "--missing" if missing else "--method gibbs"
            raise conflict(name, "not for a generalized root model, whose rows must be complete")
        predict_with_roots(model, file, vocab, target, out, as_json)
        return
    check_no_vocab(vocab)
    if is_network(model):
        from ..by_family.network_use import predict_with_network

        found, parts, unseen = predict_with_network(model, file, target, method, seed, missing)
        approximate = int((~found.is_exact).sum())
    else:
        stored = read_model(model)
        energy = energy_of(stored)
        check_names([target], energy.domain.names, "--target")
        data, unseen = read_known(energy.domain, file, missing, optional=target)

        def predicted(part: Observations) -> Prediction:
            every = predict_rows(energy, part, target, method=method, seed=seed)
            return every.without(impossible_rows(stored, extend_rows(part, energy.domain), target))

        found = predicted(data)
        approximate = int((~found.is_exact & found.is_predicted).sum())
        note_approximate(approximate, "predicted")

        def of_part(part: Observations) -> dict[str, float | None]:
            return {"accuracy": predicted(part).accuracy}

        parts = score_seen(stored.info, data, of_part)
    if out is not None:
        unseen.spread(found.to_pandas()).to_csv(out, index=False, lineterminator="\n")
    if as_json:
        echo_json(
            {
                "target": target,
                "accuracy": found.accuracy,
                "majority_accuracy": found.majority_accuracy,
                "majority_p_value": found.majority_p_value,
                "rows": whole(found.rows),
                "log_loss": found.log_loss,
                "class_accuracy": found.class_accuracy,
                "predicted_rows": int(found.is_predicted.sum()),
                "impossible_rows": int((~found.is_predicted).sum()),
                "approximate_rows": approximate,
                "kind": found.kind,
                "parts": parts,
                **unseen.to_json(),
            }
        )
        return
    told = unseen.lines("they have no prediction, and none of the figures holds for them")
    click.echo("\n".join([*_describe_prediction(found), *told, *seen_lines(parts, "accuracy")]))
    if out is not None:
        click.echo(f"{plural(int(found.is_predicted.sum()), 'prediction')} written to {out}")


def _beside_majority(found: Prediction) -> str:
    names = ("accuracy", "majority_accuracy", "majority_p_value")
    words = against_majority({name: getattr(found, name) for name in names})
    return f" (the accuracy is {words})" if words else ""


def _describe_prediction(found: Prediction) -> list[str]:
    """Lines for a reader."""
    lines = [f"target             {found.target}", f"rows               {found.rows:g}"]
    if not bool(found.is_predicted.all()):
        number = int((~found.is_predicted).sum())
        lines.append(f"not predicted      {plural(number, 'row')} whose other cells have probability zero together")
    if not found.rows:
        shares = torch.bincount(found.codes[found.is_predicted], minlength=len(found.labels)).tolist()
        return [
            *lines,
            "accuracy           not available (no row has a known value of the target)",
            *(f"predicted          {label}: {plural(n, 'row')}" for label, n in zip(found.labels, shares, strict=True)),
        ]
    lines += [
        f"accuracy           {found.accuracy:.4f}",
        f"majority accuracy  {found.majority_accuracy:.4f}" + _beside_majority(found),
        f"log loss           {number_text(found.log_loss)} nats",
    ]
    totals = found.confusion.sum(1).tolist()
    for (label, share), total in zip(found.class_accuracy.items(), totals, strict=True):
        if total:
            lines.append(f"  {label}: {share:.4f} of {total:g} recognised")
    return lines
