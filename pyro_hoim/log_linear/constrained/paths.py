"""Solutions over grids of radii, or of strengths of penalties, with warm starts, chosen by held-out rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from tqdm import tqdm

from ..._modes import plain_mode
from ...errors import check_fraction, check_type, check_whole, none_received, other_domain, refused, wrong_type
from ...plots.drawing import INK, KINDS, plain_axes
from ...runs.checkpoint import DeferredInterrupt, RunOptions, check_arrays, check_equal, checked_run, packed, unpacked
from ...runs.container import checksum
from ..fitting.solvers import Stopping
from .frank_wolfe import fit_penalised, frank_wolfe
from .losses import Loss
from .norms import Ball, Norm, NormPenalty
from .result import ConstrainedResult

_DARK, _LIGHT = KINDS[:2]


@dataclass(frozen=True, eq=False)
class SolutionPath:
    """Solutions over a grid of balls or of penalties.

    Attributes:
        results: the solutions in the order in which they were found.
        held_out: loss of the held-out rows at each, nats per row.
        status: "complete", or "interrupted" with the solutions up to then.
    """

    results: tuple[ConstrainedResult, ...]
    held_out: tuple[float, ...]
    status: Literal["complete", "interrupted"]

    @cached_property
    @plain_mode()
    def best(self) -> ConstrainedResult:
        """The solution with the smallest loss of held-out rows; of equal ones the first."""
        return self.results[int(np.argmin(self.held_out))]

    def to_frame(self) -> pd.DataFrame:
        """One row a solution: radius or strength and norm of every part, losses, gap, status and whether it is best."""
        rows: list[dict[str, Any]] = []
        for result, held_out in zip(self.results, self.held_out, strict=True):
            row: dict[str, Any] = {}
            for name, term in result.terms.items():
                row[f"{name}_{'radius' if isinstance(term, Ball) else 'strength'}"] = _size(term)
                row[f"{name}_norm"] = result.norms[name]
                row[f"{name}_multiplier"] = result.multipliers[name]
            num = int((result.theta != 0).sum())
            row |= {"num_parameters": num, "loss": result.loss, "held_out": held_out, "gap": result.gap}
            rows.append(row | {"status": result.status, "is_best": result is self.best})
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """Losses against radius or strength; of two parts the held-out loss over both. The best point is ringed.

        Raises:
            InputError: more than two parts.
        """
        return _figure(self.to_frame())


def _size(term: Ball | NormPenalty) -> float:
    return term.radius if isinstance(term, Ball) else term.strength


def penalty_grid(loss: Loss, norm: Norm, number: int = 10, ratio: float = 0.01) -> tuple[NormPenalty, ...]:
    """Penalties of a norm from the least strength at which theta = 0 is the solution down to a share of it, in powers.

    Raises:
        InputError: a number that is no whole number from 2, a ratio that is not between 0 and 1, or a loss that is
            least at zero.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear import L1Norm, PseudoLikelihoodLoss
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> [round(penalty.strength, 6) for penalty in penalty_grid(PseudoLikelihoodLoss(data, 2), L1Norm(), 3)]
        [0.25, 0.025, 0.0025]
    """
    check_type(norm, Norm, "norm")
    norm.check(loss.hypergraph)
    check_whole(number, "number", 2)
    check_fraction(ratio, "ratio")
    largest = norm.dual(loss.value_and_gradient(np.zeros(loss.num_parameters))[1])
    if largest == 0:
        raise refused("loss", "its gradient at zero is zero, so that zero is the solution at every strength")
    return tuple(NormPenalty(norm, largest * ratio ** (i / (number - 1))) for i in range(number))


def solution_path(
    loss: Loss,
    held_out: Loss,
    grid: Mapping[str, Sequence[Ball]] | Mapping[str, Sequence[NormPenalty]],
    *,
    stopping: Stopping | None = None,
    run: RunOptions | None = None,
) -> SolutionPath:
    r"""Solve for every combination of balls, or of penalties, of the parts.

    Radii are visited upwards and strengths downwards, forth and back along the last part, so that each begins at
    a neighbour's solution. The best solution is the one with the smallest loss of rows that were not trained on.

    Args:
        loss: loss of the training rows.
        held_out: loss of other rows with the same interactions.
        grid: for every part the balls, or the penalties (see :func:`penalty_grid`), in any order.
        stopping: as of :func:`~pyro_hoim.log_linear.frank_wolfe`.
        run: checkpoint, resumption and progress bar. Ctrl-C ends the run after the present solution, writes the
            checkpoint and returns the solutions so far; a second one at once drops the present solution.

    Raises:
        InputTypeError: a grid of other things than balls, or of both kinds.
        InputError: an empty grid, held-out rows of other interactions, a checkpoint of another run.

    References:
        Paper 3, section 3.2, and chapter 5, which asks for favourable regularisation parameters.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear import L1Norm, PseudoLikelihoodLoss
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> loss = PseudoLikelihoodLoss(data, 2)
        >>> path = solution_path(loss, loss, {"sparse": penalty_grid(loss, L1Norm(), 3)})
        >>> [int((result.theta != 0).sum()) for result in path.results]  # parameters that are not zero
        [0, 3, 3]
    """
    check_type(loss, Loss, "loss")
    check_type(held_out, Loss, "held_out")
    if held_out.hypergraph != loss.hypergraph or held_out.coding != loss.coding:
        raise other_domain("held_out", f"{loss.hypergraph}", received=f"{held_out.hypergraph}")
    # Every part's terms, radii upwards and strengths downwards.
    wanted = "sequences of balls, or of penalties, by the name of the part"
    if not isinstance(grid, Mapping):
        raise wrong_type("grid", wanted, grid)
    if not grid or not all(len(terms) for terms in grid.values()):
        raise none_received("grid", wanted)
    kind = Ball if isinstance(next(iter(grid.values()))[0], Ball) else NormPenalty
    for name, terms in grid.items():
        for term in terms:
            check_type(term, kind, f"grid[{name!r}]")
    by_size = {name: sorted(terms, key=_size, reverse=kind is NormPenalty) for name, terms in grid.items()}
    points = list(_ordered(by_size))
    options = checked_run(run)
    # What an interrupted run had solved, at the points in the order of this one.
    file = options.file()
    results: list[ConstrainedResult] = []
    losses: list[float] = []
    if file is not None and (stored := file.start(_settings(loss, held_out, points, stopping))) is not None:
        with file.taking_up():
            for index, (gap, status, value) in enumerate(unpacked(stored["points"])):
                tensors = {name: stored[f"{name}{index}"] for name in ("parts", "trace")}
                of_parts = (torch.float64, len(points[index]), loss.num_parameters)
                check_arrays(tensors, {"parts": of_parts, "trace": (torch.float64, None, 2)})
                parts, trace = tensors["parts"].numpy(), tensors["trace"].numpy()
                gradient = loss.value_and_gradient(parts.sum(0))[1]
                results.append(ConstrainedResult.from_parts(loss, points[index], parts, gradient, gap, status, trace))
                losses.append(value)
            check_equal(stored, _state(results, losses))
    # The rest, each from the solution before it; Ctrl-C waits for the end of a solution.
    is_interrupted, is_hidden = False, not options.progress
    bar = tqdm(total=len(points), initial=len(results), unit="solution", leave=False, disable=is_hidden)
    with bar, DeferredInterrupt() as interrupt:
        for terms in points[len(results) :]:
            solve: Any = frank_wolfe if isinstance(next(iter(terms.values())), Ball) else fit_penalised
            result = solve(loss, terms, stopping=stopping, start=results[-1] if results else None)
            if result.status == "interrupted" and results:
                is_interrupted = True
            else:
                results.append(result)
                losses.append(held_out.value(result.theta.numpy()))
            is_interrupted |= interrupt.is_pending
            if file is not None and (is_interrupted or len(results) == len(points) or file.is_due):
                file.write(_state(results, losses))
            bar.update()
            if is_interrupted:
                interrupt.is_pending = False  # it had its effect
                break
    return SolutionPath(tuple(results), tuple(losses), "interrupted" if len(results) < len(points) else "complete")


def _ordered(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Combinations, forth and back along the last part."""
    *first, last = grid.values()
    for turn, outer in enumerate(itertools.product(*first)):
        for term in last if turn % 2 == 0 else last[::-1]:
            yield dict(zip(grid, (*outer, term), strict=True))


