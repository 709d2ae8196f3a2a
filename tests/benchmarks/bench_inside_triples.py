"""How often a pair that is absent is rejected beside its triple, for triples of several kinds.

usage: bench_inside_triples.py RUNS [--rows N ...]

Tables of three variables with random or sloping single frequencies and one triple: normal entries, one cell, or a
product of linear or of exponential scores, centred. Shown are the shares of p-values below 5 and 1 %.
"""

import numpy as np
import torch
from harness import markdown, plain_script

from pyro_hoim import Domain, Observations
from pyro_hoim.log_linear import EdgeTester

KINDS = [
    ("normal", 2, 5),
    ("cell", 3, 5),
    ("cell", 6, 5),
    ("linear", 1, 5),
    ("linear", 3, 5),
    ("linear", 2, 3),
    ("exponential", 1, 5),
    ("exponential", 3, 5),
]


def law(kind, size, levels, rng):
    scores = np.linspace(-1, 1, levels)
    singles = [rng.normal(size=levels) for _ in range(3)]
    if kind == "normal":
        triple = size * rng.normal(size=(levels,) * 3)
    elif kind == "cell":
        triple = np.zeros((levels,) * 3)
        triple[tuple(rng.integers(0, levels, 3))] = size
    else:
        slope, own = (1.5, scores) if kind == "linear" else (1.0, np.exp(1.5 * scores) / 2)
        triple = size * own[:, None, None] * own[:, None] * own
        singles = [slope * scores * rng.choice([-1, 1]) for _ in range(3)]
    for axis in range(3):
        triple = triple - triple.mean(axis, keepdims=True)
    log_law = triple + singles[0][:, None, None] + singles[1][:, None] + singles[2]
    found = np.exp(log_law - log_law.max())
    return found / found.sum()


def main():
    parser = plain_script(__doc__)
    parser.add_argument("runs", type=int)
    parser.add_argument("--rows", nargs="+", type=int, default=[300, 2000])
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(*markdown(["triple", "size", "levels", *(f"{num:,} rows" for num in args.rows)]), sep="\n")
    for kind, size, levels in KINDS:
        cells = []
        for num in args.rows:
            values = []
            for run in range(args.runs):
                rng = np.random.default_rng([run, num, levels, 10 * size])
                counts = rng.multinomial(num, law(kind, size, levels, rng).ravel()).reshape((levels,) * 3)
                tester = EdgeTester(
                    Observations.from_table(Domain.from_cardinalities(dict.fromkeys("abc", levels)), counts)
                )
                pair = [("a", "b"), ("a", "c"), ("b", "c")][run % 3]
                values.append(tester.test(pair, [("a", "b", "c")]).p_value)
            cells.append(", ".join(f"{np.mean(np.array(values) <= level):.3f}" for level in (0.05, 0.01)))
        print(markdown([kind, size, levels, *cells])[0], flush=True)


if __name__ == "__main__":
    main()
