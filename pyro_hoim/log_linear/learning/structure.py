"""The structure of a learned model: the interactions that held-out rows confirm. Private to learning."""

from __future__ import annotations

from ...data.observations import Observations
from ...runs.checkpoint import RunFile, packed, unpacked
from ...structure.hypergraph import InteractionHypergraph
from ..search.elimination import EliminationResult, InteractionTest, eliminate
from ..search.rounds import rows_digest
from ._final import FinalFit

__all__ = ["structure_of"]

_MAX_REFITS = 200


def structure_of(
    final: FinalFit,
    train: Observations,
    validation: Observations,
    rate: float,
    file: RunFile | None,
    *,
    chosen: bool,
) -> EliminationResult:
    """Eliminate interactions from a final fit, or read what an interrupted run had found.

    Fits keep the strengths, which the rows have ``chosen`` or not, and are as short as those of the search.
    """
    recipe = final.recipe
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
        kept = unpacked(found["elimination"])
        return EliminationResult(
            InteractionHypergraph(train.domain, kept["edges"], hierarchical=False),
            tuple(InteractionTest.from_json(test) for test in kept["tests"]),
            rate,
            kept["num_fits"],
        )
    is_sampled = recipe.name == "sampled"
    trainer = recipe.trainer(train, final.hypergraph, final.ridge, is_final=not is_sampled, is_chosen=chosen)
    if is_sampled:
        trainer.train()  # margins are counted in chains of its own
    else:
        trainer.load_state_dict({"tables": final.tables})
    result = eliminate(train, validation, trainer, false_discovery_rate=rate, max_refits=_MAX_REFITS)
    if file is not None:
        edges, tests = [list(edge) for edge in result.hypergraph.edges], [test.to_json() for test in result.tests]
        file.write({"elimination": packed({"edges": edges, "tests": tests, "num_fits": result.num_fits})})
    return result
