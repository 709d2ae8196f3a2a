"""The fit of a log-linear model of given interactions, and which plan a command has."""

from dataclasses import dataclass, replace
from typing import ClassVar

from ...budgets import MAX_SETS, MAX_SWEEPS, check_cells, check_size, num_entries, num_sets
from ...core.command.options import JOBS, LABELLED, ORDER, PENALTY, STRUCTURAL_ZEROS, only, parse_zeros
from ...core.command.rows import (
    ALL_TRAIN,
    Fractions,
    LabelledPlan,
    Missing,
    Table,
    warn_of_ranks,
    warn_of_size,
    warn_of_uniform,
)
from ...core.family import Asked, Option, Request
from ...core.words import option, plural
from ...data.observations import Observations
from ...data.order import Order
from ...errors import check_fraction, conflict, out_of_range, out_of_reach, refused
from ...log_linear.auto import Auto
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.fitting.duration import duration_words, timed_seconds
from ...log_linear.fitting.existence import check_rows_possible
from ...log_linear.fitting.fit import uses_design
from ...log_linear.fitting.identified import num_identified
from ...log_linear.fitting.result import FitResult
from ...log_linear.impossible import ImpossibleStates, structural_states
from ...log_linear.named_priors import Prior
from ...log_linear.restricted.terms import (
    Interactions,
    RestrictedInteractions,
    graph_of,
    interactions_of,
    is_within,
    score_names,
)
from ...log_linear.tensors.layout import check_binary
from ...runs.checkpoint import RunOptions
from ...structure.hypergraph import InteractionHypergraph, check_tables
from ..analysis import Analysis
from ..constrained import ConstrainedRecord, Constraint, as_fit, fit_constrained
from ..learned import LearnedAnalysis
from ..posterior import PosteriorSettings
from .learn import LearnPlan, check_sampled, plan_learn, smaller, train_given
from .structures import StructurePlan, analyse_request, plan_structures

# Fits within norm balls at the command line: sparse, low-rank, and sums of both.

_OTHERS = {
    "edges": "gives single interactions",
    "posterior": "draws a posterior",
    "prior": "makes estimates finite in another way",
    "structural_zeros": "belongs to fits of given interactions by likelihood",
}


@dataclass(frozen=True)
class PenaltyPlan(LabelledPlan):
    """A fit of all interactions up to an order within norm balls."""

    shares: ClassVar[Fractions | None] = ALL_TRAIN

    constraint: Constraint

    def complete(self, source: Table) -> Table:
        """The table without missing cells; refused where it has not two levels a column, or the order does not fit."""
        table = source.complete(Missing.parse(self.asked["missing"]), option("penalty", self.constraint.text))
        self._structure(table.rows)
        return table

    def run(self, request: Request) -> Analysis:
        """Fit, and set beside it what the page shows."""
        rows: Observations = request.parts["train"]
        structure = self._structure(rows)
        cost = Auto().plan(structure)
        if not cost.feasible:
            hint = f"use fewer {option('columns')} or a lower {option('order')}, or call frank_wolfe() of the library"
            raise out_of_reach(f"log Z of the fit by {option('penalty', self.constraint.text)}", cost.reason, hint)
        records: list[ConstrainedRecord] = []

        run = RunOptions(request.checkpoint / "penalty.safetensors", request.resume, request.progress)

        def estimate(graph: InteractionHypergraph, data: Observations) -> FitResult:
            record = fit_constrained(data, graph.order, self.constraint, run)
            records.append(record)
            model: LogLinearEnergy = record.result.model
            return as_fit(record, data, float(Auto().log_partition(model).value))

        structures = {f"order {structure.order} within {self.constraint.text}": structure}
        analysis = analyse_request(request, self.asked, structures, estimate=estimate)
        return replace(analysis, constrained=records[0])

    def _structure(self, data: Observations) -> InteractionHypergraph:
        """All interactions up to the order."""
        check_binary(data.domain, "penalty")
        num = len(data.domain)
        order = 2 if (given := only(self.asked, "order")) is None else given
        if num < 2:
            raise out_of_range("penalty", "a table of two columns or more", received=num)
        if not 2 <= order <= num:
            expected = f"2 to {num} (the number of variables) with {option('penalty', self.constraint.text)}"
            raise out_of_range("order", expected, received=order)
        return InteractionHypergraph.from_order(data.domain, order)


def plan_penalty(asked: Asked) -> PenaltyPlan | None:
    """Options checked against each other; None where no norm balls were asked for."""
    if asked["penalty"] is None:
        return None
    constraint = Constraint.parse(asked["penalty"], "penalty")
    for name, does in _OTHERS.items():
        if asked[name]:
            raise conflict("penalty", f"fits all interactions within norm balls, received {option(name)}, which {does}")
    for name in ("num_chains", "num_draws", "burn_in", "jobs"):
        if name in asked.given:
            raise conflict(name, f"has no use with {option('penalty', constraint.text)}")
    if asked.split is not None and asked.split[1]:
        problem = f"{option('penalty', constraint.text)} has no use for validation rows"
        raise conflict("split", problem, "make its second fraction 0")
    return PenaltyPlan(asked, constraint)


