"""Log-linear models, given or learned, as a family of the registry."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pandas as pd
import torch
from scipy.special import ndtri
from typing_extensions import override

from ...annealing.runs import chosen_rows
from ...budgets import LARGEST_SEED, MAX_SWEEPS
from ...core.command.answers import (
    annealed_rows_note,
    completion_answer,
    drawn_rows,
    is_default_log_z,
    log_z_budgets,
    log_z_of,
    prediction_answer,
    score_answer,
)
from ...core.command.options import (
    BOUNDS_OPTIONS,
    BURN_IN,
    COMPLETE,
    DRAW_METHOD,
    LABEL,
    LOG_Z_OPTIONS,
    PREDICT_METHOD,
    PREDICT_SEED,
)
from ...core.command.rows import warn_of_ranks
from ...core.family import (
    Answer,
    Asked,
    Family,
    Mode,
    Option,
    Plan,
    Question,
    Stored,
    more_interactions,
    top_interactions,
)
from ...core.partition import LogPartition, no_state
from ...core.prediction import ClampedGibbs
from ...core.scores import Figures, RowLogLikelihood, Scores, scores_of
from ...core.words import columns_of, fixed, listed, number, option, plain, short_edge
from ...data.joined import JoinedColumns
from ...data.observations import Observations
from ...errors import (
    IntractableError,
    check_choice,
    check_fraction,
    check_type,
    conflict,
    out_of_reach,
    refused,
    size_text,
    unexpected,
)
from ...log_linear.annealed.importance import AnnealedImportance, advice
from ...log_linear.auto import Auto
from ...log_linear.bounds.importance import BucketImportance
from ...log_linear.coding import Coding, Reference, parametrization
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.exact.elimination import VariableElimination
from ...log_linear.exact.enumeration import Enumeration
from ...log_linear.file import GivenTables, ModelFile, conditional_words
from ...log_linear.fitting.duration import (
    check_bound_duration,
    check_duration,
    check_incomplete_duration,
    check_pseudo_duration,
)
from ...log_linear.fitting.fit import OBJECTIVES, fit
from ...log_linear.fitting.incomplete import fit_incomplete, row_log_likelihood
from ...log_linear.fitting.result import CovarianceKind, FitResult
from ...log_linear.fitting.solvers import Stopping
from ...log_linear.given import check_single, impossible_rows
from ...log_linear.goodness.goodness_of_fit import likelihood_ratio_test, ratio_test_of_files, term_tests
from ...log_linear.goodness.odds_ratios import contrasts_of_file, contrasts_of_fit
from ...log_linear.goodness.summary import answers_of_fit, fit_figures, fit_summary, model_figures, model_summary
from ...log_linear.impossible import ImpossibleStates, ProductInside, StructuralZeros, on_support, structural_states
from ...log_linear.infinite import DECLARED, infinite_to_json, with_infinite
from ...log_linear.joined import JoinedLaw
from ...log_linear.laws.law import HierarchicalLogLinear
from ...log_linear.named_priors import Prior
from ...log_linear.restricted.terms import RestrictedInteractions, graph_of, interactions_of
from ...log_linear.scores import column_shares, directions_of, infinite_interactions, interaction_table
from ...results.contrasts import odds_ratios_table
from ...runs.container import LOG_LINEAR
from ...structure.hypergraph import InteractionHypergraph

if TYPE_CHECKING:
    from ...log_linear.learning.model import LearnResult
    from ...log_linear.search.rounds import SelectionResult


_MOST_FLOPS, _MOST_SUMS = 2**20, 2**24
_WITHOUT_SUMS = (
    "a dependency network (family='dependency-network') takes a second, a fit to the rows without missing cells less, "
    "and fewer levels or columns make smaller tables"
)
_QUICK = Auto(elimination=VariableElimination(max_operations=2**28))
"""Log Z where it takes about a second."""
_ENOUGH = 1e-4
"""Largest entry of the gradient per row of a pseudo-likelihood, as of scikit-learn's logistic regression."""

_PORTION = 1024  # rows drawn between two steps of the progress bar
_EDGE, _LEVELS = 48, 32  # characters

