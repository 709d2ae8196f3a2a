"""``pyro-hoim fit --model grm``: generalized root models of counts and of real numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from ..analysis.roots import AUTO_L1, RootAnalysis, analyse_roots
from ..data import CountTable
from ..errors import InputError
from ..learning.root_regression import RootTerm
from ..models import NodeFamily, node_family
from ..report.root_page import root_plain_report, write_root_report
from ..report.words import plural
from .count_reading import CountSource
from .methods import is_terminal
from .options import WholeNumber
from .output import Output, log_partition_json, peak_memory_mb
from .session import Session, announce, session

__all__ = ["GRM_ONLY", "GRM_OPTIONS", "GrmOptions", "run_grm", "tuple_json"]

GRM_ONLY = ("family", "l1", "vocab", "maximum", "symmetrize", "refit_terms", "stagewise", "full")
"""Names of the options of ``fit`` that belong to generalized root models."""

_TOP = 50
_MOST_L1 = 1e6
_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--family",
        type=click.Choice(["poisson", "truncated-poisson", "exponential", "gaussian"]),
        default="poisson",
        show_default=True,
        help="With grm: law of a column given all others.",
    ),
    click.option(
        "--l1",
        multiple=True,
        metavar="LAMBDA|auto",
        help="With grm: penalty of every coefficient, nats a row. Several (or auto: "
        f"{', '.join(f'{value:g}' for value in AUTO_L1)}) are compared on the validation rows.  [default: 0.01]",
    ),
    click.option(
        "--vocab",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="With grm: column names of a .npz file, one a line.  [default: the same name with _vocab.txt]",
    ),
    click.option(
        "--maximum",
        type=WholeNumber(1, 2**53),
        metavar="R",
        help="With grm: largest count of --family truncated-poisson.",
    ),
    click.option(
        "--symmetrize",
        type=click.Choice(["mean", "and", "or"]),
        default="mean",
        show_default=True,
        help="With grm: how the coefficients of a tuple at its columns become one: their mean, absent ones as zero; "
        "and: zero where one is absent; or: the mean of those present.",
    ),
    click.option(
        "--refit-terms",
        type=click.Choice(["none", "singles", "all"]),
        default="all",
        show_default=True,
        help="With grm: which coefficients are fitted again, together, once the columns' regressions are joined; none: "
        "the published way, which can predict worse than independent columns.",
    ),
    click.option(
        "--stagewise", is_flag=True, help="With grm: learn pairs first, then only triples of mutually tied columns."
    ),
    click.option(
        "--full/--no-full",
        default=None,
        help="With grm: also lower roots: square and cube roots of single columns (which let counts spread more than "
        "Poisson ones do), cube roots of pairs. Of gaussian columns these hold the mean.  [default: gaussian only]",
    ),
)


def GRM_OPTIONS(command: _F) -> _F:  # noqa: N802 (a decorator like click's own constants here)
    """Add the options of learning a generalized root model to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class GrmOptions:
    """What the command line says about learning; see :func:`~pyro_hoim.analysis.analyse_roots`."""

    family: NodeFamily
    order: int | None
    l1: tuple[float, ...]
    symmetrize: str
    refit: str
    stagewise: bool
    full: bool
    jobs: int | None

    @classmethod
    def parse(
        cls,
        family: str,
        maximum: int | None,
        order: int | None,
        l1: tuple[str, ...],
        symmetrize: str,
        refit: str,
        stagewise: bool,
        full: bool | None,
        jobs: int | None,
        has_validation: bool,
    ) -> GrmOptions:
        """Options checked against each other.

        Raises:
            InputError: a maximum without truncated-poisson or the reverse, an order below 1, a penalty that is no
                number from 0, one that is repeated, or several of them without validation rows.
        """
        if family == "truncated-poisson" and maximum is None:
            raise InputError("--maximum: --family truncated-poisson needs its largest count")
        if family != "truncated-poisson" and maximum is not None:
            raise InputError(f"--maximum: belongs to --family truncated-poisson, received --family {family}")
        if order is not None and order < 1:
            raise InputError(f"--order: expected a whole number of at least 1, received {order}")
        penalties = parse_l1(l1)
        if len(penalties) > 1 and not has_validation:
            raise InputError(
                "--l1: several penalties are compared on validation rows; pass --split, such as --split 0.7,0.1,0.2"
            )
        lower = family == "gaussian" if full is None else full
        return cls(node_family(family, maximum), order, penalties, symmetrize, refit, stagewise, lower, jobs)

    def for_columns(self, num_columns: int) -> GrmOptions:
        """The same with an order: by default 3, or the number of columns where there are fewer.

        Raises:
            InputError: an order above the number of columns.
        """
        if self.order is not None and self.order > num_columns:
            raise InputError(f"--order: expected 1 to {num_columns} (the number of columns), received {self.order}")
        return replace(self, order=min(3, num_columns) if self.order is None else self.order)


def parse_l1(words: tuple[str, ...]) -> tuple[float, ...]:
    """Penalties in falling order; 0.01 where none is given.

    Raises:
        InputError: a word that is no number from 0 to 1e6, a repeated one, or auto beside others.
    """
    parts = [part.strip() for word in words for part in word.split(",")]
    if not parts:
        return (0.01,)
    if parts == ["auto"]:
        return AUTO_L1
    found: list[float] = []
    for part in parts:
        if part == "auto":
            several = ", ".join(f"{value:g}" for value in AUTO_L1)
            raise InputError(f"--l1: auto stands for {several} and takes no other numbers beside it")
        try:
            value = float(part)
        except ValueError:
            what = repr(part) if part else "nothing between two commas"
            raise InputError(f"--l1: expected a number, or auto, received {what}") from None
        if not 0 <= value <= _MOST_L1:
            raise InputError(f"--l1: expected a number from 0 to {_MOST_L1:g} (nats a row), received {part}")
        if value in found:
            raise InputError(f"--l1: {part} is given twice")
        found.append(value)
    return tuple(sorted(found, reverse=True))


