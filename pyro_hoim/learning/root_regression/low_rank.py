"""Generalized root models whose tensors have low rank, by the joint pseudo-likelihood of all nodes (section 6)."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray

from ...errors import ConvergenceWarning, InputError, InputTypeError, IntractableError, is_whole, size_text
from ...models._node_kernels import node_values
from ...models.node_families import NodeFamily
from ...models.root_structure import RootStructure
from ...schema import Domain
from ._rows import RowTable, prepare_rows
from .fit import checked_family, checked_order

__all__ = ["LowRankRootFit", "fit_low_rank_roots"]

Signs = Literal["positive", "both"]
_CHUNK_CELLS = 2**21


@dataclass(frozen=True, eq=False)
class LowRankRootFit:
    r"""A simplified generalized root model with tensors of low rank.

    .. math:: [\Psi_{(j)}^{(j)}]_S = \sum_{m=1}^M w_{jm} \prod_{s \in S} \theta_{jms}, \qquad w_{jm} = \pm 1

    for sets S of j different variables; entries with equal indices are zero, as in every generalized root model.

    Attributes:
        family: node family.
        domain: the columns of the model; columns that are fixed in all rows are left out.
        intercepts: entries of key (1, 1), (d,).
        factors: for each root j from 2 on, theta (M, d).
        signs: for each j, w (M,).
        l2: penalty of the squared factors.
        objective: penalised objective, nats per row.
        gradient_norm: largest magnitude of its gradient.
        num_steps: steps of the best start.
        objectives: objective of every start, best first.
        status: ``converged`` (a stationary point; not always the global minimum), ``max_iterations``, or ``stalled``
            (rounding, or the edge of the family's domain, stops the line search).
        fixed_columns: columns left out, with their value.
        seconds: time taken.
    """

    family: NodeFamily
    domain: Domain
    intercepts: torch.Tensor
    factors: Mapping[int, torch.Tensor]
    signs: Mapping[int, torch.Tensor]
    l2: float
    objective: float
    gradient_norm: float
    num_steps: int
    objectives: tuple[float, ...]
    status: str
    fixed_columns: Mapping[str, float]
    seconds: float

    def entries(self, structure: RootStructure) -> torch.Tensor:
        """Entries psi of the tensors for the terms of a structure over :attr:`domain`, (num_terms,).

        Raises:
            InputError: another domain, or keys (j, l) with l < j other than (1, 1).
        """
        if structure.domain.names != self.domain.names:
            raise InputError("structure: expected the columns of the fit")
        psi = torch.zeros(structure.num_terms, dtype=torch.float64)
        for key in structure.keys:
            positions = structure.positions(key)
            if key == (1, 1):
                psi[structure.slices[key]] = self.intercepts[positions[:, 0]]
            elif key[0] == key[1] and key[0] in self.factors:
                products = self.factors[key[0]][:, positions].prod(-1)
                psi[structure.slices[key]] = (self.signs[key[0]][:, None] * products).sum(0)
            else:
                raise InputError(f"structure: a low-rank fit of order {self.order} has no terms of key {key}")
        return psi

    @property
    def order(self) -> int:
        """Largest root k."""
        return max(self.factors, default=1)

    def log_pseudo_prob(self, data: Any) -> torch.Tensor:
        """Log pseudo-likelihood of rows with all columns of the data that were learned from, (n,), nats.

        Raises:
            InputError: other columns, or values outside the support.
        """
        names = [*self.domain.names, *self.fixed_columns]
        if isinstance(data, RowTable):
            index = [data.domain.index(name) for name in names]
            matrix = prepare_rows(data, self.family, 1).matrix[:, index]
        elif self.fixed_columns:
            raise InputError("data: columns were left out of the fit; pass a table with column names")
        else:
            matrix = prepare_rows(data, self.family, 1, self.domain.names).matrix
        x = torch.from_numpy(matrix.toarray())
        wanted = torch.tensor(list(self.fixed_columns.values()), dtype=torch.float64)
        d = len(self.domain)
        roots = self.family.roots(x[:, :d], self.order)
        eta = _natural(roots, self.intercepts, self.factors, self.signs)
        value, _ = _node_terms(self.family, eta, 0)
        found = ((eta * roots).sum(-1) - value + self.family.log_base(x[:, :d])).sum(1)
        return torch.where((x[:, d:] == wanted).all(1), found, -math.inf)


def fit_low_rank_roots(
    data: Any,
    family: str | NodeFamily = "poisson",
    *,
    rank: int | Mapping[int, int] = 1,
    order: int = 3,
    signs: Signs = "both",
    l2: float = 1e-3,
    num_starts: int = 3,
    names: Sequence[str] | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 2000,
    max_cells: int = 10**9,
    generator: torch.Generator | None = None,
) -> LowRankRootFit:
    r"""Fit a generalized root model with low-rank tensors by the joint pseudo-likelihood of all nodes.

    .. math:: \min \frac1n \sum_{i, s} \Bigl[A(\eta_{si}) - \sum_j \eta_{jsi} T_j(x_{is})\Bigr]
        + \frac{\lambda}{2} \sum_{j, m} \|\theta_{jm}\|^2, \qquad
        \eta_{jsi} = j! \sum_m w_{jm} \theta_{jms}\, e_{j-1}\bigl(\theta_{jmt} T_j(x_{it}) : t \ne s\bigr)

    with elementary symmetric polynomials e, so the cost of one step grows as n d (M k + one evaluation of A), whatever
    the number of tuples: (d + 1) M values stand for all sets of j variables. The problem is not convex: L-BFGS is
    started several times from small random factors and the best end kept.

    Args:
        data: (n, d) rows, as :func:`~pyro_hoim.learning.root_regression.fit_roots` takes them.
        family: node family.
        rank: number M of factors, or one for each root from 2 to k.
        order: largest root k.
        signs: ``both`` gives every tensor M positive and M negative factors; ``positive`` only positive ones (the
            paper's form). Odd roots need positive ones only, since theta may change its sign.
        l2: penalty lambda of squared factors, from 0.
        num_starts: random starts.
        names: column names.
        tolerance: largest gradient component at the end.
        max_iterations: most steps of a start.
        max_cells: most cells n x d of the dense roots of all orders.
        generator: random numbers of the starts.

    Returns:
        :class:`~pyro_hoim.learning.root_regression.LowRankRootFit`.

    Raises:
        InputError: values outside the support or arguments out of range.
        InputTypeError: arguments of the wrong type.
        IntractableError: more dense cells than the limit.

    Warns:
        ConvergenceWarning: the best start did not reach the tolerance.

    Randomness:
        ``generator``; without one, a new generator of seed 0. Global random state is not touched.

    References:
        Paper 2 (generalized root models), section 6. Dong C. Liu and Jorge Nocedal, On the limited memory BFGS method
        for large scale optimization, 1989.

    Example:
        >>> rows = [[2, 1, 0], [0, 0, 1], [1, 3, 0], [3, 2, 1], [0, 1, 0]]
        >>> fitted = fit_low_rank_roots(rows, order=2, rank=1, l2=0.1)
        >>> fitted.factors[2].shape, fitted.status
        (torch.Size([2, 3]), 'converged')
    """
    start = time.perf_counter()
    kind = checked_family(family)
    checked_order(order)
    ranks = _checked_ranks(rank, order)
    if signs not in ("positive", "both"):
        raise InputError(f"signs: expected 'positive' or 'both', received {signs!r}")
    for value, name in ((l2, "l2"), (tolerance, "tolerance")):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputTypeError(f"{name}: expected a number, received {value!r}")
        if not 0 <= value < math.inf or (name == "tolerance" and value == 0):
            raise InputError(f"{name}: expected a finite number from 0 (tolerance: above 0), received {value!r}")
    for count, name in ((num_starts, "num_starts"), (max_iterations, "max_iterations")):
        if not is_whole(count) or count < 1:
            raise InputError(f"{name}: expected a whole number from 1, received {count!r}")
    rows = prepare_rows(data, kind, 1, names)
    cells = rows.num_rows * len(rows.domain) * order
    if cells > max_cells:
        raise IntractableError(
            f"data: {size_text(cells, 'cells')} of dense roots are needed, the limit is max_cells={max_cells}; take "
            "fewer columns or rows, or raise max_cells"
        )
    free = np.flatnonzero(~rows.is_fixed)
    if not len(free):
        raise InputError("data: expected a column with more than one value, received only columns that are fixed")
    domain = rows.domain.project([rows.domain.names[i] for i in free])
    x = torch.from_numpy(rows.matrix[:, free].toarray())
    weights = {j: _weights(m, j, signs) for j, m in ranks.items()}
    problem = _Problem(kind, x, weights, order, l2)
    drawn = generator if generator is not None else torch.Generator().manual_seed(0)
    ends = [problem.minimise(drawn, tolerance, max_iterations) for _ in range(num_starts if ranks else 1)]
    ends.sort(key=lambda end: end[1])
    values, objective, slope, steps, was_cut = ends[0]
    status = "converged" if slope <= tolerance else "max_iterations" if was_cut else "stalled"
    if status != "converged":
        warnings.warn(
            f"the low-rank fit stopped at a gradient of {slope:.1e}, above the tolerance {tolerance:.1e}; raise "
            "max_iterations, l2 or the tolerance",
            ConvergenceWarning,
            stacklevel=2,
        )
    intercepts, factors = problem.unpack(torch.from_numpy(values))
    return LowRankRootFit(
        kind, domain, intercepts, factors, weights, float(l2), objective, slope, steps,
        tuple(end[1] for end in ends), status, dict(rows.fixed_columns), time.perf_counter() - start,
    )  # fmt: skip


class _Problem:
    """Objective and gradient as a function of one flat vector: intercepts, then the factors of each root."""

    def __init__(
        self, family: NodeFamily, x: torch.Tensor, weights: Mapping[int, torch.Tensor], order: int, l2: float
    ) -> None:
        self.family, self.weights, self.l2 = family, weights, float(l2)
        self.roots = family.roots(x, max([order, *weights]))
        self.width = x.shape[1]
        most = max([1, *(len(w) for w in weights.values())])
        self.chunk = max(1, _CHUNK_CELLS // max(1, self.width * most))

    def unpack(self, flat: torch.Tensor) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Intercepts (d,) and factors by root (M, d)."""
        sizes = [self.width, *(len(w) * self.width for w in self.weights.values())]
        parts = flat.split(sizes)
        found = {
            j: part.reshape(len(w), self.width) for (j, w), part in zip(self.weights.items(), parts[1:], strict=True)
        }
        return parts[0], found

    def __call__(self, flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = torch.from_numpy(flat.copy()).requires_grad_()
        intercepts, factors = self.unpack(point)
        n = len(self.roots)
        total = 0.0
        for first in range(0, n, self.chunk):
            roots = self.roots[first : first + self.chunk]
            eta = _natural(roots, intercepts, factors, self.weights)
            value, mean = _node_terms(self.family, eta.detach(), 1)
            total += float(value.sum() - (eta.detach() * roots).sum()) / n
            if not math.isfinite(total):
                return math.inf, np.zeros_like(flat)
            eta.backward((mean - roots) / n)
        assert point.grad is not None
        inside = flat[self.width :]
        gradient = point.grad.numpy().copy()
        gradient[self.width :] += self.l2 * inside
        return total + 0.5 * self.l2 * float(inside @ inside), gradient

    def minimise(
        self, generator: torch.Generator, tolerance: float, max_iterations: int
    ) -> tuple[NDArray[np.float64], float, float, int, bool]:
        """(end, objective, largest gradient component, steps, whether they were cut) from small random factors."""
        start = self.family.base_natural(self.roots[..., 0].mean(0))
        parts = [start]
        for j, w in self.weights.items():
            scale = 0.1 / (1.0 + self.roots[..., j - 1].pow(2).mean(0).sqrt())
            parts.append(
                (scale * torch.randn(len(w), self.width, generator=generator, dtype=torch.float64)).reshape(-1)
            )
        found: Any = scipy.optimize.minimize(
            self, torch.cat(parts).numpy(), jac=True, method="L-BFGS-B",
            options={
                "maxiter": max_iterations, "maxfun": 4 * max_iterations, "gtol": tolerance, "ftol": 0.0, "maxcor": 30,
            },
        )  # fmt: skip
        objective, gradient = self(found.x)
        return found.x, objective, float(np.abs(gradient).max()), int(found.nit), found.status == 1


def _natural(
    roots: torch.Tensor,
    intercepts: torch.Tensor,
    factors: Mapping[int, torch.Tensor],
    weights: Mapping[int, torch.Tensor],
) -> torch.Tensor:
    """Natural parameters of all nodes (n, d, k) from roots (n, d, k)."""
    columns = [intercepts.expand(roots.shape[0], -1)]
    for j in range(2, roots.shape[-1] + 1):
        if j not in factors:
            columns.append(torch.zeros_like(columns[0]))
            continue
        u = roots[:, None, :, j - 1] * factors[j]  # (n, M, d)
        # Sums over all variables first, then without each: e_r without s is e_r less u_s times e_(r-1) without s.
        whole = _symmetric(u, j - 1)
        without = torch.ones_like(u)
        for r in range(1, j):
            without = whole[r][..., None] - u * without
        scaled = math.factorial(j) * weights[j][:, None] * factors[j]
        columns.append((scaled * without).sum(1))
    return torch.stack(columns, -1)


def _symmetric(u: torch.Tensor, order: int) -> list[torch.Tensor]:
    """Elementary symmetric polynomials e_0 ... e_order of the last dimension, by Newton's identities."""
    powers = [u.pow(r).sum(-1) for r in range(1, order + 1)]
    found = [torch.ones_like(u[..., 0])]
    for r in range(1, order + 1):
        total = torch.zeros_like(found[0])
        for i in range(1, r + 1):
            total = total + (-1) ** (i - 1) * found[r - i] * powers[i - 1]
        found.append(total / r)
    return found


def _node_terms(family: NodeFamily, eta: torch.Tensor, order: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A(eta) and the means of the roots, of shape eta without and with its last dimension."""
    k = eta.shape[-1]
    flat = eta.reshape(-1, k).contiguous().numpy()
    value, mean = np.empty(len(flat)), np.empty((len(flat), k) if order else (0, k))
    node_values(family.code, family.largest_value, flat, order, value, mean, np.empty((0, k, k)))
    means = torch.from_numpy(mean).reshape(eta.shape) if order else torch.empty(0)
    return torch.from_numpy(value).reshape(eta.shape[:-1]), means


def _weights(rank: int, j: int, signs: Signs) -> torch.Tensor:
    ones = torch.ones(rank, dtype=torch.float64)
    return torch.cat([ones, -ones]) if signs == "both" and j % 2 == 0 else ones


def _checked_ranks(rank: Any, order: int) -> dict[int, int]:
    """Number of factors of each root from 2 on."""
    given: dict[Any, Any] = dict(rank) if isinstance(rank, Mapping) else dict.fromkeys(range(2, order + 1), rank)
    if set(given) != set(range(2, order + 1)):
        raise InputError(f"rank: expected a number for each root from 2 to {order}, received {sorted(map(str, given))}")
    for j, value in given.items():
        if not is_whole(value):
            raise InputTypeError(f"rank: expected a whole number, received {value!r}")
        if value < 1:
            raise InputError(f"rank: expected a whole number from 1 for root {j}, received {value}")
    return {j: given[j] for j in range(2, order + 1)}
