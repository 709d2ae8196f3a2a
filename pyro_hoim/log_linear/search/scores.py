"""Scores of candidate interactions: what adding one to the present model promises, in nats per row."""

from __future__ import annotations

import copy
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, cast

import numpy as np

from ..._modes import plain_mode
from ...checks import check_exact_shape
from ...core.trainer import Trainer
from ...data.information import InformationTable
from ...data.observations import Observations
from ...errors import check_choice, check_whole, out_of_range, out_of_reach, size_text, wrong_type
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..fitting.design import fitted_margins, sum_to

ScoreName = Literal["J", "J-per-parameter", "gain", "gain-per-parameter", "refined"]
CONCENTRATIONS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
"""Weights a of the model, in rows, that a gain chooses from."""

_PSEUDO_COUNT = 0.5


@dataclass(frozen=True)
class ScoreContext:
    """What a score may look at: the training rows, and the trainer whose collection candidates would be added to.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 3}), [[10, 20, 30], [30, 20, 10]])
        >>> context = ScoreContext(rows, ExactTrainer(rows, InteractionHypergraph.from_order(rows.domain, 1)))
        >>> edges = context.in_order([("b", "a"), ("b",)])
        >>> edges, context.num_parameters(edges).tolist()
        ([('a', 'b'), ('b',)], [2.0, 2.0])
    """

    train: Observations
    trainer: Trainer

    @property
    def hypergraph(self) -> InteractionHypergraph:
        """The present collection."""
        return self.trainer.hypergraph

    @cached_property
    @plain_mode()
    def information(self) -> InformationTable:
        """Entropies of the training rows, kept from round to round."""
        return InformationTable(self.train)

    def in_order(self, edges: Sequence[Sequence[str]]) -> list[Edge]:
        """The edges with their names in schema order."""
        domain = self.train.domain
        return [tuple(domain.names[i] for i in sorted(domain.indices(edge))) for edge in edges]

    def num_parameters(self, edges: Sequence[Edge]) -> np.ndarray:
        r"""Free parameters :math:`\prod_{k \in S} (I_k - 1)` of each set, (num_edges,)."""
        cards = dict(zip(self.train.domain.names, self.train.domain.cardinalities, strict=True))
        return np.array([math.prod(cards[name] - 1 for name in edge) for edge in edges], dtype=np.float64)


class Score(Protocol):
    """A score of candidates, higher is better. A plain function will do.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer, SelectionOptions, select
        >>> def by_name(candidates, context):
        ...     return np.array([float("b" in edge) for edge in candidates])
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.from_order(domain, 1))
        >>> select(rows, rows, trainer, SelectionOptions(score=by_name, max_rounds=1)).rounds[1].changed
        (('a', 'b'), ('b', 'c'))
    """

    def __call__(self, candidates: Sequence[Edge], context: ScoreContext, /) -> np.ndarray:
        """One number for every candidate, (num_candidates,)."""
        ...


class GainEstimate(NamedTuple):
    r"""What :meth:`Gain.estimate` finds, one entry for every candidate.

    Attributes:
        gain: leave-one-out estimate, nats per row; no cost of the search subtracted.
        divergence: the same without leaving anything out, :math:`D(p_S \| q_S)`, or over a superset that S closes.
    """

    gain: np.ndarray
    divergence: np.ndarray


@dataclass(frozen=True)
class InteractionInformation:
    r"""The paper's score, the size of the interaction information of the data, which knows nothing of the model.

    .. math:: |J_S| = \Big| \sum_{T \subseteq S} (-1)^{|S| - |T|} D(\hat p_T \| u_T) \Big|

    in nats, divided by the number of free parameters of the candidate if ``per_parameter``.

    References:
        Paper 1, equation (3) and section 4.1; figures 5 and 6 for the division.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> context = ScoreContext(rows, ExactTrainer(rows, InteractionHypergraph.from_order(rows.domain, 1)))
        >>> InteractionInformation()([("a", "b"), ("a",)], context).round(4).tolist()  # 0.8 log 1.6 + 0.2 log 0.4
        [0.1927, 0.0]
    """

    per_parameter: bool = False

    def __call__(self, candidates: Sequence[Edge], context: ScoreContext) -> np.ndarray:
        """Scores (num_candidates,)."""
        values = np.abs(context.information.interaction_information(candidates).numpy())
        return values / context.num_parameters(candidates) if self.per_parameter else values


