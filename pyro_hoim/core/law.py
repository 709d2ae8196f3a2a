"""Dense laws: a table of probabilities with its domain."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from .._modes import plain_mode
from ..checks import check_exact_shape
from ..data.frames import DataLike, as_observations
from ..data.information import InformationTable
from ..data.observations import Observations
from ..errors import check_type, other_domain, out_of_range, out_of_reach, size_text, unexpected, wrong_type
from ..schema import Domain

_SUM_TOLERANCE = 1e-9
_SUM_TOLERANCE_SINGLE = 1e-5
_MAX_CELLS = 2**24


@dataclass(frozen=True, eq=False)
class Law:
    r"""A probability table over all joint states of a finite domain; zeros are allowed.

    Args:
        domain: the variables; axis i of the table belongs to variable i.
        probs: non-negative numbers (\*cardinalities) that sum to 1 (tolerance 1e-9, in single or half precision 1e-5;
            then normalised), kept as float64.

    Raises:
        InputError: wrong shape, a negative, infinite or NaN entry, or a sum other than 1.
        InputTypeError: ``domain`` is no Domain, or ``probs`` are not numbers.

    Example:
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.4, 0.1], [0.1, 0.4]])
        >>> law.marginal(["a"]).probs.tolist(), round(law.divergence(), 4)
        ([0.5, 0.5], 0.1927)
    """

    domain: Domain
    probs: torch.Tensor

    def __post_init__(self) -> None:
        check_type(self.domain, Domain, "Law domain")
        try:
            given = torch.as_tensor(np.asarray(self.probs) if isinstance(self.probs, list | tuple) else self.probs)
            probs = given.detach().to(device="cpu", dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise wrong_type("Law probs", "a table of numbers", received=repr(self.probs)) from error
        check_exact_shape(probs, self.domain.cardinalities, "Law probs")
        if not bool(torch.isfinite(probs).all()) or bool((probs < 0).any()):
            raise out_of_range("Law probs", "finite numbers that are not negative")
        total = float(probs.sum())
        is_single = given.is_floating_point() and given.dtype != torch.float64
        if abs(total - 1) > (_SUM_TOLERANCE_SINGLE if is_single else _SUM_TOLERANCE):
            hint = "divide by it, or use from_observations"
            raise out_of_range("Law probs", "a sum of 1", hint=hint, received=f"{total:.12g}")
        object.__setattr__(self, "probs", probs / total)

    @classmethod
    def from_observations(cls, data: DataLike, *, max_cells: int = _MAX_CELLS) -> Law:
        """Empirical law of complete observations."""
        data = as_observations(data)
        if not data.total_count > 0:
            raise unexpected("data", "a positive total count", received="no observations", code="empty")
        table = data.table(max_cells=max_cells)
        return cls(data.domain, table / table.sum())

    def __repr__(self) -> str:
        zeros = int((self.probs == 0).sum())
        return f"Law({len(self.domain)} variables, {self.domain.num_states} cells{f', {zeros} zero' * bool(zeros)})"

    def marginal(self, names: Iterable[str]) -> Law:
        """Marginal law of some variables, in schema order."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        axes = set(self.domain.indices(wanted))
        summed = [i for i in range(len(self.domain)) if i not in axes]
        return Law(self.domain.project(wanted), self.probs.sum(summed) if summed else self.probs)

    def divergence(self, other: Law | None = None) -> float:
        """Divergence D(p; q) from another law, in nats; infinite where q excludes a cell of positive probability."""
        if other is not None:
            if other.domain != self.domain:
                raise other_domain("other", "a law over the same variables", received="one over other variables")
            is_positive = self.probs > 0
            p, q = self.probs[is_positive], other.probs[is_positive]
            return max(0.0, math.fsum((p * (p.log() - q.log())).tolist())) if bool((q > 0).all()) else math.inf
        positive = self.probs[self.probs > 0]
        return max(0.0, math.log(self.domain.num_states) + math.fsum((positive * positive.log()).tolist()))

    @cached_property
    @plain_mode()
    def information(self) -> InformationTable:
        """Entropy H and multiple mutual information I and J of sets of variables (paper 1, equations 1 to 3)."""
        return InformationTable(self.cells)

    @cached_property
    @plain_mode()
    def cells(self) -> Observations:
        """The law as observations of total weight 1, one row for each cell."""
        return Observations.from_table(self.domain, weights=self.probs.numpy())


def check_cells(domain: Domain) -> None:
    """Raise unless a dense table of the domain is small enough to be kept."""
    check_type(domain, Domain, "domain")
    if domain.num_states > _MAX_CELLS:
        problem = f"a dense law needs {size_text(domain.num_states, 'cells')}, the limit is {_MAX_CELLS}"
        raise out_of_reach("domain", problem)
