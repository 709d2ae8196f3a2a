"""Checks of the arguments of a fit, all made before any work, and the choice of a method. Private to learning."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import torch

from ...checks import check_finite, check_shape
from ...core.partition import PartitionBackend
from ...data.observations import Observations
from ...errors import InputError, InputTypeError, MissingDataError, is_whole
from ...structure.hypergraph import InteractionHypergraph
from ..margins import check_margins
from .design import check_design, design_entries
from .monitor import load_checkpoint
from .objectives import DenseLikelihood, Likelihood, PseudoLikelihood, missing_hessian
from .penalties import Conjugate, CoupledPenalty, Penalty, ProximalPenalty, SmoothPenalty
from .solvers import SOLVERS

__all__ = ["check_data", "check_options", "check_validation", "choose_method", "starting_point"]

_NEWTON_ENTRIES = 2**23
_NEWTON_PARAMETERS = 600


def check_data(hypergraph: InteractionHypergraph, data: Observations | torch.Tensor, argument: str) -> None:
    """Refuse data of other variables, with missing cells, without observations, or margins that do not agree."""
    if not isinstance(hypergraph, InteractionHypergraph):
        raise InputTypeError(f"hypergraph: expected an InteractionHypergraph, received {type(hypergraph).__name__}")
    if isinstance(data, Observations):
        if data.domain != hypergraph.domain:
            raise InputError(
                f"{argument}: expected the variables and levels of the hypergraph, {hypergraph.domain.names}, received "
                f"{data.domain.names}; project the data or build the hypergraph on data.domain"
            )
        if data.has_missing:
            raise MissingDataError(
                f"{argument}: {data.num_missing_cells} missing cells; "
                "call drop_missing() or missing_as_level(label) first"
            )
        if not data.total_count > 0:
            raise InputError(f"{argument}: expected at least one observation, received a total count of 0")
        return
    if not isinstance(data, torch.Tensor) or not data.is_floating_point():
        received = f"dtype {data.dtype}" if isinstance(data, torch.Tensor) else type(data).__name__
        raise InputTypeError(
            f"{argument}: expected Observations or a floating-point tensor of marginal counts, received {received}"
        )
    check_shape(data, (hypergraph.num_terms,), argument)
    check_finite(data, argument)
    if data.ndim != 1:
        raise InputError(f"{argument}: expected shape ({hypergraph.num_terms},), received {tuple(data.shape)}")
    if not hypergraph.edges:
        raise InputError(f"{argument}: expected observations, because a model without interactions has no margins")
    if bool((data < 0).any()):
        raise InputError(f"{argument}: expected non-negative marginal counts, received {float(data.min()):g}")
    check_margins(hypergraph, data, argument)
    if not bool((data > 0).any()):
        raise InputError(f"{argument}: expected at least one observation, received a total count of 0")


def check_options(
    objective: str,
    tolerance: float | None,
    max_iterations: int | None,
    patience: int,
    penalty: Penalty | None,
    partition: PartitionBackend | None,
) -> None:
    """Refuse options that have no meaning on their own."""
    if objective not in ("likelihood", "pseudo-likelihood"):
        raise InputError(f"objective: expected 'likelihood' or 'pseudo-likelihood', received {objective!r}")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise InputError(f"tolerance: expected a positive number, received {tolerance!r}")
    for name, value in (("max_iterations", max_iterations), ("patience", patience)):
        if value is not None and (not is_whole(value) or value < 1):
            raise InputError(f"{name}: expected a whole number from 1, received {value!r}")
    if penalty is not None and not isinstance(penalty, SmoothPenalty | ProximalPenalty | Conjugate):
        raise InputTypeError(f"penalty: expected L2, L1, GroupL2, Conjugate or None, received {penalty!r}")
    if isinstance(penalty, Conjugate) and objective != "likelihood":
        raise InputError(f"penalty: {penalty!r} goes with the likelihood, received objective {objective!r}; use L2")
    if partition is not None and not isinstance(partition, PartitionBackend):
        raise InputTypeError(f"partition: expected a partition backend, received {type(partition).__name__}")


def check_validation(hypergraph: InteractionHypergraph, validation: Observations | None, early_stopping: bool) -> None:
    """Refuse validation rows that do not fit the model, and early stopping without any."""
    if validation is not None:
        if not isinstance(validation, Observations):
            raise InputTypeError(f"validation: expected Observations, received {type(validation).__name__}")
        check_data(hypergraph, validation, "validation")
    elif early_stopping:
        raise InputError("early_stopping: expected validation rows, received none; pass validation=...")


def choose_method(
    hypergraph: InteractionHypergraph,
    data: Observations | torch.Tensor,
    method: str,
    objective: str,
    penalty: Penalty | None,
    partition: PartitionBackend | None,
    early_stopping: bool,
) -> tuple[bool, str]:
    """Whether a dense design is used, and the method; combinations that do not fit are refused."""
    if method not in ("auto", *SOLVERS):
        names = ", ".join(map(repr, ("auto", *SOLVERS)))
        raise InputError(f"method: expected one of {names}, received {method!r}")
    entries = design_entries(hypergraph)
    is_smooth = penalty is None or isinstance(penalty, SmoothPenalty | Conjugate)
    is_coupled = isinstance(penalty, CoupledPenalty) and not penalty.is_diagonal(hypergraph)
    likelihood = objective == "likelihood"
    if not likelihood and not isinstance(data, Observations):
        raise InputError("objective: the pseudo-likelihood needs observations, received marginal counts")
    small = entries <= _NEWTON_ENTRIES and hypergraph.num_parameters <= _NEWTON_PARAMETERS
    if method == "auto":
        if not is_smooth:
            method = "proximal-gradient"
        elif likelihood and small and partition is None and not (early_stopping or is_coupled):
            method = "newton"
        else:
            method = "lbfgs"
    solver = SOLVERS[method]
    is_dense = likelihood and partition is None and (solver.needs_hessian or entries <= _NEWTON_ENTRIES)
    kind = DenseLikelihood if is_dense else Likelihood if likelihood else PseudoLikelihood
    if solver.needs_hessian and not kind.has_hessian:
        raise InputError(missing_hessian(kind))
    if solver.needs_hessian and is_coupled:
        raise InputError(
            f"penalty: {method!r} needs a diagonal Hessian, {penalty!r} has none here; fit with method='lbfgs'"
        )
    if solver.needs_prox and not isinstance(penalty, ProximalPenalty):
        raise InputError(f"method: {method!r} needs a penalty with a proximal map, received {penalty!r}; use 'lbfgs'")
    if not solver.needs_prox and not is_smooth:
        raise InputError(f"penalty: {method!r} needs a smooth penalty, received {penalty!r}; use 'proximal-gradient'")
    if is_dense:
        check_design(hypergraph)
    return is_dense, method


def starting_point(
    hypergraph: InteractionHypergraph,
    start: torch.Tensor | None,
    checkpoint: str | os.PathLike[str] | None,
    resume: bool,
) -> np.ndarray | None:
    """Free parameters to start from, None for the default; a given checkpoint is read here."""
    if resume and checkpoint is None:
        raise InputError("resume: expected the path of a checkpoint, received none; pass checkpoint=...")
    if checkpoint is not None and not Path(checkpoint).parent.is_dir():
        raise InputError(f"checkpoint: the folder {Path(checkpoint).parent} does not exist; create it first")
    if resume and checkpoint is not None and Path(checkpoint).exists():
        return load_checkpoint(checkpoint, hypergraph)
    if start is None:
        return None
    if not isinstance(start, torch.Tensor) or not start.is_floating_point():
        raise InputTypeError("start: expected a floating-point tensor of free parameters")
    if tuple(start.shape) != (hypergraph.num_parameters,):
        raise InputError(f"start: expected shape ({hypergraph.num_parameters},), received {tuple(start.shape)}")
    check_finite(start, "start")
    return start.detach().to("cpu", torch.float64).numpy().copy()
