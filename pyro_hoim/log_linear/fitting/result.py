"""The result of a fit: parameters, likelihood, how the solver ended, and what follows from them on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch

from ..._modes import plain_mode
from ...checks import check_exact_shape
from ...core.partition import PartitionBackend
from ...data.observations import Observations
from ...errors import MissingDataError, check_choice, out_of_reach, refused, size_text, unexpected
from ...results.fitted import Fitted
from ...runs.container import LOG_LINEAR
from ...structure.hypergraph import InteractionHypergraph
from ..coding import Coding, Reference, check_corner, parametrization, reference_matrix, to_reference
from ..energy import LogLinearEnergy
from ..impossible import ImpossibleStates, on_support
from ..restricted.terms import RestrictedInteractions
from ..sandwich import WeightKind, backend_hessian, covariance_of, known_statistics, missing_information, score_products
from .design import cell_codes, design_matrix, edge_basis, row_statistics
from .existence import Face, MLEExistence, cells_outside, identified_directions
from .identified import allowed, are_possible_comparisons, has_rank, identified_outside, is_within
from .penalties import Conjugate, CoupledPenalty, Penalty, SmoothPenalty, coding_of

if TYPE_CHECKING:
    from .pseudo_likelihood import LogLinearPseudoLikelihood

CovarianceKind = Literal["model", "robust"] | torch.Tensor
"""Whose standard errors: the model's, robust ones of the rows, or those of a covariance (num_parameters, same)."""

NO_ERRORS_OF_BOUND = "the curvature of a bound of the likelihood is not that of the likelihood"
"""Why a fit by a bound has no standard errors."""
HINT_OF_BOUND = "fit with objective='pseudo-likelihood', which has robust errors"
"""What has them."""
MAX_CELLS = 2**17
"""Cells of a table whose fitted probabilities are listed without a dense design."""
_MAX_COVARIANCE_PARAMETERS = 3000
_CHUNK = 256


