"""``log-z``, ``mode`` and ``margins``: what a model gives in probability, also given some of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from ...budgets import MAX_SWEEPS
from ...core.command.answers import (
    check_possible,
    column_margins,
    describe_log_z,
    log_z_of_nothing,
    margins as margins_of,
    number_text,
    possible_given,
)
from ...core.family import Family, Question
from ...core.words import columns_of
from ...errors import InputError, IntractableError, conflict
from ...interop.uai import UaiResult, read_uai_evidence, write_uai_result
from ..asking import MODEL, ModelCommand, ask, check_new_file, parse_given
from ..options import JSON, SEED, WholeNumber
from ..output import echo_json, say
from ..reading import say_notes

GIVEN = click.option("--given", multiple=True, metavar="COL=VALUE", help="Fix a column; may be given several times.")
EVIDENCE = click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fix columns as a file of evidence in the UAI format says; they are numbered from 0 in the order of MODEL.",
)
_NO_STATE = "no state is possible: Z is zero"


def _out(task: str) -> Callable[..., Any]:
    """The option of a result file."""
    what = f"Also write the result as a file {task} in the UAI format."
    return click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help=what)


def fixed_columns(family: Family, question: Question, given: tuple[str, ...], evidence: Path | None) -> dict[str, Any]:
    """Codes, or numbers, of the columns that are fixed by words or by a file."""
    domain = question.stored.domain
    fixed = dict(parse_given(given, question.stored, family.data_type))
    if evidence is None:
        return fixed
    if family.data_type != "labels":
        raise conflict("--evidence", f"a {family.name} has numbers, and the file has levels", "fix them by --given")
    observed = read_uai_evidence(evidence, domain)
    for name, code in observed.items():
        if fixed.setdefault(name, code) != code:
            raise conflict("--evidence", f"fixes {name!r}, which --given holds at another level")
    return fixed


def _shown(domain: Any, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Fixed columns as labels, or as numbers where there are none."""
    return {name: domain[name].labels[code] if domain[name].labels else code for name, code in fixed.items()}


def _conditioned(family: Family, question: Question, fixed: Mapping[str, int]) -> tuple[Question, float]:
    """The question about the other columns, and what the tables of the fixed ones add to log Z."""
    if not fixed:
        return question, 0.0
    stored, constant = family.condition(question.stored, fixed)
    return replace(question, stored=stored), constant


@click.command("log-z", cls=ModelCommand)
@MODEL
@EVIDENCE
@_out("PR")
@JSON
@click.pass_context
def log_z(ctx: click.Context, model: Path, evidence: Path | None, out: Path | None, as_json: bool, **_: Any) -> None:
    """Logarithm of the normalising constant of MODEL (balanced coding, or the roots of a grm; in nats).

    For a model of corner tables without all subsets this is log Z in the corner coding, and the JSON says so. An
    estimate comes with its standard error, limits, the effective sample size, and the verdict on them; that of --method
    bounds also with a lower and an upper bound that are certain. --time-limit leaves the bounds so far, and Ctrl-C
    does once there are any.

    MODEL may be a file in the UAI format, of which it is the log of Z, in nats. With --evidence FILE the sum is over
    the states that agree with it.
    """
    check_new_file(out)
    family, question = ask(ctx, model)
    if not family.has("log_z"):
        why = family.hint("log-z")
        problem = f"{model} holds a {family.name}, which has no normalising constant" + (f": {why}" if why else "")
        raise InputError(problem, code="not-normalizable")
    fixed = fixed_columns(family, question, (), evidence)
    question, constant = _conditioned(family, question, fixed)
    if constant == -np.inf:
        result = log_z_of_nothing("the fixed columns are impossible together")
    else:
        result = family.log_z(question)
    if fixed:
        result = result.moved(torch.tensor(constant, dtype=result.value.dtype), result.coding)
    value = float(result.value)
    if out is not None:
        write_uai_result(out, UaiResult("PR", log_partition=value))
    is_zero = float(result.upper) == -np.inf  # an estimate that met no possible state says nothing of the kind
    if as_json:
        json = {name: value for name, value in result.to_json().items() if name != "coding" or value == "corner"}
        echo_json({**json, **({"is_zero": True} if is_zero else {})})
    else:
        say(*describe_log_z(result), *([_NO_STATE] if is_zero else []))


