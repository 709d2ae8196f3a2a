"""Strongly symmetric interaction tensors: corner theta of all interactions up to an order, seen as one tensor."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from typing_extensions import override

from ...checks import check_exact_shape, check_finite, check_shape, checked_floating, is_hidden
from ...core.laws.parameter_cache import ParameterCache
from ...errors import (
    ConvergenceWarning,
    InputError,
    check_choice,
    check_not_negative,
    check_positive,
    check_type,
    check_whole,
    other_domain,
    out_of_range,
    out_of_reach,
    size_text,
    unexpected,
    wrong_shape,
)
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph, check_codes
from ..coding import parametrization
from .layout import MAX_TENSOR_ENTRIES, TensorLayout, check_binary, on_device, slice_coefficient, tensor_layout

if TYPE_CHECKING:
    from ...core.partition import PartitionBackend
    from ..laws.law import HierarchicalLogLinear


Representation = Literal["standard", "slice"]


class SymmetricInteractionTensor(ParameterCache):
    r"""Strongly symmetric tensor Q of order K over n binary variables, stored once for every set of indices.

    .. math:: p(x) \propto \exp(Q[x]^K), \qquad Q[x]^K = \sum_{i_1, \dots, i_K} q_{i_1 \dots i_K} x_{i_1} \cdots x_{i_K}

    An entry depends on the set S of its indices alone, so for states of zeros and ones :math:`Q[x]^K` is the sum of
    :math:`\theta_S = \tau_{K,|S|}\, q_S` over the sets of variables that are one: the corner coding of all
    interactions of up to K variables. The coding determines the law and the law the coding (lemma 1.3), and the tensor
    holds theta itself, so both ways are exact. All is differentiable in theta and works in its dtype on its device.
    What needs the dense tensor (:attr:`dense`, subtensors, unfoldings, norms, the slice representation, contraction
    with real vectors) costs time and memory of the order of n to the power K.

    Args:
        theta: corner theta in nats, in the order of ``InteractionHypergraph.from_order(domain, order)``.
        num_variables: n, from 2.
        order: K, from 2 to n.

    Shape:
        theta (*batch, num_parameters).

    Raises:
        InputError: an order or number of variables out of range, theta of another length or not finite.
        InputTypeError: theta is no floating-point tensor.
        IntractableError: n to the power K is beyond :data:`~pyro_hoim.log_linear.tensors.layout.MAX_TENSOR_ENTRIES`.

    References:
        Paper 3, chapters 1 and 2.

    Example:
        >>> tensor = SymmetricInteractionTensor(torch.tensor([1.0, 2.0, 6.0]), num_variables=2, order=2)
        >>> tensor.dense
        tensor([[1., 3.],
                [3., 2.]])
        >>> tensor.contract(torch.tensor([1.0, 1.0]))
        tensor(9.)
    """

    def __init__(self, theta: torch.Tensor, num_variables: int, order: int) -> None:
        self.layout: TensorLayout = tensor_layout(num_variables, order)
        check_shape(checked_floating(theta, "theta"), (self.layout.num_parameters,), "theta")
        check_finite(theta, "theta")
        self.theta = theta
        self._forget()

    @property
    @override
    def parameters(self) -> torch.Tensor:
        """Theta."""
        return self.theta

    @override
    def _examine(self, values: torch.Tensor) -> None:
        """Finite as they were given."""

    @classmethod
    def from_dense(
        cls, dense: torch.Tensor, order: int | None = None, *, tolerance: float = 0.0
    ) -> SymmetricInteractionTensor:
        """The tensor with given dense entries, which must be strongly symmetric.

        Args:
            dense: all entries, in nats.
            order: K, the number of trailing dimensions that are the tensor's; by default all of them.
            tolerance: largest difference from the first entry with the same set of indices, in nats. Where entries
                differ by less, their mean is taken. :meth:`TensorLayout.project
                <pyro_hoim.log_linear.tensors.layout.TensorLayout.project>` takes it of any tensor.

        Shape:
            dense (*batch, n, ..., n), the last K of which are the tensor's.

        Raises:
            InputError: dimensions of different sizes, entries that are not finite, or not strongly symmetric: the
                first two indices of one set of variables with different entries are named.
        """
        checked_floating(dense, "dense")
        check_not_negative(tolerance, "tolerance")
        order = dense.ndim if order is None else check_whole(order, "order", 2, max(dense.ndim, 2))
        shape = dense.shape[dense.ndim - order :]
        if order < 2 or len(set(shape)) != 1:
            raise wrong_shape("dense", "(..., n, ..., n) with two or more equal dimensions", dense)
        check_finite(dense, "dense")
        layout = tensor_layout(shape[0], order)
        # Entries that belong together are compared with the first of them.
        first = dense.reshape(*dense.shape[: dense.ndim - order], layout.index.size)[
            ..., on_device(layout.first, dense)
        ]
        excess = dense - first[..., on_device(layout.index, dense)]
        if not is_hidden(dense) and bool((excess.detach().abs() > tolerance).any()):
            raise _asymmetric(layout, dense.detach(), excess.detach().abs() > tolerance)
        theta = first * on_device(layout.multiplicity, dense).to(dense.dtype) + layout.project(excess)
        return cls(theta, layout.num_variables, order)

    @classmethod
    def from_law(cls, law: HierarchicalLogLinear, order: int | None = None) -> SymmetricInteractionTensor:
        """The tensor of a law of binary variables; interactions that it lacks are zero.

        Args:
            law: a hierarchical log-linear law in any coding.
            order: K; by default the largest number of variables of an interaction, or 2 where there are only main
                effects.

        Raises:
            InputError: a variable that is not binary, or an interaction of more than K variables.
        """
        graph = law.hypergraph
        check_binary(graph.domain, "law")
        num = len(graph.domain)
        layout = tensor_layout(num, max(2, graph.order) if order is None else order)
        if graph.order > layout.order:
            raise other_domain("order", f"at least {graph.order}, the law's", layout.order)
        theta = parametrization(graph).convert(law.theta, law.coding, "corner")
        whole = InteractionHypergraph.from_order(graph.domain, layout.order)
        position = {edge: at for at, edge in enumerate(whole.edge_indices)}
        where = torch.tensor([position[edge] for edge in graph.edge_indices], dtype=torch.long, device=theta.device)
        zeros = theta.new_zeros(*theta.shape[:-1], layout.num_parameters)
        return cls(zeros.index_add(-1, where, theta), num, layout.order)

    def __repr__(self) -> str:
        sizes = f"num_variables={self.num_variables}, order={self.order}"
        return f"SymmetricInteractionTensor({sizes}, batch_shape={tuple(self.batch_shape)})"

    @property
    def num_variables(self) -> int:
        """Number n of variables, the size of every dimension."""
        return self.layout.num_variables

    @property
    def order(self) -> int:
        """Number K of dimensions, the most variables of an interaction."""
        return self.layout.order

    @property
    def batch_shape(self) -> torch.Size:
        """Leading dimensions of theta."""
        return self.theta.shape[:-1]

    @property
    def entries(self) -> torch.Tensor:
        """Entries q, one for every set of indices, (*batch, num_parameters), in nats."""
        return self._cached("entries", lambda: self.layout.entries(self._source))

    @property
    def dense(self) -> torch.Tensor:
        """All entries, (*batch, n, ..., n) with K axes, in nats; equal for equal sets of indices to the last bit."""
        return self._cached("dense", lambda: self.layout.dense(self._source))

    def contract(self, x: torch.Tensor) -> torch.Tensor:
        r"""The form :math:`Q[x]^K` of any real vectors, in nats for states, in the dtype of theta.

        Shape:
            x (*sample, n); result: sample broadcast with the batch shape.
        """
        check_shape(checked_floating(x, "x"), (self.num_variables,), "x")
        return _contract(self.dense, x.to(self.dense.dtype), self.order)

    def energy(self, x: torch.Tensor) -> torch.Tensor:
        r"""Energy :math:`-Q[x]^K` of states of zeros and ones, in nats, from the stored entries alone.

        Shape:
            x (*sample, n) codes; result: sample broadcast with the batch shape.

        Raises:
            InputError: a code that is neither 0 nor 1, or another number of variables.
        """
        return -(self._monomials(self._codes(x), self.layout.members) * self.theta).sum(-1)

    def node_logits(self, x: torch.Tensor, representation: Representation = "standard") -> torch.Tensor:
        r"""Log odds of every variable given the others, in nats, in one of two representations that agree.

        .. math:: \sum_{m=1}^{K} \tau_{K,m} \sum_{i_1 < \dots < i_{m-1},\ i_l \ne r} q_{r i_1 \dots i_{m-1}}
            x_{i_1} \cdots x_{i_{m-1}} = \sum_{m=1}^{K} \pi_{K,m}\, Q_{K-m+1,r}[x|_{x_r = 1}]^{m-1}

        The left side, "standard", visits each stored entry once. The right one, "slice", contracts dense subtensors
        and adds them with alternating signs, as few large products.

        Args:
            x: states; the variable itself is not read.
            representation: "standard" or "slice".

        Shape:
            x (*sample, n) codes; result: sample broadcast with the batch shape, then n.

        Raises:
            InputError: a code that is neither 0 nor 1, another number of variables, an unknown representation.

        References:
            Paper 3, lemmas 2.1 and 2.3, section 2.2.2 (whose sums print m other indices where m - 1 are right, and
            2.2.3, which pairs the slice coefficients with the subtensors in the opposite order).
        """
        check_choice(representation, ("standard", "slice"), "representation")
        codes = self._codes(x)
        logit = self._standard_logit if representation == "standard" else self._slice_logit
        return torch.stack([logit(codes, r) for r in range(self.num_variables)], -1)

    def _standard_logit(self, codes: torch.Tensor, r: int) -> torch.Tensor:
        members = self.layout.members
        rows = (members == r).any(-1).nonzero()[0]
        others = members[rows].copy()
        others[others == r] = self.num_variables
        theta = self.theta[..., torch.from_numpy(rows).to(self.theta.device)]
        return (self._monomials(codes, others) * theta).sum(-1)

    def _slice_logit(self, codes: torch.Tensor, r: int) -> torch.Tensor:
        x = codes.to(self.theta.dtype).clone()
        x[..., r] = 1
        return sum(
            (
                slice_coefficient(self.order, m) * _contract(self.subtensor(self.order - m + 1, r), x, m - 1)
                for m in range(1, self.order + 1)
            ),
            start=self.theta.new_zeros(()),
        )

    def _codes(self, x: torch.Tensor) -> torch.Tensor:
        return check_codes(x, Domain.from_cardinalities([2] * self.num_variables))

    def _monomials(self, codes: torch.Tensor, members: np.ndarray) -> torch.Tensor:
        """Products of the codes at given members, with one at n, (*sample, num sets)."""
        padded = torch.cat([codes, codes.new_ones(*codes.shape[:-1], 1)], -1)
        product = padded.new_ones(())
        for column in torch.from_numpy(members.copy()).to(codes.device).unbind(-1):
            product = product * padded[..., column]
        return product.to(self.theta.dtype).reshape(*codes.shape[:-1], len(members))

    def subtensor(self, num_fixed: int, variable: int) -> torch.Tensor:
        r"""The m-th subtensor :math:`Q_{m,r}`: m of the indices are r, whichever they are.

        Args:
            num_fixed: m, from 1 to K.
            variable: position r, from 0 to n - 1.

        Returns:
            The dense entries, (*batch, n, ..., n) with K - m axes, in nats.

        Raises:
            InputError: an argument is out of its range.

        References:
            Paper 3, section 2.1.3.
        """
        check_whole(num_fixed, "num_fixed", 1, self.order)
        check_whole(variable, "variable", 0, self.num_variables - 1)
        return self.dense[(..., *[variable] * num_fixed, *[slice(None)] * (self.order - num_fixed))]

    def unfolding(self, mode: int = 1) -> torch.Tensor:
        """The mode-m unfolding, (*batch, n, n^(K-1)); all modes are equal (lemma 3.1)."""
        return unfold(self.dense, mode, self.order)

    def tucker_rank(self, tolerance: float | None = None) -> tuple[int, ...]:
        """Ranks of the unfoldings, K equal numbers; singular values up to ``tolerance`` count as zero.

        The default tolerance is that of ``torch.linalg.matrix_rank``. Of a tensor without batch dimensions.
        """
        check_exact_shape(self.theta, (self.layout.num_parameters,), "theta")
        if tolerance is not None:
            check_not_negative(tolerance, "tolerance")
        rank = torch.linalg.matrix_rank(
            self.unfolding().detach(), atol=tolerance, rtol=None if tolerance is None else 0.0
        )
        return (int(rank),) * self.order

    def l1_norm(self) -> torch.Tensor:
        """Sum of the absolute values of all dense entries, which is that of corner theta, (*batch,)."""
        return self.theta.abs().sum(-1)

    def overlapped_norm(self, p: float = 1.0) -> torch.Tensor:
        """Overlapped Schatten p norm, K times that of one unfolding (lemma 3.1), (*batch,)."""
        return self.order * schatten_norm(self.unfolding(), p)

    def latent_norm(self, *, tolerance: float = 1e-6, max_iterations: int = 5_000) -> LatentNorm:
        """Latent Schatten 1 norm with its certificate; of a tensor without batch dimensions."""
        check_exact_shape(self.theta, (self.layout.num_parameters,), "theta")
        return latent_norm(self.dense, tolerance=tolerance, max_iterations=max_iterations)

    def law(
        self,
        domain: Domain | None = None,
        *,
        partition: PartitionBackend | None = None,
        validate_args: bool | None = None,
    ) -> HierarchicalLogLinear:
        """The law of the tensor, as a distribution in corner coding.

        Args:
            domain: n binary variables, whose second levels are ones; by default "x0", "x1" and so on.
            partition: backend of log Z; ``Auto()`` when None.
            validate_args: as in the class of the result.

        Raises:
            InputError: another number of variables, or one that is not binary.
        """
        from ..laws.law import HierarchicalLogLinear

        domain = Domain.from_cardinalities([2] * self.num_variables) if domain is None else domain
        check_type(domain, Domain, "domain")
        if len(domain) != self.num_variables:
            raise other_domain("domain", f"{self.num_variables} variables", received=len(domain))
        check_binary(domain, "domain")
        graph = InteractionHypergraph.from_order(domain, self.order)
        return HierarchicalLogLinear(
            graph, self.theta, coding="corner", partition=partition, validate_args=validate_args
        )


def _contract(dense: torch.Tensor, x: torch.Tensor, order: int) -> torch.Tensor:
    """The form of a dense tensor (*batch, n, ..., n) of an order and vectors (*sample, n), which are broadcast."""
    n = x.shape[-1]
    result = dense.reshape(*dense.shape[: dense.ndim - order], n**order)
    for left in range(order - 1, -1, -1):
        result = torch.einsum("...ai,...i->...a", result.reshape(*result.shape[:-1], n**left, n), x)
    return result.squeeze(-1)


def _asymmetric(layout: TensorLayout, dense: torch.Tensor, wrong: torch.Tensor) -> InputError:
    """The error about the first entry that is not that of the first index with the same variables."""
    batch = wrong.ndim - layout.order
    index = tuple(int(i) for i in wrong.nonzero()[0])
    position = int(layout.first[layout.index[index[batch:]]])
    like = index[:batch] + tuple(
        position // layout.num_variables**k % layout.num_variables for k in range(layout.order - 1, -1, -1)
    )
    received = f"{dense[index].item()} at index {index} and {dense[like].item()} at {like}"
    expected = "a strongly symmetric tensor, equal entries for equal sets of indices"
    hint = "give a tolerance, or project the tensor by tensor_layout(num_variables, order).project"
    return unexpected("dense", expected, received=received, hint=hint)


# Unfoldings and norms of dense tensors of any symmetry: Schatten p, overlapped, Tucker rank.


def unfold(dense: torch.Tensor, mode: int, order: int | None = None) -> torch.Tensor:
    """The mode-m unfolding: rows are the m-th index, columns the others in their order.

    Args:
        dense: a tensor.
        mode: m, from 1 to the order.
        order: number of trailing dimensions that are the tensor's; all of them when None.

    Shape:
        dense (*batch, n_1, ..., n_K); result (*batch, n_m, product of the others).

    Raises:
        InputError: fewer than two dimensions, a mode or order out of range.

    References:
        Paper 3, section 3.1.2.

    Example:
        >>> unfold(torch.arange(8.0).reshape(2, 2, 2), mode=2)
        tensor([[0., 1., 4., 5.],
                [2., 3., 6., 7.]])
    """
    order = _checked_order(dense, order)
    axis = dense.ndim - order + check_whole(mode, "mode", 1, order) - 1
    return dense.movedim(axis, dense.ndim - order).flatten(dense.ndim - order + 1)


def _checked_order(dense: torch.Tensor, order: int | None) -> int:
    """Number of trailing dimensions that are the tensor's, two or more."""
    if checked_floating(dense, "dense").ndim < 2:
        raise wrong_shape("dense", "(*batch, n_1, ..., n_K) with two or more dimensions", dense)
    return dense.ndim if order is None else check_whole(order, "order", 2, dense.ndim)