def _settings(
    loss: Loss, held_out: Loss, points: Sequence[Mapping[str, Any]], stopping: Stopping | None
) -> dict[str, Any]:
    zero = np.zeros(loss.num_parameters)
    slopes = {name: of.value_and_gradient(zero)[1] for name, of in (("train", loss), ("held_out", held_out))}
    stopping = stopping or Stopping()
    return {
        "kind": "solution path",
        "rows digest": checksum({name: torch.from_numpy(slope) for name, slope in slopes.items()}),
        "loss": type(loss).__name__,
        "edges digest": checksum({"edges": packed(loss.hypergraph.to_json())}),
        "grid": [{name: [type(t).__name__, type(t.norm).__name__, _size(t)] for name, t in p.items()} for p in points],
        "tolerance": stopping.tolerance,
        "max_iterations": stopping.max_iterations,
    }


def _state(results: Sequence[ConstrainedResult], losses: Sequence[float]) -> dict[str, torch.Tensor]:
    tensors = {f"parts{i}": torch.stack(list(result.parts.values())) for i, result in enumerate(results)}
    tensors |= {f"trace{i}": torch.from_numpy(result.trace.copy()) for i, result in enumerate(results)}
    records = [[result.gap, result.status, value] for result, value in zip(results, losses, strict=True)]
    return {**tensors, "points": packed(records)}


