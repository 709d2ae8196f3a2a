"""Models learned from indicator (one-hot) columns beside those learned from the categories.

usage: bench_one_hot.py [--data NAME ...] [--seed S] [--apart] [--append]

Every level of mushroom, adult and breast cancer that occurs becomes a column of 0 and 1. Split as published: half of
the rows to test on, the rest 70/30 for training and validation. Both models are learned from the same rows by the same
seed, without tests of single interactions; processor time is that of ``learn`` alone, which for the columns includes
finding and joining the groups. With ``--apart`` the columns are also learned without joining them. Every model is
learned in a process of its own.
"""

import argparse
import json
import sys
import time
import warnings

import pandas as pd
from harness import LOADERS, about, markdown, peak_mb, printed, publish, script

from pyro_hoim import Domain, Observations
from pyro_hoim.data import join_columns
from pyro_hoim.log_linear import learn
from pyro_hoim.runs import RunOptions


def indicators(rows):
    """One column of 0 and 1 for every level that occurs, but for columns that never vary."""
    frame = pd.get_dummies(rows.to_pandas(count=None), prefix_sep="=").astype(int)
    frame = frame.loc[:, frame.nunique() == 2].astype(str)
    return Observations.from_pandas(frame, domain=Domain.from_labels({name: ["0", "1"] for name in frame}), count=None)


def one(name, kind, seed):
    rows = LOADERS[name]()
    rows = rows if kind == "categories" else indicators(rows)
    train, validation, test = rows.split([0.35, 0.15, 0.5], seed)
    warnings.simplefilter("ignore")
    wall, start = time.perf_counter(), time.process_time()
    join = join_columns(rows, "none" if kind == "apart" else "exact")  # of all rows, as the command does
    options = {"seed": seed, "run": RunOptions(progress=True), "false_discovery_rate": None}
    learned = learn(train, validation, join=join, **options)
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    figures = {
        "data": name,
        "from": kind,
        "columns": len(rows.domain),
        "variables": len(learned.hypergraph.domain),
        "train": learned.row_scores(train).nll,
        "test": learned.row_scores(test).nll,
        "interactions": learned.hypergraph.num_interactions,
        "log_z_error": float(learned.log_partition.std_error),
        "verdict": learned.log_partition.verdict,
        "seconds": seconds,
        "wall": wall,
        "memory_mb": peak_mb(),
    }
    print(json.dumps(figures), flush=True)


def main():
    parser = script(__doc__)
    parser.add_argument("--data", nargs="+", choices=list(LOADERS), default=list(LOADERS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--apart", action="store_true", help="also learn from columns that are not joined")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "KIND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(*options.one, options.seed)
        return
    kinds = ["categories", "columns", *(["apart"] if options.apart else [])]
    lines = []
    for name in options.data:
        for kind in kinds:
            (found,) = printed([sys.executable, __file__, "--one", name, kind, "--seed", options.seed])
            lines.append([f"{value:.4g}" if isinstance(value, float) else value for value in found.values()])
            print(lines[-1], flush=True)
    head = ["data", "from", "columns", "variables", "NLL train", "NLL test", "interactions"]
    head += ["log Z error", "verdict", "processor s", "wall s", "MB"]
    text = [f"`python tests/benchmarks/bench_one_hot.py` {about()} Split seed {options.seed}.", ""]
    publish("Indicator columns", "\n".join([*text, *markdown(head, lines)]), options.append)


if __name__ == "__main__":
    main()