def fold(matrix: torch.Tensor, mode: int, shape: torch.Size) -> torch.Tensor:
    """Inverse of :func:`unfold` of a tensor of a shape, without batch."""
    axis = mode - 1
    others = shape[:axis] + shape[axis + 1 :]
    return matrix.reshape(shape[axis], *others).movedim(0, axis)


def schatten_norm(matrix: torch.Tensor, p: float = 1.0) -> torch.Tensor:
    r"""Schatten p norm, the p norm of the singular values: 1 nuclear, 2 Frobenius, infinity spectral.

    .. math:: \|M\|_{S_p} = \Big(\sum_i \sigma_i(M)^p\Big)^{1/p}

    The dual of :math:`S_p` is :math:`S_q` with :math:`1/p + 1/q = 1`; that of the nuclear norm is the spectral one.

    Args:
        matrix: one or more matrices.
        p: from 1, or ``math.inf``.

    Shape:
        matrix (*batch, rows, columns); result (*batch,).

    Raises:
        InputError: a p below 1, fewer than two dimensions, or entries that are not finite.

    References:
        Paper 3, section 3.1.2.

    Example:
        >>> schatten_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]), 1)
        tensor(7.)
    """
    checked_floating(matrix, "matrix")
    if matrix.ndim < 2:
        raise wrong_shape("matrix", "(..., rows, columns)", matrix)
    if isinstance(p, bool) or not isinstance(p, Real) or not p >= 1:
        raise out_of_range("p", "a number from 1, or infinity", p)
    check_finite(matrix, "matrix")
    return torch.linalg.vector_norm(torch.linalg.svdvals(matrix), p, -1)


