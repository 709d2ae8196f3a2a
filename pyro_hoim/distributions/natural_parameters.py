r"""From mean coordinates back to natural ones: which means have a theta, which theta, and how curved log Z is there.

The map :math:`\theta \mapsto \eta(\theta)` is a bijection onto the (relative) interior of the marginal polytope. The
conjugate prior needs its inverse for the mode and membership of the interior for propriety.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy import optimize, sparse

from ..errors import InputError, IntractableError
from ..models import LogLinearEnergy, parametrization
from ..partition import PartitionBackend
from ..structure.hypergraph import InteractionHypergraph
from .hyper_dirichlet import mode_tables

__all__ = ["MAX_DENSE_PARAMETERS", "fisher_information", "interior_margin", "solve_natural_parameters"]

MAX_DENSE_PARAMETERS = 2000
_MAX_STEPS = 200


def interior_margin(hypergraph: InteractionHypergraph, eta: torch.Tensor, *, max_cells: int = 2**12) -> float | None:
    r"""How far mean coordinates lie inside the marginal polytope, by a linear program over the joint table.

    .. math:: \max \{ \varepsilon : A p = \eta,\ p_x \ge \varepsilon \text{ for every cell } x \}

    The maximum is positive exactly when a strictly positive law has these marginals, that is when theta exists.
    Solved by HiGHS with a feasibility tolerance of 1e-10; values up to 1e-9 cannot be told from the boundary.

    Args:
        hypergraph: the interactions.
        eta: marginal probabilities of every hyperedge, shape (num_terms,), no batch.
        max_cells: largest joint table for which the program is solved.

    Returns:
        The smallest cell probability of the most interior law with marginals ``eta``; -1.0 when no law has them (the
        margins contradict each other or lie outside the polytope); None when the joint table has more than
        ``max_cells`` cells: not decided.

    Example:
        >>> from pyro_hoim.schema import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
        >>> round(interior_margin(hypergraph, torch.tensor([0.5, 0.5, 0.5, 0.5])), 9)
        0.25
    """
    domain = hypergraph.domain
    cells = domain.num_states
    if cells > max_cells:
        return None
    codes = np.indices(domain.cardinalities).reshape(len(domain), cells)
    columns = np.arange(cells)
    blocks: list[sparse.csr_array] = [sparse.csr_array(np.ones((1, cells)))]
    values = [np.ones(1)]
    target = eta.detach().cpu().double().numpy()
    for edge, indices, shape in zip(hypergraph.edges, hypergraph.edge_indices, hypergraph.edge_shapes, strict=True):
        if edge in hypergraph.maximal_edges or not hypergraph.is_hierarchical:
            rows = np.ravel_multi_index(tuple(codes[list(indices)]), shape)
            blocks.append(sparse.csr_array((np.ones(cells), (rows, columns)), shape=(int(np.prod(shape)), cells)))
            values.append(target[hypergraph.term_slices[edge]])
    design, wanted = sparse.vstack(blocks, format="csr"), np.concatenate(values)
    # Unknowns are the excess q = p - epsilon of every cell, then epsilon itself.
    matrix = sparse.hstack([design, sparse.csr_array(design.sum(axis=1).reshape(-1, 1))], format="csr")
    cost = np.zeros(cells + 1)
    cost[-1] = -1.0
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result = optimize.linprog(cost, A_eq=matrix, b_eq=wanted, bounds=(0, None), method="highs", options=tight)
    return float(result.x[-1]) if result.status == 0 else -1.0


def solve_natural_parameters(
    hypergraph: InteractionHypergraph,
    eta: torch.Tensor,
    partition: PartitionBackend,
    *,
    precision: torch.Tensor | None = None,
    centre: torch.Tensor | None = None,
    tolerance: float = 1e-10,
) -> torch.Tensor:
    r"""The free theta with given mean coordinates, :math:`\eta(\theta) = \eta`, unique when it exists.

    In closed form on decomposable collections; otherwise the maximum of the concave function
    :math:`\eta \cdot \theta - \log Z(\theta) - \frac12 \sum_i \lambda_i (\theta_i - \mu_i)^2` by damped Newton steps
    in double precision. Each step costs one evaluation and one backward pass per parameter.

    Args:
        hypergraph: the interactions.
        eta: marginal probabilities of every hyperedge; in the interior of the marginal polytope unless there is a
            ``precision``.
        partition: exact backend for log Z and eta.
        precision: :math:`\lambda`, for the mode under a normal prior: its inverse variances divided by the number of
            rows. None leaves the term out.
        centre: :math:`\mu`, zero when None.
        tolerance: largest allowed error of a free statistic.

    Shape:
        eta (num_terms,), precision and centre (num_parameters,), no batch; returns (num_parameters,) in the dtype of
        eta.

    Raises:
        InputError: no such theta was found: eta lies on or outside the boundary of the polytope.
        IntractableError: log Z exceeds the backend's budget, or the collection has more than 2,000 parameters and
            no closed form.

    Example:
        >>> from pyro_hoim.partition import Auto
        >>> from pyro_hoim.schema import Domain
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2]))
        >>> theta = solve_natural_parameters(hypergraph, torch.tensor([0.75, 0.25]), Auto())
        >>> parametrization(hypergraph).convert(theta, "free", "corner").exp()  # odds of the second level
        tensor([0.3333])
    """
    codings = parametrization(hypergraph)
    if hypergraph.is_decomposable and precision is None:
        return codings.from_tables(mode_tables(hypergraph, eta.detach()), "free")
    _check_dense(hypergraph, "mode")
    target = codings.free_statistics(eta.detach().double())
    weight = torch.zeros_like(target) if precision is None else precision.detach().double()
    middle = torch.zeros_like(target) if centre is None else centre.detach().double()

    def objective(theta: torch.Tensor) -> torch.Tensor:
        model = LogLinearEnergy.from_theta(hypergraph, theta)
        value = (target * theta).sum() - partition.log_partition(model).value
        return value - (weight * (theta - middle).square()).sum() / 2

    theta = middle.clone()
    value = objective(theta)
    error = float("inf")
    for _ in range(_MAX_STEPS):
        mean, information = _statistics_and_information(hypergraph, theta, partition)
        gradient = target - mean - weight * (theta - middle)
        error = float(gradient.abs().max()) if gradient.numel() else 0.0
        factor, failed = torch.linalg.cholesky_ex(information + torch.diag(weight))
        if bool(failed):
            break
        step = torch.cholesky_solve(gradient.unsqueeze(-1), factor).squeeze(-1)
        # On the boundary the gradient vanishes too, but theta keeps moving outwards by steps that do not shrink.
        is_still = not step.numel() or bool(step.abs().max() <= 1e-3)
        if error <= tolerance and is_still:
            return theta.to(eta.dtype)
        slope = float((gradient * step).sum())
        size = 1.0
        # Near the optimum the objective no longer resolves a step of this slope, and full steps are safe.
        while slope > 1e-13 * (1 + float(value.abs())) and size > 1e-10:
            if bool(objective(theta + size * step) >= value + 1e-4 * size * slope):
                break
            size /= 2
        theta = theta + size * step
        value = objective(theta)
    raise InputError(
        f"mean_statistics: no theta has these marginals (largest error {error:.3g} after Newton's method, theta up to "
        f"{float(theta.abs().max()):.3g} and moving); they must lie in the interior of the marginal polytope, for "
        "instance those of a table without zeros"
    )


def fisher_information(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, partition: PartitionBackend
) -> torch.Tensor:
    """Hessian of log Z in the free coordinates: the covariance of the free statistics, by automatic differentiation.

    Shape:
        theta (num_parameters,), no batch; returns (num_parameters, num_parameters).

    Raises:
        IntractableError: more than 2,000 parameters, or log Z exceeds the backend's budget.
    """
    _check_dense(hypergraph, "fisher_information")
    return _statistics_and_information(hypergraph, theta, partition)[1]


def _statistics_and_information(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, partition: PartitionBackend
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean (P,) and covariance (P, P) of the free statistics at theta (P,)."""
    codings = parametrization(hypergraph)
    with torch.enable_grad():
        point = theta.detach().requires_grad_()
        model = LogLinearEnergy.from_theta(hypergraph, point)
        mean = codings.free_statistics(partition.expectations(model))
        rows: Sequence[torch.Tensor] = [
            torch.autograd.grad(mean[i], point, retain_graph=True)[0] for i in range(mean.shape[0])
        ]
    covariance = torch.stack(rows) if rows else theta.new_zeros(0, 0)
    return mean.detach(), (covariance + covariance.mT) / 2


def _check_dense(hypergraph: InteractionHypergraph, what: str) -> None:
    if hypergraph.num_parameters > MAX_DENSE_PARAMETERS:
        raise IntractableError(
            f"{what}: needs a dense matrix over {hypergraph.num_parameters} parameters, the limit is "
            f"{MAX_DENSE_PARAMETERS}; use fewer interactions, or a decomposable collection"
        )
