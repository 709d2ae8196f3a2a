"""What a report says of a fit within norm balls. Nothing is computed here but formats and pictures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..core.page import Section
from ..core.words import number, plural
from ..data.counts import digest
from ..data.observations import Observations
from ..errors import out_of_range, unexpected
from ..log_linear.coding import parametrization
from ..log_linear.constrained.frank_wolfe import frank_wolfe
from ..log_linear.constrained.losses import Loss, PseudoLikelihoodLoss
from ..log_linear.constrained.norms import Ball, L1Norm, NuclearNorm, OverlappedNorm
from ..log_linear.constrained.result import ConstrainedResult
from ..log_linear.constrained.splitting import SplittingResult, douglas_rachford
from ..log_linear.fitting.result import FitResult
from ..log_linear.fitting.solvers import Stopping
from ..log_linear.tensors.tensor import SymmetricInteractionTensor
from ..plots.drawing import BLUE, FAINT, ORANGE, SLATE, WIDTH, plain_axes, wrapped
from ..runs.checkpoint import RunOptions, check_alike, check_equal

# A fit within norm balls in a study: what was asked for, the run from which it goes on, and what it found.

_PARTS = {"l1": ("sparse",), "low-rank": ("low_rank",), "sparse-low-rank": ("sparse", "low_rank")}
_EXPECTED = "l1:A, low-rank:B or sparse-low-rank:A,B with positive radii A and B"
_LARGEST = 1e100
_CHUNK, _CHUNKS = 50, 200
_NEGLIGIBLE = 1e-6  # share of the largest singular value up to which others count as zero


@dataclass(frozen=True)
class Constraint:
    """Radii of the balls that the parts of theta must lie in (paper 3, equation 3.1).

    Attributes:
        text: as it was asked for.
        radii: of the l1 norm of "sparse" and of the overlapped Schatten 1 norm of "low_rank", in nats, by name.
    """

    text: str
    radii: Mapping[str, float]

    @classmethod
    def parse(cls, text: str, argument: str) -> Self:
        """From its text; InputError unless it is one of the three, with numbers above zero."""
        kind, _, numbers = text.strip().partition(":")
        names = _PARTS.get(kind.strip())
        words = numbers.split(",")
        if names is None or len(words) != len(names):
            raise unexpected(argument, _EXPECTED, text)
        try:
            radii = [float(word) for word in words]
        except ValueError:
            raise unexpected(argument, _EXPECTED, text) from None
        if not all(0 < radius < math.inf for radius in radii):
            raise out_of_range(argument, _EXPECTED, text)
        return cls(text.strip(), dict(zip(names, radii, strict=True)))

    def balls(self, loss: Loss) -> dict[str, Ball]:
        """The constraints on theta of a loss; for order 2 by eigenvalues, whose sum is half the overlapped norm."""
        found: dict[str, Ball] = {}
        for name, radius in self.radii.items():
            if name == "sparse":
                found[name] = Ball(L1Norm(), radius)
            elif loss.hypergraph.order == 2:
                found[name] = Ball(NuclearNorm(), radius / 2)
            else:
                found[name] = Ball(OverlappedNorm(loss.hypergraph), radius)
        return found


@dataclass(frozen=True)
class ConstrainedRecord:
    """A fit within norm balls.

    Attributes:
        constraint: what was asked for.
        result: what was found, with the trace of all sessions.
    """

    constraint: Constraint
    result: ConstrainedResult

    @cached_property
    def singular_values(self) -> np.ndarray:
        """Of the unfolding of the part that the norm of singular values bounds, else of theta, falling, (n,)."""
        graph = self.result.hypergraph
        theta = self.result.parts.get("low_rank", self.result.theta)
        tensor = SymmetricInteractionTensor(theta, len(graph.domain), graph.order)
        return torch.linalg.svdvals(tensor.unfolding()).numpy()

    @property
    def rank(self) -> int:
        """Number of singular values that are not negligible."""
        if isinstance(self.result, SplittingResult):
            return self.result.rank
        return int((self.singular_values > _NEGLIGIBLE * max(self.singular_values[0], 1e-300)).sum())

    @property
    def num_nonzero(self) -> int | None:
        """Interactions and main effects of the sparse part that are not zero; None without such a part."""
        part = self.result.parts.get("sparse")
        return None if part is None else int((part != 0).sum())

    def norm(self, name: str) -> float:
        """Norm of a part in the units of its radius."""
        value = self.result.norms[name]
        return 2 * value if isinstance(self.result.terms[name].norm, NuclearNorm) else value

    def to_json(self) -> dict[str, Any]:
        """The key ``penalty`` of the numbers of a fit."""
        result = self.result
        multipliers = {name: self._multiplier(name) for name in self.constraint.radii}
        parts = [
            {"part": name, "norm": self.norm(name), "radius": radius, "multiplier": multipliers[name]}
            for name, radius in self.constraint.radii.items()
        ]
        return {
            "text": self.constraint.text,
            "order": result.hypergraph.order,
            "objective": result.objective,
            "gap": result.gap,
            "status": result.status,
            "num_iterations": len(result.trace),
            "num_nonzero": self.num_nonzero,
            "rank": self.rank,
            "singular_values": self.singular_values.tolist(),
            "parts": parts,
        }

    def _multiplier(self, name: str) -> float:
        """What a unit more of the radius gains, in nats per row."""
        value = self.result.multipliers[name]
        return value / 2 if isinstance(self.result.terms[name].norm, NuclearNorm) else value


def fit_constrained(data: Observations, order: int, constraint: Constraint, run: RunOptions) -> ConstrainedRecord:
    """Minimise the negative log pseudo-likelihood within norm balls, by pieces that a checkpoint is written after.

    A piece that was not finished, and the last one, are done again when the run is continued, with the same bits.

    Raises:
        KeyboardInterrupt: the run was interrupted; the last whole piece is in the checkpoint.
    """
    loss = PseudoLikelihoodLoss(data, order)
    balls = constraint.balls(loss)
    # A checkpoint belongs to one loss, one table and one constraint.
    file = run.file()
    stored = (
        None
        if file is None
        else file.start(
            {"hypergraph digest": loss.hypergraph.to_json(), "data digest": digest(data), "penalty": constraint.text}
        )
    )
    # A run that was interrupted goes on after its last whole piece, with the same bits.
    trace, result, first = np.zeros((0, 2)), None, 0
    if file is not None and stored is not None:
        with file.taking_up():
            fresh = {"trace": torch.from_numpy(trace), "pieces": torch.tensor(0)}
            check_alike({name: stored[name] for name in fresh}, fresh)
            trace, first = stored.pop("trace").numpy(), int(stored.pop("pieces"))
            if not 0 < first < _CHUNKS:
                raise ValueError(f"{first} pieces")
            result = _restored(loss, balls, stored)
            check_equal(stored, _kept(result))
    # Pieces of 50 steps: splitting where a tensor has low rank, conditional gradients else.
    stopping = Stopping(max_iterations=_CHUNK)
    whole: dict[str, torch.Tensor] | None = None
    for piece in range(first + 1, _CHUNKS + 1):
        if "low_rank" in balls and order > 2:
            start = result if isinstance(result, SplittingResult) else None
            result = douglas_rachford(loss, balls, stopping=stopping, start=start, progress=run.progress)
        else:
            result = frank_wolfe(loss, balls, stopping=stopping, start=result, progress=run.progress)
        if result.status == "interrupted":
            if file is not None and whole is not None:
                file.write(whole)
            raise KeyboardInterrupt
        trace = np.concatenate([trace, result.trace])
        if result.status in ("converged", "stalled") or piece == _CHUNKS:
            break
        whole = {"trace": torch.from_numpy(trace), "pieces": torch.tensor(piece), **_kept(result)}
        if file is not None and file.is_due:
            file.write(whole)
    assert result is not None
    return ConstrainedRecord(constraint, replace(result, trace=trace))


def _kept(result: ConstrainedResult) -> dict[str, torch.Tensor]:
    """What a run goes on from."""
    found = dict(result.parts)
    if isinstance(result, SplittingResult):
        point, step = result.state
        found |= {"point": torch.from_numpy(point), "step": torch.tensor(step, dtype=torch.float64)}
    return found


def _restored(loss: Loss, balls: Mapping[str, Ball], stored: Mapping[str, torch.Tensor]) -> ConstrainedResult:
    """A result to start from."""
    parts = {name: stored[name] for name in balls}
    fresh = torch.zeros(loss.num_parameters, dtype=torch.float64)
    check_alike(parts, dict.fromkeys(balls, fresh))
    if not all(bool((part.abs() < _LARGEST).all()) for part in parts.values()):
        raise ValueError("parameters are not finite, or too large")
    known: dict[str, Any] = {"loss": math.nan, "gap": math.inf, "multipliers": {}, "trace": np.zeros((0, 2))}
    given: dict[str, Any] = {"parts": parts, "terms": balls, "status": "interrupted", **known}
    if "point" in stored:
        state = stored["point"].numpy(), float(stored["step"])
        return SplittingResult(loss.hypergraph, "corner", **given, rank=0, state=state)
    return ConstrainedResult(loss.hypergraph, "corner", **given)


def as_fit(record: ConstrainedRecord, data: Observations, log_partition: float) -> FitResult:
    """The fit as every study shows one, in free coordinates, given log Z of the balanced tables."""
    # Its likelihood is that of the pseudo-likelihood's estimate, so no test rests on it.
    result = record.result
    codings = parametrization(result.hypergraph)
    theta = codings.convert(result.theta, "corner", "free")
    energies = -result.model.energy(data.codes)
    likelihood = float((data.counts.double() * (energies - log_partition)).sum())
    return FitResult(
        hypergraph=result.hypergraph,
        theta=theta,
        log_likelihood=likelihood,
        log_partition=log_partition,
        num_rows=data.total_count,
        status=result.status,
        num_iterations=len(result.trace),
        gradient_norm=max(result.multipliers.values()),
        existence=None,
        objective="pseudo-likelihood",
        method="douglas-rachford" if isinstance(result, SplittingResult) else "frank-wolfe",
        data=data,
    )


_SHOWN = 20  # entries in a picture
_NORMS = {"sparse": "l1 norm", "low_rank": "overlapped Schatten 1 norm"}
_WORDS = {"sparse": "sparse", "low_rank": "low-rank"}


def constrained_sentences(record: ConstrainedRecord) -> list[str]:
    """What was fitted, and how near to the optimum."""
    result, radii = record.result, record.constraint.radii
    bounds = " and ".join(f"a {_WORDS[n]} part whose {_NORMS[n]} is at most {number(r)}" for n, r in radii.items())
    order = f"All interactions of up to {result.hypergraph.order} variables"
    sentences = [
        f"{order}, fitted by pseudo-likelihood as {bounds}, in corner coding.",
        f"The objective, {result.loss:.6f} nats a row, is at most {result.gap:.1g} above its minimum (duality gap).",
    ]
    if record.num_nonzero is not None:
        sentences.append(
            f"Of {result.hypergraph.num_parameters} parameters of the sparse part {record.num_nonzero} are not zero."
        )
    if "low_rank" in radii:
        sentences.append(f"The low-rank part has rank {record.rank} of {len(record.singular_values)}.")
    return sentences


def constrained_warnings(record: ConstrainedRecord) -> list[str]:
    """What to know before reading on."""
    warnings = ["The size of the parameters is bounded, which pulls the odds ratios towards 1."]
    if record.result.status != "converged":
        gap = f"{record.result.gap:.1g} nats a row"
        warnings.insert(0, f"The fit stopped before its duality gap had fallen to the tolerance; it is {gap}.")
    return warnings


def constrained_section(record: ConstrainedRecord) -> Section:
    """Parts, pictures and the certificate."""
    section = Section("Sparse and low-rank parts")
    for sentence in constrained_sentences(record):
        section.text(sentence, brief=True)
    figures = record.to_json()
    section.table(
        ["part", "norm", "radius", "gain per unit of radius"],
        [[_WORDS[p["part"]], p["norm"], p["radius"], p["multiplier"]] for p in figures["parts"]],
    )
    section.note(
        "Norms and radii in nats. Gain per unit of radius: the Lagrange multiplier, by how many nats a row a radius "
        "larger by one nat would improve the fit at first. The l1 norm is the sum of the absolute values of the "
        "parameters."
    )
    # Pictures of what the balls leave: few entries, or few singular values.
    if "low_rank" in record.constraint.radii:
        section.note(
            "The overlapped Schatten 1 norm arranges the parameters as matrices, one for each direction of their "
            "tensor, and adds up the singular values of all of them; a small norm means few large singular values, "
            "that is a low rank."
        )
    if record.num_nonzero:
        section.figure(_sparse(record), "Entries of the sparse part in corner coding, the largest first")
    whose = "the low-rank part" if "low_rank" in record.constraint.radii else "the fitted tensor"
    about = f"Singular values of {whose}, unfolded to a matrix"
    section.figure(_spectrum(record.singular_values), about, folded="Singular values")
    section.figure(_gap(record.result.trace[:, 1]), "Duality gap over the steps, nats a row", folded="Duality gap")
    section.note("The duality gap bounds how far the objective is above its minimum.")
    return section


def _sparse(record: ConstrainedRecord) -> Figure:
    values = record.result.parts["sparse"].numpy()
    largest = np.argsort(-np.abs(values), kind="stable")[:_SHOWN]
    largest = largest[values[largest] != 0][::-1]
    edges = record.result.hypergraph.edges
    figure = Figure(figsize=(WIDTH, 0.9 + 0.34 * len(largest)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(
        range(len(largest)), values[largest], color=[BLUE if values[i] > 0 else ORANGE for i in largest], height=0.7
    )
    axes.set_yticks(range(len(largest)), [wrapped(":".join(edges[i]), 22) for i in largest])
    axes.axvline(0, color=FAINT, linewidth=0.8)
    plain_axes(axes, f"theta, nats ({plural(len(largest), 'entry', 'entries')})")
    return figure


def _spectrum(values: np.ndarray) -> Figure:
    figure = Figure(figsize=(WIDTH, 2.4), layout="constrained")
    axes = figure.add_subplot()
    axes.bar(np.arange(1, len(values) + 1), values, color=SLATE, width=0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain_axes(axes, "number", "singular value, nats")
    return figure


def _gap(gaps: np.ndarray) -> Figure:
    figure = Figure(figsize=(WIDTH, 2.4), layout="constrained")
    axes = figure.add_subplot()
    steps = np.arange(1, len(gaps) + 1)
    is_shown = np.isfinite(gaps) & (gaps > 0)
    axes.plot(steps[is_shown], gaps[is_shown], color=SLATE, linewidth=1.2, marker="o", markersize=2.5)
    axes.set_yscale("log")
    plain_axes(axes, "step", "duality gap, nats a row")
    return figure
