"""``pyro-hoim fit --select``, and fits of given interactions that are too large for exact gradients."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ..analysis.learn import (
    LearnedAnalysis,
    LearnedModel,
    analyse_learned,
    learn,
    ordered_columns,
    train_collection,
    with_ordinal,
)
from ..data import Observations
from ..errors import HoimError, InputError, IntractableError, check_names
from ..report.blocks import num_states_text
from ..report.learned_page import write_learned_report
from ..report.learned_plain import learned_plain_report
from ..structure import InteractionHypergraph
from .output import echo_json, log_partition_json, new_folder, peak_memory_mb, to_json_text, whole

__all__ = ["SELECT_OPTIONS", "SELECT_SPLIT", "SelectOptions", "ordinal_columns", "run_select", "run_trained"]

SELECT_SPLIT = (0.35, 0.15, 0.5)
"""Fractions of training, validation and test rows with ``--select``."""

_MAX_TERMS = 2**23
_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--refit", is_flag=True, help="With --select: at the end fit training and validation rows together."),
    click.option(
        "--heredity",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.3,
        show_default=True,
        help="With --select: share of the subsets one variable smaller that a set must have in the model.",
    ),
    click.option(
        "--per-round",
        type=click.IntRange(1),
        default=60,
        show_default=True,
        metavar="N",
        help="With --select: interactions added in a round.",
    ),
    click.option(
        "--trainer",
        type=click.Choice(["auto", "exact", "sampled", "pseudo-likelihood"]),
        default="auto",
        show_default=True,
        help="With --select: how models are fitted; auto is exact up to about two million states.",
    ),
    click.option(
        "--ordinal",
        default="auto",
        show_default=True,
        metavar="auto|none|NAMES",
        help="With --select: columns whose neighbouring levels are alike; auto takes those of numbers and ranges.",
    ),
)


def SELECT_OPTIONS(command: _F) -> _F:  # noqa: N802 (a decorator like click's own constants here)
    """Add the options of a search to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class SelectOptions:
    """What the command line says about a search.

    Attributes:
        max_order: variables of the largest interaction.
        heredity: threshold.
        per_round: sets added in a round.
        trainer: kind of trainer.
        refit: train on both parts at the end.
    """

    max_order: int = 3
    heredity: float = 0.3
    per_round: int = 60
    trainer: str = "auto"
    refit: bool = False

    @classmethod
    def parse(
        cls, data: Observations, order: int | None, heredity: float, per_round: int, trainer: str, refit: bool
    ) -> SelectOptions:
        """Options that fit the data.

        Raises:
            InputError: an order below 2 or above the number of variables.
        """
        if order is None:
            order = max(2, min(3, len(data.domain)))
        elif not 2 <= order <= len(data.domain):
            raise InputError(
                f"--order: with --select expected 2 to {len(data.domain)} (the number of variables), the size of the "
                f"largest interaction; received {order}"
            )
        return cls(order, heredity, per_round, trainer, refit)


def ordinal_columns(data: Observations, text: str) -> tuple[Observations, tuple[str, ...]]:
    """The rows with ordinal columns marked, and their names: ``auto``, ``none`` or names separated by commas.

    Raises:
        UnknownNameError: a name that is no column.
    """
    if text == "none":
        return data, ()
    if text == "auto":
        names = ordered_columns(data)
    else:
        names = tuple(name.strip() for name in text.split(","))
        check_names(list(names), data.domain.names, "--ordinal", noun="column")
    return with_ordinal(data, names), names


