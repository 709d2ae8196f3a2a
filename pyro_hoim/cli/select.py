"""``pyro-hoim fit --select``, and fits of given interactions that are too large for exact gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from ..analysis import Prior
from ..analysis.learn import LearnedAnalysis, LearnedModel, analyse_learned, learn, train_collection
from ..data import Observations
from ..errors import InputError, IntractableError
from ..learning.training import InteractionRidge
from ..report.blocks import num_states_text
from ..report.learned_page import write_learned_report
from ..report.learned_plain import learned_plain_report
from ..report.words import plural
from ..structure import InteractionHypergraph
from .options import Number, WholeNumber
from .output import Output, log_partition_json, peak_memory_mb, whole
from .reading import Table
from .session import Session, announce, session
from .wording import in_option_words

__all__ = ["SELECT_OPTIONS", "SelectOptions", "run_select", "run_trained"]

_MAX_TERMS = 2**23
_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--refit", is_flag=True, help="With --select: at the end fit training and validation rows together."),
    click.option(
        "--heredity",
        type=Number(1),
        default=0.3,
        show_default=True,
        help="With --select: share of the subsets one variable smaller that a set must have in the model.",
    ),
    click.option(
        "--per-round",
        type=WholeNumber(1),
        default=60,
        show_default=True,
        metavar="N",
        help="With --select: interactions added in the first round beyond pairs; twice as many in every further one.",
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
        per_round: sets added in the first round beyond pairs, twice as many in every further one.
        trainer: kind of trainer.
        refit: train on both parts at the end.
        strengths: of a prior, which are kept; None lets the rows choose them.
    """

    max_order: int = 3
    heredity: float = 0.3
    per_round: int = 60
    trainer: str = "auto"
    refit: bool = False
    strengths: InteractionRidge | None = None

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


