"""Learning interactions, and fits of given ones that are too large for exact gradients."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, get_args

from ...budgets import MAX_SAMPLED_ENTRIES, check_size
from ...core.command.options import LABELLED, MAX_ORDER, only, seconds
from ...core.command.rows import Fractions, LabelledPlan, Missing, Table
from ...core.family import Asked, Option, Request
from ...core.words import option, plural, rows_text
from ...data.frames import check_columns
from ...data.joined import Join, join_columns
from ...errors import refused
from ...log_linear.learning.learn import Regularisation, fit_collection, learn
from ...log_linear.learning.model import LearnResult
from ...log_linear.named_priors import Prior
from ...log_linear.search.rounds import SelectionOptions
from ...runs.checkpoint import RunOptions
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..learned import LearnedAnalysis, analyse_learned

_SPLIT: Fractions = (0.35, 0.15, 0.5)

LEARN_OPTIONS = (
    MAX_ORDER,
    Option("refit", "Fit training and validation rows together at the end.", kind="flag"),
    Option(
        "heredity",
        "Share of the subsets one variable smaller that a set must have in the model.",
        kind="number",
        high=1,
        is_open=True,
        default=0.3,
    ),
    Option(
        "per_round",
        "Interactions added in the first round after the pairs. Every further round adds twice as many.  [default: 60,"
        " or a quarter of the columns]",
        kind="whole",
        low=1,
        metavar="N",
    ),
    Option(
        "trainer",
        "How models are fitted. auto is exact up to about two million states.",
        choices=("auto", "exact", "sampled", "pseudo-likelihood"),
        default="auto",
    ),
    Option(
        "time_limit",
        "Time, such as 90s, 5m or 2h, after which the search ends with its best model so far. The stages that follow "
        "are cut, too. {resume} goes on from there.",
        metavar="TIME",
    ),
    Option(
        "ordinal",
        "Columns whose neighbouring levels are alike. auto takes those whose order is declared or known (numbers, "
        "ranges, dates, common scales). none takes none, not even those that a file declares.",
        default="auto",
        metavar="auto|none|NAMES",
    ),
    Option(
        "join",
        "Which columns become one variable. exact joins those of which exactly one is set. exclusive also joins those "
        "of which at most one is set. determined also joins those that say nearly all of another. A new row may break "
        "a group with a small probability. hard is exact without that.",
        choices=get_args(Join),
        default="exact",
    ),
    Option(
        "prior",
        "Prior of the strengths. unit has the information of one row or of M, normal the standard deviation S, and "
        "ridge the strength S.  [default: the rows choose]",
        metavar="unit[:M]|normal:S|ridge:S",
    ),
    *LABELLED,
)


@dataclass(frozen=True)
class LearnPlan(LabelledPlan):
    """Learning which interactions there are; the rows choose their strengths where there is no prior."""

    shares: ClassVar[Fractions | None] = _SPLIT

    prior: Prior | None

    def __post_init__(self) -> None:
        seconds(self.asked["time_limit"])

    def complete(self, source: Table) -> Table:
        """The table without missing cells, its ordered columns marked; refused where nothing can be learned."""
        reason = "learn, whose validation rows must be complete"
        table = source.complete(Missing.parse(self.asked["missing"]), reason)
        check_columns(table.rows, weighted=table.is_weighted)
        table = table.with_ordinal(self.asked["ordinal"])
        self._max_order(table.rows.domain)
        return table

    def run(self, request: Request) -> LearnedAnalysis:
        """Learn."""
        asked, parts = self.asked, request.parts
        # Every part must hold rows before the search begins.
        joined = join_columns(request.source.rows, asked["join"])
        domain = joined.joined_domain
        max_order = self._max_order(request.source.rows.domain)
        if joined:
            max_order = max(2, min(max_order, len(domain)))
        strengths = _fixed(self.prior, domain, max_order)
        for part in ("train", "validation"):
            if not parts[part].total_count > 0:
                problem = (
                    f"the {part} part is empty; rows are needed to fit and others to decide when to stop. Use a "
                    f"{option('split')} whose first two fractions are large enough, such as 0.7,0.3,0"
                )
                raise refused("split", problem, code="empty")

        # The search, which a checkpoint continues.
        def work(checkpoint: Path) -> LearnResult:
            return learn(
                parts["train"],
                parts["validation"],
                join=joined,
                search=SelectionOptions(
                    max_order=max_order,
                    heredity=asked["heredity"],
                    per_round=asked["per_round"],
                    time_limit=seconds(asked["time_limit"]),
                ),
                trainer=asked["trainer"],
                refit=asked["refit"],
                regularisation=strengths,
                seed=request.seed,
                run=RunOptions(checkpoint=checkpoint, resume=request.resume, progress=True),
            )

        # Joined columns are learned as one, and rows, target and report follow.
        rows = [rows_text(parts[part]) for part in ("train", "validation")]
        stage = f"learning from {rows[0]}, judged on {rows[1]} of validation"
        if not joined:
            return _study(work, asked, request, stage)
        request.announce(joined.sentence())
        over = {name: joined.join(part) for name, part in parts.items()}
        target = asked["target"] and joined.variable_of(asked["target"])
        asked = replace(asked, values={**asked.values, "target": target})
        return _study(work, asked, replace(request, parts=over), stage, joined.sentence())

    def _max_order(self, domain: Domain) -> int:
        """Variables of the largest interaction."""
        order = only(self.asked, "max_order")
        if order is None:
            return max(2, min(3, len(domain)))
        if not 2 <= order <= len(domain):
            raise refused(
                "max_order",
                f"expected 2 to {len(domain)} (the number of variables), the size of the largest interaction; received "
                f"{order}",
                code="out-of-range",
            )
        return order


def plan_learn(asked: Asked) -> LearnPlan:
    """Options checked against each other."""
    return LearnPlan(asked, None if asked["prior"] is None else Prior.parse(asked["prior"], "prior"))


def smaller() -> str:
    """What to do about too many interactions."""
    return f"use learn, a lower {option('order')}, fewer {option('columns')}, or name {option('edges')}"


def check_sampled(num_entries: int) -> None:
    """Refuse more entries of tables than sampled gradients are meant for."""
    what = "exact inference is out of reach, and for sampled gradients there are"
    check_size(num_entries, MAX_SAMPLED_ENTRIES, "entries of interaction tables", "order", smaller(), what)


def train_given(
    asked: Asked, hypergraph: InteractionHypergraph, reason: str, request: Request, prior: Prior | None
) -> LearnedAnalysis:
    """Train given interactions by sampled gradients, where exact ones are out of reach for a reason, and say so."""
    check_sampled(hypergraph.num_terms)
    strengths = _fixed(prior, hypergraph.domain, hypergraph.order)
    reason_given = (
        f"Exact inference is out of reach ({reason}), so gradients and log Z were estimated from Markov chains."
    )

    def work(checkpoint: Path) -> LearnResult:
        return fit_collection(
            request.parts["train"],
            hypergraph,
            seed=request.seed,
            run=RunOptions(checkpoint=checkpoint, resume=request.resume, progress=True),
            regularisation=strengths,
        )

    # The run says how large it is, for it may take long.
    rows = rows_text(request.parts["train"])
    sizes = plural(hypergraph.num_interactions, "interaction"), plural(hypergraph.num_parameters, "parameter")
    return _study(work, asked, request, f"fitting {rows} by sampled gradients: {', '.join(sizes)}", reason_given)


def _timed(learned: LearnResult, earlier: float, scores: float) -> LearnResult:
    """The model, and its structure, with the time of the sessions before and of the scores among the stages."""
    structure = None if learned.structure is None else _timed(learned.structure, earlier, scores)
    before = {"earlier_sessions": earlier} if earlier else {}
    return replace(learned, seconds={**before, **learned.seconds, "scores": scores}, structure=structure)


def _fixed(prior: Prior | None, domain: Domain, max_order: int) -> Regularisation:
    """The strengths of a prior, which the rows do not move; without one, those that they choose."""
    if prior is None:
        return Regularisation()
    return Regularisation(prior.strengths(domain, max_order, "prior"), evidence_rounds=0)


def _study(
    work: Callable[[Path], LearnResult], asked: Asked, request: Request, stage: str, *told: str
) -> LearnedAnalysis:
    """Train and score."""
    request.begin(stage)
    learned = work(request.checkpoint)
    shown = learned if learned.structure is None else learned.structure
    request.announce(f"scoring the rows and valuing {plural(shown.hypergraph.num_interactions, 'interaction')}")
    # Scores and values of interactions, after training.
    source, begin = request.source, time.perf_counter()
    analysis = analyse_learned(
        learned,
        request.parts,
        target=asked["target"],
        title=source.name,
        about=[*source.about, *told, *source.told()],
        seed=request.seed,
    )
    # Times of all sessions of the run.
    timed = _timed(learned, request.earlier_seconds, time.perf_counter() - begin)
    is_open = any(note.startswith("the time limit") for note in learned.notes)
    return replace(
        analysis, learned=timed, seconds=(timed.structure or timed).seconds, prior=asked["prior"], is_open=is_open
    )
