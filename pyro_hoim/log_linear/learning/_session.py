"""One run of learning: its recipe, its files, the lines it prints, and the time of its stages."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import torch

from ...data.observations import Observations
from ...errors import refused
from ...runs.options import RunOptions
from ...structure.hypergraph import InteractionHypergraph
from ..energy import LogLinearEnergy
from ..scores import score_rows
from ..search.result import SelectionRound
from ..search.rounds import run_file
from ..training.exact import ExactTrainer
from ..training.ridge import InteractionRidge
from ._final import FinalFit, final_fit
from ._trainers import Recipe

_SMOOTHING = 0.5


class Session:
    """Fits by a recipe, in the folder of the run; rounds are told of with their gain over independence on ``rows``."""

    def __init__(self, recipe: Recipe, run: RunOptions, train: Observations, rows: Observations) -> None:
        self.recipe = recipe
        self.run = run
        self.seconds: dict[str, float] = {}
        self._begin = time.perf_counter()
        self._independent = score_rows(frequency_model(train), rows).nll if run.progress else math.nan
        if run.checkpoint is not None:
            _make_folder(Path(run.checkpoint))

    def fit(
        self,
        rows: Observations,
        hypergraph: InteractionHypergraph,
        ridge: InteractionRidge,
        stage: str,
        *,
        settled: bool = True,
        chosen: bool = True,
    ) -> FinalFit:
        """The last fit of a collection, kept in the file of its stage; see :func:`final_fit`."""
        file = run_file(self.run, f"{stage}.safetensors")
        return final_fit(self.recipe, rows, hypergraph, ridge, file, settled=settled, chosen=chosen)

    def clock(self, stage: str) -> None:
        """Count the time that no stage has yet as that of this one."""
        rest = time.perf_counter() - self._begin - sum(self.seconds.values())
        self.seconds[stage] = self.seconds.get(stage, 0.0) + rest

    def tell(self, words: str) -> None:
        """One line on standard error with the time so far."""
        if self.run.progress:
            sys.stderr.write(f"[{time.perf_counter() - self._begin:6.1f} s] {words}\n")
            sys.stderr.flush()

    def tell_round(self, entry: SelectionRound) -> None:
        """A round of the search."""
        loss = f"validation loss {entry.validation_loss:.4f}"
        if entry.validation_std_error > 0:
            loss += f" ± {entry.validation_std_error:.2g} of log Z"
        if entry.loss_kind != "pseudo-likelihood":
            gain = round(self._independent - entry.validation_loss, 4) + 0.0  # no minus before a zero
            loss += f", gain over independence {gain:.4f}"
        self.tell(f"round {entry.number}: {interactions(entry.num_interactions)}, {loss} ({entry.verdict})")


def _make_folder(folder: Path) -> None:
    if not folder.absolute().parent.is_dir():
        problem = f"the folder {folder.absolute().parent} does not exist"
        raise refused("checkpoint", problem, "create it first", code="no-file")
    if folder.exists() and not folder.is_dir():
        raise refused("checkpoint", f"{folder} is a file; expected a folder", code="no-file")
    folder.mkdir(exist_ok=True)


def interactions(count: int) -> str:
    """A number of interactions, the sets of two variables or more, in words."""
    return f"{count:,} interaction{'' if count == 1 else 's'}"


def frequency_model(rows: Observations) -> LogLinearEnergy:
    """Single variables with their frequencies, half a count added to every level."""
    domain = rows.domain
    graph = InteractionHypergraph(domain, [(name,) for name in domain.names])
    tables = torch.zeros(graph.num_terms, dtype=torch.float64)
    for edge, where in graph.term_slices.items():
        logs = (rows.marginal_counts([edge]) + _SMOOTHING).log()
        tables[where] = logs - logs.mean()
    return LogLinearEnergy(graph, tables)


def one_body_model(rows: Observations, ridge: InteractionRidge) -> LogLinearEnergy:
    """Single variables trained under a penalty, exactly."""
    graph = InteractionHypergraph(rows.domain, [(name,) for name in rows.domain.names])
    trainer = ExactTrainer(rows, graph, penalty=ridge)
    trainer.train()
    return LogLinearEnergy(graph, trainer.tables)
