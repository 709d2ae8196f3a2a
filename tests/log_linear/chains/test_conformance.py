"""The conformance suite of engines on every engine, and broken engines that it must refuse."""

import numpy as np
import pytest
import torch

from pyro_hoim.compute.engine import NOTHING
from pyro_hoim.errors import InputError
from pyro_hoim.log_linear.chains.products_engine import ProductsEngine
from pyro_hoim.log_linear.chains.tables_engine import TablesEngine
from pyro_hoim.log_linear.chains.torch_engine import TorchEngine
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import standard_hypergraphs

from support.engines import ENGINE_CHECKS, EngineCase, binary_hypergraphs, check_engine

CASES = [
    pytest.param(ProductsEngine, binary_hypergraphs(), id="products"),
    pytest.param(TablesEngine, standard_hypergraphs(), id="tables"),
    pytest.param(TorchEngine, standard_hypergraphs(), id="torch"),
]


@pytest.mark.parametrize(("engine", "graphs"), CASES)
def test_engine_obeys_the_contract(engine, graphs):
    check_engine(engine, hypergraphs=graphs, separate_streams=engine is not TorchEngine)


def test_tables_engine_has_many_levels():
    """Codes of 257 levels need more than a byte; the law of so many states is tested on chains."""
    domain = Domain.from_cardinalities({"a": 257, "b": 2})
    graph = {"wide": InteractionHypergraph(domain, [("a", "b")], closure=True)}
    skip = ("check_sweep_law", "check_exact_start", "check_independence", "check_annealing")
    check_engine(TablesEngine, hypergraphs=graph, skip=skip)
    check_engine(TorchEngine, hypergraphs=graph, separate_streams=False, skip=skip)


# Engines with one fault each


class _Identity(TorchEngine):
    """Never moves."""

    def _draw(self, batch, uniform, is_tempered):
        pass


class _Together(TorchEngine):
    """Draws all blocks of a sweep from the old state, neighbours too."""

    def _plan(self, row):
        return [tuple(dict.fromkeys(row))] if row else []


class _BetaOff(TorchEngine):
    """Runs at 0.95 times the inverse temperature."""

    def _set_beta(self, beta):
        return super()._set_beta(0.95 * beta)


class _NoReference(TorchEngine):
    """Forgets the reference law below beta 1."""

    def _draw(self, batch, uniform, is_tempered):
        kept, self._reference = self._reference, 0 * self._reference
        super()._draw(batch, uniform, is_tempered)
        self._reference = kept


class _OneGroup(TorchEngine):
    """Gives every group the conditionals of the first."""

    def _draw(self, batch, uniform, is_tempered):
        kept, self._tables = self._tables, self._tables[:1].expand_as(self._tables).contiguous()
        super()._draw(batch, uniform, is_tempered)
        self._tables = kept


class _Dropped(TorchEngine):
    """Its conditionals lack the last interaction."""

    def set_weights(self, tables, reference):
        super().set_weights(tables, reference)
        self._tables[:, list(self._hypergraph.term_slices.values())[-1]] = 0


class _Stale(TorchEngine):
    """Keeps the energies of the first weights."""

    def energies(self):
        kept, self._exact = self._exact, getattr(self, "_first", self._exact)
        energies = super().energies()
        self._exact = kept
        return energies

    def set_weights(self, tables, reference):
        super().set_weights(tables, reference)
        if not hasattr(self, "_first"):
            self._first = tuple(part.clone() for part in self._exact)


class _Drift(TorchEngine):
    """Its energies have the precision of the conditionals."""

    def _energies_of(self, tables):
        return super()._energies_of(tables.to(self._dtype)).to(self._dtype).double()


class _Shared(TorchEngine):
    """All groups use the same random numbers."""

    def _draw(self, batch, uniform, is_tempered):
        super()._draw(batch, uniform, is_tempered)
        self._states[:, 1:] = self._states[:, :1]  # with equal weights and states, what shared numbers come to


class _Twins(TorchEngine):
    """Chain c + 16 repeats chain c."""

    def _draw(self, batch, uniform, is_tempered):
        super()._draw(batch, uniform, is_tempered)
        n = self._states.shape[2] // 32 * 32
        folded = self._states[..., :n].unflatten(2, (-1, 2, 16))
        folded[..., 1, :] = folded[..., 0, :]


class _Repeats(TorchEngine):
    """Every call starts from the same random numbers."""

    def _sweep(self, row, is_tempered):
        self._generator.manual_seed(0)
        super()._sweep(row, is_tempered)


class _OneRow(TorchEngine):
    """Visits the first row of the order in every sweep."""

    def sweep(self, order, *args, **kwargs):
        return super().sweep(order[:1], *args, **kwargs)

    def anneal(self, order, *args):
        return super().anneal(order[:1], *args)


