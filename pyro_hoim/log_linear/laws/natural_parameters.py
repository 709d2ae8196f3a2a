r"""From mean coordinates back to natural ones: which means have a theta, which theta, and how curved log Z is there."""

from functools import lru_cache

import numpy as np
import scipy
import torch
from scipy import sparse

from ..._modes import plain_mode
from ...checks import check_dense, check_finite, check_shape, checked_floating
from ...core.laws.traces import refuse_traced
from ...core.partition import PartitionBackend
from ...data.encoding import LARGEST_COUNT
from ...errors import check_type, out_of_range, out_of_reach, refused, wrong_type
from ...structure.hypergraph import InteractionHypergraph
from ..coding import check_balanced_family, check_margins, parametrization
from ..energy import LogLinearEnergy
from ..impossible import PossibleStates
from ..sandwich import backend_hessian
from .hyper_dirichlet import clique_tables
from .law import exact_backend

MAX_DENSE_PARAMETERS = 2000
_MAX_STEPS = 200
_TOLERANCE = 1e-10
_MAX_DESIGN = 2**23  # entries of a table of statistics by cells: 64 MB
_SOLVED, _INFEASIBLE = 0, 2  # status codes of SciPy's linprog


def interior_margin(hypergraph: InteractionHypergraph, eta: torch.Tensor, *, max_cells: int = 2**12) -> float | None:
    r"""How far mean coordinates lie inside the marginal polytope, by a linear program over the joint table.

    .. math:: \max \{ \varepsilon \in [-1, 1] : A p = \eta,\ p_x \ge \varepsilon \text{ for every cell } x \}

    Positive exactly when theta exists, negative when no law has these marginals; values up to 1e-9 cannot be told from
    the boundary. Margins that agree only up to rounding contradict each other: see :func:`consistent_margins`.
    """
    domain = hypergraph.domain
    cells = domain.num_states
    if cells > max_cells:
        return None
    # Margins of the cells; of a hierarchical collection maximal edges say all.
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
    # Unknowns are the excess q = p - epsilon of every cell, then epsilon; HiGHS is steadier when all are bounded.
    matrix = sparse.hstack([design, sparse.csr_array(design.sum(axis=1).reshape(-1, 1))], format="csr")
    cost = np.zeros(cells + 1)
    cost[-1] = -1.0
    bounds = np.tile([0.0, 2.0], (cells + 1, 1))
    bounds[-1] = [-1.0, 1.0]
    # Presolve may fail where the solver itself does not.
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for presolve in (True, False):
        options["presolve"] = presolve
        result = scipy.optimize.linprog(cost, A_eq=matrix, b_eq=wanted, bounds=bounds, method="highs", options=options)
        if result.status == _SOLVED:
            return float(result.x[-1])
        if result.status == _INFEASIBLE:
            return -1.0
    return None


def consistent_margins(hypergraph: InteractionHypergraph, eta: torch.Tensor) -> torch.Tensor:
    r"""Margins (*batch, num_terms) that agree on shared subsets and sum to one exactly, next to some that nearly do.

    The tables are rebuilt from their centred parts (:math:`\eta \mapsto \pi`) in float64; consistent ones come back
    as they are. Those of absent subsets of a collection that is not hierarchical are first summed from the largest edge
    that holds them.
    """
    closed = hypergraph if hypergraph.is_hierarchical else hypergraph.closure()
    pieces = parametrization(hypergraph).split(eta.double())
    for edge in reversed(hypergraph.edges):
        for subset in closed.edges if closed is not hypergraph else ():
            if subset not in pieces and set(subset) <= set(edge):
                pieces[subset] = pieces[edge].sum([i - len(edge) for i, name in enumerate(edge) if name not in subset])
    codings = parametrization(closed)
    whole = codings.pi_to_eta(codings.eta_to_pi(codings.join({edge: pieces[edge] for edge in closed.edges})))
    slices = closed.term_slices
    parts = [whole[..., slices[edge]] for edge in hypergraph.edges]
    return torch.cat(parts, -1) if parts else whole