@dataclass(frozen=True)
class Gain:
    r"""Leave-one-out estimate of the refined information of a candidate at the present model; it needs no fit.

    .. math:: \mathrm{LOO}_S(a) = \sum_x \frac{c_x}{n} \log \frac{c_x - 1 + a\, q_x}{(n - 1 + a)\, q_x}, \qquad
        \mathrm{score}(S) = \max_a \mathrm{LOO}_S(a) - \frac{\log m}{n}

    :math:`c` are the training counts of the candidate's cells, :math:`q` the model's margin over its variables and
    :math:`m` the number of candidates. A row is predicted by the data without it, shrunken towards the model with the
    weight of a rows. By Gibbs' inequality :math:`\mathrm{LOO}_S(a) \le D(\hat p_S \| q_S)`; one step of iterative
    proportional fitting lowers the divergence by exactly that, which the projection onto the family with S and its
    subsets can only exceed. Where the data add nothing, LOO at large a is about zero or below on average, and
    :math:`\log m / n` pays for the best of m trials.

    Where the collection holds a superset T of which S is the only subset that is missing, all of the above holds with T
    in place of S, and the larger LOO counts. Where a subset of S is not in the collection, q is first fitted to the
    data's margins over all facets of S, so that only what S itself adds is counted. Margins that are estimated from M
    draws get half a pseudo-count. Costs one margin of the model and one pass over the occupied cells for every
    candidate and concentration.

    Args:
        per_parameter: divide by the number of free parameters of the candidate.
        search_cost: subtract :math:`\log m / n`.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.from_order(domain, 1))
        >>> _ = trainer.train()
        >>> Gain()([("a", "b"), ("a", "c")], ScoreContext(rows, trainer)).round(4).tolist()
        [0.1747, -0.0035]
    """

    per_parameter: bool = False
    search_cost: bool = True

    def __call__(self, candidates: Sequence[Edge], context: ScoreContext) -> np.ndarray:
        """Scores (num_candidates,), nats per row."""
        values = self.estimate(candidates, context).gain
        if self.search_cost and len(candidates):
            values = values - math.log(len(candidates)) / context.train.total_count
        return values / context.num_parameters(candidates) if self.per_parameter else values

    def estimate(self, candidates: Sequence[Edge], context: ScoreContext) -> GainEstimate:
        """The gains and the plain divergences."""
        if not candidates:
            return GainEstimate(np.empty(0), np.empty(0))
        candidates = context.in_order(candidates)
        # Margins of the rows and of the model over the candidates and what they close.
        closed = closed_supersets(candidates, context.hypergraph)
        larger = list(dict.fromkeys(edge for _, edge in closed))
        sets = [*candidates, *larger]
        counts = context.train.marginal_counts(sets).numpy()
        total = context.train.total_count
        laws, sizes = reference_laws(sets, len(candidates), context.trainer, counts, total)
        owner = np.repeat(np.arange(len(sets)), sizes)
        occupied = counts > 0
        c, q, owner = counts[occupied], laws[occupied], owner[occupied]
        q = np.maximum(q, np.finfo(np.float64).tiny)
        weight, log_q = c / total, np.log(q)

        def per_set(values: np.ndarray) -> np.ndarray:
            return np.bincount(owner, weights=values, minlength=len(sets))

        divergence = per_set(weight * (np.log(weight) - log_q))
        # Every row is predicted by the others, shrunken towards the model with the weight that suits the set.
        rest = np.maximum(c - 1, 0.0)
        gain = np.full(len(sets), -np.inf)
        for a in CONCENTRATIONS:
            values = per_set(weight * (np.log(rest + a * q) - log_q)) - math.log(max(total - 1, 0.0) + a)
            gain = np.maximum(gain, values)
        # A candidate that closes a superset counts with whichever gains more.
        places = {edge: number for number, edge in enumerate(larger, start=len(candidates))}
        for i, edge in closed:
            j = places[edge]
            divergence[i], gain[i] = max(divergence[i], divergence[j]), max(gain[i], gain[j])
        return GainEstimate(gain[: len(candidates)], divergence[: len(candidates)])


