"""The commands on the model file of a dependency network: ``sample``, ``score``, ``predict``, ``interactions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import click
import torch
from tqdm import tqdm

from ...core.prediction import Prediction
from ...core.rows import ClampedGibbs, RowMethod
from ...data.observations import Observations
from ...dependency_network.conditionals import DependencyConditionals
from ...dependency_network.node_conditionals import TableConditional
from ...dependency_network.study.predictions import draw_network, impute_network, predict_network
from ...dependency_network.study.scores import find_law, score_network
from ...errors import InputError, IntractableError, check_names, conflict, out_of_range, out_of_reach, unexpected
from ...report.words import fixed, gain_sentence, plural, short_labels
from ..labels import UnseenLabels, read_known
from ..methods import is_terminal
from ..model import check_target_file, number_text, parse_given, read_network, write_rows
from ..output import echo_json, whole
from ..seen import score_seen, seen_lines

__all__ = [
    "complete_with_network",
    "network_interactions",
    "predict_with_network",
    "refuse_log_z",
    "sample_network",
    "score_with_network",
]

_BURN_IN = 200
_NAME = 28  # characters
_SCORES = (
    *("gain", "gain_std_error", "nll", "kl", "nll_std_error"),
    *("pseudo_nll", "pseudo_nll_std_error", "fc", "fc_limit", "nodes"),
)


def sample_network(
    model: Path,
    number: int,
    given: tuple[str, ...],
    method: Literal["auto", "exact", "gibbs"],
    burn_in: int | None,
    seed: int,
    out: Path | None,
) -> None:
    """Draw rows: exactly where the law is enumerated, else by conditional pseudo-Gibbs sampling, and say so.

    Raises:
        InputError: a network without a single law (the states are named), or evidence of probability zero.
    """
    network = read_network(model).conditionals
    clamped = parse_given(given, network.domain)
    check_target_file(out)
    burn_in = _BURN_IN if burn_in is None else burn_in
    try:
        with tqdm(total=number, unit="row", desc="pseudo-gibbs", disable=not is_terminal(), leave=False) as bar:
            drawn = draw_network(
                network, number, clamped=clamped, method=method, burn_in=burn_in, seed=seed, advance=bar.update
            )
    except InputError as error:
        raise InputError(_in_words(str(error), str(model))) from error
    except IntractableError as error:
        raise IntractableError(f"--{error}; --given fixes columns") from error
    if not drawn.is_exact:
        click.echo(
            "pyro-hoim: note: the rows are approximate: each is the last state of a pseudo-Gibbs chain of its own "
            f"(random scan, {plural(drawn.burn_in, 'sweep')} of burn-in, no thinning); compare with a longer --burn-in",
            err=True,
        )
    write_rows(Observations.from_tensor(drawn.codes, network.domain).to_pandas(count=None), out)


def _in_words(message: str, model: str) -> str:
    """An error of the library about a network, as one about the command line."""
    head = message.split("; smooth", maxsplit=1)[0].split(", or pass check=False", maxsplit=1)[0]
    hint = "fit again with an --alpha above 0" if head != message or "zero" in message else ""
    for argument, option in (("clamped: ", "--given: "), ("conditionals: ", f"{model}: ")):
        head = head.replace(argument, option, 1) if head.startswith(argument) else head
    return f"{head}; {hint}" if hint else head


def complete_with_network(
    model: Path,
    file: Path,
    number: int,
    method: str,
    most_probable: bool,
    missing: tuple[str, ...],
    burn_in: int | None,
    seed: int,
    out: Path | None,
) -> None:
    """Fill the missing cells of the rows of a file, each row ``number`` times, by conditional pseudo-Gibbs sampling.

    Raises:
        InputError: ``--most-probable``, or no rows.
        IntractableError: ``--method exact`` and missing cells.
    """
    if most_probable:
        problem = "needs the joint law, which a dependency network does not hold"
        raise conflict("--most-probable", problem, "leave it out")
    network = read_network(model).conditionals
    check_target_file(out)
    data, unseen = read_known(network.domain, file, missing)
    unseen.note("they are not completed and not written")
    if not data.has_whole_counts or not data.total_count > 0:
        raise out_of_range("--complete", "whole counts, not all zero")
    if method == "exact" and data.has_missing:
        problem = "a dependency network completes rows by pseudo-Gibbs chains only"
        raise out_of_reach("--method exact", problem, code="no-method")
    each = torch.repeat_interleave(torch.arange(len(data.codes)), data.counts.long())
    data = Observations.from_tensor(data.codes[each], network.domain)
    gibbs = ClampedGibbs(burn_in=_BURN_IN if burn_in is None else burn_in)
    found = impute_network(network, data, number, gibbs=gibbs, seed=seed)
    _note_chains(int((~found.is_exact).sum()), "filled")
    write_rows(found.to_pandas(), out)


def _note_chains(number: int, verb: str) -> None:
    if number:
        were, their = ("was", "its") if number == 1 else ("were", "their")
        click.echo(
            f"pyro-hoim: note: {plural(number, 'row')} {were} {verb} approximately: {their} missing cells came from "
            "pseudo-Gibbs chains that hold the known cells",
            err=True,
        )


def score_with_network(
    model: Path,
    file: Path,
    missing: tuple[str, ...],
    method: str,
    chains: int | None,
    temperatures: str | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Gain over independent columns and pseudo-NLL of rows, and NLL, KL and FC where the law is enumerated.

    Raises:
        InputError: options of annealing, or no rows.
        IntractableError: ``--method exact`` without an enumerated law.
    """
    for name, is_used in (("--method ais", method == "ais"), ("--chains", chains), ("--temperatures", temperatures)):
        if is_used:
            raise conflict(name, "estimates log Z, which a dependency network does not have", "leave it out")
    stored = read_network(model)
    network = stored.conditionals
    data, unseen = read_known(network.domain, file, missing)
    if not data.total_count > 0:
        raise unexpected(file, "at least one observation", received="counts that sum to zero", code="empty")
    found = find_law(network)
    if method == "exact" and found.law is None:
        problem = f"the network's law is not known, {found.reason}"
        raise out_of_reach("--method exact", problem, "leave --method out", code="no-method")
    shares: dict[str, list[float]] | None = stored.info.get("independent")
    score = partial(score_network, network, law=found.law, seed=seed or 0, reference=_independent(network, shares))
    scores = score(data)

    def of_part(part: Observations) -> dict[str, float | None]:
        its = score(part)
        return {
            "gain": its.gain,
            "gain_std_error": its.gain_std_error,
            "nll": its.nll,
            "pseudo_nll": its.pseudo_nll,
        }

    parts = score_seen(stored.info, data, of_part)
    if as_json:
        echo_json(
            {
                "rows": whole(scores.rows),
                "impossible_rows": whole(scores.impossible_rows),
                "approximate_rows": whole(scores.approximate_rows),
                **{name: getattr(scores, name) for name in _SCORES},
                "parts": parts,
                **unseen.to_json(),
            }
        )
        return
    gaps = "missing cells" if found.law is not None else found.reason
    if shares is not None:
        measure = "log pseudo-likelihood (every cell given all others)"
        click.echo(gain_sentence("file's", "network", scores.gain, scores.gain_std_error, measure))
    click.echo(f"rows                {scores.rows:g}")
    for line in unseen.lines("with them the NLL and the pseudo-NLL would be infinite"):
        click.echo(line)
    if scores.impossible_rows:
        click.echo(f"impossible rows     {scores.impossible_rows:g} (with a cell of probability zero)")
    error = number_text(scores.pseudo_nll_std_error)
    click.echo(f"pseudo-NLL per row  {number_text(scores.pseudo_nll)} nats (standard error over rows {error})")
    click.echo(f"NLL per row         {number_text(scores.nll, gaps)}" + (" nats" if scores.nll is not None else ""))
    if found.law is not None:
        click.echo(f"FC to the file      {number_text(scores.fc)}" + (" nats" if scores.fc is not None else ""))
    click.echo(f"FC-limit            {number_text(scores.fc_limit)}" + (" nats" if scores.fc_limit is not None else ""))
    for line in seen_lines(parts, *([] if shares is None else ["gain"]), "pseudo_nll"):
        click.echo(line)
    _note_chains(int(scores.approximate_rows), "scored")


