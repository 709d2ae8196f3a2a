"""``pyro-hoim fit --model grm``: generalized root models of counts and of real numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ...core.family import Asked, Option, Request, Study
from ...core.words import plural
from ...errors import conflict, out_of_range, refused, unexpected
from ...generalized_root.nodes.families import NodeFamily, node_family
from ...generalized_root.regress.fit import fit_root_path
from ...generalized_root.regress.options import RootSettings
from ...generalized_root.regress.result import RootFitResult, RootTerm
from ...generalized_root.study.analysis import AUTO_L1, RootAnalysis, analyse_roots
from ..count_reading import CountSource
from ..labelled import JOBS, ORDER
from ..output import log_partition_json
from ..reading import Fractions, held_out_split

__all__ = ["ROOT_OPTIONS", "VOCAB", "RootPlan", "parse_l1", "plan_roots", "tuple_json"]

_TOP = 50
_MOST_L1 = 1e6

VOCAB = Option(
    "vocab",
    "Column names of a .npz file for a grm, one a line.  [default: the same name with _vocab.txt]",
    kind="path",
    metavar="FILE",
)
ROOT_OPTIONS = (
    Option(
        "family",
        "With grm: law of a column given all others.",
        choices=("poisson", "truncated-poisson", "exponential", "gaussian"),
        default="poisson",
    ),
    Option(
        "l1",
        "With grm: penalty of every coefficient, nats a row. Several (or auto: "
        f"{', '.join(f'{value:g}' for value in AUTO_L1)}) are compared on the validation rows.  [default: 0.01]",
        multiple=True,
        metavar="LAMBDA|auto",
    ),
    VOCAB,
    Option(
        "maximum",
        "With grm: largest count of --family truncated-poisson.",
        kind="whole",
        low=1,
        high=2**53,
        metavar="R",
    ),
    Option(
        "symmetrize",
        "With grm: how the coefficients of a tuple at its columns become one: their mean, absent ones as zero; and: "
        "zero where one is absent; or: the mean of those present.",
        choices=("mean", "and", "or"),
        default="mean",
    ),
    Option(
        "refit_terms",
        "With grm: which coefficients are fitted again, together, once the columns' regressions are joined; none: the "
        "published way, which can predict worse than independent columns.",
        choices=("none", "singles", "all"),
        default="all",
    ),
    Option("stagewise", "With grm: learn pairs first, then only triples of mutually tied columns.", kind="flag"),
    Option(
        "full",
        "With grm: also lower roots: square and cube roots of single columns (which let counts spread more than "
        "Poisson ones do), cube roots of pairs. Of gaussian columns these hold the mean.  [default: gaussian only]",
        kind="switch",
    ),
    ORDER,
    JOBS,
)


@dataclass(frozen=True)
class RootPlan:
    """Learning a generalized root model; see :func:`~pyro_hoim.generalized_root.analyse_roots`.

    Attributes:
        asked: the options.
        family: law of a column given all others.
        l1: penalties, falling.
    """

    asked: Asked
    family: NodeFamily
    l1: tuple[float, ...]

    def read(self) -> CountSource:
        """The counts or real numbers."""
        return CountSource.read(self.asked.source or "", self.asked.columns, self.asked["vocab"], self.family)

    def complete(self, source: CountSource) -> CountSource:
        """The same rows, refused where they have fewer columns than the order asked for."""
        order, columns = self.asked["order"], len(source.rows.domain)
        if order is not None and order > columns:
            raise out_of_range("--order", f"1 to {columns} (the number of columns)", received=order)
        return source

    def split(self, source: CountSource) -> Fractions:
        """A fifth of the rows is held out, and another one where several penalties are compared."""
        return held_out_split(source.rows.num_rows, len(self.l1) > 1)

    def run(self, request: Request) -> Study:
        """Learn from the training rows."""
        asked, source = self.asked, request.source
        num_columns, order, full = len(source.rows.domain), asked["order"], asked["full"]
        rows, columns = plural(request.parts["train"].num_rows, "row"), plural(num_columns, "column")
        request.announce(
            f"learning {columns} from {rows}; an interrupted run is continued by --resume from {request.checkpoint}"
        )
        settings = RootSettings(
            stagewise=asked["stagewise"],
            symmetrize=asked["symmetrize"],
            jobs=-1 if asked["jobs"] is None else asked["jobs"],
            progress=request.progress,
        )

        def learn(*learned: Any, order: int) -> tuple[RootFitResult, ...]:
            return fit_root_path(
                *learned,
                order=order,
                full=self.family.name == "gaussian" if full is None else full,
                refit=asked["refit_terms"],
                settings=settings,
                checkpoint=request.checkpoint / f"roots-{order}.safetensors",
                resume=request.resume,
            )

        analysis = analyse_roots(
            request.parts,
            self.family,
            order=min(3, num_columns) if order is None else order,
            l1=self.l1,
            learn=learn,
            seed=request.seed,
            title=source.name,
            about=request.about,
        )
        return Study(analysis, _summary(analysis))


def plan_roots(asked: Asked) -> RootPlan:
    """Options checked against each other."""
    family, maximum, order = asked["family"], asked["maximum"], asked["order"]
    if asked.source is None:
        raise unexpected("--model grm", "a FILE of counts or numbers, or classic3", received="none", code="conflict")
    if family == "truncated-poisson" and maximum is None:
        raise conflict("--maximum", "--family truncated-poisson needs its largest count")
    if family != "truncated-poisson" and maximum is not None:
        raise conflict("--maximum", f"belongs to --family truncated-poisson, received --family {family}")
    if order is not None and order < 1:
        raise out_of_range("--order", "a whole number of at least 1", received=order)
    penalties = parse_l1(asked["l1"])
    if len(penalties) > 1 and asked.split is not None and not asked.split[1] > 0:
        problem = "several penalties are compared on validation rows"
        raise refused("--l1", problem, "pass --split, such as --split 0.7,0.1,0.2")
    return RootPlan(asked, node_family(family, maximum), penalties)


def parse_l1(words: tuple[str, ...]) -> tuple[float, ...]:
    """Penalties in falling order; 0.01 where none is given."""
    parts = [part.strip() for word in words for part in word.split(",")]
    if not parts:
        return (0.01,)
    if parts == ["auto"]:
        return AUTO_L1
    found: list[float] = []
    for part in parts:
        if part == "auto":
            several = ", ".join(f"{value:g}" for value in AUTO_L1)
            raise conflict("--l1", f"auto stands for {several} and takes no other numbers beside it")
        try:
            value = float(part)
        except ValueError:
            what = repr(part) if part else "nothing between two commas"
            raise out_of_range("--l1", "a number, or auto", received=what) from None
        if not 0 <= value <= _MOST_L1:
            raise out_of_range("--l1", f"a number from 0 to {_MOST_L1:g} (nats a row)", received=part)
        if value in found:
            raise refused("--l1", f"{part} is given twice", code="repeated-name")
        found.append(value)
    return tuple(sorted(found, reverse=True))


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
    keys = [key for key in sorted(analysis.fit.num_terms) if key[1] == 1]
    return [term for key in keys for term in sorted(analysis.fit.terms(key), key=lambda term: -term.coefficient)[:_TOP]]


def _summary(analysis: RootAnalysis) -> dict[str, Any]:
    """The keys that ``fit --json`` prints and ``fit.json`` holds."""
    found, parts = analysis.fit, analysis.parts

    def each(read: Callable[[Any], Any]) -> dict[str, Any]:
        return {part: None if held is None else read(held) for part, held in parts.items()}

    edges = [term for term in found.terms() if term.key[1] > 1]
    names = next(part for part in parts.values() if part is not None).baselines
    return {
        "num_variables": len(analysis.domain),
        "num_states": None,
        "num_interactions": analysis.fit.num_interactions,
        "num_parameters": found.structure.num_terms,
        "num_terms": [{"root": j, "order": size, "terms": n} for (j, size), n in analysis.fit.num_terms.items()],
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
        "order": analysis.fit.order,
        "l1": analysis.l1,
        "symmetrize": found.symmetrize,
        "is_full": analysis.fit.is_full,
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
            for key in sorted(analysis.fit.num_terms)
            if key[1] > 1
            for sign in (1, -1)
            for term in found.terms(key, num=_TOP, sign=sign)
        ],
        "stage_seconds": dict(analysis.seconds),
    }
