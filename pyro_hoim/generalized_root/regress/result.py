"""What a fit of root regressions found: the joint model, the nodes, and the pseudo-likelihood of rows."""

from __future__ import annotations

import itertools
import math
from collections import Counter
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
from ..dispersion import found_dispersions
from ..energy import GeneralizedRootEnergy
from ..frames import RootColumns
from ..nodes.columns import NodeFamilies
from ..nodes.families import GaussianFamily, IndicatorFamily, NodeFamily
from ..structure import Key, RootStructure
from ._regression import interactions, statistic
from .errors import RootErrors, centred_directions, sandwich_errors
from .node import NodeSolution, Outcome
from .options import RootSettings, Symmetrize
from .rows import JointTerm, RootRows, RootSample, kind_of_numbers, prepare_rows, to_contrasts, to_levels


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
        terms: coefficients of all other keys that are not zero; the names include the node. Of a group of a category
            that is not zero all levels.
        objective: penalised objective, nats per row, without the base measure; of a category with its first level, and
            0 with the others, whose other figures are those of the whole category.
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
    def from_solution(cls, rows: RootRows, node: int, solution: NodeSolution) -> list[RootNodeResult]:
        """Put names to a solution, and coefficients in the units of the model; of a category one for every level."""
        # Terms over the variables, without the fixed indicators of a category.
        domain, values = rows.domain, dict[JointTerm, float]()
        zipped = (array.tolist() for array in (solution.keys, solution.own, solution.others, solution.coefficients))
        for (j, size), member, others, value in zip(*zipped, strict=True):
            positions = tuple(sorted([member, *others[: size - 1]]))
            values[JointTerm((j, size), positions)] = value / rows.unit(j, positions)
        category = rows.category_of.get(node)
        if category is None:
            levels = to_levels(rows, values)
            intercept = levels.pop(JointTerm((1, 1), (node,)))
            terms = (RootTerm(key, tuple(domain.names[i] for i in p), value) for (key, p), value in levels.items())
            return [cls(domain.names[node], intercept, tuple(terms), *solution.outcome)]
        # Levels that were seen have intercepts and terms; the objective is with the first of them.
        results: list[RootNodeResult] = []
        is_free = not rows.is_fixed_node(node)
        levels, objective = to_levels(rows, values) if is_free else {}, solution.outcome.objective
        for index, share in zip(category.places.tolist(), category.shares.tolist(), strict=True):
            name = domain.names[index]
            if share == 0 or not is_free:
                outcome = Outcome(0.0, 0.0, 0, 0, 0.0, "fixed")
                results.append(cls(name, math.inf if share else -math.inf, (), *outcome))
                continue
            inside = [(term, value) for term, value in levels.items() if index in term.positions]
            terms = [
                RootTerm(term.key, tuple(domain.names[i] for i in term.positions), value)
                for term, value in inside
                if term.key != (1, 1)
            ]
            intercept = levels[JointTerm((1, 1), (index,))]
            results.append(cls(name, intercept, tuple(terms), *solution.outcome._replace(objective=objective)))
            objective = 0.0
        return results


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
            were standardised, and of an indicator the root of its share; None of one family.
        columns: how the columns of a data frame became the variables, where families were chosen; else None.
        training: values of the rows estimated from, for errors and for typical values of columns; None if not kept.
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
    training: RootSample | None = field(default=None, repr=False)

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
        results: dict[str, RootNodeResult] = {}
        for node, solution in zip(rows.nodes, solutions, strict=True):
            results |= {result.variable: result for result in RootNodeResult.from_solution(rows, node, solution)}
        nodes = tuple(results[name] for name in rows.domain.names)
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
            training=rows.sample,
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

    @cached_property
    @plain_mode()
    def errors(self) -> RootErrors:
        """Standard errors of the coefficients after a refit of all terms, made when they are first asked for."""
        count = self.structure.num_terms
        if self.refit is None or self.refit.method != "all":
            what = "penalised regressions" if self.refit is None else "penalised coefficients of sets"
            return RootErrors.none(count, f"{what} were not refitted, which refit='all' does")
        if self.refit.way < 1.0:
            return RootErrors.none(count, "the refit was shortened, so that its coefficients are no optimum")
        if self.training is None:
            return RootErrors.none(count, "the result does not hold the rows that it was estimated from")
        rows = self.training.columns(self.domain.indices(self.structure.domain.names))
        weights, energy = torch.from_numpy(self.training.weights), self.energy()
        shares = (weights @ rows / weights.sum()).numpy()
        return sandwich_errors(energy, rows, weights, centred_directions(energy, shares))

    @cached_property
    @plain_mode()
    def dispersion(self) -> dict[str, float]:
        """Counts and positive numbers that vary otherwise than the model says, with the ratio of the variances.

        See :func:`~pyro_hoim.generalized_root.dispersions`. Empty where coefficients have no errors.
        """
        if self.training is None or self.errors.covariance is None:
            return {}
        rows = self.training.columns(self.domain.indices(self.structure.domain.names))
        return found_dispersions(self.energy(), rows, torch.from_numpy(self.training.weights))

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

    def penalties(self, terms: Iterable[RootTerm]) -> list[tuple[Key, int, float]]:
        r"""Groups of the terms of one regression: key, number of free coefficients, and what it costs, nats per row.

        Terms of the same key and columns are a group, which costs :math:`\lambda_j \sqrt{m}` times the Euclidean norm
        of its coefficients in units of the scales, with m free coefficients. The mean of a Gaussian column is free.
        """
        squares: dict[tuple[Key, Edge], float] = {}
        for term in dict.fromkeys(terms):
            scale = 1.0
            if self.scales is not None:
                scale = math.prod(self.scales[list(self.domain.indices(term.names)), term.key[0] - 1].tolist())
            group = term.key, tuple(self.unit_names[name] for name in term.names)
            squares[group] = squares.get(group, 0.0) + (scale * term.coefficient) ** 2
        groups: list[tuple[Key, int, float]] = []
        for (key, members), square in squares.items():
            count = math.prod(self._num_free[name] for name in members)
            is_free = key == (1, 1) or (key == (2, 1) and members[0] in self._with_mean)
            groups.append((key, count, 0.0 if is_free else self.l1[key[0]] * math.sqrt(count * square)))
        return groups

    @property
    def units(self) -> tuple[np.ndarray, ...]:
        """Positions of the variables of every column: of a category its indicators, else one."""
        return self.families.units

    @cached_property
    def unit_names(self) -> dict[str, str]:
        """The column of every variable by name: of an indicator its category, else the variable itself."""
        pairs = zip(self.domain.names, self.families, strict=True)
        return {name: one.category if isinstance(one, IndicatorFamily) else name for name, one in pairs}

    @cached_property
    def _with_mean(self) -> frozenset[str]:
        """Gaussian columns beside others, whose mean costs nothing."""
        pairs = zip(self.domain.names, self.families, strict=True)
        return frozenset(n for n, one in pairs if self.scales is not None and one.name == GaussianFamily.name)

    @cached_property
    def _num_free(self) -> dict[str, int]:
        """Free coefficients of a term of every column: of a category one fewer than levels that were seen."""
        seen = Counter(self.unit_names[name] for name in self.domain.names if name not in self.fixed_columns)
        blocks = {self.unit_names[self.domain.names[int(places[0])]] for places in self.families.blocks}
        return {name: max(1, count - 1) if name in blocks else count for name, count in seen.items()}

    @cached_property
    def sets(self) -> dict[Edge, tuple[int, ...]]:
        """The sets of two columns and more that have terms, named by categories and other variables, with their roots.

        Names are in the order of the first variables of the columns.
        """
        order = {self.unit_names[self.domain.names[int(unit[0])]]: number for number, unit in enumerate(self.units)}
        roots: dict[Edge, dict[int, None]] = {}
        for (root, size), names in self.structure.names:
            if size > 1:
                edge = tuple(sorted((self.unit_names[name] for name in names), key=order.__getitem__))
                roots.setdefault(edge, {})[root] = None
        return {edge: tuple(found) for edge, found in roots.items()}

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
        """Terms of the joint model of two and more columns; what the levels of categories share is one."""
        if self.families.blocks:
            return sum(map(len, self.sets.values()))
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
        """Sorted positions (m, 2) of the pairs that have a term, among all columns; a category is one column."""
        if self.families.blocks:
            names = {self.unit_names[name]: None for name in self.domain.names}
            place = {name: number for number, name in enumerate(names)}
            pairs = {tuple(place[name] for name in edge) for edge in self.sets if len(edge) == 2}
        else:
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
        """The regressions joined, with the terms of single columns and of some sets alone, without a refit.

        Sets are named by categories and other variables. Terms of a set that has none are zero.
        """
        # Terms of single columns always stay.
        joined, wanted = self.joined(), {frozenset(names) for names in sets}
        values = {
            JointTerm(key, joined.structure.domain.indices(names)): value
            for (key, names), value in zip(joined.structure.names, joined.psi.tolist(), strict=True)
            if len(names) == 1 or frozenset(self.unit_names[name] for name in names) in wanted
        }
        variables: dict[str, list[int]] = {}
        for position, name in enumerate(joined.structure.domain.names):
            variables.setdefault(self.unit_names[name], []).append(position)
        for names in wanted - set(map(frozenset, joined.sets)):
            key = len(names), len(names)
            for positions in itertools.product(*(variables[name] for name in names)):
                values[JointTerm(key, tuple(sorted(positions)))] = 0.0
        structure, psi = structure_of(joined.structure.domain, values, zeros=True)
        return replace(joined, structure=structure, psi=psi, confirmed=None, confirmation=None)

    def log_pseudo_prob(self, data: Any, *, symmetrized: bool = True, by_node: bool = False) -> torch.Tensor:
        r"""Log pseudo-likelihood of rows, :math:`\sum_s \log p(x_s \mid x_{-s})`, nats, (n,), or (n, d) by node.

        Minus infinity where a fixed column has another value. Only nonzero entries are visited. Of a category there is
        one value, at the indicator that is set.

        Args:
            data: rows as :func:`~pyro_hoim.generalized_root.fit_roots` takes them, with the same columns.
            symmetrized: of the joint model (default; after a refit the refitted one), or of the nodes' own regressions.
            by_node: do not sum over the nodes.

        Raises:
            InputError: other columns, or values outside the support.
        """
        rows = self.rows(data, 2)
        # Terms of every node, its own or those of the joint model that hold it, intercepts first.
        terms_of = {node.variable: list(node.terms) for node in self.nodes}
        intercepts = {node.variable: node.intercept for node in self.nodes}
        if symmetrized:
            terms_of = {name: [] for name in self.domain.names}
            for term in self.terms():
                for name in term.names if term.key != (1, 1) else ():
                    terms_of[name].append(term)
            intercepts = dict(zip(self.domain.names, self.intercepts.tolist(), strict=True))
        # Node laws of the rows, one node after the other; that of a category at the indicator that is set.
        log_probs = np.zeros((rows.num_rows, len(self.domain)))
        for index in rows.nodes:
            category = rows.category_of.get(index)
            inside = [index] if category is None else category.places.tolist()
            is_possible = np.ones(rows.num_rows, dtype=bool)
            names = [self.domain.names[position] for position in inside]
            for position, name in zip(inside, names, strict=True):
                if name in self.fixed_columns:
                    is_possible &= rows.column(position) == self.fixed_columns[name]
            names = [name for name in names if name not in self.fixed_columns]
            values = np.zeros(rows.num_rows)
            if names:
                terms = [RootTerm((1, 1), (name,), intercepts[name]) for name in names]
                terms += dict.fromkeys(term for name in names for term in terms_of[name])
                values = _log_density(rows, index, terms)
            places = index if category is None else category.places[category.codes]
            log_probs[np.arange(rows.num_rows), places] = np.where(is_possible, values, -np.inf)
        values = torch.from_numpy(log_probs)
        return values if by_node else values.sum(1)