def _independent(
    network: DependencyConditionals, shares: Mapping[str, Sequence[float]] | None
) -> DependencyConditionals | None:
    """A network without arrows that has given probabilities of levels; None without them."""
    if shares is None:
        return None
    tables = {name: torch.tensor(shares[name], dtype=torch.float64) for name in network.domain.names}
    return DependencyConditionals([TableConditional(network.domain, name, [], table) for name, table in tables.items()])


def predict_with_network(
    model: Path, file: Path, target: str, method: RowMethod, seed: int, missing: tuple[str, ...]
) -> tuple[Prediction, dict[str, dict[str, float | None]] | None, UnseenLabels]:
    """Predictions of a column from its own conditional, the accuracy of the parts of a fitted file, rows left out.

    Raises:
        IntractableError: ``--method exact`` and cells that the graph asks for are missing.
        UnknownNameError: no such column.
    """
    stored = read_network(model)
    network = stored.conditionals
    check_names([target], network.domain.names, "--target")
    data, unseen = read_known(network.domain, file, missing, optional=target)
    try:
        found = predict_network(network, data, target, method=method, seed=seed)
    except IntractableError as error:
        raise IntractableError(f"--{error}") from error
    _note_chains(int((~found.is_exact).sum()), "predicted")

    def of_part(part: Observations) -> dict[str, float | None]:
        return {"accuracy": predict_network(network, part, target, method=method, seed=seed).accuracy}

    return found, score_seen(stored.info, data, of_part), unseen


def network_interactions(model: Path, top: int | None, as_json: bool) -> None:
    """Who reads whom, with the information that the reader's graph gained."""
    stored = read_network(model)
    network = stored.conditionals
    values = {(parent, child): value for parent, child, value in stored.info.get("edges", [])}
    edges = [*values, *(edge for edge in network.edges if edge not in values)][:top]
    if as_json:
        echo_json({"interactions": [{"edge": list(edge), "value": values.get(edge)} for edge in edges]})
        return
    if not edges:
        click.echo("no interactions")
        return
    labels = short_labels(network.domain.names, _NAME)
    names = [f"{labels[parent]} -> {labels[child]}" for parent, child in edges]
    width = max(len(name) for name in [*names, "from -> to"])
    click.echo(f"{'from -> to':<{width}}  information")
    for name, edge in zip(names, edges, strict=True):
        click.echo(f"{name:<{width}}  {fixed(values[edge]) if edge in values else 'not in the file':>11}")


def refuse_log_z(model: Path) -> None:
    """Say why there is no log Z.

    Raises:
        InputError: always.
    """
    raise InputError(
        f"{model} holds a dependency network, which has no normalising constant: its conditionals need not belong to "
        "one joint law; pyro-hoim score gives its pseudo-likelihood, and its likelihood where the law can be "
        "enumerated",
        code="not-normalizable",
    )