def overlapped_norm(dense: torch.Tensor, p: float = 1.0, order: int | None = None) -> torch.Tensor:
    r"""Overlapped Schatten p norm: the sum of the Schatten p norms of all unfoldings.

    .. math:: \|Q\|_{\underline{S_p/1}} = \sum_{m=1}^{K} \|Q_{(m)}\|_{S_p}

    Arguments, shapes and errors are those of :func:`unfold` and :func:`schatten_norm`; the result is (*batch,).

    References:
        Paper 3, section 3.1.2; Ryota Tomioka and Taiji Suzuki, Convex tensor decomposition via structured Schatten
        norm regularization, 2013.

    Example:
        >>> round(float(overlapped_norm(torch.ones(2, 2, 2))), 4)  # of three unfoldings, each of norm sqrt(8)
        8.4853
    """
    order = _checked_order(dense, order)
    return torch.stack([schatten_norm(unfold(dense, mode, order), p) for mode in range(1, order + 1)]).sum(0)


# The latent Schatten 1 norm of a tensor, between a decomposition from above and a dual tensor from below.


@dataclass(frozen=True)
class LatentNorm:
    """The latent norm of a tensor with its certificate; it lies between ``lower`` and ``upper``.

    Attributes:
        upper: sum of the nuclear norms of ``parts``.
        lower: inner product of ``dual`` with the tensor.
        parts: tensors that sum to the tensor up to rounding, (K, *shape), the m-th of low rank in mode m.
        dual: a tensor all of whose unfoldings have spectral norms of at most one, of the tensor's shape.
        num_iterations: steps taken.
        status: "converged" where ``upper - lower`` is within the tolerance, else "max_iterations".
    """

    upper: float
    lower: float
    parts: torch.Tensor
    dual: torch.Tensor
    num_iterations: int
    status: str

    @property
    def gap(self) -> float:
        """The most by which ``upper`` exceeds the norm."""
        return self.upper - self.lower


