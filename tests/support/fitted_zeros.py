"""Fits of small tables with impossible states, and their laws by proportional fitting on the possible cells."""

from typing import Any

import numpy as np
import pandas as pd
import torch

import pyro_hoim as hoim
from pyro_hoim import Domain, InteractionHypergraph, Observations


def zeros(shape: tuple[int, ...], *cells: Any) -> np.ndarray:
    mask = np.zeros(shape, dtype=bool)
    for cell in cells:
        mask[cell] = True
    return mask


SOCIAL = np.array([[0, 12, 7, 3], [10, 0, 9, 5], [4, 8, 0, 11], [2, 6, 13, 0]])
PAIRS = np.array([[[5, 3], [8, 2], [6, 1]], [[4, 7], [0, 0], [3, 5]], [[2, 4], [9, 6], [5, 3]]])
TRIPLE = np.array([[[5, 3], [8, 2]], [[4, 7], [0, 6]]])
HABERMAN = np.array([[[0, 4], [3, 5]], [[6, 2], [7, 0]]])
APART = zeros(PAIRS.shape, np.s_[0, :, 1], np.s_[2, 0])
LEVELS = [{"a": "0", "c": "1"}, {"a": 2, "b": [0]}]  # the same, some of them by codes and as a list
SEVERAL = np.random.default_rng(3).integers(1, 9, (4, 3, 2))
SEVERAL[0, 0, :] = SEVERAL[:, 2, :] = SEVERAL[3, :, 1] = 0


KINDS = {  # counts, structural zeros, formula
    "structural zeros on the diagonal": (SOCIAL, np.eye(4, dtype=bool), "a + b"),
    "structural zeros in a triangle": (np.triu(SOCIAL + 2), np.tri(4, k=-1).astype(bool), "a + b"),
    "structural zeros of a pair": (PAIRS, zeros(PAIRS.shape, (1, 1)), "a*b + c"),
    "structural zeros of two pairs": (np.where(APART, 0, PAIRS), APART, "a + b + c"),
    "a level never seen": (np.array([[12, 7, 0], [5, 9, 0]]), None, "a*b"),
    "a level never seen, independent": (np.array([[12, 7, 0], [5, 9, 0]]), None, "a + b"),
    "an empty cell of a pair": (PAIRS, None, "a*b + b*c"),
    "an empty cell of a triple": (TRIPLE, None, "a*b*c"),
    "an empty cell that is possible": (TRIPLE, None, "(a + b + c)^2"),
    "forced without an empty margin": (HABERMAN, None, "(a + b + c)^2"),
    "several at once": (SEVERAL, zeros(SEVERAL.shape, (0, 0)), "a*b + a*c"),
    "weights": (PAIRS * 0.37, None, "a*b + b*c"),
    "combinations by name": (np.where(APART, 0, PAIRS), LEVELS, "a + b + c"),
    "combinations by name, summed by elimination": (np.where(APART, 0, PAIRS), LEVELS, "a + b + c"),
    "a combination and empty cells, summed by elimination": (SEVERAL, [{"a": 0, "b": 0}], "a*b + a*c"),
}


def mask_of(shape: tuple[int, ...], structural: Any) -> Any:
    """The mask of impossible cells, of combinations the cells that hold one."""
    if not isinstance(structural, list):
        return structural
    mask = np.zeros(shape, dtype=bool)
    for combination in structural:
        levels = [combination.get(name, range(n)) for name, n in zip("abcd", shape, strict=False)]
        codes = [np.atleast_1d(np.asarray(of, dtype=int)) for of in levels]
        mask[np.ix_(*codes)] = True
    return mask


def fitted_law(counts: np.ndarray, structural: Any, graph: InteractionHypergraph) -> np.ndarray:
    """Fitted probabilities: proportional fitting on the cells that no structural zero and no empty margin excludes.

    Of Haberman's table the six cells that were seen are fitted as they are: no other table has their margins.
    """
    if counts is HABERMAN:
        return counts / counts.sum()
    others = [tuple(set(range(counts.ndim)) - set(graph.domain.indices(edge))) for edge in graph.edges]
    margins = [counts.sum(axes, keepdims=True) for axes in others]
    structural = mask_of(counts.shape, structural)
    law = np.ones(counts.shape) if structural is None else (~structural).astype(float)
    for margin in margins:
        law = law * (margin > 0)
    for _ in range(3000):
        for axes, margin in zip(others, margins, strict=True):
            now = law.sum(axes, keepdims=True)
            law = law * np.divide(margin, now, out=np.zeros_like(now), where=now > 0)
    return law / law.sum()


def domain_of(counts: np.ndarray) -> Domain:
    return Domain.from_cardinalities(dict(zip("abcd", counts.shape, strict=False)))


def rows_of(counts: np.ndarray) -> Observations:
    codes = torch.tensor(list(np.ndindex(counts.shape)))
    return Observations(domain_of(counts), codes, torch.from_numpy(counts.ravel().astype(float)))


def case(name: str) -> tuple[Observations, np.ndarray, Any]:
    """Domain, rows, law and result of a kind."""
    counts, structural, formula = KINDS[name]
    rows, graph = rows_of(counts), InteractionHypergraph.from_formula(domain_of(counts), formula)
    options: dict[str, Any] = {}
    if name.endswith("by elimination"):
        options = {"partition": hoim.log_linear.Auto(), "stopping": hoim.log_linear.Stopping(tolerance=1e-10)}
    return rows, fitted_law(counts, structural, graph), hoim.fit(graph, rows, structural_zeros=structural, **options)


def cells(law: np.ndarray) -> pd.DataFrame:
    """All cells as rows of labels."""
    return pd.DataFrame([[str(i) for i in cell] for cell in np.ndindex(law.shape)], columns=list("abcd")[: law.ndim])


def logs(law: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(law)