MOST_PROBABLE = Option("most_probable", "With {complete}: take the most probable cells instead of draws.", kind="flag")
INTERACTIONS_OPTIONS = (
    Option("information", "Also find what the model loses without each interaction.", kind="switch", default=True),
    Option(
        "num_samples",
        "Rows drawn from a large model to estimate that loss.",
        kind="whole",
        low=100,
        high=MAX_SWEEPS,
        default=4096,
        metavar="N",
    ),
    Option("level", "Coverage of the intervals of coefficients.", kind="number", high=1, default=0.95),
    Option("seed", "Seed of those rows.", kind="whole", low=0, high=LARGEST_SEED, default=0),
)
_OPTIONS = {
    "sample": (DRAW_METHOD, BURN_IN, MOST_PROBABLE, *COMPLETE),
    "score": (LABEL, *LOG_Z_OPTIONS, *BOUNDS_OPTIONS),
    "predict": (PREDICT_METHOD, PREDICT_SEED, LABEL),
    "log-z": (*LOG_Z_OPTIONS, *BOUNDS_OPTIONS),
    "interactions": INTERACTIONS_OPTIONS,
}


class LogLinearFamily(Family):
    """Hierarchical log-linear models."""

    kind = LOG_LINEAR
    name = "log-linear model"
    short = "log-linear"
    numbers = "cut"
    record = ModelFile

    @override
    def options(self, command: str) -> tuple[Option, ...]:
        if command == "fit":
            from .fit import LOG_LINEAR_OPTIONS

            return LOG_LINEAR_OPTIONS
        if command == "learn":
            from .learn import LEARN_OPTIONS

            return LEARN_OPTIONS
        if command == "structures":
            from .structures import STRUCTURE_OPTIONS

            return STRUCTURE_OPTIONS
        return _OPTIONS.get(command, ())

    @override
    def fit(self, asked: Asked) -> Plan:
        from .fit import plan_log_linear

        return plan_log_linear(asked)

    @override
    def estimate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        rows: Observations,
        *,
        order: int | None = None,
        edges: str | Iterable[Iterable[str]] | None = None,
        prior: str = "unit",
        objective: Literal["auto", "likelihood", "pseudo-likelihood", "bound"] = "auto",
        structural_zeros: StructuralZeros = None,
        seed: int = 0,
    ) -> FitResult:
        """Given interactions: all of up to ``order`` variables (2), or ``edges`` as a formula or sets of names, closed.

        A formula may hold functions such as ``linear(a)`` (:func:`~pyro_hoim.log_linear.restricted_interactions`).
        With the objective ``auto`` complete rows are fitted by likelihood where log Z takes up to 2^20 operations, else
        by pseudo-likelihood; ``bound`` maximises a lower bound of the likelihood beyond exact sums. Missing cells are
        summed over, which needs an exact likelihood. Unlike a fit for its tests, the estimate is finite by default:
        ``prior`` is ``unit``, and ``none`` is maximum likelihood. ``structural_zeros`` are combinations of levels that
        are impossible.
        """
        # The interactions, given in one of three ways.
        check_choice(objective, ("auto", *OBJECTIVES), "objective")
        domain = rows.domain
        if edges is None:
            structure = InteractionHypergraph.from_order(domain, min(2, len(domain)) if order is None else order)
        elif order is not None:
            raise conflict("order, edges", "at most one of them says the interactions")
        elif isinstance(edges, str):
            structure = interactions_of(domain, edges)
            if isinstance(structure, RestrictedInteractions):
                warn_of_ranks(structure.orders)
        else:
            structure = InteractionHypergraph(domain, edges, closure=True)
        graph = graph_of(structure)
        zeros = structural_states(domain, structural_zeros)
        cost, penalty = on_support(Auto(), zeros).plan(graph), Prior.parse(prior).penalty(graph)
        options: dict[str, Any] = {"penalty": penalty, "structural_zeros": zeros}
        # Cells that are summed over need an exact log Z at every step.
        if rows.has_missing:
            # Else what is within reach decides between likelihood and pseudo-likelihood.
            if objective in ("pseudo-likelihood", "bound"):
                raise conflict("objective", f"a {objective} needs complete rows", 'give "likelihood" or "auto"')
            if cost.feasible and cost.flops > _MOST_SUMS:
                problem = f"to sum over them needs log Z of {size_text(int(cost.flops), 'operations')} at every step"
                raise out_of_reach(
                    "missing cells", problem, "leave out their rows, or use fewer interactions or levels"
                )
            check_incomplete_duration(graph, rows.num_rows, _WITHOUT_SUMS)
            return fit_incomplete(structure, rows, **options)
        if objective == "auto":
            objective = "likelihood" if cost.feasible and cost.flops <= _MOST_FLOPS else "pseudo-likelihood"
        elif objective == "likelihood":
            check_duration(graph, rows.num_rows)
        if objective == "likelihood":
            return fit(structure, rows, objective=objective, **options)
        stopping = Stopping(tolerance=_ENOUGH)
        if objective == "bound":
            check_bound_duration(graph if zeros is None else zeros.added_to(graph), None)
            return fit(structure, rows, objective=objective, stopping=stopping, **options)
        check_pseudo_duration(graph, rows.num_rows)
        return fit(structure, rows, objective=objective, partition=_QUICK, stopping=stopping, **options)

    @override
    def record_of(self, model: Any) -> ModelFile:
        if isinstance(model, HierarchicalLogLinear):
            zeros = None if model.impossible is None else ImpossibleStates.common_to(model.impossible)
            return ModelFile(model.hypergraph, model.theta, model.coding, impossible=zeros)
        # A fit keeps what its summary needs without the rows.
        if isinstance(model, FitResult):
            figures = fit_figures(model)
            names = ("num_parameters", "log_likelihood", "is_maximum", "status")
            info = {"rows": model.num_rows, **{name: getattr(figures, name) for name in names}}
            info["is_restricted"] = model.restriction is not None
            info |= {} if model.penalty is None else {"penalty": repr(model.penalty)}
            least = figures.log_likelihood_bound
            info |= {} if least is None else {"log_likelihood_bound": least}
            if model.data is not None:
                info["independent"] = column_shares(model.data)
            info["infinite_interactions"] = [infinite_to_json(row) for row in infinite_interactions(model)]
            parts, states = directions_of(model), (model.impossible, model.structural_zeros)
            return ModelFile(model.hypergraph, model.theta, model.coding, info, parts, *states)
        if not isinstance(model, LogLinearEnergy):
            search: LearnResult | SelectionResult = model  # the classes left, which are not imported to be asked for
            return search.file()
        # An energy has tables alone: theta in the coding that its family has.
        codings, impossible, tables = parametrization(model.hypergraph), ImpossibleStates.common_to(model), model.tables
        if impossible is not None:
            tables = tables.masked_fill(torch.isneginf(tables), 0.0)
        is_corner = codings.coding == "corner"
        theta = codings.from_tables(tables) if is_corner else codings.purify(tables)[0]
        return ModelFile(model.hypergraph, theta, "corner" if is_corner else "balanced", impossible=impossible)

    @override
    def complete_record(self, model: Any, record: ModelFile) -> ModelFile:
        """With the coefficients and odds ratios of a fit and their standard errors."""
        if not isinstance(model, FitResult):
            return record
        return replace(record, info={**record.info, **answers_of_fit(model)})

    @override
    def stored(self, model: Any) -> Stored:
        """The model, whose questions are about the columns where it has joined some."""
        stored = super().stored(model)
        return stored if stored.joined is None else replace(stored, domain=stored.joined.domain)

    @override
    def draw(self, question: Question) -> Answer:
        """Rows given some columns, exact or by Gibbs."""
        law, evidence = _law(question.stored), question["given"]
        domain = law.joined.domain
        known = torch.tensor([[evidence.get(name, -1) for name in domain.names]], dtype=torch.long)
        model, given, log_factors = law.given(Observations.from_tensor(known, domain))
        # Given cells that the model excludes leave nothing to draw.
        if bool(log_factors.isneginf() | impossible_rows(model, given.codes)):
            if not evidence:
                raise no_state()
            words = ", ".join(f"{name}={domain[name].labels[code]}" for name, code in evidence.items())
            problem = f"{words} has probability zero in the model"
            # Zeros that a fit has found are those of maximum likelihood.
            is_infinite = not law.joined and question.stored.info.get("status") == "infinite"
            is_found = is_infinite and question.stored.model.structural_zeros is None
            other = f", or fit with {option('prior', 'unit')}" if is_found else ""
            raise refused("given", problem, f"give other values{other}", code="impossible")
        # The other columns, from the model given those.
        cells = zip(model.domain.names, given.codes[0].tolist(), strict=True)
        rest, _ = model.condition({name: code for name, code in cells if code >= 0})
        drawn, notes = _drawn(rest, question)
        codes = given.codes.repeat(len(drawn), 1)
        codes[:, list(model.domain.indices(rest.domain.names))] = drawn
        codes = law.joined.completed(known.repeat(len(drawn), 1), codes, question["seed"])
        return Answer(frame=Observations.from_tensor(codes, domain).to_pandas(count=None), notes=notes)

    @override
    def score(self, question: Question) -> Answer:
        """Gain over independent columns, NLL and pseudo-NLL."""
        stored, law = question.stored, _law(question.stored)
        # Annealed chains also start at rows, so that no mode of the data is missed.
        starts = None
        if question["method"] == "ais":
            merged = law.joined.read(question.rows).rows.drop_missing().unique()
            starts = chosen_rows(merged.narrow, merged.counts)
        log_z = self.log_z(question, starts)
        shares: dict[str, list[float]] | None = stored.info.get("independent")

        def score(part: Observations) -> Scores:
            values = law.log_prob(part, float(log_z.value))
            alone = None if shares is None else law.log_prob_of_columns(part, shares)
            return scores_of(part, values, alone, law.log_pseudo_prob)

        notes = _unnamed_combinations(stored)
        return score_answer(question, score, noun="model", has_reference=shares is not None, log_z=log_z, notes=notes)

    @override
    def predict(self, question: Question) -> Answer:
        """A column of rows."""
        law, options = _law(question.stored), {name: question[name] for name in ("method", "seed")}
        return prediction_answer(question, lambda part: law.predict(part, question["target"], **options))

    @override
    def interactions(self, question: Question) -> Answer:
        """Interactions by strength, with what the model loses without them."""
        # Infinite interactions are those of the file: finite tables do not show them.
        energy: LogLinearEnergy = question.stored.model.finite
        rows = with_infinite(interaction_table(energy), question.stored.info.get("infinite_interactions", []))
        positions, left_out = top_interactions([row["edge"] for row in rows], question["top"])
        rows = [rows[position] for position in positions]
        # Information is not defined for corner families, nor where structural zeros outlast every interaction.
        has_zeros = question.stored.model.structural_zeros is not None
        if has_zeros and question["information"] and "information" in question.given:
            raise out_of_reach("information", "it is not defined for models with structural zeros", code="no-method")
        information = question["information"] and not has_zeros and energy.hypergraph.coding != "corner"
        if information and rows:
            from ...information.removal import removal_values  # a summary should not wait for it

            wanted = [row["edge"] for row in rows]
            values = removal_values(energy, wanted, num_samples=question["num_samples"], seed=question["seed"])
            rows = [
                {**row, "refined_information": {"value": v.value, "std_error": v.std_error, "kind": v.kind}}
                for row, v in zip(rows, values, strict=True)
            ]
        # Intervals and tests where the file keeps standard errors.
        check_fraction(question["level"], "level")
        rows, precise = _with_uncertainty(rows, question.stored.info.get("uncertainty", []), question["level"])
        head = ["interaction", "strength", "coefficient", *precise]
        head += [*(["information"] if information else []), "levels"]
        cells = [
            [
                short_edge(row["edge"], _EDGE),
                "infinite" if row["is_infinite"] else fixed(row["value"]),
                plain(number(row["coefficient"])) if row["is_infinite"] else fixed(row["coefficient"], sign=True),
                *(plain(number(row[name])) for name in precise.values()),
                *([_information_text(row["refined_information"])] if information else []),
                short_edge(row["levels"], _LEVELS),
            ]
            for row in rows
        ]
        lines = [*columns_of(head, cells), *more_interactions(left_out)]
        if any(row["is_infinite"] for row in rows):
            from ..model import finite_contrast_lines

            declared = [f"({DECLARED})"] if any(row.get("is_declared") for row in rows) else []
            lines = [*lines, *declared, *finite_contrast_lines(rows)]
        answer: dict[str, Any] = {"interactions": rows, "left_out": left_out}
        if question.stored.joined is not None:
            shown = {name for row in rows for name in row["edge"]}
            groups = {g.name: list(g.columns) for g in question.stored.joined.groups if g.name in shown}
            answer["joined"] = groups
            lines = [*lines, *(f"{name} joins {listed(columns)}" for name, columns in groups.items())]
        return Answer(answer, lines)

    @override
    def complete(self, question: Question) -> Answer:
        """Completions of rows; those whose known cells have probability zero stay as they are."""
        imputation = _law(question.stored).impute(
            question.rows,
            question["number"],
            how="most probable" if question["most_probable"] else "draws",
            method=question["method"],
            gibbs=ClampedGibbs() if question["burn_in"] is None else ClampedGibbs(burn_in=question["burn_in"]),
            seed=question["seed"],
        )
        return completion_answer(imputation, "Gibbs")

    @override
    def log_z(self, question: Question, starts: torch.Tensor | None = None) -> LogPartition:
        """Log Z of the family's tables; ``auto`` prefers exact to what the file keeps, estimates look from starts."""
        stored = question.stored.model
        of_file = stored.log_partition if is_default_log_z(question) else None
        exact = _exact_within(log_z_budgets(question), stored.hypergraph)
        if of_file is not None and not exact.plan(stored.hypergraph).feasible:
            estimate = replace(of_file, method=f"{of_file.method}, as the model file holds it")
        else:
            try:
                methods = AnnealedImportance, exact.log_partition, starts, BucketImportance
                estimate = log_z_of(question, stored.energy, *methods)
            except IntractableError as error:
                if ProductInside.is_reached(stored.energy):
                    raise
                hint = f"{option('method', 'ais')} cannot begin, for what is impossible is itself too large to sum"
                hint += f"; try {option('method', 'bounds')}, fix some columns, or draw, which takes no sum"
                raise error.replace(hint=hint) from error
        more = (
            f"try more {option('num_temperatures')} or {option('num_chains')}; in Python there are block moves and "
            "resampling"
        )
        return replace(estimate, notes=tuple(note.replace(advice(), f"{more} as well") for note in estimate.notes))

    @override
    def condition(self, stored: Stored, codes: Mapping[str, int]) -> tuple[Stored, float]:
        """Tables sliced at the codes, as they stand."""
        rest, constant = _energy_of_columns(stored).condition(codes)
        return GivenTables(rest).as_stored(), float(constant)

    @override
    def mode(self, stored: Stored) -> Mode:
        """Exact, by max-product; refused beyond its budget."""
        energy = _energy_of_columns(stored)
        if not len(energy.domain):
            return Mode({}, 0.0, 0.0, "nothing is left to find")
        state, value = Auto().mode(energy)
        if float(value) == -math.inf:
            raise refused("model", "no state is possible, all have probability zero", code="impossible")
        log_prob = float(value) - float(Auto().log_partition(energy).value)
        codes = dict(zip(energy.domain.names, state.tolist(), strict=True))
        return Mode(codes, float(value), log_prob, Auto().plan(energy.hypergraph).method)

    @override
    def column_probabilities(self, stored: Stored) -> list[list[float]]:
        """From the gradient of log Z in a table of every column."""
        if stored.joined is not None:
            row = Observations.from_tensor(torch.full((1, len(stored.domain)), -1), stored.domain)
            columns = [_law(stored).predict(row, name, method="exact", seed=0) for name in stored.domain.names]
            return [column.probs[0].tolist() for column in columns]
        energy: LogLinearEnergy = stored.model.energy
        graph = energy.hypergraph.add_edges([(name,) for name in energy.domain.names], hierarchical=False)
        tables = parametrization(energy.hypergraph).lift(energy.tables, graph)
        eta = Auto().expectations(LogLinearEnergy(graph, tables))
        return [eta[graph.term_slices[name,]].tolist() for name in energy.domain.names]

    @override
    def row_log_likelihood(self, stored: Stored, rows: Observations, pseudo: bool = False) -> RowLogLikelihood:
        """Log-likelihood of every row; log pseudo-likelihood on demand and where log Z takes more than a second."""
        law = _law(stored)
        if not pseudo and _QUICK.plan(law.energy.hypergraph).feasible:
            model, given, log_factors = law.given(rows)
            values = row_log_likelihood(model, given, normalised=False) + log_factors
            return RowLogLikelihood(values - Auto().log_partition(law.energy).value)
        return RowLogLikelihood(law.log_pseudo_prob(rows), "pseudo-likelihood")

    @override
    def summary(
        self,
        model: Any,
        *,
        level: float = 0.95,
        coding: Coding | None = None,
        covariance: CovarianceKind | None = None,
        reference: Reference | None = None,
    ) -> pd.DataFrame:
        more = list[str]()
        if isinstance(model, FitResult):
            table = fit_summary(model, level=level, coding=coding, covariance=covariance, reference=reference)
            zeros = model.structural_zeros
        else:
            stored = self.stored(model)
            table, zeros = model_summary(stored.model, coding, reference, level), stored.model.structural_zeros
            more += [] if stored.joined is None else [stored.joined.sentence().removesuffix(".")]
        more += [] if zeros is None else [f"declared impossible: {zeros.words()}"]
        table.attrs["notes"] = [*table.attrs["notes"], *more]
        return table

    @override
    def caveats(self, model: Any) -> list[str]:
        from ..model import file_caveats, fit_caveats  # which imports what draws pictures

        if isinstance(model, FitResult):
            return fit_caveats(model)
        file = model.model if isinstance(model, Stored) else model
        return file_caveats(file) if isinstance(file, ModelFile) else []

    @override
    def odds_ratios(
        self,
        model: Any,
        *,
        level: float = 0.95,
        covariance: CovarianceKind | None = None,
        reference: Reference | None = None,
    ) -> pd.DataFrame:
        if isinstance(model, FitResult):
            found = contrasts_of_fit(model, level=level, covariance=covariance, reference=reference)
        elif covariance is not None:
            received = f"a {type(model).__name__}, which keeps no rows"
            raise unexpected("covariance", "the result of a fit", received=received, code="no-method")
        else:
            found = contrasts_of_file(self.file_of(model), reference)
        return odds_ratios_table(found, level)

    @override
    def term_tests(self, model: Any, **options: Any) -> pd.DataFrame:
        if not isinstance(model, FitResult):
            problem = f"interactions are tested on the rows of a fit, which a {type(model).__name__} does not keep"
            hint = "fit its hypergraph to the rows, and test that"
            if isinstance(model, Stored) and (conditional := conditional_words(model.model)):
                problem, _, hint = conditional.partition("; ")
            raise out_of_reach("test_terms", problem, hint, code="no-method")
        return term_tests(model, **options)

    @override
    def figures(self, model: Any) -> Figures:
        return fit_figures(model) if isinstance(model, FitResult) else model_figures(self.file_of(model))

    @override
    def nested(self, small: Any, big: Any) -> tuple[float, int, float, str]:
        if all(isinstance(model, Stored) for model in (small, big)):
            if small.info.get("split") is None or small.info["split"] != big.info.get("split"):
                raise refused("models", "the files do not tell that the rows were the same", code="other-domain")
            test = ratio_test_of_files(small.model, big.model)
        else:
            for name, result in (("small", small), ("big", big)):
                check_type(result, FitResult, name, "the result of a fit")
            test = likelihood_ratio_test(small, big)
        method = test.p_value_method
        how = "" if method == "chi-square" else f"p-value: {method or 'none'}; {test.p_value_note}"
        return test.statistic, test.df_adjusted, test.p_value, how