def latent_dual_norm(dense: torch.Tensor) -> torch.Tensor:
    r"""Dual of the latent Schatten 1 norm: the largest spectral norm of an unfolding.

    .. math:: \max_m \|Y_{(m)}\|_{S_\infty}
        = \max \{\langle Y, Q \rangle : \|Q\|_{\overline{S_1/1}} \le 1\}

    Shape:
        dense (n_1, ..., n_K); result ().

    References:
        Ryota Tomioka and Taiji Suzuki, Convex tensor decomposition via structured Schatten norm regularization, 2013.

    Example:
        >>> round(float(latent_dual_norm(torch.diag(torch.tensor([3.0, 4.0])))), 6)  # the largest singular value
        4.0
    """
    return torch.stack(
        [schatten_norm(unfold(dense, mode), torch.inf) for mode in range(1, max(dense.ndim, 1) + 1)]
    ).amax()


def latent_norm(dense: torch.Tensor, *, tolerance: float = 1e-6, max_iterations: int = 5_000) -> LatentNorm:
    r"""Latent Schatten 1 norm: the least sum of nuclear norms over decompositions, each part in a mode of its own.

    .. math:: \|Q\|_{\overline{S_1/1}} = \min_{Q = Q^{(1)} + \dots + Q^{(K)}} \sum_m \|Q^{(m)}_{(m)}\|_{S_1}
        = \max_Y \{\langle Y, Q \rangle : \|Y_{(m)}\|_{S_\infty} \le 1 \text{ for all } m\}

    By the alternating direction method of multipliers on the right side, whose multipliers are a decomposition: every
    step has one singular value decomposition per mode. Exact up to the gap of the certificate. Of a strongly symmetric
    tensor it is at most the nuclear norm of one unfolding, and often less: parts need no symmetry of their own.

    Args:
        dense: a tensor of two or more dimensions, of any sizes.
        tolerance: largest gap, relative to the upper value.
        max_iterations: steps after which the search ends.

    Shape:
        dense (n_1, ..., n_K), K from 2.

    Returns:
        :class:`LatentNorm`, in double precision, on the device of the tensor.

    Raises:
        InputError: fewer than two dimensions, entries that are not finite, arguments out of range.
        InputTypeError: no floating-point tensor.
        IntractableError: too many entries.

    Warns:
        ConvergenceWarning: the gap is larger than the tolerance after ``max_iterations``.

    References:
        Paper 3, section 3.1.2; Tomioka and Suzuki, 2013.

    Example:
        >>> norm = latent_norm(torch.eye(3))
        >>> round(norm.upper, 5), round(norm.lower, 5)
        (3.0, 3.0)
    """
    check_finite(checked_floating(dense, "dense"), "dense")
    check_positive(tolerance, "tolerance")
    check_whole(max_iterations, "max_iterations")
    if dense.ndim < 2 or not dense.numel():
        raise wrong_shape("dense", "(n_1, ..., n_K) with two or more dimensions and entries", dense)
    if dense.ndim * dense.numel() > MAX_TENSOR_ENTRIES:
        problem = f"needs {size_text(dense.ndim * dense.numel(), 'entries')}, the limit is {MAX_TENSOR_ENTRIES}"
        raise out_of_reach("the latent norm", problem)
    # Scaled, so that small entries have squares.
    q = dense.detach().double()
    largest = float(q.abs().max())
    if not largest:
        zeros = q.new_zeros(q.ndim, *q.shape)
        return LatentNorm(0.0, 0.0, zeros, torch.zeros_like(q), 0, "converged")
    scale = largest * float((q / largest).norm())  # the squares of small numbers would be zero
    unit = _search(q / scale, tolerance, max_iterations)
    norm = replace(unit, upper=scale * unit.upper, lower=scale * unit.lower, parts=scale * unit.parts)
    if norm.status != "converged":
        problem = f"the gap is {norm.gap / norm.upper:.2g} of the norm after {max_iterations} iterations"
        warnings.warn(ConvergenceWarning(problem, argument="latent_norm", hint="raise max_iterations"), stacklevel=2)
    return norm


