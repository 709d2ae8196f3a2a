"""Problems for the tests of constrained estimation, and their solutions by a generic convex solver."""

import cvxpy
import numpy as np
import torch

from pyro_hoim import Domain, Observations
from pyro_hoim.log_linear.constrained.losses import PseudoLikelihoodLoss
from pyro_hoim.log_linear.constrained.norms import interaction_matrix


def rows(num: int, count: int = 60, seed: int = 0, strength: float = 1.5) -> Observations:
    """Rows of columns that depend on two hidden normal variables."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((count, 2)) @ rng.standard_normal((2, num)) * strength - 0.4
    codes = (rng.random((count, num)) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    return Observations.from_tensor(
        torch.from_numpy(codes), Domain.from_cardinalities({f"x{i}": 2 for i in range(num)})
    )


def by_cvxpy(loss: PseudoLikelihoodLoss, radii: dict[str, float], *, as_penalties: bool = False) -> float:
    """Smallest objective with a part of an l1 norm and one of a nuclear norm, either of which may be absent."""
    size = loss.num_parameters
    identity = np.eye(size)
    logits = np.stack([loss.logits(row) for row in identity], -1)  # (m, n, num_parameters)
    parts = {name: cvxpy.Variable(size) for name in radii}
    norms = {}
    for name, part in parts.items():
        if name == "sparse":
            norms[name] = cvxpy.norm1(part)
        else:
            basis = np.stack([interaction_matrix(row).ravel() for row in identity], -1)
            num = len(loss.hypergraph.domain)
            norms[name] = cvxpy.normNuc(cvxpy.reshape(basis @ part, (num, num), order="C"))
    signs = (1 - 2 * loss._states).ravel()
    against = cvxpy.multiply(signs, logits.reshape(-1, size) @ sum(parts.values()))
    value = np.repeat(loss._weights[:, 0], loss._states.shape[1]) @ cvxpy.logistic(against)
    if as_penalties:
        problem = cvxpy.Problem(cvxpy.Minimize(value + sum(radii[name] * norm for name, norm in norms.items())))
    else:
        problem = cvxpy.Problem(cvxpy.Minimize(value), [norm <= radii[name] for name, norm in norms.items()])
    return float(problem.solve(solver="CLARABEL", tol_gap_abs=1e-7, tol_gap_rel=1e-7, tol_feas=1e-8))
