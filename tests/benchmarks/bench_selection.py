"""What a whole search costs against the number of variables and rows, stage by stage.

usage: PYTHONPATH=tutorials bench_selection.py [--variables D ...] [--rows N ...] [--seed N] [--quick] [--append]

Binary rows are drawn exactly from a sparse model: blocks of five variables, each with three pairs and one triple whose
coefficients are 0.35 to 0.6 with random signs. They are split 35/15/50 as at the command line, and ``learn`` finds
interactions of up to three variables. Every cell of the table is a process of its own with one thread; stages are
seconds of its processor time, so that other work on the machine counts little. Compiled code is loaded before.

    information   entropies of the training rows for |J|, which screens more than 20,000 candidates
    candidates    sets that heredity admits
    scoring       gains at the present model, with its margins
    training      of every round and of the collection that is kept
    log Z         annealed runs for the losses of the rounds and for the result
"""

import argparse
import json
import math
import sys
import time

import numpy as np
import torch
from harness import about, markdown, peak_mb, printed, publish, script

from pyro_hoim.data.information import InformationTable
from pyro_hoim.log_linear import (
    CandidatePool,
    ExactTrainer,
    Gain,
    LogLinearEnergy,
    SampledTrainer,
    SampledTraining,
    SelectionOptions,
    learn,
    synthesise,
)
from pyro_hoim.runs import RunOptions
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

from studies.complexity import structure_recovery

BLOCK = 5
SPLIT = [0.35, 0.15, 0.5]
STAGES = {
    "information": [(InformationTable, "interaction_information")],
    "candidates": [(CandidatePool, "add"), (CandidatePool, "available")],
    "scoring": [(Gain, "estimate")],
    "training": [(SampledTrainer, "train"), (ExactTrainer, "train")],
    "log Z": [(t, name) for t in (SampledTrainer, ExactTrainer) for name in ("loss", "log_partition")],
}
HEAD = ["variables", "rows", "trainer", "rounds", "candidates", "pairs", "triples", *STAGES, "other", "total, s", "MB"]


class Stages:
    """Processor time of the outermost of some methods, by stage."""

    def __init__(self):
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._is_inside = False
        for stage, methods in STAGES.items():
            for owner, name in methods:
                setattr(owner, name, self._timed(getattr(owner, name), stage))

    def _timed(self, method, stage):
        def timed(*args, **kwargs):
            if self._is_inside:
                return method(*args, **kwargs)
            self._is_inside = True
            begin = time.process_time()
            try:
                return method(*args, **kwargs)
            finally:
                self._is_inside = False
                self.seconds[stage] += time.process_time() - begin

        return timed

    def clear(self):
        """Forget what was timed."""
        self.seconds = dict.fromkeys(STAGES, 0.0)


