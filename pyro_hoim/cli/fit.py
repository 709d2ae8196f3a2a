"""``pyro-hoim fit``: read a table, fit, diagnose, draw, and leave a folder with report, model and posterior."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..analysis import Analysis, PosteriorSettings, Prior, analyse
from ..analysis.learn import check_columns
from ..data import Observations
from ..errors import InputError, IntractableError, check_names
from ..learning import GoodnessOfFit
from ..partition import Auto
from ..report import num_states_text, plain_report, write_report
from ..structure import InteractionHypergraph
from .count_reading import CountSource
from .grm import GRM_ONLY, GRM_OPTIONS, GrmOptions, run_grm
from .network import NETWORK_ONLY, NETWORK_OPTIONS, NetworkOptions, run_network
from .options import SEED, WholeNumber
from .output import Output, log_partition_json, peak_memory_mb, whole
from .reading import ALL_TRAIN, SELECT_SPLIT, Missing, Table, held_out_split, parse_split, split_rows
from .select import SELECT_OPTIONS, SelectOptions, run_select, run_trained
from .session import Session, session

__all__ = ["fit"]

_SELECT_ONLY = ("refit", "heredity", "per_round", "trainer", "ordinal")
_LOG_LINEAR_ONLY = ("edges", "select", *_SELECT_ONLY, "prior", "posterior", "chains", "draws", "warmup")
_OPTIONS_OF = {
    "log-linear": (*_LOG_LINEAR_ONLY, "order", "jobs", "target", "missing", "levels", "levels_from"),
    "dependency-network": (*NETWORK_ONLY, "jobs", "target", "missing", "levels", "levels_from"),
    "grm": (*GRM_ONLY, "order", "jobs"),
}

_INSTEAD = {
    ("prior", "grm"): "its coefficients are held back by --l1",
    ("prior", "dependency-network"): "its leaves have the Dirichlet prior of --alpha",
    ("target", "grm"): "fit without it, then pyro-hoim predict MODEL FILE --target COL",
    ("missing", "grm"): "fill empty cells or leave out their rows before the fit, which needs every number",
}
"""What to do instead of an option that a family of models lacks."""


def _structures(
    data: Observations, order: int | None, edges: str | None, main_job: bool
) -> dict[str, InteractionHypergraph]:
    """The collections to fit, by name."""
    if main_job:
        orders = range(1, min(3, len(data.domain)) + 1)
        return {f"order {k}": InteractionHypergraph.from_order(data.domain, k) for k in orders}
    if edges is not None:
        structure = InteractionHypergraph.from_formula(data.domain, edges, hierarchical=False)
        if not structure.is_hierarchical:
            missing = [":".join(e) for e in structure.closure().edges if e not in structure]
            shown = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
            raise InputError(
                f"--edges: not closed under subsets; missing {shown} ({len(missing)} in all). Add them, or write a*b "
                "for a, b and their interaction"
            )
        return {edges: structure}
    if order is None:
        order = min(2, len(data.domain))
    elif not 1 <= order <= len(data.domain):
        raise InputError(f"--order: expected 1 to {len(data.domain)} (the number of variables), received {order}")
    return {f"order {order}": InteractionHypergraph.from_order(data.domain, order)}


def _check_family(model_kind: str) -> None:
    """Refuse options that were given and belong to another family of models."""
    context = click.get_current_context()
    for option in dict.fromkeys(name for names in _OPTIONS_OF.values() for name in names):
        owners = [model for model, names in _OPTIONS_OF.items() if option in names]
        if model_kind not in owners and context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            instead = _INSTEAD.get((option, model_kind))
            raise InputError(
                f"--{option.replace('_', '-')}: belongs to --model {' or '.join(owners)}, received --model {model_kind}"
                + (f"; {instead}" if instead else "")
            )


@click.command()
@click.argument("source", required=False, metavar="[TABLE|FILE]")
@click.option(
    "--order",
    type=WholeNumber(),
    metavar="K",
    help="All interactions of up to K variables [default: 2]; with --select or --model grm the largest that may be "
    "learned [default: 3].",
)
@click.option("--edges", metavar="SPEC", help='Interactions as a formula, e.g. "smoke*mental + phys*systol".')
@click.option("--select", is_flag=True, help="Learn the interactions and their strengths from the data.")
@SELECT_OPTIONS
@click.option(
    "--model",
    "model_kind",
    type=click.Choice(["log-linear", "dependency-network", "grm"]),
    default="log-linear",
    show_default=True,
    help="Family of models; grm: generalized root models, of counts or real numbers.",
)
@NETWORK_OPTIONS
@GRM_OPTIONS
@click.option("--target", metavar="COL", help="Also report how well this column is predicted from the others.")
@click.option("--columns", metavar="NAMES|N", help="Columns to use: names separated by commas, or the first N.")
@click.option(
    "--missing",
    multiple=True,
    metavar="drop|marginalise|LABEL",
    help="drop: leave out rows with missing cells; marginalise: sum over them (a dependency network sends such a row "
    "to all answers of a question, in proportion); LABEL: cells with this label are "
    "missing too. May be given several times. Empty cells are always missing.",
)
@click.option(
    "--levels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Levels of columns, with those that no row has: JSON {"column": ["level", ...]}, or a CSV file column,level.',
)
@click.option(
    "--levels-from",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Add the labels of these rows, which are not fitted, to the levels of the columns.",
)
@click.option(
    "--split",
    metavar="TRAIN,VALIDATION,TEST",
    help="Fractions of the rows, shuffled by the seed.  [default: 1,0,0; with --select 0.35,0.15,0.5; of "
    "a dependency network or grm 0.8,0,0.2, and 0.6,0.2,0.2 where several --l1 are compared]",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of everything random.")
@click.option(
    "--prior",
    metavar="none|unit|normal:S|ridge:S|conjugate:N",
    help="Prior of the estimates, which makes them finite: normal with standard deviation S, the same by its strength "
    "S, with the information of one row (unit), or N fictive rows spread evenly.  [default: none; normal:1 for "
    "--posterior; with --select the rows choose]",
)
@click.option("--posterior", is_flag=True, help="Sample the posterior with NUTS and compare models by leave-one-out.")
@click.option("--chains", type=WholeNumber(1, 64), default=4, show_default=True, help="Chains of --posterior.")
@click.option("--draws", type=WholeNumber(10), default=1000, show_default=True, help="Draws a chain of --posterior.")
@click.option("--warmup", type=WholeNumber(10), default=500, show_default=True, help="Warm-up steps of --posterior.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.  [default: a new one]")
@click.option("--resume", is_flag=True, help="Continue an interrupted run in its folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def fit(
    source: str | None,
    order: int | None,
    edges: str | None,
    select: bool,
    refit: bool,
    heredity: float,
    per_round: int,
    trainer: str,
    ordinal: str,
    model_kind: str,
    alpha: float,
    max_leaves: int | None,
    lossless: bool,
    jobs: int | None,
    family: str,
    l1: tuple[str, ...],
    vocab: Path | None,
    maximum: int | None,
    symmetrize: str,
    refit_terms: str,
    stagewise: bool,
    full: bool | None,
    target: str | None,
    columns: str | None,
    missing: tuple[str, ...],
    levels: Path | None,
    levels_from: Path | None,
    split: str | None,
    seed: int,
    prior: str | None,
    posterior: bool,
    chains: int,
    draws: int,
    warmup: int,
    out: Path | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Fit a model to an embedded table or a CSV file and write a folder with report, model and posterior.

    FILE has one row per observation, or one row per cell with a column named count. Without any argument the Czech
    autoworkers table is fitted with interactions of order 1, 2 and 3, each with its posterior, and compared.

    A dependency network (--model dependency-network) predicts every column from others by a decision graph.

    A generalized root model (--model grm) holds counts or real numbers, in a CSV file or a sparse matrix of SciPy
    (.npz with --vocab), and learns pairs and triples of columns that vary together.
    """
    started = time.perf_counter()
    _check_family(model_kind)
    if model_kind == "grm":
        if source is None:
            raise InputError("--model grm: expected a FILE of counts or numbers, or classic3, received none")
        validates = split is None or parse_split(split)[1] > 0
        learn = GrmOptions.parse(family, maximum, order, l1, symmetrize, refit_terms, stagewise, full, jobs, validates)
        counts = CountSource.read(source, columns, vocab, learn.family)
        learn = learn.for_columns(len(counts.rows.domain))
        fractions = parse_split(split, held_out_split(counts.rows.num_rows, len(learn.l1) > 1))
        output = Output(counts, counts.rows, None, seed, out, resume, as_json, started, fractions)
        run_grm(split_rows(counts.rows, fractions, seed), learn, output)
        return
    if order is not None and edges is not None:
        raise InputError("--order and --edges: give one of them, not both")
    if select and (edges is not None or posterior or source is None):
        what = "--edges" if edges is not None else "--posterior" if posterior else "no TABLE or FILE"
        raise InputError(f"--select: learns the interactions of one table, received {what} with it")
    if not select:
        context = click.get_current_context()
        for option in _SELECT_ONLY:
            if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
                raise InputError(f"--{option.replace('_', '-')}: belongs to --select")
    fractions = parse_split(split, SELECT_SPLIT if select else ALL_TRAIN)
    chosen_prior = None if prior is None else Prior.parse(prior, "--prior")
    policy = Missing.parse(missing)
    main_job = source is None and order is None and edges is None
    if model_kind == "log-linear" and jobs is not None and not (posterior or main_job):
        raise InputError(
            "--jobs: belongs to --posterior, or to --model dependency-network or grm, received --model log-linear"
        )
    if chosen_prior is not None and chosen_prior.is_flat and (posterior or main_job):
        raise InputError("--prior: a posterior needs a proper prior, received none; use normal:S or another")
    table = Table.read(source, columns, policy.labels).with_levels(levels, levels_from, policy.labels)
    if target is not None:
        check_names([target], table.rows.domain.names, "--target")
    as_read = table.rows
    if model_kind == "dependency-network":
        table = table.complete(policy, None)
        check_columns(table.rows)
        learning = NetworkOptions(alpha, max_leaves, lossless, jobs)
        fractions = parse_split(split, held_out_split(table.rows.total_count))
        output = Output(table, as_read, target, seed, out, resume, as_json, started, fractions)
        run_network(split_rows(table.rows, fractions, seed), learning, output)
        return
    reason = "--posterior" if posterior or main_job else "a validation part" if fractions[1] else None
    if select:
        reason = "--select, whose validation rows must be complete"
    table = table.complete(policy, reason)
    given = None if chosen_prior is None else str(chosen_prior)
    output = Output(table, as_read, target, seed, out, resume, as_json, started, fractions, given)
    if select:
        check_columns(table.rows)
        table = table.with_ordinal(ordinal)
        options = SelectOptions.parse(table.rows, order, heredity, per_round, trainer, refit)
        if chosen_prior is not None:
            options = replace(
                options, strengths=chosen_prior.strengths(table.rows.domain, options.max_order, "--prior")
            )
        run_select(split_rows(table.rows, fractions, seed), options, replace(output, table=table))
        return
    structures = _structures(table.rows, order, edges, main_job)
    parts = split_rows(table.rows, fractions, seed)
    for structure in structures.values():
        cost = Auto().plan(structure)
        if not cost.feasible:
            if posterior or main_job or table.rows.has_missing:
                what = "--posterior" if posterior or main_job else "--missing marginalise"
                raise IntractableError(
                    f"{what} needs exact inference: {cost.reason}. At the command line: fewer --columns, a lower "
                    "--order, or sparser --edges"
                )
            run_trained(parts, structure, cost.reason, output, chosen_prior)
            return
    settings = PosteriorSettings(chains, draws, warmup) if posterior or main_job else None
    if settings is not None and chosen_prior is not None:
        settings = replace(settings, prior=chosen_prior)
    train, validation, test = parts.values()
    with session(output.folder(), started, as_read) as run:
        analysis = analyse(
            train,
            structures,
            validation=validation if fractions[1] else None,
            test=test if fractions[2] else None,
            prior=chosen_prior,
            posterior=settings,
            target=target,
            seed=seed,
            title=table.name,
            about=[*table.about, *table.told()],
            checkpoint=run.checkpoint,
            resume=resume,
            jobs=jobs,
        )
        write_report(analysis, run.folder)
        output.write(_summary(analysis, run, table), run)
    if as_json:
        return
    output.echo(plain_report(analysis))
    click.echo(f"\nreport:    {run.folder / 'report.html'}\nmodel:     {run.folder / 'model.safetensors'}")
    if settings is not None:
        click.echo(f"posterior: {run.folder / 'posterior.nc'}")


