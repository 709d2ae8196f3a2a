"""The commands on the model file of a generalized root model."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from ...core.family import Answer, Question, Stored
from ...core.partition import LogPartition
from ...core.scores import mean_gain
from ...core.words import PSEUDO, coefficient, columns_of, gain_sentence, plural, short_edge
from ...data.counts import CountTable
from ...errors import InputError, IntractableError, out_of_range, refused
from ...generalized_root.annealed.importance import RootAnnealed
from ...generalized_root.auto import RootAuto
from ...generalized_root.file import load_roots
from ...generalized_root.nodes.families import NodeFamily
from ...generalized_root.regress.result import RootTerm
from ...generalized_root.study.analysis import standardise_term
from ...generalized_root.study.baselines import kept_independent
from ...generalized_root.study.scores import RootModel, RootPrediction, draw_roots, exact_log_partition, predict_roots
from ..count_reading import check_support
from ..methods import describe_log_z, log_z_json, log_z_of, number_text
from .grm import tuple_json

__all__ = ["draw", "interactions", "load", "log_z", "predict", "score"]

_BURN_IN = 200
_ROWS = 4096  # of a file, to choose starts of a search from
_EDGE = 48  # characters


def load(path: Path) -> Stored:
    """The model of a file, with the columns that are no part of it."""
    found = load_roots(path)
    model = RootModel.from_file(found)
    return Stored((model, kept_independent(found, model.domain)), model.domain, found.info)


def _check_evidence(values: dict[str, float], family: NodeFamily) -> None:
    low, high = (-math.inf, math.inf) if family.name == "gaussian" else (0.0, family.largest_value)
    for name, value in values.items():
        is_whole = not family.is_discrete or value == math.floor(value)
        if not math.isfinite(value) or not low <= value <= high or not is_whole:
            expected = "a finite number" if math.isinf(low) else "a number from 0"
            if family.is_discrete:
                expected = "a whole number from 0" + (f" to {high:.0f}" if math.isfinite(high) else "")
            raise out_of_range("--given", f"{expected} for {name!r}", received=f"{value:g}")


def draw(question: Question) -> Answer:
    """Rows given some columns: exact where the model allows, else by one Gibbs chain a row."""
    model, number = question.stored.model[0], question["number"]
    _check_evidence(question["given"], model.energy.family)
    try:
        with tqdm(total=number, unit="row", desc="gibbs", disable=not question.progress, leave=False) as bar:
            drawn = draw_roots(
                model,
                number,
                clamped=question["given"],
                method=question["method"],
                burn_in=_BURN_IN if question["burn_in"] is None else question["burn_in"],
                seed=question["seed"],
                advance=bar.update,
            )
    except IntractableError as error:
        hint = "--method gibbs draws approximately, at any size"
        raise error.replace(argument=f"--{error.argument}", hint=hint) from error
    except InputError as error:
        if (error.argument or "").startswith("given"):
            raise error.replace(argument=f"--{error.argument}") from error
        raise refused(question.path, str(error), code=error.code) from error
    told = (
        "the rows are approximate: each is the last state of a Gibbs chain of its own "
        f"({plural(drawn.burn_in, 'sweep')} of burn-in from the model without interactions); compare with a longer "
        "--burn-in"
    )
    values = drawn.values.numpy()
    if model.energy.family.is_discrete:
        values = values.astype(np.int64)
    frame = pd.DataFrame(values, columns=list(model.domain.names))
    return Answer(frame=frame, notes=[] if drawn.is_exact else [told])


def log_z(question: Question, starts: torch.Tensor | None = None) -> LogPartition:
    """Log Z of the columns that are not fixed; an estimate looks for modes from ``starts``, too."""
    return log_z_of(question, question.stored.model[0].energy, RootAnnealed, RootAuto(), starts)


def score(question: Question) -> Answer:
    """Gain over independent columns and pseudo-NLL, and NLL and KL where log Z is exact or was asked for."""
    (model, law), table = question.stored.model, question.rows
    family = model.energy.family
    check_support(table, family)
    if question["method"] == "auto" and all(question[name] is None for name in ("chains", "temperatures", "seed")):
        log_z_found, reason = exact_log_partition(model.energy)
    else:
        starts = model.some_rows(table, _ROWS) if question["method"] == "ais" and family.is_discrete else None
        log_z_found, reason = log_z(question, starts), ""
    value = None if log_z_found is None else float(log_z_found.value)
    scores = model.scores(table, value)

    def gain_of(rows: CountTable) -> dict[str, float | None]:
        if law is None:
            return {"gain": None, "gain_std_error": None}
        own, alone = torch.as_tensor(model.log_pseudo_prob(rows)), torch.as_tensor(law.log_prob(rows))
        return dict(zip(("gain", "gain_std_error"), mean_gain(own, alone, torch.ones(len(own)).double()), strict=True))

    def of_part(part: CountTable) -> dict[str, float | None]:
        its = model.scores(part, value)
        return {**gain_of(part), "nll": its.nll, "pseudo_nll": its.pseudo_nll}

    gain = gain_of(table)
    lines: list[str] = []
    if law is not None:
        lines.append(gain_sentence("file's", "model", gain["gain"], gain["gain_std_error"], PSEUDO))
    lines.append(f"rows                {scores.rows:.12g}")
    if scores.impossible_rows:
        lines.append(f"impossible rows     {scores.impossible_rows:.12g} (new values in columns that held one only)")
    error = number_text(scores.pseudo_nll_std_error)
    lines.append(f"pseudo-NLL per row  {number_text(scores.pseudo_nll)} nats (standard error over rows {error})")
    why = reason or "no log Z"
    lines.append(f"NLL per row         {number_text(scores.nll, why)}" + (" nats" if scores.nll is not None else ""))
    lines += describe_log_z(log_z_found) if log_z_found is not None and log_z_found.kind != "exact" else []
    return Answer(
        json={**asdict(scores), **gain, **log_z_json(log_z_found)},
        lines=lines,
        of_part=of_part,
        shown=["pseudo_nll"] if law is None else ["gain", "pseudo_nll"],
    )


def predict(question: Question) -> Answer:
    """Mean of a column given all others, and how far from it the file's values are."""
    model, table, target = question.stored.model[0], question.rows, question["target"]
    check_support(table, model.energy.family)
    found = predict_roots(model, table, target, is_known=question.has_target)
    frame = pd.DataFrame({"mean": found.mean, "std": found.std})
    if found.values is not None:
        frame.insert(0, target, found.values)
    json = {
        "target": target,
        "accuracy": None,
        "majority_accuracy": None,
        "rows": table.num_rows if question.has_target else 0,
        "rmse": found.rmse,
        "mae": found.mae,
        "mean_rmse": found.mean_rmse,
        "log_loss": found.log_loss,
        "mean_prediction": float(found.mean.mean()) if len(found.mean) else None,
        "predicted_rows": table.num_rows,
        "approximate_rows": 0,
        "kind": "exact",
    }

    def of_part(part: CountTable) -> dict[str, float | None]:
        return {"rmse": predict_roots(model, part, target).rmse}

    return Answer(
        json=json,
        lines=_describe(found, table.num_rows),
        frame=frame,
        of_part=of_part if question.has_target else None,
        shown=["rmse"],
    )


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


