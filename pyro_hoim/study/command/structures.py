"""Posteriors over structure at the command line: which interactions exist, and the most probable collection fitted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

from ...budgets import MAX_SWEEPS
from ...core.command.options import LABELLED, only
from ...core.command.rows import ALL_TRAIN, Fractions, LabelledPlan, Missing, Table
from ...core.family import Asked, Option, Request
from ...core.words import num_states_text, option
from ...data.observations import Observations
from ...errors import conflict, out_of_range, out_of_reach, unexpected
from ...inference.structure.chains import ChainSettings
from ...inference.structure.kernel import is_dense
from ...inference.structure.posterior import save_structure_posterior
from ...inference.structure.prior import SpaceName, StructurePrior
from ...log_linear.auto import Auto
from ...log_linear.named_priors import Prior
from ...log_linear.restricted.terms import Interactions
from ...runs.checkpoint import RunOptions
from ..analysis import Analysis, analyse
from ..structures import STRUCTURE_FILE, find_structures, record_structures

_NAME = "the most probable collection"
_CHAINS = ("num_chains", "num_draws", "burn_in")

STRUCTURE_OPTIONS = (
    Option(
        "max_order",
        "Number of variables of the largest interaction that is allowed.",
        kind="whole",
        multiple=True,
        metavar="K",
    ),
    Option("space", "Which collections are allowed.  [default: hierarchical]", choices=get_args(SpaceName)),
    Option(
        "inclusion",
        "Prior probability of an interaction, or a beta distribution if it is unknown.  [default: 0.5, which makes all"
        " collections equally probable]",
        metavar="P|beta:A,B",
    ),
    Option(
        "prior",
        "Prior of the coefficients of a collection. unit has the information of one row or of M, normal the standard "
        "deviation S, ridge the strength S, and conjugate N fictive rows spread evenly.",
        default="unit",
        metavar="unit[:M]|normal:S|ridge:S|conjugate:N",
    ),
    Option(
        "num_chains",
        "Number of chains. This option and the next two ask for chains even if the collections could be listed.",
        kind="whole",
        low=1,
        high=64,
        default=4,
    ),
    Option("num_draws", "Draws a chain.", kind="whole", low=10, high=MAX_SWEEPS, default=1000),
    Option("burn_in", "Sweeps over collections before the draws.", kind="whole", low=10, high=MAX_SWEEPS, default=500),
    Option("jobs", "Chains drawn at a time, each in a process.", kind="whole", low=1, high=256, default=1, metavar="N"),
    *LABELLED,
)


def analyse_request(request: Request, asked: Asked, structures: Mapping[str, Interactions], **options: Any) -> Analysis:
    """The analysis of structures fitted to the rows of a command; further options are those of :func:`analyse`."""
    shares = zip(request.parts.items(), request.fractions, strict=True)
    analysis = analyse(
        {part: rows for (part, rows), share in shares if share},
        structures,
        target=asked["target"],
        seed=request.seed,
        title=request.source.name,
        run=RunOptions(request.checkpoint, request.resume, request.progress),
        **options,
    )
    return replace(analysis, about=request.about)


@dataclass(frozen=True)
class StructurePlan(LabelledPlan):
    """The posterior over structure, by a list, junction trees or chains, and a fit of the most probable collection."""

    shares: ClassVar[Fractions | None] = ALL_TRAIN

    prior: Prior
    space: SpaceName
    inclusion: float | tuple[str, float, float]
    settings: ChainSettings | None

    def complete(self, source: Table) -> Table:
        """The table without missing cells; refused where the options do not fit its columns."""
        table = source.complete(Missing.parse(self.asked["missing"]), "structures")
        self._law(table.rows)
        return table

    def run(self, request: Request) -> Analysis:
        """Find the posterior and set beside it what the page shows; fit the most probable collection."""
        rows: Observations = request.parts["train"]
        law = self._law(rows)
        if self.settings is not None or not law.is_listed:
            request.begin("drawing collections of interactions")
        run = RunOptions(request.checkpoint / "structures.safetensors", request.resume, request.progress)
        jobs = self.asked["jobs"]
        posterior, route = find_structures(rows, self.prior, law, self.settings, jobs=jobs, seed=request.seed, run=run)
        # The most probable collection must be fitted; where it cannot be, the posterior is not lost.
        cost = Auto().plan(posterior.models(1)[0].hypergraph)
        if not cost.feasible:
            path = request.folder / STRUCTURE_FILE
            about = {"data": request.source.name, "seed": request.seed, "method": route}
            save_structure_posterior(path, posterior, about)
            hint = f"use fewer {option('columns')}, or a lower {option('max_order')}; {path} holds the posterior"
            raise out_of_reach(f"the fit of {_NAME}", cost.reason, hint)
        # Rivals, other priors and averaged cells, and the fit that the page is about.
        request.announce("comparing the most probable collections")
        shape = (int(self.asked["num_chains"]), int(self.asked["num_draws"]))
        record = record_structures(posterior, route, *shape, seed=request.seed)
        chosen = {_NAME: record.rivals[0].hypergraph}
        return replace(analyse_request(request, self.asked, chosen, prior=self.prior), structures=record)

    def _law(self, data: Observations) -> StructurePrior:
        """The prior over collections of the columns."""
        order = only(self.asked, "max_order")
        law = StructurePrior(data.domain, max_order=order, inclusion=self.inclusion, space=self.space)
        if self.prior.kind != "conjugate" and not is_dense(law.space.largest):
            cells, largest = num_states_text(data.domain.num_states), law.space.largest.num_parameters
            raise out_of_reach(
                "columns",
                f"the evidence of a collection is a sum over a table of up to 4,096 cells, and 2^22 cells times "
                f"parameters; received {cells} cells and up to {largest:,} parameters",
                f"use fewer {option('columns')}, a lower {option('max_order')}, or "
                f"{option('space', 'decomposable')} with {option('prior', 'conjugate:1')}",
            )
        return law


def plan_structures(asked: Asked) -> StructurePlan:
    """Options checked against each other."""
    if asked.split is not None and asked.split[1]:
        raise conflict("split", "structures has no use for validation rows", "make its second fraction 0")
    prior = Prior.parse(asked["prior"], "prior")
    space: SpaceName = asked["space"] or "hierarchical"
    if prior.is_flat:
        raise conflict("prior", "a posterior needs a proper prior, received none", "use unit, normal:S or another")
    if prior.kind == "conjugate" and space != "decomposable":
        problem = f"the evidence under {prior} has a closed form for decomposable collections alone"
        raise conflict("prior", problem, f"add {option('space', 'decomposable')}, or use unit or normal:S")
    settings = None
    if any(name in asked.given for name in _CHAINS):
        if asked["num_chains"] < 2:
            raise out_of_range("num_chains", "at least 2, since one has none to disagree with", asked["num_chains"])
        settings = ChainSettings(asked["num_chains"], asked["num_draws"], asked["burn_in"])
    return StructurePlan(asked, prior, space, _parse_inclusion(asked["inclusion"]), settings)


def _parse_inclusion(text: str | None) -> Any:
    """The prior probability of an interaction, or the beta law, that a text names."""
    if text is None:
        return 0.5
    kind, colon, numbers = text.strip().partition(":")
    is_beta = bool(colon) and kind == "beta"
    expected = "a probability between 0 and 1, or beta:A,B with positive numbers A and B"
    try:
        values = [float(word) for word in (numbers.split(",") if is_beta else [text])]
    except ValueError:
        raise unexpected("inclusion", expected, text) from None
    is_good = all(v > 0 and math.isfinite(v) for v in values) and (len(values) == 2 if is_beta else values[0] < 1)
    if not is_good:
        raise out_of_range("inclusion", expected, text)
    return ("beta", *values) if is_beta else values[0]
