r"""Energy and conditionals of generalized root models."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse, special
from typing_extensions import override

from ..checks import broadcast_shapes, check_exact_shape, check_finite, check_shape, checked_floating
from ..core.laws.pseudo_likelihood import PseudoLikelihood
from ..core.model import ParametricEnergy
from ..errors import check_type, out_of_range, out_of_reach, refused, size_text, unexpected, wrong_shape, wrong_type
from ..runs.container import GENERALIZED_ROOT
from ..schema import Domain
from .nodes.columns import Families, NodeFamilies
from .nodes.families import IndicatorFamily, NodeFamily
from .nodes.kernels import evaluate_nodes
from .structure import CountsAsLevels, RootStructure, fold, term_products, weighted_products, weighted_slopes


class GeneralizedRootEnergy(ParametricEnergy):
    r"""Energy of a generalized root model with given tensor entries.

    .. math:: E(x) = -\sum_{(j, \ell)} \sum_S \ell!\, \psi_S^{(j, \ell)} \prod_{s \in S} T_{js}(x_s) - \sum_s B_s(x_s),
              \qquad q(x) = \exp(-E(x))

    :math:`\psi_S` is the entry of the super-symmetric tensor :math:`\Psi_{(j)}^{(\ell)}`; the *coefficient*
    :math:`\ell!\,\psi_S` multiplies the product of roots. :math:`T_{js}`, the j-th root of the statistic, and
    :math:`B_s` belong to the family of variable s: one family for all, or one each, of any kinds. A state costs one
    product per term, all node conditionals together l products per term, in time and memory. Exact, and twice
    differentiable in psi. :func:`~pyro_hoim.generalized_root.check_normalizable` says whether q can be normalised.

    States x are floating-point or integer tensors (*sample, d); where results depend on psi, *shape* is the sample
    shape broadcast with the batch shape. Every method that takes states raises :class:`InputError` for a wrong shape or
    a value outside the support (not looked at with ``validate=False``), and :class:`InputTypeError` for other types.

    Args:
        structure: the terms.
        psi: tensor entries (*batch, num_terms) in the order of the terms of the structure.
        family: base family of all variables, a mapping from every name to its family, or a sequence in schema order;
            the kind of a family's values must be that of its variables. A 0/1 column is a
            ``TruncatedPoissonFamily(1)``, the Bernoulli law.
        validate: check that psi is finite. Shape and type are always checked.

    Raises:
        InputError: wrong length, NaN or infinite entries, or variables of another kind than the family's.
        InputTypeError: an argument of another type.

    References:
        Inouye, Ravikumar and Dhillon, Generalized Root Models, 2016, equations 1, 5 and 6.

    Example:
        >>> from pyro_hoim import Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable(name, kind="count") for name in "ab"])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> model = GeneralizedRootEnergy(structure, torch.tensor([0.5, 0.0, 0.25]), PoissonFamily())
        >>> model.energy(torch.tensor([1.0, 1.0])).item()  # -(0.5 * 1 + 0.5 * sqrt(1 * 1))
        -1.0
        >>> model.node_natural(torch.tensor([1.0, 4.0])).tolist()  # eta_1 and eta_2 of a, then of b
        [[0.5, 1.0], [0.0, 0.5]]
    """

    model_kind: ClassVar[str] = GENERALIZED_ROOT

    def __init__(self, structure: RootStructure, psi: torch.Tensor, family: Families, *, validate: bool = True) -> None:
        check_type(structure, RootStructure, "structure")
        check_shape(checked_floating(psi, "psi"), (structure.num_terms,), "psi")
        # Variables of the kinds of their families, and multiplicities that the precision holds.
        self.families: NodeFamilies = NodeFamilies.of(family, structure.domain)
        """The family of every variable, in schema order."""
        common = self.families.common
        if common is None or structure.kinds != {common.kind}:
            self.families.check_kinds(structure.domain)
        _check_blocks(structure, self.families)
        if math.factorial(structure.largest_set) > torch.finfo(psi.dtype).max:
            expected = f"a precision in which {structure.largest_set}! is a number"
            raise out_of_range("psi", expected, hint="use float64, or sets of fewer variables", received=psi.dtype)
        if validate:
            check_finite(psi, "psi")
        self.structure = structure
        self.psi = psi

    @classmethod
    def from_coefficients(
        cls, structure: RootStructure, coefficients: torch.Tensor, family: Families, *, validate: bool = True
    ) -> GeneralizedRootEnergy:
        r"""Model with coefficients :math:`\ell!\,\psi_S` (*batch, num_terms) of the products of roots."""
        if isinstance(coefficients, torch.Tensor) and coefficients.shape[-1:] == (structure.num_terms,):
            coefficients = coefficients / structure.multiplicity.to(coefficients)
        return cls(structure, coefficients, family, validate=validate)

    def __repr__(self) -> str:
        return f"GeneralizedRootEnergy({self.structure!r}, {self.families!r}, batch_shape={tuple(self.batch_shape)})"

    @property
    @override
    def domain(self) -> Domain:
        return self.structure.domain

    @property
    @override
    def parameters(self) -> torch.Tensor:
        return self.psi

    @property
    def family(self) -> NodeFamily:
        """The family of all variables; an :class:`InputError` where they have several, see :attr:`families`."""
        return self.families.the_one("family")

    @property
    def order(self) -> int:
        """Number k of roots."""
        return self.structure.order

    @property
    def coefficients(self) -> torch.Tensor:
        r"""Coefficients :math:`\ell!\,\psi_S` of the products of roots, (*batch, num_terms)."""
        return self.psi * self.structure.multiplicity.to(self.psi)

    @override
    def _with(self, parameters: torch.Tensor) -> GeneralizedRootEnergy:
        return GeneralizedRootEnergy(self.structure, parameters, self.families, validate=False)

    def _states(self, x: torch.Tensor, validate: bool, argument: str = "x") -> torch.Tensor:
        """States in the dtype of psi, checked."""
        check_type(x, torch.Tensor, argument, "a tensor of values")
        if x.dtype == torch.bool or x.is_complex():
            raise wrong_type(argument, "numbers", received=f"dtype {x.dtype}")
        check_shape(x, (len(self.domain),), argument)
        # Shapes that broadcast with the batch, values that the family has.
        self._shape(x, argument)
        if validate:
            self.families.check_values(x, argument)
        return x.to(self.dtype)

    def _roots(self, values: torch.Tensor) -> Callable[[int], torch.Tensor]:
        """The j-th roots (d, *sample) of states (*sample, d), computed once each."""
        rows = values.movedim(-1, 0).contiguous()
        return cache(lambda j: self.families.root(rows, j, 0))

    def statistics(self, x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        r"""Products of roots :math:`\prod_{s \in S} T_j(x_s)` of every term, (*sample, num_terms)."""
        values = self._states(x, validate)
        parts = term_products(self.structure, self._roots(values), self.structure.keys)
        empty = values.new_zeros(0, *values.shape[:-1])
        return torch.cat([empty, *parts]).movedim(0, -1)

    def energy(self, x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        """Minus the log of the unnormalised density, in nats, (*shape,)."""
        values = self._states(x, validate)
        return -self._score(values, self.structure.keys) - self.families.log_base(values).sum(-1)

    def interaction_score(self, x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        """The part of log q of terms with two or more variables: what tempering multiplies, (*shape,)."""
        return self._score(self._states(x, validate), [key for key in self.structure.keys if key[1] > 1])

    def _score(self, values: torch.Tensor, keys: Sequence[tuple[int, int]]) -> torch.Tensor:
        return weighted_products(self.structure, self.coefficients, self._roots(values), values.shape[:-1], keys)

    def node_natural(self, x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        r"""Natural parameters of every variable's law given all others (equation 5), (*shape, d, k).

        .. math:: \eta_{js} = \sum_\ell \sum_{S \ni s} \ell!\, \psi_S^{(j, \ell)} \prod_{t \in S \setminus s} T_j(x_t)

        Entry (s, j - 1) does not depend on x_s.
        """
        values = self._states(x, validate)
        return weighted_slopes(self.structure, self.coefficients, self._roots(values), values.shape[:-1], self.order)

    def node_log_prob(self, x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        r"""Log density of every variable given all others, :math:`\log p(x_s \mid x_{-s})`, in nats, (*shape, d).

        A conditional that cannot be normalised is an :class:`InputError` too.
        """
        natural = self.node_natural(x, validate=validate)
        values = x.to(self.dtype)
        score = (natural * self.families.roots(values, self.order)).sum(-1) + self.families.log_base(values)
        return self.families.gathered(score - self.families.log_partition(natural), values)

    def log_pseudo_prob(self, x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        r"""Log pseudo-likelihood, the sum of :meth:`node_log_prob` over variables, (*shape,); it needs no log Z."""
        return self.node_log_prob(x, validate=validate).sum(-1)

    @property
    def is_bounded(self) -> bool:
        """Whether every variable has finitely many values."""
        return self.families.is_bounded

    def require_finite(self, what: str) -> list[int]:
        """Number of values of every variable, for what lists them; refuses families of infinitely many."""
        if not self.is_bounded:
            hint = "use TruncatedPoissonFamily; single variables have node_natural and node_log_prob"
            raise unexpected(what, "families of bounded counts", self.families, hint, code="no-method")
        return [int(largest) + 1 for largest in self.families.largest_values]

    def over_levels(self) -> CountsAsLevels:
        """The model over ordinal variables whose codes are the counts; refuses categories and other families."""
        if self.families.blocks:
            problem = "indicators of a category do not take every joint value"
            raise refused(
                "model", problem, "make the category a nominal variable of a log-linear model", code="no-method"
            )
        return CountsAsLevels(self)

    def block_conditional(self, block: Sequence[str], x: torch.Tensor, *, validate: bool = True) -> torch.Tensor:
        r"""Log probabilities of the values of a block given the rest, :math:`\log q(x_B \mid x_{-B})`, by listing them.

        Time and memory are those of the energies of all states of the block, for every state of x.

        Args:
            block: distinct variable names; their order is that of the trailing dimensions of the result.
            x: joint states (*sample, d); the entries of the block are not read.
            validate: check the values.

        Returns:
            (*shape, one dimension of maximum + 1 per name); a value is its own position.

        Raises:
            InputError: also an unknown or repeated name, or a family of infinitely many values.
            InputTypeError: also a string in place of names.
            IntractableError: the block has more than 2^22 states.
        """
        # The block, and states whose entries there are not read.
        places, levels, num_states = self._block(block, self.require_finite("block_conditional"))
        positions = list(places)
        self.families.check_whole(positions, self.domain, "block")
        values = self._states(x, validate=False)
        shape = self._shape(values)
        values = values.expand(*shape, len(self.domain)).clone()
        values[..., positions] = 0
        values[..., [int(inside[0]) for inside in self.families.blocks if inside[0] in positions]] = 1
        if validate:
            self.families.check_values(values, "x")
        # Every state of the block beside the rest, normalised.
        listed = torch.from_numpy(np.indices(levels).reshape(len(levels), num_states).T.copy())
        rows = values.expand(num_states, *values.shape).clone()
        rows[..., positions] = listed.to(values).reshape(num_states, *[1] * len(shape), len(levels))
        scores = -self.energy(rows, validate=False)
        if self.families.blocks:
            scores = scores.masked_fill(~self.families.is_possible(rows), -torch.inf)
        return scores.movedim(0, -1).log_softmax(-1).reshape((*shape, *levels))

    def radial_natural(self, direction: torch.Tensor) -> dict[Fraction, torch.Tensor]:
        r"""Natural parameters of the law along a ray, by the power of the scale (equation 6).

        .. math:: \eta_r(v) = \sum_{\ell / j = r} \sum_S \ell!\, \psi_S^{(j, \ell)} \prod_{s \in S} T_j(v_s)

        The ray is x(z) with :math:`T_1(x_s(z)) = z\, T_1(v_s)`: x = z v, and for the Gaussian family x = sqrt(z) v, of
        every variable by its own family. The direction v (*sample, d) has any length, entries of at least 0 (any for
        the Gaussian family), whole or not.

        Returns:
            ``{l / j in lowest terms: eta_r}``, each (*shape,), for the powers of the structure, the largest first.
        """
        v = self._direction(direction)
        ratios = sorted({Fraction(length, j) for j, length in self.structure.keys}, reverse=True)
        return {
            r: self._score(v, [key for key in self.structure.keys if Fraction(key[1], key[0]) == r]) for r in ratios
        }

    def radial_log_density(self, z: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        r"""Unnormalised log density along a ray, :math:`\sum_r \eta_r(v) z^r + \sum_s B(x_s(z))`, in nats.

        It is log q at scales z (*sample,) of a direction (*sample, d), without the Jacobian of polar coordinates; the
        log-factorial of counts that are not whole is that of the gamma function.
        """
        v = self._direction(direction)
        check_type(z, torch.Tensor, "z", "a tensor")
        scale = z.to(self.dtype)
        if bool((~(scale >= 0)).any()):
            raise out_of_range("z", "scales of at least 0")
        # Powers of the scale, and the base measure at the scaled direction.
        powers = self.radial_natural(direction)
        is_square = torch.tensor([family.name == "gaussian" for family in self.families], device=v.device)
        factor = torch.where(is_square, scale.sqrt()[..., None], scale[..., None])
        base = self.families.log_base(factor * v).sum(-1)
        return sum((eta * scale ** float(r) for r, eta in powers.items()), base)

    def _direction(self, direction: torch.Tensor) -> torch.Tensor:
        if self.families.has_user_family:
            raise unexpected("direction", "a family of the library", self.families, code="no-method")
        v = self._states(direction, False, "direction")
        check_finite(v, "direction")
        for family, places in self.families.groups:
            if family.name != "gaussian" and bool((v[..., torch.from_numpy(places)] < 0).any()):
                raise out_of_range("direction", f"values of at least 0, as the {family.name} family has")
        return v

    def condition(self, evidence: Mapping[str, float | torch.Tensor]) -> tuple[GeneralizedRootEnergy, torch.Tensor]:
        r"""The model of the remaining variables when some are fixed, and what it leaves out.

        .. math:: -E(x) = c - E'(x_{-V}) \quad \text{where } x_V \text{ is the evidence}

        A term of key (j, l) with m fixed variables becomes one of key (j, l - m).

        Args:
            evidence: ``{name: value}``; a tensor holds one value for every row or batch element. Tensors broadcast with
                each other and with the batch shape; the batch shape of the result is the common one.

        Returns:
            The model on the remaining variables, in schema order, and the constant c in nats, shape (*batch,).

        Raises:
            InputError: an unknown name, a value outside the support, or tensors whose shapes do not broadcast.
            InputTypeError: no mapping, or a value that is no number.
        """
        check_type(evidence, Mapping, "evidence", "a mapping from names to values")
        # Evidence as columns of one dtype, each in the support.
        positions = self.domain.indices(evidence)
        self.families.check_whole(positions, self.domain, "evidence")
        columns: list[torch.Tensor] = []
        families = self.families.at(positions)
        for (name, value), family in zip(evidence.items(), families, strict=True):
            if not isinstance(value, numbers.Real | torch.Tensor) or getattr(value, "dtype", None) == torch.bool:
                raise wrong_type(f"evidence[{name!r}]", "a number or a tensor", received=repr(value))
            columns.append(torch.as_tensor(value, dtype=self.dtype, device=self.device))
            family.check_values(columns[-1], f"evidence[{name!r}]")
        # One indicator of every category that is given, and shapes that broadcast with each other and with the batch.
        shapes = {name: tuple(column.shape) for name, column in zip(evidence, columns, strict=True)}
        try:
            broadcast_shapes(self.batch_shape, *shapes.values())
        except RuntimeError:
            expected = f"shapes that broadcast with the batch shape {tuple(self.batch_shape)}"
            shown = ", ".join(f"{name!r} {shape}" for name, shape in shapes.items())
            raise unexpected("evidence", expected, received=shown, code="wrong-shape") from None
        # Terms lose the fixed variables, whose roots become factors.
        values = torch.stack(torch.broadcast_tensors(*columns), -1) if columns else self.psi.new_zeros(0)
        if families.blocks:
            families.check_values(values, "evidence")
        structure, coefficients, constant = fold(
            self.structure, self.coefficients, positions, lambda j: families.root(values, j)
        )
        left = self.families.at(self.domain.indices(structure.domain.names))
        rest = GeneralizedRootEnergy.from_coefficients(structure, coefficients, left, validate=False)
        return rest, constant + families.log_base(values).sum(-1)

    def gaussian_parameters(self) -> tuple[torch.Tensor, torch.Tensor]:
        r"""Mean (*batch, d) and precision (*batch, d, d) of a Gaussian model with k <= 2, a multivariate normal law.

        .. math:: \log q(x) = h \cdot x - \tfrac12 x^T \Lambda x, \qquad \Lambda_{ss} = -2 \psi_s^{(1,1)},\
                  \Lambda_{st} = -2 \psi_{st}^{(2,2)},\ h_s = \psi_s^{(2,1)}

        Another model, or a precision that is not positive definite, is an :class:`InputError`.
        """
        precision, shift = self.gaussian_precision()
        factor, failed = torch.linalg.cholesky_ex(precision)
        if bool(failed.any()):
            problem = "the precision is not positive definite; check_normalizable names the direction"
            raise refused("psi", problem, code="not-normalizable")
        return torch.cholesky_solve(shift[..., None], factor).squeeze(-1), precision

    def gaussian_precision(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Precision (*batch, d, d), definite or not, and linear part h (*batch, d), as :meth:`gaussian_parameters`."""
        if not self.families.is_gaussian or self.order > 2:
            expected = "the gaussian family with k <= 2"
            received = f"{self.families.name} with k = {self.order}"
            raise unexpected("gaussian_parameters", expected, received=received, code="no-method")
        # Terms of single variables on the diagonal, those of pairs beside it.
        square, shift = self.structure.single_natural(self.psi, 2).unbind(-1)
        precision = torch.diag_embed(-2 * square)
        if (2, 2) in self.structure.slices:
            a, b = self.structure.columns((2, 2), self.device)
            part = precision.new_zeros(precision.shape)
            part[..., a, b] = -2 * self.psi[..., self.structure.slices[2, 2]]
            precision = precision + part + part.mT
        return precision, shift


