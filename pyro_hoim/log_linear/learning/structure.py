"""The structure of a learned model: the interactions that held-out rows confirm. Private to the analysis."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from ...data.observations import Observations
from ...errors import out_of_range
from ...structure.hypergraph import InteractionHypergraph
from ..search.elimination import Elimination, InteractionTest, eliminate
from ..search.rounds import run_file
from ._final import FinalFit, rows_digest
from ._trainers import Recipe

__all__ = ["check_rate", "structure_of"]

_MAX_REFITS = 200


def check_rate(rate: float | None) -> None:
    """Raise unless a false discovery rate, or None."""
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1):
        raise out_of_range("false_discovery_rate", "a number between 0 and 1, or None", rate)


def structure_of(
    recipe: Recipe,
    train: Observations,
    validation: Observations,
    final: FinalFit,
    rate: float,
    folder: Path | None,
    resume: bool,
    *,
    chosen: bool,
) -> Elimination:
    """Eliminate interactions from a final fit, or read what an interrupted run had found.

    Args:
        recipe: how fits are made; those of elimination keep the strengths and are as short as those of the search.
        train: rows of the fit.
        validation: held-out rows.
        final: the fit.
        rate: false discovery rate.
        folder: of checkpoints.
        resume: read the file if it is there.
        chosen: whether the rows chose the strengths.
    """
    file = None if folder is None else run_file(folder / "structure.safetensors", resume)
    settings = {
        "trainer": repr(recipe),
        "false discovery rate": rate,
        "edges digest": [list(edge) for edge in final.hypergraph.edges],
        "ridge digest": final.ridge.to_json(),
        "rows digest": rows_digest(train),
        "validation rows digest": rows_digest(validation),
    }
    found = None if file is None else file.start(settings)
    if found is not None:
        kept = json.loads(found["elimination"].numpy().tobytes().decode())
        return Elimination(
            InteractionHypergraph(train.domain, kept["edges"], hierarchical=False),
            tuple(InteractionTest.from_json(test) for test in kept["tests"]),
            rate,
            kept["num_fits"],
        )
    trainer = recipe.elimination_trainer(train, final.hypergraph, final.ridge, chosen=chosen)
    if recipe.name == "sampled":
        trainer.train()  # margins are counted in chains of its own
    else:
        trainer.load_state_dict({"tables": final.tables})
    result = eliminate(train, validation, trainer, false_discovery_rate=rate, max_refits=_MAX_REFITS)
    if file is not None:
        text = json.dumps(
            {
                "edges": [list(edge) for edge in result.hypergraph.edges],
                "tests": [test.to_json() for test in result.tests],
                "num_fits": result.num_fits,
            }
        )
        file.write({"elimination": torch.from_numpy(np.frombuffer(text.encode(), dtype=np.uint8).copy())})
    return result