LOG_LINEAR_OPTIONS = (
    Option(
        "edges",
        'Interactions as a formula, e.g. "smoke*mental + phys*systol", or with scores and symmetry, e.g. '
        '"linear(a):linear(b)", "symmetric(a, b)". Several formulas are compared.',
        multiple=True,
        metavar="SPEC",
    ),
    PENALTY,
    Option(
        "prior",
        "Prior of the estimates, which makes them finite. normal has the standard deviation S, ridge the strength S, "
        "unit the information of one row or of M, and conjugate has N fictive rows spread evenly. It is taken by every"
        " fit of given interactions, by exact or sampled gradients, but not by formulas with functions.  [default: "
        "none; normal:1 for {posterior}]",
        metavar="none|unit[:M]|normal:S|ridge:S|conjugate:N",
    ),
    Option("level", "Coverage of the intervals of coefficients.", kind="number", high=1, default=0.95),
    Option(
        "tests",
        "How every interaction is tested. wald needs no further fits. likelihood-ratio fits the model without it.",
        choices=("wald", "likelihood-ratio"),
        default="wald",
    ),
    STRUCTURAL_ZEROS,
    Option("posterior", "Sample the posterior with NUTS and compare models by leave-one-out.", kind="flag"),
    Option("num_chains", "Chains of {posterior}.", kind="whole", low=1, high=64, default=4),
    Option("num_draws", "Draws a chain.", kind="whole", low=10, high=MAX_SWEEPS, default=1000),
    Option("burn_in", "Steps before the draws.", kind="whole", low=10, high=MAX_SWEEPS, default=500),
    ORDER,
    JOBS,
    *LABELLED,
)


@dataclass(frozen=True)
class _LogLinearPlan(LabelledPlan):
    """Fits of given interactions, by exact inference where it is in reach; of order 1, 2 and 3 as the main job."""

    shares: ClassVar[Fractions | None] = ALL_TRAIN

    prior: Prior | None
    is_main_job: bool

    @property
    def has_posterior(self) -> bool:
        """Whether posteriors are drawn."""
        return self.is_main_job or self.asked["posterior"]

    def complete(self, source: Table) -> Table:
        """The table with missing cells dealt with."""
        # What cannot do without complete rows is named in the refusal.
        reason = (
            option("posterior", True)
            if self.has_posterior
            else "a validation part"
            if self.asked.split and self.asked.split[1]
            else None
        )
        table = source.complete(Missing.parse(self.asked["missing"]), reason)
        scored = [score_names(table.rows.domain, text) for text in self.asked["edges"]]
        table = table.in_said_order({name for names in scored for name in names})
        # Levels that scores order must stand in that order.
        orders: dict[str, Order] = {}
        zeros = self._zeros(table.rows)
        check_rows_possible(zeros, table.rows)
        for name, structure in self._structures(table.rows).items():
            warn_of_uniform(graph_of(structure), name)
            orders |= structure.orders if isinstance(structure, RestrictedInteractions) else {}
        warn_of_ranks(orders)
        return replace(table, orders=orders, num_possible=None if zeros is None else zeros.num_possible)

    def run(self, request: Request) -> Analysis | LearnedAnalysis:
        """Fit every collection."""
        rows: Observations = request.parts["train"]
        structures, zeros = self._structures(rows), self._zeros(rows)
        # What is out of exact reach is trained by sampling, alone; nothing else can be.
        for name, structure in structures.items():
            graph = graph_of(structure)
            cost = Auto().plan(graph)
            if not cost.feasible:
                if len(structures) > 1:
                    hint = f"fit it alone, or use fewer {option('columns')}"
                    raise out_of_reach(f"the comparison with {name}", cost.reason, hint)
                if self.has_posterior or request.source.rows.has_missing:
                    names = ("posterior", True) if self.has_posterior else ("missing", "marginalise")
                    hint = f"use fewer {option('columns')}, a lower {option('order')}, or sparser {option('edges')}"
                    raise out_of_reach(f"{option(*names)} needs exact inference", cost.reason, hint)
                if self.asked["structural_zeros"]:
                    hint = f"use fewer {option('columns')}, a lower {option('order')}, or sparser {option('edges')}"
                    raise out_of_reach(f"{option('structural_zeros')} needs exact inference", cost.reason, hint)
                if graph is not structure:
                    hint = f"use fewer {option('columns')}, or a formula without functions"
                    raise out_of_reach(f"{option('edges')} with functions needs exact inference", cost.reason, hint)
                return train_given(self.asked, graph, cost.reason, request, self.prior)
            number = num_identified(structure, zeros, uses_design(graph))
            size = f"{plural(number, 'parameter')}, tables of up to {plural(cost.cells, 'cell')}"
            if (seconds := timed_seconds(graph, cost, rows.num_rows)) >= 2:
                size += f", very roughly {duration_words(seconds)}"
            request.announce(f"fitting {name}: {size}")
        # Maximum likelihood with more parameters than rows is warned of; a posterior needs memory for its draws.
        if self.prior is None and not self.has_posterior:
            warn_of_size(rows, max(structure.num_parameters for structure in structures.values()))
        settings = None
        if self.has_posterior:
            chains = [self.asked[name] for name in ("num_chains", "num_draws", "burn_in")]
            check_cells(chains[0] * chains[1], max(s.num_parameters for s in structures.values()), "num_draws")
            settings = PosteriorSettings(*chains, jobs=self.asked["jobs"])
            settings = settings if self.prior is None else replace(settings, prior=self.prior)
            drawn = plural(len(structures), "posterior")
            request.announce(f"drawing {drawn}, {plural(chains[0], 'chain')} of {chains[1]:,} draws each")
        # The fits themselves, with what the options ask of them.
        options = {"prior": self.prior, "posterior": settings, "structural_zeros": zeros}
        analysis = analyse_request(request, self.asked, structures, **options)
        return analysis.with_uncertainty(self.asked["level"], self.asked["tests"])

    def _zeros(self, data: Observations) -> ImpossibleStates | None:
        """The states that are impossible."""
        domain = data.domain
        combinations = parse_zeros(self.asked["structural_zeros"], domain)
        return structural_states(domain, combinations, option("structural_zeros"))

    def _structures(self, data: Observations) -> dict[str, Interactions]:
        """The collections to fit, by name."""
        orders, edges = self.asked["order"], self.asked["edges"]
        largest = len(data.domain)
        if not orders and not edges:
            orders = range(1, min(3, largest) + 1) if self.is_main_job else (min(2, largest),)
        structures: dict[str, Interactions] = {}
        for order in orders:
            if not 1 <= order <= largest:
                raise out_of_range("order", f"1 to {largest} (the number of variables)", received=order)
            # All sets of up to `order` columns; counted before they are made where no exact fit will
            # take them
            domain = data.domain
            unit = f"sets of up to {order} of {len(domain)} columns"
            check_size(num_sets(len(domain), order), MAX_SETS, unit, "order", smaller(), "there are")
            if order > 1 and domain.num_states > Auto().elimination.max_operations:
                check_sampled(num_entries(domain.cardinalities, order))
            _add(structures, "order", f"order {order}", InteractionHypergraph.from_order(domain, order))
        for text in edges:
            structure = interactions_of(data.domain, text)
            if isinstance(structure, InteractionHypergraph):
                structure = _closed(InteractionHypergraph.from_formula(data.domain, text, hierarchical=False))
            elif self.has_posterior or self.prior is not None:
                other = option("posterior") if self.has_posterior else option("prior")
                raise conflict("edges", f"a formula with functions is fitted by maximum likelihood, received {other}")
            _add(structures, "edges", text, structure)
        for structure in structures.values():
            check_tables(graph_of(structure))
        return structures