def solve_natural_parameters(
    hypergraph: InteractionHypergraph,
    eta: torch.Tensor,
    partition: PartitionBackend,
    *,
    precision: torch.Tensor | None = None,
    centre: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""The theta (P,) of given mean coordinates (num_terms,), :math:`\eta(\theta) = \eta`, unique when it exists.

    It is free theta, or corner theta in a family of corner tables. In closed form on decomposable collections;
    otherwise the maximum of the concave function
    :math:`\eta \cdot \theta - \log Z(\theta) - \frac12 \sum_i \lambda_i (\theta_i - \mu_i)^2` by damped Newton steps
    in double precision. Each step costs one evaluation and one Fisher information.
    """
    codings = parametrization(hypergraph)
    if hypergraph.is_decomposable and precision is None:
        return codings.from_tables(clique_tables(hypergraph, eta.detach(), torch.log), "free")
    refuse_traced("mode", "the solution of Newton's method")
    _check_dense(hypergraph, "mode")
    partition = exact_backend(partition)  # Newton's method does not converge on estimates
    target = codings.mean_statistics(eta.detach().double())
    weight = torch.zeros_like(target) if precision is None else precision.detach().double()
    middle = torch.zeros_like(target) if centre is None else centre.detach().double()

    def objective(theta: torch.Tensor) -> torch.Tensor:
        model = LogLinearEnergy.from_theta(hypergraph, theta)
        value = (target * theta).sum() - partition.log_partition(model).value
        return value - (weight * (theta - middle).square()).sum() / 2

    # Damped Newton steps.
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
        if error <= _TOLERANCE and is_still:
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
    raise refused(
        "mean_statistics",
        f"no theta has these marginals (largest error {error:.3g} after Newton's method, theta up to "
        f"{float(theta.abs().max()):.3g} and moving); they must lie in the interior of the marginal polytope, for "
        "instance those of a table without zeros",
        code="out-of-range",
    )


def fisher_information(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, partition: PartitionBackend
) -> torch.Tensor:
    """Hessian (P, P) of log Z in theta (P,), in the coding of the family: the covariance of its statistics.

    Summed over the cells while their statistics take at most 2^23 numbers, otherwise by automatic
    differentiation. In the place of a backend that is not exact stands ``Auto()``.
    """
    _check_dense(hypergraph, "fisher_information")
    return _statistics_and_information(hypergraph, theta, exact_backend(partition))[1]


def _statistics_and_information(
    hypergraph: InteractionHypergraph, theta: torch.Tensor, partition: PartitionBackend
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean (P,) and covariance (P, P) of the statistics at theta (P,)."""
    codings = parametrization(hypergraph)
    cells = hypergraph.domain.num_states
    with torch.no_grad():
        model = LogLinearEnergy.from_theta(hypergraph, theta.detach())
        mean = codings.mean_statistics(partition.expectations(model))
    # Of few cells a sum over their statistics.
    is_small = cells * max(hypergraph.num_parameters, hypergraph.num_terms) <= _MAX_DESIGN
    if is_small and not isinstance(partition, PossibleStates):
        design = _design(hypergraph).to(theta)
        weight = torch.softmax(design @ theta.detach(), 0).unsqueeze(-1)
        centred = design - mean
        return mean, centred.mT @ (weight * centred)
    covariance = backend_hessian(hypergraph, theta.detach(), partition)
    return mean, (covariance + covariance.mT) / 2


@lru_cache(maxsize=4)
@plain_mode()
def _design(hypergraph: InteractionHypergraph) -> torch.Tensor:
    """Free statistics of every cell (num_states, P), float64."""
    codings = parametrization(hypergraph)
    states = np.indices(hypergraph.domain.cardinalities).reshape(len(hypergraph.domain), hypergraph.domain.num_states)
    return codings.mean_statistics(codings.statistics(torch.from_numpy(states.T.copy())).double())


def _check_dense(hypergraph: InteractionHypergraph, what: str) -> None:
    if hypergraph.num_parameters > MAX_DENSE_PARAMETERS:
        problem = (
            f"needs a dense matrix over {hypergraph.num_parameters} parameters, the limit is {MAX_DENSE_PARAMETERS}"
        )
        raise out_of_reach(what, problem, "use fewer interactions, or a decomposable collection")


# Checks of marginal tables: shapes, sums, agreement, and membership of the interior of the marginal polytope.

_BOUNDARY = 1e-9


def check_conjugate_arguments(
    hypergraph: InteractionHypergraph, mean_statistics: torch.Tensor, prior_sample_size: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checked s and n0 of one dtype and device."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    check_balanced_family(hypergraph, "the conjugate prior")
    s = checked_floating(mean_statistics, "mean_statistics")
    check_shape(s, (hypergraph.num_terms,), "mean_statistics")
    check_finite(s.detach(), "mean_statistics")
    # Rows of the prior, and what would make it improper.
    if isinstance(prior_sample_size, torch.Tensor):
        check_dense(prior_sample_size, "prior_sample_size")
    try:
        n0 = torch.as_tensor(prior_sample_size, dtype=s.dtype, device=s.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise wrong_type("prior_sample_size", "a positive number, or a tensor of them", prior_sample_size) from error
    check_finite(n0.detach(), "prior_sample_size")
    if not bool((n0 > 0).all()):
        received = f"{float(n0.min())}, which makes the prior improper"
        raise out_of_range("prior_sample_size", "positive numbers", received=received)
    if bool((n0 > LARGEST_COUNT).any()):
        raise out_of_range("prior_sample_size", f"at most {LARGEST_COUNT}", received=float(n0.max()))
    if bool((s < 0).any()):
        raise out_of_range("mean_statistics", "probabilities", received="a negative entry")
    one = torch.ones_like(n0)
    check_margins(hypergraph, s.detach(), one, rounding(one), "mean_statistics")
    return s, n0


def rounding(total: torch.Tensor) -> torch.Tensor:
    """Difference between the margins of one table that is rounding, (*batch)."""
    return (1e-9 if total.dtype == torch.float64 else 1e-4) * (1 + total)


def check_interior(hypergraph: InteractionHypergraph, s: torch.Tensor) -> bool | None:
    """True when every s of the batch is interior, None when undecided; raise when one is not."""
    zero = "the prior is improper: theta would be infinite; mix in a little of the uniform law's marginals"
    # A zero is outside for certain; decomposable margins without one are inside.
    if bool((s <= 0).any()):
        index = int((s <= 0).nonzero()[0][-1])
        edge = next(e for e, part in hypergraph.term_slices.items() if part.start <= index < part.stop)
        raise refused("mean_statistics", f"a cell of {':'.join(edge)} has probability zero; {zero}", code="impossible")
    if hypergraph.is_decomposable:
        return True
    decided: bool | None = True
    # Tables of single precision agree up to its rounding, which moves the margin by about as much.
    boundary = max(_BOUNDARY, torch.finfo(s.dtype).eps)
    for row in consistent_margins(hypergraph, s.reshape(-1, hypergraph.num_terms).unique(dim=0)):
        margin = interior_margin(hypergraph, row)
        if margin is None:
            decided = None
        elif margin <= boundary:
            fault = "no table has these margins" if margin < -boundary else "every table with these margins has a zero"
            precision = "" if s.dtype == torch.float64 else f" to the precision of {s.dtype}"
            problem = f"expected a point in the interior of the marginal polytope, but {fault}{precision}; {zero}"
            raise refused("mean_statistics", problem, code="out-of-range")
    return decided
