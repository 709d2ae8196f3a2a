"""Exact inference against Pyro's contraction, pgmpy and mbi, in one run on one machine; appends to docs/benchmarks.md.

Models: B1 and B1m, 23 variables of the mushroom data's cardinalities with 22 pairs and 6 triples (along a path; at
random); binary grids. Each peer runs in its own virtual environment, named by the environment variable
PYRO_HOIM_PEER_PGMPY or PYRO_HOIM_PEER_MBI (path of a Python) or else made under the temporary folder.

    python tests/benchmarks/bench_elimination.py [--sections small grids limits plans dense] [--no-append]
"""

import json
import tempfile
import time
from functools import partial
from importlib.metadata import version

import numpy as np
import torch
from harness import CORES, MUSHROOM, Report, as_energy, grid_pairs, median, run_peer, script, subsets, write_models

from pyro_hoim.log_linear import Auto, Enumeration, VariableElimination
from pyro_hoim.log_linear.energy import LogLinearEnergy
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph, elimination_order

ORACLES = ("message_passing_hugin", "message_passing_shafer_shenoy")


def mushroom_model(name):
    """B1: pairs and triples along a random path; B1m: random pairs and triples. Tables normal, sd 0.3, float32."""
    d = len(MUSHROOM)
    if name == "B1":
        rng = np.random.default_rng(3)
        path = rng.permutation(d)
        scopes = [tuple(sorted((int(path[i]), int(path[i + 1])))) for i in range(d - 1)]
        starts = sorted(rng.choice(d - 2, 6, replace=False))
        scopes += [tuple(sorted(int(v) for v in path[i : i + 3])) for i in starts]
    else:
        rng = np.random.default_rng(11)
        scopes = subsets(rng, d, 2, 22) + subsets(rng, d, 3, 6)
    scopes = [(i,) for i in range(d)] + scopes
    return MUSHROOM, [(s, rng.normal(0, 0.3, [MUSHROOM[i] for i in s]).astype(np.float32)) for s in scopes]


def grid_model(size):
    rng = np.random.default_rng(0)
    return [2] * size**2, [(s, rng.normal(0, 0.3, (2, 2)).astype(np.float32)) for s in grid_pairs(size)]


def min_fill(model):
    """Order of least fill-in, ties to the smaller table: the usual choice of junction-tree programs."""
    cards, tables = model
    near = {v: set() for v in range(len(cards))}
    for scope, _ in tables:
        for v in scope:
            near[v].update(u for u in scope if u != v)
    order = []
    while near:

        def score(v):
            around = sorted(near[v])
            missing = sum(b not in near[a] for i, a in enumerate(around) for b in around[i + 1 :])
            return missing, np.log(cards[v]) + sum(np.log(cards[u]) for u in around)

        best = min(near, key=score)
        around = near.pop(best)
        for v in around:
            near[v] = (near[v] | around) - {v, best}
        order.append(f"v{best}")
    return tuple(order)