def _energy_of_columns(stored: Stored) -> LogLinearEnergy:
    """The energy of a model, refused where its variables are not the columns but join some of them."""
    energy: LogLinearEnergy = stored.model.energy
    if energy.domain != stored.domain:
        problem = "a model of joined columns is not conditioned on columns, and has no mode of them"
        raise out_of_reach("model", problem, "learn with columns that are not joined", code="no-method")
    return energy


def _law(stored: Stored) -> JoinedLaw:
    """The model as a law of the columns; InputError for a batch of models."""
    check_single(stored.model.energy)
    return JoinedLaw(stored.model.energy, stored.joined or JoinedColumns(stored.domain, ()))


def _drawn(energy: LogLinearEnergy, question: Question) -> tuple[torch.Tensor, list[str]]:
    """Rows (number, d), exact or by Gibbs, the latter with a note."""
    number, method, burn_in = question["number"], question["method"], question["burn_in"]
    generator = torch.Generator().manual_seed(question["seed"])
    cost = Auto().plan(energy.hypergraph)
    if not len(energy.domain):
        return torch.zeros((number, 0), dtype=torch.long), []
    if cost.feasible and method != "gibbs":
        return Auto().sample(energy, (number,), generator), []
    # Beyond the exact budget rows are the last states of chains.
    if method == "exact":
        gibbs, given = option("method", "gibbs"), option("given")
        raise IntractableError(
            cost.reason, hint=f"{gibbs} draws approximately, at any size, or fix columns with {given}"
        )
    backend = AnnealedImportance() if burn_in is None else AnnealedImportance(burn_in=burn_in)
    parts: list[torch.Tensor] = []
    with drawn_rows(question, "gibbs") as advance:
        for portion in torch.arange(number).split(_PORTION):
            parts.append(backend.sample(energy, (len(portion),), generator))
            advance(len(portion))
    return torch.cat(parts), [annealed_rows_note(backend.burn_in)]