@dataclass(frozen=True)
class Refined:
    r"""The refined information itself, :math:`RI_{\mathcal I, S}(\hat p)`, by a fit of every candidate.

    A copy of the trainer is fitted to the present collection, further copies of that one to it with one candidate
    added; the score is the fall of the training loss. For domains of at most ``max_states`` states (else it raises
    IntractableError) and few candidates. With a penalty, or with a loss that is not the exact likelihood, it is the
    fall of that loss.

    References:
        Paper 1, equation (5).

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> context = ScoreContext(rows, ExactTrainer(rows, InteractionHypergraph.from_order(rows.domain, 1)))
        >>> Refined()([("a", "b")], context).round(4).tolist()  # the mutual information
        [0.1927]
    """

    max_states: int = 2**20

    def __call__(self, candidates: Sequence[Edge], context: ScoreContext) -> np.ndarray:
        """Scores (num_candidates,), nats per row."""
        states = context.train.domain.num_states
        if states > self.max_states:
            problem = f"the domain has {size_text(states, 'states')}, the limit is {self.max_states}"
            hint = "use score='gain', or raise Refined(max_states=...)"
            raise out_of_reach("score 'refined' fits every candidate", problem, hint)
        base = copy.deepcopy(context.trainer)
        base.train()
        before = base.loss(context.train).value
        values = np.empty(len(candidates))
        for i, edge in enumerate(candidates):
            trial = copy.deepcopy(base)
            trial.restructure(base.hypergraph.add_edges([edge], hierarchical=False))
            trial.train()
            values[i] = before - trial.loss(context.train).value
        return values


_NAMED: dict[str, Score] = {
    "J": InteractionInformation(),
    "J-per-parameter": InteractionInformation(per_parameter=True),
    "gain": Gain(),
    "gain-per-parameter": Gain(per_parameter=True),
    "refined": Refined(),
}


def checked_values(
    score: Score, candidates: Sequence[Edge], context: ScoreContext, argument: str = "score"
) -> np.ndarray:
    """Scores (num_candidates,), checked; NaN is refused."""
    if not candidates:
        return np.empty(0)
    values = np.asarray(score(candidates, context), dtype=np.float64)
    check_exact_shape(values, (len(candidates),), argument)
    if bool(np.isnan(values).any()):
        edge = ":".join(candidates[int(np.isnan(values).argmax())])
        raise out_of_range(argument, "numbers", received=f"NaN for {edge}")
    return values


def checked_score(score: object, argument: str = "score") -> tuple[str, Score]:
    """Name, for the settings of a run, and callable of a score."""
    if isinstance(score, str):
        check_choice(score, _NAMED, argument)
        score = _NAMED[score]
    if not callable(score):
        raise wrong_type(argument, "a name or a function", score)
    is_ours = isinstance(score, Gain | InteractionInformation | Refined)
    name = repr(score) if is_ours else getattr(score, "__qualname__", type(score).__qualname__)
    return str(name), cast(Score, score)


