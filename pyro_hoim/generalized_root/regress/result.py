"""What a fit of root regressions found: the joint model, the nodes, and the pseudo-likelihood of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
from typing_extensions import override

from ..._modes import plain_mode
from ...data.counts import CountTable
from ...data.frames import as_counts, is_frame
from ...errors import check_choice, other_domain
from ...results.confirmation import InteractionTest
from ...results.fitted import Fitted
from ...results.table import SummaryTable
from ...runs.container import GENERALIZED_ROOT
from ...schema import Domain
from ...structure.hypergraph import Edge
from ..energy import GeneralizedRootEnergy
from ..frames import RootColumns
from ..nodes.columns import NodeFamilies
from ..nodes.families import NodeFamily
from ..structure import Key, RootStructure
from ._regression import JointTerm, interactions
from .node import NodeSolution
from .options import RootSettings, Symmetrize
from .rows import RootRows, kind_of_numbers, prepare_rows


@dataclass(frozen=True)
class RootTerm:
    """One coefficient: of a node's regression, or of the joint model.

    Attributes:
        key: (j, l): root and number of variables.
        names: the l variables in schema order.
        coefficient: l! times the entry of the tensor, the factor of the product of the variables' j-th roots.
    """

    key: tuple[int, int]
    names: tuple[str, ...]
    coefficient: float


@dataclass(frozen=True, eq=False)
class RootNodeResult:
    """One node's regression.

    Attributes:
        variable: the node.
        intercept: coefficient of T_1; -inf (+inf) for a column that is always zero (the family's maximum).
        terms: nonzero coefficients of all other keys; the names include the node.
        objective: penalised objective, nats per row, without the base measure.
        kkt_residual: largest distance of a subgradient from zero over all features, also those never visited.
        num_steps, num_scans: Newton steps and scans of all features.
        seconds: time taken.
        status: ``converged``, ``fixed``, ``max_iterations``, or ``stalled``, as :func:`fit_roots` says; or ``stopped``,
            by the published rule.
    """

    variable: str
    intercept: float
    terms: tuple[RootTerm, ...]
    objective: float
    kkt_residual: float
    num_steps: int
    num_scans: int
    seconds: float
    status: str

    @classmethod
    def from_solution(cls, rows: RootRows, node: int, solution: NodeSolution) -> RootNodeResult:
        """Put names to a solution, and coefficients in the units of the model."""
        # The intercept comes first, and is no term.
        terms, domain = list[RootTerm](), rows.domain
        zipped = zip(solution.keys.tolist(), solution.others.tolist(), solution.coefficients.tolist(), strict=True)
        for (j, size), others, value in zipped:
            if (j, size) != (1, 1):
                positions = sorted([node, *others[: size - 1]])
                terms.append(
                    RootTerm((j, size), tuple(domain.names[i] for i in positions), value / rows.unit(j, positions))
                )
        intercept = float(solution.coefficients[0]) / rows.unit(1, [node])
        return cls(domain.names[node], intercept, tuple(terms), *solution.outcome)


@dataclass(frozen=True)
class RootRefitResult:
    """How the joint model was refitted, and what came of it. Pseudo-NLLs are those of the training rows.

    Attributes:
        method: ``singles`` or ``all``.
        share: share of the regressions' penalties that was kept.
        status: ``converged``, ``max_iterations``, ``stalled``, or ``shortened``, as :func:`refit_roots` says.
        way: share of the way to the optimum that the coefficients go; 1 unless shortened.
        verdict: whether the refitted law has a normalising constant: ``proven`` or ``undecided``.
        objective: pseudo-NLL plus penalties, nats per row.
        pseudo_nll: nats per row, over the columns that are not fixed.
        joined_pseudo_nll: before the refit; infinite where some row had no conditional law.
        independent_pseudo_nll: of independent columns by maximum likelihood.
        kkt_residual: largest distance of a subgradient of the pseudo-NLL from zero at the optimum.
        num_steps: Newton steps (``singles``: most of any column).
        seconds: time taken.
    """

    method: str
    share: float
    status: str
    way: float
    verdict: str
    objective: float
    pseudo_nll: float
    joined_pseudo_nll: float
    independent_pseudo_nll: float
    kkt_residual: float
    num_steps: int
    seconds: float

    @property
    def is_converged(self) -> bool:
        """Whether the optimum was found, though a law without a constant was not kept."""
        return self.status in ("converged", "shortened")


@dataclass(frozen=True)
class RootConfirmation:
    """Which of the sets that the regressions found all rows confirm; see :func:`confirm_roots`.

    Attributes:
        tests: of all sets of two columns or more that were found; the kept ones first, then by p-value. What is
            confirmed alone but not kept names what replaces it. Nothing was held out, so there are no held-out gains.
        false_discovery_rate: as asked.
    """

    tests: tuple[InteractionTest, ...]
    false_discovery_rate: float

    @property
    def kept(self) -> tuple[Edge, ...]:
        """The sets that are confirmed."""
        return tuple(test.edge for test in self.tests if test.is_kept)

    @property
    def rejected(self) -> tuple[InteractionTest, ...]:
        """The tests of the sets that are not kept."""
        return tuple(test for test in self.tests if not test.is_kept)


@dataclass(frozen=True, eq=False, repr=False)
class RootFitResult(Fitted):
    r"""A generalized root model learned by node-wise regressions, and how it came about.

    The joint model has one coefficient per tuple, made from those of its member nodes (``symmetrize``): their mean
    with absent ones as zero (the convention of the published tables), ``and`` the same where no member lacks it and
    zero elsewhere, ``or`` the mean of the nonzero ones. The tensor's entry is coefficient / l!.

    Attributes:
        structure: terms of the joint model, over the columns that are not fixed.
        psi: entries of the tensors, float64 (num_terms,).
        family: node family; where columns have several, :class:`~pyro_hoim.generalized_root.NodeFamilies`.
        domain: all columns.
        nodes: one regression per column, in schema order.
        l1: penalty of each root order from 2 on.
        symmetrize: how the joint model was made.
        is_full: whether lower roots (keys (j, l) with l < j) were searched.
        num_rows: rows learned from.
        tolerance: largest KKT residual asked for.
        fixed_columns: columns that take one value at the edge of the support in all rows; they have no finite
            estimate (zero: psi is minus infinity) and are no part of the joint model.
        constant_columns: columns with one value in all rows.
        seconds: time of the whole fit.
        refit: how the joint model was estimated anew; None where its values are those of the joined regressions.
        confirmed: the model of the sets that all rows confirm, estimated alike; None where none was asked for, and
            where this is it.
        confirmation: of a confirmed model, the tests of all sets that were found.
        scales: standard deviations (d, k) in the rows of the roots of every column, by which those of several families
            were standardised; None of one family.
        columns: how the columns of a data frame became the variables, where families were chosen; else None.
    """

    model_kind: ClassVar[str] = GENERALIZED_ROOT

    structure: RootStructure
    psi: torch.Tensor
    family: NodeFamily | NodeFamilies
    domain: Domain
    nodes: tuple[RootNodeResult, ...]
    l1: Mapping[int, float]
    symmetrize: Symmetrize
    num_rows: int
    tolerance: float
    fixed_columns: Mapping[str, float]
    constant_columns: tuple[str, ...]
    is_full: bool = False
    seconds: float = field(default=0.0)
    refit: RootRefitResult | None = None
    confirmed: RootFitResult | None = None
    confirmation: RootConfirmation | None = None
    scales: torch.Tensor | None = None
    columns: RootColumns | None = None

    @classmethod
    def from_solutions(
        cls,
        rows: RootRows,
        solutions: Sequence[NodeSolution],
        l1: Mapping[int, float],
        settings: RootSettings,
        is_full: bool,
        seconds: float,
    ) -> RootFitResult:
        """Join the regressions of all nodes."""
        nodes = tuple(RootNodeResult.from_solution(rows, i, solution) for i, solution in enumerate(solutions))
        structure, psi = _joined(rows.domain, nodes, rows.fixed_columns, settings.symmetrize)
        return cls(
            structure,
            psi,
            rows.families.common or rows.families,
            rows.domain,
            nodes,
            dict(l1),
            settings.symmetrize,
            rows.total,
            settings.tolerance,
            dict(rows.fixed_columns),
            tuple(rows.constant_columns),
            is_full,
            seconds,
            scales=None if rows.scales is None else torch.from_numpy(rows.scales),
        )

    def with_columns(self, columns: RootColumns) -> Self:
        """The same with how the columns of its data frame became its variables, and so its confirmed model."""
        confirmed = None if self.confirmed is None else replace(self.confirmed, columns=columns)
        return replace(self, columns=columns, confirmed=confirmed)

    @override
    def summary(self, level: float = 0.95, **options: Any) -> SummaryTable:
        table = super().summary(level, **options)
        if self.columns is not None:
            table.attrs["notes"] = [f"columns by family: {self.columns.overview}", *table.attrs.get("notes", ())]
        return table

    @override
    def __repr__(self) -> str:
        families = "" if self.columns is None else f"\n  {self.columns.overview}"
        return super().__repr__() + families

    @cached_property
    @plain_mode()
    def coefficients(self) -> torch.Tensor:
        """The factors l! psi of the root products, (num_terms,)."""
        return self.structure.multiplicity * self.psi

    def energy(self) -> GeneralizedRootEnergy:
        """The joint model, over the columns that are not fixed."""
        return GeneralizedRootEnergy(self.structure, self.psi, self.free_families)

    @property
    def families(self) -> NodeFamilies:
        """The family of every column."""
        return NodeFamilies.of(self.family, self.domain)

    @property
    def free_families(self) -> NodeFamilies:
        """The family of every column of the joint model."""
        return self.families.at(self.domain.indices(self.structure.domain.names))

    def penalty_of(self, term: RootTerm) -> float:
        """What a term costs in the objective of a node, nats per row; the mean of a Gaussian column is free."""
        root, size = term.key
        if self.scales is None:
            return self.l1[root] * abs(term.coefficient)
        unit = math.prod(self.scales[list(self.domain.indices(term.names)), root - 1].tolist())
        return 0.0 if size == 1 else self.l1[root] * unit * abs(term.coefficient)

    @cached_property
    @plain_mode()
    def kkt_residual(self) -> torch.Tensor:
        """Largest distance of a subgradient from zero for every node, (d,)."""
        return torch.tensor([node.kkt_residual for node in self.nodes], dtype=torch.float64)

    @cached_property
    @plain_mode()
    def objective(self) -> torch.Tensor:
        """Penalised objective of every node, nats per row, (d,)."""
        return torch.tensor([node.objective for node in self.nodes], dtype=torch.float64)

    @cached_property
    @plain_mode()
    def intercepts(self) -> torch.Tensor:
        """Coefficient of T_1 of every column in the joint model, (d,); infinite for fixed columns."""
        coefficients = {term.names[0]: term.coefficient for term in self.terms((1, 1))}
        values = [coefficients.get(node.variable, node.intercept) for node in self.nodes]
        return torch.tensor(values, dtype=torch.float64)

    @property
    def order(self) -> int:
        """Largest root searched."""
        return max([1, *self.l1])

    @property
    def num_terms(self) -> dict[tuple[int, int], int]:
        """Terms of the joint model by key (j, l)."""
        return {key: place.stop - place.start for key, place in self.structure.slices.items()}

    @property
    def num_interactions(self) -> int:
        """Terms of the joint model of two and more variables."""
        return sum(count for (_, size), count in self.num_terms.items() if size > 1)

    @property
    def zero_columns(self) -> tuple[str, ...]:
        """Columns that are zero in all rows."""
        return tuple(name for name, value in self.fixed_columns.items() if value == 0.0)

    @property
    def is_converged(self) -> bool:
        """Whether every node's residual is within the tolerance, and that of a refit."""
        is_refitted = self.refit is None or self.refit.is_converged
        return is_refitted and all(node.status in ("converged", "fixed") for node in self.nodes)

    def terms(self, key: tuple[int, int] | None = None, *, num: int | None = None, sign: int = 0) -> list[RootTerm]:
        """Coefficients of the joint model, largest magnitude first.

        Args:
            key: only those of one key (j, l).
            num: at most this many.
            sign: 1 for positive ones only, -1 for negative ones only.
        """
        pairs = zip(self.structure.names, self.coefficients.tolist(), strict=True)
        terms = [RootTerm(k, n, v) for (k, n), v in pairs if key in (None, k) and (not sign or v * sign > 0)]
        return sorted(terms, key=lambda term: -abs(term.coefficient))[:num]

    @property
    def pair_graph(self) -> np.ndarray:
        """Sorted positions (m, 2) of the pairs that have a term."""
        pairs = {self.domain.indices(term.names) for term in self.terms() if term.key[1] == 2}
        return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)

    def rows(self, data: Any, order: int = 1) -> RootRows:
        """Rows of the columns of the fit, laid out for at least some order; refuses other columns."""
        if is_frame(data) and self.columns is not None:
            data = self.columns.encode(data)
        elif is_frame(data):
            data = as_counts(data, kind=kind_of_numbers(self.family), columns=list(self.domain.names))
            data = data.columns(self.domain.names)
        names = None if isinstance(data, CountTable) else self.domain.names
        scales = None if self.scales is None else self.scales.numpy()
        rows = prepare_rows(data, self.family, max([order, *self.l1]), names, scales=scales)
        if rows.domain.names != self.domain.names:
            raise other_domain("data", "the columns of the fit", received=f"{', '.join(rows.domain.names[:6])}, ...")
        return rows

    def joined(self, symmetrize: Symmetrize | None = None) -> RootFitResult:
        """The regressions joined, in another way where one is given, without a refit; of a confirmed model its sets."""
        way = self.symmetrize if symmetrize is None else symmetrize
        check_choice(way, get_args(Symmetrize), "symmetrize")
        # Nothing was done after joining.
        if self.refit is None and way == self.symmetrize:
            return self
        structure, psi = _joined(self.domain, self.nodes, self.fixed_columns, way)
        cleared: dict[str, Any] = {"refit": None, "confirmed": None, "confirmation": None}
        model = replace(self, structure=structure, psi=psi, symmetrize=way, **cleared)
        if self.confirmation is None:
            return model
        return replace(model.restricted(self.confirmation.kept), confirmation=self.confirmation)

    def restricted(self, sets: Iterable[Edge]) -> RootFitResult:
        """The regressions joined, with the terms of single columns and of some sets alone, without a refit."""
        # Terms of single columns always stay.
        joined, wanted = self.joined(), {frozenset(names) for names in sets}
        values = {
            JointTerm(key, joined.structure.domain.indices(names)): value
            for (key, names), value in zip(joined.structure.names, joined.psi.tolist(), strict=True)
            if len(names) == 1 or frozenset(names) in wanted
        }
        structure, psi = structure_of(joined.structure.domain, values)
        return replace(joined, structure=structure, psi=psi, confirmed=None, confirmation=None)

    def log_pseudo_prob(self, data: Any, *, symmetrized: bool = True, by_node: bool = False) -> torch.Tensor:
        r"""Log pseudo-likelihood of rows, :math:`\sum_s \log p(x_s \mid x_{-s})`, nats, (n,), or (n, d) by node.

        Minus infinity where a fixed column has another value. Only nonzero entries are visited.

        Args:
            data: rows as :func:`~pyro_hoim.generalized_root.fit_roots` takes them, with the same columns.
            symmetrized: of the joint model (default; after a refit the refitted one), or of the nodes' own regressions.
            by_node: do not sum over the nodes.

        Raises:
            InputError: other columns, or values outside the support.
        """
        rows = self.rows(data, 2)
        # Terms and intercept of every node, its own or those of the joint model that hold it.
        terms_of = [list(node.terms) for node in self.nodes]
        intercepts = [node.intercept for node in self.nodes]
        if symmetrized:
            by_name: dict[str, list[RootTerm]] = {name: [] for name in self.domain.names}
            for term in self.terms():
                for name in term.names if term.key != (1, 1) else ():
                    by_name[name].append(term)
            terms_of, intercepts = list(by_name.values()), self.intercepts.tolist()
        # Node laws of the rows, one node after the other.
        log_probs = np.zeros((rows.num_rows, len(self.domain)))
        for index, (node, terms) in enumerate(zip(self.nodes, terms_of, strict=True)):
            column = torch.from_numpy(rows.column(index))
            if node.variable in self.fixed_columns:
                log_probs[:, index] = np.where(column == self.fixed_columns[node.variable], 0.0, -np.inf)
                continue
            places = [JointTerm(term.key, rows.domain.indices(term.names)) for term in terms]
            coefficients = np.array([intercepts[index], *(term.coefficient for term in terms)])
            units = [rows.unit(1, [index]), *(rows.unit(root, positions) for (root, _), positions in places)]
            log_probs[:, index] = interactions(rows, index, places, [1]).log_density(coefficients * units)
            log_probs[:, index] += rows.families[index].log_base(column).numpy()
        values = torch.from_numpy(log_probs)
        return values if by_node else values.sum(1)