def _goodness_json(test: GoodnessOfFit | None) -> dict[str, Any] | None:
    """The keys of a test against the saturated model, None where the table is too large or cells are missing."""
    if test is None:
        return None
    return {
        "deviance": test.deviance,
        "pearson": test.pearson,
        "df": test.df_adjusted,
        "p_value": test.p_value,
        "p_value_method": test.p_value_method,
        "p_value_statistic": test.p_value_statistic,
        "p_value_pearson": test.p_value_pearson,
        "p_value_std_error": test.p_value_std_error if test.num_tables else None,
        "num_tables": test.num_tables,
        "p_value_note": test.p_value_note,
    }


def _summary(analysis: Analysis, run: Session, table: Table) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    chosen, folder = analysis.chosen, run.folder
    structure = chosen.hypergraph
    summary: dict[str, Any] = {
        "model": str(folder / "model.safetensors"),
        "report": str(folder / "report.html"),
        "num_variables": len(structure.domain),
        "num_states": num_states_text(structure.domain.num_states),
        "num_interactions": structure.num_interactions,
        "num_parameters": chosen.fit.num_parameters_fitted,
        "edges": [list(edge) for edge in structure.edges],
        "log_partition": log_partition_json(chosen.log_partition),
        "rows": {part: whole(rows) for part, rows in chosen.scores.rows.items()},
        "dropped_rows": whole(table.dropped_rows),
        "constant_columns": list(table.constant_columns),
        "impossible_rows": {part: whole(rows) for part, rows in chosen.scores.impossible_rows.items()},
        "kl": chosen.scores.kl,
        "goodness_of_fit": _goodness_json(chosen.goodness),
        "nll": chosen.scores.nll,
        "pseudo_nll": chosen.scores.pseudo_nll,
        "independent_kl": chosen.scores.independent_kl,
        "gain": chosen.scores.gain,
        "gain_std_error": chosen.scores.gain_std_error,
        "prior": str(analysis.prior or "none"),
        "status": chosen.fit.status,
        "mle_exists": None if chosen.fit.existence is None else chosen.fit.existence.exists,
        "infinite_combinations": analysis.infinite_combinations(chosen),
        "num_infinite_combinations": analysis.num_infinite_combinations(chosen),
    }
    if chosen.accuracy is not None:
        summary["accuracy"] = {
            part: found and {**found, "rows": whole(found["rows"])} for part, found in chosen.accuracy.items()
        }
    if len(analysis.models) > 1 or chosen.goodness is not None:
        summary["models"] = analysis.comparison_records()
    if chosen.posterior is not None:
        summary["posterior"] = {
            "file": str(folder / "posterior.nc"),
            "prior": str(chosen.posterior.prior),
            "max_r_hat": chosen.posterior.max_r_hat,
            "min_ess_bulk": chosen.posterior.min_ess_bulk,
            "divergences": chosen.posterior.num_divergences,
        }
    return {**summary, "seconds": run.seconds, "peak_memory_mb": peak_memory_mb(), "seed": analysis.seed}
