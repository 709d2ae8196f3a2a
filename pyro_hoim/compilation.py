"""Compiling the kernels of the library before they are needed.

The inner loops are compiled by Numba at their first call and kept on disk, beside the modules or in
``NUMBA_CACHE_DIR``.
``python -m pyro_hoim.compilation`` does what :func:`warm_up` does.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from .data.observations import Observations
from .errors import ConvergenceWarning, is_whole, out_of_range
from .schema import Domain, Variable
from .structure.hypergraph import InteractionHypergraph

__all__ = ["CompilationReport", "warm_up"]


@dataclass(frozen=True)
class CompilationReport:
    """What :func:`warm_up` did.

    Attributes:
        kernels: module and name of every kernel that was compiled, once for every signature; sorted. Kernels that came
            from the cache are not among them.
        num_processes: processes that compiled.
        seconds: time on the clock.
    """

    kernels: tuple[str, ...]
    num_processes: int
    seconds: float

    def __str__(self) -> str:
        if not self.kernels:
            return f"every kernel was compiled already ({self.seconds:.0f} s)"
        processes = "1 process" if self.num_processes == 1 else f"{self.num_processes} processes"
        return f"compiled {len(self.kernels)} kernels in {self.seconds:.0f} s ({processes})"


def warm_up(jobs: int | None = None) -> CompilationReport:
    """Compile every kernel of the library, so that no later call waits for one.

    Small problems are sent through all samplers, exact backends and fits, in both precisions. Needed once per machine
    and installed version; a second call compiles nothing and takes a few seconds. What hardly anyone asks for is
    compiled when first used: Gibbs sampling of blocks beside a variable of more than 256 levels, and exact sums over
    large tables that threads share where these have zeros or few long sums.

    Args:
        jobs: processes that compile at once; None for as many as there are processors, but at most four, which is the
            number of parts that compile alone. With 1 this process compiles.

    Raises:
        InputError: ``jobs`` is not a positive whole number.
        RuntimeError: a process ended with an error.

    Example:
        >>> warm_up(jobs=0)
        Traceback (most recent call last):
        pyro_hoim.errors.InputError: jobs: expected a whole number from 1 or None, received 0
    """
    if jobs is not None and (not is_whole(jobs) or jobs < 1):
        raise out_of_range("jobs", "a whole number from 1 or None", jobs)
    wanted = min(len(_PARTS), int(jobs) if jobs is not None else os.cpu_count() or 1)
    start = time.perf_counter()
    # Every process takes some parts: Numba holds a lock while it compiles, so that threads would wait for each other.
    if wanted == 1:
        kernels = _compile(tuple(_PARTS))
    else:
        shares = [[name for k, name in enumerate(_PARTS) if k % wanted == j] for j in range(wanted)]
        command = [sys.executable, "-m", "pyro_hoim.compilation", "--parts"]
        paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        processes = [
            subprocess.Popen([*command, *share], stdout=subprocess.PIPE, text=True, env=paths)  # noqa: S603
            for share in shares
        ]
        outputs = [process.communicate()[0] for process in processes]
        for process, share in zip(processes, shares, strict=True):
            if process.returncode:
                raise RuntimeError(f"compiling {', '.join(share)} ended with exit status {process.returncode}")
        kernels = [kernel for output in outputs for kernel in json.loads(output)]
    return CompilationReport(tuple(sorted(kernels)), wanted, time.perf_counter() - start)


def _compile(parts: Sequence[str]) -> list[str]:
    """Run the problems of some parts, without the notice; the kernels of this library that were compiled."""
    from numba.core import event

    from .compute.jit import kernel_of

    logger = logging.getLogger("pyro_hoim")
    before = logger.level
    logger.setLevel(logging.ERROR)
    # The compiler makes many objects that stay; looking through them again and again took a fifth of its time.
    is_searched = gc.isenabled()
    gc.disable()
    try:
        with event.install_recorder("numba:compile") as recorder, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the problems are small, not meant to converge
            for part in parts:
                num_events = len(recorder.buffer)
                _PARTS[part]()
                if len(recorder.buffer) > num_events:
                    gc.collect()
    finally:
        logger.setLevel(before)
        if is_searched:
            gc.enable()
    names = [kernel_of(event) for _, event in recorder.buffer if event.is_start]
    return [name for name in names if name is not None]


def _table_chains() -> None:
    """Gibbs chains by look-ups, of sites, of listed blocks and of trees; codes of four bytes by sites alone."""
    for precision, blocks in itertools.product((torch.float32, torch.float64), ("sites", "interactions", "trees")):
        _gibbs_chains(9, "tables", precision, blocks)
    _gibbs_chains(300, "tables", torch.float32, "sites")


def _product_chains() -> None:
    """Gibbs chains by products of signs."""
    for precision in (torch.float32, torch.float64):
        _gibbs_chains(2, "products", precision, "sites")


def _gibbs_chains(levels: int, engine: Any, precision: torch.dtype, blocks: Any) -> None:
    """Chains of two variables, one of them of some levels."""
    from .log_linear.chains.gibbs import GibbsChains
    from .log_linear.energy import LogLinearEnergy
    from .runs.schedule import GibbsSchedule

    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([levels, 2]), 2)
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms))
    chains = GibbsChains(model, 2, schedule=GibbsSchedule(blocks), engine=engine, precision=precision)
    chains.sweep(1, thin=1, counts=True, energies=True, states=True)
    chains.statistics(torch.ones(2, dtype=torch.float64))


def _networks() -> None:
    """Learning of decision graphs, also from rows as bits; pseudo-Gibbs, stationary laws."""
    from .data.sources.rows import MemoryRows
    from .dependency_network.chains.pseudo_gibbs import PseudoGibbsChains
    from .dependency_network.learn.network import learn_network
    from .dependency_network.stationary import cyclic_laws, stationary_law

    rows = _rows()
    for lossless in (False, True):
        network = learn_network(rows, lossless=lossless).conditionals
    for levels in (2, 300, 2**15):
        apart = Observations(Domain.from_cardinalities([levels, 2]), torch.tensor([[0, 1], [1, 0]]))
        learn_network(MemoryRows.of(apart))
    stationary_law(network, method="solve")
    cyclic_laws(network)
    wide = Observations(Domain.from_cardinalities([300, 2]), torch.tensor([[0, 1], [299, 0]]))
    single, double = torch.float32, torch.float64
    for model, precisions in ((network, (single, double)), (learn_network(wide).conditionals, (single,))):
        for precision in precisions:
            for scan in ("random", "sequential"):
                chains = PseudoGibbsChains(model, 2, scan=scan, precision=precision)
                chains.sweep(1, thin=1, counts=True, states=True)


def _elimination() -> None:
    """Exact log Z, marginals and samples of log-linear models in both precisions."""
    from .log_linear.energy import LogLinearEnergy
    from .log_linear.exact.elimination import VariableElimination

    domain = Domain.from_cardinalities([2, 3, 2, 2])
    hypergraph = InteractionHypergraph(domain, [("x0", "x1"), ("x1", "x2"), ("x2", "x3"), ("x0", "x3")], closure=True)
    backend = VariableElimination()
    for dtype in (torch.float32, torch.float64):
        tables = torch.zeros(hypergraph.num_terms, dtype=dtype)
        backend.log_partition(LogLinearEnergy(hypergraph, tables))
        backend.expectations(LogLinearEnergy(hypergraph, tables.requires_grad_()))
        backend.sample(LogLinearEnergy(hypergraph, tables.detach()), (2,), generator=torch.Generator())
        large = InteractionHypergraph.saturated(Domain.from_cardinalities([600, 600]))  # steps that threads share
        model = LogLinearEnergy(large, torch.zeros(large.num_terms, dtype=dtype, requires_grad=True))
        backend.log_partition(model).value.backward()


def _mini_buckets() -> None:
    """Bounds of log Z, their gradients, and draws from them."""
    from .log_linear.bounds.importance import BucketImportance
    from .log_linear.energy import LogLinearEnergy

    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 4), 2)
    model = LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms, dtype=torch.float64))
    BucketImportance(max_cells=4, passes=2, orders=1, seed=0, num_draws=2).log_partition(model)


def _fits() -> None:
    """Information of sets, fits by likelihood, pseudo-likelihood and weighted chains, smooth ridges."""
    from .data.information import InformationTable
    from .log_linear.training.exact import ExactTrainer
    from .log_linear.training.pseudo import PseudoTrainer
    from .log_linear.training.ridge import InteractionRidge
    from .log_linear.training.sampled.trainer import SampledTrainer, SampledTraining

    rows = _rows()
    for weight in (1.0, 0.5):  # tables of whole counts are counted by bits, others row by row
        weighted = rows.replaced(counts=weight * rows.counts)
        InformationTable(weighted).interaction_information([rows.domain.names[:2]])
    pairs = InteractionHypergraph.from_order(rows.domain, 2)
    ridge = InteractionRidge(default=1.0, smoothness=0.5)
    for trainer in (ExactTrainer(rows, pairs, penalty=ridge), PseudoTrainer(rows, pairs)):
        trainer.train()
    settings = SampledTraining(num_chains=20, num_iterations=2)
    trainer = SampledTrainer(rows, pairs, settings=settings)
    trainer.train()
    trainer.margins([rows.domain.names[:2]])


def _root_models() -> None:
    """Regressions and refits of counts and positive data, node log partitions, node-conditional Gibbs."""
    from .generalized_root.chains.draws import draw_from_nodes
    from .generalized_root.chains.gibbs import RootChains
    from .generalized_root.energy import GeneralizedRootEnergy
    from .generalized_root.exact.enumeration import RootEnumeration
    from .generalized_root.nodes.bounds import node_bounds
    from .generalized_root.nodes.families import ExponentialFamily, GaussianFamily, IndicatorFamily, PoissonFamily
    from .generalized_root.nodes.log_partition import node_moments
    from .generalized_root.nodes.user_family import UserFamily
    from .generalized_root.regress.fit import fit_roots
    from .generalized_root.regress.options import RootSettings
    from .generalized_root.structure import RootStructure

    counts = [[2, 1, 0], [0, 0, 1], [1, 3, 0], [3, 2, 1], [0, 1, 0]]
    for candidates in (None, {3: [("x0", "x1", "x2")]}):
        fit_roots(counts, order=3, l1=0.01, refit="all", settings=RootSettings(candidates=candidates))
    fit_roots(20 * counts, l1=0.1)  # so many rows that features are made dense
    fit_roots(counts, l1=0.1, settings=RootSettings(objective="upper-bound", stop="published"))
    labels = [[1, 0, 2.0], [0, 1, 0.0], [0, 1, 1.0], [1, 0, 3.0], [0, 1, 0.0]]
    fit_roots(labels, [IndicatorFamily("a"), IndicatorFamily("a"), PoissonFamily()], l1=0.01)
    for family in (PoissonFamily(), ExponentialFamily(), GaussianFamily()):
        node_moments(family, torch.tensor([-1.0, -1.0, 0.1], dtype=torch.float64))
    node_moments(PoissonFamily(), torch.tensor([9.0, 0.0, 0.0], dtype=torch.float64))  # a count beyond the tables
    node_bounds(ExponentialFamily(), [-1.0, 0.5])
    geometric = UserFamily("geometric", "count", lambda x: 0.0 * x, is_normalizable=True)
    for family in (PoissonFamily(), ExponentialFamily(), geometric):
        draw_from_nodes(family, torch.tensor([[-1.0, 0.1]]), generator=torch.Generator().manual_seed(0))
        domain = Domain([Variable(name, kind=family.kind) for name in "ab"])
        structure = RootStructure.simplified(domain, [("a", "b")])
        energy = GeneralizedRootEnergy(structure, torch.tensor([-1.0, -1.0, 0.01], dtype=torch.float64), family)
        if family is not geometric:
            RootEnumeration().log_partition(energy)
        chains = RootChains(energy, 2)
        chains.sweep(1)
        chains.log_q()
    # A category beside a family whose draws are not compiled.
    domain = Domain([Variable(name, kind="count") for name in "abc"])
    structure = RootStructure(domain, {(1, 1): [("a",), ("b",), ("c",)]})
    beside = [geometric, IndicatorFamily("d"), IndicatorFamily("d")]
    psi = torch.tensor([-1.0, 0.0, 0.0], dtype=torch.float64)
    RootChains(GeneralizedRootEnergy(structure, psi, beside), 2).sweep(1)


def _structures() -> None:
    """Posteriors over structure of a small table: eliminations of graphs, modes of many collections."""
    from .inference.structure.average import average_decomposable
    from .inference.structure.posterior import enumerate_structures
    from .inference.structure.prior import StructurePrior

    rows = _rows()
    enumerate_structures(rows, "unit", StructurePrior(rows.domain, max_order=2))
    enumerate_structures(rows, "conjugate:1", StructurePrior(rows.domain, space="decomposable"))
    average_decomposable(rows, num_draws=2)


def _sources() -> None:
    """Counts of rows that pass by, whose codes have one, two and four bytes."""
    from .data.kernels import mark_values
    from .data.sources.rows import MemoryRows

    mark_values(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.bool_))
    for levels in (2, 300, 2**15):
        rows = Observations(Domain.from_cardinalities([levels, 2]), torch.tensor([[0, 1]]))
        MemoryRows.of(rows).marginal_counts([("x0", "x1")])


def _rows() -> Observations:
    """Rows in which the three variables depend on each other."""
    ordinal = Variable("b", labels=("0", "1", "2"), kind="ordinal")
    domain = Domain([Variable("a", labels=("0", "1")), ordinal, Variable("c", labels=("0", "1"))])
    codes = torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(2))
    counts = torch.tensor([90, 5, 20, 40, 10, 60, 3, 80, 30, 7, 50, 11])
    return Observations(domain, codes, counts)


def _fibres() -> None:
    """Tables with the same margins, listed and walked through."""
    from .log_linear.goodness.fibre import Fibre, listed_tables

    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
    counts, allowed = np.array([3, 1, 1, 3]), np.ones(4, dtype=bool)
    listed_tables(counts, allowed, [np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])])
    Fibre(hypergraph, allowed).chains(counts, 10, 0).draw(1)


def _auxiliary_tables() -> None:
    """Tables of counts that the exchange algorithm draws."""
    from .inference.intractable.exchange import Exchange
    from .inference.posterior import log_linear_model
    from .inference.runner import run_mcmc
    from .log_linear.laws.normal import normal_prior

    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
    counts = torch.tensor([30.0, 10.0, 20.0, 20.0], dtype=torch.float64)
    program = partial(log_linear_model, hypergraph, normal_prior(hypergraph, dtype=torch.float64), counts, 40)
    run_mcmc(Exchange(program), 1, burn_in=0, num_chains=1, seed=0, progress=False)


# In turn by two to four processes, each has about as much: the first four take 25 to 35 s, the last four 2 to 6.
_PARTS: dict[str, Callable[[], None]] = {
    "buckets": _mini_buckets,
    "roots": _root_models,
    "networks": _networks,
    "tables": _table_chains,
    "products": _product_chains,
    "elimination": _elimination,
    "fits": _fits,
    "structures": _structures,
    "fibres": _fibres,
    "auxiliary": _auxiliary_tables,
    "sources": _sources,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--parts"]:
        sys.stdout.write(json.dumps(_compile(sys.argv[2:])))
    else:
        sys.stdout.write(f"{warm_up()}\n")