def _log_density(rows: RootRows, node: int, terms: Iterable[RootTerm]) -> np.ndarray:
    """Log density of a node in all rows (n,), by its terms, among them its intercepts."""
    values = {JointTerm(term.key, rows.domain.indices(term.names)): term.coefficient for term in terms}
    values = to_contrasts(rows, values)
    constants = [term for term in values if term.key == (1, 1)]
    others = [term for term in values if term.key != (1, 1)]
    units = [rows.unit(term.key[0], term.positions) for term in (*constants, *others)]
    coefficients = np.array([values[term] for term in (*constants, *others)]) * units
    working = interactions(rows, node, others, [statistic(rows, node, term) for term in constants])
    log_density = working.log_density(coefficients)
    if node in rows.category_of:
        return log_density
    return log_density + rows.families[node].log_base(torch.from_numpy(rows.column(node))).numpy()


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


def structure_of(
    domain: Domain, values: Mapping[JointTerm, float], *, zeros: bool = False
) -> tuple[RootStructure, torch.Tensor]:
    """Structure of the linear terms and of those that are not zero, or of all, with their values, (num_terms,)."""
    by_key: dict[Key, dict[tuple[int, ...], float]] = {}
    for (key, positions), value in sorted(values.items()):
        if zeros or value != 0.0 or key == (1, 1):
            by_key.setdefault(key, {})[positions] = value
    structure = RootStructure.from_positions(domain, {key: list(terms) for key, terms in by_key.items()})
    ordered = [value for terms in by_key.values() for value in terms.values()]
    return structure, torch.tensor(ordered, dtype=torch.float64)