@dataclass(frozen=True, eq=False, repr=False)
class FitResult(Fitted):
    """A fitted hierarchical log-linear model.

    Attributes:
        hypergraph: the interaction structure.
        theta: parameters (num_parameters,), float64, in :attr:`coding`, of the finite part: the law is that of
            :attr:`model`, which theta makes together with :attr:`impossible`. Where the estimate is infinite they are a
            finite member of the family near the limit.
        log_likelihood: of all rows, in nats; None where log Z is out of reach (of a large model that was fitted by its
            pseudo-likelihood or by a bound).
        log_partition: log Z of the balanced tables, or of corner tables in a corner family, in nats; None likewise.
            It sums over the states that are not :attr:`impossible`.
        num_rows: number of observations N (the sum of counts).
        status: ``converged``, ``infinite`` (converged towards an infinite estimate), ``max_iterations``, ``stalled``,
            ``diverged`` (fixed steps that are too long), ``early_stopped`` or ``interrupted``.
        num_iterations: iterations of the solver.
        gradient_norm: largest absolute entry of the gradient per row at these parameters.
        existence: whether the maximum-likelihood estimate is finite; None where the question does not arise (penalised
            fits) or was not decided (pseudo-likelihood without an empty margin).
        objective: as asked of the fit; ``likelihood`` where its bound would be the same.
        method, penalty, partition: as asked of the fit, or chosen by it; no backend where a design serves.
            The penalty says which coordinates it acts on; those are where the estimate has exact zeros.
        data, margins: the observations, or None; observed marginal counts (num_terms,), if the fit used them.
        structural_zeros: the states that the fit was told are impossible; None when there are none.
        impossible: the states of probability zero: structural zeros, and those that an infinite estimate excludes; None
            when there are none.
        best_iteration: iteration whose parameters these are, after early stopping.
        validation_kl: mean negative log-likelihood of the validation rows minus the entropy of their law, in nats, or
            of a bound what that is at most; for the pseudo-likelihood their mean negative log pseudo-likelihood; None
            without such rows.
        restriction: the subspace that :attr:`theta` was restricted to, if it was.
        recession: direction (num_parameters,) along which an infinite estimate runs away; None where there is none.
        log_likelihood_bound: a number that the log-likelihood of all rows is at least, in nats, certain to rounding, of
            a fit by its bound; None of others.
    """

    model_kind: ClassVar[str] = LOG_LINEAR

    hypergraph: InteractionHypergraph
    theta: torch.Tensor = field(repr=False)
    log_likelihood: float | None
    log_partition: float | None
    num_rows: float
    status: str
    num_iterations: int
    gradient_norm: float
    existence: MLEExistence | None
    objective: str
    method: str
    penalty: Penalty | None = None
    partition: PartitionBackend | None = field(default=None, repr=False)
    data: Observations | None = field(default=None, repr=False)
    margins: torch.Tensor | None = field(default=None, repr=False)
    structural_zeros: ImpossibleStates | None = field(default=None, repr=False)
    impossible: ImpossibleStates | None = field(default=None, repr=False)
    best_iteration: int | None = None
    validation_kl: float | None = None
    restriction: RestrictedInteractions | None = None
    recession: torch.Tensor | None = field(default=None, repr=False)
    log_likelihood_bound: float | None = None
    _face: Face | None = field(default=None, repr=False)
    _design: np.ndarray | None = field(default=None, repr=False)
    _penalised: torch.Tensor | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle or a copy holds: neither what is computed when it is asked for nor the design."""
        computed = {name for name in vars(self) if isinstance(getattr(type(self), name, None), cached_property)}
        state = {name: value for name, value in vars(self).items() if name not in computed}
        return state | {"_design": self._design is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The design is made again of the interactions."""
        design = design_matrix(state["hypergraph"]) if state["_design"] else None
        vars(self).update(state | {"_design": design})

    @property
    def coding(self) -> Coding:
        """The coding of :attr:`theta`: free, or corner where the collection has corner tables alone."""
        return parametrization(self.hypergraph).coding

    @property
    def penalty_value(self) -> float:
        """The penalty of the estimate, in nats; 0 without one."""
        if self.penalty is None:
            return 0.0
        theta = self.coefficients(coding_of(self.penalty)).numpy()
        return self.penalty.value(theta, self.hypergraph)

    def complete_data(self) -> Observations:
        """The observations; InputError or MissingDataError without any, or where they miss cells."""
        if self.data is None:
            received = "one to sufficient statistics"
            raise unexpected("result", "a fit to observations", received=received, code="missing-part")
        if self.data.has_missing:
            expected = "a fit to complete observations"
            received = f"{self.data.num_missing_cells} missing cells"
            hint = "fit with missing='drop', or to observations with missing_as_level(label)"
            raise MissingDataError(argument="result", expected=expected, received=received, hint=hint)
        return self.data

    @property
    def is_converged(self) -> bool:
        """Whether the solver met its criterion, also when the limit is infinite."""
        return self.status in ("converged", "infinite")

    @cached_property
    @plain_mode()
    def tables(self) -> torch.Tensor:
        """Interaction tables (num_terms,), balanced or those of a corner family."""
        return parametrization(self.hypergraph).to_tables(self.theta)

    @cached_property
    @plain_mode()
    def model(self) -> LogLinearEnergy:
        """The fitted law as an energy, with entries of minus infinity for :attr:`impossible` states.

        These may stand in tables of further sets of variables. ``LogLinearEnergy(result.hypergraph, result.tables)``
        has finite tables, and another law.
        """
        finite = LogLinearEnergy(self.hypergraph, self.tables)
        return finite if self.impossible is None else self.impossible.applied(finite)

    def coefficients(self, coding: Coding | None = None, reference: Reference | None = None) -> torch.Tensor:
        """Theta in a coding (num(coding),), its own by default; that of a penalty is what its solver found, to the bit.

        With ``reference`` corner theta against these levels. Codings of another family are refused.
        """
        if reference is not None:
            check_corner(coding or "corner", reference)
            return to_reference(self.hypergraph, self.theta, reference, self.coding)
        target = coding or self.coding
        if target == self.coding:
            return self.theta
        if self.penalty is not None and self._penalised is not None and target == coding_of(self.penalty):
            return self._penalised
        return parametrization(self.hypergraph).convert(self.theta, self.coding, target, validate=False)

    @property
    def num_parameters(self) -> int:
        """Free parameters of the family: those of the interactions, or the coefficients of restricted ones."""
        return (self.restriction or self.hypergraph).num_parameters

    @cached_property
    def possible(self) -> np.ndarray | None:
        """Mask (num_states,) of cells that are no structural zeros, of a listed table; None when all are possible."""
        return cells_outside(self.structural_zeros) if self.is_listed and self.structural_zeros is not None else None

    @property
    def num_cells_possible(self) -> int:
        """Cells that are no structural zeros."""
        return (
            self.hypergraph.domain.num_states if self.structural_zeros is None else self.structural_zeros.num_possible
        )

    @property
    def num_cells_fitted(self) -> int:
        """Possible cells that are not fitted as zero, as far as that is known."""
        return self.hypergraph.domain.num_states if self.impossible is None else self.impossible.num_possible

    @cached_property
    @plain_mode()
    def identified_by_possible(self) -> torch.Tensor | None:
        """Basis (num_parameters, rank) of what tables with the possible cells identify; None for all."""
        return self._identified_outside(self.structural_zeros)

    @cached_property
    @plain_mode()
    def identified_by_fitted(self) -> torch.Tensor | None:
        """The same of tables with the cells that are not fitted as zero."""
        return self._identified_outside(self.impossible)

    @cached_property
    def _has_rank(self) -> bool:
        """Whether it is a matter of seconds what a table beside impossible states identifies."""
        return has_rank(self.hypergraph, self.impossible)

    def _identified_outside(self, states: ImpossibleStates | None) -> torch.Tensor | None:
        is_countable = states is not None and (self.is_listed or self._has_rank)
        return identified_outside(self.hypergraph, states, self._design, self.restriction, is_countable)

    @property
    def num_parameters_possible(self) -> int:
        """Free parameters that tables with the possible cells identify (all, unless cells are impossible)."""
        basis = self.identified_by_possible
        return self.num_parameters if basis is None else basis.shape[1]

    @property
    def num_parameters_fitted(self) -> int:
        """Free parameters that the data identify (all, unless the estimate is infinite or cells are impossible)."""
        if self.penalty is not None:  # which makes an estimate of the rest, too
            return self.num_parameters_possible
        if self._face is not None:
            return self._face.basis.shape[1]
        if self.status == "infinite" and self.existence is not None and self.existence.num_parameters_lost is not None:
            return self.num_parameters - self.existence.num_parameters_lost
        if self.impossible is None:
            return self.num_parameters
        # Where directions are too many to be counted, there are at most as many as cells, less one.
        basis = self.identified_by_fitted
        return min(self.num_parameters, self.num_cells_fitted - 1) if basis is None else basis.shape[1]

    @property
    def is_support_known(self) -> bool:
        """Whether :attr:`impossible` are all states that the estimate excludes, where it excludes any."""
        return self.impossible is None or self.existence is None or self.existence.is_complete

    @property
    def is_counted_by_family(self) -> bool:
        """Whether :attr:`num_parameters_fitted` is all of the family, as those that the data identify are unknown."""
        existence = self.existence
        if existence is None or existence.exists is None or not existence.is_complete:
            return existence is not None
        is_known = self._face is not None or self.impossible is None or existence.num_parameters_lost is not None
        return not is_known and self.identified_by_fitted is None

    @property
    def is_bounded(self) -> bool:
        """Whether norms bound the parameters, as :mod:`pyro_hoim.log_linear.constrained` does."""
        return self.method in ("frank-wolfe", "douglas-rachford")

    @property
    def is_listed(self) -> bool:
        """Whether the fit listed every cell (a dense design), as fitted cells and their standard errors need."""
        return self._design is not None

    @property
    def has_cells(self) -> bool:
        """Whether :attr:`probs` are at hand."""
        is_small = self.hypergraph.domain.num_states <= MAX_CELLS and self.log_partition is not None
        return self.is_listed or is_small

    @cached_property
    @plain_mode()
    def probs(self) -> torch.Tensor:
        """Fitted cell probabilities (num_states,), row-major; IntractableError of too many cells or without log Z."""
        if self._design is None:
            if not self.has_cells or self.log_partition is None:
                cells = size_text(self.hypergraph.domain.num_states, "cells")
                problem = f"the table has {cells}, which are listed up to {MAX_CELLS:,} where log Z is known"
                raise out_of_reach("probs", problem, "ask for marginals of some columns instead")
            energy = self.model.energy(torch.from_numpy(cell_codes(self.hypergraph)))
            return torch.exp(-energy - self.log_partition)
        cells = np.ones(len(self._design), dtype=bool) if self._face is None else self._face.cells
        logits = np.where(cells, self._design @ self.theta.numpy(), -np.inf)
        weights = np.exp(logits - logits.max())
        return torch.from_numpy(weights / weights.sum())

    @cached_property
    @plain_mode()
    def information(self) -> torch.Tensor:
        r"""Information of the data about theta, :math:`N \operatorname{Cov}_\theta[X]`; a pseudo-likelihood's Hessian.

        With missing cells it is the observed information, from which each row takes :math:`\operatorname{Cov}_\theta[X
        \mid x_O]`. The Hessian of a smooth penalty is added. On a small table it costs O(cells x parameters^2), with
        missing cells for every distinct row; otherwise one backward pass for every parameter.

        Shape:
            result (num_parameters, num_parameters).

        Raises:
            InputError: the penalty is not smooth, or norms bound the fit.
            MissingDataError: missing cells and no dense design.
            IntractableError: more than 3,000 parameters.

        References:
            Thomas Louis, Finding the observed information matrix when using the EM algorithm, 1982, equation (3.2).
        """
        # Only a smooth objective without bounds, of so many parameters, has an information.
        if self.is_bounded:
            problem = "the fit is bounded by norms, so its scores do not vanish"
            raise refused("covariance", problem, "fit the interactions that it keeps without bounds", code="no-method")
        if self.objective == "bound":
            raise refused("covariance", NO_ERRORS_OF_BOUND, HINT_OF_BOUND, code="no-method")
        if self.penalty is not None and not isinstance(self.penalty, SmoothPenalty | Conjugate):
            problem = f"{self.penalty!r} is not smooth"
            raise refused("covariance", problem, "refit without a penalty or with L2", code="no-method")
        size = self.hypergraph.num_parameters
        if size > _MAX_COVARIANCE_PARAMETERS:
            problem = f"{size} parameters, the limit is {_MAX_COVARIANCE_PARAMETERS}"
            raise out_of_reach("covariance", problem, "use a posterior instead")
        # Fictive rows count as rows.
        num_rows = self.num_rows + (self.penalty.num_rows if isinstance(self.penalty, Conjugate) else 0.0)
        if self.objective == "pseudo-likelihood":
            information = torch.from_numpy(-self._pseudo().hessian(self.theta.numpy()))
        elif self._design is not None:
            information = torch.from_numpy(num_rows * covariance_of(self._design, self.probs.numpy()))
            if self.data is not None and self.data.has_missing:
                lost = missing_information(self.hypergraph, self.data, self._design, self.probs.numpy())
                information = information - torch.from_numpy(lost)
        elif self.data is not None and self.data.has_missing:
            problem = f"{self.data.num_missing_cells} missing cells and a table without a dense design"
            hint = "fit with missing='drop', or use a posterior"
            raise MissingDataError(problem, argument="covariance", hint=hint)
        else:
            assert self.partition is not None
            information = num_rows * backend_hessian(
                self.hypergraph, self.theta, on_support(self.partition, self.impossible)
            )
        # The Hessian of the penalty, in the coordinates of the family.
        if isinstance(self.penalty, SmoothPenalty):
            information = information + self._penalty_hessian(self.penalty)
        return information

    def _penalty_hessian(self, penalty: SmoothPenalty) -> torch.Tensor:
        """Hessian (num_parameters, num_parameters) of a penalty in the coordinates of the family."""
        coding = coding_of(penalty)
        if isinstance(penalty, CoupledPenalty) and not penalty.is_diagonal(self.hypergraph):
            units = np.eye(self.hypergraph.num_parameters)  # of a quadratic penalty
            hessian = torch.from_numpy(np.stack([penalty.gradient(unit, self.hypergraph) for unit in units]))
        else:
            theta = self.coefficients(coding).numpy()
            hessian = torch.diag(torch.from_numpy(penalty.hessian_diagonal(theta, self.hypergraph)))
        if coding == self.coding:
            return hessian
        change = parametrization(self.hypergraph).matrix(self.coding, coding)
        return change.T @ hessian @ change

    @cached_property
    @plain_mode()
    def covariance(self) -> torch.Tensor:
        """Asymptotic covariance (num_parameters, num_parameters), the inverse of :attr:`information`.

        Where the estimate is infinite it is the pseudo-inverse on what the data identify: variances of directions that
        are not identified are zero here and reported as infinite by the tables of standard errors.

        Raises:
            InputError: see :attr:`information`.
            IntractableError: likewise; or the estimate is infinite, or may be, and what is identified is not known; or
                the observed cells do not identify every parameter.
        """
        # On what the data identify the information must be regular; a penalty makes it so everywhere.
        basis = self.identified if self.penalty is None else None
        information = self.information
        if basis is not None:
            information = basis.T @ information @ basis
        values, vectors = torch.linalg.eigh(information)
        if len(values) and not bool(values[0] > len(values) * 1e-15 * values[-1]):
            problem = "the information is singular, so the observed cells do not identify every parameter"
            hint = "add a penalty such as L2, or remove interactions"
            raise out_of_reach("covariance", problem, hint, code="no-method")
        if basis is not None:
            vectors = basis @ vectors
        # An estimate that may be infinite has no covariance.
        existence = self.existence
        is_open = existence is not None and (existence.exists is None or not existence.is_complete)
        is_open = is_open and self.objective == "likelihood"
        if is_open and not self._is_finite(values, vectors):
            problem = (
                "whether the estimate is finite was not decided for this table, and a gradient of "
                f"{self.gradient_norm:.2g} per row does not show it"
            )
            hint = "refit with a smaller tolerance, or with a penalty such as L2"
            raise out_of_reach("covariance", problem, hint, code="no-method")
        return (vectors / values) @ vectors.T

    @cached_property
    @plain_mode()
    def identified(self) -> torch.Tensor | None:
        """Basis (num_parameters, rank) of what the data identify; None for all."""
        # What a face, a restriction or a facial set says.
        if self._face is not None:
            return torch.from_numpy(np.ascontiguousarray(self._face.basis))
        if self.existence is not None and self.existence.facial_set is not None and not self.existence.exists:
            basis = identified_directions(design_matrix(self.hypergraph), self.existence.facial_set)
            return torch.from_numpy(np.ascontiguousarray(basis))
        if self.impossible is None or self._has_rank:
            return self.identified_by_fitted
        # In a decomposable model every forced zero lies in an empty margin (a clique's cell that was never observed).
        size = self.hypergraph.num_parameters
        is_inside = all(edge in self.hypergraph for edge in self.impossible.structure.edges)
        if not (self.hypergraph.is_decomposable and is_inside) or size > _MAX_COVARIANCE_PARAMETERS:
            problem = "the table and its model are too large to tell what the data identify beside impossible states"
            hint = "refit with a penalty such as L2, or without the interactions of these states"
            raise out_of_reach("covariance", problem, hint)
        gram = torch.zeros(size, size, dtype=torch.float64)
        for part in self._empty.split(_CHUNK):
            tables = torch.nn.functional.one_hot(part, self.hypergraph.num_terms).to(torch.float64)
            directions = parametrization(self.hypergraph).from_tables(tables)
            gram += directions.T @ directions
        values, vectors = torch.linalg.eigh(gram)
        return vectors[:, values <= 1e-10 * values[-1]].contiguous()

    @cached_property
    @plain_mode()
    def _empty(self) -> torch.Tensor:
        """Positions of the entries of the observed marginal tables that are zero."""
        return (self._margins_of_rows <= 0).nonzero().squeeze(-1)

    @cached_property
    @plain_mode()
    def _margins_of_rows(self) -> torch.Tensor:
        """Observed marginal counts (num_terms,), also where the fit took its sums over the rows."""
        if self.margins is not None:
            return self.margins
        assert self.data is not None
        return self.data.marginal_counts(self.hypergraph.edges)

    def _is_finite(self, values: torch.Tensor, vectors: torch.Tensor) -> bool:
        r"""Whether the gradient is so small that the loss must have a minimum nearby.

        The mean loss f obeys :math:`|\nabla^3 f[v, v, v]| \le R \|v\| \nabla^2 f[v, v]` with R the largest distance
        of two cells' statistics, hence along v it is at least :math:`-\nu s + s^2 h(R \|v\|)` above its value here,
        with :math:`\nu^2 = \nabla f \cdot H^{-1} \nabla f`, :math:`s^2 = v \cdot H v` and
        :math:`h(u) = (e^{-u} + u - 1) / u^2`. That grows without bound in every direction when
        :math:`\nu R < \sqrt{\lambda_{\min}(H)}`; half of it is asked for. Francis Bach, Self-concordant analysis for
        logistic regression, 2010, propositions 1 and 2.

        With missing cells f is the loss that the next step of EM minimises. It has the same gradient here, and the
        observed information, which is smaller than its Hessian, stands for H.
        """
        if not len(values):
            return True
        if self.data is not None and self.data.has_missing:
            rows = self.data.unique()
            change = torch.from_numpy(-rows.counts.numpy() @ self._scores_of(rows.codes.numpy())) / self.num_rows
        else:
            observed = parametrization(self.hypergraph).mean_statistics(self._margins_of_rows) / self.num_rows
            change = self.mean_statistics - observed
        gradient = vectors.T @ change
        decrement = float((gradient**2 * self.num_rows / values).sum().sqrt())
        shapes = self.hypergraph.edge_shapes
        diameter = 2 * math.sqrt(sum(math.prod(1 - 1 / n for n in shape) for shape in shapes))
        if self.coding == "corner":  # two cells differ by at most two indicators of every interaction
            diameter = math.sqrt(2 * len(shapes))
        return decrement * diameter < 0.5 * math.sqrt(float(values[0]) / self.num_rows)

    def is_identified(self, contrasts: torch.Tensor) -> torch.Tensor:
        """Whether linear functions (k, num_parameters) of theta are identified by the data, (k,).

        An infinite estimate of a large table that is not decomposable is judged by its empty margins alone: False is
        certain, True means that no empty margin stands against it.
        """
        if self.impossible is None or self._face is not None or self._has_rank:
            return self._is_within(contrasts, self.identified)
        if not self.hypergraph.is_hierarchical:  # whose tables are not free to move one by one
            return torch.ones(len(contrasts), dtype=torch.bool)
        # An entry of a table with an empty margin can fall without end; what moves with it is not identified.
        scale = 1e-7 * contrasts.norm(dim=1).clamp(min=1e-300)
        contrasts = self._allowed(contrasts)
        moved: list[torch.Tensor] = []
        for part in contrasts.split(_CHUNK):
            with torch.enable_grad():
                tables = torch.zeros(len(part), self.hypergraph.num_terms, dtype=torch.float64, requires_grad=True)
                free = parametrization(self.hypergraph).from_tables(tables)
                (effect,) = torch.autograd.grad(free, tables, part)
            moved.append(effect[:, self._empty].norm(dim=1))
        return torch.cat([contrasts.new_zeros(0), *moved]) <= scale

    def _is_possible_comparison(self, functions: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Whether possible states determine linear functions of theta, as :func:`are_possible_comparisons`."""
        states = self.structural_zeros
        return are_possible_comparisons(
            self.hypergraph,
            states,
            self._design,
            self.restriction,
            functions,
            basis=lambda: self.identified_by_possible,
            is_countable=states is not None and (self.is_listed or self._has_rank),
        )

    def _allowed(self, directions: torch.Tensor) -> torch.Tensor:
        return allowed(directions, self.restriction)

    def _is_within(self, contrasts: torch.Tensor, basis: torch.Tensor | None) -> torch.Tensor:
        return is_within(contrasts, basis, self.restriction)

    @cached_property
    @plain_mode()
    def mean_statistics(self) -> torch.Tensor:
        """Expected statistics (num_parameters,) of the fitted model in its own coding."""
        if self._design is not None:
            return torch.from_numpy(self.probs.numpy() @ self._design)
        assert self.partition is not None
        backend, finite = on_support(self.partition, self.impossible), LogLinearEnergy(self.hypergraph, self.tables)
        return parametrization(self.hypergraph).mean_statistics(backend.expectations(finite).detach())

    @cached_property
    def effective_num_rows(self) -> float:
        r"""Kish's effective number of rows, :math:`(\sum_i w_i)^2 / \sum_i w_i^2`; N of whole counts."""
        if self.data is None or self.data.has_whole_counts:
            return self.num_rows
        return self.data.effective_count

    def robust_covariance(
        self,
        *,
        clusters: Sequence[Any] | None = None,
        strata: Sequence[Any] | None = None,
        weights: WeightKind = "auto",
    ) -> torch.Tensor:
        r"""Sandwich covariance (num_parameters, num_parameters), valid for survey weights, clusters and wrong models.

        .. math:: A^{-1} B A^{-1}, \qquad A = \sum_i w_i \operatorname{Cov}_\theta[X], \qquad
            B = \sum_h \frac{n_h}{n_h - 1} \sum_{u \in h} (z_u - \bar z_h)(z_u - \bar z_h)^\top, \qquad
            z_u = \sum_{i \in u} w_i (X(x_i) - \operatorname{E}_\theta X)

        The scores are added up over the sampling units u, which are drawn with replacement within strata h: rows, or
        clusters of them. Multiplying all sampling weights by a number changes nothing here, whereas it divides
        :attr:`covariance`, which takes weights for numbers of observations. With clusters or strata the rows must be
        those that were sampled, since equal rows that were merged have lost theirs. Rows of weight zero are left out. A
        penalty's Hessian is part of A, so that errors are those of the penalised estimate about its own limit.

        Args:
            clusters: what every row of :attr:`data` belongs to (primary sampling units, persons), (N,).
            strata: the stratum of every row, (N,); a cluster lies in one stratum.
            weights: ``sampling`` (a row is one unit, whatever its weight), ``frequency`` (a row of weight c is c units)
                or ``auto``: frequency of counts, sampling of what was named as weights and of fractions. Clusters make
                it the same.

        Raises:
            InputError: see :attr:`information`; a column of another length or with missing values, a cluster in two
                strata, a stratum of one unit, or a fit to sufficient statistics.
            MissingDataError: a fit to rows with missing cells that did not list every cell of the table.
            IntractableError: see :attr:`covariance`; or too many clusters times parameters.

        References:
            Halbert White, Maximum likelihood estimation of misspecified models, 1982, theorem 3.2; David Binder, On the
            variances of asymptotically normal estimators from complex surveys, 1983, section 3.

        Example:
            >>> from pyro_hoim import Domain, fit
            >>> domain = Domain.from_cardinalities({"a": 2})
            >>> data = Observations(domain, torch.tensor([[0], [0], [1], [1]]), torch.tensor([0.5, 2.0, 1.5, 1.0]))
            >>> result = fit(InteractionHypergraph.from_order(domain, 1), data)
            >>> errors = [result.standard_errors("corner", kind).item() for kind in ("model", "robust")]
            >>> [round(error, 3) for error in errors]
            [0.894, 1.265]
        """
        data = self.data if self.data is not None and self.is_listed else self.complete_data()
        bread, size = self.covariance, self.hypergraph.num_parameters
        middle = score_products(self._scores_of, size, data, clusters=clusters, strata=strata, weights=weights)
        return bread @ torch.from_numpy(middle) @ bread

    def _scores_of(self, rows: np.ndarray) -> np.ndarray:
        """Scores (U, num_parameters) of distinct rows (U, d) in lexicographic order."""
        if self.objective == "pseudo-likelihood":
            return self._pseudo(rows).row_scores(self.theta.numpy())
        mean = self.mean_statistics.numpy()
        if (rows < 0).any():
            assert self._design is not None
            return known_statistics(self.hypergraph, rows, self._design, self.probs.numpy()) - mean
        return row_statistics(self.hypergraph, rows) - mean

    def _pseudo(self, rows: np.ndarray | None = None) -> LogLinearPseudoLikelihood:
        """The pseudo-likelihood of the data, or of distinct rows."""
        from .pseudo_likelihood import LogLinearPseudoLikelihood

        data = self.complete_data()
        if rows is not None:
            data = Observations.from_tensor(torch.from_numpy(rows), data.domain)
        return LogLinearPseudoLikelihood(self.hypergraph, data, coding=self.coding, impossible=self.impossible)

    @cached_property
    @plain_mode()
    def _robust(self) -> torch.Tensor:
        return self.robust_covariance()

    @property
    def usual_covariance(self) -> Literal["model", "robust"]:
        """Whose standard errors are the default: "robust" of weighted rows and of a pseudo-likelihood, else "model".

        Weighted rows with missing cells have robust ones where the fit listed every cell.
        """
        if self.data is None:
            return "model"
        has_scores = self.is_listed or not self.data.has_missing
        is_robust = self.objective != "likelihood" or not self.data.has_whole_counts
        return "robust" if is_robust and has_scores else "model"

    def covariance_of_kind(self, kind: CovarianceKind | None) -> torch.Tensor:
        """:attr:`covariance` for "model", :meth:`robust_covariance` of the rows for "robust", a given one as it is.

        None stands for :attr:`usual_covariance`.
        """
        if kind is None:
            kind = self.usual_covariance
        if isinstance(kind, torch.Tensor):
            size = self.hypergraph.num_parameters
            check_exact_shape(kind, (size, size), "covariance")
            return kind
        check_choice(kind, ("model", "robust"), "covariance")
        if kind == "model" and self.objective == "pseudo-likelihood":
            problem = "the inverse Hessian of a pseudo-likelihood is no covariance"
            raise refused("covariance", problem, "take 'robust', the default", code="no-method")
        return self.covariance if kind == "model" else self._robust

    def standard_errors(
        self, coding: Coding | None = None, covariance: CovarianceKind | None = None, reference: Reference | None = None
    ) -> torch.Tensor:
        """Standard errors (num(coding),) of :meth:`coefficients`, infinite where not identified.

        They are those of :attr:`covariance` for "model", of the defaults of :meth:`robust_covariance` for "robust", or
        of what that gave; by default of :attr:`usual_covariance`.
        """
        if reference is not None:
            check_corner(coding or "corner", reference)
            return self.contrast_errors(reference_matrix(self.hypergraph, self.coding, reference), covariance)
        coding = coding or self.coding
        if coding != "balanced" or self.coding == "corner":
            return self.contrast_errors(parametrization(self.hypergraph).matrix(self.coding, coding), covariance)
        # A balanced table depends on its own hyperedge's parameters alone.
        matrix, pieces = self.covariance_of_kind(covariance), [torch.zeros(0, dtype=torch.float64)]
        size = self.hypergraph.num_parameters
        shapes = self.hypergraph.edge_shapes
        for where, shape in zip(self.hypergraph.parameter_slices.values(), shapes, strict=True):
            basis = torch.from_numpy(edge_basis(shape))
            errors = ((basis @ matrix[where, where]) * basis).sum(1).clamp(min=0).sqrt()
            padded = torch.nn.functional.pad(basis, (where.start, size - where.stop))
            pieces.append(errors.masked_fill(~self.is_identified(padded), float("inf")))
        return torch.cat(pieces)

    def contrast_errors(self, contrasts: torch.Tensor, covariance: CovarianceKind | None = None) -> torch.Tensor:
        """Standard errors (k,) of linear functions (k, num_parameters) of theta, likewise."""
        variances = ((contrasts @ self.covariance_of_kind(covariance)) * contrasts).sum(1).clamp(min=0)
        return variances.sqrt().masked_fill(~self.is_identified(contrasts), float("inf"))
