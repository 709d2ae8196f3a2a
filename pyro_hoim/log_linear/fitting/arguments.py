"""Checks of the arguments of a fit, all made before any work, and the choice of a method. Private to learning."""

from __future__ import annotations

import torch

from ...checks import check_finite, check_shape
from ...core.partition import PartitionBackend
from ...data.frames import DataLike, RowsLike, as_observations, is_frame, is_source
from ...data.observations import Observations
from ...data.sources.sourced import few_rows
from ...errors import (
    MissingDataError,
    check_choice,
    check_type,
    conflict,
    other_domain,
    out_of_range,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..margins import MARGIN_TOLERANCE, check_margins
from .design import check_design, design_entries
from .penalties import Conjugate, CoupledPenalty, Penalty, ProximalPenalty, SmoothPenalty
from .solvers import Stopping

__all__ = ["METHODS", "check_data", "check_options", "check_validation", "choose_method", "rows_or_margins"]

METHODS = ("auto", "newton", "lbfgs", "proximal-gradient", "gradient")
_NEWTON_ENTRIES = 2**23
_NEWTON_PARAMETERS = 600


def read_data(
    hypergraph: InteractionHypergraph, data: DataLike | torch.Tensor, validation: DataLike | None, objective: str
) -> tuple[Observations | torch.Tensor, Observations | None]:
    """Data frames and sources among the arguments as observations or margins of the hypergraph, others as they are."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    read = as_observations(data, domain=hypergraph.domain) if is_frame(data) else data
    if is_source(read):
        _check_domain(hypergraph, read.domain, "data")
        read = read.distinct() if objective == "pseudo-likelihood" else rows_or_margins(hypergraph, read)
    if is_frame(validation) or is_source(validation):
        validation = as_observations(validation, domain=hypergraph.domain, argument="validation")
    return read, validation  # type: ignore[return-value]


def rows_or_margins(hypergraph: InteractionHypergraph, source: RowsLike) -> Observations | torch.Tensor:
    """The distinct rows of a source where these are at most 2^25 cells, else the margins of a hypergraph.

    Which of both does not depend on where the rows lie, and neither do the bits.
    """
    found = few_rows(source)
    return source.marginal_counts(hypergraph.edges).double() if found is None else found


def _check_domain(hypergraph: InteractionHypergraph, domain: Domain, argument: str) -> None:
    if domain != hypergraph.domain:
        expected = f"the variables and levels of the hypergraph, {hypergraph.domain.names}"
        hint = "project the data or build the hypergraph on data.domain"
        raise other_domain(argument, expected, hint=hint, received=domain.names)


def check_data(
    hypergraph: InteractionHypergraph, data: Observations | torch.Tensor, argument: str, *, may_be_empty: bool = False
) -> None:
    """Refuse data of other variables, with missing cells, without observations, or margins that do not agree."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    if isinstance(data, Observations):
        _check_domain(hypergraph, data.domain, argument)
        if data.has_missing:
            hint = "call drop_missing() or missing_as_level(label) first"
            raise MissingDataError(f"{data.num_missing_cells} missing cells", argument=argument, hint=hint)
        if not (may_be_empty or data.total_count > 0):
            raise unexpected(argument, "at least one observation", received="a total count of 0", code="empty")
        return
    if not isinstance(data, torch.Tensor) or not data.is_floating_point():
        received = f"dtype {data.dtype}" if isinstance(data, torch.Tensor) else type(data).__name__
        raise wrong_type(argument, "Observations or a floating-point tensor of marginal counts", received=received)
    check_shape(data, (hypergraph.num_terms,), argument)
    check_finite(data, argument)
    if data.ndim != 1:
        raise wrong_shape(argument, f"({hypergraph.num_terms},)", data)
    if not hypergraph.edges:
        raise unexpected(argument, "observations, because a model without interactions has no margins", code="conflict")
    if bool((data < 0).any()):
        raise out_of_range(argument, "non-negative marginal counts", received=f"{float(data.min()):g}")
    wide = data.double()
    total = torch.stack([wide[where].sum() for where in hypergraph.term_slices.values()]).max()
    tolerance = max(MARGIN_TOLERANCE, 64 * torch.finfo(data.dtype).eps) * total
    check_margins(hypergraph, wide, total, tolerance, argument)
    if not bool((data > 0).any()):
        raise unexpected(argument, "at least one observation", received="a total count of 0", code="empty")


def check_options(
    objective: str,
    penalty: Penalty | None,
    partition: PartitionBackend | None,
    stopping: Stopping | None,
    restriction: object = None,
) -> None:
    """Refuse options that have no meaning on their own, or for restricted interactions."""
    if restriction is not None and (penalty is not None or objective != "likelihood"):
        argument = "penalty" if penalty is not None else "objective"
        problem = "restricted interactions are fitted by maximum likelihood without a penalty"
        raise conflict(argument, problem, "fit their hypergraph, which has the whole tables")
    check_choice(objective, ("likelihood", "pseudo-likelihood"), "objective")
    if penalty is not None and not isinstance(penalty, SmoothPenalty | ProximalPenalty | Conjugate):
        raise wrong_type("penalty", "L2, L1, GroupL2, Conjugate or None", received=repr(penalty))
    if isinstance(penalty, Conjugate) and objective != "likelihood":
        raise conflict("penalty", f"{penalty!r} goes with the likelihood, received objective {objective!r}", "use L2")
    if partition is not None:  # a protocol is dear to ask
        check_type(partition, PartitionBackend, "partition", "a partition backend")
    check_type(stopping, Stopping | None, "stopping", "Stopping or None")


def check_validation(hypergraph: InteractionHypergraph, validation: Observations | None, early_stopping: bool) -> None:
    """Refuse validation rows that do not fit the model, and early stopping without any."""
    if validation is not None:
        check_type(validation, Observations, "validation")
        check_data(hypergraph, validation, "validation")
    elif early_stopping:
        raise unexpected("patience", "validation rows", hint="pass validation=...", received="none", code="conflict")


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
    check_choice(method, METHODS, "method")
    entries = design_entries(hypergraph)
    is_smooth = penalty is None or isinstance(penalty, SmoothPenalty | Conjugate)
    is_coupled = penalty is not None and isinstance(penalty, CoupledPenalty) and not penalty.is_diagonal(hypergraph)
    likelihood = objective == "likelihood"
    if not likelihood and not isinstance(data, Observations):
        raise conflict("objective", "the pseudo-likelihood needs observations, received marginal counts")
    small = entries <= _NEWTON_ENTRIES and hypergraph.num_parameters <= _NEWTON_PARAMETERS
    if method == "auto":
        if not is_smooth:
            method = "proximal-gradient"
        elif likelihood and small and partition is None and not (early_stopping or is_coupled):
            method = "newton"
        else:
            method = "lbfgs"
    needs_hessian, needs_prox = method == "newton", method == "proximal-gradient"
    is_dense = likelihood and partition is None and (needs_hessian or entries <= _NEWTON_ENTRIES)
    if needs_hessian and not is_dense:
        title = "the likelihood through a partition backend" if likelihood else "the pseudo-likelihood"
        raise conflict("method", f"'newton' needs a Hessian, which {title} does not offer", "use 'lbfgs'")
    if needs_hessian and is_coupled:
        problem = f"{method!r} needs a diagonal Hessian, {penalty!r} has none here"
        raise conflict("penalty", problem, "fit with method='lbfgs'")
    if needs_prox and not isinstance(penalty, ProximalPenalty):
        raise conflict("method", f"{method!r} needs a penalty with a proximal map, received {penalty!r}", "use 'lbfgs'")
    if not needs_prox and not is_smooth:
        raise conflict("penalty", f"{method!r} needs a smooth penalty, received {penalty!r}", "use 'proximal-gradient'")
    if is_dense:
        check_design(hypergraph)
    return is_dense, method
