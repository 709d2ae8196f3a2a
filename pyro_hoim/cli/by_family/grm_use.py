"""The commands on the model file of a generalized root model: ``sample``, ``score``, ``predict``, ``log-z``, ..."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from ...core.partition import LogPartition
from ...core.scores import mean_gain
from ...data.counts import CountTable
from ...errors import InputError, IntractableError, check_names, none_received, out_of_range
from ...generalized_root.nodes.families import NodeFamily
from ...generalized_root.regress.result import RootTerm
from ...generalized_root.study.analysis import standardise_term
from ...generalized_root.study.baselines import kept_independent
from ...generalized_root.study.scores import RootModel, RootPrediction, draw_roots, exact_log_partition, predict_roots
from ...report.words import coefficient, gain_sentence, plural, short_edge
from ..count_reading import read_counts_for, read_counts_without
from ..methods import describe_log_z, is_terminal, root_log_z_of
from ..model import check_target_file, number_text, parse_values, read_roots, write_rows
from ..output import echo_json
from ..seen import score_seen, seen_lines
from .grm import tuple_json

__all__ = ["predict_with_roots", "root_interactions", "root_log_z", "sample_roots", "score_with_roots"]

_BURN_IN = 200
_ROWS = 4096  # of a file, to choose starts of a search from
_EDGE = 48  # characters


def _model(path: Path) -> RootModel:
    """The model of a file, with the columns that are no part of it."""
    return RootModel.from_file(read_roots(path))


def _check_evidence(values: dict[str, float], family: NodeFamily) -> None:
    low, high = (-math.inf, math.inf) if family.name == "gaussian" else (0.0, family.largest_value)
    for name, value in values.items():
        is_whole = not family.is_discrete or value == math.floor(value)
        if not math.isfinite(value) or not low <= value <= high or not is_whole:
            expected = "a finite number" if math.isinf(low) else "a number from 0"
            if family.is_discrete:
                expected = "a whole number from 0" + (f" to {high:.0f}" if math.isfinite(high) else "")
            raise out_of_range("--given", f"{expected} for {name!r}", received=f"{value:g}")


def sample_roots(
    model: Path,
    number: int,
    given: tuple[str, ...],
    method: Literal["auto", "exact", "gibbs"],
    burn_in: int | None,
    seed: int,
    out: Path | None,
) -> None:
    """Draw rows: exactly where the model allows, else by one Gibbs chain a row, and say so.

    Raises:
        InputError: values of ``--given`` that are impossible.
        IntractableError: ``--method exact`` and no exact method.
    """
    found = _model(model)
    evidence = parse_values(given, found.domain)
    _check_evidence(evidence, found.energy.family)
    check_target_file(out)
    try:
        with tqdm(total=number, unit="row", desc="gibbs", disable=not is_terminal(), leave=False) as bar:
            drawn = draw_roots(
                found,
                number,
                given=evidence,
                method=method,
                burn_in=_BURN_IN if burn_in is None else burn_in,
                seed=seed,
                advance=bar.update,
            )
    except IntractableError as error:
        raise IntractableError(f"--{error}; --method gibbs draws approximately, at any size") from error
    except InputError as error:
        raise InputError(f"--{error}" if str(error).startswith("given") else f"{model}: {error}") from error
    if not drawn.is_exact:
        click.echo(
            "pyro-hoim: note: the rows are approximate: each is the last state of a Gibbs chain of its own "
            f"({plural(drawn.burn_in, 'sweep')} of burn-in from the model without interactions); compare with a "
            "longer --burn-in",
            err=True,
        )
    values = drawn.values.numpy()
    if found.energy.family.is_discrete:
        values = values.astype(np.int64)
    write_rows(pd.DataFrame(values, columns=list(found.domain.names)), out)


def root_log_z(
    model: Path, method: str, chains: int | None, temperatures: str | None, seed: int | None
) -> LogPartition:
    """Log Z of the model in a file (of its columns that are not fixed).

    Raises:
        InputError: a model without a finite constant.
        IntractableError: exact methods are asked for and exceed their budget; names the alternative.
    """
    return root_log_z_of(_model(model).energy, method, chains, temperatures, seed)


def score_with_roots(
    model: Path,
    file: Path,
    vocab: Path | None,
    method: str,
    chains: int | None,
    temperatures: str | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Gain over independent columns and pseudo-NLL of rows, and NLL and KL where log Z is exact or was asked for.

    Raises:
        InputError: no rows, missing columns, or values that the family does not take.
        IntractableError: ``--method exact`` without an exact log Z.
    """
    stored = read_roots(model)
    found = RootModel.from_file(stored)
    table = read_counts_for(found.domain.names, file, vocab, found.energy.family)
    if not table.num_rows:
        raise none_received(file, "at least one observation")
    if method == "auto" and chains is None and temperatures is None and seed is None:
        log_z, reason = exact_log_partition(found.energy)
    else:
        starts = found.some_rows(table, _ROWS) if method == "ais" and found.energy.family.is_discrete else None
        log_z, reason = root_log_z_of(found.energy, method, chains, temperatures, seed, starts), ""
    value = None if log_z is None else float(log_z.value)
    scores, law = found.scores(table, value), kept_independent(stored, found.domain)

    def gain_of(rows: CountTable) -> dict[str, float | None]:
        if law is None:
            return {"gain": None, "gain_std_error": None}
        own, alone = torch.as_tensor(found.log_pseudo_prob(rows)), torch.as_tensor(law.log_prob(rows))
        return dict(zip(("gain", "gain_std_error"), mean_gain(own, alone, torch.ones(len(own)).double()), strict=True))

    def of_part(part: CountTable) -> dict[str, float | None]:
        its = found.scores(part, value)
        return {**gain_of(part), "nll": its.nll, "pseudo_nll": its.pseudo_nll}

    gain = gain_of(table)

    parts = score_seen(stored.info, table, of_part)
    if as_json:
        echo_json(
            {
                "rows": scores.rows,
                "impossible_rows": scores.impossible_rows,
                **gain,
                "nll": scores.nll,
                "kl": scores.kl,
                "nll_std_error": scores.nll_std_error,
                "log_z_std_error": None if log_z is None else float(log_z.std_error),
                "log_z_kind": None if log_z is None else log_z.kind,
                "log_z_method": None if log_z is None else log_z.method,
                "log_z_verdict": None if log_z is None else log_z.verdict,
                "log_z_notes": [] if log_z is None else list(log_z.notes),
                "pseudo_nll": scores.pseudo_nll,
                "pseudo_nll_std_error": scores.pseudo_nll_std_error,
                "parts": parts,
            }
        )
        return
    if law is not None:
        measure = "log pseudo-likelihood (every cell given all others)"
        click.echo(gain_sentence("file's", "model", gain["gain"], gain["gain_std_error"], measure))
    click.echo(f"rows                {scores.rows:.12g}")
    if scores.impossible_rows:
        click.echo(f"impossible rows     {scores.impossible_rows:.12g} (new values in columns that held one only)")
    error = number_text(scores.pseudo_nll_std_error)
    click.echo(f"pseudo-NLL per row  {number_text(scores.pseudo_nll)} nats (standard error over rows {error})")
    why = reason or "no log Z"
    click.echo(f"NLL per row         {number_text(scores.nll, why)}" + (" nats" if scores.nll is not None else ""))
    for line in seen_lines(parts, *([] if law is None else ["gain"]), "pseudo_nll"):
        click.echo(line)
    if log_z is not None and log_z.kind != "exact":
        click.echo("\n".join(describe_log_z(log_z)))


