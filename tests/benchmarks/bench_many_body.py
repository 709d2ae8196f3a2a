"""Table 4 of paper 1, many-body rows of the pseudo-likelihood: the true divergence along its training.

usage: bench_many_body.py [--orders K ...] [--seeds N] [--steps N] [--append]

All sets of up to K of mushroom's first ten columns, rows split as in table4.py, no penalty, no masking. Gradient
descent with the published step of 0.5 on the pseudo-likelihood and L-BFGS; every ten steps up to 100 and every fifty
then the divergence of the validation rows from the joint distribution of the tables, exact. Processor seconds.
"""

import time
import warnings

import numpy as np
from harness import about, markdown, publish, script
from table4 import three_parts

from pyro_hoim import InteractionHypergraph
from pyro_hoim.errors import ConvergenceWarning
from pyro_hoim.log_linear import ExactTrainer, PseudoTrainer, Stopping

PRINTED = {1: 4.6062, 2: 1.5005, 3: 0.6579}
HEAD = (
    "sets of up to",
    "optimiser",
    "after 10 steps",
    "100",
    "last",
    "lowest",
    "at step",
    "printed",
    "passed at step",
    "s",
)


def path(order, method, seed, steps):
    """The true divergence of the validation rows along a training: steps and nats."""
    train, validation, _ = three_parts(seed)
    graph = InteractionHypergraph.from_order(train.domain, order)
    trainer = PseudoTrainer(train, graph, method=method, stopping=Stopping(1e-9, 10))
    judge, entropy, done, found = ExactTrainer(train, graph), validation.entropy(), 0, []
    while done < steps:
        count = 10 if done < 100 else 50
        trainer.stopping = Stopping(1e-9, count)
        report = trainer.train()
        done += report.num_iterations
        judge._adopt(trainer.tables.numpy())
        judge._known = None
        found.append((done, judge.loss(validation).value - entropy))
        if report.status not in ("max_iterations", "stalled") or not np.isfinite(found[-1][1]):
            break
    return found


def shown(values):
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def line(order, method, seeds, steps):
    """One row of the table."""
    begin = time.process_time()
    paths = [path(order, method, seed, steps) for seed in range(seeds)]
    seconds = (time.process_time() - begin) / seeds
    for found in paths:
        print("   ", order, method, " ".join(f"{step}:{value:.3f}" for step, value in found), flush=True)
    at = {n: [min(found, key=lambda pair: abs(pair[0] - n))[1] for found in paths] for n in (10, 100)}
    best = [min(found, key=lambda pair: pair[1]) for found in paths]
    last = [found[-1][1] for found in paths]
    where = f"{np.median([step for step, _ in best]):.0f}"
    lowest = shown([value for _, value in best])
    name = "gradient, step 0.5" if method == "gradient" else "L-BFGS"
    figures = (shown(at[10]), shown(at[100]), shown(last), lowest, where)
    passed = [next((step for step, value in found if value <= PRINTED[order]), None) for found in paths]
    at_step = ", ".join("never" if step is None else str(step) for step in passed)
    return order, name, *figures, f"{PRINTED[order]:.4f}", at_step, f"{seconds:.0f}"


def main():
    parser = script(__doc__)
    parser.add_argument("--orders", type=int, nargs="+", default=[1, 2, 3], choices=[1, 2, 3])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = []
    for order in options.orders:
        for method in ("gradient", "lbfgs"):
            rows.append(line(order, method, options.seeds, options.steps))
            print(*markdown(HEAD, rows)[-1:], flush=True)
    text = f"{about()} One thread; {options.seeds} splits; processor seconds of a path.\n\n"
    publish("Many-body pseudo-likelihood of table 4", text + "\n".join(markdown(HEAD, rows)), options.append)


if __name__ == "__main__":
    main()
