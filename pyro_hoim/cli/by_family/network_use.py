"""The commands on the model file of a dependency network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ...core.family import Answer, Question, Stored
from ...core.prediction import Prediction
from ...core.rows import ClampedGibbs
from ...core.words import PSEUDO, columns_of, fixed, gain_sentence, plural, short_labels
from ...data.observations import Observations
from ...dependency_network.conditionals import DependencyConditionals
from ...dependency_network.file import load_network
from ...dependency_network.node_conditionals import TableConditional
from ...dependency_network.study.predictions import draw_network, impute_network, predict_network
from ...dependency_network.study.scores import find_law, score_network
from ...errors import InputError, IntractableError, conflict, out_of_reach
from ..labelled import prediction_answer
from ..methods import number_text
from ..output import whole

__all__ = ["complete", "draw", "interactions", "load", "predict", "score"]

_BURN_IN = 200
_NAME = 28  # characters
_OF_PART = ("gain", "gain_std_error", "nll", "pseudo_nll")
_SCORES = (
    *("gain", "gain_std_error", "nll", "kl", "nll_std_error"),
    *("pseudo_nll", "pseudo_nll_std_error", "fc", "fc_limit", "nodes"),
)


def load(path: Path) -> Stored:
    """The network of a file."""
    found = load_network(path)
    return Stored(found.conditionals, found.conditionals.domain, found.info)


def _burn_in(question: Question) -> int:
    return _BURN_IN if question["burn_in"] is None else question["burn_in"]


def draw(question: Question) -> Answer:
    """Rows given some columns: exact where the law is enumerated, else by conditional pseudo-Gibbs sampling."""
    network, number = question.stored.model, question["number"]
    try:
        with tqdm(total=number, unit="row", desc="pseudo-gibbs", disable=not question.progress, leave=False) as bar:
            drawn = draw_network(
                network,
                number,
                clamped=question["given"],
                method=question["method"],
                burn_in=_burn_in(question),
                seed=question["seed"],
                advance=bar.update,
            )
    except InputError as error:
        hint = "fit again with an --alpha above 0" if error.code in ("impossible", "no-method") else error.hint
        names = {"clamped": "--given", "conditionals": str(question.path)}
        raise error.replace(argument=names.get(error.argument or "", error.argument), hint=hint) from error
    except IntractableError as error:
        raise error.replace(argument=f"--{error.argument}", hint="--given fixes columns") from error
    told = (
        "the rows are approximate: each is the last state of a pseudo-Gibbs chain of its own (random scan, "
        f"{plural(drawn.burn_in, 'sweep')} of burn-in, no thinning); compare with a longer --burn-in"
    )
    frame = Observations.from_tensor(drawn.codes, network.domain).to_pandas(count=None)
    return Answer(frame=frame, notes=[] if drawn.is_exact else [told])


def complete(question: Question) -> Answer:
    """Completions of rows, by conditional pseudo-Gibbs sampling."""
    if question["method"] == "exact" and question.rows.has_missing:
        problem = "a dependency network completes rows by pseudo-Gibbs chains only"
        raise out_of_reach("--method exact", problem, code="no-method")
    gibbs = ClampedGibbs(burn_in=_burn_in(question))
    found = impute_network(question.stored.model, question.rows, question["number"], gibbs=gibbs, seed=question["seed"])
    return Answer(frame=found.to_pandas(), notes=_note_chains(int((~found.is_exact).sum()), "filled"))


def _note_chains(number: int, verb: str) -> list[str]:
    """A note on rows that needed Markov chains."""
    if not number:
        return []
    were, their = ("was", "its") if number == 1 else ("were", "their")
    told = (
        f"{plural(number, 'row')} {were} {verb} approximately: {their} missing cells came from pseudo-Gibbs chains "
        "that hold the known cells"
    )
    return [told]


def score(question: Question) -> Answer:
    """Gain over independent columns and pseudo-NLL, and NLL, KL and FC where the law is enumerated."""
    if question["method"] == "ais":
        raise conflict("--method ais", "estimates log Z, which a dependency network does not have", "leave it out")
    network = question.stored.model
    found = find_law(network)
    if question["method"] == "exact" and found.law is None:
        problem = f"the network's law is not known, {found.reason}"
        raise out_of_reach("--method exact", problem, "leave --method out", code="no-method")
    shares: dict[str, list[float]] | None = question.stored.info.get("independent")
    score_of = partial(
        score_network,
        network,
        law=found.law,
        seed=question["seed"] or 0,
        reference=_independent(network, shares),
    )
    scores = score_of(question.rows)

    def of_part(part: Observations) -> dict[str, Any]:
        its = score_of(part)
        return {name: getattr(its, name) for name in _OF_PART}

    gaps = "missing cells" if found.law is not None else found.reason
    lines: list[str] = []
    if shares is not None:
        lines.append(gain_sentence("file's", "network", scores.gain, scores.gain_std_error, PSEUDO))
    lines.append(f"rows                {scores.rows:g}")
    lines += question.left_out("with them the NLL and the pseudo-NLL would be infinite")
    if scores.impossible_rows:
        lines.append(f"impossible rows     {scores.impossible_rows:g} (with a cell of probability zero)")
    error = number_text(scores.pseudo_nll_std_error)
    lines.append(f"pseudo-NLL per row  {number_text(scores.pseudo_nll)} nats (standard error over rows {error})")
    lines.append(f"NLL per row         {number_text(scores.nll, gaps)}" + (" nats" if scores.nll is not None else ""))
    if found.law is not None:
        lines.append(f"FC to the file      {number_text(scores.fc)}" + (" nats" if scores.fc is not None else ""))
    lines.append(
        f"FC-limit            {number_text(scores.fc_limit)}" + (" nats" if scores.fc_limit is not None else "")
    )
    return Answer(
        json={
            "rows": whole(scores.rows),
            "impossible_rows": whole(scores.impossible_rows),
            "approximate_rows": whole(scores.approximate_rows),
            **{name: getattr(scores, name) for name in _SCORES},
        },
        lines=lines,
        notes=_note_chains(int(scores.approximate_rows), "scored"),
        of_part=of_part,
        shown=["pseudo_nll"] if shares is None else ["gain", "pseudo_nll"],
    )


def _independent(
    network: DependencyConditionals, shares: Mapping[str, Sequence[float]] | None
) -> DependencyConditionals | None:
    """A network without arrows that has given probabilities of levels; None without them."""
    if shares is None:
        return None
    tables = {name: torch.tensor(shares[name], dtype=torch.float64) for name in network.domain.names}
    return DependencyConditionals([TableConditional(network.domain, name, [], table) for name, table in tables.items()])


def predict(question: Question) -> Answer:
    """A column of rows, from its own conditional."""

    def predicted(part: Observations) -> Prediction:
        target, method, seed = (question[name] for name in ("target", "method", "seed"))
        try:
            return predict_network(question.stored.model, part, target, method=method, seed=seed)
        except IntractableError as error:
            raise error.replace(argument=f"--{error.argument}") from error

    found = predicted(question.rows)
    approximate = int((~found.is_exact).sum())
    return prediction_answer(question, found, predicted, approximate, _note_chains(approximate, "predicted"))


def interactions(question: Question) -> Answer:
    """Who reads whom, with the information that the reader's graph gained."""
    network = question.stored.model
    values = {(parent, child): value for parent, child, value in question.stored.info.get("edges", [])}
    edges = [*values, *(edge for edge in network.edges if edge not in values)][: question["top"]]
    labels = short_labels(network.domain.names, _NAME)
    cells = [
        [f"{labels[a]} -> {labels[b]}", fixed(values[a, b]) if (a, b) in values else "not in the file"]
        for a, b in edges
    ]
    json = {"interactions": [{"edge": list(edge), "value": values.get(edge)} for edge in edges]}
    return Answer(json, columns_of(["from -> to", "information"], cells))