def predict_with_roots(
    model: Path, file: Path, vocab: Path | None, target: str, out: Path | None, as_json: bool
) -> None:
    """Mean of a column given all others, and how far from it the file's values are.

    Raises:
        InputError: a bad file.
        UnknownNameError: no such column.
    """
    stored = read_roots(model)
    found = RootModel.from_file(stored)
    check_names([target], found.domain.names, "--target")
    table, is_known = read_counts_without(found.domain.names, file, vocab, found.energy.family, target)
    result = predict_roots(found, table, target, is_known=is_known)
    if out is not None:
        frame = pd.DataFrame({"mean": result.mean, "std": result.std})
        if result.values is not None:
            frame.insert(0, target, result.values)
        frame.to_csv(out, index=False, lineterminator="\n")
    parts = None
    if is_known:
        parts = score_seen(stored.info, table, lambda part: {"rmse": predict_roots(found, part, target).rmse})
    if as_json:
        echo_json(
            {
                "target": target,
                "accuracy": None,
                "majority_accuracy": None,
                "rows": table.num_rows if is_known else 0,
                "rmse": result.rmse,
                "mae": result.mae,
                "mean_rmse": result.mean_rmse,
                "log_loss": result.log_loss,
                "mean_prediction": float(result.mean.mean()) if len(result.mean) else None,
                "predicted_rows": table.num_rows,
                "approximate_rows": 0,
                "kind": "exact",
                "parts": parts,
            }
        )
        return
    click.echo("\n".join([*_describe(result, table.num_rows), *seen_lines(parts, "rmse")]))
    if out is not None:
        click.echo(f"{plural(table.num_rows, 'prediction')} written to {out}")