def run_grm(parts: dict[str, CountTable], options: GrmOptions, output: Output[CountSource]) -> None:
    """Learn a generalized root model from the training rows, and write and print what was found.

    Args:
        parts: rows of train, validation and test.
        options: of learning.
        output: what to write and print.
    """
    source = output.table
    with session(output.folder(), output.started, output.as_read) as run:
        rows, columns = plural(parts["train"].num_rows, "row"), plural(len(source.rows.domain), "column")
        announce(
            f"learning {columns} from {rows}; an interrupted run is continued by --resume from {run.checkpoint}",
            output.started,
        )
        analysis = analyse_roots(
            parts,
            options.family,
            order=options.order or 1,
            l1=options.l1,
            symmetrize=options.symmetrize,
            refit=options.refit,
            stagewise=options.stagewise,
            full=options.full,
            jobs=-1 if options.jobs is None else options.jobs,
            seed=output.seed,
            title=source.name,
            about=[*source.about, *source.told()],
            checkpoint=run.checkpoint,
            resume=output.resume,
            progress=is_terminal(),
        )
        announce("writing the report", output.started)
        write_root_report(analysis, run.folder)
        output.write(_summary(analysis, run), run)
    if not output.as_json:
        output.echo(root_plain_report(analysis))
        click.echo(f"\nreport: {run.folder / 'report.html'}\nmodel:  {run.folder / 'model.safetensors'}")


def tuple_json(term: RootTerm) -> dict[str, Any]:
    """The JSON object of a term: its names, tensor entry and coefficient."""
    j, size = term.key
    return {
        "edge": list(term.names),
        "value": term.coefficient / math.factorial(size),
        "coefficient": term.coefficient,
        "order": size,
        "root": j,
    }


def _singles(analysis: RootAnalysis) -> list[RootTerm]:
    """Largest coefficients of the columns themselves, then those of their roots."""
    keys = [key for key in sorted(analysis.num_terms) if key[1] == 1]
    return [term for key in keys for term in sorted(analysis.fit.terms(key), key=lambda term: -term.coefficient)[:_TOP]]


def _summary(analysis: RootAnalysis, run: Session) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    found, parts = analysis.fit, analysis.parts

    def each(read: Callable[[Any], Any]) -> dict[str, Any]:
        return {part: None if held is None else read(held) for part, held in parts.items()}

    edges = [term for term in found.terms() if term.key[1] > 1]
    names = next(part for part in parts.values() if part is not None).baselines
    return {
        "model": str(run.folder / "model.safetensors"),
        "report": str(run.folder / "report.html"),
        "num_variables": len(analysis.domain),
        "num_states": None,
        "num_interactions": analysis.num_interactions,
        "num_parameters": found.structure.num_terms,
        "num_terms": [{"root": j, "order": size, "terms": n} for (j, size), n in analysis.num_terms.items()],
        "edges": [list(term.names) for term in edges],
        "log_partition": log_partition_json(analysis.log_partition),
        "log_partition_reason": analysis.no_log_partition or None,
        "rows": {part: 0 if held is None else held.scores.rows for part, held in parts.items()},
        "impossible_rows": each(lambda held: held.scores.impossible_rows),
        "zero_columns": list(found.zero_columns),
        "constant_columns": list(found.constant_columns),
        "fixed_columns": dict(found.fixed_columns),
        "kl": each(lambda held: held.scores.kl),
        "nll": each(lambda held: held.scores.nll),
        "pseudo_nll": each(lambda held: held.scores.pseudo_nll),
        "pseudo_nll_std_error": each(lambda held: held.scores.pseudo_nll_std_error),
        "independent_kl": each(lambda held: held.independent.kl),
        "independent_pseudo_nll": each(lambda held: held.independent.pseudo_nll),
        "gain": each(lambda held: held.gain),
        "gain_std_error": each(lambda held: held.gain_std_error),
        "baselines": {name: each(lambda held, n=name: held.baselines[n].pseudo_nll) for name in names},
        "family": found.family.name,
        "maximum": int(found.family.largest_value) if found.family.name == "truncated-poisson" else None,
        "order": analysis.order,
        "l1": analysis.l1,
        "symmetrize": found.symmetrize,
        "is_full": analysis.is_full,
        "refit": None if found.refit is None else asdict(found.refit),
        "path": [
            {
                "l1": step.l1,
                "num_interactions": step.num_terms,
                "pseudo_nll": {"train": step.train, "validation": step.validation},
                "kkt_residual": step.kkt_residual,
            }
            for step in analysis.path
        ],
        "kkt_residual": float(found.kkt_residual.max()) if len(found.nodes) else 0.0,
        "tolerance": found.tolerance,
        "status": "converged" if found.is_converged else "not converged",
        "singles": [tuple_json(term) for term in _singles(analysis)],
        "interactions": [
            {**tuple_json(term), "standardised": analysis.standardised(term).coefficient}
            for key in sorted(analysis.num_terms)
            if key[1] > 1
            for sign in (1, -1)
            for term in found.terms(key, num=_TOP, sign=sign)
        ],
        "stage_seconds": dict(analysis.seconds),
        "seconds": run.seconds,
        "peak_memory_mb": peak_memory_mb(),
        "seed": analysis.seed,
    }
