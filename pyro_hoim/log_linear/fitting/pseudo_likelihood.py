r"""Log pseudo-likelihood of a log-linear model as a function of theta, with its derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ...core.laws.pseudo_likelihood import PseudoLikelihood
from ...data.frames import DataLike, as_observations
from ...errors import check_choice, check_type, out_of_reach, size_text
from ...structure.hypergraph import InteractionHypergraph
from ..coding import Coding, family_of, parametrization
from ..impossible import ImpossibleStates
from .design import Coordinates, cell_numbers, check_data, edge_basis
from .objectives import PseudoLikelihood as MeanLoss

Floats = NDArray[np.float64]
_MOST_BYTES = 2**33
_FEW_ENTRIES = 2**18  # of features, which are then kept
_LEAST = np.finfo(np.float64).min  # in place of minus infinity, where rows without weight are impossible


class LogLinearPseudoLikelihood(PseudoLikelihood):
    r"""Log pseudo-likelihood of rows, a concave function of theta (num_parameters,), free or corner.

    .. math:: f(\theta) = \sum_r n_r \sum_i \log q_\theta(x_{r,i} \mid x_{r,-i})

    over the distinct rows :math:`x_r`, which were seen :math:`n_r` times. It needs no partition function. A value and
    its gradient cost O(distinct rows x sum of edge sizes x cardinality) in compiled loops; scores and Hessian take, for
    every variable, one dense product with the parameters of the interactions that it is in. Exact, on the processor, in
    double precision. Every method raises :class:`InputError` for theta of another shape. A call with a tensor is a term
    of a Pyro program, ``pyro.factor("rows", likelihood(theta))``.

    Args:
        hypergraph: the interactions, hierarchical or not.
        data: complete rows with their counts or weights; without any, the value is zero everywhere.
        coding: "free" or "corner" coordinates of theta; None for those of the collection's family. Corner theta of a
            collection that lacks subsets belongs to the family of corner tables.
        impossible: states that every conditional leaves out; None for none.

    Attributes:
        coding: the coordinates of theta, "free" or "corner".
        weights: counts of the distinct rows, (m,), in the order of ``data.unique()``.

    Raises:
        InputError: data over another domain, another coding, or that of another family.
        MissingDataError: missing cells.
        IntractableError: the scores of the distinct rows, or the Hessian, would take more than 8 GiB.

    References:
        Julian Besag, Statistical analysis of non-lattice data, The Statistician 24, 1975, equation (3).

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> found = LogLinearPseudoLikelihood(InteractionHypergraph.saturated(data.domain), data)
        >>> round(found.log_prob(np.zeros(3)), 4)  # 100 rows of two variables, each with probability one half
        -138.6294
        >>> found.gradient(np.zeros(3))[[0, 2]].round(4).tolist()  # 20 / sqrt(2) of a, 2 * 40 / 2 of the pair
        [14.1421, 40.0]
    """

    argument: ClassVar[str] = "theta"

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        data: DataLike,
        *,
        coding: Coding | None = None,
        impossible: ImpossibleStates | None = None,
    ) -> None:
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        data = as_observations(data, domain=hypergraph.domain)
        check_data(hypergraph, data, "data", may_be_empty=True)
        check_choice(coding, ("free", "corner", None), "coding")
        self.hypergraph, chosen = family_of(hypergraph, coding)
        self.coding: Coding = chosen
        self.num_unknowns = parametrization(self.hypergraph).num(chosen)
        self._codes: NDArray[np.int64] = data.unique().codes.numpy()
        self.weights: Floats = data.unique().counts.numpy()
        self._impossible = impossible
        self._mean_loss = MeanLoss(self.hypergraph, data, Coordinates(self.hypergraph, chosen), impossible)

    @override
    def log_prob(self, theta: NDArray[Any], /) -> float:
        return -float(self.weights.sum()) * self._mean_loss.value(self._checked(theta))

    @override
    def value_and_gradient(self, theta: NDArray[Any], /) -> tuple[float, Floats]:
        point, total = self._mean_loss.evaluate(self._checked(theta)), float(self.weights.sum())
        return -total * point.loss, -total * point.gradient

    def gradient(self, theta: NDArray[Any]) -> Floats:
        """Gradient (num_parameters,), nats per unit of theta."""
        return self.value_and_gradient(theta)[1]

    @override
    def row_scores(self, theta: NDArray[Any], /) -> Floats:
        self._check_memory(len(self.weights) * self.num_unknowns)
        scores = np.zeros((len(self.weights), self.num_unknowns))
        each = np.arange(len(self.weights))
        for variable, where, features, probs in self._conditionals(theta):
            observed = features[each, self._codes[:, variable]]
            scores[:, where] += observed - np.einsum("rl,rlp->rp", probs, features)
        return scores

    @override
    def hessian(self, theta: NDArray[Any], /) -> Floats:
        self._check_memory(self.num_unknowns**2)
        hessian = np.zeros((self.num_unknowns, self.num_unknowns))
        for _, where, features, probs in self._conditionals(theta):
            centred = features - np.einsum("rl,rlp->rp", probs, features)[:, None]
            centred *= np.sqrt(self.weights[:, None] * probs)[..., None]
            flat = centred.reshape(-1, len(where))
            hessian[np.ix_(where, where)] -= flat.T @ flat
        return hessian

    def _conditionals(self, theta: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.int64], Floats, Floats]]:
        """Position, parameters (p,), features (m, levels, p) and conditional (m, levels) of every variable with levels.

        The parameters are those of the interactions that it is in, the features what they multiply at its levels.
        """
        vector = self._checked(theta)
        for variable, where, features, flat in self._small_features or self._features():
            # The conditional, without overflow.
            logits = (features.reshape(-1, len(where)) @ vector[where]).reshape(features.shape[:2])
            if self._impossible is not None:
                for _, is_holder, _ in self._impossible.holders(torch.from_numpy(flat)):
                    logits[is_holder.numpy().reshape(logits.shape)] = -np.inf
            weights = np.exp(logits - np.maximum(logits.max(1, keepdims=True, initial=-np.inf), _LEAST))
            probs = weights / np.maximum(weights.sum(1, keepdims=True), np.finfo(np.float64).tiny)
            yield variable, where, features, probs

    @cached_property
    def _small_features(self) -> list[tuple[int, NDArray[np.int64], Floats, NDArray[np.int64]]]:
        """The features of all variables, which every step of a fit asks for, where they are few; else none."""
        most = len(self._codes) * sum(self.hypergraph.domain.cardinalities) * self.num_unknowns
        return list(self._features()) if most <= _FEW_ENTRIES else []

    def _features(self) -> Iterator[tuple[int, NDArray[np.int64], Floats, NDArray[np.int64]]]:
        """Position, parameters (p,), features (m, levels, p) and states (m * levels, d) of every variable."""
        graph = self.hypergraph
        parts = list(zip(graph.parameter_slices.values(), graph.edge_indices, graph.edge_shapes, strict=True))
        for variable, levels in enumerate(graph.domain.cardinalities):
            touching = [part for part in parts if variable in part[1] and part[0].stop > part[0].start]
            if levels == 1 or not touching:
                continue
            where = np.concatenate([np.arange(part[0].start, part[0].stop) for part in touching])
            self._check_memory(len(self._codes) * levels * len(where))
            # Every row with every level of the variable.
            states = np.repeat(self._codes[:, None], levels, axis=1)
            states[..., variable] = np.arange(levels)
            flat = states.reshape(-1, states.shape[-1])
            bases = [
                edge_basis(shape, self.coding)[cell_numbers(flat, members, graph.domain.cardinalities)]
                for _, members, shape in touching
            ]
            yield variable, where, np.concatenate(bases, axis=1).reshape(-1, levels, len(where)), flat

    def _check_memory(self, entries: int) -> None:
        if 8 * entries > _MOST_BYTES:
            size = size_text(8 * entries, "bytes")
            problem = f"{len(self.weights)} distinct rows and {self.num_unknowns} parameters need {size}"
            raise out_of_reach("data", f"{problem}, the limit is {_MOST_BYTES}", "take fewer rows or interactions")