def _describe(found: RootPrediction, rows: int) -> list[str]:
    """Lines for a reader."""
    lines = [f"target           {found.target}", f"rows             {rows:.12g}"]
    if rows:
        lines.append(f"mean prediction  {number_text(float(found.mean.mean()))}")
    if found.values is None:
        return [*lines, "error            not available (the file has no column of the target)"]
    return [
        *lines,
        f"RMSE             {number_text(found.rmse)} (always the mean of the file: {number_text(found.mean_rmse)})"
        + ("; no better" if (found.rmse or 0.0) >= (found.mean_rmse or 0.0) else ""),
        f"mean error       {number_text(found.mae)}",
        f"log loss         {number_text(found.log_loss)} nats",
    ]


def root_interactions(model: Path, top: int | None, as_json: bool) -> None:
    """Tuples of two and more columns by the size of their coefficients, of real numbers per standard deviation."""
    stored = read_roots(model)
    energy = RootModel.from_file(stored).energy
    scales: dict[str, float] = stored.info.get("scales", {})
    values: list[float] = energy.coefficients.tolist()
    terms = [RootTerm(key, names, value) for (key, names), value in zip(energy.structure.names, values, strict=True)]
    pairs = [(term, standardise_term(term, scales)) for term in terms if term.key[1] > 1]
    pairs = sorted(pairs, key=lambda pair: -abs(pair[1].coefficient))[:top]
    rows: list[dict[str, Any]] = [tuple_json(term) for term, _ in pairs]
    if scales:
        rows = [{**row, "standardised": own.coefficient} for row, (_, own) in zip(rows, pairs, strict=True)]
    if as_json:
        echo_json({"interactions": rows})
        return
    if not rows:
        click.echo("no interactions")
        return
    names = [short_edge(row["edge"], _EDGE) for row in rows]
    width = max(len(n) for n in [*names, "interaction"])
    click.echo(f"{'interaction':<{width}}  {'     per SD  ' if scales else ''}coefficient  tensor entry  root")
    for name, row in zip(names, rows, strict=True):
        shown = f"{coefficient(row['standardised']):>11}  " if scales else ""
        shown += f"{coefficient(row['coefficient']):>11}  {coefficient(row['value']):>12}"
        click.echo(f"{name:<{width}}  {shown}  {row['root']:>4}")
    if scales:
        click.echo(
            "(per SD: of columns divided by their standard deviations among the training rows; coefficient and tensor "
            "entry are in units of the columns)"
        )
    elif energy.family.name == "gaussian":
        click.echo("(in units of the columns: the model file does not hold their standard deviations)")
