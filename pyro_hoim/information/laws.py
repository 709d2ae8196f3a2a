"""Dense laws: a table of probabilities with its domain, and two ways to draw random ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ..data import InformationTable, Observations
from ..errors import InputError, InputTypeError, IntractableError, size_text
from ..models import parametrization
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph

__all__ = ["Law", "random_dirichlet_law", "random_law"]

_SUM_TOLERANCE = 1e-9
_SUM_TOLERANCE_SINGLE = 1e-5
_MAX_CELLS = 2**24


@dataclass(frozen=True, eq=False)
class Law:
    r"""A probability table over all joint states of a finite domain; zeros are allowed.

    Args:
        domain: the variables; axis i of the table belongs to variable i.
        probs: non-negative numbers that sum to 1 (tolerance 1e-9, in single or half precision 1e-5; then
            normalised), kept as float64.

    Shape:
        probs (\*cardinalities).

    Raises:
        InputError: wrong shape, a negative, infinite or NaN entry, or a sum other than 1.
        InputTypeError: ``domain`` is no Domain, or ``probs`` are not numbers.

    Example:
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.5, 0.0], [0.0, 0.5]])
        >>> round(law.divergence(), 6), law.marginal(["a"]).probs.tolist()
        (0.693147, [0.5, 0.5])
    """

    domain: Domain
    probs: torch.Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise InputTypeError(f"Law domain: expected a Domain, received {type(self.domain).__name__}")
        try:
            given = torch.as_tensor(np.asarray(self.probs) if isinstance(self.probs, list | tuple) else self.probs)
            probs = given.detach().to(device="cpu", dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputTypeError(f"Law probs: expected a table of numbers, received {self.probs!r}") from error
        if tuple(probs.shape) != self.domain.cardinalities:
            raise InputError(f"Law probs: expected shape {self.domain.cardinalities}, received {tuple(probs.shape)}")
        if not bool(torch.isfinite(probs).all()) or bool((probs < 0).any()):
            raise InputError("Law probs: expected finite numbers that are not negative")
        total = float(probs.sum())
        is_single = given.is_floating_point() and given.dtype != torch.float64
        if abs(total - 1) > (_SUM_TOLERANCE_SINGLE if is_single else _SUM_TOLERANCE):
            raise InputError(
                f"Law probs: expected a sum of 1, received {total:.12g}; divide by it, or use from_observations"
            )
        object.__setattr__(self, "probs", probs / total)

    @classmethod
    def from_observations(cls, data: Observations, *, max_cells: int = _MAX_CELLS) -> Law:
        """Empirical law of complete observations.

        Args:
            data: complete observations with a positive total count.
            max_cells: largest allowed table.

        Raises:
            MissingDataError: missing cells; InputError: no observations; IntractableError: too many cells.
        """
        if not isinstance(data, Observations):
            raise InputTypeError(f"data: expected Observations, received {type(data).__name__}")
        if not data.total_count > 0:
            raise InputError("data: expected a positive total count, received no observations")
        table = data.table(max_cells=max_cells)
        return cls(data.domain, table / table.sum())

    def __repr__(self) -> str:
        zeros = int((self.probs == 0).sum())
        return f"Law({len(self.domain)} variables, {self.domain.num_states} cells{f', {zeros} zero' * bool(zeros)})"

    def marginal(self, names: Iterable[str]) -> Law:
        """Marginal law of some variables, in schema order.

        Args:
            names: the variables.
        """
        wanted = (names,) if isinstance(names, str) else tuple(names)
        kept = set(self.domain.indices(wanted))
        summed = [i for i in range(len(self.domain)) if i not in kept]
        return Law(self.domain.project(wanted), self.probs.sum(summed) if summed else self.probs)

    def divergence(self, other: Law | None = None) -> float:
        """Divergence D(p; q) from another law, in nats; infinite where q excludes a cell of positive probability.

        Args:
            other: the law q over the same variables; default the uniform one, from which the divergence is the log of
                the number of cells less the entropy.

        Raises:
            InputError: a law over other variables.
        """
        if other is not None:
            if other.domain != self.domain:
                raise InputError("other: expected a law over the same variables, received one over other variables")
            is_positive = self.probs > 0
            p, q = self.probs[is_positive], other.probs[is_positive]
            return max(0.0, math.fsum((p * (p.log() - q.log())).tolist())) if bool((q > 0).all()) else math.inf
        positive = self.probs[self.probs > 0]
        return max(0.0, math.log(self.domain.num_states) + math.fsum((positive * positive.log()).tolist()))

    @cached_property
    def information(self) -> InformationTable:
        """Entropy H and multiple mutual information I and J of sets of variables (paper 1, equations 1 to 3)."""
        return InformationTable(self.cells)

    @cached_property
    def cells(self) -> Observations:
        """The law as observations of total weight 1, one row for each cell."""
        return Observations.from_table(self.domain, weights=self.probs.numpy())


def random_law(
    domain: Domain,
    edges: Iterable[Sequence[str]] | None = None,
    *,
    scale: float = 1.0,
    generator: torch.Generator | None = None,
) -> Law:
    r"""Random log-linear law, the synthetic distributions of paper 1.

    .. math:: p(x) \propto \exp \sum_{S} \theta^S_{x_S}

    Every entry of :math:`\theta^S` is normal, and then each table is centred so that all its fibres sum to zero. That
    is a standard normal vector in the free coordinates, which is how it is drawn. Costs O(cells x number of sets).

    Args:
        domain: the variables.
        edges: sets of variables that have a table, closed under subsets or not; default all.
        scale: standard deviation of an entry before centring, in nats; 1 in the paper.
        generator: source of randomness; the global one when left out.

    Raises:
        InputError: ``scale`` is negative or not finite, or an edge is not a set of variables.
        IntractableError: more than 2^24 cells.

    Randomness:
        One normal vector of length ``num_parameters`` from ``generator``.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, appendix B.2.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 5, "b": 5, "c": 5})
        >>> law = random_law(domain, [("a", "b"), ("c",)], generator=torch.Generator().manual_seed(0))
        >>> float(law.information.mutual_information([("a", "c")]).abs()) < 1e-12
        True
    """
    _check_cells(domain)
    if not (math.isfinite(scale) and scale >= 0):
        raise InputError(f"scale: expected a finite number that is not negative, received {scale!r}")
    if edges is None:
        hypergraph = InteractionHypergraph.saturated(domain)
    else:
        hypergraph = InteractionHypergraph(domain, edges, hierarchical=False)
    theta = scale * torch.randn(hypergraph.num_parameters, generator=generator, dtype=torch.float64)
    codings = parametrization(hypergraph)
    log_table = np.zeros(domain.cardinalities)
    for edge, table in codings.split(codings.to_tables(theta)).items():
        members = set(domain.indices(edge))
        log_table += table.numpy().reshape([n if i in members else 1 for i, n in enumerate(domain.cardinalities)])
    weights = np.exp(log_table - log_table.max())
    return Law(domain, torch.from_numpy(weights / weights.sum()))


def random_dirichlet_law(
    domain: Domain, concentration: float = 1.0, *, generator: torch.Generator | None = None
) -> Law:
    r"""Random law whose cells follow a symmetric Dirichlet distribution: no interaction is preferred.

    Args:
        domain: the variables.
        concentration: parameter of every cell. At 1 the laws are uniform on the simplex; the smaller, the sparser.
        generator: source of randomness; the global one when left out.

    Raises:
        InputError: ``concentration`` is not a positive finite number.
        IntractableError: more than 2^24 cells.

    Randomness:
        Seeds a NumPy PCG64 generator with one integer from ``generator``.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 3})
        >>> round(float(random_dirichlet_law(domain, generator=torch.Generator().manual_seed(0)).probs.sum()), 12)
        1.0
    """
    _check_cells(domain)
    if not (math.isfinite(concentration) and concentration > 0):
        raise InputError(f"concentration: expected a positive finite number, received {concentration!r}")
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    probs = np.random.default_rng(seed).dirichlet(np.full(domain.num_states, float(concentration)))
    return Law(domain, torch.from_numpy(probs.reshape(domain.cardinalities)))


def _check_cells(domain: Domain) -> None:
    if not isinstance(domain, Domain):
        raise InputTypeError(f"domain: expected a Domain, received {type(domain).__name__}")
    if domain.num_states > _MAX_CELLS:
        raise IntractableError(
            f"domain: a dense law needs {size_text(domain.num_states, 'cells')}, the limit is {_MAX_CELLS}"
        )
