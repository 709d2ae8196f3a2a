"""All nodes of a root regression on joblib's workers, with a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, cast

import joblib
import torch
from tqdm import tqdm

from ...errors import check_whole
from ...runs.checkpoint import DeferredInterrupt, RunFile, check_arrays, check_equal, part_of
from ._regression import Floats, Status
from ._space import SearchSpace
from .node import NodeSolution, Outcome, solve_node
from .options import Refit, RootSettings
from .refit import refit_rows
from .result import RootFitResult
from .rows import RootRows

_ARRAYS = ("keys", "others", "coefficients")
_NAMES = re.compile(r"(all|\d+\.\w+)\.\d+\.\d+\.(keys|others|coefficients|numbers)|refit\..*\.(coefficients|steps)")
_STATUSES: tuple[Status, ...] = ("converged", "fixed", "max_iterations", "stalled", "stopped")


class RegressionRun:
    """Solutions of all nodes, stage by stage, each along a path; the header is what a continued run must repeat."""

    def __init__(
        self,
        rows: RootRows,
        settings: RootSettings,
        progress: bool,
        file: RunFile | None,
        header: Mapping[str, Any],
    ) -> None:
        self.rows, self.settings, self.progress, self.file = rows, settings, progress, file
        self._tensors: dict[str, torch.Tensor] = {}
        if file is not None:
            self._tensors = file.start({**header, "data digest": rows.digest}) or {}
            with file.taking_up():
                for name in self._tensors:
                    if not _NAMES.fullmatch(name):
                        raise ValueError(f"an entry {name!r} that is not of this run")

    def solve(
        self, stage: str, spaces: Sequence[SearchSpace], warm: Sequence[NodeSolution] | None = None
    ) -> list[tuple[NodeSolution, ...]]:
        """Solutions of every node for every search space of a path, from those of an earlier stage where given."""
        count = len(self.rows.domain)
        done = {i: self._restored(f"{stage}.{i}", spaces) for i in range(count)}
        missing = [i for i in range(count) if not done[i]]
        bar = tqdm(total=count, initial=count - len(missing), unit="node", leave=False, disable=not self.progress)
        # The compiled parts release the interpreter lock: threads share the rows. A parallel_config overrides this.
        jobs = None if self.settings.jobs is None else min(self.settings.jobs, max(1, len(missing)))
        parallel = joblib.Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered")
        tasks = (
            joblib.delayed(_numbered)(i, self.rows, spaces, self.settings, None if warm is None else warm[i])
            for i in missing
        )
        try:
            found = cast("Generator[tuple[int, tuple[NodeSolution, ...]]]", parallel(tasks))
            with closing(found) as results, bar:
                for index, solutions in results:
                    done[index] = solutions
                    self._keep(f"{stage}.{index}", solutions)
                    bar.update()
                    if self.file is not None and self.file.is_due:
                        self._write()
        finally:
            if self.file is not None and self._tensors:
                self._write()
        return [done[i] for i in range(count)]

    def refit(self, fit: RootFitResult, method: Refit, name: str) -> RootFitResult:
        """A refit of joined regressions; a refit of all terms is kept in the checkpoint step by step."""
        place = f"refit.{method}.{float(self.settings.refit_share)!r}.{fit.symmetrize}.{name}."

        def begin(size: int) -> tuple[Floats, int] | None:
            kept = part_of(self._tensors, place)
            if self.file is None or not kept:
                return None
            with self.file.taking_up():
                check_arrays(kept, {"coefficients": (torch.float64, size), "steps": (torch.int64,)})
                if not bool(kept["coefficients"].isfinite().all()):
                    raise ValueError("coefficients are not finite")
                return kept["coefficients"].numpy(), check_whole(int(kept["steps"]), "steps", 0)

        bar = tqdm(unit="step", desc="refit", leave=False, disable=not self.progress)

        def advance(coefficients: Floats, steps: int) -> None:
            bar.update()
            if self.file is not None:
                self._tensors[place + "coefficients"] = torch.from_numpy(coefficients)
                self._tensors[place + "steps"] = torch.tensor(steps)
                if self.file.is_due:
                    self._write()

        try:
            with bar:
                return refit_rows(fit, self.rows, method, self.settings, begin, advance)
        finally:
            if self.file is not None:
                self._write()

    def _keep(self, name: str, solutions: Sequence[NodeSolution]) -> None:
        if self.file is not None:
            self._tensors |= _entries(name, solutions)

    def _restored(self, name: str, spaces: Sequence[SearchSpace]) -> tuple[NodeSolution, ...]:
        """Solutions of one node in the checkpoint; none if it is not done."""
        kept = {place: tensor for place, tensor in self._tensors.items() if place.startswith(f"{name}.")}
        if self.file is None or not kept:
            return ()
        solutions: list[NodeSolution] = []
        with self.file.taking_up():
            for step, space in enumerate(spaces):
                prefix = f"{name}.{step}."
                objective, residual, steps, scans, seconds, status = kept[prefix + "numbers"].tolist()
                self._check(part_of(kept, prefix), space)
                keys, others, coefficients = (kept[prefix + part].numpy() for part in _ARRAYS)
                outcome = Outcome(objective, residual, int(steps), int(scans), seconds, _STATUSES[int(status)])
                solutions.append(NodeSolution(keys, others, coefficients, outcome))
            check_equal(kept, _entries(name, solutions))
        return tuple(solutions)

    def _check(self, kept: Mapping[str, torch.Tensor], space: SearchSpace) -> None:
        """ValueError unless arrays are those of a solution in a search space."""
        keys, others, coefficients = (kept[part] for part in _ARRAYS)
        floats, whole, size = torch.float64, torch.int64, len(keys)
        shapes = {"keys": (whole, size, 2), "others": (whole, size, space.width), "coefficients": (floats, size)}
        check_arrays(kept, {**shapes, "numbers": (floats, 6)})
        is_known = {(j, size) for j, size in keys.tolist()} <= set(space.keys)
        count = len(self.rows.domain)
        is_inside = bool(((others >= -1) & (others < count)).all()) and not bool(coefficients.isnan().any())
        if not is_known or not is_inside or bool(((others >= 0).sum(1) != keys[:, 1] - 1).any()):
            raise ValueError("terms outside the search")

    def _write(self) -> None:
        assert self.file is not None
        with DeferredInterrupt():
            self.file.write(self._tensors)


def _entries(name: str, solutions: Sequence[NodeSolution]) -> dict[str, torch.Tensor]:
    """Solutions of one node as a checkpoint holds them."""
    found: dict[str, torch.Tensor] = {}
    for step, solution in enumerate(solutions):
        prefix = f"{name}.{step}."
        found |= {prefix + part: torch.from_numpy(getattr(solution, part)) for part in _ARRAYS}
        numbers = [*solution.outcome[:-1], _STATUSES.index(solution.outcome.status)]
        found[prefix + "numbers"] = torch.tensor(numbers, dtype=torch.float64)
    return found


def _numbered(
    index: int, rows: RootRows, spaces: Sequence[SearchSpace], settings: RootSettings, warm: NodeSolution | None
) -> tuple[int, tuple[NodeSolution, ...]]:
    """Solutions of one node along the path, each from the one before (strong rule between them)."""
    solutions: list[NodeSolution] = []
    for step, space in enumerate(spaces):
        slack = 0.0
        if step:
            ratios = [a / b for a, b in zip(spaces[step - 1].l1, space.l1, strict=True) if b > 0]
            slack = min(1.0, max(0.0, max(ratios, default=1.0) - 1.0))
            warm = solutions[-1]
        solutions.append(solve_node(rows, index, space, settings, warm, slack))
    return index, tuple(solutions)
