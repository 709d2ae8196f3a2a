r"""Log pseudo-likelihood of a generalized root model as a function of its tensor entries, with its derivatives."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse, special
from typing_extensions import override

from ..checks import check_exact_shape, check_shape
from ..core.laws.pseudo_likelihood import PseudoLikelihood
from ..errors import check_type, out_of_range, out_of_reach, refused, size_text, wrong_shape
from .nodes.columns import Families, NodeFamilies
from .nodes.families import IndicatorFamily, NodeFamily
from .nodes.kernels import evaluate_nodes
from .structure import RootStructure

Floats = NDArray[np.float64]
_CHUNK_CELLS = 2**22  # entries of dense products that are made at once
_MOST_BYTES = 2**33
_BYTES_PER_ENTRY = 48  # value, row and column while the parts are joined


class RootPseudoLikelihood(PseudoLikelihood):
    r"""Log pseudo-likelihood of rows under the joint model, a concave function of psi (num_terms,).

    .. math:: f(\psi) = \sum_i w_i \sum_s \Big[ \sum_j \eta_{ijs} T_j(x_{is}) + B(x_{is}) - A(\eta_{is}) \Big]

    Unlike the separate regressions of the columns, a term has one entry :math:`\psi_S` for all its members. The natural
    parameters are linear in it, by one sparse matrix D of (rows times variables times roots) by terms. Equal rows are
    merged. An evaluation costs one node law per row and variable and two products with D; exact to the precision of
    the node log partition, on the processor, in double precision. Every method raises :class:`InputError` for psi of
    another shape, and those with derivatives alone also where a conditional at some row cannot be normalised.

    Args:
        structure: the terms.
        rows: states (n, d).
        family: base family of all variables, or one for every variable.
        weights: how often each row was seen, (n,); each once when None. As an attribute, of the distinct rows (m,).

    Raises:
        InputError: wrong shapes, values outside the support, or weights that are negative or not finite.
        IntractableError: the features of the distinct rows, or their scores, would take more than 8 GiB.

    References:
        Inouye, Ravikumar and Dhillon, Generalized Root Models, 2016, equation 5, for the conditionals; Julian Besag,
        Statistical analysis of non-lattice data, The Statistician 24, 1975, for the pseudo-likelihood.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable(name, kind="count") for name in "ab"])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> rows = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
        >>> found = RootPseudoLikelihood(structure, rows, PoissonFamily())
        >>> round(found.log_prob(np.zeros(3)), 4)  # four Poisson probabilities of mean 1: 0, 1, 2, 3
        -6.4849
        >>> found.gradient(np.zeros(3))[:2].round(6).tolist()  # counts less 1, of a and of b
        [0.0, 2.0]
    """

    argument: ClassVar[str] = "psi"

    def __init__(
        self,
        structure: RootStructure,
        rows: torch.Tensor,
        family: Families,
        weights: torch.Tensor | None = None,
    ) -> None:
        check_type(structure, RootStructure, "structure")
        check_type(rows, torch.Tensor, "rows", "a tensor")
        self.families: NodeFamilies = NodeFamilies.of(family, structure.domain)
        """The family of every variable."""
        check_shape(rows, (len(structure.domain),), "rows")
        if rows.ndim != 2:
            raise wrong_shape("rows", f"(n, {len(structure.domain)})", rows)
        self.families.check_values(rows, "rows")
        # Equal rows are merged, with the sum of their weights.
        distinct, inverse = torch.unique(rows.detach().cpu().double(), dim=0, return_inverse=True)
        self.structure = structure
        self.num_unknowns = structure.num_terms
        merged = np.bincount(inverse.numpy(), _weights(weights, len(rows)), len(distinct))
        self.weights: Floats = merged.astype(np.float64)
        self._each = np.repeat(self.weights, len(structure.domain))  # of every row and variable
        # Statistics of every row and variable, and the base measure, which no parameter changes.
        roots = self.families.roots(distinct, max(1, structure.order)).numpy()  # (m, d, k)
        self._statistics: Floats = roots.reshape(-1, roots.shape[-1])
        self._base = float(self.weights @ self.families.log_base(distinct).sum(-1).numpy())
        # The design, if memory allows.
        num_rows = len(distinct)
        entries = num_rows * sum(
            (columns.stop - columns.start) * length for (_, length), columns in structure.slices.items()
        )
        needed = _BYTES_PER_ENTRY * entries + 8 * num_rows * structure.num_terms
        if needed > _MOST_BYTES:
            problem = f"{num_rows} distinct rows and {structure.num_terms} terms need {size_text(needed, 'bytes')}"
            raise out_of_reach("rows", f"{problem}, the limit is {_MOST_BYTES}", "take fewer rows or terms")
        self._design: Any = _design(structure, roots)  # scipy's stubs lose the type of products

    @property
    def family(self) -> NodeFamily:
        """The family of all variables; an :class:`InputError` where they have several."""
        return self.families.the_one("family")

    def _nodes(self, psi: NDArray[Any], order: int) -> tuple[Floats, Floats, Floats, Floats]:
        """Natural parameters (m d, k) and the node laws: log partition (m d,), mean statistics and their covariance."""
        eta = np.ascontiguousarray((self._design @ self._checked(psi)).reshape(self._statistics.shape))
        count, k = eta.shape
        value, mean, covariance = np.empty(count), np.zeros((count, k)), np.zeros((count, k, k))
        if count and self.families.common is not None:
            evaluate_nodes(self.families.common, eta, order, value, mean, covariance)
        elif count:  # the rows of the variables of one family at a time
            number = np.arange(count).reshape(-1, len(self.families))
            for family, places in self.families.groups:
                rows = number[:, places].reshape(-1)
                if isinstance(family, IndicatorFamily):  # the log partition of a category at its first indicator
                    scores = eta[rows].sum(1).reshape(-1, len(places))
                    value[rows] = 0.0
                    value[number[:, places[0]]] = special.logsumexp(scores, axis=1)
                    mean[rows] = special.softmax(scores, axis=1).reshape(-1, 1)
                    covariance[rows] = (mean[rows] * (1 - mean[rows]))[:, :, None]
                    continue
                parts = value[rows], mean[rows], covariance[rows]
                evaluate_nodes(family, eta[rows], order, *parts)
                value[rows], mean[rows], covariance[rows] = parts
        return eta, value, mean, covariance

    @override
    def log_prob(self, psi: NDArray[Any], /) -> float:
        return self.value_and_gradient(psi, 0)[0]

    @override
    def value_and_gradient(self, psi: NDArray[Any], /, order: int = 1) -> tuple[float, Floats]:
        """Value and gradient (num_terms,) together; minus infinity and zeros where there is no law, or order is 0."""
        # A conditional without a law makes the likelihood zero.
        eta, log_partition, mean, _ = self._nodes(psi, order)
        nothing = np.zeros(self.structure.num_terms)
        if not np.isfinite(log_partition).all():
            return -math.inf, nothing
        value = self._base + float(self._each @ ((eta * self._statistics).sum(1) - log_partition))
        return value, self._slope(mean) if order else nothing

    def gradient(self, psi: NDArray[Any]) -> Floats:
        """Gradient (num_terms,), nats per unit of psi."""
        return self._slope(self._lawful(psi, 1)[0])

    @override
    def row_scores(self, psi: NDArray[Any], /) -> Floats:
        # Residuals of all entries of the design, added up by row and term.
        residual = (self._statistics - self._lawful(psi, 1)[0]).reshape(-1)
        design, size = self._design, len(self.structure.domain) * self._statistics.shape[-1]
        entries = design.data * np.repeat(residual, np.diff(design.indptr))
        shape = (len(self.weights), self.structure.num_terms)
        # A row of the result is `size` rows of the design, one after the other; entries of the same term add up.
        return sparse.csr_array((entries, design.indices, design.indptr[::size]), shape=shape).toarray()

    @override
    def hessian(self, psi: NDArray[Any], /) -> Floats:
        count, k = self._statistics.shape
        blocks = self._each[:, None, None] * self._lawful(psi, 2)[1]
        weighted: Any = sparse.bsr_array((blocks, np.arange(count), np.arange(count + 1)), shape=(count * k, count * k))
        if self.families.blocks:
            weighted = weighted + self._between_indicators(psi)
        return -(self._design.T @ (weighted @ self._design)).toarray()

    def _between_indicators(self, psi: NDArray[Any]) -> Any:
        """Weighted covariances (m d k, m d k) of different indicators of one category, minus the products of means."""
        mean = self._lawful(psi, 1)[0]
        count, k = mean.shape
        number = np.arange(count).reshape(-1, len(self.families))
        parts: list[tuple[NDArray[Any], ...]] = []
        for places in self.families.blocks:
            for s, t in itertools.permutations(places.tolist(), 2):
                value = -self.weights * mean[number[:, s], 0] * mean[number[:, t], 0]
                first, second = np.meshgrid(np.arange(k), np.arange(k), indexing="ij")
                row = (number[:, s, None] * k + first.reshape(1, -1)).reshape(-1)
                column = (number[:, t, None] * k + second.reshape(1, -1)).reshape(-1)
                parts.append((np.repeat(value, k * k), row, column))
        if not parts:
            return sparse.csr_array((count * k, count * k))
        data, row, column = (np.concatenate(part) for part in zip(*parts, strict=True))
        return sparse.csr_array((data, (row, column)), shape=(count * k, count * k))

    def _slope(self, mean: Floats) -> Floats:
        return self._design.T @ (self._each[:, None] * (self._statistics - mean)).reshape(-1)

    def _lawful(self, psi: NDArray[Any], order: int) -> tuple[Floats, Floats]:
        """Mean and covariance of the statistics, of a psi at which every conditional can be normalised."""
        _, value, mean, covariance = self._nodes(psi, order)
        if not np.isfinite(value).all():
            row, variable = divmod(int(np.flatnonzero(~np.isfinite(value))[0]), len(self.structure.domain))
            name = self.structure.domain.names[variable]
            problem = f"the conditional of {name!r} given the rest of distinct row {row} has no law"
            raise refused("psi", problem, code="not-normalizable")
        return mean, covariance


def _weights(weights: torch.Tensor | None, num_rows: int) -> Floats:
    """Checked weights (n,)."""
    if weights is None:
        return np.ones(num_rows)
    check_type(weights, torch.Tensor, "weights", "a tensor")
    check_exact_shape(weights, (num_rows,), "weights")
    found: Floats = weights.detach().cpu().double().numpy()
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise out_of_range("weights", "finite numbers that are not negative")
    return found


def _design(structure: RootStructure, roots: Floats) -> sparse.csr_array:
    """Sparse matrix (m d k, num_terms) from psi to the natural parameters of every row, variable and root."""
    # A term enters the natural parameters of each of its members, times the roots of the others.
    num_rows, num_variables, k = roots.shape
    shape = (num_rows * num_variables * k, structure.num_terms)
    parts: list[tuple[NDArray[Any], ...]] = []
    for key in structure.keys:
        root, length = key
        columns = structure.rows(key)
        first = structure.slices[key].start
        values, multiplicity = roots[:, :, root - 1], float(math.factorial(length))
        step = max(1, _CHUNK_CELLS // max(1, num_rows))
        for begin in range(0, len(columns), step):
            chunk = columns[begin : begin + step]
            for member in range(length):
                others = np.delete(chunk, member, axis=1)
                product = np.full((num_rows, len(chunk)), multiplicity)
                for column in others.T:
                    product *= values[:, column]
                row, term = np.nonzero(product)
                position = (row * num_variables + chunk[term, member]) * k + root - 1
                parts.append((product[row, term], position, term + first + begin))
    if not parts:
        return sparse.csr_array(shape)
    data, row, column = (np.concatenate(part) for part in zip(*parts, strict=True))
    return sparse.csr_array((data, (row, column)), shape=shape)