def _add(found: dict[str, Interactions], argument: str, name: str, structure: Interactions) -> None:
    """Add a collection under its name; refused where another has the same interactions."""
    for other, known in found.items():
        if is_within(known, structure) and is_within(structure, known):
            said = "given twice" if other == name else f"{name} has the same interactions as {other}"
            raise refused(argument, said, "give every model once", code="repeated-name")
    found[name] = structure


def _closed(structure: InteractionHypergraph) -> InteractionHypergraph:
    """A collection of a formula, refused unless it holds the subsets of every interaction."""
    if structure.is_hierarchical:
        return structure
    missing = [":".join(e) for e in structure.closure().edges if e not in structure]
    shown = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
    problem = (
        f"not closed under subsets; missing {shown} ({len(missing)} in all). Add them, or write a*b for a, b and their "
        "interaction"
    )
    raise refused("edges", problem, code="missing-part")


def plan_log_linear(asked: Asked) -> _LogLinearPlan | LearnPlan | StructurePlan | PenaltyPlan:
    """The plan of a command, its options checked against each other."""
    if asked.verb == "learn":
        return plan_learn(asked)
    if asked.verb == "structures":
        return plan_structures(asked)
    # Options that do not go together, before any row is read.
    edges, posterior = asked["edges"], asked["posterior"]
    check_fraction(asked["level"], "level")
    for name in ("level", "tests"):
        if name in asked.given and asked["penalty"]:
            raise conflict(name, "belongs to fits of given interactions by likelihood")
    penalty = plan_penalty(asked)
    if penalty is not None:
        return penalty
    prior = None if asked["prior"] is None else Prior.parse(asked["prior"], "prior")
    is_main_job = asked.source is None and not asked["order"] and not edges
    if asked["jobs"] is not None and not (posterior or is_main_job):
        raise conflict("jobs", f"of a log-linear model belongs to {option('posterior', True)}")
    if asked["structural_zeros"] and prior is not None and prior.kind == "conjugate":
        problem = f"conjugate spreads rows over all cells, received {option('structural_zeros')}"
        raise conflict("prior", problem, "use unit or normal:S")
    if prior is not None and prior.is_flat and (posterior or is_main_job):
        raise conflict("prior", "a posterior needs a proper prior, received none", "use normal:S or another")
    return _LogLinearPlan(asked, prior, is_main_job)