def run_select(
    parts: Mapping[str, Observations],
    options: SelectOptions,
    *,
    name: str,
    about: Sequence[str],
    target: str | None,
    seed: int,
    out: Path | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Learn a model from train and validation rows, and write and print what was found.

    Args:
        parts: rows of train, validation and test.
        options: of the search.
        name: of the data.
        about: sentences on the data.
        target: column to predict.
        seed: of everything random.
        out: folder to write.
        resume: continue in it.
        as_json: print JSON.

    Raises:
        InputError: no training or validation rows, or columns that are unique per row.
    """
    for part in ("train", "validation"):
        if not parts[part].total_count > 0:
            raise InputError(
                f"--select: the {part} part is empty; rows are needed to fit and others to decide when to stop. "
                "Use a --split whose first two fractions are large enough, such as 0.7,0.3,0"
            )

    def work(checkpoint: Path) -> LearnedModel:
        return learn(
            parts["train"],
            parts["validation"],
            max_order=options.max_order,
            heredity=options.heredity,
            per_round=options.per_round,
            trainer=options.trainer,  # type: ignore[arg-type]
            refit=options.refit,
            seed=seed,
            checkpoint=checkpoint,
            resume=resume,
            progress=True,
        )

    _run(work, parts, name, about, target, seed, out, resume, as_json)


def run_trained(
    parts: Mapping[str, Observations],
    hypergraph: InteractionHypergraph,
    reason: str,
    *,
    name: str,
    about: Sequence[str],
    target: str | None,
    seed: int,
    out: Path | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Train given interactions by sampled gradients, where exact ones are out of reach, and say so.

    Args:
        parts: rows of train, validation and test.
        hypergraph: the interactions.
        reason: why exact inference is out of reach.
        name: of the data.
        about: sentences on the data.
        target: column to predict.
        seed: of everything random.
        out: folder to write.
        resume: continue in it.
        as_json: print JSON.

    Raises:
        IntractableError: tables with more entries than can be trained.
    """
    if hypergraph.num_terms > _MAX_TERMS:
        raise IntractableError(
            f"{hypergraph.num_terms} table entries, more than the {_MAX_TERMS} that sampled training is meant for, and "
            f"{reason}. At the command line: fewer --columns, a lower --order, or --select"
        )
    told = f"Exact inference is out of reach ({reason}), so gradients and log Z were estimated from Markov chains."

    def work(checkpoint: Path) -> LearnedModel:
        return train_collection(
            parts["train"], hypergraph, seed=seed, checkpoint=checkpoint, resume=resume, progress=True
        )

    _run(work, parts, name, [*about, told], target, seed, out, resume, as_json)


def _run(
    work: Callable[[Path], LearnedModel],
    parts: Mapping[str, Observations],
    name: str,
    about: Sequence[str],
    target: str | None,
    seed: int,
    out: Path | None,
    resume: bool,
    as_json: bool,
) -> None:
    started = time.perf_counter()
    folder = new_folder(out, name, resume)
    folder.mkdir(exist_ok=True)
    checkpoint = folder / "checkpoint"
    try:
        learned = work(checkpoint)
        analysis = analyse_learned(learned, parts, target=target, title=name, about=about, seed=seed)
    except HoimError:
        if not any(path.is_file() for path in folder.rglob("*")):
            shutil.rmtree(folder)
        raise
    write_learned_report(analysis, folder)
    summary = learned_summary(analysis, folder, time.perf_counter() - started)
    (folder / "fit.json").write_text(to_json_text(summary, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(checkpoint)
    if as_json:
        echo_json(summary)
    else:
        click.echo(learned_plain_report(analysis))
        click.echo(f"\nreport: {folder / 'report.html'}\nmodel:  {folder / 'model.safetensors'}")


def learned_summary(analysis: LearnedAnalysis, folder: Path, seconds: float) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    learned = analysis.learned
    graph, log_z, parts = learned.hypergraph, learned.log_partition, analysis.parts

    def each(read: Callable[[Any], Any]) -> dict[str, Any]:
        return {part: None if found is None else read(found) for part, found in parts.items()}

    summary: dict[str, Any] = {
        "model": str(folder / "model.safetensors"),
        "report": str(folder / "report.html"),
        "num_variables": len(graph.domain),
        "num_states": num_states_text(graph.domain.num_states),
        "num_interactions": len(graph),
        "num_parameters": graph.num_parameters,
        "edges": [list(edge) for edge in graph.edges],
        "log_partition": {
            **(log_partition_json(log_z) or {}),
            "is_reliable": bool(log_z.is_reliable),
            "sandwich_gap": None if log_z.sandwich is None else float(log_z.sandwich.gap),
        },
        "rows": {part: 0 if found is None else whole(found.model.rows) for part, found in parts.items()},
        "kl": each(lambda found: found.model.kl),
        "nll": each(lambda found: found.model.nll),
        "pseudo_nll": each(lambda found: found.model.pseudo_nll),
        "independent_kl": each(lambda found: found.independent.kl),
        "one_body_kl": each(lambda found: found.one_body.kl),
        "gain": each(lambda found: found.gain),
        "trainer": learned.trainer,
        "status": learned.training.status,
        "refit": learned.refit,
        "selection": None,
        "interactions": [_interaction(line) for line in analysis.interactions[:50]],
        "notes": list(learned.notes),
    }
    if analysis.target is not None:
        summary["accuracy"] = {
            part: found and found.accuracy and {**found.accuracy, "rows": whole(found.accuracy["rows"])}
            for part, found in parts.items()
        }
    if learned.selection is not None:
        summary["selection"] = {
            "status": learned.selection.status,
            "best_round": learned.selection.best_round,
            "rounds": [_round(entry.to_json()) for entry in learned.selection.rounds],
        }
    return {
        **summary,
        "stage_seconds": learned.seconds,
        "seconds": seconds,
        "peak_memory_mb": peak_memory_mb(),
        "seed": analysis.seed,
    }


def _round(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A round without the names of what was added."""
    return {name: value for name, value in entry.items() if name not in ("changed", "scores")}


def _interaction(line: Mapping[str, Any]) -> dict[str, Any]:
    removal = line["removal"]
    shown = None if removal is None else {"value": removal.value, "std_error": removal.std_error, "kind": removal.kind}
    return {**line, "removal": shown}