class _LateWeight(TorchEngine):
    """Adds to the annealed weight after the sweep instead of before."""

    def anneal(self, order, betas, sweeps_per_step):
        weights, row = torch.zeros_like(self._slope), 0
        for k in range(1, len(betas)):
            is_tempered = self._set_beta(np.full(self._shape[0], betas[k]))
            for _ in range(sweeps_per_step):
                self._sweep(tuple(order[row % len(order)].tolist()), is_tempered)
                row += 1
            self._set_slope()
            weights += (betas[k] - betas[k - 1]) * self._slope
        return weights


class _Counts(TorchEngine):
    """Counts the chains of the first group only."""

    def statistics(self, weights=None):
        total = super().statistics(weights)
        return total[:1].expand_as(total).clone()


class _Thin(TorchEngine):
    """Records before the sweep."""

    def sweep(self, order, num_sweeps, beta, wanted=NOTHING):
        before = self.get_codes().to(self._code)
        record = super().sweep(order, num_sweeps, beta, wanted)
        if record.states is not None and len(record.states):
            record.states[-1] = before
        return record


class _Forgets(TorchEngine):
    """Does not restore its random numbers."""

    def load_state(self, state):
        super().load_state({**state, "generator": self._generator.get_state()})


class _Gather(TorchEngine):
    """Resamples the states within the first group only."""

    def gather(self, index):
        super().gather(torch.cat([index[:1], torch.arange(index.shape[1]).expand_as(index[1:])]))


class _Global(TorchEngine):
    """Draws from the global generator."""

    def _draw_uniforms(self, count):
        self._generator.manual_seed(int(torch.randint(2**31, ())))
        super()._draw_uniforms(count)


FAULTS = {
    _Identity: ("check_sweep_law", "check_annealing"),
    _Together: ("check_sweep_law", "check_exact_start", "check_annealing"),
    _BetaOff: ("check_sweep_law", "check_exact_start"),
    _NoReference: ("check_sweep_law", "check_exact_start"),
    _OneGroup: ("check_sweep_law", "check_exact_start"),
    _Dropped: ("check_sweep_law", "check_exact_start"),
    _Stale: ("check_energies",),
    _Drift: ("check_energies", "check_records"),
    _Shared: ("check_independence",),
    _Twins: ("check_independence",),
    _Repeats: ("check_independence",),
    _OneRow: ("check_sweep_law", "check_annealing"),
    _LateWeight: ("check_annealing",),
    _Counts: ("check_statistics", "check_records"),
    _Thin: ("check_records",),
    _Forgets: ("check_determinism",),
    _Gather: ("check_energies",),
    _Global: ("check_determinism", "check_global_random_state"),
}


@pytest.mark.fixed_seed  # of a model that shows every fault
@pytest.mark.parametrize("engine", FAULTS, ids=lambda engine: engine.__name__)
def test_broken_engine_is_refused(engine):
    tv = 0.02 if engine is _BetaOff else 0.1
    case = EngineCase(engine, standard_hypergraphs()["cycle"], 1.0, tv=tv, separate_streams=False)
    for check in ENGINE_CHECKS:
        if check.__name__ in FAULTS[engine]:
            with pytest.raises(AssertionError):
                check(case)


def test_streams_of_the_torch_engine_depend_on_the_number_of_chains():
    case = EngineCase(TorchEngine, standard_hypergraphs()["cycle"])
    streams = next(check for check in ENGINE_CHECKS if check.__name__ == "check_streams")
    with pytest.raises(AssertionError, match="equal bits"):
        streams(case)


def test_every_check_has_a_broken_engine():
    covered = {name for names in FAULTS.values() for name in names} | {"check_streams"}
    assert covered == {check.__name__ for check in ENGINE_CHECKS}


def test_suite_lists_failures_and_refuses_unknown_names():
    graphs = {"cycle": standard_hypergraphs()["cycle"]}
    with pytest.raises(AssertionError, match=r"2 checks failed(.|\n)*cycle, scale 1: check_records"):
        check_engine(_Thin, hypergraphs=graphs, separate_streams=False)
    with pytest.raises(InputError, match="unknown check 'check_everything'"):
        check_engine(TorchEngine, hypergraphs=graphs, skip=["check_everything"])


def test_case_gives_the_same_tables_for_more_groups():
    case = EngineCase(TorchEngine, standard_hypergraphs()["tree"])
    np.testing.assert_array_equal(case.tables(3)[:2], case.tables(2))
    np.testing.assert_array_equal(case.reference(3)[:2], case.reference(2))
    factory = case.factory
    assert factory is TorchEngine