def _joined(
    domain: Domain, nodes: Sequence[RootNodeResult], fixed: Mapping[str, float], symmetrize: Symmetrize
) -> tuple[RootStructure, torch.Tensor]:
    # Estimates of every term by its members.
    model = domain.project([name for name in domain.names if name not in fixed])
    values: dict[JointTerm, list[float]] = {}
    for node in nodes:
        if node.variable not in fixed:
            values[JointTerm((1, 1), (model.index(node.variable),))] = [node.intercept]
            for term in node.terms:
                values.setdefault(JointTerm(term.key, model.indices(term.names)), []).append(term.coefficient)
    # Joined as asked; the entry of the tensor is the coefficient over l!.
    psi: dict[JointTerm, float] = {}
    for term, estimates in values.items():
        size = term.key[1]
        if symmetrize != "and" or len(estimates) == size:
            value = math.fsum(estimates) / (len(estimates) if symmetrize == "or" else size)
            psi[term] = value / math.factorial(size)
    return structure_of(model, psi)


def structure_of(domain: Domain, values: Mapping[JointTerm, float]) -> tuple[RootStructure, torch.Tensor]:
    """Structure of the linear terms and of those that are not zero, and their values, float64 (num_terms,)."""
    by_key: dict[Key, dict[tuple[int, ...], float]] = {}
    for (key, positions), value in sorted(values.items()):
        if value != 0.0 or key == (1, 1):
            by_key.setdefault(key, {})[positions] = value
    structure = RootStructure.from_positions(domain, {key: list(terms) for key, terms in by_key.items()})
    ordered = [value for terms in by_key.values() for value in terms.values()]
    return structure, torch.tensor(ordered, dtype=torch.float64)
