"""``pyro-hoim fit``: read a table, fit, diagnose, draw, and leave a folder with report, model and posterior."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from click.core import ParameterSource

from ..analysis import Analysis, PosteriorSettings, analyse
from ..analysis.learn import check_columns
from ..data import Observations
from ..datasets import load_adult, load_breast_cancer, load_mushroom, load_table, table_info, tables
from ..errors import HoimError, InputError, IntractableError, MissingDataError, check_names
from ..partition import Auto
from ..report import num_states_text, plain_report, write_report
from ..schema import Domain, Variable
from ..structure import InteractionHypergraph
from .output import echo_json, log_partition_json, new_folder, peak_memory_mb, to_json_text, whole
from .select import SELECT_OPTIONS, SELECT_SPLIT, SelectOptions, ordinal_columns, run_select, run_trained

__all__ = ["fit"]

_MAIN_TABLE = "czech_autoworkers"
_POLICIES = ("drop", "marginalise")
_LOADERS: dict[str, Callable[[], Observations]] = {
    "adult": load_adult,
    "breast_cancer": load_breast_cancer,
    "mushroom": load_mushroom,
}


@dataclass(frozen=True)
class _Missing:
    """What ``--missing`` said: which labels mean missing, and what to do with such cells."""

    labels: tuple[str, ...]
    policy: str | None

    @classmethod
    def parse(cls, words: tuple[str, ...]) -> _Missing:
        """Split the words into a policy (drop, marginalise) and labels that mean missing."""
        policies = {w for w in words if w in _POLICIES}
        if len(policies) > 1:
            raise InputError("--missing: give one of drop and marginalise, not both")
        return cls(tuple(w for w in words if w not in _POLICIES), next(iter(policies), None))


def read_source(source: str, columns: str | None, missing: tuple[str, ...] = ()) -> tuple[str, Observations]:
    """Short name and observations of an embedded table, a public data set or a CSV file; a file of that name wins.

    Raises:
        InputError: neither a known name nor a readable CSV file.
    """
    chosen = _parse_columns(columns)
    path = Path(source)
    embedded = [info.name for info in tables()]
    if not path.exists() and (source in embedded or source in _LOADERS):
        data = load_table(source) if source in embedded else _LOADERS[source]()
        if isinstance(chosen, int):
            if not 1 <= chosen <= len(data.domain):
                raise InputError(f"--columns: expected 1 to {len(data.domain)} columns, received {chosen}")
            chosen = list(data.domain.names[:chosen])
        if chosen is not None:
            check_names(chosen, data.domain.names, "--columns", noun="column")
        return source, _without_labels(data if chosen is None else data.project(chosen), missing)
    if not path.exists():
        raise InputError(f"{source}: no such file, nor one of the data sets {', '.join([*embedded, *_LOADERS])}")
    return path.stem, Observations.from_csv(path, columns=chosen, missing_values=("", *missing))


def _without_labels(data: Observations, labels: tuple[str, ...]) -> Observations:
    """Turn levels with these labels into missing cells, as reading a file with them as missing values does."""
    for column, variable in enumerate(data.domain):
        gone = [code for code, label in enumerate(variable.labels) if label in labels]
        if gone:
            kept = [code for code in range(variable.cardinality) if code not in gone]
            if not kept:
                raise InputError(f"--missing: column {variable.name!r} would have no level left")
            codes = data.codes.clone()
            place = torch.full((variable.cardinality + 1,), -1)
            place[kept] = torch.arange(len(kept))
            codes[:, column] = place[codes[:, column]]
            smaller = Variable(variable.name, tuple(variable.labels[c] for c in kept), variable.kind, variable.unit)
            domain = Domain(smaller if v.name == variable.name else v for v in data.domain)
            data = Observations.from_tensor(codes, domain, weights=data.counts)
    return data


def _about(name: str, source: str) -> list[str]:
    """What is known of the data: title, source and note of an embedded table, the path of a file."""
    if Path(source).exists():
        return [f"Read from {source}."]
    if name in _LOADERS:
        return [f"The public data set {name}."]
    info = table_info(name)
    return [f"{info.title}. Source: {info.source}.", *([f"Note: {info.note}"] if info.note else [])]


def _parse_columns(text: str | None) -> list[str] | int | None:
    """``--columns``: a number of leading columns, or names separated by commas."""
    if text is None:
        return None
    if text.strip().lstrip("-").isdigit():
        return int(text)
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"--columns: expected a number or names separated by commas, received {text!r}")
    return names


def _parse_split(text: str | None, select: bool) -> tuple[float, float, float]:
    """``--split``: three non-negative fractions that sum to one."""
    if text is None:
        return SELECT_SPLIT if select else (1.0, 0.0, 0.0)
    try:
        parts = [float(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(f"--split: expected three fractions such as 0.35,0.15,0.5, received {text!r}") from error
    if len(parts) != 3 or not all(0 <= p <= 1 for p in parts) or abs(sum(parts) - 1) > 1e-9 or parts[0] == 0:
        raise InputError(
            f"--split: expected three fractions from 0 to 1 that sum to 1, the first above 0, received {text!r}"
        )
    return parts[0], parts[1], parts[2]


def _split(data: Observations, fractions: tuple[float, float, float], seed: int) -> dict[str, Observations]:
    """The three parts.

    Raises:
        InputError: a part that was asked for holds no row.
    """
    names = ["train", "validation", "test"]
    parts = dict(zip(names, data.split(fractions, seed), strict=True))
    for (part, rows), fraction in zip(parts.items(), fractions, strict=True):
        if fraction and not rows.total_count > 0:
            raise InputError(f"--split: no row of {data.total_count:g} falls in the {part} part; use a larger fraction")
    return parts


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


@click.command(short_help="Fit a model to a table and write a report.")
@click.argument("source", required=False, metavar="[TABLE|FILE]")
@click.option(
    "--order",
    type=int,
    metavar="K",
    help="All interactions of up to K variables [default: 2]; with --select the largest that may be learned "
    "[default: 3].",
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
    help="Family of models; this release has log-linear.",
)
@click.option("--target", metavar="COL", help="Also report how well this column is predicted from the others.")
@click.option("--columns", metavar="NAMES|N", help="Columns to use: names separated by commas, or the first N.")
@click.option(
    "--missing",
    multiple=True,
    metavar="drop|marginalise|LABEL",
    help="drop: leave out rows with missing cells; marginalise: sum over them; LABEL: cells with this label are "
    "missing too. May be given several times. Empty cells are always missing.",
)
@click.option(
    "--split",
    metavar="TRAIN,VALIDATION,TEST",
    help="Fractions of the rows, shuffled by the seed.  [default: 1,0,0; with --select 0.35,0.15,0.5]",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of everything random."
)
@click.option("--posterior", is_flag=True, help="Sample the posterior with NUTS and compare models by leave-one-out.")
@click.option("--chains", type=click.IntRange(1, 64), default=4, show_default=True, help="Chains of --posterior.")
@click.option("--draws", type=click.IntRange(10), default=1000, show_default=True, help="Draws a chain of --posterior.")
@click.option("--warmup", type=click.IntRange(10), default=500, show_default=True, help="Warm-up steps of --posterior.")
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
    target: str | None,
    columns: str | None,
    missing: tuple[str, ...],
    split: str | None,
    seed: int,
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
    """
    started = time.perf_counter()
    if model_kind != "log-linear":
        raise InputError(f"--model {model_kind}: not in this release; use --model log-linear")
    if order is not None and edges is not None:
        raise InputError("--order and --edges: give one of them, not both")
    if select and (edges is not None or posterior or source is None):
        what = "--edges" if edges is not None else "--posterior" if posterior else "no TABLE or FILE"
        raise InputError(f"--select: learns the interactions of one table, received {what} with it")
    if not select:
        context = click.get_current_context()
        for option in ("refit", "heredity", "per_round", "trainer", "ordinal"):
            if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
                raise InputError(f"--{option.replace('_', '-')}: belongs to --select")
    fractions = _parse_split(split, select)
    policy = _Missing.parse(missing)
    main_job = source is None
    if source is None and any(o is not None for o in (order, edges)):
        main_job = False
    name, data = read_source(source or _MAIN_TABLE, columns, policy.labels)
    if target is not None:
        check_names([target], data.domain.names, "--target")
    if data.has_missing:
        if policy.policy is None:
            raise MissingDataError(
                f"{name}: {data.num_missing_cells} cells are missing; pass --missing drop to leave those rows out "
                "or --missing marginalise to sum over them"
            )
        if policy.policy == "drop":
            data = data.drop_missing()
            if not data.total_count > 0:
                raise InputError(f"{name}: no complete row is left after --missing drop")
        elif posterior or main_job or fractions[1]:
            what = "a validation part" if fractions[1] else "--posterior"
            raise InputError(f"--missing marginalise: not together with {what}; use --missing drop")
    if not data.total_count > 0:
        raise InputError(f"{name}: expected at least one observation, received counts that sum to zero")
    about = _about(name, source or _MAIN_TABLE)
    common: dict[str, Any] = {
        "name": name,
        "target": target,
        "seed": seed,
        "out": out,
        "resume": resume,
        "as_json": as_json,
    }
    if select:
        check_columns(data)
        data, ordered = ordinal_columns(data, ordinal)
        options = SelectOptions.parse(data, order, heredity, per_round, trainer, refit)
        if ordered:
            about.append(f"Taken as ordered: {', '.join(ordered)} (--ordinal none takes no column so).")
        run_select(_split(data, fractions, seed), options, about=about, **common)
        return
    structures = _structures(data, order, edges, main_job)
    parts = _split(data, fractions, seed)
    for structure in structures.values():
        cost = Auto().plan(structure)
        if not cost.feasible:
            if posterior or main_job or data.has_missing:
                what = "--posterior" if posterior or main_job else "--missing marginalise"
                raise IntractableError(
                    f"{what} needs exact inference: {cost.reason}. At the command line: fewer --columns, a lower "
                    "--order, or sparser --edges"
                )
            run_trained(parts, structure, cost.reason, about=about, **common)
            return
    folder = new_folder(out, name, resume)
    train, validation, test = parts.values()
    settings = PosteriorSettings(chains, draws, warmup) if posterior or main_job else None

    folder.mkdir(exist_ok=True)
    try:
        analysis = analyse(
            train,
            structures,
            validation=validation if fractions[1] else None,
            test=test if fractions[2] else None,
            posterior=settings,
            target=target,
            seed=seed,
            title=name,
            about=about,
            checkpoint=folder / "checkpoint",
            resume=resume,
        )
    except HoimError:
        if not any(path.is_file() for path in folder.rglob("*")):
            shutil.rmtree(folder)
        raise
    write_report(analysis, folder)
    summary = _summary(analysis, folder, seed, time.perf_counter() - started)
    (folder / "fit.json").write_text(to_json_text(summary, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(folder / "checkpoint")
    if as_json:
        echo_json(summary)
    else:
        click.echo(plain_report(analysis))
        click.echo(f"\nreport:    {folder / 'report.html'}\nmodel:     {folder / 'model.safetensors'}")
        if settings is not None:
            click.echo(f"posterior: {folder / 'posterior.nc'}")


def _summary(analysis: Analysis, folder: Path, seed: int, seconds: float) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    chosen = analysis.chosen
    structure = chosen.hypergraph
    summary: dict[str, Any] = {
        "model": str(folder / "model.safetensors"),
        "report": str(folder / "report.html"),
        "num_variables": len(structure.domain),
        "num_states": num_states_text(structure.domain.num_states),
        "num_interactions": len(structure),
        "num_parameters": structure.num_parameters,
        "edges": [list(edge) for edge in structure.edges],
        "log_partition": log_partition_json(chosen.log_partition),
        "rows": {part: whole(rows) for part, rows in chosen.scores.rows.items()},
        "impossible_rows": {part: whole(rows) for part, rows in chosen.scores.impossible_rows.items()},
        "kl": chosen.scores.kl,
        "nll": chosen.scores.nll,
        "pseudo_nll": chosen.scores.pseudo_nll,
        "independent_kl": chosen.scores.independent_kl,
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
            "max_r_hat": chosen.posterior.max_r_hat,
            "min_ess_bulk": chosen.posterior.min_ess_bulk,
            "divergences": chosen.posterior.num_divergences,
        }
    return {**summary, "seconds": seconds, "peak_memory_mb": peak_memory_mb(), "seed": seed}