def _check_blocks(structure: RootStructure, families: NodeFamilies) -> None:
    """Refuse terms of two indicators of one category."""
    if not families.blocks:
        return
    block = np.full(len(families), -1)
    for number, places in enumerate(families.blocks):
        block[places] = number
    for key in structure.keys:
        rows = structure.rows(key)
        of_members = np.sort(block[rows], axis=1)
        is_double = ((of_members[:, 1:] == of_members[:, :-1]) & (of_members[:, 1:] >= 0)).any(1)
        if is_double.any():
            names = ":".join(structure.domain.names[s] for s in rows[is_double.argmax()])
            raise refused("structure", f"{names} holds two indicators of one category, whose product is always 0")


# Log pseudo-likelihood of a generalized root model as a function of its tensor entries, with its derivatives.

Floats = NDArray[np.float64]
_CHUNK_CELLS = 2**22  # entries of dense products that are made at once
_MOST_BYTES = 2**33
_FEW_ENTRIES = 2**16  # of a design, for which a dense product costs less than a sparse one
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
        self, structure: RootStructure, rows: torch.Tensor, family: Families, weights: torch.Tensor | None = None
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
        self._adjoint: Any = self._design.T  # of few rows it takes longer than a product

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
        if (dense := self._small_design) is not None:
            return -np.tensordot(dense, blocks @ dense, axes=((0, 1), (0, 1)))
        weighted: Any = sparse.bsr_array((blocks, np.arange(count), np.arange(count + 1)), shape=(count * k, count * k))
        if self.families.blocks:
            weighted = weighted + self._between_indicators(psi)
        return -(self._adjoint @ (weighted @ self._design)).toarray()

    @cached_property
    def _small_design(self) -> Floats | None:
        """The design (m d, k, num_terms) where it is small, and no two variables are of one category."""
        (count, k), terms = self._statistics.shape, self.structure.num_terms
        is_small = count * k * terms <= _FEW_ENTRIES and not self.families.blocks
        return self._design.toarray().reshape(count, k, terms) if is_small else None

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
        return self._adjoint @ (self._each[:, None] * (self._statistics - mean)).reshape(-1)

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
