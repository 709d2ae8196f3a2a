"""A family of models in one folder: mixtures of independent binary columns, fitted by expectation maximisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import torch
from typing_extensions import override

from pyro_hoim import Domain, Observations
from pyro_hoim.core import Answer, Content, Family, Option, Part, Prediction, Question, Request, Scores, Section, Study
from pyro_hoim.core.command.answers import prediction_answer, score_answer
from pyro_hoim.core.command.options import LABEL, LABELLED
from pyro_hoim.core.command.rows import LabelledPlan, Missing, Table
from pyro_hoim.core.words import columns_of, fixed
from pyro_hoim.errors import out_of_range
from pyro_hoim.runs.container import ModelRecord
from pyro_hoim.runs.rules import DOMAIN, Rule

KIND = "bernoulli-mixture"


@dataclass(frozen=True)
class Mixture(ModelRecord):
    """Weights (K,) of components, and probabilities (K, d) of the second level of every column in each."""

    model_kind = KIND
    contents: ClassVar[Mapping[str, Rule]] = {"domain": DOMAIN}
    domain: Domain
    weights: torch.Tensor
    probs: torch.Tensor
    info: dict[str, Any] = field(default_factory=dict[str, Any])

    @override
    def packed(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        return {"domain": self.domain.to_json()}, {"weights": self.weights, "probs": self.probs}

    @classmethod
    @override
    def unpacked(cls, header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Mixture:
        return cls(Domain.from_json(header["domain"]), tensors["weights"], tensors["probs"], header["info"])

    def log_joint(self, codes: torch.Tensor) -> torch.Tensor:
        """Log probability (N, K) of component and known cells; cells of -1 are summed over."""
        cells = torch.where(codes[:, None] == 1, self.probs.log(), (-self.probs).log1p())
        return self.weights.log() + torch.where(codes[:, None] < 0, 0.0, cells).sum(-1)

    def log_prob(self, codes: torch.Tensor) -> torch.Tensor:
        """Log probability (N,) of the known cells."""
        return self.log_joint(codes).logsumexp(-1)

    def step(self, rows: Observations) -> Mixture:
        """One step of expectation maximisation, with one fictive row at even odds in every component."""
        share = self.log_joint(rows.codes).softmax(-1) * rows.counts[:, None]
        total = share.sum(0)
        probs = (share.T @ rows.codes.double() + 0.5) / (total[:, None] + 1)
        return Mixture(self.domain, (total + 1) / (total + 1).sum(), probs)


@dataclass(frozen=True, eq=False, kw_only=True)
class MixtureStudy(Study[Part]):
    """A fitted mixture with its scores on every part of the rows."""

    heading: ClassVar[str] = "Mixture of"
    noun: ClassVar[str] = "mixture"
    model: Mixture

    @override
    def content(self) -> Content:
        """The components."""
        values = torch.cat([self.model.weights[:, None], self.model.probs], 1).tolist()
        components = Section("Components")
        components.table(["weight", *self.domain.names], values, brief=10)
        components.note("Probability of the second level of every column in each component.")
        return Content([], [], [components])

    @override
    def figures(self, folder: Path) -> dict[str, Any]:
        return {"weights": self.model.weights.tolist()}

    @override
    def records(self) -> dict[str, Mixture]:
        return {"model": self.model}


class MixturePlan(LabelledPlan):
    """A fit whose options are known: how rows are read and held out it has from all plans of labels."""

    def complete(self, source: Table) -> Table:
        """Rows without missing cells, of binary columns."""
        found = source.complete(Missing.parse(self.asked["missing"]), "a mixture")
        for variable in found.rows.domain:
            if variable.cardinality != 2:
                raise out_of_range(variable.name, "two levels", variable.cardinality)
        return found

    def run(self, request: Request) -> MixtureStudy:
        """Fit from the checkpoint, or from random probabilities."""
        rows, file = request.parts["train"], request.checkpoint / "mixture.safetensors"
        number = self.asked["components"]
        generator = torch.Generator().manual_seed(request.seed)
        start = torch.rand(number, len(rows.domain), generator=generator, dtype=torch.float64)
        model, begin = Mixture(rows.domain, torch.full((number,), 1 / number, dtype=torch.float64), start), 0
        if request.resume and file.exists():
            model = Mixture.load(file)
            begin = model.info["step"]
        for step in range(begin, self.asked["steps"]):
            if step % 10 == 0:
                replace(model, info={"step": step}).save(file)
            model = model.step(rows)
        parts = {name: Part(score(model, r)) if r.total_count else None for name, r in request.parts.items()}
        return MixtureStudy(title=request.source.name, about=request.about, parts=parts, seed=request.seed, model=model)


def score(model: Mixture, rows: Observations) -> Scores:
    """Mean scores of rows; the pseudo-likelihood compares a row with those that differ in one cell."""
    log_probs = model.log_prob(rows.codes)
    others = [model.log_prob(flipped(rows.codes, column)) for column in range(len(model.domain))]
    pseudo = torch.where(rows.codes >= 0, (log_probs[:, None] - torch.stack(others, 1)).sigmoid().log(), 0.0).sum(1)
    nll, pseudo_nll = (-float((values * rows.counts).sum()) / rows.total_count for values in (log_probs, pseudo))
    return Scores(rows=rows.total_count, nll=nll, pseudo_nll=pseudo_nll)


def flipped(codes: torch.Tensor, column: int) -> torch.Tensor:
    """Rows with the other level in one column."""
    return torch.where(torch.arange(codes.shape[1]) == column, 1 - codes, codes)


COMPONENTS = Option("components", "Components of a mixture.", kind="whole", low=1, high=100, default=2)
STEPS = Option("steps", "Steps of the fit of a mixture.", kind="whole", low=1, default=100)


class MixtureFamily(Family):
    """Mixtures of independent binary columns, as the commands ask for them."""

    kind = KIND
    name = "mixture of independent columns"
    short = "mixture"
    record = Mixture
    plan = MixturePlan
    commands: ClassVar[Mapping[str, tuple[Option, ...]]] = {
        "fit": (COMPONENTS, STEPS, *LABELLED),
        "score": (LABEL,),
        "predict": (LABEL,),
    }
    instead: ClassVar[Mapping[str, str]] = {
        "prior": "its components have one fictive row each",
        "log-z": "its probabilities sum to one",
    }

    @override
    def draw(self, question: Question) -> Answer:
        """Rows: a component given the columns that are fixed, then the other columns."""
        model, number, given = question.stored.model, question["number"], question["given"]
        known = torch.tensor([[given.get(name, -1) for name in model.domain.names]])
        generator = torch.Generator().manual_seed(question["seed"])
        component = model.log_joint(known).softmax(-1)[0].multinomial(number, replacement=True, generator=generator)
        codes = torch.bernoulli(model.probs[component], generator=generator).long()
        codes = torch.where(known >= 0, known, codes)
        return Answer(frame=Observations.from_tensor(codes, model.domain).to_pandas(count=None))

    @override
    def score(self, question: Question) -> Answer:
        """Mean negative log-likelihood; missing cells are summed over."""
        return score_answer(question, partial(score, question.stored.model), noun="mixture", has_reference=False)

    @override
    def predict(self, question: Question) -> Answer:
        """A column given the known cells of the others, by Bayes' rule."""
        model, target = question.stored.model, question["target"]
        column = model.domain.index(target)

        def predicted(rows: Observations) -> Prediction:
            first = torch.where(torch.arange(rows.codes.shape[1]) == column, 0, rows.codes)
            both = torch.stack([model.log_prob(first), model.log_prob(flipped(first, column))], 1)
            return Prediction.of(rows, target, both.log_softmax(1))

        return prediction_answer(question, predicted)

    @override
    def interactions(self, question: Question) -> Answer:
        """Covariances of pairs of columns, largest first."""
        model = question.stored.model
        centred = model.probs - model.weights @ model.probs
        covariance = (model.weights[:, None] * centred).T @ centred
        names = model.domain.names
        pairs = [(a, b, float(covariance[i, j])) for (i, a), (j, b) in combinations(enumerate(names), 2)]
        pairs = sorted(pairs, key=lambda pair: -abs(pair[2]))[: question["top"]]
        json = {"interactions": [{"edge": [a, b], "value": value} for a, b, value in pairs]}
        return Answer(json, columns_of(["pair", "covariance"], [[f"{a}:{b}", fixed(value)] for a, b, value in pairs]))


FAMILY = MixtureFamily()