@dataclass(frozen=True)
class Screened:
    """The score of the ``keep`` most promising candidates by a cheaper score; the others get minus infinity.

    With hundreds of variables heredity admits hundreds of thousands of triples. The interaction information of the data
    costs microseconds each, a gain at the present model needs a margin of the model.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> trainer = ExactTrainer(rows, InteractionHypergraph.from_order(domain, 1))
        >>> _ = trainer.train()
        >>> Screened(keep=1)([("a", "b"), ("a", "c"), ("b", "c")], ScoreContext(rows, trainer)).round(4).tolist()
        [0.1782, -inf, -inf]
    """

    score: Score = field(default_factory=Gain)
    first: Score = field(default_factory=InteractionInformation)
    keep: int = 20_000

    def __post_init__(self) -> None:
        check_whole(self.keep, "keep")

    def __call__(self, candidates: Sequence[Edge], context: ScoreContext) -> np.ndarray:
        """Scores (num_candidates,), nats; of equal candidates the earlier pass."""
        if len(candidates) <= self.keep:
            return self.score(candidates, context)
        passed = np.sort(np.argsort(-self.first(candidates, context), kind="stable")[: self.keep])
        values = np.full(len(candidates), -np.inf)
        values[passed] = self.score([candidates[i] for i in passed], context)
        return values


def reference_laws(
    sets: Sequence[Edge], num_candidates: int, trainer: Trainer, counts: np.ndarray, total: float
) -> tuple[np.ndarray, np.ndarray]:
    """Laws of the candidates and of further sets after them, flat, and their sizes."""
    # Margins of the model over all sets, flat.
    domain = trainer.rows.domain
    present = set(trainer.hypergraph.edge_indices)
    margins = trainer.margins(sets)
    flat = margins.probs.numpy().astype(np.float64, copy=True)
    indices = [tuple(sorted(domain.indices(edge))) for edge in sets]
    shapes = [tuple(domain.cardinalities[i] for i in edge) for edge in indices]
    sizes = np.array([math.prod(shape) for shape in shapes], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    is_estimated = math.isfinite(margins.sample_size)
    groups: dict[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], list[int]] = defaultdict(list)
    for number, (edge, shape) in enumerate(zip(indices, shapes, strict=True)):
        facets = _facets(edge, present) if number < num_candidates else ()
        if facets or is_estimated:
            groups[shape, facets].append(number)
    for (shape, facets), members in groups.items():
        cells = starts[members][:, None] + np.arange(math.prod(shape))
        data = counts[cells].reshape(-1, *shape) / total
        laws = flat[cells].reshape(-1, *shape)
        if is_estimated:
            # Estimated laws with half a pseudo-count like the mean of the data and the product of one-
            # variable margins
            product = np.ones_like(laws)
            for axis in range(laws.ndim - 1):
                product = product * sum_to(laws, (axis,))
            laws = (margins.sample_size * laws + _PSEUDO_COUNT * (data + product) / 2) / (
                margins.sample_size + _PSEUDO_COUNT
            )
        flat[cells] = fitted_margins(laws, data, facets).reshape(len(members), -1)
    return flat, sizes


def closed_supersets(candidates: Sequence[Edge], hypergraph: InteractionHypergraph) -> list[tuple[int, Edge]]:
    """Pairs of a candidate, by number, and a set of the collection of which it is the only subset that is missing."""
    names = hypergraph.domain.names
    present = set(hypergraph.edge_indices)
    closed: dict[tuple[int, ...], list[Edge]] = defaultdict(list)
    for edge in hypergraph.edge_indices:
        parts = itertools.chain.from_iterable(itertools.combinations(edge, size) for size in range(1, len(edge)))
        missing = list(itertools.islice((part for part in parts if part not in present), 2))
        if len(missing) == 1:
            closed[missing[0]].append(tuple(names[i] for i in edge))
    sets = [tuple(sorted(hypergraph.domain.indices(edge))) for edge in candidates]
    return [(number, larger) for number, edge in enumerate(sets) for larger in closed.get(edge, ())]


def _facets(edge: tuple[int, ...], present: set[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Axes of the facets of an edge if one of its non-empty proper subsets is not present, else nothing."""
    sizes = range(1, len(edge))
    if all(part in present for size in sizes for part in itertools.combinations(edge, size)):
        return ()
    return tuple(itertools.combinations(range(len(edge)), len(edge) - 1))
