"""A whole model learned from rows: which interactions, how strongly each is held back, its tables and its log Z."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...data.observations import Observations
from ...errors import check_type, check_whole, none_received, other_domain, refused, size_text, unexpected, wrong_type
from ...structure.hypergraph import InteractionHypergraph
from ..search.candidates import Heredity
from ..search.elimination import Elimination
from ..search.result import Selection
from ..search.scores import Gain, Score, ScoreName
from ..training.ridge import InteractionRidge
from ..training.sampled.trainer import SampledTraining
from ._baselines import frequency_model, one_body_model
from ._final import FinalFit, final_fit
from ._progress import ProgressLines, interactions
from ._search import StagedSearch
from ._trainers import Recipe, TrainerName, checked_recipe, default_ridge, singles
from .columns import check_columns, identifier_columns, ordered_columns, with_ordinal
from .model import LearnedModel
from .structure import check_rate, structure_of

__all__ = [
    "LearnedModel",
    "check_columns",
    "identifier_columns",
    "learn",
    "ordered_columns",
    "train_collection",
    "with_ordinal",
]


_EVIDENCE_ALONE = 4  # rounds of evidence where no search has moved the strengths before


_HEREDITY: Heredity = 0.3
_MAX_PSEUDO_STATES = 2**22


def learn(
    train: Observations,
    validation: Observations,
    *,
    max_order: int = 3,
    heredity: Heredity | None = None,
    score: ScoreName | Score = "gain",
    per_round: int = 60,
    trainer: TrainerName = "auto",
    sampling: SampledTraining | None = None,
    penalty: InteractionRidge | None = None,
    smoothness: float = 0.9,
    evidence_rounds: int | None = None,
    candidates: Iterable[Sequence[str]] | None = None,
    patience: int = 1,
    max_rounds: int | None = None,
    refit: bool = False,
    false_discovery_rate: float | None = 0.1,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
) -> LearnedModel:
    r"""Learn interactions and their strengths: all pairs, then what promises most, while held-out rows gain.

    .. math:: \min_\theta \; -\sum_n \log q_\theta(x_n)
        + \tfrac12 \sum_{S \in \mathcal I} \lambda_S (\theta^S)^\top K_S \theta^S

    The recipe: single variables first; then all pairs at once (beyond 1,500 of them the best 500 by their score);
    then rounds of the best sets that heredity admits, twice as many every time, until the validation loss gets worse.
    Pairs are tried twice: under weak strengths :math:`\lambda_S`, and under strengths that the training rows choose for
    every interaction (the fixed point of the evidence), which know the number of its parameters and hold interactions
    of no use at zero. The validation rows say which of the two is used from there; under weak strengths only sets with
    a positive score are added. The best collection is trained once more, longer, and log Z is found exactly or
    estimated on chains of its own.

    Interactions of no use do little harm in that model, and few are left out. Which interactions there are is another
    question: ``structure`` holds the model of those that the validation rows confirm
    (:func:`~pyro_hoim.log_linear.eliminate`), trained alike with the same strengths.

    Args:
        train: complete rows.
        validation: complete rows that decide when the search ends and which interactions are confirmed; they set no
            parameter, unless ``refit``.
        max_order: variables of the largest interaction, at least 2.
        heredity: share of the facets of a set that must be present, see
            :func:`~pyro_hoim.log_linear.select`; default 0.3, or no condition where ``candidates`` are given.
        score: what sets of a round are ranked by.
        per_round: sets added in the first round after that of the pairs; every further round may add twice as many.
        trainer: ``exact`` gradients, ``sampled`` ones, or ``pseudo-likelihood``; ``auto`` is exact where one evaluation
            takes seconds at most (about 2 million states), else sampled.
        sampling: settings of sampled training; by default those of :class:`SampledTraining`, with up to four
            times the chains in the last fit, and a smaller damping there (1e-3) and where the rows choose the
            strengths (5e-4), which then hold parameters of rare cells back.
        penalty: strengths to begin with, in place of 0.05 for single variables, 0.05 for pairs and 5 beyond (weak), or
            1 for pairs and 20 beyond (where the rows choose from there).
        smoothness: correlation of neighbouring levels of ordinal variables that the penalty assumes; not used with
            ``penalty``.
        evidence_rounds: times that a fit moves the strengths; default 2 in the search, none (sampled) or 4 at
            its end, 2 or 4 without a search; 0 leaves the strengths as they are.
        candidates: add no sets of two variables or more but these.
        patience: rounds without a better validation loss after which the search stops.
        max_rounds: rounds after the first.
        refit: train the collection found, with the strengths found, on both parts together.
        false_discovery_rate: share of the interactions of ``structure`` that are absent from the law of the rows, on
            average at most; None for no structure.
        seed: of everything random.
        checkpoint: folder, made if missing, from which an interrupted run can be continued. Ctrl-C or a kill costs
            the round or fit that was under way.
        resume: continue from ``checkpoint``; the arguments must be the same.
        progress: print a line for every round, and bars where standard error is a terminal.

    Returns:
        The model that predicts best, with ``structure`` beside it.

    Raises:
        InputError: arguments out of range, rows over different variables, no rows, or a checkpoint of another run.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.
        IntractableError: exact training was asked for and is out of reach.

    Randomness:
        From ``seed`` only.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, section 4.

    Example:
        >>> from pyro_hoim.schema import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> learned = learn(rows, rows)
        >>> learned.hypergraph.order, round(learned.gain(rows), 2)
        (2, 0.19)
        >>> learned.structure.hypergraph.edges, round(learned.structure.gain(rows), 2)
        ((('a',), ('b',), ('c',), ('a', 'b')), 0.19)
    """
    _check_parts(train, validation)
    _check_search(max_order, false_discovery_rate)
    ridge = _checked_ridge(penalty, smoothness, evidence_rounds)
    start = singles(train)
    given = None if candidates is None else [_names(edge) for edge in candidates]
    largest = None if given is None else start.add_edges([e for e in given if e], hierarchical=False)
    is_shown = progress and sys.stderr.isatty()
    recipe = checked_recipe(train, trainer, evidence_rounds, largest, max_order, seed, is_shown, sampling)
    _check_score(recipe.name, score, train)
    folder = _folder(checkpoint, resume)
    begin = time.perf_counter()
    line = ProgressLines(frequency_model(train), validation, begin, progress)
    search = StagedSearch(
        train,
        validation,
        recipe.search_trainer(train, start, ridge if penalty is not None else default_ridge(smoothness, weak=True)),
        strong=ridge,
        evidence_rounds=recipe.evidence_rounds[0],
        strong_damping=recipe.chosen_damping,
        heredity=_HEREDITY if heredity is None and given is None else heredity,
        score=score,
        per_round=per_round,
        max_order=max_order,
        candidates=given,
        patience=patience,
        max_rounds=max_rounds,
        folder=folder,
        resume=resume,
        announce=line.round,
    )
    selection, found, rows_choose = search.run()
    count = interactions(selection.hypergraph.num_interactions)
    line.text(f"kept round {selection.best_round}: {count}; training them longer")
    seconds = {"search": time.perf_counter() - begin}
    # Every round of a sampled search has moved the strengths; moving them once more has not been seen to pay.
    how: dict[str, Any] = {"settled": recipe.name == "sampled" or not rows_choose, "chosen": rows_choose}
    final = final_fit(recipe, train, selection.hypergraph, found, "final", folder, resume, **how)
    how["settled"] = True
    seconds["training"] = _since(begin, seconds)
    elimination = _eliminated(
        recipe, train, validation, final, false_discovery_rate, folder, resume, rows_choose, line, begin, seconds
    )
    rows = _together(train, validation) if refit else train
    if refit:
        line.text("training once more, on training and validation rows together")
        final = final_fit(recipe, rows, selection.hypergraph, final.ridge, "refit", folder, resume, **how)
        seconds["refit"] = _since(begin, seconds)
    made: dict[str, Any] = {"name": recipe.name, "selection": selection, "ridge": ridge, "refit": refit, "line": line}
    learned = _learned(final, rows, **made)
    seconds["log_z"] = _since(begin, seconds)
    if elimination is None:
        return replace(learned, seconds=seconds)
    kept, structure = elimination.hypergraph, learned
    line.text(f"training the structure of {interactions(kept.num_interactions)}")
    if kept != learned.hypergraph:
        fitted = final_fit(recipe, rows, kept, final.ridge, "structure-fit", folder, resume, **how)
        seconds["structure"] = _since(begin, seconds)
        structure = _learned(fitted, rows, **made)
        seconds["log_z"] += _since(begin, seconds)
    return replace(learned, structure=replace(structure, elimination=elimination, seconds=seconds), seconds=seconds)


def train_collection(
    train: Observations,
    hypergraph: InteractionHypergraph,
    *,
    trainer: TrainerName = "auto",
    sampling: SampledTraining | None = None,
    penalty: InteractionRidge | None = None,
    smoothness: float = 0.9,
    evidence_rounds: int | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
) -> LearnedModel:
    """The last part of :func:`learn` alone: strengths and tables of a collection that is given.

    Args:
        train: complete rows.
        hypergraph: the collection.
        trainer: see :func:`learn`.
        sampling: see :func:`learn`.
        penalty: see :func:`learn`.
        smoothness: see :func:`learn`.
        evidence_rounds: see :func:`learn`.
        seed: of everything random.
        checkpoint: folder; a fit that was completed is read from it.
        resume: continue from ``checkpoint``.
        progress: print what is being done.

    Returns:
        The model, without a selection.

    Raises:
        InputError: arguments out of range, rows over other variables, no rows, or a checkpoint of another run.
        MissingDataError: missing cells.
        IntractableError: exact training was asked for and is out of reach.
    """
    _check_parts(train)
    ridge = _checked_ridge(penalty, smoothness, evidence_rounds)
    order = hypergraph.order
    recipe = checked_recipe(
        train, trainer, evidence_rounds, hypergraph, order, seed, progress and sys.stderr.isatty(), sampling
    )
    folder = _folder(checkpoint, resume)
    if evidence_rounds is None:
        recipe = replace(recipe, evidence_rounds=(_EVIDENCE_ALONE, _EVIDENCE_ALONE))
    begin = time.perf_counter()
    line = ProgressLines(frequency_model(train), train, begin, progress)
    line.text(f"training {interactions(hypergraph.num_interactions)}")
    chosen = recipe.evidence_rounds[1] > 0
    final = final_fit(recipe, train, hypergraph, ridge, "final", folder, resume, chosen=chosen)
    seconds = {"training": time.perf_counter() - begin}
    learned = _learned(final, train, name=recipe.name, selection=None, ridge=ridge, refit=False, line=line)
    seconds["log_z"] = _since(begin, seconds)
    return replace(learned, seconds=seconds)


def _since(begin: float, seconds: Mapping[str, float]) -> float:
    """Time since the begin of a run that no stage has yet."""
    return time.perf_counter() - begin - sum(seconds.values())


def _eliminated(
    recipe: Recipe,
    train: Observations,
    validation: Observations,
    final: FinalFit,
    rate: float | None,
    folder: Path | None,
    resume: bool,
    chosen: bool,
    line: ProgressLines,
    begin: float,
    seconds: dict[str, float],
) -> Elimination | None:
    """What the validation rows leave of the interactions, where that is asked for and can be said."""
    if rate is None or not _has_margins(recipe.name, train):
        return None
    line.text("testing every interaction on the validation rows")
    elimination = structure_of(recipe, train, validation, final, rate, folder, resume, chosen=chosen)
    seconds["tests"] = _since(begin, seconds)
    return elimination


def _learned(
    final: FinalFit,
    rows: Observations,
    *,
    name: str,
    selection: Selection | None,
    ridge: InteractionRidge,
    refit: bool,
    line: ProgressLines,
) -> LearnedModel:
    """The model of a fit, with log Z."""
    line.text("finding log Z")
    log_z = final.log_partition()
    return LearnedModel(
        final.hypergraph,
        final.tables,
        final.ridge,
        log_z,
        name,
        final.report,
        selection,
        frequency_model(rows),
        one_body_model(rows, ridge),
        rows.total_count,
        refit,
        tuple(dict.fromkeys((*final.report.notes, *log_z.notes))),
    )


def _has_margins(trainer: str, rows: Observations) -> bool:
    """Whether a trainer knows marginal laws of its model, which gains and tests are computed from."""
    return trainer != "pseudo-likelihood" or rows.domain.num_states <= _MAX_PSEUDO_STATES


def _check_parts(*parts: Observations) -> None:
    for name, rows in zip(("train", "validation"), parts, strict=False):
        check_type(rows, Observations, name)
        if rows.domain != parts[0].domain:
            raise other_domain(name, "rows over the variables and levels of train", received="others")
        if not rows.total_count > 0:
            raise none_received(name, "at least one observation")


def _check_search(max_order: int, rate: float | None) -> None:
    """Refuse an order below that of pairs, and what is no false discovery rate."""
    check_whole(max_order, "max_order", 2)
    check_rate(rate)


def _names(edge: Sequence[str]) -> tuple[str, ...]:
    """A candidate as a tuple of names; a string would be taken apart into letters."""
    if isinstance(edge, str):
        raise wrong_type("candidates", "sets of names", hint=f"write ({edge!r},)", received=repr(edge))
    return tuple(edge)


def _check_score(trainer: str, score: ScoreName | Score, rows: Observations) -> None:
    """Refuse gains where the trainer has no marginal laws to compute them from."""
    is_gain = isinstance(score, Gain) or (isinstance(score, str) and score.startswith("gain"))
    if is_gain and not _has_margins(trainer, rows):
        problem = (
            f"'pseudo-likelihood' has no marginal laws beyond {_MAX_PSEUDO_STATES:,} states, which gains are computed "
            f"from, and there are {size_text(rows.domain.num_states)}"
        )
        raise refused("trainer", problem, "use the trainer 'sampled' or the score 'J'", code="over-budget")


def _checked_ridge(
    penalty: InteractionRidge | None, smoothness: float, evidence_rounds: int | None
) -> InteractionRidge:
    ridge = default_ridge(smoothness) if penalty is None else penalty
    check_type(ridge, InteractionRidge, "penalty", "InteractionRidge or None")
    if ridge.is_zero and evidence_rounds != 0:
        raise refused("penalty", "strengths of zero cannot be updated", "pass positive ones, or evidence_rounds=0")
    return ridge


def _folder(checkpoint: str | os.PathLike[str] | None, resume: bool) -> Path | None:
    if checkpoint is None:
        if resume:
            expected = "the folder of a checkpoint"
            raise unexpected("resume", expected, hint="pass checkpoint=...", received="none", code="conflict")
        return None
    folder = Path(checkpoint)
    if not folder.absolute().parent.is_dir():
        problem = f"the folder {folder.absolute().parent} does not exist"
        raise refused("checkpoint", problem, "create it first", code="no-file")
    if folder.exists() and not folder.is_dir():
        raise refused("checkpoint", f"{folder} is a file; expected a folder", code="no-file")
    folder.mkdir(exist_ok=True)
    return folder


def _together(first: Observations, second: Observations) -> Observations:
    """The rows of both."""
    return Observations(
        first.domain, torch.cat([first.codes, second.codes]), torch.cat([first.counts, second.counts])
    ).unique()