_PRECISE = {"SE": "std_error", "lower": "lower", "upper": "upper", "p": "p_value", "adjusted p": "p_value_adjusted"}


def _with_uncertainty(
    rows: list[dict[str, Any]], records: Sequence[Mapping[str, Any]], level: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows with standard error, interval and test where the file keeps them, and the columns to show."""
    by_edge = {tuple(known["edge"]): known for known in records}
    if not by_edge:
        return rows, {}
    names, width = ("std_error", "df", "statistic", "p_value", "p_value_adjusted"), -ndtri((1 - level) / 2)
    result = list[dict[str, Any]]()
    for row in rows:
        known = by_edge.get(tuple(row["edge"]), {})
        error = None if row["is_infinite"] else known.get("std_error")  # a prior gives one to what is declared
        ends = {"lower": None, "upper": None}
        if error is not None:
            ends = {"lower": row["coefficient"] - width * error, "upper": row["coefficient"] + width * error}
        result.append({**row, **{name: known.get(name) for name in names}, "std_error": error, **ends})
    is_tested = any(row["p_value"] is not None for row in result)
    return result, {head: name for head, name in _PRECISE.items() if is_tested or not name.startswith("p_")}


def _information_text(value: dict[str, Any]) -> str:
    """The number, with <= and its error where it is an estimated bound."""
    if value["kind"] == "exact":
        return fixed(value["value"], 5)
    error = f"{value['std_error']:.1g}" if math.isfinite(value["std_error"]) else "?"
    return f"<={fixed(value['value'])} +-{error}"


def _unnamed_combinations(stored: Stored) -> list[str]:
    """A sentence where a file of an earlier version does not name all combinations."""
    found = len(stored.info.get("infinite_combinations", []))
    total = stored.info.get("num_infinite_combinations", found)
    if total <= found:
        return []
    told = (
        f"the model file names only {found} of {total} combinations of probability zero; rows with one of the others "
        "get a very small probability instead"
    )
    return [told]


FAMILY = LogLinearFamily()


_Listing = TypeVar("_Listing", bound=Enumeration)


def _exact_within(given: Mapping[str, int], graph: InteractionHypergraph) -> Auto:
    """Exact sums of a model none of which, however small, goes beyond the budgets that were given."""
    exact = Auto(elimination=replace(VariableElimination(), **given))
    cells, memory = (given.get(name, math.inf) for name in ("max_cells", "max_memory_bytes"))

    def within(backend: _Listing) -> _Listing:
        cost = backend.plan(graph)  # whose memory is in proportion to its cells
        most = min(backend.max_states, cells, memory * cost.cells // max(1, cost.memory_bytes))
        return replace(backend, max_states=max(1, int(most)))

    return replace(exact, matrix=within(exact.matrix), enumeration=within(exact.enumeration)) if given else exact
