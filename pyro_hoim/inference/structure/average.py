"""Averages over all decomposable collections by dynamic programming over junction trees."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
import torch

from ...data.columns import FrameOptions
from ...data.frames import DataLike
from ...errors import check_whole, conflict, out_of_reach
from ...runs.arguments import checked_seed
from .evidence import StructureEvidence
from .posterior import StructurePosterior
from .prior import StructurePrior, rows_and_prior
from .program import ThetaPrior

MAX_VARIABLES = 12


def average_decomposable(
    data: DataLike,
    prior: ThetaPrior = "conjugate:1",
    structure_prior: StructurePrior | None = None,
    *,
    num_draws: int = 10_000,
    seed: int = 0,
    **options: Unpack[FrameOptions],
) -> StructurePosterior:
    r"""The posterior over decomposable collections by independent draws of junction trees, without a chain.

    .. math:: f(S, R) = \sum_{S \subset C \subseteq S \cup R} \varphi(C) \, g(C, R \setminus C), \qquad
        g(C, U) = \sum_{\min U \in R \subseteq U} g(C, U \setminus R) \sum_{S \subset C} \frac{f(S, R)}{\varphi(S)}

    With :math:`\varphi` the evidence of the margin of a set of variables, :math:`f(\emptyset, V)` is the sum of the
    evidence over all rooted junction trees, found exactly in :math:`O(4^d)` operations. Trees are drawn from the
    recursion; a graph with m rooted trees is drawn m times too often, and weighs 1 / m. Nothing has to mix, so that
    modes that are thousands of nats apart are no obstacle. ``probabilities`` are weights of the draws, so their errors
    are those of ``num_draws`` independent draws of unequal weight; ``is_exact`` says that nothing else is approximate.

    Args:
        data: complete rows of up to 12 variables; weights are allowed, and no rows at all.
        prior: the conjugate prior, ``"conjugate:N"``.
        structure_prior: a prior with ``space="decomposable"``; all graphs with the same probability when None. A beta
            law of the inclusion enters the weights.
        num_draws: of trees.
        seed: of the draws; the global generators are left as they are.
        options: of a data frame ``weights``, ``count``, ``missing`` (``"drop"``), ``missing_values``, ``bins``,
            ``exclude`` and ``allow``, as :func:`pyro_hoim.fit` has them.

    Returns:
        The posterior over the distinct collections drawn.

    Raises:
        InputError: another prior or space, another domain.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.
        IntractableError: more than 12 variables.

    References:
        Kustaa Kangas, Teppo Niinimäki and Mikko Koivisto, Averaging of decomposable graphs by dynamic programming and
        sampling, UAI 2015. Alun Thomas and Peter Green, Enumerating the junction trees of a decomposable graph, Journal
        of Computational and Graphical Statistics 18, 2009, for the number of trees.

    Example:
        >>> from pyro_hoim import load_table
        >>> posterior = average_decomposable(load_table("czech_autoworkers"), seed=1)
        >>> posterior.is_exact, abs(posterior.inclusion["phys", "protein"] - 0.743) < 0.03
        (True, True)
    """
    data, structure_prior = rows_and_prior(data, structure_prior, "decomposable", options)
    space = structure_prior.space
    if space.name != "decomposable":
        raise conflict("structure_prior", f"its space is {space.name!r}", "use space='decomposable'")
    num = len(space.domain)
    if num > MAX_VARIABLES:
        problem = f"{num} variables, the limit is {MAX_VARIABLES}"
        raise out_of_reach("data", problem, "use sample_structures with temperatures")
    # Graphs by their neighbours, with the number of rooted trees of each.
    check_whole(num_draws, "num_draws")
    generator = np.random.default_rng(checked_seed(seed))
    # Rooted junction trees are drawn by exact sums over their cliques and separators.
    evidence = StructureEvidence(data, space, prior, method="exact")
    terms = np.array([evidence.term(bits) for bits in range(2**num)])
    neighbours, log_copies = _drawn(terms - terms[0], space.max_order, generator.random((num_draws, 3 * num)))
    # A graph has many rooted trees, so that every draw counts one over their number.
    ends = space.candidate_indices[: space.num_pairs]
    pairs = np.array([neighbours[:, i] >> j & 1 for i, j in ends], dtype=np.int64).reshape(len(ends), num_draws).T
    # Distinct graphs with the sums of the weights of their draws.
    distinct, inverse = np.unique(pairs.astype(bool), axis=0, return_inverse=True)
    flags = space.completed(distinct)
    masks = space.masks_of(flags)
    log_weights = np.array([structure_prior.log_weight(mask) for mask in masks])[inverse.reshape(-1)] - log_copies
    each = np.exp(log_weights - log_weights.max())
    weights = np.bincount(inverse.reshape(-1), each, len(masks))
    return StructurePosterior(
        evidence,
        structure_prior,
        torch.from_numpy(flags.copy()),
        torch.from_numpy(evidence.many(masks)),
        torch.from_numpy(weights / weights.sum()),
        num_effective=float(each.sum() ** 2 / (each @ each)),
        is_exact=True,
        status="exact",
    )


def _drawn(terms: np.ndarray, max_order: int, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours (num_draws, d) of the variables of drawn graphs, and log numbers of their rooted trees."""
    from ._junction_kernels import draw_graphs, sum_trees

    num = round(math.log2(len(terms)))
    places = np.array([sum(3**i for i in range(num) if bits >> i & 1) for bits in range(len(terms))])
    cliques = terms.copy()
    cliques[[bits.bit_count() > max_order for bits in range(len(terms))]] = -np.inf
    sums = sum_trees(places, cliques, terms)
    neighbours = np.zeros((len(uniforms), num), dtype=np.int64)
    scores, log_copies = np.zeros(len(uniforms)), np.zeros(len(uniforms))
    draw_graphs(places, cliques, terms, sums, uniforms, neighbours, scores, log_copies)
    return neighbours, log_copies
