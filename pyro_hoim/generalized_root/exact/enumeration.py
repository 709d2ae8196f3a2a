"""Sums over grids: generalized root models of few variables, or whose interactions form a thin graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from typing_extensions import override

from ...core.partition import Cost, LogPartition
from ...errors import IntractableError, check_whole, out_of_range, out_of_reach, size_text
from ..energy import GeneralizedRootEnergy
from ..nodes.families import NodeFamily
from ..structure import RootStructure
from ._contraction import Contraction, contract, draw, elimination
from ._envelope import Terms
from ._grid import Grid, Window, grid_of, windows_of
from .base import ExactRoot, checked_psi, element_rows, joined_states, root_result, split_moments

__all__ = ["RootEnumeration"]

_METHOD = "enumeration"
_NOMINAL = 64  # values of a variable that plans reckon with before the parameters are known
_NODES = (20, 30, 45, 68, 102, 153, 230, 345, 518, 777, 1166, 1749)
_OPERATIONS = 100  # elementary operations behind a cell of a table


@dataclass(frozen=True)
class RootEnumeration(ExactRoot):
    r"""Log Z (paper 2, equation 2) by sums over counts or product quadrature over reals, variable after variable.

    .. math:: Z = \sum_{x_1} \sum_{x_2} \cdots \sum_{x_d} q(x), \qquad
        \int q(x) \, dx \approx \sum_{u} q(x(u)) \prod_s \omega_s(u_s), \quad x_s = u_s^m

    For models of few variables, or whose interactions form a thin graph, such as chains and trees: a variable is summed
    out together with those that it is tied to, so the cost is the largest such table. Counts are summed over windows;
    what lies outside is bounded by a product law above the model and a mean-field bound of log Z below it. Reals are
    integrated by more and more Gauss-Legendre nodes in u, in which all roots are analytic. Twice differentiable in psi.

    *Error.* The absolute error of log Z is at most ``tolerance``, times its size over 1,000 where it is beyond 1,000
    nats; the notes of a result tell the number. What windows leave out is bounded, a two-hundredth of it; the rest is
    for quadrature, judged by the last step of refinement and by a lower bound of log Z. Where a model of reals is
    normalisable only by its negative interactions, its window rests on a maximum over directions that was found by
    search from many starts, not on a bound.

    Args:
        max_cells: most cells of a table, each 8 bytes; log Z with a gradient keeps a few tables.
        tolerance: see *Error*; from 1e-14.
        allow_undecided: go on where it is not known whether the model has a finite constant.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable("a", kind="count"), Variable("b", kind="count")])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([0.0, 0.0, 0.0]), PoissonFamily())
        >>> RootEnumeration().log_partition(energy).value  # two Poisson laws of mean one: log Z is 1 + 1
        tensor(2.)
    """

    max_cells: int = 2**23
    tolerance: float = 1e-10
    allow_undecided: bool = False

    def __post_init__(self) -> None:
        check_whole(self.max_cells, "RootEnumeration max_cells")
        if not isinstance(self.tolerance, float) or not 1e-14 <= self.tolerance < 1:
            raise out_of_range("RootEnumeration tolerance", "a number from 1e-14 to below 1", self.tolerance)

    @override
    def plan(self, structure: RootStructure, family: NodeFamily) -> Cost:
        values = int(min(_NOMINAL, family.largest_value + 1))
        found = self._order(structure, [values] * len(structure.domain))
        return self._cost(found, f"at {values} values of every variable, the largest table")

    def _order(self, structure: RootStructure, sizes: Sequence[int]) -> Contraction:
        """An order for grids of these sizes, found as far as the budget allows."""
        return elimination(_scopes(structure), sizes, self.max_cells)

    @override
    def plan_energy(self, energy: GeneralizedRootEnergy) -> Cost:
        psi = checked_psi(energy.detach(), self.allow_undecided)
        worst = self._least(energy.structure)
        if not worst.feasible:
            return worst
        for row in element_rows(energy, psi):
            try:
                windows, _ = self._windows(energy, row)
            except IntractableError as error:
                return Cost(0, 0, 0, 0, False, str(error), _METHOD)
            sizes = [w.num_values if energy.family.is_discrete else _NODES[3] for w in windows]
            cost = self._cost(self._order(energy.structure, sizes), "the largest table")
            worst = max(worst, cost, key=lambda c: c.cells)
        return worst

    def _least(self, structure: RootStructure) -> Cost:
        """Cost with two values of every variable: a quick refusal of graphs that are too thick for any parameters."""
        return self._cost(self._order(structure, [2] * len(structure.domain)), "with two values, the largest table")

    def _cost(self, found: Contraction, what: str) -> Cost:
        feasible = found.largest <= self.max_cells
        verdict = "within" if feasible else "or more, above"
        reason = f"{what} has {size_text(found.largest, 'cells')}, {verdict} max_cells={self.max_cells}"
        if not feasible:
            reason += "; raise it, or estimate with RootAnnealed()"
        memory = 8 * 4 * found.largest
        return Cost(found.largest, found.total, _OPERATIONS * found.total, memory, feasible, reason, _METHOD)

    def _windows(self, energy: GeneralizedRootEnergy, psi: torch.Tensor) -> tuple[list[Window], float]:
        content = psi.detach().double().numpy().tobytes()
        return _windows(energy.structure, energy.family, content, self.tolerance / 200)

    def _grids(self, energy: GeneralizedRootEnergy, psi: torch.Tensor) -> tuple[list[Grid], Contraction]:
        """Grids on which one element of the batch, psi (num_terms,), is summed, and the order."""
        self._least(energy.structure).check()
        windows, below = self._windows(energy, psi)
        if energy.family.is_discrete:
            found = self._order(energy.structure, [window.num_values for window in windows])
            self._cost(found, "the largest table").check()
            return [grid_of(energy.family, window, 0) for window in windows], found
        return self._refined(energy, psi.detach(), windows, below)

    def _refined(
        self, energy: GeneralizedRootEnergy, psi: torch.Tensor, windows: list[Window], below: float
    ) -> tuple[list[Grid], Contraction]:
        """Quadrature nodes at which log Z stands still to half the tolerance, and is no less than a lower bound."""
        before, moved = math.nan, ""
        for count in _NODES:
            found = self._order(energy.structure, [count] * len(windows))
            cost = self._cost(found, f"with {count} quadrature nodes, the largest table")
            if not cost.feasible:
                raise out_of_reach("RootEnumeration", f"{cost.reason}; quadrature {moved or 'has not begun'}")
            grids = [grid_of(energy.family, window, count) for window in windows]
            with torch.no_grad():
                value = float(contract(_factors(energy, psi, grids), found.order)[0])
            change = abs(value - before)
            moved = f"moved log Z by {change:.2g} at the last step, tolerance={self.tolerance:g}"
            is_seen = value >= below - 1e-6 * max(1.0, abs(below))  # nodes that miss the law stand still below a bound
            if is_seen and change <= self._allowed(value) / 2:
                return grids, found
            before = value
        raise out_of_reach("RootEnumeration", f"quadrature with {_NODES[-1]} nodes {moved}", "use RootAnnealed()")

    def _allowed(self, log_z: float) -> float:
        """Relative error of Z, the absolute error of log Z, that is allowed at a value of log Z."""
        return self.tolerance * max(1.0, 1e-3 * abs(log_z))

    @override
    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        psi = checked_psi(energy, self.allow_undecided)
        values: list[torch.Tensor] = []
        worst = Contraction((), 1, 0)
        for row in element_rows(energy, psi):
            grids, found = self._grids(energy, row)
            worst = max(worst, found, key=lambda c: c.largest)
            values.append(contract(_factors(energy, row, grids), found.order)[0])
        value = torch.stack(values) if values else psi.sum(-1).reshape(0)
        largest = float(value.detach().abs().max()) if values else 0.0
        note = f"relative error of Z at most {self._allowed(largest):g}"
        return root_result(value, energy, self._cost(worst, "the largest table"), note)

    @override
    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        psi = checked_psi(energy.detach(), self.allow_undecided)
        pairs = [_marginal_moments(energy, row, *self._grids(energy, row)) for row in element_rows(energy, psi)]
        return split_moments(energy, pairs)

    @override
    def _sample(self, energy: GeneralizedRootEnergy, shape: torch.Size, random: torch.Generator | None) -> torch.Tensor:
        if not energy.family.is_discrete:
            problem = "draws of counts only; quadrature nodes are no sample"
            raise out_of_reach("RootEnumeration sample", problem, code="no-method")
        psi = checked_psi(energy.detach(), self.allow_undecided)
        parts: list[torch.Tensor] = []
        for row in element_rows(energy, psi):
            grids, found = self._grids(energy, row)
            steps = contract(_factors(energy, row, grids), found.order, keep=True)[1]
            places = draw(steps, math.prod(shape), len(grids), random)
            parts.append(places + torch.tensor([int(grid.values[0]) for grid in grids], dtype=torch.long))
        return joined_states(energy, shape, parts)


@lru_cache(maxsize=1024)
def _windows(
    structure: RootStructure, family: NodeFamily, content: bytes, tolerance: float
) -> tuple[list[Window], float]:
    """Windows for psi given as bytes: planning and computing ask for the same ones."""
    psi = torch.frombuffer(bytearray(content), dtype=torch.float64) if content else torch.zeros(0).double()
    return windows_of(Terms.of(structure, family, psi), tolerance)


@lru_cache(maxsize=256)
def _scopes(structure: RootStructure) -> tuple[tuple[int, ...], ...]:
    """Schema positions of every term of two or more variables, once each."""
    found = {tuple(row) for key in structure.keys if key[1] > 1 for row in structure.positions(key).tolist()}
    return tuple(sorted(found))


def _factors(
    energy: GeneralizedRootEnergy, psi: torch.Tensor, grids: Sequence[Grid]
) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """Log tables of base measure and terms on grids, for psi (num_terms,); in the graph of psi."""
    structure, family = energy.structure, energy.family
    coefficients = psi * structure.multiplicity
    points = [torch.from_numpy(grid.values) for grid in grids]
    factors: list[tuple[tuple[int, ...], torch.Tensor]] = [
        ((s,), torch.from_numpy(grid.log_weights) + family.log_base(points[s])) for s, grid in enumerate(grids)
    ]
    for key in structure.keys:
        roots = [family.root(values, key[0]) for values in points]
        for row, coefficient in zip(
            structure.positions(key).tolist(), coefficients[structure.slices[key]], strict=True
        ):
            table = coefficient
            for s in row:
                table = table.unsqueeze(-1) * roots[s]
            factors.append((tuple(row), table))
    return factors


def _marginal_moments(
    energy: GeneralizedRootEnergy, psi: torch.Tensor, grids: Sequence[Grid], found: Contraction
) -> torch.Tensor:
    """Means and variances (2, d) from the marginal probabilities of all grids, which are a gradient of log Z."""
    if not grids:
        return psi.new_zeros((2, 0))
    factors = _factors(energy, psi.detach(), grids)
    with torch.enable_grad():
        tilts = [torch.zeros(len(grid.values), dtype=torch.float64, requires_grad=True) for grid in grids]
        total, _ = contract([*factors, *(((s,), tilt) for s, tilt in enumerate(tilts))], found.order)
        marginals = torch.autograd.grad(total, tilts)
    points = [torch.from_numpy(grid.values) for grid in grids]
    means = torch.stack([(p * x).sum() for p, x in zip(marginals, points, strict=True)])
    squares = [(p * (x - m).square()).sum() for p, x, m in zip(marginals, points, means, strict=True)]
    return torch.stack([means, torch.stack(squares)])
