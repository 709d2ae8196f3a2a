"""Paper 1's algorithms 1 and 2 as printed, under the readings of their step, on mushroom's first ten columns.

usage: PYTHONPATH=tutorials bench_printed.py [--readings NAME ...] [--heredities TAU ...] [--seeds N] [--rounds N]
           [--divide-by WHAT ...] [--append]

From nothing, ten interactions a round, exact margins, rows split as in the paper, as in table4.py. Every line is one
reading with one heredity: the divergence of the validation rows where the printed rule stops, the lowest along all
rounds, the sizes there, the share of validation rows that masking leaves out there, and processor seconds of a search.
"""

import time

import numpy as np
from harness import about, markdown, publish, script
from table4 import HEREDITIES, PUBLISHED_SELECTED, three_parts

from studies.printed import PrintedTrainer, Reading, printed_search, printed_stop

READINGS = {
    "as printed: raw": Reading(gradient="raw"),
    "purified (9)": Reading(),
    "raw, over the number of tables": Reading(gradient="raw", is_shared=True),
    "purified, over the number of tables": Reading(is_shared=True),
    "purified, 100 steps": Reading(num_steps=100),
    "raw, masked": Reading(gradient="raw", is_masked=True),
    "purified, masked": Reading(is_masked=True),
    "purified, masked, 50 steps of 0.1": Reading(is_masked=True, step=0.1, num_steps=50),
    "purified, masked, 100 steps": Reading(is_masked=True, num_steps=100),
    "raw, in turn": Reading(gradient="raw", order="in turn"),
    "purified, in turn": Reading(order="in turn"),
    "raw, in turn, masked": Reading(gradient="raw", order="in turn", is_masked=True),
    "purified, in turn, masked": Reading(order="in turn", is_masked=True),
}
DIVISORS = ("parameters", "cells", "nothing")
HEAD = ("reading", "where it stops", "lowest", "published", "stops with sets", "lowest with sets", "parameters")
HEAD = (*HEAD, "left out", "s")


def one(reading, heredity, divides, seed, num_rounds):
    """Figures of one search."""
    train, validation, _ = three_parts(seed)
    begin = time.process_time()
    found = printed_search(train, validation, reading, heredity=heredity, divides_by=divides, num_rounds=num_rounds)
    seconds = time.process_time() - begin
    curve = [entry.validation_kl for entry in found.rounds]
    stop, best = found.rounds[printed_stop(found.rounds)], found.best
    judge = PrintedTrainer(train, reading)
    judge.restructure(found.hypergraph)
    print("   ", seed, " ".join(f"{value:.3f}" for value in curve), flush=True)
    sizes = (stop.num_interactions, best.num_interactions, best.num_parameters)
    return stop.validation_kl, best.validation_kl, *sizes, judge.lost_share(validation), seconds


def shown(values):
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def line(name, heredity, divides, figures):
    """Cells of one reading over seeds."""
    stop, lowest, stop_sets, sets, parameters, lost, seconds = zip(*figures, strict=True)
    values = PUBLISHED_SELECTED["likelihood", divides != "nothing"]
    published = dict(zip(HEREDITIES, values, strict=True)).get(heredity, "-")
    heredity = heredity if isinstance(heredity, str) else f"{heredity:.0%}"
    label = f"{name}; over {divides}, {heredity}"
    sizes = [f"{np.median(values):,.0f}" for values in (stop_sets, sets, parameters)]
    return [label, shown(stop), shown(lowest), published, *sizes, f"{np.mean(lost):.1%}", f"{np.mean(seconds):.0f}"]


def main():
    parser = script(__doc__)
    parser.add_argument("--readings", nargs="+", choices=list(READINGS), default=list(READINGS)[:-4])
    parser.add_argument("--heredities", nargs="+", default=["0.3"], help="numbers or semi-strong")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--divide-by", nargs="+", choices=DIVISORS, default=DIVISORS)
    options = parser.parse_args()
    heredities = [h if h == "semi-strong" else float(h) for h in options.heredities]
    lines = markdown(HEAD)
    for name in options.readings:
        for divides in options.divide_by:
            for heredity in heredities:
                figures = [one(READINGS[name], heredity, divides, s, options.rounds) for s in range(options.seeds)]
                lines += markdown(HEAD, [line(name, heredity, divides, figures)])[2:]
                print(lines[-1], flush=True)
    text = f"{about()} One thread; {options.seeds} splits, {options.rounds} rounds; processor seconds of a search.\n\n"
    publish("Algorithms 1 and 2 as printed", text + "\n".join(lines), options.append)


if __name__ == "__main__":
    main()