def run_select(parts: Mapping[str, Observations], options: SelectOptions, output: Output[Table]) -> None:
    """Learn a model from train and validation rows, and write and print what was found.

    Args:
        parts: rows of train, validation and test.
        options: of the search.
        output: what to write and print.

    Raises:
        InputError: no training or validation rows.
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
            **_fixed(options.strengths),
            seed=output.seed,
            checkpoint=checkpoint,
            resume=output.resume,
            progress=True,
        )

    rows = [plural(parts[part].total_count, "row") for part in ("train", "validation")]
    _run(work, parts, output, f"learning from {rows[0]}, judged on {rows[1]} of validation")


def run_trained(
    parts: Mapping[str, Observations],
    hypergraph: InteractionHypergraph,
    reason: str,
    output: Output[Table],
    prior: Prior | None = None,
) -> None:
    """Train given interactions by sampled gradients, where exact ones are out of reach, and say so.

    Args:
        parts: rows of train, validation and test.
        hypergraph: the interactions.
        reason: why exact inference is out of reach.
        output: what to write and print.
        prior: whose strengths are kept; None lets the rows choose them.

    Raises:
        InputError: a prior that sampled training has not.
        IntractableError: tables with more entries than can be trained.
    """
    if hypergraph.num_terms > _MAX_TERMS:
        raise IntractableError(
            f"{hypergraph.num_terms} table entries, more than the {_MAX_TERMS} that sampled training is meant for, and "
            f"{reason}. At the command line: fewer --columns, a lower --order, or --select"
        )
    domain = hypergraph.domain
    strengths = _fixed(None if prior is None else prior.strengths(domain, hypergraph.order, "--prior"))
    reason = in_option_words(reason)
    told = f"Exact inference is out of reach ({reason}), so gradients and log Z were estimated from Markov chains."

    def work(checkpoint: Path) -> LearnedModel:
        return train_collection(
            parts["train"],
            hypergraph,
            seed=output.seed,
            checkpoint=checkpoint,
            resume=output.resume,
            progress=True,
            **strengths,
        )

    table = replace(output.table, about=(*output.table.about, told))
    rows = plural(parts["train"].total_count, "row")
    _run(work, parts, replace(output, table=table), f"fitting {rows} by sampled gradients")


def _continued(learned: LearnedModel, earlier_seconds: float) -> LearnedModel:
    """The model, and its structure, with the time of the sessions before among those of the stages."""
    structure = None if learned.structure is None else _continued(learned.structure, earlier_seconds)
    return replace(learned, seconds={"earlier_sessions": earlier_seconds, **learned.seconds}, structure=structure)


def _fixed(strengths: InteractionRidge | None) -> dict[str, Any]:
    """Arguments of a training under strengths that the rows do not move."""
    return {} if strengths is None else {"penalty": strengths, "evidence_rounds": 0}


def _run(
    work: Callable[[Path], LearnedModel], parts: Mapping[str, Observations], output: Output[Table], stage: str
) -> None:
    table = output.table
    with session(output.folder(), output.started, output.as_read) as run:
        begin = time.perf_counter()
        announce(f"{stage}; an interrupted run is continued by --resume from {run.checkpoint}", begin)
        learned = work(run.checkpoint)
        if run.earlier_seconds:
            learned = _continued(learned, run.earlier_seconds)
        shown = learned if learned.structure is None else learned.structure
        announce(f"scoring the rows and valuing {plural(shown.hypergraph.num_interactions, 'interaction')}", begin)
        about = [*table.about, *table.told()]
        analysis = analyse_learned(
            learned, parts, target=output.target, title=table.name, about=about, seed=output.seed
        )
        announce("writing the report", begin)
        write_learned_report(analysis, run.folder)
        output.write({**learned_summary(analysis, run, table), "prior": output.prior}, run)
    if not output.as_json:
        output.echo(learned_plain_report(analysis))
        click.echo(f"\nreport: {run.folder / 'report.html'}\nmodel:  {run.folder / 'model.safetensors'}")
        if analysis.model is not learned:
            click.echo(f"predictive model: {run.folder / 'predictive.safetensors'}")


def learned_summary(analysis: LearnedAnalysis, run: Session, table: Table) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    learned, folder = analysis.model, run.folder
    graph, log_z, parts = learned.hypergraph, learned.log_partition, analysis.parts

    def each(read: Callable[[Any], Any]) -> dict[str, Any]:
        return {part: None if found is None else read(found) for part, found in parts.items()}

    summary: dict[str, Any] = {
        "model": str(folder / "model.safetensors"),
        "report": str(folder / "report.html"),
        "num_variables": len(graph.domain),
        "num_states": num_states_text(graph.domain.num_states),
        "num_interactions": graph.num_interactions,
        "num_parameters": graph.num_parameters,
        "edges": [list(edge) for edge in graph.edges],
        "log_partition": {
            **(log_partition_json(log_z) or {}),
            "sandwich_gap": None if log_z.sandwich is None else float(log_z.sandwich.gap),
        },
        "rows": {part: 0 if found is None else whole(found.model.rows) for part, found in parts.items()},
        "dropped_rows": whole(table.dropped_rows),
        "constant_columns": list(table.constant_columns),
        "ordinal_columns": list(table.ordinal_columns),
        "kl": each(lambda found: found.model.kl),
        "nll": each(lambda found: found.model.nll),
        "pseudo_nll": each(lambda found: found.model.pseudo_nll),
        "independent_kl": each(lambda found: found.independent.kl),
        "one_body_kl": each(lambda found: found.one_body.kl),
        "gain": each(lambda found: found.gain),
        "gain_std_error": each(lambda found: found.gain_std_error),
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
    summary["structure"], summary["predictive"] = _structure(analysis), None
    if analysis.learned is not learned:
        summary["predictive"] = {
            "model": str(folder / "predictive.safetensors"),
            "num_interactions": analysis.learned.hypergraph.num_interactions,
            "num_parameters": analysis.learned.hypergraph.num_parameters,
            "log_partition": log_partition_json(analysis.learned.log_partition),
            **{
                name: each(lambda found, name=name: getattr(found.predictive.model, name))
                for name in ("nll", "kl", "pseudo_nll")
            },
            "gain": each(lambda found: found.predictive.model.gain),
            "gain_std_error": each(lambda found: found.predictive.model.gain_std_error),
            "advantage": each(lambda found: found.predictive.advantage),
            "advantage_std_error": each(lambda found: found.predictive.advantage_std_error),
            "accuracy": each(lambda found: found.predictive.accuracy and found.predictive.accuracy["accuracy"]),
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
        "seconds": run.seconds,
        "peak_memory_mb": peak_memory_mb(),
        "seed": analysis.seed,
    }


def _structure(analysis: LearnedAnalysis) -> dict[str, Any] | None:
    """The tests that the structure was decided by; None without one."""
    elimination = analysis.model.elimination
    if elimination is None:
        return None
    return {
        "false_discovery_rate": elimination.false_discovery_rate,
        "num_kept": len(elimination.tests) - len(elimination.rejected),
        "num_rejected": len(elimination.rejected),
        "tests": [test.to_json() for test in elimination.tests],
    }


def _round(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A round without the names of what was added."""
    return {name: value for name, value in entry.items() if name not in ("changed", "scores")}


def _interaction(line: Mapping[str, Any]) -> dict[str, Any]:
    """An interaction under the names that ``interactions --json`` uses."""
    removal = line["removal"]
    shown = None if removal is None else {"value": removal.value, "std_error": removal.std_error, "kind": removal.kind}
    return {
        "edge": line["edge"],
        "value": line["strength"],
        "coefficient": line["coefficient"],
        "levels": line["levels"],
        "refined_information": shown,
        "ridge": line["ridge"],
    }