# The picture of a path.


def _figure(frame: pd.DataFrame) -> Figure:
    """Losses in nats per row against radius or strength on logarithmic axes; of two parts a map of the held-out loss.

    The frame is that of ``SolutionPath.to_frame``. Training is dark, held-out light; the best is ringed in orange.
    """
    # One axis a part: a curve of one, a map of two.
    names = [name for name in frame.columns if name.endswith(("_radius", "_strength"))]
    if len(names) > 2:
        raise refused("path", f"it has {len(names)} parts, and a picture has two axes", code="out-of-range")
    # The data.
    figure = Figure(figsize=(6.2, 4.2), layout="constrained")
    axes = figure.subplots()
    best = frame[frame["is_best"]].iloc[0]
    if len(names) == 1:
        ordered = frame.sort_values(names[0])
        axes.plot(ordered[names[0]], ordered["loss"], "o-", color=_DARK, markersize=3, linewidth=1.4, label="training")
        axes.plot(
            ordered[names[0]], ordered["held_out"], "o-", color=_LIGHT, markersize=3, linewidth=1.4, label="held out"
        )
        height, up = best["held_out"], "loss, nats per row"
    else:
        wide = frame.pivot_table(index=names[1], columns=names[0], values="held_out")
        map_ = axes.pcolormesh(
            _edges(wide.columns.to_numpy(dtype=float)),
            _edges(wide.index.to_numpy(dtype=float)),
            wide.to_numpy(),
            cmap="Blues_r",
        )
        figure.colorbar(map_, ax=axes, label="held-out loss, nats per row")
        axes.set_yscale("log")
        height, up = best[names[1]], names[1].replace("_", " ")
    # What both have in common: the best point and the words on the axes.
    axes.plot(
        best[names[0]], height, "o", color=INK, markersize=10, fillstyle="none", markeredgewidth=1.8, label="best"
    )
    axes.set_xscale("log")
    axes.legend(frameon=False, fontsize=9)
    plain_axes(axes, names[0].replace("_", " "), up)
    return figure


def _edges(values: np.ndarray) -> np.ndarray:
    """Borders of cells around positive values, halfway between them on a logarithmic axis."""
    logs = np.log(values)
    inner = (logs[1:] + logs[:-1]) / 2
    first, last = (
        (logs[0] - 0.5, logs[-1] + 0.5) if len(logs) == 1 else (2 * logs[0] - inner[0], 2 * logs[-1] - inner[-1])
    )
    return np.exp(np.concatenate([[first], inner, [last]]))