def planted_model(num_variables, seed):
    """Blocks a-b-c, d-e and the triple c-d-e in random order; single variables beside them."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities({f"v{i:04d}": 2 for i in range(num_variables)})
    names, sign = domain.names, np.array([1.0, -1.0])
    tables = {(name,): rng.normal(0, 0.3) * sign for name in names}
    for start in range(0, num_variables - BLOCK + 1, BLOCK):
        a, b, c, d, e = (names[start + k] for k in rng.permutation(BLOCK))
        for edge in ((a, b), (b, c), (d, e), (c, d, e)):
            coefficient = rng.choice([-1, 1]) * rng.uniform(0.35, 0.6)
            table = sign if len(edge) == 1 else np.multiply.outer(sign, sign)
            table = table if len(edge) < 3 else np.multiply.outer(table, sign)
            tables[tuple(sorted(edge))] = coefficient * table
    graph = InteractionHypergraph(domain, tables, hierarchical=False)
    flat = torch.zeros(graph.num_terms, dtype=torch.float64)
    for edge, table in tables.items():
        flat[graph.term_slices[edge]] = torch.from_numpy(np.ravel(table))
    return LogLinearEnergy(graph, flat)


def one(num_variables, num_rows, seed):
    """One search; prints a JSON object."""
    torch.set_num_threads(1)
    stages = Stages()
    small = synthesise(planted_model(10, 0), 100, seed=0, method="exact")
    brief = SampledTraining(num_chains=64, num_iterations=60, refresh_chains=64, loss_standard_error=1.0)
    for trainer in ("sampled", "exact"):  # loads the compiled code
        learn(small, small, trainer=trainer, sampling=brief, search=SelectionOptions(max_rounds=3))
    model = planted_model(num_variables, seed)
    rows = synthesise(model, num_rows, seed=seed + 1, method="exact")
    train, validation, test = rows.split(SPLIT, seed)
    stages.clear()
    begin, wall = time.process_time(), time.perf_counter()
    learned = learn(train, validation, seed=seed, run=RunOptions(progress=True))
    total, wall = time.process_time() - begin, time.perf_counter() - wall
    peak = peak_mb()
    recovery, joint = {}, {}
    structures = {"predictive": learned.hypergraph, "structure": learned.structure.hypergraph}
    for order in (2, 3):
        planted = {e for e in model.hypergraph.edges if len(e) == order}
        found = {e for e in structures["structure"].edges if len(e) == order}
        recovery[order] = (len(found), len(found & planted) / max(1, len(found)), len(found & planted) / len(planted))
    for name, graph in structures.items():
        joint[name] = list(structure_recovery(graph, model.hypergraph))
    figures = {
        "variables": num_variables,
        "rows": num_rows,
        "trainer": learned.trainer,
        "rounds": len(learned.selection.rounds),
        "candidates": max(entry.num_candidates for entry in learned.selection.rounds),
        "interactions": len(learned.hypergraph),
        "recovery": recovery,
        "joint": joint,
        "structure_gain": learned.structure.gain(test),
        "tests": learned.seconds["tests"],
        "stages": {**stages.seconds, "other": total - sum(stages.seconds.values())},
        "total": total,
        "wall": wall,
        "gain": learned.gain(test),
        "log_z_error": float(learned.log_partition.std_error),
        "peak_mb": peak,
    }
    print(json.dumps(figures))


def line(found):
    """A row of the table."""
    pairs, triples = (
        f"{number} ({precision:.2f} / {recall:.2f})" for number, precision, recall in found["recovery"].values()
    )
    cells = [found["variables"], f"{found['rows']:,}", found["trainer"], found["rounds"], f"{found['candidates']:,}"]
    cells += [pairs, triples, *(f"{value:.1f}" for value in found["stages"].values())]
    return f"| {' | '.join(map(str, [*cells, round(found['total']), round(found['peak_mb'])]))} |"


def main():
    parser = script(__doc__)
    parser.add_argument("--variables", nargs="+", type=int, default=[20, 50, 100, 200, 500])
    parser.add_argument("--rows", nargs="+", type=int, default=[1000, 4000, 16_000])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="20 and 100 variables with 1,000 rows")
    parser.add_argument("--one", nargs=2, type=int, metavar=("D", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(*options.one, options.seed)
        return
    variables, rows = ([20, 100], [1000]) if options.quick else (options.variables, options.rows)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    lines = markdown(HEAD)
    for d in variables:
        for n in rows:
            (found,) = printed([sys.executable, __file__, "--one", d, n, "--seed", options.seed], **threads)
            lines.append(line(found))
            error = found["log_z_error"] if math.isfinite(found["log_z_error"]) else math.nan
            print(lines[-1], f"wall {found['wall']:.0f} s, gain {found['gain']:.3f}, log Z ± {error:.3f}", flush=True)
    text = (
        f"`python tests/benchmarks/bench_selection.py`. {about()} One thread. Rows are split 35/15/50. Seconds of "
        "processor time; candidates of the largest round; pairs and triples found, in brackets precision and recall "
        "against those planted.\n\n"
    )
    publish("Cost of a search", text + "\n".join(lines), options.append)


if __name__ == "__main__":
    main()
