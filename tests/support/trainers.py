"""The conformance suite of trainers: the laws of the contract, on collections small enough to enumerate."""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from pyro_hoim import InteractionHypergraph, Observations
from pyro_hoim.core.trainer import Trainer, TrainingReport
from pyro_hoim.log_linear.coding import parametrization
from pyro_hoim.testing import assert_close, assert_equal, exact_log_partition, exact_table, standard_hypergraphs
from pyro_hoim.testing.conformance import run_cases

MakeTrainer = Callable[[Observations, InteractionHypergraph], Trainer]


@dataclass(frozen=True)
class TrainerCase:
    """A way to make trainers, with a goal for their collection.

    Args:
        make: of training rows and a first collection; equal calls must make equal trainers.
        hypergraph: the collection to end with, small enough to enumerate.
        margin_tolerance: largest allowed total variation between margins and the enumerated law.
        loss_tolerance: largest allowed difference between loss or log Z and enumeration, relative to max(1, value).
    """

    make: MakeTrainer
    hypergraph: InteractionHypergraph
    margin_tolerance: float = 1e-10
    loss_tolerance: float = 1e-10

    def rows(self, offset: int = 0) -> Observations:
        """Random rows, every state at least once; the same on every call."""
        domain = self.hypergraph.domain
        rng = np.random.default_rng(offset)
        return Observations.from_table(domain, 1 + rng.poisson(4.0, domain.cardinalities))

    def first(self) -> InteractionHypergraph:
        """Single variables only."""
        domain = self.hypergraph.domain
        return InteractionHypergraph(domain, [(name,) for name in domain.names])

    def started(self) -> Trainer:
        """A trainer that has the collection of single variables."""
        return self.make(self.rows(), self.first())

    def trained(self, *, is_new: bool = False) -> Trainer:
        """A trainer of the whole collection, trained once: a copy of the one that all checks share, or a new one."""
        if not is_new:
            return copy.deepcopy(self._trained)
        trainer = self.started()
        trainer.restructure(self.hypergraph)
        trainer.train()
        return trainer

    @cached_property
    def _trained(self) -> Trainer:
        return self.trained(is_new=True)


def check_contract(case: TrainerCase) -> None:
    """The protocol is met; a trainer begins with the given collection and zeros but for single variables."""
    trainer = case.make(case.rows(), case.hypergraph)
    is_trainer = isinstance(trainer, Trainer)
    if not is_trainer:
        raise AssertionError(f"{type(trainer).__name__}: expected everything that Trainer names")
    if trainer.hypergraph != case.hypergraph:
        raise AssertionError("hypergraph: expected the collection that the trainer was made with")
    for edge, where in case.hypergraph.term_slices.items():
        if len(edge) > 1 and bool(trainer.tables[where].any()):
            raise AssertionError(f"tables: expected zeros for {edge!r} before training")
    report = trainer.train()
    if not isinstance(report, TrainingReport) or report.status not in ("converged", "max_iterations"):
        raise AssertionError(f"train: received {report!r}, expected a report of a run that did not diverge")


def check_balanced(case: TrainerCase) -> None:
    """Tables are float64, in the layout of the collection, finite and balanced."""
    trainer = case.trained()
    tables = trainer.tables
    if tables.dtype != torch.float64 or tuple(tables.shape) != (case.hypergraph.num_terms,):
        raise AssertionError(f"tables: received {tables.dtype} of shape {tuple(tables.shape)}")
    parametrization(case.hypergraph).convert(tables, "balanced", "free")  # refuses tables that are not balanced
    for edge, table in parametrization(case.hypergraph).split(tables).items():
        for axis in range(table.ndim):
            assert_close(table.sum(axis), np.zeros(table.sum(axis).shape), relative=0, absolute=1e-9, what=f"{edge}")


def check_tables_are_not_shared(case: TrainerCase) -> None:
    """Writing into the tables or the state that a trainer handed out changes nothing."""
    trainer = case.trained()
    before = trainer.tables.clone()
    trainer.tables.add_(1.0)
    for value in trainer.state_dict().values():
        if value.is_floating_point():
            value.add_(1.0)
    assert_equal(trainer.tables, before, "tables after a write into what was handed out")


def check_restructure(case: TrainerCase) -> None:
    """The same collection changes nothing; common tables are kept and new ones zero, growing and shrinking."""
    trainer = case.trained()
    before = trainer.tables.clone()
    trainer.restructure(InteractionHypergraph(case.hypergraph.domain, case.hypergraph.edges, hierarchical=False))
    assert_equal(trainer.tables, before, "tables after restructure to the same collection")
    domain = case.hypergraph.domain
    pairs = list(itertools.combinations(domain.names, 2))
    for edges in ([(name,) for name in domain.names], pairs, [*case.hypergraph.edges, *pairs], []):
        old, tables = trainer.hypergraph, trainer.tables.clone()
        new = InteractionHypergraph(domain, edges, hierarchical=False)
        trainer.restructure(new)
        if trainer.hypergraph != new:
            raise AssertionError("hypergraph: expected the collection that the trainer went over to")
        for edge, where in new.term_slices.items():
            kept = old.term_slices.get(edge)
            expected = torch.zeros(where.stop - where.start).double() if kept is None else tables[kept]
            assert_equal(trainer.tables[where], expected, f"tables of {edge!r} after restructure")


def check_determinism(case: TrainerCase) -> None:
    """Equal arguments and equal calls give equal tables, whatever global random state is."""
    first = case.trained()
    with torch.random.fork_rng():
        torch.manual_seed(99)
        second = case.trained(is_new=True)
    assert_equal(first.tables, second.tables, "tables of two trainers that received equal calls")


