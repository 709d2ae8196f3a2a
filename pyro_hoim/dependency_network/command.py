"""What the commands ask of a dependency network: its fit, its file, and answers about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pandas as pd
import torch
from typing_extensions import override

from ..core.command.answers import completion_answer, drawn_rows, prediction_answer, score_answer
from ..core.command.options import (
    BURN_IN,
    COMPLETE,
    DRAW_METHOD,
    JOBS,
    LABEL,
    LABELLED,
    LOG_Z_OPTIONS,
    PENALTY,
    PREDICT_METHOD,
    PREDICT_SEED,
)
from ..core.command.rows import LabelledPlan, Missing, Table
from ..core.family import Answer, Family, Option, Question, Request, Stored, more_interactions, top_interactions
from ..core.prediction import ClampedGibbs, Prediction
from ..core.scores import Figures, RowLogLikelihood
from ..core.words import columns_of, fixed, option, plural, rows_text, short_labels
from ..data.frames import check_columns
from ..data.observations import Observations
from ..errors import InputError, IntractableError, check_choice, conflict, out_of_reach
from ..results.contrasts import Contrasts, odds_ratios_table
from ..runs.checkpoint import RunOptions
from ..runs.container import DEPENDENCY_NETWORK
from .conditionals import DependencyConditionals
from .file import NetworkFile
from .law import DependencyNetwork
from .learn.network import LearnedNetwork, learn_network
from .node_conditionals import TableConditional
from .study.analysis import NetworkAnalysis, analyse_network, learned_file, network_figures, network_summary
from .study.scores import draw_network, find_law, impute_network, network_log_likelihood, predict_network, score_network

_BURN_IN = 200
_NAME = 28  # characters
_OPTIONS = (
    Option(
        "alpha",
        "Total of the Dirichlet prior of every leaf. 0 means no smoothing.",
        kind="number",
        high=1e6,
        default=1.0,
    ),
    Option("max_leaves", "Largest number of leaves of a graph.", kind="whole", low=1, metavar="N"),
    Option("lossless", "Also try asking all other columns at once, where they have few states.", kind="flag"),
    PENALTY,
    JOBS,
    *LABELLED,
)


@dataclass(frozen=True)
class _NetworkPlan(LabelledPlan):
    """Learning a dependency network; see :func:`~pyro_hoim.dependency_network.analyse_network`."""

    def __post_init__(self) -> None:
        if self.asked["penalty"] is not None:
            check_choice(self.asked["penalty"], ("mdl", "aic", "ebic"), "penalty")

    def complete(self, source: Table) -> Table:
        """The table with missing cells dealt with, refused where no column can be learned."""
        table = source.complete(Missing.parse(self.asked["missing"]), None)
        check_columns(table.rows, weighted=table.is_weighted)
        return table

    def run(self, request: Request) -> NetworkAnalysis:
        """Learn from the training rows."""
        rows: Observations = request.source.rows
        about, asked = request.about, self.asked
        learned = rows_text(request.parts["train"]), plural(len(rows.domain), "column")
        request.begin(f"learning {learned[1]} from {learned[0]}")
        if rows.has_missing:
            about.append(
                f"Missing cells were kept ({option('missing', 'marginalise')}): a column is learned from the rows in "
                "which it is known, and a row without a cell that a graph asks goes to every answer with that answer's "
                "share."
            )
        learn = partial(
            learn_network,
            penalty=asked["penalty"] or "mdl",
            alpha=asked["alpha"],
            max_leaves=asked["max_leaves"],
            lossless=asked["lossless"],
            jobs=-1 if asked["jobs"] is None else asked["jobs"],
            run=RunOptions(request.checkpoint / "network.safetensors", request.resume, request.progress),
        )
        return analyse_network(
            request.parts,
            learn=learn,
            target=asked["target"],
            seed=request.seed,
            title=request.source.name,
            about=about,
        )


class NetworkFamily(Family):
    """Dependency networks."""

    kind = DEPENDENCY_NETWORK
    name = "dependency network"
    short = "dependency-network"
    record = NetworkFile
    plan = _NetworkPlan
    commands: ClassVar[Mapping[str, tuple[Option, ...]]] = {
        "fit": _OPTIONS,
        "sample": (DRAW_METHOD, BURN_IN, *COMPLETE),
        "score": (LABEL, *(option for option in LOG_Z_OPTIONS if option.name in ("method", "seed"))),
        "predict": (PREDICT_METHOD, PREDICT_SEED, LABEL),
        "log-z": LOG_Z_OPTIONS,
    }
    instead: ClassVar[Mapping[str, str]] = {
        "prior": "its leaves have the Dirichlet prior of {alpha}",
        "most_probable": "it does not hold the joint law",
        "num_chains": "it has no log Z to estimate",
        "num_temperatures": "it has no log Z to estimate",
        "temperatures": "it has no log Z to estimate",
        "device": "it has no log Z to estimate",
        "information": "its file holds the information that each edge gained",
        "num_samples": "its file holds the information that each edge gained",
        "log-z": "its conditionals need not belong to one joint law; its score is the pseudo-likelihood, and the "
        "likelihood where the law can be enumerated",
    }

    @override
    def record_of(self, model: LearnedNetwork | DependencyNetwork | DependencyConditionals) -> NetworkFile:
        if isinstance(model, LearnedNetwork):
            return learned_file(model)
        return NetworkFile(model.conditionals if isinstance(model, DependencyNetwork) else model)

    @override
    def row_log_likelihood(self, stored: Stored, rows: Observations, pseudo: bool = False) -> RowLogLikelihood:
        return network_log_likelihood(stored.model.conditionals, rows, pseudo)

    @override
    def summary(self, model: Any, *, level: float = 0.95) -> pd.DataFrame:
        return network_summary(self.file_of(model), level)

    @override
    def odds_ratios(self, model: Any, *, level: float = 0.95) -> pd.DataFrame:
        if isinstance(model, LearnedNetwork):
            return odds_ratios_table(model.contrasts, level)
        stored = self.file_of(model).info.get("odds_ratios")
        if stored is None:
            problem = "a network that was not learned from rows has none, and files of earlier versions lack them"
            raise out_of_reach("odds_ratios", problem, "learn it from rows, with learn_network", code="no-method")
        return odds_ratios_table(Contrasts.from_json(stored), level)

    @override
    def figures(self, model: Any) -> Figures:
        return network_figures(self.file_of(model))

    @override
    def draw(self, question: Question) -> Answer:
        """Rows given some columns: exact where the law is enumerated, else by conditional pseudo-Gibbs sampling."""
        network: DependencyConditionals = question.stored.model.conditionals
        try:
            with drawn_rows(question, "pseudo-gibbs") as advance:
                drawn = draw_network(
                    network,
                    question["number"],
                    clamped=question["given"],
                    method=question["method"],
                    burn_in=_burn_in(question),
                    seed=question["seed"],
                    advance=advance,
                )
        except InputError as error:
            argument = str(question.path) if error.argument == "conditionals" else error.argument
            is_unsmoothed = error.code in ("impossible", "no-method")
            hint = f"fit again with an {option('alpha')} above 0" if is_unsmoothed else error.hint
            raise error.replace(argument=argument, hint=hint) from error
        except IntractableError as error:
            raise error.replace(hint=f"{option('given')} fixes columns") from error
        note = (
            "the rows are approximate: each is the last state of a pseudo-Gibbs chain of its own (random scan, "
            f"{plural(drawn.burn_in, 'sweep')} of burn-in, no thinning); compare with a longer {option('burn_in')}"
        )
        frame = Observations.from_tensor(drawn.codes, network.domain).to_pandas(count=None)
        return Answer(frame=frame, notes=[] if drawn.is_exact else [note])

    @override
    def complete(self, question: Question) -> Answer:
        """Completions of rows, by conditional pseudo-Gibbs sampling."""
        if question["method"] == "exact" and question.rows.has_missing:
            problem = "a dependency network completes rows by pseudo-Gibbs chains only"
            raise out_of_reach(option("method", "exact"), problem, code="no-method")
        network, gibbs = question.stored.model.conditionals, ClampedGibbs(burn_in=_burn_in(question))
        found = impute_network(network, question.rows, question["number"], gibbs=gibbs, seed=question["seed"])
        return completion_answer(found, "pseudo-Gibbs")

    @override
    def score(self, question: Question) -> Answer:
        """Gain over independent columns and pseudo-NLL, and NLL, KL and FC where the law is enumerated."""
        method = option("method", question["method"])
        if question["method"] in ("bounds", "ais"):
            raise conflict(method, "estimates log Z, which a dependency network does not have", "leave it out")
        network: DependencyConditionals = question.stored.model.conditionals
        finding = find_law(network)
        if question["method"] == "exact" and finding.law is None:
            hint = f"leave {option('method')} out"
            raise out_of_reach(method, f"the network's law is not known, {finding.reason}", hint, code="no-method")
        shares: dict[str, list[float]] | None = question.stored.info.get("independent")
        # A network without arrows that has the probabilities of levels that the file keeps.
        reference = None
        if shares is not None:
            tables = {name: torch.tensor(shares[name], dtype=torch.float64) for name in network.domain.names}
            nodes = [TableConditional(network.domain, name, [], table) for name, table in tables.items()]
            reference = DependencyConditionals(nodes)
        return score_answer(
            question,
            partial(score_network, network, law=finding.law, seed=question["seed"] or 0, reference=reference),
            noun="network",
            has_reference=shares is not None,
            measure="pseudo_nll",
            missing="missing cells" if finding.law is not None else finding.reason,
            impossible="with a cell of probability zero",
            more={"fc": "FC to the file", "fc_limit": "FC-limit", "nodes": ""},
        )

    @override
    def predict(self, question: Question) -> Answer:
        """A column of rows, from its own conditional."""
        network, target = question.stored.model.conditionals, question["target"]

        def predicted(part: Observations) -> Prediction:
            return predict_network(network, part, target, method=question["method"], seed=question["seed"])

        return prediction_answer(question, predicted, "pseudo-Gibbs")

    @override
    def interactions(self, question: Question) -> Answer:
        """Which column is predicted from which, with the information gained."""
        network: DependencyConditionals = question.stored.model.conditionals
        values = {(parent, child): value for parent, child, value in question.stored.info.get("edges", [])}
        edges = [*values, *(edge for edge in network.edges if edge not in values)]
        positions, left_out = top_interactions(edges, question["top"])
        edges = [edges[position] for position in positions]
        labels = short_labels(network.domain.names, _NAME)
        cells = [
            [f"{labels[a]} -> {labels[b]}", fixed(values[a, b]) if (a, b) in values else "not in the file"]
            for a, b in edges
        ]
        rows = [{"edge": list(edge), "value": values.get(edge)} for edge in edges]
        lines = [*columns_of(["from -> to", "information"], cells), *more_interactions(left_out)]
        return Answer({"interactions": rows, "left_out": left_out}, lines)

    @override
    def estimate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        rows: Observations,
        *,
        penalty: str = "mdl",
        alpha: float = 1.0,
        max_leaves: int | None = None,
        lossless: bool = False,
        seed: int = 0,
    ) -> LearnedNetwork:
        """A network learned from rows."""
        _ = seed  # nothing is random
        return learn_network(rows, penalty=penalty, alpha=alpha, max_leaves=max_leaves, lossless=lossless)


def _burn_in(question: Question) -> int:
    return _BURN_IN if question["burn_in"] is None else question["burn_in"]


FAMILY = NetworkFamily()