def interactions(question: Question) -> Answer:
    """Tuples of two and more columns by the size of their coefficients, of real numbers per standard deviation."""
    energy = question.stored.model[0].energy
    scales: dict[str, float] = question.stored.info.get("scales", {})
    values: list[float] = energy.coefficients.tolist()
    terms = [RootTerm(key, names, value) for (key, names), value in zip(energy.structure.names, values, strict=True)]
    pairs = [(term, standardise_term(term, scales)) for term in terms if term.key[1] > 1]
    pairs = sorted(pairs, key=lambda pair: -abs(pair[1].coefficient))[: question["top"]]
    rows: list[dict[str, Any]] = [tuple_json(term) for term, _ in pairs]
    if scales:
        rows = [{**row, "standardised": own.coefficient} for row, (_, own) in zip(rows, pairs, strict=True)]
    head = ["interaction", *(["per SD"] if scales else []), "coefficient", "tensor entry", "root"]
    cells = [
        [
            short_edge(row["edge"], _EDGE),
            *([coefficient(row["standardised"])] if scales else []),
            coefficient(row["coefficient"]),
            coefficient(row["value"]),
            str(row["root"]),
        ]
        for row in rows
    ]
    lines = columns_of(head, cells)
    if scales:
        lines.append(
            "(per SD: of columns divided by their standard deviations among the training rows; coefficient and tensor "
            "entry are in units of the columns)"
        )
    elif energy.family.name == "gaussian":
        lines.append("(in units of the columns: the model file does not hold their standard deviations)")
    return Answer({"interactions": rows}, lines)