def check_state(case: TrainerCase) -> None:
    """A trainer that loads another's state goes on as that one does."""
    first, second = case.trained(), case.started()
    second.restructure(case.hypergraph)
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    assert_equal(second.tables, first.tables, "tables after load_state_dict")
    first.train()
    second.train()
    assert_equal(second.tables, first.tables, "tables of a resumed trainer after one more call")


def check_margins(case: TrainerCase) -> None:
    """Margins sum to one and agree with the enumerated law, also for sets that are no interactions."""
    trainer = case.trained()
    domain = case.hypergraph.domain
    law = np.exp(exact_table(case.hypergraph, trainer.tables))
    pairs = list(itertools.combinations(domain.names, 2))
    edges = [*case.hypergraph.edges, *pairs, *itertools.combinations(domain.names, 3)]
    probs, sample_size = trainer.margins(edges)
    if probs.dtype != torch.float64 or not sample_size > 0:
        raise AssertionError(f"margins: received {probs.dtype} with sample size {sample_size}")
    start = 0
    for edge in edges:
        keep = domain.indices(edge)
        exact = law.sum(tuple(i for i in range(len(domain)) if i not in keep)).reshape(-1)
        found = probs[start : start + exact.size].numpy()
        start += exact.size
        assert_close(found.sum(), 1.0, relative=1e-9, what=f"sum of the margin of {edge!r}")
        distance = 0.5 * float(np.abs(found - exact).sum())
        if not distance <= case.margin_tolerance:
            raise AssertionError(f"margin of {edge!r}: total variation {distance:.3g} from the enumerated law")
    if start != len(probs):
        raise AssertionError(f"margins: received {len(probs)} entries, expected {start}")


def check_loss(case: TrainerCase) -> None:
    """The loss equals enumeration: the negative log-likelihood, or the negative log pseudo-likelihood."""
    trainer = case.trained()
    table = exact_table(case.hypergraph, trainer.tables)
    for offset in (0, 1):
        rows = case.rows(offset)
        loss = trainer.loss(rows)
        counts = rows.table().numpy()
        if loss.kind == "pseudo-likelihood":
            terms = sum(table - np.logaddexp.reduce(table, axis, keepdims=True) for axis in range(table.ndim))
        else:
            terms = table
        expected = -float((counts * terms).sum() / counts.sum())
        allowed = case.loss_tolerance * max(1.0, abs(expected))
        if not abs(loss.value - expected) <= allowed:
            raise AssertionError(f"loss: received {loss.value!r}, enumeration gives {expected!r}")
        if loss.kind in ("exact", "pseudo-likelihood") and loss.std_error != 0:
            raise AssertionError(f"loss: standard error {loss.std_error} of an exact value")


def check_log_partition(case: TrainerCase) -> None:
    """Log Z, where it is offered, equals enumeration."""
    trainer = case.trained()
    result = trainer.log_partition()
    if result is not None:
        expected = float(exact_log_partition(case.hypergraph, trainer.tables))
        allowed = case.loss_tolerance * max(1.0, abs(expected))
        if not abs(float(result.value) - expected) <= allowed:
            raise AssertionError(f"log Z: received {float(result.value)!r}, enumeration gives {expected!r}")


def check_improvement(case: TrainerCase) -> None:
    """Training interactions that begin at zero lowers the loss of the training rows, up to the tolerance."""
    free = case.hypergraph.parameter_slices.items()
    if not any(len(edge) > 1 and where.stop > where.start for edge, where in free):
        return  # single variables begin near their optimum, and a penalty then makes the loss rise
    trainer = case.started()
    trainer.restructure(case.hypergraph)
    before = trainer.loss(case.rows()).value
    trainer.train()
    after = trainer.loss(case.rows()).value
    if not after <= before + case.loss_tolerance * max(1.0, abs(before)):
        raise AssertionError(f"loss: {before!r} before training, {after!r} after it")


TRAINER_CHECKS: tuple[Callable[[TrainerCase], None], ...] = (
    check_contract,
    check_balanced,
    check_tables_are_not_shared,
    check_restructure,
    check_determinism,
    check_state,
    check_margins,
    check_loss,
    check_log_partition,
    check_improvement,
)
"""Every law of a trainer."""


def check_trainer(
    make: MakeTrainer,
    *,
    hypergraphs: dict[str, InteractionHypergraph] | None = None,
    margin_tolerance: float = 1e-10,
    loss_tolerance: float = 1e-10,
) -> None:
    """Hold a trainer to the contract of :class:`~pyro_hoim.core.trainer.Trainer`; see :class:`TrainerCase`.

    Collections over no variables are left out. Every failure is listed in one AssertionError. Exact trainers keep the
    tolerances, others pass what their sampling allows at the library's false-alarm rate.

    Example:
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> graphs = {"one variable": standard_hypergraphs()["one variable"]}
        >>> check_trainer(ExactTrainer, hypergraphs=graphs)
        >>> check_trainer(lambda rows, graph: None, hypergraphs=graphs)
        Traceback (most recent call last):
        AssertionError: 9 checks failed: one variable: check_contract: AssertionError: NoneType: expected everything ...
    """
    cases = (
        (name, TrainerCase(make, hypergraph, margin_tolerance, loss_tolerance))
        for name, hypergraph in (standard_hypergraphs() if hypergraphs is None else hypergraphs).items()
        if len(hypergraph.domain)
    )
    run_cases(TRAINER_CHECKS, cases)
