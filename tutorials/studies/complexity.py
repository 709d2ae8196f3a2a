"""What a number of rows buys: methods trained on samples of a known law, judged exactly against it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from pyro_hoim.core.law import Law
from pyro_hoim.core.trainer import Trainer
from pyro_hoim.data.observations import Observations
from pyro_hoim.errors import (
    check_type,
    check_whole,
    is_whole,
    none_received,
    other_domain,
    out_of_range,
    unexpected,
    wrong_type,
)
from pyro_hoim.structure.hypergraph import InteractionHypergraph

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Recovery", "draw_rows", "law_divergence", "normalised_errors", "sample_complexity", "structure_recovery"]

Method = Callable[[Observations], Trainer]
"""Trains on a sample, however it likes, and returns what it trained."""

_TIE = 1e-12
_SUM_TOLERANCE = 1e-12


class Recovery(NamedTuple):
    """How well a collection of interactions was found.

    Attributes:
        precision: share of the interactions found that are true; 1 where none was found.
        recall: share of the true interactions that were found; 1 where there is none.
        f1: harmonic mean of the two, 2 true found / (found + true); 1 where there is none of either.
    """

    precision: float
    recall: float
    f1: float


def structure_recovery(found: InteractionHypergraph, truth: InteractionHypergraph, *, min_order: int = 2) -> Recovery:
    """Precision, recall and F1 of a collection against the true one.

    Args:
        found: the collection to judge.
        truth: the collection over the same domain that generated the rows.
        min_order: smaller interactions do not count; by default those of single variables.

    Raises:
        InputError: collections over different domains.
        InputTypeError: no hypergraphs.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> found = InteractionHypergraph.from_order(domain, 2)
        >>> truth = InteractionHypergraph(domain, [("a", "b")], closure=True)
        >>> structure_recovery(found, truth)
        Recovery(precision=0.3333333333333333, recall=1.0, f1=0.5)
    """
    for value, name in ((found, "found"), (truth, "truth")):
        check_type(value, InteractionHypergraph, name)
    if found.domain != truth.domain:
        raise other_domain("found", "a collection over the domain of the true one", received="another domain")
    ours, true = ({edge for edge in h.edges if len(edge) >= min_order} for h in (found, truth))
    both = len(ours & true)
    return Recovery(
        both / len(ours) if ours else 1.0,
        both / len(true) if true else 1.0,
        2 * both / (len(ours) + len(true)) if ours or true else 1.0,
    )


def draw_rows(law: Law, num_rows: int, *, generator: torch.Generator | None = None) -> Observations:
    """Independent rows from a law.

    Args:
        law: the law.
        num_rows: how many, at least 1.
        generator: source of randomness; the global one when left out.

    Raises:
        InputError: no rows are asked for.
        InputTypeError: no law.

    Randomness:
        ``num_rows`` draws of a cell from ``generator``.

    Example:
        >>> from pyro_hoim import Domain
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.5, 0.0], [0.0, 0.5]])
        >>> table = draw_rows(law, 100, generator=torch.Generator().manual_seed(0)).table()
        >>> table.sum().item(), table[0, 1].item()
        (100.0, 0.0)
    """
    _check_law(law, "law")
    _check_num_rows(num_rows, "num_rows")
    cells = torch.multinomial(law.probs.reshape(-1), num_rows, replacement=True, generator=generator)
    codes = torch.stack(torch.unravel_index(cells, law.probs.shape), dim=1)
    return Observations.from_tensor(codes, law.domain)


def _check_law(value: object, argument: str) -> None:
    if not isinstance(value, Law):
        raise wrong_type(argument, "a Law", value)


def _check_num_rows(value: object, argument: str) -> None:
    if not is_whole(value) or value < 1:
        raise out_of_range(argument, "a whole number from 1", value)


def law_divergence(truth: Law, model: Law) -> float:
    r"""Divergence of two laws, in nats; infinite where the model gives probability zero to what happens.

    .. math:: D(p; q) = \sum_x p(x) \log \frac{p(x)}{q(x)}

    Of tables that sum to 1 it is never negative; what rounding puts below zero is given as 0.

    Raises:
        InputError: laws over different domains, or tables that were changed and do not sum to 1 within 1e-12.
        InputTypeError: no laws.
    """
    _check_same_domain(truth, model)
    for law, name in ((truth, "truth"), (model, "model")):
        total = float(law.probs.sum())
        if not abs(total - 1) <= _SUM_TOLERANCE:
            raise unexpected(name, "a law", received=f"a table that sums to {total:.15g}")
    occurs = truth.probs > 0
    p, q = truth.probs[occurs], model.probs[occurs]
    if bool((q == 0).any()):
        return math.inf
    return max(math.fsum((p * (p.log() - q.log())).tolist()), 0.0)


def normalised_errors(truth: Law, model: Law) -> dict[str, float]:
    r"""Error of each variable's prediction from all others, between that of the best rule and that of ignorance.

    .. math:: \frac{\mathrm{err}_i(q) - \mathrm{err}_i(p)}{(1 - \max_k p(x_i = k)) - \mathrm{err}_i(p)}, \qquad
        \mathrm{err}_i(q) = 1 - \sum_{x_{-i}} p\big(\hat x_i(x_{-i}), x_{-i}\big), \quad
        \hat x_i = \arg\max_k q(k, x_{-i})

    0 is the error of Bayes' rule, which knows the true law p; 1 that of always naming the most frequent level; a model
    can be worse than 1. Exact: sums over all cells. Among levels that the model holds equally probable the prediction
    is drawn evenly. NaN where the other variables do not help to predict one, so that the denominator is zero.

    Args:
        truth: the law p that rows come from.
        model: the law q whose predictions are judged.

    Returns:
        One number for each variable, by name.

    Raises:
        InputError: laws over different domains.
        InputTypeError: no laws.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> truth = Law(domain, [[0.4, 0.2], [0.1, 0.3]])
        >>> normalised_errors(truth, truth), normalised_errors(truth, Law(domain, [[0.4, 0.2], [0.2, 0.2]]))["b"]
        ({'a': 0.0, 'b': 0.0}, 0.5)
    """
    _check_same_domain(truth, model)
    return {
        name: _normalised_error(
            np.moveaxis(truth.probs.numpy(), i, 0).reshape(n, -1), np.moveaxis(model.probs.numpy(), i, 0).reshape(n, -1)
        )
        for i, (name, n) in enumerate(zip(truth.domain.names, truth.domain.cardinalities, strict=True))
    }


def _normalised_error(p: np.ndarray, q: np.ndarray) -> float:
    """The same for the variable of axis 0 of tables (levels, contexts)."""
    is_best = q >= q.max(0) * (1 - _TIE)
    best = p.max(0)
    lost = float((best - (p * is_best / is_best.sum(0)).sum(0)).sum())  # by context: none where q predicts as p does
    gain = float(best.sum() - p.sum(1).max())
    return lost / gain if gain > _TIE else math.nan


def _check_same_domain(truth: Law, model: Law) -> None:
    _check_law(truth, "truth")
    _check_law(model, "model")
    if truth.domain != model.domain:
        raise other_domain("model", "a law over the domain of the true one", received="another domain")


def sample_complexity(
    law: Law,
    methods: Mapping[str, Method],
    sizes: Sequence[int],
    *,
    repeats: int = 5,
    seed: int = 0,
    truth: InteractionHypergraph | None = None,
) -> pd.DataFrame:
    """Train methods on samples of a known law and judge them exactly against it.

    All methods see the same rows. Every size and repeat has rows of its own, which depend on ``seed``, size and repeat
    and on nothing else, so a short run shows part of a long one. Needs the joint law of the trained models: small
    domains only.

    Args:
        law: the true law.
        methods: by name, functions of a sample that return a fitted trainer.
        sizes: numbers of rows.
        repeats: samples of each size.
        seed: non-negative; see above.
        truth: the true interactions, for precision, recall and F1 of those that a method's trainer ends with.

    Returns:
        One row for each size, repeat and method: ``num_rows``, ``repeat``, ``method``, ``kl`` (from the true law to the
        model), ``train_kl`` (from the law of the sample to the model), ``error_NAME`` for every variable
        (:func:`normalised_errors`), ``error`` (their mean), ``num_interactions``, ``num_parameters``, ``seconds``, and
        with ``truth`` ``precision``, ``recall``, ``f1`` (:func:`structure_recovery`).

    Raises:
        InputError: no method, no size, numbers out of range, or a truth over other variables; nothing was trained.
        InputTypeError: no law, or a method that returns no trainer.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, section 5.1, figures 2, 7 and 8.
    """
    import pandas as pd

    _check_law(law, "law")
    sizes = list(sizes)
    if not methods or not sizes:
        raise none_received("methods, sizes", "at least one of each")
    check_whole(repeats, "repeats")
    check_whole(seed, "seed", 0)
    for size in sizes:
        _check_num_rows(size, "sizes")
    if truth is not None and truth.domain != law.domain:
        raise other_domain("truth", "a collection over the domain of the law", received="another domain")
    entries: list[dict[str, object]] = []
    for size in sizes:
        for repeat in range(repeats):
            rows = draw_rows(law, size, generator=_generator((seed, size, repeat)))
            for name, method in methods.items():
                start = time.perf_counter()
                trainer = method(rows)
                seconds = time.perf_counter() - start
                judged = _judge(law, rows, trainer, truth)
                entries.append({"num_rows": size, "repeat": repeat, "method": name, **judged, "seconds": seconds})
    return pd.DataFrame(entries)


def _generator(key: Iterable[int]) -> torch.Generator:
    """A generator of its own for every key."""
    state = int(np.random.SeedSequence(list(key)).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state >> 1)


def _judge(law: Law, rows: Observations, trainer: object, truth: InteractionHypergraph | None) -> dict[str, object]:
    """Columns of one method on one sample."""
    if not isinstance(trainer, Trainer):
        raise wrong_type("methods", "functions that return a trainer", trainer)
    shape = law.domain.cardinalities
    model = Law(law.domain, trainer.margins([law.domain.names]).probs.reshape(shape))
    errors = normalised_errors(law, model)
    found: dict[str, object] = {
        "kl": law_divergence(law, model),
        "train_kl": law_divergence(Law.from_observations(rows), model),
        **{f"error_{name}": value for name, value in errors.items()},
        "error": float(np.mean(list(errors.values()))),
        "num_interactions": trainer.hypergraph.num_interactions,
        "num_parameters": trainer.hypergraph.num_parameters,
    }
    if truth is not None:
        found.update(structure_recovery(trainer.hypergraph, truth)._asdict())
    return found
