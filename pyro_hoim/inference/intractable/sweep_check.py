"""Whether the Gibbs chains of auxiliary data made enough sweeps: what twice as many would change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import out_of_range, refused
from ._auxiliary import AuxiliaryData, Kind
from ._program import IntractableProgram
from ._proposals import Coordinates, definite

__all__ = ["SweepCheck"]

_BEST = 2.38
_MANY_ERRORS = 4.0


@dataclass(frozen=True, eq=False)
class SweepCheck:
    r"""What auxiliary data sets say of proposals after some sweeps and after twice as many.

    Chains that start at the data and stop too early give auxiliary data that are too close to the data, so that the log
    ratio is too high on average. A :attr:`change` within its noise is no proof: chains that mix very slowly change
    nothing by twice the sweeps.

    Attributes:
        num_sweeps: sweeps.
        log_ratios: what auxiliary data add to the log ratios of proposals, (proposals,), nats.
        doubled: the same, from other data after twice the sweeps.

    Example:
        >>> check = SweepCheck(10, torch.tensor([1.0, 1.5, 0.5, 1.0]), torch.tensor([0.0, 0.5, -0.5, 0.0]))
        >>> check.change, check.is_changed
        (1.0, True)
    """

    num_sweeps: int
    log_ratios: torch.Tensor
    doubled: torch.Tensor

    @property
    def change(self) -> float:
        """Mean fall of the log ratio by twice the sweeps, nats."""
        return float((self.log_ratios - self.doubled).mean())

    @property
    def std_error(self) -> float:
        """Standard error of :attr:`change`."""
        difference = self.log_ratios - self.doubled
        return float(difference.std()) / math.sqrt(len(difference))

    @property
    def is_changed(self) -> bool:
        """Whether the change is beyond four standard errors: the sweeps were too few."""
        return abs(self.change) > _MANY_ERRORS * self.std_error

    def __repr__(self) -> str:
        verdict = "too few" if self.is_changed else "no change seen"
        change = f"{self.change:.3g} +- {self.std_error:.2g} nats"
        return f"SweepCheck({self.num_sweeps} sweeps against {2 * self.num_sweeps}: {change}, {verdict})"


def compare_sweeps(
    model: Callable[..., Any],
    call: tuple[Sequence[Any], Mapping[str, Any], Sequence[str] | None],
    options: tuple[Kind, int, int],
    samples: Mapping[str, torch.Tensor],
    num_proposals: int,
) -> SweepCheck:
    """The comparison at draws of a posterior, by moves as wide as its spread allows.

    ``call`` are arguments, keyword arguments and sites of the program, ``options`` the kind of the auxiliary data, the
    number of bridges and that of sweeps.
    """
    program = IntractableProgram(model, *call)
    if missing := [name for name in program.latent if name not in samples]:
        raise refused("samples", f"site {missing[0]!r} is missing", code="missing-part")
    points = {name: program.transforms[name](samples[name].to(program.dtypes[name])) for name in program.latent}
    coordinates = Coordinates(program)
    vectors = coordinates.flat(points)
    if len(vectors) < 2 * coordinates.size:
        raise out_of_range("samples", f"at least {2 * coordinates.size} draws", received=len(vectors))
    covariance = torch.cov(vectors.mT).reshape(coordinates.size, coordinates.size)
    factor = torch.linalg.cholesky(definite(covariance))
    chosen = torch.randint(len(vectors), (num_proposals,))
    present = {name: value[chosen] for name, value in points.items()}
    noise = torch.randn(num_proposals, coordinates.size, dtype=torch.float64) @ factor.mT
    proposed = coordinates.points(vectors[chosen] + _BEST / math.sqrt(coordinates.size) * noise, present)
    here, there = program.evaluate(present), program.evaluate(proposed)
    is_valid = program.is_valid(there)
    kind, num_bridges, num_sweeps = options
    found: list[torch.Tensor] = []
    for sweeps in (num_sweeps, 2 * num_sweeps):
        total = torch.zeros(int(is_valid.sum()), dtype=torch.float64)
        for name, site in program.sites.items():
            start, end = there.naturals[name][is_valid], here.naturals[name][is_valid]
            auxiliary = AuxiliaryData(site, kind, here.naturals[name], num_bridges)
            total = total + auxiliary.log_weights(start, end, here.data[name], num_sweeps=sweeps)[0]
        found.append(total)
    return SweepCheck(num_sweeps, *found)
