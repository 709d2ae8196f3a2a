"""The fit of a log-linear model: given interactions, or learned ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.command.answers import accuracy_by_part, by_part, log_partition_json, rows_by_part
from ...core.command.options import JOBS, LABELLED, ORDER
from ...core.command.rows import ALL_TRAIN, Fractions, Missing, Table, read_labelled
from ...core.family import Asked, Option, Request, Study
from ...core.parts import PARTS
from ...core.words import num_states_text, option
from ...data.observations import Observations
from ...errors import conflict, out_of_range, out_of_reach, refused
from ...log_linear.auto import Auto
from ...log_linear.goodness.goodness_of_fit import GoodnessOfFit
from ...log_linear.named_priors import Prior
from ...runs.options import RunOptions
from ...structure.hypergraph import InteractionHypergraph
from ..analysis import Analysis, analyse
from ..posterior_chains import PosteriorSettings
from .select import GAINS, SCORES, SELECT_OPTIONS, SelectPlan, train_given

__all__ = ["LOG_LINEAR_OPTIONS", "plan_log_linear"]

LOG_LINEAR_OPTIONS = (
    Option("edges", 'Interactions as a formula, e.g. "smoke*mental + phys*systol".', metavar="SPEC"),
    Option("select", "Learn the interactions and their strengths from the data.", kind="flag"),
    *SELECT_OPTIONS,
    Option(
        "prior",
        "Prior of the estimates, which makes them finite: normal with standard deviation S, the same by its strength "
        "S, with the information of one row (unit), or N fictive rows spread evenly.  [default: none; normal:1 for "
        "{posterior}; with {select} the rows choose]",
        metavar="none|unit|normal:S|ridge:S|conjugate:N",
    ),
    Option("posterior", "Sample the posterior with NUTS and compare models by leave-one-out.", kind="flag"),
    Option("chains", "Chains of {posterior}.", kind="whole", low=1, high=64, default=4),
    Option("draws", "Draws a chain of {posterior}.", kind="whole", low=10, default=1000),
    Option("burn_in", "Steps of {posterior} before the draws.", kind="whole", low=10, default=500),
    ORDER,
    JOBS,
    *LABELLED,
)


@dataclass(frozen=True)
class _LogLinearPlan:
    """Fits of given interactions, by exact inference where it is in reach; of order 1, 2 and 3 as the main job."""

    asked: Asked
    prior: Prior | None
    is_main_job: bool

    @property
    def has_posterior(self) -> bool:
        """Whether posteriors are drawn."""
        return self.is_main_job or self.asked["posterior"]

    def read(self) -> Table:
        """The table."""
        return read_labelled(self.asked)

    def complete(self, source: Table) -> Table:
        """The table with missing cells dealt with."""
        reason = (
            option("posterior", True)
            if self.has_posterior
            else "a validation part"
            if self.asked.split and self.asked.split[1]
            else None
        )
        table = source.complete(Missing.parse(self.asked["missing"]), reason)
        self._structures(table.rows)
        return table

    def split(self, source: Table) -> Fractions:  # noqa: ARG002 (the same for all)
        """All rows are fitted."""
        return ALL_TRAIN

    def run(self, request: Request) -> Study:
        """Fit every collection."""
        rows: Observations = request.parts["train"]
        structures = self._structures(rows)
        for structure in structures.values():
            cost = Auto().plan(structure)
            if not cost.feasible:
                if self.has_posterior or request.source.rows.has_missing:
                    names = ("posterior", True) if self.has_posterior else ("missing", "marginalise")
                    hint = f"use fewer {option('columns')}, a lower {option('order')}, or sparser {option('edges')}"
                    raise out_of_reach(f"{option(*names)} needs exact inference", cost.reason, hint)
                return train_given(self.asked, structure, cost.reason, request, self.prior)
        settings = None
        if self.has_posterior:
            chains = (self.asked[name] for name in ("chains", "draws", "burn_in"))
            settings = PosteriorSettings(*chains, jobs=self.asked["jobs"])
            settings = settings if self.prior is None else replace(settings, prior=self.prior)
        shares: dict[str, float] = dict(zip(PARTS, request.fractions, strict=True))
        analysis = analyse(
            {part: held for part, held in request.parts.items() if shares[part]},
            structures,
            prior=self.prior,
            posterior=settings,
            target=self.asked["target"],
            seed=request.seed,
            title=request.source.name,
            about=request.about,
            run=RunOptions(request.checkpoint, request.resume, request.progress),
        )
        return Study(analysis, _summary(analysis, request.folder))

    def _structures(self, data: Observations) -> dict[str, InteractionHypergraph]:
        """The collections to fit, by name."""
        order, edges = self.asked["order"], self.asked["edges"]
        if self.is_main_job:
            orders = range(1, min(3, len(data.domain)) + 1)
            return {f"order {k}": InteractionHypergraph.from_order(data.domain, k) for k in orders}
        if edges is not None:
            structure = InteractionHypergraph.from_formula(data.domain, edges, hierarchical=False)
            if not structure.is_hierarchical:
                missing = [":".join(e) for e in structure.closure().edges if e not in structure]
                shown = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
                problem = (
                    f"not closed under subsets; missing {shown} ({len(missing)} in all). Add them, or write a*b for a, "
                    "b and their interaction"
                )
                raise refused("edges", problem, code="missing-part")
            return {edges: structure}
        if order is None:
            order = min(2, len(data.domain))
        elif not 1 <= order <= len(data.domain):
            raise out_of_range("order", f"1 to {len(data.domain)} (the number of variables)", received=order)
        return {f"order {order}": InteractionHypergraph.from_order(data.domain, order)}


def plan_log_linear(asked: Asked) -> _LogLinearPlan | SelectPlan:
    """Options checked against each other."""
    edges, posterior, select = asked["edges"], asked["posterior"], asked["select"]
    if asked["order"] is not None and edges is not None:
        raise conflict(f"{option('order')} and {option('edges')}", "give one of them, not both")
    if select and (edges is not None or posterior or asked.source is None):
        received = "edges" if edges is not None else "posterior" if posterior else None
        what = "no TABLE or FILE" if received is None else option(received)
        raise conflict("select", f"learns the interactions of one table, received {what} with it")
    for own in SELECT_OPTIONS:
        if not select and own.name in asked.given:
            raise conflict(own.name, f"belongs to {option('select', True)}")
    prior = None if asked["prior"] is None else Prior.parse(asked["prior"], "prior")
    is_main_job = asked.source is None and asked["order"] is None and edges is None
    if asked["jobs"] is not None and not (posterior or is_main_job):
        raise conflict("jobs", f"of a log-linear model belongs to {option('posterior', True)}")
    if prior is not None and prior.is_flat and (posterior or is_main_job):
        raise conflict("prior", "a posterior needs a proper prior, received none", "use normal:S or another")
    return SelectPlan(asked, prior) if select else _LogLinearPlan(asked, prior, is_main_job)


def _goodness_json(test: GoodnessOfFit | None) -> dict[str, Any] | None:
    """The keys of a test against the saturated model, None where the table is too large or cells are missing."""
    if test is None:
        return None
    names = ("method", "statistic", "pearson", "note")
    return {
        **{name: getattr(test, name) for name in ("deviance", "pearson", "p_value", "num_tables")},
        **{f"p_value_{name}": getattr(test, f"p_value_{name}") for name in names},
        "df": test.df_adjusted,
        "p_value_std_error": test.p_value_std_error if test.num_tables else None,
    }


def _summary(analysis: Analysis, folder: Path) -> dict[str, Any]:
    """The keys of ``fit.json``."""
    chosen = analysis.chosen
    structure, parts = chosen.hypergraph, chosen.parts
    summary: dict[str, Any] = {
        "num_variables": len(structure.domain),
        "num_states": num_states_text(structure.domain.num_states),
        "num_interactions": structure.num_interactions,
        "num_parameters": chosen.fit.num_parameters_fitted,
        "edges": [list(edge) for edge in structure.edges],
        "log_partition": log_partition_json(chosen.log_partition),
        "rows": rows_by_part(parts, "model.rows"),
        "impossible_rows": rows_by_part(parts, "impossible_rows"),
        **by_part(parts, **SCORES, **GAINS),
        "goodness_of_fit": _goodness_json(chosen.goodness),
        "prior": str(analysis.prior or "none"),
        "status": chosen.fit.status,
        "mle_exists": None if chosen.fit.existence is None else chosen.fit.existence.exists,
        **chosen.infinite_json,
    }
    if any(found and found.accuracy for found in parts.values()):
        summary["accuracy"] = accuracy_by_part(parts)
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
    return summary