def of_peer(package, models, repeats, *arguments):
    written = {
        name: {"cards": np.array(cards), "scopes": json.dumps([s for s, _ in tables]), "tables": [t for _, t in tables]}
        for name, (cards, tables) in models.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        return run_peer(f"elimination_{package}", write_models(folder, written), repeats, *arguments)


def pyro_contraction(model):
    """Log Z by pyro.ops.contract and all marginals by autograd, and log Z alone."""
    import opt_einsum
    from pyro.ops.contract import einsum

    _, tables = model
    equation = ",".join("".join(opt_einsum.get_symbol(i) for i in scope) for scope, _ in tables) + "->"
    factors = [torch.as_tensor(table) for _, table in tables]

    def log_z(operands):
        return einsum(equation, *operands, backend="pyro.ops.einsum.torch_log", plates="", cache={})[0]

    def both():
        operands = [f.clone().requires_grad_() for f in factors]
        value = log_z(operands)
        return value.detach(), torch.autograd.grad(value, operands)

    return both, lambda: log_z(factors)


def small(report):
    """B1 and B1m on one thread: log Z and all marginals."""
    torch.set_num_threads(1)
    models = {name: mushroom_model(name) for name in ("B1", "B1m")}
    peers = of_peer("pgmpy", {"B1": models["B1"]}, 9) + of_peer("mbi", models, 50, *ORACLES, "message_passing_fast")
    for name, model in models.items():
        energy = as_energy(model)
        backend = VariableElimination()
        exact = float(backend.log_partition(as_energy(model, torch.float64)).value)

        def ours(energy=energy, backend=backend):
            return backend.log_partition(energy).value, backend.expectations(energy)

        value, eta = ours()
        start = time.perf_counter()
        VariableElimination(order=energy.domain.names[::-1]).plan(energy.hypergraph)
        time_plan = time.perf_counter() - start
        mine, _ = median(ours, 300, 20)
        alone, _ = median(lambda: backend.log_partition(energy), 300, 20)
        note = f"error of log Z {abs(float(value) - exact):.1g}; plan once {time_plan * 1e3:.1f} ms"
        report.add(f"{name}: log Z + all marginals, 1 thread", "ours", mine, note=note)
        both, log_z = pyro_contraction(model)
        reference, gradients = both()
        assert abs(float(reference) - exact) < 1e-3
        last = energy.hypergraph.term_slices[tuple(f"v{i}" for i in model[1][-1][0])]
        assert torch.allclose(gradients[-1].reshape(-1), eta[last], atol=1e-5)
        seconds, _ = median(both, 15)
        report.add(f"{name}: log Z + all marginals", f"pyro-ppl {version('pyro-ppl')}", seconds, seconds / mine)
        seconds, _ = median(log_z, 15)
        report.add(f"{name}: log Z alone", "ours", alone)
        report.add(f"{name}: log Z alone", f"pyro-ppl {version('pyro-ppl')}", seconds, seconds / alone)
        for row in (r for r in peers if r["model"] == name):
            if "log_z" in row:
                assert abs(row["log_z"] - exact) < 1e-6
            if "check" in row:
                assert abs(row["check"] - float(eta[last][0])) < 1e-5
            note = f"first call {row['first_call']:.1f} s" if "first_call" in row else ""
            report.add(f"{name}: {row['what']}", row["peer"], row["seconds"], row["seconds"] / mine, note)


def grids(report, sizes=(14, 16)):
    """Binary grids against mbi, both on all cores; ours with its own order and with min-fill (tables as large)."""
    torch.set_num_threads(CORES)
    for size in sizes:
        model = grid_model(size)
        energy = as_energy(model)
        peers = of_peer("mbi", {f"{size}x{size}": model}, 7, *ORACLES)
        for label, order in (("own order", None), ("min-fill order", min_fill(model))):
            backend = VariableElimination(order=order)
            cost = backend.plan(energy.hypergraph)
            eta = backend.expectations(energy)
            seconds, _ = median(lambda: (backend.log_partition(energy), backend.expectations(energy)), 7)
            what = f"{size}x{size} binary grid: log Z + marginals, {label}"
            report.add(what, "ours", seconds, note=f"largest table 2^{np.log2(cost.cells):.0f}")
            alone, _ = median(lambda: backend.expectations(energy), 7)
            report.add(f"{size}x{size} binary grid: marginals, {label}", "ours", alone)
            last = energy.hypergraph.term_slices[tuple(f"v{i}" for i in model[1][-1][0])]
            for row in peers:
                assert abs(row["check"] - float(eta[last][0])) < 1e-4
                note = f"largest table 2^{np.log2(row['cells']):.0f}; compile {row['first_call']:.0f} s"
                what = f"{size}x{size} {row['what']} (against {label})"
                report.add(what, row["peer"], row["seconds"], row["seconds"] / alone, note)


def limits(report):
    """Largest tables within two seconds, float32, all cores, with the min-fill order; default memory budget."""
    torch.set_num_threads(CORES)
    for size, with_marginals in ((18, False), (17, True)):
        model = grid_model(size)
        energy = as_energy(model)
        what = "log Z + all marginals" if with_marginals else "log Z"
        for label, order in (("min-fill order", min_fill(model)), ("own order", None)):
            backend = VariableElimination(order=order)
            cost = backend.plan(energy.hypergraph)
            call = backend.expectations if with_marginals else backend.log_partition
            seconds, fastest = median(partial(call, energy), 5, 1)
            note = f"largest table 2^{np.log2(cost.cells):.0f}, {cost.total_cells:.3g} cells in all"
            note += f"; fastest {fastest:.2f} s"
            report.add(f"{size}x{size} binary grid, {label}: {what}", "ours", seconds, note=note)


def plans(report, sizes=(12, 20, 24, 30)):
    """Time to search for an order, and what the plan says of memory, on binary grids."""
    for size in sizes:
        hypergraph = as_energy(grid_model(size)).hypergraph
        seconds, _ = median(lambda: elimination_order(hypergraph), 3, 1)
        plan = VariableElimination().plan(hypergraph)
        gib = plan.memory_bytes / 2**30
        note = f"largest table 2^{np.log2(plan.cells):.0f}, "
        note += f"{gib:.3g} GiB for log Z and marginals" if plan.feasible else plan.reason.split(",")[0]
        report.add(f"{size}x{size} binary grid: search for an order", "ours", seconds, note=note)


def dense(report):
    """Small and dense models: enumeration paths."""
    torch.set_num_threads(CORES)
    domain = Domain.from_cardinalities(MUSHROOM[:10])
    for order in (2, 3):
        hypergraph = InteractionHypergraph.from_order(domain, order)
        generator = torch.Generator().manual_seed(0)
        tables = 0.1 * torch.randn(hypergraph.num_terms, dtype=torch.float64, generator=generator)
        tables.requires_grad_()
        model = LogLinearEnergy(hypergraph, tables)

        def both(model=model, tables=tables):
            value = Auto().log_partition(model).value
            return value, torch.autograd.grad(value, tables)

        seconds, fastest = median(both, 9)
        note = f"{Auto().plan(hypergraph).method}, {len(hypergraph.edges)} edges, fastest {fastest * 1e3:.0f} ms"
        what = f"complete order {order}, 829,440 states: log Z + all marginals, float64"
        report.add(what, "ours", seconds, note=note)
        assert isinstance(Auto().select(hypergraph), Enumeration)
    torch.set_num_threads(1)
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
    tables = torch.zeros(hypergraph.num_terms, dtype=torch.float64, requires_grad=True)
    model = LogLinearEnergy(hypergraph, tables)
    seconds, _ = median(lambda: torch.autograd.grad(Auto().log_partition(model).value, tables), 500, 50)
    report.add("2^6, all two-way: log Z + gradient by autograd", "ours", seconds, note=Auto().plan(hypergraph).method)


SECTIONS = {"small": small, "grids": grids, "limits": limits, "plans": plans, "dense": dense}


def main():
    parser = script(__doc__, appends=True)
    parser.add_argument("--sections", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    options = parser.parse_args()
    report = Report()
    for name in options.sections:
        SECTIONS[name](report)
    if not options.no_append:
        report.append("Elimination")


if __name__ == "__main__":
    main()
