"""Likelihood-ratio tests of models from files, which hold no rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ...errors import refused
from ..auto import Auto
from ..coding import parametrization
from ..file import ModelFile
from ..fitting.design import cell_codes, design_entries, design_matrix
from ..fitting.existence import INTERIOR, Face, MLEExistence, identified_directions
from ..fitting.problems import SMALL_ENTRIES
from ..fitting.result import FitResult
from ..restricted.interactions import RestrictedInteractions
from .goodness_of_fit import LikelihoodRatioTest, likelihood_ratio_test

__all__ = ["ratio_test_of_files"]

_PRECISION = 1e-6  # of the means of statistics at an estimate, per row


def ratio_test_of_files(small: ModelFile, big: ModelFile) -> LikelihoodRatioTest:
    r"""Likelihood-ratio test of two models from files of maximum-likelihood estimates from the same complete rows.

    At its estimate a model expects the observed means of its statistics. So the files hold all that the rule for
    p-values by chi-square or Bartlett's factor asks for: expected counts, and what the parameters of either model can
    express. Exact tests and drawn tables take the rows.

    Args:
        small: the null model.
        big: a model with all its interactions and more.

    Raises:
        InputError: a file does not tell of a maximum-likelihood estimate from complete rows, or which tables
            the functions of its formula allow; models that are not nested.
        IntractableError: the margins of a model are out of reach.
    """
    for file in (small, big):
        if not file.info.get("is_maximum"):
            problem_of_file = "a file does not tell of a maximum-likelihood estimate from whole counts"
            raise refused("models", f"{problem_of_file}; a test of weighted rows takes the rows", code="no-method")
        if file.info.get("is_restricted") and "directions" not in file.tensors:  # of an earlier version
            problem = "its file does not say which tables the functions of its formula allow"
            raise refused("models", problem, code="no-method")
    if not set(small.hypergraph.edges) <= set(big.hypergraph.edges):
        raise refused("models", "neither holds all interactions of the other", code="no-method")
    larger = _remembered(big)
    assert larger.margins is not None
    slices = big.hypergraph.term_slices
    shared = torch.cat([larger.margins[slices[edge]] for edge in small.hypergraph.edges])
    return likelihood_ratio_test(replace(_remembered(small), margins=shared), larger)


def _remembered(file: ModelFile) -> FitResult:
    """The fit that a file was written from, without its rows."""
    graph, info, coordinates = file.hypergraph, file.info, parametrization(file.hypergraph)
    theta = coordinates.convert(file.theta, file.coding, coordinates.coding)
    energy, total = file.energy, float(info["rows"])
    log_z = float(Auto().log_partition(energy).value)
    totals, slices = total * Auto().expectations(energy).detach(), energy.hypergraph.term_slices
    margins = torch.cat([totals[slices[edge]] for edge in graph.edges])
    design = design_matrix(graph) if design_entries(graph) <= SMALL_ENTRIES else None
    existence, face, restriction, space = INTERIOR, None, None, None
    if info.get("is_restricted"):
        directions = file.tensors["directions"].numpy()
        names = ("",) * (directions.shape[1] if directions.ndim == 2 else 0)
        restriction = RestrictedInteractions(graph, names, names, directions)
        space = restriction.basis
    if file.impossible is not None:
        lost = graph.num_parameters - int(info["num_parameters"])
        existence = MLEExistence(False, "unknown", num_parameters_lost=lost)
        if design is not None:
            cells = torch.isfinite(energy.energy(torch.from_numpy(cell_codes(graph)))).numpy()
            basis = identified_directions(design if space is None else design @ space, cells)
            face = Face(cells, basis.shape[1], basis if space is None else space @ basis, np.zeros(len(theta)))
    tables = file.finite.tables
    expected = float(margins @ tables) - total * log_z  # of complete rows
    slack = total * _PRECISION * (1 + float(tables.abs().sum()))
    if abs(expected - info["log_likelihood"]) > slack:
        raise refused("models", "of rows with missing cells it is not known where the chi-square distribution holds")
    return FitResult(
        hypergraph=graph,
        theta=theta,
        log_likelihood=float(info["log_likelihood"]),
        log_partition=log_z,
        num_rows=total,
        status=info["status"],
        num_iterations=0,
        gradient_norm=0.0,
        existence=existence,
        objective="likelihood",
        method="auto",
        partition=None if design is not None else Auto(),
        margins=margins,
        impossible=file.impossible,
        restriction=restriction,
        _face=face,
        _design=design,
    )