def _search(q: torch.Tensor, tolerance: float, max_iterations: int) -> LatentNorm:
    """The method of multipliers on a tensor of unit Frobenius norm."""
    modes = range(1, q.ndim + 1)
    spectral = float(latent_dual_norm(q))
    y = q / spectral
    u = torch.zeros(q.ndim, *q.shape, dtype=q.dtype, device=q.device)
    z = torch.zeros_like(u)
    rho = spectral / q.ndim
    upper, lower = torch.inf, 0.0
    parts, dual = u, y
    # Copies of the dual tensor, one clipped in every mode, are pulled together by the multipliers u.
    for number in range(1, max_iterations + 1):
        before = z
        z = torch.stack([_clipped(y + part, mode) for part, mode in zip(u, modes, strict=True)])
        y = (z - u).mean(0) + q / (rho * q.ndim)
        u = u + y - z  # sums to q / rho
        if number % 10 == 0 or number == max_iterations:
            # The multipliers are a decomposition, from above; the dual tensor made feasible bounds from below.
            value = rho * sum(float(schatten_norm(unfold(part, mode))) for part, mode in zip(u, modes, strict=True))
            feasible = y / max(float(latent_dual_norm(y)), 1.0)
            bound = float((feasible * q).sum())
            if value < upper:
                upper, parts = value, rho * u
            if bound > lower:
                lower, dual = bound, feasible
            if upper - lower <= tolerance * upper:
                return LatentNorm(upper, lower, parts, dual, number, "converged")
            # The step is balanced where one residual is far above the other.
            primal, change = float((y - z).norm()), float((z - before).norm())
            factor = 2.0 if primal > 5 * change else 0.5 if change > 5 * primal else 1.0
            rho, u = rho * factor, u / factor
    return LatentNorm(upper, lower, parts, dual, max_iterations, "max_iterations")


def _clipped(tensor: torch.Tensor, mode: int) -> torch.Tensor:
    """The nearest tensor whose unfolding in a mode has singular values of at most one."""
    matrix = unfold(tensor, mode)
    values, vectors = torch.linalg.eigh(matrix @ matrix.mT)
    factors = values.clamp(min=1.0).rsqrt()
    return fold((vectors * factors) @ (vectors.mT @ matrix), mode, tensor.shape)