@click.command(cls=ModelCommand)
@MODEL
@GIVEN
@EVIDENCE
@_out("MAP")
@JSON
@click.pass_context
def mode(
    ctx: click.Context,
    model: Path,
    given: tuple[str, ...],
    evidence: Path | None,
    out: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    """A most probable state of MODEL, also given some columns; of several one is taken.

    It is exact, and refused where the other columns cannot be summed over. MODEL may be a file in the UAI format. The
    log weight is the sum of the tables there, the log probability that of the state given the fixed columns (nats).
    """
    check_new_file(out)
    family, question = ask(ctx, model)
    if not family.has("mode"):
        family.mode(question.stored)  # refuses
    domain, fixed = question.stored.domain, fixed_columns(family, question, given, evidence)
    question, constant = _conditioned(family, question, fixed)
    check_possible(constant, domain, fixed)
    with possible_given(domain, fixed):
        best = family.mode(question.stored)
    codes = {**best.codes, **fixed}
    state = {name: domain[name].labels[codes[name]] for name in domain.names}
    if out is not None:
        write_uai_result(out, UaiResult("MAP", state=tuple(codes[name] for name in domain.names)))
    weight = best.log_weight + constant
    if as_json:
        numbers = {"log_weight": weight, "log_prob": best.log_prob, "kind": "exact", "method": best.method}
        echo_json({"state": state, **numbers, "given": _shown(domain, fixed)})
        return
    about = " given the fixed columns" if fixed else ""
    say(
        *columns_of(["column", "level"], [[name, label] for name, label in state.items()]),
        f"log weight       {number_text(weight)} nats (exact, {best.method})",
        f"log probability  {number_text(best.log_prob)} nats{about}",
    )


@click.command(cls=ModelCommand)
@MODEL
@click.argument("names", nargs=-1)
@GIVEN
@EVIDENCE
@click.option(
    "--num-draws",
    type=WholeNumber(100, MAX_SWEEPS),
    default=20_000,
    show_default=True,
    help="Draws, where they are needed.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the draws.")
@_out("MAR")
@JSON
@click.pass_context
def margins(
    ctx: click.Context,
    model: Path,
    names: tuple[str, ...],
    given: tuple[str, ...],
    evidence: Path | None,
    out: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Probabilities of all combinations of the columns NAMES under MODEL, also given others.

    Without NAMES these are the probabilities of every column by itself. MODEL may be a file in the UAI format.

    They are exact if the other columns can be summed over. Otherwise they are shares of draws, with standard errors.
    """
    check_new_file(out)
    if out is not None and names:
        raise conflict("--out", "the file has the probabilities of every column", "leave out NAMES")
    family, question = ask(ctx, model)
    domain, fixed = question.stored.domain, fixed_columns(family, question, given, evidence)
    typed = dict(text.split("=", 1) for text in given)
    shown = typed if evidence is None else _shown(domain, fixed)
    if by_file := next((name for name in names if name in fixed and name not in typed), None):
        raise conflict("--evidence", f"fixes {by_file!r}, whose distribution is asked for")
    if names:
        # Columns that a file fixes make the sum over the others smaller.
        inner, left = question, fixed
        if evidence is not None and family.has("condition") and not {*names} & {*fixed} and {*names} <= {*domain.names}:
            with suppress(IntractableError):  # joined columns are not conditioned on: the rows say what is fixed
                inner, constant = _conditioned(family, question, fixed)
                check_possible(constant, domain, fixed)
                left = {}
        answer = margins_of(family, inner, names, left)
    else:
        answer = column_margins(family, question, fixed)
        if out is not None:
            parts = tuple(np.array(column["probabilities"]) for column in answer.json["columns"])
            write_uai_result(out, UaiResult("MAR", margins=parts))
    say_notes(answer.notes)
    if as_json:
        echo_json({**answer.json, "given": shown})
    else:
        say(*answer.lines)
