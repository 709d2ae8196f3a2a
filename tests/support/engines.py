"""The conformance suite of Gibbs engines: their laws, caches, records and random numbers against enumeration.

An engine registers its constructor, ``check_engine(MyEngine)``, and inherits every check. Energies and counts are
recomputed from the states in plain NumPy.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.compute.engine import Wanted
from pyro_hoim.testing.assertions import FALSE_ALARM_RATE, assert_close, assert_equal, assert_exact_law, required_draws
from pyro_hoim.testing.backends import standard_hypergraphs
from pyro_hoim.testing.conformance import run_cases
from pyro_hoim.testing.oracles import as_array, count_states, enumerate_codes, exact_table, random_tables

from .transitions import recompute_counts, recompute_energy, sweep_matrix, tempered_law

Blocks = tuple[tuple[int, ...], ...]
_MOST_ROWS = 6  # of tables


def binary_hypergraphs() -> dict[str, InteractionHypergraph]:
    """The standard structures with at most two levels per variable, for engines of binary models."""
    found = {}
    for name, hypergraph in standard_hypergraphs().items():
        names, levels = hypergraph.domain.names, [min(2, n) for n in hypergraph.domain.cardinalities]
        domain = Domain.from_cardinalities(dict(zip(names, levels, strict=True)))
        found[name] = InteractionHypergraph(
            domain, hypergraph.edges, hierarchical=hypergraph.is_hierarchical, coding=hypergraph.coding
        )
    return found


@dataclass(frozen=True)
class EngineCase:
    """An engine with one small structure and one scale of its tables and reference weights, in nats.

    Args:
        factory: constructor ``(hypergraph, blocks, num_groups, num_chains, seed, dtype)`` of an engine.
        hypergraph: the interactions, small enough to enumerate.
        scale: standard deviation of the tables and reference weights, in nats.
        seed: of the tables, states and the engine.
        dtype: precision of the conditionals.
        tv: total variation that the tests of laws find with probability 0.999.
        separate_streams: whether the random numbers of a chain are the same with more groups or chains.
    """

    factory: Callable[..., Any]
    hypergraph: InteractionHypergraph
    scale: float = 1.0
    seed: int = 0
    dtype: torch.dtype = torch.float32
    tv: float = 0.1
    separate_streams: bool = True

    @cached_property
    def cardinalities(self) -> tuple[int, ...]:
        """Levels of every variable."""
        return tuple(self.hypergraph.domain.cardinalities)

    @cached_property
    def states(self) -> np.ndarray:
        """All joint states."""
        return enumerate_codes(self.cardinalities)

    @cached_property
    def num_draws(self) -> int:
        """Chains per law."""
        return required_draws(max(2, len(self.states)), self.tv)

    @cached_property
    def _tables(self) -> torch.Tensor:
        rng = np.random.default_rng(self.seed)
        rows = [random_tables(self.hypergraph, rng, scale=self.scale, balanced=False) for _ in range(_MOST_ROWS)]
        return torch.as_tensor(np.stack(rows))

    @cached_property
    def _reference(self) -> torch.Tensor:
        rng = np.random.default_rng(self.seed + 1)
        return torch.as_tensor(self.scale * rng.standard_normal((_MOST_ROWS, sum(self.cardinalities))))

    def tables(self, num: int) -> torch.Tensor:
        """Tables (num, num_terms), not balanced, of up to six groups."""
        return self._tables[:num].clone()

    def reference(self, num: int) -> torch.Tensor:
        """Reference log weights (num, sum of cardinalities), likewise."""
        return self._reference[:num].clone()

    def blocks(self, kind: str) -> Blocks:
        """``"sites"``, the maximal ``"interactions"``, overlapping ``"pairs"`` or ``"halves"`` and all, if free."""
        d = len(self.cardinalities)
        found: list[set[int]] = [{i} for i in range(d)]
        if kind == "interactions":
            sets = [set(e) for e in self.hypergraph.edge_indices]
            covered = set[int]().union(*sets)
            found = [s for s in sets if not any(s < t for t in sets)] + [{i} for i in range(d) if i not in covered]
        elif kind == "pairs" and d > 1:
            found = [{i, (i + 1) % d} for i in range(d)]
        elif kind == "halves":
            found = [set(range(0, d, 2)), set(range(1, d, 2)), set(range(d))]
        free = (tuple(i for i in sorted(s) if self.cardinalities[i] > 1) for s in found)
        return tuple(dict.fromkeys(b for b in free if b))

    def engine(self, kind: str, num_groups: int, num_chains: int, *, same: bool = False, start: Any = None) -> Any:
        """An engine with weights (equal ones for all groups when ``same``) and states."""
        made = self.factory(self.hypergraph, self.blocks(kind), num_groups, num_chains, self.seed + 7, self.dtype)
        rows = 1 if same else num_groups
        made.set_weights(self.tables(rows), self.reference(rows))
        shape = (num_groups, num_chains, len(self.cardinalities))
        if start is None:
            start = np.random.default_rng(self.seed + 2).random(shape) * np.array(self.cardinalities)
        made.set_codes(torch.tensor(np.broadcast_to(start, shape).astype(np.int64)))
        return made

    def visits(self, kind: str, order: np.ndarray, num_sweeps: int) -> list[tuple[str, ...]]:
        """Names of the blocks visited in some sweeps."""
        names, blocks = self.hypergraph.domain.names, self.blocks(kind)
        rows = (order[s % len(order)] for s in range(num_sweeps))
        return [tuple(names[i] for i in blocks[b]) for row in rows for b in row]

    def matrix(self, group: int, visits: Sequence[tuple[str, ...]], beta: float) -> np.ndarray:
        """Transition matrix of visits with the weights of one group."""
        tables, reference = (tuple(rows[group].tolist()) for rows in (self._tables, self._reference))
        return _matrix(self.hypergraph, tables, tuple(visits), beta, reference)


@lru_cache(maxsize=1024)
def _matrix(
    hypergraph: InteractionHypergraph,
    tables: tuple[float, ...],
    visits: tuple[tuple[str, ...], ...],
    beta: float,
    reference: tuple[float, ...],
) -> np.ndarray:
    """The same for several engines, by what it depends on."""
    return sweep_matrix(hypergraph, np.array(tables), visits, beta=beta, reference=np.array(reference))


_BETAS = np.array([0.0, 0.3, 1.0])


def _forward(blocks: Blocks) -> np.ndarray:
    return np.arange(len(blocks), dtype=np.int32)[None]


def _assert_laws(case: EngineCase, codes: torch.Tensor, laws: Sequence[np.ndarray], what: str) -> None:
    """One test of all groups at once: independent draws, an equal number from each law."""
    counts = np.concatenate([count_states(codes[g], case.cardinalities) for g in range(len(laws))])
    assert_exact_law(counts, np.concatenate(laws) / len(laws), what=what)


def _assert_energies(case: EngineCase, engine: Any, what: str, tables: Any = None, reference: Any = None) -> None:
    """Cached energies equal recomputed ones; tables and reference have one row for all groups or one per group."""
    codes = engine.get_codes()
    tables = case.tables(len(codes)) if tables is None else tables
    reference = case.reference(len(codes)) if reference is None else reference
    cached, cached_reference = engine.energies()
    starts = np.concatenate([[0], np.cumsum(case.cardinalities)])[:-1].astype(np.int64)
    for g in range(len(codes)):
        row, weights = tables[g % len(tables)], reference[g % len(reference)].numpy()
        energy = recompute_energy(case.hypergraph, row, codes[g])
        assert_close(cached[g], energy, relative=1e-9, what=f"cached energy after {what}")
        energy = -weights[as_array(codes[g], np.int64) + starts].sum(-1)
        assert_close(cached_reference[g], energy, relative=1e-9, what=f"cached reference energy after {what}")


def check_sweep_law(case: EngineCase) -> None:
    """From one fixed state, sweeps have the law of the row of their transition matrix, at three temperatures."""
    start = case.states[len(case.states) // 3]
    for kind in ("sites", "interactions", "pairs", "halves"):
        blocks, num_sweeps = case.blocks(kind), 1
        order = _forward(blocks)
        if kind == "halves":  # without the block of all, of which the sweep would know nothing of where it began
            order = order[:, :2]
        if kind == "pairs":  # rows that differ, in turns over the sweeps: the first block alone, then all backwards
            order, num_sweeps = np.concatenate([0 * order, order[:, ::-1]]), 3
        engine = case.engine(kind, 3, case.num_draws, start=start)
        engine.sweep(np.ascontiguousarray(order), num_sweeps, _BETAS)
        visits = case.visits(kind, order, num_sweeps)
        where = len(case.states) // 3
        laws = [case.matrix(g, visits, float(_BETAS[g]))[where] for g in range(3)]
        _assert_laws(case, engine.get_codes(), laws, f"sweep over {kind} from a fixed state")


def check_exact_start(case: EngineCase) -> None:
    """Chains that start from the exact law have it after a sweep, at three temperatures."""
    rng = np.random.default_rng(case.seed + 3)
    tables, reference = case.tables(3), case.reference(3)
    for kind in ("sites", "interactions"):
        laws = [
            tempered_law(case.hypergraph, tables[g], beta=float(_BETAS[g]), reference=reference[g]) for g in range(3)
        ]
        start = np.stack([case.states[rng.choice(len(law), case.num_draws, p=law)] for law in laws])
        engine = case.engine(kind, 3, case.num_draws, start=start)
        engine.sweep(_forward(case.blocks(kind)), 1, _BETAS)
        _assert_laws(case, engine.get_codes(), laws, f"sweep over {kind} from the exact law")


def check_independence(case: EngineCase) -> None:
    """Chains next to each other, groups, and consecutive sweeps are as independent as the chain says."""
    if len(case.states) == 1:
        return
    size, where = 128 * -(-required_draws(16, case.tv) // 64), len(case.states) // 3
    order = _forward(case.blocks("sites"))
    engine = case.engine("sites", 6, size, same=True, start=case.states[where])
    codes = as_array(engine.sweep(order, 2, np.ones(6), Wanted(thin=1, states=True)).states, np.int64)
    cell = np.arange(len(case.states)) % 4  # four cells are enough to show dependence
    first, second = cell[np.ravel_multi_index(tuple(np.moveaxis(codes, -1, 0)), case.cardinalities)]
    folded = [first[g].reshape(-1, 2, lag) for g, lag in enumerate((1, 16, 64))]
    pairs = [(f[:, 0].reshape(-1), f[:, 1].reshape(-1)) for f in folded]
    pairs += [(first[3], first[4]), (first[5], second[5])]
    matrix, fold = case.matrix(0, case.visits("sites", order, 1), 1.0), np.eye(4)[cell]
    one = matrix[where] @ fold
    laws = [np.outer(one, one)] * 4 + [fold.T @ (matrix[where][:, None] * matrix) @ fold]
    sizes = np.array([len(a) for a, _ in pairs])
    counts = [np.bincount(4 * a + b, minlength=16) for a, b in pairs]
    law = np.stack(laws).reshape(len(pairs), 16) * sizes[:, None] / sizes.sum()
    assert_exact_law(np.stack(counts), law, what="pairs of neighbouring chains, groups and sweeps")


def check_energies(case: EngineCase) -> None:
    """Energies equal recomputed ones after every operation, and ``gather`` copies the states named."""
    engine = case.engine("interactions", 3, 40)
    order, rng = _forward(case.blocks("interactions")), np.random.default_rng(case.seed + 4)
    _assert_energies(case, engine, "set_codes")
    for _ in range(3):
        engine.sweep(order, 5, _BETAS)
        _assert_energies(case, engine, "sweep")
    saved = {name: value.clone() for name, value in engine.state().items()}
    before, index = engine.get_codes(), torch.as_tensor(rng.integers(0, 40, (3, 40)))
    engine.gather(index)
    assert_equal(engine.get_codes(), before.gather(1, index[..., None].expand_as(before)), "states after gather")
    _assert_energies(case, engine, "gather")
    engine.anneal(order, np.array([0.0, 0.5, 1.0]), 2)
    _assert_energies(case, engine, "anneal")
    engine.load_state(saved)
    _assert_energies(case, engine, "load_state")
    engine.set_codes(engine.get_codes().flip(1))
    _assert_energies(case, engine, "set_codes")
    tables, reference = case.tables(6)[3:], case.reference(6)[3:]
    engine.set_weights(tables, reference)
    _assert_energies(case, engine, "set_weights", tables, reference)
    engine.sweep(order, 1, _BETAS)
    _assert_energies(case, engine, "set_weights and sweep", tables, reference)


def check_records(case: EngineCase) -> None:
    """Records hold the states, their energies and their counts at every ``thin``-th sweep and change nothing."""
    order, beta, n = _forward(case.blocks("sites")), np.array([1.0, 0.5]), 21
    silent, engine = case.engine("sites", 2, n), case.engine("sites", 2, n)
    record = engine.sweep(order, 7, beta, Wanted(thin=3, counts=True, energies=True, states=True))
    silent.sweep(order, 6, beta)
    assert_equal(record.states[-1].long(), silent.get_codes(), "last recorded states")
    silent.sweep(order, 1, beta)
    assert_equal(engine.get_codes(), silent.get_codes(), "states after a recorded run")
    if record.num_records != 2 or record.states.shape != (2, 2, n, len(case.cardinalities)):
        raise AssertionError(f"records of 7 sweeps thinned by 3: {record.num_records}, {tuple(record.states.shape)}")
    if any(values.dtype != torch.float64 for values in (record.counts, record.energies)):
        raise AssertionError("recorded counts and energies: expected float64")
    for g in range(2):
        counts = recompute_counts(case.hypergraph, record.states[:, g])
        assert_close(record.counts[g], counts, relative=0.0, what="recorded counts")
        energy = recompute_energy(case.hypergraph, case.tables(2)[g], record.states[:, g])
        assert_close(record.energies[:, g], energy, relative=1e-9, what="recorded energies")
    for num_sweeps, thin in ((0, 1), (2, 3), (2, 0)):
        empty = engine.sweep(order, num_sweeps, beta, Wanted(thin=thin, counts=True, energies=True, states=True))
        shapes = tuple(empty.counts.shape), tuple(empty.energies.shape), tuple(empty.states.shape)
        expected = (2, case.hypergraph.num_terms), (0, 2, n), (0, 2, n, len(case.cardinalities))
        if empty.num_records or shapes != expected or empty.counts.any():
            raise AssertionError(f"no records: received {empty.num_records} of shapes {shapes}, expected {expected}")
    nothing = engine.sweep(order, 2, beta, Wanted(thin=1))
    if (nothing.num_records, nothing.counts, nothing.energies, nothing.states) != (2, None, None, None):
        raise AssertionError("records that were not asked for: expected None")


def check_statistics(case: EngineCase) -> None:
    """Sums of weights in the cells of the edges equal direct sums."""
    engine, weights = case.engine("sites", 2, 100), torch.as_tensor(np.random.default_rng(5).normal(size=(2, 100)))
    codes, plain, weighted = engine.get_codes(), engine.statistics(), engine.statistics(weights)
    for g in range(2):
        assert_close(plain[g], recompute_counts(case.hypergraph, codes[g]), relative=0.0, what="statistics")
        expected = recompute_counts(case.hypergraph, codes[g], weights[g])
        assert_close(weighted[g], expected, relative=1e-12, absolute=1e-12, what="weighted statistics")


def check_annealing(case: EngineCase) -> None:
    """Annealed weights: exact when nothing moves, unbiased for the ratio of constants, and the path as asked for."""
    still = case.engine("sites", 2, 30)
    codes, path = still.get_codes(), np.array([0.2, 0.7, 0.4, 1.0])
    model, product = still.energies()
    weights = still.anneal(np.zeros((1, 0), dtype=np.int32), path, 2)
    assert_equal(still.get_codes(), codes, "states after annealing without visits")
    assert_close(weights, 0.8 * (product - model), relative=1e-9, what="log weights without visits")
    order = np.concatenate([_forward(case.blocks("sites"))] * 2)
    order[0, -1:] = order[0, :1]  # the last block is drawn in every other sweep only
    where, betas = len(case.states) // 3, np.array([0.0, 0.3, 1.0])
    engine = case.engine("sites", 1, case.num_draws, start=case.states[where])
    engine.anneal(order, betas, 3)
    law = np.eye(len(case.states))[where]
    for k, beta in enumerate(betas[1:]):
        visits = case.visits("sites", np.roll(order, k, 0), 3)  # six sweeps take the rows in turns
        law = law @ case.matrix(0, visits, float(beta))
    _assert_laws(case, engine.get_codes(), [law], "annealed states from a fixed state")
    _assert_unbiased(case, order, np.linspace(0.0, 1.0, 5))


def _assert_unbiased(case: EngineCase, order: np.ndarray, betas: np.ndarray) -> None:
    """The mean weight from the reference law is Z over the reference's, within Bernstein's inequality."""
    tables, reference = case.tables(1)[0], case.reference(1)[0]
    start = tempered_law(case.hypergraph, tables, beta=0.0, reference=reference)
    target = exact_table(case.hypergraph, tables, normalised=False).reshape(-1)
    levels = np.concatenate([[0], np.cumsum(case.cardinalities)])[:-1].astype(np.int64)
    gain = target - reference.numpy()[case.states + levels].sum(1)
    if gain.max() - gain.min() > 12:
        return  # the weights of this model say nothing at this number of draws
    scale = np.log((start * np.exp(gain)).sum())  # log of the true ratio
    second = start * np.exp(2 * betas[1] * gain)
    for k in range(1, len(betas) - 1):
        second = second @ case.matrix(0, case.visits("sites", order[(k - 1) % len(order)][None], 1), float(betas[k]))
        second = second * np.exp(2 * (betas[k + 1] - betas[k]) * gain)
    variance = second.sum() * np.exp(-2 * scale) - 1
    rng = np.random.default_rng(case.seed + 6)
    states = case.states[rng.choice(len(start), case.num_draws, p=start)]
    log_weights = case.engine("sites", 1, case.num_draws, start=states[None]).anneal(order, betas, 1)
    mean = float((log_weights[0] - scale).exp().mean())
    rate, top = np.log(2 / FALSE_ALARM_RATE), float(np.exp(gain.max() - scale))
    bound = np.sqrt(2 * variance * rate / case.num_draws) + top * rate / (3 * case.num_draws) + 1e-9
    if abs(mean - 1) > bound:
        raise AssertionError(f"annealed weights: mean {mean:.4f} of the true ratio, expected 1 within {bound:.4f}")


def check_determinism(case: EngineCase) -> None:
    """Equal calls give equal bits, on one and on two threads, and after a reload; other seeds give others."""
    order, beta, n = _forward(case.blocks("interactions")), np.array([1.0, 0.4]), 150

    def run(engine: Any) -> tuple[torch.Tensor, ...]:
        record = engine.sweep(order, 4, beta, Wanted(thin=2, counts=True, energies=True))
        weights = engine.anneal(order, np.array([1.0, 0.5, 0.9]), 1)
        moved = engine.get_codes(), *engine.energies(), engine.statistics(weights)
        return *moved, record.counts, record.energies, weights

    threads = torch.get_num_threads()
    engine = case.engine("interactions", 2, n)
    saved = {name: value.clone() for name, value in engine.state().items()}
    first = run(engine)
    try:
        torch.set_num_threads(2)
        second = run(case.engine("interactions", 2, n))
    finally:
        torch.set_num_threads(threads)
    other = case.engine("interactions", 2, n)
    run(other)
    middle = {name: value.clone() for name, value in other.state().items()}
    later = run(other)
    other.load_state(middle)
    again = run(other)
    other.load_state(saved)
    third = run(other)
    for name, results in (("on two threads", second), ("after a reload", third)):
        for a, b in zip(first, results, strict=True):
            assert_equal(b, a, f"the same run {name}")
    for a, b in zip(later, again, strict=True):
        assert_equal(b, a, "a run continued from a saved state")


def check_streams(case: EngineCase) -> None:
    """A chain has the same random numbers whatever the numbers of groups and chains."""
    if not case.separate_streams:
        return
    start, order = case.states[-1], _forward(case.blocks("interactions"))
    expected = case.engine("interactions", 3, 130, start=start)
    expected.sweep(order, 3, _BETAS)
    for num_groups, num_chains in itertools.product((1, 3), (1, 20, 67)):
        engine = case.engine("interactions", num_groups, num_chains, start=start)
        engine.sweep(order, 3, _BETAS[:num_groups])
        wanted = expected.get_codes()[:num_groups, :num_chains]
        assert_equal(engine.get_codes(), wanted, f"{num_groups} groups of {num_chains} chains of 3 and 130")


def check_global_random_state(case: EngineCase) -> None:
    """No global generator is read or moved."""
    before = torch.random.get_rng_state()
    numbers: Any = np.random.get_state()  # noqa: NPY002 (the global generator on purpose)
    engine = case.engine("sites", 1, 8)
    engine.sweep(_forward(case.blocks("sites")), 2, np.ones(1))
    assert_equal(torch.random.get_rng_state(), before, "global state of torch")
    after: Any = np.random.get_state()  # noqa: NPY002
    assert_equal(torch.from_numpy(after[1]), torch.from_numpy(numbers[1]), "global state of NumPy")


ENGINE_CHECKS: tuple[Callable[[EngineCase], None], ...] = (
    check_energies,
    check_records,
    check_statistics,
    check_determinism,
    check_streams,
    check_global_random_state,
    check_sweep_law,
    check_exact_start,
    check_independence,
    check_annealing,
)
"""Every check of an engine."""


def check_engine(
    factory: Callable[..., Any],
    *,
    hypergraphs: dict[str, InteractionHypergraph] | None = None,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
    separate_streams: bool = True,
    skip: Iterable[str] = (),
) -> None:
    """Hold a Gibbs engine, given its constructor, to enumeration on the standard structures; see :class:`EngineCase`.

    Every failure is listed in one AssertionError. ``skip`` names checks not to run.
    """
    cases = (
        (f"{name}, scale {scale:g}", EngineCase(factory, graph, scale, dtype=dtype, separate_streams=separate_streams))
        for name, graph in (standard_hypergraphs() if hypergraphs is None else hypergraphs).items()
    )
    run_cases(ENGINE_CHECKS, cases, skip)
